/* The table of decoders, and what they share: reasons, bytes, turning. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tools/decode.h"

/* ---- reasons and bytes ---- */

int decode_fail(decode_reason *why, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why->text, sizeof why->text, format, arguments);
    va_end(arguments);
    why->no_memory = 0;
    return 0;
}

int decode_no_memory(decode_reason *why) {
    decode_fail(why, "there is not enough memory to decode it");
    why->no_memory = 1;
    return 0;
}

int decode_cut_short(decode_reason *why) { return decode_fail(why, "the file ends before its pixels do"); }

unsigned char *decode_reserve(decode_pixels *pixels, uint32_t width, uint32_t height, uint32_t channels, decode_reason *why) {
    memset(pixels, 0, sizeof *pixels);
    pixels->data = calloc((size_t)width * channels, height);
    if (!pixels->data) {
        decode_no_memory(why);
        return NULL;
    }
    pixels->width = width;
    pixels->height = height;
    pixels->channels = channels;
    return pixels->data;
}

int decode_starts(decode_bytes file, size_t offset, const char *bytes, size_t length) {
    return file.length >= offset + length && memcmp(file.data + offset, bytes, length) == 0;
}

decode_bytes decode_part(decode_bytes file, size_t offset, size_t length) {
    const decode_bytes nothing = {NULL, 0};
    if (offset > file.length || length > file.length - offset) return nothing;
    file.data += offset;
    file.length = length;
    return file;
}

uint32_t decode_big16(const unsigned char *at) { return (uint32_t)at[0] << 8 | at[1]; }
uint32_t decode_big32(const unsigned char *at) { return decode_big16(at) << 16 | decode_big16(at + 2); }
uint32_t decode_little16(const unsigned char *at) { return (uint32_t)at[1] << 8 | at[0]; }
uint32_t decode_little32(const unsigned char *at) { return decode_little16(at + 2) << 16 | decode_little16(at); }

/* ---- the table ---- */

/* Pictures that nobody here reads are named all the same, so that nobody takes them for broken. */
static int knows_jpeg_xl(decode_bytes file) {
    return decode_starts(file, 0, "\xFF\x0A", 2) || decode_starts(file, 0, "\0\0\0\x0CJXL \x0D\x0A\x87\x0A", 12);
}
static int knows_jpeg_2000(decode_bytes file) {
    return decode_starts(file, 0, "\xFF\x4F\xFF\x51", 4) || decode_starts(file, 0, "\0\0\0\x0CjP  \x0D\x0A\x87\x0A", 12);
}
static int knows_icon(decode_bytes file) { return decode_starts(file, 0, "\0\0\1\0", 4) && file.length > 21 && file.data[9] == 0; }
static int knows_dds(decode_bytes file) { return decode_starts(file, 0, "DDS |\0\0\0", 8); }

static const decoder jpeg_xl = {"JPEG XL", NULL, NULL, knows_jpeg_xl, NULL, NULL, 0};
static const decoder jpeg_2000 = {"JPEG 2000", NULL, NULL, knows_jpeg_2000, NULL, NULL, 0};
static const decoder icon = {"Windows icon", NULL, NULL, knows_icon, NULL, NULL, 0};
static const decoder dds = {"DDS", NULL, NULL, knows_dds, NULL, NULL, 0};

/* Targa, which has no signature, comes last. */
static const decoder *const table[] = {&decode_jpeg, &decode_png,  &decode_webp, &decode_heif, &decode_avif, &decode_tiff, &decode_gif, &decode_bmp,
                                       &decode_psd,  &decode_pnm, &jpeg_xl,     &jpeg_2000,  &icon,        &dds,         &decode_targa};
enum { TABLE_ROWS = sizeof table / sizeof table[0] };

const decoder *decode_table(size_t i) { return i < TABLE_ROWS ? table[i] : NULL; }

const decoder *decode_find(decode_bytes file, int targa) {
    for (size_t i = 0; i < TABLE_ROWS; i++)
        if ((targa || table[i] != &decode_targa) && table[i]->knows(file)) return table[i];
    return NULL;
}

static int fail_missing(const decoder *by, decode_reason *why) {
    if (!by->package) return decode_fail(why, "a %s picture, which this program does not read", by->name);
    return decode_fail(why, "a %s picture: this program was built without its library (Debian's package %s)", by->name, by->package);
}

