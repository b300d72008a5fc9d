/* Orientation: any bytes as EXIF data and as XMP. */
#include "tools/decode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    decode_bytes bytes;
    bytes.data = data;
    bytes.length = size;
    if (exif_orientation(bytes) > 8 || xmp_orientation(bytes) > 8) __builtin_trap();
    return 0;
}
