/* Tokenizers that nobody publishes and that the format allows: ids and texts are those of huggingface/tokenizers where it takes the file,
    and
   what is wrong is refused with its sentence. Memory that fails while strings are long or texts grow is an error, and nothing leaks. */
#define MEGAVIT_TEXT
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "support.h"
#include "tokenizer.h"

enum { MOST = 64, LONG = 3000 };

static mgv_tokenizer *open_json(const char *json) {
    const char *said[3] = {"tokenizer.json", NULL, NULL};
    mgv_tokenizer *tokenizer;
    mgv_error error;
    said[1] = json;
    if (open_said(&tokenizer, said, NULL, &error) != MGV_OK) fail_msg("%s: %s", json, error.message);
    return tokenizer;
}

#define MODEL(vocabulary, merges, flags, more) \
    "{\"model\":{\"type\":\"BPE\",\"vocab\":" vocabulary ",\"merges\":" merges "," flags "}" more "}"
#define UNIGRAM(vocabulary, more) "{\"model\":{\"type\":\"Unigram\",\"vocab\":" vocabulary more "}}"
#define NORMAL(vocabulary, what) BPE(vocabulary, "[]", ",\"normalizer\":{\"type\":" what "}")
#define CUT(vocabulary, what) BPE(vocabulary, "[]", ",\"pre_tokenizer\":{\"type\":" what "}")
#define SETS "{\"a\":0,\"b\":1,\"{\":2,\"-\":3,\"&\":4,\"_\":5,\" \":6,\"x\":7}"
#define REPLACE(regex) NORMAL(SETS, "\"Replace\",\"pattern\":{\"Regex\":\"" regex "\"},\"content\":\"_\"")
#define SPACED "{\"\xE2\x96\x81\":0,\"a\":1,\"b\":2,\"-\":3}"
#define FIRST(normalizer) \
    BPE(SPACED, "[]", ",\"normalizer\":{\"type\":" normalizer "},\"pre_tokenizer\":{\"type\":\"Metaspace\"," \
                      "\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":\"first\"}")
#define STRIPS FIRST("\"Strip\",\"strip_left\":true,\"strip_right\":true")
#define PUTS(content, pattern) FIRST("\"Replace\",\"pattern\":{" pattern "},\"content\":\"" content "\"")
#define TAKES_OFF(pattern) PUTS("", pattern)
#define MERGED "{\"a\":0,\"b\":1,\"ab\":2}"
#define FALLS "{\"a\":0,\"<0xC3>\":1,\"<0xA9>\":2,\"<unk>\":3}"

#define CLIPS "<\\\\|startoftext\\\\|>|<\\\\|endoftext\\\\|>|'s|'t|'re|'ve|'m|'ll|'d|[\\\\p{L}]+|[\\\\p{N}]|[^\\\\s\\\\p{L}\\\\p{N}]+"
#define QWENS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|" \
              "\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define SPLIT(behavior, pattern) "\"Split\",\"behavior\":" behavior ",\"pattern\":{\"Regex\":\"" pattern "\"}"

/* ---- texts to ids ---- */

