/* Planted faults in the kernels of towers and of wide heads (planted_ranges.txt): each is seen, as a report of the model, a verdict of the
   kernel's watchdog or rows that are off, on a shape that runs in the kernel it is to show in and without faults has nothing to report.
   Speaks TAP; ends with what was run. test_planted SHAPE: its faults alone; NUMBER: one fault, with all that is said of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fstream>

#include "encode.h"
#include "planted_ranges.h"
#include "tap.h"

static int fault; /* 0: none */
extern "C" int planted(int number) { return number == fault; }

struct Shape {
    const char *name;
    const char *kernel; /* that it runs in */
    MicroShape shape;
};
static MicroShape tower(const char *family, const char *sizes, uint32_t images, uint32_t hidden, uint32_t head_dim, uint32_t mlp) {
    MicroShape shape = {0, 8, hidden, mlp, 1, images, 400, 0, 1, 2, 1000, 1, true, head_dim, false};
    shape.family = family;
    shape.sizes = sizes;
    shape.table_side = 5;
    shape.merged = 72;
    shape.deepstack = family == std::string("qwen3");
    return shape;
}
/* Pictures that share row tiles, over two layers; windows within frames; a row tile for each cluster and more, in tiles of 256 columns; K
   shared out over clusters; heads of 128 columns, of pictures of any size and of one, whose last tile of queries has one block of 64;
   few in the latency regime, in tiles of both kernels for all shapes, too: with wide heads, under a pooling head, of rows that end within
   64 columns. */
static std::vector<Shape> shapes(void) {
    MicroShape mixed = tower("qwen3", "4x2 6x10*3 8x8 10x12 2x4", 5, 192, 64, 200),
               windows = tower("qwen2.5", "10x14 6x6", 2, 160, 80, 172), wide = tower("qwen2.5", "16x16 10x14", 2, 320, 80, 300);
    mixed.layers = windows.layers = 2;
    windows.mean = 1;
    wide.clusters = 1;
    MicroShape shares = tower("qwen3", "10x12 4x6", 2, 256, 64, 320); /* of two blocks, two and one */
    shares.layers = 2;
    shares.clusters = 3;
    shares.shares = 3;
    MicroShape heads = tower("qwen3", "4x2 6x10*3 8x14 2x4", 4, 256, 128, 200);
    heads.layers = 2;
    MicroShape online = {96, 8, 256, 72, 1, 2, 2, 2, 1, 2, 1000, 1, true, 128, false};
    online.family = "dinov3";
    MicroShape latency = mixed; /* a range of two pairs of blocks of keys, and such with less than a block */
    latency.sizes = "4x2 6x10 14x20 2x4";
    latency.images = 4;
    latency.layers = 1;
    latency.regime = 2;
    latency.clusters = 4;
    MicroShape few = windows; /* three heads, whose keys end within 64 columns */
    few.hidden = 240;
    few.layers = 1;
    few.regime = 2;
    few.clusters = 4;
    MicroShape few_heads = latency;
    few_heads.hidden = 256;
    few_heads.head_dim = 128;
    MicroShape pooled = tower("naflex", "3x5 9x15 19x20 1x1 2x2 5x5 4x4", 7, 192, 64, 200); /* a cluster's sums are ten stages, of eight */
    pooled.max_images = 600;
    pooled.merged = 0;
    pooled.rows = false; /* copies of rows, which all wait for each other, would order scores before sums */
    pooled.head = true;
    pooled.probe = 4; /* so that blocks of tokens differ in their largest score */
    pooled.regime = 2;
    pooled.clusters = 4;
    MicroShape ragged = pooled;
    ragged.sizes = "3x5 9x15";
    ragged.images = 2;
    ragged.rows = true;
    ragged.mean = 1;
    ragged.layers = 2;
    ragged.hidden = 144;
    ragged.head_dim = 72;
    MicroShape turned = {64, 16, 192, 200, 1, 3, 4, 2, 1, 4, 1000, 2}; /* without rows: with such it ran in throughput */
    turned.family = "dinov3";
    turned.registers = 4;
    const MicroShape thin = {128, 16, 512, 72, 1, 1, 1, 1, 1, 4, 1000, 2}; /* of one image: patches and attended rows */
    static const char *const throughput = "megavit_encode_tower_sm_90a", *const throughput_wide = "megavit_encode_wide_sm_90a",
                            *const all = "megavit_encode_latency_all_sm_90a";
    return {{"mixed", throughput, mixed},
            {"windows", throughput, windows},
            {"wide", throughput, wide},
            {"shares", throughput, shares},
            {"wide-heads", throughput_wide, heads},
            {"wide-online", throughput_wide, online},
            {"latency", "megavit_encode_latency_tower_sm_90a", latency},
            {"latency-windows", all, few},
            {"latency-turned", "megavit_encode_latency_turned_sm_90a", turned},
            {"latency-wide", "megavit_encode_latency_wide_sm_90a", few_heads},
            {"latency-pooled", all, pooled},
            {"latency-ragged", all, ragged},
            {"latency-thin", "megavit_encode_latency_104_sm_90a", thin}};
}

