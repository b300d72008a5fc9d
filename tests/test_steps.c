/* The steps of the CPU backend: each a bounded piece of work, counted and not timed, and the same bits however the work is cut. */
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

#include "golden.h"
#include "support.h"

/* ---- work, counted: kernels that calculate nothing ---- */

static uint32_t panel;
static uint64_t counted; /* multiply-adds, and floats that are moved, packed or normalised: MGV__CPU_MOVE for each */

static void count_convert(mgv_dtype dtype, const void *from, float *to, size_t n) {
    (void)dtype;
    (void)from;
    memset(to, 0, n * sizeof *to);
    counted += n;
}
static void count_pack(mgv_dtype dtype, const void *weight, size_t stride, uint32_t columns, uint32_t depth, float *packed) {
    (void)dtype;
    (void)weight;
    (void)stride;
    (void)packed;
    counted += (uint64_t)columns * depth * MGV__CPU_PACK;
}
static void count_tile(uint32_t rows, uint32_t depth, const float *a, const float *packed, float *c, size_t c_stride, int accumulate,
                       const mgv__cpu_ahead *ahead) {
    (void)a;
    (void)packed;
    (void)c;
    (void)c_stride;
    (void)accumulate;
    (void)ahead;
    counted += (uint64_t)rows * depth * panel;
}
static void count_activate(mgv__activation activation, float *x, const float *bias, uint32_t n) {
    (void)activation;
    (void)x;
    (void)bias;
    counted += (uint64_t)n * MGV__CPU_MOVE;
}
static float count_softmax(float *x, uint32_t n, float *max, float *sum) {
    (void)x;
    *max = 0;
    *sum = 1;
    counted += (uint64_t)n * MGV__CPU_MOVE;
    return 1;
}
static void count_two(float *out, const float *a, const float *b, size_t n) {
    (void)out;
    (void)a;
    (void)b;
    counted += n;
}
static void count_scale(float *out, const float *x, float factor, size_t n) {
    (void)out;
    (void)x;
    (void)factor;
    counted += n;
}
static void count_add_scaled(float *y, float factor, const float *x, size_t n) {
    (void)y;
    (void)factor;
    (void)x;
    counted += n;
}
static float count_dot(const float *a, const float *b, size_t n) {
    (void)a;
    (void)b;
    counted += n;
    return 0;
}
static void count_norm(float *out, const float *x, const float *weight, const float *bias, size_t n, float epsilon, int rms) {
    (void)out;
    (void)x;
    (void)weight;
    (void)bias;
    (void)epsilon;
    (void)rms;
    counted += n * MGV__CPU_MOVE;
}
static void count_rotate(float *x, const float *cosine, const float *sine, size_t half) {
    (void)x;
    (void)cosine;
    (void)sine;
    counted += 2 * half;
}

/* ---- one operation of a large model ---- */

enum { BUFFERS = 3 };
typedef struct world {
    mgv__program program;
    mgv__geometry geometry;
    mgv__cpu_kernels kernels;
    mgv__tensor tensor; /* one for all: nobody calculates with it */
    mgv__cpu_run run;
    mgv__op op;
    uint32_t ends[1];
    uint32_t *order;
    float *positions;
} world;

static void *made(size_t bytes) {
    void *memory = calloc(bytes, 1); /* pages that nobody touches take no memory */
    assert_non_null(memory);
    return memory;
}

