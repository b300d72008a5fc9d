/* The shortest honest program: one picture in, its embedding out.

       cc -O2 -I. examples/embed.c -o embed -lpthread -lm
       ./embed examples/model examples/pictures/some.png */
#include <stdio.h>
#include <stdlib.h>
#define STB_IMAGE_IMPLEMENTATION
#include <stb/stb_image.h>
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

static void stop_unless(int good, const char *reason) {
    if (good) return;
    fprintf(stderr, "%s\n", reason);
    exit(1);
}

int main(int argc, char **argv) {
    mgv_model *model = NULL;
    mgv_engine *engine = NULL;
    mgv_model_info info;
    mgv_model_desc model_desc = {0};
    mgv_image image = {0};
    mgv_output output = {0};
    mgv_encode_desc encode = {0};
    mgv_error error = {0};
    int width, height;
    stop_unless(argc == 3, "usage: embed MODEL PICTURE");

    model_desc.path = argv[1];
    stop_unless(mgv_model_open(&model, &model_desc, &error) == MGV_OK, error.message);
    stop_unless(mgv_engine_create(&engine, model, NULL, &error) == MGV_OK, error.message);
    mgv_model_get_info(model, &info);
    stop_unless(info.pooled_width > 0, "this model has no pooled embedding");

    image.pixels = stbi_load(argv[2], &width, &height, NULL, 4); /* with alpha: transparent parts become white */
    stop_unless(image.pixels != NULL, "cannot read the picture");
    image.format = MGV_PIXELS_RGBA8;
    image.width = (uint32_t)width;
    image.height = (uint32_t)height;
    output.kind = MGV_OUTPUT_POOLED;
    output.capacity = info.pooled_width;
    output.data = malloc(info.pooled_width * sizeof(float));
    stop_unless(output.data != NULL, "out of memory");
    encode.images = &image;
    encode.image_count = 1;
    encode.outputs = &output;
    encode.output_count = 1;
    stop_unless(mgv_encode_blocking(engine, &encode, &error) == MGV_OK, error.message);
    for (uint32_t i = 0; i < info.pooled_width; i++) printf("%.9g\n", (double)output.data[i]);

    free(output.data);
    stbi_image_free((void *)image.pixels);
    mgv_engine_destroy(engine);
    mgv_model_close(model);
    return 0;
}
