/* megavit map: what is bright lies where the thing is, mistakes are said. Its pictures are read back by the program itself. */
#include "tests/program.h"

enum { PLACES = 3 * 224 * 224 };

/* A red square in the left half of a light picture. */
static const char *draw_square(uint32_t width, uint32_t height) {
    const char *path = in_scratch("square.ppm");
    FILE *stream = fopen(path, "wb");
    assert_non_null(stream);
    fprintf(stream, "P6\n%u %u\n255\n", width, height);
    for (uint32_t y = 0; y < height; y++)
        for (uint32_t x = 0; x < width; x++) {
            const int inside = x > width / 8 && x < width * 3 / 8 && y > height * 3 / 8 && y < height * 5 / 8;
            fputc(inside ? 210 : 225, stream);
            fputc(inside ? 30 : 230, stream);
            fputc(inside ? 35 : 235, stream);
        }
    fclose(stream);
    return path;
}

/* Mean of a channel, in [-1, 1], over a square of the map, whose panels are read back squashed to 224 x 224. */
static double mean_at(const float *pixels, int channel, int x, int y) {
    double sum = 0;
    for (int i = -2; i <= 2; i++)
        for (int k = -2; k <= 2; k++) sum += (double)pixels[(size_t)channel * 224 * 224 + (size_t)(y + i) * 224 + (size_t)(x + k)];
    return sum / 25;
}
static const float *read_map(const char *path) {
    static unsigned char file[128 + PLACES * 4 + 1];
    static float pixels[PLACES];
    assert_int_equal(run("preprocess", "--model", "examples/model", "-o", in_scratch("pixels.npy"), path), 0);
    assert_int_equal(read_all(in_scratch("pixels.npy"), file, sizeof file), 128 + PLACES * 4);
    memcpy(pixels, file + 128, sizeof pixels);
    return pixels;
}

static void components_tell_thing_from_ground(void **state) {
    const float *pixels;
    double apart = 0, alike = 0;
    (void)state;
    assert_int_equal(run("map", "--model", "examples/model", "--pca", "-o", in_scratch("map.png"), draw_square(160, 160)), 0);
    assert_string_equal(said_out, "");
    assert_string_equal(said_err, "");
    pixels = read_map(in_scratch("map.png"));
    for (int c = 0; c < 3; c++) { /* the right panel: from 116 to 219 across, 16 to 186 down */
        apart += fabs(mean_at(pixels, c, 141, 101) - mean_at(pixels, c, 195, 101));
        alike += fabs(mean_at(pixels, c, 195, 60) - mean_at(pixels, c, 195, 140));
    }
    assert_true(apart > 0.8 && apart > 2 * alike);
    assert_true(mean_at(pixels, 0, 29, 101) > 0.4 && mean_at(pixels, 1, 29, 101) < -0.6); /* the picture itself, beside it */
    assert_int_equal(run("map", "--model", "tests/golden/dinov2_saved", "--pca", "-o", in_scratch("other.png"), draw_square(64, 48)), 0);
    assert_int_equal(run("map", "--model", VARIABLE_MODEL, "--pca", "-o", in_scratch("other.png"), draw_square(640, 96)), 0);
}

/* How much colour there is over a square of the map. */
static double colour_at(const float *pixels, int x, int y) {
    double least = 2, most = -2;
    for (int c = 0; c < 3; c++) {
        const double value = mean_at(pixels, c, x, y);
        least = value < least ? value : least;
        most = value > most ? value : most;
    }
    return most - least;
}
static void a_text_is_answered_where_the_thing_is(void **state) {
    const float *pixels;
    double thing = 0, ground = 0;
    (void)state;
    assert_int_equal(run("map", "--model", "examples/model", "--text", "a red square", "-o", in_scratch("map.png"),
                         draw_square(160, 160)), 0);
    assert_string_equal(said_err, "");
    pixels = read_map(in_scratch("map.png"));
    for (int x = 131; x <= 151; x += 5) { /* the square is from 129 to 155 across the right panel, and 80 to 122 down */
        thing += colour_at(pixels, x, 82) + colour_at(pixels, x, 101) + colour_at(pixels, x, 120);
        ground += colour_at(pixels, x + 50, 82) + colour_at(pixels, x + 50, 101) + colour_at(pixels, x + 50, 120);
    }
    assert_true(thing > 3 * ground && thing > 3);
    assert_int_equal(run("map", "--model", "examples/model", "--alone", "--text", "a red square", "-o", in_scratch("map.png"),
                         draw_square(300, 100)), 0);
}

static void mistakes_are_said(void **state) {
    char picture[512], out[512];
    (void)state;
    snprintf(picture, sizeof picture, "%s", draw_square(64, 64));
    snprintf(out, sizeof out, "%s", in_scratch("none.png"));
    assert_int_equal(run("map", "--pca", "-o", out, picture), 1);
    assert_non_null(strstr(said_err, "--model DIR is missing"));
    assert_int_equal(run("map", "--model", MODEL, "-o", out, picture), 1);
    assert_non_null(strstr(said_err, "--text TEXT or --pca is missing"));
    assert_int_equal(run("map", "--model", MODEL, "--pca", "--text", "a", "-o", out, picture), 1);
    assert_non_null(strstr(said_err, "either or"));
    assert_int_equal(run("map", "--model", MODEL, "--pca", picture), 1);
    assert_int_equal(run("map", "--model", MODEL, "--pca", "--alone", "-o", out, picture), 1);
    assert_int_equal(run("map", "--model", MODEL, "--pca", "-o", out), 1);
    assert_int_equal(run("map", "--model", MODEL, "--pca", "-o", picture, picture), 1); /* it would replace what is read */
    assert_bad_file(run("map", "--model", "tests/golden/dinov2_saved", "--text", "a", "-o", out, picture), "text tower");
    assert_bad_file(run("map", "--model", MODEL, "--text", "a", "-o", out, picture), "text tower");
    assert_bad_file(run("map", "--model", MODEL, "--pca", "-o", out, in_scratch("absent.png")), "absent.png");
    assert_false(exists(out));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(components_tell_thing_from_ground),
                                       cmocka_unit_test(a_text_is_answered_where_the_thing_is), cmocka_unit_test(mistakes_are_said)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
