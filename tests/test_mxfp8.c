/* MXFP8 on the CPU: its numbers against the tables of the formats, each product of a layer in it against double precision with rounding of
   this file's own, on every instruction set, and whole encodes. */
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

#include <setjmp.h>
#include <stdio.h>
#include <cmocka.h>

#include "micro_siglip.h"

enum { TOKENS = (MICRO_SIDE / MICRO_PATCH) * (MICRO_SIDE / MICRO_PATCH), CODES = 127 };

static uint32_t random_state = 1;
static uint32_t random_bits(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return random_state;
}
static double uniform(void) { return random_bits() / 2147483648.0 - 1; }

/* ---- the formats, from their definitions ---- */

static double code_values[CODES]; /* of the codes 0 to 0x7E */
static void fill_codes(void) {
    int code;
    for (code = 0; code < CODES; code++)
        code_values[code] = code < 8 ? ldexp(code, -9) : ldexp(8 + code % 8, code / 8 - 10);
}
/* The nearest code, of two the even one. */
static int nearest_code(double magnitude) {
    int low = 0, high = CODES - 1;
    if (magnitude >= code_values[high]) return high;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (code_values[middle] <= magnitude) low = middle;
        else high = middle;
    }
    if (magnitude - code_values[low] < code_values[high] - magnitude) return low;
    if (magnitude - code_values[low] > code_values[high] - magnitude) return high;
    return low % 2 ? high : low;
}
/* The least exponent from -127 on with which `largest` is at most 448 times its power of two. */
static int least_exponent(double largest) {
    int e = -127;
    while (largest > ldexp(448, e)) e++;
    return e;
}
static void round_block(double *x, uint32_t n) {
    double largest = 0;
    uint32_t i;
    int e;
    for (i = 0; i < n; i++) largest = fmax(largest, fabs(x[i]));
    e = least_exponent(largest);
    for (i = 0; i < n; i++) x[i] = copysign(ldexp(code_values[nearest_code(ldexp(fabs(x[i]), -e))], e), x[i]);
}

/* To eight bits, of two the even one. */
static double round_bf16(double x) {
    int e;
    const double m = frexp(x, &e);
    return x == 0 ? 0 : ldexp(nearbyint(ldexp(m, 8)), e - 8);
}

static void test_codes(void **state) {
    uint32_t code, i;
    (void)state;
    for (code = 0; code < 256; code++) {
        const float value = mgv__float_of_e4m3((uint8_t)code);
        if ((code & 0x7F) == 0x7F) {
            assert_true(value != value);
            assert_int_equal(mgv__e4m3_round(value) & 0x7F, 0x7F);
            continue;
        }
        assert_true((double)value == (code & 0x80 ? -1 : 1) * code_values[code & 0x7F]);
        assert_int_equal(mgv__e4m3_round(value), code);
    }
    for (i = 0; i < 2000000; i++) { /* magnitudes from 2^-14 to 2^10, and halfway between two codes */
        const uint32_t bits = (113 - 14 + 14 + random_bits() % 24 - 14) << 23 | random_bits() >> 9;
        const int low = (int)(random_bits() % (CODES - 1));
        const float value = i % 4 ? mgv__float_of_bits(bits) : (float)((code_values[low] + code_values[low + 1]) / 2);
        assert_int_equal(mgv__e4m3_round(value), nearest_code((double)value));
        assert_int_equal(mgv__e4m3_round(-value), nearest_code((double)value) | 0x80);
    }
    assert_int_equal(mgv__e4m3_round(mgv__float_of_bits(0x7F800000u)), 0x7E);
    assert_int_equal(mgv__e4m3_round(mgv__float_of_bits(0xFF800000u)), 0xFE);
}

static void test_scales(void **state) {
    uint32_t i;
    (void)state;
    for (i = 0; i < 1000000; i++) {
        uint32_t bits = random_bits() >> 1;
        if (i % 4 == 0) bits = (bits & 0x7F800000u) | 0x00600000u;            /* 1.75, */
        if (i % 4 == 1) bits = ((bits & 0x7F800000u) | 0x00600000u) + 1;      /* and the next */
        if (bits > 0x7F7FFFFFu) continue;
        assert_int_equal((int)mgv__mx_scale_ceil(bits) - 127, least_exponent((double)mgv__float_of_bits(bits)));
    }
    assert_int_equal(mgv__mx_scale_ceil(0), 0);
    assert_true((double)mgv__mx_scale_value(0) == ldexp(1, -127));
    assert_true((double)mgv__mx_scale_value(247) == ldexp(1, 120));
}

