/* TIFF through libtiff, the first directory. Grey, palettes, RGB and CMYK are put together here, as Pillow does it; what is stored otherwise
   (YCbCr, Lab ...) is left to libtiff. */
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tools/decode.h"

static int knows(decode_bytes file) {
    return decode_starts(file, 0, "II*\0", 4) || decode_starts(file, 0, "MM\0*", 4) || decode_starts(file, 0, "II+\0", 4) || decode_starts(file, 0, "MM\0+", 4);
}

#ifdef MEGAVIT_TIFF
#include <tiffio.h>

/* ---- the file in memory ---- */

typedef struct memory {
    decode_bytes file;
    uint64_t at;
} memory;

static tmsize_t read_some(thandle_t user, void *to, tmsize_t size) {
    memory *m = user;
    uint64_t left = m->at < m->file.length ? m->file.length - m->at : 0;
    if (size < 0) return -1;
    if ((uint64_t)size > left) size = (tmsize_t)left;
    memcpy(to, m->file.data + (size > 0 ? m->at : 0), (size_t)size);
    m->at += (uint64_t)size;
    return size;
}
static tmsize_t write_nothing(thandle_t user, void *from, tmsize_t size) {
    (void)user;
    (void)from;
    (void)size;
    return -1;
}
static toff_t seek_to(thandle_t user, toff_t offset, int whence) {
    memory *m = user;
    m->at = whence == SEEK_SET ? offset : whence == SEEK_CUR ? m->at + offset : m->file.length + offset;
    return m->at;
}
static int close_nothing(thandle_t user) {
    (void)user;
    return 0;
}
static toff_t size_of(thandle_t user) { return ((memory *)user)->file.length; }
static int map_memory(thandle_t user, void **base, toff_t *size) {
    memory *m = user;
    union { /* libtiff only reads what it maps */
        const unsigned char *read;
        void *any;
    } data;
    data.read = m->file.data;
    *base = data.any;
    *size = m->file.length;
    return 1;
}
static void unmap_nothing(thandle_t user, void *base, toff_t size) {
    (void)user;
    (void)base;
    (void)size;
}

/* ---- what a picture is ---- */

typedef struct tiff {
    uint32_t width, height, tile_width, tile_height; /* of a tile, or of a strip */
    uint16_t bits, samples, photometric, planar, compression, extra, format;
    int tiled, ours;       /* put together here */
    uint32_t channels;     /* of the result */
    uint32_t colors;       /* samples of colour */
    int alpha, premultiplied;
    uint64_t unit_bytes;   /* of one tile or strip, inflated */
    uint16_t *red, *green, *blue;
} tiff;

static void take_extra(TIFF *file, tiff *t) {
    uint16_t count = 0, *kinds = NULL;
    TIFFGetFieldDefaulted(file, TIFFTAG_EXTRASAMPLES, &count, &kinds);
    t->alpha = count > 0 && t->samples == t->colors + count && (kinds[0] == EXTRASAMPLE_UNASSALPHA || kinds[0] == EXTRASAMPLE_ASSOCALPHA);
    t->premultiplied = t->alpha && kinds[0] == EXTRASAMPLE_ASSOCALPHA;
}

static int is_ours(const tiff *t) {
    if (t->format != SAMPLEFORMAT_UINT || t->samples < t->colors) return 0;
    if (t->photometric == PHOTOMETRIC_MINISWHITE || t->photometric == PHOTOMETRIC_MINISBLACK)
        return t->bits == 1 || t->bits == 2 || t->bits == 4 || t->bits == 8 || t->bits == 16;
    if (t->photometric == PHOTOMETRIC_PALETTE) return t->red && (t->bits == 1 || t->bits == 2 || t->bits == 4 || t->bits == 8);
    return (t->photometric == PHOTOMETRIC_RGB || t->photometric == PHOTOMETRIC_SEPARATED) && (t->bits == 8 || t->bits == 16);
}

