/* DINOv3, CLIP and SigLIP2 of any size on a GPU without one (tests/fake_cuda.h): rows of patches that the host makes of floats, pixel by
   pixel what the CPU's preprocessing gives; rows that a projection gives, and pooled rows of pictures of several sizes, where they were
   asked for; and what is refused. */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_CUDA
#define MEGAVIT_NO_CUDART
#include "megavit.h"

#include "support.h"
#include "golden.h"
#include "fake_cuda.h"

enum { MOST_PICTURES = 3, MOST_TOKENS = 600, SIDE = 64, PATCH = 16, HIDDEN = 128, EMBEDS = 40, PREFIX = 5 };
#define DINOV3_PROCESSOR(normalize) \
    "{\"do_normalize\": " normalize ", \"do_rescale\": true, \"do_resize\": true, \"image_mean\": [0.485, 0.456, 0.406], " \
    "\"image_processor_type\": \"DINOv3ViTImageProcessor\", \"image_std\": [0.229, 0.224, 0.225], \"resample\": 2, " \
    "\"rescale_factor\": 0.00392156862745098, \"size\": {\"height\": 64, \"width\": 64}}"

typedef struct fixture {
    golden g;
    mgv_model *model;
    mgv_engine *engine;
    uint8_t *pixels[MOST_PICTURES];
    mgv_image images[MOST_PICTURES];
    mgv_output outputs[2];
    mgv_encode_desc encode;
    float pooled[MOST_PICTURES * HIDDEN], embeds[MOST_PICTURES * EMBEDS];
    mgv_error error;
} fixture;
static fixture *played;
static const uint8_t *pixels_read; /* by the last launch */

static float pooled_value(uint32_t picture, uint32_t column) { return (float)(1000 * (picture + 1)) + (float)column; }
static float embeds_value(uint32_t picture, uint32_t column) { return -(float)(500 * (picture + 1)) - (float)column; }

static void family_kernel(const void *argument) {
    const mgv__kernel_arguments *a = (const mgv__kernel_arguments *)argument;
    const mgv__plan *plan = played->engine->gpu->cuda->plan;
    float *pooled = (float *)(void *)a->buffers[MGV__DEVICE_POOLED];
    uint32_t i, k;
    assert_int_equal(*a->aborted, 0);
    pixels_read = a->pixels;
    for (i = 0; i < plan->counter_count; i++) assert_int_equal(a->counters[i], 0);
    for (i = 0; i < played->encode.image_count; i++)
        for (k = 0; k < HIDDEN; k++) pooled[i * HIDDEN + k] = pooled_value(i, k);
    for (k = 0; k < played->engine->gpu->cuda->outputs.count; k++) {
        assert_int_equal(played->engine->gpu->cuda->outputs.layer[k], MGV__ROWS_EMBEDS_OUTPUT);
        for (i = 0; i < played->encode.image_count * EMBEDS; i++) a->outputs[k][i] = embeds_value(i / EMBEDS, i % EMBEDS);
    }
    if (a->next_count) memset(a->aborted + a->next_counters, 0, a->next_count * sizeof *a->counters);
    a->counters[0] = 1;
}

