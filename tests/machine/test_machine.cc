/* Tests of the machine model: what a GPU did, a pipeline of all primitives, planted faults. Speaks TAP; ends with what was run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <chrono>

#include "cluster.h"
#include "cudart.h"
#include "pipeline.h"
#include "record_host.h"
#include "rules.h"
#include "tap.h"

extern "C" void record_kernel(RecordArguments arguments);

static uint16_t bf16(float f) {
    uint32_t v;
    memcpy(&v, &f, 4);
    return (uint16_t)((v + 0x7fff + (v >> 16 & 1)) >> 16);
}

static float from_bf16(uint16_t v) {
    const uint32_t bits = (uint32_t)v << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

/* ---- the pipeline, right and with a fault ---- */

static bool encode(CUtensorMap *map, void *memory, unsigned rank, std::vector<uint64_t> dims, std::vector<uint32_t> box,
                   CUtensorMapSwizzle swizzle, CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16) {
    const cuuint32_t ones[5] = {1, 1, 1, 1, 1};
    cuuint64_t strides[4];
    uint64_t bytes = type == CU_TENSOR_MAP_DATA_TYPE_UINT8 ? 1 : 2;
    for (unsigned i = 0; i + 1 < rank; i++) strides[i] = bytes *= dims[i];
    const CUresult result =
        machine::tensor_map_encode(map, type, rank, memory, dims.data(), strides, box.data(), ones, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                                   CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result) printf("# encode: %s\n", machine::encode_error());
    return result == CUDA_SUCCESS;
}

/* A view's dimensions may come in any order behind the first, and none may lie within another. */
static void test_strides(void) {
    static const struct {
        cuuint64_t rows, blocks; /* strides: bytes from one row of 768 columns to the next, from one block of 64 columns */
        bool taken;
    } views[] = {{1536, 128, true}, {1552, 128, true}, {128, 20 * 128, true}, {1536, 64, false}, {1520, 128, false}, {128, 19 * 128, false}};
    machine::global_reset();
    void *memory = machine::global_allocate(20 * 12 * 64 * 2 + 20 * 16, "rows");
    std::string why;
    for (const auto &view : views) {
        CUtensorMap map;
        const cuuint64_t dims[3] = {64, 20, 12}, strides[2] = {view.rows, view.blocks};
        const cuuint32_t box[3] = {64, 8, 2}, ones[3] = {1, 1, 1};
        const bool taken = machine::tensor_map_encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, memory, dims, strides, box, ones,
                                                      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                                      CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
        if (taken != view.taken)
            why += "rows " + std::to_string(view.rows) + " bytes apart, blocks " + std::to_string(view.blocks) + ": " + machine::encode_error() + "\n";
    }
    ok(why.empty(), "tensor maps: dimensions in any order are taken, those that lie within each other are not", why);
}

