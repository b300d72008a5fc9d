/* Texts on the command line: tokenize, text, classify by labels that are texts. */
#include "tests/program.h"

#define TOKENIZERS "tests/golden/tokenizers"
#define TOKENIZER "{\"added_tokens\":[{\"id\":59,\"content\":\"<eos>\",\"special\":true,\"normalized\":false}],\"post_processor\":" \
    "{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{\"id\":\"<eos>\"}}],\"special_tokens\":" \
    "{\"<eos>\":{\"id\":\"<eos>\",\"ids\":[59]}}},\"decoder\":{\"type\":\"Fuse\"},\"model\":{\"type\":\"BPE\",\"vocab\":{"

static char folder[512];

static void copy(const char *from, const char *to) {
    static char bytes[1 << 20];
    write_all(to, bytes, read_all(from, bytes, sizeof bytes));
}
static const char *in_folder(const char *name) {
    static char paths[8][1024];
    static int next;
    next = (next + 1) % 8;
    snprintf(paths[next], sizeof paths[next], "%s/%s", folder, name);
    return paths[next];
}
/* A CLIP of 16 pixels with a tokenizer of 60 ids: a to z, space, and what fills the rest. */
static void make_model(int with_tokenizer) {
    static const char preprocessor[] = "{\"image_processor_type\":\"CLIPImageProcessor\",\"size\":{\"shortest_edge\":16},"
                                       "\"crop_size\":{\"height\":16,\"width\":16}}";
    static const char as_it_is[] = "{\"tokenizer_class\":\"PreTrainedTokenizerFast\"}"; /* else a CLIP's file is read as CLIP's */
    char tokenizer[4096];
    int used;
    snprintf(folder, sizeof folder, "%s", in_scratch(with_tokenizer ? "clip" : "clip-of-ids"));
    mkdir(folder, 0777);
    copy("tests/golden/text/clip/config.json", in_folder("config.json"));
    copy("tests/golden/text/clip/model.safetensors", in_folder("model.safetensors"));
    write_all(in_folder("preprocessor_config.json"), preprocessor, strlen(preprocessor));
    if (!with_tokenizer) return;
    used = snprintf(tokenizer, sizeof tokenizer, "%s", TOKENIZER);
    for (int i = 0; i < 59; i++)
        used += i < 27 ? snprintf(tokenizer + used, sizeof tokenizer - (size_t)used, "\"%c\":%d,", i < 26 ? 'a' + i : ' ', i)
                       : snprintf(tokenizer + used, sizeof tokenizer - (size_t)used, "\"<%d>\":%d,", i, i);
    used += snprintf(tokenizer + used, sizeof tokenizer - (size_t)used, "\"<eos>\":59},\"merges\":[]}}");
    write_all(in_folder("tokenizer.json"), tokenizer, (size_t)used);
    write_all(in_folder("tokenizer_config.json"), as_it_is, strlen(as_it_is));
}

/* ---- tokenize ---- */

