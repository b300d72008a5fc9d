/* Sessions: bits that do not depend on cuts, blocks, threads and neighbours; edges; rolling back, dropping, saving; how ids are chosen;
   what is refused, and that the session stays as it was. */
#define MEGAVIT_TEXT
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "support.h"

#include "decoder.h"

enum { IMAGE = 120, VIDEO = 121, VISION_START = 122, VISION_END = 123, VOCABULARY = 128, LOGIT_BYTES = VOCABULARY * sizeof(float) };

static void some_ids(uint32_t *ids, size_t count, const char *name) {
    size_t i;
    for (i = 0; i < count; i++) ids[i] = (uint32_t)(decoder_rule_bits(name, i) % 120);
}
static void refused(mgv_result result, mgv_result code, const mgv_error *error, const char *words) {
    if (result != code || !strstr(error->message, words))
        fail_msg("expected %s with \"%s\", got %s: %s", mgv_result_name(code), words, mgv_result_name(result), error->message);
}
static mgv_session_info info_of(const mgv_session *session) {
    mgv_session_info info;
    assert_int_equal(mgv_session_get_info(session, &info), MGV_OK);
    return info;
}

/* ---- Bits ---- */

static void bits_depend_on_neither_cuts_nor_blocks_nor_threads_nor_neighbours(void **state) {
    static const size_t cuts[][4] = {{700, 0, 0, 0}, {1, 699, 0, 0}, {383, 1, 1, 315}, {400, 7, 93, 200}, {0, 0, 0, 0}};
    static const uint32_t blocks[] = {0, 1, 5, 64, 700};
    static const mgv__isa isas[] = {MGV__ISA_NEON, MGV__ISA_AVX512, MGV__ISA_AVX2, MGV__ISA_PLAIN};
    const mgv__cpu_kernels *sets[COUNT_OF(isas) + 2] = {NULL};
    mgv_model *model = decoder_open("qwen3");
    mgv_threads *threads;
    uint32_t ids[700], other[50];
    size_t i, k, set;
    (void)state;
    for (i = 0; i < COUNT_OF(isas); i++)
        if (mgv__cpu_detect() >= isas[i]) sets[i] = mgv__cpu_kernels_of(isas[i]);
    sets[i] = mgv__cpu_kernels_of_pairs();
    sets[i + 1] = mgv__cpu_kernels_of_tiles();
    some_ids(ids, COUNT_OF(ids), "cuts");
    some_ids(other, COUNT_OF(other), "other");
    assert_int_equal(mgv_threads_create(&threads, 3, NULL, NULL), MGV_OK);
    for (set = 0; set < COUNT_OF(sets); set++) {
        float first[VOCABULARY];
        if (!sets[set]) continue;
        for (i = 0; i < COUNT_OF(cuts); i++) {
            mgv_engine *engine = decoder_engine(model, i % 2 ? threads : NULL);
            mgv_session *session, *neighbour;
            size_t at = 0;
            engine->kernels = sets[set];
            session = decoder_session(engine, 700 + (uint32_t)i * 3, blocks[i]);
            neighbour = decoder_session(engine, 64, 3);
            for (k = 0; at < 700; k++) {
                const size_t part = cuts[i][0] == 0 ? 1 : cuts[i][k]; /* the last one: step by step */
                assert_int_equal(decoder_append(session, ids + at, part, NULL, 0, NULL), MGV_OK);
                if (k < COUNT_OF(other)) assert_int_equal(decoder_append(neighbour, other + k, 1, NULL, 0, NULL), MGV_OK);
                at += part;
            }
            if (i == 0) memcpy(first, decoder_logits(session), sizeof first);
            assert_memory_equal(decoder_logits(session), first, sizeof first);
            mgv_session_destroy(session);
            mgv_session_destroy(neighbour);
            assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
        }
    }
    mgv_threads_destroy(threads);
    mgv_model_close(model);
}

