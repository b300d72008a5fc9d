/* Any bytes as tokenizer.json and, behind the first zero byte, tokenizer_config.json; behind the second one, vocab.json takes the place of the
   first, and merges.txt follows. What is accepted tokenizes texts into ids that it has, and turns every id back into UTF-8. */
#define MEGAVIT_TEXT
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "fuzz.h"

static void check_tokenizer(const mgv_tokenizer *tokenizer) {
    static const char *const texts[] = {"", "a b  c\n", "A\xC3\x84 e\xCC\x81\xE2\x96\x81 \xF0\x9F\x98\x80'll 12", "<a></w> aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    mgv_tokenizer_info info;
    mgv_error error;
    uint32_t ids[2048], id;
    uint64_t count, bytes, at;
    char *text = (char *)malloc(1 << 20);
    size_t i, length;
    REQUIRE(mgv_tokenizer_get_info(tokenizer, &info) == MGV_OK && info.vocabulary > 0);
    for (i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        mgv_result result = mgv_tokenize(tokenizer, texts[i], strlen(texts[i]), 0, ids, 2048, &count, &error);
        REQUIRE(result == MGV_OK || result == MGV_ERROR_MODEL || result == MGV_ERROR_NOMEM || result == MGV_ERROR_CAPACITY);
        for (at = 0; result == MGV_OK && at < count; at++) REQUIRE(ids[at] < info.vocabulary);
    }
    for (id = 0; id < info.vocabulary && id < 300; id++) {
        mgv_result result = mgv_detokenize(tokenizer, NULL, &id, 1, MGV_DETOKENIZE_SPECIAL, text, 1 << 20, &bytes, &error);
        REQUIRE(result == MGV_OK || result == MGV_ERROR_NOMEM || result == MGV_ERROR_CAPACITY);
        for (at = 0; result == MGV_OK && at < bytes; at += length) {
            length = mgv__utf8_length(text + at, (size_t)(bytes - at));
            REQUIRE(length > 0);
        }
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const names[2][3] = {{"tokenizer.json", "tokenizer_config.json", ""}, {"vocab.json", "tokenizer_config.json", "merges.txt"}};
    fuzz_allocator counts;
    mgv_memory_file files[3];
    mgv_model_desc desc;
    mgv_tokenizer *tokenizer;
    mgv_error error;
    mgv_result result;
    const uint8_t *p = data, *end = data + size, *zero;
    uint32_t count = 0, i;
    memset(&desc, 0, sizeof desc);
    while (count < 3) { /* copies of their own size, so that the sanitizer sees every byte too far */
        size_t bytes;
        char *copy;
        zero = count < 2 && p < end ? (const uint8_t *)memchr(p, 0, (size_t)(end - p)) : NULL;
        bytes = (size_t)((zero ? zero : end) - p);
        copy = (char *)malloc(bytes + 1);
        if (bytes) memcpy(copy, p, bytes);
        files[count].data = copy;
        files[count++].bytes = bytes;
        if (zero == NULL) break;
        p = zero + 1;
    }
    for (i = 0; i < count; i++) files[i].name = names[count == 3][i];
    desc.memory_files = files;
    desc.memory_file_count = count;
    desc.allocator = fuzz_allocator_make(&counts, data, size);
    result = mgv_tokenizer_open(&tokenizer, &desc, MGV_LOWER_CASE_AUTO, &error);
    REQUIRE(result == MGV_OK || result == MGV_ERROR_FORMAT || result == MGV_ERROR_UNSUPPORTED || result == MGV_ERROR_IO ||
            (result == MGV_ERROR_NOMEM && counts.failed));
    REQUIRE(counts.peak_bytes <= 4 * size + 131072);
    if (result == MGV_OK) check_tokenizer(tokenizer);
    mgv_tokenizer_close(tokenizer);
    REQUIRE(counts.live_bytes == 0);
    for (i = 0; i < count; i++) free((void *)(uintptr_t)files[i].data);
    return 0;
}