static void tokenize_prints_an_array_a_line(void **state) {
    (void)state;
    make_model(1);
    assert_int_equal(run("tokenize", "--model", folder, "ab", "", "--", "-"), 0);
    assert_string_equal(said_out, "[0, 1, 59]\n[59]\n[59]\n"); /* - is a text after --; no token, and no unknown one either */
    assert_int_equal(run("tokenize", "--model", folder, "--plain", "a z"), 0);
    assert_string_equal(said_out, "[0, 26, 25]\n");
    write_all(in_scratch("lines"), "ba\n\ncab", 7);
    assert_int_equal(run_from(in_scratch("lines"), "tokenize", "--model", folder, "a", "-", NULL), 0);
    assert_string_equal(said_out, "[0, 59]\n[1, 0, 59]\n[59]\n[2, 0, 1, 59]\n");
}
static void decode_gives_the_text_back(void **state) {
    static const char *const folders[] = {TOKENIZERS "/gemma", TOKENIZERS "/qwen", TOKENIZERS "/clip", TOKENIZERS "/unigram"};
    (void)state;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        assert_int_equal(run("tokenize", "--model", folders[i], "a model of pictures"), 0);
        write_all(in_scratch("ids"), said_out, strlen(said_out));
        assert_int_equal(run_from(in_scratch("ids"), "tokenize", "--model", folders[i], "--decode", "-", NULL), 0);
        assert_string_equal(said_out, "a model of pictures\n");
    }
    write_all(in_scratch("ids"), "\xEF\xBB\xBF[1]\n", 7); /* as an editor with marks writes it */
    assert_int_equal(run_from(in_scratch("ids"), "tokenize", "--model", TOKENIZERS "/gemma", "--decode", "--special", "-", NULL), 0);
    assert_string_equal(said_out, "<eos>\n");
    write_all(in_scratch("ids"), "[1]\n\xEF\xBB\xBF[1]\n", 11);
    assert_bad_file(run_from(in_scratch("ids"), "tokenize", "--model", TOKENIZERS "/gemma", "--decode", "-", NULL), "no line of ids");
    assert_int_equal(run("tokenize", "--model", TOKENIZERS "/gemma", "--decode", "--special", "1"), 0);
    assert_string_equal(said_out, "<eos>\n");
}
static void texts_that_cannot_be_are_said(void **state) {
    (void)state;
    make_model(1);
    assert_bad_file(run("tokenize", "--model", folder, "ab\xFF"), "byte 2 of it");
    assert_bad_file(run("tokenize", "--model", folder, "--decode", "[0, 99]"), "id 99");
    assert_bad_file(run("tokenize", "--model", folder, "--decode", "[0, x]"), "no line of ids");
    assert_bad_file(run("tokenize", "--model", "tests/golden/text", "a"), "neither tokenizer.json");
    write_all(in_scratch("lines"), "b\0a\n", 4);
    assert_bad_file(run_from(in_scratch("lines"), "tokenize", "--model", folder, "-", NULL), "standard input");
    assert_int_equal(run("tokenize", "a"), 1);
    assert_int_equal(run("tokenize", "--model", folder), 1);
    assert_int_equal(run("tokenize", "--model", folder, "--lower-case", "maybe", "a"), 1);
}

/* ---- text ---- */

