/* The CUDA backend through the public API, on a machine with a GPU: against the CPU backend, and against itself.
   usage: test_engine DIRECTORY [devices]   of a SigLIP model; `make test-gpu` makes one of random weights.
   With "devices" only what needs several GPUs. */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_CUDA
static const struct mgv__cuda_calls *counted_calls; /* or NULL: the runtime's own calls are made */
#define MGV__CUDA_RUNTIME (counted_calls ? counted_calls : &mgv__cuda_runtime)
#include "megavit.h"

#include <stdio.h>

enum { MAX_IMAGES = 64 };
static const double tolerance = 1.5e-2; /* relative L2 of one pooled vector in bf16 against fp32 */

typedef struct bench {
    mgv_model *model;
    mgv_model_info info;
    mgv_threads *threads;
    mgv_engine *cpu, *gpu;
    uint8_t *pixels;        /* [MAX_IMAGES, S, S, 3] */
    uint8_t *device_pixels;
    uint8_t *odd_pixels;    /* room for the same at an odd address */
    float *expected;        /* [MAX_IMAGES, width] by the CPU */
    float *got;
    float *device_got;
    int failures;
} bench;

static void report(bench *b, int good, const char *what) {
    printf("%s %s\n", good ? "ok  " : "FAIL", what);
    b->failures += !good;
}
static void need(int condition, const char *what) {
    if (condition) return;
    printf("FAIL %s\n", what);
    exit(1);
}

