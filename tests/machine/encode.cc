/* The engine's own host code and kernel on the machine model: a small SigLIP from pixels to its pooled row, against the CPU backend. */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_CUDA
#define MEGAVIT_KERNELS /* tensor maps in the kernel argument are aligned as the kernel has them */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include "megavit.h"
#pragma GCC diagnostic pop

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cudart.h"
#include "encode.h"

#ifdef MACHINE_BLACKWELL
extern "C" void megavit_encode_sm_100a(const mgv__kernel_arguments arguments);
extern "C" void megavit_encode_pairs_sm_100a(const mgv__kernel_arguments arguments);
#else
extern "C" void megavit_encode_sm_90a(const mgv__kernel_arguments arguments);
extern "C" void megavit_encode_some_sm_90a(const mgv__kernel_arguments arguments);
extern "C" void megavit_encode_few_sm_90a(const mgv__kernel_arguments arguments);
extern "C" void megavit_encode_tower_sm_90a(const mgv__kernel_arguments arguments);
extern "C" void megavit_encode_wide_sm_90a(const mgv__kernel_arguments arguments);
extern "C" void megavit_encode_latency_104_sm_90a(const mgv__kernel_arguments arguments);
extern "C" void megavit_encode_latency_128_sm_90a(const mgv__kernel_arguments arguments);
extern "C" void megavit_encode_latency_any_104_sm_90a(const mgv__kernel_arguments arguments);
extern "C" void megavit_encode_latency_any_128_sm_90a(const mgv__kernel_arguments arguments);
extern "C" void megavit_encode_latency_turned_sm_90a(const mgv__kernel_arguments arguments);
extern "C" void megavit_encode_latency_tower_sm_90a(const mgv__kernel_arguments arguments);
extern "C" void megavit_encode_latency_all_sm_90a(const mgv__kernel_arguments arguments);
extern "C" void megavit_encode_latency_wide_sm_90a(const mgv__kernel_arguments arguments);
#endif
extern "C" const uint32_t megavit_description[5];

namespace {

struct Checkpoint { /* a safetensors file in the making, and a rule that fills it */
    std::string header = "{", data;
    uint64_t state = 88172645463325252ull;
    float next(void) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return (float)(state >> 40) / (float)(1 << 23) - 1.0f;
    }
    void add(const std::string &name, std::vector<uint64_t> shape, float scale, float offset) {
        uint64_t count = 1;
        std::string dims;
        for (uint64_t d : shape) {
            count *= d;
            dims += (dims.empty() ? "" : ",") + std::to_string(d);
        }
        const uint64_t begin = data.size();
        for (uint64_t i = 0; i < count; i++) {
            const float v = offset + scale * next();
            data.append((const char *)&v, 4);
        }
        header += (header.size() > 1 ? "," : "") + std::string("\"") + name + "\":{\"dtype\":\"F32\",\"shape\":[" + dims +
                  "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(data.size()) + "]}";
    }
    void linear(const std::string &name, uint64_t out, uint64_t in, float times = 1, float bias = 0) {
        add(name + ".weight", {out, in}, times * 1.7f / sqrtf((float)in), 0);
        add(name + ".bias", {out}, times * 0.1f, bias);
    }
    void norm(const std::string &name, uint64_t width) {
        add(name + ".weight", {width}, 0.2f, 1);
        add(name + ".bias", {width}, 0.1f, 0);
    }
    std::string file(void) {
        std::string h = header + "}";
        while (h.size() % 8) h += ' ';
        const uint64_t bytes = h.size();
        return std::string((const char *)&bytes, 8) + h + data;
    }
};

} // namespace

struct MicroEncoder {
    mgv_model *model = nullptr;
    mgv__cuda *cuda = nullptr;
    MicroShape shape;
    std::vector<uint8_t> pixels;
    std::vector<mgv__batch_picture> pictures;  /* of any size */
    uint32_t units = 0;                        /* what a launch counts: images, or tokens of these */
    std::vector<mgv_output> outputs;           /* pooled, and if asked for: the others */
    std::vector<std::vector<float>> expected;  /* of each */
    void *device_pixels = nullptr;
};

/* Merged tokens; what DeepStack's mergers leave, the last first; the last layer's rows. */
static void choose_merged_outputs(MicroEncoder *m) {
    const size_t side = m->shape.image_size / m->shape.patch, rows = m->pictures.empty() ? m->shape.images * side * side : m->units;
    m->outputs.resize(m->shape.rows ? 2 + m->shape.deepstack : 1);
    m->expected.resize(m->outputs.size());
    for (size_t i = 0; i < m->outputs.size(); i++) {
        mgv_output *output = &m->outputs[i];
        const bool layer = i == 1 + m->shape.deepstack;
        memset(output, 0, sizeof *output);
        output->kind = layer ? MGV_OUTPUT_LAYER : i ? MGV_OUTPUT_DEEPSTACK : MGV_OUTPUT_TOKENS;
        output->index = layer ? m->shape.layers : i ? m->shape.deepstack - (uint32_t)i : 0;
        output->capacity = layer ? rows * m->shape.hidden : rows / 4 * m->shape.merged;
        m->expected[i].resize(output->capacity);
        output->data = m->expected[i].data();
    }
}

/* The pooled row; tokens, the embeddings, an output twice, the last layer's. */
static void choose_outputs(MicroEncoder *m) {
    if (m->shape.merged) {
        choose_merged_outputs(m);
        return;
    }
    static const mgv_output_kind kinds[] = {MGV_OUTPUT_POOLED, MGV_OUTPUT_LAYER, MGV_OUTPUT_TOKENS,
                                            MGV_OUTPUT_LAYER, MGV_OUTPUT_LAYER, MGV_OUTPUT_LAYER};
    const uint32_t grid = m->shape.image_size / m->shape.patch;
    const uint32_t layers[] = {0, m->shape.layers, 0, 1, 0, 1};
    const size_t skipped = m->shape.head ? 0 : 1;
    m->outputs.resize(m->shape.rows ? 6 - skipped : 1);
    m->expected.resize(m->outputs.size());
    for (size_t i = 0; i < m->outputs.size(); i++) {
        mgv_output *output = &m->outputs[i];
        memset(output, 0, sizeof *output);
        output->kind = kinds[i + skipped];
        output->index = layers[i + skipped];
        output->capacity = (uint64_t)(output->kind == MGV_OUTPUT_POOLED ? m->shape.images : m->units) * m->shape.hidden;
        if (output->kind != MGV_OUTPUT_POOLED && m->pictures.empty()) output->capacity *= grid * grid + m->model->config.prefix;
        m->expected[i].resize(output->capacity);
        output->data = m->expected[i].data();
    }
    if (!m->shape.projection) return;
    mgv_output embeds;
    memset(&embeds, 0, sizeof embeds);
    embeds.kind = MGV_OUTPUT_EMBEDS;
    embeds.capacity = (uint64_t)m->shape.images * m->shape.projection;
    m->expected.push_back(std::vector<float>(embeds.capacity));
    embeds.data = m->expected.back().data();
    m->outputs.push_back(embeds);
}

