/* The GPU engine behind a few plain functions, for tests and benchmarks that compare it with PyTorch in one process (tests/gpu/check.py). */
#define _POSIX_C_SOURCE 199309L /* a clock finer than a second */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_CUDA
#include "megavit.h"
#include <stdio.h>

typedef struct harness {
    mgv_model *model;
    mgv__cuda *cuda;
    void *kernels;
} harness;

static void *read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    void *data = NULL;
    long bytes;
    if (!file) return NULL;
    if (fseek(file, 0, SEEK_END) == 0 && (bytes = ftell(file)) > 0 && fseek(file, 0, SEEK_SET) == 0 && (data = malloc((size_t)bytes)) != NULL)
        if (fread(data, 1, (size_t)bytes, file) != (size_t)bytes) {
            free(data);
            data = NULL;
        }
    fclose(file);
    return data;
}

void harness_close(harness *h) {
    if (!h) return;
    mgv__cuda_destroy(h->cuda);
    mgv_model_close(h->model);
    free(h->kernels);
    free(h);
}

harness *harness_open(const char *directory, const char *kernels, uint32_t max_images, uint32_t group_images, uint32_t lanes, uint32_t max_clusters,
                      uint32_t poll_limit, uint32_t regime, char *message) {
    harness *h = (harness *)calloc(1, sizeof *h);
    mgv_model_desc model_desc;
    mgv__cuda_desc desc;
    mgv_error error;
    memset(&model_desc, 0, sizeof model_desc);
    memset(&desc, 0, sizeof desc);
    memset(&error, 0, sizeof error);
    model_desc.path = directory;
    desc.max_images = max_images;
    desc.group_images = group_images;
    desc.lanes = lanes;
    desc.max_clusters = max_clusters;
    desc.poll_limit = poll_limit;
    desc.regime = regime;
    if (!h) return NULL;
    h->kernels = read_file(kernels);
    desc.kernels = h->kernels;
    if (!h->kernels) strcpy(error.message, "the kernels cannot be read");
    if (h->kernels && mgv_model_open(&h->model, &model_desc, &error) == MGV_OK)
        if (mgv__cuda_create(&h->cuda, &desc, &h->model->config, &h->model->program, h->model->tensors, &error) == MGV_OK) return h;
    strcpy(message, error.message);
    harness_close(h);
    return NULL;
}

/* Ends the list before operation `limit`; 0 runs all. */
void harness_limit(harness *h, uint32_t limit) { mgv__cuda_limit(h->cuda, limit); }

/* Runs the list up to and with operation `last` on buffers full of NaN, and waits. */
int harness_run_to(harness *h, uint32_t images, const void *device_pixels, uint32_t last, char *message) {
    mgv_error error;
    mgv_result result = mgv__cuda_run_to(h->cuda, images, (const uint8_t *)device_pixels, last, &error);
    if (result != MGV_OK) strcpy(message, error.message);
    return result;
}

/* A signal that is never given: 1 + index of the counter; 0 none. */
void harness_lose_signal(harness *h, uint32_t counter) { h->cuda->arguments.lost_signal = counter; }

int harness_encode(harness *h, uint32_t images, const void *device_pixels, void *stream, char *message) {
    mgv_error error;
    mgv_result result = mgv__cuda_launch(h->cuda, images, (const uint8_t *)device_pixels, 0, (cudaStream_t)stream, &error);
    if (result == MGV_OK && cudaEventRecord(h->cuda->done, (cudaStream_t)stream) != cudaSuccess) result = mgv__fail(&error, MGV_ERROR_DEVICE, "recording an event");
    if (result != MGV_OK) strcpy(message, error.message);
    return result;
}

/* Asks each further encode for the rows of these layers (-1: tokens) as float32, all of them into the same place on the card. */
void harness_want_rows(harness *h, const int32_t *layers, uint32_t count, float *device_rows) {
    uint32_t i;
    h->cuda->outputs.count = count;
    for (i = 0; i < count; i++) {
        h->cuda->outputs.layer[i] = layers[i];
        h->cuda->arguments.outputs[i] = device_rows;
    }
}

/* Waits for the last encode and says how it ended. */
int harness_wait(harness *h, char *message) {
    mgv_error error;
    mgv_result result;
    cudaError_t code = cudaEventSynchronize(h->cuda->done);
    result = code == cudaSuccess ? mgv__cuda_verdict(h->cuda, &error) : mgv__cuda_fail(h->cuda->calls, &error, code, "cudaEventSynchronize", "waiting");
    if (result != MGV_OK) strcpy(message, error.message);
    return result;
}

