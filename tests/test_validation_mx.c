/* Validation in MXFP8 without a GPU: the kernel's list is played by the CPU's operations, which round as the kernel would, into bf16, MXFP8
   and statistics, with a fault in one place where the test wants one. What validation says of it is known beforehand. */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_CUDA
#define MEGAVIT_NO_CUDART
#include "megavit.h"

#include "support.h"
#include "fake_cuda.h"
#include "micro_siglip.h"

enum { IMAGES = 3, IMAGE_BYTES = 3 * MICRO_SIDE * MICRO_SIDE, GRID = MICRO_SIDE / MICRO_PATCH, TOKENS = GRID * GRID, MAX_ROWS = 64 };

typedef enum wrong { NOTHING, NUMBER, SCALE, NO_NUMBER, BF16, STATISTICS } wrong;
typedef struct fault {
    wrong what;
    const char *label;   /* of the operation that leaves it, in the last row of the second picture */
    int steps;           /* of its format, for numbers and scales */
} fault;

typedef struct fixture {
    micro_siglip micro;
    mgv_model *model;
    mgv_engine *twin;    /* one picture on the CPU: what the fake kernel computes with */
    mgv__plan *plan;     /* as validation's engine has it */
    mgv_precision precision;
    uint8_t pixels[IMAGES * IMAGE_BYTES];
    mgv_image images[IMAGES];
    fault fault;
    mgv_validation rows[MAX_ROWS];
    uint32_t row_count;
} fixture;
static fixture *playing;

