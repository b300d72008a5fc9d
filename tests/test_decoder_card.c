/* Sessions of a language model on a GPU without one: every CUDA call through a table (tests/fake_cuda.h), and in the kernel's place one
   whose logits tell which ids, or rows of pictures, its session has kept. */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_CUDA
#define MEGAVIT_NO_CUDART
#define MEGAVIT_TEXT
#include "megavit.h"

#include "support.h"
#include "fake_decoder.h"

/* ---- engines, sessions ---- */

static char said[1000];
static void hear(void *user, int32_t level, const char *message) {
    (void)user;
    (void)level;
    snprintf(said, sizeof said, "%s", message);
}
static mgv_result make_engine(const held_model *held, mgv_backend backend, counting_allocator *counts, mgv_engine **engine,
                              mgv_error *error) {
    mgv_engine_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.backend = backend;
    desc.kernels = "stands for megavit.fatbin";
    desc.max_width = desc.max_height = 128;
    desc.max_tokens = 64;
    desc.min_pixels = 1024;
    desc.logger.log = hear;
    if (counts) desc.allocator = counting_allocator_make(counts);
    said[0] = 0;
    return mgv_engine_create(engine, held->model, &desc, error);
}
static mgv_result make_session(mgv_engine *engine, uint32_t capacity, uint32_t block, mgv_session **session, mgv_error *error) {
    mgv_session_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.capacity = capacity;
    desc.block = block;
    return mgv_session_create(session, engine, &desc, error);
}

typedef struct fixture {
    held_model held;
    mgv_engine *engine;
    mgv_session *session;
    mgv_error error;
} fixture;

static void begin(fixture *f, const shape *s, uint32_t capacity, uint32_t block) {
    memset(f, 0, sizeof *f);
    open_model(&f->held, s);
    make_card();
    if (make_engine(&f->held, MGV_BACKEND_CUDA, NULL, &f->engine, &f->error) != MGV_OK) fail_msg("%s", f->error.message);
    if (make_session(f->engine, capacity, block, &f->session, &f->error) != MGV_OK) fail_msg("%s", f->error.message);
}
static void end(fixture *f) {
    mgv_session_destroy(f->session);
    assert_int_equal(mgv_engine_destroy(f->engine), MGV_OK);
    assert_int_equal(fake_alive(), 0);
    close_model(&f->held);
}
static mgv_result append(mgv_session *session, const uint32_t *ids, uint32_t count, mgv_error *error) {
    mgv_append_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.ids = ids;
    desc.id_count = count;
    return mgv_session_append_blocking(session, &desc, error);
}
static mgv_result generate(mgv_session *session, uint32_t *ids, uint32_t most, const uint32_t *stops, uint32_t stop_count, uint32_t *count,
                           int32_t *stopped, mgv_error *error) {
    mgv_generate_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.ids = ids;
    desc.id_capacity = most;
    desc.stops = stops;
    desc.stop_count = stop_count;
    return mgv_session_generate(session, &desc, count, stopped, error);
}
/* The session's logits are those behind these numbers. */
static void check_logits(const mgv_session *session, const float *kept, uint32_t count) {
    const float *logits;
    uint32_t vocabulary, id;
    mgv_error error;
    if (mgv_session_logits(session, &logits, &vocabulary, &error) != MGV_OK) fail_msg("%s", error.message);
    for (id = 0; id < vocabulary; id++) assert_true(logits[id] == logit_of(kept, count, id, vocabulary));
}
static void rule_ids(uint32_t *ids, float *kept, uint32_t count) {
    uint32_t i;
    for (i = 0; i < count; i++) {
        ids[i] = (uint32_t)(rule_bits(11, i) % 50);
        kept[i] = (float)ids[i];
    }
}

/* ---- tests ---- */

/* Ids in blocks of any size, each a launch, then the head: the logits are those behind all of them. */
static void test_append(void **state) {
    static const uint32_t blocks[] = {0, 1, 7, 64, 1000};
    uint32_t ids[MOST_IDS], b;
    float kept[MOST_IDS];
    (void)state;
    rule_ids(ids, kept, MOST_IDS);
    for (b = 0; b < COUNT_OF(blocks); b++) {
        fixture f;
        const uint32_t block = blocks[b] == 0 || blocks[b] > 150 ? 150 : blocks[b];
        begin(&f, b % 2 ? &untied : &small, 150, blocks[b]);
        assert_int_equal(mgv_engine_backend(f.engine), MGV_BACKEND_CUDA);
        assert_int_equal(append(f.session, ids, 131, &f.error), MGV_OK);
        assert_int_equal(fake.launches, (131 + block - 1) / block + 1); /* and the head */
        assert_int_equal(fake.grid, 132);
        check_logits(f.session, kept, 131);
        assert_int_equal(mgv_session_rollback(f.session, 9, &f.error), MGV_OK);
        assert_int_equal(append(f.session, ids + 9, 1, &f.error), MGV_OK);
        check_logits(f.session, kept, 10);
        end(&f);
    }
}

/* All weights are on the card, each once, the head's also where the embedding is the same, and all vectors. */
static void test_weights(void **state) {
    const shape *shapes[] = {&small, &untied, &seeing};
    size_t s;
    (void)state;
    for (s = 0; s < COUNT_OF(shapes); s++) {
        fixture f;
        const mgv__decode_plan *plan;
        double there = 0, expected = 0;
        uint64_t i;
        uint32_t k, layer, part;
        begin(&f, shapes[s], 10, 0);
        plan = &f.engine->decoder->plan;
        assert_int_equal(plan->embedding == plan->arguments.product[MGV__PRODUCT_HEAD].weights, shapes[s]->tied);
        for (i = 0; i < plan->weight_bytes / 2; i++) {
            uint16_t value;
            memcpy(&value, f.engine->decoder->weights + 2 * i, 2);
            there += (double)mgv__float_of_bf16(value) * mgv__float_of_bf16(value);
        }
        for (layer = 0; layer < LANGUAGE_LAYERS; layer++)
            for (k = 0; k <= MGV__PRODUCTS; k++) {
                const mgv__op *op = mgv__decode_product_op(plan->program, k, layer);
                if (k >= MGV__PRODUCT_HEAD && (layer || (k == MGV__PRODUCTS && shapes[s]->tied))) continue;
                for (part = 0; part < (op->part_count ? op->part_count : 1); part++) {
                    const mgv__tensor *tensor = &plan->tensors[op->weight[part]];
                    const uint32_t first = mgv__op_part_row(op, part);
                    const uint32_t rows = op->part_count && k != MGV__PRODUCTS ? op->part_columns[part] : shapes[s]->vocabulary;
                    for (i = first * tensor->shape[1]; i < (uint64_t)(first + rows) * tensor->shape[1]; i++)
                        expected += (double)mgv__tensor_value(tensor, i) * mgv__tensor_value(tensor, i);
                }
            }
        assert_true(fabs(there - expected) < 1e-9 * expected);
        assert_int_equal(plan->vector_count, (2 * shapes[s]->hidden + 2 * 128) * LANGUAGE_LAYERS + shapes[s]->hidden);
        end(&f);
    }
}

