/* What the files of a tokenizer may say: each part that is read gives the ids and texts of huggingface/tokenizers, what is wrong or not
   known is refused with a sentence, and memory that fails anywhere is an error and nothing leaks. */
#define MEGAVIT_TEXT
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "support.h"
#include "tokenizer.h"

enum { MOST = 256 };

/* ---- tests/golden/tokenizers/small.golden ---- */

typedef struct small_case {
    char *json;
    char text[MOST], back[MOST];
    uint32_t ids[MOST];
    size_t bytes, back_bytes, count;
} small_case;

static size_t read_hex(const char *hex, char *out) {
    size_t count = 0;
    unsigned int byte;
    for (; *hex && *hex != '-' && *hex != '\n'; hex += 2) {
        assert_int_equal(sscanf(hex, "%2x", &byte), 1);
        assert_true(count < MOST);
        out[count++] = (char)byte;
    }
    return count;
}
static void read_case(char *line, small_case *c) {
    char *hex = strchr(line, '\t') + 1, *list = strchr(hex, '\t') + 1, *back = strchr(list, '\t') + 1;
    c->json = line;
    hex[-1] = list[-1] = back[-1] = 0;
    c->bytes = read_hex(hex, c->text);
    c->back_bytes = read_hex(back, c->back);
    for (c->count = 0; *list && *list != '-'; list += *list == ',') c->ids[c->count++] = (uint32_t)strtoul(list, &list, 10);
}
/* Whether memory failed; anything else that is not as stored fails the test. */
static int check_case(const small_case *c, const mgv_allocator *allocator) {
    const char *said[3] = {"tokenizer.json", NULL, NULL};
    mgv_tokenizer *tokenizer;
    uint32_t ids[MOST];
    char back[MOST];
    uint64_t count, bytes;
    mgv_error error;
    mgv_result result;
    said[1] = c->json;
    result = open_said(&tokenizer, said, allocator, &error);
    if (result == MGV_OK) result = mgv_tokenize(tokenizer, c->text, c->bytes, 0, ids, MOST, &count, &error);
    if (result == MGV_OK) {
        if (count != c->count || memcmp(ids, c->ids, c->count * sizeof *ids) != 0) fail_msg("%s: other ids than tokenizers'", c->json);
        result = mgv_detokenize(tokenizer, NULL, ids, count, 0, back, MOST, &bytes, &error);
    }
    if (result == MGV_OK && (bytes != c->back_bytes || memcmp(back, c->back, c->back_bytes) != 0)) fail_msg("%s: another text", c->json);
    mgv_tokenizer_close(tokenizer);
    if (result != MGV_OK && (result != MGV_ERROR_NOMEM || allocator == NULL)) fail_msg("%s: %s", c->json, error.message);
    return result != MGV_OK;
}
static void parts_do_what_they_do_in_tokenizers(void **state) {
    static char line[1 << 14];
    static small_case c;
    FILE *golden = fopen("tests/golden/tokenizers/small.golden", "rb");
    unsigned lines = 0;
    (void)state;
    assert_non_null(golden);
    for (; fgets(line, sizeof line, golden) != NULL; lines++) {
        counting_allocator counts;
        mgv_allocator allocator;
        uint64_t fail_at;
        int failed = 1;
        read_case(line, &c);
        (void)check_case(&c, NULL);
        for (fail_at = 1; failed; fail_at++) {
            allocator = counting_allocator_make(&counts);
            counts.fail_at = fail_at;
            failed = check_case(&c, &allocator);
            assert_int_equal(counts.live_blocks, 0);
        }
        assert_true(fail_at > 5);
    }
    fclose(golden);
    assert_true(lines >= 29);
}

/* ---- what is refused ---- */

#define FLAG(flag) "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]," flag "}}"
#define UNIGRAM(vocabulary) "{\"model\":{\"type\":\"Unigram\",\"vocab\":" vocabulary "}}"
#define NORMAL(what) ONE(",\"normalizer\":{\"type\":" what "}")
#define REPLACE(regex) NORMAL("\"Replace\",\"pattern\":{\"Regex\":" regex "},\"content\":\"\"")
#define CUT(what) ONE(",\"pre_tokenizer\":{\"type\":" what "}")
#define POST(what) ONE(",\"post_processor\":" what)
#define ADDED(what) ONE(",\"added_tokens\":[" what "]")
#define TEMPLATE(special, specials) \
    POST("{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{}},{\"SpecialToken\":" special "}],\"special_tokens\":" specials "}")