static uint32_t random_bits(uint32_t *state) { /* xorshift32 */
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

static size_t picture_bytes(const bench *b) { return (size_t)b->info.image_size * b->info.image_size * 3; }

static mgv_image image_at(const bench *b, const uint8_t *pixels, uint32_t number, mgv_place place) {
    mgv_image image;
    size_t bytes = (size_t)b->info.image_size * b->info.image_size * 3;
    memset(&image, 0, sizeof image);
    image.pixels = pixels + number * bytes;
    image.width = image.height = b->info.image_size;
    image.bytes = bytes;
    image.place = place;
    return image;
}

static mgv_output output_at(float *data, uint64_t capacity, mgv_place place) {
    mgv_output output;
    memset(&output, 0, sizeof output);
    output.kind = MGV_OUTPUT_POOLED;
    output.data = data;
    output.capacity = capacity;
    output.place = place;
    return output;
}

static mgv_result encode(mgv_engine *engine, const mgv_image *images, uint32_t count, const mgv_output *output, mgv_error *error) {
    mgv_encode_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.images = images;
    desc.image_count = count;
    desc.outputs = output;
    desc.output_count = 1;
    return mgv_encode_blocking(engine, &desc, error);
}

/* Pictures [first, first + count) into b->got, poisoned before. */
static mgv_result encode_pictures(bench *b, mgv_engine *engine, const uint8_t *pixels, mgv_place place, uint32_t first, uint32_t count,
                                  mgv_error *error) {
    mgv_image images[MAX_IMAGES];
    mgv_output output = output_at(b->got, (uint64_t)count * b->info.pooled_width, MGV_PLACE_HOST);
    uint32_t i;
    for (i = 0; i < count; i++) images[i] = image_at(b, pixels, first + i, place);
    memset(b->got, 0xFF, (size_t)MAX_IMAGES * b->info.pooled_width * sizeof(float));
    return encode(engine, images, count, &output, error);
}

static double worst_error(const bench *b, uint32_t first, uint32_t count) {
    double worst = 0;
    uint32_t i, k;
    for (i = 0; i < count; i++) {
        const float *expected = b->expected + (size_t)(first + i) * b->info.pooled_width, *got = b->got + (size_t)i * b->info.pooled_width;
        double difference = 0, norm = 0;
        for (k = 0; k < b->info.pooled_width; k++) {
            difference += ((double)got[k] - expected[k]) * ((double)got[k] - expected[k]);
            norm += (double)expected[k] * expected[k];
        }
        difference = sqrt(difference / norm);
        if (!(difference <= worst)) worst = difference; /* NaN too */
    }
    return worst;
}

static void test_against_cpu(bench *b) {
    static const uint32_t counts[] = {1, 2, 7, 33, 64};
    char what[700];
    size_t i;
    for (i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        mgv_error error;
        double worst = -1;
        mgv_result result = encode_pictures(b, b->gpu, b->pixels, MGV_PLACE_HOST, 0, counts[i], &error);
        if (result == MGV_OK) worst = worst_error(b, 0, counts[i]);
        snprintf(what, sizeof what, "%u pictures: worst relative L2 against the CPU %.2e %s", counts[i], worst, error.message);
        report(b, result == MGV_OK && worst >= 0 && worst <= tolerance, what);
    }
}

static void test_same_bits(bench *b) {
    size_t row = b->info.pooled_width * sizeof(float);
    float *first = (float *)malloc(MAX_IMAGES * row);
    mgv_error error;
    int same = 1, i;
    need(encode_pictures(b, b->gpu, b->pixels, MGV_PLACE_HOST, 0, MAX_IMAGES, &error) == MGV_OK, error.message);
    memcpy(first, b->got, MAX_IMAGES * row);
    for (i = 0; i < 300; i++) {
        need(encode_pictures(b, b->gpu, b->pixels, MGV_PLACE_HOST, 0, MAX_IMAGES, &error) == MGV_OK, error.message);
        same &= memcmp(first, b->got, MAX_IMAGES * row) == 0;
    }
    report(b, same, "300 encodes give the same bits");
    need(encode_pictures(b, b->gpu, b->pixels, MGV_PLACE_HOST, 5, 50, &error) == MGV_OK, error.message);
    report(b, memcmp(first + 5 * b->info.pooled_width, b->got, 50 * row) == 0, "pictures 5 to 54 alone give the bits they have among 64");
    need(encode_pictures(b, b->gpu, b->device_pixels, MGV_PLACE_DEVICE, 0, MAX_IMAGES, &error) == MGV_OK, error.message);
    report(b, memcmp(first, b->got, MAX_IMAGES * row) == 0, "device pictures in place give the same bits");
    need(cudaMemcpy(b->odd_pixels + 1, b->pixels, MAX_IMAGES * picture_bytes(b), cudaMemcpyHostToDevice) == cudaSuccess,
         "copying pictures");
    need(encode_pictures(b, b->gpu, b->odd_pixels + 1, MGV_PLACE_DEVICE, 0, MAX_IMAGES, &error) == MGV_OK, error.message);
    report(b, memcmp(first, b->got, MAX_IMAGES * row) == 0, "and at an odd address");
    for (i = 0; i < 2; i++) { /* how many there are may decide how they are rounded: three are as seven, 33 as 48 */
        const uint32_t among = i ? 48 : 7, alone = i ? 33 : 3;
        char what[80];
        need(encode_pictures(b, b->gpu, b->pixels, MGV_PLACE_HOST, 0, among, &error) == MGV_OK, error.message);
        memcpy(first, b->got, among * row);
        need(encode_pictures(b, b->gpu, b->pixels, MGV_PLACE_HOST, 4, alone, &error) == MGV_OK, error.message);
        snprintf(what, sizeof what, "pictures 4 to %u alone give the bits they have among %u", alone + 3, among);
        report(b, memcmp(first + 4 * b->info.pooled_width, b->got, alone * row) == 0, what);
    }
    free(first);
}

/* Three pictures from both places, their result on the card, beside the same three from the host: how many there are may decide how they are rounded. */
static void test_device_output(bench *b) {
    size_t values = 3 * b->info.pooled_width;
    mgv_image images[3];
    mgv_output output = output_at(b->device_got, 3 * b->info.pooled_width, MGV_PLACE_DEVICE);
    float *copy = (float *)malloc(values * sizeof(float));
    mgv_error error;
    uint32_t i;
    for (i = 0; i < 3; i++) images[i] = image_at(b, i == 1 ? b->pixels : b->device_pixels, 2 * i,
                                                 i == 1 ? MGV_PLACE_HOST : MGV_PLACE_DEVICE);
    need(encode(b->gpu, images, 3, &output, &error) == MGV_OK, error.message);
    need(cudaMemcpy(copy, b->device_got, values * sizeof(float), cudaMemcpyDeviceToHost) == cudaSuccess, "copying the result");
    for (i = 0; i < 3; i++) images[i] = image_at(b, b->pixels, 2 * i, MGV_PLACE_HOST);
    output = output_at(b->got, 3 * b->info.pooled_width, MGV_PLACE_HOST);
    need(encode(b->gpu, images, 3, &output, &error) == MGV_OK, error.message);
    report(b, memcmp(copy, b->got, values * sizeof(float)) == 0, "device output, mixed places: the same bits");
    free(copy);
}

/* A picture of another size goes through the same resize on the host for both backends. */
static void test_resized(bench *b) {
    mgv_image image = image_at(b, b->pixels, 0, MGV_PLACE_HOST);
    mgv_output output = output_at(b->got, b->info.pooled_width, MGV_PLACE_HOST);
    float *expected = (float *)malloc(b->info.pooled_width * sizeof(float)), *kept = b->expected;
    mgv_error error;
    char what[96];
    image.format = MGV_PIXELS_BGRA8;
    image.width = 97;
    image.height = 131;
    image.stride = 4 * 100;
    output.normalize = 1;
    output.data = expected;
    need(encode(b->cpu, &image, 1, &output, &error) == MGV_OK, error.message);
    output.data = b->got;
    need(encode(b->gpu, &image, 1, &output, &error) == MGV_OK, error.message);
    b->expected = expected;
    snprintf(what, sizeof what, "97 x 131 BGRA with a stride, normalised: relative L2 %.2e", worst_error(b, 0, 1));
    report(b, worst_error(b, 0, 1) <= tolerance, what);
    b->expected = kept;
    free(expected);
}

static void test_poll(bench *b) {
    mgv_image image = image_at(b, b->pixels, 0, MGV_PLACE_HOST);
    mgv_output output = output_at(b->got, b->info.pooled_width, MGV_PLACE_HOST);
    mgv_encode_desc desc;
    mgv_status status;
    mgv_error error;
    double start;
    memset(&desc, 0, sizeof desc);
    desc.images = &image;
    desc.outputs = &output;
    desc.image_count = desc.output_count = 1;
    need(mgv_encode(b->gpu, &desc, &error) == MGV_OK, error.message);
    report(b, mgv_encode(b->gpu, &desc, &error) == MGV_ERROR_BUSY, "a second encode while one is under way is refused");
    for (start = mgv__now_ms(); (status = mgv_poll(b->gpu, &error)) == MGV_STATUS_QUEUED || status == MGV_STATUS_RUNNING;)
        need(mgv__now_ms() - start < 5000, "an encode of one picture ends within 5 s");
    report(b, status == MGV_STATUS_DONE && worst_error(b, 0, 1) <= tolerance, "poll sees it done, and the result is right");
}

/* Each signal lost in turn: a time-out that says where, a context that lives, and a next encode that is right. */
static void test_lost_signals(bench *b) {
    mgv__cuda *cuda = b->gpu->gpu->cuda;
    uint32_t op, good = 0, count = 0, i;
    mgv_error before;
    mgv__cuda_limit(cuda, 0); /* so that the plan holds the schedule of these pictures, whose counters are looked at */
    need(encode_pictures(b, b->gpu, b->pixels, MGV_PLACE_HOST, 0, 2, &before) == MGV_OK, before.message);
    for (op = 0; op < cuda->plan->op_count; op++) {
        const mgv__kernel_op *kernel = &cuda->plan->ops[op].kernel;
        mgv_error error, after;
        mgv_result result;
        double start = mgv__now_ms();
        int read = 0;
        for (i = 0; i < cuda->plan->op_count; i++) read |= cuda->plan->ops[i].kernel.wait_divisor &&
            cuda->plan->ops[i].kernel.wait_counter == kernel->signal_counter;
        if (!read || !kernel->column_tiles || op % 7) continue; /* some of them; tests/gpu/check.py loses them all */
        count++;
        cuda->arguments.lost_signal = 1 + kernel->signal_counter;
        result = encode_pictures(b, b->gpu, b->pixels, MGV_PLACE_HOST, 0, 2, &error);
        cuda->arguments.lost_signal = 0;
        if (mgv__now_ms() - start > 2000) printf("     slow: %.0f ms\n", mgv__now_ms() - start);
        if (encode_pictures(b, b->gpu, b->pixels, MGV_PLACE_HOST, 0, 2, &after) == MGV_OK && worst_error(b, 0, 2) <= tolerance &&
            result == MGV_ERROR_TIMEOUT) good++;
        else printf("     operation %u: %s / %s\n", op, error.message, after.message);
    }
    report(b, good == count && count > 3, "lost signals are time-outs, and the next encode is right");
}

/* Cancelled at once and after any part of the time that it takes: it ends soon, and the next encode is right. */
static void test_cancel(bench *b) {
    enum { COUNT = 60 };
    mgv_image images[MAX_IMAGES];
    mgv_output output = output_at(b->got, (uint64_t)MAX_IMAGES * b->info.pooled_width, MGV_PLACE_HOST);
    mgv_encode_desc desc;
    uint32_t i, good = 0, early = 0;
    double slowest = 0, whole;
    mgv_error error, after;
    memset(&desc, 0, sizeof desc);
    desc.images = images;
    desc.image_count = MAX_IMAGES;
    desc.outputs = &output;
    desc.output_count = 1;
    for (i = 0; i < MAX_IMAGES; i++) images[i] = image_at(b, b->device_pixels, i, MGV_PLACE_DEVICE);
    need(mgv_encode_blocking(b->gpu, &desc, &error) == MGV_OK, error.message);
    whole = mgv__now_ms();
    need(mgv_encode_blocking(b->gpu, &desc, &error) == MGV_OK, error.message);
    whole = mgv__now_ms() - whole;
    for (i = 0; i < COUNT; i++) {
        mgv_result result;
        double start, took;
        need(mgv_encode(b->gpu, &desc, &error) == MGV_OK, error.message);
        for (start = mgv__now_ms(); mgv__now_ms() - start < whole * i / COUNT;) continue;
        start = mgv__now_ms();
        mgv_cancel(b->gpu);
        result = mgv_wait(b->gpu, 5000, &error);
        took = mgv__now_ms() - start;
        if (took > slowest) slowest = took;
        early += result == MGV_ERROR_CANCELLED;
        if (encode_pictures(b, b->gpu, b->pixels, MGV_PLACE_HOST, 0, 2, &after) == MGV_OK && worst_error(b, 0, 2) <= tolerance &&
            (result == MGV_ERROR_CANCELLED || result == MGV_OK)) good++;
        else printf("     after %u of %u parts: %s / %s\n", i, (uint32_t)COUNT, error.message, after.message);
    }
    printf("     %u of %u cancelled, the slowest ended %.2f ms after mgv_cancel; a whole encode takes %.2f ms\n", early, (uint32_t)COUNT,
           slowest, whole);
    report(b, good == COUNT && early > COUNT / 4, "encodes are cancelled at any moment, and the next one is right");
}

/* Tokens and layers of three pictures against the CPU: into device memory and pageable memory, normalised or not. */
static void test_rows(bench *b) {
    enum { PICTURES = 3, OUTPUTS = 5 };
    static const mgv_output_kind kinds[OUTPUTS] = {MGV_OUTPUT_POOLED, MGV_OUTPUT_TOKENS, MGV_OUTPUT_LAYER, MGV_OUTPUT_LAYER,
                                                   MGV_OUTPUT_LAYER};
    const uint32_t layers[OUTPUTS] = {0, 0, 0, b->info.layers / 2, b->info.layers};
    const size_t rows = (size_t)PICTURES * b->info.tokens_per_image * b->info.hidden, bytes = (rows + 1) * sizeof(float);
    float *got = (float *)malloc(bytes);
    mgv_engine_desc desc;
    mgv_image images[PICTURES];
    mgv_output outputs[OUTPUTS], expected[OUTPUTS];
    mgv_encode_desc work;
    mgv_engine *gpu;
    mgv_error error;
    char what[160];
    uint32_t i;
    size_t k;
    memset(&desc, 0, sizeof desc);
    memset(&work, 0, sizeof work);
    desc.backend = MGV_BACKEND_CUDA;
    desc.max_images = PICTURES + 1;
    desc.max_row_outputs = 2;
    need(mgv_engine_create(&gpu, b->model, &desc, &error) == MGV_OK, error.message);
    for (i = 0; i < PICTURES; i++) images[i] = image_at(b, b->pixels, i, MGV_PLACE_HOST);
    for (i = 0; i < OUTPUTS; i++) {
        expected[i] = output_at((float *)malloc(bytes), rows, MGV_PLACE_HOST);
        expected[i].kind = kinds[i];
        expected[i].index = layers[i];
        expected[i].normalize = i == 1;
        outputs[i] = expected[i];
        outputs[i].data = (float *)malloc(bytes);
        if (i != 2 && i != 4) continue;
        outputs[i].place = MGV_PLACE_DEVICE;
        need(cudaMalloc((void **)&outputs[i].data, bytes) == cudaSuccess, "device memory");
        outputs[i].data++; /* no multiple of eight bytes */
    }
    work.images = images;
    work.image_count = PICTURES;
    work.output_count = OUTPUTS;
    work.outputs = expected;
    need(mgv_encode_blocking(b->cpu, &work, &error) == MGV_OK, error.message);
    work.outputs = outputs;
    for (i = 0; i < OUTPUTS; i++) {
        if (outputs[i].place == MGV_PLACE_HOST) memset(outputs[i].data, 255, bytes);
        else need(cudaMemset(outputs[i].data, 255, rows * sizeof(float)) == cudaSuccess, "filling device memory with NaN");
    }
    need(mgv_encode_blocking(gpu, &work, &error) == MGV_OK, error.message);
    for (i = 0; i < OUTPUTS; i++) {
        const size_t count = i == 0 ? (size_t)PICTURES * b->info.pooled_width : rows;
        double difference = 0, norm = 0;
        need(cudaMemcpy(got, outputs[i].data, count * sizeof(float), cudaMemcpyDefault) == cudaSuccess, "copying rows");
        for (k = 0; k < count; k++) {
            difference += ((double)got[k] - expected[i].data[k]) * ((double)got[k] - expected[i].data[k]);
            norm += (double)expected[i].data[k] * expected[i].data[k];
        }
        difference = sqrt(difference / norm);
        snprintf(what, sizeof what, "one of %u outputs (kind %d, index %u): relative L2 against the CPU %.2e", (uint32_t)OUTPUTS,
                 (int)kinds[i], layers[i], difference);
        report(b, difference <= tolerance, what);
    }
    memcpy(got, outputs[0].data, PICTURES * b->info.pooled_width * sizeof(float));
    memset(outputs[0].data, 255, bytes);
    work.output_count = 1;
    need(mgv_encode_blocking(gpu, &work, &error) == MGV_OK, error.message);
    report(b, memcmp(got, outputs[0].data, PICTURES * b->info.pooled_width * sizeof(float)) == 0,
           "pooled rows have the same bits without the others");
    free(got);
    for (i = 0; i < OUTPUTS; i++) {
        free(expected[i].data);
        if (outputs[i].place == MGV_PLACE_DEVICE) cudaFree(outputs[i].data - 1);
        else free(outputs[i].data);
    }
    mgv_engine_destroy(gpu);
}

static void test_refusals(bench *b) {
    mgv_image image = image_at(b, b->device_pixels, 0, MGV_PLACE_DEVICE);
    mgv_output output = output_at(b->got, b->info.pooled_width, MGV_PLACE_HOST);
    mgv_error error;
    cudaStream_t stream;
    cudaGraph_t graph;
    mgv_encode_desc desc;
    image.width--;
    report(b, encode(b->gpu, &image, 1, &output, &error) == MGV_ERROR_UNSUPPORTED, "a device picture of another size is refused");
    image = image_at(b, b->pixels, 0, MGV_PLACE_HOST);
    output.kind = MGV_OUTPUT_TOKENS;
    output.capacity = 1u << 30;
    report(b, encode(b->gpu, &image, 1, &output, &error) == MGV_ERROR_CAPACITY, "tokens for which the engine keeps no memory are refused");
    output = output_at(b->got, b->info.pooled_width, MGV_PLACE_HOST);
    memset(&desc, 0, sizeof desc);
    desc.images = &image;
    desc.outputs = &output;
    desc.image_count = desc.output_count = 1;
    need(cudaStreamCreate(&stream) == cudaSuccess && cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess,
         "capturing a stream");
    desc.stream = stream;
    report(b, mgv_encode(b->gpu, &desc, &error) == MGV_ERROR_UNSUPPORTED, "a graph does not take a picture in pageable memory");
    need(cudaStreamEndCapture(stream, &graph) == cudaSuccess, "the capture survives");
    cudaGraphDestroy(graph);
    report(b, mgv_encode_blocking(b->gpu, &desc, &error) == MGV_OK && worst_error(b, 0, 1) <= tolerance,
           "the same stream afterwards works");
    cudaStreamDestroy(stream);
}

static void print_if_wrong(void *user, const mgv_validation *row) {
    (void)user;
    if (!row->ok)
        printf("     %s (layer %d): relative L2 %.2e, tolerance %.2e, %u bad values\n", row->label, (int)row->layer, row->relative_l2,
               row->tolerance, (unsigned)row->bad);
}

/* Every operation by itself, on an odd number of pictures. */
static void test_each_operation(bench *b) {
    mgv_engine_desc desc;
    mgv_image images[5];
    mgv_error error;
    uint32_t failures = 1, i, count;
    memset(&desc, 0, sizeof desc);
    desc.parallel = mgv_threads_parallel_for(b->threads);
    for (i = 0; i < 5; i++) images[i] = image_at(b, b->pixels, i, MGV_PLACE_HOST);
    for (count = 1; count <= 5; count += 4) { /* one picture runs in the latency regime */
        need(mgv_validate(b->model, &desc, images, count, print_if_wrong, NULL, &failures, &error) == MGV_OK, error.message);
        report(b, failures == 0, count == 1 ? "each operation alone is the CPU's, given its input: one picture" : "and five");
    }
}

/* ---- several engines, several streams, graphs ---- */

enum { LANES = 2, REPLAYS = 100 };
static const uint32_t lane_images[LANES] = {5, 2};

/* An engine with a stream, pictures and results of its own, on one of the GPUs. */
typedef struct lane {
    int device;
    mgv_engine *engine;
    cudaStream_t stream;
    uint8_t *pixels;        /* on the card, [images, S, S, 3] */
    float *pooled;          /* on the card, [images, width] */
    float *results;         /* on the host, page-locked, [REPLAYS, images, width] */
    float *expected;        /* the same by direct encodes */
    uint32_t images;
    size_t result_bytes;    /* of one encode */
    mgv_image images_of[MAX_IMAGES];
    mgv_output output;
    mgv_encode_desc desc;
} lane;

static mgv_engine *engine_on(const bench *b, int device, uint32_t max_images, uint32_t max_sms) {
    mgv_engine_desc desc;
    mgv_engine *engine;
    mgv_error error;
    memset(&desc, 0, sizeof desc);
    desc.backend = MGV_BACKEND_CUDA;
    desc.device = device;
    desc.max_images = max_images;
    desc.max_sms = max_sms;
    need(mgv_engine_create(&engine, b->model, &desc, &error) == MGV_OK, error.message);
    return engine;
}
static mgv_engine *engine_of(const bench *b, uint32_t max_images, uint32_t max_sms) { return engine_on(b, 0, max_images, max_sms); }

static void lane_open_on(const bench *b, lane *l, int device, uint32_t images, uint32_t max_sms) {
    uint32_t i;
    memset(l, 0, sizeof *l);
    l->device = device;
    l->images = images;
    l->result_bytes = images * b->info.pooled_width * sizeof(float);
    l->engine = engine_on(b, device, images, max_sms);
    need(cudaSetDevice(device) == cudaSuccess, "choosing a device");
    need(cudaStreamCreateWithFlags(&l->stream, cudaStreamNonBlocking) == cudaSuccess, "making a stream");
    need(cudaMalloc((void **)&l->pixels, images * picture_bytes(b)) == cudaSuccess, "device memory");
    need(cudaMalloc((void **)&l->pooled, l->result_bytes) == cudaSuccess, "device memory");
    need(cudaMallocHost((void **)&l->results, REPLAYS * l->result_bytes) == cudaSuccess, "page-locked memory");
    l->expected = (float *)malloc(REPLAYS * l->result_bytes);
    for (i = 0; i < images; i++) l->images_of[i] = image_at(b, l->pixels, i, MGV_PLACE_DEVICE);
    l->output = output_at(l->pooled, images * b->info.pooled_width, MGV_PLACE_DEVICE);
    l->desc.images = l->images_of;
    l->desc.image_count = images;
    l->desc.outputs = &l->output;
    l->desc.output_count = 1;
    l->desc.stream = l->stream;
    need(cudaSetDevice(0) == cudaSuccess, "choosing a device");
}
static void lane_open(const bench *b, lane *l, uint32_t images, uint32_t max_sms) { lane_open_on(b, l, 0, images, max_sms); }
/* Captures and graphs belong to the current GPU. */
static void lane_choose(const lane *l) { need(cudaSetDevice(l->device) == cudaSuccess, "choosing a device"); }
static void lane_close(lane *l) {
    need(mgv_engine_destroy(l->engine) == MGV_OK, "an engine ends");
    cudaStreamDestroy(l->stream);
    cudaFree(l->pixels);
    cudaFree(l->pooled);
    cudaFreeHost(l->results);
    free(l->expected);
}

/* Other pictures for each round, on the lane's stream. */
static void lane_send(const bench *b, lane *l, uint32_t round) {
    const uint32_t first = round * 3 % (MAX_IMAGES - l->images);
    need(cudaMemcpyAsync(l->pixels, b->device_pixels + first * picture_bytes(b), l->images * picture_bytes(b), cudaMemcpyDeviceToDevice,
                         l->stream) == cudaSuccess, "changing the pictures");
}
static void lane_fetch(lane *l, float *to) {
    need(cudaMemcpyAsync(to, l->pooled, l->result_bytes, cudaMemcpyDeviceToHost, l->stream) == cudaSuccess, "fetching the rows");
}

/* What direct encodes give, one after the other. */
static void lane_expect(const bench *b, lane *l) {
    mgv_error error;
    uint32_t round;
    for (round = 0; round < REPLAYS; round++) {
        lane_send(b, l, round);
        need(mgv_encode_blocking(l->engine, &l->desc, &error) == MGV_OK, error.message);
        lane_fetch(l, l->results);
        need(cudaStreamSynchronize(l->stream) == cudaSuccess, "waiting");
        memcpy(l->expected + round * l->result_bytes / sizeof(float), l->results, l->result_bytes);
    }
    memset(l->results, 0xFF, REPLAYS * l->result_bytes);
}

static cudaGraphExec_t lane_capture(lane *l) {
    cudaGraphExec_t executable;
    cudaGraph_t graph;
    mgv_error error;
    lane_choose(l);
    need(cudaStreamBeginCapture(l->stream, cudaStreamCaptureModeGlobal) == cudaSuccess, "capturing a stream");
    need(mgv_encode(l->engine, &l->desc, &error) == MGV_OK, error.message);
    need(cudaStreamEndCapture(l->stream, &graph) == cudaSuccess, "ending the capture");
    need(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess, "making the graph");
    cudaGraphDestroy(graph);
    return executable;
}

/* Two engines and a graph of each, on one GPU or one each. */
static void test_graphs(bench *b, int devices) {
    lane lanes[LANES];
    cudaGraphExec_t graphs[LANES], losing;
    cudaGraph_t unused;
    mgv_error error;
    mgv_status status;
    char what[120];
    uint32_t i, round;
    for (i = 0; i < LANES; i++) {
        lane_open_on(b, &lanes[i], (int)i % devices, lane_images[i], 0);
        if (i == 0) {
            need(cudaStreamBeginCapture(lanes[0].stream, cudaStreamCaptureModeGlobal) == cudaSuccess, "capturing a stream");
            report(b, mgv_encode(lanes[0].engine, &lanes[0].desc, &error) == MGV_ERROR_UNSUPPORTED, error.message);
            need(cudaStreamEndCapture(lanes[0].stream, &unused) == cudaSuccess, "the capture survives");
            cudaGraphDestroy(unused);
        }
        lane_expect(b, &lanes[i]);
        graphs[i] = lane_capture(&lanes[i]);
    }
    for (round = 0; round < REPLAYS; round++)
        for (i = 0; i < LANES; i++) {
            lane_choose(&lanes[i]);
            lane_send(b, &lanes[i], round);
            need(cudaGraphLaunch(graphs[i], lanes[i].stream) == cudaSuccess, "replaying");
            lane_fetch(&lanes[i], lanes[i].results + round * lanes[i].result_bytes / sizeof(float));
        }
    status = mgv_poll(lanes[0].engine, &error);
    report(b, status == MGV_STATUS_RUNNING, "poll sees that replays are under way");
    report(b, mgv_encode(lanes[0].engine, &lanes[0].desc, &error) == MGV_ERROR_BUSY, "and mgv_encode refuses to come between");
    for (i = 0; i < LANES; i++) {
        report(b, mgv_wait(lanes[i].engine, 5000, &error) == MGV_OK, "wait sees the last replay end");
        need(cudaStreamSynchronize(lanes[i].stream) == cudaSuccess, "waiting");
        snprintf(what, sizeof what, "%u replays of %u pictures beside another graph, on %d GPU%s: the bits of direct encodes", REPLAYS,
                 lanes[i].images, devices, devices == 1 ? "" : "s");
        report(b, memcmp(lanes[i].results, lanes[i].expected, REPLAYS * lanes[i].result_bytes) == 0, what);
    }
    lane_choose(&lanes[0]);
    need(mgv_encode(lanes[1].engine, &lanes[1].desc, &error) == MGV_OK, error.message);
    need(cudaStreamBeginCapture(lanes[0].stream, cudaStreamCaptureModeGlobal) == cudaSuccess, "capturing a stream");
    report(b, mgv_wait(lanes[1].engine, 5000, &error) == MGV_OK, "an engine is waited for while another's stream is being captured");
    report(b, cudaStreamEndCapture(lanes[0].stream, &unused) == cudaSuccess, "and the capture survives");
    if (unused) cudaGraphDestroy(unused);
    /* a graph whose kernel loses a signal, then the good one again */
    lanes[0].engine->gpu->cuda->arguments.lost_signal = 1 + lanes[0].engine->gpu->cuda->plan->ops[1].kernel.signal_counter;
    losing = lane_capture(&lanes[0]);
    lanes[0].engine->gpu->cuda->arguments.lost_signal = 0;
    need(cudaGraphLaunch(losing, lanes[0].stream) == cudaSuccess, "replaying");
    report(b, mgv_wait(lanes[0].engine, 5000, &error) == MGV_ERROR_TIMEOUT, error.message);
    lane_send(b, &lanes[0], 0);
    need(cudaGraphLaunch(graphs[0], lanes[0].stream) == cudaSuccess, "replaying");
    lane_fetch(&lanes[0], lanes[0].results);
    report(b, mgv_wait(lanes[0].engine, 5000, &error) == MGV_OK && cudaStreamSynchronize(lanes[0].stream) == cudaSuccess &&
           memcmp(lanes[0].results, lanes[0].expected, lanes[0].result_bytes) == 0, "the replay after a time-out is right");
    report(b, mgv_encode_blocking(lanes[0].engine, &lanes[0].desc, &error) == MGV_OK, "and so is a direct encode");
    cudaGraphExecDestroy(losing);
    for (i = 0; i < LANES; i++) {
        cudaGraphExecDestroy(graphs[i]);
        lane_close(&lanes[i]);
    }
}

/* Page-locked pictures and rows of the caller, and graphs for several batch sizes between direct encodes of others. */
static void test_graphs_of_host_memory(bench *b) {
    const size_t row = b->info.pooled_width * sizeof(float);
    cudaGraphExec_t graphs[3];
    uint8_t *pixels;
    float *pooled, *expected = (float *)malloc(4 * row);
    mgv_error error;
    lane l;
    uint32_t i, count, same = 1;
    lane_open(b, &l, 4, 0);
    need(cudaMallocHost((void **)&pixels, 4 * picture_bytes(b)) == cudaSuccess, "page-locked memory");
    need(cudaMallocHost((void **)&pooled, 4 * row) == cudaSuccess, "page-locked memory");
    memcpy(pixels, b->pixels, 4 * picture_bytes(b));
    for (i = 0; i < 4; i++) l.images_of[i] = image_at(b, pixels, i, MGV_PLACE_HOST);
    l.output = output_at(pooled, 4 * b->info.pooled_width, MGV_PLACE_HOST);
    for (count = 1; count <= 3; count++) {
        l.desc.image_count = count;
        need(mgv_encode_blocking(l.engine, &l.desc, &error) == MGV_OK, error.message);
        graphs[count - 1] = lane_capture(&l);
    }
    for (i = 0; i < 12; i++) {
        memcpy(pixels, b->pixels + 4 * i * picture_bytes(b), 4 * picture_bytes(b));
        l.desc.image_count = count = 1 + i % 3;
        need(mgv_encode_blocking(l.engine, &l.desc, &error) == MGV_OK, error.message);
        memcpy(expected, pooled, count * row);
        l.desc.image_count = 4;
        need(mgv_encode_blocking(l.engine, &l.desc, &error) == MGV_OK, error.message);
        memset(pooled, 0xFF, 4 * row);
        need(cudaGraphLaunch(graphs[count - 1], l.stream) == cudaSuccess, "replaying");
        need(mgv_wait(l.engine, 5000, &error) == MGV_OK, error.message);
        same &= memcmp(pooled, expected, count * row) == 0;
    }
    report(b, (int)same, "graphs of 1, 2 and 3 page-locked pictures between encodes of 4: the bits of direct encodes");
    for (i = 0; i < 3; i++) cudaGraphExecDestroy(graphs[i]);
    cudaFreeHost(pixels);
    cudaFreeHost(pooled);
    free(expected);
    lane_close(&l);
}

/* Two engines at once, each with its share of a card or on a card of its own, other batch sizes in flight in each round. */
static void test_two_engines(bench *b, uint32_t max_sms, int devices) {
    static const uint32_t counts[LANES][3] = {{33, 1, 8}, {2, 31, 16}};
    const size_t row = b->info.pooled_width * sizeof(float);
    lane lanes[LANES];
    mgv_error error;
    char what[120];
    uint32_t i, round, same = 1;
    double start, took;
    for (i = 0; i < LANES; i++) {
        lane_open_on(b, &lanes[i], (int)i % devices, 33, max_sms);
        for (round = 0; round < 3; round++) { /* alone */
            lanes[i].desc.image_count = counts[i][round];
            lane_send(b, &lanes[i], round);
            need(mgv_encode_blocking(lanes[i].engine, &lanes[i].desc, &error) == MGV_OK, error.message);
            lane_fetch(&lanes[i], lanes[i].results);
            need(cudaStreamSynchronize(lanes[i].stream) == cudaSuccess, "waiting");
            memcpy(lanes[i].expected + round * lanes[i].result_bytes / sizeof(float), lanes[i].results, lanes[i].result_bytes);
        }
    }
    start = mgv__now_ms();
    for (round = 0; round < 30; round++) {
        for (i = 0; i < LANES; i++) {
            lanes[i].desc.image_count = counts[i][round % 3];
            lane_send(b, &lanes[i], round % 3);
            need(mgv_encode(lanes[i].engine, &lanes[i].desc, &error) == MGV_OK, error.message);
        }
        for (i = 0; i < LANES; i++) {
            need(mgv_wait(lanes[i].engine, 5000, &error) == MGV_OK, error.message);
            lane_fetch(&lanes[i], lanes[i].results);
            need(cudaStreamSynchronize(lanes[i].stream) == cudaSuccess, "waiting");
            same &= memcmp(lanes[i].results, lanes[i].expected + round % 3 * lanes[i].result_bytes / sizeof(float),
                           counts[i][round % 3] * row) == 0;
        }
    }
    took = mgv__now_ms() - start;
    snprintf(what, sizeof what, "two engines of %u multiprocessors (0: all) on %d GPU%s at once, 30 rounds in %.1f ms: the bits they have "
             "alone", max_sms, devices, devices == 1 ? "" : "s", took);
    report(b, (int)same, what);
    for (i = 0; i < LANES; i++) {
        lanes[i].desc.image_count = 7;
        lane_send(b, &lanes[i], 1);
        need(mgv_encode_blocking(lanes[i].engine, &lanes[i].desc, &error) == MGV_OK, error.message);
        lane_fetch(&lanes[i], lanes[i].results);
        need(cudaStreamSynchronize(lanes[i].stream) == cudaSuccess, "waiting");
    }
    report(b, memcmp(lanes[0].results, lanes[1].results, 7 * row) == 0, "and for the same seven pictures both give the same bits");
    for (i = 0; i < LANES; i++) lane_close(&lanes[i]);
}

/* A thread of its own makes an engine on one of the GPUs, encodes and destroys it. */
enum { THREAD_ENCODES = 50 };
typedef struct device_thread {
    const bench *b;
    int device, current;    /* the thread's own GPU afterwards */
    float *rows;            /* on the host, of one encode */
    uint32_t differ;
} device_thread;
static void *run_device_thread(void *user) {
    device_thread *t = (device_thread *)user;
    const bench *b = t->b;
    const size_t row = b->info.pooled_width * sizeof(float);
    mgv_engine *engine = engine_on(b, t->device, lane_images[0], 0);
    mgv_image images[MAX_IMAGES];
    mgv_output output = output_at(t->rows, lane_images[0] * b->info.pooled_width, MGV_PLACE_HOST);
    mgv_encode_desc desc;
    mgv_error error;
    float *first = (float *)malloc(lane_images[0] * row);
    uint32_t i;
    memset(&desc, 0, sizeof desc);
    for (i = 0; i < lane_images[0]; i++) images[i] = image_at(b, b->pixels, i, MGV_PLACE_HOST);
    desc.images = images;
    desc.image_count = lane_images[0];
    desc.outputs = &output;
    desc.output_count = 1;
    for (i = 0; i < THREAD_ENCODES; i++) {
        memset(t->rows, 0xFF, lane_images[0] * row);
        need(mgv_encode_blocking(engine, &desc, &error) == MGV_OK, error.message);
        if (i == 0) memcpy(first, t->rows, lane_images[0] * row);
        t->differ += memcmp(first, t->rows, lane_images[0] * row) != 0;
    }
    need(mgv_engine_destroy(engine) == MGV_OK, "an engine ends");
    free(first);
    need(cudaGetDevice(&t->current) == cudaSuccess, "asking for the current device");
    return NULL;
}
static void test_threads_on_devices(bench *b, int devices) {
    const size_t bytes = lane_images[0] * b->info.pooled_width * sizeof(float);
    device_thread threads[LANES];
    pthread_t handles[LANES];
    uint32_t i, good = 1;
    memset(threads, 0, sizeof threads);
    for (i = 0; i < LANES; i++) {
        threads[i].b = b;
        threads[i].device = (int)i % devices;
        threads[i].rows = (float *)malloc(bytes);
        need(pthread_create(&handles[i], NULL, run_device_thread, &threads[i]) == 0, "starting a thread");
    }
    for (i = 0; i < LANES; i++) {
        need(pthread_join(handles[i], NULL) == 0, "joining a thread");
        good &= threads[i].differ == 0 && threads[i].current == 0 && memcmp(threads[i].rows, threads[0].rows, bytes) == 0;
    }
    report(b, (int)good, "a thread and an engine for each GPU: the same bits, and each thread's current device is what it was");
    for (i = 0; i < LANES; i++) free(threads[i].rows);
}

/* An engine on each of the GPUs there are. The caller's current device stays what it is. */
static void test_devices(bench *b) {
    int devices = 0, current = -1;
    need(cudaGetDeviceCount(&devices) == cudaSuccess, "counting the GPUs");
    if (devices < 2) {
        printf("     not run: engines on several GPUs, there is one\n");
        return;
    }
    test_two_engines(b, 0, 2);
    test_graphs(b, 2);
    need(cudaSetDevice(0) == cudaSuccess, "choosing a device");
    test_threads_on_devices(b, 2);
    report(b, cudaGetDevice(&current) == cudaSuccess && current == 0, "the caller's current device is what it was");
}

/* What an engine takes from the CUDA runtime and gives back. The card's free memory would not tell: others have engines, too. */
typedef struct taken {
    uint32_t memory, pinned, events, libraries; /* alive */
    uint32_t made;                              /* in all */
} taken;
static taken objects;
static cudaError_t count_made(cudaError_t code, uint32_t *alive) {
    *alive += code == cudaSuccess;
    objects.made += code == cudaSuccess;
    return code;
}
static cudaError_t count_gone(cudaError_t code, uint32_t *alive) {
    *alive -= code == cudaSuccess;
    return code;
}
static cudaError_t CUDARTAPI count_malloc(void **memory, size_t bytes) { return count_made(cudaMalloc(memory, bytes), &objects.memory); }
static cudaError_t CUDARTAPI count_free(void *memory) { return count_gone(cudaFree(memory), &objects.memory); }
static cudaError_t CUDARTAPI count_malloc_host(void **memory, size_t bytes) {
    return count_made(cudaMallocHost(memory, bytes), &objects.pinned);
}
static cudaError_t CUDARTAPI count_free_host(void *memory) { return count_gone(cudaFreeHost(memory), &objects.pinned); }
static cudaError_t CUDARTAPI count_event(cudaEvent_t *event, unsigned int flags) {
    return count_made(cudaEventCreateWithFlags(event, flags), &objects.events);
}
static cudaError_t CUDARTAPI count_event_destroy(cudaEvent_t event) { return count_gone(cudaEventDestroy(event), &objects.events); }
static cudaError_t CUDARTAPI count_library(cudaLibrary_t *library, const void *code, enum cudaJitOption *jit, void **jit_values,
                                           unsigned int jit_count, enum cudaLibraryOption *options, void **values, unsigned int count) {
    return count_made(cudaLibraryLoadData(library, code, jit, jit_values, jit_count, options, values, count), &objects.libraries);
}
static cudaError_t CUDARTAPI count_library_unload(cudaLibrary_t library) {
    return count_gone(cudaLibraryUnload(library), &objects.libraries);
}

static mgv__cuda_calls counting_calls(void) {
    mgv__cuda_calls calls = mgv__cuda_runtime;
    calls.Malloc = count_malloc;
    calls.Free = count_free;
    calls.MallocHost = count_malloc_host;
    calls.FreeHost = count_free_host;
    calls.EventCreateWithFlags = count_event;
    calls.EventDestroy = count_event_destroy;
    calls.LibraryLoadData = count_library;
    calls.LibraryUnload = count_library_unload;
    return calls;
}

/* An engine that is destroyed while it works ends its work first; made and destroyed often, it leaves nothing behind. */
static void test_destroy(bench *b) {
    const mgv__cuda_calls calls = counting_calls();
    const size_t bytes = MAX_IMAGES * b->info.pooled_width * sizeof(float);
    mgv_engine_desc engine_desc;
    mgv_image images[MAX_IMAGES];
    mgv_output output = output_at(b->got, MAX_IMAGES * b->info.pooled_width, MGV_PLACE_HOST);
    float *expected = (float *)malloc(bytes);
    mgv_encode_desc desc;
    mgv_error error;
    char what[160];
    uint32_t i, same = 1;
    need(encode_pictures(b, b->gpu, b->device_pixels, MGV_PLACE_DEVICE, 0, MAX_IMAGES, &error) == MGV_OK, error.message);
    memcpy(expected, b->got, bytes);
    for (i = 0; i < MAX_IMAGES; i++) images[i] = image_at(b, b->device_pixels, i, MGV_PLACE_DEVICE);
    memset(&desc, 0, sizeof desc);
    desc.images = images;
    desc.image_count = MAX_IMAGES;
    desc.outputs = &output;
    desc.output_count = 1;
    memset(&engine_desc, 0, sizeof engine_desc);
    engine_desc.backend = MGV_BACKEND_CUDA;
    engine_desc.max_images = MAX_IMAGES;
    counted_calls = &calls;
    for (i = 0; i < 4; i++) {
        mgv_engine *engine;
        need(mgv_engine_create(&engine, b->model, &engine_desc, &error) == MGV_OK, error.message);
        memset(b->got, 0xFF, bytes);
        need(mgv_encode(engine, &desc, &error) == MGV_OK, error.message);
        need(objects.memory && objects.pinned && objects.events && objects.libraries, "an engine's memory, events and kernels are counted_calls");
        need(mgv_engine_destroy(engine) == MGV_OK, "an engine with work in flight ends");
        same &= memcmp(b->got, expected, bytes) == 0;
    }
    counted_calls = NULL;
    report(b, (int)same, "destroyed with work in flight: the work is done first");
    snprintf(what, sizeof what, "engines leave nothing behind: of %u objects alive %u in device memory, %u in page-locked, %u events, "
             "%u libraries", objects.made, objects.memory, objects.pinned, objects.events, objects.libraries);
    report(b, objects.memory + objects.pinned + objects.events + objects.libraries == 0, what);
    free(expected);
}

/* An engine in device memory of the caller gives the same bits. */
static void test_device_workspace(bench *b) {
    const size_t bytes = 7 * b->info.pooled_width * sizeof(float);
    float *expected = (float *)malloc(bytes);
    mgv_engine_desc desc;
    mgv_engine *engine = engine_of(b, 7, 0);
    mgv_error error;
    uint64_t need_bytes;
    uint8_t *memory;
    need(encode_pictures(b, engine, b->pixels, MGV_PLACE_HOST, 0, 7, &error) == MGV_OK, error.message);
    memcpy(expected, b->got, bytes);
    mgv_engine_destroy(engine);
    memset(&desc, 0, sizeof desc);
    desc.backend = MGV_BACKEND_CUDA;
    desc.max_images = 7;
    need(mgv_engine_device_workspace_bytes(b->model, &desc, &need_bytes, &error) == MGV_OK, error.message);
    need(cudaMalloc((void **)&memory, (size_t)need_bytes + 1) == cudaSuccess, "device memory");
    need(cudaMemset(memory, 0xFF, (size_t)need_bytes + 1) == cudaSuccess, "filling it with NaN");
    desc.device_workspace = memory + 1;
    desc.device_workspace_bytes = need_bytes;
    need(mgv_engine_create(&engine, b->model, &desc, &error) == MGV_OK, error.message);
    need(encode_pictures(b, engine, b->pixels, MGV_PLACE_HOST, 0, 7, &error) == MGV_OK, error.message);
    report(b, memcmp(expected, b->got, bytes) == 0, "an engine in device memory of the caller, at an odd address: the same bits");
    mgv_engine_destroy(engine);
    cudaFree(memory);
    free(expected);
}

/* The same bits from packed weights, out of memory and out of a file. */
static void test_packed_weights(bench *b, const char *path) {
    const char *const architecture = b->gpu->gpu->cuda->machine->architecture;
    size_t row = b->info.pooled_width * sizeof(float);
    float *expected = (float *)malloc(7 * row);
    double start, packing, copying;
    mgv_engine_desc desc;
    mgv_engine *engine;
    mgv_error error;
    uint64_t bytes;
    FILE *file;
    void *packed;
    char what[120];
    int i;
    start = mgv__now_ms();
    engine = engine_of(b, 7, 0);
    packing = mgv__now_ms() - start;
    need(encode_pictures(b, engine, b->pixels, MGV_PLACE_HOST, 0, 7, &error) == MGV_OK, error.message);
    memcpy(expected, b->got, 7 * row);
    mgv_engine_destroy(engine);
    need(mgv_model_packed_bytes(b->model, architecture, &bytes, &error) == MGV_OK, error.message);
    packed = malloc((size_t)bytes);
    need(packed && mgv_model_pack(b->model, architecture, packed, bytes, &error) == MGV_OK, error.message);
    file = fopen(path, "wb");
    need(file && fwrite(packed, 1, (size_t)bytes, file) == bytes && fclose(file) == 0, "writing the packed weights");
    for (i = 0; i < 2; i++) {
        memset(&desc, 0, sizeof desc);
        desc.max_images = 7;
        desc.backend = MGV_BACKEND_CUDA;
        if (i == 0) desc.packed_path = path;
        else desc.packed = packed, desc.packed_bytes = bytes;
        start = mgv__now_ms();
        need(mgv_engine_create(&engine, b->model, &desc, &error) == MGV_OK, error.message);
        copying = mgv__now_ms() - start;
        need(encode_pictures(b, engine, b->pixels, MGV_PLACE_HOST, 0, 7, &error) == MGV_OK, error.message);
        snprintf(what, sizeof what, "packed weights from %s give the same bits; engine made in %.0f ms, %.0f ms with packing",
                 i == 0 ? "a file" : "memory", copying, packing);
        report(b, memcmp(expected, b->got, 7 * row) == 0, what);
        mgv_engine_destroy(engine);
    }
    ((char *)packed)[bytes - 1] ^= 1;
    report(b, mgv_engine_create(&engine, b->model, &desc, &error) == MGV_ERROR_FORMAT, error.message);
    remove(path);
    free(packed);
    free(expected);
}

/* Not a benchmark: what a user sees, device picture in, vector on the host out. */
static void show_times(bench *b) {
    static const uint32_t counts[] = {1, 8, 64};
    size_t i;
    for (i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        double best = 1e9;
        mgv_error error;
        int k;
        for (k = 0; k < 50; k++) {
            double start = mgv__now_ms(), took;
            need(encode_pictures(b, b->gpu, b->device_pixels, MGV_PLACE_DEVICE, 0, counts[i], &error) == MGV_OK, error.message);
            took = mgv__now_ms() - start;
            if (took < best) best = took;
        }
        printf("     %2u pictures: %.3f ms wall at best, %.0f img/s\n", counts[i], best, counts[i] / best * 1e3);
    }
}

/* The same of one picture whose encode is replayed: rows to page-locked memory. */
static void show_replay_time(bench *b) {
    double best = 1e9;
    cudaGraphExec_t graph;
    mgv_error error;
    lane l;
    int k;
    lane_open(b, &l, 1, 0);
    l.output = output_at(l.results, b->info.pooled_width, MGV_PLACE_HOST);
    need(mgv_encode_blocking(l.engine, &l.desc, &error) == MGV_OK, error.message);
    graph = lane_capture(&l);
    for (k = 0; k < 50; k++) {
        double start = mgv__now_ms(), took;
        need(cudaGraphLaunch(graph, l.stream) == cudaSuccess && mgv_wait(l.engine, 5000, &error) == MGV_OK, "replaying");
        took = mgv__now_ms() - start;
        if (took < best) best = took;
    }
    printf("      1 picture in a graph: %.3f ms wall at best\n", best);
    cudaGraphExecDestroy(graph);
    lane_close(&l);
}

static void set_up(bench *b, const char *directory) {
    mgv_model_desc model_desc;
    mgv_engine_desc desc;
    mgv_error error;
    uint32_t state = 1, i;
    size_t bytes, rows;
    memset(&model_desc, 0, sizeof model_desc);
    memset(&desc, 0, sizeof desc);
    model_desc.path = directory;
    need(mgv_model_open(&b->model, &model_desc, &error) == MGV_OK, error.message);
    mgv_model_get_info(b->model, &b->info);
    desc.max_images = MAX_IMAGES;
    desc.backend = MGV_BACKEND_CPU;
    need(mgv_threads_create(&b->threads, 12, NULL, &error) == MGV_OK, error.message);
    desc.parallel = mgv_threads_parallel_for(b->threads);
    need(mgv_engine_create(&b->cpu, b->model, &desc, &error) == MGV_OK, error.message);
    desc.backend = MGV_BACKEND_AUTO;
    need(mgv_engine_create(&b->gpu, b->model, &desc, &error) == MGV_OK, error.message);
    if (mgv_engine_backend(b->gpu) == MGV_BACKEND_CPU) { /* a kernel that has run on no card before is taken where it is asked for */
        mgv_engine_destroy(b->gpu);
        desc.backend = MGV_BACKEND_CUDA;
        need(mgv_engine_create(&b->gpu, b->model, &desc, &error) == MGV_OK, error.message);
        need(b->gpu->gpu->cuda->machine->untried, "AUTO became CUDA");
    }
    bytes = (size_t)MAX_IMAGES * b->info.image_size * b->info.image_size * 3;
    rows = (size_t)MAX_IMAGES * b->info.pooled_width * sizeof(float);
    b->pixels = (uint8_t *)malloc(bytes);
    for (i = 0; i < bytes; i++) b->pixels[i] = (uint8_t)(random_bits(&state) >> 24);
    b->expected = (float *)malloc(rows);
    b->got = (float *)malloc(rows);
    need(cudaMalloc((void **)&b->odd_pixels, bytes + 1) == cudaSuccess, "device memory");
    need(cudaMalloc((void **)&b->device_pixels, bytes) == cudaSuccess && cudaMalloc((void **)&b->device_got, rows) == cudaSuccess,
         "device memory");
    need(cudaMemcpy(b->device_pixels, b->pixels, bytes, cudaMemcpyHostToDevice) == cudaSuccess, "copying pictures");
    need(encode_pictures(b, b->cpu, b->pixels, MGV_PLACE_HOST, 0, MAX_IMAGES, &error) == MGV_OK, error.message);
    memcpy(b->expected, b->got, rows);
}

static void test_one_gpu(bench *b, const char *program) {
    char packed[4096];
    test_against_cpu(b);
    test_same_bits(b);
    test_device_output(b);
    test_resized(b);
    test_poll(b);
    test_rows(b);
    test_refusals(b);
    test_each_operation(b);
    test_lost_signals(b);
    test_cancel(b);
    test_graphs(b, 1);
    test_graphs_of_host_memory(b);
    test_two_engines(b, 0, 1);
    test_two_engines(b, 66, 1);
    test_two_engines(b, 34, 1);
    test_destroy(b);
    test_device_workspace(b);
    snprintf(packed, sizeof packed, "%s.mgvp", program);
    test_packed_weights(b, packed);
    show_times(b);
    show_replay_time(b);
}

int main(int argc, char **argv) {
    bench b;
    memset(&b, 0, sizeof b);
    setvbuf(stdout, NULL, _IOLBF, 4096); /* a run that is stopped has said how far it came */
    need(argc == 2 || (argc == 3 && strcmp(argv[2], "devices") == 0), "usage: test_engine DIRECTORY [devices]");
    set_up(&b, argv[1]);
    if (argc == 2) test_one_gpu(&b, argv[0]);
    test_devices(&b);
    report(&b, mgv_engine_destroy(b.gpu) == MGV_OK, "the engine ends");
    mgv_engine_destroy(b.cpu);
    mgv_threads_destroy(b.threads);
    mgv_model_close(b.model);
    cudaFree(b.device_pixels);
    cudaFree(b.odd_pixels);
    cudaFree(b.device_got);
    free(b.pixels);
    free(b.expected);
    free(b.got);
    printf("%d failures\n", b.failures);
    return b.failures != 0;
}
