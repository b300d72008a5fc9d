/* Picture files: any bytes through the decoders that are ours or stand around a library. What comes out must be a picture of the size that
   was told; what is refused says why and leaves nothing. stb_image is watched by the sanitizers like our own
   code; libjpeg, libwebp, libtiff and libheif, which their authors fuzz, are linked as they are.

   FUZZ_HEIF: 1 for HEIC and AVIF alone, which take a hundred times as long; 0 for all others. */
#include <stdlib.h>
#include <string.h>
#include "tools/decode.h"

static void require(int condition) {
    if (!condition) __builtin_trap();
}

/* Whether it is a picture. */
static int decode(const uint8_t *data, size_t size, decode_pixels *pixels) {
    decode_bytes file;
    decode_info info;
    decode_reason why;
    const decoder *by;
    file.data = data;
    file.length = size;
    memset(pixels, 0, sizeof *pixels);
    by = decode_find(file, 1);
    if (!by || (by == &decode_heif || by == &decode_avif) != FUZZ_HEIF) return 0;
    if (!decode_look(by, file, &info, &why)) {
        require(why.text[0] != 0);
        return 0;
    }
    require(info.width > 0 && info.height > 0 && info.memory >= (uint64_t)info.width * info.height);
    if (info.memory > 1 << 22) return 0; /* what takes long finds little */
    if (!decode_load(by, file, &info, pixels, &why)) {
        require(why.text[0] != 0 && !pixels->data);
        return 0;
    }
    require(pixels->width == info.width && pixels->height == info.height && pixels->channels >= 1 && pixels->channels <= 4);
    return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
