/* One thread, 60 frames a second, and embeddings on the side: what is left of a frame goes to mgv_poll, at most BUDGET_MS of it. A step of
   it is a millisecond or two, so a frame is never late by more than that.

       game_loop MODEL PICTURE... */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#define STB_IMAGE_IMPLEMENTATION
#include <stb/stb_image.h>
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

#define FRAME_MS (1000.0 / 60)
#define BUDGET_MS 4.0

typedef struct costs {
    unsigned frames, steps;
    double busy_ms, longest_step_ms, longest_frame_ms;
} costs;

static void stop_unless(int good, const char *reason) {
    if (good) return;
    fprintf(stderr, "%s\n", reason);
    exit(1);
}

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* The game itself; here it only waits for the next frame. */
static void play_until(double ms) {
    const double left = ms - now_ms();
    struct timespec t;
    if (left <= 0) return;
    t.tv_sec = 0;
    t.tv_nsec = (long)(left * 1e6);
    nanosleep(&t, NULL);
}

/* Steps of the encode under way until it ends or the budget of this frame is spent; one always fits. */
static mgv_status encode_between_frames(mgv_engine *engine, costs *c, mgv_error *error) {
    const double begin = now_ms();
    double before = begin, spent = 0;
    mgv_status status = MGV_STATUS_RUNNING;
    while ((status == MGV_STATUS_RUNNING || status == MGV_STATUS_QUEUED) && spent < BUDGET_MS) {
        double step;
        status = mgv_poll(engine, error);
        step = now_ms() - before;
        before += step;
        spent = before - begin;
        c->steps++;
        if (step > c->longest_step_ms) c->longest_step_ms = step;
    }
    c->busy_ms += spent;
    if (spent > c->longest_frame_ms) c->longest_frame_ms = spent;
    return status;
}

static void embed(mgv_engine *engine, const char *name, float *row, uint32_t width, double *next_frame) {
    mgv_image image = {0};
    mgv_output output = {0};
    mgv_encode_desc encode = {0};
    mgv_error error = {0};
    mgv_status status = MGV_STATUS_RUNNING;
    costs c = {0};
    int w, h;
    image.pixels = stbi_load(name, &w, &h, NULL, 4); /* a game has its picture in memory already */
    stop_unless(image.pixels != NULL, "cannot read the picture");
    image.format = MGV_PIXELS_RGBA8;
    image.width = (uint32_t)w;
    image.height = (uint32_t)h;
    output.kind = MGV_OUTPUT_POOLED;
    output.data = row;
    output.capacity = width;
    encode.images = &image;
    encode.image_count = 1;
    encode.outputs = &output;
    encode.output_count = 1;
    stop_unless(mgv_encode(engine, &encode, &error) == MGV_OK, error.message); /* the pixels stay until it is done */
    while (status == MGV_STATUS_RUNNING || status == MGV_STATUS_QUEUED) {
        play_until(*next_frame);
        *next_frame = now_ms() + FRAME_MS;
        status = encode_between_frames(engine, &c, &error);
        c.frames++;
    }
    stop_unless(status == MGV_STATUS_DONE, error.message);
    printf("%s  %u frames, %u steps, %.2f ms a frame, at most %.2f, a step at most %.2f  %.6g %.6g\n", name, c.frames, c.steps,
           c.busy_ms / c.frames, c.longest_frame_ms, c.longest_step_ms, (double)row[0], (double)row[1]);
    stbi_image_free((void *)image.pixels);
}

int main(int argc, char **argv) {
    mgv_model *model = NULL;
    mgv_engine *engine = NULL;
    mgv_model_info info;
    mgv_model_desc model_desc = {0};
    mgv_engine_desc engine_desc = {0};
    mgv_error error = {0};
    double next_frame = now_ms();
    float *row;
    int i;
    stop_unless(argc >= 3, "usage: game_loop MODEL PICTURE...");
    model_desc.path = argv[1];
    engine_desc.backend = MGV_BACKEND_CPU;
    stop_unless(mgv_model_open(&model, &model_desc, &error) == MGV_OK, error.message);
    stop_unless(mgv_engine_create(&engine, model, &engine_desc, &error) == MGV_OK, error.message);
    mgv_model_get_info(model, &info);
    stop_unless(info.pooled_width > 1, "this model has no pooled embedding");
    row = malloc(info.pooled_width * sizeof(float));
    stop_unless(row != NULL, "out of memory");
    for (i = 2; i < argc; i++) embed(engine, argv[i], row, info.pooled_width, &next_frame);
    free(row);
    mgv_engine_destroy(engine);
    mgv_model_close(model);
    return 0;
}
