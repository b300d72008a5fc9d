/* How fast pictures become pixel values: every kernel set of this machine, one thread, processor time of the best of several runs.

     bench_pixels [--repeat N]

   The vector code must give the bits of plain C, or the exit code is 1. tools/bench_pixels.py says what Pillow and torchvision need. */
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

#include <stdio.h>

static const struct {
    uint32_t width, height, new_width, new_height;
    mgv_pixel_format format;
} cases[] = {
    {4000, 3000, 224, 224, MGV_PIXELS_RGB8}, {3000, 4000, 224, 224, MGV_PIXELS_RGB8}, {2000, 6000, 224, 224, MGV_PIXELS_RGB8},
    {4000, 3000, 224, 224, MGV_PIXELS_RGBA8}, {1920, 1080, 384, 384, MGV_PIXELS_RGB8}, {640, 480, 224, 224, MGV_PIXELS_RGB8},
    {100, 100, 224, 224, MGV_PIXELS_RGB8}, {4000, 3000, 1024, 768, MGV_PIXELS_RGB8},
};

static double processor_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static void *need(void *memory) {
    if (memory == NULL) {
        fprintf(stderr, "bench_pixels: out of memory\n");
        exit(1);
    }
    return memory;
}

static double best_ms(const mgv__pixel_kernels *kernels, const mgv__pixels_config *config, mgv_resize resize, const mgv_image *image,
                      const mgv_grid *grid, void *scratch, float *out, int repeat) {
    double best = 1e30;
    int i;
    for (i = 0; i < repeat; i++) {
        double start = processor_ms(), taken;
        mgv__pixels_prepare_with(kernels, config, resize, image, grid, scratch, NULL, out, MGV__PIXELS_PATCHES);
        taken = processor_ms() - start;
        if (taken < best) best = taken;
    }
    return best;
}

int main(int argc, char **argv) {
    static const mgv_allocator standard = {NULL, NULL, NULL};
    const mgv__pixel_kernels *here = mgv__pixel_kernels_here();
    size_t largest = (size_t)4000 * 3000 * 4, i;
    unsigned char *pixels = (unsigned char *)need(mgv__alloc(&standard, largest));
    int repeat = argc == 3 && strcmp(argv[1], "--repeat") == 0 ? atoi(argv[2]) : 7, failed = 0;
    uint64_t random = 1;
    for (i = 0; i < largest; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        pixels[i] = (unsigned char)(random >> 56);
    }
    printf("ms of processor time, best of %d; %s\n", repeat, here == &mgv__plain_pixel_kernels ? "plain C only" : "plain C / AVX2");
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int variant;
        for (variant = 0; variant < 4; variant++) {
            const mgv_resize resize = variant % 2 ? MGV_RESIZE_TORCHVISION : MGV_RESIZE_PILLOW;
            mgv__pixels_config config;
            mgv_image image;
            mgv_grid grid;
            mgv_error error;
            size_t bytes, values;
            void *scratch;
            float *plain, *vector;
            double plain_ms, vector_ms;
            memset(&config, 0, sizeof config);
            config.resample = variant / 2 ? MGV__RESAMPLE_BICUBIC : MGV__RESAMPLE_BILINEAR;
            config.width = cases[i].new_width;
            config.height = cases[i].new_height;
            config.do_resize = config.do_rescale = config.do_normalize = 1;
            config.rescale_factor = 1.0 / 255;
            config.mean[0] = config.mean[1] = config.mean[2] = config.std[0] = config.std[1] = config.std[2] = 0.5;
            config.patch = config.factor = 16;
            config.merge = config.temporal_patch = 1;
            memset(&image, 0, sizeof image);
            image.pixels = pixels;
            image.format = cases[i].format;
            image.width = cases[i].width;
            image.height = cases[i].height;
            if (mgv__pixels_check(&image, &error) != MGV_OK ||
                mgv__pixels_grid(&config, image.width, image.height, 1, 0, 0, &grid, &error) != MGV_OK ||
                mgv__pixels_scratch_bytes(&config, image.width, image.height, 0, &bytes, &error) != MGV_OK) {
                fprintf(stderr, "bench_pixels: %s\n", error.message);
                return 1;
            }
            values = (size_t)grid.tokens * 3 * 16 * 16;
            scratch = need(mgv__alloc(&standard, bytes));
            plain = (float *)need(mgv__alloc_array(&standard, values, sizeof(float)));
            vector = (float *)need(mgv__alloc_array(&standard, values, sizeof(float)));
            plain_ms = best_ms(&mgv__plain_pixel_kernels, &config, resize, &image, &grid, scratch, plain, repeat);
            vector_ms = best_ms(here, &config, resize, &image, &grid, scratch, vector, repeat);
            printf("%4u x %4u %-5s -> %4u x %3u  %-8s %-11s  %8.2f / %6.2f\n", image.width, image.height, mgv__pixel_formats[image.format].name,
                   grid.width, grid.height, variant / 2 ? "bicubic" : "bilinear", variant % 2 ? "torchvision" : "pillow", plain_ms, vector_ms);
            if (memcmp(plain, vector, values * sizeof(float)) != 0) {
                printf("    the vector code gives other bits\n");
                failed = 1;
            }
            mgv__free(&standard, scratch);
            mgv__free(&standard, plain);
            mgv__free(&standard, vector);
        }
    }
    mgv__free(&standard, pixels);
    return failed;
}
