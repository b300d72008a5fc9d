/* One model and two pools shared by threads that make engines, encode, ask, pack and destroy while the others do the same: rows are the
   same bits as in one thread alone. `make test-tsan` runs it under ThreadSanitizer. */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_PLAN
#include "megavit.h"

#include <pthread.h>

#include "support.h"
#include "memory_model.h"

enum { WORKERS = 6, LIVES = 12, SIDE = 16, WIDTH = 64, POOLS = 2 };

typedef struct world {
    mgv_model *model;
    mgv_threads *pools[POOLS];
    uint8_t pixels[SIDE * SIDE * 3];
    float expected[WIDTH];
} world;

typedef struct worker {
    const world *w;
    int number;
    const char *wrong; /* NULL: nothing; tests end in the thread that began them */
} worker;

typedef struct work {
    mgv_image image;
    mgv_output output;
    mgv_encode_desc desc;
    float rows[WIDTH];
} work;
static void make_work(const world *w, work *k) {
    memset(k, 0, sizeof *k);
    k->image.pixels = w->pixels;
    k->image.width = k->image.height = SIDE;
    k->output.data = k->rows;
    k->output.capacity = WIDTH;
    k->desc.images = &k->image;
    k->desc.image_count = 1;
    k->desc.outputs = &k->output;
    k->desc.output_count = 1;
}

/* Encodes at once, or a step at a time. */
static const char *encode(const world *w, mgv_engine *engine, int in_steps) {
    work k;
    mgv_error error;
    make_work(w, &k);
    if (in_steps) {
        if (mgv_encode(engine, &k.desc, &error) != MGV_OK) return "mgv_encode failed";
        while (mgv_wait(engine, 0, &error) == MGV_ERROR_BUSY) continue;
        if (error.code != MGV_OK) return "mgv_wait failed";
    } else if (mgv_encode_blocking(engine, &k.desc, &error) != MGV_OK) {
        return "mgv_encode_blocking failed";
    }
    return memcmp(k.rows, w->expected, sizeof k.rows) == 0 ? NULL : "rows differ";
}

/* What only reads the model. */
static const char *ask(const world *w) {
    mgv_schedule_info schedule;
    mgv_model_info info;
    mgv_tensor_info tensor;
    mgv_error error;
    uint64_t bytes;
    const char *wrong = NULL;
    uint8_t *file;
    if (mgv_model_get_info(w->model, &info) != MGV_OK || mgv_model_get_tensor(w->model, 0, &tensor) != MGV_OK) return "no info";
    if (mgv_model_get_schedule(w->model, NULL, &schedule, NULL, 0, &error) != MGV_OK) return "no schedule";
    if (mgv_model_packed_bytes(w->model, "sm_90a", &bytes, &error) != MGV_OK) return "no size";
    file = (uint8_t *)malloc((size_t)bytes);
    if (mgv_model_pack(w->model, "sm_90a", file, bytes, &error) != MGV_OK) wrong = "not packed";
    free(file);
    return wrong;
}

/* One engine's life; some end with work under way, which is dropped. */
static const char *live(const world *w, int number) {
    mgv_engine_desc desc;
    mgv_engine *engine;
    mgv_error error;
    const char *wrong = NULL;
    work unfinished;
    int i;
    memset(&desc, 0, sizeof desc);
    desc.backend = MGV_BACKEND_CPU;
    if (number % 3) desc.parallel = mgv_threads_parallel_for(w->pools[number % POOLS]);
    if (mgv_engine_create(&engine, w->model, &desc, &error) != MGV_OK) return "no engine";
    for (i = 0; i < 3 && !wrong; i++) wrong = encode(w, engine, i & 1);
    make_work(w, &unfinished);
    if (number % 4 == 0 && mgv_encode(engine, &unfinished.desc, &error) == MGV_OK) {
        mgv_poll(engine, &error);
        mgv_poll(engine, &error);
    }
    if (mgv_engine_destroy(engine) != MGV_OK) wrong = "not destroyed";
    return wrong;
}

