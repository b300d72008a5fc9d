/* The published models as lists of operations, from their config.json and the header of their weights alone: how many tensors,
   parameters and FLOPs each has, and what is said when config and tensors are not of one model. No weight is read. */
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

#include "tower.h"

/* ---- a model directory of headers: reading a weight fails the test ---- */

typedef struct fake_model {
    const char *config;
    char *header; /* of model.safetensors, its length in front */
    size_t used, room;
    uint64_t data_bytes;
    const char *dtype;
    uint32_t element_bytes;
    const char *skip, *reshape; /* a tensor to leave out; one whose first dimension is one more than it should be */
} fake_model;

static void append(fake_model *fake, const char *text) {
    size_t length = strlen(text);
    if (fake->used + length + 1 > fake->room) {
        fake->room = (fake->used + length + 1) * 2;
        fake->header = realloc(fake->header, fake->room);
        assert_non_null(fake->header);
    }
    memcpy(fake->header + fake->used, text, length + 1);
    fake->used += length;
}

static void begin(fake_model *fake, const char *config, const char *dtype, uint32_t element_bytes) {
    memset(fake, 0, sizeof *fake);
    fake->config = config;
    fake->dtype = dtype;
    fake->element_bytes = element_bytes;
    append(fake, "        {");
}

static void emit(void *user, const char *name, const uint64_t *dims, uint32_t rank) {
    fake_model *fake = user;
    uint64_t elements = 1, bytes;
    char text[512], shape[128] = "";
    uint32_t i;
    if (fake->skip && strcmp(fake->skip, name) == 0) return;
    for (i = 0; i < rank; i++) {
        uint64_t dim = dims[i] + (i == 0 && fake->reshape && strcmp(fake->reshape, name) == 0);
        elements *= dim;
        snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%llu", i ? "," : "", (unsigned long long)dim);
    }
    bytes = elements * fake->element_bytes;
    snprintf(text, sizeof text, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%llu,%llu]}", fake->data_bytes ? "," : "",
             name, fake->dtype, shape, (unsigned long long)fake->data_bytes, (unsigned long long)(fake->data_bytes + bytes));
    append(fake, text);
    fake->data_bytes += bytes;
}

/* A tensor of another part of the model. */
static void emit_text(fake_model *fake, const char *name) {
    static const uint64_t dims[2] = {640, 64};
    emit(fake, name, dims, 2);
}

static void end(fake_model *fake) {
    size_t length, i;
    append(fake, "}");
    length = fake->used - 8;
    for (i = 0; i < 8; i++) fake->header[i] = (char)(length >> (8 * i) & 0xFF);
}

static int32_t fake_open(void *user, const char *path, void **file, uint64_t *size) {
    fake_model *fake = user;
    size_t length = strlen(path);
    if (length >= 11 && strcmp(path + length - 11, "config.json") == 0 && !strstr(path, "preprocessor")) {
        *file = (void *)fake->config;
        *size = strlen(fake->config);
        return 0;
    }
    if (length >= 17 && strcmp(path + length - 17, "model.safetensors") == 0) {
        *file = fake->header;
        *size = fake->used + fake->data_bytes;
        return 0;
    }
    return MGV_FILE_ABSENT;
}

static int32_t fake_read(void *user, void *file, uint64_t offset, void *buffer, size_t bytes) {
    fake_model *fake = user;
    size_t size = file == fake->header ? fake->used : strlen(fake->config);
    assert_true(offset <= size && bytes <= size - offset);
    memcpy(buffer, (const char *)file + offset, bytes);
    return 0;
}

static void fake_close(void *user, void *file) {
    (void)user;
    (void)file;
}

