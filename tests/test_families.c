/* CLIP, DINOv2, DINOv3, Qwen2-VL, Qwen3.5 at the limits of their configs: what is said, and that it runs where it should. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

#include "memory_model.h"

static const char exact[] = "{\"do_center_crop\":false,\"size\":{\"height\":%u,\"width\":%u}}";

typedef struct family_case {
    mgv_family family;
    const char *config; /* what is other than hidden 8, 2 heads, 1 layer, patch 4, image 12 */
    uint32_t intermediate, side, registers, gated;
    uint32_t picture;   /* side of what the processor makes */
    mgv_result result;
    const char *sentence; /* a part of it */
    uint32_t tokens;    /* of a picture */
} family_case;

static const char *model_type(mgv_family family) {
    switch (family) {
    case MGV_FAMILY_CLIP: return "clip_vision_model";
    case MGV_FAMILY_DINOV2: return "dinov2";
    case MGV_FAMILY_DINOV2_REGISTERS: return "dinov2_with_registers";
    default: return "dinov3_vit";
    }
}

/* Opens a model, and encodes a picture with it if it opens. Outputs are all there and finite. */
static void run_case(const family_case *c) {
    static const char *const defaults[] = {"hidden_size:8", "num_attention_heads:2", "num_hidden_layers:1", "patch_size:4",
                                           "image_size:12"};
    memory_model files;
    int used;
    size_t i;
    char config[512], preprocessor[128];
    mgv_model *model = NULL;
    mgv_engine *engine = NULL;
    mgv_model_info info;
    mgv_error error;
    mgv_result result;
    tower t;
    memset(&t, 0, sizeof t);
    t.family = c->family;
    t.hidden = 8;
    t.intermediate = c->intermediate;
    t.layers = 1;
    t.patch = 4;
    t.side = c->side;
    t.registers = c->registers;
    t.gated = c->gated;
    t.prefix = "";
    used = snprintf(config, sizeof config, "{\"model_type\":\"%s\"", model_type(c->family));
    for (i = 0; i < sizeof defaults / sizeof defaults[0]; i++) {
        char key[32];
        snprintf(key, sizeof key, "\"%.*s\"", (int)strcspn(defaults[i], ":"), defaults[i]);
        if (strstr(c->config, key)) continue;
        used += snprintf(config + used, sizeof config - (size_t)used, ",%s%s", key, strchr(defaults[i], ':'));
    }
    snprintf(config + used, sizeof config - (size_t)used, ",%s}", c->config);
    snprintf(preprocessor, sizeof preprocessor, exact, c->picture, c->picture);
    memory_model_make(&files, &t, config, preprocessor);
    result = memory_model_open(&files, NULL, &model, &error);
    if (result == MGV_OK) {
        mgv_engine_desc desc;
        memset(&desc, 0, sizeof desc);
        desc.backend = MGV_BACKEND_CPU;
        result = mgv_engine_create(&engine, model, &desc, &error);
    }
    if (result != c->result) fail_msg("%s: %s, not %s (%s)", config, mgv_result_name(result), mgv_result_name(c->result), error.message);
    if (result != MGV_OK) {
        if (!strstr(error.message, c->sentence)) fail_msg("%s: %s", config, error.message);
    } else {
        static uint8_t pixels[3 * 64 * 64];
        mgv_image image;
        mgv_output outputs[2];
        mgv_encode_desc encode;
        assert_int_equal(mgv_model_get_info(model, &info), MGV_OK);
        assert_int_equal(info.tokens_per_image, c->tokens);
        assert_int_equal(info.pooled_width, 8);
        for (i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(i * 2654435761u >> 24);
        memset(&image, 0, sizeof image);
        memset(outputs, 0, sizeof outputs);
        memset(&encode, 0, sizeof encode);
        image.pixels = pixels;
        image.width = image.height = 64;
        for (i = 0; i < 2; i++) {
            outputs[i].kind = i ? MGV_OUTPUT_POOLED : MGV_OUTPUT_TOKENS;
            outputs[i].capacity = i ? 8 : 8 * (uint64_t)c->tokens;
            outputs[i].data = malloc((size_t)outputs[i].capacity * sizeof(float));
            assert_non_null(outputs[i].data);
        }
        encode.images = &image;
        encode.image_count = 1;
        encode.outputs = outputs;
        encode.output_count = 2;
        if (mgv_encode_blocking(engine, &encode, &error) != MGV_OK) fail_msg("%s", error.message);
        for (i = 0; i < 8 * c->tokens; i++) assert_true(outputs[0].data[i] - outputs[0].data[i] == 0);
        for (i = 0; i < 8; i++) assert_true(outputs[1].data[i] - outputs[1].data[i] == 0);
        free(outputs[0].data);
        free(outputs[1].data);
    }
    assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
    mgv_model_close(model);
    memory_model_free(&files);
}

#define OK MGV_OK, ""
static const family_case cases[] = {
    {MGV_FAMILY_CLIP, "\"intermediate_size\":9", 9, 3, 0, 0, 12, OK, 10},
    {MGV_FAMILY_CLIP, "\"intermediate_size\":9", 9, 3, 0, 0, 16, MGV_ERROR_MODEL, "16 x 16", 0},
    {MGV_FAMILY_CLIP, "\"intermediate_size\":9,\"patch_size\":13", 9, 3, 0, 0, 12, MGV_ERROR_MODEL, "larger than the image", 0},
    {MGV_FAMILY_CLIP, "\"intermediate_size\":9", 9, 4, 0, 0, 12, MGV_ERROR_MODEL, "[17, 8] where config.json asks for [10, 8]", 0},
    {MGV_FAMILY_DINOV2, "\"mlp_ratio\":1", 8, 3, 0, 0, 12, OK, 10},
    {MGV_FAMILY_DINOV2, "\"mlp_ratio\":1.6", 12, 3, 0, 0, 12, OK, 10},
    {MGV_FAMILY_DINOV2, "\"mlp_ratio\":0", 8, 3, 0, 0, 12, MGV_ERROR_MODEL, "mlp_ratio", 0},
    {MGV_FAMILY_DINOV2, "\"mlp_ratio\":0.01", 8, 3, 0, 0, 12, MGV_ERROR_MODEL, "MLPs of 0 columns", 0},
    {MGV_FAMILY_DINOV2, "\"mlp_ratio\":1024,\"hidden_size\":512", 8, 3, 0, 0, 12, MGV_ERROR_MODEL, "MLPs of 524288 columns", 0},
    {MGV_FAMILY_DINOV2, "\"mlp_ratio\":1", 8, 3, 0, 0, 4, OK, 2},                            /* one patch from a table of nine */
    {MGV_FAMILY_DINOV2, "\"mlp_ratio\":1", 8, 3, 0, 0, 3, MGV_ERROR_MODEL, "less than a patch", 0},
    {MGV_FAMILY_DINOV2, "\"mlp_ratio\":1", 8, 3, 0, 0, 400, OK, 10001},                      /* many more patches than the table has */
    {MGV_FAMILY_DINOV2, "\"mlp_ratio\":1,\"patch_size\":13", 8, 3, 0, 0, 26, MGV_ERROR_MODEL, "larger than the image", 0},
    {MGV_FAMILY_DINOV2, "\"mlp_ratio\":4,\"use_swiglu_ffn\":true", 24, 3, 0, 1, 12, OK, 10}, /* 32 * 2 / 3, up to a multiple of 8 */
    {MGV_FAMILY_DINOV2, "\"mlp_ratio\":1,\"use_swiglu_ffn\":true", 8, 3, 0, 1, 12, OK, 10},
    {MGV_FAMILY_DINOV2, "\"mlp_ratio\":4,\"use_swiglu_ffn\":true", 21, 3, 0, 1, 12, MGV_ERROR_MODEL, "[42, 8]", 0},
    {MGV_FAMILY_DINOV2, "\"mlp_ratio\":1", 8, 3, 2, 0, 12, MGV_ERROR_MODEL, "register_tokens", 0}, /* not with_registers */
    {MGV_FAMILY_DINOV2_REGISTERS, "\"mlp_ratio\":1,\"num_register_tokens\":10000", 8, 3, 10000, 0, 12, OK, 10010},
    {MGV_FAMILY_DINOV2_REGISTERS, "\"mlp_ratio\":1,\"num_register_tokens\":10000", 8, 3, 4, 0, 12, MGV_ERROR_MODEL,
     "[1, 4, 8] where config.json asks for [1, 10000, 8]", 0},
    {MGV_FAMILY_DINOV2_REGISTERS, "\"mlp_ratio\":1,\"num_register_tokens\":1000000000", 8, 3, 4, 0, 12, MGV_ERROR_MODEL,
     "num_register_tokens", 0},
    {MGV_FAMILY_DINOV2_REGISTERS, "\"mlp_ratio\":1,\"num_register_tokens\":0", 8, 3, 0, 0, 8, OK, 5},
    {MGV_FAMILY_DINOV2_REGISTERS, "\"mlp_ratio\":1", 8, 3, 4, 0, 40, OK, 105},
    {MGV_FAMILY_DINOV3, "\"intermediate_size\":7", 7, 0, 0, 0, 12, OK, 10},
    {MGV_FAMILY_DINOV3, "\"intermediate_size\":7,\"use_gated_mlp\":true,\"hidden_act\":\"silu\"", 7, 0, 3, 1, 12, MGV_ERROR_MODEL,
     "register_tokens", 0},
    {MGV_FAMILY_DINOV3, "\"intermediate_size\":7,\"use_gated_mlp\":true,\"num_register_tokens\":3", 7, 0, 3, 1, 60, OK, 229},
    {MGV_FAMILY_DINOV3, "\"intermediate_size\":7,\"use_gated_mlp\":true", 7, 0, 0, 0, 12, MGV_ERROR_MODEL, "gate_proj", 0},
    {MGV_FAMILY_DINOV3, "\"intermediate_size\":7,\"num_attention_heads\":4", 7, 0, 0, 0, 12, MGV_ERROR_MODEL, "two rotary axes", 0},
};
static void test_limits(void **state) {
    size_t i;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) run_case(&cases[i]);
}

