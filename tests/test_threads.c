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

/* Operations of the CPU backend on real threads give the bits of one thread: a linear op and attention that reads it. */
static void test_operations_give_the_same_bits(void **state) {
    enum { TOKENS = 150, WIDTH = 96 };
    static float source[TOKENS * WIDTH], weight[3 * WIDTH * WIDTH], qkv[TOKENS * 3 * WIDTH], attended[TOKENS * WIDTH];
    static float expected[TOKENS * WIDTH];
    const mgv_allocator allocator = {NULL, NULL, NULL};
    static const uint32_t ends[] = {64, TOKENS};
    mgv__op ops[2];
    mgv__program program;
    mgv__geometry geometry;
    mgv__tensor tensor;
    uint32_t threads;
    size_t i;
    (void)state;
    memset(ops, 0, sizeof(ops));
    memset(&program, 0, sizeof(program));
    memset(&geometry, 0, sizeof(geometry));
    memset(&tensor, 0, sizeof(tensor));
    for (i = 0; i < TOKENS * WIDTH; i++) source[i] = (float)(i * 2654435761u % 1000) / 500.0f - 1.0f;
    for (i = 0; i < 3 * WIDTH * WIDTH; i++) weight[i] = (float)(i * 40503u % 1000) / 2000.0f - 0.25f;
    tensor.dtype = MGV_DTYPE_F32;
    tensor.shape[0] = 3 * WIDTH;
    tensor.shape[1] = WIDTH;
    tensor.data = weight;
    ops[0].kind = MGV__OP_LINEAR;
    ops[0].source = 0;
    ops[0].target = 1;
    ops[0].add = MGV__NONE;
    ops[0].fold = 1;
    ops[0].inner = WIDTH;
    ops[0].columns = 3 * WIDTH;
    ops[0].part_count = 1;
    ops[0].part_columns[0] = 3 * WIDTH;
    ops[0].bias[0] = ops[0].table = ops[0].channel_scale = MGV__NO_TENSOR;
    ops[1].kind = MGV__OP_ATTENTION;
    ops[1].source = 1;
    ops[1].target = 2;
    ops[1].inner = 3 * WIDTH;
    ops[1].columns = WIDTH;
    ops[1].heads = 3;
    ops[1].head_dim = WIDTH / 3;
    ops[1].scale = 0.2f;
    program.ops = ops;
    program.op_count = 2;
    program.buffer_count = 3;
    program.buffers[0].columns = program.buffers[2].columns = WIDTH;
    program.buffers[1].columns = 3 * WIDTH;
    geometry.grid.tokens = geometry.grid.merged_tokens = TOKENS;
    geometry.range_ends[MGV__RANGE_FRAME] = ends;
    geometry.range_count[MGV__RANGE_FRAME] = 2;
    for (threads = 1; threads <= 5; threads++) {
        mgv_threads *pool = NULL;
        mgv__cpu_run run;
        int repeat;
        assert_int_equal(mgv_threads_create(&pool, threads, NULL, NULL), MGV_OK);
        memset(&run, 0, sizeof(run));
        run.program = &program;
        run.tensors = &tensor;
        run.geometry = &geometry;
        run.buffers[0] = source;
        run.buffers[1] = qkv;
        run.buffers[2] = attended;
        run.parallel = mgv_threads_parallel_for(pool);
        run.kernels = mgv__cpu_kernels_of(mgv__cpu_detect());
        assert_true(mgv__cpu_scratch_bytes(&program, TOKENS, threads, &run.scratch_bytes));
        run.scratch = mgv__alloc(&allocator, run.scratch_bytes);
        assert_non_null(run.scratch);
        for (repeat = 0; repeat < 20; repeat++) {
            memset(qkv, 0xFF, sizeof(qkv));
            memset(attended, 0xFF, sizeof(attended));
            for (i = 0; i < 2; i++) {
                mgv__cpu_job job;
                mgv__cpu_begin(&job, &run, &ops[i]);
                while (!mgv__cpu_step(&job, repeat % 2 ? UINT64_MAX : 100000)) {}
            }
            if (threads == 1) memcpy(expected, attended, sizeof(expected));
            assert_memory_equal(attended, expected, sizeof(expected));
        }
        mgv__free(&allocator, run.scratch);
        mgv_threads_destroy(pool);
    }
    for (i = 0; i < TOKENS * WIDTH; i++) assert_true(expected[i] == expected[i] && fabsf(expected[i]) < 100.0f);
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
        cmocka_unit_test(test_operations_give_the_same_bits),
        cmocka_unit_test(test_what_cannot_be_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
