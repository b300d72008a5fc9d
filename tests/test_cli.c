/* The command line as scripts see it: words, exit codes, files, the one line that a bad file gets.

   Runs $BUILD/megavit. Pictures of ../shared/data are used where they are there. */
#include "tests/program.h"

/* ---- words ---- */

static void usage_mistakes_are_1(void **state) {
    static const char *const wrong[][8] = {
        {"fly"},
        {"embed"},
        {"embed", "--model"},
        {"embed", "--model", MODEL},
        {"embed", "--model", MODEL, "--wings", "2", "a.ppm"},
        {"embed", "--model", MODEL, "--what", "everything", "a.ppm"},
        {"embed", "--model", MODEL, "--what", "layer:", "a.ppm"},
        {"embed", "--model", MODEL, "--what", "layer:x", "a.ppm"},
        {"embed", "--model", MODEL, "--what", "pooled:1", "a.ppm"},
        {"embed", "--model", MODEL, "--batch", "0", "a.ppm"},
        {"embed", "--model", MODEL, "--batch", "-3", "a.ppm"},
        {"embed", "--model", MODEL, "--threads", "99999999999", "a.ppm"},
        {"embed", "--model", MODEL, "--format", "xml", "a.ppm"},
        {"embed", "--model", MODEL, "--resize", "magic", "a.ppm"},
        {"embed", "--model", MODEL, "--backend", "abacus", "a.ppm"},
        {"embed", "--model", MODEL, "--normalize=yes", "a.ppm"},
        {"preprocess", "--model", MODEL, "a.ppm"},
        {"preprocess", "--model", MODEL, "-o", "x.npy"},
        {"preprocess", "--model", MODEL, "-o", "x.npy", "a.ppm", "b.ppm"},
        {"inspect"},
        {"inspect", "one", "two"},
        {"plan"},
        {"plan", "--model", MODEL, "stray"},
        {"plan", "--model", MODEL, "--size", "64"},
        {"plan", "--model", MODEL, "--size", "64x"},
        {"plan", "--model", MODEL, "--size", "0x64"},
        {"plan", "--model", MODEL, "--size", "64x64x64"},
        {"plan", "--model", MODEL, "--size", "448x-18446744073709551168"}, /* 448 - 2^64, which strtoul takes for 448 */
        {"plan", "--model", MODEL, "--size", "+64x64"},
        {"plan", "--model", MODEL, "--size", "64x 64"},
        {"plan", "--model", MODEL, "--size", "64x1048577"},
        {"bench", "--model", MODEL, "--batch", "-18446744073709551615"},
        {"bench", "--model", MODEL, "--batch", "1,"},
        {"bench", "--model", MODEL, "--batch", ",1"},
        {"bench", "--model", MODEL, "--batch", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"},
        {"bench", "--model", MODEL, "--batch", "65537"},
        {"plan", "--model", MODEL, "--frames", "2"},
        {"plan", "--model", MODEL, "--sms", "0"},
        {"validate"},
        {"validate", "--model", MODEL, "--batch", "0"},
        {"plan", "--model", MODEL, "--backend", "tpu"},
        {"plan", "--model", VARIABLE_MODEL, "--max-pixels", "0"},
        {"pack", "--model", MODEL},
        {"pack", "-o", "x.mgvp"},
        {"pack", "--model", MODEL, "-o", "x.mgvp", "stray"},
        {"pack", "--model", MODEL, "--arch", "sm_80", "-o", "x.mgvp"},
        {"embed", "--model", VARIABLE_MODEL, "--max-pixels", "1099511627777", "a.ppm"},
        {"preprocess", "--model", VARIABLE_MODEL, "--min-pixels", "many", "a.ppm"},
        {"plan", "--model", VARIABLE_MODEL, "--size", "4000x16"},
        {"search", "--model", MODEL},
        {"search", "--model", MODEL, "--index", "x.db"},
        {"search", "--index", "x.db", "--query", "a.ppm"},
        {"search", "--index", "x.db", "--list", "--threshold", "2"},
        {"search", "--index", "x.db", "--list", "--threshold", "near"},
        {"search", "--model", MODEL, "--index", "x.db", "stray"},
        {"classify", "--model", MODEL, "a.ppm"},
    };
    (void)state;
    assert_int_equal(run_list(NULL, NULL, 0), 1);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        int count = 0;
        while (count < 8 && wrong[i][count]) count++;
        if (run_list(NULL, wrong[i], count) != 1) fail_msg("case %zu: %s", i, said_err);
        assert_true(strlen(said_err) > 0);
        assert_int_equal(said_out[0], 0);
    }
}

/* The first words of said_out's lines that are indented by two and begin with `first`, a blank behind each. */
static void listed_words(char *words, size_t room, const char *first) {
    const char *at = strstr(said_out, "\n  ");
    size_t used = 0;
    words[0] = 0;
    for (; at; at = strstr(at + 1, "\n  ")) {
        const char *word = at + 3;
        if (*word == ' ' || strncmp(word, first, strlen(first)) != 0) continue;
        used += (size_t)snprintf(words + used, room - used, "%.*s ", (int)strcspn(word, " \n"), word);
        assert_true(used < room);
    }
}

/* What the help tells of is all that there is: an option that comes or goes is to be written here, too. */
static void help_is_0_and_names_every_option(void **state) {
    static const char *const told[][2] = {
        {"embed", "--model --backend --packed --resize --alpha --threads --precision --batch --devices --scaled-decoding --timing --memory --min-pixels --max-pixels --no-recurse --files-from --files0-from --what --normalize --format -o "},
        {"preprocess", "--model --backend --packed --resize --alpha --threads --min-pixels --max-pixels -o "},
        {"inspect", ""},
        {"search", "--model --backend --packed --resize --alpha --threads --precision --batch --devices --memory --index --add --no-recurse --files-from --files0-from --prune --remove --list --duplicates --query --text --lower-case -k "
                   "--threshold --json --wait "},
        {"classify", "--model --backend --packed --resize --alpha --threads --precision --batch --devices --memory --no-recurse --files-from --files0-from --labels --label --template "
                     "--lower-case -k "},
        {"map", "--model --backend --packed --resize --alpha --threads --min-pixels --max-pixels --text --alone --pca --lower-case -o "},
        {"generate", "--model --image --prompt --ids --raw --think --ignore-eos --max-tokens --greedy --temperature --top-p --top-k --seed "
                     "--format --logits --min-pixels --max-pixels --backend --resize --alpha --threads --precision "},
        {"chat", "--model --think --max-tokens --context --greedy --temperature --top-p --top-k --seed --min-pixels --max-pixels --backend "
                 "--threads --precision "},
        {"text", "--model -o --ids --normalize --format --lower-case --threads --precision "},
        {"tokenize", "--model --decode --plain --special --lower-case "},
        {"plan", "--model --batch --size --frames --backend --arch --precision --sms --sessions --position --schedule-images --min-pixels --max-pixels "},
        {"pack", "--model --arch --precision -o "},
        {"bench", "--model --backend --packed --resize --alpha --threads --precision --batch --json "},
        {"validate", "--model --images --batch --resize --precision --threads "},
    };
    char words[512], commands[512] = "";
    (void)state;
    for (size_t i = 0; i < sizeof told / sizeof told[0]; i++) {
        assert_int_equal(run(told[i][0], "--help"), 0);
        assert_int_equal(said_err[0], 0);
        listed_words(words, sizeof words, "-");
        assert_string_equal(words, told[i][1]);
        snprintf(words, sizeof words, "usage: megavit %s ", told[i][0]);
        assert_non_null(strstr(said_out, words));
        strcat(strcat(commands, told[i][0]), " ");
    }
    assert_int_equal(run("inspect", "--help"), 0);
    assert_non_null(strstr(said_out, "PATH"));
    assert_int_equal(run("--help"), 0);
    listed_words(words, sizeof words, "");
    strcat(commands, "version ");
    assert_string_equal(words, commands);
    assert_int_equal(run("--version"), 0);
    snprintf(words, sizeof words, "%.500s", said_out);
    assert_int_equal(run("version"), 0);
    assert_memory_equal(said_out, words, strlen(words));
    assert_non_null(strstr(said_out, "pictures: JPEG ("));
    assert_non_null(strstr(said_out, "PNG (stb_image)"));
    assert_int_equal(run("embed", "--help"), 0);
    assert_non_null(strstr(said_out, "pictures in one call (8, on a GPU 64)"));
}

static void what_the_model_lacks_is_a_usage_mistake(void **state) {
    (void)state;
    assert_int_equal(run("embed", "--model", MODEL, "--what", "layer:3", "-o", in_scratch("lacks.npy"), own[0]), 1);
    assert_non_null(strstr(said_err, "layer:2"));
    assert_int_equal(run("embed", "--model", MODEL, "--what", "deepstack:0", "-o", in_scratch("lacks.npy"), own[0]), 1);
    assert_int_equal(run("embed", "--model", VARIABLE_MODEL, "--what", "pooled", "-o", in_scratch("lacks.npy"), own[0]), 1);
    assert_int_equal(run("search", "--model", VARIABLE_MODEL, "--index", in_scratch("lacks.db"), "--add", own[0]), 1);
    assert_false(exists(in_scratch("lacks.npy")));
    assert_false(exists(in_scratch("lacks.db")));
}

/* ---- embed ---- */

static void rows_come_in_the_order_of_the_arguments(void **state) {
    array all, one;
    (void)state;
    assert_int_equal(run("embed", "--model", MODEL, "-o", in_scratch("all.npy"), own[0], own[1], own[2], own[3], own[4]), 0);
    assert_int_equal(said_out[0], 0);
    assert_int_equal(said_err[0], 0); /* no progress where there is no terminal */
    all = read_array(in_scratch("all.npy"));
    assert_string_equal(all.descr, "<f4");
    assert_shape(&all, 2, OWN_COUNT, WIDTH, 0, 0);
    for (uint32_t i = 0; i < OWN_COUNT; i++) {
        assert_int_equal(run("embed", "--model", MODEL, "--what", "pooled", "-o", in_scratch("one.npy"), own[i]), 0);
        one = read_array(in_scratch("one.npy"));
        assert_shape(&one, 2, 1, WIDTH, 0, 0);
        assert_memory_equal(one.data, all.data + i * WIDTH * 4, WIDTH * 4);
        for (uint32_t k = 0; k < i; k++) assert_memory_not_equal(one.data, all.data + k * WIDTH * 4, WIDTH * 4);
        free(one.file);
    }
    free(all.file);
}

static void batch_and_threads_do_not_change_a_bit(void **state) {
    static const char *const ways[][2] = {{"1", "1"}, {"8", "1"}, {"2", "2"}, {"3", "3"}, {"8", "4"}};
    (void)state;
    assert_int_equal(run("embed", "--model", MODEL, "--what", "tokens", "-o", in_scratch("first.npy"), in_scratch("pictures")), 0);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        assert_int_equal(run("embed", "--model", MODEL, "--what", "tokens", "--batch", ways[i][0], "--threads", ways[i][1], "-o",
                             in_scratch("again.npy"), in_scratch("pictures")),
                         0);
        assert_same_file(in_scratch("first.npy"), in_scratch("again.npy"));
    }
}

static void tokens_and_layers_have_their_shapes(void **state) {
    static const char *const whats[] = {"tokens", "layer:0", "layer:1", "layer:2"};
    (void)state;
    for (size_t i = 0; i < sizeof whats / sizeof whats[0]; i++) {
        array a;
        assert_int_equal(run("embed", "--model", MODEL, "--what", whats[i], "-o", in_scratch("tokens.npy"), own[0], own[1], own[2]), 0);
        a = read_array(in_scratch("tokens.npy"));
        assert_shape(&a, 3, 3, TOKENS, WIDTH, 0);
        free(a.file);
        assert_false(exists(in_scratch("tokens.npy.offsets.npy")));
    }
}

