/* Scenes of the decoder's kernels, a part of test_decode.cc: under many orders, with sessions of different lengths, and with planted faults
   (planted_decode.txt): each is seen, as a report of the model, a verdict of the kernel's watchdog, or as other ids, logits or caches than
   without it. */
#ifndef MACHINE_TEST_PLANTED_DECODE_H
#define MACHINE_TEST_PLANTED_DECODE_H

/* Which fault of the table, counted from 1, is planted in the launch under way, and which variant of it. */
int planted_fault, planted_variant, ablated;
extern "C" int planted(int number) { return number == planted_fault ? planted_variant : 0; }
extern "C" int ablation(void) { return ablated; }

struct PlantedFault {
    std::string what, scene;
    int variants;
};
std::vector<PlantedFault> planted_table(const char *path) {
    std::vector<PlantedFault> faults;
    std::ifstream table(path);
    for (std::string line; std::getline(table, line);) {
        const size_t colon = line.rfind(": ");
        if (line.compare(0, 2, "= ") != 0 || colon == std::string::npos) continue;
        const std::string scene = line.substr(colon + 2);
        const size_t space = scene.find(' ');
        faults.push_back({line.substr(2, colon - 2), scene.substr(0, space), space == std::string::npos ? 1 : atoi(scene.c_str() + space)});
    }
    return faults;
}

/* What a launch gives: everything that must be the same whatever the order. */
struct Outcome {
    std::string said; /* reports and verdict */
    std::vector<uint32_t> ids, steps;
    std::vector<float> logits;
    std::vector<uint16_t> cache;
    bool operator==(const Outcome &other) const {
        return said == other.said && ids == other.ids && steps == other.steps && logits == other.logits && cache == other.cache;
    }
};

unsigned given_ups; /* launches of the scene "impatient" that were */

/* Something to run: sessions that were filled by a rule. `run` has one launch. */
struct Scene {
    const char *name;
    Shape shape;
    std::vector<uint32_t> positions, given, steps; /* of each session */
    bool chance, stops, cancels, prompt, lost;
    uint32_t grid;
};
std::vector<Scene> scenes(void) {
    const Shape pair = {2, 160, 96, 4, 2, 203, true, false}, alike = {1, 64, 64, 4, 1, 1100, false, false, 3},
                many = {1, 64, 64, 2, 1, 1500, true, false}, thin = {2, 64, 96, 2, 1, 203, true, false};
    return {{"ids", pair, {126}, {1}, {3}, false, false, false, false, false, 4},
            {"impatient", pair, {126}, {1}, {3}, false, false, false, false, true, 4},
            {"chance", many, {1}, {1}, {5}, true, false, false, false, false, 4},
            {"stop", pair, {3}, {1}, {6}, false, true, false, false, false, 4},
            {"cancel", pair, {3}, {1}, {6}, false, false, true, false, false, 4},
            {"ties", alike, {2}, {1}, {3}, false, false, false, false, false, 4},
            {"grid", thin, {2}, {1}, {3}, false, false, false, false, false, 10}, /* CTAs without columns of the residual */
            {"sessions", pair, {126, 0, 130, 5, 127}, {1, 1, 2, 1, 1}, {4, 1, 2, 3, 2}, true, false, false, false, false, 4},
            {"prompt", pair, {3}, {140}, {0}, false, false, false, true, false, 4},
            {"short", thin, {3}, {40}, {0}, false, false, false, true, false, 4}, /* products of fewer steps than there are stages */
            {"lost", pair, {3}, {140}, {0}, false, false, false, true, true, 4}};
}

/* A scene's card: the first session's words are used. */
struct Stage {
    Gpu gpu;
    std::vector<mgv__decoder_state> others;
    mgv__decoder_state &state(size_t i) { return i ? others[i - 1] : gpu.state; }
};
enum { SCENE_CAPACITY = 143 };

