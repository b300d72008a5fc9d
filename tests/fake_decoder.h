/* Stands for the decoder's kernels on the machine of fake_cuda.h: logits tell which ids, or rows of pictures, a session has kept. Needs
   megavit.h, with its implementation, and support.h before it. */
#ifndef MGV_TESTS_FAKE_DECODER_H
#define MGV_TESTS_FAKE_DECODER_H

#include "fake_cuda.h"
#include "language_model.h"

#include <math.h>

enum { MOST_IDS = 300 };

/* ---- the card's kernel ---- */

static uint32_t wait_that_ends;   /* how the next launches end, mgv__kernel_status.aborted */
static int says_nan;              /* their last logit is none */
static mgv_session *to_cancel;    /* by mgv_session_cancel while the next launches run; NULL: none */
static int appends_nothing;       /* they end before the first id */
static int counts_positions;      /* the rotary positions are the ids' places */
static mgv__sampling wanted;      /* what the last launch of the decoder was told of its first session's */
static float last_kept[MOST_IDS]; /* by the session that chose last, as ids or rows of pictures */
static uint32_t last_count;

/* What a session that has kept these numbers says of id `id`: each other one another number, and they are another for other numbers. */
static float logit_of(const float *kept, uint32_t count, uint32_t id, uint32_t vocabulary) {
    uint32_t i, sum = 7;
    for (i = 0; i < count; i++) sum = (sum * 31 + (uint32_t)(int32_t)kept[i]) % 65521;
    return (float)((id * 29 + sum) % vocabulary);
}
static uint32_t likeliest(const float *kept, uint32_t count, uint32_t vocabulary) {
    uint32_t id;
    for (id = 0; id < vocabulary && logit_of(kept, count, id, vocabulary) < (float)(vocabulary - 1); id++) continue;
    return id;
}

/* What stands for an id of a prompt: itself, or its picture's row and what each DeepStack layer adds, weighted so that none is another. */
static float number_of(const mgv__prompt_arguments *a, uint32_t i) {
    float sum = 0;
    uint32_t k;
    if (!a->picture_rows[i]) return (float)a->decode.ids[i];
    for (k = 0; k <= a->deepstack; k++)
        sum += (float)(k + 1) * a->pictures[((size_t)k * a->picture_pitch + a->picture_rows[i] - 1) * a->decode.width];
    return sum;
}
/* Every layer and head of keys keeps the number, of values its negative. */
static void keep(const mgv__decode_arguments *a, const mgv__decode_session *d, uint32_t position, float number) {
    uint32_t i, k;
    for (i = 0; i < a->layers * a->key_heads; i++)
        for (k = 0; k < MGV__DECODE_HEAD_DIM; k++) {
            const size_t at = ((size_t)i * d->capacity + position) * MGV__DECODE_HEAD_DIM + k;
            d->keys[at] = mgv__bf16_round(number);
            d->values[at] = mgv__bf16_round(-number);
        }
}
static void recall(const mgv__decode_arguments *a, const mgv__decode_session *d, uint32_t count, float *kept) {
    uint32_t i, k;
    for (i = 0; i < count; i++) {
        kept[i] = mgv__float_of_bf16(d->keys[(size_t)i * MGV__DECODE_HEAD_DIM]);
        for (k = 0; k < a->layers * a->key_heads; k++) { /* all of them have come back from a file */
            const size_t at = ((size_t)k * d->capacity + i) * MGV__DECODE_HEAD_DIM + 127;
            assert_true(mgv__float_of_bf16(d->keys[at]) == kept[i] && mgv__float_of_bf16(d->values[at]) == -kept[i]);
        }
    }
}

