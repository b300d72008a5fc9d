/* Qwen3-VL and Qwen2.5-VL vision towers against transformers: every output of the small models in tests/golden. */
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

#include "golden.h"

/* The key prefixes of published files, in one file and in shards. */
static void check_prefixes_and_shards(void **state) {
    static const char *const files[] = {"qwen3_head_dim_72", "qwen2_5_float16"};
    golden g;
    size_t i;
    (void)state;
    for (i = 0; i < sizeof files / sizeof files[0]; i++) {
        golden_open(&g, files[i]);
        golden_check(&g, "visual.", 1);
        golden_check(&g, "model.visual.", 3);
        golden_close(&g);
    }
}

/* config.json and preprocessor_config.json as the published models have them: the vision tower's keys lie in vision_config,
   beside or under the text model's, which say other things under the same names. */
static void check_published_form(void **state) {
    static const struct {
        const char *file, *before_vision, *after_vision, *preprocessor;
        uint64_t unit; /* pixels of a merged token: the goldens were made with limits of 1 and 64 of them */
    } forms[] = {
        {"qwen3_head_dim_72",
         "{\"architectures\":[\"Qwen3VLForConditionalGeneration\"],\"image_token_id\":151655,\"model_type\":\"qwen3_vl\","
         "\"text_config\":{\"hidden_size\":2048,\"intermediate_size\":6144,\"num_hidden_layers\":28,\"head_dim\":128,"
         "\"rope_scaling\":{\"mrope_interleaved\":true,\"mrope_section\":[24,20,20],\"rope_type\":\"default\"},"
         "\"rope_theta\":5000000,\"model_type\":\"qwen3_vl_text\"},\"tie_word_embeddings\":true,\"vision_config\":",
         ",\"vision_end_token_id\":151653}",
         "{\"size\":{\"longest_edge\":16777216,\"shortest_edge\":65536},\"patch_size\":16,\"temporal_patch_size\":2,\"merge_size\":2,"
         "\"image_mean\":[0.5,0.5,0.5],\"image_std\":[0.5,0.5,0.5],\"processor_class\":\"Qwen3VLProcessor\","
         "\"image_processor_type\":\"Qwen2VLImageProcessorFast\"}",
         32 * 32},
        {"qwen2_5_float16",
         "{\"architectures\":[\"Qwen2_5_VLForConditionalGeneration\"],\"hidden_act\":\"silu\",\"hidden_size\":3584,"
         "\"intermediate_size\":18944,\"max_window_layers\":28,\"model_type\":\"qwen2_5_vl\",\"num_attention_heads\":28,"
         "\"num_hidden_layers\":28,\"rms_norm_eps\":1e-06,\"rope_theta\":1000000.0,\"torch_dtype\":\"bfloat16\","
         "\"use_sliding_window\":false,\"vision_config\":",
         ",\"rope_scaling\":{\"type\":\"mrope\",\"mrope_section\":[16,24,24]},\"vocab_size\":152064}",
         "{\"min_pixels\":3136,\"max_pixels\":12845056,\"patch_size\":14,\"temporal_patch_size\":2,\"merge_size\":2,"
         "\"image_mean\":[0.48145466,0.4578275,0.40821073],\"image_std\":[0.26862954,0.26130258,0.27577711],"
         "\"image_processor_type\":\"Qwen2VLImageProcessor\",\"processor_class\":\"Qwen2_5_VLProcessor\"}",
         28 * 28},
    };
    golden g;
    size_t i;
    (void)state;
    for (i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        char config[4096];
        golden_open(&g, forms[i].file);
        assert_true(strlen(forms[i].before_vision) + strlen(g.config) + strlen(forms[i].after_vision) < sizeof config);
        snprintf(config, sizeof config, "%s%s%s", forms[i].before_vision, g.config, forms[i].after_vision);
        g.config = config;
        g.preprocessor = forms[i].preprocessor;
        g.min_pixels = forms[i].unit;
        g.max_pixels = 64 * forms[i].unit;
        golden_check(&g, i == 0 ? "model.visual." : "visual.", 2);
        golden_close(&g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        GOLDEN_FILE("qwen3_base"),     GOLDEN_FILE("qwen3_head_dim_72"), GOLDEN_FILE("qwen3_clip"),    GOLDEN_FILE("qwen3_limits"),
        GOLDEN_FILE("qwen3_saved"),    GOLDEN_FILE("qwen2_5_base"),      GOLDEN_FILE("qwen2_5_float16"), GOLDEN_FILE("qwen2_5_clip"),
        GOLDEN_FILE("qwen2_5_saved"),  GOLDEN_FILE("qwen3_head_dim_128"), GOLDEN_FILE("qwen2_5_head_dim_112"),
        cmocka_unit_test(check_prefixes_and_shards),
        cmocka_unit_test(check_published_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
