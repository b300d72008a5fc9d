/* mgv_model_get_schedule's times beside those that an H200 took (BENCHMARKS.md, 27 and 29 November 2026): no line is further off than a
   fifth, and few pictures of one size are in the regime that took less. */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_PLAN
#include "megavit.h"

#include "support.h"
#include "plan_model.h"

typedef struct kind {
    const char *name;
    mgv_family family;
    uint32_t hidden, intermediate, layers, heads, patch;
    uint32_t image_size, out_hidden, deepstack_count; /* image_size 0: any */
} kind;
static const kind kinds[] = {
    {"qwen3-2b", MGV_FAMILY_QWEN3_VL, 1024, 4096, 24, 16, 16, 0, 2048, 3},
    {"qwen3-8b", MGV_FAMILY_QWEN3_VL, 1152, 4304, 27, 16, 16, 0, 4096, 3},
    {"qwen2.5-7b", MGV_FAMILY_QWEN2_5_VL, 1280, 3420, 32, 16, 14, 0, 3584, 0},
    {"qwen3.5-0.8b", MGV_FAMILY_QWEN3_5, 768, 3072, 12, 12, 16, 0, 1024, 0},
    {"qwen2-7b", MGV_FAMILY_QWEN2_VL, 1280, 5120, 32, 16, 14, 0, 3584, 0},
    {"naflex-base", MGV_FAMILY_SIGLIP2, 768, 3072, 12, 12, 16, 0, 0, 0},
    {"so400m-224", MGV_FAMILY_SIGLIP, 1152, 4304, 27, 16, 14, 224, 0, 0},
    {"so400m-384", MGV_FAMILY_SIGLIP, 1152, 4304, 27, 16, 14, 384, 0, 0},
    {"base-512", MGV_FAMILY_SIGLIP, 768, 3072, 12, 12, 16, 512, 0, 0},
    {"so400m-256", MGV_FAMILY_SIGLIP, 1152, 4304, 27, 16, 14, 256, 0, 0},
    {"base-384", MGV_FAMILY_SIGLIP, 768, 3072, 12, 12, 16, 384, 0, 0},
    {"base-320", MGV_FAMILY_SIGLIP, 768, 3072, 12, 12, 16, 320, 0, 0},
    {"naflex-720", MGV_FAMILY_SIGLIP2, 720, 2884, 12, 10, 16, 0, 0, 0},
    {"qwen3-720", MGV_FAMILY_QWEN3_VL, 720, 2884, 24, 10, 16, 0, 2048, 3},
    {"clip-l14", MGV_FAMILY_CLIP, 1024, 4096, 24, 16, 14, 224, 0, 0},
    {"clip-l14-336", MGV_FAMILY_CLIP, 1024, 4096, 24, 16, 14, 336, 0, 0},
    {"dinov2-s14", MGV_FAMILY_DINOV2, 384, 1536, 12, 6, 14, 224, 0, 0},
    {"dinov2-b14", MGV_FAMILY_DINOV2, 768, 3072, 12, 12, 14, 224, 0, 0},
    {"dinov2-l14", MGV_FAMILY_DINOV2, 1024, 4096, 24, 16, 14, 224, 0, 0},
    {"dinov3-s16", MGV_FAMILY_DINOV3, 384, 1536, 12, 6, 16, 224, 0, 0},
    {"large-256", MGV_FAMILY_SIGLIP, 1024, 4096, 24, 16, 16, 256, 0, 0},
    {"base-224", MGV_FAMILY_SIGLIP, 768, 3072, 12, 12, 16, 224, 0, 0},
    {"base-256", MGV_FAMILY_SIGLIP, 768, 3072, 12, 12, 16, 256, 0, 0},
    {"narrow-224", MGV_FAMILY_SIGLIP, 720, 2884, 12, 10, 16, 224, 0, 0},
};

