/* mgv_threads: every task runs exactly once, from any number of threads and callers, and a pool that cannot be made
   leaves nothing behind. */
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

#include <setjmp.h>
#include <stdio.h>
#include <cmocka.h>
#include <pthread.h>

enum { MAX_TASKS = 300 };

typedef struct tally {
    uint32_t ran[MAX_TASKS]; /* each is written by the task of its number alone */
} tally;

static void count_task(void *context, uint32_t index) { ((tally *)context)->ran[index]++; }

static void test_every_task_runs_once(void **state) {
    static const uint32_t sizes[] = {1, 2, 3, 8, 33};
    size_t s;
    (void)state;
    for (s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        mgv_threads *pool = NULL;
        mgv_parallel_for parallel;
        uint32_t calls;
        assert_int_equal(mgv_threads_create(&pool, sizes[s], NULL, NULL), MGV_OK);
        parallel = mgv_threads_parallel_for(pool);
        assert_int_equal(parallel.threads, sizes[s]);
        for (calls = 0; calls < 2000; calls++) {
            const uint32_t count = calls * 7 % MAX_TASKS;
            tally t;
            uint32_t i;
            memset(&t, 0, sizeof(t));
            parallel.run(parallel.user, count, count_task, &t);
            for (i = 0; i < MAX_TASKS; i++) assert_int_equal(t.ran[i], i < count);
        }
        mgv_threads_destroy(pool);
    }
}

/* With as many tasks as threads, and tasks that wait for each other, all threads must be there at once. */
typedef struct meeting {
    pthread_mutex_t lock;
    pthread_cond_t all_here;
    uint32_t here, wanted;
} meeting;

static void meet_task(void *context, uint32_t index) {
    meeting *m = (meeting *)context;
    (void)index;
    pthread_mutex_lock(&m->lock);
    m->here++;
    if (m->here == m->wanted) pthread_cond_broadcast(&m->all_here);
    while (m->here < m->wanted) pthread_cond_wait(&m->all_here, &m->lock);
    pthread_mutex_unlock(&m->lock);
}

static void test_threads_run_at_the_same_time(void **state) {
    mgv_threads *pool = NULL;
    mgv_parallel_for parallel;
    meeting m;
    (void)state;
    pthread_mutex_init(&m.lock, NULL);
    pthread_cond_init(&m.all_here, NULL);
    m.here = 0;
    m.wanted = 5;
    assert_int_equal(mgv_threads_create(&pool, 5, NULL, NULL), MGV_OK);
    parallel = mgv_threads_parallel_for(pool);
    parallel.run(parallel.user, 5, meet_task, &m);
    assert_int_equal(m.here, 5);
    mgv_threads_destroy(pool);
    pthread_cond_destroy(&m.all_here);
    pthread_mutex_destroy(&m.lock);
}

/* Two callers share one pool. */
static void *call_often(void *argument) {
    const mgv_parallel_for *parallel = (const mgv_parallel_for *)argument;
    uint32_t calls, i;
    for (calls = 0; calls < 500; calls++) {
        tally t;
        memset(&t, 0, sizeof(t));
        parallel->run(parallel->user, 50, count_task, &t);
        for (i = 0; i < 50; i++)
            if (t.ran[i] != 1) return argument;
    }
    return NULL;
}

static void test_callers_take_turns(void **state) {
    mgv_threads *pool = NULL;
    mgv_parallel_for parallel;
    pthread_t callers[3];
    int i;
    (void)state;
    assert_int_equal(mgv_threads_create(&pool, 4, NULL, NULL), MGV_OK);
    parallel = mgv_threads_parallel_for(pool);
    for (i = 0; i < 3; i++) assert_int_equal(pthread_create(&callers[i], NULL, call_often, &parallel), 0);
    for (i = 0; i < 3; i++) {
        void *failed = &parallel;
        assert_int_equal(pthread_join(callers[i], &failed), 0);
        assert_null(failed);
    }
    mgv_threads_destroy(pool);
}

static void *no_memory(void *user, size_t bytes) {
    (void)user;
    (void)bytes;
    return NULL;
}
static void never_freed(void *user, void *memory, size_t bytes) {
    (void)user;
    (void)memory;
    (void)bytes;
    fail();
}

static void test_what_cannot_be_made(void **state) {
    static int mark;
    mgv_threads *pool = (mgv_threads *)(void *)&mark;
    mgv_allocator allocator = {NULL, no_memory, never_freed};
    mgv_error error;
    (void)state;
    assert_int_equal(mgv_threads_create(NULL, 2, NULL, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_threads_create(&pool, 0, NULL, &error), MGV_ERROR_ARGUMENT);
    assert_null(pool);
    assert_int_equal(mgv_threads_create(&pool, 1025, NULL, &error), MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "1025"));
    assert_int_equal(mgv_threads_create(&pool, 2, &allocator, &error), MGV_ERROR_NOMEM);
    allocator.alloc = NULL;
    assert_int_equal(mgv_threads_create(&pool, 2, &allocator, &error), MGV_ERROR_ARGUMENT);
    assert_null(pool);
    mgv_threads_destroy(NULL);
    assert_null(mgv_threads_parallel_for(NULL).run);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_task_runs_once),
        cmocka_unit_test(test_threads_run_at_the_same_time),
        cmocka_unit_test(test_callers_take_turns),
        cmocka_unit_test(test_what_cannot_be_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
