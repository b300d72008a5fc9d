/* A small SigLIP that the GPU kernel takes, in memory: config.json and model.safetensors of random bf16 weights. It is as narrow as a model
   can be whose products come in SPLIT tiles of each width (tests/gpu/micro.c). */
#ifndef MGV_TESTS_MICRO_SIGLIP_H
#define MGV_TESTS_MICRO_SIGLIP_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MICRO_WIDTH = 576, MICRO_MLP = 576, MICRO_PATCH = 16, MICRO_SIDE = 48, MICRO_LAYERS = 1 };

typedef struct micro_siglip {
    char config[512];
    char *header;    /* of the safetensors file, while it grows */
    size_t header_bytes;
    uint8_t *data;
    size_t data_bytes, room;
    uint32_t state;  /* of the random numbers */
    uint8_t *file;
    mgv_memory_file files[2];
} micro_siglip;

/* One tensor of `count` values around `offset`, which differ by `scale` at most. shape: as in the header, "640, 640". */
static inline void micro_add(micro_siglip *m, uint64_t count, double scale, double offset, const char *shape, const char *name, ...) {
    char full[128];
    va_list arguments;
    uint64_t i;
    va_start(arguments, name);
    vsnprintf(full, sizeof full, name, arguments);
    va_end(arguments);
    while (m->data_bytes + 2 * count > m->room) m->data = (uint8_t *)realloc(m->data, m->room = m->room ? 2 * m->room : 1u << 20);
    m->header_bytes += (size_t)sprintf(m->header + m->header_bytes,
                                       "%s\"vision_model.%s\":{\"dtype\":\"BF16\",\"shape\":[%s],\"data_offsets\":[%llu,%llu]}",
                                       m->header_bytes > 1 ? "," : "", full, shape, (unsigned long long)m->data_bytes,
                                       (unsigned long long)(m->data_bytes + 2 * count));
    for (i = 0; i < count; i++) {
        float value;
        uint32_t bits;
        m->state ^= m->state << 13;
        m->state ^= m->state >> 17;
        m->state ^= m->state << 5;
        value = (float)(offset + scale * ((double)m->state / 2147483648.0 - 1));
        memcpy(&bits, &value, 4);
        m->data[m->data_bytes++] = (uint8_t)(bits >> 16);
        m->data[m->data_bytes++] = (uint8_t)(bits >> 24);
    }
}
static inline void micro_linear(micro_siglip *m, const char *name, uint64_t out, uint64_t in) {
    char shape[64];
    sprintf(shape, "%llu,%llu", (unsigned long long)out, (unsigned long long)in);
    micro_add(m, out * in, 0.06, 0, shape, "%s%s", name, strstr(name, "in_proj") ? "_weight" : ".weight");
    sprintf(shape, "%llu", (unsigned long long)out);
    micro_add(m, out, 0.1, 0, shape, "%s%s", name, strstr(name, "in_proj") ? "_bias" : ".bias");
}
static inline void micro_norm(micro_siglip *m, const char *name) {
    char shape[64];
    sprintf(shape, "%d", MICRO_WIDTH);
    micro_add(m, MICRO_WIDTH, 0.2, 1, shape, "%s.weight", name);
    micro_add(m, MICRO_WIDTH, 0.1, 0, shape, "%s.bias", name);
}

