/* Tokenizers: the ids of huggingface/tokenizers for every kind, back to text, what broken files are told, failing memory. The full comparison
   with vocabularies of real size is tests/tokenizers/compare.py. */
#define MEGAVIT_TEXT
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "support.h"

#define FOLDER "tests/golden/tokenizers"

enum { MOST_BYTES = 1 << 16, MOST_IDS = 1 << 14 };

static mgv_tokenizer *open_files(const mgv_memory_file *files, uint32_t count, mgv_lower_case lower_case, mgv_error *error) {
    mgv_tokenizer *tokenizer = NULL;
    mgv_model_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.memory_files = files;
    desc.memory_file_count = count;
    (void)mgv_tokenizer_open(&tokenizer, &desc, lower_case, error);
    return tokenizer;
}
static mgv_tokenizer *open_folder(const char *name) {
    char path[256];
    mgv_tokenizer *tokenizer = NULL;
    mgv_model_desc desc;
    mgv_error error;
    memset(&desc, 0, sizeof desc);
    snprintf(path, sizeof path, FOLDER "/%s", name);
    desc.path = path;
    if (mgv_tokenizer_open(&tokenizer, &desc, MGV_LOWER_CASE_AUTO, &error) != MGV_OK) fail_msg("%s: %s", name, error.message);
    return tokenizer;
}
static char *read_whole(const char *path, size_t *bytes) {
    FILE *stream = fopen(path, "rb");
    char *data = (char *)malloc(1 << 22);
    assert_non_null(stream);
    *bytes = fread(data, 1, 1 << 22, stream);
    assert_true(*bytes > 0 && *bytes < 1 << 22);
    fclose(stream);
    return data;
}
/* Two hexadecimal digits a byte; "-" is nothing. */
static size_t read_hex(const char *hex, char *out) {
    size_t count = 0;
    unsigned int byte;
    for (; *hex && *hex != '-' && *hex != ' ' && *hex != '\n'; hex += 2) {
        assert_int_equal(sscanf(hex, "%2x", &byte), 1);
        out[count++] = (char)byte;
    }
    return count;
}
static size_t read_ids(char *text, uint32_t *ids) {
    size_t count = 0;
    char *p = text;
    if (*p == '-') return 0;
    for (;; p++) {
        ids[count++] = (uint32_t)strtoul(p, &p, 10);
        if (*p != ',') return count;
    }
}

/* ---- the stored answers ---- */

static void check_case(const mgv_tokenizer *tokenizer, const char *where, const char *text, size_t bytes, const uint32_t *ids, size_t count,
                       const char *back, size_t back_bytes) {
    static uint32_t found[MOST_IDS];
    static char decoded[MOST_BYTES];
    uint64_t found_count, decoded_bytes;
    mgv_error error;
    if (mgv_tokenize(tokenizer, text, bytes, 0, found, MOST_IDS, &found_count, &error) != MGV_OK) fail_msg("%s: %s", where, error.message);
    if (found_count != count || memcmp(found, ids, count * sizeof *ids) != 0) fail_msg("%s: other ids than tokenizers'", where);
    assert_int_equal(mgv_detokenize(tokenizer, NULL, ids, count, 0, decoded, MOST_BYTES, &decoded_bytes, &error), MGV_OK);
    if (decoded_bytes != back_bytes || memcmp(decoded, back, back_bytes) != 0) fail_msg("%s: the ids' text is another", where);
}
static void ids_and_texts_are_those_of_tokenizers(void **state) {
    static char text[MOST_BYTES], back[MOST_BYTES];
    static uint32_t ids[MOST_IDS];
    size_t bytes, lines = 0;
    char *golden = read_whole(FOLDER "/ids.golden", &bytes), *line, *next, open_name[32] = "";
    mgv_tokenizer *tokenizer = NULL;
    (void)state;
    golden[bytes] = 0;
    for (line = golden; *line; line = next, lines++) {
        char where[48], *hex = strchr(line, ' ') + 1, *list = strchr(hex, ' ') + 1, *back_hex = strchr(list, ' ') + 1;
        size_t text_bytes = read_hex(hex, text), back_bytes = read_hex(back_hex, back), count = read_ids(list, ids);
        next = strchr(line, '\n') + 1;
        hex[-1] = 0;
        if (strcmp(line, open_name) != 0) {
            mgv_tokenizer_close(tokenizer);
            tokenizer = open_folder(line);
            snprintf(open_name, sizeof open_name, "%.31s", line);
        }
        snprintf(where, sizeof where, "line %zu, %s", lines + 1, line);
        check_case(tokenizer, where, text, text_bytes, ids, count, back, back_bytes);
    }
    assert_true(lines > 1000);
    mgv_tokenizer_close(tokenizer);
    free(golden);
}

