/* megavit search as its users see it: what goes in, what comes out, what lies beside, who else is there. Runs $BUILD/megavit. */
#include <sqlite3.h>
#include "tests/program.h"

static char database[512];

/* A new name for an index; what lay there and beside it before is gone. */
static const char *fresh(const char *name) {
    static const char *const endings[] = {"", "-wal", "-shm", "-journal"};
    for (int i = 0; i < 4; i++) {
        snprintf(database, sizeof database, "%s/%s%s", scratch, name, endings[i]);
        remove(database);
    }
    snprintf(database, sizeof database, "%s/%s", scratch, name);
    return database;
}

#define search(...) run("search", "--model", MODEL, "--index", database, __VA_ARGS__)
#define manage(...) run("search", "--index", database, __VA_ARGS__)

static void assert_said(const char *text) {
    if (!strstr(said_out, text)) fail_msg("'%s' is not in: %s%s", text, said_out, said_err);
}

static void index_sql(const char *path, const char *sql) {
    sqlite3 *connection;
    char *message = NULL;
    assert_int_equal(sqlite3_open(path, &connection), SQLITE_OK);
    if (sqlite3_exec(connection, sql, NULL, NULL, &message) != SQLITE_OK) fail_msg("%s: %s", sql, message);
    sqlite3_close(connection);
}