static void what_is_wrong_is_named(void **state) {
    static const struct { const char *json; mgv_result code; const char *says; } bad[] = {
        {FLAG("\"fuse_unk\":1"), MGV_ERROR_FORMAT, "fuse_unk is neither"},
        {FLAG("\"byte_fallback\":\"x\""), MGV_ERROR_FORMAT, "byte_fallback is neither"},
        {FLAG("\"ignore_merges\":0"), MGV_ERROR_FORMAT, "ignore_merges is neither"},
        {FLAG("\"end_of_word_suffix\":7"), MGV_ERROR_UNSUPPORTED, "end_of_word_suffix is no string"},
        {FLAG("\"end_of_word_suffix\":\"01234567890123456789012345678901234567890123456789\""), MGV_ERROR_UNSUPPORTED, "no string"},
        {FLAG("\"continuing_subword_prefix\":\"##\""), MGV_ERROR_UNSUPPORTED, "continuing_subword_prefix"},
        {FLAG("\"dropout\":\"0\""), MGV_ERROR_UNSUPPORTED, "dropout"},
        {FLAG("\"unk_token\":3"), MGV_ERROR_FORMAT, "unk_token that is not"},
        {UNIGRAM("{}"), MGV_ERROR_FORMAT, "without its vocabulary"},
        {UNIGRAM("[7]"), MGV_ERROR_FORMAT, "list of pairs"},
        {UNIGRAM("[[\"a\",-1,2]]"), MGV_ERROR_FORMAT, "list of pairs"},
        {UNIGRAM("[[1,-1]]"), MGV_ERROR_FORMAT, "list of pairs"},
        {UNIGRAM("[[\"a\",\"b\"]]"), MGV_ERROR_FORMAT, "list of pairs"},
        {UNIGRAM("[[]]"), MGV_ERROR_FORMAT, "list of pairs"},
        {BPE("{\"a\":0,\"aa\":1}", "[[\"a\"]]", ""), MGV_ERROR_FORMAT, "merge 0 is neither"},
        {BPE("{\"a\":0,\"aa\":1}", "[[\"a\",1]]", ""), MGV_ERROR_FORMAT, "merge 0 is neither"},
        {BPE("{\"a\":0,\"aa\":1}", "[7]", ""), MGV_ERROR_FORMAT, "merge 0 is neither"},
        {BPE("{\"a\":0,\"aa\":1}", "[[\"\",\"a\"]]", ""), MGV_ERROR_FORMAT, "merge 0 joins"},
        {BPE("{\"a\":0,\"aa\":1}", "[\"aa\"]", ""), MGV_ERROR_FORMAT, "merge 0 is not two tokens"},
        {BPE("{\"a\":0,\"aa\":1}", "[\"a b\"]", ""), MGV_ERROR_FORMAT, "merge 0 joins"},
        {BPE("{\"a\":0,\"aa\":1}", "[\"b a\"]", ""), MGV_ERROR_FORMAT, "merge 0 joins"},
        {ONE(",\"normalizer\":7"), MGV_ERROR_FORMAT, "the normalizer has no type"},
        {ONE(",\"normalizer\":{}"), MGV_ERROR_FORMAT, "the normalizer has no type"},
        {NORMAL("7"), MGV_ERROR_UNSUPPORTED, "the normalizer \"?\" is none"},
        {NORMAL("\"Sequence\",\"normalizers\":{}"), MGV_ERROR_FORMAT, "a Sequence without normalizers"},
        {NORMAL("\"Sequence\",\"normalizers\":[7]"), MGV_ERROR_FORMAT, "has no type"},
        {NORMAL("\"Strip\",\"strip_left\":1"), MGV_ERROR_FORMAT, "strip_left is neither"},
        {NORMAL("\"Strip\",\"strip_right\":1"), MGV_ERROR_FORMAT, "strip_right is neither"},
        {NORMAL("\"Replace\",\"pattern\":\"\",\"content\":\"\""), MGV_ERROR_UNSUPPORTED, "pattern is no string"},
        {NORMAL("\"Replace\",\"pattern\":{\"String\":7},\"content\":\"\""), MGV_ERROR_UNSUPPORTED, "String is no string"},
        {NORMAL("\"Precompiled\",\"precompiled_charsmap\":\"BAAAAAEAAABh\""), MGV_ERROR_FORMAT, "ends inside a string"},
        {NORMAL("\"Precompiled\",\"precompiled_charsmap\":\"BAAAAAEAAAD/AA==\""), MGV_ERROR_FORMAT, "not UTF-8"},
        {NORMAL("\"Precompiled\",\"precompiled_charsmap\":\"AAAAAAEAAAAA\""), MGV_ERROR_FORMAT, "wrong length"},
        {NORMAL("\"Precompiled\",\"precompiled_charsmap\":\"BQAAAAEAAAAA\""), MGV_ERROR_FORMAT, "wrong length"},
        {NORMAL("\"Precompiled\",\"precompiled_charsmap\":\"AA==AA==\""), MGV_ERROR_FORMAT, "no base64"},
        {NORMAL("\"Sequence\",\"normalizers\":[{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"BAAAAAEAAAAA\"},"
                "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"BAAAAAEAAAAA\"}]"), MGV_ERROR_UNSUPPORTED, "two normalizers"},
        {REPLACE("7"), MGV_ERROR_FORMAT, "a Regex that is no string"},
        {REPLACE("\"\""), MGV_ERROR_UNSUPPORTED, "\"\""},
        {REPLACE("\"[a\""), MGV_ERROR_UNSUPPORTED, "[a"},
        {REPLACE("\"[a[b]]\""), MGV_ERROR_UNSUPPORTED, "[a[b]]"},
        {REPLACE("\"[a&&b]\""), MGV_ERROR_UNSUPPORTED, "[a&&b]"},
        {REPLACE("\"[b-a]\""), MGV_ERROR_UNSUPPORTED, "[b-a]"},
        {REPLACE("\"[a-\\u00e9]\""), MGV_ERROR_UNSUPPORTED, "[a-"},
        {REPLACE("\"[a-\""), MGV_ERROR_UNSUPPORTED, "[a-"},
        {REPLACE("\"\\\\x8F\""), MGV_ERROR_UNSUPPORTED, "x8F"},
        {REPLACE("\"\\\\x4\""), MGV_ERROR_UNSUPPORTED, "x4"},
        {REPLACE("\"\\\\x4G\""), MGV_ERROR_UNSUPPORTED, "x4G"},
        {REPLACE("\"\\\\d\""), MGV_ERROR_UNSUPPORTED, "d"},
        {REPLACE("\"\\\\A\""), MGV_ERROR_UNSUPPORTED, "A"},
        {REPLACE("\"\\\\1\""), MGV_ERROR_UNSUPPORTED, "1"},
        {REPLACE("\"\\\\\""), MGV_ERROR_UNSUPPORTED, "\\"},
        {REPLACE("\"a{0}\""), MGV_ERROR_UNSUPPORTED, "a{0}"},
        {REPLACE("\"a{2,3}\""), MGV_ERROR_UNSUPPORTED, "a{2,3}"},
        {REPLACE("\"ab\""), MGV_ERROR_UNSUPPORTED, "ab"},
        {REPLACE("\"a*\""), MGV_ERROR_UNSUPPORTED, "a*"},
        {CUT("\"Split\",\"pattern\":{\"String\":\"-\"}"), MGV_ERROR_UNSUPPORTED, "unknown behavior"},
        {CUT("\"Split\",\"pattern\":{\"String\":\"-\"},\"behavior\":\"Contiguous\""), MGV_ERROR_UNSUPPORTED, "unknown behavior"},
        {CUT("\"Split\",\"pattern\":{\"String\":\"-\"},\"behavior\":\"Isolated\",\"invert\":true"), MGV_ERROR_UNSUPPORTED, "inverted"},
        {CUT("\"Split\",\"pattern\":{\"String\":\"-\"},\"behavior\":\"Isolated\",\"invert\":7"), MGV_ERROR_FORMAT, "invert is neither"},
        {CUT("\"ByteLevel\",\"add_prefix_space\":7"), MGV_ERROR_FORMAT, "add_prefix_space is neither"},
        {CUT("\"ByteLevel\",\"use_regex\":7"), MGV_ERROR_FORMAT, "use_regex is neither"},
        {CUT("\"Metaspace\""), MGV_ERROR_UNSUPPORTED, "replacement is no string"},
        {CUT("\"Metaspace\",\"replacement\":\"_\",\"split\":7"), MGV_ERROR_FORMAT, "split is neither"},
        {CUT("\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"last\""), MGV_ERROR_FORMAT, "unknown prepend_scheme"},
        {ONE(",\"decoder\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a\"},\"content\":\"\"}"), MGV_ERROR_UNSUPPORTED,
         "a decoder that replaces"},
        {ONE(",\"decoder\":{\"type\":\"Strip\",\"content\":\"ab\"}"), MGV_ERROR_FORMAT, "an id that is not a number"},
        {ONE(",\"decoder\":{\"type\":\"Strip\",\"content\":\"a\",\"start\":1,\"stop\":1024}"), MGV_ERROR_FORMAT, "an id that is not"},
        {ONE(",\"decoder\":{\"type\":\"BPEDecoder\"}"), MGV_ERROR_UNSUPPORTED, "suffix is no string"},
        {ONE(",\"added_tokens\":7"), MGV_ERROR_FORMAT, "added_tokens is no list"},
        {ADDED("7"), MGV_ERROR_FORMAT, "an added token that is no object"},
        {ADDED("{\"content\":\"x\"}"), MGV_ERROR_FORMAT, "an id that is not"},
        {ADDED("{\"id\":1}"), MGV_ERROR_FORMAT, "an added token without content"},
        {ADDED("{\"id\":1,\"content\":7}"), MGV_ERROR_FORMAT, "an added token without content"},
        {ADDED("{\"id\":1,\"content\":\"x\"},{\"id\":1,\"content\":\"y\"}"), MGV_ERROR_FORMAT, "two"},
        {POST("7"), MGV_ERROR_FORMAT, "a post_processor without a type"},
        {POST("{}"), MGV_ERROR_FORMAT, "a post_processor without a type"},
        {POST("{\"type\":\"Sequence\"}"), MGV_ERROR_FORMAT, "a Sequence without processors"},
        {POST("{\"type\":\"Sequence\",\"processors\":7}"), MGV_ERROR_FORMAT, "a Sequence without processors"},
        {POST("{\"type\":\"Sequence\",\"processors\":[{\"type\":\"Odd\"}]}"), MGV_ERROR_UNSUPPORTED, "post_processor"},
        {POST("{\"type\":\"RobertaProcessing\"}"), MGV_ERROR_FORMAT, "without cls or sep"},
        {POST("{\"type\":\"RobertaProcessing\",\"cls\":7}"), MGV_ERROR_FORMAT, "without cls or sep"},
        {POST("{\"type\":\"BertProcessing\",\"cls\":[\"a\"],\"sep\":[\"a\",0]}"), MGV_ERROR_FORMAT, "without cls or sep"},
        {POST("{\"type\":\"BertProcessing\",\"cls\":[\"a\",1],\"sep\":[\"a\",0]}"), MGV_ERROR_FORMAT, "an id that is not"},
        {POST("{\"type\":\"TemplateProcessing\"}"), MGV_ERROR_FORMAT, "without a template"},
        {POST("{\"type\":\"TemplateProcessing\",\"single\":7}"), MGV_ERROR_FORMAT, "without a template"},
        {TEMPLATE("7", "{}"), MGV_ERROR_FORMAT, "that has no name"},
        {TEMPLATE("{}", "{}"), MGV_ERROR_FORMAT, "that has no name"},
        {TEMPLATE("{\"id\":7}", "{}"), MGV_ERROR_FORMAT, "that has no name"},
        {TEMPLATE("{\"id\":\"x\"}", "7"), MGV_ERROR_FORMAT, "that has no ids"},
        {TEMPLATE("{\"id\":\"x\"}", "{\"y\":{\"ids\":[0]}}"), MGV_ERROR_FORMAT, "that has no ids"},
        {TEMPLATE("{\"id\":\"x\"}", "{\"x\":7}"), MGV_ERROR_FORMAT, "that has no ids"},
        {TEMPLATE("{\"id\":\"x\"}", "{\"x\":{\"ids\":7}}"), MGV_ERROR_FORMAT, "that has no ids"},
        {TEMPLATE("{\"id\":\"x\"}", "{\"x\":{\"ids\":[1]}}"), MGV_ERROR_FORMAT, "an id that is not"},
        {TEMPLATE("{\"id\":\"x\"}", "{\"x\":{\"ids\":[0,0,0,0,0,0,0,0,0]}}"), MGV_ERROR_FORMAT, "more than 8 tokens"},
        {POST("{\"type\":\"Sequence\",\"processors\":[{\"type\":\"RobertaProcessing\",\"cls\":[\"a\",0],\"sep\":[\"a\",0]},"
              "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}},{\"Sequence\":{}}],"
              "\"special_tokens\":{\"x\":{\"ids\":[0,0,0,0,0,0,0,0]}}}]}"), MGV_ERROR_UNSUPPORTED, "more than 8 special tokens"},
    };
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(bad); i++) {
        const char *said[3] = {"tokenizer.json", NULL, NULL};
        mgv_tokenizer *tokenizer;
        mgv_error error;
        said[1] = bad[i].json;
        if (open_said(&tokenizer, said, NULL, &error) == MGV_OK) fail_msg("case %zu was taken: %s", i, bad[i].json);
        if (error.code != bad[i].code || strstr(error.message, bad[i].says) == NULL) fail_msg("%s: %s", bad[i].json, error.message);
    }
}

