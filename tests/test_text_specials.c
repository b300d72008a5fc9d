/* What stands around a text that a tower reads, and behind it: special tokens, padding by what there is to pad with, and texts that are
   nothing or too much. Rows of texts are those of the ids, bit by bit. */
#define MEGAVIT_TEXT
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "support.h"

#define FOLDER "tests/golden/text"

enum { POSITIONS = 12, COLUMNS = 32, MOST_BYTES = 1024 };

typedef struct tower {
    mgv_memory_file files[3];
    mgv_model *model;
    mgv_engine *engine;
} tower;

static char *whole_file(const char *folder, const char *name, uint64_t *bytes) {
    char path[256], *data = (char *)malloc(1 << 20);
    FILE *stream;
    snprintf(path, sizeof path, FOLDER "/%s/%s", folder, name);
    stream = fopen(path, "rb");
    assert_non_null(stream);
    *bytes = fread(data, 1, 1 << 20, stream);
    fclose(stream);
    return data;
}
static void open_tower(tower *t, const char *folder, const char *tokenizer) {
    mgv_model_desc desc;
    mgv_engine_desc engine_desc;
    mgv_error error;
    memset(&desc, 0, sizeof desc);
    memset(&engine_desc, 0, sizeof engine_desc);
    t->files[0].name = "config.json";
    t->files[0].data = whole_file(folder, "config.json", &t->files[0].bytes);
    t->files[1].name = "model.safetensors";
    t->files[1].data = whole_file(folder, "model.safetensors", &t->files[1].bytes);
    t->files[2].name = "tokenizer.json";
    t->files[2].data = tokenizer;
    t->files[2].bytes = strlen(tokenizer);
    desc.memory_files = t->files;
    desc.memory_file_count = 3;
    desc.tower = MGV_TOWER_TEXT;
    if (mgv_model_open(&t->model, &desc, &error) != MGV_OK) fail_msg("%s: %s", tokenizer, error.message);
    engine_desc.backend = MGV_BACKEND_CPU;
    engine_desc.max_text_bytes = MOST_BYTES;
    if (mgv_engine_create(&t->engine, t->model, &engine_desc, &error) != MGV_OK) fail_msg("%s: %s", tokenizer, error.message);
}
static void close_tower(tower *t) {
    mgv_engine_destroy(t->engine);
    mgv_model_close(t->model);
    free((void *)(uintptr_t)t->files[0].data);
    free((void *)(uintptr_t)t->files[1].data);
}
/* By its ids where there are some, else by its letters. */
static mgv_result encode(const tower *t, const char *letters, const uint32_t *ids, uint32_t count, float *row, mgv_error *error) {
    mgv_encode_desc desc;
    mgv_output output;
    mgv_text text;
    memset(&desc, 0, sizeof desc);
    memset(&output, 0, sizeof output);
    memset(&text, 0, sizeof text);
    text.ids = ids;
    text.id_count = count;
    if (count == 0) {
        text.utf8 = letters;
        text.bytes = strlen(letters);
    }
    output.kind = MGV_OUTPUT_TEXT;
    output.data = row;
    output.capacity = COLUMNS;
    desc.texts = &text;
    desc.text_count = 1;
    desc.outputs = &output;
    desc.output_count = 1;
    return mgv_encode_blocking(t->engine, &desc, error);
}

#define MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"<bos>\":3,\"<eos>\":4},\"merges\":[]}"
#define AROUND(before, behind) \
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[" before "{\"Sequence\":{\"id\":\"A\"}}" behind "]," \
    "\"special_tokens\":{\"<bos>\":{\"ids\":[3]},\"<eos>\":{\"ids\":[4]}}},"
#define BOS "{\"SpecialToken\":{\"id\":\"<bos>\"}},"
#define EOS ",{\"SpecialToken\":{\"id\":\"<eos>\"}}"

static void texts_are_filled_with_what_there_is(void **state) {
    static const struct { const char *tokenizer, *text; uint32_t ids[POSITIONS]; } cases[] = {
        {"{" MODEL "}", "cb", {2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
        {"{" AROUND(, EOS) MODEL "}", "cb", {2, 1, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4}},
        {"{" AROUND(BOS, EOS) MODEL "}", "cb", {3, 2, 1, 4, 4, 4, 4, 4, 4, 4, 4, 4}},
        {"{\"padding\":{\"pad_id\":1}," AROUND(BOS, EOS) MODEL "}", "c", {3, 2, 4, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
        {"{" AROUND(BOS BOS, ) MODEL "}", "bbbbbbbbbbbbbbbb", {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}}, /* cut */
        {"{" AROUND(BOS, EOS) MODEL "}", "", {3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4}},
    };
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        float of_text[COLUMNS], of_ids[COLUMNS];
        tower t;
        mgv_error error;
        open_tower(&t, "siglip", cases[i].tokenizer);
        if (encode(&t, cases[i].text, NULL, 0, of_text, &error) != MGV_OK) fail_msg("case %zu: %s", i, error.message);
        if (encode(&t, NULL, cases[i].ids, POSITIONS, of_ids, &error) != MGV_OK) fail_msg("case %zu: %s", i, error.message);
        if (memcmp(of_text, of_ids, sizeof of_ids) != 0) fail_msg("case %zu: other rows than those of its ids", i);
        close_tower(&t);
    }
}
static void texts_that_are_nothing_or_too_much(void **state) {
    static const char grows[] = "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":"
                                "\"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\"}," MODEL "}";
    static char letters[MOST_BYTES + 1];
    static const uint32_t c[POSITIONS] = {2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    float row[COLUMNS], again[COLUMNS];
    mgv_error error;
    tower t;
    (void)state;
    open_tower(&t, "siglip", grows);
    memset(letters, 'a', MOST_BYTES);
    assert_int_equal(encode(&t, letters, NULL, 0, row, &error), MGV_ERROR_CAPACITY);
    assert_non_null(strstr(error.message, "text 0: it is longer than the engine's max_text_bytes allow"));
    assert_int_equal(encode(&t, "c", NULL, 0, row, &error), MGV_OK); /* and the engine goes on */
    assert_int_equal(encode(&t, NULL, c, POSITIONS, again, &error), MGV_OK);
    assert_memory_equal(row, again, sizeof row);
    close_tower(&t);
    open_tower(&t, "clip", "{" MODEL "}");
    assert_int_equal(encode(&t, "", NULL, 0, row, &error), MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "text 0: it is empty, and the tokenizer adds nothing to it"));
    close_tower(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_filled_with_what_there_is),
        cmocka_unit_test(texts_that_are_nothing_or_too_much),
    };
    return cmocka_run_group_tests_name("around texts", tests, NULL, NULL);
}