/* Sums of pairs: of rows and weights that are rounded to bf16, in float32, the same bits for a row alone and among others. */
static void check_sums(const mgv__cpu_kernels *k, uint32_t rows, uint32_t columns, uint32_t n, mgv_dtype dtype) {
    const size_t bytes = mgv__cpu_element_bytes(dtype), a_stride = n + 1, w_stride = n + 3, c_stride = columns + 2;
    float *a = (float *)malloc(rows * a_stride * sizeof *a), *c = (float *)malloc(rows * c_stride * sizeof *c);
    char *w = (char *)malloc(((columns - 1) * w_stride + n) * bytes);
    float *alone = (float *)malloc(columns * sizeof *alone);
    uint32_t i, j, m, again;
    assert_true(a && c && w && alone);
    for (i = 0; i < rows * a_stride; i++) a[i] = (float)((double)(decoder_rule_bits("rows", i) >> 11) / 4503599627370496.0 - 1);
    for (i = 0; i < (columns - 1) * w_stride + n; i++) {
        const float value = (float)((double)(decoder_rule_bits("weights", i) >> 11) / 4503599627370496.0 - 1);
        const uint16_t half = dtype == MGV_DTYPE_F16 ? mgv__f16_round(value) : mgv__bf16_round(value);
        memcpy(w + i * bytes, dtype == MGV_DTYPE_F32 ? (const void *)&value : (const void *)&half, bytes);
    }
    for (again = 0; again < 2; again++) { /* the second time added to the first */
        k->dots(dtype, rows, columns, n, a, a_stride, w, w_stride, c, c_stride, (int)again);
        for (i = 0; i < rows; i++)
            for (j = 0; j < columns; j++) {
                double want = 0, size = 0;
                for (m = 0; m < n; m++) {
                    const float weight = mgv__element_value(dtype, w, j * w_stride + m);
                    const double product = (double)mgv__float_of_bf16(mgv__bf16_round(a[i * a_stride + m])) *
                                           (double)mgv__float_of_bf16(mgv__bf16_round(weight));
                    want += (again + 1) * product;
                    size += fabs(product);
                }
                if (!(fabs((double)c[i * c_stride + j] - want) <= 1e-6 * size))
                    fail_msg("%u rows, %u columns, %u numbers, row %u, column %u: %g, not %g", rows, columns, n, i, j,
                             (double)c[i * c_stride + j], want);
            }
    }
    k->dots(dtype, rows, columns, n, a, a_stride, w, w_stride, c, c_stride, 0);
    for (i = 0; i < rows; i++) {
        k->dots(dtype, 1, columns, n, a + i * a_stride, a_stride, w, w_stride, alone, columns, 0);
        assert_memory_equal(alone, c + i * c_stride, columns * sizeof *alone);
    }
    free(a);
    free(c);
    free(w);
    free(alone);
}
static void sums_of_pairs_are_of_rounded_numbers(void **state) {
    static const uint32_t counts[] = {1, 15, 31, 32, 33, 64, 127, 128, 1000, MGV__CPU_DOT_DEPTH};
    static const mgv_dtype dtypes[] = {MGV_DTYPE_F32, MGV_DTYPE_BF16, MGV_DTYPE_F16};
    const mgv__cpu_kernels *k = mgv__cpu_kernels_of_pairs();
    uint32_t n, rows, columns, t;
    (void)state;
    if (!k) skip(); /* this CPU does not multiply bf16, or this compiler does not know how */
    for (n = 0; n < COUNT_OF(counts); n++)
        for (rows = 1; rows <= 15; rows += 2)
            for (columns = 1; columns <= 9; columns++)
                for (t = 0; t < COUNT_OF(dtypes); t++) check_sums(k, rows, columns, counts[n], dtypes[t]);
}

/* start, the rows of one picture, end, text; the rows of another. Returns how many ids. */
static size_t two_pictures(mgv_engine *engine, decoder_picture *made, mgv_picture *pictures, uint32_t *ids) {
    size_t count = 0, i;
    uint32_t p;
    for (p = 0; p < 2; p++) {
        made[p].width = p ? 160 : 64;
        made[p].height = p ? 64 : 96;
        decoder_encode(engine, &made[p], p);
        pictures[p] = made[p].picture;
        ids[count++] = VISION_START;
        for (i = 0; i < pictures[p].grid.merged_tokens; i++) ids[count++] = IMAGE;
        if (p) continue;
        ids[count++] = VISION_END;
        for (i = 0; i < 4; i++) ids[count++] = 7 * (uint32_t)i + 1;
    }
    ids[count++] = VISION_END;
    ids[count++] = 5;
    return count;
}
static void pictures_may_be_cut_by_blocks_and_come_one_by_one(void **state) {
    static const uint32_t blocks[] = {0, 1, 4, 7};
    mgv_model *model = decoder_open("qwen3_vl");
    mgv_engine *engine = decoder_engine(model, NULL);
    decoder_picture made[2];
    mgv_picture pictures[2];
    uint32_t ids[64], next = 0;
    float first[VOCABULARY];
    size_t count = two_pictures(engine, made, pictures, ids), i, cut = 0;
    (void)state;
    while (ids[cut] != VISION_END) cut++;
    for (i = 0; i <= COUNT_OF(blocks); i++) {
        mgv_session *session = decoder_session(engine, 64, i < COUNT_OF(blocks) ? blocks[i] : 0);
        if (i < COUNT_OF(blocks)) {
            assert_int_equal(decoder_append(session, ids, count, pictures, 2, NULL), MGV_OK);
        } else {
            assert_int_equal(decoder_append(session, ids, cut, pictures, 1, NULL), MGV_OK);
            assert_int_equal(decoder_append(session, ids + cut, count - cut, pictures + 1, 1, NULL), MGV_OK);
        }
        if (i == 0) memcpy(first, decoder_logits(session), sizeof first);
        if (i == 0) next = info_of(session).next;
        assert_memory_equal(decoder_logits(session), first, sizeof first);
        assert_int_equal(info_of(session).next, next);
        assert_int_equal(info_of(session).position, count);
        mgv_session_destroy(session);
    }
    assert_int_equal(next, 1 + 3 + 1 + 4 + 1 + 5 + 2); /* the longer sides of 2 x 3 and 5 x 2 */
    decoder_free_picture(&made[0]);
    decoder_free_picture(&made[1]);
    mgv_engine_destroy(engine);
    mgv_model_close(model);
}

/* ---- Edges ---- */

