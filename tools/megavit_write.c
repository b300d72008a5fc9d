/* Files that appear whole or not at all; NumPy arrays. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "tools/cli.h"

struct cli_file {
    FILE *stream;
    char *name;      /* as it was asked for; NULL: standard output */
    char *path;      /* where it will lie: the end of the name's symbolic links */
    char *temporary; /* beside path; NULL: the bytes go to the name directly, which is a device or a pipe */
};

/* ---- a program that is interrupted leaves no half file behind ---- */

/* The temporary files that are being written, an array, its offsets and its names at most; the one thing that a signal's handler may look at. */
enum { UNFINISHED_MOST = 3 };
static const char *volatile unfinished[UNFINISHED_MOST];

static void remove_unfinished(int number) {
    for (int i = 0; i < UNFINISHED_MOST; i++) {
        const char *path = unfinished[i];
        if (path) unlink(path);
    }
    signal(number, SIG_DFL);
    raise(number);
}

static void replace_unfinished(const char *before, const char *after) {
    int i = 0;
    while (i < UNFINISHED_MOST && unfinished[i] != before) i++;
    if (i < UNFINISHED_MOST) unfinished[i] = after;
}

/* A signal that whoever started us had ignored, as nohup does, stays ignored, and one that is handled stays with its handler. */
static void watch_signals(void) {
    static const int numbers[] = {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM, SIGXCPU, SIGXFSZ};
    struct sigaction before;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL) signal(numbers[i], remove_unfinished);
}

/* Opens a new file that is watched over before it exists: a signal to any thread finds no moment in which it would stay. */
static int open_watched(const char *temporary) {
    int descriptor;
    replace_unfinished(NULL, temporary);
    watch_signals();
    descriptor = open(temporary, O_RDWR | O_CREAT | O_EXCL, 0666);
    if (descriptor < 0) replace_unfinished(temporary, NULL);
    return descriptor;
}

/* ---- an output that is an input ---- */

static int same_file(const struct stat *a, const struct stat *b) { return a->st_dev == b->st_dev && a->st_ino == b->st_ino; }

static int is_named(const struct stat *output, const char *name) {
    struct stat about;
    return stat(name, &about) == 0 && same_file(output, &about);
}

static int ends_in(const char *name, const char *ending) {
    size_t length = strlen(name), end = strlen(ending);
    return length >= end && strcmp(name + length - end, ending) == 0;
}

/* Whatever else lies in the directory is not the model: packed weights that are written anew, for one. */
static int is_of_model(const struct stat *output, const char *directory) {
    static const char *const endings[] = {".json", ".safetensors", ".jinja", ".tiktoken", "merges.txt"};
    const struct dirent *entry;
    struct stat about;
    DIR *stream = opendir(directory);
    int found = 0;
    while (stream && !found && (entry = readdir(stream)) != NULL)
        for (size_t i = 0; i < sizeof endings / sizeof endings[0] && !found; i++)
            found = ends_in(entry->d_name, endings[i]) && fstatat(dirfd(stream), entry->d_name, &about, 0) == 0 &&
                    same_file(output, &about);
    if (stream) closedir(stream);
    return found;
}

int cli_check_output(const char *output, const char *model, const char *packed, const cli_list *pictures) {
    struct stat about;
    if (!output || strcmp(output, "-") == 0 || stat(output, &about) != 0 || !S_ISREG(about.st_mode)) return CLI_DONE;
    if (is_of_model(&about, model)) return cli_fail(CLI_USAGE, output, "this output would replace a file of the model");
    if (packed && is_named(&about, packed)) return cli_fail(CLI_USAGE, output, "this output would replace the packed weights");
    for (size_t i = 0; pictures && i < pictures->count; i++)
        if (is_named(&about, pictures->items[i])) return cli_fail(CLI_USAGE, output, "this output would replace one of the pictures");
    return CLI_DONE;
}

/* ---- files ---- */

