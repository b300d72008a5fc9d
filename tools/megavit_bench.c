/* megavit bench: how fast the model runs here. Pictures of the model's own size, random, in rotating buffers; the output is checked first.
   The output is the pooled vector, of models without a pooling head the tokens.

   On a GPU three figures for each batch: the encode alone (pictures and result on the card, CUDA events around it), what a caller waits who
   has the pictures on the card and wants vectors in host memory, and host memory to host memory. On the CPU there is only the last.
   Energy is the whole card's while the encodes follow each other, the host's time between them included. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "tools/cli.h"
#if defined(MEGAVIT_CUDA) && !defined(MEGAVIT_NO_CUDA)
#define BENCH_CUDA
#endif

enum { MAX_BATCHES = 16, BUFFERS = 4, MAX_RUNS = 20000, WARM_UP = 3, CHECKED = 4 };
static const double seconds_each = 1.0;   /* time spent on one figure, at least three runs */
static const double gpu_tolerance = 2e-2; /* relative L2 of a vector in bf16 against fp32 */

typedef struct figures {
    double median, p99; /* milliseconds of one encode */
    double joules;      /* of one encode; negative: not measured */
} figures;

typedef struct bench {
    cli_session_options options;
    const char *batches;
    const char *json;
    mgv_model *model;
    mgv_model_info info;
    mgv_threads *threads;
    mgv_engine *engine;
    mgv_image *images;           /* [BUFFERS * batch] */
    mgv_image *card_images;      /* the same on the card */
    unsigned char *pixels;       /* behind them */
    mgv_output_kind output;      /* pooled; of models without a pooling head the tokens */
    size_t output_floats;        /* of one picture */
    float *rows;                 /* [batch, output_floats] */
    uint32_t batch;
    cli_card *card;              /* NULL: none is used */
    FILE *json_stream;
    int first_line;
} bench;

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static figures summary(double *times, uint32_t count) {
    figures f = {0, 0, -1};
    qsort(times, count, sizeof *times, by_size);
    f.median = times[count / 2];
    f.p99 = times[(uint32_t)((double)(count - 1) * 0.99)];
    return f;
}

/* "1,8,64" */
static int read_batches(const cli_command *command, const char *text, uint32_t *batches, uint32_t *count) {
    const char *at = text;
    uint64_t value;
    for (*count = 0; *count < MAX_BATCHES && cli_read_number(&at, 65536, &value) && (!*at || *at == ','); at++) {
        batches[(*count)++] = (uint32_t)value;
        if (!*at) return CLI_GO_ON;
    }
    return cli_usage(command, "--batch takes up to %d numbers from 1 to 65536 with commas between, not '%s'", MAX_BATCHES, text);
}

static mgv_engine *make_engine(bench *b, mgv_backend backend, mgv_precision precision, uint32_t batch, int *status) {
    mgv_engine *engine = NULL;
    mgv_engine_desc desc;
    cli_fallback fallback;
    mgv_error error;
    mgv_result result;
    memset(&desc, 0, sizeof desc);
    desc.backend = backend;
    cli_watch_fallback(&fallback, &desc.logger);
    desc.packed_path = b->options.packed;
    desc.resize = b->options.resize;
    desc.precision = precision;
    desc.max_images = batch;
    desc.max_row_outputs = b->output != MGV_OUTPUT_POOLED;
    if (b->threads) desc.parallel = mgv_threads_parallel_for(b->threads);
    result = mgv_engine_create(&engine, b->model, &desc, &error);
    cli_say_fallback(&fallback);
    if (result != MGV_OK) *status = cli_fail_library(NULL, result, &error);
    return engine;
}

static mgv_result encode(bench *b, mgv_engine *engine, const mgv_image *images, uint32_t count, float *rows, mgv_place place, void *stream,
                         mgv_error *error) {
    mgv_output output;
    mgv_encode_desc desc;
    memset(&output, 0, sizeof output);
    memset(&desc, 0, sizeof desc);
    output.kind = b->output;
    output.data = rows;
    output.capacity = (uint64_t)count * b->output_floats;
    output.place = place;
    desc.images = images;
    desc.image_count = count;
    desc.outputs = &output;
    desc.output_count = 1;
    desc.stream = stream;
    return mgv_encode_blocking(engine, &desc, error);
}