/* Opens everything but the weights. */
static mgv_result build(fake_model *fake, mgv_model *model, mgv_error *error) {
    mgv_model_desc desc;
    mgv__source source;
    mgv__checkpoint checkpoint;
    mgv_result result;
    end(fake);
    memset(model, 0, sizeof *model);
    memset(&desc, 0, sizeof desc);
    desc.path = "fake";
    desc.io.user = fake;
    desc.io.open = fake_open;
    desc.io.read = fake_read;
    desc.io.close = fake_close;
    assert_int_equal(mgv__source_open(&source, &desc, error), MGV_OK);
    result = mgv__config_read(&model->config, &source, error);
    if (result == MGV_OK) {
        assert_int_equal(mgv__checkpoint_open(&checkpoint, &source, error), MGV_OK);
        result = mgv__model_build(model, &checkpoint, error);
        mgv__checkpoint_close(&checkpoint);
    }
    return result;
}

static void release(fake_model *fake, mgv_model *model) {
    free(fake->header);
    mgv__free(&model->allocator, model->program.ops);
    mgv__free(&model->allocator, model->program.taps);
    mgv__free(&model->allocator, model->tensors);
}

static uint64_t parameters(const mgv_model *model) {
    uint64_t sum = 0;
    uint32_t i, k;
    for (i = 0; i < model->tensor_count; i++) {
        uint64_t elements = 1;
        for (k = 0; k < model->tensors[i].rank; k++) elements *= model->tensors[i].shape[k];
        sum += elements;
    }
    return sum;
}

/* Of one picture of t frames of h x w patches. */
static double gflop(const mgv_model *model, uint32_t t, uint32_t h, uint32_t w) {
    mgv_grid grid;
    mgv_op_info info;
    double sum = 0;
    uint32_t i, merge = model->config.merge;
    memset(&grid, 0, sizeof grid);
    grid.t = t;
    grid.h = h;
    grid.w = w;
    grid.tokens = t * h * w;
    grid.merged_tokens = grid.tokens / (merge * merge);
    assert_true(mgv_model_op_count(model) > 0);
    for (i = 0; i < mgv_model_op_count(model); i++) {
        assert_int_equal(mgv_model_get_op(model, i, &grid, &info), MGV_OK);
        sum += info.flops;
    }
    return sum * 1e-9;
}

static void assert_near(double seen, double expected, double tolerance) {
    if (fabs(seen - expected) > tolerance) fail_msg("%.9g is not %.9g", seen, expected);
}

/* ---- SigLIP ---- */

static void test_siglip_parameters_and_flops(void **state) {
    static const struct {
        uint32_t d, f, layers, heads, patch, image;
        uint64_t parameters;
        double gflop;
    } models[] = {
        {768, 3072, 12, 12, 16, 224, 92884224, 35.42},    {768, 3072, 12, 12, 16, 256, 92930304, 46.82},
        {768, 3072, 12, 12, 16, 384, 93176064, 112.13},   {768, 3072, 12, 12, 16, 512, 93520128, 216.24},
        {768, 3072, 12, 12, 32, 256, 94552320, 11.49},    {1024, 4096, 24, 16, 16, 256, 315956224, 162.56},
        {1024, 4096, 24, 16, 16, 384, 316283904, 383.85}, {1024, 4096, 24, 16, 16, 512, 316742656, 727.49},
        {1152, 4304, 27, 16, 14, 224, 427680704, 220.35}, {1152, 4304, 27, 16, 14, 384, 428225600, 670.35},
        {1152, 4304, 27, 16, 16, 256, 427888064, 220.46}, {1152, 4304, 27, 16, 16, 384, 428256704, 518.94},
        {1152, 4304, 27, 16, 16, 512, 428772800, 979.61}, {1536, 6144, 40, 16, 16, 256, 1163168256, 599.0},
        {1536, 6144, 40, 16, 16, 384, 1163659776, 1392.98},
    };
    size_t i;
    (void)state;
    for (i = 0; i < sizeof models / sizeof models[0]; i++) {
        uint32_t side = models[i].image / models[i].patch;
        char config[512];
        fake_model fake;
        tower t;
        mgv_model model;
        mgv_error error;
        snprintf(config, sizeof config,
                 "{\"model_type\":\"siglip\",\"vision_config\":{\"hidden_size\":%u,\"intermediate_size\":%u,\"num_hidden_layers\":%u,"
                 "\"num_attention_heads\":%u,\"patch_size\":%u,\"image_size\":%u}}",
                 models[i].d, models[i].f, models[i].layers, models[i].heads, models[i].patch, models[i].image);
        begin(&fake, config, "F32", 4);
        memset(&t, 0, sizeof t);
        t.family = MGV_FAMILY_SIGLIP;
        t.hidden = models[i].d;
        t.intermediate = models[i].f;
        t.layers = models[i].layers;
        t.patch = models[i].patch;
        t.side = side;
        t.prefix = "vision_model.";
        t.emit = emit;
        t.user = &fake;
        tower_tensors(&t);
        emit_text(&fake, "text_model.head.weight");
        if (build(&fake, &model, &error) != MGV_OK) fail_msg("%s", error.message);
        assert_int_equal(parameters(&model), models[i].parameters);
        assert_int_equal(model.tensor_count, 16 * models[i].layers + 16);
        assert_near(gflop(&model, 1, side, side), models[i].gflop, 0.005);
        release(&fake, &model);
    }
}