static int fail_write(const char *name) {
    return cli_fail(CLI_BAD_FILE, name ? name : "standard output", "cannot write: %s", strerror(errno));
}

static cli_file *fail_create(cli_file *file, const char *name) {
    fail_write(name);
    cli_file_abandon(file);
    return NULL;
}

/* By whatever name: /dev/stdout, and the file that it has been redirected to. */
static int is_standard_output(const struct stat *about) {
    struct stat output;
    return fstat(STDOUT_FILENO, &output) == 0 && same_file(&output, about);
}

/* What the link at path says, from where the link lies. */
static char *link_target(const char *path, const char *target, size_t length) {
    const char *slash = strrchr(path, '/');
    size_t prefix = slash && target[0] != '/' ? (size_t)(slash + 1 - path) : 0;
    char *joined = malloc(prefix + length + 1);
    if (!joined) return NULL;
    memcpy(joined, path, prefix);
    memcpy(joined + prefix, target, length);
    joined[prefix + length] = 0;
    return joined;
}

/* Where a file of this name lies or would lie, since renaming replaces a link and not what it points to. NULL, and errno. */
static char *follow_links(const char *name) {
    char target[4096], *path = strdup(name);
    for (int links = 0; path && links < 40; links++) {
        ssize_t length = readlink(path, target, sizeof target);
        char *next;
        if (length < 0) return path; /* no link */
        next = link_target(path, target, (size_t)length);
        free(path);
        path = next;
    }
    if (path) errno = ELOOP;
    free(path);
    return NULL;
}

/* ---- what a program that was killed has left ---- */

/* What tells a running kernel from all others, as text: a process's number says nothing on another machine, nor do locks there, which many
   file systems that machines share keep to each of them. NULL: unknown. */
enum { MACHINE_TEXT = 40 };
static const char *this_machine(char text[MACHINE_TEXT]) {
    FILE *stream = fopen("/proc/sys/kernel/random/boot_id", "r");
    const int known = stream && fgets(text, MACHINE_TEXT, stream) != NULL;
    if (stream) fclose(stream);
    if (!known) return NULL;
    text[strcspn(text, "\n")] = 0;
    return strlen(text) == 36 && !strchr(text, '/') ? text : NULL;
}

/* The name of a temporary file; "": of a machine that does not know itself. */
enum { TEMPORARY_TEXT = MACHINE_TEXT + 64 };
static void name_temporary(char name[TEMPORARY_TEXT], const char *machine, long process, int attempt) {
    snprintf(name, TEMPORARY_TEXT, "megavit.%s.%ld.%d.partial", machine ? machine : "", process, attempt);
}

/* The process of this machine in such a name; 0: it is not such a name, or of another machine. */
static long writer_of(const char *name, const char *machine) {
    char canonical[TEMPORARY_TEXT];
    const size_t before = sizeof "megavit.." - 1 + strlen(machine);
    long process;
    int attempt;
    if (strlen(name) < before || sscanf(name + before, "%9ld.%3d.partial", &process, &attempt) != 2) return 0;
    if (process <= 0 || attempt < 0) return 0;
    name_temporary(canonical, machine, process, attempt);
    return strcmp(name, canonical) == 0 ? process : 0;
}

/* Whoever writes such a file holds a lock on it, which sees a writer in another container, too, whose number says nothing here. It takes
   the lock right behind opening, so an empty file must have been there for a minute. */
