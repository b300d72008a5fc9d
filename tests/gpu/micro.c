/* A few encodes of small models by every kernel there is, checked against the CPU: what tests/gpu/sanitize.sh watches.
   usage: micro FATBIN      (its waits are a hundred times as patient as an engine's: under a tool the kernel is slow) */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_CUDA
#include "megavit.h"

#include <stdio.h>
#include "tests/micro_siglip.h"

enum { IMAGES = 3, MANY_PATCHES_SIDE = 176 /* 121 tokens fill a tile of 128 rows better than two of 104 */ };

/* Grids and shares of K by which a schedule has the tiles that only this kernel, or no kernel above it, has code for. */
typedef struct micro_case {
    const char *kernel, *tiles;
    uint32_t regime, side;
    uint32_t max_sms;   /* 0: all */
    uint32_t split;     /* K is shared out where so many tiles or fewer do for an operation; 0: as the plan has it */
} micro_case;
static const micro_case cases[] = {
    {"megavit_encode_latency_104_sm_90a", "all", MGV__LATENCY, MICRO_SIDE, 0, 0},
    {"megavit_encode_latency_128_sm_90a", "all", MGV__LATENCY, MANY_PATCHES_SIDE, 0, 0},
    {"megavit_encode_few_sm_90a", "SPLIT_128 and GEMM_128", MGV__THROUGHPUT, MICRO_SIDE, 12, 5},
    {"megavit_encode_few_sm_90a", "SPLIT_160 and GEMM_128", MGV__THROUGHPUT, MICRO_SIDE, 12, 4},
    {"megavit_encode_some_sm_90a", "SPLIT_192, GEMM_256 and GEMM_128", MGV__THROUGHPUT, MICRO_SIDE, 8, 3},
    {"megavit_encode_some_sm_90a", "GEMM_256, GEMM_192 and GEMM_128", MGV__THROUGHPUT, MICRO_SIDE, 8, 0},
    {"megavit_encode_sm_90a", "GEMM_64", MGV__THROUGHPUT, MICRO_SIDE, 0, 0}
};

static void need(int good, const char *what) {
    if (good) return;
    printf("stopped: %s\n", what);
    exit(1);
}

static void *read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    void *data = malloc(64 << 20);
    need(file && data && fread(data, 1, 64 << 20, file) > 0, "the kernels cannot be read");
    fclose(file);
    return data;
}

static void encode(mgv_engine *engine, const mgv_image *images, uint32_t count, float *rows) {
    mgv_output output;
    mgv_encode_desc desc;
    mgv_error error;
    memset(&output, 0, sizeof output);
    memset(&desc, 0, sizeof desc);
    output.data = rows;
    output.capacity = (uint64_t)count * MICRO_WIDTH;
    desc.images = images;
    desc.image_count = count;
    desc.outputs = &output;
    desc.output_count = 1;
    need(mgv_encode_blocking(engine, &desc, &error) == MGV_OK, error.message);
}

static void run_case(const micro_case *c, const void *kernels) {
    static uint8_t pixels[IMAGES * 3 * MANY_PATCHES_SIDE * MANY_PATCHES_SIDE];
    static float expected[IMAGES * MICRO_WIDTH], got[IMAGES * MICRO_WIDTH];
    micro_siglip micro;
    mgv_engine_desc desc;
    mgv_engine *cpu, *gpu;
    mgv_image images[IMAGES];
    mgv_model *model;
    mgv_error error;
    mgv__plan *plan;
    uint32_t i, count;
    memset(&desc, 0, sizeof desc);
    memset(images, 0, sizeof images);
    micro_make_for(&micro, c->side, 1);
    model = micro_open(&micro, &error);
    need(model != NULL, error.message);
    for (i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(i * 2654435761u >> 13);
    for (i = 0; i < IMAGES; i++) {
        images[i].pixels = pixels + i * 3 * c->side * c->side;
        images[i].width = images[i].height = c->side;
    }
    desc.max_images = IMAGES;
    desc.backend = MGV_BACKEND_CPU;
    need(mgv_engine_create(&cpu, model, &desc, &error) == MGV_OK, error.message);
    desc.backend = MGV_BACKEND_CUDA;
    desc.kernels = kernels;
    desc.max_sms = c->max_sms;
    need(mgv_engine_create(&gpu, model, &desc, &error) == MGV_OK, error.message);
    gpu->gpu->cuda->arguments.poll_limit *= 100;
    plan = gpu->gpu->cuda->plan;
    plan->forced_regime = 1 + c->regime;
    if (c->split) {
        plan->split_least = 1;
        plan->split_most = c->split;
    }
    encode(cpu, images, IMAGES, expected);
    for (count = 1; count <= IMAGES; count++) {
        double difference = 0, norm = 0;
        uint32_t k;
        encode(gpu, images, count, got);
        need(strcmp(plan->machine->kernels[mgv__plan_kernel(plan)].name, c->kernel) == 0, "another kernel ran than this case is for");
        for (k = 0; k < count * MICRO_WIDTH; k++) {
            difference += ((double)got[k] - expected[k]) * ((double)got[k] - expected[k]);
            norm += (double)expected[k] * expected[k];
        }
        printf("%s (%s), %u pictures: relative L2 %.2e\n", c->kernel, c->tiles, count, sqrt(difference / norm));
        need(difference <= norm * 4e-4, "the GPU's answer is wrong");
    }
    need(mgv_engine_destroy(gpu) == MGV_OK, "the engine does not end");
    mgv_engine_destroy(cpu);
    mgv_model_close(model);
    micro_free(&micro);
}

int main(int argc, char **argv) {
    void *kernels;
    size_t i;
    need(argc == 2, "usage: micro FATBIN");
    kernels = read_file(argv[1]);
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) run_case(&cases[i], kernels);
    free(kernels);
    return 0;
}
