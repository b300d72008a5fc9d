/* The GPU engine behind a few plain functions, for tests and benchmarks that compare it with PyTorch in one process (tests/gpu/check.py). */
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
                      uint32_t poll_limit, char *message) {
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
    mgv_result result = mgv__cuda_launch(h->cuda, images, (const uint8_t *)device_pixels, (cudaStream_t)stream, &error);
    if (result == MGV_OK && cudaEventRecord(h->cuda->done, (cudaStream_t)stream) != cudaSuccess) result = mgv__fail(&error, MGV_ERROR_DEVICE, "recording an event");
    if (result != MGV_OK) strcpy(message, error.message);
    return result;
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

uint32_t harness_ops(harness *h) { return h->cuda->plan->op_count; }
const char *harness_label(harness *h, uint32_t op) { return h->cuda->plan->ops[op].label; }
uint32_t harness_width(harness *h, uint32_t op) {
    uint32_t kind = h->cuda->plan->ops[op].kernel.kind;
    return kind == MGV__KERNEL_GEMM_256 ? 256 : kind == MGV__KERNEL_GEMM_128 ? 128 : kind == MGV__KERNEL_GEMM_64 ? 64 : 0;
}
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
