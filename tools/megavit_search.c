/* megavit search: embeddings of pictures in one SQLite file, and the nearest of them.

   An index is an untrusted file like any other: its schema must be exactly ours, every row's size is checked before it is
   read, and what it says about its model must agree with the model at hand. */
#include <errno.h>
#include <math.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "tools/cli.h"

/* "MGVI"; SQLite keeps it in the file's header, where file(1) looks. */
#define APPLICATION_ID 0x4D475649
#define INDEX_VERSION 1
/* How long to wait for another program that writes the index. */
#define BUSY_MILLISECONDS 10000

#define SQL_TABLE_ABOUT "CREATE TABLE about(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID"
#define SQL_TABLE_PICTURE "CREATE TABLE picture(name TEXT PRIMARY KEY, embedding BLOB NOT NULL) WITHOUT ROWID"

typedef struct search_index {
    const char *path;
    sqlite3 *database;
    sqlite3_stmt *insert;
    const cli_session *session;
    const char *resize;
    uint32_t width;  /* floats of an embedding */
    int was_absent;  /* the file was not there before */
    int is_new;      /* the index has no tables yet */
    int writing;     /* a transaction is open */
    int failed;      /* and must be taken back */
    uint64_t added;
} search_index;

/* ---- SQLite with errors as sentences ---- */

static int fail_sql(const search_index *index, const char *what) {
    int code = sqlite3_errcode(index->database);
    int status = code == SQLITE_NOMEM ? CLI_MACHINE : CLI_BAD_FILE;
    if (code == SQLITE_BUSY) return cli_fail(CLI_MACHINE, index->path, "the index is in use by another program");
    if (sqlite3_extended_errcode(index->database) == SQLITE_READONLY_ROLLBACK)
        return cli_fail(status, index->path, "an --add was interrupted, and only who may write the index can take it back, with a --query");
    return cli_fail(status, index->path, "%s: %s", what, sqlite3_errmsg(index->database));
}

