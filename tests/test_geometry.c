/* Where tokens lie: positions, position-table samples, attention ranges and window order, exactly as transformers has them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

/* An array of 4-byte entries: how many, and FNV-1a over their bytes. */
typedef struct fingerprint {
    size_t count;
    uint64_t hash;
} fingerprint;

typedef struct geometry_case {
    uint32_t t, h, w;
    fingerprint sample_index, sample_weight, position, window_position, frame_ends, order, window_ends;
} geometry_case;

#include "golden/geometry.h"

static fingerprint fingerprint_of(const void *entries, size_t count) {
    fingerprint result;
    const unsigned char *byte = (const unsigned char *)entries;
    size_t i;
    result.count = count;
    result.hash = 0xCBF29CE484222325u;
    for (i = 0; i < count * 4; i++) result.hash = (result.hash ^ byte[i]) * 0x100000001B3u;
    return result;
}

static void assert_same(fingerprint expected, const void *entries, size_t count) {
    fingerprint seen = fingerprint_of(entries, count);
    assert_int_equal(seen.count, expected.count);
    assert_true(seen.hash == expected.hash);
}

/* Positions are whole numbers, and the fingerprints are of integers. */
static void assert_same_positions(fingerprint expected, const float *positions, size_t count) {
    int32_t *whole = (int32_t *)malloc(count * sizeof *whole);
    size_t i;
    assert_non_null(whole);
    for (i = 0; i < count; i++) {
        whole[i] = (int32_t)positions[i];
        assert_true((float)whole[i] == positions[i]);
    }
    assert_same(expected, whole, count);
    free(whole);
}

static mgv__config siglip_config(void) {
    mgv__config config;
    memset(&config, 0, sizeof config);
    config.family = MGV_FAMILY_SIGLIP;
    config.patch = 14;
    config.merge = 1;
    config.image_size = 384;
    config.position_side = 27;
    return config;
}

static mgv__config qwen3_config(void) {
    mgv__config config;
    memset(&config, 0, sizeof config);
    config.family = MGV_FAMILY_QWEN3_VL;
    config.patch = 16;
    config.merge = 2;
    config.position_side = 48;
    config.interpolation = MGV__TABLE_ENDS;
    config.rope_theta = 10000.0f;
    return config;
}

static mgv__config qwen2_5_config(void) {
    mgv__config config = qwen3_config();
    config.family = MGV_FAMILY_QWEN2_5_VL;
    config.patch = 14;
    config.position_side = 0;
    config.window_size = 112;
    return config;
}

static mgv_grid grid_of(const mgv__config *config, uint32_t t, uint32_t h, uint32_t w) {
    mgv_grid grid;
    memset(&grid, 0, sizeof grid);
    grid.width = w * config->patch;
    grid.height = h * config->patch;
    grid.t = t;
    grid.h = h;
    grid.w = w;
    grid.tokens = t * h * w;
    grid.merged_tokens = grid.tokens / (config->merge * config->merge);
    return grid;
}

/* Fills a geometry in scratch memory of exactly the size that was asked for, so that a sanitizer sees any byte too far. */
static void *fill(const mgv__config *config, uint32_t t, uint32_t h, uint32_t w, mgv__geometry *geometry) {
    mgv_grid grid = grid_of(config, t, h, w);
    size_t bytes = 0;
    void *scratch;
    assert_true(mgv__geometry_scratch_bytes(config, grid.tokens, &bytes));
    scratch = malloc(bytes);
    assert_non_null(scratch);
    memset(scratch, 0xA5, bytes);
    mgv__geometry_fill(config, &grid, scratch, geometry);
    assert_int_equal(geometry->grid.tokens, grid.tokens);
    return scratch;
}

/* Everything that the rows of patches take from the position table, one sample after the other, as transformers has it. */
typedef struct table_samples {
    uint32_t count; /* of a row */
    uint32_t *index;
    float *weight;
} table_samples;

static table_samples samples_of(const mgv__config *config, const mgv__geometry *g) {
    table_samples all;
    uint32_t rows = g->grid.t * g->grid.h * g->grid.w, row, i, k, at = 0;
    all.count = g->down.count * g->across.count;
    all.index = (uint32_t *)malloc((size_t)rows * all.count * sizeof(uint32_t));
    all.weight = (float *)malloc((size_t)rows * all.count * sizeof(float));
    assert_true(all.index != NULL && all.weight != NULL);
    for (row = 0; row < rows; row++) {
        mgv__patch_place place = mgv__patch_of_row(&g->grid, config->merge, row);
        for (i = 0; i < g->down.count; i++)
            for (k = 0; k < g->across.count; k++, at++) {
                const uint32_t y = place.y * g->down.count + i, x = place.x * g->across.count + k;
                all.index[at] = g->table_first + g->down.index[y] * g->table_side + g->across.index[x];
                all.weight[at] = g->down.weight[y] * g->across.weight[x];
            }
    }
    return all;
}
static void free_samples(table_samples *all) {
    free(all->index);
    free(all->weight);
}

