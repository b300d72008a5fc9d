/* Sessions of one engine on threads of their own, at once, with a pool that they take turns with: each says what it says alone. */
#define MEGAVIT_TEXT
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "support.h"

#include <pthread.h>

#include "decoder.h"

enum { WORKERS = 4, PROMPT = 100, NEW = 40 };

typedef struct worker {
    mgv_engine *engine;
    uint32_t number;
    uint32_t ids[NEW];
    float logits[DECODER_MOST_LOGITS];
    int done; /* the last of its steps that went well: assertions belong to the main thread */
} worker;

static void *talk(void *context) {
    worker *w = (worker *)context;
    uint32_t prompt[PROMPT], count = 0, i;
    const float *logits;
    int32_t stopped;
    mgv_session_desc desc;
    mgv_sample_desc sampling;
    mgv_generate_desc generate;
    mgv_session *session;
    memset(&desc, 0, sizeof desc);
    memset(&sampling, 0, sizeof sampling);
    memset(&generate, 0, sizeof generate);
    for (i = 0; i < PROMPT; i++) prompt[i] = (i * 7 + w->number) % 60;
    desc.capacity = PROMPT + NEW;
    desc.block = 16;
    sampling.temperature = 1;
    sampling.seed = w->number;
    generate.ids = w->ids;
    generate.id_capacity = NEW;
    generate.sampling = &sampling;
    w->done = 0;
    if (mgv_session_create(&session, w->engine, &desc, NULL) != MGV_OK) return NULL;
    if (decoder_append(session, prompt, PROMPT, NULL, 0, NULL) == MGV_OK) w->done = 1;
    if (w->done == 1 && mgv_session_generate(session, &generate, &count, &stopped, NULL) == MGV_OK && count == NEW) w->done = 2;
    if (w->done == 2 && mgv_session_logits(session, &logits, &count, NULL) == MGV_OK) {
        memcpy(w->logits, logits, count * sizeof *logits);
        w->done = 3;
    }
    mgv_session_destroy(session);
    return NULL;
}

static void sessions_share_an_engine(void **state) {
    static worker together[WORKERS], alone[WORKERS];
    pthread_t threads[WORKERS];
    mgv_threads *pool;
    mgv_model *model = decoder_open("qwen3_deep");
    mgv_engine *engine;
    size_t i;
    (void)state;
    assert_int_equal(mgv_threads_create(&pool, 2, NULL, NULL), MGV_OK);
    engine = decoder_engine(model, pool);
    for (i = 0; i < WORKERS; i++) {
        alone[i].engine = together[i].engine = engine;
        alone[i].number = together[i].number = (uint32_t)i;
        talk(&alone[i]);
        assert_int_equal(alone[i].done, 3);
    }
    for (i = 0; i < WORKERS; i++) assert_int_equal(pthread_create(&threads[i], NULL, talk, &together[i]), 0);
    for (i = 0; i < WORKERS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (i = 0; i < WORKERS; i++) {
        assert_int_equal(together[i].done, 3);
        assert_memory_equal(together[i].ids, alone[i].ids, sizeof alone[i].ids);
        assert_memory_equal(together[i].logits, alone[i].logits, sizeof alone[i].logits);
    }
    assert_memory_not_equal(alone[0].ids, alone[1].ids, sizeof alone[0].ids);
    assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
    mgv_threads_destroy(pool);
    mgv_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sessions_share_an_engine)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
