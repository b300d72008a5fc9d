/* Picture files to pixels (tools/decode*.c, tools/exif.c): tests/pictures, whose answers come from Pillow (tests/pictures/make.py says how). */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <math.h>
#include "tools/decode.h"

#define FOLDER "tests/pictures/"
enum { MAX_CASES = 256, MAX_FILE = 1 << 16 };

typedef struct picture_case {
    char file[64], format[16], words[160];
    unsigned width, height;
    unsigned long long hash;
    double means[3];
    int wrong, about;
    unsigned char *bytes;
    size_t length;
} picture_case;

static picture_case cases[MAX_CASES];
static size_t case_count;

typedef struct outcome {
    int good;
    unsigned width, height;
    unsigned long long hash; /* of the pixels over white, as RGB */
    double means[3];
    char format[16];
    decode_reason why;
} outcome;

/* Pillow's alpha_composite over white. */
static unsigned char over_white(unsigned sample, unsigned alpha) {
    unsigned sum = sample * alpha + 255 * (255 - alpha) + 128;
    return (unsigned char)(((sum >> 1) + (sum << 7)) >> 15);
}

static void look_at(const decode_pixels *pixels, outcome *o) {
    size_t count = (size_t)pixels->width * pixels->height;
    const unsigned char *at = pixels->data;
    o->hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < count; i++, at += pixels->channels) {
        const unsigned alpha = pixels->channels % 2 == 0 ? at[pixels->channels - 1] : 255;
        for (unsigned k = 0; k < 3; k++) {
            unsigned char byte = over_white(at[pixels->channels < 3 ? 0 : k], alpha);
            o->hash = (o->hash ^ byte) * 0x100000001B3u;
            o->means[k] += (double)byte / (double)count;
        }
    }
    o->width = pixels->width;
    o->height = pixels->height;
}

static outcome decode(const unsigned char *bytes, size_t length) {
    decode_bytes file;
    decode_info info;
    decode_pixels pixels;
    const decoder *by;
    outcome o;
    memset(&o, 0, sizeof o);
    file.data = bytes;
    file.length = length;
    by = decode_find(file, 1);
    if (!by) {
        snprintf(o.why.text, sizeof o.why.text, "no picture");
        return o;
    }
    snprintf(o.format, sizeof o.format, "%s", by->name);
    if (strchr(o.format, ' ')) *strchr(o.format, ' ') = '_';
    if (!decode_look(by, file, &info, &o.why)) return o;
    assert_true(info.memory >= (uint64_t)info.width * info.height);
    o.good = decode_load(by, file, &info, &pixels, &o.why);
    if (o.good) {
        assert_int_equal(info.width, pixels.width);
        assert_int_equal(info.height, pixels.height);
        look_at(&pixels, &o);
    } else {
        assert_null(pixels.data);
        assert_true(strlen(o.why.text) > 5);
    }
    free(pixels.data);
    return o;
}

static int is_built_in(const char *format) {
    const decoder *row;
    for (size_t i = 0; (row = decode_table(i)) != NULL; i++)
        if (strcmp(row->name, format) == 0) return row->library != NULL;
    return 1; /* none that a library could read */
}

static int has_turbo(void) { return strncmp(decode_jpeg.library, "libjpeg", 7) == 0; }

static int read_cases(void **state) {
    FILE *stream = fopen(FOLDER "expected.txt", "r"), *picture;
    char line[256], path[128], rest[160];
    (void)state;
    if (!stream) return 1;
    while (case_count < MAX_CASES && fgets(line, sizeof line, stream)) {
        picture_case *c = &cases[case_count++];
        if (sscanf(line, "%63s %15s %159[^\n]", c->file, c->format, rest) != 3) return 1;
        c->wrong = rest[0] == '!';
        c->about = rest[0] == '~';
        if (c->wrong) memcpy(c->words, rest + 2, strlen(rest + 2) + 1);
        else if (c->about) c->about = sscanf(rest, "~ %u %u %lf %lf %lf", &c->width, &c->height, &c->means[0], &c->means[1], &c->means[2]);
        else if (sscanf(rest, "%u %u %llx", &c->width, &c->height, &c->hash) != 3) return 1;
        snprintf(path, sizeof path, FOLDER "%s", c->file);
        picture = fopen(path, "rb");
        c->bytes = malloc(MAX_FILE);
        if (!picture || !c->bytes) return 1;
        c->length = fread(c->bytes, 1, MAX_FILE, picture);
        fclose(picture);
    }
    fclose(stream);
    return case_count < 100;
}

