/* PSD: the composite that Photoshop stores behind the layers, as Pillow shows it (Adobe Photoshop File Formats Specification;
   PsdImagePlugin.py): RGB, with a fourth channel as alpha, grey, duotone as grey, and indexed colours; further channels are not looked at.
   Our own, since stb_image takes a white matte out of four channels that may have none, and runs across rows. */
#include <stdlib.h>
#include <string.h>
#include "tools/decode.h"

enum { HEAD = 26, GREY = 1, INDEXED = 2, RGB = 3, DUOTONE = 8, MAP = 3 * 256, VERSION_INFO = 1057 };

typedef struct psd {
    uint32_t width, height, stored, mode;
    uint32_t bytes;     /* of a sample; of two the high one is taken */
    uint32_t planes;    /* that are read */
    int packed;
    decode_bytes map;   /* of indexed colours: all reds, all greens, all blues */
    size_t data;
} psd;

static const char *mode_name(uint32_t mode) {
    static const char *const names[] = {"bitmap", "grey", "indexed", "RGB", "CMYK", "unknown", "unknown", "multichannel", "duotone", "Lab"};
    return mode < sizeof names / sizeof names[0] ? names[mode] : "unknown";
}

static int read_head(decode_bytes file, psd *p, decode_reason *why) {
    const unsigned char *head = file.data;
    uint32_t depth;
    memset(p, 0, sizeof *p);
    if (file.length < HEAD) return decode_cut_short(why);
    if (decode_big16(head + 4) != 1) return decode_fail(why, "a PSD of version %u; 1 alone is read", (unsigned)decode_big16(head + 4));
    p->stored = decode_big16(head + 12);
    p->height = decode_big32(head + 14);
    p->width = decode_big32(head + 18);
    depth = decode_big16(head + 22);
    p->mode = decode_big16(head + 24);
    if (p->mode != GREY && p->mode != INDEXED && p->mode != RGB && p->mode != DUOTONE)
        return decode_fail(why, "a PSD of %s colours; RGB, grey and indexed ones are read", mode_name(p->mode));
    if (depth != 8 && (depth != 16 || p->mode == INDEXED))
        return decode_fail(why, "a PSD of %s colours with %u bits; 8 are read, and 16 of RGB and grey", mode_name(p->mode),
                           (unsigned)depth);
    p->bytes = depth / 8;
    p->planes = p->mode != RGB ? 1 : p->stored == 4 ? 4 : 3;
    if (p->stored < p->planes) return decode_fail(why, "a PSD of %s colours with %u channels", mode_name(p->mode), (unsigned)p->stored);
    return 1;
}

/* Whether the resources say that there is no composite: a white picture stands in its place. */
static int has_no_composite(decode_bytes resources) {
    size_t at = 0;
    while (resources.length - at >= 12 && decode_starts(resources, at, "8BIM", 4)) {
        const uint32_t number = decode_big16(resources.data + at + 4);
        uint32_t length;
        at += 6 + ((size_t)resources.data[at + 6] + 2) / 2 * 2; /* a name of Pascal's, filled up to an even length */
        if (at > resources.length || resources.length - at < 4) return 0;
        length = decode_big32(resources.data + at);
        at += 4;
        if (length > resources.length - at) return 0;
        if (number == VERSION_INFO && length >= 5) return resources.data[at + 4] == 0;
        at += length;
        if (length % 2 && at < resources.length) at++;
    }
    return 0;
}

static int read_sections(decode_bytes file, psd *p, decode_reason *why) {
    decode_bytes sections[3]; /* colours, resources, layers */
    size_t at = HEAD;
    uint32_t compression;
    for (int i = 0; i < 3; i++) {
        const decode_bytes length = decode_part(file, at, 4);
        if (!length.data) return decode_cut_short(why);
        sections[i] = decode_part(file, at + 4, decode_big32(length.data));
        if (!sections[i].data) return decode_cut_short(why);
        at += 4 + sections[i].length;
    }
    if (file.length - at < 2) return decode_cut_short(why);
    if (has_no_composite(sections[1])) return decode_fail(why, "a PSD of layers alone: save it with the option 'Maximize Compatibility'");
    if (p->mode == INDEXED && sections[0].length < MAP) return decode_fail(why, "a PSD of indexed colours without its colours");
    p->map = sections[0];
    compression = decode_big16(file.data + at);
    if (compression > 1) return decode_fail(why, "a PSD of compression %u, which is not read", (unsigned)compression);
    p->packed = compression == 1;
    p->data = at + 2;
    return 1;
}

