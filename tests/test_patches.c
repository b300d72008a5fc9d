/* Rows of single patches: transformers' numbers for them, which part of a picture they show, what is refused. */
#define MEGAVIT_TEXT
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "support.h"
#include "rule.h"

enum { MOST_VALUES = 1024 };

static void rows_are_those_of_transformers(void **state) {
    static char line[1 << 17];
    static float rows[MOST_VALUES], expected[MOST_VALUES], found[MOST_VALUES], threaded[MOST_VALUES];
    FILE *golden = fopen("tests/golden/text/patches.golden", "rb");
    mgv_threads *threads = NULL;
    mgv_parallel_for parallel;
    size_t lines = 0;
    (void)state;
    assert_non_null(golden);
    assert_int_equal(mgv_threads_create(&threads, 3, NULL, NULL), MGV_OK);
    parallel = mgv_threads_parallel_for(threads);
    for (; fgets(line, sizeof line, golden); lines++) {
        char *view_name = strchr(line, ' ') + 1, *number = strchr(view_name, ' ') + 1, *given = strchr(number, ' ') + 1;
        char *answer = strchr(given, ' ') + 1, path[256];
        const uint32_t count = (uint32_t)strtoul(number, NULL, 10);
        size_t values = read_floats(answer, expected, MOST_VALUES);
        mgv_output source;
        mgv_model *model;
        mgv_error error;
        const size_t width = read_floats(given, rows, MOST_VALUES) / count, wide = values / (count + (*view_name == 'l'));
        const mgv_patch_view view = *view_name == 'a' ? MGV_PATCH_ALONE : MGV_PATCH_LEFT_OUT;
        view_name[-1] = 0;
        snprintf(path, sizeof path, "tests/golden/text/%.200s", line);
        model = open_directory(path, MGV_TOWER_VISION);
        assert_int_equal(mgv_patch_source(model, &source, &error), MGV_OK);
        assert_int_equal(source.kind, strncmp(line, "siglip", 6) == 0 ? MGV_OUTPUT_TOKENS : MGV_OUTPUT_LAYER);
        if (source.kind == MGV_OUTPUT_LAYER) assert_int_equal(source.index, 0); /* one layer */
        if (mgv_patch_embeds(model, view, rows, count, NULL, found, values, &error) != MGV_OK) fail_msg("%s: %s", line, error.message);
        if (!(relative_l2(found, expected, values) <= 1e-5)) fail_msg("%s: relative L2 %.2e", line, relative_l2(found, expected, values));
        assert_int_equal(mgv_patch_embeds(model, view, rows, count, &parallel, threaded, values, &error), MGV_OK);
        assert_memory_equal(found, threaded, values * sizeof *found);
        if (view == MGV_PATCH_ALONE) { /* neighbours do not matter */
            assert_int_equal(mgv_patch_embeds(model, view, rows + width, 1, NULL, threaded, wide, &error), MGV_OK);
            assert_memory_equal(found + wide, threaded, wide * sizeof *found);
        }
        assert_int_equal(mgv_patch_embeds(model, view, rows, count, NULL, found, values - 1, &error), MGV_ERROR_CAPACITY);
        assert_non_null(strstr(error.message, "there is room for"));
        mgv_model_close(model);
    }
    assert_int_equal(lines, 8);
    mgv_threads_destroy(threads);
    fclose(golden);
}

static void only_towers_that_are_compared_with_texts_have_them(void **state) {
    static const struct { const char *path; mgv_tower tower; const char *why; } cases[] = {
        {"tests/golden/dinov2_saved", MGV_TOWER_VISION, "not compared with texts"},
        {"tests/golden/qwen3_saved", MGV_TOWER_VISION, "not compared with texts"},
        {"tests/golden/text/siglip", MGV_TOWER_TEXT, "a text tower has no patches"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mgv_model *model = open_directory(cases[i].path, cases[i].tower);
        float row[4096] = {0}, out[4096];
        mgv_output source;
        mgv_error error;
        assert_int_equal(mgv_patch_source(model, &source, &error), MGV_ERROR_UNSUPPORTED);
        assert_non_null(strstr(error.message, cases[i].why));
        assert_int_equal(mgv_patch_embeds(model, MGV_PATCH_ALONE, row, 1, NULL, out, 4096, &error), MGV_ERROR_UNSUPPORTED);
        assert_int_equal(mgv_patch_embeds(model, 7, row, 1, NULL, out, 4096, &error), MGV_ERROR_ARGUMENT);
        mgv_model_close(model);
    }
}

static void check_region(const mgv_model *model, uint32_t width, uint32_t height, double left, double top, double wide, double high) {
    mgv_image image;
    mgv_error error;
    double region[4];
    memset(&image, 0, sizeof image);
    image.width = width;
    image.height = height;
    if (mgv_model_region(model, &image, 0, 0, region, &error) != MGV_OK) fail_msg("%s", error.message);
    if (fabs(region[0] - left) > 1 || fabs(region[1] - top) > 1 || fabs(region[2] - wide) > 1 || fabs(region[3] - high) > 1)
        fail_msg("%u x %u: %g %g %g %g", width, height, region[0], region[1], region[2], region[3]);
}
static void regions_are_what_a_processor_keeps(void **state) {
    mgv_model *whole = open_directory("examples/model", MGV_TOWER_VISION), *middle = open_directory("tests/golden/text/clip", MGV_TOWER_VISION);
    mgv_image image;
    mgv_grid grid;
    mgv_error error;
    (void)state;
    check_region(whole, 640, 480, 0, 0, 640, 480);
    memset(&image, 0, sizeof image);
    image.width = image.height = 100;
    assert_int_equal(mgv_model_grid(middle, &image, 0, 0, &grid, &error), MGV_OK);
    check_region(middle, 1000 * grid.width, 500 * grid.width, 250 * grid.width, 0, 500 * grid.width, 500 * grid.width);
    check_region(middle, 500 * grid.width, 1000 * grid.width, 0, 250 * grid.width, 500 * grid.width, 500 * grid.width);
    mgv_model_close(whole);
    mgv_model_close(middle);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_those_of_transformers), cmocka_unit_test(only_towers_that_are_compared_with_texts_have_them),
        cmocka_unit_test(regions_are_what_a_processor_keeps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
