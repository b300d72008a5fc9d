/* Every operation of the CPU backend against a straightforward double-precision reference, on every instruction set
   that this machine has: odd sizes, every dtype of weights, poisoned targets and scratch, any number of threads. */
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

#include <fenv.h>
#include <setjmp.h>
#include <stdio.h>
#include <cmocka.h>

enum { MAX_TENSORS = 8 };
enum { TABLE_SIDE = 7, TABLE_FIRST = 1, TABLE_TAPS = 2 }; /* position tables */

#ifdef MEGAVIT_SGEMM /* test_cpu_sgemm.c includes this file */
static uint64_t sgemm_calls;
#endif

/* ---- numbers ---- */

static uint64_t random_state = 88172645463325252u;
static double uniform(void) { /* in [-1, 1) */
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (double)(random_state >> 11) / 4503599627370496.0 - 1.0;
}

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}
static float of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
static double of_f16(uint16_t h) {
    const int exponent = (h >> 10) & 31, mantissa = h & 1023;
    const double magnitude = exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);
    return h & 0x8000 ? -magnitude : magnitude;
}
/* Nearest by truncation: any value will do, the reference decodes what was stored. */
static uint16_t to_f16(double x) {
    int exponent;
    const double fraction = frexp(fabs(x), &exponent);
    const uint16_t sign = x < 0 ? 0x8000 : 0;
    if (exponent < -13) return (uint16_t)(sign | (uint16_t)ldexp(fabs(x), 24));
    return (uint16_t)(sign | (unsigned)(exponent + 14) << 10 | ((unsigned)ldexp(fraction, 11) & 1023u));
}

/* ---- one op, its buffers, tensors and picture ---- */

typedef struct world {
    mgv__program program;
    mgv__op op;
    mgv__geometry geometry;
    mgv__tensor tensors[MAX_TENSORS];
    uint32_t tensor_count;
    size_t floats[MGV__MAX_BUFFERS];
    mgv__cpu_run run;
    uint32_t sample_index[2][256];
    float sample_weight[2][256];
    float position[3 * 2048];
    uint32_t ends[64];
    uint32_t order[1024];
} world;

static void *exactly(size_t bytes) { /* so that AddressSanitizer sees a read behind the end */
    void *memory = malloc(bytes);
    assert_non_null(memory);
    return memory;
}

static uint32_t add_tensor(world *w, mgv_dtype dtype, uint32_t rows, uint32_t columns, double amplitude) {
    mgv__tensor *t = &w->tensors[w->tensor_count];
    const size_t n = (size_t)rows * columns;
    size_t i;
    void *data = exactly(n * (dtype == MGV_DTYPE_F32 ? 4 : 2));
    assert_true(w->tensor_count < MAX_TENSORS);
    memset(t, 0, sizeof(*t));
    t->dtype = dtype;
    t->rank = 2;
    t->shape[0] = rows;
    t->shape[1] = columns;
    for (i = 0; i < n; i++) {
        const double x = uniform() * amplitude;
        if (dtype == MGV_DTYPE_F32) ((float *)data)[i] = (float)x;
        if (dtype == MGV_DTYPE_F16) ((uint16_t *)data)[i] = to_f16(x);
        if (dtype == MGV_DTYPE_BF16) ((uint16_t *)data)[i] = (uint16_t)(bits_of((float)x) >> 16);
    }
    t->data = data;
    return w->tensor_count++;
}

static double tensor_at(const world *w, uint32_t tensor, size_t i) {
    const mgv__tensor *t;
    if (tensor == MGV__NO_TENSOR) return 0.0;
    t = &w->tensors[tensor];
    if (t->dtype == MGV_DTYPE_F32) return (double)((const float *)t->data)[i];
    if (t->dtype == MGV_DTYPE_F16) return of_f16(((const uint16_t *)t->data)[i]);
    return (double)of_bits((uint32_t)((const uint16_t *)t->data)[i] << 16);
}

static uint16_t add_buffer(world *w, uint32_t rows, uint32_t columns, mgv__rows kind) {
    const uint16_t number = (uint16_t)w->program.buffer_count++;
    size_t i;
    w->program.buffers[number].columns = columns;
    w->program.buffers[number].rows = kind;
    w->floats[number] = (size_t)rows * columns;
    w->run.buffers[number] = (float *)exactly(w->floats[number] * sizeof(float));
    for (i = 0; i < w->floats[number]; i++) w->run.buffers[number][i] = (float)uniform();
    return number;
}

static void poison(world *w, uint16_t buffer) { memset(w->run.buffers[buffer], 0xFF, w->floats[buffer] * sizeof(float)); }

static world *make_world(mgv__op_kind kind, uint32_t tokens, uint32_t merged_tokens) {
    world *w = (world *)calloc(1, sizeof(*w));
    assert_non_null(w);
    w->op.kind = kind;
    w->op.add = MGV__NONE;
    w->op.fold = 1;
    w->op.table = w->op.channel_scale = MGV__NO_TENSOR;
    w->op.bias[0] = w->op.bias[1] = w->op.bias[2] = MGV__NO_TENSOR;
    w->op.epsilon = 1e-6f;
    w->geometry.grid.tokens = tokens;
    w->geometry.grid.merged_tokens = merged_tokens;
    w->geometry.grid.t = w->geometry.grid.h = 1;
    w->geometry.grid.w = tokens;
    w->geometry.merge = 1;
    w->program.ops = &w->op;
    w->program.op_count = 1;
    w->run.program = &w->program;
    w->run.tensors = w->tensors;
    w->run.geometry = &w->geometry;
    return w;
}

static void free_world(world *w) {
    uint32_t i;
    for (i = 0; i < w->program.buffer_count; i++) free(w->run.buffers[i]);
    for (i = 0; i < w->tensor_count; i++) free((void *)(uintptr_t)w->tensors[i].data);
    free(w);
}

/* Tasks in reverse order, one after the other: a partition that is wrong shows without any thread. */
static void run_backwards(void *user, uint32_t count, mgv_task task, void *context) {
    (void)user;
    while (count > 0) task(context, --count);
}

/* Each set of kernels, the last two multiply in bf16; NULL: this CPU or this build has no such. */
enum { SETS = MGV__ISA_COUNT + 2 };
static const mgv__cpu_kernels *kernels_at(int32_t set) {
    if (set == MGV__ISA_COUNT) return mgv__cpu_kernels_of_pairs();
    if (set == MGV__ISA_COUNT + 1) return mgv__cpu_kernels_of_tiles();
    return set == MGV__ISA_PLAIN || set <= mgv__cpu_detect() ? mgv__cpu_kernels_of(set) : NULL;
}

static void run_op_quietly(world *w, const mgv__cpu_kernels *kernels, uint32_t threads) {
    mgv__cpu_job job;
    size_t bytes;
    char *memory, *aligned;
    assert_true(mgv__cpu_scratch_bytes(&w->program, w->geometry.grid.tokens, threads, &bytes));
    memory = (char *)exactly(bytes + 64);
    aligned = memory + (64 - (uintptr_t)memory % 64) % 64;
    memset(memory, 0xFF, bytes + 64); /* NaN */
    w->run.scratch = aligned;
    w->run.scratch_bytes = bytes;
    w->run.kernels = kernels;
    w->run.parallel.threads = threads;
    w->run.parallel.run = threads > 1 ? run_backwards : NULL;
    mgv__cpu_begin(&job, &w->run, &w->op);
    while (!mgv__cpu_step(&job, 1)) {} /* one unit a step; whole models run as many as they may */
    assert_int_equal((unsigned char)memory[aligned - memory == 0 ? bytes : 0], 0xFF);
    free(memory);
}

