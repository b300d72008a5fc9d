/* Text towers on the CPU: transformers' rows for ids, texts through the model's tokenizer, what is refused, memory. */
#define MEGAVIT_TEXT
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "support.h"
#include "rule.h"

#define FOLDER "tests/golden/text"

enum { MOST_VALUES = 4096, POSITIONS = 12, VOCABULARY = 61 };

static mgv_model *open_tower(const char *name, mgv_tower tower) {
    char path[256];
    snprintf(path, sizeof path, FOLDER "/%s", name);
    return open_directory(path, tower);
}
static mgv_precision precision; /* of all engines */
static mgv_engine *make_engine(const mgv_model *model, uint32_t texts, mgv_threads *threads) {
    mgv_engine *engine = NULL;
    mgv_engine_desc desc;
    mgv_error error;
    memset(&desc, 0, sizeof desc);
    desc.backend = MGV_BACKEND_CPU;
    desc.max_images = texts;
    if (threads) desc.parallel = mgv_threads_parallel_for(threads);
    desc.precision = precision;
    if (mgv_engine_create(&engine, model, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
    return engine;
}
static mgv_text text_of_ids(const uint32_t *ids, uint32_t count) {
    mgv_text text;
    memset(&text, 0, sizeof text);
    text.ids = ids;
    text.id_count = count;
    return text;
}
static mgv_text text_of(const char *utf8) {
    mgv_text text;
    memset(&text, 0, sizeof text);
    text.utf8 = utf8;
    text.bytes = strlen(utf8);
    return text;
}
static mgv_result encode(mgv_engine *engine, const mgv_text *texts, uint32_t count, mgv_output_kind kind, uint32_t index, float *rows,
                         uint64_t room, mgv_error *error) {
    mgv_encode_desc desc;
    mgv_output output;
    memset(&desc, 0, sizeof desc);
    memset(&output, 0, sizeof output);
    output.kind = kind;
    output.index = index;
    output.data = rows;
    output.capacity = room;
    desc.texts = texts;
    desc.text_count = count;
    desc.outputs = &output;
    desc.output_count = 1;
    return mgv_encode_blocking(engine, &desc, error);
}
/* ---- the stored answers ---- */

static size_t read_ids(char *text, uint32_t *ids) {
    size_t count = 0;
    char *p = text;
    for (;; p++) {
        ids[count++] = (uint32_t)strtoul(p, &p, 10);
        if (*p != ',') return count;
    }
}
static void rows_are_those_of_transformers(void **state) {
    static char line[1 << 17];
    static float expected[MOST_VALUES], found[MOST_VALUES];
    FILE *golden = fopen(FOLDER "/cases.golden", "rb");
    char open_name[32] = "";
    mgv_model *model = NULL;
    mgv_engine *engine = NULL;
    size_t lines = 0;
    (void)state;
    assert_non_null(golden);
    for (; fgets(line, sizeof line, golden); lines++) {
        static const struct { const char *name; mgv_output_kind kind; uint32_t index; } outputs[] = {
            {"text", MGV_OUTPUT_TEXT, 0}, {"pooled", MGV_OUTPUT_POOLED, 0}, {"tokens", MGV_OUTPUT_TOKENS, 0},
            {"layer:0", MGV_OUTPUT_LAYER, 0}, {"layer:2", MGV_OUTPUT_LAYER, 2},
        };
        char *what = strchr(line, ' ') + 1, *list = strchr(what, ' ') + 1, *hex = strchr(list, ' ') + 1;
        uint32_t ids[64];
        size_t count = read_ids(list, ids), values = read_floats(hex, expected, MOST_VALUES), k = 0;
        mgv_text text = text_of_ids(ids, (uint32_t)count);
        mgv_error error;
        what[-1] = list[-1] = 0;
        if (strcmp(line, open_name) != 0) {
            mgv_engine_destroy(engine);
            mgv_model_close(model);
            model = open_tower(line, MGV_TOWER_TEXT);
            engine = make_engine(model, 1, NULL);
            snprintf(open_name, sizeof open_name, "%.31s", line);
        }
        while (strcmp(what, outputs[k].name) != 0) k++;
        if (encode(engine, &text, 1, outputs[k].kind, outputs[k].index, found, values, &error) != MGV_OK)
            fail_msg("line %zu: %s", lines + 1, error.message);
        if (!(relative_l2(found, expected, values) <= (engine->kernels->pairs ? 2e-2 : 1e-5)))
            fail_msg("line %zu, %s %s: relative L2 %.2e", lines + 1, line, what, relative_l2(found, expected, values));
    }
    assert_true(lines > 100);
    mgv_engine_destroy(engine);
    mgv_model_close(model);
    fclose(golden);
}

/* ---- determinism, what a model says ---- */

static void bits_depend_on_neither_threads_nor_neighbours(void **state) {
    mgv_model *model = open_tower("clip", MGV_TOWER_TEXT);
    static const uint32_t ids[3][5] = {{1, 2, 59, 4, 5}, {9, 8, 7, 59, 1}, {59, 1, 1, 1, 1}};
    mgv_text texts[3];
    float alone[3][40], together[3][40];
    mgv_threads *threads;
    mgv_engine *one = make_engine(model, 1, NULL), *three;
    int i;
    (void)state;
    assert_int_equal(mgv_threads_create(&threads, 3, NULL, NULL), MGV_OK);
    three = make_engine(model, 3, threads);
    for (i = 0; i < 3; i++) {
        texts[i] = text_of_ids(ids[i], (uint32_t)(3 + i % 3));
        assert_int_equal(encode(one, &texts[i], 1, MGV_OUTPUT_TEXT, 0, alone[i], 40, NULL), MGV_OK);
    }
    assert_int_equal(encode(three, texts, 3, MGV_OUTPUT_TEXT, 0, together[0], 120, NULL), MGV_OK);
    assert_memory_equal(alone, together, sizeof alone);
    mgv_engine_destroy(one);
    mgv_engine_destroy(three);
    mgv_threads_destroy(threads);
    mgv_model_close(model);
}
/* SigLIP's texts of full length run several at a time; one that is shorter stands alone. */
static void bits_do_not_depend_on_texts_that_run_together(void **state) {
    static const struct { mgv_output_kind kind; uint32_t index; } outputs[] = {
        {MGV_OUTPUT_TEXT, 0}, {MGV_OUTPUT_POOLED, 0}, {MGV_OUTPUT_TOKENS, 0}, {MGV_OUTPUT_LAYER, 1}};
    enum { TEXTS = 11, SHORT = 6, LENGTH = 5 };
    mgv_model *model = open_tower("siglip", MGV_TOWER_TEXT);
    mgv_engine *one = make_engine(model, 1, NULL), *all = make_engine(model, TEXTS, NULL);
    static float alone[TEXTS * POSITIONS * 32], together[TEXTS * POSITIONS * 32];
    uint32_t ids[TEXTS][POSITIONS];
    mgv_text texts[TEXTS];
    size_t k;
    (void)state;
    for (uint32_t i = 0; i < TEXTS; i++) {
        for (uint32_t j = 0; j < POSITIONS; j++) ids[i][j] = (i * 17 + j * j * 5) % VOCABULARY;
        texts[i] = text_of_ids(ids[i], i == SHORT ? LENGTH : POSITIONS);
    }
    for (k = 0; k < sizeof outputs / sizeof outputs[0]; k++) {
        const int of_all = outputs[k].kind == MGV_OUTPUT_TOKENS || outputs[k].kind == MGV_OUTPUT_LAYER;
        size_t used = 0;
        for (uint32_t i = 0; i < TEXTS; i++) {
            const size_t values = 32 * (size_t)(of_all ? texts[i].id_count : 1);
            assert_int_equal(encode(one, &texts[i], 1, outputs[k].kind, outputs[k].index, alone + used, values, NULL), MGV_OK);
            used += values;
        }
        memset(together, 0, sizeof together);
        assert_int_equal(encode(all, texts, TEXTS, outputs[k].kind, outputs[k].index, together, used, NULL), MGV_OK);
        assert_memory_equal(alone, together, used * sizeof *alone);
    }
    mgv_engine_destroy(one);
    mgv_engine_destroy(all);
    mgv_model_close(model);
}
static void all_of_this_is_so_in_bf16(void **state) {
    precision = MGV_PRECISION_FAST;
    rows_are_those_of_transformers(state);
    bits_depend_on_neither_threads_nor_neighbours(state);
    bits_do_not_depend_on_texts_that_run_together(state);
    precision = MGV_PRECISION_AUTO;
}
static void a_model_says_which_towers_it_has(void **state) {
    static const struct { const char *name; mgv_tower tower; int has_vision, has_text; uint32_t width, positions; } cases[] = {
        {"clip", MGV_TOWER_TEXT, 1, 1, 40, POSITIONS}, {"clip", MGV_TOWER_VISION, 1, 1, 0, 0},
        {"siglip", MGV_TOWER_TEXT, 1, 1, 32, POSITIONS}, {"siglip", MGV_TOWER_VISION, 1, 1, 0, 0},
        {"siglip2_alone", MGV_TOWER_TEXT, 0, 1, 32, POSITIONS}, {"clip_plain", MGV_TOWER_TEXT, 0, 1, 32, POSITIONS},
    };
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        mgv_model *model = open_tower(cases[i].name, cases[i].tower);
        mgv_model_info info;
        assert_int_equal(mgv_model_get_info(model, &info), MGV_OK);
        assert_int_equal(info.tower, cases[i].tower);
        assert_int_equal(info.has_vision, cases[i].has_vision);
        assert_int_equal(info.has_text, cases[i].has_text);
        assert_int_equal(info.text_width, cases[i].width);
        assert_int_equal(info.max_text_tokens, cases[i].positions);
        assert_int_equal(info.vocabulary, cases[i].width ? VOCABULARY : 0);
        assert_int_equal(info.logit_scale != 0, cases[i].has_vision); /* beside both towers; stored numbers are random */
        assert_int_equal(info.logit_bias != 0, strcmp(cases[i].name, "siglip") == 0);
        mgv_model_close(model);
    }
}

/* ---- texts ---- */

/* A small tokenizer whose ids the small towers know, beside one of them: all in memory. */
#define TOKENIZER "{\"added_tokens\":[{\"id\":3,\"content\":\"<eos>\",\"special\":true,\"normalized\":false}],\"post_processor\":" \
    "{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{\"id\":\"<eos>\"}}],\"special_tokens\":" \
    "{\"<eos>\":{\"id\":\"<eos>\",\"ids\":[3]}}},\"padding\":{\"pad_id\":2},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2," \
    "\"<eos>\":3,\"ab\":4},\"merges\":[\"a b\"]}}"
static char *file_of(const char *name, size_t *bytes) {
    char *data = (char *)malloc(1 << 20);
    FILE *stream = fopen(name, "rb");
    assert_non_null(stream);
    *bytes = fread(data, 1, 1 << 20, stream);
    fclose(stream);
    return data;
}
typedef struct warnings {
    int count;
    char last[512];
} warnings;
static void take_warning(void *user, int32_t level, const char *message) {
    warnings *w = (warnings *)user;
    if (level != MGV_LOG_WARNING) return;
    w->count++;
    snprintf(w->last, sizeof w->last, "%s", message);
}
static void texts_are_tokenized_padded_and_cut(void **state) {
    static const uint32_t padded[POSITIONS] = {4, 2, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2}, cut[POSITIONS] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3};
    mgv_memory_file files[3];
    mgv_model_desc desc;
    mgv_engine_desc engine_desc;
    mgv_model *model;
    mgv_engine *engine;
    mgv_model_info info;
    mgv_text texts[2], ids[2];
    float of_texts[2][32], of_ids[2][32];
    warnings said = {0, ""};
    counting_allocator counts;
    uint64_t calls;
    size_t bytes;
    mgv_error error;
    (void)state;
    files[0].name = "config.json";
    files[0].data = file_of(FOLDER "/siglip/config.json", &bytes);
    files[0].bytes = bytes;
    files[1].name = "model.safetensors";
    files[1].data = file_of(FOLDER "/siglip/model.safetensors", &bytes);
    files[1].bytes = bytes;
    files[2].name = "tokenizer.json";
    files[2].data = TOKENIZER;
    files[2].bytes = strlen(TOKENIZER);
    memset(&desc, 0, sizeof desc);
    desc.memory_files = files;
    desc.memory_file_count = 3;
    desc.tower = MGV_TOWER_TEXT;
    desc.allocator = counting_allocator_make(&counts);
    if (mgv_model_open(&model, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_int_equal(mgv_model_get_info(model, &info), MGV_OK);
    assert_true(info.has_tokenizer);
    memset(&engine_desc, 0, sizeof engine_desc);
    engine_desc.backend = MGV_BACKEND_CPU;
    engine_desc.max_images = 2;
    engine_desc.max_text_bytes = 64;
    engine_desc.allocator = desc.allocator;
    engine_desc.logger.user = &said;
    engine_desc.logger.log = take_warning;
    if (mgv_engine_create(&engine, model, &engine_desc, &error) != MGV_OK) fail_msg("%s", error.message);
    calls = counts.calls;
    texts[0] = text_of("abc");
    texts[1] = text_of("aaaaaaaaaaaaaaaaaaaaaaaa");
    ids[0] = text_of_ids(padded, POSITIONS);
    ids[1] = text_of_ids(cut, POSITIONS);
    if (encode(engine, texts, 2, MGV_OUTPUT_TEXT, 0, of_texts[0], 64, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_int_equal(said.count, 1);
    assert_non_null(strstr(said.last, "text 1 has 25 ids"));
    assert_int_equal(encode(engine, ids, 2, MGV_OUTPUT_TEXT, 0, of_ids[0], 64, &error), MGV_OK);
    assert_memory_equal(of_texts, of_ids, sizeof of_ids);
    texts[0] = text_of("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    assert_int_equal(encode(engine, texts, 1, MGV_OUTPUT_TEXT, 0, of_texts[0], 64, &error), MGV_ERROR_CAPACITY);
    texts[0] = text_of("a\xFF");
    assert_int_equal(encode(engine, texts, 1, MGV_OUTPUT_TEXT, 0, of_texts[0], 64, &error), MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "text 0: the text is not UTF-8: byte 1"));
    assert_int_equal(counts.calls, calls); /* nothing is allocated after an engine is made */
    mgv_engine_destroy(engine);
    mgv_model_close(model);
    assert_int_equal(counts.live_blocks, 0);
    free((void *)(uintptr_t)files[0].data);
    free((void *)(uintptr_t)files[1].data);
}
static void what_cannot_be_is_refused(void **state) {
    mgv_model *model = open_tower("siglip", MGV_TOWER_TEXT), *vision = open_tower("siglip", MGV_TOWER_VISION), *none = NULL;
    mgv_engine *engine = make_engine(model, 2, NULL), *pictures = make_engine(vision, 1, NULL);
    uint32_t ids[POSITIONS + 1] = {0};
    float rows[256];
    mgv_text text = text_of_ids(ids, POSITIONS + 1), texts[3];
    mgv_model_desc desc;
    mgv_image image;
    mgv_grid grid;
    mgv_error error;
    (void)state;
    assert_int_equal(encode(engine, &text, 1, MGV_OUTPUT_TEXT, 0, rows, 256, &error), MGV_ERROR_CAPACITY);
    text.id_count = 2;
    ids[1] = VOCABULARY;
    assert_int_equal(encode(engine, &text, 1, MGV_OUTPUT_TEXT, 0, rows, 256, &error), MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "text 0: id 61 at place 1"));
    ids[1] = 0;
    assert_int_equal(encode(pictures, &text, 1, MGV_OUTPUT_POOLED, 0, rows, 256, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(encode(engine, &text, 1, MGV_OUTPUT_EMBEDS, 0, rows, 256, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(encode(engine, &text, 1, MGV_OUTPUT_TEXT, 0, rows, 31, &error), MGV_ERROR_CAPACITY);
    texts[0] = texts[1] = texts[2] = text;
    assert_int_equal(encode(engine, texts, 3, MGV_OUTPUT_TEXT, 0, rows, 256, &error), MGV_ERROR_CAPACITY);
    text = text_of("a");
    assert_int_equal(encode(engine, &text, 1, MGV_OUTPUT_TEXT, 0, rows, 256, &error), MGV_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "no tokenizer"));
    memset(&image, 0, sizeof image);
    image.width = image.height = 16;
    assert_int_equal(mgv_model_grid(model, &image, 0, 0, &grid, &error), MGV_ERROR_ARGUMENT);
    memset(&desc, 0, sizeof desc);
    desc.path = "tests/golden/qwen3_saved";
    desc.tower = MGV_TOWER_TEXT;
    assert_int_equal(mgv_model_open(&none, &desc, &error), MGV_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "text tower"));
    mgv_engine_destroy(engine);
    mgv_engine_destroy(pictures);
    mgv_model_close(model);
    mgv_model_close(vision);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_those_of_transformers),
        cmocka_unit_test(bits_depend_on_neither_threads_nor_neighbours),
        cmocka_unit_test(bits_do_not_depend_on_texts_that_run_together),
        cmocka_unit_test(all_of_this_is_so_in_bf16),
        cmocka_unit_test(a_model_says_which_towers_it_has),
        cmocka_unit_test(texts_are_tokenized_padded_and_cut),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
