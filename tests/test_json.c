/* The strict JSON reader: what it accepts, what it refuses and why, strings, numbers, and what it costs. */
#include <locale.h>
#include <math.h>
#include <time.h>

#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "support.h"
#include "rule.h"

/* Checks a copy that ends exactly where the text does, so that the sanitizers see every byte too far. */
static mgv_result check(const char *text, size_t bytes, char **copy, mgv_error *error) {
    counting_allocator counts;
    mgv_allocator allocator = counting_allocator_make(&counts);
    mgv_result result;
    char *own = (char *)malloc(bytes + 1);
    memcpy(own, text, bytes);
    own[bytes] = 0;
    result = mgv__json_check(own, bytes, "t", &allocator, error);
    assert_int_equal(counts.live_blocks, 0);
    if (copy != NULL) *copy = own;
    else free(own);
    return result;
}

static void accepts(void **state) {
    static const char *const texts[] = {
        "{}", " \t\r\n{ } \n", "{\"\":0}", "{\"a\":1,\"b\":[],\"c\":{},\"d\":[1,2,[3,{\"e\":null}]]}",
        "{\"a\":true,\"b\":false,\"c\":null,\"d\":\"x\"}", "{\"a\":-0,\"b\":0.5,\"c\":9.9e307,\"d\":-1.25E-7,\"e\":1E+2}",
        "{\"a\\u0041\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}", "{\"\\ud83d\\ude00\":\"\xF0\x9F\x98\x80\"}",
        "{\"a\":{\"a\":{\"a\":1}},\"b\":{\"a\":1}}", "{\"\x7F\xC2\x80\xDF\xBF\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF\":1}",
        "{\"a\" : [ 1 , 2 ] , \"b\" : { } }", "{\"a\":0e400,\"b\":0.00e999,\"c\":0.001e310,\"d\":1e-999999999999999999999,\"e\":99.9e306}",
    };
    mgv_error error;
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(texts); i++) {
        if (check(texts[i], strlen(texts[i]), NULL, &error) != MGV_OK) fail_msg("%s: %s", texts[i], error.message);
    }
}

