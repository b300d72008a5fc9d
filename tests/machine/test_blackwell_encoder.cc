/* megavit.h's own host code and the kernel for Blackwell on the machine model, from pixels to rows, against the CPU backend. No card has run
   it. Speaks TAP; ends with what was run. */
#include "encode.h"
#include "planted.h"
#include "tap.h"

static const uint32_t NO_POLL_LIMIT = 1u << 30, POLL_LIMIT = 300, THROUGHPUT = 1, PAIRS = 3;

/* How far rows may be off. bf16: its rounding. MXFP8, whose twin on the CPU rounds what the kernel rounds: the order in which K <= 256
   terms are added up moves a sum by about 2 sqrt(K) 2^-24 of itself, and two E4M3 numbers are a sixteenth apart at least, so one number in
   2^14 falls to the other neighbour. A layer rounds some 640 numbers a row: 4% of the rows are hit, and a row that is hit is rounded
   differently from there on, each time by E4M3's own 2.6%, on both sides. sqrt(2 layers * 0.04) * 0.026 sqrt(2) = 0.0104. All other rows,
   and so the one in the middle, are as far off as the order of sums makes them, but for neighbours of bf16, one in 128 numbers of a row or
   fewer: sqrt(1 / 128) 2^-8 / sqrt(12) = 1e-4. A rounding that one side does not have moves every row: pooled rows without the head's f16
   by 1.2e-3. */
static const double BF16_ERROR = 0.02, MX_ERROR = 0.0104, MEDIAN_ERROR = 1e-4;

/* Under every seed and for every number of CTAs: no report, no larger error, the same bits; then as many seeds in which order alone is
   looked at. first_seed: of the largest number of CTAs, but for these. */
static void test_shape(const char *name, const MicroShape &shape, unsigned seeds, unsigned protocol_seeds, uint64_t first_seed = 0) {
    const double most = shape.precision ? MX_ERROR : BF16_ERROR, most_of_median = shape.precision ? MEDIAN_ERROR : BF16_ERROR;
    std::string why, plan;
    std::vector<float> first;
    double error = 0, median = 0;
    for (uint32_t clusters = 1; clusters <= shape.clusters && why.empty(); clusters++) {
        MicroShape now = shape;
        now.clusters = clusters;
        MicroEncoder *encoder = micro_open(now, &why);
        if (!encoder) break;
        const bool last = clusters == shape.clusters;
        for (uint64_t i = 0; i < (last ? seeds + protocol_seeds : 1) && why.empty(); i++) {
            const bool protocol = i >= seeds && last;
            machine::Options options = options_of((last ? first_seed : 0) + i + clusters * 100, protocol);
            options.hardware_sums = false;
            const MicroRun run = micro_run(encoder, options, 0);
            (protocol ? protocol_runs : arithmetic_runs)++;
            if (!run.machine.reports.empty() || !run.verdict.empty()) why = run.verdict + "\n" + run.machine.text();
            if (!protocol && why.empty()) {
                if (first.empty()) first = run.outputs;
                error = run.relative_error;
                median = run.median_error;
                if (!(error < most && median < most_of_median))
                    why = "relative error " + std::to_string(error) + ", of a row in the middle " + std::to_string(median);
                else if (memcmp(first.data(), run.outputs.data(), first.size() * sizeof(float))) why = "other bits than under the first seed";
            }
            if (!why.empty()) why = "seed " + std::to_string(options.seed) + ", " + std::to_string(2 * clusters) + " CTAs: " + why;
        }
        plan = micro_plan(encoder);
        micro_close(encoder);
    }
    ok(why.empty(), std::string("Blackwell's encoder, ") + name + ", " + plan + ": no report, the same bits under all seeds and grids, relative error " +
                        std::to_string(error) + ", of a row in the middle " + std::to_string(median), why);
}