static int hits(const fixture *f, const mgv__plan_op *op, uint32_t image, uint32_t row, wrong what) {
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
static void leave_mx(const fixture *f, const mgv__plan_op *op, const mgv__kernel_op *kernel, const mgv__kernel_mx *to, uint32_t columns,
                     uint32_t image, uint32_t row, const float *x) {
    const uint32_t number = image * TOKENS + row, pitch = mgv__mx_pitch(columns), in_group = number % kernel->rows_per_group;
    const size_t tile = mgv__mx_row_tile(kernel, number / kernel->rows_per_group, in_group);
    uint8_t *q = to->rows + (size_t)number * pitch;
    uint32_t c;
    for (c = 0; c < columns; c += 32) {
        uint8_t *scale = to->scales + (tile * (pitch / 128) + c / 128) * 512 + in_group % 128 % 32 * 16 + in_group % 128 / 32 * 4 +
                         c % 128 / 32;
        *scale = (uint8_t)mgv__mx_block(x + c, 32, q + c);
        if (c == 0 && hits(f, op, image, row, SCALE)) *scale = (uint8_t)(*scale + f->fault.steps);
    }
    if (hits(f, op, image, row, NUMBER)) q[7] = (uint8_t)((q[7] & 0x7F) > 60 ? q[7] - f->fault.steps : q[7] + f->fault.steps);
    if (hits(f, op, image, row, NO_NUMBER)) q[7] = 0x7F;
}
static void leave(const fixture *f, const mgv__kernel_arguments *arguments, uint32_t k, uint32_t image, const float *values) {
    const mgv__plan_op *op = &f->plan->ops[k];
    const mgv__kernel_op *kernel = &arguments->ops[k];
    const mgv__device_buffer *b = &f->plan->buffers[op->result];
    uint32_t row, c;
    for (row = 0; row < TOKENS; row++) {
        const float *x = values + (size_t)row * b->columns;
        uint16_t *out = (uint16_t *)(void *)arguments->buffers[op->result] + ((size_t)image * TOKENS + row) * b->pitch;
        for (c = 0; c < b->columns && !(op->kernel.flags & MGV__KERNEL_MX_ALONE); c++)
            out[c] = mgv__bf16_round(op->result == MGV__DEVICE_QKV && c < b->columns / 3 ? x[c] * (float)(1.4426950408889634 / 8) : x[c]);
        if (hits(f, op, image, row, BF16)) out[9] = (uint16_t)(out[9] + f->fault.steps);
        if (op->kernel.flags & MGV__KERNEL_MX_OUT)
            leave_mx(f, op, kernel, &arguments->mx[mgv__mx_target(op->kernel.flags)], b->columns, image, row, x);
        if (op->kernel.flags & MGV__KERNEL_STATS)
            leave_statistics(kernel, arguments->stats + kernel->of.gemm.stats_out, b->columns, image * TOKENS + row, x,
                             hits(f, op, image, row, STATISTICS) ? 2.0f : 1.0f);
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

static void play(const fixture *f, const mgv__kernel_arguments *arguments, uint32_t image, uint32_t op_count) {
    const mgv__program *program = &f->model->program;
    const uint8_t *pixels = arguments->pixels + (size_t)image * IMAGE_BYTES;
    mgv__cpu_run run;
    uint32_t k, next = 0;
    f->twin->images[0] = f->images[image];
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
static void fake_kernel(const void *argument) {
    const mgv__kernel_arguments *arguments = (const mgv__kernel_arguments *)argument;
    uint32_t segment = 0, op_count = 0, image;
    for (; arguments->segments[segment].first_tile < arguments->total_tiles; segment++)
        if (arguments->segments[segment].op >= op_count) op_count = arguments->segments[segment].op + 1;
    for (image = 0; image < IMAGES; image++) play(playing, arguments, image, op_count);
}

static int set_up(void **state, mgv_precision precision) {
    fixture *f = (fixture *)calloc(1, sizeof *f);
    mgv_engine_desc desc;
    mgv_error error;
    mgv_result result;
    size_t i;
    memset(&desc, 0, sizeof desc);
    micro_make(&f->micro, 1);
    strcpy(strrchr(f->micro.config, '}'), ",\"vision_use_head\":false}");
    f->micro.files[0].bytes = strlen(f->micro.config);
    f->model = micro_open(&f->micro, &error);
    if (!f->model) fail_msg("%s", error.message);
    f->precision = desc.precision = precision;
    desc.backend = MGV_BACKEND_CPU;
    assert_int_equal(mgv_engine_create(&f->twin, f->model, &desc, &error), MGV_OK);
    f->plan = mgv__plan_make_for(&desc.allocator,
                                 mgv__find_machine(precision == MGV_PRECISION_MXFP8 ? "sm_100a mxfp8" : "sm_100a mixed", &error),
                                 &f->model->config, &f->model->program, IMAGES + 2, IMAGES + 2, &result, &error);
    assert_non_null(f->plan);
    for (i = 0; i < sizeof f->pixels; i++) f->pixels[i] = (uint8_t)(i * 2654435761u >> 13);
    for (i = 0; i < IMAGES; i++) {
        f->images[i].pixels = f->pixels + i * IMAGE_BYTES;
        f->images[i].width = f->images[i].height = MICRO_SIDE;
    }
    *state = f;
    return 0;
}
static int set_up_mxfp8(void **state) { return set_up(state, MGV_PRECISION_MXFP8); }
static int set_up_mixed(void **state) { return set_up(state, MGV_PRECISION_MXFP8_MIXED); }
static int tear_down(void **state) {
    fixture *f = (fixture *)*state;
    const mgv_allocator allocator = {NULL, NULL, NULL};
    mgv__plan_free(&allocator, f->plan);
    mgv_engine_destroy(f->twin);
    mgv_model_close(f->model);
    micro_free(&f->micro);
    free(f);
    return 0;
}

static void note(void *user, const mgv_validation *row) {
    fixture *f = (fixture *)user;
    assert_true(f->row_count < MAX_ROWS);
    f->rows[f->row_count++] = *row;
}
static mgv_result validate(fixture *f, int major, uint64_t fail_at, uint32_t *failures, mgv_error *error) {
    counting_allocator counts;
    mgv_engine_desc desc;
    mgv_result result;
    memset(&desc, 0, sizeof desc);
    desc.kernels = "stands for megavit.fatbin";
    desc.precision = f->precision;
    desc.allocator = counting_allocator_make(&counts);
    mgv__cuda_test_calls = &fake_calls;
    fake_reset();
    fake.major = major;
    fake.multiprocessors = 148;
    fake.kernel = fake_kernel;
    playing = f;
    counts.fail_at = fail_at;
    f->row_count = 0;
    result = mgv_validate(f->model, &desc, f->images, IMAGES, note, f, failures, error);
    assert_int_equal(counts.live_blocks, 0);
    assert_int_equal(fake_alive(), 0);
    return result;
}
static const mgv_validation *find(const fixture *f, const char *label, uint32_t which) {
    uint32_t i;
    for (i = 0; i < f->row_count; i++)
        if (strcmp(f->rows[i].label, label) == 0 && which-- == 0) return &f->rows[i];
    fail_msg("no %s", label);
    return NULL;
}

/* Every operation is compared, and every row that is stored as MXFP8; nothing differs but for norms, whose statistics come in parts. */
static void test_a_right_kernel(void **state) {
    fixture *f = (fixture *)*state;
    const uint32_t all = f->precision == MGV_PRECISION_MXFP8;
    uint32_t failures = 9, i;
    mgv_error error;
    f->fault.what = NOTHING;
    if (validate(f, 10, 0, &failures, &error) != MGV_OK) fail_msg("%s", error.message);
    for (i = 0; i < f->row_count; i++) {
        const mgv_validation *row = &f->rows[i];
        if (!row->ok) fail_msg("%s: %g, %u bad", row->label, row->relative_l2, (unsigned)row->bad);
        assert_true(!row->compared || row->different <= row->rows * row->columns / 5000);
    }
    assert_int_equal(failures, 0);
    assert_string_equal(f->rows[0].label, "whole encode");
    assert_true(f->rows[0].tolerance == sqrt(all ? 4.0 : 2.0) / 32);
    for (i = 0; i < 3; i++) {
        assert_int_equal(find(f, "stream, MXFP8", i)->rows, IMAGES * TOKENS); /* of patch embed, out, fc2 */
        assert_true(find(f, "stream, MXFP8", i)->tolerance == 0.1 / 8);
    }
    assert_true(find(f, "qkv", 0)->tolerance == 1.0 / 2048 && find(f, "fc2", 0)->tolerance == 1.0 / 2048);
    assert_true(find(f, "attention", 0)->tolerance == (all ? 0.1 / 8 : 1.0 / 1024));
    assert_true(find(f, "fc1", 0)->tolerance == (all ? 0.1 / 8 : 2.0 / 2048));
}

/* A neighbour is counted and no fault; what is further off is one, and where it is is said. */
static void test_faults(void **state) {
    static const struct {
        fault fault;
        const char *row; /* which says so */
        uint32_t which, bad, column, different;
    } cases[] = {
        {{NUMBER, "patch embed", 1}, "stream, MXFP8", 0, 0, 0, 1}, {{NUMBER, "patch embed", 2}, "stream, MXFP8", 0, 1, 7, 1},
        {{NUMBER, "attention", 1}, "attention", 0, 0, 0, 1},       {{NUMBER, "attention", 2}, "attention", 0, 1, 7, 1},
        {{NUMBER, "fc1", 1}, "fc1", 0, 0, 0, 1},                   {{NUMBER, "fc1", 3}, "fc1", 0, 1, 7, 1},
        {{NUMBER, "fc2", 2}, "stream, MXFP8", 2, 1, 7, 1},         {{NO_NUMBER, "out", 0}, "stream, MXFP8", 1, 1, 7, 1},
        {{SCALE, "out", 1}, "stream, MXFP8", 1, 32, 0, 32},        {{SCALE, "fc1", -1}, "fc1", 0, 32, 0, 32},
        {{BF16, "qkv", 1}, "qkv", 0, 0, 0, 1},                     {{BF16, "qkv", 4}, "qkv", 0, 1, 9, 1},
        {{BF16, "fc2", 1}, "fc2", 0, 0, 0, 1},                     {{BF16, "out", 4}, "out", 0, 1, 9, 1},
    };
    fixture *f = (fixture *)*state;
    uint32_t failures, i, k;
    mgv_error error;
    for (i = 0; i < COUNT_OF(cases); i++) {
        const mgv_validation *row;
        f->fault = cases[i].fault;
        if (validate(f, 10, 0, &failures, &error) != MGV_OK) fail_msg("%s", error.message);
        row = find(f, cases[i].row, cases[i].which);
        if (row->bad != cases[i].bad || row->ok != (cases[i].bad == 0) || row->different < cases[i].different ||
            row->different > cases[i].different + 3)
            fail_msg("case %u, %s: %u bad, %u differ", i, row->label, (unsigned)row->bad, (unsigned)row->different);
        assert_true(failures >= (cases[i].bad != 0));
        if (cases[i].bad) assert_true(row->bad_row == 2 * TOKENS - 1 && row->bad_column == cases[i].column);
        for (k = 0; &f->rows[k] != row; k++) assert_true(f->rows[k].ok); /* who comes behind has read what the fake has not */
    }
    /* statistics are the GPU's own: rows are normalised by them on both sides, and who took them is not said to be wrong */
    f->fault.what = STATISTICS;
    f->fault.label = "out";
    if (validate(f, 10, 0, &failures, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_int_equal(find(f, "fc1", 0)->ok, 0); /* the fake's rows were normalised by others */
    assert_int_equal(find(f, "qkv", 0)->ok, 1);
}

static void test_refused(void **state) {
    fixture *f = (fixture *)*state;
    uint32_t failures, at;
    mgv_error error;
    f->fault.what = NOTHING;
    assert_int_equal(validate(f, 9, 0, &failures, &error), MGV_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "no kernel for GPU 0 calculates in MXFP8: its compute capability is 9.0"));
    for (at = 1;; at++) { /* each block of memory in turn is not to be had */
        const mgv_result result = validate(f, 10, at, &failures, &error);
        if (result == MGV_OK) break;
        assert_int_equal(result, MGV_ERROR_NOMEM);
    }
    assert_true(at > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_right_kernel, set_up_mxfp8, tear_down),
        cmocka_unit_test_setup_teardown(test_a_right_kernel, set_up_mixed, tear_down),
        cmocka_unit_test_setup_teardown(test_faults, set_up_mxfp8, tear_down),
        cmocka_unit_test_setup_teardown(test_refused, set_up_mxfp8, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
