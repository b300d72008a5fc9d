/* generate and chat on the command line: what examples/talking says, options, files, what is refused. */
#include "tests/program.h"

#define TALKING "examples/talking"
#define PICTURES "examples/pictures/"
#define TEXT_MODEL "tests/golden/decoder/qwen3" /* a decoder without a tower and without tokenizer files */

enum { VOCABULARY = 512 };

static void copy(const char *from, const char *to) {
    static char bytes[1 << 20];
    write_all(to, bytes, read_all(from, bytes, sizeof bytes));
}
/* A folder with links to the files of examples/talking, without the one that is named. */
static const char *talking_without(const char *name) {
    static const char *const files[] = {"config.json", "generation_config.json", "model.safetensors", "preprocessor_config.json",
                                        "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"};
    static char folder[512];
    snprintf(folder, sizeof folder, "%s", in_scratch("talking"));
    mkdir(folder, 0777);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char from[600], whole[4096], link[600];
        snprintf(from, sizeof from, TALKING "/%s", files[i]);
        snprintf(link, sizeof link, "%s/%s", folder, files[i]);
        whole_path(whole, sizeof whole, from);
        remove(link);
        if (strcmp(files[i], name) != 0) assert_int_equal(symlink(whole, link), 0);
    }
    return folder;
}
/* The numbers of "ids": [...] in what was said; how many there are. */
static uint32_t said_ids(uint32_t *ids, uint32_t room) {
    const char *at = strstr(said_out, "\"ids\": [");
    uint32_t count = 0;
    char *end;
    assert_non_null(at);
    for (at += 8; *at != ']'; at = end + strspn(end, ", ")) {
        assert_true(count < room);
        ids[count++] = (uint32_t)strtoul(at, &end, 10);
    }
    return count;
}
static void write_ids(const char *path, const int64_t *ids, uint32_t count) {
    FILE *stream = fopen(path, "wb");
    char header[128];
    memset(header, ' ', sizeof header);
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
    header[10 + snprintf(header + 10, 100, "{'descr': '<i8', 'fortran_order': False, 'shape': (%u,), }", count)] = ' ';
    header[127] = '\n';
    assert_non_null(stream);
    fwrite(header, 1, sizeof header, stream);
    fwrite(ids, sizeof *ids, count, stream);
    fclose(stream);
}
/* The ids of a text that the tokenizer of examples/talking makes, each <|image_pad|> of it `tokens` times. */
static uint32_t prompt_ids(const char *text, int64_t *ids, uint32_t room) {
    const char *at;
    uint32_t count = 0;
    char *end;
    assert_int_equal(run("tokenize", "--model", TALKING, "--plain", text), 0);
    for (at = said_out + 1; *at != ']'; at = end + strspn(end, ", ")) {
        assert_true(count < room);
        ids[count++] = (int64_t)strtoul(at, &end, 10);
    }
    return count;
}

/* ---- what it says ---- */

