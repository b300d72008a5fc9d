/* The decoder's own host code and kernel on the machine model: a small Qwen3, against the CPU. Speaks TAP. */
#include "language.h"

#include <fstream>

namespace {

/* What the CPU says behind each of some ids, and what its session then holds. */
struct Reference {
    mgv_engine *engine = nullptr;
    mgv_session *session = nullptr;
    std::vector<std::vector<float>> logits; /* behind id `first` and those after it */
};

Reference run_on_cpu(const mgv_model *model, const std::vector<uint32_t> &ids, uint32_t first) {
    Reference r;
    mgv_engine_desc engine_desc;
    memset(&engine_desc, 0, sizeof engine_desc);
    engine_desc.backend = MGV_BACKEND_CPU;
    mgv_error error;
    mgv_session_desc session_desc;
    memset(&session_desc, 0, sizeof session_desc);
    session_desc.capacity = (uint32_t)ids.size();
    if (mgv_engine_create(&r.engine, model, &engine_desc, &error) != MGV_OK ||
        mgv_session_create(&r.session, r.engine, &session_desc, &error) != MGV_OK)
        ok(false, "the CPU's session opens", error.message);
    mgv_append_desc append;
    memset(&append, 0, sizeof append);
    append.ids = ids.data();
    append.id_count = first;
    if (first) mgv_session_append_blocking(r.session, &append, &error);
    for (size_t i = first; i < ids.size(); i++) {
        if (mgv_session_step(r.session, ids[i], &error) != MGV_OK) ok(false, "the CPU steps", error.message);
        const float *logits;
        uint32_t count;
        mgv_session_logits(r.session, &logits, &count, &error);
        r.logits.emplace_back(logits, logits + count);
    }
    return r;
}

void close_reference(Reference &r) {
    mgv_session_destroy(r.session);
    mgv_engine_destroy(r.engine);
}

struct Gpu {
    mgv__decoder *decoder = nullptr;
    mgv__decoder_state state;
};

bool open_gpu(Gpu &gpu, const mgv_model *model, uint32_t ctas, uint32_t capacity) {
    make_card(ctas);
    mgv__cuda_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.kernels = "the model has them";
    desc.allocator = model->allocator;
    mgv_error error;
    if (mgv__decoder_create(&gpu.decoder, &desc, &model->config, &model->program, model->tensors, &error) != MGV_OK ||
        mgv__decoder_open(&gpu.state, gpu.decoder, capacity, &error) != MGV_OK) {
        ok(false, "the decoder opens", error.message);
        return false;
    }
    name_parts(gpu.decoder, gpu.state, capacity);
    return true;
}
void close_gpu(Gpu &gpu) {
    mgv__decoder_close(&gpu.state);
    mgv__decoder_destroy(gpu.decoder);
}

/* The first `count` rows of the CPU's cache, rounded. */
void send_cache(Gpu &gpu, const Reference &from, uint32_t count, uint32_t capacity) {
    const mgv__config &c = from.session->model->config;
    for (int which = 0; which < 2; which++) {
        const float *rows = from.session->buffers[which ? from.session->values : from.session->keys];
        for (uint32_t i = 0; i < c.layers * c.key_heads; i++) {
            std::vector<uint16_t> rounded((size_t)count * 128);
            for (size_t k = 0; k < rounded.size(); k++) rounded[k] = mgv__bf16_round(rows[(size_t)i * from.session->desc.capacity * 128 + k]);
            machine::global_copy((which ? gpu.state.session.values : gpu.state.session.keys) + (size_t)i * capacity * 128, rounded.data(),
                                 rounded.size() * 2);
        }
    }
}

struct Run {
    machine::Result machine;
    std::string verdict;
    std::vector<uint32_t> chosen;
    std::vector<float> logits;
    uint32_t steps = 0;
};

/* A launch: `given` ids from position `position` on, then chosen ones, `steps` in all. */
Run launch(Gpu &gpu, const std::vector<uint32_t> &given, uint32_t position, uint32_t steps, const machine::Options &options,
           const std::vector<uint32_t> &stops = {}, const mgv__sampling &sampling = {}) {
    Run run;
    mgv_error error;
    memset(&error, 0, sizeof error);
    memcpy(gpu.state.ids, given.data(), given.size() * 4);
    for (uint32_t i = 0; i < steps; i++) {
        const float at = (float)(position + i), where[3] = {at, at, at};
        mgv__decode_turn(gpu.decoder->plan.program, where, gpu.state.rotary + i * 128);
    }
    mgv__decode_session session = gpu.state.session;
    session.position = position;
    session.given = (uint32_t)given.size();
    session.steps = steps;
    session.sampling = sampling;
    session.stop_count = (uint32_t)stops.size();
    memcpy(session.stops, stops.data(), stops.size() * 4);
    machine::runtime.options = options;
    mgv_result result = mgv__decoder_start(&gpu.state, &session, 1, &error);
    if (result == MGV_OK) result = mgv__decoder_look(&gpu.state, &error);
    if (result != MGV_OK) run.verdict = error.message;
    run.machine = machine::runtime.last;
    run.steps = gpu.state.result[0].steps;
    run.chosen.assign(gpu.state.chosen, gpu.state.chosen + steps);
    run.logits.assign(gpu.state.session.logits, gpu.state.session.logits + gpu.state.arguments.vocabulary);
    arithmetic_runs++;
    return run;
}

std::string wrong(const Run &run) { return run.verdict.empty() && run.machine.reports.empty() ? "" : run.verdict + "\n" + run.machine.text(); }

/* Ids from `before` on through the kernel, in every grid and under seeds of both orders: no report, logits within bf16's bound, the same
   bits. */
void test_arithmetic(const char *name, const Shape &shape, uint32_t before, uint32_t steps, const std::vector<uint32_t> &grids, unsigned seeds) {
    mgv_model *model = open_model(shape);
    if (!model) return;
    const std::vector<uint32_t> ids = rule_ids(before + steps, shape.vocabulary, before);
    Reference reference = run_on_cpu(model, ids, before);
    std::vector<float> first;
    std::string why;
    double error = 0;
    for (uint32_t grid : grids)
        for (unsigned seed = 0; seed < (grid == grids[0] ? seeds : 2) && why.empty(); seed++) {
            Gpu gpu;
            if (!open_gpu(gpu, model, grid, before + steps)) return;
            send_cache(gpu, reference, before, before + steps);
            machine::Options options = options_of(seed + grid * 10, false);
            options.hardware_sums = false;
            options.words_order = seed % 2;
            const Run run = launch(gpu, std::vector<uint32_t>(ids.begin() + before, ids.end()), before, steps, options);
            why = wrong(run);
            error = relative_l2(run.logits.data(), reference.logits.back().data(), run.logits.size());
            if (first.empty()) first = run.logits;
            if (why.empty() && run.steps != steps) why = "it stopped after " + std::to_string(run.steps) + " ids";
            if (why.empty() && !(error < 0.02)) why = "relative error " + std::to_string(error);
            if (why.empty() && memcmp(first.data(), run.logits.data(), first.size() * 4)) why = "other bits than in the first run";
            if (!why.empty()) why = std::to_string(grid) + " CTAs, seed " + std::to_string(seed) + ": " + why;
            close_gpu(gpu);
        }
    ok(why.empty(), std::string(name) + ": relative error " + std::to_string(error), why);
    close_reference(reference);
    mgv_model_close(model);
}

/* How often the warp that gave up had looked, as the verdict says; its bound is poll_limit, of the decoder's loader 16 of them. */
unsigned looks_of(const Run &run) {
    const size_t at = run.verdict.find("did not come in ");
    return at == std::string::npos ? ~0u : (unsigned)atoi(run.verdict.c_str() + at + 16);
}

/* Words of every kind that never come, and arrivals at mbarriers: the launch is given up, with nothing else to report, and the next one is
   right. */
void test_lost(const Shape &shape, uint32_t before) {
    static const char *const kinds[] = {"", "rows", "sums of squares", "q, k, v", "parts of attention", "attention", "hidden values", "best ids"};
    mgv_model *model = open_model(shape);
    if (!model) return;
    const std::vector<uint32_t> ids = rule_ids(before + 3, shape.vocabulary, 1);
    Reference reference = run_on_cpu(model, ids, before);
    Gpu gpu;
    if (!open_gpu(gpu, model, 4, before + 3)) return;
    send_cache(gpu, reference, before, before + 3);
    const std::vector<uint32_t> given(ids.begin() + before, ids.end());
    mgv__decode_arguments &a = gpu.state.arguments;
    machine::Options options = options_of(3, false);
    options.hardware_sums = false;
    const Run whole = launch(gpu, given, before, 3, options);
    ok(wrong(whole).empty(), "a launch of which nothing is lost", wrong(whole));
    options.on_deadlock = machine::OnDeadlock::drain;
    for (uint32_t kind = MGV__DECODE_ROWS; kind < MGV__DECODE_MEETING; kind++) {
        std::string why;
        for (uint32_t step = 0; step < 3 && why.empty(); step += 2)
            for (uint32_t cta = 0; cta < 4 && why.empty(); cta += 3) {
                a.poll_limit = 128;
                a.lost_word = kind;
                a.lost_cta = kind == MGV__DECODE_PARTS ? 0 : cta;
                a.lost_generation = a.generation + step * mgv__decode_generations(&a) + (kind == MGV__DECODE_BEST ? a.layers : 1);
                const Run run = launch(gpu, given, before, 3, options);
                faults_planted++;
                if (run.verdict.find("gave up") == std::string::npos) why = "it was not given up: " + run.verdict;
                else if (looks_of(run) > 128) why = "it was not given up within its bound: " + run.verdict;
                else if (!run.machine.reports.empty()) why = run.machine.text();
                else faults_caught++;
                a.lost_word = 0;
                a.poll_limit = MGV__DECODE_POLL_LIMIT;
                send_cache(gpu, reference, before, before + 3);
                const Run next = launch(gpu, given, before, 3, options);
                if (why.empty()) why = wrong(next);
                if (why.empty() && memcmp(next.logits.data(), whole.logits.data(), next.logits.size() * 4)) why = "the next launch has other bits";
            }
        ok(why.empty(), std::string("a lost word: ") + kinds[kind], why);
    }
    std::string why;
    const auto lose = [&](unsigned mbarrier, unsigned arrival) {
        a.poll_limit = 128;
        options.lost.cta = mbarrier % 4;
        options.lost.mbarrier = mbarrier;
        options.lost.arrival = arrival;
        const Run run = launch(gpu, given, before, 3, options);
        faults_planted++;
        if (run.verdict.find("gave up") == std::string::npos) why = "it was not given up: " + run.verdict;
        else if (looks_of(run) > 16 * 128) why = "it was not given up within its bound: " + run.verdict;
        else if (!run.machine.reports.empty() && !run.machine.has("mbarrier") && !run.machine.has("tx-count")) why = run.machine.text();
        else faults_caught++;
        if (!why.empty()) why = "mbarrier " + std::to_string(mbarrier) + ": " + why;
        options.lost.mbarrier = 0;
        a.poll_limit = MGV__DECODE_POLL_LIMIT;
    };
    for (unsigned mbarrier = 1; mbarrier <= 2 * MGV__DECODE_STAGES && why.empty(); mbarrier++) lose(mbarrier, mbarrier / 2 % 2 * 3);
    ok(why.empty(), "lost arrivals at the ring's mbarriers", why);
    const Run next = launch(gpu, given, before, 3, options);
    if (why.empty()) why = wrong(next);
    if (why.empty() && next.logits != whole.logits) why = "the next launch has other bits";
    ok(why.empty(), "and the next launch is right", why);
    close_gpu(gpu);
    close_reference(reference);
    mgv_model_close(model);
}

/* ---- prompts ---- */

/* Ids behind the `position` held, by the prompt's kernel; then the head. */
Run prompt(Gpu &gpu, const std::vector<uint32_t> &ids, uint32_t position, const machine::Options &options, bool with_head) {
    Run run;
    mgv_error error;
    memset(&error, 0, sizeof error);
    memcpy(mgv__decoder_prompt_part(&gpu.state, 0), ids.data(), ids.size() * 4);
    memset(mgv__decoder_prompt_part(&gpu.state, 1), 0, ids.size() * 4);
    for (uint32_t i = 0; i < ids.size(); i++) {
        const float at = (float)(position + i), where[3] = {at, at, at};
        mgv__decoder_turn(gpu.decoder, where, (float *)mgv__decoder_prompt_part(&gpu.state, 2) + i * 128);
    }
    machine::runtime.options = options;
    mgv_result result = mgv__decoder_start_prompt(&gpu.state, position, (uint32_t)ids.size(), 0, &error);
    if (result == MGV_OK) result = mgv__decoder_look(&gpu.state, &error);
    run.machine = machine::runtime.last;
    arithmetic_runs++;
    if (result == MGV_OK && run.machine.reports.empty() && with_head) {
        result = mgv__decoder_start_head(&gpu.state, &error);
        if (result == MGV_OK) result = mgv__decoder_look(&gpu.state, &error);
        run.machine = machine::runtime.last;
        arithmetic_runs++;
    }
    if (result != MGV_OK) run.verdict = error.message;
    run.logits.assign(gpu.state.session.logits, gpu.state.session.logits + gpu.state.arguments.vocabulary);
    return run;
}

/* Keys and values of the first `count` ids. */
std::vector<uint16_t> cache_of(const Gpu &gpu, uint32_t count, uint32_t capacity) {
    const mgv__config &c = *gpu.decoder->plan.config;
    std::vector<uint16_t> rows;
    for (const uint16_t *from : {gpu.state.session.keys, gpu.state.session.values})
        for (uint32_t i = 0; i < c.layers * c.key_heads; i++)
            rows.insert(rows.end(), from + (size_t)i * capacity * 128, from + ((size_t)i * capacity + count) * 128);
    return rows;
}

/* A prompt cut at some ids, in every grid: no report, logits within bf16's bound, the same bits of logits, keys and values; and an id that
   the decoder's kernel appends behind it. */
void test_prompt(const char *name, const Shape &shape, const std::vector<uint32_t> &ends, const std::vector<std::vector<uint32_t>> &cuts,
                 const std::vector<uint32_t> &grids) {
    mgv_model *model = open_model(shape);
    if (!model) return;
    const uint32_t count = ends.back(), capacity = count + 1;
    const std::vector<uint32_t> ids = rule_ids(capacity, shape.vocabulary, count);
    Reference reference = run_on_cpu(model, ids, count - 1);
    std::vector<float> first, behind;
    std::vector<uint16_t> cache;
    std::string why;
    double error = 0, next = 0;
    unsigned seed = 0;
    for (uint32_t grid : grids)
        for (const std::vector<uint32_t> &cut : cuts) {
            Gpu gpu;
            if (!why.empty()) break;
            if (!open_gpu(gpu, model, grid, capacity)) return;
            machine::Options options = options_of(++seed, false);
            options.hardware_sums = false;
            Run run;
            for (uint32_t at = 0, i = 0; at < count && why.empty(); i++) {
                const uint32_t end = i < cut.size() ? cut[i] : count;
                run = prompt(gpu, std::vector<uint32_t>(ids.begin() + at, ids.begin() + end), at, options, end == count);
                why = wrong(run);
                at = end;
            }
            error = relative_l2(run.logits.data(), reference.logits[0].data(), run.logits.size());
            if (why.empty() && !(error < 0.02)) why = "relative error " + std::to_string(error);
            const std::vector<uint16_t> kept = cache_of(gpu, count, capacity);
            const std::vector<float> logits = run.logits;
            if (why.empty()) run = launch(gpu, {ids[count]}, count, 1, options);
            if (why.empty()) why = wrong(run);
            next = relative_l2(run.logits.data(), reference.logits[1].data(), run.logits.size());
            if (why.empty() && !(next < 0.02)) why = "behind the prompt: relative error " + std::to_string(next);
            if (first.empty()) {
                first = logits;
                behind = run.logits;
                cache = kept;
            }
            if (why.empty() && (logits != first || behind != run.logits)) why = "other bits than in the first run";
            if (why.empty() && cache != kept) why = "another cache than in the first run";
            if (!why.empty()) why = std::to_string(grid) + " CTAs, seed " + std::to_string(seed) + ": " + why;
            close_gpu(gpu);
        }
    ok(why.empty(), std::string(name) + ": relative error " + std::to_string(error) + ", of the id behind it " + std::to_string(next), why);
    close_reference(reference);
    mgv_model_close(model);
}

/* A tile of every operation that is not counted: the launch is given up, with nothing else to report, and the next one has the bits of one
   of which nothing was lost. */
void test_prompt_lost(const Shape &shape, uint32_t count, bool arrivals) {
    mgv_model *model = open_model(shape);
    if (!model) return;
    const uint32_t blocks = mgv__ceil_div(count, MGV__PROMPT_ROWS);
    const std::vector<uint32_t> ids = rule_ids(count, shape.vocabulary, 6);
    Gpu gpu;
    if (!open_gpu(gpu, model, 4, count)) return;
    mgv__prompt_arguments &a = gpu.state.prompt;
    machine::Options options = options_of(3, false);
    options.hardware_sums = false;
    const Run whole = prompt(gpu, ids, 0, options, true);
    ok(wrong(whole).empty(), "a prompt of which nothing is lost", wrong(whole));
    options.on_deadlock = machine::OnDeadlock::drain;
    std::string why;
    const auto lose = [&](const std::string &what) {
        a.decode.poll_limit = 128;
        const Run run = prompt(gpu, ids, 0, options, true);
        faults_planted++;
        if (run.verdict.find("gave up at operation") == std::string::npos) why = what + ": it was not given up: " + run.verdict;
        else if (looks_of(run) > 128) why = what + ": it was not given up within its bound: " + run.verdict;
        else if (!run.machine.reports.empty() && !options.lost.mbarrier) why = what + ": " + run.machine.text();
        else faults_caught++;
        options.lost.mbarrier = 0;
        a.lost_signal = 0;
        a.decode.poll_limit = MGV__DECODE_POLL_LIMIT;
        const Run next = prompt(gpu, ids, 0, options, true);
        if (why.empty()) why = wrong(next);
        if (why.empty() && next.logits != whole.logits) why = what + ": the next launch has other bits";
    };
    for (uint32_t op = 0; op < shape.layers * MGV__PROMPT_LAYER_OPS && why.empty(); op++) { /* nobody waits for the last one */
        a.lost_signal = 1 + op * MGV__PROMPT_MOST_BLOCKS + op % blocks;
        lose("operation " + std::to_string(op));
    }
    ok(why.empty(), "lost signals of every operation, " + std::to_string(count) + " ids", why);
    for (unsigned mbarrier = 1; mbarrier <= 2 * MGV__PROMPT_STAGES && why.empty() && arrivals; mbarrier++) {
        options.lost.cta = mbarrier % 4;
        options.lost.mbarrier = mbarrier;
        options.lost.arrival = mbarrier / 2 % 2 * 5;
        lose("mbarrier " + std::to_string(mbarrier));
    }
    if (arrivals) ok(why.empty(), "lost arrivals at all of a prompt's mbarriers", why);
    close_gpu(gpu);
    mgv_model_close(model);
}

/* ---- the public functions ---- */

void test_sessions(const Shape &shape) {
    mgv_model *model = open_model(shape);
    if (!model) return;
    make_card(4);
    Session gpu = open_session(model, 90, MGV_BACKEND_CUDA), cpu = open_session(model, 90, MGV_BACKEND_CPU);
    if (!gpu.session || !cpu.session) return;
    machine::runtime.options = options_of(5, false);
    machine::runtime.options.hardware_sums = false;
    const std::vector<uint32_t> ids = rule_ids(70, shape.vocabulary, 3);
    mgv_error error;
    mgv_append_desc append;
    memset(&error, 0, sizeof error);
    memset(&append, 0, sizeof append);
    append.ids = ids.data();
    append.id_count = 70;
    ok(mgv_engine_backend(gpu.engine) == MGV_BACKEND_CUDA, "the engine's backend is the GPU");
    ok(mgv_session_append_blocking(gpu.session, &append, &error) == MGV_OK, "70 ids", error.message);
    ok(machine::runtime.last.reports.empty(), "nothing to report", machine::runtime.last.text());
    mgv_session_append_blocking(cpu.session, &append, &error);
    std::vector<float> mine = logits_of(gpu), theirs = logits_of(cpu);
    const double distance = relative_l2(mine.data(), theirs.data(), mine.size());
    ok(distance < 0.02, "logits as the CPU's: relative error " + std::to_string(distance));

    uint64_t bytes = 0;
    mgv_session_saved_bytes(gpu.session, &bytes, &error);
    std::vector<unsigned char> file(bytes);
    ok(mgv_session_save(gpu.session, file.data(), bytes, &error) == MGV_OK, "it is saved", error.message);

    uint32_t generated[6], one[6], count = 0, id = 0;
    int32_t stopped = 0;
    mgv_generate_desc generate;
    memset(&generate, 0, sizeof generate);
    generate.ids = generated;
    generate.id_capacity = 6;
    ok(mgv_session_generate(gpu.session, &generate, &count, &stopped, &error) == MGV_OK && count == 6 && !stopped, "six ids of one launch", error.message);
    const std::vector<float> behind = logits_of(gpu);

    ok(mgv_session_restore(gpu.session, file.data(), bytes, &error) == MGV_OK, "it is restored", error.message);
    ok(logits_of(gpu) == mine, "with its logits");
    bool same = true;
    for (uint32_t i = 0; i < 6; i++) {
        mgv_session_sample(gpu.session, nullptr, &id, &error);
        one[i] = id;
        same = same && one[i] == generated[i] && mgv_session_step(gpu.session, id, &error) == MGV_OK;
    }
    ok(same && logits_of(gpu) == behind, "six steps choose the same ids, and the last logits have the same bits");

    mgv_session_restore(gpu.session, file.data(), bytes, &error);
    generate.stops = &one[3];
    generate.stop_count = 1;
    uint32_t expected = 0;
    while (one[expected] != one[3]) expected++;
    ok(mgv_session_generate(gpu.session, &generate, &count, &stopped, &error) == MGV_OK && stopped && count == expected + 1 &&
           memcmp(generated, one, count * 4) == 0, "a stop ends it");
    mgv_session_info info;
    mgv_session_get_info(gpu.session, &info);
    ok(info.position == 70 + expected, "and is not appended");

    ok(mgv_session_restore(cpu.session, file.data(), bytes, &error) == MGV_OK, "the CPU goes on with the card's session", error.message);
    mgv_session_step(cpu.session, one[0], &error);
    mgv_session_restore(gpu.session, file.data(), bytes, &error);
    mgv_session_step(gpu.session, one[0], &error);
    mine = logits_of(gpu);
    theirs = logits_of(cpu);
    ok(relative_l2(mine.data(), theirs.data(), mine.size()) < 0.02, "and says the same");
    mgv_session_rollback(gpu.session, 70, &error);
    mgv_session_step(gpu.session, one[0], &error);
    ok(logits_of(gpu) == mine, "rolled back and stepped again: the same bits");

    memset(&append, 0, sizeof append);
    append.ids = ids.data();
    append.id_count = 20;
    mgv_session_rollback(gpu.session, 0, &error);
    mgv_session_append_blocking(gpu.session, &append, &error);
    mine = logits_of(gpu);
    mgv_session_rollback(gpu.session, 0, &error);
    for (uint32_t i = 0; i < 20; i++) mgv_session_step(gpu.session, ids[i], &error);
    const std::vector<float> stepped = logits_of(gpu);
    const double paths = relative_l2(stepped.data(), mine.data(), mine.size());
    ok(paths > 0 && paths < 0.01, "20 ids appended, and stepped one by one: relative distance " + std::to_string(paths));
    mgv_session_restore(gpu.session, file.data(), bytes, &error);
    mgv_session_step(gpu.session, one[0], &error);
    append.id_count = 19; /* to the last place */
    ok(mgv_session_append_blocking(gpu.session, &append, &error) == MGV_OK, "up to its capacity", error.message);
    append.id_count = 1;
    ok(mgv_session_append_blocking(gpu.session, &append, &error) == MGV_ERROR_CAPACITY, "and no further");
    generate.stop_count = 0;
    ok(mgv_session_generate(gpu.session, &generate, &count, &stopped, &error) == MGV_OK && count == 0 && !stopped, "nor does generate");
    close_session(gpu);
    close_session(cpu);
    mgv_model_close(model);
}

/* A picture between text, its rows in host memory and on the card: as on the CPU, and the same bits wherever the prompt is cut. */
void test_pictures(const Shape &shape) {
    enum { HEIGHT = 5, WIDTH = 7, ROWS = HEIGHT * WIDTH, TEXT = 6, COUNT = TEXT + ROWS + TEXT };
    mgv_model *model = open_model(shape);
    if (!model) return;
    make_card(4);
    Session gpu = open_session(model, COUNT + 8, MGV_BACKEND_CUDA), cpu = open_session(model, COUNT + 8, MGV_BACKEND_CPU);
    if (!gpu.session || !cpu.session) return;
    machine::runtime.options = options_of(7, false);
    machine::runtime.options.hardware_sums = false;
    std::vector<uint32_t> ids = rule_ids(COUNT, shape.vocabulary - 3, 4);
    std::vector<float> rows((size_t)3 * ROWS * shape.hidden);
    Checkpoint random;
    for (float &value : rows) value = random.next();
    std::fill(ids.begin() + TEXT, ids.begin() + TEXT + ROWS, shape.vocabulary - 3);
    mgv_picture picture;
    mgv_append_desc append;
    mgv_error error;
    memset(&error, 0, sizeof error);
    memset(&picture, 0, sizeof picture);
    memset(&append, 0, sizeof append);
    picture.grid.t = 1;
    picture.grid.h = 2 * HEIGHT;
    picture.grid.w = 2 * WIDTH;
    picture.grid.width = 32 * WIDTH;
    picture.grid.height = 32 * HEIGHT;
    picture.grid.tokens = 4 * ROWS;
    picture.grid.merged_tokens = ROWS;
    picture.deepstack_count = 2;
    append.pictures = &picture;
    std::vector<float> first, theirs;
    for (int on_card = 0; on_card < 2; on_card++) {
        float *from = rows.data();
        if (on_card) {
            cudaMalloc((void **)&from, rows.size() * 4);
            cudaMemcpy(from, rows.data(), rows.size() * 4, cudaMemcpyHostToDevice);
        }
        picture.tokens = from;
        picture.deepstack[0] = from + (size_t)ROWS * shape.hidden;
        picture.deepstack[1] = from + (size_t)2 * ROWS * shape.hidden;
        append.ids = ids.data();
        append.id_count = COUNT;
        append.picture_count = 1;
        if (!on_card) {
            if (mgv_session_append_blocking(cpu.session, &append, &error) != MGV_OK) ok(false, "the CPU appends", error.message);
            theirs = logits_of(cpu);
        }
        for (uint32_t cut = 0; cut <= TEXT; cut += 3) {
            mgv_session_rollback(gpu.session, 0, &error);
            append.ids = ids.data();
            append.id_count = cut;
            append.picture_count = 0;
            if (cut && mgv_session_append_blocking(gpu.session, &append, &error) != MGV_OK) ok(false, "text", error.message);
            append.ids = ids.data() + cut;
            append.id_count = COUNT - cut;
            append.picture_count = 1;
            const bool done = mgv_session_append_blocking(gpu.session, &append, &error) == MGV_OK && machine::runtime.last.reports.empty();
            ok(done, "a picture between text", error.message + machine::runtime.last.text());
            if (!done) return;
            const std::vector<float> mine = logits_of(gpu);
            const double distance = relative_l2(mine.data(), theirs.data(), mine.size());
            if (first.empty()) first = mine;
            ok(distance < 0.02 && mine == first, std::string(on_card ? "rows on the card" : "rows in host memory") + ", cut behind " +
               std::to_string(cut) + " ids: relative error " + std::to_string(distance));
        }
        if (on_card) cudaFree(from);
    }
    const std::vector<uint32_t> behind = rule_ids(2, shape.vocabulary - 3, 9);
    for (uint32_t id : behind) {
        mgv_session_step(gpu.session, id, &error);
        mgv_session_step(cpu.session, id, &error);
    }
    const std::vector<float> mine = logits_of(gpu);
    theirs = logits_of(cpu);
    const double distance = relative_l2(mine.data(), theirs.data(), mine.size());
    ok(distance < 0.02, "and two ids behind it: relative error " + std::to_string(distance));
    close_session(gpu);
    close_session(cpu);
    mgv_model_close(model);
}

/* ---- choosing by chance ---- */

std::vector<uint32_t> generated(mgv_session *session, const mgv_sample_desc *sampling, uint32_t count) {
    std::vector<uint32_t> ids(count);
    mgv_generate_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.ids = ids.data();
    desc.id_capacity = count;
    desc.sampling = sampling;
    uint32_t made = 0;
    int32_t stopped = 0;
    mgv_error error;
    if (mgv_session_generate(session, &desc, &made, &stopped, &error) != MGV_OK) ok(false, "generate", error.message);
    ids.resize(made);
    return ids;
}

/* Ids that one launch chooses are those that the host chooses from the same logits one by one. */
void test_sampling(const char *name, const Shape &shape, const std::vector<uint32_t> &grids, unsigned seeds) {
    struct Setting { float temperature, top_p, min_p; uint32_t top_k; };
    static const Setting settings[] = {{1, 0, 0, 0}, {0.7f, 0, 0, 5}, {1.5f, 0.8f, 0, 0}, {1, 0.9f, 0.05f, 20}, {50, 0, 0, 0},
                                       {50, 0.5f, 0, 90}, {2, 0, 0.2f, 0}, {1e-6f, 0, 0, 0}, {20, 1e-7f, 0, 0}, {20, 0, 0, 100000}};
    mgv_model *model = open_model(shape);
    if (!model) return;
    std::string why;
    unsigned different = 0, runs = 0;
    const std::vector<uint32_t> ids = rule_ids(7, shape.vocabulary, 11);
    for (uint32_t grid : grids) {
        make_card(grid);
        Session gpu = open_session(model, 40, MGV_BACKEND_CUDA);
        if (!gpu.session) return;
        for (const Setting &setting : settings)
            for (unsigned seed = 0; seed < seeds && why.empty(); seed++) {
                mgv_error error;
                mgv_sample_desc sampling;
                memset(&sampling, 0, sizeof sampling);
                sampling.temperature = setting.temperature;
                sampling.top_k = setting.top_k;
                sampling.top_p = setting.top_p;
                sampling.min_p = setting.min_p;
                sampling.seed = seed * 0x123456789ull;
                machine::runtime.options = options_of(seed + 7 * grid + runs, false);
                machine::runtime.options.hardware_sums = false;
                machine::runtime.options.words_order = runs++ % 2;
                mgv_session_rollback(gpu.session, 0, &error);
                mgv_append_desc append;
                memset(&append, 0, sizeof append);
                append.ids = ids.data();
                append.id_count = ids.size();
                if (mgv_session_append_blocking(gpu.session, &append, &error) != MGV_OK) why = error.message;
                const std::vector<uint32_t> mine = generated(gpu.session, &sampling, 4);
                arithmetic_runs++;
                if (!machine::runtime.last.reports.empty()) why = machine::runtime.last.text();
                const std::vector<float> behind = logits_of(gpu);
                mgv_session_rollback(gpu.session, 0, &error);
                mgv_session_append_blocking(gpu.session, &append, &error);
                for (uint32_t i = 0; i < 4 && why.empty(); i++) {
                    uint32_t id = 0;
                    mgv_session_sample(gpu.session, &sampling, &id, &error);
                    if (i >= mine.size() || id != mine[i]) why = "the host chooses another id, number " + std::to_string(i);
                    different += i > 0 && mine[i] != mine[0];
                    mgv_session_step(gpu.session, id, &error);
                }
                if (why.empty() && logits_of(gpu) != behind) why = "other logits behind them";
                if (!why.empty())
                    why = std::to_string(grid) + " CTAs, temperature " + std::to_string(setting.temperature) + ", top_k " +
                          std::to_string(setting.top_k) + ", top_p " + std::to_string(setting.top_p) + ", seed " + std::to_string(seed) + ": " + why;
            }
        close_session(gpu);
    }
    ok(why.empty() && different > runs / 2, std::string(name) + ": " + std::to_string(runs) + " texts by chance as the host's", why);
    mgv_model_close(model);
}

/* A meeting to which somebody does not come, the host's wish for an end. */
void test_choice_faults(const Shape &shape) {
    mgv_model *model = open_model(shape);
    if (!model) return;
    Gpu gpu;
    if (!open_gpu(gpu, model, 4, 8)) return;
    mgv__decode_arguments &a = gpu.state.arguments;
    mgv_sample_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.temperature = 2;
    desc.top_k = 50;
    desc.top_p = 0.9f;
    const mgv__sampling sampling = mgv__sampling_of(&desc);
    machine::Options options = options_of(3, false);
    options.hardware_sums = false;
    const Run whole = launch(gpu, {5}, 0, 3, options, {}, sampling);
    ok(wrong(whole).empty(), "a text by chance", wrong(whole));
    options.on_deadlock = machine::OnDeadlock::drain;
    std::string why;
    for (uint32_t meeting = 0; meeting < 2 && why.empty(); meeting++)
        for (uint32_t step = 0; step < 3 && why.empty(); step += 2) {
            a.poll_limit = 128;
            a.lost_word = MGV__DECODE_MEETING;
            a.lost_cta = meeting;
            a.lost_generation = a.generation + step * mgv__decode_generations(&a) + a.layers + 1 + meeting;
            const Run run = launch(gpu, {5}, 0, 3, options, {}, sampling);
            faults_planted++;
            if (run.verdict.find("gave up") == std::string::npos) why = "it was not given up: " + run.verdict;
            else if (!run.machine.reports.empty()) why = run.machine.text();
            else faults_caught++;
            a.lost_word = 0;
            a.poll_limit = MGV__DECODE_POLL_LIMIT;
            const Run next = launch(gpu, {5}, 0, 3, options, {}, sampling);
            if (why.empty()) why = wrong(next);
            if (why.empty() && next.chosen != whole.chosen) why = "the next launch chooses other ids";
        }
    ok(why.empty(), "a lost word: meetings", why);
    options.host.word = gpu.state.cancel;
    why.clear();
    uint32_t fewest = 3, most = 0;
    for (uint64_t after : {1, 500, 1000, 1500, 2000, 2500}) {
        options.host.after = after;
        const Run run = launch(gpu, {5}, 0, 3, options, {}, sampling);
        if (why.empty()) why = wrong(run);
        if (run.steps < fewest) fewest = run.steps;
        if (run.steps > most) most = run.steps;
        for (uint32_t i = 0; i < run.steps && why.empty(); i++)
            if (run.chosen[i] != whole.chosen[i]) why = "other ids before the end";
    }
    ok(why.empty() && fewest < most, "the host ends it behind ids " + std::to_string(fewest) + " to " + std::to_string(most), why);
    close_gpu(gpu);
    mgv_model_close(model);
}

/* ---- several sessions ---- */

void test_together(const char *name, const Shape &shape, uint32_t count, uint32_t grid) {
    mgv_model *model = open_model(shape);
    if (!model) return;
    make_card(grid);
    machine::runtime.options = options_of(count, false);
    machine::runtime.options.hardware_sums = false;
    mgv_engine_desc engine_desc;
    mgv_session_desc session_desc;
    mgv_error error;
    memset(&error, 0, sizeof error);
    memset(&engine_desc, 0, sizeof engine_desc);
    memset(&session_desc, 0, sizeof session_desc);
    engine_desc.backend = MGV_BACKEND_CUDA;
    engine_desc.kernels = "the model has them";
    mgv_engine *engine = nullptr;
    if (mgv_engine_create(&engine, model, &engine_desc, &error) != MGV_OK) return ok(false, "the engine", error.message);
    std::vector<mgv_session *> sessions;
    std::vector<std::vector<uint32_t>> ids(count), alone(count);
    std::vector<std::vector<float>> logits(count);
    std::vector<mgv_sample_desc> sampling(count);
    std::vector<mgv_generate_desc> descs(count);
    for (uint32_t i = 0; i < count; i++) {
        mgv_session *session = nullptr;
        session_desc.capacity = 20 + i;
        if (mgv_session_create(&session, engine, &session_desc, &error) != MGV_OK) return ok(false, "a session", error.message);
        name_parts(engine->decoder, *session->gpu, session_desc.capacity);
        sessions.push_back(session);
        memset(&sampling[i], 0, sizeof sampling[i]);
        memset(&descs[i], 0, sizeof descs[i]);
        sampling[i].temperature = i % 2 ? 1.5f : 0;
        sampling[i].top_p = i % 4 == 1 ? 0.9f : 0;
        sampling[i].seed = i;
        ids[i].resize(2 + i % 3);
        descs[i].ids = ids[i].data();
        descs[i].id_capacity = (uint32_t)ids[i].size();
        descs[i].sampling = &sampling[i];
    }
    std::vector<uint32_t> counts(count);
    std::vector<int32_t> stopped(count);
    std::string why;
    for (int together = 0; together < 2; together++) {
        for (uint32_t i = 0; i < count; i++) {
            const std::vector<uint32_t> prompt = rule_ids(1 + i * 2 % 7, shape.vocabulary, i);
            mgv_append_desc append;
            memset(&append, 0, sizeof append);
            append.ids = prompt.data();
            append.id_count = prompt.size();
            mgv_session_rollback(sessions[i], 0, &error);
            if (mgv_session_append_blocking(sessions[i], &append, &error) != MGV_OK) why = error.message;
            if (together) continue;
            if (mgv_session_generate(sessions[i], &descs[i], &counts[i], &stopped[i], &error) != MGV_OK) why = error.message;
            alone[i] = ids[i];
            logits[i].assign(sessions[i]->buffers[sessions[i]->logits], sessions[i]->buffers[sessions[i]->logits] + shape.vocabulary);
        }
        if (!together) continue;
        for (auto &list : ids) std::fill(list.begin(), list.end(), 0u);
        if (mgv_sessions_generate(sessions.data(), descs.data(), count, counts.data(), stopped.data(), &error) != MGV_OK) why = error.message;
        arithmetic_runs++;
        if (!machine::runtime.last.reports.empty()) why += machine::runtime.last.text();
        for (uint32_t i = 0; i < count && why.empty(); i++) {
            if (counts[i] != ids[i].size() || ids[i] != alone[i]) why = "session " + std::to_string(i) + " has other ids than alone";
            else if (memcmp(logits[i].data(), sessions[i]->buffers[sessions[i]->logits], shape.vocabulary * 4)) why = "session " + std::to_string(i) + " has other logits than alone";
        }
    }
    ok(why.empty(), std::string(name) + ": " + std::to_string(count) + " sessions together as each alone", why);
    if (count > 1) {
        std::swap(sessions[0], sessions[1]);
        std::vector<mgv_session *> twice = {sessions[0], sessions[1], sessions[0]};
        descs.resize(3);
        counts.resize(3);
        stopped.resize(3);
        ok(mgv_sessions_generate(twice.data(), descs.data(), 3, counts.data(), stopped.data(), &error) == MGV_ERROR_ARGUMENT, "a session twice is refused");
    }
    for (mgv_session *session : sessions) mgv_session_destroy(session);
    mgv_engine_destroy(engine);
    mgv_model_close(model);
}

#include "test_planted_decode.h"
#include "test_decode_widths.h"

} // namespace