static int free_cases(void **state) {
    (void)state;
    while (case_count > 0) free(cases[--case_count].bytes);
    return 0;
}

static void every_picture_has_the_pixels_of_pillow(void **state) {
    (void)state;
    for (size_t i = 0; i < case_count; i++) {
        const picture_case *c = &cases[i];
        outcome o = decode(c->bytes, c->length);
        if (strcmp(o.format, c->format) != 0) fail_msg("%s is taken for %s", c->file, o.format);
        if (!is_built_in(c->format)) {
            if (o.good || !strstr(o.why.text, "package lib")) fail_msg("%s: %s", c->file, o.why.text);
            continue;
        }
        if (strcmp(c->format, "JPEG") == 0 && !has_turbo()) continue; /* stb_image rounds otherwise: below */
        if (c->wrong) {
            if (o.good || !strstr(o.why.text, c->words)) fail_msg("%s: '%s', and not '%s'", c->file, o.good ? "good" : o.why.text, c->words);
            continue;
        }
        if (!o.good) fail_msg("%s: %s", c->file, o.why.text);
        if (o.width != c->width || o.height != c->height) fail_msg("%s: %u x %u", c->file, o.width, o.height);
        for (int k = 0; c->about && k < 3; k++)
            if (o.means[k] < c->means[k] - 3 || o.means[k] > c->means[k] + 3) fail_msg("%s: channel %d is %.1f", c->file, k, o.means[k]);
        if (!c->about && o.hash != c->hash) fail_msg("%s has other pixels", c->file);
    }
}

/* Without libjpeg: stb_image, and what stands around it. */
static void jpegs_without_libjpeg(void **state) {
    double adobe = 0;
    (void)state;
    if (has_turbo()) skip();
    for (size_t i = 0; i < case_count; i++) {
        outcome o;
        if (strcmp(cases[i].format, "JPEG") != 0) continue;
        o = decode(cases[i].bytes, cases[i].length);
        if (strcmp(cases[i].file, "cmyk.jpg") == 0) adobe = o.means[0];
        if (strcmp(cases[i].file, "cmyk_no_adobe.jpg") == 0) assert_true(o.good && o.means[0] == adobe);
        if (strcmp(cases[i].file, "o6.jpg") == 0) assert_int_equal(o.width, cases[i].width);
        if (strcmp(cases[i].file, "no_scan.jpg") == 0 || strcmp(cases[i].file, "a_scan_less.jpg") == 0) assert_false(o.good);
    }
    assert_true(adobe > 0);
}

/* What is cut short is an error, wherever; or else nothing of the picture was missing. Of numbers in text the last may lose digits; of a
   Targa the extension, 521 bytes behind the pixels, may say that alpha means nothing. */
static void a_file_that_is_cut_short_is_an_error(void **state) {
    size_t tried = 0;
    (void)state;
    for (size_t i = 0; i < case_count; i++) {
        const picture_case *c = &cases[i];
        const size_t step = strcmp(c->format, "HEIC") == 0 || strcmp(c->format, "AVIF") == 0 ? 37 : c->length > 2000 ? 7 : 1;
        const size_t end = c->length - (strstr(c->file, "text") ? 5 : strcmp(c->file, "alpha0.tga") == 0 ? 521 : 0);
        outcome whole = decode(c->bytes, c->length);
        if (!whole.good) continue;
        for (size_t length = 0; length < end; length += step) {
            unsigned char *exact = malloc(length ? length : 1); /* the sanitizers see what lies behind it */
            outcome o;
            assert_non_null(exact);
            memcpy(exact, c->bytes, length);
            o = decode(exact, length);
            free(exact);
            tried++;
            if (!o.good) continue;
            if (o.hash != whole.hash || o.width != whole.width || o.height != whole.height)
                fail_msg("%s cut to %zu of %zu bytes gives another picture", c->file, length, c->length);
        }
    }
    assert_true(tried > 30000);
}