static void a_session_holds_as_much_as_its_capacity(void **state) {
    mgv_model *model = decoder_open("qwen3");
    mgv_engine *engine = decoder_engine(model, NULL);
    mgv_session *session = decoder_session(engine, 10, 0);
    uint32_t ids[11], id;
    float before[VOCABULARY];
    const float *logits;
    mgv_error error;
    (void)state;
    some_ids(ids, 11, "capacity");
    refused(mgv_session_logits(session, &logits, &id, &error), MGV_ERROR_ARGUMENT, &error, "there are no logits");
    refused(mgv_session_sample(session, NULL, &id, &error), MGV_ERROR_ARGUMENT, &error, "there are no logits");
    refused(decoder_append(session, ids, 0, NULL, 0, &error), MGV_ERROR_ARGUMENT, &error, "there are no ids");
    refused(decoder_append(session, NULL, 3, NULL, 0, &error), MGV_ERROR_ARGUMENT, &error, "there are no ids");
    refused(decoder_append(session, ids, 11, NULL, 0, &error), MGV_ERROR_CAPACITY, &error, "11 ids behind the 0");
    assert_int_equal(info_of(session).position, 0);
    assert_int_equal(decoder_append(session, ids, 9, NULL, 0, NULL), MGV_OK);
    refused(decoder_append(session, ids, 2, NULL, 0, &error), MGV_ERROR_CAPACITY, &error, "2 ids behind the 9 that the session holds");
    assert_int_equal(mgv_session_step(session, ids[9], NULL), MGV_OK);
    memcpy(before, decoder_logits(session), sizeof before);
    refused(mgv_session_step(session, ids[10], &error), MGV_ERROR_CAPACITY, &error, "it was made for 10");
    assert_memory_equal(decoder_logits(session), before, sizeof before);
    assert_int_equal(info_of(session).position, 10);
    assert_int_equal(info_of(session).next, 10);
    assert_memory_equal(info_of(session).ids, ids, 10 * sizeof *ids);
    mgv_session_destroy(session);
    mgv_session_destroy(NULL);
    mgv_engine_destroy(engine);
    mgv_model_close(model);
}

static void appends_that_cannot_be_leave_the_session_alone(void **state) {
    static const struct { uint32_t ids[4]; size_t count; mgv_result code; const char *words; } cases[] = {
        {{1, 128}, 2, MGV_ERROR_ARGUMENT, "id 128 at place 1; the model's vocabulary ends at 127"},
        {{UINT32_MAX}, 1, MGV_ERROR_ARGUMENT, "id 4294967295 at place 0"},
        {{1, VIDEO}, 2, MGV_ERROR_UNSUPPORTED, "id 121 at place 1 stands for a clip"},
        {{1, IMAGE}, 2, MGV_ERROR_ARGUMENT, "place 1: a placeholder beyond the rows of the 0 pictures"},
    };
    mgv_model *model = decoder_open("qwen3_vl"), *blind = decoder_open("qwen3");
    mgv_engine *engine = decoder_engine(model, NULL), *blind_engine = decoder_engine(blind, NULL);
    mgv_session *session = decoder_session(engine, 64, 0), *blind_session = decoder_session(blind_engine, 64, 0);
    decoder_picture made[2];
    mgv_picture pictures[2], wrong[2];
    uint32_t ids[64];
    size_t count = two_pictures(engine, made, pictures, ids), i;
    float before[VOCABULARY];
    mgv_error error;
    (void)state;
    assert_int_equal(mgv_session_step(session, 3, NULL), MGV_OK);
    memcpy(before, decoder_logits(session), sizeof before);
    for (i = 0; i < COUNT_OF(cases); i++)
        refused(decoder_append(session, cases[i].ids, cases[i].count, NULL, 0, &error), cases[i].code, &error, cases[i].words);
    refused(decoder_append(session, ids, 3, pictures, 1, &error), MGV_ERROR_ARGUMENT, &error,
            "picture 0 has 2 placeholders, and its grid says 6");
    refused(decoder_append(session, ids + 2, count - 2, pictures, 2, &error), MGV_ERROR_ARGUMENT, &error,
            "place 5: picture 0 has 5 placeholders");
    refused(decoder_append(session, ids, count, pictures, 1, &error), MGV_ERROR_ARGUMENT, &error, "a placeholder beyond the rows of the 1");
    refused(decoder_append(session, ids, 8, pictures, 2, &error), MGV_ERROR_ARGUMENT, &error,
            "2 pictures were passed, and the ids have placeholders for 1");
    refused(decoder_append(session, ids, count, NULL, 2, &error), MGV_ERROR_ARGUMENT, &error, "pictures is NULL");
    refused(decoder_append(session, ids, count, pictures, MGV_MAX_PICTURES + 1, &error), MGV_ERROR_CAPACITY, &error, "the limit is 256");
    memcpy(wrong, pictures, sizeof wrong);
    wrong[1].tokens = NULL;
    refused(decoder_append(session, ids, count, wrong, 2, &error), MGV_ERROR_ARGUMENT, &error, "picture 1 has no tokens");
    memcpy(wrong, pictures, sizeof wrong);
    wrong[0].deepstack[2] = NULL;
    refused(decoder_append(session, ids, count, wrong, 2, &error), MGV_ERROR_ARGUMENT, &error, "picture 0 has no rows of DeepStack 2");
    wrong[0].deepstack_count = 2;
    refused(decoder_append(session, ids, count, wrong, 2, &error), MGV_ERROR_ARGUMENT, &error,
            "picture 0 has 2 DeepStack outputs, and the model reads 3");
    memcpy(wrong, pictures, sizeof wrong);
    wrong[0].grid.h++;
    refused(decoder_append(session, ids, count, wrong, 2, &error), MGV_ERROR_ARGUMENT, &error, "picture 0: ");
    memcpy(wrong, pictures, sizeof wrong);
    wrong[0].grid.t = 2;
    wrong[0].grid.tokens *= 2;
    wrong[0].grid.merged_tokens *= 2;
    refused(decoder_append(session, ids, count, wrong, 2, &error), MGV_ERROR_UNSUPPORTED, &error, "picture 0 is a clip");
    assert_memory_equal(decoder_logits(session), before, sizeof before);
    assert_int_equal(info_of(session).position, 1);
    refused(decoder_append(blind_session, ids, count, pictures, 2, &error), MGV_ERROR_ARGUMENT, &error, "no vision tower");
    assert_int_equal(mgv_session_step(blind_session, IMAGE, NULL), MGV_OK); /* an id as any other there */
    decoder_free_picture(&made[0]);
    decoder_free_picture(&made[1]);
    mgv_session_destroy(session);
    mgv_session_destroy(blind_session);
    mgv_engine_destroy(engine);
    mgv_engine_destroy(blind_engine);
    mgv_model_close(model);
    mgv_model_close(blind);
}

