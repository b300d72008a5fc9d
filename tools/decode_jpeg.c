/* JPEG through libjpeg-turbo, whose pixels are then those of Pillow; through stb_image where it is not there. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tools/decode.h"
#ifdef MEGAVIT_JPEG
#include <jpeglib.h>
#include <jerror.h>
#else
#include "tools/stb.h"
#endif

/* ---- markers ---- */

enum {
    MOST_COMPONENTS = 4,
    TEM = 0x01, SOF0 = 0xC0, DHT = 0xC4, JPG = 0xC8, DAC = 0xCC, SOF15 = 0xCF, RST0 = 0xD0, EOI = 0xD9, SOS = 0xDA, APP1 = 0xE1, APP14 = 0xEE
};

static int is_frame(int marker) { return marker >= SOF0 && marker <= SOF15 && marker != DHT && marker != JPG && marker != DAC; }

/* The next marker at or behind `at`, which may stand in a scan's data; its place behind it, or 0 at the end. */
static size_t next_marker(decode_bytes file, size_t at, int *marker) {
    while (at < file.length) {
        const unsigned char *found = memchr(file.data + at, 0xFF, file.length - at);
        if (!found) return 0;
        at = (size_t)(found - file.data) + 1;
        if (at < file.length && file.data[at] != 0 && file.data[at] != 0xFF) {
            *marker = file.data[at];
            return at + 1;
        }
    }
    return 0;
}

static int read_frame(decode_bytes segment, int marker, jpeg_outline *outline, unsigned char *ids, decode_reason *why) {
    if (outline->components) return decode_fail(why, "there are two frames in it");
    if (segment.length < 6 || segment.length < 6 + 3 * (size_t)segment.data[5]) return decode_cut_short(why);
    outline->height = decode_big16(segment.data + 1);
    outline->width = decode_big16(segment.data + 3);
    outline->components = segment.data[5];
    outline->progressive = (marker & 3) == 2;
    outline->arithmetic = marker > DAC;
    if (outline->components == 0 || outline->components > MOST_COMPONENTS)
        return decode_fail(why, "a JPEG of %u components", (unsigned)outline->components);
    for (uint32_t i = 0; i < outline->components; i++) ids[i] = segment.data[6 + 3 * i];
    return 1;
}

/* Which components this scan brings; of a progressive picture only a first scan counts. */
static void note_scan(decode_bytes segment, size_t at, jpeg_outline *outline, const unsigned char *ids) {
    uint32_t count = segment.length ? segment.data[0] : 0;
    if (!outline->first_scan) outline->first_scan = at;
    if (segment.length < 4 + 2 * (size_t)count || (outline->progressive && segment.data[1 + 2 * count] != 0)) return;
    for (uint32_t k = 0; k < count; k++)
        for (uint32_t i = 0; i < outline->components; i++)
            if (ids[i] == segment.data[1 + 2 * k]) outline->scans |= 1u << i;
}

#ifndef MEGAVIT_JPEG
/* stb_image writes behind its tables where there are more codes than 256. */
static int are_codes_few(decode_bytes segment) {
    for (size_t at = 0; segment.length - at >= 17;) {
        size_t sum = 0;
        for (int i = 1; i <= 16; i++) sum += segment.data[at + (size_t)i];
        if (sum > 256 || segment.length - at - 17 < sum) return 0;
        at += 17 + sum;
    }
    return 1;
}
#endif

static void note_application(decode_bytes segment, int marker, jpeg_outline *outline) {
    static const char xmp[] = "http://ns.adobe.com/xap/1.0/"; /* and the zero behind it */
    if (marker == APP14 && segment.length >= 12 && decode_starts(segment, 0, "Adobe", 5)) outline->adobe = 1;
    if (marker != APP1) return;
    if (!outline->exif.length && decode_starts(segment, 0, "Exif\0\0", 6)) outline->exif = segment;
    if (!outline->xmp.length && decode_starts(segment, 0, xmp, sizeof xmp)) outline->xmp = segment;
}

int jpeg_read_outline(decode_bytes file, jpeg_outline *outline, decode_reason *why) {
    unsigned char ids[MOST_COMPONENTS] = {0};
    size_t at = 2, behind;
    int marker = 0;
    memset(outline, 0, sizeof *outline);
    while ((behind = next_marker(file, at, &marker)) != 0 && marker != EOI) {
        decode_bytes segment;
        at = behind;
        if (marker == TEM || (marker >= RST0 && marker < EOI)) continue; /* markers without a segment; SOI among them */
        if (file.length - at < 2) break;
        segment = decode_part(file, at, decode_big16(file.data + at));
        if (segment.length < 2) break; /* cut short, or no segment: what is missing will show */
        at += segment.length;
        segment = decode_part(segment, 2, segment.length - 2);
        if (is_frame(marker) && !read_frame(segment, marker, outline, ids, why)) return 0;
        if (marker == SOS) note_scan(segment, behind - 2, outline, ids);
#ifndef MEGAVIT_JPEG
        if (marker == DHT && !are_codes_few(segment)) return decode_fail(why, "its code tables are damaged");
#endif
        note_application(segment, marker, outline);
    }
    if (!outline->components) return decode_fail(why, "there is no picture in it");
    if (outline->scans != (1u << outline->components) - 1) return decode_cut_short(why);
    return 1;
}