/* The box says how large the picture is, long before its coded part or, as here in HEIC, the grid of its tiles does. */
static void a_picture_of_another_size_than_its_box_says_is_an_error(void **state) {
    static const struct {
        const char *file, *box;
        size_t height; /* of the last byte of a height, behind the box's name */
    } lies[] = {{"plain.avif", "ispe", 15}, {"plain.heic", "idat", 11}};
    size_t tried = 0;
    (void)state;
    for (size_t i = 0; i < 2 * case_count; i++) {
        const picture_case *c = &cases[i / 2];
        unsigned char *bytes;
        outcome o;
        size_t at = 0;
        if (strcmp(c->file, lies[i % 2].file) != 0 || !is_built_in(c->format)) continue;
        while (memcmp(c->bytes + at, lies[i % 2].box, 4) != 0) at++;
        bytes = malloc(c->length);
        assert_non_null(bytes);
        memcpy(bytes, c->bytes, c->length);
        bytes[at + lies[i % 2].height]++;
        o = decode(bytes, c->length);
        free(bytes);
        if (o.good || !strstr(o.why.text, "the file says")) fail_msg("%s: '%s'", c->file, o.why.text);
        tried++;
    }
    if (is_built_in("HEIC")) assert_int_equal(tried, 2);
    else skip();
}

static void put32(unsigned char *to, size_t value) {
    for (int i = 0; i < 4; i++) to[i] = (unsigned char)(value >> 8 * i);
}
/* A BMP behind a header of so many bytes, and a gap before its pixels. */
static unsigned char *with_header(const picture_case *c, size_t head, size_t gap, size_t *length) {
    const size_t begin = c->bytes[10] | (size_t)c->bytes[11] << 8, colors = (begin - 54) / 4, entry = head == 12 ? 3 : 4;
    const size_t offset = 14 + head + colors * entry + gap;
    unsigned char *made = calloc(1, offset + c->length - begin);
    assert_non_null(made);
    memcpy(made, c->bytes, 14);
    put32(made + 10, offset);
    put32(made + 14, head);
    if (head == 12) {
        memcpy(made + 18, c->bytes + 18, 2);
        memcpy(made + 20, c->bytes + 22, 2);
        memcpy(made + 22, c->bytes + 26, 4);
    } else {
        memcpy(made + 18, c->bytes + 18, 36);
        put32(made + 46, colors);
    }
    for (size_t i = 0; i < colors; i++) memcpy(made + 14 + head + i * entry, c->bytes + 54 + 4 * i, 3);
    memcpy(made + offset, c->bytes + begin, c->length - begin);
    *length = offset + c->length - begin;
    return made;
}
/* OS/2's header of 12 bytes and those of other ages have the same picture as Windows's of 40. */
static void every_header_has_the_same_picture(void **state) {
    static const size_t heads[] = {12, 40, 52, 56, 64, 108, 124};
    static const char *const files[] = {"bit.bmp", "palette4.bmp", "palette.bmp", "grey.bmp", "rgb.bmp"};
    size_t tried = 0;
    (void)state;
    for (size_t i = 0; i < case_count * 5; i++) {
        const picture_case *c = &cases[i / 5];
        if (strcmp(c->file, files[i % 5]) != 0) continue;
        for (size_t k = 0; k < sizeof heads / sizeof heads[0] * 2; k++) {
            size_t length;
            unsigned char *bytes = with_header(c, heads[k / 2], k % 2 * 8, &length);
            outcome o = decode(bytes, length);
            if (!o.good || o.hash != c->hash) fail_msg("%s, header of %zu bytes, gap %zu: '%s'", c->file, heads[k / 2], k % 2, o.why.text);
            put32(bytes + 10, 14 + heads[k / 2] - 1);
            o = decode(bytes, length);
            if (o.good || !strstr(o.why.text, "begin within its header")) fail_msg("%s: '%s'", c->file, o.why.text);
            free(bytes);
            tried++;
        }
    }
    assert_int_equal(tried, 5 * 7 * 2);
}

