/* Sequences of calls, right ones and wrong ones in any order, on engines of the CPU and of a CUDA runtime that fails (tests/fake_cuda.h),
   with allocations that fail. Each input is one sequence. Whatever happens: a call that failed says so and changed nothing, rows that are
   said to be done are right to the last bit, nothing is allocated after creation and nothing is left at the end, and every engine whose
   context is not gone still works. */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_CUDA
#define MEGAVIT_NO_CUDART
#include "megavit.h"
#include "fuzz.h"
#define assert_true(condition) REQUIRE(condition)
#define assert_false(condition) REQUIRE(!(condition))
#define assert_int_equal(a, b) REQUIRE((int64_t)(a) == (int64_t)(b))
#define assert_null(pointer) REQUIRE(!(pointer))
#define assert_non_null(pointer) REQUIRE(pointer)
#define assert_ptr_equal(a, b) REQUIRE((const void *)(a) == (const void *)(b))
#define assert_string_equal(a, b) REQUIRE(strcmp(a, b) == 0)
#include "tests/fake_kernel.h"
#include "tests/memory_model.h"

enum {
    SIDE = 16, IMAGE_BYTES = 3 * SIDE * SIDE, WIDTH = 64, /* of small_siglip */
    SLOTS = 3,            /* engines at a time */
    PICTURES = 6, PICTURE_BYTES = 8192, LONGEST = 40, /* sides up to here fit */
    MOST_IMAGES = 4, MOST_OUTPUTS = 3,
    ROW_FLOATS = 16384, CARD_FLOATS = 4096, /* that an output has room for */
    MOST_STEPS = 60, MOST_WORKSPACE = 2 << 20, DIRTY_BYTES = 1 << 16, MOST_BYTES = 4 << 20
};

typedef struct slot {
    mgv_engine *engine;
    const mgv_model *model;
    uint8_t *workspace, *device_workspace;
    int cuda;
    /* the encode that was accepted last */
    int busy, known;     /* known: nothing odd about it, so that its rows are known */
    mgv_image images[MOST_IMAGES];
    int pictures[MOST_IMAGES];
    mgv_output outputs[MOST_OUTPUTS];
    uint32_t image_count, output_count;
    float *rows[MOST_OUTPUTS]; /* in host memory, of this slot */
} slot;

/* What lives from input to input. */
static mgv_model *siglip, *qwen;
static mgv_threads *pool;
static uint8_t *packed;
static uint64_t packed_bytes;
static uint8_t *pictures[PICTURES];
static const char kernels[] = "stands for megavit.fatbin";

/* What begins anew with each. */
static slot slots[SLOTS];
static uint8_t *card_pixels, *pinned_pixels;
static float *card_rows, *pinned_rows;
static fake_graph captured, graph; /* being captured; finished */
static int captured_slot, graph_slot; /* whose encode is in it; -1: none */
static fuzz_allocator counts;      /* of the engines */

static void *api_alloc(void *user, size_t bytes) {
    void *block = bytes > MOST_BYTES ? NULL : fuzz_alloc(user, bytes);
    if (block) memset(block, 0xA5, bytes < DIRTY_BYTES ? bytes : DIRTY_BYTES); /* not zero, as memory is that others have used */
    return block;
}
static void run_backwards(void *user, uint32_t count, mgv_task task, void *context) {
    (void)user;
    while (count-- > 0) task(context, count);
}
static void check_log(void *user, int32_t level, const char *message) {
    (void)user;
    (void)level;
    REQUIRE(message && message[0]);
}

/* What every call promises. */
static void check_said(mgv_result result, const mgv_error *error) {
    REQUIRE(result <= MGV_OK && result >= MGV_ERROR_CANCELLED);
    REQUIRE(error->code == result && (error->message[0] != 0) == (result != MGV_OK));
}

/* ---- engines ---- */

