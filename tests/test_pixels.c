/* Pixels: formats, strides, resize and normalisation against Pillow, torchvision and transformers, bit for bit; bad input; bounds. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "support.h"
#include "rule.h"

#include <math.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- Pictures and answers, as tests/make_pixel_vectors.py makes them ---- */

static uint8_t *make_picture(uint64_t seed, size_t bytes, int hard) {
    uint8_t *data = rule_bytes(seed, bytes);
    size_t i;
    for (i = 0; i < bytes && hard; i++) data[i] = data[i] >> 7 ? 255 : 0;
    return data;
}

static mgv__pixels_config make_config(int32_t resample, uint32_t width, uint32_t height, uint32_t patch, uint32_t merge, uint32_t temporal) {
    mgv__pixels_config config;
    int i;
    memset(&config, 0, sizeof config);
    config.resample = resample;
    config.size = width ? MGV__SIZE_EXACT : MGV__SIZE_AREA;
    config.width = width;
    config.height = height;
    config.factor = patch * merge;
    config.min_pixels = 65536;
    config.max_pixels = 16777216;
    config.do_resize = config.do_rescale = config.do_normalize = 1;
    config.rescale_factor = 1.0 / 255;
    for (i = 0; i < 3; i++) config.mean[i] = config.std[i] = 0.5;
    config.temporal_patch = temporal;
    config.patch = patch;
    config.merge = merge;
    return config;
}

static mgv_image make_image(const void *pixels, mgv_pixel_format format, uint32_t width, uint32_t height) {
    mgv_image image;
    memset(&image, 0, sizeof image);
    image.format = format;
    image.pixels = pixels;
    image.width = width;
    image.height = height;
    return image;
}

/* Tasks one after the other, last first: what a band leaves behind must not matter to another. */
static void run_backwards(void *user, uint32_t count, mgv_task task, void *context) {
    (void)user;
    while (count > 0) task(context, --count);
}
typedef struct one_task {
    mgv_task task;
    void *context;
    uint32_t index;
} one_task;
static void *run_one(void *argument) {
    const one_task *one = (const one_task *)argument;
    one->task(one->context, one->index);
    return NULL;
}
static void run_threads(void *user, uint32_t count, mgv_task task, void *context) {
    pthread_t threads[MGV__PIXELS_MAX_BANDS];
    one_task tasks[MGV__PIXELS_MAX_BANDS];
    uint32_t i;
    (void)user;
    assert_true(count <= MGV__PIXELS_MAX_BANDS);
    for (i = 0; i < count; i++) {
        tasks[i].task = task;
        tasks[i].context = context;
        tasks[i].index = i;
        assert_int_equal(pthread_create(&threads[i], NULL, run_one, &tasks[i]), 0);
    }
    for (i = 0; i < count; i++) pthread_join(threads[i], NULL);
}
static mgv_parallel_for parallel_by(void (*run)(void *, uint32_t, mgv_task, void *), uint32_t threads) {
    mgv_parallel_for parallel;
    parallel.user = NULL;
    parallel.threads = threads;
    parallel.run = run;
    return parallel;
}

