/* The GPU plan, on any machine: every schedule is proved, and the proof refuses what is wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_PLAN
#include "megavit.h"

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
}

/* A laid out plan with room for its schedule. */
static mgv__plan *plan_of(const mgv__config *config, uint32_t max_images, uint32_t group_images, uint32_t lanes) {
    mgv__plan *plan = (mgv__plan *)malloc(sizeof *plan);
    mgv_error error;
    assert_non_null(plan);
    assert_int_equal(mgv__plan_layout(plan, config, max_images, group_images, &error), MGV_OK);
    plan->lanes = lanes;
    plan->segments = (mgv__kernel_segment *)calloc((size_t)plan->max_segments + 1, sizeof *plan->segments);
    plan->counts = (uint32_t *)calloc(plan->counter_count, sizeof *plan->counts);
    assert_non_null(plan->segments);
    assert_non_null(plan->counts);
    return plan;
}
static void plan_free(mgv__plan *plan) {
    free(plan->segments);
    free(plan->counts);
    free(plan);
}

static void test_every_schedule_is_proved(void **state) {
    static const uint32_t images[] = {1, 2, 3, 7, 8, 33, 64, 105, 200}, clusters[] = {1, 17, 66}, groups[] = {0, 13, 1};
    static const uint32_t shapes[][2] = {{224, 16}, {256, 16}, {256, 32}, {224, 14}};
    uint32_t s, i, c, g;
    (void)state;
    for (s = 0; s < 4; s++)
        for (g = 0; g < 3; g++) {
            mgv__config config;
            mgv__plan *plan;
            config_of(&config, shapes[s][0], shapes[s][1], 3);
            plan = plan_of(&config, 200, groups[g], 1 + g);
            for (i = 0; i < sizeof images / sizeof images[0]; i++)
                for (c = 0; c < 3; c++) {
                    mgv_error error;
                    mgv__plan_schedule(plan, images[i], clusters[c]);
                    assert_true(plan->segment_count <= plan->max_segments);
                    if (mgv__plan_validate(plan, plan->counts, &error) != MGV_OK) fail_msg("%s", error.message);
                }
            plan_free(plan);
        }
}

static void refused(mgv__plan *plan, const char *word) {
    mgv_error error;
    assert_int_equal(mgv__plan_validate(plan, plan->counts, &error), MGV_ERROR_UNSUPPORTED);
    if (!strstr(error.message, word)) fail_msg("expected \"%s\" in: %s", word, error.message);
}

static void test_wrong_plans_are_refused(void **state) {
    mgv__config config;
    mgv__plan *plan;
    mgv__kernel_segment kept;
    uint32_t i;
    (void)state;
    config_of(&config, 224, 16, 2);
    plan = plan_of(&config, 64, 0, 1);
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
    mgv__plan_schedule(plan, 7, 66); /* two operations in the wrong order */
    kept = plan->segments[3];
    plan->segments[3].op = plan->segments[4].op;
    plan->segments[4].op = kept.op;
    assert_int_equal(mgv__plan_validate(plan, plan->counts, NULL), MGV_ERROR_UNSUPPORTED);
    mgv__plan_schedule(plan, 7, 66); /* an operation that overwrites without waiting for the readers */
    plan->ops[4].kernel.wait_divisor = 0;
    refused(plan, "may still read");
    plan_free(plan);
}

static void test_models_beyond_the_kernel_are_refused(void **state) {
    mgv__config config;
    mgv__plan plan;
    mgv_error error;
    (void)state;
    config_of(&config, 224, 16, 12);
    config.head_dim = 72;
    assert_int_equal(mgv__plan_layout(&plan, &config, 1, 0, &error), MGV_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "72"));
    config_of(&config, 384, 16, 12);
    assert_int_equal(mgv__plan_layout(&plan, &config, 1, 0, &error), MGV_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "576"));
    config_of(&config, 224, 16, 12);
    assert_int_equal(mgv__plan_layout(&plan, &config, 100000000, 0, &error), MGV_ERROR_CAPACITY);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_schedule_is_proved),
        cmocka_unit_test(test_wrong_plans_are_refused),
        cmocka_unit_test(test_models_beyond_the_kernel_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
