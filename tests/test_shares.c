/* K of a product shared out over clusters, where pictures of any size have few tokens: when, in how many shares, and what the schedule is
   then. */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_PLAN
#include "megavit.h"

#include "support.h"
#include "plan_model.h"

enum { CLUSTERS = 66 };

static void make_tower(plan_model *m, uint32_t hidden, uint32_t intermediate) {
    mgv__config config;
    memset(&config, 0, sizeof config);
    config.family = MGV_FAMILY_QWEN3_VL;
    config.hidden = hidden;
    config.intermediate = intermediate;
    config.layers = 2;
    config.heads = hidden % 128 ? 12 : 16;
    config.head_dim = hidden / config.heads;
    config.channels = 3;
    config.patch = 16;
    config.merge = config.temporal_patch = 2;
    config.position_side = 48;
    config.out_hidden = 2048;
    config.rope_theta = 10000;
    config.epsilon = 1e-6f;
    config.activation = MGV__ACT_GELU_TANH;
    config.pixels.do_resize = config.pixels.do_rescale = config.pixels.do_normalize = 1;
    plan_model_make(m, &config, 0);
}
static mgv__plan *plan_for(const plan_model *m, uint32_t tokens, uint32_t most) {
    mgv_result result;
    mgv_error error;
    mgv__plan *plan = mgv__plan_make(&m->model.allocator, MGV_PRECISION_AUTO, &m->model.config, &m->model.program, most, 4, &result,
                                     &error);
    if (!plan) fail_msg("%s", error.message);
    assert_true(tokens <= most);
    return plan;
}
/* The schedule of so many tokens is proved; the shares of K of every layer, 1: K is not shared out. */
static uint32_t shares_of(mgv__plan *plan, uint32_t tokens, uint32_t clusters) {
    uint32_t i, shares = 0, layers = 0;
    mgv_error error;
    mgv__plan_schedule(plan, tokens, clusters);
    if (mgv__plan_validate(plan, plan->counts, &error) != MGV_OK) fail_msg("%u tokens: %s", tokens, error.message);
    for (i = 0; i < plan->op_count; i++) {
        const mgv__kernel_op *sums = &plan->ops[i].kernel, *product;
        if (plan->ops[i].kind != MGV__KERNEL_SHARES) continue;
        product = &plan->ops[i - 1].kernel;
        layers++;
        assert_true(layers == 1 || sums->of.shares.count == shares);
        shares = sums->of.shares.count;
        assert_int_equal(plan->ops[i].is_part, shares == 1);
        assert_int_equal(plan->ops[i - 1].is_part, shares > 1);
        assert_int_equal(sums->column_tiles == 0, shares == 1);
        if (shares == 1) {
            assert_true(product->flags & MGV__KERNEL_STATS && product->flags & MGV__KERNEL_RESIDUAL);
            continue;
        }
        assert_int_equal(product->kind, MGV__KERNEL_GEMM_128);
        assert_int_equal(product->column_tiles, shares * (product->columns / 128));
        assert_int_equal(product->flags & (MGV__KERNEL_STATS | MGV__KERNEL_RESIDUAL), 0);
        /* all of K, and no share is empty */
        assert_true(product->of.gemm.blocks * shares >= mgv__ceil_div(plan->mlp, 64));
        assert_true(product->of.gemm.blocks * (shares - 1) < mgv__ceil_div(plan->mlp, 64));
        assert_true(sums->of.shares.pitch >= shares * product->columns);
    }
    assert_int_equal(layers, 2);
    return shares;
}

