/* The tensors of a vision tower of any size, by name and shape: what test_builders.c and fuzz_model.c make their files of. */
#ifndef MGV_TESTS_TOWER_H
#define MGV_TESTS_TOWER_H

#include <stdint.h>
#include <stdio.h>

/* Needs megavit.h before it, for MGV_FAMILY_*. */

typedef struct tower {
    mgv_family family;
    uint32_t hidden, intermediate, layers, patch;
    uint32_t side;                      /* of the position table */
    uint32_t temporal, merge, out;      /* Qwen */
    uint32_t deepstack_count;           /* Qwen3-VL */
    uint32_t registers, gated;          /* DINO */
    const uint64_t *projection;         /* CLIP: its rows and columns, or NULL */
    const char *prefix;                 /* of every name */
    void (*emit)(void *user, const char *name, const uint64_t *dims, uint32_t rank);
    void *user;
} tower;

/* Dimensions end with the first 0. */
static inline void tower_tensor(const tower *t, const char *scope, const char *name, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
                                uint64_t e) {
    const uint64_t dims[6] = {a, b, c, d, e, 0};
    uint32_t rank = 0;
    char full[256];
    while (dims[rank] > 0) rank++;
    snprintf(full, sizeof full, "%s%s%s", t->prefix, scope, name);
    t->emit(t->user, full, dims, rank);
}

enum { TOWER_NO_BIAS = 0, TOWER_BIAS = 1 };
/* name.weight [columns, inner], or [columns] for a norm, and name.bias */
static inline void tower_linear(const tower *t, const char *scope, const char *name, uint64_t columns, uint64_t inner, int bias) {
    char full[128];
    snprintf(full, sizeof full, "%s.weight", name);
    tower_tensor(t, scope, full, columns, inner, 0, 0, 0);
    snprintf(full, sizeof full, "%s.bias", name);
    if (bias) tower_tensor(t, scope, full, columns, 0, 0, 0, 0);
}
static inline void tower_norm(const tower *t, const char *scope, const char *name, uint64_t width, int bias) {
    tower_linear(t, scope, name, width, 0, bias);
}

static inline void tower_clip_layers(const tower *t) {
    const uint64_t d = t->hidden, f = t->intermediate;
    char scope[64];
    uint32_t i;
    for (i = 0; i < t->layers; i++) {
        snprintf(scope, sizeof scope, "encoder.layers.%u.", i);
        tower_norm(t, scope, "layer_norm1", d, TOWER_BIAS);
        tower_norm(t, scope, "layer_norm2", d, TOWER_BIAS);
        tower_linear(t, scope, "self_attn.q_proj", d, d, TOWER_BIAS);
        tower_linear(t, scope, "self_attn.k_proj", d, d, TOWER_BIAS);
        tower_linear(t, scope, "self_attn.v_proj", d, d, TOWER_BIAS);
        tower_linear(t, scope, "self_attn.out_proj", d, d, TOWER_BIAS);
        tower_linear(t, scope, "mlp.fc1", f, d, TOWER_BIAS);
        tower_linear(t, scope, "mlp.fc2", d, f, TOWER_BIAS);
    }
}

static inline void tower_siglip(const tower *t) {
    const uint64_t d = t->hidden, f = t->intermediate;
    if (t->family == MGV_FAMILY_SIGLIP) tower_tensor(t, "embeddings.", "patch_embedding.weight", d, 3, t->patch, t->patch, 0);
    else tower_tensor(t, "embeddings.", "patch_embedding.weight", d, 3 * (uint64_t)t->patch * t->patch, 0, 0, 0);
    tower_tensor(t, "embeddings.", "patch_embedding.bias", d, 0, 0, 0, 0);
    tower_tensor(t, "embeddings.", "position_embedding.weight", (uint64_t)t->side * t->side, d, 0, 0, 0);
    tower_clip_layers(t);
    tower_norm(t, "", "post_layernorm", d, TOWER_BIAS);
    tower_tensor(t, "head.", "probe", 1, 1, d, 0, 0);
    tower_tensor(t, "head.", "attention.in_proj_weight", 3 * d, d, 0, 0, 0);
    tower_tensor(t, "head.", "attention.in_proj_bias", 3 * d, 0, 0, 0, 0);
    tower_linear(t, "head.", "attention.out_proj", d, d, TOWER_BIAS);
    tower_norm(t, "head.", "layernorm", d, TOWER_BIAS);
    tower_linear(t, "head.", "mlp.fc1", f, d, TOWER_BIAS);
    tower_linear(t, "head.", "mlp.fc2", d, f, TOWER_BIAS);
}

