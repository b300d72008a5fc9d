/* Lists of operations that the GPU kernel does not run: each is a model that it does run, with one thing changed, and the plan says what it
   misses. */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_PLAN
#include "megavit.h"

#include "support.h"
#include "golden.h"

static const char siglip[] = "siglip_base", clip[] = "clip_base", dino[] = "dinov2_base";
static const char qwen3[] = "qwen3_base", windows[] = "qwen2_5_base";

/* The operation of this kind, the `number`th of them, counted from 0; from the last one on, -1. */
static mgv__op *find(const mgv_model *model, mgv__op_kind kind, int number) {
    const mgv__program *p = &model->program;
    uint32_t i;
    if (number < 0) {
        for (i = p->op_count; i-- > 0;)
            if (p->ops[i].kind == kind && ++number == 0) return &p->ops[i];
    } else {
        for (i = 0; i < p->op_count; i++)
            if (p->ops[i].kind == kind && number-- == 0) return &p->ops[i];
    }
    fail_msg("no such operation");
    return NULL;
}
static mgv__op *labelled(const mgv_model *model, const char *label) {
    uint32_t i;
    for (i = 0; i < model->program.op_count; i++)
        if (strcmp(model->program.ops[i].label, label) == 0) return &model->program.ops[i];
    fail_msg("no operation %s", label);
    return NULL;
}
/* Where attention reads. */
static uint16_t qkv_of(const mgv_model *model) { return find(model, MGV__OP_ATTENTION, 0)->source; }
/* A merger's norm of this fold, and the product behind it. */
static mgv__op *merger_norm(const mgv_model *model, int folded) {
    uint32_t i;
    for (i = 0; i + 1 < model->program.op_count; i++)
        if (mgv__lower_is_merger_norm(&model->program, i) && (model->program.ops[i].fold != 1) == folded) return &model->program.ops[i];
    fail_msg("no merger");
    return NULL;
}

static void gated(mgv_model *m) { find(m, MGV__OP_ATTENTION, 0)[-1].gated = 1; }
static void picked_product(mgv_model *m) {
    mgv__op *pick = find(m, MGV__OP_PICK, 0);
    pick[1].kind = MGV__OP_LINEAR;
    pick[1].fold = 1;
    pick[1].add = MGV__NONE;
    pick[1].table = pick[1].channel_scale = MGV__NO_TENSOR;
    pick[1].activation = MGV__ACT_RELU; /* without one it is a projection, which the kernel has */
}
static void patches_alone(mgv_model *m) { find(m, MGV__OP_PREPEND, 0)->kind = MGV__OP_GATHER; }
static void merged_product(mgv_model *m) { find(m, MGV__OP_ATTENTION, 0)[1].rows = MGV__ROWS_MERGED; }
static void scaled_activation(mgv_model *m) { labelled(m, "fc1")->channel_scale = 0; }
static void late_table(mgv_model *m) { labelled(m, "fc1")->table = 0; }
static void merger_source(mgv_model *m) { merger_norm(m, 0)->source = qkv_of(m); }
static void merger_rms(mgv_model *m) { merger_norm(m, 1)->rms = 1; }
static void rms_of_an_output(mgv_model *m) { find(m, MGV__OP_NORM, -1)->rms = 1; }
static void norm_of_a_norm(mgv_model *m) { find(m, MGV__OP_NORM, 1)->source = find(m, MGV__OP_NORM, 0)->target; }
static void norm_of_products(mgv_model *m) { find(m, MGV__OP_NORM, 1)->source = qkv_of(m); }
static void causal(mgv_model *m) { find(m, MGV__OP_ATTENTION, 0)->causal = 1; }
static void attention_source(mgv_model *m) { find(m, MGV__OP_ATTENTION, 0)->source = find(m, MGV__OP_NORM, 0)->target; }
static void pool_source(mgv_model *m) { find(m, MGV__OP_POOL, 0)->source = find(m, MGV__OP_NORM, 0)->source; }
static void rotary_rows(mgv_model *m) { find(m, MGV__OP_ROTARY, 0)[-1].target++; }
static void rotary_keys(mgv_model *m) { find(m, MGV__OP_ROTARY, 0)->key_heads = 1; }
static void rotary_axes(mgv_model *m) { m->program.rotary.axis[0] = 2; }
static void other_order(mgv_model *m) { find(m, MGV__OP_GATHER, -1)->inverse = 0; }
static void prepend_source(mgv_model *m) { find(m, MGV__OP_PREPEND, 0)[-1].target++; }
static void pick_source(mgv_model *m) { find(m, MGV__OP_PICK, 0)->source = qkv_of(m); }
static void text(mgv_model *m) { find(m, MGV__OP_NORM, 0)->kind = MGV__OP_EMBED; }
static void other_kind(mgv_model *m) { find(m, MGV__OP_NORM, 0)->kind = MGV__OP_KEEP; }

