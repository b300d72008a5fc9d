/* megavit bench: how fast the model runs here. Pictures of the model's own size, random, in rotating buffers; the output is checked first.

   On a GPU two figures for each batch: the encode alone (pictures and result on the card, CUDA events around it) and what the host
   sees (pictures in host memory to vectors in host memory). On the CPU there is only the second. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "tools/cli.h"
#if defined(MEGAVIT_CUDA) && !defined(MEGAVIT_NO_CUDA)
#define BENCH_CUDA
#include <cuda_runtime_api.h>
#endif

enum { MAX_BATCHES = 16, BUFFERS = 4, MAX_RUNS = 2000, WARM_UP = 3, CHECKED = 4 };
static const double seconds_each = 1.0;   /* time spent on one figure, at least three runs */
static const double gpu_tolerance = 2e-2; /* relative L2 of a vector in bf16 against fp32 */

typedef struct figures {
    double median, p99; /* milliseconds of one encode */
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
    unsigned char *pixels;       /* behind them */
    float *rows;                 /* [batch, pooled_width] */
    uint32_t batch;
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
    figures f = {0, 0};
    qsort(times, count, sizeof *times, by_size);
    f.median = times[count / 2];
    f.p99 = times[(uint32_t)((double)(count - 1) * 0.99)];
    return f;
}

/* "1,8,64" */
static int read_batches(const cli_command *command, const char *text, uint32_t *batches, uint32_t *count) {
    for (*count = 0; *text; (*count)++) {
        char *end;
        unsigned long value = strtoul(text, &end, 10);
        if (end == text || value == 0 || value > 65536 || (*end && *end != ',') || *count == MAX_BATCHES)
            return cli_usage(command, "--batch takes up to %d numbers from 1 to 65536 with commas between, not '%s'", MAX_BATCHES, text);
        batches[*count] = (uint32_t)value;
        text = *end ? end + 1 : end;
    }
    return CLI_GO_ON;
}

static mgv_engine *make_engine(bench *b, mgv_backend backend, uint32_t batch, int *status) {
    mgv_engine *engine = NULL;
    mgv_engine_desc desc;
    mgv_error error;
    mgv_result result;
    memset(&desc, 0, sizeof desc);
    desc.backend = backend;
    desc.max_images = batch;
    if (b->threads) desc.parallel = mgv_threads_parallel_for(b->threads);
    result = mgv_engine_create(&engine, b->model, &desc, &error);
    if (result != MGV_OK) *status = cli_fail_library(NULL, result, &error);
    return engine;
}

static mgv_result encode(bench *b, mgv_engine *engine, const mgv_image *images, uint32_t count, float *rows, mgv_place place, void *stream,
                         mgv_error *error) {
    mgv_output output;
    mgv_encode_desc desc;
    memset(&output, 0, sizeof output);
    memset(&desc, 0, sizeof desc);
    output.kind = MGV_OUTPUT_POOLED;
    output.data = rows;
    output.capacity = (uint64_t)count * b->info.pooled_width;
    output.place = place;
    desc.images = images;
    desc.image_count = count;
    desc.outputs = &output;
    desc.output_count = 1;
    desc.stream = stream;
    return mgv_encode_blocking(engine, &desc, error);
}

/* No figure without a right answer: the first pictures against the CPU backend. */
static int check_output(bench *b) {
    uint32_t count = b->batch < CHECKED ? b->batch : CHECKED, width = b->info.pooled_width;
    float *expected = malloc((size_t)count * width * sizeof *expected);
    mgv_error error;
    mgv_engine *cpu;
    int status = CLI_DONE;
    mgv_result result = MGV_ERROR_NOMEM;
    if (!expected) return cli_fail(CLI_MACHINE, NULL, "out of memory");
    cpu = make_engine(b, MGV_BACKEND_CPU, count, &status);
    if (cpu) result = encode(b, cpu, b->images, count, expected, MGV_PLACE_HOST, NULL, &error);
    mgv_engine_destroy(cpu);
    if (cpu && result == MGV_OK) result = encode(b, b->engine, b->images, b->batch, b->rows, MGV_PLACE_HOST, NULL, &error);
    if (cpu && result != MGV_OK) status = cli_fail_library(NULL, result, &error);
    for (uint32_t i = 0; status == CLI_DONE && i < count; i++) {
        double difference = 0, norm = 0, tolerance = mgv_engine_backend(b->engine) == MGV_BACKEND_CUDA ? gpu_tolerance : 0;
        for (uint32_t k = 0; k < width; k++) {
            double e = expected[(size_t)i * width + k], d = (double)b->rows[(size_t)i * width + k] - e;
            difference += d * d;
            norm += e * e;
        }
        if (!(sqrt(difference / norm) <= tolerance))
            status = cli_fail(CLI_MACHINE, NULL,
                              "the output of picture %u is wrong: relative L2 %.2e against the CPU; no figures are shown", i, sqrt(difference / norm));
    }
    free(expected);
    return status;
}

