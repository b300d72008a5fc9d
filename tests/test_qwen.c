/* Engines of models whose pictures may have any size: batches, clips, capacity and bad pictures, on the small saved towers. That the
   numbers are right is for test_qwen_golden.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

enum { MAX_TOKENS = 512, MAX_IMAGES = 4, MAX_SIDE = 700 };
static const char *const models[] = {"tests/golden/qwen3_saved", "tests/golden/qwen2_5_saved"};

typedef struct world {
    mgv_model *model;
    mgv_model_info info;
    mgv_engine *engine;
    mgv_error error;
} world;

static void open_world(world *w, const char *path) {
    mgv_model_desc model;
    mgv_engine_desc engine;
    memset(w, 0, sizeof *w);
    memset(&model, 0, sizeof model);
    memset(&engine, 0, sizeof engine);
    model.path = path;
    if (mgv_model_open(&w->model, &model, &w->error) != MGV_OK) fail_msg("%s", w->error.message);
    assert_int_equal(mgv_model_get_info(w->model, &w->info), MGV_OK);
    engine.backend = MGV_BACKEND_CPU;
    engine.max_images = MAX_IMAGES;
    engine.max_tokens = MAX_TOKENS;
    engine.max_width = engine.max_height = MAX_SIDE;
    /* one block of merge x merge patches: pictures keep about the size they have */
    engine.min_pixels = (uint64_t)w->info.patch * w->info.patch * w->info.merge * w->info.merge;
    engine.max_pixels = 1u << 24;
    if (mgv_engine_create(&w->engine, w->model, &engine, &w->error) != MGV_OK) fail_msg("%s", w->error.message);
}

static void close_world(world *w) {
    assert_int_equal(mgv_engine_destroy(w->engine), MGV_OK);
    mgv_model_close(w->model);
}

/* Frames that differ from each other and from those of any other seed. */
static mgv_image make_image(uint32_t seed, uint32_t width, uint32_t height, uint32_t frames) {
    mgv_image image;
    size_t bytes = (size_t)width * height * frames * 3, i;
    uint32_t x = seed * 2654435761u + 1;
    unsigned char *pixels = malloc(bytes ? bytes : 1);
    assert_non_null(pixels);
    for (i = 0; i < bytes; i++) {
        x = x * 1664525u + 1013904223u;
        pixels[i] = (unsigned char)(x >> 24);
    }
    memset(&image, 0, sizeof image);
    image.pixels = pixels;
    image.bytes = bytes;
    image.width = width;
    image.height = height;
    image.frames = frames;
    return image;
}

static void free_image(mgv_image *image) {
    free((void *)(uintptr_t)image->pixels);
}

/* All rows of one output, in malloc's memory; *count floats. */
static float *encode(world *w, const mgv_image *images, uint32_t count, mgv_output_kind kind, uint32_t index, size_t *floats) {
    mgv_output output;
    mgv_encode_desc desc;
    mgv_shape shape;
    memset(&output, 0, sizeof output);
    memset(&desc, 0, sizeof desc);
    output.kind = kind;
    output.index = index;
    if (mgv_engine_shape(w->engine, images, count, &output, &shape, &w->error) != MGV_OK) fail_msg("%s", w->error.message);
    *floats = (size_t)(shape.rows * shape.columns);
    output.capacity = *floats;
    output.data = malloc(*floats * sizeof(float));
    assert_non_null(output.data);
    desc.images = images;
    desc.image_count = count;
    desc.outputs = &output;
    desc.output_count = 1;
    if (mgv_encode_blocking(w->engine, &desc, &w->error) != MGV_OK) fail_msg("%s", w->error.message);
    return output.data;
}

static void check_batch(world *w, mgv_output_kind kind, uint32_t index) {
    mgv_image images[3];
    size_t together_floats, at = 0, i;
    float *together;
    images[0] = make_image(1, 64, 96, 1);
    images[1] = make_image(2, w->info.patch * w->info.merge, w->info.patch * w->info.merge, 1);
    images[2] = make_image(3, 150, 70, 3);
    together = encode(w, images, 3, kind, index, &together_floats);
    for (i = 0; i < 3; i++) {
        size_t floats;
        float *alone = encode(w, &images[i], 1, kind, index, &floats);
        assert_true(at + floats <= together_floats);
        assert_memory_equal(together + at, alone, floats * sizeof(float));
        at += floats;
        free(alone);
    }
    assert_int_equal(at, together_floats);
    free(together);
    for (i = 0; i < 3; i++) free_image(&images[i]);
}

