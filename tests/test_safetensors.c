/* Safetensors files, shard indexes and where files come from: what is accepted, what is refused with which code, and
   what it costs. The rows are those of the project's table of 34 inputs on which readers of the format differ. */
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "support.h"

/* ---- One file in memory ---- */

static mgv_result open_bytes(const void *bytes, size_t count, const mgv_allocator *allocator, mgv_safetensors **file, mgv_error *error) {
    mgv_safetensors_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.data = bytes;
    desc.bytes = count;
    if (allocator != NULL) desc.allocator = *allocator;
    return mgv_safetensors_open(file, &desc, error);
}
/* Everything a handle gives out can be read; under the sanitizers this touches every byte. */
static void use_everything(mgv_safetensors *file) {
    uint32_t i, found;
    for (i = 0; i < mgv_safetensors_tensor_count(file); i++) {
        mgv_tensor_info info;
        uint64_t elements = 1, d;
        unsigned char *data;
        mgv_error error;
        assert_int_equal(mgv_safetensors_get_tensor(file, i, &info), MGV_OK);
        assert_true(info.rank <= MGV_MAX_RANK);
        for (d = 0; d < info.rank; d++) elements *= info.shape[d];
        assert_int_equal(elements * mgv_dtype_bits(info.dtype) / 8, info.bytes);
        data = (unsigned char *)malloc((size_t)info.bytes + 1);
        if (mgv_safetensors_read(file, i, data, info.bytes, &error) != MGV_OK) fail_msg("%s", error.message);
        free(data);
        assert_int_equal(mgv_safetensors_find(file, info.name, &found), MGV_OK);
        assert_int_equal(found, i);
        assert_true(strlen(info.file) > 0);
    }
    for (i = 0; i < mgv_safetensors_metadata_count(file); i++) {
        const char *key, *value;
        assert_int_equal(mgv_safetensors_get_metadata(file, i, &key, &value), MGV_OK);
        assert_true(strlen(key) + strlen(value) < 1000000);
    }
}

