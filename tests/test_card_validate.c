/* megavit validate on a GPU that is not there (tests/fake_cuda.h), whose kernel does nothing: every operation that is compared is found
   wrong in all of its values, and the command ends with 3. Pictures of one size and of several, made ones and files. Then a kernel that is
   right but for one number: the command ends with 0 without that and with 3 with it. */
#define _GNU_SOURCE /* of tools/ */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_CUDA
#define MEGAVIT_NO_CUDART
#include "megavit.h"

#include <unistd.h>
#include "support.h"
#include "fake_runtime.h"
#include "fake_mx.h"
#include "tools/megavit_backend.c"
#include "tools/megavit_devices.c"
#include "tools/megavit_session.c"
#include "tools/megavit_validate.c"

static char said[60000], complained[20000];
static int blackwell; /* the fake card is one */
static void (*kernel)(const void *argument);

static void lazy_kernel(const void *argument) {
    const mgv__kernel_arguments *a = (const mgv__kernel_arguments *)argument;
    *a->aborted = 0;
    if (a->next_count) memset(a->aborted + a->next_counters, 0, a->next_count * sizeof *a->counters);
}

/* Ends a redirection; what was said is text. */
static void take_back(FILE *file, int kept, int number, char *text, size_t room) {
    dup2(kept, number);
    close(kept);
    rewind(file);
    text[fread(text, 1, room - 1, file)] = 0;
    fclose(file);
}
/* The exit code of `megavit validate` with these words. */
static int validate_with(int count, const char *const *words) {
    FILE *out = tmpfile(), *err = tmpfile();
    char *arguments[12];
    int i, status, kept_out, kept_err;
    assert_true(out && err && count < 11);
    for (i = 0; i < count; i++) memcpy(&arguments[i], &words[i], sizeof arguments[0]);
    arguments[count] = NULL;
    fake_reset();
    fake.kernel = kernel ? kernel : lazy_kernel;
    if (blackwell) fake.major = 10;
    if (blackwell) fake.multiprocessors = 148;
    mgv__cuda_test_calls = &fake_calls;
    mgv__cuda_test_kernels = "stands for megavit.fatbin";
    fflush(stdout);
    kept_out = dup(STDOUT_FILENO);
    kept_err = dup(STDERR_FILENO);
    dup2(fileno(out), STDOUT_FILENO);
    dup2(fileno(err), STDERR_FILENO);
    status = cli_validate.run(&cli_validate, count, arguments);
    fflush(stdout);
    fflush(stderr);
    take_back(out, kept_out, STDOUT_FILENO, said, sizeof said);
    take_back(err, kept_err, STDERR_FILENO, complained, sizeof complained);
    assert_int_equal(fake_alive(), 0);
    return status;
}

/* Lines of the table, by what they say of an operation; each that is compared is all wrong, from its first value on. */
static void check_table(void) {
    char *line;
    uint32_t wrong = 0;
    char *failed_line = strstr(complained, " operations are out of tolerance");
    unsigned long failed;
    assert_non_null(failed_line);
    while (failed_line > complained && failed_line[-1] != ' ') failed_line--;
    failed = strtoul(failed_line, NULL, 10);
    assert_non_null(strstr(said, "layer operation           rows columns  relative L2  tolerance    max error\n"));
    for (line = strtok(strchr(said, '\n') + 1, "\n"); line; line = strtok(NULL, "\n")) {
        char *tail = strstr(line, "WRONG");
        unsigned long long bad, row, rows;
        unsigned column, columns;
        if (strstr(line, "(the CPU forms no such values)")) continue;
        if (!tail) fail_msg("not found wrong: %s", line);
        assert_non_null(tail = strstr(tail, ": ")); /* with a precision behind how many differ */
        assert_int_equal(sscanf(tail, ": %llu bad values, first at row %llu, column %u", &bad, &row, &column), 3);
        assert_int_equal(sscanf(line + 20, "%llu %u", &rows, &columns), 2);
        if (!strstr(line, "whole ")) assert_true(row == 0 && column == 0 && bad == rows * columns); /* else what lay in the card's memory */
        assert_true(bad > 0 && row < rows && column < columns);
        wrong++;
    }
    assert_true(wrong > 8);
    assert_int_equal(wrong, failed);
    assert_null(strstr(said, "all within tolerance"));
}

static void test_made_pictures(void **state) {
    static const char *const models[] = {"tests/golden/siglip_saved_bfloat16", "tests/golden/qwen3_saved", "tests/golden/clip_saved"};
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(models); i++) {
        const char *const words[] = {"--model", models[i], "--batch", "3", "--threads", "2"};
        assert_int_equal(validate_with((int)COUNT_OF(words), words), CLI_MACHINE);
        check_table();
    }
    {
        const char *const words[] = {"--model", models[1]}; /* one and then more, where the first are right */
        assert_int_equal(validate_with((int)COUNT_OF(words), words), CLI_MACHINE);
        check_table();
    }
}

static void test_files(void **state) {
    static const char *const found[] = {"--model", "tests/golden/siglip_saved_bfloat16", "--images", "examples/pictures"},
                             *const none[] = {"--model", "tests/golden/siglip_saved_bfloat16", "--images", "tests/golden/tokenizers"},
                             *const no_model[] = {"--images", "examples/pictures"}, *const nowhere[] = {"--model", "tests/golden/nowhere"};
    (void)state;
    assert_int_equal(validate_with((int)COUNT_OF(found), found), CLI_MACHINE);
    check_table();
    assert_int_equal(validate_with((int)COUNT_OF(none), none), CLI_BAD_FILE);
    assert_int_equal(validate_with((int)COUNT_OF(no_model), no_model), CLI_USAGE);
    assert_non_null(strstr(complained, "--model is missing"));
    assert_int_equal(validate_with((int)COUNT_OF(nowhere), nowhere), CLI_BAD_FILE);
    assert_int_equal(said[0], 0);
}

