/* The pipeline of the command line (tools/pipeline.c) with workers that fail, dawdle and want memory at random. Meant for ThreadSanitizer,
   too: make test-tsan. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tools/pipeline.h"

enum { MAX_SLOTS = 64 };

typedef struct result {
    size_t item;
    int failed;
    uint64_t kept; /* bytes of budget 1, until the consumer has the result */
} result;

typedef struct run_state {
    result results[MAX_SLOTS];
    uint64_t seed, budgets[PIPELINE_BUDGETS];
    pthread_mutex_t lock;
    uint64_t used[PIPELINE_BUDGETS], most[PIPELINE_BUDGETS]; /* counted by the test itself */
    size_t worked, running;
} run_state;

static uint64_t mix(uint64_t value) {
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9u;
    value = (value ^ value >> 27) * 0x94D049BB133111EBu;
    return value ^ value >> 31;
}

static void count(run_state *s, int budget, int64_t bytes) {
    pthread_mutex_lock(&s->lock);
    s->used[budget] += (uint64_t)bytes;
    if (s->used[budget] > s->most[budget]) s->most[budget] = s->used[budget];
    pthread_mutex_unlock(&s->lock);
}

static void dawdle(uint64_t random) {
    for (uint64_t i = random % 8; i > 0; i--) sched_yield();
}

/* As pictures are: the file's bytes, then those of decoding, of which some stay until the result is taken. Some fail before the first,
   between the two, or at the end; the same ones every time. */
static void work(void *user, pipeline *p, size_t item, uint32_t slot) {
    run_state *s = user;
    result *r = &s->results[slot];
    uint64_t random = mix(s->seed + item * 0x9E3779B97F4A7C15u), file = random % (s->budgets[0] + 1), pixels = mix(random) % (s->budgets[1] + 1);
    pthread_mutex_lock(&s->lock);
    s->worked++;
    s->running++;
    pthread_mutex_unlock(&s->lock);
    memset(r, 0, sizeof *r);
    r->item = item;
    r->failed = 1;
    dawdle(random >> 8);
    if (random >> 20 & 7 && pipeline_reserve(p, slot, 0, file)) {
        count(s, 0, (int64_t)file);
        dawdle(random >> 12);
        if (random >> 24 & 7 && pipeline_reserve(p, slot, 1, pixels)) {
            count(s, 1, (int64_t)pixels);
            dawdle(random >> 16);
            r->failed = (random >> 28 & 7) == 0;
            r->kept = r->failed ? 0 : pixels / 3;
            count(s, 1, -(int64_t)(pixels - r->kept));
            pipeline_release(p, 1, pixels - r->kept);
        }
        count(s, 0, -(int64_t)file);
        pipeline_release(p, 0, file);
    }
    pthread_mutex_lock(&s->lock);
    s->running--;
    pthread_mutex_unlock(&s->lock);
}

static int fails(const run_state *s, size_t item) {
    uint64_t random = mix(s->seed + item * 0x9E3779B97F4A7C15u);
    return !(random >> 20 & 7) || !(random >> 24 & 7) || (random >> 28 & 7) == 0;
}

/* Takes all, or stops before item `end`. Holds up to `batch` slots at a time, as a batch that is filled. */
static void consume(uint64_t seed, size_t items, uint32_t threads, uint32_t slots, uint32_t batch, size_t end) {
    run_state s;
    pipeline_desc desc;
    pipeline *p;
    uint32_t held[MAX_SLOTS], held_count = 0, slot;
    size_t item, taken = 0;
    memset(&s, 0, sizeof s);
    s.seed = seed;
    s.budgets[0] = 1000;
    s.budgets[1] = 3000;
    pthread_mutex_init(&s.lock, NULL);
    memset(&desc, 0, sizeof desc);
    desc.count = items;
    desc.threads = threads;
    desc.slots = slots;
    memcpy(desc.budgets, s.budgets, sizeof desc.budgets);
    desc.work = work;
    desc.user = &s;
    p = pipeline_start(&desc);
    assert_non_null(p);
    while (taken < end && pipeline_take(p, &item, &slot)) {
        result *r = &s.results[slot];
        assert_int_equal(item, taken);
        assert_int_equal(r->item, taken);
        assert_int_equal(r->failed, fails(&s, taken));
        taken++;
        count(&s, 1, -(int64_t)r->kept);
        pipeline_release(p, 1, r->kept);
        if (r->failed) {
            pipeline_give_back(p, slot);
            continue;
        }
        held[held_count++] = slot;
        if (held_count < batch) continue;
        dawdle(seed + item);
        while (held_count > 0) pipeline_give_back(p, held[--held_count]);
    }
    assert_int_equal(taken, end < items ? end : items);
    pipeline_stop(p);
    assert_int_equal(s.running, 0);
    assert_true(s.worked >= taken && s.worked <= items && s.worked <= taken + slots);
    assert_true(s.most[0] <= s.budgets[0] && s.most[1] <= s.budgets[1]);
    assert_int_equal(s.used[0], 0);
    if (end >= items) assert_int_equal(s.used[1], 0);
    pthread_mutex_destroy(&s.lock);
}

static void results_come_in_order_whatever_fails(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) consume(seed, 200, 1 + (uint32_t)seed % 9, 2 + (uint32_t)seed % 11, 1 + (uint32_t)seed % (1 + (uint32_t)seed % 11), 1000);
    consume(7, 3, 16, 64, 8, 1000);
    consume(8, 0, 4, 8, 2, 1000);
}

static void it_can_be_stopped_at_any_time(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 100; seed++) consume(seed, 100, 1 + (uint32_t)seed % 7, 2 + (uint32_t)seed % 9, 1, seed % 60);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_come_in_order_whatever_fails),
        cmocka_unit_test(it_can_be_stopped_at_any_time),
    };
    return cmocka_run_group_tests_name("pipeline", tests, NULL, NULL);
}
