/* What HEIC's and AVIF's boxes say that libheif does not look at before it decodes: how large the coded pictures and the canvases of grids
   are (it writes beyond its memory above 2^31 bytes of RGB), and whether pictures that are made of others come to an end.
   (ISO/IEC 14496-12, 8.11; 14496-15, 8.3.3; 23008-12, 6.6.2; ITU-T H.265, 7.3.2.2.) */
#include <stdlib.h>
#include <string.h>
#include "tools/decode.h"

/* The box at *at, without its header; *at moves behind it. 0: there is none. */
static int next_box(decode_bytes boxes, size_t *at, char type[4], decode_bytes *inside) {
    size_t left = boxes.length - *at, head = 8;
    uint64_t size;
    if (left < head) return 0;
    memcpy(type, boxes.data + *at + 4, 4);
    size = decode_big32(boxes.data + *at);
    if (size == 1) {
        head = 16;
        if (left < head) return 0;
        size = (uint64_t)decode_big32(boxes.data + *at + 8) << 32 | decode_big32(boxes.data + *at + 12);
    }
    if (size == 0 || size > left) size = left; /* to the end */
    if (size < head) return 0;
    *inside = decode_part(boxes, *at + head, (size_t)size - head);
    *at += (size_t)size;
    return 1;
}

/* ---- pictures made of pictures ---- */

/* A grid refers to its tiles, a picture to its alpha. libheif follows such references to the bottom of the stack where they lead back to
   where they began, so they are followed here first. (ISO/IEC 14496-12, 8.11.12, ItemReferenceBox.) */
enum { MOST_DEPTH = 8 }; /* alpha, a turned picture, an overlay, a grid, a tile: five */

typedef struct reference {
    uint32_t from, to; /* from what is decoded to what that takes */
} reference;

typedef struct references {
    reference *all;
    size_t count, room;
    uint64_t steps; /* that following them all may take */
} references;

static int add_reference(references *r, uint32_t from, uint32_t to) {
    if (r->count == r->room) {
        const size_t room = r->room ? r->room * 2 : 64;
        reference *more = realloc(r->all, room * sizeof *more);
        if (!more) return 0;
        r->all = more;
        r->room = room;
    }
    r->all[r->count].from = from;
    r->all[r->count++].to = to;
    return 1;
}

static int read_references(decode_bytes box, references *r) {
    decode_bytes list;
    char type[4];
    size_t at = 4; /* version and flags */
    if (box.length < at) return 1;
    while (next_box(box, &at, type, &list)) {
        const size_t bytes = box.data[0] ? 4 : 2; /* of a number */
        const int alpha = memcmp(type, "auxl", 4) == 0;
        if (!alpha && memcmp(type, "dimg", 4) != 0) continue;
        for (size_t i = bytes + 2; i + bytes <= list.length; i += bytes) {
            const uint32_t from = bytes == 4 ? decode_big32(list.data) : decode_big16(list.data);
            const uint32_t to = bytes == 4 ? decode_big32(list.data + i) : decode_big16(list.data + i);
            if (!(alpha ? add_reference(r, to, from) : add_reference(r, from, to))) return 0;
        }
    }
    return 1;
}

static int by_from(const void *left, const void *right) {
    const uint32_t a = ((const reference *)left)->from, b = ((const reference *)right)->from;
    return (a > b) - (a < b);
}

/* 0 where they go on for too long, or, which is the same, forever. */
static int follow(references *r, uint32_t item, unsigned depth) {
    size_t low = 0, high = r->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (r->all[middle].from < item) low = middle + 1;
        else high = middle;
    }
    for (; low < r->count && r->all[low].from == item; low++)
        if (depth == MOST_DEPTH || r->steps-- == 0 || !follow(r, r->all[low].to, depth + 1)) return 0;
    return 1;
}

/* ---- sizes of what is coded ---- */

typedef struct bits {
    const unsigned char *data;
    size_t count, at; /* in bits */
} bits;

/* Behind the end there are zeros. */
static uint32_t take_bits(bits *b, unsigned count) {
    uint32_t value = 0;
    for (; count; count--, b->at++) value = value << 1 | (b->at < b->count ? (uint32_t)b->data[b->at / 8] >> (7 - b->at % 8) & 1 : 0);
    return value;
}

/* ue(v) */
static uint32_t take_number(bits *b) {
    unsigned zeros = 0;
    while (zeros < 32 && b->at < b->count && !take_bits(b, 1)) zeros++;
    return zeros < 32 ? (1u << zeros) - 1 + take_bits(b, zeros) : UINT32_MAX;
}