static void write_ids(const char *path, const char *descr, const char *shape, const unsigned char *numbers, size_t bytes) {
    static char file[1024];
    size_t used = 10;
    memset(file, ' ', sizeof file);
    memcpy(file, "\x93NUMPY\x01\x00", 8);
    used += (size_t)snprintf(file + 10, 118, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape);
    file[used] = ' ';
    file[8] = 118;
    file[9] = 0;
    file[127] = '\n';
    memcpy(file + 128, numbers, bytes);
    write_all(path, file, 128 + bytes);
}
static void rows_of_texts_are_those_of_their_ids(void **state) {
    static const unsigned char wide[48] = {0, [8] = 1, [16] = 59, [24] = 25, [32] = 59, [40] = 59}, narrow[24] = {0, [4] = 1, [8] = 59,
                                           [12] = 25, [16] = 59, [20] = 59};
    array texts;
    double square = 0;
    (void)state;
    make_model(1);
    assert_int_equal(run("text", "--model", folder, "-o", in_scratch("texts.npy"), "ab", "z"), 0);
    assert_string_equal(said_err, "");
    texts = read_array(in_scratch("texts.npy"));
    assert_shape(&texts, 2, 2, 40, 0, 0);
    free(texts.file);
    write_ids(in_scratch("wide.npy"), "<i8", "(2, 3)", wide, sizeof wide);
    write_ids(in_scratch("narrow.npy"), "<i4", "(2, 3)", narrow, sizeof narrow);
    assert_int_equal(run("text", "--model", folder, "--ids", in_scratch("wide.npy"), "-o", in_scratch("of-wide.npy")), 0);
    assert_same_file(in_scratch("texts.npy"), in_scratch("of-wide.npy"));
    make_model(0); /* ids need no tokenizer */
    assert_int_equal(run("text", "--model", folder, "--ids", in_scratch("narrow.npy"), "-o", in_scratch("of-narrow.npy")), 0);
    assert_same_file(in_scratch("texts.npy"), in_scratch("of-narrow.npy"));
    assert_bad_file(run("text", "--model", folder, "ab"), "no tokenizer");
    make_model(1);
    assert_int_equal(run("text", "--model", folder, "--normalize", "--threads", "3", "-o", in_scratch("unit.npy"), "ab"), 0);
    texts = read_array(in_scratch("unit.npy"));
    for (uint64_t i = 0; i < 40; i++) square += (double)array_float(&texts, i) * (double)array_float(&texts, i);
    assert_true(fabs(square - 1) < 1e-6);
    free(texts.file);
    assert_int_equal(run("text", "--model", folder, "--format", "jsonl", "ab", "z"), 0);
    assert_int_equal(lines(said_out), 2);
    assert_memory_equal(said_out, "{\"text\": \"ab\", \"embedding\": [", 29);
    assert_int_equal(run("text", "--model", folder, "-o", in_scratch("cut.npy"), "abcdefghijklmnopqrstuvwxyz"), 0);
    assert_non_null(strstr(said_err, "was cut to 12"));
}
static void ids_that_cannot_be_are_said(void **state) {
    static const unsigned char numbers[24] = {0, [4] = 1, [8] = 99};
    (void)state;
    make_model(1);
    write_ids(in_scratch("shape.npy"), "<i4", "(2, 4)", numbers, sizeof numbers);
    write_ids(in_scratch("type.npy"), "<f4", "(2, 3)", numbers, sizeof numbers);
    write_ids(in_scratch("id.npy"), "<i4", "(2, 3)", numbers, sizeof numbers);
    write_ids(in_scratch("flat.npy"), "<i4", "(6,)", numbers, sizeof numbers);
    assert_bad_file(run("text", "--model", folder, "--ids", in_scratch("shape.npy")), "shape.npy");
    assert_bad_file(run("text", "--model", folder, "--ids", in_scratch("type.npy")), "type.npy");
    assert_bad_file(run("text", "--model", folder, "--ids", in_scratch("flat.npy")), "flat.npy");
    assert_bad_file(run("text", "--model", folder, "--ids", in_scratch("id.npy")), "text 0: id 99 at place 2");
    assert_bad_file(run("text", "--model", folder, "--ids", in_scratch("not-there.npy")), "not-there.npy");
    assert_bad_file(run("text", "--model", MODEL, "a"), "text tower");
    assert_int_equal(run("text", "--model", folder, "--ids", in_scratch("id.npy"), "a"), 1);
    assert_int_equal(run("text", "--model", folder), 1);
    assert_int_equal(run("text", "--model", folder, "-o", in_folder("model.safetensors"), "a"), 1);
}

/* ---- classify ---- */

