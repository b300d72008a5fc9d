/* Finding in an index by its 8-bit copy gives what comparing all floats gives, also where the copy cannot tell rows apart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "tools/index.h"

enum { WIDTH = 200, ROWS = 2500, QUERIES = 1000, FIRST = 10 };

static char folder[64], path[128];
static float *rows; /* [ROWS][WIDTH], as they were put in */

static uint64_t state_of_random = 1;
static double uniform(void) {
    state_of_random = state_of_random * 6364136223846793005u + 1442695040888963407u;
    return (double)(state_of_random >> 11) / 9007199254740992.0;
}

static void normalize(float *row) {
    double square = 0;
    for (int i = 0; i < WIDTH; i++) square += (double)row[i] * (double)row[i];
    for (int i = 0; i < WIDTH; i++) row[i] = (float)((double)row[i] / sqrt(square));
}

/* A third stands alone, a third are groups, and a third are bursts nearer to each other than one step of the copy. */
static void make_row(float *row, const float *before, int kind) {
    const double spread = kind == 0 || !before ? 10 : kind == 1 ? 0.2 : 0.0005;
    for (int i = 0; i < WIDTH; i++) row[i] = (float)((before ? (double)before[i] : 0) + spread * (uniform() - 0.45) / sqrt(WIDTH));
    normalize(row);
}

static void put_rows(index_file *index, int64_t first, int64_t count) {
    assert_int_equal(index_begin_writing(index), 0);
    for (int64_t i = first; i < first + count; i++) {
        char name[32];
        index_row row = {0, name, i, i, i};
        snprintf(name, sizeof name, "/%06d", (int)i);
        assert_int_equal(index_put(index, &row, rows + i * WIDTH), 0);
    }
    assert_int_equal(index_end(index), 0);
}

static int set_up(void **state) {
    const index_about about = {"width", "200", NULL, NULL};
    index_file index;
    (void)state;
    strcpy(folder, "/tmp/megavit-test-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/scan.db", folder);
    rows = malloc(sizeof *rows * ROWS * WIDTH);
    if (!rows) return -1;
    for (int i = 0; i < ROWS; i++) make_row(rows + i * WIDTH, i ? rows + (i - 1) * WIDTH : NULL, i % 90 / 30);
    assert_int_equal(index_open(&index, path, 1, 10), 0);
    assert_int_equal(index_create(&index, &about, 1), 0);
    put_rows(&index, 0, 1000); /* ends inside a block, and goes on there */
    put_rows(&index, 1000, ROWS - 1000);
    index_close(&index);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    remove(path);
    free(rows);
    return rmdir(folder);
}

static double cosine(const float *a, const float *b) {
    double sum = 0, square = 0, other = 0;
    for (int i = 0; i < WIDTH; i++) {
        sum += (double)a[i] * (double)b[i];
        square += (double)a[i] * (double)a[i];
        other += (double)b[i] * (double)b[i];
    }
    return sum / sqrt(square) / sqrt(other);
}

static int compare_matches(const void *a, const void *b) {
    const index_match *first = a, *second = b;
    if (first->similarity > second->similarity) return -1;
    if (first->similarity < second->similarity) return 1;
    return first->id < second->id ? -1 : 1;
}

/* Queries like rows and between them. */
static float *make_queries(void) {
    float *queries = malloc(sizeof *queries * QUERIES * WIDTH);
    assert_non_null(queries);
    state_of_random = 7;
    for (int q = 0; q < QUERIES; q++) make_row(queries + q * WIDTH, rows + (int)(uniform() * ROWS) * WIDTH, q % 3);
    return queries;
}

static void the_first_ten_are_those_of_the_floats(void **state) {
    float *queries = make_queries();
    index_matches *matches = malloc(sizeof *matches * QUERIES);
    index_match *all = malloc(sizeof *all * ROWS);
    index_file index;
    (void)state;
    assert_true(matches && all);
    assert_int_equal(index_open(&index, path, 0, 10), 0);
    assert_int_equal(index_begin_reading(&index), 0);
    assert_int_equal(index.rows, ROWS);
    assert_int_equal(index_nearest(&index, queries, QUERIES, FIRST, -2, 3, matches), 0);
    for (int q = 0; q < QUERIES; q++) {
        for (int i = 0; i < ROWS; i++) {
            double sum = 0, square = 0;
            for (int k = 0; k < WIDTH; k++) {
                sum += (double)rows[i * WIDTH + k] * (double)queries[q * WIDTH + k];
                square += (double)rows[i * WIDTH + k] * (double)rows[i * WIDTH + k];
            }
            all[i].id = i;
            all[i].similarity = sum / sqrt(square);
        }
        qsort(all, ROWS, sizeof *all, compare_matches);
        assert_int_equal(matches[q].count, FIRST);
        for (int i = 0; i < FIRST; i++) {
            assert_int_equal(matches[q].items[i].id, all[i].id);
            assert_true(matches[q].items[i].similarity == all[i].similarity);
        }
        free(matches[q].items);
    }
    /* A threshold without a number: all that reach it, and no other. */
    assert_int_equal(index_nearest(&index, queries, 1, UINT64_MAX, 0.9, 2, matches), 0);
    for (uint64_t i = 0, reached = 0; i <= matches[0].count; i++) {
        for (int k = 0; i == 0 && k < ROWS; k++) reached += cosine(rows + k * WIDTH, queries) >= 0.9;
        if (i == 0) assert_int_equal(matches[0].count, reached);
    }
    free(matches[0].items);
    index_close(&index);
    free(queries);
    free(matches);
    free(all);
}

