/* Any bytes as model.safetensors.index.json beside two good shards. No file but those two may be asked for by a name
   that leaves the directory. */
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "fuzz.h"

typedef struct shard {
    const char *name;
    uint8_t bytes[200];
    size_t size;
} shard;
typedef struct directory {
    const uint8_t *index;
    size_t index_size;
    shard shards[2];
    int open_now;
} directory;

static void make_shard(shard *made, const char *name, const char *header, size_t data_bytes) {
    size_t header_bytes = strlen(header), i;
    made->name = name;
    memset(made->bytes, 0, sizeof made->bytes);
    for (i = 0; i < 8; i++) made->bytes[i] = (uint8_t)((uint64_t)header_bytes >> (8 * i));
    memcpy(made->bytes + 8, header, header_bytes);
    made->size = 8 + header_bytes + data_bytes;
}
static int32_t open_file(void *user, const char *path, void **file, uint64_t *size) {
    directory *all = (directory *)user;
    const char *name = path + 2;
    int i;
    REQUIRE(strncmp(path, "m/", 2) == 0 && *name != 0 && *name != '/');
    REQUIRE(strstr(name, "..") == NULL || (strstr(name, "../") == NULL && strcmp(name + strlen(name) - 2, "..") != 0));
    REQUIRE(strchr(name, '\\') == NULL && strchr(name, ':') == NULL && strstr(name, "//") == NULL);
    for (i = 0; i < 2; i++) {
        if (strcmp(name, all->shards[i].name) != 0) continue;
        *file = all->shards[i].bytes;
        *size = all->shards[i].size;
        all->open_now++;
        return 0;
    }
    if (strcmp(name, "model.safetensors.index.json") != 0) return MGV_FILE_ABSENT;
    *file = NULL;
    *size = all->index_size;
    all->open_now++;
    return 0;
}
static int32_t read_file(void *user, void *file, uint64_t offset, void *buffer, size_t bytes) {
    const uint8_t *from = file ? (const uint8_t *)file : ((directory *)user)->index;
    memcpy(buffer, from + offset, bytes);
    return 0;
}
static void close_file(void *user, void *file) {
    (void)file;
    ((directory *)user)->open_now--;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_allocator counts;
    directory all;
    mgv_model_desc desc;
    mgv__source source;
    mgv__checkpoint checkpoint;
    mgv_error error;
    mgv_result result;
    uint8_t *copy = (uint8_t *)malloc(size + 1);
    uint8_t bytes[16];
    uint32_t i;
    if (size > 0) memcpy(copy, data, size);
    all.index = copy;
    all.index_size = size;
    all.open_now = 0;
    make_shard(&all.shards[0], "one.safetensors",
               "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
               "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}", 3);
    make_shard(&all.shards[1], "sub/two.safetensors", "{\"c\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4);
    memset(&desc, 0, sizeof desc);
    desc.path = "m";
    desc.io.user = &all;
    desc.io.open = open_file;
    desc.io.read = read_file;
    desc.io.close = close_file;
    desc.allocator = fuzz_allocator_make(&counts, data, size);
    REQUIRE(mgv__source_open(&source, &desc, &error) == MGV_OK);
    result = mgv__checkpoint_open(&checkpoint, &source, &error);
    REQUIRE(result == MGV_OK || result == MGV_ERROR_FORMAT || result == MGV_ERROR_MODEL || result == MGV_ERROR_IO ||
            (result == MGV_ERROR_NOMEM && counts.failed));
    REQUIRE(result == MGV_OK || error.code == result);
    REQUIRE(all.open_now <= 1 && counts.peak_bytes <= 4 * size + 1048576);
    counts.fail_at = 0;
    for (i = 0; i < checkpoint.tensor_count; i++) {
        REQUIRE(mgv__checkpoint_read(&checkpoint, &checkpoint.tensors[i], bytes, &error) == MGV_OK);
        REQUIRE(mgv__checkpoint_find(&checkpoint, checkpoint.tensors[i].name) == &checkpoint.tensors[i]);
    }
    mgv__checkpoint_close(&checkpoint);
    REQUIRE(all.open_now == 0 && counts.live_bytes == 0);
    free(copy);
    return 0;
}