/* A model may write the placeholder of a picture or a clip: an id as any other, whose logits are those of a model that has the placeholder
   elsewhere. Pictures come behind it as ever. */
static void a_placeholder_that_was_chosen_is_an_id(void **state) {
    mgv_model *model = decoder_open("qwen3_vl");
    mgv_engine *engine = decoder_engine(model, NULL);
    mgv_session *session = decoder_session(engine, 64, 0), *other = decoder_session(engine, 64, 0);
    decoder_picture made[2];
    mgv_picture pictures[2];
    uint32_t ids[64];
    const uint32_t written[4] = {3, IMAGE, VIDEO, 5};
    const size_t count = two_pictures(engine, made, pictures, ids);
    float expected[VOCABULARY];
    mgv_error error;
    size_t i;
    (void)state;
    model->config.image_id = model->config.video_id = 119;
    assert_int_equal(decoder_append(other, written, 4, NULL, 0, NULL), MGV_OK);
    memcpy(expected, decoder_logits(other), sizeof expected);
    model->config.image_id = IMAGE;
    model->config.video_id = VIDEO;
    for (i = 0; i < 4; i++) assert_int_equal(mgv_session_step(session, written[i], NULL), MGV_OK);
    assert_memory_equal(decoder_logits(session), expected, sizeof expected);
    assert_int_equal(info_of(session).next, 4);
    refused(mgv_session_step(session, VOCABULARY, &error), MGV_ERROR_ARGUMENT, &error, "id 128 at place 0");
    assert_int_equal(decoder_append(session, ids, count, pictures, 2, NULL), MGV_OK);
    assert_int_equal(decoder_append(other, ids, count, pictures, 2, NULL), MGV_OK);
    assert_memory_equal(decoder_logits(session), decoder_logits(other), sizeof expected);
    assert_int_equal(mgv_session_rollback(session, 2, NULL), MGV_OK); /* behind the placeholder: no picture is cut */
    assert_int_equal(mgv_session_step(session, VIDEO, NULL), MGV_OK);
    assert_int_equal(mgv_session_step(session, 5, NULL), MGV_OK);
    assert_memory_equal(decoder_logits(session), expected, sizeof expected);
    decoder_free_picture(&made[0]);
    decoder_free_picture(&made[1]);
    mgv_session_destroy(session);
    mgv_session_destroy(other);
    mgv_engine_destroy(engine);
    mgv_model_close(model);
}

static void an_engine_without_a_tower_encodes_nothing(void **state) {
    mgv_model *model = decoder_open("qwen3");
    mgv_engine *engine = decoder_engine(model, NULL);
    uint8_t pixels[3 * 32 * 32] = {0};
    float value;
    mgv_image image;
    mgv_grid grid;
    mgv_shape shape;
    mgv_output output;
    mgv_encode_desc desc;
    mgv_engine_desc engine_desc;
    mgv_preprocessing_info preprocessing;
    mgv_error error;
    (void)state;
    memset(&image, 0, sizeof image);
    memset(&output, 0, sizeof output);
    memset(&desc, 0, sizeof desc);
    memset(&engine_desc, 0, sizeof engine_desc);
    image.pixels = pixels;
    image.width = image.height = 32;
    output.data = &value;
    output.capacity = 1;
    desc.images = &image;
    desc.image_count = 1;
    desc.outputs = &output;
    desc.output_count = 1;
    refused(mgv_encode(engine, &desc, &error), MGV_ERROR_ARGUMENT, &error, "no vision tower");
    refused(mgv_engine_grid(engine, &image, &grid, &error), MGV_ERROR_ARGUMENT, &error, "no vision tower");
    refused(mgv_model_grid(model, &image, 0, 0, &grid, &error), MGV_ERROR_ARGUMENT, &error, "no vision tower");
    refused(mgv_engine_shape(engine, &image, 1, &output, &shape, &error), MGV_ERROR_ARGUMENT, &error, "no vision tower");
    refused(mgv_preprocess(engine, &image, &value, 1, &shape, &error), MGV_ERROR_ARGUMENT, &error, "no vision tower");
    assert_int_equal(mgv_model_get_preprocessing(model, &preprocessing), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_poll(engine, NULL), MGV_STATUS_DONE);
    mgv_engine_destroy(engine);
    engine_desc.backend = MGV_BACKEND_CUDA;
    refused(mgv_engine_create(&engine, model, &engine_desc, &error), MGV_ERROR_NO_DEVICE, &error, "no CUDA backend");
    mgv_model_close(model);
}

/* ---- Steps, dropping, rolling back ---- */