/* columns: of source, target, and of what is added. */
static world *make_world(uint32_t tokens, uint32_t source, uint32_t target, uint32_t merge) {
    world *w = (world *)made(sizeof *w);
    const uint32_t columns[BUFFERS] = {source, target, target};
    size_t i;
    w->program.buffer_count = BUFFERS;
    w->program.ops = &w->op;
    w->program.op_count = 1;
    for (i = 0; i < BUFFERS; i++) {
        w->program.buffers[i].columns = columns[i];
        w->program.buffers[i].rows = MGV__ROWS_TOKENS;
        w->run.buffers[i] = (float *)made((size_t)tokens * columns[i] * sizeof(float) + 4096);
    }
    w->geometry.grid.t = w->geometry.grid.h = 1;
    w->geometry.grid.w = w->geometry.grid.tokens = tokens;
    w->geometry.grid.merged_tokens = tokens / (merge * merge);
    w->geometry.merge = 1;
    w->ends[0] = tokens;
    for (i = 0; i < sizeof w->geometry.range_ends / sizeof w->geometry.range_ends[0]; i++) {
        w->geometry.range_ends[i] = w->ends;
        w->geometry.range_count[i] = 1;
    }
    w->order = (uint32_t *)made((size_t)tokens * sizeof *w->order);
    w->positions = (float *)made((size_t)tokens * 3 * sizeof(float));
    w->geometry.order = w->order;
    w->geometry.position = w->positions;
    w->tensor.dtype = MGV_DTYPE_F32;
    w->tensor.rank = 2;
    w->tensor.shape[0] = target;
    w->tensor.shape[1] = source;
    w->tensor.data = w->run.buffers[0];
    w->kernels = mgv__plain_kernels;
    w->kernels.convert = count_convert;
    w->kernels.pack = count_pack;
    w->kernels.tile = count_tile;
    w->kernels.activate = count_activate;
    w->kernels.softmax = count_softmax;
    w->kernels.add = w->kernels.multiply = count_two;
    w->kernels.scale = count_scale;
    w->kernels.add_scaled = count_add_scaled;
    w->kernels.dot = count_dot;
    w->kernels.norm = count_norm;
    w->kernels.rotate = count_rotate;
    w->run.program = &w->program;
    w->run.tensors = &w->tensor;
    w->run.geometry = &w->geometry;
    w->run.kernels = &w->kernels;
    w->op.source = 0;
    w->op.target = 1;
    w->op.add = MGV__NONE;
    w->op.rows = MGV__ROWS_TOKENS;
    w->op.inner = source;
    w->op.columns = target;
    w->op.fold = 1;
    w->op.part_count = 1;
    w->op.part_columns[0] = target;
    for (i = 0; i < sizeof w->op.bias / sizeof w->op.bias[0]; i++) w->op.bias[i] = MGV__NO_TENSOR;
    w->op.channel_scale = w->op.table = MGV__NO_TENSOR;
    return w;
}

static void free_world(world *w) {
    uint32_t i;
    for (i = 0; i < BUFFERS; i++) free(w->run.buffers[i]);
    free(w->order);
    free(w->positions);
    free(w);
}

/* Runs the operation step by step with the budget of each instruction set: no step does more than that, but for biases and the like, and
   all together do `work`. weight: how much of a step's work is not counted here, at most. */
static void check_steps(world *w, uint64_t work, uint32_t weight) {
    static const uint32_t panels[] = {16, 16, 32, 8}, tiles[] = {4, 6, 14, 12}, steps[] = {1u << 22, 1u << 25, 1u << 26, 1u << 24};
    size_t bytes, i;
    for (i = 0; i < sizeof panels / sizeof panels[0]; i++) {
        mgv__cpu_job job;
        uint64_t total = 0, most = 0, count = 0;
        int ended;
        w->kernels.panel = panel = panels[i];
        w->kernels.tile_rows = tiles[i];
        w->kernels.step = steps[i];
        assert_true(mgv__cpu_scratch_bytes(&w->program, w->geometry.grid.tokens, 1, &bytes));
        w->run.scratch = made(bytes);
        w->run.scratch_bytes = bytes;
        mgv__cpu_begin(&job, &w->run, &w->op);
        do {
            counted = 0;
            ended = mgv__cpu_step(&job, w->kernels.step);
            total += counted;
            count++;
            if (counted > most) most = counted;
        } while (!ended);
        free(w->run.scratch);
        if (most > steps[i] + steps[i] / 16) fail_msg("a step of %u rows x %u did %llu of %u", w->geometry.grid.tokens, w->op.inner,
                                                          (unsigned long long)most, steps[i]);
        assert_true(total >= work);                /* all of it was done */
        assert_true(count <= weight * total / steps[i] + 2); /* and not in crumbs */
    }
}

