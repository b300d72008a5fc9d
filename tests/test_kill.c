/* The command line is killed a hundred times, at moments of chance, while it writes rows: a file is as it was before or whole. (While it
   adds to an index: tests/test_index.c.) Runs $BUILD/megavit. */
#include "tests/program.h"

enum { ROUNDS = 100, PICTURES = 30 };

static uint32_t chance_state = 2463534242u;
static uint32_t chance(uint32_t below) {
    chance_state ^= chance_state << 13;
    chance_state ^= chance_state >> 17;
    chance_state ^= chance_state << 5;
    return chance_state % below;
}

static double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

/* Runs the program, and ends it by a signal after so many microseconds unless it has ended before. Returns microseconds that it took. */
static double run_for(char **arguments, int with, uint32_t us) {
    const double start = now_us();
    int status;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) child(arguments, NULL);
    if (with) {
        const struct timespec pause = {0, (long)us * 1000};
        nanosleep(&pause, NULL);
        kill(pid, with);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!with) assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return now_us() - start;
}
static int any_signal(uint32_t round) {
    static const int signals[] = {SIGKILL, SIGINT, SIGTERM, SIGHUP};
    return signals[round % 4];
}
/* A moment of the whole time, or a little later. Under a second. */
static uint32_t moment(double whole) { return chance((uint32_t)(whole < 8e5 ? whole * 1.2 : 9e5) + 1); }

/* What was written of a file whose program could not tidy up is gone when the next one ran; empty ones stay for a minute. */
static void what_is_left_is_empty(void) {
    DIR *directory = opendir(scratch);
    const struct dirent *entry;
    struct stat about;
    assert_non_null(directory);
    while ((entry = readdir(directory)) != NULL) {
        if (!strstr(entry->d_name, ".partial")) continue;
        assert_int_equal(stat(in_scratch(entry->d_name), &about), 0);
        if (about.st_size) fail_msg("%s has %ld bytes", entry->d_name, (long)about.st_size);
    }
    closedir(directory);
}

static const char *many_pictures(void) {
    static char folder[256];
    unsigned char *pixels = noise(5, 40 * 40 * 3);
    snprintf(folder, sizeof folder, "%s", in_scratch("many"));
    mkdir(folder, 0777);
    for (int i = 0; i < PICTURES; i++) {
        char path[300];
        snprintf(path, sizeof path, "%s/%03d.ppm", folder, i);
        pixels[i] ^= 0x55;
        write_pnm(path, 3, 40, 40, pixels);
    }
    free(pixels);
    return folder;
}

static void rows_are_whole_or_not_there(void **state) {
    static char output[256], old[] = "what was there before";
    char *arguments[] = {program, "embed", "--model", MODEL, "--batch", "2", "-o", output, (char *)many_pictures(), NULL};
    unsigned char *whole = malloc(1 << 20), *bytes = malloc(1 << 20);
    size_t length, is;
    double takes;
    uint32_t kept = 0, new = 0;
    (void)state;
    assert_true(whole && bytes);
    snprintf(output, sizeof output, "%s", in_scratch("rows.npy"));
    takes = run_for(arguments, 0, 0);
    length = read_all(output, whole, 1 << 20);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        write_all(output, old, sizeof old);
        run_for(arguments, any_signal(round), moment(takes));
        is = read_all(output, bytes, 1 << 20);
        if (is == sizeof old && memcmp(bytes, old, is) == 0) kept++;
        else if (is == length && memcmp(bytes, whole, is) == 0) new++;
        else fail_msg("round %u, signal %d: %zu bytes are there", round, any_signal(round), is);
    }
    assert_int_equal(kept + new, ROUNDS);
    run_for(arguments, 0, 0);
    what_is_left_is_empty();
    print_message("# killed while rows were written: %u kept, %u new\n", kept, new);
    free(whole);
    free(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_whole_or_not_there),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
