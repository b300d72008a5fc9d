/* Two accumulators in the pass that plan's times come from: a tile's products run beside the end of the one before it on its cluster, where
   both are of the same kind, for no longer than they take, and never before their rows are there. */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_PLAN
#include "megavit.h"

#include "support.h"

/* Two tiles of 10 us, 4 of them products, on one cluster: when the second one ends. */
static double second_ends(uint32_t first_key, uint32_t key, double beside, double ready) {
    static mgv__plan plan;
    double written[1] = {0}, vacant[3] = {0, 0, 0};
    mgv__schedule_unit unit = {0, {0}, 1};
    mgv__schedule_times times;
    mgv__schedule_tile_times tile = {10, 4, 0, 0};
    memset(&times, 0, sizeof times);
    plan.clusters = 1;
    times.written = written;
    times.vacant = vacant;
    times.ends = vacant + 1;
    tile.beside_us = beside;
    tile.key = first_key;
    mgv__schedule_run_tile(&plan, &unit, 0, &tile, &times);
    assert_true(written[0] == 10);
    unit.ready = ready;
    tile.key = key;
    mgv__schedule_run_tile(&plan, &unit, 1, &tile, &times);
    assert_true(written[0] == times.last && vacant[0] == times.last);
    return times.last;
}
static void test_pass(void **state) {
    (void)state;
    assert_true(second_ends(3, 3, 2.5, 0) == 17.5);
    assert_true(second_ends(3, 3, 6, 0) == 16); /* no more than the products */
    assert_true(second_ends(3, 3, 2.5, 9) == 19); /* rows come later */
    assert_true(second_ends(3, 3, 2.5, 12) == 22);
    assert_true(second_ends(3, 5, 2.5, 0) == 20); /* another kind */
    assert_true(second_ends(0, 0, 2.5, 0) == 20); /* a machine with one accumulator */
}

static void test_keys(void **state) {
    mgv__kernel_op k;
    uint32_t bf16, wide;
    (void)state;
    memset(&k, 0, sizeof k);
    k.kind = MGV__KERNEL_GEMM_192;
    assert_int_equal(mgv__beside_key(&k), 0);
    k.flags = MGV__KERNEL_WHOLE;
    bf16 = mgv__beside_key(&k);
    k.kind = MGV__KERNEL_GEMM_256;
    wide = mgv__beside_key(&k);
    k.kind = MGV__KERNEL_GEMM_192;
    k.flags |= MGV__KERNEL_MX;
    assert_true(bf16 && wide != bf16 && mgv__beside_key(&k) != bf16 && mgv__beside_key(&k) != wide);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pass), cmocka_unit_test(test_keys)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