static void refuses(void **state) {
    static const struct {
        const char *text;
        const char *rule;
    } cases[] = {
        {"", "not an object"}, {"  ", "not an object"}, {"[]", "not an object"}, {"null", "not an object"}, {"\"a\"", "not an object"},
        {"\xEF\xBB\xBF{}", "not an object"}, {"{", "a key"}, {"}", "not an object"}, {"{}{}", "follows"}, {"{}x", "follows"},
        {"{},", "follows"}, {"/**/{}", "not an object"}, {"{/**/}", "a key"}, {"{} //", "follows"}, {"{a:1}", "a key"},
        {"{'a':1}", "a key"}, {"{1:1}", "a key"}, {"{\"a\"}", "a colon"}, {"{\"a\" 1}", "a colon"}, {"{\"a\":}", "a value"},
        {"{\"a\":,}", "a value"}, {"{\"a\":1,}", "a key"}, {"{,}", "a key"}, {"{\"a\":[1,]}", "a value"}, {"{\"a\":[,1]}", "a value"},
        {"{\"a\":[1 2]}", "a comma"}, {"{\"a\":[1}", "a comma"}, {"{\"a\":{]}", "a key"}, {"{\"a\":1]", "a comma"},
        {"{\"a\":1 \"b\":2}", "a comma"}, {"{\"a\":1", "ends inside an object"}, {"{\"a\":[1", "ends inside an object"},
        {"{\"a\":[", "a value"}, {"{\"a", "ends inside a string"}, {"{\"a\\", "an escape"}, {"{\"a\":tru}", "a value"},
        {"{\"a\":True}", "a value"}, {"{\"a\":truex}", "a comma"}, {"{\"a\":NaN}", "a value"}, {"{\"a\":Infinity}", "a value"},
        {"{\"a\":-Infinity}", "a value"}, {"{\"a\":-}", "a value"}, {"{\"a\":+1}", "a value"}, {"{\"a\":01}", "leading zero"},
        {"{\"a\":-00}", "leading zero"}, {"{\"a\":.5}", "a value"}, {"{\"a\":1.}", "behind its point"},
        {"{\"a\":1.e5}", "behind its point"}, {"{\"a\":1e}", "exponent"}, {"{\"a\":1e+}", "exponent"}, {"{\"a\":0x10}", "a comma"},
        {"{\"a\":1e308}", "10^308"}, {"{\"a\":-1e400}", "10^308"}, {"{\"a\":1e99999999999999999999}", "10^308"},
        {"{\"a\":12.5e307}", "10^308"}, {"{\"a\":0.001e311}", "10^308"}, {"{\"a\":\"\n\"}", "control character"},
        {"{\"a\":\"\x1F\"}", "control character"}, {"{\"a\":\"\\x41\"}", "an escape"}, {"{\"a\":\"\\'\"}", "an escape"},
        {"{\"a\":\"\\u12g4\"}", "hexadecimal"}, {"{\"a\":\"\\u12\"}", "hexadecimal"}, {"{\"a\":\"\\u", "hexadecimal"},
        {"{\"a\":\"\\u0000\"}", "U+0000"}, {"{\"\\u0000\":1}", "U+0000"}, {"{\"a\":\"\\ud800\"}", "surrogate"},
        {"{\"a\":\"\\udc00\"}", "surrogate"}, {"{\"a\":\"\\ud800\\u0041\"}", "surrogate"}, {"{\"a\":\"\\ud800\\ue000\"}", "surrogate"},
        {"{\"a\":\"\\ud800\\ud800\"}", "surrogate"}, {"{\"a\":\"\\ud800\\n\"}", "surrogate"}, {"{\"a\":\"\\ud800x\"}", "surrogate"},
        {"{\"a\":\"\\ud800\\u\"}", "surrogate"}, {"{\"\x80\":1}", "not UTF-8"}, {"{\"\xC0\x80\":1}", "not UTF-8"},
        {"{\"\xC1\xBF\":1}", "not UTF-8"}, {"{\"\xE0\x9F\xBF\":1}", "not UTF-8"}, {"{\"\xED\xA0\x80\":1}", "not UTF-8"},
        {"{\"\xF0\x8F\xBF\xBF\":1}", "not UTF-8"}, {"{\"\xF4\x90\x80\x80\":1}", "not UTF-8"}, {"{\"\xF5\x80\x80\x80\":1}", "not UTF-8"},
        {"{\"\xC3\":1}", "not UTF-8"}, {"{\"\xE2\x82\":1}", "not UTF-8"}, {"{\"\xC3", "not UTF-8"}, {"{\"\xE2\x82", "not UTF-8"},
        {"{\"\xF0\x9F\x98", "not UTF-8"}, {"{\"\xE2\x28\xA1\":1}", "not UTF-8"}, {"{\"\xE2\x82\x28\":1}", "not UTF-8"},
        {"{\"\xFF\":1}", "not UTF-8"}, {"{\xC2\xA0}", "a key"}, {"{\"a\":1,\"a\":2}", "already has"},
        {"{\"a\":1,\"b\":2,\"\\u0061\":3}", "already has"}, {"{\"\\/\":1,\"/\":2}", "already has"},
        {"{\"\\n\":1,\"\\u000a\":2}", "already has"}, {"{\"\\u001f\":1,\"\\u001F\":2}", "already has"},
        {"{\"\\\"\":1,\"\\u0022\":2}", "already has"}, {"{\"\xC3\xA9\":1,\"\\u00e9\":2}", "already has"},
        {"{\"\xF0\x9F\x98\x80\":1,\"\\uD83D\\uDE00\":2}", "already has"}, {"{\"x\":[{\"y\":{\"a\":1,\"b\":[{}],\"a\":1}}]}", "already has"},
        {"{\"\":1,\"\":2}", "already has"},
    };
    mgv_error error;
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        if (check(cases[i].text, strlen(cases[i].text), NULL, &error) != MGV_ERROR_FORMAT) fail_msg("accepted: %s", cases[i].text);
        if (strstr(error.message, cases[i].rule) == NULL) fail_msg("%s: %s", cases[i].text, error.message);
    }
    assert_int_equal(check("{\"a\0b\":1}", 9, NULL, &error), MGV_ERROR_FORMAT);
    assert_int_equal(check("{}\0", 3, NULL, &error), MGV_ERROR_FORMAT);
    assert_int_equal(check("\0{}", 3, NULL, &error), MGV_ERROR_FORMAT);
    assert_int_equal(check("{\"a\":\0}", 7, NULL, &error), MGV_ERROR_FORMAT);
    assert_int_equal(check("{\"a\":1}", 7, NULL, NULL), MGV_OK);
    assert_int_equal(check("{\"a\":1", 6, NULL, NULL), MGV_ERROR_FORMAT); /* a NULL error is allowed */
    assert_int_equal(mgv__json_check(NULL, UINT32_MAX, "t", NULL, &error), MGV_ERROR_FORMAT);
    assert_non_null(strstr(error.message, "4 GiB"));
}