static void choose_size(fuzz_input *in, const mgv_model *model, mgv_engine_desc *d) {
    d->max_images = fuzz_rarely(in, 8) ? fuzz_extreme(in) : fuzz_take(in, 0, 4);
    d->max_tokens = fuzz_rarely(in, 4) ? fuzz_extreme(in) : 0;
    d->max_width = fuzz_rarely(in, 4) ? fuzz_extreme(in) : 64;
    d->max_height = fuzz_rarely(in, 4) ? fuzz_extreme(in) : 64;
    d->max_sms = fuzz_rarely(in, 4) ? fuzz_extreme(in) : 0;
    d->max_row_outputs = fuzz_rarely(in, 4) ? fuzz_extreme(in) : fuzz_take(in, 0, 3);
    if (model == siglip) return;
    d->min_pixels = fuzz_rarely(in, 8) ? fuzz_extreme(in) : fuzz_take(in, 0, 1);
    d->max_pixels = fuzz_rarely(in, 4) ? fuzz_extreme(in) : 1024;
    if (d->max_pixels == 0 || d->max_pixels > 65536) d->max_pixels = 1024; /* larger pictures would only take time */
}

static void choose_helpers(fuzz_input *in, mgv_engine_desc *d) {
    d->allocator.user = &counts;
    d->allocator.alloc = api_alloc;
    d->allocator.free = fuzz_rarely(in, 32) ? NULL : fuzz_free;
    d->logger.log = fuzz_take(in, 0, 1) ? check_log : NULL;
    d->kernels = fuzz_rarely(in, 16) ? NULL : kernels;
    mgv__cuda_test_calls = fuzz_rarely(in, 32) ? NULL : &fake_calls;
    if (!fuzz_rarely(in, 32)) {
        d->packed = packed;
        d->packed_bytes = packed_bytes - (fuzz_rarely(in, 32) ? fuzz_take(in, 0, 255) : 0);
        if (fuzz_rarely(in, 64)) d->packed_path = "/nonexistent/weights";
    }
    switch (fuzz_take(in, 0, 5)) {
    case 0:
        d->parallel.run = run_backwards;
        d->parallel.threads = fuzz_take(in, 1, 5);
        break;
    case 1: d->parallel = mgv_threads_parallel_for(pool); break;
    case 2:
        if (fuzz_rarely(in, 8)) d->parallel.run = run_backwards; /* without threads */
        break;
    default: break;
    }
}

/* Host and device memory of the caller's, sometimes too little or not aligned. */
static void choose_workspace(fuzz_input *in, slot *s, mgv_engine_desc *d) {
    mgv_error error;
    uint64_t bytes;
    mgv_result result;
    if (fuzz_take(in, 0, 1)) {
        result = mgv_engine_workspace_bytes(s->model, d, &bytes, &error);
        check_said(result, &error);
        if (result == MGV_OK && bytes < MOST_WORKSPACE) {
            const uint32_t less = fuzz_rarely(in, 4) ? fuzz_take(in, 0, 64) : 0, misfit = fuzz_take(in, 0, 64);
            s->workspace = (uint8_t *)malloc((size_t)bytes + misfit - less + 1);
            memset(s->workspace, 0xEE, bytes < DIRTY_BYTES ? (size_t)bytes - less : DIRTY_BYTES);
            d->workspace = s->workspace + misfit;
            d->workspace_bytes = bytes - less;
        }
    }
    if (!fuzz_rarely(in, 4)) return;
    result = mgv_engine_device_workspace_bytes(s->model, d, &bytes, &error);
    check_said(result, &error);
    if (result == MGV_OK && bytes < MOST_WORKSPACE) {
        const uint32_t less = fuzz_rarely(in, 4) ? fuzz_take(in, 0, 64) : 0, misfit = fuzz_rarely(in, 8) ? fuzz_take(in, 0, 64) : 0;
        void *memory;
        REQUIRE(fake_allocate(&memory, (size_t)bytes + misfit, FAKE_DEVICE_MEMORY) == cudaSuccess);
        s->device_workspace = (uint8_t *)memory;
        d->device_workspace = s->device_workspace + misfit;
        d->device_workspace_bytes = bytes - less;
    }
}

static void forget(slot *s) {
    uint32_t i;
    float *rows[MOST_OUTPUTS];
    free(s->workspace);
    if (s->device_workspace) fake_release(s->device_workspace, FAKE_DEVICE_MEMORY);
    memcpy(rows, s->rows, sizeof rows);
    memset(s, 0, sizeof *s);
    for (i = 0; i < MOST_OUTPUTS; i++) s->rows[i] = rows[i];
    fake_engines[s - slots] = NULL;
}