static int read_tags(TIFF *file, tiff *t, decode_reason *why) {
    uint16_t inks = INKSET_CMYK;
    memset(t, 0, sizeof *t);
    TIFFGetFieldDefaulted(file, TIFFTAG_BITSPERSAMPLE, &t->bits);
    TIFFGetFieldDefaulted(file, TIFFTAG_SAMPLESPERPIXEL, &t->samples);
    TIFFGetFieldDefaulted(file, TIFFTAG_PLANARCONFIG, &t->planar);
    TIFFGetFieldDefaulted(file, TIFFTAG_SAMPLEFORMAT, &t->format);
    TIFFGetFieldDefaulted(file, TIFFTAG_COMPRESSION, &t->compression);
    TIFFGetFieldDefaulted(file, TIFFTAG_INKSET, &inks);
    if (!TIFFGetField(file, TIFFTAG_IMAGEWIDTH, &t->width) || !TIFFGetField(file, TIFFTAG_IMAGELENGTH, &t->height) || !TIFFGetField(file, TIFFTAG_PHOTOMETRIC, &t->photometric))
        return decode_fail(why, "its size or kind of colours is not there");
    if (t->photometric == PHOTOMETRIC_YCBCR && t->compression == COMPRESSION_JPEG && t->samples == 3) {
        TIFFSetField(file, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB); /* libjpeg converts */
        t->photometric = PHOTOMETRIC_RGB;
    }
    if (t->photometric == PHOTOMETRIC_PALETTE && !TIFFGetField(file, TIFFTAG_COLORMAP, &t->red, &t->green, &t->blue)) t->red = NULL;
    t->colors = t->photometric == PHOTOMETRIC_RGB ? 3 : t->photometric == PHOTOMETRIC_SEPARATED ? 4 : 1;
    take_extra(file, t);
    t->ours = is_ours(t) && inks == INKSET_CMYK;
    t->channels = t->ours && t->colors == 1 && t->photometric != PHOTOMETRIC_PALETTE ? 1 : 3;
    if (t->photometric == PHOTOMETRIC_SEPARATED || t->photometric == PHOTOMETRIC_PALETTE) t->alpha = 0;
    if (t->alpha || !t->ours) t->channels++;
    t->tiled = TIFFIsTiled(file);
    t->tile_width = t->width;
    if (t->tiled) {
        if (!TIFFGetField(file, TIFFTAG_TILEWIDTH, &t->tile_width) || !TIFFGetField(file, TIFFTAG_TILELENGTH, &t->tile_height))
            return decode_fail(why, "the size of its tiles is not there");
    } else {
        TIFFGetFieldDefaulted(file, TIFFTAG_ROWSPERSTRIP, &t->tile_height);
        if (t->tile_height == 0 || t->tile_height > t->height) t->tile_height = t->height;
    }
    t->unit_bytes = t->tiled ? TIFFTileSize64(file) : TIFFVStripSize64(file, t->tile_height);
    if (t->tile_width == 0 || t->tile_height == 0 || t->unit_bytes == 0 || t->unit_bytes > INT_MAX) return decode_fail(why, "a strip or tile of it has %llu bytes", (unsigned long long)t->unit_bytes);
    return 1;
}

/* Each handle has handlers of its own, so that nothing is printed and threads do not meet. Warnings are about what is not needed. */
static int note_error(TIFF *file, void *user, const char *module, const char *format, va_list arguments) {
    decode_reason *why = user;
    (void)file;
    (void)module;
    vsnprintf(why->text, sizeof why->text, format, arguments);
    return 1;
}
static int ignore_warning(TIFF *file, void *user, const char *module, const char *format, va_list arguments) {
    (void)file;
    (void)user;
    (void)module;
    (void)format;
    (void)arguments;
    return 1;
}

static TIFF *open_file(memory *m, decode_bytes file, decode_reason *why) {
    TIFFOpenOptions *options = TIFFOpenOptionsAlloc();
    TIFF *opened;
    m->file = file;
    m->at = 0;
    if (!options) {
        decode_no_memory(why);
        return NULL;
    }
    decode_fail(why, "its directory is damaged");
    TIFFOpenOptionsSetErrorHandlerExtR(options, note_error, why);
    TIFFOpenOptionsSetWarningHandlerExtR(options, ignore_warning, NULL);
    opened = TIFFClientOpenExt("picture", "r", m, read_some, write_nothing, seek_to, close_nothing, size_of, map_memory, unmap_nothing, options);
    TIFFOpenOptionsFree(options);
    return opened;
}