/* Pixel values in memory of malloc, or a failed test. The scratch memory is exactly as large as was asked for. */
static float *prepare(const mgv__pixels_config *config, mgv_resize resize, const mgv_image *image, mgv__pixels_layout layout,
                      const mgv_parallel_for *parallel, mgv_grid *grid, size_t *count) {
    mgv_error error;
    size_t bytes;
    void *scratch = NULL;
    float *out;
    if (mgv__pixels_check(image, &error) != MGV_OK) fail_msg("%s", error.message);
    if (mgv__pixels_grid(config, image->width, image->height, image->frames, 0, 0, grid, &error) != MGV_OK) fail_msg("%s", error.message);
    if (mgv__pixels_scratch_bytes(config, image->width, image->height, grid->tokens, &bytes, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_int_equal(posix_memalign(&scratch, 64, bytes), 0);
    memset(scratch, 0xA5, bytes);
    if (layout != MGV__PIXELS_PATCHES) *count = (size_t)mgv__image_frames(image) * 3 * grid->width * grid->height;
    else *count = (size_t)grid->tokens * 3 * config->temporal_patch * config->patch * config->patch;
    out = (float *)malloc(*count * sizeof(float));
    memset(out, 0xFF, *count * sizeof(float));
    mgv__pixels_prepare(config, resize, image, grid, scratch, parallel, out, layout);
    if (parallel == NULL) { /* one band writes to its own slot, which is the first, alone */
        mgv__pixels_needs needs;
        size_t i;
        assert_true(mgv__pixels_needs_of(image->width, image->height, grid->width, grid->height, grid->width, grid->height, &needs));
        assert_true(needs.total <= bytes);
        for (i = needs.total - (MGV__PIXELS_MAX_BANDS - 1) * needs.slot; i < bytes; i++) /* megabytes: no call for each */
            if (((uint8_t *)scratch)[i] != 0xA5) fail_msg("byte %zu of scratch memory, of another band's slot, was written", i);
    }
    free(scratch);
    return out;
}

/* ---- Stored answers ---- */

static mgv_resize parse_backend(const char *name) {
    if (strcmp(name, "pillow") == 0) return MGV_RESIZE_PILLOW;
    assert_string_equal(name, "torchvision");
    return MGV_RESIZE_TORCHVISION;
}

static void check_resize(const char *line) {
    char backend[16], text[256];
    unsigned filter, width, height, new_width, new_height, hard, seed, channel;
    mgv__pixels_config config;
    mgv_image image;
    mgv_grid grid;
    uint8_t *pixels, *bytes;
    float *out;
    size_t count, i;
    uint64_t hash = FNV1A_START;
    assert_int_equal(sscanf(line, "resize %15s %u %u %u %u %u %u %u %255s", backend, &filter, &width, &height, &new_width, &new_height, &hard, &seed, text), 9);
    config = make_config((int32_t)filter, new_width, new_height, 1, 1, 1);
    config.do_rescale = config.do_normalize = 0;
    pixels = make_picture(seed, (size_t)width * height * 3, (int)hard);
    image = make_image(pixels, MGV_PIXELS_RGB8, width, height);
    out = prepare(&config, parse_backend(backend), &image, MGV__PIXELS_CHW, NULL, &grid, &count);
    assert_int_equal(count, (size_t)new_width * new_height * 3);
    bytes = (uint8_t *)prepare(&config, parse_backend(backend), &image, MGV__PIXELS_RGB8, NULL, &grid, &count);
    for (i = 0; i < count / 3; i++) {
        for (channel = 0; channel < 3; channel++) {
            unsigned value = (unsigned)out[channel * (count / 3) + i], expected = value;
            hash = fnv1a(hash, value);
            assert_int_equal(bytes[i * 3 + channel], value);
            if (text[0] == 'x') sscanf(text + 1 + 2 * (i * 3 + channel), "%2x", &expected);
            if (value != expected) fail_msg("pixel %zu channel %u is %u, not %u: %s", i, channel, value, expected, line);
        }
    }
    if (text[0] == '#' && hash != strtoull(text + 1, NULL, 16)) fail_msg("%s", line);
    free(bytes);
    free(out);
    free(pixels);
}

static void check_values(const char *line) {
    char backend[16];
    int rescale, normalize, i, taken = 0;
    unsigned byte, channel;
    mgv__pixels_config config = make_config(MGV__RESAMPLE_BICUBIC, 16, 16, 16, 1, 1);
    double numbers[7];
    unsigned long long hashes[3];
    float values[256];
    assert_int_equal(sscanf(line, "values %15s %d %d %lf %lf %lf %lf %lf %lf %lf %llx %llx %llx %n", backend, &rescale, &normalize, &numbers[0], &numbers[1],
                            &numbers[2], &numbers[3], &numbers[4], &numbers[5], &numbers[6], &hashes[0], &hashes[1], &hashes[2], &taken), 13);
    config.do_rescale = rescale;
    config.do_normalize = normalize;
    config.rescale_factor = numbers[0];
    for (i = 0; i < 3; i++) {
        config.mean[i] = numbers[1 + i];
        config.std[i] = numbers[4 + i];
    }
    for (channel = 0; channel < 3; channel++) {
        for (byte = 0; byte < 256; byte++) values[byte] = mgv__pixel_value(&config, parse_backend(backend), channel, byte);
        if (hash_floats(values, 256) != hashes[channel]) fail_msg("channel %u: %s", channel, line);
    }
}

static void check_grid(const char *line) {
    unsigned factor, width, height, new_width, new_height, frames = 1;
    unsigned long long least, most;
    const int clip = line[0] == 'c';
    mgv__pixels_config config;
    mgv_result result;
    mgv_grid grid;
    if (clip) assert_int_equal(sscanf(line, "clip_grid %u %llu %llu %u %u %u %u %u", &factor, &least, &most, &frames, &width, &height, &new_width, &new_height), 8);
    else assert_int_equal(sscanf(line, "grid %u %llu %llu %u %u %u %u", &factor, &least, &most, &width, &height, &new_width, &new_height), 7);
    config = make_config(MGV__RESAMPLE_BICUBIC, 0, 0, factor / 2, 2, 2);
    config.clip_counts_frames = clip;
    memset(&grid, 0xEE, sizeof grid);
    result = mgv__pixels_grid(&config, width, height, frames, least, most, &grid, NULL);
    if (new_width == 0) {
        if (result != MGV_ERROR_ARGUMENT) fail_msg("accepted: %s", line);
        assert_int_equal(grid.width, 0xEEEEEEEE);
        return;
    }
    if (result != MGV_OK || grid.width != new_width || grid.height != new_height) fail_msg("%u x %u: %s", grid.width, grid.height, line);
    assert_int_equal(grid.t, (frames + 1) / 2);
    assert_int_equal(grid.h * (factor / 2), new_height);
    assert_int_equal(grid.w * (factor / 2), new_width);
    assert_int_equal(grid.tokens, grid.t * grid.h * grid.w);
    assert_int_equal(grid.merged_tokens * 4, grid.tokens);
}

static void check_model(const char *line) {
    static const char *const formats[] = {"RGB", "", "RGBA", "", "L", "LA"};
    char backend[16], mode[8], layout[16];
    unsigned filter, fixed_width, fixed_height, patch, merge, temporal, width, height, frames, seed, rows, columns, clip_limits;
    unsigned long long least, most, hash;
    mgv_pixel_format format = 0;
    mgv__pixels_config config;
    mgv_parallel_for parallel = parallel_by(run_backwards, 3);
    mgv_image image;
    mgv_grid grid;
    uint8_t *pixels;
    float *out;
    size_t count;
    assert_int_equal(sscanf(line, "model %15s %7s %u %u %u %u %u %u %llu %llu %u %u %u %u %u %15s %u %u %llx", backend, mode, &filter, &fixed_width,
                            &fixed_height, &patch, &merge, &temporal, &least, &most, &clip_limits, &width, &height, &frames, &seed, layout, &rows, &columns, &hash),
                     19);
    while (strcmp(formats[format], mode) != 0) format++;
    config = make_config((int32_t)filter, fixed_width, fixed_height, patch, merge, temporal);
    config.min_pixels = least;
    config.max_pixels = most;
    config.clip_counts_frames = (int32_t)clip_limits;
    pixels = make_picture(seed, (size_t)width * height * frames * mgv__pixel_formats[format].bytes, 0);
    image = make_image(pixels, format, width, height);
    image.frames = frames;
    image.alpha = MGV_ALPHA_DROP; /* the stored answers are those for Pillow's convert("RGB") */
    out = prepare(&config, parse_backend(backend), &image, strcmp(layout, "chw") == 0 ? MGV__PIXELS_CHW : MGV__PIXELS_PATCHES, &parallel, &grid, &count);
    assert_int_equal(count, (size_t)rows * columns);
    if (hash_floats(out, count) != hash) fail_msg("%s", line);
    free(out);
    free(pixels);
}

/* Checks every stored line that starts with `word`; there must be at least `least` of them. */
static void check_lines(const char *word, void (*check)(const char *line), size_t least) {
    static const char path[] = "tests/golden/pixels/vectors.txt";
    char line[1024];
    size_t count = 0, length = strlen(word);
    FILE *file = fopen(path, "r");
    if (file == NULL) fail_msg("%s is not there", path);
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, word, length) != 0 || line[length] != ' ') continue;
        check(line);
        count++;
    }
    fclose(file);
    assert_true(count >= least);
}
static void resize_gives_the_bytes_of_pillow_and_torchvision(void **state) {
    (void)state;
    check_lines("resize", check_resize, 400);
}
static void values_are_those_of_the_processors(void **state) {
    (void)state;
    check_lines("values", check_values, 96);
}
static void smart_resize_rounds_as_python_does(void **state) {
    (void)state;
    check_lines("grid", check_grid, 700);
    check_lines("clip_grid", check_grid, 360);
}
/* Sides that come to lie at a multiple of 28, or just beside it: more digits than double has choose another one. */
static void sides_at_a_multiple(void **state) {
    static const uint32_t cases[][4] = {{344, 344, 224, 224}, {365, 365, 224, 224}, {344, 1376, 112, 448}, {1352, 8, 364, 28}, {8, 1352, 28, 364}};
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        double width = cases[i][0], height = cases[i][1];
        mgv__smart_resize(&width, &height, 1, 1, 28, 784, 50176);
        if (width != cases[i][2] || height != cases[i][3]) fail_msg("%ux%u: %g x %g", cases[i][0], cases[i][1], width, height);
    }
}
static void pixel_values_are_those_of_the_processors(void **state) {
    (void)state;
    check_lines("model", check_model, 104);
}

/* ---- What the stored answers do not show ---- */

