/* Pictures of the model's size on a GPU without one (tests/fake_cuda.h): those in device memory, page-locked and prepared ones are read
   where they lie, if they lie as the kernel reads them; each way of lying otherwise is refused, or they are made ready on the host. */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_CUDA
#define MEGAVIT_NO_CUDART
#include "megavit.h"

#include "support.h"
#include "fake_kernel.h"
#include "micro_siglip.h"

enum { IMAGE_BYTES = 3 * MICRO_SIDE * MICRO_SIDE };

typedef struct fixture {
    micro_siglip micro;
    mgv_model *model;
    mgv_engine *engine;
    uint8_t *memory; /* of the card, or page-locked: a picture with room behind it */
    mgv_image image;
    mgv_output output;
    mgv_encode_desc encode;
    float pooled[MICRO_WIDTH];
    mgv_error error;
} fixture;

static void begin(fixture *f, int on_card) {
    mgv_engine_desc desc;
    void *memory;
    uint32_t i;
    memset(f, 0, sizeof *f);
    micro_make(&f->micro, 1);
    f->model = micro_open(&f->micro, &f->error);
    if (!f->model) fail_msg("%s", f->error.message);
    fake_reset();
    fake.kernel = fake_kernel;
    mgv__cuda_test_calls = &fake_calls;
    memset(&desc, 0, sizeof desc);
    desc.backend = MGV_BACKEND_CUDA;
    desc.max_images = 1;
    desc.kernels = "stands for megavit.fatbin";
    if (mgv_engine_create(&f->engine, f->model, &desc, &f->error) != MGV_OK) fail_msg("%s", f->error.message);
    fake_engines[0] = f->engine;
    assert_int_equal(on_card ? fake_calls.Malloc(&memory, 2 * IMAGE_BYTES) : fake_calls.MallocHost(&memory, 2 * IMAGE_BYTES), cudaSuccess);
    f->memory = (uint8_t *)memory;
    for (i = 0; i < 2 * IMAGE_BYTES; i++) f->memory[i] = (uint8_t)(i * 2654435761u >> 13);
    f->image.pixels = f->memory;
    f->image.width = f->image.height = MICRO_SIDE;
    f->image.place = on_card ? MGV_PLACE_DEVICE : MGV_PLACE_HOST;
    f->output.data = f->pooled;
    f->output.capacity = MICRO_WIDTH;
    f->encode.images = &f->image;
    f->encode.image_count = 1;
    f->encode.outputs = &f->output;
    f->encode.output_count = 1;
}
static void end(fixture *f) {
    assert_int_equal(mgv_engine_destroy(f->engine), MGV_OK);
    if (f->image.place == MGV_PLACE_DEVICE) fake_calls.Free(f->memory);
    else fake_calls.FreeHost(f->memory);
    assert_int_equal(fake_alive(), 0);
    mgv_model_close(f->model);
    micro_free(&f->micro);
}
/* What the kernel was given is the picture, byte by byte. */
static void encode(fixture *f) {
    memset(f->pooled, 0xFF, sizeof f->pooled);
    if (mgv_encode_blocking(f->engine, &f->encode, &f->error) != MGV_OK) fail_msg("%s", f->error.message);
    assert_true(f->pooled[5] == fake_pooled(f->memory, IMAGE_BYTES, 5));
}

/* Pictures that do not lie as the kernel reads them. */
static void change(mgv_image *image, uint32_t way) {
    if (way == 0) image->stride = 3 * MICRO_SIDE + 3;
    if (way == 1) image->format = MGV_PIXELS_BGR8;
    if (way == 2) image->width--;
    if (way == 3) image->height--;
}
enum { WAYS = 4 };

static void test_device_memory(void **state) {
    fixture *f = (fixture *)malloc(sizeof *f);
    uint32_t way;
    (void)state;
    begin(f, 1);
    encode(f);
    f->image.stride = 3 * MICRO_SIDE;
    encode(f);
    f->image.stride = 0;
    for (way = 0; way < WAYS; way++) {
        const mgv_image as_it_was = f->image;
        change(&f->image, way);
        assert_int_equal(mgv_encode_blocking(f->engine, &f->encode, &f->error), MGV_ERROR_UNSUPPORTED);
        assert_non_null(strstr(f->error.message, "image 0: pictures in device memory must be RGB8 of"));
        f->image = as_it_was;
        encode(f);
    }
    end(f);
    free(f);
}

/* A graph takes none of them, wherever they lie. */
static void test_graphs(void **state) {
    fixture *f = (fixture *)malloc(sizeof *f);
    fake_graph *graph = (fake_graph *)calloc(1, sizeof *graph);
    void *pooled;
    uint32_t way;
    (void)state;
    begin(f, 0);
    encode(f); /* which brings the schedule there */
    assert_int_equal(fake_calls.MallocHost(&pooled, sizeof f->pooled), cudaSuccess);
    f->output.data = (float *)pooled;
    for (way = 0; way <= WAYS; way++) {
        const mgv_image as_it_was = f->image;
        mgv_result result;
        change(&f->image, way);
        if (way == WAYS) f->image.stride = 3 * MICRO_SIDE; /* which is how they lie */
        memset(graph, 0, sizeof *graph);
        fake.graph = graph;
        fake.capture = cudaStreamCaptureStatusActive;
        result = mgv_encode(f->engine, &f->encode, &f->error);
        fake.capture = cudaStreamCaptureStatusNone;
        fake.graph = NULL;
        f->image = as_it_was;
        if (way == WAYS) {
            if (result != MGV_OK) fail_msg("%s", f->error.message);
            continue;
        }
        assert_int_equal(result, MGV_ERROR_UNSUPPORTED);
        assert_non_null(strstr(f->error.message, "image 0: a CUDA graph takes RGB8 pictures of"));
    }
    fake_calls.FreeHost(pooled);
    end(f);
    free(f);
    free(graph);
}

/* Prepared pictures in page-locked memory are not copied; where that cannot be asked, the encode fails and the next one is right. */
static void test_prepared(void **state) {
    fixture *f = (fixture *)malloc(sizeof *f);
    uint64_t n, failures = 0;
    (void)state;
    begin(f, 0);
    f->image.prepared = 1;
    encode(f);
    f->image.stride = 3 * MICRO_SIDE;
    encode(f);
    for (n = 1;; n++) {
        fake.failed = NULL;
        fake.fail_at = fake.calls + n;
        if (mgv_encode_blocking(f->engine, &f->encode, &f->error) != MGV_OK) {
            failures++;
            assert_int_equal(strncmp(f->error.message, fake.failed, strlen(fake.failed)), 0);
        }
        fake.fail_at = 0;
        if (!fake.failed || f->engine->gpu->lost) break;
        encode(f);
    }
    assert_true(failures > 3 && !f->engine->gpu->lost);
    end(f);
    free(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_device_memory), cmocka_unit_test(test_graphs),
                                       cmocka_unit_test(test_prepared)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
