/* Every CUDA call fails, once and from there on, with errors that pass and errors that end the context, in every phase of an engine's life.
   Each failure is said in a sentence, nothing is lost or left behind, rows are right whenever a call says so, and after one error that
   passes the engine works again. */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_CUDA
#define MEGAVIT_NO_CUDART
#include "megavit.h"

#include "support.h"
#include "fake_kernel.h"
#include "memory_model.h"

enum { SIDE = 16, IMAGE_BYTES = 3 * SIDE * SIDE, WIDTH = 64, TOKENS = 4, MAX_IMAGES = 3 };
static const char kernels[] = "stands for megavit.fatbin";

typedef struct scene {
    memory_model files;
    mgv_model *model;
    counting_allocator counts;
    uint8_t *pinned, *device;         /* pictures, then room for rows */
    uint8_t pixels[MAX_IMAGES * IMAGE_BYTES];
    float rows[MAX_IMAGES * TOKENS * WIDTH];
    fake_graph graph;
    mgv_engine *engine;
    mgv_image images[MAX_IMAGES];
    mgv_output output;
    mgv_encode_desc desc;
    int captured;                     /* the graph holds an encode of the first picture, from and to pinned memory */
} scene;

static int set_up(void **state) {
    scene *s = (scene *)calloc(1, sizeof *s);
    mgv_error error;
    size_t i;
    small_siglip(&s->files);
    if (memory_model_open(&s->files, NULL, &s->model, &error) != MGV_OK) fail_msg("%s", error.message);
    for (i = 0; i < sizeof s->pixels; i++) s->pixels[i] = (uint8_t)(i * 2654435761u >> 13);
    *state = s;
    return 0;
}
static int tear_down(void **state) {
    scene *s = (scene *)*state;
    mgv_model_close(s->model);
    memory_model_free(&s->files);
    free(s);
    return 0;
}

/* An encode of `count` pictures in host memory into s->rows. */
static void make_work(scene *s, uint32_t count, mgv_output_kind kind) {
    uint32_t i;
    memset(s->images, 0, sizeof s->images);
    memset(&s->output, 0, sizeof s->output);
    memset(&s->desc, 0, sizeof s->desc);
    for (i = 0; i < count; i++) {
        s->images[i].pixels = s->pixels + i * IMAGE_BYTES;
        s->images[i].width = s->images[i].height = SIDE;
    }
    s->output.kind = kind;
    s->output.data = s->rows;
    s->output.capacity = COUNT_OF(s->rows);
    s->desc.images = s->images;
    s->desc.image_count = count;
    s->desc.outputs = &s->output;
    s->desc.output_count = 1;
    memset(s->rows, 0xFF, sizeof s->rows);
}
/* The rows of that encode, once it is done. */
static void check_rows(const scene *s, const float *rows) {
    uint32_t i;
    if (s->output.kind == MGV_OUTPUT_TOKENS) {
        for (i = 0; i < s->desc.image_count * TOKENS * WIDTH; i++) assert_true(rows[i] == fake_row(MGV__ROWS_TOKENS_OUTPUT, i));
        return;
    }
    for (i = 0; i < s->desc.image_count * WIDTH; i++)
        assert_true(rows[i] == fake_pooled(s->pixels + i / WIDTH * IMAGE_BYTES, IMAGE_BYTES, i % WIDTH));
}
/* A call that failed says why. */
static void check_error(mgv_result result, const mgv_error *error) {
    if (result == MGV_OK) return;
    assert_int_equal(error->code, result);
    assert_true(error->message[0] != '\0');
}
/* What mgv_wait says of the encode under way. */
static mgv_result wait_for(scene *s, uint32_t timeout_ms, const float *rows) {
    mgv_error error;
    const mgv_result result = mgv_wait(s->engine, timeout_ms, &error);
    check_error(result, &error);
    if (result == MGV_OK) check_rows(s, rows);
    return result;
}

/* ---- the phases of an engine's life ---- */

