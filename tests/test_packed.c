/* Files of packed weights: what is written is what is packed on the fly, and whatever is not that is refused with a sentence. */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_PLAN
#include "megavit.h"

#include "support.h"
#include "micro_siglip.h"
#include "packed_whole.h"

typedef struct fixture {
    micro_siglip micro;
    mgv_model *model;
    mgv__plan *plan;
    uint8_t *file;   /* as mgv_model_pack gives it */
    uint64_t bytes;
    uint8_t *block;  /* room for what is read */
} fixture;

static int set_up(void **state) {
    fixture *f = (fixture *)calloc(1, sizeof *f);
    mgv_error error;
    mgv_result result;
    micro_make(&f->micro, 1);
    f->model = micro_open(&f->micro, &error);
    if (!f->model) fail_msg("%s", error.message);
    f->plan = mgv__plan_make(&f->model->allocator, MGV_PRECISION_AUTO, &f->model->config, &f->model->program, 5, 5, &result,
                             &error); /* an engine of another size than the packer's */
    assert_non_null(f->plan);
    assert_int_equal(mgv_model_packed_bytes(f->model, "sm_90a", &f->bytes, &error), MGV_OK);
    f->file = (uint8_t *)malloc((size_t)f->bytes + 1);
    f->block = (uint8_t *)malloc((size_t)f->bytes);
    if (mgv_model_pack(f->model, "sm_90a", f->file, f->bytes, &error) != MGV_OK) fail_msg("%s", error.message);
    *state = f;
    return 0;
}
static int tear_down(void **state) {
    fixture *f = (fixture *)*state;
    mgv__plan_free(&f->model->allocator, f->plan);
    mgv_model_close(f->model);
    micro_free(&f->micro);
    free(f->file);
    free(f->block);
    free(f);
    return 0;
}

static mgv_result read_packed(const fixture *f, const void *data, uint64_t bytes, uint64_t model_hash, mgv_error *error) {
    mgv__packed_source source;
    memset(&source, 0, sizeof source);
    source.data = data;
    source.bytes = bytes;
    source.model_hash = model_hash;
    return packed_whole(&source, &f->model->allocator, NULL, f->plan, UINT64_MAX, f->block, error);
}
static void refused(const fixture *f, const void *data, uint64_t bytes, mgv_result expected, const char *sentence) {
    mgv_error error;
    mgv_result result = read_packed(f, data, bytes, f->model->hash, &error);
    if (result != expected || !strstr(error.message, sentence))
        fail_msg("wanted %d \"%s\", got %d: %s", expected, sentence, result, error.message);
    assert_non_null(strstr(error.message, "the packed weights in memory: "));
}
/* As somebody would who changes a header on purpose. */
static void sign(uint8_t *file) {
    uint64_t hash = mgv__hash_of(file, MGV__PACKED_HEADER - 8);
    int i;
    for (i = 0; i < 8; i++) file[MGV__PACKED_HEADER - 8 + i] = (uint8_t)(hash >> 8 * i);
}

/* The layout's hash while one bit of a number of the plan, `offset` bytes into `structure`, is the other way. */
static uint64_t hash_with_a_bit_turned(const mgv__plan *plan, void *structure, size_t offset) {
    uint8_t *byte = (uint8_t *)structure + offset;
    uint64_t hash;
    *byte ^= 1;
    hash = mgv__packed_layout_hash(plan);
    *byte ^= 1;
    return hash;
}

/* ---- tests ---- */