static void labels_may_be_texts(void **state) {
    char by_file[4096];
    double sum = 0;
    (void)state;
    make_model(1);
    write_all(in_scratch("labels.txt"), "red\r\n\ndog\ncat", 13);
    assert_int_equal(run("classify", "--model", folder, "--labels", in_scratch("labels.txt"), "--template", "a {} x", own[0]), 0);
    snprintf(by_file, sizeof by_file, "%.4095s", said_out);
    assert_int_equal(lines(said_out), 4);
    for (char *line = strchr(said_out, '\n'); line && line[1]; line = strchr(line + 1, '\n')) sum += strtod(line + 1, NULL);
    assert_true(fabs(sum - 1) < 2e-4); /* of a CLIP: the softmax over the labels */
    assert_int_equal(run("classify", "--model", folder, "--label", "red", "--label", "dog", "--label=cat", "--template", "a {} x", own[0]), 0);
    assert_string_equal(said_out, by_file);
    assert_int_equal(run("classify", "--model", folder, "--label", "red", "--label", "dog", "--label", "cat", own[0]), 0);
    assert_string_not_equal(said_out, by_file); /* the template counts */
    write_all(in_scratch("labels"), "\xEF\xBB\xBFred\ndog\ncat\n", 15); /* whatever it is called, as an editor with marks writes it */
    assert_int_equal(run("classify", "--model", folder, "--labels", in_scratch("labels"), "--template", "a {} x", own[0]), 0);
    assert_string_equal(said_out, by_file);
    write_all(in_scratch("empty.txt"), "\xEF\xBB\xBF\n", 4);
    assert_bad_file(run("classify", "--model", folder, "--labels", in_scratch("empty.txt"), own[0]), "no label");
    assert_bad_file(run("classify", "--model", folder, "--labels", in_scratch("absent"), own[0]), "absent");
    assert_int_equal(run("classify", "--model", folder, "--label", "a", "--template", "no place", own[0]), 1);
    assert_int_equal(run("classify", "--model", folder, "--label", "a", "--labels", in_scratch("labels.txt"), own[0]), 1);
    assert_int_equal(run("classify", "--model", folder, own[0]), 1);
    write_all(in_scratch("empty.txt"), "\n\n", 2);
    assert_bad_file(run("classify", "--model", folder, "--labels", in_scratch("empty.txt"), own[0]), "empty.txt");
    assert_bad_file(run("classify", "--model", MODEL, "--label", "a", own[0]), "text tower");
}

/* ---- search ---- */

static void search_answers_texts(void **state) {
    static const char begin[] = "{\"query\": \"red heart\", \"rows\": 3, \"nearest\": [{\"similarity\": ";
    char by_text[4096];
    char index[512];
    (void)state;
    snprintf(index, sizeof index, "%s", in_scratch("text.db"));
    make_model(1);
    assert_int_equal(run("search", "--model", folder, "--index", index, "--add", own[0], own[1], own[2]), 0);
    assert_int_equal(run("search", "--model", folder, "--index", index, "--text", "red heart", "--text", "dog", "-k", "2", "--json"), 0);
    assert_int_equal(lines(said_out), 2);
    assert_memory_equal(said_out, begin, strlen(begin));
    snprintf(by_text, sizeof by_text, "%.4095s", said_out);
    assert_int_equal(run("search", "--model", folder, "--index", index, "--query", own[1], "--text", "dog", "-k", "1"), 0);
    assert_int_equal(lines(said_out), 4);
    assert_non_null(strstr(said_out, "\ndog: nearest 1 of 3\n"));
    assert_int_equal(run("text", "--model", folder, "--normalize", "-o", in_scratch("query.npy"), "red heart"), 0);
    assert_int_equal(run("embed", "--model", folder, "--normalize", "--what", "embeds", "-o", in_scratch("rows.npy"), own[0], own[1], own[2]), 0);
    {
        array query = read_array(in_scratch("query.npy")), rows = read_array(in_scratch("rows.npy"));
        double best = -2;
        for (uint64_t i = 0; i < 3; i++) {
            double cosine = 0;
            for (uint64_t k = 0; k < 40; k++) cosine += (double)array_float(&query, k) * (double)array_float(&rows, i * 40 + k);
            if (cosine > best) best = cosine;
        }
        assert_true(fabs(strtod(by_text + strlen(begin), NULL) - best) < 1e-5);
        free(query.file);
        free(rows.file);
    }
    assert_int_equal(run("search", "--index", index, "--text", "dog"), 1);
    make_model(0);
    assert_bad_file(run("search", "--model", folder, "--index", index, "--text", "dog"), "no tokenizer");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokenize_prints_an_array_a_line),
        cmocka_unit_test(decode_gives_the_text_back),
        cmocka_unit_test(texts_that_cannot_be_are_said),
        cmocka_unit_test(rows_of_texts_are_those_of_their_ids),
        cmocka_unit_test(ids_that_cannot_be_are_said),
        cmocka_unit_test(labels_may_be_texts),
        cmocka_unit_test(search_answers_texts),
    };
    return cmocka_run_group_tests_name("texts on the command line", tests, set_up, tear_down);
}