/* The bounds of test_shape tell precisions apart: no CPU with one product more or less in MXFP8 comes within them. */
static void test_twins(const std::string &name, const MicroShape &shape) {
    std::string why;
    double least = 1;
    for (const uint32_t product : {PRECISION_QKV, PRECISION_OUT, PRECISION_FC1, PRECISION_FC2}) {
        MicroShape other = shape;
        other.layers = 1;
        other.twin = shape.precision == PRECISION_BF16 ? (uint32_t)product : shape.precision ^ product;
        if (other.twin == 0) other.twin = PRECISION_BF16;
        MicroEncoder *encoder = micro_open(other, &why);
        if (!encoder) break;
        machine::Options options = options_of(1, false);
        options.hardware_sums = false;
        const MicroRun run = micro_run(encoder, options, 0);
        arithmetic_runs++;
        least = std::min(least, run.median_error);
        if (!(run.median_error > 3 * MEDIAN_ERROR))
            why += "beside twin " + std::to_string(other.twin) + " a row in the middle is off by " + std::to_string(run.median_error) +
                   "; ";
        micro_close(encoder);
    }
    ok(why.empty(), "twins with another product in MXFP8 than " + name + ": a row in the middle is off by " + std::to_string(least) +
                        " at least", why);
}

/* Two pictures of 144 tokens, three heads of 96 columns: two blocks of keys, the second short, and a tile of which one head is not there. */
static MicroShape online_pairs() {
    MicroShape shape = {96, 8, 288, 192, 1, 2, 2, 2, 1, 1, NO_POLL_LIMIT, PAIRS};
    shape.head_dim = 96;
    return shape;
}

/* Order alone, under `count` seeds from `first` on. Pairs: rows of both CTAs in a product's tile; by one cluster, three tiles of fc1 follow
   each other, so that products into either accumulator start while the other one is read, and the third's wait for the first one's
   readers; K of fc2 is longer than the ring of stages; in MXFP8 K is three stages, as the third's scales lie over the first one's. By two
   clusters, pairs wait for each other. */
static void test_orders(const std::string &part, const MicroShape &single, unsigned count, uint64_t first) {
    if (part == "order" || part == "order-mxfp8") test_shape("in MXFP8, order alone", single, 1, count, first);
    MicroShape pairs = {80, 8, 128, 768, 2, 2, 2, 2, 1, 1, NO_POLL_LIMIT, PAIRS};
    for (const uint32_t precision : {0u, (uint32_t)PRECISION_MXFP8}) {
        pairs.precision = precision;
        const std::string name = pairs.precision ? "order-pairs-mxfp8" : "order-pairs";
        if (part != "order" && part != name) continue;
        if (pairs.precision) pairs.hidden = 384;
        for (pairs.clusters = 1; pairs.clusters <= 2; pairs.clusters++)
            test_shape(pairs.precision ? "pairs in MXFP8, order alone" : "pairs, order alone", pairs, 1, count / 2, first);
    }
    if (part == "order" || part == "order-pairs-online") test_shape("pairs, heads of 96, order alone", online_pairs(), 1, count, first);
}

/* Operation by operation, each on what the kernel had: `megavit validate` finds nothing wrong, so that every value is the CPU's or its
   neighbour, and every scale the CPU's or one that the order of sums explains. Neighbours are few: of bf16, 2^-8 to 2^-7 apart, one in 256,
   as sums of K <= 512 terms are off by some 4 sqrt(K) 2^-24 of themselves, and four times that where they cancel; of E4M3, a sixteenth
   apart or more, one in 1024; of attention in bf16, whose weights fall to neighbours by themselves, one in 16. A pooling head's weights
   are bf16, too, and its scores, of another order of sums, are off by some 2^-22: of 400 tokens' weights in two heads one falls to its
   neighbour in one run of twenty (here that of token 275 in the second head, 0.18% of the sum), and moves that head's values. */