int main(int count, char **arguments) {
    const std::string only = count > 1 ? arguments[1] : "";
    if (only == "ablations") { /* where the kernels have them */
        test_ablations();
        return finish("decoder's ablations");
    }
    if (only == "planted") { /* where the kernels are those of the table */
        test_planted("tests/machine/planted_decode.txt", count > 2 ? atoi(arguments[2]) : 0);
        return finish("decoder's faults");
    }
    const Shape pair = {2, 160, 96, 4, 2, 203, true, false}, seeing = {3, 128, 96, 4, 2, 131, true, true}, four = {2, 128, 160, 8, 2, 117, false, false};
    if (only.empty() || only == "first") test_arithmetic("first ids", pair, 0, 3, {4}, 2);
    if (only.empty() || only == "arithmetic") {
        test_arithmetic("grids", pair, 0, 4, {4, 2, 6}, 4);
        test_arithmetic("four heads of queries for one of keys", four, 5, 2, {4, 2}, 2);
        test_arithmetic("two segments", pair, 127, 3, {4, 6}, 2);
        test_arithmetic("segments of a head in one unit, or in three", pair, 260, 2, {2, 6}, 1);
    }
    if (only.empty() || only == "long") {
        test_long("segments of 256 keys", {1, 64, 64, 4, 1, 64, true}, 2097, 3, {4, 6});
        test_long("a cache of 32,768 ids, to its last place", {1, 64, 64, 2, 1, 64, true}, 32766, 2, {6});
    }
    /* ids beyond the rows' columns: an embedding that is not the head's has as many rows as there are ids */
    if (only.empty() || only == "untied") test_arithmetic("an embedding of its own", {1, 64, 64, 4, 1, 1100, false}, 3, 2, {4}, 1);
    if (only.empty() || only == "rows") test_arithmetic("rows that registers do not hold", {1, 1664, 64, 2, 1, 64, true}, 3, 2, {12}, 1);
    /* by name only: they take long */
    if (only == "orders") test_orders(count > 2 ? (unsigned)atoi(arguments[2]) : 3);
    for (const Width &width : widths()) { /* by name only: minutes */
        const std::string which = count > 2 ? arguments[2] : "";
        if (!which.empty() && which != width.name) continue;
        if (only == "widths") test_width(width);
        if (only == "widths_prompt")
            for (uint32_t rows : {17, 40}) test_width_prompt(width, rows);
        if (only == "widths_lost") test_width_lost(width);
    }
    if (only == "mixed") {
        test_mixed(pair, 4);
        test_mixed(four, 6);
    }
    if (only.empty() || only == "lost") test_lost(pair, 128);
    if (only.empty() || only == "prompt") {
        test_prompt("a short prompt", pair, {21}, {{}, {1}, {8, 9}}, {4, 2});
        test_prompt("a prompt of two blocks, also by the kernel for few ids", pair, {147}, {{}, {32, 65, 66}, {64, 70}}, {4});
        test_prompt("a prompt of two blocks, wide tiles and narrow ones", pair, {147}, {{}}, {2, 12}); /* of every product */
        test_prompt("33 to 127 ids", pair, {127}, {{}, {33}, {94}}, {6});
        test_prompt("32 ids, and one more", pair, {33}, {{}, {32}, {1}}, {4});
        test_prompt("a prompt, four heads of queries for one of keys", four, {75}, {{}, {67}}, {6});
    }
    if (only.empty() || only == "prompt_lost") {
        test_prompt_lost(pair, 140, !only.empty());
        test_prompt_lost(pair, 20, true);
    }
    if (only.empty() || only == "sessions") test_sessions(pair);
    if (only.empty() || only == "pictures") test_pictures(seeing);
    const Shape many = {1, 64, 64, 2, 1, 1500, true}, alike = {1, 64, 64, 4, 1, 1100, false, false, 3};
    if (only.empty() || only == "sampling") {
        test_sampling("many ids", many, {4, 6}, 1);
        test_sampling("ids of equal logits", alike, {4}, 1);
        test_choice_faults(many);
    }
    if (only.empty() || only == "together") {
        test_together("two heads a key", pair, 3, 4);
        test_together("two sets", pair, 7, 4);
        test_together("four heads a key", four, 8, 6);
        test_together("more than fit into a launch", many, 10, 4);
    }
    return finish("decoder");
}
