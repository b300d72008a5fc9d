/* Precisions on the CPU, which rounds as a GPU does, on whole towers. */
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

#include "golden.h"

/* One output of a picture, on so many threads. */
static float *encode(const golden *g, const mgv_model *model, mgv_precision precision, uint32_t threads, const golden_output *of) {
    mgv_engine *engine = golden_engine(g, model, precision, &threads);
    const mgv_image image = golden_image(&g->pictures[of->picture]);
    const mgv_output output = golden_new_output(of, of->rows);
    golden_encode(engine, &image, 1, &output, 1);
    assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
    return output.data;
}

static double round_bf16(double x) { /* to eight bits, of two the even one */
    int e;
    const double m = frexp(x, &e);
    return x == 0 ? 0 : ldexp(nearbyint(ldexp(m, 8)), e - 8);
}
static double value(const mgv__tensor *tensors, uint32_t number, uint64_t i) {
    return number == MGV__NO_TENSOR ? 0 : (double)mgv__element_value(tensors[number].dtype, tensors[number].data, i);
}
static double activation(mgv__activation of, double x) {
    if (of == MGV__ACT_NONE) return x;
    assert_true(of == MGV__ACT_SILU || of == MGV__ACT_GELU_ERF);
    return of == MGV__ACT_SILU ? x / (1 + exp(-x)) : 0.5 * x * (1 + erf(x / sqrt(2.0)));
}

/* A product of Qwen2.5-VL's in bf16, column `column` of part `part`: rows as they are before an RMSNorm and weights times gamma are bf16,
   queries' times what scores are multiplied by; mergers read rows that have been normalised. x: the row that is read. */
static double expected_sum(const mgv_model *model, uint32_t at, uint32_t part, uint32_t column, const float *x) {
    const mgv__op *op = &model->program.ops[at], *norm = op->rows == MGV__ROWS_TOKENS && op[-1].kind == MGV__OP_NORM ? op - 1 : NULL;
    const int query = op[1].kind == MGV__OP_ROTARY && column < op->columns / 3;
    const double factor = query ? 1.4426950408889634 / sqrt((double)op[1].head_dim) : 1;
    double sum = 0, squares = 0;
    uint32_t k;
    for (k = 0; k < op->inner; k++) {
        const double gamma = norm ? value(model->tensors, norm->weight[0], k) : 1;
        const double w = value(model->tensors, op->weight[part], (uint64_t)column * op->inner + k) * gamma * factor;
        sum += round_bf16((double)x[k]) * round_bf16((double)(float)w);
        squares += (double)x[k] * (double)x[k] / op->inner;
    }
    if (norm) sum /= sqrt(squares + (double)norm->epsilon);
    return sum / factor + value(model->tensors, op->bias[part], column);
}

/* One product of rows around 0.3, some of them large, against the formula. */
static void check_product(const mgv_model *model, const mgv__cpu_run *run, uint32_t at) {
    const mgv__op *op = &model->program.ops[at];
    const uint32_t source = op->rows == MGV__ROWS_TOKENS && op[-1].kind == MGV__OP_NORM ? op[-1].source : op->source;
    const uint32_t rows = mgv__geometry_rows(run->geometry, op->rows), inner = op->inner;
    float *before = (float *)malloc((size_t)rows * op->columns * sizeof *before);
    double difference = 0, all = 0;
    uint32_t row, column, i;
    mgv__cpu_job job;
    assert_non_null(before);
    for (i = 0; i < rows * inner; i++)
        run->buffers[source][i] = (float)((golden_rule(at, i, 24) + 0.3) * (i % 17 == 0 ? 40 : 1));
    memcpy(before, run->buffers[op->target], (size_t)rows * op->columns * sizeof *before);
    mgv__cpu_begin(&job, run, op);
    while (!mgv__cpu_step(&job, 1)) {}
    for (row = 0; row < rows; row++)
        for (column = 0; column < op->columns; column++) {
            const float *x = run->buffers[source] + (size_t)row * inner;
            double want = activation(op->activation, expected_sum(model, at, 0, column, x)), d;
            if (op->gated) want *= expected_sum(model, at, 1, column, x);
            if (op->add != MGV__NONE) want += round_bf16((double)before[(size_t)row * op->columns + column]);
            d = (double)run->buffers[op->target][(size_t)row * op->columns + column] - want;
            difference += d * d;
            all += want * want;
        }
    free(before);
    /* A rounding that is left out shows as 1e-3 at least; a weight that two roundings, to float32 and bf16, move is one of 100,000. */
    if (!(sqrt(difference / all) < 5e-5)) fail_msg("%s: relative L2 %g", op->label, sqrt(difference / all));
}

