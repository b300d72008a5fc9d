/* Any bytes as a model's chat template, in one of the files that may hold it, or as a conversation: the first byte says which. A conversation
   that is taken is written in as many bytes as it says, with as many placeholders as its pictures have tokens. */
#define MEGAVIT_TEXT
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "fuzz.h"

enum { MOST_MESSAGES = 8, MOST_IMAGES = 3 };

static void check_template(const uint8_t *data, size_t size, unsigned kind) {
    static const char *const names[] = {"chat_template.jinja", "chat_template.json", "tokenizer_config.json"};
    fuzz_allocator counts;
    mgv_memory_file file;
    mgv_model_desc desc;
    mgv_error error;
    mgv_chat chat = MGV_CHATS;
    mgv_result result;
    char *copy = (char *)malloc(size + 1); /* of its own size, so that the sanitizer sees every byte too far */
    if (size) memcpy(copy, data, size);
    memset(&desc, 0, sizeof desc);
    file.name = names[kind % 3];
    file.data = copy;
    file.bytes = size;
    desc.memory_files = &file;
    desc.memory_file_count = 1;
    desc.allocator = fuzz_allocator_make(&counts, data, size);
    result = mgv_chat_open(&chat, &desc, &error);
    REQUIRE(result == MGV_OK || result == MGV_ERROR_FORMAT || result == MGV_ERROR_UNSUPPORTED || result == MGV_ERROR_MODEL ||
            (result == MGV_ERROR_NOMEM && counts.failed));
    REQUIRE((result == MGV_OK) == (chat > MGV_CHAT_PLAIN && chat < MGV_CHATS));
    REQUIRE(counts.live_bytes == 0);
    free(copy);
}

static uint64_t times(const char *text, uint64_t bytes, const char *word) {
    const uint64_t length = strlen(word);
    uint64_t found = 0, i;
    for (i = 0; i + length <= bytes; i++) found += memcmp(text + i, word, (size_t)length) == 0;
    return found;
}

static void check_conversation(const uint8_t *data, size_t size) {
    fuzz_input in = {data, size, 0};
    mgv_message messages[MOST_MESSAGES];
    mgv_grid grids[MOST_MESSAGES][MOST_IMAGES];
    char *texts[MOST_MESSAGES], *text;
    const uint32_t count = fuzz_take(&in, 0, MOST_MESSAGES), flags = fuzz_take(&in, 0, 3);
    const mgv_chat chat = (mgv_chat)fuzz_take(&in, 0, MGV_CHATS);
    uint64_t bytes = 0, again = 0, placeholders = 0;
    mgv_error error;
    mgv_result result;
    uint32_t i, k;
    memset(messages, 0, sizeof messages);
    memset(grids, 0, sizeof grids);
    for (i = 0; i < count; i++) {
        const uint32_t length = fuzz_take(&in, 0, 63);
        texts[i] = (char *)malloc(length ? length : 1);
        for (k = 0; k < length; k++) texts[i][k] = (char)fuzz_take(&in, 0, 255);
        messages[i].role = (int32_t)fuzz_take(&in, 0, 3) - fuzz_rarely(&in, 50);
        messages[i].text = texts[i];
        messages[i].bytes = length;
        messages[i].image_count = fuzz_rarely(&in, 3) ? fuzz_take(&in, 0, MOST_IMAGES) : 0;
        if (fuzz_rarely(&in, 2)) messages[i].grids = grids[i];
        for (k = 0; k < MOST_IMAGES; k++) grids[i][k].merged_tokens = fuzz_take(&in, 0, 9);
        for (k = 0; k < messages[i].image_count; k++) placeholders += messages[i].grids ? grids[i][k].merged_tokens : 1;
        if (chat != MGV_CHAT_QWEN3_VL || i == 0 || messages[i].role != MGV_ROLE_SYSTEM) placeholders += times(texts[i], length, "<|image_pad|>");
    }
    result = mgv_chat_write(chat, messages, count, flags, NULL, 0, &bytes, &error);
    REQUIRE(result == MGV_OK || result == MGV_ERROR_CAPACITY || result == MGV_ERROR_ARGUMENT || result == MGV_ERROR_UNSUPPORTED);
    if (result == MGV_OK || result == MGV_ERROR_CAPACITY) {
        text = (char *)malloc((size_t)bytes + 1);
        REQUIRE((result == MGV_OK) == (bytes == 0));
        REQUIRE(mgv_chat_write(chat, messages, count, flags, text, bytes, &again, &error) == MGV_OK && again == bytes);
        /* Models that think leave out what was thought; without a template two texts may make a placeholder together. */
        if (chat == MGV_CHAT_QWEN3_VL || chat == MGV_CHAT_QWEN3_INSTRUCT) REQUIRE(times(text, bytes, "<|image_pad|>") == placeholders);
        if (chat == MGV_CHAT_PLAIN) REQUIRE(times(text, bytes, "<|image_pad|>") >= placeholders);
        free(text);
    }
    for (i = 0; i < count; i++) free(texts[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0 || size > 4096) return 0;
    if (data[0] & 128) check_template(data + 1, size - 1, data[0]);
    else check_conversation(data + 1, size - 1);
    return 0;
}