static void act_create(fuzz_input *in, slot *s) {
    /* an older header's description has less behind it */
    union { mgv_engine_desc desc; uint8_t bytes[sizeof(mgv_engine_desc)]; } u;
    const size_t live = counts.live_bytes;
    const uint32_t backend = fuzz_take(in, 0, 31);
    int alive;
    mgv_error error;
    mgv_result result;
    if (s->engine || fake.capture != cudaStreamCaptureStatusNone) return;
    memset(&u, 0, sizeof u);
    s->model = fuzz_rarely(in, 4) ? qwen : siglip;
    u.desc.backend = backend < 10 ? MGV_BACKEND_CPU : backend < 24 ? MGV_BACKEND_CUDA : backend < 30 ? MGV_BACKEND_AUTO
                                                                                                     : (mgv_backend)fuzz_extreme(in);
    u.desc.device = fuzz_rarely(in, 16) ? (int32_t)fuzz_take(in, 0, 3) - 1 : 0;
    u.desc.resize = fuzz_rarely(in, 32) ? (mgv_resize)fuzz_extreme(in) : (mgv_resize)fuzz_take(in, 0, 1);
    choose_size(in, s->model, &u.desc);
    choose_helpers(in, &u.desc);
    choose_workspace(in, s, &u.desc);
    alive = fake_alive();
    switch (fuzz_take(in, 0, 7)) {
    case 0: u.desc.struct_size = sizeof u.desc; break;
    case 1: u.desc.struct_size = (uint32_t)offsetof(mgv_engine_desc, packed_path); break; /* a header before files of packed weights */
    case 2: u.desc.struct_size = fuzz_rarely(in, 4) ? sizeof u.desc + 1 + fuzz_extreme(in) % 100 : fuzz_take(in, 0, 3); break;
    default: break;
    }
    counts.fail_at = fuzz_rarely(in, 8) ? counts.calls + fuzz_take(in, 1, 12) : 0;
    result = mgv_engine_create(&s->engine, s->model, fuzz_rarely(in, 64) ? NULL : &u.desc, &error);
    counts.fail_at = 0;
    check_said(result, &error);
    REQUIRE((result == MGV_OK) == (s->engine != NULL));
    fake.copying = 0; /* of a creation that ended half-way */
    if (result != MGV_OK) {
        REQUIRE(fake_alive() == alive && counts.live_bytes == live);
        forget(s);
        return;
    }
    s->cuda = mgv_engine_backend(s->engine) == MGV_BACKEND_CUDA;
    REQUIRE(!s->cuda || s->model == siglip);
    fake_engines[s - slots] = s->cuda ? s->engine : NULL;
}

static void act_destroy(fuzz_input *in, slot *s) {
    const int held = fake.held;
    (void)in;
    if (!s->engine || (s->cuda && fake.capture == cudaStreamCaptureStatusActive)) return;
    if (graph_slot == s - slots) graph_slot = -1;
    fake.held = 0; /* else it waits for ten seconds */
    REQUIRE(mgv_engine_destroy(s->engine) == MGV_OK);
    fake.held = held;
    forget(s);
}

/* ---- what is encoded ---- */

/* A picture in host memory that says how many bytes it has, so that anything else about it may be wrong. Returns whether something is. */
static int choose_image(fuzz_input *in, mgv_image *image, int *picture, uint32_t width, uint32_t height, mgv_pixel_format format) {
    uint64_t room = PICTURE_BYTES;
    int odd = 1;
    memset(image, 0, sizeof *image);
    *picture = (int)fuzz_take(in, 0, PICTURES - 1);
    image->pixels = pictures[*picture];
    image->width = width;
    image->height = height;
    image->format = format;
    switch (fuzz_take(in, 0, 47)) {
    case 0: image->width = fuzz_extreme(in); break;
    case 1: image->height = fuzz_extreme(in); break;
    case 2: image->format = (mgv_pixel_format)fuzz_extreme(in); break;
    case 3: room = fuzz_take(in, 1, 200); break;
    case 4: image->stride = fuzz_extreme(in); break;
    case 5:
        image->stride = -(int64_t)fuzz_extreme(in);
        image->pixels = pictures[*picture] + PICTURE_BYTES / 2;
        room = PICTURE_BYTES / 2;
        break;
    case 6: image->stride = INT64_MIN; break;
    case 7: image->frames = fuzz_extreme(in); break;
    case 8:
        image->frames = 2;
        image->frame_stride = INT64_MIN + fuzz_take(in, 0, 1);
        break;
    case 9: image->pixels = NULL; break;
    case 10:
        image->place = (mgv_place)fuzz_extreme(in);
        if (image->place == MGV_PLACE_DEVICE) image->place = MGV_PLACE_HOST; /* a lie about where memory lies is the caller's own */
        break;
    case 11: image->struct_size = (uint32_t)sizeof *image + 1 + fuzz_extreme(in) % 1000; break;
    case 12: image->struct_size = fuzz_take(in, 1, 3); break;
    case 13: image->alpha = (mgv_alpha)fuzz_extreme(in); break;
    default: odd = 0; break;
    }
    image->bytes = room;
    return odd;
}