static std::string failed(const char *what, const mgv_error &error) { return std::string(what) + ": " + error.message; }

/* The rows of the pictures that there are; behind them lie rows that fill up the last group, tile or pair. */
static uint64_t valid_bytes(const MicroEncoder *m, const mgv__cuda *cuda, uint32_t buffer) {
    const mgv__device_buffer *b = &cuda->plan->buffers[buffer];
    const uint32_t of_image = buffer == MGV__DEVICE_PARTS ? mgv__plan_pool_parts_of(cuda->plan) : cuda->plan->tokens;
    const bool merged = mgv__merger_buffer(buffer) < MGV__MERGER_BUFFERS;
    const uint64_t exist = mgv__plan_rows_are_images(buffer) ? m->shape.images : (uint64_t)m->units * of_image / (merged ? cuda->plan->fold : 1);
    const uint64_t rows = exist < b->rows ? exist : b->rows;
    return rows * b->pitch * b->element_bytes;
}

/* Each buffer of the device arena gets its own bounds; activations start uninitialised. */
static void name_buffers(const MicroEncoder *m, const mgv__cuda *cuda) {
    static const char *const names[] = {"patches",       "residual stream", "q, k, v",  "attended", "MLP",   "weighted tokens",
                                        "head attended", "head out",        "head MLP", "pooled",   "parts of sums", "scores",
                                        "shares of sums"};
    static_assert(sizeof names / sizeof names[0] == MGV__DEVICE_MERGERS, "every buffer has a name");
    static const char *const merger_names[] = {"normalised for a merger", "merger's MLP", "merged rows"};
    static const char *const mx_names[] = {"stream in MXFP8", "attended in MXFP8", "MLP in MXFP8"};
    const mgv__plan *plan = cuda->plan;
    uint8_t *arena = cuda->arena;
    for (uint32_t i = 0; i < MGV__DEVICE_BUFFER_COUNT; i++) {
        const mgv__device_buffer *b = &plan->buffers[i];
        if (!b->bytes) continue;
        machine::global_part(arena + b->offset, b->bytes,
                             i < MGV__DEVICE_MERGERS ? names[i] : i >= MGV__DEVICE_MX ? mx_names[i - MGV__DEVICE_MX] : merger_names[mgv__merger_buffer(i)], false);
        machine::global_slack(arena + b->offset + valid_bytes(m, cuda, i), b->bytes - valid_bytes(m, cuda, i));
    }
    machine::global_part(arena + plan->weights_offset, plan->weight_bytes, "weights", true);
    machine::global_part(arena + plan->vectors_offset, plan->vector_count * sizeof(float), "vectors", true);
    machine::global_part(arena + plan->counters_offset, MGV__COUNTER_SETS * plan->counters_bytes, "abort words and counters", false);
    machine::global_part(arena + plan->ops_offset, plan->op_count * sizeof(mgv__kernel_op), "operations", true);
    machine::global_part(arena + plan->segments_offset, ((size_t)plan->max_segments + 1) * sizeof(mgv__kernel_segment), "segments", true);
    machine::global_part(arena + plan->deal_offset, ((size_t)plan->max_tiles + 2 * MGV__PLAN_DEAL_CLUSTERS) * sizeof *plan->deal, "lists of clusters", true);
    machine::global_part(arena + plan->stats_offset, plan->vectors_offset - plan->stats_offset, "statistics", false);
    if (plan->tables_bytes) machine::global_part(arena + plan->tables_offset, plan->tables_bytes, "tables of tokens", true);
}

static std::vector<mgv_image> images_of(const MicroEncoder *m) {
    std::vector<mgv_image> images(m->shape.images);
    memset((void *)images.data(), 0, images.size() * sizeof images[0]);
    const uint32_t side = m->shape.picture_side ? m->shape.picture_side : m->shape.image_size;
    const size_t bytes = (size_t)side * side * 3;
    for (size_t i = 0; i < images.size(); i++) {
        images[i].format = MGV_PIXELS_RGB8;
        images[i].pixels = &m->pixels[m->pictures.empty() ? i * bytes : m->pictures[i].pixels];
        images[i].width = images[i].height = side;
        if (m->pictures.empty()) continue;
        images[i].width = m->pictures[i].grid.width;
        images[i].height = m->pictures[i].grid.height;
        images[i].frames = m->pictures[i].frames;
    }
    return images;
}
/* Encodes all pictures into `outputs` by the public API. */
static std::string run_engine(MicroEncoder *m, mgv_backend backend, std::vector<mgv_output> &outputs) {
    const std::string name = backend == MGV_BACKEND_CPU ? "CPU" : "CUDA";
    mgv_error error;
    memset(&error, 0, sizeof error);
    mgv_engine_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.backend = backend;
    desc.precision = (mgv_precision)(backend == MGV_BACKEND_CPU && m->shape.twin ? m->shape.twin : m->shape.precision);
    desc.max_images = m->shape.images;
    desc.kernels = "";
    desc.max_row_outputs = (uint32_t)outputs.size();
    desc.max_sms = 2 * m->shape.clusters;
    if (!m->pictures.empty()) desc.max_tokens = m->units;
    mgv_engine *engine;
    if (mgv_engine_create(&engine, m->model, &desc, &error) != MGV_OK) return failed((name + " engine").c_str(), error);
    if (engine->gpu) {
        const mgv__cuda *cuda = engine->gpu->cuda;
        name_buffers(m, cuda);
        if (!m->shape.picture_side) machine::global_part(cuda->arena + cuda->plan->pixels_offset, m->pixels.size(), "pixels", true);
    }
    std::vector<mgv_image> images = images_of(m);
    mgv_encode_desc encode;
    memset(&encode, 0, sizeof encode);
    encode.images = images.data();
    encode.image_count = m->shape.images;
    encode.outputs = outputs.data();
    encode.output_count = (uint32_t)outputs.size();
    const mgv_result result = mgv_encode_blocking(engine, &encode, &error);
    mgv_engine_destroy(engine);
    return result == MGV_OK ? "" : failed((name + " encode").c_str(), error);
}
static std::string run_on_cpu(MicroEncoder *m) {
    choose_outputs(m);
    return run_engine(m, MGV_BACKEND_CPU, m->outputs);
}