/* ---- streams ---- */

static void a_stream_gives_whole_characters_and_the_same_text(void **state) {
    static const char text[] = "na\xC3\xAFve \xE6\xBC\xA2\xE5\xAD\x97 \xF0\x9F\x98\x80!";
    static const char *const names[] = {"gemma", "qwen", "unigram", "llama"};
    size_t k;
    (void)state;
    for (k = 0; k < COUNT_OF(names); k++) {
        mgv_tokenizer *tokenizer = open_folder(names[k]);
        mgv_detokenize_state stream;
        uint32_t ids[256];
        char whole[256], parts[256];
        uint64_t count, bytes, whole_bytes, total = 0, i;
        mgv_error error;
        memset(&stream, 0, sizeof stream);
        assert_int_equal(mgv_tokenize(tokenizer, text, strlen(text), 0, ids, COUNT_OF(ids), &count, &error), MGV_OK);
        assert_int_equal(mgv_detokenize(tokenizer, NULL, ids, count, 0, whole, sizeof whole, &whole_bytes, &error), MGV_OK);
        for (i = 0; i < count; i++) {
            size_t at, length;
            const uint32_t flags = i + 1 < count ? MGV_DETOKENIZE_MORE : 0;
            assert_int_equal(mgv_detokenize(tokenizer, &stream, ids + i, 1, flags, parts + total, sizeof parts - total, &bytes, &error), MGV_OK);
            for (at = 0; at < bytes; at += length) {
                length = mgv__utf8_length(parts + total + at, (size_t)bytes - at);
                assert_true(length > 0);
            }
            total += bytes;
        }
        assert_int_equal(total, whole_bytes);
        assert_memory_equal(parts, whole, (size_t)total);
        mgv_tokenizer_close(tokenizer);
    }
}
static void what_does_not_fit_leaves_the_stream_as_it_was(void **state) {
    mgv_tokenizer *tokenizer = open_folder("qwen");
    mgv_detokenize_state stream, before;
    uint32_t ids[8];
    uint64_t count, bytes;
    char text[8];
    mgv_error error;
    (void)state;
    memset(&stream, 0, sizeof stream);
    assert_int_equal(mgv_tokenize(tokenizer, "\xE6\xBC\xA2", 3, 0, ids, COUNT_OF(ids), &count, &error), MGV_OK);
    assert_int_equal(count, 3);
    assert_int_equal(mgv_detokenize(tokenizer, &stream, ids, 2, MGV_DETOKENIZE_MORE, text, sizeof text, &bytes, &error), MGV_OK);
    assert_int_equal(bytes, 0);
    before = stream;
    assert_int_equal(mgv_detokenize(tokenizer, &stream, ids + 2, 1, 0, text, 2, &bytes, &error), MGV_ERROR_CAPACITY);
    assert_int_equal(bytes, 3);
    assert_memory_equal(&stream, &before, sizeof stream);
    assert_int_equal(mgv_detokenize(tokenizer, &stream, ids + 2, 1, 0, text, sizeof text, &bytes, &error), MGV_OK);
    assert_memory_equal(text, "\xE6\xBC\xA2", 3);
    assert_int_equal(mgv_detokenize(tokenizer, NULL, ids, 2, 0, text, sizeof text, &bytes, &error), MGV_OK);
    assert_int_equal(bytes, 3); /* one U+FFFD for a sequence that was begun */
    assert_memory_equal(text, "\xEF\xBF\xBD", 3);
    ids[0] = 1u << 30;
    assert_int_equal(mgv_detokenize(tokenizer, NULL, ids, 1, 0, text, sizeof text, &bytes, &error), MGV_ERROR_ARGUMENT);
    mgv_tokenizer_close(tokenizer);
}