/* Launches choose what single steps choose, stop at a stop, and at the session's end. */
static void test_generate(void **state) {
    fixture f;
    uint32_t ids[MOST_IDS], one[100], made[100], count, i;
    float kept[MOST_IDS];
    int32_t stopped;
    const mgv_sample_desc warm = {0, 0, 0.5f, 1, 0, 1.5f, 1};
    mgv_generate_desc desc;
    (void)state;
    rule_ids(ids, kept, MOST_IDS);
    begin(&f, &small, 100, 0);
    assert_int_equal(append(f.session, ids, 5, &f.error), MGV_OK);
    for (i = 0; i < 90; i++) {
        assert_int_equal(mgv_session_sample(f.session, NULL, &one[i], &f.error), MGV_OK);
        assert_int_equal(one[i], likeliest(kept, 5 + i, small.vocabulary));
        assert_int_equal(mgv_session_step(f.session, one[i], &f.error), MGV_OK);
        kept[5 + i] = (float)one[i];
    }
    assert_int_equal(mgv_session_rollback(f.session, 4, &f.error), MGV_OK);
    assert_int_equal(mgv_session_step(f.session, ids[4], &f.error), MGV_OK);
    fake.launches = 0;
    assert_int_equal(generate(f.session, made, 90, NULL, 0, &count, &stopped, &f.error), MGV_OK);
    assert_int_equal(count, 90);
    assert_false(stopped);
    assert_int_equal(fake.launches, 2);
    assert_memory_equal(made, one, sizeof one[0] * 90);
    check_logits(f.session, kept, 95);
    assert_int_equal(generate(f.session, made, 90, NULL, 0, &count, &stopped, &f.error), MGV_OK); /* five more fit in */
    assert_true(count == 5 && !stopped);
    assert_int_equal(mgv_session_rollback(f.session, 4, &f.error), MGV_OK); /* a stop is given and not appended */
    assert_int_equal(mgv_session_step(f.session, ids[4], &f.error), MGV_OK);
    for (i = 0; one[i] != one[20]; i++) continue;
    assert_int_equal(generate(f.session, made, 90, &one[20], 1, &count, &stopped, &f.error), MGV_OK);
    assert_true(count == i + 1 && stopped);
    assert_memory_equal(made, one, sizeof one[0] * count);
    check_logits(f.session, kept, 5 + i);
    assert_int_equal(mgv_session_rollback(f.session, 4, &f.error), MGV_OK); /* what the kernel does not do, is done id by id */
    assert_int_equal(mgv_session_step(f.session, ids[4], &f.error), MGV_OK);
    memset(&desc, 0, sizeof desc);
    desc.ids = made;
    desc.id_capacity = 6;
    desc.sampling = &warm;
    assert_int_equal(mgv_session_generate(f.session, &desc, &count, &stopped, &f.error), MGV_OK);
    for (i = 0; i < 6; i++) kept[5 + i] = (float)made[i];
    check_logits(f.session, kept, 11);
    end(&f);
}

/* What is drawn is drawn by the kernel, which is told how; a penalty, or more stops than it takes, are a launch for each id. */
static void test_sampling(void **state) {
    enum { LENGTH = 6 };
    static const uint32_t stops[MGV__DECODE_STOPS + 1] = {1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008};
    static const struct { mgv_sample_desc sampling; uint32_t stop_count, launches; double scale; } cases[] = {
        {{0, 0, 0, 0, 0, 0, 0}, 0, 1, 0},
        {{0, 0, 0, 0, 0, 1, 1}, MGV__DECODE_STOPS, 1, 0},
        {{0, 5, 0.5f, 0.75f, 0, 0, 3}, 1, 1, 2 * 1.4426950408889634 * 4294967296.0},
        {{0, 6, 2, 0, 0, 1, 4}, 0, 1, 0.5 * 1.4426950408889634 * 4294967296.0},
        {{0, 0, 0, 0, 0, 0, 0}, MGV__DECODE_STOPS + 1, LENGTH, 0},
        {{0, 0, 0, 0, 0, 1.5f, 0}, 0, LENGTH, 0}};
    fixture f;
    uint32_t ids[5], made[LENGTH], count;
    float kept[5 + LENGTH];
    int32_t stopped;
    size_t i, k;
    (void)state;
    rule_ids(ids, kept, 5);
    begin(&f, &small, 40, 0);
    for (i = 0; i < COUNT_OF(cases); i++) {
        mgv_generate_desc desc;
        memset(&desc, 0, sizeof desc);
        desc.ids = made;
        desc.id_capacity = LENGTH;
        desc.stops = stops;
        desc.stop_count = cases[i].stop_count;
        desc.sampling = &cases[i].sampling;
        assert_int_equal(mgv_session_rollback(f.session, 0, &f.error), MGV_OK);
        assert_int_equal(append(f.session, ids, 5, &f.error), MGV_OK);
        fake.launches = 0;
        assert_int_equal(mgv_session_generate(f.session, &desc, &count, &stopped, &f.error), MGV_OK);
        assert_true(count == LENGTH && !stopped);
        assert_int_equal(fake.launches, cases[i].launches);
        assert_true(wanted.scale == cases[i].scale);
        if (cases[i].scale > 0)
            assert_true(wanted.top_k == cases[i].sampling.top_k && wanted.top_p == cases[i].sampling.top_p &&
                        wanted.seed == cases[i].sampling.seed);
        for (k = 0; k < LENGTH; k++) kept[5 + k] = (float)made[k];
        check_logits(f.session, kept, 5 + LENGTH);
    }
    end(&f);
}

/* An id by itself that cannot be appended ends the text with what the card said; so do two texts', and the first one's is told. */
static void test_texts_that_fail(void **state) {
    static const mgv_sample_desc penalty = {0, 0, 0, 0, 0, 1.5f, 0};
    fixture f;
    mgv_session *sessions[2];
    mgv_generate_desc descs[2];
    uint32_t ids[5], made[2][8], counts[2];
    float kept[5];
    int32_t stopped[2];
    int i;
    (void)state;
    rule_ids(ids, kept, 5);
    begin(&f, &small, 40, 0);
    sessions[0] = f.session;
    assert_int_equal(make_session(f.engine, 40, 0, &sessions[1], &f.error), MGV_OK);
    memset(descs, 0, sizeof descs);
    for (i = 0; i < 2; i++) {
        descs[i].ids = made[i];
        descs[i].id_capacity = 8;
        descs[i].sampling = &penalty;
        assert_int_equal(append(sessions[i], ids, 5, &f.error), MGV_OK);
    }
    fake.fail_name = "cudaLaunchKernelExC";
    assert_int_equal(mgv_sessions_generate(sessions, descs, 2, counts, stopped, NULL), MGV_ERROR_DEVICE); /* nobody asks why */
    assert_true(counts[0] == 0 && counts[1] == 0);
    fake.fail_name = NULL;
    for (i = 0; i < 2; i++) {
        assert_int_equal(mgv_session_rollback(sessions[i], 0, &f.error), MGV_OK);
        assert_int_equal(append(sessions[i], ids, 5, &f.error), MGV_OK);
    }
    fake.fail_name = "cudaLaunchKernelExC";
    assert_int_equal(mgv_sessions_generate(sessions, descs, 2, counts, stopped, &f.error), MGV_ERROR_DEVICE);
    assert_int_equal(strncmp(f.error.message, "session 0: cudaLaunchKernelExC", 30), 0);
    fake.fail_name = NULL;
    mgv_session_destroy(sessions[1]);
    end(&f);
}

/* A text that was ended stays so where its logits cannot be fetched; one whose launch does not come to an end is told to stop. */
static void test_ended_texts(void **state) {
    fixture f;
    uint32_t ids[5], made[80], count;
    float kept[5];
    int32_t stopped;
    (void)state;
    rule_ids(ids, kept, 5);
    begin(&f, &small, 150, 0);
    assert_int_equal(append(f.session, ids, 5, &f.error), MGV_OK);
    to_cancel = f.session;
    fake.fail_name = "cudaStreamSynchronize"; /* behind the copy of logits */
    assert_int_equal(generate(f.session, made, 80, NULL, 0, &count, &stopped, &f.error), MGV_ERROR_CANCELLED);
    assert_true(fake.failed && !f.session->has_logits);
    assert_int_equal(count, MGV__DECODE_STEPS);
    fake.fail_name = NULL;
    to_cancel = NULL;
    assert_int_equal(mgv_session_rollback(f.session, 0, &f.error), MGV_OK);
    assert_int_equal(append(f.session, ids, 5, &f.error), MGV_OK);
    to_cancel = f.session;
    f.engine->decoder->wait_ms = 3;
    fake.held = 1;
    assert_int_equal(generate(f.session, made, 80, NULL, 0, &count, &stopped, &f.error), MGV_ERROR_TIMEOUT);
    assert_int_equal(*f.session->gpu->cancel, 1);
    fake.held = 0;
    to_cancel = NULL;
    assert_int_equal(mgv_session_rollback(f.session, 0, &f.error), MGV_OK);
    assert_int_equal(append(f.session, ids, 5, &f.error), MGV_OK);
    check_logits(f.session, kept, 5);
    end(&f);
}