static void run_op(world *w, const mgv__cpu_kernels *kernels, uint32_t threads) {
    feclearexcept(FE_INVALID);
    run_op_quietly(w, kernels, threads);
    assert_false(fetestexcept(FE_INVALID)); /* nothing is computed from scratch that was not written */
}

/* Relative L2 error, and that no element is far off. */
static double error_of(const float *got, const double *want, size_t n) {
    double difference = 0, norm = 0;
    size_t i;
    for (i = 0; i < n; i++) {
        const double d = (double)got[i] - want[i];
        difference += d * d;
        norm += want[i] * want[i];
    }
    return sqrt(difference / (norm > 0 ? norm : 1.0));
}

/* Runs the op of `w` on every instruction set and on 1 to 8 threads, from the same start. In-place ops need their
   target restored, so the target's first contents are kept. */
static void check_op(world *w, const double *want, int in_place, double bound) {
    const uint16_t target = w->op.target;
    const size_t n = w->floats[target];
    float *first = (float *)exactly(n * sizeof(float)), *start = (float *)exactly(n * sizeof(float));
    int32_t set, tried = 0;
    memcpy(start, w->run.buffers[target], n * sizeof(float));
    for (set = MGV__ISA_PLAIN; set < SETS; set++) {
        const mgv__cpu_kernels *kernels = kernels_at(set);
        uint32_t threads;
        if (kernels == NULL) continue;
        /* Of what is multiplied each is off by up to 2^-9; a score is an exponent. */
        if (kernels->pairs && w->op.kind == MGV__OP_LINEAR) bound = fmax(bound, 1e-2);
        if (kernels->pairs && w->op.kind == MGV__OP_ATTENTION) bound = fmax(bound, 3e-2);
        tried++;
        for (threads = 1; threads <= 8; threads += threads < 4 ? 1 : 2) {
            if (in_place) {
                memcpy(w->run.buffers[target], start, n * sizeof(float));
            } else {
                poison(w, target);
            }
            run_op(w, kernels, threads);
            if (threads == 1) {
                const double error = error_of(w->run.buffers[target], want, n);
                memcpy(first, w->run.buffers[target], n * sizeof(float));
                if (!(error <= bound)) print_message("%s: relative error %g over %g\n", kernels->name, error, bound);
                assert_true(error <= bound);
            } else {
                assert_memory_equal(first, w->run.buffers[target], n * sizeof(float));
            }
        }
    }
    assert_true(tried >= 1);
    memcpy(w->run.buffers[target], start, n * sizeof(float));
    free(first);
    free(start);
}

/* ---- references ---- */