static void texts_become_these_ids(void **state) {
    static const struct { const char *json, *text; uint32_t count, ids[10]; } cases[] = {
        {REPLACE("\\\\{"), "a{b", 3, {0, 5, 1}},
        {REPLACE("[a&]"), "a&b", 3, {5, 5, 1}},
        {REPLACE("[a-]"), "a-b", 3, {5, 5, 1}},
        {REPLACE("a{2}"), "aaab", 3, {5, 0, 1}},
        {REPLACE("a{2,}"), "aaab", 2, {5, 1}},
        {REPLACE("[\\\\s\\\\x2d]"), "a -b", 4, {0, 5, 5, 1}},
        {REPLACE("[^a]"), "ab", 2, {0, 5}},
        {NORMAL("{\"a\":0,\"_\":1}", "\"Prepend\",\"prepend\":\"_\""), "a", 2, {1, 0}},
        {NORMAL("{\"a\":0,\"_\":1}", "\"Prepend\",\"prepend\":\"_\""), "", 0, {0}},
        {CUT(SPACED, "\"Metaspace\",\"replacement\":\"\xE2\x96\x81\""), "ab a", 5, {0, 1, 2, 0, 1}},
        {CUT(SPACED, "\"Metaspace\",\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":\"never\",\"add_prefix_space\":false"), "ab a", 4,
         {1, 2, 0, 1}},
        {CUT(SPACED, "\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"String\":\"-\"},\"behavior\":\"Isolated\"},"
                     "{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":\"first\"}]"), "a-b a", 6,
         {0, 1, 3, 2, 0, 1}},
        /* the first is what nothing was taken off in front of */
        {STRIPS, "a b ", 4, {0, 1, 0, 2}}, {STRIPS, " a b", 3, {1, 0, 2}},
        {TAKES_OFF("\"String\":\"-\""), "a-b", 3, {0, 1, 2}}, {TAKES_OFF("\"String\":\"-\""), "-ab", 2, {1, 2}},
        {TAKES_OFF("\"Regex\":\"\\\\s+\""), "a b", 3, {0, 1, 2}}, {TAKES_OFF("\"Regex\":\"\\\\s+\""), " ab", 2, {1, 2}},
        {PUTS("b", "\"String\":\"-\""), "-a", 3, {0, 2, 1}}, {PUTS("b", "\"String\":\"--\""), "--a", 2, {2, 1}},
        {PUTS("b", "\"Regex\":\"\\\\s+\""), " a", 3, {0, 2, 1}}, {PUTS("b", "\"Regex\":\"\\\\s+\""), "  a", 2, {2, 1}},
        {CUT("{\" \":0,\"a\":1}", SPLIT("\"Removed\",\"invert\":false", CLIPS)), "a a", 1, {0}},
        {CUT("{\" \":0,\"a\":1}", SPLIT("\"Removed\",\"invert\":true", CLIPS)), "a a", 2, {1, 1}},
        {BPE("{\"'\":0,\"s\":1,\"'s\":2}", "[\"' s\"]", ",\"pre_tokenizer\":{\"type\":" SPLIT("\"Isolated\"", QWENS) "}"), "'s", 1, {2}},
        {BPE("{\"'\":0,\"\xC5\xBF\":1,\"x\":2,\"\xC5\xBFx\":3,\"'\xC5\xBF\":4}", "[\"\xC5\xBF x\",\"' \xC5\xBF\"]",
             ",\"pre_tokenizer\":{\"type\":" SPLIT("\"Isolated\"", QWENS) "}"), "'\xC5\xBFx", 2, {4, 2}}, /* the long s is an s */
        {NORMAL("{\"a\":0,\"b\":1,\"c\":2}", "\"Replace\",\"pattern\":{\"String\":\"ab\"},\"content\":\"c\""), "acab", 3, {0, 2, 2}},
        {NORMAL("{\"a\":0,\"_\":1}", "\"Sequence\",\"normalizers\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},"
                "\"content\":\"\"},{\"type\":\"Prepend\",\"prepend\":\"_\"}]"), "a", 0, {0}},
        /* NFC of Hangul: a syllable of two, of three; what is neither vowel nor final consonant stays. */
        {NORMAL("{\"\xEA\xB0\x81\":0}", "\"NFC\""), "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8", 1, {0}},
        {NORMAL("{\"\xEA\xB0\x81\":0}", "\"NFC\""), "\xEA\xB0\x80\xE1\x86\xA8", 1, {0}},
        {NORMAL("{\"\xE1\x84\x80\":0,\"\xC3\xA1\":1}", "\"NFC\""), "\xE1\x84\x80" "a\xCC\x81", 2, {0, 1}},
        {NORMAL("{\"\xEA\xB0\x80\":0,\"\xE1\x86\xA7\":1}", "\"NFC\""), "\xEA\xB0\x80\xE1\x86\xA7", 2, {0, 1}},
        {NORMAL("{\"\xEA\xB0\x81\":0,\"\xE1\x86\xA8\":1}", "\"NFC\""), "\xEA\xB0\x81\xE1\x86\xA8", 2, {0, 1}},
        {NORMAL("{\"\xEA\xB0\x80\":0,\"\xE1\x85\xA1\":1}", "\"NFC\""), "\xE1\x84\x80\xE1\x85\xA1\xE1\x85\xA1", 2, {0, 1}},
        {NORMAL("{\"\xEA\xB0\x80\":0,\"\xCC\x81\":1}", "\"NFC\""), "\xEA\xB0\x80\xCC\x81", 2, {0, 1}},
        /* A sigma is final behind a letter and before anything that is none. */
        {NORMAL("{\"a\":0,\"\xCF\x82\":1,\"\xCF\x83\":2,\"1\":3}", "\"Lowercase\",\"final_sigma\":true"), "A\xCE\xA3" "1", 3, {0, 1, 3}},
        {NORMAL("{\"a\":0,\"\xCF\x82\":1,\"\xCF\x83\":2,\"1\":3}", "\"Lowercase\",\"final_sigma\":true"), "1\xCE\xA3", 2, {3, 2}},
        {NORMAL("{\"a\":0,\"\xCF\x82\":1,\"\xCF\x83\":2,\"'\":3}", "\"Lowercase\",\"final_sigma\":true"), "a\xCE\xA3'a", 4, {0, 2, 3, 0}},
        {NORMAL("{\"a\":0,\"\xCF\x82\":1,\"\xCF\x83\":2,\"'\":3}", "\"Lowercase\",\"final_sigma\":true"), "a\xCE\xA3'", 3, {0, 1, 3}},
        /* Models: without a type, with flags that say nothing, vocabularies out of order, merges that are there twice. */
        {"{\"model\":{\"vocab\":" MERGED ",\"merges\":[\"a b\"]}}", "ab", 1, {2}},
        {"  \n{\"model\":{\"vocab\":" MERGED ",\"merges\":[\"a b\"]}}", "aab", 2, {0, 2}},
        {MODEL(MERGED, "[\"a b\"]", "\"dropout\":0.0,\"continuing_subword_prefix\":\"\",\"unk_token\":null", ""), "ab", 1, {2}},
        {MODEL(MERGED, "[\"a b\"]", "\"fuse_unk\":null,\"byte_fallback\":null", ""), "ba", 2, {1, 0}},
        {BPE("{\"ab\":2,\"b\":1,\"a\":0}", "[\"a b\",\"a b\"]", ",\"added_tokens\":null"), "abab", 2, {2, 2}},
        {UNIGRAM("[[\"<unk>\",100.0],[\"xy\",100.0]]", ",\"unk_id\":0"), "xy", 1, {1}}, /* unknown ones score higher, and are a token */
        {UNIGRAM("[[\"a\",-1.0],[\"a\",-2.0],[\"b\",-1.0]]", ",\"unk_id\":null"), "ab", 2, {1, 2}},
        {UNIGRAM("[[\"<unk>\",0.0],[\"a\",-2.0]]", ",\"unk_id\":0"), "aqqa", 3, {1, 0, 1}},
        /* the last bits of the scores decide */
        {UNIGRAM("[[\"<unk>\",0.0],[\"a\",-4.603601967002491],[\"aa\",-1.4528238586125775]]", ",\"unk_id\":0"), "aaaaa", 3, {2, 2, 1}},
        /* Bytes where there are all, the unknown token where one is missing. */
        {MODEL("{\"a\":0,\"<0xC3>\":1,\"<unk>\":2}", "[]", "\"byte_fallback\":true,\"unk_token\":\"<unk>\"", ""), "a\xC3\xA9" "a", 3,
         {0, 2, 0}},
        {MODEL(FALLS, "[]", "\"byte_fallback\":true,\"unk_token\":\"<unk>\"", ""), "a\xC3\xA9" "a\xD0\x96\xC3\xA9\xD0\x96\xD0\x96" "a", 10,
         {0, 1, 2, 0, 1, 2, 3, 3, 3, 0}},
        {MODEL(FALLS, "[]", "\"byte_fallback\":true,\"unk_token\":\"<unk>\",\"fuse_unk\":true", ""),
         "a\xC3\xA9" "a\xD0\x96\xC3\xA9\xD0\x96\xD0\x96" "a", 8, {0, 1, 2, 0, 1, 2, 3, 0}},
        {MODEL("{\"a\":0,\"\xD0\x96_\":1}", "[]", "\"end_of_word_suffix\":\"_\"", ""), "a\xD0\x96", 2, {0, 1}},
        /* An added token that normalizes to nothing is not found, and one of no letters is none. */
        {BPE("{\"a\":0}", "[]", ",\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"x\"},\"content\":\"\"},"
             "\"added_tokens\":[{\"id\":1,\"content\":\"x\"}]"), "axa", 2, {0, 0}},
        {BPE("{\"a\":0}", "[]", ",\"added_tokens\":[{\"id\":0,\"content\":\"\"}]"), "aa", 2, {0, 0}},
        /* Maps of characters: none, one of no bytes. */
        {NORMAL("{\"a\":0}", "\"Precompiled\",\"precompiled_charsmap\":null"), "a", 1, {0}},
        {NORMAL("{\"a\":0}", "\"Precompiled\",\"precompiled_charsmap\":\"====\""), "a", 1, {0}},
    };
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        mgv_tokenizer *tokenizer = open_json(cases[i].json);
        uint32_t ids[MOST];
        uint64_t count;
        mgv_error error;
        if (mgv_tokenize(tokenizer, cases[i].text, strlen(cases[i].text), 0, ids, MOST, &count, &error) != MGV_OK)
            fail_msg("case %zu, %s: %s", i, cases[i].json, error.message);
        if (count != cases[i].count || memcmp(ids, cases[i].ids, (size_t)count * sizeof *ids) != 0)
            fail_msg("case %zu: %s: other ids: %u of them, the first %u", i, cases[i].json, (unsigned)count, (unsigned)ids[0]);
        mgv_tokenizer_close(tokenizer);
    }
}

/* ---- ids to texts ---- */

#define DECODER(vocabulary, what) BPE(vocabulary, "[]", ",\"decoder\":{\"type\":" what "}")
#define A_TO_B "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"b\"}"
#define FUSE "{\"type\":\"Fuse\"}"
#define BYTES "{\"type\":\"ByteFallback\"}"
#define STRIP(start, stop) "{\"type\":\"Strip\",\"content\":\"\xE2\x96\x81\",\"start\":" start ",\"stop\":" stop "}"
#define DECODERS(list) DECODER("{\"a\":0}", "\"Sequence\",\"decoders\":[" list "]")
#define NOT_BYTES "{\"<0x41]\":0,\"<0x/1>\":1,\"<0x:1>\":2,\"<0xG1>\":3,\"<0xg1>\":4,\"<0xc3>\":5,\"<0xa9>\":6,\"<0x4g>\":7}"
#define WORDS "{\"\xC4\xA0</w>\":0,\"a</w>\":1,\"\xC4\x9C</w>\":2,\"a\":3}"
#define SUFFIXED(decoder) MODEL(WORDS, "[]", "\"end_of_word_suffix\":\"</w>\"", decoder)
#define BYTE_LEVEL ",\"decoder\":{\"type\":\"ByteLevel\"}"
#define BROKEN "\xEF\xBF\xBD"