static void phase_encode(scene *s) {
    mgv_error error;
    mgv_result result;
    make_work(s, 2, MGV_OUTPUT_POOLED);
    result = mgv_encode_blocking(s->engine, &s->desc, &error);
    check_error(result, &error);
    if (result == MGV_OK) check_rows(s, s->rows);
}

/* The card takes its time: polled and waited for meanwhile. */
static void phase_poll(scene *s) {
    mgv_error error;
    mgv_status status;
    mgv_result result;
    make_work(s, 1, MGV_OUTPUT_POOLED);
    result = mgv_encode(s->engine, &s->desc, &error);
    check_error(result, &error);
    if (result != MGV_OK) return;
    fake.held = 1;
    status = mgv_poll(s->engine, &error);
    if (status == MGV_STATUS_FAILED) assert_true(error.message[0] != '\0');
    assert_int_not_equal(wait_for(s, 0, s->rows), MGV_OK);
    make_work(s, 1, MGV_OUTPUT_POOLED);
    assert_int_not_equal(mgv_encode(s->engine, &s->desc, &error), MGV_OK); /* busy, or lost */
    assert_true(error.message[0] != '\0');
    fake.held = 0;
    status = mgv_poll(s->engine, &error);
    if (status == MGV_STATUS_DONE) check_rows(s, s->rows);
    wait_for(s, 5, s->rows);
}

/* Token rows of three pictures, by way of memory of the engine; then rows and pictures that stay on the card. */
static void phase_rows(scene *s) {
    mgv_error error;
    mgv_result result;
    uint32_t i;
    make_work(s, 3, MGV_OUTPUT_TOKENS);
    result = mgv_encode_blocking(s->engine, &s->desc, &error);
    check_error(result, &error);
    if (result == MGV_OK) check_rows(s, s->rows);
    make_work(s, 3, MGV_OUTPUT_POOLED);
    memcpy(s->device, s->pixels, sizeof s->pixels);
    for (i = 0; i < 3; i++) {
        s->images[i].pixels = s->device + i * IMAGE_BYTES;
        s->images[i].place = MGV_PLACE_DEVICE;
    }
    s->output.data = (float *)(void *)(s->device + 8192);
    s->output.place = MGV_PLACE_DEVICE;
    result = mgv_encode_blocking(s->engine, &s->desc, &error);
    check_error(result, &error);
    if (result == MGV_OK) check_rows(s, s->output.data);
}

static void phase_capture(scene *s) {
    mgv_error error;
    mgv_result result;
    make_work(s, 1, MGV_OUTPUT_POOLED);
    memcpy(s->pinned, s->pixels, IMAGE_BYTES);
    s->images[0].pixels = s->pinned;
    s->output.data = (float *)(void *)(s->pinned + 8192);
    memset(&s->graph, 0, sizeof s->graph);
    fake.graph = &s->graph;
    fake.capture = cudaStreamCaptureStatusActive;
    result = mgv_encode(s->engine, &s->desc, &error);
    check_error(result, &error);
    mgv_poll(s->engine, &error);
    s->captured = result == MGV_OK && fake.capture == cudaStreamCaptureStatusActive;
    fake.capture = cudaStreamCaptureStatusNone;
    fake.graph = NULL;
}

static void phase_replay(scene *s) {
    int i;
    for (i = 0; i < 2 && s->captured; i++) {
        fake_replay(&s->graph);
        check_rows(s, s->output.data);
        wait_for(s, 5, s->output.data);
    }
}

static void (*const phases[])(scene *) = {phase_encode, phase_poll, phase_rows, phase_capture, phase_replay};

static mgv_result create(scene *s, mgv_error *error) {
    mgv_engine_desc desc;
    mgv_result result;
    memset(&desc, 0, sizeof desc);
    desc.backend = MGV_BACKEND_CUDA;
    desc.max_images = MAX_IMAGES;
    desc.max_row_outputs = 1;
    desc.kernels = kernels;
    mgv__cuda_test_calls = &fake_calls;
    desc.allocator = counting_allocator_make(&s->counts);
    result = mgv_engine_create(&s->engine, s->model, &desc, error);
    fake_engines[0] = s->engine;
    return result;
}