/* Sessions of an engine that was asked for the CPU, in a build that has CUDA: no call of it, and what they do. */
static void test_on_the_cpu(void **state) {
    static uint8_t pixels[64 * 96 * 3];
    held_model held;
    mgv_engine *engine = NULL;
    mgv_session *session = NULL;
    mgv_session_info info;
    mgv_image image;
    mgv_picture picture;
    mgv_error error;
    uint32_t ids[5], made[4], again[4], count;
    float kept[5], *rows;
    int32_t stopped;
    uint64_t bytes = 0, floats = 0;
    uint8_t *file;
    (void)state;
    rule_ids(ids, kept, 5);
    open_model(&held, &seeing);
    make_card();
    assert_int_equal(make_engine(&held, MGV_BACKEND_CPU, NULL, &engine, &error), MGV_OK);
    assert_int_equal(mgv_engine_backend(engine), MGV_BACKEND_CPU);
    assert_int_equal(make_session(engine, 2000, 2000, &session, &error), MGV_OK);
    assert_int_equal(session->desc.block, 2000); /* no launch has to hold it */
    assert_int_equal(append(session, ids, 5, &error), MGV_OK);
    assert_int_equal(mgv_session_get_info(session, &info), MGV_OK);
    assert_int_equal(info.cache_bytes, (uint64_t)2000 * LANGUAGE_LAYERS * seeing.key_heads * 128 * 2 * sizeof(float));
    assert_int_equal(mgv_session_saved_bytes(session, &bytes, &error), MGV_OK);
    file = (uint8_t *)malloc((size_t)bytes);
    assert_non_null(file);
    assert_int_equal(mgv_session_save(session, file, bytes, &error), MGV_OK);
    assert_int_equal(generate(session, made, 4, NULL, 0, &count, &stopped, &error), MGV_OK);
    assert_int_equal(count, 4);
    assert_int_equal(mgv_session_restore(session, file, bytes, &error), MGV_OK);
    assert_int_equal(generate(session, again, 4, NULL, 0, &count, &stopped, &error), MGV_OK);
    assert_memory_equal(made, again, sizeof made);
    memset(&image, 0, sizeof image);
    image.pixels = pixels;
    image.width = 96;
    image.height = 64;
    assert_int_equal(mgv_picture_encode(engine, &image, NULL, 0, &floats, &picture, &error), MGV_ERROR_CAPACITY);
    rows = (float *)malloc((size_t)floats * sizeof *rows);
    assert_non_null(rows);
    assert_int_equal(mgv_picture_encode(engine, &image, rows, floats, &floats, &picture, &error), MGV_OK);
    assert_ptr_equal(picture.tokens, rows);
    assert_int_equal(fake.calls, 0);
    free(rows);
    free(file);
    mgv_session_destroy(session);
    assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
    close_model(&held);
}

/* Turns of positions beyond the table, on any axis, are those of the formula. */
static void test_turns(void **state) {
    static const float positions[][3] = {{3, 5, 7}, {4095, 4095, 4095}, {4096, 0, 0}, {0, 4096, 0}, {0, 0, 4096}, {9000, 9001, 9002}};
    float turn[MGV__DECODE_HEAD_DIM], expected[MGV__DECODE_HEAD_DIM];
    fixture f;
    size_t i, k;
    (void)state;
    begin(&f, &seeing, 10, 0);
    for (i = 0; i < COUNT_OF(positions); i++) {
        mgv__decoder_turn(f.engine->decoder, positions[i], turn);
        mgv__decode_turn(f.engine->decoder->plan.program, positions[i], expected);
        for (k = 0; k < MGV__DECODE_HEAD_DIM; k++) assert_true(turn[k] == expected[k]);
    }
    end(&f);
}

/* A block is no longer than what one launch holds; keys and values are bf16 on the card. */
static void test_largest_block(void **state) {
    fixture f;
    mgv_session_info info;
    (void)state;
    begin(&f, &small, 2 * MGV__PROMPT_MOST, 2 * MGV__PROMPT_MOST);
    assert_int_equal(f.session->desc.block, MGV__PROMPT_MOST);
    assert_int_equal(mgv_session_get_info(f.session, &info), MGV_OK);
    assert_int_equal(info.cache_bytes, (uint64_t)2 * MGV__PROMPT_MOST * LANGUAGE_LAYERS * small.key_heads * 128 * 2 * 2);
    end(&f);
}

/* Ten texts: eight in a launch, and those that are left when the first ones have ended. */
static void test_together(void **state) {
    enum { TEXTS = 10, LENGTH = 70 };
    fixture f;
    uint32_t ids[MOST_IDS], made[TEXTS][LENGTH], again[TEXTS][LENGTH], one[LENGTH], counts[TEXTS], count, i;
    float kept[MOST_IDS];
    int32_t stopped[TEXTS], stops;
    mgv_session *sessions[TEXTS];
    mgv_generate_desc descs[TEXTS];
    (void)state;
    rule_ids(ids, kept, MOST_IDS);
    begin(&f, &small, 100, 0);
    memset(descs, 0, sizeof descs);
    for (i = 0; i < TEXTS; i++) {
        mgv_session_desc desc;
        memset(&desc, 0, sizeof desc);
        desc.capacity = 100 + i;
        sessions[i] = f.session;
        if (i > 0) assert_int_equal(mgv_session_create(&sessions[i], f.engine, &desc, &f.error), MGV_OK);
        assert_int_equal(append(sessions[i], ids + i, 3 + i, &f.error), MGV_OK);
        descs[i].ids = made[i];
        descs[i].id_capacity = LENGTH - i % 3;
    }
    fake.launches = 0;
    assert_int_equal(mgv_sessions_generate(sessions, descs, TEXTS, counts, stopped, &f.error), MGV_OK);
    assert_int_equal(fake.launches, 4); /* twice eight, twice two */
    for (i = 0; i < TEXTS; i++) {
        assert_true(counts[i] == descs[i].id_capacity && !stopped[i]);
        assert_int_equal(mgv_session_rollback(sessions[i], 2 + i, &f.error), MGV_OK);
        assert_int_equal(mgv_session_step(sessions[i], ids[2 + 2 * i], &f.error), MGV_OK);
        assert_int_equal(generate(sessions[i], one, descs[i].id_capacity, NULL, 0, &count, &stops, &f.error), MGV_OK);
        assert_int_equal(count, counts[i]);
        assert_memory_equal(one, made[i], sizeof one[0] * count);
    }
    for (i = 0; i < TEXTS; i++) { /* one ends behind the launch under way; the others have all of theirs */
        assert_int_equal(mgv_session_rollback(sessions[i], 2 + i, &f.error), MGV_OK);
        assert_int_equal(mgv_session_step(sessions[i], ids[2 + 2 * i], &f.error), MGV_OK);
        memcpy(again[i], made[i], sizeof again[i]);
    }
    to_cancel = sessions[3];
    assert_int_equal(mgv_sessions_generate(sessions, descs, TEXTS, counts, stopped, &f.error), MGV_ERROR_CANCELLED);
    assert_string_equal(f.error.message, "session 3: mgv_session_cancel ended the text");
    to_cancel = NULL;
    for (i = 0; i < TEXTS; i++) {
        assert_int_equal(counts[i], i == 3 ? MGV__DECODE_STEPS : descs[i].id_capacity);
        assert_memory_equal(made[i], again[i], counts[i] * sizeof made[0][0]);
        if (i > 0) mgv_session_destroy(sessions[i]);
    }
    sessions[1] = sessions[0];
    assert_int_equal(mgv_sessions_generate(sessions, descs, 2, counts, stopped, &f.error), MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(f.error.message, "sessions 0 and 1 are one"));
    end(&f);
}

