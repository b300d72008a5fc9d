/* What MXFP8 costs in accuracy, on the CPU's twin of it: cosines of pooled rows (tokens where there are none) and of each patch's row,
   between float32 and products in MXFP8, for all four products of a layer, each of them alone, and all but one or two. With
   -DMGV__MX_SCALE=floor_scale the scales are those of OCP's rule, which rounds down. How:

       make build/precision build/precision-floor
       build/precision MODEL_DIR [PICTURE.raw ...]

   A picture is RGB bytes of the model's size and nothing else; without any, 8 made ones. */
#include <stdint.h>
#include <string.h>
static inline uint32_t floor_scale(float largest) {
    uint32_t bits;
    memcpy(&bits, &largest, 4);
    return bits >> 23 > 8 ? (bits >> 23) - 8 : 0;
}
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

#include <stdio.h>

enum { QKV = 1, OUT = 2, FC1 = 4, FC2 = 8, ALL = 15, MADE = 8 };
typedef struct choice {
    const char *name;
    uint32_t ops;
} choice;
static const choice choices[] = {
    {"qkv, out, fc1, fc2", ALL}, {"qkv, fc1", QKV | FC1}, {"out, fc2", OUT | FC2}, {"all but fc2", ALL - FC2}, {"all but out", ALL - OUT},
    {"all but fc1", ALL - FC1}, {"all but qkv", ALL - QKV}, {"qkv", QKV}, {"out", OUT}, {"fc1", FC1}, {"fc2", FC2}};
enum { CHOICES = sizeof choices / sizeof choices[0] };

static uint32_t bit_of(const mgv__program *program, uint32_t i) {
    if (!mgv__op_takes_mx(program, i, MGV_PRECISION_MXFP8)) return 0;
    if (mgv__op_norm(program, i)) return program->ops[i].activation == MGV__ACT_NONE ? QKV : FC1;
    return program->ops[i - 1].kind == MGV__OP_ATTENTION ? OUT : FC2;
}

/* One picture through the list, with the products of `ops` in MXFP8. Rows of the operation `last` end in `out`. */
static void run(mgv_engine *engine, const mgv_image *image, uint32_t ops, uint32_t last) {
    const mgv__program *program = &engine->model->program;
    mgv__cpu_run r;
    mgv__cpu_job job;
    uint32_t i;
    engine->images[0] = *image;
    engine->job.image = 0;
    engine->job.stage = MGV__JOB_PICTURE;
    while (engine->job.stage < MGV__JOB_OPERATION) mgv__job_step(engine);
    mgv__job_cpu_run(engine, &r);
    for (i = 0; i <= last; i++) {
        r.precision = bit_of(program, i) & ops ? MGV_PRECISION_MXFP8 : MGV_PRECISION_AUTO;
        mgv__cpu_begin(&job, &r, &program->ops[i]);
        while (!mgv__cpu_step(&job, UINT64_MAX)) {}
    }
}