static void keys_that_only_look_alike(void **state) {
    static const char text[] = "{\"a\":1,\"A\":2,\"a \":3,\" a\":4,\"a\\\"\":5,\"a\\\\\":6,\"a\\\\\\\"\":7,\"\":8,\"aa\":9,\"\\u0001\":10,"
                               "\"\\u0010\":11}";
    mgv_error error;
    (void)state;
    if (check(text, sizeof text - 1, NULL, &error) != MGV_OK) fail_msg("%s", error.message);
}

static char *repeat(const char *piece, size_t count, const char *end, size_t *bytes) {
    size_t length = strlen(piece), i;
    char *text = (char *)malloc(length * count + strlen(end) + 1);
    for (i = 0; i < count; i++) memcpy(text + i * length, piece, length);
    strcpy(text + length * count, end);
    *bytes = length * count + strlen(end);
    return text;
}
static void nesting_ends_at_64(void **state) {
    char text[400];
    size_t depth, bytes;
    mgv_error error;
    char *deep;
    (void)state;
    for (depth = 1; depth < 70; depth++) {
        size_t i, n = 0;
        n += (size_t)sprintf(text + n, "{\"a\":");
        for (i = 1; i < depth; i++) text[n++] = '[';
        if (depth == 1) text[n++] = '0';
        for (i = 1; i < depth; i++) text[n++] = ']';
        text[n++] = '}';
        assert_int_equal(check(text, n, NULL, &error), depth <= 64 ? MGV_OK : MGV_ERROR_FORMAT);
    }
    deep = repeat("{\"a\":", 1000000, "", &bytes);
    assert_int_equal(check(deep, bytes, NULL, &error), MGV_ERROR_FORMAT);
    assert_non_null(strstr(error.message, "64 levels"));
    free(deep);
    deep = repeat("[", 1000000, "", &bytes);
    deep[0] = '{';
    assert_int_equal(check(deep, bytes, NULL, &error), MGV_ERROR_FORMAT);
    free(deep);
}

/* The most keys that a text can have open at once for its length, with and without colons that are no key's: the places of
   keys must all fit. */
