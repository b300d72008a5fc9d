/* mgv_engine_desc.schedule_images: whatever the number of pictures, the arithmetic is that of so many. */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_CUDA
#define MEGAVIT_NO_CUDART
#include "megavit.h"

#include "support.h"
#include "plan_model.h"
#include "fake_kernel.h"
#include "micro_siglip.h"

enum { MAX_IMAGES = 3, IMAGE_BYTES = 3 * MICRO_SIDE * MICRO_SIDE, CLUSTERS = 66, LATENCY_CLUSTERS = 30 };
static const char kernels[] = "stands for megavit.fatbin";

/* ---- the plan ---- */

static mgv__plan *plan_for(const plan_model *m, uint32_t images, uint32_t schedule_images) {
    mgv_result result;
    mgv_error error;
    mgv__plan *plan = mgv__plan_make(&m->model.allocator, MGV_PRECISION_AUTO, &m->model.config, &m->model.program, images, images, &result,
                                     &error);
    if (!plan) fail_msg("%s", error.message);
    if (mgv__plan_latency_supported(plan)) plan->latency_clusters = LATENCY_CLUSTERS;
    plan->schedule_images = schedule_images;
    mgv__plan_schedule(plan, images, CLUSTERS);
    if (mgv__plan_validate(plan, plan->counts, &error) != MGV_OK) fail_msg("%u images as %u: %s", images, schedule_images, error.message);
    return plan;
}

/* In which order an operation adds: everything of a tile that says it. Tiles of a GEMM go through K in the same steps whatever their
   width. */
static uint32_t order_of_sums(const mgv__plan *plan, uint32_t op) {
    const mgv__kernel_op *k = &plan->ops[op].kernel;
    uint32_t kind = k->kind;
    if (!k->column_tiles) return 0;
    if (kind >= MGV__KERNEL_GEMM_256 && kind <= MGV__KERNEL_GEMM_64) kind = MGV__KERNEL_GEMM_256;
    return 1 + kind + 64 * k->stats_columns + 65536 * (kind == MGV__KERNEL_GEMV ? k->of.gemv.parts_log2 : 0) +
           1048576 * (kind == MGV__KERNEL_SHARES ? k->of.shares.count : 0);
}
static int same_arithmetic(const mgv__plan *a, const mgv__plan *b) {
    uint32_t i;
    assert_int_equal(a->op_count, b->op_count);
    if (a->regime != b->regime) return 0;
    for (i = 0; i < a->op_count; i++)
        if (order_of_sums(a, i) != order_of_sums(b, i)) return 0;
    return 1;
}

static void check_shape(uint32_t side, uint32_t patch, uint32_t hidden, uint32_t intermediate, uint32_t heads) {
    static const uint32_t all[] = {1, 2, 5, 8, 20, 24, 48, 64, 600};
    static plan_model m;
    mgv__config config;
    uint32_t i, images, others = 0;
    memset(&config, 0, sizeof config);
    config.family = MGV_FAMILY_SIGLIP;
    config.hidden = hidden;
    config.intermediate = intermediate;
    config.layers = 2;
    config.heads = heads;
    config.head_dim = hidden / heads;
    config.channels = 3;
    config.patch = patch;
    config.image_size = side;
    config.merge = config.temporal_patch = 1;
    config.epsilon = 1e-6f;
    config.activation = MGV__ACT_GELU_TANH;
    config.use_head = 1;
    config.pixels.do_resize = config.pixels.do_rescale = config.pixels.do_normalize = 1;
    plan_model_make(&m, &config, 0);
    for (i = 0; i < COUNT_OF(all); i++) {
        mgv__plan *whole = plan_for(&m, all[i], 0);
        for (images = 1; images <= all[i]; images += images < 70 ? 1 : 61) {
            mgv__plan *few = plan_for(&m, images, all[i]), *own = plan_for(&m, images, 0);
            assert_true(same_arithmetic(whole, few));
            others += !same_arithmetic(whole, own);
            mgv__plan_free(&m.model.allocator, few);
            mgv__plan_free(&m.model.allocator, own);
        }
        mgv__plan_free(&m.model.allocator, whole);
    }
    assert_true(others > 0); /* there is something to choose */
    plan_model_free(&m);
}