/* Qwen2.5-VL's products, with RMSNorms folded in and gates, and what attention reads: turned in float32, then bf16. */
static void test_products(void **state) {
    golden g;
    mgv_model *model;
    mgv_engine *engine;
    mgv_output output;
    mgv_image image;
    mgv__cpu_run run;
    uint32_t i, threads = 2, products = 0, turns = 0;
    (void)state;
    golden_open(&g, "qwen2_5_base");
    model = golden_open_model(&g, "", 1);
    engine = golden_engine(&g, model, MGV_PRECISION_BF16, &threads);
    image = golden_image(&g.pictures[0]);
    output = golden_new_output(&g.outputs[0], g.outputs[0].rows);
    golden_encode(engine, &image, 1, &output, 1); /* the picture's geometry */
    mgv__job_cpu_run(engine, &run);
    for (i = 1; i < model->program.op_count; i++) {
        const mgv__op *op = &model->program.ops[i];
        if (op->kind == MGV__OP_LINEAR && op->source != 0) {
            check_product(model, &run, i);
            products++;
        }
        if (op->kind == MGV__OP_ROTARY) {
            const uint32_t rows = mgv__geometry_rows(run.geometry, op->rows);
            uint32_t k, exact = 0;
            mgv__cpu_job job;
            for (k = 0; k < rows * op->columns; k++) run.buffers[op->target][k] = (float)golden_rule(i, k, 24);
            mgv__cpu_begin(&job, &run, op);
            while (!mgv__cpu_step(&job, 1)) {}
            for (k = 0; k < rows * op->columns; k++) {
                const double factor = k % op->columns < op->columns / 3 ? 1.4426950408889634 / sqrt((double)op->head_dim) : 1;
                const double of = (double)run.buffers[op->target][k] * factor;
                exact += fabs(of - round_bf16(of)) <= 1e-6 * fabs(of);
            }
            assert_int_equal(exact, rows * op->columns);
            turns++;
        }
    }
    assert_int_equal(turns, model->config.layers);
    assert_int_equal(products, 4 * model->config.layers + 2);
    free(output.data);
    assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
    mgv_model_close(model);
    golden_close(&g);
}

/* Every output of a golden file: off by the rounding of bf16 from what transformers has in float32, or AUTO's bits where nothing is
   rounded, and the same bits on three threads. */
static void check_rounded(const char *name, mgv_precision precision, int rounds, double least) {
    golden g;
    mgv_model *model;
    double worst = 0;
    size_t i;
    golden_open(&g, name);
    model = golden_open_model(&g, "", 1);
    for (i = 0; i < g.output_count; i++) {
        const golden_output *o = &g.outputs[i];
        float *rows = encode(&g, model, precision, 1, o);
        float *again = encode(&g, model, rounds ? precision : (mgv_precision)MGV_PRECISION_AUTO, 3, o);
        const double error = golden_relative_l2(rows, o);
        if (rounds && !(error > least && error < 0.02)) fail_msg("picture %u, %s %u: relative L2 %g", o->picture, o->kind, o->index, error);
        if (error > worst) worst = error;
        assert_memory_equal(rows, again, o->rows * o->columns * sizeof *rows);
        free(rows);
        free(again);
    }
    print_message("# %s: %.2g at most\n", name, worst);
    mgv_model_close(model);
    golden_close(&g);
}
static void check_bf16(void **state) { check_rounded((const char *)*state, MGV_PRECISION_BF16, 1, 1e-3); }
static void check_fast(void **state) {
    check_rounded((const char *)*state, MGV_PRECISION_FAST, mgv__cpu_kernels_of_pairs() != NULL, 1e-4);
}
#define IN_BF16(name) {"bf16: " name, check_bf16, NULL, NULL, (void *)(uintptr_t)name}
#define FAST(name) {"fast: " name, check_fast, NULL, NULL, (void *)(uintptr_t)name}

