/* What bf16 and MXFP8 cost in accuracy, on the CPU's twin of the kernel for Blackwell, which rounds what that rounds: cosines of pooled
   rows (the first token's where there are none) and of each token's row, between float32 and each set of a layer's products in MXFP8, the
   others, and all else, in bf16. With -DMGV__MX_SCALE=floor_scale the scales are those of OCP's rule, which rounds down. Last, how far rows
   that are MXFP8 before a norm have their means from zero. How:

       make build/precision build/precision-floor
       build/precision MODEL_DIR [--precision NAME ...] [--crops] [PICTURE ...]

   --precision: those alone, as mgv_precision_of_name has them; without it all sixteen that a GPU has.
   Pictures are files of any kind and size that the program was built to read; without any, 8 made ones of the model's size. --crops:
   of each picture the middle square, and two smaller ones nearer to the corners. */
#include <stdint.h>
static inline uint32_t floor_scale(uint32_t largest) { return largest >> 23 > 8 ? (largest >> 23) - 8 : 0; }
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

#include <stdio.h>
#include <unistd.h>

#include "tools/cli.h"

enum { MADE = 8, CHOICES = 16 };
/* Fewer products first. */
static mgv_precision choices[CHOICES] = {MGV_PRECISION_BF16, 1, 2, 4, 8, 3, 5, 9, 6, 10, 12, 7, 11, 13, 14, 15};
static int choice_count = CHOICES;

/* The largest |mean| of a row that MXFP8 rounds before it is normalised, in its standard deviations (MGV__MX_MEAN_RATIO), in float32. */
static double mean_ratio;
static void note_means(const mgv_engine *engine, uint32_t i) {
    const mgv__program *program = &engine->model->program;
    const mgv__op *norm = &program->ops[i];
    const uint32_t rows = mgv__geometry_rows(&engine->geometry, program->buffers[norm->source].rows);
    uint32_t row, k;
    if (norm->kind != MGV__OP_NORM || i + 1 == program->op_count || !mgv__op_takes_mx(&program->ops[i + 1], MGV_PRECISION_MXFP8)) return;
    for (row = 0; row < rows; row++) {
        const float *x = engine->buffers[norm->source] + (size_t)row * norm->inner;
        double mean = 0, squares = 0;
        for (k = 0; k < norm->inner; k++) mean += (double)x[k] / norm->inner;
        for (k = 0; k < norm->inner; k++) squares += ((double)x[k] - mean) * ((double)x[k] - mean) / norm->inner;
        if (squares > 0) mean_ratio = fmax(mean_ratio, fabs(mean) / sqrt(squares));
    }
}

/* Operations [first, last] of a picture that begin() has prepared. */
static void run(mgv_engine *engine, mgv_precision precision, uint32_t first, uint32_t last) {
    const mgv__program *program = &engine->model->program;
    mgv__cpu_run r;
    mgv__cpu_job job;
    uint32_t i;
    mgv__job_cpu_run(engine, &r);
    r.precision = precision == MGV_PRECISION_FAST ? MGV_PRECISION_AUTO : precision;
    if (precision == MGV_PRECISION_FAST) r.kernels = mgv__cpu_fast_kernels();
    for (i = first; i <= last; i++) {
        if (precision == MGV_PRECISION_AUTO) note_means(engine, i);
        mgv__cpu_begin(&job, &r, &program->ops[i]);
        while (!mgv__cpu_step(&job, UINT64_MAX)) {}
    }
}