static int time_host(bench *b, figures *f) {
    static double times[MAX_RUNS];
    double start = now_ms();
    uint32_t runs = 0;
    mgv_error error;
    for (uint32_t i = 0; runs < MAX_RUNS && (runs < 3 || now_ms() - start < seconds_each * 1e3); i++) {
        double before = now_ms();
        mgv_result result = encode(b, b->engine, b->images + (size_t)(i % BUFFERS) * b->batch, b->batch, b->rows, MGV_PLACE_HOST, NULL,
                                   &error);
        if (result != MGV_OK) return cli_fail_library(NULL, result, &error);
        if (i == WARM_UP && runs == WARM_UP) runs = 0; /* from here on it counts */
        times[runs++] = now_ms() - before;
    }
    *f = summary(times, runs);
    return CLI_DONE;
}

#ifdef BENCH_CUDA
typedef struct card {
    cudaStream_t stream;
    cudaEvent_t start, end;
    unsigned char *pixels;
    float *rows;
    mgv_image *images;
} card;

static int time_on_card(bench *b, card *c, figures *f) {
    static double times[MAX_RUNS];
    double begin = now_ms();
    uint32_t runs = 0;
    for (uint32_t i = 0; runs < MAX_RUNS && (runs < 3 || now_ms() - begin < seconds_each * 1e3); i++) {
        float milliseconds = 0;
        mgv_error error;
        mgv_result result;
        int good = cudaEventRecord(c->start, c->stream) == cudaSuccess;
        result = encode(b, b->engine, c->images + (size_t)(i % BUFFERS) * b->batch, b->batch, c->rows, MGV_PLACE_DEVICE, c->stream, &error);
        if (result != MGV_OK) return cli_fail_library(NULL, result, &error);
        good = good && cudaEventRecord(c->end, c->stream) == cudaSuccess && cudaEventSynchronize(c->end) == cudaSuccess;
        if (!good || cudaEventElapsedTime(&milliseconds, c->start, c->end) != cudaSuccess)
            return cli_fail(CLI_MACHINE, NULL, "a CUDA event failed");
        if (i == WARM_UP) runs = 0;
        times[runs++] = (double)milliseconds;
    }
    *f = summary(times, runs);
    return CLI_DONE;
}

static int bench_card(bench *b, figures *f) {
    size_t count = (size_t)BUFFERS * b->batch, bytes = (size_t)b->info.image_size * b->info.image_size * 3;
    card c;
    int status = CLI_MACHINE;
    memset(&c, 0, sizeof c);
    c.images = calloc(count, sizeof *c.images);
    if (c.images && cudaStreamCreate(&c.stream) == cudaSuccess && cudaEventCreate(&c.start) == cudaSuccess &&
        cudaEventCreate(&c.end) == cudaSuccess &&
        cudaMalloc((void **)&c.pixels, count * bytes) == cudaSuccess && cudaMalloc((void **)&c.rows,
                                                                                   (size_t)b->batch * b->info.pooled_width * sizeof(float)) == cudaSuccess &&
        cudaMemcpy(c.pixels, b->pixels, count * bytes, cudaMemcpyHostToDevice) == cudaSuccess) {
        for (size_t i = 0; i < count; i++) {
            c.images[i] = b->images[i];
            c.images[i].pixels = c.pixels + i * bytes;
            c.images[i].place = MGV_PLACE_DEVICE;
        }
        status = time_on_card(b, &c, f);
    } else {
        cli_fail(CLI_MACHINE, NULL, "no device memory for %zu pictures", count);
    }
    if (c.stream) cudaStreamDestroy(c.stream);
    if (c.start) cudaEventDestroy(c.start);
    if (c.end) cudaEventDestroy(c.end);
    if (c.pixels) cudaFree(c.pixels);
    if (c.rows) cudaFree(c.rows);
    free(c.images);
    return status;
}
#endif

static void show(bench *b, const char *what, figures f) {
    double images = (double)b->batch / f.median * 1e3;
    printf("%6u  %-28s %10.3f %10.3f %10.0f %8.1f\n", b->batch, what, f.median, f.p99, images, images * b->info.flops_per_image * 1e-12);
    fflush(stdout);
    if (!b->json_stream) return;
    fprintf(b->json_stream,
            "%s{\"batch\":%u,\"what\":\"%s\",\"median_ms\":%.6f,\"p99_ms\":%.6f,\"images_per_second\":%.3f,\"tflops\":%.4f}", b->first_line ? "" : ",\n", b->batch,
            what, f.median, f.p99, images, images * b->info.flops_per_image * 1e-12);
    b->first_line = 0;
}

