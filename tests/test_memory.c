/* Sizes, memory from any allocator, messages, the tables of results and dtypes, sorting. */
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "support.h"

static void sizes_report_overflow(void **state) {
    size_t size = 77;
    uint64_t wide = 77;
    (void)state;
    assert_true(mgv__mul(0, SIZE_MAX, &size) && size == 0);
    assert_true(mgv__mul(SIZE_MAX, 0, &size) && size == 0);
    assert_true(mgv__mul(SIZE_MAX, 1, &size) && size == SIZE_MAX);
    assert_true(mgv__mul(SIZE_MAX / 3, 3, &size) && size == SIZE_MAX / 3 * 3);
    size = 77;
    assert_false(mgv__mul(SIZE_MAX / 2 + 1, 2, &size));
    assert_false(mgv__mul(2, SIZE_MAX / 2 + 1, &size));
    assert_false(mgv__mul(SIZE_MAX, SIZE_MAX, &size));
    assert_true(mgv__add(SIZE_MAX - 1, 1, &size) && size == SIZE_MAX);
    size = 77;
    assert_false(mgv__add(SIZE_MAX, 1, &size));
    assert_false(mgv__add(1, SIZE_MAX, &size));
    assert_int_equal(size, 77);
    assert_true(mgv__align_up(0, 64, &size) && size == 0);
    assert_true(mgv__align_up(1, 64, &size) && size == 64);
    assert_true(mgv__align_up(64, 64, &size) && size == 64);
    assert_true(mgv__align_up(5, 1, &size) && size == 5);
    assert_true(mgv__align_up(SIZE_MAX - 63, 64, &size) && size == SIZE_MAX - 63);
    size = 77;
    assert_false(mgv__align_up(SIZE_MAX - 62, 64, &size));
    assert_int_equal(size, 77);
    assert_true(mgv__mul64(UINT64_MAX, 1, &wide) && wide == UINT64_MAX);
    assert_true(mgv__mul64(UINT64_MAX, 0, &wide) && wide == 0);
    wide = 77;
    assert_false(mgv__mul64((uint64_t)1 << 32, (uint64_t)1 << 32, &wide));
    assert_int_equal(wide, 77);
}

static void *shifted_alloc(void *user, size_t bytes) {
    return (char *)malloc(bytes + 64) + *(size_t *)user;
}
static void shifted_free(void *user, void *memory, size_t bytes) {
    (void)bytes;
    free((char *)memory - *(size_t *)user);
}
/* Whatever an allocator's own alignment is. */
static void memory_is_aligned(void **state) {
    static const mgv_allocator standard = {NULL, NULL, NULL};
    size_t shift, bytes;
    (void)state;
    for (shift = 0; shift < 64; shift++) {
        mgv_allocator allocator;
        allocator.user = &shift;
        allocator.alloc = shifted_alloc;
        allocator.free = shifted_free;
        for (bytes = 0; bytes < 200; bytes += 67) {
            void *memory = mgv__alloc(&allocator, bytes);
            assert_non_null(memory);
            assert_int_equal((uintptr_t)memory % 64, 0);
            memset(memory, 1, bytes);
            mgv__free(&allocator, memory);
        }
    }
    for (bytes = 0; bytes < 5000; bytes += 999) {
        void *memory = mgv__alloc_array(&standard, bytes, 3);
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % 64, 0);
        memset(memory, 1, bytes * 3);
        mgv__free(&standard, memory);
    }
    mgv__free(&standard, NULL);
}
static void memory_that_is_not_there(void **state) {
    counting_allocator counts;
    mgv_allocator allocator = counting_allocator_make(&counts);
    (void)state;
    assert_null(mgv__alloc(&allocator, SIZE_MAX));
    assert_null(mgv__alloc(&allocator, SIZE_MAX - 64));
    assert_null(mgv__alloc_array(&allocator, SIZE_MAX / 2, 3));
    assert_int_equal(counts.calls, 0);
    counts.fail_at = 1;
    assert_null(mgv__alloc(&allocator, 1));
    assert_int_equal(mgv__allocator_check(&allocator, NULL), MGV_OK);
    allocator.alloc = NULL;
    assert_int_equal(mgv__allocator_check(&allocator, NULL), MGV_ERROR_ARGUMENT);
    allocator.free = NULL;
    assert_int_equal(mgv__allocator_check(&allocator, NULL), MGV_OK);
}