static inline void tower_clip(const tower *t) {
    const uint64_t d = t->hidden;
    tower_tensor(t, "embeddings.", "class_embedding", d, 0, 0, 0, 0);
    tower_tensor(t, "embeddings.", "patch_embedding.weight", d, 3, t->patch, t->patch, 0);
    tower_tensor(t, "embeddings.", "position_embedding.weight", 1 + (uint64_t)t->side * t->side, d, 0, 0, 0);
    tower_norm(t, "", "pre_layrnorm", d, TOWER_BIAS);
    tower_clip_layers(t);
    tower_norm(t, "", "post_layernorm", d, TOWER_BIAS);
    if (t->projection) t->emit(t->user, "visual_projection.weight", t->projection, 2);
}

/* Both generations: all that differs is names, the position table and how a gate is stored. */
static inline void tower_dino(const tower *t) {
    const int third = t->family == MGV_FAMILY_DINOV3;
    const uint64_t d = t->hidden, f = t->intermediate;
    char scope[64];
    uint32_t i;
    tower_tensor(t, "embeddings.", "cls_token", 1, 1, d, 0, 0);
    if (t->registers) tower_tensor(t, "embeddings.", "register_tokens", 1, t->registers, d, 0, 0);
    if (!third) tower_tensor(t, "embeddings.", "position_embeddings", 1, 1 + (uint64_t)t->side * t->side, d, 0, 0);
    tower_tensor(t, "embeddings.", third ? "patch_embeddings.weight" : "patch_embeddings.projection.weight", d, 3, t->patch, t->patch, 0);
    tower_tensor(t, "embeddings.", third ? "patch_embeddings.bias" : "patch_embeddings.projection.bias", d, 0, 0, 0, 0);
    for (i = 0; i < t->layers; i++) {
        snprintf(scope, sizeof scope, third ? "layer.%u." : "encoder.layer.%u.", i);
        tower_norm(t, scope, "norm1", d, TOWER_BIAS);
        tower_norm(t, scope, "norm2", d, TOWER_BIAS);
        tower_linear(t, scope, third ? "attention.q_proj" : "attention.attention.query", d, d, TOWER_NO_BIAS);
        tower_linear(t, scope, third ? "attention.k_proj" : "attention.attention.key", d, d, TOWER_NO_BIAS);
        tower_linear(t, scope, third ? "attention.v_proj" : "attention.attention.value", d, d, TOWER_NO_BIAS);
        tower_linear(t, scope, third ? "attention.o_proj" : "attention.output.dense", d, d, TOWER_NO_BIAS);
        tower_tensor(t, scope, "layer_scale1.lambda1", d, 0, 0, 0, 0);
        tower_tensor(t, scope, "layer_scale2.lambda1", d, 0, 0, 0, 0);
        if (t->gated && third) tower_linear(t, scope, "mlp.gate_proj", f, d, TOWER_NO_BIAS);
        tower_linear(t, scope, third ? "mlp.up_proj" : t->gated ? "mlp.weights_in" : "mlp.fc1", t->gated && !third ? 2 * f : f, d,
                     TOWER_NO_BIAS);
        tower_linear(t, scope, third ? "mlp.down_proj" : t->gated ? "mlp.weights_out" : "mlp.fc2", d, f, TOWER_NO_BIAS);
    }
    tower_norm(t, "", third ? "norm" : "layernorm", d, TOWER_BIAS);
}

static inline void tower_qwen2(const tower *t) {
    const uint64_t d = t->hidden, f = t->intermediate, unit = (uint64_t)t->merge * t->merge * d;
    char scope[64];
    uint32_t i;
    tower_tensor(t, "", "patch_embed.proj.weight", d, 3, t->temporal, t->patch, t->patch);
    for (i = 0; i < t->layers; i++) {
        snprintf(scope, sizeof scope, "blocks.%u.", i);
        tower_norm(t, scope, "norm1", d, TOWER_BIAS);
        tower_norm(t, scope, "norm2", d, TOWER_BIAS);
        tower_linear(t, scope, "attn.qkv", 3 * d, d, TOWER_BIAS);
        tower_linear(t, scope, "attn.proj", d, d, TOWER_BIAS);
        tower_linear(t, scope, "mlp.fc1", f, d, TOWER_BIAS);
        tower_linear(t, scope, "mlp.fc2", d, f, TOWER_BIAS);
    }
    tower_norm(t, "merger.", "ln_q", d, TOWER_BIAS);
    tower_linear(t, "merger.", "mlp.0", unit, unit, TOWER_BIAS);
    tower_linear(t, "merger.", "mlp.2", t->out, unit, TOWER_BIAS);
}

