/* A small Qwen3, or Qwen3-VL, of random weights, and a card of the machine model with the kernels that run it. */
#ifndef MACHINE_LANGUAGE_H
#define MACHINE_LANGUAGE_H

#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_CUDA
#define MEGAVIT_TEXT
#define MEGAVIT_KERNELS
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include "megavit.h"
#pragma GCC diagnostic pop

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cudart.h"
#include "tap.h"

#ifdef MACHINE_TOWER /* and the encoder's kernels, all of which an engine looks for */
#define MACHINE_ENCODERS(DO) \
    DO(megavit_encode_sm_90a) \
    DO(megavit_encode_some_sm_90a) \
    DO(megavit_encode_few_sm_90a) \
    DO(megavit_encode_tower_sm_90a) \
    DO(megavit_encode_wide_sm_90a) \
    DO(megavit_encode_latency_104_sm_90a) \
    DO(megavit_encode_latency_128_sm_90a) \
    DO(megavit_encode_latency_any_104_sm_90a) \
    DO(megavit_encode_latency_any_128_sm_90a) \
    DO(megavit_encode_latency_turned_sm_90a) \
    DO(megavit_encode_latency_tower_sm_90a) \
    DO(megavit_encode_latency_all_sm_90a) \
    DO(megavit_encode_latency_wide_sm_90a)
#define MACHINE_DECLARE(name) extern "C" void name(const mgv__kernel_arguments arguments);
#define MACHINE_LIST(name) {#name, 168, [](void **arguments) { name(*(const mgv__kernel_arguments *)arguments[0]); }},
MACHINE_ENCODERS(MACHINE_DECLARE)
extern "C" const uint32_t megavit_description[5];
#endif
extern "C" void megavit_decode_12_2_sm_90a(const mgv__decode_arguments arguments);
extern "C" void megavit_decode_few_12_2_sm_90a(const mgv__decode_arguments arguments);
extern "C" void megavit_decode_24_2_sm_90a(const mgv__decode_arguments arguments);
extern "C" void megavit_decode_few_24_2_sm_90a(const mgv__decode_arguments arguments);
extern "C" void megavit_decode_32_4_sm_90a(const mgv__decode_arguments arguments);
extern "C" void megavit_decode_few_32_4_sm_90a(const mgv__decode_arguments arguments);
extern "C" void megavit_prompt_sm_90a(const mgv__prompt_arguments arguments);
extern "C" void megavit_prompt_few_sm_90a(const mgv__prompt_arguments arguments);
extern "C" const uint32_t megavit_decode_description[3], megavit_prompt_description[3];

namespace {

struct Shape {
    uint32_t layers, hidden, intermediate, heads, key_heads, vocabulary;
    bool tied;
    bool sees = false; /* a Qwen3-VL whose last three ids are placeholder, clip's placeholder, begin, */
    uint32_t distinct = 0; /* rows of the head that are not another's again; 0: all */
    uint32_t deepstack = 2; /* with so many layers in its tower and DeepStack behind each */
};

/* A safetensors file of bf16, by a rule. */
struct Checkpoint {
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
            const uint16_t v = mgv__bf16_round(offset + scale * next());
            data.append((const char *)&v, 2);
        }
        header += (header.size() > 1 ? "," : "") + std::string("\"") + name + "\":{\"dtype\":\"BF16\",\"shape\":[" + dims +
                  "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(data.size()) + "]}";
    }
    void linear(const std::string &name, uint64_t out, uint64_t in) { add(name + ".weight", {out, in}, 1.7f / sqrtf((float)in), 0); }
    void norm(const std::string &name, uint64_t width) { add(name + ".weight", {width}, 0.3f, 1); }
    void linear_bias(const std::string &name, uint64_t out, uint64_t in) {
        linear(name, out, in);
        add(name + ".bias", {out}, 0.1f, 0);
    }
    void norm_bias(const std::string &name, uint64_t width) {
        norm(name, width);
        add(name + ".bias", {width}, 0.1f, 0);
    }
    void tower(uint64_t out, uint32_t layers) {
        const std::string v = "model.visual.";
        add(v + "patch_embed.proj.weight", {32, 3, 2, 16, 16}, 0.05f, 0);
        add(v + "patch_embed.proj.bias", {32}, 0.1f, 0);
        add(v + "pos_embed.weight", {144, 32}, 0.1f, 0);
        for (uint32_t i = 0; i < layers; i++) {
            const std::string b = v + "blocks." + std::to_string(i) + ".", m = v + "deepstack_merger_list." + std::to_string(i) + ".";
            norm_bias(b + "norm1", 32);
            norm_bias(b + "norm2", 32);
            linear_bias(b + "attn.qkv", 96, 32);
            linear_bias(b + "attn.proj", 32, 32);
            linear_bias(b + "mlp.linear_fc1", 40, 32);
            linear_bias(b + "mlp.linear_fc2", 32, 40);
            norm_bias(m + "norm", 128);
            linear_bias(m + "linear_fc1", 128, 128);
            linear_bias(m + "linear_fc2", out, 128);
        }
        norm_bias(v + "merger.norm", 32);
        linear_bias(v + "merger.linear_fc1", 128, 128);
        linear_bias(v + "merger.linear_fc2", out, 128);
    }
    std::string file(void) {
        std::string h = header + "}";
        while (h.size() % 8) h += ' ';
        const uint64_t bytes = h.size();
        return std::string((const char *)&bytes, 8) + h + data;
    }
};