static void ids_become_these_texts(void **state) {
    static const struct { const char *json; uint32_t count, ids[8]; const char *text; } cases[] = {
        {DECODER("{\"_a_\":0,\"b\":1,\"__c\":2}", "\"Strip\",\"content\":\"_\",\"start\":1,\"stop\":1"), 3, {0, 1, 2}, "ab_c"},
        {DECODER("{\"_\":0,\"b\":1,\"__c\":2}", "\"Strip\",\"content\":\"_\",\"start\":2,\"stop\":0"), 3, {0, 1, 2}, "bc"},
        {DECODER("{\"_\":0,\"b\":1,\"c__\":2}", "\"Strip\",\"content\":\"_\",\"start\":0,\"stop\":2"), 3, {0, 1, 2}, "bc"},
        {DECODER(NOT_BYTES, "\"ByteFallback\""), 8, {0, 1, 2, 3, 4, 7, 5, 6}, "<0x41]<0x/1><0x:1><0xG1><0xg1><0x4g>\xC3\xA9"},
        {DECODER("{\"<0xf0>\":0,\"<0x9F>\":1,\"<0x98>\":2,\"<0x8f>\":3}", "\"ByteFallback\""), 4, {0, 1, 2, 3}, "\xF0\x9F\x98\x8F"},
        {DECODER("{\"<0x61>\":0,\"\xE2\x96\x81" "b\":1}", "\"Sequence\",\"decoders\":[" BYTES ",{\"type\":\"Metaspace\","
                 "\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":\"always\"}]"), 3, {1, 0, 1}, "ba b"},
        {DECODER("{\"<0xC3>\":0,\"a\":1}", "\"ByteFallback\""), 4, {0, 0, 1, 0}, BROKEN BROKEN "a" BROKEN},
        {DECODER("{\"\xE2\x96\x81" "a\":0,\"\xE2\x96\x81" "b\":1}",
         "\"Metaspace\",\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":\"first\""), 2, {0, 1}, "a b"},
        {DECODER("{\"\xE2\x96\x81" "a\":0,\"\xE2\x96\x81" "b\":1}",
         "\"Metaspace\",\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":\"never\""), 2, {0, 1}, " a b"},
        {DECODER("{\"a\":0,\"\xE2\x96\x81" "b\":1}", "\"Sequence\",\"decoders\":[" FUSE "," STRIP("1", "0") "]"), 2, {0, 1},
         "a\xE2\x96\x81" "b"},
        {DECODER("{\"a\":0,\"\xE2\x96\x81" "b\":1}", "\"Sequence\",\"decoders\":[" FUSE "," STRIP("1", "0") "]"), 2, {1, 0}, "ba"},
        /* Characters that stand for no byte leave a token as it is: a soft hyphen, which no byte is written as, and others. */
        {DECODER("{\"a\":0,\"\xE6\x97\xA5\":1,\"\xC4\xA0\":2,\"\xC3\x83\xC2\xA9\":3}", "\"ByteLevel\""), 4, {0, 1, 2, 3},
         "a\xE6\x97\xA5 \xC3\xA9"},
        {DECODER("{\"\xC2\xAD\":0,\"b\":1}", "\"ByteLevel\""), 2, {0, 1}, "\xC2\xAD" "b"},
        /* Where words end with a suffix, white space at both ends goes, and a separator of ASCII with it. */
        {SUFFIXED(BYTE_LEVEL), 4, {0, 2, 1, 0}, "a"},
        {SUFFIXED(BYTE_LEVEL), 2, {0, 2}, ""},
        {SUFFIXED(BYTE_LEVEL), 3, {1, 3, 1}, "a aa"},
        {SUFFIXED(""), 2, {3, 3}, "a a"},
    };
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        mgv_tokenizer *tokenizer = open_json(cases[i].json);
        char text[MOST];
        uint64_t bytes;
        mgv_error error;
        if (mgv_detokenize(tokenizer, NULL, cases[i].ids, cases[i].count, 0, text, MOST, &bytes, &error) != MGV_OK)
            fail_msg("case %zu: %s", i, error.message);
        if (bytes != strlen(cases[i].text) || memcmp(text, cases[i].text, (size_t)bytes) != 0)
            fail_msg("case %zu: \"%.*s\", not \"%s\"", i, (int)bytes, text, cases[i].text);
        mgv_tokenizer_close(tokenizer);
    }
}
/* What a stream holds when it ends became no character; where tokens are bytes, each of them is one that is broken. */
static void streams_end_with_what_they_hold(void **state) {
    mgv_tokenizer *tokenizer = open_json(DECODER("{\"<0xE2>\":0,\"<0x82>\":1,\"a\":2}", "\"ByteFallback\""));
    static const uint32_t ids[] = {0, 1, 2, 7};
    mgv_detokenize_state at;
    char text[MOST];
    uint64_t bytes;
    mgv_error error;
    (void)state;
    memset(&at, 0, sizeof at);
    assert_int_equal(mgv_detokenize(tokenizer, &at, ids, 2, MGV_DETOKENIZE_MORE, text, MOST, &bytes, &error), MGV_OK);
    assert_int_equal(bytes, 0);
    assert_int_equal(at.held_count, 2);
    at.tokens = UINT32_MAX; /* as many as can be counted: it stays so */
    assert_int_equal(mgv_detokenize(tokenizer, &at, ids + 2, 1, MGV_DETOKENIZE_MORE, text, MOST, &bytes, &error), MGV_OK);
    assert_int_equal(at.tokens, UINT32_MAX);
    assert_int_equal(bytes, 7);
    assert_memory_equal(text, BROKEN BROKEN "a", 7);
    at.held_count = 4;
    assert_int_equal(mgv_detokenize(tokenizer, &at, ids, 1, 0, text, MOST, &bytes, &error), MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "was not zero at first"));
    assert_int_equal(mgv_detokenize(tokenizer, NULL, ids, 4, 0, text, MOST, &bytes, &error), MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "id 7, number 3 of those passed"));
    assert_int_equal(mgv_detokenize(tokenizer, NULL, ids + 1, 3, 0, text, MOST, &bytes, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_detokenize(tokenizer, NULL, NULL, 0, 0, NULL, 0, &bytes, &error), MGV_OK);
    assert_int_equal(bytes, 0);
    assert_int_equal(mgv_tokenize(tokenizer, NULL, 0, 0, NULL, 0, &bytes, &error), MGV_OK);
    assert_int_equal(bytes, 0);
    mgv_tokenizer_close(tokenizer);
}

/* ---- what is refused ---- */

#define POST(what) ONE(",\"post_processor\":" what)
#define SEQUENCE(what) "{\"type\":\"Sequence\",\"normalizers\":[" what "]}"
#define PROCESSORS(what) "{\"type\":\"Sequence\",\"processors\":[" what "]}"
#define NFC "{\"type\":\"NFC\"}"
#define FOUR(x) x "," x "," x "," x
#define CHARSMAP(base64) NORMAL("{\"a\":0}", "\"Precompiled\",\"precompiled_charsmap\":\"" base64 "\"")