static void test_siglip_is_one_range_and_a_look_up(void **state) {
    mgv__config config = siglip_config();
    mgv__geometry geometry;
    void *scratch = fill(&config, 1, 27, 27, &geometry);
    table_samples samples;
    uint32_t row;
    (void)state;
    samples = samples_of(&config, &geometry);
    assert_int_equal(samples.count, 1);
    for (row = 0; row < 729; row++) {
        assert_int_equal(samples.index[row], row);
        assert_true(samples.weight[row] == 1.0f);
    }
    free_samples(&samples);
    assert_null(geometry.position);
    assert_null(geometry.order);
    assert_int_equal(geometry.range_count[MGV__RANGE_FRAME], 1);
    assert_int_equal(geometry.range_ends[MGV__RANGE_FRAME][0], 729);
    assert_int_equal(geometry.range_count[MGV__RANGE_WINDOW], 0);
    free(scratch);
}

static void test_qwen3_matches_transformers(void **state) {
    mgv__config config = qwen3_config();
    size_t i;
    (void)state;
    for (i = 0; i < sizeof geometry_cases / sizeof geometry_cases[0]; i++) {
        const geometry_case *expected = &geometry_cases[i];
        mgv__geometry geometry;
        void *scratch = fill(&config, expected->t, expected->h, expected->w, &geometry);
        size_t tokens = geometry.grid.tokens;
        table_samples samples = samples_of(&config, &geometry);
        assert_int_equal(samples.count, 4);
        assert_same(expected->sample_index, samples.index, tokens * 4);
        assert_same(expected->sample_weight, samples.weight, tokens * 4);
        free_samples(&samples);
        assert_same_positions(expected->position, geometry.position, tokens * 3);
        assert_same(expected->frame_ends, geometry.range_ends[MGV__RANGE_FRAME], geometry.range_count[MGV__RANGE_FRAME]);
        assert_int_equal(geometry.range_count[MGV__RANGE_WINDOW], 0);
        assert_null(geometry.order);
        free(scratch);
    }
}

static void test_qwen2_5_matches_transformers(void **state) {
    mgv__config config = qwen2_5_config();
    size_t i;
    (void)state;
    for (i = 0; i < sizeof geometry_cases / sizeof geometry_cases[0]; i++) {
        const geometry_case *expected = &geometry_cases[i];
        mgv__geometry geometry;
        void *scratch = fill(&config, expected->t, expected->h, expected->w, &geometry);
        assert_int_equal(geometry.down.count, 0);
        assert_same_positions(expected->window_position, geometry.position, (size_t)geometry.grid.tokens * 3);
        assert_same(expected->frame_ends, geometry.range_ends[MGV__RANGE_FRAME], geometry.range_count[MGV__RANGE_FRAME]);
        assert_same(expected->order, geometry.order, geometry.grid.merged_tokens);
        assert_same(expected->window_ends, geometry.range_ends[MGV__RANGE_WINDOW], geometry.range_count[MGV__RANGE_WINDOW]);
        free(scratch);
    }
}

/* Rows of the tables by which torch resizes: bicubic without and with antialias, bilinear with it (torch 2.15, of rows of the unit matrix).
   Entries that are not named have no weight. */