/* Outputs into memory of the slot's, of the card's, of page-locked one. Returns whether something is odd about one of them. */
static int choose_output(fuzz_input *in, slot *s, uint32_t number, mgv_output *o) {
    const uint32_t where = fuzz_take(in, 0, 7);
    int odd = 1;
    memset(o, 0, sizeof *o);
    o->kind = s->model == siglip ? (mgv_output_kind)fuzz_take(in, MGV_OUTPUT_POOLED, MGV_OUTPUT_LAYER)
                                 : (mgv_output_kind)fuzz_take(in, MGV_OUTPUT_TOKENS, MGV_OUTPUT_LAYER);
    if (o->kind == MGV_OUTPUT_LAYER) o->index = fuzz_take(in, 0, 2);
    o->data = s->rows[number];
    o->capacity = ROW_FLOATS;
    o->normalize = (uint32_t)fuzz_rarely(in, 4);
    if (s->cuda && where < 2) {
        o->data = (where ? pinned_rows : card_rows) + number * CARD_FLOATS;
        o->capacity = CARD_FLOATS;
        o->place = where ? MGV_PLACE_HOST : MGV_PLACE_DEVICE;
        if (!where && !fuzz_rarely(in, 8)) o->normalize = 0;
    }
    switch (fuzz_take(in, 0, 47)) {
    case 0: o->data = NULL; break;
    case 1: o->capacity = fuzz_extreme(in) % CARD_FLOATS; break;
    case 2: o->kind = (mgv_output_kind)fuzz_extreme(in); break;
    case 3: o->index = fuzz_extreme(in); break;
    case 4:
        o->place = (mgv_place)fuzz_extreme(in);
        if (o->place == MGV_PLACE_DEVICE) o->place = MGV_PLACE_HOST;
        break;
    case 5: o->struct_size = (uint32_t)sizeof *o + 1 + fuzz_extreme(in) % 1000; break;
    case 6: o->struct_size = fuzz_take(in, 1, 3); break;
    case 7: /* over its own picture */
        o->data = (float *)(void *)pictures[0];
        o->capacity = PICTURE_BYTES / sizeof(float);
        o->place = MGV_PLACE_HOST;
        break;
    default: odd = 0; break;
    }
    return odd;
}

/* Pictures of the model's size may lie on the card or in page-locked memory. */
static void place_image(fuzz_input *in, mgv_image *image, int picture) {
    switch (fuzz_take(in, 0, 9)) {
    case 0:
        image->pixels = card_pixels + picture * IMAGE_BYTES;
        image->place = MGV_PLACE_DEVICE;
        break;
    case 1: image->pixels = pinned_pixels + picture * IMAGE_BYTES; break;
    default: return;
    }
    image->bytes = IMAGE_BYTES;
}

