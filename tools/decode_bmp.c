/* BMP, as Pillow shows it (BmpImagePlugin.py; Microsoft's and OS/2's headers). Our own, since stb_image takes missing colours from memory
   that was never set, refuses gaps, packed pixels and some masks, and rounds 5 and 6 bits otherwise. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "tools/decode.h"

enum { FILE_HEAD = 14, PLAIN = 0, PACKED_8 = 1, PACKED_4 = 2, MASKS = 3 };

typedef struct mask {
    uint32_t shift, most; /* most: 0 without that channel */
} mask;

typedef struct bmp {
    uint32_t width, height, bits, compression, channels;
    int from_top;                    /* the first row is the top one */
    size_t offset;                   /* of the pixels */
    size_t palette, colors, entry;   /* where it begins, how many, bytes of each */
    mask masks[4];                   /* red, green, blue, alpha */
} bmp;

static int read_sizes(decode_bytes file, bmp *b, decode_reason *why) {
    const unsigned char *head = file.data;
    uint32_t length;
    if (file.length < 26) return decode_cut_short(why);
    length = decode_little32(head + 14);
    b->offset = decode_little32(head + 10);
    b->entry = length == 12 ? 3 : 4;
    b->palette = FILE_HEAD + (size_t)length;
    if (length == 12) {
        b->width = decode_little16(head + 18);
        b->height = decode_little16(head + 20);
        b->bits = decode_little16(head + 24);
    } else {
        if (length < 40 || file.length < 54) return decode_fail(why, "a BMP whose header has %u bytes", (unsigned)length);
        b->width = decode_little32(head + 18);
        b->height = decode_little32(head + 22);
        b->from_top = b->height > INT_MAX;
        if (b->from_top) b->height = 0u - b->height;
        b->bits = decode_little16(head + 28);
        b->compression = decode_little32(head + 30);
        b->colors = decode_little32(head + 46);
    }
    if (b->offset > file.length) return decode_cut_short(why);
    if (b->offset < b->palette) return decode_fail(why, "a BMP whose pixels begin within its header");
    return 1;
}

static int read_colors(bmp *b, decode_reason *why) {
    size_t room = (b->offset - b->palette) / b->entry;
    if (room > (size_t)1 << b->bits) room = (size_t)1 << b->bits;
    if (room == 0) return decode_fail(why, "a BMP without its palette");
    if (b->colors == 0 || b->colors > room) b->colors = room;
    b->channels = 3;
    return 1;
}

/* Those of the header, or behind one of 40 bytes, with compression 3; all zero is Pillow's way to say blue, green, red, alpha. */
static int read_masks(decode_bytes file, bmp *b, decode_reason *why) {
    static const uint32_t of_16[4] = {0x7C00, 0x3E0, 0x1F, 0}, of_32[4] = {0xFF0000, 0xFF00, 0xFF, 0};
    static const uint32_t of_none[4] = {0xFF0000, 0xFF00, 0xFF, 0xFF000000u};
    uint32_t masks[4] = {0};
    if (b->compression != MASKS) {
        memcpy(masks, b->bits == 16 ? of_16 : of_32, sizeof masks);
    } else {
        const int count = b->palette >= FILE_HEAD + 56 ? 4 : 3;
        if (file.length < 54 + 4 * (size_t)count) return decode_cut_short(why);
        for (int k = 0; k < count; k++) masks[k] = decode_little32(file.data + 54 + 4 * k);
        if (b->bits == 32 && !(masks[0] | masks[1] | masks[2] | masks[3])) memcpy(masks, of_none, sizeof masks);
    }
    for (int k = 0; k < 4; k++) {
        mask *m = &b->masks[k];
        for (m->most = masks[k]; m->most && m->most % 2 == 0; m->most /= 2) m->shift++;
        if ((m->most & (m->most + 1)) || (k < 3 && m->most == 0)) return decode_fail(why, "a BMP whose masks make no colours");
    }
    b->channels = b->masks[3].most ? 4 : 3;
    return 1;
}

static int read_head(decode_bytes file, bmp *b, decode_reason *why) {
    memset(b, 0, sizeof *b);
    if (!read_sizes(file, b, why)) return 0;
    if (b->bits != 1 && b->bits != 4 && b->bits != 8 && b->bits != 16 && b->bits != 24 && b->bits != 32)
        return decode_fail(why, "a BMP of %u bits a pixel", (unsigned)b->bits);
    if (b->compression != PLAIN && !(b->compression == PACKED_8 && b->bits == 8) && !(b->compression == PACKED_4 && b->bits == 4) &&
        !(b->compression == MASKS && b->bits >= 16))
        return decode_fail(why, "a BMP of compression %u with %u bits a pixel, which is not read", (unsigned)b->compression,
                           (unsigned)b->bits);
    return b->bits <= 8 ? read_colors(b, why) : read_masks(file, b, why);
}

static int is_packed(const bmp *b) { return b->compression == PACKED_8 || b->compression == PACKED_4; }
static uint64_t row_bytes(const bmp *b) { return ((uint64_t)b->width * b->bits + 7) / 8; }

