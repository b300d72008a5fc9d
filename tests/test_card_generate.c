/* megavit generate and chat on a GPU that is not there (tests/fake_cuda.h): ids chosen several at a time, up to a stop or to the end,
   pictures whose rows stay on the card or come to the host, each at its place with what DeepStack adds, and what goes wrong. */
#define _GNU_SOURCE /* of tools/megavit_session.c */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_CUDA
#define MEGAVIT_NO_CUDART
#define MEGAVIT_TEXT
#include "megavit.h"

#include <unistd.h>
#include "support.h"
#include "fake_decoder.h"
#include "fake_runtime.h"
#include "tools/megavit_backend.c"
#include "tools/megavit_devices.c"
#include "tools/megavit_session.c"

extern const cli_command cli_generate, cli_chat;

enum { GIVEN = 5, SIDE = 256, ROWS = SIDE * SIDE / 1024, DEEPSTACK = 2 };
enum { FIRST_COLOUR = 10, SECOND_COLOUR = 201 };

static char folder[] = "/tmp/megavit_generate_XXXXXX", said[20000], complained[20000];

static const char *in_folder(const char *name) {
    static char paths[8][128];
    static int next;
    next = (next + 1) % 8;
    snprintf(paths[next], sizeof paths[next], "%s/%s", folder, name);
    return paths[next];
}
static void write_file(const char *name, const void *head, size_t head_bytes, const void *data, size_t bytes) {
    FILE *file = fopen(in_folder(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(head, 1, head_bytes, file), head_bytes);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}
/* A model's two files, and how it ends a text; NULL: it does not. */
static void write_model(const shape *s, const char *generation) {
    held_model held;
    make_files(&held, s, LANGUAGE_LAYERS, 0);
    write_file("config.json", "", 0, held.config, strlen(held.config));
    write_file("model.safetensors", "", 0, held.file, (size_t)held.file_bytes);
    write_file("generation_config.json", generation ? generation : "{}", generation ? strlen(generation) : 2, "", 0);
    free(held.file);
}
static void write_ids(const uint32_t *ids, uint32_t count) {
    char head[128];
    int64_t wide[MOST_IDS];
    uint32_t i;
    for (i = 0; i < count; i++) wide[i] = ids[i];
    memset(head, ' ', sizeof head);
    memcpy(head, "\x93NUMPY\x01\x00\x76\x00", 10);
    i = (uint32_t)sprintf(head + 10, "{'descr': '<i8', 'fortran_order': False, 'shape': (%u,), }", (unsigned)count);
    head[10 + i] = ' ';
    head[127] = '\n';
    write_file("ids.npy", head, sizeof head, wide, count * sizeof wide[0]);
}
static void write_picture(const char *name, uint32_t side, uint32_t colour) {
    const size_t bytes = (size_t)side * side * 3;
    uint8_t *pixels = (uint8_t *)malloc(bytes);
    char head[32];
    assert_non_null(pixels);
    memset(pixels, (int)colour, bytes);
    snprintf(head, sizeof head, "P6 %u %u 255\n", (unsigned)side, (unsigned)side);
    write_file(name, head, strlen(head), pixels, bytes);
    free(pixels);
}

/* Ends a redirection; what was said is text. */
static void take_back(FILE *file, int kept, int number, char *text, size_t room) {
    dup2(kept, number);
    close(kept);
    rewind(file);
    text[fread(text, 1, room - 1, file)] = 0;
    fclose(file);
}
/* The exit code of a command with these words. */
static int run_words(const cli_command *command, const char *const *words, int count) {
    FILE *out = tmpfile(), *err = tmpfile();
    char *arguments[20];
    int i, status, kept_out, kept_err;
    assert_true(out && err);
    for (i = 0; i < count; i++) memcpy(&arguments[i], &words[i], sizeof arguments[0]);
    arguments[count] = NULL;
    mgv__cuda_test_kernels = "stands for megavit.fatbin";
    fflush(stdout);
    kept_out = dup(STDOUT_FILENO);
    kept_err = dup(STDERR_FILENO);
    dup2(fileno(out), STDOUT_FILENO);
    dup2(fileno(err), STDERR_FILENO);
    status = command->run(command, count, arguments);
    fflush(stdout);
    fflush(stderr);
    take_back(out, kept_out, STDOUT_FILENO, said, sizeof said);
    take_back(err, kept_err, STDERR_FILENO, complained, sizeof complained);
    assert_int_equal(fake_alive(), 0);
    return status;
}
/* Of `megavit generate`, behind the words that all have, up to NULL. */
static int generate_with(const char *const *more) {
    const char *words[20] = {"--model", folder, "--backend", "cuda", "--ids", in_folder("ids.npy"), "--format", "json"};
    int count = 8;
    for (; *more; more++) words[count++] = *more;
    return run_words(&cli_generate, words, count);
}
/* Of `megavit chat` that is told these lines. */
static int chat_with(const char *lines, const char *context) {
    const char *words[] = {"--model", folder, "--backend", "cuda", "--max-tokens", "2", "--greedy", "--context", context};
    FILE *in = tmpfile();
    const int kept_in = dup(STDIN_FILENO);
    int status;
    assert_non_null(in);
    assert_int_equal(fwrite(lines, 1, strlen(lines), in), strlen(lines));
    rewind(in);
    dup2(fileno(in), STDIN_FILENO);
    rewind(stdin);
    status = run_words(&cli_chat, words, COUNT_OF(words));
    dup2(kept_in, STDIN_FILENO);
    close(kept_in);
    fclose(in);
    return status;
}

/* That these ids were said, and why no more. */
static void check_said(const uint32_t *ids, uint32_t count, const char *finish) {
    char expected[2000];
    size_t used = (size_t)sprintf(expected, "{\"ids\": [");
    uint32_t i;
    for (i = 0; i < count; i++) used += (size_t)sprintf(expected + used, "%s%u", i ? ", " : "", (unsigned)ids[i]);
    sprintf(expected + used, "], \"text\": null, \"finish\": \"%s\"", finish);
    if (strncmp(said, expected, strlen(expected)) != 0) fail_msg("not %s: %s %s", expected, said, complained);
}

/* As many as are asked for, in launches of 16, or up to the stop that the files name. */
static void test_texts(void **state) {
    static const char *const most[] = {"1", "16", "17", "40"};
    uint32_t ids[GIVEN], chain[40], i, first;
    float kept[GIVEN + 40];
    char generation[64];
    (void)state;
    for (i = 0; i < GIVEN; i++) kept[i] = (float)(ids[i] = 3 * i + 1);
    for (i = 0; i < 40; i++) kept[GIVEN + i] = (float)(chain[i] = likeliest(kept, GIVEN + i, small.vocabulary));
    write_model(&small, NULL);
    write_ids(ids, GIVEN);
    for (i = 0; i < COUNT_OF(most); i++) {
        const char *const words[] = {"--max-tokens", most[i], NULL};
        make_card();
        assert_int_equal(generate_with(words), CLI_DONE);
        check_said(chain, (uint32_t)atoi(most[i]), "length");
    }
    snprintf(generation, sizeof generation, "{\"eos_token_id\": %u}", (unsigned)chain[18]);
    write_model(&small, generation);
    for (first = 0; chain[first] != chain[18]; first++) continue;
    {
        static const char *const words[] = {"--max-tokens", "40", NULL}, *const on[] = {"--max-tokens", "40", "--ignore-eos", NULL};
        make_card();
        assert_int_equal(generate_with(words), CLI_DONE);
        check_said(chain, first + 1, "stop");
        make_card();
        assert_int_equal(generate_with(on), CLI_DONE);
        check_said(chain, 40, "length");
        make_card();
        appends_nothing = 1;
        assert_int_equal(generate_with(words), CLI_MACHINE);
        assert_non_null(strstr(complained, "a launch of the decoder ended without an id"));
        assert_int_equal(said[0], 0);
        make_card();
        fake.devices = 0;
        assert_int_equal(generate_with(words), CLI_MACHINE);
        if (!strstr(complained, "cudaGetDeviceCount")) fail_msg("%s", complained);
    }
}

/* A picture's rows lie on the card where its tower runs there, else come from the host; where neither has room, that is said. */
static void test_pictures(void **state) {
    uint32_t ids[GIVEN + ROWS], i, tower;
    int status;
    char picture[128];
    const char *const words[] = {"--image", picture, "--max-tokens", "3", NULL};
    (void)state;
    for (i = 0; i < GIVEN + ROWS; i++) ids[i] = i < GIVEN ? i : PLACEHOLDER;
    write_model(&seeing, NULL);
    write_ids(ids, GIVEN + ROWS);
    write_picture("a.ppm", SIDE, FIRST_COLOUR);
    strcpy(picture, in_folder("a.ppm"));
    for (tower = 0; tower < 2; tower++) {
        make_card();
        counts_positions = 0;
        if (tower) add_tower_kernel();
        if (generate_with(words) != CLI_DONE) fail_msg("%s", complained);
        assert_non_null(strstr(said, "\"generated_tokens\": 3"));
        assert_int_equal(fake.launches, 3 + tower); /* the prompt, its head, three ids, and the tower */
    }
    make_card();
    add_tower_kernel();
    fake.others[1].kernel = NULL;
    fake.fail_name = "cudaLaunchKernelExC";
    status = generate_with(words);
    if (status != CLI_MACHINE || !strstr(complained, "a.ppm: cudaLaunchKernelExC")) fail_msg("%d: %s", status, complained);
}

/* What a session keeps that reads `count` ids with pictures of these colours: alter 1 has another picture's rows, 2 those of the row
   before, 3 lacks DeepStack's last layer, as no session may. */
static void expect_kept(const uint32_t *ids, uint32_t count, uint32_t placeholder, const uint32_t *colours, int alter, float *kept) {
    uint32_t i, rows = 0;
    for (i = 0; i < count; i++) {
        kept[i] = (float)ids[i];
        if (ids[i] != placeholder) continue;
        kept[i] = picture_number(colours[(rows / ROWS + (alter == 1)) % 2], DEEPSTACK - (alter == 3), rows % ROWS + (alter == 2 ? ROWS - 1 : 0));
        rows++;
    }
}

/* Two pictures between text: rows of each at its own place, in their order, with both layers of DeepStack, and on the card all the way. */
static void test_two_pictures(void **state) {
    enum { BEFORE = 3, BETWEEN = 2, BEHIND = 1, COUNT = BEFORE + BETWEEN + BEHIND + 2 * ROWS, MADE = 5 };
    static const uint32_t orders[2][2] = {{FIRST_COLOUR, SECOND_COLOUR}, {SECOND_COLOUR, FIRST_COLOUR}};
    uint32_t ids[COUNT], made[MADE], i, k;
    int alter;
    char pictures[2][128];
    float kept[COUNT + MADE];
    (void)state;
    for (i = 0; i < COUNT; i++) ids[i] = i % 50;
    for (i = 0; i < 2 * ROWS; i++) ids[BEFORE + i + (i < ROWS ? 0 : BETWEEN)] = PLACEHOLDER;
    write_model(&seeing, NULL);
    write_ids(ids, COUNT);
    write_picture("a.ppm", SIDE, FIRST_COLOUR);
    write_picture("b.ppm", SIDE, SECOND_COLOUR);
    for (k = 0; k < 2; k++) {
        const char *const words[] = {"--image", pictures[0], "--image", pictures[1], "--max-tokens", "5", NULL};
        strcpy(pictures[k], in_folder("a.ppm"));
        strcpy(pictures[1 - k], in_folder("b.ppm"));
        make_card();
        add_tower_kernel();
        counts_positions = 0;
        if (generate_with(words) != CLI_DONE) fail_msg("%s", complained);
        for (alter = 3; alter >= 0; alter--) {
            expect_kept(ids, COUNT, PLACEHOLDER, orders[k], alter, kept);
            for (i = 0; i < MADE; i++) {
                const uint32_t id = likeliest(kept, COUNT + i, seeing.vocabulary);
                if (alter && !i) assert_true(id != likeliest(last_kept, COUNT, seeing.vocabulary)); /* it would be seen */
                made[i] = id;
                kept[COUNT + i] = (float)id;
            }
        }
        check_said(made, MADE, "length");
        assert_memory_equal(last_kept, kept, COUNT * sizeof kept[0]);
        assert_int_equal(fake.launches, 2 + 2 + 1); /* a tower's for each, the prompt's and its head's, one for five ids */
        assert_true(fake.to_host < ROWS * seeing.hidden * sizeof(float)); /* logits, and what describes the kernels: no layer of rows */
    }
}

/* A placeholder too few or too many, and a device that fails at any launch or copy on the way: said with what is wrong, nothing is left,
   and the next run is right. */
static void test_pictures_that_fail(void **state) {
    static const struct { uint32_t placeholders; const char *sentence; } wrong[] = {
        {ROWS - 1, "picture 0 has 63 placeholders, and its grid says 64"},
        {ROWS + 1, "a placeholder beyond the rows of the 1 pictures that were passed"}};
    static const char *const calls[] = {"cudaLaunchKernelExC", "cudaMemcpyAsync", "cudaMemsetAsync", "cudaEventRecordWithFlags"};
    uint32_t ids[GIVEN + ROWS + 1], i;
    uint64_t n, failures = 0;
    char picture[128], right[sizeof said];
    const char *const words[] = {"--image", picture, "--max-tokens", "3", NULL};
    (void)state;
    for (i = 0; i < GIVEN + ROWS + 1; i++) ids[i] = i < GIVEN ? i : PLACEHOLDER;
    write_model(&seeing, NULL);
    write_picture("a.ppm", SIDE, FIRST_COLOUR);
    strcpy(picture, in_folder("a.ppm"));
    for (i = 0; i < COUNT_OF(wrong); i++) {
        write_ids(ids, GIVEN + wrong[i].placeholders);
        make_card();
        add_tower_kernel();
        assert_int_equal(generate_with(words), CLI_BAD_FILE);
        if (!strstr(complained, wrong[i].sentence)) fail_msg("not '%s': %s", wrong[i].sentence, complained);
        assert_int_equal(said[0], 0);
    }
    write_ids(ids, GIVEN + ROWS);
    make_card();
    add_tower_kernel();
    counts_positions = 0;
    assert_int_equal(generate_with(words), CLI_DONE);
    n = fake.calls;
    strcpy(right, said);
    strchr(right, ']')[1] = 0;
    for (; n > 0; n--) { /* every call of the run fails in its turn; from the engine's start those that send and launch are looked at */
        int status;
        make_card();
        add_tower_kernel();
        counts_positions = 0;
        fake.fail_at = n;
        status = generate_with(words);
        for (i = 0; i < COUNT_OF(calls) && (!fake.failed || strcmp(fake.failed, calls[i]) != 0); i++) continue;
        if (i == COUNT_OF(calls)) continue;
        failures++;
        if (status != CLI_MACHINE) fail_msg("%s failed: %d, %s", calls[i], status, complained);
        if (!strstr(complained, calls[i])) fail_msg("%s failed, and it says: %s", calls[i], complained);
    }
    assert_true(failures > 12);
    make_card();
    add_tower_kernel();
    counts_positions = 0;
    assert_int_equal(generate_with(words), CLI_DONE);
    assert_memory_equal(said, right, strlen(right));
}

/* ---- chat: the tokenizer and the template of examples/talking ---- */

enum { TALKING_IDS = 512, TALKING_PLACEHOLDER = 510 };
static void copy_file(const char *name) {
    static char text[1 << 16];
    char path[128];
    FILE *file;
    size_t bytes;
    snprintf(path, sizeof path, "examples/talking/%s", name);
    file = fopen(path, "rb");
    assert_non_null(file);
    bytes = fread(text, 1, sizeof text, file);
    fclose(file);
    assert_in_range(bytes, 1, sizeof text - 1);
    write_file(name, "", 0, text, bytes);
}
static void write_talking(void) {
    static const char *const special[] = {"image", "video", "vision_start", "vision_end"};
    static const uint32_t ids[] = {TALKING_PLACEHOLDER, 511, 507, 508};
    static shape talking;
    held_model held;
    size_t i;
    talking = seeing;
    talking.vocabulary = TALKING_IDS;
    make_files(&held, &talking, LANGUAGE_LAYERS, 0);
    for (i = 0; i < COUNT_OF(special); i++) { /* two digits become three: there is room */
        char name[40], *at;
        snprintf(name, sizeof name, "\"%s_token_id\":", special[i]);
        at = strstr(held.config, name);
        assert_non_null(at);
        at += strlen(name);
        memmove(at + 3, at + 2, strlen(at + 2) + 1);
        at[0] = (char)('0' + ids[i] / 100);
        at[1] = (char)('0' + ids[i] / 10 % 10);
        at[2] = (char)('0' + ids[i] % 10);
    }
    write_file("config.json", "", 0, held.config, strlen(held.config));
    write_file("model.safetensors", "", 0, held.file, (size_t)held.file_bytes);
    write_file("generation_config.json", "{}", 2, "", 0);
    free(held.file);
    copy_file("tokenizer.json");
    copy_file("tokenizer_config.json");
    copy_file("chat_template.jinja");
    write_picture("a.ppm", SIDE, FIRST_COLOUR);
    write_picture("b.ppm", SIDE, SECOND_COLOUR);
}
/* The ids that a conversation of one message is, as what a session keeps of them. */
static uint32_t conversation(const char *text, uint32_t pictures, float *kept) {
    static const uint32_t colours[2] = {FIRST_COLOUR, SECOND_COLOUR};
    mgv_model_desc desc;
    mgv_tokenizer *tokenizer = NULL;
    mgv_chat chat;
    mgv_message message;
    mgv_grid grids[2];
    mgv_error error;
    uint32_t ids[MOST_IDS], i;
    uint64_t count = 0;
    memset(&desc, 0, sizeof desc);
    memset(&message, 0, sizeof message);
    memset(grids, 0, sizeof grids);
    desc.path = folder;
    for (i = 0; i < 2; i++) grids[i].merged_tokens = ROWS;
    message.role = MGV_ROLE_USER;
    message.text = text;
    message.bytes = strlen(text);
    message.image_count = pictures;
    message.grids = grids;
    assert_int_equal(mgv_tokenizer_open(&tokenizer, &desc, MGV_LOWER_CASE_AUTO, &error), MGV_OK);
    assert_int_equal(mgv_chat_open(&chat, &desc, &error), MGV_OK);
    if (mgv_chat_tokenize(chat, tokenizer, &message, 1, MGV_CHAT_ANSWER, ids, MOST_IDS, &count, &error) != MGV_OK)
        fail_msg("%s", error.message);
    mgv_tokenizer_close(tokenizer);
    expect_kept(ids, (uint32_t)count, TALKING_PLACEHOLDER, colours, 0, kept);
    return (uint32_t)count;
}
/* The session kept these numbers last, and then what it answered; ids beyond 256 are rounded as bf16 is. */
static void check_kept(const float *kept, uint32_t count) {
    uint32_t i;
    assert_in_range(last_count, count, count + 2);
    for (i = 0; i < count; i++)
        if (mgv__bf16_round(last_kept[i]) != mgv__bf16_round(kept[i])) fail_msg("place %u: %g, not %g", i, last_kept[i], kept[i]);
}

/* Pictures of a turn, in their order; of one that fails at any launch the message is taken back with them, and the next turn is as if it
   had not been; so it is where the session has no room. */
static void test_chat(void **state) {
    char lines[1000], twice[2000], small_talk[1200];
    float kept[MOST_IDS], hello[MOST_IDS];
    uint32_t count, hello_count, n;
    (void)state;
    write_talking();
    count = conversation("Which?", 2, kept);
    hello_count = conversation("Hello", 0, hello);
    snprintf(lines, sizeof lines, "/image %s/a.ppm\n/image %s/b.ppm\nWhich?\n", folder, folder);
    snprintf(twice, sizeof twice, "%s%s", lines, lines);
    snprintf(small_talk, sizeof small_talk, "%sHello\n", lines);
    make_card();
    add_tower_kernel();
    counts_positions = 0;
    if (chat_with(lines, "290") != CLI_DONE) fail_msg("%s", complained);
    check_kept(kept, count);
    assert_true(fake.to_host < ROWS * seeing.hidden * sizeof(float)); /* logits behind the prompt and two ids: no layer of rows */
    for (n = 1; n <= 4; n++) { /* two towers', the prompt's, its head's */
        make_card();
        add_tower_kernel();
        counts_positions = 0;
        fake.fail_launch = n;
        assert_int_equal(chat_with(twice, "290"), CLI_MACHINE);
        if (!strstr(complained, "cudaLaunchKernelExC") || !strstr(complained, "the message is taken back with its pictures"))
            fail_msg("launch %u: %s", n, complained);
        check_kept(kept, count);
    }
    make_card();
    add_tower_kernel();
    counts_positions = 0;
    assert_int_equal(chat_with(small_talk, "100"), CLI_BAD_FILE);
    snprintf(twice, sizeof twice, "the conversation would be %u ids long, and the session holds 100", (unsigned)count);
    if (!strstr(complained, twice)) fail_msg("not '%s': %s", twice, complained);
    check_kept(hello, hello_count);
}

static int set_up(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}
static int tear_down(void **state) {
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_texts), cmocka_unit_test(test_pictures), cmocka_unit_test(test_two_pictures),
                                       cmocka_unit_test(test_pictures_that_fail), cmocka_unit_test(test_chat)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
