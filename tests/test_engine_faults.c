/* Engines that no picture fits are refused when they are made, and rows that are no numbers are an error: of models and descriptions that
   are right otherwise. */
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

#include "support.h"
#include "memory_model.h"

static mgv_model *open_model(const memory_model *m) {
    mgv_model *model;
    mgv_error error;
    if (memory_model_open(m, NULL, &model, &error) != MGV_OK) fail_msg("%s", error.message);
    return model;
}

/* What making an engine says; that it can be made where code is MGV_OK. */
static void expect_engine(const mgv_model *model, const mgv_engine_desc *desc, mgv_result code, const char *word) {
    mgv_engine *engine;
    mgv_error error;
    uint64_t bytes;
    const mgv_result result = mgv_engine_create(&engine, model, desc, &error);
    if (result != code || !strstr(error.message, word)) fail_msg("wanted %d \"%s\", got %d: %s", code, word, result, error.message);
    assert_int_equal(mgv_engine_workspace_bytes(model, desc, &bytes, &error), code);
    if (result == MGV_OK) assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
}

static void test_engines_that_no_picture_fits(void **state) {
    memory_model files;
    mgv_model *model;
    mgv_engine_desc desc;
    (void)state;
    small_qwen(&files); /* its file says 16 to 1024 pixels */
    model = open_model(&files);
    memset(&desc, 0, sizeof desc);
    expect_engine(model, &desc, MGV_OK, "");
    desc.max_pixels = 15;
    expect_engine(model, &desc, MGV_ERROR_ARGUMENT, "min_pixels 16 is more than max_pixels 15");
    desc.min_pixels = 15;
    expect_engine(model, &desc, MGV_OK, "");
    desc.max_pixels = 0;
    desc.min_pixels = 1025;
    expect_engine(model, &desc, MGV_ERROR_ARGUMENT, "min_pixels 1025 is more than max_pixels 1024");
    desc.min_pixels = 0;
    desc.max_tokens = 3;
    expect_engine(model, &desc, MGV_ERROR_CAPACITY, "max_tokens is 3, but the smallest picture of this model has 4");
    desc.max_tokens = 4;
    expect_engine(model, &desc, MGV_OK, "");
    mgv_model_close(model);
    files.files[2].data = "{\"do_resize\":false}";
    files.files[2].bytes = strlen((const char *)files.files[2].data);
    model = open_model(&files);
    desc.max_width = 3;
    expect_engine(model, &desc, MGV_ERROR_CAPACITY, "takes no picture smaller than 4 x 4");
    desc.max_width = 4;
    expect_engine(model, &desc, MGV_OK, "");
    mgv_model_close(model);
    memory_model_free(&files);
    small_siglip(&files);
    files.file_count = 3;
    files.files[2].data = "{\"do_resize\":false}";
    files.files[2].bytes = strlen((const char *)files.files[2].data);
    model = open_model(&files);
    memset(&desc, 0, sizeof desc);
    desc.max_height = 15;
    expect_engine(model, &desc, MGV_ERROR_CAPACITY, "4096 x 15, but this model does not resize (do_resize is false) and takes no picture "
                  "smaller than 16 x 16");
    desc.max_height = 16;
    desc.min_pixels = 5; /* of models of any size: not looked at here */
    expect_engine(model, &desc, MGV_OK, "");
    mgv_model_close(model);
    memory_model_free(&files);
}

typedef struct encoding {
    mgv_image images[2];
    uint8_t pixels[2 * 16 * 16 * 3];
    float rows[2 * 4 * 64];
    mgv_output output;
    mgv_encode_desc desc;
} encoding;
static void make_encoding(encoding *e) {
    size_t i;
    memset(e, 0, sizeof *e);
    for (i = 0; i < sizeof e->pixels; i++) e->pixels[i] = (uint8_t)(i * 2654435761u >> 13);
    for (i = 0; i < 2; i++) {
        e->images[i].pixels = e->pixels + i * 16 * 16 * 3;
        e->images[i].width = e->images[i].height = 16;
    }
    e->output.data = e->rows;
    e->output.capacity = COUNT_OF(e->rows);
    e->desc.images = e->images;
    e->desc.image_count = 2;
    e->desc.outputs = &e->output;
    e->desc.output_count = 1;
}