/* ---- texts ---- */

static void bytes_that_are_no_utf8_are_named(void **state) {
    static const struct { const char *text; size_t bytes; const char *says; } bad[] = {
        {"abc\xFF", 4, "byte 3 of it, of value 255"}, {"\xC0\xAF", 2, "byte 0 "}, {"a\xED\xA0\x80", 4, "byte 1 "},
        {"x\xF4\x90\x80\x80", 5, "byte 1 "}, {"ok \xE2\x96", 5, "byte 3 "},
    };
    mgv_tokenizer *tokenizer = open_folder("gemma");
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(bad); i++) {
        uint32_t ids[16];
        uint64_t count;
        mgv_error error;
        assert_int_equal(mgv_tokenize(tokenizer, bad[i].text, bad[i].bytes, 0, ids, COUNT_OF(ids), &count, &error), MGV_ERROR_ARGUMENT);
        assert_non_null(strstr(error.message, bad[i].says));
    }
    mgv_tokenizer_close(tokenizer);
}
/* Long runs go another way than short ones, by a heap; both must find the same merges. */
static void long_runs_merge_as_their_halves_do(void **state) {
    mgv_tokenizer *tokenizer = open_folder("qwen");
    static char text[2 * 40000 + 1];
    static uint32_t whole[100000], half[50000];
    uint64_t whole_count, half_count, i;
    uint32_t seed = 7;
    mgv_error error;
    (void)state;
    for (i = 0; i < 40000; i++) {
        seed = seed * 1664525u + 1013904223u;
        text[i] = text[i + 40000] = "etaoinshrdlucmfw"[seed >> 28];
    }
    text[0] = text[40000] = '\n'; /* a border that no piece crosses */
    assert_int_equal(mgv_tokenize(tokenizer, text, 40000, 0, half, COUNT_OF(half), &half_count, &error), MGV_OK);
    assert_int_equal(mgv_tokenize(tokenizer, text, 80000, 0, whole, COUNT_OF(whole), &whole_count, &error), MGV_OK);
    assert_int_equal(whole_count, 2 * half_count);
    assert_memory_equal(whole, half, half_count * sizeof *half);
    assert_memory_equal(whole + half_count, half, half_count * sizeof *half);
    mgv_tokenizer_close(tokenizer);
}
static void ids_that_do_not_fit_are_counted(void **state) {
    mgv_tokenizer *tokenizer = open_folder("clip");
    uint32_t ids[64];
    uint64_t count, plain;
    mgv_error error;
    (void)state;
    assert_int_equal(mgv_tokenize(tokenizer, "hello", 5, 0, ids, 1, &count, &error), MGV_ERROR_CAPACITY);
    assert_int_equal(mgv_tokenize(tokenizer, "hello", 5, 0, ids, count, &count, &error), MGV_OK);
    assert_int_equal(mgv_tokenize(tokenizer, "hello", 5, MGV_TOKENIZE_PLAIN, ids, 64, &plain, &error), MGV_OK);
    assert_int_equal(count, plain + 2);
    mgv_tokenizer_close(tokenizer);
}

/* ---- which file decides ---- */