/* Median microseconds from mgv_encode with pictures on the card until the pooled rows lie at `rows` on the host, of `count` encodes by an engine of its own;
   below 0: an error. */
static int by_size(const void *a, const void *b) { return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b); }
double harness_wall(const char *directory, const char *kernels, uint32_t images, const uint8_t *device_pixels, uint32_t count, float *rows, uint64_t capacity, char *message) {
    double *times = (double *)calloc(count, sizeof *times), median = -1;
    mgv_image *pictures = (mgv_image *)calloc(images, sizeof *pictures);
    mgv_model_desc model_desc;
    mgv_engine_desc engine_desc;
    mgv_encode_desc desc;
    mgv_output output;
    mgv_model *model = NULL;
    mgv_engine *engine = NULL;
    mgv_error error;
    mgv_result result;
    memset(&model_desc, 0, sizeof model_desc);
    memset(&engine_desc, 0, sizeof engine_desc);
    memset(&desc, 0, sizeof desc);
    memset(&output, 0, sizeof output);
    model_desc.path = directory;
    engine_desc.backend = MGV_BACKEND_CUDA;
    engine_desc.kernels = read_file(kernels);
    engine_desc.max_images = images;
    output.kind = MGV_OUTPUT_POOLED;
    output.data = rows;
    output.capacity = capacity;
    desc.images = pictures;
    desc.image_count = images;
    desc.outputs = &output;
    desc.output_count = 1;
    result = mgv_model_open(&model, &model_desc, &error);
    if (result == MGV_OK) result = mgv_engine_create(&engine, model, &engine_desc, &error);
    for (uint32_t i = 0; result == MGV_OK && i < images; i++) {
        const uint32_t side = model->config.image_size;
        pictures[i].pixels = device_pixels + (size_t)i * side * side * 3;
        pictures[i].width = pictures[i].height = side;
        pictures[i].place = MGV_PLACE_DEVICE;
    }
    for (uint32_t i = 0; result == MGV_OK && i < count; i++) {
        const double start = mgv__now_ms();
        result = mgv_encode_blocking(engine, &desc, &error);
        times[i] = (mgv__now_ms() - start) * 1e3;
    }
    if (result == MGV_OK) {
        qsort(times, count, sizeof *times, by_size);
        median = times[count / 2];
    } else {
        strcpy(message, error.message);
    }
    mgv_engine_destroy(engine);
    mgv_model_close(model);
    free((void *)(uintptr_t)engine_desc.kernels);
    free(pictures);
    free(times);
    return median;
}

/* MGV__KERNEL_WAIT_* for all operations: what the kernel would be without some of its ideas. */
void harness_ablate(harness *h, uint32_t flags) {
    h->cuda->plan->ablations = flags;
    mgv__cuda_limit(h->cuda, 0);
}

/* ---- the same tile engines as one launch an operation, in a CUDA graph ---- */

typedef struct chain {
    mgv__kernel_segment *segments; /* on the device: those of each operation, one list after the other */
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t replay;
} chain;

void harness_chain_free(chain *c) {
    if (c->replay) cudaGraphExecDestroy(c->replay);
    if (c->graph) cudaGraphDestroy(c->graph);
    if (c->stream) cudaStreamDestroy(c->stream);
    if (c->segments) cudaFree(c->segments);
    free(c);
}

/* The counters are cleared once and grow from launch to launch, so every wait is over before it begins. */
static mgv_result chain_record(harness *h, chain *c, uint32_t images, mgv_error *error) {
    mgv__cuda *cuda = h->cuda;
    mgv__plan *plan = cuda->plan;
    const mgv__kernel_segment *place = c->segments;
    mgv_result result = mgv__cuda_clear(cuda, c->stream, error);
    for (uint32_t op = 0; op < plan->op_count && result == MGV_OK; op++) {
        const size_t count = plan->layout_groups + 1;
        plan->op_first = op;
        plan->op_limit = op + 1;
        mgv__plan_schedule(plan, images, cuda->clusters);
        if (cudaMemcpy((void *)(uintptr_t)place, plan->segments, (plan->segment_count + 1) * sizeof *place, cudaMemcpyHostToDevice) !=
            cudaSuccess)
            result = mgv__fail(error, MGV_ERROR_DEVICE, "sending the segments of one operation");
        cuda->arguments.segments = place;
        cuda->arguments.deal = NULL; /* in turn */
        cuda->arguments.total_tiles = plan->segments[plan->segment_count].first_tile;
        if (result == MGV_OK) result = mgv__cuda_launch_kernel(cuda, c->stream, error);
        place += count;
    }
    plan->op_first = 0;
    mgv__cuda_limit(cuda, 0);
    return result;
}