/* The kernel is to write all but the pooled rows itself, at places that begin at no multiple of eight bytes. */
static void place_outputs(MicroEncoder *m) {
    for (size_t i = m->shape.head; i < m->outputs.size(); i++) {
        const uint32_t k = m->cuda->outputs.count++;
        m->cuda->outputs.layer[k] = mgv__row_output(m->outputs[i].kind, m->outputs[i].index);
        m->cuda->arguments.outputs[k] = (float *)machine::global_allocate((m->expected[i].size() + 1) * sizeof(float), "output") + 1;
    }
}

void micro_close(MicroEncoder *m) {
    if (!m) return;
    mgv__cuda_destroy(m->cuda);
    mgv_model_close(m->model);
    delete m;
}

static std::string config_of(const MicroShape &shape, const char *model_type, const std::string &more) {
    return std::string("{\"model_type\":\"") + model_type + "\",\"hidden_size\":" + std::to_string(shape.hidden) +
           ",\"num_attention_heads\":" + std::to_string(shape.hidden / shape.head_dim) +
           ",\"num_hidden_layers\":" + std::to_string(shape.layers) + ",\"patch_size\":" + std::to_string(shape.patch) + more + "}";
}

static void add_siglip_layers(const MicroShape &shape, const std::string &v, Checkpoint &c) {
    const uint64_t d = shape.hidden, f = shape.intermediate;
    for (uint32_t i = 0; i < shape.layers; i++) {
        const std::string l = v + "encoder.layers." + std::to_string(i) + ".";
        c.norm(l + "layer_norm1", d);
        c.norm(l + "layer_norm2", d);
        c.linear(l + "self_attn.q_proj", d, d, shape.sharpness);
        for (const char *p : {"k_proj", "v_proj", "out_proj"}) c.linear(l + "self_attn." + p, d, d);
        c.linear(l + "mlp.fc1", f, d);
        c.linear(l + "mlp.fc2", d, f);
    }
    c.norm(v + "post_layernorm", d);
}
static void add_siglip_head(const MicroShape &shape, const std::string &v, Checkpoint &c) {
    const uint64_t d = shape.hidden, f = shape.intermediate;
    if (!shape.head) return;
    c.add(v + "head.probe", {1, 1, d}, shape.probe, 0);
    c.add(v + "head.attention.in_proj_weight", {3 * d, d}, 1.7f / sqrtf((float)d), 0);
    c.add(v + "head.attention.in_proj_bias", {3 * d}, 0.1f, 0);
    c.linear(v + "head.attention.out_proj", d, d, 1, shape.mean);
    c.norm(v + "head.layernorm", d);
    c.linear(v + "head.mlp.fc1", f, d);
    c.linear(v + "head.mlp.fc2", d, f);
}

static std::string make_siglip(const MicroShape &shape, Checkpoint &c) {
    const uint64_t d = shape.hidden, f = shape.intermediate, grid = shape.image_size / shape.patch;
    const std::string v = "vision_model.";
    c.add(v + "embeddings.patch_embedding.weight", {d, 3, shape.patch, shape.patch}, 1.7f / sqrtf((float)(3 * shape.patch * shape.patch)),
          0);
    c.add(v + "embeddings.patch_embedding.bias", {d}, 0.1f, 0);
    c.add(v + "embeddings.position_embedding.weight", {grid * grid, d}, 0.5f, 0);
    add_siglip_layers(shape, v, c);
    add_siglip_head(shape, v, c);
    return config_of(shape, "siglip_vision_model",
                     ",\"intermediate_size\":" + std::to_string(f) + ",\"image_size\":" + std::to_string(shape.image_size) +
                         (shape.head ? "" : ",\"vision_use_head\":false"));
}

/* The same for pictures of any size: patches are a matrix, positions are sampled. */
static std::string make_naflex(const MicroShape &shape, Checkpoint &c) {
    const uint64_t d = shape.hidden, f = shape.intermediate, side = shape.table_side;
    const std::string v = "vision_model.";
    c.add(v + "embeddings.patch_embedding.weight", {d, 3 * shape.patch * shape.patch}, 1.7f / sqrtf((float)(3 * shape.patch * shape.patch)), 0);
    c.add(v + "embeddings.patch_embedding.bias", {d}, 0.1f, 0);
    c.add(v + "embeddings.position_embedding.weight", {side * side, d}, 0.5f, 0);
    add_siglip_layers(shape, v, c);
    add_siglip_head(shape, v, c);
    return config_of(shape, "siglip2_vision_model",
                     ",\"intermediate_size\":" + std::to_string(f) + ",\"num_patches\":" + std::to_string(side * side) +
                         (shape.head ? "" : ",\"vision_use_head\":false"));
}

/* A norm behind the embeddings, quick GELU, no bias of the patches. */
static std::string make_clip(const MicroShape &shape, Checkpoint &c) {
    const uint64_t d = shape.hidden, f = shape.intermediate, grid = shape.image_size / shape.patch;
    const std::string v = "vision_model.";
    c.add(v + "embeddings.class_embedding", {d}, 1, 0);
    c.add(v + "embeddings.patch_embedding.weight", {d, 3, shape.patch, shape.patch}, 1.7f / sqrtf((float)(3 * shape.patch * shape.patch)),
          0);
    c.add(v + "embeddings.position_embedding.weight", {grid * grid + 1, d}, 0.5f, 0);
    c.norm(v + "pre_layrnorm", d);
    for (uint32_t i = 0; i < shape.layers; i++) {
        const std::string l = v + "encoder.layers." + std::to_string(i) + ".";
        c.norm(l + "layer_norm1", d);
        c.norm(l + "layer_norm2", d);
        for (const char *p : {"q_proj", "k_proj", "v_proj", "out_proj"}) c.linear(l + "self_attn." + p, d, d);
        c.linear(l + "mlp.fc1", f, d);
        c.linear(l + "mlp.fc2", d, f);
    }
    c.norm(v + "post_layernorm", d);
    if (shape.projection) c.add("visual_projection.weight", {shape.projection, d}, 1.7f / sqrtf((float)d), 0);
    return config_of(shape, "clip_vision_model",
                     ",\"intermediate_size\":" + std::to_string(f) + ",\"image_size\":" + std::to_string(shape.image_size));
}

