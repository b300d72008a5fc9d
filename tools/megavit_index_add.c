/* Bringing an index (tools/index.h) up to date: what is new, changed, moved or gone. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "tools/index.h"

enum { COMMIT_SECONDS = 2, PENDING_MOST = 1024, REMOVED_AT_ONCE = 4096, COPIES_LOOKED_AT = 8, STOPPED = 100 };

static int fail_memory(void) { return cli_fail(CLI_MACHINE, NULL, "out of memory for the index"); }

/* ---- files ---- */

typedef enum file_state { FILE_NEW = 0, FILE_CHANGED, FILE_UNCHANGED, FILE_TOUCHED, FILE_COPY } file_state;

typedef struct picture_file {
    char *name; /* as it was given */
    char *path; /* NULL: there is none, and whoever opens it will say why */
    int64_t size, mtime, checksum;
    int has_checksum;
    file_state state;
    size_t place; /* in the order given */
} picture_file;

static int64_t nanoseconds(const struct stat *about) { return (int64_t)about->st_mtim.tv_sec * 1000000000 + about->st_mtim.tv_nsec; }

/* FNV-1a in 64 bits (Fowler, Noll, Vo) of the file's bytes: it tells files apart and is no protection against forgers. 0: cannot be read. */
static int sum_file(picture_file *file) {
    unsigned char block[65536];
    uint64_t hash = 0xCBF29CE484222325u;
    size_t bytes;
    FILE *stream;
    int good;
    if (file->has_checksum) return 1;
    stream = fopen(file->path, "rb");
    if (!stream) return 0;
    while ((bytes = fread(block, 1, sizeof block, stream)) > 0)
        for (size_t i = 0; i < bytes; i++) hash = (hash ^ block[i]) * 0x100000001B3u;
    good = !ferror(stream);
    fclose(stream);
    memcpy(&file->checksum, &hash, sizeof hash);
    file->has_checksum = good;
    return good;
}

static int compare_files(const void *a, const void *b) {
    const picture_file *const *first = a, *const *second = b;
    int order;
    if (!(*first)->path || !(*second)->path) return !(*first)->path - !(*second)->path;
    order = strcmp((*first)->path, (*second)->path);
    return order ? order : (*first)->place < (*second)->place ? -1 : 1;
}

/* A file that was named twice counts once. */
static int mark_repeated(picture_file *files, size_t count) {
    picture_file **sorted = malloc((count ? count : 1) * sizeof *sorted);
    if (!sorted) return fail_memory();
    for (size_t i = 0; i < count; i++) sorted[i] = &files[i];
    qsort(sorted, count, sizeof *sorted, compare_files);
    for (size_t i = 1; i < count; i++)
        if (sorted[i]->path && strcmp(sorted[i]->path, sorted[i - 1]->path) == 0) sorted[i]->state = FILE_UNCHANGED;
    free(sorted);
    return 0;
}

/* All that a file is asked for in advance: where it lies, its size and its time. */
static int look_at_files(const cli_list *pictures, picture_file *files) {
    for (size_t i = 0; i < pictures->count; i++) {
        struct stat about;
        files[i].place = i;
        files[i].name = strdup(pictures->items[i]);
        if (!files[i].name) return fail_memory();
        files[i].path = index_whole_path(pictures->items[i]);
        if (!files[i].path || stat(files[i].path, &about) != 0) {
            free(files[i].path);
            files[i].path = NULL;
            continue;
        }
        files[i].size = about.st_size;
        files[i].mtime = nanoseconds(&about);
    }
    return 0;
}

static void free_files(picture_file *files, size_t count) {
    for (size_t i = 0; files && i < count; i++) {
        free(files[i].name);
        free(files[i].path);
    }
    free(files);
}

static void row_of(const picture_file *file, index_row *row) {
    row->id = -1;
    row->path = file->path;
    row->size = file->size;
    row->mtime = file->mtime;
    row->checksum = file->checksum;
}

/* What has to be done for a file. Only one that may be a row's under another name, or with another time, is read. */
static int judge_file(index_file *index, picture_file *file) {
    index_row row;
    int found, status = index_find_path(index, file->path, &row, &found);
    if (status) return status;
    if (found) {
        file->state = FILE_CHANGED;
        if (row.size != file->size) return 0;
        if (row.mtime == file->mtime) file->state = FILE_UNCHANGED;
        else if (sum_file(file) && file->checksum == row.checksum) file->state = FILE_TOUCHED;
        return 0;
    }
    status = index_has_size(index, file->size, &found);
    if (!status && found && sum_file(file)) {
        status = index_find_content(index, file->size, file->checksum, -1, &row, &found);
        if (!status && found) file->state = FILE_COPY;
    }
    return status;
}

