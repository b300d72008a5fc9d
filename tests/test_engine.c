/* Models and engines through the public API: lifetimes, capacity, states, and everything that can be asked for wrongly. */
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

#include "golden.h"
#include "support.h"

/* ---- one small model for all tests ---- */

typedef struct fixture {
    golden golden;
    mgv_model *model;
    mgv_model_info info;
    mgv_image image;
} fixture;

static int set_up(void **state) {
    fixture *f = (fixture *)calloc(1, sizeof *f);
    assert_non_null(f);
    golden_open(&f->golden, "siglip_head_dim_72");
    f->model = golden_open_model(&f->golden, "", 1);
    assert_int_equal(mgv_model_get_info(f->model, &f->info), MGV_OK);
    f->image = golden_image(&f->golden.pictures[0]);
    *state = f;
    return 0;
}
static int tear_down(void **state) {
    fixture *f = (fixture *)*state;
    mgv_model_close(f->model);
    golden_close(&f->golden);
    free(f);
    return 0;
}

static mgv_engine *make_engine(const fixture *f, const mgv_engine_desc *desc) {
    mgv_engine *engine = NULL;
    mgv_error error;
    if (mgv_engine_create(&engine, f->model, desc, &error) != MGV_OK) fail_msg("%s", error.message);
    return engine;
}

static mgv_output pooled_output(float *data, uint64_t capacity) {
    mgv_output output;
    memset(&output, 0, sizeof output);
    output.kind = MGV_OUTPUT_POOLED;
    output.data = data;
    output.capacity = capacity;
    return output;
}

static mgv_encode_desc encode_desc(const mgv_image *images, uint32_t image_count, const mgv_output *outputs, uint32_t output_count) {
    mgv_encode_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.images = images;
    desc.image_count = image_count;
    desc.outputs = outputs;
    desc.output_count = output_count;
    return desc;
}