static void test_batch_equals_single_pictures(void **state) {
    size_t i;
    (void)state;
    for (i = 0; i < sizeof models / sizeof models[0]; i++) {
        world w;
        uint32_t k;
        open_world(&w, models[i]);
        check_batch(&w, MGV_OUTPUT_TOKENS, 0);
        for (k = 0; k <= w.info.layers; k++) check_batch(&w, MGV_OUTPUT_LAYER, k);
        for (k = 0; k < w.info.deepstack_count; k++) check_batch(&w, MGV_OUTPUT_DEEPSTACK, k);
        close_world(&w);
    }
}

/* Polls that an encode of one picture takes: one for the pixels and one for each operation that runs. */
static uint32_t polls_of(world *w, const mgv_image *image, mgv_output *outputs, uint32_t output_count) {
    mgv_encode_desc desc;
    uint32_t polls = 1;
    memset(&desc, 0, sizeof desc);
    desc.images = image;
    desc.image_count = 1;
    desc.outputs = outputs;
    desc.output_count = output_count;
    if (mgv_encode(w->engine, &desc, &w->error) != MGV_OK) fail_msg("%s", w->error.message);
    while (mgv_poll(w->engine, NULL) != MGV_STATUS_DONE) polls++;
    return polls;
}

/* Work that no output needs is not done: neither behind it nor, as the mergers of DeepStack outputs, before it. And what is done for one
   output alone has the bits that it has among all of them. */
static void test_only_what_outputs_need(void **state) {
    enum { MOST = 16 };
    size_t i;
    (void)state;
    for (i = 0; i < sizeof models / sizeof models[0]; i++) {
        mgv_output outputs[MOST];
        mgv_image image = make_image(4, 96, 64, 1);
        uint32_t all, without, others, merger, count = 0, k;
        world w;
        open_world(&w, models[i]);
        memset(outputs, 0, sizeof outputs);
        for (k = 0; k <= w.info.layers; k++) outputs[count].index = k, outputs[count++].kind = MGV_OUTPUT_LAYER;
        outputs[count++].kind = MGV_OUTPUT_TOKENS;
        others = count;
        for (k = 0; k < w.info.deepstack_count; k++) outputs[count].index = k, outputs[count++].kind = MGV_OUTPUT_DEEPSTACK;
        assert_true(count <= MOST);
        for (k = 0; k < count; k++) {
            mgv_shape shape;
            assert_int_equal(mgv_engine_shape(w.engine, &image, 1, &outputs[k], &shape, &w.error), MGV_OK);
            outputs[k].capacity = shape.rows * shape.columns;
            outputs[k].data = (float *)malloc((size_t)outputs[k].capacity * sizeof(float));
        }
        all = polls_of(&w, &image, outputs, count);
        assert_true(all >= 1 + mgv_model_op_count(w.model) + count); /* each operation and each output is a step at least */
        without = polls_of(&w, &image, outputs, others);
        merger = w.info.deepstack_count ? (all - without) / w.info.deepstack_count : 0;
        if (w.info.deepstack_count) assert_true(merger >= 4); /* norm, two products, output */
        assert_int_equal(without, all - merger * w.info.deepstack_count);
        assert_true(polls_of(&w, &image, &outputs[others - 1], 1) <= without - (others - 1));
        for (k = 0; k < count; k++) {
            size_t floats;
            float *alone = encode(&w, &image, 1, outputs[k].kind, outputs[k].index, &floats);
            assert_int_equal(floats, outputs[k].capacity);
            assert_memory_equal(alone, outputs[k].data, floats * sizeof(float));
            free(alone);
        }
        for (k = 0; k < count; k++) free(outputs[k].data);
        free_image(&image);
        close_world(&w);
    }
}

static void assert_same_tokens(world *w, const mgv_image *a, const mgv_image *b) {
    size_t a_floats, b_floats;
    float *a_tokens = encode(w, a, 1, MGV_OUTPUT_TOKENS, 0, &a_floats), *b_tokens = encode(w, b, 1, MGV_OUTPUT_TOKENS, 0, &b_floats);
    assert_int_equal(a_floats, b_floats);
    assert_memory_equal(a_tokens, b_tokens, a_floats * sizeof(float));
    free(a_tokens);
    free(b_tokens);
}

/* A patch holds two frames: a clip of odd length repeats its last one, a still picture its only one. Patches of different frames do
   not see each other, so a clip of two pairs is two clips of one. */