static int bench_batch(bench *b) {
    size_t bytes = (size_t)b->info.image_size * b->info.image_size * 3, count = (size_t)BUFFERS * b->batch;
    uint32_t state = 1;
    figures f = {0, 0};
    int status = CLI_DONE;
    b->pixels = malloc(count * bytes);
    b->images = calloc(count, sizeof *b->images);
    b->rows = malloc((size_t)b->batch * b->info.pooled_width * sizeof *b->rows);
    if (!b->pixels || !b->images || !b->rows) return cli_fail(CLI_MACHINE, NULL, "out of memory for %zu pictures", count);
    for (size_t i = 0; i < count * bytes; i++) {
        state = state * 1664525u + 1013904223u;
        b->pixels[i] = (unsigned char)(state >> 24);
    }
    for (size_t i = 0; i < count; i++) {
        b->images[i].pixels = b->pixels + i * bytes;
        b->images[i].width = b->images[i].height = b->info.image_size;
    }
    b->engine = make_engine(b, b->options.backend, b->batch, &status);
    if (b->engine) status = check_output(b);
#ifdef BENCH_CUDA
    if (status == CLI_DONE && mgv_engine_backend(b->engine) == MGV_BACKEND_CUDA) {
        status = bench_card(b, &f);
        if (status == CLI_DONE) show(b, "encode on the card", f);
    }
#endif
    if (status == CLI_DONE) status = time_host(b, &f);
    if (status == CLI_DONE) show(b, mgv_engine_backend(b->engine) == MGV_BACKEND_CUDA ? "host pixels to host vectors" : "cpu", f);
    return status;
}

static void free_batch(bench *b) {
    mgv_engine_destroy(b->engine);
    b->engine = NULL;
    free(b->pixels);
    free(b->images);
    free(b->rows);
    b->pixels = NULL;
    b->images = NULL;
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
    result = mgv_model_open(&b->model, &desc, &error);
    if (result == MGV_OK) result = mgv_model_get_info(b->model, &b->info);
    if (result != MGV_OK) return cli_fail_library(b->options.model, result, &error);
    if (!b->info.image_size || !b->info.pooled_width)
        return cli_fail(CLI_BAD_FILE, b->options.model, "bench wants a model with a fixed picture size and a pooling head");
    if (threads > 1) result = mgv_threads_create(&b->threads, threads, NULL, &error);
    return result == MGV_OK ? CLI_DONE : cli_fail_library(NULL, result, &error);
}

static int run_batches(bench *b, const uint32_t *batches, uint32_t count) {
    cli_file *json = NULL;
    int status = open_model(b);
    if (status == CLI_DONE && b->json && !(json = cli_file_create(b->json))) status = CLI_MACHINE;
    if (status == CLI_DONE) {
        printf("%s, %.2f GFLOP an image\n%6s  %-28s %10s %10s %10s %8s\n", b->info.family_name, b->info.flops_per_image * 1e-9, "batch",
               "what", "median ms", "p99 ms",
               "images/s", "TFLOP/s");
        if (json) {
            b->json_stream = cli_file_stream(json);
            fputs("[\n", b->json_stream);
        }
        b->first_line = 1;
        for (uint32_t i = 0; i < count && status == CLI_DONE; i++) {
            b->batch = batches[i];
            status = bench_batch(b);
            free_batch(b);
        }
        if (json) fputs("\n]\n", b->json_stream);
    }
    if (json && status == CLI_DONE) status = cli_file_commit(json);
    else cli_file_abandon(json);
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
            {"--batch", CLI_TEXT, &b.batches, "LIST", "numbers of pictures in one encode, such as 1,8,64,592 (1,8)"},
            {"--json", CLI_TEXT, &b.json, "FILE", "the same figures as JSON"},
            {NULL, CLI_FLAG, NULL, NULL, NULL}};
        status = cli_parse(command, options, NULL, argc, argv);
    }
    if (status != CLI_GO_ON) return status;
    if (!b.options.model) return cli_usage(command, "--model is missing");
    status = read_batches(command, b.batches, batches, &count);
    if (status != CLI_GO_ON) return status;
    return run_batches(&b, batches, count);
}

const cli_command cli_bench = {"bench", "--model DIR [--batch LIST] [--backend auto|cpu|cuda] [--threads N] [--json FILE]", "how fast the model runs here",
                               "Random pictures of the model's size in rotating buffers; the output is checked against the CPU first.\n", run};