static void normalize_gives_rows_of_length_1(void **state) {
    array plain, unit;
    (void)state;
    assert_int_equal(run("embed", "--model", MODEL, "-o", in_scratch("plain.npy"), own[0], own[1]), 0);
    assert_int_equal(run("embed", "--model", MODEL, "--normalize", "-o", in_scratch("unit.npy"), own[0], own[1]), 0);
    plain = read_array(in_scratch("plain.npy"));
    unit = read_array(in_scratch("unit.npy"));
    for (uint64_t row = 0; row < 2; row++) {
        double square = 0, scale = 0;
        for (uint64_t i = row * WIDTH; i < (row + 1) * WIDTH; i++) {
            square += (double)array_float(&unit, i) * (double)array_float(&unit, i);
            scale += (double)array_float(&plain, i) * (double)array_float(&plain, i);
        }
        assert_true(fabs(square - 1) < 1e-5);
        assert_true(fabs(scale - 1) > 1e-3);
        for (uint64_t i = row * WIDTH; i < (row + 1) * WIDTH; i++)
            assert_true(fabs((double)array_float(&unit, i) * sqrt(scale) - (double)array_float(&plain, i)) < 1e-5 * sqrt(scale));
    }
    free(plain.file);
    free(unit.file);
}

static void jsonl_says_the_same_floats(void **state) {
    array a;
    char *at = said_out;
    (void)state;
    assert_int_equal(run("embed", "--model", MODEL, "-o", in_scratch("same.npy"), own[0], own[1], own[2]), 0);
    a = read_array(in_scratch("same.npy"));
    assert_int_equal(run("embed", "--model", MODEL, "--format", "jsonl", own[0], own[1], own[2]), 0);
    assert_int_equal(lines(said_out), 3);
    for (uint64_t row = 0; row < 3; row++) {
        char start[256];
        snprintf(start, sizeof start, "{\"file\": \"%s\", \"embedding\": [", own[row]);
        assert_memory_equal(at, start, strlen(start));
        at += strlen(start);
        for (uint64_t i = 0; i < WIDTH; i++) {
            float value = strtof(at, &at), expected = array_float(&a, row * WIDTH + i);
            assert_memory_equal(&value, &expected, sizeof value);
            if (i + 1 < WIDTH) at += 2;
        }
        assert_memory_equal(at, "]}\n", 3);
        at += 3;
    }
    free(a.file);
    assert_int_equal(run("embed", "--model", MODEL, "--format", "jsonl", "--what", "tokens", "-o", in_scratch("tokens.jsonl"), own[0]), 0);
    assert_int_equal(said_out[0], 0);
    read_all(in_scratch("tokens.jsonl"), said_out, sizeof said_out);
    assert_int_equal(lines(said_out), 1);
    assert_non_null(strstr(said_out, "\"embedding\": [["));
    assert_non_null(strstr(said_out, "]]}\n"));
}

static void npy_goes_to_standard_output(void **state) {
    (void)state;
    assert_int_equal(run("embed", "--model", MODEL, "-o", in_scratch("file.npy"), own[0], own[3]), 0);
    assert_int_equal(run("embed", "--model", MODEL, own[0], own[3]), 0);
    assert_same_file(in_scratch("file.npy"), in_scratch("stdout"));
}

static void directories_and_standard_input_name_pictures(void **state) {
    char list[512];
    (void)state;
    assert_int_equal(run("embed", "--model", MODEL, "-o", in_scratch("named.npy"), own[0], own[1], own[2], own[3], own[4]), 0);
    write_all(in_scratch("pictures/notes.txt"), "no picture", 10); /* not taken: its name says so */
    assert_int_equal(run("embed", "--model", MODEL, "-o", in_scratch("directory.npy"), in_scratch("pictures")), 0);
    assert_same_file(in_scratch("named.npy"), in_scratch("directory.npy"));
    snprintf(list, sizeof list, "%s\n\n%s\r\n%s\n%s", own[1], own[2], own[3], own[4]);
    write_all(in_scratch("list"), list, strlen(list));
    assert_int_equal(run_from(in_scratch("list"), "embed", "--model", MODEL, "-o", in_scratch("list.npy"), own[0], "-", NULL), 0);
    assert_same_file(in_scratch("named.npy"), in_scratch("list.npy"));
    mkdir(in_scratch("empty"), 0777);
    assert_bad_file(run("embed", "--model", MODEL, "-o", in_scratch("none.npy"), in_scratch("empty")), "empty");
    assert_false(exists(in_scratch("none.npy")));
}

static void standard_input_without_names_is_a_bad_file(void **state) {
    char *inputs[] = {NULL, strdup(in_scratch("blank")), strdup(in_scratch("pictures")), strdup(in_scratch("not_there"))};
    (void)state;
    write_all(inputs[1], "\n\r\n\n", 4);
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) { /* empty, blank, a directory, closed */
        const char *reason = i < 2 ? "standard input: there is no name in it" : "standard input: cannot read the names: ";
        assert_bad_file(run_from(inputs[i], "embed", "--model", MODEL, "-o", in_scratch("none.npy"), "-", NULL), reason);
        assert_bad_file(run_from(inputs[i], "search", "--model", MODEL, "--index", in_scratch("none.db"), "--add", "-", NULL), reason);
        assert_false(exists(in_scratch("none.npy")) || exists(in_scratch("none.db")));
        assert_bad_file(run_from(inputs[i], "embed", "--model", MODEL, "-o", in_scratch("one.npy"), own[0], "-", NULL), reason);
        assert_true(exists(in_scratch("one.npy"))); /* the names that there are */
        assert_int_equal(remove(in_scratch("one.npy")), 0);
        free(inputs[i]);
    }
}

/* find -print0 makes one line of all names, and of that line only the first would be taken. */
static void names_that_end_with_a_zero_are_a_bad_file(void **state) {
    char list[512];
    int length = snprintf(list, sizeof list, "%s%c%s%c\n%s\n", own[0], 0, own[1], 0, own[2]);
    array a;
    (void)state;
    write_all(in_scratch("zeros"), list, (size_t)length);
    assert_bad_file(run_from(in_scratch("zeros"), "embed", "--model", MODEL, "-o", in_scratch("zeros.npy"), "-", NULL), "zero byte");
    a = read_array(in_scratch("zeros.npy"));
    assert_shape(&a, 2, 1, WIDTH, 0, 0); /* the name that is one */
    free(a.file);
}

static void two_dashes_end_the_options(void **state) {
    (void)state;
    assert_bad_file(run("embed", "--model", MODEL, "-o", in_scratch("none.npy"), "--", "--help"), "--help");
}

/* ---- pixels ---- */

static void alpha_becomes_white_and_grey_is_replicated(void **state) {
    enum { W = 30, H = 20 };
    unsigned char *rgb = noise(9, W * H * 3), grey[W * H], white[W * H * 3], *at = rgb;
    (void)state;
    write_tga(in_scratch("rgb.tga"), W, H, rgb, -1);
    write_tga(in_scratch("clear.tga"), W, H, rgb, 0);
    write_tga(in_scratch("half.tga"), W, H, rgb, 128);
    write_pnm(in_scratch("rgb.ppm"), 3, W, H, rgb);
    for (int i = 0; i < W * H * 3; i++) white[i] = (unsigned char)((rgb[i] * 128 + 255 * 127 + 127) / 255); /* nearest; never half-way */
    write_pnm(in_scratch("half.ppm"), 3, W, H, white);
    memset(white, 255, sizeof white);
    write_pnm(in_scratch("clear.ppm"), 3, W, H, white);
    for (int i = 0; i < W * H; i++, at += 3) grey[i] = at[1] = at[2] = at[0];
    write_pnm(in_scratch("grey_rgb.ppm"), 3, W, H, rgb);
    write_pnm(in_scratch("grey.pgm"), 1, W, H, grey);
    free(rgb);
    assert_int_equal(run("preprocess", "--model", MODEL, "-o", in_scratch("rgb.npy"), in_scratch("rgb.ppm")), 0);
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"rgb.tga", "clear.tga", "half.tga"};
        static const char *const over_white[] = {"rgb.ppm", "clear.ppm", "half.ppm"};
        assert_int_equal(run("preprocess", "--model", MODEL, "--alpha", "drop", "-o", in_scratch("tga.npy"), in_scratch(names[i])), 0);
        assert_same_file(in_scratch("rgb.npy"), in_scratch("tga.npy"));
        assert_int_equal(run("preprocess", "--model", MODEL, "-o", in_scratch("tga.npy"), in_scratch(names[i])), 0);
        assert_int_equal(run("preprocess", "--model", MODEL, "-o", in_scratch("ppm.npy"), in_scratch(over_white[i])), 0);
        assert_same_file(in_scratch("ppm.npy"), in_scratch("tga.npy"));
    }
    assert_int_equal(run("preprocess", "--model", MODEL, "-o", in_scratch("grey_rgb.npy"), in_scratch("grey_rgb.ppm")), 0);
    assert_int_equal(run("preprocess", "--model", MODEL, "-o", in_scratch("grey.npy"), in_scratch("grey.pgm")), 0);
    assert_same_file(in_scratch("grey_rgb.npy"), in_scratch("grey.npy"));
}

static void preprocess_gives_the_pixel_values(void **state) {
    unsigned char flat[12 * 7 * 3];
    array a;
    (void)state;
    for (size_t i = 0; i < sizeof flat; i += 3) {
        flat[i] = 255;
        flat[i + 1] = 0;
        flat[i + 2] = 51;
    }
    write_pnm(in_scratch("flat.ppm"), 3, 12, 7, flat);
    assert_int_equal(run("preprocess", "--model", MODEL, "-o", in_scratch("flat.npy"), in_scratch("flat.ppm")), 0);
    assert_int_equal(said_out[0], 0);
    a = read_array(in_scratch("flat.npy"));
    assert_string_equal(a.descr, "<f4");
    assert_shape(&a, 4, 1, 3, SIDE, SIDE);
    for (uint64_t i = 0; i < SIDE * SIDE; i++) { /* a flat picture stays flat; mean and deviation are 0.5 */
        assert_true(array_float(&a, i) == 1.0f);
        assert_true(array_float(&a, SIDE * SIDE + i) == -1.0f);
        assert_true(fabs((double)array_float(&a, 2 * SIDE * SIDE + i) + 0.6) < 1e-6);
    }
    free(a.file);
    assert_int_equal(run("preprocess", "--model", MODEL, "-o", in_scratch("pillow.npy"), own[0]), 0);
    assert_int_equal(run("preprocess", "--model", MODEL, "--resize", "pillow", "-o", in_scratch("pillow_too.npy"), own[0]), 0);
    assert_int_equal(run("preprocess", "--model", MODEL, "--resize", "torchvision", "-o", in_scratch("torchvision.npy"), own[0]), 0);
    assert_same_file(in_scratch("pillow.npy"), in_scratch("pillow_too.npy"));
    a = read_array(in_scratch("torchvision.npy"));
    assert_shape(&a, 4, 1, 3, SIDE, SIDE);
    free(a.file);
}

/* ---- models whose token count depends on the picture ---- */

