/* The command line as its tests run it: $BUILD/megavit in a process of its own, what it said, arrays that it wrote, pictures of our own. */
#ifndef MEGAVIT_TESTS_PROGRAM_H
#define MEGAVIT_TESTS_PROGRAM_H

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/skip.h"

#define MODEL "tests/golden/siglip_saved_bfloat16"  /* 40 px, patch 8: 25 tokens of 48 */
#define OTHER_MODEL "tests/golden/siglip_saved_float16"
#define VARIABLE_MODEL "tests/golden/qwen3_saved"   /* patch 16, merge 2, out 32, DeepStack 0 and 1 */
#define DATA "../shared/data"

enum { WIDTH = 48, TOKENS = 25, LAYERS = 2, SIDE = 40, MAX_TEXT = 1 << 20 };

static char program[4096], scratch[64];
static char said_out[MAX_TEXT], said_err[MAX_TEXT];

/* ---- running the program ---- */

static const char *in_scratch(const char *name) {
    static char paths[16][512];
    static int next;
    next = (next + 1) % 16;
    snprintf(paths[next], sizeof paths[next], "%s/%s", scratch, name);
    return paths[next];
}

static size_t read_all(const char *path, void *bytes, size_t room) {
    FILE *stream = fopen(path, "rb");
    size_t length;
    assert_non_null(stream);
    length = fread(bytes, 1, room - 1, stream);
    ((char *)bytes)[length] = 0;
    fclose(stream);
    return length;
}

static void write_all(const char *path, const void *bytes, size_t length) {
    FILE *stream = fopen(path, "wb");
    assert_non_null(stream);
    assert_int_equal(fwrite(bytes, 1, length, stream), length);
    assert_int_equal(fclose(stream), 0);
}

static int exists(const char *path) {
    struct stat about;
    return stat(path, &about) == 0;
}

static int partial_files(void) {
    const struct dirent *entry;
    DIR *directory = opendir(scratch);
    int count = 0;
    assert_non_null(directory);
    while ((entry = readdir(directory)) != NULL) count += strstr(entry->d_name, ".partial") != NULL;
    closedir(directory);
    return count;
}

static void point(const char *link, const char *target) {
    remove(in_scratch(link));
    assert_int_equal(symlink(target, in_scratch(link)), 0);
}

static int is_link(const char *path) {
    struct stat about;
    return lstat(path, &about) == 0 && S_ISLNK(about.st_mode);
}

static rlim_t file_limit = RLIM_INFINITY; /* bytes that any file of the program may have: a disk that is full */
static int file_limit_kills;              /* as it does where nobody ignores its signal */

static int child_is_nobody;      /* the program runs as a user that may write nothing, where this one may do so */
static const char *child_folder; /* where the program runs; NULL: here */
static const char *standard_output; /* where the program's goes instead of into the scratch directory; "": it is closed */

static void child(char *const arguments[], const char *input) {
    const struct rlimit limit = {file_limit, file_limit}, no_core = {0, 0};
    int in = open(input ? input : "/dev/null", O_RDONLY), out = open(in_scratch("stdout"), O_WRONLY | O_CREAT | O_TRUNC, 0666),
        err = open(in_scratch("stderr"), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (in < 0) close(0); /* an input that is not there: closed */
    else dup2(in, 0);
    dup2(out, 1);
    dup2(err, 2);
    if (standard_output && standard_output[0]) dup2(open(standard_output, O_WRONLY), 1);
    if (standard_output && !standard_output[0]) close(1);
    /* A sanitizer's report must not look like an exit code of the program's own. */
    setenv("ASAN_OPTIONS", "exitcode=99:max_allocation_size_mb=4096", 1);
    setenv("UBSAN_OPTIONS", "exitcode=99:print_stacktrace=1", 1);
    alarm(120);
    if (!file_limit_kills) signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_CORE, &no_core);
    setrlimit(RLIMIT_FSIZE, &limit);
    if (file_limit != RLIM_INFINITY) setenv("LLVM_PROFILE_FILE", "/dev/null", 1); /* make coverage: what it writes is longer */
    if (child_folder && chdir(child_folder) != 0) _exit(127);
    if (child_is_nobody && geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(127);
    execv(program, arguments);
    _exit(127);
}

/* The exit code. What it said is in said_out and said_err. A crash or a sanitizer's report fails the test. */
static int run_list(const char *input, const char *const *words, int count) {
    char *arguments[64];
    int status;
    pid_t pid;
    assert_true(count < 62);
    arguments[0] = program;
    for (int i = 0; i < count; i++) arguments[i + 1] = (char *)words[i];
    arguments[count + 1] = NULL;
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) child(arguments, input);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    read_all(in_scratch("stdout"), said_out, sizeof said_out);
    read_all(in_scratch("stderr"), said_err, sizeof said_err);
    if (!WIFEXITED(status) || WEXITSTATUS(status) > 3 || strstr(said_err, "Sanitizer"))
        fail_msg("status %x of '%s ... %s': %.2000s", (unsigned)status, count ? words[0] : "", count ? words[count - 1] : "", said_err);
    return WEXITSTATUS(status);
}

static int run_from(const char *input, ...) {
    const char *words[62];
    int count = 0;
    va_list list;
    va_start(list, input);
    while ((words[count] = va_arg(list, const char *)) != NULL) count++;
    va_end(list);
    return run_list(input, words, count);
}
#define run(...) run_from(NULL, __VA_ARGS__, NULL)

static int lines(const char *text) {
    int count = 0;
    for (; *text; text++) count += *text == '\n';
    return count;
}

/* A bad file: exit code 2 and one line that names it. */
static void assert_bad_file(int status, const char *named) {
    assert_int_equal(status, 2);
    if (lines(said_err) != 1) fail_msg("not one line: %s", said_err);
    if (!strstr(said_err, named)) fail_msg("'%s' is not in: %s", named, said_err);
}

