/* Waiting where the compiler is strict: -std=c99 without a feature macro hides POSIX's best clock and its sleeps (the Makefile says so). */
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

#include "support.h"

#ifdef CLOCK_MONOTONIC
#error "this test is about a compiler that hides CLOCK_MONOTONIC"
#endif

/* A wait of milliseconds needs a clock that tells them. */
static void test_the_clock_is_fine(void **state) {
    const double start = mgv__now_ms();
    double now = start;
    (void)state;
    while (now == start) now = mgv__now_ms();
    assert_true(now > start && now < start + 500);
}

static void test_laps_add_up(void **state) {
    const double start = mgv__now_ms();
    double looked = start, waited = 0;
    (void)state;
    while (waited < 20) waited += mgv__lap_ms(&looked);
    assert_true(waited >= 20 && waited < 1000);
    assert_true(fabs(looked - start - waited) < 1e-3);
    looked += 1e6; /* somebody set the clock back: no time that passed, and the next lap is right again */
    assert_true(mgv__lap_ms(&looked) == 0);
    assert_true(mgv__lap_ms(&looked) < 1000);
}

/* A wait for a GPU sleeps between two looks, but not in its first moments. A busy machine makes sleeps longer, never shorter, and takes no
   processor time of ours. */
static void test_waiting_takes_no_processor(void **state) {
    enum { LOOKS = 1000 };
    double looked, waited = 0, slept = 0;
    clock_t processor;
    int looks;
    (void)state;
    looked = mgv__now_ms();
    while (waited < MGV__SPIN_MS) {
        mgv__gpu_pause(waited);
        waited += mgv__lap_ms(&looked);
    }
    processor = clock();
    for (looks = 0; looks < LOOKS; looks++) {
        mgv__gpu_pause(waited);
        slept += mgv__lap_ms(&looked);
    }
    processor = clock() - processor;
    assert_true(slept >= LOOKS * 0.04);
    assert_true((double)processor * 1000 / CLOCKS_PER_SEC < slept * 0.6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_clock_is_fine),
        cmocka_unit_test(test_laps_add_up),
        cmocka_unit_test(test_waiting_takes_no_processor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
