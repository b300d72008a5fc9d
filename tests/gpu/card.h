/* What the language models' tests on a card share. PROGRAM: a test's name. */
#ifndef MGV_TESTS_GPU_CARD_H
#define MGV_TESTS_GPU_CARD_H
#define MEGAVIT_CUDA
#define MEGAVIT_TEXT
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

#include <stdio.h>
#include <stdlib.h>

static void fail(const char *what, const mgv_error *error) {
    fprintf(stderr, PROGRAM ": %s: %s\n", what, error ? error->message : "");
    exit(1);
}

static char *read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    char *data;
    long bytes = -1;
    if (!file || fseek(file, 0, SEEK_END) != 0 || (bytes = ftell(file)) < 0) fail(path, NULL);
    rewind(file);
    data = (char *)malloc((size_t)bytes);
    if (!data || fread(data, 1, (size_t)bytes, file) != (size_t)bytes) fail(path, NULL);
    fclose(file);
    return data;
}

static int failures;
static void ok(int passed, const char *what) {
    printf("%s %s\n", passed ? "ok" : "not ok", what);
    if (!passed) failures++;
}

static double relative_l2(const float *a, const float *b, uint32_t count) {
    double difference = 0, norm = 0;
    uint32_t i;
    for (i = 0; i < count; i++) {
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    return sqrt(difference / norm);
}

/* What every part needs. */
typedef struct card {
    mgv_model *model;
    mgv_threads *threads;
    mgv_parallel_for parallel;
    char *kernels;
} card;
static card open_card(const char *directory, const char *fatbin) {
    mgv_model_desc desc;
    mgv_error error;
    card c;
    setvbuf(stdout, NULL, _IOLBF, 0);
    memset(&c, 0, sizeof c);
    c.kernels = read_file(fatbin);
    memset(&desc, 0, sizeof desc);
    desc.path = directory;
    desc.tower = MGV_TOWER_LANGUAGE;
    if (mgv_threads_create(&c.threads, 16, NULL, &error) != MGV_OK) fail("threads", &error);
    c.parallel = mgv_threads_parallel_for(c.threads);
    desc.parallel = c.parallel;
    if (mgv_model_open(&c.model, &desc, &error) != MGV_OK) fail("model", &error);
    return c;
}
static int close_card(card *c) {
    mgv_model_close(c->model);
    mgv_threads_destroy(c->threads);
    free(c->kernels);
    return failures != 0;
}

#endif
