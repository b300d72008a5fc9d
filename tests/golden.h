/* Reads golden files and makes the models and pictures that they speak of. The format and the rule: golden_rule.py. */
#ifndef MEGAVIT_TESTS_GOLDEN_H
#define MEGAVIT_TESTS_GOLDEN_H

#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rule.h"

/* Needs megavit.h before it. */

enum { GOLDEN_MAX_WEIGHTS = 512, GOLDEN_MAX_PICTURES = 16, GOLDEN_MAX_OUTPUTS = 128, GOLDEN_MAX_SHARDS = 4 };

typedef struct golden_weight {
    char name[128];
    char dtype[8];
    int bits;
    double scale, offset;
    uint32_t rank;
    size_t shape[8];
    size_t elements;
} golden_weight;

typedef struct golden_picture {
    uint32_t width, height, frames;
    uint8_t *pixels;
    size_t rows, columns; /* of its pixel values; 0: nothing is known about them */
    uint64_t pixel_hash;
} golden_picture;

typedef struct golden_output {
    uint32_t picture;
    char kind[32];
    uint32_t index;
    size_t rows, columns;
    const char *data; /* float32, not aligned */
} golden_output;

typedef struct golden {
    char *file;
    const char *config, *preprocessor, *directory; /* NULL where the file has no such line */
    uint64_t min_pixels, max_pixels;               /* 0 without a limits line */
    golden_weight *weights;
    size_t weight_count;
    golden_picture pictures[GOLDEN_MAX_PICTURES];
    uint32_t picture_count;
    golden_output outputs[GOLDEN_MAX_OUTPUTS];
    size_t output_count;
} golden;

/* ---- the rule ---- */

static double golden_rule(uint64_t seed, size_t i, int bits) {
    return (double)(rule_bits(seed, i) >> (64 - bits)) / (double)((uint64_t)1 << (bits - 1)) - 1.0;
}

/* ---- reading ---- */

static char *golden_read_file(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    long size;
    char *data;
    if (!file) fail_msg("cannot open %s: tests run in the repository's root", path);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    size = ftell(file);
    assert_true(size > 0);
    rewind(file);
    data = (char *)malloc((size_t)size + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, (size_t)size, file), size);
    fclose(file);
    data[size] = 0;
    *bytes = (size_t)size;
    return data;
}

static void golden_parse_weight(golden *g, const char *line) {
    golden_weight *w = &g->weights[g->weight_count++];
    int used = 0, more;
    unsigned long dim;
    assert_true(g->weight_count <= GOLDEN_MAX_WEIGHTS);
    assert_int_equal(sscanf(line, "%127s %7s %d %lf %lf%n", w->name, w->dtype, &w->bits, &w->scale, &w->offset, &used), 5);
    w->elements = 1;
    for (line += used; sscanf(line, "%lu%n", &dim, &more) == 1; line += more) {
        assert_true(w->rank < 8);
        w->shape[w->rank++] = (size_t)dim;
        w->elements *= (size_t)dim;
    }
}

static void golden_parse_picture(golden *g, const char *line) {
    golden_picture *p = &g->pictures[g->picture_count];
    char name[32];
    size_t i, bytes;
    uint64_t seed;
    assert_true(g->picture_count < GOLDEN_MAX_PICTURES);
    assert_int_equal(sscanf(line, "%u %u %u", &p->width, &p->height, &p->frames), 3);
    bytes = (size_t)p->width * p->height * p->frames * 3;
    p->pixels = (uint8_t *)malloc(bytes);
    assert_non_null(p->pixels);
    snprintf(name, sizeof name, "picture %u", g->picture_count++);
    seed = rule_seed(name);
    for (i = 0; i < bytes; i++) p->pixels[i] = (uint8_t)(rule_bits(seed, i) >> 56);
}