static int lock_whole(int descriptor) {
    struct flock lock;
    memset(&lock, 0, sizeof lock);
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    return fcntl(descriptor, F_SETLK, &lock) == 0;
}
static void remove_if_left(int directory, const char *name) {
    struct stat about, named;
    const int descriptor = openat(directory, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK);
    if (descriptor < 0) return;
    if (fstat(descriptor, &about) == 0 && S_ISREG(about.st_mode) && (about.st_size > 0 || about.st_mtime + 60 < time(NULL)) &&
        lock_whole(descriptor) && fstatat(directory, name, &named, AT_SYMLINK_NOFOLLOW) == 0 && same_file(&about, &named))
        unlinkat(directory, name, 0);
    close(descriptor); /* and with it the lock: never a file of this process, whose number is alive */
}
/* In the folder that path's first bytes name. */
static void remove_left_over(const char *path, size_t directory_bytes, const char *machine) {
    const struct dirent *entry;
    char *directory = machine ? strdup(directory_bytes ? path : "./") : NULL;
    DIR *stream;
    if (!directory) return;
    if (directory_bytes) directory[directory_bytes] = 0;
    stream = opendir(directory);
    while (stream && (entry = readdir(stream)) != NULL) {
        const long process = writer_of(entry->d_name, machine);
        if (process && kill((pid_t)process, 0) != 0 && errno == ESRCH) remove_if_left(dirfd(stream), entry->d_name);
    }
    if (stream) closedir(stream);
    free(directory);
}

/* Opens the temporary file, whose name is short where the file's is as long as names can be; 0, or errno says why not. */
static int open_temporary(cli_file *file) {
    char text[MACHINE_TEXT], name[TEMPORARY_TEXT];
    const char *slash, *machine = this_machine(text);
    size_t room, directory;
    int descriptor = -1;
    file->path = follow_links(file->name);
    if (!file->path) return 0;
    slash = strrchr(file->path, '/');
    directory = slash ? (size_t)(slash + 1 - file->path) : 0;
    room = directory + sizeof name;
    file->temporary = malloc(room);
    if (!file->temporary) return 0;
    remove_left_over(file->path, directory, machine);
    for (int attempt = 0; attempt < 1000 && descriptor < 0; attempt++) { /* a name that somebody left there is not ours */
        name_temporary(name, machine, (long)getpid(), attempt);
        snprintf(file->temporary, room, "%.*s%s", (int)directory, file->path, name);
        descriptor = open_watched(file->temporary);
        if (descriptor < 0 && errno != EEXIST) break;
    }
    if (descriptor >= 0) {
        lock_whole(descriptor); /* where the file system has no locks, nobody removes what is left */
        file->stream = fdopen(descriptor, "w+b");
        if (!file->stream) close(descriptor);
        return file->stream != NULL;
    }
    free(file->temporary); /* not ours: nothing to remove */
    file->temporary = NULL;
    return 0;
}

/* Standard output gets its bytes at the end, out of a temporary file, so that a header can be written last. */
cli_file *cli_file_create(const char *name) {
    cli_file *file = calloc(1, sizeof *file);
    struct stat about;
    int is_there;
    if (name && strcmp(name, "-") == 0) name = NULL;
    is_there = name && stat(name, &about) == 0;
    if (is_there && is_standard_output(&about)) name = NULL;
    if (!file || (name && !(file->name = strdup(name)))) return fail_create(file, name);
    if (!name || (is_there && !S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode))) {
        file->stream = tmpfile();
        return file->stream ? file : fail_create(file, name);
    }
    if (is_there && S_ISDIR(about.st_mode)) errno = EISDIR;
    else if (open_temporary(file) && (!is_there || fchmod(fileno(file->stream), about.st_mode & 0777) == 0)) return file;
    return fail_create(file, name);
}

FILE *cli_file_stream(cli_file *file) { return file->stream; }
int cli_file_fail(const cli_file *file) { return fail_write(file->name); }
int cli_file_is_regular(const cli_file *file) { return file->temporary != NULL; }

static void forget(cli_file *file) {
    replace_unfinished(file->temporary, NULL);
    if (file->stream) fclose(file->stream);
    free(file->temporary);
    free(file->path);
    free(file->name);
    free(file);
}

void cli_file_abandon(cli_file *file) {
    if (!file) return;
    if (file->temporary) unlink(file->temporary);
    forget(file);
}

