/* The GPU plan, on any machine: every schedule is proved, and the proof refuses what is wrong. */
#include <math.h>

#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_PLAN
#include "megavit.h"

#include "support.h"
#include "micro_siglip.h"
#include "plan_model.h"

static void config_of(mgv__config *config, uint32_t image_size, uint32_t patch, uint32_t layers) {
    memset(config, 0, sizeof *config);
    config->family = MGV_FAMILY_SIGLIP;
    config->hidden = 768;
    config->intermediate = 3072;
    config->layers = layers;
    config->heads = 12;
    config->head_dim = 64;
    config->channels = 3;
    config->patch = patch;
    config->image_size = image_size;
    config->epsilon = 1e-6f;
    config->activation = MGV__ACT_GELU_TANH;
    config->use_head = 1;
    config->merge = config->temporal_patch = 1;
}

static const mgv_allocator heap; /* malloc and free */

/* A laid out plan with room for its schedule, of a model that lives as long as it does. */
static mgv__plan *plan_of(const mgv__config *config, uint32_t max_images, uint32_t group_images, uint32_t lanes) {
    mgv__plan *plan = (mgv__plan *)mgv__alloc(&heap, sizeof *plan);
    plan_model *m = (plan_model *)malloc(sizeof *m);
    mgv_error error;
    assert_non_null(plan);
    plan_model_make(m, config, 0);
    assert_int_equal(mgv__plan_layout(plan, MGV__MACHINE_DEFAULT, MGV_PRECISION_AUTO, &m->model.config, &m->model.program,
                                      max_images, max_images, group_images,
                                      &error), MGV_OK);
    plan->lanes = lanes;
    assert_int_equal(mgv__plan_take_room(&heap, plan, &error), MGV_OK);
    return plan;
}
static void plan_free(mgv__plan *plan) {
    plan_model *m = (plan_model *)(void *)((char *)(uintptr_t)plan->program - offsetof(plan_model, model.program));
    mgv__plan_free(&heap, plan);
    plan_model_free(m);
    free(m);
}
/* Only the layout, of a model that is gone afterwards. */
static mgv_result lay_out(mgv__plan *plan, const mgv__config *config, uint32_t max_images, uint32_t group_images, mgv_error *error) {
    plan_model *m = (plan_model *)malloc(sizeof *m);
    mgv_result result;
    plan_model_make(m, config, 0);
    result = mgv__plan_layout(plan, MGV__MACHINE_DEFAULT, MGV_PRECISION_AUTO, &m->model.config, &m->model.program, max_images, max_images,
                              group_images, error);
    plan_model_free(m);
    free(m);
    return result;
}

