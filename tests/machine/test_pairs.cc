/* Tests of what is modelled of pairs of CTAs on Blackwell: kernels against a plain product in double precision, planted faults, lost
   arrivals. Speaks TAP; ends with what was run. test_pairs NAME: one planted fault, with all that is said of it;
   test_pairs order 500: so many orders. */
#include "blackwell_matrix.h"
#include "pairs.h"

extern "C" {
void pair_bf16_kernel(PairArguments arguments);
void pair_mxfp8_kernel(PairArguments arguments);
}

struct Case {
    bool mx;
    uint32_t rows, columns, inner;
    unsigned pairs; /* that share the tiles */
    uint32_t scales_by_threads, plain_arrivals, copies_wait;
};

/* Scales as rows of 512 bytes. */
static bool encode_atoms(CUtensorMap *map, const uint8_t *atoms, size_t bytes) {
    return encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT32, (void *)atoms, {128, bytes / 512}, {512}, {128, 1}, 0);
}

/* Runs it; wrong numbers are reported as "numbers". */
static machine::Result run_pairs(const Case &k, int fault, const machine::Options &options, Data data) {
    const uint32_t pitch = k.columns / 4 * 4 + 4, block = PAIR_BLOCK_BYTES / (k.mx ? 1 : 2);
    machine::global_reset();
    random_state = (uint32_t)options.seed * 2654435761u + 1;
    const uint32_t format = k.mx ? 0 : 1;
    const Matrix a = make_matrix(k.rows, k.inner, k.mx, false, format, data, true);
    const Matrix b = make_matrix(k.columns, k.inner, k.mx, false, format, data, false);
    PairArguments arguments;
    memset((void *)&arguments, 0, sizeof arguments);
    float *c = (float *)machine::global_allocate((size_t)k.rows * pitch * 4, "C");
    machine::global_forget(c, (size_t)k.rows * pitch * 4);
    bool encoded = encode_operand(&arguments.a, a, 128, 128, "A") && encode_operand(&arguments.b, b, 128, 128, "B");
    encoded &= encode(&arguments.c, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, c, {k.columns, k.rows, 1},
                      {(uint64_t)pitch * 4, (uint64_t)pitch * 4 * k.rows}, {32, 32, 1}, 128);
    const std::vector<uint8_t> a_atoms = pack_scales(a, 128, 2), b_atoms = pack_scales(b, PAIR_COLUMNS, 1);
    arguments.a_atoms = to_memory(a_atoms, "scales of A");
    arguments.b_atoms = to_memory(b_atoms, "scales of B");
    encoded &= encode_atoms(&arguments.a_scales, arguments.a_atoms, a_atoms.size()) &&
               encode_atoms(&arguments.b_scales, arguments.b_atoms, b_atoms.size());
    arguments.row_tiles = (k.rows + PAIR_ROWS - 1) / PAIR_ROWS;
    arguments.column_tiles = (k.columns + PAIR_COLUMNS - 1) / PAIR_COLUMNS;
    arguments.k_blocks = (k.inner + block - 1) / block;
    arguments.scales_by_threads = k.scales_by_threads;
    arguments.plain_arrivals = k.plain_arrivals;
    arguments.copies_wait = k.copies_wait;
    arguments.fault = fault;
    machine::Launch launch;
    launch.kernel = k.mx ? "pair_mxfp8_kernel" : "pair_bf16_kernel";
    launch.grid = 2 * k.pairs;
    launch.cluster = 2;
    launch.block = PAIR_THREADS;
    launch.registers = 128;
    launch.dynamic_shared = PAIR_SHARED;
    machine::Result result = machine::launch(launch, options, [&]() { (k.mx ? pair_mxfp8_kernel : pair_bf16_kernel)(arguments); });
    if (!encoded) result.reports.push_back({"encode", machine::encode_error()});
    if (!numbers_count(options, result)) return result;
    const std::string wrong = first_wrong(c, pitch, a, b, k.mx, data != Data::random);
    if (!wrong.empty()) result.reports.push_back({"numbers", wrong});
    return result;
}

/* ---- right kernels: nothing is reported and the numbers are right ---- */

struct Assumption {
    const char *name;
    bool product_then_copy, plain_arrivals, collectives_alone;
};
static const Assumption strict = {"", false, false, false};