/* The widest products there are, on many rows: so400m, giant, DINOv3-7B, Qwen's mergers. */
static void linear(void **state) {
    static const uint32_t shapes[][3] = {{729, 1152, 4304}, {729, 4304, 1152}, {576, 1536, 6144}, {576, 6144, 1536}, {1029, 4096, 8192},
                                         {16384, 1280, 3840}, {4096, 5120, 5120}, {1, 1152, 4304}};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        world *w = make_world(shapes[i][0], shapes[i][1], shapes[i][2], 1);
        w->op.kind = MGV__OP_LINEAR;
        check_steps(w, (uint64_t)shapes[i][0] * shapes[i][1] * shapes[i][2], 3);
        free_world(w);
    }
}

static void attention(void **state) {
    static const uint32_t shapes[][3] = {{729, 16, 72}, {576, 16, 96}, {1029, 32, 128}, {9000, 16, 80}, {1, 1, 8}, {64, 12, 256}};
    size_t i;
    int causal;
    (void)state;
    for (i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (causal = 0; causal < 2; causal++) {
            const uint32_t tokens = shapes[i][0], heads = shapes[i][1], head_dim = shapes[i][2];
            world *w = make_world(tokens, 3 * heads * head_dim, heads * head_dim, 1);
            w->op.kind = MGV__OP_ATTENTION;
            w->op.heads = heads;
            w->op.head_dim = head_dim;
            w->op.causal = causal;
            check_steps(w, (uint64_t)tokens * tokens * heads * head_dim * (causal ? 1 : 2), 3);
            free_world(w);
        }
    }
}

static void rows(void **state) {
    static const uint32_t shapes[][2] = {{729, 1152}, {16384, 1280}, {1029, 4096}, {1, 64}};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const uint32_t tokens = shapes[i][0], columns = shapes[i][1];
        world *w = make_world(tokens, columns, columns, 1);
        w->op.kind = MGV__OP_NORM;
        check_steps(w, (uint64_t)tokens * columns * MGV__CPU_MOVE, 3);
        w->op.kind = MGV__OP_ROTARY;
        w->op.heads = 1;
        w->op.head_dim = 64;
        w->op.columns = 3 * 64;
        if (columns >= 128) check_steps(w, (uint64_t)tokens * 64, 300);
        free_world(w);
    }
}

static void pool(void **state) {
    static const uint32_t shapes[][3] = {{729, 16, 72}, {576, 16, 96}, {4096, 16, 72}, {3, 2, 8}};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const uint32_t tokens = shapes[i][0], heads = shapes[i][1], head_dim = shapes[i][2];
        world *w = make_world(tokens, heads * head_dim, heads * head_dim, 1);
        w->op.kind = MGV__OP_POOL;
        w->op.heads = heads;
        w->op.head_dim = head_dim;
        w->op.probe = MGV__NO_TENSOR;
        check_steps(w, 2 * (uint64_t)tokens * heads * heads * head_dim, 40);
        free_world(w);
    }
}

/* ---- whole models: the same bits, whatever a step may do ---- */