/* Photoshop's header of 56 bytes holds masks, as those of 108 and 124 do. */
static void masks_within_every_header(void **state) {
    static const size_t heads[] = {56, 108, 124};
    static const size_t masks[] = {0xFF0000, 0xFF00, 0xFF, 0xFF000000u};
    static const unsigned char pixels[] = {10, 20, 30, 255, 0, 0, 0, 0};
    (void)state;
    for (size_t k = 0; k < 3; k++) {
        unsigned char bytes[14 + 124 + sizeof pixels] = "BM";
        outcome o;
        put32(bytes + 10, 14 + heads[k]);
        put32(bytes + 14, heads[k]);
        put32(bytes + 18, 2);
        put32(bytes + 22, 1);
        put32(bytes + 26, 1 | 32 << 16);
        put32(bytes + 30, 3);
        for (size_t i = 0; i < 4; i++) put32(bytes + 54 + 4 * i, masks[i]);
        memcpy(bytes + 14 + heads[k], pixels, sizeof pixels);
        o = decode(bytes, 14 + heads[k] + sizeof pixels);
        if (!o.good || o.means[0] != (30 + 255) / 2.0 || o.means[1] != (20 + 255) / 2.0 || o.means[2] != (10 + 255) / 2.0)
            fail_msg("header of %zu bytes: '%s' %g %g %g", heads[k], o.why.text, o.means[0], o.means[1], o.means[2]);
    }
}

/* Compressions that are not read of 8 bits, among them negative ones. */
static void other_compressions_are_an_error(void **state) {
    static const size_t compressions[] = {2, 3, 4, 5, 11, 0xFFFFFFF5u};
    size_t tried = 0;
    (void)state;
    for (size_t i = 0; i < case_count; i++) {
        if (strcmp(cases[i].file, "palette.bmp") != 0) continue;
        for (size_t k = 0; k < sizeof compressions / sizeof compressions[0]; k++) {
            size_t length;
            unsigned char *bytes = with_header(&cases[i], 40, 0, &length);
            outcome o;
            put32(bytes + 30, compressions[k]);
            o = decode(bytes, length);
            if (o.good || !strstr(o.why.text, "compression")) fail_msg("compression %zu: '%s'", compressions[k], o.why.text);
            free(bytes);
            tried++;
        }
    }
    assert_int_equal(tried, 6);
}

static uint64_t seed = 40;
static uint32_t next_random(uint32_t most) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % most;
}

/* Whatever lay in memory before: files, and damaged ones, give the same bytes, or the same error, every time. */
static void damaged_files_give_the_same_on_every_run(void **state) {
    (void)state;
#ifdef __GLIBC__
    for (size_t i = 0; i < case_count; i++) {
        picture_case *c = &cases[i];
        const int rounds = strcmp(c->format, "HEIC") == 0 || strcmp(c->format, "AVIF") == 0 ? 4 : 60;
        for (int round = 0; round < rounds; round++) {
            unsigned char *bytes = malloc(c->length);
            outcome first, second;
            assert_non_null(bytes);
            memcpy(bytes, c->bytes, c->length);
            for (int k = round % 4; round && k >= 0; k--) bytes[next_random((uint32_t)c->length)] = (unsigned char)next_random(256);
            mallopt(M_PERTURB, 0xA5);
            first = decode(bytes, c->length);
            mallopt(M_PERTURB, 0x3C);
            second = decode(bytes, c->length);
            mallopt(M_PERTURB, 0);
            free(bytes);
            if (first.good != second.good || first.hash != second.hash || strcmp(first.why.text, second.why.text) != 0)
                fail_msg("%s, damaged for the %d. time: '%s' and '%s'", c->file, round, first.why.text, second.why.text);
        }
    }
#else
    skip();
#endif
}

static void *decode_all(void *user) {
    size_t *bad = user;
    for (size_t i = 0; i < case_count; i++) {
        const picture_case *c = &cases[i];
        outcome o;
        if (!is_built_in(c->format) || (strcmp(c->format, "JPEG") == 0 && !has_turbo())) continue;
        o = decode(c->bytes, c->length);
        *bad += c->wrong ? o.good || !strstr(o.why.text, c->words) : !o.good || (!c->about && o.hash != c->hash);
    }
    return NULL;
}

static void any_number_of_threads_may_decode(void **state) {
    enum { THREADS = 6 };
    pthread_t threads[THREADS];
    size_t bad[THREADS] = {0};
    (void)state;
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, decode_all, &bad[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(bad[i], 0);
    }
}

/* ---- orientation ---- */

static uint32_t orientation_of(const char *bytes, size_t length) {
    decode_bytes exif;
    exif.data = (const unsigned char *)bytes;
    exif.length = length;
    return exif_orientation(exif);
}