/* A projection that the pooled rows do not fit, or that has no columns. */
static void check_projection(uint64_t rows, uint64_t columns, mgv_result expected, const char *sentence) {
    memory_model files;
    mgv_model *model = NULL;
    mgv_model_info info;
    mgv_error error;
    mgv_result result;
    uint64_t shape[2];
    tower t;
    memset(&t, 0, sizeof t);
    shape[0] = rows;
    shape[1] = columns;
    t.family = MGV_FAMILY_CLIP;
    t.hidden = 8;
    t.intermediate = 9;
    t.layers = 1;
    t.patch = 4;
    t.side = 3;
    t.prefix = "vision_model.";
    t.projection = shape;
    memory_model_make(&files, &t,
                      "{\"model_type\":\"clip_vision_model\",\"hidden_size\":8,\"num_attention_heads\":2,\"num_hidden_layers\":1,"
                      "\"patch_size\":4,\"image_size\":12,\"intermediate_size\":9,\"projection_dim\":3}",
                      "{\"do_center_crop\":false,\"size\":{\"height\":12,\"width\":12}}");
    result = memory_model_open(&files, NULL, &model, &error);
    if (result != expected) fail_msg("%s, not %s (%s)", mgv_result_name(result), mgv_result_name(expected), error.message);
    if (result != MGV_OK) {
        assert_non_null(strstr(error.message, sentence));
    } else {
        assert_int_equal(mgv_model_get_info(model, &info), MGV_OK);
        assert_int_equal(info.embed_width, rows);
    }
    mgv_model_close(model);
    memory_model_free(&files);
}
static void test_projections(void **state) {
    (void)state;
    check_projection(3, 8, MGV_OK, "");
    check_projection(70, 8, MGV_OK, ""); /* the tensor says how wide, as in transformers a whole model's config.json */
    check_projection(3, 9, MGV_ERROR_MODEL, "[3, 9] where config.json asks for [3, 8]");
    check_projection(0, 8, MGV_ERROR_MODEL, "onto 0 columns");
    check_projection(70000, 8, MGV_ERROR_MODEL, "onto 70000 columns");
}

