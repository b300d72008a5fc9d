/* Picture files of all kinds but HEIC and AVIF: the same pixels for the same bytes. */
#define FUZZ_HEIF 0
#include "decode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    decode_pixels first, second;
    int good = decode(data, size, &first);
    require(decode(data, size, &second) == good);
    if (good) {
        require(first.width == second.width && first.height == second.height && first.channels == second.channels);
        require(memcmp(first.data, second.data, (size_t)first.width * first.height * first.channels) == 0);
    }
    free(first.data);
    free(second.data);
    return 0;
}
