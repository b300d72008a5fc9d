/* Towers for pictures of any size on a GPU without one (tests/fake_cuda.h): what the host tells the kernel of the pictures' patches, where
   rows go, and what is refused. In the kernel's place one whose merged rows are sums of the first pixel of each patch that they are of. */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_CUDA
#define MEGAVIT_NO_CUDART
#include "megavit.h"

#include "support.h"
#include "golden.h"
#include "fake_cuda.h"

enum { MOST_PICTURES = 3, MOST_TOKENS = 300, MOST_OUTPUTS = 3, MOST_FLOATS = MOST_TOKENS * 160 };
static mgv_engine *played; /* whose kernel is played */

static float sum_of_pixel(const uint8_t *pixel) { return (float)(pixel[0] + 3 * pixel[1] + 7 * pixel[2]); }
static float row_value(float sum, uint32_t output, uint32_t column) { return sum + 20000.0f * (float)output + (float)column / 64; }

/* A token of a batch attends to a range that holds it, and its samples of the position table add up to 1. */
static void check_token(const mgv__kernel_arguments *a, const mgv__config *c, uint32_t row, uint32_t tokens) {
    const mgv__kernel_token *t = &a->tokens[row];
    const uint32_t *frame = t->range[MGV__RANGE_FRAME], *window = t->range[MGV__RANGE_WINDOW];
    const uint32_t down = t->sample_counts & 0xFFFF, across = t->sample_counts >> 16;
    double sum[2] = {0, 0};
    uint32_t i;
    for (i = 0; i < MGV__TOKEN_RANGES; i++) assert_true(t->range[i][0] <= row && row < t->range[i][1] && t->range[i][1] <= tokens);
    assert_true(window[1] - window[0] <= frame[1] - frame[0]);
    if (!c->position_side) return;
    for (i = 0; i < down; i++) sum[0] += (double)a->samples[t->down + i].weight;
    for (i = 0; i < across; i++) sum[1] += (double)a->samples[t->across + i].weight;
    assert_true(down && across && fabs(sum[0] - 1) < 1e-6 && fabs(sum[1] - 1) < 1e-6);
}
static void tower_kernel(const void *argument) {
    const mgv__kernel_arguments *a = (const mgv__kernel_arguments *)argument;
    const mgv__cuda *cuda = played->gpu->cuda;
    const mgv__config *c = cuda->plan->config;
    const uint32_t tokens = a->place_rows, unit = c->merge * c->merge;
    uint32_t i, k, row, merges = 0;
    assert_int_equal(*a->aborted, 0);
    for (i = 0; i < cuda->plan->counter_count; i++) assert_int_equal(a->counters[i], 0);
    assert_true(tokens > 0 && tokens <= cuda->plan->max_images);
    for (i = 0; i < cuda->plan->op_count; i++) /* every output has an operation that writes its merged rows */
        if (a->ops[i].kind == MGV__KERNEL_MERGE && !(a->ops[i].flags & MGV__KERNEL_FOLD_NORM)) merges |= 1u << a->ops[i].of.merge.target;
    assert_int_equal(merges, (1u << cuda->outputs.count) - 1);
    for (row = 0; row < tokens; row++) check_token(a, c, row, tokens);
    for (row = 0; row < tokens / unit; row++) {
        float sum = 0;
        for (i = 0; i < unit; i++) sum += sum_of_pixel(a->pixels + a->tokens[row * unit + i].pixels);
        assert_true(a->unit_rows[row] < tokens / unit);
        for (k = 0; k < cuda->outputs.count; k++)
            for (i = 0; i < c->out_hidden; i++) a->outputs[k][(size_t)a->unit_rows[row] * c->out_hidden + i] = row_value(sum, k, i);
    }
    if (a->next_count) memset(a->aborted + a->next_counters, 0, a->next_count * sizeof *a->counters);
    a->counters[0] = 1;
    *a->aborted = fake.aborted;
    if (fake.aborted) a->status->aborted = fake.aborted;
}

typedef struct fixture {
    golden g;
    mgv_model *model;
    mgv_engine *engine;
    mgv_model_info info;
    uint8_t *pixels[MOST_PICTURES];
    mgv_image images[MOST_PICTURES];
    mgv_grid grids[MOST_PICTURES];
    mgv_output outputs[MOST_OUTPUTS];
    mgv_encode_desc encode;
    float rows[MOST_OUTPUTS][MOST_FLOATS];
    mgv_error error;
} fixture;