/* ---- files beside tokenizer.json, and in its place ---- */

static void other_files_are_refused_so(void **state) {
    static const char qwen[] = "{\"tokenizer_class\":\"Qwen2Tokenizer\"}";
    static const struct { const char *said[2 * MOST_FILES + 1]; mgv_result code; const char *says; } bad[] = {
        {{"config.json", "{}", NULL}, MGV_ERROR_IO, "neither tokenizer.json nor vocab.json"},
        {{"vocab.json", "{\"a\":0}", NULL}, MGV_ERROR_IO, "merges.txt"},
        {{"vocab.json", "{\"a\":0}", "merges.txt", "", NULL}, MGV_ERROR_UNSUPPORTED, "nothing says whose tokenizer this is"},
        {{"vocab.json", "{\"a\":0,\"a</w>\":1}", "merges.txt", "#version: 0.2\r\n", "tokenizer_config.json",
          "{\"tokenizer_class\":\"CLIPTokenizer\",\"added_tokens_decoder\":{}}", NULL}, MGV_ERROR_FORMAT, "begin and end are missing"},
        {{"vocab.json", "{\"a\":0}", "merges.txt", "a\n", "tokenizer_config.json", qwen, NULL}, MGV_ERROR_FORMAT, "merge 0 is not two"},
        {{"tokenizer.tiktoken", "YQ==\n", "tokenizer_config.json", qwen, NULL}, MGV_ERROR_FORMAT, "a space and a rank"},
        {{"tokenizer.tiktoken", "YQ== \n", "tokenizer_config.json", qwen, NULL}, MGV_ERROR_FORMAT, "a space and a rank"},
        {{"tokenizer.tiktoken", "YQ== x\n", "tokenizer_config.json", qwen, NULL}, MGV_ERROR_FORMAT, "a space and a rank"},
        {{"tokenizer.tiktoken", "YQ== 99999999999\n", "tokenizer_config.json", qwen, NULL}, MGV_ERROR_FORMAT, "a space and a rank"},
        {{"tokenizer.tiktoken", "!! 0\n", "tokenizer_config.json", qwen, NULL}, MGV_ERROR_FORMAT, "a space and a rank"},
        {{"tokenizer.json", ONE(""), "tokenizer_config.json", "{\"do_lower_case\":7}", NULL}, MGV_ERROR_FORMAT, "do_lower_case is neither"},
        {{"tokenizer.json", ONE(""), "tokenizer_config.json", "[]", NULL}, MGV_ERROR_FORMAT, "tokenizer_config.json"},
    };
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(bad); i++) {
        mgv_tokenizer *tokenizer;
        mgv_error error;
        if (open_said(&tokenizer, bad[i].said, NULL, &error) == MGV_OK) fail_msg("case %zu was taken", i);
        if (error.code != bad[i].code || strstr(error.message, bad[i].says) == NULL) fail_msg("case %zu: %s", i, error.message);
    }
}
/* Failing memory, for the ways that are not tokenizer.json's. */
static void other_files_without_memory(void **state) {
    static const char *const ways[][2 * MOST_FILES + 1] = {
        {"vocab.json", "{\"a\":0,\"b</w>\":1,\"ab</w>\":2,\"a</w>\":3}", "merges.txt", "#version: 0.2\r\n\na b</w>", NULL},
        {"tokenizer.tiktoken", "YQ== 0\n\nYg== 1\r\nYWI= 2\n", "tokenizer_config.json", "{\"tokenizer_class\":\"Qwen2Tokenizer\"}", NULL},
        {"tokenizer.json", ONE(""), "config.json", "{\"model_type\":\"siglip\"}", "tokenizer_config.json",
         "{\"tokenizer_class\":\"SiglipTokenizer\",\"eos_token\":{\"content\":\"a\"}}", NULL},
    };
    static const uint32_t expected[][3] = {{4, 2, 5}, {2, 0, 0}, {0, 0, 0}};
    static const uint64_t counts_expected[] = {3, 1, 0};
    size_t k;
    (void)state;
    for (k = 0; k < COUNT_OF(ways); k++) {
        uint64_t fail_at;
        mgv_result result = MGV_ERROR_NOMEM;
        for (fail_at = 1; result == MGV_ERROR_NOMEM; fail_at++) {
            counting_allocator counts;
            mgv_allocator allocator = counting_allocator_make(&counts);
            mgv_tokenizer *tokenizer;
            mgv_error error;
            uint32_t ids[8];
            uint64_t count = 0;
            counts.fail_at = fail_at;
            result = open_said(&tokenizer, ways[k], &allocator, &error);
            if (result == MGV_OK) result = mgv_tokenize(tokenizer, "ab", 2, 0, ids, COUNT_OF(ids), &count, &error);
            if (result == MGV_OK && counts_expected[k] > 0) {
                assert_int_equal(count, counts_expected[k]);
                assert_memory_equal(ids, expected[k], (size_t)count * sizeof *ids);
            }
            mgv_tokenizer_close(tokenizer);
            assert_int_equal(counts.live_blocks, 0);
            if (result != MGV_OK && result != MGV_ERROR_NOMEM) fail_msg("way %zu: %s", k, error.message);
        }
        assert_true(fail_at > 6);
    }
}