static void test_tables_of_other_sizes(void **state) {
    static const struct {
        mgv__interpolation kind;
        uint32_t side, count, row, first;
        float weight[6];
    } rows[] = {
        { MGV__TABLE_CUBIC, 37, 16, 0, 0, { 0.326126f, 0.784904f, -0.111031f } },
        { MGV__TABLE_CUBIC, 37, 16, 8, 18, { -0.083427f, 0.949837f, 0.149040f, -0.015450f } },
        { MGV__TABLE_CUBIC, 7, 14, 1, 0, { 0.773438f, 0.261719f, -0.035156f } },
        { MGV__TABLE_CUBIC_AREA, 37, 16, 0, 0, { 0.387186f, 0.441451f, 0.209256f, -0.003057f, -0.031817f, -0.003020f } },
        { MGV__TABLE_LINEAR_AREA, 16, 14, 0, 0, { 0.833333f, 0.166667f } },
        { MGV__TABLE_LINEAR_AREA, 16, 14, 7, 7, { 0.052631f, 0.789473f, 0.157895f } },
        { MGV__TABLE_LINEAR_AREA, 16, 21, 0, 0, { 1.0f } },
        { MGV__TABLE_LINEAR_AREA, 16, 21, 1, 0, { 0.357143f, 0.642857f } },
    };
    size_t i, k;
    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        mgv__config config = siglip_config();
        mgv__geometry geometry;
        float weight[64] = { 0 };
        void *scratch;
        config.image_size = 0;
        config.position_side = rows[i].side;
        config.position_first = 1;
        config.interpolation = rows[i].kind;
        scratch = fill(&config, 1, 1, rows[i].count, &geometry);
        for (k = 0; k < geometry.across.count; k++) {
            const uint32_t at = rows[i].row * geometry.across.count + (uint32_t)k;
            assert_true(geometry.across.index[at] < rows[i].side);
            weight[geometry.across.index[at]] += geometry.across.weight[at];
        }
        for (k = 0; k < rows[i].side; k++) {
            const float wanted = k >= rows[i].first && k - rows[i].first < 6 ? rows[i].weight[k - rows[i].first] : 0;
            assert_float_equal(weight[k], wanted, 2e-6f);
        }
        assert_int_equal(geometry.table_first, 1);
        free(scratch);
    }
}

/* Scratch memory is enough whatever the proportions: a table that is much larger or smaller than the picture. */
static void test_scratch_for_any_proportions(void **state) {
    static const uint32_t sides[] = { 1, 2, 37, 200 };
    mgv__interpolation kind;
    size_t i;
    uint32_t h, w;
    (void)state;
    for (kind = MGV__TABLE_ENDS; kind <= MGV__TABLE_LINEAR_AREA; kind++)
        for (i = 0; i < sizeof sides / sizeof sides[0]; i++)
            for (h = 1; h <= 64; h *= 2)
                for (w = 1; w <= 64; w *= 4) {
                    mgv__config config = siglip_config();
                    mgv__geometry geometry;
                    table_samples samples;
                    double sum = 0;
                    void *scratch;
                    uint32_t k;
                    config.image_size = 0;
                    config.position_side = sides[i];
                    config.interpolation = kind;
                    scratch = fill(&config, 1, h, w, &geometry);
                    samples = samples_of(&config, &geometry);
                    for (k = 0; k < h * w * samples.count; k++) {
                        assert_true(samples.index[k] < sides[i] * sides[i]);
                        sum += (double)samples.weight[k];
                    }
                    assert_true(fabs(sum - (double)h * w) < 1e-4 * h * w);
                    free_samples(&samples);
                    free(scratch);
                }
}

/* Class and register rows: before the patches, in one range with them, turned by no rotation. */
static void test_prefix_rows(void **state) {
    mgv__config config = siglip_config();
    mgv__geometry geometry;
    mgv_error error;
    mgv_grid grid = grid_of(&config, 1, 3, 4);
    size_t bytes = 0;
    void *scratch;
    uint32_t i;
    (void)state;
    config.position_side = config.image_size = 0;
    config.rope_theta = 100.0f;
    config.prefix = 5;
    assert_int_equal(mgv__geometry_check(&config, &grid, &error), MGV_ERROR_ARGUMENT);
    grid.tokens = grid.merged_tokens = 17;
    assert_int_equal(mgv__geometry_check(&config, &grid, &error), MGV_OK);
    assert_true(mgv__geometry_scratch_bytes(&config, grid.tokens, &bytes));
    scratch = malloc(bytes);
    assert_non_null(scratch);
    mgv__geometry_fill(&config, &grid, scratch, &geometry);
    assert_int_equal(geometry.range_count[MGV__RANGE_FRAME], 1);
    assert_int_equal(geometry.range_ends[MGV__RANGE_FRAME][0], 17);
    for (i = 0; i < 15; i++) assert_true(geometry.position[i] == 0.0f);
    for (i = 0; i < 12; i++) {
        assert_true(geometry.position[15 + 3 * i + 1] == (float)(i / 4));
        assert_true(geometry.position[15 + 3 * i + 2] == (float)(i % 4));
    }
    assert_true(mgv__attention_pairs(&config, &grid, MGV__RANGE_FRAME) == 17.0 * 17.0);
    assert_int_equal(mgv__grid_rows(&grid, MGV__ROWS_PATCHES), 12);
    free(scratch);
}

