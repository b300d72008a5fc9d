/* Picture files to pixels: one table of decoders, each known by what its files begin with and never by their names.

   A decoder looks twice at the same bytes in memory: once for the size and for what decoding will take, so that the caller can refuse or
   wait, and once for the pixels. Nothing here prints, opens a file, keeps state between calls or has threads: any number of threads may
   decode at the same time. A decoder whose library was not there when the program was built still knows its files, and names the package. */
#ifndef MEGAVIT_DECODE_H
#define MEGAVIT_DECODE_H

#include <stddef.h>
#include <stdint.h>

enum {
    DECODE_MAX_PIXELS = 178956970 /* the number at which Pillow calls a picture a decompression bomb */
};

/* Why not, as the end of a sentence: "the file ends before its pixels do". */
typedef struct decode_reason {
    int no_memory; /* it is the machine's fault, not the file's */
    char text[240];
} decode_reason;

typedef struct decode_bytes {
    const unsigned char *data;
    size_t length;
} decode_bytes;

typedef struct decode_info {
    uint32_t width, height;
    uint32_t orientation; /* EXIF's: 1 upright, to 8 */
    uint64_t memory;      /* bytes that decoding takes at most, the pixels that it gives among them */
    uint32_t eighths;     /* of each side, that are decoded: 1, 2, 4; 0: all */
} decode_info;

typedef struct decode_pixels {
    unsigned char *data; /* rows from the top, one after the other; to be freed */
    uint32_t width, height;
    uint32_t channels;   /* 1 grey, 2 grey and alpha, 3 RGB, 4 RGB and alpha, which is not premultiplied */
} decode_pixels;

typedef struct decoder {
    const char *name;    /* "JPEG" */
    const char *library; /* that reads it; NULL: none does */
    const char *package; /* of Debian, which has that library; NULL: no library will help */
    int (*knows)(decode_bytes file);
    /* Both answer 0 and say why where the file is not right. */
    int (*info)(decode_bytes file, decode_info *info, decode_reason *why);
    int (*pixels)(decode_bytes file, const decode_info *info, decode_pixels *pixels, decode_reason *why);
    int shrinks;         /* it knows info->eighths */
} decoder;

/* ---- for the program (decode.c) ---- */

/* Row i of the table, or NULL behind the last. */
const decoder *decode_table(size_t i);
/* Who knows these bytes; NULL: nobody, they are no picture. Targa files have no signature: with `targa` what can be one counts as one. */
const decoder *decode_find(decode_bytes file, int targa);
/* Size and needs; width and height are those of the upright picture. */
int decode_look(const decoder *by, decode_bytes file, decode_info *info, decode_reason *why);
/* Decodes a JPEG at a half, a quarter or an eighth of its size where that is no smaller than width x height: libjpeg then leaves out
   frequencies and not pixels. Other pictures stay as they are. info: from decode_look, changed. */
void decode_shrink(const decoder *by, decode_info *info, uint32_t width, uint32_t height);
/* The upright picture. info: from decode_look on the same bytes. */
int decode_load(const decoder *by, decode_bytes file, const decode_info *info, decode_pixels *pixels, decode_reason *why);

/* ---- for decoders (decode.c) ---- */

/* 0, with the reason. */
int decode_fail(decode_reason *why, const char *format, ...);
int decode_no_memory(decode_reason *why);
/* The sentence for a file that ends early. */
int decode_cut_short(decode_reason *why);
/* Room for width x height x channels, set to zero, or NULL with the reason. */
unsigned char *decode_reserve(decode_pixels *pixels, uint32_t width, uint32_t height, uint32_t channels, decode_reason *why);
int decode_starts(decode_bytes file, size_t offset, const char *bytes, size_t length);
/* A part of the file; empty where it reaches beyond the end. */
decode_bytes decode_part(decode_bytes file, size_t offset, size_t length);
uint32_t decode_big16(const unsigned char *at);
uint32_t decode_big32(const unsigned char *at);
uint32_t decode_little16(const unsigned char *at);
uint32_t decode_little32(const unsigned char *at);

/* ---- orientation (exif.c) ---- */

/* Tag 274 of EXIF data, which is a TIFF file in small, with or without "Exif\0\0" before it; 0: there is none. What is wrong or broken
   counts as 1. */
uint32_t exif_orientation(decode_bytes exif);
/* tiff:Orientation of XMP, which counts where EXIF says nothing, as in Pillow; 0: there is none. */
uint32_t xmp_orientation(decode_bytes xmp);

/* ---- what a JPEG's markers say (decode_jpeg.c) ---- */

typedef struct jpeg_outline {
    uint32_t width, height, components;
    int progressive, arithmetic;
    uint32_t scans;    /* components, by bit, that have had a scan: a progressive one's first */
    int adobe;         /* there is an Adobe marker */
    size_t first_scan; /* where the first scan begins; 0: there is none */
    decode_bytes exif, xmp;
} jpeg_outline;
/* 0 with the reason where they do not make a picture. */
int jpeg_read_outline(decode_bytes file, jpeg_outline *outline, decode_reason *why);

/* ---- what the boxes of HEIC and AVIF say (decode_boxes.c) ---- */

/* 0 with the reason where libheif must not see them. coded: pixels of the largest picture that HEVC's parameters or a grid
   tell of. */
int heif_read_boxes(decode_bytes file, uint64_t *coded, decode_reason *why);

/* ---- the decoders ---- */

extern const decoder decode_jpeg, decode_png, decode_webp, decode_heif, decode_avif, decode_tiff, decode_gif, decode_bmp, decode_psd, decode_pnm,
    decode_targa;

#endif
