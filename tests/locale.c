/* Opens the model named on the command line under the locale of the environment and prints an embedding's bits.
   test_header.sh compares what it prints under a locale with a decimal comma and under "C". */
#include <locale.h>
#include <stdio.h>
#include <string.h>
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

int main(int argc, char **argv) {
    static unsigned char pixels[20 * 30 * 3];
    static float embedding[4096];
    mgv_model *model = NULL;
    mgv_engine *engine = NULL;
    mgv_model_desc model_desc = {0};
    mgv_image image = {0};
    mgv_output output = {0};
    mgv_encode_desc encode = {0};
    mgv_error error = {0};
    char half[8];
    if (argc != 2 || !setlocale(LC_ALL, "")) return 2;
    snprintf(half, sizeof half, "%.1f", 0.5);
    fprintf(stderr, "a half is %s\n", half);
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (unsigned char)(i * 37);
    model_desc.path = argv[1];
    image.pixels = pixels;
    image.width = 20;
    image.height = 30;
    output.data = embedding;
    output.capacity = sizeof embedding / sizeof embedding[0];
    encode.images = &image;
    encode.image_count = 1;
    encode.outputs = &output;
    encode.output_count = 1;
    if (mgv_model_open(&model, &model_desc, &error) != MGV_OK || mgv_engine_create(&engine, model, NULL, &error) != MGV_OK ||
        mgv_encode_blocking(engine, &encode, &error) != MGV_OK) {
        printf("%s\n", error.message);
        return 1;
    }
    for (size_t i = 0; i < 48; i++) {
        uint32_t bits;
        memcpy(&bits, &embedding[i], sizeof bits);
        printf("%08x\n", (unsigned)bits);
    }
    mgv_engine_destroy(engine);
    mgv_model_close(model);
    return 0;
}