/* For pictures of side x side pixels. seed: another gives other weights. position: what rows of positions lie around. */
static inline void micro_make_around(micro_siglip *m, uint32_t side, uint32_t seed, double position) {
    static const char *const projections[] = {"q_proj", "k_proj", "v_proj", "out_proj"};
    const uint64_t tokens = (side / MICRO_PATCH) * (side / MICRO_PATCH), patch_columns = 3 * MICRO_PATCH * MICRO_PATCH;
    char name[96], shape[64];
    uint64_t header_bytes;
    int layer, i;
    memset(m, 0, sizeof *m);
    m->state = seed;
    m->header = (char *)malloc(65536);
    m->header[m->header_bytes++] = '{';
    sprintf(m->config, "{\"model_type\":\"siglip_vision_model\",\"hidden_size\":%d,\"intermediate_size\":%d,\"num_attention_heads\":%d,"
            "\"num_hidden_layers\":%d,\"image_size\":%d,\"patch_size\":%d}", MICRO_WIDTH, MICRO_MLP, MICRO_WIDTH / 64,
            MICRO_LAYERS, (int)side, MICRO_PATCH);
    sprintf(shape, "%d,3,%d,%d", MICRO_WIDTH, MICRO_PATCH, MICRO_PATCH);
    micro_add(m, MICRO_WIDTH * patch_columns, 0.06, 0, shape, "embeddings.patch_embedding.weight");
    sprintf(shape, "%d", MICRO_WIDTH);
    micro_add(m, MICRO_WIDTH, 0.1, 0, shape, "embeddings.patch_embedding.bias");
    sprintf(shape, "%d,%d", (int)tokens, MICRO_WIDTH);
    micro_add(m, tokens * MICRO_WIDTH, 0.5, position, shape, "embeddings.position_embedding.weight");
    for (layer = 0; layer < MICRO_LAYERS; layer++) {
        for (i = 1; i <= 2; i++) {
            sprintf(name, "encoder.layers.%d.layer_norm%d", layer, i);
            micro_norm(m, name);
        }
        for (i = 0; i < 4; i++) {
            sprintf(name, "encoder.layers.%d.self_attn.%s", layer, projections[i]);
            micro_linear(m, name, MICRO_WIDTH, MICRO_WIDTH);
        }
        sprintf(name, "encoder.layers.%d.mlp.fc1", layer);
        micro_linear(m, name, MICRO_MLP, MICRO_WIDTH);
        sprintf(name, "encoder.layers.%d.mlp.fc2", layer);
        micro_linear(m, name, MICRO_WIDTH, MICRO_MLP);
    }
    micro_norm(m, "post_layernorm");
    sprintf(shape, "1,1,%d", MICRO_WIDTH);
    micro_add(m, MICRO_WIDTH, 1, 0, shape, "head.probe");
    micro_linear(m, "head.attention.in_proj", 3 * MICRO_WIDTH, MICRO_WIDTH);
    micro_linear(m, "head.attention.out_proj", MICRO_WIDTH, MICRO_WIDTH);
    micro_norm(m, "head.layernorm");
    micro_linear(m, "head.mlp.fc1", MICRO_MLP, MICRO_WIDTH);
    micro_linear(m, "head.mlp.fc2", MICRO_WIDTH, MICRO_MLP);
    m->header[m->header_bytes++] = '}';
    while (m->header_bytes % 8) m->header[m->header_bytes++] = ' ';
    m->file = (uint8_t *)malloc(8 + m->header_bytes + m->data_bytes);
    header_bytes = m->header_bytes;
    memcpy(m->file, &header_bytes, 8);
    memcpy(m->file + 8, m->header, m->header_bytes);
    memcpy(m->file + 8 + m->header_bytes, m->data, m->data_bytes);
    m->files[0].name = "config.json";
    m->files[0].data = m->config;
    m->files[0].bytes = strlen(m->config);
    m->files[1].name = "model.safetensors";
    m->files[1].data = m->file;
    m->files[1].bytes = 8 + m->header_bytes + m->data_bytes;
    free(m->header);
    free(m->data);
    m->header = NULL;
    m->data = NULL;
}
static inline void micro_make_for(micro_siglip *m, uint32_t side, uint32_t seed) { micro_make_around(m, side, seed, 0); }
static inline void micro_make(micro_siglip *m, uint32_t seed) { micro_make_for(m, MICRO_SIDE, seed); }
static inline void micro_free(micro_siglip *m) {
    free(m->file);
    m->file = NULL;
}

/* NULL, and the reason in *error, if it cannot be opened. */
static inline mgv_model *micro_open(const micro_siglip *m, mgv_error *error) {
    mgv_model_desc desc;
    mgv_model *model;
    memset(&desc, 0, sizeof desc);
    desc.memory_files = m->files;
    desc.memory_file_count = 2;
    return mgv_model_open(&model, &desc, error) == MGV_OK ? model : NULL;
}

#endif