/* GELU by erf, a scale per channel, registers, positions of a larger picture. */
static std::string make_dinov2(const MicroShape &shape, Checkpoint &c) {
    const uint64_t d = shape.hidden, f = 4 * d, grid = shape.table_side ? shape.table_side : shape.image_size / shape.patch;
    c.add("embeddings.cls_token", {1, 1, d}, 1, 0);
    if (shape.registers) c.add("embeddings.register_tokens", {1, shape.registers, d}, 1, 0);
    c.add("embeddings.position_embeddings", {1, grid * grid + 1, d}, 0.5f, 0);
    c.add("embeddings.patch_embeddings.projection.weight", {d, 3, shape.patch, shape.patch},
          1.7f / sqrtf((float)(3 * shape.patch * shape.patch)), 0);
    c.add("embeddings.patch_embeddings.projection.bias", {d}, 0.1f, 0);
    for (uint32_t i = 0; i < shape.layers; i++) {
        const std::string l = "encoder.layer." + std::to_string(i) + ".";
        c.norm(l + "norm1", d);
        c.norm(l + "norm2", d);
        for (const char *p : {"query", "key", "value"}) c.linear(l + "attention.attention." + p, d, d);
        c.linear(l + "attention.output.dense", d, d);
        c.add(l + "layer_scale1.lambda1", {d}, 0.5f, 0.6f);
        c.linear(l + "mlp.fc1", f, d);
        c.linear(l + "mlp.fc2", d, f);
        c.add(l + "layer_scale2.lambda1", {d}, 0.5f, 0.6f);
    }
    c.norm("layernorm", d);
    return config_of(shape, shape.registers ? "dinov2_with_registers" : "dinov2",
                     ",\"image_size\":" + std::to_string(grid * shape.patch) +
                         (shape.registers ? ",\"num_register_tokens\":" + std::to_string(shape.registers) : std::string()));
}

/* Rotary positions, a scale per channel, an MLP that may be gated, registers. */
static std::string make_dinov3(const MicroShape &shape, Checkpoint &c) {
    const uint64_t d = shape.hidden, f = shape.intermediate;
    c.add("embeddings.cls_token", {1, 1, d}, 1, 0);
    if (shape.registers) c.add("embeddings.register_tokens", {1, shape.registers, d}, 1, 0);
    c.add("embeddings.patch_embeddings.weight", {d, 3, shape.patch, shape.patch}, 1.7f / sqrtf((float)(3 * shape.patch * shape.patch)), 0);
    c.add("embeddings.patch_embeddings.bias", {d}, 0.1f, 0);
    for (uint32_t i = 0; i < shape.layers; i++) {
        const std::string l = "layer." + std::to_string(i) + ".";
        c.norm(l + "norm1", d);
        c.norm(l + "norm2", d);
        c.linear(l + "attention.q_proj", d, d, shape.sharpness);
        c.add(l + "attention.k_proj.weight", {d, d}, 1.7f / sqrtf((float)d), 0);
        for (const char *p : {"v_proj", "o_proj"}) c.linear(l + "attention." + p, d, d);
        c.add(l + "layer_scale1.lambda1", {d}, 0.5f, 0.6f);
        if (shape.gated) c.linear(l + "mlp.gate_proj", f, d);
        c.linear(l + "mlp.up_proj", f, d);
        c.linear(l + "mlp.down_proj", d, f);
        c.add(l + "layer_scale2.lambda1", {d}, 0.5f, 0.6f);
    }
    c.norm("norm", d);
    return config_of(shape, "dinov3_vit",
                     ",\"intermediate_size\":" + std::to_string(f) + ",\"image_size\":" + std::to_string(shape.image_size) +
                         ",\"hidden_act\":\"" + shape.activation + "\",\"use_gated_mlp\":" + (shape.gated ? "true" : "false") +
                         ",\"num_register_tokens\":" + std::to_string(shape.registers));
}

/* ReLU, norms behind the residual: tests/toy. */
static std::string make_toy(const MicroShape &shape, Checkpoint &c) {
    const uint64_t d = shape.hidden, f = shape.intermediate, grid = shape.image_size / shape.patch;
    c.add("class", {d}, 1, 0);
    c.add("positions", {grid * grid + 1, d}, 0.5f, 0);
    c.add("patches.weight", {d, 3, shape.patch, shape.patch}, 1.7f / sqrtf((float)(3 * shape.patch * shape.patch)), 0);
    c.add("patches.bias", {d}, 0.1f, 0);
    for (uint32_t i = 0; i < shape.layers; i++) {
        const std::string l = "layers." + std::to_string(i) + ".";
        c.norm(l + "norm1", d);
        c.norm(l + "norm2", d);
        for (const char *p : {"q", "k", "v", "out"}) c.linear(l + p, d, d);
        c.linear(l + "up", f, d);
        c.linear(l + "down", d, f);
    }
    return config_of(shape, "toy_vision",
                     ",\"intermediate_size\":" + std::to_string(f) + ",\"image_size\":" + std::to_string(shape.image_size));
}