/* Nothing lies beside an index that is at rest, and SQLite finds no fault in it. */
static void assert_whole(void) {
    sqlite3 *connection;
    sqlite3_stmt *statement;
    char beside[600];
    snprintf(beside, sizeof beside, "%s-wal", database);
    assert_false(exists(beside));
    snprintf(beside, sizeof beside, "%s-shm", database);
    assert_false(exists(beside));
    assert_int_equal(sqlite3_open(database, &connection), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(connection, "PRAGMA integrity_check", -1, &statement, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    assert_string_equal(sqlite3_column_text(statement, 0), "ok");
    sqlite3_finalize(statement);
    sqlite3_close(connection);
}

/* So many pictures of their own bytes in a folder below the scratch one. */
static void make_library(const char *folder, uint32_t first, uint32_t count) {
    char path[512];
    unsigned char *pixels;
    snprintf(path, sizeof path, "%s/%s", scratch, folder);
    mkdir(path, 0777);
    for (uint32_t i = first; i < first + count; i++) {
        pixels = noise(1000 + i, 8 * 8 * 3);
        snprintf(path, sizeof path, "%s/%s/%05u.ppm", scratch, folder, i);
        write_pnm(path, 3, 8, 8, pixels);
        free(pixels);
    }
}

/* ---- finding ---- */

static void search_finds_the_nearest(void **state) {
    const char *line;
    (void)state;
    fresh("i.db");
    assert_int_equal(search("--add", in_scratch("pictures")), 0);
    assert_said("i.db: 5 added; 5 rows\n");
    assert_int_equal(search("--query", own[3], "-k", "2"), 0);
    assert_int_equal(lines(said_out), 3);
    assert_said("nearest 2 of 5");
    line = strchr(said_out, '\n') + 1;
    assert_non_null(strstr(line, "1.0000")); /* the picture itself */
    assert_memory_equal(strchr(line, '\n') - strlen(own[3]), own[3], strlen(own[3]));
    /* Adding and asking in one go works. */
    assert_int_equal(search("--add", own[0], own[1], "--query", own[0], "-k", "100"), 0);
    assert_said("2 unchanged; 5 rows");
    assert_said("nearest 5 of 5");
    assert_int_equal(lines(said_out), 7);
    assert_whole();
}

static void search_agrees_with_embed(void **state) {
    array a;
    char *at;
    double last = 2;
    (void)state;
    fresh("agree.db");
    assert_int_equal(run("embed", "--model", MODEL, "--normalize", "-o", in_scratch("unit.npy"), in_scratch("pictures")), 0);
    a = read_array(in_scratch("unit.npy"));
    assert_int_equal(search("--add", in_scratch("pictures"), "--query", own[1], "-k", "5"), 0);
    at = strchr(strchr(said_out, '\n') + 1, '\n') + 1; /* after "added" and "nearest" */
    for (int rank = 1; rank <= 5; rank++) {
        char name[256];
        int place;
        double cosine, expected = 0;
        assert_int_equal(sscanf(at, "%d %lf %255s", &place, &cosine, name), 3);
        assert_int_equal(place, rank);
        assert_true(cosine <= last);
        last = cosine;
        for (uint64_t k = 0; k < WIDTH; k++) {
            uint64_t picture = (uint64_t)(name[strlen(name) - 5] - 'a');
            expected += (double)array_float(&a, picture * WIDTH + k) * (double)array_float(&a, WIDTH + k);
        }
        assert_true(fabs(cosine - expected) < 1e-4);
        at = strchr(at, '\n') + 1;
    }
    free(a.file);
}

static void several_queries_and_a_threshold(void **state) {
    double similarity;
    char bound[32];
    const char *at;
    (void)state;
    fresh("several.db");
    assert_int_equal(search("--add", in_scratch("pictures"), "--query", own[0], own[1], "--query", own[2], "-k", "1"), 0);
    assert_int_equal(lines(said_out), 1 + 3 * 2);
    for (int i = 0; i < 3; i++) { /* each finds itself */
        char line[256];
        snprintf(line, sizeof line, "   1   1.0000  %s\n", own[i]);
        assert_said(line);
    }
    assert_int_equal(search("--query", own[4]), 0);
    at = strstr(said_out, "\n   2  ");
    assert_non_null(at);
    assert_int_equal(sscanf(at, " 2 %lf", &similarity), 1);
    snprintf(bound, sizeof bound, "%.4f", similarity + 0.001);
    assert_int_equal(search("--query", own[4], "--threshold", bound), 0);
    assert_said("nearest 1 of 5");
    snprintf(bound, sizeof bound, "%.4f", similarity - 0.001);
    assert_int_equal(search("--query", own[4], "--threshold", bound), 0);
    assert_true(strstr(said_out, "nearest 2 of 5") || strstr(said_out, "nearest 3 of 5")); /* two may be as near */
    assert_int_equal(search("--query", own[4], "--threshold", "-1"), 0); /* all that reach it, not the first five */
    assert_said("nearest 5 of 5");
    assert_int_equal(search("--query", own[4], "--threshold", "-1", "-k", "2"), 0);
    assert_said("nearest 2 of 5");
    assert_bad_file(search("--query", in_scratch("absent.png"), own[4]), "absent.png"); /* and the other is answered */
    assert_said("nearest 5 of 5");
}

static void json_says_the_same(void **state) {
    char wanted[300];
    (void)state;
    fresh("json.db");
    assert_int_equal(search("--json", "--add", in_scratch("pictures")), 0);
    assert_string_equal(said_out, "{\"added\": 5, \"renewed\": 0, \"moved\": 0, \"removed\": 0, \"unchanged\": 0, \"rows\": 5}\n");
    assert_int_equal(search("--json", "--query", own[2], "-k", "2"), 0);
    snprintf(wanted, sizeof wanted, "{\"query\": \"%s\", \"rows\": 5, \"nearest\": [{\"similarity\": 1, \"file\": \"%s\"}, {\"similarity\": ", own[2], own[2]);
    assert_memory_equal(said_out, wanted, strlen(wanted));
    assert_int_equal(lines(said_out), 1);
    assert_int_equal(manage("--json", "--list"), 0);
    assert_int_equal(lines(said_out), 5);
    snprintf(wanted, sizeof wanted, "{\"file\": \"%s\", \"size\": %d, \"mtime\": ", own[0], 64 * 48 * 3 + 13);
    assert_said(wanted);
    assert_int_equal(manage("--json", "--duplicates", "--threshold", "-1"), 0); /* all of them are of one group */
    assert_memory_equal(said_out, "{\"group\": [{\"similarity\": 1, ", 29);
    assert_int_equal(lines(said_out), 1);
}

static void duplicates_are_grouped(void **state) {
    char copy[512];
    array first, other;
    double cosine = 0;
    (void)state;
    fresh("twice.db");
    make_library("twice", 0, 40);
    snprintf(copy, sizeof copy, "cp %s/twice/00003.ppm %s/twice/b.ppm && cp %s/twice/00003.ppm %s/twice/a.ppm", scratch, scratch, scratch, scratch);
    assert_int_equal(system(copy), 0);
    assert_int_equal(search("--add", in_scratch("twice")), 0);
    assert_int_equal(manage("--duplicates", "--threshold", "0.99999"), 0);
    assert_said("1 group of near-equal pictures (similarity from 1), 3 of 42 pictures\n\n   1   1.0000  ");
    assert_int_equal(lines(said_out), 5);
    assert_said("/twice/a.ppm\n");
    assert_said("/twice/b.ppm\n");
    assert_said("/twice/00003.ppm\n");
    /* A group begins exactly where two are as near as is asked for. */
    assert_int_equal(run("embed", "--model", MODEL, "--normalize", "-o", in_scratch("one.npy"), in_scratch("twice/00001.ppm")), 0);
    assert_int_equal(run("embed", "--model", MODEL, "--normalize", "-o", in_scratch("two.npy"), in_scratch("twice/00002.ppm")), 0);
    first = read_array(in_scratch("one.npy"));
    other = read_array(in_scratch("two.npy"));
    for (uint64_t k = 0; k < WIDTH; k++) cosine += (double)array_float(&first, k) * (double)array_float(&other, k);
    fresh("pair.db");
    assert_int_equal(search("--add", in_scratch("twice/00001.ppm"), in_scratch("twice/00002.ppm")), 0);
    snprintf(copy, sizeof copy, "%.6f", cosine + 1e-5);
    assert_int_equal(manage("--duplicates", "--threshold", copy), 0);
    assert_said("0 groups");
    snprintf(copy, sizeof copy, "%.6f", cosine - 1e-5);
    assert_int_equal(manage("--duplicates", "--threshold", copy), 0);
    assert_said("1 group ");
    free(first.file);
    free(other.file);
}

/* ---- keeping up with a library ---- */

static void only_what_changed_is_embedded(void **state) {
    const struct timespec long_ago[2] = {{1000000000, 0}, {1000000000, 0}};
    char path[700], moved[512];
    unsigned char *pixels = noise(77, 8 * 8 * 3);
    (void)state;
    fresh("library.db");
    make_library("library", 0, 10);
    assert_int_equal(search("--add", in_scratch("library")), 0);
    assert_said("10 added; 10 rows");
    snprintf(path, sizeof path, "%s/library/../library/", scratch); /* one file, whatever it is called */
    assert_int_equal(search("--add", path, in_scratch("library")), 0);
    assert_said("library.db: 10 unchanged; 10 rows");
    assert_int_equal(utimensat(AT_FDCWD, in_scratch("library/00001.ppm"), long_ago, 0), 0); /* the time alone */
    write_pnm(in_scratch("library/00002.ppm"), 3, 8, 8, pixels);                            /* the bytes, not the size */
    assert_int_equal(utimensat(AT_FDCWD, in_scratch("library/00002.ppm"), long_ago, 0), 0);
    assert_int_equal(search("--add", in_scratch("library")), 0);
    assert_said("1 renewed, 9 unchanged; 10 rows");
    assert_int_equal(search("--query", in_scratch("library/00002.ppm"), "-k", "1"), 0);
    assert_said("1.0000");
    assert_said("00002.ppm");
    assert_int_equal(search("--add", in_scratch("library")), 0);
    assert_said("10 unchanged");
    snprintf(path, sizeof path, "%s/library", scratch);
    snprintf(moved, sizeof moved, "%s/moved", scratch);
    assert_int_equal(rename(path, moved), 0);
    assert_int_equal(search("--add", moved), 0);
    assert_said("10 moved; 10 rows");
    snprintf(path, sizeof path, "cp -r %s %s/copied", moved, scratch);
    assert_int_equal(system(path), 0);
    assert_int_equal(search("--add", in_scratch("copied")), 0);
    assert_said("10 added; 20 rows");
    assert_int_equal(search("--query", in_scratch("copied/00005.ppm"), "-k", "2"), 0);
    assert_said("   2   1.0000  "); /* the copy is as near */
    assert_whole();
    free(pixels);
}

/* What never was read by the model needs none: taking over a row gives the same answer as embedding it. */
static void a_copied_row_is_the_embedded_one(void **state) {
    char *first;
    (void)state;
    fresh("embedded.db");
    make_library("from", 0, 6);
    assert_int_equal(search("--add", in_scratch("from")), 0);
    assert_int_equal(run("search", "--model", MODEL, "--index", database, "--query", own[0], "-k", "6"), 0);
    first = strdup(said_out);
    assert_int_equal(rename(in_scratch("from"), in_scratch("into")), 0);
    assert_int_equal(search("--add", in_scratch("into")), 0);
    assert_said("6 moved");
    assert_int_equal(search("--query", own[0], "-k", "6"), 0);
    for (char *at = first; (at = strstr(at, "/from/")) != NULL;) memcpy(at, "/into/", 6);
    assert_string_equal(said_out, first);
    free(first);
}

static void a_changed_picture_that_is_none_loses_its_row(void **state) {
    (void)state;
    fresh("broken.db");
    make_library("broken", 0, 3);
    assert_int_equal(search("--add", in_scratch("broken")), 0);
    write_all(in_scratch("broken/00001.ppm"), "no picture any more", 19);
    assert_bad_file(search("--add", in_scratch("broken")), "00001.ppm");
    assert_said("1 removed, 2 unchanged; 2 rows");
    assert_int_equal(manage("--list"), 0);
    assert_null(strstr(said_out, "00001.ppm"));
}

/* Whatever else lies in a folder is looked at again and again, and is no error. */
static void a_folder_may_have_other_files(void **state) {
    (void)state;
    fresh("mixed.db");
    make_library("mixed", 0, 3);
    make_library("mixed/2024", 3, 2);
    write_all(in_scratch("mixed/notes.txt"), "no picture", 10);
    write_all(in_scratch("mixed/2024/more.txt"), "nor this", 8);
    assert_int_equal(search("--add", in_scratch("mixed")), 0);
    assert_said("5 added; 5 rows");
    assert_non_null(strstr(said_err, "skipped in folders: 2 no pictures"));
    assert_int_equal(search("--add", in_scratch("mixed")), 0);
    assert_said("5 unchanged; 5 rows");
    assert_int_equal(search("--no-recurse", "--add", in_scratch("mixed")), 0);
    assert_said("3 unchanged; 5 rows");
    assert_int_equal(run_from(in_scratch("stdout"), "search", "--model", MODEL, "--index", database, "--files-from", "-", NULL), 2); /* no names of files */
    fresh("none.db");
    assert_int_equal(mkdir(in_scratch("texts"), 0777), 0);
    write_all(in_scratch("texts/notes.txt"), "no picture", 10);
    assert_int_equal(search("--add", in_scratch("texts")), 2);
    assert_non_null(strstr(said_err, "there is no picture to add"));
    assert_false(exists(database));
}

static void prune_takes_out_what_is_gone(void **state) {
    char path[512];
    (void)state;
    fresh("prune.db");
    make_library("prune", 0, 30);
    assert_int_equal(search("--add", in_scratch("prune")), 0);
    assert_int_equal(manage("--prune"), 0);
    assert_said("nothing changed; 30 rows");
    for (int i = 0; i < 30; i += i == 4 ? 20 : 1) { /* 0 to 4 and 24 to 29: at both ends */
        snprintf(path, sizeof path, "%s/prune/%05d.ppm", scratch, i);
        assert_int_equal(remove(path), 0);
    }
    assert_int_equal(manage("--prune"), 0);
    assert_said("11 removed; 19 rows");
    assert_int_equal(manage("--list"), 0);
    assert_int_equal(lines(said_out), 19);
    assert_said("00005.ppm");
    assert_null(strstr(said_out, "00024.ppm"));
    for (int i = 5; i < 24; i++) { /* rows that moved to other places are still theirs */
        snprintf(path, sizeof path, "%s/prune/%05d.ppm", scratch, i);
        assert_int_equal(search("--query", path, "-k", "1"), 0);
        assert_said("1.0000");
        assert_said(path);
    }
    assert_int_equal(rename(in_scratch("prune"), in_scratch("unmounted")), 0);
    assert_bad_file(manage("--prune"), "is a disk not mounted");
    assert_int_equal(rename(in_scratch("unmounted"), in_scratch("prune")), 0);
    assert_whole();
}

static void remove_takes_names_and_directories(void **state) {
    (void)state;
    fresh("remove.db");
    make_library("remove", 0, 6);
    make_library("remove/below", 10, 4);
    make_library("remove-not", 20, 2);
    assert_int_equal(search("--add", in_scratch("remove"), in_scratch("remove/below"), in_scratch("remove-not")), 0);
    assert_int_equal(manage("--remove", in_scratch("remove/00002.ppm")), 0);
    assert_said("1 removed");
    assert_int_equal(rename(in_scratch("remove"), in_scratch("away")), 0); /* gone, and taken out all the same */
    assert_int_equal(manage("--remove", in_scratch("remove/below")), 0);
    assert_said("4 removed");
    assert_bad_file(manage("--remove", in_scratch("remove/below"), in_scratch("remove")), "remove/below: is not in the index");
    assert_int_equal(manage("--list"), 0);
    assert_int_equal(lines(said_out), 2); /* whose name only begins like it */
    assert_said("/remove-not/00020.ppm");
    assert_int_equal(manage("--remove", "/"), 0);
    assert_said("2 removed; 0 rows");
    assert_int_equal(search("--query", own[0]), 0);
    assert_said("nearest 0 of 0");
    assert_int_equal(manage("--duplicates"), 0);
    assert_int_equal(search("--add", own[0]), 0);
    assert_said("1 added; 1 row\n");
    assert_whole();
}

static void names_of_an_index_steer_no_terminal(void **state) {
    unsigned char *pixels = noise(5, 8 * 8 * 3);
    (void)state;
    fresh("names.db");
    write_pnm(in_scratch("c1\xC2\x9B" "31m.ppm"), 3, 8, 8, pixels);
    assert_int_equal(search("--add", in_scratch("c1\xC2\x9B" "31m.ppm")), 0);
    assert_int_equal(search("--query", own[0], "--list", "--duplicates"), 0);
    assert_said("c1\\xC2\\x9B31m.ppm");
    assert_null(strchr(said_out, '\x9B'));
    assert_int_equal(search("--query", own[0], "--list", "--json"), 0);
    assert_said("c1\\u009b31m.ppm");
    assert_null(strchr(said_out, '\x9B'));
    free(pixels);
}

/* ---- what an index is about ---- */

static void another_models_index_is_an_error(void **state) {
    static const char *const others[][2] = {{"decoder", "decodes pictures"}, {"orientation", "lie on their side"}, {"alpha", "--alpha"}};
    char sql[128];
    (void)state;
    fresh("other.db");
    assert_int_equal(search("--add", own[0]), 0);
    assert_bad_file(run("search", "--model", OTHER_MODEL, "--index", database, "--query", own[0]), "other.db");
    assert_non_null(strstr(said_err, "another model"));
    assert_bad_file(run("search", "--model", OTHER_MODEL, "--index", database, "--add", own[1]), "other.db");
    assert_bad_file(search("--resize", "torchvision", "--query", own[0]), "--resize");
    assert_bad_file(search("--alpha", "drop", "--query", own[0]), "--alpha");
    assert_int_equal(search("--query", own[0]), 0);
    assert_said("nearest 1 of 1");
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        snprintf(sql, sizeof sql, "UPDATE about SET value = 'PNM another' WHERE key = '%s'", others[i][0]);
        fresh("rules.db");
        assert_int_equal(search("--add", own[0]), 0);
        index_sql(database, sql);
        assert_bad_file(search("--query", own[0]), others[i][1]);
        assert_bad_file(search("--add", own[1]), others[i][1]);
        assert_int_equal(manage("--list"), 0); /* which needs no model */
    }
    fresh("formats.db"); /* one format more or less changes no row */
    assert_int_equal(search("--add", own[0]), 0);
    index_sql(database, "UPDATE about SET value = 'PNM megavit, OTHER library' WHERE key = 'decoder'");
    assert_int_equal(search("--query", own[0]), 0);
}

static void another_releases_index_is_no_error(void **state) {
    (void)state;
    assert_int_equal(run("search", "--help"), 0);
    assert_said("of megavit made it is only noted.");
    fresh("release.db");
    assert_int_equal(search("--add", own[0]), 0);
    index_sql(database, "UPDATE about SET value = '9.9.9' WHERE key = 'megavit'");
    assert_int_equal(search("--add", own[1], "--query", own[0]), 0);
    assert_said("nearest 2 of 2");
}

static void version_1_is_told_what_to_do(void **state) {
    (void)state;
    fresh("one.db");
    index_sql(database, "CREATE TABLE about(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
                        "CREATE TABLE picture(name TEXT PRIMARY KEY, embedding BLOB NOT NULL) WITHOUT ROWID;"
                        "PRAGMA application_id = 1296520777; PRAGMA user_version = 1");
    assert_bad_file(search("--query", own[0]), "an index of version 1");
    assert_non_null(strstr(said_err, "move it away and --add them to a new one"));
    assert_bad_file(search("--add", own[0]), "an index of version 1");
}

/* ---- untrusted files ---- */

/* A query and an --add see it alike: nothing is put into an index that cannot be asked. */
static void assert_damage(const char *bytes, size_t length, const char *sql) {
    fresh("damaged.db");
    write_all(database, bytes, length);
    index_sql(database, sql);
    if (search("--query", own[0]) != 2) fail_msg("a query does not see: %s\n%s", sql, said_out);
    assert_bad_file(2, "damaged.db");
    fresh("damaged.db");
    write_all(database, bytes, length);
    index_sql(database, sql);
    if (search("--add", own[1]) != 2) fail_msg("an --add does not see: %s\n%s", sql, said_out);
    assert_bad_file(2, "damaged.db");
}

static void a_damaged_index_is_one_line(void **state) {
    static const char *const damages[] = {
        "UPDATE embedding SET floats = x'00010203'",
        "UPDATE embedding SET floats = 'text'",
        "UPDATE embedding SET floats = zeroblob(100000)",
        "UPDATE embedding SET floats = (SELECT x'0000C07F' || substr(floats, 5) FROM embedding)", /* not finite */
        "UPDATE embedding SET floats = (SELECT x'00000041' || substr(floats, 5) FROM embedding)", /* not of length 1 */
        "DELETE FROM embedding",
        "UPDATE code SET codes = x'00'",
        "UPDATE code SET codes = 'text'",
        "UPDATE code SET codes = (SELECT x'0000C07F' || substr(codes, 5) FROM code)",
        "UPDATE code SET block = 1",
        "DELETE FROM code",
        "UPDATE about SET value = '47' WHERE key = 'width'",
        "UPDATE about SET value = '' WHERE key = 'width'",
        "UPDATE about SET value = '99999999' WHERE key = 'width'",
        "UPDATE about SET value = x'00' WHERE key = 'model'",
        "DELETE FROM about WHERE key = 'model'",
        "CREATE TABLE more(x)",
        "CREATE VIEW spy AS SELECT * FROM picture",
        "CREATE TRIGGER evil AFTER INSERT ON picture BEGIN DELETE FROM about; END",
        "DROP TABLE picture",
        "DROP INDEX picture_path",
        "DROP TABLE embedding; CREATE VIEW embedding AS SELECT 0 AS id, zeroblob(192) AS floats",
        "PRAGMA user_version = 3",
        "PRAGMA application_id = 0",
        "UPDATE picture SET path = x'2F00FF'",
        "UPDATE picture SET path = '/a' || char(0) || 'b'",
        "UPDATE picture SET path = 'relative'",
        "UPDATE picture SET size = 'large'",
        "UPDATE picture SET id = 7",
        "UPDATE picture SET id = -1",
        "UPDATE picture SET id = 9000000000000000000",
        "PRAGMA journal_mode = DELETE",
    };
    char *bytes = malloc(1 << 20);
    size_t length;
    (void)state;
    assert_non_null(bytes);
    fresh("whole.db");
    assert_int_equal(search("--add", own[0]), 0);
    length = read_all(database, bytes, 1 << 20);
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) assert_damage(bytes, length, damages[i]);
    fresh("cut.db");
    for (size_t cut = 0; cut < length; cut += 9973) { /* truncated anywhere */
        write_all(database, bytes, cut);
        assert_bad_file(search("--query", own[0]), "cut.db");
    }
    fresh("flipped.db");
    for (size_t at = 0; at < length; at += at < 8192 ? 127 : 2003) { /* a flipped byte: an answer or one line, never more */
        int added;
        bytes[at] = (char)~bytes[at];
        write_all(database, bytes, length);
        added = search("--add", own[1]);
        if (added != 0) assert_bad_file(added, "flipped.db");
        else if (search("--query", own[1]) != 0) fail_msg("byte %zu: added to and not to be asked: %s", at, said_err);
        bytes[at] = (char)~bytes[at];
    }
    free(bytes);
}