/* On a Blackwell that is not there, in its precisions; Hopper has none of them. */
static void test_precisions(void **state) {
    static const char *const mixed[] = {"--model", "tests/golden/siglip_saved_bfloat16", "--batch", "3", "--precision", "mixed"},
                             *const narrow[] = {"--model", "tests/golden/siglip_saved_bfloat16", "--precision", "mxfp8"};
    (void)state;
    blackwell = 1;
    assert_int_equal(validate_with((int)COUNT_OF(mixed), mixed), CLI_MACHINE);
    assert_non_null(strstr(said, "stream, MXFP8"));
    check_table();
    assert_int_not_equal(validate_with((int)COUNT_OF(narrow), narrow), 0);
    assert_non_null(strstr(complained, "the GPU kernel has MXFP8 behind attention (out) for heads of 64 columns, not of 24"));
    blackwell = 0;
    assert_int_not_equal(validate_with((int)COUNT_OF(mixed), mixed), 0);
    assert_non_null(strstr(complained, "no kernel for GPU 0 calculates in MXFP8: its compute capability is 9.0"));
    assert_int_equal(said[0], 0);
}

static void write_model(const micro_siglip *micro, const char *directory) {
    size_t i;
    for (i = 0; i < COUNT_OF(micro->files); i++) {
        char path[200];
        FILE *file;
        snprintf(path, sizeof path, "%s/%s", directory, micro->files[i].name);
        file = fopen(path, "wb");
        assert_non_null(file);
        assert_int_equal(fwrite(micro->files[i].data, 1, micro->files[i].bytes, file), micro->files[i].bytes);
        assert_int_equal(fclose(file), 0);
    }
}
static void remove_model(const micro_siglip *micro, const char *directory) {
    size_t i;
    for (i = 0; i < COUNT_OF(micro->files); i++) {
        char path[200];
        snprintf(path, sizeof path, "%s/%s", directory, micro->files[i].name);
        remove(path);
    }
    assert_int_equal(rmdir(directory), 0);
}

/* A kernel that is right passes; one number that is off, anywhere, and the command says where and fails. */
static void check_planted(mx_player *player, const char *directory, const char *precision, const mx_fault *faults, size_t count) {
    const char *const words[] = {"--model", directory, "--batch", "3", "--precision", precision};
    size_t i;
    player->fault.what = MX_NOTHING;
    if (validate_with((int)COUNT_OF(words), words) != CLI_DONE) fail_msg("%s%s", said, complained);
    assert_non_null(strstr(said, "3 pictures: all within tolerance"));
    assert_null(strstr(said, "WRONG"));
    assert_non_null(strstr(said, ", means up to 0."));
    assert_null(strstr(complained, "standard deviation"));
    for (i = 0; i < count; i++) {
        char *wrong;
        player->fault = faults[i];
        if (validate_with((int)COUNT_OF(words), words) != CLI_MACHINE) fail_msg("%s, fault %u: %s", precision, (unsigned)i, said);
        wrong = strstr(said, "WRONG");
        assert_non_null(wrong);
        assert_non_null(strstr(wrong, faults[i].what == MX_SCALE ? "first at row 17, column 0\n" : faults[i].what == MX_BF16 ?
                               "first at row 17, column 9\n" : "first at row 17, column 7\n"));
        assert_non_null(strstr(complained, "out of tolerance"));
        assert_null(strstr(said, "all within tolerance"));
    }
}
static void check_means(const char *directory) {
    const char *const words[] = {"--model", directory, "--batch", "3", "--precision", "mixed"};
    if (validate_with((int)COUNT_OF(words), words) != CLI_DONE) fail_msg("%s%s", said, complained);
    assert_non_null(strstr(complained, "of its standard deviation where MXFP8 rounds it before a norm; beyond 50% bf16 is"));
}
static void test_planted(void **state) {
    static const mx_fault mxfp8[] = {{MX_NUMBER, "patch embed", 2}, {MX_NUMBER, "attention", 2}, {MX_SCALE, "fc1", -1},
                                     {MX_NO_NUMBER, "out", 0}, {MX_BF16, "qkv", 4}},
                          mixed[] = {{MX_NUMBER, "out", 2}, {MX_SCALE, "patch embed", 1}, {MX_BF16, "out", 4}, {MX_BF16, "qkv", 4}};
    char directory[] = "/tmp/megavit-validate-XXXXXX";
    mx_player player;
    (void)state;
    assert_non_null(mkdtemp(directory));
    blackwell = 1;
    kernel = mx_kernel;
    mx_open(&player, MGV_PRECISION_MXFP8, 0);
    write_model(&player.micro, directory);
    check_planted(&player, directory, "mxfp8", mxfp8, COUNT_OF(mxfp8));
    mx_close(&player);
    mx_open(&player, MGV_PRECISION_MXFP8_MIXED, 0);
    check_planted(&player, directory, "mixed", mixed, COUNT_OF(mixed));
    mx_close(&player);
    /* rows with means of which MXFP8 keeps less: said, and no fault of the kernel's */
    mx_open(&player, MGV_PRECISION_MXFP8_MIXED, 1.5);
    write_model(&player.micro, directory);
    check_means(directory);
    remove_model(&player.micro, directory);
    mx_close(&player);
    kernel = NULL;
    blackwell = 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_made_pictures), cmocka_unit_test(test_files),
                                       cmocka_unit_test(test_precisions), cmocka_unit_test(test_planted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