/* Pixels of the pictures that a sequence parameter set is for, those that are cut off among them. */
static uint64_t pixels_of_sequence(decode_bytes nal) {
    enum { PROFILE = 88, LEVEL = 8, NEEDED = 256 };
    unsigned char plain[NEEDED]; /* without the bytes that keep start codes out */
    unsigned layers, present[8] = {0};
    uint32_t width;
    size_t count = 0;
    bits b;
    for (size_t i = 2; i < nal.length && count < NEEDED; i++)
        if (nal.data[i] != 3 || nal.data[i - 1] || nal.data[i - 2]) plain[count++] = nal.data[i];
    b.data = plain;
    b.count = 8 * count;
    b.at = 4;
    layers = take_bits(&b, 3);
    b.at += 1 + PROFILE + LEVEL;
    for (unsigned i = 0; i < layers; i++) present[i] = take_bits(&b, 2);
    if (layers) b.at += 2 * (8 - layers);
    for (unsigned i = 0; i < layers; i++) b.at += (present[i] >> 1) * PROFILE + (present[i] & 1) * LEVEL;
    take_number(&b); /* which set it is */
    if (take_number(&b) == 3) b.at++; /* planes that are coded apart */
    width = take_number(&b);
    return (uint64_t)width * take_number(&b);
}

/* The most pixels of any sequence parameter set in an HEVC configuration. */
static uint64_t pixels_of_configuration(decode_bytes box) {
    enum { ARRAYS = 22, SEQUENCE = 33 };
    uint64_t most = 0;
    size_t at = ARRAYS + 1;
    if (box.length < at) return 0;
    for (unsigned arrays = box.data[ARRAYS]; arrays && box.length - at >= 3; arrays--) {
        unsigned count = decode_big16(box.data + at + 1);
        at += 3;
        for (; count && box.length - at >= 2; count--) {
            const decode_bytes nal = decode_part(box, at + 2, decode_big16(box.data + at));
            if (!nal.data) return most;
            if (nal.length > 2 && (nal.data[0] >> 1 & 63) == SEQUENCE) {
                const uint64_t pixels = pixels_of_sequence(nal);
                if (pixels > most) most = pixels;
            }
            at += 2 + nal.length;
        }
    }
    return most;
}

static uint64_t pixels_of_properties(decode_bytes properties) {
    decode_bytes container, box;
    uint64_t most = 0;
    char type[4];
    for (size_t at = 0; next_box(properties, &at, type, &container);) {
        if (memcmp(type, "ipco", 4) != 0) continue;
        for (size_t in = 0; next_box(container, &in, type, &box);) {
            const uint64_t pixels = memcmp(type, "hvcC", 4) == 0 ? pixels_of_configuration(box) : 0;
            if (pixels > most) most = pixels;
        }
    }
    return most;
}

/* ---- sizes of what is put together ---- */

/* Fields of a box, one after the other; behind the end there are zeros, and `ended` is set. */
typedef struct fields {
    decode_bytes box;
    size_t at;
    int ended;
} fields;

static uint64_t take(fields *f, unsigned bytes) {
    const decode_bytes part = decode_part(f->box, f->at, bytes);
    uint64_t value = 0;
    f->ended |= !part.data;
    for (size_t i = 0; i < part.length; i++) value = value << 8 | part.data[i];
    f->at += bytes;
    return value;
}

/* Whether the item is of that type, as the item information says. */
static int is_of_type(decode_bytes information, uint64_t item, const char *kind) {
    decode_bytes entry;
    char type[4];
    size_t at = information.length && information.data[0] ? 8 : 6; /* behind their number */
    while (at <= information.length && next_box(information, &at, type, &entry)) {
        fields f;
        memset(&f, 0, sizeof f);
        f.box = entry;
        f.at = 4;
        if (take(&f, entry.length && entry.data[0] == 2 ? 2 : 4) != item) continue;
        if (decode_starts(entry, f.at + 2, kind, 4)) return 1; /* behind its protection */
    }
    return 0;
}

/* Pixels of the canvas that a grid's or an overlay's data begin with. */
static uint64_t pixels_of_canvas(decode_bytes data, int overlay) {
    const unsigned wide = data.length > 1 && data.data[1] & 1 ? 4 : 2;
    uint64_t width;
    fields f;
    memset(&f, 0, sizeof f);
    f.box = data;
    f.at = overlay ? 10 : 4; /* behind the colour of the ground, or rows and columns */
    width = take(&f, wide);
    return width * take(&f, wide);
}

/* Others than 4 and 8 libheif takes for none. */
static unsigned field_bytes(unsigned said) { return (said & 15) == 4 || (said & 15) == 8 ? said & 15 : 0; }