static void the_name_of_an_index_is_a_files(void **state) {
    static const char *const names[] = {":memory:", "file:uri.db", "file:one.db?mode=memory", "a b%20c#d?.db", "plain.db"};
    char model[4096];
    (void)state;
    whole_path(model, sizeof model, MODEL);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        int added, asked;
        child_folder = scratch;
        added = run("search", "--model", model, "--index", names[i], "--add", own[0]);
        asked = run("search", "--model", model, "--index", names[i], "--query", own[0]);
        child_folder = NULL;
        if (added != 0 || asked != 0) fail_msg("%s: %s", names[i], said_err);
        assert_said("nearest 1 of 1");
        assert_true(exists(in_scratch(names[i])));
    }
    assert_false(exists(in_scratch("uri.db")));
}

static void an_index_is_a_regular_file(void **state) {
    static const char *const names[] = {"fifo.db", "folder.db"};
    (void)state;
    assert_int_equal(mkfifo(in_scratch("fifo.db"), 0666), 0);
    assert_int_equal(mkdir(in_scratch("folder.db"), 0777), 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_bad_file(run("search", "--model", MODEL, "--index", in_scratch(names[i]), "--add", own[0]), names[i]);
        assert_non_null(strstr(said_err, "not a regular file"));
        assert_bad_file(run("search", "--model", MODEL, "--index", in_scratch(names[i]), "--query", own[0]), names[i]);
        assert_non_null(strstr(said_err, "not a regular file"));
    }
}