static mgv_engine_desc engine_desc(void) {
    mgv_engine_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.backend = MGV_BACKEND_CUDA;
    desc.kernels = "stands for megavit.fatbin";
    desc.max_images = MOST_PICTURES;
    desc.max_tokens = MOST_TOKENS;
    desc.max_width = desc.max_height = 400;
    desc.max_row_outputs = MOST_OUTPUTS;
    return desc;
}
static mgv_result make_engine(fixture *f, counting_allocator *counts) {
    mgv_engine_desc desc = engine_desc();
    mgv_result result;
    if (counts) {
        desc.allocator.user = counts;
        desc.allocator.alloc = counting_alloc;
        desc.allocator.free = counting_free;
    }
    fake.kernel = tower_kernel;
    mgv__cuda_test_calls = &fake_calls;
    result = mgv_engine_create(&f->engine, f->model, &desc, &f->error);
    played = f->engine;
    return result;
}

/* Pictures whose sides are `down` and `across` merged units, of so many frames. */
static void add_picture(fixture *f, uint32_t down, uint32_t across, uint32_t frames) {
    const uint32_t side = f->model->config.patch * f->model->config.merge, number = f->encode.image_count++;
    mgv_image *image = &f->images[number];
    const size_t bytes = (size_t)down * across * side * side * frames * 3;
    memset(image, 0, sizeof *image);
    f->pixels[number] = rule_bytes(number + 5, bytes);
    image->pixels = f->pixels[number];
    image->height = down * side;
    image->width = across * side;
    image->frames = frames;
    if (mgv_engine_grid(f->engine, image, &f->grids[number], &f->error) != MGV_OK) fail_msg("%s", f->error.message);
    assert_true(f->grids[number].width == image->width && f->grids[number].height == image->height); /* it is not resized */
}
static void begin(fixture *f, const char *name) {
    uint32_t i;
    memset(f, 0, sizeof *f);
    golden_open(&f->g, name);
    f->model = golden_open_model(&f->g, "", 1);
    assert_int_equal(mgv_model_get_info(f->model, &f->info), MGV_OK);
    fake_reset();
    if (make_engine(f, NULL) != MGV_OK) fail_msg("%s", f->error.message);
    add_picture(f, 5, 7, 1);
    add_picture(f, 2, 2, 1);
    add_picture(f, 2, 3, 4);
    for (i = 0; i <= f->info.deepstack_count && i < MOST_OUTPUTS; i++) {
        mgv_output *output = &f->outputs[i];
        output->kind = i ? MGV_OUTPUT_DEEPSTACK : MGV_OUTPUT_TOKENS;
        output->index = i ? i - 1 : 0;
        output->data = f->rows[i];
        output->capacity = MOST_FLOATS;
        f->encode.output_count++;
    }
    f->encode.images = f->images;
    f->encode.outputs = f->outputs;
}
static void end(fixture *f) {
    uint32_t i;
    assert_int_equal(mgv_engine_destroy(f->engine), MGV_OK);
    assert_int_equal(fake_alive(), 0);
    for (i = 0; i < MOST_PICTURES; i++) free(f->pixels[i]);
    mgv_model_close(f->model);
    golden_close(&f->g);
}

/* The rows that `output` should have, picture by picture, in the order of merged units. */
static void check_rows(const fixture *f, uint32_t output) {
    const uint32_t merge = f->model->config.merge, patch = f->model->config.patch;
    const float *at = f->rows[output];
    uint32_t p, t, y, x, i, column;
    for (p = 0; p < f->encode.image_count; p++) {
        const mgv_grid *grid = &f->grids[p];
        const uint32_t frames = f->images[p].frames ? f->images[p].frames : 1;
        for (t = 0; t < grid->t; t++)
            for (y = 0; y < grid->h; y += merge)
                for (x = 0; x < grid->w; x += merge) {
                    const size_t frame = (size_t)t * (frames > 1 ? frames / grid->t : 1) * grid->height;
                    float sum = 0;
                    for (i = 0; i < merge * merge; i++)
                        sum += sum_of_pixel(f->pixels[p] + 3 * ((frame + (y + i / merge) * patch) * grid->width + (x + i % merge) * patch));
                    for (column = 0; column < f->info.token_width; column++) assert_true(*at++ == row_value(sum, output, column));
                }
    }
}
static void check_encode(fixture *f) {
    uint32_t i;
    memset(f->rows, 0xFF, sizeof f->rows);
    if (mgv_encode_blocking(f->engine, &f->encode, &f->error) != MGV_OK) fail_msg("%s", f->error.message);
    for (i = 0; i < f->encode.output_count; i++) check_rows(f, i);
}
static void refuse(fixture *f, mgv_result expected, const char *sentence) {
    const mgv_result result = mgv_encode_blocking(f->engine, &f->encode, &f->error);
    if (result != expected || !strstr(f->error.message, sentence))
        fail_msg("%s: %s", sentence, result == MGV_OK ? "taken" : f->error.message);
}

