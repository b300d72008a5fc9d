/* Small language models of numbers that a rule gives, in memory, in shapes that GPUs decode: what tests of sessions on a card, and of their
   plans, are about. Needs megavit.h, with its implementation, and support.h before it. */
#ifndef MEGAVIT_TESTS_LANGUAGE_MODEL_H
#define MEGAVIT_TESTS_LANGUAGE_MODEL_H

#include "rule.h"

typedef struct shape {
    const char *type; /* model_type of the language model */
    uint32_t hidden, intermediate, heads, key_heads, head_dim, vocabulary;
    int tied, sees, bias;
} shape;
enum { LANGUAGE_LAYERS = 2, PLACEHOLDER = 60 };
static const shape small = {"qwen3", 32, 64, 4, 2, 128, 67, 1, 0, 0}, untied = {"qwen3", 48, 32, 4, 1, 128, 50, 0, 0, 0},
                   seeing = {"qwen3_vl_text", 32, 64, 4, 2, 128, 67, 1, 1, 0};

typedef struct checkpoint {
    char header[64000];
    int blank;      /* all numbers are 0, and no data are kept */
    uint16_t *data;
    size_t count, room;
} checkpoint;

/* A tensor of bf16; its dimensions end with 0. */
static inline void add(checkpoint *c, const char *name, const uint32_t *dims) {
    const uint64_t seed = rule_seed(name);
    const size_t begin = c->count;
    size_t i, length = 1, used = strlen(c->header);
    used += (size_t)snprintf(c->header + used, sizeof c->header - used, "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[", used > 1 ? "," : "",
                             name);
    for (i = 0; dims[i]; i++) {
        length *= dims[i];
        used += (size_t)snprintf(c->header + used, sizeof c->header - used, "%s%u", i ? "," : "", dims[i]);
    }
    snprintf(c->header + used, sizeof c->header - used, "],\"data_offsets\":[%lu,%lu]}", 2 * (unsigned long)begin,
             2 * (unsigned long)(begin + length));
    c->count += length;
    if (c->blank) return;
    if (begin + length > c->room) {
        c->room = 2 * (begin + length);
        c->data = (uint16_t *)realloc(c->data, c->room * sizeof *c->data);
        assert_non_null(c->data);
    }
    for (i = 0; i < length; i++) c->data[begin + i] = mgv__bf16_round((float)(rule_bits(seed, i) >> 40) / 16777216.0f - 0.5f);
}
static inline void add_part(checkpoint *c, const char *before, uint32_t layer, const char *part, const char *kind, uint32_t rows,
                     uint32_t columns) {
    char name[200];
    const uint32_t dims[3] = {rows, columns, 0};
    snprintf(name, sizeof name, "%s%u.%s.%s", before, layer, part, kind);
    add(c, name, dims);
}
static inline void add_linear(checkpoint *c, const char *before, uint32_t layer, const char *part, uint32_t rows, uint32_t columns,
                              int bias) {
    add_part(c, before, layer, part, "weight", rows, columns);
    if (bias) add_part(c, before, layer, part, "bias", rows, 0);
}
static inline void add_tower(checkpoint *c, uint32_t out) {
    static const char visual[] = "model.visual.";
    const uint32_t patch[] = {32, 3, 2, 16, 16, 0}, width[] = {32, 0}, positions[] = {144, 32, 0};
    const uint32_t merged[] = {128, 0}, wide[] = {128, 128, 0}, last[] = {out, 128, 0}, last_bias[] = {out, 0};
    uint32_t i;
    add(c, "model.visual.patch_embed.proj.weight", patch);
    add(c, "model.visual.patch_embed.proj.bias", width);
    add(c, "model.visual.pos_embed.weight", positions);
    for (i = 0; i < 2; i++) {
        char blocks[64], mergers[64];
        snprintf(blocks, sizeof blocks, "%sblocks.", visual);
        snprintf(mergers, sizeof mergers, "%sdeepstack_merger_list.", visual);
        add_linear(c, blocks, i, "norm1", 32, 0, 1);
        add_linear(c, blocks, i, "norm2", 32, 0, 1);
        add_linear(c, blocks, i, "attn.qkv", 96, 32, 1);
        add_linear(c, blocks, i, "attn.proj", 32, 32, 1);
        add_linear(c, blocks, i, "mlp.linear_fc1", 40, 32, 1);
        add_linear(c, blocks, i, "mlp.linear_fc2", 32, 40, 1);
        add_linear(c, mergers, i, "norm", 128, 0, 1);
        add_linear(c, mergers, i, "linear_fc1", 128, 128, 1);
        add_linear(c, mergers, i, "linear_fc2", out, 128, 1);
    }
    add(c, "model.visual.merger.norm.weight", width);
    add(c, "model.visual.merger.norm.bias", width);
    add(c, "model.visual.merger.linear_fc1.weight", wide);
    add(c, "model.visual.merger.linear_fc1.bias", merged);
    add(c, "model.visual.merger.linear_fc2.weight", last);
    add(c, "model.visual.merger.linear_fc2.bias", last_bias);
}
static inline void add_language(checkpoint *c, const shape *s, uint32_t layer_count) {
    const char *m = s->sees ? "model.language_model." : "model.";
    const uint32_t embedding[] = {s->vocabulary, s->hidden, 0}, width[] = {s->hidden, 0};
    char name[100], layers[100];
    uint32_t i;
    snprintf(name, sizeof name, "%sembed_tokens.weight", m);
    add(c, name, embedding);
    snprintf(layers, sizeof layers, "%slayers.", m);
    for (i = 0; i < layer_count; i++) {
        add_linear(c, layers, i, "input_layernorm", s->hidden, 0, 0);
        add_linear(c, layers, i, "post_attention_layernorm", s->hidden, 0, 0);
        add_linear(c, layers, i, "self_attn.q_norm", s->head_dim, 0, 0);
        add_linear(c, layers, i, "self_attn.k_norm", s->head_dim, 0, 0);
        add_linear(c, layers, i, "self_attn.q_proj", s->heads * s->head_dim, s->hidden, s->bias);
        add_linear(c, layers, i, "self_attn.k_proj", s->key_heads * s->head_dim, s->hidden, s->bias);
        add_linear(c, layers, i, "self_attn.v_proj", s->key_heads * s->head_dim, s->hidden, s->bias);
        add_linear(c, layers, i, "self_attn.o_proj", s->hidden, s->heads * s->head_dim, s->bias);
        add_linear(c, layers, i, "mlp.gate_proj", s->intermediate, s->hidden, 0);
        add_linear(c, layers, i, "mlp.up_proj", s->intermediate, s->hidden, 0);
        add_linear(c, layers, i, "mlp.down_proj", s->hidden, s->intermediate, 0);
    }
    snprintf(name, sizeof name, "%snorm.weight", m);
    add(c, name, width);
    if (!s->tied) add(c, "lm_head.weight", embedding);
}

