/* Which pictures are most alike? Embeds all of them, compares every two, prints a table and draws a contact sheet:
   each picture in a frame, and to its right the pictures nearest to it, with the cosine of the embeddings.

       most_alike MODEL SHEET.png PICTURE... */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define STB_IMAGE_IMPLEMENTATION
#include <stb/stb_image.h>
#define STB_IMAGE_WRITE_IMPLEMENTATION
#include <stb/stb_image_write.h>
#include <stb/stb_easy_font.h>
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

enum {
    NEAREST = 3, PRINTED = 2,
    ACROSS = 2, /* pictures side by side, each with its nearest */
    CELL = 128, GAP = 10, FRAME = 3, LINE = 13, LINES = 3,
    ROW = CELL + LINES * LINE + 2 * GAP,
    COLUMN = (NEAREST + 1) * (CELL + GAP) + 3 * GAP
};

typedef struct sheet {
    unsigned char *pixels; /* RGB */
    uint32_t width, height;
} sheet;

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

/* Draws a picture as a cell of the sheet, each pixel from the nearest one. */
static void draw(sheet *to, const mgv_image *image, uint32_t left, uint32_t top) {
    for (uint32_t y = 0; y < CELL; y++)
        for (uint32_t x = 0; x < CELL; x++) {
            size_t from = (size_t)(y * image->height / CELL) * image->width + x * image->width / CELL;
            memcpy(to->pixels + ((size_t)(top + y) * to->width + left + x) * 3, (const unsigned char *)image->pixels + from * 3, 3);
        }
}

static void fill(sheet *to, uint32_t left, uint32_t top, uint32_t right, uint32_t bottom, unsigned char grey) {
    for (uint32_t y = top; y < bottom && y < to->height; y++)
        for (uint32_t x = left; x < right && x < to->width; x++) memset(to->pixels + ((size_t)y * to->width + x) * 3, grey, 3);
}

/* One line of text, dark on white. stb_easy_font makes rectangles of it: four corners each, which begin with x and y as floats. */
static void write_line(sheet *to, char *text, uint32_t left, uint32_t top) {
    static char quads[64 * 1024];
    int count = stb_easy_font_print((float)left, (float)top, text, NULL, quads, sizeof quads);
    for (int i = 0; i < count; i++) {
        float first[2], third[2];
        memcpy(first, quads + i * 64, sizeof first);
        memcpy(third, quads + i * 64 + 32, sizeof third);
        fill(to, (uint32_t)first[0], (uint32_t)first[1], (uint32_t)third[0], (uint32_t)third[1], 30);
    }
}

/* How much of the text fits below a cell: all of it, or up to a hyphen or blank if there is one. */
static uint32_t line_length(const char *text, uint32_t length, char line[CELL]) {
    uint32_t end = 0, used = 0;
    while (used < length && used + 1 < CELL) {
        line[used] = text[used] >= ' ' && text[used] <= '~' ? text[used] : '?'; /* the font has ASCII only */
        line[++used] = 0;
        if (stb_easy_font_width(line) > CELL) break;
        if (used == length) return used;
        if (line[used - 1] == '-' || line[used - 1] == ' ') end = used;
    }
    end = end ? end : used - 1;
    line[end] = 0;
    return end;
}

/* Below a cell: a score, if it has one, and the name. */
static void write_caption(sheet *to, const char *score, const char *name, uint32_t length, uint32_t left, uint32_t top) {
    const uint32_t bottom = top + LINES * LINE;
    char line[CELL];
    top += GAP / 2;
    if (*score) {
        snprintf(line, sizeof line, "%s", score);
        write_line(to, line, left, top);
        top += LINE;
    }
    for (; length > 0 && top < bottom; top += LINE) {
        uint32_t used = line_length(name, length, line);
        write_line(to, line, left, top);
        name += used;
        length -= used;
    }
}

/* The file's name alone. */
static const char *base_name(const char *path, uint32_t *length) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    *length = (uint32_t)(dot && dot > name ? (size_t)(dot - name) : strlen(name));
    return name;
}

/* A picture, those that are nearest to it, and what they are called. */
static void draw_row(sheet *to, const mgv_image *images, char **names, uint32_t picture, const uint32_t *nearest, const float *scores) {
    const uint32_t left = GAP + picture % ACROSS * COLUMN, top = GAP + picture / ACROSS * ROW;
    uint32_t length;
    const char *name = base_name(names[picture], &length);
    fill(to, left - FRAME, top - FRAME, left + CELL + FRAME, top + CELL + FRAME, 30);
    draw(to, &images[picture], left, top);
    write_caption(to, "", name, length, left, top + CELL);
    for (uint32_t k = 0; k < NEAREST; k++) {
        uint32_t x = left + GAP + (k + 1) * (CELL + GAP); /* a wider gap between a picture and those found for it */
        char score[16];
        snprintf(score, sizeof score, "%.3f", (double)scores[k]);
        name = base_name(names[nearest[k]], &length);
        draw(to, &images[nearest[k]], x, top);
        write_caption(to, score, name, length, x, top + CELL);
    }
}

/* In a column. */
static void print_name(const char *path) {
    uint32_t length;
    const char *name = base_name(path, &length);
    printf("%-36.*s", (int)length, name);
}

int main(int argc, char **argv) {
    uint32_t count = argc > 3 ? (uint32_t)argc - 3 : 0, width = 0;
    mgv_image *images = malloc((count + 1) * sizeof *images);
    sheet to;
    float *rows;
    to.width = ACROSS * COLUMN;
    to.height = (count + ACROSS - 1) / ACROSS * ROW;
    to.pixels = malloc((size_t)to.width * to.height * 3 + 1);
    stop_unless(count > NEAREST, "usage", "most_alike MODEL SHEET.png PICTURE... (at least four pictures)");
    stop_unless(images && to.pixels, "memory", "there is not enough");

    for (uint32_t i = 0; i < count; i++) load(argv[3 + i], &images[i]);
    rows = embed(argv[1], images, count, &width);
    memset(to.pixels, 255, (size_t)to.width * to.height * 3);
    printf("%-36snearest, with the cosine of the embeddings\n\n", "picture");
    for (uint32_t i = 0; i < count; i++) {
        uint32_t nearest[NEAREST];
        float scores[NEAREST];
        find_nearest(rows, width, count, i, nearest);
        print_name(argv[3 + i]);
        for (uint32_t k = 0; k < NEAREST; k++) {
            scores[k] = similarity(rows, width, i, nearest[k]);
            if (k >= PRINTED) continue;
            printf("%5.3f ", (double)scores[k]);
            print_name(argv[3 + nearest[k]]);
        }
        putchar('\n');
        draw_row(&to, images, argv + 3, i, nearest, scores);
    }
    stop_unless(stbi_write_png(argv[2], (int)to.width, (int)to.height, 3, to.pixels, (int)to.width * 3), argv[2],
                "cannot write the sheet");
    printf("\n%s shows the same: each picture, and to its right the ones nearest to it.\n", argv[2]);

    for (uint32_t i = 0; i < count; i++) stbi_image_free((void *)images[i].pixels);
    free(images);
    free(to.pixels);
    free(rows);
    return 0;
}
