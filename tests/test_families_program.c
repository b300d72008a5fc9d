/* The command line on the families that have class tokens or projections: inspect, plan, embed, search, classify. */
#include "tests/program.h"

#define CLIP "tests/golden/clip_saved"      /* 40 px, patch 8: 1 + 25 tokens of 48, embeds of 24 */
#define DINO "tests/golden/dinov2_saved"    /* 56 px, patch 8: 1 + 4 + 49 tokens of 48 */

static void assert_said(const char *text) {
    if (!strstr(said_out, text)) fail_msg("'%s' is not in: %s%s", text, said_out, said_err);
}

static void inspect_says_what_there_is(void **state) {
    (void)state;
    assert_int_equal(run("inspect", CLIP), 0);
    assert_said("CLIP vision tower");
    assert_said("pooled [48], embeds [24], tokens [26, 48], layer:0 to layer:2");
    assert_int_equal(run("inspect", DINO), 0);
    assert_said("DINOv2 with registers vision tower");
    assert_said("pooled [48], tokens [54, 48], layer:0 to layer:2");
}

static void plan_counts_the_rows_before_the_patches(void **state) {
    (void)state;
    assert_int_equal(run("plan", "--model", DINO), 0);
    assert_said("54 tokens a picture");
    assert_said("prepend");
    assert_said("pick");
    assert_int_equal(run("plan", "--model", CLIP), 0);
    assert_said("projection");
}

static void embed_writes_every_output(void **state) {
    static const struct {
        const char *model, *what;
        uint64_t rows, columns; /* rows 0: one vector a picture */
    } cases[] = {
        {CLIP, "embeds", 0, 24}, {CLIP, "pooled", 0, 48}, {CLIP, "tokens", 26, 48}, {CLIP, "layer:0", 26, 48},
        {DINO, "pooled", 0, 48}, {DINO, "tokens", 54, 48}, {DINO, "layer:2", 54, 48},
    };
    size_t i;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        array a;
        assert_int_equal(run("embed", "--model", cases[i].model, "--what", cases[i].what, "-o", in_scratch("rows.npy"), own[0], own[1]), 0);
        a = read_array(in_scratch("rows.npy"));
        if (cases[i].rows) assert_shape(&a, 3, 2, cases[i].rows, cases[i].columns, 0);
        else assert_shape(&a, 2, 2, cases[i].columns, 0, 0);
        free(a.file);
    }
    assert_int_equal(run("embed", "--model", DINO, "--what", "embeds", "-o", in_scratch("none.npy"), own[0]), 1);
    assert_non_null(strstr(said_err, "no projection: ask for --what pooled"));
}

/* DINO's pooled row is its first token. */
static void the_class_row_is_pooled(void **state) {
    array pooled, tokens;
    uint64_t i;
    (void)state;
    assert_int_equal(run("embed", "--model", DINO, "--what", "pooled", "-o", in_scratch("pooled.npy"), own[0]), 0);
    assert_int_equal(run("embed", "--model", DINO, "--what", "tokens", "-o", in_scratch("tokens.npy"), own[0]), 0);
    pooled = read_array(in_scratch("pooled.npy"));
    tokens = read_array(in_scratch("tokens.npy"));
    for (i = 0; i < 48; i++) assert_true(array_float(&pooled, i) == array_float(&tokens, i));
    free(pooled.file);
    free(tokens.file);
}

/* Pictures are compared by embeds where there are some: the index is as wide as they are. */
static void search_compares_by_embeds(void **state) {
    static const char *const models[] = {CLIP, DINO};
    size_t i;
    (void)state;
    for (i = 0; i < 2; i++) {
        remove(in_scratch("families.db"));
        assert_int_equal(run("search", "--model", models[i], "--index", in_scratch("families.db"), "--add", own[0], own[1], own[2], "--query",
                             own[1], "-k", "1"), 0);
        assert_said(own[1]);
    }
    assert_int_not_equal(run("search", "--model", CLIP, "--index", in_scratch("families.db"), "--query", own[1]), 0);
}

/* Labels of the width of embeds, by the reader of which a wrong width is refused. */
static void classify_compares_by_embeds(void **state) {
    static const uint64_t widths[] = {24, 48};
    size_t i, k;
    (void)state;
    for (i = 0; i < 2; i++) {
        char file[4096], header[256];
        int length = snprintf(header, sizeof header,
                              "{\"__metadata__\":{\"names\":\"[\\\"a\\\",\\\"b\\\"]\"},\"embeddings\":{\"dtype\":\"F32\",\"shape\":[2,%d],"
                              "\"data_offsets\":[0,%d]}}", (int)widths[i], (int)(2 * widths[i] * 4));
        for (k = 0; k < 8; k++) file[k] = (char)((uint64_t)length >> (8 * k));
        memcpy(file + 8, header, (size_t)length);
        for (k = 0; k < 2 * widths[i]; k++) {
            const float value = k % 3 ? 0.5f : -1.0f;
            memcpy(file + 8 + length + 4 * k, &value, 4);
        }
        write_all(in_scratch("labels.safetensors"), file, 8 + (size_t)length + 8 * widths[i]);
        assert_int_equal(run("classify", "--model", CLIP, "--labels", in_scratch("labels.safetensors"), own[0]), i ? 2 : 0);
        if (i) assert_non_null(strstr(said_err, "labels of width 48; the model's embeddings have 24"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inspect_says_what_there_is),
        cmocka_unit_test(plan_counts_the_rows_before_the_patches),
        cmocka_unit_test(embed_writes_every_output),
        cmocka_unit_test(the_class_row_is_pooled),
        cmocka_unit_test(search_compares_by_embeds),
        cmocka_unit_test(classify_compares_by_embeds),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
