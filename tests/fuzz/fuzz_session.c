/* Files of sessions and generation_config.json. The first byte says which, and of a session's file whether its hash is made right again: the
   others are the file itself, or changes of a good one, three bytes each: place and value. A file that is refused leaves the session as it
   was; one that is taken goes on, and is saved as it came. */
#define MEGAVIT_TEXT
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "fuzz.h"

#define FOLDER "tests/golden/decoder/qwen3"
enum { CAPACITY = 12, PROMPT = 7, FIX_HASH = 1, CHANGES = 2, CONFIG = 4 };

static mgv_engine *engine;
static mgv_model_info info;

static void open_engine(void) {
    mgv_model *model;
    mgv_model_desc desc;
    mgv_error error;
    memset(&desc, 0, sizeof desc);
    desc.path = FOLDER;
    desc.tower = MGV_TOWER_LANGUAGE;
    REQUIRE(mgv_model_open(&model, &desc, &error) == MGV_OK);
    REQUIRE(mgv_model_get_info(model, &info) == MGV_OK);
    REQUIRE(mgv_engine_create(&engine, model, NULL, &error) == MGV_OK);
}
static mgv_session *session_of(uint32_t count) {
    static const uint32_t ids[PROMPT] = {5, 6, 7, 8, 9, 10, 11};
    mgv_session *session;
    mgv_session_desc desc;
    mgv_append_desc append;
    mgv_error error;
    memset(&desc, 0, sizeof desc);
    memset(&append, 0, sizeof append);
    desc.capacity = CAPACITY;
    REQUIRE(mgv_session_create(&session, engine, &desc, &error) == MGV_OK);
    append.ids = ids;
    append.id_count = count;
    REQUIRE(mgv_session_append_blocking(session, &append, &error) == MGV_OK);
    return session;
}
static uint8_t *saved(const mgv_session *session, uint64_t *bytes) {
    mgv_error error;
    uint8_t *file;
    REQUIRE(mgv_session_saved_bytes(session, bytes, &error) == MGV_OK);
    file = (uint8_t *)malloc((size_t)*bytes);
    REQUIRE(mgv_session_save(session, file, *bytes, &error) == MGV_OK);
    return file;
}

static void check_file(const uint8_t *file, uint64_t bytes) {
    mgv_session *session = session_of(3);
    mgv_session_info now;
    mgv_error error;
    uint64_t before_bytes, after_bytes;
    uint8_t *before = saved(session, &before_bytes), *after;
    const mgv_result result = mgv_session_restore(session, file, bytes, &error);
    REQUIRE(result == MGV_OK || result == MGV_ERROR_FORMAT || result == MGV_ERROR_MODEL || result == MGV_ERROR_CAPACITY);
    after = saved(session, &after_bytes);
    if (result == MGV_OK) REQUIRE(after_bytes == bytes && memcmp(after, file, (size_t)bytes) == 0);
    else REQUIRE(after_bytes == before_bytes && memcmp(after, before, (size_t)after_bytes) == 0);
    REQUIRE(mgv_session_get_info(session, &now) == MGV_OK && now.position <= now.capacity);
    if (now.position < now.capacity) {
        const mgv_result step = mgv_session_step(session, 1, &error); /* numbers of a file may be so large that what follows is none */
        REQUIRE(step == MGV_OK || step == MGV_ERROR_MODEL);
    }
    if (now.position) REQUIRE(mgv_session_rollback(session, now.position - 1, &error) == MGV_OK || result == MGV_OK);
    free(before);
    free(after);
    mgv_session_destroy(session);
}

static void check_changes(const uint8_t *data, size_t size, int fix) {
    mgv_session *session = session_of(PROMPT);
    uint64_t bytes, room;
    uint8_t *good = saved(session, &room), *file;
    mgv__session_file head;
    mgv__hash hash;
    size_t i;
    bytes = room;
    if (size % 3 == 1 && data[size - 1] < room) bytes -= data[size - 1]; /* and cut short */
    for (i = 0; i + 2 < size; i += 3) good[(data[i] | (uint64_t)data[i + 1] << 8) % room] = data[i + 2];
    file = (uint8_t *)malloc((size_t)bytes); /* of its own size, so that the sanitizer sees every byte too far */
    memcpy(file, good, (size_t)bytes);
    if (fix && bytes > sizeof head) {
        memcpy(&head, file, sizeof head);
        mgv__hash_begin(&hash);
        mgv__hash_bytes(&hash, file + sizeof head, bytes - sizeof head);
        head.contents = mgv__hash_end(&hash);
        memcpy(file, &head, sizeof head);
    }
    check_file(file, bytes);
    free(good);
    free(file);
    mgv_session_destroy(session);
}

/* The model's own config and tensors from their folder, the bytes as generation_config.json beside them. */
static void check_config(const uint8_t *data, size_t size) {
    static uint8_t *files[2];
    static size_t lengths[2];
    static const char *const names[] = {"config.json", "model.safetensors", "generation_config.json"};
    fuzz_allocator counts;
    mgv_memory_file memory[3];
    mgv_model_desc desc;
    mgv_model *model;
    mgv_generation_info generation;
    mgv_error error;
    mgv_result result;
    uint32_t i;
    char *copy = (char *)malloc(size + 1);
    if (size) memcpy(copy, data, size);
    for (i = 0; i < 2 && !files[i]; i++) {
        char path[96];
        FILE *stream;
        snprintf(path, sizeof path, FOLDER "/%s", names[i]);
        stream = fopen(path, "rb");
        REQUIRE(stream != NULL);
        files[i] = (uint8_t *)malloc(1 << 20);
        lengths[i] = fread(files[i], 1, 1 << 20, stream);
        fclose(stream);
    }
    for (i = 0; i < 3; i++) {
        memory[i].name = names[i];
        memory[i].data = i < 2 ? (void *)files[i] : copy;
        memory[i].bytes = i < 2 ? lengths[i] : size;
    }
    memset(&desc, 0, sizeof desc);
    desc.memory_files = memory;
    desc.memory_file_count = 3;
    desc.tower = MGV_TOWER_LANGUAGE;
    desc.allocator = fuzz_allocator_make(&counts, data, size);
    result = mgv_model_open(&model, &desc, &error);
    REQUIRE(result == MGV_OK || result == MGV_ERROR_FORMAT || result == MGV_ERROR_MODEL || result == MGV_ERROR_UNSUPPORTED ||
            (result == MGV_ERROR_NOMEM && counts.failed));
    if (result == MGV_OK) {
        REQUIRE(mgv_model_get_generation(model, &generation) == MGV_OK);
        REQUIRE(generation.stop_count <= MGV_MAX_STOP_IDS);
        for (i = 0; i < generation.stop_count; i++) REQUIRE(generation.stop_ids[i] < info.vocabulary);
        REQUIRE(generation.temperature >= 0 && generation.top_p >= 0 && generation.min_p >= 0 && generation.repetition_penalty >= 0);
        mgv_model_close(model);
    }
    REQUIRE(counts.live_bytes == 0);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0 || size > 4096) return 0;
    if (!engine) open_engine();
    if (data[0] & CONFIG) check_config(data + 1, size - 1);
    else if (data[0] & CHANGES) check_changes(data + 1, size - 1, data[0] & FIX_HASH);
    else {
        uint8_t *file = (uint8_t *)malloc(size > 1 ? size - 1 : 1); /* of its own size */
        memcpy(file, data + 1, size - 1);
        check_file(file, size - 1);
        free(file);
    }
    return 0;
}