/* One life in which call number `at` fails with `code`, with `from` every later one too. Returns the number of calls that it made. */
static uint64_t live(scene *s, uint64_t at, cudaError_t code, int from) {
    mgv_error error;
    mgv_result result;
    uint64_t calls;
    size_t i;
    void *memory;
    fake_reset();
    fake.kernel = fake_kernel;
    fake_allocate(&memory, 1 << 16, FAKE_PINNED_MEMORY);
    s->pinned = (uint8_t *)memory;
    fake_allocate(&memory, 1 << 16, FAKE_DEVICE_MEMORY);
    s->device = (uint8_t *)memory;
    s->captured = 0;
    fake.fail_at = at;
    fake.fail_from = from;
    fake.fail_code = code;
    result = create(s, &error);
    check_error(result, &error);
    assert_int_equal(result == MGV_OK, s->engine != NULL);
    for (i = 0; i < COUNT_OF(phases) && result == MGV_OK; i++) phases[i](s);
    calls = fake.calls;
    fake.fail_at = 0; /* whatever was wrong with the card has passed */
    if (result == MGV_OK) {
        mgv_wait(s->engine, 1000, &error);
        make_work(s, 2, MGV_OUTPUT_POOLED);
        result = mgv_encode_blocking(s->engine, &s->desc, &error);
        if (result == MGV_OK) check_rows(s, s->rows);
        else if (result != MGV_ERROR_DEVICE_LOST || (!from && !mgv__cuda_is_lost(code)))
            fail_msg("call %llu (%s) failed%s with %d: afterwards %s", (unsigned long long)at, fake.failed, from ? " from there on" : "",
                     (int)code, error.message);
        fake.fail_at = fake.calls + 1 + at % 4; /* and comes back while the engine is destroyed */
        assert_int_equal(mgv_engine_destroy(s->engine), MGV_OK);
        fake.fail_at = 0;
    }
    fake_engines[0] = NULL;
    assert_int_equal(s->counts.live_blocks, 0);
    fake_release(s->pinned, FAKE_PINNED_MEMORY);
    fake_release(s->device, FAKE_DEVICE_MEMORY);
    assert_int_equal(fake_alive(), 0);
    return calls;
}

static void test_every_call_fails(void **state) {
    static const cudaError_t codes[] = {cudaErrorInvalidValue, cudaErrorMemoryAllocation, cudaErrorNotReady, cudaErrorLaunchFailure};
    scene *s = (scene *)*state;
    const uint64_t calls = live(s, 0, cudaErrorInvalidValue, 0);
    size_t c;
    int from;
    assert_true(calls > 100);
    assert_true(s->captured);
    for (c = 0; c < COUNT_OF(codes); c++)
        for (from = 0; from < 2; from++) {
            uint64_t at;
            for (at = 1; at <= calls + 1; at++) live(s, at, codes[c], from);
        }
}