/* Runs it; wrong numbers are reported as "numbers". */
static machine::Result run_pipeline(int fault, const machine::Options &options) {
    machine::global_reset();
    std::vector<uint16_t> a(PIPELINE_ROWS * PIPELINE_INNER), b(PIPELINE_COLUMNS * PIPELINE_INNER);
    uint32_t state = 1;
    const auto small = [&]() { return (float)((state = state * 1664525u + 1013904223u) >> 16 & 0xff) - 127.5f; };
    for (uint16_t &v : a) v = bf16(small() > 64 ? 1.0f : small() < -64 ? -1.0f : 0.0f);
    for (uint16_t &v : b) v = bf16(small() > 64 ? 1.0f : small() < -64 ? -1.0f : 0.0f);
    std::vector<float> scale(64);
    for (int i = 0; i < 64; i++) scale[(size_t)i] = i ? 1.0f + (float)(i % 2) : 1.0f;

    PipelineArguments arguments;
    memset((void *)&arguments, 0, sizeof arguments);
    uint16_t *a_memory = (uint16_t *)machine::global_allocate(a.size() * 2, "A"),
             *b_memory = (uint16_t *)machine::global_allocate(b.size() * 2, "B");
    arguments.c = (uint16_t *)machine::global_allocate(2 * PIPELINE_ROWS * PIPELINE_COLUMNS * 2, "C");
    arguments.flags = (uint32_t *)machine::global_allocate(4 * sizeof(uint32_t), "flags");
    arguments.result = (float *)machine::global_allocate(2 * 4096 * sizeof(float), "result");
    float *scale_memory = (float *)machine::global_allocate(scale.size() * 4, "scale");
    machine::global_copy(a_memory, a.data(), a.size() * 2);
    machine::global_copy(b_memory, b.data(), b.size() * 2);
    machine::global_copy(scale_memory, scale.data(), scale.size() * 4);
    machine::global_fill(arguments.flags, 0, 4 * sizeof(uint32_t));
    machine::global_read_only(a_memory);
    machine::global_read_only(b_memory);
    machine::global_read_only(scale_memory);
    arguments.scale = scale_memory;
    arguments.fault = fault;
    bool encoded = encode(&arguments.a, a_memory, 2, {PIPELINE_INNER, PIPELINE_ROWS}, {64, 64}, CU_TENSOR_MAP_SWIZZLE_128B);
    encoded &= encode(&arguments.b, b_memory, 2, {PIPELINE_INNER, PIPELINE_COLUMNS}, {64, 32},
                      fault == FAULT_map_swizzle_none ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_128B);
    encoded &= encode(&arguments.c_store, arguments.c, 3, {64, PIPELINE_ROWS, 2}, {64, 64, 1}, CU_TENSOR_MAP_SWIZZLE_128B);
    if (fault != FAULT_map_not_encoded)
        encoded &= encode(&arguments.c_load, arguments.c, 3, {64, PIPELINE_ROWS, 2}, {64, fault == FAULT_map_box_short ? 32u : 64u, 1},
                          CU_TENSOR_MAP_SWIZZLE_128B);

    machine::Launch launch;
    launch.kernel = "pipeline_kernel";
    launch.grid = PIPELINE_GRID;
    launch.cluster = 2;
    launch.block = PIPELINE_THREADS;
    launch.registers = PIPELINE_REGISTERS;
    launch.dynamic_shared = 2 * 16384 + 8192 + 256 + 7 * 8;
    machine::Result result = machine::launch(launch, options, [&]() { pipeline_kernel(arguments); });
    if (!encoded) result.reports.push_back({"encode", machine::encode_error()});
    if (options.protocol || !result.reports.empty() || (options.unchecked && !strcmp(options.unchecked, "numbers"))) return result;

    std::vector<float> c(PIPELINE_ROWS * PIPELINE_COLUMNS);
    for (size_t i = 0; i < PIPELINE_ROWS; i++)
        for (size_t j = 0; j < PIPELINE_COLUMNS; j++) {
            float sum = 0;
            for (size_t k = 0; k < PIPELINE_INNER; k++) sum += from_bf16(a[i * PIPELINE_INNER + k]) * from_bf16(b[j * PIPELINE_INNER + k]);
            c[i * PIPELINE_COLUMNS + j] = sum;
        }
    std::string wrong;
    for (size_t copy = 0; copy < 2; copy++)
        for (size_t i = 0; i < c.size() && wrong.empty(); i++)
            if (from_bf16(arguments.c[copy * c.size() + i]) != c[i])
                wrong = "C[" + std::to_string(copy) + "][" + std::to_string(i / 64) + "][" + std::to_string(i % 64) + "] is " +
                        std::to_string(from_bf16(arguments.c[copy * c.size() + i])) + ", not " + std::to_string(c[i]);
    for (size_t t = 0; t < 2; t++)
        for (size_t r = 0; r < 64; r++)
            for (size_t n = 0; n < 64 && wrong.empty(); n++) {
                float sum = 0;
                for (size_t k = 1; k < 64; k += 2) sum += (float)(r % 3) * c[(t * 64 + k) * 64 + n];
                if (arguments.result[t * 4096 + r * 64 + n] != sum * scale[n])
                    wrong = "R[" + std::to_string(t) + "][" + std::to_string(r) + "][" + std::to_string(n) + "] is " +
                            std::to_string(arguments.result[t * 4096 + r * 64 + n]) + ", not " + std::to_string(sum * scale[n]);
            }
    if (!wrong.empty()) result.reports.push_back({"numbers", wrong});
    return result;
}