inline mgv_model *open_model(const Shape &s) {
    Checkpoint c;
    const std::string m = s.sees ? "model.language_model." : "model.";
    c.add(m + "embed_tokens.weight", {s.vocabulary, s.hidden}, 1, 0);
    for (uint32_t i = 0; i < s.layers; i++) {
        const std::string l = m + "layers." + std::to_string(i) + ".";
        c.norm(l + "input_layernorm", s.hidden);
        c.norm(l + "post_attention_layernorm", s.hidden);
        c.norm(l + "self_attn.q_norm", 128);
        c.norm(l + "self_attn.k_norm", 128);
        c.linear(l + "self_attn.q_proj", s.heads * 128, s.hidden);
        c.linear(l + "self_attn.k_proj", s.key_heads * 128, s.hidden);
        c.linear(l + "self_attn.v_proj", s.key_heads * 128, s.hidden);
        c.linear(l + "self_attn.o_proj", s.hidden, s.heads * 128);
        c.linear(l + "mlp.gate_proj", s.intermediate, s.hidden);
        c.linear(l + "mlp.up_proj", s.intermediate, s.hidden);
        c.linear(l + "mlp.down_proj", s.hidden, s.intermediate);
    }
    c.norm(m + "norm", s.hidden);
    if (!s.tied) c.linear("lm_head", s.vocabulary, s.hidden);
    if (s.distinct) {
        const size_t row = s.hidden * 2, head = c.data.size() - s.vocabulary * row;
        for (size_t i = s.distinct; i < s.vocabulary; i++) memcpy(&c.data[head + i * row], &c.data[head + i % s.distinct * row], row);
    }
    if (s.sees) c.tower(s.hidden, s.deepstack);
    std::string config = std::string("{\"model_type\":\"") + (s.sees ? "qwen3_vl_text" : "qwen3") +
        "\",\"hidden_size\":" + std::to_string(s.hidden) +
        ",\"intermediate_size\":" + std::to_string(s.intermediate) + ",\"num_hidden_layers\":" + std::to_string(s.layers) +
        ",\"num_attention_heads\":" + std::to_string(s.heads) + ",\"num_key_value_heads\":" + std::to_string(s.key_heads) +
        ",\"head_dim\":128,\"vocab_size\":" + std::to_string(s.vocabulary) +
        ",\"tie_word_embeddings\":" + (s.tied ? "true" : "false") + "}";
    if (s.sees)
        config = "{\"model_type\":\"qwen3_vl\",\"image_token_id\":" + std::to_string(s.vocabulary - 3) + ",\"video_token_id\":" +
            std::to_string(s.vocabulary - 2) + ",\"vision_start_token_id\":" + std::to_string(s.vocabulary - 1) +
            ",\"vision_end_token_id\":" + std::to_string(s.vocabulary - 1) +
            ",\"tie_word_embeddings\":" + (s.tied ? "true" : "false") +
            ",\"vision_config\":{\"model_type\":\"qwen3_vl\",\"hidden_size\":32,\"num_heads\":2,\"intermediate_size\":40,\"depth\":" +
            std::to_string(s.deepstack) + ",\"deepstack_visual_indexes\":" + (s.deepstack == 3 ? "[0,1,2]" : "[0,1]") +
            ",\"num_position_embeddings\":144,\"patch_size\":16,\"spatial_merge_size\":2,"
            "\"temporal_patch_size\":2,\"out_hidden_size\":" + std::to_string(s.hidden) + "},\"text_config\":" +
            config.substr(0, config.size() - 1) + ",\"rope_parameters\":{\"mrope_interleaved\":true,\"mrope_section\":[24,20,20],"
            "\"rope_theta\":5000000.0,\"rope_type\":\"default\"}}}";
    const std::string tensors = c.file();
    mgv_memory_file files[2];
    memset(files, 0, sizeof files);
    files[0].name = "config.json";
    files[0].data = config.data();
    files[0].bytes = config.size();
    files[1].name = "model.safetensors";
    files[1].data = tensors.data();
    files[1].bytes = tensors.size();
    mgv_model_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.tower = MGV_TOWER_LANGUAGE;
    desc.memory_files = files;
    desc.memory_file_count = 2;
    mgv_model *model = nullptr;
    mgv_error error;
    if (mgv_model_open(&model, &desc, &error) != MGV_OK) ok(false, "the model opens", error.message);
    return model;
}

