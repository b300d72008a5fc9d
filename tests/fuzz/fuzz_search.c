/* Any bytes as an index of megavit search, and any as the log beside it. Opening and asking it ends with an answer or an error; what
   passes as whole can be written, and asked afterwards. Nothing but FILE, FILE-wal and FILE-shm is touched.

   An input is the length of the index (four bytes, little-endian), the index, and the log. */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tools/index.h"
#include "fuzz.h"

enum { WIDTH = 6, ROWS = 9, HEAD = 4, SEED_ROOM = 1 << 16 };

static char folder[64], path[128], log_path[128];
static uint8_t seed_input[SEED_ROOM];
static size_t seed_size;

/* What the program would print. */
int cli_fail(int status, const char *file, const char *format, ...) {
    (void)file;
    (void)format;
    return status;
}
int cli_fail_output(void) { return CLI_BAD_FILE; }

static void fill(float *values, int place) {
    for (int i = 0; i < WIDTH; i++) values[i] = i == place % WIDTH ? 0.8f : i == (place + 1) % WIDTH ? 0.6f : 0;
}

static int put(index_file *index, int place) {
    float values[WIDTH];
    char name[32];
    index_row row = {0, name, place, place, place};
    snprintf(name, sizeof name, "/picture-%d", place);
    fill(values, place);
    return index_put(index, &row, values);
}

static void clear(void) {
    const struct dirent *entry;
    DIR *stream = opendir(folder);
    REQUIRE(stream != NULL);
    while ((entry = readdir(stream)) != NULL) {
        char name[400];
        snprintf(name, sizeof name, "%s/%s", folder, entry->d_name);
        unlink(name);
    }
    closedir(stream);
}

static void remove_folder(void) {
    clear();
    rmdir(folder);
}

static size_t read_file(const char *name, uint8_t *data, size_t room) {
    FILE *stream = fopen(name, "rb");
    size_t size = stream ? fread(data, 1, room, stream) : 0;
    if (stream) fclose(stream);
    return size;
}

static void write_file(const char *name, const uint8_t *data, size_t size) {
    FILE *stream = fopen(name, "wb");
    REQUIRE(stream != NULL && fwrite(data, 1, size, stream) == size);
    fclose(stream);
}

static void put_length(uint8_t *data, size_t length) {
    for (int i = 0; i < HEAD; i++) data[i] = (uint8_t)(length >> 8 * i);
}