/* ---- clusters, right and with a fault ---- */

static machine::Result run_cluster(int fault, uint32_t size, uint32_t clusters, const machine::Options &options) {
    machine::global_reset();
    const uint32_t ctas = size * clusters;
    std::vector<uint16_t> tiles(CLUSTER_BLOCKS * 64 * 64);
    uint32_t state = 7;
    for (uint16_t &v : tiles) v = bf16((float)((state = state * 1664525u + 1013904223u) >> 24) / 64 > 2 ? 1.0f : -2.0f);
    ClusterArguments arguments;
    memset((void *)&arguments, 0, sizeof arguments);
    uint16_t *tiles_memory = (uint16_t *)machine::global_allocate(tiles.size() * 2, "tiles");
    machine::global_copy(tiles_memory, tiles.data(), tiles.size() * 2);
    machine::global_read_only(tiles_memory);
    arguments.product = (float *)machine::global_allocate(ctas * 64 * CLUSTER_COLUMNS * 4, "product");
    arguments.received = (uint32_t *)machine::global_allocate(ctas * CLUSTER_THREADS * 16, "received");
    arguments.mail = (uint32_t *)machine::global_allocate(ctas * CLUSTER_THREADS * 16, "mail");
    arguments.group = size < 4 ? size : 4;
    arguments.fault = fault;
    const bool encoded =
        encode(&arguments.tiles, tiles_memory, 2, {64, CLUSTER_BLOCKS * 64}, {64, 64 / arguments.group}, CU_TENSOR_MAP_SWIZZLE_128B);

    machine::Launch launch;
    launch.kernel = "cluster_kernel";
    launch.grid = ctas;
    launch.cluster = size;
    launch.block = CLUSTER_THREADS;
    launch.dynamic_shared = 2 * 8192 + 4 * CLUSTER_THREADS * 16 + 9 * 8;
    machine::Result result = machine::launch(launch, options, [&]() { cluster_kernel(arguments); });
    if (!encoded) result.reports.push_back({"encode", machine::encode_error()});
    if (options.protocol || !result.reports.empty() || (options.unchecked && !strcmp(options.unchecked, "numbers"))) return result;

    std::string wrong;
    const auto check = [&](const char *what, uint32_t cta, size_t i, double is, double should) {
        if (is != should && wrong.empty())
            wrong = std::string(what) + " of CTA " + std::to_string(cta) + ", element " + std::to_string(i) + ": " + std::to_string(is) +
                    ", not " + std::to_string(should);
    };
    for (uint32_t cta = 0; cta < ctas; cta++) {
        const uint32_t first = cta / size * size, before = first + (cta - first + size - 1) % size, next = first + (cta - first + 1) % size;
        for (size_t i = 0; i < 64 * CLUSTER_COLUMNS; i++) {
            float sum = 0;
            for (size_t block = 0; block < CLUSTER_BLOCKS; block++)
                for (size_t k = 0; k < 64; k++)
                    sum += from_bf16(tiles[(block * 64 + i / CLUSTER_COLUMNS) * 64 + k]) *
                           from_bf16(tiles[(block * 64 + i % CLUSTER_COLUMNS) * 64 + k]);
            check("product", cta, i, arguments.product[cta * 64 * CLUSTER_COLUMNS + i], sum);
        }
        for (uint32_t i = 0; i < CLUSTER_THREADS * 4; i++) {
            const uint32_t thread = i / 4, word = i % 4;
            uint32_t sum = 0;
            for (uint32_t round = 0; round < CLUSTER_ROUNDS; round++)
                sum += cluster_message(before, round, (thread + 31 * round) % CLUSTER_THREADS / 32 * 32 + (thread + 5 * round) % 32, word);
            check("received", cta, i, arguments.received[cta * CLUSTER_THREADS * 4 + i], sum);
            check("mail", cta, i, arguments.mail[cta * CLUSTER_THREADS * 4 + i],
                  cluster_message(before, 9, (thread + 1) % CLUSTER_THREADS, word) + cluster_message(next, 10, thread, word));
        }
    }
    if (!wrong.empty()) result.reports.push_back({"numbers", wrong});
    return result;
}