static machine::Options options_under(const Assumption &a, uint64_t seed, bool protocol) {
    machine::Options options = options_of(seed, protocol);
    options.assume.product_then_copy = a.product_then_copy;
    options.assume.plain_arrivals = a.plain_arrivals;
    options.assume.collectives_alone = a.collectives_alone;
    return options;
}

static void test_kernels() {
    static const Assumption unordered = {", products then copies in order", true, false, false},
                            plain = {", arrivals without a release", false, true, false},
                            alone = {", given back without waiting", false, false, true};
    static const struct {
        const char *name;
        Case k;
        const Assumption &assumption;
        unsigned arithmetic, protocol;
    } cases[] = {
        {"bf16, five tiles, three blocks", {false, 256, 1280, 192, 1, 0, 0, 1}, strict, 2, 12},
        {"bf16, odd sizes, two pairs", {false, 259, 301, 72, 2, 0, 0, 1}, strict, 4, 12},
        {"bf16, smaller than anything", {false, 1, 1, 1, 1, 0, 0, 1}, strict, 2, 6},
        {"bf16, rows of one CTA", {false, 100, 520, 130, 1, 0, 1, 1}, plain, 2, 6},
        {"MXFP8, five tiles, three blocks", {true, 256, 1280, 384, 1, 0, 0, 1}, strict, 2, 12},
        {"MXFP8, odd sizes, two pairs", {true, 259, 301, 304, 2, 0, 0, 1}, strict, 4, 12},
        {"MXFP8, smaller than anything", {true, 1, 1, 1, 1, 0, 0, 1}, strict, 2, 6},
        {"MXFP8, a whole K of 768", {true, 200, 300, 768, 1, 0, 1, 1}, plain, 1, 6},
        {"MXFP8, scales written by threads", {true, 259, 520, 300, 1, 1, 0, 1}, strict, 2, 12},
        {"MXFP8, copies without a wait", {true, 259, 520, 300, 1, 0, 0, 0}, unordered, 2, 12},
        {"MXFP8, memory given back by each CTA", {true, 259, 520, 300, 1, 0, 0, 1}, alone, 2, 6},
    };
    for (const auto &c : cases) {
        std::string why;
        const auto start = std::chrono::steady_clock::now();
        for (unsigned i = 0; i < c.arithmetic + c.protocol && why.empty(); i++) {
            const bool protocol = i >= c.arithmetic;
            const uint64_t seed = protocol ? i - c.arithmetic : i;
            const machine::Result result = run_pairs(c.k, PAIR_FAULT_none, options_under(c.assumption, seed, protocol),
                                                     protocol   ? Data::none
                                                     : seed % 2 ? Data::random
                                                                : Data::whole);
            if (!result.reports.empty()) why = "seed " + std::to_string(seed) + "\n" + result.text();
            (protocol ? protocol_runs : arithmetic_runs)++;
        }
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        ok(why.empty(),
           std::string("pairs: ") + c.name + c.assumption.name + ", " + std::to_string(c.arithmetic) + " arithmetic and " +
               std::to_string(c.protocol) + " protocol seeds, " + std::to_string(seconds) + " s",
           why);
    }
    for (const Data data : {Data::all_codes, Data::all_scales}) {
        const machine::Result result =
            run_pairs({true, 256, 256, 32, 1, 0, 0, 1}, PAIR_FAULT_none, options_of(0, false), data);
        arithmetic_runs++;
        ok(result.reports.empty(), std::string("pairs: every byte as ") + (data == Data::all_codes ? "E4M3" : "UE8M0, of A and of B"),
           result.text());
    }
}

/* ---- planted faults: each is reported, and no longer once its rule is not checked ---- */

static const struct {
    const char *name, *rule;
} faults[] = {
#define X(name, rule) {#name, rule},
    PAIR_FAULTS(X)
#undef X
};

/* Five tiles of three blocks for one pair: every stage, both sets of scales, both sums and what they share are used again. */
static Case fault_case(int fault) {
    Case k = {true, 256, 1280, 384, 1, 0, 0, 1};
    k.scales_by_threads = fault == PAIR_FAULT_peers_proxy_fence_dropped || fault == PAIR_FAULT_peers_scales_by_plain_arrival;
    return k;
}