static void an_append_goes_in_steps_and_can_be_dropped(void **state) {
    mgv_model *model = decoder_open("qwen3");
    mgv_engine *engine = decoder_engine(model, NULL);
    mgv_session *session = decoder_session(engine, 64, 8);
    uint32_t ids[40], polls = 0;
    float before[VOCABULARY], after[VOCABULARY];
    mgv_append_desc desc;
    mgv_error error;
    (void)state;
    some_ids(ids, 40, "steps");
    memset(&desc, 0, sizeof desc);
    desc.ids = ids;
    desc.id_count = 40;
    assert_int_equal(mgv_session_poll(session, NULL), MGV_STATUS_DONE);
    assert_int_equal(mgv_session_step(session, 9, NULL), MGV_OK);
    memcpy(before, decoder_logits(session), sizeof before);
    assert_int_equal(mgv_session_append(session, &desc, NULL), MGV_OK);
    assert_int_equal(mgv_session_poll(session, NULL), MGV_STATUS_RUNNING);
    refused(mgv_session_append(session, &desc, &error), MGV_ERROR_BUSY, &error, "mgv_session_append: an append is under way");
    refused(mgv_session_rollback(session, 0, &error), MGV_ERROR_BUSY, &error, "mgv_session_rollback");
    refused(mgv_session_sample(session, NULL, &polls, &error), MGV_ERROR_BUSY, &error, "mgv_session_sample");
    refused(mgv_session_wait(session, 0, &error), MGV_ERROR_BUSY, &error, "still at id 0 of 40, operation 3 of");
    mgv_session_cancel(session);
    refused(mgv_session_wait(session, 1000000, &error), MGV_ERROR_CANCELLED, &error, "mgv_session_cancel ended the append");
    assert_int_equal(mgv_session_poll(session, NULL), MGV_STATUS_CANCELLED);
    assert_int_equal(info_of(session).position, 1);
    assert_memory_equal(decoder_logits(session), before, sizeof before);
    assert_int_equal(mgv_session_append(session, &desc, NULL), MGV_OK);
    for (polls = 0; mgv_session_poll(session, NULL) == MGV_STATUS_RUNNING; polls++) assert_int_equal(info_of(session).position, 1);
    assert_true(polls > 5 * 40);
    memcpy(after, decoder_logits(session), sizeof after);
    assert_int_equal(mgv_session_rollback(session, 1, NULL), MGV_OK);
    assert_int_equal(mgv_session_append(session, &desc, NULL), MGV_OK);
    assert_int_equal(mgv_session_wait(session, 1000000, NULL), MGV_OK);
    assert_memory_equal(decoder_logits(session), after, sizeof after);
    mgv_session_cancel(session); /* nothing is under way */
    mgv_session_cancel(NULL);
    assert_int_equal(mgv_session_step(session, 3, NULL), MGV_OK);
    mgv_session_destroy(session);
    mgv_engine_destroy(engine);
    mgv_model_close(model);
}

static void rolled_back_sessions_go_on_as_if_nothing_had_been(void **state) {
    mgv_model *model = decoder_open("qwen3_vl");
    mgv_engine *engine = decoder_engine(model, NULL);
    mgv_session *session = decoder_session(engine, 64, 0), *straight = decoder_session(engine, 64, 0);
    decoder_picture made[2];
    mgv_picture pictures[2];
    uint32_t ids[64], id;
    size_t count = two_pictures(engine, made, pictures, ids);
    mgv_error error;
    (void)state;
    assert_int_equal(decoder_append(session, ids, count, pictures, 2, NULL), MGV_OK);
    refused(mgv_session_rollback(session, 3, &error), MGV_ERROR_ARGUMENT, &error, "position 3 is in the middle of a picture");
    refused(mgv_session_rollback(session, 64, &error), MGV_ERROR_ARGUMENT, &error, "position 64; the session holds");
    assert_int_equal(mgv_session_rollback(session, (uint32_t)count, NULL), MGV_OK);
    assert_true(info_of(session).has_logits);
    assert_int_equal(mgv_session_rollback(session, 8, NULL), MGV_OK); /* right behind the first picture's end */
    assert_int_equal(info_of(session).next, 1 + 3 + 1);
    refused(mgv_session_sample(session, NULL, &id, &error), MGV_ERROR_ARGUMENT, &error, "not since a rollback");
    assert_int_equal(decoder_append(session, ids + 8, count - 8, pictures + 1, 1, NULL), MGV_OK);
    assert_int_equal(decoder_append(straight, ids, count, pictures, 2, NULL), MGV_OK);
    assert_memory_equal(decoder_logits(session), decoder_logits(straight), LOGIT_BYTES);
    assert_int_equal(mgv_session_rollback(session, 0, NULL), MGV_OK);
    assert_int_equal(info_of(session).next, 0);
    decoder_free_picture(&made[0]);
    decoder_free_picture(&made[1]);
    mgv_session_destroy(session);
    mgv_session_destroy(straight);
    mgv_engine_destroy(engine);
    mgv_model_close(model);
}

static void logits_that_are_no_numbers_fail_the_append(void **state) {
    mgv_model *model = decoder_open("qwen3_deep");
    mgv_engine *engine = decoder_engine(model, NULL);
    mgv_session *session = decoder_session(engine, 8, 0);
    const mgv__program *program = &model->program;
    float *norm = (float *)(uintptr_t)model->tensors[program->ops[program->op_count - 2].weight[0]].data, kept = norm[0];
    uint32_t id;
    mgv_error error;
    (void)state;
    assert_int_equal(mgv_session_step(session, 1, NULL), MGV_OK);
    norm[0] = 3e38f;
    norm[1] = 3e38f;
    refused(mgv_session_step(session, 2, &error), MGV_ERROR_MODEL, &error, "is NaN or infinite");
    assert_int_equal(info_of(session).position, 1);
    refused(mgv_session_sample(session, NULL, &id, &error), MGV_ERROR_ARGUMENT, &error, "there are no logits");
    norm[0] = norm[1] = kept;
    assert_int_equal(mgv_session_step(session, 2, NULL), MGV_OK);
    mgv_session_destroy(session);
    mgv_engine_destroy(engine);
    mgv_model_close(model);
}

/* ---- Files ---- */

