/* config.json and preprocessor_config.json: published shapes of them, class defaults, and every value that is refused. */
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "support.h"

static const char *no_preprocessor = NULL;

/* Reads a config from memory, with an exact copy of each text so that the sanitizers see every byte too far. */
static mgv_result read_config(const char *config_json, const char *preprocessor_json, mgv__config *config, mgv_error *error) {
    mgv_memory_file files[2];
    mgv_model_desc desc;
    mgv__source source;
    mgv_result result;
    char *copies[2] = {NULL, NULL};
    size_t i;
    memset(&desc, 0, sizeof desc);
    desc.memory_files = files;
    files[0].name = "config.json";
    files[0].data = config_json;
    files[1].name = "preprocessor_config.json";
    files[1].data = preprocessor_json;
    desc.memory_file_count = preprocessor_json ? 2 : 1;
    for (i = 0; i < desc.memory_file_count; i++) {
        files[i].bytes = strlen((const char *)files[i].data);
        copies[i] = (char *)malloc((size_t)files[i].bytes + 1);
        memcpy(copies[i], files[i].data, (size_t)files[i].bytes);
        files[i].data = copies[i];
    }
    result = mgv__source_open(&source, &desc, error);
    if (result == MGV_OK) result = mgv__config_read(config, &source, error);
    free(copies[0]);
    free(copies[1]);
    return result;
}
static mgv__config good(const char *config_json, const char *preprocessor_json) {
    mgv__config config;
    mgv_error error;
    if (read_config(config_json, preprocessor_json, &config, &error) != MGV_OK) fail_msg("%s: %s", config_json, error.message);
    return config;
}

static void expect_shape(const mgv__config *config, uint32_t hidden, uint32_t intermediate, uint32_t layers, uint32_t heads,
                         uint32_t head_dim) {
    assert_int_equal(config->hidden, hidden);
    assert_int_equal(config->intermediate, intermediate);
    assert_int_equal(config->layers, layers);
    assert_int_equal(config->heads, heads);
    assert_int_equal(config->head_dim, head_dim);
}

