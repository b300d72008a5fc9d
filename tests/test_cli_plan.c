/* megavit plan of texts and of Blackwell: what is printed is what the library says, and what cannot be is said. */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_TEXT
#define MEGAVIT_PLAN
#include "megavit.h"

#include "support.h"
#include "tests/program.h" /* by which the Makefile knows that it runs the program */
#include "language_model.h"

static char model_path[64];
static const shape printed = {"qwen3", 256, 512, 4, 2, 128, 320, 1, 0, 0};
static held_model held;

static int set_up_model(void **state) {
    char path[128];
    FILE *file;
    if (set_up(state) != 0) return -1;
    make_files(&held, &printed, 3, 0);
    open_files(&held);
    snprintf(model_path, sizeof model_path, "%.40s/language", scratch);
    assert_int_equal(mkdir(model_path, 0777), 0);
    snprintf(path, sizeof path, "%s/config.json", model_path);
    write_all(path, held.config, strlen(held.config));
    snprintf(path, sizeof path, "%s/model.safetensors", model_path);
    file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(held.file, 1, held.file_bytes, file), held.file_bytes);
    assert_int_equal(fclose(file), 0);
    return 0;
}
static int tear_down_model(void **state) {
    close_model(&held);
    return tear_down(state);
}
static void assert_said(const char *text) {
    if (!strstr(said_out, text)) fail_msg("'%s' is not in: %s%s", text, said_out, said_err);
}

static void plan_of_texts(void **state) {
    static const struct {
        const char *sessions, *position, *sms, *begins;
        mgv_decode_desc desc;
    } cases[] = {{"1", "300", NULL, "1 session at position 300, 132 multiprocessors", {0, 1, 300, 0}},
                 {"3", NULL, "8", "3 sessions at position 0, 8 multiprocessors", {0, 3, 0, 8}},
                 {NULL, "7", "5", "1 session at position 7, 4 multiprocessors", {0, 0, 7, 5}}};
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        const char *words[10];
        int count = 0;
        mgv_decode_info info;
        mgv_decode_step steps[16];
        mgv_error error;
        char line[200];
        uint32_t k;
        words[count++] = "plan";
        words[count++] = "--model";
        words[count++] = model_path;
        if (cases[i].sessions) words[count++] = "--sessions";
        if (cases[i].sessions) words[count++] = cases[i].sessions;
        if (cases[i].position) words[count++] = "--position";
        if (cases[i].position) words[count++] = cases[i].position;
        if (cases[i].sms) words[count++] = "--sms";
        if (cases[i].sms) words[count++] = cases[i].sms;
        assert_int_equal(run_list(NULL, words, count), 0);
        assert_int_equal(mgv_model_get_decode_schedule(held.model, &cases[i].desc, &info, steps, COUNT_OF(steps), &error), MGV_OK);
        assert_said(cases[i].begins);
        assert_said(info.kernel);
        for (k = 0; k < info.step_count; k++) { /* each step a line of its own */
            const mgv_decode_step *s = &steps[k];
            snprintf(line, sizeof line, "\n%-12s %6u %7u %8u %11.3f %9.3f %10.2f %8.2f %8.2f %8.1f\n", s->label, s->times, s->units,
                     s->busiest, (double)s->weight_bytes * 1e-6, (double)s->cache_bytes * 1e-6, s->stream_us, s->wait_us, s->us,
                     s->us * s->times);
            assert_said(line);
        }
        snprintf(line, sizeof line, "predicted: %.0f us for an id of each session, %.0f ids a second in sum; memory alone: %.0f us",
                 info.us, info.ids_per_second, info.floor_us);
        assert_said(line);
        assert_int_equal(strstr(said_out, "\njoin ") != NULL, cases[i].desc.position >= 128);
    }
}
static void plans_of_texts_that_cannot_be(void **state) {
    static const char *const of_pictures[][2] = {{"--batch", "1"}, {"--size", "64x64"}, {"--frames", "2"}, {"--schedule-images", "8"},
                                                 {"--min-pixels", "4096"}, {"--max-pixels", "65536"}, {"--backend", "cpu"}};
    size_t i;
    (void)state;
    assert_int_equal(run("plan", "--model", model_path, "--sessions", "9"), 1);
    assert_non_null(strstr(said_err, "9 sessions at 0 on 132 multiprocessors; a launch has up to 8"));
    assert_int_equal(run("plan", "--model", model_path, "--sessions", "1", "--sms", "1"), 1);
    assert_int_equal(run("plan", "--model", model_path, "--sessions", "1", "--arch", "sm_100a"), 1); /* not Hopper's in silence */
    assert_non_null(strstr(said_err, "texts are decoded by Hopper's kernels, in bf16, alone"));
    assert_int_equal(run("plan", "--model", model_path, "--position", "1", "--precision", "mxfp8"), 1);
    for (i = 0; i < COUNT_OF(of_pictures); i++) { /* nor anything else that would not be looked at */
        char expected[64];
        assert_int_equal(run("plan", "--model", model_path, i % 2 ? "--sessions" : "--position", "1", of_pictures[i][0],
                             of_pictures[i][1]), 1);
        snprintf(expected, sizeof expected, i + 1 < COUNT_OF(of_pictures) ? "%s is of pictures" : "%s cpu: ", of_pictures[i][0]);
        assert_non_null(strstr(said_err, expected));
        assert_int_equal(said_out[0], 0);
    }
    assert_int_equal(run("plan", "--model", model_path, "--sessions", "1", "--backend", "cuda", "--arch", "sm_90a"), 0);
    assert_bad_file(run("plan", "--model", MODEL, "--sessions", "1"), MODEL);
    assert_bad_file(run("plan", "--model", "tests/golden/decoder/qwen3", "--position", "4"),
                    "heads of 128 columns, and this model's have 16");
    assert_bad_file(run("plan", "--model", in_scratch("nothing"), "--position", "4"), "config.json");
}