/* The same picture, told in every format, with rows in both directions, apart by odd strides, at an odd address, in any number of bands. */
static void formats_strides_and_bands_do_not_matter(void **state) {
    enum { WIDTH = 37, HEIGHT = 53, FRAMES = 3 };
    static const struct {
        mgv_pixel_format format;
        size_t bytes, red, green, blue;
    } formats[] = {{MGV_PIXELS_RGB8, 3, 0, 1, 2}, {MGV_PIXELS_BGR8, 3, 2, 1, 0}, {MGV_PIXELS_RGBA8, 4, 0, 1, 2}, {MGV_PIXELS_BGRA8, 4, 2, 1, 0},
                 {MGV_PIXELS_RGBX8, 4, 0, 1, 2}, {MGV_PIXELS_BGRX8, 4, 2, 1, 0}};
    static const int32_t extra[] = {0, 1, 13};
    static const struct {
        uint32_t width, height;
    } sizes[] = {{WIDTH, HEIGHT}, {WIDTH, 20}, {19, HEIGHT}, {32, 48}, {8, 20}, {90, 70}};
    uint8_t *rgb = make_picture(9, WIDTH * HEIGHT * FRAMES * 3, 0);
    size_t size, format, stride, compared = 0;
    int down, frames_down;
    uint32_t threads;
    (void)state;
    for (size = 0; size < COUNT_OF(sizes); size++) {
        mgv__pixels_config config = make_config(MGV__RESAMPLE_BICUBIC, sizes[size].width, sizes[size].height, 2, 1, 2);
        mgv_image image = make_image(rgb, MGV_PIXELS_RGB8, WIDTH, HEIGHT);
        mgv_grid grid;
        size_t count, other_count;
        float *expected;
        image.frames = FRAMES;
        expected = prepare(&config, MGV_RESIZE_PILLOW, &image, MGV__PIXELS_PATCHES, NULL, &grid, &count);
        for (format = 0; format < COUNT_OF(formats); format++) {
            for (stride = 0; stride < COUNT_OF(extra); stride++) {
                for (down = 0; down < 2; down++) {
                    for (frames_down = 0; frames_down < 2; frames_down++) {
                        const size_t pixel_bytes = formats[format].bytes, row_bytes = WIDTH * pixel_bytes + (size_t)extra[stride];
                        const size_t frame_bytes = row_bytes * HEIGHT + (size_t)extra[stride];
                        uint8_t *memory = (uint8_t *)malloc(frame_bytes * FRAMES + 1), *base = memory + 1;
                        uint32_t x, y, frame;
                        mgv_parallel_for parallel;
                        float *out;
                        memset(memory, 0x5A, frame_bytes * FRAMES + 1);
                        for (frame = 0; frame < FRAMES; frame++) {
                            for (y = 0; y < HEIGHT; y++) {
                                for (x = 0; x < WIDTH; x++) {
                                    uint8_t *pixel = base + (frames_down ? FRAMES - 1 - frame : frame) * frame_bytes + x * pixel_bytes;
                                    const uint8_t *from = rgb + ((frame * HEIGHT + y) * WIDTH + x) * 3;
                                    pixel += (down ? HEIGHT - 1 - y : y) * row_bytes;
                                    pixel[formats[format].red] = from[0];
                                    pixel[formats[format].green] = from[1];
                                    pixel[formats[format].blue] = from[2];
                                }
                            }
                        }
                        image = make_image(base, formats[format].format, WIDTH, HEIGHT);
                        image.alpha = MGV_ALPHA_DROP; /* what lies there is the filling */
                        image.frames = FRAMES;
                        image.pixels = base + (frames_down ? (FRAMES - 1) * frame_bytes : 0) + (down ? (HEIGHT - 1) * row_bytes : 0);
                        image.stride = down ? -(int64_t)row_bytes : (int64_t)row_bytes;
                        image.frame_stride = frames_down ? -(int64_t)frame_bytes : (int64_t)frame_bytes;
                        image.bytes = frame_bytes * (FRAMES - 1) + row_bytes * (HEIGHT - 1) + WIDTH * pixel_bytes;
                        threads = (uint32_t)(compared % 20);
                        parallel = parallel_by(compared % 2 ? run_threads : run_backwards, threads);
                        out = prepare(&config, MGV_RESIZE_PILLOW, &image, MGV__PIXELS_PATCHES, &parallel, &grid, &other_count);
                        assert_int_equal(count, other_count);
                        assert_memory_equal(expected, out, count * sizeof(float));
                        free(out);
                        free(memory);
                        compared++;
                    }
                }
            }
        }
        free(expected);
    }
    free(rgb);
    assert_int_equal(compared, COUNT_OF(sizes) * COUNT_OF(formats) * COUNT_OF(extra) * 4);
}

/* Rows that follow each other, bottom row first in memory: frames still follow each other upwards. */
static void a_negative_stride_without_a_frame_stride(void **state) {
    uint8_t pixels[2 * 2 * 4] = {0};
    mgv_image image = make_image(pixels + 4, MGV_PIXELS_GRAY8, 4, 2);
    size_t i;
    (void)state;
    for (i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)i;
    image.stride = -4;
    image.frames = 2;
    image.bytes = sizeof pixels;
    assert_int_equal(mgv__pixels_check(&image, NULL), MGV_OK);
    assert_int_equal(*mgv__image_row(&image, 0, 0), 4);
    assert_int_equal(*mgv__image_row(&image, 0, 1), 0);
    assert_int_equal(*mgv__image_row(&image, 1, 0), 12);
    assert_int_equal(*mgv__image_row(&image, 1, 1), 8);
    image.bytes--;
    assert_int_equal(mgv__pixels_check(&image, NULL), MGV_ERROR_ARGUMENT);
}

/* What lies a stride behind a picture's last row is never looked for, not even its address. */
static void a_stride_behind_the_only_row(void **state) {
    static const uint32_t sizes[][2] = {{5, 9}, {8, 9}, {5, 1}, {8, 1}};
    static const int64_t strides[] = {PTRDIFF_MAX, PTRDIFF_MAX / 3, -PTRDIFF_MAX};
    uint8_t *pixels = make_picture(11, 5, 0);
    size_t size, i;
    (void)state;
    for (size = 0; size < COUNT_OF(sizes); size++) {
        const mgv__pixels_config config = make_config(MGV__RESAMPLE_BICUBIC, sizes[size][0], sizes[size][1], 1, 1, 1);
        mgv_image image = make_image(pixels, MGV_PIXELS_GRAY8, 5, 1);
        mgv_grid grid;
        size_t count;
        float *expected = prepare(&config, MGV_RESIZE_PILLOW, &image, MGV__PIXELS_CHW, NULL, &grid, &count);
        for (i = 0; i < COUNT_OF(strides); i++) {
            float *out;
            image.stride = strides[i];
            out = prepare(&config, MGV_RESIZE_PILLOW, &image, MGV__PIXELS_CHW, NULL, &grid, &count);
            assert_memory_equal(expected, out, count * sizeof(float));
            free(out);
        }
        free(expected);
    }
    { /* two rows may be so far apart that their frame's size fits nowhere */
        mgv_image image = make_image(pixels, MGV_PIXELS_GRAY8, 1, 2);
        image.stride = PTRDIFF_MAX / 4 * 3;
        assert_int_equal(mgv__pixels_check(&image, NULL), MGV_OK);
        assert_ptr_equal(mgv__image_row(&image, 0, 0), pixels);
    }
    free(pixels);
}