static void test_the_file_holds_what_is_packed_on_the_fly(void **state) {
    const fixture *f = (const fixture *)*state;
    const uint64_t bytes = mgv__plan_packed_bytes(f->plan);
    uint8_t *packed = (uint8_t *)malloc((size_t)bytes), *again = (uint8_t *)malloc((size_t)f->bytes);
    mgv_error error;
    assert_int_equal(f->bytes, MGV__PACKED_HEADER + bytes);
    mgv__plan_pack(f->plan, f->model->tensors, packed);
    assert_memory_equal(f->file + MGV__PACKED_HEADER, packed, bytes);
    if (read_packed(f, f->file, f->bytes, f->model->hash, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_memory_equal(f->block, packed, bytes);
    memset(again, 0xA5, (size_t)f->bytes);
    assert_int_equal(mgv_model_pack(f->model, "sm_90a", again, f->bytes, &error), MGV_OK);
    assert_memory_equal(again, f->file, f->bytes);
    free(packed);
    free(again);
}

/* Any byte of the header, changed in each of its bits; then with the header's own hash made right again. */
static void test_every_header_byte(void **state) {
    const fixture *f = (const fixture *)*state;
    uint8_t *file = (uint8_t *)malloc((size_t)f->bytes);
    uint32_t i, bit;
    memcpy(file, f->file, (size_t)f->bytes);
    for (i = 0; i < MGV__PACKED_HEADER; i++)
        for (bit = 0; bit < 8; bit++) {
            const char *unsigned_sentence = i < 8 ? "not a file of packed weights" : i < 16 ? "version" : "the header is damaged";
            const char *sentence = i < 8 ? "not a file of packed weights" : i < 16 ? "this megavit reads version 1 with 256" :
                i < 32 ? "packed for the architecture" : i < 36 ? "this kernel takes packing" :
                i == 36 && bit < 4 ? "; this kernel is for \"sm_90a\"" : i < 40 ? "which this megavit does not know" :
                i < 48 ? "laid out otherwise" : i < 56 ? "packed from another model" : i < 64 ? "laid out otherwise" :
                i < 72 ? "the weights are damaged" : "of the header is not zero";
            file[i] ^= (uint8_t)(1u << bit);
            refused(f, file, f->bytes, MGV_ERROR_FORMAT, unsigned_sentence);
            if (i < MGV__PACKED_HEADER - 8) {
                sign(file);
                refused(f, file, f->bytes, i >= 48 && i < 56 ? MGV_ERROR_MODEL : MGV_ERROR_FORMAT, sentence);
            }
            memcpy(file, f->file, MGV__PACKED_HEADER);
        }
    free(file);
}

static void test_every_length(void **state) {
    const fixture *f = (const fixture *)*state;
    uint64_t length;
    uint8_t *copy;
    for (length = 0; length < f->bytes; length += length < 2 * MGV__PACKED_HEADER ? 1 : 9973) {
        copy = (uint8_t *)malloc((size_t)length + 1); /* ends where the file does */
        memcpy(copy, f->file, (size_t)length);
        refused(f, copy, length, MGV_ERROR_FORMAT,
                length < MGV__PACKED_HEADER ? "are too few for a file of packed weights" : "where the header and the weights are");
        free(copy);
    }
    refused(f, f->file, f->bytes - 1, MGV_ERROR_FORMAT, "where the header and the weights are");
    f->file[f->bytes] = 0;
    refused(f, f->file, f->bytes + 1, MGV_ERROR_FORMAT, "where the header and the weights are");
}

static void test_damaged_weights(void **state) {
    const fixture *f = (const fixture *)*state;
    uint64_t i;
    for (i = MGV__PACKED_HEADER; i < f->bytes; i += 1 + (f->bytes - MGV__PACKED_HEADER) / 50) {
        f->file[i] ^= 0x10;
        refused(f, f->file, f->bytes, MGV_ERROR_FORMAT, "the weights are damaged");
        f->file[i] ^= 0x10;
    }
    f->file[f->bytes - 1] ^= 1;
    refused(f, f->file, f->bytes, MGV_ERROR_FORMAT, "the weights are damaged");
    f->file[f->bytes - 1] ^= 1;
}

static void test_another_model(void **state) {
    const fixture *f = (const fixture *)*state;
    micro_siglip other;
    mgv_model *model;
    mgv_error error;
    uint8_t *file = (uint8_t *)malloc((size_t)f->bytes);
    micro_make(&other, 2);
    model = micro_open(&other, &error);
    assert_non_null(model);
    assert_int_equal(mgv_model_pack(model, "sm_90a", file, f->bytes, &error), MGV_OK);
    refused(f, file, f->bytes, MGV_ERROR_MODEL, "packed from another model than this one");
    mgv_model_close(model);
    micro_free(&other);
    free(file);
}

/* Every number that says where something lies is in the hash of the layout: another one is another layout. */
static void test_the_layout_hash_takes_in_every_number(void **state) {
    static const size_t of_plan[] = {offsetof(mgv__plan, vectors_offset), offsetof(mgv__plan, weights_offset), offsetof(mgv__plan, norm)},
                        of_pack[][2] = {{offsetof(mgv__plan, pack_rows), 4}, {offsetof(mgv__plan, pack_columns), 4},
                                        {offsetof(mgv__plan, pack_pitch), 4}, {offsetof(mgv__plan, pack_offset), 8}}, /* and bytes each */
                        of_op[] = {offsetof(mgv__plan_op, first), offsetof(mgv__plan_op, end), offsetof(mgv__plan_op, packs),
                                   offsetof(mgv__plan_op, pack),
                                   offsetof(mgv__plan_op, kernel.flags), offsetof(mgv__plan_op, kernel.columns),
                                   offsetof(mgv__plan_op, b_row), offsetof(mgv__plan_op, bias),
                                   offsetof(mgv__plan_op, column_sums), offsetof(mgv__plan_op, table)};
    const fixture *f = (const fixture *)*state;
    mgv__plan *plan = f->plan;
    const uint64_t hash = mgv__packed_layout_hash(plan);
    size_t i, k;
    for (i = 0; i < COUNT_OF(of_plan); i++) assert_true(hash_with_a_bit_turned(plan, plan, of_plan[i]) != hash);
    for (i = 0; i < COUNT_OF(of_pack); i++)
        for (k = 0; k < MGV__PACK_COUNT; k++) assert_true(hash_with_a_bit_turned(plan, plan, of_pack[i][0] + k * of_pack[i][1]) != hash);
    for (k = 0; k < plan->op_count; k++) {
        const char *label = plan->ops[k].label;
        for (i = 0; i < COUNT_OF(of_op); i++)
            if (hash_with_a_bit_turned(plan, &plan->ops[k], of_op[i]) == hash) fail_msg("number %zu of %s", i, label);
        plan->ops[k].label = "another"; /* a name says nothing */
        assert_true(mgv__packed_layout_hash(plan) == hash);
        plan->ops[k].label = label;
    }
    plan->norm ^= 1; /* and the hash is what a file is judged by */
    refused(f, f->file, f->bytes, MGV_ERROR_FORMAT, "laid out otherwise");
    plan->norm ^= 1;
    assert_true(mgv__packed_layout_hash(plan) == hash); /* all is as it was */
}

/* Through files: two reads, nothing left open, every failing call a sentence. */
static void test_files(void **state) {
    const fixture *f = (const fixture *)*state;
    const fake_file entry = {"weights.mgvp", f->file, f->bytes};
    mgv__packed_source source;
    fake_files files;
    mgv_error error;
    uint64_t n;
    memset(&source, 0, sizeof source);
    source.path = "weights.mgvp";
    source.model_hash = f->model->hash;
    source.io = fake_files_make(&files, &entry, 1);
    memset(f->block, 0, (size_t)f->bytes - MGV__PACKED_HEADER);
    if (packed_whole(&source, &f->model->allocator, NULL, f->plan, UINT64_MAX, f->block, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_memory_equal(f->block, f->file + MGV__PACKED_HEADER, f->bytes - MGV__PACKED_HEADER);
    assert_int_equal(files.calls, 3);
    assert_int_equal(files.open_now, 0);
    for (n = 1; n <= 3; n++) {
        source.io = fake_files_make(&files, &entry, 1);
        files.fail_at = n;
        assert_int_equal(packed_whole(&source, &f->model->allocator, NULL, f->plan, UINT64_MAX, f->block, &error), MGV_ERROR_IO);
        assert_non_null(strstr(error.message, "weights.mgvp: "));
        assert_int_equal(files.open_now, 0);
    }
    source.io = fake_files_make(&files, &entry, 1);
    files.resize_at = 1;
    files.resize_by = 1000000000; /* a file that claims to be larger: nothing is allocated for it */
    assert_int_equal(packed_whole(&source, &f->model->allocator, NULL, f->plan, UINT64_MAX, f->block, &error), MGV_ERROR_FORMAT);
    source.io = fake_files_make(&files, &entry, 1);
    source.path = "absent.mgvp";
    assert_int_equal(packed_whole(&source, &f->model->allocator, NULL, f->plan, UINT64_MAX, f->block, &error), MGV_ERROR_IO);
    assert_non_null(strstr(error.message, "absent.mgvp: cannot be opened: there is no such file"));
    source.data = f->file;
    assert_int_equal(packed_whole(&source, &f->model->allocator, NULL, f->plan, UINT64_MAX, f->block, &error), MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "not from both"));
}

static void test_arguments(void **state) {
    const fixture *f = (const fixture *)*state;
    counting_allocator counts;
    mgv_allocator kept = f->model->allocator;
    mgv_error error;
    uint64_t bytes = 7, n;
    assert_int_equal(mgv_model_packed_bytes(f->model, "sm_80", &bytes, &error), MGV_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "there is no kernel for the architecture \"sm_80\"; there are kernels for sm_90a, sm_100a, "));
    assert_int_equal(bytes, 0);
    assert_int_equal(mgv_model_packed_bytes(NULL, "sm_90a", &bytes, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_model_packed_bytes(f->model, NULL, &bytes, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_model_packed_bytes(f->model, "sm_90a", NULL, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_model_pack(f->model, "sm_90a", NULL, f->bytes, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_model_pack(f->model, "sm_90a", f->block + 1, f->bytes, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_model_pack(f->model, "sm_90a", f->block, f->bytes - 1, &error), MGV_ERROR_CAPACITY);
    for (n = 1;; n++) {
        mgv_result result;
        ((fixture *)*state)->model->allocator = counting_allocator_make(&counts);
        counts.fail_at = n;
        result = mgv_model_packed_bytes(f->model, "sm_90a", &bytes, &error);
        ((fixture *)*state)->model->allocator = kept;
        assert_int_equal(counts.live_blocks, 0);
        if (result == MGV_OK) break;
        assert_int_equal(result, MGV_ERROR_NOMEM);
    }
    assert_int_equal(bytes, f->bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_file_holds_what_is_packed_on_the_fly),
        cmocka_unit_test(test_every_header_byte),
        cmocka_unit_test(test_every_length),
        cmocka_unit_test(test_damaged_weights),
        cmocka_unit_test(test_another_model),
        cmocka_unit_test(test_the_layout_hash_takes_in_every_number),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
