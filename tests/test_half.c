/* Numbers of 16 bits as the packed weights have them: f16 and bf16, rounded to nearest, ties to even. */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_PLAN
#include "megavit.h"

#include "support.h"

/* Largest finite value, as 16 bits. */
static uint32_t largest(int half) { return half ? 0x7BFFu : 0x7F7Fu; }

static void test_every_value_is_its_own(void **state) {
    int half;
    uint32_t h;
    (void)state;
    for (half = 0; half < 2; half++)
        for (h = 0; h <= largest(half); h++) {
            const float value = mgv__value16((uint16_t)h, half);
            assert_int_equal(mgv__round16(value, half), h);
            assert_int_equal(mgv__round16(-value, half), h | 0x8000u);
        }
}

/* What lies between two neighbours goes to the nearer one, the middle to the even one. */
static void test_between_neighbours(void **state) {
    int half;
    uint32_t h;
    (void)state;
    for (half = 0; half < 2; half++)
        for (h = half ? 0 : 0x0080u; h < largest(half); h++) { /* bf16: normal numbers, so that the middle is a float */
            const float below = mgv__value16((uint16_t)h, half), above = mgv__value16((uint16_t)(h + 1), half),
                        middle = below + (above - below) / 2;
            assert_true(below < middle && middle < above);
            assert_int_equal(mgv__round16(middle, half), h + h % 2);
            assert_int_equal(mgv__round16(nextafterf(middle, 0), half), h);
            assert_int_equal(mgv__round16(nextafterf(middle, INFINITY), half), h + 1);
            assert_int_equal(mgv__round16(-middle, half), (h + h % 2) | 0x8000u);
        }
}

static void test_the_ends_of_f16(void **state) {
    (void)state;
    assert_int_equal(mgv__f16_round(65504.0f), 0x7BFF);
    assert_int_equal(mgv__f16_round(65519.99f), 0x7BFF);
    assert_int_equal(mgv__f16_round(65520.0f), 0x7C00);
    assert_int_equal(mgv__f16_round(-3e38f), 0xFC00);
    assert_int_equal(mgv__f16_round(2.9802322e-8f), 0); /* half of the least, 2^-24: a tie with zero */
    assert_int_equal(mgv__f16_round(3e-8f), 1);
    assert_int_equal(mgv__f16_round(1e-45f), 0);
    assert_int_equal(mgv__f16_round(6.1035156e-5f), 0x0400);
    assert_true(mgv__float_of_f16(1) == 1 / 16777216.0f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_value_is_its_own),
        cmocka_unit_test(test_between_neighbours),
        cmocka_unit_test(test_the_ends_of_f16),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