static std::vector<mgv__batch_picture> pictures_of(const MicroShape &shape) {
    std::vector<mgv__batch_picture> pictures;
    for (const char *at = shape.sizes; *at;) {
        mgv__batch_picture picture;
        int used = 0;
        unsigned t = 1, h = 0, w = 0;
        memset(&picture, 0, sizeof picture);
        if (sscanf(at, "%ux%u%n", &h, &w, &used) < 2) abort();
        at += used;
        if (*at == '*' && sscanf(at, "*%u%n", &t, &used) == 1) at += used; /* frames */
        while (*at == ' ') at++;
        picture.frames = t;
        picture.grid.h = h;
        picture.grid.w = w;
        picture.grid.height = h * shape.patch;
        picture.grid.width = w * shape.patch;
        pictures.push_back(picture);
    }
    return pictures;
}
/* Each picture's pixels are those of its seed, whichever others there are. */
static void fill_pictures(MicroEncoder *m) {
    const mgv__config *config = &m->model->config;
    size_t bytes = 0;
    m->units = 0;
    for (mgv__batch_picture &picture : m->pictures) {
        mgv_grid *grid = &picture.grid;
        grid->t = (picture.frames + config->temporal_patch - 1) / config->temporal_patch;
        grid->tokens = grid->t * grid->h * grid->w;
        grid->merged_tokens = grid->tokens / (config->merge * config->merge);
        picture.pixels = bytes;
        bytes += ((size_t)picture.frames * grid->width * grid->height * 3 + 15) / 16 * 16;
        m->units += grid->tokens;
    }
    m->pixels.assign(bytes, 0);
    for (size_t i = 0; i < m->pictures.size(); i++) {
        const mgv__batch_picture &picture = m->pictures[i];
        Checkpoint random;
        random.state += (m->shape.seed + i) * 0x9E3779B97F4A7C15ull;
        for (size_t k = 0; k < (size_t)picture.frames * picture.grid.width * picture.grid.height * 3; k++)
            m->pixels[picture.pixels + k] = (uint8_t)(128 + 127 * m->shape.contrast * random.next());
    }
}

/* Mergers behind some layers and at the end: tests/toy. A picture is 2 x 2 patches, one merged row. */
static std::string make_toy_merged(const MicroShape &shape, Checkpoint &c) {
    const uint64_t d = shape.hidden, f = shape.intermediate, grid = shape.image_size / shape.patch;
    std::string deepstack;
    const auto merger = [&](const std::string &name, uint64_t norm) {
        c.norm(name + "norm", norm);
        c.linear(name + "linear_fc1", 4 * d, 4 * d);
        c.linear(name + "linear_fc2", shape.merged, 4 * d);
    };
    c.add("positions", {grid * grid, d}, 0.5f, 0);
    c.add("patches.weight", {d, 3, shape.patch, shape.patch}, 1.7f / sqrtf((float)(3 * shape.patch * shape.patch)), 0);
    c.add("patches.bias", {d}, 0.1f, 0);
    for (uint32_t i = 0; i < shape.layers; i++) {
        const std::string l = "layers." + std::to_string(i) + ".";
        c.norm(l + "norm1", d);
        c.norm(l + "norm2", d);
        for (const char *p : {"q", "k", "v", "out"}) c.linear(l + p, d, d);
        c.linear(l + "up", f, d);
        c.linear(l + "down", d, f);
    }
    for (uint32_t i = 0; i < shape.deepstack; i++) {
        merger("deepstack_merger_list." + std::to_string(i) + ".", 4 * d);
        deepstack += (i ? "," : "") + std::to_string(i);
    }
    merger("merger.", d);
    return config_of(shape, "toy_merged_vision",
                     ",\"intermediate_size\":" + std::to_string(f) + ",\"image_size\":" + std::to_string(shape.image_size) +
                         ",\"out_hidden_size\":" + std::to_string(shape.merged) + ",\"deepstack_visual_indexes\":[" + deepstack + "]");
}

/* The towers of Qwen-VL: rotary positions and two frames a patch; Qwen3's with sampled positions and DeepStack, Qwen2.5's with RMSNorm, a gated
   MLP and windows of 2 x 2 merged tokens in all layers but the last, Qwen2's with neither. */
static std::string make_qwen(const MicroShape &shape, const std::string &family, Checkpoint &c) {
    const uint64_t d = shape.hidden, f = shape.intermediate;
    const bool third = family == "qwen3", gated = family == "qwen2.5";
    const std::string fc1 = third ? "linear_fc1" : "0", fc2 = third ? "linear_fc2" : "2";
    std::string deepstack;
    const auto norm = [&](const std::string &name, uint64_t width) {
        if (gated) c.add(name + ".weight", {width}, 0.2f, 1);
        else c.norm(name, width);
    };
    const auto merger = [&](const std::string &name, const std::string &norm_name, uint64_t width) {
        norm(name + norm_name, width);
        c.linear(name + (third ? "" : "mlp.") + fc1, 4 * d, 4 * d);
        c.linear(name + (third ? "" : "mlp.") + fc2, shape.merged, 4 * d);
    };
    c.add("patch_embed.proj.weight", {d, 3, 2, shape.patch, shape.patch}, 1.7f / sqrtf((float)(6 * shape.patch * shape.patch)), 0);
    if (third) {
        c.add("patch_embed.proj.bias", {d}, 0.1f, 0);
        c.add("pos_embed.weight", {shape.table_side * shape.table_side, d}, 0.5f, 0);
    }
    for (uint32_t i = 0; i < shape.layers; i++) {
        const std::string l = "blocks." + std::to_string(i) + ".";
        norm(l + "norm1", d);
        norm(l + "norm2", d);
        c.linear(l + "attn.qkv", 3 * d, d, shape.sharpness);
        c.linear(l + "attn.proj", d, d, 1, shape.mean);
        if (gated) c.linear(l + "mlp.gate_proj", f, d);
        c.linear(l + (gated ? "mlp.up_proj" : third ? "mlp.linear_fc1" : "mlp.fc1"), f, d);
        c.linear(l + (gated ? "mlp.down_proj" : third ? "mlp.linear_fc2" : "mlp.fc2"), d, f);
    }
    for (uint32_t i = 0; i < shape.deepstack; i++) {
        merger("deepstack_merger_list." + std::to_string(i) + ".", "norm", 4 * d);
        deepstack += (i ? "," : "") + std::to_string(i);
    }
    merger("merger.", third ? "norm" : "ln_q", d);
    return "{\"model_type\":\"" + std::string(third ? "qwen3_vl_vision" : gated ? "qwen2_5_vl_vision" : "qwen2_vl_vision") + "\",\"depth\":" +
           std::to_string(shape.layers) + ",\"num_heads\":" + std::to_string(d / shape.head_dim) + ",\"patch_size\":" + std::to_string(shape.patch) +
           (third || gated ? ",\"hidden_size\":" + std::to_string(d) + ",\"intermediate_size\":" + std::to_string(f) + ",\"out_hidden_size\":" +
                                 std::to_string(shape.merged)
                           : ",\"embed_dim\":" + std::to_string(d) + ",\"hidden_size\":" + std::to_string(shape.merged) + ",\"mlp_ratio\":" +
                                 std::to_string(f / d)) +
           (third ? ",\"num_position_embeddings\":" + std::to_string(shape.table_side * shape.table_side) + ",\"deepstack_visual_indexes\":[" +
                        deepstack + "]"
                  : "") +
           (gated ? ",\"window_size\":" + std::to_string(4 * shape.patch) + ",\"fullatt_block_indexes\":[" + std::to_string(shape.layers - 1) + "]"
                  : "") +
           "}";
}

