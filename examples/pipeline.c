/* Pictures ready before the engine wants them: one thread reads, decodes and resizes the next batch while another encodes this one. More
   threads of the first kind are more of the same; what they share is a queue of two batches. The library has no threads of its own.

       pipeline MODEL PICTURE... */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#define STB_IMAGE_IMPLEMENTATION
#include <stb/stb_image.h>
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

enum { BATCH = 4, BATCHES = 2 };

typedef struct batch {
    mgv_image images[BATCH];     /* prepared: of the model's size, RGB */
    unsigned char *pixels[BATCH];
    const char *names[BATCH];
    uint32_t count;
} batch;

typedef struct queue {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    batch batches[BATCHES];
    unsigned filled, emptied;    /* batches, since the start; filled - emptied of them wait */
    int ended;
    const mgv_model *model;
    char **names;
    int count;
} queue;

/* Fills pixels with the picture at the model's size. */
static int prepare(const queue *q, const char *name, unsigned char *pixels, uint64_t capacity, mgv_image *prepared) {
    mgv_image image = {0};
    mgv_error error = {0};
    int width, height;
    unsigned char *decoded = stbi_load(name, &width, &height, NULL, 4);
    mgv_result result = MGV_ERROR_IO;
    if (decoded) {
        image.format = MGV_PIXELS_RGBA8;
        image.pixels = decoded;
        image.width = (uint32_t)width;
        image.height = (uint32_t)height;
        result = mgv_model_prepare(q->model, &image, MGV_RESIZE_PILLOW, 0, 0, pixels, capacity, prepared, &error);
    }
    stbi_image_free(decoded);
    if (result != MGV_OK) fprintf(stderr, "%s: %s\n", name, decoded ? error.message : "cannot read the picture");
    return result == MGV_OK;
}

static void *produce(void *argument) {
    queue *q = argument;
    mgv_model_info info;
    int next = 0;
    mgv_model_get_info(q->model, &info);
    while (next < q->count) {
        batch *b = &q->batches[q->filled % BATCHES];
        pthread_mutex_lock(&q->lock);
        while (q->filled - q->emptied == BATCHES) pthread_cond_wait(&q->changed, &q->lock);
        pthread_mutex_unlock(&q->lock);
        for (b->count = 0; b->count < BATCH && next < q->count; next++) {
            b->names[b->count] = q->names[next];
            b->count += (uint32_t)prepare(q, q->names[next], b->pixels[b->count], (uint64_t)3 * info.image_size * info.image_size,
                                          &b->images[b->count]);
        }
        pthread_mutex_lock(&q->lock);
        q->filled++;
        q->ended = next == q->count;
        pthread_cond_signal(&q->changed);
        pthread_mutex_unlock(&q->lock);
    }
    return NULL;
}

static int encode(mgv_engine *engine, const batch *b, float *rows, uint32_t width) {
    mgv_output output = {0};
    mgv_encode_desc desc = {0};
    mgv_error error = {0};
    output.kind = MGV_OUTPUT_POOLED;
    output.data = rows;
    output.capacity = (uint64_t)width * BATCH;
    desc.images = b->images;
    desc.image_count = b->count;
    desc.outputs = &output;
    desc.output_count = 1;
    if (b->count == 0) return 1;
    if (mgv_encode_blocking(engine, &desc, &error) != MGV_OK) return fprintf(stderr, "%s\n", error.message), 0;
    for (uint32_t i = 0; i < b->count; i++) printf("%s %.9g %.9g ...\n", b->names[i], (double)rows[i * width], (double)rows[i * width + 1]);
    return 1;
}

int main(int argc, char **argv) {
    static queue q = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, {{{{0}}, {0}, {0}, 0}}, 0, 0, 0, NULL, NULL, 0};
    mgv_model *model = NULL;
    mgv_engine *engine = NULL;
    mgv_model_info info = {0};
    mgv_model_desc model_desc = {0};
    mgv_engine_desc engine_desc = {0};
    mgv_error error = {0};
    pthread_t producer;
    float *rows;
    int good = 1;
    if (argc < 3) return fprintf(stderr, "usage: pipeline MODEL PICTURE...\n"), 1;
    model_desc.path = argv[1];
    engine_desc.max_images = BATCH;
    if (mgv_model_open(&model, &model_desc, &error) != MGV_OK || mgv_engine_create(&engine, model, &engine_desc, &error) != MGV_OK)
        return fprintf(stderr, "%s\n", error.message), 1;
    mgv_model_get_info(model, &info);
    if (!info.image_size || !info.pooled_width) return fprintf(stderr, "this example wants one size of pictures and a pooled vector\n"), 1;
    rows = malloc((size_t)info.pooled_width * BATCH * sizeof *rows);
    for (int i = 0; i < BATCHES * BATCH; i++)
        q.batches[i / BATCH].pixels[i % BATCH] = malloc((size_t)3 * info.image_size * info.image_size);
    q.model = model;
    q.names = argv + 2;
    q.count = argc - 2;
    if (!rows || pthread_create(&producer, NULL, produce, &q) != 0) return fprintf(stderr, "no memory or no thread\n"), 1;
    for (;;) {
        pthread_mutex_lock(&q.lock);
        while (q.filled == q.emptied && !q.ended) pthread_cond_wait(&q.changed, &q.lock);
        if (q.filled == q.emptied) break; /* and ended */
        pthread_mutex_unlock(&q.lock);
        if (good) good = encode(engine, &q.batches[q.emptied % BATCHES], rows, info.pooled_width);
        pthread_mutex_lock(&q.lock);
        q.emptied++;
        pthread_cond_signal(&q.changed);
        pthread_mutex_unlock(&q.lock);
    }
    pthread_mutex_unlock(&q.lock);
    pthread_join(producer, NULL);
    for (int i = 0; i < BATCHES * BATCH; i++) free(q.batches[i / BATCH].pixels[i % BATCH]);
    free(rows);
    mgv_engine_destroy(engine);
    mgv_model_close(model);
    return !good;
}