/* MXFP8 of a layer's products, with mergers, DeepStack's among the layers, in bf16; gates and RMSNorms are refused it. */
static void test_mxfp8(void **state) {
    static const char *const refused[] = {"qwen2_5_base", "dinov2_swiglu"};
    golden g;
    mgv_model *model;
    size_t i;
    (void)state;
    golden_open(&g, "qwen3_base");
    model = golden_open_model(&g, "", 1);
    for (i = 0; i < g.output_count; i++) {
        const golden_output *o = &g.outputs[i];
        float *rows = encode(&g, model, MGV_PRECISION_MXFP8, 2, o);
        const double error = golden_relative_l2(rows, o);
        if (!(error > (strcmp(o->kind, "layer") == 0 && o->index == 0 ? 1e-3 : 0.02) && error < 0.25))
            fail_msg("picture %u, %s %u: relative L2 %g", o->picture, o->kind, o->index, error);
        free(rows);
    }
    mgv_model_close(model);
    golden_close(&g);
    for (i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        mgv_engine_desc desc;
        mgv_engine *engine = NULL;
        mgv_error error;
        golden_open(&g, refused[i]);
        model = golden_open_model(&g, "", 1);
        memset(&desc, 0, sizeof desc);
        desc.backend = MGV_BACKEND_CPU;
        desc.precision = MGV_PRECISION_QKV;
        assert_int_equal(mgv_engine_create(&engine, model, &desc, &error), MGV_ERROR_UNSUPPORTED);
        assert_string_equal(error.message, "precision \"qkv\" is for towers whose layers have LayerNorms and no gates: not for this one, "
                                           "which may be had in bf16");
        assert_null(engine);
        mgv_model_close(model);
        golden_close(&g);
    }
}