static int same_ids(const mgv_tokenizer *a, const char *x, const mgv_tokenizer *b, const char *y) {
    uint32_t first[256], second[256];
    uint64_t first_count, second_count;
    assert_int_equal(mgv_tokenize(a, x, strlen(x), 0, first, 256, &first_count, NULL), MGV_OK);
    assert_int_equal(mgv_tokenize(b, y, strlen(y), 0, second, 256, &second_count, NULL), MGV_OK);
    return first_count == second_count && memcmp(first, second, (size_t)first_count * sizeof first[0]) == 0;
}
/* huggingface/transformers 5.24, AutoTokenizer: the classes build their own normalizers. */
static void the_class_decides_on_lower_case(void **state) {
    static const struct { const char *config, *model; mgv_lower_case lower_case; int lowers; } cases[] = {
        {"{}", "{}", MGV_LOWER_CASE_AUTO, 1}, /* the file's own */
        {"{\"tokenizer_class\":\"GemmaTokenizer\",\"do_lower_case\":true}", "{\"model_type\":\"siglip\"}", MGV_LOWER_CASE_AUTO, 0},
        {"{\"tokenizer_class\":\"GemmaTokenizerFast\"}", "{\"model_type\":\"siglip\"}", MGV_LOWER_CASE_AUTO, 0},
        {"{\"tokenizer_class\":\"GemmaTokenizer\"}", "{\"model_type\":\"siglip2\"}", MGV_LOWER_CASE_AUTO, 1},
        {"{\"tokenizer_class\":\"Siglip2Tokenizer\"}", "{\"model_type\":\"siglip\"}", MGV_LOWER_CASE_AUTO, 1},
        {"{\"tokenizer_class\":\"GemmaTokenizer\"}", "{\"model_type\":\"siglip\"}", MGV_LOWER_CASE_YES, 1},
        {"{\"tokenizer_class\":\"Siglip2Tokenizer\"}", "{}", MGV_LOWER_CASE_NO, 0},
        {"{}", "{}", MGV_LOWER_CASE_NO, 0},
    };
    size_t bytes, i;
    char *json = read_whole(FOLDER "/gemma/tokenizer.json", &bytes);
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        mgv_memory_file files[3];
        mgv_error error;
        mgv_tokenizer *tokenizer;
        files[0].name = "tokenizer.json";
        files[0].data = json;
        files[0].bytes = bytes;
        files[1].name = "tokenizer_config.json";
        files[1].data = cases[i].config;
        files[1].bytes = strlen(cases[i].config);
        files[2].name = "config.json";
        files[2].data = cases[i].model;
        files[2].bytes = strlen(cases[i].model);
        tokenizer = open_files(files, 3, cases[i].lower_case, &error);
        if (tokenizer == NULL) fail_msg("case %zu: %s", i, error.message);
        if (same_ids(tokenizer, "A MODEL", tokenizer, "a model") != cases[i].lowers) fail_msg("case %zu lowers or does not", i);
        mgv_tokenizer_close(tokenizer);
    }
    free(json);
}
/* SiglipTokenizer: lower case with a final sigma, no ASCII punctuation, white space joined, before the file's own steps. */
static void siglip_takes_punctuation_away(void **state) {
    static const char config[] = "{\"tokenizer_class\":\"SiglipTokenizer\"}", kept[] = "{\"tokenizer_class\":\"SiglipTokenizer\",\"do_lower_case\":false}";
    size_t bytes;
    char *json = read_whole(FOLDER "/unigram/tokenizer.json", &bytes);
    mgv_memory_file files[2];
    mgv_tokenizer *plain, *siglip, *cased;
    mgv_error error;
    (void)state;
    files[0].name = "tokenizer.json";
    files[0].data = json;
    files[0].bytes = bytes;
    files[1].name = "tokenizer_config.json";
    files[1].data = config;
    files[1].bytes = strlen(config);
    plain = open_files(files, 1, MGV_LOWER_CASE_AUTO, &error);
    siglip = open_files(files, 2, MGV_LOWER_CASE_AUTO, &error);
    files[1].data = kept;
    files[1].bytes = strlen(kept);
    cased = open_files(files, 2, MGV_LOWER_CASE_AUTO, &error);
    assert_non_null(plain);
    assert_non_null(siglip);
    assert_non_null(cased);
    assert_true(same_ids(siglip, "  A red, (striped)\t\x1c heart!? ", plain, "a red striped heart"));
    assert_true(same_ids(siglip, "\xCE\x9F\xCE\x94\xCE\x9F\xCE\xA3 \xCE\xA3", plain, "\xCE\xBF\xCE\xB4\xCE\xBF\xCF\x82 \xCF\x83"));
    assert_true(same_ids(cased, "A `red`\nHeart", plain, "A red Heart"));
    assert_false(same_ids(cased, "A", plain, "a"));
    mgv_tokenizer_close(plain);
    mgv_tokenizer_close(siglip);
    mgv_tokenizer_close(cased);
    free(json);
}

/* ---- other files ---- */

