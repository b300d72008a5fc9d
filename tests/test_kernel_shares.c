/* Formulas by which host and kernels share work out: everything is somebody's, and nothing is two's. */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_TEXT
#define MEGAVIT_PLAN
#include "megavit.h"

#include "support.h"

/* Columns of a tile of 128 rows: the first math group has no fewer than the second, both whole parts of statistics. */
static void test_columns_of_math_groups(void **state) {
    uint32_t columns;
    (void)state;
    for (columns = 64; columns <= 256; columns += 64) {
        const uint32_t first = mgv__whole_columns(columns, 0), second = mgv__whole_columns(columns, 1);
        assert_int_equal(first + second, columns);
        assert_true(first >= second && first - second <= 64);
        assert_int_equal(columns % 128 ? first % 64 + second % 64 : first - second, 0);
    }
}

/* Every 128 rows of every group have row tiles of scales of their own, one behind the other within a group. */
static void test_row_tiles_of_scales(void **state) {
    static const uint32_t rows[] = {128, 196, 256, 1000, 1024, 5000};
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(rows); i++) {
        mgv__kernel_op op;
        uint32_t group, row, behind = 0;
        memset(&op, 0, sizeof op);
        op.rows_per_group = rows[i];
        for (group = 0; group < 4; group++) {
            assert_true(mgv__mx_row_tile(&op, group, 0) >= behind);
            for (row = 0; row < rows[i]; row++)
                assert_int_equal(mgv__mx_row_tile(&op, group, row), mgv__mx_row_tile(&op, group, 0) + row / 128);
            behind = mgv__mx_row_tile(&op, group, rows[i] - 1) + 1;
        }
    }
}
/* Scales of 128 rows and four blocks fill an atom. */
static void test_atoms_of_scales(void **state) {
    uint8_t seen[MGV__MX_ATOM_BYTES];
    uint32_t row, block;
    (void)state;
    memset(seen, 0, sizeof seen);
    for (row = 0; row < 128; row++)
        for (block = 0; block < 4; block++) {
            const uint32_t at = mgv__mx_atom_byte(row, block);
            assert_true(at < MGV__MX_ATOM_BYTES && !seen[at]);
            seen[at] = 1;
        }
}
/* Which rows an operation reads and which it writes do not touch each other in its flags. */
static void test_flags_of_rows(void **state) {
    uint32_t source, target;
    (void)state;
    for (source = 0; source < 4; source++)
        for (target = 0; target < 4; target++) {
            const uint32_t flags = source << MGV__KERNEL_MX_SOURCE | target << MGV__KERNEL_MX_TARGET;
            assert_int_equal(mgv__mx_source(flags), source);
            assert_int_equal(mgv__mx_target(flags), target);
        }
}

/* Blocks of a product, over CTAs: none is left out, and no CTA has two more than another. */
static void test_blocks_of_ctas(void **state) {
    static const uint32_t blocks[] = {1, 7, 64, 131, 132, 133, 9496, 0xFFFFFFFFu};
    uint32_t ctas, cta;
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(blocks); i++)
        for (ctas = 2; ctas <= 132; ctas += 26) {
            assert_int_equal(mgv__decode_first(blocks[i], 0, ctas), 0);
            assert_int_equal(mgv__decode_first(blocks[i], ctas, ctas), blocks[i]);
            for (cta = 0; cta < ctas; cta++) {
                const uint32_t count = mgv__decode_first(blocks[i], cta + 1, ctas) - mgv__decode_first(blocks[i], cta, ctas);
                assert_true(count == blocks[i] / ctas || count == blocks[i] / ctas + 1);
            }
        }
}
/* The head runs behind the last id that a session was given, and until it has said all that it may. */
static void test_steps_with_a_head(void **state) {
    static const struct { uint32_t given, steps; } sessions[] = {{1, 4}, {3, 5}, {6, 8}};
    static const uint32_t expected[][9] = {{1, 1, 1, 1, 1, 1, 1, 1, 0}, {0, 0, 1, 1, 1, 1, 1, 1, 0}, {0, 0, 0, 0, 0, 1, 1, 1, 0}};
    mgv__decode_arguments a;
    uint32_t first, i, step;
    (void)state;
    for (first = 0; first < COUNT_OF(sessions); first++) {
        memset(&a, 0, sizeof a);
        for (i = first; i < COUNT_OF(sessions); i++) {
            a.session[a.sessions].given = sessions[i].given;
            a.session[a.sessions++].steps = sessions[i].steps;
        }
        for (step = 0; step < 9; step++) assert_int_equal(mgv__decode_headed(&a, step), expected[first][step]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_columns_of_math_groups), cmocka_unit_test(test_row_tiles_of_scales),
                                       cmocka_unit_test(test_atoms_of_scales),        cmocka_unit_test(test_flags_of_rows),
                                       cmocka_unit_test(test_blocks_of_ctas),         cmocka_unit_test(test_steps_with_a_head)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
