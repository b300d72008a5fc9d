/* HEIC and AVIF files. Where a damaged file does not code a part of the picture, libde265 gives what its memory held: nothing is compared.
   libheif tells the fuzzer nothing of how far an input came, so each begins anew as one of the last pictures that were good, a few of its
   bytes changed. */
#define FUZZ_HEIF 1
#include "decode.h"

enum { GOOD = 8, MOST_BYTES = 4096, WINDOW = 64 };
static uint8_t good[GOOD][MOST_BYTES];
static size_t good_size[GOOD];
static unsigned good_count;

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed) {
    const unsigned from = seed / 100 % GOOD;
    size_t at;
    if (seed % 100 == 0 || good_size[from] <= WINDOW || good_size[from] > max_size) return LLVMFuzzerMutate(data, size, max_size);
    size = good_size[from];
    memcpy(data, good[from], size);
    for (unsigned more = 0; more <= seed % 3; more++) {
        at = (seed >> more) / 3 % (size - WINDOW);
        LLVMFuzzerMutate(data + at, WINDOW, WINDOW);
    }
    return seed % 10 ? size : at + LLVMFuzzerMutate(data + at, size - at, max_size - at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    decode_pixels pixels;
    if (decode(data, size, &pixels) && size <= MOST_BYTES) {
        memcpy(good[good_count % GOOD], data, size);
        good_size[good_count++ % GOOD] = size;
    }
    free(pixels.data);
    return 0;
}
