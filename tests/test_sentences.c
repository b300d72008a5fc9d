/* The default model reads: sentences find the pictures that they describe, labels that are typed name them. */
#include "tests/program.h"

/* How often a word stands in what the program said. */
static int count_word(const char *word) {
    int count = 0;
    for (const char *at = said_out; (at = strstr(at, word)) != NULL; at++) count++;
    return count;
}

static void sentences_find_pictures(void **state) {
    static const struct { const char *sentence, *word; int most; } cases[] = { /* so many of as many pictures have the word in their names */
        {"something striped", "/striped-", 2}, {"a red heart", "red-heart", 2},
        {"Two stripy green triangles, please!", "two-striped-green-triangles", 1},
        {"find me a polka dot arrow", "dotted-orange-arrow", 1}, {"moons", "crescent", 2}, {"anything in purple", "purple-ring", 2},
        {"4 stars", "four-blue-stars", 1}, {"chequered squares", "checked-blue-square", 2}, {"half circles", "half-circle", 2},
        {"there is a BLACK cross", "black-cross", 1}, {"donuts", "ring", 2}, {"pink hexagons with spots", "pink-hexagon", 2},
    };
    (void)state;
    assert_int_equal(run("search", "--model", "examples/model", "--index", in_scratch("pictures.db"), "--add", "examples/pictures"), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char number[8];
        snprintf(number, sizeof number, "%d", cases[i].most);
        assert_int_equal(run("search", "--model", "examples/model", "--index", in_scratch("pictures.db"), "--text", cases[i].sentence, "-k",
                             number), 0);
        if (count_word(cases[i].word) != cases[i].most) fail_msg("%s", said_out);
    }
}

static void typed_labels_name_pictures(void **state) {
    static const char labels[] = "black cross\nblue square\nblue star\ncyan half circle\ngreen triangle\norange arrow\npink hexagon\npurple ring\n"
                                 "red circle\nred heart\nyellow crescent\nyellow star\n";
    static const char *const words[] = {"black", "cross", "square", "star", "half", "triangle", "arrow", "hexagon", "ring",
                                        "circle", "heart", "crescent"};
    int named = 0, right = 0;
    (void)state;
    write_all(in_scratch("labels.txt"), labels, strlen(labels));
    assert_int_equal(run("classify", "--model", "examples/model", "--labels", in_scratch("labels.txt"), "--template", "this is a photo of a {}.",
                         "-k", "1", "examples/pictures"), 0);
    for (char *line = strtok(said_out, "\n"), *label; line && (label = strtok(NULL, "\n")); line = strtok(NULL, "\n"), named++) {
        int fits = 1;
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
            if ((strstr(line, words[i]) != NULL) != (strstr(label, words[i]) != NULL)) fits = 0;
        right += fits;
    }
    assert_int_equal(named, 24);
    assert_int_equal(right, 24);
}

static void inspect_names_the_towers(void **state) {
    (void)state;
    assert_int_equal(run("inspect", "examples/model"), 0);
    assert_non_null(strstr(said_out, "model     SigLIP vision tower\n"));
    assert_non_null(strstr(said_out, "texts     SigLIP text tower: 3 layers, width 128, MLP 512, 2 heads of 64; 32 tokens of 1100, with their tokenizer; "
                                     "rows of 192\n"));
    assert_int_equal(run("inspect", "tests/golden/text/clip_plain"), 0);
    assert_non_null(strstr(said_out, "texts     CLIP text tower: 2 layers"));
    assert_non_null(strstr(said_out, "without a tokenizer"));
    assert_int_equal(run("inspect", MODEL), 0);
    assert_null(strstr(said_out, "texts"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sentences_find_pictures), cmocka_unit_test(typed_labels_name_pictures),
                                       cmocka_unit_test(inspect_names_the_towers)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
