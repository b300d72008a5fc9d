/* Targa, as Pillow shows it (Truevision TGA File Format Specification 2.0; TgaImagePlugin.py). Our own, since stb_image takes the start of
   a colour map for bytes to skip, turns nothing from right to left, and reads on behind the end. */
#include <stdlib.h>
#include <string.h>
#include "tools/decode.h"

enum {
    HEAD = 18, FOOTER = 26, ATTRIBUTES = 494, /* where the extension says what alpha means */
    MAPPED = 1, COLORS = 2, GREY = 3, PACKED = 8, /* the kinds of picture; PACKED is added */
    FROM_RIGHT = 0x10, FROM_TOP = 0x20,
    MOST = 128 /* pixels of a packet */
};

typedef enum pixel_layout { GREY_8, GREY_ALPHA, RGB_15, RGBA_16, BGR, BGRA } pixel_layout;
static const struct {
    unsigned kind, bits; /* kind: MAPPED for the entries of a colour map */
    pixel_layout layout;
    unsigned bytes, channels;
} layouts[] = {{COLORS, 15, RGB_15, 2, 3}, {COLORS, 16, RGBA_16, 2, 4}, {COLORS, 24, BGR, 3, 3},    {COLORS, 32, BGRA, 4, 4},
               {GREY, 8, GREY_8, 1, 1},    {GREY, 16, GREY_ALPHA, 2, 2}, {MAPPED, 8, GREY_8, 1, 1}, {MAPPED, 15, RGB_15, 2, 3},
               {MAPPED, 16, RGB_15, 2, 3},  {MAPPED, 24, BGR, 3, 3},     {MAPPED, 32, BGRA, 4, 4}};

typedef struct targa {
    uint32_t width, height, channels;
    int packed, opaque;      /* opaque: the file says that its alpha means nothing */
    unsigned flags, bytes;   /* bytes: of a stored pixel */
    pixel_layout layout;           /* of a stored pixel, or of what it points to */
    decode_bytes map;        /* empty without one */
    uint32_t map_first, map_count, map_entry;
    size_t data;
} targa;

/* What the first 18 bytes say; 0 where they are not of a picture that is read. */
static int read_head(decode_bytes file, targa *t) {
    const unsigned char *head = file.data;
    unsigned kind, bits;
    memset(t, 0, sizeof *t);
    if (file.length < HEAD || head[1] > 1 || (head[2] & ~(unsigned)PACKED) > GREY) return 0;
    kind = head[2] & ~(unsigned)PACKED;
    bits = kind == MAPPED ? head[7] : head[16];
    if (kind == MAPPED && (!head[1] || (head[16] != 8 && head[16] != 16))) return 0;
    t->packed = head[2] & PACKED;
    t->flags = head[17];
    t->width = decode_little16(head + 12);
    t->height = decode_little16(head + 14);
    t->data = HEAD + (size_t)head[0];
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        if (layouts[i].kind != kind || layouts[i].bits != bits) continue;
        t->layout = layouts[i].layout;
        t->channels = layouts[i].channels;
        t->bytes = t->map_entry = layouts[i].bytes;
    }
    if (kind == MAPPED) t->bytes = head[16] / 8u;
    return t->channels && t->width && t->height;
}

static int read_map(decode_bytes file, targa *t, decode_reason *why) {
    const unsigned char *head = file.data;
    const size_t length = head[1] ? (size_t)decode_little16(head + 5) * ((head[7] + 7u) / 8) : 0;
    const decode_bytes map = decode_part(file, t->data, length);
    if (!map.data) return decode_cut_short(why);
    t->data += length;
    if ((head[2] & ~(unsigned)PACKED) != MAPPED) return 1; /* it is there for other pictures */
    if (length == 0) return decode_fail(why, "its colour map has no colours");
    t->map = map;
    t->map_first = decode_little16(head + 3);
    t->map_count = decode_little16(head + 5);
    return 1;
}

/* Version 2 has a footer, which says where the extension lies. */
static int alpha_means_nothing(decode_bytes file) {
    const decode_bytes footer = file.length >= FOOTER ? decode_part(file, file.length - FOOTER, FOOTER) : file;
    decode_bytes attributes;
    if (!decode_starts(footer, 8, "TRUEVISION-XFILE.", FOOTER - 8) || decode_little32(footer.data) == 0) return 0;
    attributes = decode_part(file, (size_t)decode_little32(footer.data) + ATTRIBUTES, 1);
    return attributes.data && attributes.data[0] == 0;
}

