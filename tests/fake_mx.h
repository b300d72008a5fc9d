/* A GPU's kernel for Blackwell with a precision, played by the CPU's operations on the kernel's own list: they round as the kernel would,
   into bf16, MXFP8 and statistics, with a fault in one place where the test wants one. The model is a micro_siglip without its head. */
#ifndef MGV_TESTS_FAKE_MX_H
#define MGV_TESTS_FAKE_MX_H

#include "micro_siglip.h"

enum { IMAGES = 3, IMAGE_BYTES = 3 * MICRO_SIDE * MICRO_SIDE, GRID = MICRO_SIDE / MICRO_PATCH, TOKENS = GRID * GRID };

typedef enum mx_wrong { MX_NOTHING, MX_NUMBER, MX_SCALE, MX_NO_NUMBER, MX_BF16, MX_STATISTICS } mx_wrong;
typedef struct mx_fault {
    mx_wrong what;
    const char *label;   /* of the operation that leaves it, in the last row of the second picture */
    int steps;           /* of its format, for numbers and scales */
} mx_fault;

typedef struct mx_player {
    micro_siglip micro;
    mgv_model *model;
    mgv_engine *twin;    /* one picture on the CPU: what the fake kernel computes with */
    mgv__plan *plan;     /* as validation's engine of IMAGES pictures has it */
    mgv_precision precision;
    mx_fault fault;
    double mean_ratio;   /* the largest of a row whose statistics operation mean_of leaves */
    const char *mean_of;
} mx_player;
static mx_player *mx_playing;

static int hits(const mx_player *f, const mgv__plan_op *op, uint32_t image, uint32_t row, mx_wrong what) {
    return f->fault.what == what && strcmp(f->fault.label, op->label) == 0 && image == 1 && row == TOKENS - 1;
}

/* 64 columns a part: its mean and squared deviations. */
static void leave_statistics(const mgv__kernel_op *op, float *stats, uint32_t columns, uint32_t number, const float *x, float times) {
    uint32_t first, i;
    for (first = 0; first < columns; first += 64) {
        float *at = stats + mgv__stats_place(op, columns, number / op->rows_per_group, number % op->rows_per_group, first / 64);
        double mean = 0, squares = 0;
        for (i = first; i < first + 64; i++) mean += (double)x[i] / 64;
        for (i = first; i < first + 64; i++) squares += ((double)x[i] - mean) * ((double)x[i] - mean);
        at[0] = (float)mean;
        at[1] = (float)squares * times;
    }
}
/* How large a row's mean is, in its deviations. */
static void note_mean(mx_player *f, const char *label, uint32_t columns, const float *x) {
    double mean = 0, squares = 0;
    uint32_t i;
    if (!f->mean_of || strcmp(f->mean_of, label) != 0) return;
    for (i = 0; i < columns; i++) mean += (double)x[i] / columns;
    for (i = 0; i < columns; i++) squares += ((double)x[i] - mean) * ((double)x[i] - mean) / columns;
    f->mean_ratio = fmax(f->mean_ratio, fabs(mean) / sqrt(squares));
}
static void leave_mx(const mx_player *f, const mgv__plan_op *op, const mgv__kernel_op *kernel, const mgv__kernel_mx *to, uint32_t columns,
                     uint32_t image, uint32_t row, const float *x) {
    const uint32_t number = image * TOKENS + row, pitch = mgv__mx_pitch(columns), in_group = number % kernel->rows_per_group;
    const size_t tile = mgv__mx_row_tile(kernel, number / kernel->rows_per_group, in_group);
    uint8_t *q = to->rows + (size_t)number * pitch;
    uint32_t c;
    for (c = 0; c < columns; c += 32) {
        uint8_t *scale = to->scales + (tile * (pitch / 128) + c / 128) * 512 + in_group % 128 % 32 * 16 + in_group % 128 / 32 * 4 +
                         c % 128 / 32;
        *scale = (uint8_t)mgv__mx_block(x + c, 32, q + c);
        if (c == 0 && hits(f, op, image, row, MX_SCALE)) *scale = (uint8_t)(*scale + f->fault.steps);
    }
    if (hits(f, op, image, row, MX_NUMBER)) q[7] = (uint8_t)((q[7] & 0x7F) > 60 ? q[7] - f->fault.steps : q[7] + f->fault.steps);
    if (hits(f, op, image, row, MX_NO_NUMBER)) q[7] = 0x7F;
}
static void leave(mx_player *f, const mgv__kernel_arguments *arguments, uint32_t k, uint32_t image, const float *values) {
    const mgv__plan_op *op = &f->plan->ops[k];
    const mgv__kernel_op *kernel = &arguments->ops[k];
    const mgv__device_buffer *b = &f->plan->buffers[op->result];
    uint32_t row, c;
    for (row = 0; row < TOKENS; row++) {
        const float *x = values + (size_t)row * b->columns;
        uint16_t *out = (uint16_t *)(void *)arguments->buffers[op->result] + ((size_t)image * TOKENS + row) * b->pitch;
        for (c = 0; c < b->columns && !(op->kernel.flags & MGV__KERNEL_MX_ALONE); c++)
            out[c] = mgv__bf16_round(op->result == MGV__DEVICE_QKV && c < b->columns / 3 ? x[c] * (float)(1.4426950408889634 / 8) : x[c]);
        if (hits(f, op, image, row, MX_BF16)) out[9] = (uint16_t)(out[9] + f->fault.steps);
        if (op->kernel.flags & MGV__KERNEL_MX_OUT)
            leave_mx(f, op, kernel, &arguments->mx[mgv__mx_target(op->kernel.flags)], b->columns, image, row, x);
        if (op->kernel.flags & MGV__KERNEL_STATS) note_mean(f, op->label, b->columns, x);
        if (op->kernel.flags & MGV__KERNEL_STATS)
            leave_statistics(kernel, arguments->stats + kernel->of.gemm.stats_out, b->columns, image * TOKENS + row, x,
                             hits(f, op, image, row, MX_STATISTICS) ? 2.0f : 1.0f);
    }
}
static void leave_patches(const mgv__plan *plan, uint16_t *out, const uint8_t *pixels) {
    uint32_t token, y, x;
    for (token = 0; token < TOKENS; token++, out += plan->patch_pitch)
        for (y = 0; y < MICRO_PATCH; y++)
            for (x = 0; x < 3 * MICRO_PATCH; x++) {
                const uint32_t top = token / GRID * MICRO_PATCH, left = token % GRID * MICRO_PATCH;
                const uint8_t pixel = pixels[((top + y) * MICRO_SIDE + left) * 3 + x];
                out[y * 3 * MICRO_PATCH + x] = mgv__bf16_round((float)pixel - MGV__PIXEL_MIDDLE);
            }
}