static void clip_comes_from_two_files_too(void **state) {
    static const char vocabulary[] = "{\"a\":0,\"b\":1,\"a</w>\":2,\"b</w>\":3,\"ab\":4,\"ab</w>\":5,\"<|startoftext|>\":6,\"<|endoftext|>\":7}";
    static const char merges[] = "#version: 0.2\r\na b</w>\r\na b\r\n\r\n";
    static const uint32_t expected[] = {6, 5, 4, 2, 7, 7};
    mgv_memory_file files[2];
    mgv_tokenizer *tokenizer;
    mgv_tokenizer_info info;
    uint32_t ids[16];
    uint64_t count, bytes;
    char text[32];
    mgv_error error;
    (void)state;
    files[0].name = "vocab.json";
    files[0].data = vocabulary;
    files[0].bytes = strlen(vocabulary);
    files[1].name = "merges.txt";
    files[1].data = merges;
    files[1].bytes = strlen(merges);
    tokenizer = open_files(files, 2, MGV_LOWER_CASE_AUTO, &error);
    if (tokenizer == NULL) fail_msg("%s", error.message);
    assert_int_equal(mgv_tokenize(tokenizer, " AB\taba!", 8, 0, ids, 16, &count, &error), MGV_OK);
    assert_int_equal(count, COUNT_OF(expected));
    assert_memory_equal(ids, expected, sizeof expected);
    assert_int_equal(mgv_detokenize(tokenizer, NULL, ids, count, 0, text, sizeof text, &bytes, &error), MGV_OK);
    assert_int_equal(bytes, 6);
    assert_memory_equal(text, "ab aba", 6);
    assert_int_equal(mgv_tokenizer_get_info(tokenizer, &info), MGV_OK);
    assert_int_equal(info.bos_id, 6);
    assert_int_equal(info.eos_id, 7);
    assert_int_equal(info.vocabulary, 8);
    mgv_tokenizer_close(tokenizer);
}
/* Any pair whose bytes together are a token merges, that of the lowest rank first: "aab" is a|ab, as ab ranks before aa. */
static void ranks_are_merges(void **state) {
    static const char config[] = "{\"tokenizer_class\":\"Qwen2Tokenizer\",\"added_tokens_decoder\":{\"5\":{\"content\":\"<s>\",\"special\":true,"
                                 "\"normalized\":false}}}";
    static const char ranks[] = "YQ== 0\nYg== 1\nYWI= 2\nYWE= 3\nYWFi 4\n"; /* a b ab aa aab */
    static const uint32_t expected[] = {4, 5, 3, 0};
    mgv_memory_file files[2];
    mgv_tokenizer *tokenizer;
    uint32_t ids[16];
    uint64_t count;
    mgv_error error;
    (void)state;
    files[0].name = "tokenizer.tiktoken";
    files[0].data = ranks;
    files[0].bytes = strlen(ranks);
    files[1].name = "tokenizer_config.json";
    files[1].data = config;
    files[1].bytes = strlen(config);
    tokenizer = open_files(files, 2, MGV_LOWER_CASE_AUTO, &error);
    if (tokenizer == NULL) fail_msg("%s", error.message);
    assert_int_equal(mgv_tokenize(tokenizer, "aab<s>aaa", 9, 0, ids, 16, &count, &error), MGV_OK);
    assert_int_equal(count, COUNT_OF(expected));
    assert_memory_equal(ids, expected, sizeof expected);
    mgv_tokenizer_close(tokenizer);
    assert_null(open_files(files, 1, MGV_LOWER_CASE_AUTO, &error)); /* nothing says whose it is */
    assert_int_equal(error.code, MGV_ERROR_UNSUPPORTED);
}

/* ---- broken files ---- */