typedef struct line {
    const char *kind;
    uint32_t images, patches; /* patches of each, for pictures of any size */
    double ms;
} line;
static const line lines[] = {
    {"qwen3-2b", 1, 256, 1.067}, {"qwen3-2b", 1, 1024, 2.068}, {"qwen3-2b", 1, 4096, 8.971}, {"qwen3-2b", 1, 16384, 83.23},
    {"qwen3-8b", 1, 256, 1.398}, {"qwen3-8b", 1, 1024, 3.038}, {"qwen3-8b", 1, 4096, 12.58}, {"qwen3-8b", 1, 16384, 115.5},
    {"qwen2.5-7b", 1, 256, 1.498}, {"qwen2.5-7b", 1, 1024, 2.937}, {"qwen2.5-7b", 1, 4096, 10.42}, {"qwen2.5-7b", 1, 16384, 48.85},
    {"qwen3-2b", 1, 64, 0.964}, {"qwen3-2b", 4, 64, 1.049}, {"qwen3-8b", 1, 64, 1.267}, {"qwen3-8b", 4, 64, 1.393},
    {"qwen3.5-0.8b", 1, 256, 0.401}, {"qwen3.5-0.8b", 1, 1024, 0.816}, {"qwen3.5-0.8b", 1, 4096, 3.121}, {"qwen3.5-0.8b", 1, 16384, 29.74},
    {"qwen2-7b", 1, 256, 1.404}, {"qwen2-7b", 1, 1024, 3.602}, {"qwen2-7b", 1, 4096, 15.90}, {"qwen2-7b", 1, 16384, 136.8},
    {"qwen2.5-7b", 1, 64, 1.288}, {"qwen2.5-7b", 4, 64, 1.448},
    {"naflex-base", 1, 64, 0.359}, {"naflex-base", 1, 256, 0.364}, {"naflex-base", 4, 64, 0.379},
    {"so400m-224", 1, 0, 0.998}, {"so400m-224", 3, 0, 1.660}, {"so400m-224", 8, 0, 3.300},
    {"so400m-384", 1, 0, 2.069}, {"so400m-384", 3, 0, 4.154}, {"so400m-384", 8, 0, 9.951},
    {"base-512", 1, 0, 0.729}, {"base-512", 3, 0, 1.327}, {"base-512", 8, 0, 3.174},
    {"large-256", 1, 0, 0.754}, {"large-256", 3, 0, 1.188}, {"large-256", 8, 0, 2.451},
    {"base-224", 1, 0, 0.283}, {"base-224", 3, 0, 0.480}, {"base-224", 8, 0, 0.639}, {"base-224", 592, 0, 36.655},
    {"base-320", 1, 0, 0.507}, {"base-320", 2, 0, 0.606}, {"base-384", 1, 0, 0.596}, {"base-384", 2, 0, 0.663}, {"so400m-256", 1, 0, 1.596},
    {"clip-l14", 1, 0, 1.057}, {"clip-l14", 2, 0, 1.342}, {"clip-l14-336", 1, 0, 1.508},
    {"dinov2-s14", 1, 0, 0.272}, {"dinov2-s14", 2, 0, 0.272}, {"dinov2-s14", 4, 0, 0.419}, {"dinov2-b14", 1, 0, 0.360},
    {"dinov2-b14", 2, 0, 0.507}, {"dinov2-b14", 3, 0, 0.551}, {"dinov2-l14", 1, 0, 1.021}, {"dinov2-l14", 2, 0, 1.224},
    {"dinov3-s16", 1, 0, 0.286}, {"dinov3-s16", 2, 0, 0.305}, {"dinov3-s16", 4, 0, 0.357},
    {"naflex-720", 1, 64, 0.376}, {"naflex-720", 1, 256, 0.409}, {"naflex-720", 4, 64, 0.427},
    {"qwen3-720", 1, 64, 0.864}, {"qwen3-720", 1, 256, 0.903}, {"qwen3-720", 4, 64, 0.919},
    {"base-256", 2, 0, 0.377}, {"narrow-224", 1, 0, 0.361}, {"narrow-224", 2, 0, 0.522}, {"narrow-224", 3, 0, 0.584},
};