/* ---- what a tokenizer tells ---- */

static void tokens_are_told_by_id(void **state) {
    static const char *const said[] = {
        "tokenizer.json", BPE("{\"a\":0,\"bc\":1}", "[]", ",\"added_tokens\":[{\"id\":2,\"content\":\"<s>\"}]"), NULL};
    static const char *const names[] = {"a", "bc", "<s>"};
    mgv_tokenizer *tokenizer;
    mgv_tokenizer_info info;
    const char *name;
    size_t bytes;
    uint32_t id;
    (void)state;
    assert_int_equal(open_said(&tokenizer, said, NULL, NULL), MGV_OK);
    for (id = 0; id < COUNT_OF(names); id++) {
        assert_int_equal(mgv_tokenizer_get_token(tokenizer, id, &name, &bytes), MGV_OK);
        assert_int_equal(bytes, strlen(names[id]));
        assert_memory_equal(name, names[id], bytes);
    }
    assert_int_equal(mgv_tokenizer_get_token(tokenizer, 3, &name, &bytes), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_tokenizer_get_token(NULL, 0, &name, &bytes), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_tokenizer_get_token(tokenizer, 0, NULL, &bytes), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_tokenizer_get_token(tokenizer, 0, &name, NULL), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_tokenizer_get_info(NULL, &info), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_tokenizer_get_info(tokenizer, NULL), MGV_ERROR_ARGUMENT);
    mgv_tokenizer_close(tokenizer);
}
/* A Unigram without an unknown token cannot say what it does not know. */
static void what_has_no_token_is_an_error(void **state) {
    static const char *const said[] = {"tokenizer.json", UNIGRAM("[[\"a\",-1.0]]"), NULL};
    mgv_tokenizer *tokenizer;
    mgv_error error;
    uint32_t ids[4];
    uint64_t count;
    (void)state;
    assert_int_equal(open_said(&tokenizer, said, NULL, &error), MGV_OK);
    assert_int_equal(mgv_tokenize(tokenizer, "aa", 2, 0, ids, COUNT_OF(ids), &count, &error), MGV_OK);
    assert_int_equal(count, 2);
    assert_int_equal(mgv_tokenize(tokenizer, "ab", 2, 0, ids, COUNT_OF(ids), &count, &error), MGV_ERROR_MODEL);
    assert_non_null(strstr(error.message, "no token for the code point 98"));
    mgv_tokenizer_close(tokenizer);
}