/* Rows of keys, then of values, of each layer and head, that a session holds by a rule: take(values, which, layer and head, rows). */
template <class Take> void each_kept(const mgv__config &c, uint32_t position, uint32_t seed, const Take &take) {
    Checkpoint random;
    random.state += seed;
    for (int values = 0; values < 2; values++)
        for (uint32_t i = 0; i < c.layers * c.key_heads && position; i++) {
            std::vector<uint16_t> rows((size_t)position * 128);
            for (uint16_t &value : rows) value = mgv__bf16_round(random.next());
            take(values, i, rows);
        }
}
/* Keys and values of the ids that a session holds; what is behind them nobody has written. */
void fill_cache(const mgv__decoder *decoder, mgv__decoder_state &state, uint32_t position, uint32_t seed) {
    const size_t capacity = state.session.capacity;
    uint16_t *const to[] = {state.session.keys, state.session.values};
    for (uint16_t *rows : to) machine::global_forget(rows, (size_t)mgv__decoder_cache_bytes(decoder->plan.config, (uint32_t)capacity));
    each_kept(*decoder->plan.config, position, seed, [&](int values, uint32_t i, const std::vector<uint16_t> &rows) {
        machine::global_copy(to[values] + i * capacity * 128, rows.data(), rows.size() * 2);
    });
}
/* Logits of the CPU behind `ids`, of a session that holds `position` ids as fill_cache has them. */
std::vector<float> cpu_behind(mgv_engine *engine, uint32_t position, uint32_t seed, const std::vector<uint32_t> &ids) {
    Session cpu;
    mgv_session_desc desc;
    mgv_error error;
    memset(&desc, 0, sizeof desc);
    desc.capacity = position + (uint32_t)ids.size();
    if (mgv_session_create(&cpu.session, engine, &desc, &error) != MGV_OK) ok(false, "the CPU's session", error.message);
    each_kept(cpu.session->model->config, position, seed, [&](int values, uint32_t i, const std::vector<uint16_t> &rows) {
        float *to = cpu.session->buffers[values ? cpu.session->values : cpu.session->keys] + (size_t)i * desc.capacity * 128;
        for (uint16_t row : rows) *to++ = mgv__float_of_bf16(row);
    });
    cpu.session->position = position;
    for (uint32_t i = 0; i < position; i++) cpu.session->next[i] = i + 1;
    for (uint32_t id : ids)
        if (mgv_session_step(cpu.session, id, &error) != MGV_OK) ok(false, "the CPU steps", error.message);
    const std::vector<float> logits = logits_of(cpu);
    mgv_session_destroy(cpu.session);
    return logits;
}

/* What is kept of `count` ids. */
void take_cache(const mgv__decoder *decoder, const mgv__decoder_state &state, uint32_t count, std::vector<uint16_t> &out) {
    const mgv__config &c = *decoder->plan.config;
    for (const uint16_t *from : {state.session.keys, state.session.values})
        for (uint32_t i = 0; i < c.layers * c.key_heads; i++)
            out.insert(out.end(), from + (size_t)i * SCENE_CAPACITY * 128, from + ((size_t)i * SCENE_CAPACITY + count) * 128);
}

bool open_stage(Stage &stage, const Scene &scene, const mgv_model *model) {
    mgv_error error;
    if (!open_gpu(stage.gpu, model, scene.grid, SCENE_CAPACITY)) return false;
    stage.others.resize(scene.positions.size() - 1);
    for (mgv__decoder_state &state : stage.others) {
        if (mgv__decoder_open(&state, stage.gpu.decoder, SCENE_CAPACITY, &error) != MGV_OK) return false;
        name_parts(stage.gpu.decoder, state, SCENE_CAPACITY);
    }
    return true;
}
void close_stage(Stage &stage) {
    for (mgv__decoder_state &state : stage.others) mgv__decoder_close(&state);
    close_gpu(stage.gpu);
}