/* A model and the memory that it lies in. */
typedef struct held_model {
    mgv_model *model;
    uint8_t *file;
    uint64_t file_bytes;
    char config[2000];
} held_model;

static inline void describe(const shape *s, uint32_t layer_count, char *config, size_t room) {
    char text[700];
    snprintf(text, sizeof text, "{\"model_type\":\"%s\",\"hidden_size\":%u,\"intermediate_size\":%u,\"num_hidden_layers\":%u,"
             "\"num_attention_heads\":%u,\"num_key_value_heads\":%u,\"head_dim\":%u,\"vocab_size\":%u,"
             "\"tie_word_embeddings\":%s,\"attention_bias\":%s%s}",
             s->type, s->hidden, s->intermediate, layer_count, s->heads, s->key_heads, s->head_dim, s->vocabulary,
             s->tied ? "true" : "false", s->bias ? "true" : "false",
             s->sees ? ",\"rope_parameters\":{\"mrope_interleaved\":true,\"mrope_section\":[24,20,20],\"rope_theta\":5000000.0,"
                       "\"rope_type\":\"default\"}" : "");
    if (!s->sees) snprintf(config, room, "%s", text);
    else snprintf(config, room, "{\"model_type\":\"qwen3_vl\",\"image_token_id\":%u,\"video_token_id\":%u,\"vision_start_token_id\":%u,"
                  "\"vision_end_token_id\":%u,\"tie_word_embeddings\":true,\"vision_config\":{\"model_type\":\"qwen3_vl\","
                  "\"hidden_size\":32,\"num_heads\":2,\"intermediate_size\":40,\"depth\":2,\"deepstack_visual_indexes\":[0,1],"
                  "\"num_position_embeddings\":144,\"patch_size\":16,\"spatial_merge_size\":2,\"temporal_patch_size\":2,"
                  "\"out_hidden_size\":%u},\"text_config\":%s}",
                  (unsigned)PLACEHOLDER, PLACEHOLDER + 1u, PLACEHOLDER + 2u, PLACEHOLDER + 3u, s->hidden, text);
}
/* The model's tensors, and the header of their file, which is so long behind its first eight bytes; to be freed. */
static inline checkpoint *list_tensors(held_model *held, const shape *s, uint32_t layer_count, int blank, size_t *header_bytes) {
    checkpoint *c = (checkpoint *)calloc(1, sizeof *c);
    size_t used;
    assert_non_null(c);
    c->blank = blank;
    strcpy(c->header, "{");
    add_language(c, s, layer_count);
    if (s->sees) add_tower(c, s->hidden);
    for (used = strlen(c->header), c->header[used++] = '}'; used % 8; used++) c->header[used] = ' ';
    *header_bytes = used;
    held->file_bytes = 8 + used + 2 * c->count;
    describe(s, layer_count, held->config, sizeof held->config);
    return c;
}
static inline void make_header(held_model *held, const checkpoint *c, size_t header_bytes, size_t file_bytes) {
    const uint64_t length = header_bytes;
    held->file = (uint8_t *)calloc(1, file_bytes);
    assert_non_null(held->file);
    memcpy(held->file, &length, 8);
    memcpy(held->file + 8, c->header, header_bytes);
}
/* The model's two files, in memory; blank: all numbers are 0, and pages that nobody reads take no memory. */
static inline void make_files(held_model *held, const shape *s, uint32_t layer_count, int blank) {
    size_t used;
    checkpoint *c = list_tensors(held, s, layer_count, blank, &used);
    make_header(held, c, used, held->file_bytes);
    if (!blank) memcpy(held->file + 8 + used, c->data, 2 * c->count);
    free(c->data);
    free(c);
}
/* A model of any size, opened for its shapes alone: its files end behind the header, where nobody reads. */
static inline void open_shapes(held_model *held, const shape *s, uint32_t layer_count) {
    size_t used;
    checkpoint *c = list_tensors(held, s, layer_count, 1, &used);
    fake_files files;
    fake_file entries[2];
    mgv_model_desc desc;
    mgv_error error;
    make_header(held, c, used, 8 + used);
    free(c);
    entries[0].name = "config.json";
    entries[0].data = held->config;
    entries[0].bytes = strlen(held->config);
    entries[1].name = "model.safetensors";
    entries[1].data = held->file;
    entries[1].bytes = held->file_bytes;
    memset(&desc, 0, sizeof desc);
    desc.tower = MGV_TOWER_LANGUAGE;
    desc.shapes_only = 1;
    desc.io = fake_files_make(&files, entries, 2);
    if (mgv_model_open(&held->model, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
}
static inline void open_files(held_model *held) {
    mgv_memory_file files[2];
    mgv_model_desc desc;
    mgv_error error;
    memset(files, 0, sizeof files);
    files[0].name = "config.json";
    files[0].data = held->config;
    files[0].bytes = strlen(held->config);
    files[1].name = "model.safetensors";
    files[1].data = held->file;
    files[1].bytes = held->file_bytes;
    memset(&desc, 0, sizeof desc);
    desc.tower = MGV_TOWER_LANGUAGE;
    desc.memory_files = files;
    desc.memory_file_count = 2;
    if (mgv_model_open(&held->model, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
}
static inline void open_model(held_model *held, const shape *s) {
    make_files(held, s, LANGUAGE_LAYERS, 0);
    open_files(held);
}
static inline void close_model(held_model *held) {
    mgv_model_close(held->model);
    free(held->file);
}

#endif
