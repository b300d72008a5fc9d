/* Pictures of different sizes in one call, for a language model: the merged tokens of a Qwen3-VL or Qwen2.5-VL vision tower and
   what its DeepStack mergers give. Prints where each picture's rows lie.

       any_size MODEL PICTURE... */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define STB_IMAGE_IMPLEMENTATION
#include <stb/stb_image.h>
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

enum { MAX_PICTURES = 16, MAX_OUTPUTS = 1 + 8 };

static void stop_unless(int good, const char *what, const char *reason) {
    if (good) return;
    fprintf(stderr, "any_size: %s: %s\n", what, reason);
    exit(1);
}

static mgv_image load(const char *name) {
    mgv_image image = {0};
    int width, height;
    image.pixels = stbi_load(name, &width, &height, NULL, 3);
    stop_unless(image.pixels != NULL, name, "cannot read the picture");
    image.width = (uint32_t)width;
    image.height = (uint32_t)height;
    return image;
}

/* How many tokens a picture is depends on its size and on the limits of the model's preprocessing (0, 0: its own): ask before making
   the engine. */
static uint32_t tokens_of(const mgv_model *model, const mgv_image *image, const char *name) {
    mgv_grid grid;
    mgv_error error;
    stop_unless(mgv_model_grid(model, image, 0, 0, &grid, &error) == MGV_OK, name, error.message);
    printf("%-32s %4u x %-4u -> %4u x %-4u  %5u patches, %4u tokens\n", name, image->width, image->height, grid.width, grid.height,
           grid.tokens, grid.merged_tokens);
    return grid.tokens;
}

/* A row of memory for every row of an output. */
static void give_memory(const mgv_engine *engine, const mgv_image *images, uint32_t count, mgv_output *output) {
    mgv_shape shape;
    mgv_error error;
    stop_unless(mgv_engine_shape(engine, images, count, output, &shape, &error) == MGV_OK, "output", error.message);
    output->capacity = shape.rows * shape.columns;
    output->data = malloc((size_t)output->capacity * sizeof(float));
    stop_unless(output->data != NULL, "output", "out of memory");
    if (output->kind == MGV_OUTPUT_TOKENS) printf("tokens       [%u, %u]\n", (unsigned)shape.rows, (unsigned)shape.columns);
    else printf("deepstack:%u  [%u, %u]\n", output->index, (unsigned)shape.rows, (unsigned)shape.columns);
}

int main(int argc, char **argv) {
    mgv_model *model;
    mgv_engine *engine;
    mgv_model_desc model_desc = {0};
    mgv_engine_desc engine_desc = {0};
    mgv_encode_desc encode = {0};
    mgv_model_info info;
    mgv_image images[MAX_PICTURES];
    mgv_output outputs[MAX_OUTPUTS] = {{0}};
    mgv_error error;
    uint32_t count = argc > 2 ? (uint32_t)argc - 2 : 0, output_count;

    if (count == 0 || count > MAX_PICTURES) {
        fprintf(stderr, "usage: any_size MODEL PICTURE... (at most %d)\n", MAX_PICTURES);
        return 1;
    }
    model_desc.path = argv[1];
    stop_unless(mgv_model_open(&model, &model_desc, &error) == MGV_OK, argv[1], error.message);
    mgv_model_get_info(model, &info);

    engine_desc.max_images = count;
    for (uint32_t i = 0; i < count; i++) {
        images[i] = load(argv[2 + i]);
        engine_desc.max_tokens += tokens_of(model, &images[i], argv[2 + i]);
        if (images[i].width > engine_desc.max_width) engine_desc.max_width = images[i].width;
        if (images[i].height > engine_desc.max_height) engine_desc.max_height = images[i].height;
    }
    stop_unless(mgv_engine_create(&engine, model, &engine_desc, &error) == MGV_OK, argv[1], error.message);

    /* All outputs come from one pass. The language model adds deepstack:J to its own layer J, at the picture's tokens. */
    output_count = 1 + info.deepstack_count;
    stop_unless(output_count <= MAX_OUTPUTS, argv[1], "too many DeepStack outputs");
    for (uint32_t i = 0; i < output_count; i++) {
        outputs[i].kind = i == 0 ? MGV_OUTPUT_TOKENS : MGV_OUTPUT_DEEPSTACK;
        outputs[i].index = i == 0 ? 0 : i - 1;
        give_memory(engine, images, count, &outputs[i]);
    }
    encode.images = images;
    encode.image_count = count;
    encode.outputs = outputs;
    encode.output_count = output_count;
    stop_unless(mgv_encode_blocking(engine, &encode, &error) == MGV_OK, argv[1], error.message);
    printf("first numbers: %.6f %.6f %.6f\n", outputs[0].data[0], outputs[0].data[1], outputs[0].data[2]);

    for (uint32_t i = 0; i < output_count; i++) free(outputs[i].data);
    for (uint32_t i = 0; i < count; i++) stbi_image_free((void *)(uintptr_t)images[i].pixels);
    mgv_engine_destroy(engine);
    mgv_model_close(model);
    return 0;
}