/* ---- one misuse of an instruction each ---- */

static machine::Result run_rules(int fault, const machine::Options &options) {
    machine::global_reset();
    RulesArguments arguments;
    memset((void *)&arguments, 0, sizeof arguments);
    arguments.tile = (uint16_t *)machine::global_allocate(64 * 128, "tile");
    arguments.words = (uint32_t *)machine::global_allocate(256, "words");
    arguments.unwritten = (uint32_t *)machine::global_allocate(256, "unwritten");
    machine::global_fill(arguments.tile, 0, 64 * 128);
    machine::global_fill(arguments.words, 0, 256);
    arguments.fault = fault;
    bool encoded = encode(&arguments.map, arguments.tile, 3, {64, 64, 1}, {64, 64, 1}, CU_TENSOR_MAP_SWIZZLE_128B);
    encoded &= encode(&arguments.bytes_map, arguments.tile, 3, {128, 64, 1}, {128, 64, 1}, CU_TENSOR_MAP_SWIZZLE_128B,
                      CU_TENSOR_MAP_DATA_TYPE_UINT8);
    memcpy(arguments.shifted_map + 16, &arguments.map, sizeof arguments.map);
    machine::Launch launch;
    launch.kernel = "rules_kernel";
    launch.grid = 4;
    launch.cluster = 2;
    launch.block = RULES_THREADS;
    launch.dynamic_shared = 64 * 128 + 3 * 8;
    machine::Result result = machine::launch(launch, options, [&]() { rules_kernel(arguments); });
    if (!encoded) result.reports.push_back({"encode", machine::encode_error()});
    return result;
}

/* Launches that no GPU takes, and one that goes on for longer than it may. */
static void test_limits(void) {
    machine::Launch right;
    right.grid = 132;
    right.block = 384;
    right.cluster = 2;
    right.dynamic_shared = 227 * 1024;
    std::vector<machine::Launch> wrong(8, right);
    wrong[0].block = 100;
    wrong[1].block = 1056;
    wrong[2].grid = 0;
    wrong[3].grid = 162;
    wrong[4].cluster = 16, wrong[4].grid = 128;
    wrong[5].grid = 131;
    wrong[6].dynamic_shared++;
    wrong[7].registers = 176;
    std::string why;
    const auto refused = [](const machine::Launch &launch) { return machine::launch(launch, machine::Options(), []() {}).has("launch"); };
    if (refused(right)) why = "the right one is refused";
    for (size_t i = 0; i < wrong.size(); i++)
        if (!refused(wrong[i])) why += "launch " + std::to_string(i) + " is not refused\n";
    right.grid = 134; /* one CTA a multiprocessor */
    if (!refused(right)) why += "134 cooperative CTAs on 132 multiprocessors are not refused\n";
    right.cooperative = false;
    if (refused(right)) why += "134 CTAs that need not be resident at once are refused\n";
    ok(why.empty(), "launches beyond a limit are refused", why);
    machine::Options few_steps;
    few_steps.maximum_steps = 100;
    ok(run_rules(RULES_FAULT_none, few_steps).has("livelock"), "a launch that takes more steps than it may is reported as livelock");
}

/* ---- every kernel of the model's own: silent when it is right, and each fault reported ---- */

static void test_silent(const char *name, unsigned arithmetic_seeds, unsigned protocol_seeds,
                        const std::function<machine::Result(const machine::Options &)> &run) {
    for (int protocol = 0; protocol < 2; protocol++) {
        const unsigned seeds = protocol ? protocol_seeds : arithmetic_seeds;
        std::string why;
        const auto start = std::chrono::steady_clock::now();
        for (uint64_t seed = 0; seed < seeds && why.empty(); seed++) {
            const machine::Result result = run(options_of(seed, protocol));
            if (!result.reports.empty()) why = "seed " + std::to_string(seed) + "\n" + result.text();
            (protocol ? protocol_runs : arithmetic_runs)++;
        }
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        ok(why.empty(),
           std::string(name) + ": no report under " + std::to_string(seeds) + (protocol ? " protocol" : " arithmetic") + " seeds, " +
               std::to_string(seconds) + " s",
           why);
    }
}

