/* megavit validate on a GPU that is not there (tests/fake_cuda.h), whose kernel does nothing: every operation that is compared is found
   wrong in all of its values, and the command ends with 3. Pictures of one size and of several, made ones and files. */
#define _GNU_SOURCE /* of tools/ */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_CUDA
#define MEGAVIT_NO_CUDART
#define MEGAVIT_KERNELS_HEADER "tests/fake_kernels.h"
#include "megavit.h"

#include <unistd.h>
#include "support.h"
#include "fake_runtime.h"
#include "tools/megavit_backend.c"
#include "tools/megavit_devices.c"
#include "tools/megavit_session.c"
#include "tools/megavit_validate.c"

static char said[60000], complained[20000];
static int blackwell; /* the fake card is one */

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
    fake.kernel = lazy_kernel;
    if (blackwell) fake.major = 10;
    if (blackwell) fake.multiprocessors = 148;
    mgv__cuda_test_calls = &fake_calls;
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
    unsigned long failed = strtoul(strstr(complained, "megavit: ") ? strstr(complained, "megavit: ") + 9 : "0", NULL, 10);
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
    assert_non_null(strstr(complained, " operations are out of tolerance"));
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
    assert_non_null(strstr(complained, "the GPU kernel has MXFP8 throughout for heads of 64 columns, not of 24"));
    blackwell = 0;
    assert_int_not_equal(validate_with((int)COUNT_OF(mixed), mixed), 0);
    assert_non_null(strstr(complained, "no kernel for GPU 0 calculates in MXFP8: its compute capability is 9.0"));
    assert_int_equal(said[0], 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_made_pictures), cmocka_unit_test(test_files),
                                       cmocka_unit_test(test_precisions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