static void test_operations(const char *name, const MicroShape &shape, uint32_t operations) {
    std::string why;
    MicroEncoder *encoder = micro_open(shape, &why);
    if (!encoder) return ok(false, "the encoder opens", why);
    machine::Options options = options_of(1, false);
    options.hardware_sums = false;
    const MicroValidation v = micro_validate(encoder, options, MicroFault::none, 0);
    arithmetic_runs++;
    why = v.error;
    for (const std::string &label : v.wrong) why += (why.empty() ? "wrong: " : ", ") + label;
    uint64_t values = 0, different = 0;
    unsigned rounded = 0;
    for (const MicroValidation::Row &row : v.rows) {
        const bool mx = row.label.find("MXFP8") != std::string::npos ||
                        (shape.precision & PRECISION_OUT && row.label == "attention") ||
                        (shape.precision & PRECISION_FC2 && row.label == "fc1");
        if (row.label == "whole encode" || row.label == "patches" || row.label == "head fc2") continue; /* the last is float32 */
        const uint32_t side = shape.image_size / shape.patch;
        const bool many_weights = row.label == "head values" && side * side >= 100;
        const uint64_t most = 2 + (many_weights ? shape.head_dim : row.values / (mx ? 1024 : row.label == "attention" ? 16 : 256));
        if (row.different > most)
            why += row.label + ": " + std::to_string(row.different) + " of " + std::to_string(row.values) + " differ; ";
        values += row.values;
        different += row.different;
        rounded++;
    }
    if (why.empty() && rounded != operations) why = std::to_string(rounded) + " results are compared";
    ok(why.empty(), std::string("validation of ") + name + ": " + std::to_string(different) + " of " + std::to_string(values) +
                        " values of " + std::to_string(rounded) + " results are the CPU's neighbours, none is further off", why);
    micro_close(encoder);
}
/* What is wrong in the kernel is found where it is. */
static void test_operations_find(const MicroShape &shape) {
    static const struct {
        machine::Planted fault;
        const char *wrong;
    } faults[] = {{machine::Planted::first_scale_of_a, "fc1"},
                  {machine::Planted::first_scale_of_b, "qkv"},
                  {machine::Planted::scales_of_a_for_b, "out"}};
    std::string why;
    MicroEncoder *encoder = micro_open(shape, &why);
    if (!encoder) return ok(false, "the encoder opens", why);
    for (const auto &f : faults) {
        machine::Options options = options_of(1, false);
        options.hardware_sums = false;
        machine::planted = f.fault;
        const MicroValidation v = micro_validate(encoder, options, MicroFault::none, 0);
        machine::planted = machine::Planted::nothing;
        arithmetic_runs++;
        why += v.error;
        if (!v.wrong.count(f.wrong)) why += std::string(f.wrong) + " is not wrong; ";
        for (const char *right : {"patches", "patch embed"}) /* what follows may have such numbers that nothing can be said of it */
            if (v.wrong.count(right)) why += std::string(right) + " is wrong; ";
    }
    ok(why.empty(), "validation finds scales that are others than the rows', and nothing where they are not read", why);
    micro_close(encoder);
}

/* Launches in which something is lost: they end, with a verdict where anybody waited for it, and nothing comes that hardware answers with a
   lost context or no answer at all. What is still under way when a CTA ends has had the microseconds of wait_for_copies. */
static std::string run_with_loss(MicroEncoder *encoder, machine::Options options, uint32_t lost_signal, unsigned *verdicts, unsigned *silent) {
    options.on_deadlock = machine::OnDeadlock::drain;
    options.maximum_reports = 1000;
    const MicroRun run = micro_run(encoder, options, lost_signal);
    protocol_runs++;
    *verdicts += !run.verdict.empty();
    *silent += run.verdict.empty() && run.machine.reports.empty();
    std::string fatal;
    for (const char *kind : {"deadlock", "livelock", "warp", "barrier", "mbarrier", "cluster-exit", "out-of-bounds", "tensor-memory",
                             "tensor-memory-leak", "descriptor"})
        for (const machine::Report &r : run.machine.reports)
            if (r.kind == kind) fatal += r.text + "\n";
    return fatal;
}

