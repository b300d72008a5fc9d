/* GIF, the first frame, as Pillow shows it. (GIF89a specification. Our own, since stb_image does not notice missing pixels, paints
   transparent ones in the background's colour, and takes nine bytes of memory a pixel.) */
#include <stdlib.h>
#include <string.h>
#include "tools/decode.h"

enum { MAX_BITS = 12, CODES = 1 << MAX_BITS, IMAGE = 0x2C, EXTENSION = 0x21, CONTROL = 0xF9, LOCAL_TABLE = 0x80, INTERLACED = 0x40 };

typedef struct gif {
    uint32_t width, height;             /* of the canvas */
    uint32_t left, top, across, down;   /* of the frame on it */
    int interlaced, transparent;        /* index that is; -1: none */
    decode_bytes colors;                /* of the frame: three bytes each */
    size_t data;                        /* where the size of the first codes stands */
} gif;

typedef struct lzw {
    decode_bytes file;
    size_t at, block;      /* next byte; bytes left in its block */
    uint32_t bits, count;  /* read and not yet used */
} lzw;

static size_t skip_blocks(decode_bytes file, size_t at) {
    while (at < file.length && file.data[at]) at += 1 + (size_t)file.data[at];
    return at + 1;
}

static int read_extension(decode_bytes file, size_t *at, gif *g) {
    if (file.length - *at < 2) return 0;
    if (file.data[*at + 1] == CONTROL && file.length - *at >= 8 && file.data[*at + 2] == 4)
        g->transparent = file.data[*at + 3] & 1 ? file.data[*at + 6] : -1;
    *at = skip_blocks(file, *at + 2);
    return *at <= file.length;
}

static int read_image(decode_bytes file, size_t at, gif *g, decode_reason *why) {
    uint32_t flags;
    if (file.length - at < 10) return decode_cut_short(why);
    g->left = decode_little16(file.data + at + 1);
    g->top = decode_little16(file.data + at + 3);
    g->across = decode_little16(file.data + at + 5);
    g->down = decode_little16(file.data + at + 7);
    flags = file.data[at + 9];
    g->interlaced = (flags & INTERLACED) != 0;
    if (flags & LOCAL_TABLE) g->colors = decode_part(file, at + 10, (size_t)6 << (flags & 7));
    if (flags & LOCAL_TABLE && !g->colors.data) return decode_cut_short(why);
    g->data = at + 10 + (flags & LOCAL_TABLE ? g->colors.length : 0);
    if (g->left + g->across > g->width) g->width = g->left + g->across; /* as Pillow does: the canvas grows */
    if (g->top + g->down > g->height) g->height = g->top + g->down;
    if (g->across == 0 || g->down == 0) return decode_fail(why, "its first picture has %u x %u pixels", (unsigned)g->across, (unsigned)g->down);
    return 1;
}

/* Up to the first picture. */
static int read_head(decode_bytes file, gif *g, decode_reason *why) {
    size_t at = 13;
    memset(g, 0, sizeof *g);
    g->transparent = -1;
    if (file.length < at) return decode_cut_short(why);
    g->width = decode_little16(file.data + 6);
    g->height = decode_little16(file.data + 8);
    if (file.data[10] & LOCAL_TABLE) {
        g->colors = decode_part(file, at, (size_t)6 << (file.data[10] & 7));
        if (!g->colors.data) return decode_cut_short(why);
        at += g->colors.length;
    }
    while (at < file.length) {
        if (file.data[at] == IMAGE) return read_image(file, at, g, why);
        if (file.data[at] != EXTENSION) return decode_fail(why, file.data[at] == ';' ? "there is no picture in it" : "its blocks are damaged");
        if (!read_extension(file, &at, g)) break;
    }
    return decode_cut_short(why);
}

static int info(decode_bytes file, decode_info *out, decode_reason *why) {
    gif g;
    if (!read_head(file, &g, why)) return 0;
    out->width = g.width;
    out->height = g.height;
    out->memory = (uint64_t)g.width * g.height * 4 + (uint64_t)g.across * g.down + CODES * 4;
    return 1;
}

/* The next code, or -1 at the end of the data. */
static int next_code(lzw *z, uint32_t width) {
    int code;
    while (z->count < width) {
        if (z->block == 0) {
            if (z->at >= z->file.length || z->file.data[z->at] == 0) return -1;
            z->block = z->file.data[z->at++];
        }
        if (z->at >= z->file.length) return -1;
        z->bits |= (uint32_t)z->file.data[z->at++] << z->count;
        z->block--;
        z->count += 8;
    }
    code = (int)(z->bits & ((1u << width) - 1));
    z->bits >>= width;
    z->count -= width;
    return code;
}