static void golden_parse_output(golden *g, const char *line) {
    golden_output *o = &g->outputs[g->output_count++];
    unsigned long rows, columns;
    assert_true(g->output_count <= GOLDEN_MAX_OUTPUTS);
    assert_int_equal(sscanf(line, "%u %31s %u %lu %lu", &o->picture, o->kind, &o->index, &rows, &columns), 5);
    o->rows = (size_t)rows;
    o->columns = (size_t)columns;
}

static void golden_parse_pixels(golden *g, const char *line) {
    unsigned picture;
    unsigned long rows, columns;
    unsigned long long hash;
    assert_int_equal(sscanf(line, "%u %lu %lu %llu", &picture, &rows, &columns, &hash), 4);
    assert_true(picture < g->picture_count);
    g->pictures[picture].rows = (size_t)rows;
    g->pictures[picture].columns = (size_t)columns;
    g->pictures[picture].pixel_hash = hash;
}

static const char *golden_after(const char *line, const char *word) {
    size_t length = strlen(word);
    return strncmp(line, word, length) == 0 && line[length] == ' ' ? line + length + 1 : NULL;
}

/* name: of a file in tests/golden, without its ending. Anything wrong with it fails the test. */
static void golden_open(golden *g, const char *name) {
    char path[256];
    char *line, *end;
    const char *rest;
    size_t bytes, i;
    memset(g, 0, sizeof *g);
    g->weights = (golden_weight *)calloc(GOLDEN_MAX_WEIGHTS, sizeof *g->weights);
    assert_non_null(g->weights);
    snprintf(path, sizeof path, "tests/golden/%s.golden", name);
    g->file = golden_read_file(path, &bytes);
    for (line = g->file; strncmp(line, "end\n", 4) != 0; line = end + 1) {
        end = strchr(line, '\n');
        assert_non_null(end);
        *end = 0;
        if ((rest = golden_after(line, "config"))) g->config = rest;
        else if ((rest = golden_after(line, "preprocessor"))) g->preprocessor = rest;
        else if ((rest = golden_after(line, "directory"))) g->directory = rest;
        else if ((rest = golden_after(line, "weight"))) golden_parse_weight(g, rest);
        else if ((rest = golden_after(line, "picture"))) golden_parse_picture(g, rest);
        else if ((rest = golden_after(line, "output"))) golden_parse_output(g, rest);
        else if ((rest = golden_after(line, "pixels"))) golden_parse_pixels(g, rest);
        else if ((rest = golden_after(line, "limits"))) {
            unsigned long least, most;
            assert_int_equal(sscanf(rest, "%lu %lu", &least, &most), 2);
            g->min_pixels = least;
            g->max_pixels = most;
        } else assert_non_null(golden_after(line, "about"));
    }
    line += 4;
    for (i = 0; i < g->output_count; i++) {
        g->outputs[i].data = line;
        line += g->outputs[i].rows * g->outputs[i].columns * 4;
    }
    assert_ptr_equal(line, g->file + bytes);
}

static void golden_close(golden *g) {
    uint32_t i;
    for (i = 0; i < g->picture_count; i++) free(g->pictures[i].pixels);
    free(g->weights);
    free(g->file);
}

/* ---- models in memory ---- */

typedef struct golden_text {
    char *data;
    size_t length, capacity;
} golden_text;

static void golden_append(golden_text *text, const char *format, ...) {
    va_list arguments;
    int written;
    if (text->capacity - text->length < 512) {
        text->capacity = text->capacity * 2 + 4096;
        text->data = (char *)realloc(text->data, text->capacity);
        assert_non_null(text->data);
    }
    va_start(arguments, format);
    written = vsnprintf(text->data + text->length, text->capacity - text->length, format, arguments);
    va_end(arguments);
    assert_true(written >= 0 && (size_t)written < text->capacity - text->length);
    text->length += (size_t)written;
}

typedef struct golden_files {
    char *owned[GOLDEN_MAX_SHARDS + 1];
    char names[GOLDEN_MAX_SHARDS][64];
    mgv_memory_file files[GOLDEN_MAX_SHARDS + 3];
    uint32_t count;
} golden_files;

static size_t golden_element_bytes(const char *dtype) { return strcmp(dtype, "F32") == 0 ? 4 : 2; }