/* A journal as SQLite would roll it back, whose super-journal it would then delete: somebody else's file. */
static void write_hot_journal(const char *path, const char *victim) {
    static const unsigned char magic[8] = {0xD9, 0xD5, 0x05, 0xF9, 0x20, 0xA1, 0x63, 0xD7};
    unsigned char journal[2048] = {0};
    uint32_t length = (uint32_t)strlen(victim), sum = 0, at = 512;
    memcpy(journal, magic, 8);
    journal[19] = 7;    /* pages of the index before */
    journal[22] = 2;    /* bytes of a sector: 512 */
    journal[26] = 0x80; /* and of a page: 32768 */
    for (uint32_t i = 0; i < length; i++) sum += (unsigned char)victim[i];
    journal[at + 2] = 0x80;
    journal[at + 3] = 1; /* the page of locks */
    memcpy(journal + at + 4, victim, length);
    at += 4 + length;
    journal[at + 3] = (unsigned char)length;
    journal[at + 6] = (unsigned char)(sum >> 8);
    journal[at + 7] = (unsigned char)sum;
    memcpy(journal + at + 8, magic, 8);
    write_all(path, journal, at + 16);
}

/* What comes with an index out of an archive touches no other file and blocks nobody. */
static void what_lies_beside_an_index_is_looked_at(void **state) {
    static const char *const endings[] = {"-wal", "-shm", "-journal"};
    char beside[600], text[16];
    (void)state;
    fresh("beside.db");
    assert_int_equal(search("--add", own[0]), 0);
    write_all(in_scratch("victim"), "precious", 8);
    for (size_t i = 0; i < 3; i++) {
        snprintf(beside, sizeof beside, "%s%s", database, endings[i]);
        for (int kind = 0; kind < 5; kind++) {
            if (kind == 0) assert_int_equal(mkfifo(beside, 0666), 0);
            if (kind == 1) assert_int_equal(symlink(in_scratch("victim"), beside), 0);
            if (kind == 2) assert_int_equal(link(in_scratch("victim"), beside), 0);
            if (kind == 3) assert_int_equal(mkdir(beside, 0777), 0);
            if (kind == 4) write_hot_journal(beside, in_scratch("victim"));
            if (kind == 4 && i < 2) { /* a log of no use is no reason to fail */
                assert_int_equal(search("--query", own[0]), 0);
            } else {
                assert_bad_file(search("--query", own[0]), "beside.db: ");
                assert_non_null(strstr(said_err, endings[i]));
                assert_bad_file(search("--add", own[1]), "take it away");
                assert_bad_file(manage("--prune"), "take it away");
            }
            read_all(in_scratch("victim"), text, sizeof text);
            assert_string_equal(text, "precious");
            remove(beside);
        }
    }
    assert_int_equal(link(database, in_scratch("second.db")), 0); /* two names of one index have a log each */
    assert_bad_file(search("--add", own[1]), "hard link");
    assert_int_equal(search("--query", own[0]), 0);
    remove(in_scratch("second.db"));
    remove(in_scratch("link.db"));
    assert_int_equal(symlink(database, in_scratch("link.db")), 0); /* a symbolic one is where it points */
    assert_int_equal(run("search", "--model", MODEL, "--index", in_scratch("link.db"), "--add", own[1]), 0);
    assert_int_equal(search("--query", own[0]), 0);
    assert_said("nearest 2 of 2");
    assert_whole();
}