/* Indices of the frame in the order in which they are stored; how many there are, at most `room`. A code stands for the indices of an
   earlier one and the first index of what follows it, so it is a place in the output and a length. */
static size_t unpack(decode_bytes file, size_t at, unsigned char *out, size_t room) {
    lzw z;
    uint32_t start[CODES], length[CODES], first_width, width, codes;
    size_t done = 0;
    int before = -1, code;
    memset(&z, 0, sizeof z);
    z.file = file;
    z.at = at + 1;
    first_width = file.data[at] + 1u;
    if (first_width < 2 || first_width > MAX_BITS) return 0;
    width = first_width;
    codes = (1u << (first_width - 1)) + 2;
    while (done < room && (code = next_code(&z, width)) >= 0) {
        const uint32_t clear = 1u << (first_width - 1), number = (uint32_t)code;
        size_t begin = done, count, i;
        if (number == clear) {
            width = first_width;
            codes = clear + 2;
            before = -1;
            continue;
        }
        if (number == clear + 1 || number > codes || (number == codes && before < 0)) break;
        if (before >= 0 && codes < CODES) { /* the code before this one, and the first index of this one */
            start[codes] = (uint32_t)(begin - ((uint32_t)before < clear ? 1 : length[before]));
            length[codes] = (uint32_t)(begin - start[codes] + 1);
            if (++codes == 1u << width && width < MAX_BITS) width++;
        }
        count = number < clear ? 1 : length[number];
        if (count > room - done) count = room - done;
        if (number < clear) out[done] = (unsigned char)number;
        else
            for (i = 0; i < count; i++) out[done + i] = out[start[number] + i];
        done += count;
        before = code;
    }
    return done;
}

static uint32_t interlaced_row(uint32_t row, uint32_t rows) {
    static const unsigned char first[4] = {0, 4, 2, 1}, step[4] = {8, 8, 4, 2};
    for (int pass = 0; pass < 4; pass++) {
        uint32_t count = rows > first[pass] ? (rows - first[pass] + step[pass] - 1u) / step[pass] : 0;
        if (row < count) return first[pass] + row * step[pass];
        row -= count;
    }
    return 0;
}

/* What the frame does not cover is of the transparent colour or, without one, of the first. */
static void paint(const gif *g, const unsigned char *indices, decode_pixels *out) {
    unsigned char colors[256][4] = {{0}};
    for (size_t i = 0; i < 256; i++) {
        if (3 * i < g->colors.length) memcpy(colors[i], g->colors.data + 3 * i, 3);
        else if (!g->colors.length) memset(colors[i], (int)i, 3); /* no colours at all: Pillow takes indices for grey */
        colors[i][3] = (int)i == g->transparent ? 0 : 255;
    }
    if (g->across < g->width || g->down < g->height) {
        const unsigned char *around = colors[g->transparent < 0 ? 0 : g->transparent];
        for (size_t i = 0; i < (size_t)out->width * out->height; i++) memcpy(out->data + i * out->channels, around, out->channels);
    }
    for (uint32_t row = 0; row < g->down; row++) {
        uint32_t y = g->top + (g->interlaced ? interlaced_row(row, g->down) : row);
        unsigned char *target = out->data + ((size_t)y * out->width + g->left) * out->channels;
        for (uint32_t x = 0; x < g->across; x++, target += out->channels) memcpy(target, colors[*indices++], out->channels);
    }
}

static int pixels(decode_bytes file, const decode_info *known, decode_pixels *out, decode_reason *why) {
    unsigned char *indices;
    size_t count;
    gif g;
    (void)known;
    if (!read_head(file, &g, why)) return 0;
    if (g.data >= file.length) return decode_cut_short(why);
    count = (size_t)g.across * g.down;
    indices = malloc(count);
    if (!indices) return decode_no_memory(why);
    if (unpack(file, g.data, indices, count) < count) {
        free(indices);
        return decode_fail(why, "its data end or break off before its pixels do");
    }
    if (decode_reserve(out, g.width, g.height, g.transparent < 0 ? 3 : 4, why)) paint(&g, indices, out);
    free(indices);
    return out->data != NULL;
}

static int knows(decode_bytes file) { return decode_starts(file, 0, "GIF87a", 6) || decode_starts(file, 0, "GIF89a", 6); }

const decoder decode_gif = {"GIF", "megavit", NULL, knows, info, pixels, 0};
