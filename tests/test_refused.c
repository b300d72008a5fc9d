/* Models that the GPU kernels do not run: every function that would plan for them says so, in memory that others have used. */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_PLAN
#include "megavit.h"

#include "support.h"
#include "memory_model.h"

/* A head of pictures of any size that the kernels have no activation for; and a table of positions for which there is no side. */
static void test_pictures_of_any_size(void **state) {
    static const char config[] = "{\"model_type\":\"siglip2_vision_model\",\"hidden_size\":64,\"intermediate_size\":64,"
                                 "\"num_hidden_layers\":2,\"num_attention_heads\":2,\"patch_size\":8,\"num_patches\":4,"
                                 "\"hidden_act\":\"silu\"}";
    memory_model files;
    mgv_schedule_info info;
    uint64_t bytes;
    uint8_t file[64];
    mgv_model *model;
    mgv_error error;
    tower t;
    (void)state;
    memset(&t, 0, sizeof t);
    t.family = MGV_FAMILY_SIGLIP2;
    t.hidden = t.intermediate = 64;
    t.layers = t.side = 2;
    t.patch = 8;
    t.prefix = "vision_model.";
    memory_model_make(&files, &t, config, NULL);
    if (memory_model_open(&files, NULL, &model, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_int_equal(mgv_model_get_schedule(model, NULL, &info, NULL, 0, &error), MGV_ERROR_UNSUPPORTED);
    if (!strstr(error.message, "no other activation of a pooling head than a GELU and ReLU")) fail_msg("%s", error.message);
    assert_int_equal(mgv_model_packed_bytes(model, "sm_90a", &bytes, &error), MGV_ERROR_UNSUPPORTED);
    assert_int_equal(mgv_model_pack(model, "sm_90a", file, sizeof file, &error), MGV_ERROR_UNSUPPORTED);
    assert_int_equal(mgv_engine_device_workspace_bytes(model, NULL, &bytes, &error), MGV_ERROR_UNSUPPORTED);
    mgv_model_close(model);
    memory_model_free(&files);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pictures_of_any_size)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
