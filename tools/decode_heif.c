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
    uint64_t coded;
    if (!heif_read_boxes(file, &coded, why)) return 0;
    context = heif_context_alloc();
    if (!context) return decode_no_memory(why);
    handle = open_picture(context, file, why);
    if (handle) {
        int width = heif_image_handle_get_width(handle), height = heif_image_handle_get_height(handle);
        out->width = width > 0 ? (uint32_t)width : 0;
        out->height = height > 0 ? (uint32_t)height : 0;
        out->memory = (uint64_t)out->width * out->height * 16 + 1048576; /* the result, libheif's own, planes of up to 16 bits, tiles */
        if (coded > (uint64_t)out->width * out->height) out->memory += coded * 12;
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
