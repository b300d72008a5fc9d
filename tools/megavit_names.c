/* Names of pictures: directories, lists of names. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "tools/cli.h"

/* More than any system takes for a name. */
#define MAX_NAME_BYTES 65535u

/* ---- files and directories, each of which has two numbers by which it is known ---- */

typedef struct identity {
    dev_t device;
    ino_t file;
} identity;

/* Open addressing; empty places have `used` 0. */
typedef struct identity_set {
    struct place {
        identity id;
        int used;
    } *places;
    size_t count, room;
} identity_set;

static int out_of_memory(void) { return cli_fail(CLI_MACHINE, NULL, "out of memory for names"); }

static size_t find_place(const identity_set *set, identity id) {
    uint64_t hash = ((uint64_t)id.file * 0x9E3779B97F4A7C15u ^ (uint64_t)id.device) * 0xBF58476D1CE4E5B9u;
    size_t at = (size_t)(hash >> 16) & (set->room - 1);
    while (set->places[at].used && (set->places[at].id.file != id.file || set->places[at].id.device != id.device)) at = (at + 1) & (set->room - 1);
    return at;
}

static int is_in(const identity_set *set, identity id) { return set->room && set->places[find_place(set, id)].used; }

static int add_identity(identity_set *set, identity id) {
    size_t at;
    if (set->count * 2 >= set->room) {
        identity_set larger = {NULL, 0, set->room ? set->room * 2 : 64};
        larger.places = calloc(larger.room, sizeof *larger.places);
        if (!larger.places) return out_of_memory();
        for (size_t i = 0; i < set->room; i++)
            if (set->places[i].used) larger.places[find_place(&larger, set->places[i].id)] = set->places[i];
        larger.count = set->count;
        free(set->places);
        *set = larger;
    }
    at = find_place(set, id);
    if (!set->places[at].used) set->count++;
    set->places[at].id = id;
    set->places[at].used = 1;
    return 0;
}

/* ---- walking a directory ---- */

typedef struct entry {
    char *path;
    identity id;
    int link; /* the path is a symbolic link */
} entry;

typedef struct entries {
    entry *items;
    size_t count, room;
} entries;

typedef struct walk {
    cli_list *pictures;
    int recurse;
    entries files, directories, links; /* found; still to be walked; links to directories, which come when all else is walked */
    identity_set walked, own;          /* directories that were; files that are no links */
} walk;

/* Takes the path over. */
static int add_entry(entries *list, char *path, const struct stat *about, int link) {
    if (list->count == list->room) {
        size_t room = list->room ? list->room * 2 : 64;
        entry *items = realloc(list->items, room * sizeof *items);
        if (!items) {
            free(path);
            return out_of_memory();
        }
        list->items = items;
        list->room = room;
    }
    list->items[list->count].path = path;
    list->items[list->count].id.device = about->st_dev;
    list->items[list->count].id.file = about->st_ino;
    list->items[list->count++].link = link;
    return 0;
}

static char *join(const char *directory, const char *name) {
    size_t length = strlen(directory), bytes = length + 1 + strlen(name) + 1;
    char *path = malloc(bytes);
    if (path) snprintf(path, bytes, "%s%s%s", directory, length && directory[length - 1] == '/' ? "" : "/", name);
    return path;
}

static int compare_entries(const void *a, const void *b) { return strcmp(((const entry *)a)->path, ((const entry *)b)->path); }

/* Takes the path over. */
static int take_entry(walk *w, int directory, const char *name, char *path) {
    struct stat about, target;
    int link;
    if (fstatat(directory, name, &about, AT_SYMLINK_NOFOLLOW) != 0) {
        w->pictures->skipped[CLI_SKIPPED_GONE]++;
        free(path);
        return 0;
    }
    link = S_ISLNK(about.st_mode);
    if (link && fstatat(directory, name, &target, 0) == 0) about = target;
    if (S_ISREG(about.st_mode)) return add_entry(&w->files, path, &about, link);
    if (S_ISDIR(about.st_mode) && w->recurse) return add_entry(link ? &w->links : &w->directories, path, &about, link);
    w->pictures->skipped[S_ISDIR(about.st_mode) ? CLI_SKIPPED_FOLDER : S_ISLNK(about.st_mode) ? CLI_SKIPPED_GONE : CLI_SKIPPED_IRREGULAR]++;
    free(path);
    return 0;
}