/* All sessions of the scene in one launch. */
void run_sessions(Stage &stage, const Scene &scene, const std::vector<uint32_t> &stops, Outcome &out) {
    mgv__decoder_state &first = stage.gpu.state;
    const uint32_t count = (uint32_t)scene.positions.size(), vocabulary = first.arguments.vocabulary;
    mgv__decode_session launched[MGV__DECODE_SESSIONS];
    mgv_error error;
    memset(&error, 0, sizeof error);
    for (uint32_t s = 0; s < count; s++) {
        const std::vector<uint32_t> given = rule_ids(scene.given[s], vocabulary, s);
        mgv_sample_desc desc;
        memset(&desc, 0, sizeof desc);
        desc.temperature = 20;
        desc.top_k = 100;
        desc.top_p = 0.9f;
        desc.seed = s;
        launched[s] = stage.state(s).session;
        launched[s].position = scene.positions[s];
        launched[s].given = scene.given[s];
        launched[s].steps = scene.steps[s];
        if (scene.chance && s % 2 == 0) launched[s].sampling = mgv__sampling_of(&desc);
        launched[s].stop_count = (uint32_t)stops.size();
        if (!stops.empty()) memcpy(launched[s].stops, stops.data(), stops.size() * 4);
        memcpy(first.ids + s * MGV__DECODE_STEPS, given.data(), given.size() * 4);
        for (uint32_t i = 0; i < scene.steps[s]; i++) {
            const float at = (float)(scene.positions[s] + i), where[3] = {at, at, at};
            mgv__decode_turn(stage.gpu.decoder->plan.program, where, first.rotary + ((size_t)i * count + s) * 128);
        }
    }
    mgv_result result = mgv__decoder_start(&first, launched, count, &error);
    if (result == MGV_OK) result = mgv__decoder_look(&first, &error);
    out.said = machine::runtime.last.text() + (result == MGV_OK ? "" : error.message);
    for (uint32_t s = 0; s < count; s++) {
        const uint32_t steps = first.result[s].steps;
        out.steps.push_back(steps);
        for (uint32_t i = scene.given[s]; i <= steps; i++) out.ids.push_back(first.chosen[s * MGV__DECODE_STEPS + i - 1]);
        out.logits.insert(out.logits.end(), stage.state(s).session.logits, stage.state(s).session.logits + vocabulary);
        take_cache(stage.gpu.decoder, stage.state(s), scene.positions[s] + steps, out.cache);
    }
}
Outcome run_scene(Stage &stage, const Scene &scene, uint64_t seed, const std::vector<uint32_t> &stops) {
    Outcome out;
    machine::Options options = options_of(seed, false);
    options.hardware_sums = false;
    options.words_order = seed % 2;
    options.maximum_steps = 20000000ull * (1 + scene.shape.hidden / 256);
    if (scene.cancels) {
        options.host.word = stage.gpu.state.cancel;
        options.host.after = 1500;
    }
    arithmetic_runs++;
    for (size_t s = 0; s < scene.positions.size(); s++) fill_cache(stage.gpu.decoder, stage.state(s), scene.positions[s], (uint32_t)s);
    if (!scene.prompt) {
        mgv__decode_arguments &decode = stage.gpu.state.arguments;
        if (scene.lost) { /* given up while others are at work */
            options.on_deadlock = machine::OnDeadlock::drain;
            options.restless = 300 + seed * 257;
            decode.poll_limit = 64;
        }
        machine::runtime.options = options;
        run_sessions(stage, scene, stops, out);
        decode.poll_limit = MGV__DECODE_POLL_LIMIT;
        if (!scene.lost) return out;
        Outcome given_up;
        given_up.said = machine::runtime.last.text();
        given_ups += out.said.find("gave up") != std::string::npos;
        return given_up;
    }
    mgv__prompt_arguments &a = stage.gpu.state.prompt;
    const uint32_t count = scene.given[0];
    if (scene.lost) { /* attention of the second layer is given up, products behind it and copies are under way */
        options.on_deadlock = machine::OnDeadlock::drain;
        a.lost_signal = 1 + (1 + seed % (2 * MGV__PROMPT_LAYER_OPS - 1)) * MGV__PROMPT_MOST_BLOCKS;
        a.decode.poll_limit = 128;
    }
    const Run run = prompt(stage.gpu, rule_ids(count, scene.shape.vocabulary, 6), scene.positions[0], options, !scene.lost);
    a.lost_signal = 0;
    a.decode.poll_limit = MGV__DECODE_POLL_LIMIT;
    out.said = run.machine.text() + (scene.lost && run.verdict.find("gave up") != std::string::npos ? "" : run.verdict);
    if (scene.lost) return out;
    out.logits = run.logits;
    take_cache(stage.gpu.decoder, stage.gpu.state, scene.positions[0] + count, out.cache);
    return out;
}