static int is_stop(const mgv__decode_session *d, uint32_t id) {
    uint32_t i;
    for (i = 0; i < d->stop_count; i++)
        if (d->stops[i] == id) return 1;
    return 0;
}
static void check_turn(const float *turn, uint32_t position) { /* of the pair that turns by 1 an id */
    if (counts_positions) assert_true(fabs((double)turn[0] - cos(position)) < 1e-5 && fabs((double)turn[1] - sin(position)) < 1e-5);
}
static void choose(const mgv__decode_arguments *a, const mgv__decode_session *d, const float *kept, uint32_t count, uint32_t *chosen) {
    uint32_t id;
    memcpy(last_kept, kept, count * sizeof *kept);
    last_count = count;
    for (id = 0; id < a->vocabulary; id++) d->logits[id] = logit_of(kept, count, id, a->vocabulary);
    *chosen = likeliest(kept, count, a->vocabulary);
}
/* Where ids are drawn the kernel counts in tables, which are empty when it begins. */
static void use_tables(const mgv__decode_arguments *a) {
    uint8_t *at = (uint8_t *)(void *)a->tables;
    while (at < (uint8_t *)(void *)a->aborted) {
        assert_int_equal(*at, 0);
        *at++ = 1;
    }
}
static void decode(const mgv__decode_arguments *a, uint32_t session) {
    const mgv__decode_session *d = &a->session[session];
    uint32_t *chosen = a->chosen + session * a->ids_pitch;
    float kept[MOST_IDS];
    uint32_t i, id;
    assert_true(d->given >= 1 && d->position + d->steps <= d->capacity && d->capacity <= MOST_IDS && d->steps <= a->ids_pitch);
    if (session == 0) wanted = d->sampling;
    if (d->sampling.scale > 0) use_tables(a);
    if (d->row) { /* what a prompt's launch has left, by no layer */
        assert_true(a->layers == 0 && d->steps == 1);
        recall(a, d, (uint32_t)d->row[0], kept);
        choose(a, d, kept, (uint32_t)d->row[0], chosen);
    } else {
        recall(a, d, d->position, kept);
    }
    for (i = 0; i < d->steps && !d->row && !appends_nothing; i++) {
        const uint32_t position = d->position + i;
        id = i < d->given ? a->ids[session * a->ids_pitch + i] : chosen[i - 1];
        assert_true(id < a->vocabulary);
        check_turn(a->rotary + ((size_t)i * a->sessions + session) * MGV__DECODE_HEAD_DIM, position);
        kept[position] = (float)id;
        keep(a, d, position, kept[position]);
        a->result[session].steps = i + 1;
        if (i + 1 < d->given) continue;
        choose(a, d, kept, position + 1, &chosen[i]);
        if (i + 1 < d->steps && is_stop(d, chosen[i])) break;
    }
    if (says_nan) {
        d->logits[a->vocabulary - 1] = (float)NAN;
        a->result[session].failed = 1;
    }
}
/* A prompt's: what the head then reads is how many ids there are. */
static void prompt_kernel(const void *argument) {
    const mgv__prompt_arguments *a = (const mgv__prompt_arguments *)argument;
    const mgv__decode_session *d = &a->decode.session[0];
    uint32_t i;
    assert_int_equal(*a->decode.aborted, 0);
    assert_int_equal(a->decode.status->aborted, 0);
    assert_true(a->rows >= 1 && d->position + a->rows <= d->capacity);
    for (i = 0; i < MGV__PROMPT_MOST_BLOCKS * (1 + LANGUAGE_LAYERS * MGV__PROMPT_LAYER_OPS); i++) {
        assert_int_equal(a->counters[i], 0);
        a->counters[i] = 9;
    }
    for (i = 0; i < a->rows; i++) {
        assert_true(a->decode.ids[i] < a->decode.vocabulary);
        check_turn(a->decode.rotary + (size_t)i * MGV__DECODE_HEAD_DIM, d->position + i);
        keep(&a->decode, d, d->position + i, number_of(a, i));
    }
    a->last[0] = (float)(d->position + a->rows);
    a->decode.status->aborted = wait_that_ends;
    if (wait_that_ends) *a->decode.aborted = 1;
}
/* Words have the generation of the launch that wrote them last, which comes before this one's. */
static void decoder_kernel(const void *argument) {
    const mgv__decode_arguments *a = (const mgv__decode_arguments *)argument;
    uint64_t *const words[] = {a->rows[0], a->rows[1], a->squares[0], a->squares[1], a->qkv, a->parts, a->attended, a->hidden, a->best,
                               a->meetings};
    size_t i;
    assert_int_equal(*a->aborted, 0);
    assert_int_equal(a->status->aborted, 0);
    for (i = 0; i < COUNT_OF(words); i++) {
        assert_true(*words[i] < a->generation);
        *words[i] = a->generation + a->steps * mgv__decode_generations(a) - 1; /* the last one that a launch may write */
    }
    for (i = 0; i < a->sessions; i++) decode(a, (uint32_t)i);
    if (to_cancel) mgv_session_cancel(to_cancel);
    a->status->aborted = wait_that_ends;
    if (wait_that_ends) *a->aborted = 1;
}

