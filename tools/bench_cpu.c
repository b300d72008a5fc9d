/* How fast the CPU backend encodes one picture: whole models of the published sizes, with random weights that are made
   in memory, through the public API. tools/bench_cpu_torch.py sets the figures beside PyTorch's.

     bench_cpu [--model NAME] [--dtype f32|bf16] [--precision auto|fast] [--threads N] [--repeat N]
     bench_cpu --steps [--model NAME] [--dtype f32|bf16] [--threads N] [--isa plain|avx2]
                                                how long a call of mgv_poll takes, on large models, too, and with less of an instruction set

   Before anything is timed the vector code must agree with plain C on a few layers; while it is timed, every run must
   give the same bits. Exit 1 if not. */
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

#include <stdio.h>

/* ---- models made in memory ---- */

typedef struct shape_of_model {
    const char *name;
    const char *config;    /* format of config.json: layers, then the last layers of three quarters for DeepStack */
    const char *processor; /* preprocessor_config.json */
    uint32_t hidden, intermediate, layers, out;
    uint32_t side;         /* of the picture in pixels */
    uint32_t patch;
    int qwen;
    int steps_only;        /* few of its layers: the others have the same steps */
} shape_of_model;

static const shape_of_model models[] = {
    {"siglip2-base-patch16-224", "{\"model_type\":\"siglip_vision_model\",\"num_hidden_layers\":%u}",
     "{\"size\":{\"height\":224,\"width\":224},\"resample\":2}", 768, 3072, 12, 0, 224, 16, 0, 0},
    {"qwen3-vl-2b-448",
     "{\"model_type\":\"qwen3_vl\",\"vision_config\":{\"depth\":%u,\"hidden_size\":1024,\"intermediate_size\":4096,\"num_heads\":16,"
     "\"out_hidden_size\":2048,\"deepstack_visual_indexes\":[%u,%u,%u]}}",
     "{}", 1024, 4096, 24, 2048, 448, 16, 1, 0},
    {"siglip2-so400m-patch14-384",
     "{\"model_type\":\"siglip_vision_model\",\"num_hidden_layers\":%u,\"hidden_size\":1152,\"intermediate_size\":4304,"
     "\"num_attention_heads\":16,\"image_size\":384,\"patch_size\":14}",
     "{\"size\":{\"height\":384,\"width\":384},\"resample\":2}", 1152, 4304, 3, 0, 384, 14, 0, 1},
    {"siglip2-giant-opt-patch16-384",
     "{\"model_type\":\"siglip_vision_model\",\"num_hidden_layers\":%u,\"hidden_size\":1536,\"intermediate_size\":6144,"
     "\"num_attention_heads\":16,\"image_size\":384,\"patch_size\":16}",
     "{\"size\":{\"height\":384,\"width\":384},\"resample\":2}", 1536, 6144, 3, 0, 384, 16, 0, 1},
};

/* A safetensors file that grows: first every tensor's entry, then the data. */
typedef struct writer {
    char *header;
    size_t header_bytes, header_capacity;
    uint64_t data_bytes;
    mgv_dtype dtype;
    unsigned char *data; /* NULL while the header is written */
    uint64_t random_state;
} writer;

static void *need(void *memory) {
    if (memory == NULL) {
        fprintf(stderr, "bench_cpu: out of memory\n");
        exit(1);
    }
    return memory;
}

static float uniform(writer *w) { /* in [-1, 1) */
    w->random_state = w->random_state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(w->random_state >> 32) / 2147483648.0f;
}

