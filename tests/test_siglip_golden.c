/* SigLIP against transformers: every output of the small models in tests/golden, whatever their files look like. */
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

#include "golden.h"

/* The same weights under every key prefix that files in the wild have, and split into shards. */
static void check_prefixes_and_shards(void **state) {
    static const char *const prefixes[] = {"vision_model.",          "vision_tower.",       "vision_tower.vision_model.",
                                           "model.vision_tower.", "model.vision_tower.vision_model."};
    golden g;
    size_t i;
    (void)state;
    golden_open(&g, "siglip_epsilon");
    for (i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) golden_check(&g, prefixes[i], 1);
    golden_check(&g, "", 3);
    golden_check(&g, "vision_model.", 4);
    golden_close(&g);
}

/* config.json as the published SigLIP2 models have it, with the text tower's keys beside the vision tower's. */
static void check_published_form(void **state) {
    char config[2048];
    golden g;
    (void)state;
    golden_open(&g, "siglip_base");
    assert_true(strlen(g.config) < 1024);
    snprintf(config, sizeof config,
             "{\"architectures\":[\"SiglipModel\"],\"initializer_factor\":1.0,\"model_type\":\"siglip\","
             "\"text_config\":{\"hidden_size\":768,\"model_type\":\"siglip_text_model\",\"num_hidden_layers\":12,\"vocab_size\":256000},"
             "\"torch_dtype\":\"float32\",\"transformers_version\":\"4.49.0.dev0\",\"vision_config\":%s}",
             g.config);
    g.config = config;
    g.preprocessor = "{\"do_convert_rgb\":null,\"do_normalize\":true,\"do_rescale\":true,\"do_resize\":true,\"image_mean\":[0.5,0.5,0.5],"
                     "\"image_processor_type\":\"SiglipImageProcessor\",\"image_std\":[0.5,0.5,0.5],"
                     "\"processor_class\":\"SiglipProcessor\",\"resample\":2,\"rescale_factor\":0.00392156862745098,"
                     "\"size\":{\"height\":48,\"width\":48}}";
    golden_check(&g, "vision_model.", 1);
    golden_close(&g);
}

static void check_headless_model_has_no_pooled(void **state) {
    golden g;
    mgv_model *model;
    mgv_model_info info;
    mgv_engine *engine;
    mgv_image image;
    mgv_output output;
    mgv_encode_desc desc;
    mgv_error error;
    float data[256];
    uint32_t threads = 1;
    (void)state;
    golden_open(&g, "siglip_no_head");
    model = golden_open_model(&g, "", 1);
    memset(&info, 0, sizeof info);
    assert_int_equal(mgv_model_get_info(model, &info), MGV_OK);
    assert_int_equal(info.pooled_width, 0);
    engine = golden_engine(&g, model, MGV_PRECISION_AUTO, &threads);
    image = golden_image(&g.pictures[0]);
    memset(&output, 0, sizeof output);
    output.kind = MGV_OUTPUT_POOLED;
    output.data = data;
    output.capacity = sizeof data / sizeof data[0];
    memset(&desc, 0, sizeof desc);
    desc.images = &image;
    desc.image_count = 1;
    desc.outputs = &output;
    desc.output_count = 1;
    assert_int_equal(mgv_encode_blocking(engine, &desc, &error), MGV_ERROR_ARGUMENT);
    assert_true(strlen(error.message) > 0);
    assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
    mgv_model_close(model);
    golden_close(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        GOLDEN_FILE("siglip_base"),           GOLDEN_FILE("siglip_epsilon"),        GOLDEN_FILE("siglip_head_dim_72"),
        GOLDEN_FILE("siglip_head_dim_96"),    GOLDEN_FILE("siglip_trailing_pixels"), GOLDEN_FILE("siglip_one_token"),
        GOLDEN_FILE("siglip_patch_32"),       GOLDEN_FILE("siglip_many_tokens"),    GOLDEN_FILE("siglip_no_head"),
        GOLDEN_FILE("siglip_float16"),        GOLDEN_FILE("siglip_bfloat16"),       GOLDEN_FILE("siglip_sparse_layers"),
        GOLDEN_FILE("siglip_sparse_image"),   GOLDEN_FILE("siglip_saved_float16"),  GOLDEN_FILE("siglip_saved_bfloat16"),
        GOLDEN_FILE("siglip_saved_sharded"),  GOLDEN_FILE("siglip_default_model"),  cmocka_unit_test(check_prefixes_and_shards),
        cmocka_unit_test(check_published_form),
        cmocka_unit_test(check_headless_model_has_no_pooled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