static unsigned char *save(const mgv_session *session, uint64_t *bytes) {
    unsigned char *file;
    mgv_error error;
    assert_int_equal(mgv_session_saved_bytes(session, bytes, NULL), MGV_OK);
    file = (unsigned char *)malloc((size_t)*bytes);
    assert_non_null(file);
    refused(mgv_session_save(session, file, *bytes - 1, &error), MGV_ERROR_CAPACITY, &error, "the session takes");
    if (mgv_session_save(session, file, *bytes, &error) != MGV_OK) fail_msg("%s", error.message);
    return file;
}
/* Puts the right hash into a file whose contents were changed. */
static void seal(unsigned char *file, uint64_t bytes) {
    mgv__session_file head;
    mgv__hash hash;
    memcpy(&head, file, sizeof head);
    mgv__hash_begin(&hash);
    mgv__hash_bytes(&hash, file + sizeof head, bytes - sizeof head);
    head.contents = mgv__hash_end(&hash);
    memcpy(file, &head, sizeof head);
}

static void saved_sessions_go_on_with_the_same_bits(void **state) {
    mgv_model *model = decoder_open("qwen3_vl");
    mgv_engine *engine = decoder_engine(model, NULL);
    mgv_session *session = decoder_session(engine, 40, 0), *other = decoder_session(engine, 64, 8);
    decoder_picture made[2];
    mgv_picture pictures[2];
    uint32_t ids[64], id = 3;
    size_t count = two_pictures(engine, made, pictures, ids);
    unsigned char *file;
    uint64_t bytes;
    (void)state;
    file = save(session, &bytes); /* an empty one */
    assert_int_equal(mgv_session_step(other, 3, NULL), MGV_OK);
    assert_int_equal(mgv_session_restore(other, file, bytes, NULL), MGV_OK);
    assert_int_equal(info_of(other).position, 0);
    assert_false(info_of(other).has_logits);
    free(file);
    assert_int_equal(decoder_append(session, ids, count, pictures, 2, NULL), MGV_OK);
    file = save(session, &bytes);
    assert_int_equal(mgv_session_restore(other, file, bytes, NULL), MGV_OK);
    assert_memory_equal(decoder_logits(session), decoder_logits(other), LOGIT_BYTES);
    assert_int_equal(info_of(other).next, info_of(session).next);
    for (id = 0; id < 5; id++) {
        assert_int_equal(mgv_session_step(session, id, NULL), MGV_OK);
        assert_int_equal(mgv_session_step(other, id, NULL), MGV_OK);
    }
    assert_memory_equal(decoder_logits(session), decoder_logits(other), LOGIT_BYTES);
    assert_int_equal(mgv_session_rollback(other, 8, NULL), MGV_OK);
    free(file);
    decoder_free_picture(&made[0]);
    decoder_free_picture(&made[1]);
    mgv_session_destroy(session);
    mgv_session_destroy(other);
    mgv_engine_destroy(engine);
    mgv_model_close(model);
}

static void wrong_session_files_are_refused(void **state) {
    mgv_model *model = decoder_open("qwen3"), *another = decoder_open("qwen3_untied");
    mgv_engine *engine = decoder_engine(model, NULL), *another_engine = decoder_engine(another, NULL);
    mgv_session *session = decoder_session(engine, 16, 0), *small = decoder_session(engine, 3, 0);
    mgv_session *foreign = decoder_session(another_engine, 16, 0);
    uint32_t ids[5] = {1, 2, 3, 4, 5}, wrong;
    unsigned char *file, *changed;
    uint64_t bytes, i;
    float before[VOCABULARY], nan = NAN;
    mgv_error error;
    (void)state;
    assert_int_equal(decoder_append(session, ids, 5, NULL, 0, NULL), MGV_OK);
    assert_int_equal(decoder_append(small, ids, 2, NULL, 0, NULL), MGV_OK);
    file = save(session, &bytes);
    changed = (unsigned char *)malloc((size_t)bytes + 1);
    assert_non_null(changed);
    memcpy(before, decoder_logits(session), sizeof before);
    for (i = 0; i < bytes; i += i < 200 ? 1 : 97) {
        memcpy(changed, file, (size_t)bytes);
        assert_int_not_equal(mgv_session_restore(session, changed, i, &error), MGV_OK); /* cut */
        changed[i] ^= 0x10;
        assert_int_not_equal(mgv_session_restore(session, changed, bytes, &error), MGV_OK);
    }
    memcpy(changed, file, (size_t)bytes);
    assert_int_not_equal(mgv_session_restore(session, changed, bytes + 1, &error), MGV_OK);
    refused(mgv_session_restore(session, file, bytes - 4, &error), MGV_ERROR_FORMAT, &error, "it is cut or changed");
    refused(mgv_session_restore(session, NULL, 0, &error), MGV_ERROR_FORMAT, &error, "no session file");
    refused(mgv_session_restore(foreign, file, bytes, &error), MGV_ERROR_MODEL, &error, "of another model");
    refused(mgv_session_restore(small, file, bytes, &error), MGV_ERROR_CAPACITY, &error, "holds 5 ids; the session was made for 3");
    assert_int_equal(info_of(small).position, 2);
    wrong = VOCABULARY;
    memcpy(changed + sizeof(mgv__session_file) + 4, &wrong, 4);
    seal(changed, bytes);
    refused(mgv_session_restore(session, changed, bytes, &error), MGV_ERROR_FORMAT, &error, "an id beyond the vocabulary at place 1");
    memcpy(changed, file, (size_t)bytes);
    wrong = 9;
    memcpy(changed + sizeof(mgv__session_file) + 5 * 4 + 8, &wrong, 4);
    seal(changed, bytes);
    refused(mgv_session_restore(session, changed, bytes, &error), MGV_ERROR_FORMAT, &error, "a rotary position that cannot be, at place 2");
    memcpy(changed, file, (size_t)bytes);
    wrong = UINT32_MAX; /* ends inside a picture */
    memcpy(changed + sizeof(mgv__session_file) + 5 * 4 + 16, &wrong, 4);
    seal(changed, bytes);
    refused(mgv_session_restore(session, changed, bytes, &error), MGV_ERROR_FORMAT, &error, "a rotary position that cannot be, at place 4");
    memcpy(changed, file, (size_t)bytes);
    memcpy(changed + bytes - 4, &nan, 4);
    seal(changed, bytes);
    refused(mgv_session_restore(session, changed, bytes, &error), MGV_ERROR_FORMAT, &error, "NaN or infinity");
    assert_memory_equal(decoder_logits(session), before, sizeof before);
    assert_int_equal(info_of(session).position, 5);
    assert_int_equal(mgv_session_restore(session, file, bytes, &error), MGV_OK);
    free(file);
    free(changed);
    mgv_session_destroy(session);
    mgv_session_destroy(small);
    mgv_session_destroy(foreign);
    mgv_engine_destroy(engine);
    mgv_engine_destroy(another_engine);
    mgv_model_close(model);
    mgv_model_close(another);
}