/* A file of a session that was on the card, on the card and on the CPU. */
static void test_files(void **state) {
    fixture f;
    uint32_t ids[MOST_IDS];
    float kept[MOST_IDS];
    uint64_t bytes = 0, again = 0, n;
    uint8_t *file, *second;
    (void)state;
    rule_ids(ids, kept, MOST_IDS);
    begin(&f, &small, 190, 0);
    assert_int_equal(append(f.session, ids, 170, &f.error), MGV_OK);
    assert_int_equal(mgv_session_saved_bytes(f.session, &bytes, &f.error), MGV_OK);
    file = (uint8_t *)malloc((size_t)bytes);
    second = (uint8_t *)malloc((size_t)bytes);
    assert_true(file && second);
    assert_int_equal(mgv_session_save(f.session, file, bytes, &f.error), MGV_OK);
    assert_int_equal(append(f.session, ids, 3, &f.error), MGV_OK);
    assert_int_equal(mgv_session_restore(f.session, file, bytes, &f.error), MGV_OK);
    check_logits(f.session, kept, 170);
    assert_int_equal(mgv_session_step(f.session, ids[170], &f.error), MGV_OK);
    check_logits(f.session, kept, 171);
    assert_int_equal(mgv_session_restore(f.session, file, bytes, &f.error), MGV_OK);
    assert_int_equal(mgv_session_saved_bytes(f.session, &again, &f.error), MGV_OK);
    assert_int_equal(again, bytes);
    assert_int_equal(mgv_session_save(f.session, second, bytes, &f.error), MGV_OK);
    assert_memory_equal(file, second, bytes);
    for (n = 1; n < 4; n++) { /* a copy that fails: saving changes nothing, restoring leaves no session of two halves */
        fake.failed = NULL;
        fake.fail_at = fake.calls + 2 + n;
        assert_int_equal(mgv_session_save(f.session, second, bytes, &f.error), MGV_ERROR_DEVICE);
        assert_non_null(strstr(f.error.message, "saving a session"));
        fake.fail_at = 0;
        check_logits(f.session, kept, 170);
    }
    fake.fail_at = fake.calls + 5;
    assert_int_equal(mgv_session_restore(f.session, file, bytes, &f.error), MGV_ERROR_DEVICE);
    assert_non_null(strstr(f.error.message, "restoring a session"));
    fake.fail_at = 0;
    assert_int_equal(f.session->position, 0);
    assert_int_equal(mgv_session_restore(f.session, file, bytes, &f.error), MGV_OK);
    check_logits(f.session, kept, 170);
    free(file);
    free(second);
    end(&f);
}

/* Rows of pictures stand for their placeholders, with what DeepStack adds, however a prompt is cut into blocks. */
static void test_pictures(void **state) {
    enum { TEXT = 5, ROWS = 6, COUNT = TEXT + 2 * ROWS + 3 };
    static const uint32_t blocks[] = {64, 1, 4};
    float *rows = (float *)calloc((size_t)2 * 3 * ROWS * seeing.hidden, sizeof *rows), kept[COUNT];
    uint32_t ids[COUNT], i, k, b;
    mgv_picture pictures[2];
    (void)state;
    assert_non_null(rows);
    memset(pictures, 0, sizeof pictures);
    rule_ids(ids, kept, COUNT);
    for (k = 0; k < 2; k++) {
        mgv_picture *p = &pictures[k];
        float *own = rows + (size_t)k * 3 * ROWS * seeing.hidden;
        p->grid.t = 1;
        p->grid.h = 4;
        p->grid.w = 6;
        p->grid.width = 96;
        p->grid.height = 64;
        p->grid.tokens = 4 * ROWS;
        p->grid.merged_tokens = ROWS;
        p->tokens = own;
        p->deepstack_count = 2;
        for (i = 0; i < 2; i++) p->deepstack[i] = own + (size_t)(1 + i) * ROWS * seeing.hidden;
        for (i = 0; i < 3 * ROWS; i++) own[(size_t)i * seeing.hidden] = (float)(30 * k + 3 * i);
        for (i = 0; i < ROWS; i++) {
            const uint32_t at = TEXT + k * (ROWS + 1) + i;
            ids[at] = PLACEHOLDER;
            kept[at] = (float)(6 * 30 * k + 6 * 3 * i + 8 * 3 * ROWS); /* 1, 2 and 3 times its rows */
        }
    }
    for (b = 0; b < COUNT_OF(blocks); b++) {
        fixture f;
        mgv_append_desc desc;
        uint64_t n;
        uint32_t failures = 0;
        begin(&f, &seeing, 40, blocks[b]);
        counts_positions = 0;
        memset(&desc, 0, sizeof desc);
        desc.ids = ids;
        desc.id_count = COUNT;
        desc.pictures = pictures;
        desc.picture_count = 2;
        if (mgv_session_append_blocking(f.session, &desc, &f.error) != MGV_OK) fail_msg("%s", f.error.message);
        check_logits(f.session, kept, COUNT);
        assert_int_equal(mgv_session_rollback(f.session, 0, &f.error), MGV_OK);
        for (n = 1;; n++) { /* nothing is kept of an append whose rows, or anything else, could not be sent */
            fake.failed = NULL;
            fake.fail_at = fake.calls + n;
            if (mgv_session_append_blocking(f.session, &desc, &f.error) == MGV_OK) {
                if (!fake.failed) break;
                mgv_session_rollback(f.session, 0, &f.error); /* the thread's own state was not put back, which is nobody's error */
                continue;
            }
            failures++;
            assert_int_equal(strncmp(f.error.message, fake.failed, strlen(fake.failed)), 0);
            assert_int_equal(f.session->position, 0);
            assert_int_equal(fake.unwatched, 0); /* it may write where the next one looks */
        }
        fake.fail_at = 0;
        assert_true(failures > 12);
        check_logits(f.session, kept, COUNT);
        end(&f);
    }
    free(rows);
}