inline double relative_l2(const float *a, const float *b, size_t count) {
    double difference = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        norm += (double)b[i] * b[i];
    }
    return sqrt(difference / norm);
}

inline void make_card(uint32_t ctas) {
    machine::global_reset();
    machine::runtime.multiprocessors = ctas;
    machine::runtime.kernels = {
#ifdef MACHINE_TOWER
        MACHINE_ENCODERS(MACHINE_LIST)
#endif
        {"megavit_decode_12_2_sm_90a", 128,
         [](void **arguments) { megavit_decode_12_2_sm_90a(*(const mgv__decode_arguments *)arguments[0]); }},
        {"megavit_decode_few_12_2_sm_90a", 128,
         [](void **arguments) { megavit_decode_few_12_2_sm_90a(*(const mgv__decode_arguments *)arguments[0]); }},
        {"megavit_decode_24_2_sm_90a", 128,
         [](void **arguments) { megavit_decode_24_2_sm_90a(*(const mgv__decode_arguments *)arguments[0]); }},
        {"megavit_decode_few_24_2_sm_90a", 128,
         [](void **arguments) { megavit_decode_few_24_2_sm_90a(*(const mgv__decode_arguments *)arguments[0]); }},
        {"megavit_decode_32_4_sm_90a", 128,
         [](void **arguments) { megavit_decode_32_4_sm_90a(*(const mgv__decode_arguments *)arguments[0]); }},
        {"megavit_decode_few_32_4_sm_90a", 128,
         [](void **arguments) { megavit_decode_few_32_4_sm_90a(*(const mgv__decode_arguments *)arguments[0]); }},
        {"megavit_prompt_few_sm_90a", 168,
         [](void **arguments) { megavit_prompt_few_sm_90a(*(const mgv__prompt_arguments *)arguments[0]); }},
        {"megavit_prompt_sm_90a", 168, [](void **arguments) { megavit_prompt_sm_90a(*(const mgv__prompt_arguments *)arguments[0]); }}};
    machine::runtime.globals = {
#ifdef MACHINE_TOWER
                                {"megavit_description", {megavit_description, sizeof megavit_description}},
#endif
                                {"megavit_decode_description", {megavit_decode_description, sizeof megavit_decode_description}},
                                {"megavit_prompt_description", {megavit_prompt_description, sizeof megavit_prompt_description}}};
}