static void test_faults(const char *only) {
    for (int fault = 1; fault < PAIR_FAULT_COUNT; fault++) {
        const char *const rule = faults[fault].rule;
        if (only && strcmp(only, faults[fault].name)) continue;
        const bool protocol = strcmp(rule, "numbers") && strncmp(rule, "uninitialised", 13);
        const Data data = protocol ? Data::none : Data::random;
        faults_planted++;
        std::string seen;
        bool caught = false;
        for (uint64_t seed = 0; seed < 24 && !caught; seed++) {
            const machine::Result result = run_pairs(fault_case(fault), fault, options_of(seed, protocol), data);
            /* a missing fence is told from missing order */
            caught = result.has(rule) && !(result.has("tcgen05-fence") && result.has("race"));
            seen += "seed " + std::to_string(seed) + "\n" + result.text();
            if (only) printf("# seed %lu\n%s\n", (unsigned long)seed, result.text().c_str());
        }
        faults_caught += caught;
        ok(caught, std::string("planted fault ") + faults[fault].name + " is reported as " + rule, seen.substr(0, 3000));
        std::string still;
        for (uint64_t seed = 0; seed < 2 && still.empty(); seed++) {
            machine::Options options = options_of(seed, protocol);
            options.unchecked = rule;
            const machine::Result result = run_pairs(fault_case(fault), fault, options, data);
            if (result.has(std::string(rule, strcspn(rule, ":")).c_str())) still = result.text();
        }
        faults_unchecked += still.empty();
        ok(still.empty(), std::string("planted fault ") + faults[fault].name + " is not reported without the rule " + rule,
           still.substr(0, 3000));
    }
}

/* ---- lost arrivals: a launch hangs, and is seen to, or nobody came to wait any more; never are there wrong numbers or early reads ---- */

static void test_losses() {
    std::string why;
    unsigned lost = 0, hung = 0;
    const Case k = fault_case(PAIR_FAULT_none);
    for (unsigned cta = 0; cta < 2 && why.empty(); cta++) {
        machine::Options options = options_of(0, true);
        options.lost.cta = cta;
        const std::vector<unsigned> arrivals = run_pairs(k, PAIR_FAULT_none, options, Data::none).arrivals;
        protocol_runs++;
        for (unsigned i = 0; i < arrivals.size() && why.empty(); i++)
            for (unsigned arrival = 0; arrival < arrivals[i] && why.empty(); arrival += 1 + arrivals[i] / 8) {
                options = options_of(i + arrival, true);
                options.lost = {cta, i + 1, arrival};
                const machine::Result result = run_pairs(k, PAIR_FAULT_none, options, Data::none);
                protocol_runs++;
                lost++;
                hung += result.has("deadlock");
                for (const machine::Report &r : result.reports)
                    if (r.kind != "deadlock" && r.kind != "livelock") why = result.lost_at + "\n" + result.text();
            }
    }
    ok(why.empty() && hung > 20 && hung + 8 > lost, "pairs: " + std::to_string(hung) + " of " + std::to_string(lost) +
       " lost arrivals are seen as a deadlock, the others harm nothing", why);
}

/* Order alone, under many seeds. */
static void test_order(unsigned seeds) {
    for (const bool mx : {false, true}) {
        std::string why;
        for (uint64_t seed = 0; seed < seeds && why.empty(); seed++, protocol_runs++) {
            const Case k = {mx, 512, 1280, mx ? 384u : 192u, 2, mx && seed % 2, 0, 1};
            const machine::Result result = run_pairs(k, PAIR_FAULT_none, options_of(seed, true), Data::none);
            if (!result.reports.empty()) why = "seed " + std::to_string(seed) + "\n" + result.text();
        }
        ok(why.empty(), std::string("pairs: ") + (mx ? "MXFP8" : "bf16") + ", " + std::to_string(seeds) + " orders", why);
    }
}

int main(int count, char **argument) {
    if (count > 2 && !strcmp(argument[1], "order")) {
        test_order((unsigned)atoi(argument[2]));
        return finish("machine model, pairs");
    }
    if (count == 1) {
        test_kernels();
        test_losses();
    }
    test_faults(count == 1 ? nullptr : argument[1]);
    return finish("machine model, pairs");
}
