/* Image processors: what is made of a picture under the settings of a model directory is bit for bit what transformers makes of it, and
   what transformers refuses is refused. tests/golden/processors.txt is made by tests/make_processor_vectors.py. */
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "support.h"
#include "rule.h"

static mgv_result read_config(const char *config_json, const char *preprocessor_json, mgv__config *config, mgv_error *error) {
    mgv_memory_file files[2];
    mgv_model_desc desc;
    mgv__source source;
    memset(&desc, 0, sizeof desc);
    desc.memory_files = files;
    desc.memory_file_count = 2;
    files[0].name = "config.json";
    files[0].data = config_json;
    files[0].bytes = strlen(config_json);
    files[1].name = "preprocessor_config.json";
    files[1].data = preprocessor_json;
    files[1].bytes = strlen(preprocessor_json);
    assert_int_equal(mgv__source_open(&source, &desc, error), MGV_OK);
    return mgv__config_read(config, &source, error);
}

/* Bands one after the other, last first. */
static void run_backwards(void *user, uint32_t count, mgv_task task, void *context) {
    (void)user;
    while (count > 0) task(context, --count);
}

/* Hash of the answer, or 0 where the picture is refused. Scratch memory and answer are exactly as large as was asked for. */
static uint64_t prepare(const mgv__config *config, mgv_resize resize, const mgv_image *image, uint32_t threads, unsigned long *rows,
                        unsigned long *columns, mgv_error *error) {
    const mgv__pixels_config *pixels = &config->pixels;
    const mgv__pixels_layout layout = pixels->size < MGV__SIZE_AREA ? MGV__PIXELS_CHW : MGV__PIXELS_PATCHES;
    mgv_parallel_for parallel = {NULL, threads, run_backwards};
    mgv_grid grid;
    size_t bytes, count, i;
    void *scratch = NULL;
    float *out;
    uint64_t hash;
    if (mgv__pixels_grid(pixels, image->width, image->height, 1, 0, 0, &grid, error) != MGV_OK) return 0;
    if (mgv__pixels_scratch_bytes(pixels, image->width, image->height, grid.tokens, &bytes, error) != MGV_OK) return 0;
    *rows = layout == MGV__PIXELS_CHW ? 3 * (unsigned long)grid.height : grid.tokens;
    *columns = layout == MGV__PIXELS_CHW ? grid.width : 3ul * pixels->temporal_patch * pixels->patch * pixels->patch;
    count = *rows * *columns;
    assert_int_equal(posix_memalign(&scratch, 64, bytes + 64), 0);
    memset(scratch, 0xA5, bytes + 64);
    out = (float *)malloc(count * sizeof(float));
    memset(out, 0xFF, count * sizeof(float));
    mgv__pixels_prepare(pixels, resize, image, &grid, scratch, &parallel, out, layout);
    for (i = bytes; i < bytes + 64; i++) assert_int_equal(((uint8_t *)scratch)[i], 0xA5);
    hash = hash_floats(out, count);
    free(scratch);
    free(out);
    return hash;
}

static void as_transformers(void **state) {
    FILE *stream = fopen("tests/golden/processors.txt", "r");
    char line[2048];
    unsigned checked = 0, refused = 0, wrong = 0;
    (void)state;
    assert_non_null(stream);
    while (fgets(line, sizeof line, stream) != NULL) {
        char *field[9], *at = line;
        unsigned long rows = 0, columns = 0;
        mgv__config config;
        mgv_error error;
        mgv_image image;
        uint8_t *data;
        uint64_t hash = 0;
        uint32_t threads;
        int count = 0;
        if (*line == '#') continue;
        line[strcspn(line, "\n")] = 0;
        for (; count < 9 && at != NULL; count++) {
            field[count] = at;
            at = strchr(at, '\t');
            if (at != NULL) *at++ = 0;
        }
        assert_true(count == 9 || count == 7);
        memset(&image, 0, sizeof image);
        image.width = (uint32_t)strtoul(field[3], NULL, 10);
        image.height = (uint32_t)strtoul(field[4], NULL, 10);
        data = rule_bytes(strtoul(field[5], NULL, 10), 3 * (size_t)image.width * image.height);
        image.pixels = data;
        memset(&error, 0, sizeof error);
        for (threads = 1; threads < 8; threads += 6) {
            const mgv_resize resize = strcmp(field[0], "pillow") == 0 ? MGV_RESIZE_PILLOW : MGV_RESIZE_TORCHVISION;
            hash = 0;
            if (read_config(field[1], field[2], &config, &error) == MGV_OK)
                hash = prepare(&config, resize, &image, threads, &rows, &columns, &error);
            if (count == 7 ? hash != 0 : hash != strtoull(field[8], NULL, 16) || rows != strtoul(field[6], NULL, 10) ||
                                             columns != strtoul(field[7], NULL, 10)) {
                print_message("%s %s %s of %s x %s: %lu x %lu %s\n", field[0], field[1], field[2], field[3], field[4], rows, columns,
                              hash ? "" : error.message);
                wrong++;
                break;
            }
        }
        checked++;
        refused += count == 7;
        free(data);
    }
    fclose(stream);
    print_message("%u answers, %u of them refusals\n", checked, refused);
    assert_int_equal(wrong, 0);
    assert_true(checked > 300 && refused > 15);
}

/* The caller's limit on pixels is NaFlex's on patches. */
static void patches_are_limited_by_pixels(void **state) {
    static const char naflex[] = "{\"model_type\":\"siglip2_vision_model\"}";
    mgv__config all, few;
    mgv_grid limited, wanted;
    mgv_error error;
    uint32_t side;
    (void)state;
    assert_int_equal(read_config(naflex, "{}", &all, &error), MGV_OK);
    assert_int_equal(read_config(naflex, "{\"max_num_patches\":36}", &few, &error), MGV_OK);
    for (side = 1; side < 2000; side += 1 + side / 3) {
        assert_int_equal(mgv__pixels_grid(&few.pixels, side, 640, 1, 0, 0, &wanted, &error), MGV_OK);
        assert_int_equal(mgv__pixels_grid(&all.pixels, side, 640, 1, 0, 37 * 256 - 1, &limited, &error), MGV_OK);
        assert_memory_equal(&limited, &wanted, sizeof wanted);
        assert_true(wanted.tokens <= 36);
    }
    assert_int_equal(mgv__pixels_grid(&all.pixels, 64, 64, 1, 0, 256, &limited, &error), MGV_OK);
    assert_int_equal(limited.tokens, 1);
    assert_int_equal(mgv__pixels_grid(&all.pixels, 64, 64, 1, 0, 255, &limited, &error), MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "less than one patch"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_transformers),
        cmocka_unit_test(patches_are_limited_by_pixels),
    };
    return cmocka_run_group_tests_name("processors", tests, NULL, NULL);
}