/* For these pictures, after an encode of as many. NULL after an error. */
chain *harness_chain(harness *h, uint32_t images, const void *device_pixels, char *message) {
    chain *c = (chain *)calloc(1, sizeof *c);
    const size_t bytes = (size_t)h->cuda->plan->op_count * (h->cuda->plan->layout_groups + 1) * sizeof *c->segments;
    mgv_error error;
    mgv_result result = MGV_ERROR_DEVICE;
    strcpy(error.message, "making a CUDA graph");
    h->cuda->arguments.pixels = (const uint8_t *)device_pixels;
    if (cudaMalloc((void **)&c->segments, bytes) == cudaSuccess &&
        cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking) == cudaSuccess &&
        cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeRelaxed) == cudaSuccess) {
        result = chain_record(h, c, images, &error);
        if (cudaStreamEndCapture(c->stream, &c->graph) != cudaSuccess || cudaGraphInstantiate(&c->replay, c->graph, 0) != cudaSuccess)
            result = MGV_ERROR_DEVICE;
    }
    if (result == MGV_OK) return c;
    strcpy(message, error.message);
    harness_chain_free(c);
    return NULL;
}
int harness_chain_launch(chain *c, void *stream) { return (int)cudaGraphLaunch(c->replay, (cudaStream_t)stream); }

uint32_t harness_ops(harness *h) { return h->cuda->plan->op_count; }
const char *harness_label(harness *h, uint32_t op) { return h->cuda->plan->ops[op].label; }
uint32_t harness_width(harness *h, uint32_t op) {
    uint32_t kind = h->cuda->plan->ops[op].kernel.kind;
    if (mgv__plan_is_latency_product(kind)) return MGV__LATENCY_COLUMNS;
    if (kind == MGV__KERNEL_GEMV) return MGV__GEMV_COLUMNS(h->cuda->plan->ops[op].kernel.of.gemv.parts_log2);
    return kind == MGV__KERNEL_GEMM_256 ? 256 : kind == MGV__KERNEL_GEMM_192 ? 192 : kind == MGV__KERNEL_GEMM_128 ? 128 : kind == MGV__KERNEL_GEMM_64 ? 64 : mgv__split_columns(kind);
}
/* Tiles of an operation in the last schedule: of an operation that others stand in for, none. */
uint32_t harness_tiles(harness *h, uint32_t op) {
    const mgv__plan *plan = h->cuda->plan;
    uint32_t i, tiles = 0;
    for (i = 0; i < plan->segment_count; i++)
        if (plan->segments[i].op == op) tiles += plan->segments[i + 1].first_tile - plan->segments[i].first_tile;
    return tiles;
}
/* Of the last schedule: 0 throughput, 1 latency; and the clusters that run it. */
uint32_t harness_regime(harness *h) { return h->cuda->plan->regime; }
uint32_t harness_clusters(harness *h) { return h->cuda->plan->clusters; }
uint32_t harness_counter(harness *h, uint32_t op) { return h->cuda->plan->ops[op].kernel.signal_counter; }
void *harness_buffer(harness *h, uint32_t buffer) { return h->cuda->arena + h->cuda->plan->buffers[buffer].offset; }
uint64_t harness_buffer_bytes(harness *h, uint32_t buffer) { return h->cuda->plan->buffers[buffer].bytes; }
uint32_t harness_buffer_pitch(harness *h, uint32_t buffer) { return h->cuda->plan->buffers[buffer].pitch; }

/* Between any two places. Waits. */
int harness_copy(void *to, const void *from, uint64_t bytes) { return (int)cudaMemcpy(to, from, (size_t)bytes, cudaMemcpyDefault); }

/* Clocks of each operation, from kernels that were built to count them; 0 words where they were not. */
uint32_t harness_profile(harness *h, uint64_t *out, uint32_t words) {
    void *address;
    size_t bytes;
    if (cudaLibraryGetGlobal(&address, &bytes, h->cuda->library, "megavit_profile") != cudaSuccess) return 0;
    if (bytes > words * sizeof *out) bytes = words * sizeof *out;
    if (cudaMemcpy(out, address, bytes, cudaMemcpyDeviceToHost) != cudaSuccess || cudaMemset(address, 0, bytes) != cudaSuccess) return 0;
    return (uint32_t)(bytes / sizeof *out);
}

/* ---- attention alone, of a tower that takes pictures of any size ---- */

typedef struct alone {
    mgv_model *model;
    mgv_engine *engine;
    void *kernels;
    mgv__kernel_segment *segments; /* on the device: those of the first attention */
    uint32_t tiles;
} alone;