typedef struct header_case {
    int row; /* of the table; 0: not in it */
    const char *header;
    uint64_t data_bytes;
    mgv_result code;
    const char *sentence; /* a part of the message */
} header_case;
#define FORMAT MGV_ERROR_FORMAT
#define T(rest) "{\"t\":{" rest "}}"
#define U8(name, begin, end, count) "\"" name "\":{\"dtype\":\"U8\",\"shape\":[" #count "],\"data_offsets\":[" #begin "," #end "]}"
#define SHAPE(dtype, shape, end) "{\"t\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[0," #end "]}}"
static const header_case header_cases[] = {
    {4, "", 0, FORMAT, "not an object"},
    {4, "{", 0, FORMAT, "JSON"},
    {4, "{\"t\":{\"dtype\":\"U8\"", 0, FORMAT, "JSON"},
    {4, "{/*x*/}", 0, FORMAT, "JSON"},
    {4, "{} // x", 0, FORMAT, "JSON"},
    {4, "{" U8("t", 0, 1, 1) ",}", 1, FORMAT, "JSON"},
    {4, "{'t':{'dtype':'U8','shape':[1],'data_offsets':[0,1]}}", 1, FORMAT, "JSON"},
    {4, "\xEF\xBB\xBF{}", 0, FORMAT, "not an object"},
    {4, "{}x", 0, FORMAT, "follows"},
    {5, "{\"\xFF\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, FORMAT, "UTF-8"},
    {5, "{\"\xC0\xAF\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, FORMAT, "UTF-8"},
    {5, "{\"\xED\xA0\x80\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, FORMAT, "UTF-8"},
    {6, "[]", 0, FORMAT, "not an object"},
    {6, "null", 0, FORMAT, "not an object"},
    {6, "\"{}\"", 0, FORMAT, "not an object"},
    {7, "  \n\t{" U8("t", 0, 1, 1) "}", 1, MGV_OK, NULL},
    {8, "{" U8("t", 0, 1, 1) "} \t\r\n  ", 1, MGV_OK, NULL},
    {9, T("\"shape\":[1],\"data_offsets\":[0,1]"), 1, FORMAT, "\"t\" has no dtype"},
    {9, T("\"dtype\":\"U8\",\"data_offsets\":[0,1]"), 1, FORMAT, "\"t\" has no shape"},
    {9, T("\"dtype\":\"U8\",\"shape\":[1]"), 1, FORMAT, "\"t\" has no data_offsets"},
    {9, "{\"t\":null}", 0, FORMAT, "\"t\" is not an object"},
    {9, "{\"t\":{}}", 0, FORMAT, "\"t\" has no dtype"},
    {9, "{\"t\":5}", 0, FORMAT, "\"t\" is not an object"},
    {10, SHAPE("F31", "1", 4), 4, FORMAT, "\"F31\" is no dtype"},
    {10, SHAPE("f32", "1", 4), 4, FORMAT, "\"f32\" is no dtype"},
    {10, SHAPE("", "1", 4), 4, FORMAT, "\"\" is no dtype"},
    {10, SHAPE("F32 ", "1", 4), 4, FORMAT, "is no dtype"},
    {10, SHAPE("?", "1", 0), 0, FORMAT, "is no dtype"},
    {10, T("\"dtype\":17,\"shape\":[1],\"data_offsets\":[0,4]"), 4, FORMAT, "dtype is not a string"},
    {10, T("\"dtype\":null,\"shape\":[1],\"data_offsets\":[0,4]"), 4, FORMAT, "dtype is not a string"},
    {11, T("\"dtype\":{\"F32\":null},\"shape\":[1],\"data_offsets\":[0,4]"), 4, FORMAT, "dtype is not a string"},
    {11, "{\"t\":[\"F32\",[1],[0,4]]}", 4, FORMAT, "\"t\" is not an object"},
    {12, T("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"extra\":{\"x\":[1.5,null]}"), 1, MGV_OK, NULL},
    {12, T("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"Dtype\":3"), 1, MGV_OK, NULL},
    {13, SHAPE("U8", "1.0", 1), 1, FORMAT, "shape is not an array of integers"},
    {13, SHAPE("U8", "1e0", 1), 1, FORMAT, "shape is not an array of integers"},
    {13, SHAPE("U8", "1e3", 1), 1, FORMAT, "shape is not an array of integers"},
    {13, SHAPE("U8", "-1", 1), 1, FORMAT, "shape is not an array of integers"},
    {13, SHAPE("U8", "-0", 0), 0, FORMAT, "shape is not an array of integers"},
    {13, SHAPE("U8", "01", 1), 1, FORMAT, "leading zero"},
    {13, SHAPE("U8", "18446744073709551616", 1), 1, FORMAT, "shape is not an array of integers"},
    {13, SHAPE("U8", "1e400", 1), 1, FORMAT, "10^308"},
    {12, T("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1e400"), 1, FORMAT, "10^308"},
    {13, SHAPE("U8", "NaN", 1), 1, FORMAT, "JSON"},
    {13, SHAPE("U8", "\"1\"", 1), 1, FORMAT, "shape is not an array of integers"},
    {13, SHAPE("U8", "true", 1), 1, FORMAT, "shape is not an array of integers"},
    {13, SHAPE("U8", "null", 1), 1, FORMAT, "shape is not an array of integers"},
    {13, SHAPE("U8", "[1]", 1), 1, FORMAT, "shape is not an array of integers"},
    {13, T("\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]"), 1, FORMAT, "shape is not an array of integers"},
    {13, T("\"dtype\":\"U8\",\"shape\":null,\"data_offsets\":[0,1]"), 1, FORMAT, "shape is not an array of integers"},
    {13, T("\"dtype\":\"U8\",\"shape\":{},\"data_offsets\":[0,1]"), 1, FORMAT, "shape is not an array of integers"},
    {13, T("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1.0]"), 1, FORMAT, "data_offsets are not two integers"},
    {13, T("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[-0,1]"), 1, FORMAT, "data_offsets are not two integers"},
    {13, T("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,18446744073709551617]"), 1, FORMAT, "data_offsets are not two integers"},
    {13, T("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":\"0,1\""), 1, FORMAT, "data_offsets are not two integers"},
    {13, T("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":1"), 1, FORMAT, "data_offsets are not two integers"},
    {14, T("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[]"), 1, FORMAT, "data_offsets are not two integers"},
    {14, T("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]"), 1, FORMAT, "data_offsets are not two integers"},
    {14, T("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,1]"), 1, FORMAT, "data_offsets are not two integers"},
    {15, T("\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]"), 1, FORMAT, "already has"},
    {15, T("\"dtype\":\"U8\",\"shape\":[1],\"shape\":[1],\"data_offsets\":[0,1]"), 1, FORMAT, "already has"},
    {15, T("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"data_offsets\":[0,1]"), 1, FORMAT, "already has"},
    {15, "{\"__metadata__\":{},\"__metadata__\":{}}", 0, FORMAT, "already has"},
    {16, "{" U8("t", 0, 1, 1) "," U8("t", 0, 1, 1) "}", 1, FORMAT, "already has"},
    {16, "{" U8("t", 0, 1, 1) "," U8("\\u0074", 0, 1, 1) "}", 1, FORMAT, "already has"},
    {17, "{" U8("t", 0, 1, 1) "," U8("t", 1, 2, 1) "}", 2, FORMAT, "already has"},
    {18, "{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, FORMAT, "already has"},
    {18, "{\"__metadata__\":{\"a\":\"1\",\"\\u0061\":\"2\"}}", 0, FORMAT, "already has"},
    {19, "{\"__metadata__\":{\"a\":1}}", 0, FORMAT, "\"a\" is not a string"},
    {19, "{\"__metadata__\":{\"a\":null}}", 0, FORMAT, "\"a\" is not a string"},
    {19, "{\"__metadata__\":{\"a\":{}}}", 0, FORMAT, "\"a\" is not a string"},
    {19, "{\"__metadata__\":[]}", 0, FORMAT, "__metadata__ is not an object"},
    {19, "{\"__metadata__\":\"x\"}", 0, FORMAT, "__metadata__ is not an object"},
    {20, "{\"__metadata__\":{}}", 0, MGV_OK, NULL},
    {20, "{\"__metadata__\":null," U8("t", 0, 1, 1) "}", 1, MGV_OK, NULL},
    {20, "{\"__metadata__\":{\"format\":\"pt\",\"\":\"\"}," U8("t", 0, 1, 1) "}", 1, MGV_OK, NULL},
    {21, "{" U8("t", 2, 1, 1) "}", 2, FORMAT, "no range"},
    {21, "{" U8("t", 1, 2, 1) "}", 2, FORMAT, "no hole"},
    {21, "{" U8("a", 0, 1, 1) "," U8("b", 2, 3, 1) "}", 3, FORMAT, "\"b\" begins"},
    {21, "{" U8("a", 0, 2, 2) "," U8("b", 1, 3, 2) "}", 3, FORMAT, "\"b\" begins"},
    {21, "{" U8("a", 0, 2, 2) "," U8("b", 0, 2, 2) "}", 2, FORMAT, "not overlap"},
    {21, "{" U8("a", 0, 3, 3) "," U8("b", 1, 2, 1) "}", 3, FORMAT, "not overlap"},
    {22, "{" U8("a", 0, 2, 2) "," U8("z", 1, 1, 0) "}", 2, FORMAT, "\"z\" begins"},
    {22, "{" U8("a", 0, 2, 2) "," U8("z", 2, 2, 0) "}", 2, MGV_OK, NULL},
    {22, "{" U8("a", 0, 2, 2) "," U8("z", 0, 0, 0) "," U8("y", 0, 0, 0) "}", 2, MGV_OK, NULL},
    {23, "{" U8("b", 1, 2, 1) "," U8("a", 0, 1, 1) "}", 2, MGV_OK, NULL},
    {24, SHAPE("F32", "4194305,4194305,211106198978564", 4), 4, FORMAT, "2^64"},
    {24, SHAPE("U8", "2,18446744073709551614", 4), 4, FORMAT, "2^64"},
    {24, SHAPE("U8", "2,9223372036854775807", 0), 0, FORMAT, "2^64"},
    {24, SHAPE("F32", "4611686018427387904", 0), 0, FORMAT, "2^64"},
    {24, SHAPE("U8", "4294967296,4294967296,0", 0), 0, FORMAT, "2^64"},
    {24, SHAPE("U8", "0,4294967296,4294967296", 0), 0, FORMAT, "2^64"},
    {24, SHAPE("U8", "0,18446744073709551615", 0), 0, FORMAT, "2^64"},
    {24, SHAPE("U8", "0,2305843009213693951", 0), 0, MGV_OK, NULL},
    {25, SHAPE("F4", "1", 1), 1, FORMAT, "whole bytes"},
    {25, SHAPE("F4", "3", 2), 2, FORMAT, "whole bytes"},
    {25, SHAPE("F6_E2M3", "2", 2), 2, FORMAT, "whole bytes"},
    {25, SHAPE("F4", "2", 1), 1, MGV_OK, NULL},
    {25, SHAPE("F6_E3M2", "4", 3), 3, MGV_OK, NULL},
    {26, SHAPE("F32", "1", 3), 3, FORMAT, "give it 3 bytes, dtype and shape 4"},
    {26, SHAPE("F32", "1", 8), 8, FORMAT, "give it 8 bytes, dtype and shape 4"},
    {26, SHAPE("F32", "0", 4), 4, FORMAT, "give it 4 bytes, dtype and shape 0"},
    {26, SHAPE("F32", "", 0), 0, FORMAT, "give it 0 bytes, dtype and shape 4"},
    {27, SHAPE("F32", "1", 4), 3, FORMAT, "is incomplete: it has 65 bytes, and its header describes 66"},
    {27, SHAPE("F32", "1", 4), 5, FORMAT, "the file has"},
    {27, "{}", 1, FORMAT, "the file has"},
    {28, "{\"a\nb\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, FORMAT, "control character"},
    {28, "{" U8("a\\q", 0, 1, 1) "}", 1, FORMAT, "escape"},
    {28, "{" U8("a\\ud800", 0, 1, 1) "}", 1, FORMAT, "surrogate"},
    {28, T("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":NaN"), 1, FORMAT, "JSON"},
    {29, SHAPE("F32", "", 4), 4, MGV_OK, NULL},
    {29, SHAPE("F32", "0", 0), 0, MGV_OK, NULL},
    {29, SHAPE("U8", "1,1,1,1,1,1,1,2", 2), 2, MGV_OK, NULL},
    {29, SHAPE("U8", "1,1,1,1,1,1,1,1,2", 2), 2, MGV_ERROR_UNSUPPORTED, "more than 8 dimensions"},
    {30, "{" U8("a", 0, 1, 1) ",\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[1,9]}}", 9, MGV_OK, NULL},
    {31, "{" U8("", 0, 1, 1) "}", 1, MGV_OK, NULL},
    {31, "{" U8("a\\u0000b", 0, 1, 1) "}", 1, FORMAT, "U+0000"},
    {32, SHAPE("BOOL", "3", 3), 3, MGV_OK, NULL}, /* its third byte is 2 */
    {33, "{}", 0, MGV_OK, NULL},
    {0, "{\"a/b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, MGV_OK, NULL},
    {0, "{\"t\":{\"dtype\":\"U8\",\"shape\":[9007199254740993],\"data_offsets\":[0,9007199254740993]}}", 1, FORMAT, "its header describes 9007199254741084"},
    {0, "{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[18446744073709551614,18446744073709551615]}}", 1, FORMAT, "no range"},
    {0, "{\"t\":{\"dtype\":\"\\u00558\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, MGV_OK, NULL}, /* an escaped "U8" is "U8" */
    {0, SHAPE("I32", "1", 4), 4, MGV_OK, NULL}, /* the same bytes as F32: nothing in the file can tell */
};

static void every_row(void **state) {
    int seen[35];
    size_t i;
    (void)state;
    memset(seen, 0, sizeof seen);
    for (i = 0; i < COUNT_OF(header_cases); i++) {
        const header_case *test = &header_cases[i];
        counting_allocator counts;
        mgv_allocator allocator = counting_allocator_make(&counts);
        mgv_safetensors *file = (mgv_safetensors *)&file;
        unsigned char *bytes;
        size_t count = make_safetensors(test->header, strlen(test->header), test->data_bytes, &bytes);
        mgv_error error;
        mgv_result result = open_bytes(bytes, count, &allocator, &file, &error);
        if (result != test->code) {
            fail_msg("row %d, %s: %s, not %s: %s", test->row, test->header, mgv_result_name(result), mgv_result_name(test->code),
                     result != MGV_OK ? error.message : "");
        }
        if (result != MGV_OK) {
            assert_null(file);
            assert_int_equal(error.code, result);
            if (strstr(error.message, test->sentence) == NULL) fail_msg("row %d, %s: %s", test->row, test->header, error.message);
            if (strstr(error.message, "the file in memory") != error.message) fail_msg("no file named: %s", error.message);
        } else {
            use_everything(file);
        }
        mgv_safetensors_close(file);
        assert_int_equal(counts.live_blocks, 0);
        free(bytes);
        seen[test->row] = 1;
    }
    for (i = 4; i <= 33; i++) {
        if (!seen[i]) fail_msg("row %zu has no case", i);
    }
    print_message("%zu headers\n", COUNT_OF(header_cases));
}

static mgv_result open_length(uint64_t n, size_t total, uint64_t max_header_bytes, mgv_error *error) {
    mgv_safetensors_desc desc;
    mgv_safetensors *file;
    mgv_result result;
    unsigned char *bytes = (unsigned char *)malloc(total + 1);
    size_t i;
    memset(bytes, ' ', total);
    for (i = 0; i < 8 && i < total; i++) bytes[i] = (unsigned char)(n >> (8 * i));
    if (total >= 10) memcpy(bytes + 8, "{}", 2);
    memset(&desc, 0, sizeof desc);
    desc.data = bytes;
    desc.bytes = total;
    desc.max_header_bytes = max_header_bytes;
    result = mgv_safetensors_open(&file, &desc, error);
    mgv_safetensors_close(file);
    free(bytes);
    return result;
}
/* Rows 1 to 3, and the container cases. */
static void lengths(void **state) {
    static const uint64_t too_long[] = {100000001, (uint64_t)1 << 31, (uint64_t)1 << 32, (uint64_t)1 << 63, UINT64_MAX, UINT64_MAX - 7};
    mgv_error error;
    size_t i;
    (void)state;
    for (i = 0; i < 8; i++) assert_int_equal(open_length(0, i, 0, &error), FORMAT); /* row 1 */
    assert_non_null(strstr(error.message, "7 bytes are no safetensors file"));
    assert_int_equal(open_length(0, 8, 0, &error), FORMAT);
    assert_int_equal(open_length(1, 9, 0, &error), FORMAT);
    for (i = 0; i < COUNT_OF(too_long); i++) { /* row 2 */
        assert_int_equal(open_length(too_long[i], 100, 0, &error), FORMAT);
        assert_non_null(strstr(error.message, "more than the 100000000 allowed"));
    }
    assert_int_equal(open_length(100000000, 100, 0, &error), FORMAT); /* row 3: allowed, but beyond the file */
    assert_non_null(strstr(error.message, "in a file of 100"));
    assert_int_equal(open_length(93, 100, 0, &error), FORMAT);
    assert_int_equal(open_length(92, 100, 0, &error), MGV_OK);
    assert_int_equal(open_length(91, 100, 0, &error), FORMAT); /* one byte of data that no tensor has */
    assert_int_equal(open_length(92, 100, 91, &error), FORMAT);
    assert_non_null(strstr(error.message, "more than the 91 allowed"));
    assert_int_equal(open_length(92, 100, 92, &error), MGV_OK);
}
/* NUL padding and the tails of polyglots: a ZIP or PDF behind the data, or inside the header. */
static void tails(void **state) {
    static const char nul_padded[] = "{}\0\0\0\0\0\0";
    unsigned char *bytes;
    mgv_safetensors *file;
    mgv_error error;
    size_t count;
    (void)state;
    count = make_safetensors(nul_padded, 8, 0, &bytes);
    assert_int_equal(open_bytes(bytes, count, NULL, &file, &error), FORMAT);
    free(bytes);
    count = make_safetensors("{} PK\x03\x04", 7, 0, &bytes);
    assert_int_equal(open_bytes(bytes, count, NULL, &file, &error), FORMAT);
    free(bytes);
    count = make_safetensors("{}", 2, 22, &bytes);
    memcpy(bytes + 10, "PK\x05\x06", 4);
    assert_int_equal(open_bytes(bytes, count, NULL, &file, &error), FORMAT);
    free(bytes);
}
/* Row 28: a field that is skipped may nest as deep as everything else. Depth 3 is the first bracket of the field. */
static void nesting_in_a_skipped_field(void **state) {
    size_t depth;
    (void)state;
    for (depth = 1; depth <= 200; depth += depth == 63 ? 1 : 31) {
        char header[700];
        size_t n = (size_t)sprintf(header, "{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":"), i;
        unsigned char *bytes;
        mgv_safetensors *file;
        mgv_error error;
        size_t count;
        for (i = 0; i < depth; i++) header[n++] = '[';
        for (i = 0; i < depth; i++) header[n++] = ']';
        header[n++] = '}';
        header[n++] = '}';
        count = make_safetensors(header, n, 1, &bytes);
        assert_int_equal(open_bytes(bytes, count, NULL, &file, &error), depth <= 62 ? MGV_OK : FORMAT);
        mgv_safetensors_close(file);
        free(bytes);
    }
}
static void ranks(void **state) {
    uint32_t rank;
    (void)state;
    for (rank = 0; rank <= 1000; rank += rank < 12 ? 1 : 494) {
        char header[2200];
        size_t n = (size_t)sprintf(header, "{\"t\":{\"dtype\":\"U8\",\"shape\":["), count;
        uint32_t i;
        unsigned char *bytes;
        mgv_safetensors *file;
        mgv_tensor_info info;
        mgv_error error;
        for (i = 0; i < rank; i++) n += (size_t)sprintf(header + n, i ? ",1" : "1");
        n += (size_t)sprintf(header + n, "],\"data_offsets\":[0,1]}}");
        count = make_safetensors(header, n, 1, &bytes);
        assert_int_equal(open_bytes(bytes, count, NULL, &file, &error), rank <= 8 ? MGV_OK : MGV_ERROR_UNSUPPORTED);
        if (rank <= 8) {
            assert_int_equal(mgv_safetensors_get_tensor(file, 0, &info), MGV_OK);
            assert_int_equal(info.rank, rank);
        }
        mgv_safetensors_close(file);
        free(bytes);
    }
}
/* All 22 dtypes, with the bits that the format gives them. */
static void dtypes(void **state) {
    static const struct {
        const char *name;
        uint32_t bits;
    } rows[] = {
        {"BOOL", 8}, {"F4", 4}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8}, {"I8", 8}, {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8},
        {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16}, {"U16", 16}, {"F16", 16}, {"BF16", 16}, {"I32", 32}, {"U32", 32}, {"F32", 32},
        {"C64", 64}, {"F64", 64}, {"I64", 64}, {"U64", 64},
    };
    size_t i;
    (void)state;
    assert_int_equal(COUNT_OF(rows), MGV_DTYPE_COUNT - 1);
    for (i = 0; i < COUNT_OF(rows); i++) {
        char header[200];
        unsigned char *bytes;
        mgv_safetensors *file;
        mgv_tensor_info info;
        mgv_error error;
        size_t count;
        sprintf(header, "{\"t\":{\"dtype\":\"%s\",\"shape\":[2,4],\"data_offsets\":[0,%u]}}", rows[i].name, (unsigned)rows[i].bits);
        count = make_safetensors(header, strlen(header), rows[i].bits, &bytes);
        if (open_bytes(bytes, count, NULL, &file, &error) != MGV_OK) fail_msg("%s", error.message);
        assert_int_equal(mgv_safetensors_get_tensor(file, 0, &info), MGV_OK);
        assert_string_equal(mgv_dtype_name(info.dtype), rows[i].name);
        assert_int_equal(mgv_dtype_bits(info.dtype), rows[i].bits);
        assert_int_equal(info.bytes, rows[i].bits);
        mgv_safetensors_close(file);
        free(bytes);
    }
    assert_int_equal(mgv_dtype_bits(0), 0);
    assert_int_equal(mgv_dtype_bits(-1), 0);
    assert_int_equal(mgv_dtype_bits(MGV_DTYPE_COUNT), 0);
    assert_string_equal(mgv_dtype_name(MGV_DTYPE_COUNT), "?");
}
static void what_is_given_out(void **state) {
    static const char header[] = "{\"__metadata__\":{\"for\\u006dat\":\"p\\nt\",\"b\":\"\"},\"y\":{\"dtype\":\"F32\",\"shape\":[2,1],"
                                 "\"data_offsets\":[3,11]},"
                                 "\"\\u00e9\\\"\":{\"data_offsets\":[0,3],\"shape\":[3],\"dtype\":\"U8\"},"
                                 "\"none\":{\"data_offsets\":[11,11],\"shape\":[0],\"dtype\":\"U8\"}}";
    unsigned char *bytes, data[8];
    size_t count = make_safetensors(header, sizeof header - 1, 11, &bytes);
    mgv_safetensors *file;
    mgv_tensor_info info;
    const char *key, *value;
    mgv_error error;
    uint32_t i;
    (void)state;
    assert_int_equal(open_bytes(bytes, count, NULL, &file, &error), MGV_OK);
    assert_int_equal(mgv_safetensors_tensor_count(file), 3);
    assert_int_equal(mgv_safetensors_read(file, 2, NULL, 0, &error), MGV_OK); /* an empty tensor needs no room */
    assert_int_equal(mgv_safetensors_get_tensor(file, 0, &info), MGV_OK);
    assert_string_equal(info.name, "y");
    assert_int_equal(info.dtype, MGV_DTYPE_F32);
    assert_int_equal(info.rank, 2);
    assert_int_equal(info.shape[0], 2);
    assert_int_equal(info.shape[1], 1);
    assert_int_equal(info.offset, 8 + sizeof header - 1 + 3);
    assert_int_equal(info.bytes, 8);
    assert_int_equal(mgv_safetensors_read(file, 0, data, 8, &error), MGV_OK);
    for (i = 0; i < 8; i++) assert_int_equal(data[i], 3 + i);
    assert_int_equal(mgv_safetensors_get_tensor(file, 1, &info), MGV_OK);
    assert_string_equal(info.name, "\xC3\xA9\"");
    assert_int_equal(mgv_safetensors_read(file, 1, data, 8, &error), MGV_OK);
    assert_int_equal(data[2], 2);
    assert_int_equal(mgv_safetensors_metadata_count(file), 2);
    assert_int_equal(mgv_safetensors_get_metadata(file, 0, &key, &value), MGV_OK);
    assert_string_equal(key, "format");
    assert_string_equal(value, "p\nt");
    assert_int_equal(mgv_safetensors_get_metadata(file, 1, &key, &value), MGV_OK);
    assert_string_equal(key, "b");
    assert_string_equal(value, "");
    assert_int_equal(mgv_safetensors_find(file, "\xC3\xA9\"", &i), MGV_OK);
    assert_int_equal(i, 1);
    assert_int_equal(mgv_safetensors_find(file, "z", &i), MGV_ERROR_MODEL);
    assert_int_equal(mgv_safetensors_find(file, "", &i), MGV_ERROR_MODEL);
    /* Arguments that no call can accept. */
    assert_int_equal(mgv_safetensors_get_tensor(file, 3, &info), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_safetensors_get_tensor(NULL, 0, &info), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_safetensors_get_tensor(file, 0, NULL), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_safetensors_get_metadata(file, 2, &key, &value), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_safetensors_get_metadata(NULL, 0, &key, &value), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_safetensors_get_metadata(file, 0, NULL, &value), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_safetensors_get_metadata(file, 0, &key, NULL), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_safetensors_find(NULL, "y", &i), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_safetensors_find(file, NULL, &i), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_safetensors_find(file, "y", NULL), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_safetensors_read(file, 0, data, 7, &error), MGV_ERROR_CAPACITY);
    assert_non_null(strstr(error.message, "\"y\" has 8 bytes, there is room for 7"));
    assert_int_equal(mgv_safetensors_read(file, 0, NULL, 8, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_safetensors_read(file, 3, data, 8, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_safetensors_read(NULL, 0, data, 8, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_safetensors_tensor_count(NULL), 0);
    assert_int_equal(mgv_safetensors_metadata_count(NULL), 0);
    mgv_safetensors_close(file);
    mgv_safetensors_close(NULL);
    free(bytes);
}
static void arguments_of_open(void **state) {
    mgv_safetensors_desc desc;
    mgv_safetensors *file = (mgv_safetensors *)&desc;
    counting_allocator counts;
    fake_files files;
    mgv_error error;
    int which;
    (void)state;
    memset(&desc, 0, sizeof desc);
    assert_int_equal(mgv_safetensors_open(NULL, &desc, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_safetensors_open(&file, NULL, &error), MGV_ERROR_ARGUMENT);
    assert_null(file);
    assert_int_equal(mgv_safetensors_open(&file, &desc, &error), MGV_ERROR_ARGUMENT);
    desc.path = "x";
    desc.data = "x";
    assert_int_equal(mgv_safetensors_open(&file, &desc, &error), MGV_ERROR_ARGUMENT);
    desc.data = NULL;
    for (which = 1; which < 7; which++) { /* some of the three functions, but not all */
        desc.io = fake_files_make(&files, NULL, 0);
        if (!(which & 1)) desc.io.open = NULL;
        if (!(which & 2)) desc.io.read = NULL;
        if (!(which & 4)) desc.io.close = NULL;
        assert_int_equal(mgv_safetensors_open(&file, &desc, &error), MGV_ERROR_ARGUMENT);
        assert_non_null(strstr(error.message, "mgv_file_io"));
    }
    memset(&desc.io, 0, sizeof desc.io);
    desc.allocator = counting_allocator_make(&counts);
    desc.allocator.free = NULL;
    assert_int_equal(mgv_safetensors_open(&file, &desc, &error), MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "mgv_allocator"));
    assert_int_equal(mgv_safetensors_open(&file, &desc, NULL), MGV_ERROR_ARGUMENT);
}
/* A description from an older header ends early; its missing fields are zero. One from a newer header is refused: nobody here knows what
   it asks for. */
static void descriptions_of_other_versions(void **state) {
    unsigned char *bytes;
    size_t count = make_safetensors("{}", 2, 0, &bytes);
    union {
        mgv_safetensors_desc desc;
        char room[sizeof(mgv_safetensors_desc) + 64];
    } all;
    mgv_safetensors *file;
    mgv_error error;
    (void)state;
    memset(&all, 0xFF, sizeof all);
    all.desc.struct_size = offsetof(mgv_safetensors_desc, io);
    all.desc.path = NULL;
    all.desc.data = bytes;
    all.desc.bytes = count;
    assert_int_equal(mgv_safetensors_open(&file, &all.desc, &error), MGV_OK);
    mgv_safetensors_close(file);
    memset(&all, 0, sizeof all);
    memset(all.room + sizeof all.desc, 0xFF, 64);
    all.desc.struct_size = sizeof all;
    all.desc.data = bytes;
    all.desc.bytes = count;
    assert_int_equal(mgv_safetensors_open(&file, &all.desc, &error), MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "mgv_safetensors_desc.struct_size"));
    all.desc.struct_size = 3; /* not even the size itself */
    assert_int_equal(mgv_safetensors_open(&file, &all.desc, &error), MGV_ERROR_ARGUMENT);
    free(bytes);
}

/* ---- A small file, exhaustively (goal R3) ---- */

static const char micro_header[] = "{\"__metadata__\":{\"f\":\"pt\"},\"a\":{\"dtype\":\"F16\",\"shape\":[2,3],\"data_offsets\":[0,12]},"
                                   "\"\\u0062\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[12,12]},"
                                   "\"c\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[12,16]}}  ";
static void opens_or_says_why(const unsigned char *bytes, size_t count, const mgv_allocator *allocator, size_t *accepted) {
    mgv_safetensors *file;
    mgv_error error;
    mgv_result result = open_bytes(bytes, count, allocator, &file, &error);
    if (result == MGV_OK) {
        ++*accepted;
        use_everything(file);
        mgv_safetensors_close(file);
        return;
    }
    if (result != MGV_ERROR_FORMAT && result != MGV_ERROR_UNSUPPORTED) fail_msg("%s: %s", mgv_result_name(result), error.message);
    assert_null(file);
    assert_int_equal(error.code, result);
}
static void truncated_at_every_byte(void **state) {
    unsigned char *bytes;
    size_t count = make_safetensors(micro_header, sizeof micro_header - 1, 16, &bytes), i, accepted = 0;
    (void)state;
    for (i = 0; i <= count; i++) {
        unsigned char *cut = (unsigned char *)malloc(i + 1), *exact = (unsigned char *)realloc(cut, i ? i : 1);
        memcpy(exact, bytes, i);
        opens_or_says_why(exact, i, NULL, &accepted);
        free(exact);
    }
    assert_int_equal(accepted, 1);
    free(bytes);
}
static void every_byte_substituted(void **state) {
    counting_allocator counts;
    mgv_allocator allocator = counting_allocator_make(&counts);
    unsigned char *bytes;
    size_t count = make_safetensors(micro_header, sizeof micro_header - 1, 16, &bytes), i, accepted = 0;
    int value;
    (void)state;
    for (i = 0; i < 8 + sizeof micro_header - 1; i++) {
        unsigned char original = bytes[i];
        for (value = 0; value < 256; value++) {
            bytes[i] = (unsigned char)value;
            opens_or_says_why(bytes, count, &allocator, &accepted);
        }
        bytes[i] = original;
    }
    assert_int_equal(counts.live_blocks, 0);
    assert_true(counts.peak_bytes < 4 * count + 1048576);
    print_message("%zu substitutions, %zu accepted\n", (8 + sizeof micro_header - 1) * 256, accepted);
    assert_true(accepted > 8 + sizeof micro_header - 1); /* at least each byte by itself */
    free(bytes);
}
static void every_integer_replaced(void **state) {
    static const char *const integers[] = {
        "0", "1", "-1", "2147483647", "2147483648", "2147483649", "4294967295", "4294967296", "4294967297", "9007199254740991",
        "9007199254740992", "9007199254740993", "9223372036854775807", "9223372036854775808", "9223372036854775809",
        "18446744073709551615", "18446744073709551616",
        "1e308", "-0", "1.5", "", "null", "\"1\"",
    };
    static const char *const places[] = {"[2,3]", "[0,12]", "[0]", "[12,12]", "[]", "[12,16]"};
    size_t place, i, second, accepted = 0;
    (void)state;
    for (place = 0; place < COUNT_OF(places); place++) {
        const char *at = strstr(micro_header, places[place]);
        for (i = 0; i < COUNT_OF(integers); i++) {
            for (second = 0; second <= COUNT_OF(integers); second++) {
                char header[400];
                unsigned char *bytes;
                size_t n = (size_t)(at - micro_header), count;
                memcpy(header, micro_header, n);
                n += (size_t)sprintf(header + n, "[%s%s%s]", integers[i], second < COUNT_OF(integers) ? "," : "",
                                     second < COUNT_OF(integers) ? integers[second] : "");
                strcpy(header + n, at + strlen(places[place]));
                count = make_safetensors(header, strlen(header), 16, &bytes);
                opens_or_says_why(bytes, count, NULL, &accepted);
                free(bytes);
            }
        }
    }
    print_message("%zu accepted\n", accepted);
}
static void every_pair_of_offsets_swapped(void **state) {
    static const char form[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[%d,%d]},\"b\":{\"dtype\":\"U8\",\"shape\":[3],"
                               "\"data_offsets\":[%d,%d]},"
                               "\"c\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[%d,%d]}}";
    static const int offsets[6] = {0, 3, 3, 6, 6, 9};
    size_t accepted = 0;
    int i, j;
    (void)state;
    for (i = 0; i < 6; i++) {
        for (j = 0; j <= i; j++) {
            int o[6], t;
            char header[400];
            unsigned char *bytes;
            size_t count;
            memcpy(o, offsets, sizeof o);
            t = o[i];
            o[i] = o[j];
            o[j] = t;
            sprintf(header, form, o[0], o[1], o[2], o[3], o[4], o[5]);
            count = make_safetensors(header, strlen(header), 9, &bytes);
            opens_or_says_why(bytes, count, NULL, &accepted);
            free(bytes);
        }
    }
    assert_int_equal(accepted, 6 + 2); /* with itself, or with its equal neighbour */
}

/* ---- What it costs (goal R17) ---- */

static char *many_tensors(size_t tensors, const char *name, int shuffled, size_t *bytes) {
    char *header = (char *)malloc(tensors * (strlen(name) + 90) + 100);
    size_t n = 0, i;
    header[n++] = '{';
    for (i = 0; i < tensors; i++) {
        size_t at = shuffled ? i * 7919 % tensors : i;
        n += (size_t)sprintf(header + n, "%s\"%s%u\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%u,%u]}", i ? "," : "", name,
                             (unsigned)at,
                             (unsigned)at, (unsigned)at + 1);
    }
    header[n++] = '}';
    *bytes = n;
    return header;
}
static void a_hundred_thousand_tensors(void **state) {
    static const struct {
        const char *name;
        int shuffled;
    } kinds[] = {{"", 0}, {"", 1}, {"model.vision_tower.vision_model.encoder.layers.self_attn.q_proj.weight.", 1}};
    size_t kind, tensors = 100000;
    (void)state;
    for (kind = 0; kind < COUNT_OF(kinds); kind++) {
        counting_allocator counts;
        mgv_allocator allocator = counting_allocator_make(&counts);
        size_t header_bytes, count;
        char *header = many_tensors(tensors, kinds[kind].name, kinds[kind].shuffled, &header_bytes);
        unsigned char *bytes;
        mgv_safetensors *file;
        mgv_error error;
        clock_t start;
        double ms;
        count = make_safetensors(header, header_bytes, tensors, &bytes);
        start = clock();
        if (open_bytes(bytes, count, &allocator, &file, &error) != MGV_OK) fail_msg("%s", error.message);
        ms = (double)(clock() - start) / CLOCKS_PER_SEC * 1e3;
        print_message("%.1f MB: %.0f ms, %.1f ns a byte, memory %.2f times the file\n", (double)count / 1e6, ms, ms * 1e6 / (double)count,
                      (double)counts.peak_bytes / (double)count);
        assert_int_equal(mgv_safetensors_tensor_count(file), tensors);
        assert_true(counts.peak_bytes <= 4 * count + 1048576);
        mgv_safetensors_close(file);
        assert_int_equal(counts.live_blocks, 0);
        free(bytes);
        free(header);
    }
}
/* Inputs made to cost memory: the smallest entries, only keys, only metadata, only brackets, and files that lie about their size. */
static void memory_stays_below_four_times_the_file(void **state) {
    static const struct {
        const char *start, *piece, *end;
        int numbered;
    } kinds[] = {
        {"{", "%s\"%x\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}", "}", 1},
        {"{", "%s\"%x\":0", "}", 1},
        {"{\"__metadata__\":{", "%s\"%x\":\"\"", "}}", 1},
        {"{\"t\":[", "%s[]", "]}", 0},
        {"{\"t\":[", "%s0", "]}", 0},
        {"{\"t\":[", "%s{\"\":0}", "]}", 0},
        {"{\"", "%s:", "\":0}", 0},
        {"{\"", "%s\\n", "\":0}", 0},
    };
    size_t kind;
    (void)state;
    for (kind = 0; kind < COUNT_OF(kinds); kind++) {
        counting_allocator counts;
        mgv_allocator allocator = counting_allocator_make(&counts);
        size_t pieces = 300000, n, i, count, accepted = 0;
        char *header = (char *)malloc(pieces * 70 + 100);
        unsigned char *bytes;
        n = (size_t)sprintf(header, "%s", kinds[kind].start);
        for (i = 0; i < pieces; i++) {
            if (kinds[kind].numbered) n += (size_t)sprintf(header + n, kinds[kind].piece, i && kinds[kind].numbered ? "," : "",
                                                           (unsigned)i);
            else n += (size_t)sprintf(header + n, kinds[kind].piece, i && kind < 6 ? "," : "");
        }
        n += (size_t)sprintf(header + n, "%s", kinds[kind].end);
        count = make_safetensors(header, n, 0, &bytes);
        opens_or_says_why(bytes, count, &allocator, &accepted);
        print_message("%.20s...: %.2f times the file, %zu accepted\n", header, (double)counts.peak_bytes / (double)count, accepted);
        assert_true(counts.peak_bytes <= 4 * count + 1048576);
        assert_int_equal(counts.live_blocks, 0);
        free(bytes);
        free(header);
    }
}

/* ---- Shards ---- */

typedef struct shard_set {
    fake_file files[8];
    size_t count;
} shard_set;
static void add_file(shard_set *set, const char *name, const void *data, size_t bytes) {
    set->files[set->count].name = name;
    set->files[set->count].data = data;
    set->files[set->count].bytes = bytes;
    set->count++;
}
static void add_shard(shard_set *set, const char *name, const char *header, uint64_t data_bytes) {
    unsigned char *bytes;
    size_t count = make_safetensors(header, strlen(header), data_bytes, &bytes);
    add_file(set, name, bytes, count);
}
#define INDEX "m/model.safetensors.index.json"
static void two_shards(shard_set *set, const char *index) {
    memset(set, 0, sizeof *set);
    add_shard(set, "m/one.safetensors", "{" U8("a", 0, 1, 1) "," U8("b", 1, 3, 2) "}", 3);
    add_shard(set, "m/sub/two.safetensors", "{" U8("c", 0, 4, 4) "}", 4);
    add_file(set, INDEX, index, strlen(index));
}
static void free_shards(shard_set *set) {
    free((void *)(uintptr_t)set->files[0].data);
    free((void *)(uintptr_t)set->files[1].data);
}
static mgv_result open_set(const shard_set *set, mgv__source *source, mgv__checkpoint *checkpoint, fake_files *files,
                           counting_allocator *counts,
                           mgv_error *error) {
    mgv_model_desc desc;
    mgv_result result;
    memset(&desc, 0, sizeof desc);
    desc.path = "m";
    desc.io = fake_files_make(files, set->files, set->count);
    if (counts != NULL) desc.allocator = counting_allocator_make(counts);
    result = mgv__source_open(source, &desc, error);
    assert_int_equal(result, MGV_OK);
    return mgv__checkpoint_open(checkpoint, source, error);
}

static const char good_index[] = "{\"metadata\":{\"total_size\":7},\"weight_map\":{\"c\":\"sub/two.safetensors\","
                                 "\"a\":\"one.safetensors\",\"b\":\"one.safe\\u0074ensors\"}}";
static void two_shards_are_one_checkpoint(void **state) {
    mgv__source source;
    mgv__checkpoint checkpoint;
    counting_allocator counts;
    fake_files files;
    shard_set set;
    mgv_error error;
    const mgv__tensor *tensor;
    unsigned char data[8];
    (void)state;
    two_shards(&set, good_index);
    if (open_set(&set, &source, &checkpoint, &files, &counts, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_int_equal(checkpoint.shard_count, 2);
    assert_int_equal(checkpoint.tensor_count, 3);
    assert_int_equal(files.most_open, 1);
    tensor = mgv__checkpoint_find(&checkpoint, "c");
    assert_non_null(tensor);
    assert_string_equal(checkpoint.shards[tensor->file].name, "sub/two.safetensors");
    assert_int_equal(mgv__checkpoint_read(&checkpoint, tensor, data, &error), MGV_OK);
    assert_memory_equal(data, "\0\1\2\3", 4);
    tensor = mgv__checkpoint_find(&checkpoint, "b");
    assert_string_equal(checkpoint.shards[tensor->file].name, "one.safetensors");
    assert_int_equal(mgv__checkpoint_read(&checkpoint, tensor, data, &error), MGV_OK);
    assert_memory_equal(data, "\1\2", 2);
    assert_null(mgv__checkpoint_find(&checkpoint, "d"));
    assert_int_equal(files.most_open, 1);
    mgv__checkpoint_close(&checkpoint);
    assert_int_equal(files.open_now, 0);
    assert_int_equal(counts.live_blocks, 0);
    free_shards(&set);
}

#define MAP(entries) "{\"weight_map\":{" entries "}}"
static void shard_indexes(void **state) {
    static const struct {
        const char *index;
        mgv_result code;
        const char *sentence;
    } cases[] = {
        {MAP("\"a\":\"one.safetensors\""), MGV_OK, NULL}, /* what it does not list is there all the same, as in transformers */
        {"{\"metadata\":{\"total_size\":-5},\"weight_map\":{\"a\":\"one.safetensors\"}}", MGV_OK, NULL},
        {"{\"metadata\":{\"total_size\":1e99},\"weight_map\":{\"a\":\"one.safetensors\"}}", MGV_OK, NULL},
        {"", FORMAT, "not an object"},
        {"[]", FORMAT, "not an object"},
        {"{}", FORMAT, "weight_map is not an object"},
        {"{\"weight_map\":[]}", FORMAT, "weight_map is not an object"},
        {"{\"weight_map\":null}", FORMAT, "weight_map is not an object"},
        {"{\"weight_map\":{}}", FORMAT, "weight_map is empty"},
        {MAP("\"a\":1"), FORMAT, "the file of tensor \"a\" is not a string"},
        {MAP("\"a\":\"one.safetensors\",\"b\":null"), FORMAT, "the file of tensor \"b\" is not a string"},
        {MAP("\"a\":\"one.safetensors\",\"a\":\"one.safetensors\""), FORMAT, "already has"},
        {MAP("\"a\":\"\""), FORMAT, "is empty"},
        {MAP("\"a\":\"../one.safetensors\""), FORMAT, "ends in a dot"},
        {MAP("\"a\":\"..\""), FORMAT, "ends in a dot"},
        {MAP("\"a\":\".\""), FORMAT, "ends in a dot"},
        {MAP("\"a\":\"./one.safetensors\""), FORMAT, "ends in a dot"},
        {MAP("\"a\":\"sub/../one.safetensors\""), FORMAT, "ends in a dot"},
        {MAP("\"a\":\"sub/..\""), FORMAT, "ends in a dot"},
        {MAP("\"a\":\"sub/.. /one.safetensors\""), FORMAT, "dot or a space"},
        {MAP("\"a\":\"one.safetensors.\""), FORMAT, "ends in a dot"},
        {MAP("\"a\":\"one.safetensors \""), FORMAT, "dot or a space"},
        {MAP("\"a\":\"/etc/passwd\""), FORMAT, "absolute"},
        {MAP("\"a\":\"\\/one.safetensors\""), FORMAT, "absolute"},
        {MAP("\"a\":\"C:\\\\one.safetensors\""), FORMAT, "colon"},
        {MAP("\"a\":\"C:one.safetensors\""), FORMAT, "colon"},
        {MAP("\"a\":\"one.safetensors:stream\""), FORMAT, "colon"},
        {MAP("\"a\":\"\\\\\\\\host\\\\one.safetensors\""), FORMAT, "backslash"},
        {MAP("\"a\":\"..\\\\one.safetensors\""), FORMAT, "backslash"},
        {MAP("\"a\":\"one.safetensors\\u0000.txt\""), FORMAT, "U+0000"},
        {MAP("\"a\":\"one\\n.safetensors\""), FORMAT, "control character"},
        {MAP("\"a\":\"one\\u007f.safetensors\""), FORMAT, "control character"},
        {MAP("\"a\":\"one\\u0085.safetensors\""), FORMAT, "control character"},
        {MAP("\"a\":\"one\\u00a9.safetensors\""), MGV_ERROR_IO, "one\xC2\xA9.safetensors: cannot be opened"}, /* not a control character */
        {MAP("\"a\":\"sub//two.safetensors\""), FORMAT, "empty part"},
        {MAP("\"a\":\"sub/\""), FORMAT, "empty part"},
        {MAP("\"a\":\"%2e%2e/one.safetensors\""), MGV_ERROR_IO, "%2e%2e/one.safetensors: cannot be opened: there is no such file"},
        /* Where case counts there is no such file; elsewhere its tensors would be in two shards. */
        {MAP("\"a\":\"ONE.safetensors\""), MGV_ERROR_IO, "ONE.safetensors: cannot be opened"},
        {MAP("\"a\":\"missing.safetensors\""), MGV_ERROR_IO, "missing.safetensors: cannot be opened: there is no such file"},
        {MAP("\"a\":\"model.safetensors.index.json\""), FORMAT, "model.safetensors.index.json: no safetensors file"},
        /* what the shards hold counts, and not what the index says of it */
        {MAP("\"c\":\"one.safetensors\""), MGV_OK, NULL},
        {MAP("\"a\":\"sub/two.safetensors\",\"b\":\"one.safetensors\""), MGV_OK, NULL},
        {MAP("\"a\":\"one.safetensors\",\"zz\":\"sub/two.safetensors\""), MGV_OK, NULL},
        {MAP("\"a\":\"one.safetensors\",\"e\\u0009\":\"one.safetensors\""), MGV_OK, NULL},
        {MAP("\"a\":\"one.safetensors\",\"zz\":\"missing.safetensors\""), MGV_OK, NULL},
    };
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        mgv__source source;
        mgv__checkpoint checkpoint;
        counting_allocator counts;
        fake_files files;
        shard_set set;
        mgv_error error;
        mgv_result result;
        two_shards(&set, cases[i].index);
        result = open_set(&set, &source, &checkpoint, &files, &counts, &error);
        if (result != cases[i].code) fail_msg("%s: %s: %s", cases[i].index, mgv_result_name(result), result ? error.message : "");
        if (result != MGV_OK && strstr(error.message, cases[i].sentence) == NULL) fail_msg("%s: %s", cases[i].index, error.message);
        mgv__checkpoint_close(&checkpoint);
        assert_int_equal(files.open_now, 0);
        assert_int_equal(counts.live_blocks, 0);
        free_shards(&set);
    }
    print_message("%zu indexes\n", COUNT_OF(cases));
}
/* The index decides; where it says nothing, the shard whose name comes first. */
static void a_tensor_in_two_shards(void **state) {
    static const struct {
        const char *index;
        uint64_t bytes_of_c;
    } cases[] = {
        {MAP("\"a\":\"one.safetensors\",\"c\":\"sub/two.safetensors\""), 4},
        {MAP("\"a\":\"sub/two.safetensors\",\"c\":\"one.safetensors\""), 2},
        {MAP("\"a\":\"sub/two.safetensors\",\"b\":\"one.safetensors\""), 2},
        {MAP("\"a\":\"one.safetensors\",\"c\":\"missing.safetensors\",\"d\":\"sub/two.safetensors\""), 2},
    };
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        mgv__source source;
        mgv__checkpoint checkpoint;
        fake_files files;
        shard_set set;
        mgv_error error;
        memset(&set, 0, sizeof set);
        add_shard(&set, "m/one.safetensors", "{" U8("a", 0, 1, 1) "," U8("c", 1, 3, 2) "}", 3);
        add_shard(&set, "m/sub/two.safetensors", "{" U8("c", 0, 4, 4) "}", 4);
        add_file(&set, INDEX, cases[i].index, strlen(cases[i].index));
        assert_int_equal(open_set(&set, &source, &checkpoint, &files, NULL, &error), MGV_OK);
        assert_int_equal(checkpoint.name_count, 2);
        assert_int_equal(mgv__checkpoint_find(&checkpoint, "c")->bytes, cases[i].bytes_of_c);
        assert_int_equal(mgv__checkpoint_find(&checkpoint, "a")->bytes, 1);
        mgv__checkpoint_close(&checkpoint);
        free_shards(&set);
    }
}
static void a_bad_shard_is_named(void **state) {
    mgv__source source;
    mgv__checkpoint checkpoint;
    fake_files files;
    shard_set set;
    mgv_error error;
    (void)state;
    memset(&set, 0, sizeof set);
    add_shard(&set, "m/one.safetensors", "{" U8("a", 0, 1, 1) "," U8("b", 1, 3, 2) "}", 3);
    add_shard(&set, "m/sub/two.safetensors", "{" U8("c", 0, 5, 4) "}", 5);
    add_file(&set, INDEX, good_index, strlen(good_index));
    assert_int_equal(open_set(&set, &source, &checkpoint, &files, NULL, &error), FORMAT);
    assert_non_null(strstr(error.message, "sub/two.safetensors: tensor \"c\""));
    free_shards(&set);
}
/* model.safetensors wins over an index, as in transformers; without either the message says what was looked for. */
static void which_files_are_looked_for(void **state) {
    mgv__source source;
    mgv__checkpoint checkpoint;
    fake_files files;
    shard_set set;
    mgv_error error;
    (void)state;
    two_shards(&set, "{}");
    add_shard(&set, "m/model.safetensors", "{" U8("s", 0, 4, 4) "}", 4);
    assert_int_equal(open_set(&set, &source, &checkpoint, &files, NULL, &error), MGV_OK);
    assert_int_equal(checkpoint.tensor_count, 1);
    assert_string_equal(checkpoint.shards[0].name, "model.safetensors");
    mgv__checkpoint_close(&checkpoint);
    free((void *)(uintptr_t)set.files[3].data);
    free_shards(&set);
    set.count = 0;
    assert_int_equal(open_set(&set, &source, &checkpoint, &files, NULL, &error), MGV_ERROR_IO);
    assert_string_equal(error.message, "m: there is neither model.safetensors nor model.safetensors.index.json");
    add_file(&set, "m/pytorch_model.bin", "x", 1);
    assert_int_equal(open_set(&set, &source, &checkpoint, &files, NULL, &error), MGV_ERROR_IO);
    assert_non_null(strstr(error.message, "there is pytorch_model.bin, but"));
    assert_non_null(strstr(error.message, "only safetensors files are read"));
    set.files[0].name = "m/pytorch_model.bin.index.json";
    assert_int_equal(open_set(&set, &source, &checkpoint, &files, NULL, &error), MGV_ERROR_IO);
    assert_non_null(strstr(error.message, "pytorch_model.bin.index.json"));
    assert_int_equal(files.open_now, 0);
}

/* Every look for a file can fail otherwise than by its absence. */
static void looks_that_fail(void **state) {
    uint64_t k;
    (void)state;
    for (k = 1; k <= 4; k++) { /* model.safetensors, its index, two pickles */
        mgv__source source;
        mgv__checkpoint checkpoint;
        mgv_model_desc desc;
        fake_files files;
        mgv_error error;
        memset(&desc, 0, sizeof desc);
        desc.io = fake_files_make(&files, NULL, 0);
        assert_int_equal(mgv__source_open(&source, &desc, &error), MGV_OK);
        assert_int_equal(mgv__checkpoint_open(&checkpoint, &source, &error), MGV_ERROR_IO);
        assert_string_equal(error.message,
                            "the files of the callbacks: there is neither model.safetensors nor model.safetensors.index.json");
        assert_int_equal(files.calls, 4);
        files.calls = 0;
        files.fail_at = k;
        assert_int_equal(mgv__checkpoint_open(&checkpoint, &source, &error), MGV_ERROR_IO);
        assert_non_null(strstr(error.message, "code -5"));
    }
}
/* Callbacks that have no memory, to open a file or to read it, are told as such. */
static void callbacks_without_memory(void **state) {
    static const char header[] = "{\"y\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}";
    fake_file entry = {"model.safetensors", NULL, 0};
    mgv_result result = MGV_ERROR_NOMEM;
    unsigned char *bytes;
    uint32_t opened = 0, read = 0, k;
    (void)state;
    entry.bytes = make_safetensors(header, sizeof header - 1, 8, &bytes);
    entry.data = bytes;
    for (k = 1; result != MGV_OK; k++) {
        mgv__source source;
        mgv__checkpoint checkpoint;
        mgv_model_desc desc;
        fake_files files;
        mgv_error error;
        memset(&desc, 0, sizeof desc);
        desc.io = fake_files_make(&files, &entry, 1);
        files.fail_at = k;
        files.fail_code = MGV_FILE_NOMEM;
        assert_int_equal(mgv__source_open(&source, &desc, &error), MGV_OK);
        result = mgv__checkpoint_open(&checkpoint, &source, &error);
        if (result == MGV_OK) {
            mgv__checkpoint_close(&checkpoint);
            break;
        }
        assert_int_equal(result, MGV_ERROR_NOMEM);
        opened += strcmp(error.message, "model.safetensors: out of memory while it was opened") == 0;
        read += strcmp(error.message, "model.safetensors: out of memory while it was read") == 0;
    }
    assert_true(opened >= 1 && read >= 2 && opened + read == k - 1);
    free(bytes);
}
static void memory_files_without_weights(void **state) {
    mgv_memory_file memory = {"config.json", "{}", 2};
    mgv_model_desc desc;
    mgv__source source;
    mgv__checkpoint checkpoint;
    mgv_error error;
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.memory_files = &memory;
    desc.memory_file_count = 1;
    assert_int_equal(mgv__source_open(&source, &desc, &error), MGV_OK);
    assert_int_equal(mgv__checkpoint_open(&checkpoint, &source, &error), MGV_ERROR_IO);
    assert_string_equal(error.message, "the memory files: there is neither model.safetensors nor model.safetensors.index.json");
}
/* Two shards that claim headers of 3 GiB each: refused before anything of that size is allocated. */
static int32_t giant_open(void *user, const char *path, void **file, uint64_t *size) {
    *file = user;
    *size = strstr(path, "index") ? strlen((const char *)user) : (uint64_t)4 << 30;
    return strcmp(path, "model.safetensors") == 0 ? MGV_FILE_ABSENT : 0;
}
static int32_t giant_read(void *user, void *file, uint64_t offset, void *buffer, size_t bytes) {
    (void)file;
    if (bytes == 8) memcpy(buffer, "\0\0\0\xC0\0\0\0\0", 8);
    else memcpy(buffer, (const char *)user + offset, bytes);
    return 0;
}
static void giant_close(void *user, void *file) {
    (void)user;
    (void)file;
}
static void giant_headers(void **state) {
    static char index[] = "{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}";
    counting_allocator counts;
    mgv_model_desc desc;
    mgv__source source;
    mgv__checkpoint checkpoint;
    mgv_error error;
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.max_header_bytes = UINT64_MAX;
    desc.allocator = counting_allocator_make(&counts);
    desc.io.user = index;
    desc.io.open = giant_open;
    desc.io.read = giant_read;
    desc.io.close = giant_close;
    assert_int_equal(mgv__source_open(&source, &desc, &error), MGV_OK);
    assert_int_equal(mgv__checkpoint_open(&checkpoint, &source, &error), FORMAT);
    assert_non_null(strstr(error.message, "2.safetensors: the headers up to this shard have 4 GiB or more"));
    assert_true(counts.peak_bytes < 10000);
    assert_int_equal(counts.live_blocks, 0);
}

/* A hundred thousand shards, through callbacks that make them up. */
enum { MANY_SHARDS = 100000 };
typedef struct made_up {
    const char *index;
    size_t index_bytes;
    size_t open_now, most_open;
    char shard[200];
} made_up;
static size_t make_shard(made_up *all, unsigned number) {
    size_t n = (size_t)sprintf(all->shard + 8, "{\"t%u\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", number), i;
    for (i = 0; i < 8; i++) all->shard[i] = (char)(unsigned char)(n >> (8 * i));
    all->shard[8 + n] = 42;
    return 8 + n + 1;
}
static int32_t made_up_open(void *user, const char *path, void **file, uint64_t *size) {
    made_up *all = (made_up *)user;
    unsigned number = MANY_SHARDS;
    if (strcmp(path, "model.safetensors.index.json") == 0) {
        *size = all->index_bytes;
    } else if (sscanf(path, "%u.safetensors", &number) == 1) {
        *size = make_shard(all, number);
    } else {
        return MGV_FILE_ABSENT;
    }
    *file = (void *)(uintptr_t)number;
    all->open_now++;
    if (all->open_now > all->most_open) all->most_open = all->open_now;
    return 0;
}
static int32_t made_up_read(void *user, void *file, uint64_t offset, void *buffer, size_t bytes) {
    made_up *all = (made_up *)user;
    unsigned number = (unsigned)(uintptr_t)file;
    if (number == MANY_SHARDS) {
        memcpy(buffer, all->index + offset, bytes);
        return 0;
    }
    (void)make_shard(all, number);
    memcpy(buffer, all->shard + offset, bytes);
    return 0;
}
static void made_up_close(void *user, void *file) {
    (void)file;
    ((made_up *)user)->open_now--;
}
static void a_hundred_thousand_shards(void **state) {
    counting_allocator counts;
    mgv_model_desc desc;
    mgv__source source;
    mgv__checkpoint checkpoint;
    mgv_error error;
    made_up all;
    char *index = (char *)malloc((size_t)MANY_SHARDS * 40 + 100), name[32];
    unsigned char byte;
    size_t n, files;
    unsigned i;
    (void)state;
    memset(&all, 0, sizeof all);
    n = (size_t)sprintf(index, "{\"weight_map\":{");
    for (i = 0; i < MANY_SHARDS; i++) n += (size_t)sprintf(index + n, "%s\"t%u\":\"%u.safetensors\"", i ? "," : "", i, i);
    n += (size_t)sprintf(index + n, "}}");
    all.index = index;
    all.index_bytes = n;
    memset(&desc, 0, sizeof desc);
    desc.allocator = counting_allocator_make(&counts);
    desc.io.user = &all;
    desc.io.open = made_up_open;
    desc.io.read = made_up_read;
    desc.io.close = made_up_close;
    assert_int_equal(mgv__source_open(&source, &desc, &error), MGV_OK);
    if (mgv__checkpoint_open(&checkpoint, &source, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_int_equal(checkpoint.shard_count, MANY_SHARDS);
    assert_int_equal(checkpoint.tensor_count, MANY_SHARDS);
    assert_int_equal(all.most_open, 1);
    for (i = 0; i < MANY_SHARDS; i += 9999) {
        const mgv__tensor *tensor;
        sprintf(name, "t%u", i);
        tensor = mgv__checkpoint_find(&checkpoint, name);
        assert_non_null(tensor);
        sprintf(name, "%u.safetensors", i);
        assert_string_equal(checkpoint.shards[tensor->file].name, name);
        assert_int_equal(mgv__checkpoint_read(&checkpoint, tensor, &byte, &error), MGV_OK);
        assert_int_equal(byte, 42);
    }
    for (i = 0, files = n; i < MANY_SHARDS; i++) files += make_shard(&all, i);
    print_message("memory %.2f times the files\n", (double)counts.peak_bytes / (double)files);
    assert_true(counts.peak_bytes <= 4 * files + 1048576);
    mgv__checkpoint_close(&checkpoint);
    assert_int_equal(all.open_now, 0);
    assert_int_equal(counts.live_blocks, 0);
    free(index);
}

/* ---- Failures (goals R5 and R6) ---- */

static mgv_result open_failing(uint64_t fail_alloc, uint64_t fail_file, int from, uint64_t *allocations, uint64_t *calls,
                               mgv_error *error) {
    counting_allocator counts;
    fake_files files;
    shard_set set;
    mgv_model_desc desc;
    mgv__source source;
    mgv__checkpoint checkpoint;
    mgv_result result;
    unsigned char data[8];
    two_shards(&set, good_index);
    memset(&desc, 0, sizeof desc);
    desc.path = "m/";
    desc.io = fake_files_make(&files, set.files, set.count);
    desc.allocator = counting_allocator_make(&counts);
    counts.fail_at = fail_alloc;
    files.fail_at = fail_file;
    counts.fail_from = files.fail_from = from;
    assert_int_equal(mgv__source_open(&source, &desc, error), MGV_OK);
    result = mgv__checkpoint_open(&checkpoint, &source, error);
    if (result == MGV_OK) {
        result = mgv__checkpoint_read(&checkpoint, mgv__checkpoint_find(&checkpoint, "a"), data, error);
        if (result == MGV_OK) result = mgv__checkpoint_read(&checkpoint, mgv__checkpoint_find(&checkpoint, "c"), data, error);
        if (result != MGV_OK) { /* the handle stays usable */
            counts.fail_at = files.fail_at = 0;
            assert_int_equal(mgv__checkpoint_read(&checkpoint, mgv__checkpoint_find(&checkpoint, "b"), data, NULL), MGV_OK);
            assert_memory_equal(data, "\1\2", 2);
        }
    } else {
        assert_null(checkpoint.source);
    }
    mgv__checkpoint_close(&checkpoint);
    assert_int_equal(files.open_now, 0);
    assert_int_equal(counts.live_blocks, 0);
    assert_true(files.most_open <= 1);
    *allocations = counts.calls;
    *calls = files.calls;
    free_shards(&set);
    return result;
}
static void every_allocation_and_every_read_can_fail(void **state) {
    uint64_t allocations, calls, k, ignored;
    mgv_error error;
    int from;
    (void)state;
    assert_int_equal(open_failing(0, 0, 0, &allocations, &calls, &error), MGV_OK);
    print_message("%u allocations, %u opens and reads\n", (unsigned)allocations, (unsigned)calls);
    for (from = 0; from < 2; from++) {
        for (k = 1; k <= allocations; k++) {
            assert_int_equal(open_failing(k, 0, from, &ignored, &ignored, &error), MGV_ERROR_NOMEM);
            assert_int_equal(error.code, MGV_ERROR_NOMEM);
        }
        for (k = 1; k <= calls; k++) {
            assert_int_equal(open_failing(0, k, from, &ignored, &ignored, &error), MGV_ERROR_IO);
            assert_int_equal(error.code, MGV_ERROR_IO);
            assert_non_null(strstr(error.message, "code -5"));
        }
        assert_int_equal(open_failing(allocations + 1, calls + 1, from, &ignored, &ignored, &error), MGV_OK);
    }
    /* And of the public handle. */
    for (k = 1; k < 20; k++) {
        counting_allocator counts;
        mgv_allocator allocator = counting_allocator_make(&counts);
        unsigned char *bytes;
        size_t count = make_safetensors(micro_header, sizeof micro_header - 1, 16, &bytes);
        mgv_safetensors *file;
        mgv_result result;
        counts.fail_at = k;
        result = open_bytes(bytes, count, &allocator, &file, &error);
        assert_int_equal(result, counts.calls < k ? MGV_OK : MGV_ERROR_NOMEM);
        mgv_safetensors_close(file);
        assert_int_equal(counts.live_blocks, 0);
        free(bytes);
    }
}
/* A shard that grows or shrinks between two times that it is opened. */
static void sizes_that_change(void **state) {
    int64_t by;
    uint64_t at;
    (void)state;
    for (by = -1; by <= 1; by += 2) {
        for (at = 4; at <= 5; at++) { /* opens: index; both shards for their sizes; both for their headers */
            mgv__source source;
            mgv__checkpoint checkpoint;
            mgv_model_desc desc;
            fake_files files;
            shard_set set;
            mgv_error error;
            two_shards(&set, good_index);
            memset(&desc, 0, sizeof desc);
            desc.path = "m";
            desc.io = fake_files_make(&files, set.files, set.count);
            files.resize_at = at;
            files.resize_by = by;
            assert_int_equal(mgv__source_open(&source, &desc, &error), MGV_OK);
            assert_int_equal(mgv__checkpoint_open(&checkpoint, &source, &error), MGV_ERROR_IO);
            assert_non_null(strstr(error.message, "size changed"));
            assert_int_equal(files.open_now, 0);
            free_shards(&set);
        }
    }
}
/* A shard that is replaced by one of the same size but another header length. */
static void headers_that_change(void **state) {
    mgv__source source;
    mgv__checkpoint checkpoint;
    fake_files files;
    shard_set set;
    mgv_error error;
    unsigned char data[8];
    (void)state;
    two_shards(&set, good_index);
    assert_int_equal(open_set(&set, &source, &checkpoint, &files, NULL, &error), MGV_OK);
    assert_int_equal(mgv__checkpoint_read(&checkpoint, mgv__checkpoint_find(&checkpoint, "c"), data, &error), MGV_OK);
    ((unsigned char *)(uintptr_t)set.files[0].data)[0]--;
    assert_int_equal(mgv__checkpoint_read(&checkpoint, mgv__checkpoint_find(&checkpoint, "a"), data, &error), MGV_ERROR_IO);
    assert_non_null(strstr(error.message, "one.safetensors: its header changed"));
    ((unsigned char *)(uintptr_t)set.files[0].data)[0]++;
    assert_int_equal(mgv__checkpoint_read(&checkpoint, mgv__checkpoint_find(&checkpoint, "a"), data, &error), MGV_OK);
    mgv__checkpoint_close(&checkpoint);
    free_shards(&set);
}

/* ---- Sources ---- */

static void descriptions_of_models(void **state) {
    mgv_memory_file memory[1] = {{"config.json", "{}", 2}};
    counting_allocator counts;
    mgv_model_desc desc;
    mgv__source source;
    mgv_error error;
    (void)state;
    assert_int_equal(mgv__source_open(&source, NULL, &error), MGV_ERROR_ARGUMENT);
    memset(&desc, 0, sizeof desc);
    assert_int_equal(mgv__source_open(&source, &desc, &error), MGV_ERROR_ARGUMENT);
    desc.struct_size = sizeof desc + 1;
    assert_int_equal(mgv__source_open(&source, &desc, &error), MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "mgv_model_desc.struct_size"));
    desc.struct_size = 0;
    desc.path = "x";
    assert_int_equal(mgv__source_open(&source, &desc, &error), MGV_OK);
    desc.memory_files = memory;
    desc.memory_file_count = 1;
    assert_int_equal(mgv__source_open(&source, &desc, &error), MGV_ERROR_ARGUMENT);
    desc.path = NULL;
    assert_int_equal(mgv__source_open(&source, &desc, &error), MGV_OK);
    desc.memory_files = NULL;
    assert_int_equal(mgv__source_open(&source, &desc, &error), MGV_ERROR_ARGUMENT);
    desc.memory_files = memory;
    memory[0].name = NULL;
    assert_int_equal(mgv__source_open(&source, &desc, &error), MGV_ERROR_ARGUMENT);
    memory[0].name = "config.json";
    memory[0].data = NULL;
    assert_int_equal(mgv__source_open(&source, &desc, &error), MGV_ERROR_ARGUMENT);
    memory[0].bytes = 0;
    assert_int_equal(mgv__source_open(&source, &desc, &error), MGV_OK);
    desc.allocator = counting_allocator_make(&counts);
    desc.allocator.alloc = NULL;
    assert_int_equal(mgv__source_open(&source, &desc, &error), MGV_ERROR_ARGUMENT);
}
static void json_files_have_a_limit(void **state) {
    mgv_memory_file memory = {"config.json", "{\"a\":1}", 7};
    mgv_model_desc desc;
    mgv__source source;
    mgv_error error;
    char *text;
    size_t bytes;
    int absent;
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.memory_files = &memory;
    desc.memory_file_count = 1;
    desc.max_header_bytes = 6;
    assert_int_equal(mgv__source_open(&source, &desc, &error), MGV_OK);
    assert_int_equal(mgv__source_read_json(&source, "config.json", &text, &bytes, NULL, &error), FORMAT);
    assert_null(text);
    desc.max_header_bytes = UINT64_MAX; /* more than JSON can have: 4 GiB is meant */
    assert_int_equal(mgv__source_open(&source, &desc, &error), MGV_OK);
    assert_int_equal(mgv__source_read_json(&source, "config.json", &text, &bytes, NULL, &error), MGV_OK);
    assert_int_equal(bytes, 7);
    assert_string_equal(text, "{\"a\":1}");
    mgv__free(&source.allocator, text);
    assert_int_equal(mgv__source_read_json(&source, "other.json", &text, &bytes, &absent, &error), MGV_OK);
    assert_true(absent);
    assert_null(text);
}

/* ---- Real files ---- */

static char directory[] = "/tmp/megavit_test_XXXXXX";
static char path_buffer[2][256];
static const char *in_directory(int which, const char *name) {
    sprintf(path_buffer[which], "%s/%s", directory, name);
    return path_buffer[which];
}
static void write_file(const char *name, const void *bytes, size_t count) {
    FILE *file = fopen(in_directory(0, name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}
static mgv_result open_path(const char *path, mgv_safetensors **file, mgv_error *error) {
    mgv_safetensors_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.path = path;
    return mgv_safetensors_open(file, &desc, error);
}
/* Nothing but a regular file is opened, and nothing hangs. */
static void paths_that_are_no_files(void **state) {
    mgv_safetensors *file;
    mgv_error error;
    (void)state;
    alarm(20); /* a hang ends the test */
    assert_int_equal(open_path(directory, &file, &error), MGV_ERROR_IO);
    assert_non_null(strstr(error.message, "not a regular file"));
    assert_int_equal(mkfifo(in_directory(0, "fifo"), 0600), 0);
    assert_int_equal(open_path(in_directory(0, "fifo"), &file, &error), MGV_ERROR_IO);
    assert_non_null(strstr(error.message, "not a regular file"));
    assert_int_equal(open_path("/dev/zero", &file, &error), MGV_ERROR_IO);
    assert_non_null(strstr(error.message, "not a regular file"));
    assert_int_equal(open_path("/dev/null", &file, &error), MGV_ERROR_IO);
    assert_int_equal(open_path(in_directory(0, "absent"), &file, &error), MGV_ERROR_IO);
    assert_non_null(strstr(error.message, "there is no such file"));
    assert_int_equal(open_path(in_directory(0, "fifo/absent"), &file, &error), MGV_ERROR_IO);
    assert_int_equal(open_path("", &file, &error), MGV_ERROR_IO);
    assert_int_equal(symlink("loop", in_directory(0, "loop")), 0);
    assert_int_equal(open_path(in_directory(0, "loop"), &file, &error), MGV_ERROR_IO);
    assert_non_null(strstr(error.message, "the system refuses it"));
    unlink(in_directory(0, "loop"));
    unlink(in_directory(0, "fifo"));
    alarm(0);
}
static void a_real_file(void **state) {
    unsigned char *bytes, data[16];
    size_t count = make_safetensors(micro_header, sizeof micro_header - 1, 16, &bytes);
    mgv_safetensors *file;
    mgv_error error;
    mgv_tensor_info info;
    FILE *stream;
    (void)state;
    write_file("x.safetensors", bytes, count);
    if (open_path(in_directory(0, "x.safetensors"), &file, &error) != MGV_OK) fail_msg("%s", error.message);
    use_everything(file);
    assert_int_equal(mgv_safetensors_get_tensor(file, 0, &info), MGV_OK);
    assert_string_equal(info.file, in_directory(0, "x.safetensors"));
    /* It grows, then shrinks, while it is open. */
    stream = fopen(in_directory(0, "x.safetensors"), "ab");
    fputc('x', stream);
    fclose(stream);
    assert_int_equal(mgv_safetensors_read(file, 0, data, 16, &error), MGV_ERROR_IO);
    assert_non_null(strstr(error.message, "size changed"));
    assert_int_equal(truncate(in_directory(0, "x.safetensors"), 20), 0);
    assert_int_equal(mgv_safetensors_read(file, 0, data, 16, &error), MGV_ERROR_IO);
    assert_non_null(strstr(error.message, "size changed"));
    mgv_safetensors_close(file);
    /* A link to it is as good as it is: Hugging Face's cache is made of links. */
    write_file("x.safetensors", bytes, count);
    assert_int_equal(symlink("x.safetensors", in_directory(0, "link.safetensors")), 0);
    assert_int_equal(open_path(in_directory(0, "link.safetensors"), &file, &error), MGV_OK);
    mgv_safetensors_close(file);
    assert_int_equal(open_path(in_directory(0, "x.safetensors/"), &file, &error), MGV_ERROR_IO);
    unlink(in_directory(0, "link.safetensors"));
    unlink(in_directory(0, "x.safetensors"));
    free(bytes);
}
/* A sparse file of 5 GiB, of which only the header and the asked-for bytes are read. */
static void a_file_larger_than_4_gib(void **state) {
    static const char header[] = "{\"big\":{\"dtype\":\"U8\",\"shape\":[5368709120],\"data_offsets\":[0,5368709120]},"
                                 "\"end\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[5368709120,5368709122]}}";
    unsigned char *bytes, data[2];
    size_t count = make_safetensors(header, sizeof header - 1, 0, &bytes);
    mgv_safetensors *file;
    mgv_error error;
    int descriptor;
    (void)state;
    if (sizeof(off_t) < 8) skip_because("files are smaller than 2 GiB here");
    write_file("big.safetensors", bytes, count);
    descriptor = open(in_directory(0, "big.safetensors"), O_WRONLY);
    if (lseek(descriptor, (off_t)(count + 5368709120u), SEEK_SET) < 0 || write(descriptor, "\7\10", 2) != 2) {
        close(descriptor);
        unlink(in_directory(0, "big.safetensors"));
        free(bytes);
        skip_because("this file system has no files of 5 GB with holes");
    }
    close(descriptor);
    if (open_path(in_directory(0, "big.safetensors"), &file, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_int_equal(mgv_safetensors_read(file, 1, data, 2, &error), MGV_OK);
    assert_int_equal(data[0], 7);
    assert_int_equal(data[1], 8);
    mgv_safetensors_close(file);
    unlink(in_directory(0, "big.safetensors"));
    free(bytes);
}
/* A descriptor that went bad, and a range beyond the end. */
static void reads_that_fail(void **state) {
    mgv_model_desc desc;
    mgv__source source;
    mgv__file file;
    mgv_error error;
    char bytes[8];
    int pipes[2];
    (void)state;
    write_file("x.safetensors", "01234567", 8);
    memset(&desc, 0, sizeof desc);
    desc.path = directory;
    assert_int_equal(mgv__source_open(&source, &desc, &error), MGV_OK);
    assert_int_equal(mgv__file_open(&file, &source, "x.safetensors", NULL, &error), MGV_OK);
    assert_int_equal(mgv__file_read(&file, 4, bytes, 4, &error), MGV_OK);
    assert_memory_equal(bytes, "4567", 4);
    assert_int_equal(mgv__file_read(&file, 5, bytes, 4, &error), MGV_ERROR_IO);
    assert_non_null(strstr(error.message, "bytes 5 to 9 are beyond its end at 8"));
    assert_int_equal(mgv__file_read(&file, UINT64_MAX, bytes, 2, &error), MGV_ERROR_IO);
    assert_int_equal(mgv__file_read(&file, 0, bytes, 9, &error), MGV_ERROR_IO);
    assert_int_equal(mgv__file_read(&file, 8, bytes, 0, &error), MGV_OK);
    assert_int_equal(pipe(pipes), 0); /* a pipe cannot seek */
    assert_int_equal(dup2(pipes[0], ((mgv__disk_file *)file.handle)->descriptor) < 0, 0);
    assert_int_equal(mgv__file_read(&file, 0, bytes, 4, &error), MGV_ERROR_IO);
    assert_non_null(strstr(error.message, "the system refuses it"));
    close(pipes[0]);
    close(pipes[1]);
    pipes[0] = open(in_directory(0, "x.safetensors"), O_WRONLY); /* not open for reading */
    assert_int_equal(dup2(pipes[0], ((mgv__disk_file *)file.handle)->descriptor) < 0, 0);
    assert_int_equal(mgv__file_read(&file, 0, bytes, 4, &error), MGV_ERROR_IO);
    close(pipes[0]);
    mgv__file_close(&file);
    mgv__file_close(&file); /* twice is harmless */
    unlink(in_directory(0, "x.safetensors"));
}
static void a_disk_without_memory(void **state) {
    counting_allocator counts;
    mgv_safetensors_desc desc;
    mgv_safetensors *file;
    mgv_error error;
    unsigned char *bytes;
    size_t count = make_safetensors(micro_header, sizeof micro_header - 1, 16, &bytes);
    uint64_t k;
    (void)state;
    write_file("x.safetensors", bytes, count);
    for (k = 1;; k++) {
        mgv_result result;
        memset(&desc, 0, sizeof desc);
        desc.path = in_directory(0, "x.safetensors");
        desc.allocator = counting_allocator_make(&counts);
        counts.fail_at = k;
        result = mgv_safetensors_open(&file, &desc, &error);
        if (result == MGV_OK) break;
        assert_int_equal(result, MGV_ERROR_NOMEM);
        assert_int_equal(counts.live_blocks, 0);
        assert_true(k < 100);
    }
    assert_true(k > 8);
    mgv_safetensors_close(file);
    assert_int_equal(counts.live_blocks, 0);
    unlink(in_directory(0, "x.safetensors"));
    free(bytes);
}
/* Directories that transformers saved: single files and shards. */
static void saved_by_transformers(void **state) {
    static const struct {
        const char *path, *tensor;
        uint32_t shards;
    } models[] = {
        {"tests/golden/siglip_saved_bfloat16", "embeddings.patch_embedding.weight", 1},
        {"tests/golden/siglip_saved_float16", "embeddings.patch_embedding.weight", 1},
        {"tests/golden/siglip_saved_sharded", "vision_model.embeddings.patch_embedding.weight", 4},
        {"tests/golden/qwen2_5_saved", "visual.patch_embed.proj.weight", 1},
        {"tests/golden/qwen3_saved", "model.visual.patch_embed.proj.weight", 3},
    };
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(models); i++) {
        mgv_model_desc desc;
        mgv__source source;
        mgv__checkpoint checkpoint;
        mgv__config config;
        mgv_error error;
        uint32_t t;
        uint64_t bytes = 0;
        memset(&desc, 0, sizeof desc);
        desc.path = models[i].path;
        assert_int_equal(mgv__source_open(&source, &desc, &error), MGV_OK);
        if (mgv__config_read(&config, &source, &error) != MGV_OK) fail_msg("%s: %s", models[i].path, error.message);
        if (mgv__checkpoint_open(&checkpoint, &source, &error) != MGV_OK) fail_msg("%s: %s", models[i].path, error.message);
        assert_int_equal(checkpoint.shard_count, models[i].shards);
        assert_non_null(mgv__checkpoint_find(&checkpoint, models[i].tensor));
        for (t = 0; t < checkpoint.tensor_count; t++) {
            void *data = malloc((size_t)checkpoint.tensors[t].bytes + 1);
            if (mgv__checkpoint_read(&checkpoint, &checkpoint.tensors[t], data, &error) != MGV_OK) fail_msg("%s", error.message);
            bytes += checkpoint.tensors[t].bytes;
            free(data);
        }
        print_message("%s: %u tensors, %u bytes\n", models[i].path, (unsigned)checkpoint.tensor_count, (unsigned)bytes);
        mgv__checkpoint_close(&checkpoint);
    }
}

static int make_directory(void **state) {
    (void)state;
    return mkdtemp(directory) == NULL;
}
static int remove_directory(void **state) {
    (void)state;
    return rmdir(directory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row),
        cmocka_unit_test(lengths),
        cmocka_unit_test(tails),
        cmocka_unit_test(nesting_in_a_skipped_field),
        cmocka_unit_test(ranks),
        cmocka_unit_test(dtypes),
        cmocka_unit_test(what_is_given_out),
        cmocka_unit_test(arguments_of_open),
        cmocka_unit_test(descriptions_of_other_versions),
        cmocka_unit_test(truncated_at_every_byte),
        cmocka_unit_test(every_byte_substituted),
        cmocka_unit_test(every_integer_replaced),
        cmocka_unit_test(every_pair_of_offsets_swapped),
        cmocka_unit_test(a_hundred_thousand_tensors),
        cmocka_unit_test(memory_stays_below_four_times_the_file),
        cmocka_unit_test(two_shards_are_one_checkpoint),
        cmocka_unit_test(shard_indexes),
        cmocka_unit_test(a_tensor_in_two_shards),
        cmocka_unit_test(a_bad_shard_is_named),
        cmocka_unit_test(which_files_are_looked_for),
        cmocka_unit_test(looks_that_fail),
        cmocka_unit_test(callbacks_without_memory),
        cmocka_unit_test(memory_files_without_weights),
        cmocka_unit_test(giant_headers),
        cmocka_unit_test(a_hundred_thousand_shards),
        cmocka_unit_test(every_allocation_and_every_read_can_fail),
        cmocka_unit_test(sizes_that_change),
        cmocka_unit_test(headers_that_change),
        cmocka_unit_test(descriptions_of_models),
        cmocka_unit_test(json_files_have_a_limit),
        cmocka_unit_test(paths_that_are_no_files),
        cmocka_unit_test(a_real_file),
        cmocka_unit_test(a_file_larger_than_4_gib),
        cmocka_unit_test(reads_that_fail),
        cmocka_unit_test(a_disk_without_memory),
        cmocka_unit_test(saved_by_transformers),
    };
    return cmocka_run_group_tests_name("safetensors", tests, make_directory, remove_directory);
}