static int choose_encode(fuzz_input *in, slot *s, mgv_encode_desc *d, mgv_image *images, int *numbers, mgv_output *outputs) {
    const int fits = s->cuda && fuzz_take(in, 0, 1);
    const uint32_t width = fits ? SIDE : fuzz_take(in, 1, LONGEST), height = fits ? SIDE : fuzz_take(in, 1, LONGEST);
    const mgv_pixel_format format = fits ? MGV_PIXELS_RGB8 : (mgv_pixel_format)fuzz_take(in, 0, 5);
    int odd = 0;
    uint32_t i;
    memset(d, 0, sizeof *d);
    for (i = 0; i < MOST_IMAGES; i++) {
        const int this_is = choose_image(in, &images[i], &numbers[i], width, height, format);
        if (fits && !this_is) place_image(in, &images[i], numbers[i]);
        odd |= this_is;
        images[i].struct_size = images[0].struct_size; /* an array has one */
    }
    for (i = 0; i < MOST_OUTPUTS; i++) {
        odd |= choose_output(in, s, i, &outputs[i]);
        outputs[i].struct_size = outputs[0].struct_size;
    }
    d->images = images;
    d->outputs = outputs;
    d->image_count = fuzz_take(in, 1, MOST_IMAGES);
    d->output_count = fuzz_take(in, 1, MOST_OUTPUTS);
    switch (fuzz_take(in, 0, 63)) {
    case 0: d->image_count = 0; break;
    case 1: d->image_count = s->engine->desc.max_images < MOST_IMAGES ? MOST_IMAGES : 0xFFFFFFFFu - fuzz_take(in, 0, 255); break;
    case 2: d->output_count = 0; break;
    case 3: d->output_count = 129 + fuzz_extreme(in) % 1000000; break;
    case 4: d->stream = (void *)(uintptr_t)16; break;
    case 5: d->struct_size = (uint32_t)sizeof *d + 1 + fuzz_extreme(in) % 1000; break;
    case 6: d->images = NULL; break;
    case 7: d->outputs = NULL; break;
    default: break;
    }
    if (s->engine->desc.max_images > MOST_IMAGES && d->image_count > MOST_IMAGES) d->image_count = MOST_IMAGES; /* no more are there */
    return odd || d->struct_size != 0 || d->stream != NULL;
}

/* The rows of one output of one picture, from an engine that does nothing else. Returns their number of floats. */
static size_t plain_rows(const slot *s, uint32_t image, uint32_t output, float *rows) {
    mgv_engine_desc desc;
    mgv_engine *plain;
    mgv_output o = s->outputs[output];
    mgv_encode_desc d;
    mgv_shape shape;
    mgv_grid grid;
    mgv_error error;
    memset(&desc, 0, sizeof desc);
    memset(&d, 0, sizeof d);
    REQUIRE(mgv_model_grid(s->model, &s->images[image], s->engine->desc.min_pixels, s->engine->desc.max_pixels, &grid, &error) == MGV_OK);
    desc.backend = MGV_BACKEND_CPU;
    desc.max_width = desc.max_height = 64;
    desc.resize = s->engine->desc.resize;
    desc.min_pixels = s->engine->desc.min_pixels;
    desc.max_pixels = s->engine->desc.max_pixels;
    desc.max_tokens = grid.tokens;
    REQUIRE(mgv_engine_create(&plain, s->model, &desc, &error) == MGV_OK);
    o.data = rows;
    o.capacity = ROW_FLOATS;
    d.images = &s->images[image];
    d.outputs = &o;
    d.image_count = d.output_count = 1;
    REQUIRE(mgv_engine_shape(plain, d.images, 1, &o, &shape, &error) == MGV_OK);
    REQUIRE(mgv_encode_blocking(plain, &d, &error) == MGV_OK);
    REQUIRE(mgv_engine_destroy(plain) == MGV_OK);
    return (size_t)(shape.rows * shape.columns);
}

/* The rows of the slot's encode, which is done. */
static void check_rows(const slot *s) {
    static float expected[ROW_FLOATS];
    uint32_t i, k, q;
    if (!s->known) return;
    for (q = 0; q < s->output_count; q++) {
        size_t at = 0;
        const mgv_output *o = &s->outputs[q];
        for (i = 0; i < s->image_count && !s->cuda; i++) {
            const size_t floats = plain_rows(s, i, q, expected);
            REQUIRE(memcmp(o->data + at, expected, floats * sizeof(float)) == 0);
            at += floats;
        }
        if (!s->cuda || o->kind != MGV_OUTPUT_POOLED || o->normalize || s->images[0].width != SIDE || s->images[0].height != SIDE ||
            s->images[0].format != MGV_PIXELS_RGB8)
            continue;
        for (i = 0; i < s->image_count; i++)
            for (k = 0; k < WIDTH; k++)
                REQUIRE(o->data[i * WIDTH + k] == fake_pooled(pictures[s->pictures[i]], IMAGE_BYTES, k));
    }
}