/* CLIP's golden tower, whose rows have 64 columns, with so many. */
static void widen(golden *g, uint32_t columns) {
    enum { NARROW = 64 };
    size_t i, k;
    for (i = 0; i < g->weight_count; i++) {
        golden_weight *w = &g->weights[i];
        w->elements = 1;
        for (k = 0; k < w->rank; k++) {
            if (w->shape[k] == NARROW) w->shape[k] = columns;
            w->elements *= w->shape[k];
        }
        if (w->rank == 2 && w->shape[1] == columns && w->shape[0] != 2) w->scale /= 8; /* sums of as much as before */
    }
}
/* Rows wider than any kernel takes, CLIP's of 64 columns made 1,664: what is folded into weights is rounded without a kernel's ways. */
static void test_wide(void **state) {
    enum { WIDE = 1664 };
    static const char config[] = "{\"model_type\":\"clip_vision_model\",\"hidden_size\":1664,\"intermediate_size\":96,"
                                 "\"num_attention_heads\":26,\"num_hidden_layers\":2,\"image_size\":32,\"patch_size\":32,"
                                 "\"projection_dim\":24}";
    static const mgv_precision precisions[] = {MGV_PRECISION_BF16, MGV_PRECISION_OUT, MGV_PRECISION_MXFP8};
    static const double most[] = {0.01, 0.05, 0.1};
    golden g;
    golden_output tokens;
    mgv_model *model;
    float *exact;
    size_t i;
    (void)state;
    golden_open(&g, "clip_one_patch");
    g.config = config;
    widen(&g, WIDE);
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

/* Looks until an output is there, on one thread. */
static uint32_t polls_of(const golden *g, const mgv_model *model, mgv_precision precision) {
    uint32_t threads = 1, polls = 0;
    mgv_engine *engine = golden_engine(g, model, precision, &threads);
    const mgv_image image = golden_image(&g->pictures[0]);
    float *tokens = (float *)malloc((size_t)2 * 512 * sizeof *tokens);
    mgv_output output;
    mgv_encode_desc desc;
    mgv_error error;
    memset(&output, 0, sizeof output);
    output.kind = MGV_OUTPUT_TOKENS;
    output.data = tokens;
    output.capacity = 2 * 512;
    memset(&desc, 0, sizeof desc);
    desc.images = &image;
    desc.outputs = &output;
    desc.image_count = desc.output_count = 1;
    assert_int_equal(mgv_encode(engine, &desc, &error), MGV_OK);
    while (mgv_poll(engine, &error) == MGV_STATUS_RUNNING) polls++;
    assert_int_equal(error.code, MGV_OK);
    assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
    free(tokens);
    return polls;
}
/* Rounding weights is most of the work on a small picture, and is counted: no step does more of it than a step may, whatever the
   instruction set's is. Those behind norms, of queries, keys, values and the MLP's first product, are centred. */
static void test_steps(void **state) {
    enum { COLUMNS = 512, HIDDEN = 96, LAYERS = 2, CENTRED = LAYERS * (3 * COLUMNS + HIDDEN) * COLUMNS };
    static const char config[] = "{\"model_type\":\"clip_vision_model\",\"hidden_size\":512,\"intermediate_size\":96,"
                                 "\"num_attention_heads\":8,\"num_hidden_layers\":2,\"image_size\":32,\"patch_size\":32,"
                                 "\"projection_dim\":24}";
    const uint32_t step = mgv__cpu_kernels_of(mgv__cpu_detect())->step;
    const uint32_t least = (uint32_t)((uint64_t)CENTRED * MGV__CPU_CENTRE / step);
    golden g;
    mgv_model *model;
    uint32_t exact, rounded;
    (void)state;
    golden_open(&g, "clip_one_patch");
    g.config = config;
    widen(&g, COLUMNS);
    model = golden_open_model(&g, "", 1);
    exact = polls_of(&g, model, MGV_PRECISION_AUTO);
    rounded = polls_of(&g, model, MGV_PRECISION_BF16);
    print_message("# %u polls, %u in bf16, %u at least for the rounding\n", exact, rounded, least);
    assert_true(exact < least && rounded >= least);
    mgv_model_close(model);
    golden_close(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_BF16("qwen2_5_base"), IN_BF16("qwen2_5_clip"), IN_BF16("qwen2_5_float16"), IN_BF16("qwen2_5_head_dim_112"),
        IN_BF16("qwen2_5_saved"), IN_BF16("qwen3_base"), IN_BF16("qwen3_clip"), IN_BF16("qwen3_head_dim_128"), IN_BF16("qwen3_saved"),
        IN_BF16("qwen2_vl_base"), IN_BF16("qwen3_5_base"), IN_BF16("dinov2_swiglu"), IN_BF16("dinov2_registers_smaller"),
        IN_BF16("dinov3_base"), IN_BF16("dinov3_gated"), IN_BF16("clip_base"), IN_BF16("siglip_base"), IN_BF16("siglip2_base"),
        FAST("qwen2_5_base"), FAST("qwen2_5_float16"), FAST("qwen3_base"), FAST("qwen3_head_dim_128"), FAST("qwen2_vl_base"),
        FAST("qwen3_5_base"), FAST("dinov2_swiglu"), FAST("dinov3_base"), FAST("clip_base"), FAST("siglip_base"), FAST("siglip2_base"),
        cmocka_unit_test(test_products), cmocka_unit_test(test_mxfp8), cmocka_unit_test(test_wide),
        cmocka_unit_test(test_steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
