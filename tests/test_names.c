/* Names and texts that come from outside: how they are printed, how long they may be. Runs $BUILD/megavit. */
#include "tests/program.h"

/* One escaping for all that is printed: nothing of these bytes reaches the terminal as it is. */
static const struct {
    const char *name, *printed, *json;
} names[] = {
    {"c1\xC2\x9B" "31m.ppm", "c1\\xC2\\x9B31m.ppm", "c1\\u009b31m.ppm"},
    {"raw\x9B" "31m.ppm", "raw\\x9B31m.ppm", "raw\\ufffd31m.ppm"},
    {"esc\x1B[2J.ppm", "esc\\x1B[2J.ppm", "esc\\u001b[2J.ppm"},
    {"del\x7F.ppm", "del\\x7F.ppm", "del\\u007f.ppm"},
    {"nel\xC2\x85.ppm", "nel\\xC2\\x85.ppm", "nel\\u0085.ppm"},
    {"long\xC1\x9B.ppm", "long\\xC1\\x9B.ppm", "long\\ufffd\\ufffd.ppm"},
    {"cut\xE2\x82.ppm", "cut\\xE2\\x82.ppm", "cut\\ufffd\\ufffd.ppm"},
    {"line\n.ppm", "line\\x0A.ppm", "line\\u000a.ppm"},
    {"\xC3\xA9\xE7\x94\xBB\xF0\x9F\x98\x80.ppm", "\xC3\xA9\xE7\x94\xBB\xF0\x9F\x98\x80.ppm", "\xC3\xA9\xE7\x94\xBB\xF0\x9F\x98\x80.ppm"},
};

static void names_steer_no_terminal(void **state) {
    unsigned char *pixels = noise(7, 8 * 8 * 3);
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char wanted[256];
        write_pnm(in_scratch(names[i].name), 3, 8, 8, pixels);
        assert_int_equal(run("embed", "--model", MODEL, "--format", "jsonl", in_scratch(names[i].name)), 0);
        snprintf(wanted, sizeof wanted, "/%s\"", names[i].json);
        if (!strstr(said_out, wanted)) fail_msg("case %zu as JSON: %.100s", i, said_out);
        remove(in_scratch(names[i].name));
        snprintf(wanted, sizeof wanted, "/%s: ", names[i].printed);
        assert_bad_file(run("embed", "--model", MODEL, "-o", in_scratch("none.npy"), in_scratch(names[i].name)), wanted);
        assert_int_equal(run("search", "--model", MODEL, names[i].name), 1);
        assert_non_null(strstr(said_err, names[i].printed));
    }
    free(pixels);
}

/* A file beside it that is being written has a name, too. */
static void an_output_has_as_long_a_name_as_the_system_takes(void **state) {
    char name[300], offsets[300];
    (void)state;
    memset(name, 'n', 255);
    strcpy(name + 251, ".npy");
    assert_int_equal(run("embed", "--model", MODEL, "-o", in_scratch(name), own[0]), 0);
    assert_true(exists(in_scratch(name)));
    snprintf(offsets, sizeof offsets, "%.*s.names", 255 - 6, name); /* what lies beside it has to make do with what is left */
    assert_true(exists(in_scratch(offsets)));
    assert_int_equal(run("embed", "--model", VARIABLE_MODEL, "-o", in_scratch(name), own[0], own[3]), 0);
    snprintf(offsets, sizeof offsets, "%.*s.offsets.npy", 255 - 12, name);
    assert_true(exists(in_scratch(offsets)));
    assert_bad_file(run("embed", "--model", MODEL, "-o", in_scratch(strcat(name, "n")), own[0]), "File name too long");
    assert_int_equal(partial_files(), 0);
}

/* What tells this machine from others in the name of a file that is being written. */
static const char *this_machine(void) {
    static char text[64];
    text[read_all("/proc/sys/kernel/random/boot_id", text, 37)] = 0;
    return text;
}