/* As many pictures as may be asked for: said soon, not laid out for minutes. */
static void plan_of_a_million(void **state) {
    (void)state;
    assert_bad_file(run("plan", "--model", "examples/model", "--batch", "1048576", "--backend", "cuda"),
                    "1048576 images are 44535565 tiles, more than the 33554432 that are laid out one by one; they are alike in");
}

/* Of Blackwell it says that nothing of it is measured, and which precision. */
static void plans_of_machines(void **state) {
    static const struct {
        const char *architecture, *precision, *begins;
    } cases[] = {{"sm_100a", "bf16", "GPU schedule (Blackwell, bf16; predicted from data sheets: the kernel has run on a model of the"},
                 {"sm_103a", "mixed", "GPU schedule (Blackwell Ultra, mixed; predicted from data sheets"},
                 {"sm_110a", "fc2+qkv", "GPU schedule (Blackwell Thor, qkv+fc2; predicted from data sheets"},
                 {"sm_90a", "bf16", "GPU schedule (Hopper, bf16), "}};
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        assert_int_equal(run("plan", "--model", OTHER_MODEL, "--batch", "8", "--arch", cases[i].architecture, "--precision",
                             cases[i].precision), 0);
        assert_said(cases[i].begins);
        if (i < 3) assert_said("columns of tensor memory\n");
    }
    assert_bad_file(run("plan", "--model", OTHER_MODEL, "--backend", "cuda", "--arch", "sm_100a", "--precision", "mxfp8"),
                    "the GPU kernel has MXFP8 behind attention (out) for heads of 64 columns, not of");
    assert_bad_file(run("plan", "--model", "tests/golden/clip_saved", "--backend", "cuda", "--arch", "sm_100a", "--precision", "mixed"),
                    "the GPU kernel has no MXFP8 for a stream that is normalised where it lies");
    assert_bad_file(run("plan", "--model", VARIABLE_MODEL, "--backend", "cuda", "--batch", "100000"),
                    "the pixels of 25600000 tokens are more than one engine's GPU buffers hold");
    assert_bad_file(run("plan", "--model", VARIABLE_MODEL, "--backend", "cuda", "--arch", "sm_100a"),
                    "the kernel for Blackwell runs towers of SigLIP, CLIP and DINOv2 alone");
}

/* Columns of tensor memory, of single CTAs and of pairs, which have the same: sums of two tiles of 256 columns in bf16, of 192 in MXFP8
   beside two sets of scales, of three atoms of four columns. Hopper has none. */
static void plan_of_tensor_memory(void **state) {
    static const char *const of_bf16 = "\n  sums of two tiles in bf16       2 x    256 =      512\n"
                                       "  together                                          512 of 512 ",
                      *const of_mx = "\n  sums of two tiles in MXFP8      2 x    192 =      384\n"
                                     "  sets of scales                  2 x     12 =       24\n"
                                     "  together                                          408 of 512 ";
    static const struct {
        const char *model, *batch, *precision, *regime;
    } cases[] = {{MODEL, "8", "bf16", "throughput regime: "},
                 {MODEL, "8", "mixed", "throughput regime: "},
                 {"examples/model", "592", "bf16", "pairs regime: "},
                 {"examples/model", "592", "mxfp8", "pairs regime: "}};
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        assert_int_equal(run("plan", "--model", cases[i].model, "--batch", cases[i].batch, "--arch", "sm_100a", "--precision",
                             cases[i].precision), 0);
        assert_said(cases[i].regime);
        assert_said("\ncolumns of tensor memory\n");
        assert_said(i % 2 ? of_mx : of_bf16);
        assert_null(strstr(said_out, i % 2 ? of_bf16 : of_mx));
        assert_said("There are two accumulators: ");
    }
    assert_int_equal(run("plan", "--model", "examples/model", "--batch", "592", "--arch", "sm_90a"), 0);
    assert_null(strstr(said_out, "tensor memory"));
}