static void encode(fuzz_input *in, slot *s, int blocking) {
    mgv_image images[MOST_IMAGES];
    mgv_output outputs[MOST_OUTPUTS];
    int numbers[MOST_IMAGES], odd;
    const int capturing = s->cuda && fake.capture == cudaStreamCaptureStatusActive;
    mgv_encode_desc d;
    mgv_error error;
    mgv_result result;
    uint64_t calls;
    if (!s->engine || (capturing && captured.count > 4)) return;
    if (blocking && s->cuda) fake.held = 0; /* else it waits for ten minutes */
    odd = choose_encode(in, s, &d, images, numbers, outputs);
    calls = counts.calls;
    result = blocking && !capturing ? mgv_encode_blocking(s->engine, &d, &error) : mgv_encode(s->engine, &d, &error);
    check_said(result, &error);
    REQUIRE(counts.calls == calls); /* nothing is allocated after creation */
    if (s->busy && !s->cuda) REQUIRE(result == MGV_ERROR_BUSY || result == MGV_ERROR_ARGUMENT);
    if (result != MGV_OK) return;
    if (capturing) {
        captured_slot = (int)(s - slots);
        return;
    }
    s->known = !odd;
    s->image_count = d.image_count;
    s->output_count = d.output_count;
    memcpy(s->images, images, sizeof images);
    memcpy(s->pictures, numbers, sizeof numbers);
    memcpy(s->outputs, outputs, sizeof outputs);
    s->busy = !blocking;
    if (blocking) check_rows(s);
}
static void act_encode(fuzz_input *in, slot *s) { encode(in, s, 0); }
static void act_encode_blocking(fuzz_input *in, slot *s) { encode(in, s, 1); }

/* ---- and what else is done ---- */

static void act_poll(fuzz_input *in, slot *s) {
    mgv_error error;
    const mgv_status status = mgv_poll(s->engine, &error);
    (void)in;
    REQUIRE(status >= MGV_STATUS_FAILED ? error.code < 0 && error.message[0] : error.code == MGV_OK);
    if (!s->engine) {
        REQUIRE(status == MGV_STATUS_FAILED);
        return;
    }
    if (status == MGV_STATUS_DONE && s->busy) check_rows(s);
    if (status != MGV_STATUS_QUEUED && status != MGV_STATUS_RUNNING) s->busy = 0;
}

static void act_wait(fuzz_input *in, slot *s) {
    mgv_error error;
    const mgv_result result = mgv_wait(s->engine, s->cuda ? fuzz_take(in, 0, 2) : 10000, &error);
    check_said(result, &error);
    if (!s->engine) REQUIRE(result == MGV_ERROR_ARGUMENT);
    if (result == MGV_OK && s->busy) check_rows(s);
    if (result != MGV_ERROR_BUSY) s->busy = 0;
}

static void act_cancel(fuzz_input *in, slot *s) {
    (void)in;
    mgv_cancel(s->engine);
}

static void act_preprocess(fuzz_input *in, slot *s) {
    static float values[ROW_FLOATS];
    mgv_image image;
    mgv_shape shape;
    mgv_error error;
    mgv_result result;
    int picture;
    choose_image(in, &image, &picture, fuzz_take(in, 1, LONGEST), fuzz_take(in, 1, LONGEST), (mgv_pixel_format)fuzz_take(in, 0, 5));
    result = mgv_preprocess(s->engine, &image, fuzz_rarely(in, 8) ? NULL : values, fuzz_rarely(in, 8) ? fuzz_take(in, 0, 255) : ROW_FLOATS,
                            &shape, &error);
    check_said(result, &error);
    if (s->busy && !s->cuda) REQUIRE(result == MGV_ERROR_BUSY || result == MGV_ERROR_ARGUMENT);
}

