/* BMP, Targa and PSD with stb_image, and what it does not look at: whether the file holds as many bytes as its pixels take, and whether a
   palette has the colours that pixels ask for. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <stb/stb_image.h>
#include "tools/stb.h"

/* ---- the file as stb_image reads it ---- */

typedef struct reading {
    decode_bytes file;
    size_t at;
    int past_end; /* a byte behind the end was asked for: stb_image takes it for 0 and goes on */
} reading;

static int read_bytes(void *user, char *to, int size) {
    reading *r = user;
    size_t left = r->file.length - r->at, count = (size_t)size < left ? (size_t)size : left;
    if (size > 128 ? count < (size_t)size : count == 0) r->past_end = 1; /* up to 128 it reads ahead */
    memcpy(to, r->file.data + r->at, count);
    r->at += count;
    return (int)count;
}

static void skip_bytes(void *user, int count) {
    reading *r = user;
    size_t left = r->file.length - r->at;
    r->at += (size_t)count < left ? (size_t)count : left;
}

static int at_end(void *user) {
    const reading *r = user;
    return r->at == r->file.length;
}

int stb_load(decode_bytes file, decode_pixels *pixels, decode_reason *why) {
    static const stbi_io_callbacks calls = {read_bytes, skip_bytes, at_end};
    reading r;
    int width, height, channels;
    memset(pixels, 0, sizeof *pixels);
    memset(&r, 0, sizeof r);
    r.file = file;
    pixels->data = stbi_load_from_callbacks(&calls, &r, &width, &height, &channels, 0);
    if (r.past_end) return decode_cut_short(why);
    if (!pixels->data) {
        const char *reason = stbi_failure_reason();
        if (reason && strcmp(reason, "Out of memory") == 0) return decode_no_memory(why);
        return decode_fail(why, "%s", reason ? reason : "no reason given");
    }
    pixels->width = (uint32_t)width;
    pixels->height = (uint32_t)height;
    pixels->channels = (uint32_t)channels;
    return 1;
}

/* ---- BMP ---- */

typedef struct bmp {
    uint32_t width, height, bits, compression;
    size_t offset;                   /* of the pixels */
    size_t palette, colors, entry;   /* where it begins, how many, bytes of each */
} bmp;

static int bmp_head(decode_bytes file, bmp *b, decode_reason *why) {
    uint32_t head;
    memset(b, 0, sizeof *b);
    if (file.length < 26) return decode_cut_short(why);
    head = decode_little32(file.data + 14);
    b->offset = decode_little32(file.data + 10);
    b->entry = head == 12 ? 3 : 4;
    if (head == 12) {
        b->width = decode_little16(file.data + 18);
        b->height = decode_little16(file.data + 20);
        b->bits = decode_little16(file.data + 24);
    } else {
        if (head < 40 || file.length < 54) return decode_fail(why, "a BMP whose header has %u bytes", (unsigned)head);
        b->width = decode_little32(file.data + 18);
        b->height = decode_little32(file.data + 22);
        if (b->height > INT_MAX) b->height = 0u - b->height; /* the first row is the top one */
        b->bits = decode_little16(file.data + 28);
        b->compression = decode_little32(file.data + 30);
    }
    b->palette = 14 + (size_t)head;
    if (b->bits < 16 && b->offset >= b->palette) b->colors = (b->offset - b->palette) / b->entry;
    return 1;
}

static int bmp_info(decode_bytes file, decode_info *info, decode_reason *why) {
    uint64_t row;
    bmp b;
    if (!bmp_head(file, &b, why)) return 0;
    row = ((uint64_t)b.width * b.bits + 7) / 8;
    if ((b.compression == 0 || b.compression == 3) && b.height) { /* the last row may do without what fills it up */
        uint64_t needed = (row + 3) / 4 * 4 * (b.height - 1) + row;
        if (b.offset > file.length || file.length - b.offset < needed) return decode_cut_short(why);
    }
    info->width = b.width;
    info->height = b.height;
    info->memory = (uint64_t)b.width * b.height * 4 + file.length + 2048;
    return 1;
}

/* The file with as many colours as an index can ask for; those that it did not have are black. NULL without the memory. */
static unsigned char *with_whole_palette(decode_bytes file, const bmp *b, size_t *length) {
    const size_t colors = (size_t)1 << b->bits, shift = (colors - b->colors) * b->entry, offset = b->offset + shift;
    unsigned char *copy = calloc(1, file.length + shift);
    if (!copy) return NULL;
    memcpy(copy, file.data, b->palette + b->colors * b->entry);
    memcpy(copy + offset, file.data + b->offset, file.length - b->offset);
    for (int i = 0; i < 4; i++) copy[10 + i] = (unsigned char)(offset >> 8 * i);
    *length = file.length + shift;
    return copy;
}

