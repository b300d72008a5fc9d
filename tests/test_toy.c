/* A family that nobody has published, added as CONTRIBUTING.md says (tests/toy): one enumerator, one row, one builder. Two layers, ReLU, norms
   behind the residual. The CPU is held against the formulas, written down here once more in double; the GPU plan takes the family as it is.
   On the machine model: tests/test_machine_toy.sh. */
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

#include "support.h"

enum { HIDDEN = 128, HEADS = 2, HEAD_DIM = 64, MLP = 192, LAYERS = 2, SIDE = 32, PATCH = 8, TOKENS = 1 + 16, PATCH_COLUMNS = 3 * PATCH * PATCH };

/* --- a file of weights --- */

typedef struct weights {
    char header[16384];
    float *data;
    uint64_t count;
    uint32_t state;
} weights;

/* A tensor of numbers around `offset`; where they begin. */
static float *add(weights *w, const char *name, uint32_t rank, const uint32_t *shape, float scale, float offset) {
    const uint64_t first = w->count;
    char dims[64] = "", text[256];
    uint64_t numbers = 1, i;
    for (i = 0; i < rank; i++) {
        numbers *= shape[i];
        snprintf(dims + strlen(dims), sizeof dims - strlen(dims), i ? ",%u" : "%u", shape[i]);
    }
    for (i = 0; i < numbers; i++) {
        w->state = w->state * 1664525u + 1013904223u;
        w->data[w->count++] = offset + scale * ((float)(w->state >> 8) / 8388608.0f - 1);
    }
    snprintf(text, sizeof text, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%llu,%llu]}", first ? "," : "{", name, dims,
             (unsigned long long)first * 4, (unsigned long long)w->count * 4);
    assert_true(strlen(w->header) + strlen(text) + 2 < sizeof w->header);
    strcat(w->header, text);
    return w->data + first;
}

typedef struct linear {
    const float *weight, *bias;
} linear;
static linear add_linear(weights *w, const char *base, uint32_t out, uint32_t in, float scale) {
    const uint32_t shape[2] = {out, in};
    char name[128];
    linear l;
    snprintf(name, sizeof name, "%s.weight", base);
    l.weight = add(w, name, in ? 2 : 1, shape, scale, in ? 0 : 1);
    snprintf(name, sizeof name, "%s.bias", base);
    l.bias = add(w, name, 1, shape, 0.1f, 0);
    return l;
}

typedef struct toy {
    weights file;
    const float *class_row, *positions;
    linear patches, q[LAYERS], k[LAYERS], v[LAYERS], out[LAYERS], up[LAYERS], down[LAYERS], norm[LAYERS][2];
    mgv_model *model;
    unsigned char *bytes;
} toy;