static void siglip_defaults_are_the_class_defaults(void **state) {
    static const char *const texts[] = {
        "{\"model_type\":\"siglip\"}", "{\"model_type\":\"siglip_vision_model\"}", "{\"model_type\":\"siglip\",\"vision_config\":null}",
        "{\"model_type\":\"siglip\",\"vision_config\":{}}", "{\"model_type\":\"siglip\",\"vision_config\":{\"model_type\":null}}",
        "{\"model_type\":\"siglip\",\"vision_config\":{\"hidden_size\":null}}",
        "{\"hidden_size\":11,\"model_type\":\"siglip\"}", /* keys of the whole model are not the tower's */
        "{\"model_type\":\"siglip\",\"text_config\":{\"hidden_size\":5},\"vision_config\":{\"model_type\":\"siglip_vision_model\"}}",
    };
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(texts); i++) {
        mgv__config config = good(texts[i], no_preprocessor);
        assert_int_equal(config.family, MGV_FAMILY_SIGLIP);
        expect_shape(&config, 768, 3072, 12, 12, 64);
        assert_int_equal(config.channels, 3);
        assert_int_equal(config.patch, 16);
        assert_int_equal(config.image_size, 224);
        assert_int_equal(config.position_side, 14);
        assert_true(config.epsilon == 1e-6f);
        assert_int_equal(config.activation, MGV__ACT_GELU_TANH);
        assert_int_equal(config.use_head, 1);
        assert_int_equal(config.temporal_patch, 1);
        assert_int_equal(config.merge, 1);
        assert_int_equal(config.out_hidden, 768);
        assert_int_equal(config.deepstack_count, 0);
        assert_int_equal(config.window_size, 0);
        assert_true(config.rope_theta == 0);
        assert_int_equal(config.pixels.resample, MGV__RESAMPLE_BICUBIC);
        assert_int_equal(config.pixels.width, 224);
        assert_int_equal(config.pixels.height, 224);
        assert_true(config.pixels.do_resize && config.pixels.do_rescale && config.pixels.do_normalize);
        assert_true(config.pixels.rescale_factor == 1 / 255.0);
        assert_true(config.pixels.mean[0] == 0.5 && config.pixels.mean[2] == 0.5 && config.pixels.std[0] == 0.5 &&
                    config.pixels.std[2] == 0.5);
        assert_int_equal(config.pixels.patch, 16);
        assert_int_equal(config.pixels.temporal_patch, 1);
        assert_int_equal(config.pixels.merge, 1);
    }
}
static void siglip_so400m(void **state) {
    mgv__config config = good("{\"architectures\":[\"SiglipModel\"],\"initializer_factor\":1.0,\"model_type\":\"siglip\","
                              "\"text_config\":{\"hidden_size\":1152,\"model_type\":\"siglip_text_model\"},\"torch_dtype\":\"float32\","
                              "\"vision_config\":{\"hidden_size\":1152,\"image_size\":384,\"intermediate_size\":4304,"
                              "\"layer_norm_eps\":0.05,"
                              "\"model_type\":\"siglip_vision_model\",\"num_attention_heads\":16,\"num_hidden_layers\":27,"
                              "\"patch_size\":[14,14],"
                              "\"hidden_act\":\"gelu\",\"vision_use_head\":false}}",
                              "{\"do_convert_rgb\":null,\"do_normalize\":true,\"do_rescale\":true,\"do_resize\":true,"
                              "\"image_mean\":[0.5,0.25,0.125],"
                              "\"image_processor_type\":\"SiglipImageProcessor\",\"image_std\":0.75,"
                              "\"processor_class\":\"SiglipProcessor\","
                              "\"resample\":2,\"rescale_factor\":0.00392156862745098,\"size\":{\"height\":384,\"width\":384}}");
    (void)state;
    expect_shape(&config, 1152, 4304, 27, 16, 72);
    assert_int_equal(config.patch, 14);
    assert_int_equal(config.image_size, 384);
    assert_int_equal(config.position_side, 27);
    assert_int_equal(config.activation, MGV__ACT_GELU_ERF);
    assert_int_equal(config.use_head, 0);
    assert_true(config.epsilon == 0.05f);
    assert_int_equal(config.pixels.resample, MGV__RESAMPLE_BILINEAR);
    assert_int_equal(config.pixels.width, 384);
    assert_true(config.pixels.mean[0] == 0.5 && config.pixels.mean[1] == 0.25 && config.pixels.mean[2] == 0.125);
    assert_true(config.pixels.std[0] == 0.75 && config.pixels.std[1] == 0.75 && config.pixels.std[2] == 0.75);
    assert_true(config.pixels.rescale_factor == 0.00392156862745098);
}
/* PaliGemma and others: the whole model is unknown, its tower is not. */
static void a_siglip_tower_inside_another_model(void **state) {
    mgv__config config = good("{\"model_type\":\"paligemma\",\"hidden_size\":2048,"
                              "\"vision_config\":{\"model_type\":\"siglip_vision_model\","
                              "\"num_hidden_layers\":3,\"projection_dim\":2048,\"vision_use_head\":false}}",
                              no_preprocessor);
    (void)state;
    assert_int_equal(config.family, MGV_FAMILY_SIGLIP);
    assert_int_equal(config.layers, 3);
    assert_int_equal(config.hidden, 768);
    assert_int_equal(config.use_head, 0);
}
static void qwen3_defaults_are_the_class_defaults(void **state) {
    static const char *const texts[] = {
        "{\"model_type\":\"qwen3_vl\"}", "{\"model_type\":\"qwen3_vl_vision\"}", "{\"model_type\":\"qwen3_vl\",\"hidden_size\":7}",
        "{\"model_type\":\"qwen3_vl\",\"vision_config\":{\"model_type\":\"qwen3_vl\"}}",
        "{\"model_type\":\"qwen3_vl_moe\",\"vision_config\":{}}",
    };
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(texts); i++) {
        mgv__config config = good(texts[i], "{}");
        assert_int_equal(config.family, MGV_FAMILY_QWEN3_VL);
        expect_shape(&config, 1152, 4304, 27, 16, 72);
        assert_int_equal(config.patch, 16);
        assert_int_equal(config.temporal_patch, 2);
        assert_int_equal(config.merge, 2);
        assert_int_equal(config.out_hidden, 3584);
        assert_int_equal(config.position_side, 48);
        assert_int_equal(config.image_size, 0);
        assert_int_equal(config.deepstack_count, 3);
        assert_int_equal(config.deepstack[0], 8);
        assert_int_equal(config.deepstack[1], 16);
        assert_int_equal(config.deepstack[2], 24);
        assert_int_equal(config.window_size, 0);
        assert_int_equal(config.full_attention_count, 0);
        assert_int_equal(config.activation, MGV__ACT_GELU_TANH);
        assert_true(config.rope_theta == 10000);
        assert_true(config.epsilon == 1e-6f);
        assert_int_equal(config.pixels.width, 0);
        assert_int_equal(config.pixels.factor, 32);
        assert_int_equal(config.pixels.min_pixels, 3136);
        assert_int_equal(config.pixels.max_pixels, 1003520);
        assert_true(config.pixels.mean[0] == 0.48145466 && config.pixels.std[2] == 0.27577711);
    }
}
static void qwen3_published(void **state) {
    mgv__config config = good("{\"model_type\":\"qwen3_vl\",\"text_config\":{\"hidden_size\":2048,"
                              "\"rope_scaling\":{\"mrope_section\":[24,20,20]}},"
                              "\"vision_config\":{\"deepstack_visual_indexes\":[5,11,17],\"depth\":24,\"hidden_act\":\"gelu_pytorch_tanh\","
                              "\"hidden_size\":1024,\"in_channels\":3,\"initializer_range\":0.02,\"intermediate_size\":4096,"
                              "\"model_type\":\"qwen3_vl\","
                              "\"num_heads\":16,\"num_position_embeddings\":2304,\"out_hidden_size\":2048,\"patch_size\":16,"
                              "\"spatial_merge_size\":2,"
                              "\"temporal_patch_size\":2,\"window_size\":1}}", /* a key of Qwen2.5 only */
                              "{\"size\":{\"longest_edge\":16777216,\"shortest_edge\":65536},\"patch_size\":16,\"temporal_patch_size\":2,"
                              "\"merge_size\":2,"
                              "\"image_mean\":[0.5,0.5,0.5],\"image_std\":[0.5,0.5,0.5],\"processor_class\":\"Qwen3VLProcessor\","
                              "\"image_processor_type\":\"Qwen2VLImageProcessorFast\"}");
    (void)state;
    assert_int_equal(config.layers, 24);
    assert_int_equal(config.hidden, 1024);
    assert_int_equal(config.head_dim, 64);
    assert_int_equal(config.out_hidden, 2048);
    assert_int_equal(config.deepstack_count, 3);
    assert_int_equal(config.deepstack[2], 17);
    assert_int_equal(config.window_size, 0);
    assert_int_equal(config.pixels.min_pixels, 65536);
    assert_int_equal(config.pixels.max_pixels, 16777216);
    assert_true(config.pixels.mean[1] == 0.5);
    config = good("{\"model_type\":\"qwen3_vl_vision\",\"num_position_embeddings\":144,\"deepstack_visual_indexes\":[],"
                  "\"rope_theta\":500.5}", no_preprocessor);
    assert_int_equal(config.position_side, 12);
    assert_int_equal(config.deepstack_count, 0);
    assert_true(config.rope_theta == 500.5f);
    /* An older tower on its own, saved with the whole model's name. */
    config = good("{\"model_type\":\"qwen3_vl\",\"depth\":26}", no_preprocessor);
    assert_int_equal(config.layers, 26);
}
static void qwen2_5_published(void **state) {
    mgv__config config = good("{\"model_type\":\"qwen2_5_vl\",\"hidden_size\":3584,\"num_attention_heads\":28,\"hidden_act\":\"silu\","
                              "\"rope_theta\":1000000.0,"
                              "\"vision_config\":{\"depth\":32,\"hidden_act\":\"silu\",\"hidden_size\":1280,\"intermediate_size\":3420,"
                              "\"num_heads\":16,"
                              "\"in_chans\":3,\"out_hidden_size\":3584,\"patch_size\":14,\"spatial_merge_size\":2,"
                              "\"spatial_patch_size\":14,"
                              "\"window_size\":112,\"fullatt_block_indexes\":[7,15,23,31],\"tokens_per_second\":2,"
                              "\"temporal_patch_size\":2,"
                              "\"deepstack_visual_indexes\":[1],\"rope_parameters\":{\"rope_theta\":20000.0,\"rope_type\":\"axial\"}}}",
                              "{\"min_pixels\":3136,\"max_pixels\":12845056,\"size\":{\"shortest_edge\":1,\"longest_edge\":2},"
                              "\"patch_size\":14,"
                              "\"temporal_patch_size\":2,\"merge_size\":2,\"image_mean\":[0.48145466,0.4578275,0.40821073],"
                              "\"image_std\":[0.26862954,0.26130258,0.27577711]}");
    (void)state;
    assert_int_equal(config.family, MGV_FAMILY_QWEN2_5_VL);
    assert_int_equal(config.hidden, 1280);
    assert_int_equal(config.head_dim, 80);
    assert_int_equal(config.window_size, 112);
    assert_int_equal(config.full_attention_count, 4);
    assert_int_equal(config.full_attention[3], 31);
    assert_int_equal(config.deepstack_count, 0);
    assert_int_equal(config.position_side, 0);
    assert_int_equal(config.activation, MGV__ACT_SILU);
    assert_true(config.rope_theta == 20000);
    assert_int_equal(config.pixels.min_pixels, 3136); /* min_pixels and max_pixels win over size, wherever they stand */
    assert_int_equal(config.pixels.max_pixels, 12845056);
    assert_int_equal(config.pixels.factor, 28);
    config = good("{\"model_type\":\"qwen2_5_vl\"}", no_preprocessor);
    assert_int_equal(config.hidden, 3584);
    assert_int_equal(config.head_dim, 224);
    assert_int_equal(config.full_attention_count, 4);
}