static void tokens_of_several_pictures_have_offsets(void **state) {
    static const int sizes[3][2] = {{64, 64}, {96, 64}, {32, 160}};
    static const char *const names[3] = {"v0.ppm", "v1.ppm", "v2.ppm"};
    array all, offsets;
    uint64_t row = 0;
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        unsigned char *pixels = noise(i + 50, (size_t)(sizes[i][0] * sizes[i][1] * 3));
        write_pnm(in_scratch(names[i]), 3, sizes[i][0], sizes[i][1], pixels);
        free(pixels);
    }
    assert_int_equal(run("embed", "--model", VARIABLE_MODEL, "-o", in_scratch("v.npy"), in_scratch("v0.ppm"), in_scratch("v1.ppm"),
                         in_scratch("v2.ppm")),
                     0);
    all = read_array(in_scratch("v.npy"));
    offsets = read_array(in_scratch("v.npy.offsets.npy"));
    assert_string_equal(offsets.descr, "<i8");
    assert_shape(&offsets, 1, 4, 0, 0, 0);
    assert_int_equal(all.rank, 2);
    for (uint32_t i = 0; i < 3; i++) {
        array one;
        assert_int_equal(run("embed", "--model", VARIABLE_MODEL, "--what", "tokens", "-o", in_scratch("one.npy"), in_scratch(names[i])), 0);
        one = read_array(in_scratch("one.npy"));
        assert_int_equal(one.rank, 2);
        assert_int_equal(one.shape[1], all.shape[1]);
        assert_true(one.shape[0] > 0);
        assert_memory_equal(one.data, all.data + row * all.shape[1] * 4, one.count * 4);
        for (int byte = 0; byte < 8; byte++) assert_int_equal(offsets.data[8 * i + (uint32_t)byte], row >> (8 * byte) & 0xFF);
        row += one.shape[0];
        free(one.file);
    }
    assert_int_equal(row, all.shape[0]);
    free(all.file);
    free(offsets.file);
    assert_int_equal(run("embed", "--model", VARIABLE_MODEL, "--what", "deepstack:1", "-o", in_scratch("d.npy"), in_scratch("v0.ppm")), 0);
    assert_int_equal(run("embed", "--model", VARIABLE_MODEL, "--what", "deepstack:2", "-o", in_scratch("d2.npy"), in_scratch("v0.ppm")), 1);
    assert_int_equal(run("embed", "--model", VARIABLE_MODEL, "--format", "jsonl", in_scratch("v0.ppm"), in_scratch("v1.ppm")), 0);
    assert_int_equal(lines(said_out), 2);
}

static void assert_offsets(const char *file, uint64_t pictures) {
    char path[300];
    array rows = read_array(file), offsets;
    uint64_t last = 0;
    snprintf(path, sizeof path, "%s.offsets.npy", file);
    offsets = read_array(path);
    assert_shape(&offsets, 1, pictures + 1, 0, 0, 0);
    for (int byte = 7; byte >= 0; byte--) last = last << 8 | offsets.data[8 * pictures + (uint64_t)byte];
    assert_int_equal(last, rows.shape[0]);
    free(rows.file);
    free(offsets.file);
}

static void offsets_are_those_of_their_file(void **state) {
    char file[256], beside[256];
    struct stat about;
    (void)state;
    snprintf(file, sizeof file, "%s", in_scratch("pair.npy"));
    snprintf(beside, sizeof beside, "%s", in_scratch("pair.npy.offsets.npy"));
    assert_int_equal(run("embed", "--model", VARIABLE_MODEL, "-o", file, own[0], own[3]), 0);
    assert_offsets(file, 2);
    assert_int_equal(stat(file, &about), 0);
    assert_int_equal(run("embed", "--model", VARIABLE_MODEL, "-o", file, own[0]), 0);
    assert_offsets(file, 1);
    remove(beside);
    assert_bad_file(run("embed", "--model", VARIABLE_MODEL, "-o", file, in_scratch("absent.png"), own[3]), "absent.png");
    assert_offsets(file, 1);
    file_limit = (rlim_t)about.st_size - 1; /* the offsets have room and the rows have not */
    assert_bad_file(run("embed", "--model", VARIABLE_MODEL, "-o", file, own[0], own[3]), "pair.npy");
    file_limit = RLIM_INFINITY;
    assert_offsets(file, 1);
    remove(beside);
    assert_int_equal(mkdir(beside, 0777), 0); /* and the other way round */
    assert_bad_file(run("embed", "--model", VARIABLE_MODEL, "-o", file, own[0], own[3]), "pair.npy.offsets.npy");
    assert_int_equal(rmdir(beside), 0);
    assert_int_equal(run("embed", "--model", VARIABLE_MODEL, "--format", "jsonl", "-o", file, own[0]), 0);
    assert_false(exists(beside));
    assert_int_equal(partial_files(), 0);
}

/* /dev/null by a link of our own, so that a file beside it would lie here. */
static void a_device_has_no_offsets(void **state) {
    (void)state;
    point("device.npy", "/dev/null");
    assert_int_equal(run("embed", "--model", VARIABLE_MODEL, "-o", in_scratch("device.npy"), own[0], own[3]), 0);
    assert_false(exists(in_scratch("device.npy.offsets.npy")));
}

static void preprocess_prints_the_grid(void **state) {
    unsigned char *pixels = noise(77, 96 * 64 * 3);
    unsigned t, h, w;
    array a;
    (void)state;
    write_pnm(in_scratch("grid.ppm"), 3, 96, 64, pixels);
    free(pixels);
    assert_int_equal(run("preprocess", "--model", VARIABLE_MODEL, "-o", in_scratch("grid.npy"), in_scratch("grid.ppm")), 0);
    assert_int_equal(sscanf(said_out, "grid_thw %u %u %u\n", &t, &h, &w), 3);
    assert_int_equal(t, 1);
    a = read_array(in_scratch("grid.npy"));
    assert_shape(&a, 2, (uint64_t)t * h * w, 3 * 2 * 16 * 16, 0, 0);
    free(a.file);
    /* limits of the caller's own */
    assert_int_equal(
        run("preprocess", "--model", VARIABLE_MODEL, "--max-pixels", "1024", "-o", in_scratch("grid.npy"), in_scratch("grid.ppm")), 0);
    assert_string_equal(said_out, "grid_thw 1 2 2\n");
    assert_int_equal(run("embed", "--model", VARIABLE_MODEL, "--what", "tokens", "--min-pixels=20000", "-o", in_scratch("grid.npy"),
                         in_scratch("grid.ppm")),
                     0);
    a = read_array(in_scratch("grid.npy"));
    assert_shape(&a, 2, 4 * 6, 32, 0, 0);
    free(a.file);
}

/* The mistake is on the command line: one line, however many pictures there are. */
static void limits_that_no_picture_keeps_are_a_usage_mistake(void **state) {
    static const char *const limits[][2] = {
        {"--min-pixels=99999999", "--max-pixels=5"},
        {"--min-pixels=1099511627776", "--resize=pillow"}, /* more than the model's most */
        {"--resize=pillow", "--max-pixels=5"},             /* less than its least */
    };
    (void)state;
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        const char *first = limits[i][0], *second = limits[i][1], *output = in_scratch("limits.npy");
        assert_int_equal(run("embed", "--model", VARIABLE_MODEL, first, second, "-o", output, own[0], own[1]), 1);
        if (lines(said_err) != 1 || !strstr(said_err, "pixels")) fail_msg("case %zu: %s", i, said_err);
        assert_int_equal(run("preprocess", "--model", VARIABLE_MODEL, first, second, "-o", output, own[0]), 1);
        assert_int_equal(lines(said_err), 1);
    }
    for (size_t i = 0; i < 2; i++) { /* and of no picture: this model's have one size */
        const char *limit = i ? "--max-pixels=65536" : "--min-pixels=64";
        assert_int_equal(run("embed", "--model", MODEL, limit, "-o", in_scratch("limits.npy"), own[0]), 1);
        assert_non_null(strstr(said_err, "are for models of any picture size; this one takes "));
        assert_int_equal(run("plan", "--model", MODEL, limit), 1);
        assert_string_equal(said_out, "");
    }
    assert_false(exists(in_scratch("limits.npy")));
}

static void a_picture_that_no_grid_fits_is_left_out(void **state) {
    unsigned char *pixels = noise(78, 4200 * 3);
    array a;
    (void)state;
    write_pnm(in_scratch("thread.ppm"), 3, 4200, 1, pixels); /* an aspect ratio over 200 */
    free(pixels);
    assert_bad_file(run("embed", "--model", VARIABLE_MODEL, "-o", in_scratch("thread.npy"), in_scratch("thread.ppm")), "thread.ppm");
    assert_false(exists(in_scratch("thread.npy")));
    assert_bad_file(run("embed", "--model", VARIABLE_MODEL, "-o", in_scratch("thread.npy"), in_scratch("thread.ppm"), own[0]),
                    "thread.ppm");
    a = read_array(in_scratch("thread.npy"));
    assert_int_equal(a.rank, 2);
    free(a.file);
}

/* ---- bad files ---- */

static void one_bad_picture_is_left_out(void **state) {
    array good, some;
    (void)state;
    write_all(in_scratch("bad.png"), "this is no picture", 18);
    assert_int_equal(run("embed", "--model", MODEL, "-o", in_scratch("good.npy"), own[0], own[1]), 0);
    assert_bad_file(run("embed", "--model", MODEL, "-o", in_scratch("some.npy"), own[0], in_scratch("bad.png"), own[1]), "bad.png");
    good = read_array(in_scratch("good.npy"));
    some = read_array(in_scratch("some.npy"));
    assert_shape(&some, 2, 2, WIDTH, 0, 0);
    assert_memory_equal(good.file, some.file, good.bytes);
    free(good.file);
    free(some.file);
}

static void nothing_is_written_when_nothing_is_good(void **state) {
    char newline[300];
    unsigned char truncated[200];
    (void)state;
    write_all(in_scratch("bad.png"), "this is no picture", 18);
    write_all(in_scratch("old.npy"), "old", 3);
    assert_bad_file(run("embed", "--model", MODEL, "-o", in_scratch("old.npy"), in_scratch("bad.png")), "bad.png");
    assert_int_equal(read_all(in_scratch("old.npy"), said_out, sizeof said_out), 3); /* untouched */
    assert_bad_file(run("embed", "--model", MODEL, "-o", in_scratch("no.npy"), in_scratch("absent.png")), "absent.png");
    assert_bad_file(run("embed", "--model", MODEL, "-o", in_scratch("no.npy"), "/dev/zero"), "/dev/zero");
    snprintf(newline, sizeof newline, "%s/two\nlines.png", scratch);
    assert_bad_file(run("embed", "--model", MODEL, "-o", in_scratch("no.npy"), newline), "two\\x0Alines.png");
    assert_bad_file(run("preprocess", "--model", MODEL, "-o", in_scratch("no.npy"), in_scratch("bad.png")), "bad.png");
    write_pnm(in_scratch("whole.ppm"), 3, 8, 8, (const unsigned char *)said_err);
    read_all(in_scratch("whole.ppm"), truncated, sizeof truncated);
    write_all(in_scratch("short.ppm"), truncated, 60);
    assert_bad_file(run("embed", "--model", MODEL, "-o", in_scratch("no.npy"), in_scratch("short.ppm")), "short.ppm");
    assert_false(exists(in_scratch("no.npy")));
}

static void a_bomb_is_refused_before_it_is_unpacked(void **state) {
    /* 30000 x 30000 grey pixels in a PNG of 45 bytes, and sizes that stb_image refuses by itself. */
    static const unsigned char head[] = {0x89, 'P', 'N', 'G', 13, 10, 26, 10, 0, 0, 0, 13, 'I', 'H', 'D', 'R'};
    unsigned char png[45] = {0};
    (void)state;
    memcpy(png, head, sizeof head);
    png[18] = png[22] = 30000 >> 8;
    png[19] = png[23] = 30000 & 255;
    png[24] = 8;
    memcpy(png + 33 + 4, "IDAT", 4);
    write_all(in_scratch("bomb.png"), png, sizeof png);
    assert_bad_file(run("embed", "--model", MODEL, "-o", in_scratch("no.npy"), in_scratch("bomb.png")), "bomb.png");
    png[25] = 6;
    write_all(in_scratch("bomb.png"), png, sizeof png);
    assert_bad_file(run("embed", "--model", MODEL, "-o", in_scratch("no.npy"), in_scratch("bomb.png")), "bomb.png");
    png[16] = png[20] = 0x7F;
    write_all(in_scratch("bomb.png"), png, sizeof png);
    assert_bad_file(run("embed", "--model", MODEL, "-o", in_scratch("no.npy"), in_scratch("bomb.png")), "bomb.png");
    assert_false(exists(in_scratch("no.npy")));
}