static void act_ask(fuzz_input *in, slot *s) {
    mgv_image image;
    mgv_grid grid;
    mgv_output output;
    mgv_shape shape;
    mgv_error error;
    int picture;
    choose_image(in, &image, &picture, fuzz_take(in, 1, 255), fuzz_take(in, 1, 255), MGV_PIXELS_RGB8);
    memset(&output, 0, sizeof output);
    output.kind = (mgv_output_kind)fuzz_take(in, 0, 4);
    output.index = fuzz_take(in, 0, 3);
    check_said(mgv_engine_grid(s->engine, &image, &grid, &error), &error);
    check_said(mgv_engine_shape(s->engine, &image, fuzz_take(in, 0, 1), &output, &shape, &error), &error);
    check_said(mgv_model_grid(fuzz_take(in, 0, 1) ? siglip : qwen, &image, fuzz_extreme(in), fuzz_extreme(in), &grid, &error), &error);
}

/* A call to come will fail. */
static void act_fault(fuzz_input *in, slot *s) {
    static const cudaError_t codes[] = {cudaErrorInvalidValue, cudaErrorMemoryAllocation, cudaErrorNotReady, cudaErrorLaunchFailure,
                                        cudaErrorIllegalAddress, (cudaError_t)999, (cudaError_t)801, (cudaError_t)720};
    (void)s;
    fake.fail_at = fake.calls + 1 + fuzz_take(in, 0, 40);
    fake.fail_from = fuzz_rarely(in, 8);
    fake.fail_code = codes[fuzz_take(in, 0, 7)];
}
static void act_recover(fuzz_input *in, slot *s) {
    (void)s;
    fake.fail_at = 0;
    fake.fail_from = 0;
    fake.held = (int)fuzz_take(in, 0, 1);
}
/* How kernels end from here on. */
static void act_give_up(fuzz_input *in, slot *s) {
    (void)s;
    fake.aborted = fuzz_rarely(in, 3) ? fuzz_take(in, 0, 7) : 0;
}
/* A capture begins or ends. */
static void act_capture(fuzz_input *in, slot *s) {
    (void)in;
    (void)s;
    if (fake.capture == cudaStreamCaptureStatusNone) {
        memset(&captured, 0, sizeof captured);
        captured_slot = -1;
        fake.graph = &captured;
        fake.capture = cudaStreamCaptureStatusActive;
        return;
    }
    graph_slot = fake.capture == cudaStreamCaptureStatusActive ? captured_slot : -1;
    graph = captured;
    fake.capture = cudaStreamCaptureStatusNone;
    fake.graph = NULL;
}
static void act_replay(fuzz_input *in, slot *s) {
    (void)in;
    (void)s;
    if (graph_slot < 0 || fake.capture != cudaStreamCaptureStatusNone || fake.held || fake.aborted) return;
    if (slots[graph_slot].busy || slots[graph_slot].engine->job.abandoned) return; /* the caller's mistake: two encodes at once */
    fake_replay(&graph);
}

static void (*const acts[])(fuzz_input *, slot *) = {act_create, act_create, act_create, act_destroy, act_encode, act_encode, act_encode,
                                                     act_encode_blocking, act_encode_blocking, act_poll, act_poll, act_wait, act_wait, act_cancel,
                                                     act_preprocess, act_ask, act_fault, act_recover, act_recover, act_give_up, act_capture,
                                                     act_replay};

/* ---- an input ---- */

static void begin_once(void) {
    static memory_model files[2];
    static fuzz_allocator models; /* plans for as many pictures as a caller asks for are of its memory */
    mgv_allocator allocator;
    mgv_error error;
    uint32_t i;
    if (pool) return;
    allocator.user = &models;
    allocator.alloc = api_alloc;
    allocator.free = fuzz_free;
    small_siglip(&files[0]);
    small_qwen(&files[1]);
    REQUIRE(memory_model_open(&files[0], &allocator, &siglip, &error) == MGV_OK);
    REQUIRE(memory_model_open(&files[1], &allocator, &qwen, &error) == MGV_OK);
    REQUIRE(mgv_model_packed_bytes(siglip, "sm_90a", &packed_bytes, &error) == MGV_OK);
    packed = (uint8_t *)malloc((size_t)packed_bytes);
    REQUIRE(mgv_model_pack(siglip, "sm_90a", packed, packed_bytes, &error) == MGV_OK);
    for (i = 0; i < PICTURES; i++) pictures[i] = (uint8_t *)malloc(PICTURE_BYTES);
    for (i = 0; i < SLOTS * MOST_OUTPUTS; i++)
        slots[i / MOST_OUTPUTS].rows[i % MOST_OUTPUTS] = (float *)malloc(ROW_FLOATS * sizeof(float));
    REQUIRE(mgv_threads_create(&pool, 3, NULL, &error) == MGV_OK);
}

