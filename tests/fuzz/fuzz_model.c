/* Small towers of all families with odd sizes, whole or with one tensor missing or misshapen, and pictures for them: the first bytes
   choose the sizes, the rest are weights and pixels. What is whole opens and encodes, to the same bits at any place in a batch; what
   is not whole is refused. */
#include <math.h>
#include <stdarg.h>

#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "fuzz.h"
#include "tests/tower.h"

enum { MAX_TENSORS = 128, MAX_TOKENS = 256 };

/* ---- a model's files in memory ---- */

enum { MISSING = 1, MISSHAPEN };
typedef struct builder {
    char header[MAX_TENSORS * 160];
    size_t header_bytes, data_bytes;
    uint32_t tensors, damaged, damage; /* damage is done to tensor number `damaged` */
    int bf16;
} builder;

static void append(builder *b, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    b->header_bytes += (size_t)vsnprintf(b->header + b->header_bytes, sizeof b->header - b->header_bytes, format, arguments);
    va_end(arguments);
    REQUIRE(b->header_bytes < sizeof b->header);
}

static void emit(void *user, const char *name, const uint64_t *dims, uint32_t rank) {
    builder *b = (builder *)user;
    uint64_t elements = 1;
    size_t bytes;
    uint32_t i, number = b->tensors++;
    REQUIRE(number < MAX_TENSORS);
    if (b->damage == MISSING && number == b->damaged) return;
    append(b, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", b->data_bytes ? "," : "{", name, b->bf16 ? "BF16" : "F32");
    for (i = 0; i < rank; i++) {
        uint64_t dim = dims[i] + (b->damage == MISSHAPEN && number == b->damaged && i == rank - 1);
        elements *= dim;
        append(b, "%s%u", i ? "," : "", (unsigned)dim);
    }
    bytes = (size_t)elements * (b->bf16 ? 2 : 4);
    append(b, "],\"data_offsets\":[%zu,%zu]}", b->data_bytes, b->data_bytes + bytes);
    b->data_bytes += bytes;
}

/* Weights are the input's bytes over and over, as eighths in [-16, 16), which BF16 holds exactly, scaled down. */
static void fill_weights(uint8_t *to, size_t bytes, int bf16, const fuzz_input *in) {
    size_t width = bf16 ? 2 : 4, i;
    for (i = 0; i < bytes / width; i++) {
        float value = in->size ? (float)(int8_t)(in->data[(i * 7 + i / in->size) % in->size]) / 512.0f : 0.0f;
        uint32_t bits;
        memcpy(&bits, &value, 4);
        if (bf16) bits >>= 16;
        memcpy(to + i * width, &bits, width);
    }
}

static uint8_t *make_weights(tower *t, builder *b, const fuzz_input *in, size_t *bytes) {
    uint8_t *file;
    size_t i;
    t->emit = emit;
    t->user = b;
    tower_tensors(t);
    append(b, "}");
    *bytes = 8 + b->header_bytes + b->data_bytes;
    file = (uint8_t *)malloc(*bytes);
    REQUIRE(file != NULL);
    for (i = 0; i < 8; i++) file[i] = (uint8_t)((uint64_t)b->header_bytes >> (8 * i));
    memcpy(file + 8, b->header, b->header_bytes);
    fill_weights(file + 8 + b->header_bytes, b->data_bytes, b->bf16, in);
    return file;
}

static int is_qwen(mgv_family family) {
    return family == MGV_FAMILY_QWEN3_VL || family == MGV_FAMILY_QWEN2_5_VL || family == MGV_FAMILY_QWEN3_5 ||
           family == MGV_FAMILY_QWEN2_VL;
}

/* A tower of patches of one square picture. The width of MLPs follows from hidden where the config has only their ratio. */
static void choose_square(fuzz_input *in, tower *t, uint32_t heads, uint32_t image, char *config, size_t capacity) {
    static const char *const types[] = {"siglip_vision_model", "clip_vision_model", "dinov2", "dinov2_with_registers", "dinov3_vit"};
    const int dinov2 = t->family == MGV_FAMILY_DINOV2 || t->family == MGV_FAMILY_DINOV2_REGISTERS;
    const uint32_t ratio = fuzz_take(in, 2, 4); /* a gated MLP of 1 would have no columns */
    int used;
    t->gated = dinov2 || t->family == MGV_FAMILY_DINOV3 ? fuzz_take(in, 0, 1) : 0;
    t->registers = t->family == MGV_FAMILY_DINOV2_REGISTERS || t->family == MGV_FAMILY_DINOV3 ? fuzz_take(in, 0, 5) : 0;
    if (dinov2) t->intermediate = t->gated ? (t->hidden * ratio * 2 / 3 + 7) / 8 * 8 : t->hidden * ratio;
    used = snprintf(config, capacity,
                    "{\"model_type\":\"%s\",\"hidden_size\":%u,\"num_hidden_layers\":%u,\"num_attention_heads\":%u,\"patch_size\":%u,"
                    "\"image_size\":%u,\"intermediate_size\":%u",
                    types[t->family == MGV_FAMILY_SIGLIP ? 0 : t->family - MGV_FAMILY_CLIP + 1], t->hidden, t->layers, heads, t->patch,
                    image, t->intermediate);
    if (dinov2)
        used += snprintf(config + used, capacity - (size_t)used, ",\"mlp_ratio\":%u,\"use_swiglu_ffn\":%s", ratio,
                         t->gated ? "true" : "false");
    if (t->family == MGV_FAMILY_DINOV3)
        used += snprintf(config + used, capacity - (size_t)used, ",\"use_gated_mlp\":%s", t->gated ? "true" : "false");
    snprintf(config + used, capacity - (size_t)used, ",\"num_register_tokens\":%u}", t->registers);
}

static void choose(fuzz_input *in, tower *t, char *config, size_t capacity) {
    uint32_t heads = fuzz_take(in, 1, 3), head_dim, image, window;
    int used;
    memset(t, 0, sizeof *t);
    t->family = (mgv_family)fuzz_take(in, MGV_FAMILY_SIGLIP, MGV_FAMILY_QWEN2_VL);
    head_dim = is_qwen(t->family) || t->family == MGV_FAMILY_DINOV3 ? 4 * fuzz_take(in, 1, 5) : fuzz_take(in, 1, 20);
    t->hidden = heads * head_dim;
    t->intermediate = fuzz_take(in, 1, 20);
    t->layers = fuzz_take(in, 1, 3);
    t->patch = fuzz_take(in, 1, 4);
    t->side = fuzz_take(in, 1, 5);
    t->merge = fuzz_take(in, 1, 3);
    t->temporal = fuzz_take(in, 1, 3);
    t->out = fuzz_take(in, 1, 20);
    t->deepstack_count = t->layers > 1 && t->family == MGV_FAMILY_QWEN3_VL ? fuzz_take(in, 0, 1) : 0;
    window = fuzz_take(in, 0, 3);
    image = t->patch * t->side + fuzz_take(in, 0, t->patch - 1);
    t->prefix = fuzz_take(in, 0, 1) ? (is_qwen(t->family) ? "model.visual." : "vision_model.") : "";
    if (!is_qwen(t->family)) {
        choose_square(in, t, heads, image, config, capacity);
        return;
    }
    if (t->family == MGV_FAMILY_QWEN2_VL) {
        t->intermediate = t->hidden * 2;
        snprintf(config, capacity,
                 "{\"model_type\":\"qwen2_vl_vision\",\"embed_dim\":%u,\"hidden_size\":%u,\"depth\":%u,\"num_heads\":%u,"
                 "\"patch_size\":%u,\"spatial_merge_size\":%u,\"temporal_patch_size\":%u,\"mlp_ratio\":2}",
                 t->hidden, t->out, t->layers, heads, t->patch, t->merge, t->temporal);
        return;
    }
    used = snprintf(config, capacity,
                    "{\"model_type\":\"%s\",\"hidden_size\":%u,\"intermediate_size\":%u,\"depth\":%u,\"num_heads\":%u,\"patch_size\":%u,"
                    "\"spatial_merge_size\":%u,\"temporal_patch_size\":%u,\"out_hidden_size\":%u,",
                    t->family == MGV_FAMILY_QWEN3_VL   ? "qwen3_vl_vision"
                    : t->family == MGV_FAMILY_QWEN3_5 ? "qwen3_5_vision"
                                                      : "qwen2_5_vl_vision",
                    t->hidden, t->intermediate, t->layers, heads, t->patch, t->merge, t->temporal, t->out);
    if (t->family != MGV_FAMILY_QWEN2_5_VL)
        snprintf(config + used, capacity - (size_t)used, "\"num_position_embeddings\":%u,\"deepstack_visual_indexes\":[%s]}",
                 t->side * t->side, t->deepstack_count ? "1" : "");
    else
        snprintf(config + used, capacity - (size_t)used, "\"window_size\":%u,\"fullatt_block_indexes\":[1]}",
                 t->patch * t->merge * (window + 1) + t->patch / 2);
}

/* ---- pictures ---- */

/* The same picture three times in one call: the same rows three times. */
static void encode(mgv_engine *engine, const mgv_image *image, mgv_output_kind kind, uint32_t index) {
    static float floats[3 * MAX_TOKENS * 80];
    mgv_image images[3];
    mgv_output output;
    mgv_encode_desc desc;
    mgv_shape shape;
    mgv_error error;
    size_t each, i;
    images[0] = images[1] = images[2] = *image;
    memset(&output, 0, sizeof output);
    memset(&desc, 0, sizeof desc);
    output.kind = kind;
    output.index = index;
    output.data = floats;
    output.capacity = sizeof floats / sizeof floats[0];
    desc.images = images;
    desc.image_count = 3;
    desc.outputs = &output;
    desc.output_count = 1;
    REQUIRE(mgv_engine_shape(engine, images, 3, &output, &shape, &error) == MGV_OK);
    REQUIRE(mgv_encode_blocking(engine, &desc, &error) == MGV_OK);
    each = (size_t)(shape.rows * shape.columns) / 3;
    REQUIRE(each > 0 && each * 3 == shape.rows * shape.columns);
    for (i = 0; i < each; i++) REQUIRE(isfinite(floats[i]));
    REQUIRE(memcmp(floats, floats + each, each * sizeof(float)) == 0 && memcmp(floats, floats + 2 * each, each * sizeof(float)) == 0);
}

static void run_model(const mgv_model *model, fuzz_input *in) {
    mgv_engine_desc desc;
    mgv_engine *engine;
    mgv_model_info info;
    mgv_image image;
    mgv_grid grid;
    mgv_error error;
    uint32_t i;
    uint8_t *pixels;
    REQUIRE(mgv_model_get_info(model, &info) == MGV_OK);
    memset(&desc, 0, sizeof desc);
    desc.backend = MGV_BACKEND_CPU;
    desc.max_images = 3;
    desc.max_tokens = 3 * MAX_TOKENS;
    desc.max_width = desc.max_height = 40;
    desc.min_pixels = 1;
    desc.max_pixels = 1024;
    REQUIRE(mgv_engine_create(&engine, model, &desc, &error) == MGV_OK);
    memset(&image, 0, sizeof image);
    image.width = fuzz_take(in, 1, 40);
    image.height = fuzz_take(in, 1, 40);
    image.frames = is_qwen(info.family) ? fuzz_take(in, 1, 3) : 1;
    image.bytes = (uint64_t)image.width * image.height * 3 * image.frames;
    pixels = (uint8_t *)malloc((size_t)image.bytes);
    REQUIRE(pixels != NULL);
    for (i = 0; i < image.bytes; i++) pixels[i] = in->size ? in->data[(i * 5 + 3) % in->size] : 0;
    image.pixels = pixels;
    if (mgv_engine_grid(engine, &image, &grid, &error) == MGV_OK && grid.tokens <= MAX_TOKENS) {
        encode(engine, &image, MGV_OUTPUT_TOKENS, 0);
        for (i = 0; i <= info.layers; i++) encode(engine, &image, MGV_OUTPUT_LAYER, i);
        for (i = 0; i < info.deepstack_count; i++) encode(engine, &image, MGV_OUTPUT_DEEPSTACK, i);
        if (info.pooled_width > 0) encode(engine, &image, MGV_OUTPUT_POOLED, 0);
    }
    free(pixels);
    REQUIRE(mgv_engine_destroy(engine) == MGV_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static builder b;
    fuzz_input in = {data, size, 0};
    fuzz_allocator counts;
    mgv_memory_file files[3];
    mgv_model_desc desc;
    mgv_model *model;
    mgv_error error;
    mgv_result result;
    tower t;
    char config[512], preprocessor[96];
    size_t bytes;
    uint8_t *weights;
    memset(&b, 0, sizeof b);
    b.damage = fuzz_take(&in, 0, 5);
    b.damaged = fuzz_take(&in, 0, 63);
    b.bf16 = (int)fuzz_take(&in, 0, 1);
    choose(&in, &t, config, sizeof config);
    weights = make_weights(&t, &b, &in, &bytes);
    memset(&desc, 0, sizeof desc);
    memset(files, 0, sizeof files);
    files[0].name = "config.json";
    files[0].data = config;
    files[0].bytes = strlen(config);
    files[1].name = "model.safetensors";
    files[1].data = weights;
    files[1].bytes = bytes;
    desc.memory_files = files;
    /* of DINO the processor decides how large pictures become, and its own 224 pixels are many patches of one pixel */
    snprintf(preprocessor, sizeof preprocessor, "{\"do_center_crop\":false,\"size\":{\"height\":%u,\"width\":%u}}", t.patch * t.side,
             t.patch * t.side);
    files[2].name = "preprocessor_config.json";
    files[2].data = preprocessor;
    files[2].bytes = strlen(preprocessor);
    desc.memory_file_count = t.family >= MGV_FAMILY_DINOV2 && t.family <= MGV_FAMILY_DINOV3 ? 3 : 2;
    desc.allocator = fuzz_allocator_make(&counts, data, size);
    result = mgv_model_open(&model, &desc, &error);
    if (counts.failed) {
        REQUIRE(result == MGV_ERROR_NOMEM && model == NULL);
    } else if ((b.damage == MISSING || b.damage == MISSHAPEN) && b.damaged < b.tensors) {
        /* without its head a SigLIP tower could be meant to have none, but config.json said that it has one */
        REQUIRE(result == MGV_ERROR_MODEL && model == NULL && error.message[0] != 0);
    } else {
        REQUIRE(result == MGV_OK);
        run_model(model, &in);
    }
    mgv_model_close(model);
    REQUIRE(counts.live_bytes == 0);
    free(weights);
    return 0;
}
