/* megavit pack for each GPU and precision: the file is the library's bytes, bf16 unless said; what there is no kernel for is refused, and
   nothing is left behind. */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_PLAN
#include "megavit.h"

#include "support.h"
#include "tests/program.h" /* by which the Makefile knows that it runs the program */

#define WIDE_MODEL "examples/model" /* heads of 64 columns */

static void check_bytes(const char *directory, const char *path, const char *architecture) {
    mgv_model_desc desc;
    mgv_model *model;
    mgv_error error;
    uint64_t bytes = 0;
    char *want, *got;
    memset(&desc, 0, sizeof desc);
    desc.path = directory;
    if (mgv_model_open(&model, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
    if (mgv_model_packed_bytes(model, architecture, &bytes, &error) != MGV_OK) fail_msg("%s", error.message);
    want = (char *)malloc((size_t)bytes);
    got = (char *)malloc((size_t)bytes + 2);
    assert_int_equal(mgv_model_pack(model, architecture, want, bytes, &error), MGV_OK);
    assert_int_equal(read_all(path, got, (size_t)bytes + 2), bytes);
    assert_memory_equal(got, want, bytes);
    free(want);
    free(got);
    mgv_model_close(model);
}

static void packs_of_each(void **state) {
    static const struct {
        const char *model, *architecture, *precision, *library;
    } cases[] = {{MODEL, "sm_90a", "bf16", "sm_90a"},          {MODEL, "sm_100a", "bf16", "sm_100a"},
                 {MODEL, "sm_100a", NULL, "sm_100a"},          {MODEL, "sm_103a", NULL, "sm_103a"},
                 {MODEL, "sm_110a", "mixed", "sm_110a mixed"}, {MODEL, "sm_100a", "mixed", "sm_100a mixed"},
                 {WIDE_MODEL, "sm_100a", "mxfp8", "sm_100a mxfp8"}, {WIDE_MODEL, "sm_103a", "mxfp8", "sm_103a mxfp8"},
                 {WIDE_MODEL, "sm_103a", "mixed", "sm_103a mixed"}, {WIDE_MODEL, "sm_100a", "fc2+out", "sm_100a out+fc2"},
                 {MODEL, "sm_103a", "fc1", "sm_103a fc1"},          {MODEL, "sm_90a", "auto", "sm_90a"}};
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        const char *const path = in_scratch("packed.mgvp");
        assert_int_equal(cases[i].precision ? run("pack", "--model", cases[i].model, "--arch", cases[i].architecture, "--precision",
                                                  cases[i].precision, "-o", path)
                                            : run("pack", "--model", cases[i].model, "--arch", cases[i].architecture, "-o", path), 0);
        check_bytes(cases[i].model, path, cases[i].library);
        remove(path);
    }
}

static void packs_that_cannot_be(void **state) {
    static const struct {
        const char *model, *architecture, *precision;
        int status;
        const char *says;
    } cases[] = {{MODEL, "sm_100a", "int8", 1, "--precision: there is no precision \"int8\": it is auto, fast, bf16, mxfp8, mixed, or "},
                 {MODEL, "sm_100a", "", 1, "--precision is empty"},
                 {MODEL, "sm_100a", "MXFP8", 1, "--precision: there is no precision \"MXFP8\""},
                 {WIDE_MODEL, "sm_100a", "qkv+fc3", 1, "--precision: there is no precision \"qkv+fc3\""},
                 {MODEL, "sm_120a", "bf16", 1, "--arch takes sm_90a|sm_100a|sm_103a|sm_110a, not 'sm_120a'"},
                 {MODEL, "sm_100", "bf16", 1, "--arch takes sm_90a|sm_100a|sm_103a|sm_110a, not 'sm_100'"},
                 {WIDE_MODEL, "sm_90a", "mxfp8", 2, "the kernels for Hopper have no MXFP8, which \"sm_90a mxfp8\" asks for"},
                 {WIDE_MODEL, "sm_90a", "mixed", 2, "the kernels for Hopper have no MXFP8, which \"sm_90a mixed\" asks for"},
                 {MODEL, "sm_100a", "mxfp8", 2, "MXFP8 behind attention (out) for heads of 64 columns, not of 24; for the other products"},
                 {"tests/golden/clip_saved", "sm_100a", "mixed", 2, "no MXFP8 for a stream that is normalised where it lies"},
                 {VARIABLE_MODEL, "sm_100a", "bf16", 2, "the kernel for Blackwell runs towers of SigLIP, CLIP and DINOv2 alone"}};
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        const char *const path = in_scratch("packed.mgvp");
        assert_int_equal(run("pack", "--model", cases[i].model, "--arch", cases[i].architecture, "--precision", cases[i].precision, "-o",
                             path), cases[i].status);
        if (!strstr(said_err, cases[i].says)) fail_msg("%s", said_err);
        assert_false(exists(path));
        assert_int_equal(partial_files(), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(packs_of_each), cmocka_unit_test(packs_that_cannot_be)};
    return cmocka_run_group_tests_name("packs of each GPU and precision", tests, set_up, tear_down);
}