static mgv_result make_engine(fixture *f, mgv_backend backend, uint32_t output_kinds, counting_allocator *counts) {
    mgv_engine_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.backend = backend;
    desc.kernels = "stands for megavit.fatbin";
    desc.max_images = MOST_PICTURES;
    desc.max_tokens = f->model->config.image_size ? 0 : MOST_TOKENS;
    desc.max_width = desc.max_height = 320;
    desc.output_kinds = output_kinds;
    if (counts) {
        desc.allocator.user = counts;
        desc.allocator.alloc = counting_alloc;
        desc.allocator.free = counting_free;
    }
    mgv__cuda_test_calls = &fake_calls;
    fake.kernel = family_kernel;
    return mgv_engine_create(&f->engine, f->model, &desc, &f->error);
}
static void add_picture(fixture *f, uint32_t width, uint32_t height) {
    const uint32_t number = f->encode.image_count++;
    mgv_image *image = &f->images[number];
    f->pixels[number] = rule_bytes(number + 3, (size_t)width * height * 3);
    image->pixels = f->pixels[number];
    image->width = width;
    image->height = height;
}
static void begin(fixture *f, const char *name, const char *preprocessor, uint32_t output_kinds) {
    memset(f, 0, sizeof *f);
    golden_open(&f->g, name);
    if (preprocessor) f->g.preprocessor = preprocessor;
    f->model = golden_open_model(&f->g, "", 1);
    fake_reset();
    if (make_engine(f, MGV_BACKEND_CUDA, output_kinds, NULL) != MGV_OK) fail_msg("%s: %s", name, f->error.message);
    f->encode.images = f->images;
    f->encode.outputs = f->outputs;
    f->encode.output_count = 1;
    f->outputs[0].kind = MGV_OUTPUT_POOLED;
    f->outputs[0].data = f->pooled;
    f->outputs[0].capacity = COUNT_OF(f->pooled);
    played = f;
}
static void end(fixture *f) {
    uint32_t i;
    assert_int_equal(mgv_engine_destroy(f->engine), MGV_OK);
    assert_int_equal(fake_alive(), 0);
    for (i = 0; i < MOST_PICTURES; i++) free(f->pixels[i]);
    mgv_model_close(f->model);
    golden_close(&f->g);
}
static void encode(fixture *f) {
    uint32_t i;
    memset(f->pooled, 0xFF, sizeof f->pooled);
    if (mgv_encode_blocking(f->engine, &f->encode, &f->error) != MGV_OK) fail_msg("%s", f->error.message);
    for (i = 0; i < f->encode.image_count * HIDDEN; i++) assert_true(f->pooled[i] == pooled_value(i / HIDDEN, i % HIDDEN));
}
static void refuse(fixture *f, mgv_result expected, const char *sentence) {
    const mgv_result result = mgv_encode_blocking(f->engine, &f->encode, &f->error);
    if (result != expected || !strstr(f->error.message, sentence))
        fail_msg("%s: %s", sentence, result == MGV_OK ? "taken" : f->error.message);
}

/* ---- floats ---- */

/* What the card has of picture `number`: nothing in the rows of the class and the registers, and in each patch what a byte less 128 would
   be of the CPU's values, rounded to bf16. */
static void check_patches(fixture *f, mgv_engine *cpu, uint32_t number) {
    static const double mean[] = {0.485, 0.456, 0.406}, deviation[] = {0.229, 0.224, 0.225};
    const mgv__plan *plan = f->engine->gpu->cuda->plan;
    const uint16_t *rows = (const uint16_t *)(const void *)(f->engine->gpu->cuda->arena + plan->buffers[MGV__DEVICE_PATCHES].offset);
    float *values = (float *)malloc(3 * SIDE * SIDE * sizeof *values);
    mgv_shape shape;
    uint32_t x, y, c, i;
    const int unresized = f->images[number].width == SIDE && f->images[number].height == SIDE;
    assert_non_null(values);
    if (mgv_preprocess(cpu, &f->images[number], values, 3 * SIDE * SIDE, &shape, &f->error) != MGV_OK) fail_msg("%s", f->error.message);
    rows += (size_t)number * plan->tokens * plan->patch_pitch;
    assert_int_equal(plan->tokens, PREFIX + 16);
    for (i = 0; i < PREFIX * plan->patch_pitch; i++) assert_int_equal(rows[i], 0);
    rows += (size_t)PREFIX * plan->patch_pitch;
    for (y = 0; y < SIDE; y++)
        for (x = 0; x < SIDE; x++)
            for (c = 0; c < 3; c++) {
                const uint32_t patch = y / PATCH * (SIDE / PATCH) + x / PATCH, within = y % PATCH * PATCH + x % PATCH;
                const double got = (double)mgv__float_of_bf16(rows[(size_t)patch * plan->patch_pitch + 3 * within + c]);
                double value = (double)values[((size_t)c * SIDE + y) * SIDE + x];
                if (f->model->config.pixels.do_normalize) value = value * deviation[c] + mean[c];
                value = value * 255 - 128;
                assert_true(fabs(got - value) <= fabs(value) / 256 + 1e-3);
                if (unresized) assert_true(fabs(got - (f->pixels[number][(y * SIDE + x) * 3 + c] - 128.0)) < 1e-3);
            }
    free(values);
}
static void test_floats(void **state) {
    static const char *const processors[] = {DINOV3_PROCESSOR("true"), DINOV3_PROCESSOR("false")};
    fixture *f = (fixture *)malloc(sizeof *f);
    uint32_t p, i;
    (void)state;
    for (p = 0; p < COUNT_OF(processors); p++) {
        mgv_engine *cpu, *gpu;
        begin(f, "dinov3_base", processors[p], 0);
        assert_true(f->model->config.pixels.in_floats);
        gpu = f->engine;
        if (make_engine(f, MGV_BACKEND_CPU, 0, NULL) != MGV_OK) fail_msg("%s", f->error.message);
        cpu = f->engine;
        f->engine = gpu;
        add_picture(f, SIDE, SIDE);
        add_picture(f, 97, 70);
        add_picture(f, 40, 200);
        encode(f);
        for (i = 0; i < MOST_PICTURES; i++) check_patches(f, cpu, i);
        mgv_engine_destroy(cpu);
        end(f);
    }
    free(f);
}

