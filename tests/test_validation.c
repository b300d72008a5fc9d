/* Validation without a GPU: the kernel's list is played by the CPU's operations, each result rounded to bf16 as the kernel would, with a
   fault in one place where the test wants one. What validation says of it is known beforehand. */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_CUDA
#define MEGAVIT_NO_CUDART
#include "megavit.h"

#include "support.h"
#include "fake_cuda.h"
#include "micro_siglip.h"

enum { IMAGES = 3, IMAGE_BYTES = 3 * MICRO_SIDE * MICRO_SIDE, GRID = MICRO_SIDE / MICRO_PATCH, TOKENS = GRID * GRID, MAX_ROWS = 64 };

typedef struct fault {
    const char *label;
    uint32_t image, row, column; /* of the operation's result, of one picture */
    float change;
    float spread;                /* every value of the result is off by so much of itself */
} fault;

typedef struct fixture {
    micro_siglip micro;
    mgv_model *model;
    mgv_engine *twin;           /* one picture on the CPU: what the fake kernel computes with */
    mgv__plan *plan;            /* as validation's engine has it */
    uint8_t pixels[IMAGES * IMAGE_BYTES];
    mgv_image images[IMAGES];
    fault fault;                /* label NULL: none */
    mgv_validation rows[MAX_ROWS];
    uint32_t row_count;
} fixture;

static fixture *playing; /* whose kernel fake_kernel plays */

/* Rows of a result, in float32 on the CPU: rounded there, and put where the kernel would put them. The kernel's queries have log2 e / sqrt(64) in them. */
static void leave(const mgv__plan *plan, uint8_t *const *buffers, uint32_t buffer, uint32_t image, uint32_t rows, float *values, const fault *f) {
    const mgv__device_buffer *b = &plan->buffers[buffer];
    uint32_t row, column;
    for (row = 0; row < rows; row++)
        for (column = 0; column < b->columns; column++) {
            uint8_t *at = buffers[buffer] + (((size_t)image * rows + row) * b->pitch + column) * b->element_bytes;
            const float scale = buffer == MGV__DEVICE_QKV && column < b->columns / 3 ? (float)(1.4426950408889634 / 8) : 1;
            float value = values[(size_t)row * b->columns + column];
            uint16_t rounded;
            if (f && image == f->image && row == f->row && column == f->column) value += f->change;
            if (f) value += value * f->spread;
            rounded = mgv__round16(value * scale, mgv__plan_is_half(buffer));
            if (b->element_bytes == 4) memcpy(at, &value, 4);
            else memcpy(at, &rounded, 2);
            if (b->element_bytes == 2) values[(size_t)row * b->columns + column] = mgv__value16(rounded, mgv__plan_is_half(buffer)) / scale;
        }
}

static void leave_patches(const mgv__plan *plan, uint8_t *const *buffers, uint32_t image, const uint8_t *pixels) {
    float *patches = (float *)malloc((size_t)TOKENS * 3 * MICRO_PATCH * MICRO_PATCH * sizeof *patches), *out = patches;
    uint32_t token, y, x;
    for (token = 0; token < TOKENS; token++)
        for (y = 0; y < MICRO_PATCH; y++)
            for (x = 0; x < 3 * MICRO_PATCH; x++) {
                const uint32_t top = token / GRID * MICRO_PATCH, left = token % GRID * MICRO_PATCH;
                *out++ = (float)pixels[((top + y) * MICRO_SIDE + left) * 3 + x] - MGV__PIXEL_MIDDLE;
            }
    leave(plan, buffers, MGV__DEVICE_PATCHES, image, TOKENS, patches, NULL);
    free(patches);
}