static void orientation_in_every_form(void **state) {
    static const struct {
        const char *bytes;
        size_t length;
        uint32_t orientation;
    } forms[] = {
        {"II*\0\10\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0", 22, 6},
        {"MM\0*\0\0\0\10\0\1\1\x12\0\3\0\0\0\1\0\6\0\0", 22, 6},
        {"Exif\0\0MM\0*\0\0\0\10\0\1\1\x12\0\3\0\0\0\1\0\3\0\0", 28, 3},
        {"Exif\0\0Exif\0\0MM\0*\0\0\0\10\0\1\1\x12\0\3\0\0\0\1\0\3\0\0", 34, 3},
        {"MM\0*\0\0\0\10\0\1\1\x12\0\4\0\0\0\1\0\0\0\5", 22, 5}, /* LONG */
        {"MM\0*\0\0\0\10\0\1\1\x12\0\1\0\0\0\1\7\0\0\0", 22, 7},  /* BYTE */
        {"MM\0*\0\0\0\10\0\1\1\x12\0\2\0\0\0\1\7\0\0\0", 22, 1},  /* ASCII */
        {"MM\0*\0\0\0\10\0\1\1\x12\0\3\0\0\0\2\0\6\0\0", 22, 1},  /* two of them */
        {"MM\0*\0\0\0\10\0\1\1\x12\0\3\0\0\0\1\0\0\0\0", 22, 1},  /* 0 */
        {"MM\0*\0\0\0\10\0\1\1\x12\0\3\0\0\0\1\0\11\0\0", 22, 1}, /* 9 */
        {"MM\0*\0\0\0\10\0\2\1\x10\0\3\0\0\0\1\0\6\0\0\1\x12\0\3\0\0\0\1\0\x8\0\0", 34, 8}, /* the second entry */
        {"MM\0*\0\0\0\10\0\2\1\x10\0\3\0\0\0\1\0\6\0\0\1\x12\0\3\0\0\0\1\0\x8\0", 33, 0},   /* cut short */
        {"MM\0*\0\0\0\10\0\1\1\x13\0\3\0\0\0\1\0\6\0\0", 22, 0},  /* another tag */
        {"MM\0*\xFF\xFF\xFF\xFF\0\1\1\x12\0\3\0\0\0\1\0\6\0\0", 22, 0},
        {"MM\0*\0\0\0\x15\0\1\1\x12\0\3\0\0\0\1\0\6\0\0", 22, 0},
        {"MM\0+\0\0\0\10\0\1\1\x12\0\3\0\0\0\1\0\6\0\0", 22, 0},
        {"MM\0*\0\0\0", 7, 0},
        {"", 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        char *exact = malloc(forms[i].length + 1);
        assert_non_null(exact);
        memcpy(exact, forms[i].bytes, forms[i].length);
        if (orientation_of(exact, forms[i].length) != forms[i].orientation) fail_msg("form %zu", i);
        free(exact);
    }
}

static void orientation_in_xmp(void **state) {
    static const struct {
        const char *text;
        uint32_t orientation;
    } texts[] = {{"<a tiff:Orientation=\"6\"/>", 6}, {"<tiff:Orientation>8</tiff:Orientation>", 8}, {"ttttiff:Orientation=\"2\"", 2}, {"tiff:Orientation='6'", 0},
                 {"tiff:Orientation tiff:Orientation=\"3\"", 3}, {"tiff:Orientation=\"9\"", 1}, {"tiff:Orientation=\"", 0}, {"tiff:Orientatio", 0}, {"", 0}};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        decode_bytes xmp;
        xmp.data = (const unsigned char *)texts[i].text;
        xmp.length = strlen(texts[i].text);
        assert_int_equal(xmp_orientation(xmp), texts[i].orientation);
    }
}

/* ---- limits ---- */

