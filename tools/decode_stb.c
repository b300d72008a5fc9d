/* BMP with stb_image, and what it does not look at: whether the file holds as many bytes as its pixels take, and whether a palette has the
   colours that pixels ask for. */
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
    int from_top;                    /* the first row is the top one */
    size_t offset;                   /* of the pixels */
    size_t palette, colors, entry;   /* where it begins, how many, bytes of each */
    uint32_t masks[4];               /* red, green, blue, alpha, with compression 3 */
} bmp;

static int bmp_head(decode_bytes file, bmp *b, decode_reason *why) {
    uint32_t head, colors = 0;
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
        b->from_top = b->height > INT_MAX;
        if (b->from_top) b->height = 0u - b->height;
        b->bits = decode_little16(file.data + 28);
        b->compression = decode_little32(file.data + 30);
        colors = decode_little32(file.data + 46);
    }
    if (b->compression != 0 && (b->compression != 3 || (b->bits != 16 && b->bits != 32))) /* stb_image takes some of these for pixels */
        return decode_fail(why, "a BMP of compression %u with %u bits a pixel, which is not read", (unsigned)b->compression, (unsigned)b->bits);
    if (b->compression == 3 && file.length >= 70) /* they lie there behind or in every header */
        for (int i = 0; i < (head >= 56 ? 4 : 3); i++) b->masks[i] = decode_little32(file.data + 54 + 4 * i);
    b->palette = 14 + (size_t)head;
    if (b->offset < b->palette) return decode_fail(why, "a BMP whose pixels begin within its header");
    if (b->bits != 1 && b->bits != 4 && b->bits != 8) return 1;
    b->colors = (b->offset - b->palette) / b->entry;
    if (b->colors == 0) return decode_fail(why, "a BMP without its palette");
    if (colors != 0 && colors < b->colors) b->colors = colors;
    if (b->colors > (size_t)1 << b->bits) b->colors = (size_t)1 << b->bits;
    return 1;
}

static int bmp_info(decode_bytes file, decode_info *info, decode_reason *why) {
    uint64_t row;
    bmp b;
    if (!bmp_head(file, &b, why)) return 0;
    row = ((uint64_t)b.width * b.bits + 7) / 8;
    if (b.height) { /* the last row may do without what fills it up */
        uint64_t needed = (row + 3) / 4 * 4 * (b.height - 1) + row;
        if (b.offset > file.length || file.length - b.offset < needed) return decode_cut_short(why);
    }
    info->width = b.width;
    info->height = b.height;
    info->memory = (uint64_t)b.width * b.height * 4 + file.length + 2048; /* the pixels, the file again */
    return 1;
}

static void put_little32(unsigned char *to, uint32_t value) {
    for (int i = 0; i < 4; i++) to[i] = (unsigned char)(value >> 8 * i);
}

/* The file with a header that stb_image reads without fault, pixels right behind it, and as many colours as an index can ask for; those
   that it did not have are black. stb_image takes too few of them behind other headers, and what is missing from memory that was never set;
   it refuses gaps, and the masks of Photoshop's header. NULL without the memory. */
static unsigned char *with_plain_header(decode_bytes file, const bmp *b, size_t *length) {
    enum { FILE_HEAD = 14, ENTRY = 4 };
    const size_t head = b->colors ? 40 : 108, colors = b->colors ? (size_t)1 << b->bits : 0;
    const size_t offset = FILE_HEAD + head + ENTRY * colors, rows = file.length - b->offset;
    unsigned char *copy = calloc(1, offset + rows);
    if (!copy) return NULL;
    copy[0] = 'B';
    copy[1] = 'M';
    put_little32(copy + 10, (uint32_t)offset);
    put_little32(copy + 14, (uint32_t)head);
    put_little32(copy + 18, b->width);
    put_little32(copy + 22, b->from_top ? 0u - b->height : b->height);
    copy[26] = 1; /* plane */
    copy[28] = (unsigned char)b->bits;
    copy[30] = (unsigned char)b->compression;
    for (size_t i = 0; i < 4 && colors == 0; i++) put_little32(copy + 54 + 4 * i, b->masks[i]);
    for (size_t i = 0; i < b->colors; i++) memcpy(copy + FILE_HEAD + head + ENTRY * i, file.data + b->palette + b->entry * i, 3);
    memcpy(copy + offset, file.data + b->offset, rows);
    *length = offset + rows;
    return copy;
}

static int bmp_pixels(decode_bytes file, const decode_info *known, decode_pixels *out, decode_reason *why) {
    unsigned char *copy;
    bmp b;
    int good;
    (void)known;
    if (!bmp_head(file, &b, why)) return 0;
    if (b.offset > file.length) return decode_cut_short(why);
    copy = with_plain_header(file, &b, &file.length);
    if (!copy) return decode_no_memory(why);
    file.data = copy;
    good = stb_load(file, out, why);
    free(copy);
    if (good && b.compression == 0 && out->channels == 4) /* without masks the fourth byte means nothing */
        for (size_t i = 0; i < (size_t)out->width * out->height; i++) out->data[4 * i + 3] = 255;
    return good;
}

static int bmp_knows(decode_bytes file) {
    return decode_starts(file, 0, "BM", 2) && file.length > 18 && file.data[15] == 0 && file.data[16] == 0 && file.data[17] == 0;
}

const decoder decode_bmp = {"BMP", STB_LIBRARY, NULL, bmp_knows, bmp_info, bmp_pixels, 0};