/* Against the definition: every sequence of up to four bytes from the values at which its rules change. */
static size_t utf8_by_definition(const unsigned char *p, size_t bytes) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length, i;
    uint32_t code;
    if (bytes == 0) return 0;
    if (p[0] < 0x80) return 1;
    length = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : p[0] >= 0xC0 ? 2 : 0;
    if (length == 0 || p[0] > 0xF7 || bytes < length) return 0;
    code = p[0] & (0xFFu >> (length + 1));
    for (i = 1; i < length; i++) {
        if ((p[i] & 0xC0) != 0x80) return 0;
        code = code << 6 | (p[i] & 0x3F);
    }
    return code >= least[length] && code <= 0x10FFFF && !(code >= 0xD800 && code <= 0xDFFF) ? length : 0;
}
static void utf8(void **state) {
    static const unsigned char edges[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0,
                                          0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xF8, 0xFF};
    size_t n = sizeof edges, i, bytes, good = 0;
    (void)state;
    for (i = 0; i < n * n * n * n; i++) {
        unsigned char text[4];
        text[0] = edges[i % n];
        text[1] = edges[i / n % n];
        text[2] = edges[i / n / n % n];
        text[3] = edges[i / n / n / n];
        for (bytes = 0; bytes <= 4; bytes++) {
            size_t length = mgv__utf8_length((const char *)text, bytes);
            assert_int_equal(length, utf8_by_definition(text, bytes));
            good += length == 4;
        }
    }
    assert_true(good > 100);
}

static void messages(void **state) {
    mgv_error error;
    char expected[600];
    size_t i;
    (void)state;
    assert_int_equal(mgv__fail(&error, MGV_ERROR_IO, "a %s b %q c %u d %i %i e %%", "x", "y", (uint64_t)0, INT64_MIN, INT64_MAX),
                     MGV_ERROR_IO);
    assert_int_equal(error.code, MGV_ERROR_IO);
    assert_string_equal(error.message, "a x b \"y\" c 0 d -9223372036854775808 9223372036854775807 e %");
    mgv__fail(&error, MGV_ERROR_IO, "%u", UINT64_MAX);
    assert_string_equal(error.message, "18446744073709551615");
    mgv__fail(&error, MGV_ERROR_IO, "%s", "caf\xC3\xA9 \xFF\xE2\x82!");
    assert_string_equal(error.message, "caf\xC3\xA9 ?" "?" "?!"); /* always UTF-8 */
    mgv__fail(&error, MGV_ERROR_IO, "100%");
    assert_string_equal(error.message, "100%");
    mgv__fail(&error, MGV_ERROR_IO, "%x");
    assert_string_equal(error.message, "%");
    assert_int_equal(mgv__fail(NULL, MGV_ERROR_MODEL, "%s", "x"), MGV_ERROR_MODEL);
    /* From a file: no control character, quote or broken byte gets out, and not more than 80 bytes. */
    mgv__fail(&error, MGV_ERROR_IO, "%q", "a\"b\\c\n\x1B[31m\x7F\xC2\x85\xC2\xA0\xC3\xA9\xFF\xE2\x82");
    assert_string_equal(error.message, "\"a\\\"b\\\\c\\x0A\\x1B[31m\\x7F\\xC2\\x85\xC2\xA0\xC3\xA9\\xFF\\xE2\\x82\"");
    memset(expected, 'z', sizeof expected);
    expected[80] = 0;
    mgv__fail(&error, MGV_ERROR_IO, "%q", expected);
    assert_int_equal(strlen(error.message), 82);
    expected[80] = 'z';
    expected[81] = 0;
    mgv__fail(&error, MGV_ERROR_IO, "%q", expected);
    assert_int_equal(strlen(error.message), 85);
    assert_string_equal(error.message + 79, "zz\"...");
    memcpy(expected + 79, "\xC3\xA9", 3); /* no half character before the dots */
    mgv__fail(&error, MGV_ERROR_IO, "%q", expected);
    assert_string_equal(error.message + 78, "zz\"...");
    expected[79] = (char)0xFF;
    expected[80] = 'z';
    mgv__fail(&error, MGV_ERROR_IO, "%q", expected);
    assert_string_equal(error.message + 78, "zz\\xFF\"...");
    /* Longer than there is room for: cut between characters. */
    memset(expected, 'z', sizeof expected);
    expected[507] = 0;
    mgv__fail(&error, MGV_ERROR_IO, "%s", expected);
    assert_int_equal(strlen(error.message), 507);
    for (i = 0; i < 4; i++) {
        expected[504 + i] = 0;
        mgv__fail(&error, MGV_ERROR_IO, "%s%s", expected, "\xF0\x9F\x98\x80 and more");
        assert_int_equal(strlen(error.message), i == 0 ? 504 : 504 + i);
        expected[504 + i] = 'z';
    }
    memset(expected, 'z', 503);
    expected[503] = 0;
    mgv__fail(&error, MGV_ERROR_IO, "%s%s", expected, "\xF0\x9F\x98\x80");
    assert_int_equal(strlen(error.message), 507);
    /* Arguments may lie in the error itself. */
    mgv__fail(&error, MGV_ERROR_IO, "inner");
    mgv__fail(&error, MGV_ERROR_MODEL, "outer: %s", error.message);
    assert_string_equal(error.message, "outer: inner");
    assert_int_equal(error.code, MGV_ERROR_MODEL);
    mgv__clear_error(&error);
    mgv__clear_error(NULL);
    assert_int_equal(error.code, MGV_OK);
    assert_string_equal(error.message, "");
    mgv__print(expected, 6, "%s", "123456789");
    assert_string_equal(expected, "12345");
    mgv__print(expected, 5, "%u", (uint64_t)12345); /* a number that does not fit is left out whole */
    assert_string_equal(expected, "");
    mgv__print(expected, 10, "%u%s", (uint64_t)1234, "5");
    assert_string_equal(expected, "12345");
    mgv__fail_nomem(&error, "this", 12);
    assert_int_equal(error.code, MGV_ERROR_NOMEM);
    assert_string_equal(error.message, "out of memory: this needs 12 bytes");
}