static void as_many_keys_as_possible(void **state) {
    char text[3000];
    size_t depth, more, colons, n, i;
    mgv_error error;
    (void)state;
    for (depth = 0; depth <= 65; depth++) {
        for (more = 0; more < 40; more += 13) {
            for (colons = 0; colons < 600; colons += 299) {
                n = 0;
                text[n++] = '{';
                if (colons > 0) {
                    text[n++] = '"';
                    memset(text + n, ':', colons);
                    n += colons;
                    memcpy(text + n, "\":0,", 4);
                    n += 4;
                }
                for (i = 0; i < depth; i++) n += (size_t)sprintf(text + n, "\"\":{");
                for (i = 0; i < more; i++) n += (size_t)sprintf(text + n, "\"%x\":0,", (unsigned)i);
                n += (size_t)sprintf(text + n, "\"\"");
                assert_int_equal(check(text, n, NULL, &error), MGV_ERROR_FORMAT); /* its colon is missing */
                n += (size_t)sprintf(text + n, ":0}");
                for (i = 0; i < depth; i++) text[n++] = '}';
                assert_int_equal(check(text, n, NULL, &error), depth < 64 ? MGV_OK : MGV_ERROR_FORMAT);
            }
        }
    }
}

/* Walks objects and arrays, skips what is not asked for, and resolves strings. */
static void walks(void **state) {
    static const char text[] = " {\"s\\u0061\" : \"x\\u00e9\\n\\\"\\\\\\u0001\\/\" , \"skip\":[1,{\"]\":\"}\\\"\"},[[]], {}],\"n\":[ 1 ,"
                               "22,\"3\" ,true,{} ,[],-4.5e1],"
                               "\"e\":{},\"last\":null} ";
    static const char *const items[] = {"1", "22", "\"3\"", "true", "{}", "[]", "-4.5e1"};
    static const char *const keys[] = {"sa", "skip", "n", "e", "last"};
    char *copy, *at, *key, *value, *item_at, *item;
    size_t count = 0, items_seen = 0;
    mgv_error error;
    (void)state;
    assert_int_equal(check(text, sizeof text - 1, &copy, &error), MGV_OK);
    assert_int_equal(strlen(copy), sizeof text - 1);
    at = mgv__json_skip_space(copy) + 1;
    while (mgv__json_next(&at, &key, &value)) {
        assert_true(count < COUNT_OF(keys));
        assert_true(mgv__json_is(key, keys[count]));
        assert_false(mgv__json_is(key, "s"));
        assert_false(mgv__json_is(key, "saa"));
        if (count == 0) assert_string_equal(mgv__json_string(value, value), "x\xC3\xA9\n\"\\\x01/");
        if (count == 2) {
            item_at = value + 1;
            while (mgv__json_next(&item_at, NULL, &item)) {
                assert_true(items_seen < COUNT_OF(items));
                assert_int_equal(strncmp(item, items[items_seen], strlen(items[items_seen])), 0);
                items_seen++;
            }
        }
        if (count == 3) {
            item_at = value + 1;
            assert_false(mgv__json_next(&item_at, &key, &item));
        }
        count++;
    }
    assert_int_equal(count, COUNT_OF(keys));
    assert_int_equal(items_seen, COUNT_OF(items));
    free(copy);
}

static void integers(void **state) {
    static const struct {
        const char *text;
        int good;
        uint64_t value;
    } cases[] = {
        {"0", 1, 0}, {"7,", 1, 7}, {"9007199254740993 ", 1, 9007199254740993u}, {"18446744073709551615}", 1, UINT64_MAX},
        {"18446744073709551616", 0, 0}, {"18446744073709551620", 0, 0}, {"99999999999999999999", 0, 0}, {"-1", 0, 0}, {"-0", 0, 0},
        {"1.0", 0, 0}, {"1e0", 0, 0}, {"1E0", 0, 0}, {"\"1\"", 0, 0}, {"true", 0, 0}, {"null", 0, 0}, {"[1]", 0, 0}, {"{}", 0, 0},
    };
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        uint64_t value = 12345;
        assert_int_equal(mgv__json_u64(cases[i].text, &value), cases[i].good);
        assert_int_equal(value, cases[i].good ? cases[i].value : 12345);
    }
}