/* Few tokens of the widths that people run; never by the card. */
static void test_when(void **state) {
    static const struct { uint32_t hidden, intermediate, tokens, shares; } cases[] = {
        {1024, 4096, 4, 8}, {1024, 4096, 128, 8}, {768, 3072, 256, 8}, {768, 3072, 512, 5}, {768, 3072, 516, 1},
        {1024, 4096, 256, 1}, {1152, 4304, 64, 1}, {1280, 5120, 256, 1}, /* in SPLIT tiles */
        {1024, 4096, 512, 1}, {1024, 4096, 4096, 1},
        {512, 512, 256, 1},   /* a handoff costs more than so little K */
        {960, 4096, 256, 0},  /* no whole number of tiles: no such operation */
        {1024, 4072, 128, 8}  /* a last share with less */
    };
    static const uint32_t clusters[] = {CLUSTERS, 57, 10, 1};
    static plan_model m;
    uint32_t i, k;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        make_tower(&m, cases[i].hidden, cases[i].intermediate);
        for (k = 0; k < COUNT_OF(clusters); k++) {
            mgv__plan *plan = plan_for(&m, cases[i].tokens, 4096), *small = plan_for(&m, cases[i].tokens, cases[i].tokens);
            if (cases[i].shares) {
                assert_int_equal(shares_of(plan, cases[i].tokens, clusters[k]), cases[i].shares);
                assert_int_equal(shares_of(small, cases[i].tokens, clusters[k]), cases[i].shares);
            } else {
                uint32_t op;
                for (op = 0; op < plan->op_count; op++) assert_int_not_equal(plan->ops[op].kind, MGV__KERNEL_SHARES);
            }
            mgv__plan_free(&m.model.allocator, plan);
            mgv__plan_free(&m.model.allocator, small);
        }
        plan_model_free(&m);
    }
}

/* One plan, few tokens and many in turns: each has its own way, and few that are encoded as many theirs. */
static void test_in_turns(void **state) {
    static plan_model m;
    mgv__plan *plan;
    uint32_t i;
    (void)state;
    make_tower(&m, 768, 3072);
    plan = plan_for(&m, 256, 4096);
    for (i = 0; i < 2; i++) {
        assert_int_equal(shares_of(plan, 256, CLUSTERS), 8);
        assert_int_equal(shares_of(plan, 2000, CLUSTERS), 1);
    }
    plan->schedule_images = 512;
    assert_int_equal(shares_of(plan, 256, CLUSTERS), 5);
    plan->schedule_images = 2000;
    assert_int_equal(shares_of(plan, 256, CLUSTERS), 1);
    mgv__plan_free(&m.model.allocator, plan);
    plan_model_free(&m);
}

static double predicted(mgv__plan *plan, uint32_t forced, uint32_t tokens, mgv_schedule_op *ops) {
    mgv_schedule_info info;
    double *scratch;
    plan->forced_shares = forced;
    plan->pictures = 1;
    shares_of(plan, tokens, CLUSTERS);
    scratch = (double *)malloc(mgv__schedule_scratch(plan) * sizeof *scratch);
    assert_non_null(scratch);
    mgv__schedule_fill(plan, &info, ops, scratch);
    free(scratch);
    return info.us;
}
/* What is chosen is predicted to take less time than the other way, and counts the same products. */
static void test_predicted(void **state) {
    static const struct { uint32_t hidden, intermediate; } shapes[] = {{768, 3072}, {1024, 4096}, {1152, 4304}, {1280, 5120}};
    static mgv_schedule_op chosen[MGV__PLAN_MAX_OPS], whole[MGV__PLAN_MAX_OPS];
    static plan_model m;
    uint32_t i, k, tokens;
    (void)state;
    for (i = 0; i < COUNT_OF(shapes); i++) {
        mgv__plan *plan;
        make_tower(&m, shapes[i].hidden, shapes[i].intermediate);
        plan = plan_for(&m, 512, 512);
        for (tokens = 64; tokens <= 512; tokens *= 2) {
            double flops[2] = {0, 0};
            const double without = predicted(plan, 1, tokens, whole), with = predicted(plan, 0, tokens, chosen);
            assert_true(shares_of(plan, tokens, CLUSTERS) == 1 ? with == without : with < without);
            for (k = 0; k < plan->op_count; k++) {
                flops[0] += chosen[k].flops;
                flops[1] += whole[k].flops;
            }
            assert_true(flops[0] == flops[1]);
        }
        mgv__plan_free(&m.model.allocator, plan);
        plan_model_free(&m);
    }
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_when), cmocka_unit_test(test_in_turns), cmocka_unit_test(test_predicted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
