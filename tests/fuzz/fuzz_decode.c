/* Picture files of all kinds but HEIC and AVIF. */
#define FUZZ_HEIF 0
#include "decode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    decode_twice(data, size);
    return 0;
}