static int judge_files(index_file *index, picture_file *files, size_t count, index_changes *changes) {
    int status = index_begin_reading(index), ended;
    for (size_t i = 0; !status && i < count; i++) {
        if (files[i].state == FILE_UNCHANGED) continue;
        if (files[i].path) status = judge_file(index, &files[i]);
        changes->unchanged += files[i].state == FILE_UNCHANGED;
    }
    ended = index_end(index);
    return status ? status : ended;
}

/* ---- writing ---- */

typedef struct adding {
    index_file *index;
    const index_about *about;
    uint32_t about_count;
    index_changes *changes;
    picture_file *files; /* that are embedded, in the order in which they come back */
    size_t file_count, next;
    size_t *pending;     /* files, */
    float *rows;         /* and their embeddings: [PENDING_MOST][width] */
    uint32_t pending_count, width;
    int status;          /* of what became of the last row */
    int is_checked;
    struct timespec last_commit;
} adding;

/* Before the first change, which comes within seconds: before hours of work go into it. */
static int check_before_writing(adding *a) {
    int status, ended;
    if (a->is_checked || a->index->is_empty) return 0;
    a->is_checked = 1;
    status = index_begin_reading(a->index);
    if (!status) status = index_check_whole(a->index);
    ended = index_end(a->index);
    return status ? status : ended;
}

static double seconds_since(const struct timespec *start) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start->tv_sec) + (double)(now.tv_nsec - start->tv_nsec) * 1e-9;
}

static int is_gone(const char *path) {
    struct stat about;
    return stat(path, &about) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

/* A row with the same bytes under another path: one whose file is gone moves, and if the first few are all there, one is copied. */
static int take_over(index_file *index, const picture_file *file, float *room, index_changes *changes) {
    index_row row, old;
    int64_t first = -1;
    int found, status = index_find_content(index, file->size, file->checksum, -1, &old, &found);
    row_of(file, &row);
    for (int looked = 0; !status && found && looked < COPIES_LOOKED_AT; looked++) {
        if (first < 0) first = old.id;
        if (is_gone(old.path)) {
            row.id = old.id;
            changes->moved++;
            return index_rename(index, &row);
        }
        status = index_find_content(index, file->size, file->checksum, old.id, &old, &found);
    }
    if (!status && first < 0)
        status = cli_fail(CLI_BAD_FILE, file->name, "another program has taken the row of the same bytes out meanwhile: --add it again");
    if (!status) status = index_get_embedding(index, first, room);
    if (!status) status = index_put(index, &row, room);
    changes->added += !status;
    return status;
}

static int touch(index_file *index, const picture_file *file, index_changes *changes) {
    index_row row, old;
    int found, status = index_find_path(index, file->path, &old, &found);
    if (status || !found) return status;
    row_of(file, &row);
    row.id = old.id;
    changes->unchanged++;
    return index_rename(index, &row);
}

/* What needs no embedding. */
static int write_known(adding *a, size_t count) {
    index_file *index = a->index;
    picture_file *files = a->files;
    struct timespec last;
    float *room = malloc(index->width * sizeof *room);
    int status = room ? 0 : fail_memory(), writing = 0;
    for (size_t i = 0; !status && i < count; i++) {
        if (files[i].state != FILE_TOUCHED && files[i].state != FILE_COPY) continue;
        if (!writing) {
            status = check_before_writing(a);
            if (!status) status = index_begin_writing(index);
            writing = 1;
            clock_gettime(CLOCK_MONOTONIC, &last);
        }
        if (!status) status = files[i].state == FILE_TOUCHED ? touch(index, &files[i], a->changes) : take_over(index, &files[i], room, a->changes);
        if (!status && seconds_since(&last) >= COMMIT_SECONDS) {
            status = index_end(index);
            writing = 0;
        }
    }
    if (!status && writing) status = index_end(index);
    if (status) index_roll_back(index);
    free(room);
    return status;
}

/* The first signal asks for an end, the second one ends us where we are: what was committed stays either way. */
static volatile sig_atomic_t stopped_by;
static void note_signal(int number) { stopped_by = number; }

static void watch_signals(void) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction before, action;
    memset(&action, 0, sizeof action);
    action.sa_handler = note_signal;
    action.sa_flags = (int)SA_RESETHAND;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN) sigaction(numbers[i], &action, NULL);
}