/* Windows lie inside the source, follow each other, and their weights fit into the room that is kept for them. */
static void windows_fit_their_room(void **state) {
    uint32_t in, out, i;
    int32_t filter;
    double weights[4096];
    (void)state;
    for (in = 1; in < 700; in += 1 + in / 8) {
        for (out = 1; out < 300; out += 1 + out / 8) {
            for (filter = MGV__RESAMPLE_LANCZOS; filter <= MGV__RESAMPLE_BICUBIC; filter++) {
                mgv__axis axis;
                mgv__window before = {0, 0};
                memset(&axis, 0, sizeof axis);
                axis.in = in;
                axis.out = out;
                axis.taps = mgv__axis_taps(filter, in, out);
                assert_true(axis.taps % MGV__PIXELS_TAP_MULTIPLE == 0);
                assert_true((size_t)axis.taps * out <= mgv__axis_weight_count(in, out));
                for (i = 0; i < out; i++) {
                    const mgv__window window = mgv__axis_window(&axis, filter, i, weights);
                    assert_true(window.count > 0 && window.count <= axis.taps && window.first + window.count <= in);
                    assert_true(window.first >= before.first && window.first + window.count >= before.first + before.count);
                    before = window;
                }
            }
        }
    }
}

/* A picture wide and flat enough that the rows between the passes do not fit into the ring at full width: columns come in strips. */
static void wide_pictures_are_resized_in_strips(void **state) {
    enum { WIDTH = 9000, HEIGHT = 700 };
    mgv__pixels_config narrow = make_config(MGV__RESAMPLE_BICUBIC, 4096, 14, 14, 1, 1);
    uint8_t *pixels = make_picture(3, (size_t)WIDTH * HEIGHT * 3, 0), *column = (uint8_t *)malloc(HEIGHT);
    uint8_t *planes = (uint8_t *)malloc((size_t)WIDTH * HEIGHT * 3);
    mgv_image image = make_image(pixels, MGV_PIXELS_RGB8, WIDTH, HEIGHT);
    mgv__axis across, down;
    mgv__window windows[4096];
    int32_t *weights = (int32_t *)malloc(mgv__axis_weight_count(WIDTH, 4096) * sizeof(int32_t));
    mgv__window down_windows[14];
    int32_t *down_weights = (int32_t *)malloc(mgv__axis_weight_count(HEIGHT, 14) * sizeof(int32_t));
    double temporary[512];
    mgv_grid grid;
    size_t count, checked = 0;
    float *out;
    uint32_t x, y;
    (void)state;
    narrow.do_rescale = narrow.do_normalize = 0;
    out = prepare(&narrow, MGV_RESIZE_TORCHVISION, &image, MGV__PIXELS_CHW, NULL, &grid, &count);
    across.in = WIDTH;
    across.out = across.kept = 4096;
    across.begin = 0;
    across.windows = windows;
    across.weights = weights;
    across.taps = mgv__axis_taps(3, WIDTH, 4096);
    down.in = HEIGHT;
    down.out = down.kept = 14;
    down.begin = 0;
    down.windows = down_windows;
    down.weights = down_weights;
    down.taps = mgv__axis_taps(3, HEIGHT, 14);
    mgv__axis_fill(&across, &mgv__plain_pixel_kernels, MGV_RESIZE_TORCHVISION, 3, temporary);
    mgv__axis_fill(&down, &mgv__plain_pixel_kernels, MGV_RESIZE_TORCHVISION, 3, temporary);
    assert_true((size_t)4096 * 3 * down.longest > MGV__PIXELS_RING_BYTES);
    mgv__plain_to_planes(&mgv__pixel_formats[MGV_PIXELS_RGB8], pixels, WIDTH * HEIGHT, planes, WIDTH * HEIGHT);
    for (x = 0; x < 4096; x += 5) {
        const uint8_t *plane = planes + (size_t)(x % 3) * WIDTH * HEIGHT;
        const float *answers = out + (size_t)(x % 3) * 4096 * 14;
        uint8_t sample;
        mgv__row_set rows;
        for (y = 0; y < HEIGHT; y++) mgv__plain_across(&across, x, x + 1, plane + (size_t)y * WIDTH, WIDTH, 1, 0, &column[y], 1);
        rows.base = column;
        rows.stride = 1;
        rows.modulus = HEIGHT;
        for (y = 0; y < 14; y++, checked++) {
            mgv__plain_down(&down, y, &rows, 1, &sample);
            if (answers[y * 4096 + x] != (float)sample) fail_msg("column %u row %u is %g, not %u", x, y, (double)answers[y * 4096 + x], sample);
        }
    }
    assert_true(checked > 10000);
    free(out);
    free(weights);
    free(down_weights);
    free(column);
    free(planes);
    free(pixels);
}

/* Pillow's alpha_composite of one sample over white, as AlphaComposite.c of Pillow 13.0.0 has it for any background. */
static uint8_t pillow_over_white(uint32_t sample, uint32_t alpha) {
    uint32_t blend = 255 * (255 - alpha), out = alpha * 255 + blend, over, under, sum;
    if (alpha == 0) return 255;
    over = alpha * 255 * 255 * 128 / out;
    under = 255 * 128 - over;
    sum = sample * over + 255 * under + (0x80 << 7);
    return (uint8_t)((((sum >> 8) + sum) >> 8) >> 7);
}

static void every_sample_and_alpha_over_white(void **state) {
    uint8_t *pixels = (uint8_t *)malloc(65536 * 2), *planes = (uint8_t *)malloc(65536);
    uint32_t i;
    (void)state;
    for (i = 0; i < 65536; i++) {
        pixels[2 * i] = (uint8_t)i;
        pixels[2 * i + 1] = (uint8_t)(i >> 8);
    }
    mgv__over_white(&mgv__pixel_formats[MGV_PIXELS_GRAY_ALPHA8], pixels, 65536, planes, 65536);
    for (i = 0; i < 65536; i++) assert_int_equal(planes[i], pillow_over_white(i & 255, i >> 8));
    assert_int_equal(planes[0x0000], 255); /* what is transparent is white, whatever is hidden there */
    assert_int_equal(planes[0xFF07], 7);
    free(planes);
    free(pixels);
}