static int knows(decode_bytes file) { /* there is no signature */
    targa t;
    return read_head(file, &t);
}

static int info(decode_bytes file, decode_info *out, decode_reason *why) {
    uint64_t count, needed;
    targa t;
    if (!read_head(file, &t)) return decode_cut_short(why);
    if (!read_map(file, &t, why)) return 0;
    count = (uint64_t)t.width * t.height;
    needed = t.packed ? (count + MOST - 1) / MOST * (1 + t.bytes) : count * t.bytes;
    if (file.length - t.data < needed) return decode_cut_short(why);
    out->width = t.width;
    out->height = t.height;
    out->memory = count * t.channels;
    return 1;
}

/* Of 16 bits the first is set where nothing shows, as Pillow has it. */
static void put_color(pixel_layout layout, const unsigned char *from, unsigned char *to) {
    switch (layout) {
    case GREY_ALPHA: to[1] = from[1]; /* fall through */
    case GREY_8: to[0] = from[0]; return;
    case RGBA_16: to[3] = from[1] & 0x80 ? 0 : 255; /* fall through */
    case RGB_15:
        for (int k = 0; k < 3; k++) to[k] = (unsigned char)((decode_little16(from) >> (10 - 5 * k) & 31) * 255 / 31);
        return;
    case BGRA: to[3] = from[3]; /* fall through */
    case BGR:
        for (int k = 0; k < 3; k++) to[k] = from[2 - k];
    }
}

static void put_pixel(const targa *t, const unsigned char *from, unsigned char *to) {
    static const unsigned char nothing[4] = {0};
    if (!t->map.data) {
        put_color(t->layout, from, to);
    } else {
        const uint32_t index = t->bytes == 1 ? from[0] : decode_little16(from), past = index - t->map_first;
        if (index < t->map_first || past < t->map_count) {
            put_color(t->layout, index < t->map_first ? nothing : t->map.data + (size_t)past * t->map_entry, to);
        } else { /* behind the last colour: black */
            memset(to, 0, t->channels);
            if (t->channels == 4) to[3] = 255;
        }
    }
    if (t->opaque) to[3] = 255;
}

/* Where pixel i of the file belongs. */
static unsigned char *place(const targa *t, decode_pixels *out, size_t i) {
    const size_t x = i % t->width, y = i / t->width;
    const size_t column = t->flags & FROM_RIGHT ? t->width - 1 - x : x, row = t->flags & FROM_TOP ? y : t->height - 1 - y;
    return out->data + (row * t->width + column) * t->channels;
}

/* Packets may go on in the next row: those before version 2 do. */
static int unpack(const targa *t, decode_bytes file, decode_pixels *out, decode_reason *why) {
    const size_t count = (size_t)t->width * t->height;
    size_t at = t->data, run = count, i = 0;
    while (i < count) {
        int repeats = 0;
        if (t->packed) {
            if (at >= file.length) return decode_cut_short(why);
            repeats = file.data[at] & 0x80;
            run = (file.data[at++] & 0x7Fu) + 1;
        }
        if (run > count - i) return decode_fail(why, "its packed pixels are damaged: more of them than the picture has");
        if (file.length - at < (repeats ? 1 : run) * t->bytes) return decode_cut_short(why);
        for (size_t end = i + run; i < end; i++) {
            put_pixel(t, file.data + at, place(t, out, i));
            if (!repeats) at += t->bytes;
        }
        if (repeats) at += t->bytes;
    }
    return 1;
}

static int pixels(decode_bytes file, const decode_info *known, decode_pixels *out, decode_reason *why) {
    targa t;
    (void)known;
    if (!read_head(file, &t)) return decode_cut_short(why);
    if (!read_map(file, &t, why) || !decode_reserve(out, t.width, t.height, t.channels, why)) return 0;
    t.opaque = !t.map.data && t.channels == 4 && alpha_means_nothing(file);
    return unpack(&t, file, out, why);
}

const decoder decode_targa = {"Targa", "megavit", NULL, knows, info, pixels, 0};