static int copy_stream(FILE *from, FILE *to) {
    char block[65536];
    size_t bytes;
    rewind(from);
    while ((bytes = fread(block, 1, sizeof block, from)) > 0)
        if (fwrite(block, 1, bytes, to) != bytes) return 0;
    return !ferror(from) && fflush(to) == 0;
}

static int commit_copy(cli_file *file) {
    FILE *to = file->name ? fopen(file->name, "wb") : stdout;
    int good = to && copy_stream(file->stream, to);
    if (to && to != stdout && fclose(to) != 0) good = 0;
    return good;
}

/* All that can go wrong with a full disk, before anything appears. */
static int finish(cli_file *file) {
    int good = fflush(file->stream) == 0 && !ferror(file->stream) && (!file->temporary || fsync(fileno(file->stream)) == 0);
    return good ? 0 : cli_file_fail(file);
}

static int appear(cli_file *file) {
    if (file->temporary ? rename(file->temporary, file->path) == 0 : commit_copy(file)) return 0;
    return !file->name && ferror(stdout) ? cli_fail_output() : cli_file_fail(file);
}

int cli_file_commit(cli_file *file) { return cli_file_commit_all(&file, 1); }

int cli_file_commit_all(cli_file *const *files, int count) {
    int status = 0;
    for (int i = 0; i < count && !status; i++) status = files[i] ? finish(files[i]) : 0;
    for (int i = 0; i < count && !status; i++) status = files[i] ? appear(files[i]) : 0;
    for (int i = 0; i < count; i++) {
        if (status) cli_file_abandon(files[i]);
        else if (files[i]) forget(files[i]); /* it has its name now */
    }
    return status;
}

/* A name that somebody else has taken meanwhile is left to him; where there are no hard links, renaming has to do. */
int cli_file_commit_new(cli_file *file) {
    int status = finish(file);
    if (!status && file->temporary && link(file->temporary, file->path) != 0 && errno != EEXIST) {
        status = appear(file);
        if (!status) {
            forget(file);
            return 0;
        }
    }
    cli_file_abandon(file);
    return status;
}

/* ---- formats ---- */

/* The format: numpy.lib.format. Padding to 128 bytes leaves room for any shape, so the header can be rewritten in place. */
void cli_npy_header(FILE *stream, const char *descr, const uint64_t *shape, uint32_t rank) {
    char header[CLI_NPY_HEADER];
    size_t used;
    memset(header, ' ', sizeof header);
    memcpy(header, "\x93NUMPY\x01\x00", 8);
    header[8] = CLI_NPY_HEADER - 10;
    header[9] = 0;
    used = 10;
    used += (size_t)snprintf(header + used, sizeof header - used, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (uint32_t i = 0; i < rank; i++)
        used += (size_t)snprintf(header + used, sizeof header - used, "%s%llu%s", i ? " " : "", (unsigned long long)shape[i],
                                 i + 1 < rank || rank == 1 ? "," : "");
    used += (size_t)snprintf(header + used, sizeof header - used, "), }");
    header[used] = ' ';
    header[sizeof header - 1] = '\n';
    fwrite(header, 1, sizeof header, stream);
}

static void put_little_endian(unsigned char *at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) at[i] = (unsigned char)(value >> (8 * i) & 0xFF);
}

void cli_write_floats(FILE *stream, const float *values, uint64_t count) {
    unsigned char block[4096]; /* one call of stdio for many numbers */
    uint64_t done = 0;
    while (done < count) {
        size_t some = count - done < sizeof block / 4 ? (size_t)(count - done) : sizeof block / 4;
        for (size_t i = 0; i < some; i++) {
            uint32_t bits;
            memcpy(&bits, &values[done + i], sizeof bits);
            put_little_endian(block + 4 * i, bits, 4);
        }
        fwrite(block, 4, some, stream);
        done += some;
    }
}

void cli_write_uint64s(FILE *stream, const uint64_t *values, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        unsigned char bytes[8];
        put_little_endian(bytes, values[i], 8);
        fwrite(bytes, 1, sizeof bytes, stream);
    }
}