/* A picture with alpha gives what the same picture gives that was laid over white before, whichever pass comes first. */
static void transparent_parts_become_white(void **state) {
    enum { WIDTH = 61, HEIGHT = 223, FRAMES = 2 };
    static const struct {
        uint32_t width, height;
    } sizes[] = {{WIDTH, HEIGHT}, {WIDTH, 20}, {40, HEIGHT}, {32, 48}, {16, 220}, {90, 230}, {8, 4}};
    static const mgv_pixel_format formats[] = {MGV_PIXELS_RGBA8, MGV_PIXELS_BGRA8, MGV_PIXELS_GRAY_ALPHA8};
    size_t size, f, i, k, count, other_count;
    (void)state;
    for (f = 0; f < COUNT_OF(formats); f++) {
        const mgv__pixel_format_row *format = &mgv__pixel_formats[formats[f]];
        uint8_t *pixels = make_picture(11, WIDTH * HEIGHT * FRAMES * format->bytes, 0), *flat = (uint8_t *)malloc(WIDTH * HEIGHT * FRAMES * 3);
        for (i = 0; i < WIDTH * HEIGHT * FRAMES; i++)
            for (k = 0; k < 3; k++)
                flat[3 * i + k] = pillow_over_white(pixels[format->bytes * i + format->offset[k]], pixels[format->bytes * i + format->alpha]);
        for (size = 0; size < COUNT_OF(sizes); size++) {
            mgv__pixels_config config = make_config(MGV__RESAMPLE_BICUBIC, sizes[size].width, sizes[size].height, 2, 1, 2);
            mgv_image image = make_image(pixels, formats[f], WIDTH, HEIGHT), expected = make_image(flat, MGV_PIXELS_RGB8, WIDTH, HEIGHT);
            mgv_parallel_for parallel = parallel_by(run_backwards, 3);
            mgv_grid grid;
            float *out, *over_white;
            image.frames = expected.frames = FRAMES;
            over_white = prepare(&config, MGV_RESIZE_PILLOW, &expected, MGV__PIXELS_PATCHES, NULL, &grid, &count);
            out = prepare(&config, MGV_RESIZE_PILLOW, &image, MGV__PIXELS_PATCHES, &parallel, &grid, &other_count);
            assert_int_equal(count, other_count);
            assert_memory_equal(out, over_white, count * sizeof(float));
            free(out);
            free(over_white);
        }
        free(flat);
        free(pixels);
    }
}

/* Bytes for the GPU: grey three times, frame after frame. */
static void bytes_of_grey_clips(void **state) {
    uint8_t *pixels = make_picture(6, 9 * 7 * 2 * 2, 0), *bytes;
    mgv__pixels_config config = make_config(MGV__RESAMPLE_BILINEAR, 5, 11, 1, 1, 2);
    mgv_image image = make_image(pixels, MGV_PIXELS_GRAY_ALPHA8, 9, 7);
    mgv_parallel_for parallel = parallel_by(run_backwards, 4);
    mgv_grid grid;
    size_t count, i;
    float *out;
    (void)state;
    image.frames = 2;
    image.alpha = MGV_ALPHA_DROP;
    config.do_rescale = config.do_normalize = 0;
    out = prepare(&config, MGV_RESIZE_PILLOW, &image, MGV__PIXELS_CHW, NULL, &grid, &count);
    bytes = (uint8_t *)prepare(&config, MGV_RESIZE_PILLOW, &image, MGV__PIXELS_RGB8, &parallel, &grid, &count);
    assert_int_equal(count, 2 * 3 * 5 * 11);
    for (i = 0; i < count; i++) assert_int_equal(bytes[i], (uint8_t)out[i / 165 * 165 + i % 3 * 55 + i % 165 / 3]);
    free(bytes);
    free(out);
    free(pixels);
}

static void without_resizing(void **state) {
    uint8_t *pixels = make_picture(4, 64 * 64 * 3, 0);
    mgv__pixels_config fixed = make_config(MGV__RESAMPLE_BICUBIC, 64, 48, 16, 1, 1), any = make_config(MGV__RESAMPLE_BICUBIC, 0, 0, 16, 2, 2);
    mgv_image image = make_image(pixels, MGV_PIXELS_RGB8, 64, 48);
    mgv_grid grid;
    mgv_error error;
    size_t count;
    float *out;
    (void)state;
    fixed.do_resize = any.do_resize = 0;
    out = prepare(&fixed, MGV_RESIZE_PILLOW, &image, MGV__PIXELS_CHW, NULL, &grid, &count);
    assert_true(out[64 * 48 + 65] == mgv__pixel_value(&fixed, MGV_RESIZE_PILLOW, 1, pixels[65 * 3 + 1]));
    free(out);
    fixed.only_side = 64;
    assert_int_equal(mgv__pixels_grid(&fixed, 48, 64, 1, 0, 0, &grid, &error), MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "48 x 64"));
    assert_int_equal(mgv__pixels_grid(&any, 64, 48, 1, 0, 0, &grid, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv__pixels_grid(&any, 64, 64, 1, 0, 0, &grid, &error), MGV_OK);
    assert_int_equal(grid.tokens, 16);
    assert_int_equal(grid.merged_tokens, 4);
    free(pixels);
}

/* Limits that the caller gives, that the model has, and that it has for clips. */
static void limits_of_the_area(void **state) {
    mgv__pixels_config config = make_config(MGV__RESAMPLE_BICUBIC, 0, 0, 16, 2, 2);
    mgv_grid grid;
    mgv_error error;
    (void)state;
    assert_int_equal(mgv__pixels_grid(&config, 100, 100, 1, 0, 0, &grid, &error), MGV_OK);
    assert_int_equal(grid.width, 256);
    assert_int_equal(mgv__pixels_grid(&config, 100, 100, 0, 1, 0, &grid, &error), MGV_OK);
    assert_int_equal(grid.width, 96);
    assert_int_equal(mgv__pixels_grid(&config, 1000, 1000, 1, 0, 65536, &grid, &error), MGV_OK);
    assert_int_equal(grid.width, 256);
    assert_int_equal(mgv__pixels_grid(&config, 1000, 1000, 1, 0, 65535, &grid, &error), MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "65536"));
    config.clip_min_pixels = 4096;
    config.clip_max_pixels = 4 * 9216;
    assert_int_equal(mgv__pixels_grid(&config, 1000, 1000, 4, 0, 0, &grid, &error), MGV_OK);
    assert_int_equal(grid.width, 192);
    config.clip_counts_frames = 1;
    assert_int_equal(mgv__pixels_grid(&config, 1000, 1000, 4, 0, 0, &grid, &error), MGV_OK);
    assert_int_equal(grid.width, 96);
    assert_int_equal(grid.t, 2);
}