static void same_double(const char *text) {
    double ours = 0, theirs = strtod(text, NULL);
    int good = mgv__json_double(text, &ours);
    if (isinf(theirs)) {
        if (good) fail_msg("%s: read as %.17g, should be refused", text, ours);
        return;
    }
    if (!good || memcmp(&ours, &theirs, sizeof ours) != 0) fail_msg("%s: %d %.17g, should be %.17g", text, good, ours, theirs);
}
static uint64_t next_random(uint64_t *seed) {
    const uint64_t bits = rule_bits(*seed, 0);
    *seed += 0x9E3779B97F4A7C15u;
    return bits;
}
/* Against the C library's strtod, which is right to the last bit. */
static void doubles_are_rounded_correctly(void **state) {
    static const char *const texts[] = {
        "0", "-0", "0.0", "-0.0e5", "0e999999999999999999999", "1", "-1", "10", "0.1", "1e-6", "0.00392156862745098", "0.48145466",
        "0.26862954", "123456789012345678901234567890", "9007199254740993", "9007199254740992.99999999999999999999999999999999999999999",
        "9007199254740993.00000000000000000000000000000000000000000000000001", "1.7976931348623157e308", "1.7976931348623158e308",
        "1.7976931348623159e308", "179769313486231580793728971405301e276", "1e308", "1e309", "1e310", "1e311", "1e400", "-1e400",
        "1e99999999999999999999", "2.2250738585072014e-308", "2.2250738585072011e-308",
        "2.225073858507201136057409796709131975934819546351645648023426109724822222021e-308", "4.9406564584124654e-324",
        "2.4703282292062327e-324", "2.4703282292062328e-324", "2.47032822920623272088284396434110686182e-324", "1e-323", "1e-324", "1e-400",
        "1e-99999999999999999999", "0.000000000000000000000000000000000000000000000000000000000000000000000000000000000000001", "1e23",
        "8.5e22", "6.02214076e23", "1.00000000000000011102230246251565404236316680908203125",
        "1.00000000000000011102230246251565404236316680908203124", "1.00000000000000011102230246251565404236316680908203126", "5e-324",
        "3e-324", "100000000000000000000000000e-26", "0.5e1", "1E+5", "1e+05",
    };
    char text[1200], *p;
    uint64_t seed = 1, i, j;
    (void)state;
    for (i = 0; i < COUNT_OF(texts); i++) same_double(texts[i]);
    for (i = 0; i < 60000; i++) {
        uint64_t bits = next_random(&seed), digits = 1 + next_random(&seed) % (i % 100 == 0 ? 900 : 25);
        double value;
        memcpy(&value, &bits, sizeof value);
        if (isfinite(value)) {
            sprintf(text, "%.17g", value);
            same_double(text);
            sprintf(text, "%.*e", (int)(next_random(&seed) % 20), value);
            same_double(text);
        }
        p = text;
        if (bits & 1) *p++ = '-';
        for (j = 0; j < digits; j++) {
            *p++ = (char)('0' + (bits & 6 ? next_random(&seed) % 10 : 9 * (next_random(&seed) & 1)));
            if (j == digits / 2) *p++ = '.';
        }
        *p++ = '0';
        if (text[bits & 1] == '0') text[bits & 1] = '1';
        sprintf(p, "e%d", (int)(next_random(&seed) % 700) - 350 - (int)(digits > 300 ? digits / 2 : 0));
        same_double(text);
    }
}
/* Halfway points between neighbours, written out in full (up to 767 digits), and a hair above and below them. */
static void halfway_doubles(void **state) {
    uint64_t seed = 7;
    int i;
    (void)state;
    for (i = 0; i < 3000; i++) {
        uint64_t bits = next_random(&seed) & 0x7FFFFFFFFFFFFFFFu;
        char text[1300], *e;
        size_t last;
        long double half;
        double low, high;
        if (i % 3 == 0) bits &= 0x000FFFFFFFFFFFFFu; /* subnormal */
        memcpy(&low, &bits, sizeof low);
        bits++;
        memcpy(&high, &bits, sizeof high);
        if (!isfinite(high)) continue;
        half = ((long double)low + (long double)high) / 2; /* exact: long double has 64 bits here */
        sprintf(text, "%.780Le", half);
        same_double(text);
        e = strchr(text, 'e');
        last = (size_t)(e - text) - 1;
        text[last] = '1';
        same_double(text);
        text[last] = '0';
        while (text[last] == '0') last--;
        if (text[last] != '.') text[last]--;
        same_double(text);
    }
}
static void numbers_of_any_length(void **state) {
    size_t bytes;
    char *text;
    double value;
    (void)state;
    text = repeat("0", 1000000, "1e-1", &bytes);
    text[1] = '.';
    assert_true(mgv__json_double(text, &value));
    assert_true(value == 0);
    free(text);
    text = repeat("7", 1000000, "e-999990", &bytes);
    same_double(text);
    free(text);
    text = repeat("9", 1000000, "", &bytes);
    assert_false(mgv__json_double(text, &value));
    free(text);
    text = repeat("9", 313, "}", &bytes);
    memcpy(text, "{\"a\":", 5);
    assert_int_equal(check(text, bytes, NULL, NULL), MGV_OK); /* 308 digits */
    free(text);
    text = repeat("9", 314, "}", &bytes);
    memcpy(text, "{\"a\":", 5);
    assert_int_equal(check(text, bytes, NULL, NULL), MGV_ERROR_FORMAT);
    free(text);
    assert_false(mgv__json_double("\"1\"", &value));
    assert_false(mgv__json_double("true", &value));
    assert_false(mgv__json_double("-", &value));
}
/* Makes German's locale in a directory of its own and takes it. 0 where that cannot be: no localedef, or no source of the locale. */
static int take_a_decimal_comma(void) {
    char scratch[] = "/tmp/megavit-json-XXXXXX", command[256], half[8];
    assert_non_null(mkdtemp(scratch));
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 2>/dev/null", scratch);
    if (system(command) != 0) print_message("localedef makes no locale\n");
    setenv("LOCPATH", scratch, 1);
    setlocale(LC_ALL, "de_DE.UTF-8");
    unsetenv("LOCPATH");
    snprintf(command, sizeof command, "rm -r %s", scratch);
    assert_int_equal(system(command), 0);
    snprintf(half, sizeof half, "%.1f", 0.5);
    return strcmp(half, "0,5") == 0;
}
static void the_locale_does_not_matter(void **state) {
    double value = 0;
    int read, comma = take_a_decimal_comma();
    (void)state;
    read = mgv__json_double("1.5", &value);
    setlocale(LC_ALL, "C");
    if (!comma) skip_because("no locale with a decimal comma is installed");
    assert_true(read);
    assert_true(value == 1.5);
}