static void a_place_that_cannot_be_written_can_be_asked(void **state) {
    char folder[128], model[4096];
    int status;
    pid_t pid;
    (void)state;
    snprintf(folder, sizeof folder, "%s/read?only#", scratch);
    assert_int_equal(mkdir(folder, 0755), 0);
    snprintf(database, sizeof database, "%s/read.db", folder);
    assert_int_equal(search("--add", own[0], own[1]), 0);
    assert_int_equal(chmod(scratch, 0755), 0);
    assert_int_equal(chmod(database, 0644), 0); /* whatever the umask is */
    assert_int_equal(chmod(folder, 0555), 0);
    whole_path(model, sizeof model, MODEL);
    pid = fork(); /* may nobody run the program from where it lies? */
    if (pid == 0) {
        if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(1);
        _exit(access(program, X_OK) != 0 || access(model, R_OK | X_OK) != 0);
    }
    waitpid(pid, &status, 0);
    if (status != 0) {
        chmod(folder, 0755);
        skip_because("whoever may write nothing may not run the program where it lies");
    }
    child_is_nobody = 1;
    status = search("--query", own[0]);
    child_is_nobody = 0;
    assert_int_equal(status, 0);
    assert_said("nearest 2 of 2");
    child_is_nobody = 1;
    status = search("--add", own[2]);
    child_is_nobody = 0;
    assert_bad_file(status, "cannot write the index");
    assert_int_equal(chmod(folder, 0755), 0);
}