/* ---- Qwen3-VL ---- */

typedef struct qwen3_size {
    uint32_t d, f, layers, out, deepstack[3];
    uint64_t parameters;
    double linear_mflop;                     /* of a patch */
    double gflop_256, gflop_1024, gflop_4096; /* patches of one picture */
} qwen3_size;

static const qwen3_size qwen3_sizes[] = {
    {1024, 4096, 24, 2048, {5, 11, 17}, 406957056, 657.5, 174.8, 776, 4342},
    {1024, 4096, 24, 2560, {5, 11, 17}, 415347712, 661.7, 175.8, 781, 4359},
    {1152, 4304, 27, 4096, {8, 16, 24}, 576388336, 905.9, 240.1, 1058, 5798},
    {1152, 4304, 27, 5120, {8, 16, 24}, 595266800, 915.3, 242.5, 1068, 5837},
};

static void qwen3_tensors(fake_model *fake, const qwen3_size *size, uint32_t layers, const char *prefix) {
    tower t;
    memset(&t, 0, sizeof t);
    t.family = MGV_FAMILY_QWEN3_VL;
    t.hidden = size->d;
    t.intermediate = size->f;
    t.layers = layers;
    t.patch = 16;
    t.side = 48;
    t.temporal = t.merge = 2;
    t.out = size->out;
    t.deepstack_count = 3;
    t.prefix = prefix;
    t.emit = emit;
    t.user = fake;
    tower_tensors(&t);
}

static void qwen3_config(char *config, size_t capacity, const qwen3_size *size) {
    snprintf(config, capacity,
             "{\"model_type\":\"qwen3_vl\",\"text_config\":{\"hidden_size\":64},\"vision_config\":{\"depth\":%u,\"hidden_size\":%u,"
             "\"intermediate_size\":%u,\"num_heads\":16,\"patch_size\":16,\"out_hidden_size\":%u,\"deepstack_visual_indexes\":[%u,%u,%u]}}",
             size->layers, size->d, size->f, size->out, size->deepstack[0], size->deepstack[1], size->deepstack[2]);
}

static void test_qwen3_parameters_and_flops(void **state) {
    static const char *const prefixes[] = {"model.visual.", "visual.", ""};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof qwen3_sizes / sizeof qwen3_sizes[0]; i++) {
        const qwen3_size *size = &qwen3_sizes[i];
        char config[512];
        fake_model fake;
        mgv_model model;
        mgv_error error;
        qwen3_config(config, sizeof config, size);
        begin(&fake, config, "BF16", 2);
        qwen3_tensors(&fake, size, size->layers, prefixes[i % 3]);
        emit_text(&fake, "model.language_model.layers.0.mlp.up_proj.weight");
        if (build(&fake, &model, &error) != MGV_OK) fail_msg("%s", error.message);
        assert_int_equal(parameters(&model), size->parameters);
        assert_int_equal(model.tensor_count, 12 * size->layers + 27);
        assert_near(gflop(&model, 1, 16, 16), size->gflop_256, 0.06);
        assert_near(gflop(&model, 1, 32, 32), size->gflop_1024, 0.6);
        assert_near(gflop(&model, 1, 64, 64), size->gflop_4096, 0.6);
        /* what is left without attention, whose pairs grow with the square */
        assert_near(1e3 * (8 * gflop(&model, 1, 16, 16) - gflop(&model, 1, 32, 16) * 2) / 1024, size->linear_mflop, 0.06);
        release(&fake, &model);
    }
}