void harness_alone_close(alone *a) {
    if (!a) return;
    mgv_engine_destroy(a->engine);
    mgv_model_close(a->model);
    cudaFree(a->segments);
    free(a->kernels);
    free(a);
}

/* One encode of the picture on the card, its rows into `rows` there. */
static mgv_result alone_encode(alone *a, const uint8_t *pixels, uint32_t width, uint32_t height, float *rows, uint64_t capacity, mgv_error *error) {
    mgv_image image;
    mgv_output output;
    mgv_encode_desc desc;
    memset(&image, 0, sizeof image);
    memset(&output, 0, sizeof output);
    memset(&desc, 0, sizeof desc);
    image.pixels = pixels;
    image.width = width;
    image.height = height;
    image.place = MGV_PLACE_DEVICE;
    output.kind = MGV_OUTPUT_TOKENS;
    output.data = rows;
    output.capacity = capacity;
    output.place = MGV_PLACE_DEVICE;
    desc.images = &image;
    desc.image_count = 1;
    desc.outputs = &output;
    desc.output_count = 1;
    return mgv_encode_blocking(a->engine, &desc, error);
}

/* All of the list once, into counters that nothing zeroes: its first attention's waits are over before they begin from then on, as those of
   a chain. Then the list of its tiles. */
static mgv_result alone_record(alone *a, uint32_t tokens, mgv_error *error) {
    mgv__cuda *cuda = a->engine->gpu->cuda;
    mgv__plan *plan = cuda->plan;
    uint32_t op = 0;
    mgv_result result = mgv__cuda_launch(cuda, tokens, a->engine->gpu->device_pixels, 1, NULL, error);
    if (result == MGV_OK && cudaDeviceSynchronize() != cudaSuccess) result = mgv__fail(error, MGV_ERROR_DEVICE, "running the whole list");
    while (!mgv__plan_is_attention(plan->ops[op].kind)) op++;
    plan->op_first = op;
    plan->op_limit = op + 1;
    mgv__plan_schedule(plan, tokens, cuda->clusters);
    a->tiles = plan->segments[plan->segment_count].first_tile;
    if (result == MGV_OK && (cudaMalloc((void **)&a->segments, (plan->segment_count + 1) * sizeof *a->segments) != cudaSuccess ||
                             cudaMemcpy(a->segments, plan->segments, (plan->segment_count + 1) * sizeof *a->segments,
                                        cudaMemcpyHostToDevice) != cudaSuccess))
        result = mgv__fail(error, MGV_ERROR_DEVICE, "sending the segments of attention");
    plan->op_first = plan->op_limit = 0;
    cuda->arguments.segments = a->segments;
    cuda->arguments.deal = NULL; /* in turn */
    cuda->arguments.total_tiles = a->tiles;
    return result;
}

/* For one picture of width x height pixels on the card; NULL after an error. */
alone *harness_alone(const char *directory, const char *kernels, const void *pixels, uint32_t width, uint32_t height, uint32_t tokens, void *rows,
                     uint64_t capacity, char *message) {
    alone *a = (alone *)calloc(1, sizeof *a);
    mgv_model_desc model_desc;
    mgv_engine_desc engine_desc;
    mgv_error error;
    mgv_result result;
    memset(&model_desc, 0, sizeof model_desc);
    memset(&engine_desc, 0, sizeof engine_desc);
    model_desc.path = directory;
    a->kernels = read_file(kernels);
    engine_desc.backend = MGV_BACKEND_CUDA;
    engine_desc.kernels = a->kernels;
    engine_desc.max_images = 1;
    engine_desc.max_tokens = tokens;
    result = mgv_model_open(&a->model, &model_desc, &error);
    if (result == MGV_OK) result = mgv_engine_create(&a->engine, a->model, &engine_desc, &error);
    if (result == MGV_OK) result = alone_encode(a, (const uint8_t *)pixels, width, height, (float *)rows, capacity, &error);
    if (result == MGV_OK) result = alone_record(a, tokens, &error);
    if (result == MGV_OK) return a;
    strcpy(message, error.message);
    harness_alone_close(a);
    return NULL;
}
int harness_alone_launch(alone *a, void *stream) {
    mgv_error error;
    return mgv__cuda_launch_kernel(a->engine->gpu->cuda, (cudaStream_t)stream, &error);
}
/* 0: no launch has given up. */
uint32_t harness_alone_verdict(const alone *a) { return a->engine->gpu->cuda->status->aborted; }
void *harness_alone_buffer(alone *a, uint32_t buffer) {
    mgv__cuda *cuda = a->engine->gpu->cuda;
    return cuda->arena + cuda->plan->buffers[buffer].offset;
}
