/* The engine's own host code and kernel on the machine model. Speaks TAP; ends with what was run. */
#include <ctype.h>
#include <stdlib.h>
#include <time.h>

#include <algorithm>

#include "encode.h"
#include "record_host.h"
#include "tap.h"

/* ---- the encoder: megavit.h's plan and kernels/megavit.cu ---- */

static const uint32_t NO_POLL_LIMIT = 1u << 30, POLL_LIMIT = 1000, IMPATIENT = 64, THROUGHPUT = 1, LATENCY = 2;

static MicroEncoder *open_encoder(const MicroShape &shape) {
    std::string why;
    MicroEncoder *encoder = micro_open(shape, &why);
    if (!encoder) ok(false, "the encoder opens", why);
    return encoder;
}

static double cpu_seconds(void) {
    timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Fewer seeds than usual: of numbers two at most, shapes with one on their largest grid alone, one arrival in five is
   lost, and half as many launches are ended in motion. */
enum { ALL_SEEDS = 200 };
static bool brief = false;

/* Under every seed and for every number of CTAs, clusters of four in the latency regime: no report, the error of bf16, the same bits. The
   CPU seconds of the last run. */
static double test_encoder_arithmetic(const MicroShape &shape, unsigned all_seeds) {
    const unsigned seeds = brief ? std::min(all_seeds, 2u) : all_seeds;
    std::string why, plan;
    std::vector<float> first;
    double error = 0, seconds = 0, last = 0;
    const uint32_t step = shape.regime == LATENCY ? 2 : 1;
    const bool grids = !brief || seeds > 1;
    for (uint32_t clusters = grids ? step : shape.clusters; clusters <= shape.clusters && why.empty(); clusters += step) {
        MicroShape now = shape;
        now.clusters = clusters;
        MicroEncoder *encoder = open_encoder(now);
        if (!encoder) return 0;
        for (uint64_t seed = 0; seed < (clusters == shape.clusters ? seeds : 1) && why.empty(); seed++) {
            const double start = cpu_seconds();
            machine::Options options = options_of(seed + clusters * 100, false);
            options.hardware_sums = false;
            const MicroRun run = micro_run(encoder, options, 0);
            last = cpu_seconds() - start;
            seconds = std::max(seconds, last);
            arithmetic_runs++;
            if (first.empty()) first = run.outputs;
            error = run.relative_error;
            if (!run.machine.reports.empty() || !run.verdict.empty()) why = run.verdict + "\n" + run.machine.text();
            else if (!(error < (shape.sharpness > 1 ? 0.03 : shape.contrast < 1 ? 0.006 : 0.02))) why = "relative error " + std::to_string(error);
            else if (shape.alike && !run.alike) why = "the same image has other bits elsewhere in the batch";
            else if (memcmp(first.data(), run.outputs.data(), first.size() * sizeof(float))) why = "other bits than under the first seed";
            if (!why.empty()) why = "seed " + std::to_string(seed + clusters * 100) + ", " + std::to_string(2 * clusters) + " CTAs: " + why;
        }
        plan = micro_plan(encoder);
        micro_close(encoder);
    }
    ok(why.empty(),
       "encoder, " + std::to_string(shape.layers) + " layers, " + std::to_string(shape.images) + " images, " + plan +
           (shape.alike ? ", all the same one" : "") + ": no report, the same bits under " + std::to_string(seeds) +
           " arithmetic seeds and " + (grids ? "all grids" : "one grid") + ", relative error " + std::to_string(error) + ", at most " +
           std::to_string(seconds) + " CPU seconds a run",
       why);
    return last;
}

/* A protocol run with all lanes says which ones the others need. */
static machine::Lanes find_lanes(MicroEncoder *encoder, std::string *why) {
    const MicroRun run = micro_run(encoder, options_of(0, true), 0);
    protocol_runs++;
    if (!run.machine.reports.empty() || !run.verdict.empty()) *why = "all lanes: " + run.verdict + "\n" + run.machine.text();
    return run.machine.lanes;
}

static machine::Options protocol_options(uint64_t seed, const machine::Lanes &lanes) {
    machine::Options options = options_of(seed, true);
    options.lanes = &lanes;
    return options;
}

static std::string failure(const MicroRun &run) {
    return run.machine.reports.empty() && run.verdict.empty() ? "" : run.verdict + "\n" + run.machine.text();
}

static std::string encoder_name(const MicroShape &shape, const MicroEncoder *encoder) {
    return "encoder, " + std::to_string(shape.layers) + " layers, " + std::to_string(shape.images) + " images, " + micro_plan(encoder);
}

static void test_encoder_protocol(const MicroShape &shape, unsigned seeds) {
    MicroEncoder *encoder = open_encoder(shape);
    if (!encoder) return;
    std::string why;
    const machine::Lanes lanes = find_lanes(encoder, &why);
    const double start = cpu_seconds();
    for (uint64_t seed = 0; seed < seeds && why.empty(); seed++) {
        why = failure(micro_run(encoder, protocol_options(seed, lanes), 0));
        protocol_runs++;
        if (!why.empty()) why = "seed " + std::to_string(seed) + ": " + why;
    }
    ok(why.empty(),
       encoder_name(shape, encoder) + ": no report under " + std::to_string(seeds) + " protocol seeds, " +
           std::to_string((cpu_seconds() - start) / seeds) + " CPU seconds each",
       why);
    micro_close(encoder);
}

/* Recordings with a few lanes, each done again under its share of the seeds: of the most delayed schedule and of the eager one,
   because how far a loader runs ahead hangs on the order. The first seeds of each come out the same when every access is looked at,
   and so many of ten meet as in a run that has, `known_of_ten`: nearly all, but in the latency regime of towers (four to eight were
   counted); the others are done in full. `arithmetic`: CPU seconds of a run of this shape with numbers, if it is to be compared. */
static void test_encoder_replay(const MicroShape &shape, unsigned seeds, double arithmetic = 0, unsigned known_of_ten = 9) {
    MicroEncoder *encoder = open_encoder(shape);
    if (!encoder) return;
    std::string why;
    const machine::Lanes lanes = find_lanes(encoder, &why);
    static const uint64_t recorded[] = {6, 7, 14, 15};
    unsigned known = 0;
    double seconds = 0;
    for (size_t i = 0; i < 4 && why.empty(); i++) {
        machine::Options options = protocol_options(recorded[i], lanes);
        options.record = true;
        const MicroRun recording = micro_run(encoder, options, 0);
        why = failure(recording);
        if (!recording.machine.trace) why += "no recording";
        for (uint64_t seed = 0; seed < seeds / 4 && why.empty(); seed++) {
            machine::Options again = options_of(seed + 10000 * recorded[i], true);
            again.replay = recording.machine.trace;
            const double start = cpu_seconds();
            const MicroRun run = micro_run(encoder, again, 0);
            seconds += cpu_seconds() - start;
            known += run.machine.known;
            why = failure(run);
            again.thorough = true;
            if (seed < 2 && why.empty()) why = compare_replays(run.machine, micro_run(encoder, again, 0).machine);
            if (!why.empty()) why = "seed " + std::to_string(again.seed) + " of recording " + std::to_string(recorded[i]) + ": " + why;
        }
        protocol_runs += 1 + seeds / 4;
    }
    const unsigned in_one = (unsigned)(arithmetic * seeds / seconds);
    const std::string compared = arithmetic > 0 ? ", " + std::to_string(in_one) + " in the time of one arithmetic run" : "";
    if (why.empty() && known + 4 < seeds / 4 * 4 * known_of_ten / 10)
        why = "only " + std::to_string(known) + " of them are known: order.cc does not take the recordings, or each seed meets otherwise";
    ok(why.empty(),
       encoder_name(shape, encoder) + ": no report when four recordings are done again under " + std::to_string(seeds) +
           " protocol seeds, " + std::to_string(seconds / seeds) + " CPU seconds each" + compared,
       why);
    micro_close(encoder);
}

/* A recording with one step taken out or moved: each seed is reported as it is when every access is looked at. */
static void test_damaged_recordings(const MicroShape &shape, unsigned count) {
    MicroEncoder *encoder = open_encoder(shape);
    if (!encoder) return;
    std::string why;
    const machine::Lanes lanes = find_lanes(encoder, &why);
    machine::Options options = protocol_options(6, lanes);
    options.record = true;
    const MicroRun recording = micro_run(encoder, options, 0);
    why += failure(recording);
    unsigned reported = 0, known = 0;
    for (uint64_t i = 0; i < count && why.empty(); i++) {
        std::string step;
        const std::shared_ptr<const machine::Trace> damaged = machine::damaged_trace(recording.machine.trace, i, &step);
        bool reports = false;
        for (uint64_t seed = 0; seed < 4 && why.empty(); seed++) {
            machine::Options again = options_of(seed, true);
            again.replay = damaged;
            const machine::Result result = micro_run(encoder, again, 0).machine;
            again.thorough = true;
            why = compare_replays(result, micro_run(encoder, again, 0).machine);
            if (!why.empty()) why = step + ", seed " + std::to_string(seed) + ": " + why;
            reports |= !result.reports.empty();
            known += result.known;
            protocol_runs += 2;
        }
        reported += reports;
    }
    if (why.empty() && (reported < count / 4 || known < count / 2)) why = "too few are reported, or known";
    ok(why.empty(),
       "encoder, " + micro_plan(encoder) + ": " + std::to_string(count) + " damaged recordings, " + std::to_string(reported) +
           " of them reported, as they are when every access is looked at",
       why);
    micro_close(encoder);
}

/* Shapes that go the other ways through the kernel: one arithmetic seed, and one protocol seed of every kind of schedule. */
static void test_encoder_ways(void) {
    static const MicroShape shapes[] = {
        {56, 14, 640, 640, 1, 3, 4, 2, 2, 5, NO_POLL_LIMIT, THROUGHPUT}, /* patches of odd sizes, two groups, five clusters: narrow tiles */
        {240, 16, 640, 640, 1, 1, 1, 1, 1, 2, NO_POLL_LIMIT, THROUGHPUT}, /* 225 tokens */
        {240, 16, 640, 640, 1, 1, 1, 1, 1, 1, NO_POLL_LIMIT, THROUGHPUT}, /* the same on one cluster: each math group has a head; ten are not fours */
        {240, 16, 640, 640, 1, 1, 1, 1, 1, 10, NO_POLL_LIMIT,
         THROUGHPUT}, /* so many clusters that a head's queries are shared out, and the columns of the pooling head's sums */
        {64, 16, 192, 72, 1, 3, 3, 3, 1, 3, NO_POLL_LIMIT, THROUGHPUT, false, 64, true, 66}, /* K shared out over the pair */
        {64, 16, 576, 72, 1, 8, 8, 8, 1, 3, NO_POLL_LIMIT, THROUGHPUT, false, 64, true, 4}, /* in tiles of 160 columns */
        {64, 16, 512, 3072, 1, 1, 1, 1, 1, 8, NO_POLL_LIMIT, THROUGHPUT}, /* 16 rows, for QKV in tiles of 128 columns and FC1 of 192 */
        {64, 16, 192, 72, 1, 1, 1, 1, 1, 6, NO_POLL_LIMIT, LATENCY}, /* one tile of an operation a cluster, at most, and more */
        {64, 16, 192, 72, 1, 1, 1, 1, 1, 4, NO_POLL_LIMIT, LATENCY},
        {128, 8, 128, 72, 1, 1, 1, 1, 1, 2, NO_POLL_LIMIT, LATENCY}, /* 256 tokens */
        {64, 16, 576, 576, 1, 3, 3, 3, 1, 6, NO_POLL_LIMIT, THROUGHPUT} /* the kernel for few images */
    };
    static const char *const wanted[] = {
        "patches of 16 tokens",   "product 128 x 64",  "product 128 x 128",       "product 128 x 256",       "product 128 x 192",
        "K shared out over tiles of 128 columns", "K shared out over tiles of 160 columns", "last rows shared by tiles of 128 columns",
        "last rows shared by tiles of 192 columns", "last rows shared by tiles of 256 columns",
        "attention of 64 tokens", "pool of 16 tokens", "attention of 128 tokens", "attention of 256 tokens", "pool of 225 tokens",
        "signals by the math warps", "signals by another warp", "a head a math group",
        "megavit_encode_sm_90a", "megavit_encode_some_sm_90a", "megavit_encode_few_sm_90a", "megavit_encode_latency_104_sm_90a",
        "megavit_encode_latency_128_sm_90a"};
    std::set<std::string> ways;
    std::string why;
    for (const MicroShape &shape : shapes) {
        MicroEncoder *encoder = open_encoder(shape);
        if (!encoder) return;
        machine::Lanes lanes;
        for (const uint64_t seed : {0, 1, 6, 7}) {
            machine::Options options = options_of(seed, seed != 0);
            options.hardware_sums = false;
            options.lanes = &lanes;
            const MicroRun run = micro_run(encoder, options, 0);
            (seed ? protocol_runs : arithmetic_runs)++;
            if (!seed) lanes = run.machine.lanes;
            if (!run.machine.reports.empty() || !run.verdict.empty()) why += run.verdict + "\n" + run.machine.text();
            else if (!seed && !(run.relative_error < 0.02)) why += "relative error " + std::to_string(run.relative_error);
            if (!why.empty()) why = micro_plan(encoder) + ", seed " + std::to_string(seed) + ": " + why;
        }
        micro_ways(encoder, &ways);
        micro_close(encoder);
    }
    for (const char *way : wanted)
        if (!ways.count(way)) why += std::string("no shape has ") + way + "\n";
    std::string all;
    for (const std::string &way : ways) all += (all.empty() ? "" : ", ") + way;
    ok(why.empty(), "encoder, no report from shapes with " + all, why);
}

/* Runs with something lost, or with little patience: the kernel's own watchdog ends it, and nothing comes that hardware answers with a lost
   context or no answer at all. */
struct Losses {
    unsigned runs = 0, verdicts = 0, reports = 0; /* verdicts of the watchdog; runs with a report of the model */
    uint64_t flag_changes = 0;                    /* of the last run */
    unsigned named = 0;                           /* the model's account of the waits at fault has the mbarrier that lost an arrival */
};
static std::string run_with_loss(MicroEncoder *encoder, machine::Options options, uint32_t lost_signal, Losses *losses) {
    options.on_deadlock = machine::OnDeadlock::drain;
    options.maximum_reports = 1000;
    const MicroRun run = micro_run(encoder, options, lost_signal);
    protocol_runs++;
    losses->runs++;
    losses->verdicts += !run.verdict.empty();
    losses->flag_changes = run.machine.flag_changes;
    losses->reports += !run.machine.reports.empty();
    losses->named += !run.machine.lost_at.empty() && run.machine.stuck.find(run.machine.lost_at + ":") != std::string::npos;
    std::string fatal;
    for (const char *kind : {"deadlock", "livelock", "wgmma", "warp", "barrier", "mbarrier", "cluster-exit", "out-of-bounds"})
        for (const machine::Report &r : run.machine.reports)
            if (r.kind == kind) fatal += r.text + "\n";
    return fatal;
}

/* Every lost signal of a counter in global memory. */
static void test_lost_signals(const MicroShape &shape, uint32_t step) {
    MicroEncoder *encoder = open_encoder(shape);
    if (!encoder) return;
    std::string why;
    const machine::Lanes lanes = find_lanes(encoder, &why);
    Losses losses;
    const std::vector<uint32_t> signals = micro_signals(encoder);
    for (size_t i = 0; i < signals.size() && why.empty(); i += step) {
        const std::string fatal = run_with_loss(encoder, protocol_options(i, lanes), signals[i], &losses);
        if (!fatal.empty()) why = "counter " + std::to_string(signals[i] - 1) + ": " + fatal;
    }
    ok(why.empty() && losses.verdicts > 0,
       "encoder: " + std::to_string(losses.runs) + " lost signals, " + std::to_string(losses.verdicts) +
           " of which somebody waited for, all end by themselves",
       why);
    micro_close(encoder);
}

/* One lost arrival at every mbarrier of a CTA, the CTAs of a cluster in turn: every wait inside a cluster gives up. That of the first one
   is always missed. One in the middle may be made good by the next arrival of another CTA, where those of a whole cluster arrive, or nobody
   may come to wait for it: then all is as it should be, and the model has nothing to report. */
static void test_lost_arrivals(const MicroShape &shape) {
    MicroEncoder *encoder = open_encoder(shape);
    if (!encoder) return;
    std::string why;
    const machine::Lanes lanes = find_lanes(encoder, &why);
    const unsigned ctas = shape.regime == LATENCY ? 4 : 2;
    std::vector<std::vector<unsigned>> arrivals; /* of each CTA at each mbarrier, when none is lost */
    for (unsigned cta = 0; cta < ctas; cta++) {
        machine::Options options = protocol_options(0, lanes);
        options.lost.cta = cta;
        arrivals.push_back(micro_run(encoder, options, 0).machine.arrivals);
        protocol_runs++;
    }
    Losses losses;
    for (unsigned i = 0; i < 2 * arrivals[0].size() && why.empty(); i += brief ? 5 : 1) {
        const unsigned mbarrier = i / 2, cta = mbarrier / 2 % ctas;
        if (arrivals[cta][mbarrier] == 0) continue; /* of a kind of tile that this shape has not */
        machine::Options options = protocol_options(i, lanes);
        options.lost = {cta, mbarrier + 1, i % 2 ? arrivals[cta][mbarrier] / 2 : 0};
        const Losses before = losses;
        why = run_with_loss(encoder, options, 0, &losses);
        const bool verdict = losses.verdicts > before.verdicts, reported = losses.reports > before.reports;
        if (why.empty() && !verdict && (i % 2 == 0 || reported)) why = "no verdict";
        if (!why.empty())
            why = "CTA " + std::to_string(cta) + ", mbarrier " + std::to_string(mbarrier) + ", arrival " +
                  std::to_string(options.lost.arrival) + ": " + why;
    }
    ok(why.empty() && losses.named > losses.runs / 4,
       "encoder, " + micro_plan(encoder) + ": " + std::to_string(losses.runs) +
           " lost arrivals, the first one or one in the middle of an mbarrier's, " + std::to_string(losses.verdicts) +
           " end in the watchdog's verdict, the others harm nothing; the model names the mbarrier in " + std::to_string(losses.named),
       why);
    micro_close(encoder);
}

/* Behind a launch of all lanes, with numbers: it counts in what that one has zeroed, as an encoder's launches do, and is right. */
static std::string next_launch(MicroEncoder *encoder) {
    machine::Options options = options_of(0, false);
    options.hardware_sums = false;
    const MicroRun run = micro_run(encoder, options, 0, true);
    arithmetic_runs++;
    std::string why = failure(run);
    if (why.empty() && !(run.relative_error < 0.02)) why = "relative error " + std::to_string(run.relative_error);
    return why.empty() ? "" : "the next launch: " + why;
}

/* Launches that are given up in motion. Where something is lost, all others stand and wait when the watchdog speaks, and hear of it at the
   same tile. Here it loses its patience behind so many signals, from none to nearly all, while they are at work: who meets at a named
   barrier, which nothing lets through, must not hear of it one in front of a tile and the other behind it. */
static void test_given_up_in_motion(const MicroShape &shape, unsigned all_moments) {
    const unsigned moments = brief ? all_moments / 2 : all_moments;
    MicroEncoder *encoder = open_encoder(shape);
    if (!encoder) return;
    const MicroRun whole = micro_run(encoder, options_of(0, true), 0);
    protocol_runs++;
    std::string why = failure(whole);
    if (why.empty()) why = next_launch(encoder);
    Losses losses;
    unsigned followed = 0; /* given up, and there was a next launch */
    for (unsigned moment = 0; moment < moments && why.empty(); moment++) {
        const bool all_lanes = moment % 64 == 0;
        machine::Options options = protocol_options(moment, whole.machine.lanes);
        if (all_lanes) options.lanes = nullptr;
        options.restless = whole.machine.flag_changes * moment / moments;
        const unsigned verdicts = losses.verdicts;
        why = run_with_loss(encoder, options, 0, &losses);
        if (all_lanes && why.empty()) {
            followed += losses.verdicts > verdicts;
            why = next_launch(encoder);
        }
        if (!why.empty()) why = "seed " + std::to_string(moment) + ", behind " + std::to_string(options.restless) + " signals: " + why;
    }
    if (why.empty() && (losses.verdicts < losses.runs / 3 || !followed)) why = "too few are given up";
    ok(why.empty(),
       encoder_name(shape, encoder) + ": " + std::to_string(losses.verdicts) + " of " + std::to_string(losses.runs) +
           " launches are given up in motion, all end by themselves, the next one is right",
       why);
    micro_close(encoder);
}

/* Launches that the host ends by writing into the abort word, before they begin and behind so many signals: nobody's patience is lost. */
static void test_cancelled(const MicroShape &shape, unsigned all_moments) {
    const unsigned moments = brief ? all_moments / 2 : all_moments;
    MicroEncoder *encoder = open_encoder(shape);
    if (!encoder) return;
    const MicroRun whole = micro_run(encoder, options_of(0, true), 0);
    protocol_runs++;
    std::string why = failure(whole);
    if (why.empty()) why = next_launch(encoder);
    Losses losses;
    unsigned shorter = 0;
    for (unsigned moment = 0; moment < moments && why.empty(); moment++) {
        const bool all_lanes = moment % 16 == 0;
        machine::Options options = protocol_options(moment, whole.machine.lanes);
        if (all_lanes) options.lanes = nullptr;
        options.restless = options.host.after = 1 + whole.machine.flag_changes * moment / moments;
        options.host.word = micro_abort_word(encoder);
        why = run_with_loss(encoder, options, 0, &losses);
        shorter += losses.flag_changes < whole.machine.flag_changes;
        if (all_lanes && why.empty()) why = next_launch(encoder);
        if (!why.empty()) why = "seed " + std::to_string(moment) + ", behind " + std::to_string(options.restless) + " signals: " + why;
    }
    if (why.empty() && losses.verdicts) why = "a verdict of a watchdog that nobody tried the patience of";
    if (why.empty() && shorter < losses.runs / 3) why = "too few end early";
    ok(why.empty(), encoder_name(shape, encoder) + ": " + std::to_string(shorter) + " of " + std::to_string(losses.runs) +
           " launches that the host cancels end early, all end by themselves, the next one is right", why);
    micro_close(encoder);
}

extern "C" void record_kernel(RecordArguments arguments);

/* The kinds of matrix products among what is recorded of a GPU, which test_machine compares. */
static std::set<std::string> recorded_products(void) {
    machine::global_reset();
    const auto launch_case = [](const RecordArguments &arguments, uint32_t ctas) {
        machine::Launch launch;
        launch.grid = launch.cluster = ctas;
        launch.dynamic_shared = RECORD_SHARED;
        return (int)!machine::launch(launch, machine::Options(), [&]() { record_kernel(arguments); }).reports.empty();
    };
    record_run(machine::tensor_map_encode, launch_case, [](int, const std::vector<uint8_t> &) {});
    return machine::product_kinds();
}

static void test_products(const std::set<std::string> &recorded) {
    std::string why;
    const std::set<std::string> done = machine::product_kinds();
    for (const std::string &kind : done)
        if (!recorded.count(kind)) why += kind + "\n";
    ok(why.empty() && !recorded.empty(), "encoder: every kind of matrix product that it does is among the recorded ones", why);
}

/* Shapes that are run in more than one way. */
static const MicroShape wide = {64, 16, 640, 640, 2, 8, 8, 4, 1, 2, NO_POLL_LIMIT, THROUGHPUT};
static const MicroShape wide_latency = {64, 16, 640, 640, 1, 3, 3, 2, 1, 4, NO_POLL_LIMIT, LATENCY};
static const MicroShape middle_split = {64, 16, 576, 640, 1, 8, 8, 4, 1, 3, NO_POLL_LIMIT, THROUGHPUT, false, 64, true, 4};
static const MicroShape regrouped = {32, 16, 192, 72, 3, 9, 12, 4, 0, 3, NO_POLL_LIMIT, THROUGHPUT, false, 64, true, 0, 1, false, 1, true};

/* With numbers; and what a recording costs beside that. */
/* The first images of a batch, encoded by themselves as so many are: the same bits, and others as they are encoded by their own number. */
static void test_encoder_alike(const MicroShape &batch, uint32_t few) {
    std::string why;
    std::vector<float> outputs[3];
    std::string plans;
    for (int i = 0; i < 3 && why.empty(); i++) {
        MicroShape shape = batch;
        if (i > 0) shape.images = shape.max_images = few;
        if (i == 1) shape.schedule_images = batch.images;
        MicroEncoder *encoder = open_encoder(shape);
        if (!encoder) return;
        machine::Options options = options_of(i, false);
        options.hardware_sums = false;
        const MicroRun run = micro_run(encoder, options, 0);
        arithmetic_runs++;
        why = failure(run);
        outputs[i] = run.outputs;
        if (i == 1) plans = micro_plan(encoder);
        micro_close(encoder);
    }
    const size_t bytes = outputs[1].size() * sizeof(float);
    if (why.empty() && memcmp(outputs[0].data(), outputs[1].data(), bytes)) why = "other bits than in the whole batch";
    if (why.empty() && !memcmp(outputs[1].data(), outputs[2].data(), bytes)) why = "its own schedule has the same arithmetic: this shows nothing";
    ok(why.empty(), "encoder, " + std::to_string(few) + " images as " + std::to_string(batch.images) + " are encoded, " + plans + ": the same bits", why);
}

static void test_alike(void) {
    /* the head's GEMVs against its GEMMs; K shared out or not, and in tiles of other widths; THIN tiles and DEEP ones */
    test_encoder_alike({32, 16, 192, 72, 1, 66, 66, 66, 1, 3, NO_POLL_LIMIT, THROUGHPUT}, 3);
    test_encoder_alike({64, 8, 512, 512, 1, 8, 8, 8, 1, 3, NO_POLL_LIMIT, THROUGHPUT, false, 64, true, 4}, 1); /* as wide as what is shared out must be */
    test_encoder_alike({64, 8, 768, 520, 1, 24, 24, 24, 1, 8, NO_POLL_LIMIT, THROUGHPUT}, 8);
    test_encoder_alike({112, 8, 512, 264, 1, 2, 2, 2, 1, 6, NO_POLL_LIMIT, LATENCY}, 1);
}

static void test_numbers(unsigned seeds) {
    const double arithmetic = test_encoder_arithmetic(wide, 1);
    /* an odd number of heads, tiles of one to three stages, groups of two, token and layer outputs */
    test_encoder_arithmetic({64, 8, 192, 72, 2, 3, 4, 1, 1, 2, NO_POLL_LIMIT, THROUGHPUT, true}, 5);
    /* K shared out over the pair: one to five blocks a CTA, odd numbers of them */
    test_encoder_arithmetic({64, 8, 192, 72, 2, 3, 4, 1, 1, 2, NO_POLL_LIMIT, THROUGHPUT, false, 64, true, 66}, 2);
    test_encoder_arithmetic({64, 16, 576, 640, 1, 8, 8, 4, 1, 3, NO_POLL_LIMIT, THROUGHPUT, false, 64, true, 66}, 1);
    /* in tiles of 160 columns */
    test_encoder_arithmetic(middle_split, 1);
    test_encoder_arithmetic({64, 8, 192, 72, 2, 3, 4, 1, 1, 2, NO_POLL_LIMIT, THROUGHPUT, false, 64, true, 3}, 1); /* tiles of 192 columns */
    /* 196 tokens: the last block of queries has four; then so many clusters that a head's queries are shared out */
    test_encoder_arithmetic({112, 8, 192, 72, 1, 2, 2, 1, 1, 2, NO_POLL_LIMIT, THROUGHPUT}, 1);
    test_encoder_arithmetic({112, 8, 128, 72, 1, 1, 1, 1, 1, 6, NO_POLL_LIMIT, THROUGHPUT}, 1);
    /* scores of 100 and more, whose exponentials float32 has no room for; bf16's queries and keys are far off then */
    test_encoder_arithmetic({64, 8, 192, 72, 1, 2, 2, 1, 1, 2, NO_POLL_LIMIT, THROUGHPUT, false, 64, true, 0, 40}, 1);
    test_encoder_arithmetic({112, 8, 128, 72, 1, 1, 1, 1, 1, 2, NO_POLL_LIMIT, THROUGHPUT, false, 64, true, 0, 40}, 1);
    test_encoder_arithmetic({112, 8, 192, 72, 1, 2, 2, 2, 1, 2, NO_POLL_LIMIT, THROUGHPUT, false, 64, true, 0, 18}, 1); /* of some blocks only */
    test_encoder_arithmetic({112, 8, 192, 72, 1, 2, 2, 2, 1, 1, NO_POLL_LIMIT, THROUGHPUT, false, 64, true, 0, 40}, 1); /* a head a math group */
    /* heads of 72, 96 and 24 columns; 289 tokens, with an odd number of heads and a last group that is not full */
    test_encoder_arithmetic({40, 8, 576, 200, 1, 2, 2, 2, 1, 2, NO_POLL_LIMIT, THROUGHPUT, false, 72}, 1);
    test_encoder_arithmetic({96, 8, 192, 72, 1, 3, 3, 2, 1, 2, NO_POLL_LIMIT, THROUGHPUT, true, 96}, 1);
    test_encoder_arithmetic({136, 8, 192, 72, 1, 1, 1, 1, 1, 2, NO_POLL_LIMIT, THROUGHPUT, false, 24}, 1);
    test_encoder_arithmetic({136, 8, 192, 72, 1, 3, 4, 2, 1, 2, NO_POLL_LIMIT, THROUGHPUT, true}, 1);
    /* the pooling head's products for two tiles of 16 images, with more columns of A than a warp's registers hold; for more images than
       such products take */
    test_encoder_arithmetic({32, 16, 192, 3208, 1, 20, 20, 20, 1, 3, NO_POLL_LIMIT, THROUGHPUT}, 1);
    test_encoder_arithmetic({32, 16, 192, 72, 1, 66, 66, 66, 1, 3, NO_POLL_LIMIT, THROUGHPUT}, 1);
    /* these in f16 tiles of all widths: of 192 columns, of 256 with a last one of 128; a head's values in 128 */
    test_encoder_arithmetic({32, 16, 192, 640, 1, 50, 50, 50, 1, 1, NO_POLL_LIMIT, THROUGHPUT}, 1);
    test_encoder_arithmetic({16, 8, 192, 72, 1, 50, 50, 50, 1, 2, NO_POLL_LIMIT, THROUGHPUT, false, 96}, 1);
    /* nine images as one group, in an engine for three groups of four: its tensor maps are made anew */
    test_encoder_arithmetic(regrouped, 1);
    /* no pooling head */
    test_encoder_arithmetic({64, 8, 192, 72, 1, 3, 4, 2, 1, 2, NO_POLL_LIMIT, THROUGHPUT, true, 64, false}, 1);
    const double arithmetic_latency = test_encoder_arithmetic(wide_latency, 1);
    test_encoder_arithmetic({64, 8, 192, 72, 2, 3, 3, 3, 1, 4, NO_POLL_LIMIT, LATENCY}, 5);
    /* the pooling head's values: CTAs of the last cluster have columns of no head */
    test_encoder_arithmetic({48, 16, 576, 192, 1, 1, 1, 1, 1, 4, NO_POLL_LIMIT, LATENCY}, 1);
    /* the pooling head's sums with as many tokens, heads and columns as there can be */
    test_encoder_arithmetic({128, 8, 1024, 128, 1, 1, 1, 1, 1, 2, NO_POLL_LIMIT, LATENCY}, 1);
    /* one image: products of twelve and of eight blocks that lie in the rings at once, in tiles of 104 and of 128 rows */
    test_encoder_arithmetic({112, 8, 512, 264, 2, 1, 1, 1, 1, 6, NO_POLL_LIMIT, LATENCY}, 2);
    test_encoder_arithmetic({128, 8, 512, 264, 1, 1, 1, 1, 1, 4, NO_POLL_LIMIT, LATENCY}, 1);
    test_encoder_arithmetic({224, 16, 768, 264, 1, 1, 2, 2, 1, 8, NO_POLL_LIMIT, LATENCY}, 1);
    /* tiles of 104 rows with a last group of four, of 128 rows; 256 keys */
    test_encoder_arithmetic({80, 8, 128, 264, 1, 2, 2, 2, 1, 4, NO_POLL_LIMIT, LATENCY}, 1);
    test_encoder_arithmetic({128, 8, 128, 264, 1, 2, 2, 2, 1, 4, NO_POLL_LIMIT, LATENCY}, 1);
    /* the same image again and again: where it lies in the batch, in which row tile, CTA and register, makes no difference */
    for (uint32_t regime : {THROUGHPUT, LATENCY}) {
        MicroShape repeated = {56, 8, 192, 200, 1, 4, 4, 4, 1, 4, NO_POLL_LIMIT, regime};
        repeated.alike = true;
        test_encoder_arithmetic(repeated, 1);
    }
    /* grey pictures: K of the patch embedding is shared out and its parts' sums are rounded: around zero 0.0054 off, of plain bytes 0.0067 */
    MicroShape grey = {64, 16, 192, 72, 1, 2, 2, 2, 1, 4, NO_POLL_LIMIT, LATENCY};
    grey.contrast = 0.08f;
    test_encoder_arithmetic(grey, 1);
    /* 196 tokens: two row tiles, halves of 98 keys, the last block of queries has four */
    test_encoder_arithmetic({112, 8, 192, 72, 1, 2, 2, 1, 1, 4, NO_POLL_LIMIT, LATENCY}, 1);
    /* exponentials that float32 has no room for, as above: of all blocks, of some, in tiles of 104 and of 128 rows */
    test_encoder_arithmetic({64, 8, 192, 72, 1, 2, 2, 2, 1, 4, NO_POLL_LIMIT, LATENCY, false, 64, true, 0, 40}, 1);
    test_encoder_arithmetic({112, 8, 192, 72, 1, 2, 2, 2, 1, 4, NO_POLL_LIMIT, LATENCY, false, 64, true, 0, 18}, 1);
    test_encoder_arithmetic({128, 8, 128, 264, 1, 2, 2, 2, 1, 4, NO_POLL_LIMIT, LATENCY, false, 64, true, 0, 40}, 1);
    test_encoder_replay(wide, 5 * seeds, arithmetic);
    test_encoder_replay(wide_latency, 5 * seeds, arithmetic_latency);
}

/* Class tokens, a norm of the stream itself, other activations; registers, positions sampled from more of them. */
static void test_families(void) {
    MicroShape clip = {64, 16, 192, 200, 2, 3, 4, 2, 1, 2, NO_POLL_LIMIT, THROUGHPUT, true};
    clip.family = "clip";
    test_encoder_arithmetic(clip, 2);
    MicroShape split_clip = {64, 8, 192, 72, 1, 3, 4, 1, 1, 2, NO_POLL_LIMIT, THROUGHPUT, false, 64, true, 3};
    split_clip.family = "clip"; /* whose norm leaves statistics of other parts than the product before it */
    test_encoder_arithmetic(split_clip, 1);
    MicroShape dino = {56, 14, 192, 768, 2, 3, 4, 2, 1, 2, NO_POLL_LIMIT, THROUGHPUT, true};
    dino.family = "dinov2";
    dino.table_side = 7;
    test_encoder_arithmetic(dino, 2);
    dino.registers = 4;
    dino.image_size = 224; /* 261 tokens: attention with online softmax */
    test_encoder_arithmetic(dino, 1);
}

/* Qwen's towers over pictures of several sizes and clips: heads of 64, 72, 80 and 96 columns. */
static void test_qwen_heads(unsigned seeds) {
    MicroShape shape = {0, 8, 192, 200, 2, 3, 200, 0, 1, 2, NO_POLL_LIMIT, THROUGHPUT, true};
    shape.family = "qwen3";
    shape.head = false;
    shape.sizes = "4x6 2x2*3 10x8";
    shape.table_side = 5;
    shape.merged = 104;
    shape.deepstack = 2;
    test_encoder_arithmetic(shape, 2);
    test_encoder_protocol(shape, seeds / 10);
    shape.head_dim = 72;
    shape.hidden = 144;
    shape.layers = 1;
    shape.deepstack = 0;
    test_encoder_arithmetic(shape, 1);
    shape.family = "qwen2.5";
    shape.head_dim = 80;
    shape.hidden = 160;
    shape.intermediate = 172;
    shape.layers = 2;
    test_encoder_arithmetic(shape, 2);
    test_encoder_protocol(shape, seeds / 10);
    shape.family = "qwen2";
    shape.head_dim = 96;
    shape.hidden = 192;
    shape.intermediate = 384;
    shape.layers = 1;
    test_encoder_arithmetic(shape, 1);
}

/* Rotary positions with heads of 64, 72, 80, 96 and 24 columns, a third head whose columns are two tiles', rows of two groups; gated MLPs
   with SiLU and GELUs, in tiles of 256 and 128 columns of sums, of a number of columns that is no multiple of eight. */
static void test_towers(unsigned seeds) {
    MicroShape rotary = {64, 16, 192, 200, 2, 3, 4, 2, 1, 2, NO_POLL_LIMIT, THROUGHPUT, true};
    rotary.family = "dinov3";
    test_encoder_arithmetic(rotary, 2);
    rotary.registers = 4;
    rotary.activation = "silu";
    test_encoder_arithmetic(rotary, 1);
    MicroShape gated = rotary;
    gated.gated = true;
    test_encoder_arithmetic(gated, 2);
    test_encoder_protocol(gated, seeds / 10);
    for (const uint32_t head_dim : {72u, 80u, 96u, 24u}) {
        gated.head_dim = head_dim;
        gated.hidden = head_dim == 72 ? 576 : 4 * head_dim;
        gated.intermediate = 2 * head_dim + 4;
        gated.activation = head_dim == 72 ? "gelu" : head_dim == 80 ? "quick_gelu" : head_dim == 96 ? "gelu_pytorch_tanh" : "silu";
        gated.layers = 1;
        test_encoder_arithmetic(gated, 1);
    }
}

/* Rows that end within 64 columns, one to three heads' worth of them; MLPs of a multiple of four; K shared out in tiles of 160 columns that no
   row fills; for few images the pooling head's tiles are those of many; more tokens than are held at once; a norm of the stream itself. */
static void test_widths(void) {
    MicroShape narrow = {64, 16, 48, 100, 2, 3, 4, 2, 1, 2, NO_POLL_LIMIT, THROUGHPUT, true, 24};
    test_encoder_arithmetic(narrow, 2);
    test_encoder_protocol(narrow, 20);
    test_encoder_arithmetic({56, 14, 80, 44, 1, 50, 50, 50, 1, 3, NO_POLL_LIMIT, THROUGHPUT, false, 40}, 1);
    test_encoder_arithmetic({64, 8, 240, 132, 1, 3, 4, 1, 1, 2, NO_POLL_LIMIT, THROUGHPUT, false, 80}, 1);
    test_encoder_arithmetic({64, 16, 560, 644, 1, 8, 8, 4, 1, 3, NO_POLL_LIMIT, THROUGHPUT, false, 56, true, 4}, 1);
    test_encoder_arithmetic({136, 8, 144, 76, 1, 3, 4, 2, 1, 2, NO_POLL_LIMIT, THROUGHPUT, true, 72}, 1);
    test_encoder_arithmetic({32, 16, 1232, 1236, 1, 2, 2, 2, 1, 3, NO_POLL_LIMIT, THROUGHPUT, true, 88}, 1);
    MicroShape clip = {64, 16, 112, 200, 2, 3, 4, 2, 1, 2, NO_POLL_LIMIT, THROUGHPUT, true, 56};
    clip.family = "clip";
    test_encoder_arithmetic(clip, 1);
}

/* A tower for pictures of any size: one behind the other in one launch, and each by itself. */
static MicroShape sizes_shape(const char *sizes, uint32_t tokens, uint32_t seed = 0) {
    MicroShape shape = {0, 8, 192, 200, 2, 1, 1, 0, 1, 2, NO_POLL_LIMIT, THROUGHPUT, true, 64, false};
    shape.family = "naflex";
    shape.table_side = 5;
    shape.sizes = sizes;
    shape.max_images = tokens;
    shape.images = (uint32_t)std::count(sizes, sizes + strlen(sizes), ' ') + 1;
    shape.seed = seed;
    return shape;
}
/* Rows of `columns` columns: each picture of `together` has the same bits in an encode of its own. */
static void test_sizes_alone(const MicroShape &together, const std::vector<std::string> &sizes, const std::vector<uint32_t> &tokens) {
    std::string why;
    std::vector<float> all;
    uint32_t sum = 0;
    for (const uint32_t t : tokens) sum += t;
    for (size_t i = 0, first = 0; i <= sizes.size() && why.empty(); i++) {
        MicroShape shape = together;
        if (i > 0) {
            shape.sizes = sizes[i - 1].c_str();
            shape.seed = together.seed + (uint32_t)i - 1;
            shape.images = 1;
        }
        MicroEncoder *encoder = open_encoder(shape);
        if (!encoder) return;
        machine::Options options = options_of(i, false);
        options.hardware_sums = false;
        const MicroRun run = micro_run(encoder, options, 0);
        arithmetic_runs++;
        why = failure(run);
        if (i == 0) {
            all = run.outputs;
        } else if (why.empty()) {
            const size_t pooled = shape.head ? shape.hidden : 0, before = pooled * sizes.size(); /* pooled rows come first */
            const size_t count = (all.size() - before) / sum / shape.hidden, each = (size_t)tokens[i - 1] * shape.hidden; /* outputs */
            if (run.outputs.size() != pooled + count * each) why = "as many outputs as together";
            if (why.empty() && pooled && memcmp(run.outputs.data(), &all[(i - 1) * pooled], pooled * sizeof(float)))
                why = "other bits of the pooled row";
            for (size_t k = 0; k < count && why.empty(); k++)
                if (memcmp(&run.outputs[pooled + k * each], &all[before + k * sum * shape.hidden + first * shape.hidden], each * sizeof(float)))
                    why = "other bits of output " + std::to_string(k);
            first += tokens[i - 1];
        }
        if (!why.empty()) why = (i ? "picture " + std::to_string(i - 1) : "together") + ": " + why;
        micro_close(encoder);
    }
    ok(why.empty(), "encoder, pictures of " + std::string(together.sizes) + " patches: the same bits together and alone", why);
}
/* By the public API: the same bits as the kernel gave before, in the regime that is chosen. */
static void test_sizes_engine(MicroShape shape) {
    shape.regime = 0;
    MicroEncoder *encoder = open_encoder(shape);
    if (!encoder) return;
    machine::Options options = options_of(0, false);
    options.hardware_sums = false;
    const MicroRun run = micro_run(encoder, options, 0), engine = micro_engine(encoder, options);
    arithmetic_runs += 2;
    std::string why = failure(run) + failure(engine);
    if (why.empty() && (run.outputs.size() != engine.outputs.size() ||
                        memcmp(run.outputs.data(), engine.outputs.data(), run.outputs.size() * sizeof(float))))
        why = "other bits, relative error " + std::to_string(engine.relative_error);
    ok(why.empty(), "encoder, an engine for pictures of " + std::string(shape.sizes) + " patches", why);
    micro_close(encoder);
}
/* Operation by operation: all is within tolerance, and what is wrong of one token is found where it is used and nowhere else. */
static void test_validation(const MicroShape &shape, uint32_t token, const std::vector<std::pair<MicroFault, std::string>> &faults) {
    MicroEncoder *encoder = open_encoder(shape);
    if (!encoder) return;
    machine::Options options = options_of(0, false);
    options.hardware_sums = false;
    std::string why;
    uint32_t compared = 0;
    for (const auto &fault : faults) {
        const MicroValidation v = micro_validate(encoder, options, fault.first, token);
        arithmetic_runs++;
        std::string wrong;
        for (const std::string &label : v.wrong)
            if (label != "whole encode") wrong += (wrong.empty() ? "" : ", ") + label;
        if (fault.first == MicroFault::none) compared = v.compared;
        if (!v.error.empty()) why = v.error;
        else if (wrong != fault.second || (wrong.empty() && !v.wrong.empty())) why = "wrong are: " + wrong + "; not: " + fault.second;
        else if (v.compared < compared || compared < 5) why = "only " + std::to_string(v.compared) + " operations are compared";
        if (!why.empty()) { why = "fault " + std::to_string((int)fault.first) + ": " + why; break; }
    }
    ok(why.empty(), "validation of " + std::string(shape.family) + ", pictures of " + shape.sizes + " patches: " + std::to_string(compared) +
                        " operations compared, and " + std::to_string(faults.size() - 1) + " planted faults found where they are", why);
    micro_close(encoder);
}

/* Qwen-VL's towers: two frames a patch, merged rows, in the order of windows or not. */
static MicroShape qwen_shape(const char *family, const char *sizes, uint32_t tokens) {
    MicroShape shape = sizes_shape(sizes, tokens);
    shape.family = family;
    shape.merged = 72;
    if (family == std::string("qwen3")) shape.deepstack = 1;
    return shape;
}
/* Rows as the CPU has them in bf16 are nearer than those in float32, by a factor of three at least: of one layer, before roundings that the
   order of sums turns the other way add up. */
static void test_qwen_twins(void) {
    for (const char *family : {"qwen3", "qwen2.5"}) {
        double error[2] = {1, 0};
        std::string why;
        for (const uint32_t twin : {(uint32_t)PRECISION_BF16, 0u}) {
            MicroShape shape = qwen_shape(family, "8x6", 48);
            shape.layers = 1;
            shape.twin = twin;
            MicroEncoder *encoder = open_encoder(shape);
            if (!encoder) return;
            machine::Options options = options_of(7, false);
            options.hardware_sums = false;
            const MicroRun run = micro_run(encoder, options, 0);
            arithmetic_runs++;
            if (why.empty()) why = failure(run);
            error[!twin] = run.relative_error;
            micro_close(encoder);
        }
        if (why.empty() && !(error[0] < error[1] / 3))
            why = "relative error " + std::to_string(error[0]) + ", and in float32 " + std::to_string(error[1]);
        ok(why.empty(), std::string("encoder, ") + family + ", beside the CPU in bf16: relative error " + std::to_string(error[0]), why);
    }
}
static void test_qwen(unsigned seeds) {
    test_qwen_twins();
    for (const char *family : {"qwen3", "qwen2.5"}) {
        test_encoder_arithmetic(qwen_shape(family, "8x6", 48), 2);
        test_encoder_arithmetic(qwen_shape(family, "4x2 10x14*5 16x16*2 2x6 8x8", 1000), 1); /* clips, the last frame of one is shown twice */
        MicroShape shape = qwen_shape(family, "10x14 6x6", 200);
        shape.head_dim = 80;
        shape.hidden = 160;
        test_encoder_arithmetic(shape, 1);
        test_sizes_engine(qwen_shape(family, "4x2 6x10*3 8x8", 300));
        test_encoder_protocol(qwen_shape(family, "4x2 6x10*3 8x8", 300), seeds / 8);
    }
}
/* By the public API: the rows of the CPU, as far as bf16 goes. */
static void test_engine(const MicroShape &shape, const std::string &what) {
    MicroEncoder *encoder = open_encoder(shape);
    if (!encoder) return;
    machine::Options options = options_of(0, false);
    options.hardware_sums = false;
    const MicroRun run = micro_engine(encoder, options);
    arithmetic_runs++;
    std::string why = failure(run);
    if (why.empty() && !(run.relative_error < 0.02)) why = "relative error " + std::to_string(run.relative_error);
    ok(why.empty(), "encoder, an engine for " + what + ": relative error " + std::to_string(run.relative_error), why);
    micro_close(encoder);
}
/* DINOv3's own processor resizes in floats: rows of patches come from the host. */
static void test_floats(void) {
    MicroShape shape = {64, 16, 192, 200, 1, 3, 4, 2, 1, 2, NO_POLL_LIMIT, THROUGHPUT, true};
    shape.family = "dinov3";
    shape.registers = 4;
    for (const uint32_t side : {64u, 91u}) {
        shape.picture_side = side;
        test_engine(shape, "pictures of " + std::to_string(side) + " pixels that become floats");
    }
    test_validation(shape, 0, {{MicroFault::none, ""}});
}
/* CLIP's embeds: of images in several row tiles and groups, of columns that no tile fills. */
static void test_projection(unsigned seeds) {
    MicroShape clip = {64, 16, 192, 200, 2, 11, 12, 8, 1, 2, NO_POLL_LIMIT, THROUGHPUT, true};
    clip.family = "clip";
    clip.projection = 148;
    test_encoder_arithmetic(clip, 2);
    test_encoder_protocol(clip, seeds / 10);
    clip.rows = false;
    test_engine(clip, "projected rows");
    test_validation(clip, 0, {{MicroFault::none, ""}});
    clip.projection = 7;
    clip.hidden = 112;
    clip.head_dim = 56;
    test_encoder_arithmetic(clip, 1);
    clip.images = clip.max_images = clip.group_images = 1;
    clip.poll_limit = POLL_LIMIT;
    test_lost_signals(clip, 1);
}
static void test_validations(void) {
    MicroShape naflex = sizes_shape("3x5 1x1 9x7", 100), plain = qwen_shape("qwen2", "2x2 4x4", 20);
    naflex.layers = plain.layers = 1;
    naflex.head = true;
    plain.intermediate = 192;
    test_floats();
    test_validation(naflex, 18, {{MicroFault::none, ""}, {MicroFault::pixels, "patch embed, patches"}, {MicroFault::sample, "patch embed"},
                    {MicroFault::range, "attention"}});
    test_validation(qwen_shape("qwen3", "4x2 4x6*3", 56), 12, {{MicroFault::none, ""}, {MicroFault::place, "qkv"}});
    test_validation(qwen_shape("qwen2.5", "4x2 6x10*3", 128), 30, {{MicroFault::none, ""}, {MicroFault::pixels, "patch embed, patches"},
                    {MicroFault::range, "attention"}});
    test_validation(plain, 0, {{MicroFault::none, ""}});
    MicroShape shared = sizes_shape("3x5 9x7", 78); /* K shared out over clusters */
    shared.hidden = 128;
    shared.intermediate = 2048;
    shared.layers = 1;
    test_validation(shared, 18, {{MicroFault::none, ""}, {MicroFault::range, "attention"}});
}
/* Signals and arrivals lost at every wait of such towers, launches given up and cancelled at work: pictures that share row tiles, windows and
   frames, mergers, DeepStack. And K shared out over pairs of CTAs beside mergers, in a tower as wide as that asks for. */
static void test_sizes_watchdog(void) {
    for (const char *family : {"qwen3", "qwen2.5"}) {
        MicroShape shape = qwen_shape(family, "4x2 6x10*3 8x8", 300);
        shape.layers = 1;
        shape.deepstack = family == std::string("qwen3");
        shape.poll_limit = POLL_LIMIT;
        test_lost_signals(shape, 1);
        shape.layers = 2;
        test_lost_arrivals(shape);
        shape.layers = 1;
        shape.poll_limit = IMPATIENT;
        test_given_up_in_motion(shape, 64);
        shape.poll_limit = NO_POLL_LIMIT;
        test_cancelled(shape, 24);
    }
    MicroShape gated = qwen_shape("qwen2.5", "16x16 10x14", 400); /* in tiles of 256 columns, which lend stages and hand a buffer to and fro */
    gated.hidden = 320;
    gated.head_dim = 80;
    gated.intermediate = 300;
    gated.layers = gated.clusters = 1;
    gated.poll_limit = POLL_LIMIT;
    test_lost_arrivals(gated);
    MicroShape shared = qwen_shape("qwen3", "8x8 4x6 10x12", 300);
    shared.hidden = shared.intermediate = 512;
    shared.split = 66;
    test_encoder_arithmetic(shared, 1);
    test_encoder_protocol(shared, 8);
    shared.layers = 1;
    shared.poll_limit = POLL_LIMIT;
    test_lost_arrivals(shared);
    std::set<std::string> ways;
    for (const MicroShape &shape : {gated, shared}) {
        MicroEncoder *encoder = open_encoder(shape);
        if (!encoder) return;
        micro_run(encoder, options_of(0, true), 0);
        protocol_runs++;
        micro_ways(encoder, &ways);
        micro_close(encoder);
    }
    std::string why;
    for (const char *way : {"product 128 x 256", "K shared out over tiles of 128 columns"})
        if (!ways.count(way)) why += std::string("no shape has ") + way + "\n";
    for (const std::string &way : ways) why += why.empty() ? "" : way + "\n";
    ok(why.empty(), "encoder, towers with tiles of 256 columns and with K shared out", why);
}
/* K shared out over clusters, and sums of the shares: row tiles with a neighbour and without one, a last share with less of K than the
   others, LayerNorm and RMSNorm behind it, DeepStack and layer outputs beside it, alone and in a mix; signals and
   arrivals lost, launches given up. By the plan's own choice for few tokens, and not for as many as do without. */
static void test_shares(unsigned seeds) {
    MicroShape shape = qwen_shape("qwen3", "10x12 4x6 8x16", 300);
    shape.hidden = 256;
    shape.intermediate = 320;
    shape.shares = 3;
    shape.clusters = 3;
    test_encoder_arithmetic(shape, 2);
    test_encoder_protocol(shape, seeds / 8);
    MicroShape alone = sizes_shape("3x5 9x7", 100); /* one row tile, which a pair shares */
    alone.hidden = 128;
    alone.intermediate = 264;
    alone.shares = 5;
    test_encoder_arithmetic(alone, 2);
    test_sizes_alone(alone, {"3x5", "9x7"}, {15, 63});
    MicroShape gated = qwen_shape("qwen2.5", "16x16 10x14", 400);
    gated.hidden = 640;
    gated.head_dim = 80;
    gated.intermediate = 140;
    gated.layers = 1;
    gated.shares = 2;
    test_encoder_arithmetic(gated, 1);
    MicroShape lost = qwen_shape("qwen3", "10x12 2x6", 200);
    lost.hidden = 128;
    lost.layers = lost.deepstack = 1;
    lost.shares = 2;
    lost.poll_limit = POLL_LIMIT;
    test_lost_signals(lost, 1);
    lost.layers = 2;
    test_lost_arrivals(lost);
    lost.layers = 1;
    lost.poll_limit = IMPATIENT;
    test_given_up_in_motion(lost, 32);
    MicroShape chosen = sizes_shape("3x5", 600);
    chosen.hidden = 128;
    chosen.intermediate = 2048;
    chosen.layers = 1;
    std::set<std::string> ways[2];
    std::vector<float> outputs[2];
    std::string why;
    for (int i = 0; i < 2 && why.empty(); i++) {
        chosen.schedule_images = i ? 600 : 0;
        MicroEncoder *encoder = open_encoder(chosen);
        if (!encoder) return;
        machine::Options options = options_of(i, false);
        options.hardware_sums = false;
        const MicroRun run = micro_run(encoder, options, 0);
        arithmetic_runs++;
        why = failure(run);
        outputs[i] = run.outputs;
        micro_ways(encoder, &ways[i]);
        micro_close(encoder);
    }
    const std::string way = "K shared out over 8 clusters";
    if (why.empty() && !(ways[0].count(way) && !ways[1].count(way))) why = "the other way is chosen";
    if (why.empty() && !memcmp(outputs[0].data(), outputs[1].data(), outputs[0].size() * sizeof(float)))
        why = "the same bits: this shows nothing";
    ok(why.empty(), "encoder, 15 tokens by themselves and as 600 are encoded: K is shared out over clusters, and is not", why);
}
static void test_sizes(unsigned seeds) {
    test_sizes_engine(sizes_shape("3x5 1x1 9x7", 100));
    test_encoder_arithmetic(sizes_shape("7x9", 64), 2); /* one row tile, which is not full */
    test_encoder_arithmetic(sizes_shape("1x1", 4), 1);
    test_encoder_arithmetic(sizes_shape("16x17", 300), 1); /* three blocks of keys, row tiles without a neighbour */
    const char *const mixed = "3x5 1x1 9x15 16x16 2x3 7x7"; /* tiles of queries over four pictures */
    test_encoder_arithmetic(sizes_shape(mixed, 600), 2);
    test_sizes_alone(sizes_shape(mixed, 600), {"3x5", "1x1", "9x15", "16x16", "2x3", "7x7"}, {15, 1, 135, 256, 6, 49});
    for (const uint32_t head_dim : {24u, 72u, 80u, 96u}) { /* boxes behind the first 64 columns */
        MicroShape shape = sizes_shape("9x15 5x5", 200);
        shape.head_dim = head_dim;
        shape.hidden = head_dim == 80 ? 240 : head_dim == 96 ? 192 : head_dim == 24 ? 48 : 144;
        test_encoder_arithmetic(shape, 1);
    }
    MicroShape sharp = sizes_shape(mixed, 600); /* exponentials that float32 has no room for */
    sharp.sharpness = 40;
    sharp.layers = 1;
    test_encoder_arithmetic(sharp, 1);
    for (const char *sizes : {mixed, "1x1", "16x17", "2x2 1x3 9x15 1x1 5x5"}) { /* with a pooling head: up to three blocks of tokens, odd */
        MicroShape head = sizes_shape(sizes, 600);
        head.head = true;
        test_encoder_arithmetic(head, sizes == mixed ? 2 : 1);
        if (sizes != mixed) continue;
        test_sizes_alone(head, {"3x5", "1x1", "9x15", "16x16", "2x3", "7x7"}, {15, 1, 135, 256, 6, 49});
        test_sizes_engine(head);
        test_encoder_protocol(head, seeds / 8);
    }
    MicroShape shared = sizes_shape("9x7 11x8", 151); /* behind tiles that share out K, whose statistics are of 96 columns each */
    shared.head = true;
    shared.hidden = shared.intermediate = 512;
    shared.split = 6;
    test_encoder_arithmetic(shared, 1);
    MicroShape behind = sizes_shape("9x7 11x8", 151); /* K shared out in fewer stages than the ring has, behind tiles that lend some */
    behind.head = true;
    behind.split = 2;
    test_encoder_arithmetic(behind, 2);
    test_encoder_protocol(behind, 8);
    std::string fifty; /* more pictures than the head has rows of GEMVs for */
    for (int i = 0; i < 50; i++) fifty += i ? " 1x2" : "1x2";
    MicroShape many = sizes_shape(fifty.c_str(), 100);
    many.head = true;
    many.layers = 1;
    test_encoder_arithmetic(many, 1);
    test_encoder_protocol(sizes_shape(mixed, 600), seeds / 4);
    test_encoder_replay(sizes_shape(mixed, 600), seeds);
}

/* Heads of more than 96 columns, whose keys come in blocks of 64, in the kernel that has only those: heads that end within their second
   box, an odd number of them; pictures of one block, of whole ones, of one key more; of one size and of any, with rotary positions and
   without, in windows, under a pooling head. */
static MicroShape wide_shape(MicroShape shape, uint32_t heads = 2, uint32_t head_dim = 128) {
    shape.head_dim = head_dim;
    shape.hidden = heads * head_dim;
    return shape;
}
static void test_wide_numbers(void) {
    test_encoder_arithmetic(wide_shape(sizes_shape("9x15 8x8 1x1 1x65", 400), 3), 2);
    MicroShape online = wide_shape({136, 8, 0, 72, 1, 3, 4, 2, 1, 2, NO_POLL_LIMIT, THROUGHPUT, true}); /* 289 tokens */
    test_encoder_arithmetic(online, 1);
    MicroShape windows = wide_shape(qwen_shape("qwen2.5", "10x14 6x6", 200));
    test_encoder_arithmetic(windows, 1);
}
static void test_wide_heads(unsigned seeds) {
    test_wide_numbers();
    for (const uint32_t head_dim : {104u, 112u, 120u}) test_encoder_arithmetic(wide_shape(sizes_shape("9x15 5x5", 200), 2, head_dim), 1);
    const char *const mixed = "3x5 1x1 9x15 12x16 2x3 8x8"; /* tiles of queries over four pictures; three whole blocks, one */
    test_sizes_alone(wide_shape(sizes_shape(mixed, 600)), {"3x5", "1x1", "9x15", "12x16", "2x3", "8x8"}, {15, 1, 135, 192, 6, 64});
    MicroShape head = wide_shape(sizes_shape(mixed, 600));
    head.head = true;
    head.layers = 1;
    test_encoder_arithmetic(head, 1);
    test_sizes_engine(head);
    MicroShape sharp = wide_shape(sizes_shape(mixed, 600)); /* exponentials that float32 has no room for */
    sharp.sharpness = 40;
    sharp.layers = 1;
    test_encoder_arithmetic(sharp, 1);
    test_encoder_arithmetic(wide_shape(qwen_shape("qwen3", "4x2 10x14*5 16x16*2 2x6 8x8", 1000)), 1);
    /* 16 tokens and the pooling head's tiles for them */
    MicroShape few = wide_shape({64, 16, 0, 200, 1, 3, 4, 2, 1, 2, NO_POLL_LIMIT, THROUGHPUT, true});
    test_encoder_arithmetic(few, 1);
    few.image_size = 112; /* 49: one math group has nothing to do */
    few.family = "dinov3";
    few.gated = true;
    few.intermediate = 260;
    test_encoder_arithmetic(few, 1);
    test_encoder_protocol(wide_shape(sizes_shape(mixed, 600)), seeds / 8);
    test_encoder_replay(wide_shape(sizes_shape(mixed, 600)), seeds);
    MicroShape online = wide_shape({136, 8, 0, 72, 1, 1, 2, 2, 1, 2, NO_POLL_LIMIT, THROUGHPUT});
    test_encoder_protocol(online, seeds / 8);
    test_validation(wide_shape(qwen_shape("qwen2.5", "4x2 6x10*3", 128)), 30,
                    {{MicroFault::none, ""}, {MicroFault::place, "qkv"}, {MicroFault::range, "attention"}});
    online.poll_limit = POLL_LIMIT;
    test_lost_signals(online, 7);
    test_lost_arrivals(online);
    MicroShape windows = wide_shape(qwen_shape("qwen2.5", "4x2 6x10*3 8x8", 300));
    windows.layers = 1;
    windows.poll_limit = POLL_LIMIT;
    test_lost_signals(windows, 1);
    test_lost_arrivals(windows);
    windows.poll_limit = IMPATIENT;
    test_given_up_in_motion(windows, 32);
    windows.poll_limit = NO_POLL_LIMIT;
    test_cancelled(windows, 16);
    std::set<std::string> ways;
    MicroEncoder *encoder = open_encoder(windows);
    if (!encoder) return;
    micro_run(encoder, options_of(0, true), 0);
    protocol_runs++;
    micro_ways(encoder, &ways);
    micro_close(encoder);
    ok(ways.count("megavit_encode_wide_sm_90a"), "encoder, wide heads have their kernel", "another one");
}

/* The family that only tests know, in the program that has it (tests/toy): norms behind the residual are tiles of their own, in the
   kernel of all kinds; behind tiles that share out K, too. */
static void test_toy(void) {
    MicroShape toy = {64, 16, 192, 200, 2, 3, 4, 2, 1, 2, NO_POLL_LIMIT, THROUGHPUT, true};
    toy.family = "toy";
    test_encoder_arithmetic(toy, 2);
    test_encoder_protocol(toy, 20);
    toy.rows = false;
    toy.split = 66;
    test_encoder_arithmetic(toy, 1);
}

/* Mergers of tokens, in the program that has the family for them (tests/toy): their norms over a token's columns and over merged rows',
   several row tiles and groups, rows and widths that end within blocks of 64, outputs of which some are not asked for. */
static void test_mergers(void) {
    MicroShape merged = {32, 16, 192, 200, 3, 3, 4, 2, 1, 2, NO_POLL_LIMIT, THROUGHPUT, true};
    merged.family = "toy_merged";
    merged.head = false;
    merged.merged = 104;
    merged.deepstack = 2;
    test_encoder_arithmetic(merged, 2);
    test_encoder_protocol(merged, 20);
    merged.images = merged.max_images = 150; /* two row tiles of merged rows */
    merged.group_images = 140;
    test_encoder_arithmetic(merged, 1);
    merged.rows = false; /* no DeepStack */
    merged.images = merged.max_images = merged.group_images = 40;
    merged.hidden = 112;
    merged.head_dim = 56;
    test_encoder_arithmetic(merged, 1);
    merged.rows = true;
    merged.poll_limit = POLL_LIMIT;
    merged.images = merged.max_images = merged.group_images = 3;
    test_lost_signals(merged, 1);
    test_lost_arrivals(merged);
}

/* Few pictures of shapes that are not SigLIP2-base's: heads of other widths, pooling heads in tiles of few rows. */
static void test_few(unsigned seeds) {
    const MicroShape wide_heads = {40, 8, 576, 200, 2, 2, 2, 2, 1, 4, NO_POLL_LIMIT, LATENCY, false, 72},
                     widest = {96, 8, 192, 72, 1, 1, 1, 1, 1, 4, NO_POLL_LIMIT, LATENCY, false, 96};
    test_encoder_arithmetic(wide_heads, 2);
    test_encoder_arithmetic(widest, 1);
    test_encoder_arithmetic({128, 8, 576, 200, 1, 1, 1, 1, 1, 4, NO_POLL_LIMIT, LATENCY, false, 72}, 1); /* 256 tokens */
    test_encoder_arithmetic({112, 8, 192, 72, 1, 3, 4, 2, 1, 6, NO_POLL_LIMIT, LATENCY, false, 24}, 1);
    test_encoder_protocol(wide_heads, seeds / 10);
    test_encoder_protocol(widest, seeds / 10);
    test_encoder_replay(wide_heads, seeds);
    /* token and layer outputs */
    test_encoder_arithmetic({40, 8, 576, 200, 1, 2, 2, 2, 1, 4, NO_POLL_LIMIT, LATENCY, true, 72}, 1);
    /* a picked row, a norm of the stream itself, other activations; more blocks of keys than the ring holds at once */
    MicroShape clip = {64, 16, 192, 200, 2, 3, 4, 2, 1, 4, NO_POLL_LIMIT, LATENCY};
    clip.family = "clip";
    test_encoder_arithmetic(clip, 2);
    test_encoder_protocol(clip, seeds / 10);
    MicroShape dino = {56, 14, 192, 768, 1, 1, 1, 1, 1, 4, NO_POLL_LIMIT, LATENCY};
    dino.family = "dinov2";
    dino.table_side = 7;
    test_encoder_arithmetic(dino, 1);
    dino.registers = 4;
    dino.image_size = 224; /* 261 tokens */
    test_encoder_arithmetic(dino, 1);
    test_encoder_protocol(dino, seeds / 40);
    /* positions that turn, gates; also where keys come in blocks */
    MicroShape turned = {64, 16, 192, 200, 2, 3, 4, 2, 1, 4, NO_POLL_LIMIT, LATENCY};
    turned.family = "dinov3";
    turned.registers = 4;
    turned.activation = "silu";
    turned.gated = true;
    turned.intermediate = 172;
    test_encoder_arithmetic(turned, 2);
    test_encoder_protocol(turned, seeds / 10);
    MicroShape blocks = turned;
    blocks.image_size = 176; /* 126 tokens */
    blocks.hidden = 320;
    blocks.head_dim = 80;
    blocks.layers = 1;
    test_encoder_arithmetic(blocks, 1);
    clip.poll_limit = turned.poll_limit = POLL_LIMIT;
    test_lost_signals(clip, 1);
    turned.layers = 1;
    test_lost_signals(turned, 1);
    MicroShape impatient = wide_heads;
    impatient.layers = impatient.images = impatient.max_images = impatient.group_images = 1;
    impatient.poll_limit = POLL_LIMIT;
    test_lost_signals(impatient, 1);
    test_lost_arrivals(impatient);
}

static MicroShape few_shape(MicroShape shape) {
    shape.regime = LATENCY;
    shape.clusters = 4;
    return shape;
}
/* Signals and arrivals lost, launches given up and cancelled at work. */
static void test_few_watchdog(MicroShape shape, uint32_t step) {
    shape.layers = 1;
    shape.poll_limit = POLL_LIMIT;
    test_lost_signals(shape, step);
    test_lost_arrivals(shape);
    shape.poll_limit = IMPATIENT;
    test_given_up_in_motion(shape, 16);
    shape.poll_limit = NO_POLL_LIMIT;
    test_cancelled(shape, 8);
}
/* That it is this kernel which runs the shape. */
static void test_few_kernel(const MicroShape &shape, const char *name) {
    MicroEncoder *encoder = open_encoder(shape);
    if (!encoder) return;
    std::set<std::string> ways;
    const std::string why = failure(micro_run(encoder, options_of(0, true), 0));
    protocol_runs++;
    micro_ways(encoder, &ways);
    micro_close(encoder);
    ok(why.empty() && ways.count(name), std::string("encoder, ") + name + " runs what only it has code for", why);
}

/* Heads of more than 96 columns in the latency regime, keys by 64: that end within their second box, an odd number of them; pictures of
   one block, of whole ones, of more than the ring holds; of one size and of any, with positions that turn, in windows, alone and in a mix. */
static void test_few_wide(unsigned seeds) {
    const char *const mixed = "3x5 1x1 9x15 16x16 2x3 7x7";
    const MicroShape any = few_shape(wide_shape(sizes_shape(mixed, 600)));
    test_sizes_alone(any, {"3x5", "1x1", "9x15", "16x16", "2x3", "7x7"}, {15, 1, 135, 256, 6, 49});
    for (const uint32_t head_dim : {104u, 120u, 128u}) /* rows that end within 64 columns, too */
        test_encoder_arithmetic(few_shape(wide_shape(sizes_shape("9x15 8x8 1x65", 300), 3, head_dim)), 1);
    MicroShape sharp = any;
    sharp.sharpness = 40;
    sharp.layers = 1;
    test_encoder_arithmetic(sharp, 1);
    test_encoder_arithmetic(few_shape(wide_shape(qwen_shape("qwen3", "4x2 10x14*5 16x16*2 2x6 8x8", 1000))), 1);
    const MicroShape windows = few_shape(wide_shape(qwen_shape("qwen2.5", "10x14 6x6", 200)));
    test_encoder_arithmetic(windows, 1);
    const MicroShape one_size = wide_shape({40, 8, 0, 200, 2, 2, 2, 2, 1, 4, NO_POLL_LIMIT, LATENCY}, 3, 104); /* and its pooling head */
    test_encoder_arithmetic(one_size, 2);
    MicroShape turned = wide_shape({120, 8, 0, 72, 1, 3, 4, 2, 1, 4, NO_POLL_LIMIT, LATENCY, true}); /* 229 tokens */
    turned.family = "dinov3";
    turned.registers = 3;
    turned.gated = true;
    turned.intermediate = 260;
    test_encoder_arithmetic(turned, 1);
    test_encoder_protocol(any, seeds / 8);
    test_encoder_protocol(turned, seeds / 8);
    test_encoder_replay(any, seeds, 0, 3);
    test_few_watchdog(few_shape(wide_shape(qwen_shape("qwen2.5", "6x6 4x2", 44))), 3);
    test_few_watchdog(wide_shape({64, 8, 0, 72, 1, 1, 1, 1, 1, 4, NO_POLL_LIMIT, LATENCY}), 3);
    test_few_kernel(any, "megavit_encode_latency_wide_sm_90a");
}

/* The pooling head over any number of tokens in the latency regime: pictures of one size, in groups; of any, with fewer tokens than a block,
   whole blocks, more than one for each math group and than the ring holds; columns for some of a cluster's CTAs; heads of all widths;
   scores that exponentials have no room for; alone and in a mix. */
static void test_few_pooled(unsigned seeds) {
    const char *const mixed = "3x5 1x1 9x15 16x16 2x3 19x20 7x7";
    MicroShape any = few_shape(sizes_shape(mixed, 900));
    any.head = true;
    any.layers = 1;
    test_sizes_alone(any, {"3x5", "1x1", "9x15", "16x16", "2x3", "19x20", "7x7"}, {15, 1, 135, 256, 6, 380, 49});
    MicroShape sharp = any;
    sharp.probe = 100;
    test_encoder_arithmetic(sharp, 1);
    test_encoder_arithmetic({264, 8, 128, 72, 1, 1, 1, 1, 1, 2, NO_POLL_LIMIT, LATENCY}, 1); /* 1,089 tokens: ten stages */
    MicroShape wider = any;
    wider.head_dim = 72;
    wider.hidden = 576;
    wider.sizes = "9x15 5x5";
    wider.images = 2;
    wider.layers = 2;
    test_encoder_arithmetic(wider, 2);
    test_encoder_arithmetic(wide_shape(wider, 2), 1); /* heads of 128 columns */
    MicroShape eight = any;
    eight.sizes = "1x1 1x2 1x3 1x4 1x5 1x6 1x7 1x8";
    eight.images = 8;
    test_encoder_arithmetic(eight, 1);
    const MicroShape one_size = {136, 8, 192, 72, 1, 3, 4, 2, 1, 4, NO_POLL_LIMIT, LATENCY, true}; /* 289 tokens */
    test_encoder_arithmetic(one_size, 2);
    test_encoder_arithmetic({160, 8, 576, 72, 1, 1, 1, 1, 1, 4, NO_POLL_LIMIT, LATENCY, false, 72}, 1); /* 400 */
    MicroShape chosen = any; /* few tokens: the regime is predicted */
    chosen.sizes = "3x5 9x15 7x7";
    chosen.images = 3;
    chosen.max_images = 199;
    test_sizes_engine(chosen);
    test_encoder_protocol(any, seeds / 8);
    test_encoder_protocol(one_size, seeds / 8);
    test_encoder_replay(any, seeds, 0, 3);
    MicroShape lost = any;
    lost.sizes = "9x15 5x5";
    lost.images = 2;
    lost.max_images = 160;
    test_few_watchdog(lost, 3);
    test_few_watchdog({136, 8, 192, 72, 1, 1, 1, 1, 1, 4, NO_POLL_LIMIT, LATENCY}, 5);
    test_few_kernel(any, "megavit_encode_latency_all_sm_90a");
}

/* Rows that end within 64 columns in the latency regime: fewer than a block of them, more blocks than norms take at once, keys and values in
   one; of all families, under pooling heads, whose heads may be more than 16 then, too. */
static void test_few_widths(unsigned seeds) {
    MicroShape narrow = {64, 16, 48, 100, 2, 3, 4, 2, 1, 4, NO_POLL_LIMIT, LATENCY, true, 24};
    test_encoder_arithmetic(narrow, 2);
    test_encoder_arithmetic({56, 14, 80, 44, 1, 8, 8, 8, 1, 4, NO_POLL_LIMIT, LATENCY, false, 40}, 1);
    test_encoder_arithmetic({136, 8, 144, 76, 1, 2, 2, 2, 1, 4, NO_POLL_LIMIT, LATENCY, true, 72}, 1); /* 289 tokens */
    test_encoder_arithmetic({32, 16, 1232, 1236, 1, 2, 2, 2, 1, 4, NO_POLL_LIMIT, LATENCY, false, 88}, 1);
    test_encoder_arithmetic({32, 16, 1088, 72, 1, 2, 2, 2, 1, 4, NO_POLL_LIMIT, LATENCY}, 1); /* 17 heads of 64 columns */
    test_encoder_arithmetic(wide_shape({64, 8, 0, 72, 1, 2, 2, 2, 1, 4, NO_POLL_LIMIT, LATENCY, true}, 3, 104), 1);
    MicroShape clip = {64, 16, 112, 200, 2, 3, 4, 2, 1, 4, NO_POLL_LIMIT, LATENCY, true, 56};
    clip.family = "clip";
    test_encoder_arithmetic(clip, 1);
    MicroShape turned = {64, 16, 72, 148, 2, 3, 4, 2, 1, 4, NO_POLL_LIMIT, LATENCY, true, 24};
    turned.family = "dinov3";
    turned.registers = 4;
    turned.activation = "silu";
    turned.gated = true;
    test_encoder_arithmetic(turned, 1);
    MicroShape any = few_shape(sizes_shape("3x5 1x1 9x15 7x7", 300));
    any.head = true;
    any.hidden = 144;
    any.head_dim = 72;
    test_sizes_alone(any, {"3x5", "1x1", "9x15", "7x7"}, {15, 1, 135, 49});
    MicroShape windows = few_shape(qwen_shape("qwen2.5", "10x14 6x6", 200));
    windows.head_dim = 80;
    windows.hidden = 160;
    windows.intermediate = 172;
    test_encoder_arithmetic(windows, 1);
    test_encoder_protocol(any, seeds / 8);
    test_encoder_protocol(narrow, seeds / 8);
    test_encoder_replay(narrow, seeds, 0, 3);
    any.sizes = "9x15 5x5";
    any.images = 2;
    test_few_watchdog(any, 5);
    test_few_kernel(windows, "megavit_encode_latency_all_sm_90a");
}

/* Few pictures of any size in the latency regime: ranges within row tiles and over several, of more blocks of keys than the ring holds;
   clips, mergers and DeepStack; heads of other widths, an odd number of them; alone and in a mix; signals and arrivals lost. */
static void test_few_towers(unsigned seeds) {
    const MicroShape mixed = few_shape(sizes_shape("3x5 1x1 9x15 16x16 2x3 7x7", 600)),
                     clips = few_shape(qwen_shape("qwen3", "4x2 6x10*3 8x8", 300));
    test_encoder_arithmetic(mixed, 1);
    test_sizes_alone(few_shape(sizes_shape("3x5 9x15 7x7", 300)), {"3x5", "9x15", "7x7"}, {15, 135, 49});
    test_encoder_arithmetic(clips, 2);
    MicroShape windows = few_shape(qwen_shape("qwen2.5", "4x2 10x14*3 2x6 8x8", 400)); /* gates that end within a tile */
    windows.intermediate = 172;
    test_encoder_arithmetic(windows, 1);
    MicroShape plain = few_shape(qwen_shape("qwen2", "4x2 6x10*3 2x6", 300));
    plain.intermediate = plain.hidden;
    test_encoder_arithmetic(plain, 1);
    for (const uint32_t head_dim : {72u, 80u, 96u}) {
        MicroShape shape = few_shape(sizes_shape("9x15 5x5", 200));
        shape.head_dim = head_dim;
        shape.hidden = head_dim == 80 ? 320 : head_dim == 96 ? 192 : 576;
        shape.layers = 1;
        test_encoder_arithmetic(shape, 1);
    }
    test_encoder_protocol(mixed, seeds / 8);
    test_encoder_protocol(clips, seeds / 8);
    test_encoder_protocol(windows, seeds / 8);
    MicroShape lost = few_shape(qwen_shape("qwen2.5", "6x6 2x2", 44));
    lost.layers = 1;
    lost.poll_limit = POLL_LIMIT;
    test_lost_signals(lost, 3);
    test_lost_arrivals(lost);
}

/* In protocol mode and from recordings. */
static void test_order(unsigned seeds) {
    const MicroShape narrow = {64, 16, 192, 72, 1, 3, 4, 2, 2, 2, NO_POLL_LIMIT, THROUGHPUT, true};
    const MicroShape narrow_split = {64, 16, 192, 72, 1, 3, 4, 2, 2, 2, NO_POLL_LIMIT, THROUGHPUT, false, 64, true, 66};
    const MicroShape narrow_latency = {64, 16, 192, 72, 1, 1, 2, 2, 1, 4, NO_POLL_LIMIT, LATENCY};
    const MicroShape one_tile_latency = {64, 16, 192, 72, 1, 1, 1, 1, 1, 6, NO_POLL_LIMIT, LATENCY}; /* a cluster: its math warps signal themselves */
    const MicroShape thin_latency = {64, 16, 512, 264, 2, 1, 1, 1, 1, 6, NO_POLL_LIMIT, LATENCY};
    const MicroShape many_images = {32, 16, 192, 72, 1, 66, 66, 66, 1, 3, NO_POLL_LIMIT, THROUGHPUT};
    const MicroShape many_tokens = {136, 8, 192, 72, 1, 3, 4, 2, 2, 2, NO_POLL_LIMIT, THROUGHPUT, true};
    const MicroShape two_layers_latency = {64, 8, 192, 72, 2, 5, 5, 2, 2, 4, NO_POLL_LIMIT, LATENCY};
    test_encoder_protocol(narrow, seeds);
    test_encoder_protocol(narrow_latency, seeds);
    test_encoder_protocol(one_tile_latency, seeds);
    test_encoder_protocol(thin_latency, seeds / 4);
    test_encoder_protocol(narrow_split, seeds / 4);
    test_encoder_protocol(middle_split, seeds / 10);
    test_encoder_protocol({64, 8, 192, 72, 1, 3, 4, 1, 1, 2, NO_POLL_LIMIT, THROUGHPUT, false, 64, true, 3}, seeds / 10);
    test_encoder_protocol({64, 16, 640, 640, 1, 1, 2, 2, 1, 2, NO_POLL_LIMIT, THROUGHPUT}, seeds / 10);
    test_encoder_protocol({32, 16, 192, 72, 1, 20, 20, 20, 1, 3, NO_POLL_LIMIT, THROUGHPUT}, seeds / 10);
    test_encoder_protocol(regrouped, seeds / 10);
    test_encoder_protocol({136, 8, 192, 72, 1, 1, 1, 1, 1, 2, NO_POLL_LIMIT, THROUGHPUT, false, 96}, seeds / 10);
    test_encoder_protocol({112, 8, 192, 72, 1, 5, 5, 5, 1, 2, NO_POLL_LIMIT, THROUGHPUT}, seeds / 10); /* a head a math group */
    for (const MicroShape &shape : {wide, many_images, many_tokens, two_layers_latency}) test_encoder_protocol(shape, seeds / 40);
    for (const MicroShape &shape : {narrow, narrow_split, many_images, many_tokens, narrow_latency, one_tile_latency, two_layers_latency, thin_latency})
        test_encoder_replay(shape, 5 * seeds);
    test_damaged_recordings(narrow, 48);
    test_damaged_recordings(narrow_latency, 48);
    test_encoder_ways();
}

/* With signals and arrivals that are lost, and given up while it is at work. */
static void test_watchdog(void) {
    test_lost_arrivals({64, 16, 576, 576, 1, 1, 2, 2, 1, 2, POLL_LIMIT, THROUGHPUT, false, 64, true, 66});
    test_lost_signals({64, 16, 640, 640, 1, 2, 6, 2, 1, 2, POLL_LIMIT, THROUGHPUT}, 5);
    test_lost_arrivals({64, 16, 640, 640, 1, 1, 2, 2, 1, 2, POLL_LIMIT, THROUGHPUT});
    test_lost_signals({136, 8, 192, 72, 1, 1, 2, 2, 1, 2, POLL_LIMIT, THROUGHPUT, false, 96}, 7);
    test_lost_arrivals({136, 8, 192, 72, 1, 1, 2, 2, 1, 2, POLL_LIMIT, THROUGHPUT, false, 96});
    test_lost_arrivals({112, 8, 192, 72, 1, 2, 2, 2, 1, 1, POLL_LIMIT, THROUGHPUT}); /* a head a math group */
    test_lost_signals({64, 8, 192, 72, 1, 2, 3, 2, 1, 4, POLL_LIMIT, LATENCY}, 3);
    test_lost_arrivals({64, 8, 192, 72, 1, 2, 3, 2, 1, 2, POLL_LIMIT, LATENCY});
    test_lost_signals({64, 16, 192, 72, 1, 1, 1, 1, 1, 6, POLL_LIMIT, LATENCY}, 1);
    test_lost_arrivals({64, 8, 192, 576, 3, 1, 1, 1, 1, 6, POLL_LIMIT, LATENCY});
    test_lost_signals({64, 16, 512, 72, 1, 1, 1, 1, 1, 6, POLL_LIMIT, LATENCY}, 1);
    test_lost_arrivals({64, 16, 512, 72, 1, 1, 1, 1, 1, 2, POLL_LIMIT, LATENCY});
    /* pooling heads in tiles of few rows, in which both math groups of a CTA meet */
    test_given_up_in_motion({64, 16, 192, 72, 1, 3, 3, 3, 1, 3, IMPATIENT, THROUGHPUT}, 96);
    test_given_up_in_motion({32, 16, 192, 72, 1, 17, 17, 17, 1, 2, IMPATIENT, THROUGHPUT}, 128);
    test_given_up_in_motion({64, 16, 192, 72, 1, 1, 1, 1, 1, 4, IMPATIENT, LATENCY}, 16);
    test_cancelled({64, 16, 192, 72, 1, 3, 3, 3, 1, 3, NO_POLL_LIMIT, THROUGHPUT}, 48);
    test_cancelled({64, 16, 192, 72, 1, 1, 1, 1, 1, 4, NO_POLL_LIMIT, LATENCY}, 16);
}

/* test_encoder [SHARE] [SEEDS]: one of the shares or all of them; under so many protocol seeds. */
int main(int count, char **argument) {
    const std::string share = count > 1 && !isdigit((unsigned char)argument[1][0]) ? argument[1] : "";
    const int named = !share.empty();
    const unsigned seeds = count > 1 + named ? (unsigned)atoi(argument[1 + named]) : (unsigned)ALL_SEEDS;
    const std::set<std::string> shares = {"",      "numbers",  "families", "towers", "qwen",   "widths",   "alike",      "few",
                                          "order", "watchdog", "heads", "sizes",    "ranges", "shares", "validate", "projection", "toy",
                                          "few_towers", "few_wide", "few_pooled", "few_widths"};
    if (!shares.count(share) || count > 2 + named || seeds == 0) {
        fprintf(stderr, "usage: test_encoder [numbers|families|towers|qwen|widths|alike|few|few_towers|few_wide|few_pooled|few_widths|"
                        "order|watchdog|sizes|ranges|shares|validate|heads|projection|toy] [SEEDS]\n");
        return 1;
    }
    brief = seeds < ALL_SEEDS;
    const std::set<std::string> recorded = recorded_products();
    if (share.empty() || share == "numbers") test_numbers(seeds);
    if (share.empty() || share == "numbers" || share == "families") test_families();
    if (share.empty() || share == "numbers" || share == "towers") test_towers(seeds);
    if (share.empty() || share == "numbers" || share == "qwen") test_qwen_heads(seeds);
    if (share.empty() || share == "numbers" || share == "widths") test_widths();
    if (share.empty() || share == "numbers" || share == "alike") test_alike();
    if (share == "numbers") test_wide_numbers();
    if (share.empty() || share == "heads") test_wide_heads(seeds);
    if (share.empty() || share == "few") test_few(seeds);
    if (share.empty() || share == "few_towers") test_few_towers(seeds);
    if (share.empty() || share == "few_wide") test_few_wide(seeds);
    if (share.empty() || share == "few_pooled") test_few_pooled(seeds);
    if (share.empty() || share == "few_widths") test_few_widths(seeds);
    if (share.empty() || share == "order") test_order(seeds);
    if (share.empty() || share == "watchdog") test_watchdog();
    if (share.empty() || share == "sizes") test_sizes(seeds);
    if (share.empty() || share == "qwen") test_qwen(seeds);
    if (share.empty() || share == "ranges") test_sizes_watchdog();
    if (share.empty() || share == "shares") test_shares(seeds);
    if (share.empty() || share == "validate") test_validations();
    if (share.empty() || share == "projection") test_projection(seeds);
    if (share == "toy") { /* of all shares no other program has its families */
        test_toy();
        test_mergers();
    }
    test_products(recorded);
    return finish();
}