static void outputs_that_cannot_be_written_are_bad_files(void **state) {
    (void)state;
    assert_bad_file(run("embed", "--model", MODEL, "-o", in_scratch("absent/x.npy"), own[0]), "absent/x.npy");
    assert_bad_file(run("embed", "--model", MODEL, "-o", in_scratch("pictures"), own[0]), "pictures");
    assert_bad_file(run("embed", "--model", MODEL, "-o", "/dev/full", own[0]), "/dev/full");
    assert_bad_file(run("preprocess", "--model", MODEL, "-o", "/dev/full", own[0]), "/dev/full");
    assert_int_equal(partial_files(), 0);
}

static void a_link_stays_and_its_target_is_written(void **state) {
    static const char *const links[] = {"link.npy", "chain.npy", "links/far.npy", "dangling.npy"};
    static const char *const targets[] = {"real.npy", "real.npy", "real.npy", "links/new.npy"};
    struct stat about;
    (void)state;
    mkdir(in_scratch("links"), 0777);
    point("link.npy", "real.npy");
    point("chain.npy", "links/far.npy");
    point("links/far.npy", "../link.npy");
    point("dangling.npy", "links/new.npy");
    assert_int_equal(run("embed", "--model", MODEL, "-o", in_scratch("expected.npy"), own[0]), 0);
    for (size_t i = 0; i < 4; i++) {
        write_all(in_scratch("real.npy"), "old", 3);
        assert_int_equal(run("embed", "--model", MODEL, "-o", in_scratch(links[i]), own[0]), 0);
        if (!is_link(in_scratch(links[i]))) fail_msg("%s is no link any more", links[i]);
        assert_same_file(in_scratch(targets[i]), in_scratch("expected.npy"));
    }
    assert_int_equal(chmod(in_scratch("real.npy"), 0640), 0);
    assert_int_equal(run("embed", "--model", MODEL, "-o", in_scratch("link.npy"), own[0]), 0);
    assert_int_equal(stat(in_scratch("real.npy"), &about), 0);
    assert_int_equal(about.st_mode & 0777, 0640);
    point("round.npy", "round.npy");
    assert_bad_file(run("embed", "--model", MODEL, "-o", in_scratch("round.npy"), own[0]), "round.npy");
    point("null.npy", "/dev/null");
    assert_int_equal(run("embed", "--model", MODEL, "-o", in_scratch("null.npy"), own[0]), 0);
    assert_true(is_link(in_scratch("null.npy")));
    assert_int_equal(partial_files(), 0);
}

/* As /dev/stdout is, but of our own: what goes wrong here must not take the machine's. */
static void a_link_to_standard_output_is_standard_output(void **state) {
    (void)state;
    if (!exists("/proc/self/fd/1")) skip_because("there is no /proc/self/fd");
    point("output", "/proc/self/fd/1");
    assert_int_equal(run("embed", "--model", MODEL, "-o", in_scratch("expected.npy"), own[0]), 0);
    write_all(in_scratch("stdout"), "", 0);
    assert_int_equal(run("embed", "--model", MODEL, "-o", in_scratch("output"), own[0]), 0);
    assert_true(is_link(in_scratch("output")));
    assert_same_file(in_scratch("stdout"), in_scratch("expected.npy"));
    assert_int_equal(run("embed", "--model", MODEL, "-o", in_scratch("stdout"), own[0]), 0); /* by its own name */
    assert_same_file(in_scratch("stdout"), in_scratch("expected.npy"));
    assert_int_equal(partial_files(), 0);
}

/* A SigLIP tower that the GPU kernel runs: one layer of 640 columns in 10 heads, 64 px in patches of 16, weights of zero. */
static const char *hopper_model(void) {
    static const char *const tensors[][2] = {
        {"embeddings.patch_embedding.weight", "640,3,16,16"}, {"embeddings.patch_embedding.bias", "640"},
        {"embeddings.position_embedding.weight", "16,640"},
        {"encoder.layers.0.layer_norm1.weight", "640"}, {"encoder.layers.0.layer_norm1.bias", "640"},
        {"encoder.layers.0.self_attn.q_proj.weight", "640,640"}, {"encoder.layers.0.self_attn.q_proj.bias", "640"},
        {"encoder.layers.0.self_attn.k_proj.weight", "640,640"}, {"encoder.layers.0.self_attn.k_proj.bias", "640"},
        {"encoder.layers.0.self_attn.v_proj.weight", "640,640"}, {"encoder.layers.0.self_attn.v_proj.bias", "640"},
        {"encoder.layers.0.self_attn.out_proj.weight", "640,640"}, {"encoder.layers.0.self_attn.out_proj.bias", "640"},
        {"encoder.layers.0.layer_norm2.weight", "640"}, {"encoder.layers.0.layer_norm2.bias", "640"},
        {"encoder.layers.0.mlp.fc1.weight", "1280,640"}, {"encoder.layers.0.mlp.fc1.bias", "1280"},
        {"encoder.layers.0.mlp.fc2.weight", "640,1280"}, {"encoder.layers.0.mlp.fc2.bias", "640"},
        {"post_layernorm.weight", "640"}, {"post_layernorm.bias", "640"}, {"head.probe", "1,1,640"},
        {"head.attention.in_proj_weight", "1920,640"}, {"head.attention.in_proj_bias", "1920"},
        {"head.attention.out_proj.weight", "640,640"}, {"head.attention.out_proj.bias", "640"},
        {"head.layernorm.weight", "640"}, {"head.layernorm.bias", "640"},
        {"head.mlp.fc1.weight", "1280,640"}, {"head.mlp.fc1.bias", "1280"}, {"head.mlp.fc2.weight", "640,1280"},
        {"head.mlp.fc2.bias", "640"},
    };
    static const char config[] = "{\"model_type\":\"siglip_vision_model\",\"hidden_size\":640,\"intermediate_size\":1280,"
                                 "\"num_hidden_layers\":1,\"num_attention_heads\":10,\"image_size\":64,\"patch_size\":16}";
    static char directory[256];
    char header[8192];
    unsigned long long at = 0, length, i;
    size_t used = 1;
    FILE *stream;
    snprintf(directory, sizeof directory, "%s", in_scratch("hopper"));
    if (exists(directory)) return directory;
    assert_int_equal(mkdir(directory, 0777), 0);
    write_all(in_scratch("hopper/config.json"), config, sizeof config - 1);
    write_all(in_scratch("hopper/preprocessor_config.json"), "{}", 2);
    header[0] = '{';
    for (i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        unsigned long long shape[4] = {1, 1, 1, 1}, start = at;
        sscanf(tensors[i][1], "%llu,%llu,%llu,%llu", &shape[0], &shape[1], &shape[2], &shape[3]);
        at += 2 * shape[0] * shape[1] * shape[2] * shape[3];
        used += (size_t)snprintf(header + used, sizeof header - used,
                                 "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[%s],\"data_offsets\":[%llu,%llu]}", i ? "," : "", tensors[i][0],
                                 tensors[i][1], start, at);
    }
    header[used++] = '}';
    length = used;
    stream = fopen(in_scratch("hopper/model.safetensors"), "wb");
    assert_non_null(stream);
    for (i = 0; i < 8; i++) fputc((int)(length >> 8 * i & 255), stream);
    fwrite(header, 1, used, stream);
    fflush(stream);
    assert_int_equal(ftruncate(fileno(stream), (off_t)(8 + length + at)), 0); /* the rest is zero */
    fclose(stream);
    return directory;
}

static void assert_refused(int status, const char *what) {
    assert_int_equal(status, 1);
    if (lines(said_err) != 1 || !strstr(said_err, what)) fail_msg("not one line of '%s': %s", what, said_err);
}

/* A model whose weights are a link, as Hugging Face's cache has them. */
static const char *linked_model(void) {
    char config[4096], weights[300];
    size_t bytes;
    snprintf(weights, sizeof weights, "%s/model.safetensors", hopper_model());
    bytes = read_all(in_scratch("hopper/config.json"), config, sizeof config);
    mkdir(in_scratch("linked"), 0777);
    write_all(in_scratch("linked/config.json"), config, bytes);
    write_all(in_scratch("linked/preprocessor_config.json"), "{}", 2);
    point("linked/model.safetensors", weights);
    return in_scratch("linked");
}

static void an_output_that_is_an_input_is_refused(void **state) {
    static unsigned char before[65536], after[65536];
    char picture[256], model[256], json[256];
    size_t bytes;
    (void)state;
    snprintf(picture, sizeof picture, "%s", in_scratch("taken/p.ppm"));
    snprintf(json, sizeof json, "%s", in_scratch("linked/config.json"));
    snprintf(model, sizeof model, "%s", linked_model());
    bytes = read_all(own[0], before, sizeof before);
    mkdir(in_scratch("taken"), 0777);
    write_all(picture, before, bytes);
    write_all(in_scratch("taken/rows.offsets.npy"), before, bytes);
    point("picture.npy", "taken/p.ppm");
    assert_refused(run("embed", "--model", MODEL, "-o", picture, picture), "one of the pictures");
    assert_refused(run("embed", "--model", MODEL, "-o", in_scratch("picture.npy"), own[1], picture), "one of the pictures");
    assert_refused(run("embed", "--model", MODEL, "-o", picture, in_scratch("taken")), "one of the pictures");
    assert_refused(run("preprocess", "--model", MODEL, "-o", picture, picture), "one of the pictures");
    assert_refused(run("embed", "--model", VARIABLE_MODEL, "-o", in_scratch("taken/rows"), in_scratch("taken/rows.offsets.npy")),
                   "rows.offsets.npy: this output");
    assert_false(exists(in_scratch("taken/rows")));
    assert_refused(run("embed", "--model", MODEL, "--packed", picture, "--backend", "cpu", "-o", picture, own[1]), "packed weights");
    assert_int_equal(read_all(picture, after, sizeof after), bytes);
    assert_memory_equal(before, after, bytes);
    bytes = read_all(json, before, sizeof before);
    assert_refused(run("bench", "--model", model, "--batch", "1", "--backend", "cpu", "--json", json), "a file of the model");
    assert_int_equal(read_all(json, after, sizeof after), bytes);
    assert_refused(run("embed", "--model", model, "-o", json, own[0]), "a file of the model");
    assert_refused(run("preprocess", "--model", model, "-o", json, own[0]), "a file of the model");
    assert_refused(run("pack", "--model", model, "-o", in_scratch("linked/model.safetensors")), "a file of the model");
    assert_refused(run("pack", "--model", model, "-o", in_scratch("hopper/model.safetensors")), "a file of the model");
    for (int i = 0; i < 2; i++) /* beside the model, and again */
        assert_int_equal(run("pack", "--model", model, "-o", in_scratch("linked/packed.mgvp")), 0);
}

/* Exit code 2 and one line; that is all that a script that keeps the output sees of a full disk. */
static void standard_output_that_takes_nothing_is_a_bad_file(void **state) {
    static const char *const commands[][16] = {
        {"--help"},
        {"--version"},
        {"embed", "--help"},
        {"embed", "--model", MODEL, "a.ppm"},
        {"embed", "--model", MODEL, "--format", "jsonl", "--what", "tokens", "a.ppm"},
        {"classify", "--model", "examples/model", "--labels", "examples/model/labels.safetensors", "a.ppm"},
        {"inspect", MODEL},
        {"plan", "--model", MODEL},
        {"bench", "--model", MODEL, "--batch", "1", "--threads", "1", "--backend", "cpu"},
        {"preprocess", "--model", VARIABLE_MODEL, "-o", "x.npy", "a.ppm"},
        {"search", "--model", MODEL, "--index", "x.db", "--add", "a.ppm", "--query", "a.ppm"},
    };
    static const char *const places[] = {"/dev/full", ""};
    (void)state;
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        for (size_t k = 0; k < 2; k++) {
            const char *words[16];
            int count = 0, status;
            for (; count < 16 && commands[i][count]; count++) {
                const char *word = commands[i][count];
                words[count] = strcmp(word, "a.ppm") == 0 ? own[0] : word[0] == 'x' ? in_scratch(word) : word;
            }
            standard_output = places[k];
            status = run_list(NULL, words, count);
            standard_output = NULL;
            if (status != 2) fail_msg("%d: %s >%s", status, words[0], places[k]);
            assert_bad_file(status, k ? "standard output: cannot write: Bad file descriptor" : "standard output: cannot write: No space");
        }
    standard_output = ""; /* nobody misses what is not said */
    assert_int_equal(run("embed", "--model", MODEL, "-o", in_scratch("closed.npy"), own[0]), 0);
    assert_int_equal(run("embed", "--wings"), 1);
    standard_output = NULL;
}