static void config_of(mgv__config *config, const kind *k) {
    const int qwen2_5 = k->family == MGV_FAMILY_QWEN2_5_VL, qwen2 = k->family == MGV_FAMILY_QWEN2_VL;
    uint32_t i;
    memset(config, 0, sizeof *config);
    config->family = k->family;
    config->hidden = k->hidden;
    config->intermediate = k->intermediate;
    config->layers = k->layers;
    config->heads = k->heads;
    config->head_dim = k->hidden / k->heads;
    config->channels = 3;
    config->patch = k->patch;
    config->image_size = k->image_size;
    config->merge = config->temporal_patch = 1;
    config->epsilon = 1e-6f;
    config->activation = MGV__ACT_GELU_TANH;
    config->use_head = k->family == MGV_FAMILY_SIGLIP || k->family == MGV_FAMILY_SIGLIP2;
    config->registers = k->family == MGV_FAMILY_DINOV3 ? 4 : 0;
    config->position_first = (uint32_t)mgv__find_family(k->family)->class_token;
    config->prefix = config->position_first ? 1 + config->registers : 0;
    if (k->family == MGV_FAMILY_DINOV3) config->rope_theta = 100;
    config->pixels.do_rescale = config->pixels.do_normalize = 1;
    config->position_side = k->family == MGV_FAMILY_SIGLIP2 ? 16 : 0;
    config->pixels.channels_last = k->family == MGV_FAMILY_SIGLIP2;
    if (!k->out_hidden) return;
    config->merge = config->temporal_patch = 2;
    config->out_hidden = k->out_hidden;
    config->rope_theta = 10000;
    config->position_side = qwen2_5 || qwen2 ? 0 : 48;
    config->deepstack_count = k->deepstack_count;
    for (i = 0; i < k->deepstack_count; i++) config->deepstack[i] = k->layers == 27 ? 8 * (i + 1) : 6 * (i + 1) - 1;
    if (qwen2) config->activation = MGV__ACT_GELU_QUICK;
    if (!qwen2_5) return;
    config->gated = 1;
    config->activation = MGV__ACT_SILU;
    config->window_size = 112;
    config->full_attention_count = 4;
    for (i = 0; i < 4; i++) config->full_attention[i] = 8 * i + 7;
}

/* Milliseconds of throughput and latency on the same card, in turns. */
typedef struct choice {
    const char *kind;
    uint32_t images;
    double throughput, latency;
} choice;
static const choice choices[] = {
    {"base-320", 1, 0.586, 0.507},   {"base-320", 2, 0.606, 0.740},   {"base-384", 1, 0.596, 0.675},   {"base-384", 2, 0.663, 0.984},
    {"so400m-256", 1, 1.596, 1.732}, {"clip-l14", 1, 1.257, 1.057},   {"clip-l14", 2, 1.342, 1.495},   {"clip-l14-336", 1, 1.508, 1.817},
    {"dinov2-s14", 1, 0.388, 0.272}, {"dinov2-s14", 2, 0.398, 0.272}, {"dinov2-s14", 4, 0.419, 0.428}, {"dinov2-b14", 1, 0.536, 0.360},
    {"dinov2-b14", 3, 0.551, 0.734}, {"dinov2-l14", 1, 1.127, 1.021}, {"dinov2-l14", 2, 1.224, 1.451}, {"dinov3-s16", 1, 0.368, 0.286},
    {"dinov3-s16", 2, 0.375, 0.305}, {"dinov3-s16", 4, 0.424, 0.357}, {"base-256", 2, 0.500, 0.377},
    {"narrow-224", 1, 0.568, 0.361}, {"narrow-224", 2, 0.615, 0.522},
};

static mgv_schedule_info schedule_of(const char *name, uint32_t images, uint32_t patches) {
    static plan_model m;
    mgv__config config;
    mgv_schedule_desc desc;
    mgv_schedule_info info;
    mgv_error error;
    uint32_t i = 0;
    while (strcmp(kinds[i].name, name) != 0) i++;
    config_of(&config, &kinds[i]);
    plan_model_make(&m, &config, 0);
    memset(&desc, 0, sizeof desc);
    desc.image_count = images;
    desc.tokens = patches;
    if (mgv_model_get_schedule(&m.model, &desc, &info, NULL, 0, &error) != MGV_OK) fail_msg("%s: %s", name, error.message);
    plan_model_free(&m);
    return info;
}

/* How far off, as a share of what was measured. */
static double off(const line *l) {
    const mgv_schedule_info info = schedule_of(l->kind, l->images, l->patches);
    print_message("%-12s %3u pictures %5u patches: %8.3f ms, measured %8.3f: %+5.1f%%, %s\n", l->kind, l->images, l->patches, info.us / 1e3,
                  l->ms, (info.us / 1e3 / l->ms - 1) * 100, info.regime);
    return info.us / 1e3 / l->ms - 1;
}

static void within_a_fifth(void **state) {
    uint32_t i, bad = 0;
    (void)state;
    for (i = 0; i < COUNT_OF(lines); i++) {
        const double share = off(&lines[i]);
        bad += share < -0.2 || share > 0.2;
    }
    assert_int_equal(bad, 0);
}

static void the_faster_regime_is_chosen(void **state) {
    uint32_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(choices); i++)
        assert_string_equal(schedule_of(choices[i].kind, choices[i].images, 0).regime,
                            choices[i].latency < choices[i].throughput ? "latency" : "throughput");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(within_a_fifth), cmocka_unit_test(the_faster_regime_is_chosen)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