static void knows_what_overlaps_a_picture(void **state) {
    static uint8_t memory[100];
    mgv_image image = make_image(memory + 40, MGV_PIXELS_GRAY8, 4, 3);
    (void)state;
    image.stride = 5; /* bytes 40 to 53 */
    assert_int_equal(mgv__image_overlaps(&image, memory, 40), 0);
    assert_int_equal(mgv__image_overlaps(&image, memory, 41), 1);
    assert_int_equal(mgv__image_overlaps(&image, memory + 40, 0), 0);
    assert_int_equal(mgv__image_overlaps(&image, memory + 53, 1), 1);
    assert_int_equal(mgv__image_overlaps(&image, memory + 54, 1), 0);
    assert_int_equal(mgv__image_overlaps(&image, memory, UINT64_MAX), 1);
    image.stride = -5; /* bytes 30 to 43 */
    assert_int_equal(mgv__image_overlaps(&image, memory, 30), 0);
    assert_int_equal(mgv__image_overlaps(&image, memory, 31), 1);
    assert_int_equal(mgv__image_overlaps(&image, memory + 43, 1), 1);
    assert_int_equal(mgv__image_overlaps(&image, memory + 44, 1), 0);
    image.frames = 2;
    image.frame_stride = -20; /* bytes 10 to 43 */
    assert_int_equal(mgv__image_overlaps(&image, memory, 10), 0);
    assert_int_equal(mgv__image_overlaps(&image, memory, 11), 1);
    assert_int_equal(mgv__image_overlaps(&image, memory + 43, 1), 1);
    assert_int_equal(mgv__image_overlaps(&image, memory + 44, 1), 0);
}

/* ---- Bad input ---- */

static void bad_pictures(void **state) {
    static uint8_t pixels[4096];
    static const struct {
        const char *rule; /* words of the message; NULL: accepted */
        mgv_image image;  /* struct_size, format, pixels, bytes, width, height, stride, frames, place, frame_stride, alpha, reserved */
    } cases[] = {
        {NULL, {0, MGV_PIXELS_RGB8, pixels, 0, 1, 1, 0, 0, 0, 0, 0, 0}},
        {NULL, {0, MGV_PIXELS_RGB8, pixels, 3, 1, 1, 0, 1, 0, 0, 0, 0}},
        {"NULL", {0, MGV_PIXELS_RGB8, NULL, 3, 1, 1, 0, 0, 0, 0, 0, 0}},
        {"nothing in it", {0, MGV_PIXELS_RGB8, pixels, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
        {"0 x 5", {0, MGV_PIXELS_RGB8, pixels, 0, 0, 5, 0, 0, 0, 0, 0, 0}},
        {"5 x 0", {0, MGV_PIXELS_RGB8, pixels, 0, 5, 0, 0, 0, 0, 0, 0, 0}},
        {NULL, {0, MGV_PIXELS_GRAY8, pixels, 4096, 1, 4096, 0, 0, 0, 0, 0, 0}},
        {NULL, {0, MGV_PIXELS_GRAY8, pixels, 4096, 4096, 1, 0, 0, 0, 0, 0, 0}},
        {NULL, {0, MGV_PIXELS_RGB8, pixels, 0, 65536, 1, 0, 0, 0, 0, 0, 0}},
        {NULL, {0, MGV_PIXELS_RGBA8, pixels, 0, 16777216, 1, 0, 0, 0, 0, 0, 0}},
        {"16777216 pixels a side", {0, MGV_PIXELS_RGB8, pixels, 0, 16777217, 1, 0, 0, 0, 0, 0, 0}},
        {"2147483648 x 1", {0, MGV_PIXELS_RGB8, pixels, 0, 2147483648u, 1, 0, 0, 0, 0, 0, 0}},
        {"4294967295", {0, MGV_PIXELS_RGBA8, pixels, 0, 4294967295u, 4294967295u, 0, 0, 0, 0, 0, 0}},
        {"65536 frames", {0, MGV_PIXELS_RGB8, pixels, 0, 1, 1, 0, 65537, 0, 0, 0, 0}},
        {"-1 is no mgv_pixel_format", {0, -1, pixels, 0, 1, 1, 0, 0, 0, 0, 0, 0}},
        {"8 is no mgv_pixel_format", {0, 8, pixels, 0, 1, 1, 0, 0, 0, 0, 0, 0}},
        {"no mgv_pixel_format", {0, INT32_MIN, pixels, 0, 1, 1, 0, 0, 0, 0, 0, 0}},
        {NULL, {0, MGV_PIXELS_RGBA8, pixels, 0, 1, 1, 0, 0, 0, 0, MGV_ALPHA_DROP, 0}},
        {"2 is no mgv_alpha", {0, MGV_PIXELS_RGBA8, pixels, 0, 1, 1, 0, 0, 0, 0, 2, 0}},
        {"-1 is no mgv_alpha", {0, MGV_PIXELS_RGB8, pixels, 0, 1, 1, 0, 0, 0, 0, -1, 0}},
        {"2 is no mgv_place", {0, MGV_PIXELS_RGB8, pixels, 0, 1, 1, 0, 0, 2, 0, 0, 0}},
        {"-1 is no mgv_place", {0, MGV_PIXELS_RGB8, pixels, 0, 1, 1, 0, 0, -1, 0, 0, 0}},
        {NULL, {0, MGV_PIXELS_RGB8, pixels, 0, 1, 1, 0, 0, MGV_PLACE_DEVICE, 0, 0, 0}},
        {"stride of 11", {0, MGV_PIXELS_RGB8, pixels, 0, 4, 2, 11, 0, 0, 0, 0, 0}},
        {"stride of -11", {0, MGV_PIXELS_RGB8, pixels, 0, 4, 2, -11, 0, 0, 0, 0, 0}},
        {"stride of 1 ", {0, MGV_PIXELS_RGB8, pixels, 0, 4, 1, 1, 0, 0, 0, 0, 0}},
        {NULL, {0, MGV_PIXELS_RGB8, pixels, 24, 4, 2, 12, 0, 0, 0, 0, 0}},
        {NULL, {0, MGV_PIXELS_RGB8, pixels + 12, 24, 4, 2, -12, 0, 0, 0, 0, 0}},
        {"25 bytes; 24 are", {0, MGV_PIXELS_RGB8, pixels, 24, 4, 2, 13, 0, 0, 0, 0, 0}},
        {"25 bytes; 24 are", {0, MGV_PIXELS_RGB8, pixels + 13, 24, 4, 2, -13, 0, 0, 0, 0, 0}},
        {"24 bytes; 23 are", {0, MGV_PIXELS_RGB8, pixels, 23, 4, 2, 0, 0, 0, 0, 0, 0}},
        {"48 bytes; 47 are", {0, MGV_PIXELS_RGB8, pixels, 47, 4, 2, 0, 2, 0, 0, 0, 0}},
        {"49 bytes; 48 are", {0, MGV_PIXELS_RGB8, pixels, 48, 4, 2, 0, 2, 0, 25, 0, 0}},
        {"49 bytes; 48 are", {0, MGV_PIXELS_RGB8, pixels + 25, 48, 4, 2, 0, 2, 0, -25, 0, 0}},
        {"this machine's memory", {0, MGV_PIXELS_RGB8, pixels, 0, 4, 2, INT64_MAX, 0, 0, 0, 0, 0}},
        {"this machine's memory", {0, MGV_PIXELS_RGB8, pixels, 0, 4, 2, INT64_MIN, 0, 0, 0, 0, 0}},
        {"this machine's memory", {0, MGV_PIXELS_RGB8, pixels, 0, 4, 16777216, INT64_C(1) << 40, 0, 0, 0, 0, 0}},
        {"this machine's memory", {0, MGV_PIXELS_RGB8, pixels, 0, 4, 2, 0, 2, 0, INT64_MIN, 0, 0}},
        {"this machine's memory", {0, MGV_PIXELS_RGB8, pixels, 0, 4, 2, 0, 65536, 0, INT64_C(1) << 48, 0, 0}},
        {"this machine's memory", {0, MGV_PIXELS_RGBA8, pixels, 0, 16777216, 16777216, 0, 65536, 0, 0, 0, 0}},
        {NULL, {0, MGV_PIXELS_RGB8, pixels, 0, 4, 1, 0, 0, 0, INT64_MAX, 0, 0}},
    };
    mgv_error error;
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        mgv_result result;
        memset(&error, 0, sizeof error);
        result = mgv__pixels_check(&cases[i].image, &error);
        if (result != (cases[i].rule ? MGV_ERROR_ARGUMENT : MGV_OK)) fail_msg("case %zu: %s %s", i, mgv_result_name(result), error.message);
        if (cases[i].rule && strstr(error.message, cases[i].rule) == NULL) fail_msg("case %zu: %s", i, error.message);
        assert_int_equal(mgv__pixels_check(&cases[i].image, NULL), result);
    }
}

static void bad_sizes(void **state) {
    static const struct {
        uint32_t width, height, frames;
        mgv_result fixed, smart;
    } cases[] = {
        {1, 1, 1, MGV_OK, MGV_OK}, {1, 200, 1, MGV_OK, MGV_OK}, {1, 201, 1, MGV_OK, MGV_ERROR_ARGUMENT}, {201, 1, 0, MGV_OK, MGV_ERROR_ARGUMENT},
        {100000, 1, 1, MGV_OK, MGV_ERROR_ARGUMENT}, {0, 1, 1, MGV_ERROR_ARGUMENT, MGV_ERROR_ARGUMENT}, {1, 0, 1, MGV_ERROR_ARGUMENT, MGV_ERROR_ARGUMENT},
        {16777216, 16777216, 1, MGV_OK, MGV_OK}, {16777217, 16777216, 1, MGV_ERROR_ARGUMENT, MGV_ERROR_ARGUMENT},
        {10, 10, 2, MGV_ERROR_ARGUMENT, MGV_OK}, {10, 10, 65537, MGV_ERROR_ARGUMENT, MGV_ERROR_ARGUMENT},
        {4096, 4096, 65536, MGV_ERROR_ARGUMENT, MGV_ERROR_CAPACITY},
    };
    mgv__pixels_config fixed = make_config(MGV__RESAMPLE_BILINEAR, 224, 224, 16, 1, 1), smart = make_config(MGV__RESAMPLE_BICUBIC, 0, 0, 16, 2, 2);
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        mgv_grid grid, untouched;
        mgv_error error;
        memset(&grid, 0xEE, sizeof grid);
        memset(&untouched, 0xEE, sizeof untouched);
        error.message[0] = 0;
        if (mgv__pixels_grid(&fixed, cases[i].width, cases[i].height, cases[i].frames, 0, 0, &grid, &error) != cases[i].fixed)
            fail_msg("fixed, case %zu: %s", i, error.message);
        if (cases[i].fixed != MGV_OK) assert_memory_equal(&grid, &untouched, sizeof grid);
        memset(&grid, 0xEE, sizeof grid);
        if (mgv__pixels_grid(&smart, cases[i].width, cases[i].height, cases[i].frames, 0, 0, &grid, &error) != cases[i].smart)
            fail_msg("smart, case %zu: %s", i, error.message);
        if (cases[i].smart != MGV_OK) assert_memory_equal(&grid, &untouched, sizeof grid);
    }
}