static void open_toy(toy *t, const char *activation) {
    static const uint32_t hidden = HIDDEN, positions[2] = {TOKENS, HIDDEN}, patches[4] = {HIDDEN, 3, PATCH, PATCH};
    static const char *const names[] = {"q", "k", "v", "out", "up", "down", "norm1", "norm2"};
    char config[256];
    mgv_memory_file files[2];
    mgv_model_desc desc;
    mgv_error error;
    uint64_t length;
    uint32_t layer, i;
    memset(t, 0, sizeof *t);
    t->file.data = (float *)malloc(1 << 22);
    assert_non_null(t->file.data);
    t->file.state = 1;
    t->class_row = add(&t->file, "class", 1, &hidden, 1, 0);
    t->positions = add(&t->file, "positions", 2, positions, 0.5f, 0);
    t->patches.weight = add(&t->file, "patches.weight", 4, patches, 0.1f, 0);
    t->patches.bias = add(&t->file, "patches.bias", 1, &hidden, 0.1f, 0);
    for (layer = 0; layer < LAYERS; layer++) {
        linear *const parts[] = {&t->q[layer], &t->k[layer], &t->v[layer], &t->out[layer], &t->up[layer], &t->down[layer],
                                 &t->norm[layer][0], &t->norm[layer][1]};
        for (i = 0; i < COUNT_OF(parts); i++) {
            char name[64];
            snprintf(name, sizeof name, "layers.%u.%s", layer, names[i]);
            *parts[i] = add_linear(&t->file, name, i == 4 ? MLP : HIDDEN, i > 5 ? 0 : i == 5 ? MLP : HIDDEN, i > 5 ? 0.2f : 0.15f);
        }
    }
    strcat(t->file.header, "}");
    length = strlen(t->file.header);
    t->bytes = (unsigned char *)malloc(8 + (size_t)length + (size_t)t->file.count * 4);
    assert_non_null(t->bytes);
    for (i = 0; i < 8; i++) t->bytes[i] = (unsigned char)(length >> (8 * i));
    memcpy(t->bytes + 8, t->file.header, (size_t)length);
    memcpy(t->bytes + 8 + length, t->file.data, (size_t)t->file.count * 4);
    snprintf(config, sizeof config, "{\"model_type\":\"toy_vision\",\"hidden_act\":\"%s\"}", activation);
    memset(files, 0, sizeof files);
    files[0].name = "config.json";
    files[0].data = config;
    files[0].bytes = strlen(config);
    files[1].name = "model.safetensors";
    files[1].data = t->bytes;
    files[1].bytes = 8 + length + t->file.count * 4;
    memset(&desc, 0, sizeof desc);
    desc.memory_files = files;
    desc.memory_file_count = 2;
    if (mgv_model_open(&t->model, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
}
static void close_toy(toy *t) {
    mgv_model_close(t->model);
    free(t->bytes);
    free(t->file.data);
}

/* --- the formulas --- */

static void product(const linear *l, const double *x, double *y, uint32_t out, uint32_t in) {
    uint32_t i, k;
    for (i = 0; i < out; i++) {
        y[i] = l->bias[i];
        for (k = 0; k < in; k++) y[i] += (double)l->weight[(uint64_t)i * in + k] * x[k];
    }
}
/* x = norm(x + y) */
static void add_and_norm(const linear *norm, double *x, const double *y) {
    double mean = 0, variance = 0;
    uint32_t i;
    for (i = 0; i < HIDDEN; i++) mean += (x[i] += y[i]) / HIDDEN;
    for (i = 0; i < HIDDEN; i++) variance += (x[i] - mean) * (x[i] - mean) / HIDDEN;
    for (i = 0; i < HIDDEN; i++) x[i] = (x[i] - mean) / sqrt(variance + 1e-5) * norm->weight[i] + norm->bias[i];
}
static void attend(double (*q)[HIDDEN], double (*k)[HIDDEN], double (*v)[HIDDEN], uint32_t row, double *out) {
    uint32_t head, i, c;
    for (head = 0; head < HEADS; head++) {
        double weight[TOKENS], sum = 0;
        for (i = 0; i < TOKENS; i++) {
            double score = 0;
            for (c = head * HEAD_DIM; c < (head + 1) * HEAD_DIM; c++) score += q[row][c] * k[i][c];
            sum += weight[i] = exp(score / sqrt((double)HEAD_DIM));
        }
        for (c = head * HEAD_DIM; c < (head + 1) * HEAD_DIM; c++)
            for (out[c] = 0, i = 0; i < TOKENS; i++) out[c] += weight[i] / sum * v[i][c];
    }
}
static void expected_rows(const toy *t, const unsigned char *pixels, double (*x)[HIDDEN]) {
    static double q[TOKENS][HIDDEN], k[TOKENS][HIDDEN], v[TOKENS][HIDDEN], attended[TOKENS][HIDDEN];
    uint32_t row, i, layer;
    for (row = 0; row < TOKENS; row++) {
        double patch[PATCH_COLUMNS];
        for (i = 0; row && i < PATCH_COLUMNS; i++) {
            const uint32_t channel = i / (PATCH * PATCH), y = (row - 1) / 4 * PATCH + i / PATCH % PATCH, c = (row - 1) % 4 * PATCH + i % PATCH;
            patch[i] = (pixels[(y * SIDE + c) * 3 + channel] / 255.0 - 0.5) / 0.5;
        }
        if (row) product(&t->patches, patch, x[row], HIDDEN, PATCH_COLUMNS);
        for (i = 0; i < HIDDEN; i++) x[row][i] = (row ? x[row][i] : t->class_row[i]) + t->positions[row * HIDDEN + i];
    }
    for (layer = 0; layer < LAYERS; layer++) {
        for (row = 0; row < TOKENS; row++) {
            product(&t->q[layer], x[row], q[row], HIDDEN, HIDDEN);
            product(&t->k[layer], x[row], k[row], HIDDEN, HIDDEN);
            product(&t->v[layer], x[row], v[row], HIDDEN, HIDDEN);
        }
        for (row = 0; row < TOKENS; row++) attend(q, k, v, row, attended[row]);
        for (row = 0; row < TOKENS; row++) {
            double y[HIDDEN], mlp[MLP];
            product(&t->out[layer], attended[row], y, HIDDEN, HIDDEN);
            add_and_norm(&t->norm[layer][0], x[row], y);
            product(&t->up[layer], x[row], mlp, MLP, HIDDEN);
            for (i = 0; i < MLP; i++) mlp[i] = mlp[i] > 0 ? mlp[i] : 0;
            product(&t->down[layer], mlp, y, HIDDEN, MLP);
            add_and_norm(&t->norm[layer][1], x[row], y);
        }
    }
}

/* --- tests --- */

typedef struct rows {
    float tokens[TOKENS][HIDDEN], pooled[HIDDEN];
} rows;
static void encode_on_cpu(const toy *t, mgv_precision precision, const unsigned char *pixels, rows *r) {
    mgv_image image;
    mgv_output outputs[2];
    mgv_encode_desc encode;
    mgv_engine_desc desc;
    mgv_engine *engine;
    mgv_error error;
    memset(&image, 0, sizeof image);
    image.format = MGV_PIXELS_RGB8;
    image.pixels = pixels;
    image.width = image.height = SIDE;
    memset(outputs, 0, sizeof outputs);
    outputs[0].kind = MGV_OUTPUT_TOKENS;
    outputs[0].data = &r->tokens[0][0];
    outputs[0].capacity = TOKENS * HIDDEN;
    outputs[1].kind = MGV_OUTPUT_POOLED;
    outputs[1].data = r->pooled;
    outputs[1].capacity = HIDDEN;
    memset(&encode, 0, sizeof encode);
    encode.images = &image;
    encode.image_count = 1;
    encode.outputs = outputs;
    encode.output_count = 2;
    memset(&desc, 0, sizeof desc);
    desc.backend = MGV_BACKEND_CPU;
    desc.precision = precision;
    if (mgv_engine_create(&engine, t->model, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
    if (mgv_encode_blocking(engine, &encode, &error) != MGV_OK) fail_msg("%s", error.message);
    mgv_engine_destroy(engine);
}
static void make_pixels(unsigned char *pixels) {
    uint32_t i;
    for (i = 0; i < SIDE * SIDE * 3; i++) pixels[i] = (unsigned char)(i * 2654435761u >> 24);
}

static void test_cpu(void **state) {
    static double expected[TOKENS][HIDDEN];
    static rows r;
    static unsigned char pixels[SIDE * SIDE * 3];
    toy *t = (toy *)malloc(sizeof *t);
    uint32_t i, c;
    (void)state;
    assert_non_null(t);
    open_toy(t, "relu");
    make_pixels(pixels);
    expected_rows(t, pixels, expected);
    encode_on_cpu(t, MGV_PRECISION_AUTO, pixels, &r);
    for (i = 0; i < TOKENS; i++)
        for (c = 0; c < HIDDEN; c++) assert_float_equal(r.tokens[i][c], (float)expected[i][c], 2e-5f);
    assert_memory_equal(r.pooled, r.tokens[0], sizeof r.pooled);
    close_toy(t);
    free(t);
}

/* With a precision the rows are rounded, and normalised once: a norm over rows where they lie is folded into no product. What is seen is
   0.0058 and 0.058; with that norm folded in as well 0.14 in bf16. */
static void test_precisions(void **state) {
    static const struct {
        mgv_precision precision;
        double most;
    } cases[] = {{MGV_PRECISION_BF16, 1e-2}, {MGV_PRECISION_MXFP8, 1e-1}};
    static double expected[TOKENS][HIDDEN];
    static rows r;
    static unsigned char pixels[SIDE * SIDE * 3];
    toy *t = (toy *)malloc(sizeof *t);
    uint32_t k, i, c;
    (void)state;
    assert_non_null(t);
    open_toy(t, "relu");
    make_pixels(pixels);
    expected_rows(t, pixels, expected);
    for (k = 0; k < COUNT_OF(cases); k++) {
        double off = 0, of = 0, error;
        encode_on_cpu(t, cases[k].precision, pixels, &r);
        for (i = 0; i < TOKENS; i++)
            for (c = 0; c < HIDDEN; c++) {
                const double d = (double)r.tokens[i][c] - expected[i][c];
                off += d * d;
                of += expected[i][c] * expected[i][c];
            }
        error = sqrt(off / of);
        print_message("# %s: relative L2 %.2g\n", mgv_precision_name(cases[k].precision), error);
        if (!(error > 1e-4 && error < cases[k].most)) fail_msg("%s: %g", mgv_precision_name(cases[k].precision), error);
        assert_memory_equal(r.pooled, r.tokens[0], sizeof r.pooled);
    }
    close_toy(t);
    free(t);
}

/* The plan has the norms as operations of their own, ReLU as an epilogue, and is proved; what it has not it names. */
static void test_plan(void **state) {
    static const uint32_t batches[] = {1, 8, 64, 592};
    toy *t = (toy *)malloc(sizeof *t);
    mgv_schedule_info info;
    mgv_result result;
    mgv_error error;
    uint32_t i, k;
    (void)state;
    assert_non_null(t);
    open_toy(t, "relu");
    for (i = 0; i < COUNT_OF(batches); i++) {
        mgv__plan *plan = mgv__plan_make(&t->model->allocator, MGV_PRECISION_AUTO, &t->model->config, &t->model->program, batches[i],
                                         batches[i], &result, &error);
        uint32_t norms = 0, relus = 0;
        if (!plan) fail_msg("%s", error.message);
        mgv__plan_schedule(plan, batches[i], 66);
        if (mgv__plan_validate(plan, plan->counts, &error) != MGV_OK) fail_msg("%s", error.message);
        for (k = 0; k < plan->op_count; k++) {
            norms += plan->ops[k].packs == MGV__PACKS_NORM;
            relus += (plan->ops[k].kernel.flags & MGV__KERNEL_RELU) != 0;
        }
        assert_int_equal(norms, 2 * LAYERS - 1); /* the last is folded into the copy of the class token */
        assert_int_equal(relus, LAYERS);
        mgv__plan_free(&t->model->allocator, plan);
    }
    close_toy(t);
    open_toy(t, "silu");
    memset(&info, 0, sizeof info);
    assert_int_equal(mgv_model_get_schedule(t->model, NULL, &info, NULL, 0, &error), MGV_OK);
    assert_string_equal(info.kernel, "megavit_encode_tower_sm_90a");
    close_toy(t);
    free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu),
        cmocka_unit_test(test_precisions),
        cmocka_unit_test(test_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