/* offset + uniform in [-amplitude, amplitude) */
static void add_tensor(writer *w, const char *scope, const char *name, uint32_t rank, const uint32_t *shape, float offset,
                       float amplitude) {
    const size_t element = w->dtype == MGV_DTYPE_F32 ? 4 : 2;
    uint64_t count = 1, i;
    uint32_t k;
    char text[512];
    int used;
    for (k = 0; k < rank; k++) count *= shape[k];
    if (w->data != NULL) {
        for (i = 0; i < count; i++) {
            const float value = offset + amplitude * uniform(w);
            uint32_t bits;
            memcpy(&bits, &value, 4);
            if (w->dtype == MGV_DTYPE_BF16) bits >>= 16;
            memcpy(w->data + w->data_bytes + i * element, &bits, element);
        }
    } else {
        used = snprintf(text, sizeof text, "%s\"%s%s\":{\"dtype\":\"%s\",\"shape\":[", w->header_bytes > 1 ? "," : "", scope, name,
                        mgv_dtype_name(w->dtype));
        for (k = 0; k < rank; k++) used += snprintf(text + used, sizeof text - (size_t)used, k ? ",%u" : "%u", shape[k]);
        used += snprintf(text + used, sizeof text - (size_t)used, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)w->data_bytes,
                         (unsigned long long)(w->data_bytes + count * element));
        if (w->header_bytes + (size_t)used + 2 > w->header_capacity) {
            w->header_capacity = w->header_capacity * 2 + 4096;
            w->header = (char *)need(realloc(w->header, w->header_capacity));
        }
        memcpy(w->header + w->header_bytes, text, (size_t)used);
        w->header_bytes += (size_t)used;
    }
    w->data_bytes += count * element;
}

static void add_matrix(writer *w, const char *scope, const char *name, uint32_t rows, uint32_t columns) {
    const uint32_t shape[2] = {rows, columns};
    add_tensor(w, scope, name, 2, shape, 0, sqrtf(3.0f / (float)columns));
}
static void add_vector(writer *w, const char *scope, const char *name, uint32_t length, float offset) {
    add_tensor(w, scope, name, 1, &length, offset, 0.1f);
}
static void add_linear(writer *w, const char *scope, const char *name, uint32_t rows, uint32_t columns) {
    char full[64];
    snprintf(full, sizeof full, "%s.weight", name);
    add_matrix(w, scope, full, rows, columns);
    snprintf(full, sizeof full, "%s.bias", name);
    add_vector(w, scope, full, rows, 0);
}
static void add_norm(writer *w, const char *scope, const char *name, uint32_t length) {
    char full[64];
    snprintf(full, sizeof full, "%s.weight", name);
    add_vector(w, scope, full, length, 1);
    snprintf(full, sizeof full, "%s.bias", name);
    add_vector(w, scope, full, length, 0);
}

static void add_siglip(writer *w, const shape_of_model *m, uint32_t layers) {
    const uint32_t patch[4] = {m->hidden, 3, m->patch, m->patch}, grid = m->side / m->patch, probe[3] = {1, 1, m->hidden}, d = m->hidden;
    char scope[64];
    uint32_t i;
    add_tensor(w, "", "embeddings.patch_embedding.weight", 4, patch, 0, 0.06f);
    add_vector(w, "", "embeddings.patch_embedding.bias", d, 0);
    add_matrix(w, "", "embeddings.position_embedding.weight", grid * grid, d);
    for (i = 0; i < layers; i++) {
        snprintf(scope, sizeof scope, "encoder.layers.%u.", i);
        add_norm(w, scope, "layer_norm1", d);
        add_linear(w, scope, "self_attn.q_proj", d, d);
        add_linear(w, scope, "self_attn.k_proj", d, d);
        add_linear(w, scope, "self_attn.v_proj", d, d);
        add_linear(w, scope, "self_attn.out_proj", d, d);
        add_norm(w, scope, "layer_norm2", d);
        add_linear(w, scope, "mlp.fc1", m->intermediate, d);
        add_linear(w, scope, "mlp.fc2", d, m->intermediate);
    }
    add_norm(w, "", "post_layernorm", d);
    add_tensor(w, "head.", "probe", 3, probe, 0, 1);
    add_matrix(w, "head.", "attention.in_proj_weight", 3 * d, d);
    add_vector(w, "head.", "attention.in_proj_bias", 3 * d, 0);
    add_linear(w, "head.", "attention.out_proj", d, d);
    add_norm(w, "head.", "layernorm", d);
    add_linear(w, "head.", "mlp.fc1", m->intermediate, d);
    add_linear(w, "head.", "mlp.fc2", d, m->intermediate);
}