MicroEncoder *micro_open(const MicroShape &shape, std::string *why) {
    std::unique_ptr<MicroEncoder> m(new MicroEncoder());
    m->shape = shape;
    Checkpoint c;
    const std::string family = shape.family, side = std::to_string(shape.image_size);
    const std::string config = family == "clip"     ? make_clip(shape, c)
                               : family == "dinov2" ? make_dinov2(shape, c)
                               : family == "dinov3" ? make_dinov3(shape, c)
                               : family == "toy"    ? make_toy(shape, c)
                               : family == "naflex" ? make_naflex(shape, c)
                               : family.compare(0, 4, "qwen") == 0 ? make_qwen(shape, family, c)
                               : shape.merged       ? make_toy_merged(shape, c)
                                                    : make_siglip(shape, c);
    m->pictures = pictures_of(shape);
    const bool any_size = !m->pictures.empty();
    /* DINOv3's own makes floats */
    const std::string processor = any_size ? "{\"do_resize\":false,\"max_num_patches\":1000,\"image_mean\":[0.5,0.4,0.3],\"image_std\":[0.3,0.26,0.27]}" :
                                  std::string("{") + (shape.picture_side ? "\"image_processor_type\":\"DINOv3ViTImageProcessorFast\"," : family == "dinov3" ? "\"image_processor_type\":\"BitImageProcessor\"," : "") +
                                  "\"do_center_crop\":false,\"do_normalize\":true,\"do_rescale\":true,\"do_resize\":true,"
                                  "\"image_mean\":[0.5,0.4,0.3],\"image_std\":[0.3,0.26,0.27],\"rescale_factor\":0.00392156862745098,"
                                  "\"resample\":3,\"size\":{\"height\":" + side + ",\"width\":" + side + "}}";
    const std::string tensors = c.file();
    mgv_memory_file files[4];
    memset(files, 0, sizeof files);
    files[0].name = "config.json";
    files[0].data = config.data();
    files[0].bytes = config.size();
    files[1].name = "model.safetensors";
    files[1].data = tensors.data();
    files[1].bytes = tensors.size();
    files[2].name = "preprocessor_config.json";
    files[2].data = processor.data();
    files[2].bytes = processor.size();
    files[3] = files[2]; /* of clips */
    files[3].name = "video_preprocessor_config.json";
    mgv_error error;
    memset(&error, 0, sizeof error);
    mgv_model_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.memory_files = files;
    desc.memory_file_count = family == "siglip" ? 2 : any_size && shape.merged ? 4 : 3;
    if (mgv_model_open(&m->model, &desc, &error) != MGV_OK) {
        *why = failed("model", error);
        return nullptr;
    }
    m->units = shape.images;
    const size_t picture_side = shape.picture_side ? shape.picture_side : shape.image_size;
    m->pixels.resize(shape.images * picture_side * picture_side * 3);
    for (uint8_t &p : m->pixels) p = (uint8_t)(128 + 127 * shape.contrast * c.next());
    if (any_size) fill_pictures(m.get());
    const size_t image_bytes = m->pixels.size() / shape.images;
    for (size_t i = image_bytes; shape.alike && i < m->pixels.size(); i++) m->pixels[i] = m->pixels[i - image_bytes];
    if (!(*why = run_on_cpu(m.get())).empty()) return nullptr;

    machine::global_reset();
#ifdef MACHINE_BLACKWELL
    machine::runtime.major = 10;
    machine::runtime.multiprocessors = 148;
    machine::runtime.kernels = {
        {"megavit_encode_sm_100a", 168, [](void **arguments) { megavit_encode_sm_100a(*(const mgv__kernel_arguments *)arguments[0]); }},
        {"megavit_encode_pairs_sm_100a", 168,
         [](void **arguments) { megavit_encode_pairs_sm_100a(*(const mgv__kernel_arguments *)arguments[0]); }}};
#else
    machine::runtime.kernels = {
        {"megavit_encode_sm_90a", 168, [](void **arguments) { megavit_encode_sm_90a(*(const mgv__kernel_arguments *)arguments[0]); }},
        {"megavit_encode_some_sm_90a", 168, [](void **arguments) { megavit_encode_some_sm_90a(*(const mgv__kernel_arguments *)arguments[0]); }},
        {"megavit_encode_few_sm_90a", 168, [](void **arguments) { megavit_encode_few_sm_90a(*(const mgv__kernel_arguments *)arguments[0]); }},
        {"megavit_encode_tower_sm_90a", 168, [](void **arguments) { megavit_encode_tower_sm_90a(*(const mgv__kernel_arguments *)arguments[0]); }},
        {"megavit_encode_wide_sm_90a", 168,
         [](void **arguments) { megavit_encode_wide_sm_90a(*(const mgv__kernel_arguments *)arguments[0]); }},
        {"megavit_encode_latency_104_sm_90a", 168,
         [](void **arguments) { megavit_encode_latency_104_sm_90a(*(const mgv__kernel_arguments *)arguments[0]); }},
        {"megavit_encode_latency_128_sm_90a", 168,
         [](void **arguments) { megavit_encode_latency_128_sm_90a(*(const mgv__kernel_arguments *)arguments[0]); }},
        {"megavit_encode_latency_any_104_sm_90a", 168,
         [](void **arguments) { megavit_encode_latency_any_104_sm_90a(*(const mgv__kernel_arguments *)arguments[0]); }},
        {"megavit_encode_latency_any_128_sm_90a", 168,
         [](void **arguments) { megavit_encode_latency_any_128_sm_90a(*(const mgv__kernel_arguments *)arguments[0]); }},
        {"megavit_encode_latency_turned_sm_90a", 168,
         [](void **arguments) { megavit_encode_latency_turned_sm_90a(*(const mgv__kernel_arguments *)arguments[0]); }},
        {"megavit_encode_latency_tower_sm_90a", 168,
         [](void **arguments) { megavit_encode_latency_tower_sm_90a(*(const mgv__kernel_arguments *)arguments[0]); }},
        {"megavit_encode_latency_all_sm_90a", 168,
         [](void **arguments) { megavit_encode_latency_all_sm_90a(*(const mgv__kernel_arguments *)arguments[0]); }},
        {"megavit_encode_latency_wide_sm_90a", 168,
         [](void **arguments) { megavit_encode_latency_wide_sm_90a(*(const mgv__kernel_arguments *)arguments[0]); }}};
#endif
    machine::runtime.globals = {{"megavit_description", {megavit_description, sizeof megavit_description}}};
    mgv__cuda_desc cuda_desc;
    memset(&cuda_desc, 0, sizeof cuda_desc);
    cuda_desc.precision = (mgv_precision)shape.precision;
    cuda_desc.max_images = shape.max_images;
    cuda_desc.max_pictures = shape.images + 1;
    cuda_desc.schedule_images = shape.schedule_images;
    cuda_desc.group_images = shape.group_images;
    cuda_desc.lanes = shape.lanes;
    cuda_desc.max_clusters = shape.clusters;
    cuda_desc.poll_limit = shape.poll_limit;
    cuda_desc.regime = shape.regime;
    cuda_desc.kernels = "";
    if (mgv__cuda_create(&m->cuda, &cuda_desc, &m->model->config, &m->model->program, m->model->tensors, &error) != MGV_OK) {
        *why = failed("CUDA engine", error) + " " + machine::encode_error();
        return nullptr;
    }
    if (shape.regroups) m->cuda->plan->group_is_said = 0;
    m->cuda->plan->forced_shares = shape.shares;
    if (shape.split) {
        m->cuda->plan->split_least = 1;
        m->cuda->plan->split_most = shape.split;
    }
    name_buffers(m.get(), m->cuda);
    place_outputs(m.get());
    m->device_pixels = machine::global_allocate(m->pixels.size(), "pixels");
    machine::global_copy(m->device_pixels, m->pixels.data(), m->pixels.size());
    machine::global_read_only(m->device_pixels);
    return m.release();
}

