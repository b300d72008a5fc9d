/* mgv_sessions_generate on the CPU: each session gets the ids and the logits that it gets alone, and calls that cannot be are
   refused with nothing chosen. */
#define MEGAVIT_TEXT
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "support.h"

#include "decoder.h"

enum { SESSIONS = 3, VOCABULARY = 128, MOST = 24 };

typedef struct fixture {
    mgv_model *model;
    mgv_engine *engine;
    mgv_session *sessions[SESSIONS];
    mgv_sample_desc sampling;
    mgv_generate_desc descs[SESSIONS];
    uint32_t ids[SESSIONS][MOST], counts[SESSIONS];
    int32_t stopped[SESSIONS];
    mgv_error error;
} fixture;

static void prompt(mgv_session *session, uint32_t number) {
    uint32_t ids[9], i, count = 4 + 2 * number;
    mgv_error error;
    for (i = 0; i < count; i++) ids[i] = (uint32_t)(decoder_rule_bits("together", 10 * number + i) % 100);
    assert_int_equal(mgv_session_rollback(session, 0, &error), MGV_OK);
    if (decoder_append(session, ids, count, NULL, 0, &error) != MGV_OK) fail_msg("%s", error.message);
}
static void begin(fixture *f) {
    uint32_t i;
    memset(f, 0, sizeof *f);
    f->model = decoder_open("qwen3");
    f->engine = decoder_engine(f->model, NULL);
    f->sampling.temperature = 0.9f;
    f->sampling.seed = 11;
    for (i = 0; i < SESSIONS; i++) {
        f->sessions[i] = decoder_session(f->engine, i == 2 ? 14 : 64, 0); /* the last one is full before it has all that it may */
        f->descs[i].ids = f->ids[i];
        f->descs[i].id_capacity = MOST - 5 * i;
        prompt(f->sessions[i], i);
    }
    f->descs[1].sampling = &f->sampling;
}
static void end(fixture *f) {
    uint32_t i;
    for (i = 0; i < SESSIONS; i++) mgv_session_destroy(f->sessions[i]);
    mgv_engine_destroy(f->engine);
    mgv_model_close(f->model);
}
static mgv_result together(fixture *f, uint32_t count) {
    memset(f->ids, 0xFF, sizeof f->ids);
    memset(f->counts, 0xFF, sizeof f->counts);
    memset(f->stopped, 0xFF, sizeof f->stopped);
    return mgv_sessions_generate(f->sessions, f->descs, count, f->counts, f->stopped, &f->error);
}

static void as_alone(void **state) {
    fixture f, alone;
    uint32_t i, stop;
    int with_stop;
    (void)state;
    begin(&f);
    begin(&alone);
    for (with_stop = 0; with_stop < 2; with_stop++) {
        for (i = 0; i < SESSIONS; i++) {
            prompt(f.sessions[i], i);
            prompt(alone.sessions[i], i);
        }
        if (together(&f, SESSIONS) != MGV_OK) fail_msg("%s", f.error.message);
        for (i = 0; i < SESSIONS; i++) {
            uint32_t count;
            int32_t stopped;
            assert_int_equal(mgv_session_generate(alone.sessions[i], &alone.descs[i], &count, &stopped, &alone.error), MGV_OK);
            assert_int_equal(count, f.counts[i]);
            assert_int_equal(stopped, f.stopped[i]);
            assert_memory_equal(alone.ids[i], f.ids[i], count * sizeof(uint32_t));
            assert_memory_equal(decoder_logits(alone.sessions[i]), decoder_logits(f.sessions[i]), VOCABULARY * sizeof(float));
        }
        assert_int_equal(f.counts[0], with_stop ? 7 : MOST);
        assert_int_equal(f.stopped[0], with_stop);
        assert_int_equal(f.counts[2], 14 - 8);
        assert_int_equal(f.stopped[2], 0);
        stop = f.ids[0][6]; /* the first time that the seventh is said */
        for (i = 0; i < 6; i++) assert_int_not_equal(f.ids[0][i], stop);
        f.descs[0].stops = alone.descs[0].stops = &stop;
        f.descs[0].stop_count = alone.descs[0].stop_count = 1;
    }
    end(&f);
    end(&alone);
}

static void refuse(fixture *f, mgv_result expected, const char *sentence) {
    const mgv_result result = together(f, SESSIONS);
    if (result != expected || !strstr(f->error.message, sentence))
        fail_msg("%s: %s", sentence, result == MGV_OK ? "taken" : f->error.message);
    assert_true(f->counts[0] == 0 && f->stopped[SESSIONS - 1] == 0);
}
static void calls_that_cannot_be(void **state) {
    static const char none[] = "mgv_sessions_generate: there are no sessions, or descs, counts or stopped is NULL";
    fixture f;
    mgv_engine *other;
    mgv_session *kept, *foreign;
    uint32_t id = 5;
    (void)state;
    begin(&f);
    assert_int_equal(mgv_sessions_generate(NULL, f.descs, SESSIONS, f.counts, f.stopped, &f.error), MGV_ERROR_ARGUMENT);
    assert_string_equal(f.error.message, none);
    assert_int_equal(mgv_sessions_generate(f.sessions, NULL, SESSIONS, f.counts, f.stopped, &f.error), MGV_ERROR_ARGUMENT);
    assert_string_equal(f.error.message, none);
    assert_int_equal(mgv_sessions_generate(f.sessions, f.descs, 0, f.counts, f.stopped, &f.error), MGV_ERROR_ARGUMENT);
    assert_string_equal(f.error.message, none);
    assert_int_equal(mgv_sessions_generate(f.sessions, f.descs, SESSIONS, NULL, f.stopped, &f.error), MGV_ERROR_ARGUMENT);
    assert_string_equal(f.error.message, none);
    assert_int_equal(mgv_sessions_generate(f.sessions, f.descs, SESSIONS, f.counts, NULL, &f.error), MGV_ERROR_ARGUMENT);
    assert_string_equal(f.error.message, none);
    kept = f.sessions[2];
    f.sessions[2] = f.sessions[0];
    refuse(&f, MGV_ERROR_ARGUMENT, "mgv_sessions_generate: sessions 0 and 2 are one");
    other = decoder_engine(f.model, NULL);
    foreign = f.sessions[2] = decoder_session(other, 20, 0);
    refuse(&f, MGV_ERROR_ARGUMENT, "mgv_sessions_generate");
    assert_int_equal(mgv_session_step(foreign, id, &f.error), MGV_OK);
    refuse(&f, MGV_ERROR_ARGUMENT, "mgv_sessions_generate: session 2 is of another engine than the first");
    mgv_session_destroy(foreign);
    mgv_engine_destroy(other);
    f.sessions[2] = kept;
    f.descs[1].ids = NULL;
    refuse(&f, MGV_ERROR_ARGUMENT, "ids");
    f.descs[1].ids = f.ids[1];
    if (together(&f, SESSIONS) != MGV_OK) fail_msg("%s", f.error.message); /* nothing of all this has changed a session */
    assert_int_equal(f.counts[0], MOST);
    end(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_alone), cmocka_unit_test(calls_that_cannot_be)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