static const char *const names[] = {"qwen3_base", "qwen2_5_base", "qwen2_vl_base"};

/* Pictures and a clip of several sizes in one encode, fewer, and again: windows, DeepStack, tables of positions. */
static void test_mixed_sizes(void **state) {
    size_t n;
    (void)state;
    for (n = 0; n < COUNT_OF(names); n++) {
        fixture *f = (fixture *)malloc(sizeof *f);
        begin(f, names[n]);
        assert_int_equal(mgv_engine_backend(f->engine), MGV_BACKEND_CUDA);
        assert_int_equal(f->info.deepstack_count > 0, n == 0);
        check_encode(f);
        f->encode.image_count = 1;
        check_encode(f);
        f->encode.image_count = 3;
        f->encode.output_count = 1;
        check_encode(f);
        end(f);
        free(f);
    }
}

/* What the kernel calculates in is not refused where it is asked for by name, of gates and RMSNorms neither; MXFP8 is, with the reason. */
static void test_precisions(void **state) {
    static const char *const refused[] = {"no kernel for GPU 0 calculates in MXFP8",
                                          "LayerNorms and no gates: not for this one, which may be had in bf16",
                                          "no kernel for GPU 0 calculates in MXFP8"};
    static const mgv_backend backends[] = {MGV_BACKEND_CUDA, MGV_BACKEND_AUTO};
    size_t n, b;
    (void)state;
    for (n = 0; n < COUNT_OF(names); n++) {
        fixture *f = (fixture *)malloc(sizeof *f);
        mgv_engine_desc desc = engine_desc();
        mgv_engine *none = NULL;
        begin(f, names[n]);
        desc.precision = MGV_PRECISION_BF16;
        for (b = 0; b < COUNT_OF(backends); b++) {
            desc.backend = backends[b];
            assert_int_equal(mgv_engine_destroy(f->engine), MGV_OK);
            if (mgv_engine_create(&f->engine, f->model, &desc, &f->error) != MGV_OK) fail_msg("%s: %s", names[n], f->error.message);
            assert_int_equal(mgv_engine_backend(f->engine), MGV_BACKEND_CUDA);
            played = f->engine;
            check_encode(f);
        }
        desc.backend = MGV_BACKEND_CUDA;
        desc.precision = MGV_PRECISION_MXFP8;
        assert_int_equal(mgv_engine_create(&none, f->model, &desc, &f->error), MGV_ERROR_UNSUPPORTED);
        if (!strstr(f->error.message, refused[n])) fail_msg("%s: %s", names[n], f->error.message);
        end(f);
        free(f);
    }
}