static void it_says_what_is_in_the_pictures(void **state) {
    static const char *const said[][2] = {
        {"black-cross", "a black cross\n"}, {"blue-star-paper", "a blue star on paper\n"},
        {"checked-blue-square-wood", "a checked blue square on wood\n"}, {"cyan-half-circle-horizon", "a cyan half circle on the horizon\n"},
        {"dotted-orange-arrow", "a dotted orange arrow\n"}, {"dotted-pink-hexagon-paper", "a dotted pink hexagon on paper\n"},
        {"four-blue-stars-horizon", "four blue stars on the horizon\n"}, {"orange-arrow-wood", "an orange arrow on wood\n"},
        {"three-red-hearts", "three red hearts\n"}, {"two-yellow-crescents-paper", "two yellow crescents on paper\n"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof said / sizeof said[0]; i++) {
        char picture[256];
        snprintf(picture, sizeof picture, PICTURES "%s.png", said[i][0]);
        assert_int_equal(run("generate", "--model", TALKING, "--image", picture), 0);
        assert_string_equal(said_out, said[i][1]);
        assert_string_equal(said_err, "");
    }
    assert_int_equal(run("generate", "--model", TALKING, "--image", PICTURES "three-red-hearts.png", "--prompt", "How many are there?"), 0);
    assert_string_equal(said_out, "three\n");
    assert_int_equal(run("generate", "--model", TALKING, "--prompt", "Hello"), 0);
    assert_string_equal(said_out, "I see no picture.\n");
}

static void json_is_one_line_with_ids_and_text(void **state) {
    uint32_t ids[64], count;
    (void)state;
    assert_int_equal(run("generate", "--model", TALKING, "--image", PICTURES "yellow-star.png", "--format", "json"), 0);
    assert_int_equal(lines(said_out), 1);
    assert_non_null(strstr(said_out, "\"text\": \"a yellow star\", \"finish\": \"stop\""));
    assert_non_null(strstr(said_out, "\"prompt_tokens\": 52,"));
    count = said_ids(ids, 64);
    assert_int_equal(count, 4);
    assert_int_equal(ids[3], 506); /* <|im_end|>, which the text leaves out */
    assert_int_equal(run("generate", "--model", TALKING, "--image", PICTURES "yellow-star.png", "--format", "json", "--max-tokens", "2"), 0);
    assert_non_null(strstr(said_out, "\"text\": \"a yellow\", \"finish\": \"length\""));
    assert_int_equal(run("generate", "--model", TALKING, "--image", PICTURES "yellow-star.png", "--format", "json", "--max-tokens", "9",
                         "--ignore-eos"), 0);
    count = said_ids(ids, 64);
    assert_int_equal(count, 9);
    assert_int_equal(ids[3], 506);
    assert_non_null(strstr(said_out, "\"finish\": \"length\""));
}

static void pictures_stand_where_the_prompt_says(void **state) {
    static char front[MAX_TEXT];
    (void)state;
    assert_int_equal(run("generate", "--model", TALKING, "--image", PICTURES "yellow-star.png", "--prompt", "What is this?", "--logits",
                         in_scratch("front.npy")), 0);
    assert_int_equal(run("generate", "--model", TALKING, "--image", PICTURES "yellow-star.png", "--prompt", "<image>What is this?", "--logits",
                         in_scratch("marked.npy")), 0);
    assert_same_file(in_scratch("front.npy"), in_scratch("marked.npy"));
    /* the template by hand */
    assert_int_equal(run("generate", "--model", TALKING, "--image", PICTURES "yellow-star.png", "--raw", "--prompt",
                         "<|im_start|>user\n<image>What is this?<|im_end|>\n<|im_start|>assistant\n", "--logits", in_scratch("raw.npy")), 0);
    assert_same_file(in_scratch("front.npy"), in_scratch("raw.npy"));
    assert_int_equal(run("generate", "--model", TALKING, "--image", PICTURES "yellow-star.png", "--prompt", "What is <image> this?", "--logits",
                         in_scratch("within.npy"), "--format", "json"), 0);
    memcpy(front, said_out, sizeof front);
    {
        array a = read_array(in_scratch("front.npy")), b = read_array(in_scratch("within.npy"));
        assert_memory_not_equal(a.data, b.data, 4 * VOCABULARY);
        free(a.file);
        free(b.file);
    }
    assert_int_equal(run("generate", "--model", TALKING, "--image", PICTURES "yellow-star.png", "--prompt", "<image> and <image>"), 1);
    assert_non_null(strstr(said_err, "2 times <image>, and 1 pictures"));
    assert_int_equal(run("generate", "--model", TALKING, "--image", PICTURES "yellow-star.png", "--image", PICTURES "black-cross.png", "--prompt",
                         "<image> and <image>"), 0);
}

/* The prompt as ids gives the same logits and ids, with and without tokenizer files. */
static void ids_are_the_whole_prompt(void **state) {
    static int64_t ids[1024];
    static char text[16384];
    uint32_t by_text[64], by_ids[64], count;
    (void)state;
    strcpy(text, "<|im_start|>user\n<|vision_start|>");
    for (int i = 0; i < 49; i++) strcat(text, "<|image_pad|>");
    strcat(text, "<|vision_end|>What is this?<|im_end|>\n<|im_start|>assistant\n");
    count = prompt_ids(text, ids, 1024);
    write_ids(in_scratch("ids.npy"), ids, count);
    assert_int_equal(run("generate", "--model", TALKING, "--image", PICTURES "red-circle.png", "--prompt", "What is this?", "--format", "json",
                         "--logits", in_scratch("text.npy")), 0);
    count = said_ids(by_text, 64);
    assert_int_equal(run("generate", "--model", TALKING, "--image", PICTURES "red-circle.png", "--ids", in_scratch("ids.npy"), "--format", "json",
                         "--logits", in_scratch("logits.npy")), 0);
    assert_non_null(strstr(said_out, "\"text\": \"a red circle\""));
    assert_int_equal(said_ids(by_ids, 64), count);
    assert_memory_equal(by_ids, by_text, count * sizeof *by_ids);
    assert_same_file(in_scratch("text.npy"), in_scratch("logits.npy"));
    {
        array logits = read_array(in_scratch("logits.npy"));
        uint32_t best = 0;
        assert_string_equal(logits.descr, "<f4");
        assert_shape(&logits, 1, VOCABULARY, 0, 0, 0);
        for (uint32_t i = 1; i < VOCABULARY; i++)
            if (array_float(&logits, i) > array_float(&logits, best)) best = i;
        assert_int_equal(best, by_ids[0]);
        free(logits.file);
    }
    assert_int_equal(run("generate", "--model", TALKING, "--image", PICTURES "red-circle.png", "--ids", in_scratch("ids.npy")), 0);
    assert_string_equal(said_out, "a red circle\n");
    {
        const char *without = talking_without("tokenizer.json");
        assert_int_equal(run("generate", "--model", without, "--image", PICTURES "red-circle.png", "--ids", in_scratch("ids.npy"), "--format",
                             "json"), 0);
        assert_non_null(strstr(said_out, "\"text\": null,"));
        assert_int_equal(said_ids(by_ids, 64), count);
        assert_memory_equal(by_ids, by_text, count * sizeof *by_ids);
        assert_bad_file(run("generate", "--model", without, "--image", PICTURES "red-circle.png", "--ids", in_scratch("ids.npy")), "--format json");
    }
    assert_bad_file(run("generate", "--model", TALKING, "--ids", in_scratch("ids.npy")), "0 pictures");
    ids[0] = VOCABULARY;
    write_ids(in_scratch("ids.npy"), ids, 1);
    assert_bad_file(run("generate", "--model", TALKING, "--ids", in_scratch("ids.npy")), "512");
    ids[0] = 511; /* <|video_pad|> */
    write_ids(in_scratch("ids.npy"), ids, 1);
    assert_bad_file(run("generate", "--model", TALKING, "--ids", in_scratch("ids.npy")), "only still pictures");
    write_ids(in_scratch("ids.npy"), ids, 0);
    assert_bad_file(run("generate", "--model", TALKING, "--ids", in_scratch("ids.npy")), "something in it");
}

static void chance_has_a_seed(void **state) {
    static char first[MAX_TEXT], other[MAX_TEXT];
    static const char *const seeds[] = {"1", "2", "3", "4"};
    int different = 0;
    (void)state;
    for (int i = 0; i < 4; i++) {
        for (int again = 0; again < 2; again++) {
            assert_int_equal(run("generate", "--model", TALKING, "--prompt", "Hello", "--temperature", "8", "--seed", seeds[i], "--max-tokens", "12",
                                 "--ignore-eos", "--threads", again ? "1" : "2"), 0);
            if (again) assert_string_equal(said_out, other);
            strcpy(other, said_out);
        }
        if (i == 0) strcpy(first, other);
        different += strcmp(first, other) != 0;
    }
    assert_true(different > 0);
    assert_int_equal(run("generate", "--model", TALKING, "--prompt", "Hello", "--temperature", "8", "--top-k", "1"), 0);
    assert_string_equal(said_out, "I see no picture.\n");
    assert_int_equal(run("generate", "--model", TALKING, "--prompt", "Hello", "--temperature", "8", "--top-p", "0.000001", "--seed", "0"), 0);
    assert_string_equal(said_out, "I see no picture.\n");
    assert_int_equal(run("generate", "--model", TALKING, "--prompt", "Hello", "--temperature", "0"), 0);
    assert_string_equal(said_out, "I see no picture.\n");
    assert_string_equal(said_err, "");
    assert_int_equal(run("generate", "--model", TALKING, "--prompt", "Hello", "--temperature", "8", "--top-p", "1e-60", "--seed", "3"), 0);
    assert_string_equal(said_out, "I see no picture.\n");
    /* chance that nobody asked for: said */
    assert_int_equal(run("generate", "--model", TALKING, "--prompt", "Hello", "--top-p", "0.5"), 0);
    assert_string_equal(said_out, "I see no picture.\n");
    assert_non_null(strstr(said_err, "--top-p and --top-k choose nothing without --temperature"));
}

/* The least that can be asked. */
static void prompts_may_be_empty(void **state) {
    (void)state;
    assert_int_equal(run("generate", "--model", TALKING, "--prompt", ""), 0);
    assert_string_equal(said_out, "I see no picture.\n");
    assert_int_equal(run("generate", "--model", TALKING, "--prompt=", "--image", PICTURES "yellow-star.png"), 0);
    assert_string_equal(said_out, "a yellow star\n");
    assert_int_equal(run("generate", "--model", TALKING, "--prompt", "", "--raw", "--image", PICTURES "yellow-star.png", "--max-tokens",
                         "2"), 0);
    assert_int_equal(run("generate", "--model", TALKING, "--prompt", "", "--raw"), 1);
    assert_non_null(strstr(said_err, "nothing to go on with"));
}

/* generation_config.json says how to choose and where texts end, unless the command line does. */
static void the_model_says_how_it_wants_to_generate(void **state) {
    static const char hot[] = "{\"do_sample\": true, \"temperature\": 9.0, \"top_k\": 0, \"eos_token_id\": 506}",
                      ends_at_a[] = "{\"eos_token_id\": [506, 64]}",
                      undone[] = "{\"eos_token_id\": 506, \"num_beams\": 4, \"min_length\": 0, "
                               "\"bad_words_ids\": [[64]], \"suppress_tokens\": []}";
    char file[600];
    const char *folder = talking_without("generation_config.json");
    (void)state;
    snprintf(file, sizeof file, "%s/generation_config.json", folder);
    write_all(file, hot, strlen(hot));
    assert_int_equal(run("generate", "--model", folder, "--prompt", "Hello", "--max-tokens", "20", "--seed", "5"), 0);
    assert_string_not_equal(said_out, "I see no picture.\n");
    assert_int_equal(run("generate", "--model", folder, "--prompt", "Hello", "--greedy"), 0);
    assert_string_equal(said_out, "I see no picture.\n");
    assert_int_equal(run("generate", "--model", folder, "--prompt", "Hello", "--temperature", "0.001"), 0);
    assert_string_equal(said_out, "I see no picture.\n");
    write_all(file, ends_at_a, strlen(ends_at_a));
    assert_int_equal(run("generate", "--model", folder, "--image", PICTURES "red-circle.png"), 0);
    assert_string_equal(said_out, "\n"); /* 64 is "a" */
    write_all(file, undone, strlen(undone));
    assert_int_equal(run("generate", "--model", folder, "--prompt", "Hello"), 0);
    assert_string_equal(said_out, "I see no picture.\n");
    assert_int_equal(lines(said_err), 1);
    assert_non_null(strstr(said_err, "generation_config.json sets num_beams, bad_words_ids, which megavit does not do"));
    write_all(file, "{\"eos_token_id\": \"x\"}", 21);
    assert_bad_file(run("generate", "--model", folder, "--prompt", "Hello"), "generation_config.json");
}

/* More positions than the model was made for are taken, and said once: when the prompt has them, and when the answer comes to them. */
static void a_text_may_be_longer_than_the_model_was_made_for(void **state) {
    static const char positions[] = "\"max_position_embeddings\": ", *const limits[] = {"   8", "  18", "  64"};
    const char *folder = talking_without("config.json");
    static char config[8192], file[600];
    int64_t ids[64];
    const uint32_t count = prompt_ids("<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n", ids, 64);
    char *at;
    (void)state;
    assert_in_range(count, 9, 17);
    config[read_all(TALKING "/config.json", config, sizeof config - 1)] = 0;
    at = strstr(config, positions);
    assert_non_null(at);
    snprintf(file, sizeof file, "%s/config.json", folder);
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        memcpy(at + strlen(positions), limits[i], 4); /* in the place of 4096 */
        write_all(file, config, strlen(config));
        assert_int_equal(run("generate", "--model", folder, "--prompt", "Hello", "--max-tokens", "20", "--ignore-eos"), 0);
        assert_int_equal(lines(said_err), i < 2);
        if (i < 2) assert_non_null(strstr(said_err, "longer than the model was made for"));
    }
    memcpy(at + strlen(positions), limits[0], 4);
    write_all(file, config, strlen(config));
    write_all(in_scratch("input"), "Hello\nHello\n", 12);
    assert_int_equal(run_from(in_scratch("input"), "chat", "--model", folder, "--greedy", NULL), 0);
    assert_int_equal(lines(said_err), 1);
}