/* Rows of the first pictures by the CPU backend. NULL after a report. */
static float *rows_on_cpu(bench *b, mgv_precision precision, uint32_t count, int *status) {
    float *rows = malloc(count * b->output_floats * sizeof *rows);
    mgv_error error;
    mgv_result result;
    mgv_engine *cpu;
    if (!rows) {
        *status = cli_fail(CLI_MACHINE, NULL, "out of memory");
        return NULL;
    }
    cpu = make_engine(b, MGV_BACKEND_CPU, precision, count, status);
    result = cpu ? encode(b, cpu, b->images, count, rows, MGV_PLACE_HOST, NULL, &error) : MGV_OK;
    mgv_engine_destroy(cpu);
    if (result != MGV_OK) *status = cli_fail_library(NULL, result, &error);
    if (*status == CLI_DONE) return rows;
    free(rows);
    return NULL;
}

/* Relative L2 of the engine's row of a picture. */
static double off(const bench *b, const float *expected, uint32_t picture) {
    double difference = 0, norm = 0;
    for (size_t k = picture * b->output_floats; k < (picture + 1) * b->output_floats; k++) {
        const double e = expected[k], d = (double)b->rows[k] - e;
        difference += d * d;
        norm += e * e;
    }
    return sqrt(difference / norm);
}

/* No figure without a right answer: the first pictures against the CPU backend, which rounds alike. What a precision costs is said, too. */
static int check_output(bench *b) {
    const uint32_t count = b->batch < CHECKED ? b->batch : CHECKED;
    const double tolerance = mgv_engine_backend(b->engine) == MGV_BACKEND_CUDA ? gpu_tolerance : 0;
    const int is_auto = mgv_engine_backend(b->engine) == MGV_BACKEND_CUDA && b->options.precision == MGV_PRECISION_FAST;
    const mgv_precision precision = is_auto ? MGV_PRECISION_AUTO : b->options.precision;
    int status = CLI_DONE;
    double most = 0;
    mgv_error error;
    float *expected = rows_on_cpu(b, precision, count, &status), *exact = NULL;
    if (expected && encode(b, b->engine, b->images, b->batch, b->rows, MGV_PLACE_HOST, NULL, &error) != MGV_OK)
        status = cli_fail_library(NULL, error.code, &error);
    for (uint32_t i = 0; status == CLI_DONE && i < count; i++)
        if (!(off(b, expected, i) <= tolerance))
            status = cli_fail(CLI_MACHINE, NULL, "the output of picture %u is wrong: relative L2 %.2e against the CPU; no figures are shown",
                              i, off(b, expected, i));
    if (status == CLI_DONE && precision != MGV_PRECISION_AUTO) exact = rows_on_cpu(b, MGV_PRECISION_AUTO, count, &status);
    for (uint32_t i = 0; exact && i < count; i++) most = fmax(most, off(b, exact, i));
    if (exact) printf("%6u  in %s the worst row is %.1e from the CPU's in float32\n", b->batch, mgv_precision_name(precision), most);
    free(expected);
    free(exact);
    return status;
}

/* One encode of the i-th buffer and how long it took, in milliseconds. */
typedef int timed_run(bench *b, uint32_t i, double *milliseconds);

static int encode_and_look_at_the_clock(bench *b, const mgv_image *images, double *milliseconds) {
    double before = now_ms();
    mgv_error error;
    mgv_result result = encode(b, b->engine, images, b->batch, b->rows, MGV_PLACE_HOST, NULL, &error);
    *milliseconds = now_ms() - before;
    return result == MGV_OK ? CLI_DONE : cli_fail_library(NULL, result, &error);
}
static int run_host_to_host(bench *b, uint32_t i, double *milliseconds) {
    return encode_and_look_at_the_clock(b, b->images + (size_t)(i % BUFFERS) * b->batch, milliseconds);
}