static void encode(mgv_engine *engine, const mgv_image *image, mgv_output *outputs, uint32_t count, uint32_t *polls) {
    mgv_encode_desc desc;
    mgv_error error;
    mgv_status status;
    memset(&desc, 0, sizeof desc);
    desc.images = image;
    desc.image_count = 1;
    desc.outputs = outputs;
    desc.output_count = count;
    if (mgv_encode(engine, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
    for (*polls = 0; (status = mgv_poll(engine, &error)) == MGV_STATUS_RUNNING; ++*polls) {}
    if (status != MGV_STATUS_DONE) fail_msg("%s", error.message);
}

/* Backwards, so that nothing can rest on the order of tasks. */
static void run_backwards(void *user, uint32_t count, mgv_task task, void *context) {
    (void)user;
    while (count > 0) task(context, --count);
}

static void same_bits(void **state) {
    static const char *const names[] = {"siglip_head_dim_72", "dinov2_any_size", "clip_base"};
    size_t n;
    (void)state;
    for (n = 0; n < sizeof names / sizeof names[0]; n++) {
        golden g;
        mgv_model *model;
        mgv_image image;
        uint32_t threads, polls, whole = 0;
        float *first = NULL, *rows_of;
        golden_open(&g, names[n]);
        model = golden_open_model(&g, "", 1);
        image = golden_image(&g.pictures[0]);
        for (threads = 1; threads <= 3; threads++) {
            static const uint32_t steps[] = {UINT32_MAX, 1, 1000, 50000};
            size_t k;
            for (k = 0; k < sizeof steps / sizeof steps[0]; k++) {
                mgv_engine_desc desc;
                mgv_engine *engine;
                mgv__cpu_kernels kernels;
                mgv_output output;
                mgv_shape shape;
                memset(&desc, 0, sizeof desc);
                memset(&output, 0, sizeof output);
                desc.parallel.run = threads > 1 ? run_backwards : NULL;
                desc.parallel.threads = threads > 1 ? threads : 0;
                assert_int_equal(mgv_engine_create(&engine, model, &desc, NULL), MGV_OK);
                kernels = *engine->kernels;
                kernels.step = steps[k];
                engine->kernels = &kernels;
                output.kind = MGV_OUTPUT_TOKENS;
                output.normalize = 1;
                assert_int_equal(mgv_engine_shape(engine, &image, 1, &output, &shape, NULL), MGV_OK);
                output.capacity = shape.rows * shape.columns;
                output.data = rows_of = (float *)malloc((size_t)output.capacity * sizeof(float));
                encode(engine, &image, &output, 1, &polls);
                if (!first) {
                    first = rows_of;
                    whole = polls;
                } else {
                    assert_memory_equal(rows_of, first, (size_t)output.capacity * sizeof(float));
                    if (steps[k] == 1) assert_true(polls > 4 * whole);
                    free(rows_of);
                }
                mgv_engine_destroy(engine);
            }
        }
        free(first);
        mgv_model_close(model);
        golden_close(&g);
    }
}

/* A large picture's pixels come in steps, too, of so many rows: nothing of it shows. */
static void pixels(void **state) {
    enum { WIDTH = 3000, HEIGHT = 2000 };
    golden g;
    mgv_model *model;
    mgv_engine *engine;
    mgv_image image;
    mgv_output output;
    mgv_model_info info;
    unsigned char *memory = (unsigned char *)malloc((size_t)WIDTH * HEIGHT * 4);
    float *pooled[2];
    uint32_t i, polls[2];
    (void)state;
    golden_open(&g, "siglip_head_dim_72");
    model = golden_open_model(&g, "", 1);
    assert_int_equal(mgv_model_get_info(model, &info), MGV_OK);
    assert_int_equal(mgv_engine_create(&engine, model, NULL, NULL), MGV_OK);
    for (i = 0; i < WIDTH * HEIGHT * 4; i++) memory[i] = (unsigned char)((i * 2654435761u) >> 13);
    memset(&image, 0, sizeof image);
    image.format = MGV_PIXELS_RGBA8;
    image.pixels = memory;
    image.width = WIDTH;
    image.height = HEIGHT;
    for (i = 0; i < 2; i++) {
        unsigned char small[64 * 64 * 3];
        mgv_image prepared;
        pooled[i] = (float *)malloc(info.pooled_width * sizeof(float));
        memset(&output, 0, sizeof output);
        output.data = pooled[i];
        output.capacity = info.pooled_width;
        if (i == 1) { /* all at once */
            assert_true(info.image_size <= 64);
            assert_int_equal(mgv_model_prepare(model, &image, MGV_RESIZE_PILLOW, 0, 0, small, sizeof small, &prepared, NULL), MGV_OK);
            image = prepared;
        }
        encode(engine, &image, &output, 1, &polls[i]);
    }
    assert_memory_equal(pooled[0], pooled[1], info.pooled_width * sizeof(float));
    assert_true(polls[0] > polls[1] + 8);
    free(pooled[0]);
    free(pooled[1]);
    mgv_engine_destroy(engine);
    mgv_model_close(model);
    golden_close(&g);
    free(memory);
}

/* ---- mgv_cancel ---- */

/* After any number of steps: the next one says so, the rows of a cancelled encode are not finished, and the next encode is right. */
static void cancelled(void **state) {
    golden g;
    mgv_model *model;
    mgv_engine *engine;
    mgv__cpu_kernels kernels;
    mgv_image image;
    mgv_output output;
    mgv_encode_desc desc;
    mgv_model_info info;
    mgv_error error;
    float *first, *again;
    uint32_t polls, whole, i;
    (void)state;
    golden_open(&g, "siglip_head_dim_72");
    model = golden_open_model(&g, "", 1);
    image = golden_image(&g.pictures[0]);
    assert_int_equal(mgv_model_get_info(model, &info), MGV_OK);
    assert_int_equal(mgv_engine_create(&engine, model, NULL, NULL), MGV_OK);
    kernels = *engine->kernels;
    kernels.step = 100000;
    engine->kernels = &kernels;
    first = (float *)malloc(info.pooled_width * sizeof(float));
    again = (float *)malloc(info.pooled_width * sizeof(float));
    memset(&output, 0, sizeof output);
    memset(&desc, 0, sizeof desc);
    output.data = first;
    output.capacity = info.pooled_width;
    encode(engine, &image, &output, 1, &whole);
    assert_true(whole > 20);
    output.data = again;
    desc.images = &image;
    desc.outputs = &output;
    desc.image_count = desc.output_count = 1;
    for (polls = 0; polls <= whole; polls++) {
        memset(again, 0x7F, info.pooled_width * sizeof(float));
        assert_int_equal(mgv_encode(engine, &desc, &error), MGV_OK);
        for (i = 0; i < polls; i++) assert_int_equal(mgv_poll(engine, &error), MGV_STATUS_RUNNING);
        mgv_cancel(engine);
        assert_int_equal(mgv_encode(engine, &desc, &error), MGV_ERROR_BUSY);
        if (polls % 2) assert_int_equal(mgv_wait(engine, 0, &error), MGV_ERROR_CANCELLED);
        assert_int_equal(mgv_poll(engine, &error), MGV_STATUS_CANCELLED);
        assert_int_equal(error.code, MGV_ERROR_CANCELLED);
        assert_int_equal(mgv_wait(engine, 0, &error), MGV_ERROR_CANCELLED); /* until there is another encode */
        if (polls < whole) assert_true(again[0] > 1e38f);
        assert_int_equal(mgv_encode_blocking(engine, &desc, &error), MGV_OK);
        assert_memory_equal(again, first, info.pooled_width * sizeof(float));
    }
    mgv_cancel(engine); /* nothing is under way */
    mgv_cancel(NULL);
    assert_int_equal(mgv_wait(engine, 0, &error), MGV_OK);
    mgv_engine_destroy(engine);
    free(first);
    free(again);
    mgv_model_close(model);
    golden_close(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear), cmocka_unit_test(attention), cmocka_unit_test(rows),
        cmocka_unit_test(pool), cmocka_unit_test(same_bits), cmocka_unit_test(pixels), cmocka_unit_test(cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