/* A block of 8 x 8 takes two bits at least, or one in a progressive picture: what a few bytes claim need not be tried. */
static int is_too_short(decode_bytes file, const jpeg_outline *outline) {
    uint64_t blocks = (((uint64_t)outline->width + 7) / 8) * (((uint64_t)outline->height + 7) / 8);
    return !outline->arithmetic && blocks / 8 * (outline->progressive ? 1 : 2) > file.length;
}

static int knows(decode_bytes file) { return decode_starts(file, 0, "\xFF\xD8\xFF", 3); }

static int look(decode_bytes file, jpeg_outline *outline, decode_info *info, decode_reason *why) {
    if (!jpeg_read_outline(file, outline, why)) return 0;
    if (is_too_short(file, outline)) return decode_cut_short(why);
    info->width = outline->width;
    info->height = outline->height;
    info->orientation = exif_orientation(outline->exif);
    if (!info->orientation) info->orientation = xmp_orientation(outline->xmp);
    return 1;
}

#ifdef MEGAVIT_JPEG

/* ---- libjpeg-turbo ---- */

typedef struct reader {
    struct jpeg_error_mgr base; /* first: libjpeg hands its address on */
    jmp_buf back;
    decode_reason *why;
    int many_scans; /* so the end of the file must be that of the picture */
} reader;

static void fail_and_leave(j_common_ptr common) {
    reader *r = (reader *)common->err;
    char text[JMSG_LENGTH_MAX];
    r->base.format_message(common, text);
    if (r->base.msg_code == JERR_OUT_OF_MEMORY) decode_no_memory(r->why);
    else decode_fail(r->why, "%s", text);
    longjmp(r->back, 1);
}

/* What libjpeg goes on after with pixels that are not those of the picture. Bytes that nobody needs between scans and marks are harmless,
   and so is a file that ends behind its only scan. */
static void weigh_warning(j_common_ptr common, int level) {
    reader *r = (reader *)common->err;
    if (level >= 0) return;
    switch (r->base.msg_code) {
    case JWRN_ADOBE_XFORM:
    case JWRN_EXTRANEOUS_DATA:
    case JWRN_JFIF_MAJOR:
    case JWRN_NOT_SEQUENTIAL: return;
    case JWRN_JPEG_EOF:
        if (!r->many_scans) return;
        break;
    case JWRN_HIT_MARKER: break;
    default: fail_and_leave(common);
    }
    decode_cut_short(r->why);
    longjmp(r->back, 1);
}

static void say_nothing(j_common_ptr common) { (void)common; }

static void open_reader(reader *r, struct jpeg_decompress_struct *jpeg, decode_reason *why) {
    memset(r, 0, sizeof *r);
    memset(jpeg, 0, sizeof *jpeg);
    jpeg->err = jpeg_std_error(&r->base);
    r->base.error_exit = fail_and_leave;
    r->base.emit_message = weigh_warning;
    r->base.output_message = say_nothing;
    r->why = why;
}

/* Of a picture that comes in more than one scan libjpeg keeps all coefficients, two bytes each. */
static uint64_t coefficient_bytes(const struct jpeg_decompress_struct *jpeg) {
    uint64_t blocks = 0;
    for (int i = 0; i < jpeg->num_components; i++) {
        const jpeg_component_info *component = &jpeg->comp_info[i];
        uint64_t across = (uint64_t)8 * (unsigned)jpeg->max_h_samp_factor, down = (uint64_t)8 * (unsigned)jpeg->max_v_samp_factor;
        blocks += (jpeg->image_width / across + 1) * (unsigned)component->h_samp_factor * ((jpeg->image_height / down + 1) * (unsigned)component->v_samp_factor);
    }
    return blocks * 64 * 2;
}

static int info(decode_bytes file, decode_info *out, decode_reason *why) {
    struct jpeg_decompress_struct jpeg;
    jpeg_outline outline;
    reader r;
    if (!look(file, &outline, out, why)) return 0;
    open_reader(&r, &jpeg, why);
    if (setjmp(r.back)) {
        jpeg_destroy_decompress(&jpeg);
        return 0;
    }
    jpeg_create_decompress(&jpeg);
    jpeg_mem_src(&jpeg, file.data, (unsigned long)file.length);
    jpeg_read_header(&jpeg, TRUE);
    out->width = jpeg.image_width;
    out->height = jpeg.image_height;
    out->memory = (uint64_t)out->width * out->height * (jpeg.num_components == 1 ? 1 : 3) + (uint64_t)out->width * 256 + 65536;
    if (jpeg_has_multiple_scans(&jpeg)) out->memory += coefficient_bytes(&jpeg);
    jpeg_destroy_decompress(&jpeg);
    return 1;
}