/* ---- Qwen2.5-VL ---- */

typedef struct qwen2_5_size {
    uint32_t f, out;
    uint64_t parameters;
    double gflop_1024, gflop_4096; /* 0: not known from elsewhere */
} qwen2_5_size;

static const qwen2_5_size qwen2_5_sizes[] = {
    {3420, 2048, 668684288, 0, 0}, {3420, 3584, 676550144, 1347, 5645}, {3456, 5120, 688841984, 0, 0}, {3456, 8192, 704573696, 0, 0}};

static void qwen2_5_tensors(fake_model *fake, const qwen2_5_size *size, const char *prefix) {
    tower t;
    memset(&t, 0, sizeof t);
    t.family = MGV_FAMILY_QWEN2_5_VL;
    t.hidden = 1280;
    t.intermediate = size->f;
    t.layers = 32;
    t.patch = 14;
    t.temporal = t.merge = 2;
    t.out = size->out;
    t.prefix = prefix;
    t.emit = emit;
    t.user = fake;
    tower_tensors(&t);
}

static void test_qwen2_5_parameters_and_flops(void **state) {
    static const char *const prefixes[] = {"visual.", "model.visual.", ""};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof qwen2_5_sizes / sizeof qwen2_5_sizes[0]; i++) {
        const qwen2_5_size *size = &qwen2_5_sizes[i];
        char config[512];
        fake_model fake;
        mgv_model model;
        mgv_error error;
        uint32_t k, whole = 0, windows = 0;
        snprintf(config, sizeof config,
                 "{\"model_type\":\"qwen2_5_vl\",\"hidden_size\":3584,\"num_hidden_layers\":28,\"vision_config\":{\"depth\":32,"
                 "\"hidden_size\":1280,\"intermediate_size\":%u,\"num_heads\":16,\"in_chans\":3,\"patch_size\":14,"
                 "\"out_hidden_size\":%u,\"window_size\":112,"
                 "\"fullatt_block_indexes\":[7,15,23,31]}}",
                 size->f, size->out);
        begin(&fake, config, "BF16", 2);
        qwen2_5_tensors(&fake, size, prefixes[i % 3]);
        if (build(&fake, &model, &error) != MGV_OK) fail_msg("%s", error.message);
        assert_int_equal(parameters(&model), size->parameters);
        assert_int_equal(model.tensor_count, 12 * 32 + 6);
        for (k = 0; k < model.program.op_count; k++) {
            if (model.program.ops[k].kind != MGV__OP_ATTENTION) continue;
            if (model.program.ops[k].range == MGV__RANGE_FRAME) {
                assert_int_equal(model.program.ops[k].layer % 8, 7);
                whole++;
            } else {
                windows++;
            }
        }
        assert_int_equal(whole, 4);
        assert_int_equal(windows, 28);
        if (size->gflop_1024 > 0) {
            assert_near(gflop(&model, 1, 32, 32), size->gflop_1024, 0.6);
            assert_near(gflop(&model, 1, 64, 64), size->gflop_4096, 0.6);
        }
        release(&fake, &model);
    }
}