static void test_blocks(void **state) {
    float x[72];
    double want[72];
    uint32_t round, i;
    (void)state;
    for (round = 0; round < 2000; round++) {
        const uint32_t n = 1 + random_bits() % 72;
        for (i = 0; i < n; i++) want[i] = x[i] = (float)ldexp(uniform(), (int)(random_bits() % 40) - 20);
        if (round % 8 == 0) for (i = 0; i < n; i++) want[i] = x[i] = 0;
        for (i = 0; i < n; i += 32) round_block(want + i, n - i < 32 ? n - i : 32);
        mgv__mx_round(x, n);
        for (i = 0; i < n; i++) assert_true((double)x[i] == want[i]);
    }
    for (i = 0; i < 32; i++) x[i] = (float)i;
    x[5] = mgv__float_of_bits(0x7FC00000u);
    mgv__mx_round(x, 32);
    for (i = 0; i < 32; i++) assert_int_equal(x[i] != x[i], i == 5);
    x[5] = mgv__float_of_bits(0x7F800000u);
    mgv__mx_round(x, 32);
    assert_true(x[5] > 3.4e38f && x[31] == 0); /* 448 times 2^120 is none in float32 */
}

/* ---- products ---- */

typedef struct fixture {
    micro_siglip micro;
    mgv_model *model;
    uint8_t pixels[3 * MICRO_SIDE * MICRO_SIDE];
    mgv_image image;
} fixture;

static int set_up(void **state) {
    fixture *f = (fixture *)calloc(1, sizeof *f);
    mgv_error error;
    uint32_t i;
    micro_make(&f->micro, 7);
    f->model = micro_open(&f->micro, &error);
    if (!f->model) fail_msg("%s", error.message);
    for (i = 0; i < sizeof f->pixels; i++) f->pixels[i] = (uint8_t)(random_bits() >> 24);
    f->image.pixels = f->pixels;
    f->image.width = f->image.height = MICRO_SIDE;
    *state = f;
    return 0;
}
static int tear_down(void **state) {
    fixture *f = (fixture *)*state;
    mgv_model_close(f->model);
    micro_free(&f->micro);
    free(f);
    return 0;
}