static inline void make_card(void) {
    fake_reset();
    fake.description[1] = 100000;
    fake.description[2] = sizeof(mgv__decode_arguments);
    fake.description_bytes = 3 * sizeof fake.description[0];
    fake.kernel = decoder_kernel;
    fake.others[0].begins = "megavit_prompt_";
    fake.others[0].described = "megavit_prompt_description";
    fake.others[0].description[0] = MGV__KERNEL_VERSION;
    fake.others[0].description[1] = 100000;
    fake.others[0].description[2] = sizeof(mgv__prompt_arguments);
    fake.others[0].description_bytes = 3 * sizeof fake.description[0];
    fake.others[0].kernel = prompt_kernel;
    mgv__cuda_test_calls = &fake_calls;
    wait_that_ends = 0;
    says_nan = appends_nothing = 0;
    to_cancel = NULL;
    counts_positions = 1;
}

/* A number of row `row` of a picture of one colour: of its tokens, layer 0, and of DeepStack's; the sum is a number of bf16. */
static inline float tower_number(uint32_t colour, uint32_t layer, uint32_t row) {
    return (float)((row * (3 + 2 * layer) + colour * (5 + 4 * layer) + 7 * layer) % (32 - layer));
}
static inline float picture_number(uint32_t colour, uint32_t deepstack, uint32_t row) {
    float sum = 0;
    uint32_t k;
    for (k = 0; k <= deepstack; k++) sum += (float)(k + 1) * tower_number(colour, k, row);
    return sum;
}
/* The card has a kernel for towers, too, whose merged rows tell the colour of the picture's first pixel. */
static inline void tower_kernel(const void *argument) {
    const mgv__kernel_arguments *a = (const mgv__kernel_arguments *)argument;
    uint32_t s, row, column;
    for (s = 0; a->segments[s].first_tile < a->total_tiles; s++) {
        const mgv__kernel_op *op = &a->ops[a->segments[s].op];
        if (op->kind != MGV__KERNEL_MERGE || op->flags & MGV__KERNEL_FOLD_NORM) continue;
        for (row = 0; row < op->rows_total; row++)
            for (column = 0; column < op->inner; column++)
                a->outputs[op->of.merge.target][(size_t)row * op->inner + column] =
                    column ? -1 : tower_number(a->pixels[0], op->of.merge.target, row);
    }
    *a->aborted = 0;
    if (a->next_count) memset(a->aborted + a->next_counters, 0, a->next_count * sizeof *a->counters);
}
static inline void add_tower_kernel(void) {
    fake_other *tower = &fake.others[1];
    tower->begins = "megavit_encode_";
    tower->described = "megavit_description";
    tower->description[0] = MGV__KERNEL_VERSION;
    tower->description[1] = MGV__MAX_SHARED_BYTES;
    tower->description[2] = sizeof(mgv__kernel_arguments);
    tower->description[3] = MGV__KERNEL_THREADS;
    tower->description[4] = MGV__MAX_SHARED_BYTES;
    tower->description_bytes = sizeof tower->description;
    tower->kernel = tower_kernel;
}

#endif