static int info(decode_bytes file, decode_info *out, decode_reason *why) {
    uint64_t count, needed = 0;
    bmp b;
    if (!read_head(file, &b, why)) return 0;
    count = (uint64_t)b.width * b.height;
    if (!is_packed(&b) && b.height) /* the last row may do without what fills it up */
        needed = (row_bytes(&b) + 3) / 4 * 4 * (b.height - 1) + row_bytes(&b);
    if (file.length - b.offset < needed) return decode_cut_short(why);
    out->width = b.width;
    out->height = b.height;
    out->memory = count * b.channels + (is_packed(&b) ? count : row_bytes(&b));
    return 1;
}

/* ---- pixels ---- */

static void put_colors(const bmp *b, decode_bytes file, const unsigned char *row, uint32_t bits, unsigned char *to) {
    for (uint32_t x = 0; x < b->width; x++, to += 3) {
        const size_t at = (size_t)x * bits;
        const unsigned index = row[at / 8] >> (8 - bits - at % 8) & ((1u << bits) - 1);
        if (index >= b->colors) continue; /* black */
        for (int k = 0; k < 3; k++) to[k] = file.data[b->palette + index * b->entry + (size_t)(2 - k)];
    }
}

static void put_masked(const bmp *b, const unsigned char *row, unsigned char *to) {
    const unsigned bytes = b->bits / 8;
    for (uint32_t x = 0; x < b->width; x++, row += bytes) {
        uint32_t pixel = 0;
        for (unsigned i = 0; i < bytes; i++) pixel |= (uint32_t)row[i] << 8 * i;
        for (unsigned k = 0; k < b->channels; k++) {
            const mask m = b->masks[k];
            const uint32_t value = pixel >> m.shift & m.most;
            *to++ = (unsigned char)(m.most == 255 ? value : (uint64_t)value * 255 / m.most);
        }
    }
}

/* Run lengths to one index a byte, rows as they are stored; what they leave out keeps index 0. 0: they break off before the end. */
static int unpack(const bmp *b, decode_bytes file, unsigned char *out) {
    const unsigned per_byte = 8 / b->bits, most = (1u << b->bits) - 1;
    size_t at = b->offset, x = 0, y = 0;
    while (y < b->height && file.length - at >= 2) {
        const unsigned count = file.data[at], what = file.data[at + 1];
        const unsigned char *from = file.data + at + 1;
        at += 2;
        if (count == 0 && what == 0) { /* to the next row */
            x = 0;
            y++;
        } else if (count == 0 && what == 1) {
            return 1;
        } else if (count == 0 && what == 2) { /* so far to the right and upwards */
            if (file.length - at < 2) return 0;
            x += file.data[at];
            y += file.data[at + 1];
            at += 2;
        } else { /* one byte again and again, or so many as they are, filled up to an even length; both end with the row */
            const size_t bytes = count ? 0 : (what + per_byte - 1) / per_byte;
            if (file.length - at < bytes) return 0;
            for (unsigned i = 0; i < (count ? count : what) && x < b->width; i++, x++) {
                const unsigned byte = count ? from[0] : from[1 + i / per_byte];
                out[y * b->width + x] = (unsigned char)(byte >> (8 - b->bits - i % per_byte * b->bits) & most);
            }
            at += file.length - at > bytes ? bytes + bytes % 2 : bytes;
        }
    }
    return y >= b->height || (y == b->height - 1 && x >= b->width);
}

static int pixels(decode_bytes file, const decode_info *known, decode_pixels *out, decode_reason *why) {
    const unsigned char *rows;
    unsigned char *indices = NULL;
    size_t stride;
    uint32_t bits;
    bmp b;
    (void)known;
    if (!read_head(file, &b, why)) return 0;
    rows = file.data + b.offset;
    stride = (size_t)((row_bytes(&b) + 3) / 4 * 4);
    bits = b.bits;
    if (is_packed(&b)) {
        rows = indices = calloc(b.width, b.height);
        stride = b.width;
        bits = 8;
        if (!indices) return decode_no_memory(why);
        if (!unpack(&b, file, indices)) {
            free(indices);
            return decode_fail(why, "its data end or break off before its pixels do");
        }
    }
    if (decode_reserve(out, b.width, b.height, b.channels, why))
        for (size_t y = 0; y < b.height; y++) {
            unsigned char *to = out->data + (b.from_top ? y : b.height - 1 - y) * b.width * b.channels;
            if (b.bits <= 8) put_colors(&b, file, rows + y * stride, bits, to);
            else put_masked(&b, rows + y * stride, to);
        }
    free(indices);
    return out->data != NULL;
}

static int knows(decode_bytes file) {
    return decode_starts(file, 0, "BM", 2) && file.length > 18 && file.data[15] == 0 && file.data[16] == 0 && file.data[17] == 0;
}

const decoder decode_bmp = {"BMP", "megavit", NULL, knows, info, pixels, 0};