static inline void tower_qwen3_merger(const tower *t, const char *scope, uint64_t norm_width) {
    const uint64_t unit = (uint64_t)t->merge * t->merge * t->hidden;
    tower_norm(t, scope, "norm", norm_width, TOWER_BIAS);
    tower_linear(t, scope, "linear_fc1", unit, unit, TOWER_BIAS);
    tower_linear(t, scope, "linear_fc2", t->out, unit, TOWER_BIAS);
}

static inline void tower_qwen3(const tower *t) {
    const uint64_t d = t->hidden, f = t->intermediate;
    char scope[64];
    uint32_t i;
    tower_tensor(t, "", "patch_embed.proj.weight", d, 3, t->temporal, t->patch, t->patch);
    tower_tensor(t, "", "patch_embed.proj.bias", d, 0, 0, 0, 0);
    tower_tensor(t, "", "pos_embed.weight", (uint64_t)t->side * t->side, d, 0, 0, 0);
    for (i = 0; i < t->layers; i++) {
        snprintf(scope, sizeof scope, "blocks.%u.", i);
        tower_norm(t, scope, "norm1", d, TOWER_BIAS);
        tower_norm(t, scope, "norm2", d, TOWER_BIAS);
        tower_linear(t, scope, "attn.qkv", 3 * d, d, TOWER_BIAS);
        tower_linear(t, scope, "attn.proj", d, d, TOWER_BIAS);
        tower_linear(t, scope, "mlp.linear_fc1", f, d, TOWER_BIAS);
        tower_linear(t, scope, "mlp.linear_fc2", d, f, TOWER_BIAS);
    }
    tower_qwen3_merger(t, "merger.", d);
    for (i = 0; i < t->deepstack_count; i++) {
        snprintf(scope, sizeof scope, "deepstack_merger_list.%u.", i);
        tower_qwen3_merger(t, scope, (uint64_t)t->merge * t->merge * d);
    }
}

static inline void tower_qwen2_5(const tower *t) {
    const uint64_t d = t->hidden, f = t->intermediate, unit = (uint64_t)t->merge * t->merge * d;
    char scope[64];
    uint32_t i;
    tower_tensor(t, "", "patch_embed.proj.weight", d, 3, t->temporal, t->patch, t->patch);
    for (i = 0; i < t->layers; i++) {
        snprintf(scope, sizeof scope, "blocks.%u.", i);
        tower_norm(t, scope, "norm1", d, TOWER_NO_BIAS);
        tower_norm(t, scope, "norm2", d, TOWER_NO_BIAS);
        tower_linear(t, scope, "attn.qkv", 3 * d, d, TOWER_BIAS);
        tower_linear(t, scope, "attn.proj", d, d, TOWER_BIAS);
        tower_linear(t, scope, "mlp.gate_proj", f, d, TOWER_BIAS);
        tower_linear(t, scope, "mlp.up_proj", f, d, TOWER_BIAS);
        tower_linear(t, scope, "mlp.down_proj", d, f, TOWER_BIAS);
    }
    tower_norm(t, "merger.", "ln_q", d, TOWER_NO_BIAS);
    tower_linear(t, "merger.", "mlp.0", unit, unit, TOWER_BIAS);
    tower_linear(t, "merger.", "mlp.2", t->out, unit, TOWER_BIAS);
}

static inline void tower_tensors(const tower *t) {
    if (t->family == MGV_FAMILY_SIGLIP || t->family == MGV_FAMILY_SIGLIP2) tower_siglip(t);
    if (t->family == MGV_FAMILY_CLIP) tower_clip(t);
    if (t->family == MGV_FAMILY_DINOV2 || t->family == MGV_FAMILY_DINOV2_REGISTERS || t->family == MGV_FAMILY_DINOV3) tower_dino(t);
    if (t->family == MGV_FAMILY_QWEN2_VL) tower_qwen2(t);
    if (t->family == MGV_FAMILY_QWEN2_5_VL) tower_qwen2_5(t);
    if (t->family == MGV_FAMILY_QWEN3_VL || t->family == MGV_FAMILY_QWEN3_5) tower_qwen3(t);
}

#endif