/* How a launch with the fault is seen under one seed; empty: it is not. all: what is said of it. */
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
/* Under one of a few seeds, of the most delayed order first: by order alone, then with numbers. */
static std::string seen_at_all(MicroEncoder *encoder, std::string *all) {
    std::string how;
    for (uint64_t i = 0; i < 6 && how.empty(); i++) how = seen(encoder, i + 6, true, all);
    for (uint64_t i = 0; i < 2 && how.empty(); i++) how = seen(encoder, i + 6, false, all);
    return how;
}

/* "", or what it ran in that it was not to run in. */
static std::string elsewhere(const MicroEncoder *encoder, const Shape &shape) {
    const std::string kernel = micro_kernel(encoder);
    return kernel == shape.kernel ? "" : std::string("it is of ") + shape.kernel + " and ran in " + kernel;
}

/* The faults of a shape. only: but for this one, if it is not 0. */
struct Fault {
    std::string what, shape;
};
static void test_shape(const Shape &shape, const std::vector<Fault> &faults, int only) {
    std::string why, all;
    MicroEncoder *encoder = micro_open(shape.shape, &why);
    if (!encoder) {
        ok(false, "the encoder opens", why);
        return;
    }
    fault = 0;
    if (!only) {
        if (!seen_at_all(encoder, &all).empty()) why = all;
        const std::string where = elsewhere(encoder, shape);
        if (!where.empty()) why = where + "\n" + why;
        ok(why.empty(), std::string("towers, ") + shape.name + ", " + micro_plan(encoder) + ": no report without a fault", why);
    }
    const bool clean = why.empty();
    for (int number = 1; number <= (int)faults.size(); number++) {
        if (faults[number - 1].shape != shape.name || (only && only != number)) continue;
        fault = number;
        faults_planted++;
        const std::string how = clean ? seen_at_all(encoder, &all) : "";
        why = !clean ? "there is a report without it" : how.empty() ? "it is not seen" : elsewhere(encoder, shape);
        faults_caught += why.empty();
        if (only) printf("%s", all.c_str());
        ok(why.empty(), "towers: " + faults[number - 1].what + ": " + how, why);
    }
    micro_close(encoder);
}

int main(int count, char **argument) {
    const std::string chosen = count > 1 ? argument[1] : "";
    const int only = atoi(chosen.c_str());
    std::vector<Fault> faults;
    std::ifstream table("tests/machine/planted_ranges.txt");
    for (std::string line; std::getline(table, line);) {
        const size_t colon = line.rfind(": ");
        if (line.compare(0, 2, "= ") == 0 && colon != std::string::npos)
            faults.push_back({line.substr(2, colon - 2), line.substr(colon + 2)});
    }
    for (const Shape &shape : shapes()) {
        const bool has = only > 0 && only <= (int)faults.size() && faults[only - 1].shape == shape.name;
        if (chosen.empty() || chosen == shape.name || has) test_shape(shape, faults, only);
    }
    if (chosen.empty()) ok(faults.size() > 20 && faults_planted == faults.size(), "every fault of planted_ranges.txt was planted", "");
    return finish();
}