/* transformers 5 puts the image processor into processor_config.json. */
/* Where a directory has no file for it: what the family's models were published with, and not the defaults of the class. */
static void without_a_preprocessor_file(void **state) {
    mgv__config config = good("{\"model_type\":\"qwen3_vl\"}", no_preprocessor);
    (void)state;
    assert_int_equal(config.pixels.min_pixels, 65536);
    assert_int_equal(config.pixels.max_pixels, 16777216);
    assert_true(config.pixels.mean[0] == 0.5 && config.pixels.std[2] == 0.5);
    assert_int_equal(config.pixels.resample, MGV__RESAMPLE_BICUBIC);
    config = good("{\"model_type\":\"qwen2_5_vl\"}", no_preprocessor);
    assert_int_equal(config.pixels.min_pixels, 3136);
    assert_int_equal(config.pixels.max_pixels, 12845056);
    assert_true(config.pixels.mean[0] == 0.48145466 && config.pixels.std[2] == 0.27577711);
}
static void image_processor_inside_processor_config(void **state) {
    static const char config_json[] = "{\"model_type\":\"siglip\"}";
    static const char processor_json[] = "{\"image_processor\":{\"resample\":2,\"do_rescale\":false},"
                                         "\"processor_class\":\"SiglipProcessor\"}";
    static const char other_json[] = "{\"image_processor\":null,\"resample\":2}", no_json[] = "{\"resample\":2}";
    mgv_memory_file files[2];
    mgv_model_desc desc;
    mgv__source source;
    mgv__config config;
    mgv_error error;
    (void)state;
    memset(&desc, 0, sizeof desc);
    files[0].name = "config.json";
    files[0].data = config_json;
    files[0].bytes = sizeof config_json - 1;
    files[1].name = "processor_config.json";
    files[1].data = processor_json;
    files[1].bytes = sizeof processor_json - 1;
    desc.memory_files = files;
    desc.memory_file_count = 2;
    assert_int_equal(mgv__source_open(&source, &desc, &error), MGV_OK);
    assert_int_equal(mgv__config_read(&config, &source, &error), MGV_OK);
    assert_int_equal(config.pixels.resample, MGV__RESAMPLE_BILINEAR);
    assert_int_equal(config.pixels.do_rescale, 0);
    files[1].data = other_json;
    files[1].bytes = sizeof other_json - 1;
    assert_int_equal(mgv__config_read(&config, &source, &error), MGV_OK);
    assert_int_equal(config.pixels.resample, MGV__RESAMPLE_BICUBIC);
    files[1].data = no_json;
    files[1].bytes = sizeof no_json - 1;
    assert_int_equal(mgv__config_read(&config, &source, &error), MGV_OK);
    assert_int_equal(config.pixels.resample, MGV__RESAMPLE_BICUBIC);
}

