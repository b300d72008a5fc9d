/* The command line's pipeline onto GPUs that are not there (tests/fake_cuda.h): rows in order from one and from several, and a card that is
   lost in the middle: what is done is kept, the rest is named; the same with engines that are made as pictures of any size come. Meant for
   ThreadSanitizer, too. */
#define _GNU_SOURCE /* of tools/megavit_session.c */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_CUDA
#define MEGAVIT_NO_CUDART
#include "megavit.h"

#include <unistd.h>
#include "support.h"
#include "fake_kernel.h"
#include "fake_runtime.h"
#include "micro_siglip.h"
#include "tools/megavit_backend.c"
#include "tools/megavit_devices.c"
#include "tools/megavit_session.c"
#include "tools/megavit_encode.c"

enum { PICTURES = 23, IMAGE_BYTES = 3 * MICRO_SIDE * MICRO_SIDE };

typedef struct fixture {
    micro_siglip micro;
    char directory[64];
    unsigned char pixels[PICTURES][IMAGE_BYTES];
    int bad[PICTURES];          /* the file is no whole picture */
    cli_session *session;
    size_t rows, next;          /* that have come; the first picture that may be next */
    uint32_t lose_at;           /* the launch after which the card is lost; 0: none */
    char said[20000];           /* on standard error */
} fixture;
static fixture *now;

static void path_of(const fixture *f, const char *name, char *path) { snprintf(path, 128, "%s/%s", f->directory, name); }
static void write_file(const fixture *f, const char *name, const void *head, size_t head_bytes, const void *data, size_t bytes) {
    char path[128];
    FILE *file;
    path_of(f, name, path);
    file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(head, 1, head_bytes, file), head_bytes);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}
static void picture_name(int i, char *name) { sprintf(name, "%02d.ppm", i); }

static int set_up(void **state) {
    fixture *f = (fixture *)calloc(1, sizeof *f);
    char head[32];
    int i, k;
    micro_make(&f->micro, 1);
    strcpy(f->directory, "/tmp/megavit_card_XXXXXX");
    assert_non_null(mkdtemp(f->directory));
    for (i = 0; i < 2; i++) write_file(f, f->micro.files[i].name, "", 0, f->micro.files[i].data, (size_t)f->micro.files[i].bytes);
    sprintf(head, "P6 %d %d 255\n", MICRO_SIDE, MICRO_SIDE);
    for (i = 0; i < PICTURES; i++) {
        char name[16];
        for (k = 0; k < IMAGE_BYTES; k++) f->pixels[i][k] = (unsigned char)((unsigned)(i * IMAGE_BYTES + k) * 2654435761u >> 13);
        f->bad[i] = i == 4 || i == 17 || i == 18;
        picture_name(i, name);
        write_file(f, name, head, strlen(head), f->pixels[i], f->bad[i] ? IMAGE_BYTES / 2 : IMAGE_BYTES);
    }
    mgv__cuda_test_calls = &fake_calls;
    mgv__cuda_test_kernels = "stands for megavit.fatbin";
    *state = now = f;
    return 0;
}
static int tear_down(void **state) {
    fixture *f = (fixture *)*state;
    char name[16], path[128];
    int i;
    for (i = 0; i < 2 + PICTURES; i++) {
        if (i >= 2) picture_name(i - 2, name);
        path_of(f, i < 2 ? f->micro.files[i].name : name, path);
        unlink(path);
    }
    assert_int_equal(rmdir(f->directory), 0);
    micro_free(&f->micro);
    free(f);
    return 0;
}

/* The kernels of the session's engines; after the one at which the card is lost no call is answered any more. */
static void play(const void *arguments) {
    uint32_t i;
    for (i = 0; i < FAKE_ENGINES; i++) fake_engines[i] = i < now->session->device_count ? now->session->engines[i] : NULL;
    fake_kernel(arguments);
    if (!now->lose_at || fake.launches != now->lose_at) return;
    fake.fail_name = "cudaEventQuery";
    fake.fail_code = cudaErrorIllegalAddress;
}

/* Rows come in the order of the pictures, each that of its own. */
static int take(void *user, const char *name, const mgv_shape *shape, const float *rows) {
    fixture *f = (fixture *)user;
    char wanted[16];
    while (f->next < PICTURES && f->bad[f->next]) f->next++;
    assert_true(f->next < PICTURES);
    picture_name((int)f->next, wanted);
    assert_string_equal(strrchr(name, '/') + 1, wanted);
    assert_int_equal(shape->columns, MICRO_WIDTH);
    assert_true(rows[0] == fake_pooled(f->pixels[f->next], IMAGE_BYTES, 0));
    assert_true(rows[MICRO_WIDTH - 1] == fake_pooled(f->pixels[f->next], IMAGE_BYTES, MICRO_WIDTH - 1));
    f->next++;
    f->rows++;
    return 0;
}