static void begin(void) {
    void *memory[4];
    uint32_t i, k;
    fake_reset();
    fake.devices = 2;
    fake.most_bytes = MOST_BYTES;
    fake.kernel = fake_kernel;
    memset(&counts, 0, sizeof counts);
    captured_slot = graph_slot = -1;
    fake_allocate(&memory[0], PICTURES * IMAGE_BYTES, FAKE_DEVICE_MEMORY);
    fake_allocate(&memory[1], PICTURES * IMAGE_BYTES, FAKE_PINNED_MEMORY);
    fake_allocate(&memory[2], MOST_OUTPUTS * CARD_FLOATS * sizeof(float), FAKE_DEVICE_MEMORY);
    fake_allocate(&memory[3], MOST_OUTPUTS * CARD_FLOATS * sizeof(float), FAKE_PINNED_MEMORY);
    card_pixels = (uint8_t *)memory[0];
    pinned_pixels = (uint8_t *)memory[1];
    card_rows = (float *)memory[2];
    pinned_rows = (float *)memory[3];
    for (k = 0; k < PICTURES; k++) {
        for (i = 0; i < PICTURE_BYTES; i++) pictures[k][i] = (uint8_t)((i + 977 * k) * 2654435761u >> 11);
        memcpy(card_pixels + k * IMAGE_BYTES, pictures[k], IMAGE_BYTES);
        memcpy(pinned_pixels + k * IMAGE_BYTES, pictures[k], IMAGE_BYTES);
    }
}

/* An engine of any past encodes again, but for one whose context is gone and one that was made for less. */
static void check_still_works(slot *s) {
    mgv_image image;
    mgv_output output;
    mgv_encode_desc d;
    mgv_error error;
    mgv_result result;
    uint32_t k;
    int tries;
    mgv_wait(s->engine, 1000, &error);
    memset(&image, 0, sizeof image);
    memset(&output, 0, sizeof output);
    memset(&d, 0, sizeof d);
    image.pixels = pictures[1];
    image.width = image.height = SIDE;
    output.kind = s->cuda ? MGV_OUTPUT_POOLED : MGV_OUTPUT_TOKENS;
    output.data = s->rows[0];
    output.capacity = ROW_FLOATS;
    d.images = &image;
    d.outputs = &output;
    d.image_count = d.output_count = 1;
    for (tries = 0; tries < 2; tries++) { /* the first may learn that a replay has timed out */
        result = mgv_encode_blocking(s->engine, &d, &error);
        check_said(result, &error);
        if (result != MGV_ERROR_TIMEOUT) break;
    }
    REQUIRE(result == MGV_OK || result == MGV_ERROR_CAPACITY || (s->cuda && result == MGV_ERROR_DEVICE_LOST));
    for (k = 0; k < WIDTH && s->cuda && result == MGV_OK; k++) REQUIRE(s->rows[0][k] == fake_pooled(pictures[1], IMAGE_BYTES, k));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input in = {data, size, 0};
    uint32_t steps, k;
    begin_once();
    begin();
    for (steps = 0; steps < MOST_STEPS && in.at < in.size; steps++) {
        slot *s = &slots[fuzz_take(&in, 0, SLOTS - 1)];
        acts[fuzz_take(&in, 0, sizeof acts / sizeof acts[0] - 1)](&in, s);
    }
    fake.fail_at = 0;
    fake.held = 0;
    fake.aborted = 0;
    fake.capture = cudaStreamCaptureStatusNone;
    fake.graph = NULL;
    for (k = 0; k < SLOTS; k++) {
        if (slots[k].engine) check_still_works(&slots[k]);
        act_destroy(NULL, &slots[k]);
    }
    fake_release(card_pixels, FAKE_DEVICE_MEMORY);
    fake_release(pinned_pixels, FAKE_PINNED_MEMORY);
    fake_release(card_rows, FAKE_DEVICE_MEMORY);
    fake_release(pinned_rows, FAKE_PINNED_MEMORY);
    REQUIRE(fake_alive() == 0 && counts.live_bytes == 0);
    return 0;
}
