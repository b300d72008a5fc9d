/* Qwen3-VL and Qwen2.5-VL vision towers against transformers: every output of the small models in tests/golden. */
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

#include "golden.h"

static void check_file(void **state) {
    golden g;
    golden_open(&g, (const char *)*state);
    assert_true(g.output_count > 0);
    golden_check(&g, "", 1);
    golden_close(&g);
}

/* The key prefixes of published files, in one file and in shards. */
static void check_prefixes_and_shards(void **state) {
    static const char *const files[] = {"qwen3_head_dim_72", "qwen2_5_float16"};
    golden g;
    size_t i;
    (void)state;
    for (i = 0; i < sizeof files / sizeof files[0]; i++) {
        golden_open(&g, files[i]);
        golden_check(&g, "visual.", 1);
        golden_check(&g, "model.visual.", 3);
        golden_close(&g);
    }
}

#define GOLDEN_FILE(name) {"golden: " name, check_file, NULL, NULL, (void *)(uintptr_t)name}

int main(void) {
    const struct CMUnitTest tests[] = {
        GOLDEN_FILE("qwen3_base"),     GOLDEN_FILE("qwen3_head_dim_72"), GOLDEN_FILE("qwen3_clip"),    GOLDEN_FILE("qwen3_limits"),
        GOLDEN_FILE("qwen3_saved"),    GOLDEN_FILE("qwen2_5_base"),      GOLDEN_FILE("qwen2_5_float16"), GOLDEN_FILE("qwen2_5_clip"),
        GOLDEN_FILE("qwen2_5_saved"),  cmocka_unit_test(check_prefixes_and_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