/* What may be written, and what host memory holds. */
inline void name_parts(const mgv__decoder *decoder, const mgv__decoder_state &state, uint32_t capacity) {
    const size_t cache = (size_t)mgv__decoder_cache_bytes(decoder->plan.config, capacity);
    machine::global_fill(state.pinned, 0, 512 + MGV__DECODE_UPLOAD_BYTES + MGV__DECODE_IDS_BYTES);
    machine::global_read_only(decoder->weights);
    if (state.pictures) machine::global_read_only(state.pictures);
    machine::global_part(state.prompt_block, (size_t)(state.prompt_upload - state.prompt_block), "a prompt's buffers", false);
    machine::global_part(state.prompt_upload, mgv__prompt_upload(state.prompt_rows, 3), "a prompt's ids", true);
    machine::global_fill(state.prompt_pinned, 0, mgv__prompt_upload(state.prompt_rows, 3) + 256);
    machine::global_part(state.block, (size_t)(state.upload - state.block), "words", false);
    machine::global_part(state.upload, MGV__DECODE_UPLOAD_BYTES, "ids and rotary", true);
    machine::global_part(state.session.keys, cache, "keys", false);
    machine::global_part(state.session.values, cache, "values", false);
    machine::global_part(state.session.logits, decoder->plan.config->vocabulary * 4, "logits", false);
}

#ifdef MACHINE_TOWER
/* What a tower's launch may write, and what it may not. */
inline void name_tower(const mgv__cuda *cuda) {
    const mgv__plan *plan = cuda->plan;
    uint8_t *const arena = cuda->arena;
    for (const mgv__device_buffer &b : plan->buffers)
        if (b.bytes) machine::global_part(arena + b.offset, b.bytes, "a buffer of the tower", false);
    machine::global_part(arena + plan->counters_offset, MGV__COUNTER_SETS * plan->counters_bytes, "abort words and counters", false);
    machine::global_part(arena + plan->stats_offset, plan->vectors_offset - plan->stats_offset, "statistics", false);
    machine::global_part(arena + plan->weights_offset, plan->weight_bytes, "weights", true);
    machine::global_part(arena + plan->vectors_offset, plan->vector_count * sizeof(float), "vectors", true);
    machine::global_part(arena + plan->ops_offset, plan->op_count * sizeof(mgv__kernel_op), "operations", true);
    machine::global_part(arena + plan->segments_offset, ((size_t)plan->max_segments + 1) * sizeof(mgv__kernel_segment), "segments", true);
    machine::global_part(arena + plan->deal_offset, ((size_t)plan->max_tiles + 2 * MGV__PLAN_DEAL_CLUSTERS) * sizeof *plan->deal,
                         "lists of clusters", true);
    machine::global_part(arena + plan->tables_offset, plan->tables_bytes, "tables of tokens", true);
}
#endif

inline std::vector<uint32_t> rule_ids(uint32_t count, uint32_t below, uint32_t seed) {
    std::vector<uint32_t> ids;
    for (uint32_t i = 0; i < count; i++) ids.push_back((i * 2654435761u + seed * 40503u) % 65521u % below);
    return ids;
}

struct Session {
    mgv_engine *engine = nullptr;
    mgv_session *session = nullptr;
};
inline Session open_session(const mgv_model *model, uint32_t capacity, mgv_backend backend) {
    Session s;
    mgv_engine_desc engine_desc;
    mgv_session_desc session_desc;
    mgv_error error;
    memset(&engine_desc, 0, sizeof engine_desc);
    memset(&session_desc, 0, sizeof session_desc);
    engine_desc.backend = backend;
    engine_desc.kernels = "the model has them";
    session_desc.capacity = capacity;
    if (mgv_engine_create(&s.engine, model, &engine_desc, &error) != MGV_OK) ok(false, "the engine", error.message);
    else if (mgv_session_create(&s.session, s.engine, &session_desc, &error) != MGV_OK) ok(false, "the session", error.message);
    if (s.session && s.session->gpu) name_parts(s.engine->decoder, *s.session->gpu, capacity);
    return s;
}
inline void close_session(Session &s) {
    mgv_session_destroy(s.session);
    mgv_engine_destroy(s.engine);
}
inline std::vector<float> logits_of(const Session &s) {
    const float *logits = nullptr;
    uint32_t count = 0;
    mgv_error error;
    if (mgv_session_logits(s.session, &logits, &count, &error) != MGV_OK) ok(false, "logits", error.message);
    return std::vector<float>(logits, logits + count);
}

} // namespace

#endif