static mgv_engine *make_engine(const fixture *f, mgv_precision precision) {
    mgv_engine_desc desc;
    mgv_engine *engine;
    mgv_error error;
    memset(&desc, 0, sizeof desc);
    desc.backend = MGV_BACKEND_CPU;
    desc.precision = precision;
    if (mgv_engine_create(&engine, f->model, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
    return engine;
}
static void encode(const fixture *f, mgv_engine *engine, mgv_output_kind kind, float *rows, uint64_t capacity) {
    mgv_output output;
    mgv_encode_desc desc;
    mgv_error error;
    memset(&output, 0, sizeof output);
    memset(&desc, 0, sizeof desc);
    output.kind = kind;
    output.data = rows;
    output.capacity = capacity;
    desc.images = &f->image;
    desc.image_count = 1;
    desc.outputs = &output;
    desc.output_count = 1;
    if (mgv_encode_blocking(engine, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
}

/* Row `row` of the sums of operation `at`, in double, from what its buffers hold. */
static void expect(const fixture *f, const mgv__cpu_run *run, uint32_t at, uint32_t row, double *out) {
    const mgv__op *op = &f->model->program.ops[at], *norm = op[-1].kind == MGV__OP_NORM ? op - 1 : NULL;
    const mgv__tensor *tensors = f->model->tensors;
    const uint32_t inner = op->inner;
    const float *source = run->buffers[norm ? norm->source : op->source] + (size_t)row * inner;
    double *x = (double *)malloc(inner * sizeof *x), *w = (double *)malloc(inner * sizeof *w), mean = 0, squares = 0, rstd = 1;
    uint32_t part, c, k, column = 0;
    for (k = 0; k < inner; k++) {
        x[k] = (double)source[k];
        mean += x[k] / inner;
    }
    for (k = 0; k < inner; k++) squares += (x[k] - mean) * (x[k] - mean) / inner;
    if (norm) rstd = 1 / sqrt(squares + (double)norm->epsilon);
    for (k = 0; k < inner; k += 32) round_block(x + k, 32);
    for (part = 0; part < op->part_count; part++)
        for (c = 0; c < op->part_columns[part]; c++, column++) {
            const mgv__tensor *weight = &tensors[op->weight[part]];
            const double factor = norm && op[1].kind == MGV__OP_ATTENTION && part == 0 ? 1.4426950408889634 / 8 : 1;
            double sum = 0, total = 0, centre = 0, shift = (double)mgv__element_value(tensors[op->bias[part]].dtype, tensors[op->bias[part]].data, c);
            for (k = 0; k < inner; k++) {
                w[k] = (double)mgv__element_value(weight->dtype, weight->data, (uint64_t)c * inner + k);
                if (norm) {
                    shift += w[k] * (double)mgv__element_value(MGV_DTYPE_BF16, tensors[norm->bias[0]].data, k);
                    w[k] *= (double)mgv__element_value(MGV_DTYPE_BF16, tensors[norm->weight[0]].data, k);
                    centre += w[k] / inner;
                }
            }
            for (k = 0; k < inner; k++) w[k] = (double)(float)((w[k] - centre) * factor);
            for (k = 0; k < inner; k += 32) round_block(w + k, 32);
            for (k = 0; k < inner; k++) {
                sum += x[k] * w[k];
                total += w[k];
            }
            out[column] = (norm ? rstd * (sum - mean * total) : sum) / factor + shift;
            if (op->activation == MGV__ACT_GELU_TANH)
                out[column] *= 0.5 * (1 + tanh(0.79788456080286535588 * (out[column] + 0.044715 * out[column] * out[column] * out[column])));
            if (op->add != MGV__NONE) out[column] += round_bf16((double)run->buffers[op->add][(size_t)row * op->columns + column]);
            if (op[1].kind == MGV__OP_ATTENTION) out[column] = round_bf16((double)(float)(out[column] * factor)) / factor;
        }
    free(x);
    free(w);
}

static void check_product(const fixture *f, mgv_engine *engine, uint32_t at, mgv__isa isa) {
    const mgv__op *op = &f->model->program.ops[at];
    double *want = (double *)malloc(op->columns * sizeof *want), difference = 0, norm = 0;
    uint32_t neighbours = 0;
    float *before = (float *)malloc((size_t)TOKENS * op->columns * sizeof *before);
    mgv__cpu_run run;
    mgv__cpu_job job;
    uint32_t b, i, row;
    mgv__job_cpu_run(engine, &run);
    run.kernels = mgv__cpu_kernels_of(isa);
    for (b = 1; b < f->model->program.buffer_count; b++)
        for (i = 0; i < TOKENS * f->model->program.buffers[b].columns; i++)
            if (f->model->program.buffers[b].rows == MGV__ROWS_TOKENS)
                run.buffers[b][i] = (float)((uniform() + 0.3) * (i % 17 == 0 ? 40 : 1));
    if (op->add != MGV__NONE) memcpy(before, run.buffers[op->add], (size_t)TOKENS * op->columns * sizeof *before);
    mgv__cpu_begin(&job, &run, op);
    while (!mgv__cpu_step(&job, 1)) {}
    for (row = 0; row < TOKENS; row++) {
        float *residual = run.buffers[op->target] + (size_t)row * op->columns, *got = (float *)malloc(op->columns * sizeof *got);
        memcpy(got, residual, op->columns * sizeof *got);
        if (op->add == op->target) memcpy(residual, before + (size_t)row * op->columns, op->columns * sizeof *got);
        expect(f, &run, at, row, want);
        for (i = 0; i < op->columns; i++) {
            const double d = fabs((double)got[i] - want[i]);
            norm += want[i] * want[i];
            if (op[1].kind == MGV__OP_ATTENTION && d > ldexp(fabs(want[i]), -10) && d < ldexp(fabs(want[i]), -7) * 1.01) neighbours++;
            else difference += d * d;
        }
        free(got);
    }
    assert_true(neighbours <= TOKENS * op->columns / 200); /* what the order of sums moves to bf16's other neighbour */
    /* Rounding of rows and weights moves values by 2^-4 at most; a rounding that is another than here's would show as 1e-3 at least. */
    if (!(sqrt(difference / norm) < 2e-5)) fail_msg("%s, %s: relative L2 %g", op->label, run.kernels->name, sqrt(difference / norm));
    free(want);
    free(before);
}

static void test_products(void **state) {
    const fixture *f = (const fixture *)*state;
    const mgv__program *program = &f->model->program;
    mgv_engine *engine = make_engine(f, MGV_PRECISION_MXFP8);
    float rows[MICRO_WIDTH];
    mgv__isa isa;
    uint32_t at, products = 0;
    encode(f, engine, MGV_OUTPUT_POOLED, rows, MICRO_WIDTH); /* the picture's geometry */
    for (isa = MGV__ISA_PLAIN; isa < MGV__ISA_COUNT; isa++) {
        if (mgv__cpu_kernels_of(isa) == NULL || (isa != MGV__ISA_PLAIN && isa > mgv__cpu_detect())) continue;
        for (at = products = 0; at < program->op_count; at++)
            if (mgv__op_takes_mx(&program->ops[at], MGV_PRECISION_MXFP8)) {
                check_product(f, engine, at, isa);
                products++;
            }
        assert_int_equal(products, 4 * MICRO_LAYERS);
    }
    for (at = products = 0; at < program->op_count; at++)
        products += (uint32_t)mgv__op_takes_mx(&program->ops[at], MGV_PRECISION_MXFP8_MIXED);
    assert_int_equal(products, 2 * MICRO_LAYERS);
    mgv_engine_destroy(engine);
}

/* ---- names of precisions ---- */

static void test_names(void **state) {
    static const struct {
        const char *name;
        mgv_precision set;
    } names[] = {{"auto", 0}, {"fast", MGV_PRECISION_FAST}, {"bf16", MGV_PRECISION_BF16}, {"mxfp8", 15},
                 {"qkv+out+fc1+fc2", 15}, {"fc2+fc1+out+qkv", 15}, {"mixed", 5}, {"qkv+fc1", 5}, {"fc1+qkv", 5}, {"qkv", 1}, {"out", 2},
                 {"fc1", 4}, {"fc2", 8}, {"fc2+out", 10}};
    static const char *const none[] = {"", "+", "qkv+", "+qkv", "qkv++out", "qkv+qkv", "qk", "qkvo", "QKV", "fc3", "mxfp8+qkv", "bf16+out",
                                       "fast+qkv", "qkv out", "qkv ", "sm_100a"};
    mgv_precision set;
    mgv_error error;
    uint32_t i;
    (void)state;
    for (i = 0; i < (uint32_t)MGV__PRECISIONS; i++) { /* each has a name of its own, which stands for it */
        mgv_precision back = -1;
        set = mgv__precision_at(i);
        assert_int_equal(mgv_precision_of_name(mgv_precision_name(set), &back, &error), MGV_OK);
        assert_int_equal(back, set);
    }
    assert_null(mgv_precision_name(-1));
    assert_null(mgv_precision_name(17));
    assert_null(mgv_precision_name(33));
    for (i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_int_equal(mgv_precision_of_name(names[i].name, &set, &error), MGV_OK);
        assert_int_equal(set, names[i].set);
        assert_int_equal(error.code, MGV_OK);
    }
    for (i = 0; i < sizeof none / sizeof none[0]; i++) {
        char says[64];
        snprintf(says, sizeof says, "there is no precision \"%s\": it is auto, fast, bf16, ", none[i]);
        set = 7;
        assert_int_equal(mgv_precision_of_name(none[i], &set, &error), MGV_ERROR_ARGUMENT);
        assert_int_equal(set, MGV_PRECISION_AUTO);
        assert_true(strncmp(error.message, says, strlen(says)) == 0);
    }
    assert_int_equal(mgv_precision_of_name(NULL, &set, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_precision_of_name("qkv", NULL, NULL), MGV_ERROR_ARGUMENT);
}

/* ---- whole encodes ---- */

static double cosine(const float *a, const float *b, uint32_t n) {
    double ab = 0, aa = 0, bb = 0;
    uint32_t i;
    for (i = 0; i < n; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return ab / sqrt(aa * bb);
}

static void run_backwards(void *user, uint32_t count, mgv_task task, void *context) {
    (void)user;
    while (count > 0) task(context, --count);
}

/* Of all sets of products: the more of them are in MXFP8 the further off, each by itself by so much that it cannot be missed, and their
   squared errors add up, as roundings of different products have nothing to do with each other. bf16, which is in all of them, is nearer
   by an order of magnitude. One that is left out, or taken for another, breaks the sum. */
static double distance(const float *a, const float *b, uint32_t n) {
    double squares = 0, all = 0;
    uint32_t i;
    for (i = 0; i < n; i++) {
        squares += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        all += (double)b[i] * (double)b[i];
    }
    return sqrt(squares / all);
}
static void test_sets(void **state) {
    const fixture *f = (const fixture *)*state;
    enum { ROWS = TOKENS * MICRO_WIDTH };
    float *exact = (float *)malloc(ROWS * sizeof *exact), *rows = (float *)malloc(ROWS * sizeof *rows);
    double off[MGV_PRECISION_BF16 + 1];
    mgv_precision set;
    uint32_t bit;
    for (set = 0; set <= MGV_PRECISION_BF16; set++) {
        mgv_engine *engine = make_engine(f, set);
        encode(f, engine, MGV_OUTPUT_TOKENS, set ? rows : exact, ROWS);
        off[set] = distance(set ? rows : exact, exact, ROWS);
        mgv_engine_destroy(engine);
    }
    assert_true(off[MGV_PRECISION_BF16] > 1e-4 && off[MGV_PRECISION_BF16] < 0.01);
    for (set = 1; set <= MGV_PRECISION_MXFP8; set++) {
        double squares = off[MGV_PRECISION_BF16] * off[MGV_PRECISION_BF16];
        for (bit = 1; bit <= MGV_PRECISION_FC2; bit *= 2)
            if (set & (mgv_precision)bit) squares += off[bit] * off[bit];
        if (!(off[set] > 4 * off[MGV_PRECISION_BF16] && off[set] > 0.8 * sqrt(squares) && off[set] < 1.25 * sqrt(squares)))
            fail_msg("%s: %g, by its products %g; bf16 %g", mgv_precision_name(set), off[set], sqrt(squares), off[MGV_PRECISION_BF16]);
    }
    free(exact);
    free(rows);
}

/* Nearer in the mixed table than in the full one, near in both, and the same bits on any number of threads. */
static void test_encodes(void **state) {
    const fixture *f = (const fixture *)*state;
    static const mgv_precision precisions[] = {MGV_PRECISION_AUTO, MGV_PRECISION_MXFP8, MGV_PRECISION_MXFP8_MIXED};
    float rows[4][TOKENS * MICRO_WIDTH];
    double all, mixed;
    uint32_t p;
    mgv_engine_desc desc;
    mgv_engine *engine;
    mgv_error error;
    for (p = 0; p < 3; p++) {
        engine = make_engine(f, precisions[p]);
        encode(f, engine, MGV_OUTPUT_TOKENS, rows[p], TOKENS * MICRO_WIDTH);
        mgv_engine_destroy(engine);
    }
    all = cosine(rows[0], rows[1], TOKENS * MICRO_WIDTH);
    mixed = cosine(rows[0], rows[2], TOKENS * MICRO_WIDTH);
    assert_true(all > 0.99 && all < mixed && mixed < 0.99999);
    memset(&desc, 0, sizeof desc);
    desc.backend = MGV_BACKEND_CPU;
    desc.precision = MGV_PRECISION_MXFP8;
    desc.parallel.run = run_backwards;
    desc.parallel.threads = 5;
    if (mgv_engine_create(&engine, f->model, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
    encode(f, engine, MGV_OUTPUT_TOKENS, rows[3], TOKENS * MICRO_WIDTH);
    assert_memory_equal(rows[3], rows[1], sizeof rows[3]);
    mgv_engine_destroy(engine);
}

static void test_refused(void **state) {
    const fixture *f = (const fixture *)*state;
    mgv_engine_desc desc;
    mgv_engine *engine;
    mgv_error error;
    uint32_t i;
    memset(&desc, 0, sizeof desc);
    desc.backend = MGV_BACKEND_CPU;
    for (i = 0; i < 3; i++) {
        static const struct {
            mgv_precision precision;
            const char *says;
        } wrong[] = {{17, "precision 17 is none of MGV_PRECISION_AUTO, FAST and BF16, nor products in MXFP8, added up"},
                     {-1, "precision -1 is"}, {33, "precision 33 is"}};
        desc.precision = wrong[i].precision;
        assert_int_equal(mgv_engine_create(&engine, f->model, &desc, &error), MGV_ERROR_ARGUMENT);
        assert_non_null(strstr(error.message, wrong[i].says));
    }
    desc.precision = MGV_PRECISION_MXFP8;
    for (i = 0; i < f->model->program.op_count && !mgv__op_norm_before(&f->model->program, i); i++) {}
    ((mgv__op *)f->model->program.ops)[i - 1].rms = 1;
    assert_int_equal(mgv_engine_create(&engine, f->model, &desc, &error), MGV_ERROR_UNSUPPORTED);
    assert_string_equal(error.message, "precision \"mxfp8\" is for towers whose layers have LayerNorms and no gates: not for this one, "
                                       "which may be had in bf16");
    ((mgv__op *)f->model->program.ops)[i - 1].rms = 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes), cmocka_unit_test(test_scales), cmocka_unit_test(test_blocks), cmocka_unit_test(test_names),
        cmocka_unit_test_setup_teardown(test_products, set_up, tear_down), cmocka_unit_test_setup_teardown(test_encodes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_sets, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refused, set_up, tear_down)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    fill_codes();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
