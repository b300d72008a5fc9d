/* A program without the GPU's plan says which macro what it is asked for takes. */
#define MEGAVIT_TEXT
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "support.h"
#include "decoder.h"

static void says_what_was_left_out(void **state) {
    mgv_model *model = open_directory("examples/model", MGV_TOWER_VISION);
    mgv_engine_desc desc;
    mgv_engine *engine;
    mgv_schedule_info schedule;
    mgv_error error;
    double file[4];
    uint64_t bytes;
    (void)state;
    assert_int_equal(mgv_model_packed_bytes(model, "sm_90a", &bytes, &error), MGV_ERROR_UNSUPPORTED);
    assert_string_equal(error.message, "this build of megavit packs no weights: define MEGAVIT_PLAN or MEGAVIT_CUDA");
    assert_int_equal(mgv_model_pack(model, "sm_90a", file, sizeof file, &error), MGV_ERROR_UNSUPPORTED);
    assert_string_equal(error.message, "this build of megavit packs no weights: define MEGAVIT_PLAN or MEGAVIT_CUDA");
    assert_int_equal(mgv_engine_device_workspace_bytes(model, NULL, &bytes, &error), MGV_ERROR_UNSUPPORTED);
    assert_string_equal(error.message, "this build of megavit knows no GPU engines: define MEGAVIT_PLAN or MEGAVIT_CUDA");
    assert_int_equal(mgv_model_get_schedule(model, NULL, &schedule, NULL, 0, &error), MGV_ERROR_UNSUPPORTED);
    assert_string_equal(error.message, "this build of megavit knows no GPU schedules: define MEGAVIT_PLAN or MEGAVIT_CUDA");
    memset(&desc, 0, sizeof desc);
    desc.backend = MGV_BACKEND_CUDA;
    assert_int_equal(mgv_engine_create(&engine, model, &desc, &error), MGV_ERROR_NO_DEVICE);
    assert_non_null(strstr(error.message, "this build of megavit has no CUDA backend"));
    mgv_model_close(model);
}

static void what_is_missing_is_named_first(void **state) {
    mgv_model *model = open_directory("examples/model", MGV_TOWER_VISION);
    mgv_error error;
    double file[4];
    uint64_t bytes;
    (void)state;
    assert_int_equal(mgv_model_packed_bytes(model, "sm_90a", NULL, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_model_packed_bytes(NULL, "sm_90a", &bytes, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_model_packed_bytes(model, NULL, &bytes, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_model_pack(model, "sm_90a", NULL, sizeof file, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_model_pack(model, "sm_90a", (char *)file + 4, 8, &error), MGV_ERROR_ARGUMENT);
    mgv_model_close(model);
}

static void no_schedules_of_texts(void **state) {
    mgv_model *model = decoder_open("qwen3");
    mgv_decode_info info;
    mgv_decode_step step;
    mgv_error error;
    (void)state;
    memset(&info, 1, sizeof info);
    assert_int_equal(mgv_model_get_decode_schedule(model, NULL, &info, &step, 1, &error), MGV_ERROR_UNSUPPORTED);
    assert_string_equal(error.message, "this build of megavit knows no schedules of texts: define MEGAVIT_TEXT and MEGAVIT_PLAN or "
                                       "MEGAVIT_CUDA");
    assert_int_equal(info.step_count, 0);
    mgv_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(says_what_was_left_out), cmocka_unit_test(what_is_missing_is_named_first),
                                       cmocka_unit_test(no_schedules_of_texts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