static int write_pending(adding *a) {
    int status = 0;
    uint64_t added = 0, renewed = 0;
    clock_gettime(CLOCK_MONOTONIC, &a->last_commit);
    if (!a->pending_count) return 0;
    if (a->index->is_empty) {
        status = index_create(a->index, a->about, a->about_count);
        if (!status) status = index_check_about(a->index, a->about, a->about_count); /* it may be somebody else's */
        if (status) return status;
    }
    status = check_before_writing(a);
    if (!status) status = index_begin_writing(a->index);
    for (uint32_t i = 0; !status && i < a->pending_count; i++) {
        const picture_file *file = &a->files[a->pending[i]];
        const int64_t before = a->index->rows;
        index_row row;
        row_of(file, &row);
        status = index_put(a->index, &row, a->rows + (size_t)i * a->width);
        added += a->index->rows > before;
        renewed += a->index->rows == before;
    }
    if (!status) status = index_end(a->index);
    if (status) {
        index_roll_back(a->index);
        return status;
    }
    a->changes->added += added;
    a->changes->renewed += renewed;
    a->pending_count = 0;
    return 0;
}

/* The names come in the order of the files, without those that could not be read. */
static int take_row(adding *a, const char *name, const float *rows) {
    picture_file *file;
    while (a->next < a->file_count && strcmp(a->files[a->next].name, name) != 0) a->next++;
    if (a->next == a->file_count) return cli_fail(CLI_MACHINE, name, "is not one of the pictures to be added");
    file = &a->files[a->next];
    file->state = FILE_UNCHANGED; /* as it is from now on */
    if (file->path && sum_file(file)) {
        memcpy(a->rows + (size_t)a->pending_count * a->width, rows, a->width * sizeof *rows);
        a->pending[a->pending_count++] = a->next;
    }
    a->next++;
    if (stopped_by) return STOPPED;
    return a->pending_count == PENDING_MOST || seconds_since(&a->last_commit) >= COMMIT_SECONDS ? write_pending(a) : 0;
}

static int take_picture(void *user, const char *name, const mgv_shape *shape, const float *rows) {
    adding *a = user;
    (void)shape;
    a->status = take_row(a, name, rows);
    return a->status;
}

/* A picture that has changed and can no longer be read is not what its row says. */
static int forget_unreadable(adding *a) {
    int status = 0, writing = 0;
    for (size_t i = 0; !status && i < a->next; i++) {
        index_row row;
        int found;
        if (a->files[i].state != FILE_CHANGED) continue;
        if (!writing) status = check_before_writing(a);
        if (!writing && !status) status = index_begin_writing(a->index);
        writing = 1;
        if (!status) status = index_find_path(a->index, a->files[i].path, &row, &found);
        if (!status && found) status = index_remove(a->index, row.id);
        if (!status) a->changes->removed += (uint64_t)found;
    }
    if (!status && writing) status = index_end(a->index);
    if (status) index_roll_back(a->index);
    return status;
}

/* Embeds what is left in the list. */
static int embed_rest(adding *a, cli_session *session, cli_list *pictures) {
    mgv_output output;
    int worst = 0, status = 0;
    memset(&output, 0, sizeof output);
    cli_compared_by(cli_session_info(session), &output.kind);
    output.normalize = 1;
    watch_signals();
    clock_gettime(CLOCK_MONOTONIC, &a->last_commit);
    if (pictures->count) status = cli_session_encode(session, pictures, &output, take_picture, a);
    a->changes->signal = stopped_by;
    if (status == STOPPED) status = 0;
    else if (!a->status && status < CLI_MACHINE) a->next = a->file_count; /* who has not come could not be read */
    if (status > worst) worst = status;
    if (a->status && a->status != STOPPED) return worst;
    status = write_pending(a);
    if (!status) status = forget_unreadable(a);
    return status > worst ? status : worst;
}

/* Leaves in both lists what has to be embedded, in the same order. */
static size_t keep_to_embed(picture_file *files, cli_list *pictures) {
    size_t kept = 0;
    for (size_t i = 0; i < pictures->count; i++) {
        picture_file file = files[i];
        if (file.state == FILE_NEW || file.state == FILE_CHANGED) {
            char *name = pictures->items[i];
            files[i] = files[kept];
            files[kept] = file;
            pictures->items[i] = pictures->items[kept];
            pictures->items[kept] = name;
            pictures->found[kept] = pictures->found[i];
            kept++;
        }
    }
    while (pictures->count > kept) free(pictures->items[--pictures->count]);
    return kept;
}

int index_add(index_file *index, const index_about *about, uint32_t about_count, cli_session *session, cli_list *pictures,
              index_changes *changes) {
    const size_t count = pictures->count;
    mgv_output_kind kind;
    adding a;
    int status;
    memset(&a, 0, sizeof a);
    a.index = index;
    a.about = about;
    a.about_count = about_count;
    a.changes = changes;
    a.width = cli_compared_by(cli_session_info(session), &kind);
    a.files = calloc(count ? count : 1, sizeof *a.files);
    a.pending = malloc(PENDING_MOST * sizeof *a.pending);
    a.rows = malloc((size_t)PENDING_MOST * a.width * sizeof *a.rows);
    status = a.files && a.pending && a.rows ? look_at_files(pictures, a.files) : fail_memory();
    if (!status) status = mark_repeated(a.files, count);
    if (!status && !index->is_empty) {
        status = judge_files(index, a.files, count, changes);
        if (!status) status = write_known(&a, count);
    }
    if (!status) a.file_count = keep_to_embed(a.files, pictures);
    if (!status && a.file_count) status = embed_rest(&a, session, pictures);
    free_files(a.files, count);
    free(a.pending);
    free(a.rows);
    return status;
}