/* Signals of counters, and one arrival at every mbarrier of either CTA: those of products among them. */
static void test_losses(const char *name, const MicroShape &shape) {
    std::string why;
    MicroEncoder *encoder = micro_open(shape, &why);
    if (!encoder) return ok(false, "the encoder opens", why);
    unsigned signals = 0, verdicts = 0, barriers = 0, gave_up = 0, unheard = 0, harmless = 0;
    const std::vector<uint32_t> counters = micro_signals(encoder);
    for (size_t i = 0; i < counters.size() && why.empty(); i += 5, signals++) why = run_with_loss(encoder, options_of(i, true), counters[i], &verdicts, &unheard);
    for (unsigned cta = 0; cta < 2; cta++) {
        machine::Options options = options_of(0, true);
        options.lost.cta = cta;
        const std::vector<unsigned> arrivals = micro_run(encoder, options, 0).machine.arrivals;
        protocol_runs++;
        for (unsigned i = cta; i < arrivals.size() && why.empty(); i += 2) {
            if (!arrivals[i]) continue;
            options = options_of(i, true);
            options.lost = {cta, i + 1, 0};
            barriers++;
            const unsigned before = gave_up + harmless; /* harmless: nobody came to wait for it */
            why = run_with_loss(encoder, options, 0, &gave_up, &harmless);
            if (why.empty() && gave_up + harmless == before) why = "no verdict";
            if (!why.empty()) why = "CTA " + std::to_string(cta) + ", mbarrier " + std::to_string(i) + ": " + why;
        }
    }
    ok(why.empty() && verdicts && gave_up > 20 && harmless < gave_up / 4,
       std::string("Blackwell's encoder") + name + ": " + std::to_string(verdicts) +
           " of " + std::to_string(signals) + " lost signals and " +
                                                     std::to_string(gave_up) + " of " + std::to_string(barriers) +
                                                     " lost arrivals end in the watchdog's verdict, the others harm nothing", why);
    micro_close(encoder);
}

/* Each fault in the kernel itself: a report, or numbers beyond the bound, under one of some seeds. */
static void test_faults(const MicroShape &shape) {
    static const char *const names[] = {
        "", "scales are not copied to tensor memory", "a load is not waited for", "a store is not waited for", "no fence before a barrier",
        "no fence behind one", "no proxy fence behind rows and scales", "products are not committed", "tensor memory is not freed",
        "scales of rows are not stored", "all blocks of A take the first one's scale", "of B", "B takes the scales of its second atom",
        "B takes those of A", "the math groups do not meet", "products overwrite the sums"};
    static_assert(sizeof names / sizeof names[0] == (size_t)machine::Planted::count, "every fault has a name");
    std::string why;
    MicroEncoder *encoder = micro_open(shape, &why);
    if (!encoder) return ok(false, "the encoder opens", why);
    for (int fault = 1; fault < (int)machine::Planted::count; fault++) {
        bool caught = false;
        std::string by;
        faults_planted++;
        for (uint64_t seed = 0; seed < 8 && !caught; seed++) {
            machine::Options options = options_of(seed, false);
            options.hardware_sums = false;
            machine::planted = (machine::Planted)fault;
            const MicroRun run = micro_run(encoder, options, 0);
            machine::planted = machine::Planted::nothing;
            arithmetic_runs++;
            caught = !run.machine.reports.empty() || !run.verdict.empty() || !(run.relative_error < MX_ERROR);
            by = !run.machine.reports.empty() ? run.machine.reports[0].kind : !run.verdict.empty() ? run.verdict : "error " + std::to_string(run.relative_error);
        }
        faults_caught += caught;
        ok(caught, std::string("planted: ") + names[fault] + ": " + by);
    }
    const MicroRun run = micro_run(encoder, options_of(0, false), 0);
    ok(run.machine.reports.empty() && run.verdict.empty() && run.relative_error < MX_ERROR, "and without a fault nothing is said",
       run.machine.text());
    micro_close(encoder);
}

