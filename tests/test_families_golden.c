/* CLIP, DINOv2, DINOv3, SigLIP2 NaFlex, Qwen2-VL and Qwen3.5 against transformers: every output of the small models in tests/golden. */
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

#include "golden.h"

/* The same weights under the key prefixes of models that hold such a tower, and split into shards. */
static void check_prefixes(void **state) {
    static const struct {
        const char *name;
        const char *const prefixes[3];
    } cases[] = {
        {"dinov2_registers", {"dinov2_with_registers.", "backbone.", "model.vision_tower."}},
        {"dinov3_base", {"model.vision_tower.", "backbone."}},
        {"qwen2_vl_base", {"visual.", "model.visual."}},
        {"qwen3_5_base", {"model.visual."}},
    };
    size_t i, k;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        golden g;
        golden_open(&g, cases[i].name);
        for (k = 0; k < 3 && cases[i].prefixes[k]; k++) golden_check(&g, cases[i].prefixes[k], 1 + (uint32_t)k);
        golden_close(&g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        GOLDEN_FILE("clip_base"),        GOLDEN_FILE("clip_gelu"),               GOLDEN_FILE("clip_one_patch"),
        GOLDEN_FILE("dinov2_base"),      GOLDEN_FILE("dinov2_larger"),           GOLDEN_FILE("dinov2_smaller"),
        GOLDEN_FILE("dinov2_swiglu"),    GOLDEN_FILE("dinov2_registers"),        GOLDEN_FILE("dinov2_registers_larger"),
        GOLDEN_FILE("dinov2_registers_smaller"), GOLDEN_FILE("dinov3_base"),     GOLDEN_FILE("dinov3_gated"),
        GOLDEN_FILE("dinov3_no_registers"), GOLDEN_FILE("qwen2_vl_base"),        GOLDEN_FILE("qwen2_vl_clip"),
        GOLDEN_FILE("qwen3_5_base"),     GOLDEN_FILE("qwen3_5_clip"),            GOLDEN_FILE("clip_saved"),
        GOLDEN_FILE("llava_saved"),      GOLDEN_FILE("dinov2_saved"),            GOLDEN_FILE("clip_crop"),
        GOLDEN_FILE("dinov2_crop"),      GOLDEN_FILE("dinov3_floats"),           GOLDEN_FILE("siglip2_base"),
        GOLDEN_FILE("siglip2_no_head"),  GOLDEN_FILE("dinov2_any_size"),         GOLDEN_FILE("dinov2_registers_any_size"),
        cmocka_unit_test(check_prefixes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