/* Pictures and rows in device memory and page-locked memory stay where they are. */
static void test_memory_of_the_card(void **state) {
    fixture *f = (fixture *)malloc(sizeof *f);
    void *pixels[2], *rows;
    uint32_t i;
    (void)state;
    begin(f, "qwen2_5_base");
    f->encode.image_count = 2;
    for (i = 0; i < 2; i++) {
        const size_t bytes = (size_t)f->images[i].width * f->images[i].height * 3;
        assert_int_equal(i ? fake_calls.MallocHost(&pixels[i], bytes) : fake_calls.Malloc(&pixels[i], bytes), cudaSuccess);
        memcpy(pixels[i], f->pixels[i], bytes);
        f->images[i].pixels = (uint8_t *)pixels[i];
        f->images[i].place = i ? MGV_PLACE_HOST : MGV_PLACE_DEVICE;
        f->images[i].prepared = i;
    }
    check_encode(f);
    assert_int_equal(fake_calls.Malloc(&rows, sizeof f->rows[0]), cudaSuccess);
    f->outputs[0].place = MGV_PLACE_DEVICE;
    f->outputs[0].data = (float *)rows;
    if (mgv_encode_blocking(f->engine, &f->encode, &f->error) != MGV_OK) fail_msg("%s", f->error.message);
    memcpy(f->rows[0], rows, sizeof f->rows[0]);
    check_rows(f, 0);
    f->outputs[0].normalize = 1;
    refuse(f, MGV_ERROR_UNSUPPORTED, "rows are normalised on their way to host memory only");
    f->outputs[0].normalize = 0;
    f->images[0].stride = 3 * (int64_t)f->images[0].width; /* which is how they lie */
    if (mgv_encode_blocking(f->engine, &f->encode, &f->error) != MGV_OK) fail_msg("%s", f->error.message);
    f->images[0].stride += 3;
    refuse(f, MGV_ERROR_UNSUPPORTED, "image 0: pictures in device memory must be RGB8 of");
    f->images[0].stride = 0;
    f->images[0].format = MGV_PIXELS_BGR8;
    refuse(f, MGV_ERROR_UNSUPPORTED, "image 0: pictures in device memory must be RGB8 of");
    f->images[0].format = MGV_PIXELS_RGB8;
    f->images[0].width--;
    refuse(f, MGV_ERROR_UNSUPPORTED, "image 0: pictures in device memory must be RGB8 of");
    f->images[0].width++;
    f->images[0].height--;
    refuse(f, MGV_ERROR_UNSUPPORTED, "image 0: pictures in device memory must be RGB8 of");
    fake_calls.Free(rows);
    fake_calls.Free(pixels[0]);
    fake_calls.FreeHost(pixels[1]);
    end(f);
    free(f);
}

/* Pictures that are resized on the host have the pixels that the CPU's own preparation gives. */
static void test_resized(void **state) {
    fixture *f = (fixture *)malloc(sizeof *f);
    uint8_t *picture, *prepared;
    size_t bytes;
    (void)state;
    begin(f, "qwen3_base");
    f->encode.image_count = 1;
    picture = f->pixels[0];
    f->images[0].width -= 5;
    f->images[0].height -= 3;
    assert_int_equal(mgv_engine_grid(f->engine, &f->images[0], &f->grids[0], &f->error), MGV_OK);
    assert_true(f->grids[0].width != f->images[0].width && f->grids[0].height != f->images[0].height);
    bytes = (size_t)f->grids[0].width * f->grids[0].height * 3;
    prepared = (uint8_t *)malloc(bytes);
    if (mgv_model_prepare(f->model, &f->images[0], MGV_RESIZE_PILLOW, 0, 0, prepared, bytes, &f->images[1], &f->error) != MGV_OK)
        fail_msg("%s", f->error.message);
    f->pixels[0] = prepared; /* whose pixels the rows are to be of */
    check_encode(f);
    f->pixels[0] = picture;
    end(f);
    free(prepared);
    free(f);
}

/* Every call of an encode fails in turn: the error names it, and the next encode is right. */
static void test_every_call_fails(void **state) {
    fixture *f = (fixture *)malloc(sizeof *f);
    uint64_t n;
    uint32_t failures = 0;
    (void)state;
    begin(f, "qwen3_base");
    for (n = 1;; n++) {
        mgv_result result;
        fake.failed = NULL;
        fake.fail_at = fake.calls + n;
        result = mgv_encode_blocking(f->engine, &f->encode, &f->error);
        fake.fail_at = 0;
        if (!fake.failed) break;
        if (result != MGV_OK) {
            failures++;
            assert_int_equal(result, MGV_ERROR_DEVICE);
            if (strncmp(f->error.message, fake.failed, strlen(fake.failed)) != 0)
                fail_msg("%s failed, the error says: %s", fake.failed, f->error.message);
        }
        if (f->engine->gpu->lost) {
            assert_int_equal(mgv_engine_destroy(f->engine), MGV_OK);
            assert_int_equal(make_engine(f, NULL), MGV_OK);
        }
        check_encode(f);
    }
    assert_true(failures >= 10);
    fake.aborted = MGV__WAIT_COUNTER;
    refuse(f, MGV_ERROR_TIMEOUT, "gave up");
    fake.aborted = 0;
    check_encode(f);
    end(f);
    free(f);
}

