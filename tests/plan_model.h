/* A model as the GPU plan sees it, of any size: config, operations, tensors. No file is made: all tensors share one block of numbers. */
#ifndef MGV_TESTS_PLAN_MODEL_H
#define MGV_TESTS_PLAN_MODEL_H

/* Needs megavit.h, with its implementation, and support.h before it. */
#include "tower.h"

enum { PLAN_MODEL_TENSORS = 2048, PLAN_MODEL_NUMBERS = 1 << 20 };

typedef struct plan_model {
    mgv_model model;
    mgv__tensor all[PLAN_MODEL_TENSORS]; /* as a file would hold them */
    char names[PLAN_MODEL_TENSORS][96];
    uint32_t by_name[PLAN_MODEL_TENSORS];
    uint32_t count;
    float *numbers;                      /* what tensors consist of; NULL: they have no values */
} plan_model;

static inline void plan_model_emit(void *user, const char *name, const uint64_t *dims, uint32_t rank) {
    plan_model *m = (plan_model *)user;
    mgv__tensor *tensor = &m->all[m->count];
    uint32_t i;
    assert_true(m->count < PLAN_MODEL_TENSORS);
    snprintf(m->names[m->count], sizeof m->names[0], "%s", name);
    tensor->name = m->names[m->count];
    tensor->dtype = MGV_DTYPE_F32;
    tensor->rank = rank;
    tensor->bytes = 4;
    for (i = 0; i < rank; i++) {
        tensor->shape[i] = i == 1 && rank > 2 && strstr(name, "patch_embedding.weight") ? m->model.config.channels : dims[i];
        tensor->bytes *= tensor->shape[i];
    }
    for (i = m->count; i > 0 && strcmp(m->all[m->by_name[i - 1]].name, tensor->name) > 0; i--) m->by_name[i] = m->by_name[i - 1];
    m->by_name[i] = m->count++;
}

/* Each tensor begins at another place of a block that is as long as the largest and some more. Norms' weights lie around 1. */
static inline void plan_model_fill(plan_model *m) {
    uint64_t longest = 0, count;
    uint32_t i, state = 1;
    for (i = 0; i < m->count; i++) longest = m->all[i].bytes / 4 > longest ? m->all[i].bytes / 4 : longest;
    count = longest + PLAN_MODEL_NUMBERS;
    m->numbers = (float *)malloc(count * sizeof(float));
    assert_non_null(m->numbers);
    while (count-- > 0) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        m->numbers[count] = (float)((double)state / 2147483648.0 - 1);
    }
    for (i = 0; i < m->model.tensor_count; i++) m->model.tensors[i].data = m->numbers + i * 7919 % PLAN_MODEL_NUMBERS;
}

/* with_values: tensors can be read. */
static inline void plan_model_make(plan_model *m, const mgv__config *config, int with_values) {
    mgv__checkpoint checkpoint;
    mgv__builder builder;
    mgv_error error;
    tower t;
    memset(m, 0, sizeof *m);
    memset(&t, 0, sizeof t);
    memset(&checkpoint, 0, sizeof checkpoint);
    memset(&builder, 0, sizeof builder);
    m->model.config = *config;
    if (config->image_size && config->rope_theta == 0) m->model.config.position_side = config->image_size / config->patch;
    t.family = config->family;
    t.hidden = config->hidden;
    t.intermediate = config->intermediate;
    t.layers = config->layers;
    t.patch = config->patch;
    t.side = config->image_size ? config->image_size / config->patch : config->position_side;
    t.registers = config->registers;
    t.temporal = config->temporal_patch;
    t.merge = config->merge;
    t.out = config->out_hidden;
    t.deepstack_count = config->deepstack_count;
    t.gated = (uint32_t)config->gated;
    t.prefix = "";
    t.emit = plan_model_emit;
    t.user = m;
    tower_tensors(&t);
    checkpoint.tensors = m->all;
    checkpoint.tensor_count = checkpoint.name_count = m->count;
    checkpoint.by_name = m->by_name;
    builder.config = &m->model.config;
    builder.checkpoint = &checkpoint;
    builder.allocator = &m->model.allocator;
    builder.error = &error;
    mgv__find_family(config->family)->build(&builder);
    if (builder.result != MGV_OK) fail_msg("%s", error.message);
    m->model.program = builder.program;
    m->model.tensors = builder.tensors;
    m->model.tensor_count = builder.tensor_count;
    if (with_values) plan_model_fill(m);
}
static inline void plan_model_free(plan_model *m) {
    mgv__free(&m->model.allocator, m->model.program.ops);
    mgv__free(&m->model.allocator, m->model.program.taps);
    mgv__free(&m->model.allocator, m->model.tensors);
    free(m->numbers);
}

#endif