/* What another program of the same number has left there when it was killed is not ours, and no reason to fail. */
static void a_partial_file_of_somebody_else_stays(void **state) {
    char text[16];
    int status;
    pid_t pid = fork();
    (void)state;
    if (pid == 0) {
        char *arguments[] = {program, "embed", "--model", MODEL, "-o", (char *)in_scratch("beside.npy"), (char *)own[0], NULL}, name[128];
        snprintf(name, sizeof name, "megavit.%s.%ld.0.partial", this_machine(), (long)getpid());
        write_all(in_scratch(name), "theirs", 6);
        write_all(in_scratch("their_name"), name, strlen(name));
        child(arguments, NULL);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_true(exists(in_scratch("beside.npy")));
    {
        char name[128];
        read_all(in_scratch("their_name"), name, sizeof name);
        read_all(in_scratch(name), text, sizeof text);
        assert_string_equal(text, "theirs");
        remove(in_scratch(name));
    }
    assert_int_equal(partial_files(), 0);
}

/* A process that is no more; its number. */
static long ended_process(void) {
    int status;
    const pid_t pid = fork();
    if (pid == 0) _exit(0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return (long)pid;
}
/* Names that resemble those of what it has left; without a machine: this one. */
static const struct {
    const char *start, *machine, *process, *end;
} others[] = {
    {"megavit.", NULL, "%ld", ".0.partial.npy"}, {"megavit.", NULL, "+%ld", ".0.partial"},
    {"megavit.", NULL, "%ld", ".00.partial"},    {"megavit.", NULL, "%ld", ".-1.partial"},
    {"megavit.", NULL, "%ld", ".0.partia"},      {"megavit.", NULL, "4294967296%09ld", ".0.partial"},
    {"xmegavit.", NULL, "%ld", ".0.partial"},    {"megavit.", NULL, "%ld", ".partial"},
    {"megavit.", "", "%ld", ".0.partial"},       {"megavit.", "01234567-89ab-cdef-0123-456789abcdef", "%ld", ".0.partial"},
};
enum { OTHERS = sizeof others / sizeof others[0] };
static const char *name_of_others(size_t i, long process) {
    static char name[128];
    char number[64];
    snprintf(number, sizeof number, others[i].process, process);
    snprintf(name, sizeof name, "%s%s.%s%s", others[i].start, others[i].machine ? others[i].machine : this_machine(), number,
             others[i].end);
    return name;
}

/* What such a process has left goes when the next output is written beside it; a file that somebody writes, whatever number it has, one
   that is new and empty, one of another name or another machine, a folder and a link stay. */
static void what_the_killed_have_left_goes(void **state) {
    const long process = ended_process(), of_locked = ended_process();
    char name[128];
    struct flock lock;
    int descriptor;
    size_t i;
    (void)state;
    for (i = 0; i < 3; i++) { /* 2: still empty */
        snprintf(name, sizeof name, "megavit.%s.%ld.%zu.partial", this_machine(), process, i);
        write_all(in_scratch(name), "half of it", i < 2 ? 10 : 0);
    }
    for (i = 0; i < OTHERS; i++) write_all(in_scratch(name_of_others(i, process)), "theirs", 6);
    snprintf(name, sizeof name, "megavit.%s.%ld.3.partial", this_machine(), process);
    assert_int_equal(mkdir(in_scratch(name), 0777), 0);
    snprintf(name, sizeof name, "megavit.%s.%ld.4.partial", this_machine(), process);
    point(name, in_scratch(name_of_others(0, process)));
    snprintf(name, sizeof name, "megavit.%s.%ld.0.partial", this_machine(), of_locked);
    write_all(in_scratch(name), "being written", 13);
    descriptor = open(in_scratch(name), O_RDWR);
    memset(&lock, 0, sizeof lock);
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    assert_int_equal(fcntl(descriptor, F_SETLK, &lock), 0);
    assert_int_equal(run("embed", "--model", MODEL, "-o", in_scratch("after.npy"), own[0]), 0);
    assert_true(exists(in_scratch(name)));
    close(descriptor);
    for (i = 0; i < OTHERS; i++)
        if (remove(in_scratch(name_of_others(i, process))) != 0) fail_msg("%s is gone", name_of_others(i, process));
    for (i = 0; i < 5; i++) {
        struct stat about;
        snprintf(name, sizeof name, "megavit.%s.%ld.%zu.partial", this_machine(), process, i);
        assert_int_equal(lstat(in_scratch(name), &about) == 0, i >= 2);
        if (i == 2) { /* an hour ago */
            const struct timespec times[2] = {{about.st_mtime - 3600, 0}, {about.st_mtime - 3600, 0}};
            assert_int_equal(utimensat(AT_FDCWD, in_scratch(name), times, 0), 0);
        } else remove(in_scratch(name));
    }
    assert_int_equal(partial_files(), 2);
    assert_int_equal(run("embed", "--model", MODEL, "-o", in_scratch("after.npy"), own[0]), 0);
    assert_int_equal(partial_files(), 0);
}

/* A line without an end is not kept: after 600 MB of it no process of ours was as large. */
static void a_line_of_any_length_takes_no_memory(void **state) {
    enum { BLOCK = 1 << 20, BLOCKS = 600 };
    char *block = malloc(BLOCK);
    struct rusage used;
    int ends[2], status;
    pid_t writer, reader;
    (void)state;
    assert_non_null(block);
    memset(block, 'x', BLOCK);
    assert_int_equal(pipe(ends), 0);
    writer = fork();
    if (writer == 0) {
        close(ends[0]);
        for (int i = 0; i < BLOCKS; i++)
            if (write(ends[1], block, BLOCK) != BLOCK) _exit(1);
        dprintf(ends[1], "\n%s\n", own[0]);
        _exit(0);
    }
    close(ends[1]);
    reader = fork();
    if (reader == 0) {
        char *arguments[] = {program, "embed", "--model", MODEL, "-o", (char *)in_scratch("line.npy"), "-", NULL};
        char input[32];
        snprintf(input, sizeof input, "/dev/fd/%d", ends[0]);
        child(arguments, input);
    }
    close(ends[0]);
    assert_int_equal(waitpid(writer, &status, 0), writer);
    assert_int_equal(status, 0);
    assert_int_equal(waitpid(reader, &status, 0), reader);
    read_all(in_scratch("stderr"), said_err, sizeof said_err);
    assert_bad_file(WEXITSTATUS(status), "standard input: a line of 629145600 bytes is no name");
    assert_true(exists(in_scratch("line.npy"))); /* the name after it counts */
    assert_int_equal(getrusage(RUSAGE_CHILDREN, &used), 0);
    assert_true(used.ru_maxrss < 500 * 1024);
    free(block);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_steer_no_terminal),
        cmocka_unit_test(an_output_has_as_long_a_name_as_the_system_takes),
        cmocka_unit_test(a_partial_file_of_somebody_else_stays),
        cmocka_unit_test(what_the_killed_have_left_goes),
        cmocka_unit_test(a_line_of_any_length_takes_no_memory),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
