/* Numbers that a model brings beside its towers, of each type; frequencies of YaRN where its pairs lie outside of a head, as transformers
   5.24 has them (modeling_rope_utils.py, _compute_yarn_parameters). */
#include <math.h>

#define MEGAVIT_TEXT
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "support.h"

/* logit_scale of this type and shape, whose bytes are `bits` from the lowest on; *number is left alone where it is not read. */
static mgv_result read_scalar(const char *dtype, const char *shape, uint32_t bytes, uint64_t bits, uint64_t fail_at, double *number,
                              mgv_error *error) {
    char header[256];
    unsigned char *file;
    fake_file entry = {"model/model.safetensors", NULL, 0};
    fake_files files;
    mgv_model_desc desc;
    mgv__source source;
    mgv__checkpoint checkpoint;
    mgv_result result;
    uint32_t i;
    const int length = snprintf(header, sizeof header, "{\"logit_scale\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[0,%u]}}",
                                dtype, shape, bytes);
    entry.bytes = make_safetensors(header, (size_t)length, bytes, &file);
    for (i = 0; i < bytes; i++) file[entry.bytes - bytes + i] = (unsigned char)(bits >> 8 * i);
    entry.data = file;
    memset(&desc, 0, sizeof desc);
    desc.path = "model";
    desc.io = fake_files_make(&files, &entry, 1);
    assert_int_equal(mgv__source_open(&source, &desc, error), MGV_OK);
    assert_int_equal(mgv__checkpoint_open(&checkpoint, &source, error), MGV_OK);
    if (fail_at) files.fail_at = files.calls + fail_at;
    result = mgv__model_read_scalar(&checkpoint, "logit_scale", number, error);
    assert_int_equal(mgv__model_read_scalar(&checkpoint, "logit_bias", number, error), MGV_OK); /* there is none */
    mgv__checkpoint_close(&checkpoint);
    free(file);
    return result;
}
static void numbers_beside_towers_are_read(void **state) {
    static const struct { const char *dtype, *shape; uint32_t bytes; uint64_t bits; double number; } cases[] = {
        {"F32", "", 4, 0x40490FDBu, 3.14159274101257324}, {"F32", "1", 4, 0xC0000000u, -2}, {"F32", "", 4, 0, 0},
        {"F32", "", 4, 1, 1.40129846432481707e-45}, {"F16", "", 2, 0x4248u, 3.140625}, {"F16", "", 2, 1, 5.9604644775390625e-8},
        {"F16", "", 2, 0x8400u, -6.103515625e-5}, {"BF16", "", 2, 0x4049u, 3.140625}, {"BF16", "", 2, 0x0001u, 9.18354961579912115e-41},
        {"F32", "2", 8, 0x4000000040000000u, 7}, {"I32", "", 4, 5, 7}, /* not one number of floating point: as it was */
    };
    double number;
    mgv_error error;
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        number = 7;
        if (read_scalar(cases[i].dtype, cases[i].shape, cases[i].bytes, cases[i].bits, 0, &number, &error) != MGV_OK)
            fail_msg("case %zu: %s", i, error.message);
        if (number != cases[i].number) fail_msg("case %zu: %.17g", i, number);
    }
    assert_int_equal(read_scalar("F32", "", 4, 0x7F800000u, 0, &number, &error), MGV_ERROR_MODEL);
    assert_non_null(strstr(error.message, "tensor \"logit_scale\" is NaN or infinite"));
    assert_int_equal(read_scalar("BF16", "", 2, 0x7FC0u, 0, &number, &error), MGV_ERROR_MODEL);
    number = 7;
    assert_int_equal(read_scalar("F32", "", 4, 0x40000000u, 1, &number, &error), MGV_ERROR_IO);
    assert_true(number == 7);
}
static void frequencies_of_yarn(void **state) {
    static const struct { float theta, factor; uint32_t original; int32_t truncate; double frequency[4], scale; } cases[] = {
        {10000, 4, 4096, 1, {1, 0.100000001, 0.00624999963, 0.000250000012}, 1.13862944},
        {10000, 4, 4096, 0, {1, 0.100000001, 0.006556971, 0.000250000012}, 1.13862944},
        {10000, 4, 32, 1, {1, 0.0250000004, 0.00249999994, 0.000250000012}, 1.13862944},
        {10, 4, 1000000, 1, {0.25, 0.140585333, 0.079056941, 0.0444569848}, 1.13862944},
        {10000, 4, 2, 1, {1, 0.0250000004, 0.00249999994, 0.000250000012}, 1.13862944},
        {10000, 1, 4096, 1, {1, 0.100000001, 0.00999999978, 0.00100000005}, 1},
        {10000, 0.5f, 4096, 1, {1, 0.100000001, 0.0149999997, 0.00200000009}, 1},
    };
    size_t i, j;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        mgv__config config;
        mgv__rotary rotary;
        memset(&config, 0, sizeof config);
        memset(&rotary, 0, sizeof rotary);
        config.head_dim = 8;
        config.rope_theta = cases[i].theta;
        config.rope_scaling.type = MGV__ROPE_YARN;
        config.rope_scaling.factor = cases[i].factor;
        config.rope_scaling.original = cases[i].original;
        config.rope_scaling.truncate = cases[i].truncate;
        mgv__set_yarn(&rotary, &config);
        for (j = 0; j < 4; j++)
            if (fabs((double)rotary.frequency[j] - cases[i].frequency[j]) > 1e-6 * cases[i].frequency[j])
                fail_msg("case %zu: frequency %zu is %.9g", i, j, (double)rotary.frequency[j]);
        if (fabs((double)rotary.scale - cases[i].scale) > 1e-6) fail_msg("case %zu: scale %.9g", i, (double)rotary.scale);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(numbers_beside_towers_are_read), cmocka_unit_test(frequencies_of_yarn)};
    return cmocka_run_group_tests_name("numbers of models", tests, NULL, NULL);
}