#ifdef BENCH_CUDA
static int run_card_to_host(bench *b, uint32_t i, double *milliseconds) {
    return encode_and_look_at_the_clock(b, b->card_images + (size_t)(i % BUFFERS) * b->batch, milliseconds);
}
static int run_on_card(bench *b, uint32_t i, double *milliseconds) {
    mgv_error error;
    mgv_result result;
    int good = cli_card_begin(b->card);
    result = encode(b, b->engine, b->card_images + (size_t)(i % BUFFERS) * b->batch, b->batch, cli_card_rows(b->card), MGV_PLACE_DEVICE,
                    cli_card_stream(b->card), &error);
    if (result != MGV_OK) return cli_fail_library(NULL, result, &error);
    return good && cli_card_end(b->card, milliseconds) ? CLI_DONE : cli_fail(CLI_MACHINE, NULL, "a CUDA event failed");
}
#endif

/* Joules so far; negative: nobody counts them. */
static double joules(const bench *b) {
#ifdef BENCH_CUDA
    if (b->card) return cli_card_joules(b->card);
#endif
    (void)b;
    return -1;
}
static double peak_flops(const bench *b) {
#ifdef BENCH_CUDA
    if (b->card) return cli_card_peak_flops(b->card);
#endif
    (void)b;
    return 0;
}

static void show(bench *b, const char *what, figures f) {
    const double images = (double)b->batch / f.median * 1e3, flops = images * b->info.flops_per_image;
    char share[16] = "-", energy[16] = "-";
    if (peak_flops(b) > 0) snprintf(share, sizeof share, "%.1f%%", 100 * flops / peak_flops(b));
    if (f.joules >= 0) snprintf(energy, sizeof energy, "%.1f", f.joules / b->batch * 1e3);
    printf("%6u  %-28s %10.3f %10.3f %10.0f %8.1f %7s %8s\n", b->batch, what, f.median, f.p99, images, flops * 1e-12, share, energy);
    if (fflush(stdout) != 0) cli_fail_output();
    if (!b->json_stream) return;
    fprintf(b->json_stream, "%s{\"batch\":%u,\"what\":\"%s\",\"median_ms\":%.6f,\"p99_ms\":%.6f,\"images_per_second\":%.3f,\"tflops\":%.4f",
            b->first_line ? "" : ",\n", b->batch, what, f.median, f.p99, images, flops * 1e-12);
    if (peak_flops(b) > 0) fprintf(b->json_stream, ",\"share_of_peak\":%.5f", flops / peak_flops(b));
    if (f.joules >= 0) fprintf(b->json_stream, ",\"joules_per_image\":%.6f", f.joules / b->batch);
    fputc('}', b->json_stream);
    b->first_line = 0;
}

/* Warms up, then runs for a second, at least three times, and shows what it took. */
static int measure(bench *b, timed_run *run, const char *what) {
    static double times[MAX_RUNS];
    double start = 0, before = -1, after;
    uint32_t runs = 0;
    figures f;
    for (uint32_t i = 0; runs < MAX_RUNS && (runs < 3 || now_ms() - start < seconds_each * 1e3); i++) {
        int status;
        if (i == WARM_UP) {
            start = now_ms();
            before = joules(b);
        }
        status = run(b, i, &times[runs]);
        if (status != CLI_DONE) return status;
        if (i >= WARM_UP) runs++;
    }
    after = joules(b);
    f = summary(times, runs);
    if (before >= 0 && after > before) f.joules = (after - before) / runs;
    show(b, what, f);
    return CLI_DONE;
}

#ifdef BENCH_CUDA
static int bench_card(bench *b) {
    size_t count = (size_t)BUFFERS * b->batch, bytes = (size_t)b->info.image_size * b->info.image_size * 3;
    int status;
    b->card_images = calloc(count, sizeof *b->card_images);
    if (!b->card_images) return cli_fail(CLI_MACHINE, NULL, "out of memory for %zu pictures", count);
    if (!cli_card_reserve(b->card, b->pixels, count * bytes, b->batch * b->output_floats * sizeof(float)))
        return cli_fail(CLI_MACHINE, NULL, "no device memory for %zu pictures", count);
    for (size_t i = 0; i < count; i++) {
        b->card_images[i] = b->images[i];
        b->card_images[i].pixels = cli_card_pixels(b->card) + i * bytes;
        b->card_images[i].place = MGV_PLACE_DEVICE;
    }
    status = measure(b, run_on_card, "encode on the card");
    return status == CLI_DONE ? measure(b, run_card_to_host, "card pixels to host vectors") : status;
}
#endif