/* ---- taking out ---- */

/* Those of an index's paths that are to be taken out. */
typedef struct selection {
    cli_list paths;
    const cli_list *names; /* below which; NULL: the files that are gone */
    uint64_t *found;       /* [names], rows of each */
    uint64_t rows;
} selection;

static int is_below(const char *path, const char *name) {
    size_t length = strlen(name);
    if (strcmp(name, "/") == 0) return 1;
    return strncmp(path, name, length) == 0 && (path[length] == 0 || path[length] == '/');
}

static int select_row(void *user, const index_row *row) {
    selection *s = user;
    int wanted = s->names ? 0 : is_gone(row->path);
    s->rows++;
    for (size_t i = 0; s->names && i < s->names->count; i++)
        if (is_below(row->path, s->names->items[i])) {
            s->found[i]++;
            wanted = 1;
        }
    return wanted ? cli_list_add(&s->paths, row->path) : 0;
}

static int compare_descending(const void *a, const void *b) {
    const int64_t first = *(const int64_t *)a, second = *(const int64_t *)b;
    return first < second ? 1 : first > second ? -1 : 0;
}

/* The highest number first, so that no row that is still to go takes the place of one that went. */
static int remove_some(index_file *index, char **paths, size_t count, int64_t *ids, index_changes *changes) {
    size_t there = 0;
    int status = index_begin_writing(index);
    for (size_t i = 0; !status && i < count; i++) {
        index_row row;
        int found;
        status = index_find_path(index, paths[i], &row, &found);
        if (!status && found) ids[there++] = row.id;
    }
    qsort(ids, there, sizeof *ids, compare_descending);
    for (size_t i = 0; !status && i < there; i++) status = index_remove(index, ids[i]);
    if (!status) status = index_end(index);
    if (status) index_roll_back(index);
    else changes->removed += there;
    return status;
}

static int remove_selected(index_file *index, const selection *s, index_changes *changes) {
    int64_t *ids = malloc(REMOVED_AT_ONCE * sizeof *ids);
    int status = ids ? 0 : fail_memory();
    for (size_t i = 0; !status && i < s->paths.count; i += REMOVED_AT_ONCE) {
        size_t count = s->paths.count - i < REMOVED_AT_ONCE ? s->paths.count - i : REMOVED_AT_ONCE;
        status = remove_some(index, s->paths.items + i, count, ids, changes);
    }
    free(ids);
    return status;
}

static int select_rows(index_file *index, selection *s) {
    int status = index_begin_reading(index), ended;
    if (status) return status;
    status = index_each(index, select_row, s);
    if (!status && s->paths.count) status = index_check_whole(index);
    ended = index_end(index);
    return status ? status : ended;
}

int index_prune(index_file *index, index_changes *changes) {
    selection s;
    int status;
    memset(&s, 0, sizeof s);
    status = select_rows(index, &s);
    if (!status && s.rows && s.paths.count == s.rows)
        status = cli_fail(CLI_BAD_FILE, index->name,
                          "not one of its %llu pictures is there: is a disk not mounted? Nothing was taken out; --remove does it whatever is there",
                          (unsigned long long)s.rows);
    if (!status) status = remove_selected(index, &s, changes);
    cli_list_free(&s.paths);
    return status;
}

int index_remove_names(index_file *index, const cli_list *names, index_changes *changes) {
    selection s;
    cli_list whole = {0};
    int status = 0, worst = 0;
    memset(&s, 0, sizeof s);
    s.names = &whole;
    s.found = calloc(names->count ? names->count : 1, sizeof *s.found);
    if (!s.found) status = fail_memory();
    for (size_t i = 0; !status && i < names->count; i++) {
        char *path = index_whole_path(names->items[i]);
        status = path ? cli_list_add(&whole, path) : cli_fail(CLI_BAD_FILE, names->items[i], "cannot be found: %s", strerror(errno));
        free(path);
    }
    if (!status) status = select_rows(index, &s);
    if (!status) status = remove_selected(index, &s, changes);
    for (size_t i = 0; !status && i < names->count; i++)
        if (!s.found[i]) worst = cli_fail(CLI_BAD_FILE, names->items[i], "is not in the index, nor is anything below it");
    cli_list_free(&whole);
    cli_list_free(&s.paths);
    free(s.found);
    return status ? status : worst;
}