/* The limits of clips come from the video processor, wherever it was saved, and only for models that take clips. */
static void limits_of_clips(void **state) {
    static const struct {
        const char *config, *name, *text;
        uint64_t least, most;
        mgv_result result;
    } cases[] = {
        {"{\"model_type\":\"qwen3_vl\"}", "video_preprocessor_config.json",
         "{\"size\":{\"longest_edge\":25165824,\"shortest_edge\":4096}}", 4096, 25165824, MGV_OK},
        {"{\"model_type\":\"qwen2_5_vl\"}", "video_preprocessor_config.json", "{\"max_pixels\":5000,\"size\":{\"longest_edge\":7,"
                                                                              "\"shortest_edge\":9}}", 9, 5000,
         MGV_OK},
        {"{\"model_type\":\"qwen3_vl\"}", "processor_config.json", "{\"video_processor\":{\"size\":{\"longest_edge\":77,"
                                                                   "\"shortest_edge\":7}}}", 7, 77, MGV_OK},
        {"{\"model_type\":\"qwen3_vl\"}", "processor_config.json", "{\"video_processor\":null}", 4096, 25165824, MGV_OK},
        {"{\"model_type\":\"qwen3_vl\"}", "video_preprocessor_config.json", "{}", 131072, 786432, MGV_OK},
        {"{\"model_type\":\"qwen3_vl\"}", "unrelated.json", "{", 4096, 25165824, MGV_OK},
        {"{\"model_type\":\"siglip\"}", "video_preprocessor_config.json", "{", 0, 0, MGV_OK},
        {"{\"model_type\":\"qwen3_vl\"}", "video_preprocessor_config.json", "{", 0, 0, MGV_ERROR_FORMAT},
        {"{\"model_type\":\"qwen3_vl\"}", "video_preprocessor_config.json", "{\"size\":{\"longest_edge\":7,\"shortest_edge\":9}}", 0, 0,
         MGV_ERROR_MODEL},
        {"{\"model_type\":\"qwen3_vl\"}", "video_preprocessor_config.json", "{\"size\":{\"longest_edge\":0,\"shortest_edge\":0}}", 0, 0,
         MGV_ERROR_UNSUPPORTED},
        {"{\"model_type\":\"qwen3_vl\"}", "video_preprocessor_config.json", "{\"size\":224}", 0, 0, MGV_ERROR_UNSUPPORTED},
    };
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        counting_allocator counts;
        mgv_memory_file files[2];
        mgv_model_desc desc;
        mgv__source source;
        mgv__config config;
        mgv_error error;
        mgv_result result;
        memset(&desc, 0, sizeof desc);
        desc.allocator = counting_allocator_make(&counts);
        files[0].name = "config.json";
        files[0].data = cases[i].config;
        files[1].name = cases[i].name;
        files[1].data = cases[i].text;
        files[0].bytes = strlen(cases[i].config);
        files[1].bytes = strlen(cases[i].text);
        desc.memory_files = files;
        desc.memory_file_count = 2;
        assert_int_equal(mgv__source_open(&source, &desc, &error), MGV_OK);
        result = mgv__config_read(&config, &source, &error);
        if (result != cases[i].result) fail_msg("case %zu: %s", i, error.message);
        assert_int_equal(counts.live_blocks, 0);
        if (result != MGV_OK) {
            if (strstr(error.message, "video_preprocessor_config.json") == NULL) fail_msg("case %zu: %s", i, error.message);
            continue;
        }
        assert_int_equal(config.pixels.clip_min_pixels, cases[i].least);
        assert_int_equal(config.pixels.clip_max_pixels, cases[i].most);
        assert_int_equal(config.pixels.clip_counts_frames, config.family == MGV_FAMILY_QWEN3_VL);
    }
}