/* Little-endian bytes of a value that the dtype, BF16, F16 or F32, holds exactly. One letter tells them apart: under a sanitizer a call of
   strcmp for every element takes longer than all else. */
static void golden_store(char *to, const char *dtype, double value) {
    float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, 4);
    if (dtype[0] == 'B') {
        assert_int_equal(bits & 0xFFFFu, 0);
        bits >>= 16;
    } else if (dtype[1] == '1' && bits != 0) {
        uint32_t exponent = bits >> 23 & 0xFFu;
        assert_int_equal(bits & 0x1FFFu, 0);
        assert_true(exponent > 112 && exponent < 143);
        bits = (bits >> 16 & 0x8000u) | (exponent - 112) << 10 | (bits >> 13 & 0x3FFu);
    }
    to[0] = (char)(bits & 0xFFu);
    to[1] = (char)(bits >> 8 & 0xFFu);
    if (dtype[1] != '3') return;
    to[2] = (char)(bits >> 16 & 0xFFu);
    to[3] = (char)(bits >> 24 & 0xFFu);
}

/* One safetensors file of the weights whose number is `shard` modulo `shards`. */
static char *golden_safetensors(const golden *g, const char *prefix, uint32_t shard, uint32_t shards, size_t *bytes) {
    golden_text header = {NULL, 0, 0};
    size_t offset = 0, i, k;
    char *file, *to;
    golden_append(&header, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (i = shard; i < g->weight_count; i += shards) {
        const golden_weight *w = &g->weights[i];
        size_t size = w->elements * golden_element_bytes(w->dtype);
        uint32_t d;
        golden_append(&header, ",\"%s%s\":{\"dtype\":\"%s\",\"shape\":[", prefix, w->name, w->dtype);
        for (d = 0; d < w->rank; d++) golden_append(&header, "%s%lu", d ? "," : "", (unsigned long)w->shape[d]);
        golden_append(&header, "],\"data_offsets\":[%lu,%lu]}", (unsigned long)offset, (unsigned long)(offset + size));
        offset += size;
    }
    golden_append(&header, "}");
    while (header.length % 8) golden_append(&header, " ");
    *bytes = 8 + header.length + offset;
    file = (char *)malloc(*bytes);
    assert_non_null(file);
    for (i = 0; i < 8; i++) file[i] = (char)((uint64_t)header.length >> (8 * i) & 0xFFu);
    memcpy(file + 8, header.data, header.length);
    to = file + 8 + header.length;
    free(header.data);
    for (i = shard; i < g->weight_count; i += shards) {
        const golden_weight *w = &g->weights[i];
        uint64_t seed = rule_seed(w->name);
        size_t size = golden_element_bytes(w->dtype);
        for (k = 0; k < w->elements; k++, to += size) golden_store(to, w->dtype, w->offset + w->scale * golden_rule(seed, k, w->bits));
    }
    return file;
}

static void golden_add_file(golden_files *files, const char *name, const char *data, size_t bytes) {
    mgv_memory_file *file = &files->files[files->count++];
    file->name = name;
    file->data = data;
    file->bytes = bytes;
}

/* The model's files, as downloaded: every tensor's name after `prefix`, in one file or in `shards` with their index. */
static void golden_make_files(golden_files *files, const golden *g, const char *prefix, uint32_t shards) {
    golden_text index = {NULL, 0, 0};
    uint32_t s;
    size_t i, bytes;
    memset(files, 0, sizeof *files);
    golden_add_file(files, "config.json", g->config, strlen(g->config));
    if (g->preprocessor) golden_add_file(files, "preprocessor_config.json", g->preprocessor, strlen(g->preprocessor));
    for (s = 0; s < shards; s++) {
        if (shards == 1) snprintf(files->names[s], sizeof files->names[s], "model.safetensors");
        else snprintf(files->names[s], sizeof files->names[s], "model-%05u-of-%05u.safetensors", s + 1, shards);
        files->owned[s] = golden_safetensors(g, prefix, s, shards, &bytes);
        golden_add_file(files, files->names[s], files->owned[s], bytes);
    }
    if (shards == 1) return;
    golden_append(&index, "{\"metadata\":{},\"weight_map\":{");
    for (i = 0; i < g->weight_count; i++) {
        golden_append(&index, "%s\"%s%s\":\"%s\"", i ? "," : "", prefix, g->weights[i].name, files->names[i % shards]);
    }
    golden_append(&index, "}}");
    files->owned[shards] = index.data;
    golden_add_file(files, "model.safetensors.index.json", index.data, index.length);
}

static void golden_free_files(golden_files *files) {
    size_t i;
    for (i = 0; i < sizeof files->owned / sizeof files->owned[0]; i++) free(files->owned[i]);
}

/* Opens the model of a golden file; made files get `prefix` and `shards`, a saved directory is opened as it is. */
static mgv_model *golden_open_model(const golden *g, const char *prefix, uint32_t shards) {
    mgv_model *model = NULL;
    mgv_model_desc desc;
    mgv_error error;
    golden_files files;
    char path[256];
    memset(&desc, 0, sizeof desc);
    memset(&files, 0, sizeof files);
    memset(&error, 0, sizeof error);
    if (g->directory) {
        snprintf(path, sizeof path, "tests/golden/%s", g->directory);
        desc.path = path;
    } else {
        golden_make_files(&files, g, prefix, shards);
        desc.memory_files = files.files;
        desc.memory_file_count = files.count;
    }
    if (mgv_model_open(&model, &desc, &error) != MGV_OK) fail_msg("prefix \"%s\", %u shards: %s", prefix, shards, error.message);
    golden_free_files(&files);
    return model;
}

static mgv_image golden_image(const golden_picture *picture) {
    mgv_image image;
    memset(&image, 0, sizeof image);
    image.format = MGV_PIXELS_RGB8;
    image.pixels = picture->pixels;
    image.width = picture->width;
    image.height = picture->height;
    image.frames = picture->frames;
    image.bytes = (uint64_t)picture->width * picture->height * picture->frames * 3;
    return image;
}

/* ---- threads, as a caller would bring them: each takes the next index until none is left ---- */

typedef struct golden_work {
    pthread_mutex_t lock;
    uint32_t next, count;
    mgv_task task;
    void *context;
} golden_work;

static void *golden_worker(void *argument) {
    golden_work *work = (golden_work *)argument;
    for (;;) {
        uint32_t i;
        pthread_mutex_lock(&work->lock);
        i = work->next;
        if (i < work->count) work->next++;
        pthread_mutex_unlock(&work->lock);
        if (i >= work->count) return NULL;
        work->task(work->context, i);
    }
}

static void golden_run_threads(void *user, uint32_t count, mgv_task task, void *context) {
    golden_work work = {PTHREAD_MUTEX_INITIALIZER, 0, 0, NULL, NULL};
    pthread_t threads[8];
    uint32_t i, thread_count = *(uint32_t *)user;
    work.count = count;
    work.task = task;
    work.context = context;
    assert_true(thread_count <= 8);
    for (i = 0; i < thread_count; i++) assert_int_equal(pthread_create(&threads[i], NULL, golden_worker, &work), 0);
    for (i = 0; i < thread_count; i++) pthread_join(threads[i], NULL);
}

/* ---- comparing ---- */

static double golden_relative_l2(const float *value, const golden_output *reference) {
    double difference = 0, norm = 0;
    size_t i;
    for (i = 0; i < reference->rows * reference->columns; i++) {
        float r;
        memcpy(&r, reference->data + 4 * i, 4);
        difference += ((double)value[i] - r) * ((double)value[i] - r);
        norm += (double)r * r;
    }
    return sqrt(difference / norm);
}

static mgv_output_kind golden_kind(const golden_output *output) {
    if (strcmp(output->kind, "pooled") == 0) return MGV_OUTPUT_POOLED;
    if (strcmp(output->kind, "tokens") == 0) return MGV_OUTPUT_TOKENS;
    if (strcmp(output->kind, "layer") == 0) return MGV_OUTPUT_LAYER;
    if (strcmp(output->kind, "embeds") == 0) return MGV_OUTPUT_EMBEDS;
    assert_string_equal(output->kind, "deepstack");
    return MGV_OUTPUT_DEEPSTACK;
}

/* What must hold on every output. */
#define GOLDEN_TOLERANCE 1e-5

typedef struct golden_run {
    float *values[GOLDEN_MAX_OUTPUTS]; /* one for each output of the golden file */
} golden_run;

static void golden_free_run(golden_run *run) {
    size_t i;
    for (i = 0; i < GOLDEN_MAX_OUTPUTS; i++) free(run->values[i]);
}

static mgv_engine *golden_engine(const golden *g, const mgv_model *model, mgv_precision precision, uint32_t *threads) {
    mgv_engine *engine = NULL;
    mgv_engine_desc desc;
    mgv_error error;
    memset(&desc, 0, sizeof desc);
    desc.backend = MGV_BACKEND_CPU;
    desc.max_images = g->picture_count;
    desc.min_pixels = g->min_pixels;
    desc.max_pixels = g->max_pixels;
    desc.precision = precision;
    if (*threads > 1) {
        desc.parallel.user = threads;
        desc.parallel.threads = *threads;
        desc.parallel.run = golden_run_threads;
    }
    if (mgv_engine_create(&engine, model, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
    return engine;
}

static void golden_encode(mgv_engine *engine, const mgv_image *images, uint32_t image_count, const mgv_output *outputs,
                          uint32_t output_count) {
    mgv_encode_desc desc;
    mgv_error error;
    memset(&desc, 0, sizeof desc);
    desc.images = images;
    desc.image_count = image_count;
    desc.outputs = outputs;
    desc.output_count = output_count;
    if (mgv_encode_blocking(engine, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
}

static mgv_shape golden_shape(mgv_engine *engine, const mgv_image *images, uint32_t image_count, const mgv_output *output) {
    mgv_shape shape;
    mgv_error error;
    if (mgv_engine_shape(engine, images, image_count, output, &shape, &error) != MGV_OK) fail_msg("%s", error.message);
    return shape;
}

/* An output with room for what the golden file holds, poisoned so that a row that nobody writes is seen. */
static mgv_output golden_new_output(const golden_output *reference, size_t rows) {
    mgv_output output;
    size_t i, count = rows * reference->columns;
    memset(&output, 0, sizeof output);
    output.kind = golden_kind(reference);
    output.index = reference->index;
    output.data = (float *)malloc(count * sizeof(float));
    output.capacity = count;
    assert_non_null(output.data);
    for (i = 0; i < count; i++) output.data[i] = NAN;
    return output;
}

/* Every picture alone, all of its outputs in one call, each within the tolerance of what transformers says. */
static void golden_check_alone(const golden *g, mgv_engine *engine, golden_run *run) {
    uint32_t k;
    memset(run, 0, sizeof *run);
    for (k = 0; k < g->picture_count; k++) {
        mgv_image image = golden_image(&g->pictures[k]);
        mgv_output outputs[GOLDEN_MAX_OUTPUTS];
        size_t of[GOLDEN_MAX_OUTPUTS], i;
        uint32_t n = 0;
        for (i = 0; i < g->output_count; i++) {
            const golden_output *o = &g->outputs[i];
            mgv_shape shape;
            if (o->picture != k) continue;
            outputs[n] = golden_new_output(o, o->rows);
            shape = golden_shape(engine, &image, 1, &outputs[n]);
            assert_int_equal(shape.rows, o->rows);
            assert_int_equal(shape.columns, o->columns);
            run->values[i] = outputs[n].data;
            of[n++] = i;
        }
        golden_encode(engine, &image, 1, outputs, n);
        for (i = 0; i < n; i++) {
            const golden_output *o = &g->outputs[of[i]];
            double error = golden_relative_l2(outputs[i].data, o);
            if (!(error <= GOLDEN_TOLERANCE)) fail_msg("picture %u, %s %u: relative L2 %g", k, o->kind, o->index, error);
        }
    }
}

/* The pixel values that the model sees, to the bit. */
static void golden_check_pixels(const golden *g, mgv_engine *engine) {
    uint32_t k;
    for (k = 0; k < g->picture_count; k++) {
        const golden_picture *picture = &g->pictures[k];
        mgv_image image = golden_image(picture);
        const size_t count = picture->rows * picture->columns;
        mgv_shape shape;
        mgv_error error;
        float *values;
        if (count == 0) continue;
        values = (float *)malloc(count * sizeof(float));
        assert_non_null(values);
        if (mgv_preprocess(engine, &image, values, count, &shape, &error) != MGV_OK) fail_msg("%s", error.message);
        assert_int_equal(shape.rows * shape.columns, count);
        if (hash_floats(values, count) != picture->pixel_hash) fail_msg("picture %u: pixel values differ from Pillow's", k);
        free(values);
    }
}

/* One output asked for alone and for all pictures in one call has the same bits as before. */
static void golden_check_batch(const golden *g, mgv_engine *engine, const golden_run *run) {
    mgv_image images[GOLDEN_MAX_PICTURES];
    size_t i, j;
    uint32_t k;
    for (k = 0; k < g->picture_count; k++) images[k] = golden_image(&g->pictures[k]);
    for (i = 0; i < g->output_count; i++) {
        const golden_output *o = &g->outputs[i];
        size_t first_row = 0;
        mgv_output output;
        mgv_shape shape;
        if (o->picture != 0 || !run->values[i]) continue;
        output = golden_new_output(o, 1);
        shape = golden_shape(engine, images, g->picture_count, &output);
        free(output.data);
        output = golden_new_output(o, (size_t)shape.rows);
        golden_encode(engine, images, g->picture_count, &output, 1);
        for (k = 0; k < g->picture_count; k++) {
            for (j = 0; j < g->output_count; j++) {
                const golden_output *alone = &g->outputs[j];
                if (alone->picture != k || strcmp(alone->kind, o->kind) != 0 || alone->index != o->index) continue;
                assert_memory_equal(output.data + first_row * o->columns, run->values[j], alone->rows * alone->columns * sizeof(float));
            }
            first_row += (size_t)golden_shape(engine, &images[k], 1, &output).rows;
        }
        assert_int_equal(first_row, shape.rows);
        free(output.data);
    }
}

/* All that a golden file can say about one way of opening its model. */
static void golden_check(const golden *g, const char *prefix, uint32_t shards) {
    static const uint32_t thread_counts[] = {1, 3};
    mgv_model *model = golden_open_model(g, prefix, shards);
    golden_run runs[2];
    size_t t, i;
    for (t = 0; t < 2; t++) {
        uint32_t threads = thread_counts[t];
        mgv_engine *engine = golden_engine(g, model, MGV_PRECISION_AUTO, &threads);
        golden_check_pixels(g, engine);
        golden_check_alone(g, engine, &runs[t]);
        golden_check_batch(g, engine, &runs[t]);
        assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
    }
    for (i = 0; i < g->output_count; i++) {
        size_t bytes = g->outputs[i].rows * g->outputs[i].columns * sizeof(float);
        if (runs[0].values[i]) assert_memory_equal(runs[0].values[i], runs[1].values[i], bytes);
    }
    for (t = 0; t < 2; t++) golden_free_run(&runs[t]);
    mgv_model_close(model);
}

/* A test of one file: every output, under the key names that it has. */
static void golden_check_file(void **state) {
    golden g;
    golden_open(&g, (const char *)*state);
    assert_true(g.output_count > 0);
    golden_check(&g, "", 1);
    golden_close(&g);
}
#define GOLDEN_FILE(name) {"golden: " name, golden_check_file, NULL, NULL, (void *)(uintptr_t)name}

#endif
