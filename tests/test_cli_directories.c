/* Model directories on the command line: what inspect tells of how pictures are prepared, what is said aloud, models that do not resize. */
#include "tests/program.h"

/* A directory with the weights of MODEL and these files; NULL: none. */
static const char *make_directory(const char *name, const char *preprocessor, const char *processor) {
    static const char *const files[] = {"config.json", "model.safetensors"};
    static char directories[8][512];
    static int next;
    char path[256], target[4096], *directory = directories[next++ % 8];
    snprintf(directory, sizeof directories[0], "%s", in_scratch(name));
    mkdir(directory, 0777);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", MODEL, files[i]);
        whole_path(target, sizeof target, path);
        snprintf(path, sizeof path, "%s/%s", name, files[i]);
        point(path, target);
    }
    snprintf(path, sizeof path, "%s/preprocessor_config.json", name);
    if (preprocessor) write_all(in_scratch(path), preprocessor, strlen(preprocessor));
    snprintf(path, sizeof path, "%s/processor_config.json", name);
    if (processor) write_all(in_scratch(path), processor, strlen(processor));
    return directory;
}
static void assert_said(const char *text, const char *what) {
    if (!strstr(text, what)) fail_msg("'%s' is not in: %s", what, text);
}

static void inspect_tells_how_pictures_are_prepared(void **state) {
    const char *both = make_directory("both", "{\"image_mean\":0.25,\"resample\":1}",
                                      "{\"image_processor\":{\"image_std\":[0.1,0.2,0.3],\"size\":{\"height\":40,\"width\":40}}}");
    (void)state;
    assert_int_equal(run("inspect", both), 0);
    assert_said(said_out, "processor SiglipImageProcessor\n");
    assert_said(said_out, "size      40 x 40 (processor_config.json)\n");
    assert_said(said_out, "resample  bicubic (class defaults)\n"); /* the nested settings win as a whole */
    assert_said(said_out, "mean      0.5 0.5 0.5 (class defaults)\n");
    assert_said(said_out, "std       0.1 0.2 0.3 (processor_config.json)\n");
    assert_string_equal(said_err, "");
    assert_int_equal(run("inspect", make_directory("crop", "{\"size\":{\"shortest_edge\":50},\"do_center_crop\":true,\"crop_size\":40,"
                                                           "\"do_normalize\":false}", NULL)), 0);
    assert_said(said_out, "size      shorter side 50, then the middle 40 x 40 (preprocessor_config.json)\n");
    assert_said(said_out, "not normalised\n");
    assert_int_equal(run("inspect", VARIABLE_MODEL), 0);
    assert_said(said_out, "size      1024 to 65536 pixels, sides multiples of 32 (preprocessor_config.json)\n");
    assert_said(said_out, "clips     1024 to 65536 pixels in all frames (preprocessor_config.json)\n");
}
static void what_is_not_there_is_said_aloud(void **state) {
    const char *bare = make_directory("bare", NULL, NULL);
    (void)state;
    assert_int_equal(run("inspect", bare), 0);
    assert_said(said_out, "mean      0.5 0.5 0.5 (published)\n");
    assert_int_equal(lines(said_err), 1);
    assert_said(said_err, "megavit: warning: ");
    assert_said(said_err, "there is no preprocessor_config.json: pictures are prepared as the published files of SigLIP have it: bicubic; "
                          "SigLIP2's are bilinear");
    assert_int_equal(run("preprocess", "--model", bare, "-o", in_scratch("bare.npy"), own[0]), 0);
    assert_said(said_err, "there is no preprocessor_config.json");
    assert_int_equal(run("inspect", make_directory("foreign", "{\"image_processor_type\":\"LlavaImageProcessor\"}", NULL)), 0);
    assert_said(said_err, "image processor \"LlavaImageProcessor\" is not known here; its keys are read as those of SiglipImageProcessor");
}
/* own[4] has the model's 40 x 40 pixels, own[0] has not. */
static void do_resize_false_works_through_every_command(void **state) {
    const char *still = make_directory("still", "{\"do_resize\":false}", NULL);
    static unsigned char plain[1 << 16], same[1 << 16];
    size_t bytes;
    (void)state;
    assert_int_equal(run("inspect", still), 0);
    assert_said(said_out, "size      not resized");
    assert_int_equal(run("preprocess", "--model", MODEL, "-o", in_scratch("plain.npy"), own[4]), 0);
    assert_int_equal(run("preprocess", "--model", still, "-o", in_scratch("same.npy"), own[4]), 0);
    bytes = read_all(in_scratch("plain.npy"), plain, sizeof plain);
    assert_int_equal(read_all(in_scratch("same.npy"), same, sizeof same), bytes);
    assert_memory_equal(plain, same, bytes);
    assert_int_equal(run("embed", "--model", MODEL, "-o", in_scratch("plain.npy"), own[4]), 0);
    assert_int_equal(run("embed", "--model", still, "-o", in_scratch("same.npy"), own[0], own[4]), 2);
    assert_said(said_err, "a picture of 64 x 48 pixels becomes 64 x 48 (do_resize is false); this model takes 40 x 40");
    assert_int_equal(lines(said_err), 1);
    bytes = read_all(in_scratch("plain.npy"), plain, sizeof plain);
    assert_int_equal(read_all(in_scratch("same.npy"), same, sizeof same), bytes);
    assert_memory_equal(plain, same, bytes);
    assert_int_equal(run("plan", "--model", still), 0);
    assert_int_equal(run("search", "--model", still, "--index", in_scratch("still.db"), "--add", own[4]), 0);
    assert_int_equal(run("search", "--model", still, "--index", in_scratch("still.db"), "--query", own[4]), 0);
    assert_said(said_out, "e.ppm");
}
static void a_hub_name_is_explained(void **state) {
    (void)state;
    assert_bad_file(run("inspect", "google/siglip2-base-patch16-224"), "hf download google/siglip2-base-patch16-224 --local-dir");
    assert_bad_file(run("embed", "--model", "google/siglip2-base-patch16-224", own[0]), "hf download");
    assert_bad_file(run("inspect", in_scratch("nothing.safetensors")), "nothing.safetensors");
}

