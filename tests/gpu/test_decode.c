/* The decoder's kernel on a card, without sessions' public functions: against the CPU backend, then timed.

     test_decode make DIRECTORY [SHAPE]     writes a model of random weights: 0.6b, 1.7b, 4b, 8b
     test_decode check DIRECTORY FATBIN     logits behind some ids, ids chosen, grids, positions
     test_decode public DIRECTORY FATBIN    sessions: texts by chance as the host chooses, several together as each alone
     test_decode time DIRECTORY FATBIN [POSITION...]  ids a second of 1, 2, 4 and 8 sessions at these positions
     test_decode turns DIRECTORY FATBIN     the kernel for few sessions beside the one for any, in turns
     test_decode chance DIRECTORY FATBIN    what choosing by chance costs
     test_decode soak DIRECTORY FATBIN IDS  so many ids, each launch twice
     test_decode hold DIRECTORY FATBIN SECONDS SESSIONS  texts from position 1 on, for the card's power
     test_decode dump DIRECTORY FATBIN FILE PROMPTS  logits behind prompts of 8 to 1,000 ids, for tests/gpu/decode_check.py
     test_decode engines DIRECTORY FATBIN   two engines of half the card each, at once */
#define PROGRAM "test_decode"
#include "card.h"

/* ---- a model ---- */

typedef struct shape {
    const char *name;
    uint32_t layers, hidden, intermediate, heads, key_heads, tied;
} shape;
static const shape shapes[] = {{"0.6b", 28, 1024, 3072, 16, 8, 1}, {"1.7b", 28, 2048, 6144, 16, 8, 1}, {"4b", 36, 2560, 9728, 32, 8, 1},
                               {"8b", 36, 4096, 12288, 32, 8, 0}, {"8b-4", 4, 4096, 12288, 32, 8, 0}};
enum { VOCABULARY = 151936 };

typedef struct writer {
    FILE *file;
    int data; /* second time: the numbers */
    uint64_t at, state;
    char *header;
    size_t used;
} writer;

static void write_tensor(writer *w, const char *name, uint64_t rows, uint64_t columns, double scale, double offset) {
    const uint64_t count = rows * (columns ? columns : 1);
    uint16_t buffer[4096];
    uint64_t i;
    if (!w->data) {
        w->used += (size_t)sprintf(w->header + w->used, "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[%llu", w->used > 1 ? "," : "", name,
                                   (unsigned long long)rows);
        if (columns) w->used += (size_t)sprintf(w->header + w->used, ",%llu", (unsigned long long)columns);
        w->used += (size_t)sprintf(w->header + w->used, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)w->at,
                                   (unsigned long long)(w->at + count * 2));
        w->at += count * 2;
        return;
    }
    for (i = 0; i < count; i++) {
        w->state ^= w->state << 13;
        w->state ^= w->state >> 7;
        w->state ^= w->state << 17;
        buffer[i % 4096] = mgv__bf16_round((float)(offset + scale * ((double)(w->state >> 40) / (1 << 23) - 1)));
        if ((i % 4096 == 4095 || i + 1 == count) && fwrite(buffer, 2, i % 4096 + 1, w->file) != i % 4096 + 1) fail("writing the model", NULL);
    }
}
static void write_linear(writer *w, const char *name, uint64_t rows, uint64_t columns) {
    write_tensor(w, name, rows, columns, 1.7 / sqrt((double)columns), 0);
}

static void write_tensors(writer *w, const shape *s) {
    uint32_t i;
    write_tensor(w, "model.embed_tokens.weight", VOCABULARY, s->hidden, 0.05, 0);
    for (i = 0; i < s->layers; i++) {
        char name[96];
        const int prefix = snprintf(name, sizeof name, "model.layers.%u.", i);
#define TENSOR(suffix) (strcpy(name + prefix, suffix ".weight"), name)
        write_tensor(w, TENSOR("input_layernorm"), s->hidden, 0, 0.3, 1);
        write_tensor(w, TENSOR("post_attention_layernorm"), s->hidden, 0, 0.3, 1);
        write_tensor(w, TENSOR("self_attn.q_norm"), 128, 0, 0.3, 1);
        write_tensor(w, TENSOR("self_attn.k_norm"), 128, 0, 0.3, 1);
        write_linear(w, TENSOR("self_attn.q_proj"), s->heads * 128, s->hidden);
        write_linear(w, TENSOR("self_attn.k_proj"), s->key_heads * 128, s->hidden);
        write_linear(w, TENSOR("self_attn.v_proj"), s->key_heads * 128, s->hidden);
        write_linear(w, TENSOR("self_attn.o_proj"), s->hidden, s->heads * 128);
        write_linear(w, TENSOR("mlp.gate_proj"), s->intermediate, s->hidden);
        write_linear(w, TENSOR("mlp.up_proj"), s->intermediate, s->hidden);
        write_linear(w, TENSOR("mlp.down_proj"), s->hidden, s->intermediate);
#undef TENSOR
    }
    write_tensor(w, "model.norm.weight", s->hidden, 0, 0.3, 1);
    if (!s->tied) write_tensor(w, "lm_head.weight", VOCABULARY, s->hidden, 0.05, 0);
}