static void what_is_wrong_is_named(void **state) {
    static const struct { const char *json; mgv_result code; const char *says; } bad[] = {
        {"{\"model\":{\"type\":\"BPE\",\"merges\":[]}}", MGV_ERROR_FORMAT, "a model without its vocabulary"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":[],\"merges\":[]}}", MGV_ERROR_FORMAT, "a model without its vocabulary"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0}}}", MGV_ERROR_FORMAT, "BPE without a list of merges"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":{}}}", MGV_ERROR_FORMAT, "BPE without a list of merges"},
        {BPE("{\"a\":0,\"aa\":1}", "[[]]", ""), MGV_ERROR_FORMAT, "merge 0 is neither"},
        {BPE("{\"a\":0,\"aa\":1}", "[[1,\"a\"]]", ""), MGV_ERROR_FORMAT, "merge 0 is neither"},
        {ONE(",\"normalizer\":" SEQUENCE(SEQUENCE(SEQUENCE(SEQUENCE(SEQUENCE(NFC)))))), MGV_ERROR_FORMAT, "the normalizer has no type"},
        {ONE(",\"normalizer\":" SEQUENCE(FOUR(FOUR(NFC)) "," NFC)), MGV_ERROR_UNSUPPORTED, "too long a normalizer"},
        {POST(PROCESSORS(PROCESSORS(PROCESSORS(PROCESSORS("{\"type\":\"ByteLevel\"}"))))), MGV_ERROR_FORMAT, "without a type"},
        {POST("{\"type\":\"BertProcessing\",\"cls\":[],\"sep\":[\"a\",0]}"), MGV_ERROR_FORMAT, "without cls or sep"},
        {POST("{\"type\":\"TemplateProcessing\",\"single\":[7,\"x\"]}"), MGV_ERROR_FORMAT, "not just one text"},
        {POST("{\"type\":\"TemplateProcessing\",\"single\":[]}"), MGV_ERROR_FORMAT, "not just one text"},
        {CUT("{\"a\":0}", "\"Split\",\"behavior\":\"MergedWithPrevious\",\"pattern\":{\"Regex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
             "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|"
             "\\\\s+(?!\\\\S)|\\\\s+\"}"), MGV_ERROR_UNSUPPORTED, "does not know so"},
        {CUT("{\"a\":0}", "\"Split\",\"behavior\":\"Isolated\",\"pattern\":7"), MGV_ERROR_UNSUPPORTED, "pattern is no string"},
        {CUT("{\"a\":0}", "\"Split\",\"behavior\":\"Isolated\""), MGV_ERROR_UNSUPPORTED, "pattern is no string"},
        {CUT("{\"a\":0}", "\"Split\",\"invert\":true"), MGV_ERROR_UNSUPPORTED, "unknown behavior"},
        {REPLACE("\\\\x"), MGV_ERROR_UNSUPPORTED, "\\x"},
        {REPLACE("\\\\\xC3\xA9"), MGV_ERROR_UNSUPPORTED, "with the pattern"},
        {REPLACE("[\\\\d]"), MGV_ERROR_UNSUPPORTED, "with the pattern"},
        {REPLACE("[a-\\\\s]"), MGV_ERROR_UNSUPPORTED, "with the pattern"},
        {REPLACE("a{:}"), MGV_ERROR_UNSUPPORTED, "with the pattern"},
        {REPLACE("a{22}"), MGV_ERROR_UNSUPPORTED, "with the pattern"},
        {REPLACE("a{2,}b"), MGV_ERROR_UNSUPPORTED, "with the pattern"},
        {ONE(",\"decoder\":{\"type\":\"Replace\",\"pattern\":7,\"content\":\"\"}"), MGV_ERROR_UNSUPPORTED, "pattern is no string"},
        {ONE(",\"decoder\":{\"type\":\"Strip\",\"content\":7,\"start\":0,\"stop\":0}"), MGV_ERROR_UNSUPPORTED, "content is no string"},
        {ONE(",\"decoder\":{\"type\":\"Metaspace\",\"replacement\":7}"), MGV_ERROR_UNSUPPORTED, "replacement is no string"},
        /* decoders that would be run in another order than they stand */
        {DECODERS(BYTES "," A_TO_B), MGV_ERROR_UNSUPPORTED, "steps behind ByteFallback or Fuse that are not run there"},
        {DECODERS(FUSE "," A_TO_B), MGV_ERROR_UNSUPPORTED, "steps behind ByteFallback or Fuse"},
        {DECODERS(FUSE "," STRIP("1", "1")), MGV_ERROR_UNSUPPORTED, "steps behind ByteFallback or Fuse"},
        {DECODERS(FUSE "," STRIP("1", "0") "," FUSE), MGV_ERROR_UNSUPPORTED, "steps behind ByteFallback or Fuse"},
        {CHARSMAP("AA{A"), MGV_ERROR_FORMAT, "no base64"},
        {CHARSMAP("AAAAA"), MGV_ERROR_FORMAT, "no base64"},
        {CHARSMAP("BAAAAAEAAAA="), MGV_ERROR_FORMAT, "says a wrong length"},
        {CHARSMAP("AAA="), MGV_ERROR_FORMAT, "says a wrong length"},
        {BPE("{\"a\":0}", "[]", ",\"added_tokens\":[{\"id\":0,\"content\":\"a\"},{\"id\":0,\"content\":\"a\"}]"), MGV_ERROR_FORMAT,
         "two added tokens have the id 0"},
        {BPE("{\"a\":0,\"b\":1}", "[]", ",\"added_tokens\":[{\"id\":0,\"content\":\"b\"}]"), MGV_ERROR_FORMAT, "has the id 0, and 1 in"},
        {BPE("{\"a\":0}", "[]", ",\"added_tokens\":[{\"id\":1,\"content\":\"b\",\"single_word\":true}]"), MGV_ERROR_UNSUPPORTED,
         "single_word"},
    };
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(bad); i++) {
        const char *said[3] = {"tokenizer.json", NULL, NULL};
        mgv_tokenizer *tokenizer;
        mgv_error error;
        said[1] = bad[i].json;
        if (open_said(&tokenizer, said, NULL, &error) == MGV_OK) fail_msg("case %zu was taken: %s", i,
            bad[i].json);
        assert_null(tokenizer);
        if (error.code != bad[i].code || strstr(error.message, bad[i].says) == NULL) fail_msg("%s: %s", bad[i].json, error.message);
    }
}
static void added_tokens_have_512_bytes_at_most(void **state) {
    static char json[1024];
    const char *said[3] = {"tokenizer.json", json, NULL};
    mgv_tokenizer *tokenizer;
    mgv_error error;
    int bytes;
    (void)state;
    for (bytes = 512; bytes <= 513; bytes++) {
        sprintf(json, BPE("{\"a\":0}", "[]", ",\"added_tokens\":[{\"id\":1,\"content\":\"%0*d\"}]"), bytes, 0);
        assert_int_equal(open_said(&tokenizer, said, NULL, &error), bytes == 512 ? MGV_OK : MGV_ERROR_FORMAT);
        if (bytes == 513) assert_non_null(strstr(error.message, "an added token of more than 512 bytes"));
        mgv_tokenizer_close(tokenizer);
    }
}
static void put_word(unsigned char *at, uint32_t word) {
    int i;
    for (i = 0; i < 4; i++) at[i] = (unsigned char)(word >> 8 * i);
}
/* A double array that leads out of itself, or to strings that are not there: such a map changes nothing. Units are little-endian words. */
static void maps_that_lead_astray_change_nothing(void **state) {
    /* one unit and a string: every character leads out; "a" leads to a leaf whose value, at unit 97 ^ 96,
        lies outside; is beyond the strings;
       is the second byte of a character; is "b". */
    static const struct { uint32_t units, leaf, value; const char *strings; uint32_t string_bytes; int maps; } maps[] = {
        {1, 0, 0, "b", 2, 0}, {128, 1u << 18, 0, "b", 2, 0}, {128, 96u << 10, 9, "b", 2, 0}, {128, 96u << 10, 1, "\xC3\xA9", 3, 0},
        {128, 96u << 10, 0, "b", 2, 1},
    };
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t i, k;
    (void)state;
    for (i = 0; i < COUNT_OF(maps); i++) {
        static unsigned char map[4 + 4 * 128 + 8];
        static char base64[1024], json[2048];
        const size_t bytes = 4 + 4 * maps[i].units + maps[i].string_bytes;
        const uint32_t size = 4 * maps[i].units, leaf = maps[i].leaf | 1u << 8 | 'a';
        mgv_tokenizer *tokenizer;
        uint32_t ids[4];
        uint64_t count;
        char *out = base64;
        memset(map, 0, sizeof map);
        put_word(map, size);
        if (maps[i].units > 97) {
            put_word(map + 4 + 4 * 97, leaf);
            put_word(map + 4 + 4 * (97 ^ 96), maps[i].value);
        }
        memcpy(map + 4 + size, maps[i].strings, maps[i].string_bytes);
        for (k = 0; k < bytes; k += 3) {
            const uint32_t word = (uint32_t)map[k] << 16 | (uint32_t)map[k + 1] << 8 | map[k + 2];
            *out++ = letters[word >> 18];
            *out++ = letters[word >> 12 & 63];
            if (k + 1 < bytes) *out++ = letters[word >> 6 & 63];
            if (k + 2 < bytes) *out++ = letters[word & 63];
        }
        *out = 0;
        sprintf(json, NORMAL("{\"a\":0,\"b\":1}", "\"Precompiled\",\"precompiled_charsmap\":\"%s\""), base64);
        tokenizer = open_json(json);
        assert_int_equal(mgv_tokenize(tokenizer, "ab\0" "a", 4, 0, ids, 4, &count, NULL), MGV_OK);
        if (count < 3 || ids[0] != (uint32_t)maps[i].maps || ids[1] != 1) fail_msg("map %zu: ids %u, %u", i, ids[0], ids[1]);
        assert_int_equal(ids[count - 1], maps[i].maps);
        mgv_tokenizer_close(tokenizer);
    }
}