/* A JPEG, a PNG and a WebP photo are what transformers' processors make of the opened files, bit for bit: tests/make_photo_vectors.py. A
   format that this build decodes without the library that Pillow has is left out. */
static void photos_are_those_of_transformers(void **state) {
    FILE *stream = fopen("tests/golden/photos/answers.txt", "r");
    static char versions[MAX_TEXT];
    char line[1024];
    int compared = 0;
    (void)state;
    assert_non_null(stream);
    assert_int_equal(run("--version"), 0);
    memcpy(versions, said_out, sizeof versions);
    while (fgets(line, sizeof line, stream) != NULL) {
        const char *backend = strtok(line, "\t"), *name = strtok(NULL, "\t"), *keys = strtok(NULL, "\t"), *answer = strtok(NULL, "\n");
        const char *needed = strstr(name, ".jpg") ? "libjpeg-turbo" : strstr(name, ".webp") ? "(libwebp " : "PNG";
        uint64_t hash = 0xCBF29CE484222325u;
        char path[128];
        array pixels;
        assert_non_null(answer);
        if (!strstr(versions, needed)) continue;
        snprintf(path, sizeof path, "tests/golden/photos/%s", name);
        assert_int_equal(run("preprocess", "--model", make_directory("photos", keys, NULL), "--resize", backend, "-o",
                             in_scratch("photo.npy"), path), 0);
        pixels = read_array(in_scratch("photo.npy"));
        assert_int_equal(pixels.count, 3 * SIDE * SIDE);
        for (uint64_t i = 0; i < pixels.count; i++) {
            uint32_t bits;
            memcpy(&bits, pixels.data + 4 * i, 4);
            hash = (hash ^ bits) * 0x100000001B3u;
        }
        if (hash != strtoull(answer, NULL, 16)) fail_msg("%s, %s, %s", backend, name, keys);
        free(pixels.file);
        compared++;
    }
    fclose(stream);
    print_message("%d answers\n", compared);
    assert_true(compared >= 4); /* PNG is always there */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inspect_tells_how_pictures_are_prepared),
        cmocka_unit_test(what_is_not_there_is_said_aloud),
        cmocka_unit_test(do_resize_false_works_through_every_command),
        cmocka_unit_test(a_hub_name_is_explained),
        cmocka_unit_test(photos_are_those_of_transformers),
    };
    return cmocka_run_group_tests_name("directories on the command line", tests, set_up, tear_down);
}
