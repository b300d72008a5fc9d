/* Which pictures are most alike? Embeds all of them, compares every two, prints a table and draws a contact sheet:
   each picture, and to its right the pictures nearest to it.

       most_alike MODEL SHEET.png PICTURE... */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define STB_IMAGE_IMPLEMENTATION
#include <stb/stb_image.h>
#define STB_IMAGE_WRITE_IMPLEMENTATION
#include <stb/stb_image_write.h>
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

enum { NEAREST = 3, PRINTED = 2, CELL = 96, GAP = 8, ACROSS = 2 /* pictures side by side, each with its nearest */ };

static void stop_unless(int good, const char *what, const char *reason) {
    if (good) return;
    fprintf(stderr, "most_alike: %s: %s\n", what, reason);
    exit(1);
}

static void load(const char *name, mgv_image *image) {
    int width, height;
    memset(image, 0, sizeof *image);
    image->pixels = stbi_load(name, &width, &height, NULL, 3);
    stop_unless(image->pixels != NULL, name, "cannot read the picture");
    image->width = (uint32_t)width;
    image->height = (uint32_t)height;
}

/* Embeddings of length 1, one row a picture; the caller frees them. */
static float *embed(const char *path, const mgv_image *images, uint32_t count, uint32_t *width) {
    mgv_model *model = NULL;
    mgv_engine *engine = NULL;
    mgv_model_desc model_desc = {0};
    mgv_engine_desc engine_desc = {0};
    mgv_model_info info;
    mgv_output output = {0};
    mgv_encode_desc encode = {0};
    mgv_error error = {0};

    model_desc.path = path;
    stop_unless(mgv_model_open(&model, &model_desc, &error) == MGV_OK, path, error.message);
    mgv_model_get_info(model, &info);
    stop_unless(info.pooled_width > 0, path, "this model has no pooled embedding");
    engine_desc.max_images = count;
    stop_unless(mgv_engine_create(&engine, model, &engine_desc, &error) == MGV_OK, path, error.message);

    output.kind = MGV_OUTPUT_POOLED;
    output.normalize = 1;
    output.capacity = (uint64_t)count * info.pooled_width;
    output.data = malloc((size_t)output.capacity * sizeof(float));
    stop_unless(output.data != NULL, path, "out of memory");
    encode.images = images;
    encode.image_count = count;
    encode.outputs = &output;
    encode.output_count = 1;
    stop_unless(mgv_encode_blocking(engine, &encode, &error) == MGV_OK, path, error.message);

    mgv_engine_destroy(engine);
    mgv_model_close(model);
    *width = info.pooled_width;
    return output.data;
}

/* The cosine of two rows, which have length 1. */
static float similarity(const float *rows, uint32_t width, uint32_t a, uint32_t b) {
    float sum = 0;
    for (uint32_t i = 0; i < width; i++) sum += rows[a * width + i] * rows[b * width + i];
    return sum;
}

/* The NEAREST other pictures, best first. */
static void find_nearest(const float *rows, uint32_t width, uint32_t count, uint32_t picture, uint32_t nearest[NEAREST]) {
    uint32_t found = 0;
    for (uint32_t other = 0; other < count; other++) {
        float score = similarity(rows, width, picture, other);
        uint32_t place;
        if (other == picture) continue;
        if (found < NEAREST) found++;
        else if (similarity(rows, width, picture, nearest[NEAREST - 1]) >= score) continue;
        for (place = found - 1; place > 0 && similarity(rows, width, picture, nearest[place - 1]) < score; place--)
            nearest[place] = nearest[place - 1];
        nearest[place] = other;
    }
}

/* Draws a picture into a cell of the sheet, each pixel from the nearest one. */
static void draw(const mgv_image *image, unsigned char *cell, size_t stride) {
    for (uint32_t y = 0; y < CELL; y++)
        for (uint32_t x = 0; x < CELL; x++) {
            size_t from = (size_t)(y * image->height / CELL) * image->width + x * image->width / CELL;
            memcpy(cell + y * stride + x * 3, (const unsigned char *)image->pixels + from * 3, 3);
        }
}

/* The file's name alone, in a column. */
static void print_name(const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    printf("%-36.*s", dot ? (int)(dot - name) : (int)strlen(name), name);
}

int main(int argc, char **argv) {
    uint32_t count = argc > 3 ? (uint32_t)argc - 3 : 0, width = 0;
    uint32_t sheet_width = ACROSS * ((NEAREST + 1) * (CELL + GAP) + 3 * GAP),
             sheet_height = (count + ACROSS - 1) / ACROSS * (CELL + GAP) + GAP;
    mgv_image *images = malloc((count + 1) * sizeof *images);
    unsigned char *sheet = malloc((size_t)sheet_width * sheet_height * 3);
    float *rows;
    stop_unless(count > NEAREST, "usage", "most_alike MODEL SHEET.png PICTURE... (at least four pictures)");
    stop_unless(images && sheet, "memory", "there is not enough");

    for (uint32_t i = 0; i < count; i++) load(argv[3 + i], &images[i]);
    rows = embed(argv[1], images, count, &width);
    memset(sheet, 255, (size_t)sheet_width * sheet_height * 3);
    printf("%-36snearest, with the cosine of the embeddings\n\n", "picture");
    for (uint32_t i = 0; i < count; i++) {
        uint32_t nearest[NEAREST];
        size_t stride = (size_t)sheet_width * 3;
        unsigned char *cell = sheet + (GAP + i / ACROSS * (CELL + GAP)) * stride + (GAP + i % ACROSS * (sheet_width / ACROSS)) * 3;
        find_nearest(rows, width, count, i, nearest);
        print_name(argv[3 + i]);
        draw(&images[i], cell, stride);
        cell += GAP * 3; /* a wider gap between a picture and those found for it */
        for (uint32_t k = 0; k < NEAREST; k++) {
            cell += (CELL + GAP) * 3;
            draw(&images[nearest[k]], cell, stride);
            if (k >= PRINTED) continue;
            printf("%5.3f ", (double)similarity(rows, width, i, nearest[k]));
            print_name(argv[3 + nearest[k]]);
        }
        putchar('\n');
    }
    stop_unless(stbi_write_png(argv[2], (int)sheet_width, (int)sheet_height, 3, sheet, (int)sheet_width * 3), argv[2],
                "cannot write the sheet");
    printf("\n%s shows the same: each picture, and to its right the ones nearest to it.\n", argv[2]);

    for (uint32_t i = 0; i < count; i++) stbi_image_free((void *)images[i].pixels);
    free(images);
    free(sheet);
    free(rows);
    return 0;
}