/* "._name" is what other systems keep beside a file called name: not worth a word. */
static int read_directory(walk *w, const char *path) {
    const struct dirent *found;
    DIR *stream = opendir(path);
    int status = 0;
    if (!stream) return cli_fail(CLI_BAD_FILE, path, "cannot read the directory: %s", strerror(errno));
    errno = 0;
    while (!status && (found = readdir(stream)) != NULL) {
        const char *name = found->d_name;
        char *joined;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strncmp(name, "._", 2) == 0) continue;
        joined = join(path, name);
        status = joined ? take_entry(w, dirfd(stream), name, joined) : out_of_memory();
        errno = 0;
    }
    if (!status && errno) status = cli_fail(CLI_BAD_FILE, path, "cannot read the directory: %s", strerror(errno));
    closedir(stream);
    return status;
}

/* Directories that wait, each once. A link is looked at when no directory waits, so that a picture comes by its own name. */
static int walk_all(walk *w) {
    int worst = 0;
    while (worst < CLI_MACHINE && (w->directories.count || w->links.count)) {
        entries *list = w->directories.count ? &w->directories : &w->links;
        entry next = list->items[--list->count];
        int status = 0;
        if (is_in(&w->walked, next.id)) w->pictures->skipped[CLI_SKIPPED_TWICE] += next.link != 0;
        else if ((status = add_identity(&w->walked, next.id)) == 0) status = read_directory(w, next.path);
        if (status > worst) worst = status;
        free(next.path);
    }
    return worst;
}

/* What was found, sorted by path; a link to a file that is there already, or was by another link, is left out. */
static int take_files(walk *w) {
    int status = 0;
    if (!w->files.count) return 0; /* qsort takes no NULL */
    qsort(w->files.items, w->files.count, sizeof *w->files.items, compare_entries);
    for (size_t i = 0; !status && i < w->files.count; i++)
        if (!w->files.items[i].link) status = add_identity(&w->own, w->files.items[i].id);
    for (size_t i = 0; !status && i < w->files.count; i++) {
        const entry *file = &w->files.items[i];
        if (file->link && is_in(&w->own, file->id)) {
            w->pictures->skipped[CLI_SKIPPED_TWICE]++;
            continue;
        }
        if (file->link) status = add_identity(&w->own, file->id);
        if (!status) status = cli_list_add(w->pictures, file->path);
        if (!status) w->pictures->found[w->pictures->count - 1] = 1;
    }
    return status;
}

static void free_entries(entries *list) {
    for (size_t i = 0; i < list->count; i++) free(list->items[i].path);
    free(list->items);
}

static int add_directory(const char *directory, const struct stat *about, int recurse, cli_list *pictures) {
    size_t first = pictures->count;
    char *path = malloc(strlen(directory) + 1);
    int worst, status;
    walk w;
    if (!path) return out_of_memory();
    memset(&w, 0, sizeof w);
    w.pictures = pictures;
    w.recurse = recurse;
    worst = add_entry(&w.directories, strcpy(path, directory), about, 0);
    if (!worst) worst = walk_all(&w);
    status = worst < CLI_MACHINE ? take_files(&w) : 0;
    if (status > worst) worst = status;
    if (!worst && pictures->count == first) worst = cli_fail(CLI_BAD_FILE, directory, "there is no picture in this directory");
    free_entries(&w.files);
    free_entries(&w.directories);
    free_entries(&w.links);
    free(w.walked.places);
    free(w.own.places);
    return worst;
}

static int add_name(const char *name, const cli_names *how, cli_list *pictures) {
    struct stat about;
    if (stat(name, &about) == 0 && S_ISDIR(about.st_mode)) return add_directory(name, &about, !how->no_recurse, pictures);
    return cli_list_add(pictures, name);
}

/* ---- lists of names ---- */