static int info(decode_bytes file, decode_info *out, decode_reason *why) {
    uint64_t row, needed;
    psd p;
    if (!read_head(file, &p, why) || !read_sections(file, &p, why)) return 0;
    row = (uint64_t)p.width * p.bytes;
    if (p.packed) row = (row + 127) / 128 * 2; /* packets of two bytes, behind two that count them */
    needed = row * p.planes; /* below 2^36: no overflow behind */
    if (p.height && needed > (file.length - p.data) / p.height) return decode_cut_short(why);
    if (p.packed && file.length - p.data < needed * p.height + (uint64_t)2 * p.stored * p.height) return decode_cut_short(why);
    out->width = p.width;
    out->height = p.height;
    out->memory = (uint64_t)p.width * p.height * (p.mode == INDEXED ? 3 : p.planes) + row;
    return 1;
}

/* PackBits: exactly `length` bytes out of one row's. */
static int unpack_row(decode_bytes packed, unsigned char *to, size_t length) {
    size_t at = 0, done = 0;
    while (done < length) {
        size_t count;
        if (at >= packed.length) return 0;
        count = packed.data[at++];
        if (count == 128) continue;
        if (count < 128) { /* as they are */
            count++;
            if (count > length - done || count > packed.length - at) return 0;
            memcpy(to + done, packed.data + at, count);
            at += count;
        } else { /* one repeated */
            count = 257 - count;
            if (count > length - done || at >= packed.length) return 0;
            memset(to + done, packed.data[at++], count);
        }
        done += count;
    }
    return 1;
}

static void put_row(const psd *p, const unsigned char *row, uint32_t plane, unsigned char *to) {
    const uint32_t channels = p->mode == INDEXED ? 3 : p->planes;
    for (uint32_t x = 0; x < p->width; x++, row += p->bytes, to += channels) {
        if (p->mode == INDEXED)
            for (int k = 0; k < 3; k++) to[k] = p->map.data[256 * k + row[0]];
        else to[plane] = row[0];
    }
}

static int read_planes(const psd *p, decode_bytes file, unsigned char *row, decode_pixels *out, decode_reason *why) {
    const size_t length = (size_t)p->width * p->bytes, rows = (size_t)p->stored * p->height;
    const decode_bytes counts = decode_part(file, p->data, p->packed ? 2 * rows : 0);
    size_t at = p->data + counts.length;
    if (!counts.data) return decode_cut_short(why);
    for (size_t i = 0; i < (size_t)p->planes * p->height; i++) {
        const decode_bytes stored = decode_part(file, at, p->packed ? decode_big16(counts.data + 2 * i) : length);
        const size_t y = i % p->height, plane = i / p->height;
        if (!stored.data) return decode_cut_short(why);
        if (p->packed && !unpack_row(stored, row, length)) return decode_fail(why, "its packed rows are damaged");
        put_row(p, p->packed ? row : stored.data, (uint32_t)plane, out->data + y * p->width * out->channels);
        at += stored.length;
    }
    return 1;
}

static int pixels(decode_bytes file, const decode_info *known, decode_pixels *out, decode_reason *why) {
    unsigned char *row;
    int good;
    psd p;
    (void)known;
    if (!read_head(file, &p, why) || !read_sections(file, &p, why)) return 0;
    row = malloc((size_t)p.width * p.bytes);
    if (!row) return decode_no_memory(why);
    good = decode_reserve(out, p.width, p.height, p.mode == INDEXED ? 3 : p.planes, why) && read_planes(&p, file, row, out, why);
    free(row);
    return good;
}

static int knows(decode_bytes file) { return decode_starts(file, 0, "8BPS", 4); }

const decoder decode_psd = {"PSD", "megavit", NULL, knows, info, pixels, 0};