/* Keys made to collide in a hash, to be sorted already, or in reverse, cost the same: a reader that is quadratic in bytes, 10^5 ns each,
   would not end within a test's bound. How often keys are compared is counted where mgv__sort is tested (tests/test_memory.c). */
static void cost_is_linear(void **state) {
    static const char *const kinds[] = {"up", "down", "same prefix", "colons", "strings of colons"};
    size_t kind;
    (void)state;
    for (kind = 0; kind < COUNT_OF(kinds); kind++) {
        counting_allocator counts;
        mgv_allocator allocator = counting_allocator_make(&counts);
        size_t room = 30000000, n = 0, i, keys = kind == 4 ? 4 : 200000;
        char *text = (char *)malloc(room + 200);
        mgv_error error;
        clock_t start;
        double ns;
        text[n++] = '{';
        for (i = 0; i < keys; i++) {
            if (i > 0) text[n++] = ',';
            if (kind == 0) n += (size_t)sprintf(text + n, "\"%07u\":0", (unsigned)i);
            if (kind == 1) n += (size_t)sprintf(text + n, "\"%07u\":0", (unsigned)(9999999 - i));
            if (kind == 2) n += (size_t)sprintf(text + n, "\"encoder.layers.encoder.layers.encoder.layers.%07u\":0",
                                                (unsigned)(i * 7919 % 1000003));
            if (kind == 3) n += (size_t)sprintf(text + n, "\"%u\":0", (unsigned)i);
            if (kind == 4) {
                n += (size_t)sprintf(text + n, "\"%u\":\"", (unsigned)i);
                memset(text + n, ':', 2000000);
                n += 2000000;
                text[n++] = '"';
            }
        }
        text[n++] = '}';
        text[n] = 0;
        assert_true(n < room);
        start = clock();
        assert_int_equal(mgv__json_check(text, n, "t", &allocator, &error), MGV_OK);
        ns = (double)(clock() - start) / CLOCKS_PER_SEC * 1e9 / (double)n;
        print_message("%s: %.1f MB, %.1f ns a byte, %.2f bytes of scratch a byte\n", kinds[kind], (double)n / 1e6, ns,
                      (double)counts.peak_bytes / (double)n);
        assert_true(counts.peak_bytes <= 2 * n + 1024);
        assert_int_equal(counts.live_blocks, 0);
        free(text);
    }
}
static void without_memory(void **state) {
    counting_allocator counts;
    mgv_allocator allocator = counting_allocator_make(&counts);
    char text[] = "{\"a\":1}";
    mgv_error error;
    (void)state;
    counts.fail_at = 1;
    assert_int_equal(mgv__json_check(text, strlen(text), "t", &allocator, &error), MGV_ERROR_NOMEM);
    assert_int_equal(error.code, MGV_ERROR_NOMEM);
    counts.fail_at = 0;
    assert_int_equal(mgv__json_check(text, strlen(text), "t", &allocator, &error), MGV_OK);
    assert_int_equal(counts.live_blocks, 0);
}

