/* Models that the GPU kernels do not run: every function that would plan for them says so, in memory that others have used. */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_PLAN
#include "megavit.h"

#include "support.h"

static void test_functions_that_plan_say_so(void **state) {
    static const char *const paths[] = {"tests/golden/qwen2_5_saved", "tests/golden/qwen3_saved", "tests/golden/siglip_saved_sharded"};
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(paths); i++) {
        counting_allocator counts;
        mgv_model_desc desc;
        mgv_model *model;
        mgv_schedule_info info;
        mgv_error error;
        uint64_t bytes, blocks;
        uint8_t file[64];
        memset(&desc, 0, sizeof desc);
        desc.path = paths[i];
        desc.allocator = counting_allocator_make(&counts); /* whose memory is not zero */
        if (mgv_model_open(&model, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
        blocks = counts.live_blocks;
        assert_int_equal(mgv_model_get_schedule(model, NULL, &info, NULL, 0, &error), MGV_ERROR_UNSUPPORTED);
        assert_non_null(strstr(error.message, "the GPU kernel"));
        assert_int_equal(mgv_model_packed_bytes(model, "sm_90a", &bytes, &error), MGV_ERROR_UNSUPPORTED);
        assert_int_equal(mgv_model_pack(model, "sm_90a", file, sizeof file, &error), MGV_ERROR_UNSUPPORTED);
        assert_int_equal(mgv_engine_device_workspace_bytes(model, NULL, &bytes, &error), MGV_ERROR_UNSUPPORTED);
        assert_non_null(strstr(error.message, "the GPU kernel"));
        assert_int_equal(bytes, 0);
        assert_int_equal(counts.live_blocks, blocks);
        mgv_model_close(model);
        assert_int_equal(counts.live_blocks, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_functions_that_plan_say_so)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