/* The table of clusters: what its numbers must be by the tile's sides, (rows + columns / CTAs) of 128 bytes and a CTA's own scales. */
static void plan_of_clusters(void **state) {
    static const int sizes[] = {1, 2, 4, 16}, of_blackwell[] = {148, 148, 132, 112};
    static const char *const precisions[] = {"bf16", "mxfp8"};
    size_t p, i;
    (void)state;
    for (p = 0; p < COUNT_OF(precisions); p++) {
        const char *at;
        int rows, columns, clocks;
        assert_int_equal(run("plan", "--model", "examples/model", "--batch", "592", "--arch", "sm_100a", "--precision", precisions[p]), 0);
        at = strstr(said_out, "clusters of CTAs, by count: tiles of ");
        assert_non_null(at);
        at = strchr(at + 37, ',');
        assert_int_equal(sscanf(at, ", %dx%d, %d clocks of products", &rows, &columns, &clocks), 3);
        assert_true(rows == 128 && columns >= 64 && clocks == 2 * columns); /* 8192 FLOPs of bf16 a clock, twice that of bytes */
        at = strchr(strchr(at, '\n') + 1, '\n');
        for (i = 0; i < COUNT_OF(sizes); i++) {
            const double bytes = 128 * 128 + 128.0 * columns / sizes[i] + (p ? 512 * (1 + (columns + 127) / 128) : 0);
            int ctas, sms, of_clock, took;
            double all, part;
            assert_int_equal(sscanf(at, "%d %d %d %lf %d %lf", &ctas, &sms, &of_clock, &all, &took, &part), 6);
            assert_true(ctas == sizes[i] && sms == of_blackwell[i]);
            assert_true(fabs(of_clock - bytes / clocks) < 0.51 && fabs(all - bytes / clocks * sms * 1.9e-3) < 0.06);
            assert_true(fabs(took - fmax(bytes / (110 / 1.9), clocks)) < 0.6);
            at = strchr(at + 1, '\n');
        }
    }
    assert_int_equal(run("plan", "--model", "examples/model", "--batch", "592"), 0);
    assert_null(strstr(said_out, "clusters of CTAs, by count")); /* Hopper's are what they are */
}

static const char of_any_size[] = VARIABLE_MODEL;
/* FLOPs of the model are those of its operations, of pictures of any size, too; of a pooling head it speaks where there is one. */
static void plan_says_flops_of_the_model(void **state) {
    static const struct {
        const char *model;
        int pools;
    } cases[] = {{MODEL, 1}, {of_any_size, 0}, {"tests/golden/dinov2_saved", 0}, {"tests/golden/clip_saved", 0}};
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        const char *at, *line;
        double whole, of_kernel, of_model;
        assert_int_equal(run("plan", "--model", cases[i].model, "--size", "96x128", "--batch", "3", "--backend", "cuda"), 0);
        at = strstr(said_out, " operations, ");
        assert_non_null(at);
        assert_int_equal(sscanf(at, " operations, %lf GFLOP", &whole), 1);
        for (line = strstr(said_out, " GFLOP of the model's "); line && line[-1] != '\n'; line--) continue;
        assert_non_null(line);
        assert_int_equal(sscanf(line, "%lf GFLOP of the model's %lf", &of_kernel, &of_model), 2);
        if (!(whole > 0 && of_model == whole)) fail_msg("%s: %g of %g GFLOP", cases[i].model, of_model, whole);
        if ((strstr(line, "keys and values of the pooling head") != NULL) != cases[i].pools) fail_msg("%s: %.200s", cases[i].model, line);
        assert_null(strstr(said_out, "the longer of all tiles' time")); /* power slows the clock: neither of the two alone */
        assert_said("at the clock that the card's limit leaves");
        assert_said(cases[i].model == of_any_size ? "1 group of up to 144 tokens," : " pictures, "); /* three of 6 x 8 patches */
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(plan_of_texts), cmocka_unit_test(plans_of_texts_that_cannot_be),
                                       cmocka_unit_test(plan_of_a_million), cmocka_unit_test(plan_of_clusters),
                                       cmocka_unit_test(plan_of_tensor_memory),
                                       cmocka_unit_test(plans_of_machines), cmocka_unit_test(plan_says_flops_of_the_model)};
    return cmocka_run_group_tests_name("plans of texts and of Blackwell", tests, set_up_model, tear_down_model);
}