static double median_of_rows(const float *got, const std::vector<float> &expected, size_t width) {
    std::vector<double> errors;
    for (size_t row = 0; row + width <= expected.size(); row += width) {
        double difference = 0, norm = 0;
        for (size_t i = row; i < row + width; i++) {
            difference += (double)(got[i] - expected[i]) * (got[i] - expected[i]);
            norm += (double)expected[i] * expected[i];
        }
        errors.push_back(sqrt(difference / norm));
    }
    if (errors.size() < 3) return 0;
    std::nth_element(errors.begin(), errors.begin() + errors.size() / 2, errors.end());
    return errors[errors.size() / 2];
}

/* Not a number is worse than any, and stays. */
static void take_worst(double *worst, double error) {
    if (!std::isnan(*worst) && !(error <= *worst)) *worst = error;
}
/* Adds an output to the run's, and its error. width: of its rows. */
static void take_output(MicroRun *run, const float *got, const std::vector<float> &expected, uint32_t images, size_t width,
                        bool pooled) {
    const size_t each = expected.size() / images;
    for (uint32_t i = 1; i < images; i++) run->alike &= memcmp(got, got + i * each, each * sizeof *got) == 0;
    double difference = 0, norm = 0;
    for (size_t i = 0; i < expected.size(); i++) {
        difference += (double)(got[i] - expected[i]) * (got[i] - expected[i]);
        norm += (double)expected[i] * expected[i];
    }
    run->outputs.insert(run->outputs.end(), got, got + expected.size());
    const double error = sqrt(difference / norm), median = median_of_rows(got, expected, width);
    take_worst(&run->median_error, median);
    take_worst(&run->relative_error, error);
    if (!pooled) take_worst(&run->rows_error, error);
}

MicroRun micro_engine(MicroEncoder *m, const machine::Options &options) {
    MicroRun run;
    std::vector<std::vector<float>> got = m->expected;
    std::vector<mgv_output> outputs = m->outputs;
    for (size_t i = 0; i < got.size(); i++) {
        std::fill(got[i].begin(), got[i].end(), NAN);
        outputs[i].data = got[i].data();
    }
    machine::runtime.options = options;
    run.verdict = run_engine(m, MGV_BACKEND_CUDA, outputs);
    run.machine = machine::runtime.last;
    for (size_t i = 0; i < got.size() && run.verdict.empty(); i++)
        take_output(&run, got[i].data(), m->expected[i], 1, m->shape.hidden, i < m->shape.head);
    return run;
}

/* What an encode says of a token, made wrong. Samples: that of its row of patches. */
static void plant(const mgv__kernel_arguments &arguments, MicroFault fault, uint32_t number) {
    mgv__kernel_token *token = const_cast<mgv__kernel_token *>(&arguments.tokens[number]);
    if (fault == MicroFault::pixels) token->pixels += 3;
    if (fault == MicroFault::sample) const_cast<mgv__kernel_sample *>(arguments.samples)[token->down].weight += 0.5f;
    if (fault == MicroFault::place) token->place[1] ^= 1;
    if (fault == MicroFault::range)
        for (uint32_t i = 0; i < MGV__TOKEN_RANGES; i++) const_cast<mgv__kernel_token *>(arguments.tokens)->range[i][1]--; /* the first of all */
}
MicroValidation micro_validate(MicroEncoder *m, const machine::Options &options, MicroFault fault, uint32_t token) {
    MicroValidation validation;
    const std::vector<mgv_image> images = images_of(m);
    const mgv_allocator allocator = {nullptr, nullptr, nullptr};
    mgv_result made;
    mgv__cuda engine; /* validation's, as far as its buffers go: it has rows that no picture has */
    memset((void *)&engine, 0, sizeof engine);
#ifdef MACHINE_BLACKWELL
    const mgv__machine *machine = m->cuda->machine;
#else
    const mgv__machine *machine = MGV__MACHINE_DEFAULT;
#endif
    engine.plan = mgv__plan_make_for(&allocator, machine, (mgv_precision)m->shape.precision, &m->model->config, &m->model->program,
                                     m->units + (m->pictures.empty() ? 2 : 2 * m->model->config.merge * m->model->config.merge),
                                     m->shape.images + 2, &made, nullptr);
    bool begun = false;
    machine::runtime.before = [&](void **kernel_arguments) {
        const mgv__kernel_arguments &arguments = *(const mgv__kernel_arguments *)kernel_arguments[0];
        if (begun) return; /* the tables are sent once, and stay */
        begun = true;
        engine.arena = const_cast<uint8_t *>(arguments.weights) - engine.plan->weights_offset;
        name_buffers(m, &engine);
        if (!m->shape.picture_side) machine::global_part(engine.arena + engine.plan->pixels_offset, m->pixels.size(), "pixels", true);
        plant(arguments, fault, token);
    };
    mgv_engine_desc desc;
    mgv_error error;
    memset(&desc, 0, sizeof desc);
    memset(&error, 0, sizeof error);
    desc.kernels = "";
    desc.precision = (mgv_precision)m->shape.precision;
    desc.max_sms = 2 * m->shape.clusters;
    machine::runtime.options = options;
    uint32_t failures = 0;
    const auto report = [](void *user, const mgv_validation *row) {
        MicroValidation *v = (MicroValidation *)user;
        v->compared += row->compared != 0;
        if (!row->ok) v->wrong.insert(row->label);
        if (row->compared) v->rows.push_back({row->label, row->rows * row->columns, row->different});
    };
    if (mgv_validate(m->model, &desc, images.data(), m->shape.images, report, &validation, &failures, &error) != MGV_OK)
        validation.error = failed("validation", error);
    machine::runtime.before = nullptr;
    mgv__plan_free(&allocator, engine.plan);
    if (!machine::runtime.last.reports.empty()) validation.error += machine::runtime.last.text();
    return validation;
}