struct Fault {
    const char *name, *rule;
};
static const Fault pipeline_faults[] = {
#define X(name, rule) {#name, rule},
    PIPELINE_FAULTS(X)
#undef X
};
static const Fault rules_faults[] = {
#define X(name, rule) {#name, rule},
    RULES_FAULTS(X)
#undef X
};
static const Fault cluster_faults[] = {
#define X(name, rule) {#name, rule},
    CLUSTER_FAULTS(X)
#undef X
};

typedef std::function<machine::Result(int fault, const machine::Options &)> RunFault;

/* The fault is reported by its rule under one of the seeds, and by nothing of that kind once the rule is not checked. */
static bool test_fault(int fault, const Fault &planted, const char *mode, const RunFault &run,
                       const std::function<machine::Options(uint64_t)> &options_of_seed, bool shown) {
    const std::string rule = planted.rule, kind = rule.substr(0, rule.find(':'));
    std::string seen;
    bool caught = false;
    uint64_t seed = 0;
    for (; seed < 48 && !caught; seed++) {
        const machine::Result result = run(fault, options_of_seed(seed));
        caught = result.has(planted.rule);
        seen += "seed " + std::to_string(seed) + "\n" + result.text();
        if (shown) printf("# %s, seed %lu\n%s\n", mode, (unsigned long)seed, result.text().c_str());
    }
    ok(caught, std::string("planted fault ") + planted.name + mode + " is reported as " + rule, seen.substr(0, 3000));
    machine::Options options = options_of_seed(seed - 1);
    options.unchecked = planted.rule;
    const machine::Result result = run(fault, options);
    const bool passes = !result.has(kind.c_str());
    ok(passes, std::string("planted fault ") + planted.name + mode + " is not reported without the rule " + rule,
       result.text().substr(0, 3000));
    faults_unchecked += caught && passes;
    return caught;
}

/* A recording of the kernel with the fault is done again under 48 seeds. Where none of them reports it, or the fault ends the recording
   early, one of 48 recordings must. The first seeds say the same when every access is looked at. */
static void test_recorded_fault(int fault, const Fault &planted, const RunFault &run) {
    bool again = false, recorded = false;
    std::string seen, other;
    for (uint64_t first = 0; first < 48 && !again && !recorded; first++) {
        machine::Options options = options_of(first, true);
        options.record = true;
        options.maximum_reports = 1000;
        const machine::Result recording = run(fault, options);
        protocol_runs++;
        for (uint64_t seed = 0; seed < 48 && recording.trace && !again; seed++) {
            options = options_of(seed, true);
            options.replay = recording.trace;
            const machine::Result result = run(fault, options);
            again = result.has(planted.rule);
            options.thorough = true;
            if (seed < 4) other += compare_replays(result, run(fault, options));
            protocol_runs += seed < 4 ? 2 : 1;
        }
        recorded = recording.has(planted.rule);
        seen += recording.text();
    }
    ok((again || recorded) && other.empty(),
       std::string("planted fault ") + planted.name + (again ? ", recorded and done again," : ", recorded,") + " is reported as " +
           planted.rule,
       (other + seen).substr(0, 3000));
    faults_done_again++;
    faults_caught_again += again;
}

/* Each fault, with numbers and all lanes; and, unless it is seen by the numbers or by bytes never written, in protocol mode with a few, and
   recorded. */
template <size_t COUNT> static void test_faults(const Fault (&faults)[COUNT], const char *only, const RunFault &run) {
    const machine::Lanes right = run(0, options_of(0, true)).lanes;
    protocol_runs++;
    for (int fault = 1; fault < (int)COUNT; fault++) {
        const Fault &planted = faults[fault];
        if (only && strcmp(only, planted.name)) continue;
        faults_planted++;
        faults_caught += test_fault(fault, planted, "", run, [](uint64_t seed) { return options_of(seed, false); }, only);
        if (!strcmp(planted.rule, "numbers") || !strncmp(planted.rule, "uninitialised", 13)) continue;
        machine::Lanes lanes = run(fault, options_of(0, true)).lanes; /* it ends early: what the right kernel's lanes do belongs to it */
        for (size_t i = 0; i < lanes.needed.size(); i++) lanes.needed[i] |= right.needed[i];
        lanes.sending.insert(right.sending.begin(), right.sending.end());
        const auto with_few_lanes = [&lanes](uint64_t seed) {
            machine::Options options = options_of(seed, true);
            options.lanes = &lanes;
            return options;
        };
        faults_planted++;
        faults_caught += test_fault(fault, planted, ", protocol mode,", run, with_few_lanes, only);
        test_recorded_fault(fault, planted, run);
    }
}