int decode_look(const decoder *by, decode_bytes file, decode_info *info, decode_reason *why) {
    memset(info, 0, sizeof *info);
    memset(why, 0, sizeof *why);
    if (!by->library) return fail_missing(by, why);
    if (!by->info(file, info, why)) return 0;
    if (info->width == 0 || info->height == 0)
        return decode_fail(why, "the picture has %u x %u pixels", (unsigned)info->width, (unsigned)info->height);
    if ((uint64_t)info->width * info->height > DECODE_MAX_PIXELS)
        return decode_fail(why, "the picture has %u x %u pixels; the limit is %d in all", (unsigned)info->width, (unsigned)info->height,
                           DECODE_MAX_PIXELS);
    if (info->orientation < 1 || info->orientation > 8) info->orientation = 1;
    if (info->orientation > 1) info->memory += (uint64_t)info->width * info->height * 4; /* the turned picture beside the decoded one */
    if (info->orientation > 4) {
        uint32_t width = info->width;
        info->width = info->height;
        info->height = width;
    }
    return 1;
}

void decode_shrink(const decoder *by, decode_info *info, uint32_t width, uint32_t height) {
    for (uint32_t eighths = 1; by->shrinks && eighths < 8; eighths *= 2) {
        const uint32_t across = (uint32_t)(((uint64_t)info->width * eighths + 7) / 8), down = (uint32_t)(((uint64_t)info->height * eighths + 7) / 8);
        if (across < width || down < height) continue;
        info->eighths = eighths;
        info->width = across;
        info->height = down;
        return;
    }
}

/* ---- turning ---- */

/* What makes a picture upright: its rows become columns, then it is mirrored from left to right, from top to bottom. */
static const struct {
    int transpose, mirror, flip;
} turns[9] = {{0, 0, 0}, {0, 0, 0}, {0, 1, 0}, {0, 1, 1}, {0, 0, 1}, {1, 0, 0}, {1, 1, 0}, {1, 1, 1}, {1, 0, 1}};

/* In blocks, so that neither the rows that are read nor those that are written leave the cache. */
static void turn_pixels(const decode_pixels *from, decode_pixels *to, uint32_t orientation) {
    enum { BLOCK = 32 };
    const size_t channels = from->channels;
    const ptrdiff_t pixel = (ptrdiff_t)channels, row = (ptrdiff_t)((size_t)to->width * channels);
    ptrdiff_t right = turns[orientation].mirror ? -pixel : pixel, down = turns[orientation].flip ? -row : row;
    unsigned char *start = to->data;
    if (turns[orientation].mirror) start += row - pixel;
    if (turns[orientation].flip) start += row * (ptrdiff_t)(to->height - 1);
    if (turns[orientation].transpose) { /* a step to the right in the source is one downwards in the target */
        ptrdiff_t swap = right;
        right = down;
        down = swap;
    }
    for (uint32_t top = 0; top < from->height; top += BLOCK) {
        uint32_t bottom = from->height - top < BLOCK ? from->height : top + BLOCK;
        for (uint32_t left = 0; left < from->width; left += BLOCK) {
            uint32_t count = from->width - left < BLOCK ? from->width - left : BLOCK;
            for (uint32_t y = top; y < bottom; y++) {
                const unsigned char *source = from->data + ((size_t)y * from->width + left) * channels;
                unsigned char *target = start + (ptrdiff_t)left * right + (ptrdiff_t)y * down;
                for (uint32_t x = 0; x < count; x++, target += right)
                    for (size_t k = 0; k < channels; k++) target[k] = *source++;
            }
        }
    }
}

static int make_upright(decode_pixels *pixels, uint32_t orientation, decode_reason *why) {
    const int transpose = turns[orientation].transpose;
    decode_pixels turned;
    if (orientation == 1) return 1;
    if (!decode_reserve(&turned, transpose ? pixels->height : pixels->width, transpose ? pixels->width : pixels->height, pixels->channels, why))
        return 0;
    turn_pixels(pixels, &turned, orientation);
    free(pixels->data);
    *pixels = turned;
    return 1;
}

int decode_load(const decoder *by, decode_bytes file, const decode_info *info, decode_pixels *pixels, decode_reason *why) {
    decode_info stored = *info;
    memset(pixels, 0, sizeof *pixels);
    memset(why, 0, sizeof *why);
    if (info->orientation > 4) {
        stored.width = info->height;
        stored.height = info->width;
    }
    if (by->pixels(file, &stored, pixels, why) && make_upright(pixels, info->orientation, why)) return 1;
    free(pixels->data);
    memset(pixels, 0, sizeof *pixels);
    return 0;
}