static double cosine(const float *a, const float *b, uint32_t n) {
    double ab = 0, aa = 0, bb = 0;
    uint32_t i;
    for (i = 0; i < n; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return ab / sqrt(aa * bb);
}

/* The tap of pooled rows, or of tokens. */
static const mgv__tap *tap_of(const mgv__program *program, mgv_output_kind kind) {
    uint32_t i;
    for (i = 0; i < program->tap_count; i++)
        if (program->taps[i].kind == kind) return &program->taps[i];
    return NULL;
}

typedef struct sums {
    double pooled, least, patches;
    uint64_t pictures, rows;
} sums;

static void compare(mgv_engine *engine, const mgv_image *image, float *reference, float *patches, sums *s) {
    const mgv__program *program = &engine->model->program;
    const mgv__tap *tokens = tap_of(program, MGV_OUTPUT_TOKENS), *pooled = tap_of(program, MGV_OUTPUT_POOLED);
    const mgv__tap *end = pooled ? pooled : tokens;
    const uint32_t width = program->buffers[end->buffer].columns;
    uint32_t c, row, rows;
    run(engine, image, 0, tokens->op);
    rows = mgv__geometry_rows(&engine->geometry, program->buffers[tokens->buffer].rows);
    memcpy(patches, engine->buffers[tokens->buffer], (size_t)rows * width * sizeof *patches);
    run(engine, image, 0, end->op);
    memcpy(reference, engine->buffers[end->buffer], width * sizeof *reference);
    for (c = 0; c < CHOICES; c++) {
        double one;
        run(engine, image, choices[c].ops, tokens->op);
        for (row = 0; row < rows; row++)
            s[c].patches += cosine(patches + (size_t)row * width, engine->buffers[tokens->buffer] + (size_t)row * width, width);
        s[c].rows += rows;
        run(engine, image, choices[c].ops, end->op);
        one = cosine(reference, engine->buffers[end->buffer], width);
        if (s[c].pictures++ == 0 || one < s[c].least) s[c].least = one;
        s[c].pooled += one;
    }
}

static int fail(const char *what, const char *why) {
    fprintf(stderr, "precision: %s: %s\n", what, why);
    return 1;
}

/* Waves and blocks of colour, another for each number. */
static void make_picture(uint8_t *pixels, uint32_t side, uint32_t number) {
    uint32_t x, y, c, state = number * 2654435761u + 1;
    for (y = 0; y < side; y++)
        for (x = 0; x < side; x++)
            for (c = 0; c < 3; c++) {
                const double wave = sin((x * (number + 1) + y * (c + 1)) * 0.06) * 60, block = (x / 37 + y / 29 * 3 + c + number) % 5 * 30;
                state = state * 1664525u + 1013904223u;
                pixels[(y * side + x) * 3 + c] = (uint8_t)(70 + wave * 0.9 + block * 0.8 + (state >> 28));
            }
}

int main(int argc, char **argv) {
    mgv_model_desc model_desc;
    mgv_engine_desc desc;
    mgv_model *model;
    mgv_engine *engine;
    mgv_error error;
    mgv_image image;
    sums s[CHOICES];
    uint8_t *pixels;
    float *reference, *patches;
    uint32_t side, i, count = argc > 2 ? (uint32_t)(argc - 2) : (uint32_t)MADE;
    memset(&model_desc, 0, sizeof model_desc);
    memset(&desc, 0, sizeof desc);
    memset(&image, 0, sizeof image);
    memset(s, 0, sizeof s);
    if (argc < 2) return fail("usage", "precision MODEL_DIR [PICTURE.raw ...]");
    model_desc.path = argv[1];
    desc.backend = MGV_BACKEND_CPU;
    desc.precision = MGV_PRECISION_MXFP8; /* refuses models that have none; what each operation takes is said anew */
    if (mgv_model_open(&model, &model_desc, &error) != MGV_OK || mgv_engine_create(&engine, model, &desc, &error) != MGV_OK)
        return fail(argv[1], error.message);
    side = model->config.image_size;
    image.width = image.height = side;
    image.pixels = pixels = (uint8_t *)malloc((size_t)side * side * 3);
    reference = (float *)malloc(model->config.hidden * sizeof *reference);
    patches = (float *)malloc((size_t)engine->desc.max_tokens * model->config.hidden * sizeof *patches);
    if (!pixels || !reference || !patches) return fail("memory", "there is too little");
    for (i = 0; i < count; i++) {
        if (argc > 2) {
            FILE *file = fopen(argv[2 + i], "rb");
            if (!file || fread(pixels, 1, (size_t)side * side * 3, file) != (size_t)side * side * 3)
                return fail(argv[2 + i], "not so many bytes as the model's pictures have");
            fclose(file);
        } else {
            make_picture(pixels, side, i);
        }
        compare(engine, &image, reference, patches, s);
    }
    printf("%-20s %10s %10s %12s   (%u pictures)\n", "in MXFP8", "pooled", "least", "mean patch", count);
    for (i = 0; i < CHOICES; i++)
        printf("%-20s %10.6f %10.6f %12.6f\n", choices[i].name, s[i].pooled / (double)s[i].pictures, s[i].least,
               s[i].patches / (double)s[i].rows);
    mgv_engine_destroy(engine);
    mgv_model_close(model);
    free(pixels);
    free(reference);
    free(patches);
    return 0;
}
