/* A tower of any family and size (tower.h) as a model in memory: config.json, model.safetensors and, if wanted,
   preprocessor_config.json. */
#ifndef MGV_TESTS_MEMORY_MODEL_H
#define MGV_TESTS_MEMORY_MODEL_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Needs megavit.h before it. */
#include "tower.h"

#ifndef MEMORY_MODEL_ELEMENTS
#define MEMORY_MODEL_ELEMENTS (1u << 24)
#endif
#ifndef MEMORY_MODEL_ALLOC
#define MEMORY_MODEL_ALLOC malloc
#define MEMORY_MODEL_FREE free
#endif
enum { MEMORY_MODEL_TENSORS = 512, MEMORY_MODEL_NAME = 128 };

typedef struct memory_model {
    struct {
        char name[MEMORY_MODEL_NAME];
        uint64_t begin, elements; /* in the data of bf16 */
    } tensors[MEMORY_MODEL_TENSORS];
    uint32_t tensor_count, left_out; /* left_out: more than are meant to lie in memory; the model is not whole then */
    char *header;
    size_t header_bytes, room;
    uint64_t elements;
    uint8_t *file;
    mgv_memory_file files[3];
    uint32_t file_count;
} memory_model;

static inline void memory_model_emit(void *user, const char *name, const uint64_t *dims, uint32_t rank) {
    memory_model *m = (memory_model *)user;
    uint64_t elements = 1;
    uint32_t i;
    for (i = 0; i < rank && elements <= MEMORY_MODEL_ELEMENTS; i++) elements *= dims[i]; /* dims have 32 bits */
    if (m->tensor_count == MEMORY_MODEL_TENSORS || elements > MEMORY_MODEL_ELEMENTS - m->elements) {
        m->left_out++;
        return;
    }
    if (m->room - m->header_bytes < 512) m->header = (char *)realloc(m->header, m->room = 2 * m->room + 4096);
    m->header_bytes += (size_t)sprintf(m->header + m->header_bytes, "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[", m->tensor_count ? "," : "{",
                                       name);
    for (i = 0; i < rank; i++)
        m->header_bytes += (size_t)sprintf(m->header + m->header_bytes, "%s%llu", i ? "," : "", (unsigned long long)dims[i]);
    m->header_bytes += (size_t)sprintf(m->header + m->header_bytes, "],\"data_offsets\":[%llu,%llu]}",
                                       (unsigned long long)(2 * m->elements), (unsigned long long)(2 * (m->elements + elements)));
    snprintf(m->tensors[m->tensor_count].name, MEMORY_MODEL_NAME, "%s", name);
    m->tensors[m->tensor_count].begin = m->elements;
    m->tensors[m->tensor_count].elements = elements;
    m->tensor_count++;
    m->elements += elements;
}

/* bf16 by truncation. */
static inline void memory_model_set(memory_model *m, uint64_t element, float value) {
    uint8_t *to = m->file + 8 + m->header_bytes + 2 * element;
    uint32_t bits;
    memcpy(&bits, &value, 4);
    to[0] = (uint8_t)(bits >> 16);
    to[1] = (uint8_t)(bits >> 24);
}

/* Every value of the tensors whose names hold `part`. */
static inline void memory_model_fill(memory_model *m, const char *part, float value) {
    uint32_t i;
    uint64_t k;
    for (i = 0; i < m->tensor_count; i++)
        for (k = 0; k < m->tensors[i].elements && strstr(m->tensors[i].name, part); k++)
            memory_model_set(m, m->tensors[i].begin + k, value);
}

/* The first weights of a sequence that is always the same: random, in [-0.3, 0.3). Made once, as a fuzzer wants many models. */
static inline const uint8_t *memory_model_weights(uint64_t elements) {
    static uint8_t weights[2 * MEMORY_MODEL_ELEMENTS];
    static uint64_t made;
    static uint32_t state = 12345;
    for (; made < elements; made++) {
        float value;
        uint32_t bits;
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        value = (float)((double)state / 2147483648.0 - 1) * 0.3f;
        memcpy(&bits, &value, 4);
        weights[2 * made] = (uint8_t)(bits >> 16);
        weights[2 * made + 1] = (uint8_t)(bits >> 24);
    }
    return weights;
}