typedef struct bad_case {
    const char *config;
    const char *preprocessor;
    mgv_result code;
    const char *sentence; /* a part of it */
} bad_case;
#define S(more) "{\"model_type\":\"siglip_vision_model\"," more "}"
#define Q3(more) "{\"model_type\":\"qwen3_vl_vision\"," more "}"
#define Q25(more) "{\"model_type\":\"qwen2_5_vl_vision\",\"hidden_size\":1280," more "}"
#define MODEL MGV_ERROR_MODEL
#define UNSUPPORTED MGV_ERROR_UNSUPPORTED
static const bad_case bad_cases[] = {
    {"", NULL, MGV_ERROR_FORMAT, "not an object"},
    {"[]", NULL, MGV_ERROR_FORMAT, "not an object"},
    {"{\"model_type\":\"siglip\",\"model_type\":\"siglip\"}", NULL, MGV_ERROR_FORMAT, "already has"},
    {"{}", NULL, MODEL, "model_type"},
    {"{\"model_type\":null}", NULL, MODEL, "model_type"},
    {"{\"model_type\":5}", NULL, MODEL, "model_type"},
    {"{\"model_type\":\"resnet\"}", NULL, UNSUPPORTED, "\"resnet\""},
    {"{\"model_type\":\"siglip2_vision_model\",\"num_patches\":0}", NULL, MODEL, "num_patches"},
    {"{\"model_type\":\"siglip2_vision_model\",\"num_patches\":1000000000}", NULL, MODEL, "num_patches"},
    {"{\"model_type\":\"siglip2_vision_model\",\"num_patches\":255}", NULL, MODEL, "no square number"},
    {"{\"model_type\":\"siglip2\",\"vision_config\":{\"model_type\":\"siglip2_vision_model\"}}", "{\"max_num_patches\":0}", MODEL,
     "max_num_patches"},
    {"{\"model_type\":\"siglip2_vision_model\"}", "{\"image_processor_type\":\"SiglipImageProcessor\"}", UNSUPPORTED, "SigLIP2 NaFlex"},
    {S("\"hidden_size\":768"), "{\"image_processor_type\":\"Siglip2ImageProcessor\"}", UNSUPPORTED, "no pictures for a tower of SigLIP"},
    {"{\"model_type\":\"qwen2_audio\"}", NULL, UNSUPPORTED, "\"qwen2_audio\""},
    {"{\"model_type\":\"siglip\",\"vision_config\":[]}", NULL, MODEL, "vision_config"},
    {"{\"model_type\":\"siglip\",\"vision_config\":\"x\"}", NULL, MODEL, "vision_config"},
    {"{\"model_type\":\"siglip\",\"vision_config\":{\"hidden_size\":0}}", NULL, MODEL, "hidden_size"},
    {S("\"hidden_size\":0"), NULL, MODEL, "hidden_size is not an integer from 1 to 16384"},
    {S("\"hidden_size\":-768"), NULL, MODEL, "hidden_size"},
    {S("\"hidden_size\":768.0"), NULL, MODEL, "hidden_size"},
    {S("\"hidden_size\":7.68e2"), NULL, MODEL, "hidden_size"},
    {S("\"hidden_size\":\"768\""), NULL, MODEL, "hidden_size"},
    {S("\"hidden_size\":true"), NULL, MODEL, "hidden_size"},
    {S("\"hidden_size\":[768]"), NULL, MODEL, "hidden_size"},
    {S("\"hidden_size\":16385"), NULL, MODEL, "hidden_size"},
    {S("\"hidden_size\":4294967297"), NULL, MODEL, "hidden_size"},
    {S("\"hidden_size\":18446744073709551616"), NULL, MODEL, "hidden_size"},
    {S("\"hidden_size\":770"), NULL, MODEL, "770 is no multiple of 12 heads"},
    {S("\"hidden_size\":776"), NULL, MODEL, "776 is no multiple of 12 heads"},
    {S("\"num_attention_heads\":1"), NULL, UNSUPPORTED, "768 columns"},
    {S("\"num_attention_heads\":1024,\"hidden_size\":512"), NULL, MODEL, "multiple"},
    {S("\"num_attention_heads\":0"), NULL, MODEL, "num_attention_heads"},
    {S("\"num_hidden_layers\":0"), NULL, MODEL, "num_hidden_layers"},
    {S("\"num_hidden_layers\":1000000000"), NULL, MODEL, "num_hidden_layers"},
    {S("\"intermediate_size\":0"), NULL, MODEL, "intermediate_size"},
    {S("\"num_channels\":0"), NULL, MODEL, "num_channels"},
    {S("\"num_channels\":1"), NULL, UNSUPPORTED, "1 channels"},
    {S("\"num_channels\":4"), NULL, UNSUPPORTED, "4 channels"},
    {S("\"patch_size\":0"), NULL, MODEL, "patch_size"},
    {S("\"patch_size\":225"), NULL, MODEL, "225 pixels is larger than the image of 224"},
    {S("\"patch_size\":[16,14]"), NULL, UNSUPPORTED, "squares"},
    {S("\"patch_size\":[16,\"16\"]"), NULL, UNSUPPORTED, "squares"},
    {S("\"patch_size\":[]"), NULL, MODEL, "patch_size is empty"},
    {S("\"patch_size\":[0,0]"), NULL, MODEL, "patch_size"},
    {S("\"image_size\":0"), NULL, MODEL, "image_size"},
    {S("\"image_size\":100000"), NULL, MODEL, "image_size"},
    {S("\"image_size\":{}"), NULL, MODEL, "image_size"},
    {S("\"hidden_act\":\"mish\""), NULL, UNSUPPORTED, "\"mish\""},
    {S("\"hidden_act\":1"), NULL, MODEL, "hidden_act"},
    {S("\"layer_norm_eps\":0"), NULL, MODEL, "layer_norm_eps"},
    {S("\"layer_norm_eps\":-1e-6"), NULL, MODEL, "layer_norm_eps"},
    {S("\"layer_norm_eps\":1e400"), NULL, MGV_ERROR_FORMAT, "10^308"},
    {S("\"layer_norm_eps\":1e300"), NULL, MODEL, "layer_norm_eps"},
    {S("\"layer_norm_eps\":\"NaN\""), NULL, MODEL, "layer_norm_eps"},
    {S("\"layer_norm_eps\":NaN"), NULL, MGV_ERROR_FORMAT, "JSON"},
    {S("\"layer_norm_eps\":2"), NULL, MODEL, "layer_norm_eps"},
    {S("\"vision_use_head\":1"), NULL, MODEL, "vision_use_head"},
    {Q3("\"depth\":0"), NULL, MODEL, "depth"},
    {Q3("\"num_heads\":18446744073709551615"), NULL, MODEL, "num_heads"},
    {Q3("\"num_heads\":7"), NULL, MODEL, "no multiple of 7 heads"},
    {Q3("\"num_heads\":64"), NULL, MODEL, "not a multiple of 4"},
    {Q3("\"spatial_merge_size\":0"), NULL, MODEL, "spatial_merge_size"},
    {Q3("\"temporal_patch_size\":0"), NULL, MODEL, "temporal_patch_size"},
    {Q3("\"out_hidden_size\":0"), NULL, MODEL, "out_hidden_size"},
    {Q3("\"in_channels\":1"), NULL, UNSUPPORTED, "1 channels"},
    {Q3("\"num_position_embeddings\":0"), NULL, MODEL, "num_position_embeddings"},
    {Q3("\"num_position_embeddings\":2305"), NULL, MODEL, "no square number"},
    {Q3("\"num_position_embeddings\":2303"), NULL, MODEL, "no square number"},
    {Q3("\"num_position_embeddings\":4294967296"), NULL, MODEL, "num_position_embeddings"},
    {Q3("\"deepstack_visual_indexes\":5"), NULL, MODEL, "not an array"},
    {Q3("\"deepstack_visual_indexes\":[8,8]"), NULL, MODEL, "ascending"},
    {Q3("\"deepstack_visual_indexes\":[8,4]"), NULL, MODEL, "ascending"},
    {Q3("\"deepstack_visual_indexes\":[-1]"), NULL, MODEL, "ascending"},
    {Q3("\"deepstack_visual_indexes\":[512]"), NULL, MODEL, "ascending"},
    {Q3("\"deepstack_visual_indexes\":[27]"), NULL, MODEL, "layer 27 of 27 layers"},
    {Q3("\"depth\":24"), NULL, MODEL, "layer 24 of 24 layers"},
    {Q3("\"deepstack_visual_indexes\":[0,1,2,3,4,5,6,7,8]"), NULL, UNSUPPORTED, "more than 8"},
    {Q3("\"rope_theta\":0"), NULL, MODEL, "rope_theta"},
    {Q3("\"rope_theta\":-1"), NULL, MODEL, "rope_theta"},
    {Q3("\"rope_theta\":1e999"), NULL, MGV_ERROR_FORMAT, "10^308"},
    {Q3("\"rope_theta\":\"inf\""), NULL, MODEL, "rope_theta"},
    {Q3("\"rope_parameters\":[]"), NULL, MODEL, "rope_parameters"},
    {Q3("\"rope_parameters\":{\"rope_theta\":0}"), NULL, MODEL, "rope_theta"},
    {Q3("\"rope_parameters\":{\"rope_type\":\"yarn\"}"), NULL, UNSUPPORTED, "rope_type"},
    {Q3("\"rope_parameters\":{\"rope_type\":3}"), NULL, UNSUPPORTED, "rope_type"},
    {Q3("\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":0.5}"), NULL, MODEL, "rope_theta"},
    {Q25("\"window_size\":0"), NULL, MODEL, "window_size"},
    {Q25("\"window_size\":27"), NULL, MODEL, "window of 27 pixels"},
    {Q25("\"fullatt_block_indexes\":{}"), NULL, MODEL, "not an array"},
    {Q25("\"fullatt_block_indexes\":[3,1]"), NULL, MODEL, "ascending"},
    {"{\"model_type\":\"siglip\"}", "", MGV_ERROR_FORMAT, "preprocessor_config.json"},
    {"{\"model_type\":\"siglip\"}", "{\"resample\":4}", UNSUPPORTED, "resample 4"},
    {"{\"model_type\":\"siglip\"}", "{\"resample\":6}", MODEL, "resample"},
    {"{\"model_type\":\"siglip\"}", "{\"resample\":\"bicubic\"}", MODEL, "resample"},
    {"{\"model_type\":\"siglip\"}", "{\"size\":{\"height\":224}}", UNSUPPORTED, "size"},
    {"{\"model_type\":\"siglip\"}", "{\"size\":{\"width\":224}}", UNSUPPORTED, "size"},
    {"{\"model_type\":\"siglip\"}", "{\"size\":{\"height\":0,\"width\":224}}", UNSUPPORTED, "size"},
    {"{\"model_type\":\"siglip\"}", "{\"size\":{\"height\":224,\"width\":225}}", MODEL, "225 x 224"},
    {"{\"model_type\":\"siglip\"}", "{\"size\":{\"height\":225,\"width\":224}}", MODEL, "224 x 225"},
    {"{\"model_type\":\"siglip\"}", "{\"size\":{\"height\":256,\"width\":256}}", MODEL, "256 x 256 pixels, the model takes 224 x 224"},
    {"{\"model_type\":\"siglip\"}", "{\"do_resize\":1}", MODEL, "do_resize"},
    {"{\"model_type\":\"siglip\"}", "{\"do_rescale\":\"true\"}", MODEL, "do_rescale"},
    {"{\"model_type\":\"siglip\"}", "{\"rescale_factor\":0}", MODEL, "rescale_factor"},
    {"{\"model_type\":\"siglip\"}", "{\"rescale_factor\":true}", MODEL, "rescale_factor"},
    {"{\"model_type\":\"siglip\"}", "{\"image_mean\":[0.5,0.5]}", MODEL, "image_mean has 2 numbers"},
    {"{\"model_type\":\"siglip\"}", "{\"image_mean\":[0.5,0.5,0.5,0.5]}", MODEL, "image_mean has 4 numbers"},
    {"{\"model_type\":\"siglip\"}", "{\"image_mean\":[0.5,null,0.5]}", MODEL, "image_mean"},
    {"{\"model_type\":\"siglip\"}", "{\"image_mean\":1e300}", MODEL, "image_mean"},
    {"{\"model_type\":\"siglip\"}", "{\"image_std\":[0.5,0.5,0]}", MODEL, "image_std"},
    {"{\"model_type\":\"siglip\"}", "{\"image_std\":[0.5,0.5,-0.5]}", MODEL, "image_std"},
    {"{\"model_type\":\"siglip\"}", "{\"do_center_crop\":true}", UNSUPPORTED, "do_center_crop"},
    {"{\"model_type\":\"siglip\"}", "{\"do_pad\":true,\"pad_size\":225}", UNSUPPORTED, "do_pad"},
    {Q3("\"depth\":25"), "{\"patch_size\":14}", MODEL, "patches of 14 pixels"},
    {Q3("\"depth\":25"), "{\"merge_size\":1}", MODEL, "merged 1 by 1"},
    {Q3("\"depth\":25"), "{\"temporal_patch_size\":1}", MODEL, "1 frames"},
    {Q3("\"depth\":25"), "{\"size\":224}", UNSUPPORTED, "size"},
    {Q3("\"depth\":25"), "{\"size\":{\"shortest_edge\":0}}", UNSUPPORTED, "size"},
    {Q3("\"depth\":25"), "{\"size\":{\"longest_edge\":2000000000000}}", MODEL, "longest_edge"},
    {Q3("\"depth\":25"), "{\"min_pixels\":5,\"max_pixels\":4}", MODEL, "at least 5 pixels and at most 4"},
    {Q3("\"depth\":25"), "{\"min_pixels\":-5}", MODEL, "min_pixels"},
};
static void bad_values_are_named(void **state) {
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(bad_cases); i++) {
        const bad_case *bad = &bad_cases[i];
        mgv__config config;
        mgv_error error;
        mgv_result result = read_config(bad->config, bad->preprocessor, &config, &error);
        if (result != bad->code || error.code != bad->code) {
            fail_msg("%s %s: %s, not %s (%s)", bad->config, bad->preprocessor ? bad->preprocessor : "", mgv_result_name(result),
                     mgv_result_name(bad->code), result ? error.message : "");
        }
        if (strstr(error.message, bad->sentence) == NULL) fail_msg("%s: %s", bad->config, error.message);
        if (strstr(error.message, "config.json") == NULL) fail_msg("no file named: %s", error.message);
    }
    print_message("%zu cases\n", COUNT_OF(bad_cases));
}
static void good_and_odd_values(void **state) {
    (void)state;
    (void)good(S("\"quantization\":{\"deep\":[[[{}]]]},\"hidden_act\":\"gelu_new\""), "{\"do_pad\":false,\"do_center_crop\":null,"
                                                                                      "\"crop_size\":null}");
    assert_int_equal(good(S("\"image_size\":[384,384]"), no_preprocessor).image_size, 384);
    /* A tower that was cut short keeps its list. */
    assert_int_equal(good(Q25("\"fullatt_block_indexes\":[31,99]"), no_preprocessor).full_attention_count, 2);
}
static void a_missing_config_is_an_io_error(void **state) {
    mgv_memory_file file = {"other.json", "{}", 2};
    mgv_model_desc desc;
    mgv__source source;
    mgv__config config;
    mgv_error error;
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.memory_files = &file;
    desc.memory_file_count = 1;
    assert_int_equal(mgv__source_open(&source, &desc, &error), MGV_OK);
    assert_int_equal(mgv__config_read(&config, &source, &error), MGV_ERROR_IO);
    assert_non_null(strstr(error.message, "config.json"));
}

