/* Any bytes as JSON. What is accepted is walked to its last value, must be read the same a second time, and its numbers
   must be what the C library makes of them. */
#include <math.h>

#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "fuzz.h"

static void walk(char *value, int depth) {
    char *at = value + 1, *key, *item;
    REQUIRE(depth <= MGV__JSON_MAX_DEPTH + (*value != '{' && *value != '[')); /* what the innermost holds lies one level deeper */
    if (*value == '{') {
        while (mgv__json_next(&at, &key, &item)) {
            REQUIRE(*key == '"');
            walk(item, depth + 1);
            (void)mgv__json_string(key, key);
        }
    } else if (*value == '[') {
        while (mgv__json_next(&at, NULL, &item)) walk(item, depth + 1);
    } else if (*value == '"') {
        size_t room = (size_t)(mgv__json_skip_string(value) - value);
        const char *string = mgv__json_string(value, value);
        REQUIRE(strlen(string) < room);
        for (; *string; string += mgv__utf8_length(string, strlen(string))) REQUIRE(mgv__utf8_length(string, strlen(string)) > 0);
    } else if (*value != 't' && *value != 'f' && *value != 'n') {
        double ours = 0, theirs;
        uint64_t integer;
        size_t length = (size_t)(mgv__json_skip_value(value) - value);
        char number[1024];
        int good = mgv__json_double(value, &ours);
        if (mgv__json_u64(value, &integer)) REQUIRE(good && ours == (double)integer);
        if (length >= sizeof number) return;
        memcpy(number, value, length);
        number[length] = 0;
        theirs = strtod(number, NULL);
        if (isinf(theirs)) REQUIRE(!good);
        else REQUIRE(good && memcmp(&ours, &theirs, sizeof ours) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_allocator counts;
    mgv_allocator allocator = fuzz_allocator_make(&counts, data, size);
    char *text = (char *)malloc(size + 1), *again;
    mgv_error error;
    mgv_result result;
    if (size > 0) memcpy(text, data, size);
    text[size] = 0;
    result = mgv__json_check(text, size, "fuzz", &allocator, &error);
    REQUIRE(result == MGV_OK || result == MGV_ERROR_FORMAT || (result == MGV_ERROR_NOMEM && counts.failed));
    REQUIRE(counts.live_bytes == 0 && counts.peak_bytes <= 4 * size + 1024);
    if (result == MGV_OK) {
        again = (char *)malloc(size + 1);
        memcpy(again, text, size + 1);
        counts.fail_at = 0;
        REQUIRE(mgv__json_check(again, size, "fuzz", &allocator, &error) == MGV_OK);
        REQUIRE(memcmp(again, text, size) == 0);
        free(again);
        walk(mgv__json_skip_space(text), 1);
    }
    free(text);
    return 0;
}
