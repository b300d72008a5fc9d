/* Planted faults in the kernels of towers and of wide heads (planted_ranges.txt): each is seen, as a report of the model, a verdict of the
   kernel's watchdog or rows that are off. Speaks TAP; ends with what was run. test_planted NUMBER: one fault, with all that is said of it. */
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
    MicroShape mixed = tower("qwen3", "4x2 6x10*3 8x8 10x12 2x4", 5, 192, 64, 200), windows = tower("qwen2.5", "10x14 6x6", 2, 160, 80, 172),
               wide = tower("qwen2.5", "16x16 10x14", 2, 320, 80, 300);
    mixed.layers = windows.layers = 2;
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
    MicroShape few = windows;
    few.layers = 1;
    few.regime = 2;
    few.clusters = 4;
    MicroShape few_heads = few;
    few_heads.family = "qwen3";
    few_heads.sizes = "4x2 6x10 14x20 2x4";
    few_heads.images = 4;
    few_heads.hidden = 256;
    few_heads.head_dim = 128;
    MicroShape pooled = tower("naflex", "3x5 9x15 19x20 1x1", 4, 192, 64, 200); /* 15, 135, 380 tokens and one */
    pooled.max_images = 600;
    pooled.merged = 0;
    pooled.head = true;
    pooled.regime = 2;
    pooled.clusters = 4;
    MicroShape ragged = pooled;
    ragged.sizes = "3x5 9x15";
    ragged.images = 2;
    ragged.layers = 2;
    ragged.hidden = 144;
    ragged.head_dim = 72;
    MicroShape turned = {64, 16, 192, 200, 1, 3, 4, 2, 1, 4, 1000, 2, true};
    turned.family = "dinov3";
    turned.registers = 4;
    return {{"mixed", mixed}, {"windows", windows}, {"wide", wide}, {"shares", shares}, {"wide-heads", heads}, {"wide-online", online},
            {"latency", latency}, {"latency-windows", few}, {"latency-turned", turned}, {"latency-wide", few_heads},
            {"latency-pooled", pooled}, {"latency-ragged", ragged}};
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

int main(int count, char **argument) {
    const int only = count > 1 ? atoi(argument[1]) : 0;
    const std::vector<Shape> all_shapes = shapes();
    std::vector<std::pair<std::string, std::string>> faults; /* what, shape */
    std::ifstream table("tests/machine/planted_ranges.txt");
    for (std::string line; std::getline(table, line);) {
        const size_t colon = line.rfind(": ");
        if (line.compare(0, 2, "= ") == 0 && colon != std::string::npos) faults.push_back({line.substr(2, colon - 2), line.substr(colon + 2)});
    }
    for (const Shape &shape : all_shapes) {
        std::string why, all;
        MicroEncoder *encoder = micro_open(shape.shape, &why);
        if (!encoder) {
            ok(false, "the encoder opens", why);
            continue;
        }
        fault = 0;
        if (!only && !seen_at_all(encoder, &all).empty()) why = all;
        if (!only) ok(why.empty(), std::string("towers, ") + shape.name + ", " + micro_plan(encoder) + ": no report without a fault", why);
        for (size_t number = 0; number < faults.size(); number++) {
            if (faults[number].second != shape.name || (only && only != (int)number + 1)) continue;
            fault = (int)number + 1;
            faults_planted++;
            const std::string how = seen_at_all(encoder, &all);
            faults_caught += !how.empty();
            if (only) printf("%s", all.c_str());
            ok(!how.empty(), "towers: " + faults[number].first + ": " + how, "it is not seen");
        }
        micro_close(encoder);
    }
    if (!only) ok(faults.size() > 20 && faults_planted == faults.size(), "every fault of planted_ranges.txt was planted", "");
    return finish();
}