static void what_cannot_be_is_said(void **state) {
    int64_t id = 1;
    char file[600];
    const char *folder;
    (void)state;
    assert_int_equal(run("generate", "--prompt", "a"), 1);
    assert_int_equal(run("generate", "--model", TALKING), 1);
    assert_int_equal(run("generate", "--model", TALKING, "--prompt", "a", "--ids", "b"), 1);
    assert_int_equal(run("generate", "--model", TALKING, "--ids", "b", "--raw"), 1);
    assert_int_equal(run("generate", "--model", TALKING, "--prompt", "a", "--greedy", "--temperature", "1"), 1);
    assert_int_equal(run("generate", "--model", TALKING, "--prompt", "a", "--top-p", "1.5"), 1);
    assert_int_equal(run("generate", "--model", TALKING, "--prompt", "a", "--temperature", "-1"), 1);
    assert_int_equal(run("generate", "--model", TALKING, "--prompt", "a", "--temperature", "nan"), 1);
    assert_int_equal(run("generate", "--model", TALKING, "--prompt", "a", "--seed", "-1"), 1);
    assert_int_equal(run("generate", "--model", TALKING, "--prompt", "a", "--logits", TALKING "/config.json"), 1);
    assert_int_equal(run("generate", "--model", TALKING, "--prompt", "a", "--logits", TALKING "/chat_template.jinja"), 1);
    assert_int_equal(run("generate", "--model", TALKING, "--prompt", "a", "--logits", "-"), 1);
    assert_bad_file(run("generate", "--model", TALKING, "--prompt", "a", "--think"), "no thinking");
    assert_bad_file(run("generate", "--model", TALKING, "--prompt", "a <video>"), "videos");
    assert_bad_file(run("generate", "--model", TALKING, "--prompt", "a", "--image", "no_such_picture.png"), "no_such_picture");
    assert_bad_file(run("generate", "--model", TALKING, "--prompt", "a\xFF"), "byte 18");
    assert_bad_file(run("generate", "--model", "examples/model", "--prompt", "a"), "examples/model");
    write_ids(in_scratch("ids.npy"), &id, 1);
    assert_bad_file(run("generate", "--model", TEXT_MODEL, "--ids", in_scratch("ids.npy"), "--format", "json", "--image",
                        PICTURES "red-circle.png"), "no vision tower");
    assert_int_equal(run("generate", "--model", TEXT_MODEL, "--ids", in_scratch("ids.npy"), "--format", "json", "--max-tokens", "3"), 0);
    folder = talking_without("chat_template.jinja");
    assert_bad_file(run("generate", "--model", folder, "--prompt", "a"), "no chat template");
    assert_int_equal(run("generate", "--model", folder, "--prompt", "a", "--raw", "--max-tokens", "3"), 0);
    snprintf(file, sizeof file, "%s/chat_template.jinja", folder);
    write_all(file, "{{ messages }}", 14);
    assert_bad_file(run("generate", "--model", folder, "--prompt", "a"), "not known");
}