/* What stands in the manual of mgv_encode, of looking at the card: the encode says what went wrong once the stream has gone through it. */
static void test_a_passing_error_of_mgv_poll(void **state) {
    static const char *const names[] = {"cudaEventQuery", "cudaGetDevice", "cudaThreadExchangeStreamCaptureMode"};
    scene *s = (scene *)*state;
    size_t i;
    for (i = 0; i < COUNT_OF(names); i++) {
        mgv_error error;
        fake_reset();
        fake.kernel = fake_kernel;
        assert_int_equal(create(s, &error), MGV_OK);
        make_work(s, 1, MGV_OUTPUT_POOLED);
        assert_int_equal(mgv_encode(s->engine, &s->desc, &error), MGV_OK);
        fake.held = 1;
        fake.fail_name = names[i];
        assert_int_equal(mgv_poll(s->engine, &error), MGV_STATUS_RUNNING);
        fake.fail_name = NULL;
        assert_int_equal(mgv_poll(s->engine, &error), MGV_STATUS_RUNNING);
        assert_int_equal(mgv_encode(s->engine, &s->desc, &error), MGV_ERROR_BUSY);
        assert_int_equal(mgv_wait(s->engine, 0, &error), MGV_ERROR_BUSY);
        fake.held = 0;
        assert_int_equal(mgv_poll(s->engine, &error), MGV_STATUS_FAILED);
        assert_int_equal(error.code, MGV_ERROR_DEVICE);
        assert_non_null(strstr(error.message, names[i]));
        assert_int_equal(mgv_wait(s->engine, 0, &error), MGV_ERROR_DEVICE);
        phase_encode(s); /* checks the rows */
        assert_int_equal(mgv_poll(s->engine, &error), MGV_STATUS_DONE);
        /* One that does not pass does not hang, and costs the engine as little once it has passed. */
        make_work(s, 1, MGV_OUTPUT_POOLED);
        assert_int_equal(mgv_encode(s->engine, &s->desc, &error), MGV_OK);
        fake.held = 1;
        fake.fail_name = names[i];
        assert_int_equal(mgv_wait(s->engine, 0xFFFFFFFFu, &error), MGV_ERROR_DEVICE);
        assert_int_equal(mgv_encode(s->engine, &s->desc, &error), MGV_ERROR_DEVICE);
        fake.fail_name = NULL;
        assert_int_equal(mgv_encode(s->engine, &s->desc, &error), MGV_ERROR_BUSY);
        assert_int_equal(mgv_wait(s->engine, 0, &error), MGV_ERROR_BUSY);
        fake.held = 0;
        assert_int_equal(mgv_wait(s->engine, 0, &error), MGV_ERROR_DEVICE);
        assert_non_null(strstr(error.message, names[i]));
        phase_encode(s);
        assert_int_equal(mgv_poll(s->engine, &error), MGV_STATUS_DONE);
        assert_int_equal(mgv_engine_destroy(s->engine), MGV_OK);
        assert_int_equal(fake_alive(), 0);
    }
}

/* Rows that are no numbers, wherever they come by: pooled, staged, and where the kernel writes them itself. */
static uint32_t spoiled; /* the element that is */
static void spoiling_kernel(const void *argument) {
    const mgv__kernel_arguments *arguments = (const mgv__kernel_arguments *)argument;
    const uint32_t bits = 0x7FC00000u;
    fake_kernel(argument);
    memcpy((float *)(void *)arguments->buffers[MGV__DEVICE_POOLED] + spoiled, &bits, 4);
    if (arguments->outputs[0]) memcpy(arguments->outputs[0] + spoiled, &bits, 4);
}
static void test_rows_that_are_no_numbers(void **state) {
    scene *s = (scene *)*state;
    mgv_error error;
    void *pinned;
    int way;
    fake_reset();
    fake.kernel = spoiling_kernel;
    assert_int_equal(create(s, &error), MGV_OK);
    fake_allocate(&pinned, sizeof s->rows, FAKE_PINNED_MEMORY);
    for (way = 0; way < 4; way++) {
        make_work(s, 2, way < 2 ? MGV_OUTPUT_POOLED : MGV_OUTPUT_TOKENS);
        s->output.normalize = way == 1;
        if (way == 3) s->output.data = (float *)pinned;
        spoiled = way < 2 ? WIDTH + 5 : (TOKENS + 3) * WIDTH + 5;
        assert_int_equal(mgv_encode_blocking(s->engine, &s->desc, &error), MGV_ERROR_MODEL);
        assert_non_null(strstr(error.message, way < 2 ? "output 0 of image 1 is NaN or infinite at column 5 of row 0"
                                                      : "output 0 of image 1 is NaN or infinite at column 5 of row 3"));
        assert_int_equal(mgv_poll(s->engine, &error), MGV_STATUS_FAILED);
        fake.kernel = fake_kernel;
        phase_encode(s);
        assert_int_equal(mgv_poll(s->engine, &error), MGV_STATUS_DONE);
        fake.kernel = spoiling_kernel;
    }
    assert_int_equal(mgv_engine_destroy(s->engine), MGV_OK);
    fake_release(pinned, FAKE_PINNED_MEMORY);
    assert_int_equal(fake_alive(), 0);
}