typedef void (*spoil)(mgv__pixels_config *config);
static void spoil_resample(mgv__pixels_config *c) { c->resample = 4; }
static void spoil_patch(mgv__pixels_config *c) { c->patch = 0; }
static void spoil_merge(mgv__pixels_config *c) { c->merge = 0; }
static void spoil_temporal(mgv__pixels_config *c) { c->temporal_patch = 0; }
static void spoil_factor(mgv__pixels_config *c) { c->factor = 31; }
static void spoil_factor_wraps(mgv__pixels_config *c) { c->factor = 0, c->patch = c->merge = 65536; }
static void spoil_width(mgv__pixels_config *c) { c->crop_width = 32; }
static void spoil_height(mgv__pixels_config *c) { c->crop_height = 32; }
static void spoil_small(mgv__pixels_config *c) { c->crop_width = c->crop_height = 15; }
static void spoil_large(mgv__pixels_config *c) { c->crop_width = c->crop_height = 1u << 31; }
static void spoil_limits(mgv__pixels_config *c) { c->min_pixels = c->max_pixels + 1; }
static void spoil_min(mgv__pixels_config *c) { c->min_pixels = 0; }
static void spoil_rescale(mgv__pixels_config *c) { c->rescale_factor = 0; }
static void spoil_rescale_nan(mgv__pixels_config *c) { c->rescale_factor = NAN; }
static void spoil_std(mgv__pixels_config *c) { c->std[1] = 0; }
static void spoil_std_nan(mgv__pixels_config *c) { c->std[2] = NAN; }
static void spoil_std_denormal(mgv__pixels_config *c) { c->std[0] = 1e-310; }
static void spoil_mean(mgv__pixels_config *c) { c->mean[0] = INFINITY; }

