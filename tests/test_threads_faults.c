/* A system that gives no lock, no signal or no thread: a pool is not made, says so, and leaves nothing behind. */
#define _XOPEN_SOURCE 700
#include <pthread.h>

/* Every call that makes or ends something is counted; call number fail_at of those that make fails. */
static unsigned asked_for, fail_at;
static int alive;
static int fails(void) { return ++asked_for == fail_at; }
static int faulty_mutex_init(pthread_mutex_t *lock, const pthread_mutexattr_t *how) {
    if (fails()) return 12;
    alive++;
    return pthread_mutex_init(lock, how);
}
static int faulty_mutex_destroy(pthread_mutex_t *lock) {
    alive--;
    return pthread_mutex_destroy(lock);
}
static int faulty_cond_init(pthread_cond_t *signal, const pthread_condattr_t *how) {
    if (fails()) return 12;
    alive++;
    return pthread_cond_init(signal, how);
}
static int faulty_cond_destroy(pthread_cond_t *signal) {
    alive--;
    return pthread_cond_destroy(signal);
}
static int faulty_create(pthread_t *thread, const pthread_attr_t *how, void *(*function)(void *), void *argument) {
    if (fails()) return 11;
    alive++;
    return pthread_create(thread, how, function, argument);
}
static int faulty_join(pthread_t thread, void **value) {
    alive--;
    return pthread_join(thread, value);
}
#define pthread_mutex_init faulty_mutex_init
#define pthread_mutex_destroy faulty_mutex_destroy
#define pthread_cond_init faulty_cond_init
#define pthread_cond_destroy faulty_cond_destroy
#define pthread_create faulty_create
#define pthread_join faulty_join

#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "support.h"

enum { LOCKS = 4, THREADS = 5 };

static void add_number(void *context, uint32_t number) { ((uint32_t *)context)[number] += number; }

static void what_the_system_denies_is_an_error(void **state) {
    mgv_threads *pool;
    mgv_error error;
    (void)state;
    for (fail_at = 1; fail_at <= LOCKS + THREADS - 1; fail_at++) {
        counting_allocator counts;
        mgv_allocator allocator = counting_allocator_make(&counts);
        asked_for = 0;
        pool = (mgv_threads *)&counts;
        assert_int_equal(mgv_threads_create(&pool, THREADS, &allocator, &error), MGV_ERROR_NOMEM);
        assert_null(pool);
        if (fail_at <= LOCKS) {
            assert_non_null(strstr(error.message, "gave no lock"));
        } else {
            char words[64];
            snprintf(words, sizeof words, "started %u threads of the %u", fail_at - LOCKS, (unsigned)THREADS);
            if (!strstr(error.message, words)) fail_msg("%s", error.message);
        }
        assert_int_equal(alive, 0);
        assert_int_equal(counts.live_blocks, 0);
    }
}
/* The first call that no longer fails makes a pool that works. */
static void without_faults_all_is_made_and_ended(void **state) {
    uint32_t numbers[100], i;
    mgv_threads *pool;
    mgv_parallel_for parallel;
    (void)state;
    asked_for = fail_at = 0;
    memset(numbers, 0, sizeof numbers);
    assert_int_equal(mgv_threads_create(&pool, THREADS, NULL, NULL), MGV_OK);
    assert_int_equal(asked_for, LOCKS + THREADS - 1);
    parallel = mgv_threads_parallel_for(pool);
    assert_int_equal(parallel.threads, THREADS);
    parallel.run(parallel.user, COUNT_OF(numbers), add_number, numbers);
    for (i = 0; i < COUNT_OF(numbers); i++) assert_int_equal(numbers[i], i);
    mgv_threads_destroy(pool);
    assert_int_equal(alive, 0);
    parallel = mgv_threads_parallel_for(NULL);
    assert_true(parallel.threads == 0 && parallel.run == NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_system_denies_is_an_error),
        cmocka_unit_test(without_faults_all_is_made_and_ended),
    };
    return cmocka_run_group_tests_name("threads faults", tests, NULL, NULL);
}
