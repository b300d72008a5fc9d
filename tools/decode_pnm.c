/* PBM, PGM and PPM, P1 to P6, scaled by their largest value as Pillow does it (PpmImagePlugin.py); of two bytes that reach over all values
   the high one. (Netpbm's manual pages. Our own, since stb_image looks neither at the largest value nor at the order of two bytes.) */
#include <stdlib.h>
#include <string.h>
#include "tools/decode.h"

enum { BITMAP = 1, GREYMAP = 2, PIXMAP = 3 }; /* P4 to P6 are these in binary */

typedef struct pnm {
    int kind, binary;
    uint32_t width, height, most, channels;
    decode_bytes samples;
} pnm;

static int is_space(int c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* Moves behind white space and comments. */
static size_t skip_space(decode_bytes file, size_t at) {
    while (at < file.length && (is_space(file.data[at]) || file.data[at] == '#')) {
        if (file.data[at] != '#') at++;
        else
            while (at < file.length && file.data[at] != '\n' && file.data[at] != '\r') at++;
    }
    return at;
}

/* A number of at most 9 digits at *at, which moves behind it; 0 where there is none. */
static int read_number(decode_bytes file, size_t *at, uint32_t *number) {
    size_t start = *at;
    *number = 0;
    for (; *at < file.length && file.data[*at] >= '0' && file.data[*at] <= '9'; ++*at) {
        if (*at - start >= 9) return 0;
        *number = *number * 10 + (uint32_t)(file.data[*at] - '0');
    }
    return *at > start;
}

static int read_head(decode_bytes file, pnm *p, decode_reason *why) {
    uint32_t *const numbers[3] = {&p->width, &p->height, &p->most};
    size_t at = 2;
    memset(p, 0, sizeof *p);
    p->kind = (file.data[1] - '1') % 3 + 1;
    p->binary = file.data[1] > '3';
    p->channels = p->kind == PIXMAP ? 3 : 1;
    p->most = 1;
    for (int i = 0; i < (p->kind == BITMAP ? 2 : 3); i++) {
        at = skip_space(file, at);
        if (!read_number(file, &at, numbers[i])) return decode_fail(why, "its header is damaged");
    }
    if (p->most == 0 || p->most > 65535) return decode_fail(why, "its largest value is %u; from 1 to 65535 can be", (unsigned)p->most);
    if (at >= file.length || !is_space(file.data[at])) return decode_cut_short(why);
    p->samples = decode_part(file, at + 1, file.length - at - 1);
    return 1;
}

static int info(decode_bytes file, decode_info *out, decode_reason *why) {
    uint64_t row, needed;
    pnm p;
    if (!read_head(file, &p, why)) return 0;
    row = p.kind == BITMAP ? ((uint64_t)p.width + 7) / 8 : (uint64_t)p.width * p.channels * (p.most > 255 ? 2 : 1);
    needed = p.binary ? row * p.height : (uint64_t)p.width * p.channels * p.height; /* a digit a sample at least */
    if (p.samples.length < needed) return decode_cut_short(why);
    out->width = p.width;
    out->height = p.height;
    out->memory = (uint64_t)p.width * p.height * p.channels;
    return 1;
}

/* value / most * 255, rounded as Python rounds, half to even. */
static unsigned char scale(uint32_t value, uint32_t most) {
    uint32_t twice, whole;
    if (most == 65535) return (unsigned char)(value >> 8);
    if (value > most) value = most;
    twice = value * 510;
    whole = twice / (2 * most);
    twice %= 2 * most;
    return (unsigned char)(whole + (twice > most || (twice == most && whole % 2)));
}

static void read_binary(const pnm *p, unsigned char *target) {
    const size_t count = (size_t)p->width * p->channels * p->height;
    const unsigned char *from = p->samples.data;
    if (p->kind == BITMAP) { /* 1 is black */
        for (uint32_t y = 0; y < p->height; y++, from += (p->width + 7) / 8)
            for (uint32_t x = 0; x < p->width; x++) *target++ = from[x / 8] >> (7 - x % 8) & 1 ? 0 : 255;
    } else if (p->most == 255) {
        memcpy(target, from, count);
    } else {
        for (size_t i = 0; i < count; i++) target[i] = scale(p->most > 255 ? decode_big16(from + 2 * i) : from[i], p->most);
    }
}

static int read_text(const pnm *p, unsigned char *target, decode_reason *why) {
    const size_t count = (size_t)p->width * p->channels * p->height;
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t value;
        at = skip_space(p->samples, at);
        if (at >= p->samples.length) return decode_cut_short(why);
        if (p->kind == BITMAP) { /* digits may stand side by side */
            value = p->samples.data[at++] - (uint32_t)'0';
            if (value > 1) return decode_fail(why, "there is a sample that is no bit");
            target[i] = value ? 0 : 255;
        } else {
            if (!read_number(p->samples, &at, &value)) return decode_fail(why, "there is a sample that is no number");
            if (value > p->most) return decode_fail(why, "there is a sample of %u; the largest should be %u", (unsigned)value, (unsigned)p->most);
            target[i] = scale(value, p->most);
        }
    }
    return 1;
}

static int pixels(decode_bytes file, const decode_info *known, decode_pixels *out, decode_reason *why) {
    pnm p;
    (void)known;
    if (!read_head(file, &p, why) || !decode_reserve(out, p.width, p.height, p.channels, why)) return 0;
    if (!p.binary) return read_text(&p, out->data, why);
    read_binary(&p, out->data);
    return 1;
}

static int knows(decode_bytes file) {
    return file.length > 2 && file.data[0] == 'P' && file.data[1] >= '1' && file.data[1] <= '6' && (is_space(file.data[2]) || file.data[2] == '#');
}

const decoder decode_pnm = {"PNM", "megavit", NULL, knows, info, pixels, 0};