static int make_pictures(bench *b) {
    size_t bytes = (size_t)b->info.image_size * b->info.image_size * 3, count = (size_t)BUFFERS * b->batch;
    uint32_t state = 1;
    b->pixels = malloc(count * bytes);
    b->images = calloc(count, sizeof *b->images);
    b->rows = malloc(b->batch * b->output_floats * sizeof *b->rows);
    if (!b->pixels || !b->images || !b->rows) return cli_fail(CLI_MACHINE, NULL, "out of memory for %zu pictures", count);
    for (size_t i = 0; i < count * bytes; i++) {
        state = state * 1664525u + 1013904223u;
        b->pixels[i] = (unsigned char)(state >> 24);
    }
    for (size_t i = 0; i < count; i++) {
        b->images[i].pixels = b->pixels + i * bytes;
        b->images[i].width = b->images[i].height = b->info.image_size;
    }
    return CLI_DONE;
}

static int bench_batch(bench *b) {
    int status = make_pictures(b), on_gpu;
    if (status != CLI_DONE) return status;
    b->engine = make_engine(b, b->options.backend, b->options.precision, b->batch, &status);
    if (!b->engine) return status;
    on_gpu = mgv_engine_backend(b->engine) == MGV_BACKEND_CUDA;
    status = check_output(b);
#ifdef BENCH_CUDA
    if (status == CLI_DONE && on_gpu && !b->card && !(b->card = cli_card_open()))
        status = cli_fail(CLI_MACHINE, NULL, "the GPU gives no stream");
    if (status == CLI_DONE && on_gpu) status = bench_card(b);
#endif
    return status == CLI_DONE ? measure(b, run_host_to_host, on_gpu ? "host pixels to host vectors" : "cpu") : status;
}

static void free_batch(bench *b) {
    mgv_engine_destroy(b->engine);
    b->engine = NULL;
#ifdef BENCH_CUDA
    if (b->card) cli_card_release(b->card);
#endif
    free(b->pixels);
    free(b->images);
    free(b->card_images);
    free(b->rows);
    b->pixels = NULL;
    b->images = NULL;
    b->card_images = NULL;
    b->rows = NULL;
}

static int open_model(bench *b) {
    mgv_model_desc desc;
    mgv_error error;
    mgv_result result;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t threads = b->options.threads ? b->options.threads : cores > 0 ? (uint32_t)cores : 1;
    memset(&desc, 0, sizeof desc);
    desc.path = b->options.model;
    desc.logger = cli_logger();
    result = mgv_model_open(&b->model, &desc, &error);
    if (result == MGV_OK) result = mgv_model_get_info(b->model, &b->info);
    if (result != MGV_OK) return cli_fail_library(b->options.model, result, &error);
    if (cli_check_work(b->options.model, &b->info)) return CLI_BAD_FILE;
    if (!b->info.image_size) return cli_fail(CLI_BAD_FILE, b->options.model, "bench wants a model with a fixed picture size");
    b->output = b->info.pooled_width ? MGV_OUTPUT_POOLED : MGV_OUTPUT_TOKENS;
    b->output_floats = b->info.pooled_width ? b->info.pooled_width : (size_t)b->info.tokens_per_image * b->info.token_width;
    if (threads > 1) result = mgv_threads_create(&b->threads, threads, NULL, &error);
    return result == MGV_OK ? CLI_DONE : cli_fail_library(NULL, result, &error);
}

