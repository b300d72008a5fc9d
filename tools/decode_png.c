/* PNG: stb_image inflates and takes the filters off; chunks, sums, palettes and transparency are read here, since stb_image looks at no sum,
   takes colours behind the end of a palette from wherever they lie, and lets a few bytes inflate to any size.

   Every chunk's CRC is checked up to the end of the pixels, and the Adler-32 of the inflated data over what stb_image gives.
   (Portable Network Graphics Specification, Third Edition; RFC 1950.) */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <stb/stb_image.h>
#include "tools/stb.h"

enum {
    GREY = 0, RGB = 2, PALETTE = 3, GREY_ALPHA = 4, RGB_ALPHA = 6,
    SLACK = 65536,       /* bytes of inflated data behind the pixels, which some encoders leave there */
    MOST_INFLATED = 1032 /* bytes that deflate makes of one */
};

typedef struct png {
    uint32_t width, height, depth, color, interlaced;
    uint32_t channels;            /* of the stored samples */
    int apple;                    /* CgBI: without zlib's frame, blue first, colours premultiplied */
    decode_bytes palette, transparent;
    decode_bytes first_data;      /* all of it where there is one IDAT chunk */
    size_t data_start, data_bytes; /* where the first IDAT chunk begins; the sum of all */
    uint32_t orientation, xmp_says;
    uint64_t raw_bytes;           /* rows with their filters */
} png;

/* ---- sums ---- */

static void crc_table(uint32_t table[256]) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
        table[i] = crc;
    }
}

static uint32_t crc_of(const uint32_t table[256], const unsigned char *bytes, size_t length) {
    uint32_t crc = 0xFFFFFFFFu;
    for (size_t i = 0; i < length; i++) crc = table[(crc ^ bytes[i]) & 255] ^ crc >> 8;
    return ~crc;
}

static uint32_t adler_of(const unsigned char *bytes, size_t length) {
    enum { BASE = 65521, MOST = 5552 }; /* so many bytes before the sums could overflow */
    uint32_t a = 1, b = 0;
    while (length > 0) {
        size_t count = length < MOST ? length : MOST;
        length -= count;
        for (; count > 0; count--) {
            a += *bytes++;
            b += a;
        }
        a %= BASE;
        b %= BASE;
    }
    return b << 16 | a;
}

static int differs(uint32_t sum, const unsigned char *stored) {
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION /* no fuzzer finds a file with right sums */
    (void)sum;
    (void)stored;
    return 0;
#else
    return sum != decode_big32(stored);
#endif
}

/* ---- chunks ---- */

/* Of Adam7: first pixel and step, across and down. */
static const unsigned char passes[7][4] = {{0, 8, 0, 8}, {4, 8, 0, 8}, {0, 4, 4, 8}, {2, 4, 0, 4}, {0, 2, 2, 4}, {1, 2, 0, 2}, {0, 1, 1, 2}};

static uint64_t rows_bytes(const png *p, uint32_t width, uint32_t height) {
    if (width == 0 || height == 0) return 0;
    return (1 + ((uint64_t)width * p->channels * p->depth + 7) / 8) * height;
}

static int read_header(decode_bytes chunk, png *p, decode_reason *why) {
    static const unsigned char channels[7] = {1, 0, 3, 1, 2, 0, 4};
    static const uint32_t depths[7] = {1 << 1 | 1 << 2 | 1 << 4 | 1 << 8 | 1 << 16, 0, 1 << 8 | 1 << 16, 1 << 1 | 1 << 2 | 1 << 4 | 1 << 8, 1 << 8 | 1 << 16, 0, 1 << 8 | 1 << 16};
    if (chunk.length != 13) return decode_fail(why, "its header has %zu bytes where 13 are due", chunk.length);
    p->width = decode_big32(chunk.data);
    p->height = decode_big32(chunk.data + 4);
    p->depth = chunk.data[8];
    p->color = chunk.data[9];
    p->interlaced = chunk.data[12];
    if (p->width == 0 || p->height == 0 || p->width > INT_MAX || p->height > INT_MAX) return decode_fail(why, "a picture of %lu x %lu pixels", (unsigned long)p->width, (unsigned long)p->height);
    if (p->color > RGB_ALPHA || p->depth > 16 || !(depths[p->color] >> p->depth & 1))
        return decode_fail(why, "a PNG of colour type %u with %u bits", (unsigned)p->color, (unsigned)p->depth);
    if (chunk.data[10] || chunk.data[11] || p->interlaced > 1) return decode_fail(why, "a PNG of unknown compression, filter or interlace");
    p->channels = channels[p->color];
    if (!p->interlaced) p->raw_bytes = rows_bytes(p, p->width, p->height);
    for (int i = 0; p->interlaced && i < 7; i++) {
        const unsigned char *pass = passes[i];
        p->raw_bytes += rows_bytes(p, (p->width + pass[1] - 1 - pass[0]) / pass[1], (p->height + pass[3] - 1 - pass[2]) / pass[3]);
    }
    return 1;
}