/* The pooled vector of the fixture's picture, by the plainest way. */
static void encode_pooled(const fixture *f, mgv_engine *engine, float *pooled) {
    mgv_output output = pooled_output(pooled, f->info.pooled_width);
    mgv_encode_desc desc = encode_desc(&f->image, 1, &output, 1);
    mgv_error error;
    if (mgv_encode_blocking(engine, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_int_equal(error.code, MGV_OK);
    assert_string_equal(error.message, "");
}

/* ---- tests ---- */

static void test_info(void **state) {
    const fixture *f = (const fixture *)*state;
    uint64_t elements = 0;
    uint32_t i, k;
    assert_int_equal(f->info.family, MGV_FAMILY_SIGLIP);
    assert_int_equal(f->info.head_dim, 72);
    assert_int_equal(f->info.hidden, f->info.heads * 72);
    assert_int_equal(f->info.dtype, MGV_DTYPE_F32);
    assert_int_equal(f->info.merge, 1);
    for (i = 0; i < f->info.tensor_count; i++) {
        mgv_tensor_info tensor;
        uint64_t count = 1;
        assert_int_equal(mgv_model_get_tensor(f->model, i, &tensor), MGV_OK);
        for (k = 0; k < tensor.rank; k++) count *= tensor.shape[k];
        assert_int_equal(tensor.bytes, count * 4);
        assert_string_equal(tensor.file, "model.safetensors");
        elements += count;
    }
    assert_int_equal(elements, f->info.parameters);
    {
        mgv_tensor_info tensor;
        assert_int_equal(mgv_model_get_tensor(f->model, f->info.tensor_count, &tensor), MGV_ERROR_ARGUMENT);
    }
}

/* The hash tells models apart, and equal models not, whatever their files look like. */
static void test_hash(void **state) {
    const fixture *f = (const fixture *)*state;
    mgv_model *prefixed = golden_open_model(&f->golden, "vision_tower.vision_model.", 3), *other;
    mgv_model_info info;
    golden changed;
    assert_int_equal(mgv_model_get_info(prefixed, &info), MGV_OK);
    assert_true(info.hash == f->info.hash);
    mgv_model_close(prefixed);
    golden_open(&changed, "siglip_head_dim_72");
    changed.weights[5].scale *= 2;
    other = golden_open_model(&changed, "", 1);
    assert_int_equal(mgv_model_get_info(other, &info), MGV_OK);
    assert_true(info.hash != f->info.hash);
    mgv_model_close(other);
    golden_close(&changed);
}

static void test_defaults(void **state) {
    const fixture *f = (const fixture *)*state;
    mgv_engine *engine = make_engine(f, NULL);
    float *pooled = (float *)malloc(f->info.pooled_width * sizeof(float));
    assert_int_equal(mgv_engine_backend(engine), MGV_BACKEND_CPU);
    encode_pooled(f, engine, pooled);
    assert_int_equal(mgv_poll(engine, NULL), MGV_STATUS_DONE);
    assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
    assert_int_equal(mgv_engine_destroy(NULL), MGV_OK);
    mgv_model_close(NULL);
    free(pooled);
}

/* Poll moves the work on by one step, and a wait without time gives up at once without losing anything. */
static void test_poll_and_wait(void **state) {
    const fixture *f = (const fixture *)*state;
    mgv_engine *engine = make_engine(f, NULL);
    uint32_t width = f->info.pooled_width, steps = 0;
    float *expected = (float *)malloc(width * sizeof(float)), *pooled = (float *)malloc(width * sizeof(float));
    mgv_output output = pooled_output(pooled, width);
    mgv_encode_desc desc = encode_desc(&f->image, 1, &output, 1);
    mgv_error error;
    encode_pooled(f, engine, expected);
    assert_int_equal(mgv_encode(engine, &desc, &error), MGV_OK);
    assert_int_equal(mgv_encode(engine, &desc, &error), MGV_ERROR_BUSY);
    assert_int_equal(mgv_wait(engine, 0, &error), MGV_ERROR_BUSY);
    assert_non_null(strstr(error.message, "image 1 of 1"));
    while (mgv_poll(engine, &error) == MGV_STATUS_RUNNING) steps++;
    assert_true(steps > f->info.layers * 7);
    assert_int_equal(mgv_wait(engine, 0, &error), MGV_OK);
    assert_memory_equal(pooled, expected, width * sizeof(float));
    assert_int_equal(mgv_encode(engine, &desc, &error), MGV_OK);
    assert_int_equal(mgv_wait(engine, 60000, &error), MGV_OK);
    assert_memory_equal(pooled, expected, width * sizeof(float));
    assert_int_equal(mgv_encode(engine, &desc, &error), MGV_OK); /* destroyed with work queued */
    assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
    free(expected);
    free(pooled);
}

/* An encode that asks for an early layer does not run the rest. */
static void test_early_layer_is_cheap(void **state) {
    const fixture *f = (const fixture *)*state;
    mgv_engine *engine = make_engine(f, NULL);
    mgv_output output;
    mgv_encode_desc desc;
    mgv_shape shape;
    uint32_t steps = 0;
    memset(&output, 0, sizeof output);
    output.kind = MGV_OUTPUT_LAYER;
    assert_int_equal(mgv_engine_shape(engine, &f->image, 1, &output, &shape, NULL), MGV_OK);
    assert_int_equal(shape.rows, f->info.tokens_per_image);
    assert_int_equal(shape.columns, f->info.hidden);
    output.capacity = shape.rows * shape.columns;
    output.data = (float *)malloc((size_t)output.capacity * sizeof(float));
    desc = encode_desc(&f->image, 1, &output, 1);
    assert_int_equal(mgv_encode(engine, &desc, NULL), MGV_OK);
    while (mgv_poll(engine, NULL) == MGV_STATUS_RUNNING) steps++;
    assert_int_equal(steps, 3); /* the picture, its pixels, the patch embedding; nothing more is run */
    free(output.data);
    mgv_engine_destroy(engine);
}

/* Everything is allocated when the engine is made, and all of it is given back. */
static void test_nothing_is_allocated_afterwards(void **state) {
    const fixture *f = (const fixture *)*state;
    counting_allocator c;
    mgv_engine_desc desc;
    mgv_engine *engine;
    size_t calls;
    float *pooled = (float *)malloc(f->info.pooled_width * sizeof(float));
    memset(&desc, 0, sizeof desc);
    desc.allocator = counting_allocator_make(&c);
    engine = make_engine(f, &desc);
    calls = c.calls;
    encode_pooled(f, engine, pooled);
    assert_int_equal(c.calls, calls);
    mgv_engine_destroy(engine);
    assert_int_equal(c.live_blocks, 0);
    assert_int_equal(c.live_bytes, 0);
    free(pooled);
}

/* The caller's workspace, at every alignment and with not one byte more than asked for. */
static void test_workspace(void **state) {
    const fixture *f = (const fixture *)*state;
    uint32_t width = f->info.pooled_width, offset;
    float *expected = (float *)malloc(width * sizeof(float)), *pooled = (float *)malloc(width * sizeof(float));
    mgv_engine *engine = make_engine(f, NULL);
    mgv_engine_desc desc;
    uint64_t bytes = 0;
    counting_allocator c;
    mgv_error error;
    encode_pooled(f, engine, expected);
    mgv_engine_destroy(engine);
    memset(&desc, 0, sizeof desc);
    desc.allocator = counting_allocator_make(&c);
    assert_int_equal(mgv_engine_workspace_bytes(f->model, &desc, &bytes, &error), MGV_OK);
    for (offset = 0; offset < 64; offset += 21) {
        char *memory = (char *)malloc((size_t)bytes + offset);
        memset(memory, 0xFF, (size_t)bytes + offset);
        desc.workspace = memory + offset;
        desc.workspace_bytes = bytes;
        engine = make_engine(f, &desc);
        encode_pooled(f, engine, pooled);
        assert_memory_equal(pooled, expected, width * sizeof(float));
        mgv_engine_destroy(engine);
        free(memory);
    }
    assert_int_equal(c.calls, 0);
    desc.workspace_bytes = bytes - 1;
    engine = (mgv_engine *)1;
    assert_int_equal(mgv_engine_create(&engine, f->model, &desc, &error), MGV_ERROR_CAPACITY);
    assert_null(engine);
    free(expected);
    free(pooled);
}

/* Each allocation failing alone, and all from one on: a clear error, nothing leaked, and the next try works. */
static void test_every_allocation_failing(void **state) {
    const fixture *f = (const fixture *)*state;
    golden_files files;
    mgv_model_desc desc;
    int from;
    golden_make_files(&files, &f->golden, "vision_model.", 2);
    memset(&desc, 0, sizeof desc);
    desc.memory_files = files.files;
    desc.memory_file_count = files.count;
    for (from = 0; from < 2; from++) {
        size_t n;
        for (n = 1;; n++) {
            counting_allocator c;
            mgv_engine_desc engine_desc;
            mgv_model *model = NULL;
            mgv_engine *engine = NULL;
            mgv_error error;
            mgv_result result;
            desc.allocator = counting_allocator_make(&c);
            c.fail_at = n;
            c.fail_from = from;
            result = mgv_model_open(&model, &desc, &error);
            memset(&engine_desc, 0, sizeof engine_desc);
            engine_desc.allocator = desc.allocator;
            if (result == MGV_OK) result = mgv_engine_create(&engine, model, &engine_desc, &error);
            if (result == MGV_OK) {
                assert_true(c.calls < n);
                mgv_engine_destroy(engine);
                mgv_model_close(model);
                assert_int_equal(c.live_blocks, 0);
                break;
            }
            assert_int_equal(result, MGV_ERROR_NOMEM);
            assert_int_equal(error.code, MGV_ERROR_NOMEM);
            assert_true(error.message[0] != 0);
            assert_null(engine);
            mgv_model_close(model);
            assert_int_equal(c.live_blocks, 0);
            assert_int_equal(c.live_bytes, 0);
            assert_true(n < 10000);
        }
        assert_true(n > 10);
    }
    golden_free_files(&files);
}

/* Structs of an older header are shorter; those of a newer one are refused. */
static void test_struct_sizes(void **state) {
    const fixture *f = (const fixture *)*state;
    mgv_engine *engine;
    mgv_engine_desc desc;
    mgv_error error;
    memset(&desc, 0xEE, sizeof desc);
    desc.struct_size = 8;
    desc.backend = MGV_BACKEND_CPU;
    engine = make_engine(f, &desc);
    mgv_engine_destroy(engine);
    memset(&desc, 0, sizeof desc);
    desc.struct_size = sizeof desc;
    engine = make_engine(f, &desc);
    mgv_engine_destroy(engine);
    desc.struct_size = sizeof desc + 8;
    assert_int_equal(mgv_engine_create(&engine, f->model, &desc, &error), MGV_ERROR_ARGUMENT);
    desc.struct_size = 3;
    assert_int_equal(mgv_engine_create(&engine, f->model, &desc, &error), MGV_ERROR_ARGUMENT);
}

/* Arrays of longer structs than this header knows step by their own size. */
static void test_array_step(void **state) {
    const fixture *f = (const fixture *)*state;
    uint32_t width = f->info.pooled_width, short_size = (uint32_t)offsetof(mgv_output, normalize);
    float *values = (float *)malloc(2 * width * sizeof(float));
    mgv_engine *engine = make_engine(f, NULL);
    mgv_output outputs[2];
    mgv_encode_desc desc;
    char *array = (char *)malloc(2 * short_size);
    outputs[0] = pooled_output(values, width);
    outputs[1] = pooled_output(values + width, width);
    outputs[0].struct_size = outputs[1].struct_size = short_size;
    memcpy(array, &outputs[0], short_size);
    memcpy(array + short_size, &outputs[1], short_size);
    desc = encode_desc(&f->image, 1, (const mgv_output *)(const void *)array, 2);
    assert_int_equal(mgv_encode_blocking(engine, &desc, NULL), MGV_OK);
    assert_memory_equal(values, values + width, width * sizeof(float));
    free(array);
    free(values);
    mgv_engine_destroy(engine);
}

static void test_normalize(void **state) {
    const fixture *f = (const fixture *)*state;
    uint32_t width = f->info.pooled_width, i;
    float *values = (float *)malloc(2 * width * sizeof(float));
    mgv_engine *engine = make_engine(f, NULL);
    mgv_output outputs[2];
    mgv_encode_desc desc = encode_desc(&f->image, 1, outputs, 2);
    double norm = 0;
    outputs[0] = pooled_output(values, width);
    outputs[1] = pooled_output(values + width, width);
    outputs[1].normalize = 1;
    assert_int_equal(mgv_encode_blocking(engine, &desc, NULL), MGV_OK);
    for (i = 0; i < width; i++) norm += (double)values[i] * values[i];
    for (i = 0; i < width; i++) assert_float_equal(values[width + i], (float)(values[i] / sqrt(norm)), 1e-6f);
    free(values);
    mgv_engine_destroy(engine);
}

/* Every wrong engine: the code it gets and a word of the sentence. */
static void test_bad_engines(void **state) {
    const fixture *f = (const fixture *)*state;
    mgv_engine_desc desc;
    mgv_engine *engine;
    mgv_error error;
#define BAD_ENGINE(change, code, word)                                                    \
    do {                                                                                  \
        memset(&desc, 0, sizeof desc);                                                    \
        change;                                                                           \
        engine = (mgv_engine *)1;                                                         \
        assert_int_equal(mgv_engine_create(&engine, f->model, &desc, &error), code);      \
        assert_null(engine);                                                              \
        if (!strstr(error.message, word)) fail_msg("no \"%s\" in: %s", word, error.message); \
    } while (0)
    BAD_ENGINE(desc.backend = 7, MGV_ERROR_ARGUMENT, "backend 7");
    BAD_ENGINE(desc.backend = -1, MGV_ERROR_ARGUMENT, "backend -1");
    BAD_ENGINE(desc.resize = 2, MGV_ERROR_ARGUMENT, "resize 2");
    BAD_ENGINE((desc.min_pixels = 9, desc.max_pixels = 4), MGV_ERROR_ARGUMENT, "min_pixels 9");
    BAD_ENGINE(desc.parallel.threads = 2, MGV_ERROR_ARGUMENT, "mgv_parallel_for");
    BAD_ENGINE(desc.parallel.run = golden_run_threads, MGV_ERROR_ARGUMENT, "mgv_parallel_for");
    BAD_ENGINE(desc.allocator.alloc = counting_alloc, MGV_ERROR_ARGUMENT, "alloc");
    BAD_ENGINE(desc.max_tokens = 1, MGV_ERROR_CAPACITY, "max_tokens is 1");
    BAD_ENGINE(desc.max_images = 0xFFFFFFFFu, MGV_ERROR_CAPACITY, "4294967295 images");
    BAD_ENGINE(desc.backend = MGV_BACKEND_CUDA, MGV_ERROR_NO_DEVICE, "CUDA");
#undef BAD_ENGINE
    assert_int_equal(mgv_engine_create(NULL, f->model, NULL, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_engine_create(&engine, NULL, NULL, &error), MGV_ERROR_ARGUMENT);
}

/* Every wrong encode: the engine refuses it, keeps working, and has written nothing. */
static void test_bad_encodes(void **state) {
    const fixture *f = (const fixture *)*state;
    uint32_t width = f->info.pooled_width, i;
    float *values = (float *)malloc(width * sizeof(float)), *expected = (float *)malloc(width * sizeof(float));
    mgv_engine *engine = make_engine(f, NULL);
    mgv_image images[2];
    mgv_output output;
    mgv_encode_desc desc;
    mgv_shape shape;
    mgv_error error;
    encode_pooled(f, engine, expected);
#define BAD_ENCODE(change, expected_code, word)                                             \
    do {                                                                                    \
        images[0] = images[1] = f->image;                                                   \
        output = pooled_output(values, width);                                              \
        desc = encode_desc(images, 1, &output, 1);                                          \
        for (i = 0; i < width; i++) values[i] = -7;                                         \
        change;                                                                             \
        assert_int_equal(mgv_encode(engine, &desc, &error), expected_code);                 \
        assert_int_equal(error.code, expected_code);                                        \
        if (!strstr(error.message, word)) fail_msg("no \"%s\" in: %s", word, error.message); \
        assert_int_equal(mgv_poll(engine, &error), MGV_STATUS_DONE);                        \
        for (i = 0; i < width; i++) assert_true(values[i] == -7);                           \
    } while (0)
    BAD_ENCODE(desc.images = NULL, MGV_ERROR_ARGUMENT, "images");
    BAD_ENCODE(desc.image_count = 0, MGV_ERROR_ARGUMENT, "images");
    BAD_ENCODE(desc.image_count = 2, MGV_ERROR_CAPACITY, "2 images in one encode; this engine was made for 1");
    BAD_ENCODE(desc.outputs = NULL, MGV_ERROR_ARGUMENT, "outputs");
    BAD_ENCODE(desc.output_count = 0, MGV_ERROR_ARGUMENT, "outputs");
    BAD_ENCODE(desc.output_count = MGV__MAX_OUTPUTS + 1, MGV_ERROR_CAPACITY, "outputs");
    BAD_ENCODE(desc.stream = &desc, MGV_ERROR_ARGUMENT, "stream");
    BAD_ENCODE(output.kind = 9, MGV_ERROR_ARGUMENT, "output kind 9");
    BAD_ENCODE(output.kind = -1, MGV_ERROR_ARGUMENT, "output kind -1");
    BAD_ENCODE((output.kind = MGV_OUTPUT_LAYER, output.index = f->info.layers + 1), MGV_ERROR_ARGUMENT, "layer:0 to layer:");
    BAD_ENCODE(output.kind = MGV_OUTPUT_DEEPSTACK, MGV_ERROR_ARGUMENT, "no output of kind deepstack");
    BAD_ENCODE(output.data = NULL, MGV_ERROR_ARGUMENT, "data");
    BAD_ENCODE(output.capacity = width - 1, MGV_ERROR_CAPACITY, "there is room for");
    BAD_ENCODE(output.place = MGV_PLACE_DEVICE, MGV_ERROR_ARGUMENT, "host memory");
    BAD_ENCODE(images[0].place = MGV_PLACE_DEVICE, MGV_ERROR_ARGUMENT, "host memory");
    BAD_ENCODE(images[0].pixels = NULL, MGV_ERROR_ARGUMENT, "pixels");
    BAD_ENCODE(images[0].width = 0, MGV_ERROR_ARGUMENT, "0");
    BAD_ENCODE(images[0].format = 99, MGV_ERROR_ARGUMENT, "99");
    BAD_ENCODE(images[0].bytes = 3, MGV_ERROR_ARGUMENT, "bytes");
    BAD_ENCODE((images[0].width = 4097, images[0].height = 1, images[0].bytes = 0), MGV_ERROR_CAPACITY,
               "4097 x 1 pixels; this engine was made for 4096 x 4096");
    BAD_ENCODE((images[0].width = 1, images[0].height = 4097, images[0].bytes = 0), MGV_ERROR_CAPACITY,
               "1 x 4097 pixels; this engine was made for 4096 x 4096");
    BAD_ENCODE((images[0].pixels = values + width - 1, images[0].width = images[0].height = 1, images[0].bytes = 0), MGV_ERROR_ARGUMENT,
               "output 0 overlaps the pixels of image 0");
    BAD_ENCODE(images[0].struct_size = 4096, MGV_ERROR_ARGUMENT, "struct_size");
    BAD_ENCODE(desc.struct_size = 4096, MGV_ERROR_ARGUMENT, "struct_size");
#undef BAD_ENCODE
    assert_int_equal(mgv_encode(NULL, &desc, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_encode(engine, NULL, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_preprocess(engine, &f->image, (float *)(uintptr_t)f->image.pixels, UINT64_MAX, &shape, &error),
                     MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "overlap"));
    assert_int_equal(mgv_poll(NULL, &error), MGV_STATUS_FAILED);
    assert_int_equal(mgv_wait(NULL, 0, &error), MGV_ERROR_ARGUMENT);
    encode_pooled(f, engine, values);
    assert_memory_equal(values, expected, width * sizeof(float));
    free(values);
    free(expected);
    mgv_engine_destroy(engine);
}

/* Width and height have a limit each: a picture that fits is taken, turned on its side it is not. */
static void test_unequal_limits(void **state) {
    const fixture *f = (const fixture *)*state;
    mgv_engine_desc engine_desc;
    mgv_engine *engine;
    mgv_image image = f->image;
    mgv_grid grid;
    mgv_error error;
    memset(&engine_desc, 0, sizeof engine_desc);
    engine_desc.max_width = 64;
    engine_desc.max_height = 32;
    engine = make_engine(f, &engine_desc);
    image.bytes = 0;
    image.width = 64;
    image.height = 32;
    if (mgv_engine_grid(engine, &image, &grid, &error) != MGV_OK) fail_msg("%s", error.message);
    image.width = 32;
    image.height = 33;
    assert_int_equal(mgv_engine_grid(engine, &image, &grid, &error), MGV_ERROR_CAPACITY);
    assert_non_null(strstr(error.message, "32 x 33 pixels; this engine was made for 64 x 32"));
    image.width = 65;
    image.height = 32;
    assert_int_equal(mgv_engine_grid(engine, &image, &grid, &error), MGV_ERROR_CAPACITY);
    assert_non_null(strstr(error.message, "65 x 32 pixels; this engine was made for 64 x 32"));
    mgv_engine_destroy(engine);
}

/* No two buffers that hold values at the same time share memory: poisoning all that is dead must change nothing. */
static void test_buffers_do_not_clash(void **state) {
    const fixture *f = (const fixture *)*state;
    const mgv__program *program = &f->model->program;
    size_t bytes[MGV__MAX_BUFFERS], offsets[MGV__MAX_BUFFERS], total, sum = 0;
    uint32_t owner[4096], i, k;
    for (i = 0; i < program->buffer_count; i++) sum += bytes[i] = program->buffers[i].rows == MGV__ROWS_IMAGES ? 1 : program->buffers[i].columns;
    assert_int_equal(mgv__place_buffers(program, bytes, offsets, &total), 1);
    assert_true(total < sum);
    assert_true(total <= 4096);
    for (k = 0; k < total; k++) owner[k] = MGV__NONE;
    for (k = 0; k < bytes[0]; k++) owner[offsets[0] + k] = 0; /* the pixels come first */
    for (i = 0; i < program->op_count; i++) {
        const mgv__op *op = &program->ops[i];
        uint32_t reads = mgv__op_reads(op), b;
        for (b = 0; b < program->buffer_count; b++) {
            if (!(reads >> b & 1u)) continue;
            for (k = 0; k < bytes[b]; k++) assert_int_equal(owner[offsets[b] + k], b);
        }
        for (k = 0; k < bytes[op->target]; k++) owner[offsets[op->target] + k] = op->target;
        for (b = 0; b < program->buffer_count; b++) {
            if (!(reads >> b & 1u)) continue;
            for (k = 0; k < bytes[b]; k++) assert_int_equal(owner[offsets[b] + k], b); /* the target covers no source */
        }
    }
}

/* Each open and read failing alone, and all from one on. */
static void test_every_read_failing(void **state) {
    const fixture *f = (const fixture *)*state;
    golden_files files;
    fake_file entries[GOLDEN_MAX_SHARDS + 3];
    size_t i;
    int from;
    golden_make_files(&files, &f->golden, "model.vision_tower.", 3);
    for (i = 0; i < files.count; i++) {
        entries[i].name = files.files[i].name;
        entries[i].data = files.files[i].data;
        entries[i].bytes = files.files[i].bytes;
    }
    for (from = 0; from < 2; from++) {
        uint64_t n;
        for (n = 1;; n++) {
            fake_files fake;
            counting_allocator c;
            mgv_model_desc desc;
            mgv_model *model = NULL;
            mgv_error error;
            mgv_result result;
            memset(&desc, 0, sizeof desc);
            desc.io = fake_files_make(&fake, entries, files.count);
            desc.allocator = counting_allocator_make(&c);
            fake.fail_at = n;
            fake.fail_from = from;
            result = mgv_model_open(&model, &desc, &error);
            assert_int_equal(fake.open_now, 0);
            mgv_model_close(model);
            assert_int_equal(c.live_blocks, 0);
            if (result == MGV_OK) break;
            assert_int_equal(result, MGV_ERROR_IO);
            assert_true(error.message[0] != 0);
            assert_true(n < 10000);
        }
        assert_true(n > 10);
    }
    golden_free_files(&files);
}

static void test_nonfinite_weights_are_refused(void **state) {
    const fixture *f = (const fixture *)*state;
    static const unsigned char nan_bytes[4] = {0, 0, 0xC0, 0x7F}, infinity_bytes[4] = {0, 0, 0x80, 0xFF};
    int which;
    for (which = 0; which < 2; which++) {
        golden_files files;
        mgv_model_desc desc;
        mgv_model *model = (mgv_model *)1;
        mgv_error error;
        size_t i;
        golden_make_files(&files, &f->golden, "", 1);
        memset(&desc, 0, sizeof desc);
        desc.memory_files = files.files;
        desc.memory_file_count = files.count;
        for (i = 0; i < files.count; i++) {
            if (strcmp(files.files[i].name, "model.safetensors") != 0) continue;
            memcpy(files.owned[0] + files.files[i].bytes - 4, which ? infinity_bytes : nan_bytes, 4);
        }
        assert_int_equal(mgv_model_open(&model, &desc, &error), MGV_ERROR_MODEL);
        assert_null(model);
        assert_non_null(strstr(error.message, "NaN or infinity"));
        golden_free_files(&files);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_info),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_poll_and_wait),
        cmocka_unit_test(test_early_layer_is_cheap),
        cmocka_unit_test(test_nothing_is_allocated_afterwards),
        cmocka_unit_test(test_workspace),
        cmocka_unit_test(test_every_allocation_failing),
        cmocka_unit_test(test_every_read_failing),
        cmocka_unit_test(test_struct_sizes),
        cmocka_unit_test(test_array_step),
        cmocka_unit_test(test_normalize),
        cmocka_unit_test(test_bad_engines),
        cmocka_unit_test(test_bad_encodes),
        cmocka_unit_test(test_unequal_limits),
        cmocka_unit_test(test_buffers_do_not_clash),
        cmocka_unit_test(test_nonfinite_weights_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