/* One arrival is lost: the report of the deadlock begins with the wait for it, though most threads wait for something else. */
static void test_deadlock_account(void) {
    machine::Options options = options_of(1, true);
    options.lost = {0, 2, 0}; /* a math warp of CTA 0 leaves the first stage */
    const machine::Result result = run_pipeline(FAULT_none, options);
    const std::string text = result.text();
    protocol_runs++;
    ok(result.has("deadlock") && text.find("It comes down to:") < text.find(result.lost_at + ":") &&
           text.find(result.lost_at + ":") < text.find("All waits:"),
       "a deadlock's report begins with the wait that holds up the others", text);
}

/* ---- what a Hopper GPU did, replayed ---- */

static void test_recorded(const char *path) {
    const std::string recorded = file_text(path);
    machine::global_reset();
    size_t at = 0;
    int refused = 0, to_refuse = 0;
    for (const RecordCase &c : record_cases) to_refuse += record_refused(c);
    machine::Result last;
    const int failed = record_run(
        machine::tensor_map_encode,
        [&](const RecordArguments &arguments, uint32_t ctas) {
            machine::Launch launch;
            launch.kernel = "record_kernel";
            launch.grid = launch.cluster = ctas;
            launch.dynamic_shared = RECORD_SHARED;
            last = machine::launch(launch, options_of(at, false), [&]() { record_kernel(arguments); });
            if (last.has("tensor-map")) refused++;
            return (int)!last.reports.empty();
        },
        [&](int i, const std::vector<uint8_t> &bytes) {
            const bool there = at + bytes.size() <= recorded.size();
            size_t first = 0;
            while (there && first < bytes.size() && bytes[first] == (uint8_t)recorded[at + first]) first++;
            ok(there && first == bytes.size(), std::string("recorded on a card: ") + record_cases[i].name,
               there ? "byte " + std::to_string(first) + " of " + std::to_string(bytes.size()) + " differs" : "the recording is too short");
            at += bytes.size();
        });
    ok(failed < 0 && at == recorded.size() && refused == to_refuse,
       "the model runs every recorded case, refuses the " + std::to_string(to_refuse) +
           " that the card refused, and the recording holds no more",
       (failed < 0 ? "" : record_cases[failed].name) + std::string(" ") + machine::encode_error() + "\n" + last.text());
}

/* test_machine: recordings, pipeline, clusters, planted faults. test_machine NAME: one planted fault, with all that is said of it. */
int main(int count, char **argument) {
    const char *only = count > 1 ? argument[1] : nullptr;
    if (!only) {
        test_recorded("tests/machine/recorded/h200.bin");
        test_silent("pipeline", 5, 200, [](const machine::Options &options) { return run_pipeline(FAULT_none, options); });
        for (const uint32_t size : {1, 2, 4, 8})
            test_silent(("clusters of " + std::to_string(size)).c_str(), 5, 200, [size](const machine::Options &options) {
                return run_cluster(CLUSTER_FAULT_none, size, size == 8 ? 1 : 2, options);
            });
    }
    if (!only) test_strides();
    if (!only) test_deadlock_account();
    if (!only) test_limits();
    if (!only)
        test_silent("the kernel of single misuses, without one", 24, 200,
                    [](const machine::Options &options) { return run_rules(RULES_FAULT_none, options); });
    test_faults(rules_faults, only, run_rules);
    test_faults(pipeline_faults, only, run_pipeline);
    test_faults(cluster_faults, only, [](int fault, const machine::Options &options) {
        return run_cluster(fault, fault == CLUSTER_FAULT_multicast_mask_of_other_group ? 8 : 4, 1, options);
    });
    return finish();
}
