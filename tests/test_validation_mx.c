/* Validation in MXFP8 without a GPU: the kernel's list is played by the CPU's operations, which round as the kernel would, into bf16, MXFP8
   and statistics, with a fault in one place where the test wants one. What validation says of it is known beforehand. */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_CUDA
#define MEGAVIT_NO_CUDART
#include "megavit.h"

#include "support.h"
#include "fake_cuda.h"
#include "fake_mx.h"

enum { MAX_ROWS = 64 };

typedef struct fixture {
    mx_player player;
    uint8_t pixels[IMAGES * IMAGE_BYTES];
    mgv_image images[IMAGES];
    mgv_validation rows[MAX_ROWS];
    uint32_t row_count;
    char log[2000];
    int far; /* from zero lie the means of rows */
} fixture;

static int set_up(void **state, mgv_precision precision, double mean) {
    fixture *f = (fixture *)calloc(1, sizeof *f);
    size_t i;
    mx_open(&f->player, precision, mean);
    f->far = mean > 0;
    for (i = 0; i < sizeof f->pixels; i++) f->pixels[i] = (uint8_t)(i * 2654435761u >> 13);
    for (i = 0; i < IMAGES; i++) {
        f->images[i].pixels = f->pixels + i * IMAGE_BYTES;
        f->images[i].width = f->images[i].height = MICRO_SIDE;
    }
    *state = f;
    return 0;
}
static int set_up_mxfp8(void **state) { return set_up(state, MGV_PRECISION_MXFP8, 0); }
static int set_up_mixed(void **state) { return set_up(state, MGV_PRECISION_MXFP8_MIXED, 0); }
static int set_up_far(void **state) { return set_up(state, MGV_PRECISION_MXFP8, 1.5); }
static int tear_down(void **state) {
    fixture *f = (fixture *)*state;
    mx_close(&f->player);
    free(f);
    return 0;
}

