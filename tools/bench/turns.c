/* Times several builds of the kernels in one process on one card, with nothing but the CUDA runtime: versions.py without PyTorch.
   usage: turns [--engines N] [--rounds N] [--launches N] [--ladder] MODEL B[,B...] NAME=LIBRARY:FATBIN...

       make build/gpu/turns build/gpu/libharness.so kernels
       python3 tools/bench/make_model.py build/tower
       build/gpu/turns build/tower 1,8,64 old=old/build/gpu/libharness.so:old/build/megavit.fatbin \
           new=build/gpu/libharness.so:build/megavit.fatbin

   MODEL: a directory, of a model of 224 pixels with a pooling head, such as make_model.py writes. LIBRARY: tests/gpu/harness.c with the
   megavit.h that FATBIN was built with. A build that stands there under two names tells the noise.

   Each build has several engines, since where an engine's memory lies is worth 0.2% at one image and 1.3% at two, and was worth up to 3%
   before (kernels/NOTES.md, statistics of rows). All take turns in random order, so that the card's rate, which moves by 10% in a call, is
   shared out evenly. A turn is the median of a few back-to-back launches, a round one turn of each engine. The percentage is the median
   over rounds of a build's mean beside the first build's in the same round, with the standard error of the rounds' mean. --ladder: then
   also what each operation adds, by the first engine of each build: its list cut off behind it. Fails when a launch does, when pooled rows
   are far from those of the first build's first engine, and when a build's engines differ in a bit among themselves or from before the
   turns to after them. */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 224, INPUTS = 4, BUFFERS = 12, POOLED = 9 /* MGV__DEVICE_* in megavit.h */ };
static const double tolerance = 1e-2; /* relative L2 of the pooled rows of two builds */

typedef struct build {
    const char *name, *fatbin;
    /* harness_* of its library */
    void *(*open)(const char *model, const char *fatbin, uint32_t max_images, uint32_t group_images, uint32_t lanes, uint32_t max_clusters,
                  uint32_t poll_limit, uint32_t regime, char *message);
    void (*close)(void *harness);
    int (*encode)(void *harness, uint32_t images, const void *device_pixels, void *stream, char *message);
    int (*wait)(void *harness, char *message);
    void (*limit)(void *harness, uint32_t limit);
    uint32_t (*ops)(void *harness);
    const char *(*label)(void *harness, uint32_t op);
    uint32_t (*regime)(void *harness);
    uint32_t (*clusters)(void *harness);
    void *(*buffer)(void *harness, uint32_t buffer);
    uint64_t (*buffer_bytes)(void *harness, uint32_t buffer);
    uint32_t (*buffer_pitch)(void *harness, uint32_t buffer);
} build;

typedef struct engine {
    const build *build;
    void *harness;
    double *times; /* microseconds of each round's turn */
    double error;  /* the largest relative L2 difference from the expected rows, NaN if rows ever had one */
    int same;      /* bit for bit the first build's rows, whenever looked at */
    int repeats;   /* bit for bit its own build's */
} engine;

typedef struct bench {
    const char *model;
    build *builds;
    uint32_t build_count, engines /* a build */, rounds, launches;
    int ladder;
    cudaEvent_t *before, *after; /* of each launch of a turn */
    /* of one batch size */
    uint32_t images, engine_count;
    uint8_t *pixels[INPUTS];     /* on the device */
    engine *all;                 /* of all builds; all[b] is the first engine of build b */
    float **expected;            /* pooled rows of each build's first engine */
    size_t pooled_bytes;
    uint32_t random_state;
} bench;

static void need(int good, const char *who, const char *what) {
    if (good) return;
    fflush(stdout);
    fprintf(stderr, "turns: %s: %s\n", who, what);
    exit(1);
}
static void must(cudaError_t code, const char *what) { need(code == cudaSuccess, what, cudaGetErrorString(code)); }
static void *allocate(size_t count, size_t bytes) {
    void *memory = calloc(count, bytes);
    need(memory != NULL, "calloc", "out of memory");
    return memory;
}