/* tokens: where the list has an operation behind those of f->plan, it is this output. */
static void play(fixture *f, uint8_t *const *buffers, uint32_t image, const uint8_t *pixels, uint32_t op_count, float *tokens) {
    const mgv__program *program = &f->model->program;
    mgv__cpu_run run;
    uint32_t k, next = 0;
    f->twin->images[0] = f->images[image];
    f->twin->images[0].pixels = pixels;
    f->twin->job.image = 0;
    mgv__validation_prepare(f->twin);
    mgv__job_cpu_run(f->twin, &run);
    for (k = 0; k < op_count && k < f->plan->op_count; k++) {
        const mgv__plan_op *op = &f->plan->ops[k];
        const int faulty = f->fault.label && strcmp(f->fault.label, op->label) == 0;
        if (op->kernel.kind == MGV__KERNEL_PATCHES) leave_patches(f->plan, buffers, image, pixels);
        if (!mgv__validation_compares(op)) continue;
        for (; next < op->end; next++) mgv__validation_twin(&run, &program->ops[next]);
        leave(f->plan, buffers, op->target, image, mgv__validation_rows(f->plan, op->target, 1, TOKENS),
              f->twin->buffers[program->ops[op->end - 1].target],
              faulty ? &f->fault : NULL);
    }
    if (op_count <= f->plan->op_count) return;
    for (; next < program->op_count; next++) mgv__validation_twin(&run, &program->ops[next]);
    memcpy(tokens + (size_t)image * TOKENS * MICRO_WIDTH, f->twin->buffers[program->ops[program->op_count - 1].target], TOKENS * MICRO_WIDTH * sizeof *tokens);
}

static void fake_kernel(const void *argument) {
    const mgv__kernel_arguments *arguments = (const mgv__kernel_arguments *)argument;
    uint32_t segment = 0, op_count = 0, image;
    for (; arguments->segments[segment].first_tile < arguments->total_tiles; segment++)
        if (arguments->segments[segment].op >= op_count) op_count = arguments->segments[segment].op + 1;
    if (op_count && op_count < playing->plan->op_count && playing->plan->ops[op_count].by_head) op_count++; /* who has the sums finds the values */
    for (image = 0; image < IMAGES; image++) play(playing, arguments->buffers, image, arguments->pixels + (size_t)image * IMAGE_BYTES, op_count, arguments->outputs[0]);
}

static int set_up_with(void **state, int use_head) {
    fixture *f = (fixture *)calloc(1, sizeof *f);
    mgv_engine_desc desc;
    mgv_error error;
    mgv_result result;
    size_t i;
    memset(&desc, 0, sizeof desc);
    micro_make(&f->micro, 1);
    if (!use_head) strcpy(strrchr(f->micro.config, '}'), ",\"vision_use_head\":false}");
    f->micro.files[0].bytes = strlen(f->micro.config);
    f->model = micro_open(&f->micro, &error);
    if (!f->model) fail_msg("%s", error.message);
    desc.backend = MGV_BACKEND_CPU;
    assert_int_equal(mgv_engine_create(&f->twin, f->model, &desc, &error), MGV_OK);
    f->plan = mgv__plan_make(&desc.allocator, MGV_PRECISION_AUTO, &f->model->config, &f->model->program, IMAGES + 2, IMAGES + 2, &result,
                              &error);
    assert_non_null(f->plan);
    for (i = 0; i < sizeof f->pixels; i++) f->pixels[i] = (uint8_t)(i * 2654435761u >> 13);
    for (i = 0; i < IMAGES; i++) {
        f->images[i].pixels = f->pixels + i * IMAGE_BYTES;
        f->images[i].width = f->images[i].height = MICRO_SIDE;
    }
    *state = f;
    return 0;
}
static int set_up(void **state) { return set_up_with(state, 1); }
static int set_up_without_head(void **state) { return set_up_with(state, 0); }
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

/* A GPU that starts anew and plays this fixture's part, and what an engine on it is made of. */
static mgv_engine_desc begin(fixture *f, counting_allocator *counts) {
    mgv_engine_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.kernels = "stands for megavit.fatbin";
    mgv__cuda_test_calls = &fake_calls;
    desc.allocator = counting_allocator_make(counts);
    fake_reset();
    fake.kernel = fake_kernel;
    playing = f;
    return desc;
}

static mgv_result validate(fixture *f, uint32_t *failures, mgv_error *error) {
    counting_allocator counts;
    const mgv_engine_desc desc = begin(f, &counts);
    mgv_result result;
    f->row_count = 0;
    result = mgv_validate(f->model, &desc, f->images, IMAGES, note, f, failures, error);
    assert_int_equal(counts.live_blocks, 0);
    assert_int_equal(fake_alive(), 0);
    return result;
}

/* How many values an operation rounds on its way: by that many times 2^-9, which bf16's eight bits leave, it may be off; the pooling head
   by 2^-12 for what it rounds to f16, and what its GELU lacks. */
