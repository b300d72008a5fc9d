/* CLIP, DINOv2, DINOv3 and the smaller Qwen families against transformers: every output of the small models in tests/golden. */
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

#define GOLDEN_FILE(name) {"golden: " name, check_file, NULL, NULL, (void *)(uintptr_t)name}

int main(void) {
    const struct CMUnitTest tests[] = {
        GOLDEN_FILE("clip_base"),        GOLDEN_FILE("clip_gelu"),               GOLDEN_FILE("clip_one_patch"),
        GOLDEN_FILE("dinov2_base"),      GOLDEN_FILE("dinov2_larger"),           GOLDEN_FILE("dinov2_smaller"),
        GOLDEN_FILE("dinov2_swiglu"),    GOLDEN_FILE("dinov2_registers"),        GOLDEN_FILE("dinov2_registers_larger"),
        GOLDEN_FILE("dinov2_registers_smaller"), GOLDEN_FILE("dinov3_base"),     GOLDEN_FILE("dinov3_gated"),
        GOLDEN_FILE("dinov3_no_registers"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