/* ---- long pieces ---- */

/* Pieces of more than 4,096 letters are merged by windows that meet; where one symbol fills a window they do not, and the piece is merged
   whole. Either way the ids are those of a plain loop, merge after merge: none here makes a pair of a lower rank. */
static size_t merge_plainly(uint32_t *ids, size_t n, const uint32_t (*merges)[3], size_t merge_count) {
    size_t k, i, kept;
    for (k = 0; k < merge_count; k++) {
        for (i = kept = 0; i < n; kept++) {
            const int joins = i + 1 < n && ids[i] == merges[k][0] && ids[i + 1] == merges[k][1];
            ids[kept] = joins ? merges[k][2] : ids[i];
            i += joins ? 2 : 1;
        }
        n = kept;
    }
    return n;
}
enum { LETTERS = 20000, DOUBLINGS = 13 };
static void check_long(const char *const *said, const char *text, uint32_t *expected, const uint32_t (*merges)[3], size_t merge_count) {
    static uint32_t ids[LETTERS];
    const size_t left = merge_plainly(expected, LETTERS, merges, merge_count);
    mgv_tokenizer *tokenizer;
    uint64_t count;
    mgv_error error;
    if (open_said(&tokenizer, said, NULL, &error) != MGV_OK) fail_msg("%s", error.message);
    if (mgv_tokenize(tokenizer, text, LETTERS, 0, ids, LETTERS, &count, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_int_equal(count, left);
    assert_memory_equal(ids, expected, left * sizeof *ids);
    mgv_tokenizer_close(tokenizer);
}
static void long_pieces_are_merged_by_windows(void **state) {
    static const uint32_t merges[][3] = {{0, 1, 2}, {2, 2, 3}, {3, 3, 4}, {4, 0, 5}}; /* ab, abab, abababab, ababababa */
    static const char *const said[] = {
        "tokenizer.json", BPE("{\"a\":0,\"b\":1,\"ab\":2,\"abab\":3,\"abababab\":4,\"ababababa\":5}",
                              "[\"a b\",\"ab ab\",\"abab abab\",\"abababab a\"]", ""), NULL};
    static char text[LETTERS];
    static uint32_t expected[LETTERS];
    uint32_t seed = 3, kind;
    size_t i;
    (void)state;
    for (kind = 0; kind < 2; kind++) { /* letters at random; ab, ab, ab */
        for (i = 0; i < LETTERS; i++) {
            seed = seed * 1664525u + 1013904223u;
            expected[i] = kind ? i & 1 : seed >> 31;
            text[i] = expected[i] ? 'b' : 'a';
        }
        check_long(said, text, expected, merges, COUNT_OF(merges));
    }
}
/* a, aa, aaaa, and so on: the last is as long as two windows. */
static void symbols_as_long_as_windows_are_merged_whole(void **state) {
    static char vocabulary[2 << DOUBLINGS << 1], list[2 << DOUBLINGS << 1], json[8 << DOUBLINGS << 1], text[LETTERS];
    static uint32_t expected[LETTERS], merges[DOUBLINGS][3];
    const char *said[3] = {"tokenizer.json", NULL, NULL};
    char *v = vocabulary, *l = list;
    uint32_t k;
    (void)state;
    memset(text, 'a', sizeof text);
    for (k = 0; k <= DOUBLINGS; k++) {
        const int length = 1 << k, half = length / 2;
        v += sprintf(v, "%s\"%.*s\":%u", k ? "," : "", length, text, k);
        if (k == 0) continue;
        l += sprintf(l, "%s\"%.*s %.*s\"", k > 1 ? "," : "", half, text, half, text);
        merges[k - 1][0] = merges[k - 1][1] = k - 1;
        merges[k - 1][2] = k;
    }
    sprintf(json, "{\"model\":{\"type\":\"BPE\",\"vocab\":{%s},\"merges\":[%s]}}", vocabulary, list);
    said[1] = json;
    check_long(said, text, expected, (const uint32_t(*)[3])merges, DOUBLINGS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_do_what_they_do_in_tokenizers), cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(other_files_are_refused_so),          cmocka_unit_test(other_files_without_memory),
        cmocka_unit_test(tokens_are_told_by_id),               cmocka_unit_test(what_has_no_token_is_an_error),
        cmocka_unit_test(long_pieces_are_merged_by_windows),   cmocka_unit_test(symbols_as_long_as_windows_are_merged_whole),
    };
    return cmocka_run_group_tests_name("tokenizer files", tests, NULL, NULL);
}