static int execute(const search_index *index, const char *sql, const char *what) {
    return sqlite3_exec(index->database, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : fail_sql(index, what);
}

static int prepare(const search_index *index, const char *sql, sqlite3_stmt **statement) {
    *statement = NULL;
    return sqlite3_prepare_v2(index->database, sql, -1, statement, NULL) == SQLITE_OK ? 0 : fail_sql(index, "cannot read the index");
}

/* The number that a statement gives in its one row. */
static int number(const search_index *index, const char *sql, int64_t *value) {
    sqlite3_stmt *statement;
    int status = prepare(index, sql, &statement);
    *value = 0;
    if (status) return status;
    if (sqlite3_step(statement) == SQLITE_ROW) *value = sqlite3_column_int64(statement, 0);
    else status = fail_sql(index, "cannot read the index");
    sqlite3_finalize(statement);
    return status;
}

/* ---- what an index says about itself ---- */

enum { ABOUT_COUNT = 4 };
typedef struct about_row {
    const char *key;
    char value[64];
    const char *rule; /* what a different value means; NULL: it may differ */
} about_row;

static void describe(const search_index *index, about_row rows[ABOUT_COUNT]) {
    const mgv_model_info *info = cli_session_info(index->session);
    memset(rows, 0, ABOUT_COUNT * sizeof *rows);
    rows[0].key = "model";
    snprintf(rows[0].value, sizeof rows[0].value, "%016llx", (unsigned long long)info->hash);
    rows[0].rule = "the index was made with another model";
    rows[1].key = "resize";
    snprintf(rows[1].value, sizeof rows[1].value, "%s", index->resize);
    rows[1].rule = "the index was made with another --resize";
    rows[2].key = "width";
    snprintf(rows[2].value, sizeof rows[2].value, "%u", index->width);
    rows[2].rule = "the index holds embeddings of another width";
    rows[3].key = "megavit";
    snprintf(rows[3].value, sizeof rows[3].value, "%s", mgv_version());
}

static int check_schema(const search_index *index) {
    static const char *const expected[] = {SQL_TABLE_ABOUT, SQL_TABLE_PICTURE};
    sqlite3_stmt *statement;
    size_t seen = 0;
    struct stat about;
    int good = 1, code, status;
    int64_t application, page_bytes, version;
    status = number(index, "PRAGMA application_id", &application);
    if (!status) status = number(index, "PRAGMA page_size", &page_bytes);
    if (!status) status = number(index, "PRAGMA user_version", &version);
    if (status) return status;
    if (application != APPLICATION_ID) return cli_fail(CLI_BAD_FILE, index->path, "not an index of megavit");
    if (stat(index->path, &about) != 0 || about.st_size % page_bytes != 0)
        return cli_fail(CLI_BAD_FILE, index->path, "the index is damaged: the file ends inside a page");
    if (version != INDEX_VERSION)
        return cli_fail(CLI_BAD_FILE, index->path, "an index of version %lld; this program reads version %d", (long long)version,
                        INDEX_VERSION);
    status = prepare(index, "SELECT sql FROM sqlite_master ORDER BY name", &statement);
    if (status) return status;
    while (good && (code = sqlite3_step(statement)) == SQLITE_ROW) {
        const char *sql = (const char *)sqlite3_column_text(statement, 0);
        good = seen < 2 && sql && strcmp(sql, expected[seen]) == 0;
        seen++;
    }
    if (good && code != SQLITE_DONE) {
        sqlite3_finalize(statement);
        return fail_sql(index, "the index is damaged");
    }
    sqlite3_finalize(statement);
    if (!good || seen != 2)
        return cli_fail(CLI_BAD_FILE, index->path, "the index is damaged: its tables are not those of version %d", INDEX_VERSION);
    return 0;
}

static int check_about(const search_index *index) {
    about_row rows[ABOUT_COUNT];
    sqlite3_stmt *statement;
    int status = prepare(index, "SELECT value FROM about WHERE key = ?1", &statement);
    if (status) return status;
    describe(index, rows);
    for (int i = 0; !status && i < ABOUT_COUNT; i++) {
        const char *value;
        int code;
        sqlite3_reset(statement);
        sqlite3_bind_text(statement, 1, rows[i].key, -1, SQLITE_STATIC);
        code = sqlite3_step(statement);
        value = code == SQLITE_ROW ? (const char *)sqlite3_column_text(statement, 0) : NULL;
        if (code != SQLITE_ROW && code != SQLITE_DONE) status = fail_sql(index, "the index is damaged");
        else if (!value) status = cli_fail(CLI_BAD_FILE, index->path, "the index is damaged: it does not say its '%s'", rows[i].key);
        else if (rows[i].rule && strcmp(value, rows[i].value) != 0)
            status =
                cli_fail(CLI_BAD_FILE, index->path, "%s: it says %s %s, here it is %s", rows[i].rule, rows[i].key, value, rows[i].value);
    }
    sqlite3_finalize(statement);
    return status;
}

/* ---- opening ---- */

/* An untrusted file: nothing in its schema is run, and SQLite checks the cells of a page before it reads them. */
static int harden(const search_index *index) {
    sqlite3_db_config(index->database, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(index->database, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_limit(index->database, SQLITE_LIMIT_LENGTH, 64 * 1024 * 1024);
    sqlite3_busy_timeout(index->database, BUSY_MILLISECONDS);
    return execute(index, "PRAGMA cell_size_check = ON", "not an index");
}

static int open_index(search_index *index, int flags) {
    /* "./", so that a name is only ever a file's: SQLite takes ":memory:" and "file:..." for something else. */
    char *file = sqlite3_mprintf("%s%s", index->path[0] == '/' ? "" : "./", index->path);
    int code = file ? sqlite3_open_v2(file, &index->database, flags, NULL) : SQLITE_NOMEM;
    sqlite3_free(file);
    return code == SQLITE_OK ? harden(index) : fail_sql(index, "cannot open the index");
}

static void close_index(search_index *index) {
    sqlite3_finalize(index->insert);
    if (index->writing) sqlite3_exec(index->database, "ROLLBACK", NULL, NULL, NULL);
    sqlite3_close(index->database);
    if (index->writing && index->is_new && index->was_absent) remove(index->path);
    index->database = NULL;
    index->insert = NULL;
    index->writing = 0;
}

/* Opens an index that is there and checks it whole, but for the rows, which are checked as they are read. To be written, if it can be:
   an --add that was interrupted has left a journal, and only who may write can take it back. If it was the first, no page is left, and
   the index is as good as new. */
static int open_existing(search_index *index) {
    int64_t pages;
    int status = open_index(index, SQLITE_OPEN_READWRITE);
    if (!status) status = number(index, "PRAGMA page_count", &pages);
    if (status) return status;
    index->is_new = pages == 0;
    if (index->is_new) return 0;
    status = check_schema(index);
    if (!status) status = check_about(index);
    return status;
}

static int create_tables(const search_index *index) {
    about_row rows[ABOUT_COUNT];
    sqlite3_stmt *statement;
    char pragmas[96];
    int status = execute(index, SQL_TABLE_ABOUT, "cannot create the index");
    if (!status) status = execute(index, SQL_TABLE_PICTURE, "cannot create the index");
    snprintf(pragmas, sizeof pragmas, "PRAGMA application_id = %d; PRAGMA user_version = %d", APPLICATION_ID, INDEX_VERSION);
    if (!status) status = execute(index, pragmas, "cannot create the index");
    if (!status) status = prepare(index, "INSERT INTO about(key, value) VALUES(?1, ?2)", &statement);
    if (status) return status;
    describe(index, rows);
    for (int i = 0; !status && i < ABOUT_COUNT; i++) {
        sqlite3_reset(statement);
        sqlite3_bind_text(statement, 1, rows[i].key, -1, SQLITE_STATIC);
        sqlite3_bind_text(statement, 2, rows[i].value, -1, SQLITE_STATIC);
        if (sqlite3_step(statement) != SQLITE_DONE) status = fail_sql(index, "cannot create the index");
    }
    sqlite3_finalize(statement);
    return status;
}

/* Opens the one transaction that everything is added in, so that the index holds all of it or nothing. */
static int begin_writing(search_index *index) {
    int64_t tables;
    int status = open_index(index, SQLITE_OPEN_READWRITE | (index->is_new ? SQLITE_OPEN_CREATE : 0));
    if (!status) status = execute(index, "BEGIN IMMEDIATE", "cannot write the index");
    if (status) return status;
    index->writing = 1;
    status = number(index, "SELECT count(*) FROM sqlite_master", &tables);
    /* Somebody else may have made it since we looked; then it is theirs and not removed if we fail. */
    if (status || tables) index->is_new = 0;
    if (status) return status;
    if (index->is_new) status = create_tables(index);
    else if (!(status = check_schema(index))) status = check_about(index);
    if (!status) status = prepare(index, "INSERT OR REPLACE INTO picture(name, embedding) VALUES(?1, ?2)", &index->insert);
    return status;
}

/* ---- adding ---- */

static void floats_to_bytes(const float *values, uint32_t count, unsigned char *bytes) {
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        for (int byte = 0; byte < 4; byte++) bytes[4 * i + (uint32_t)byte] = (unsigned char)(bits >> (8 * byte) & 0xFF);
    }
}

static float float_from_bytes(const unsigned char *bytes) {
    uint32_t bits = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static int insert_picture(search_index *index, const char *name, const float *row) {
    unsigned char *bytes;
    int good;
    for (uint32_t i = 0; i < index->width; i++)
        if (!isfinite(row[i])) return cli_fail(CLI_BAD_FILE, name, "its embedding is not finite: the model is not usable");
    if (!index->writing) {
        int status = begin_writing(index);
        if (status) return status;
    }
    bytes = malloc((size_t)index->width * 4);
    if (!bytes) return cli_fail(CLI_MACHINE, NULL, "out of memory");
    floats_to_bytes(row, index->width, bytes);
    sqlite3_reset(index->insert);
    good = sqlite3_bind_text(index->insert, 1, name, -1, SQLITE_STATIC) == SQLITE_OK &&
           sqlite3_bind_blob(index->insert, 2, bytes, (int)(index->width * 4), SQLITE_STATIC) == SQLITE_OK &&
           sqlite3_step(index->insert) == SQLITE_DONE;
    sqlite3_clear_bindings(index->insert);
    free(bytes);
    if (good) index->added++;
    return good ? 0 : fail_sql(index, "cannot add to the index");
}

static int add_picture(void *user, const char *name, const mgv_shape *shape, const float *rows) {
    search_index *index = user;
    int status = insert_picture(index, name, rows);
    (void)shape;
    if (status) index->failed = 1;
    return status;
}

static int add_pictures(search_index *index, cli_session *session, cli_list *pictures) {
    mgv_output output;
    int worst = cli_session_pictures(session, pictures), status = 0;
    memset(&output, 0, sizeof output);
    output.kind = MGV_OUTPUT_POOLED;
    output.normalize = 1;
    if (worst < CLI_MACHINE && pictures->count) status = cli_session_encode(session, pictures, &output, add_picture, index);
    if (status > worst) worst = status;
    sqlite3_finalize(index->insert);
    index->insert = NULL;
    /* A picture that cannot be read is left out; anything else that went wrong takes all of them back. */
    if (index->writing && !index->failed && worst < CLI_MACHINE) {
        status = execute(index, "COMMIT", "cannot write the index");
        if (status) worst = status;
        else index->writing = 0;
    }
    if (!index->writing && index->added) printf("%llu added to %s\n", (unsigned long long)index->added, index->path);
    close_index(index);
    return worst;
}

/* ---- finding ---- */

typedef struct match {
    double similarity;
    char *name;
} match;

typedef struct matches {
    match *items; /* best first */
    uint32_t count, room;
    uint64_t pictures;
} matches;

static int keep_match(matches *best, double similarity, const char *name) {
    uint32_t place = best->count;
    char *copy;
    best->pictures++;
    if (best->count == best->room && similarity <= best->items[best->count - 1].similarity) return 0;
    copy = malloc(strlen(name) + 1);
    if (!copy) return cli_fail(CLI_MACHINE, NULL, "out of memory");
    strcpy(copy, name);
    if (best->count == best->room) free(best->items[--place].name);
    else best->count++;
    for (; place > 0 && best->items[place - 1].similarity < similarity; place--) best->items[place] = best->items[place - 1];
    best->items[place].similarity = similarity;
    best->items[place].name = copy;
    return 0;
}

/* The cosine with the row's own length, so that an index whose rows are not normalised still ranks right. */
static int compare_row(const search_index *index, sqlite3_stmt *row, const float *query, matches *best) {
    const char *name;
    const unsigned char *bytes;
    double dot = 0, square = 0;
    if (sqlite3_column_type(row, 0) != SQLITE_TEXT) return cli_fail(CLI_BAD_FILE, index->path, "the index is damaged: a name is not text");
    name = (const char *)sqlite3_column_text(row, 0);
    if (!name) return fail_sql(index, "cannot read the index");
    if (strlen(name) != (size_t)sqlite3_column_bytes(row, 0))
        return cli_fail(CLI_BAD_FILE, index->path, "the index is damaged: there is a zero byte in a name");
    if (sqlite3_column_type(row, 1) != SQLITE_BLOB || sqlite3_column_bytes(row, 1) != (int)(index->width * 4))
        return cli_fail(CLI_BAD_FILE, index->path, "the index is damaged: the embedding of '%s' is not %u bytes", name, index->width * 4);
    bytes = sqlite3_column_blob(row, 1);
    if (!bytes) return fail_sql(index, "cannot read the index");
    for (uint32_t i = 0; i < index->width; i++) {
        double value = (double)float_from_bytes(bytes + 4 * i);
        dot += value * (double)query[i];
        square += value * value;
    }
    if (!isfinite(dot) || !isfinite(square))
        return cli_fail(CLI_BAD_FILE, index->path, "the index is damaged: the embedding of '%s' is not finite", name);
    return keep_match(best, square > 0 ? dot / sqrt(square) : 0, name);
}

typedef struct query {
    const search_index *index;
    matches *best;
} query;

static int find_nearest(void *user, const char *name, const mgv_shape *shape, const float *rows) {
    query *q = user;
    sqlite3_stmt *statement;
    int status = prepare(q->index, "SELECT name, embedding FROM picture ORDER BY name", &statement), code = SQLITE_DONE;
    (void)name;
    (void)shape;
    if (status) return status;
    while (!status && (code = sqlite3_step(statement)) == SQLITE_ROW) status = compare_row(q->index, statement, rows, q->best);
    if (!status && code != SQLITE_DONE) status = fail_sql(q->index, "the index is damaged");
    sqlite3_finalize(statement);
    return status;
}

static void print_matches(const char *name, const matches *best) {
    cli_print_text(stdout, name);
    printf(": nearest %u of %llu\n", best->count, (unsigned long long)best->pictures);
    for (uint32_t i = 0; i < best->count; i++) {
        printf("%4u  %7.4f  ", i + 1, best->items[i].similarity);
        cli_print_text(stdout, best->items[i].name);
        putchar('\n');
    }
}

static int find_picture(search_index *index, cli_session *session, const char *name, uint32_t k) {
    cli_list picture = {0};
    matches best;
    query q;
    mgv_output output;
    int status;
    memset(&best, 0, sizeof best);
    memset(&output, 0, sizeof output);
    output.kind = MGV_OUTPUT_POOLED;
    output.normalize = 1;
    q.index = index;
    q.best = &best;
    best.room = k;
    best.items = calloc(k, sizeof *best.items);
    if (!best.items) return cli_fail(CLI_MACHINE, NULL, "out of memory for %u matches", k);
    status = open_existing(index);
    if (!status && index->is_new) status = cli_fail(CLI_BAD_FILE, index->path, "the index is empty: nothing was ever added to it");
    if (!status) status = cli_list_add(&picture, name);
    if (!status) status = cli_session_pictures(session, &picture);
    if (!status) status = cli_session_encode(session, &picture, &output, find_nearest, &q);
    if (!status) print_matches(name, &best);
    for (uint32_t i = 0; i < best.count; i++) free(best.items[i].name);
    free(best.items);
    cli_list_free(&picture);
    close_index(index);
    return status;
}

/* ---- the command ---- */

typedef struct search_options {
    cli_session_options session;
    const char *index, *query;
    uint32_t k;
} search_options;

static int search(const cli_command *command, search_options *o, cli_list *pictures, cli_session *session) {
    search_index index;
    struct stat about;
    int worst = 0, status;
    memset(&index, 0, sizeof index);
    index.path = o->index;
    index.session = session;
    index.resize = o->session.resize == MGV_RESIZE_PILLOW ? "pillow" : "torchvision";
    index.width = cli_session_info(session)->pooled_width;
    if (!index.width) return cli_usage(command, "this model has no pooling head, and pictures are compared by their pooled embeddings");
    if (stat(o->index, &about) != 0) index.was_absent = index.is_new = 1;
    if (index.was_absent && (errno != ENOENT || !pictures->count))
        return cli_fail(CLI_BAD_FILE, o->index, "cannot open the index: %s", strerror(errno));
    if (!index.was_absent && !S_ISREG(about.st_mode)) return cli_fail(CLI_BAD_FILE, o->index, "the index is not a regular file");
    if (!index.was_absent) { /* before anything is computed */
        status = open_existing(&index);
        close_index(&index);
        if (status) return status;
    }
    if (pictures->count) worst = add_pictures(&index, session, pictures);
    if (o->query && worst < CLI_MACHINE) {
        status = find_picture(&index, session, o->query, o->k);
        if (status > worst) worst = status;
    }
    return worst;
}

static int parse_and_search(const cli_command *command, int argc, char **argv, cli_list *add, cli_list *pictures) {
    search_options o;
    cli_session *session;
    int status, worst;
    memset(&o, 0, sizeof o);
    o.k = 5;
    const cli_option options[] = {
        CLI_SESSION_OPTIONS(o.session),
        CLI_BATCH_OPTION(o.session),
        {"--index", CLI_TEXT, &o.index, "FILE", "the index, one SQLite file; --add makes it"},
        {"--add", CLI_NAMES, add, "IMAGE...", "put these in, or put them in anew"},
        {"--query", CLI_TEXT, &o.query, "IMAGE", "print the pictures nearest to this one"},
        {"-k", CLI_COUNT, &o.k, "N", "how many (5)"},
        {NULL, CLI_FLAG, NULL, NULL, NULL},
    };
    status = cli_parse(command, options, NULL, argc, argv);
    if (status != CLI_GO_ON) return status;
    if (!o.session.model) return cli_usage(command, "--model DIR is missing");
    if (!o.index) return cli_usage(command, "--index FILE is missing");
    if (!add->count && !o.query) return cli_usage(command, "nothing to do: neither --add IMAGE nor --query IMAGE");
    worst = cli_expand(add, pictures);
    if (worst < CLI_MACHINE && (pictures->count || o.query)) {
        session = cli_session_open(&o.session, &status);
        if (session) status = search(command, &o, pictures, session);
        cli_session_close(session);
        if (status > worst) worst = status;
    }
    return worst;
}

static int run(const cli_command *command, int argc, char **argv) {
    cli_list add = {0}, pictures = {0};
    int status = parse_and_search(command, argc, argv, &add, &pictures);
    cli_list_free(&add);
    cli_list_free(&pictures);
    return status;
}

const cli_command cli_search = {
    "search", "--model DIR --index FILE [--add IMAGE...] [--query IMAGE] [-k N]", "keep embeddings in one file, find the nearest pictures",
    "The index says which model and --resize it was made with; others are an error. Which release of megavit made it is only noted.\n"
    "Everything that one --add puts in appears together or not at all. Another program that writes the index is waited for,\n"
    "at most ten seconds; then the exit code is 3. Similarity is the cosine of pooled embeddings.\n",
    run};