/* ---- ends that nobody wanted ---- */

static pid_t start(const char *const *words) {
    pid_t pid = fork();
    char *arguments[16] = {program};
    assert_true(pid >= 0);
    for (int i = 0; words[i]; i++) arguments[i + 1] = (char *)words[i];
    if (pid == 0) child(arguments, NULL);
    return pid;
}

/* Killed at any moment: the index is whole, holds some of the pictures, and the same --add puts in the rest. */
static void a_killed_add_is_gone_on_with(void **state) {
    enum { KILLS = 40, PICTURES = 200 };
    static const int numbers[] = {SIGKILL, SIGINT, SIGTERM, SIGHUP};
    char folder[512];
    const char *words[] = {"search", "--model", MODEL, "--index", database, "--add", folder, NULL};
    uint32_t random = 12345;
    (void)state;
    make_library("killed", 0, PICTURES);
    snprintf(folder, sizeof folder, "%s/killed", scratch);
    for (int i = 0; i < KILLS; i++) {
        struct timespec pause = {0, 0};
        int status;
        pid_t pid;
        fresh("killed.db");
        if (i % 2) assert_int_equal(search("--add", own[0]), 0);
        random = random * 1664525u + 1013904223u;
        pause.tv_nsec = (long)(random >> 8) % 120000000;
        pid = start(words);
        nanosleep(&pause, NULL);
        kill(pid, numbers[i % 4]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (exists(database)) assert_int_equal(manage("--list"), 0);
        assert_int_equal(search("--add", folder), 0);
        assert_int_equal(manage("--list"), 0);
        assert_int_equal(lines(said_out), PICTURES + i % 2);
        assert_whole();
    }
}

/* So many names of one picture that an --add of them lasts longer than it takes to see its first commit. */
static void make_links(const char *folder, int count) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", scratch, folder);
    assert_int_equal(mkdir(path, 0777), 0);
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/%s/%05d.ppm", scratch, folder, i);
        assert_int_equal(link(own[4], path), 0);
    }
}