static void add_qwen(writer *w, const shape_of_model *m, uint32_t layers) {
    const uint32_t patch[5] = {m->hidden, 3, 2, 16, 16}, d = m->hidden;
    char scope[64];
    uint32_t i;
    add_tensor(w, "visual.", "patch_embed.proj.weight", 5, patch, 0, 0.04f);
    add_vector(w, "visual.", "patch_embed.proj.bias", d, 0);
    add_matrix(w, "visual.", "pos_embed.weight", 2304, d);
    for (i = 0; i < layers; i++) {
        snprintf(scope, sizeof scope, "visual.blocks.%u.", i);
        add_norm(w, scope, "norm1", d);
        add_linear(w, scope, "attn.qkv", 3 * d, d);
        add_linear(w, scope, "attn.proj", d, d);
        add_norm(w, scope, "norm2", d);
        add_linear(w, scope, "mlp.linear_fc1", m->intermediate, d);
        add_linear(w, scope, "mlp.linear_fc2", d, m->intermediate);
    }
    for (i = 0; i < 4; i++) {
        snprintf(scope, sizeof scope, i < 3 ? "visual.deepstack_merger_list.%u." : "visual.merger.", i);
        add_norm(w, scope, "norm", i < 3 ? 4 * d : d);
        add_linear(w, scope, "linear_fc1", 4 * d, 4 * d);
        add_linear(w, scope, "linear_fc2", m->out, 4 * d);
    }
}

static void add_model(writer *w, const shape_of_model *m, uint32_t layers) {
    if (m->qwen) {
        add_qwen(w, m, layers);
    } else {
        add_siglip(w, m, layers);
    }
}

static mgv_model *make_model(const shape_of_model *m, mgv_dtype dtype, uint32_t layers) {
    char config[512];
    mgv_memory_file files[3];
    mgv_model_desc desc;
    mgv_model *model = NULL;
    mgv_error error;
    unsigned char *file;
    writer w;
    uint64_t length;
    int i;
    memset(&w, 0, sizeof w);
    w.dtype = dtype;
    w.random_state = 1;
    w.header = (char *)need(malloc(4096));
    w.header_capacity = 4096;
    w.header[w.header_bytes++] = '{';
    add_model(&w, m, layers);
    w.header[w.header_bytes++] = '}';
    length = w.header_bytes;
    file = (unsigned char *)need(malloc((size_t)(8 + length + w.data_bytes)));
    for (i = 0; i < 8; i++) file[i] = (unsigned char)(length >> (8 * i));
    memcpy(file + 8, w.header, w.header_bytes);
    w.data = file + 8 + length;
    length += 8 + w.data_bytes;
    w.data_bytes = 0;
    add_model(&w, m, layers);
    memset(&desc, 0, sizeof desc);
    snprintf(config, sizeof config, m->config, layers, layers / 4 - 1, layers / 2 - 1, layers / 4 * 3 - 1);
    files[0].name = "config.json";
    files[0].data = config;
    files[0].bytes = strlen(config);
    files[1].name = "preprocessor_config.json";
    files[1].data = m->processor;
    files[1].bytes = strlen(m->processor);
    files[2].name = "model.safetensors";
    files[2].data = file;
    files[2].bytes = length;
    desc.memory_files = files;
    desc.memory_file_count = 3;
    if (mgv_model_open(&model, &desc, &error) != MGV_OK) {
        fprintf(stderr, "bench_cpu: %s\n", error.message);
        exit(1);
    }
    free(file);
    free(w.header);
    return model;
}