static double activation_of(mgv__activation activation, double x) {
    if (activation == MGV__ACT_GELU_TANH) return 0.5 * x * (1.0 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
    if (activation == MGV__ACT_GELU_ERF) return 0.5 * x * (1.0 + erf(x / 1.41421356237309504880));
    if (activation == MGV__ACT_GELU_QUICK) return x / (1.0 + exp(-1.702 * x));
    if (activation == MGV__ACT_SILU) return x / (1.0 + exp(-x));
    if (activation == MGV__ACT_RELU) return x > 0 ? x : 0;
    return x;
}

static double linear_at(const world *w, uint32_t part, size_t row, size_t column) {
    const mgv__op *op = &w->op;
    const float *source = w->run.buffers[op->source] + row * op->inner;
    double sum;
    size_t k;
    if (part == 1 && op->weight[1] == op->weight[0]) column += op->part_columns[0];
    sum = tensor_at(w, op->bias[part], column);
    for (k = 0; k < op->inner; k++) sum += (double)source[k] * tensor_at(w, op->weight[part], column * op->inner + k);
    return sum;
}

static void reference_linear(const world *w, uint32_t rows, double *want) {
    const mgv__op *op = &w->op;
    uint32_t row, part, column, s;
    for (row = 0; row < rows; row++) {
        uint32_t at = 0;
        for (part = 0; part < (op->gated ? 1 : op->part_count); part++) {
            for (column = 0; column < op->part_columns[part]; column++, at++) {
                double y = activation_of(op->activation, linear_at(w, part, row, column));
                if (op->gated) y *= linear_at(w, 1, row, column);
                if (op->channel_scale != MGV__NO_TENSOR) y *= tensor_at(w, op->channel_scale, at);
                for (s = 0; op->table != MGV__NO_TENSOR && s < TABLE_TAPS * TABLE_TAPS; s++) {
                    const uint32_t down = row / w->geometry.grid.w * TABLE_TAPS + s / TABLE_TAPS;
                    const uint32_t across = row % w->geometry.grid.w * TABLE_TAPS + s % TABLE_TAPS;
                    const uint32_t entry = TABLE_FIRST + w->sample_index[0][down] * TABLE_SIDE + w->sample_index[1][across];
                    y += tensor_at(w, op->table, (size_t)entry * op->columns + at) * (double)w->sample_weight[0][down] *
                         (double)w->sample_weight[1][across];
                }
                if (op->add != MGV__NONE) y += (double)w->run.buffers[op->add][(size_t)row * op->columns + at];
                want[(size_t)row * op->columns + at] = y;
            }
        }
    }
}

/* ---- linear ---- */

typedef struct linear_case {
    uint32_t rows, inner;
    uint32_t columns[MGV__MAX_PARTS]; /* 0: no such part */
    mgv_dtype dtype;
    mgv__activation activation;
    uint32_t table_rows; /* of patches, which take samples of a position table; 0: no table */
    uint32_t fold;
    int bias, add;
    int gate;  /* 1: part 0 is multiplied by a second product; 2: both lie in one tensor */
    int scale; /* a scale for each channel */
} linear_case;

static const linear_case linear_cases[] = {
    {1, 1, {1}, MGV_DTYPE_F32, MGV__ACT_NONE, 0, 1, 0, 0, 0, 0},
    {1, 768, {768}, MGV_DTYPE_F32, MGV__ACT_NONE, 0, 1, 1, 0, 0, 0},
    {3, 5, {7}, MGV_DTYPE_F32, MGV__ACT_NONE, 0, 1, 1, 1, 0, 0},
    {29, 63, {31, 17, 33}, MGV_DTYPE_F32, MGV__ACT_NONE, 0, 1, 1, 0, 0, 0},
    {29, 66, {31, 17, 33}, MGV_DTYPE_BF16, MGV__ACT_NONE, 0, 1, 1, 0, 0, 0},
    {14, 588, {96}, MGV_DTYPE_F16, MGV__ACT_NONE, 2, 1, 1, 0, 0, 0},
    {25, 96, {572}, MGV_DTYPE_BF16, MGV__ACT_NONE, 5, 1, 0, 0, 0, 0},
    {37, 385, {269}, MGV_DTYPE_F32, MGV__ACT_GELU_TANH, 0, 1, 1, 0, 0, 0},
    {37, 130, {300}, MGV_DTYPE_F16, MGV__ACT_GELU_ERF, 0, 1, 1, 0, 0, 0},
    {350, 17, {40}, MGV_DTYPE_F32, MGV__ACT_NONE, 0, 1, 1, 1, 0, 0},
    {41, 800, {171}, MGV_DTYPE_BF16, MGV__ACT_SILU, 0, 1, 1, 0, 1, 0},
    {16, 40, {537}, MGV_DTYPE_F32, MGV__ACT_SILU, 0, 1, 0, 0, 1, 0},
    {9, 288, {50}, MGV_DTYPE_F32, MGV__ACT_GELU_ERF, 0, 4, 1, 0, 0, 0},
    {41, 800, {171}, MGV_DTYPE_BF16, MGV__ACT_SILU, 0, 1, 1, 0, 2, 0},
    {16, 40, {537}, MGV_DTYPE_F16, MGV__ACT_GELU_ERF, 0, 1, 0, 1, 2, 1},
    {37, 130, {300}, MGV_DTYPE_F32, MGV__ACT_GELU_QUICK, 0, 1, 1, 0, 0, 0},
    {11, 96, {41}, MGV_DTYPE_F32, MGV__ACT_RELU, 0, 1, 1, 0, 1, 0},
    {37, 385, {269}, MGV_DTYPE_F32, MGV__ACT_SILU, 0, 1, 1, 0, 0, 0},
    {29, 130, {300, 7}, MGV_DTYPE_BF16, MGV__ACT_NONE, 0, 1, 1, 1, 0, 1},
    {5, 4304, {12}, MGV_DTYPE_BF16, MGV__ACT_NONE, 0, 1, 1, 1, 0, 0},
};

static world *make_linear(const linear_case *c) {
    world *w = make_world(MGV__OP_LINEAR, c->rows * c->fold, c->rows);
    mgv__op *op = &w->op;
    uint32_t part, i;
    op->rows = c->fold > 1 ? MGV__ROWS_MERGED : MGV__ROWS_TOKENS;
    op->fold = (uint16_t)c->fold;
    op->inner = c->inner;
    op->activation = c->activation;
    for (part = 0; part < MGV__MAX_PARTS && c->columns[part] != 0; part++) {
        op->part_columns[part] = c->columns[part];
        op->weight[part] = add_tensor(w, c->dtype, c->columns[part], c->inner, 1.0);
        if (c->bias) op->bias[part] = add_tensor(w, c->dtype, c->columns[part], 1, 4.0);
        op->columns += c->columns[part];
    }
    op->part_count = part;
    if (c->gate) {
        op->gated = 1;
        op->part_count = 2;
        op->part_columns[1] = c->columns[0];
    }
    if (c->gate == 1) {
        op->weight[1] = add_tensor(w, c->dtype, c->columns[0], c->inner, 1.0);
        if (c->bias) op->bias[1] = add_tensor(w, c->dtype, c->columns[0], 1, 4.0);
    } else if (c->gate == 2) {
        op->weight[0] = op->weight[1] = add_tensor(w, c->dtype, 2 * c->columns[0], c->inner, 1.0);
        if (c->bias) op->bias[0] = op->bias[1] = add_tensor(w, c->dtype, 2 * c->columns[0], 1, 4.0);
    }
    if (c->scale) op->channel_scale = add_tensor(w, c->dtype, op->columns, 1, 2.0);
    if (c->table_rows != 0) {
        mgv__axis_samples *axes[2];
        uint32_t axis;
        axes[0] = &w->geometry.down;
        axes[1] = &w->geometry.across;
        op->table = add_tensor(w, c->dtype, TABLE_FIRST + TABLE_SIDE * TABLE_SIDE, op->columns, 4.0);
        w->geometry.grid.h = c->table_rows;
        w->geometry.grid.w = c->rows / c->table_rows;
        w->geometry.table_side = TABLE_SIDE;
        w->geometry.table_first = TABLE_FIRST;
        for (axis = 0; axis < 2; axis++) {
            axes[axis]->count = TABLE_TAPS;
            axes[axis]->index = w->sample_index[axis];
            axes[axis]->weight = w->sample_weight[axis];
            for (i = 0; i < TABLE_TAPS * (axis ? w->geometry.grid.w : w->geometry.grid.h); i++) {
                w->sample_index[axis][i] = (i * 31 + axis) % TABLE_SIDE;
                w->sample_weight[axis][i] = i % 5 == 3 ? 0.0f : (float)uniform();
            }
        }
    }
    op->source = add_buffer(w, c->rows * c->fold, c->inner / c->fold, MGV__ROWS_TOKENS);
    op->target = add_buffer(w, c->rows, op->columns, op->rows);
    if (c->add) op->add = op->target; /* the residual is added in place */
    return w;
}

/* A caller's routine may add in one long sum. */
#ifdef MEGAVIT_SGEMM
#define LINEAR_BOUND 3e-6
#else
#define LINEAR_BOUND 1e-6
#endif

static void test_linear(void **state) {
    size_t i;
    (void)state;
    for (i = 0; i < sizeof(linear_cases) / sizeof(linear_cases[0]); i++) {
        const linear_case *c = &linear_cases[i];
        world *w = make_linear(c);
        double *want = (double *)exactly((size_t)c->rows * w->op.columns * sizeof(double));
        reference_linear(w, c->rows, want);
        check_op(w, want, c->add, LINEAR_BOUND);
        free(want);
        free_world(w);
    }
}

/* A row gives the same bits alone, among others, and in any place. */
static void test_linear_rows_do_not_depend_on_their_place(void **state) {
    static const linear_case many = {45, 700, {70}, MGV_DTYPE_F32, MGV__ACT_GELU_TANH, 0, 1, 1, 0, 0, 0};
    world *w = make_linear(&many);
    const size_t in = many.inner, out = w->op.columns;
    float *source = w->run.buffers[w->op.source];
    int32_t set;
    uint32_t i;
    (void)state;
    for (i = 1; i < many.rows; i++) memcpy(source + i * in, source, in * sizeof(float));
    for (set = MGV__ISA_PLAIN; set < SETS; set++) {
        const mgv__cpu_kernels *kernels = kernels_at(set);
        float alone[70];
        if (kernels == NULL) continue;
        w->geometry.grid.tokens = 1;
        run_op(w, kernels, 1);
        memcpy(alone, w->run.buffers[w->op.target], sizeof(alone));
        w->geometry.grid.tokens = many.rows;
        run_op(w, kernels, 3);
        for (i = 0; i < many.rows; i++) assert_memory_equal(alone, w->run.buffers[w->op.target] + i * out, sizeof(alone));
    }
    free_world(w);
}

/* ---- norm ---- */

static void check_norm(uint32_t rows, uint32_t n, int rms, uint32_t fold, mgv_dtype dtype, double offset) {
    world *w = make_world(MGV__OP_NORM, rows * fold, rows);
    double *want = (double *)exactly((size_t)rows * n * sizeof(double));
    uint32_t i, k;
    w->op.rows = fold > 1 ? MGV__ROWS_MERGED : MGV__ROWS_TOKENS;
    w->op.fold = (uint16_t)fold;
    w->op.inner = w->op.columns = n;
    w->op.rms = rms;
    w->op.weight[0] = add_tensor(w, dtype, n, 1, 2.0);
    if (!rms) w->op.bias[0] = add_tensor(w, dtype, n, 1, 1.0);
    w->op.source = add_buffer(w, rows * fold, n / fold, MGV__ROWS_TOKENS);
    w->op.target = add_buffer(w, rows, n, w->op.rows);
    for (i = 0; i < rows * n; i++) w->run.buffers[w->op.source][i] += (float)offset;
    for (i = 0; i < rows; i++) {
        const float *x = w->run.buffers[w->op.source] + (size_t)i * n;
        double mean = 0, square = 0;
        for (k = 0; k < n && !rms; k++) mean += (double)x[k] / n;
        for (k = 0; k < n; k++) square += ((double)x[k] - mean) * ((double)x[k] - mean) / n;
        for (k = 0; k < n; k++) {
            const double normal = ((double)x[k] - mean) / sqrt(square + (double)w->op.epsilon);
            want[(size_t)i * n + k] = normal * tensor_at(w, w->op.weight[0], k) + tensor_at(w, w->op.bias[0], k);
        }
    }
    check_op(w, want, 0, offset == 0 ? 3e-7 : 3e-5);
    free(want);
    free_world(w);
}

static void test_norm(void **state) {
    (void)state;
    check_norm(1, 1, 0, 1, MGV_DTYPE_F32, 0);
    check_norm(7, 33, 0, 1, MGV_DTYPE_F32, 0);
    check_norm(50, 768, 0, 1, MGV_DTYPE_BF16, 0);
    check_norm(50, 80, 1, 1, MGV_DTYPE_F16, 0);
    check_norm(9, 4 * 72, 0, 4, MGV_DTYPE_F32, 0);
    check_norm(9, 1280, 1, 1, MGV_DTYPE_BF16, 0);
    check_norm(5, 1000, 0, 1, MGV_DTYPE_F32, 1000); /* a mean far from 0: a one-pass variance would be lost here */
}

/* ---- rotary ---- */

/* interleaved: axes t, h, w in turn for the first pairs and t for the rest, as Qwen3-VL's text model has them; else h and then w. */
static void check_rotary(uint32_t tokens, uint32_t heads, uint32_t head_dim, uint32_t interleaved, int32_t farthest, float scale) {
    world *w = make_world(MGV__OP_ROTARY, tokens, tokens);
    mgv__rotary *rotary = &w->program.rotary;
    const uint32_t half = head_dim / 2, width = 3 * heads * head_dim;
    double *want = (double *)exactly((size_t)tokens * width * sizeof(double));
    uint32_t i, head, j;
    w->op.heads = heads;
    w->op.head_dim = head_dim;
    w->op.columns = w->op.inner = width;
    w->op.source = w->op.target = add_buffer(w, tokens, width, MGV__ROWS_TOKENS);
    w->geometry.position = w->position;
    rotary->scale = scale;
    for (j = 0; j < half; j++) {
        rotary->axis[j] = (uint8_t)(interleaved > 0 ? (j < interleaved ? j % 3 : 0) : (j < half / 2 ? 1 : 2));
        rotary->frequency[j] = (float)(1.0 / pow(10000.0, (double)j / (double)half));
    }
    for (i = 0; i < 3 * tokens; i++) w->position[i] = (float)((i * 7919u) % (uint32_t)farthest);
    for (i = 0; i < tokens * width; i++) want[i] = (double)w->run.buffers[w->op.target][i];
    for (i = 0; i < tokens; i++) {
        for (head = 0; head < 2 * heads; head++) {
            double *x = want + (size_t)i * width + (size_t)head * head_dim;
            for (j = 0; j < half; j++) {
                /* The rounding of the angle to float belongs to the definition: transformers does it. */
                const float angle = w->position[3 * i + rotary->axis[j]] * rotary->frequency[j];
                const double a = x[j], b = x[half + j], cosine = cos((double)angle), sine = sin((double)angle);
                x[j] = (a * cosine - b * sine) * (double)scale;
                x[half + j] = (b * cosine + a * sine) * (double)scale;
            }
        }
    }
    check_op(w, want, 1, 2e-7);
    free(want);
    free_world(w);
}

static void test_rotary(void **state) {
    (void)state;
    check_rotary(1, 1, 4, 0, 3, 1);
    check_rotary(40, 3, 64, 0, 60, 1);
    check_rotary(40, 2, 72, 0, 300, 1);
    check_rotary(40, 2, 80, 0, 5000, 1);
    check_rotary(100, 2, 128, 60, 4000, 1);
    check_rotary(40, 2, 64, 30, 300, 1.25f);
}

static void test_sincos(void **state) {
    double worst = 0;
    int i;
    (void)state;
    for (i = 0; i < 2000000; i++) {
        const float angle = (float)(uniform() * (i % 2 ? 10.0 : 100000.0));
        float sine, cosine;
        mgv__sincos(angle, &sine, &cosine);
        worst = fmax(worst, fmax(fabs((double)sine - sin((double)angle)), fabs((double)cosine - cos((double)angle))));
    }
    assert_true(worst < 6.1e-8); /* half a unit in the last place of 1 and a little */
}

/* ---- attention ---- */

static void check_attention(uint32_t tokens, uint32_t heads, uint32_t head_dim, const uint32_t *ends, uint32_t ranges,
                            mgv__range_kind kind, int causal, double sharp) {
    world *w = make_world(MGV__OP_ATTENTION, tokens, tokens);
    const uint32_t width = heads * head_dim;
    double *want = (double *)exactly((size_t)tokens * width * sizeof(double)), *p = (double *)exactly(tokens * sizeof(double));
    uint32_t r, begin = 0, head, i, j, k;
    w->op.heads = heads;
    w->op.head_dim = head_dim;
    w->op.columns = width;
    w->op.inner = 3 * width;
    w->op.scale = (float)(sharp / sqrt((double)head_dim));
    w->op.range = kind;
    w->op.causal = causal;
    memcpy(w->ends, ends, ranges * sizeof(*ends));
    w->geometry.range_ends[kind] = w->ends;
    w->geometry.range_count[kind] = ranges;
    w->op.source = add_buffer(w, tokens, 3 * width, MGV__ROWS_TOKENS);
    w->op.target = add_buffer(w, tokens, width, MGV__ROWS_TOKENS);
    for (r = 0; r < ranges; begin = ends[r], r++) {
        for (head = 0; head < heads; head++) {
            for (i = begin; i < ends[r]; i++) {
                const float *q = w->run.buffers[w->op.source] + (size_t)i * 3 * width + (size_t)head * head_dim;
                const uint32_t end = causal ? i + 1 : ends[r];
                double largest = -1e300, total = 0;
                for (j = begin; j < end; j++) {
                    const float *key = w->run.buffers[w->op.source] + (size_t)j * 3 * width + width + (size_t)head * head_dim;
                    p[j] = 0;
                    for (k = 0; k < head_dim; k++) p[j] += (double)q[k] * (double)key[k];
                    p[j] *= (double)w->op.scale;
                    largest = fmax(largest, p[j]);
                }
                for (j = begin; j < end; j++) total += p[j] = exp(p[j] - largest);
                for (k = 0; k < head_dim; k++) {
                    double sum = 0;
                    for (j = begin; j < end; j++) {
                        sum += p[j] * (double)w->run.buffers[w->op.source][(size_t)j * 3 * width + 2 * width + (size_t)head * head_dim + k];
                    }
                    want[(size_t)i * width + (size_t)head * head_dim + k] = sum / total;
                }
            }
        }
    }
    check_op(w, want, 0, 1e-6 * fmax(sharp, 1.0));
    free(p);
    free(want);
    free_world(w);
}

static void test_attention(void **state) {
    static const uint32_t one[] = {1}, image[] = {196}, long_image[] = {850}, windows[] = {64, 65, 97, 200}, frames[] = {30, 60, 90};
    (void)state;
    check_attention(1, 1, 4, one, 1, MGV__RANGE_FRAME, 0, 1);
    check_attention(196, 3, 64, image, 1, MGV__RANGE_FRAME, 0, 1);
    check_attention(200, 2, 80, windows, 4, MGV__RANGE_WINDOW, 0, 1);
    check_attention(90, 2, 72, frames, 3, MGV__RANGE_FRAME, 0, 1);
    check_attention(90, 1, 96, frames, 3, MGV__RANGE_FRAME, 0, 20);
    check_attention(850, 1, 64, long_image, 1, MGV__RANGE_FRAME, 0, 1);
    check_attention(850, 1, 40, long_image, 1, MGV__RANGE_FRAME, 0, 100); /* the maximum moves between passes over the keys */
    check_attention(90, 1, 256, frames, 3, MGV__RANGE_FRAME, 0, 1);
    check_attention(1, 1, 4, one, 1, MGV__RANGE_FRAME, 1, 1);
    check_attention(90, 2, 72, frames, 3, MGV__RANGE_FRAME, 1, 20);
    check_attention(850, 1, 64, long_image, 1, MGV__RANGE_FRAME, 1, 100);
}

/* Equal frames give equal bits, wherever they lie. */
static void test_attention_does_not_depend_on_the_place(void **state) {
    static const uint32_t frames[] = {53, 106, 159};
    world *w = make_world(MGV__OP_ATTENTION, 159, 159);
    int32_t set;
    (void)state;
    w->op.heads = 2;
    w->op.head_dim = 24;
    w->op.columns = 48;
    w->op.inner = 144;
    w->op.scale = 0.3f;
    memcpy(w->ends, frames, sizeof(frames));
    w->geometry.range_ends[MGV__RANGE_FRAME] = w->ends;
    w->geometry.range_count[MGV__RANGE_FRAME] = 3;
    w->op.source = add_buffer(w, 159, 144, MGV__ROWS_TOKENS);
    w->op.target = add_buffer(w, 159, 48, MGV__ROWS_TOKENS);
    memcpy(w->run.buffers[w->op.source] + 53 * 144, w->run.buffers[w->op.source], 53 * 144 * sizeof(float));
    memcpy(w->run.buffers[w->op.source] + 106 * 144, w->run.buffers[w->op.source], 53 * 144 * sizeof(float));
    for (set = MGV__ISA_PLAIN; set < SETS; set++) {
        const mgv__cpu_kernels *kernels = kernels_at(set);
        const float *out = w->run.buffers[w->op.target];
        if (kernels == NULL) continue;
        run_op(w, kernels, 4);
        assert_memory_equal(out, out + 53 * 48, 53 * 48 * sizeof(float));
        assert_memory_equal(out, out + 106 * 48, 53 * 48 * sizeof(float));
    }
    free_world(w);
}

/* Scores that overflow, all to -infinity: NaN, which no encode hands out, not the zeros that a panel is padded with. In bf16 large keys
   alone are infinite. */
static void test_attention_without_a_score(void **state) {
    enum { TOKENS = 40, HEAD = 8 };
    static const float queries[] = {-1.0f, -0.01f};
    world *w = make_world(MGV__OP_ATTENTION, TOKENS, TOKENS);
    int32_t set;
    uint32_t i, k, q;
    (void)state;
    w->op.heads = 1;
    w->op.head_dim = w->op.columns = HEAD;
    w->op.inner = 3 * HEAD;
    w->op.scale = 0.3f;
    w->ends[0] = TOKENS;
    w->geometry.range_ends[MGV__RANGE_FRAME] = w->ends;
    w->geometry.range_count[MGV__RANGE_FRAME] = 1;
    w->op.source = add_buffer(w, TOKENS, 3 * HEAD, MGV__ROWS_TOKENS);
    w->op.target = add_buffer(w, TOKENS, HEAD, MGV__ROWS_TOKENS);
    for (set = MGV__ISA_PLAIN; set < SETS; set++) {
        const mgv__cpu_kernels *kernels = kernels_at(set);
        if (kernels == NULL) continue;
        for (q = 0; q < 2; q++) {
            const int overflows = q == 0 || kernels->pairs;
            for (i = 0; i < TOKENS; i++)
                for (k = 0; k < 3 * HEAD; k++)
                    w->run.buffers[w->op.source][i * 3 * HEAD + k] = k < HEAD ? queries[q] : k < 2 * HEAD ? 3.4e38f : 1;
            run_op_quietly(w, kernels, 1);
            for (i = 0; i < TOKENS * HEAD; i++)
                if (overflows ? !isnan(w->run.buffers[w->op.target][i]) : w->run.buffers[w->op.target][i] != 1.0f)
                    fail_msg("%s: %g", kernels->name, (double)w->run.buffers[w->op.target][i]);
        }
    }
    free_world(w);
}

/* ---- pool ---- */

/* As transformers writes it: keys and values formed, the query scaled. */
static world *make_pool(uint32_t tokens, uint32_t heads, uint32_t head_dim, mgv_dtype dtype) {
    world *w = make_world(MGV__OP_POOL, tokens, tokens);
    const uint32_t n = heads * head_dim;
    w->op.rows = MGV__ROWS_IMAGES;
    w->op.inner = w->op.columns = n;
    w->op.heads = heads;
    w->op.head_dim = head_dim;
    w->op.scale = (float)(1.0 / sqrt((double)head_dim));
    w->op.weight[0] = add_tensor(w, dtype, 3 * n, n, 0.2);
    w->op.bias[0] = add_tensor(w, dtype, 3 * n, 1, 1.0);
    w->op.probe = add_tensor(w, dtype, 1, n, 1.0);
    w->op.source = add_buffer(w, tokens, n, MGV__ROWS_TOKENS);
    w->op.target = add_buffer(w, 1, n, MGV__ROWS_IMAGES);
    return w;
}
static void check_pool(uint32_t tokens, uint32_t heads, uint32_t head_dim, mgv_dtype dtype) {
    world *w = make_pool(tokens, heads, head_dim, dtype);
    const uint32_t n = heads * head_dim;
    const float *y = w->run.buffers[w->op.source];
    double *want = (double *)exactly(n * sizeof(double)), *p = (double *)exactly(tokens * sizeof(double));
    uint32_t head, t, j, k;
    for (head = 0; head < heads; head++) {
        double total = 0;
        for (t = 0; t < tokens; t++) {
            p[t] = 0;
            for (j = head * head_dim; j < (head + 1) * head_dim; j++) {
                double q = tensor_at(w, w->op.bias[0], j), key = tensor_at(w, w->op.bias[0], n + j);
                for (k = 0; k < n; k++) {
                    q += tensor_at(w, w->op.weight[0], (size_t)j * n + k) * tensor_at(w, w->op.probe, k);
                    key += tensor_at(w, w->op.weight[0], (size_t)(n + j) * n + k) * (double)y[(size_t)t * n + k];
                }
                p[t] += q * (double)w->op.scale * key;
            }
        }
        for (t = 0; t < tokens; t++) total += p[t] = exp(p[t]);
        for (j = head * head_dim; j < (head + 1) * head_dim; j++) {
            want[j] = 0;
            for (t = 0; t < tokens; t++) {
                double value = tensor_at(w, w->op.bias[0], 2 * n + j);
                for (k = 0; k < n; k++) value += tensor_at(w, w->op.weight[0], (size_t)(2 * n + j) * n + k) * (double)y[(size_t)t * n + k];
                want[j] += p[t] / total * value;
            }
        }
    }
    check_op(w, want, 0, 1e-6);
    free(p);
    free(want);
    free_world(w);
}

/* As attention without a score: one column of the tokens, times a large query, overflows to either side. */
static void test_pool_without_a_score(void **state) {
    enum { TOKENS = 20, HEAD = 8 };
    world *w = make_pool(TOKENS, 1, HEAD, MGV_DTYPE_F32);
    float *y = w->run.buffers[w->op.source], *bias = (float *)(uintptr_t)w->tensors[w->op.bias[0]].data;
    int32_t set, sign;
    uint32_t i;
    (void)state;
    for (i = 0; i < HEAD; i++) bias[i] = 1000;
    for (set = MGV__ISA_PLAIN; set < SETS; set++)
        for (sign = -1; sign <= 1; sign += 2) {
            if (kernels_at(set) == NULL) continue;
            for (i = 0; i < TOKENS * HEAD; i++) y[i] = i % HEAD ? 0 : (float)sign * 3e38f;
            run_op_quietly(w, kernels_at(set), 1);
            for (i = 0; i < HEAD; i++) assert_true(isnan(w->run.buffers[w->op.target][i]));
        }
    free_world(w);
}

static void test_pool(void **state) {
    (void)state;
    check_pool(1, 1, 4, MGV_DTYPE_F32);
    check_pool(23, 3, 24, MGV_DTYPE_F32);
    check_pool(49, 2, 72, MGV_DTYPE_BF16);
    check_pool(17, 2, 33, MGV_DTYPE_F16);
}

/* ---- gather ---- */

static void test_gather(void **state) {
    enum { UNITS = 21, UNIT = 4, COLUMNS = 10 };
    int inverse;
    (void)state;
    for (inverse = 0; inverse < 2; inverse++) {
        world *w = make_world(MGV__OP_GATHER, UNITS * UNIT, UNITS);
        double want[UNITS * UNIT * COLUMNS];
        uint32_t i, k;
        w->op.inverse = inverse;
        w->op.columns = w->op.inner = COLUMNS;
        w->op.source = add_buffer(w, UNITS * UNIT, COLUMNS, MGV__ROWS_TOKENS);
        w->op.target = add_buffer(w, UNITS * UNIT, COLUMNS, MGV__ROWS_TOKENS);
        w->geometry.order = w->order;
        for (i = 0; i < UNITS; i++) w->order[i] = (i * 8) % UNITS;
        for (i = 0; i < UNITS; i++) {
            const uint32_t from = inverse ? i : w->order[i], to = inverse ? w->order[i] : i;
            for (k = 0; k < UNIT * COLUMNS; k++) {
                want[to * UNIT * COLUMNS + k] = (double)w->run.buffers[w->op.source][from * UNIT * COLUMNS + k];
            }
        }
        check_op(w, want, 0, 0.0);
        free_world(w);
    }
}

static void test_gather_of_merged_rows(void **state) {
    world *w = make_world(MGV__OP_GATHER, 12, 3);
    double want[3 * 5];
    uint32_t k;
    (void)state;
    w->op.rows = MGV__ROWS_MERGED;
    w->op.inverse = 1;
    w->op.columns = w->op.inner = 5;
    w->op.source = add_buffer(w, 3, 5, MGV__ROWS_MERGED);
    w->op.target = add_buffer(w, 3, 5, MGV__ROWS_MERGED);
    w->geometry.order = w->order;
    w->order[0] = 2;
    w->order[1] = 0;
    w->order[2] = 1;
    for (k = 0; k < 15; k++) want[(w->order[k / 5]) * 5 + k % 5] = (double)w->run.buffers[w->op.source][k];
    check_op(w, want, 0, 0.0);
    free_world(w);
}

/* ---- rows put in front, picked, and looked up ---- */

/* A class token with an entry of the table, and two register tokens without, before the patches. */
static void test_prepend(void **state) {
    enum { PATCHES = 6, PREFIX = 3, COLUMNS = 37 };
    world *w = make_world(MGV__OP_PREPEND, PATCHES + PREFIX, PATCHES + PREFIX);
    double want[(PATCHES + PREFIX) * COLUMNS];
    uint32_t i;
    (void)state;
    w->geometry.grid.w = PATCHES;
    w->geometry.table_first = 1;
    w->op.columns = w->op.inner = COLUMNS;
    w->op.part_count = 2;
    w->op.weight[0] = add_tensor(w, MGV_DTYPE_F16, 1, COLUMNS, 1.0);
    w->tensors[w->op.weight[0]].rank = 1;
    w->tensors[w->op.weight[0]].shape[0] = COLUMNS;
    w->op.weight[1] = add_tensor(w, MGV_DTYPE_F32, 2, COLUMNS, 1.0);
    w->op.table = add_tensor(w, MGV_DTYPE_BF16, 1 + PATCHES, COLUMNS, 1.0);
    w->op.source = add_buffer(w, PATCHES, COLUMNS, MGV__ROWS_PATCHES);
    w->op.target = add_buffer(w, PATCHES + PREFIX, COLUMNS, MGV__ROWS_TOKENS);
    for (i = 0; i < COLUMNS; i++) {
        want[i] = (double)(float)(tensor_at(w, w->op.weight[0], i) + tensor_at(w, w->op.table, i));
        want[COLUMNS + i] = tensor_at(w, w->op.weight[1], i);
        want[2 * COLUMNS + i] = tensor_at(w, w->op.weight[1], COLUMNS + i);
    }
    for (i = 0; i < PATCHES * COLUMNS; i++) want[PREFIX * COLUMNS + i] = (double)w->run.buffers[w->op.source][i];
    check_op(w, want, 0, 0.0);
    free_world(w);
}

static void test_pick(void **state) {
    world *w = make_world(MGV__OP_PICK, 9, 9);
    double want[5];
    uint32_t k;
    (void)state;
    w->op.rows = MGV__ROWS_IMAGES;
    w->op.columns = w->op.inner = 5;
    w->op.source = add_buffer(w, 9, 5, MGV__ROWS_TOKENS);
    w->op.target = add_buffer(w, 1, 5, MGV__ROWS_IMAGES);
    w->geometry.picked = 7;
    for (k = 0; k < 5; k++) want[k] = (double)w->run.buffers[w->op.source][7 * 5 + k];
    check_op(w, want, 0, 0.0);
    free_world(w);
}

static void check_embed(int table) {
    enum { TOKENS = 1100, COLUMNS = 33, VOCABULARY = 50 };
    static uint32_t ids[TOKENS];
    world *w = make_world(MGV__OP_EMBED, TOKENS, TOKENS);
    double *want = (double *)exactly(TOKENS * COLUMNS * sizeof(double));
    uint32_t i, k;
    for (i = 0; i < TOKENS; i++) ids[i] = i * 7919 % VOCABULARY;
    w->geometry.ids = ids;
    w->op.columns = w->op.inner = COLUMNS;
    w->op.weight[0] = add_tensor(w, MGV_DTYPE_BF16, VOCABULARY, COLUMNS, 1.0);
    if (table) w->op.table = add_tensor(w, MGV_DTYPE_F16, TOKENS, COLUMNS, 1.0);
    w->op.source = w->op.target = add_buffer(w, TOKENS, COLUMNS, MGV__ROWS_TOKENS);
    for (i = 0; i < TOKENS; i++)
        for (k = 0; k < COLUMNS; k++)
            want[i * COLUMNS + k] = (double)(float)(tensor_at(w, w->op.weight[0], ids[i] * COLUMNS + k) +
                                                    tensor_at(w, w->op.table, i * COLUMNS + k));
    check_op(w, want, 0, 0.0);
    free(want);
    free_world(w);
}
static void test_embed(void **state) {
    (void)state;
    check_embed(0);
    check_embed(1);
}

/* ---- elementary functions, through the ops' own entry points ---- */

static double ulps(float got, double want) {
    int exponent;
    frexp(want, &exponent);
    return fabs((double)got - want) / ldexp(1.0, (exponent < -125 ? -125 : exponent) - 24);
}

static void test_softmax_and_exp(void **state) {
    int32_t set;
    (void)state;
    for (set = MGV__ISA_PLAIN; set < SETS; set++) {
        const mgv__cpu_kernels *kernels = kernels_at(set);
        double worst = 0;
        int i, k;
        if (kernels == NULL) continue;
        for (i = 0; i < 20000; i++) {
            float x[32], y[32], max = 0.0f, sum = 0.0f;
            for (k = 0; k < 32; k++) y[k] = x[k] = (float)(43.5 * (uniform() - 1.0));
            kernels->softmax(y, 32, &max, &sum); /* the maximum stays 0: y = exp(x) */
            assert_true(max == 0.0f);
            for (k = 0; k < 32; k++) worst = fmax(worst, ulps(y[k], exp((double)x[k])));
        }
        print_message("%s: exp within %.2f ulp\n", kernels->name, worst);
        assert_true(worst < 1.5);
        {
            float x[32], max = -3.0e38f, sum = 0.0f;
            for (k = 0; k < 32; k++) x[k] = k == 3 ? 5.0f : k == 4 ? -INFINITY : -3.0e38f;
            assert_true(kernels->softmax(x, 32, &max, &sum) == 0.0f);
            assert_true(max == 5.0f && sum == 1.0f && x[3] == 1.0f && x[4] == 0.0f && x[5] == 0.0f);
        }
    }
}

static void test_activations(void **state) {
    int32_t set;
    (void)state;
    for (set = MGV__ISA_PLAIN; set < SETS; set++) {
        const mgv__cpu_kernels *kernels = kernels_at(set);
        static const float zero[32] = {0};
        double worst[4] = {0, 0, 0, 0};
        int i, k;
        if (kernels == NULL) continue;
        for (i = 0; i < 20000; i++) {
            float x[32], y[32];
            for (k = 0; k < 32; k++) x[k] = (float)(uniform() * (i % 3 ? 4.0 : 12.0));
            memcpy(y, x, sizeof(y));
            kernels->activate(MGV__ACT_GELU_TANH, y, zero, 32);
            for (k = 0; k < 32; k++) {
                const double v = (double)x[k], want = v / (1.0 + exp(-2.0 * 0.79788456080286535588 * (v + 0.044715 * v * v * v)));
                worst[0] = fmax(worst[0], fabs((double)y[k] - want) / fmax(fabs(v), 1e-30));
            }
            memcpy(y, x, sizeof(y));
            kernels->activate(MGV__ACT_GELU_ERF, y, zero, 32);
            for (k = 0; k < 32; k++) {
                const double want = 0.5 * (double)x[k] * erfc(-(double)x[k] / 1.41421356237309504880);
                worst[1] = fmax(worst[1], fabs((double)y[k] - want) / fmax(fabs((double)x[k]), 1e-30));
            }
            memcpy(y, x, sizeof(y));
            kernels->activate(MGV__ACT_SILU, y, zero, 32);
            for (k = 0; k < 32; k++) worst[2] = fmax(worst[2], ulps(y[k], (double)x[k] / (1.0 + exp(-(double)x[k]))));
            memcpy(y, x, sizeof(y));
            kernels->activate(MGV__ACT_GELU_QUICK, y, zero, 32);
            for (k = 0; k < 32; k++) {
                const double want = (double)x[k] / (1.0 + exp(-1.702 * (double)x[k]));
                worst[3] = fmax(worst[3], fabs((double)y[k] - want) / fmax(fabs((double)x[k]), 1e-30));
            }
            memcpy(y, x, sizeof(y));
            kernels->activate(MGV__ACT_RELU, y, zero, 32);
            for (k = 0; k < 32; k++) assert_true(y[k] == (x[k] > 0 ? x[k] : 0.0f));
        }
        print_message("%s: gelu_tanh within %.2g, gelu_erf within %.2g, gelu_quick within %.2g of |x|, silu within %.2f ulp\n",
                      kernels->name, worst[0], worst[1], worst[3], worst[2]);
        assert_true(worst[0] < 2.5e-7);
        assert_true(worst[1] < 2.0e-7);
        assert_true(worst[2] < 4.0);
        assert_true(worst[3] < 2.5e-7);
    }
}

/* Far outside the range where anything happens, and NaN. */
static void test_activations_at_the_edges(void **state) {
    int32_t set;
    (void)state;
    for (set = MGV__ISA_PLAIN; set < SETS; set++) {
        const mgv__cpu_kernels *kernels = kernels_at(set);
        static const float zero[32] = {0}, large = 1e30f;
        mgv__activation activation;
        if (kernels == NULL) continue;
        for (activation = MGV__ACT_GELU_TANH; activation <= MGV__ACT_RELU; activation++) {
            float x[32] = {0};
            x[0] = 1000.0f;
            x[1] = -1000.0f;
            x[2] = NAN;
            x[3] = large;
            kernels->activate(activation, x, zero, 32);
            assert_true(x[0] == 1000.0f);
            assert_true(fabsf(x[1]) < 1e-30f);
            assert_true(x[2] != x[2]);
            assert_true(x[3] == large);
            assert_true(x[4] == 0.0f);
        }
    }
}

static void test_f16_and_bf16(void **state) {
    int32_t set;
    (void)state;
    for (set = MGV__ISA_PLAIN; set < SETS; set++) {
        const mgv__cpu_kernels *kernels = kernels_at(set);
        uint16_t *all = (uint16_t *)exactly(65536 * sizeof(uint16_t));
        float *got = (float *)exactly(65536 * sizeof(float));
        uint32_t i;
        if (kernels != NULL) {
            for (i = 0; i < 65536; i++) all[i] = (uint16_t)i;
            kernels->convert(MGV_DTYPE_BF16, all, got, 65536);
            for (i = 0; i < 65536; i++) assert_int_equal(bits_of(got[i]), i << 16);
            kernels->convert(MGV_DTYPE_F16, all, got, 65536);
            for (i = 0; i < 65536; i++) {
                if ((i & 0x7C00) != 0x7C00) {
                    assert_true((double)got[i] == of_f16((uint16_t)i) && (signbit(got[i]) != 0) == (i >> 15 != 0));
                } else if ((i & 0x3FF) == 0) {
                    assert_true(isinf(got[i]) && (got[i] < 0) == (i >> 15 != 0));
                } else {
                    assert_true(isnan(got[i]));
                }
            }
        }
        free(all);
        free(got);
    }
}

#ifdef MEGAVIT_SGEMM
static void test_sgemm_was_called(void **state) {
    (void)state;
    assert_true(sgemm_calls > 100);
}
#endif

/* ---- pairs of bf16 ---- */

static float rounded(float x) { return mgv__float_of_bf16(mgv__bf16_round(x)); }

/* Products of rows that are rounded to the nearest bf16, of two the even one, summed in float32: to rounding of float32. weights: of that
   dtype, as `pack` takes them, or floats that stand the other way, as pack_values does. */
static void check_pairs(const mgv__cpu_kernels *k, uint32_t rows, uint32_t columns, uint32_t depth, mgv_dtype dtype, int values) {
    static const mgv__cpu_ahead nothing = {{NULL, NULL}, {0, 0}, {0, 0}, {0, 0}};
    const size_t bytes = mgv__cpu_element_bytes(dtype), stride = depth + 3, value_stride = columns + 5;
    const size_t packed_floats = (size_t)(depth + 1) / 2 * k->panel, block_floats = (size_t)k->tile_rows * MGV__CPU_STRIDE;
    float *from = (float *)exactly(((rows - 1) * stride + depth) * sizeof(float)), *block = (float *)exactly(block_floats * sizeof(float));
    float *packed = (float *)exactly(packed_floats * sizeof(float));
    float *sums = (float *)exactly((size_t)k->tile_rows * k->panel * sizeof(float));
    float *plain = (float *)exactly((size_t)columns * depth * sizeof(float)); /* [column][depth] */
    char *weights = (char *)exactly(((columns - 1) * stride + depth) * bytes);
    float *turned = (float *)exactly(((depth - 1) * value_stride + columns) * sizeof(float));
    uint32_t i, j, n, pass;
    for (i = 0; i < rows; i++)
        for (n = 0; n < depth; n++) from[i * stride + n] = (float)uniform();
    for (j = 0; j < columns; j++)
        for (n = 0; n < depth; n++) {
            float *at = &plain[(size_t)j * depth + n];
            uint16_t half;
            *at = (float)uniform();
            turned[n * value_stride + j] = *at;
            if (dtype == MGV_DTYPE_F32) memcpy(weights + (j * stride + n) * bytes, at, bytes);
            if (dtype == MGV_DTYPE_F32) continue;
            half = dtype == MGV_DTYPE_BF16 ? mgv__bf16_round(*at) : mgv__f16_round(*at);
            memcpy(weights + (j * stride + n) * bytes, &half, bytes);
            *at = dtype == MGV_DTYPE_BF16 ? mgv__float_of_bf16(half) : mgv__float_of_f16(half);
        }
    memset(block, 0xFF, block_floats * sizeof(float)); /* NaN */
    memset(packed, 0xFF, packed_floats * sizeof(float));
    if (k->enter) k->enter();
    k->block(from, stride, rows, k->tile_rows, depth, block);
    if (values) k->pack_values(turned, value_stride, columns, k->panel, depth, packed);
    else k->pack(dtype, weights, stride, columns, depth, packed);
    for (pass = 0; pass < 2; pass++) { /* the second adds the same again */
        k->tile(rows, depth, block, packed, sums, k->panel, pass != 0, &nothing);
        for (i = 0; i < rows; i++)
            for (j = 0; j < k->panel; j++) {
                const uint32_t column = mgv__cpu_min(j, columns - 1);
                double want = 0, size = 0;
                for (n = 0; n < depth && (!values || j < columns); n++) {
                    const double product = (double)rounded(from[i * stride + n]) * (double)rounded(plain[(size_t)column * depth + n]);
                    want += (pass + 1) * product;
                    size += fabs(product);
                }
                if (!(fabs((double)sums[i * k->panel + j] - want) <= 1e-6 * size))
                    fail_msg("%u rows, %u columns, depth %u, row %u, column %u: %g, not %g", rows, columns, depth, i, j,
                             (double)sums[i * k->panel + j], want);
            }
    }
    if (k->leave) k->leave();
    free(from);
    free(block);
    free(packed);
    free(sums);
    free(plain);
    free(weights);
    free(turned);
}

static void test_pairs(void **state) {
    static const uint32_t depths[] = {1, 2, 15, 31, 32, 33, 64, 77, 255, MGV__CPU_DEPTH};
    static const mgv_dtype dtypes[] = {MGV_DTYPE_F32, MGV_DTYPE_BF16, MGV_DTYPE_F16};
    uint32_t d, rows, columns, t;
    int32_t set;
    (void)state;
    if (kernels_at(MGV__ISA_COUNT) == NULL) skip(); /* this CPU does not multiply bf16, or this compiler does not know how */
    for (set = MGV__ISA_COUNT; set < SETS && kernels_at(set); set++)
        for (d = 0; d < sizeof depths / sizeof depths[0]; d++)
            for (rows = 1; rows <= kernels_at(set)->tile_rows; rows += 3)
                for (columns = 1; columns <= kernels_at(set)->panel; columns += columns == 1 ? 14 : 8) {
                    for (t = 0; t < 3; t++) check_pairs(kernels_at(set), rows, columns, depths[d], dtypes[t], 0);
                    check_pairs(kernels_at(set), rows, columns, depths[d], MGV_DTYPE_F32, 1);
                }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_linear_rows_do_not_depend_on_their_place),
        cmocka_unit_test(test_norm),
        cmocka_unit_test(test_rotary),
        cmocka_unit_test(test_sincos),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_attention_does_not_depend_on_the_place),
        cmocka_unit_test(test_attention_without_a_score),
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_pool_without_a_score),
        cmocka_unit_test(test_gather),
        cmocka_unit_test(test_gather_of_merged_rows),
        cmocka_unit_test(test_prepend),
        cmocka_unit_test(test_pick),
        cmocka_unit_test(test_embed),
        cmocka_unit_test(test_softmax_and_exp),
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_activations_at_the_edges),
        cmocka_unit_test(test_f16_and_bf16), cmocka_unit_test(test_pairs),
#ifdef MEGAVIT_SGEMM
        cmocka_unit_test(test_sgemm_was_called),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
