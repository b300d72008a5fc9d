/* The host side of the CUDA backend without a GPU: every CUDA call through a table that this test fills (tests/fake_cuda.h). */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_CUDA
#define MEGAVIT_NO_CUDART
#include "megavit.h"

#include "support.h"
#include "fake_kernel.h"
#include "micro_siglip.h"

enum { MAX_IMAGES = 3, IMAGE_BYTES = 3 * MICRO_SIDE * MICRO_SIDE };
static const char kernels[] = "stands for megavit.fatbin";

typedef struct fixture {
    micro_siglip micro;
    mgv_model *model;
    uint8_t pixels[MAX_IMAGES * IMAGE_BYTES];
    float pooled[MAX_IMAGES * MICRO_WIDTH];
    char log[2000];
} fixture;

static int set_up(void **state) {
    fixture *f = (fixture *)calloc(1, sizeof *f);
    mgv_error error;
    size_t i;
    micro_make(&f->micro, 1);
    f->model = micro_open(&f->micro, &error);
    if (!f->model) fail_msg("%s", error.message);
    for (i = 0; i < sizeof f->pixels; i++) f->pixels[i] = (uint8_t)(i * 2654435761u >> 13);
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

/* ---- the engine of the fake ---- */

static void fake_log(void *user, int32_t level, const char *message) {
    fixture *f = (fixture *)user;
    (void)level;
    strncat(f->log, message, sizeof f->log - strlen(f->log) - 1);
}

static mgv_engine_desc engine_desc(fixture *f, mgv_backend backend) {
    mgv_engine_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.backend = backend;
    desc.max_images = MAX_IMAGES;
    desc.kernels = kernels;
    mgv__cuda_test_calls = &fake_calls;
    desc.max_row_outputs = 2;
    desc.logger.user = f;
    desc.logger.log = fake_log;
    return desc;
}

static mgv_result make_engine(fixture *f, counting_allocator *counts, mgv_engine **engine, mgv_error *error) {
    mgv_engine_desc desc = engine_desc(f, MGV_BACKEND_CUDA);
    mgv_result result;
    if (counts) {
        desc.allocator.user = counts;
        desc.allocator.alloc = counting_alloc;
        desc.allocator.free = counting_free;
    }
    fake.kernel = fake_kernel;
    result = mgv_engine_create(engine, f->model, &desc, error);
    fake_engines[0] = *engine;
    return result;
}

/* An engine on a GPU that starts anew, and its end, which leaves nothing behind. */
static mgv_engine *begin(fixture *f) {
    mgv_engine *engine;
    mgv_error error;
    fake_reset();
    assert_int_equal(make_engine(f, NULL, &engine, &error), MGV_OK);
    return engine;
}
static void end(mgv_engine *engine) {
    assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
    assert_int_equal(fake_alive(), 0);
}

/* What one encode is made of. */
typedef struct work {
    mgv_image images[MAX_IMAGES];
    mgv_output output;
    mgv_encode_desc desc;
} work;

static void make_work(fixture *f, work *w, uint32_t count) {
    uint32_t i;
    memset(w, 0, sizeof *w);
    for (i = 0; i < count; i++) {
        w->images[i].pixels = f->pixels + i * IMAGE_BYTES;
        w->images[i].width = w->images[i].height = MICRO_SIDE;
    }
    w->output.data = f->pooled;
    w->output.capacity = sizeof f->pooled / sizeof f->pooled[0];
    w->desc.images = w->images;
    w->desc.image_count = count;
    w->desc.outputs = &w->output;
    w->desc.output_count = 1;
    memset(f->pooled, 0xFF, sizeof f->pooled);
}
static void check_pooled(const fixture *f, uint32_t count) {
    uint32_t i;
    for (i = 0; i < count; i++) {
        assert_true(f->pooled[i * MICRO_WIDTH] == fake_pooled(f->pixels + i * IMAGE_BYTES, IMAGE_BYTES, 0));
        assert_true(f->pooled[i * MICRO_WIDTH + MICRO_WIDTH - 1] == fake_pooled(f->pixels + i * IMAGE_BYTES, IMAGE_BYTES, MICRO_WIDTH - 1));
    }
}
static mgv_result encode(fixture *f, mgv_engine *engine, uint32_t count, mgv_error *error) {
    work w;
    mgv_result result;
    make_work(f, &w, count);
    result = mgv_encode_blocking(engine, &w.desc, error);
    if (result == MGV_OK) check_pooled(f, count);
    return result;
}

/* ---- tests ---- */

static void test_the_way_through(void **state) {
    fixture *f = (fixture *)*state;
    mgv_engine *engine;
    mgv_error error;
    uint32_t i, k;
    fake_reset();
    if (make_engine(f, NULL, &engine, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_int_equal(mgv_engine_backend(engine), MGV_BACKEND_CUDA);
    for (k = 0; k < 2; k++)
        for (i = 1; i <= MAX_IMAGES; i++)
            if (encode(f, engine, i, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_int_equal(fake.launches, 2 * MAX_IMAGES);
    assert_int_equal(fake.grid, 132);
    end(engine);
}

/* Pictures that already lie on the card are read there; results can stay there. */
static void test_device_memory(void **state) {
    fixture *f = (fixture *)*state;
    mgv_engine *engine;
    mgv_error error;
    void *pixels, *pooled;
    work w;
    uint32_t i;
    engine = begin(f);
    assert_int_equal(fake_calls.Malloc(&pixels, sizeof f->pixels), cudaSuccess);
    assert_int_equal(fake_calls.Malloc(&pooled, sizeof f->pooled), cudaSuccess);
    memcpy(pixels, f->pixels, sizeof f->pixels);
    make_work(f, &w, 2);
    for (i = 0; i < 2; i++) {
        w.images[i].pixels = (uint8_t *)pixels + i * IMAGE_BYTES;
        w.images[i].place = MGV_PLACE_DEVICE;
    }
    w.output.data = (float *)pooled;
    w.output.place = MGV_PLACE_DEVICE;
    for (i = 0; i < 2; i++) { /* in place; then one of them from the host, so both are brought together */
        if (mgv_encode_blocking(engine, &w.desc, &error) != MGV_OK) fail_msg("%s", error.message);
        memcpy(f->pooled, pooled, sizeof f->pooled);
        check_pooled(f, 2);
        memset(pooled, 0, sizeof f->pooled);
        w.images[1].pixels = f->pixels + IMAGE_BYTES;
        w.images[1].place = MGV_PLACE_HOST;
    }
    assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
    fake_calls.Free(pixels);
    fake_calls.Free(pooled);
    assert_int_equal(fake_alive(), 0);
}

/* Every call of engine creation fails in turn: the error names it, and nothing is left behind. */
static void test_creation_fails_at_every_call(void **state) {
    fixture *f = (fixture *)*state;
    uint64_t n, at = 0;
    for (n = 1;; n++) {
        counting_allocator counts;
        mgv_engine *engine;
        mgv_error error;
        mgv_result result;
        fake_reset();
        counting_allocator_make(&counts);
        fake.fail_at = n;
        result = make_engine(f, &counts, &engine, &error);
        if (!fake.failed) {
            assert_int_equal(result, MGV_OK);
            end(engine);
            break;
        }
        if (result == MGV_OK) { /* of the calls that put the caller's device back, one may fail */
            assert_true(strcmp(fake.failed, "cudaGetDevice") == 0);
            assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
        } else {
            assert_int_equal(result, MGV_ERROR_DEVICE);
            if (strncmp(error.message, fake.failed, strlen(fake.failed)) != 0)
                fail_msg("%s failed, the error says: %s", fake.failed, error.message);
            assert_null(engine);
            at++;
        }
        assert_int_equal(fake_alive(), 0);
        assert_int_equal(counts.live_blocks, 0);
    }
    assert_true(at >= 20);
}

/* Memory for the host side runs out at every allocation in turn. */
static void test_creation_without_memory(void **state) {
    fixture *f = (fixture *)*state;
    uint64_t n;
    for (n = 1;; n++) {
        counting_allocator counts;
        mgv_engine *engine;
        mgv_error error;
        mgv_result result;
        fake_reset();
        counting_allocator_make(&counts);
        counts.fail_at = n;
        result = make_engine(f, &counts, &engine, &error);
        if (result == MGV_OK) assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
        else assert_int_equal(result, MGV_ERROR_NOMEM);
        assert_int_equal(fake_alive(), 0);
        assert_int_equal(counts.live_blocks, 0);
        if (result == MGV_OK) break;
    }
    assert_true(n > 4);
}

/* Every call of an encode fails in turn, once with an error that passes and once with one that ends the context. */
static void test_encode_fails_at_every_call(void **state) {
    static const cudaError_t codes[] = {cudaErrorInvalidValue, cudaErrorIllegalAddress};
    fixture *f = (fixture *)*state;
    uint64_t n;
    uint32_t c, failures = 0;
    for (c = 0; c < 2; c++) {
        for (n = 1;; n++) {
            counting_allocator counts;
            mgv_engine *engine;
            mgv_error error, after;
            mgv_result result;
            fake_reset();
            counting_allocator_make(&counts);
            assert_int_equal(make_engine(f, &counts, &engine, &error), MGV_OK);
            fake.fail_at = fake.calls + n;
            fake.fail_code = codes[c];
            result = encode(f, engine, 2, &error);
            fake.fail_at = 0;
            if (fake.failed && result != MGV_OK) {
                failures++;
                assert_int_equal(result, c ? MGV_ERROR_DEVICE_LOST : MGV_ERROR_DEVICE);
                if (strncmp(error.message, fake.failed, strlen(fake.failed)) != 0)
                    fail_msg("%s failed, the error says: %s", fake.failed, error.message);
                result = encode(f, engine, 3, &after);
                if (engine->gpu->lost) assert_true(result == MGV_ERROR_DEVICE_LOST && strstr(after.message, "destroying") != NULL);
                else if (result != MGV_OK) fail_msg("after a failed %s: %s", fake.failed, after.message);
                if (c) assert_true(engine->gpu->lost);
            }
            end(engine);
            assert_int_equal(counts.live_blocks, 0);
            if (!fake.failed) break;
        }
    }
    assert_true(failures >= 20);
}

/* Errors that end the context, as CUDA's headers tell, and some that do not. */
static void test_which_errors_end_the_context(void **state) {
    static const struct { int code, lost; } cases[] = {{214, 1}, {220, 1}, {226, 1}, {700, 1}, {702, 1}, {710, 1}, {714, 1}, {715, 1}, {716, 1},
                                                       {717, 1}, {718, 1}, {719, 1}, {721, 1}, {810, 1}, {911, 1}, {1, 0}, {701, 0}, {720, 0},
                                                       {901, 0}, {999, 0}};
    fixture *f = (fixture *)*state;
    size_t i;
    for (i = 0; i < COUNT_OF(cases); i++) {
        mgv_engine *engine;
        mgv_error error;
        engine = begin(f);
        fake.fail_name = "cudaLaunchKernelExC";
        fake.fail_code = (cudaError_t)cases[i].code;
        assert_int_equal(encode(f, engine, 2, &error), cases[i].lost ? MGV_ERROR_DEVICE_LOST : MGV_ERROR_DEVICE);
        fake.fail_name = NULL;
        assert_int_equal(encode(f, engine, 2, &error), cases[i].lost ? MGV_ERROR_DEVICE_LOST : MGV_OK);
        end(engine);
    }
}

/* An encode that fails when some of it is on the stream: the engine is busy until the stream has gone through it. */
static void test_a_half_enqueued_encode_is_waited_for(void **state) {
    fixture *f = (fixture *)*state;
    mgv_engine *engine;
    mgv_error error;
    work w;
    engine = begin(f);
    make_work(f, &w, 2);
    fake.fail_name = "cudaLaunchKernelExC";
    fake.held = 1;
    assert_int_equal(mgv_encode(engine, &w.desc, &error), MGV_ERROR_DEVICE);
    fake.fail_name = NULL;
    assert_non_null(strstr(error.message, "cudaLaunchKernelExC"));
    assert_int_equal(mgv_poll(engine, NULL), MGV_STATUS_RUNNING);
    assert_int_equal(mgv_encode(engine, &w.desc, &error), MGV_ERROR_BUSY);
    assert_int_equal(mgv_wait(engine, 1, &error), MGV_ERROR_BUSY);
    fake.held = 0;
    assert_int_equal(mgv_encode(engine, &w.desc, &error), MGV_OK);
    assert_int_equal(mgv_wait(engine, 0, &error), MGV_OK);
    check_pooled(f, 2);
    fake.fail_name = "cudaLaunchKernelExC"; /* who waits for it learns why it failed */
    assert_int_equal(mgv_encode(engine, &w.desc, NULL), MGV_ERROR_DEVICE);
    fake.fail_name = NULL;
    assert_int_equal(mgv_wait(engine, 0, &error), MGV_ERROR_DEVICE);
    assert_non_null(strstr(error.message, "cudaLaunchKernelExC"));
    fake.fail_name = "cudaLaunchKernelExC"; /* also when the next one was refused in between */
    assert_int_equal(mgv_encode(engine, &w.desc, NULL), MGV_ERROR_DEVICE);
    fake.fail_name = NULL;
    w.output.kind = MGV_OUTPUT_TOKENS;
    w.output.place = MGV_PLACE_DEVICE;
    w.output.capacity = 1000000;
    assert_int_equal(mgv_encode(engine, &w.desc, &error), MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "output 0 is said to be in device memory"));
    assert_int_equal(mgv_poll(engine, NULL), MGV_STATUS_FAILED);
    assert_int_equal(mgv_wait(engine, 0, &error), MGV_ERROR_DEVICE);
    assert_non_null(strstr(error.message, "cudaLaunchKernelExC"));
    end(engine);
}

/* The schedule of a batch size is sent in two parts: if the second fails, neither counts, and the others are as they were. */
static void test_a_half_sent_schedule_does_not_count(void **state) {
    fixture *f = (fixture *)*state;
    uint64_t n;
    uint32_t count, sent = 0;
    for (n = 1; n < 12; n++) {
        mgv_engine *engine;
        mgv_error error;
        engine = begin(f);
        assert_int_equal(encode(f, engine, 1, &error), MGV_OK);
        fake.fail_at = fake.calls + n;
        if (encode(f, engine, 2, &error) != MGV_OK && !engine->gpu->lost) {
            fake.fail_at = 0;
            for (count = 1; count <= 3; count++) assert_int_equal(encode(f, engine, count, &error), MGV_OK);
            sent++;
        }
        fake.fail_at = 0;
        assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
    }
    assert_true(sent >= 8);
}

static void test_poll_wait_and_destroy(void **state) {
    fixture *f = (fixture *)*state;
    mgv_engine *engine;
    mgv_error error;
    work w;
    engine = begin(f);
    make_work(f, &w, 2);
    fake.held = 1;
    assert_int_equal(mgv_encode(engine, &w.desc, &error), MGV_OK);
    assert_int_equal(mgv_poll(engine, &error), MGV_STATUS_QUEUED);
    assert_int_equal(mgv_encode(engine, &w.desc, &error), MGV_ERROR_BUSY);
    assert_int_equal(mgv_wait(engine, 5, &error), MGV_ERROR_BUSY);
    fake.held = 0;
    assert_int_equal(mgv_wait(engine, 0, &error), MGV_OK);
    check_pooled(f, 2);
    for (fake.aborted = MGV__WAIT_COUNTER; fake.aborted < MGV__WAIT_COUNT; fake.aborted++) { /* the kernel gives up, at any of its waits */
        assert_int_equal(encode(f, engine, 2, &error), MGV_ERROR_TIMEOUT);
        assert_non_null(strstr(error.message, "gave up"));
        assert_non_null(strstr(error.message, mgv__wait_names[fake.aborted]));
        assert_int_equal(mgv_poll(engine, &error), MGV_STATUS_TIMED_OUT);
    }
    fake.aborted = 0; /* the next encode is right again */
    assert_int_equal(encode(f, engine, 2, &error), MGV_OK);
    assert_int_equal(mgv_encode(engine, &w.desc, &error), MGV_OK); /* work in flight is waited for */
    end(engine);
}

/* The kernel is told at the next look, once, and however it ends the encode is cancelled; the engine works again. */
static void test_cancel(void **state) {
    fixture *f = (fixture *)*state;
    mgv_engine *engine;
    mgv_error error;
    work w;
    uint64_t calls;
    int round;
    engine = begin(f);
    make_work(f, &w, 2);
    mgv_cancel(NULL);
    for (round = 0; round < 4; round++) {
        fake.aborted = round % 2 ? MGV__WAIT_COUNTER : 0; /* it speaks up, or does not */
        memset(f->pooled, 0x7F, sizeof f->pooled);
        fake.held = 1;
        assert_int_equal(mgv_encode(engine, &w.desc, &error), MGV_OK);
        *fake.abort_word = 0; /* it has not ended */
        assert_int_equal(mgv_poll(engine, &error), MGV_STATUS_QUEUED);
        assert_int_equal(*fake.abort_word, 0);
        calls = fake.calls;
        mgv_cancel(engine);
        assert_true(fake.calls == calls); /* any thread may call it */
        assert_int_equal(mgv_poll(engine, &error), MGV_STATUS_QUEUED);
        assert_int_equal(*fake.abort_word, MGV__WAIT_COUNT);
        *fake.abort_word = 0;
        assert_int_equal(mgv_encode(engine, &w.desc, &error), MGV_ERROR_BUSY);
        assert_int_equal(mgv_wait(engine, 1, &error), MGV_ERROR_BUSY);
        assert_int_equal(*fake.abort_word, 0);
        fake.held = 0;
        assert_int_equal(round < 2 ? mgv_wait(engine, 0, &error) : MGV_ERROR_CANCELLED, MGV_ERROR_CANCELLED);
        assert_int_equal(mgv_poll(engine, &error), MGV_STATUS_CANCELLED);
        assert_int_equal(error.code, MGV_ERROR_CANCELLED);
        assert_non_null(strstr(error.message, "mgv_cancel"));
        assert_true(f->pooled[0] > 1e38f); /* nothing is handed out */
        fake.aborted = 0;
        mgv_cancel(engine); /* nothing is under way */
        assert_int_equal(mgv_poll(engine, &error), MGV_STATUS_CANCELLED);
        assert_int_equal(encode(f, engine, 2, &error), MGV_OK);
        check_pooled(f, 2);
        mgv_cancel(engine); /* too late */
        assert_int_equal(mgv_poll(engine, &error), MGV_STATUS_DONE);
    }
    for (round = 0; round < 2; round++) { /* telling it fails: the card says how it is, and what was marked is still cancelled */
        fake.held = 1;
        assert_int_equal(mgv_encode(engine, &w.desc, &error), MGV_OK);
        mgv_cancel(engine);
        fake.fail_name = round ? "cudaMemcpyAsync" : "cudaEventRecordWithFlags";
        assert_int_equal(mgv_poll(engine, &error), MGV_STATUS_RUNNING);
        fake.fail_name = NULL;
        fake.held = 0;
        assert_int_equal(mgv_wait(engine, 0, &error), MGV_ERROR_DEVICE);
        assert_int_equal(encode(f, engine, 2, &error), MGV_OK);
        check_pooled(f, 2);
    }
    assert_int_equal(mgv_encode(engine, &w.desc, &error), MGV_OK);
    mgv_cancel(engine);
    end(engine);
}

/* In device memory of the caller: none is allocated, none is freed, nothing outside it is touched; too little is refused. */
static void test_device_workspace(void **state) {
    fixture *f = (fixture *)*state;
    mgv_engine_desc desc = engine_desc(f, MGV_BACKEND_CUDA);
    mgv_engine *engine;
    mgv_error error;
    uint64_t bytes;
    void *memory;
    uint8_t *start;
    size_t shift;
    fake_reset();
    if (mgv_engine_device_workspace_bytes(f->model, &desc, &bytes, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_int_equal(fake.calls, 0);
    assert_int_equal(fake_calls.Malloc(&memory, (size_t)bytes + 600), cudaSuccess);
    fake.kernel = fake_kernel;
    for (shift = 0; shift < 600; shift += 199) {
        memset(memory, 0x77, (size_t)bytes + 600);
        start = (uint8_t *)memory + shift;
        desc.device_workspace = start;
        desc.device_workspace_bytes = bytes - 1;
        assert_int_equal(mgv_engine_create(&engine, f->model, &desc, &error), MGV_ERROR_CAPACITY);
        assert_non_null(strstr(error.message, "the device workspace has"));
        desc.device_workspace_bytes = bytes;
        fake.fail_name = "cudaMalloc";
        if (mgv_engine_create(&engine, f->model, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
        fake.fail_name = NULL;
        fake_engines[0] = engine;
        assert_int_equal((uintptr_t)engine->gpu->cuda->arena % 256, 0);
        assert_int_equal(encode(f, engine, 3, &error), MGV_OK);
        assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
        if (shift) assert_int_equal(start[-1], 0x77);
        assert_int_equal(start[bytes], 0x77);
    }
    assert_int_equal(mgv_engine_device_workspace_bytes(f->model, &desc, NULL, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_engine_device_workspace_bytes(NULL, &desc, &bytes, &error), MGV_ERROR_ARGUMENT);
    fake_calls.Free(memory);
    assert_int_equal(fake_alive(), 0);
}

/* ---- CUDA graphs ---- */

/* Captures one encode; the graph holds it only if that succeeds. */
static mgv_result capture(mgv_engine *engine, const mgv_encode_desc *desc, fake_graph *graph, mgv_error *error) {
    mgv_result result;
    memset(graph, 0, sizeof *graph);
    fake.graph = graph;
    fake.capture = cudaStreamCaptureStatusActive;
    result = mgv_encode(engine, desc, error);
    fake.capture = cudaStreamCaptureStatusNone;
    return result;
}

/* Tokens and layers: into device and page-locked memory directly, into other memory by way of the engine's. */
static void test_rows(void **state) {
    enum { ROWS = (MICRO_SIDE / MICRO_PATCH) * (MICRO_SIDE / MICRO_PATCH), FLOATS = 2 * ROWS * MICRO_WIDTH, COUNT = 5 };
    fixture *f = (fixture *)*state;
    mgv_output outputs[COUNT];
    float *pageable = (float *)malloc(2 * FLOATS * sizeof(float));
    void *device, *pinned;
    mgv_engine *engine;
    mgv_error error;
    fake_graph *graph = (fake_graph *)calloc(1, sizeof *graph);
    work w;
    uint32_t i, k;
    engine = begin(f);
    assert_int_equal(fake_calls.Malloc(&device, FLOATS * sizeof(float)), cudaSuccess);
    assert_int_equal(fake_calls.MallocHost(&pinned, FLOATS * sizeof(float)), cudaSuccess);
    make_work(f, &w, 2);
    memset(outputs, 0, sizeof outputs);
    outputs[0] = w.output;
    for (i = 1; i < COUNT; i++) {
        outputs[i].kind = i == 2 ? MGV_OUTPUT_TOKENS : MGV_OUTPUT_LAYER;
        outputs[i].index = i == 1 ? 1 : 0;
        outputs[i].capacity = FLOATS;
    }
    outputs[1].data = (float *)device;
    outputs[1].place = MGV_PLACE_DEVICE;
    outputs[2].data = pageable;
    outputs[3].data = (float *)pinned;
    outputs[4].data = pageable + FLOATS;
    outputs[4].normalize = 1;
    w.desc.outputs = outputs;
    w.desc.output_count = COUNT;
    for (k = 0; k < 2; k++) {
        memset(pageable, 0xFF, 2 * FLOATS * sizeof(float));
        memset(device, 0xFF, FLOATS * sizeof(float));
        memset(pinned, 0xFF, FLOATS * sizeof(float));
        if (mgv_encode_blocking(engine, &w.desc, &error) != MGV_OK) fail_msg("%s", error.message);
        check_pooled(f, 2);
        for (i = 0; i < FLOATS; i++) {
            assert_true(((float *)device)[i] == fake_row(1, i));
            assert_true(pageable[i] == fake_row(MGV__ROWS_TOKENS_OUTPUT, i));
            assert_true(((float *)pinned)[i] == fake_row(0, i));
            assert_true(pageable[FLOATS + i] > 0 && pageable[FLOATS + i] < 1);
        }
        if (k == 0) assert_int_equal(encode(f, engine, 2, &error), MGV_OK); /* as many pictures without rows is another schedule */
    }
    outputs[3].data = pageable; /* three that the engine would have to keep, but it was made for two */
    assert_int_equal(mgv_encode_blocking(engine, &w.desc, &error), MGV_ERROR_CAPACITY);
    assert_non_null(strstr(error.message, "output 4"));
    outputs[3].data = (float *)pinned;
    outputs[3].place = MGV_PLACE_DEVICE + 1;
    assert_int_equal(mgv_encode_blocking(engine, &w.desc, &error), MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "output 3: 2 is no mgv_place"));
    outputs[3].place = MGV_PLACE_HOST;
    outputs[1].data = pageable;
    assert_int_equal(mgv_encode_blocking(engine, &w.desc, &error), MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "output 1 is said to be in device memory"));
    outputs[1].data = (float *)device;
    w.desc.output_count = 4;
    assert_int_equal(capture(engine, &w.desc, graph, &error), MGV_ERROR_UNSUPPORTED);
    assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
    fake_calls.Free(device);
    fake_calls.FreeHost(pinned);
    free(pageable);
    free(graph);
    assert_int_equal(fake_alive(), 0);
}

static void test_graphs(void **state) {
    fixture *f = (fixture *)*state;
    fake_graph *graphs = (fake_graph *)calloc(3, sizeof *graphs);
    mgv_engine *engine;
    mgv_error error;
    void *pixels, *pooled;
    work w, other;
    uint32_t i, k;
    engine = begin(f);
    assert_int_equal(fake_calls.Malloc(&pixels, sizeof f->pixels), cudaSuccess);
    assert_int_equal(fake_calls.MallocHost(&pooled, sizeof f->pooled), cudaSuccess);
    make_work(f, &w, 3);
    for (i = 0; i < 3; i++) {
        w.images[i].pixels = (uint8_t *)pixels + i * IMAGE_BYTES;
        w.images[i].place = MGV_PLACE_DEVICE;
    }
    w.output.data = (float *)pooled;
    for (i = 0; i < 3; i++) { /* batches of 1, 2 and 3, each encoded once before */
        w.desc.image_count = i + 1;
        assert_int_equal(capture(engine, &w.desc, &graphs[i], &error), MGV_ERROR_UNSUPPORTED);
        assert_non_null(strstr(error.message, "encode so many once before"));
        assert_int_equal(graphs[i].count, 0);
        assert_int_equal(mgv_encode_blocking(engine, &w.desc, &error), MGV_OK);
        if (capture(engine, &w.desc, &graphs[i], &error) != MGV_OK) fail_msg("%s", error.message);
        assert_int_equal(graphs[i].count, 4); /* counters, kernel, rows, event */
        assert_int_equal(mgv_poll(engine, &error), MGV_STATUS_DONE);
    }
    make_work(f, &other, 2);
    for (k = 0; k < 9; k++) { /* pictures change, direct encodes of another size come between */
        for (i = 0; i < sizeof f->pixels; i++) f->pixels[i] = (uint8_t)(f->pixels[i] * 5 + k);
        memcpy(pixels, f->pixels, sizeof f->pixels);
        fake_replay(&graphs[k % 3]);
        assert_int_equal(mgv_wait(engine, 0, &error), MGV_OK);
        memcpy(f->pooled, pooled, sizeof f->pooled);
        check_pooled(f, k % 3 + 1);
        memset(pooled, 0xFF, sizeof f->pooled);
        memset(f->pooled, 0xFF, sizeof f->pooled);
        assert_int_equal(mgv_encode_blocking(engine, &other.desc, &error), MGV_OK);
        check_pooled(f, 2);
    }
    fake.held = 1; /* a replay is under way */
    assert_int_equal(mgv_poll(engine, &error), MGV_STATUS_RUNNING);
    assert_int_equal(mgv_encode(engine, &other.desc, &error), MGV_ERROR_BUSY);
    assert_non_null(strstr(error.message, "CUDA graph"));
    assert_int_equal(mgv_wait(engine, 1, &error), MGV_ERROR_BUSY);
    fake.held = 0;
    fake.aborted = MGV__WAIT_COUNTER; /* and times out; the one after it does not */
    fake_replay(&graphs[1]);
    assert_int_equal(mgv_poll(engine, &error), MGV_STATUS_TIMED_OUT);
    assert_non_null(strstr(error.message, "gave up"));
    assert_int_equal(mgv_wait(engine, 0, &error), MGV_ERROR_TIMEOUT);
    fake.aborted = 0;
    fake_replay(&graphs[1]);
    assert_int_equal(mgv_wait(engine, 0, &error), MGV_OK);
    fake.aborted = MGV__WAIT_COUNTER; /* the first of two times out: the second does not hide it */
    fake_replay(&graphs[1]);
    fake.aborted = 0;
    fake_replay(&graphs[1]);
    assert_int_equal(mgv_wait(engine, 0, &error), MGV_ERROR_TIMEOUT);
    assert_int_equal(mgv_wait(engine, 0, &error), MGV_OK);
    assert_int_equal(mgv_encode(engine, &other.desc, &error), MGV_OK); /* a direct encode is busy as ever */
    fake.held = 1;
    assert_int_equal(mgv_poll(engine, &error), MGV_STATUS_QUEUED);
    assert_int_equal(mgv_encode(engine, &other.desc, &error), MGV_ERROR_BUSY);
    fake.held = 0;
    assert_int_equal(mgv_wait(engine, 0, &error), MGV_OK);
    check_pooled(f, 2);
    assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
    fake_calls.Free(pixels);
    fake_calls.FreeHost(pooled);
    free(graphs);
    assert_int_equal(fake_alive(), 0);
}

/* Another stream is being captured while an engine is polled, cancelled, waited for and destroyed: neither is harmed, and the thread's mode
   is as it was, however a call ends. */
static void test_captures_of_others(void **state) {
    fixture *f = (fixture *)*state;
    mgv_engine *engine;
    mgv_error error;
    work w;
    uint64_t n;
    int cancelled;
    for (cancelled = 0; cancelled < 2; cancelled++) {
        engine = begin(f);
        make_work(f, &w, 2);
        fake.held = 1;
        assert_int_equal(mgv_encode(engine, &w.desc, &error), MGV_OK);
        *fake.abort_word = 0;
        fake.capture = cudaStreamCaptureStatusActive; /* fake.graph is NULL: nothing may become part of it */
        if (cancelled) mgv_cancel(engine);
        assert_int_equal(mgv_poll(engine, &error), MGV_STATUS_QUEUED);
        assert_int_equal(*fake.abort_word, cancelled ? MGV__WAIT_COUNT : 0);
        assert_int_equal(mgv_wait(engine, 1, &error), MGV_ERROR_BUSY);
        fake.held = 0;
        assert_int_equal(mgv_wait(engine, 0, &error), cancelled ? MGV_ERROR_CANCELLED : MGV_OK);
        if (!cancelled) check_pooled(f, 2);
        assert_int_equal(fake.capture, cudaStreamCaptureStatusActive);
        assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
        assert_int_equal(fake.capture, cudaStreamCaptureStatusActive);
        assert_int_equal(fake.mode, cudaStreamCaptureModeGlobal);
        assert_int_equal(fake_alive(), 0);
    }
    for (n = 1;; n++) { /* every call of an encode and of a poll fails in turn, but those that put the mode back */
        engine = begin(f);
        fake.fail_at = fake.calls + n;
        fake.mode = cudaStreamCaptureModeThreadLocal;
        encode(f, engine, 2, &error);
        if (!fake.failed || strcmp(fake.failed, "cudaThreadExchangeStreamCaptureMode") != 0)
            assert_int_equal(fake.mode, cudaStreamCaptureModeThreadLocal);
        fake.fail_at = 0;
        mgv_engine_destroy(engine);
        assert_int_equal(fake_alive(), 0);
        if (!fake.failed) break;
    }
    assert_true(n > 8);
}

/* Host pictures and outputs can be part of a graph where they are page-locked and need no work of ours. */
static void test_what_a_graph_cannot_hold(void **state) {
    fixture *f = (fixture *)*state;
    fake_graph *graph = (fake_graph *)calloc(1, sizeof *graph);
    mgv_engine *engine;
    mgv_error error;
    void *pixels, *pooled;
    work w;
    uint32_t i;
    engine = begin(f);
    assert_int_equal(encode(f, engine, 2, &error), MGV_OK);
    assert_int_equal(fake_calls.MallocHost(&pixels, sizeof f->pixels), cudaSuccess);
    assert_int_equal(fake_calls.MallocHost(&pooled, sizeof f->pooled), cudaSuccess);
    make_work(f, &w, 2);
    for (i = 0; i < 7; i++) {
        static const char *const sentences[] = {
            "image 0: a CUDA graph takes", "image 1: a CUDA graph takes", "image 0: a CUDA graph takes", "image 1: a CUDA graph takes",
            "output 0: a CUDA graph gives", "output 0: a CUDA graph gives", "the capture of this stream has failed"};
        w.images[0].pixels = i == 0 ? f->pixels : (uint8_t *)pixels;
        w.images[1].pixels = i == 1 ? f->pixels + IMAGE_BYTES : (uint8_t *)pixels + IMAGE_BYTES;
        w.images[0].width = i == 2 ? MICRO_SIDE - 1 : MICRO_SIDE;
        w.images[1].format = i == 3 ? MGV_PIXELS_BGR8 : MGV_PIXELS_RGB8;
        w.output.data = i == 4 ? f->pooled : (float *)pooled;
        w.output.normalize = i == 5;
        fake.capture = cudaStreamCaptureStatusInvalidated;
        if (i == 6) assert_int_equal(mgv_encode(engine, &w.desc, &error), MGV_ERROR_ARGUMENT);
        else assert_int_equal(capture(engine, &w.desc, graph, &error), MGV_ERROR_UNSUPPORTED);
        fake.capture = cudaStreamCaptureStatusNone;
        if (!strstr(error.message, sentences[i])) fail_msg("%u: %s", i, error.message);
        assert_int_equal(graph->count, 0);
    }
    if (capture(engine, &w.desc, graph, &error) != MGV_OK) fail_msg("%s", error.message);
    memcpy(pixels, f->pixels, sizeof f->pixels);
    memset(pooled, 0, sizeof f->pooled);
    fake_replay(graph);
    memcpy(f->pooled, pooled, sizeof f->pooled);
    check_pooled(f, 2);
    for (i = 1;; i++) { /* every call of a capture fails in turn: the engine encodes on */
        fake.fail_at = fake.calls + i;
        fake.failed = NULL;
        if (capture(engine, &w.desc, graph, &error) != MGV_OK && strncmp(error.message, fake.failed,
                                                                         strlen(fake.failed)) != 0) fail_msg("%s", error.message);
        fake.fail_at = 0;
        assert_int_equal(mgv_encode_blocking(engine, &w.desc, &error), MGV_OK);
        if (!fake.failed) break;
    }
    assert_true(i > 8);
    assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
    fake_calls.FreeHost(pixels);
    fake_calls.FreeHost(pooled);
    free(graph);
    assert_int_equal(fake_alive(), 0);
}

/* Each batch size has tensor maps of its own, made once: a driver that refuses them stops only those that are new. */
static void test_maps_of_a_batch(void **state) {
    fixture *f = (fixture *)*state;
    mgv_engine *engine;
    mgv_error error;
    int i;
    engine = begin(f);
    fake.refuse_maps = 1;
    assert_int_equal(encode(f, engine, 2, &error), MGV_ERROR_DEVICE);
    assert_non_null(strstr(error.message, "tensor map"));
    assert_int_equal(fake.launches, 0);
    fake.refuse_maps = 0;
    assert_int_equal(encode(f, engine, 2, &error), MGV_OK);
    fake.refuse_maps = 1;
    for (i = 0; i < 2; i++) {
        assert_int_equal(encode(f, engine, 1, &error), MGV_ERROR_DEVICE);
        assert_int_equal(encode(f, engine, 2, &error), MGV_OK);
    }
    end(engine);
}

/* An engine holds a few schedules; those in graphs stay, of the others the one that was not used for longest goes. */
static void test_schedules_come_and_go(void **state) {
    enum { MANY = MGV__PLAN_SCHEDULES + 2 };
    fixture *f = (fixture *)*state;
    mgv_engine_desc desc = engine_desc(f, MGV_BACKEND_CUDA);
    fake_graph *graph = (fake_graph *)calloc(1, sizeof *graph);
    mgv_image images[MANY];
    mgv_encode_desc encode_many;
    mgv_output output;
    mgv_engine *engine;
    mgv_error error;
    void *pixels, *pooled;
    uint32_t i, k;
    fake_reset();
    fake.kernel = fake_kernel;
    desc.max_images = MANY;
    assert_int_equal(mgv_engine_create(&engine, f->model, &desc, &error), MGV_OK);
    fake_engines[0] = engine;
    assert_int_equal(fake_calls.Malloc(&pixels, MANY * IMAGE_BYTES), cudaSuccess);
    assert_int_equal(fake_calls.Malloc(&pooled, MANY * MICRO_WIDTH * sizeof(float)), cudaSuccess);
    memset(images, 0, sizeof images);
    for (i = 0; i < MANY; i++) {
        images[i].pixels = (uint8_t *)pixels + i * IMAGE_BYTES;
        images[i].width = images[i].height = MICRO_SIDE;
        images[i].place = MGV_PLACE_DEVICE;
    }
    memset(&output, 0, sizeof output);
    output.data = (float *)pooled;
    output.capacity = MANY * MICRO_WIDTH;
    output.place = MGV_PLACE_DEVICE;
    memset(&encode_many, 0, sizeof encode_many);
    encode_many.images = images;
    encode_many.outputs = &output;
    encode_many.output_count = 1;
    for (k = 0; k < 3; k++)
        for (i = 1; i <= MANY; i++) { /* round and round: each is sent anew; twice in a row: once */
            encode_many.image_count = i;
            assert_int_equal(mgv_encode_blocking(engine, &encode_many, &error), MGV_OK);
            assert_int_equal(engine->gpu->cuda->arguments.ops[1].rows_total, i * engine->gpu->cuda->plan->tokens);
            assert_int_equal(mgv_encode_blocking(engine, &encode_many, &error), MGV_OK);
            assert_int_equal(engine->gpu->cuda->arguments.ops[1].rows_total, i * engine->gpu->cuda->plan->tokens);
            assert_true(mgv__cuda_find_schedule(engine->gpu->cuda, i) != NULL);
        }
    for (i = MANY - MGV__PLAN_SCHEDULES + 1; i <= MANY; i++) {
        encode_many.image_count = i;
        if (capture(engine, &encode_many, graph, &error) != MGV_OK) fail_msg("%s", error.message);
    }
    encode_many.image_count = 1;
    assert_int_equal(mgv_encode(engine, &encode_many, &error), MGV_ERROR_CAPACITY);
    assert_non_null(strstr(error.message, "an engine holds the schedules of 8 batch sizes"));
    encode_many.image_count = MANY;
    mgv_wait(engine, 0, NULL);
    assert_int_equal(mgv_encode_blocking(engine, &encode_many, &error), MGV_OK);
    assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
    fake_calls.Free(pixels);
    fake_calls.Free(pooled);
    free(graph);
    assert_int_equal(fake_alive(), 0);
}

/* ---- files of packed weights ---- */

static void test_packed_weights(void **state) {
    fixture *f = (fixture *)*state;
    mgv_engine_desc desc = engine_desc(f, MGV_BACKEND_AUTO);
    mgv_engine *engine, *other;
    fake_files files;
    fake_file entry;
    mgv_error error;
    uint64_t bytes;
    uint8_t *packed;
    size_t at, count;
    int i;
    fake_reset();
    assert_int_equal(mgv_model_packed_bytes(f->model, "sm_90a", &bytes, &error), MGV_OK);
    packed = (uint8_t *)malloc((size_t)bytes);
    assert_int_equal(mgv_model_pack(f->model, "sm_90a", packed, bytes, &error), MGV_OK);
    entry.name = "weights.mgvp";
    entry.data = packed;
    entry.bytes = bytes;
    assert_int_equal(make_engine(f, NULL, &engine, &error), MGV_OK);
    at = (size_t)engine->gpu->cuda->plan->vectors_offset;
    count = (size_t)bytes - MGV__PACKED_HEADER;
    for (i = 0; i < 2; i++) { /* from memory, from a file: the same bytes as packed on the fly */
        desc.packed = i == 0 ? packed : NULL;
        desc.packed_bytes = i == 0 ? bytes : 0;
        desc.packed_path = i == 0 ? NULL : entry.name;
        desc.io = fake_files_make(&files, &entry, 1);
        if (mgv_engine_create(&other, f->model, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
        assert_int_equal(mgv_engine_backend(other), MGV_BACKEND_CUDA);
        assert_memory_equal(engine->gpu->cuda->arena + at, other->gpu->cuda->arena + at, count);
        assert_int_equal(files.calls, 3 * i); /* open, header, weights */
        assert_int_equal(files.open_now, 0);
        fake_engines[0] = other;
        assert_int_equal(encode(f, other, 2, &error), MGV_OK);
        assert_int_equal(mgv_engine_destroy(other), MGV_OK);
    }
    packed[MGV__PACKED_HEADER] ^= 1; /* what does not fit is an error, whatever the backend; the CPU does not look at it */
    for (i = 0; i < 2; i++) {
        desc.backend = i == 0 ? MGV_BACKEND_AUTO : MGV_BACKEND_CUDA;
        assert_int_equal(mgv_engine_create(&other, f->model, &desc, &error), MGV_ERROR_FORMAT);
        assert_non_null(strstr(error.message, "weights.mgvp: the weights are damaged"));
        assert_null(other);
    }
    desc.packed_path = "absent.mgvp";
    assert_int_equal(mgv_engine_create(&other, f->model, &desc, &error), MGV_ERROR_IO);
    desc.backend = MGV_BACKEND_CPU;
    assert_int_equal(mgv_engine_create(&other, f->model, &desc, &error), MGV_OK);
    mgv_engine_destroy(other);
    assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
    free(packed);
    assert_int_equal(fake_alive(), 0);
}

/* ---- validation ---- */

/* A kernel that does nothing is found out; and every call that fails ends the validation with its sentence, and leaves nothing. */
static void test_validation(void **state) {
    fixture *f = (fixture *)*state;
    uint64_t n, step, calls = 0;
    for (n = 0; n <= calls; n += step) {
        mgv_engine_desc desc = engine_desc(f, MGV_BACKEND_CUDA);
        counting_allocator counts;
        uint32_t failures = 0;
        mgv_error error;
        mgv_result result;
        work w;
        fake_reset();
        counting_allocator_make(&counts);
        desc.allocator.user = &counts;
        desc.allocator.alloc = counting_alloc;
        desc.allocator.free = counting_free;
        make_work(f, &w, 1);
        fake.fail_at = n;
        result = mgv_validate(f->model, &desc, w.images, 1, NULL, NULL, &failures, &error);
        if (n == 0) {
            calls = fake.calls;
            assert_int_equal(result, MGV_OK);
            assert_true(failures > 5);
        } else if (result != MGV_OK) {
            assert_int_equal(result, MGV_ERROR_DEVICE);
            if (strncmp(error.message, fake.failed, strlen(fake.failed)) != 0)
                fail_msg("%s failed, the error says: %s", fake.failed, error.message);
        }
        assert_int_equal(fake_alive(), 0);
        assert_int_equal(counts.live_blocks, 0);
        step = n < 40 ? 3 : 11;
    }
    assert_true(calls > 60);
}

/* Validation with the description of an engine that is there does not work in that engine's memory. */
static void test_validation_beside_an_engine(void **state) {
    fixture *f = (fixture *)*state;
    mgv_engine_desc desc = engine_desc(f, MGV_BACKEND_CUDA);
    mgv_engine *engine;
    mgv_error error;
    uint32_t failures;
    uint64_t bytes;
    void *memory, *before;
    work w;
    fake_reset();
    fake.kernel = fake_kernel;
    assert_int_equal(mgv_engine_device_workspace_bytes(f->model, &desc, &bytes, &error), MGV_OK);
    assert_int_equal(fake_calls.Malloc(&memory, (size_t)bytes), cudaSuccess);
    desc.device_workspace = memory;
    desc.device_workspace_bytes = bytes;
    if (mgv_engine_create(&engine, f->model, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
    before = malloc((size_t)bytes);
    memcpy(before, memory, (size_t)bytes);
    make_work(f, &w, 1);
    fake.kernel = NULL;
    if (mgv_validate(f->model, &desc, w.images, 1, NULL, NULL, &failures, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_memory_equal(memory, before, (size_t)bytes);
    assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
    fake_calls.Free(memory);
    free(before);
    assert_int_equal(fake_alive(), 0);
}

/* The caller's current device is what it was after each call. */
static void test_the_callers_device(void **state) {
    fixture *f = (fixture *)*state;
    mgv_engine_desc desc = engine_desc(f, MGV_BACKEND_CUDA);
    mgv_engine *engine;
    mgv_error error;
    fake_reset();
    fake.devices = 3;
    fake.device = 2;
    fake.kernel = fake_kernel;
    desc.device = 1;
    desc.max_sms = 7;
    assert_int_equal(mgv_engine_create(&engine, f->model, &desc, &error), MGV_OK);
    fake_engines[0] = engine;
    assert_int_equal(fake.device, 2);
    assert_int_equal(encode(f, engine, 1, &error), MGV_OK);
    assert_int_equal(fake.device, 2);
    assert_int_equal(fake.grid, MGV__LATENCY_CLUSTER); /* few images: clusters of four */
    assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
    assert_int_equal(fake.device, 2);
    assert_int_equal(fake_alive(), 0);
}

/* One cluster of two has all tiles on a list of its own; few images on the whole card are taken in turn. */
static void test_dealt_tiles_are_sent(void **state) {
    fixture *f = (fixture *)*state;
    static const struct { uint32_t max_sms, lists; } cases[] = {{2, 1}, {0, 0}};
    uint32_t c;
    for (c = 0; c < 2; c++) {
        mgv_engine_desc desc = engine_desc(f, MGV_BACKEND_CUDA);
        mgv_engine *engine;
        mgv_error error;
        fake_reset();
        fake.kernel = fake_kernel;
        desc.max_sms = cases[c].max_sms;
        assert_int_equal(mgv_engine_create(&engine, f->model, &desc, &error), MGV_OK);
        fake_engines[0] = engine;
        fake_lists = 9;
        assert_int_equal(encode(f, engine, 1, &error), MGV_OK);
        assert_int_equal(fake_lists, cases[c].lists);
        end(engine);
    }
}

/* Machines that cannot run the kernels: with MGV_BACKEND_CUDA an error, with MGV_BACKEND_AUTO the CPU, and both say the same sentence. */
typedef struct machine {
    int *value;
    int becomes;
    mgv_result result;
    const char *sentence;
} machine;

static void refused(fixture *f, const char *sentence, mgv_result expected, int becomes) {
    mgv_engine_desc desc = engine_desc(f, MGV_BACKEND_CUDA);
    mgv_engine *engine;
    mgv_error error;
    mgv_result result = mgv_engine_create(&engine, f->model, &desc, &error);
    if (result != expected || !strstr(error.message, sentence))
        fail_msg("%d: wanted %d \"%s\", got %d: %s", becomes, expected, sentence, result, error.message);
    assert_null(engine);
    desc.backend = MGV_BACKEND_AUTO;
    f->log[0] = 0;
    if (mgv_engine_create(&engine, f->model, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_int_equal(mgv_engine_backend(engine), MGV_BACKEND_CPU);
    assert_true(strncmp(f->log, "the CPU encodes: ", 17) == 0 && strstr(f->log, sentence));
    mgv_engine_destroy(engine);
    assert_int_equal(fake_alive(), 0);
}

static void test_machines_that_cannot(void **state) {
    static const machine machines[] = {
        {&fake.driver, 0, MGV_ERROR_NO_DEVICE, "there is no NVIDIA driver"},
        {&fake.driver, 11080, MGV_ERROR_NO_DEVICE, "the NVIDIA driver is of CUDA 11.8; this program needs one of CUDA 13 or later"},
        {&fake.driver, 12090, MGV_ERROR_NO_DEVICE, "the NVIDIA driver is of CUDA 12.9; this program needs one of CUDA 13 or later"},
        {&fake.devices, 0, MGV_ERROR_NO_DEVICE, "cudaGetDeviceCount"},
        {&fake.major, 8, MGV_ERROR_NO_DEVICE, "of compute capability 8.0; the kernels are for 9.0"},
        {&fake.major, 12, MGV_ERROR_NO_DEVICE, "of compute capability 12.0; the kernels are for 9.0 (Hopper), 10.0, 10.3 and 11.0 (Blackwell)"},
        {&fake.minor, 3, MGV_ERROR_NO_DEVICE, "of compute capability 9.3"},
        {&fake.cooperative, 0, MGV_ERROR_NO_DEVICE, "cannot launch cooperatively"},
        {&fake.multiprocessors, 1, MGV_ERROR_NO_DEVICE, "has 1 multiprocessors"},
        {&fake.shared, 99 * 1024, MGV_ERROR_NO_DEVICE, "bytes of shared memory for a block; GPU 0 has 101376"},
        {&fake.no_driver_function, 1, MGV_ERROR_NO_DEVICE, "has no cuTensorMapEncodeTiled"},
        {&fake.refuse_maps, 1, MGV_ERROR_DEVICE, "was refused by the driver"},
    };
    fixture *f = (fixture *)*state;
    size_t i;
    for (i = 0; i < COUNT_OF(machines); i++) {
        fake_reset();
        *machines[i].value = machines[i].becomes;
        refused(f, machines[i].sentence, machines[i].result, machines[i].becomes);
    }
}

/* An engine that is made for outputs which no kernel gives. */
static void test_outputs_that_no_kernel_gives(void **state) {
    fixture *f = (fixture *)*state;
    mgv_engine_desc desc = engine_desc(f, MGV_BACKEND_AUTO);
    mgv_engine *engine;
    mgv_error error;
    fake_reset();
    f->log[0] = 0;
    desc.output_kinds = 1u << MGV_OUTPUT_POOLED | 1u << MGV_OUTPUT_TOKENS | 1u << MGV_OUTPUT_LAYER;
    if (mgv_engine_create(&engine, f->model, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_int_equal(mgv_engine_backend(engine), MGV_BACKEND_CUDA);
    end(engine);
    desc.output_kinds |= 1u << MGV_OUTPUT_EMBEDS;
    if (mgv_engine_create(&engine, f->model, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_int_equal(mgv_engine_backend(engine), MGV_BACKEND_CPU);
    assert_string_equal(f->log, "the CPU encodes: the GPU kernel gives no output of kind embeds; use the CPU backend");
    mgv_engine_destroy(engine);
    desc.backend = MGV_BACKEND_CUDA;
    assert_int_equal(mgv_engine_create(&engine, f->model, &desc, &error), MGV_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "no output of kind embeds"));
    desc.output_kinds = 1u << (MGV_OUTPUT_TEXT + 1);
    assert_int_equal(mgv_engine_create(&engine, f->model, &desc, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(fake_alive(), 0);
}

/* Kernels of another release, or of something else. */
static void test_kernels_that_do_not_fit(void **state) {
    static const char *const names[] = {"megavit_description", "megavit_encode_sm_90a", "megavit_encode_some_sm_90a",
                                        "megavit_encode_few_sm_90a", "megavit_encode_latency_104_sm_90a"};
    fixture *f = (fixture *)*state;
    mgv_engine_desc desc = engine_desc(f, MGV_BACKEND_CUDA);
    mgv_engine *engine;
    mgv_error error;
    int i;
    for (i = 0; i < 5; i++) {
        int shared = i == 1 || i == 4;
        fake_reset();
        fake.description[i]++;
        refused(f, shared ? "bytes of shared memory" : "take both from one release", shared ? MGV_ERROR_NO_DEVICE : MGV_ERROR_UNSUPPORTED, i);
    }
    fake_reset();
    fake.description_bytes = 12;
    refused(f, "the kernels' description has 12 bytes, not 20", MGV_ERROR_UNSUPPORTED, 0);
    for (i = 0; i < (int)COUNT_OF(names); i++) {
        fake_reset();
        fake.missing = names[i];
        refused(f, names[i], MGV_ERROR_UNSUPPORTED, i);
    }
    fake_reset();
    fake.fail_at = 1; /* every call fails: the first is what is said */
    fake.fail_from = 1;
    fake.fail_code = cudaErrorInsufficientDriver;
    refused(f, "cudaDriverGetVersion", MGV_ERROR_NO_DEVICE, 0);
    fake_reset();
    desc.kernels = NULL;
    assert_int_equal(mgv_engine_create(&engine, f->model, &desc, &error), MGV_ERROR_NO_DEVICE);
    assert_non_null(strstr(error.message, "there are no GPU kernels"));
    desc.kernels = kernels;
    desc.max_sms = 1;
    assert_int_equal(mgv_engine_create(&engine, f->model, &desc, &error), MGV_ERROR_ARGUMENT);
    desc.max_sms = 0;
    desc.device = 1;
    assert_int_equal(mgv_engine_create(&engine, f->model, &desc, &error), MGV_ERROR_NO_DEVICE);
    assert_non_null(strstr(error.message, "there is no GPU number 1; 1 are there"));
    desc.device = 0;
    mgv__cuda_test_calls = NULL;
    assert_int_equal(mgv_engine_create(&engine, f->model, &desc, &error), MGV_ERROR_NO_DEVICE);
    assert_non_null(strstr(error.message, "MEGAVIT_NO_CUDART"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_way_through),
        cmocka_unit_test(test_device_memory),
        cmocka_unit_test(test_creation_fails_at_every_call),
        cmocka_unit_test(test_creation_without_memory),
        cmocka_unit_test(test_encode_fails_at_every_call),
        cmocka_unit_test(test_which_errors_end_the_context),
        cmocka_unit_test(test_a_half_enqueued_encode_is_waited_for),
        cmocka_unit_test(test_a_half_sent_schedule_does_not_count),
        cmocka_unit_test(test_poll_wait_and_destroy),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_device_workspace),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_graphs), cmocka_unit_test(test_maps_of_a_batch),
        cmocka_unit_test(test_captures_of_others),
        cmocka_unit_test(test_what_a_graph_cannot_hold),
        cmocka_unit_test(test_schedules_come_and_go),
        cmocka_unit_test(test_packed_weights),
        cmocka_unit_test(test_validation),
        cmocka_unit_test(test_validation_beside_an_engine),
        cmocka_unit_test(test_the_callers_device),
        cmocka_unit_test(test_dealt_tiles_are_sent),
        cmocka_unit_test(test_machines_that_cannot),
        cmocka_unit_test(test_outputs_that_no_kernel_gives),
        cmocka_unit_test(test_kernels_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
