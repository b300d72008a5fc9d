/* Any bytes as a file of packed weights. What is accepted is, byte for byte, what a packer would have written of that block. */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_PLAN
#include "megavit.h"
#include "fuzz.h"
#include "../packed_whole.h"

enum { WEIGHT_BYTES = 64, VECTOR_BYTES = 1024, MODEL_HASH = 0x5EED };

/* A plan of one operation and hardly any weights. */
static void make_plan(mgv__plan *plan) {
    memset(plan, 0, sizeof *plan);
    plan->machine = MGV__MACHINE_DEFAULT;
    plan->weights_offset = VECTOR_BYTES;
    plan->weight_bytes = WEIGHT_BYTES;
    plan->op_count = 1;
    plan->ops[0].label = "qkv";
}

static void sign(uint8_t *data, uint32_t at, uint64_t hash) {
    int i;
    for (i = 0; i < 8; i++) data[at + (uint32_t)i] = (uint8_t)(hash >> 8 * i);
}

/* Most mutants have wrong hashes: three in four get right ones, most of these the right sizes and owners too. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed) {
    const size_t whole = MGV__PACKED_HEADER + VECTOR_BYTES + WEIGHT_BYTES;
    mgv__packed_header wanted;
    mgv__plan plan;
    size = LLVMFuzzerMutate(data, size, max_size);
    if ((seed & 3) == 0 || max_size < whole) return size;
    if (seed & 4) {
        if (size < whole) memset(data + size, 0, whole - size);
        size = whole;
    }
    if (size < MGV__PACKED_HEADER) return size;
    if (seed & 8) {
        make_plan(&plan);
        mgv__packed_describe(&wanted, &plan, MODEL_HASH);
        mgv__packed_write_header(data, &wanted);
        if (seed & 16) data[(seed >> 8) % MGV__PACKED_HEADER] ^= (uint8_t)(1u << (seed >> 16) % 8);
    }
    sign(data, 64, mgv__hash_of(data + MGV__PACKED_HEADER, size - MGV__PACKED_HEADER));
    sign(data, MGV__PACKED_HEADER - 8, mgv__hash_of(data, MGV__PACKED_HEADER - 8));
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static mgv__plan plan;
    unsigned char header_bytes[MGV__PACKED_HEADER];
    mgv__packed_header header;
    mgv__packed_source source;
    fuzz_allocator counts;
    mgv_allocator allocator = fuzz_allocator_make(&counts, data, size);
    mgv_error error;
    mgv_result result;
    uint8_t *copy = (uint8_t *)malloc(size ? size : 1), *block; /* ends where the input does */
    if (size == 0) {
        free(copy);
        return 0;
    }
    memcpy(copy, data, size);
    make_plan(&plan);
    block = (uint8_t *)malloc((size_t)mgv__plan_packed_bytes(&plan));
    memset(&source, 0, sizeof source);
    source.data = copy;
    source.bytes = size;
    source.model_hash = MODEL_HASH;
    result = packed_whole(&source, &allocator, NULL, &plan, UINT64_MAX, block, &error);
    REQUIRE(result == MGV_OK || result == MGV_ERROR_FORMAT || result == MGV_ERROR_MODEL || (result == MGV_ERROR_NOMEM && counts.failed));
    REQUIRE(result == MGV_OK || (error.code == result && error.message[0]));
    REQUIRE(counts.live_bytes == 0);
    if (result == MGV_OK) {
        REQUIRE(size == MGV__PACKED_HEADER + mgv__plan_packed_bytes(&plan));
        REQUIRE(memcmp(block, data + MGV__PACKED_HEADER, size - MGV__PACKED_HEADER) == 0);
        mgv__packed_describe(&header, &plan, MODEL_HASH);
        header.block_hash = mgv__hash_of(block, size - MGV__PACKED_HEADER);
        mgv__packed_write_header(header_bytes, &header);
        REQUIRE(memcmp(header_bytes, data, MGV__PACKED_HEADER) == 0);
    }
    free(block);
    free(copy);
    return 0;
}
