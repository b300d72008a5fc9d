/* Texts that an encode does not take, each with its sentence, and the engine goes on; how a model says that its weights are quantised. */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_TEXT
#include "megavit.h"

#include "support.h"

static mgv_engine *make_engine(const mgv_model *model, uint32_t max_tokens) {
    mgv_engine *engine = NULL;
    mgv_engine_desc desc;
    mgv_error error;
    memset(&desc, 0, sizeof desc);
    desc.backend = MGV_BACKEND_CPU;
    desc.max_images = 2;
    desc.max_tokens = max_tokens;
    if (mgv_engine_create(&engine, model, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
    return engine;
}
static mgv_result encode(mgv_engine *engine, const mgv_text *texts, uint32_t count, float *pooled, size_t floats, mgv_error *error) {
    mgv_encode_desc desc;
    mgv_output output;
    memset(&desc, 0, sizeof desc);
    memset(&output, 0, sizeof output);
    output.data = pooled;
    output.capacity = floats;
    desc.texts = texts;
    desc.text_count = count;
    desc.outputs = &output;
    desc.output_count = 1;
    return mgv_encode_blocking(engine, &desc, error);
}

static void test_texts(void **state) {
    enum { WIDTH = 192, IDS = 200 };
    static float pooled[3 * WIDTH], again[3 * WIDTH];
    uint32_t ids[IDS] = {1, 2, 3};
    mgv_model *model = open_directory("examples/model", MGV_TOWER_TEXT), *pictures = open_directory("examples/model", MGV_TOWER_VISION);
    mgv_engine *engine = make_engine(model, 0), *other = make_engine(pictures, 0), *narrow;
    mgv_model_info info;
    mgv_text good, text, pair[3];
    mgv_error error;
    uint32_t i;
    (void)state;
    assert_int_equal(mgv_model_get_info(model, &info), MGV_OK);
    assert_int_equal(info.text_width, WIDTH);
    assert_true(info.max_text_tokens < IDS);
    narrow = make_engine(model, info.max_text_tokens + 1);
    memset(&good, 0, sizeof good);
    good.utf8 = "two yellow stars";
    good.bytes = strlen(good.utf8);
    if (encode(engine, &good, 1, pooled, COUNT_OF(pooled), &error) != MGV_OK) fail_msg("%s", error.message);
    for (i = 0; i < 8; i++) {
        static const char *const sentences[] = {"text 0: it has neither ids nor utf8", "text 0: its ids are NULL", "ids; the tower takes",
                                                "text 0: id 4294967295 at place 1; the tower's vocabulary ends at", "there are no texts",
                                                "3 texts in one encode; this engine was made for 2", "takes either images or texts",
                                                "ids up to text 1"};
        mgv_engine *asked = i == 6 ? other : i == 7 ? narrow : engine;
        const uint32_t count = i == 5 ? 3 : i == 7 ? 2 : 1;
        mgv_result result;
        text = good;
        if (i == 0) text.utf8 = NULL;
        if (i > 0 && i < 4) text.id_count = i == 2 ? info.max_text_tokens + 1 : 3;
        if (i > 1 && i < 4) text.ids = ids;
        ids[1] = i == 3 ? UINT32_MAX : 2;
        pair[0] = pair[1] = pair[2] = text;
        result = encode(asked, i == 4 ? NULL : pair, count, again, COUNT_OF(again), &error);
        assert_true(result == MGV_ERROR_ARGUMENT || result == MGV_ERROR_CAPACITY);
        if (!strstr(error.message, sentences[i])) fail_msg("%s: %s", sentences[i], error.message);
        assert_int_equal(encode(asked, i == 4 ? NULL : pair, count, again, COUNT_OF(again), NULL), result); /* nobody asks why */
        if (encode(engine, &good, 1, again, COUNT_OF(again), &error) != MGV_OK) fail_msg("%s", error.message);
        assert_memory_equal(again, pooled, WIDTH * sizeof pooled[0]);
    }
    mgv_engine_destroy(engine);
    mgv_engine_destroy(other);
    mgv_engine_destroy(narrow);
    mgv_model_close(model);
    mgv_model_close(pictures);
}

/* The method's name is told in the error of a model whose weights are packed; what names none is not one. */
static void test_quantised(void **state) {
    static const struct { const char *json, *name; } cases[] = {
        {"{\"quantization_config\":{\"quant_method\":\"awq\"}}", "awq"},
        {"{\"quantization_config\":{\"quant_method\":7}}", "quantization_config"},
        {"{\"quantization_config\":{\"quant_method\":\"a name that is longer than any method's\"}}", "quantization_config"},
        {"{\"quantization_config\":{}}", "quantization_config"},
        {"{\"quantization\":{\"bits\":4}}", "MLX"},
        {"{\"quantization\":4}", ""},
        {"{\"quantization_config\":null}", ""},
        {"{}", ""}};
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        mgv__config config;
        char json[200];
        memset(&config, 0, sizeof config);
        snprintf(json, sizeof json, "%s", cases[i].json);
        mgv__config_find_quantisation(&config, json);
        assert_string_equal(config.quantised_by, cases[i].name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_texts), cmocka_unit_test(test_quantised)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