/* Weights that are finite and too large: the encode fails and says where, whatever is asked for and however; outputs before the overflow
   are there, and the engine works on. */
static void test_rows_that_are_no_numbers(void **state) {
    const float largest = 3.3e38f;
    memory_model files;
    mgv_model *model;
    mgv_engine_desc desc;
    mgv_engine *engine;
    mgv_error error;
    encoding e;
    int normalize;
    (void)state;
    small_siglip(&files);
    memory_model_fill(&files, "encoder.layers.1.mlp.fc2.weight", largest);
    model = open_model(&files);
    memset(&desc, 0, sizeof desc);
    desc.max_images = 2;
    assert_int_equal(mgv_engine_create(&engine, model, &desc, &error), MGV_OK);
    for (normalize = 0; normalize < 2; normalize++) {
        make_encoding(&e);
        e.output.normalize = (uint32_t)normalize;
        assert_int_equal(mgv_encode_blocking(engine, &e.desc, &error), MGV_ERROR_MODEL);
        assert_int_equal(error.code, MGV_ERROR_MODEL);
        assert_non_null(strstr(error.message, "output 0 of image 0 is NaN or infinite at column"));
        assert_int_equal(mgv_poll(engine, &error), MGV_STATUS_FAILED);
        assert_non_null(strstr(error.message, "overflows"));
        assert_int_equal(mgv_encode(engine, &e.desc, &error), MGV_OK);
        assert_int_equal(mgv_wait(engine, 60000, &error), MGV_ERROR_MODEL);
        assert_non_null(strstr(error.message, "output 0 of image 0"));
        e.output.kind = MGV_OUTPUT_TOKENS;
        assert_int_equal(mgv_encode_blocking(engine, &e.desc, &error), MGV_ERROR_MODEL);
        e.output.kind = MGV_OUTPUT_LAYER;
        e.output.index = 1;
        assert_int_equal(mgv_encode_blocking(engine, &e.desc, &error), MGV_OK);
        e.output.index = 2;
        assert_int_equal(mgv_encode_blocking(engine, &e.desc, &error), MGV_ERROR_MODEL);
    }
    assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
    mgv_model_close(model);
    memory_model_free(&files);
}

/* NaN and both infinities are found in any place of any precision, and nothing else is taken for one. */
static void test_where_the_first_is(void **state) {
    static const struct { mgv_dtype dtype; uint32_t width, bad[4], good[3]; } dtypes[] = {
        {MGV_DTYPE_F32, 4, {0x7F800000u, 0xFF800000u, 0x7FC00000u, 0xFF800001u}, {0x7F7FFFFFu, 0xFF7FFFFFu, 0x80000001u}},
        {MGV_DTYPE_F16, 2, {0x7C00u, 0xFC00u, 0x7E00u, 0xFC01u}, {0x7BFFu, 0xFBFFu, 0x8001u}},
        {MGV_DTYPE_BF16, 2, {0x7F80u, 0xFF80u, 0x7FC0u, 0xFF81u}, {0x7F7Fu, 0xFF7Fu, 0x8001u}}};
    size_t d, count, at, k;
    (void)state;
    for (d = 0; d < COUNT_OF(dtypes); d++)
        for (count = 0; count < 13; count++) {
            const uint32_t width = dtypes[d].width;
            uint8_t *values = (uint8_t *)malloc(count * width + 1); /* nothing behind it may be read */
            for (at = 0; at < count; at++) memcpy(values + 1 + at * width, &dtypes[d].good[at % 3], width);
            assert_int_equal(mgv__find_nonfinite(values + 1, count * width, dtypes[d].dtype), count);
            for (at = 0; at < count; at++)
                for (k = 0; k < 4; k++) {
                    memcpy(values + 1 + at * width, &dtypes[d].bad[k], width);
                    assert_int_equal(mgv__find_nonfinite(values + 1, count * width, dtypes[d].dtype), at);
                    memcpy(values + 1 + at * width, &dtypes[d].good[at % 3], width);
                }
            free(values);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engines_that_no_picture_fits),
        cmocka_unit_test(test_rows_that_are_no_numbers),
        cmocka_unit_test(test_where_the_first_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