static void read_text(decode_bytes chunk, png *p) {
    static const char xmp[] = "XML:com.adobe.xmp\0"; /* and the second zero: not compressed */
    if (decode_starts(chunk, 0, xmp, sizeof xmp)) p->xmp_says = xmp_orientation(chunk);
}

static int read_chunk(decode_bytes file, size_t at, decode_bytes chunk, png *p, decode_reason *why) {
    const char *type = (const char *)file.data + at + 4;
    if (memcmp(type, "IHDR", 4) == 0) return p->width ? decode_fail(why, "there are two headers in it") : read_header(chunk, p, why);
    if (memcmp(type, "CgBI", 4) == 0) p->apple = 1;
    else if (!p->width) return decode_fail(why, "its header is not there");
    if (memcmp(type, "PLTE", 4) == 0 && !p->data_start) {
        if (chunk.length == 0 || chunk.length % 3 || chunk.length > 768) return decode_fail(why, "a palette of %zu bytes", chunk.length);
        p->palette = chunk;
    } else if (memcmp(type, "tRNS", 4) == 0 && !p->data_start) {
        p->transparent = chunk;
    } else if (memcmp(type, "IDAT", 4) == 0) {
        if (!p->data_start) p->data_start = at;
        if (!p->first_data.data) p->first_data = chunk;
        p->data_bytes += chunk.length;
    } else if (memcmp(type, "eXIf", 4) == 0 && !p->orientation) {
        p->orientation = exif_orientation(chunk);
    } else if (memcmp(type, "iTXt", 4) == 0) {
        read_text(chunk, p);
    }
    return 1;
}

/* What follows the pixels may be missing. */
static int read_chunks(decode_bytes file, png *p, decode_reason *why) {
    uint32_t table[256];
    size_t at = 8;
    int ended = 0; /* the last IDAT chunk lies behind */
    memset(p, 0, sizeof *p);
    crc_table(table);
    while (file.length - at >= 12) {
        decode_bytes chunk = decode_part(file, at + 8, decode_big32(file.data + at));
        const char *type = (const char *)file.data + at + 4;
        if (!chunk.data || file.length - at - 12 < chunk.length) break;
        if (memcmp(type, "IEND", 4) == 0) {
            ended = p->data_start != 0;
            break;
        }
        ended = p->data_start && memcmp(type, "IDAT", 4) != 0;
        if (differs(crc_of(table, file.data + at + 4, chunk.length + 4), chunk.data + chunk.length)) {
            if (ended) break;
            return decode_fail(why, "it is damaged: the CRC of chunk %c%c%c%c is wrong", type[0] & 127, type[1] & 127, type[2] & 127, type[3] & 127);
        }
        if (!read_chunk(file, at, chunk, p, why)) return 0;
        at += 12 + chunk.length;
    }
    if (!p->width || !p->data_start) return decode_cut_short(why);
    if (!ended && at < file.length && decode_starts(file, at + 4, "IDAT", 4)) return decode_cut_short(why);
    if (p->color == PALETTE && !p->palette.length) return decode_fail(why, "its palette is not there");
    if (!p->orientation) p->orientation = p->xmp_says;
    return 1;
}

static int info(decode_bytes file, decode_info *out, decode_reason *why) {
    png p;
    if (!read_chunks(file, &p, why)) return 0;
    if (p.raw_bytes / MOST_INFLATED > p.data_bytes) return decode_cut_short(why);
    out->width = p.width;
    out->height = p.height;
    out->orientation = p.orientation;
    out->memory = p.raw_bytes + SLACK + p.data_bytes + (uint64_t)p.width * p.height * (p.channels * (p.depth == 16 ? 2 : 1) + p.channels + 4);
    return 1;
}

/* ---- samples to pixels ---- */

/* A sample of `depth` bits from stb_png_samples, as the file has it. */
static uint32_t sample_of(const png *p, const unsigned char *samples, size_t i) {
    static const unsigned char scale[9] = {0, 0xFF, 0x55, 0, 0x11, 0, 0, 0, 1};
    uint16_t wide;
    if (p->depth < 16) return p->color == PALETTE ? samples[i] : (uint32_t)samples[i] / scale[p->depth];
    memcpy(&wide, samples + 2 * i, 2);
    return wide;
}

static unsigned char byte_of(const png *p, const unsigned char *samples, size_t i) {
    uint16_t wide;
    if (p->depth < 16) return samples[i];
    memcpy(&wide, samples + 2 * i, 2);
    return (unsigned char)(wide >> 8); /* as Pillow does it for colours */
}

/* Colours behind the end of the palette are black, as everywhere. */
static int fill_palette(const png *p, const unsigned char *samples, decode_pixels *out, decode_reason *why) {
    unsigned char colors[256][4] = {{0}}, *target;
    const size_t count = (size_t)p->width * p->height, known = p->palette.length / 3;
    const uint32_t channels = p->transparent.length ? 4 : 3;
    for (size_t i = 0; i < 256; i++) {
        if (i < known) memcpy(colors[i], p->palette.data + 3 * i, 3);
        colors[i][3] = i < p->transparent.length && i < known ? p->transparent.data[i] : 255;
    }
    target = decode_reserve(out, p->width, p->height, channels, why);
    for (size_t i = 0; target && i < count; i++) memcpy(target + channels * i, colors[samples[i]], channels);
    return target != NULL;
}