/* Bytes in the card's memory stay what they are; with pictures that become floats they share no encode. Every call fails in turn. */
static void test_floats_beside_bytes(void **state) {
    fixture *f = (fixture *)malloc(sizeof *f);
    void *on_card;
    uint64_t n, failures = 0;
    (void)state;
    begin(f, "dinov3_base", DINOV3_PROCESSOR("true"), 0);
    add_picture(f, SIDE, SIDE);
    add_picture(f, SIDE, SIDE);
    assert_int_equal(fake_calls.Malloc(&on_card, 3 * SIDE * SIDE), cudaSuccess);
    memcpy(on_card, f->pixels[1], 3 * SIDE * SIDE);
    f->images[1].pixels = (uint8_t *)on_card;
    f->images[1].place = MGV_PLACE_DEVICE;
    refuse(f, MGV_ERROR_UNSUPPORTED, "1 of 2 pictures are in host memory: DINOv3ViTImageProcessor makes floats of these; "
                                     "pictures in device memory need another encode");
    f->encode.images = &f->images[1];
    f->encode.image_count = 1;
    encode(f);
    assert_int_equal(f->engine->gpu->cuda->plan->patches_given, 0);
    assert_memory_equal(pixels_read, f->pixels[1], 3 * SIDE * SIDE);
    f->encode.images = f->images;
    encode(f);
    assert_int_equal(f->engine->gpu->cuda->plan->patches_given, 1);
    for (n = 1;; n++) {
        mgv_result result;
        fake.failed = NULL;
        fake.fail_at = fake.calls + n;
        result = mgv_encode_blocking(f->engine, &f->encode, &f->error);
        fake.fail_at = 0;
        if (!fake.failed) break;
        if (result != MGV_OK) {
            failures++;
            assert_int_equal(strncmp(f->error.message, fake.failed, strlen(fake.failed)), 0);
        }
        if (f->engine->gpu->lost) {
            assert_int_equal(mgv_engine_destroy(f->engine), MGV_OK);
            assert_int_equal(make_engine(f, MGV_BACKEND_CUDA, 0, NULL), MGV_OK);
        }
        encode(f);
    }
    assert_true(failures >= 5);
    fake_calls.Free(on_card);
    end(f);
    free(f);
}

/* ---- projected rows ---- */