/* Encodes all pictures of a folder's; the exit code. What was said is in f->said. */
static int encode(fixture *f, const cli_session_options *options, void (*name_of)(int, char *), const mgv_output *output, cli_sink *sink,
                  void (*kernel)(const void *)) {
    cli_list pictures;
    FILE *file = tmpfile();
    int status, i, kept;
    fake_reset();
    fake.devices = 3;
    fake.kernel = kernel;
    memset(&pictures, 0, sizeof pictures);
    for (i = 0; i < PICTURES; i++) {
        char name[16], path[128];
        name_of(i, name);
        path_of(f, name, path);
        assert_int_equal(cli_list_add(&pictures, path), 0);
    }
    f->rows = f->next = 0;
    assert_non_null(file);
    fflush(stderr);
    kept = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    f->session = cli_session_open(options, &status);
    if (f->session) {
        status = cli_session_encode(f->session, &pictures, output, sink, f);
        fake.fail_name = NULL; /* so that all can be given back */
        cli_session_close(f->session);
    }
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(kept);
    rewind(file);
    f->said[fread(f->said, 1, sizeof f->said - 1, file)] = 0;
    fclose(file);
    cli_list_free(&pictures);
    assert_int_equal(fake_alive(), 0);
    return status;
}
static int embed(fixture *f, uint32_t at_once, uint32_t threads, const char *devices) {
    cli_session_options options;
    mgv_output output;
    memset(&options, 0, sizeof options);
    memset(&output, 0, sizeof output);
    options.model = f->directory;
    options.backend = MGV_BACKEND_CUDA;
    options.batch = at_once;
    options.threads = threads;
    options.devices = devices;
    return encode(f, &options, picture_name, &output, take, play);
}
static int is_named(const fixture *f, int i, const char *with) {
    char name[64];
    picture_name(i, name);
    strcat(strcat(name, ": "), with);
    return strstr(f->said, name) != NULL;
}

static void expect(const fixture *f, int status, int expected) {
    if (status != expected) fail_msg("wanted %d, got %d: %s", expected, status, f->said);
}

/* With each number of pictures and each number of threads, though not with every two of these. */
static const char *const device_lists[] = {NULL, "2", "0,2", "all"};

static void test_rows_in_order(void **state) {
    static const uint32_t batches[] = {2, 64}, threads[] = {1, 3};
    fixture *f = (fixture *)*state;
    size_t b, t, d;
    f->lose_at = 0;
    for (b = 0; b < COUNT_OF(batches); b++)
        for (t = 0; t < COUNT_OF(threads); t++)
            for (d = (b + t) % 2; d < COUNT_OF(device_lists); d += 2) {
                expect(f, embed(f, batches[b], threads[t], device_lists[d]), CLI_BAD_FILE);
                assert_int_equal(f->rows, PICTURES - 3);
                assert_true(is_named(f, 4, "cannot decode") && is_named(f, 17, "cannot decode") && is_named(f, 18, "cannot decode"));
            }
}

/* At every launch in turn: each picture has its row or is named, and it says what happened. */
static void test_a_lost_card(void **state) {
    fixture *f = (fixture *)*state;
    size_t d;
    for (d = 0; d < COUNT_OF(device_lists); d++)
        for (f->lose_at = 1; f->lose_at <= 5; f->lose_at += 2) {
            int i, status = embed(f, 4, 2, device_lists[d]);
            expect(f, status, CLI_MACHINE);
            if (!strstr(f->said, "CUDA error 700")) fail_msg("%s", f->said);
            assert_true(f->rows < 4 * f->lose_at && f->rows % 4 == 0); /* whole batches, in order: take has looked */
            for (i = 0; i < PICTURES && f->rows; i++) {
                if ((size_t)i < f->next) assert_false(is_named(f, i, "not embedded"));
                else if (!f->bad[i]) assert_true(is_named(f, i, "not embedded"));
            }
        }
    f->lose_at = 0;
}

static void test_devices(void **state) {
    static const struct { const char *list; int status; const char *says; } cases[] = {
        {"3", CLI_MACHINE, "there is no GPU number 3; 3 are there"}, {"0,0", CLI_USAGE, "named twice"}, {"", CLI_USAGE, "it takes 'all'"},
        {"0,", CLI_USAGE, "it takes 'all'"}, {"-1", CLI_USAGE, "it takes 'all'"}, {"0;1", CLI_USAGE, "it takes 'all'"}, {"any", CLI_USAGE, "it takes 'all'"}};
    fixture *f = (fixture *)*state;
    size_t i;
    for (i = 0; i < COUNT_OF(cases); i++) {
        expect(f, embed(f, 4, 2, cases[i].list), cases[i].status);
        assert_non_null(strstr(f->said, cases[i].says));
        assert_int_equal(f->rows, 0);
    }
}

