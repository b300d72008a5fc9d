/* Several threads, one model. A model never changes, so threads share it; an engine belongs to one thread at a time, so
   each thread makes its own. Every thread encodes the same picture and all must get the same bits.

       threads MODEL PICTURE */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define STB_IMAGE_IMPLEMENTATION
#include <stb/stb_image.h>
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

enum { THREADS = 4 };

typedef struct worker {
    pthread_t thread;
    const mgv_model *model;
    const mgv_image *image;
    float *embedding;
    uint32_t width;
    mgv_error error;
    mgv_result result;
} worker;

static void *work(void *argument) {
    worker *w = argument;
    mgv_engine *engine = NULL;
    mgv_output output = {0};
    mgv_encode_desc encode = {0};
    output.kind = MGV_OUTPUT_POOLED;
    output.data = w->embedding;
    output.capacity = w->width;
    encode.images = w->image;
    encode.image_count = 1;
    encode.outputs = &output;
    encode.output_count = 1;
    w->result = mgv_engine_create(&engine, w->model, NULL, &w->error);
    if (w->result == MGV_OK) w->result = mgv_encode_blocking(engine, &encode, &w->error);
    mgv_engine_destroy(engine);
    return NULL;
}

int main(int argc, char **argv) {
    worker workers[THREADS];
    mgv_model *model = NULL;
    mgv_model_desc desc = {0};
    mgv_model_info info;
    mgv_image image = {0};
    mgv_error error = {0};
    int width, height, failed = 0;
    if (argc != 3) {
        fprintf(stderr, "usage: threads MODEL PICTURE\n");
        return 1;
    }
    desc.path = argv[1];
    if (mgv_model_open(&model, &desc, &error) != MGV_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    image.pixels = stbi_load(argv[2], &width, &height, NULL, 3);
    if (!image.pixels) {
        fprintf(stderr, "cannot read %s\n", argv[2]);
        mgv_model_close(model);
        return 1;
    }
    image.width = (uint32_t)width;
    image.height = (uint32_t)height;
    mgv_model_get_info(model, &info);

    memset(workers, 0, sizeof workers);
    for (int i = 0; i < THREADS; i++) {
        worker *w = &workers[i];
        w->model = model;
        w->image = &image;
        w->width = info.pooled_width;
        w->result = MGV_ERROR_NOMEM;
        w->embedding = calloc(info.pooled_width, sizeof(float));
        if (!w->embedding || pthread_create(&w->thread, NULL, work, w) != 0) return 1;
    }
    for (int i = 0; i < THREADS; i++) {
        worker *w = &workers[i];
        pthread_join(w->thread, NULL);
        if (w->result != MGV_OK) fprintf(stderr, "thread %d: %s\n", i, w->error.message);
        failed |= w->result != MGV_OK || memcmp(w->embedding, workers[0].embedding, info.pooled_width * sizeof(float)) != 0;
    }
    printf(failed ? "the threads did not agree\n" : "%d threads, one model: the same %u floats from each\n", THREADS, info.pooled_width);

    for (int i = 0; i < THREADS; i++) free(workers[i].embedding);
    stbi_image_free((void *)image.pixels);
    mgv_model_close(model);
    return failed;
}