static void test_embeds(void **state) {
    fixture *f = (fixture *)malloc(sizeof *f);
    double sum = 0;
    void *rows;
    uint32_t i;
    (void)state;
    begin(f, "clip_base", NULL, 1u << MGV_OUTPUT_EMBEDS);
    add_picture(f, 48, 48);
    add_picture(f, 31, 77);
    f->encode.output_count = 2;
    f->outputs[1].kind = MGV_OUTPUT_EMBEDS;
    f->outputs[1].data = f->embeds;
    f->outputs[1].capacity = COUNT_OF(f->embeds);
    encode(f);
    for (i = 0; i < 2 * EMBEDS; i++) assert_true(f->embeds[i] == embeds_value(i / EMBEDS, i % EMBEDS));
    f->outputs[1].normalize = 1;
    encode(f);
    for (i = 0; i < EMBEDS; i++) sum += (double)f->embeds[EMBEDS + i] * (double)f->embeds[EMBEDS + i];
    assert_true(fabs(sum - 1) < 1e-6);
    assert_true(fabs((double)(f->embeds[7] / f->embeds[0]) - (double)(embeds_value(0, 7) / embeds_value(0, 0))) < 1e-6);
    f->outputs[1].normalize = 0;
    assert_int_equal(fake_calls.MallocHost(&rows, sizeof f->embeds), cudaSuccess); /* to where they are wanted */
    f->outputs[1].data = (float *)rows;
    encode(f);
    for (i = 0; i < 2 * EMBEDS; i++) assert_true(((float *)rows)[i] == embeds_value(i / EMBEDS, i % EMBEDS));
    f->outputs[0] = f->outputs[1]; /* twice, and no pooled rows */
    f->outputs[0].data = f->embeds;
    f->outputs[1].data = (float *)rows;
    memset(rows, 0, sizeof f->embeds);
    if (mgv_encode_blocking(f->engine, &f->encode, &f->error) != MGV_OK) fail_msg("%s", f->error.message);
    assert_memory_equal(rows, f->embeds, 2 * EMBEDS * sizeof(float));
    assert_true(f->embeds[EMBEDS + 3] == embeds_value(1, 3));
    fake_calls.FreeHost(rows);
    assert_int_equal(mgv_engine_destroy(f->engine), MGV_OK);
    f->engine = NULL;
    fake.major = 10; /* Blackwell's kernel projects nothing */
    assert_int_equal(make_engine(f, MGV_BACKEND_CUDA, 1u << MGV_OUTPUT_EMBEDS, NULL), MGV_ERROR_UNSUPPORTED);
    assert_string_equal(f->error.message, "the GPU kernel gives no output of kind embeds; use the CPU backend");
    if (make_engine(f, MGV_BACKEND_CUDA, 0, NULL) != MGV_OK) fail_msg("%s", f->error.message);
    f->encode.output_count = 1;
    refuse(f, MGV_ERROR_UNSUPPORTED,
           "output 0: this GPU gives pooled rows, tokens, layers and DeepStack's; use the CPU backend for others");
    f->outputs[0].kind = MGV_OUTPUT_POOLED;
    f->outputs[0].data = f->pooled;
    f->outputs[0].capacity = COUNT_OF(f->pooled);
    encode(f);
    end(f);
    free(f);
}