/* ---- pictures of any size, of one colour each ---- */

#define ANY_SIZE_MODEL "tests/golden/qwen3_saved"
static void colour_name(int i, char *name) { sprintf(name, "c%02d.ppm", i); }
static uint32_t colour_of(size_t i) { return (uint32_t)(10 * i + 3); }

/* Merged rows are the sums of their patches' colours. */
static void play_any_size(const void *argument) {
    const mgv__kernel_arguments *a = (const mgv__kernel_arguments *)argument;
    const mgv__cuda *cuda;
    const mgv__config *c;
    uint32_t i, row, unit;
    for (i = 0; i < FAKE_ENGINES; i++) fake_engines[i] = i < now->session->device_count ? now->session->engines[i] : NULL;
    cuda = fake_find_cuda(a);
    assert_non_null(cuda);
    c = cuda->plan->config;
    unit = c->merge * c->merge;
    for (row = 0; row < a->place_rows / unit; row++) {
        float *to = a->outputs[0] + (size_t)a->unit_rows[row] * c->out_hidden;
        uint32_t sum = 0;
        for (i = 0; i < unit; i++) sum += a->pixels[a->tokens[row * unit + i].pixels];
        for (i = 0; i < c->out_hidden; i++) to[i] = (float)sum + (float)i / 64;
    }
    if (a->next_count) memset(a->aborted + a->next_counters, 0, a->next_count * sizeof *a->counters);
    *a->aborted = 0;
}
static int take_any_size(void *user, const char *name, const mgv_shape *shape, const float *rows) {
    fixture *f = (fixture *)user;
    char wanted[16];
    uint64_t i;
    colour_name((int)f->next, wanted);
    assert_string_equal(strrchr(name, '/') + 1, wanted);
    assert_true(shape->rows > 0);
    for (i = 0; i < shape->rows; i++) {
        assert_true(rows[i * shape->columns] == 4 * (float)colour_of(f->next));
        assert_true(rows[(i + 1) * shape->columns - 1] == 4 * (float)colour_of(f->next) + (float)(shape->columns - 1) / 64);
    }
    f->next++;
    f->rows += (size_t)shape->rows;
    return 0;
}

/* The engine is made when the first picture comes: more batches than it holds at once, each while the one before is under way. */
static void test_engines_as_pictures_come(void **state) {
    static const uint32_t batches[] = {1, 3, 64}, threads[] = {1, 3};
    fixture *f = (fixture *)*state;
    unsigned char *pixels = (unsigned char *)malloc(256 * 256 * 3);
    size_t b, t, d, rows = 0;
    int i;
    for (i = 0; i < PICTURES; i++) {
        const int width = 64 + 32 * (i % 4), height = 64 + 32 * (i % 3);
        char name[16], head[32];
        colour_name(i, name);
        sprintf(head, "P6 %d %d 255\n", width, height);
        memset(pixels, (int)colour_of((size_t)i), (size_t)width * (size_t)height * 3);
        write_file(f, name, head, strlen(head), pixels, (size_t)width * (size_t)height * 3);
        rows += (size_t)width * (size_t)height / (32 * 32);
    }
    free(pixels);
    for (b = 0; b < COUNT_OF(batches); b++)
        for (t = 0; t < COUNT_OF(threads); t++)
            for (d = (b + t) % 2; d < COUNT_OF(device_lists); d += 2) {
                cli_session_options options;
                mgv_output output;
                memset(&options, 0, sizeof options);
                memset(&output, 0, sizeof output);
                output.kind = MGV_OUTPUT_TOKENS;
                options.model = ANY_SIZE_MODEL;
                options.backend = MGV_BACKEND_CUDA;
                options.batch = batches[b];
                options.threads = threads[t];
                options.devices = device_lists[d];
                options.row_outputs = 1;
                options.output_kinds = 1u << MGV_OUTPUT_TOKENS;
                expect(f, encode(f, &options, colour_name, &output, take_any_size, play_any_size), 0);
                assert_int_equal(f->next, PICTURES);
                assert_int_equal(f->rows, rows);
                assert_true(fake.launches >= (PICTURES + batches[b] - 1) / batches[b]);
            }
    for (i = 0; i < PICTURES; i++) {
        char name[16], path[128];
        colour_name(i, name);
        path_of(f, name, path);
        assert_int_equal(unlink(path), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows_in_order), cmocka_unit_test(test_a_lost_card),
                                       cmocka_unit_test(test_devices),
                                       cmocka_unit_test(test_engines_as_pictures_come)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