static char logged[600];
static int32_t logged_level;
static void keep_log(void *user, int32_t level, const char *message) {
    ++*(int *)user;
    logged_level = level;
    strcpy(logged, message);
}
static void logs(void **state) {
    mgv_logger logger = {NULL, NULL};
    int count = 0;
    (void)state;
    mgv__log(&logger, MGV_LOG_ERROR, "nobody listens");
    logger.user = &count;
    logger.log = keep_log;
    mgv__log(&logger, MGV_LOG_WARNING, "%u %s", (uint64_t)3, "x");
    assert_int_equal(count, 1);
    assert_int_equal(logged_level, MGV_LOG_WARNING);
    assert_string_equal(logged, "3 x");
}

static void results_have_names_and_texts(void **state) {
    int32_t i, j;
    (void)state;
    assert_string_equal(mgv_result_name(MGV_OK), "MGV_OK");
    assert_string_equal(mgv_result_name(MGV_ERROR_ARGUMENT), "MGV_ERROR_ARGUMENT");
    assert_string_equal(mgv_result_name(MGV_ERROR_NOMEM), "MGV_ERROR_NOMEM");
    assert_string_equal(mgv_result_name(MGV_ERROR_IO), "MGV_ERROR_IO");
    assert_string_equal(mgv_result_name(MGV_ERROR_FORMAT), "MGV_ERROR_FORMAT");
    assert_string_equal(mgv_result_name(MGV_ERROR_MODEL), "MGV_ERROR_MODEL");
    assert_string_equal(mgv_result_name(MGV_ERROR_UNSUPPORTED), "MGV_ERROR_UNSUPPORTED");
    assert_string_equal(mgv_result_name(MGV_ERROR_CAPACITY), "MGV_ERROR_CAPACITY");
    assert_string_equal(mgv_result_name(MGV_ERROR_BUSY), "MGV_ERROR_BUSY");
    assert_string_equal(mgv_result_name(MGV_ERROR_TIMEOUT), "MGV_ERROR_TIMEOUT");
    assert_string_equal(mgv_result_name(MGV_ERROR_NO_DEVICE), "MGV_ERROR_NO_DEVICE");
    assert_string_equal(mgv_result_name(MGV_ERROR_DEVICE), "MGV_ERROR_DEVICE");
    assert_string_equal(mgv_result_name(MGV_ERROR_DEVICE_LOST), "MGV_ERROR_DEVICE_LOST");
    assert_string_equal(mgv_result_name(MGV_ERROR_CANCELLED), "MGV_ERROR_CANCELLED");
    assert_string_equal(mgv_result_name(MGV_ERROR_CANCELLED - 1), "MGV_ERROR_UNKNOWN");
    assert_string_equal(mgv_result_name(1), "MGV_ERROR_UNKNOWN");
    assert_string_equal(mgv_result_name(INT32_MIN), "MGV_ERROR_UNKNOWN");
    assert_string_equal(mgv_result_name(INT32_MAX), "MGV_ERROR_UNKNOWN");
    for (i = MGV_ERROR_CANCELLED - 1; i <= 0; i++) {
        for (j = i + 1; j <= 0; j++) assert_string_not_equal(mgv_result_text(i), mgv_result_text(j));
    }
    assert_string_equal(mgv_version(), MGV_VERSION);
    for (i = 1; i < MGV_DTYPE_COUNT; i++) {
        for (j = i + 1; j < MGV_DTYPE_COUNT; j++) assert_string_not_equal(mgv_dtype_name(i), mgv_dtype_name(j));
    }
}