std::vector<uint32_t> micro_signals(const MicroEncoder *m) {
    const mgv__plan *plan = m->cuda->plan;
    std::vector<uint32_t> signals;
    for (uint32_t b = 0; b < MGV__DEVICE_MERGERS + plan->mergers * MGV__MERGER_BUFFERS; b++)
        for (uint32_t i = 0; i < plan->buffers[b].counter_stride * plan->groups; i++) signals.push_back(1 + plan->buffers[b].counter + i);
    return signals;
}
std::string micro_plan(const MicroEncoder *m) {
    return std::to_string(m->cuda->plan->op_count) + " operations, " + std::to_string(m->cuda->arguments.total_tiles) + " tiles, " +
           std::to_string(m->cuda->plan->clusters * mgv__plan_regime(m->cuda->plan)->cluster) + " CTAs";
}

std::string micro_kernel(const MicroEncoder *m) { return m->cuda->machine->kernels[mgv__plan_kernel(m->cuda->plan)].name; }

void micro_ways(const MicroEncoder *m, std::set<std::string> *ways) {
    ways->insert(micro_kernel(m));
    for (uint32_t i = 0; i < m->cuda->plan->op_count; i++) {
        mgv_schedule_op op;
        mgv__schedule_describe(m->cuda->plan, &m->cuda->plan->ops[i], &op);
        const bool product = op.kind == std::string("product");
        const std::string rows = std::to_string(op.tile_rows);
        const mgv__kernel_op &kernel = m->cuda->plan->ops[i].kernel;
        if (mgv__plan_is_latency_product(kernel.kind))
            ways->insert(kernel.flags & MGV__KERNEL_OTHERS_SIGNAL ? "signals by another warp" : "signals by the math warps");
        if (kernel.flags & MGV__KERNEL_OWN_HEADS) ways->insert("a head a math group");
        const uint32_t last_group = mgv__ceil_div(m->units, m->cuda->plan->group_images) - 1;
        const std::string columns = std::to_string(op.tile_columns);
        if (product && mgv__shares_rows(&kernel, last_group, mgv__plan_units(m->cuda->plan, &kernel, last_group) - 1))
            ways->insert("last rows shared by tiles of " + columns + " columns");
        if (kernel.kind == MGV__KERNEL_SHARES && kernel.column_tiles)
            ways->insert("K shared out over " + std::to_string(kernel.of.shares.count) + " clusters");
        if (mgv__split_columns(kernel.kind)) ways->insert("K shared out over tiles of " + columns + " columns");
        else ways->insert(op.kind + (product ? " " + rows + " x " + columns : " of " + rows + " tokens"));
    }
}

uint32_t *micro_abort_word(const MicroEncoder *m) { return mgv__cuda_counters(m->cuda, 0); }

MicroRun micro_run(MicroEncoder *m, const machine::Options &options, uint32_t lost_signal, bool follows) {
    MicroRun run;
    mgv_error error;
    memset(&error, 0, sizeof error);
    const mgv__plan *plan = m->cuda->plan;
    for (uint32_t i = 0; i < MGV__DEVICE_BUFFER_COUNT; i++)
        if (i != MGV__DEVICE_PATCHES && plan->buffers[i].bytes)
            machine::global_forget(m->cuda->arena + plan->buffers[i].offset, valid_bytes(m, m->cuda, i));
    for (uint32_t k = 0; k < m->cuda->outputs.count; k++)
        machine::global_forget(m->cuda->arguments.outputs[k], m->expected[k + m->shape.head].size() * sizeof(float));
    machine::runtime.options = options;
    m->cuda->arguments.lost_signal = lost_signal;
    if (!follows) { /* the same addresses in every run, so that what a recording has seen can be done again */
        m->cuda->counter_set = 0;
        m->cuda->cleared = 0;
    }
    mgv_result result = MGV_OK;
    if (!m->pictures.empty())
        result = mgv__cuda_place_pictures(m->cuda, m->pictures.data(), (uint32_t)m->pictures.size(), nullptr, &error);
    if (result == MGV_OK) result = mgv__cuda_launch(m->cuda, m->units, (const uint8_t *)m->device_pixels, 0, nullptr, &error);
    run.machine = machine::runtime.last;
    if (result == MGV_OK) result = mgv__cuda_verdict(m->cuda, &error);
    if (result != MGV_OK) run.verdict = error.message;
    if (options.protocol || !run.verdict.empty() || run.machine.deadlock) return run;
    if (m->shape.head) take_output(&run, mgv__cuda_pooled(m->cuda), m->expected[0], m->shape.images, m->shape.hidden, true);
    for (size_t i = m->shape.head; i < m->expected.size(); i++)
        take_output(&run, m->cuda->arguments.outputs[i - m->shape.head], m->expected[i], m->pictures.empty() ? m->shape.images : 1,
                    m->shape.hidden, false);
    return run;
}
