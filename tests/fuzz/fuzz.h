/* What the fuzzers share: a check that cannot be compiled out, and an allocator that counts and sometimes fails. */
#ifndef MGV_FUZZ_H
#define MGV_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);

#define REQUIRE(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
            abort(); \
        } \
    } while (0)

/* The bytes of an input, one choice after the other. */
typedef struct fuzz_input {
    const uint8_t *data;
    size_t size, at;
} fuzz_input;
/* A number in [least, most], at most 256 of them; zeros follow the last byte. */
static inline uint32_t fuzz_take(fuzz_input *in, uint32_t least, uint32_t most) {
    const uint32_t byte = in->at < in->size ? in->data[in->at] : 0;
    in->at++;
    return least + byte % (most - least + 1);
}
/* One in so many. */
static inline int fuzz_rarely(fuzz_input *in, uint32_t many) { return fuzz_take(in, 0, many - 1) == many - 1; }
/* A number at which something may end. */
static inline uint32_t fuzz_extreme(fuzz_input *in) {
    static const uint32_t numbers[] = {0, 1, 2, 3, 4, 5, 7, 8, 13, 16, 31, 32, 63, 64, 65, 96, 127, 128, 192, 255, 256, 257, 511, 512, 1000,
                                       1023, 1024, 1025, 4095, 4096, 16383, 16384, 16385, 65535, 65536, 65537, 1048575, 1048576, 1048577,
                                       16777216, 16777217, 2147483647u, 2147483648u, 4294967294u, 4294967295u};
    return numbers[fuzz_take(in, 0, sizeof numbers / sizeof numbers[0] - 1)];
}

static inline uint64_t fuzz_hash(const uint8_t *data, size_t size) { /* FNV-1a */
    uint64_t hash = 0xCBF29CE484222325u;
    size_t i;
    for (i = 0; i < size; i++) hash = (hash ^ data[i]) * 0x100000001B3u;
    return hash;
}

/* Blocks lie so, 49 bytes behind a multiple of 64, that mgv__alloc puts its result at the very end of them: the sanitizer
   then sees every byte too far. For one input in four, one of the first allocations fails: which, the input's bytes decide. */
typedef struct fuzz_allocator {
    uint64_t calls, fail_at;
    size_t live_bytes, peak_bytes;
    int failed;
} fuzz_allocator;

static inline void *fuzz_alloc(void *user, size_t bytes) {
    fuzz_allocator *counts = (fuzz_allocator *)user;
    void *block;
    if (++counts->calls == counts->fail_at) {
        counts->failed = 1;
        return NULL;
    }
    if (posix_memalign(&block, 64, 49 + bytes) != 0) return NULL;
    counts->live_bytes += bytes;
    if (counts->live_bytes > counts->peak_bytes) counts->peak_bytes = counts->live_bytes;
    return (char *)block + 49;
}
static inline void fuzz_free(void *user, void *memory, size_t bytes) {
    ((fuzz_allocator *)user)->live_bytes -= bytes;
    free((char *)memory - 49);
}
static inline mgv_allocator fuzz_allocator_make(fuzz_allocator *counts, const uint8_t *data, size_t size) {
    uint64_t hash = fuzz_hash(data, size);
    mgv_allocator allocator;
    memset(counts, 0, sizeof *counts);
    if ((hash & 3) == 0) counts->fail_at = 1 + (hash >> 2) % 20;
    allocator.user = counts;
    allocator.alloc = fuzz_alloc;
    allocator.free = fuzz_free;
    return allocator;
}

#endif
