/* HEIC and AVIF through libheif, which turns pictures itself as their boxes say: the EXIF tag is not applied again. What it takes for damage is
   an error; neither format has sums, and libde265 says nothing of parts of a picture that a damaged file does not code. */
#include <stdlib.h>
#include <string.h>
#include "tools/decode.h"

/* A brand of the file type box, the major one or a compatible one. */
static int has_brand(decode_bytes file, const char *const *brands) {
    size_t end;
    if (!decode_starts(file, 4, "ftyp", 4)) return 0;
    end = decode_big32(file.data);
    if (end > file.length) end = file.length;
    for (size_t at = 8; at + 4 <= end; at += at == 8 ? 8 : 4)
        for (size_t i = 0; brands[i]; i++)
            if (memcmp(file.data + at, brands[i], 4) == 0) return 1;
    return 0;
}

static int knows_avif(decode_bytes file) {
    static const char *const brands[] = {"avif", "avis", NULL};
    return has_brand(file, brands);
}
static int knows_heic(decode_bytes file) {
    static const char *const brands[] = {"heic", "heix", "hevc", "hevx", "heim", "heis", "mif1", "msf1", NULL};
    return has_brand(file, brands) && !knows_avif(file);
}

#ifdef MEGAVIT_HEIF
#include <libheif/heif.h>

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

static int references_end(decode_bytes file, decode_reason *why) {
    decode_bytes meta, box;
    char type[4];
    references r;
    int good = 1;
    memset(&r, 0, sizeof r);
    for (size_t at = 0; good && next_box(file, &at, type, &meta);) {
        if (memcmp(type, "meta", 4) != 0) continue;
        for (size_t in = 4; good && in <= meta.length && next_box(meta, &in, type, &box);)
            if (memcmp(type, "iref", 4) == 0) good = read_references(box, &r);
    }
    if (!good) decode_no_memory(why);
    if (good && r.count) {
        qsort(r.all, r.count, sizeof *r.all, by_from);
        r.steps = (uint64_t)r.count * MOST_DEPTH;
        for (size_t i = 0; good && i < r.count; i++)
            if (i == 0 || r.all[i].from != r.all[i - 1].from) good = follow(&r, r.all[i].from, 0);
        if (!good) decode_fail(why, "its pictures are made of each other without end");
    }
    free(r.all);
    return good;
}

/* ---- decoding ---- */

static int fail(struct heif_error error, decode_reason *why) {
    if (error.code == heif_error_Memory_allocation_error) return decode_no_memory(why);
    if (error.code == heif_error_Unsupported_filetype || error.code == heif_error_Unsupported_feature)
        return decode_fail(why, "%s (libheif may need a plug-in for this codec)", error.message);
    return decode_fail(why, "%s", error.message);
}

/* The handle of the picture that counts; NULL with the reason. */
static struct heif_image_handle *open_picture(struct heif_context *context, decode_bytes file, decode_reason *why) {
    struct heif_image_handle *handle = NULL;
    struct heif_error error;
    heif_context_set_max_decoding_threads(context, 0);
    error = heif_context_read_from_memory_without_copy(context, file.data, file.length, NULL);
    if (error.code == heif_error_Ok) error = heif_context_get_primary_image_handle(context, &handle);
    if (error.code == heif_error_Ok) return handle;
    fail(error, why);
    return NULL;
}

static int info(decode_bytes file, decode_info *out, decode_reason *why) {
    struct heif_context *context;
    struct heif_image_handle *handle;
    if (!references_end(file, why)) return 0;
    context = heif_context_alloc();
    if (!context) return decode_no_memory(why);
    handle = open_picture(context, file, why);
    if (handle) {
        int width = heif_image_handle_get_width(handle), height = heif_image_handle_get_height(handle);
        out->width = width > 0 ? (uint32_t)width : 0;
        out->height = height > 0 ? (uint32_t)height : 0;
        out->memory = (uint64_t)out->width * out->height * 16 + 1048576; /* the result, libheif's own, planes of up to 16 bits, tiles */
        heif_image_handle_release(handle);
    }
    heif_context_free(context);
    return handle != NULL;
}

/* What is coded may have another size than the box says that the caller reckons with. */
static int copy_rows(const struct heif_image *image, const decode_info *known, uint32_t channels, decode_pixels *out, decode_reason *why) {
    int width = heif_image_get_primary_width(image), height = heif_image_get_primary_height(image), stride = 0;
    const unsigned char *plane = heif_image_get_plane_readonly(image, heif_channel_interleaved, &stride);
    if (!plane) return decode_fail(why, "libheif gave no pixels");
    if (width <= 0 || height <= 0 || (uint32_t)width != known->width || (uint32_t)height != known->height)
        return decode_fail(why, "the file says %u x %u pixels and holds %d x %d", (unsigned)known->width, (unsigned)known->height, width,
                           height);
    if (!decode_reserve(out, known->width, known->height, channels, why)) return 0;
    for (int y = 0; y < height; y++)
        memcpy(out->data + (size_t)y * (size_t)width * channels, plane + (ptrdiff_t)y * stride, (size_t)width * channels);
    return 1;
}

static int decode_picture(const struct heif_image_handle *handle, const decode_info *known, decode_pixels *out,
                          decode_reason *why) {
    const int alpha = heif_image_handle_has_alpha_channel(handle);
    struct heif_decoding_options *options = heif_decoding_options_alloc();
    struct heif_image *image = NULL;
    struct heif_error error;
    int good;
    if (!options) return decode_no_memory(why);
    options->convert_hdr_to_8bit = 1;
    if (options->version >= 2) options->strict_decoding = 1;
    error = heif_decode_image(handle, &image, heif_colorspace_RGB, alpha ? heif_chroma_interleaved_RGBA : heif_chroma_interleaved_RGB, options);
    heif_decoding_options_free(options);
    if (error.code != heif_error_Ok) return fail(error, why);
    good = copy_rows(image, known, alpha ? 4 : 3, out, why);
    heif_image_release(image);
    return good;
}

static int pixels(decode_bytes file, const decode_info *known, decode_pixels *out, decode_reason *why) {
    struct heif_context *context = heif_context_alloc();
    struct heif_image_handle *handle;
    int good = 0;
    if (!context) return decode_no_memory(why);
    handle = open_picture(context, file, why);
    if (handle) {
        good = decode_picture(handle, known, out, why);
        heif_image_handle_release(handle);
    }
    heif_context_free(context);
    return good;
}

const decoder decode_heif = {"HEIC", "libheif " LIBHEIF_VERSION, "libheif-dev", knows_heic, info, pixels, 0};
const decoder decode_avif = {"AVIF", "libheif " LIBHEIF_VERSION, "libheif-dev", knows_avif, info, pixels, 0};
#else
const decoder decode_heif = {"HEIC", NULL, "libheif-dev", knows_heic, NULL, NULL, 0};
const decoder decode_avif = {"AVIF", NULL, "libheif-dev", knows_avif, NULL, NULL, 0};
#endif
