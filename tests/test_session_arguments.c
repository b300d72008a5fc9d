/* What calls on models, engines and sessions are given that they cannot take, each with its sentence; descriptions that are left out; ids
   that are chosen where few may be, or where they were said before. */
#define MEGAVIT_TEXT
#define MEGAVIT_PLAN
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "support.h"

#include "decoder.h"

enum { VOCABULARY = 128 };

static void refused(mgv_result result, mgv_result code, const mgv_error *error, const char *words) {
    if (result != code || !strstr(error->message, words))
        fail_msg("expected %s with \"%s\", got %s: %s", mgv_result_name(code), words, mgv_result_name(result), error->message);
}

static void models_are_asked_in_vain(void **state) {
    mgv_model *model = open_directory("tests/golden/clip_saved", MGV_TOWER_VISION), *decoder = decoder_open("qwen3"), *none = NULL;
    mgv_model *any_size = open_directory("tests/golden/qwen3_saved", MGV_TOWER_VISION);
    mgv_model_desc desc;
    mgv_generation_info generation;
    mgv_schedule_desc schedule;
    mgv_schedule_info about;
    mgv_op_info op;
    mgv_grid grid;
    mgv_error error;
    (void)state;
    memset(&grid, 0, sizeof grid);
    memset(&desc, 0, sizeof desc);
    memset(&schedule, 0, sizeof schedule);
    assert_int_equal(mgv_model_get_generation(model, &generation), MGV_ERROR_ARGUMENT); /* of a vision tower */
    assert_int_equal(mgv_model_is_stop(model, 0), 0);
    assert_int_equal(mgv_model_op_count(NULL), 0);
    assert_true(mgv_model_op_count(model) > 0);
    assert_int_equal(mgv_model_get_op(model, 0, &grid, &op), MGV_ERROR_ARGUMENT); /* a grid of nothing */
    schedule.architecture = "sm_1";
    refused(mgv_model_get_schedule(model, &schedule, &about, NULL, 0, &error), MGV_ERROR_UNSUPPORTED, &error, "sm_1");
    schedule.architecture = "sm_90a";
    schedule.multiprocessors = 1;
    refused(mgv_model_get_schedule(model, &schedule, &about, NULL, 0, &error), MGV_ERROR_ARGUMENT, &error, "fewer than the");
    schedule.multiprocessors = 0;
    refused(mgv_model_get_schedule(decoder, &schedule, &about, NULL, 0, &error), MGV_ERROR_UNSUPPORTED, &error, "plans are of towers");
    schedule.image_count = 1u << 20; /* of a tower for pictures of any size: 2^33 tokens, and 2^31 */
    schedule.tokens = 1u << 13;
    refused(mgv_model_get_schedule(any_size, &schedule, &about, NULL, 0, &error), MGV_ERROR_CAPACITY, &error,
            "1048576 images of 8192 tokens are more than an engine can count");
    schedule.image_count = 1u << 18;
    refused(mgv_model_get_schedule(any_size, &schedule, &about, NULL, 0, &error), MGV_ERROR_CAPACITY, &error,
            "2147483648 tokens are more than one engine's GPU buffers hold");
    schedule.struct_size = 3;
    refused(mgv_model_get_schedule(model, &schedule, &about, NULL, 0, &error), MGV_ERROR_ARGUMENT, &error, "struct_size");
    refused(mgv_model_get_schedule(NULL, &schedule, &about, NULL, 0, &error), MGV_ERROR_ARGUMENT, &error, "model or info is NULL");
    refused(mgv_model_get_schedule(model, &schedule, NULL, NULL, 0, &error), MGV_ERROR_ARGUMENT, &error, "model or info is NULL");
    refused(mgv_model_open(NULL, &desc, &error), MGV_ERROR_ARGUMENT, &error, "model is NULL");
    desc.struct_size = 3;
    refused(mgv_model_open(&none, &desc, &error), MGV_ERROR_ARGUMENT, &error, "struct_size");
    assert_null(none);
    desc.struct_size = 0;
    desc.allocator.free = counting_free;
    refused(mgv_model_open(&none, &desc, &error), MGV_ERROR_ARGUMENT, &error, "alloc");
    mgv_model_close(any_size);
    mgv_model_close(decoder);
    mgv_model_close(model);
}
static void engines_are_asked_in_vain(void **state) {
    mgv_model *model = decoder_open("qwen3"), *tower = open_directory("tests/golden/clip_saved", MGV_TOWER_VISION);
    static const struct { int32_t resize, precision; const char *words; mgv_result code; } cases[] = {
        {-1, 0, "resize -1 is not one of", MGV_ERROR_ARGUMENT},
        {MGV_RESIZE_TORCHVISION + 1, 0, "is not one of MGV_RESIZE_PILLOW", MGV_ERROR_ARGUMENT},
        {0, -1, "precision -1 is none of", MGV_ERROR_ARGUMENT},
        {0, MGV_PRECISION_BF16 + 1, "is none of MGV_PRECISION_AUTO", MGV_ERROR_ARGUMENT},
        {0, MGV_PRECISION_MXFP8, "precision \"mxfp8\" is for towers, and this is a language model", MGV_ERROR_UNSUPPORTED},
        {0, MGV_PRECISION_BF16, "precision \"bf16\" is for towers, and this is a language model", MGV_ERROR_UNSUPPORTED},
    };
    mgv_engine *engine = NULL;
    mgv_engine_desc desc;
    mgv_error error;
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        memset(&desc, 0, sizeof desc);
        desc.resize = cases[i].resize;
        desc.precision = cases[i].precision;
        refused(mgv_engine_create(&engine, model, &desc, &error), cases[i].code, &error, cases[i].words);
        assert_null(engine);
    }
    memset(&desc, 0, sizeof desc);
    desc.max_width = desc.max_height = 64;
    assert_int_equal(mgv_engine_create(&engine, tower, &desc, &error), MGV_OK);
    {
        static uint8_t pixels[64 * 64 * 3];
        mgv_image image;
        uint32_t failures;
        memset(&image, 0, sizeof image);
        image.pixels = pixels;
        image.width = image.height = 64;
        desc.struct_size = 3;
        refused(mgv_validate(tower, &desc, &image, 1, NULL, NULL, &failures, &error), MGV_ERROR_ARGUMENT, &error, "struct_size");
        desc.struct_size = 0;
    }
    {
        mgv_session *session = NULL;
        refused(mgv_session_create(&session, engine, NULL, &error), MGV_ERROR_ARGUMENT, &error, "is a tower and no language model");
        refused(mgv_session_create(&session, NULL, NULL, &error), MGV_ERROR_ARGUMENT, &error, "engine is NULL");
        assert_null(session);
    }
    mgv_engine_destroy(engine);
    mgv_model_close(tower);
    mgv_model_close(model);
}
static void sessions_are_made_of_what_is_left_out(void **state) {
    mgv_model *model = decoder_open("qwen3");
    mgv_engine *engine = decoder_engine(model, NULL);
    mgv_session *session = NULL;
    mgv_session_desc desc;
    mgv_session_info info;
    mgv_error error;
    uint64_t bytes, same;
    (void)state;
    assert_int_equal(mgv_session_create(&session, engine, NULL, &error), MGV_OK);
    assert_int_equal(mgv_session_get_info(session, &info), MGV_OK);
    assert_int_equal(info.capacity, 4096);
    mgv_session_destroy(session);
    session = NULL;
    memset(&desc, 0, sizeof desc);
    desc.capacity = 4096;
    desc.block = 512;
    assert_int_equal(mgv_session_workspace_bytes(engine, NULL, &bytes, &error), MGV_OK);
    assert_int_equal(mgv_session_workspace_bytes(engine, &desc, &same, &error), MGV_OK);
    assert_int_equal(bytes, same);
    desc.struct_size = 3;
    refused(mgv_session_create(&session, engine, &desc, &error), MGV_ERROR_ARGUMENT, &error, "struct_size");
    memset(&desc, 0, sizeof desc);
    desc.allocator.free = counting_free;
    refused(mgv_session_create(&session, engine, &desc, &error), MGV_ERROR_ARGUMENT, &error, "alloc");
    memset(&desc, 0, sizeof desc);
    desc.capacity = (1u << 24) + 1;
    refused(mgv_session_create(&session, engine, &desc, &error), MGV_ERROR_CAPACITY, &error, "the limit is 16777216");
    assert_null(session);
    mgv_engine_destroy(engine);
    mgv_model_close(model);
}
static void pictures_are_passed_in_vain(void **state) {
    enum { IMAGE = 120, VISION_START = 122, VISION_END = 123 };
    mgv_model *model = decoder_open("qwen3_vl"), *blind = decoder_open("qwen3");
    mgv_model *tower = open_directory("tests/golden/clip_saved", MGV_TOWER_VISION);
    mgv_engine *engine = decoder_engine(model, NULL), *blind_engine = decoder_engine(blind, NULL);
    mgv_engine *tower_engine = decoder_engine(tower, NULL);
    mgv_session *session = decoder_session(engine, 64, 0);
    decoder_picture made;
    mgv_picture picture, row[2];
    mgv_image image;
    uint64_t floats;
    uint32_t ids[64], count = 0, i;
    mgv_error error;
    (void)state;
    memset(&made, 0, sizeof made);
    made.width = made.height = 64;
    decoder_encode(engine, &made, 0);
    memset(&image, 0, sizeof image);
    image.pixels = made.pixels;
    image.width = image.height = 64;
    refused(mgv_picture_encode(NULL, &image, NULL, 0, &floats, &picture, &error), MGV_ERROR_ARGUMENT, &error, "picture is NULL");
    refused(mgv_picture_encode(engine, NULL, NULL, 0, &floats, &picture, &error), MGV_ERROR_ARGUMENT, &error, "picture is NULL");
    refused(mgv_picture_encode(engine, &image, NULL, 0, NULL, &picture, &error), MGV_ERROR_ARGUMENT, &error, "picture is NULL");
    refused(mgv_picture_encode(engine, &image, NULL, 0, &floats, NULL, &error), MGV_ERROR_ARGUMENT, &error, "picture is NULL");
    refused(mgv_picture_encode(blind_engine, &image, NULL, 0, &floats, &picture, &error), MGV_ERROR_ARGUMENT, &error,
            "no language model with a vision tower");
    refused(mgv_picture_encode(tower_engine, &image, NULL, 0, &floats, &picture, &error), MGV_ERROR_ARGUMENT, &error,
            "no language model with a vision tower");
    ids[count++] = VISION_START;
    for (i = 0; i < made.picture.grid.merged_tokens; i++) ids[count++] = IMAGE;
    ids[count++] = VISION_END;
    row[0] = made.picture;
    row[0].struct_size = 3;
    refused(decoder_append(session, ids, count, row, 1, &error), MGV_ERROR_ARGUMENT, &error, "picture 0: mgv_picture");
    assert_int_equal(decoder_append(session, ids, count, row, 1, NULL), MGV_ERROR_ARGUMENT); /* nobody asks why */
    row[0].struct_size = sizeof row[0];
    assert_int_equal(decoder_append(session, ids, count, row, 1, &error), MGV_OK);
    mgv_session_destroy(session);
    decoder_free_picture(&made);
    mgv_engine_destroy(engine);
    mgv_engine_destroy(blind_engine);
    mgv_engine_destroy(tower_engine);
    mgv_model_close(tower);
    mgv_model_close(model);
    mgv_model_close(blind);
}
/* The likeliest id where those that were said are less likely: a positive logit is divided by the penalty, a negative one multiplied. */
static void what_was_said_is_less_likely(void **state) {
    static const float penalties[] = {1.1f, 2.0f, 50.0f, 0.5f};
    mgv_model *model = decoder_open("qwen3");
    mgv_engine *engine = decoder_engine(model, NULL);
    mgv_session *session = decoder_session(engine, 256, 0);
    uint32_t ids[200], k, i;
    mgv_error error;
    int positive = 0, negative = 0;
    (void)state;
    for (i = 0; i < COUNT_OF(ids); i++) ids[i] = i < 100 ? i : i % 7; /* many twice */
    assert_int_equal(decoder_append(session, ids, COUNT_OF(ids), NULL, 0, &error), MGV_OK);
    for (k = 0; k < COUNT_OF(penalties); k++) {
        const float *logits = decoder_logits(session);
        mgv_sample_desc desc;
        uint32_t best = 0, id;
        float most = 0;
        memset(&desc, 0, sizeof desc);
        desc.repetition_penalty = penalties[k];
        for (i = 0; i < VOCABULARY; i++) {
            float logit = logits[i];
            if (i < 100) logit = logit > 0 ? logit / penalties[k] : logit * penalties[k];
            if (i < 100 && logit > 0) positive = 1;
            if (i < 100 && logit < 0) negative = 1;
            if (i == 0 || logit > most) {
                most = logit;
                best = i;
            }
        }
        assert_int_equal(mgv_session_sample(session, &desc, &id, &error), MGV_OK);
        assert_int_equal(id, best);
        for (i = 0; i < VOCABULARY; i++) {
            const float logit = logits[i], said = logit > 0 ? logit / penalties[k] : logit * penalties[k];
            assert_int_equal(session->candidates[i].id, i);
            assert_true(session->candidates[i].logit == (i < 100 ? said : logit));
        }
    }
    assert_true(positive && negative);
    mgv_session_destroy(session);
    mgv_engine_destroy(engine);
    mgv_model_close(model);
}
/* Of two ids nearly all of the probability is both's. */
static void few_ids_are_chosen_among(void **state) {
    mgv_model *model = decoder_open("qwen3");
    mgv_engine *engine = decoder_engine(model, NULL);
    mgv_session *session = decoder_session(engine, 16, 0);
    mgv_sample_desc desc;
    const float *logits;
    uint32_t first = 0, second, i, id, seen[2] = {0, 0};
    mgv_error error;
    (void)state;
    assert_int_equal(mgv_session_step(session, 5, &error), MGV_OK);
    logits = decoder_logits(session);
    for (i = 1; i < VOCABULARY; i++)
        if (logits[i] > logits[first]) first = i;
    second = first == 0;
    for (i = 0; i < VOCABULARY; i++)
        if (i != first && logits[i] > logits[second]) second = i;
    memset(&desc, 0, sizeof desc);
    desc.temperature = 100; /* both as likely */
    desc.top_k = 2;
    desc.top_p = 0.9999f;
    for (desc.seed = 0; desc.seed < 64; desc.seed++) {
        assert_int_equal(mgv_session_sample(session, &desc, &id, &error), MGV_OK);
        assert_true(id == first || id == second);
        seen[id == second]++;
    }
    assert_true(seen[0] > 8 && seen[1] > 8);
    for (desc.seed = 0; desc.seed < 64; desc.seed++) { /* bounds that leave all ids in are none */
        static const struct { uint32_t top_k; float min_p, top_p; } wide[] = {{VOCABULARY, 0, 0}, {VOCABULARY + 1, 0, 1}, {0, 1e-30f, 0}};
        desc.top_k = 0;
        desc.top_p = desc.min_p = 0;
        assert_int_equal(mgv_session_sample(session, &desc, &first, &error), MGV_OK);
        for (i = 0; i < COUNT_OF(wide); i++) {
            desc.top_k = wide[i].top_k;
            desc.top_p = wide[i].top_p;
            desc.min_p = wide[i].min_p;
            assert_int_equal(mgv_session_sample(session, &desc, &id, &error), MGV_OK);
            assert_int_equal(id, first);
        }
    }
    mgv_session_destroy(session);
    mgv_engine_destroy(engine);
    mgv_model_close(model);
}
static void texts_end_at_stops(void **state) {
    mgv_model *model = decoder_open("qwen3");
    mgv_engine *engine = decoder_engine(model, NULL);
    mgv_session *session = decoder_session(engine, 64, 0);
    mgv_generate_desc desc;
    mgv_session_info info;
    uint32_t ids[8], again[8], count, at, i;
    int32_t stopped;
    mgv_error error;
    (void)state;
    memset(&desc, 0, sizeof desc);
    assert_int_equal(mgv_session_step(session, 5, &error), MGV_OK);
    refused(mgv_session_generate(session, &desc, NULL, &stopped, &error), MGV_ERROR_ARGUMENT, &error, "count or stopped is NULL");
    refused(mgv_session_generate(session, &desc, &count, NULL, &error), MGV_ERROR_ARGUMENT, &error, "count or stopped is NULL");
    refused(mgv_session_generate(session, NULL, &count, &stopped, &error), MGV_ERROR_ARGUMENT, &error, "desc is NULL");
    refused(mgv_session_generate(session, &desc, &count, &stopped, &error), MGV_ERROR_ARGUMENT, &error, "there is no room for ids");
    desc.ids = ids;
    refused(mgv_session_generate(session, &desc, &count, &stopped, &error), MGV_ERROR_ARGUMENT, &error, "there is no room for ids");
    desc.id_capacity = COUNT_OF(ids);
    desc.stop_count = 1;
    refused(mgv_session_generate(session, &desc, &count, &stopped, &error), MGV_ERROR_ARGUMENT, &error, "stops is NULL");
    desc.stop_count = 0;
    desc.struct_size = 3;
    refused(mgv_session_generate(session, &desc, &count, &stopped, &error), MGV_ERROR_ARGUMENT, &error, "struct_size");
    desc.struct_size = 0;
    assert_int_equal(mgv_session_generate(session, &desc, &count, &stopped, &error), MGV_OK);
    assert_int_equal(count, COUNT_OF(ids));
    assert_int_equal(stopped, 0);
    for (at = COUNT_OF(ids) - 1, i = 0; i < at; i++) /* the first place of the last id */
        if (ids[i] == ids[COUNT_OF(ids) - 1]) at = i;
    assert_int_equal(mgv_session_rollback(session, 0, &error), MGV_OK);
    assert_int_equal(mgv_session_step(session, 5, &error), MGV_OK);
    desc.ids = again;
    desc.stops = &ids[COUNT_OF(ids) - 1];
    desc.stop_count = 1;
    assert_int_equal(mgv_session_generate(session, &desc, &count, &stopped, &error), MGV_OK);
    assert_int_equal(stopped, 1);
    assert_int_equal(count, at + 1);
    assert_memory_equal(again, ids, count * sizeof *ids);
    assert_int_equal(mgv_session_get_info(session, &info), MGV_OK);
    assert_int_equal(info.position, 1 + at); /* the stop is not appended */
    mgv_session_destroy(session);
    mgv_engine_destroy(engine);
    mgv_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_are_asked_in_vain),
        cmocka_unit_test(engines_are_asked_in_vain),
        cmocka_unit_test(sessions_are_made_of_what_is_left_out),
        cmocka_unit_test(pictures_are_passed_in_vain),
        cmocka_unit_test(what_was_said_is_less_likely),
        cmocka_unit_test(few_ids_are_chosen_among),
        cmocka_unit_test(texts_end_at_stops),
    };
    return cmocka_run_group_tests_name("arguments of sessions", tests, NULL, NULL);
}
