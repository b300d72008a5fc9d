/* megavit generate on a GPU that is not there (tests/fake_cuda.h): ids chosen several at a time, up to a stop or to the end, pictures whose
   rows stay on the card or come to the host, and what goes wrong. */
#define _GNU_SOURCE /* of tools/megavit_session.c */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_CUDA
#define MEGAVIT_NO_CUDART
#define MEGAVIT_TEXT
#define MEGAVIT_KERNELS_HEADER "tests/fake_kernels.h"
#include "megavit.h"

#include <unistd.h>
#include "support.h"
#include "fake_decoder.h"
#include "fake_runtime.h"
#include "tools/megavit_backend.c"
#include "tools/megavit_devices.c"
#include "tools/megavit_session.c"

extern const cli_command cli_generate;

enum { GIVEN = 5, SIDE = 256, ROWS = SIDE * SIDE / 1024 };

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
static void write_picture(const char *name, uint32_t side) {
    const size_t bytes = (size_t)side * side * 3;
    uint8_t *pixels = (uint8_t *)malloc(bytes);
    char head[32];
    size_t i;
    assert_non_null(pixels);
    for (i = 0; i < bytes; i++) pixels[i] = (uint8_t)(i * 2654435761u >> 13);
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
/* The exit code of `megavit generate` with these words, up to NULL, behind those that all have. */
static int generate_with(const char *const *more) {
    const char *words[20] = {"--model", folder, "--backend", "cuda", "--ids", in_folder("ids.npy"), "--format", "json"};
    FILE *out = tmpfile(), *err = tmpfile();
    char *arguments[20];
    int count = 8, i, status, kept_out, kept_err;
    assert_true(out && err);
    for (; *more; more++) words[count++] = *more;
    for (i = 0; i < count; i++) memcpy(&arguments[i], &words[i], sizeof arguments[0]);
    arguments[count] = NULL;
    fflush(stdout);
    kept_out = dup(STDOUT_FILENO);
    kept_err = dup(STDERR_FILENO);
    dup2(fileno(out), STDOUT_FILENO);
    dup2(fileno(err), STDERR_FILENO);
    status = cli_generate.run(&cli_generate, count, arguments);
    fflush(stdout);
    fflush(stderr);
    take_back(out, kept_out, STDOUT_FILENO, said, sizeof said);
    take_back(err, kept_err, STDERR_FILENO, complained, sizeof complained);
    assert_int_equal(fake_alive(), 0);
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
    write_picture("a.ppm", SIDE);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_texts), cmocka_unit_test(test_pictures)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