static const fake_file micro[] = {
    {"m/config.json", "{\"model_type\":\"siglip\"}", 23},
    {"m/preprocessor_config.json", "{\"resample\":2}", 14},
};
static mgv_result read_micro(counting_allocator *counts, fake_files *files, uint64_t fail_alloc, uint64_t fail_file, int from,
                             mgv_error *error) {
    mgv_model_desc desc;
    mgv__source source;
    mgv__config config;
    mgv_result result;
    memset(&desc, 0, sizeof desc);
    desc.path = "m";
    desc.allocator = counting_allocator_make(counts);
    desc.io = fake_files_make(files, micro, COUNT_OF(micro));
    counts->fail_at = fail_alloc;
    files->fail_at = fail_file;
    counts->fail_from = files->fail_from = from;
    result = mgv__source_open(&source, &desc, error);
    if (result == MGV_OK) result = mgv__config_read(&config, &source, error);
    assert_int_equal(counts->live_blocks, 0);
    assert_int_equal(files->open_now, 0);
    return result;
}
static void every_allocation_and_every_read_can_fail(void **state) {
    counting_allocator counts;
    fake_files files;
    mgv_error error;
    uint64_t k, allocations, calls;
    int from;
    (void)state;
    assert_int_equal(read_micro(&counts, &files, 0, 0, 0, &error), MGV_OK);
    allocations = counts.calls;
    calls = files.calls;
    assert_true(allocations >= 4 && calls >= 4);
    assert_int_equal(files.most_open, 1);
    for (from = 0; from < 2; from++) {
        for (k = 1; k <= allocations; k++) assert_int_equal(read_micro(&counts, &files, k, 0, from, &error), MGV_ERROR_NOMEM);
        for (k = 1; k <= calls; k++) assert_int_equal(read_micro(&counts, &files, 0, k, from, &error), MGV_ERROR_IO);
    }
}
/* A whole config of 100 MB is read in linear time and little memory. */
static void a_huge_config(void **state) {
    size_t keys = 200000, n = 0, i;
    char *text = (char *)malloc(keys * 40 + 100);
    mgv__config config;
    (void)state;
    n += (size_t)sprintf(text + n, "{\"model_type\":\"siglip_vision_model\"");
    for (i = 0; i < keys; i++) n += (size_t)sprintf(text + n, ",\"key_number_%u\":[%u]", (unsigned)i, (unsigned)i);
    sprintf(text + n, ",\"num_hidden_layers\":5}");
    config = good(text, no_preprocessor);
    assert_int_equal(config.layers, 5);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(siglip_defaults_are_the_class_defaults),
        cmocka_unit_test(siglip_so400m),
        cmocka_unit_test(a_siglip_tower_inside_another_model),
        cmocka_unit_test(qwen3_defaults_are_the_class_defaults),
        cmocka_unit_test(qwen3_published),
        cmocka_unit_test(qwen2_5_published),
        cmocka_unit_test(without_a_preprocessor_file),
        cmocka_unit_test(image_processor_inside_processor_config),
        cmocka_unit_test(limits_of_clips),
        cmocka_unit_test(bad_values_are_named),
        cmocka_unit_test(good_and_odd_values),
        cmocka_unit_test(a_missing_config_is_an_io_error),
        cmocka_unit_test(every_allocation_and_every_read_can_fail),
        cmocka_unit_test(a_huge_config),
    };
    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