/* config and preprocessor (NULL: none) must stay. */
static inline void memory_model_make(memory_model *m, const tower *of, const char *config, const char *preprocessor) {
    const uint64_t one = 1;
    tower t = *of;
    uint64_t i;
    memset(m, 0, sizeof *m);
    t.emit = memory_model_emit;
    t.user = m;
    tower_tensors(&t);
    if (!m->header) memory_model_emit(m, "nothing", &one, 1);
    m->header[m->header_bytes++] = '}'; /* there is room for 512 more when a tensor begins */
    m->file = (uint8_t *)MEMORY_MODEL_ALLOC((size_t)(8 + m->header_bytes + 2 * m->elements));
    for (i = 0; i < 8; i++) m->file[i] = (uint8_t)((uint64_t)m->header_bytes >> 8 * i);
    memcpy(m->file + 8, m->header, m->header_bytes);
    memcpy(m->file + 8 + m->header_bytes, memory_model_weights(m->elements), (size_t)(2 * m->elements));
    m->files[0].name = "config.json";
    m->files[0].data = config;
    m->files[0].bytes = strlen(config);
    m->files[1].name = "model.safetensors";
    m->files[1].data = m->file;
    m->files[1].bytes = 8 + m->header_bytes + 2 * m->elements;
    m->files[2].name = "preprocessor_config.json";
    m->files[2].data = preprocessor;
    m->files[2].bytes = preprocessor ? strlen(preprocessor) : 0;
    m->file_count = preprocessor ? 3 : 2;
}
static inline void memory_model_free(memory_model *m) {
    free(m->header);
    MEMORY_MODEL_FREE(m->file);
}

/* allocator: NULL for malloc and free. */
static inline mgv_result memory_model_open(const memory_model *m, const mgv_allocator *allocator, mgv_model **model, mgv_error *error) {
    mgv_model_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.memory_files = m->files;
    desc.memory_file_count = m->file_count;
    if (allocator) desc.allocator = *allocator;
    return mgv_model_open(model, &desc, error);
}

/* Two small ones that there are tests for: a SigLIP of 16 x 16 pixels, 4 patches, that the GPU kernels run, and a Qwen2.5-VL of patches of
   2 x 2 that becomes one row a block of 2 x 2. */
#define SMALL_SIGLIP_CONFIG \
    "{\"model_type\":\"siglip_vision_model\",\"hidden_size\":64,\"intermediate_size\":64,\"num_hidden_layers\":2," \
    "\"num_attention_heads\":2,\"patch_size\":8,\"image_size\":16}"
#define SMALL_QWEN_CONFIG \
    "{\"model_type\":\"qwen2_5_vl_vision\",\"hidden_size\":8,\"intermediate_size\":6,\"depth\":2,\"num_heads\":1,\"patch_size\":2," \
    "\"spatial_merge_size\":2,\"temporal_patch_size\":2,\"out_hidden_size\":6,\"window_size\":8,\"fullatt_block_indexes\":[1]}"
#define SMALL_QWEN_PREPROCESSOR \
    "{\"patch_size\":2,\"merge_size\":2,\"temporal_patch_size\":2,\"min_pixels\":16,\"max_pixels\":1024}"
static inline void small_siglip(memory_model *m) {
    tower t;
    memset(&t, 0, sizeof t);
    t.family = MGV_FAMILY_SIGLIP;
    t.hidden = t.intermediate = 64;
    t.layers = 2;
    t.patch = 8;
    t.side = 2;
    t.prefix = "vision_model.";
    memory_model_make(m, &t, SMALL_SIGLIP_CONFIG, NULL);
}
static inline void small_qwen(memory_model *m) {
    tower t;
    memset(&t, 0, sizeof t);
    t.family = MGV_FAMILY_QWEN2_5_VL;
    t.hidden = 8;
    t.intermediate = 6;
    t.layers = 2;
    t.patch = t.temporal = t.merge = 2;
    t.out = 6;
    t.prefix = "";
    memory_model_make(m, &t, SMALL_QWEN_CONFIG, SMALL_QWEN_PREPROCESSOR);
}

#endif