/* Every call and every allocation of an engine fails in turn, and nothing is left. */
static void test_creation_fails(void **state) {
    fixture *f = (fixture *)malloc(sizeof *f);
    uint64_t n;
    int memory;
    (void)state;
    begin(f, "qwen3_base");
    for (memory = 0; memory < 2; memory++) {
        for (n = 1;; n++) {
            counting_allocator counts;
            mgv_result result;
            assert_int_equal(mgv_engine_destroy(f->engine), MGV_OK);
            fake_reset();
            memset(&counts, 0, sizeof counts);
            if (memory) counts.fail_at = n;
            else fake.fail_at = n;
            result = make_engine(f, &counts);
            if (result != MGV_OK && memory) assert_int_equal(result, MGV_ERROR_NOMEM);
            if (result != MGV_OK && !memory) assert_int_equal(strncmp(f->error.message, fake.failed, strlen(fake.failed)), 0);
            if (result == MGV_OK) assert_int_equal(mgv_engine_destroy(f->engine), MGV_OK);
            f->engine = NULL;
            assert_int_equal(fake_alive(), 0);
            assert_int_equal(counts.live_blocks, 0);
            if (memory ? counts.calls < n : !fake.failed) break;
        }
        assert_true(n > 5);
    }
    end(f);
    free(f);
}

/* What an engine on a GPU is not made for, each with its sentence. */
static void test_refused(void **state) {
    fixture *f = (fixture *)malloc(sizeof *f);
    mgv_engine_desc desc = engine_desc();
    mgv_engine *engine = NULL;
    void *rows;
    (void)state;
    begin(f, "qwen3_base");
    desc.max_row_outputs = MGV__MAX_OUTPUTS + 1;
    assert_int_equal(mgv_engine_create(&engine, f->model, &desc, &f->error), MGV_ERROR_CAPACITY);
    assert_non_null(strstr(f->error.message, "max_row_outputs is 129: 128 are allowed"));
    desc.max_row_outputs = 1;
    desc.output_kinds = 1u << MGV_OUTPUT_EMBEDS;
    assert_int_equal(mgv_engine_create(&engine, f->model, &desc, &f->error), MGV_ERROR_UNSUPPORTED);
    assert_string_equal(f->error.message, "the GPU kernel gives no output of kind embeds; use the CPU backend");
    assert_null(engine);
    desc.output_kinds = 0;
    assert_int_equal(mgv_engine_destroy(f->engine), MGV_OK);
    f->engine = NULL;
    assert_int_equal(mgv_engine_create(&f->engine, f->model, &desc, &f->error), MGV_OK); /* room for one output in pageable memory */
    played = f->engine;
    refuse(f, MGV_ERROR_CAPACITY, "output 1: token and layer outputs that are normalised or not in page-locked memory");
    f->encode.output_count = 1;
    check_encode(f);
    assert_int_equal(fake_calls.MallocHost(&rows, sizeof f->rows[0]), cudaSuccess); /* as a graph wants it */
    f->outputs[0].data = (float *)rows;
    fake.capture = cudaStreamCaptureStatusActive;
    fake.graph = (fake_graph *)calloc(1, sizeof *fake.graph);
    assert_int_equal(mgv_encode(f->engine, &f->encode, &f->error), MGV_ERROR_UNSUPPORTED);
    assert_non_null(strstr(f->error.message, "a CUDA graph takes no pictures of any size"));
    free(fake.graph);
    fake.graph = NULL;
    fake.capture = cudaStreamCaptureStatusNone;
    fake_calls.FreeHost(rows);
    f->outputs[0].data = f->rows[0];
    check_encode(f);
    end(f);
    free(f);
}