/* Four components are taken for inverted, as Adobe stores them, whether a marker says so or not: so does Pillow, whose arithmetic this is
   (Convert.c, cmyk2rgb). */
static void cmyk_to_rgb(const unsigned char *cmyk, unsigned char *rgb, uint32_t count) {
    for (uint32_t x = 0; x < count; x++, cmyk += 4, rgb += 3)
        for (int k = 0; k < 3; k++) {
            unsigned product = (255u - cmyk[k]) * cmyk[3] + 128;
            rgb[k] = (unsigned char)(cmyk[3] - ((product >> 8) + product) / 256);
        }
}

static int pixels(decode_bytes file, const decode_info *known, decode_pixels *out, decode_reason *why) {
    struct jpeg_decompress_struct jpeg;
    unsigned char *volatile cmyk = NULL;
    reader r;
    open_reader(&r, &jpeg, why);
    if (setjmp(r.back)) {
        jpeg_destroy_decompress(&jpeg);
        free(cmyk);
        return 0;
    }
    jpeg_create_decompress(&jpeg);
    jpeg_mem_src(&jpeg, file.data, (unsigned long)file.length);
    jpeg_read_header(&jpeg, TRUE);
    jpeg.out_color_space = jpeg.num_components == 1 ? JCS_GRAYSCALE : jpeg.num_components == 4 ? JCS_CMYK : JCS_RGB;
    r.many_scans = jpeg_has_multiple_scans(&jpeg);
    if (known->eighths) {
        jpeg.scale_num = known->eighths;
        jpeg.scale_denom = 8;
    }
    jpeg_calc_output_dimensions(&jpeg);
    if (jpeg.output_width != known->width || jpeg.output_height != known->height) decode_fail(why, "libjpeg decodes it to another size");
    else if (jpeg.num_components == 4 && !(cmyk = malloc((size_t)known->width * 4))) decode_no_memory(why);
    else if (decode_reserve(out, known->width, known->height, jpeg.num_components == 1 ? 1 : 3, why)) jpeg_start_decompress(&jpeg);
    while (out->data && jpeg.output_scanline < jpeg.output_height) {
        unsigned char *row = out->data + (size_t)jpeg.output_scanline * out->width * out->channels;
        JSAMPROW target = cmyk ? cmyk : row;
        jpeg_read_scanlines(&jpeg, &target, 1);
        if (cmyk) cmyk_to_rgb(cmyk, row, out->width);
    }
    jpeg_destroy_decompress(&jpeg); /* without jpeg_finish_decompress: what comes behind the last row does not matter */
    free(cmyk);
    return out->data != NULL;
}

const decoder decode_jpeg = {"JPEG", "libjpeg-turbo " MEGAVIT_JPEG, "libjpeg-dev", knows, info, pixels, 1};

#else

/* ---- stb_image ---- */

static int info(decode_bytes file, decode_info *out, decode_reason *why) {
    jpeg_outline outline;
    if (!look(file, &outline, out, why)) return 0;
    out->memory = (uint64_t)out->width * out->height * (outline.progressive ? 12 : 8) + file.length;
    return 1;
}

/* An Adobe marker before the first scan tells stb_image that four components are CMYK, which without one it takes for YCbCr and more. */
static unsigned char *with_adobe_marker(decode_bytes file, size_t at, size_t *length) {
    static const unsigned char marker[16] = {0xFF, 0xEE, 0, 14, 'A', 'd', 'o', 'b', 'e', 0, 100, 0, 0, 0, 0, 0};
    unsigned char *copy = malloc(file.length + sizeof marker);
    if (!copy) return NULL;
    memcpy(copy, file.data, at);
    memcpy(copy + at, marker, sizeof marker);
    memcpy(copy + at + sizeof marker, file.data + at, file.length - at);
    *length = file.length + sizeof marker;
    return copy;
}

static int pixels(decode_bytes file, const decode_info *known, decode_pixels *out, decode_reason *why) {
    unsigned char *copy = NULL;
    jpeg_outline outline;
    int good;
    (void)known;
    if (!jpeg_read_outline(file, &outline, why)) return 0;
    if (outline.components == 4 && !outline.adobe) {
        copy = with_adobe_marker(file, outline.first_scan, &file.length);
        if (!copy) return decode_no_memory(why);
        file.data = copy;
    }
    good = stb_load(file, out, why);
    free(copy);
    return good;
}

const decoder decode_jpeg = {"JPEG", STB_LIBRARY, "libjpeg-dev", knows, info, pixels, 0};

#endif