/* ---- memory that is not there ---- */

static mgv_result ask_schedule(const mgv_model *model, const mgv_engine_desc *desc, mgv_error *error) {
    mgv_schedule_info info;
    (void)desc;
    return mgv_model_get_schedule(model, NULL, &info, NULL, 0, error);
}
static mgv_result ask_packed_bytes(const mgv_model *model, const mgv_engine_desc *desc, mgv_error *error) {
    uint64_t bytes;
    (void)desc;
    return mgv_model_packed_bytes(model, "sm_90a", &bytes, error);
}
static mgv_result ask_pack(const mgv_model *model, const mgv_engine_desc *desc, mgv_error *error) {
    static uint64_t file[1 << 18];
    (void)desc;
    return mgv_model_pack(model, "sm_90a", file, sizeof file, error);
}
static mgv_result ask_device_workspace(const mgv_model *model, const mgv_engine_desc *desc, mgv_error *error) {
    uint64_t bytes;
    return mgv_engine_device_workspace_bytes(model, desc, &bytes, error);
}
static mgv_result ask_engine(const mgv_model *model, const mgv_engine_desc *desc, mgv_error *error) {
    mgv_engine *engine;
    const mgv_result result = mgv_engine_create(&engine, model, desc, error);
    assert_int_equal(result == MGV_OK, engine != NULL);
    assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
    return result;
}

/* Each allocation of each function fails, alone and with all that follow it. */
static void test_every_allocation_fails(void **state) {
    static const struct {
        mgv_result (*ask)(const mgv_model *, const mgv_engine_desc *, mgv_error *);
        mgv_backend backend;
    } functions[] = {{ask_schedule, MGV_BACKEND_CPU}, {ask_packed_bytes, MGV_BACKEND_CPU}, {ask_pack, MGV_BACKEND_CPU},
                     {ask_device_workspace, MGV_BACKEND_CPU}, {ask_engine, MGV_BACKEND_CPU}, {ask_engine, MGV_BACKEND_CUDA}};
    const scene *s = (const scene *)*state;
    counting_allocator counts;
    const mgv_allocator allocator = counting_allocator_make(&counts);
    mgv_engine_desc desc;
    mgv_model *model;
    mgv_error error;
    uint64_t live;
    size_t i;
    int from;
    fake_reset();
    assert_int_equal(memory_model_open(&s->files, &allocator, &model, &error), MGV_OK);
    live = counts.live_blocks;
    for (i = 0; i < COUNT_OF(functions); i++)
        for (from = 0; from < 2; from++) {
            uint64_t at;
            mgv_result result = MGV_ERROR_NOMEM;
            memset(&desc, 0, sizeof desc);
            desc.backend = functions[i].backend;
            desc.allocator = allocator;
            desc.kernels = kernels;
            mgv__cuda_test_calls = &fake_calls;
            for (at = 1; result != MGV_OK; at++) {
                counts.calls = 0;
                counts.fail_at = at;
                counts.fail_from = from;
                result = functions[i].ask(model, &desc, &error);
                check_error(result, &error);
                if (result != MGV_OK) assert_int_equal(result, MGV_ERROR_NOMEM);
                else assert_true(counts.calls < at);
                assert_int_equal(counts.live_blocks, live);
                assert_int_equal(fake_alive(), 0);
            }
            assert_true(at > 2); /* something was allocated */
        }
    counts.fail_at = 0;
    mgv_model_close(model);
    assert_int_equal(counts.live_blocks, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_call_fails, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_passing_error_of_mgv_poll, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_rows_that_are_no_numbers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_every_allocation_fails, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
