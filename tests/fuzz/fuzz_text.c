/* Any bytes as a text, or as ids, for each of the stored tokenizers: the first byte says which. A text that is taken gives ids that exist; ids
   give UTF-8, and the same in one call as in several where no bytes are broken. */
#define MEGAVIT_TEXT
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "fuzz.h"

static const char *const folders[] = {"gemma", "qwen", "qwen3_5", "clip", "unigram", "gpt2", "llama"};
enum { FOLDERS = sizeof folders / sizeof folders[0] };

static const mgv_tokenizer *stored(uint8_t which) {
    static mgv_tokenizer *tokenizers[FOLDERS];
    char path[64];
    mgv_model_desc desc;
    mgv_error error;
    which = (uint8_t)(which % FOLDERS);
    if (tokenizers[which] != NULL) return tokenizers[which];
    memset(&desc, 0, sizeof desc);
    snprintf(path, sizeof path, "tests/golden/tokenizers/%s", folders[which]);
    desc.path = path;
    REQUIRE(mgv_tokenizer_open(&tokenizers[which], &desc, MGV_LOWER_CASE_AUTO, &error) == MGV_OK);
    return tokenizers[which];
}
static int is_utf8(const char *text, size_t bytes) {
    size_t at, length;
    for (at = 0; at < bytes; at += length) {
        length = mgv__utf8_length(text + at, bytes - at);
        if (length == 0) return 0;
    }
    return 1;
}
static void check_ids(const mgv_tokenizer *tokenizer, const uint32_t *ids, uint64_t count) {
    size_t room = 64 * (size_t)count + 64, total = 0;
    char *whole = (char *)malloc(room), *parts = (char *)malloc(room);
    uint64_t bytes, part, i;
    mgv_detokenize_state state;
    mgv_error error;
    memset(&state, 0, sizeof state);
    REQUIRE(mgv_detokenize(tokenizer, NULL, ids, count, MGV_DETOKENIZE_SPECIAL, whole, room, &bytes, &error) == MGV_OK);
    REQUIRE(is_utf8(whole, (size_t)bytes));
    for (i = 0; i < count; i++) {
        const uint32_t flags = MGV_DETOKENIZE_SPECIAL | (i + 1 < count ? MGV_DETOKENIZE_MORE : 0);
        REQUIRE(mgv_detokenize(tokenizer, &state, ids + i, 1, flags, parts + total, room - total, &part, &error) == MGV_OK);
        REQUIRE(is_utf8(parts + total, (size_t)part));
        total += (size_t)part;
    }
    if (mgv__find_bytes(whole, whole + bytes, "\xEF\xBF\xBD", 3) == NULL && tokenizer->suffix[0] == 0) {
        REQUIRE(total == bytes && memcmp(whole, parts, total) == 0);
    }
    free(whole);
    free(parts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const mgv_tokenizer *tokenizer;
    mgv_tokenizer_info info;
    uint32_t *ids;
    uint64_t count, i;
    mgv_error error;
    if (size == 0 || size > 4096) return 0;
    tokenizer = stored(data[0]);
    REQUIRE(mgv_tokenizer_get_info(tokenizer, &info) == MGV_OK);
    ids = (uint32_t *)malloc((16 * size + 16) * sizeof *ids);
    if (data[0] & 128) {
        count = (size - 1) / 2;
        for (i = 0; i < count; i++) ids[i] = (data[1 + 2 * i] + 256u * data[2 + 2 * i]) % info.vocabulary;
        check_ids(tokenizer, ids, count);
    } else {
        mgv_result result = mgv_tokenize(tokenizer, (const char *)data + 1, size - 1, 0, ids, 16 * size + 16, &count, &error);
        REQUIRE((result == MGV_OK) == is_utf8((const char *)data + 1, size - 1) && (result == MGV_OK || result == MGV_ERROR_ARGUMENT));
        for (i = 0; i < count; i++) REQUIRE(ids[i] < info.vocabulary);
        check_ids(tokenizer, ids, count);
    }
    free(ids);
    return 0;
}
