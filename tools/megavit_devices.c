/* Which GPUs a command uses, and memory that they copy from. */
#include <stdlib.h>
#include <string.h>
#include "tools/cli.h"

#if defined(MEGAVIT_CUDA) && !defined(MEGAVIT_NO_CUDA)
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <time.h>

static int count_devices(uint32_t *count) {
    int there = 0;
    const cudaError_t code = cudaGetDeviceCount(&there);
    if (code != cudaSuccess || there < 1) return cli_fail(CLI_MACHINE, "--devices", "there is no GPU: %s", cudaGetErrorString(code));
    *count = (uint32_t)there;
    return 0;
}

void *cli_card_memory(size_t bytes) {
    void *memory = NULL;
    return cudaMallocHost(&memory, bytes) == cudaSuccess ? memory : NULL; /* of a process of 64 bits: every GPU's */
}
void cli_card_free(void *memory) {
    if (memory) cudaFreeHost(memory);
}
float *cli_card_rows_memory(size_t floats) {
    void *memory = NULL;
    return cudaMalloc(&memory, floats * sizeof(float)) == cudaSuccess ? memory : NULL;
}
void cli_card_rows_free(float *rows) {
    if (rows) cudaFree(rows);
}

/* A context takes some tenths of a second, in which a model can be read. */
struct cli_card_start {
    pthread_t thread;
    uint32_t count, devices[CLI_MAX_DEVICES];
    double seconds;
};
static void *make_contexts(void *argument) {
    cli_card_start *start = argument;
    struct timespec began, ended;
    clock_gettime(CLOCK_MONOTONIC, &began);
    for (uint32_t i = 0; i < start->count; i++)
        if (cudaSetDevice((int)start->devices[i]) == cudaSuccess) cudaFree(NULL); /* what is wrong, the engine will say */
    clock_gettime(CLOCK_MONOTONIC, &ended);
    start->seconds = (double)(ended.tv_sec - began.tv_sec) + (double)(ended.tv_nsec - began.tv_nsec) * 1e-9;
    return NULL;
}
cli_card_start *cli_card_begin_start(const uint32_t *devices, uint32_t count) {
    cli_card_start *start = calloc(1, sizeof *start);
    if (!start) return NULL;
    start->count = count;
    memcpy(start->devices, devices, count * sizeof *devices);
    if (pthread_create(&start->thread, NULL, make_contexts, start) == 0) return start;
    free(start);
    return NULL;
}
double cli_card_end_start(cli_card_start *start) {
    double seconds;
    if (!start) return 0;
    pthread_join(start->thread, NULL);
    seconds = start->seconds;
    free(start);
    return seconds;
}
#else
static int count_devices(uint32_t *count) {
    (void)count;
    return cli_check_backend(MGV_BACKEND_CUDA);
}
void *cli_card_memory(size_t bytes) {
    (void)bytes;
    return NULL;
}
void cli_card_free(void *memory) { (void)memory; }
float *cli_card_rows_memory(size_t floats) {
    (void)floats;
    return NULL;
}
void cli_card_rows_free(float *rows) { (void)rows; }
cli_card_start *cli_card_begin_start(const uint32_t *devices, uint32_t count) {
    (void)devices;
    (void)count;
    return NULL;
}
double cli_card_end_start(cli_card_start *start) {
    (void)start;
    return 0;
}
#endif

int cli_read_devices(const char *text, uint32_t *devices, uint32_t *count) {
    uint32_t there = 0;
    int status = count_devices(&there);
    *count = 0;
    if (status) return status;
    if (strcmp(text, "all") == 0) {
        while (*count < there && *count < CLI_MAX_DEVICES) {
            devices[*count] = *count;
            ++*count;
        }
        return 0;
    }
    for (const char *at = text;; at++) {
        char *end;
        const unsigned long number = strtoul(at, &end, 10);
        if (end == at || *at == '-' || *at == '+' || *at == ' ' || (*end && *end != ',') || *count == CLI_MAX_DEVICES)
            return cli_fail(CLI_USAGE, "--devices", "it takes 'all' or up to %d numbers such as 0,2, not '%s'", CLI_MAX_DEVICES, text);
        for (uint32_t i = 0; i < *count; i++)
            if (devices[i] == number) return cli_fail(CLI_USAGE, "--devices", "GPU %lu is named twice", number);
        if (number >= there) return cli_fail(CLI_MACHINE, "--devices", "there is no GPU number %lu; %u are there", number, there);
        devices[(*count)++] = (uint32_t)number;
        at = end;
        if (!*at) return 0;
    }
}