/* ---- lower case ---- */

static void note(void *user, int32_t level, const char *message) {
    (void)level;
    strncat((char *)user, message, 511 - strlen((char *)user));
}
static void lower_case_is_what_the_caller_wants(void **state) {
#define LETTERS "{\"a\":0,\"A\":1,\"b\":2}"
#define LOWER "{\"type\":\"Lowercase\"}"
    static const struct { const char *json; mgv_lower_case wanted; uint32_t id; } cases[] = { /* of "A" */
        {BPE(LETTERS, "[]", ""), MGV_LOWER_CASE_AUTO, 1},
        {BPE(LETTERS, "[]", ""), MGV_LOWER_CASE_YES, 0},
        {BPE(LETTERS, "[]", ",\"normalizer\":" LOWER), MGV_LOWER_CASE_YES, 0},
        {BPE(LETTERS, "[]", ",\"normalizer\":" LOWER), MGV_LOWER_CASE_NO, 1},
        {BPE(LETTERS, "[]", ",\"normalizer\":" SEQUENCE(A_TO_B "," LOWER)), MGV_LOWER_CASE_AUTO, 0},
        {BPE(LETTERS, "[]", ",\"normalizer\":" SEQUENCE(A_TO_B "," LOWER)), MGV_LOWER_CASE_YES, 2}, /* before all else */
        {BPE(LETTERS, "[]", ",\"normalizer\":" SEQUENCE(LOWER "," A_TO_B)), MGV_LOWER_CASE_YES, 2},
        {BPE(LETTERS, "[]", ",\"normalizer\":" SEQUENCE(LOWER "," A_TO_B)), MGV_LOWER_CASE_NO, 1},
    };
    static const char *const asked[] = {"tokenizer.json", BPE(LETTERS, "[]", ""), "tokenizer_config.json", "{\"do_lower_case\":true}",
        NULL};
    const char *sixteen[3] = {"tokenizer.json", NULL, NULL};
    mgv_tokenizer *tokenizer;
    mgv_logger logger;
    char said[512] = "";
    mgv_error error;
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        const char *files[3] = {"tokenizer.json", NULL, NULL};
        uint32_t id = 9;
        uint64_t count;
        files[1] = cases[i].json;
        assert_int_equal(open_with(&tokenizer, files, cases[i].wanted, NULL, NULL, &error), MGV_OK);
        assert_int_equal(mgv_tokenize(tokenizer, "A", 1, 0, &id, 1, &count, &error), MGV_OK);
        if (id != cases[i].id) fail_msg("case %zu: id %u", i, id);
        mgv_tokenizer_close(tokenizer);
    }
    sixteen[1] = BPE(LETTERS, "[]", ",\"normalizer\":" SEQUENCE(FOUR(FOUR(NFC))));
    assert_int_equal(open_with(&tokenizer, sixteen, MGV_LOWER_CASE_NO, NULL, NULL, &error), MGV_OK);
    mgv_tokenizer_close(tokenizer);
    assert_int_equal(open_with(&tokenizer, sixteen, MGV_LOWER_CASE_YES, NULL, NULL, &error), MGV_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "too long a normalizer to lower case too"));
    memset(&logger, 0, sizeof logger);
    logger.log = note;
    logger.user = said;
    assert_int_equal(open_with(&tokenizer, asked, MGV_LOWER_CASE_AUTO, NULL, &logger, &error), MGV_OK);
    assert_non_null(strstr(said, "do_lower_case is true, which transformers 5.24 does not follow for this tokenizer"));
    mgv_tokenizer_close(tokenizer);
    assert_int_equal(open_with(&tokenizer, asked, MGV_LOWER_CASE_NO + 1, NULL, NULL, &error), MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "3 is no mgv_lower_case"));
    assert_int_equal(open_with(&tokenizer, asked, -1, NULL, NULL, &error), MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "-1 is no mgv_lower_case"));
}

/* ---- files in place of tokenizer.json ---- */

#define QWEN "{\"tokenizer_class\":\"Qwen2Tokenizer\"}"