/* The first, second and last frequency of an axis as transformers has them, head_dim 64 and 72: rows first, then columns. */
static void test_rotary_tables(void **state) {
    static const double expected[2][3] = {{1.0, 0.5623413324, 0.00017782794020604342}, {1.0, 0.5994842052, 0.00016681010311003774}};
    size_t i;
    (void)state;
    for (i = 0; i < 2; i++) {
        const qwen3_size *size = &qwen3_sizes[2 * i];
        const uint32_t each = size->d / 16 / 4;
        char config[512];
        fake_model fake;
        mgv_model model;
        mgv_error error;
        uint32_t j;
        qwen3_config(config, sizeof config, size);
        begin(&fake, config, "BF16", 2);
        qwen3_tensors(&fake, size, size->layers, "");
        assert_int_equal(build(&fake, &model, &error), MGV_OK);
        for (j = 0; j < 2 * each; j++) {
            assert_int_equal(model.program.rotary.axis[j], j < each ? 1 : 2);
            assert_true(model.program.rotary.frequency[j] == model.program.rotary.frequency[j % each]);
        }
        assert_near(model.program.rotary.frequency[0], expected[i][0], 1e-9);
        assert_near(model.program.rotary.frequency[1], expected[i][1], 1e-9);
        assert_near(model.program.rotary.frequency[each - 1], expected[i][2], 1e-12);
        release(&fake, &model);
    }
}

/* ---- config and tensors of different models ---- */

static void expect_model_error(const char *config, const char *skip, const char *reshape, uint32_t layers, const char *named) {
    fake_model fake;
    mgv_model model;
    mgv_error error;
    begin(&fake, config, "BF16", 2);
    fake.skip = skip;
    fake.reshape = reshape;
    qwen3_tensors(&fake, &qwen3_sizes[0], layers, "model.visual.");
    assert_int_equal(build(&fake, &model, &error), MGV_ERROR_MODEL);
    assert_int_equal(error.code, MGV_ERROR_MODEL);
    if (!strstr(error.message, named)) fail_msg("'%s' does not name %s", error.message, named);
    release(&fake, &model);
}

static void test_config_and_tensors_disagree(void **state) {
    static const char *const names[] = {
        "model.visual.patch_embed.proj.weight", "model.visual.patch_embed.proj.bias", "model.visual.pos_embed.weight",
        "model.visual.blocks.0.norm1.weight", "model.visual.blocks.23.attn.qkv.bias", "model.visual.blocks.11.mlp.linear_fc2.weight",
        "model.visual.merger.norm.weight", "model.visual.merger.linear_fc1.weight",
        "model.visual.deepstack_merger_list.0.norm.bias", "model.visual.deepstack_merger_list.2.linear_fc2.weight"};
    char config[512];
    size_t i;
    (void)state;
    qwen3_config(config, sizeof config, &qwen3_sizes[0]);
    for (i = 0; i < sizeof names / sizeof names[0]; i++) {
        /* without the first one the prefix is not known */
        expect_model_error(config, names[i], NULL, 24, i == 0 ? "patch_embed.proj.weight" : names[i]);
        expect_model_error(config, NULL, names[i], 24, names[i]);
    }
    /* layers or DeepStack mergers that the config knows nothing of */
    expect_model_error(config, NULL, NULL, 25, "model.visual.blocks.24.norm1.weight");
    expect_model_error(config, NULL, NULL, 23, "model.visual.blocks.23.norm1.weight");
    snprintf(config, sizeof config,
             "{\"model_type\":\"qwen3_vl\",\"vision_config\":{\"depth\":24,\"hidden_size\":1024,\"intermediate_size\":4096,"
             "\"num_heads\":16,\"out_hidden_size\":2048,\"deepstack_visual_indexes\":[5,11]}}");
    expect_model_error(config, NULL, NULL, 24, "model.visual.deepstack_merger_list.2.norm.weight");
}

/* Two towers in one file: which one is meant cannot be told. */
static void test_two_towers(void **state) {
    char config[512];
    fake_model fake;
    mgv_model model;
    mgv_error error;
    (void)state;
    qwen3_config(config, sizeof config, &qwen3_sizes[0]);
    begin(&fake, config, "BF16", 2);
    qwen3_tensors(&fake, &qwen3_sizes[0], 24, "model.visual.");
    qwen3_tensors(&fake, &qwen3_sizes[0], 24, "other.visual.");
    assert_int_equal(build(&fake, &model, &error), MGV_ERROR_MODEL);
    assert_non_null(strstr(error.message, "other.visual."));
    release(&fake, &model);
}

