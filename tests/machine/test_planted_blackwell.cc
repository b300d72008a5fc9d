/* Planted faults in the kernel for Blackwell (planted_blackwell.txt): each is seen, as a report of the model, a verdict of the kernel's
   watchdog or rows that are off. Speaks TAP; ends with what was run. test_planted_blackwell NUMBER: one fault, with all that is said of
   it. */
#include <stdlib.h>

#include <fstream>

#include "encode.h"
#include "planted_ranges.h"
#include "tap.h"

static int fault; /* 0: none */
extern "C" int planted(int number) { return number == fault; }

/* Rows of both CTAs; several tiles of a kind for their cluster, of eight stages in bf16 and four in MXFP8: as many as the ring has, and
   more. Attention of pairs: queries of both CTAs, and two tiles of it one behind the other; online: three blocks of keys, the last one
   short, heads of more than 64 columns, and two clusters, of which one multiplies what the other's tile of attention has left. Blocks:
   four of them, twice, or once a cluster. Head: so many pictures that the pooling head's products are by warps. */
static MicroShape shape_of(const std::string &kernel) {
    const bool pairs = kernel.find("pairs") == 0;
    MicroShape shape = {32, 8, 512, 512, 1, 9, 9, 9, 1, 1, 1000, pairs ? 3u : 1u};
    if (kernel == "pairs attention") shape = {80, 8, 256, 256, 1, 1, 1, 1, 1, 1, 1000, 3};
    if (kernel == "pairs online") {
        shape = {144, 8, 192, 192, 1, 1, 1, 1, 1, 2, 1000, 3};
        shape.head_dim = 96;
    }
    if (kernel == "pairs mxfp8 blocks") shape = {160, 8, 128, 192, 1, 1, 1, 1, 1, 2, 1000, 3};
    if (kernel == "pairs blocks") shape = {160, 8, 128, 128, 1, 1, 1, 1, 1, 1, 1000, 3};
    if (kernel == "pairs head") shape = {32, 16, 128, 256, 1, 50, 50, 50, 1, 1, 1000, 3};
    if (kernel.find("mxfp8") != std::string::npos) shape.precision = PRECISION_MXFP8;
    shape.head = kernel == "pairs head";
    shape.rows = !shape.head;
    return shape;
}

/* How a launch with the fault is seen under one seed; empty: it is not. */
static std::string seen(MicroEncoder *encoder, uint64_t seed, bool protocol, std::string *all) {
    machine::Options options = options_of(seed, protocol);
    options.hardware_sums = false;
    const MicroRun run = micro_run(encoder, options, 0);
    (protocol ? protocol_runs : arithmetic_runs)++;
    *all = run.verdict + "\n" + run.machine.text() + "relative error " + std::to_string(run.relative_error) + "\n";
    if (!run.machine.reports.empty()) return run.machine.reports[0].kind;
    if (!run.verdict.empty()) return "verdict";
    return protocol || run.relative_error < 0.02 ? "" : "numbers";
}

int main(int count, char **argument) {
    const int only = count > 1 ? atoi(argument[1]) : 0;
    int number = 0;
    std::vector<std::pair<std::string, std::string>> faults; /* what; by which kernel */
    std::ifstream table("tests/machine/planted_blackwell.txt");
    for (std::string line; std::getline(table, line);) {
        const size_t colon = line.rfind(": ");
        if (line.compare(0, 2, "= ") == 0 && colon != std::string::npos)
            faults.push_back({line.substr(2, colon - 2), line.substr(colon + 2)});
    }
    for (const std::string kernel :
         {"bf16", "mxfp8", "pairs", "pairs mxfp8", "pairs attention", "pairs online", "pairs blocks", "pairs mxfp8 blocks", "pairs head"}) {
        std::string why, all, how;
        MicroEncoder *encoder = micro_open(shape_of(kernel), &why);
        if (!encoder) {
            ok(false, "the encoder opens", why);
            continue;
        }
        fault = 0;
        for (uint64_t seed = 4; seed < 9 && how.empty() && !only; seed++) how = seen(encoder, seed, seed > 4, &all);
        const std::string name = std::string("Blackwell, ") + kernel + ", " + micro_plan(encoder);
        if (!only) ok(how.empty(), name + ": no report without a fault", all);
        for (size_t i = 0; i < faults.size(); i++) {
            if (faults[i].second != kernel || (only && only != (int)i + 1)) continue;
            fault = (int)i + 1;
            number++;
            faults_planted++;
            how.clear();
            for (uint64_t seed = 0; seed < 12 && how.empty(); seed++) how = seen(encoder, (seed + 6) % 12, seed < 10, &all);
            faults_caught += !how.empty();
            if (only) printf("%s", all.c_str());
            ok(!how.empty(), "Blackwell: " + faults[i].first + ": " + how, "it is not seen");
        }
        micro_close(encoder);
    }
    if (!only) ok(faults.size() > 10 && number == (int)faults.size(), "every fault of planted_blackwell.txt was planted", "");
    return finish("Blackwell's kernel with faults");
}