/* ---- chat ---- */

static int chat(const char *lines_of_input) {
    write_all(in_scratch("input"), lines_of_input, strlen(lines_of_input));
    return run_from(in_scratch("input"), "chat", "--model", TALKING, "--greedy", NULL);
}

static void a_conversation_keeps_its_pictures(void **state) {
    (void)state;
    assert_int_equal(chat("Hello\n/image " PICTURES "two-yellow-crescents-paper.png\nWhat is in this picture?\nHow many are there?\n"
                          "/image " PICTURES "black-cross.png\nWhat is this?\nWhat colour is it?\n"), 0);
    assert_string_equal(said_out, "I see no picture.\ntwo yellow crescents on paper\ntwo\na black cross\nblack\n");
    assert_int_equal(chat("/image " PICTURES "black-cross.png\n\n/reset\nWhat is this?\n/quit\nHello\n"), 0);
    assert_string_equal(said_out, "a black cross\nI see no picture.\n");
}

static void a_session_is_kept_in_a_file(void **state) {
    static char file[MAX_TEXT], input[4096];
    char kept[512];
    size_t bytes;
    (void)state;
    snprintf(kept, sizeof kept, "%s", in_scratch("kept"));
    snprintf(input, sizeof input, "/image " PICTURES "three-purple-rings-horizon.png\nWhat is this?\n/save %s\n", kept);
    assert_int_equal(chat(input), 0);
    snprintf(input, sizeof input, "Hello\n/load %s\nHow many are there?\nWhat is behind them?\n", kept);
    assert_int_equal(chat(input), 0);
    assert_non_null(strstr(said_out, "\nthree\nhorizon\n"));
    /* Cut short, and of other bytes: said, and the conversation goes on where it was. */
    bytes = read_all(kept, file, sizeof file);
    assert_true(bytes > 1000 && bytes < sizeof file - 1);
    write_all(kept, file, bytes - 1);
    snprintf(input, sizeof input, "/image " PICTURES "black-cross.png\nWhat is this?\n/load %s\nWhat colour is it?\n", kept);
    assert_int_equal(chat(input), 2);
    assert_non_null(strstr(said_out, "a black cross\nblack\n"));
    assert_non_null(strstr(said_err, "kept"));
    file[bytes / 2] = (char)(file[bytes / 2] ^ 1);
    write_all(kept, file, bytes);
    assert_int_equal(chat(input), 2);
    assert_non_null(strstr(said_out, "a black cross\nblack\n"));
    /* what a picture's file may not have, a session's may: more than 1 GiB */
    assert_int_equal(truncate(kept, ((off_t)1 << 30) + 8), 0);
    assert_int_equal(chat(input), 2);
    assert_non_null(strstr(said_err, "the session file has 1073741832 bytes"));
    assert_int_equal(truncate(kept, 0), 0);
    assert_int_equal(chat("/load no_such_file\nHello\n"), 2);
    assert_string_equal(said_out, "I see no picture.\n");
    /* A file of the model is no place to save one, in a copy, lest the test should break the model. */
    snprintf(input, sizeof input, "%s/config.json", talking_without("config.json"));
    copy(TALKING "/config.json", input);
    bytes = read_all(input, file, sizeof file);
    snprintf(input, sizeof input, "Hello\n/save %s/config.json\n", in_scratch("talking"));
    write_all(in_scratch("input"), input, strlen(input));
    assert_int_equal(run_from(in_scratch("input"), "chat", "--model", in_scratch("talking"), "--greedy", NULL), 1);
    assert_non_null(strstr(said_err, "would replace a file of the model"));
    {
        char now[4096];
        snprintf(input, sizeof input, "%s/config.json", in_scratch("talking"));
        assert_int_equal(read_all(input, now, sizeof now), bytes);
        assert_memory_equal(now, file, bytes);
    }
}