/* Item locations: where each item's data lie in the file or in the box of data. The most pixels of a canvas among them. indexed: parts have
   the numbers that the sizes speak of; libheif 1.15 reads none. */
static uint64_t pixels_of_canvases(decode_bytes file, decode_bytes locations, decode_bytes information, decode_bytes data, int indexed) {
    unsigned version, sizes, offset_bytes, length_bytes, base_bytes, index_bytes;
    uint64_t most = 0, items;
    fields f;
    memset(&f, 0, sizeof f);
    f.box = locations;
    version = (unsigned)(take(&f, 4) >> 24);
    sizes = (unsigned)take(&f, 2);
    offset_bytes = field_bytes(sizes >> 12);
    length_bytes = field_bytes(sizes >> 8);
    base_bytes = field_bytes(sizes >> 4);
    index_bytes = version && indexed ? field_bytes(sizes) : 0;
    for (items = take(&f, version < 2 ? 2 : 4); items && !f.ended; items--) {
        const uint64_t item = take(&f, version < 2 ? 2 : 4), method = version ? take(&f, 2) & 15 : 0;
        unsigned char begin[18]; /* of its data, from all its parts: as much as a canvas takes */
        uint64_t base, parts;
        decode_bytes gathered = {begin, 0};
        take(&f, 2); /* the file that it is in */
        base = take(&f, base_bytes);
        for (parts = take(&f, 2); parts && !f.ended; parts--) {
            const decode_bytes from = method == 1 ? data : file;
            uint64_t offset, length;
            take(&f, index_bytes);
            offset = base + take(&f, offset_bytes);
            length = take(&f, length_bytes);
            if (offset >= from.length) continue; /* of a box that is not there too */
            if (length > from.length - offset) length = from.length - offset;
            if (length > sizeof begin - gathered.length) length = sizeof begin - gathered.length;
            memcpy(begin + gathered.length, from.data + offset, (size_t)length);
            gathered.length += (size_t)length;
        }
        for (int overlay = 0; overlay < 2; overlay++) {
            const uint64_t pixels = pixels_of_canvas(gathered, overlay);
            if (pixels > most && is_of_type(information, item, overlay ? "iovl" : "grid")) most = pixels;
        }
    }
    return most;
}

/* ---- the whole ---- */

static int references_end(references *r, decode_reason *why) {
    int good = 1;
    if (r->count) qsort(r->all, r->count, sizeof *r->all, by_from);
    r->steps = (uint64_t)r->count * MOST_DEPTH;
    for (size_t i = 0; good && i < r->count; i++)
        if (i == 0 || r->all[i].from != r->all[i - 1].from) good = follow(r, r->all[i].from, 0);
    return good || decode_fail(why, "its pictures are made of each other without end");
}

static int read_meta(decode_bytes file, decode_bytes meta, references *r, uint64_t *most) {
    decode_bytes box, locations = {NULL, 0}, information = {NULL, 0}, data = {NULL, 0};
    uint64_t pixels;
    char type[4];
    for (size_t at = 4; at <= meta.length && next_box(meta, &at, type, &box);) {
        pixels = memcmp(type, "iprp", 4) == 0 ? pixels_of_properties(box) : 0;
        if (pixels > *most) *most = pixels;
        if (memcmp(type, "iref", 4) == 0 && !read_references(box, r)) return 0;
        if (memcmp(type, "iloc", 4) == 0 && !locations.data) locations = box;
        if (memcmp(type, "iinf", 4) == 0 && !information.data) information = box;
        if (memcmp(type, "idat", 4) == 0 && !data.data) data = box;
    }
    for (int indexed = 0; indexed < 2; indexed++) {
        pixels = pixels_of_canvases(file, locations, information, data, indexed);
        if (pixels > *most) *most = pixels;
    }
    return 1;
}

int heif_read_boxes(decode_bytes file, uint64_t *coded, decode_reason *why) {
    decode_bytes meta;
    char type[4];
    references r;
    int good = 1;
    memset(&r, 0, sizeof r);
    *coded = 0;
    for (size_t at = 0; good && next_box(file, &at, type, &meta);)
        if (memcmp(type, "meta", 4) == 0) good = read_meta(file, meta, &r, coded);
    if (!good) decode_no_memory(why);
    else if (*coded > DECODE_MAX_PIXELS)
        good = decode_fail(why, "it codes a picture of %llu pixels; the limit is %d", (unsigned long long)*coded, DECODE_MAX_PIXELS);
    else good = references_end(&r, why);
    free(r.all);
    return good;
}