size_t cli_byte_order_mark(const char *line) { return strncmp(line, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0; }

/* Reads the name up to `end`, without it; *length goes on counting where the name is too long for `line`, and *zero says whether it has a
   zero byte. 0 at the end of the input. */
static int read_line(FILE *stream, int end, char line[MAX_NAME_BYTES + 1], size_t *length, int *zero) {
    int byte;
    *length = 0;
    *zero = 0;
    while ((byte = getc(stream)) != EOF && byte != end) {
        if (*length < MAX_NAME_BYTES) line[*length] = (char)byte;
        if (byte == 0) *zero = 1;
        ++*length;
    }
    if (*length <= MAX_NAME_BYTES && end == '\n')
        while (*length > 0 && line[*length - 1] == '\r') --*length;
    line[*length < MAX_NAME_BYTES ? *length : MAX_NAME_BYTES] = 0;
    return byte != EOF || *length > 0;
}

static int add_list(FILE *stream, const char *list, int end, const cli_names *how, cli_list *pictures) {
    char *line = malloc(MAX_NAME_BYTES + 1);
    size_t first = pictures->count, length;
    int worst = 0, zero, lines = 0;
    if (!line) return out_of_memory();
    while (worst != CLI_MACHINE && read_line(stream, end, line, &length, &zero)) {
        const char *name = line + (end == '\n' && lines == 0 ? cli_byte_order_mark(line) : 0);
        int status;
        lines = 1;
        if (*name == 0 && !zero) continue;
        if (zero) status = cli_fail(CLI_BAD_FILE, name, "there is a zero byte after this name, and names end with their line");
        else if (length > MAX_NAME_BYTES)
            status = cli_fail(CLI_BAD_FILE, list, "a line of %zu bytes is no name: they have at most %u", length, MAX_NAME_BYTES);
        else status = add_name(name, how, pictures);
        if (status > worst) worst = status;
    }
    free(line);
    if (ferror(stream)) worst = cli_fail(CLI_BAD_FILE, list, "cannot read the names: %s", strerror(errno));
    if (!worst && pictures->count == first) return cli_fail(CLI_BAD_FILE, list, "there is no name in it");
    return worst;
}

/* name: of the list; "-" is standard input. */
static int add_list_file(const char *name, int end, const cli_names *how, cli_list *pictures) {
    FILE *stream;
    int status;
    if (strcmp(name, "-") == 0) return add_list(stdin, "standard input", end, how, pictures);
    stream = fopen(name, "rb");
    if (!stream) return cli_fail(CLI_BAD_FILE, name, "cannot open the list of names: %s", strerror(errno));
    status = add_list(stream, name, end, how, pictures);
    fclose(stream);
    return status;
}

int cli_expand(const cli_list *names, const cli_names *how, cli_list *pictures) {
    static const cli_names as_ever = {0, NULL, NULL};
    int worst = 0, status;
    if (!how) how = &as_ever;
    for (size_t i = 0; i < names->count && worst < CLI_MACHINE; i++) {
        if (strcmp(names->items[i], "-") == 0) status = add_list(stdin, "standard input", '\n', how, pictures);
        else status = add_name(names->items[i], how, pictures);
        if (status > worst) worst = status;
    }
    if (how->files_from && worst < CLI_MACHINE) {
        status = add_list_file(how->files_from, '\n', how, pictures);
        if (status > worst) worst = status;
    }
    if (how->files0_from && worst < CLI_MACHINE) {
        status = add_list_file(how->files0_from, 0, how, pictures);
        if (status > worst) worst = status;
    }
    return worst;
}

void cli_say_skipped(const cli_list *pictures) {
    static const char *const reasons[CLI_SKIPS] = {"no pictures", "neither files nor folders", "folders", "links to what is there already", "gone"};
    const char *between = ": ";
    char text[512];
    size_t sum = 0, at = 0;
    for (int i = 0; i < CLI_SKIPS; i++) sum += pictures->skipped[i];
    if (sum == 0) return;
    text[0] = 0;
    for (int i = 0; i < CLI_SKIPS; i++) {
        if (!pictures->skipped[i]) continue;
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%zu %s", between, pictures->skipped[i], reasons[i]);
        between = ", ";
    }
    cli_fail(0, NULL, "skipped in folders%s", text);
}