/* ---- running ---- */

static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct bench {
    mgv_engine *engine;
    mgv_threads *threads;
    unsigned char *pixels;
    mgv_image image;
    mgv_output output;
    uint64_t floats;
} bench;

static void check(mgv_result result, const mgv_error *error) {
    if (result == MGV_OK) return;
    fprintf(stderr, "bench_cpu: %s\n", error->message);
    exit(1);
}

static mgv_precision precision; /* AUTO or FAST */

static bench open_bench(const mgv_model *model, uint32_t side, uint32_t threads, mgv__isa isa) {
    bench b;
    mgv_engine_desc desc;
    mgv_model_info info;
    mgv_shape shape;
    mgv_error error;
    size_t i;
    memset(&b, 0, sizeof b);
    memset(&desc, 0, sizeof desc);
    if (threads > 1) {
        check(mgv_threads_create(&b.threads, threads, NULL, &error), &error);
        desc.parallel = mgv_threads_parallel_for(b.threads);
    }
    desc.max_width = desc.max_height = side;
    desc.precision = precision;
    check(mgv_engine_create(&b.engine, model, &desc, &error), &error);
    if (isa != 0) b.engine->kernels = mgv__cpu_kernels_of(isa);
    b.pixels = (unsigned char *)need(malloc((size_t)side * side * 3));
    for (i = 0; i < (size_t)side * side * 3; i++) b.pixels[i] = (unsigned char)((i * 2654435761u) >> 13);
    b.image.pixels = b.pixels;
    b.image.width = b.image.height = side;
    mgv_model_get_info(model, &info);
    b.output.kind = info.pooled_width != 0 ? MGV_OUTPUT_POOLED : MGV_OUTPUT_TOKENS;
    check(mgv_engine_shape(b.engine, &b.image, 1, &b.output, &shape, &error), &error);
    b.floats = shape.rows * shape.columns;
    b.output.capacity = b.floats;
    b.output.data = (float *)need(malloc((size_t)b.floats * sizeof(float)));
    return b;
}

static void close_bench(bench *b) {
    mgv_engine_destroy(b->engine);
    mgv_threads_destroy(b->threads);
    free(b->pixels);
    free(b->output.data);
}

/* Seconds on the wall, and of all threads on a processor: the second hardly minds what else the machine does. */
typedef struct duration {
    double wall, processor;
} duration;

static duration encode(bench *b) {
    mgv_encode_desc desc;
    mgv_error error;
    duration d;
    memset(&desc, 0, sizeof desc);
    desc.images = &b->image;
    desc.image_count = 1;
    desc.outputs = &b->output;
    desc.output_count = 1;
    d.wall = -seconds(CLOCK_MONOTONIC);
    d.processor = -seconds(CLOCK_PROCESS_CPUTIME_ID);
    check(mgv_encode_blocking(b->engine, &desc, &error), &error);
    d.wall += seconds(CLOCK_MONOTONIC);
    d.processor += seconds(CLOCK_PROCESS_CPUTIME_ID);
    return d;
}

/* The vector code against plain C, on four layers and a small picture. */
static void check_against_plain(const shape_of_model *m, mgv_dtype dtype) {
    mgv_model *model = make_model(m, dtype, 4);
    bench plain = open_bench(model, 224, 1, MGV__ISA_PLAIN), fast = open_bench(model, 224, 1, 0);
    double difference = 0, norm = 0, relative;
    uint64_t i;
    encode(&plain);
    encode(&fast);
    for (i = 0; i < plain.floats; i++) {
        const double d = (double)fast.output.data[i] - (double)plain.output.data[i];
        difference += d * d;
        norm += (double)plain.output.data[i] * (double)plain.output.data[i];
    }
    relative = sqrt(difference / norm);
    printf("%s %s, 4 layers: %s differs from plain C by %.2g (relative L2)\n", m->name, mgv_dtype_name(dtype),
           fast.engine->kernels->name, relative);
    if (!(relative < (fast.engine->kernels->pairs ? 2e-2 : 1e-5))) {
        fprintf(stderr, "bench_cpu: that is too much\n");
        exit(1);
    }
    close_bench(&plain);
    close_bench(&fast);
    mgv_model_close(model);
}