static void ctrl_c_keeps_what_was_done(void **state) {
    enum { PICTURES = 6000 };
    const struct timespec pause = {0, 1000000};
    char folder[512];
    const char *words[] = {"search", "--model", MODEL, "--index", database, "--add", folder, NULL};
    int status, kept;
    pid_t pid;
    (void)state;
    make_links("many", PICTURES);
    snprintf(folder, sizeof folder, "%s/many", scratch);
    fresh("stopped.db");
    pid = start(words);
    while (!exists(database) && waitpid(pid, &status, WNOHANG) == 0) nanosleep(&pause, NULL); /* its first commit */
    assert_int_equal(kill(pid, SIGINT), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT); /* as the shell wants to know it */
    read_all(in_scratch("stderr"), said_err, sizeof said_err);
    if (!strstr(said_err, "stopped.db: interrupted: what was done is in the index")) fail_msg("said: %s", said_err);
    assert_whole();
    assert_int_equal(manage("--list"), 0);
    kept = lines(said_out);
    assert_true(kept > 0 && kept < PICTURES);
    assert_int_equal(search("--add", folder), 0); /* the rest has the bytes of what is there */
    assert_int_equal(manage("--list"), 0);
    assert_int_equal(lines(said_out), PICTURES);
}

static void nothing_is_added_by_a_failed_add(void **state) {
    static unsigned char before[1 << 20], after[1 << 20];
    size_t length;
    (void)state;
    write_all(in_scratch("bad.png"), "this is no picture", 18);
    fresh("new.db");
    assert_bad_file(search("--add", in_scratch("bad.png")), "bad.png");
    assert_false(exists(database));
    assert_bad_file(search("--query", own[0]), "new.db");
    assert_bad_file(manage("--list"), "new.db");
    assert_bad_file(manage("--prune"), "new.db");
    assert_false(exists(database));
    fresh("kept.db");
    assert_int_equal(search("--add", own[0]), 0);
    length = read_all(database, before, sizeof before);
    assert_bad_file(search("--add", in_scratch("bad.png")), "bad.png");
    assert_int_equal(read_all(database, after, sizeof after), length);
    assert_memory_equal(before, after, length);
    assert_bad_file(search("--add", own[1], in_scratch("bad.png")), "bad.png");
    assert_int_equal(search("--query", own[1]), 0);
    assert_said("nearest 2 of 2"); /* the good one of the two went in */
}

static void an_empty_file_is_no_index_yet(void **state) {
    struct stat about;
    int status;
    (void)state;
    fresh("first.db");
    write_all(database, "", 0);
    assert_bad_file(search("--query", own[0]), "first.db: the index is empty");
    assert_bad_file(search("--add", in_scratch("absent.png")), "absent.png");
    file_limit = 4096; /* the disk is full */
    status = search("--add", own[0]);
    file_limit = RLIM_INFINITY;
    assert_bad_file(status, "first.db");
    assert_int_equal(stat(database, &about), 0); /* not ours to remove */
    assert_int_equal(about.st_size, 0);
    assert_int_equal(search("--add", own[0], own[1]), 0);
    assert_int_equal(search("--query", own[0]), 0);
    assert_said("nearest 2 of 2");
}

static void a_full_disk_changes_nothing(void **state) {
    int status;
    (void)state;
    make_library("full", 0, 100);
    fresh("new_full.db");
    file_limit = 16384;
    assert_bad_file(search("--add", in_scratch("full")), "new_full.db");
    assert_false(exists(database));
    file_limit = RLIM_INFINITY;
    fresh("full.db");
    assert_int_equal(search("--add", own[0]), 0);
    file_limit = 16384;
    assert_bad_file(search("--add", in_scratch("full")), "full.db");
    status = run("embed", "--model", MODEL, "-o", in_scratch("full.npy"), in_scratch("full"));
    file_limit = RLIM_INFINITY;
    assert_bad_file(status, "full.npy");
    assert_false(exists(in_scratch("full.npy")));
    assert_int_equal(partial_files(), 0);
    assert_int_equal(search("--query", own[0]), 0);
    assert_said("nearest 1 of 1");
    assert_int_equal(search("--add", in_scratch("full")), 0);
    assert_int_equal(search("--query", own[0]), 0);
    assert_said("nearest 5 of 101");
    assert_whole();
}