/* What a projection costs where somebody asks for its rows: FLOPs, weights and rows counted by hand; nothing where nobody does. */
static void test_costs_of_a_projection(void **state) {
    enum { IMAGES = 5, MOST_OPS = 64 };
    golden g;
    mgv_model *model;
    mgv__plan *plan;
    mgv__row_outputs outputs;
    mgv_schedule_info info;
    mgv_schedule_op ops[MOST_OPS];
    mgv_error error;
    mgv_result result;
    double *scratch, without = 0;
    uint32_t asked, i;
    (void)state;
    golden_open(&g, "clip_base");
    model = golden_open_model(&g, "", 1);
    plan = mgv__plan_make(&model->allocator, MGV_PRECISION_AUTO, &model->config, &model->program, IMAGES, IMAGES, &result, &error);
    if (!plan) fail_msg("%s", error.message);
    for (asked = 0; asked < 2; asked++) {
        const mgv_schedule_op *found = NULL;
        memset(&outputs, 0, sizeof outputs);
        outputs.count = asked;
        outputs.layer[0] = MGV__ROWS_EMBEDS_OUTPUT;
        mgv__plan_want(plan, &outputs);
        mgv__plan_schedule(plan, IMAGES, 66);
        if (mgv__plan_validate(plan, plan->counts, &error) != MGV_OK) fail_msg("%s", error.message);
        scratch = (double *)malloc(mgv__schedule_scratch(plan) * sizeof *scratch);
        assert_true(scratch && plan->op_count <= MOST_OPS);
        mgv__schedule_fill(plan, &info, ops, scratch);
        free(scratch);
        for (i = 0; i < info.op_count; i++)
            if (plan->ops[i].kernel.kind == MGV__KERNEL_PROJECT) found = &ops[i];
        assert_non_null(found);
        assert_true(found->flops == asked * 2.0 * IMAGES * HIDDEN * EMBEDS);
        assert_true(asked ? found->tile_flops >= found->flops && found->us > 0 : found->tiles == 0 && found->us == 0);
        if (asked) assert_in_range(found->memory_bytes, 2 * HIDDEN * EMBEDS, 2 * HIDDEN * EMBEDS + 4 * IMAGES * (HIDDEN + EMBEDS));
        if (asked) assert_true(info.tiles_us > without);
        without = info.tiles_us;
    }
    mgv__plan_free(&model->allocator, plan);
    mgv_model_close(model);
    golden_close(&g);
}

/* ---- pictures of any size that are pooled ---- */

static void test_pooled_of_any_size(void **state) {
    fixture *f = (fixture *)malloc(sizeof *f);
    (void)state;
    begin(f, "siglip2_base", NULL, 0);
    add_picture(f, 97, 61);
    add_picture(f, 40, 40);
    add_picture(f, 4, 300);
    encode(f);
    f->encode.image_count = 1;
    encode(f);
    end(f);
    free(f);
}

/* Every call and every allocation of an engine fails in turn, and nothing is left. */
static void check_creation(const char *name, const char *preprocessor, uint32_t output_kinds) {
    fixture *f = (fixture *)malloc(sizeof *f);
    uint64_t n;
    int memory;
    begin(f, name, preprocessor, output_kinds);
    for (memory = 0; memory < 2; memory++)
        for (n = 1;; n++) {
            counting_allocator counts;
            mgv_result result;
            assert_int_equal(mgv_engine_destroy(f->engine), MGV_OK);
            f->engine = NULL;
            fake_reset();
            memset(&counts, 0, sizeof counts);
            if (memory) counts.fail_at = n;
            else fake.fail_at = n;
            result = make_engine(f, MGV_BACKEND_CUDA, output_kinds, &counts);
            fake.fail_at = 0;
            if (result != MGV_OK && memory) assert_int_equal(result, MGV_ERROR_NOMEM);
            if (result != MGV_OK && !memory) assert_int_equal(strncmp(f->error.message, fake.failed, strlen(fake.failed)), 0);
            if (result != MGV_OK) f->engine = NULL;
            if (result == MGV_OK) assert_int_equal(mgv_engine_destroy(f->engine), MGV_OK);
            f->engine = NULL;
            assert_int_equal(fake_alive(), 0);
            assert_int_equal(counts.live_blocks, 0);
            if (memory ? counts.calls < n : !fake.failed) break;
        }
    assert_true(n > 5);
    end(f);
    free(f);
}
static void test_creation_fails(void **state) {
    (void)state;
    check_creation("dinov3_base", DINOV3_PROCESSOR("true"), 0);
    check_creation("clip_base", NULL, 1u << MGV_OUTPUT_EMBEDS);
    check_creation("siglip2_base", NULL, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_floats), cmocka_unit_test(test_floats_beside_bytes),
                                       cmocka_unit_test(test_embeds), cmocka_unit_test(test_costs_of_a_projection),
                                       cmocka_unit_test(test_pooled_of_any_size),
                                       cmocka_unit_test(test_creation_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