/* NaFlex: as many patches as the processor allows, from one to more than memory holds. */
static void test_naflex_budgets(void **state) {
    static const struct {
        const char *preprocessor;
        uint32_t width, height;
        mgv_result result;
        uint32_t h, w;
    } budgets[] = {
        {"{\"max_num_patches\":1}", 64, 48, MGV_OK, 1, 1},
        {"{\"max_num_patches\":12}", 64, 48, MGV_OK, 3, 4},
        {"{\"max_num_patches\":1000000000}", 5, 5, MGV_OK, 125, 125}, /* enlarged a hundred times at most */
        {"{\"max_num_patches\":1000000000}", 4096, 4096, MGV_OK, 31622, 31622},
        {"{\"max_num_patches\":16}", 16777216, 1, MGV_OK, 1, 5}, /* the search for a scale ends at steps of 1e-5 */
    };
    size_t i;
    (void)state;
    for (i = 0; i < sizeof budgets / sizeof budgets[0]; i++) {
        memory_model files;
        mgv_model *model = NULL;
        mgv_image image;
        mgv_grid grid;
        mgv_error error;
        mgv_result result;
        tower t;
        memset(&t, 0, sizeof t);
        memset(&image, 0, sizeof image);
        t.family = MGV_FAMILY_SIGLIP2;
        t.hidden = 8;
        t.intermediate = 9;
        t.layers = 1;
        t.patch = 4;
        t.side = 3;
        t.prefix = "vision_model.";
        memory_model_make(&files, &t,
                          "{\"model_type\":\"siglip2_vision_model\",\"hidden_size\":8,\"num_attention_heads\":2,\"num_hidden_layers\":1,"
                          "\"patch_size\":4,\"num_patches\":9,\"intermediate_size\":9}", budgets[i].preprocessor);
        if (memory_model_open(&files, NULL, &model, &error) != MGV_OK) fail_msg("%s", error.message);
        image.width = budgets[i].width;
        image.height = budgets[i].height;
        result = mgv_model_grid(model, &image, 0, 0, &grid, &error);
        if (result != budgets[i].result) fail_msg("%s: %s", budgets[i].preprocessor, result ? error.message : "fits");
        if (result == MGV_OK && (grid.h != budgets[i].h || grid.w != budgets[i].w || grid.tokens != grid.h * grid.w))
            fail_msg("%s: %u x %u patches, %u tokens", budgets[i].preprocessor, grid.h, grid.w, grid.tokens);
        mgv_model_close(model);
        memory_model_free(&files);
    }
}

