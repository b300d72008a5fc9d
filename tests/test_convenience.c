/* What takes one call instead of several: a picture encoded for sessions, a conversation as ids, whether a text ends. */
#define MEGAVIT_TEXT
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "support.h"

#include "decoder.h"

#define TALKING "examples/talking"

static void a_picture_is_encoded_as_mgv_encode_does(void **state) {
    mgv_model *model = decoder_open("qwen3_vl");
    mgv_engine *engine = decoder_engine(model, NULL);
    decoder_picture by_hand = {160, 64, NULL, NULL, {0}};
    mgv_picture picture;
    mgv_image image;
    mgv_error error;
    uint64_t floats, asked;
    float *rows;
    (void)state;
    decoder_encode(engine, &by_hand, 0);
    memset(&image, 0, sizeof image);
    image.pixels = by_hand.pixels;
    image.width = 160;
    image.height = 64;
    assert_int_equal(mgv_picture_encode(engine, &image, NULL, 0, &asked, &picture, &error), MGV_ERROR_CAPACITY);
    assert_int_equal(asked, 10 * 32 * 4); /* 10 tokens of 32 columns, three times DeepStack */
    assert_int_equal(picture.grid.merged_tokens, 10);
    rows = (float *)malloc(asked * sizeof *rows); /* of its own size, so that a sanitizer sees every float too far */
    assert_non_null(rows);
    assert_int_equal(mgv_picture_encode(engine, &image, rows, asked - 1, &floats, &picture, &error), MGV_ERROR_CAPACITY);
    assert_non_null(strstr(error.message, "takes 1280 floats; there is room for 1279"));
    assert_int_equal(mgv_picture_encode(engine, &image, rows, asked, &floats, &picture, &error), MGV_OK);
    assert_int_equal(floats, asked);
    assert_memory_equal(&picture.grid, &by_hand.picture.grid, sizeof picture.grid);
    assert_int_equal(picture.deepstack_count, 3);
    assert_memory_equal(picture.tokens, by_hand.picture.tokens, 320 * sizeof *rows);
    for (int i = 0; i < 3; i++) assert_memory_equal(picture.deepstack[i], by_hand.picture.deepstack[i], 320 * sizeof *rows);
    free(rows);
    decoder_free_picture(&by_hand);
    mgv_engine_destroy(engine);
    mgv_model_close(model);
}

static void pictures_that_no_session_takes_are_refused(void **state) {
    mgv_model *model = decoder_open("qwen3"), *seeing = decoder_open("qwen3_vl");
    mgv_engine *blind = decoder_engine(model, NULL), *engine = decoder_engine(seeing, NULL);
    static uint8_t pixels[4 * 64 * 64 * 3];
    static float rows[1 << 16];
    mgv_picture picture;
    mgv_image image;
    mgv_error error;
    uint64_t floats = 1;
    (void)state;
    memset(&image, 0, sizeof image);
    image.pixels = pixels;
    image.width = image.height = 64;
    assert_int_equal(mgv_picture_encode(blind, &image, rows, 1 << 16, &floats, &picture, &error), MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "vision tower"));
    assert_int_equal(floats, 0);
    assert_int_equal(mgv_picture_encode(NULL, &image, rows, 1 << 16, &floats, &picture, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_picture_encode(engine, &image, rows, 1 << 16, &floats, NULL, &error), MGV_ERROR_ARGUMENT);
    image.frames = 4;
    assert_int_not_equal(mgv_picture_encode(engine, &image, rows, 1 << 16, &floats, &picture, &error), MGV_OK);
    image.frames = 1;
    image.width = 0;
    assert_int_not_equal(mgv_picture_encode(engine, &image, rows, 1 << 16, &floats, &picture, &error), MGV_OK);
    image.width = 64;
    assert_int_equal(mgv_picture_encode(engine, &image, rows, 1 << 16, &floats, &picture, &error), MGV_OK);
    mgv_engine_destroy(blind);
    mgv_engine_destroy(engine);
    mgv_model_close(model);
    mgv_model_close(seeing);
}

static mgv_tokenizer *open_talking(const mgv_allocator *allocator) {
    mgv_tokenizer *tokenizer = NULL;
    mgv_model_desc desc;
    mgv_error error;
    memset(&desc, 0, sizeof desc);
    desc.path = TALKING;
    if (allocator) desc.allocator = *allocator;
    if (mgv_tokenizer_open(&tokenizer, &desc, MGV_LOWER_CASE_AUTO, &error) != MGV_OK) fail_msg("%s", error.message);
    return tokenizer;
}
static mgv_message asked(const char *text, uint64_t bytes) {
    mgv_message message;
    memset(&message, 0, sizeof message);
    message.role = MGV_ROLE_USER;
    message.text = text;
    message.bytes = bytes;
    message.image_count = 1;
    return message;
}

