/* The file of an index (tools/index.h): opening it without trusting it, transactions, rows. */
#define _XOPEN_SOURCE 700 /* realpath */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "tools/index.h"

/* ---- SQLite with errors as sentences ---- */

static int fail_memory(void) { return cli_fail(CLI_MACHINE, NULL, "out of memory for the index"); }

static int fail_sql(index_file *index, const char *what) {
    int code = sqlite3_errcode(index->database);
    index->failed = 1;
    if (code == SQLITE_NOMEM) return fail_memory();
    if (code == SQLITE_BUSY)
        return cli_fail(CLI_MACHINE, index->name, "the index is in use by another program: not free within %u s (--wait)",
                        index->wait_seconds);
    if (code == SQLITE_READONLY || code == SQLITE_CANTOPEN)
        return cli_fail(CLI_BAD_FILE, index->name, "%s: only who may write the index and its directory can: %s", what,
                        sqlite3_errmsg(index->database));
    return cli_fail(CLI_BAD_FILE, index->name, "%s: %s", what, sqlite3_errmsg(index->database));
}

static int fail_damaged(index_file *index, const char *how) {
    index->failed = 1;
    return cli_fail(CLI_BAD_FILE, index->name, "the index is damaged: %s", how);
}

static int execute(index_file *index, const char *sql, const char *what) {
    return sqlite3_exec(index->database, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : fail_sql(index, what);
}

enum {
    SELECT_ROWS, SELECT_PATH, SELECT_CONTENT, SELECT_SIZE, SELECT_PICTURE, SELECT_EACH, INSERT_PICTURE, UPDATE_PICTURE, DELETE_PICTURE,
    MOVE_PICTURE, SELECT_EMBEDDING, REPLACE_EMBEDDING, DELETE_EMBEDDING, MOVE_EMBEDDING, REPLACE_BLOCK, DELETE_BLOCK, SELECT_ABOUT,
    COUNT_PICTURES, COUNT_EMBEDDINGS, COUNT_BLOCKS, PAGE_COUNT, PAGE_BYTES
};
static const char *const statement_texts[INDEX_STATEMENTS] = {
    "SELECT CASE coalesce((SELECT min(id) FROM picture), 0) WHEN 0 THEN (SELECT max(id) FROM picture) ELSE -2 END",
    "SELECT id, path, size, mtime, checksum FROM picture WHERE path = ?1",
    "SELECT id, path, size, mtime, checksum FROM picture WHERE size = ?1 AND checksum = ?2 AND id > ?3 ORDER BY id LIMIT 1",
    "SELECT 1 FROM picture WHERE size = ?1 LIMIT 1",
    "SELECT id, path, size, mtime, checksum FROM picture WHERE id = ?1",
    "SELECT id, path, size, mtime, checksum FROM picture ORDER BY path",
    "INSERT INTO picture(id, path, size, mtime, checksum) VALUES(?1, ?2, ?3, ?4, ?5)",
    "UPDATE picture SET path = ?2, size = ?3, mtime = ?4, checksum = ?5 WHERE id = ?1",
    "DELETE FROM picture WHERE id = ?1",
    "UPDATE picture SET id = ?2 WHERE id = ?1",
    "SELECT floats FROM embedding WHERE id = ?1",
    "INSERT OR REPLACE INTO embedding(id, floats) VALUES(?1, ?2)",
    "DELETE FROM embedding WHERE id = ?1",
    "UPDATE embedding SET id = ?2 WHERE id = ?1",
    "INSERT OR REPLACE INTO code(block, codes) VALUES(?1, ?2)",
    "DELETE FROM code WHERE block = ?1",
    "SELECT value FROM about WHERE key = ?1",
    "SELECT count(*) FROM picture",
    "SELECT count(*) FROM embedding",
    "SELECT count(*) FROM code",
    "PRAGMA page_count",
    "PRAGMA page_size",
};

/* Runs a statement with these values, each an i (int64_t), t (text) or b (bytes, and their int count) of `types`. *row: the statement on
   its first row, to be read before the next call; NULL: there is none. */
static int step(index_file *index, int which, sqlite3_stmt **row, const char *types, ...) {
    sqlite3_stmt **slot = &index->statements[which];
    va_list values;
    int code = SQLITE_OK;
    if (row) *row = NULL;
    if (*slot) sqlite3_reset(*slot);
    else code = sqlite3_prepare_v3(index->database, statement_texts[which], -1, SQLITE_PREPARE_PERSISTENT, slot, NULL);
    va_start(values, types);
    for (int i = 1; *types && code == SQLITE_OK; types++, i++) {
        if (*types == 'i') {
            code = sqlite3_bind_int64(*slot, i, va_arg(values, int64_t));
        } else if (*types == 't') {
            code = sqlite3_bind_text(*slot, i, va_arg(values, const char *), -1, SQLITE_STATIC);
        } else {
            const void *bytes = va_arg(values, const void *);
            code = sqlite3_bind_blob(*slot, i, bytes, va_arg(values, int), SQLITE_STATIC);
        }
    }
    va_end(values);
    if (code == SQLITE_OK) code = sqlite3_step(*slot);
    if (code == SQLITE_ROW && row) *row = *slot;
    if (code == SQLITE_DONE) sqlite3_reset(*slot);
    return code == SQLITE_ROW || code == SQLITE_DONE ? 0 : fail_sql(index, row ? "cannot read the index" : "cannot write the index");
}

/* Waits for another program, and says so once it takes more than a moment. */
static int wait_for_others(void *user, int attempt) {
    static struct timespec since;
    static int said;
    const struct timespec pause = {0, attempt < 10 ? 2000000 : 50000000};
    const index_file *index = user;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (attempt == 0) since = now;
    if (now.tv_sec - since.tv_sec >= (time_t)index->wait_seconds) return 0;
    if (!said && now.tv_sec - since.tv_sec >= 1) {
        cli_fail(0, index->name, "waiting for another program that uses the index, %u s at most", index->wait_seconds);
        said = 1;
    }
    nanosleep(&pause, NULL);
    return 1;
}

/* ---- what lies there, before SQLite sees it ---- */

static uint32_t big_endian(const unsigned char *bytes) {
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

char *index_whole_path(const char *name) {
    char *path = realpath(name, NULL), *directory, *parent;
    const char *slash = strrchr(name, '/'), *last = slash ? slash + 1 : name;
    size_t room;
    if (path || (errno != ENOENT && errno != ENOTDIR)) return path;
    directory = slash ? strndup(name, slash == name ? 1 : (size_t)(slash - name)) : strdup(".");
    if (!directory) return NULL;
    parent = strcmp(directory, name) == 0 ? NULL : index_whole_path(directory); /* of "/" there is no parent */
    free(directory);
    if (!parent || !*last) return parent;
    room = strlen(parent) + strlen(last) + 2;
    path = malloc(room);
    if (path) snprintf(path, room, "%s/%s", strcmp(parent, "/") == 0 ? "" : parent, last);
    free(parent);
    return path;
}

/* lstat of what SQLite calls FILE-wal, FILE-shm and FILE-journal; 0: it is not there. */
static int beside(const index_file *index, const char *ending, struct stat *about) {
    size_t room = strlen(index->path) + strlen(ending) + 1;
    char *path = malloc(room);
    int found = 0;
    if (path) {
        snprintf(path, room, "%s%s", index->path, ending);
        found = lstat(path, about) == 0;
    }
    free(path);
    return found;
}

/* Beside an index lie FILE-wal and FILE-shm, if anything. A rollback journal would have SQLite overwrite the index and delete a file that
   the journal names; a pipe would have it wait for ever; a second name would have it write into somebody else's file. */
static int check_beside(const index_file *index) {
    static const char *const endings[] = {"-wal", "-shm"};
    struct stat about;
    if (beside(index, "-journal", &about))
        return cli_fail(CLI_BAD_FILE, index->name,
                        "there is a rollback journal beside it (%s-journal), which no index of this version has: take it away", index->name);
    for (size_t i = 0; i < 2; i++)
        if (beside(index, endings[i], &about) && (!S_ISREG(about.st_mode) || about.st_nlink > 1))
            return cli_fail(CLI_BAD_FILE, index->name, "what lies beside it as %s%s is no regular file of one name: take it away", index->name,
                            endings[i]);
    return 0;
}

/* The head of SQLite's file format (sqlite.org/fileformat2.html, section 1.3), as all of ours have it. */
static int check_head(index_file *index, const struct stat *file) {
    unsigned char head[100];
    struct stat log;
    uint32_t version, page_bytes;
    FILE *stream = fopen(index->path, "rb");
    size_t bytes = stream ? fread(head, 1, sizeof head, stream) : 0;
    int problem = stream ? 0 : errno;
    if (stream) fclose(stream);
    if (problem) return cli_fail(CLI_BAD_FILE, index->name, "cannot open the index: %s", strerror(problem));
    if (bytes < sizeof head || memcmp(head, "SQLite format 3", 16) != 0 || big_endian(head + 68) != INDEX_APPLICATION)
        return cli_fail(CLI_BAD_FILE, index->name, "not an index of megavit");
    version = big_endian(head + 60);
    if (version == 1)
        return cli_fail(CLI_BAD_FILE, index->name,
                        "an index of version 1, which knows too little of its pictures to be kept: move it away and --add them to a new one");
    if (version != INDEX_VERSION)
        return cli_fail(CLI_BAD_FILE, index->name, "an index of version %u; this program reads version %d", version, INDEX_VERSION);
    if (head[18] != 2 || head[19] != 2) return fail_damaged(index, "it has no write-ahead log");
    page_bytes = (uint32_t)head[16] << 8 | head[17];
    if (page_bytes == 1) page_bytes = 65536;
    if (page_bytes < 512 || (page_bytes & (page_bytes - 1)) != 0) return fail_damaged(index, "its pages have no size");
    if (beside(index, "-wal", &log) && log.st_size > 0) return 0; /* somebody may be writing at this moment */
    return file->st_size % page_bytes ? fail_damaged(index, "the file ends inside a page") : 0;
}

/* ---- opening ---- */

/* What an untrusted file may make SQLite do. It is no more than a few statements of ours need. */
static int harden(index_file *index) {
    static const struct {
        int id, value;
    } settings[] = {
        {SQLITE_DBCONFIG_DEFENSIVE, 1},      /* nobody writes its tables of tables */
        {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0}, /* nothing that a schema names is run */
        {SQLITE_DBCONFIG_ENABLE_TRIGGER, 0}, {SQLITE_DBCONFIG_ENABLE_VIEW, 0}, {SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0},
    }, limits[] = {
        {SQLITE_LIMIT_LENGTH, INDEX_BLOCK_ROWS * (INDEX_MAX_WIDTH + INDEX_CODE_HEAD) + 4096}, /* of a value: a block is the longest */
        {SQLITE_LIMIT_SQL_LENGTH, 4096}, {SQLITE_LIMIT_COLUMN, 16}, {SQLITE_LIMIT_EXPR_DEPTH, 32}, {SQLITE_LIMIT_COMPOUND_SELECT, 2},
        {SQLITE_LIMIT_VDBE_OP, 10000}, {SQLITE_LIMIT_FUNCTION_ARG, 8}, {SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 64},
        {SQLITE_LIMIT_VARIABLE_NUMBER, 8}, {SQLITE_LIMIT_TRIGGER_DEPTH, 1}, {SQLITE_LIMIT_WORKER_THREADS, 0},
        {SQLITE_LIMIT_ATTACHED, 0}, /* one file is all there is */
    };
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        sqlite3_db_config(index->database, settings[i].id, settings[i].value, NULL);
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) sqlite3_limit(index->database, limits[i].id, limits[i].value);
    sqlite3_busy_handler(index->database, wait_for_others, index);
    /* Cells are checked before they are read; no mapping, which would end the program if somebody cut the file; temporary tables lie in
       memory, so that nothing is touched but FILE, FILE-wal and FILE-shm; NORMAL: a power failure may cost the last seconds, not the index. */
    return execute(index, "PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -8192;"
                          "PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 512", "not an index");
}

static const char *const schema[][2] = { /* ordered by name */
    {"about", "CREATE TABLE about(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID"},
    {"code", "CREATE TABLE code(block INTEGER PRIMARY KEY, codes BLOB NOT NULL)"},
    {"embedding", "CREATE TABLE embedding(id INTEGER PRIMARY KEY, floats BLOB NOT NULL)"},
    {"picture", "CREATE TABLE picture(id INTEGER PRIMARY KEY, path TEXT NOT NULL, size INTEGER NOT NULL, mtime INTEGER NOT NULL, "
                "checksum INTEGER NOT NULL)"},
    {"picture_content", "CREATE INDEX picture_content ON picture(size, checksum)"},
    {"picture_path", "CREATE UNIQUE INDEX picture_path ON picture(path)"},
};
enum { SCHEMA_COUNT = sizeof schema / sizeof schema[0] };

static int check_schema(index_file *index) {
    sqlite3_stmt *statement;
    size_t seen = 0;
    int good = 1, code = SQLITE_DONE;
    if (sqlite3_prepare_v2(index->database, "SELECT name, sql FROM sqlite_master ORDER BY name", -1, &statement, NULL) != SQLITE_OK)
        return fail_sql(index, "cannot read the index");
    while (good && (code = sqlite3_step(statement)) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(statement, 0), *sql = (const char *)sqlite3_column_text(statement, 1);
        good = seen < SCHEMA_COUNT && name && sql && strcmp(name, schema[seen][0]) == 0 && strcmp(sql, schema[seen][1]) == 0;
        seen++;
    }
    sqlite3_finalize(statement);
    if (good && code != SQLITE_DONE) return fail_sql(index, "the index is damaged");
    return good && seen == SCHEMA_COUNT ? 0 : fail_damaged(index, "its tables are not those of its version");
}

/* The value that the index has for a key; 1: it has one. */
static int read_about(index_file *index, const char *key, char *value, size_t room, int *found) {
    sqlite3_stmt *row;
    const char *text;
    int status = step(index, SELECT_ABOUT, &row, "t", key);
    *found = 0;
    if (status || !row) return status;
    text = sqlite3_column_type(row, 0) == SQLITE_TEXT ? (const char *)sqlite3_column_text(row, 0) : NULL;
    if (!text || strlen(text) >= room || strlen(text) != (size_t)sqlite3_column_bytes(row, 0)) status = fail_damaged(index, "what it says about itself");
    else strcpy(value, text);
    *found = !status;
    sqlite3_reset(row);
    return status;
}

static int read_width(index_file *index) {
    char value[128];
    int found, status = read_about(index, "width", value, sizeof value, &found);
    if (status) return status;
    if (found && strlen(value) < 6 && strspn(value, "0123456789") == strlen(value)) index->width = (uint32_t)atoi(value);
    return index->width && index->width <= INDEX_MAX_WIDTH ? 0 : fail_damaged(index, "it has no width");
}

/* Where nothing can be written beside the index, WAL has no place for its locks; without a log there is nothing that they would guard. */
static int must_be_unlocked(const index_file *index) {
    char *directory = strdup(index->path), *slash = directory ? strrchr(directory, '/') : NULL;
    struct stat log;
    int result = 0;
    if (slash) {
        slash[slash == directory] = 0;
        result = access(directory, W_OK) != 0 && !(beside(index, "-wal", &log) && log.st_size > 0);
    }
    free(directory);
    return result;
}

/* file:PATH?immutable=1 with everything escaped that means something in a URI. */
static char *unlocked_uri(const char *path) {
    static const char hex[] = "0123456789ABCDEF", ending[] = "?immutable=1";
    char *uri = malloc(5 + 3 * strlen(path) + sizeof ending), *out = uri;
    if (!uri) return NULL;
    memcpy(out, "file:", 5);
    out += 5;
    for (; *path; path++) {
        unsigned char byte = (unsigned char)*path;
        if ((byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') || byte == '/' || byte == '.') {
            *out++ = *path;
        } else {
            *out++ = '%';
            *out++ = hex[byte >> 4];
            *out++ = hex[byte & 15];
        }
    }
    memcpy(out, ending, sizeof ending);
    return uri;
}

static int open_database(index_file *index) {
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_PRIVATECACHE, code;
    index->unlocked = !index->writing && must_be_unlocked(index);
    if (index->unlocked) {
        char *uri = unlocked_uri(index->path);
        code = uri ? sqlite3_open_v2(uri, &index->database, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOFOLLOW, NULL) : SQLITE_NOMEM;
        free(uri);
    } else {
        code = sqlite3_open_v2(index->path, &index->database, flags, NULL);
    }
    if (code == SQLITE_OK) return harden(index);
    return index->database ? fail_sql(index, "cannot open the index") : fail_memory();
}

static int open_checked(index_file *index, const struct stat *file) {
    int status;
    if (!S_ISREG(file->st_mode)) return cli_fail(CLI_BAD_FILE, index->name, "the index is not a regular file");
    if (index->writing && file->st_nlink > 1)
        return cli_fail(CLI_BAD_FILE, index->name, "the index has another name (a hard link), and would be changed under one of them only");
    index->is_empty = file->st_size == 0;
    status = check_beside(index);
    if (status || index->is_empty) return status;
    index->unlocked_as = *file;
    status = check_head(index, file);
    if (!status && index->writing && access(index->path, W_OK) != 0)
        status = cli_fail(CLI_BAD_FILE, index->name, "cannot write the index: %s", strerror(errno));
    if (!status) status = open_database(index);
    if (!status) status = check_schema(index);
    return status ? status : read_width(index);
}

int index_open(index_file *index, const char *name, int writing, uint32_t wait_seconds) {
    struct stat file;
    memset(index, 0, sizeof *index);
    index->name = name;
    index->writing = writing;
    index->wait_seconds = wait_seconds;
    index->blocks[0].number = index->blocks[1].number = -1;
    index->path = index_whole_path(name);
    if (!index->path) return cli_fail(CLI_BAD_FILE, name, "cannot open the index: %s", strerror(errno));
    if (stat(index->path, &file) == 0) return open_checked(index, &file);
    index->is_empty = 1;
    return errno == ENOENT ? check_beside(index) : cli_fail(CLI_BAD_FILE, name, "cannot open the index: %s", strerror(errno));
}

void index_close(index_file *index) {
    index_roll_back(index);
    for (int i = 0; i < INDEX_STATEMENTS; i++) sqlite3_finalize(index->statements[i]);
    sqlite3_close(index->database);
    free(index->blocks[0].bytes);
    free(index->blocks[1].bytes);
    free(index->path);
    memset(index, 0, sizeof *index);
}

int index_check_about(index_file *index, const index_about *about, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        char value[sizeof about->value];
        int found, status = read_about(index, about[i].key, value, sizeof value, &found);
        if (status) return status;
        if (!found) return fail_damaged(index, "it does not say all that it is about");
        if (about[i].rule && !(about[i].agrees ? about[i].agrees(value, about[i].value) : strcmp(value, about[i].value) == 0))
            return cli_fail(CLI_BAD_FILE, index->name, "%s: it says %s %s, here it is %s", about[i].rule, about[i].key, value, about[i].value);
    }
    return 0;
}

/* ---- making ---- */

static int fill_new(index_file *index, const index_about *about, uint32_t count) {
    char pragmas[128];
    int status = 0;
    snprintf(pragmas, sizeof pragmas, "PRAGMA page_size = %d; PRAGMA application_id = %d; PRAGMA user_version = %d", INDEX_PAGE_BYTES,
             INDEX_APPLICATION, INDEX_VERSION);
    status = execute(index, pragmas, "cannot create the index");
    for (size_t i = 0; !status && i < SCHEMA_COUNT; i++) status = execute(index, schema[i][1], "cannot create the index");
    for (uint32_t i = 0; !status && i < count; i++) {
        char *sql = sqlite3_mprintf("INSERT INTO about(key, value) VALUES(%Q, %Q)", about[i].key, about[i].value);
        status = sql ? execute(index, sql, "cannot create the index") : fail_memory();
        sqlite3_free(sql);
    }
    return status;
}

/* The bytes of a new index, made in memory; to be freed by sqlite3_free. */
static unsigned char *make_image(const char *name, const index_about *about, uint32_t count, size_t *bytes, int *status) {
    index_file image;
    unsigned char *data = NULL;
    sqlite3_int64 length = 0;
    memset(&image, 0, sizeof image);
    image.name = name;
    image.blocks[0].number = image.blocks[1].number = -1;
    *status = sqlite3_open(":memory:", &image.database) == SQLITE_OK ? 0 : fail_memory();
    if (!*status) *status = fill_new(&image, about, count);
    if (!*status && !(data = sqlite3_serialize(image.database, "main", &length, 0))) *status = fail_memory();
    if (data) data[18] = data[19] = 2; /* from here on with a write-ahead log */
    *bytes = (size_t)length;
    index_close(&image);
    return data;
}

/* A file appears whole under its name. An empty one that is there, as mktemp makes it, is filled where it lies. */
static int write_image(const index_file *index, const unsigned char *data, size_t bytes) {
    struct stat about;
    cli_file *file;
    if (lstat(index->path, &about) == 0) {
        int descriptor = about.st_size == 0 ? open(index->path, O_WRONLY | O_NOFOLLOW) : -1;
        ssize_t written = descriptor >= 0 ? write(descriptor, data, bytes) : (ssize_t)bytes;
        int problem = errno;
        if (written != (ssize_t)bytes && ftruncate(descriptor, 0) == 0) errno = problem;
        if (descriptor >= 0) close(descriptor);
        return written == (ssize_t)bytes ? 0 : cli_fail(CLI_BAD_FILE, index->name, "cannot create the index: %s", strerror(errno));
    }
    file = cli_file_create(index->path);
    if (!file) return CLI_BAD_FILE;
    fwrite(data, 1, bytes, cli_file_stream(file));
    return cli_file_commit_new(file);
}

int index_create(index_file *index, const index_about *about, uint32_t count) {
    const char *name = index->name;
    const uint32_t wait_seconds = index->wait_seconds;
    size_t bytes;
    int status;
    unsigned char *data = make_image(name, about, count, &bytes, &status);
    if (!status) status = write_image(index, data, bytes);
    sqlite3_free(data);
    if (status) return status;
    index_close(index);
    status = index_open(index, name, 1, wait_seconds);
    return !status && index->is_empty ? cli_fail(CLI_BAD_FILE, name, "the index vanished as it was made") : status;
}

/* ---- transactions ---- */

/* The number that a statement gives in its one row; -1: it gives NULL. */
static int number(index_file *index, int which, int64_t *value) {
    sqlite3_stmt *row;
    int status = step(index, which, &row, "");
    *value = row && sqlite3_column_type(row, 0) == SQLITE_INTEGER ? sqlite3_column_int64(row, 0) : -1;
    if (row) sqlite3_reset(row);
    return status;
}

/* How many rows there must be. That many have to fit into the file, so that nobody reserves memory for rows that are none. */
static int read_rows(index_file *index) {
    int64_t last = -1, pages = 0, page_bytes = 0;
    int status = number(index, SELECT_ROWS, &last);
    if (!status) status = number(index, PAGE_COUNT, &pages);
    if (!status) status = number(index, PAGE_BYTES, &page_bytes);
    if (status) return status;
    if (last < -1 || last >= INDEX_MAX_ROWS || (last + 1) * ((int64_t)index->width * 5 + INDEX_CODE_HEAD) > pages * page_bytes)
        return fail_damaged(index, "a number of a picture");
    index->rows = last + 1;
    return 0;
}

static int begin(index_file *index, const char *sql) {
    int status = execute(index, sql, "cannot read the index");
    if (status) return status;
    index->in_transaction = 1;
    status = read_rows(index);
    if (status) index_roll_back(index);
    return status;
}

int index_begin_reading(index_file *index) { return begin(index, "BEGIN"); }
int index_begin_writing(index_file *index) { return begin(index, "BEGIN IMMEDIATE"); }

static size_t row_bytes(const index_file *index) { return (size_t)index->width + INDEX_CODE_HEAD; }

static int store_block(index_file *index, index_block *block) {
    int status = 0;
    if (block->number >= 0 && block->changed && block->rows)
        status = step(index, REPLACE_BLOCK, NULL, "ib", block->number, block->bytes, (int)(block->rows * row_bytes(index)));
    else if (block->number >= 0 && block->changed) status = step(index, DELETE_BLOCK, NULL, "i", block->number);
    block->changed = 0;
    return status;
}

static void forget_blocks(index_file *index) {
    index->blocks[0].number = index->blocks[1].number = -1;
    index->blocks[0].changed = index->blocks[1].changed = 0;
}

void index_roll_back(index_file *index) {
    if (index->database && !sqlite3_get_autocommit(index->database)) sqlite3_exec(index->database, "ROLLBACK", NULL, NULL, NULL);
    index->in_transaction = 0;
    forget_blocks(index);
}

int index_end(index_file *index) {
    int status;
    struct stat now;
    if (!index->in_transaction) return 0;
    if (index->failed) { /* what has been said need not be said again */
        index_roll_back(index);
        return CLI_BAD_FILE;
    }
    status = store_block(index, &index->blocks[0]);
    if (!status) status = store_block(index, &index->blocks[1]);
    for (int i = 0; i < INDEX_STATEMENTS; i++) sqlite3_reset(index->statements[i]);
    if (!status) status = execute(index, "COMMIT", "cannot write the index");
    if (!status && index->unlocked && (stat(index->path, &now) != 0 || now.st_size != index->unlocked_as.st_size ||
                                       now.st_mtim.tv_sec != index->unlocked_as.st_mtim.tv_sec ||
                                       now.st_mtim.tv_nsec != index->unlocked_as.st_mtim.tv_nsec))
        status = cli_fail(CLI_MACHINE, index->name, "the index was changed by another program while it was read: try again");
    if (status) index_roll_back(index);
    index->in_transaction = 0;
    forget_blocks(index);
    return status;
}

/* ---- blocks of codes ---- */

static uint32_t rows_of_block(const index_file *index, int64_t block) {
    int64_t left = index->rows - block * INDEX_BLOCK_ROWS;
    return left <= 0 ? 0 : left < INDEX_BLOCK_ROWS ? (uint32_t)left : INDEX_BLOCK_ROWS;
}

int index_read_block(index_file *index, sqlite3_blob **blob, int64_t block, unsigned char *bytes, uint32_t *rows) {
    size_t wanted;
    int code = *blob ? sqlite3_blob_reopen(*blob, block) : sqlite3_blob_open(index->database, "main", "code", "codes", block, 0, blob);
    *rows = rows_of_block(index, block);
    wanted = *rows * row_bytes(index);
    if (code != SQLITE_OK) return fail_sql(index, "the index is damaged");
    if ((size_t)sqlite3_blob_bytes(*blob) != wanted) return fail_damaged(index, "a block has not as many rows as it should");
    return sqlite3_blob_read(*blob, bytes, (int)wanted, 0) == SQLITE_OK ? 0 : fail_sql(index, "the index is damaged");
}

/* Puts the block where it can be changed; the other of the two stays, so that who moves the last rows into others' places reads each block
   once. */
static int load_block(index_file *index, int64_t number, index_block **found) {
    index_block *block;
    sqlite3_blob *blob = NULL;
    int status;
    for (int i = 0; i < 2; i++)
        if (index->blocks[i].number == number) {
            *found = &index->blocks[i];
            index->next_block = 1u - (unsigned)i;
            return 0;
        }
    block = &index->blocks[index->next_block];
    index->next_block = 1 - index->next_block;
    *found = block;
    status = store_block(index, block);
    if (status) return status;
    block->number = -1;
    if (!block->bytes && !(block->bytes = malloc(INDEX_BLOCK_ROWS * row_bytes(index)))) return fail_memory();
    block->rows = 0;
    if (rows_of_block(index, number)) status = index_read_block(index, &blob, number, block->bytes, &block->rows);
    sqlite3_blob_close(blob);
    if (!status) block->number = number;
    return status;
}

/* ---- rows ---- */

static int read_row(index_file *index, sqlite3_stmt *statement, index_row *row) {
    for (int i = 0; i < 5; i++)
        if (sqlite3_column_type(statement, i) != (i == 1 ? SQLITE_TEXT : SQLITE_INTEGER)) return fail_damaged(index, "a picture's row");
    row->id = sqlite3_column_int64(statement, 0);
    row->path = (const char *)sqlite3_column_text(statement, 1);
    if (!row->path) return fail_memory();
    row->size = sqlite3_column_int64(statement, 2);
    row->mtime = sqlite3_column_int64(statement, 3);
    row->checksum = sqlite3_column_int64(statement, 4);
    if (row->id < 0 || row->id >= index->rows) return fail_damaged(index, "a picture's number");
    if (row->path[0] != '/' || strlen(row->path) != (size_t)sqlite3_column_bytes(statement, 1)) return fail_damaged(index, "a picture's path");
    return 0;
}

static int found_row(index_file *index, int status, sqlite3_stmt *statement, index_row *row, int *found) {
    *found = !status && statement;
    return *found ? read_row(index, statement, row) : status;
}

int index_find_path(index_file *index, const char *path, index_row *row, int *found) {
    sqlite3_stmt *statement;
    int status = step(index, SELECT_PATH, &statement, "t", path);
    return found_row(index, status, statement, row, found);
}

int index_find_content(index_file *index, int64_t size, int64_t checksum, int64_t after, index_row *row, int *found) {
    sqlite3_stmt *statement;
    int status = step(index, SELECT_CONTENT, &statement, "iii", size, checksum, after);
    return found_row(index, status, statement, row, found);
}

int index_has_size(index_file *index, int64_t size, int *found) {
    sqlite3_stmt *statement;
    int status = step(index, SELECT_SIZE, &statement, "i", size);
    *found = !status && statement;
    return status;
}

int index_get(index_file *index, int64_t id, index_row *row) {
    sqlite3_stmt *statement;
    int found, status = step(index, SELECT_PICTURE, &statement, "i", id);
    status = found_row(index, status, statement, row, &found);
    return status || found ? status : fail_damaged(index, "a picture's row is missing");
}

static float float_from_bytes(const unsigned char *bytes) {
    uint32_t bits = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Or none at all, which is like nothing. */
static int has_unit_length(double square) { return square == 0 || fabs(square - 1) < 2e-5; }

int index_get_embedding(index_file *index, int64_t id, float *values) {
    sqlite3_stmt *row;
    const unsigned char *bytes;
    double square = 0;
    int status = step(index, SELECT_EMBEDDING, &row, "i", id);
    if (status) return status;
    if (!row || sqlite3_column_type(row, 0) != SQLITE_BLOB || sqlite3_column_bytes(row, 0) != (int)(index->width * 4))
        return fail_damaged(index, "an embedding has not the bytes of its width");
    bytes = sqlite3_column_blob(row, 0);
    if (!bytes) return fail_sql(index, "cannot read the index");
    for (uint32_t i = 0; i < index->width; i++) {
        values[i] = float_from_bytes(bytes + 4 * i);
        square += (double)values[i] * (double)values[i];
    }
    sqlite3_reset(row);
    if (!isfinite(square)) return fail_damaged(index, "an embedding is not finite");
    return has_unit_length(square) ? 0 : fail_damaged(index, "an embedding has not the length 1");
}

static int put_embedding(index_file *index, int64_t id, const float *values) {
    unsigned char *bytes = malloc((size_t)index->width * 4);
    int status;
    if (!bytes) return fail_memory();
    for (uint32_t i = 0; i < index->width; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        for (uint32_t byte = 0; byte < 4; byte++) bytes[4 * i + byte] = (unsigned char)(bits >> (8 * byte) & 0xFF);
    }
    status = step(index, REPLACE_EMBEDDING, NULL, "ib", id, bytes, (int)(index->width * 4));
    free(bytes);
    return status;
}

/* The code of a row that is there or the next one. */
static int put_code(index_file *index, int64_t id, const unsigned char *code) {
    const uint32_t at = (uint32_t)(id % INDEX_BLOCK_ROWS);
    index_block *block;
    int status = load_block(index, id / INDEX_BLOCK_ROWS, &block);
    if (status) return status;
    memcpy(block->bytes + at * row_bytes(index), code, row_bytes(index));
    if (at == block->rows) block->rows++;
    block->changed = 1;
    return 0;
}

int index_put(index_file *index, const index_row *row, const float *embedding) {
    index_row old;
    unsigned char *code;
    int found, status = index_find_path(index, row->path, &old, &found);
    int64_t id = found ? old.id : index->rows;
    double square = 0;
    if (status) return status;
    for (uint32_t i = 0; i < index->width; i++) square += (double)embedding[i] * (double)embedding[i];
    if (!isfinite(square)) return cli_fail(CLI_BAD_FILE, row->path, "its embedding is not finite: the model is not usable");
    if (!has_unit_length(square)) return cli_fail(CLI_BAD_FILE, row->path, "its embedding has not the length 1");
    if (id >= INDEX_MAX_ROWS) return cli_fail(CLI_BAD_FILE, index->name, "the index is full: it has %d rows", INDEX_MAX_ROWS);
    status = step(index, found ? UPDATE_PICTURE : INSERT_PICTURE, NULL, "itiii", id, row->path, row->size, row->mtime, row->checksum);
    if (!status) status = put_embedding(index, id, embedding);
    if (status) return status;
    code = malloc(row_bytes(index));
    if (!code) return fail_memory();
    index_encode(embedding, index->width, code);
    status = put_code(index, id, code);
    free(code);
    if (!status && !found) index->rows++;
    return status;
}

int index_rename(index_file *index, const index_row *row) {
    return step(index, UPDATE_PICTURE, NULL, "itiii", row->id, row->path, row->size, row->mtime, row->checksum);
}

/* The last row's code goes to id, and the last block is a row shorter. */
static int move_last_code(index_file *index, int64_t id) {
    const int64_t last = index->rows - 1;
    index_block *block;
    int status = load_block(index, last / INDEX_BLOCK_ROWS, &block);
    if (status) return status;
    if (id != last) {
        unsigned char *code = malloc(row_bytes(index));
        if (!code) return fail_memory();
        memcpy(code, block->bytes + (size_t)(last % INDEX_BLOCK_ROWS) * row_bytes(index), row_bytes(index));
        status = put_code(index, id, code);
        free(code);
        if (!status) status = load_block(index, last / INDEX_BLOCK_ROWS, &block);
    }
    if (status) return status;
    block->rows--;
    block->changed = 1;
    return 0;
}

int index_remove(index_file *index, int64_t id) {
    const int64_t last = index->rows - 1;
    int status = step(index, DELETE_PICTURE, NULL, "i", id);
    if (!status) status = step(index, DELETE_EMBEDDING, NULL, "i", id);
    if (!status && id != last) status = step(index, MOVE_PICTURE, NULL, "ii", last, id);
    if (!status && id != last) status = step(index, MOVE_EMBEDDING, NULL, "ii", last, id);
    if (!status) status = move_last_code(index, id);
    if (!status) index->rows--;
    return status;
}

int index_each(index_file *index, index_visit *visit, void *user) {
    sqlite3_stmt *statement;
    index_row row;
    int status = step(index, SELECT_EACH, &statement, ""), code = statement ? SQLITE_ROW : SQLITE_DONE;
    while (!status && code == SQLITE_ROW) {
        status = read_row(index, statement, &row);
        if (!status) status = visit(user, &row);
        if (!status) code = sqlite3_step(statement);
    }
    if (!status && code != SQLITE_DONE) status = fail_sql(index, "the index is damaged");
    if (statement) sqlite3_reset(statement);
    return status;
}

/* ---- all of it ---- */

static int check_count(index_file *index, int which, int64_t wanted) {
    int64_t count;
    int status = number(index, which, &count);
    return status || count == wanted ? status : fail_damaged(index, "its tables do not go together");
}

/* SQLite's own check: every page is where it should be, and every entry of an index has its row. */
static int check_pages(index_file *index) {
    sqlite3_stmt *statement;
    const char *verdict;
    int code, status = 0;
    if (sqlite3_prepare_v2(index->database, "PRAGMA integrity_check(1)", -1, &statement, NULL) != SQLITE_OK)
        return fail_sql(index, "the index is damaged");
    code = sqlite3_step(statement);
    verdict = code == SQLITE_ROW ? (const char *)sqlite3_column_text(statement, 0) : NULL;
    if (!verdict) status = fail_sql(index, "the index is damaged");
    else if (strcmp(verdict, "ok") != 0) status = fail_damaged(index, verdict);
    sqlite3_finalize(statement);
    return status;
}

/* Embeddings and codes, row by row. */
static int check_rows(index_file *index, float *values, unsigned char *bytes) {
    sqlite3_blob *blob = NULL;
    uint32_t rows;
    int status = 0;
    for (int64_t block = 0; !status && block * INDEX_BLOCK_ROWS < index->rows; block++) {
        status = index_read_block(index, &blob, block, bytes, &rows);
        for (uint32_t i = 0; !status && i < rows; i++) {
            status = index_get_embedding(index, block * INDEX_BLOCK_ROWS + i, values);
            if (!status && !index_code_holds(values, index->width, bytes + i * row_bytes(index)))
                status = fail_damaged(index, "the 8-bit copy of an embedding is not of it");
        }
    }
    sqlite3_blob_close(blob);
    return status;
}

static int check_row(void *user, const index_row *row) {
    (void)user;
    (void)row; /* index_each has looked at it */
    return 0;
}

int index_check_whole(index_file *index) {
    float *values = malloc(index->width * sizeof *values);
    unsigned char *bytes = malloc(INDEX_BLOCK_ROWS * row_bytes(index));
    int status = values && bytes ? check_pages(index) : fail_memory();
    if (!status) status = check_count(index, COUNT_PICTURES, index->rows);
    if (!status) status = check_count(index, COUNT_EMBEDDINGS, index->rows);
    if (!status) status = check_count(index, COUNT_BLOCKS, (index->rows + INDEX_BLOCK_ROWS - 1) / INDEX_BLOCK_ROWS);
    if (!status) status = index_each(index, check_row, NULL);
    if (!status) status = check_rows(index, values, bytes);
    free(values);
    free(bytes);
    return status;
}