static void other_files_are_refused_so(void **state) {
    static const struct { const char *said[2 * MOST_FILES + 1]; mgv_result code; const char *says; } bad[] = {
        {{"vocab.json", "{\"a\":0,\"a</w>\":1}", "merges.txt", "#versioN\nx y", "tokenizer_config.json", "{\"pad_token\":\"a\"}", NULL},
         MGV_ERROR_FORMAT, "merge 0 is not two tokens"},
        {{"vocab.json", "{\"a\":0,\"a</w>\":1,\"<|startoftext|>\":2}", "merges.txt", "", "tokenizer_config.json",
          "{\"added_tokens_decoder\":{\"2\":{\"content\":\"<|startoftext|>\"}}}", NULL}, MGV_ERROR_FORMAT, "begin and end are missing"},
        {{"vocab.json", "{\"a\":0,\"a</w>\":1}", "merges.txt", "", "tokenizer_config.json", "{\"added_tokens_decoder\":{\"2\":7}}", NULL},
         MGV_ERROR_FORMAT, "an added token that is no object"},
        {{"tokenizer.tiktoken", "YQ== -1\n", "tokenizer_config.json", QWEN, NULL}, MGV_ERROR_FORMAT, "a space and a rank"},
        {{"tokenizer.tiktoken", "YQ== 4294967295\n", "tokenizer_config.json", QWEN, NULL}, MGV_ERROR_FORMAT, "a space and a rank"},
        {{"tokenizer.tiktoken", "==== 0\n", "tokenizer_config.json", QWEN, NULL}, MGV_ERROR_FORMAT, "a space and a rank"},
        {{"tokenizer.tiktoken", "YQ== 5000\n", "tokenizer_config.json", QWEN, NULL}, MGV_ERROR_FORMAT, "has the id 5000; there are 1025"},
        {{"tokenizer.tiktoken", "YQ== 0\nYg== 0\n", "tokenizer_config.json", QWEN, NULL}, MGV_ERROR_FORMAT, "two tokens have the id 0"},
        {{"tokenizer.tiktoken", "YQ== 0\nYg== 2\n", "tokenizer_config.json", QWEN, NULL}, MGV_ERROR_FORMAT, "no token has the id 1"},
        {{"tokenizer.tiktoken", "YQ== 0\n", NULL}, MGV_ERROR_UNSUPPORTED, "1 tokens: neither Qwen's nor"},
        {{"tokenizer.json", ONE(""), "tokenizer_config.json", "{\"pad_token\":{\"content\":\"b\"},\"do_lower_case\":\"x\"}", NULL},
         MGV_ERROR_FORMAT,
         "do_lower_case is neither"},
    };
    mgv_tokenizer *tokenizer;
    mgv_error error;
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(bad); i++) {
        if (open_said(&tokenizer, bad[i].said, NULL, &error) == MGV_OK) fail_msg("case %zu was taken", i);
        if (error.code != bad[i].code || strstr(error.message, bad[i].says) == NULL) fail_msg("case %zu: %s", i, error.message);
    }
    assert_int_equal(mgv_tokenizer_open(&tokenizer, NULL, MGV_LOWER_CASE_AUTO, &error), MGV_ERROR_ARGUMENT);
}
/* CLIP's two files without a word whose they are; added_tokens_decoder that is none; a class of too long a name, which is none. */
static void files_of_clip_are_known_by_their_tokens(void **state) {
    static const char *const said[][2 * MOST_FILES + 1] = {
        {"vocab.json", "{\"a\":0,\"a</w>\":1,\"aa</w>\":2}", "merges.txt", "#version: 0.2\na a</w>\n", "tokenizer_config.json",
         "{\"added_tokens_decoder\":null,\"pad_token\":\"<|endoftext|>\"}", NULL},
        {"vocab.json", "{\"a\":0,\"a</w>\":1,\"aa</w>\":2}", "merges.txt", "a a</w>", "tokenizer_config.json",
         "{\"added_tokens_decoder\":[],\"pad_token\":{\"content\":\"<|endoftext|>\"}}", NULL},
        {"vocab.json", "{\"a\":0,\"a</w>\":1,\"aa</w>\":2}", "merges.txt", "a a</w>", "config.json",
         "{\"model_type\":\"0123456789012345678901234567890123456789012345678901234567890123456789\"}", NULL},
    };
    static const uint32_t expected[] = {3, 2, 1, 4};
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(said); i++) {
        mgv_tokenizer *tokenizer;
        mgv_tokenizer_info info;
        uint32_t ids[8];
        uint64_t count;
        mgv_error error;
        if (open_said(&tokenizer, said[i], NULL, &error) != MGV_OK) fail_msg("case %zu: %s", i, error.message);
        assert_int_equal(mgv_tokenize(tokenizer, "Aa a", 4, 0, ids, COUNT_OF(ids), &count, &error), MGV_OK);
        assert_int_equal(count, 4);
        assert_memory_equal(ids, expected, sizeof expected);
        assert_int_equal(mgv_tokenizer_get_info(tokenizer, &info), MGV_OK);
        assert_int_equal(info.pad_id, i < 2 ? 4 : UINT32_MAX);
        mgv_tokenizer_close(tokenizer);
    }
}
/* Qwen's special tokens are not in its old files; how many tokens there are says which they are. */
static void vocabularies_of_qwens_sizes_get_its_special_tokens(void **state) {
    static const struct { uint32_t tokens, specials; const char *last; int ranks; } models[] = {
        {151643, 26, "</think>", 0}, {151643, 26, "</think>", 1}, {248044, 33, "<|audio_pad|>", 1},
    };
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = (char *)malloc(16 * 248045);
    size_t i;
    (void)state;
    assert_non_null(text);
    for (i = 0; i < COUNT_OF(models); i++) {
        const char *ranks[] = {"qwen.tiktoken", text, NULL};
        const char *vocabulary[] = {"vocab.json", text, "merges.txt", "#version: 0.2\n", "tokenizer_config.json", QWEN, NULL};
        const char *name;
        char *out = text;
        mgv_tokenizer *tokenizer;
        mgv_tokenizer_info info;
        mgv_error error;
        uint32_t id, ids[4];
        uint64_t count;
        size_t bytes;
        if (!models[i].ranks) *out++ = '{';
        for (id = 0; id < models[i].tokens; id++) {
            if (models[i].ranks) out += sprintf(out, "A%c%c%c %u\n", letters[id >> 12], letters[id >> 6 & 63], letters[id & 63], id);
            else out += sprintf(out, "%s\"%x\":%u", id ? "," : "", id, id);
        }
        if (!models[i].ranks) *out++ = '}';
        *out = 0;
        if (open_said(&tokenizer, models[i].ranks ? ranks : vocabulary, NULL, &error) != MGV_OK)
            fail_msg("model %zu: %s", i, error.message);
        assert_int_equal(mgv_tokenizer_get_info(tokenizer, &info), MGV_OK);
        assert_int_equal(info.vocabulary, models[i].tokens + models[i].specials);
        assert_int_equal(mgv_tokenizer_get_token(tokenizer, models[i].tokens, &name, &bytes), MGV_OK);
        assert_int_equal(bytes, 13);
        assert_memory_equal(name, "<|endoftext|>", bytes);
        assert_int_equal(mgv_tokenizer_get_token(tokenizer, info.vocabulary - 1, &name, &bytes), MGV_OK);
        assert_int_equal(bytes, strlen(models[i].last));
        assert_memory_equal(name, models[i].last, bytes);
        assert_int_equal(mgv_tokenize(tokenizer, "<|im_end|></think>", 18, 0, ids, COUNT_OF(ids), &count, &error), MGV_OK);
        assert_int_equal(count, 2);
        assert_int_equal(ids[0], models[i].tokens + 2);
        assert_int_equal(ids[1], models[i].tokens + 25);
        mgv_tokenizer_close(tokenizer);
    }
    free(text);
}
/* What huggingface/tokenizers 0.23 has of these scores, when it has read them. */
static void scores_are_read_as_serde_json_reads_them(void **state) {
    static const struct { const char *text; double score; } cases[] = {
        {"-15.275492379532281", -15.27549237953228}, {"-9.908701741838819", -9.90870174183882}, /* not the nearest */
        {"-1.5e-3", -0.0015}, {"2.5E+1", 25}, {"7E2", 700}, {"-0.0", 0}, {"0.1000000000000000000000000001", 0.1}, {"3e-320", 3e-320},
        {"-12345678901234567890123.75", -1.2345678901234568e22}, {"-123456789012345678901234567890e-10", -1.2345678901234567e19}};
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        const double score = mgv__serde_double(cases[i].text);
        if (score != cases[i].score) fail_msg("%s: %.17g", cases[i].text, score);
    }
}
/* A class says how text is cut and normalized, and of a Unigram no more than that. */
static void classes_take_any_model(void **state) {
    static const char *const said[] = {"tokenizer.json", UNIGRAM("[[\"a\",-1],[\"\xE2\x96\x81\",-1]]", ""), "tokenizer_config.json",
                                       "{\"tokenizer_class\":\"GemmaTokenizerFast\"}", NULL};
    static const uint32_t expected[] = {0, 1, 0};
    mgv_tokenizer *tokenizer;
    uint32_t ids[4];
    uint64_t count;
    mgv_error error;
    (void)state;
    assert_int_equal(open_said(&tokenizer, said, NULL, &error), MGV_OK);
    assert_int_equal(mgv_tokenize(tokenizer, "a a", 3, 0, ids, COUNT_OF(ids), &count, &error), MGV_OK);
    assert_int_equal(count, 3);
    assert_memory_equal(ids, expected, sizeof expected);
    mgv_tokenizer_close(tokenizer);
}
/* UAX #29: where the first cluster of a text ends. */
static void clusters_end_where_unicode_says(void **state) {
    static const struct { const char *text; size_t bytes; } cases[] = {
        {"\xE1\x84\x80\xE1\x84\x80\xEA\xB0\x80" "a", 9}, /* Hangul: two leading consonants and a syllable */
        {"\xE1\x84\x80" "a", 3}, {"\xEA\xB0\x80\xE1\x86\xA8" "a", 6}, {"\xEA\xB0\x81\xE1\x85\xA1", 3},
        {"\xD8\x80" "a", 3}, /* ARABIC NUMBER SIGN goes before what it counts */
        {"\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA9", 11}, {"\xF0\x9F\x91\xA9\xE2\x80\x8D" "a", 7}, /* a pictograph and a joiner */
        {"\xF0\x9F\x87\xA9\xF0\x9F\x87\xAA\xF0\x9F\x87\xA9", 8}, {"\xF0\x9F\x87\xA9" "a", 4}, /* regional indicators */
        {"\r\n", 2}, {"\r\xCC\x81", 1}, {"a\xCC\x81", 3},
    };
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        mgv__unicode_run run = {0, 0, 0};
        const char *end = mgv__cluster_end(cases[i].text, cases[i].text + strlen(cases[i].text), &run);
        if ((size_t)(end - cases[i].text) != cases[i].bytes) fail_msg("case %zu: %d bytes", i, (int)(end - cases[i].text));
    }
}
/* Ranks of bytes: whatever pair makes a token merges; halves of characters, and tokens that nothing makes. */
static void ranks_are_merges(void **state) {
    static const char *const said[] = { /* a, b, ab, C3, A9, é, xyz, abb */
        "tokenizer.tiktoken", "YQ== 0\nYg== 1\nYWI= 2\nww== 3\nqQ== 4\nw6k= 5\neHl6 6\nYWJi 7\n", "tokenizer_config.json", QWEN, NULL};
    static const uint32_t expected[] = {5, 7, 0};
    mgv_tokenizer *tokenizer;
    uint32_t ids[8];
    uint64_t count;
    mgv_error error;
    (void)state;
    assert_int_equal(open_said(&tokenizer, said, NULL, &error), MGV_OK);
    assert_int_equal(mgv_tokenize(tokenizer, "\xC3\xA9" "abba", 6, 0, ids, COUNT_OF(ids), &count, &error), MGV_OK);
    assert_int_equal(count, 3);
    assert_memory_equal(ids, expected, sizeof expected);
    mgv_tokenizer_close(tokenizer);
}
static void names_of_ranks_have_500_bytes_at_most(void **state) {
    static char text[1024];
    static const char *const said[] = {"tokenizer.tiktoken", text, "tokenizer_config.json", QWEN, NULL};
    mgv_tokenizer *tokenizer;
    mgv_error error;
    (void)state;
    memset(text, 'A', 684);
    strcpy(text + 684, " 0\n");
    assert_int_equal(open_said(&tokenizer, said, NULL, &error), MGV_ERROR_FORMAT);
    assert_non_null(strstr(error.message, "a token of more than 500 bytes"));
}