static uint32_t orientation_of(TIFF *file) {
    uint16_t orientation = 0;
    uint32_t length = 0;
    void *xmp = NULL;
    decode_bytes bytes;
    if (TIFFGetField(file, TIFFTAG_ORIENTATION, &orientation)) return orientation;
    if (!TIFFGetField(file, TIFFTAG_XMLPACKET, &length, &xmp)) return 0;
    bytes.data = xmp;
    bytes.length = length;
    return xmp_orientation(bytes);
}

static int info(decode_bytes file, decode_info *out, decode_reason *why) {
    memory m;
    tiff t;
    TIFF *opened = open_file(&m, file, why);
    int good;
    if (!opened) return 0;
    good = read_tags(opened, &t, why);
    if (good) {
        out->width = t.width;
        out->height = t.height;
        out->orientation = orientation_of(opened);
        out->memory = (uint64_t)t.width * t.height * (t.ours ? 4 : 8) + 3 * t.unit_bytes + 65536;
        if (t.compression == COMPRESSION_NONE && t.ours && (uint64_t)t.width * t.height / 8 * t.bits > file.length) good = decode_cut_short(why);
    }
    TIFFClose(opened);
    return good;
}

/* ---- pixels ---- */

/* Sample i of a row of samples, as 8 bits; of 16 the high byte. */
static uint32_t sample(const tiff *t, const unsigned char *row, size_t i) {
    static const unsigned char scale[9] = {0, 255, 85, 0, 17, 0, 0, 0, 1};
    size_t bit = i * t->bits;
    uint16_t wide;
    if (t->bits == 16) {
        memcpy(&wide, row + 2 * i, 2); /* libtiff has put it into the machine's order */
        return wide >> 8;
    }
    bit = ((unsigned)row[bit / 8] >> (8 - t->bits - bit % 8)) & ((1u << t->bits) - 1);
    return (uint32_t)bit * (t->photometric == PHOTOMETRIC_PALETTE ? 1 : scale[t->bits]);
}

static void put_pixel(const tiff *t, const uint32_t *in, unsigned char *out) {
    if (t->photometric == PHOTOMETRIC_PALETTE) {
        out[0] = (unsigned char)(t->red[in[0]] >> 8);
        out[1] = (unsigned char)(t->green[in[0]] >> 8);
        out[2] = (unsigned char)(t->blue[in[0]] >> 8);
    } else if (t->photometric == PHOTOMETRIC_SEPARATED) {
        for (int k = 0; k < 3; k++) { /* Pillow's cmyk2rgb */
            uint32_t white = 255 - in[3], product = in[k] * white + 128;
            out[k] = (unsigned char)(white - ((product >> 8) + product) / 256);
        }
    } else {
        for (uint32_t k = 0; k < t->colors; k++) out[k] = (unsigned char)(t->photometric == PHOTOMETRIC_MINISWHITE ? 255 - in[k] : in[k]);
    }
    if (!t->alpha) return;
    out[t->colors] = (unsigned char)in[t->colors];
    if (!t->premultiplied || in[t->colors] == 0) return;
    for (uint32_t k = 0; k < t->colors; k++) { /* Pillow's rgba2rgbA backwards (Convert.c) */
        uint32_t whole = 255u * out[k] / in[t->colors];
        out[k] = (unsigned char)(whole < 255 ? whole : 255);
    }
}

/* One strip or tile; of separate planes one for each sample, one behind the other in `units`. */
static void put_unit(const tiff *t, const unsigned char *units, uint32_t left, uint32_t top, decode_pixels *out) {
    const uint32_t across = t->width - left < t->tile_width ? t->width - left : t->tile_width;
    const uint32_t down = t->height - top < t->tile_height ? t->height - top : t->tile_height;
    const int separate = t->planar == PLANARCONFIG_SEPARATE && t->samples > 1;
    const size_t row_bytes = ((size_t)t->tile_width * t->bits * (separate ? 1 : t->samples) + 7) / 8;
    const uint32_t used = t->colors + (t->alpha ? 1 : 0);
    uint32_t in[5];
    for (uint32_t y = 0; y < down; y++) {
        unsigned char *target = out->data + ((size_t)(top + y) * out->width + left) * out->channels;
        for (uint32_t x = 0; x < across; x++, target += out->channels) {
            for (uint32_t k = 0; k < used; k++) {
                const unsigned char *row = units + (separate ? k * (size_t)t->unit_bytes : 0) + y * row_bytes;
                in[k] = sample(t, row, separate ? x : (size_t)x * t->samples + k);
            }
            put_pixel(t, in, target);
        }
    }
}

