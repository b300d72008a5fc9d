/* A whole block of packed weights, read in parts of so many bytes, a multiple of 32, as an engine reads them. */
#ifndef MGV_TESTS_PACKED_WHOLE_H
#define MGV_TESTS_PACKED_WHOLE_H

static inline mgv_result packed_whole(const mgv__packed_source *source, const mgv_allocator *allocator, const mgv_parallel_for *parallel,
                                      const mgv__plan *plan, uint64_t each, uint8_t *block, mgv_error *error) {
    mgv__packed_reader reader;
    mgv_result result = mgv__packed_open(&reader, source, allocator, parallel, plan, error);
    while (result == MGV_OK && reader.at < reader.bytes) {
        const uint64_t left = reader.bytes - reader.at;
        result = mgv__packed_next(&reader, block + reader.at, (size_t)(left < each ? left : each), error);
    }
    if (result == MGV_OK) result = mgv__packed_prove(&reader, error);
    mgv__packed_close(&reader);
    return result;
}

#endif