static void test_clips(void **state) {
    size_t i;
    (void)state;
    for (i = 0; i < sizeof models / sizeof models[0]; i++) {
        world w;
        mgv_image four = make_image(7, 90, 120, 4), three = four, still = four, pair, odd_pair;
        size_t frame = (size_t)90 * 120 * 3, floats, half;
        unsigned char *pixels = (unsigned char *)(uintptr_t)four.pixels;
        float *whole, *second;
        mgv_grid grid;
        open_world(&w, models[i]);
        three.frames = 3;
        memcpy(pixels + 3 * frame, pixels + 2 * frame, frame);
        assert_same_tokens(&w, &four, &three);
        pair = odd_pair = still;
        still.frames = 0;
        odd_pair.frames = 1;
        assert_same_tokens(&w, &still, &odd_pair);
        pair.frames = 2;
        memcpy(pixels + frame, pixels, frame);
        assert_same_tokens(&w, &still, &pair);
        assert_int_equal(mgv_engine_grid(w.engine, &four, &grid, &w.error), MGV_OK);
        assert_int_equal(grid.t, 2);
        assert_int_equal(grid.tokens, 2 * grid.h * grid.w);
        whole = encode(&w, &four, 1, MGV_OUTPUT_TOKENS, 0, &floats);
        pair.pixels = pixels + 2 * frame;
        pair.bytes = 2 * frame;
        second = encode(&w, &pair, 1, MGV_OUTPUT_TOKENS, 0, &half);
        assert_int_equal(floats, 2 * half);
        assert_memory_equal(whole + half, second, half * sizeof(float));
        free(whole);
        free(second);
        free_image(&four);
        close_world(&w);
    }
}

static void expect_refused(world *w, const mgv_image *images, uint32_t count, mgv_result code, const char *first, const char *second) {
    static float floats[MAX_TOKENS * 64];
    mgv_output output;
    mgv_encode_desc desc;
    memset(&output, 0, sizeof output);
    memset(&desc, 0, sizeof desc);
    output.kind = MGV_OUTPUT_TOKENS;
    output.data = floats;
    output.capacity = sizeof floats / sizeof floats[0];
    desc.images = images;
    desc.image_count = count;
    desc.outputs = &output;
    desc.output_count = 1;
    assert_int_equal(mgv_encode_blocking(w->engine, &desc, &w->error), code);
    assert_int_equal(w->error.code, code);
    if (!strstr(w->error.message, first) || !strstr(w->error.message, second))
        fail_msg("'%s' does not name %s and %s", w->error.message, first, second);
}

static void test_pictures_that_are_refused(void **state) {
    size_t i;
    (void)state;
    for (i = 0; i < sizeof models / sizeof models[0]; i++) {
        world w;
        mgv_image good = make_image(1, 64, 96, 1), images[5], thin = make_image(2, 2, 402, 1), large, empty = good, many;
        size_t floats;
        float *before, *after;
        uint32_t side, k;
        char tokens[32];
        open_world(&w, models[i]);
        before = encode(&w, &good, 1, MGV_OUTPUT_TOKENS, 0, &floats);

        expect_refused(&w, &thin, 1, MGV_ERROR_ARGUMENT, "402", "200");
        empty.width = 0;
        expect_refused(&w, &empty, 1, MGV_ERROR_ARGUMENT, "0 x 96", "");
        empty.width = 64;
        empty.height = 0;
        expect_refused(&w, &empty, 1, MGV_ERROR_ARGUMENT, "64 x 0", "");

        /* one picture of too many tokens: both numbers are named */
        side = 26 * w.info.patch;
        large = make_image(3, side, side, 1);
        snprintf(tokens, sizeof tokens, "%d", 26 * 26);
        expect_refused(&w, &large, 1, MGV_ERROR_CAPACITY, tokens, "512");
        /* a clip of too many */
        many = make_image(4, 14 * w.info.patch, 14 * w.info.patch, 6);
        snprintf(tokens, sizeof tokens, "%d", 3 * 14 * 14);
        expect_refused(&w, &many, 1, MGV_ERROR_CAPACITY, tokens, "512");
        /* pictures that fit alone but not together */
        images[0] = images[1] = make_image(5, 18 * w.info.patch, 18 * w.info.patch, 1);
        snprintf(tokens, sizeof tokens, "%d", 2 * 18 * 18);
        expect_refused(&w, images, 2, MGV_ERROR_CAPACITY, tokens, "512");
        free_image(&images[0]);
        for (k = 0; k < 5; k++) images[k] = good;
        expect_refused(&w, images, 5, MGV_ERROR_CAPACITY, "5 images", "4");

        after = encode(&w, &good, 1, MGV_OUTPUT_TOKENS, 0, &floats);
        assert_memory_equal(before, after, floats * sizeof(float));
        free(before);
        free(after);
        free_image(&good);
        free_image(&thin);
        free_image(&large);
        free_image(&many);
        close_world(&w);
    }
}

