/* megavit plan of towers with heads of more than 96 columns: they have a kernel of their own on Hopper, and none on Blackwell. */
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

#include "support.h"
#include "tests/program.h" /* by which the Makefile knows that it runs the program */
#include "golden.h"

static void plan_of_wide_heads(void **state) {
    static const struct {
        const char *name, *refused;
    } cases[] = {{"qwen3_head_dim_128", "heads of 8, 16 and so on to 96 columns, not 128"},
                 {"qwen2_5_head_dim_112", "heads of 8, 16 and so on to 96 columns, not 112"}};
    size_t n;
    (void)state;
    for (n = 0; n < COUNT_OF(cases); n++) {
        golden g;
        golden_files files;
        char directory[200], path[300];
        uint32_t i;
        golden_open(&g, cases[n].name);
        golden_make_files(&files, &g, "", 1);
        snprintf(directory, sizeof directory, "%s", in_scratch(cases[n].name));
        assert_int_equal(mkdir(directory, 0777), 0);
        for (i = 0; i < files.count; i++) {
            snprintf(path, sizeof path, "%s/%s", directory, files.files[i].name);
            write_all(path, files.files[i].data, files.files[i].bytes);
        }
        assert_int_equal(run("plan", "--model", directory, "--size", "224x168", "--backend", "cuda"), 0); /* few patches, and many */
        if (!strstr(said_out, "kernel megavit_encode_latency_wide_sm_90a")) fail_msg("another kernel: %s%s", said_out, said_err);
        assert_int_equal(run("plan", "--model", directory, "--size", "224x168", "--batch", "20", "--backend", "cuda"), 0);
        if (!strstr(said_out, "kernel megavit_encode_wide_sm_90a")) fail_msg("another kernel: %s%s", said_out, said_err);
        assert_bad_file(run("plan", "--model", directory, "--backend", "cuda", "--arch", "sm_100a"), cases[n].refused);
        golden_free_files(&files);
        golden_close(&g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(plan_of_wide_heads)};
    return cmocka_run_group_tests_name("plans of wide heads", tests, set_up, tear_down);
}