static double tolerance_of(const char *label) {
    if (strcmp(label, "patches") == 0) return 1e-6;
    if (strcmp(label, "head values") == 0) return 2 / 512.0 + 3 / 4096.0;
    if (strncmp(label, "head ", 5) == 0) return (strcmp(label, "head fc1") == 0 ? 4 : 2) / 4096.0;
    return 2 / 512.0;
}

/* A kernel that is right but for its rounding: everything that the CPU has is compared, and is within tolerance, but not equal. */
static void test_a_right_kernel(void **state) {
    fixture *f = (fixture *)*state;
    uint32_t failures = 9, compared = 0, i;
    mgv_error error;
    memset(&f->fault, 0, sizeof f->fault);
    if (validate(f, &failures, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_true(f->rows[0].tolerance == sqrt(2.0 * f->plan->op_count) / 512); /* two roundings an operation, independent of each other */
    for (i = 1; i < f->row_count; i++) assert_true(f->rows[i].tolerance == (f->rows[i].compared ? tolerance_of(f->rows[i].label) : 0));
    for (i = 0; i < f->row_count; i++) {
        const mgv_validation *row = &f->rows[i];
        if (!row->ok) fail_msg("%s: %g, %u bad", row->label, row->relative_l2, (unsigned)row->bad);
        if (row->compared) compared++;
        if (!row->compared) assert_true(strcmp(row->label, "head scores") == 0 || strcmp(row->label, "head sums") == 0);
        if (row->compared && strcmp(row->label, "patches") != 0 && strcmp(row->label, "head fc2") != 0)
            assert_true(row->relative_l2 > row->tolerance / 40 && row->max_error > 0);
    }
    assert_int_equal(failures, 0);
    assert_int_equal(f->row_count, f->plan->op_count + 1); /* and the whole encode */
    assert_int_equal(compared, f->plan->op_count - 1); /* all but these two, and the whole encode */
}

/* Without a pooling head the whole encode is compared by its tokens. */
static void test_a_model_without_a_head(void **state) {
    fixture *f = (fixture *)*state;
    uint32_t failures = 9, i;
    mgv_error error;
    memset(&f->fault, 0, sizeof f->fault);
    if (validate(f, &failures, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_int_equal(failures, 0);
    assert_int_equal(f->row_count, f->plan->op_count + 2);
    assert_string_equal(f->rows[0].label, "whole encode");
    assert_int_equal(f->rows[0].rows, IMAGES * TOKENS);
    assert_string_equal(f->rows[f->row_count - 1].label, "tokens"); /* which the whole encode has compared */
    for (i = 0; i + 1 < f->row_count; i++) assert_true(f->rows[i].compared && f->rows[i].ok);
    f->fault.label = "fc2";
    f->fault.change = NAN;
    if (validate(f, &failures, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_true(failures >= 2 && !f->rows[0].ok);
}

/* One wrong value, or one that is no number, in one row of one picture: this operation is named, this place, and no other operation. */
static void test_faults_are_found_where_they_are(void **state) {
    static const struct { const char *label; uint32_t columns, row; } cases[] = {
        {"patch embed", MICRO_WIDTH, TOKENS - 1}, {"qkv", 3 * MICRO_WIDTH, 4}, {"attention", MICRO_WIDTH, 0},
        {"out", MICRO_WIDTH, TOKENS - 1}, {"fc1", MICRO_MLP, 3}, {"fc2", MICRO_WIDTH, 1}, {"head values", MICRO_WIDTH, 0},
        {"head out", MICRO_WIDTH, 0}, {"head fc1", MICRO_MLP, 0}, {"head fc2", MICRO_WIDTH, 0},
    };
    fixture *f = (fixture *)*state;
    uint32_t failures, i, k;
    mgv_error error;
    for (i = 0; i < 2 * COUNT_OF(cases); i++) {
        const uint32_t c = i / 2, is_head = strncmp(cases[c].label, "head", 4) == 0;
        f->fault.label = cases[c].label;
        f->fault.image = IMAGES - 1;
        f->fault.row = cases[c].row;
        f->fault.column = cases[c].columns - 1;
        f->fault.change = i % 2 ? NAN : 3;
        if (validate(f, &failures, &error) != MGV_OK) fail_msg("%s", error.message);
        assert_true(failures >= 1);
        for (k = 1; k < f->row_count; k++) { /* row 0 is the whole encode */
            const mgv_validation *row = &f->rows[k];
            if (strcmp(row->label, f->fault.label) != 0) {
                /* no number goes on into what reads it, where both sides have it and neither is right */
                if (i % 2 == 0 && !row->ok) fail_msg("a fault in %s, and %s is said to be wrong", f->fault.label, row->label);
                continue;
            }
            assert_false(row->ok);
            assert_true(row->bad >= 1);
            assert_int_equal(row->bad_row, f->fault.image * (is_head ? 1u : (uint32_t)TOKENS) + f->fault.row);
            assert_int_equal(row->bad_column, f->fault.column);
        }
    }
}

/* All of a result is off by a little: half a rounding less than an operation may be off by is taken, half a rounding more is not. */
/* One channel is a hundred times as large as the others, as real towers have them: its own rounding is no fault, two per cent of it are. */
static void test_a_large_value_is_rounded_as_it_is_large(void **state) {
    const double tolerance = 2 * MGV__BF16_STEP;
    float expected[1000], got[1000];
    mgv__comparison c;
    uint32_t i;
    double scale;
    (void)state;
    for (i = 0; i < 1000; i++) got[i] = expected[i] = i % 2 ? 1.0f : -1.0f;
    expected[500] = 101.3f;
    got[500] = mgv__float_of_bf16(mgv__bf16_round(101.3f));
    scale = mgv__root_mean_square(expected, 1000);
    memset(&c, 0, sizeof c);
    c.tolerance = tolerance;
    c.scale = scale;
    mgv__comparison_add(&c, got, expected, 1000);
    assert_int_equal(c.bad, 0);
    got[500] = 101.3f * 1.02f;
    got[7] += (float)(17 * tolerance * scale);
    mgv__comparison_add(&c, got, expected, 1000);
    assert_int_equal(c.bad, 2);
    assert_int_equal(c.first_bad, 1007);
}

/* Two large terms cancel: rounding their weights moves the small sum by more than small sums are moved otherwise, which is no fault; by
   more than both of them could be is one. */
static void test_large_terms_of_a_small_sum(void **state) {
    fixture *f = (fixture *)*state;
    const mgv__program *program = &f->model->program;
    const mgv__tensor *weight;
    const mgv__op *op = NULL;
    mgv__validator v;
    mgv__comparison c;
    float *x, *expected, *got;
    uint32_t i, inner;
    double terms;
    for (i = 0; i < program->op_count && !op; i++)
        if (strcmp(program->ops[i].label, "fc1") == 0) op = &program->ops[i];
    assert_non_null(op);
    inner = program->buffers[op->source].columns;
    weight = &f->model->tensors[op->weight[0]];
    memset(&v, 0, sizeof v);
    v.model = f->model;
    v.cpu = f->twin;
    x = f->twin->buffers[op->source] + 2 * inner; /* row 2 of them */
    memset(x, 0, inner * sizeof *x);
    x[3] = 300;
    x[4] = -300 * mgv__tensor_value(weight, 5 * inner + 3) / mgv__tensor_value(weight, 5 * inner + 4);
    terms = 2 * 300 * fabs((double)mgv__tensor_value(weight, 5 * inner + 3));
    assert_true(terms > 10);
    assert_true(fabs(mgv__validation_terms(&v, op, 2 * op->columns + 5) - 1.13 * terms) < 1e-5 * terms);
    expected = (float *)calloc(3 * op->columns, sizeof *expected);
    got = (float *)calloc(3 * op->columns, sizeof *got);
    for (i = 0; i < 3 * op->columns; i++) got[i] = expected[i] = i % 2 ? 0.01f : -0.01f;
    memset(&c, 0, sizeof c);
    c.tolerance = 2 * MGV__BF16_STEP;
    c.scale = 0.01;
    got[2 * op->columns + 5] += (float)(c.tolerance * terms); /* both weights off by a whole step, in the same direction */
    mgv__comparison_add(&c, got, expected, 3 * op->columns);
    assert_int_equal(c.bad, 1);
    memset(&c.bad, 0, sizeof c.bad);
    c.of = &v;
    c.op = op;
    mgv__comparison_add(&c, got, expected, 3 * op->columns);
    assert_int_equal(c.bad, 0);
    got[2 * op->columns + 5] += (float)(c.tolerance * terms / 4);
    got[2 * op->columns + 6] = NAN;
    mgv__comparison_add(&c, got, expected, 3 * op->columns);
    assert_int_equal(c.bad, 2);
    free(expected);
    free(got);
}

static void test_a_spread_error_has_a_limit(void **state) {
    static const char *const labels[] = {"qkv", "attention", "fc2", "head values", "head fc1", "head fc2"};
    fixture *f = (fixture *)*state;
    uint32_t failures, i, k;
    mgv_error error;
    memset(&f->fault, 0, sizeof f->fault);
    for (i = 0; i < 2 * COUNT_OF(labels); i++) {
        const int too_much = i % 2;
        f->fault.label = labels[i / 2];
        f->fault.spread = (float)tolerance_of(f->fault.label) * (too_much ? 1.15f : 0.85f);
        if (validate(f, &failures, &error) != MGV_OK) fail_msg("%s", error.message);
        for (k = 1; k < f->row_count; k++) { /* row 0 is the whole encode */
            const mgv_validation *row = &f->rows[k];
            const int faulty = strcmp(row->label, f->fault.label) == 0;
            if (row->ok == (faulty && too_much))
                fail_msg("%g spread over %s: %s is off by %g", f->fault.spread, f->fault.label, row->label, row->relative_l2);
            if (faulty) assert_int_equal(row->bad, 0); /* no value stands out */
        }
    }
}

static void test_what_cannot_be_validated(void **state) {
    fixture *f = (fixture *)*state;
    uint32_t failures;
    mgv_error error;
    mgv_engine_desc desc;
    memset(&desc, 0, sizeof desc);
    assert_int_equal(mgv_validate(NULL, NULL, f->images, 1, NULL, NULL, &failures, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_validate(f->model, NULL, NULL, 0, NULL, NULL, &failures, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_validate(f->model, NULL, f->images, 1, NULL, NULL, NULL, &error), MGV_ERROR_ARGUMENT);
    fake_reset();
    fake.devices = 0;
    desc.kernels = "stands for megavit.fatbin";
    mgv__cuda_test_calls = &fake_calls;
    assert_int_equal(mgv_validate(f->model, &desc, f->images, 1, NULL, NULL, &failures, &error), MGV_ERROR_NO_DEVICE);
    assert_true(strlen(error.message) > 0);
    assert_int_equal(fake_alive(), 0);
}

/* Every CUDA call fails in turn: an error, nothing left behind. */
static void test_every_call_fails(void **state) {
    fixture *f = (fixture *)*state;
    uint64_t at;
    int failed = 1;
    memset(&f->fault, 0, sizeof f->fault);
    for (at = 1; failed; at += at < 60 ? 1 : 17) { /* all of the engine's making, then some of each run */
        counting_allocator counts;
        const mgv_engine_desc desc = begin(f, &counts);
        mgv_error error;
        mgv_result result;
        uint32_t failures;
        fake.fail_at = at;
        fake.fail_code = cudaErrorMemoryAllocation;
        result = mgv_validate(f->model, &desc, f->images, IMAGES, NULL, NULL, &failures, &error);
        failed = fake.failed != NULL;
        if (failed && result == MGV_OK && failures == 0 && strstr(fake.failed, "Destroy") == NULL && strstr(fake.failed, "Free") == NULL &&
            strstr(fake.failed, "Unload") == NULL && strstr(fake.failed, "GetDevice") == NULL && strstr(fake.failed, "SetDevice") == NULL &&
            strstr(fake.failed, "CaptureMode") == NULL)
            fail_msg("call %llu, %s, failed and nobody saw it", (unsigned long long)at, fake.failed);
        assert_int_equal(counts.live_blocks, 0);
        assert_int_equal(fake_alive(), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_right_kernel, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_model_without_a_head, set_up_without_head, tear_down),
        cmocka_unit_test_setup_teardown(test_faults_are_found_where_they_are, set_up, tear_down),
        cmocka_unit_test(test_a_large_value_is_rounded_as_it_is_large),
        cmocka_unit_test_setup_teardown(test_large_terms_of_a_small_sum, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_spread_error_has_a_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_cannot_be_validated, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_every_call_fails, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
