/* The orientation of a picture, from EXIF or XMP. */
#include <string.h>
#include "tools/decode.h"

enum { ORIENTATION = 274, TYPE_BYTE = 1, TYPE_SHORT = 3, TYPE_LONG = 4 };

static uint32_t read16(const unsigned char *at, int big) { return big ? decode_big16(at) : decode_little16(at); }
static uint32_t read32(const unsigned char *at, int big) { return big ? decode_big32(at) : decode_little32(at); }

static uint32_t valid(uint32_t value) { return value >= 1 && value <= 8 ? value : 1; }

uint32_t exif_orientation(decode_bytes exif) {
    uint32_t start, count;
    int big;
    while (decode_starts(exif, 0, "Exif\0\0", 6)) exif = decode_part(exif, 6, exif.length - 6);
    if (exif.length < 8) return 0;
    big = decode_starts(exif, 0, "MM\0*", 4);
    if (!big && !decode_starts(exif, 0, "II*\0", 4)) return 0;
    start = read32(exif.data + 4, big);
    if (start > exif.length || exif.length - start < 2) return 0;
    count = read16(exif.data + start, big);
    for (size_t at = (size_t)start + 2; count > 0 && exif.length - at >= 12; count--, at += 12) {
        const unsigned char *entry = exif.data + at;
        if (read16(entry, big) != ORIENTATION) continue;
        if (read32(entry + 4, big) != 1) return 1;
        switch (read16(entry + 2, big)) {
        case TYPE_BYTE: return valid(entry[8]);
        case TYPE_SHORT: return valid(read16(entry + 8, big));
        case TYPE_LONG: return valid(read32(entry + 8, big));
        default: return 1;
        }
    }
    return 0;
}

uint32_t xmp_orientation(decode_bytes xmp) {
    static const char name[] = "tiff:Orientation";
    const size_t length = sizeof name - 1;
    for (size_t at = 0; at < xmp.length; at++) {
        const unsigned char *found = memchr(xmp.data + at, 't', xmp.length - at);
        size_t behind;
        if (!found) break;
        at = (size_t)(found - xmp.data);
        if (!decode_starts(xmp, at, name, length)) continue;
        behind = at + length;
        if (decode_starts(xmp, behind, "=\"", 2)) behind += 2;
        else if (decode_starts(xmp, behind, ">", 1)) behind += 1;
        else continue;
        if (behind < xmp.length && xmp.data[behind] >= '0' && xmp.data[behind] <= '9') return valid(xmp.data[behind] - (uint32_t)'0');
    }
    return 0;
}