/* tRNS of a picture without palette: one colour is transparent. */
static int fill_keyed(const png *p, const unsigned char *samples, decode_pixels *out, decode_reason *why) {
    const size_t count = (size_t)p->width * p->height, channels = p->channels;
    unsigned char *target = decode_reserve(out, p->width, p->height, p->channels + 1, why);
    for (size_t i = 0; target && i < count; i++) {
        int same = 1;
        for (size_t k = 0; k < channels; k++) {
            same &= sample_of(p, samples, channels * i + k) == decode_big16(p->transparent.data + 2 * k);
            *target++ = byte_of(p, samples, channels * i + k);
        }
        *target++ = same ? 0 : 255;
    }
    return target != NULL;
}

/* Colours of Apple's PNG come blue first and multiplied by alpha. */
static void mend_apple(const png *p, decode_pixels *out) {
    const size_t count = (size_t)out->width * out->height;
    unsigned char *at = out->data;
    if (!p->apple || p->channels < 3) return;
    for (size_t i = 0; i < count; i++, at += out->channels) {
        unsigned char blue = at[0];
        at[0] = at[2];
        at[2] = blue;
        for (int k = 0; out->channels == 4 && at[3] && k < 3; k++) {
            unsigned whole = (at[k] * 255u + at[3] / 2u) / at[3];
            at[k] = (unsigned char)(whole < 255 ? whole : 255);
        }
    }
}

/* Takes `samples` over, or frees them. */
static int fill_pixels(const png *p, unsigned char *samples, decode_pixels *out, decode_reason *why) {
    const size_t count = (size_t)p->width * p->height * p->channels;
    const size_t key = p->color == GREY ? 2 : p->color == RGB ? 6 : 0;
    int good;
    if (p->color == PALETTE || (key && p->transparent.length >= key)) {
        good = p->color == PALETTE ? fill_palette(p, samples, out, why) : fill_keyed(p, samples, out, why);
        free(samples);
        return good;
    }
    if (p->depth == 16)
        for (size_t i = 0; i < count; i++) samples[i] = byte_of(p, samples, i);
    out->data = samples;
    out->width = p->width;
    out->height = p->height;
    out->channels = p->channels;
    mend_apple(p, out);
    return 1;
}

/* ---- pixels ---- */

/* The data of all IDAT chunks in one piece; NULL without the memory. */
static unsigned char *gather_data(decode_bytes file, const png *p) {
    unsigned char *data = malloc(p->data_bytes + 1);
    size_t at = p->data_start, done = 0;
    while (data && done < p->data_bytes) { /* chunks that were checked */
        size_t length = decode_big32(file.data + at);
        if (memcmp(file.data + at + 4, "IDAT", 4) == 0) {
            memcpy(data + done, file.data + at + 8, length);
            done += length;
        }
        at += 12 + length;
    }
    return data;
}

/* Rows with their filters; NULL with the reason. stb_image takes distances of 0, which copy what is not written yet: zeros here. */
static unsigned char *inflate_rows(const png *p, const unsigned char *data, size_t length, decode_reason *why) {
    size_t written = 0, used = 0, room = (size_t)p->raw_bytes + SLACK;
    unsigned char *rows = calloc(1, room);
    int good = 0;
    if (!rows) decode_no_memory(why);
    else if (!stb_inflate(data, length, !p->apple, rows, room, &written, &used)) decode_fail(why, "its data cannot be inflated: %s", stbi_failure_reason());
    else if (written < p->raw_bytes) decode_cut_short(why);
    else if (p->apple) good = 1;
    else if (used > length || length - used < 4) decode_cut_short(why);
    else if (differs(adler_of(rows, written), data + used)) decode_fail(why, "it is damaged: the Adler-32 sum of its data is wrong");
    else good = 1;
    if (good) return rows;
    free(rows);
    return NULL;
}

static int pixels(decode_bytes file, const decode_info *known, decode_pixels *out, decode_reason *why) {
    unsigned char *data = NULL, *rows, *samples;
    png p;
    (void)known;
    if (!read_chunks(file, &p, why)) return 0;
    if (p.data_bytes != p.first_data.length && !(data = gather_data(file, &p))) return decode_no_memory(why);
    rows = inflate_rows(&p, data ? data : p.first_data.data, p.data_bytes, why);
    free(data);
    if (!rows) return 0;
    samples = stb_png_samples(rows, (size_t)p.raw_bytes, p.width, p.height, (int)p.channels, (int)p.depth, (int)p.color, (int)p.interlaced);
    free(rows);
    if (!samples) return decode_fail(why, "%s", stbi_failure_reason());
    return fill_pixels(&p, samples, out, why);
}

static int knows(decode_bytes file) { return decode_starts(file, 0, "\x89PNG\x0D\x0A\x1A\x0A", 8); }

const decoder decode_png = {"PNG", STB_LIBRARY, NULL, knows, info, pixels, 0};
