/* Files whose tensors are not the tower's: which name was looked for, and in which tower; shapes as sentences have them and as MLX keeps
   them. */
#define MEGAVIT_TEXT
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "support.h"

enum { LONG_NAME = 4096 };

/* A model of this config with one tensor of this name, of one number. */
static mgv_result open_with(const char *config, const char *name, mgv_tower tower, mgv_error *error) {
    static char header[2 * LONG_NAME];
    unsigned char *file;
    mgv_memory_file files[2] = {{"config.json", NULL, 0}, {"model.safetensors", NULL, 0}};
    mgv_model_desc desc;
    mgv_model *model = NULL;
    mgv_result result;
    const int length = snprintf(header, sizeof header, "{\"%s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", name);
    files[0].data = config;
    files[0].bytes = strlen(config);
    files[1].bytes = make_safetensors(header, (size_t)length, 4, &file);
    files[1].data = file;
    memset(&desc, 0, sizeof desc);
    desc.memory_files = files;
    desc.memory_file_count = 2;
    desc.tower = tower;
    result = mgv_model_open(&model, &desc, error);
    assert_null(model);
    free(file);
    return result;
}
static void what_is_missing_is_named(void **state) {
#define SIGLIP "{\"model_type\":\"siglip\"}"
#define ANCHOR "embeddings.patch_embedding.weight"
    static const struct { const char *config, *name; mgv_tower tower; const char *words; } cases[] = {
        {SIGLIP, "x", MGV_TOWER_VISION, "the files hold no vision tower of the kind"},
        {SIGLIP, "x", MGV_TOWER_TEXT, "the files hold no text tower of the kind"},
        {"{\"model_type\":\"qwen3\"}", "x", MGV_TOWER_LANGUAGE, "the files hold no language tower of the kind"},
        {SIGLIP, "x" ANCHOR, MGV_TOWER_VISION, "the files hold no vision tower"}, /* a name ends with it, but not behind a dot */
        {SIGLIP, "x." ANCHOR, MGV_TOWER_VISION, "\"x." ANCHOR "\""},                /* it is found, of another shape */
        {"{\"model_type\":\"siglip\",\"quantization_config\":{\"quant_method\":\"awq\"}}", "x", MGV_TOWER_VISION,
         "the weights are quantised (\"awq\")"},
    };
    mgv_error error;
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        const mgv_result result = open_with(cases[i].config, cases[i].name, cases[i].tower, &error);
        if (result != MGV_ERROR_MODEL || !strstr(error.message, cases[i].words)) fail_msg("case %zu: %s", i, error.message);
        assert_int_equal(open_with(cases[i].config, cases[i].name, cases[i].tower, NULL), result); /* nobody asks why */
    }
}
static void prefixes_have_an_end(void **state) {
    static char name[LONG_NAME];
    mgv_error error;
    (void)state;
    memset(name, 'x', LONG_NAME / 2);
    strcpy(name + LONG_NAME / 2, "." ANCHOR);
    assert_int_equal(open_with(SIGLIP, name, MGV_TOWER_VISION, &error), MGV_ERROR_MODEL);
    assert_non_null(strstr(error.message, "has a prefix of 2049 bytes; the limit is"));
}
static void shapes_are_told_as_far_as_there_is_room(void **state) {
    static const uint64_t shape[4] = {768, 3, 16, 16};
    char text[32];
    (void)state;
    mgv__shape_text(text, sizeof text, 4, shape);
    assert_string_equal(text, "[768, 3, 16, 16]");
    mgv__shape_text(text, sizeof "[768, 3, 16]", 4, shape);
    assert_string_equal(text, "[768, 3, 16]");
    mgv__shape_text(text, sizeof "[768, 3, 16]" - 1, 4, shape);
    assert_string_equal(text, "[768, 3]");
    mgv__shape_text(text, sizeof text, 0, shape);
    assert_string_equal(text, "[]");
}
static void convolutions_may_have_channels_last(void **state) {
    static const uint64_t shape[4] = {768, 3, 16, 8};
    static const struct { uint32_t rank; uint64_t dims[4]; int last; } cases[] = {
        {4, {768, 16, 8, 3}, 1}, {4, {768, 3, 16, 8}, 0}, {4, {768, 8, 16, 3}, 0}, {4, {768, 16, 16, 3}, 0}, {4, {768, 16, 8, 4}, 0},
        {4, {769, 16, 8, 3}, 0}, {3, {768, 128, 3, 0}, 0},
    };
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        mgv__tensor tensor;
        memset(&tensor, 0, sizeof tensor);
        tensor.rank = cases[i].rank;
        memcpy(tensor.shape, cases[i].dims, sizeof cases[i].dims);
        if (mgv__is_channels_last(&tensor, 4, shape) != cases[i].last) fail_msg("case %zu", i);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_missing_is_named),
        cmocka_unit_test(prefixes_have_an_end),
        cmocka_unit_test(shapes_are_told_as_far_as_there_is_room),
        cmocka_unit_test(convolutions_may_have_channels_last),
    };
    return cmocka_run_group_tests_name("names of towers", tests, NULL, NULL);
}