/* Every model_type that transformers writes, alone and as a vision_config. */
static void test_model_types(void **state) {
    static const struct {
        const char *type;
        mgv_family family;
        uint32_t prefix;
    } types[] = {
        {"clip_vision_model", MGV_FAMILY_CLIP, 1},        {"clip", MGV_FAMILY_CLIP, 1},
        {"dinov2", MGV_FAMILY_DINOV2, 1},                 {"dinov2_with_registers", MGV_FAMILY_DINOV2_REGISTERS, 5},
        {"dinov3_vit", MGV_FAMILY_DINOV3, 1},             {"qwen2_vl_vision", MGV_FAMILY_QWEN2_VL, 0},
        {"qwen2_vl", MGV_FAMILY_QWEN2_VL, 0},             {"qwen3_5", MGV_FAMILY_QWEN3_5, 0},
        {"qwen3_5_vision", MGV_FAMILY_QWEN3_5, 0},        {"qwen3_5_moe", MGV_FAMILY_QWEN3_5, 0},
        {"qwen3_5_moe_vision", MGV_FAMILY_QWEN3_5, 0},    {"siglip2_vision_model", MGV_FAMILY_SIGLIP2, 0},
        {"siglip2", MGV_FAMILY_SIGLIP2, 0},
    };
    size_t i;
    int inside;
    (void)state;
    for (i = 0; i < sizeof types / sizeof types[0]; i++)
        for (inside = 0; inside < 2; inside++) {
            char text[256];
            mgv__config config;
            mgv_error error;
            snprintf(text, sizeof text, "{\"model_type\":\"%s\"%s%s%s}", inside ? "other" : types[i].type,
                     inside ? ",\"vision_config\":{\"model_type\":\"" : "", inside ? types[i].type : "", inside ? "\"}" : "");
            if (mgv__config_parse(&config, text, "config.json", &error) != MGV_OK) fail_msg("%s", error.message);
            assert_int_equal(config.family, types[i].family);
            assert_int_equal(config.prefix, types[i].prefix);
            assert_int_equal(config.deepstack_count, 0);
        }
}