/* Heads of a few bytes that claim what their file cannot hold, or more than anything may. */
static void claims_are_believed_as_far_as_the_bytes_go(void **state) {
    static const struct {
        const char *bytes;
        size_t length;
        const char *words;
    } heads[] = {
        {"P5 20000 9000 255\n", 18, "before its pixels do"},
        {"P5 0 5 255\n", 11, "0 x 5"},
        {"P5 5 5 0\n", 9, "largest value"},
        {"P5 5 5 65536\n", 13, "largest value"},
        {"P5 99999999999 5 255\n", 21, "header is damaged"},
        {"P2 2 1 9\n1 x", 12, "no number"},
        {"P2 2 1 9\n1 10 ", 14, "a sample of 10"},
        {"P1 2 1\n1 2", 10, "no bit"},
        {"\0\0\2\0\0\0\0\0\0\0\0\0\xFF\x7F\xFF\x7F\30\0", 18, "before its pixels do"},
        {"\0\0\12\0\0\0\0\0\0\0\0\0\xFF\x7F\xFF\x7F\30\0", 18, "before its pixels do"},
        {"GIF89a\xFF\xFF\xFF\xFF\0\0\0,\0\0\0\0\xFF\xFF\xFF\xFF\0\7", 24, "limit is 178956970"},
        {"GIF89a\1\0\1\0\0\0\0;", 14, "no picture in it"},
        {"GIF89a\1\0\1\0\0\0\0,\0\0\0\0\0\0\0\0\0\7", 24, "0 x 0"},
        {"\xFF\xD8\xFF\xC0\0\x0B\x08\xFF\xFF\xFF\xFF\1\1\x11\0\xFF\xDA\0\x08\1\1\0\0\x3F\0\0\0\xFF\xD9", 28, "before its pixels do"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        outcome o = decode((const unsigned char *)heads[i].bytes, heads[i].length);
        if (o.good || !strstr(o.why.text, heads[i].words)) fail_msg("head %zu: '%s', and not '%s'", i, o.why.text, heads[i].words);
    }
}

/* At a half, a quarter and an eighth, upright: the size that it says, and the means of the picture. Others stay as they are. */
static void a_jpeg_is_decoded_smaller(void **state) {
    size_t i, shrunk = 0;
    uint32_t parts;
    (void)state;
    for (i = 0; i < case_count; i++) {
        const picture_case *c = &cases[i];
        decode_bytes file = {c->bytes, c->length};
        const decoder *by = decode_find(file, 1);
        outcome whole;
        if (c->wrong || c->about || !by || !is_built_in(c->format)) continue;
        whole = decode(c->bytes, c->length);
        for (parts = 2; parts <= 8; parts *= 2) {
            decode_info info;
            decode_pixels pixels;
            decode_reason why;
            outcome o;
            memset(&o, 0, sizeof o);
            assert_true(decode_look(by, file, &info, &why));
            decode_shrink(by, &info, (info.width + parts - 1) / parts, (info.height + parts - 1) / parts);
            assert_int_equal(info.eighths, by->shrinks ? 8 / parts : 0);
            if (!by->shrinks) continue;
            assert_int_equal(info.width, (whole.width + parts - 1) / parts);
            assert_int_equal(info.height, (whole.height + parts - 1) / parts);
            if (!decode_load(by, file, &info, &pixels, &why)) fail_msg("%s: %s", c->file, why.text);
            look_at(&pixels, &o);
            assert_true(o.width == info.width && o.height == info.height);
            for (int k = 0; k < 3; k++)
                if (!(fabs(o.means[k] - whole.means[k]) < 6)) fail_msg("%s: 1/%u: a mean of %f, not %f", c->file, parts, o.means[k], whole.means[k]);
            free(pixels.data);
            shrunk++;
            decode_look(by, file, &info, &why); /* one pixel more is asked for than a half has */
            decode_shrink(by, &info, (info.width + 1) / 2 + 1, 1);
            assert_int_equal(info.eighths, 0);
        }
    }
    assert_true(!decode_jpeg.shrinks || shrunk > 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_picture_has_the_pixels_of_pillow),
        cmocka_unit_test(jpegs_without_libjpeg),
        cmocka_unit_test(a_file_that_is_cut_short_is_an_error),
        cmocka_unit_test(a_picture_of_another_size_than_its_box_says_is_an_error),
        cmocka_unit_test(every_header_has_the_same_picture),
        cmocka_unit_test(masks_within_every_header),
        cmocka_unit_test(other_compressions_are_an_error),
        cmocka_unit_test(damaged_files_give_the_same_on_every_run),
        cmocka_unit_test(any_number_of_threads_may_decode),
        cmocka_unit_test(orientation_in_every_form),
        cmocka_unit_test(orientation_in_xmp),
        cmocka_unit_test(claims_are_believed_as_far_as_the_bytes_go),
        cmocka_unit_test(a_jpeg_is_decoded_smaller),
    };
    return cmocka_run_group_tests_name("pictures", tests, read_cases, free_cases);
}
