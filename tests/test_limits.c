/* What a model's files may ask of the machine by themselves: models of a few kilobytes that would take hours or hundreds of gigabytes of
   one small picture are refused with a sentence, and the caller may ask for more. Runs $BUILD/megavit. */
#include "megavit.h"
#include "tests/program.h"
#include "tests/memory_model.h"

static char directory[512];

/* The model as a directory under the scratch one. */
static const char *write_model(const memory_model *m) {
    snprintf(directory, sizeof directory, "%s", in_scratch("model"));
    mkdir(directory, 0777);
    for (uint32_t i = 0; i < 3; i++) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", directory, m->files[i].name);
        remove(path);
        if (i < m->file_count) write_all(path, m->files[i].data, (size_t)m->files[i].bytes);
    }
    return directory;
}
static const char *picture(int width, int height) {
    static char path[512];
    unsigned char *pixels = noise(7, (size_t)(width * height * 3));
    snprintf(path, sizeof path, "%s", in_scratch("of_its_own_size.ppm"));
    write_pnm(path, 3, width, height, pixels);
    free(pixels);
    return path;
}
static void refused(int code, const char *word) {
    if (code != 2 || lines(said_err) != 1 || !strstr(said_err, word)) fail_msg("no \"%s\" with %d: %s", word, code, said_err);
    assert_false(exists(in_scratch("rows.npy")));
}
#define EMBED(...) run("embed", "--model", directory, "--what", "tokens", "-o", in_scratch("rows.npy"), __VA_ARGS__)

static void with_preprocessor(memory_model *m, const char *text) {
    m->files[2].data = text;
    m->files[2].bytes = strlen(text);
    m->file_count = 3;
    write_model(m);
}

static void pictures_are_not_enlarged_without_bound(void **state) {
    memory_model m;
    (void)state;
    small_qwen(&m); /* patches of 2 x 2 pixels */
    with_preprocessor(&m, "{\"min_pixels\":40000000,\"max_pixels\":40000000}");
    refused(EMBED(picture(8, 8)), "65536 only with --max-pixels");
    refused(run("preprocess", "--model", directory, "-o", in_scratch("rows.npy"), picture(8, 8)), "65536 only with --max-pixels");
    assert_int_equal(EMBED("--min-pixels=16", "--max-pixels=64", picture(8, 8)), 0);
    remove(in_scratch("rows.npy"));
    with_preprocessor(&m, "{\"min_pixels\":16900,\"max_pixels\":1000000000000}");
    refused(EMBED(picture(8, 8)), "4096 only with --min-pixels");
    refused(EMBED(picture(2, 300)), "4096 only with --min-pixels");
    refused(EMBED("--max-pixels=1000000000", picture(8, 8)), "4096 only with --min-pixels"); /* the other one */
    assert_int_equal(EMBED("--min-pixels=16900", picture(8, 8)), 0);
    assert_int_equal(EMBED(picture(131, 131)), 0); /* larger by itself, but for what makes sides multiples of four */
    remove(in_scratch("rows.npy"));
    refused(EMBED(picture(520, 520)), "65536 only with --max-pixels");
    memory_model_free(&m);
}

static void an_engine_takes_no_more_than_a_machine_has(void **state) {
    static const char config[] =
        "{\"model_type\":\"qwen2_5_vl_vision\",\"hidden_size\":8,\"intermediate_size\":65536,\"depth\":1,\"num_heads\":1,"
        "\"patch_size\":2,\"spatial_merge_size\":2,\"temporal_patch_size\":2,\"out_hidden_size\":6,\"window_size\":8,"
        "\"fullatt_block_indexes\":[0]}";
    memory_model m;
    tower t;
    (void)state;
    memset(&t, 0, sizeof t);
    t.family = MGV_FAMILY_QWEN2_5_VL;
    t.hidden = 8;
    t.intermediate = 65536;
    t.layers = 1;
    t.patch = t.temporal = t.merge = 2;
    t.out = 6;
    t.prefix = "";
    memory_model_make(&m, &t, config, "{\"min_pixels\":16,\"max_pixels\":262144}");
    write_model(&m);
    refused(EMBED(picture(512, 512)), "GiB of memory, and the command line gives it 16");
    memory_model_free(&m);
}

/* Of a model whose pictures have one size the file alone says how much one of them is. */
static void a_picture_takes_no_more_than_any_published_model(void **state) {
    static const char config[] =
        "{\"model_type\":\"siglip_vision_model\",\"hidden_size\":64,\"intermediate_size\":8,\"num_hidden_layers\":20,"
        "\"num_attention_heads\":1,\"patch_size\":2,\"image_size\":512}";
    memory_model m;
    tower t;
    (void)state;
    memset(&t, 0, sizeof t);
    t.family = MGV_FAMILY_SIGLIP;
    t.hidden = 64;
    t.intermediate = 8;
    t.layers = 20;
    t.patch = 2;
    t.side = 256;
    t.prefix = "vision_model.";
    memory_model_make(&m, &t, config, "{}");
    write_model(&m);
    refused(EMBED(picture(8, 8)), "one picture takes 22 TFLOP");
    refused(run("bench", "--model", directory), "one picture takes 22 TFLOP");
    refused(run("validate", "--model", directory, "--batch", "1"), "one picture takes 22 TFLOP");
    assert_int_equal(run("inspect", directory), 0);
    memory_model_free(&m);
}

/* Weights that are finite and too large give rows of NaN: no row is one of them. */
static void rows_that_are_no_numbers_are_not_written(void **state) {
    const char *index = in_scratch("none.db");
    memory_model m;
    (void)state;
    small_siglip(&m);
    m.file_count = 3;
    with_preprocessor(&m, "{}");
    memory_model_fill(&m, "encoder.layers.1.mlp.fc2.weight", 3.3e38f);
    with_preprocessor(&m, "{}");
    refused(EMBED(own[0], own[1]), "the model's arithmetic overflows");
    refused(EMBED("--normalize", own[0]), directory);
    refused(run("embed", "--model", directory, "--format", "jsonl", own[0], own[1]), "overflows");
    assert_string_equal(said_out, "");
    refused(run("search", "--model", directory, "--index", index, "--add", own[0]), "overflows");
    assert_int_equal(run("search", "--model", directory, "--index", index, "--query", own[0]), 2);
    memory_model_free(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_are_not_enlarged_without_bound),
        cmocka_unit_test(an_engine_takes_no_more_than_a_machine_has),
        cmocka_unit_test(a_picture_takes_no_more_than_any_published_model),
        cmocka_unit_test(rows_that_are_no_numbers_are_not_written),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