/* transformers takes an old file's vision_config_dict before its vision_config: of CLIP, of which there are such files. */
static void test_vision_config_dict(void **state) {
    static const struct {
        const char *config;
        uint32_t layers, heads;
    } configs[] = {
        {"{\"model_type\":\"clip\",\"vision_config\":{\"num_hidden_layers\":3,\"num_attention_heads\":8},"
         "\"vision_config_dict\":{\"num_hidden_layers\":5}}", 5, 12},
        {"{\"model_type\":\"clip\",\"vision_config_dict\":null,\"vision_config\":{\"num_hidden_layers\":3}}", 3, 12},
        {"{\"model_type\":\"clip\",\"vision_config_dict\":{\"num_attention_heads\":16}}", 12, 16},
        {"{\"model_type\":\"siglip\",\"vision_config\":{\"num_hidden_layers\":3},\"vision_config_dict\":{\"num_hidden_layers\":5}}", 3, 12},
    };
    size_t i;
    (void)state;
    for (i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        char text[256];
        mgv__config config;
        mgv_error error;
        strcpy(text, configs[i].config);
        if (mgv__config_parse(&config, text, "config.json", &error) != MGV_OK) fail_msg("%s", error.message);
        assert_int_equal(config.layers, configs[i].layers);
        assert_int_equal(config.heads, configs[i].heads);
    }
}

/* A DINOv2 without registers reads its table otherwise than one of the family with registers that has none: other rows, another hash. */
static void test_hashes(void **state) {
    uint64_t hashes[2];
    int i;
    (void)state;
    for (i = 0; i < 2; i++) {
        memory_model files;
        mgv_model *model = NULL;
        mgv_model_info info;
        mgv_error error;
        tower t;
        memset(&t, 0, sizeof t);
        t.family = MGV_FAMILY_DINOV2;
        t.hidden = t.intermediate = 8;
        t.layers = 1;
        t.patch = 4;
        t.side = 3;
        t.prefix = "";
        memory_model_make(&files, &t,
                          i ? "{\"model_type\":\"dinov2\",\"hidden_size\":8,\"num_attention_heads\":2,\"num_hidden_layers\":1,"
                              "\"patch_size\":4,\"image_size\":12,\"mlp_ratio\":1}"
                            : "{\"model_type\":\"dinov2_with_registers\",\"hidden_size\":8,\"num_attention_heads\":2,"
                              "\"num_hidden_layers\":1,\"patch_size\":4,\"image_size\":12,\"mlp_ratio\":1,\"num_register_tokens\":0}",
                          NULL);
        if (memory_model_open(&files, NULL, &model, &error) != MGV_OK) fail_msg("%s", error.message);
        assert_int_equal(mgv_model_get_info(model, &info), MGV_OK);
        hashes[i] = info.hash;
        mgv_model_close(model);
        memory_model_free(&files);
    }
    assert_true(hashes[0] != hashes[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_projections),
        cmocka_unit_test(test_naflex_budgets),
        cmocka_unit_test(test_model_types),
        cmocka_unit_test(test_hashes),
        cmocka_unit_test(test_vision_config_dict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
