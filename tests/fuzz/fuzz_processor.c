/* Any bytes as the files of image and video processors, beside a good config.json of any family: the first byte chooses the family, what
   follows is processor_config.json, preprocessor_config.json and video_preprocessor_config.json, with a zero byte between them, and an
   empty one is not there. What is accepted prepares pictures of any size, or says why not. */
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "fuzz.h"

enum { FILES = 4, WIDEST = 64, MOST_VALUES = 1 << 16, PREPARED = 64 /* one input in so many */ };

/* How a picture would be laid out; and if it is small and `whole`, its pixels, in memory that is exactly as large as was asked for. */
static void prepare(const mgv__pixels_config *pixels, uint32_t width, uint32_t height, uint32_t frames, mgv_resize resize, int whole) {
    static uint8_t data[3 * 3 * WIDEST * WIDEST];
    mgv__pixels_config room;
    mgv_image image;
    mgv_grid grid;
    mgv_error error;
    size_t bytes, count;
    void *scratch = NULL;
    float *out;
    mgv__pixels_layout layout;
    memset(&image, 0, sizeof image);
    image.pixels = data;
    image.width = width;
    image.height = height;
    image.frames = frames;
    if (mgv__pixels_grid(mgv__pixels_config_for(pixels, &image, &room), width, height, frames, 0, 0, &grid, &error) != MGV_OK) return;
    REQUIRE(grid.width > 0 && grid.height > 0 && grid.tokens == grid.t * grid.h * grid.w && grid.tokens > 0);
    REQUIRE(pixels->only_side == 0 || (grid.width == pixels->only_side && grid.height == pixels->only_side));
    if (mgv__pixels_scratch_bytes(pixels, width, height, grid.tokens, &bytes, &error) != MGV_OK) return;
    count = pixels->size < MGV__SIZE_AREA ? 3 * (size_t)grid.width * grid.height
                                          : (size_t)grid.tokens * 3 * pixels->temporal_patch * pixels->patch * pixels->patch;
    if (!whole || width > WIDEST || height > WIDEST || bytes > 64 * MOST_VALUES || count > MOST_VALUES) return;
    layout = pixels->size < MGV__SIZE_AREA ? MGV__PIXELS_CHW : MGV__PIXELS_PATCHES;
    REQUIRE(posix_memalign(&scratch, 64, bytes) == 0);
    out = (float *)malloc(count * sizeof *out);
    mgv__pixels_prepare(pixels, resize, &image, &grid, scratch, NULL, out, layout);
    free(out);
    free(scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const names[FILES] = {"config.json", "processor_config.json", "preprocessor_config.json",
                                             "video_preprocessor_config.json"};
    static const char *const settings[3] = {"\"image_size\":32", "\"patch_size\":14", "\"patch_size\":16"};
    static const uint32_t sides[][2] = {{32, 32}, {1, 1}, {64, 3}, {5, 64}, {28, 56}, {640, 480}, {16777216, 1}, {16777216, 16777216}};
    fuzz_allocator counts;
    mgv_memory_file files[FILES];
    mgv_model_desc desc;
    mgv__source source;
    mgv__config config;
    mgv_error error;
    mgv_result result;
    char text[256], *copies[FILES] = {NULL};
    const uint8_t choice = size ? data[0] : 0, *at = size ? data + 1 : data, *end = data + size;
    const int whole = fuzz_hash(data, size) % PREPARED == 0;
    const mgv__family *family = &mgv__families[choice % MGV__FAMILY_ROWS];
    uint32_t i;
    snprintf(text, sizeof text, "{\"model_type\":\"%s\",\"vision_config\":{%s}}", family->vision[0],
             settings[choice / MGV__FAMILY_ROWS % 3]);
    memset(&desc, 0, sizeof desc);
    desc.memory_files = files;
    files[desc.memory_file_count].name = names[0];
    files[desc.memory_file_count].data = text;
    files[desc.memory_file_count++].bytes = strlen(text);
    for (i = 1; i < FILES && at < end; i++) {
        const uint8_t *zero = (const uint8_t *)memchr(at, 0, (size_t)(end - at));
        const size_t bytes = (size_t)((zero ? zero : end) - at);
        if (bytes > 0) {
            copies[i] = (char *)malloc(bytes);
            memcpy(copies[i], at, bytes);
            files[desc.memory_file_count].name = names[i];
            files[desc.memory_file_count].data = copies[i];
            files[desc.memory_file_count++].bytes = bytes;
        }
        at += bytes + 1;
    }
    desc.allocator = fuzz_allocator_make(&counts, data, size);
    REQUIRE(mgv__source_open(&source, &desc, &error) == MGV_OK);
    result = mgv__config_read(&config, &source, &error);
    REQUIRE(result == MGV_OK || result == MGV_ERROR_FORMAT || result == MGV_ERROR_MODEL || result == MGV_ERROR_UNSUPPORTED ||
            (result == MGV_ERROR_NOMEM && counts.failed));
    REQUIRE(counts.live_bytes == 0 && counts.peak_bytes <= 4 * size + 4096);
    if (result == MGV_OK) {
        REQUIRE(mgv__pixels_config_check(&config.pixels, &error) == MGV_OK);
        for (i = 0; i < sizeof sides / sizeof sides[0]; i++)
            prepare(&config.pixels, sides[i][0], sides[i][1], 1, (mgv_resize)(i % 2), whole);
        if (family->video_processor) prepare(&config.pixels, 28, 56, 3, MGV_RESIZE_TORCHVISION, whole);
    }
    for (i = 1; i < FILES; i++) free(copies[i]);
    return 0;
}