/* Every value of up to five characters out of an alphabet that reaches every rule. For each that is accepted, what is
   read back covers the text. */
static void every_short_text(void **state) {
    static const char alphabet[] = "{}[]:,\"\\a1-.e0 \x80";
    char text[16] = "{\"a\":";
    size_t length, i, accepted = 0, total = 1;
    (void)state;
    for (length = 0; length <= 5; length++) {
        for (i = 0; i < total; i++) {
            size_t rest = i, j;
            char *copy;
            for (j = 0; j < length; j++) {
                text[5 + j] = alphabet[rest % (sizeof alphabet - 1)];
                rest /= sizeof alphabet - 1;
            }
            if (check(text, 5 + length, &copy, NULL) == MGV_OK) {
                char *at = copy + 1, *key, *value, *end;
                accepted++;
                assert_true(mgv__json_next(&at, &key, &value));
                while (mgv__json_next(&at, &key, &value)) continue;
                end = mgv__json_skip_value(copy);
                assert_int_equal(mgv__json_skip_space(end) - copy, 5 + (long)length);
            }
            free(copy);
        }
        total *= sizeof alphabet - 1;
    }
    print_message("%zu accepted\n", accepted);
    assert_true(accepted > 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts),
        cmocka_unit_test(refuses),
        cmocka_unit_test(keys_that_only_look_alike),
        cmocka_unit_test(nesting_ends_at_64),
        cmocka_unit_test(as_many_keys_as_possible),
        cmocka_unit_test(walks),
        cmocka_unit_test(integers),
        cmocka_unit_test(doubles_are_rounded_correctly),
        cmocka_unit_test(halfway_doubles),
        cmocka_unit_test(numbers_of_any_length),
        cmocka_unit_test(the_locale_does_not_matter),
        cmocka_unit_test(cost_is_linear),
        cmocka_unit_test(without_memory),
        cmocka_unit_test(every_short_text),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