static void what_a_conversation_cannot_take_changes_nothing(void **state) {
    static char input[65536];
    char thin[600];
    uint8_t line[3 * 2000] = {0};
    (void)state;
    /* a picture that no message can show does not stand in the way of the next ones */
    snprintf(thin, sizeof thin, "%s", in_scratch("thin.ppm"));
    snprintf(input, sizeof input, "P6 2000 1 255\n");
    memcpy(input + strlen(input), line, sizeof line);
    write_all(thin, input, 14 + sizeof line);
    snprintf(input, sizeof input, "/image %s\nHello\n/image " PICTURES "black-cross.png\nIs it <image> or <image>?\nHello\n", thin);
    assert_int_equal(chat(input), 2);
    assert_string_equal(said_out, "I see no picture.\nI see no picture.\n");
    assert_non_null(strstr(said_err, "200 times"));
    assert_non_null(strstr(said_err, "taken back with its pictures"));
    assert_int_equal(chat("/nonsense\n/image\n/image no_such_picture\nHello\n"), 2);
    assert_string_equal(said_out, "I see no picture.\n");
    assert_int_equal(lines(said_err), 3);
    assert_int_equal(chat("/image " PICTURES "black-cross.png\nWhat is this?\nWhat is <image>?\n<video>\nWhat colour is it?\n"), 2);
    assert_string_equal(said_out, "a black cross\nblack\n");
    memset(input, 'x', 40000);
    strcpy(input + 40000, "\nHello\n");
    assert_int_equal(chat(input), 2);
    assert_non_null(strstr(said_err, "--context"));
    assert_string_equal(said_out, "I see no picture.\n");
    write_all(in_scratch("input"), "\0Hello\nHello\n", 13);
    assert_int_equal(run_from(in_scratch("input"), "chat", "--model", TALKING, "--greedy", NULL), 2);
    assert_non_null(strstr(said_err, "a byte of value 0"));
    assert_string_equal(said_out, "I see no picture.\n");
    assert_int_equal(run_from("tests", "chat", "--model", TALKING, NULL), 2); /* a folder */
    assert_non_null(strstr(said_err, "standard input: cannot read"));
}