/* A 480 x 640 picture: rows 1, 3 and the last, written out. */
static void test_bilinear_samples_in_full(void **state) {
    static const struct {
        uint32_t row, y, x, index[4];
        float weight[4];
    } samples[] = {
        { 1, 0, 1, { 1, 2, 49, 50 }, { 0.7948718f, 0.2051282f, 0.0f, 0.0f } },
        { 3, 1, 1, { 49, 50, 97, 98 }, { 0.3015031f, 0.0778073f, 0.4933687f, 0.1273209f } },
        { 1199, 29, 39, { 2303, 2303, 2303, 2303 }, { 1.0f, 0.0f, 0.0f, 0.0f } },
    };
    mgv__config config = qwen3_config();
    mgv__geometry geometry;
    void *scratch = fill(&config, 1, 30, 40, &geometry);
    table_samples all = samples_of(&config, &geometry);
    size_t i, k;
    (void)state;
    for (i = 0; i < sizeof samples / sizeof samples[0]; i++) {
        const float *position = geometry.position + samples[i].row * 3;
        assert_true(position[0] == 0 && position[1] == (float)samples[i].y && position[2] == (float)samples[i].x);
        for (k = 0; k < 4; k++) {
            assert_int_equal(all.index[samples[i].row * 4 + k], samples[i].index[k]);
            assert_float_equal(all.weight[samples[i].row * 4 + k], samples[i].weight[k], 1e-7f);
        }
    }
    free_samples(&all);
    free(scratch);
}

static void test_windows_in_full(void **state) {
    static const uint32_t order[35] = { 0,  1,  2,  3,  7,  8,  9,  10, 14, 15, 16, 17, 21, 22, 23, 24, 4, 5,
                                        6,  11, 12, 13, 18, 19, 20, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34 };
    static const uint32_t odd_ends[4] = { 64, 112, 128, 140 }, even_ends[4] = { 64, 128, 192, 256 };
    mgv__config config = qwen2_5_config();
    mgv__geometry geometry;
    void *scratch = fill(&config, 1, 10, 14, &geometry);
    (void)state;
    assert_memory_equal(geometry.order, order, sizeof order);
    assert_int_equal(geometry.range_count[MGV__RANGE_WINDOW], 4);
    assert_memory_equal(geometry.range_ends[MGV__RANGE_WINDOW], odd_ends, sizeof odd_ends);
    free(scratch);
    /* windows that divide the picture exactly: no empty ones are left over */
    scratch = fill(&config, 1, 16, 16, &geometry);
    assert_int_equal(geometry.range_count[MGV__RANGE_WINDOW], 4);
    assert_memory_equal(geometry.range_ends[MGV__RANGE_WINDOW], even_ends, sizeof even_ends);
    free(scratch);
}

/* Whatever the grid: the order is a permutation, ranges ascend, never cross a frame, and end at the last token. */
static void test_windows_cover_every_unit_once(void **state) {
    mgv__config config = qwen2_5_config();
    uint32_t t, h, w, i;
    (void)state;
    for (t = 1; t <= 3; t++)
        for (h = 2; h <= 20; h += 2)
            for (w = 2; w <= 20; w += 2) {
                mgv__geometry geometry;
                void *scratch = fill(&config, t, h, w, &geometry);
                const uint32_t *ends = geometry.range_ends[MGV__RANGE_WINDOW];
                unsigned char seen[3 * 100];
                memset(seen, 0, sizeof seen);
                for (i = 0; i < geometry.grid.merged_tokens; i++) {
                    assert_true(geometry.order[i] < geometry.grid.merged_tokens);
                    assert_int_equal(seen[geometry.order[i]]++, 0);
                }
                for (i = 0; i < geometry.range_count[MGV__RANGE_WINDOW]; i++) {
                    uint32_t start = i == 0 ? 0 : ends[i - 1];
                    assert_true(ends[i] > start);
                    assert_true(ends[i] - start <= 64);
                    assert_int_equal(start / (h * w), (ends[i] - 1) / (h * w));
                }
                assert_int_equal(ends[i - 1], geometry.grid.tokens);
                free(scratch);
            }
}

/* More tokens in scratch than a picture needs: the same arrays. */
static void test_scratch_of_a_larger_picture(void **state) {
    mgv__config config = qwen2_5_config();
    mgv_grid grid = grid_of(&config, 1, 10, 14);
    mgv__geometry geometry;
    size_t bytes = 0, exact = 0;
    void *scratch;
    (void)state;
    assert_true(mgv__geometry_scratch_bytes(&config, 4096, &bytes));
    assert_true(mgv__geometry_scratch_bytes(&config, grid.tokens, &exact));
    assert_true(exact < bytes);
    scratch = malloc(bytes);
    assert_non_null(scratch);
    mgv__geometry_fill(&config, &grid, scratch, &geometry);
    assert_int_equal(geometry.range_count[MGV__RANGE_WINDOW], 4);
    free(scratch);
}