typedef struct small_struct {
    uint32_t struct_size, a, b;
} small_struct;
static void structs_of_other_versions(void **state) {
    small_struct in = {0, 1, 2}, out;
    mgv_error error;
    (void)state;
    assert_int_equal(mgv__take_struct(&out, sizeof out, NULL, 0, "s", &error), MGV_OK);
    assert_int_equal(out.a + out.b, 0);
    assert_int_equal(mgv__take_struct(&out, sizeof out, &in, 0, "s", &error), MGV_OK);
    assert_int_equal(out.b, 2);
    assert_int_equal(mgv__take_struct(&out, sizeof out, &in, 8, "s", &error), MGV_OK);
    assert_int_equal(out.a, 1);
    assert_int_equal(out.b, 0);
    assert_int_equal(mgv__take_struct(&out, sizeof out, &in, 12, "s", &error), MGV_OK);
    assert_int_equal(mgv__take_struct(&out, sizeof out, &in, 13, "s", &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv__take_struct(&out, sizeof out, &in, 3, "s", &error), MGV_ERROR_ARGUMENT);
    assert_string_equal(error.message, "s.struct_size is 3; this version of megavit knows 12 bytes");
}

static uint64_t compares;
static int by_value(const void *context, uint32_t a, uint32_t b) {
    const uint32_t *values = (const uint32_t *)context;
    compares++;
    return values[a] < values[b] ? -1 : values[a] > values[b];
}
/* In order, stable, with few comparisons, for every length and several patterns; what lies behind stays as it was. */
static void sorting(void **state) {
    enum { MOST = 300 };
    uint32_t values[MOST], items[MOST + 1], scratch[MOST + 1], count, pattern, i, seed = 1;
    (void)state;
    for (count = 0; count <= MOST; count++) {
        for (pattern = 0; pattern < 5; pattern++) {
            for (i = 0; i < count; i++) {
                seed = seed * 1664525u + 1013904223u;
                values[i] = pattern == 0 ? i : pattern == 1 ? count - i : pattern == 2 ? seed >> 16 : pattern == 3 ? (seed >> 16) % 4 : 7;
                items[i] = i;
            }
            items[count] = scratch[count] = 0xABCD;
            compares = 0;
            mgv__sort(items, scratch, count, by_value, values);
            for (i = 1; i < count; i++) {
                assert_true(values[items[i - 1]] < values[items[i]] || (values[items[i - 1]] == values[items[i]] &&
                                                                        items[i - 1] < items[i]));
            }
            assert_int_equal(items[count], 0xABCD);
            assert_int_equal(scratch[count], 0xABCD);
            assert_true(compares <= (uint64_t)count * 10);
            if (pattern == 0 || pattern == 4) assert_true(compares < (uint64_t)count + 1);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_report_overflow),
        cmocka_unit_test(memory_is_aligned),
        cmocka_unit_test(memory_that_is_not_there),
        cmocka_unit_test(utf8),
        cmocka_unit_test(messages),
        cmocka_unit_test(logs),
        cmocka_unit_test(results_have_names_and_texts),
        cmocka_unit_test(structs_of_other_versions),
        cmocka_unit_test(sorting),
    };
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