static void print_head(bench *b) {
    printf("%s, %.2f GFLOP an image%s\n%6s  %-28s %10s %10s %10s %8s %7s %8s\n", b->info.family_name, b->info.flops_per_image * 1e-9,
           b->output == MGV_OUTPUT_POOLED ? "" : ", its tokens", "batch", "what", "median ms", "p99 ms", "images/s", "TFLOP/s", "of peak",
           "mJ/image");
    if (b->json_stream) fprintf(b->json_stream, "{\"flops_per_image\":%.0f,\"output\":\"%s\",\"figures\":[\n", b->info.flops_per_image,
                                 b->output == MGV_OUTPUT_POOLED ? "pooled" : "tokens");
}

/* The card and what its peak is, where one was used. */
static void print_foot(bench *b) {
#ifdef BENCH_CUDA
    char name[256];
    if (b->card) {
        cli_card_name(b->card, name, sizeof name);
        printf("%s; peak %.1f TFLOP/s (dense bf16)\n", name, peak_flops(b) * 1e-12);
    }
#endif
    if (!b->json_stream) return;
    fputs("\n]", b->json_stream);
#ifdef BENCH_CUDA
    if (b->card) {
        fputs(",\"card\":", b->json_stream);
        cli_json_string(b->json_stream, name);
        fprintf(b->json_stream, ",\"peak_tflops\":%.1f", peak_flops(b) * 1e-12);
    }
#endif
    fputs("}\n", b->json_stream);
}

static int run_batches(bench *b, const uint32_t *batches, uint32_t count) {
    cli_file *json = NULL;
    int status = open_model(b);
    if (status == CLI_DONE && b->json && !(json = cli_file_create(b->json))) status = CLI_BAD_FILE;
    if (status == CLI_DONE) {
        b->json_stream = json ? cli_file_stream(json) : NULL;
        b->first_line = 1;
        print_head(b);
        for (uint32_t i = 0; i < count && status == CLI_DONE; i++) {
            b->batch = batches[i];
            status = bench_batch(b);
            free_batch(b);
        }
        print_foot(b);
    }
    if (json && status == CLI_DONE) status = cli_file_commit(json);
    else cli_file_abandon(json);
#ifdef BENCH_CUDA
    cli_card_close(b->card);
#endif
    mgv_threads_destroy(b->threads);
    mgv_model_close(b->model);
    return status;
}

static int run(const cli_command *command, int argc, char **argv) {
    bench b;
    uint32_t batches[MAX_BATCHES], count;
    int status;
    memset(&b, 0, sizeof b);
    b.batches = "1,8";
    {
        const cli_option options[] = {
            CLI_SESSION_OPTIONS(b.options),
            CLI_PRECISION_OPTION(b.options.precision),
            {"--batch", CLI_TEXT, &b.batches, "LIST", "numbers of pictures in one encode, such as 1,8,64,592 (1,8)"},
            {"--json", CLI_TEXT, &b.json, "FILE", "the same figures as JSON"},
            {NULL, CLI_FLAG, NULL, NULL, NULL}};
        status = cli_parse(command, options, NULL, argc, argv);
    }
    if (status != CLI_GO_ON) return status;
    if (!b.options.model) return cli_usage(command, "--model is missing");
    status = read_batches(command, b.batches, batches, &count);
    if (status != CLI_GO_ON) return status;
    status = cli_check_backend(b.options.backend);
    if (status == CLI_DONE) status = cli_check_output(b.json, b.options.model, b.options.packed, NULL);
    return status == CLI_DONE ? run_batches(&b, batches, count) : status;
}

const cli_command cli_bench = {
    "bench", "--model DIR [--batch LIST] [--backend auto|cpu|cuda] [--threads N] [--json FILE]", "how fast the model runs here",
    "Random pictures of the model's size in rotating buffers; the output, pooled vectors or, of a model without a pooling head, tokens,\n"
    "is checked against the CPU first, and with --precision its distance from float32 is told. On a GPU: the encode alone by CUDA\n"
    "events, then what a caller waits for. TFLOP/s on the model's nominal FLOPs; the share is of the card's dense bf16 peak; energy is\n"
    "the whole card's, from NVML, while encodes follow each other.\n",
    run};