static void begin(mgv_engine *engine, const mgv_image *image) {
    engine->images[0] = *image;
    engine->job.image = 0;
    engine->job.stage = MGV__JOB_PICTURE;
    while (engine->job.stage < MGV__JOB_OPERATION) mgv__job_step(engine);
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

/* The tokens, then the row at the end. */
static void outputs(mgv_engine *engine, const mgv_image *image, mgv_precision precision, const mgv__tap *tokens, uint32_t rows,
                    const mgv__tap *end, float *to_tokens, float *to_end) {
    const uint32_t width = engine->model->program.buffers[end->buffer].columns;
    begin(engine, image);
    run(engine, precision, 0, tokens->op);
    memcpy(to_tokens, engine->buffers[tokens->buffer], (size_t)rows * width * sizeof *to_tokens);
    if (end != tokens) run(engine, precision, tokens->op + 1, end->op);
    memcpy(to_end, engine->buffers[end->buffer], width * sizeof *to_end);
}

/* reference, patches: room for a picture's tokens and one row more, twice. */
static void compare(mgv_engine *engine, const mgv_image *image, float *reference, float *seen, sums *s) {
    const mgv__program *program = &engine->model->program;
    const mgv__tap *tokens = tap_of(program, MGV_OUTPUT_TOKENS), *pooled = tap_of(program, MGV_OUTPUT_POOLED);
    const mgv__tap *end = pooled ? pooled : tokens;
    const uint32_t width = program->buffers[end->buffer].columns;
    uint32_t row, rows;
    int c;
    begin(engine, image);
    rows = mgv__geometry_rows(&engine->geometry, program->buffers[tokens->buffer].rows);
    outputs(engine, image, MGV_PRECISION_AUTO, tokens, rows, end, reference + width, reference);
    for (c = 0; c < choice_count; c++) {
        double one;
        outputs(engine, image, choices[c], tokens, rows, end, seen + width, seen);
        for (row = 1; row <= rows; row++) s[c].patches += cosine(reference + (size_t)row * width, seen + (size_t)row * width, width);
        s[c].rows += rows;
        one = cosine(reference, seen, width);
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

/* The square of `part` of the shorter side, `x` and `y` of what is left at its left and above it. */
static mgv_image crop(const mgv_image *image, double x, double y, double part) {
    mgv_image square = *image;
    const uint32_t shorter = image->width < image->height ? image->width : image->height, side = (uint32_t)(shorter * part);
    const uint32_t left = (uint32_t)((image->width - side) * x), top = (uint32_t)((image->height - side) * y);
    const uint64_t pixel = image->bytes / ((uint64_t)image->width * image->height), row = image->width * pixel;
    square.pixels = (const uint8_t *)image->pixels + top * row + left * pixel;
    square.bytes = 0;
    square.width = square.height = side;
    square.stride = (int64_t)row;
    return square;
}

typedef struct room {
    float *reference, *seen;
    sums s[CHOICES];
} room;

static void compare_crops(mgv_engine *engine, const mgv_image *image, room *r) {
    static const double crops[][3] = {{0.5, 0.5, 1}, {0.2, 0.3, 0.6}, {0.8, 0.7, 0.5}};
    size_t i;
    for (i = 0; i < sizeof crops / sizeof crops[0]; i++) {
        const mgv_image square = crop(image, crops[i][0], crops[i][1], crops[i][2]);
        compare(engine, &square, r->reference, r->seen, r->s);
    }
}

static void compare_made(mgv_engine *engine, uint32_t side, uint8_t *pixels, room *r) {
    mgv_image image;
    uint32_t i;
    memset(&image, 0, sizeof image);
    image.width = image.height = side;
    image.pixels = pixels;
    for (i = 0; i < MADE; i++) {
        make_picture(pixels, side, i);
        compare(engine, &image, r->reference, r->seen, r->s);
    }
}

static void print_table(const sums *s) {
    int i;
    printf("%-20s %10s %10s %12s   (%u pictures)\n", "in MXFP8", "pooled", "least", "mean token", (unsigned)s[0].pictures);
    for (i = 0; i < choice_count; i++)
        printf("%-20s %10.6f %10.6f %12.6f\n", mgv_precision_name(choices[i]), s[i].pooled / (double)s[i].pictures, s[i].least,
               s[i].patches / (double)s[i].rows);
    printf("means of rows before a norm: up to %.2f deviations; beyond %.1f bf16 is better for qkv and fc1\n", mean_ratio,
           MGV__MX_MEAN_RATIO);
}

/* Options from argv[2] on; the place of the first picture. */
static int read_options(int argc, char **argv, int *crops) {
    mgv_error error;
    int i = 2, named = 0;
    for (; i + 1 < argc && strcmp(argv[i], "--precision") == 0; i += 2) {
        if (named == CHOICES || mgv_precision_of_name(argv[i + 1], &choices[named], &error) != MGV_OK)
            exit(fail("--precision", named == CHOICES ? "there are more than sixteen" : error.message));
        choice_count = ++named;
    }
    *crops = i < argc && strcmp(argv[i], "--crops") == 0;
    return i + *crops;
}

int main(int argc, char **argv) {
    int crops, first;
    mgv_model_desc model_desc;
    mgv_engine_desc desc;
    mgv_model *model;
    mgv_engine *engine;
    mgv_error error;
    mgv_threads *threads;
    room r;
    uint8_t *pixels;
    size_t floats;
    int i;
    memset(&model_desc, 0, sizeof model_desc);
    memset(&desc, 0, sizeof desc);
    memset(&r, 0, sizeof r);
    first = argc < 2 ? 0 : read_options(argc, argv, &crops);
    if (argc < 2 || (crops && argc == first)) return fail("usage", "precision MODEL_DIR [--precision NAME ...] [--crops] [PICTURE ...]");
    model_desc.path = argv[1];
    desc.backend = MGV_BACKEND_CPU;
    desc.precision = MGV_PRECISION_MXFP8; /* refuses models that have none; which is said anew for each run */
    if (mgv_threads_create(&threads, (uint32_t)sysconf(_SC_NPROCESSORS_ONLN), NULL, &error) != MGV_OK)
        return fail("threads", error.message);
    desc.parallel = mgv_threads_parallel_for(threads); /* rows do not depend on them */
    if (mgv_model_open(&model, &model_desc, &error) != MGV_OK || mgv_engine_create(&engine, model, &desc, &error) != MGV_OK)
        return fail(argv[1], error.message);
    floats = ((size_t)engine->desc.max_tokens + 1) * model->config.hidden;
    r.reference = (float *)malloc(floats * sizeof(float));
    r.seen = (float *)malloc(floats * sizeof(float));
    pixels = (uint8_t *)malloc((size_t)model->config.image_size * model->config.image_size * 3);
    if (!r.reference || !r.seen || !pixels) return fail("memory", "there is too little");
    for (i = first; i < argc; i++) {
        cli_picture picture;
        if (cli_picture_load(&picture, argv[i])) return 1;
        if (crops) compare_crops(engine, &picture.image, &r);
        else compare(engine, &picture.image, r.reference, r.seen, r.s);
        cli_picture_free(&picture);
    }
    if (argc == first) compare_made(engine, model->config.image_size, pixels, &r);
    print_table(r.s);
    mgv_engine_destroy(engine);
    mgv_model_close(model);
    mgv_threads_destroy(threads);
    free(pixels);
    free(r.reference);
    free(r.seen);
    return 0;
}