static void bad_configurations(void **state) {
    static const struct {
        spoil change;
        mgv_result result;
        const char *rule;
    } cases[] = {
        {spoil_resample, MGV_ERROR_UNSUPPORTED, "resample 4"}, {spoil_patch, MGV_ERROR_MODEL, "patches of 0"}, {spoil_merge, MGV_ERROR_MODEL, "merged 0"},
        {spoil_temporal, MGV_ERROR_MODEL, "0 frames"}, {spoil_factor, MGV_ERROR_MODEL, "multiples of 31"}, {spoil_factor_wraps, MGV_ERROR_MODEL, "multiples of 0"},
        {spoil_width, MGV_ERROR_MODEL, "32 x 0"}, {spoil_height, MGV_ERROR_MODEL, "0 x 32"}, {spoil_small, MGV_ERROR_MODEL, "smaller than a patch"},
        {spoil_large, MGV_ERROR_MODEL, "2147483648"}, {spoil_limits, MGV_ERROR_MODEL, "16777217 to 16777216"}, {spoil_min, MGV_ERROR_MODEL, "from 0"},
        {spoil_rescale, MGV_ERROR_MODEL, "rescale_factor"}, {spoil_rescale_nan, MGV_ERROR_MODEL, "rescale_factor"}, {spoil_std, MGV_ERROR_MODEL, "image_std[1]"},
        {spoil_std_nan, MGV_ERROR_MODEL, "image_std[2]"}, {spoil_std_denormal, MGV_ERROR_MODEL, "image_std[0]"}, {spoil_mean, MGV_ERROR_MODEL, "image_mean[0]"},
    };
    mgv_error error;
    size_t i, bytes = 77;
    mgv__pixels_config config = make_config(MGV__RESAMPLE_BICUBIC, 0, 0, 16, 2, 2);
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        config = make_config(MGV__RESAMPLE_BICUBIC, 0, 0, 16, 2, 2);
        cases[i].change(&config);
        assert_int_equal(mgv__pixels_scratch_bytes(&config, 100, 100, 4096, &bytes, &error), cases[i].result);
        if (strstr(error.message, cases[i].rule) == NULL) fail_msg("case %zu: %s", i, error.message);
        assert_int_equal(bytes, 77);
    }
    config = make_config(MGV__RESAMPLE_BICUBIC, 0, 0, 16, 2, 2);
    assert_int_equal(mgv__pixels_scratch_bytes(&config, 0, 100, 4096, &bytes, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv__pixels_scratch_bytes(&config, 100, 16777217, 4096, &bytes, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(bytes, 77);
}

/* Pages that may not be touched lie right before and right behind the picture: exactly its bytes are read. */
static void reads_nothing_outside_the_picture(void **state) {
    static const struct {
        uint32_t width, height, new_width, new_height;
    } sizes[] = {{1, 1, 14, 14}, {5, 7, 28, 14}, {61, 33, 14, 14}, {33, 61, 33, 14}, {20, 200, 17, 16}, {64, 64, 64, 64}, {100, 3, 14, 3}};
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), room = 16 * page;
    uint8_t *map = (uint8_t *)mmap(NULL, room + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *inside = map + page;
    size_t i;
    mgv_pixel_format format;
    int end, down;
    (void)state;
    assert_true(map != MAP_FAILED);
    assert_int_equal(mprotect(inside, room, PROT_READ | PROT_WRITE), 0);
    for (i = 0; i < COUNT_OF(sizes); i++) {
        for (format = 0; format < (mgv_pixel_format)MGV__PIXEL_FORMATS; format++) {
            for (end = 0; end < 2; end++) {
                for (down = 0; down < 2; down++) {
                    mgv__pixels_config config = make_config(MGV__RESAMPLE_BICUBIC, sizes[i].new_width, sizes[i].new_height, 1, 1, 1);
                    mgv_image image = make_image(inside, format, sizes[i].width, sizes[i].height);
                    const size_t row_bytes = (size_t)mgv__image_row_bytes(&image), stride = row_bytes + 3, bytes = stride * (image.height - 1) + row_bytes;
                    uint8_t *start = end ? inside + room - bytes : inside;
                    size_t count;
                    mgv_grid grid;
                    float *out;
                    assert_true(bytes <= room);
                    image.stride = down ? -(int64_t)stride : (int64_t)stride;
                    image.pixels = down ? start + stride * (image.height - 1) : start;
                    image.bytes = bytes;
                    out = prepare(&config, end ? MGV_RESIZE_PILLOW : MGV_RESIZE_TORCHVISION, &image, MGV__PIXELS_CHW, NULL, &grid, &count);
                    free(out);
                }
            }
        }
    }
    munmap(map, room + 2 * page);
}

/* The scratch memory that was asked for is enough for every smaller picture too (the sanitizers watch), and it is small. */
static void scratch_memory(void **state) {
    enum { MAX_SIDE = 90, MAX_TOKENS = 64 };
    mgv__pixels_config fixed = make_config(MGV__RESAMPLE_BILINEAR, 224, 224, 16, 1, 1), smart = make_config(MGV__RESAMPLE_BICUBIC, 0, 0, 4, 2, 2);
    uint8_t *pixels = make_picture(8, MAX_SIDE * MAX_SIDE * 4, 0);
    uint64_t random = 1;
    size_t bytes, prepared = 0;
    void *scratch = NULL;
    float *out = (float *)malloc(MAX_TOKENS * 3 * 2 * 4 * 4 * sizeof(float));
    mgv_error error;
    int i;
    (void)state;
    assert_int_equal(mgv__pixels_scratch_bytes(&fixed, 4096, 4096, 0, &bytes, &error), MGV_OK);
    assert_true(bytes < 5u << 20);
    smart.min_pixels = 64;
    smart.max_pixels = MAX_TOKENS * 16;
    assert_int_equal(mgv__pixels_scratch_bytes(&smart, MAX_SIDE, MAX_SIDE, MAX_TOKENS, &bytes, &error), MGV_OK);
    assert_int_equal(posix_memalign(&scratch, 64, bytes), 0);
    for (i = 0; i < 600; i++) {
        mgv_image image = make_image(pixels, (mgv_pixel_format)(i % 6), 1, 1);
        mgv_parallel_for parallel = parallel_by(run_backwards, (uint32_t)(i % 18));
        mgv_grid grid;
        random = random * 6364136223846793005u + 1442695040888963407u;
        image.width = 1 + (uint32_t)(random >> 33) % MAX_SIDE;
        image.height = 1 + (uint32_t)(random >> 48) % MAX_SIDE;
        if (mgv__pixels_grid(&smart, image.width, image.height, 1, 0, 0, &grid, &error) != MGV_OK || grid.tokens > MAX_TOKENS) continue;
        mgv__pixels_prepare(&smart, i % 2 ? MGV_RESIZE_PILLOW : MGV_RESIZE_TORCHVISION, &image, &grid, scratch, &parallel, out, MGV__PIXELS_PATCHES);
        prepared++;
    }
    assert_true(prepared > 300);
    free(scratch);
    free(out);
    free(pixels);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resize_gives_the_bytes_of_pillow_and_torchvision),
        cmocka_unit_test(values_are_those_of_the_processors),
        cmocka_unit_test(smart_resize_rounds_as_python_does),
        cmocka_unit_test(sides_at_a_multiple),
        cmocka_unit_test(pixel_values_are_those_of_the_processors),
        cmocka_unit_test(formats_strides_and_bands_do_not_matter),
        cmocka_unit_test(a_negative_stride_without_a_frame_stride),
        cmocka_unit_test(a_stride_behind_the_only_row),
        cmocka_unit_test(windows_fit_their_room),
        cmocka_unit_test(wide_pictures_are_resized_in_strips),
        cmocka_unit_test(every_sample_and_alpha_over_white),
        cmocka_unit_test(transparent_parts_become_white),
        cmocka_unit_test(bytes_of_grey_clips),
        cmocka_unit_test(without_resizing),
        cmocka_unit_test(limits_of_the_area),
        cmocka_unit_test(knows_what_overlaps_a_picture),
        cmocka_unit_test(bad_pictures),
        cmocka_unit_test(bad_sizes),
        cmocka_unit_test(bad_configurations),
        cmocka_unit_test(reads_nothing_outside_the_picture),
        cmocka_unit_test(scratch_memory),
    };
    return cmocka_run_group_tests_name("pixels", tests, NULL, NULL);
}
