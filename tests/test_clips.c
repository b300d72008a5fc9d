/* Clips: what is made of them under the settings of a directory's video processor, which need not be those of its image processor, is bit for
   bit what transformers makes of them. tests/golden/clips.txt is made by tests/make_clip_vectors.py. */
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "support.h"
#include "memory_model.h"
#include "rule.h"

/* pictures: of preprocessor_config.json; clips: of video_preprocessor_config.json, or NULL. */
static void read_config(const char *config_json, const char *pictures, const char *clips, mgv__config *config) {
    const char *const names[] = {"config.json", "preprocessor_config.json", "video_preprocessor_config.json"};
    const char *const texts[] = {config_json, pictures, clips};
    mgv_memory_file files[3];
    mgv_model_desc desc;
    mgv__source source;
    mgv_error error;
    uint32_t i;
    memset(&desc, 0, sizeof desc);
    desc.memory_files = files;
    for (i = 0; i < 3 && texts[i] != NULL; i++) {
        files[i].name = names[i];
        files[i].data = texts[i];
        files[i].bytes = strlen(texts[i]);
    }
    desc.memory_file_count = i;
    assert_int_equal(mgv__source_open(&source, &desc, &error), MGV_OK);
    if (mgv__config_read(config, &source, &error) != MGV_OK) fail_msg("%s %s: %s", config_json, clips ? clips : pictures, error.message);
}

/* Rows of the clip, in memory that is exactly as large as was asked for. */
static float *prepare(const mgv__config *config, const mgv_image *clip, mgv_grid *grid, size_t *count) {
    mgv__pixels_config room;
    mgv_error error;
    size_t bytes = 0;
    void *scratch = NULL;
    float *out;
    if (mgv__pixels_grid(mgv__pixels_config_for(&config->pixels, clip, &room), clip->width, clip->height, clip->frames, 0, 0, grid, &error) !=
            MGV_OK ||
        mgv__pixels_scratch_bytes(&config->pixels, clip->width, clip->height, grid->tokens, &bytes, &error) != MGV_OK)
        fail_msg("%s", error.message);
    *count = (size_t)grid->tokens * 3 * config->temporal_patch * config->patch * config->patch;
    assert_int_equal(posix_memalign(&scratch, 64, bytes), 0);
    out = (float *)malloc(*count * sizeof(float));
    memset(out, 0xFF, *count * sizeof(float));
    mgv__pixels_prepare(&config->pixels, MGV_RESIZE_TORCHVISION, clip, grid, scratch, NULL, out, MGV__PIXELS_PATCHES);
    free(scratch);
    return out;
}

static void as_transformers(void **state) {
    FILE *stream = fopen("tests/golden/clips.txt", "r");
    char line[2048];
    unsigned checked = 0, wrong = 0;
    (void)state;
    assert_non_null(stream);
    while (fgets(line, sizeof line, stream) != NULL) {
        char *field[9], *at = line;
        mgv__config config, alone;
        mgv_image clip;
        mgv_grid grid;
        uint8_t *data;
        float *out, *same;
        size_t values, still;
        int count = 0;
        if (*line == '#') continue;
        line[strcspn(line, "\n")] = 0;
        for (; count < 9 && at != NULL; count++) {
            field[count] = at;
            at = strchr(at, '\t');
            if (at != NULL) *at++ = 0;
        }
        assert_int_equal(count, 9);
        memset(&clip, 0, sizeof clip);
        clip.width = (uint32_t)strtoul(field[2], NULL, 10);
        clip.height = (uint32_t)strtoul(field[3], NULL, 10);
        clip.frames = (uint32_t)strtoul(field[4], NULL, 10);
        data = rule_bytes(strtoul(field[5], NULL, 10), 3 * (size_t)clip.width * clip.height * clip.frames);
        clip.pixels = data;
        read_config(field[0], "{\"image_mean\":0.3,\"image_std\":0.7}", field[1], &config);
        out = prepare(&config, &clip, &grid, &values);
        if (grid.tokens != strtoul(field[6], NULL, 10) || values != grid.tokens * strtoul(field[7], NULL, 10) ||
            hash_floats(out, values) != strtoull(field[8], NULL, 16)) {
            print_message("%s %s %s x %s x %s: %u tokens\n", field[0], field[1], field[2], field[3], field[4], grid.tokens);
            wrong++;
        }
        free(out);
        /* a picture knows nothing of that */
        clip.frames = 1;
        read_config(field[0], "{\"image_mean\":0.3,\"image_std\":0.7}", NULL, &alone);
        out = prepare(&config, &clip, &grid, &values);
        same = prepare(&alone, &clip, &grid, &still);
        assert_int_equal(values, still);
        assert_memory_equal(out, same, values * sizeof(float));
        free(out);
        free(same);
        free(data);
        checked++;
    }
    fclose(stream);
    print_message("%u clips\n", checked);
    assert_int_equal(wrong, 0);
    assert_true(checked > 90);
}

/* A whole model says what it does with clips and where that comes from. */
static void what_is_said_of_clips(void **state) {
    static const char video[] = "{\"patch_size\":2,\"merge_size\":2,\"temporal_patch_size\":2,\"image_mean\":0.25,\"do_rescale\":false,"
                                "\"cap_pixels_per_frame\":true,\"max_video_tokens\":77}";
    memory_model m;
    mgv_memory_file files[4];
    mgv_model_desc desc;
    mgv_preprocessing_info info;
    mgv_model *model;
    mgv_error error;
    uint32_t with;
    (void)state;
    small_qwen(&m);
    memcpy(files, m.files, sizeof m.files);
    files[3].name = "video_preprocessor_config.json";
    files[3].data = video;
    files[3].bytes = sizeof video - 1;
    for (with = 0; with < 2; with++) {
        memset(&desc, 0, sizeof desc);
        desc.memory_files = files;
        desc.memory_file_count = 3 + with;
        if (mgv_model_open(&model, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
        assert_int_equal(mgv_model_get_preprocessing(model, &info), MGV_OK);
        assert_true(info.mean[0] != 0.25 && info.do_rescale && info.clip_do_resize && info.clip_do_normalize && info.clip_resample == 3);
        assert_true(info.clip_mean[1] == (with ? 0.25 : info.mean[1]) && info.clip_std[2] == info.std[2]);
        assert_int_equal(info.clip_do_rescale, !with);
        assert_int_equal(info.clip_tokens, with ? 77 : 0);
        assert_string_equal(info.clip_mean_from, with ? "video_preprocessor_config.json" : "class defaults");
        assert_string_equal(info.clip_resample_from, "class defaults");
        mgv_model_close(model);
    }
    memory_model_free(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_transformers), cmocka_unit_test(what_is_said_of_clips)};
    return cmocka_run_group_tests_name("clips", tests, NULL, NULL);
}