/* An engine of a model whose pictures have any size is made for 4096 tokens where the caller names no number. */
static void test_default_tokens(void **state) {
    mgv_model_desc model_desc;
    mgv_engine_desc desc;
    mgv_model *model;
    mgv_engine *engine;
    mgv_model_info info;
    mgv_image full, beyond;
    mgv_grid grid;
    mgv_error error;
    (void)state;
    memset(&model_desc, 0, sizeof model_desc);
    memset(&desc, 0, sizeof desc);
    model_desc.path = models[0];
    desc.backend = MGV_BACKEND_CPU;
    desc.max_pixels = 1u << 24;
    if (mgv_model_open(&model, &model_desc, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_int_equal(mgv_model_get_info(model, &info), MGV_OK);
    if (mgv_engine_create(&engine, model, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
    full = make_image(1, 64 * info.patch, 64 * info.patch, 1);
    beyond = make_image(2, 64 * info.patch, (64 + info.merge) * info.patch, 1);
    if (mgv_engine_grid(engine, &full, &grid, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_int_equal(grid.tokens, 4096);
    assert_int_equal(mgv_engine_grid(engine, &beyond, &grid, &error), MGV_ERROR_CAPACITY);
    assert_non_null(strstr(error.message, "a picture of 4224 tokens; this engine was made for 4096"));
    free_image(&full);
    free_image(&beyond);
    mgv_engine_destroy(engine);
    mgv_model_close(model);
}

/* ---- only the tower is read ---- */

typedef struct counted_io {
    uint64_t bytes_read;
} counted_io;

static int32_t counted_open(void *user, const char *path, void **file, uint64_t *size) {
    FILE *stream = fopen(path, "rb");
    (void)user;
    if (!stream) return MGV_FILE_ABSENT;
    fseek(stream, 0, SEEK_END);
    *size = (uint64_t)ftell(stream);
    *file = stream;
    return 0;
}
static int32_t counted_read(void *user, void *file, uint64_t offset, void *buffer, size_t bytes) {
    ((counted_io *)user)->bytes_read += bytes;
    if (fseek(file, (long)offset, SEEK_SET) != 0) return -1;
    return fread(buffer, 1, bytes, file) == bytes ? 0 : -1;
}
static void counted_close(void *user, void *file) {
    (void)user;
    fclose(file);
}

static void test_text_tensors_are_not_read(void **state) {
    static const char *const shards[] = {"tests/golden/qwen3_saved/model-00001-of-00003.safetensors",
                                         "tests/golden/qwen3_saved/model-00002-of-00003.safetensors",
                                         "tests/golden/qwen3_saved/model-00003-of-00003.safetensors"};
    const uint64_t json_bytes = 8192; /* config, preprocessor and index together are below it */
    uint64_t file_bytes = 0, text_bytes = 0;
    counted_io counts;
    mgv_model_desc desc;
    mgv_model *model;
    mgv_error error;
    size_t i;
    uint32_t k;
    (void)state;
    for (i = 0; i < 3; i++) {
        mgv_safetensors_desc shard;
        mgv_safetensors *file;
        uint64_t end = 0;
        memset(&shard, 0, sizeof shard);
        shard.path = shards[i];
        if (mgv_safetensors_open(&file, &shard, &error) != MGV_OK) fail_msg("%s", error.message);
        for (k = 0; k < mgv_safetensors_tensor_count(file); k++) {
            mgv_tensor_info tensor;
            assert_int_equal(mgv_safetensors_get_tensor(file, k, &tensor), MGV_OK);
            if (tensor.offset + tensor.bytes > end) end = tensor.offset + tensor.bytes;
            if (!strstr(tensor.name, "visual.")) text_bytes += tensor.bytes;
        }
        file_bytes += end;
        mgv_safetensors_close(file);
    }
    assert_true(text_bytes > json_bytes); /* or reading it would not show */
    memset(&counts, 0, sizeof counts);
    memset(&desc, 0, sizeof desc);
    desc.path = "tests/golden/qwen3_saved";
    desc.io.user = &counts;
    desc.io.open = counted_open;
    desc.io.read = counted_read;
    desc.io.close = counted_close;
    if (mgv_model_open(&model, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
    mgv_model_close(model);
    assert_true(counts.bytes_read > 0);
    if (counts.bytes_read > file_bytes - text_bytes + 2 * json_bytes) { /* clips ask for the file of pictures again */
        fail_msg("%llu bytes read of %llu, of which %llu are text", (unsigned long long)counts.bytes_read, (unsigned long long)file_bytes,
                 (unsigned long long)text_bytes);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batch_equals_single_pictures),
        cmocka_unit_test(test_only_what_outputs_need),
        cmocka_unit_test(test_clips),
        cmocka_unit_test(test_pictures_that_are_refused),
        cmocka_unit_test(test_default_tokens),
        cmocka_unit_test(test_text_tensors_are_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