/* What is said of a few tokens is what an engine for more of them does. */
static void check_asked(const mgv_model *model) {
    mgv_schedule_desc desc;
    mgv_schedule_info own, few;
    mgv_error error;
    memset(&desc, 0, sizeof desc);
    desc.tokens = 64;
    if (mgv_model_get_schedule(model, &desc, &own, NULL, 0, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_string_equal(own.regime, "latency");
    desc.schedule_images = 1;
    if (mgv_model_get_schedule(model, &desc, &few, NULL, 0, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_string_equal(few.regime, "latency");
    desc.schedule_images = 64;
    if (mgv_model_get_schedule(model, &desc, &few, NULL, 0, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_string_equal(few.regime, "throughput");
    desc.schedule_images = UINT32_MAX / 64 + 1;
    assert_int_equal(mgv_model_get_schedule(model, &desc, &few, NULL, 0, &error), MGV_ERROR_CAPACITY);
    assert_non_null(strstr(error.message, "67108864 images of 64 tokens are more than an engine can count"));
}

/* A tower of pictures of any size, whose plan counts tokens: of Qwen3-VL's 2B. */
static void test_any_size(void **state) {
    static const uint32_t tokens[] = {4, 64, 256, 260, 1024, 2004, 4096};
    static plan_model m;
    mgv__config config;
    mgv__plan *whole;
    uint32_t i, others = 0;
    (void)state;
    memset(&config, 0, sizeof config);
    config.family = MGV_FAMILY_QWEN3_VL;
    config.hidden = 1024;
    config.intermediate = 4096;
    config.layers = 2;
    config.heads = 16;
    config.head_dim = 64;
    config.channels = 3;
    config.patch = 16;
    config.merge = config.temporal_patch = 2;
    config.position_side = 48;
    config.out_hidden = 2048;
    config.rope_theta = 10000;
    config.epsilon = 1e-6f;
    config.activation = MGV__ACT_GELU_TANH;
    config.pixels.do_resize = config.pixels.do_rescale = config.pixels.do_normalize = 1;
    plan_model_make(&m, &config, 0);
    whole = plan_for(&m, 4096, 0);
    for (i = 0; i < COUNT_OF(tokens); i++) {
        mgv__plan *few = plan_for(&m, tokens[i], 4096), *own = plan_for(&m, tokens[i], 0);
        assert_true(few->varlen);
        assert_true(same_arithmetic(whole, few));
        others += !same_arithmetic(whole, own);
        mgv__plan_free(&m.model.allocator, few);
        mgv__plan_free(&m.model.allocator, own);
    }
    assert_true(others > 0);
    mgv__plan_free(&m.model.allocator, whole);
    check_asked(&m.model);
    plan_model_free(&m);
}

static void test_plans(void **state) {
    (void)state;
    check_shape(224, 16, 768, 3072, 12);  /* base */
    check_shape(384, 16, 768, 3072, 12);
    check_shape(256, 16, 1024, 4096, 16); /* large */
    check_shape(384, 14, 1152, 4304, 16); /* so400m */
}

/* ---- the engine, on the CUDA runtime of fake_cuda.h ---- */

typedef struct fixture {
    micro_siglip micro;
    mgv_model *model;
    uint8_t pixels[MAX_IMAGES * IMAGE_BYTES];
    float pooled[MAX_IMAGES * MICRO_WIDTH];
} fixture;

static int set_up(void **state) {
    fixture *f = (fixture *)calloc(1, sizeof *f);
    mgv_error error;
    size_t i;
    micro_make(&f->micro, 1);
    f->model = micro_open(&f->micro, &error);
    if (!f->model) fail_msg("%s", error.message);
    for (i = 0; i < sizeof f->pixels; i++) f->pixels[i] = (uint8_t)(i * 2654435761u >> 13);
    mgv__cuda_test_calls = &fake_calls;
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

static mgv_result make_engine(const fixture *f, mgv_backend backend, uint32_t schedule_images, mgv_engine **engine, mgv_error *error) {
    mgv_engine_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.backend = backend;
    desc.max_images = MAX_IMAGES;
    desc.kernels = kernels;
    desc.schedule_images = schedule_images;
    return mgv_engine_create(engine, f->model, &desc, error);
}
static void encode(fixture *f, mgv_engine *engine, uint32_t count) {
    mgv_image images[MAX_IMAGES];
    mgv_output output;
    mgv_encode_desc desc;
    mgv_error error;
    uint32_t i;
    memset(images, 0, sizeof images);
    memset(&output, 0, sizeof output);
    memset(&desc, 0, sizeof desc);
    for (i = 0; i < count; i++) {
        images[i].pixels = f->pixels + i * IMAGE_BYTES;
        images[i].width = images[i].height = MICRO_SIDE;
    }
    output.data = f->pooled;
    output.capacity = COUNT_OF(f->pooled);
    desc.images = images;
    desc.image_count = count;
    desc.outputs = &output;
    desc.output_count = 1;
    memset(f->pooled, 0xFF, sizeof f->pooled);
    if (mgv_encode_blocking(engine, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
}

/* Rows of few pictures go to the host by the kernel's own stores, which only a GEMV has. */
static void test_rows_arrive(void **state) {
    static const uint32_t counts[] = {0, MAX_IMAGES, MGV__GEMV_MAX_ROWS, MGV__GEMV_MAX_ROWS + 1, 64};
    fixture *f = (fixture *)*state;
    size_t c;
    for (c = 0; c < COUNT_OF(counts); c++) {
        mgv_engine *engine;
        mgv_error error;
        uint32_t images, i;
        fake_reset();
        fake.kernel = fake_kernel;
        if (make_engine(f, MGV_BACKEND_CUDA, counts[c], &engine, &error) != MGV_OK) fail_msg("%s", error.message);
        fake_engines[0] = engine;
        for (images = 1; images <= MAX_IMAGES; images++) {
            encode(f, engine, images);
            for (i = 0; i < images; i++)
                assert_true(f->pooled[i * MICRO_WIDTH] == fake_pooled(f->pixels + i * IMAGE_BYTES, IMAGE_BYTES, 0));
        }
        assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
    }
    assert_int_equal(fake_alive(), 0);
}

static void test_refused(void **state) {
    fixture *f = (fixture *)*state;
    mgv_schedule_desc desc;
    mgv_schedule_info whole, few;
    mgv_engine *engine;
    mgv_error error;
    fake_reset();
    assert_int_equal(make_engine(f, MGV_BACKEND_AUTO, MAX_IMAGES - 1, &engine, &error), MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "schedule_images is 2, less than the 3 pictures"));
    memset(&desc, 0, sizeof desc);
    desc.image_count = 2;
    desc.schedule_images = 1;
    assert_int_equal(mgv_model_get_schedule(f->model, &desc, &few, NULL, 0, &error), MGV_ERROR_ARGUMENT);
    desc.schedule_images = 64;
    assert_int_equal(mgv_model_get_schedule(f->model, &desc, &few, NULL, 0, &error), MGV_OK);
    desc.image_count = 64;
    assert_int_equal(mgv_model_get_schedule(f->model, &desc, &whole, NULL, 0, &error), MGV_OK);
    assert_string_equal(few.regime, "throughput");
    assert_true(few.us < whole.us && few.tiles < whole.tiles); /* pictures that are not there cost nothing */
}

/* The CPU has one way to calculate. */
static void test_cpu(void **state) {
    fixture *f = (fixture *)*state;
    float rows[2][MICRO_WIDTH];
    uint32_t i;
    for (i = 0; i < 2; i++) {
        mgv_engine *engine;
        mgv_error error;
        if (make_engine(f, MGV_BACKEND_CPU, i ? 64 : 0, &engine, &error) != MGV_OK) fail_msg("%s", error.message);
        encode(f, engine, 1 + i);
        memcpy(rows[i], f->pooled, sizeof rows[i]);
        assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
    }
    assert_memory_equal(rows[0], rows[1], sizeof rows[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_any_size), cmocka_unit_test(test_rows_arrive), cmocka_unit_test(test_refused), cmocka_unit_test(test_cpu)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