/* ---- Choosing ---- */

/* How often each of the first ids is chosen over many seeds, with these logits; all others are far behind. */
enum { CHOICES = 6, DRAWS = 20000 };
static void draw(mgv_session *session, mgv_sample_desc desc, double share[CHOICES]) {
    static const float logits[CHOICES] = {1.0f, 3.0f, 2.0f, 0.0f, 2.5f, -1.0f};
    float *all = session->buffers[session->logits];
    uint32_t i, id;
    for (i = 0; i < VOCABULARY; i++) all[i] = i < CHOICES ? logits[i] : -60.0f;
    memset(share, 0, CHOICES * sizeof *share);
    for (i = 0; i < DRAWS; i++) {
        desc.seed = i;
        assert_int_equal(mgv_session_sample(session, &desc, &id, NULL), MGV_OK);
        assert_true(id < CHOICES);
        share[id] += 1.0 / DRAWS;
    }
}
static void expect_shares(const double *share, const double *logits, double temperature) {
    double total = 0;
    int i;
    for (i = 0; i < CHOICES; i++) total += exp(logits[i] / temperature);
    for (i = 0; i < CHOICES; i++) {
        const double expected = exp(logits[i] / temperature) / total;
        if (!(fabs(share[i] - expected) < 0.015) || (expected == 0 && share[i] != 0)) fail_msg("id %d: %f, not %f", i, share[i], expected);
    }
}
static void ids_are_chosen_as_often_as_they_should_be(void **state) {
    const double gone = -INFINITY;
    mgv_model *model = decoder_open("qwen3");
    mgv_engine *engine = decoder_engine(model, NULL);
    mgv_session *session = decoder_session(engine, 8, 0);
    mgv_sample_desc desc;
    double share[CHOICES];
    uint32_t one, again;
    (void)state;
    memset(&desc, 0, sizeof desc);
    assert_int_equal(mgv_session_step(session, 4, NULL), MGV_OK);
    draw(session, desc, share); /* greedy, whatever the seed */
    assert_true(share[1] > 0.999);
    desc.temperature = 1.0f;
    draw(session, desc, share);
    { const double logits[CHOICES] = {1, 3, 2, 0, 2.5, -1}; expect_shares(share, logits, 1); }
    desc.temperature = 0.5f;
    draw(session, desc, share);
    { const double logits[CHOICES] = {1, 3, 2, 0, 2.5, -1}; expect_shares(share, logits, 0.5); }
    desc.temperature = 1.0f;
    desc.top_k = 3;
    draw(session, desc, share);
    { const double logits[CHOICES] = {gone, 3, 2, gone, 2.5, gone}; expect_shares(share, logits, 1); }
    desc.top_p = 0.8f; /* of e^3, e^2.5, e^2: 0.51, 0.31, 0.19 */
    draw(session, desc, share);
    { const double logits[CHOICES] = {gone, 3, gone, gone, 2.5, gone}; expect_shares(share, logits, 1); }
    desc.top_k = 0;
    desc.top_p = 0.8f; /* of all: 0.47, 0.28, 0.17, 0.06 ... */
    draw(session, desc, share);
    { const double logits[CHOICES] = {gone, 3, 2, gone, 2.5, gone}; expect_shares(share, logits, 1); }
    desc.top_p = 1e-6f;
    draw(session, desc, share);
    assert_true(share[1] > 0.999);
    desc.top_p = 0;
    desc.min_p = 0.3f; /* e^-1 is above, e^-2 below */
    draw(session, desc, share);
    { const double logits[CHOICES] = {gone, 3, 2, gone, 2.5, gone}; expect_shares(share, logits, 1); }
    desc.min_p = 0;
    desc.repetition_penalty = 2.0f; /* the session holds id 4 */
    draw(session, desc, share);
    { const double logits[CHOICES] = {1, 3, 2, 0, 1.25, -1}; expect_shares(share, logits, 1); }
    desc.repetition_penalty = 0;
    desc.seed = 77;
    assert_int_equal(mgv_session_sample(session, &desc, &one, NULL), MGV_OK);
    assert_int_equal(mgv_session_sample(session, &desc, &again, NULL), MGV_OK);
    assert_int_equal(one, again);
    mgv_session_destroy(session);
    mgv_engine_destroy(engine);
    mgv_model_close(model);
}