static void *cancel(void *argument) {
    int i;
    for (i = 0; i < 50; i++) mgv_cancel((mgv_engine *)argument);
    return NULL;
}

/* An encode that another thread cancels, sooner or later or too late. */
static const char *give_up(const world *w, int number) {
    mgv_engine_desc desc;
    mgv_engine *engine;
    mgv_error error;
    mgv_result result;
    pthread_t other;
    const char *wrong = NULL;
    work one;
    memset(&desc, 0, sizeof desc);
    if (number % 2) desc.parallel = mgv_threads_parallel_for(w->pools[number % POOLS]);
    if (mgv_engine_create(&engine, w->model, &desc, &error) != MGV_OK) return "no engine";
    make_work(w, &one);
    if (pthread_create(&other, NULL, cancel, engine) != 0) return "no thread";
    result = mgv_encode_blocking(engine, &one.desc, &error);
    if (result != MGV_OK && result != MGV_ERROR_CANCELLED) wrong = "neither done nor cancelled";
    if (result == MGV_OK && memcmp(one.rows, w->expected, sizeof w->expected) != 0) wrong = "another thread's cancel changed rows";
    if (pthread_join(other, NULL) != 0) wrong = "not joined";
    if (!wrong) wrong = encode(w, engine, 0);
    if (mgv_engine_destroy(engine) != MGV_OK) wrong = "not destroyed";
    return wrong;
}

static void *work_on(void *argument) {
    worker *me = (worker *)argument;
    int i;
    for (i = 0; i < LIVES && !me->wrong; i++) {
        me->wrong = live(me->w, me->number + i);
        if (!me->wrong && i % 3 == 0) me->wrong = ask(me->w);
        if (!me->wrong) me->wrong = give_up(me->w, me->number + i);
        if (!me->wrong && i % 4 == 0) { /* a pool of its own comes and goes */
            mgv_threads *pool;
            mgv_error error;
            if (mgv_threads_create(&pool, 3, NULL, &error) != MGV_OK) me->wrong = "no pool";
            else mgv_threads_destroy(pool);
        }
    }
    return NULL;
}

static void test_engines_come_and_go_in_threads(void **state) {
    static world w;
    memory_model files;
    worker workers[WORKERS];
    pthread_t threads[WORKERS];
    mgv_engine *engine;
    mgv_error error;
    work alone;
    size_t i;
    (void)state;
    small_siglip(&files);
    assert_int_equal(memory_model_open(&files, NULL, &w.model, &error), MGV_OK);
    for (i = 0; i < sizeof w.pixels; i++) w.pixels[i] = (uint8_t)(i * 2654435761u >> 13);
    assert_int_equal(mgv_engine_create(&engine, w.model, NULL, &error), MGV_OK);
    make_work(&w, &alone);
    assert_int_equal(mgv_encode_blocking(engine, &alone.desc, &error), MGV_OK);
    memcpy(w.expected, alone.rows, sizeof w.expected);
    assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
    for (i = 0; i < POOLS; i++) assert_int_equal(mgv_threads_create(&w.pools[i], 2 + (uint32_t)i, NULL, &error), MGV_OK);
    for (i = 0; i < WORKERS; i++) {
        workers[i].w = &w;
        workers[i].number = (int)i;
        workers[i].wrong = NULL;
        assert_int_equal(pthread_create(&threads[i], NULL, work_on, &workers[i]), 0);
    }
    for (i = 0; i < WORKERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        if (workers[i].wrong) fail_msg("thread %zu: %s", i, workers[i].wrong);
    }
    for (i = 0; i < POOLS; i++) mgv_threads_destroy(w.pools[i]);
    mgv_model_close(w.model);
    memory_model_free(&files);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_engines_come_and_go_in_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