/* ---- others that are there, too ---- */

static sqlite3 *open_other(const char *sql) {
    sqlite3 *other;
    assert_int_equal(sqlite3_open(database, &other), SQLITE_OK);
    if (sqlite3_exec(other, sql, NULL, NULL, NULL) != SQLITE_OK) fail_msg("%s: %s", sql, sqlite3_errmsg(other));
    return other;
}

static void who_reads_does_not_wait_for_who_writes(void **state) {
    sqlite3 *other;
    (void)state;
    fresh("busy.db");
    assert_int_equal(search("--add", own[0]), 0);
    other = open_other("BEGIN IMMEDIATE; DELETE FROM picture");
    assert_int_equal(search("--wait", "1", "--query", own[0]), 0); /* a state without what is not committed */
    assert_said("nearest 1 of 1");
    assert_int_equal(said_err[0], 0);
    sqlite3_close(other);
}

static void who_writes_waits_and_says_so(void **state) {
    const struct timespec pause = {0, 10000000};
    const char *words[] = {"search", "--model", MODEL, "--index", database, "--add", own[1], NULL};
    sqlite3 *other;
    int status;
    pid_t pid;
    (void)state;
    fresh("wait.db");
    assert_int_equal(search("--add", own[0]), 0);
    other = open_other("BEGIN IMMEDIATE");
    pid = start(words);
    do { /* until it has said it */
        nanosleep(&pause, NULL);
        said_err[0] = 0;
        if (exists(in_scratch("stderr"))) read_all(in_scratch("stderr"), said_err, sizeof said_err);
        assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
    } while (!strstr(said_err, "wait.db: waiting for another program that uses the index, 60 s at most"));
    assert_int_equal(sqlite3_exec(other, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    sqlite3_close(other);
    assert_int_equal(search("--query", own[0]), 0);
    assert_said("nearest 2 of 2");
}

static void an_index_in_use_is_3(void **state) {
    sqlite3 *other;
    (void)state;
    fresh("use.db");
    assert_int_equal(search("--add", own[0]), 0);
    other = open_other("BEGIN IMMEDIATE");
    assert_int_equal(search("--wait", "1", "--add", own[1]), 3);
    assert_non_null(strstr(said_err, "use.db: the index is in use by another program: not free within 1 s (--wait)"));
    assert_int_equal(manage("--wait", "1", "--remove", own[0]), 3);
    sqlite3_close(other);
    assert_int_equal(search("--query", own[0]), 0);
    assert_said("nearest 1 of 1");
}

static void two_add_at_once(void **state) {
    char folders[2][512];
    pid_t pids[2];
    int status;
    (void)state;
    fresh("two.db");
    for (int i = 0; i < 2; i++) {
        make_library(i ? "right" : "left", 5000 + (uint32_t)i * 200, 200);
        snprintf(folders[i], sizeof folders[i], "%s/%s", scratch, i ? "right" : "left");
    }
    for (int i = 0; i < 2; i++) { /* neither finds an index: one of them makes it */
        const char *words[] = {"search", "--model", MODEL, "--index", database, "--add", folders[i], NULL};
        pids[i] = start(words);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(manage("--list"), 0);
    assert_int_equal(lines(said_out), 400);
    assert_whole();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(search_finds_the_nearest),
        cmocka_unit_test(search_agrees_with_embed),
        cmocka_unit_test(several_queries_and_a_threshold),
        cmocka_unit_test(json_says_the_same),
        cmocka_unit_test(duplicates_are_grouped),
        cmocka_unit_test(only_what_changed_is_embedded),
        cmocka_unit_test(a_copied_row_is_the_embedded_one),
        cmocka_unit_test(a_changed_picture_that_is_none_loses_its_row),
        cmocka_unit_test(a_folder_may_have_other_files),
        cmocka_unit_test(prune_takes_out_what_is_gone),
        cmocka_unit_test(remove_takes_names_and_directories),
        cmocka_unit_test(names_of_an_index_steer_no_terminal),
        cmocka_unit_test(another_models_index_is_an_error),
        cmocka_unit_test(another_releases_index_is_no_error),
        cmocka_unit_test(version_1_is_told_what_to_do),
        cmocka_unit_test(a_damaged_index_is_one_line),
        cmocka_unit_test(the_name_of_an_index_is_a_files),
        cmocka_unit_test(an_index_is_a_regular_file),
        cmocka_unit_test(what_lies_beside_an_index_is_looked_at),
        cmocka_unit_test(a_place_that_cannot_be_written_can_be_asked),
        cmocka_unit_test(a_killed_add_is_gone_on_with),
        cmocka_unit_test(ctrl_c_keeps_what_was_done),
        cmocka_unit_test(nothing_is_added_by_a_failed_add),
        cmocka_unit_test(an_empty_file_is_no_index_yet),
        cmocka_unit_test(a_full_disk_changes_nothing),
        cmocka_unit_test(who_reads_does_not_wait_for_who_writes),
        cmocka_unit_test(who_writes_waits_and_says_so),
        cmocka_unit_test(an_index_in_use_is_3),
        cmocka_unit_test(two_add_at_once),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
