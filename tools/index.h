/* The index of megavit search, version 2: embeddings of pictures in one SQLite file.

     about      what every row was made with: model, preprocessing, decoder …
     picture    id, path, size, mtime (nanoseconds since 1970), checksum of the file's bytes
     embedding  id, the pooled embedding: `width` floats, little-endian, of length 1 (or 0)
     code       the same embeddings once more in 8 bits, INDEX_BLOCK_ROWS of them in a blob: what a query reads of all pictures

   Ids are 0, 1, 2 …: who leaves gives his id to the last one, so that blocks are full but the last, and nothing has to be swept.
   A row of `code` is scale, error (floats) and `width` signed bytes: the embedding is scale * bytes, off by at most `error` (L2).

   An index is an untrusted file. SQLite sees it only after its head has been looked at, its tables must be exactly ours, and every value is
   checked before it is used. Functions that return int give 0 or an exit code, after saying what is wrong. One thread an index_file. */
#ifndef MEGAVIT_INDEX_H
#define MEGAVIT_INDEX_H

#include <sqlite3.h>
#include <sys/stat.h>
#include "tools/cli.h"

enum {
    INDEX_VERSION = 2,
    INDEX_APPLICATION = 0x4D475649, /* "MGVI"; SQLite keeps it in the file's head, where file(1) looks */
    INDEX_BLOCK_ROWS = 1024,
    INDEX_CODE_HEAD = 8,            /* bytes of scale and error before a row's bytes */
    INDEX_MAX_WIDTH = 16384,
    INDEX_MAX_ROWS = 0x7FFFFFFF,
    INDEX_STATEMENTS = 22,
    INDEX_ABOUT_MOST = 8
};

/* Of a new index: large pages, since blocks are read from end to end. */
#ifndef INDEX_PAGE_BYTES
#define INDEX_PAGE_BYTES 32768
#endif

/* One thing that an index says about its rows. */
typedef struct index_about {
    const char *key;
    char value[256];
    const char *rule; /* what a different value means; NULL: it may differ */
    int (*agrees)(const char *theirs, const char *ours); /* NULL: only what is equal does */
} index_about;

typedef struct index_block {
    int64_t number; /* -1: none */
    uint32_t rows;
    int changed;
    unsigned char *bytes; /* room for INDEX_BLOCK_ROWS rows */
} index_block;

typedef struct index_file {
    const char *name; /* as the user calls it: for messages */
    char *path;       /* where it lies: the end of its symbolic links */
    sqlite3 *database;
    uint32_t width;        /* floats of an embedding */
    uint32_t wait_seconds; /* for other programs */
    int is_empty;          /* there is no file, or no byte in it: no index yet */
    int writing;           /* opened for it */
    int in_transaction;
    int failed;            /* something was wrong with it, which has been said */
    int unlocked;          /* read without locks, where nothing can be written beside it */
    struct stat unlocked_as;
    int64_t rows;          /* as of this transaction */
    sqlite3_stmt *statements[INDEX_STATEMENTS];
    index_block blocks[2]; /* of this transaction: the last one, and one that is changed or read */
    unsigned next_block;
} index_file;

typedef struct index_row {
    int64_t id;
    const char *path; /* absolute, without symbolic links */
    int64_t size, mtime, checksum;
} index_row;

/* ---- the file (megavit_index.c) ---- */

/* The absolute path, without symbolic links, of a file or of what of it is left: where it lies or lay. To be freed; NULL, and errno. */
char *index_whole_path(const char *name);

/* Opens what is there, or sets is_empty. name stays the caller's. index_close also after a failure. */
int index_open(index_file *index, const char *name, int writing, uint32_t wait_seconds);
/* Makes the file, whole or not at all, where there is none or an empty one, and opens it. What somebody else has made there meanwhile is
   opened instead; the caller checks what it is about. */
int index_create(index_file *index, const index_about *about, uint32_t count);
/* CLI_BAD_FILE with a sentence unless the index says the same of itself, where a rule says that it must. */
int index_check_about(index_file *index, const index_about *about, uint32_t count);
void index_close(index_file *index);

/* A state of the index that stays as it is until index_end. */
int index_begin_reading(index_file *index);
int index_begin_writing(index_file *index);
/* Ends reading, or writes what was changed. */
int index_end(index_file *index);
void index_roll_back(index_file *index);

/* Rows, inside a transaction. *found: 1 or 0; row->path lives until the next call. */
int index_find_path(index_file *index, const char *path, index_row *row, int *found);
/* The first row of a file of these bytes whose id is more than after. */
int index_find_content(index_file *index, int64_t size, int64_t checksum, int64_t after, index_row *row, int *found);
/* Whether any file of this size is in it. */
int index_has_size(index_file *index, int64_t size, int *found);
int index_get(index_file *index, int64_t id, index_row *row);
/* values: [width]. A row that is not finite, or whose length is neither 1 nor 0, is damaged. */
int index_get_embedding(index_file *index, int64_t id, float *values);
/* The row of this path, new or in place of the old one. */
int index_put(index_file *index, const index_row *row, const float *embedding);
/* Path, size, mtime and checksum of a row that is there. */
int index_rename(index_file *index, const index_row *row);
int index_remove(index_file *index, int64_t id);
/* A row of `code`, [rows * (INDEX_CODE_HEAD + width)], of a block whose rows must be as many as there have to be. */
int index_read_block(index_file *index, sqlite3_blob **blob, int64_t block, unsigned char *bytes, uint32_t *rows);

/* Every row by its path, until visit returns other than 0. */
typedef int index_visit(void *user, const index_row *row);
int index_each(index_file *index, index_visit *visit, void *user);

/* Reads all of it and holds every row against the others: what passes is whole. In a transaction. */
int index_check_whole(index_file *index);

/* ---- bringing it up to date (megavit_index_add.c) ---- */

typedef struct index_changes {
    uint64_t added, renewed, moved, unchanged, removed;
    int signal; /* that ended it before all was done; 0: none */
} index_changes;
/* Embeds what is new or has changed and commits it every few seconds. The index is made where there is none yet. pictures shrinks to what
   had to be embedded. Returns the worst exit code met. */
int index_add(index_file *index, const index_about *about, uint32_t about_count, cli_session *session, cli_list *pictures,
              index_changes *changes);
/* Takes out the rows whose files are gone. */
int index_prune(index_file *index, index_changes *changes);
/* Takes out the rows of these files, and of all files below these directories, whether they are there or not. */
int index_remove_names(index_file *index, const cli_list *names, index_changes *changes);

/* ---- finding (megavit_index_scan.c) ---- */

/* Writes INDEX_CODE_HEAD + width bytes. */
void index_encode(const float *values, uint32_t width, unsigned char *code);
/* Whether code stands for values within its own error. */
int index_code_holds(const float *values, uint32_t width, const unsigned char *code);

typedef struct index_match {
    int64_t id;
    double similarity;
} index_match;
typedef struct index_matches {
    index_match *items; /* best first; equal ones by id */
    uint64_t count;
} index_matches;
/* The nearest `most` rows of each query that have at least this similarity: the same rows as if every embedding had been compared. queries:
   [count * width], each of length 1. In a transaction. Each matches[i].items is to be freed. */
int index_nearest(index_file *index, const float *queries, uint32_t count, uint64_t most, double threshold, uint32_t threads,
                  index_matches *matches);

/* group: [rows], for each row the smallest id of its group: rows are of one group if a chain of rows, each with at least this similarity to
   the next, joins them. In a transaction. */
int index_duplicates(index_file *index, double threshold, uint32_t threads, uint32_t *group);

#endif
