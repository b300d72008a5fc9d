/* Times a text tower on the CPU: bench_text MODEL TEXTS THREADS [PRECISION]

   Reads the model, encodes a few texts to warm up, then TEXTS texts of random ids, as many as the model takes at most, in one call. Prints
   seconds, processor seconds of all threads, and the first four numbers of the last row. tools/bench_text.py sets it beside PyTorch. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

enum { SHORTEST = 3, LONGEST = 12 }; /* ids of a short text, in front of zeros */

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
static void stop_unless(int good, const char *reason) {
    if (good) return;
    fprintf(stderr, "bench_text: %s\n", reason);
    exit(1);
}

/* The rule of tools/bench_text.py. */
static void make_ids(uint32_t *ids, uint32_t texts, uint32_t length, uint32_t vocabulary) {
    uint32_t state = 1;
    for (uint32_t i = 0; i < texts; i++) {
        uint32_t words;
        state = state * 1664525u + 1013904223u;
        words = SHORTEST + (state >> 8) % (LONGEST - SHORTEST + 1);
        for (uint32_t k = 0; k < length; k++) {
            state = state * 1664525u + 1013904223u;
            ids[(size_t)i * length + k] = k < words ? 4 + (state >> 8) % (vocabulary - 4) : 0;
        }
    }
}

static void encode(mgv_engine *engine, const mgv_text *texts, uint32_t count, float *rows, uint64_t room) {
    mgv_encode_desc desc = {0};
    mgv_output output = {0};
    mgv_error error;
    output.kind = MGV_OUTPUT_TEXT;
    output.data = rows;
    output.capacity = room;
    desc.texts = texts;
    desc.text_count = count;
    desc.outputs = &output;
    desc.output_count = 1;
    stop_unless(mgv_encode_blocking(engine, &desc, &error) == MGV_OK, error.message);
}

int main(int argc, char **argv) {
    const uint32_t count = argc >= 4 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
    const uint32_t threads = argc >= 4 ? (uint32_t)strtoul(argv[3], NULL, 10) : 0;
    mgv_model *model = NULL;
    mgv_engine *engine = NULL;
    mgv_threads *pool = NULL;
    mgv_model_desc desc = {0};
    mgv_engine_desc engine_desc = {0};
    mgv_model_info info;
    mgv_error error;
    mgv_text *texts;
    uint32_t *ids;
    float *rows;
    double wall, processor;
    stop_unless(count > 0 && threads > 0, "usage: bench_text MODEL TEXTS THREADS [PRECISION]");
    desc.path = argv[1];
    desc.tower = MGV_TOWER_TEXT;
    stop_unless(mgv_model_open(&model, &desc, &error) == MGV_OK, error.message);
    mgv_model_get_info(model, &info);
    stop_unless(mgv_threads_create(&pool, threads, NULL, &error) == MGV_OK, error.message);
    engine_desc.backend = MGV_BACKEND_CPU;
    engine_desc.max_images = count;
    stop_unless(argc < 5 || mgv_precision_of_name(argv[4], &engine_desc.precision, &error) == MGV_OK, error.message);
    engine_desc.parallel = mgv_threads_parallel_for(pool);
    stop_unless(mgv_engine_create(&engine, model, &engine_desc, &error) == MGV_OK, error.message);
    ids = malloc((size_t)count * info.max_text_tokens * sizeof *ids);
    texts = calloc(count, sizeof *texts);
    rows = malloc((size_t)count * info.text_width * sizeof *rows);
    stop_unless(ids && texts && rows, "out of memory");
    make_ids(ids, count, info.max_text_tokens, info.vocabulary);
    for (uint32_t i = 0; i < count; i++) {
        texts[i].ids = ids + (size_t)i * info.max_text_tokens;
        texts[i].id_count = info.max_text_tokens;
    }
    encode(engine, texts, count < 4 ? count : 4, rows, (uint64_t)count * info.text_width);
    wall = now(CLOCK_MONOTONIC);
    processor = now(CLOCK_PROCESS_CPUTIME_ID);
    encode(engine, texts, count, rows, (uint64_t)count * info.text_width);
    printf("%.3f %.3f", now(CLOCK_MONOTONIC) - wall, now(CLOCK_PROCESS_CPUTIME_ID) - processor);
    for (int k = 0; k < 4; k++) printf(" %.9g", (double)rows[(size_t)(count - 1) * info.text_width + (size_t)k]);
    putchar('\n');
    mgv_engine_destroy(engine);
    mgv_threads_destroy(pool);
    mgv_model_close(model);
    free(ids);
    free(texts);
    free(rows);
    return 0;
}