static uint32_t root_of(const uint32_t *group, uint32_t id) {
    while (group[id] != id) id = group[id];
    return id;
}

static void groups_are_those_of_the_floats(void **state) {
    static const double thresholds[] = {0.97, 0.999999, 0.5, -1};
    uint32_t *group = malloc(sizeof *group * ROWS), *expected = malloc(sizeof *expected * ROWS);
    index_file index;
    (void)state;
    assert_true(group && expected);
    assert_int_equal(index_open(&index, path, 0, 10), 0);
    assert_int_equal(index_begin_reading(&index), 0);
    for (size_t t = 0; t < sizeof thresholds / sizeof thresholds[0]; t++) {
        uint32_t groups = 0;
        for (uint32_t i = 0; i < ROWS; i++) expected[i] = i;
        for (uint32_t i = 0; i < ROWS; i++)
            for (uint32_t j = i + 1; j < ROWS; j++) {
                uint32_t a = root_of(expected, i), b = root_of(expected, j);
                if (a != b && cosine(rows + i * WIDTH, rows + j * WIDTH) >= thresholds[t] - 1e-6) expected[a < b ? b : a] = a < b ? a : b;
            }
        assert_int_equal(index_duplicates(&index, thresholds[t], 3, group), 0);
        for (uint32_t i = 0; i < ROWS; i++) {
            assert_int_equal(group[i], root_of(expected, i));
            groups += group[i] == i;
        }
        if (t == 0) assert_true(groups > 100 && groups < ROWS - 500); /* there are both kinds */
        if (t == 3) assert_int_equal(groups, 1);
    }
    index_close(&index);
    free(group);
    free(expected);
}

/* The copy keeps what the search relies on: its error is at least what it is off by, and not by much more than half a step a number. */
static void a_code_knows_its_error(void **state) {
    unsigned char code[INDEX_CODE_HEAD + WIDTH];
    float zero[WIDTH] = {0};
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        float error, scale;
        index_encode(rows + i * WIDTH, WIDTH, code);
        assert_true(index_code_holds(rows + i * WIDTH, WIDTH, code));
        memcpy(&scale, code, 4);
        memcpy(&error, code + 4, 4);
        assert_true((double)error <= 0.5 * (double)scale * sqrt(WIDTH) * 1.001);
        code[INDEX_CODE_HEAD + i % WIDTH] ^= 0x40;
        assert_false(index_code_holds(rows + i * WIDTH, WIDTH, code));
    }
    index_encode(zero, WIDTH, code);
    assert_true(index_code_holds(zero, WIDTH, code));
}

/* Rows leave from anywhere; who takes their places is still found, and the index is whole. */
static void rows_that_leave_are_filled_up(void **state) {
    index_file index;
    index_matches matches;
    int64_t left = ROWS;
    (void)state;
    assert_int_equal(index_open(&index, path, 1, 10), 0);
    assert_int_equal(index_begin_writing(&index), 0);
    for (int i = 0; i < ROWS; i += 1 + i % 5, left--) {
        char name[32];
        index_row row;
        int found;
        snprintf(name, sizeof name, "/%06d", i);
        assert_int_equal(index_find_path(&index, name, &row, &found), 0);
        assert_true(found);
        assert_int_equal(index_remove(&index, row.id), 0);
    }
    assert_int_equal(index.rows, left);
    assert_int_equal(index_end(&index), 0);
    assert_int_equal(index_begin_reading(&index), 0);
    assert_int_equal(index.rows, left);
    assert_int_equal(index_check_whole(&index), 0);
    for (int i = 1; i < ROWS; i += 97) {
        char name[32];
        index_row row;
        int found;
        snprintf(name, sizeof name, "/%06d", i);
        assert_int_equal(index_find_path(&index, name, &row, &found), 0);
        assert_int_equal(index_nearest(&index, rows + i * WIDTH, 1, 1, -2, 1, &matches), 0);
        assert_int_equal(matches.count, 1);
        if (found) assert_true(matches.items[0].similarity > 0.99999);
        if (found && i % 90 < 30) assert_int_equal(matches.items[0].id, row.id); /* one that stands alone */
        free(matches.items);
    }
    index_close(&index);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_code_knows_its_error),
        cmocka_unit_test(the_first_ten_are_those_of_the_floats),
        cmocka_unit_test(groups_are_those_of_the_floats),
        cmocka_unit_test(rows_that_leave_are_filled_up), /* last: it takes rows out */
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
