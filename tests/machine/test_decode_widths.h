/* The decoder's kernels at the widths that Qwen3 has, a part of test_decode.cc: a layer of 1.7B, of 4B and of 8B, with their heads, rows
   and MLPs, beside the CPU. Narrower models do not reach these: kernels for 24 and 32 slices of a row, rows that registers do not hold (the
   MLPs of 4B and 8B, taken in turns), as many stages as go round the ring often. The vocabulary is small, and steps are few: one of 8B is
   half a minute. */
#ifndef MACHINE_TEST_DECODE_WIDTHS_H
#define MACHINE_TEST_DECODE_WIDTHS_H

struct Width {
    const char *name;
    Shape shape;
    const char *kernel[2]; /* for any launch, for few sessions */
    uint32_t grid;
    bool in_turns; /* its longest rows are taken in turns */
    uint32_t steps;
};
const std::vector<Width> &widths(void) {
    static const std::vector<Width> all = {
        {"Qwen3-1.7B", {1, 2048, 6144, 16, 8, 203, true}, {"megavit_decode_24_2_sm_90a", "megavit_decode_few_24_2_sm_90a"}, 8, false, 2},
        {"Qwen3-4B", {1, 2560, 9728, 32, 8, 203, true}, {"megavit_decode_32_4_sm_90a", "megavit_decode_few_32_4_sm_90a"}, 10, true, 1},
        {"Qwen3-8B", {1, 4096, 12288, 32, 8, 203, false}, {"megavit_decode_32_4_sm_90a", "megavit_decode_few_32_4_sm_90a"}, 16, true, 1}};
    return all;
}
/* One session, whose keys are two segments, by the kernel for few; the same among five of different lengths, by that for any launch. */
std::vector<Scene> scenes_of(const Width &w) {
    const uint32_t n = w.steps;
    return {{"one session", w.shape, {128}, {1}, {n}, false, false, false, false, false, w.grid},
            {"five sessions", w.shape, {128, 0, 130, 5, 127}, {1, 1, 1, 1, 1}, {n, 1, n, 1, n}, false, false, false, false, false, w.grid}};
}

/* What each session says as the CPU does; and the one the same bits alone and among five, by either kernel. */
void test_width(const Width &w) {
    mgv_model *model = open_model(w.shape);
    mgv_engine_desc desc;
    mgv_engine *cpu = nullptr;
    mgv_error error;
    Outcome alone;
    memset(&desc, 0, sizeof desc);
    desc.backend = MGV_BACKEND_CPU;
    if (!model || mgv_engine_create(&cpu, model, &desc, &error) != MGV_OK) return ok(false, "the CPU's engine", error.message);
    const mgv__decode_kernel *kernel = mgv__decode_kernel_for(&model->config);
    for (const Scene &scene : scenes_of(w)) {
        const std::string name = std::string(w.name) + ", " + scene.name;
        Stage stage;
        if (!open_stage(stage, scene, model)) return;
        const uint32_t slices = stage.gpu.state.arguments.product[MGV__PRODUCT_DOWN].slices;
        const bool few = scene.positions.size() <= MGV__DECODE_FEW;
        ok(!strcmp(kernel->name[few], w.kernel[few]) && (slices > kernel->slices) == w.in_turns,
           name + ": " + kernel->name[few] + ", rows of up to " + std::to_string(slices) + " slices");
        const Outcome out = run_scene(stage, scene, w.grid, {});
        std::string why = out.said;
        double distance = 0;
        size_t chosen = 0, place = 0;
        for (uint32_t s = 0; s < scene.positions.size() && why.empty(); s++, place += w.shape.vocabulary) {
            std::vector<uint32_t> ids = rule_ids(1, w.shape.vocabulary, s);
            ids.insert(ids.end(), &out.ids[chosen], &out.ids[chosen] + scene.steps[s] - 1);
            chosen += scene.steps[s];
            const std::vector<float> logits = cpu_behind(cpu, scene.positions[s], s, ids);
            distance = fmax(distance, relative_l2(&out.logits[place], logits.data(), logits.size()));
            if (out.steps[s] != scene.steps[s]) why = "session " + std::to_string(s) + ": " + std::to_string(out.steps[s]) + " ids";
        }
        ok(why.empty() && distance < 0.02, name + ", as the CPU: relative error " + std::to_string(distance), why);
        if (few) alone = out;
        else
            ok(why.empty() && std::equal(alone.ids.begin(), alone.ids.end(), out.ids.begin()) &&
                   std::equal(alone.logits.begin(), alone.logits.end(), out.logits.begin()) &&
                   std::equal(alone.cache.begin(), alone.cache.end(), out.cache.begin()),
               name + ": the first has the bits that it has alone");
        close_stage(stage);
    }
    mgv_engine_destroy(cpu);
    mgv_model_close(model);
}