static void test_scratch_bytes_report_overflow(void **state) {
    mgv__config config = qwen3_config();
    size_t bytes = 7;
    (void)state;
    assert_false(mgv__geometry_scratch_bytes(&config, SIZE_MAX / 2, &bytes));
    assert_int_equal(bytes, 7);
}

/* The closed form that FLOPs are counted by against the ranges themselves. */
static void test_pairs_are_the_squares_of_ranges(void **state) {
    mgv__config config = qwen2_5_config();
    uint32_t h, w, i;
    mgv__range_kind range;
    (void)state;
    for (h = 2; h <= 18; h += 2)
        for (w = 2; w <= 26; w += 4)
            for (range = MGV__RANGE_FRAME; range < MGV__RANGE_KIND_COUNT; range++) {
                mgv__geometry geometry;
                void *scratch = fill(&config, 2, h, w, &geometry);
                double pairs = 0;
                uint32_t start = 0;
                for (i = 0; i < geometry.range_count[range]; i++) {
                    double length = geometry.range_ends[range][i] - start;
                    pairs += length * length;
                    start = geometry.range_ends[range][i];
                }
                assert_true(pairs == mgv__attention_pairs(&config, &geometry.grid, range));
                free(scratch);
            }
}

static void test_grids_that_no_model_can_run(void **state) {
    mgv__config siglip = siglip_config(), qwen3 = qwen3_config();
    mgv_grid grid = grid_of(&qwen3, 1, 30, 40);
    mgv_error error;
    (void)state;
    assert_int_equal(mgv__geometry_check(&qwen3, &grid, &error), MGV_OK);
    /* larger than the position table is no error: the table is sampled more finely */
    grid = grid_of(&qwen3, 1, 130, 62);
    assert_int_equal(mgv__geometry_check(&qwen3, &grid, &error), MGV_OK);
    grid = grid_of(&qwen3, 1, 0, 40);
    assert_int_equal(mgv__geometry_check(&qwen3, &grid, &error), MGV_ERROR_ARGUMENT);
    grid = grid_of(&qwen3, 0, 30, 40);
    assert_int_equal(mgv__geometry_check(&qwen3, &grid, &error), MGV_ERROR_ARGUMENT);
    grid = grid_of(&qwen3, 1, 30, 41);
    assert_int_equal(mgv__geometry_check(&qwen3, &grid, &error), MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "30 x 41"));
    grid = grid_of(&qwen3, 1, 65534, 65534);
    assert_int_equal(mgv__geometry_check(&qwen3, &grid, &error), MGV_ERROR_CAPACITY);
    grid = grid_of(&qwen3, 1, 30, 40);
    grid.tokens += 4;
    assert_int_equal(mgv__geometry_check(&qwen3, &grid, &error), MGV_ERROR_ARGUMENT);
    grid = grid_of(&qwen3, 1, 30, 40);
    grid.merged_tokens++;
    assert_int_equal(mgv__geometry_check(&qwen3, &grid, &error), MGV_ERROR_ARGUMENT);
    grid = grid_of(&siglip, 1, 27, 27);
    assert_int_equal(mgv__geometry_check(&siglip, &grid, &error), MGV_OK);
    grid = grid_of(&siglip, 1, 26, 27);
    assert_int_equal(mgv__geometry_check(&siglip, &grid, &error), MGV_ERROR_ARGUMENT);
    grid = grid_of(&siglip, 2, 27, 27);
    assert_int_equal(mgv__geometry_check(&siglip, &grid, &error), MGV_ERROR_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_siglip_is_one_range_and_a_look_up),
        cmocka_unit_test(test_qwen3_matches_transformers),
        cmocka_unit_test(test_qwen2_5_matches_transformers),
        cmocka_unit_test(test_bilinear_samples_in_full),
        cmocka_unit_test(test_tables_of_other_sizes),
        cmocka_unit_test(test_scratch_for_any_proportions),
        cmocka_unit_test(test_prefix_rows),
        cmocka_unit_test(test_windows_in_full),
        cmocka_unit_test(test_windows_cover_every_unit_once),
        cmocka_unit_test(test_pairs_are_the_squares_of_ranges),
        cmocka_unit_test(test_grids_that_no_model_can_run),
        cmocka_unit_test(test_scratch_of_a_larger_picture),
        cmocka_unit_test(test_scratch_bytes_report_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