/* Every scene under so many orders of warps, copies and words: nothing to report, the same bits. */
void test_orders(unsigned seeds) {
    for (const Scene &scene : scenes()) {
        mgv_model *model = open_model(scene.shape);
        Stage stage;
        if (!model || !open_stage(stage, scene, model)) continue;
        std::vector<uint32_t> stops;
        Outcome right = run_scene(stage, scene, 0, stops);
        std::string why = right.said;
        if (scene.stops) {
            stops = {right.ids[2]};
            right = run_scene(stage, scene, 0, stops);
        }
        for (uint64_t seed = 1; seed < seeds && why.empty(); seed++) {
            const Outcome again = run_scene(stage, scene, seed, stops);
            why = again.said;
            if (why.empty() && !scene.cancels && !(again == right)) why = "other ids, logits or keys";
            if (!why.empty()) why = "seed " + std::to_string(seed) + ": " + why;
        }
        ok(why.empty(), std::string(scene.name) + ": the same under all orders", why);
        close_stage(stage);
        mgv_model_close(model);
    }
    ok(given_ups > 0, std::to_string(given_ups) + " launches were given up while they were at work");
}

/* 1 to 8 sessions of different lengths in a launch: each as it is among all. */
void test_mixed(const Shape &shape, uint32_t grid) {
    mgv_model *model = open_model(shape);
    const Scene all = {"mixed", shape, {127, 0, 128, 3, 126, 140, 1, 129}, {1, 2, 1, 1, 3, 1, 1, 2}, {2, 2, 1, 4, 3, 3, 1, 2},
                       true, false, false, false, false, grid};
    Stage stage;
    std::string why;
    if (!model || !open_stage(stage, all, model)) return;
    const Outcome eight = run_scene(stage, all, 1, {});
    why = eight.said;
    for (size_t count = 1; count < all.positions.size() && why.empty(); count++) {
        Scene some = all;
        some.positions.resize(count);
        some.given.resize(count);
        some.steps.resize(count);
        const Outcome few = run_scene(stage, some, count + 1, {});
        why = few.said;
        const auto begins = [](const auto &whole, const auto &part) {
            return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
        };
        if (why.empty() && !(begins(eight.steps, few.steps) && begins(eight.ids, few.ids) && begins(eight.logits, few.logits) &&
                             begins(eight.cache, few.cache)))
            why = "other ids, logits or keys than among eight";
        if (!why.empty()) why = std::to_string(count) + " sessions: " + why;
    }
    ok(why.empty(), "1 to 8 sessions of lengths 0 to 140 in a launch, to the last place that one has", why);
    close_stage(stage);
    mgv_model_close(model);
}

/* Ids behind a long cache, up to its last place, in every grid: as the CPU has them, and the same bits. */
void test_long(const char *name, const Shape &shape, uint32_t position, uint32_t steps, const std::vector<uint32_t> &grids) {
    mgv_model *model = open_model(shape);
    mgv_engine_desc desc;
    mgv_engine *cpu = nullptr;
    mgv_error error;
    memset(&desc, 0, sizeof desc);
    desc.backend = MGV_BACKEND_CPU;
    if (!model || mgv_engine_create(&cpu, model, &desc, &error) != MGV_OK) return ok(false, "the CPU's engine", error.message);
    const std::vector<uint32_t> ids = rule_ids(steps, shape.vocabulary, 2);
    const std::vector<float> theirs = cpu_behind(cpu, position, 0, ids);
    std::vector<float> first;
    std::string why;
    double distance = 0;
    for (uint32_t grid : grids) {
        Gpu gpu;
        if (!open_gpu(gpu, model, grid, position + steps)) return;
        fill_cache(gpu.decoder, gpu.state, position, 0);
        machine::Options options = options_of(grid, false);
        options.hardware_sums = false;
        const Run run = launch(gpu, ids, position, steps, options);
        if (why.empty()) why = wrong(run);
        if (first.empty()) first = run.logits;
        if (why.empty() && run.logits != first) why = "other bits than in the first grid";
        distance = fmax(distance, relative_l2(run.logits.data(), theirs.data(), theirs.size()));
        close_gpu(gpu);
    }
    ok(why.empty() && distance < 0.02, std::string(name) + ": relative error " + std::to_string(distance), why);
    mgv_engine_destroy(cpu);
    mgv_model_close(model);
}