static uint32_t random_bits(uint32_t *state) { /* xorshift32 */
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* ---- statistics ---- */

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double median(const double *values, uint32_t count) {
    double *sorted = allocate(count, sizeof *sorted), middle;
    memcpy(sorted, values, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, by_size);
    middle = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
    free(sorted);
    return middle;
}
static double standard_error(const double *values, uint32_t count) {
    double mean = 0, squares = 0;
    uint32_t i;
    for (i = 0; i < count; i++) mean += values[i] / count;
    for (i = 0; i < count; i++) squares += (values[i] - mean) * (values[i] - mean);
    return count > 1 ? sqrt(squares / (count - 1) / count) : 0;
}
static double relative(const float *got, const float *want, size_t count) {
    double difference = 0, length = 0;
    size_t i;
    for (i = 0; i < count; i++) {
        difference += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        length += (double)want[i] * want[i];
    }
    return sqrt(difference / length);
}

/* The larger one; NaN if one of them is. */
static double worse(double a, double b) { return a <= b || isnan(b) ? b : a; }

/* ---- builds ---- */

/* A function of a library into a pointer to one, which ISO C has no cast for. */
static void find(void *library, const char *name, void *function) {
    void *symbol = dlsym(library, name);
    need(symbol != NULL, name, "not in the library");
    memcpy(function, &symbol, sizeof symbol);
}

/* NAME=LIBRARY:FATBIN, which is cut up where it lies. */
static void load(build *b, char *text) {
    char *library = strchr(text, '='), *fatbin = library ? strchr(library, ':') : NULL;
    void *handle;
    need(fatbin != NULL, text, "not NAME=LIBRARY:FATBIN");
    *library++ = *fatbin++ = 0;
    b->name = text;
    b->fatbin = fatbin;
    handle = dlopen(library, RTLD_NOW | RTLD_LOCAL); /* local: every library has functions of these names */
    need(handle != NULL, library, handle ? "" : dlerror());
    find(handle, "harness_open", &b->open);
    find(handle, "harness_close", &b->close);
    find(handle, "harness_encode", &b->encode);
    find(handle, "harness_wait", &b->wait);
    find(handle, "harness_limit", &b->limit);
    find(handle, "harness_ops", &b->ops);
    find(handle, "harness_label", &b->label);
    find(handle, "harness_regime", &b->regime);
    find(handle, "harness_clusters", &b->clusters);
    find(handle, "harness_buffer", &b->buffer);
    find(handle, "harness_buffer_bytes", &b->buffer_bytes);
    find(handle, "harness_buffer_pitch", &b->buffer_pitch);
}

/* ---- engines ---- */

static void open_engine(const bench *b, engine *e, const build *from) {
    char message[1024] = "";
    e->build = from;
    e->times = allocate(b->rounds, sizeof *e->times);
    e->same = e->repeats = 1;
    e->harness = from->open(b->model, from->fatbin, b->images, 0, 0, 0, 0, 0, message);
    need(e->harness != NULL, from->name, message);
}
static void close_engine(engine *e) {
    e->build->close(e->harness);
    free(e->times);
}

static void launch(const bench *b, engine *e, uint32_t input) {
    char message[1024] = "";
    need(e->build->encode(e->harness, b->images, b->pixels[input], NULL, message) == 0, e->build->name, message);
}
static void wait(engine *e) {
    char message[1024] = "";
    need(e->build->wait(e->harness, message) == 0, e->build->name, message);
}

/* The pooled rows of the first input, by an engine whose buffers were full of NaN. */
static void encode(const bench *b, engine *e, float *rows) {
    uint32_t i;
    for (i = 0; i < BUFFERS; i++) /* every byte 255 is a NaN in bf16 and in float32 */
        must(cudaMemset(e->build->buffer(e->harness, i), 255, e->build->buffer_bytes(e->harness, i)), "filling buffers with NaN");
    launch(b, e, 0);
    wait(e);
    must(cudaMemcpy(rows, e->build->buffer(e->harness, POOLED), b->pooled_bytes, cudaMemcpyDeviceToHost), "fetching the pooled rows");
}

static void compare(const bench *b, engine *e) {
    float *rows = allocate(1, b->pooled_bytes);
    encode(b, e, rows);
    e->error = worse(e->error, relative(rows, b->expected[0], b->pooled_bytes / sizeof *rows));
    if (memcmp(rows, b->expected[0], b->pooled_bytes) != 0) e->same = 0;
    if (memcmp(rows, b->expected[e->build - b->builds], b->pooled_bytes) != 0) e->repeats = 0;
    free(rows);
}

/* Median microseconds of back-to-back launches. */
static double turn(const bench *b, engine *e) {
    double *times = allocate(b->launches, sizeof *times), middle;
    uint32_t i;
    for (i = 0; i < b->launches; i++) {
        must(cudaEventRecord(b->before[i], NULL), "recording an event");
        launch(b, e, i % INPUTS);
        must(cudaEventRecord(b->after[i], NULL), "recording an event");
    }
    must(cudaEventSynchronize(b->after[b->launches - 1]), "waiting for a turn");
    wait(e);
    for (i = 0; i < b->launches; i++) {
        float milliseconds;
        must(cudaEventElapsedTime(&milliseconds, b->before[i], b->after[i]), "reading events");
        times[i] = milliseconds * 1e3;
    }
    middle = median(times, b->launches);
    free(times);
    return middle;
}

/* ---- one batch size ---- */

static void make_pixels(bench *b) {
    const size_t bytes = (size_t)b->images * SIDE * SIDE * 3;
    uint8_t *host = allocate(1, bytes);
    size_t i;
    int input;
    for (input = 0; input < INPUTS; input++) {
        for (i = 0; i < bytes; i++) host[i] = (uint8_t)(random_bits(&b->random_state) >> 24);
        must(cudaMalloc((void **)&b->pixels[input], bytes), "memory for pixels");
        must(cudaMemcpy(b->pixels[input], host, bytes, cudaMemcpyHostToDevice), "sending pixels");
    }
    free(host);
}

/* Every second time around the builds come in the other order, so that none has its memory always before another's. */
static void open_engines(bench *b) {
    uint32_t i, k;
    b->engine_count = b->engines * b->build_count;
    b->all = allocate(b->engine_count, sizeof *b->all);
    for (i = 0; i < b->engines; i++)
        for (k = 0; k < b->build_count; k++)
            open_engine(b, &b->all[i * b->build_count + k], &b->builds[i % 2 ? b->build_count - 1 - k : k]);
}

/* What the engines must give. */
static void expect(bench *b) {
    const engine *first = &b->all[0];
    uint32_t i;
    b->pooled_bytes = (size_t)b->images * first->build->buffer_pitch(first->harness, POOLED) * sizeof(float);
    for (i = 0; i < b->engine_count; i++)
        need(b->all[i].build->buffer_bytes(b->all[i].harness, POOLED) >= b->pooled_bytes, b->all[i].build->name, "too few pooled rows");
    b->expected = allocate(b->build_count, sizeof *b->expected);
    for (i = 0; i < b->build_count; i++) {
        b->expected[i] = allocate(1, b->pooled_bytes);
        encode(b, &b->all[i], b->expected[i]);
    }
}
static void compare_all(bench *b) {
    uint32_t i;
    for (i = 0; i < b->engine_count; i++) compare(b, &b->all[i]);
}

/* The first round warms up and is not counted. */
static void take_turns(bench *b) {
    engine **order = allocate(b->engine_count, sizeof(engine *));
    uint32_t round, i;
    for (i = 0; i < b->engine_count; i++) order[i] = &b->all[i];
    for (round = 0; round <= b->rounds; round++) {
        for (i = b->engine_count - 1; i > 0; i--) { /* shuffled, by Fisher and Yates */
            const uint32_t other = random_bits(&b->random_state) % (i + 1);
            engine *const swapped = order[i];
            order[i] = order[other];
            order[other] = swapped;
        }
        for (i = 0; i < b->engine_count; i++) {
            const double microseconds = turn(b, order[i]);
            if (round > 0) order[i]->times[round - 1] = microseconds;
        }
    }
    free(order);
}

/* Mean of a build's turns in a round. */
static double round_mean(const bench *b, const build *of, uint32_t round) {
    double sum = 0;
    uint32_t i;
    for (i = 0; i < b->engine_count; i++)
        if (b->all[i].build == of) sum += b->all[i].times[round];
    return sum / b->engines;
}

/* Prints a build's line. Whether its rows are right. */
static int report(const bench *b, uint32_t number) {
    const build *of = &b->builds[number];
    const engine *first = &b->all[number];
    double *percent = allocate(b->rounds, sizeof *percent), error = 0;
    int same = 1, repeats = 1;
    uint32_t i;
    for (i = 0; i < b->rounds; i++) percent[i] = 100 * (round_mean(b, of, i) / round_mean(b, &b->builds[0], i) - 1);
    printf("B=%4u %-16s %-10s %3u clusters ", b->images, of->name, of->regime(first->harness) ? "latency" : "throughput",
           of->clusters(first->harness));
    for (i = 0; i < b->engine_count; i++) {
        const engine *e = &b->all[i];
        if (e->build != of) continue;
        printf(" %9.2f", median(e->times, b->rounds));
        same = same && e->same;
        repeats = repeats && e->repeats;
        error = worse(error, e->error);
    }
    printf(" us  %+6.2f%% +-%.2f  ", median(percent, b->rounds), standard_error(percent, b->rounds));
    if (same) printf("the same bits%s", error <= tolerance ? "" : "  WRONG: NaN");
    else printf("other bits, relative difference %.2e%s", error, error <= tolerance ? "" : "  WRONG");
    puts(repeats ? "" : "  WRONG: its bits move");
    fflush(stdout);
    free(percent);
    return error <= tolerance && repeats; /* NaN is not */
}

/* What one operation more costs when nothing else runs. Behind few operations the host may be slower than the card, and is timed too. */
static void climb(const bench *b, engine *e) {
    const uint32_t count = e->build->ops(e->harness);
    double last = 0;
    uint32_t op;
    for (op = 0; op < count; op++) {
        double microseconds;
        e->build->limit(e->harness, op + 1);
        launch(b, e, 0); /* sends the list */
        wait(e);
        microseconds = turn(b, e);
        printf("  B=%4u %-16s up to %3u %-14s %9.2f us, %+8.2f\n", b->images, e->build->name, op, e->build->label(e->harness, op),
               microseconds, microseconds - last);
        last = microseconds;
    }
    e->build->limit(e->harness, 0);
    fflush(stdout);
}

/* Whether all builds are right. */
static int run_batch(bench *b, uint32_t images) {
    int right = 1;
    uint32_t i;
    b->images = images;
    make_pixels(b);
    open_engines(b);
    expect(b);
    compare_all(b);
    take_turns(b);
    compare_all(b); /* after many launches, too */
    for (i = 0; i < b->build_count; i++) right = report(b, i) && right;
    for (i = 0; b->ladder && i < b->build_count; i++) climb(b, &b->all[i]);
    for (i = 0; i < b->engine_count; i++) close_engine(&b->all[i]);
    for (i = 0; i < INPUTS; i++) must(cudaFree(b->pixels[i]), "freeing pixels");
    for (i = 0; i < b->build_count; i++) free(b->expected[i]);
    free(b->expected);
    free(b->all);
    return right;
}

/* ---- the command line ---- */

static uint32_t number(const char *text, const char *of) {
    char *end;
    const unsigned long value = text ? strtoul(text, &end, 10) : 0;
    need(value > 0 && value <= 1000000 && (*end == 0 || *end == ','), of, "wants a number from 1");
    return (uint32_t)value;
}

/* Of the first argument that is no option: its index. */
static int read_options(bench *b, int count, char **arguments) {
    int i;
    for (i = 1; i < count && strncmp(arguments[i], "--", 2) == 0; i++) {
        const char *option = arguments[i];
        if (strcmp(option, "--ladder") == 0) {
            b->ladder = 1;
            continue;
        }
        i++; /* argv ends with NULL */
        if (strcmp(option, "--engines") == 0) b->engines = number(arguments[i], option);
        else if (strcmp(option, "--rounds") == 0) b->rounds = number(arguments[i], option);
        else if (strcmp(option, "--launches") == 0) b->launches = number(arguments[i], option);
        else need(0, option, "no such option");
    }
    return i;
}

static void prepare(bench *b) {
    struct cudaDeviceProp properties;
    uint32_t i;
    must(cudaGetDeviceProperties(&properties, 0), "looking for the card");
    printf("%s, %u engines a build, %u rounds of %u launches\n", properties.name, b->engines, b->rounds, b->launches);
    fflush(stdout);
    b->before = allocate(b->launches, sizeof *b->before);
    b->after = allocate(b->launches, sizeof *b->after);
    for (i = 0; i < b->launches; i++) {
        must(cudaEventCreate(&b->before[i]), "making events");
        must(cudaEventCreate(&b->after[i]), "making events");
    }
}

int main(int count, char **arguments) {
    bench b = {.engines = 2, .rounds = 10, .launches = 40, .random_state = 1};
    const int first = read_options(&b, count, arguments);
    const char *batches;
    int right = 1;
    uint32_t i;
    need(count >= first + 3, "usage", "turns [--engines N] [--rounds N] [--launches N] [--ladder] MODEL B[,B...] NAME=LIBRARY:FATBIN...");
    b.model = arguments[first];
    b.build_count = (uint32_t)(count - first - 2);
    b.builds = allocate(b.build_count, sizeof *b.builds);
    for (i = 0; i < b.build_count; i++) load(&b.builds[i], arguments[first + 2 + (int)i]);
    prepare(&b);
    for (batches = arguments[first + 1]; batches; batches = strchr(batches, ',') ? strchr(batches, ',') + 1 : NULL)
        right = run_batch(&b, number(batches, "B")) && right;
    return right ? 0 : 1;
}