static void play(mx_player *f, const mgv__kernel_arguments *arguments, uint32_t image, uint32_t op_count) {
    const mgv__program *program = &f->model->program;
    const uint8_t *pixels = arguments->pixels + (size_t)image * IMAGE_BYTES;
    mgv__cpu_run run;
    uint32_t k, next = 0;
    memset(&f->twin->images[0], 0, sizeof f->twin->images[0]);
    f->twin->images[0].pixels = pixels;
    f->twin->images[0].width = f->twin->images[0].height = MICRO_SIDE;
    f->twin->job.image = 0;
    mgv__validation_prepare(f->twin);
    mgv__job_cpu_run(f->twin, &run);
    for (k = 0; k < op_count && k < f->plan->op_count; k++) {
        const mgv__plan_op *op = &f->plan->ops[k];
        if (op->kernel.kind == MGV__KERNEL_PATCHES)
            leave_patches(f->plan, (uint16_t *)(void *)arguments->buffers[MGV__DEVICE_PATCHES] +
                                       (size_t)image * TOKENS * f->plan->patch_pitch, pixels);
        if (!mgv__validation_compares(op)) continue;
        for (; next < op->end; next++) mgv__validation_twin(&run, &program->ops[next]);
        leave(f, arguments, k, image, f->twin->buffers[program->ops[op->end - 1].target]);
    }
    if (op_count <= f->plan->op_count) return;
    for (; next < program->op_count; next++) mgv__validation_twin(&run, &program->ops[next]);
    memcpy(arguments->outputs[0] + (size_t)image * TOKENS * MICRO_WIDTH, f->twin->buffers[program->ops[program->op_count - 1].target],
           TOKENS * MICRO_WIDTH * sizeof(float));
}
static void mx_kernel(const void *argument) {
    const mgv__kernel_arguments *arguments = (const mgv__kernel_arguments *)argument;
    uint32_t segment = 0, op_count = 0, image;
    for (; arguments->segments[segment].first_tile < arguments->total_tiles; segment++)
        if (arguments->segments[segment].op >= op_count) op_count = arguments->segments[segment].op + 1;
    for (image = 0; image < IMAGES; image++) play(mx_playing, arguments, image, op_count);
}

/* It plays for launches from then on. mean: added to every position's row. */
static void mx_open(mx_player *f, mgv_precision precision, double mean) {
    mgv_engine_desc desc;
    mgv_precision none;
    mgv_error error;
    mgv_result result;
    memset(f, 0, sizeof *f);
    memset(&desc, 0, sizeof desc);
    micro_make_around(&f->micro, MICRO_SIDE, 1, mean);
    strcpy(strrchr(f->micro.config, '}'), ",\"vision_use_head\":false}");
    f->micro.files[0].bytes = strlen(f->micro.config);
    f->model = micro_open(&f->micro, &error);
    if (!f->model) fail_msg("%s", error.message);
    f->precision = desc.precision = precision;
    desc.backend = MGV_BACKEND_CPU;
    assert_int_equal(mgv_engine_create(&f->twin, f->model, &desc, &error), MGV_OK);
    f->plan = mgv__plan_make_for(&desc.allocator, mgv__find_machine("sm_100a", &none, &error), precision, &f->model->config,
                                 &f->model->program, IMAGES + 2, IMAGES + 2, &result, &error);
    assert_non_null(f->plan);
    mx_playing = f;
}
static void mx_close(mx_player *f) {
    const mgv_allocator allocator = {NULL, NULL, NULL};
    mgv__plan_free(&allocator, f->plan);
    mgv_engine_destroy(f->twin);
    mgv_model_close(f->model);
    micro_free(&f->micro);
    mx_playing = NULL;
}

#endif