/* How it is seen under one seed; empty: it is not. */
std::string how_seen(const Outcome &run, const Outcome &right) {
    if (!run.said.empty()) return run.said[0] == '[' ? run.said.substr(1, run.said.find(']') - 1) : "verdict";
    if (run.steps != right.steps) return "steps";
    if (run.ids != right.ids) return "ids";
    if (run.logits != right.logits) return "logits";
    return run.cache != right.cache ? "cache" : "";
}

/* The kernel without one of its ideas: the same bits, but for keys that are not shared out, whose sums have another order; and it gives up
   as it does with all of them. */
void test_ablations(void) {
    static const char *const names[] = {"as it is", "barriers", "no prefetch", "norms of the first CTA", "keys that are not shared out"};
    for (const Scene &scene : scenes()) {
        if (scene.chance || scene.prompt || scene.cancels) continue;
        mgv_model *model = open_model(scene.shape);
        Stage stage;
        if (!model || !open_stage(stage, scene, model)) continue;
        const Outcome right = run_scene(stage, scene, 1, {});
        for (ablated = 1; ablated < 5; ablated++) {
            std::string why = right.said;
            double error = 0;
            for (uint64_t seed = 2; seed < 8 && why.empty(); seed++) {
                const Outcome run = run_scene(stage, scene, seed, {});
                why = run.said;
                if (!scene.lost) error = relative_l2(run.logits.data(), right.logits.data(), run.logits.size());
                if (why.empty() && (ablated < 4 ? !(run == right) : !(error < 0.01))) why = "other ids, logits or keys";
                if (!why.empty()) why = "seed " + std::to_string(seed) + ": " + why;
            }
            ok(why.empty(), std::string("ablation, ") + names[ablated] + ", " + scene.name + ": relative error " + std::to_string(error),
               why);
        }
        ablated = 0;
        close_stage(stage);
        mgv_model_close(model);
    }
}

/* only: a fault's number, of which all is said; 0: all of them. */
void test_planted(const char *path, int only) {
    enum { SEEDS = 4, TRIES = 12 };
    const std::vector<PlantedFault> faults = planted_table(path);
    unsigned expected = 0;
    for (const PlantedFault &fault : faults) expected += (unsigned)fault.variants;
    for (const Scene &scene : scenes()) {
        mgv_model *model = open_model(scene.shape);
        Stage stage;
        if (!model || !open_stage(stage, scene, model)) continue;
        planted_fault = 0;
        std::vector<uint32_t> stops;
        Outcome right = run_scene(stage, scene, 0, stops);
        std::string why = right.said;
        if (scene.stops) {
            stops = {right.ids[2]};
            right = run_scene(stage, scene, 0, stops);
        }
        for (uint64_t seed = 1; seed < SEEDS && why.empty() && !only; seed++) {
            const Outcome again = run_scene(stage, scene, seed, stops);
            if (!(scene.cancels ? again.said : how_seen(again, right)).empty()) why = "seed " + std::to_string(seed) + ": " + again.said;
        }
        ok(why.empty(), std::string(scene.name) + ": the same without a fault under all seeds", why);
        for (size_t number = 0; number < faults.size(); number++)
            for (int variant = 1; variant <= faults[number].variants; variant++) {
                if (faults[number].scene != scene.name || (only && only != (int)number + 1)) continue;
                std::string how;
                planted_fault = (int)number + 1;
                planted_variant = variant;
                faults_planted++;
                for (uint64_t i = 0; i < TRIES && how.empty(); i++) {
                    const Outcome run = run_scene(stage, scene, i + 6, stops); /* the most delayed order first */
                    how = scene.cancels ? (run.said.empty() ? "" : "verdict") : how_seen(run, right);
                    if (only && !how.empty()) printf("# %s\n", run.said.c_str());
                }
                planted_fault = 0;
                faults_caught += !how.empty();
                const std::string which = faults[number].variants > 1 ? ", " + std::to_string(variant) : "";
                ok(!how.empty(), faults[number].what + which + ": " + how, "it is not seen");
            }
        close_stage(stage);
        mgv_model_close(model);
    }
    if (!only) ok(faults.size() > 50 && faults_planted == expected, "every fault of the table was planted");
}

#endif