static void samples_that_cannot_be_are_refused(void **state) {
    mgv_model *model = decoder_open("qwen3");
    mgv_engine *engine = decoder_engine(model, NULL);
    mgv_session *session = decoder_session(engine, 8, 0);
    mgv_sample_desc good, desc;
    uint32_t id;
    mgv_error error;
    (void)state;
    memset(&good, 0, sizeof good);
    assert_int_equal(mgv_session_step(session, 4, NULL), MGV_OK);
    desc = good, desc.temperature = -1;
    refused(mgv_session_sample(session, &desc, &id, &error), MGV_ERROR_ARGUMENT, &error, "temperature");
    desc = good, desc.temperature = NAN;
    refused(mgv_session_sample(session, &desc, &id, &error), MGV_ERROR_ARGUMENT, &error, "temperature");
    desc = good, desc.top_p = 1.5f;
    refused(mgv_session_sample(session, &desc, &id, &error), MGV_ERROR_ARGUMENT, &error, "top_p");
    desc = good, desc.min_p = -0.1f;
    refused(mgv_session_sample(session, &desc, &id, &error), MGV_ERROR_ARGUMENT, &error, "min_p");
    desc = good, desc.repetition_penalty = -1;
    refused(mgv_session_sample(session, &desc, &id, &error), MGV_ERROR_ARGUMENT, &error, "repetition_penalty");
    desc = good, desc.struct_size = 3;
    refused(mgv_session_sample(session, &desc, &id, &error), MGV_ERROR_ARGUMENT, &error, "struct_size");
    refused(mgv_session_sample(session, NULL, NULL, &error), MGV_ERROR_ARGUMENT, &error, "id is NULL");
    mgv_session_destroy(session);
    mgv_engine_destroy(engine);
    mgv_model_close(model);
}

/* ---- Memory ---- */

static void sessions_allocate_when_they_are_made_and_never_again(void **state) {
    mgv_model *model = decoder_open("qwen3");
    mgv_engine *engine = decoder_engine(model, NULL);
    counting_allocator counts;
    mgv_session_desc desc;
    mgv_session *session = NULL;
    uint64_t bytes;
    uint32_t ids[30], id;
    void *workspace;
    mgv_error error;
    (void)state;
    some_ids(ids, 30, "memory");
    memset(&desc, 0, sizeof desc);
    desc.capacity = 40;
    desc.allocator = counting_allocator_make(&counts);
    assert_int_equal(mgv_session_create(&session, engine, &desc, &error), MGV_OK);
    assert_int_equal(counts.calls, 1);
    assert_int_equal(mgv_session_workspace_bytes(engine, &desc, &bytes, NULL), MGV_OK);
    assert_true(counts.live_bytes >= bytes);
    assert_int_equal(decoder_append(session, ids, 30, NULL, 0, NULL), MGV_OK);
    assert_int_equal(mgv_session_sample(session, NULL, &id, NULL), MGV_OK);
    assert_int_equal(mgv_session_step(session, id, NULL), MGV_OK);
    assert_int_equal(counts.calls, 1);
    mgv_session_destroy(session);
    assert_int_equal(counts.live_blocks, 0);
    counts.fail_at = 2;
    refused(mgv_session_create(&session, engine, &desc, &error), MGV_ERROR_NOMEM, &error, "a session");
    assert_null(session);
    workspace = malloc((size_t)bytes + 1);
    assert_non_null(workspace);
    desc.workspace = (char *)workspace + 1;
    desc.workspace_bytes = bytes - 1;
    refused(mgv_session_create(&session, engine, &desc, &error), MGV_ERROR_CAPACITY, &error, "the workspace has");
    desc.workspace_bytes = bytes;
    assert_int_equal(mgv_session_create(&session, engine, &desc, &error), MGV_OK);
    assert_int_equal(decoder_append(session, ids, 30, NULL, 0, NULL), MGV_OK);
    mgv_session_destroy(session);
    free(workspace);
    desc.workspace = NULL;
    desc.capacity = 1u << 25;
    refused(mgv_session_create(&session, engine, &desc, &error), MGV_ERROR_CAPACITY, &error, "the limit is 16777216");
    mgv_engine_destroy(engine);
    refused(mgv_session_create(&session, NULL, NULL, &error), MGV_ERROR_ARGUMENT, &error, "engine is NULL");
    mgv_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_depend_on_neither_cuts_nor_blocks_nor_threads_nor_neighbours),
        cmocka_unit_test(sums_of_pairs_are_of_rounded_numbers),
        cmocka_unit_test(pictures_may_be_cut_by_blocks_and_come_one_by_one),
        cmocka_unit_test(a_session_holds_as_much_as_its_capacity),
        cmocka_unit_test(appends_that_cannot_be_leave_the_session_alone),
        cmocka_unit_test(a_placeholder_that_was_chosen_is_an_id),
        cmocka_unit_test(an_engine_without_a_tower_encodes_nothing),
        cmocka_unit_test(an_append_goes_in_steps_and_can_be_dropped),
        cmocka_unit_test(rolled_back_sessions_go_on_as_if_nothing_had_been),
        cmocka_unit_test(logits_that_are_no_numbers_fail_the_append),
        cmocka_unit_test(saved_sessions_go_on_with_the_same_bits),
        cmocka_unit_test(wrong_session_files_are_refused),
        cmocka_unit_test(ids_are_chosen_as_often_as_they_should_be),
        cmocka_unit_test(samples_that_cannot_be_are_refused),
        cmocka_unit_test(sessions_allocate_when_they_are_made_and_never_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