static double model_flops(const mgv_model *model, uint32_t side) {
    mgv_image image;
    mgv_grid grid;
    mgv_error error;
    double flops = 0;
    uint32_t i;
    memset(&image, 0, sizeof image);
    image.width = image.height = side;
    check(mgv_model_grid(model, &image, 0, 0, &grid, &error), &error);
    for (i = 0; i < mgv_model_op_count(model); i++) {
        mgv_op_info op;
        mgv_model_get_op(model, i, &grid, &op);
        flops += op.flops;
    }
    return flops;
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void time_model(const shape_of_model *m, const mgv_model *model, mgv_dtype dtype, uint32_t threads, uint32_t repeat) {
    bench b = open_bench(model, m->side, threads, 0);
    double *walls = (double *)need(malloc(repeat * sizeof(double))), *processors = (double *)need(malloc(repeat * sizeof(double)));
    float *first = (float *)need(malloc((size_t)b.floats * sizeof(float)));
    uint32_t i;
    encode(&b); /* the first touches all memory */
    memcpy(first, b.output.data, (size_t)b.floats * sizeof(float));
    for (i = 0; i < b.floats; i++) {
        if (first[i] - first[i] != 0.0f) {
            fprintf(stderr, "bench_cpu: output %u is not finite\n", i);
            exit(1);
        }
    }
    for (i = 0; i < repeat; i++) {
        const duration d = encode(&b);
        walls[i] = d.wall;
        processors[i] = d.processor;
        if (memcmp(first, b.output.data, (size_t)b.floats * sizeof(float)) != 0) {
            fprintf(stderr, "bench_cpu: run %u gave other bits\n", i + 1);
            exit(1);
        }
    }
    qsort(walls, repeat, sizeof *walls, by_size);
    qsort(processors, repeat, sizeof *processors, by_size);
    printf("%s %s, %u thread%s: best %.1f ms an image, median %.1f ms of %u, %.1f GFLOP/s at best (%.2f GFLOP), processor time %.1f ms\n",
           m->name, mgv_dtype_name(dtype), threads, threads > 1 ? "s" : "", walls[0] * 1e3, walls[repeat / 2] * 1e3, repeat,
           model_flops(model, m->side) / walls[0] / 1e9, model_flops(model, m->side) / 1e9, processors[0] * 1e3);
    fflush(stdout);
    free(walls);
    free(processors);
    free(first);
    close_bench(&b);
}

/* How long one call of mgv_poll takes; pictures of a model of one size are resized from four times its side. */
static void time_steps(const shape_of_model *m, const mgv_model *model, mgv_dtype dtype, uint32_t threads, mgv__isa isa) {
    enum { MOST = 1 << 20, REPEAT = 3 };
    bench b = open_bench(model, m->qwen ? m->side : 4 * m->side, threads, isa);
    double *steps = (double *)need(malloc(MOST * sizeof(double))), total = 0;
    mgv_encode_desc desc;
    mgv_error error;
    uint32_t count = 0, repeat;
    memset(&desc, 0, sizeof desc);
    desc.images = &b.image;
    desc.image_count = 1;
    desc.outputs = &b.output;
    desc.output_count = 1;
    encode(&b);
    for (repeat = 0; repeat < REPEAT; repeat++) {
        mgv_status status = MGV_STATUS_RUNNING;
        check(mgv_encode(b.engine, &desc, &error), &error);
        while (status != MGV_STATUS_DONE && count < MOST) {
            const double start = seconds(CLOCK_THREAD_CPUTIME_ID);
            status = mgv_poll(b.engine, &error);
            steps[count] = seconds(CLOCK_THREAD_CPUTIME_ID) - start;
            total += steps[count++];
        }
    }
    qsort(steps, count, sizeof *steps, by_size);
    printf("%s %s, %s, %u thread%s: a step takes %.2f ms of the calling thread's processor time, 99 of 100 at most %.2f, the longest of %u "
           "%.2f; %.1f ms for %s\n", m->name, mgv_dtype_name(dtype), b.engine->kernels->name, threads, threads > 1 ? "s" : "", total / count * 1e3,
           steps[count * 99 / 100] * 1e3, count, steps[count - 1] * 1e3, total / REPEAT * 1e3, m->steps_only ? "three layers" : "an image");
    fflush(stdout);
    free(steps);
    close_bench(&b);
}

int main(int argc, char **argv) {
    const char *wanted = NULL;
    mgv_dtype dtype = MGV_DTYPE_F32;
    uint32_t threads = 0, repeat = 0;
    size_t i;
    mgv__isa isa = 0; /* the fastest */
    int k, steps = 0;
    for (k = 1; k < argc; k++) {
        const char *value = k + 1 < argc ? argv[k + 1] : "";
        if (strcmp(argv[k], "--steps") == 0) {
            steps = 1;
            continue;
        }
        if (strcmp(argv[k], "--model") == 0) {
            wanted = value;
        } else if (strcmp(argv[k], "--dtype") == 0 && (strcmp(value, "f32") == 0 || strcmp(value, "bf16") == 0)) {
            dtype = strcmp(value, "bf16") == 0 ? MGV_DTYPE_BF16 : MGV_DTYPE_F32;
        } else if (strcmp(argv[k], "--precision") == 0 && (strcmp(value, "auto") == 0 || strcmp(value, "fast") == 0)) {
            precision = strcmp(value, "fast") == 0 ? MGV_PRECISION_FAST : MGV_PRECISION_AUTO;
        } else if (strcmp(argv[k], "--isa") == 0 && (strcmp(value, "plain") == 0 || strcmp(value, "avx2") == 0)) {
            isa = strcmp(value, "avx2") == 0 ? MGV__ISA_AVX2 : MGV__ISA_PLAIN;
        } else if (strcmp(argv[k], "--threads") == 0 && strtoul(value, NULL, 10) > 0) {
            threads = (uint32_t)strtoul(value, NULL, 10);
        } else if (strcmp(argv[k], "--repeat") == 0 && strtoul(value, NULL, 10) > 0) {
            repeat = (uint32_t)strtoul(value, NULL, 10);
        } else {
            fprintf(stderr, "usage: bench_cpu [--steps [--isa plain|avx2]] [--model NAME] [--dtype f32|bf16] [--precision auto|fast] "
                    "[--threads N] [--repeat N]\n");
            return 1;
        }
        k++;
    }
    for (i = 0; i < sizeof models / sizeof models[0]; i++) {
        mgv_model *model;
        if (wanted != NULL && strcmp(wanted, models[i].name) != 0) continue;
        if (models[i].steps_only && !steps) continue;
        if (steps) {
            model = make_model(&models[i], dtype, models[i].layers);
            time_steps(&models[i], model, dtype, threads ? threads : 1, isa);
            mgv_model_close(model);
            continue;
        }
        check_against_plain(&models[i], dtype);
        model = make_model(&models[i], dtype, models[i].layers);
        if (threads == 0) {
            time_model(&models[i], model, dtype, 1, repeat != 0 ? repeat : models[i].qwen ? 3 : 10);
            time_model(&models[i], model, dtype, 2, repeat != 0 ? repeat : models[i].qwen ? 3 : 10);
        } else {
            time_model(&models[i], model, dtype, threads, repeat != 0 ? repeat : models[i].qwen ? 3 : 10);
        }
        mgv_model_close(model);
    }
    return 0;
}