static void make(const char *directory, const char *name) {
    char path[512];
    const shape *s = NULL;
    writer w;
    uint64_t bytes;
    size_t i;
    for (i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        if (strcmp(shapes[i].name, name) == 0) s = &shapes[i];
    if (!s) fail("no such shape", NULL);
    memset(&w, 0, sizeof w);
    w.header = (char *)malloc(1 << 20);
    snprintf(path, sizeof path, "%s/config.json", directory);
    w.file = fopen(path, "w");
    if (!w.file || !w.header) fail("cannot write config.json", NULL);
    fprintf(w.file, "{\"model_type\":\"qwen3\",\"hidden_size\":%u,\"intermediate_size\":%u,\"num_hidden_layers\":%u,\"num_attention_heads\":%u,"
            "\"num_key_value_heads\":%u,\"head_dim\":128,\"vocab_size\":%u,\"tie_word_embeddings\":%s}\n", s->hidden, s->intermediate, s->layers,
            s->heads, s->key_heads, VOCABULARY, s->tied ? "true" : "false");
    fclose(w.file);
    snprintf(path, sizeof path, "%s/model.safetensors", directory);
    w.file = fopen(path, "wb");
    if (!w.file) fail("cannot write model.safetensors", NULL);
    w.header[w.used++] = '{';
    write_tensors(&w, s);
    w.header[w.used++] = '}';
    while (w.used % 8) w.header[w.used++] = ' ';
    bytes = w.used;
    if (fwrite(&bytes, 8, 1, w.file) != 1 || fwrite(w.header, 1, w.used, w.file) != w.used) fail("writing the model", NULL);
    w.data = 1;
    w.state = 88172645463325252u;
    write_tensors(&w, s);
    if (fclose(w.file) != 0) fail("writing the model", NULL);
    free(w.header);
}

/* ---- launches ---- */

typedef struct gpu {
    mgv__decoder *decoder;
    mgv__decoder_state state, others[MGV__DECODE_SESSIONS - 1]; /* of the others only the caches are used */
    uint32_t vocabulary, opened;
    mgv__sampling sampling;
} gpu;

static void open_gpu(gpu *g, const mgv_model *model, const char *kernels, uint32_t sms, uint32_t capacity, const mgv_parallel_for *parallel) {
    mgv__cuda_desc desc;
    mgv_error error;
    memset(&desc, 0, sizeof desc);
    memset((void *)g, 0, sizeof *g);
    desc.kernels = kernels;
    desc.allocator = model->allocator;
    desc.parallel = parallel;
    desc.max_clusters = sms / 2;
    g->vocabulary = model->config.vocabulary;
    if (mgv__decoder_create(&g->decoder, &desc, &model->config, &model->program, model->tensors, &error) != MGV_OK) fail("decoder", &error);
    if (mgv__decoder_open(&g->state, g->decoder, capacity, &error) != MGV_OK) fail("session", &error);
}
/* So many sessions in all. */
static void open_others(gpu *g, uint32_t sessions, uint32_t capacity) {
    mgv_error error;
    for (; g->opened + 1 < sessions; g->opened++)
        if (mgv__decoder_open(&g->others[g->opened], g->decoder, capacity, &error) != MGV_OK) fail("session", &error);
}
static void close_gpu(gpu *g) {
    while (g->opened > 0) mgv__decoder_close(&g->others[--g->opened]);
    mgv__decoder_close(&g->state);
    mgv__decoder_destroy(g->decoder);
}

/* Ids `given` at `position`, then chosen ones, in one launch for `sessions` alike. */
static void start(gpu *g, const uint32_t *given, uint32_t count, uint32_t position, uint32_t steps, uint32_t sessions) {
    mgv__decode_session all[MGV__DECODE_SESSIONS];
    mgv_error error;
    uint32_t i, k;
    for (k = 0; k < sessions; k++) {
        memcpy(g->state.ids + k * MGV__DECODE_STEPS, given, count * sizeof *given);
        all[k] = k > 0 && k <= g->opened ? g->others[k - 1].session : g->state.session;
        all[k].sampling = g->sampling;
        all[k].position = position;
        all[k].given = count;
        all[k].steps = steps;
    }
    for (i = 0; i < steps; i++) {
        const float at = (float)(position + i), where[3] = {at, at, at};
        for (k = 0; k < sessions; k++)
            mgv__decode_turn(g->decoder->plan.program, where, g->state.rotary + (i * sessions + k) * MGV__DECODE_HEAD_DIM);
    }
    if (mgv__decoder_start(&g->state, all, sessions, &error) != MGV_OK) fail("launch", &error);
}
static void finish(gpu *g) {
    mgv_error error;
    mgv_result result;
    while ((result = mgv__decoder_look(&g->state, &error)) == MGV_ERROR_BUSY) {}
    if (result != MGV_OK) fail("decoding", &error);
}
static void read_logits(gpu *g, float *logits) {
    if (cudaMemcpy(logits, g->state.session.logits, g->vocabulary * sizeof *logits, cudaMemcpyDeviceToHost) != cudaSuccess) fail("logits", NULL);
}

static uint32_t largest(const float *v, uint32_t count) {
    uint32_t best = 0, i;
    for (i = 1; i < count; i++)
        if (v[i] > v[best]) best = i;
    return best;
}
/* KL of a's softmax to b's. */
static double divergence(const float *a, const float *b, uint32_t count) {
    double largest_a = -1e30, largest_b = -1e30, sum_a = 0, sum_b = 0, kl = 0;
    uint32_t i;
    for (i = 0; i < count; i++) {
        if ((double)a[i] > largest_a) largest_a = (double)a[i];
        if ((double)b[i] > largest_b) largest_b = (double)b[i];
    }
    for (i = 0; i < count; i++) {
        sum_a += exp((double)a[i] - largest_a);
        sum_b += exp((double)b[i] - largest_b);
    }
    for (i = 0; i < count; i++) {
        const double log_a = (double)a[i] - largest_a - log(sum_a), log_b = (double)b[i] - largest_b - log(sum_b);
        kl += exp(log_b) * (log_b - log_a);
    }
    return kl;
}

enum { IDS = 150 };
static void check(mgv_model *model, const char *kernels, const mgv_parallel_for *parallel) {
    const uint32_t vocabulary = model->config.vocabulary;
    uint32_t ids[IDS], chosen[32], i, place;
    float *mine = (float *)malloc(vocabulary * 4), *other = (float *)malloc(vocabulary * 4);
    const float *logits;
    char line[200];
    gpu g;
    mgv_engine_desc engine_desc;
    mgv_session_desc session_desc;
    mgv_append_desc append;
    mgv_engine *engine;
    mgv_session *session;
    mgv_error error;
    if (!mine || !other) fail("memory", NULL);
    for (i = 0; i < IDS; i++) ids[i] = (uint32_t)((i * 2654435761u) % vocabulary);
    memset(&engine_desc, 0, sizeof engine_desc);
    memset(&session_desc, 0, sizeof session_desc);
    engine_desc.backend = MGV_BACKEND_CPU;
    engine_desc.parallel = *parallel;
    session_desc.capacity = 256;
    if (mgv_engine_create(&engine, model, &engine_desc, &error) != MGV_OK) fail("engine", &error);
    if (mgv_session_create(&session, engine, &session_desc, &error) != MGV_OK) fail("session", &error);
    open_gpu(&g, model, kernels, 0, 256, parallel);
    printf("# %u CTAs\n", g.decoder->ctas);
    for (place = 0, i = 0; place < IDS; place = i) {
        static const uint32_t ends[] = {1, 2, 10, 64, 127, 128, 129, 130, IDS};
        uint32_t k = 0;
        while (ends[k] <= place) k++;
        i = ends[k] - place > 64 ? place + 64 : ends[k];
        memset(&append, 0, sizeof append);
        append.ids = ids + place;
        append.id_count = i - place;
        if (mgv_session_append_blocking(session, &append, &error) != MGV_OK) fail("append", &error);
        mgv_session_logits(session, &logits, &k, &error);
        start(&g, ids + place, i - place, place, i - place, 1);
        finish(&g);
        read_logits(&g, mine);
        snprintf(line, sizeof line, "%u ids: relative error %.5f, KL %.2e, largest %u and %u", i, relative_l2(mine, logits, vocabulary),
                 divergence(mine, logits, vocabulary), largest(mine, vocabulary), largest(logits, vocabulary));
        ok(relative_l2(mine, logits, vocabulary) < 0.03 && g.state.result[0].steps == i - place, line);
        ok(g.state.chosen[i - place - 1] == largest(mine, vocabulary), "the id chosen has the largest logit");
    }
    /* 32 ids in one launch, and one by one. */
    chosen[0] = g.state.chosen[IDS - 130 - 1];
    start(&g, chosen, 1, IDS, 31, 1);
    finish(&g);
    memcpy(chosen + 1, g.state.chosen, 31 * sizeof *chosen);
    read_logits(&g, mine);
    for (i = 0; i < 31; i++) {
        start(&g, chosen + i, 1, IDS + i, 1, 1);
        finish(&g);
        if (g.state.chosen[0] != chosen[i + 1]) break;
    }
    read_logits(&g, other);
    ok(i == 31 && memcmp(mine, other, vocabulary * 4) == 0, "31 ids of one launch are those of 31 launches, and the last logits have the same bits");
    close_gpu(&g);
    open_gpu(&g, model, kernels, 66, 256, parallel);
    for (place = 0; place < 128; place += 64) {
        start(&g, ids + place, 64, place, 64, 1);
        finish(&g);
    }
    read_logits(&g, mine);
    close_gpu(&g);
    open_gpu(&g, model, kernels, 0, 256, parallel);
    for (place = 0; place < 128; place += 64) {
        start(&g, ids + place, 64, place, 64, 1);
        finish(&g);
    }
    read_logits(&g, other);
    ok(memcmp(mine, other, vocabulary * 4) == 0, "66 CTAs give the same bits");
    close_gpu(&g);
    mgv_session_destroy(session);
    mgv_engine_destroy(engine);
    free(mine);
    free(other);
}

static void time_one(gpu *g, uint32_t position, uint32_t sessions) {
    enum { ROUNDS = 12 };
    const uint32_t steps[2] = {1, 33}, first = 1;
    double best[2] = {1e30, 1e30};
    uint32_t k;
    int which;
    for (which = 0; which < 2; which++)
        for (k = 0; k < ROUNDS; k++) {
            double before;
            start(g, &first, 1, position, steps[which], sessions);
            finish(g);
            before = mgv__now_ms();
            start(g, &first, 1, position, steps[which], sessions);
            finish(g);
            before = mgv__now_ms() - before;
            if (before < best[which]) best[which] = before;
        }
    printf("%u sessions, position %u: %.1f us an id by itself, %.1f us an id of 32 (%.0f ids a second)\n", sessions, position, best[0] * 1e3,
           (best[1] - best[0]) / 32 * 1e3, sessions * 32e3 / (best[1] - best[0]));
}

enum { CAPACITY = 4200 };
static void open_timed(gpu *g, const mgv_model *model, const char *kernels, uint32_t sessions, const mgv_parallel_for *parallel) {
    const size_t bytes = (size_t)mgv__decoder_cache_bytes(&model->config, CAPACITY) * 2;
    uint32_t i;
    open_gpu(g, model, kernels, 0, CAPACITY, parallel);
    open_others(g, sessions, CAPACITY);
    cudaMemset(g->state.session.keys, 0, bytes);
    for (i = 0; i < g->opened; i++) cudaMemset(g->others[i].session.keys, 0, bytes);
    cudaDeviceSynchronize();
}
static void timing(mgv_model *model, const char *kernels, const mgv_parallel_for *parallel, int count, char **positions) {
    static const uint32_t usual[] = {1, 100, 300, 1000, 4000};
    uint32_t i, sessions;
    gpu g;
    open_timed(&g, model, kernels, MGV__DECODE_SESSIONS, parallel);
    for (sessions = 1; sessions <= MGV__DECODE_SESSIONS; sessions *= 2)
        for (i = 0; i < (count ? (uint32_t)count : 5); i++) time_one(&g, count ? (uint32_t)strtoul(positions[i], NULL, 10) : usual[i], sessions);
    close_gpu(&g);
}
/* The kernel for few sessions beside the one for any, A B A B: the same ids and logits, and which takes less. */
static void turns(mgv_model *model, const char *kernels, const mgv_parallel_for *parallel) {
    static const uint32_t positions[] = {1, 100, 1000, 4000};
    const uint32_t vocabulary = model->config.vocabulary, first = 1;
    float *logits[2] = {(float *)malloc(vocabulary * 4), (float *)malloc(vocabulary * 4)};
    static uint32_t chosen[2][MGV__DECODE_FEW * MGV__DECODE_STEPS];
    cudaKernel_t both[2];
    uint32_t i, k, sessions;
    gpu g;
    char line[160];
    if (!logits[0] || !logits[1]) fail("memory", NULL);
    open_timed(&g, model, kernels, MGV__DECODE_FEW, parallel);
    memcpy(both, g.decoder->kernel, sizeof both);
    for (sessions = 1; sessions <= MGV__DECODE_FEW; sessions *= 4)
        for (i = 0; i < sizeof positions / sizeof positions[0]; i++) {
            for (k = 0; k < 6; k++) {
                g.decoder->kernel[1] = both[(k + 1) % 2];
                printf("%s, ", k % 2 ? "any" : "few");
                time_one(&g, positions[i], sessions);
            }
            for (k = 0; k < 2; k++) {
                g.decoder->kernel[1] = both[k];
                start(&g, &first, 1, positions[i], MGV__DECODE_STEPS, sessions);
                finish(&g);
                memcpy(chosen[k], g.state.chosen, sizeof chosen[k]);
                read_logits(&g, logits[k]);
            }
            snprintf(line, sizeof line, "%u sessions at %u: both kernels give the same ids and logits", sessions, positions[i]);
            ok(memcmp(chosen[0], chosen[1], sizeof chosen[0]) == 0 && memcmp(logits[0], logits[1], vocabulary * 4) == 0, line);
        }
    g.decoder->kernel[1] = both[1];
    close_gpu(&g);
    free(logits[0]);
    free(logits[1]);
}
static const mgv_sample_desc settings[] = {{0, 0, 0, 0, 0, 0, 0}, {0, 0, 1, 0, 0, 0, 1}, {0, 50, 1, 0, 0, 0, 2}, {0, 0, 0.7f, 0.9f, 0, 0, 3},
                                           {0, 20, 0.6f, 0.95f, 0.05f, 0, 4}, {0, 0, 30, 0, 0, 0, 5}, {0, 0, 1, 0, 0.2f, 0, 6}};
enum { SETTINGS = sizeof settings / sizeof settings[0] };
static void chance(mgv_model *model, const char *kernels, const mgv_parallel_for *parallel) {
    uint32_t i, sessions;
    gpu g;
    open_timed(&g, model, kernels, MGV__DECODE_SESSIONS, parallel);
    for (sessions = 1; sessions <= MGV__DECODE_SESSIONS; sessions *= 8)
        for (i = 0; i < SETTINGS; i++) {
            memset(&g.sampling, 0, sizeof g.sampling);
            if (settings[i].temperature > 0) g.sampling = mgv__sampling_of(&settings[i]);
            printf("temperature %g, top_k %u, top_p %g, min_p %g: ", settings[i].temperature, settings[i].top_k, settings[i].top_p, settings[i].min_p);
            time_one(&g, 100, sessions);
        }
    close_gpu(&g);
}

/* Launches of full length for eight sessions, each twice: the same ids and logits. */
static void soak(mgv_model *model, const char *kernels, const mgv_parallel_for *parallel, uint32_t ids) {
    const uint32_t vocabulary = model->config.vocabulary;
    float *logits[2] = {(float *)malloc(vocabulary * 4), (float *)malloc(vocabulary * 4)};
    static uint32_t chosen[2][MGV__DECODE_SESSIONS * MGV__DECODE_STEPS];
    uint32_t done = 0, position = 0, launch = 0, sessions;
    int bad = 0;
    const double began = mgv__now_ms();
    gpu g;
    if (!logits[0] || !logits[1]) fail("memory", NULL);
    open_timed(&g, model, kernels, MGV__DECODE_SESSIONS, parallel);
    while (done < ids && !bad) {
        const uint32_t first = launch * 7919u % vocabulary;
        int k;
        if (position + MGV__DECODE_STEPS > CAPACITY) position = 0;
        sessions = 1 + launch % MGV__DECODE_SESSIONS;
        memset(&g.sampling, 0, sizeof g.sampling);
        if (settings[launch % SETTINGS].temperature > 0) g.sampling = mgv__sampling_of(&settings[launch % SETTINGS]);
        for (k = 0; k < 2; k++) {
            start(&g, &first, 1, position, MGV__DECODE_STEPS, sessions);
            finish(&g);
            read_logits(&g, logits[k]);
            memcpy(chosen[k], g.state.chosen, sessions * MGV__DECODE_STEPS * 4);
            done += sessions * MGV__DECODE_STEPS;
        }
        bad = memcmp(logits[0], logits[1], vocabulary * 4) != 0 || memcmp(chosen[0], chosen[1], sessions * MGV__DECODE_STEPS * 4) != 0;
        if (bad) printf("# launch %u, %u sessions at %u: other ids or logits the second time\n", launch, sessions, position);
        position += MGV__DECODE_STEPS;
        launch++;
    }
    printf("# %u ids in %.1f s\n", done, (mgv__now_ms() - began) / 1e3);
    ok(!bad, "the soak: every launch twice, the same ids, the same logits");
    close_gpu(&g);
    free(logits[0]);
    free(logits[1]);
}

static void hold(mgv_model *model, const char *kernels, const mgv_parallel_for *parallel, uint32_t seconds, uint32_t sessions) {
    uint32_t ids = 0, position = 1;
    const uint32_t first = 1;
    double began, now;
    gpu g;
    open_timed(&g, model, kernels, sessions, parallel);
    began = mgv__now_ms();
    printf("# begin\n");
    do {
        start(&g, &first, 1, position, MGV__DECODE_STEPS, sessions);
        finish(&g);
        ids += sessions * MGV__DECODE_STEPS;
        position = position >= 300 ? 1 : position + MGV__DECODE_STEPS;
        now = mgv__now_ms();
    } while (now - began < seconds * 1e3);
    printf("%u sessions, positions 1 to 300: %.0f ids a second for %.1f s\n", sessions, ids / (now - began) * 1e3, (now - began) / 1e3);
    close_gpu(&g);
}

/* Prompt i: 8 + 5 i mod 993 ids, number k of which is (k * 2654435761 + i * 40503) mod 2^32 mod the vocabulary. */
static void dump(mgv_model *model, const char *kernels, const mgv_parallel_for *parallel, const char *path, uint32_t prompts) {
    const uint32_t vocabulary = model->config.vocabulary;
    float *logits = (float *)malloc(vocabulary * 4);
    FILE *file = fopen(path, "wb");
    uint32_t first, i, k;
    gpu g;
    if (!logits || !file) fail(path, NULL);
    open_timed(&g, model, kernels, MGV__DECODE_SESSIONS, parallel);
    for (first = 0; first < prompts; first += MGV__DECODE_SESSIONS) {
        const uint32_t count = prompts - first < MGV__DECODE_SESSIONS ? prompts - first : MGV__DECODE_SESSIONS;
        uint32_t done[MGV__DECODE_SESSIONS] = {0};
        for (;;) {
            mgv__decode_session all[MGV__DECODE_SESSIONS];
            uint32_t which[MGV__DECODE_SESSIONS], n = 0;
            mgv_error error;
            for (i = 0; i < count; i++)
                if (done[i] < 8 + (first + i) * 5 % 993) which[n++] = i;
            if (n == 0) break;
            for (i = 0; i < n; i++) {
                const uint32_t prompt = first + which[i], length = 8 + prompt * 5 % 993, at = done[which[i]];
                const uint32_t now = length - at < MGV__DECODE_STEPS ? length - at : MGV__DECODE_STEPS;
                all[i] = which[i] ? g.others[which[i] - 1].session : g.state.session;
                all[i].position = at;
                all[i].steps = now;
                all[i].given = now + (at + now < length); /* no head before the last id */
                for (k = 0; k < now; k++) {
                    const float turn = (float)(at + k), where[3] = {turn, turn, turn};
                    g.state.ids[i * MGV__DECODE_STEPS + k] = ((at + k) * 2654435761u + prompt * 40503u) % vocabulary;
                    mgv__decode_turn(g.decoder->plan.program, where, g.state.rotary + (k * n + i) * MGV__DECODE_HEAD_DIM);
                }
                done[which[i]] = at + now;
            }
            if (mgv__decoder_start(&g.state, all, n, &error) != MGV_OK) fail("launch", &error);
            finish(&g);
        }
        for (i = 0; i < count; i++) {
            const float *from = i ? g.others[i - 1].session.logits : g.state.session.logits;
            if (cudaMemcpy(logits, from, vocabulary * 4, cudaMemcpyDeviceToHost) != cudaSuccess || fwrite(logits, 4, vocabulary, file) != vocabulary)
                fail(path, NULL);
        }
    }
    if (fclose(file) != 0) fail(path, NULL);
    close_gpu(&g);
    free(logits);
}

/* Launches of two engines that share the card give what one alone gives. */
static void engines(mgv_model *model, const char *kernels, const mgv_parallel_for *parallel) {
    const uint32_t vocabulary = model->config.vocabulary, first = 5;
    float *alone = (float *)malloc(vocabulary * 4), *beside = (float *)malloc(vocabulary * 4);
    int k, same = 1;
    gpu whole, half[2];
    if (!alone || !beside) fail("memory", NULL);
    open_gpu(&whole, model, kernels, 0, 256, parallel);
    start(&whole, &first, 1, 0, MGV__DECODE_STEPS, 1);
    finish(&whole);
    read_logits(&whole, alone);
    close_gpu(&whole);
    for (k = 0; k < 2; k++) open_gpu(&half[k], model, kernels, 66, 256, parallel);
    for (k = 0; k < 20; k++) {
        start(&half[0], &first, 1, 0, MGV__DECODE_STEPS, 1);
        start(&half[1], &first, 1, 0, MGV__DECODE_STEPS, 1);
        finish(&half[0]);
        finish(&half[1]);
        read_logits(&half[0], beside);
        same &= memcmp(alone, beside, vocabulary * 4) == 0;
        read_logits(&half[1], beside);
        same &= memcmp(alone, beside, vocabulary * 4) == 0;
    }
    ok(same, "two engines of 66 CTAs at once, 20 times: the bits of one of 132");
    for (k = 0; k < 2; k++) close_gpu(&half[k]);
    free(alone);
    free(beside);
}

/* ---- sessions ---- */

static void append_prompt(mgv_session *session, uint32_t count, uint32_t seed) {
    uint32_t ids[64], i;
    mgv_append_desc append;
    mgv_error error;
    for (i = 0; i < count; i++) ids[i] = (i * 2654435761u + seed * 40503u) % VOCABULARY;
    memset(&append, 0, sizeof append);
    append.ids = ids;
    append.id_count = count;
    if (mgv_session_rollback(session, 0, &error) != MGV_OK || mgv_session_append_blocking(session, &append, &error) != MGV_OK) fail("append", &error);
}
static void generate(mgv_session *const *sessions, uint32_t count, uint32_t (*ids)[70], const uint32_t *lengths, const mgv_sample_desc *sampling) {
    mgv_generate_desc descs[10];
    uint32_t counts[10], i;
    int32_t stopped[10];
    mgv_error error;
    memset(descs, 0, sizeof descs);
    for (i = 0; i < count; i++) {
        descs[i].ids = ids[i];
        descs[i].id_capacity = lengths[i];
        descs[i].sampling = sampling + i;
    }
    if (mgv_sessions_generate(sessions, descs, count, counts, stopped, &error) != MGV_OK) fail("generate", &error);
    for (i = 0; i < count; i++)
        if (counts[i] != lengths[i]) fail("generate: too few ids", NULL);
}
static void sessions_of_public(mgv_model *model, const char *kernels, const mgv_parallel_for *parallel) {
    enum { SESSIONS = 10, LENGTH = 70 };
    static uint32_t together[SESSIONS][LENGTH], alone[SESSIONS][LENGTH];
    const uint32_t vocabulary = model->config.vocabulary;
    mgv_sample_desc sampling[SESSIONS];
    uint32_t lengths[SESSIONS], i, k, same;
    float *logits = (float *)malloc((size_t)SESSIONS * vocabulary * 4);
    const float *behind;
    mgv_engine_desc engine_desc;
    mgv_session_desc session_desc;
    mgv_engine *engine;
    mgv_session *sessions[SESSIONS];
    mgv_error error;
    char line[160];
    memset(&engine_desc, 0, sizeof engine_desc);
    memset(&session_desc, 0, sizeof session_desc);
    engine_desc.backend = MGV_BACKEND_CUDA;
    engine_desc.kernels = kernels;
    engine_desc.parallel = *parallel;
    session_desc.capacity = 512;
    if (!logits || mgv_engine_create(&engine, model, &engine_desc, &error) != MGV_OK) fail("engine", &error);
    for (i = 0; i < SESSIONS; i++)
        if (mgv_session_create(&sessions[i], engine, &session_desc, &error) != MGV_OK) fail("session", &error);
    for (k = 0; k < SETTINGS; k++) {
        const uint32_t length = LENGTH;
        append_prompt(sessions[0], 20, k);
        generate(sessions, 1, together, &length, settings + k);
        append_prompt(sessions[0], 20, k);
        for (i = same = 0; i < LENGTH; i++) {
            uint32_t id;
            if (mgv_session_sample(sessions[0], settings + k, &id, &error) != MGV_OK) fail("sample", &error);
            same += id == together[0][i];
            if (mgv_session_step(sessions[0], id, &error) != MGV_OK) fail("step", &error);
        }
        snprintf(line, sizeof line, "temperature %g, top_k %u, top_p %g, min_p %g: %u of %u ids as the host chooses", settings[k].temperature,
                 settings[k].top_k, settings[k].top_p, settings[k].min_p, same, (uint32_t)LENGTH);
        ok(same == LENGTH, line);
    }
    for (i = 0; i < SESSIONS; i++) {
        sampling[i] = settings[i % SETTINGS];
        sampling[i].seed = i;
        lengths[i] = LENGTH - i * 3;
        append_prompt(sessions[i], 1 + i * 13 % 60, i);
        generate(&sessions[i], 1, &alone[i], &lengths[i], &sampling[i]);
        if (mgv_session_logits(sessions[i], &behind, &k, &error) != MGV_OK) fail("logits", &error);
        memcpy(logits + (size_t)i * vocabulary, behind, vocabulary * 4);
        append_prompt(sessions[i], 1 + i * 13 % 60, i);
    }
    generate(sessions, SESSIONS, together, lengths, sampling);
    for (i = same = 0; i < SESSIONS; i++) {
        mgv_session_logits(sessions[i], &behind, &k, &error);
        same += memcmp(alone[i], together[i], lengths[i] * 4) == 0 && memcmp(behind, logits + (size_t)i * vocabulary, vocabulary * 4) == 0;
    }
    snprintf(line, sizeof line, "%u of %u sessions together have the ids and logits that each has alone", same, (uint32_t)SESSIONS);
    ok(same == SESSIONS, line);
    for (i = 0; i < SESSIONS; i++) mgv_session_destroy(sessions[i]);
    mgv_engine_destroy(engine);
    free(logits);
}

int main(int count, char **arguments) {
    card c;
    const char *const what = count > 1 ? arguments[1] : "";
    if (count > 2 && strcmp(what, "make") == 0) {
        make(arguments[2], count > 3 ? arguments[3] : "0.6b");
        return 0;
    }
    if (count < 4) return 2;
    c = open_card(arguments[2], arguments[3]);
    if (strcmp(what, "check") == 0) check(c.model, c.kernels, &c.parallel);
    else if (strcmp(what, "public") == 0) sessions_of_public(c.model, c.kernels, &c.parallel);
    else if (strcmp(what, "hold") == 0 && count > 5)
        hold(c.model, c.kernels, &c.parallel, (uint32_t)strtoul(arguments[4], NULL, 10), (uint32_t)strtoul(arguments[5], NULL, 10));
    else if (strcmp(what, "dump") == 0 && count > 5)
        dump(c.model, c.kernels, &c.parallel, arguments[4], (uint32_t)strtoul(arguments[5], NULL, 10));
    else if (strcmp(what, "engines") == 0) engines(c.model, c.kernels, &c.parallel);
    else if (strcmp(what, "turns") == 0) turns(c.model, c.kernels, &c.parallel);
    else if (strcmp(what, "chance") == 0) chance(c.model, c.kernels, &c.parallel);
    else if (strcmp(what, "soak") == 0)
        soak(c.model, c.kernels, &c.parallel, count > 4 ? (uint32_t)strtoul(arguments[4], NULL, 10) : 200000);
    else if (strcmp(what, "time") == 0) timing(c.model, c.kernels, &c.parallel, count - 4, arguments + 4);
    else fail("no such part", NULL);
    return close_card(&c);
}
