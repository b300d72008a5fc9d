/* The picture API: any descriptor, any configuration, any size that fits into 64 KiB. What is accepted is prepared, from memory
   that ends where the picture ends, into scratch memory and outputs of exactly the size that was asked for; every value must be written and be a
   number, and must not depend on the number of bands. */
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

typedef struct fuzz_input {
    const uint8_t *data;
    size_t left;
} fuzz_input;

static uint64_t take(fuzz_input *input, int bytes) {
    uint64_t value = 0;
    for (; bytes > 0 && input->left > 0; bytes--, input->left--) value = value << 8 | *input->data++;
    return value;
}
/* Mostly small, sometimes anything. */
static uint32_t take_side(fuzz_input *input) {
    uint64_t kind = take(input, 1);
    return kind < 200 ? (uint32_t)(kind % 100) : kind < 250 ? (uint32_t)take(input, 2) : (uint32_t)take(input, 4);
}
static int64_t take_stride(fuzz_input *input, uint64_t tight) {
    uint64_t kind = take(input, 1);
    int64_t stride = kind < 100 ? 0 : kind < 230 ? (int64_t)(tight + kind % 8) : (int64_t)take(input, 8);
    return kind % 2 && stride != INT64_MIN ? -stride : stride;
}
static double take_double(fuzz_input *input) {
    uint64_t bits = take(input, 8);
    double value;
    if (bits >> 56 < 200) return (double)(bits >> 56) / 100.0 + 0.01;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static mgv__pixels_config take_config(fuzz_input *input) {
    static const uint32_t patches[] = {1, 2, 7, 14, 16};
    mgv__pixels_config config;
    uint64_t flags = take(input, 1);
    int i;
    memset(&config, 0, sizeof config);
    config.resample = flags & 1 ? MGV__RESAMPLE_BICUBIC : flags & 2 ? (int32_t)take(input, 1) : MGV__RESAMPLE_BILINEAR;
    config.do_resize = (flags & 12) != 0;
    config.do_rescale = (flags & 48) != 0;
    config.do_normalize = (flags & 48) != 16;
    config.clip_counts_frames = (flags & 64) != 0;
    config.patch = patches[take(input, 1) % 5];
    config.merge = 1 + (uint32_t)take(input, 1) % 3;
    config.temporal_patch = 1 + (uint32_t)take(input, 1) % 3;
    config.factor = config.patch * config.merge;
    config.size = (int32_t)(take(input, 1) % (MGV__SIZE_PATCHES + 1));
    if (config.size == MGV__SIZE_VOLUME) config.size = MGV__SIZE_AREA;
    config.width = take_side(input);
    config.height = take_side(input);
    if (config.size == MGV__SIZE_EDGES) {
        config.shortest_edge = take_side(input);
        config.longest_edge = flags & 128 ? take_side(input) : 0;
    }
    config.min_pixels = take(input, 2);
    config.max_pixels = config.min_pixels + take(input, 2);
    config.max_patches = (uint32_t)take(input, 2);
    if (config.size < MGV__SIZE_AREA || config.size == MGV__SIZE_PATCHES) {
        config.merge = 1;
        config.factor = config.patch;
    }
    if (config.size < MGV__SIZE_AREA && flags & 128) {
        config.crop_width = take_side(input);
        config.crop_height = take_side(input);
    }
    config.in_floats = config.size < MGV__SIZE_AREA && take(input, 1) % 2;
    config.channels_last = config.size == MGV__SIZE_PATCHES;
    if (config.channels_last) config.temporal_patch = 1;
    config.rescale_factor = take_double(input);
    for (i = 0; i < 3; i++) {
        config.mean[i] = take_double(input);
        config.std[i] = take_double(input);
    }
    return config;
}

static void run_backwards(void *user, uint32_t count, mgv_task task, void *context) {
    (void)user;
    while (count > 0) task(context, --count);
}

static void require(int condition) {
    if (!condition) __builtin_trap();
}

static float *prepare(const mgv__pixels_config *config, mgv_resize resize, const mgv_image *image, const mgv_grid *grid, mgv__pixels_layout layout,
                      uint32_t threads, size_t count) {
    mgv_parallel_for parallel;
    size_t bytes = 0, i;
    void *scratch = NULL;
    float *out = (float *)malloc(count * sizeof(float));
    parallel.user = NULL;
    parallel.threads = threads;
    parallel.run = run_backwards;
    require(mgv__pixels_scratch_bytes(config, image->width, image->height, grid->tokens, &bytes, NULL) == MGV_OK);
    require(posix_memalign(&scratch, 64, bytes) == 0);
    memset(out, 0xFF, count * sizeof(float));
    mgv__pixels_prepare(config, resize, image, grid, scratch, &parallel, out, layout);
    for (i = 0; i < count; i++) require(isfinite(out[i]));
    free(scratch);
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input input;
    mgv__pixels_config config;
    mgv_image image;
    mgv_grid grid;
    mgv_error error;
    mgv_resize resize;
    mgv__pixels_layout layout;
    uint32_t threads;
    uint64_t min_pixels, max_pixels;
    uint8_t *memory;
    float *out, *again;
    size_t span, scratch_bytes, count, i, below;
    input.data = data;
    input.left = size;
    config = take_config(&input);
    memset(&image, 0, sizeof image);
    memset(&grid, 0, sizeof grid);
    image.format = (mgv_pixel_format)(take(&input, 1) % (MGV__PIXEL_FORMATS + 2)) - 1;
    image.width = take_side(&input);
    image.height = take_side(&input);
    image.frames = (uint32_t)take(&input, 1) % 5;
    image.stride = take_stride(&input, (uint64_t)image.width * 3);
    image.frame_stride = take_stride(&input, (uint64_t)image.width * image.height * 3);
    image.bytes = take(&input, 1) < 50 ? take(&input, 2) : 0;
    image.place = take(&input, 1) < 5;
    image.alpha = (mgv_alpha)(take(&input, 1) % 4) - 1;
    min_pixels = take(&input, 2);
    max_pixels = take(&input, 2);
    resize = (mgv_resize)(take(&input, 1) % 2);
    layout = (mgv__pixels_layout)(take(&input, 1) % 2);
    threads = (uint32_t)take(&input, 1) % 20;
    image.pixels = data;
    if (mgv__pixels_check(&image, &error) != MGV_OK) return 0;
    if (mgv__pixels_scratch_bytes(&config, image.width, image.height, 4096, &scratch_bytes, &error) != MGV_OK) return 0;
    if (mgv__pixels_grid(&config, image.width, image.height, image.frames, min_pixels, max_pixels, &grid, &error) != MGV_OK) return 0;
    span = mgv__image_span(&image);
    require(span > 0 && (image.bytes == 0 || image.bytes >= span));
    count = layout == MGV__PIXELS_CHW ? (size_t)mgv__image_frames(&image) * 3 * grid.width * grid.height
                                      : (size_t)grid.tokens * 3 * config.temporal_patch * config.patch * config.patch;
    if (span > 1u << 16 || count > 1u << 16 || image.width > 4096 || image.height > 4096) return 0; /* what takes long finds little */
    memory = (uint8_t *)malloc(span);
    for (i = 0; i < span; i++) memory[i] = size ? (uint8_t)(data[i % size] + i / size) : 0;
    below = image.stride < 0 ? (size_t)-image.stride * (image.height - 1) : 0;
    if (image.frame_stride < 0) below += (size_t)-image.frame_stride * (mgv__image_frames(&image) - 1);
    image.pixels = memory + below;
    out = prepare(&config, resize, &image, &grid, layout, 1, count);
    again = prepare(&config, resize, &image, &grid, layout, threads, count);
    require(memcmp(out, again, count * sizeof(float)) == 0);
    free(out);
    free(again);
    free(memory);
    return 0;
}