/* A prompt of so many ids, and one more id behind it, as the CPU has them. */
void test_width_prompt(const Width &w, uint32_t count) {
    const std::string name = std::string(w.name) + (count > MGV__PROMPT_FEW ? ", megavit_prompt_sm_90a" : ", megavit_prompt_few_sm_90a");
    test_prompt(name.c_str(), w.shape, {count}, {{}}, {w.grid});
}

/* Words of every kind and arrivals at the ring's mbarriers that never come, in launches of one session and of five: each is given up within
   its bound with nothing else to report, and the launch behind them all has the bits of the one before. */
void test_width_lost(const Width &w) {
    static const char *const kinds[] = {"", "rows", "sums of squares", "q, k, v", "parts", "attention", "hidden values", "best ids"};
    mgv_model *model = open_model(w.shape);
    if (!model) return;
    for (const Scene &scene : scenes_of(w)) {
        Stage stage;
        if (!open_stage(stage, scene, model)) continue;
        mgv__decode_arguments &a = stage.gpu.state.arguments;
        machine::Options options = options_of(3, false);
        options.hardware_sums = false;
        options.on_deadlock = machine::OnDeadlock::drain;
        const auto run = [&](void) {
            Outcome out;
            for (uint32_t s = 0; s < scene.positions.size(); s++) fill_cache(stage.gpu.decoder, stage.state(s), scene.positions[s], s);
            machine::runtime.options = options;
            run_sessions(stage, scene, {}, out);
            arithmetic_runs++;
            return out;
        };
        const Outcome right = run();
        std::string why = right.said;
        const auto lose = [&](const std::string &what, unsigned patience, bool reported) {
            if (!why.empty()) return;
            a.poll_limit = 128;
            const Outcome lost = run();
            const size_t at = lost.said.find("did not come in ");
            faults_planted++;
            if (lost.said.find("gave up") == std::string::npos) why = what + ": it was not given up: " + lost.said;
            else if (at == std::string::npos || (unsigned)atoi(lost.said.c_str() + at + 16) > patience * 128)
                why = what + ": it was not given up within its bound: " + lost.said;
            else if (!machine::runtime.last.reports.empty() && !reported) why = what + ": " + machine::runtime.last.text();
            else faults_caught++;
            a.poll_limit = MGV__DECODE_POLL_LIMIT;
            a.lost_word = 0;
            options.lost.mbarrier = 0;
        };
        for (uint32_t kind = MGV__DECODE_ROWS; kind < MGV__DECODE_MEETING; kind++) {
            const uint32_t step = kind % w.steps;
            a.lost_word = kind;
            a.lost_cta = kind == MGV__DECODE_PARTS ? 0 : kind % w.grid;
            a.lost_generation = a.generation + step * mgv__decode_generations(&a) + (kind == MGV__DECODE_BEST ? a.layers : 0);
            lose(kinds[kind], 1, false);
        }
        for (unsigned mbarrier : {1u, 2u, 2u * MGV__DECODE_STAGES - 1, 2u * MGV__DECODE_STAGES}) { /* full ones are odd, with one arrival */
            options.lost.cta = mbarrier % w.grid;
            options.lost.mbarrier = mbarrier;
            options.lost.arrival = mbarrier % 2 ? 3 : 3 * MGV__DECODE_WARPS + 5; /* the ring has gone round three times */
            lose("mbarrier " + std::to_string(mbarrier), 16, true);
        }
        const Outcome next = run();
        if (why.empty()) why = next.said;
        if (why.empty() && !(next == right)) why = "the next launch has other ids, logits or keys";
        ok(why.empty(), std::string(w.name) + ", " + scene.name + ": lost words and arrivals", why);
        close_stage(stage);
    }
    mgv_model_close(model);
}

#endif