static void test_every_schedule_is_proved(void **state) {
    static const uint32_t images[] = {1, 2, 3, 7, 8, 33, 64, 105, 200}, clusters[] = {1, 17, 66}, groups[] = {0, 13, 1};
    /* side, patch, heads, columns of a head */
    static const uint32_t shapes[][4] = {{224, 16, 12, 64}, {256, 16, 12, 64}, {256, 32, 12, 64}, {224, 14, 12, 64}, {224, 16, 3, 64},
                                         {224, 14, 16, 72}, {256, 16, 16, 96}, {384, 14, 16, 72}, {272, 16, 3, 64},
                                         {224, 16, 8, 128}, {224, 16, 24, 64}, {224, 16, 5, 56}, {384, 16, 7, 104}};
    uint32_t s, i, c, g;
    (void)state;
    for (s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (g = 0; g < 3; g++) {
            mgv__config config;
            mgv__plan *plan;
            config_of(&config, shapes[s][0], shapes[s][1], 3);
            config.heads = shapes[s][2];
            config.head_dim = shapes[s][3];
            config.hidden = config.head_dim * config.heads;
            config.intermediate = 4 * config.hidden;
            plan = plan_of(&config, 200, groups[g], 1 + g);
            for (i = 0; i < sizeof images / sizeof images[0]; i++)
                for (c = 0; c < 6; c++) {
                    mgv_error error;
                    plan->forced_regime = 1 + c / 3;
                    plan->latency_clusters = mgv__plan_latency_supported(plan) ? (clusters[c % 3] + 1) / 2 : 0;
                    mgv__plan_schedule(plan, images[i], clusters[c % 3]);
                    assert_int_equal(plan->regime, plan->latency_clusters && images[i] <= MGV__LATENCY_MAX_IMAGES ? c / 3 : MGV__THROUGHPUT);
                    assert_true(plan->segment_count <= plan->max_segments);
                    if (mgv__plan_validate(plan, plan->counts, &error) != MGV_OK) fail_msg("%s", error.message);
                }
            plan_free(plan);
        }
}

/* Without a pooling head there are token and layer outputs only. */
static void test_models_without_a_head(void **state) {
    static const uint32_t sides[] = {224, 384};
    mgv__row_outputs outputs;
    uint32_t s, images;
    (void)state;
    memset(&outputs, 0, sizeof outputs);
    outputs.count = 2;
    outputs.layer[0] = MGV__ROWS_TOKENS_OUTPUT;
    outputs.layer[1] = 3;
    for (s = 0; s < 2; s++) {
        mgv__config config;
        mgv__plan *plan;
        mgv_error error;
        config_of(&config, sides[s], 16, 3);
        config.use_head = 0;
        plan = plan_of(&config, 64, 13, 2);
        assert_int_equal(plan->buffers[MGV__DEVICE_POOLED].bytes, 0);
        mgv__plan_want(plan, &outputs);
        assert_string_equal(plan->ops[plan->op_count - 1].label, "tokens");
        assert_int_equal(plan->ops[plan->op_count - 1].bias, plan->norm);
        for (images = 1; images <= 64; images += 9) {
            mgv__plan_schedule(plan, images, 66);
            if (mgv__plan_validate(plan, plan->counts, &error) != MGV_OK) fail_msg("%s", error.message);
        }
        plan_free(plan);
    }
}

/* Pictures that go through the layers together: one group or two of the same size, in pairs, of up to 25,100 rows each; where that is not
   enough, 11,800 rows each and what is left. */
static void test_groups(void **state) {
    static const struct { uint32_t image_size, images, group, groups; } cases[] = {
        {224, 1, 1, 1}, {224, 120, 120, 1}, {224, 128, 128, 1}, {224, 129, 66, 2}, {224, 192, 96, 2}, {224, 256, 128, 2}, {224, 257, 60, 5},
        {224, 592, 60, 10}, {256, 98, 98, 1}, {256, 99, 50, 2}, {512, 49, 26, 2}, {512, 50, 12, 5}, {1792, 1, 1, 1}, {1792, 2, 2, 1},
        {1792, 4, 2, 2}, {1792, 5, 2, 3}};
    uint32_t c, i;
    (void)state;
    for (c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        mgv__config config;
        mgv__plan *plan;
        mgv_error error;
        config_of(&config, cases[c].image_size, 16, 1);
        plan = plan_of(&config, cases[c].images, 0, 1);
        assert_int_equal(plan->group_images, cases[c].group);
        assert_int_equal(plan->groups, cases[c].groups);
        for (i = 1; i <= cases[c].images; i += cases[c].images > 1 ? cases[c].images - 1 : 1) {
            mgv__plan_schedule(plan, i, 66);
            if (mgv__plan_validate(plan, plan->counts, &error) != MGV_OK) fail_msg("%s", error.message);
        }
        plan_free(plan);
    }
}

/* A head a math group where two rounds of such tiles come together; half as many tiles then, whose signals are waited for. Twice as many
   where a head's queries are shared out and that takes two rounds at most. */
static void test_own_heads(void **state) {
    static const struct { uint32_t images, group, clusters, heads, own, tiles; } cases[] = {
        {64, 0, 66, 12, 1, 3}, {43, 0, 66, 12, 0, 6}, {44, 0, 66, 12, 1, 3}, {592, 0, 66, 12, 1, 3}, {64, 13, 66, 12, 0, 6}, {8, 0, 12, 12, 1, 3},
        {8, 0, 66, 12, 0, 12}, {11, 0, 66, 12, 0, 12}, {12, 0, 66, 12, 0, 6}, {44, 0, 66, 10, 1, 3}, {66, 0, 66, 2, 0, 2}, {67, 0, 66, 2, 0, 1},
        {132, 132, 66, 2, 1, 1}};
    uint32_t i, c;
    (void)state;
    for (c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        mgv__config config;
        mgv__plan *plan;
        mgv_error error;
        config_of(&config, 224, 16, 2);
        config.heads = cases[c].heads;
        config.hidden = 64 * cases[c].heads;
        config.intermediate = 4 * config.hidden;
        plan = plan_of(&config, cases[c].images, cases[c].group, 1);
        mgv__plan_schedule(plan, cases[c].images, cases[c].clusters);
        for (i = 0; i < plan->op_count; i++) {
            const mgv__kernel_op *k = &plan->ops[i].kernel;
            assert_int_equal((k->flags & MGV__KERNEL_OWN_HEADS) != 0, cases[c].own && k->kind == MGV__KERNEL_ATTENTION);
            if (k->kind == MGV__KERNEL_ATTENTION) assert_int_equal(k->column_tiles, cases[c].tiles);
        }
        if (mgv__plan_validate(plan, plan->counts, &error) != MGV_OK) fail_msg("%s", error.message);
        plan_free(plan);
    }
}

/* Sharing out K and the head's products of few rows are other arithmetic: model and number of pictures choose them, never the card. */
static void test_split_products(void **state) {
    static const uint32_t clusters[] = {1, 17, 66};
    mgv__config config;
    mgv__plan *plan;
    uint32_t images, c, i;
    (void)state;
    config_of(&config, 224, 16, 2);
    plan = plan_of(&config, 80, 0, 1);
    for (images = 1; images <= 80; images++)
        for (c = 0; c < 3; c++) {
            mgv__plan_schedule(plan, images, clusters[c]);
            for (i = 0; i < plan->op_count; i++) {
                const int splits = mgv__split_columns(plan->ops[i].kernel.kind) != 0;
                const int writes_stream = plan->ops[i].target == MGV__DEVICE_STREAM, gemv = plan->ops[i].kernel.kind == MGV__KERNEL_GEMV;
                assert_int_equal(splits, writes_stream && images >= 3 && images <= 24);
                if (splits) assert_int_equal(mgv__split_columns(plan->ops[i].kernel.kind), images <= 7 ? 128 : images == 8 ? 160 : 192);
                assert_int_equal(gemv, i + 4 >= plan->op_count && images <= MGV__GEMV_MAX_ROWS);
                if (gemv) assert_true(plan->ops[i].kernel.column_tiles * MGV__GEMV_COLUMNS(plan->ops[i].kernel.of.gemv.parts_log2) * MGV__CLUSTER >= plan->ops[i].kernel.columns);
                if (splits) assert_int_equal(plan->ops[i].kernel.flags & MGV__KERNEL_FOLD_NORM, 0);
            }
        }
    plan_free(plan);
}

/* In models of less than 512 columns, or with so few in the MLP, a share of K would be shorter than the ring. */
static void test_narrow_models_are_not_split(void **state) {
    static const struct { uint32_t heads, intermediate; } cases[] = {{3, 768}, {6, 1536}, {7, 1792}, {8, 2048}, {12, 3072}, {9, 384}, {9, 512}};
    uint32_t c, images, i;
    (void)state;
    for (c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        mgv__config config;
        mgv__plan *plan;
        uint32_t split = 0;
        config_of(&config, 224, 16, 2);
        config.heads = cases[c].heads;
        config.hidden = 64 * cases[c].heads;
        config.intermediate = cases[c].intermediate;
        plan = plan_of(&config, 100, 0, 1);
        for (images = 1; images <= 100; images++) {
            mgv__plan_schedule(plan, images, 66);
            for (i = 0; i < plan->op_count; i++) split += mgv__split_columns(plan->ops[i].kernel.kind) != 0;
        }
        assert_int_equal(split != 0, cases[c].heads >= 8 && cases[c].intermediate >= 512);
        plan_free(plan);
    }
}

/* Few rows are hurried on by narrow tiles, more come in wide ones; not those of who writes the stream, where that is not split. */
static void test_widths(void **state) {
    static const struct { uint32_t images, heads, qkv, fc1, out; } cases[] = {
        {1, 12, 64, 64, 64}, {2, 12, 128, 128, 64}, {3, 12, 128, 128, 0}, {4, 12, 128, 128, 0}, {5, 12, 128, 192, 0}, {6, 12, 192, 192, 0},
        {8, 12, 192, 192, 0}, {10, 12, 192, 192, 0}, {11, 12, 256, 256, 0}, {13, 12, 256, 256, 0}, {20, 12, 256, 256, 0}, {40, 12, 256, 256, 256}, {64, 12, 256, 256, 256},
        {30, 6, 256, 256, 192}};
    uint32_t c, i;
    (void)state;
    for (c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        mgv__config config;
        mgv__plan *plan;
        config_of(&config, 224, 16, 2);
        config.heads = cases[c].heads;
        config.hidden = 64 * cases[c].heads;
        config.intermediate = 4 * config.hidden;
        plan = plan_of(&config, 80, 0, 1);
        mgv__plan_schedule(plan, cases[c].images, 66);
        for (i = 0; i < plan->op_count; i++) {
            const char *label = plan->ops[i].label;
            const uint32_t wanted = !strcmp(label, "qkv")   ? cases[c].qkv
                                    : !strcmp(label, "fc1") ? cases[c].fc1
                                    : !strcmp(label, "out") ? cases[c].out
                                                            : 0;
            const uint32_t kind = wanted == 256   ? MGV__KERNEL_GEMM_256
                                  : wanted == 192 ? MGV__KERNEL_GEMM_192
                                  : wanted == 128 ? MGV__KERNEL_GEMM_128
                                                  : MGV__KERNEL_GEMM_64;
            if (wanted) assert_int_equal(plan->ops[i].kernel.kind, kind);
        }
        plan_free(plan);
    }
}

/* 1568 rows: six pairs of row tiles, and one row tile of 32 rows, which both CTAs of a cluster share; 784: three, and one of 16. */
static void test_last_rows_are_shared(void **state) {
    static const struct { uint32_t images, kind, tiles; } cases[] = {{8, MGV__KERNEL_GEMM_192, 6 * 16 + 8},
                                                                     {4, MGV__KERNEL_GEMM_128, 3 * 24 + 12}};
    mgv__config config;
    mgv__plan *plan;
    mgv_error error;
    uint32_t c, s;
    (void)state;
    config_of(&config, 224, 16, 2);
    plan = plan_of(&config, 80, 0, 1);
    for (c = 0; c < 2; c++) {
        uint32_t fc1 = 0;
        mgv__plan_schedule(plan, cases[c].images, 66);
        if (mgv__plan_validate(plan, plan->counts, &error) != MGV_OK) fail_msg("%s", error.message);
        for (s = 0; s < plan->segment_count; s++) {
            const mgv__plan_op *op = &plan->ops[plan->segments[s].op];
            if (strcmp(op->label, "fc1") != 0) continue;
            fc1++;
            assert_int_equal(op->kernel.kind, cases[c].kind);
            assert_int_equal(plan->segments[s + 1].first_tile - plan->segments[s].first_tile, cases[c].tiles);
        }
        assert_int_equal(fc1, 2);
    }
    plan_free(plan);
}

/* The pooling head's values of a head of more than 64 columns are a tile of 128, but not of 128 columns from the one before. */
static void test_heads_do_not_share_rows(void **state) {
    mgv__config config;
    mgv__plan *plan;
    uint32_t i, by_head = 0;
    (void)state;
    config_of(&config, 224, 14, 2);
    config.hidden = 1152;
    config.intermediate = 4304;
    config.heads = 16;
    config.head_dim = 72;
    plan = plan_of(&config, 80, 0, 1);
    mgv__plan_schedule(plan, 80, 66);
    for (i = 0; i < plan->op_count; i++) {
        const mgv__plan_op *op = &plan->ops[i];
        if (!op->by_head) continue;
        by_head++;
        assert_int_equal(op->kernel.kind, MGV__KERNEL_GEMM_128);
        assert_int_equal(op->kernel.flags & MGV__KERNEL_SHARE_ROWS, 0);
    }
    assert_int_equal(by_head, 1);
    plan_free(plan);
}

static void refused(mgv__plan *plan, const char *word) {
    mgv_error error;
    assert_int_equal(mgv__plan_validate(plan, plan->counts, &error), MGV_ERROR_UNSUPPORTED);
    if (!strstr(error.message, word)) fail_msg("expected \"%s\" in: %s", word, error.message);
}

/* A kind of tile that no kernel of the latency regime has code for, and an operation that it has no tiles for. */
static void test_tiles_of_no_kernel(void **state) {
    mgv__config config;
    mgv__plan *plan;
    uint32_t kind;
    (void)state;
    config_of(&config, 224, 16, 2);
    plan = plan_of(&config, 2, 0, 1);
    plan->latency_clusters = 30;
    plan->forced_regime = 1 + MGV__LATENCY;
    mgv__plan_schedule(plan, 1, 66);
    assert_int_equal(mgv__plan_validate(plan, plan->counts, NULL), MGV_OK);
    for (kind = 1; kind <= MGV__KERNEL_PROJECT; kind++) /* the table says what kernels are compiled with */
        assert_int_equal(mgv__plan_kernel_for(plan, MGV__LATENCY, 1u << kind) < plan->machine->kernel_count,
                         MGV__KINDS_LATENCY_ANY >> kind & 1);
    plan->ops[4].kernel.kind = MGV__KERNEL_POOL_SUMS;
    refused(plan, "no kernel of the latency regime has all its tiles; look at out");
    plan->ops[5].kind = MGV__KERNEL_MERGE;
    mgv__plan_schedule(plan, 1, 66);
    assert_int_equal(plan->ops[5].kernel.kind, MGV__KERNEL_MERGE);
    refused(plan, "no kernel of the latency regime has all its tiles; look at fc1");
    plan_free(plan);
}

/* Statistics of the stream are read as what they are of: of NaFlex's tokens, too, whose sums are pictures' and wait for scores. Tiles that
   share out K leave them of half of a tile's columns. */
static void test_parts_of_statistics(void **state) {
    static const uint32_t tokens[] = {4, 252, 1024, 2824, 4096, 16384};
    uint32_t i, k, wide = 0;
    (void)state;
    for (i = 0; i < COUNT_OF(tokens); i++) {
        mgv__config config;
        mgv__plan *plan;
        config_of(&config, 224, 16, 2);
        config.family = MGV_FAMILY_SIGLIP2;
        config.image_size = 0;
        config.position_side = 16;
        config.interpolation = MGV__TABLE_LINEAR_AREA;
        config.pixels.channels_last = 1;
        plan = plan_of(&config, tokens[i], 0, 1);
        plan->max_pictures = plan->pictures = 4;
        assert_true(plan->varlen && plan->pools);
        mgv__plan_schedule(plan, tokens[i], 66);
        assert_int_equal(mgv__plan_validate(plan, plan->counts, NULL), MGV_OK);
        for (k = 0; k < plan->op_count; k++) {
            if (plan->ops[k].kernel.kind != MGV__KERNEL_POOL_SUMS) continue;
            wide += plan->ops[k].kernel.stats_columns != 64;
            plan->ops[k].kernel.stats_columns = plan->ops[k].kernel.stats_columns == 64 ? 96 : 64;
            refused(plan, "reads statistics of");
        }
        plan_free(plan);
    }
    assert_true(wide > 0);
}

static void test_wrong_plans_are_refused(void **state) {
    static const struct {
        uint32_t regime, images, op, kind, flag; /* operations: patches, patch embed, qkv, attention, out, fc1, ...; 15: the head's out */
    } flags[] = {{MGV__THROUGHPUT, 8, 4, MGV__KERNEL_SPLIT_160, MGV__KERNEL_GELU_TANH}, {MGV__THROUGHPUT, 8, 4, MGV__KERNEL_SPLIT_160, MGV__KERNEL_FOLD_NORM},
                 {MGV__THROUGHPUT, 8, 3, MGV__KERNEL_ATTENTION, MGV__KERNEL_STATS},     {MGV__THROUGHPUT, 64, 5, MGV__KERNEL_GEMM_256, MGV__KERNEL_FLOAT_OUT},
                 {MGV__LATENCY, 1, 5, MGV__KERNEL_WIDE, MGV__KERNEL_STATS},              {MGV__LATENCY, 1, 6, MGV__KERNEL_DEEP, MGV__KERNEL_FLOAT_OUT},
                 {MGV__LATENCY, 1, 4, MGV__KERNEL_THIN, MGV__KERNEL_GELU_TANH},          {MGV__LATENCY, 1, 1, MGV__KERNEL_THIN, MGV__KERNEL_FOLD_NORM},
                 {MGV__THROUGHPUT, 8, 15, MGV__KERNEL_GEMV, MGV__KERNEL_RESIDUAL}};
    mgv__config config;
    mgv__plan *plan;
    mgv__kernel_segment kept;
    uint32_t i;
    (void)state;
    config_of(&config, 224, 16, 2);
    plan = plan_of(&config, 64, 0, 1);
    plan->latency_clusters = 30;
    plan->forced_regime = 1 + MGV__LATENCY;
    for (i = 1; i < plan->op_count; i++) {
        mgv__plan_schedule(plan, 2, 66);
        plan->ops[i].kernel.wait_threshold--;
        if (plan->ops[i].kernel.column_tiles) refused(plan, "waits for");
        else assert_true(strcmp(plan->ops[i].label, "head scores") == 0 || plan->ops[i].by_head); /* the operation between does both */
    }
    plan->forced_regime = 1 + MGV__THROUGHPUT;
    for (i = 1; i < plan->op_count; i++) { /* every threshold, one signal more and one less */
        mgv__plan_schedule(plan, 7, 66);
        plan->ops[i].kernel.wait_threshold++;
        refused(plan, "waits for");
        plan->ops[i].kernel.wait_threshold -= 2;
        refused(plan, "waits for");
    }
    for (i = 0; i + 1 < plan->op_count; i++) { /* every signal at a neighbour's counter */
        mgv__plan_schedule(plan, 7, 66);
        plan->ops[i].kernel.signal_counter++;
        assert_int_equal(mgv__plan_validate(plan, plan->counts, NULL), MGV_ERROR_UNSUPPORTED);
    }
    for (i = 0; i < plan->op_count; i++) { /* every signal just below its buffer's counters, and just above them */
        const mgv__device_buffer *target = &plan->buffers[plan->ops[i].target];
        mgv__plan_schedule(plan, 7, 66);
        plan->ops[i].kernel.signal_counter = target->counter - 1;
        refused(plan, "another buffer's");
        plan->ops[i].kernel.signal_counter = target->counter + target->counter_stride * plan->groups;
        refused(plan, "another buffer's");
    }
    mgv__plan_schedule(plan, 7, 66); /* two operations in the wrong order */
    kept = plan->segments[3];
    plan->segments[3].op = plan->segments[4].op;
    plan->segments[4].op = kept.op;
    assert_int_equal(mgv__plan_validate(plan, plan->counts, NULL), MGV_ERROR_UNSUPPORTED);
    mgv__plan_schedule(plan, 7, 66); /* an operation that overwrites without waiting for the readers */
    plan->ops[4].kernel.wait_divisor = 0;
    refused(plan, "may still read");
    mgv__plan_schedule(plan, 7, 66); /* room for a group less, for an image less, for fewer counters */
    plan->layout_groups--;
    refused(plan, "do not fit");
    plan->layout_groups++;
    plan->room_images--;
    refused(plan, "do not fit");
    plan->room_images++;
    plan->room_tiles--;
    refused(plan, "do not fit");
    plan->room_tiles++;
    for (i = 0; i < sizeof flags / sizeof flags[0]; i++) { /* an epilogue that the operation's kind of tile does not have */
        plan->forced_regime = 1 + flags[i].regime;
        mgv__plan_schedule(plan, flags[i].images, 66);
        assert_int_equal(plan->ops[flags[i].op].kernel.kind, flags[i].kind);
        plan->ops[flags[i].op].kernel.flags ^= flags[i].flag;
        refused(plan, "does not do with its sums");
        plan->ops[flags[i].op].kernel.flags ^= flags[i].flag;
    }
    plan->ops[15].kernel.kind = MGV__KERNEL_GEMM_64;
    plan->ops[15].kernel.flags |= MGV__KERNEL_FLOAT_OUT;
    refused(plan, "does not do with its sums"); /* it leaves statistics, which only bf16 has */
    plan_free(plan);
}

/* Another warp signals for the math warps where a cluster has more than one tile of a product: whatever they store but in the pooling head. Behind QKV
   weights are held back. Nothing is left of either in the throughput regime. */
static void test_who_signals(void **state) {
    static const struct { uint32_t images, clusters, others; } cases[] = {{1, 30, 0}, {2, 30, 1}, {1, 24, 0}, {1, 23, 1}, {1, 30, 0}};
    mgv__config config;
    mgv__plan *plan;
    uint32_t i, c;
    (void)state;
    config_of(&config, 224, 16, 2);
    plan = plan_of(&config, 8, 0, 1);
    for (c = 0; c < sizeof cases / sizeof cases[0]; c++) { /* 196 tokens: 24 tiles of FC1 for an image */
        plan->latency_clusters = cases[c].clusters;
        plan->forced_regime = 1 + MGV__LATENCY;
        mgv__plan_schedule(plan, cases[c].images, 66);
        assert_int_equal(plan->regime, MGV__LATENCY);
        for (i = 0; i < plan->op_count; i++) {
            const mgv__kernel_op *k = &plan->ops[i].kernel;
            const int head = k->kind == MGV__KERNEL_GEMV || mgv__plan_is_pool(k->kind);
            assert_int_equal((k->flags & MGV__KERNEL_OTHERS_SIGNAL) != 0, cases[c].others && !head);
            assert_int_equal((k->flags & MGV__KERNEL_HOLD_WEIGHTS) != 0, plan->ops[i].target == MGV__DEVICE_QKV);
        }
    }
    plan->latency_clusters = 23;
    mgv__plan_schedule(plan, 1, 66);
    plan->forced_regime = 1 + MGV__THROUGHPUT;
    mgv__plan_schedule(plan, 1, 66);
    for (i = 0; i < plan->op_count; i++)
        assert_int_equal(plan->ops[i].kernel.flags & (MGV__KERNEL_OTHERS_SIGNAL | MGV__KERNEL_HOLD_WEIGHTS), 0);
    plan_free(plan);
}

/* In the latency regime both math groups have a block of each tile's K, in whose place they trade sums, however short K is. */
static void test_latency_blocks(void **state) {
    static const uint32_t heads[] = {2, 3, 12};
    mgv__config config;
    uint32_t i, h, deep[3] = {0};
    (void)state;
    for (h = 0; h < 3; h++) {
        mgv__plan *plan;
        config_of(&config, 224, 16, 2);
        config.heads = heads[h];
        config.hidden = 64 * heads[h];
        plan = plan_of(&config, 2, 0, 1);
        plan->latency_clusters = 30;
        plan->forced_regime = 1 + MGV__LATENCY;
        mgv__plan_schedule(plan, 2, 66);
        assert_int_equal(plan->regime, MGV__LATENCY);
        for (i = 0; i < plan->op_count; i++) {
            const mgv__kernel_op *k = &plan->ops[i].kernel;
            if (mgv__plan_is_latency_product(k->kind)) assert_true(k->of.latency.blocks >= MGV__MATH_GROUPS);
            if (k->kind == MGV__KERNEL_DEEP && (!deep[h] || k->of.latency.blocks < deep[h])) deep[h] = k->of.latency.blocks;
        }
        plan_free(plan);
    }
    assert_int_equal(deep[0], 2); /* of two blocks a quarter each would be one, */
    assert_int_equal(deep[1], 2);
    assert_int_equal(deep[2], 3); /* of twelve it is three */
}

/* The products of one image that write the stream exchange no sums where their K fits a CTA's rings, however many clusters there are; boxes
   are as large as the stages that they go into are announced to be. */
static void test_latency_thin(void **state) {
    static const struct {
        uint32_t heads, images, embed, out; /* blocks of K of the first layer's, 0: DEEP tiles */
    } cases[] = {{12, 1, 12, 12}, {8, 1, 12, 8}, {12, 2, 0, 0}, {4, 1, 12, 0}, {10, 1, 12, 0}, {16, 1, 12, 0}};
    mgv__config config;
    mgv_error error;
    uint32_t c, i, clusters;
    (void)state;
    for (c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (clusters = 2; clusters <= 30; clusters += 28) {
            const uint32_t want[2] = {cases[c].embed, cases[c].out};
            mgv__plan *plan;
            config_of(&config, 224, 16, 2);
            config.heads = cases[c].heads;
            config.hidden = 64 * cases[c].heads;
            plan = plan_of(&config, 4, 0, 1);
            plan->latency_clusters = clusters;
            plan->forced_regime = 1 + MGV__LATENCY;
            mgv__plan_schedule(plan, cases[c].images, 66);
            if (mgv__plan_validate(plan, plan->counts, &error) != MGV_OK) fail_msg("%s", error.message);
            for (i = 0; i < 2; i++) {
                const mgv__kernel_op *k = &plan->ops[i ? 4 : 1].kernel;
                const mgv__map_desc *first = &plan->maps[k->of.latency.a_map], *behind = &plan->maps[k->of.latency.behind_map];
                const uint32_t row_bytes = MGV__GEMM_INNER * 2 * MGV__LATENCY_THIN_ROWS;
                assert_int_equal(k->kind, want[i] ? MGV__KERNEL_THIN : MGV__KERNEL_DEEP);
                if (!want[i]) continue;
                assert_int_equal(k->of.latency.blocks, want[i]);
                assert_int_equal(first->box[0] * first->box[1] * first->box[2] * 2, 2 * row_bytes);
                assert_int_equal(behind->box[0] * behind->box[1] * behind->box[2] * 2, (want[i] / 2 - 2) * row_bytes);
                assert_int_equal(first->dims[0] * first->dims[2], want[i] * (uint32_t)MGV__GEMM_INNER);
                assert_int_equal(first->dims[1], 196);
            }
            plan_free(plan);
        }
}

/* Token and layer outputs: at most so many, the same weights in the same places, and no layer overwrites rows that are still copied. */
static void test_outputs(void **state) {
    mgv__config config;
    mgv__plan *plan;
    mgv__plan_op swapped;
    mgv__row_outputs all, none;
    mgv_error error;
    uint32_t i, b_row, bias;
    (void)state;
    config_of(&config, 224, 16, 3);
    plan = plan_of(&config, 64, 13, 2);
    b_row = plan->ops[plan->op_count - 1].b_row;
    bias = plan->ops[plan->op_count - 1].bias;
    memset(&all, 0, sizeof all);
    none = all;
    all.count = MGV__KERNEL_MAX_OUTPUTS;
    for (i = 0; i < all.count; i++) all.layer[i] = (int32_t)(i % 5) - 1; /* tokens, layers 0 to 3, each many times */
    mgv__plan_want(plan, &all);
    assert_int_equal(plan->op_count, plan->max_ops);
    assert_int_equal(plan->ops[plan->op_count - 1].b_row, b_row);
    assert_int_equal(plan->ops[plan->op_count - 1].bias, bias);
    mgv__plan_schedule(plan, 48, 66);
    assert_int_equal(plan->segment_count, (plan->op_count - 4) * 4 + 4); /* the head's last four run over all groups at once */
    if (mgv__plan_validate(plan, plan->counts, &error) != MGV_OK) fail_msg("%s", error.message);
    all.count = 2;
    all.layer[0] = 1;
    all.layer[1] = MGV__ROWS_TOKENS_OUTPUT;
    mgv__plan_want(plan, &all);
    for (i = 0; plan->ops[i].kernel.kind != MGV__KERNEL_ROWS; i++) continue;
    assert_string_equal(plan->ops[i + 1].label, "qkv");
    for (b_row = 1; b_row < 70; b_row++) {
        mgv__plan_schedule(plan, 1 + b_row % 64, b_row);
        if (mgv__plan_validate(plan, plan->counts, &error) != MGV_OK) fail_msg("%s", error.message);
    }
    swapped = plan->ops[i]; /* copied beside qkv instead of before it: the projection behind attention does not wait for that */
    plan->ops[i] = plan->ops[i + 1];
    plan->ops[i + 1] = swapped;
    mgv__plan_schedule(plan, 7, 66);
    refused(plan, "overwrites what layer");
    mgv__plan_want(plan, &none);
    mgv__plan_schedule(plan, 7, 66);
    assert_int_equal(mgv__plan_validate(plan, plan->counts, NULL), MGV_OK);
    plan_free(plan);
}

/* Where the stream's products have a tile for each cluster tiles are dealt: each to one list, all lists in the order of the whole, and by
   the pass that takes less time than in turn. */
static void test_tiles_are_dealt(void **state) {
    static const struct { uint32_t images, heads, columns, patch, clusters, dealt; } cases[] = {
        {1, 12, 64, 16, 66, 0}, {8, 12, 64, 16, 66, 0}, {27, 12, 64, 16, 66, 0}, {28, 12, 64, 16, 66, 1}, {32, 12, 64, 16, 66, 1}, {64, 12, 64, 16, 66, 1},
        {96, 12, 64, 16, 60, 1}, {300, 12, 64, 16, 66, 1}, {592, 12, 64, 16, 66, 1}, {64, 12, 64, 16, 257, 0}, {64, 16, 72, 14, 66, 1}, {2, 12, 64, 16, 1, 1}};
    uint32_t c;
    (void)state;
    for (c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        mgv__config config;
        mgv__plan *plan;
        mgv_schedule_op ops[MGV__PLAN_MAX_OPS];
        mgv_error error;
        uint32_t tiles, kept;
        double in_turn, dealt, *scratch;
        config_of(&config, 224, cases[c].patch, 3);
        config.heads = cases[c].heads;
        config.head_dim = cases[c].columns;
        config.hidden = config.heads * config.head_dim;
        config.intermediate = 4 * config.hidden;
        plan = plan_of(&config, cases[c].images, 0, 1);
        mgv__plan_schedule(plan, cases[c].images, cases[c].clusters);
        assert_int_equal(plan->dealt, cases[c].dealt);
        if (mgv__plan_validate(plan, plan->counts, &error) != MGV_OK) fail_msg("%s", error.message);
        tiles = plan->segments[plan->segment_count].first_tile;
        if (plan->dealt) {
            memset(ops, 0, sizeof ops);
            scratch = (double *)malloc(mgv__schedule_scratch(plan) * sizeof *scratch);
            dealt = mgv__schedule_run(plan, ops, scratch);
            plan->dealt = 0;
            in_turn = mgv__schedule_run(plan, ops, scratch);
            plan->dealt = 1;
            assert_true(cases[c].clusters == 1 ? fabs(dealt - in_turn) < 1e-6 * in_turn : dealt < in_turn);
            free(scratch);
            kept = plan->deal[plan->deal[0]]; /* a tile twice, and another never */
            plan->deal[plan->deal[0]] = kept + 1;
            refused(plan, "is not where");
            plan->deal[plan->deal[0]] = kept;
            plan->deal[tiles + 2 * plan->clusters - 1] = 0; /* the last list goes on */
            refused(plan, "does not end");
            plan->max_tiles = tiles - 1; /* no room: in turn */
            mgv__plan_schedule(plan, cases[c].images, cases[c].clusters);
            assert_int_equal(plan->dealt, 0);
            assert_int_equal(mgv__plan_validate(plan, plan->counts, &error), MGV_OK);
        }
        plan_free(plan);
    }
}

/* What benchmarks and validation set: flags for all operations and back, and a part of the list. */
static void test_parts_and_ablations(void **state) {
    mgv__config config;
    mgv__plan *plan;
    const mgv__kernel_gemv *of;
    uint32_t i, whole, gemvs = 0;
    (void)state;
    config_of(&config, 224, 16, 2);
    plan = plan_of(&config, 8, 0, 1);
    mgv__plan_schedule(plan, 8, 66);
    whole = plan->segments[plan->segment_count].first_tile;
    plan->ablations = MGV__KERNEL_WAIT_FIRST | MGV__KERNEL_WAIT_ALL;
    mgv__plan_schedule(plan, 8, 66);
    assert_int_equal(mgv__plan_validate(plan, plan->counts, NULL), MGV_OK);
    for (i = 0; i < plan->op_count; i++) {
        assert_int_equal(plan->ops[i].kernel.flags & plan->ablations, plan->ablations);
        if (plan->ops[i].kernel.kind != MGV__KERNEL_GEMV) continue;
        of = &plan->ops[i].kernel.of.gemv;
        assert_true(of->weights * (uint64_t)16 >= plan->pack_offset[plan->ops[i].pack]);
        assert_true(of->weights * (uint64_t)16 + (uint64_t)plan->ops[i].kernel.columns * of->pieces * 16 <= plan->weight_bytes);
        gemvs++;
    }
    assert_int_equal(gemvs, 4); /* the pooling head's values, out, fc1 and fc2 */
    plan->ablations = 0;
    for (i = 0; i < plan->op_count; i++) { /* one operation at a time: together the whole */
        plan->op_first = i;
        plan->op_limit = i + 1;
        mgv__plan_schedule(plan, 8, 66);
        assert_int_equal(plan->segment_count, 1);
        assert_int_equal(plan->segments[0].op, i);
        assert_int_equal(plan->ops[i].kernel.flags & (MGV__KERNEL_WAIT_FIRST | MGV__KERNEL_WAIT_ALL), 0);
        whole -= plan->segments[1].first_tile;
    }
    assert_int_equal(whole, 0);
    plan_free(plan);
}

/* The kernel that runs a schedule has code for all of its tiles, and is the one with the least. */
static void test_kernels(void **state) {
    static const struct {
        uint32_t side, heads, head_dim, images, outputs;
        const char *kernel;
    } cases[] = {
        {224, 12, 64, 1, 0, "latency_104_"}, {256, 12, 64, 1, 0, "latency_128_"}, {224, 12, 64, 3, 0, "few_"}, {224, 12, 64, 8, 0, "few_"},
        {224, 12, 64, 9, 0, "some_"},        {224, 12, 64, 48, 0, "some_"},       {256, 12, 64, 8, 0, "some_"},    {224, 12, 64, 8, 1, ""},
        {224, 12, 64, 49, 0, ""},            {224, 12, 64, 592, 0, ""},           {224, 16, 72, 8, 0, ""},         {384, 12, 64, 8, 0, ""},
        {224, 12, 96, 1, 0, "latency_any_104_"}, {224, 8, 128, 8, 0, "wide_"}, {224, 8, 104, 1, 0, "latency_wide_"},
        {384, 8, 128, 60, 1, "wide_"}};
    uint32_t c, i;
    (void)state;
    for (c = 0; c < COUNT_OF(cases); c++) {
        char name[64];
        mgv__config config;
        mgv__row_outputs outputs;
        mgv__plan *plan;
        uint32_t kernel;
        config_of(&config, cases[c].side, 16, 2);
        config.heads = cases[c].heads;
        config.head_dim = cases[c].head_dim;
        config.hidden = config.heads * config.head_dim;
        config.intermediate = 4 * config.hidden;
        plan = plan_of(&config, cases[c].images, 0, 1);
        plan->latency_clusters = mgv__plan_latency_supported(plan) ? 30 : 0;
        memset(&outputs, 0, sizeof outputs);
        outputs.count = cases[c].outputs;
        mgv__plan_want(plan, &outputs);
        mgv__plan_schedule(plan, cases[c].images, 66);
        kernel = mgv__plan_kernel(plan);
        snprintf(name, sizeof name, "megavit_encode_%ssm_90a", cases[c].kernel);
        assert_string_equal(plan->machine->kernels[kernel].name, name);
        assert_true(mgv__plan_suits_kernel(plan, kernel));
        assert_int_equal(plan->machine->kernels[kernel].regime, plan->regime);
        for (i = 0; i < plan->op_count; i++)
            if (plan->ops[i].kernel.column_tiles) assert_true(plan->machine->kernels[kernel].kinds >> plan->ops[i].kernel.kind & 1);
        plan_free(plan);
    }
}

/* The latency regime takes what the throughput regime takes: heads of any width and number, rows that end within 64 columns, pooling heads
   over any number of tokens of one size or of pictures of any; of more pictures than it has rows for under a pooling head, or of which the
   schedule says nothing, it is the other's. Which is chosen, predicted times say, and of pictures of any size the number of tokens. */
static void test_latency_takes_all_shapes(void **state) {
    static const struct {
        uint32_t side, heads, head_dim, images, pictures; /* side 0: pictures of any size, of so many tokens in all */
        const char *kernel;
        int chosen; /* by prediction */
    } cases[] = {{224, 8, 104, 2, 0, "wide", 0},   {384, 8, 128, 1, 0, "wide", 0},  {512, 8, 112, 4, 0, "wide", 0},
                 {384, 12, 64, 1, 0, "all", 0},    {1024, 12, 64, 1, 0, "all", 0},  {224, 24, 64, 8, 0, "all", 0},
                 {224, 3, 24, 2, 0, "all", 0},     {512, 11, 80, 4, 0, "all", 0},   {0, 12, 64, 4, 4, "all", 1},
                 {0, 12, 64, 256, 1, "all", 1},    {0, 12, 64, 4096, 8, "all", 0},  {0, 16, 72, 1000, 2, "all", 0},
                 {0, 8, 128, 1024, 4, "wide", 0},  {0, 3, 24, 300, 3, "all", 0},    {0, 12, 64, 512, 9, NULL, 0}};
    uint32_t c;
    (void)state;
    for (c = 0; c < COUNT_OF(cases); c++) {
        mgv__config config;
        mgv__plan *plan;
        mgv_error error;
        char name[64];
        config_of(&config, cases[c].side, 16, 2);
        config.heads = cases[c].heads;
        config.head_dim = cases[c].head_dim;
        config.hidden = config.heads * config.head_dim;
        config.intermediate = 4 * config.hidden;
        if (cases[c].side == 0) {
            config.family = MGV_FAMILY_SIGLIP2;
            config.position_side = 16;
            config.interpolation = MGV__TABLE_LINEAR_AREA;
            config.pixels.channels_last = 1;
        }
        plan = plan_of(&config, cases[c].images, 0, 1);
        assert_true(plan->pools && mgv__plan_latency_supported(plan));
        if (cases[c].side == 0) plan->max_pictures = plan->pictures = cases[c].pictures;
        plan->latency_clusters = 30;
        plan->forced_regime = 1 + MGV__LATENCY;
        mgv__plan_schedule(plan, cases[c].images, 66);
        assert_int_equal(plan->regime, cases[c].kernel ? MGV__LATENCY : MGV__THROUGHPUT);
        if (mgv__plan_validate(plan, plan->counts, &error) != MGV_OK) fail_msg("%s", error.message);
        if (cases[c].kernel) {
            snprintf(name, sizeof name, "megavit_encode_latency_%s_sm_90a", cases[c].kernel);
            assert_string_equal(plan->machine->kernels[mgv__plan_kernel(plan)].name, name);
        }
        plan->forced_regime = 0;
        mgv__plan_schedule(plan, cases[c].images, 66);
        if ((plan->regime == MGV__LATENCY) != cases[c].chosen) fail_msg("case %u is in regime %u", c, plan->regime);
        assert_int_equal(mgv__plan_validate(plan, plan->counts, NULL), MGV_OK);
        if (cases[c].side == 0 && cases[c].images > MGV__PLAN_LATENCY_TOKENS) assert_int_equal(plan->regime, MGV__THROUGHPUT);
        if (cases[c].side == 0) { /* arithmetic is that of so many tokens, of as many pictures as they may be of */
            plan->schedule_images = cases[c].images;
            plan->forced_regime = 1 + MGV__LATENCY;
            mgv__plan_schedule(plan, cases[c].images, 66);
            assert_int_equal(plan->regime, cases[c].images > MGV__LATENCY_MAX_IMAGES ? MGV__THROUGHPUT : MGV__LATENCY);
        }
        plan_free(plan);
    }
}

static void test_models_beyond_the_kernel_are_refused(void **state) {
    mgv__config config;
    mgv__plan plan;
    mgv_error error;
    uint32_t images;
    (void)state;
#define BEYOND(change, word)                                                                            \
    do {                                                                                                \
        config_of(&config, 224, 16, 12);                                                                \
        change;                                                                                         \
        assert_int_equal(lay_out(&plan, &config, 1, 0, &error), MGV_ERROR_UNSUPPORTED);        \
        if (!strstr(error.message, word)) fail_msg("expected \"%s\" in: %s", word, error.message);      \
    } while (0)
    BEYOND((config.family = MGV_FAMILY_QWEN3_VL, config.rope_theta = 10000, config.temporal_patch = config.merge = 2, config.position_side = 14, config.out_hidden = 512), "patches of one frame, or of two in clips of any size");
    BEYOND(config.head_dim = 136, "to 128 columns, not 136");
    BEYOND(config.head_dim = 60, "to 128 columns, not 60");
    BEYOND((config.heads = 1, config.hidden = 64), "2 to 64 heads");
    BEYOND(config.heads = 65, "2 to 64 heads");
    BEYOND(config.hidden = 800, "together as wide as the stream");
    BEYOND((config.heads = 25, config.hidden = 1600), "widths up to 1536");
    BEYOND(config.layers = 101, "512 operations at most");
    BEYOND(config.activation = MGV__ACT_SILU, "no other activation of a pooling head than a GELU and ReLU: operation 89, \"head fc1\"");
    BEYOND((config.patch = 19, config.image_size = 209), "even side, not 19"); /* a row of a patch has an odd number of bytes */
    BEYOND(config.channels = 1, "three channels, not 1");
    BEYOND((config.patch = 2, config.image_size = 2050), "up to 1048576 patches, not 1050625");
    BEYOND((config.patch = 4, config.image_size = 16384, config.heads = 4, config.hidden = 256), "patches, not 16777216");
#undef BEYOND
    config_of(&config, 224, 16, 100);
    config.heads = 24;
    config.hidden = 1536;
    assert_int_equal(lay_out(&plan, &config, 1, 0, &error), MGV_OK); /* as wide and as deep as may be */
    config_of(&config, 2048, 2, 1);
    config.heads = 2;
    config.hidden = 128;
    assert_int_equal(lay_out(&plan, &config, 1, 0, &error), MGV_OK); /* as many patches as may be */
    assert_true(plan.vector_count > (1u << 20) * 128u);
    config_of(&config, 224, 16, 12);
    assert_int_equal(lay_out(&plan, &config, 100000000, 0, &error), MGV_ERROR_CAPACITY);
    config_of(&config, 512, 16, 2); /* as many groups of images as wrap around 2^32 */
    for (images = 0; images < 40; images++) {
        assert_int_equal(lay_out(&plan, &config, UINT32_MAX - images, 0, &error), MGV_ERROR_CAPACITY);
        assert_non_null(strstr(error.message, "more than one engine's GPU buffers hold"));
    }
}

/* Rows of an MLP are filled up to whole units of 16 bytes: with weights and biases of zero, for which the next product's are zero, too. */
static void test_mlps_of_any_width(void **state) {
    static const uint32_t images[] = {1, 8, 64};
    plan_model *m = (plan_model *)malloc(sizeof *m);
    mgv__config config;
    mgv__plan plan;
    mgv_error error;
    uint8_t *packed;
    uint32_t i, k, row;
    (void)state;
    config_of(&config, 224, 16, 1);
    config.intermediate = 1540;
    config.pixels.do_normalize = config.pixels.do_rescale = 0;
    plan_model_make(m, &config, 1);
    assert_int_equal(mgv__plan_layout(&plan, MGV__MACHINE_DEFAULT, MGV_PRECISION_AUTO, &m->model.config, &m->model.program, 64, 64, 0,
                                      &error), MGV_OK);
    assert_int_equal(mgv__plan_take_room(&heap, &plan, &error), MGV_OK);
    assert_int_equal(plan.buffers[MGV__DEVICE_MLP].columns, 1544);
    assert_int_equal(plan.buffers[MGV__DEVICE_HEAD_MLP].columns, 1544);
    for (i = 0; i < COUNT_OF(images); i++) {
        mgv__plan_schedule(&plan, images[i], 66);
        if (mgv__plan_validate(&plan, plan.counts, &error) != MGV_OK) fail_msg("%s", error.message);
    }
    packed = (uint8_t *)mgv__alloc(&heap, (size_t)mgv__plan_packed_bytes(&plan));
    mgv__plan_pack(&plan, m->model.tensors, packed);
    for (i = 0; i < plan.op_count; i++) {
        const mgv__plan_op *op = &plan.ops[i];
        const uint16_t *weights = (const uint16_t *)(const void *)(packed + plan.weights_offset - plan.vectors_offset + plan.pack_offset[op->pack]);
        const float *bias = (const float *)(const void *)packed + op->bias;
        const int makes = op->target == MGV__DEVICE_MLP || op->target == MGV__DEVICE_HEAD_MLP, takes = op->pack == MGV__PACK_MLP;
        if (op->packs != MGV__PACKS_PRODUCT) continue;
        for (row = 0; row < op->kernel.columns; row++) {
            const uint16_t *w = weights + (size_t)(op->b_row + row) * plan.pack_pitch[op->pack];
            const int filled = makes && row >= 1540;
            uint32_t values = 0;
            for (k = 0; k < plan.pack_columns[op->pack]; k++) {
                values += w[k] != 0;
                if (takes && k >= 1540) assert_int_equal(w[k], 0);
            }
            assert_int_equal(values == 0, filled);
            if (filled) assert_true(bias[row] == 0);
        }
    }
    mgv__free(&heap, packed);
    mgv__free(&heap, plan.segments);
    mgv__free(&heap, plan.counts);
    mgv__free(&heap, plan.times);
    mgv__free(&heap, plan.tile_cluster);
    mgv__free(&heap, plan.deal);
    plan_model_free(m);
    free(m);
}

/* Statistics of all rows of all groups lie in front of the head's, and those in front of the vectors: as stats_place in
   kernels/sm_90a/tiles.cuh and gemv_statistics in kernels/sm_90a/siglip_head/gemv.cuh say. */
static void test_statistics_have_room(void **state) {
    static const uint32_t cases[][3] = {{224, 16, 592}, {224, 16, 1}, {112, 16, 7}, {272, 16, 9}, {384, 14, 5}}; /* side, patch, images */
    static const uint32_t groups[] = {0, 1, 3};
    uint32_t c, g, images;
    mgv__plan refused;
    mgv__config config;
    mgv_error error;
    (void)state;
    for (c = 0; c < COUNT_OF(cases); c++)
        for (g = 0; g < COUNT_OF(groups); g++) {
            mgv__plan *plan;
            config_of(&config, cases[c][0], cases[c][1], 1);
            plan = plan_of(&config, cases[c][2], groups[g], 1);
            for (images = 1; images <= cases[c][2]; images += 1 + images / 3) {
                const uint64_t rows = (uint64_t)plan->tokens * images, head = mgv__plan_stats(plan, MGV__DEVICE_HEAD_OUT);
                uint64_t row, last = 0;
                mgv__plan_schedule(plan, images, 66);
                for (row = 0; row < rows; row++) {
                    const uint32_t in_group = plan->group_images * plan->tokens, group = (uint32_t)(row / in_group);
                    const uint64_t tile = group * MGV__GROUP_TILES(in_group) + row % in_group / MGV__STATS_ROWS;
                    const uint64_t at = tile * config.hidden * 2 + row % in_group % MGV__STATS_ROWS * 2; /* of the first part */
                    assert_true(row == 0 || at > last);
                    last = at;
                }
                assert_true(last + (config.hidden / 64 - 1) * 2 * MGV__STATS_ROWS + 2 <= head); /* the last part's */
                assert_true(plan->stats_offset + (head + (uint64_t)images * (config.hidden / 8) * 2) * 4 <= plan->vectors_offset);
            }
            plan_free(plan);
        }
    /* rows of which there are few enough are too many when each image's begin with a tile of their own */
    config_of(&config, 112, 16, 1);
    assert_int_equal(lay_out(&refused, &config, 1000000, 1, &error), MGV_ERROR_CAPACITY);
    assert_non_null(strstr(error.message, "more than one engine's GPU buffers hold"));
    assert_int_equal(lay_out(&refused, &config, 1000000, 60, &error), MGV_OK);
}

/* A box of the pooling head's tokens fits its stage, and a model whose tokens do not all lie in the ring has no such map. */
static void test_pooled_tokens_fit_the_ring(void **state) {
    static const struct { uint32_t side, heads, used; } cases[] = {{224, 12, 1}, {256, 16, 1}, {48, 3, 1}, {768, 12, 0}};
    uint32_t c;
    (void)state;
    for (c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        mgv__config config;
        mgv__plan *plan;
        const mgv__map_desc *m;
        config_of(&config, cases[c].side, 16, 1);
        config.heads = cases[c].heads;
        config.hidden = 64 * cases[c].heads;
        plan = plan_of(&config, 2, 0, 1);
        assert_int_equal(plan->views.latency_pool != MGV__NO_MAP, cases[c].used);
        assert_true(mgv__plan_latency_supported(plan));
        if (cases[c].used) {
            m = &plan->maps[plan->views.latency_pool];
            assert_true(m->box[1] % 8 == 0 && m->box[1] * MGV__LATENCY_CLUSTER >= plan->tokens);
            assert_true(m->box[0] * m->box[1] * m->box[2] * m->box[3] * 2 <= MGV__LATENCY_ROW_BYTES);
            assert_int_equal(m->dims[3], plan->room_images);
            assert_true(m->dims[2] <= 2 * MGV__LATENCY_ROW_STAGES && m->dims[0] * m->dims[2] == config.hidden);
        }
        plan_free(plan);
    }
}

/* What the model's operation of this name takes for one of so many pictures, by the shapes alone: a multiply-add is two. */
static double flops_of(const char *label, const mgv__config *c, uint32_t images, uint32_t regime) {
    const double n = (c->image_size / c->patch) * (c->image_size / c->patch), d = c->hidden, m = c->intermediate;
    if (strcmp(label, "patches") == 0) return 0;
    if (strcmp(label, "patch embed") == 0) return 2 * n * d * 3 * c->patch * c->patch;
    if (strcmp(label, "qkv") == 0) return 2 * n * 3 * d * d;
    if (strcmp(label, "attention") == 0) return 4 * n * n * d;
    if (strcmp(label, "out") == 0) return 2 * n * d * d;
    if (strcmp(label, "fc1") == 0 || strcmp(label, "fc2") == 0) return 2 * n * d * m;
    /* scores and sums of whole rows, for each head: one of them an operation where there are many tokens, else both the first's for few pictures, the second's for many */
    if (regime == MGV__LATENCY) { /* all of it and the values the second's */
        if (strcmp(label, "head scores") == 0 || strcmp(label, "head values") == 0) return 0;
        if (strcmp(label, "head sums") == 0) return 4 * n * c->heads * d + 2 * d * d;
    }
    if (strcmp(label, "head scores") == 0) return (n > MGV__MAX_KEYS ? 1 : images <= MGV__GEMV_MAX_ROWS ? 2 : 0) * 2 * n * c->heads * d;
    if (strcmp(label, "head sums") == 0) return (n > MGV__MAX_KEYS ? 1 : images <= MGV__GEMV_MAX_ROWS ? 0 : 2) * 2 * n * c->heads * d;
    if (strcmp(label, "head values") == 0 || strcmp(label, "head out") == 0) return 2 * d * d;
    if (strcmp(label, "head fc1") == 0 || strcmp(label, "head fc2") == 0) return 2 * d * m;
    fail_msg("what is %s?", label);
    return 0;
}

static int nearly(double a, double b) { return fabs(a - b) <= 1e-9 * fabs(b); }

/* The table of `megavit plan` adds up: FLOPs are the model's, tiles the schedule's, bytes at least each operand once, what operations
   add the time of all tiles. */
static void test_costs_add_up(void **state) {
    static const uint32_t images[] = {1, 7, 64, 200, 40}, clusters[] = {1, 17, 66};
    uint32_t i, c, k;
    (void)state;
    for (i = 0; i < 5; i++)
        for (c = 0; c < 3; c++) {
            mgv__config config;
            mgv__plan *plan;
            mgv_schedule_info info;
            mgv_schedule_op ops[64];
            double us = 0, flops = 0, tile_flops = 0, l2_bytes = 0, *scratch;
            uint32_t tiles = 0;
            config_of(&config, i == 4 ? 384 : 224, i == 4 ? 14 : 16, 3);
            if (i == 4) { /* so400m's shape at 384 px */
                config.hidden = 1152;
                config.heads = 16;
                config.head_dim = 72;
                config.intermediate = 4304;
            }
            plan = plan_of(&config, 200, 13, 1);
            plan->latency_clusters = mgv__plan_latency_supported(plan) ? clusters[c] / 2 : 0;
            mgv__plan_schedule(plan, images[i], clusters[c]);
            assert_int_equal(plan->regime, images[i] == 1 && clusters[c] > 1 ? MGV__LATENCY : MGV__THROUGHPUT);
            scratch = (double *)malloc(mgv__schedule_scratch(plan) * sizeof *scratch);
            mgv__schedule_fill(plan, &info, ops, scratch);
            free(scratch);
            assert_int_equal(info.op_count, plan->op_count);
            for (k = 0; k < info.op_count; k++) {
                const mgv_schedule_op *op = &ops[k];
                const mgv__kernel_op *kernel = &plan->ops[k].kernel;
                if (!nearly(op->flops, images[i] * flops_of(op->label, &config, images[i], plan->regime))) fail_msg("%s: %g FLOP", op->label, op->flops);
                assert_true(op->tile_flops >= op->flops);
                l2_bytes += (double)op->l2_bytes;
                if (op->tiles == 0) { /* the pooling head's sums do the operation before for many pictures, and for few the one behind */
                    assert_true(plan->regime == MGV__LATENCY || images[i] > MGV__GEMV_MAX_ROWS);
                    assert_true(strcmp(op->label, "head scores") == 0 || (plan->regime == MGV__LATENCY && plan->ops[k].by_head));
                    continue;
                }
                const uint32_t last_is_half = kernel->kind == MGV__KERNEL_GEMM_256 && (kernel->columns - 1) % 256 < 128;
                const double whole = op->tiles - last_is_half * 0.5 * op->tiles / kernel->column_tiles;
                assert_true(op->clusters >= 1 && op->clusters <= info.clusters && op->waves * info.clusters >= whole * (1 - 1e-9));
                assert_true(op->us >= 0);
                assert_true(op->plain_memory_bytes >= op->memory_bytes || info.groups > 1);
                if (strcmp(op->kind, "product") == 0) { /* A for each column tile, B for each tile, the result once: nothing less */
                    const double a = 2.0 * kernel->rows_total * plan->pack_columns[plan->ops[k].pack] * kernel->column_tiles;
                    const double b = 2.0 * op->tiles / kernel->column_tiles * kernel->columns * plan->pack_columns[plan->ops[k].pack];
                    const double out = 2.0 * kernel->rows_total * kernel->columns;
                    assert_true((double)op->l2_bytes >= a + b + out - 1 && (double)op->l2_bytes <= 2.1 * (a + b) + 4 * out);
                    const double area = (double)op->tiles * info.cluster_size * op->tile_rows * op->tile_columns;
                    assert_true(area >= (double)kernel->rows_total * kernel->columns);
                }
                us += op->us;
                flops += op->flops;
                tile_flops += op->tile_flops;
                tiles += op->tiles;
            }
            assert_int_equal(tiles, info.tiles);
            assert_true(nearly(us, info.tiles_us) && info.tiles_us >= info.floor_us - info.chain_us);
            assert_true(nearly(info.power_us, tile_flops * info.joules_a_flop / info.watts * 1e6));
            /* at the clock of that time, which is no higher than the full one, energy is at the card's limit or below */
            const double clock = plan->machine->costs.clock_hz * info.tiles_us / info.us / plan->machine->costs.joules_hz;
            assert_true(info.us >= info.tiles_us && info.power_us * clock * clock <= info.us * (1 + 1e-9));
            assert_true(info.us == info.tiles_us || nearly(info.power_us * clock * clock, info.us));
            assert_true(nearly(flops / info.matrix_flops * 1e6, info.matrix_us));
            assert_true(info.l2_bandwidth > 0 && nearly(l2_bytes / info.l2_bandwidth * 1e6, info.l2_us));
            assert_int_equal(info.shared_bytes, plan->regime == MGV__LATENCY ? MGV__LATENCY_SHARED_BYTES : MGV__SHARED_BYTES);
            assert_true(info.shared_bytes <= info.shared_limit && info.registers <= info.register_limit);
            plan_free(plan);
        }
}

/* No group, row or counter is beyond what an engine has, whatever its largest batch and the one that it is given. */
static void test_every_batch_finds_room(void **state) {
    static const uint32_t patches[] = {4, 8, 14, 16, 24, 32, 64, 71, 92, 100};
    uint32_t i, room, images;
    (void)state;
    for (i = 0; i < sizeof patches / sizeof patches[0]; i++) {
        mgv__config config;
        config_of(&config, patches[i] * 16, 16, 1);
        for (room = 1; room < 800; room += room < 100 ? 1 : 37) {
            mgv__plan *plan = plan_of(&config, room, 0, 1);
            for (images = 1; images <= room; images += images < 100 ? 1 : 11) {
                mgv__plan_group(plan, images);
                assert_true(plan->groups * plan->group_images >= images);
                assert_int_equal(mgv__plan_check_room(plan, NULL), MGV_OK);
            }
            plan_free(plan);
        }
    }
}

/* A batch is grouped as in an engine made for just as many images: the same list, and the same groups in its maps. */
static void test_groups_are_those_of_the_batch(void **state) {
    static const struct {
        uint32_t room, said, images, group_images, groups;
    } cases[] = {{592, 0, 592, 60, 10}, {592, 0, 60, 60, 10}, {592, 0, 61, 61, 1}, {592, 0, 64, 64, 1}, {592, 0, 128, 128, 1},
                 {592, 0, 129, 66, 2}, {592, 0, 256, 128, 2}, {592, 0, 257, 60, 5}, {256, 0, 130, 66, 2}, {256, 0, 128, 128, 2},
                 {130, 0, 129, 66, 2}, {592, 60, 64, 60, 10}, {64, 0, 20, 64, 1}};
    uint32_t c, i;
    (void)state;
    for (c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        mgv__config config;
        mgv__plan *plan, *own;
        mgv_error error;
        config_of(&config, 224, 16, 12);
        plan = plan_of(&config, cases[c].room, cases[c].said, 1);
        own = plan_of(&config, cases[c].images, cases[c].said, 1);
        mgv__plan_schedule(plan, cases[c].room, 66); /* whatever was before */
        mgv__plan_schedule(plan, cases[c].images, 66);
        mgv__plan_schedule(own, cases[c].images, 66);
        assert_int_equal(mgv__plan_validate(plan, plan->counts, &error), MGV_OK);
        assert_int_equal(plan->group_images, cases[c].group_images);
        assert_int_equal(plan->groups, cases[c].groups);
        if (plan->group_images == own->group_images) {
            assert_int_equal(plan->segment_count, own->segment_count);
            assert_memory_equal(plan->segments, own->segments, (plan->segment_count + 1) * sizeof *plan->segments);
            assert_int_equal(plan->map_count, own->map_count);
            for (i = 0; i < own->map_count; i++)
                if (own->maps[i].dims[1] == own->group_images * own->tokens) assert_int_equal(plan->maps[i].dims[1], own->maps[i].dims[1]);
        }
        assert_int_equal(plan->maps[plan->views.store[MGV__DEVICE_STREAM]].dims[1], plan->group_images * plan->tokens);
        assert_int_equal(plan->maps[plan->views.store[MGV__DEVICE_STREAM]].dims[2], plan->groups);
        for (i = 0; i < plan->map_count; i++) { /* no view reaches beyond its rows */
            const mgv__map_desc *m = &plan->maps[i];
            if (m->pack >= 0 || m->dims[3]) continue;
            assert_true(m->dims[1] * (m->dims[2] ? m->dims[2] : 1) * (uint64_t)plan->buffers[m->buffer].pitch <=
                        plan->buffers[m->buffer].rows * plan->buffers[m->buffer].pitch *
                            (m->strides[0] < (uint64_t)plan->buffers[m->buffer].pitch * m->element_bytes ? config.heads : 1u));
        }
        plan_free(plan);
        plan_free(own);
    }
}

/* The pass over all tiles cannot take longer than operations with a wall between them, nor less than the chain of operations or the work
   shared out over all clusters; and where each operation is one tile's rows and a round of the clusters, it takes just the chain. */
static void test_a_schedule_takes_as_long_as_its_tiles(void **state) {
    static const uint32_t images[] = {1, 2, 5, 8, 40, 90, 7}, clusters[] = {1, 5, 66};
    uint32_t i, c, s, exact = 0, halves = 0;
    (void)state;
    for (i = 0; i < sizeof images / sizeof images[0]; i++)
        for (c = 0; c < 3; c++) {
            mgv__config config;
            mgv__plan *plan;
            mgv_schedule_op ops[64];
            double walls = 0, chain = 0, work = 0, run, *scratch;
            int one_round = images[i] == 1 && clusters[c] == 66;
            config_of(&config, 224, 16, 3);
            if (images[i] == 7) { /* 4.5 times 256 columns: the last tile is half as wide */
                config.hidden = 1152;
                config.heads = 18;
            }
            plan = plan_of(&config, 90, images[i] == 90 ? 40 : 0, 1);
            mgv__plan_schedule(plan, images[i], clusters[c]);
            assert_int_equal(plan->regime, MGV__THROUGHPUT);
            memset(ops, 0, sizeof ops);
            scratch = (double *)malloc(mgv__schedule_scratch(plan) * sizeof *scratch);
            run = mgv__schedule_run(plan, ops, scratch);
            for (s = 0; s < plan->segment_count; s++) {
                const mgv__kernel_segment *segment = &plan->segments[s];
                const uint32_t tiles = segment[1].first_tile - segment->first_tile, rounds = mgv__ceil_div(tiles, clusters[c]);
                const mgv__kernel_op *k = &plan->ops[segment->op].kernel;
                const double us = mgv__schedule_tile_us(plan, segment, k);
                mgv__kernel_op half = *k;
                double shorter = 0; /* all tiles of the operation together */
                assert_true(us > 0);
                if (k->kind == MGV__KERNEL_GEMM_256 && (k->columns - 1) % 256 < 128) {
                    half.kind = MGV__KERNEL_GEMM_128;
                    half.of.gemm.b_map = half.of.gemm.narrow_map;
                    shorter = tiles / k->column_tiles * (us - mgv__schedule_tile_us(plan, segment, &half));
                    assert_true(shorter > 0);
                    halves++;
                }
                walls += rounds * us - (clusters[c] == 1) * shorter + (s > 0) * plan->machine->costs.handoff_us;
                work += (tiles * us - shorter) / clusters[c];
                if (segment->group == 0) chain += us + (s > 0) * plan->machine->costs.handoff_us;
                one_round &= rounds == 1;
            }
            assert_true(run <= walls * (1 + 1e-9) && run >= work * (1 - 1e-9));
            assert_true(run >= chain * (1 - 1e-9));
            if (one_round && ++exact) assert_true(nearly(run, chain));
            free(scratch);
            plan_free(plan);
        }
    assert_int_equal(exact, 1);
    assert_true(halves > 0);
}

/* Any call that is wrong, and memory that is missing at any time, is an error that leaves nothing behind. */
static void test_a_schedule_is_asked_for(void **state) {
    micro_siglip micro;
    mgv_error error;
    mgv_model *model;
    mgv_allocator kept;
    mgv_schedule_desc desc;
    mgv_schedule_info info, first;
    mgv_schedule_op ops[64];
    uint64_t n;
    (void)state;
    micro_make(&micro, 1);
    model = micro_open(&micro, &error);
    if (!model) fail_msg("%s", error.message);
    memset(&desc, 0, sizeof desc);
    desc.image_count = 40;
    assert_int_equal(mgv_model_get_schedule(NULL, &desc, &info, NULL, 0, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_model_get_schedule(model, &desc, NULL, NULL, 0, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_model_get_schedule(model, &desc, &info, NULL, 0, &error), MGV_OK);
    assert_true(info.op_count > 5 && info.op_count <= COUNT_OF(ops) && info.us > 0 && info.nominal_flops > 0);
    assert_int_equal(mgv_model_get_schedule(model, &desc, &first, ops, info.op_count - 1, &error), MGV_ERROR_CAPACITY);
    kept = model->allocator;
    for (n = 1;; n++) {
        counting_allocator counts;
        mgv_result result;
        model->allocator = counting_allocator_make(&counts);
        counts.fail_at = n;
        result = mgv_model_get_schedule(model, &desc, &first, ops, COUNT_OF(ops), &error);
        model->allocator = kept;
        assert_int_equal(counts.live_blocks, 0);
        if (result == MGV_OK) break;
        assert_int_equal(result, MGV_ERROR_NOMEM);
        assert_true(error.message[0] != 0);
    }
    assert_true(n > 3);
    assert_memory_equal(&info, &first, sizeof info);
    desc.multiprocessors = 1;
    assert_int_equal(mgv_model_get_schedule(model, &desc, &info, NULL, 0, &error), MGV_ERROR_ARGUMENT);
    mgv_model_close(model);
    micro_free(&micro);
}

/* Rows of weights behind a folded norm: the kernel leaves the norm's mean out because their rounded sums vanish. */
static void test_centred_rows_sum_to_zero(void **state) {
    enum { WIDTH = 768 };
    static double exact[WIDTH];
    static uint16_t rounded[WIDTH];
    uint32_t row, k, random = 1;
    (void)state;
    for (row = 0; row < 400; row++) {
        const int half = row % 2; /* as f16 */
        double mean = 0, sum = 0, plain = 0, smallest = 1;
        for (k = 0; k < WIDTH; k++) {
            random = random * 1664525u + 1013904223u;
            exact[k] = (double)(int32_t)random / 2147483648.0 * 0.05;
            mean += exact[k] / WIDTH;
        }
        for (k = 0; k < WIDTH; k++) {
            exact[k] -= mean;
            plain += mgv__value16(mgv__round16((float)exact[k], half), half);
        }
        mgv__pack_centred(rounded, exact, WIDTH, half);
        for (k = 0; k < WIDTH; k++) {
            const double value = mgv__value16(rounded[k], half), ulp = half ? fmax(fabs(exact[k]) / 1024, 1.0 / (1 << 24)) : fabs(exact[k]) / 128;
            assert_true(fabs(value - exact[k]) <= ulp); /* one of its two neighbours */
            sum += value;
            if (fabs(exact[k]) > 0.025 && ulp < smallest) smallest = ulp;
        }
        assert_true(fabs(sum) < smallest / 2);
        assert_true(fabs(sum) <= fabs(plain));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups_are_those_of_the_batch),
        cmocka_unit_test(test_every_batch_finds_room),
        cmocka_unit_test(test_a_schedule_takes_as_long_as_its_tiles),
        cmocka_unit_test(test_a_schedule_is_asked_for),
        cmocka_unit_test(test_centred_rows_sum_to_zero),
        cmocka_unit_test(test_every_schedule_is_proved),
        cmocka_unit_test(test_models_without_a_head),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_own_heads), cmocka_unit_test(test_split_products), cmocka_unit_test(test_widths),
        cmocka_unit_test(test_narrow_models_are_not_split),
        cmocka_unit_test(test_last_rows_are_shared), cmocka_unit_test(test_heads_do_not_share_rows),
        cmocka_unit_test(test_wrong_plans_are_refused),
        cmocka_unit_test(test_who_signals),
        cmocka_unit_test(test_statistics_have_room), cmocka_unit_test(test_mlps_of_any_width),
        cmocka_unit_test(test_pooled_tokens_fit_the_ring),
        cmocka_unit_test(test_costs_add_up),
        cmocka_unit_test(test_tiles_are_dealt),
        cmocka_unit_test(test_parts_and_ablations),
        cmocka_unit_test(test_kernels),
        cmocka_unit_test(test_tiles_of_no_kernel),
        cmocka_unit_test(test_parts_of_statistics),
        cmocka_unit_test(test_latency_takes_all_shapes),
        cmocka_unit_test(test_latency_blocks),
        cmocka_unit_test(test_latency_thin),
        cmocka_unit_test(test_outputs),
        cmocka_unit_test(test_models_beyond_the_kernel_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