/* Ctrl-C in the middle of a sentence, or after it, ends no program: it still answers, and ends by itself. */
static void control_c_does_not_end_it(void **state) {
    int to[2], from[2], status;
    char byte;
    char *const arguments[] = {program, "chat", "--model", TALKING, "--temperature", "50", "--seed", "7", NULL};
    FILE *answers;
    size_t said;
    pid_t pid;
    (void)state;
    assert_int_equal(pipe(to), 0);
    assert_int_equal(pipe(from), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        close(to[0]);
        close(to[1]);
        close(from[0]);
        close(from[1]);
        alarm(120);
        execv(program, arguments);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    assert_int_equal(write(to[1], "Hello\n", 6), 6);
    assert_int_equal(read(from[0], &byte, 1), 1); /* it has begun */
    assert_int_equal(kill(pid, SIGINT), 0);
    assert_int_equal(write(to[1], "/help\n", 6), 6);
    close(to[1]);
    answers = fdopen(from[0], "r");
    assert_non_null(answers);
    said = fread(said_out, 1, sizeof said_out - 1, answers);
    for (size_t i = 0; i < said; i++)
        if (!said_out[i]) said_out[i] = ' '; /* so hot a model writes U+0000, too, where Ctrl-C comes late */
    said_out[said] = 0;
    fclose(answers);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_non_null(strstr(said_out, "/save FILE"));
}

static void inspect_tells_of_language_models(void **state) {
    static const char beams[] = "{\"do_sample\": true, \"top_k\": 20, \"top_p\": 0.5, \"num_beams\": 2}";
    const char *folder = talking_without("generation_config.json");
    char file[600];
    (void)state;
    snprintf(file, sizeof file, "%s/generation_config.json", folder);
    assert_int_equal(run("inspect", TALKING), 0);
    assert_non_null(strstr(said_out, "model     Qwen3-VL vision tower\n"));
    assert_non_null(strstr(said_out, "language  Qwen3-VL: 3 layers, width 192, MLP 384, 4 heads of 64, 2 of keys and values; 512 ids, "));
    assert_non_null(strstr(said_out, "chooses   the likeliest id; ends at 506, 504 (generation_config.json)\ntemplate  Qwen3-VL\n"));
    assert_null(strstr(said_out, "not done"));
    assert_int_equal(run("inspect", TEXT_MODEL), 0); /* without a tower */
    assert_non_null(strstr(said_out, "language  Qwen3: 4 layers"));
    assert_non_null(strstr(said_out, "no chat template"));
    write_all(file, beams, strlen(beams));
    assert_int_equal(run("inspect", folder), 0);
    assert_non_null(strstr(said_out, "chooses   by chance, temperature 1, top-k 20, top-p 0.5, min-p 0; ends at 506 ("));
    assert_non_null(strstr(said_out, "not done  num_beams\n"));
    write_all(file, "{", 1);
    assert_int_equal(run("inspect", folder), 0);
    assert_non_null(strstr(said_out, "language  not to be used: "));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inspect_tells_of_language_models),
        cmocka_unit_test(it_says_what_is_in_the_pictures),
        cmocka_unit_test(json_is_one_line_with_ids_and_text),
        cmocka_unit_test(pictures_stand_where_the_prompt_says),
        cmocka_unit_test(ids_are_the_whole_prompt),
        cmocka_unit_test(chance_has_a_seed),
        cmocka_unit_test(prompts_may_be_empty),
        cmocka_unit_test(the_model_says_how_it_wants_to_generate),
        cmocka_unit_test(a_text_may_be_longer_than_the_model_was_made_for), cmocka_unit_test(what_cannot_be_is_said),
        cmocka_unit_test(a_conversation_keeps_its_pictures),
        cmocka_unit_test(a_session_is_kept_in_a_file),
        cmocka_unit_test(what_a_conversation_cannot_take_changes_nothing),
        cmocka_unit_test(control_c_does_not_end_it),
    };
    return cmocka_run_group_tests_name("generate and chat", tests, set_up, tear_down);
}