/* Rows of a picture on the card are not for a tower that runs on the CPU, which says so and writes none; the host's are. */
static void test_picture_rows(void **state) {
    static uint8_t pixels[64 * 96 * 3];
    fixture f;
    mgv_image image;
    mgv_picture picture;
    uint64_t floats = 0;
    void *card = NULL;
    float *rows;
    size_t i;
    (void)state;
    begin(&f, &seeing, 40, 0);
    assert_null(f.engine->gpu);
    memset(&image, 0, sizeof image);
    image.pixels = pixels;
    image.width = 96;
    image.height = 64;
    assert_int_equal(mgv_picture_encode(f.engine, &image, NULL, 0, &floats, &picture, &f.error), MGV_ERROR_CAPACITY);
    assert_int_equal(floats, 3 * 6 * seeing.hidden);
    rows = (float *)malloc((size_t)floats * sizeof *rows);
    assert_non_null(rows);
    assert_int_equal(fake_allocate(&card, (size_t)floats * sizeof(float), FAKE_DEVICE_MEMORY), cudaSuccess);
    assert_int_equal(mgv_picture_encode(f.engine, &image, (float *)card, floats, &floats, &picture, &f.error), MGV_ERROR_UNSUPPORTED);
    assert_non_null(strstr(f.error.message, "vision tower runs on the CPU"));
    for (i = 0; i < (size_t)floats * sizeof(float); i++) assert_int_equal(((uint8_t *)card)[i], 0xA5); /* as fake_allocate left it */
    fake.fail_name = "cudaPointerGetAttributes";
    assert_int_equal(mgv_picture_encode(f.engine, &image, rows, floats, &floats, &picture, &f.error), MGV_ERROR_DEVICE);
    fake.fail_name = NULL;
    assert_int_equal(mgv_picture_encode(f.engine, &image, rows, floats, &floats, &picture, &f.error), MGV_OK);
    assert_ptr_equal(picture.tokens, rows);
    fake_release(card, FAKE_DEVICE_MEMORY);
    free(rows);
    end(&f);
}
/* Where the tower's kernel is there, they are written where they are to lie: on the card, too. */
static void test_picture_rows_on_the_card(void **state) {
    static uint8_t pixels[64 * 96 * 3];
    held_model held;
    mgv_engine *engine = NULL;
    mgv_image image;
    mgv_picture picture;
    mgv_error error;
    uint64_t floats = 0;
    void *card = NULL;
    (void)state;
    open_model(&held, &seeing);
    make_card();
    add_tower_kernel();
    if (make_engine(&held, MGV_BACKEND_CUDA, NULL, &engine, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_non_null(engine->gpu);
    memset(&image, 0, sizeof image);
    image.pixels = pixels;
    image.width = 96;
    image.height = 64;
    assert_int_equal(mgv_picture_encode(engine, &image, NULL, 0, &floats, &picture, &error), MGV_ERROR_CAPACITY);
    assert_int_equal(fake_allocate(&card, (size_t)floats * sizeof(float), FAKE_DEVICE_MEMORY), cudaSuccess);
    if (mgv_picture_encode(engine, &image, (float *)card, floats, &floats, &picture, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_int_equal(fake.launches, 1);
    assert_ptr_equal(picture.tokens, card);
    assert_ptr_equal(picture.deepstack[1], (float *)card + floats / 3 * 2);
    fake_release(card, FAKE_DEVICE_MEMORY);
    assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
    assert_int_equal(fake_alive(), 0);
    close_model(&held);
}

/* Another stream is being captured, in the global mode, while sessions are made, work and go: the capture goes on, and so do they. */
static void test_captures_of_others(void **state) {
    fixture f;
    mgv_session *sessions[2];
    mgv_generate_desc descs[2];
    uint32_t ids[MOST_IDS], made[2][20], one[20], count, counts[2], i;
    float kept[MOST_IDS];
    int32_t stopped[2];
    uint64_t bytes = 0;
    uint8_t *file;
    (void)state;
    rule_ids(ids, kept, MOST_IDS);
    begin(&f, &small, 100, 8);
    fake.capture = cudaStreamCaptureStatusActive;
    fake.captures_another = 1;
    sessions[0] = f.session;
    if (make_session(f.engine, 90, 0, &sessions[1], &f.error) != MGV_OK) fail_msg("%s", f.error.message);
    memset(descs, 0, sizeof descs);
    for (i = 0; i < 2; i++) {
        if (append(sessions[i], ids, 20 + i, &f.error) != MGV_OK) fail_msg("%s", f.error.message);
        check_logits(sessions[i], kept, 20 + i);
        descs[i].ids = made[i];
        descs[i].id_capacity = 20;
    }
    assert_int_equal(mgv_session_saved_bytes(f.session, &bytes, &f.error), MGV_OK);
    file = (uint8_t *)malloc((size_t)bytes);
    assert_non_null(file);
    if (mgv_session_save(f.session, file, bytes, &f.error) != MGV_OK) fail_msg("%s", f.error.message);
    if (generate(f.session, one, 20, NULL, 0, &count, stopped, &f.error) != MGV_OK) fail_msg("%s", f.error.message);
    if (mgv_session_restore(f.session, file, bytes, &f.error) != MGV_OK) fail_msg("%s", f.error.message);
    if (mgv_sessions_generate(sessions, descs, 2, counts, stopped, &f.error) != MGV_OK) fail_msg("%s", f.error.message);
    assert_true(count == 20 && counts[0] == 20 && counts[1] == 20);
    assert_memory_equal(one, made[0], sizeof one);
    assert_int_equal(mgv_session_step(sessions[1], ids[50], &f.error), MGV_OK);
    mgv_session_destroy(sessions[1]);
    assert_int_equal(fake.capture, cudaStreamCaptureStatusActive);
    assert_int_equal(fake.mode, cudaStreamCaptureModeGlobal);
    fake.capture = cudaStreamCaptureStatusNone;
    free(file);
    end(&f);
}

/* Pictures are encoded on the legacy default stream, which says so while another stream is captured; and a captured stream is nothing that
   a language model's engine takes. Neither harms capture, engine or session. */
static void test_captures_and_pictures(void **state) {
    static uint8_t pixels[64 * 96 * 3];
    static fake_graph graph;
    held_model held;
    mgv_engine *engine = NULL;
    mgv_session *session = NULL;
    mgv_image image;
    mgv_picture picture;
    mgv_encode_desc desc;
    mgv_output output;
    mgv_error error;
    uint64_t floats = 0;
    uint32_t ids[5];
    float kept[5];
    void *card = NULL;
    (void)state;
    rule_ids(ids, kept, 5);
    open_model(&held, &seeing);
    make_card();
    add_tower_kernel();
    if (make_engine(&held, MGV_BACKEND_CUDA, NULL, &engine, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_int_equal(make_session(engine, 40, 0, &session, &error), MGV_OK);
    memset(&image, 0, sizeof image);
    image.pixels = pixels;
    image.width = 96;
    image.height = 64;
    assert_int_equal(mgv_picture_encode(engine, &image, NULL, 0, &floats, &picture, &error), MGV_ERROR_CAPACITY);
    assert_int_equal(fake_allocate(&card, (size_t)floats * sizeof(float), FAKE_DEVICE_MEMORY), cudaSuccess);
    fake.capture = cudaStreamCaptureStatusActive;
    fake.captures_another = 1;
    assert_int_equal(mgv_picture_encode(engine, &image, (float *)card, floats, &floats, &picture, &error), MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "another stream is being captured, which the legacy default stream would have to wait for"));
    assert_int_equal(fake.launches, 0);
    fake.captures_another = 0; /* now it is the one that mgv_encode is given */
    fake.graph = &graph;
    memset(&desc, 0, sizeof desc);
    memset(&output, 0, sizeof output);
    output.kind = MGV_OUTPUT_TOKENS;
    output.place = MGV_PLACE_DEVICE;
    output.data = (float *)card;
    output.capacity = floats;
    desc.images = &image;
    desc.image_count = 1;
    desc.outputs = &output;
    desc.output_count = 1;
    desc.stream = &graph;
    assert_int_equal(mgv_encode(engine, &desc, &error), MGV_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "a CUDA graph takes no pictures of any size"));
    assert_int_equal(graph.count, 0);
    assert_int_equal(fake.capture, cudaStreamCaptureStatusActive);
    fake.capture = cudaStreamCaptureStatusNone;
    if (mgv_picture_encode(engine, &image, (float *)card, floats, &floats, &picture, &error) != MGV_OK) fail_msg("%s", error.message);
    if (append(session, ids, 5, &error) != MGV_OK) fail_msg("%s", error.message);
    check_logits(session, kept, 5);
    fake_release(card, FAKE_DEVICE_MEMORY);
    mgv_session_destroy(session);
    assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
    assert_int_equal(fake_alive(), 0);
    close_model(&held);
}

/* A launch that is under way: who polls hears so, a cancelled append ends behind its block, and a session closes at any time. */
static void test_under_way(void **state) {
    fixture f;
    uint32_t ids[MOST_IDS];
    float kept[MOST_IDS];
    mgv_append_desc desc;
    (void)state;
    rule_ids(ids, kept, MOST_IDS);
    begin(&f, &small, 100, 8);
    memset(&desc, 0, sizeof desc);
    desc.ids = ids;
    desc.id_count = 20;
    fake.held = 1;
    assert_int_equal(mgv_session_append(f.session, &desc, &f.error), MGV_OK);
    assert_int_equal(mgv_session_poll(f.session, &f.error), MGV_STATUS_RUNNING);
    assert_int_equal(mgv_session_wait(f.session, 3, &f.error), MGV_ERROR_BUSY);
    assert_int_equal(fake.launches, 1);
    assert_int_equal(mgv_session_append(f.session, &desc, &f.error), MGV_ERROR_BUSY);
    fake.held = 0;
    assert_int_equal(mgv_session_wait(f.session, 10000, &f.error), MGV_OK);
    assert_int_equal(fake.launches, 4);
    check_logits(f.session, kept, 20);
    fake.held = 1;
    assert_int_equal(mgv_session_append(f.session, &desc, &f.error), MGV_OK);
    assert_int_equal(mgv_session_poll(f.session, &f.error), MGV_STATUS_RUNNING);
    mgv_session_cancel(f.session);
    assert_int_equal(mgv_session_poll(f.session, &f.error), MGV_STATUS_RUNNING); /* the card has what it has */
    fake.held = 0;
    assert_int_equal(mgv_session_wait(f.session, 10000, &f.error), MGV_ERROR_CANCELLED);
    assert_int_equal(fake.launches, 5);
    assert_int_equal(f.session->position, 20);
    assert_int_equal(append(f.session, ids + 20, 4, &f.error), MGV_OK);
    check_logits(f.session, kept, 24);
    assert_int_equal(mgv_session_append(f.session, &desc, &f.error), MGV_OK);
    fake.held = 1;
    mgv_session_poll(f.session, &f.error);
    end(&f);
}

/* A text whose launches come to no end, or to no id, ends all the same, and the session goes on. */
static void test_no_progress(void **state) {
    fixture f;
    uint32_t ids[MOST_IDS], made[8], count;
    float kept[MOST_IDS];
    int32_t stopped;
    (void)state;
    rule_ids(ids, kept, MOST_IDS);
    begin(&f, &small, 100, 0);
    assert_int_equal(append(f.session, ids, 3, &f.error), MGV_OK);
    appends_nothing = 1;
    assert_int_equal(generate(f.session, made, 8, NULL, 0, &count, &stopped, &f.error), MGV_ERROR_DEVICE);
    assert_non_null(strstr(f.error.message, "ended without an id"));
    assert_int_equal(count, 0);
    appends_nothing = 0;
    assert_int_equal(f.engine->decoder->wait_ms, MGV__BLOCKING_WAIT_MS);
    f.engine->decoder->wait_ms = 3;
    assert_int_equal(mgv_session_rollback(f.session, 0, &f.error), MGV_OK);
    assert_int_equal(append(f.session, ids, 3, &f.error), MGV_OK);
    fake.held = 1;
    assert_int_equal(generate(f.session, made, 8, NULL, 0, &count, &stopped, &f.error), MGV_ERROR_TIMEOUT);
    assert_non_null(strstr(f.error.message, "has not ended after 3 ms"));
    assert_int_equal(*f.session->gpu->cancel, 1);
    assert_int_equal(mgv_session_step(f.session, ids[3], &f.error), MGV_ERROR_BUSY); /* what the card may still read stays as it is */
    assert_non_null(strstr(f.error.message, "is still under way"));
    fake.held = 0;
    assert_int_equal(mgv_session_step(f.session, ids[3], &f.error), MGV_OK);
    check_logits(f.session, kept, 4);
    end(&f);
}

/* A launch that is told to the card and comes to its work later: what it uses is still there then. */
static mgv__decode_arguments begun;
static int done_late;
static void begin_late(const void *argument) { memcpy((void *)&begun, argument, sizeof begun); }
static void end_late(void) {
    uint32_t i;
    for (i = 0; i < begun.sessions; i++) assert_true(fake_find(begun.session[i].keys, 1) && fake_find(begun.session[i].logits, 1));
    decoder_kernel(&begun);
    done_late = 1;
}
/* Several sessions have a launch that nobody waits for any more: each of them starts none and keeps what it has until it has ended,
   and one that is closed, the launch's own or another, waits for it. Where that cannot be written down, generate waits. */
static void overdue_together(int closed, int unrecorded) {
    enum { TEXTS = 3 };
    fixture f;
    mgv_session *sessions[TEXTS];
    mgv_generate_desc descs[TEXTS];
    uint32_t ids[MOST_IDS], made[TEXTS][8], counts[TEXTS], i;
    float kept[MOST_IDS];
    int32_t stopped[TEXTS];
    uint64_t bytes;
    unsigned char *file;
    rule_ids(ids, kept, MOST_IDS);
    begin(&f, &small, 100, 0);
    f.engine->decoder->wait_ms = 3;
    memset(descs, 0, sizeof descs);
    for (i = 0; i < TEXTS; i++) {
        sessions[i] = f.session;
        if (i > 0) assert_int_equal(make_session(f.engine, 100, 0, &sessions[i], &f.error), MGV_OK);
        assert_int_equal(append(sessions[i], ids, 3 + i, &f.error), MGV_OK);
        descs[i].ids = made[i];
        descs[i].id_capacity = 8;
    }
    assert_int_equal(mgv_session_saved_bytes(sessions[2], &bytes, &f.error), MGV_OK);
    file = (unsigned char *)malloc((size_t)bytes);
    assert_non_null(file);
    assert_int_equal(mgv_session_save(sessions[2], file, bytes, &f.error), MGV_OK);
    done_late = 0;
    fake.kernel = begin_late;
    fake.late = end_late;
    fake.late_looks = 0;
    fake.held = 1;
    if (unrecorded) fake.fail_record = sessions[1]->gpu->done;
    assert_int_equal(mgv_sessions_generate(sessions, descs, TEXTS, counts, stopped, &f.error), MGV_ERROR_TIMEOUT);
    fake.fail_record = NULL;
    fake.kernel = decoder_kernel;
    assert_non_null(strstr(f.error.message, "session 0: the decoder's launch has not ended after 3 ms"));
    assert_int_equal(done_late, unrecorded);
    for (i = 0; i < TEXTS && !unrecorded; i++) {
        const uint32_t launches = fake.launches;
        assert_int_equal(mgv_session_restore(sessions[i], file, bytes, &f.error), MGV_ERROR_BUSY);
        assert_int_equal(mgv_session_save(sessions[i], file, bytes, &f.error), MGV_ERROR_BUSY);
        assert_int_equal(mgv_session_step(sessions[i], ids[3 + i], &f.error), MGV_ERROR_BUSY);
        assert_non_null(strstr(f.error.message, "is still under way"));
        assert_int_equal(append(sessions[i], ids + 3 + i, 2, &f.error), MGV_ERROR_BUSY);
        assert_int_equal(fake.launches, launches);
        assert_true(sessions[i]->position == 3 + i && !sessions[i]->has_logits && counts[i] == 0);
    }
    assert_int_equal(done_late, unrecorded);
    fake.late_looks = 3;
    mgv_session_destroy(sessions[closed]);
    assert_int_equal(done_late, 1);
    for (i = 0; i < TEXTS; i++) {
        if (i == (uint32_t)closed) continue;
        assert_int_equal(mgv_session_step(sessions[i], ids[3 + i], &f.error), MGV_OK);
        check_logits(sessions[i], kept, 4 + i);
        assert_int_equal(mgv_session_restore(sessions[i], file, bytes, &f.error), MGV_OK);
        check_logits(sessions[i], kept, 5);
        if (i > 0) mgv_session_destroy(sessions[i]);
    }
    if (closed == 0) f.session = NULL;
    free(file);
    end(&f);
}
static void test_overdue_together(void **state) {
    int closed;
    (void)state;
    for (closed = 0; closed < 3; closed++) {
        overdue_together(closed, 0);
        overdue_together(closed, 1);
    }
}

/* A kernel that gives up names what it waited for; logits that are no numbers are an error; the next launch is right. */
static void test_bad_ends(void **state) {
    fixture f;
    uint32_t ids[MOST_IDS], made[8], count;
    float kept[MOST_IDS];
    int32_t stopped;
    (void)state;
    rule_ids(ids, kept, MOST_IDS);
    begin(&f, &small, 100, 0);
    for (wait_that_ends = 1; wait_that_ends <= MGV__DECODE_WAITS; wait_that_ends++) {
        assert_int_equal(append(f.session, ids, 3, &f.error), MGV_ERROR_TIMEOUT); /* as of an encode */
        assert_non_null(strstr(f.error.message, "the decoder gave up"));
        assert_int_equal(mgv_session_step(f.session, ids[0], &f.error), MGV_ERROR_TIMEOUT);
        assert_non_null(strstr(f.error.message, "gave up at step 0"));
        assert_int_equal(append(f.session, ids, 3, &f.error), MGV_ERROR_TIMEOUT);
        assert_non_null(strstr(f.error.message, "gave up at operation 0"));
        if (wait_that_ends == MGV__DECODE_BEST) assert_non_null(strstr(f.error.message, "the other CTAs' best ids did not come"));
        if (wait_that_ends == MGV__DECODE_WAITS) assert_non_null(strstr(f.error.message, ": ? did not come"));
        assert_int_equal(f.session->position, 0);
        assert_int_equal(mgv_session_sample(f.session, NULL, &count, &f.error), MGV_ERROR_ARGUMENT);
    }
    wait_that_ends = 0;
    says_nan = 1;
    assert_int_equal(append(f.session, ids, 3, &f.error), MGV_ERROR_MODEL);
    assert_non_null(strstr(f.error.message, "the logit of id 66 is NaN"));
    says_nan = 0;
    assert_int_equal(append(f.session, ids, 3, &f.error), MGV_OK);
    check_logits(f.session, kept, 3);
    says_nan = 1;
    assert_int_equal(generate(f.session, made, 8, NULL, 0, &count, &stopped, &f.error), MGV_ERROR_MODEL);
    assert_non_null(strstr(f.error.message, "NaN or infinite"));
    says_nan = 0;
    assert_int_equal(mgv_session_logits(f.session, &(const float *){NULL}, &count, &f.error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_session_step(f.session, ids[3], &f.error), MGV_OK);
    check_logits(f.session, kept, 4);
    f.session->gpu->arguments.generation = 0x80000000u; /* tags that are used up: words are cleared and they begin anew */
    fake.fail_name = "cudaMemsetAsync";
    assert_int_equal(mgv_session_step(f.session, ids[4], &f.error), MGV_ERROR_DEVICE);
    assert_non_null(strstr(f.error.message, "clearing a session's words"));
    fake.fail_name = NULL;
    assert_int_equal(mgv_session_step(f.session, ids[4], &f.error), MGV_OK);
    check_logits(f.session, kept, 5);
    assert_int_equal(f.session->gpu->arguments.generation, 1 + LANGUAGE_LAYERS + 1 + MGV__DECODE_MEETINGS);
    end(&f);
}

/* Every call fails in turn, of engine, session, append and generate: the error names it, and at the end nothing is left. */
static void every_call_fails(const shape *s) {
    held_model held;
    uint32_t ids[MOST_IDS], made[8], count, failures = 0;
    float kept[MOST_IDS];
    int32_t stopped;
    uint64_t n;
    rule_ids(ids, kept, MOST_IDS);
    open_model(&held, s);
    for (n = 1;; n++) {
        counting_allocator counts;
        mgv_engine *engine = NULL;
        mgv_session *session = NULL;
        mgv_error error;
        mgv_result result;
        make_card();
        fake.fail_at = n;
        memset(&error, 0, sizeof error);
        result = make_engine(&held, MGV_BACKEND_CUDA, &counts, &engine, &error);
        if (result == MGV_OK) result = make_session(engine, 50, 0, &session, &error);
        if (result == MGV_OK) result = append(session, ids, 3, &error);
        if (result == MGV_OK) result = generate(session, made, 8, NULL, 0, &count, &stopped, &error);
        if (result != MGV_OK) {
            failures++;
            assert_non_null(fake.failed);
            assert_int_equal(result, MGV_ERROR_DEVICE);
            if (strncmp(error.message, fake.failed, strlen(fake.failed)) != 0)
                fail_msg("%s failed, the error says: %s", fake.failed, error.message);
            assert_int_equal(fake.unwatched, 0);
        }
        fake.fail_at = 0;
        if (session) { /* it goes on */
            mgv_session_rollback(session, 0, NULL);
            if (append(session, ids, 4, &error) != MGV_OK) fail_msg("after a failed %s: %s", fake.failed, error.message);
            check_logits(session, kept, 4);
        }
        mgv_session_destroy(session);
        if (engine) assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
        assert_int_equal(fake_alive(), 0);
        assert_int_equal(counts.live_blocks, 0);
        if (!fake.failed) break;
    }
    assert_true(failures > 40);
    close_model(&held);
}
static void test_every_call_fails(void **state) {
    (void)state;
    every_call_fails(&small);
    every_call_fails(&seeing);
}

/* Memory for the host side runs out at every allocation in turn. */
static void test_without_memory(void **state) {
    held_model held;
    uint64_t n;
    mgv_result result = MGV_ERROR_NOMEM;
    (void)state;
    open_model(&held, &small);
    for (n = 1; result != MGV_OK; n++) {
        counting_allocator counts;
        mgv_engine_desc desc;
        mgv_engine *engine = NULL;
        mgv_error error;
        make_card();
        memset(&desc, 0, sizeof desc);
        desc.backend = MGV_BACKEND_CUDA;
        desc.kernels = "stands for megavit.fatbin";
        desc.allocator = counting_allocator_make(&counts);
        counts.fail_at = n;
        result = mgv_engine_create(&engine, held.model, &desc, &error);
        if (result != MGV_OK) assert_int_equal(result, MGV_ERROR_NOMEM);
        else assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
        assert_int_equal(fake_alive(), 0);
        assert_int_equal(counts.live_blocks, 0);
    }
    assert_true(n > 3);
    close_model(&held);
}

/* Cards and kernels that will not do, each with its sentence; AUTO then decodes on the CPU and says why. */
static void refuse(const held_model *held, mgv_result expected, const char *sentence) {
    mgv_engine *engine = NULL;
    mgv_error error;
    const mgv_result result = make_engine(held, MGV_BACKEND_CUDA, NULL, &engine, &error);
    if (result != expected || !strstr(error.message, sentence)) fail_msg("%s: %s", sentence, result == MGV_OK ? "taken" : error.message);
    assert_null(engine);
    assert_int_equal(fake_alive(), 0);
    if (make_engine(held, MGV_BACKEND_AUTO, NULL, &engine, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_int_equal(mgv_engine_backend(engine), MGV_BACKEND_CPU);
    if (!strstr(said, "the CPU decodes: ") || !strstr(said, sentence)) fail_msg("%s: the log says: %s", sentence, said);
    assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
    assert_int_equal(fake_alive(), 0);
}
static void test_refused_cards(void **state) {
    held_model held;
    (void)state;
    open_model(&held, &small);
    make_card();
    fake.major = 10;
    refuse(&held, MGV_ERROR_NO_DEVICE, "language models decode on Hopper GPUs");
    make_card();
    fake.major = 8;
    refuse(&held, MGV_ERROR_NO_DEVICE, "GPU 0");
    make_card();
    fake.devices = 0;
    refuse(&held, MGV_ERROR_NO_DEVICE, "cudaGetDeviceCount");
    make_card();
    fake.description_bytes = 20;
    refuse(&held, MGV_ERROR_UNSUPPORTED, "the decoder's description has 20 bytes, not 12");
    make_card();
    fake.description[0]++;
    refuse(&held, MGV_ERROR_UNSUPPORTED, "of another version than this header");
    make_card();
    fake.description[2]++;
    refuse(&held, MGV_ERROR_UNSUPPORTED, "of another version than this header");
    make_card();
    fake.shared = 99999;
    refuse(&held, MGV_ERROR_NO_DEVICE, "needs 100000 bytes of shared memory for a block; GPU 0 has 99999");
    make_card();
    fake.missing = "megavit_decode_description";
    refuse(&held, MGV_ERROR_DEVICE, "looking for the decoder's description");
    make_card();
    fake.missing = "megavit_decode_12_2_sm_90a";
    refuse(&held, MGV_ERROR_DEVICE, "looking for the decoder's kernel");
    make_card();
    fake.missing = "megavit_decode_few_12_2_sm_90a";
    refuse(&held, MGV_ERROR_DEVICE, "looking for the decoder's kernel");
    make_card();
    fake.missing = "megavit_prompt_sm_90a";
    refuse(&held, MGV_ERROR_DEVICE, "looking for the decoder's kernel");
    make_card();
    fake.missing = "megavit_prompt_few_sm_90a";
    refuse(&held, MGV_ERROR_DEVICE, "looking for the decoder's kernel");
    make_card();
    fake.others[0].description[2]++;
    refuse(&held, MGV_ERROR_UNSUPPORTED, "of another version than this header");
    make_card();
    fake.most_bytes = 1000;
    refuse(&held, MGV_ERROR_NOMEM, "allocating device memory for weights");
    make_card();
    mgv__cuda_test_calls = NULL;
    refuse(&held, MGV_ERROR_NO_DEVICE, "this build has no CUDA runtime");
    close_model(&held);
}

/* Engines that share a card: launches have as many blocks as max_sms leaves, in whole pairs, and none is another's business. */
static void test_parts_of_a_card(void **state) {
    static const uint32_t parts[] = {66, 65, 2, 0}, blocks[] = {66, 64, 2, 132};
    enum { ENGINES = COUNT_OF(parts) };
    held_model held;
    mgv_engine *engines[ENGINES];
    mgv_session *sessions[ENGINES];
    mgv_error error;
    uint32_t ids[20], made[2], count, i;
    float kept[20];
    int32_t stopped;
    (void)state;
    rule_ids(ids, kept, 20);
    open_model(&held, &small);
    make_card();
    for (i = 0; i < ENGINES; i++) {
        mgv_engine_desc desc;
        memset(&desc, 0, sizeof desc);
        desc.backend = MGV_BACKEND_CUDA;
        desc.kernels = "stands for megavit.fatbin";
        desc.max_sms = parts[i];
        if (mgv_engine_create(&engines[i], held.model, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
        assert_int_equal(make_session(engines[i], 40, 0, &sessions[i], &error), MGV_OK);
        assert_int_equal(append(sessions[i], ids, 5 + i, &error), MGV_OK);
        assert_int_equal(fake.grid, blocks[i]);
    }
    mgv_session_destroy(sessions[1]);
    assert_int_equal(mgv_engine_destroy(engines[1]), MGV_OK);
    for (i = 0; i < ENGINES; i++) {
        if (i == 1) continue;
        check_logits(sessions[i], kept, 5 + i);
        assert_int_equal(generate(sessions[i], made, 2, NULL, 0, &count, &stopped, &error), MGV_OK);
        assert_int_equal(fake.grid, blocks[i]);
        assert_int_equal(made[0], likeliest(kept, 5 + i, small.vocabulary));
        mgv_session_destroy(sessions[i]);
        assert_int_equal(mgv_engine_destroy(engines[i]), MGV_OK);
    }
    assert_int_equal(fake_alive(), 0);
    close_model(&held);
}

/* Models whose layers the kernel does not know. */
static void test_refused_models(void **state) {
    static const struct { shape shape; const char *sentence; int multiprocessors; } cases[] = {
        {{"qwen3", 32, 64, 4, 2, 64, 67, 1, 0, 0}, "with heads of 128 columns, and this model's have 64", 132},
        {{"qwen3", 32, 64, 2, 2, 128, 67, 1, 0, 0}, "this model has 2 and 2", 132},
        {{"qwen3", 40, 64, 4, 2, 128, 67, 1, 0, 0}, "this model's have 40 and 64", 132},
        {{"qwen3", 32, 48, 4, 2, 128, 67, 1, 0, 0}, "this model's have 32 and 48", 132},
        {{"qwen3", 32, 64, 4, 2, 128, 67, 1, 0, 1}, "without biases in attention", 132},
        {{"qwen3", 1040, 32, 4, 2, 128, 67, 1, 0, 0}, "2 multiprocessors are too few for rows of 1040 columns: 256 columns each", 2}};
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        held_model held;
        open_model(&held, &cases[i].shape);
        make_card();
        fake.multiprocessors = cases[i].multiprocessors;
        refuse(&held, cases[i].multiprocessors == 2 ? MGV_ERROR_ARGUMENT : MGV_ERROR_UNSUPPORTED, cases[i].sentence);
        close_model(&held);
    }
}

/* The thread's current device is as it was behind every call. */
static void test_current_device(void **state) {
    held_model held;
    mgv_engine_desc desc;
    mgv_engine *engine;
    mgv_session *session;
    mgv_error error;
    uint32_t ids[3] = {1, 2, 3}, made[2], count;
    int32_t stopped;
    (void)state;
    open_model(&held, &small);
    make_card();
    fake.devices = 2;
    memset(&desc, 0, sizeof desc);
    desc.backend = MGV_BACKEND_CUDA;
    desc.device = 1;
    desc.kernels = "stands for megavit.fatbin";
    assert_int_equal(mgv_engine_create(&engine, held.model, &desc, &error), MGV_OK);
    assert_int_equal(fake.device, 0);
    assert_int_equal(make_session(engine, 20, 0, &session, &error), MGV_OK);
    assert_int_equal(fake.device, 0);
    assert_int_equal(append(session, ids, 3, &error), MGV_OK);
    assert_int_equal(fake.device, 0);
    assert_int_equal(generate(session, made, 2, NULL, 0, &count, &stopped, &error), MGV_OK);
    assert_int_equal(fake.device, 0);
    fake.fail_name = "cudaSetDevice"; /* it cannot be made the engine's */
    assert_int_equal(mgv_session_step(session, 1, &error), MGV_ERROR_DEVICE);
    assert_int_equal(fake.device, 0);
    fake.fail_name = NULL;
    mgv_session_destroy(session);
    assert_int_equal(fake.device, 0);
    assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
    assert_int_equal(fake_alive(), 0);
    close_model(&held);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_append), cmocka_unit_test(test_weights), cmocka_unit_test(test_generate), cmocka_unit_test(test_together),
        cmocka_unit_test(test_sampling), cmocka_unit_test(test_texts_that_fail), cmocka_unit_test(test_ended_texts),
        cmocka_unit_test(test_on_the_cpu), cmocka_unit_test(test_turns), cmocka_unit_test(test_largest_block),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_pictures), cmocka_unit_test(test_picture_rows), cmocka_unit_test(test_picture_rows_on_the_card),
        cmocka_unit_test(test_captures_of_others), cmocka_unit_test(test_captures_and_pictures), cmocka_unit_test(test_under_way),
        cmocka_unit_test(test_no_progress), cmocka_unit_test(test_overdue_together),
        cmocka_unit_test(test_bad_ends),
        cmocka_unit_test(test_every_call_fails), cmocka_unit_test(test_without_memory), cmocka_unit_test(test_refused_cards),
        cmocka_unit_test(test_parts_of_a_card), cmocka_unit_test(test_refused_models), cmocka_unit_test(test_current_device)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