#define BPE(vocabulary, merges, more) "{\"model\":{\"type\":\"BPE\",\"vocab\":" vocabulary ",\"merges\":" merges "}" more "}"
#define ONE(more) BPE("{\"a\":0}", "[]", more)
static void broken_files_are_told_what_is_wrong(void **state) {
    static const struct { const char *json; mgv_result code; const char *says; } bad[] = {
        {"{}", MGV_ERROR_FORMAT, "there is no model"},
        {"{\"model\":[]}", MGV_ERROR_FORMAT, "there is no model"},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{}}}", MGV_ERROR_UNSUPPORTED, "neither BPE nor Unigram"},
        {BPE("{}", "[]", ""), MGV_ERROR_FORMAT, "empty vocabulary"},
        {BPE("[]", "[]", ""), MGV_ERROR_FORMAT, "without its vocabulary"},
        {BPE("{\"a\":-1}", "[]", ""), MGV_ERROR_FORMAT, "an id that is not a number"},
        {BPE("{\"a\":\"0\"}", "[]", ""), MGV_ERROR_FORMAT, "an id that is not a number"},
        {BPE("{\"a\":4000000000}", "[]", ""), MGV_ERROR_FORMAT, "an id that is not a number from 0 to 0"},
        {BPE("{\"a\":0,\"b\":0}", "[]", ""), MGV_ERROR_FORMAT, "two tokens have the id 0"},
        {BPE("{\"a\":0,\"b\":1}", "[\"a b\"]", ""), MGV_ERROR_FORMAT, "merge 0 joins or makes a token that is not"},
        {BPE("{\"a\":0,\"aa\":1}", "[\"a  a\"]", ""), MGV_ERROR_FORMAT, "merge 0 is not two tokens"},
        {BPE("{\"a\":0,\"aa\":1}", "[[\"a\",\"a\",\"a\"]]", ""), MGV_ERROR_FORMAT, "merge 0 is neither"},
        {BPE("{\"a\":0,\"aa\":1}", "[[\"a\",\"\"]]", ""), MGV_ERROR_FORMAT, "merge 0 joins"},
        {BPE("{\"a\":0,\"aa\":1}", "[\"a a\",\"a a\",\"a a\",\"a a\"]", ""), MGV_ERROR_FORMAT, "more merges than"},
        {BPE("{\"a\":0}", "{}", ""), MGV_ERROR_FORMAT, "without a list of merges"},
        {ONE(",\"normalizer\":{\"type\":\"NFKD\"}"), MGV_ERROR_UNSUPPORTED, "the normalizer \"NFKD\""},
        {ONE(",\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(a|b)+\"},\"content\":\"\"}"), MGV_ERROR_UNSUPPORTED, "\"(a|b)+\""},
        {ONE(",\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"a\"}"), MGV_ERROR_UNSUPPORTED, "String"},
        {ONE(",\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"}"), MGV_ERROR_FORMAT, "wrong length"},
        {ONE(",\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"!\"}"), MGV_ERROR_FORMAT, "no base64"},
        {ONE(",\"pre_tokenizer\":{\"type\":\"Punctuation\"}"), MGV_ERROR_UNSUPPORTED, "the pre_tokenizer \"Punctuation\""},
        {ONE(",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\".\"},\"behavior\":\"Isolated\"}"), MGV_ERROR_UNSUPPORTED, "\".\""},
        {ONE(",\"pre_tokenizer\":{\"type\":\"Sequence\"}"), MGV_ERROR_FORMAT, "without pretokenizers"},
        {ONE(",\"decoder\":{\"type\":\"CTC\"}"), MGV_ERROR_UNSUPPORTED, "the decoder \"CTC\""},
        {ONE(",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}}]}"), MGV_ERROR_FORMAT, "no ids"},
        {ONE(",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[]}"), MGV_ERROR_FORMAT, "not just one text"},
        {ONE(",\"post_processor\":{\"type\":\"Odd\"}"), MGV_ERROR_UNSUPPORTED, "post_processor"},
        {ONE(",\"added_tokens\":[{\"id\":5,\"content\":\"x\"}]"), MGV_ERROR_FORMAT, "an id that is not"},
        {ONE(",\"added_tokens\":[{\"id\":0,\"content\":\"x\"}]"), MGV_ERROR_FORMAT, "two tokens have the id 0"},
        {BPE("{\"a\":0,\"b\":1}", "[]", ",\"added_tokens\":[{\"id\":1,\"content\":\"a\"}]"), MGV_ERROR_FORMAT, "and 0 in the vocabulary"},
        {BPE("{\"a\":0,\"b\":2}", "[]", ",\"added_tokens\":[{\"id\":0,\"content\":\"a\"}]"), MGV_ERROR_FORMAT, "no token has the id 1"},
        {ONE(",\"added_tokens\":[{\"id\":1,\"content\":\"x\",\"single_word\":true}]"), MGV_ERROR_UNSUPPORTED, "single_word"},
        {ONE(",\"added_tokens\":[{\"id\":1,\"content\":\"x\",\"special\":1}]"), MGV_ERROR_FORMAT, "neither true nor false"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}}", MGV_ERROR_FORMAT, "list of pairs"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1.5]],\"unk_id\":1}}", MGV_ERROR_FORMAT, "an id that is not"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"\",-1.5]]}}", MGV_ERROR_FORMAT, "without a name"},
        {"{\"model\":{\"type\":\"BPE\",\"dropout\":0.5,\"vocab\":{\"a\":0},\"merges\":[]}}", MGV_ERROR_UNSUPPORTED, "dropout"},
        {"{\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"vocab\":{\"a\":0},\"merges\":[]}}", MGV_ERROR_FORMAT, "unk_token"},
    };
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(bad); i++) {
        mgv_memory_file file;
        mgv_error error;
        file.name = "tokenizer.json";
        file.data = bad[i].json;
        file.bytes = strlen(bad[i].json);
        if (open_files(&file, 1, MGV_LOWER_CASE_AUTO, &error) != NULL) fail_msg("case %zu was taken: %s", i, bad[i].json);
        if (error.code != bad[i].code || strstr(error.message, bad[i].says) == NULL) fail_msg("case %zu: %s", i, error.message);
    }
}
static void failing_memory_is_an_error_and_leaks_nothing(void **state) {
    static const char *const names[] = {"gemma", "unigram", "clip"};
    size_t k;
    (void)state;
    for (k = 0; k < COUNT_OF(names); k++) {
        char path[64];
        size_t bytes;
        uint64_t fail_at;
        mgv_memory_file file;
        char *json;
        int done = 0;
        snprintf(path, sizeof path, FOLDER "/%s/tokenizer.json", names[k]);
        json = read_whole(path, &bytes);
        file.name = "tokenizer.json";
        file.data = json;
        file.bytes = bytes;
        for (fail_at = 1; !done; fail_at++) {
            counting_allocator counts;
            mgv_model_desc desc;
            mgv_tokenizer *tokenizer;
            mgv_error error;
            mgv_result result;
            uint32_t ids[64];
            uint64_t count;
            memset(&desc, 0, sizeof desc);
            desc.memory_files = &file;
            desc.memory_file_count = 1;
            desc.allocator = counting_allocator_make(&counts);
            counts.fail_at = fail_at;
            result = mgv_tokenizer_open(&tokenizer, &desc, MGV_LOWER_CASE_AUTO, &error);
            assert_true(counts.peak_bytes <= 4 * bytes + 65536);
            if (result == MGV_OK) {
                result = mgv_tokenize(tokenizer, "a <mask> Made Up e\xCC\x81 text", 22, 0, ids, 64, &count, &error);
                done = result == MGV_OK && counts.calls < fail_at;
            }
            assert_true(done || result == MGV_ERROR_NOMEM);
            mgv_tokenizer_close(tokenizer);
            assert_int_equal(counts.live_blocks, 0);
        }
        assert_true(fail_at > 10);
        free(json);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_and_texts_are_those_of_tokenizers),
        cmocka_unit_test(a_stream_gives_whole_characters_and_the_same_text),
        cmocka_unit_test(what_does_not_fit_leaves_the_stream_as_it_was),
        cmocka_unit_test(bytes_that_are_no_utf8_are_named),
        cmocka_unit_test(long_runs_merge_as_their_halves_do),
        cmocka_unit_test(ids_that_do_not_fit_are_counted),
        cmocka_unit_test(the_class_decides_on_lower_case),
        cmocka_unit_test(siglip_takes_punctuation_away),
        cmocka_unit_test(clip_comes_from_two_files_too),
        cmocka_unit_test(ranks_are_merges),
        cmocka_unit_test(broken_files_are_told_what_is_wrong),
        cmocka_unit_test(failing_memory_is_an_error_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
