/* The header without a file system: files come from memory or from callbacks, and a path alone is an error that says so. */
#define MEGAVIT_NO_STDIO
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "support.h"

static const char header[] = "{\"t\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}";

static void a_path_alone(void **state) {
    mgv_safetensors_desc desc;
    mgv_safetensors *file;
    mgv_model_desc model_desc;
    mgv_model *model;
    mgv_error error;
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.path = "x.safetensors";
    assert_int_equal(mgv_safetensors_open(&file, &desc, &error), MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "MEGAVIT_NO_STDIO"));
    assert_null(file);
    memset(&model_desc, 0, sizeof model_desc);
    model_desc.path = "x";
    assert_int_equal(mgv_model_open(&model, &model_desc, &error), MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "MEGAVIT_NO_STDIO"));
    assert_null(model);
}
static void memory_and_callbacks(void **state) {
    mgv_safetensors_desc desc;
    mgv_safetensors *file;
    fake_file entry = {"x.safetensors", NULL, 0};
    fake_files files;
    mgv_error error;
    unsigned char *bytes, data[2];
    size_t count = make_safetensors(header, sizeof header - 1, 2, &bytes);
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.data = bytes;
    desc.bytes = count;
    assert_int_equal(mgv_safetensors_open(&file, &desc, &error), MGV_OK);
    assert_int_equal(mgv_safetensors_read(file, 0, data, 2, &error), MGV_OK);
    assert_int_equal(data[1], 1);
    mgv_safetensors_close(file);
    entry.data = bytes;
    entry.bytes = count;
    memset(&desc, 0, sizeof desc);
    desc.path = "x.safetensors";
    desc.io = fake_files_make(&files, &entry, 1);
    assert_int_equal(mgv_safetensors_open(&file, &desc, &error), MGV_OK);
    assert_int_equal(mgv_safetensors_read(file, 0, data, 2, &error), MGV_OK);
    assert_int_equal(data[1], 1);
    mgv_safetensors_close(file);
    assert_int_equal(files.open_now, 0);
    free(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_path_alone),
        cmocka_unit_test(memory_and_callbacks),
    };
    return cmocka_run_group_tests_name("no_stdio", tests, NULL, NULL);
}