static void narrow_values(mgv_model *m) {
    uint32_t i;
    for (i = 0; i < m->program.op_count; i++)
        if (m->program.ops[i].kind == MGV__OP_ATTENTION) m->program.ops[i - 1].columns -= 8;
}
static void odd_patch(mgv_model *m) { m->config.patch = 15; }
static void gray(mgv_model *m) { m->config.channels = 1; }
static void three_frames(mgv_model *m) { m->config.temporal_patch = 3; }
static void frames_of_one_size(mgv_model *m) { m->config.temporal_patch = 2; }
static void merges_of_three(mgv_model *m) { m->config.merge = 3; }
static void odd_rows(mgv_model *m) { m->config.out_hidden = 92; }
static void floats(mgv_model *m) { m->config.pixels.in_floats = 1; }
static void prefix(mgv_model *m) { m->config.prefix = 1; }

static const struct {
    const char *model;
    void (*change)(mgv_model *model);
    const char *sentence;
} cases[] = {{siglip, gated, "gated product but of MLPs"},
             {clip, picked_product, "product of picked rows"},
             {clip, patches_alone, "rows of patches alone"},
             {qwen3, merged_product, "merger of other rows than normalised ones"},
             {dino, scaled_activation, "scale per channel behind an activation"},
             {siglip, late_table, "table of positions behind the patches' product"},
             {qwen3, merger_source, "mergers of other rows than the stream's"},
             {qwen3, merger_rms, "RMSNorm of rows that are read as one"},
             {dino, rms_of_an_output, "RMSNorm but in front of products"},
             {siglip, norm_of_a_norm, "norm of normalised rows"},
             {siglip, norm_of_products, "norm of other rows than the stream's"},
             {siglip, causal, "causal attention"},
             {siglip, attention_source, "attention over other rows than a product's"},
             {siglip, pool_source, "pooling head over rows that are not normalised"},
             {qwen3, rotary_rows, "rotary positions of other rows than a product's"},
             {qwen3, rotary_keys, "rotary positions where keys have fewer heads"},
             {qwen3, rotary_axes, "rotary positions but of a patch's row and column"},
             {windows, other_order, "rows in another order, but windows'"},
             {clip, prepend_source, "rows of patches alone"},
             {clip, pick_source, "picked rows of others than the stream's"},
             {siglip, text, "embeddings of a text"},
             {siglip, other_kind, "such operation"},
             {siglip, narrow_values, "queries, keys and values as wide as the stream"},
             {siglip, odd_patch, "patches of an even side, not 15"},
             {siglip, gray, "three channels, not 1"},
             {qwen3, three_frames, "of two in clips of any size, not of 3"},
             {siglip, frames_of_one_size, "of two in clips of any size, not of 2"},
             {qwen3, merges_of_three, "not 3 x 3 into"},
             {qwen3, odd_rows, "2 x 2 into 92"},
             {qwen3, floats, "pictures of several sizes as bytes"},
             {qwen3, prefix, "no class token for pictures of several sizes"}};

static mgv_result plan(mgv_model *model, mgv_error *error) {
    mgv_result result;
    mgv__plan *made = mgv__plan_make(&model->allocator, MGV_PRECISION_AUTO, &model->config, &model->program, 64, 4, &result, error);
    if (made) mgv__plan_free(&model->allocator, made);
    return made ? MGV_OK : result;
}
static void test_one_thing_changed(void **state) {
    size_t i, right = 0;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        golden g;
        mgv_error error;
        mgv_model *model;
        golden_open(&g, cases[i].model);
        model = golden_open_model(&g, "", 1);
        if (plan(model, &error) != MGV_OK) fail_msg("%s: %s", cases[i].model, error.message);
        cases[i].change(model);
        memset(&error, 0, sizeof error);
        if (plan(model, &error) == MGV_ERROR_UNSUPPORTED && strstr(error.message, cases[i].sentence)) right++;
        else print_error("%s: %s: %s\n", cases[i].model, cases[i].sentence, error.message);
        mgv_model_close(model);
        golden_close(&g);
    }
    assert_int_equal(right, COUNT_OF(cases));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_thing_changed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