static int bmp_pixels(decode_bytes file, const decode_info *known, decode_pixels *out, decode_reason *why) {
    unsigned char *copy = NULL;
    bmp b;
    int good;
    (void)known;
    if (!bmp_head(file, &b, why)) return 0;
    if (b.bits <= 8 && b.colors > 0 && b.colors < (size_t)1 << b.bits && b.offset <= file.length) {
        copy = with_whole_palette(file, &b, &file.length);
        if (!copy) return decode_no_memory(why);
        file.data = copy;
    }
    good = stb_load(file, out, why);
    free(copy);
    if (good && b.compression == 0 && out->channels == 4) /* without masks the fourth byte means nothing */
        for (size_t i = 0; i < (size_t)out->width * out->height; i++) out->data[4 * i + 3] = 255;
    return good;
}

static int bmp_knows(decode_bytes file) { return decode_starts(file, 0, "BM", 2) && file.length > 18 && file.data[15] == 0 && file.data[16] == 0 && file.data[17] == 0; }

const decoder decode_bmp = {"BMP", STB_LIBRARY, NULL, bmp_knows, bmp_info, bmp_pixels};

/* ---- Targa ---- */

enum { TARGA_HEAD = 18, TARGA_PACKED = 8, TARGA_MOST = 128 /* pixels of a packet */ };

/* There is no signature: what stb_image would try. */
static int targa_knows(decode_bytes file) {
    const unsigned char *head = file.data;
    uint32_t kind, bits;
    if (file.length < TARGA_HEAD || head[1] > 1) return 0;
    kind = head[2] & ~(uint32_t)TARGA_PACKED;
    bits = head[16];
    if (head[1] ? kind != 1 || (bits != 8 && bits != 16) : kind != 2 && kind != 3) return 0;
    if (head[1] && head[7] != 8 && head[7] != 15 && head[7] != 16 && head[7] != 24 && head[7] != 32) return 0;
    return (bits == 8 || bits == 15 || bits == 16 || bits == 24 || bits == 32) && decode_little16(head + 12) && decode_little16(head + 14);
}

static int targa_info(decode_bytes file, decode_info *info, decode_reason *why) {
    const unsigned char *head = file.data;
    uint64_t pixels, bytes = (head[16] + 7u) / 8, needed;
    info->width = decode_little16(head + 12);
    info->height = decode_little16(head + 14);
    pixels = (uint64_t)info->width * info->height;
    needed = head[2] & TARGA_PACKED ? (pixels + TARGA_MOST - 1) / TARGA_MOST * (1 + bytes) : pixels * bytes;
    if (file.length < TARGA_HEAD + (uint64_t)head[0] + needed) return decode_cut_short(why);
    info->memory = pixels * 4;
    return 1;
}

static int targa_pixels(decode_bytes file, const decode_info *known, decode_pixels *out, decode_reason *why) {
    (void)known;
    return stb_load(file, out, why);
}

const decoder decode_targa = {"Targa", STB_LIBRARY, NULL, targa_knows, targa_info, targa_pixels};

/* ---- PSD ---- */

static int psd_knows(decode_bytes file) { return decode_starts(file, 0, "8BPS", 4); }

static int psd_info(decode_bytes file, decode_info *info, decode_reason *why) {
    uint64_t channels, bytes, needed;
    size_t at = 26;
    if (file.length < at) return decode_cut_short(why);
    channels = decode_big16(file.data + 12);
    info->height = decode_big32(file.data + 14);
    info->width = decode_big32(file.data + 18);
    bytes = decode_big16(file.data + 22) / 8;
    for (int section = 0; section < 3; section++) { /* colours, resources, layers */
        decode_bytes length = decode_part(file, at, 4);
        if (!length.data || decode_big32(length.data) > file.length - at - 4) return decode_cut_short(why);
        at += 4 + (size_t)decode_big32(length.data);
    }
    if (file.length - at < 2) return decode_cut_short(why);
    needed = (uint64_t)info->height * channels; /* of rows and channels: all their bytes, or how many there are of each and one packet of 128 */
    if (info->width && needed > UINT64_MAX / 4 / info->width) return decode_cut_short(why);
    needed *= decode_big16(file.data + at) == 0 ? info->width * bytes : 2 + ((uint64_t)info->width + 127) / 128 * 2;
    if (file.length - at - 2 < needed) return decode_cut_short(why);
    info->memory = (uint64_t)info->width * info->height * 8;
    return 1;
}

static int psd_pixels(decode_bytes file, const decode_info *known, decode_pixels *out, decode_reason *why) {
    (void)known;
    return stb_load(file, out, why);
}

const decoder decode_psd = {"PSD", STB_LIBRARY, NULL, psd_knows, psd_info, psd_pixels};