/* ---- memory that fails ---- */

/* %s becomes 3,000 letters x, so that each string needs memory of its own: what is done then with a text of them. */
static void long_strings_without_memory(void **state) {
    static const struct { const char *name, *text, *config; mgv_result code; } files[] = {
        {"tokenizer.json", BPE("{\"x\":0,\"%s\":1}", "[]", ""), NULL, MGV_OK},
        {"tokenizer.json", UNIGRAM("[[\"x\",-1],[\"%s\",-2]]", ""), NULL, MGV_OK},
        {"tokenizer.json", BPE("{\"x\":0}", "[\"%s\"]", ""), NULL, MGV_ERROR_FORMAT},
        {"tokenizer.json", BPE("{\"x\":0}", "[[\"%s\",\"x\"]]", ""), NULL, MGV_ERROR_FORMAT},
        {"tokenizer.json", MODEL("{\"x\":0}", "[]", "\"unk_token\":\"%s\"", ""), NULL, MGV_ERROR_FORMAT},
        {"tokenizer.json", MODEL("{\"x\":0}", "[]", "\"end_of_word_suffix\":\"%s\"", ""), NULL, MGV_ERROR_UNSUPPORTED},
        {"tokenizer.json", NORMAL("{\"x\":0}", "\"%s\""), NULL, MGV_ERROR_UNSUPPORTED},
        {"tokenizer.json", NORMAL("{\"x\":0}", "\"Prepend\",\"prepend\":\"%s\""), NULL, MGV_ERROR_UNSUPPORTED},
        {"tokenizer.json", NORMAL("{\"x\":0}", "\"Replace\",\"pattern\":{\"Regex\":\"%s\"},\"content\":\"\""), NULL, MGV_ERROR_UNSUPPORTED},
        {"tokenizer.json", NORMAL("{\"x\":0}", "\"Precompiled\",\"precompiled_charsmap\":\"%s\""), NULL, MGV_ERROR_FORMAT},
        {"tokenizer.json", CUT("{\"x\":0}", "\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"%s\"}"), NULL,
         MGV_ERROR_UNSUPPORTED},
        {"tokenizer.json", ONE(",\"added_tokens\":[{\"id\":0,\"content\":\"%s\"}]"), NULL, MGV_ERROR_FORMAT},
        {"tokenizer.json", ONE(""), "{\"tokenizer_class\":\"%s\"}", MGV_OK},
        {"tokenizer.json", ONE(""), "{\"pad_token\":\"%s\"}", MGV_OK},
        {"tokenizer.tiktoken", "eHh4 0\n", "{\"tokenizer_class\":\"Qwen2Tokenizer\",\"added_tokens_decoder\":{\"1\":{\"content\":\"%s\"}}}",
         MGV_ERROR_FORMAT},
    };
    static char letters[LONG + 1], text[2 * LONG], config[2 * LONG];
    size_t i;
    (void)state;
    memset(letters, 'x', LONG);
    for (i = 0; i < COUNT_OF(files); i++) {
        const char *said[] = {files[i].name, text, "tokenizer_config.json", config, NULL};
        mgv_result result = MGV_ERROR_NOMEM;
        uint64_t fail_at;
        mgv_error error;
        snprintf(text, sizeof text, "%s", files[i].text);
        if (strstr(files[i].text, "%s")) {
            const size_t at = (size_t)(strstr(files[i].text, "%s") - files[i].text);
            snprintf(text + at, sizeof text - at, "%s%s", letters, files[i].text + at + 2);
        }
        strcpy(config, "{}");
        if (files[i].config) {
            const size_t at = (size_t)(strstr(files[i].config, "%s") - files[i].config);
            snprintf(config, sizeof config, "%.*s%s%s", (int)at, files[i].config, letters, files[i].config + at + 2);
        }
        for (fail_at = 1; result == MGV_ERROR_NOMEM; fail_at++) {
            counting_allocator counts;
            mgv_allocator allocator = counting_allocator_make(&counts);
            mgv_tokenizer *tokenizer;
            counts.fail_at = fail_at;
            result = open_said(&tokenizer, said, &allocator, &error);
            mgv_tokenizer_close(tokenizer);
            assert_int_equal(counts.live_blocks, 0);
        }
        if (result != files[i].code) fail_msg("case %zu: %s", i, result == MGV_OK ? "taken" : error.message);
        assert_true(fail_at > 5);
    }
}
/* Texts grow while they go through the stages: wherever memory fails then, nothing is lost but the text. */
static void long_texts_without_memory(void **state) {
    static const struct { const char *json, *text; } cases[] = { /* repeated */
        {NORMAL("{\"\xEA\xB0\x81\":0}", "\"NFC\""), "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8"},
        {NORMAL("{\"a\":0}", "\"NFC\""), "a\xCC\x81\xCC\x81" "aaaaa"},
        {CHARSMAP("BAAAAAAAAABiAA=="), "abc"},
        {MODEL("{\"a\":0,\"b\":1,\"ab\":2}", "[\"a b\"]", "\"unk_token\":\"b\"", ""), "aabq"},
        {MODEL(FALLS, "[]", "\"byte_fallback\":true,\"unk_token\":\"<unk>\"", ""), "\xC3\xA9\xD0\x96"},
        {UNIGRAM("[[\"<0xC3>\",-1],[\"<0xA9>\",-1],[\"a\",-1],[\"u\",-1]]", ",\"unk_id\":3,\"byte_fallback\":true"), "a\xC3\xA9"},
        {CUT("{\"a\":0,\"\xC4\xA0\":1}", "\"ByteLevel\",\"add_prefix_space\":true"), "a a1 "},
        {CUT("{\"a\":0}", "\"Sequence\",\"pretokenizers\":[{\"type\":\"WhitespaceSplit\"},{\"type\":\"ByteLevel\"}]"), "a a1 "},
        {CUT("{\"a\":0}", "\"Metaspace\",\"replacement\":\"\xE2\x96\x81\""), "a a "},
        {CUT("{\"a\":0,\"-\":1}", "\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"String\":\"-\"}"), "a-"},
        {CUT("{\"a\":0}", "\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
             "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|"
             "\\\\s+(?!\\\\S)|\\\\s+\"}"), "a 'S'\xC5\xBF'x '"},
        {BPE("{\"a\":0}", "[]", ",\"added_tokens\":[{\"id\":1,\"content\":\"x\",\"lstrip\":true,\"rstrip\":true}]"), "a x x "},
    };
    static char text[1 << 16];
    static uint32_t ids[1 << 16], right[1 << 16];
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        const char *said[3] = {"tokenizer.json", NULL, NULL};
        const size_t length = strlen(cases[i].text);
        mgv_tokenizer *tokenizer = open_json(cases[i].json);
        mgv_result result = MGV_ERROR_NOMEM;
        uint64_t right_count, count = 0, allocations, fail_at;
        mgv_error error;
        size_t bytes = 0;
        for (; bytes + length <= sizeof text / 4; bytes += length) memcpy(text + bytes, cases[i].text, length);
        if (mgv_tokenize(tokenizer, text, bytes, 0, right, COUNT_OF(right), &right_count, &error) != MGV_OK)
            fail_msg("case %zu: %s", i, error.message);
        mgv_tokenizer_close(tokenizer);
        said[1] = cases[i].json;
        for (fail_at = 1; result == MGV_ERROR_NOMEM; fail_at++) {
            counting_allocator counts;
            mgv_allocator allocator = counting_allocator_make(&counts);
            assert_int_equal(open_said(&tokenizer, said, &allocator, &error), MGV_OK);
            allocations = counts.calls;
            counts.fail_at = allocations + fail_at;
            result = mgv_tokenize(tokenizer, text, bytes, 0, ids, COUNT_OF(ids), &count, &error);
            if (result != MGV_OK && result != MGV_ERROR_NOMEM) fail_msg("case %zu: %s", i, error.message);
            mgv_tokenizer_close(tokenizer);
            assert_int_equal(counts.live_blocks, 0);
        }
        assert_true(fail_at > 3);
        assert_int_equal(count, right_count);
        assert_memory_equal(ids, right, (size_t)count * sizeof *ids);
    }
}
/* The same on the way back. */
static void long_ids_without_memory(void **state) {
    static const struct { const char *json, *once; uint32_t count, ids[4]; } cases[] = {
        {DECODER("{\"<0xE2>\":0,\"<0x82>\":1,\"a\":2}", "\"ByteFallback\""), BROKEN BROKEN "a", 3, {0, 1, 2}},
        {DECODER("{\"<0xE2>\":0,\"<0x82>\":1,\"<0xAC>\":2}", "\"ByteFallback\""), "\xE2\x82\xAC", 3, {0, 1, 2}},
        {DECODER("{\"\xC4\xA0" "a\":0,\"\xC3\x83\xC2\xA9\":1}", "\"ByteLevel\""), " a\xC3\xA9", 2, {0, 1}},
        {DECODER("{\"a-\":0}", "\"Replace\",\"pattern\":{\"String\":\"-\"},\"content\":\"bbb\""), "abbb", 1, {0}},
    };
    enum { TIMES = 2000, ROOM = 1 << 16 };
    static uint32_t ids[4 * TIMES];
    static char text[ROOM], right[ROOM];
    size_t i, k;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        const char *said[3] = {"tokenizer.json", NULL, NULL};
        const size_t length = strlen(cases[i].once);
        mgv_result result = MGV_ERROR_NOMEM;
        uint64_t bytes = 0, fail_at;
        said[1] = cases[i].json;
        for (k = 0; k < TIMES; k++) {
            memcpy(ids + k * cases[i].count, cases[i].ids, cases[i].count * sizeof *ids);
            memcpy(right + k * length, cases[i].once, length);
        }
        for (fail_at = 1; result == MGV_ERROR_NOMEM; fail_at++) {
            counting_allocator counts;
            mgv_allocator allocator = counting_allocator_make(&counts);
            mgv_tokenizer *tokenizer;
            mgv_error error;
            assert_int_equal(open_said(&tokenizer, said, &allocator, &error), MGV_OK);
            counts.fail_at = counts.calls + fail_at;
            result = mgv_detokenize(tokenizer, NULL, ids, TIMES * cases[i].count, 0, text, ROOM, &bytes, &error);
            if (result != MGV_OK && result != MGV_ERROR_NOMEM) fail_msg("case %zu: %s", i, error.message);
            mgv_tokenizer_close(tokenizer);
            assert_int_equal(counts.live_blocks, 0);
        }
        assert_true(fail_at > 3);
        assert_int_equal(bytes, TIMES * length);
        assert_memory_equal(text, right, TIMES * length);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_become_these_ids),
        cmocka_unit_test(ids_become_these_texts),
        cmocka_unit_test(streams_end_with_what_they_hold),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(added_tokens_have_512_bytes_at_most),
        cmocka_unit_test(maps_that_lead_astray_change_nothing),
        cmocka_unit_test(lower_case_is_what_the_caller_wants),
        cmocka_unit_test(other_files_are_refused_so),
        cmocka_unit_test(files_of_clip_are_known_by_their_tokens),
        cmocka_unit_test(vocabularies_of_qwens_sizes_get_its_special_tokens),
        cmocka_unit_test(scores_are_read_as_serde_json_reads_them), cmocka_unit_test(classes_take_any_model),
        cmocka_unit_test(clusters_end_where_unicode_says),
        cmocka_unit_test(ranks_are_merges),
        cmocka_unit_test(names_of_ranks_have_500_bytes_at_most),
        cmocka_unit_test(long_strings_without_memory),
        cmocka_unit_test(long_texts_without_memory),
        cmocka_unit_test(long_ids_without_memory),
    };
    return cmocka_run_group_tests_name("unusual tokenizers", tests, NULL, NULL);
}
