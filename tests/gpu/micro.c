/* A few encodes of the smallest model that the GPU kernel takes, checked against the CPU: what tests/gpu/sanitize.sh watches.
   usage: micro FATBIN      (its waits are a hundred times as patient as an engine's: under a tool the kernel is slow) */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_CUDA
#include "megavit.h"

#include <stdio.h>
#include "tests/micro_siglip.h"

enum { IMAGES = 3, IMAGE_BYTES = 3 * MICRO_SIDE * MICRO_SIDE };

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

int main(int argc, char **argv) {
    static uint8_t pixels[IMAGES * IMAGE_BYTES];
    static float expected[IMAGES * MICRO_WIDTH], got[IMAGES * MICRO_WIDTH];
    micro_siglip micro;
    mgv_engine_desc desc;
    mgv_engine *cpu, *gpu;
    mgv_image images[IMAGES];
    mgv_model *model;
    mgv_error error;
    uint32_t i, count, regime;
    need(argc == 2, "usage: micro FATBIN");
    memset(&desc, 0, sizeof desc);
    memset(images, 0, sizeof images);
    micro_make(&micro, 1);
    model = micro_open(&micro, &error);
    need(model != NULL, error.message);
    for (i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(i * 2654435761u >> 13);
    for (i = 0; i < IMAGES; i++) {
        images[i].pixels = pixels + i * IMAGE_BYTES;
        images[i].width = images[i].height = MICRO_SIDE;
    }
    desc.max_images = IMAGES;
    desc.backend = MGV_BACKEND_CPU;
    need(mgv_engine_create(&cpu, model, &desc, &error) == MGV_OK, error.message);
    desc.backend = MGV_BACKEND_CUDA;
    desc.kernels = read_file(argv[1]);
    need(mgv_engine_create(&gpu, model, &desc, &error) == MGV_OK, error.message);
    gpu->gpu->cuda->arguments.poll_limit *= 100;
    encode(cpu, images, IMAGES, expected);
    for (i = 0; i < MGV__REGIME_COUNT * IMAGES; i++) {
        double difference = 0, norm = 0;
        uint32_t k;
        regime = i / IMAGES;
        count = 1 + i % IMAGES;
        gpu->gpu->cuda->plan->forced_regime = 1 + regime;
        mgv__cuda_limit(gpu->gpu->cuda, 0); /* schedules of the other regime are forgotten */
        encode(gpu, images, count, got);
        for (k = 0; k < count * MICRO_WIDTH; k++) {
            difference += ((double)got[k] - expected[k]) * ((double)got[k] - expected[k]);
            norm += (double)expected[k] * expected[k];
        }
        printf("%s regime, %u pictures: relative L2 %.2e\n", regime == MGV__LATENCY ? "latency" : "throughput", count, sqrt(difference / norm));
        need(difference <= norm * 4e-4, "the GPU's answer is wrong");
    }
    need(mgv_engine_destroy(gpu) == MGV_OK, "the engine does not end");
    mgv_engine_destroy(cpu);
    mgv_model_close(model);
    micro_free(&micro);
    free((void *)(uintptr_t)desc.kernels);
    return 0;
}