/* A whole index, and beside it the log of rows that are not in it yet. */
static void make_seed(void) {
    const index_about about = {"width", "6", NULL, NULL};
    index_file index;
    size_t length;
    REQUIRE(index_open(&index, path, 1, 1) == 0 && index_create(&index, &about, 1) == 0);
    REQUIRE(index_begin_writing(&index) == 0);
    for (int i = 0; i < ROWS; i++) REQUIRE(put(&index, i) == 0);
    REQUIRE(index_end(&index) == 0);
    index_close(&index);
    length = read_file(path, seed_input + HEAD, SEED_ROOM / 2);
    put_length(seed_input, length);
    REQUIRE(index_open(&index, path, 1, 1) == 0 && index_begin_writing(&index) == 0);
    REQUIRE(put(&index, ROWS) == 0 && index_remove(&index, 0) == 0 && index_end(&index) == 0);
    seed_size = HEAD + length;
    seed_size += read_file(log_path, seed_input + seed_size, SEED_ROOM - seed_size);
    REQUIRE(seed_size > HEAD + length && seed_size < SEED_ROOM);
    index_close(&index);
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv) {
    const char *memory = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    (void)argc;
    (void)argv;
    snprintf(folder, sizeof folder, "%s/megavit-fuzz-XXXXXX", memory);
    REQUIRE(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/index.db", folder);
    snprintf(log_path, sizeof log_path, "%s-wal", path);
    atexit(remove_folder);
    make_seed();
    return 0;
}

/* From the seed now and then, so that most inputs are an index but for a few bytes; without its log for three in four. Pages change places,
   bytes their values. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed) {
    const size_t page = INDEX_PAGE_BYTES;
    size_t pages;
    if (max_size < seed_size) return LLVMFuzzerMutate(data, size, max_size);
    if (size < HEAD + page || seed % 5 == 0) {
        size = seed % 4 ? HEAD + ((size_t)seed_input[0] | (size_t)seed_input[1] << 8) : seed_size;
        memcpy(data, seed_input, size);
    }
    pages = (size - HEAD) / page;
    if (seed % 7 == 0) memcpy(data + HEAD + seed / 7 % pages * page, data + HEAD + seed / 977 % pages * page, page);
    if (seed % 3 == 0) {
        size_t at = HEAD + seed / 3 % (size - HEAD);
        return at + LLVMFuzzerMutate(data + at, size - at < 64 ? size - at : 64, size - at < 64 ? size - at : 64) +
               (size - at < 64 ? 0 : size - at - 64);
    }
    return HEAD + LLVMFuzzerMutate(data + HEAD, size - HEAD, max_size - HEAD);
}

static int visit(void *user, const index_row *row) {
    (void)user;
    REQUIRE(row->path[0] == '/' && row->id >= 0);
    return 0;
}

/* 0, or the code of an error. */
static int ask(index_file *index) {
    float queries[2 * WIDTH];
    index_matches matches[2];
    uint32_t *group = malloc((size_t)(index->rows ? index->rows : 1) * sizeof *group);
    int status;
    REQUIRE(group != NULL);
    fill(queries, 1);
    fill(queries + WIDTH, 4);
    status = index->width == WIDTH ? index_nearest(index, queries, 2, 3, -2, 1, matches) : 0;
    for (int i = 0; index->width == WIDTH && i < 2; i++) {
        index_row row;
        for (uint64_t k = 0; !status && k < matches[i].count; k++) status = index_get(index, matches[i].items[k].id, &row);
        free(matches[i].items);
    }
    if (!status) status = index_each(index, visit, NULL);
    if (!status) status = index_duplicates(index, 0.9, 1, group);
    free(group);
    return status;
}

static void read_it(void) {
    index_file index;
    int status = index_open(&index, path, 0, 1);
    if (!status && !index.is_empty) status = index_begin_reading(&index);
    if (!status && !index.is_empty) ask(&index);
    index_close(&index);
}

/* What is whole can be added to and asked. */
static void write_it(void) {
    index_file index;
    int status = index_open(&index, path, 1, 1), whole = 0;
    if (!status && !index.is_empty && index.width == WIDTH && index_begin_reading(&index) == 0) {
        whole = index_check_whole(&index) == 0;
        if (whole) REQUIRE(ask(&index) == 0 && index_end(&index) == 0);
        else index_end(&index);
    }
    if (whole) {
        REQUIRE(index_begin_writing(&index) == 0 && put(&index, 1000) == 0);
        REQUIRE(index.rows < 2 || index_remove(&index, 0) == 0);
        REQUIRE(index_end(&index) == 0 && index_begin_reading(&index) == 0 && index_check_whole(&index) == 0 && ask(&index) == 0);
    }
    index_close(&index);
}

static void must_be_alone(void) {
    const struct dirent *entry;
    DIR *stream = opendir(folder);
    REQUIRE(stream != NULL);
    while ((entry = readdir(stream)) != NULL)
        REQUIRE(entry->d_name[0] == '.' || strcmp(entry->d_name, "index.db") == 0 || strcmp(entry->d_name, "index.db-wal") == 0 ||
             strcmp(entry->d_name, "index.db-shm") == 0);
    closedir(stream);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t length;
    if (size < HEAD) return 0;
    length = (size_t)data[0] | (size_t)data[1] << 8 | (size_t)data[2] << 16 | (size_t)data[3] << 24;
    if (length > size - HEAD) length = size - HEAD;
    clear();
    write_file(path, data + HEAD, length);
    if (size - HEAD > length) write_file(log_path, data + HEAD + length, size - HEAD - length);
    read_it();
    write_it();
    must_be_alone();
    return 0;
}