/* The first file that is opened gets the number of standard output, if that is closed, and what is printed goes into it. */
static void a_closed_standard_output_is_no_file_of_ours(void **state) {
    static char json[65536];
    (void)state;
    standard_output = "";
    run("bench", "--model", MODEL, "--batch", "1", "--threads", "1", "--backend", "cpu", "--json", in_scratch("closed.json"));
    standard_output = NULL;
    read_all(in_scratch("closed.json"), json, sizeof json);
    assert_int_equal(json[0], '{');
    assert_null(strstr(json, "median ms"));
}

static void write_names(const char *path, int count) {
    FILE *names = fopen(path, "wb");
    assert_non_null(names);
    for (int i = 0; i < count; i++) fprintf(names, "%s\n", own[i % OWN_COUNT]);
    fclose(names);
}

/* embed at work, with what it does at one signal. */
static pid_t start_embed(const char *model, const char *output, const char *list, int number, void (*action)(int)) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char *arguments[] = {program, "embed", "--model", (char *)model, "-o", (char *)output, "-", NULL};
        signal(number, action);
        child(arguments, list);
    }
    return pid;
}

/* As soon as it has its temporary files. */
static void send_signal(pid_t pid, int number, int files) {
    const struct timespec pause = {0, 1000000};
    for (int tries = 0; partial_files() < files && tries < 60000; tries++) nanosleep(&pause, NULL);
    assert_int_equal(partial_files(), files);
    assert_int_equal(kill(pid, number), 0);
}

static void an_interrupted_program_leaves_nothing(void **state) {
    static const int numbers[] = {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM, SIGXCPU};
    char *output = strdup(in_scratch("interrupted.npy")), *list = strdup(in_scratch("many"));
    int status;
    (void)state;
    write_names(list, 2000); /* longer than the signal takes */
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const int files = i == 0 ? 3 : 2; /* rows and names, the first time with offsets */
        pid_t pid = start_embed(files == 3 ? VARIABLE_MODEL : "examples/model", output, list, numbers[i], SIG_DFL);
        send_signal(pid, numbers[i], files);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == numbers[i]);
        if (partial_files() != 0) fail_msg("signal %d leaves a file", numbers[i]);
        assert_false(exists(output));
    }
    free(output);
    free(list);
}

static void an_ignored_signal_stays_ignored(void **state) {
    char *output = strdup(in_scratch("nohup.npy")), *list = strdup(in_scratch("many"));
    int status;
    pid_t pid;
    (void)state;
    write_names(list, 100);
    pid = start_embed("examples/model", output, list, SIGHUP, SIG_IGN); /* as nohup does */
    send_signal(pid, SIGHUP, 2);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_true(exists(output));
    free(output);
    free(list);
}

/* ulimit -f, for whoever does not ignore its signal. */
static void a_file_that_grows_too_large_is_removed(void **state) {
    char *output = strdup(in_scratch("large.npy")), *list = strdup(in_scratch("many"));
    int status;
    pid_t pid;
    (void)state;
    write_names(list, 100);
    file_limit = 16384;
    file_limit_kills = 1;
    pid = start_embed("examples/model", output, list, SIGXFSZ, SIG_DFL);
    file_limit = RLIM_INFINITY;
    file_limit_kills = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ);
    assert_int_equal(partial_files(), 0);
    assert_false(exists(output));
    free(output);
    free(list);
}

static void models_that_are_none_are_bad_files(void **state) {
    (void)state;
    assert_bad_file(run("embed", "--model", in_scratch("no_model"), "-o", in_scratch("no.npy"), own[0]), "no_model");
    assert_bad_file(run("embed", "--model", in_scratch("pictures"), "-o", in_scratch("no.npy"), own[0]), "pictures");
    mkdir(in_scratch("model"), 0777);
    write_all(in_scratch("model/config.json"), "{]", 2);
    assert_bad_file(run("embed", "--model", in_scratch("model"), "-o", in_scratch("no.npy"), own[0]), "config.json");
    assert_bad_file(run("inspect", in_scratch("model")), "config.json");
    assert_false(exists(in_scratch("no.npy")));
}

/* Where the CUDA backend is compiled in and a GPU is there, --backend cuda is none of the machine's faults. */
static void a_gpu_that_is_not_there_is_3(void **state) {
    int status = run("embed", "--model", MODEL, "--backend", "cuda", "-o", in_scratch("gpu.npy"), own[0]);
    (void)state;
    if (status == 0) skip_because("there is a GPU");
    assert_int_equal(status, 3);
    assert_int_equal(lines(said_err), 1);
    if (strstr(said_err, "has no CUDA backend")) {
        assert_non_null(strstr(said_err, "make build/cuda/megavit CUDA="));
        assert_int_equal(run("bench", "--model", MODEL, "--backend", "cuda"), 3);
        assert_non_null(strstr(said_err, "make build/cuda/megavit CUDA="));
    }
    assert_false(exists(in_scratch("gpu.npy")));
    assert_int_equal(run("embed", "--model", MODEL, "--backend", "cpu", "-o", in_scratch("cpu.npy"), own[0]), 0);
    assert_int_equal(run("embed", "--model", MODEL, "--backend", "auto", "-o", in_scratch("auto.npy"), own[0]), 0);
    assert_same_file(in_scratch("cpu.npy"), in_scratch("auto.npy"));
}

/* ---- the pictures of ../shared/data ---- */

static void need_data(void) {
    if (exists(DATA "/pngsuite")) return;
    skip_because("the pictures of " DATA " are not there");
}

static void every_valid_png_embeds(void **state) {
    static const char *const folders[] = {DATA "/pngsuite/primary", DATA "/pngsuite/16bit", DATA "/pngsuite/unused", DATA "/photos"};
    (void)state;
    need_data();
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        DIR *directory = opendir(folders[i]);
        const struct dirent *entry;
        uint64_t count = 0;
        array a;
        assert_non_null(directory);
        while ((entry = readdir(directory)) != NULL) count += strstr(entry->d_name, ".png") || strstr(entry->d_name, ".jpg");
        closedir(directory);
        assert_true(count > 0);
        if (run("embed", "--model", MODEL, "-o", in_scratch("suite.npy"), folders[i]) != 0) fail_msg("%s: %s", folders[i], said_err);
        a = read_array(in_scratch("suite.npy"));
        assert_shape(&a, 2, count, WIDTH, 0, 0);
        for (uint64_t k = 0; k < a.count; k++) assert_true(isfinite(array_float(&a, k)));
        free(a.file);
    }
}

static void no_corrupt_png_crashes(void **state) {
    static const char *const folders[] = {DATA "/pngsuite/corrupt", DATA "/png-crashers"};
    int decoded = 0, refused = 0;
    (void)state;
    need_data();
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        DIR *directory = opendir(folders[i]);
        const struct dirent *entry;
        assert_non_null(directory);
        while ((entry = readdir(directory)) != NULL) {
            char path[512];
            int status;
            if (entry->d_name[0] == '.') continue;
            snprintf(path, sizeof path, "%s/%s", folders[i], entry->d_name);
            remove(in_scratch("corrupt.npy"));
            status = run("embed", "--model", MODEL, "-o", in_scratch("corrupt.npy"), path);
            if (status == 0) {
                array a = read_array(in_scratch("corrupt.npy"));
                assert_shape(&a, 2, 1, WIDTH, 0, 0);
                free(a.file);
                decoded++;
            } else {
                assert_bad_file(status, entry->d_name);
                assert_false(exists(in_scratch("corrupt.npy")));
                refused++;
            }
        }
        closedir(directory);
    }
    assert_true(decoded > 0 && refused > 0);
}

/* ---- inspect ---- */