int main(int argc, char **argv) {
    const std::string part = argc > 1 ? argv[1] : "";
    /* image, patch, hidden, intermediate, layers, images, max_images, group_images, lanes, clusters, poll_limit, regime */
    MicroShape two = {48, 16, 128, 256, 2, 5, 7, 3, 2, 2, NO_POLL_LIMIT, THROUGHPUT};
    two.rows = true;
    if (part.empty() || part == "two") test_shape("two layers, five images", two, 2, 4);
    /* MXFP8 throughout, behind norms alone, and of other products; bf16 beside a CPU that rounds, too */
    static const struct {
        const char *name;
        uint32_t precision;
        unsigned seeds, protocol_seeds;
    } sets[] = {{"mxfp8", PRECISION_MXFP8, 2, 4},
                {"mixed", PRECISION_MIXED, 2, 4},
                {"out", PRECISION_OUT, 1, 2},
                {"fc2", PRECISION_FC2, 1, 2},
                {"qkv+fc2", PRECISION_QKV | PRECISION_FC2, 1, 2},
                {"out+fc1+fc2", PRECISION_OUT | PRECISION_FC1 | PRECISION_FC2, 1, 2},
                {"bf16", PRECISION_BF16, 1, 0}};
    for (const uint32_t regime : {THROUGHPUT, PAIRS})
        for (const auto &set : sets) {
            MicroShape mx = two;
            mx.precision = set.precision;
            mx.regime = regime;
            const char *const by_pairs = regime == PAIRS ? ", pairs" : "";
            if (part.empty() || part == std::string(regime == PAIRS ? "pairs-" : "") + set.name)
                test_shape((std::string("two layers, precision ") + set.name + by_pairs).c_str(), mx, set.seeds, set.protocol_seeds);
            if (part.empty() || part == "twins") test_twins(std::string(set.name) + by_pairs, mx);
        }
    /* rows end in the middle of a product's step of 128: the last tile fills them up */
    MicroShape odd = {32, 16, 192, 192, 1, 2, 2, 2, 1, 1, NO_POLL_LIMIT, THROUGHPUT};
    odd.precision = PRECISION_MXFP8;
    odd.rows = true;
    for (uint32_t columns = 176; columns <= 192; columns += 16) {
        odd.intermediate = columns;
        odd.regime = columns == 176 ? PAIRS : THROUGHPUT;
        const std::string name = "rows of 192 and " + std::to_string(columns) + " columns in MXFP8";
        if (part.empty() || part == "odd-mx") test_shape(name.c_str(), odd, 1, 0);
        MicroShape behind_bf16 = odd; /* by tiles of bf16, which are of other widths */
        behind_bf16.precision = PRECISION_FC2;
        if (part.empty() || part == "odd-mx") test_shape((name + " behind bf16").c_str(), behind_bf16, 1, 0);
    }
    MicroShape pairs = two;
    pairs.regime = PAIRS;
    if (part.empty() || part == "pairs") test_shape("two layers, five images, pairs", pairs, 2, 4);
    MicroShape keys = {224, 16, 128, 256, 1, 1, 1, 1, 1, 2, NO_POLL_LIMIT, THROUGHPUT};
    if (part.empty() || part == "keys") test_shape("196 tokens", keys, 1, 1);
    keys.precision = PRECISION_MXFP8;
    keys.rows = true;
    if (part.empty() || part == "keys-mx") test_shape("196 tokens in MXFP8", keys, 1, 0);
    MicroShape online = {160, 8, 192, 192, 1, 1, 1, 1, 1, 2, NO_POLL_LIMIT, THROUGHPUT};
    online.head_dim = 96;
    if (part.empty() || part == "online") test_shape("400 tokens, heads of 96", online, 1, 1);
    online.precision = PRECISION_MXFP8 & ~PRECISION_OUT;
    online.rows = true;
    if (part.empty() || part == "online-mx") test_shape("400 tokens, heads of 96, precision qkv+fc1+fc2", online, 1, 0);
    MicroShape dinov2 = {56, 14, 128, 512, 1, 2, 2, 2, 1, 2, NO_POLL_LIMIT, THROUGHPUT};
    dinov2.family = "dinov2";
    dinov2.head = false;
    if (part.empty() || part == "dinov2") test_shape("DINOv2", dinov2, 1, 1);
    /* other shapes by the kernel of pairs */
    const MicroShape single_keys = keys, single_online = online;
    keys.precision = online.precision = 0;
    keys.regime = online.regime = PAIRS;
    if (part.empty() || part == "pairs-keys") test_shape("196 tokens, pairs", keys, 1, 1);
    if (part.empty() || part == "pairs-online") test_shape("400 tokens, heads of 96, pairs", online, 1, 1);
    keys.precision = PRECISION_MXFP8;
    if (part.empty() || part == "pairs-keys-mx") test_shape("196 tokens in MXFP8, pairs", keys, 1, 0);
    online = {160, 8, 128, 192, 1, 1, 1, 1, 1, 2, NO_POLL_LIMIT, PAIRS};
    online.precision = PRECISION_MXFP8;
    online.rows = true;
    if (part.empty() || part == "pairs-online-mx") test_shape("400 tokens in MXFP8, pairs", online, 1, 0);
    if (part.empty() || part == "pairs-wide") test_shape("two pictures, three heads of 96, pairs", online_pairs(), 1, 1);
    MicroShape odd_heads = {144, 16, 192, 192, 1, 3, 3, 3, 1, 2, NO_POLL_LIMIT, PAIRS};
    if (part.empty() || part == "pairs-heads") test_shape("three pictures of 81 tokens, three heads, pairs", odd_heads, 1, 1);
    MicroShape many_keys = {240, 16, 128, 128, 1, 2, 2, 2, 1, 2, NO_POLL_LIMIT, PAIRS};
    many_keys.head = false;
    if (part.empty() || part == "pairs-225") test_shape("two pictures of 225 tokens, pairs", many_keys, 1, 1);
    many_keys.image_size = 256;
    if (part.empty() || part == "pairs-256") test_shape("two pictures of 256 tokens, pairs", many_keys, 1, 0);
    dinov2.regime = PAIRS;
    if (part.empty() || part == "pairs-dinov2") test_shape("DINOv2, pairs", dinov2, 1, 1);
    dinov2.regime = THROUGHPUT;
    dinov2.precision = PRECISION_MXFP8;
    if (part.empty() || part == "dinov2-mx") test_shape("DINOv2 in MXFP8", dinov2, 1, 0);
    MicroShape many = {32, 16, 128, 256, 1, 50, 50, 50, 1, 2, NO_POLL_LIMIT, THROUGHPUT};
    if (part.empty() || part == "many") test_shape("50 images of 4 tokens", many, 1, 1);
    many.precision = PRECISION_MXFP8;
    if (part.empty() || part == "many-mx") test_shape("50 images of 4 tokens in MXFP8", many, 1, 0);
    many.regime = PAIRS;
    if (part.empty() || part == "pairs-many-mx") test_shape("50 images of 4 tokens in MXFP8, pairs", many, 1, 0);
    many.precision = 0;
    if (part.empty() || part == "pairs-many") test_shape("50 images of 4 tokens, pairs", many, 1, 1);
    if (part.empty() || part == "lost") test_losses("", {64, 16, 128, 256, 1, 1, 2, 2, 1, 2, POLL_LIMIT, THROUGHPUT});
    if (part.empty() || part == "lost-pairs") test_losses(", pairs", {64, 16, 128, 256, 1, 1, 2, 2, 1, 2, POLL_LIMIT, PAIRS});
    MicroShape small = {64, 16, 128, 256, 1, 2, 2, 2, 1, 1, NO_POLL_LIMIT, THROUGHPUT};
    small.precision = PRECISION_MXFP8;
    if (part.empty() || part == "faults") test_faults(small);
    MicroShape deep = small; /* K of several stages; groups that end within a row tile */
    deep.images = deep.max_images = 3;
    deep.intermediate = 512;
    if (part.empty() || part == "operations") test_operations("MXFP8", deep, 11);
    if (part.empty() || part == "operations") test_operations_find(small);
    if (part.empty() || part == "operations") test_operations("196 tokens in MXFP8", single_keys, 11);
    if (part.empty() || part == "operations") test_operations("400 tokens, heads of 96, precision qkv+fc1+fc2", single_online, 11);
    deep.precision = PRECISION_MIXED;
    if (part.empty() || part == "operations") test_operations("MXFP8 behind norms", deep, 11);
    deep.precision = PRECISION_OUT | PRECISION_FC1 | PRECISION_FC2;
    if (part.empty() || part == "operations") test_operations("precision out+fc1+fc2", deep, 10);
    deep.precision = PRECISION_FC2;
    if (part.empty() || part == "operations") test_operations("precision fc2", deep, 9);
    deep.precision = PRECISION_BF16;
    if (part.empty() || part == "operations") test_operations("bf16", deep, 9);
    small.poll_limit = POLL_LIMIT;
    small.clusters = 2;
    if (part.empty() || part == "lost-mx") test_losses(", MXFP8", small);
    small.poll_limit = NO_POLL_LIMIT;
    test_orders(part, small, argc > 2 ? (unsigned)atoi(argv[2]) : 500, argc > 3 ? (uint64_t)atoll(argv[3]) : 0);
    return finish("Blackwell's encoder");
}
