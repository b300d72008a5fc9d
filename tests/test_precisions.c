/* Precisions on the CPU, which rounds as a GPU does, on whole towers. */
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

#include "golden.h"

static mgv_engine *make_engine(const golden *g, const mgv_model *model, mgv_precision precision, uint32_t *threads) {
    mgv_engine_desc desc;
    mgv_engine *engine;
    mgv_error error;
    memset(&desc, 0, sizeof desc);
    desc.backend = MGV_BACKEND_CPU;
    desc.max_images = g->picture_count;
    desc.min_pixels = g->min_pixels;
    desc.max_pixels = g->max_pixels;
    desc.precision = precision;
    desc.parallel.user = threads;
    desc.parallel.threads = *threads;
    desc.parallel.run = golden_run_threads;
    if (mgv_engine_create(&engine, model, &desc, &error) != MGV_OK) fail_msg("%s: %s", mgv_precision_name(precision), error.message);
    return engine;
}
/* One output of a picture, on so many threads. */
static float *encode(const golden *g, const mgv_model *model, mgv_precision precision, uint32_t threads, const golden_output *of) {
    mgv_engine *engine = make_engine(g, model, precision, &threads);
    const mgv_image image = golden_image(&g->pictures[of->picture]);
    const mgv_output output = golden_new_output(of, of->rows);
    golden_encode(engine, &image, 1, &output, 1);
    assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
    return output.data;
}

/* Rows wider than any kernel takes, CLIP's of 64 columns made 1,664: what is folded into weights is rounded without a kernel's ways. */
static void test_wide(void **state) {
    enum { NARROW = 64, WIDE = 1664 };
    static const char config[] = "{\"model_type\":\"clip_vision_model\",\"hidden_size\":1664,\"intermediate_size\":96,"
                                 "\"num_attention_heads\":26,\"num_hidden_layers\":2,\"image_size\":32,\"patch_size\":32,"
                                 "\"projection_dim\":24}";
    static const mgv_precision precisions[] = {MGV_PRECISION_BF16, MGV_PRECISION_OUT, MGV_PRECISION_MXFP8};
    static const double most[] = {0.01, 0.05, 0.1};
    golden g;
    golden_output tokens;
    mgv_model *model;
    float *exact;
    size_t i, k;
    (void)state;
    golden_open(&g, "clip_one_patch");
    g.config = config;
    for (i = 0; i < g.weight_count; i++) {
        golden_weight *w = &g.weights[i];
        w->elements = 1;
        for (k = 0; k < w->rank; k++) {
            if (w->shape[k] == NARROW) w->shape[k] = WIDE;
            w->elements *= w->shape[k];
        }
        if (w->rank == 2 && w->shape[1] == WIDE && w->shape[0] != 2) w->scale /= 8; /* sums of as much as before */
    }
    model = golden_open_model(&g, "", 1);
    tokens = g.outputs[1];
    assert_string_equal(tokens.kind, "tokens");
    tokens.columns = WIDE;
    exact = encode(&g, model, MGV_PRECISION_AUTO, 2, &tokens);
    tokens.data = (const char *)exact;
    for (i = 0; i < sizeof precisions / sizeof precisions[0]; i++) {
        float *rows = encode(&g, model, precisions[i], 2, &tokens);
        const double error = golden_relative_l2(rows, &tokens);
        print_message("# %s: %.2g\n", mgv_precision_name(precisions[i]), error);
        if (!(error > 1e-4 && error < most[i])) fail_msg("%s: relative L2 %g", mgv_precision_name(precisions[i]), error);
        free(rows);
    }
    free(exact);
    mgv_model_close(model);
    golden_close(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_wide)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