/* A safetensors file of one tensor of every dtype of the format. */
static void write_every_dtype(const char *path, size_t missing_bytes) {
    static const struct {
        const char *name;
        int bits;
    } dtypes[] = {{"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
                  {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
                  {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
                  {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64}};
    char header[4096] = "{\"__metadata__\": {\"made\\nby\": \"a test\"}";
    size_t used = strlen(header), offset = 0;
    unsigned char *file;
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        size_t bytes = (size_t)dtypes[i].bits * 4 / 8;
        used += (size_t)snprintf(header + used, sizeof header - used,
                                 ", \"tensor.%zu\": {\"dtype\": \"%s\", \"shape\": [2, 2], \"data_offsets\": [%zu, %zu]}", i,
                                 dtypes[i].name, offset, offset + bytes);
        offset += bytes;
    }
    header[used++] = '}';
    file = calloc(1, 8 + used + offset);
    assert_non_null(file);
    file[0] = (unsigned char)used;
    file[1] = (unsigned char)(used >> 8);
    memcpy(file + 8, header, used);
    write_all(path, file, 8 + used + offset - missing_bytes);
    free(file);
}

static void inspect_knows_every_dtype(void **state) {
    static const char *const names[] = {"BOOL",    "F4",          "F6_E2M3",     "F6_E3M2", "U8",  "I8",  "F8_E5M2", "F8_E4M3",
                                        "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16",     "U16", "F16", "BF16",    "I32",
                                        "U32",     "F32",         "C64",         "F64",     "I64", "U64"};
    (void)state;
    write_every_dtype(in_scratch("every.safetensors"), 0);
    assert_int_equal(run("inspect", in_scratch("every.safetensors")), 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char line[32];
        snprintf(line, sizeof line, "\n%s ", names[i]);
        if (!strstr(said_out, line)) fail_msg("%s is not in the table", names[i]);
    }
    assert_non_null(strstr(said_out, "made\\x0Aby = a test"));
    assert_non_null(strstr(said_out, "22 tensors, 88 elements, "));
    write_every_dtype(in_scratch("short.safetensors"), 1);
    assert_bad_file(run("inspect", in_scratch("short.safetensors")), "short.safetensors");
    assert_int_equal(said_out[0], 0);
    assert_bad_file(run("inspect", in_scratch("absent.safetensors")), "absent.safetensors");
    assert_bad_file(run("inspect", in_scratch("pictures/a.ppm")), "a.ppm");
    assert_bad_file(run("inspect", "/dev/null"), "/dev/null");
}

static void inspect_tells_what_a_model_is(void **state) {
    (void)state;
    assert_int_equal(run("inspect", MODEL), 0);
    assert_non_null(strstr(said_out, "SigLIP"));
    assert_non_null(strstr(said_out, "pooled [48]"));
    assert_non_null(strstr(said_out, "40 x 40 pixels"));
    assert_non_null(strstr(said_out, "GFLOP an image"));
    assert_non_null(strstr(said_out, "BF16"));
    assert_int_equal(run("inspect", VARIABLE_MODEL), 0);
    assert_non_null(strstr(said_out, "Qwen3-VL"));
    assert_non_null(strstr(said_out, "deepstack:0 to deepstack:1"));
    assert_int_equal(run("inspect", "tests/golden/siglip_saved_sharded"), 0);
    assert_int_equal(run("inspect", MODEL "/model.safetensors"), 0);
}

/* ---- plan ---- */

/* The FLOPs of the small Qwen3-VL tower, added up by hand: 24 patches of 1536 numbers into 32; three layers of 393,216; three mergers
   of 245,760. */
static void plan_counts_every_operation(void **state) {
    (void)state;
    assert_int_equal(run("plan", "--model", VARIABLE_MODEL, "--size", "64x96"), 0);
    assert_non_null(strstr(said_out, "1 picture of 64 x 96 pixels, resized to 64 x 96: 1 x 6 x 4 patches"));
    assert_non_null(strstr(said_out, "34 operations, 0.0042762 GFLOP"));
    assert_non_null(strstr(said_out, "24 tokens a picture, 6 after merging"));
    assert_non_null(strstr(said_out, "\n0 to 1 "));
    assert_int_equal(run("plan", "--model", VARIABLE_MODEL, "--size=64x96", "--batch=3", "--frames=4"), 0);
    assert_non_null(strstr(said_out, "2 x 6 x 4 patches"));
    assert_non_null(strstr(said_out, "34 operations, 0.025657 GFLOP"));
    assert_int_equal(run("plan", "--model", VARIABLE_MODEL, "--size=64x96", "--max-pixels=2048"), 0);
    assert_non_null(strstr(said_out, "resized to 32 x 32: 1 x 2 x 2 patches"));
    assert_int_equal(run("plan", "--model", VARIABLE_MODEL, "--size=64x96", "--min-pixels=20000"), 0);
    assert_non_null(strstr(said_out, "resized to 128 x 192: 1 x 12 x 8 patches"));
    assert_int_equal(run("plan", "--model", MODEL), 0);
    assert_non_null(strstr(said_out, "pool"));
    assert_bad_file(run("plan", "--model", in_scratch("nothing")), "config.json");
}

/* The number behind the last `words` in what was said. */
static double number_after(const char *words) {
    const char *at = NULL, *next = said_out;
    while ((next = strstr(next, words)) != NULL) at = next++;
    if (!at) fail_msg("'%s' is not in: %s", words, said_out);
    return strtod(at + strlen(words), NULL);
}

static void plan_prints_the_schedule_of_the_gpu(void **state) {
    double few, many, whole;
    (void)state;
    assert_int_equal(run("plan", "--model", hopper_model(), "--batch", "3"), 0);
    assert_non_null(strstr(said_out, "latency regime: 120 multiprocessors in 30 clusters of 4"));
    assert_non_null(strstr(said_out, "kernel megavit_encode_latency_"));
    assert_non_null(strstr(said_out, "sums of the cluster"));
    assert_int_equal(run("plan", "--model", hopper_model(), "--batch", "64"), 0);
    assert_non_null(strstr(said_out, "throughput regime: 132 multiprocessors in 66 clusters of 2"));
    assert_non_null(strstr(said_out, "1 group of up to 64 pictures"));
    assert_non_null(strstr(said_out, "kernel megavit_encode_sm_90a"));
    assert_non_null(strstr(said_out, "stages of the ring"));
    assert_non_null(strstr(said_out, "of 232448 bytes"));
    assert_non_null(strstr(said_out, "of 64512"));
    assert_non_null(strstr(said_out, "\nfc2 "));
    assert_non_null(strstr(said_out, "head fc2"));
    assert_non_null(strstr(said_out, "unfused"));
    assert_non_null(strstr(said_out, "floor "));
    many = number_after("predicted: ");
    assert_true(many >= number_after("floor "));
    assert_int_equal(run("plan", "--model", hopper_model(), "--batch=64", "--sms=8", "--backend=cuda"), 0);
    assert_non_null(strstr(said_out, "8 multiprocessors"));
    few = number_after("predicted: ");
    assert_true(few > many);
    assert_int_equal(run("plan", "--model", hopper_model(), "--backend", "cpu"), 0);
    assert_null(strstr(said_out, "schedule"));
    whole = number_after("operations, ");
    assert_int_equal(run("plan", "--model", hopper_model()), 0);
    assert_true(fabs(number_after("GFLOP of the model's ") - whole) < 1e-3 * whole);
}

/* MODEL with a pooling head that no GPU kernel runs. */
static const char *silu_model(void) {
    static const char silu[] = "\"silu\"             "; /* as long as what it takes the place of */
    static char directory[256], config[4096], weights[1 << 20];
    const size_t bytes = read_all(MODEL "/model.safetensors", weights, sizeof weights);
    char *activation;
    snprintf(directory, sizeof directory, "%s", in_scratch("silu"));
    if (exists(directory)) return directory;
    assert_int_equal(mkdir(directory, 0777), 0);
    write_all(in_scratch("silu/model.safetensors"), weights, bytes);
    read_all(MODEL "/config.json", config, sizeof config);
    activation = strstr(config, "\"gelu_pytorch_tanh\"");
    assert_non_null(activation);
    memcpy(activation, silu, sizeof silu - 1);
    write_all(in_scratch("silu/config.json"), config, strlen(config));
    write_all(in_scratch("silu/preprocessor_config.json"), "{}", 2);
    return directory;
}

static void plan_says_why_the_gpu_does_not_run_a_model(void **state) {
    static const char why[] = "GPU kernel has no other activation of a pooling head";
    (void)state;
    assert_int_equal(run("plan", "--model", silu_model()), 0);
    assert_non_null(strstr(said_out, "no GPU schedule: the GPU kernel has no other activation of a pooling head"));
    assert_bad_file(run("plan", "--model", silu_model(), "--backend", "cuda"), why);
    assert_int_equal(run("plan", "--model", VARIABLE_MODEL, "--size", "64x96", "--backend", "cuda"), 0);
    assert_non_null(strstr(said_out, "kernel megavit_encode_tower_sm_90a"));
    assert_int_equal(run("plan", "--model", hopper_model(), "--sms", "1"), 1);
    assert_int_equal(lines(said_err), 1);
    assert_int_equal(said_out[0], 0);
    assert_non_null(strstr(said_err, "1 multiprocessors"));
}

/* ---- bench ---- */

/* MODEL without its pooling head. */
static const char *headless_model(void) {
    static const char without[] = "{\"vision_use_head\":false,";
    static char directory[256], config[4096], weights[1 << 20];
    const size_t bytes = read_all(MODEL "/model.safetensors", weights, sizeof weights);
    snprintf(directory, sizeof directory, "%s", in_scratch("headless"));
    assert_int_equal(mkdir(directory, 0777), 0);
    write_all(in_scratch("headless/model.safetensors"), weights, bytes);
    read_all(MODEL "/config.json", config + sizeof without - 2, sizeof config - sizeof without);
    memcpy(config, without, sizeof without - 1); /* instead of the brace that the file begins with */
    write_all(in_scratch("headless/config.json"), config, strlen(config));
    return directory;
}

static void bench_takes_tokens_without_a_pooling_head(void **state) {
    static char json[65536];
    const char *file = in_scratch("tokens.json");
    (void)state;
    assert_int_equal(run("bench", "--model", headless_model(), "--batch", "2", "--threads", "1", "--backend", "cpu", "--json", file), 0);
    assert_non_null(strstr(said_out, "an image, its tokens\n"));
    read_all(in_scratch("tokens.json"), json, sizeof json);
    assert_non_null(strstr(json, "\"output\":\"tokens\""));
    assert_non_null(strstr(json, "{\"batch\":2,\"what\":\"cpu\",\"median_ms\":"));
}

static void bench_says_what_a_precision_costs(void **state) {
    static const char said[] = " the worst row is ";
    static const char *const names[] = {"bf16", "mxfp8"};
    double worst[2];
    uint32_t i;
    (void)state;
    for (i = 0; i < 2; i++) {
        assert_int_equal(run("bench", "--model", MODEL, "--batch", "2", "--threads", "1", "--backend", "cpu", "--precision", names[i]), 0);
        assert_non_null(strstr(said_out, names[i]));
        assert_non_null(strstr(said_out, said));
        worst[i] = strtod(strstr(said_out, said) + sizeof said - 1, NULL);
    }
    assert_true(worst[0] > 1e-4 && worst[0] < 2e-2 && worst[1] > 2 * worst[0]);
    assert_int_equal(run("bench", "--model", MODEL, "--batch", "2", "--threads", "1", "--backend", "cpu", "--precision", "fast"), 0);
    assert_non_null(strstr(said_out, "in fast the worst row is "));
    assert_true(strtod(strstr(said_out, said) + sizeof said - 1, NULL) < 2e-2);
    assert_int_equal(run("search", "--model", MODEL, "--index", "no.sqlite", "--list", "--precision", "bf16"), 1);
    assert_non_null(strstr(said_err, "--precision takes auto|fast, not 'bf16'"));
    assert_int_equal(run("bench", "--model", MODEL, "--batch", "1", "--threads", "1", "--backend", "cpu"), 0);
    assert_null(strstr(said_out, said));
}

static void bench_prints_figures_and_json(void **state) {
    static char json[65536];
    const char *file = in_scratch("b.json");
    (void)state;
    assert_int_equal(run("bench", "--model", MODEL, "--batch", "1,3", "--threads", "1", "--backend", "cpu", "--json", file), 0);
    assert_non_null(strstr(said_out, "median ms"));
    assert_non_null(strstr(said_out, "p99 ms"));
    assert_non_null(strstr(said_out, "of peak"));
    assert_non_null(strstr(said_out, "mJ/image"));
    assert_non_null(strstr(said_out, "\n     3  cpu "));
    read_all(in_scratch("b.json"), json, sizeof json);
    assert_non_null(strstr(json, "\"output\":\"pooled\""));
    assert_non_null(strstr(json, "{\"batch\":1,\"what\":\"cpu\",\"median_ms\":"));
    assert_non_null(strstr(json, "{\"batch\":3,"));
    assert_int_equal(json[0], '{');
    assert_string_equal(json + strlen(json) - 3, "]}\n");
    assert_bad_file(run("bench", "--model", MODEL, "--json", in_scratch("absent/b.json")), "absent/b.json");
    assert_int_equal(said_out[0], 0); /* before it has run */
    assert_int_equal(run("bench", "--model", MODEL, "--batch", "1,x"), 1);
    assert_int_equal(run("bench", "--model", MODEL, "--batch", "0"), 1);
    assert_int_equal(run("bench", "--model", hopper_model(), "--backend", "cuda"), 3);
    assert_bad_file(run("bench", "--model", VARIABLE_MODEL), "fixed picture size");
}

/* ---- validate ---- */

/* Without a CUDA backend there is nothing to compare; what is wrong on the command line is said before that. */
static void validate_wants_a_gpu(void **state) {
    (void)state;
    assert_int_equal(run("validate", "--model", hopper_model()), 3);
    assert_int_equal(lines(said_err), 1);
    assert_int_equal(said_out[0], 0);
    assert_non_null(strstr(said_err, "no CUDA backend"));
    assert_int_equal(run("validate", "--model", VARIABLE_MODEL), 3); /* pictures of any size, too */
    assert_non_null(strstr(said_err, "no CUDA backend"));
    assert_bad_file(run("validate", "--model", in_scratch("nothing")), "config.json");
    assert_bad_file(run("validate", "--model", hopper_model(), "--images", in_scratch("none.png")), "none.png");
}

/* ---- pack ---- */

static void pack_writes_what_the_gpu_takes(void **state) {
    static char first[MAX_TEXT * 16], second[MAX_TEXT * 16];
    char one[256], two[256];
    size_t bytes;
    (void)state;
    snprintf(one, sizeof one, "%s", in_scratch("one.mgvp"));
    snprintf(two, sizeof two, "%s", in_scratch("two.mgvp"));
    assert_int_equal(run("pack", "--model", hopper_model(), "--arch", "sm_90a", "-o", one), 0);
    assert_string_equal(said_out, "");
    assert_string_equal(said_err, "");
    assert_int_equal(run("pack", "--model", hopper_model(), "-o", two), 0);
    bytes = read_all(one, first, sizeof first);
    assert_true(bytes > 10000000 && bytes < sizeof first - 1);
    assert_int_equal(read_all(two, second, sizeof second), bytes);
    assert_memory_equal(first, second, bytes);
    assert_memory_equal(first, "\x89MGVP\r\n\x1a\1\0\0\0\0\1\0\0sm_90a\0", 23);
    assert_int_equal(run("embed", "--model", MODEL, "--packed", in_scratch("absent.mgvp"), "--backend", "cpu", own[0]), 0);
}

static void pack_refuses_and_leaves_nothing(void **state) {
    char path[256];
    (void)state;
    snprintf(path, sizeof path, "%s", in_scratch("refused.mgvp"));
    assert_bad_file(run("pack", "--model", silu_model(), "-o", path), "no other activation of a pooling head");
    assert_bad_file(run("pack", "--model", in_scratch("nowhere"), "-o", path), "config.json");
    assert_bad_file(run("pack", "--model", hopper_model(), "-o", in_scratch("nowhere/x.mgvp")), "cannot write");
    file_limit = 1 << 20; /* the disk is full */
    assert_bad_file(run("pack", "--model", hopper_model(), "-o", path), "cannot write: "); /* and why */
    file_limit = RLIM_INFINITY;
    assert_int_equal(exists(path), 0);
}

/* Wherever the disk ends: one line that names the file, and no file. */
static void a_disk_that_fills_while_rows_come_is_one_line(void **state) {
    enum { ALL = 128 + 2 * TOKENS * WIDTH * 4 };
    static const rlim_t limits[] = {127, 128, 4096, 4500, 5000, 8192, 9000, ALL - 1};
    (void)state;
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        file_limit = limits[i];
        assert_bad_file(run("embed", "--model", MODEL, "--what", "tokens", "--batch", "1", "-o", in_scratch("fills.npy"), own[0], own[1]),
                        "fills.npy");
        file_limit = RLIM_INFINITY;
        if (exists(in_scratch("fills.npy"))) fail_msg("a file at a limit of %u bytes", (unsigned)limits[i]);
    }
    file_limit = ALL;
    assert_int_equal(run("embed", "--model", MODEL, "--what", "tokens", "--batch", "1", "-o", in_scratch("fills.npy"), own[0], own[1]), 0);
    file_limit = RLIM_INFINITY;
    assert_int_equal(partial_files(), 0);
}

/* ---- classify ---- */

/* Labels whose embeddings are those of the first two pictures. */
static void write_labels(const char *path, const array *embeddings, const char *names, const char *more) {
    char header[1024];
    int used = snprintf(
        header, sizeof header,
        "{\"__metadata__\": {\"names\": \"%s\"%s}, \"embeddings\": {\"dtype\": \"F32\", \"shape\": [2, %d], \"data_offsets\": [0, %d]}}",
        names, more, WIDTH, 2 * WIDTH * 4);
    unsigned char length[8] = {0};
    FILE *stream = fopen(path, "wb");
    assert_non_null(stream);
    length[0] = (unsigned char)used;
    length[1] = (unsigned char)(used >> 8);
    fwrite(length, 1, 8, stream);
    fwrite(header, 1, (size_t)used, stream);
    fwrite(embeddings->data, 4, 2 * WIDTH, stream);
    fclose(stream);
}

static void classify_gives_sigmoid_probabilities(void **state) {
    static const char *const bad_names[] = {"",
                                            "x",
                                            "[]",
                                            "[\\\"a\\\"]",
                                            "[\\\"a\\\", \\\"b\\\", \\\"c\\\"]",
                                            "[\\\"a\\\", 3]",
                                            "[\\\"a\\\", \\\"b\\\"",
                                            "[\\\"a\\\", \\\"\\\\q\\\"]",
                                            "[\\\"a\\\", \\\"b\\\"] x",
                                            "[\\\"a\\\" \\\"b\\\"]",
                                            "[\\\"\\\\ud800\\\", \\\"b\\\"]",
                                            "[\\\"\\\\u0000\\\", \\\"b\\\"]"};
    array a;
    double probability, cosine = 0;
    char *second;
    (void)state;
    assert_int_equal(run("embed", "--model", MODEL, "-o", in_scratch("label.npy"), own[0], own[1]), 0);
    a = read_array(in_scratch("label.npy"));
    write_labels(in_scratch("l.safetensors"), &a, "[\\\"the fir\\\\u0073t\\\", \\\"a \\\\\\\"second\\\\\\\"\\\"]",
                 ", \"scale\": \"4\", \"bias\": \"-1.5\"");
    assert_int_equal(run("classify", "--model", MODEL, "--labels", in_scratch("l.safetensors"), own[1]), 0);
    assert_int_equal(lines(said_out), 3);
    assert_int_equal(sscanf(strchr(said_out, '\n'), "%lf", &probability), 1);
    assert_true(fabs(probability - 1 / (1 + exp(-2.5))) < 1e-4); /* cosine 1 */
    assert_non_null(strstr(strchr(said_out, '\n'), "a \"second\"\n"));
    second = strchr(strchr(said_out, '\n') + 1, '\n');
    assert_non_null(strstr(second, "the first\n"));
    for (uint64_t i = 0, k = 0; k < 1; k++) {
        double square[2] = {0, 0};
        for (i = 0; i < WIDTH; i++) {
            double x = (double)array_float(&a, i), y = (double)array_float(&a, WIDTH + i);
            cosine += x * y;
            square[0] += x * x;
            square[1] += y * y;
        }
        cosine /= sqrt(square[0] * square[1]);
    }
    assert_int_equal(sscanf(second, "%lf", &probability), 1);
    assert_true(fabs(probability - 1 / (1 + exp(-(4 * cosine - 1.5)))) < 1e-4);
    for (size_t i = 0; i < sizeof bad_names / sizeof bad_names[0]; i++) {
        write_labels(in_scratch("bad.safetensors"), &a, bad_names[i], "");
        if (run("classify", "--model", MODEL, "--labels", in_scratch("bad.safetensors"), own[1]) != 2)
            fail_msg("names %s: %s", bad_names[i], said_out);
        assert_bad_file(2, "bad.safetensors");
    }
    write_labels(in_scratch("bad.safetensors"), &a, "[\\\"a\\\", \\\"b\\\"]", ", \"scale\": \"1x\"");
    assert_bad_file(run("classify", "--model", MODEL, "--labels", in_scratch("bad.safetensors"), own[1]), "scale");
    assert_bad_file(run("classify", "--model", MODEL, "--labels", MODEL "/model.safetensors", own[1]), "embeddings");
    assert_bad_file(run("classify", "--model", MODEL, "--labels", in_scratch("absent.safetensors"), own[1]), "absent");
    free(a.file);
}

/* ---- the default model ---- */

/* A picture's file name says what it shows ("two-checked-blue-squares.png"), and so do the labels ("blue square"). */
static int name_fits(const char *file, const char *label) {
    char words[128], *word, *rest;
    snprintf(words, sizeof words, "%s", label);
    for (word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        if (!strstr(file, word)) return 0;
    return 1;
}

static void the_default_model_means_something(void **state) {
    char *at;
    int right = 0, count = 0;
    (void)state;
    assert_int_equal(
        run("classify", "--model", "examples/model", "--labels", "examples/model/labels.safetensors", "-k", "1", "examples/pictures"), 0);
    for (at = strtok(said_out, "\n"); at; count++) {
        const char *file = at, *label = strtok(NULL, "\n");
        assert_non_null(label);
        right += name_fits(file, label + 12);
        at = strtok(NULL, "\n");
    }
    assert_true(count >= 20);
    assert_true(right >= count - 2);
    assert_int_equal(run("search", "--model", "examples/model", "--index", in_scratch("default.db"), "--add", "examples/pictures",
                         "--query", "examples/pictures/red-circle.png", "-k", "2"),
                     0);
    assert_non_null(strstr(said_out, "\n   2"));
    assert_non_null(strstr(strstr(said_out, "\n   2"), "red-circle-paper.png"));
}

/* ---- what no test above looks at: the resize, labels of two bytes, odd names, limits ---- */

static void resize_chooses_the_library(void **state) {
    static const char *const commands[] = {"preprocess", "embed"};
    (void)state;
    for (int c = 0; c < 2; c++) {
        array pillow, torchvision;
        double largest = 0;
        assert_int_equal(run(commands[c], "--model", MODEL, "--resize", "pillow", "-o", in_scratch("pillow.npy"), own[0]), 0);
        assert_int_equal(run(commands[c], "--model", MODEL, "--resize", "torchvision", "-o", in_scratch("torchvision.npy"), own[0]), 0);
        pillow = read_array(in_scratch("pillow.npy"));
        torchvision = read_array(in_scratch("torchvision.npy"));
        assert_int_equal(torchvision.count, pillow.count);
        for (uint64_t i = 0; i < pillow.count; i++)
            largest = fmax(largest, fabs((double)array_float(&pillow, i) - (double)array_float(&torchvision, i)));
        assert_true(largest > 0);
        if (c == 0) assert_true(largest < 2.5 * 2 / 255); /* the same picture but for rounding: two steps of a byte at most, in [-1, 1] */
        free(pillow.file);
        free(torchvision.file);
    }
}

static void the_grid_is_rows_then_columns(void **state) {
    unsigned char *pixels = noise(79, 96 * 64 * 3);
    (void)state;
    write_pnm(in_scratch("wide.ppm"), 3, 96, 64, pixels);
    write_pnm(in_scratch("high.ppm"), 3, 64, 96, pixels);
    free(pixels);
    assert_int_equal(run("preprocess", "--model", VARIABLE_MODEL, "-o", in_scratch("grid.npy"), in_scratch("wide.ppm")), 0);
    assert_string_equal(said_out, "grid_thw 1 4 6\n");
    assert_int_equal(run("preprocess", "--model", VARIABLE_MODEL, "-o", in_scratch("grid.npy"), in_scratch("high.ppm")), 0);
    assert_string_equal(said_out, "grid_thw 1 6 4\n");
}

/* Labels of any dtype. names: the list as it lies in the header; data NULL: zeros that take no room on the disk. */
static void write_label_file(const char *path, const char *dtype, uint64_t rows, const void *data, size_t bytes, const char *names) {
    char header[1024];
    const int used = snprintf(header, sizeof header,
                              "{\"__metadata__\": {\"names\": \"%s\", \"scale\": \"10\"}, \"embeddings\": {\"dtype\": \"%s\", "
                              "\"shape\": [%llu, %d], \"data_offsets\": [0, %zu]}}",
                              names, dtype, (unsigned long long)rows, WIDTH, bytes);
    const unsigned char length[8] = {(unsigned char)used, (unsigned char)(used >> 8)};
    FILE *stream = fopen(path, "wb");
    assert_non_null(stream);
    fwrite(length, 1, 8, stream);
    fwrite(header, 1, (size_t)used, stream);
    if (data) fwrite(data, 1, bytes, stream);
    assert_int_equal(fclose(stream), 0);
    if (!data) assert_int_equal(truncate(path, (off_t)(8 + (size_t)used + bytes)), 0);
}

static void labels_of_two_bytes_mean_what_they_say(void **state) {
    static const struct { const char *dtype; uint16_t bits[3]; double values[3]; } labels[] = {
        {"F16", {0x3C00, 0xC100, 0x3555}, {1, -2.5, 0.333251953125}},
        {"F16", {0x0400, 0x8200, 0x0155}, {1024, -512, 341}}, /* in units of 2^-24, which a subnormal's fraction counts */
        {"BF16", {0x3F80, 0xC020, 0x3EAB}, {1, -2.5, 0.333984375}},
        {"BF16", {0x0080, 0x8040, 0x0015}, {128, -64, 21}}, /* in units of 2^-133 */
    };
    static const unsigned char infinity[2] = {0x00, 0x7C};
    unsigned char data[2 * WIDTH];
    array a;
    (void)state;
    assert_int_equal(run("embed", "--model", MODEL, "--normalize", "-o", in_scratch("label.npy"), own[1]), 0);
    a = read_array(in_scratch("label.npy"));
    for (size_t i = 0; i < sizeof labels / sizeof labels[0]; i++) {
        double dot = 0, square = 0, probability;
        memset(data, 0, sizeof data);
        for (uint64_t k = 0; k < 3; k++) {
            data[2 * k] = (unsigned char)labels[i].bits[k];
            data[2 * k + 1] = (unsigned char)(labels[i].bits[k] >> 8);
            dot += labels[i].values[k] * (double)array_float(&a, k);
            square += labels[i].values[k] * labels[i].values[k];
        }
        write_label_file(in_scratch("small.safetensors"), labels[i].dtype, 1, data, sizeof data, "[\\\"one\\\"]");
        assert_int_equal(run("classify", "--model", MODEL, "--labels", in_scratch("small.safetensors"), own[1]), 0);
        assert_int_equal(sscanf(strchr(said_out, '\n'), "%lf", &probability), 1);
        if (fabs(probability - 1 / (1 + exp(-10 * dot / sqrt(square)))) > 1e-4)
            fail_msg("label %zu: %f, not %f", i, probability, 1 / (1 + exp(-10 * dot / sqrt(square))));
    }
    memcpy(data, infinity, 2);
    write_label_file(in_scratch("small.safetensors"), "F16", 1, data, sizeof data, "[\\\"one\\\"]");
    assert_bad_file(run("classify", "--model", MODEL, "--labels", in_scratch("small.safetensors"), own[1]), "not finite");
    free(a.file);
}

static void label_names_may_be_in_any_script(void **state) {
    unsigned char data[2 * WIDTH] = {0x80, 0x3F};
    (void)state;
    write_label_file(in_scratch("script.safetensors"), "BF16", 1, data, sizeof data,
                     "[\\\"<\\\\ud83d\\\\uDE00 \\\\u20ac \\\\uffee \\\\u00e9 \\\\u007e>\\\"]");
    assert_int_equal(run("classify", "--model", MODEL, "--labels", in_scratch("script.safetensors"), own[1]), 0);
    assert_non_null(strstr(said_out, "<\xF0\x9F\x98\x80 \xE2\x82\xAC \xEF\xBF\xAE \xC3\xA9 ~>\n"));
}

static void files_have_a_largest_size(void **state) {
    const uint64_t rows = (256u << 20) / (4 * WIDTH) + 1;
    unsigned char *pixels = noise(80, 40 * 40 * 3);
    (void)state;
    write_label_file(in_scratch("large.safetensors"), "F32", rows, NULL, (size_t)(rows * 4 * WIDTH), "[]");
    assert_bad_file(run("classify", "--model", MODEL, "--labels", in_scratch("large.safetensors"), own[0]), "large.safetensors");
    assert_non_null(strstr(said_err, "256 MiB at most"));
    remove(in_scratch("large.safetensors"));
    write_pnm(in_scratch("large.ppm"), 3, 40, 40, pixels);
    free(pixels);
    assert_int_equal(truncate(in_scratch("large.ppm"), (off_t)1 << 30), 0);
    assert_bad_file(run("embed", "--model", MODEL, "-o", in_scratch("large.npy"), in_scratch("large.ppm")), "large.ppm");
    assert_non_null(strstr(said_err, "--memory 4097"));
    assert_int_equal(run("embed", "--model", MODEL, "--memory", "4097", "-o", in_scratch("large.npy"), in_scratch("large.ppm")), 0);
    assert_int_equal(truncate(in_scratch("large.ppm"), ((off_t)1 << 30) + 1), 0);
    assert_bad_file(run("embed", "--model", MODEL, "-o", in_scratch("large.npy"), in_scratch("large.ppm")), "large.ppm");
    assert_non_null(strstr(said_err, "more than 1073741824 bytes"));
    remove(in_scratch("large.ppm"));
}

/* A name is any bytes but zero and '/'; what is written of it is valid JSON. */
static void names_are_written_as_json(void **state) {
    static const struct { const char *name, *json; } names[] = {
        {"\xFF", "\\ufffd"},                                      /* never a byte of UTF-8 */
        {"\xC0\x80", "\\ufffd\\ufffd"},                           /* overlong */
        {"\xE0\x9F\xBF", "\\ufffd\\ufffd\\ufffd"},                /* overlong */
        {"\xF0\x8F\xBF\xBF", "\\ufffd\\ufffd\\ufffd\\ufffd"},     /* overlong */
        {"\xED\xA0\x80", "\\ufffd\\ufffd\\ufffd"},                /* half of a pair */
        {"\xF4\x90\x80\x80", "\\ufffd\\ufffd\\ufffd\\ufffd"},     /* beyond the last character */
        {"\xE2\x82" "x", "\\ufffd\\ufffdx"},                      /* cut short */
        {"\x01\x1F\n", "\\u0001\\u001f\\u000a"},
        {"\"\\", "\\\"\\\\"},
        {"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"},
    };
    (void)state;
    mkdir(in_scratch("odd"), 0777);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[256], start[256];
        snprintf(path, sizeof path, "%s/odd/%s.ppm", scratch, names[i].name);
        snprintf(start, sizeof start, "{\"file\": \"%s/odd/%s.ppm\", \"embedding\": [", scratch, names[i].json);
        if (symlink(own[0], path) != 0) skip_because("this file system takes UTF-8 only");
        assert_int_equal(run("embed", "--model", MODEL, "--format", "jsonl", path), 0);
        if (strncmp(said_out, start, strlen(start)) != 0) fail_msg("not %s: %.200s", start, said_out);
        assert_int_equal(lines(said_out), 1);
    }
}

static void pixels_that_are_not_there_are_missed(void **state) {
    enum { W = 40, H = 30 };
    unsigned char *rgb = noise(81, W * H * 3), *bytes = malloc(W * H * 4 + 100);
    const char *const names[] = {"cut.tga", "cut32.tga", "cut.pgm"};
    (void)state;
    assert_non_null(bytes);
    write_tga(in_scratch("cut.tga"), W, H, rgb, -1);
    write_tga(in_scratch("cut32.tga"), W, H, rgb, 255);
    write_pnm(in_scratch("cut.pgm"), 1, W, H, rgb);
    for (int i = 0; i < 3; i++) {
        const size_t length = read_all(in_scratch(names[i]), bytes, W * H * 4 + 100);
        assert_int_equal(run("embed", "--model", MODEL, "-o", in_scratch("cut.npy"), in_scratch(names[i])), 0);
        write_all(in_scratch(names[i]), bytes, length - (i < 2 ? 1 : 100)); /* the head of a PGM file has no fixed length */
        assert_bad_file(run("embed", "--model", MODEL, "-o", in_scratch("cut.npy"), in_scratch(names[i])), names[i]);
        assert_non_null(strstr(said_err, "before its pixels do"));
    }
    free(rgb);
    free(bytes);
}

static void counts_end_at_a_million(void **state) {
    static const char *const beyond[] = {"1048577", "1073741824", "4294967297", "18446744073709551617"};
    (void)state;
    assert_bad_file(run("classify", "--model", MODEL, "--labels", in_scratch("absent.safetensors"), "-k", "1048576", own[0]), "absent");
    for (size_t i = 0; i < sizeof beyond / sizeof beyond[0]; i++) {
        assert_int_equal(run("classify", "--model", MODEL, "--labels", in_scratch("absent.safetensors"), "-k", beyond[i], own[0]), 1);
        assert_non_null(strstr(said_err, "from 1 to 1048576"));
    }
}

/* Added up by hand, for 25 tokens of 48 columns, patches of 192 numbers, an MLP of 56: 460,800 for the patches, 849,600 for each of two
   layers; in the head 230,400 for keys and values, 4,800 for attention, 4,608 for the probe's query, 4,608 and 10,752 behind it. */
static void inspect_counts_the_work(void **state) {
    (void)state;
    assert_int_equal(run("inspect", MODEL), 0);
    assert_non_null(strstr(said_out, "work      0.002415 GFLOP an image\n"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usage_mistakes_are_1),
        cmocka_unit_test(help_is_0_and_names_every_option),
        cmocka_unit_test(what_the_model_lacks_is_a_usage_mistake),
        cmocka_unit_test(rows_come_in_the_order_of_the_arguments),
        cmocka_unit_test(batch_and_threads_do_not_change_a_bit),
        cmocka_unit_test(tokens_and_layers_have_their_shapes),
        cmocka_unit_test(normalize_gives_rows_of_length_1),
        cmocka_unit_test(jsonl_says_the_same_floats),
        cmocka_unit_test(npy_goes_to_standard_output),
        cmocka_unit_test(directories_and_standard_input_name_pictures),
        cmocka_unit_test(standard_input_without_names_is_a_bad_file),
        cmocka_unit_test(names_that_end_with_a_zero_are_a_bad_file),
        cmocka_unit_test(two_dashes_end_the_options),
        cmocka_unit_test(alpha_becomes_white_and_grey_is_replicated),
        cmocka_unit_test(preprocess_gives_the_pixel_values),
        cmocka_unit_test(tokens_of_several_pictures_have_offsets),
        cmocka_unit_test(offsets_are_those_of_their_file),
        cmocka_unit_test(a_device_has_no_offsets),
        cmocka_unit_test(preprocess_prints_the_grid),
        cmocka_unit_test(limits_that_no_picture_keeps_are_a_usage_mistake),
        cmocka_unit_test(a_picture_that_no_grid_fits_is_left_out),
        cmocka_unit_test(one_bad_picture_is_left_out),
        cmocka_unit_test(nothing_is_written_when_nothing_is_good),
        cmocka_unit_test(a_bomb_is_refused_before_it_is_unpacked),
        cmocka_unit_test(outputs_that_cannot_be_written_are_bad_files),
        cmocka_unit_test(a_link_stays_and_its_target_is_written),
        cmocka_unit_test(a_link_to_standard_output_is_standard_output),
        cmocka_unit_test(an_output_that_is_an_input_is_refused),
        cmocka_unit_test(standard_output_that_takes_nothing_is_a_bad_file),
        cmocka_unit_test(a_closed_standard_output_is_no_file_of_ours),
        cmocka_unit_test(an_interrupted_program_leaves_nothing),
        cmocka_unit_test(an_ignored_signal_stays_ignored),
        cmocka_unit_test(a_file_that_grows_too_large_is_removed),
        cmocka_unit_test(models_that_are_none_are_bad_files),
        cmocka_unit_test(a_gpu_that_is_not_there_is_3),
        cmocka_unit_test(every_valid_png_embeds),
        cmocka_unit_test(no_corrupt_png_crashes),
        cmocka_unit_test(inspect_knows_every_dtype),
        cmocka_unit_test(inspect_tells_what_a_model_is),
        cmocka_unit_test(plan_counts_every_operation),
        cmocka_unit_test(plan_prints_the_schedule_of_the_gpu),
        cmocka_unit_test(plan_says_why_the_gpu_does_not_run_a_model),
        cmocka_unit_test(bench_says_what_a_precision_costs),
        cmocka_unit_test(bench_prints_figures_and_json),
        cmocka_unit_test(bench_takes_tokens_without_a_pooling_head),
        cmocka_unit_test(validate_wants_a_gpu),
        cmocka_unit_test(pack_writes_what_the_gpu_takes),
        cmocka_unit_test(pack_refuses_and_leaves_nothing),
        cmocka_unit_test(a_disk_that_fills_while_rows_come_is_one_line),
        cmocka_unit_test(classify_gives_sigmoid_probabilities),
        cmocka_unit_test(the_default_model_means_something),
        cmocka_unit_test(resize_chooses_the_library),
        cmocka_unit_test(the_grid_is_rows_then_columns),
        cmocka_unit_test(labels_of_two_bytes_mean_what_they_say),
        cmocka_unit_test(label_names_may_be_in_any_script),
        cmocka_unit_test(files_have_a_largest_size),
        cmocka_unit_test(names_are_written_as_json),
        cmocka_unit_test(pixels_that_are_not_there_are_missed),
        cmocka_unit_test(counts_end_at_a_million),
        cmocka_unit_test(inspect_counts_the_work),
    };
    return cmocka_run_group_tests_name("command line", tests, set_up, tear_down);
}