/* Biases of a DINO are used where config.json says that there are some, whatever the files hold, as transformers does. */
static void test_biases_follow_the_config(void **state) {
    static const char *const names[2][6] = {
        {"encoder.layer.0.attention.attention.query", "encoder.layer.0.attention.attention.key",
         "encoder.layer.0.attention.attention.value", "encoder.layer.0.attention.output.dense", "encoder.layer.0.mlp.fc1",
         "encoder.layer.0.mlp.fc2"},
        {"layer.0.attention.q_proj", "layer.0.attention.k_proj", "layer.0.attention.v_proj", "layer.0.attention.o_proj",
         "layer.0.mlp.up_proj", "layer.0.mlp.down_proj"}};
    static const struct { const char *said, *used; } cases[] = { /* used: of the names above, in their order */
        {"\"model_type\":\"dinov2\"", "111111"},
        {"\"model_type\":\"dinov2\",\"qkv_bias\":true", "111111"},
        {"\"model_type\":\"dinov2\",\"qkv_bias\":false", "000111"},
        {"\"model_type\":\"dinov3_vit\"", "101111"}, /* of keys there is none unless it is said */
        {"\"model_type\":\"dinov3_vit\",\"key_bias\":true", "111111"},
        {"\"model_type\":\"dinov3_vit\",\"query_bias\":false", "001111"},
        {"\"model_type\":\"dinov3_vit\",\"value_bias\":false", "100111"},
        {"\"model_type\":\"dinov3_vit\",\"proj_bias\":false", "101011"},
        {"\"model_type\":\"dinov3_vit\",\"mlp_bias\":false", "101100"},
    };
    size_t i, k;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int third = strstr(cases[i].said, "dinov3") != NULL;
        char config[512], used[7] = "";
        tower t;
        fake_model fake;
        mgv_model model;
        mgv_error error;
        memset(&t, 0, sizeof t);
        t.family = third ? MGV_FAMILY_DINOV3 : MGV_FAMILY_DINOV2;
        t.hidden = 64;
        t.intermediate = 256;
        t.layers = 1;
        t.patch = 16;
        t.side = 4;
        t.prefix = "";
        t.emit = emit;
        t.user = &fake;
        snprintf(config, sizeof config, "{%s,\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":1,"
                 "\"intermediate_size\":256,\"image_size\":64,\"patch_size\":16,\"num_register_tokens\":0}", cases[i].said);
        begin(&fake, config, "F32", 4);
        tower_dino(&t);
        for (k = 0; k < 6; k++) {
            char bias[128];
            uint64_t dims[1];
            dims[0] = k == 4 ? 256 : 64;
            snprintf(bias, sizeof bias, "%s.bias", names[third][k]);
            emit(&fake, bias, dims, 1);
        }
        if (build(&fake, &model, &error) != MGV_OK) fail_msg("%s: %s", cases[i].said, error.message);
        for (k = 0; k < model.program.op_count; k++) {
            const mgv__op *op = &model.program.ops[k];
            uint32_t part;
            if (op->kind != MGV__OP_LINEAR || op->layer != 0) continue;
            for (part = 0; part < op->part_count; part++) strcat(used, op->bias[part] == MGV__NO_TENSOR ? "0" : "1");
        }
        if (strcmp(used, cases[i].used) != 0) fail_msg("%s: %s, not %s", cases[i].said, used, cases[i].used);
        release(&fake, &model);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_siglip_parameters_and_flops),
        cmocka_unit_test(test_qwen3_parameters_and_flops),
        cmocka_unit_test(test_qwen2_5_parameters_and_flops),
        cmocka_unit_test(test_rotary_tables),
        cmocka_unit_test(test_config_and_tensors_disagree),
        cmocka_unit_test(test_two_towers),
        cmocka_unit_test(test_biases_follow_the_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