static void a_conversation_becomes_the_ids_of_its_text(void **state) {
    mgv_tokenizer *tokenizer = open_talking(NULL);
    const mgv_message message = asked("What\0is <image>?", 16); /* bytes count, not where a string ends */
    uint32_t ids[256], expected[256];
    char text[1024];
    uint64_t bytes, count, wanted;
    mgv_error error;
    (void)state;
    assert_int_equal(mgv_chat_write(MGV_CHAT_QWEN3_VL, &message, 1, MGV_CHAT_ANSWER, text, sizeof text, &bytes, &error), MGV_OK);
    assert_int_equal(mgv_tokenize(tokenizer, text, (size_t)bytes, MGV_TOKENIZE_PLAIN, expected, 256, &wanted, &error), MGV_OK);
    assert_true(wanted > 10);
    assert_int_equal(mgv_chat_tokenize(MGV_CHAT_QWEN3_VL, tokenizer, &message, 1, MGV_CHAT_ANSWER, ids, 256, &count, &error), MGV_OK);
    assert_int_equal(count, wanted);
    assert_memory_equal(ids, expected, count * sizeof *ids);
    assert_int_equal(mgv_chat_tokenize(MGV_CHAT_QWEN3_VL, tokenizer, &message, 1, MGV_CHAT_ANSWER, ids, wanted - 1, &count, &error),
                     MGV_ERROR_CAPACITY);
    assert_int_equal(count, wanted);
    assert_int_equal(mgv_chat_tokenize(MGV_CHAT_PLAIN, tokenizer, NULL, 0, 0, NULL, 0, &count, &error), MGV_OK);
    assert_int_equal(count, 0);
    assert_int_equal(mgv_chat_tokenize(MGV_CHAT_QWEN3, tokenizer, &message, 1, 0, ids, 256, &count, &error), MGV_ERROR_UNSUPPORTED);
    assert_int_equal(mgv_chat_tokenize(MGV_CHAT_QWEN3_VL, NULL, &message, 1, 0, ids, 256, &count, &error), MGV_ERROR_ARGUMENT);
    mgv_tokenizer_close(tokenizer);
}

static void failing_memory_is_said_and_nothing_is_kept(void **state) {
    counting_allocator counts;
    mgv_allocator allocator = counting_allocator_make(&counts);
    mgv_tokenizer *tokenizer = open_talking(&allocator);
    const mgv_message message = asked("What is this?", 13);
    const uint64_t live = counts.live_blocks;
    uint32_t ids[256];
    uint64_t count;
    mgv_result result = MGV_ERROR_NOMEM;
    mgv_error error;
    (void)state;
    for (uint64_t fail_at = 1; result == MGV_ERROR_NOMEM; fail_at++) {
        counts.calls = 0;
        counts.fail_at = fail_at;
        result = mgv_chat_tokenize(MGV_CHAT_QWEN3_VL, tokenizer, &message, 1, MGV_CHAT_ANSWER, ids, 256, &count, &error);
        assert_int_equal(counts.live_blocks, live);
        assert_true(fail_at < 50);
        if (fail_at == 1) assert_int_equal(result, MGV_ERROR_NOMEM);
    }
    assert_int_equal(result, MGV_OK);
    counts.fail_at = 0;
    mgv_tokenizer_close(tokenizer);
    assert_int_equal(counts.live_blocks, 0);
}

static void texts_end_where_the_files_say(void **state) {
    mgv_generation_info generation;
    mgv_model *model = NULL;
    mgv_model_desc desc;
    mgv_error error;
    uint32_t stops = 0;
    (void)state;
    memset(&generation, 0, sizeof generation);
    memset(&desc, 0, sizeof desc);
    desc.path = TALKING;
    desc.tower = MGV_TOWER_LANGUAGE;
    if (mgv_model_open(&model, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_int_equal(mgv_model_get_generation(model, &generation), MGV_OK);
    assert_true(generation.stop_count > 0);
    for (uint32_t id = 0; id < 10000; id++) stops += (uint32_t)mgv_model_is_stop(model, id);
    assert_int_equal(stops, generation.stop_count);
    for (uint32_t i = 0; i < generation.stop_count; i++) assert_int_equal(mgv_model_is_stop(model, generation.stop_ids[i]), 1);
    mgv_model_close(model);
    assert_int_equal(mgv_model_is_stop(NULL, 0), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_picture_is_encoded_as_mgv_encode_does),
        cmocka_unit_test(pictures_that_no_session_takes_are_refused),
        cmocka_unit_test(a_conversation_becomes_the_ids_of_its_text),
        cmocka_unit_test(failing_memory_is_said_and_nothing_is_kept),
        cmocka_unit_test(texts_end_where_the_files_say),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
