/* mgv_model_prepare: pictures made ready without an engine give what the engine makes of them itself. */
#include <pthread.h>
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "support.h"

static size_t read_file(const char *directory, const char *name, void *bytes, size_t room) {
    char path[256];
    FILE *stream;
    size_t length;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    stream = fopen(path, "rb");
    assert_non_null(stream);
    length = fread(bytes, 1, room, stream);
    assert_true(length < room);
    fclose(stream);
    return length;
}

/* preprocessor: what stands in preprocessor_config.json; NULL: the file's own. */
static mgv_model *open_model(const char *path, const char *preprocessor) {
    enum { ROOM = 1 << 20 };
    unsigned char *config = (unsigned char *)malloc(ROOM), *weights = (unsigned char *)malloc(ROOM);
    mgv_memory_file files[3];
    mgv_model_desc desc;
    mgv_model *model = NULL;
    mgv_error error;
    memset(&desc, 0, sizeof desc);
    desc.path = path;
    if (preprocessor) {
        files[0].name = "config.json";
        files[0].data = config;
        files[0].bytes = read_file(path, "config.json", config, ROOM);
        files[1].name = "model.safetensors";
        files[1].data = weights;
        files[1].bytes = read_file(path, "model.safetensors", weights, ROOM);
        files[2].name = "preprocessor_config.json";
        files[2].data = preprocessor;
        files[2].bytes = strlen(preprocessor);
        desc.path = NULL;
        desc.memory_files = files;
        desc.memory_file_count = 3;
    }
    if (mgv_model_open(&model, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
    free(config);
    free(weights);
    return model;
}

static mgv_image make_picture(mgv_pixel_format format, uint32_t width, uint32_t height, uint32_t frames, unsigned char *pixels) {
    const size_t bytes = (size_t)width * height * frames * mgv__pixel_formats[format].bytes;
    mgv_image image;
    uint32_t seed = 5;
    for (size_t i = 0; i < bytes; i++) {
        seed = seed * 1664525u + 1013904223u;
        pixels[i] = (unsigned char)(seed >> 24);
    }
    memset(&image, 0, sizeof image);
    image.format = format;
    image.pixels = pixels;
    image.width = width;
    image.height = height;
    image.frames = frames;
    return image;
}

/* Rows of tokens of one picture, to be freed. */
static float *encode(const mgv_model *model, const mgv_engine_desc *desc, const mgv_image *image, size_t *count) {
    mgv_engine *engine = NULL;
    mgv_encode_desc encode_desc;
    mgv_output output;
    mgv_shape shape;
    mgv_error error;
    memset(&encode_desc, 0, sizeof encode_desc);
    memset(&output, 0, sizeof output);
    output.kind = MGV_OUTPUT_TOKENS;
    if (mgv_engine_create(&engine, model, desc, &error) != MGV_OK) fail_msg("%s", error.message);
    if (mgv_engine_shape(engine, image, 1, &output, &shape, &error) != MGV_OK) fail_msg("%s", error.message);
    *count = (size_t)(shape.rows * shape.columns);
    output.data = (float *)malloc(*count * sizeof(float));
    output.capacity = *count;
    encode_desc.images = image;
    encode_desc.image_count = 1;
    encode_desc.outputs = &output;
    encode_desc.output_count = 1;
    if (mgv_encode_blocking(engine, &encode_desc, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
    return output.data;
}

static void a_prepared_picture_gives_the_same_bits(void **state) {
    static const char crop[] = "{\"image_processor_type\": \"CLIPImageProcessor\", \"size\": {\"shortest_edge\": 57}, \"do_center_crop\": true, "
                               "\"crop_size\": {\"height\": 40, \"width\": 40}, \"resample\": 3}";
    static const char black[] = "{\"image_processor_type\": \"CLIPImageProcessor\", \"size\": {\"shortest_edge\": 31}, \"do_center_crop\": true, "
                                "\"crop_size\": {\"height\": 40, \"width\": 40}, \"resample\": 1}";
    static const struct {
        const char *model, *preprocessor;
        mgv_pixel_format format;
        uint32_t width, height, frames;
        uint64_t min_pixels, max_pixels;
    } cases[] = {
        {"tests/golden/siglip_saved_bfloat16", NULL, MGV_PIXELS_RGB8, 97, 61, 0, 0, 0},
        {"tests/golden/siglip_saved_bfloat16", NULL, MGV_PIXELS_RGBA8, 40, 130, 0, 0, 0},
        {"tests/golden/siglip_saved_bfloat16", NULL, MGV_PIXELS_GRAY_ALPHA8, 40, 40, 0, 0, 0},
        {"tests/golden/qwen3_saved", NULL, MGV_PIXELS_BGR8, 200, 150, 0, 0, 0},
        {"tests/golden/qwen3_saved", NULL, MGV_PIXELS_GRAY8, 50, 300, 0, 0, 0},
        {"tests/golden/qwen3_saved", NULL, MGV_PIXELS_RGB8, 90, 70, 3, 0, 0},
        {"tests/golden/clip_saved", NULL, MGV_PIXELS_RGB8, 97, 61, 0, 0, 0},
        {"tests/golden/clip_saved", crop, MGV_PIXELS_RGB8, 97, 61, 0, 0, 0}, /* the middle of what is resized */
        {"tests/golden/clip_saved", crop, MGV_PIXELS_RGBA8, 30, 200, 0, 0, 0},
        {"tests/golden/clip_saved", black, MGV_PIXELS_RGB8, 97, 61, 0, 0, 0}, /* which is smaller than the crop: black around it */
        {"tests/golden/dinov2_saved", NULL, MGV_PIXELS_RGB8, 300, 100, 0, 0, 0},
        /* limits between which no multiple of the factor lies: what comes out is beyond one of them, and must not be resized again */
        {"tests/golden/qwen3_saved", NULL, MGV_PIXELS_RGB8, 100, 100, 0, 5000, 5001},
    };
    unsigned char *pixels = (unsigned char *)malloc(1 << 20), *prepared_pixels = (unsigned char *)malloc(1 << 20);
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases) * 2; i++) {
        mgv_model *model = open_model(cases[i / 2].model, cases[i / 2].preprocessor);
        mgv_image image = make_picture(cases[i / 2].format, cases[i / 2].width, cases[i / 2].height, cases[i / 2].frames ? cases[i / 2].frames : 1, pixels), prepared;
        mgv_engine_desc desc;
        mgv_grid grid, again;
        mgv_error error;
        size_t count, other_count, bytes;
        float *expected, *got;
        memset(&desc, 0, sizeof desc);
        desc.backend = MGV_BACKEND_CPU;
        desc.resize = (mgv_resize)(i % 2);
        desc.min_pixels = cases[i / 2].min_pixels;
        desc.max_pixels = cases[i / 2].max_pixels;
        image.frames = cases[i / 2].frames;
        assert_int_equal(mgv_model_grid(model, &image, desc.min_pixels, desc.max_pixels, &grid, &error), MGV_OK);
        bytes = (size_t)(image.frames ? image.frames : 1) * 3 * grid.width * grid.height;
        memset(prepared_pixels, 0x5A, bytes + 1);
        assert_int_equal(mgv_model_prepare(model, &image, desc.resize, desc.min_pixels, desc.max_pixels, prepared_pixels, bytes - 1, &prepared, &error), MGV_ERROR_CAPACITY);
        if (mgv_model_prepare(model, &image, desc.resize, desc.min_pixels, desc.max_pixels, prepared_pixels, bytes, &prepared, &error) != MGV_OK) fail_msg("%s", error.message);
        assert_int_equal(prepared_pixels[bytes], 0x5A);
        assert_int_equal(prepared.bytes, bytes);
        assert_int_equal(mgv_model_grid(model, &prepared, desc.min_pixels, desc.max_pixels, &again, &error), MGV_OK);
        assert_memory_equal(&grid, &again, sizeof grid);
        expected = encode(model, &desc, &image, &count);
        got = encode(model, &desc, &prepared, &other_count);
        assert_int_equal(count, other_count);
        assert_memory_equal(expected, got, count * sizeof(float));
        free(expected);
        free(got);
        mgv_model_close(model);
    }
    free(prepared_pixels);
    free(pixels);
}

static void what_cannot_be_prepared(void **state) {
    mgv_model *model = open_model("tests/golden/siglip_saved_bfloat16", NULL);
    unsigned char pixels[64 * 64 * 3], out[40 * 40 * 3];
    mgv_image image = make_picture(MGV_PIXELS_RGB8, 64, 64, 1, pixels), prepared;
    mgv_grid grid;
    mgv_error error;
    (void)state;
    assert_int_equal(mgv_model_prepare(NULL, &image, 0, 0, 0, out, sizeof out, &prepared, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_model_prepare(model, NULL, 0, 0, 0, out, sizeof out, &prepared, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_model_prepare(model, &image, 0, 0, 0, NULL, sizeof out, &prepared, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_model_prepare(model, &image, 0, 0, 0, out, sizeof out, NULL, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_model_prepare(model, &image, 2, 0, 0, out, sizeof out, &prepared, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_model_prepare(model, &image, 0, 0, 0, pixels, sizeof pixels, &prepared, &error), MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "over the one that is read"));
    assert_int_equal(mgv_model_prepare(model, &image, 0, 0, 0, out, sizeof out - 1, &prepared, &error), MGV_ERROR_CAPACITY);
    image.pixels = NULL;
    assert_int_equal(mgv_model_prepare(model, &image, 0, 0, 0, out, sizeof out, &prepared, &error), MGV_ERROR_ARGUMENT);
    image.pixels = pixels;
    image.place = MGV_PLACE_DEVICE;
    assert_int_equal(mgv_model_prepare(model, &image, 0, 0, 0, out, sizeof out, &prepared, &error), MGV_ERROR_ARGUMENT);
    image.place = MGV_PLACE_HOST;
    image.prepared = 1; /* but of another size */
    assert_int_equal(mgv_model_grid(model, &image, 0, 0, &grid, &error), MGV_ERROR_ARGUMENT);
    mgv_model_close(model);
}

/* DINOv3's processor resizes floats, of which bytes would be another picture. */
static void a_model_whose_pictures_are_resized_in_floats(void **state) {
    mgv_model *model = open_model("tests/golden/dinov2_saved", "{\"image_processor_type\": \"DINOv3ViTImageProcessor\", \"size\": {\"height\": 56, "
                                                               "\"width\": 56}}");
    unsigned char pixels[64 * 64 * 3], out[56 * 56 * 3];
    mgv_image image = make_picture(MGV_PIXELS_RGB8, 64, 64, 1, pixels), prepared;
    mgv_error error;
    (void)state;
    assert_int_equal(mgv_model_prepare(model, &image, 0, 0, 0, out, sizeof out, &prepared, &error), MGV_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "in floats"));
    mgv_model_close(model);
}

/* Its memory comes from the model's allocator and goes back; without any it says so. */
static void memory_of_a_preparation(void **state) {
    counting_allocator counts;
    mgv_model_desc desc;
    mgv_model *model = NULL;
    unsigned char pixels[64 * 64 * 3], out[40 * 40 * 3];
    mgv_image image = make_picture(MGV_PIXELS_RGB8, 64, 64, 1, pixels), prepared;
    mgv_error error;
    uint64_t blocks;
    (void)state;
    memset(&counts, 0, sizeof counts);
    memset(&desc, 0, sizeof desc);
    desc.path = "tests/golden/siglip_saved_bfloat16";
    desc.allocator.user = &counts;
    desc.allocator.alloc = counting_alloc;
    desc.allocator.free = counting_free;
    assert_int_equal(mgv_model_open(&model, &desc, &error), MGV_OK);
    blocks = counts.live_blocks;
    assert_int_equal(mgv_model_prepare(model, &image, 0, 0, 0, out, sizeof out, &prepared, &error), MGV_OK);
    assert_int_equal(counts.live_blocks, blocks);
    counts.fail_at = counts.calls + 1;
    assert_int_equal(mgv_model_prepare(model, &image, 0, 0, 0, out, sizeof out, &prepared, &error), MGV_ERROR_NOMEM);
    assert_int_equal(counts.live_blocks, blocks);
    mgv_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prepared_picture_gives_the_same_bits),
        cmocka_unit_test(what_cannot_be_prepared),
        cmocka_unit_test(a_model_whose_pictures_are_resized_in_floats),
        cmocka_unit_test(memory_of_a_preparation),
    };
    return cmocka_run_group_tests_name("prepare", tests, NULL, NULL);
}
