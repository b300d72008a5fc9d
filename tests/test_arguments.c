/* What calls want is checked, argument by argument: what is missing or out of range is named. */
#define MEGAVIT_TEXT
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "support.h"
#include "decoder.h"
#include "memory_model.h"

/* call: an expression that takes &error. */
#define REFUSED(call, wanted, words) \
    do { \
        mgv_result refused_by; \
        memset(&error, 0, sizeof error); \
        refused_by = (call); \
        if (refused_by != (wanted) || error.code != (wanted) || !strstr(error.message, words)) \
            fail_msg("%s: expected \"%s\", got %s: %s", #call, words, mgv_result_name(refused_by), error.message); \
    } while (0)
#define MISSING(call, words) REFUSED(call, MGV_ERROR_ARGUMENT, words)

typedef struct fixture {
    memory_model files;
    mgv_model *model;
    mgv_engine *engine;
    uint8_t pixels[3 * 16 * 16];
    mgv_image image;
} fixture;
static void begin(fixture *f) {
    mgv_error error;
    memset(f, 0, sizeof *f);
    small_siglip(&f->files);
    if (memory_model_open(&f->files, NULL, &f->model, &error) != MGV_OK) fail_msg("%s", error.message);
    if (mgv_engine_create(&f->engine, f->model, NULL, &error) != MGV_OK) fail_msg("%s", error.message);
    f->image.pixels = f->pixels;
    f->image.width = f->image.height = 16;
}
static void end(fixture *f) {
    assert_int_equal(mgv_engine_destroy(f->engine), MGV_OK);
    mgv_model_close(f->model);
    memory_model_free(&f->files);
}

static void models_name_what_is_missing(void **state) {
    fixture f;
    mgv_error error;
    mgv_grid grid;
    mgv_model_info info;
    mgv_op_info op;
    mgv_tensor_info tensor;
    mgv_preprocessing_info preprocessing;
    mgv_generation_info generation;
    mgv_image prepared;
    mgv_output source;
    double region[4];
    uint8_t bytes[4 * 16 * 16];
    uint32_t failures;
    (void)state;
    begin(&f);
    assert_int_equal(mgv_model_grid(f.model, &f.image, 0, 0, &grid, &error), MGV_OK);
    MISSING(mgv_model_grid(NULL, &f.image, 0, 0, &grid, &error), "model, image or grid is NULL");
    MISSING(mgv_model_grid(f.model, NULL, 0, 0, &grid, &error), "model, image or grid is NULL");
    MISSING(mgv_model_grid(f.model, &f.image, 0, 0, NULL, &error), "model, image or grid is NULL");
    MISSING(mgv_model_prepare(NULL, &f.image, MGV_RESIZE_PILLOW, 0, 0, bytes, sizeof bytes, &prepared, &error), "model, image, pixels or");
    MISSING(mgv_model_prepare(f.model, NULL, MGV_RESIZE_PILLOW, 0, 0, bytes, sizeof bytes, &prepared, &error), "model, image, pixels or");
    MISSING(mgv_model_prepare(f.model, &f.image, MGV_RESIZE_PILLOW, 0, 0, bytes, sizeof bytes, NULL, &error), "model, image, pixels or");
    MISSING(mgv_model_region(f.model, &f.image, 0, 0, NULL, &error), "region is NULL");
    MISSING(mgv_model_region(NULL, &f.image, 0, 0, region, &error), "model, image or grid is NULL");
    MISSING(mgv_patch_source(NULL, &source, &error), "model or source is NULL");
    MISSING(mgv_patch_source(f.model, NULL, &error), "model or source is NULL");
    MISSING(mgv_validate(NULL, NULL, &f.image, 1, NULL, NULL, &failures, &error), "model or failures is NULL");
    MISSING(mgv_validate(f.model, NULL, &f.image, 1, NULL, NULL, NULL, &error), "model or failures is NULL");
    MISSING(mgv_validate(f.model, NULL, NULL, 1, NULL, NULL, &failures, &error), "there are no images");
    MISSING(mgv_validate(f.model, NULL, &f.image, 0, NULL, NULL, &failures, &error), "there are no images");
    assert_int_equal(mgv_model_get_info(f.model, NULL), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_model_get_info(NULL, &info), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_model_get_op(NULL, 0, &grid, &op), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_model_get_op(f.model, 0, NULL, &op), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_model_get_op(f.model, 0, &grid, NULL), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_model_get_op(f.model, mgv_model_op_count(f.model), &grid, &op), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_model_get_tensor(NULL, 0, &tensor), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_model_get_tensor(f.model, 0, NULL), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_model_get_tensor(f.model, UINT32_MAX, &tensor), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_model_get_preprocessing(NULL, &preprocessing), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_model_get_preprocessing(f.model, NULL), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_model_get_generation(NULL, &generation), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_model_get_generation(f.model, &generation), MGV_ERROR_ARGUMENT); /* no language model */
    end(&f);
}

static void engines_name_what_is_missing(void **state) {
    fixture f;
    mgv_error error;
    mgv_grid grid;
    mgv_shape shape;
    mgv_output output;
    mgv_image elsewhere;
    float values[3 * 16 * 16];
    uint64_t bytes;
    (void)state;
    begin(&f);
    memset(&output, 0, sizeof output);
    output.kind = MGV_OUTPUT_POOLED;
    MISSING(mgv_engine_workspace_bytes(f.model, NULL, NULL, &error), "bytes is NULL");
    MISSING(mgv_engine_workspace_bytes(NULL, NULL, &bytes, &error), "model is NULL");
    MISSING(mgv_engine_device_workspace_bytes(f.model, NULL, NULL, &error), "bytes is NULL");
    MISSING(mgv_engine_grid(NULL, &f.image, &grid, &error), "engine, image or grid is NULL");
    MISSING(mgv_engine_grid(f.engine, NULL, &grid, &error), "engine, image or grid is NULL");
    MISSING(mgv_engine_grid(f.engine, &f.image, NULL, &error), "engine, image or grid is NULL");
    MISSING(mgv_engine_shape(NULL, &f.image, 1, &output, &shape, &error), "engine, output or shape is NULL");
    MISSING(mgv_engine_shape(f.engine, &f.image, 1, NULL, &shape, &error), "engine, output or shape is NULL");
    MISSING(mgv_engine_shape(f.engine, &f.image, 1, &output, NULL, &error), "engine, output or shape is NULL");
    MISSING(mgv_preprocess(NULL, &f.image, values, COUNT_OF(values), &shape, &error), "engine, image or shape is NULL");
    MISSING(mgv_preprocess(f.engine, NULL, values, COUNT_OF(values), &shape, &error), "engine, image or shape is NULL");
    MISSING(mgv_preprocess(f.engine, &f.image, values, COUNT_OF(values), NULL, &error), "engine, image or shape is NULL");
    elsewhere = f.image;
    elsewhere.place = MGV_PLACE_DEVICE;
    MISSING(mgv_preprocess(f.engine, &elsewhere, values, COUNT_OF(values), &shape, &error), "pixels in host memory");
    REFUSED(mgv_preprocess(f.engine, &f.image, values, COUNT_OF(values) - 1, &shape, &error), MGV_ERROR_CAPACITY, "there is room for 767");
    assert_int_equal(mgv_preprocess(f.engine, &f.image, values, COUNT_OF(values), &shape, &error), MGV_OK);
    assert_int_equal(mgv_engine_backend(f.engine), MGV_BACKEND_CPU);
    assert_int_equal(mgv_engine_backend(NULL), MGV_BACKEND_AUTO);
    end(&f);
}

/* Compiled without MEGAVIT_PLAN, the calls that need it say so. */
static void packing_names_what_is_missing(void **state) {
    fixture f;
    mgv_error error;
    double file[4];
    uint64_t bytes;
    (void)state;
    begin(&f);
    MISSING(mgv_model_packed_bytes(f.model, "sm_90a", NULL, &error), "bytes is NULL");
    MISSING(mgv_model_packed_bytes(NULL, "sm_90a", &bytes, &error), "model or architecture is NULL");
    MISSING(mgv_model_packed_bytes(f.model, NULL, &bytes, &error), "model or architecture is NULL");
    MISSING(mgv_model_pack(f.model, "sm_90a", NULL, sizeof file, &error), "file is NULL or not aligned");
    MISSING(mgv_model_pack(f.model, "sm_90a", (char *)file + 4, 8, &error), "file is NULL or not aligned");
    end(&f);
}

static void patches_name_what_is_missing(void **state) {
    mgv_model *model = open_directory("tests/golden/text/clip", MGV_TOWER_VISION);
    mgv_model_info info;
    mgv_output source;
    mgv_error error;
    float rows[256], embeds[256];
    (void)state;
    memset(rows, 0, sizeof rows);
    assert_int_equal(mgv_patch_source(model, &source, &error), MGV_OK);
    assert_int_equal(mgv_model_get_info(model, &info), MGV_OK);
    MISSING(mgv_patch_embeds(NULL, MGV_PATCH_ALONE, rows, 2, NULL, embeds, 256, &error), "model, rows or embeds is NULL");
    MISSING(mgv_patch_embeds(model, MGV_PATCH_ALONE, NULL, 2, NULL, embeds, 256, &error), "model, rows or embeds is NULL");
    MISSING(mgv_patch_embeds(model, MGV_PATCH_ALONE, rows, 2, NULL, NULL, 256, &error), "model, rows or embeds is NULL");
    MISSING(mgv_patch_embeds(model, MGV_PATCH_ALONE, rows, 0, NULL, embeds, 256, &error), "0 rows are too few or too many");
    MISSING(mgv_patch_embeds(model, MGV_PATCH_LEFT_OUT, rows, 1, NULL, embeds, 256, &error), "1 rows are too few or too many");
    MISSING(mgv_patch_embeds(model, MGV_PATCH_ALONE, rows, UINT32_MAX, NULL, embeds, 256, &error), "4294967295 rows are too");
    REFUSED(mgv_patch_embeds(model, MGV_PATCH_ALONE, rows, 2, NULL, embeds, 1, &error), MGV_ERROR_CAPACITY, "there is room for 1");
    mgv_model_close(model);
}

static mgv_engine *volatile no_engine; /* gcc does not see through it, and warns of nothing */
static void sessions_name_what_is_missing(void **state) {
    static const struct { mgv_sample_desc desc; const char *says; } bad[] = {
        {{0, 0, -1, 0, 0, 0, 0}, "temperature"},   {{0, 0, (float)INFINITY, 0, 0, 0, 0}, "temperature"},
        {{0, 0, 1, -0.1f, 0, 0, 0}, "top_p"},      {{0, 0, (float)NAN, 0, 0, 0, 0}, "temperature"},
        {{0, 0, 1, 1.1f, 0, 0, 0}, "top_p"},       {{0, 0, 1, 0, -0.1f, 0, 0}, "min_p"},
        {{0, 0, 1, 0, 1.1f, 0, 0}, "min_p"},       {{0, 0, 1, 0, 0, -1, 0}, "repetition_penalty"},
        {{0, 0, 1, 0, 0, (float)INFINITY, 0}, "repetition_penalty"},
    };
    mgv_model *model = decoder_open("qwen3");
    mgv_engine *engine = decoder_engine(model, NULL);
    mgv_session *session = decoder_session(engine, 64, 16);
    mgv_session_info info;
    mgv_session_desc desc;
    mgv_error error;
    const float *logits;
    const uint32_t first = 3;
    uint32_t count, id;
    uint64_t bytes;
    size_t i;
    char file[8];
    (void)state;
    memset(&desc, 0, sizeof desc);
    MISSING(mgv_session_create(NULL, engine, &desc, &error), "session is NULL");
    MISSING(mgv_session_workspace_bytes(engine, &desc, NULL, &error), "bytes is NULL");
    MISSING(mgv_session_workspace_bytes(no_engine, &desc, &bytes, &error), "engine is NULL");
    MISSING(mgv_session_append(session, NULL, &error), "desc is NULL");
    MISSING(mgv_session_append(NULL, NULL, &error), "session is NULL");
    MISSING(mgv_session_logits(session, NULL, &count, &error), "logits or count is NULL");
    MISSING(mgv_session_logits(session, &logits, NULL, &error), "logits or count is NULL");
    MISSING(mgv_session_saved_bytes(session, NULL, &error), "bytes is NULL");
    MISSING(mgv_session_saved_bytes(NULL, &bytes, &error), "session is NULL");
    memset(&error, 0, sizeof error);
    assert_int_equal(mgv_session_poll(NULL, &error), MGV_STATUS_FAILED);
    assert_non_null(strstr(error.message, "session is NULL"));
    assert_int_equal(mgv_session_wait(NULL, 0, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_session_get_info(NULL, &info), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_session_get_info(session, NULL), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_session_step(session, first, &error), MGV_OK);
    REFUSED(mgv_session_save(session, file, sizeof file, &error), MGV_ERROR_CAPACITY, "there is room for 8");
    REFUSED(mgv_session_save(session, NULL, 1 << 20, &error), MGV_ERROR_CAPACITY, "there is room for 0");
    MISSING(mgv_session_save(NULL, file, sizeof file, &error), "session is NULL");
    for (i = 0; i < COUNT_OF(bad); i++) MISSING(mgv_session_sample(session, &bad[i].desc, &id, &error), bad[i].says);
    mgv_session_destroy(session);
    assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
    mgv_model_close(model);
}

static void texts_and_chats_name_what_is_missing(void **state) {
    mgv_message message;
    mgv_model_desc desc;
    mgv_tokenizer *tokenizer;
    mgv_error error;
    char text[64];
    uint32_t ids[16];
    uint64_t bytes;
    (void)state;
    memset(&message, 0, sizeof message);
    memset(&desc, 0, sizeof desc);
    desc.path = "examples/model";
    message.role = MGV_ROLE_USER;
    message.text = "hi";
    message.bytes = 2;
    assert_int_equal(mgv_tokenizer_open(&tokenizer, &desc, MGV_LOWER_CASE_AUTO, &error), MGV_OK);
    MISSING(mgv_tokenizer_open(NULL, &desc, MGV_LOWER_CASE_AUTO, &error), "somewhere to put the handle");
    MISSING(mgv_tokenize(NULL, "a", 1, 0, ids, 16, &bytes, &error), "mgv_tokenize needs");
    MISSING(mgv_tokenize(tokenizer, NULL, 1, 0, ids, 16, &bytes, &error), "mgv_tokenize needs");
    MISSING(mgv_tokenize(tokenizer, "a", 1, 0, NULL, 16, &bytes, &error), "mgv_tokenize needs");
    MISSING(mgv_tokenize(tokenizer, "a", 1, 0, ids, 16, NULL, &error), "mgv_tokenize needs");
    MISSING(mgv_detokenize(NULL, NULL, ids, 0, 0, text, sizeof text, &bytes, &error), "mgv_detokenize needs");
    MISSING(mgv_detokenize(tokenizer, NULL, NULL, 1, 0, text, sizeof text, &bytes, &error), "mgv_detokenize needs");
    MISSING(mgv_detokenize(tokenizer, NULL, ids, 0, 0, NULL, 1, &bytes, &error), "mgv_detokenize needs");
    MISSING(mgv_detokenize(tokenizer, NULL, ids, 0, 0, text, sizeof text, NULL, &error), "mgv_detokenize needs");
    MISSING(mgv_chat_open(NULL, &desc, &error), "somewhere to put the template");
    MISSING(mgv_chat_write(MGV_CHAT_PLAIN, NULL, 1, 0, text, sizeof text, &bytes, &error), "mgv_chat_write needs");
    MISSING(mgv_chat_write(MGV_CHAT_PLAIN, &message, 1, 0, NULL, 1, &bytes, &error), "mgv_chat_write needs");
    MISSING(mgv_chat_write(MGV_CHAT_PLAIN, &message, 1, 0, text, sizeof text, NULL, &error), "mgv_chat_write needs");
    MISSING(mgv_chat_write((mgv_chat)77, &message, 1, 0, text, sizeof text, &bytes, &error), "77 is no mgv_chat");
    MISSING(mgv_chat_write((mgv_chat)(MGV_CHAT_PLAIN - 1), &message, 1, 0, text, sizeof text, &bytes, &error), "is no mgv_chat");
    MISSING(mgv_chat_tokenize(MGV_CHAT_PLAIN, NULL, &message, 1, 0, ids, 16, &bytes, &error), "tokenizer or id_count is NULL");
    MISSING(mgv_chat_tokenize(MGV_CHAT_PLAIN, tokenizer, &message, 1, 0, ids, 16, NULL, &error), "tokenizer or id_count is NULL");
    message.role = MGV_ROLE_ASSISTANT + 1;
    MISSING(mgv_chat_write(MGV_CHAT_PLAIN, &message, 1, 0, text, sizeof text, &bytes, &error), "message 0: 3 is no role");
    message.role = MGV_ROLE_USER;
    message.text = NULL;
    MISSING(mgv_chat_write(MGV_CHAT_PLAIN, &message, 1, 0, text, sizeof text, &bytes, &error), "message 0: its text is NULL");
    mgv_tokenizer_close(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_name_what_is_missing),   cmocka_unit_test(engines_name_what_is_missing),
        cmocka_unit_test(packing_names_what_is_missing),     cmocka_unit_test(patches_name_what_is_missing),
        cmocka_unit_test(sessions_name_what_is_missing), cmocka_unit_test(texts_and_chats_name_what_is_missing),
    };
    return cmocka_run_group_tests_name("arguments", tests, NULL, NULL);
}