static void note(void *user, const mgv_validation *row) {
    fixture *f = (fixture *)user;
    assert_true(f->row_count < MAX_ROWS);
    f->rows[f->row_count++] = *row;
}
static void keep_log(void *user, int32_t level, const char *message) {
    fixture *f = (fixture *)user;
    if (level == MGV_LOG_WARNING) strncat(f->log, message, sizeof f->log - strlen(f->log) - 1);
}
static mgv_result validate(fixture *f, int major, uint64_t fail_at, uint32_t *failures, mgv_error *error) {
    counting_allocator counts;
    mgv_engine_desc desc;
    mgv_result result;
    memset(&desc, 0, sizeof desc);
    desc.kernels = "stands for megavit.fatbin";
    desc.precision = f->player.precision;
    desc.logger.log = keep_log;
    desc.logger.user = f;
    desc.allocator = counting_allocator_make(&counts);
    mgv__cuda_test_calls = &fake_calls;
    fake_reset();
    fake.major = major;
    fake.multiprocessors = 148;
    fake.kernel = mx_kernel;
    counts.fail_at = fail_at;
    f->row_count = 0;
    f->log[0] = 0;
    result = mgv_validate(f->player.model, &desc, f->images, IMAGES, note, f, failures, error);
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

static uint32_t count(const fixture *f, const char *label) {
    uint32_t i, n = 0;
    for (i = 0; i < f->row_count; i++) n += strcmp(f->rows[i].label, label) == 0;
    return n;
}

/* Every operation is compared, and every row that is stored as MXFP8; nothing differs but for norms, whose statistics come in parts. */
static void test_a_right_kernel(void **state) {
    fixture *f = (fixture *)*state;
    const uint32_t all = f->player.precision == MGV_PRECISION_MXFP8;
    uint32_t failures = 9, i;
    mgv_error error;
    f->player.fault.what = MX_NOTHING;
    if (validate(f, 10, 0, &failures, &error) != MGV_OK) fail_msg("%s", error.message);
    for (i = 0; i < f->row_count; i++) {
        const mgv_validation *row = &f->rows[i];
        if (!row->ok) fail_msg("%s: %g, %u bad", row->label, row->relative_l2, (unsigned)row->bad);
        assert_true(!row->compared || row->different <= row->rows * row->columns / 5000);
    }
    assert_int_equal(failures, 0);
    assert_string_equal(f->rows[0].label, "whole encode");
    assert_true(f->rows[0].tolerance == sqrt(all ? 4.0 : 2.0) / 32);
    assert_int_equal(count(f, "stream, MXFP8"), 2); /* of patch embed and out; behind fc2 there is no product */
    for (i = 0; i < 2; i++) {
        assert_int_equal(find(f, "stream, MXFP8", i)->rows, IMAGES * TOKENS);
        assert_true(find(f, "stream, MXFP8", i)->tolerance == 0.1 / 8);
    }
    assert_true(find(f, "qkv", 0)->tolerance == 1.0 / 2048 && find(f, "fc2", 0)->tolerance == 1.0 / 2048);
    assert_true(find(f, "attention", 0)->tolerance == (all ? 0.1 / 8 : 1.0 / 1024));
    assert_true(find(f, "fc1", 0)->tolerance == (all ? 0.1 / 8 : 2.0 / 2048));
}

/* A neighbour is counted and no fault; what is further off is one, and where it is is said. */
static void test_faults(void **state) {
    static const struct {
        mx_fault fault;
        const char *row; /* which says so */
        uint32_t which, bad, column, different;
    } cases[] = {
        {{MX_NUMBER, "patch embed", 1}, "stream, MXFP8", 0, 0, 0, 1}, {{MX_NUMBER, "patch embed", 2}, "stream, MXFP8", 0, 1, 7, 1},
        {{MX_NUMBER, "attention", 1}, "attention", 0, 0, 0, 1},       {{MX_NUMBER, "attention", 2}, "attention", 0, 1, 7, 1},
        {{MX_NUMBER, "fc1", 1}, "fc1", 0, 0, 0, 1},                   {{MX_NUMBER, "fc1", 3}, "fc1", 0, 1, 7, 1},
        {{MX_NO_NUMBER, "out", 0}, "stream, MXFP8", 1, 1, 7, 1},
        {{MX_SCALE, "out", 1}, "stream, MXFP8", 1, 32, 0, 32},        {{MX_SCALE, "fc1", -1}, "fc1", 0, 32, 0, 32},
        {{MX_BF16, "qkv", 1}, "qkv", 0, 0, 0, 1},                     {{MX_BF16, "qkv", 4}, "qkv", 0, 1, 9, 1},
        {{MX_BF16, "fc2", 1}, "fc2", 0, 0, 0, 1},                     {{MX_BF16, "out", 4}, "out", 0, 1, 9, 1},
    };
    fixture *f = (fixture *)*state;
    uint32_t failures, i, k;
    mgv_error error;
    for (i = 0; i < COUNT_OF(cases); i++) {
        const mgv_validation *row;
        f->player.fault = cases[i].fault;
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
    f->player.fault.what = MX_STATISTICS;
    f->player.fault.label = "out";
    if (validate(f, 10, 0, &failures, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_int_equal(find(f, "fc1", 0)->ok, 0); /* the fake's rows were normalised by others */
    assert_int_equal(find(f, "qkv", 0)->ok, 1);
}

/* Rows that are MXFP8 before their norm, and how far their means are from zero; nothing is said of others. */
static void check_means(fixture *f, const char *writer, const char *reader) {
    uint32_t failures, i;
    mgv_error error;
    f->player.mean_of = writer;
    f->player.mean_ratio = 0;
    if (validate(f, 10, 0, &failures, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_true(f->player.mean_ratio > 0);
    for (i = 0; i < f->row_count; i++) {
        if (strcmp(f->rows[i].label, reader) == 0)
            assert_true(fabs(f->rows[i].mean_ratio / f->player.mean_ratio - 1) < 1e-5);
        else if (strcmp(f->rows[i].label, "qkv") != 0 && strcmp(f->rows[i].label, "fc1") != 0)
            assert_true(f->rows[i].mean_ratio == 0);
    }
}
static void test_means(void **state) {
    fixture *f = (fixture *)*state;
    const int far = f->far;
    check_means(f, "out", "fc1");
    check_means(f, "patch embed", "qkv");
    assert_true(far ? f->player.mean_ratio > 0.6 : f->player.mean_ratio < 0.4);
    assert_int_equal(strstr(f->log, "of its standard deviation where MXFP8 rounds it before a norm") != NULL, far);
}

static void test_refused(void **state) {
    fixture *f = (fixture *)*state;
    uint32_t failures, at;
    mgv_error error;
    f->player.fault.what = MX_NOTHING;
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
        cmocka_unit_test_setup_teardown(test_means, set_up_mixed, tear_down),
        cmocka_unit_test_setup_teardown(test_means, set_up_far, tear_down),
        cmocka_unit_test_setup_teardown(test_refused, set_up_mxfp8, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