/* ---- arrays ---- */

typedef struct array {
    char descr[8];
    uint64_t shape[4];
    int rank;
    uint64_t count;
    size_t bytes;
    unsigned char *file, *data;
} array;

static array read_array(const char *path) {
    array a;
    struct stat about;
    char *at;
    memset(&a, 0, sizeof a);
    if (stat(path, &about) != 0) fail_msg("%s is not there: %s", path, said_err);
    a.file = malloc((size_t)about.st_size + 1);
    assert_non_null(a.file);
    a.bytes = read_all(path, a.file, (size_t)about.st_size + 1);
    assert_true(a.bytes >= 128);
    assert_memory_equal(a.file, "\x93NUMPY\x01\x00\x76\x00", 10);
    assert_int_equal(a.file[127], '\n');
    at = strstr((char *)a.file + 10, "'descr': '");
    assert_non_null(at);
    sscanf(at + 10, "%7[^']", a.descr);
    assert_non_null(strstr((char *)a.file + 10, "'fortran_order': False"));
    at = strstr((char *)a.file + 10, "'shape': (") + 10;
    for (a.count = 1; *at != ')'; a.rank++) {
        a.shape[a.rank] = strtoull(at, &at, 10);
        a.count *= a.shape[a.rank];
        while (*at == ',' || *at == ' ') at++;
    }
    a.data = a.file + 128;
    assert_int_equal(a.bytes, 128 + a.count * (strcmp(a.descr, "<i8") == 0 ? 8 : 4));
    return a;
}

static float array_float(const array *a, uint64_t i) {
    float value;
    memcpy(&value, a->data + 4 * i, 4);
    return value;
}

static void assert_shape(const array *a, int rank, uint64_t s0, uint64_t s1, uint64_t s2, uint64_t s3) {
    const uint64_t expected[4] = {s0, s1, s2, s3};
    assert_int_equal(a->rank, rank);
    for (int i = 0; i < rank; i++) assert_int_equal(a->shape[i], expected[i]);
}

static void assert_same_file(const char *a, const char *b) {
    array first = read_array(a), second = read_array(b);
    assert_int_equal(first.bytes, second.bytes);
    assert_memory_equal(first.file, second.file, first.bytes);
    free(first.file);
    free(second.file);
}

/* ---- pictures of our own: PPM, PGM and TGA need no encoder ---- */

static unsigned char *noise(uint32_t seed, size_t bytes) {
    unsigned char *pixels = malloc(bytes);
    assert_non_null(pixels);
    for (size_t i = 0; i < bytes; i++) {
        seed = seed * 1664525u + 1013904223u;
        pixels[i] = (unsigned char)(seed >> 24);
    }
    return pixels;
}

static void write_pnm(const char *path, int channels, int width, int height, const unsigned char *pixels) {
    FILE *stream = fopen(path, "wb");
    assert_non_null(stream);
    fprintf(stream, "P%d\n%d %d\n255\n", channels == 3 ? 6 : 5, width, height);
    fwrite(pixels, (size_t)channels, (size_t)(width * height), stream);
    fclose(stream);
}

/* Rows from the top, BGR or BGRA. alpha < 0: none. */
static void write_tga(const char *path, int width, int height, const unsigned char *rgb, int alpha) {
    unsigned char head[18] = {0, 0, 2};
    FILE *stream = fopen(path, "wb");
    assert_non_null(stream);
    head[12] = (unsigned char)width;
    head[13] = (unsigned char)(width >> 8);
    head[14] = (unsigned char)height;
    head[15] = (unsigned char)(height >> 8);
    head[16] = alpha < 0 ? 24 : 32;
    head[17] = 0x20;
    fwrite(head, 1, sizeof head, stream);
    for (int i = 0; i < width * height; i++, rgb += 3) {
        fputc(rgb[2], stream);
        fputc(rgb[1], stream);
        fputc(rgb[0], stream);
        if (alpha >= 0) fputc(alpha, stream);
    }
    fclose(stream);
}

enum { OWN_COUNT = 5 };
static const char *own[OWN_COUNT];

static void make_pictures(void) {
    static char paths[OWN_COUNT][128];
    static const int sizes[OWN_COUNT][2] = {{64, 48}, {17, 90}, {1, 1}, {200, 33}, {40, 40}};
    mkdir(in_scratch("pictures"), 0777);
    for (uint32_t i = 0; i < OWN_COUNT; i++) {
        unsigned char *pixels = noise(i + 1, (size_t)(sizes[i][0] * sizes[i][1] * 3));
        snprintf(paths[i], sizeof paths[i], "%s/pictures/%c.ppm", scratch, (int)('a' + i));
        write_pnm(paths[i], 3, sizes[i][0], sizes[i][1], pixels);
        own[i] = paths[i];
        free(pixels);
    }
}

/* The path as it is called from any folder. */
static void whole_path(char *whole, size_t room, const char *path) {
    char here[2000] = "";
    if (path[0] != '/' && !getcwd(here, sizeof here)) fail_msg("where are we?");
    snprintf(whole, room, "%s%s%s", here, here[0] ? "/" : "", path);
}

static int set_up(void **state) {
    const char *build = getenv("BUILD");
    char path[2048];
    (void)state;
    snprintf(path, sizeof path, "%s/megavit", build ? build : "build");
    whole_path(program, sizeof program, path);
    strcpy(scratch, "/tmp/megavit-test-XXXXXX");
    if (!mkdtemp(scratch)) return -1;
    make_pictures();
    return 0;
}

static int tear_down(void **state) {
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", scratch);
    return system(command);
}

#endif