static int read_unit(TIFF *file, const tiff *t, unsigned char *unit, uint32_t left, uint32_t top, uint16_t plane) {
    const uint32_t down = t->height - top < t->tile_height ? t->height - top : t->tile_height;
    tmsize_t wanted = t->tiled ? (tmsize_t)t->unit_bytes : (tmsize_t)TIFFVStripSize64(file, down);
    if (t->tiled) return TIFFReadEncodedTile(file, TIFFComputeTile(file, left, top, 0, plane), unit, (tmsize_t)t->unit_bytes) == wanted;
    return TIFFReadEncodedStrip(file, TIFFComputeStrip(file, top, plane), unit, wanted) == wanted;
}

static int read_units(TIFF *file, const tiff *t, decode_pixels *out, decode_reason *why) {
    const uint32_t planes = t->planar == PLANARCONFIG_SEPARATE && t->samples > 1 ? t->colors + (t->alpha ? 1u : 0u) : 1;
    unsigned char *units = calloc(planes, (size_t)t->unit_bytes);
    int good = 1;
    if (!units) return decode_no_memory(why);
    for (uint32_t top = 0; good && top < t->height; top += t->tile_height) {
        for (uint32_t left = 0; good && left < t->width; left += t->tile_width) {
            for (uint32_t plane = 0; good && plane < planes; plane++)
                good = read_unit(file, t, units + plane * (size_t)t->unit_bytes, left, top, (uint16_t)plane);
            if (good) put_unit(t, units, left, top, out);
            if (t->width - left <= t->tile_width) break; /* left + tile_width could wrap */
        }
        if (t->height - top <= t->tile_height) break;
    }
    free(units);
    return good ? 1 : decode_fail(why, "its data end or break off before its pixels do");
}

/* Everything else. libtiff gives 32-bit words, red lowest, rows from the top as they are stored, colours multiplied by alpha. */
static int read_rgba(TIFF *file, decode_pixels *out, decode_reason *why) {
    const size_t count = (size_t)out->width * out->height;
    char message[1024];
    uint32_t *words;
    int good;
    if (!TIFFRGBAImageOK(file, message)) return decode_fail(why, "%s", message);
    words = malloc(count * sizeof *words);
    if (!words) return decode_no_memory(why);
    TIFFSetField(file, TIFFTAG_ORIENTATION, ORIENTATION_TOPLEFT); /* it is turned later */
    good = TIFFReadRGBAImageOriented(file, out->width, out->height, words, ORIENTATION_TOPLEFT, 1);
    for (size_t i = 0; good && i < count; i++) {
        unsigned char *pixel = out->data + 4 * i;
        uint32_t alpha = TIFFGetA(words[i]);
        pixel[0] = (unsigned char)TIFFGetR(words[i]);
        pixel[1] = (unsigned char)TIFFGetG(words[i]);
        pixel[2] = (unsigned char)TIFFGetB(words[i]);
        pixel[3] = (unsigned char)alpha;
        for (int k = 0; alpha > 0 && alpha < 255 && k < 3; k++) {
            uint32_t whole = 255u * pixel[k] / alpha;
            pixel[k] = (unsigned char)(whole < 255 ? whole : 255);
        }
    }
    free(words);
    return good ? 1 : decode_fail(why, "its data end or break off before its pixels do");
}

static int pixels(decode_bytes file, const decode_info *known, decode_pixels *out, decode_reason *why) {
    memory m;
    tiff t;
    TIFF *opened = open_file(&m, file, why);
    int good = 0;
    (void)known;
    if (!opened) return 0;
    if (read_tags(opened, &t, why) && decode_reserve(out, t.width, t.height, t.channels, why))
        good = t.ours ? read_units(opened, &t, out, why) : read_rgba(opened, out, why);
    TIFFClose(opened);
    return good;
}

const decoder decode_tiff = {"TIFF", "libtiff " MEGAVIT_TIFF, "libtiff-dev", knows, info, pixels, 0};
#else
const decoder decode_tiff = {"TIFF", NULL, "libtiff-dev", knows, NULL, NULL, 0};
#endif
