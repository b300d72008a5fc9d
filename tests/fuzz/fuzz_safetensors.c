/* Any bytes as a safetensors file. Of what is accepted, every tensor is read to its last byte. */
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "fuzz.h"

/* Most mutants of the raw bytes have a header length that fits nothing: three in four get one that does. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed) {
    uint64_t header_bytes = 0, data_bytes = seed >> 8 & 31;
    int i;
    size = LLVMFuzzerMutate(data, size, max_size);
    if (size < 8 || (seed & 3) == 0) return size;
    for (i = 7; i >= 0; i--) header_bytes = header_bytes << 8 | data[i];
    if (seed & 4 || header_bytes > size - 8) header_bytes = size - 8 > data_bytes ? size - 8 - data_bytes : 0;
    for (i = 0; i < 8; i++) data[i] = (uint8_t)(header_bytes >> (8 * i));
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_allocator counts;
    mgv_safetensors_desc desc;
    mgv_safetensors *file;
    mgv_error error;
    mgv_result result;
    uint8_t *copy;
    uint32_t i, found;
    if (size == 0) return 0;
    copy = (uint8_t *)malloc(size); /* ends where the input does */
    memcpy(copy, data, size);
    memset(&desc, 0, sizeof desc);
    desc.data = copy;
    desc.bytes = size;
    desc.allocator = fuzz_allocator_make(&counts, data, size);
    result = mgv_safetensors_open(&file, &desc, &error);
    REQUIRE(result == MGV_OK || result == MGV_ERROR_FORMAT || result == MGV_ERROR_UNSUPPORTED ||
            (result == MGV_ERROR_NOMEM && counts.failed));
    REQUIRE((result == MGV_OK) == (file != NULL));
    REQUIRE(result == MGV_OK || error.code == result);
    REQUIRE(counts.peak_bytes <= 4 * size + 1048576);
    counts.fail_at = 0;
    for (i = 0; i < mgv_safetensors_tensor_count(file); i++) {
        mgv_tensor_info info;
        uint8_t *bytes;
        REQUIRE(mgv_safetensors_get_tensor(file, i, &info) == MGV_OK);
        REQUIRE(info.bytes <= size && info.offset <= size - info.bytes);
        bytes = (uint8_t *)malloc((size_t)info.bytes + 1);
        REQUIRE(mgv_safetensors_read(file, i, bytes, info.bytes, &error) == MGV_OK);
        REQUIRE(memcmp(bytes, data + info.offset, (size_t)info.bytes) == 0);
        free(bytes);
        REQUIRE(mgv_safetensors_find(file, info.name, &found) == MGV_OK && found == i);
    }
    for (i = 0; i < mgv_safetensors_metadata_count(file); i++) {
        const char *key, *value;
        REQUIRE(mgv_safetensors_get_metadata(file, i, &key, &value) == MGV_OK);
        REQUIRE(strlen(key) + strlen(value) < size);
    }
    mgv_safetensors_close(file);
    REQUIRE(counts.live_bytes == 0);
    free(copy);
    return 0;
}