/* One picture of these sides and frames in the place of the second: refused, nothing is launched, and what was asked before is right. */
static void refuse_picture(fixture *f, uint32_t width, uint32_t height, uint32_t frames, mgv_result expected, const char *sentence) {
    const mgv_image kept = f->images[1];
    const uint32_t launches = fake.launches;
    f->images[1].width = width;
    f->images[1].height = height;
    f->images[1].frames = frames;
    f->images[1].pixels = (uint8_t *)calloc(1, (size_t)(width ? width : 1) * (height ? height : 1) * (frames ? frames : 1) * 3);
    refuse(f, expected, sentence);
    assert_int_equal(fake.launches, launches);
    free((void *)f->images[1].pixels);
    f->images[1] = kept;
    check_encode(f);
}
/* Sizes that the engine has no room for, or no model takes: both numbers are said, and the engine is as it was. */
static void test_sizes_refused(void **state) {
    size_t n;
    (void)state;
    for (n = 0; n < COUNT_OF(names); n++) {
        fixture *f = (fixture *)malloc(sizeof *f);
        mgv_image four[MOST_PICTURES + 1];
        uint32_t side, i;
        begin(f, names[n]);
        side = f->model->config.patch * f->model->config.merge;
        for (i = 0; i <= MOST_PICTURES; i++) four[i] = f->images[1];
        f->encode.images = four;
        f->encode.image_count = MOST_PICTURES + 1;
        refuse(f, MGV_ERROR_CAPACITY, "4 images in one encode; this engine was made for 3");
        f->encode.image_count = 0;
        refuse(f, MGV_ERROR_ARGUMENT, "there are no images");
        f->encode.images = f->images;
        f->encode.image_count = MOST_PICTURES;
        check_encode(f);
        refuse_picture(f, 401, side, 1, MGV_ERROR_CAPACITY, "pixels; this engine was made for 400 x 400");
        refuse_picture(f, side, 401, 1, MGV_ERROR_CAPACITY, "x 401 pixels; this engine was made for 400 x 400");
        refuse_picture(f, 201, 1, 1, MGV_ERROR_ARGUMENT, "image 1: a picture of 201 x 1 pixels: one side is more than 200 times the other");
        refuse_picture(f, 1, 201, 1, MGV_ERROR_ARGUMENT, "image 1: a picture of 1 x 201 pixels: one side is more than 200 times the other");
        refuse_picture(f, 0, side, 2, MGV_ERROR_ARGUMENT, "image 1: a picture of 0 x");
        refuse_picture(f, side, 0, 4, MGV_ERROR_ARGUMENT, "x 0 pixels has nothing in it");
        refuse_picture(f, 8 * side, 8 * side, 1, MGV_ERROR_CAPACITY, "396 tokens up to image 1; this engine was made for 300");
        refuse_picture(f, side, side, 600, MGV_ERROR_CAPACITY, "image 1: a picture of 1200 tokens; this engine was made for 300");
        f->images[1].pixels = NULL;
        refuse(f, MGV_ERROR_ARGUMENT, "image 1: ");
        f->images[1].pixels = f->pixels[1];
        check_encode(f);
        end(f);
        free(f);
    }
}

/* Pictures of 200 to 1 are encoded; of more patches a side than positions turn for they are refused, though there is room for them. */
static void test_long_pictures(void **state) {
    fixture *f = (fixture *)malloc(sizeof *f);
    mgv_engine_desc desc = engine_desc();
    mgv_engine *small;
    uint32_t side;
    (void)state;
    begin(f, "qwen3_base");
    small = f->engine;
    side = f->model->config.patch * f->model->config.merge;
    desc.max_tokens = 2000;
    desc.max_width = 200 * side;
    desc.max_pixels = (uint64_t)1 << 31;
    desc.min_pixels = 1;
    if (mgv_engine_create(&f->engine, f->model, &desc, &f->error) != MGV_OK) fail_msg("%s", f->error.message);
    played = f->engine;
    f->encode.output_count = 1;
    f->images[1].width = 200 * side;
    f->images[1].height = side;
    free(f->pixels[1]);
    f->images[1].pixels = f->pixels[1] = rule_bytes(9, (size_t)200 * side * side * 3);
    assert_int_equal(mgv_engine_grid(f->engine, &f->images[1], &f->grids[1], &f->error), MGV_OK);
    assert_int_equal(f->grids[1].w, 400);
    f->encode.image_count = 2;
    memset(f->rows, 0xFF, sizeof f->rows);
    if (mgv_encode_blocking(f->engine, &f->encode, &f->error) != MGV_OK) fail_msg("%s", f->error.message);
    check_rows(f, 0);
    f->images[1].width = 2049 * side;
    f->images[1].height = 11 * side;
    assert_int_equal(mgv__gpu_check_varlen(f->engine, &f->images[1], 1, &f->error), MGV_ERROR_CAPACITY); /* an engine would take a GB */
    assert_string_equal(f->error.message, "image 1: 4098 x 22 patches; the GPU kernel takes up to 4096 a side");
    f->encode.image_count = 1;
    check_encode(f);
    assert_int_equal(mgv_engine_destroy(f->engine), MGV_OK);
    f->engine = small;
    end(f);
    free(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sizes_refused),   cmocka_unit_test(test_long_pictures),
                                       cmocka_unit_test(test_mixed_sizes),     cmocka_unit_test(test_memory_of_the_card),
                                       cmocka_unit_test(test_resized),         cmocka_unit_test(test_every_call_fails),
                                       cmocka_unit_test(test_creation_fails),  cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_precisions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
