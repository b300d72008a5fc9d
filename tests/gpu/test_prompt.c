/* Prompts on a card: against the CPU backend, cut anywhere, then timed.

     test_prompt check DIRECTORY FATBIN     logits behind prompts of some lengths, cuts, ids generated behind them
     test_prompt time DIRECTORY FATBIN...   prompts of 1 to 8,192 ids, ms; of several builds in turns
     test_prompt picture DIRECTORY FATBIN FILE  of a Qwen3-VL: ms of a picture and 32 ids to the first logits, which go to FILE as
                                            float32 for tests/gpu/pictures.py; rows never leave the card
     test_prompt logits DIRECTORY FATBIN FILE  those behind prompts of `lengths` ids, float32, for tests/gpu/prompts.py; then a full cache

   DIRECTORY: of test_decode make. Id i is i * 2654435761 mod 2^32, mod the vocabulary. */
#define PROGRAM "test_prompt"
#include "card.h"

enum { MOST = 32768 }; /* positions that Qwen3 is made for */
static uint32_t ids[MOST];
typedef struct side {
    mgv_engine *engine;
    mgv_session *session;
} side;
static side open_side(const mgv_model *model, mgv_backend backend, const char *kernels, uint32_t sms, uint32_t capacity, uint32_t block,
                      const mgv_parallel_for *parallel) {
    mgv_engine_desc desc;
    mgv_session_desc session;
    mgv_error error;
    side s;
    memset(&desc, 0, sizeof desc);
    memset(&session, 0, sizeof session);
    desc.backend = backend;
    desc.kernels = kernels;
    desc.parallel = *parallel;
    desc.max_sms = sms;
    session.capacity = capacity;
    session.block = block;
    if (mgv_engine_create(&s.engine, model, &desc, &error) != MGV_OK) fail("engine", &error);
    if (mgv_session_create(&s.session, s.engine, &session, &error) != MGV_OK) fail("session", &error);
    return s;
}
static void close_side(side *s) {
    mgv_session_destroy(s->session);
    mgv_engine_destroy(s->engine);
}
static void append(const side *s, uint32_t first, uint32_t end) {
    mgv_append_desc desc;
    mgv_error error;
    memset(&desc, 0, sizeof desc);
    desc.ids = ids + first;
    desc.id_count = end - first;
    if (mgv_session_append_blocking(s->session, &desc, &error) != MGV_OK) fail("append", &error);
}
static const float *logits_of(const side *s) {
    const float *logits;
    uint32_t count;
    mgv_error error;
    if (mgv_session_logits(s->session, &logits, &count, &error) != MGV_OK) fail("logits", &error);
    return logits;
}
static void check(const mgv_model *model, const char *kernels, const mgv_parallel_for *parallel) {
    static const uint32_t ends[] = {1, 2, 17, 128, 129, 300};
    static const uint32_t cuts[][4] = {{300}, {1, 2, 3, 300}, {64, 130, 300}, {127, 128, 129, 300}, {256, 300}};
    const uint32_t vocabulary = model->config.vocabulary;
    float *first = (float *)malloc(vocabulary * sizeof *first);
    char line[200];
    side gpu = open_side(model, MGV_BACKEND_CUDA, kernels, 0, 2400, 0, parallel), cpu = open_side(model, MGV_BACKEND_CPU, NULL, 0, 400, 0, parallel);
    side few = open_side(model, MGV_BACKEND_CUDA, kernels, 66, 400, 100, parallel);
    mgv_error error;
    uint32_t i, k, done = 0;
    if (!first) fail("memory", NULL);
    for (i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        double distance;
        append(&cpu, done, ends[i]);
        done = ends[i];
        mgv_session_rollback(gpu.session, 0, &error);
        append(&gpu, 0, ends[i]);
        distance = relative_l2(logits_of(&gpu), logits_of(&cpu), vocabulary);
        snprintf(line, sizeof line, "a prompt of %u ids: relative error %.5f", ends[i], distance);
        ok(distance < 0.03, line);
    }
    memcpy(first, logits_of(&gpu), vocabulary * sizeof *first);
    for (i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        mgv_session_rollback(gpu.session, 0, &error);
        for (k = 0, done = 0; done < 300; done = cuts[i][k++]) append(&gpu, done, cuts[i][k]);
        snprintf(line, sizeof line, "cut in %u: the same bits", k);
        ok(memcmp(first, logits_of(&gpu), vocabulary * sizeof *first) == 0, line);
    }
    append(&few, 0, 300);
    ok(memcmp(first, logits_of(&few), vocabulary * sizeof *first) == 0, "66 multiprocessors, blocks of 100: the same bits");
    for (i = 300; i < 304; i++) { /* behind it id by id */
        double distance;
        if (mgv_session_step(gpu.session, ids[i], &error) != MGV_OK || mgv_session_step(cpu.session, ids[i], &error) != MGV_OK) fail("step", &error);
        distance = relative_l2(logits_of(&gpu), logits_of(&cpu), vocabulary);
        snprintf(line, sizeof line, "step %u behind a prompt: relative error %.5f", i - 299, distance);
        ok(distance < 0.03, line);
    }
    mgv_session_rollback(gpu.session, 0, &error);
    append(&gpu, 0, 2300);
    memcpy(first, logits_of(&gpu), vocabulary * sizeof *first);
    mgv_session_rollback(gpu.session, 0, &error);
    append(&gpu, 0, 777);
    append(&gpu, 777, 2300);
    ok(memcmp(first, logits_of(&gpu), vocabulary * sizeof *first) == 0, "2,300 ids, three launches, cut elsewhere: the same bits");
    mgv_session_rollback(gpu.session, 2290, &error);
    for (i = 2290; i < 2300; i++)
        if (mgv_session_step(gpu.session, ids[i], &error) != MGV_OK) fail("step", &error);
    snprintf(line, sizeof line, "the last ten id by id: relative difference %.5f", relative_l2(logits_of(&gpu), first, vocabulary));
    ok(relative_l2(logits_of(&gpu), first, vocabulary) < 0.03, line);
    close_side(&gpu);
    close_side(&few);
    close_side(&cpu);
    free(first);
}

static int by_size(const void *a, const void *b) { return *(const double *)a < *(const double *)b ? -1 : *(const double *)a > *(const double *)b; }

/* Builds of the kernels in turns, so that which one is faster depends on nothing else. Each has the first one's bits, whole and cut. */
enum { BUILDS = 8 };
static double time_once(const side *gpu, uint32_t count) {
    mgv_error error;
    double began;
    mgv_session_rollback(gpu->session, 0, &error);
    began = mgv__now_ms();
    append(gpu, 0, count);
    return mgv__now_ms() - began;
}
static void same_bits(const mgv_model *model, const side *first, side *gpu, const char *name) {
    const size_t bytes = model->config.vocabulary * sizeof(float);
    float *logits = (float *)malloc(bytes);
    mgv_error error;
    char line[300];
    if (!logits) fail("memory", NULL);
    time_once(first, 1000);
    memcpy(logits, logits_of(first), bytes);
    time_once(gpu, 1000);
    snprintf(line, sizeof line, "%s: the same bits", name);
    ok(memcmp(logits, logits_of(gpu), bytes) == 0, line);
    mgv_session_rollback(gpu->session, 0, &error);
    append(gpu, 0, 17);
    append(gpu, 17, 100);
    append(gpu, 100, 777);
    append(gpu, 777, 1000);
    snprintf(line, sizeof line, "%s, cut in four: the same bits", name);
    ok(memcmp(logits, logits_of(gpu), bytes) == 0, line);
    free(logits);
}
static void timing(const mgv_model *model, char **kernels, uint32_t builds, char **names, const mgv_parallel_for *parallel) {
    static const uint32_t counts[] = {1, 16, 32, 100, 128, 256, 512, 1000, 1024, 2048, 4096, 8192};
    side gpu[BUILDS];
    uint32_t i, k, b;
    for (b = 0; b < builds; b++) {
        gpu[b] = open_side(model, MGV_BACKEND_CUDA, kernels[b], 0,
                            counts[sizeof counts / sizeof counts[0] - 1] + 8, 0, parallel);
        same_bits(model, &gpu[0], &gpu[b], names[b]);
    }
    for (i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        enum { ROUNDS = 11 };
        double ms[BUILDS][ROUNDS];
        for (k = 0; k < ROUNDS; k++)
            for (b = 0; b < builds; b++) ms[b][k] = time_once(&gpu[b], counts[i]);
        for (b = 0; b < builds; b++) {
            qsort(ms[b], ROUNDS, sizeof ms[b][0], by_size);
            printf("prompt of %u ids: %.3f ms (median of %u), %.0f ids a second%s%s\n", counts[i], ms[b][ROUNDS / 2], (unsigned)ROUNDS,
                   counts[i] * 1e3 / ms[b][ROUNDS / 2], builds > 1 ? ", " : "", builds > 1 ? names[b] : "");
        }
    }
    for (b = 0; b < builds; b++) close_side(&gpu[b]);
}

/* A picture and 32 ids behind it, rows on the card between tower and decoder; the logits have the same bits where the rows went through
   host memory. */
typedef struct pictured {
    mgv_engine *engine;
    mgv_session *session;
    float *rows, *host;     /* room for `floats`: on the card, on the host */
    uint64_t floats;
    uint32_t *prompt;
} pictured;
static void append_picture(const pictured *p, const mgv_picture *picture) {
    mgv_append_desc desc;
    mgv_error error;
    memset(&desc, 0, sizeof desc);
    desc.ids = p->prompt;
    desc.id_count = picture->grid.merged_tokens + 32;
    desc.pictures = picture;
    desc.picture_count = 1;
    mgv_session_rollback(p->session, 0, &error);
    if (mgv_session_append_blocking(p->session, &desc, &error) != MGV_OK) fail("append", &error);
}
static const float *session_logits(mgv_session *session) {
    const float *logits;
    uint32_t count;
    mgv_error error;
    if (mgv_session_logits(session, &logits, &count, &error) != MGV_OK) fail("logits", &error);
    return logits;
}
static void time_picture(const mgv_model *model, pictured *p, uint32_t side, FILE *file) {
    enum { ROUNDS = 9 };
    const size_t bytes = (size_t)side * side * 3;
    const uint32_t vocabulary = model->config.vocabulary;
    uint8_t *pixels = (uint8_t *)malloc(bytes);
    float *first = (float *)malloc(vocabulary * sizeof *first);
    double encode[ROUNDS], all[ROUNDS];
    mgv_image image;
    mgv_picture picture;
    mgv_error error;
    uint64_t floats;
    uint32_t i, k;
    if (!pixels || !first) fail("memory", NULL);
    for (i = 0; i < bytes; i++) pixels[i] = (uint8_t)(i * 2654435761u >> 24);
    memset(&image, 0, sizeof image);
    image.pixels = pixels;
    image.width = image.height = side;
    for (k = 0; k < ROUNDS; k++) {
        const double before = mgv__now_ms();
        if (mgv_picture_encode(p->engine, &image, p->rows, p->floats, &floats, &picture, &error) != MGV_OK) fail("encode", &error);
        encode[k] = mgv__now_ms() - before;
        for (i = 0; i < picture.grid.merged_tokens; i++) p->prompt[i] = model->config.image_id;
        memcpy(p->prompt + i, ids, 32 * sizeof *p->prompt);
        append_picture(p, &picture);
        session_logits(p->session);
        all[k] = mgv__now_ms() - before;
    }
    memcpy(first, session_logits(p->session), vocabulary * sizeof *first);
    if (fwrite(first, 4, vocabulary, file) != vocabulary) fail("writing logits", NULL);
    qsort(encode, ROUNDS, sizeof encode[0], by_size);
    qsort(all, ROUNDS, sizeof all[0], by_size);
    printf("picture of %u x %u, %u rows, and 32 ids: %.3f ms to the logits, %.3f of them the tower\n", side, side,
           picture.grid.merged_tokens, all[ROUNDS / 2], encode[ROUNDS / 2]);
    if (mgv_picture_encode(p->engine, &image, p->host, p->floats, &floats, &picture, &error) != MGV_OK) fail("encode", &error);
    append_picture(p, &picture);
    ok(memcmp(first, session_logits(p->session), vocabulary * sizeof *first) == 0, "rows through host memory: the same bits");
    free(pixels);
    free(first);
}
static void picture_timing(const mgv_model *model, const char *kernels, const mgv_parallel_for *parallel, const char *path) {
    static const uint32_t sides[] = {256, 512, 1024};
    mgv_engine_desc engine_desc;
    mgv_session_desc session_desc;
    mgv_model_info info;
    mgv_error error;
    pictured p;
    FILE *file = fopen(path, "wb");
    uint32_t s;
    if (!file) fail(path, NULL);
    memset(&engine_desc, 0, sizeof engine_desc);
    memset(&session_desc, 0, sizeof session_desc);
    engine_desc.backend = MGV_BACKEND_CUDA;
    engine_desc.kernels = kernels;
    engine_desc.parallel = *parallel;
    engine_desc.max_width = engine_desc.max_height = 1024;
    engine_desc.max_tokens = 4096;
    session_desc.capacity = 1200;
    if (mgv_engine_create(&p.engine, model, &engine_desc, &error) != MGV_OK) fail("engine", &error);
    if (mgv_session_create(&p.session, p.engine, &session_desc, &error) != MGV_OK) fail("session", &error);
    mgv_model_get_info(model, &info);
    p.floats = (uint64_t)(1 + info.deepstack_count) * 1024 * info.token_width;
    p.host = (float *)malloc(p.floats * 4);
    p.prompt = (uint32_t *)malloc(1200 * sizeof *p.prompt);
    if (!p.host || !p.prompt || cudaMalloc((void **)&p.rows, p.floats * 4) != cudaSuccess) fail("rows", NULL);
    ok(p.engine->gpu != NULL, "the tower runs on the card");
    for (s = 0; s < sizeof sides / sizeof sides[0]; s++) time_picture(model, &p, sides[s], file);
    if (fclose(file) != 0) fail(path, NULL);
    cudaFree(p.rows);
    free(p.host);
    free(p.prompt);
    mgv_session_destroy(p.session);
    mgv_engine_destroy(p.engine);
}

/* The cache of a prompt of all but one of its ids: the last ten of them id by id, the one that is left, one too many. */
static void fill_cache(const side *gpu, uint32_t vocabulary) {
    enum { LAST = 10 };
    float *prompt = (float *)malloc(vocabulary * sizeof *prompt);
    char line[600];
    mgv_error error;
    double distance;
    uint32_t i;
    if (!prompt) fail("memory", NULL);
    memcpy(prompt, logits_of(gpu), vocabulary * sizeof *prompt);
    if (mgv_session_rollback(gpu->session, MOST - 1 - LAST, &error) != MGV_OK) fail("rollback", &error);
    for (i = MOST - 1 - LAST; i < MOST - 1; i++)
        if (mgv_session_step(gpu->session, ids[i], &error) != MGV_OK) fail("step", &error);
    distance = relative_l2(logits_of(gpu), prompt, vocabulary);
    snprintf(line, sizeof line, "ids up to %u one by one: relative difference %.5f", (unsigned)MOST - 1, distance);
    ok(distance < 0.03, line);
    if (mgv_session_step(gpu->session, ids[MOST - 1], &error) != MGV_OK) fail("the last place", &error);
    memcpy(prompt, logits_of(gpu), vocabulary * sizeof *prompt);
    ok(mgv_session_step(gpu->session, ids[0], &error) != MGV_OK, "an id too many is refused");
    snprintf(line, sizeof line, "in words: %s", error.message);
    ok(strstr(error.message, "32768") != NULL, line);
    if (mgv_session_rollback(gpu->session, MOST - 1, &error) != MGV_OK) fail("rollback", &error);
    if (mgv_session_step(gpu->session, ids[MOST - 1], &error) != MGV_OK) fail("the last place again", &error);
    ok(memcmp(prompt, logits_of(gpu), vocabulary * sizeof *prompt) == 0, "the last place again behind it: the same bits");
    free(prompt);
}
static void write_logits(const mgv_model *model, const char *kernels, const mgv_parallel_for *parallel, const char *path) {
    static const uint32_t lengths[] = {5, 50, 100, 200, 500, 1000, 8000, MOST - 1};
    side gpu = open_side(model, MGV_BACKEND_CUDA, kernels, 0, MOST, 0, parallel);
    FILE *file = fopen(path, "wb");
    mgv_error error;
    uint32_t i;
    if (!file) fail(path, NULL);
    for (i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        mgv_session_rollback(gpu.session, 0, &error);
        append(&gpu, 0, lengths[i]);
        if (fwrite(logits_of(&gpu), 4, model->config.vocabulary, file) != model->config.vocabulary) fail(path, NULL);
    }
    if (fclose(file) != 0) fail(path, NULL);
    fill_cache(&gpu, model->config.vocabulary);
    close_side(&gpu);
}

int main(int count, char **arguments) {
    card c;
    uint32_t i;
    if (count < 4) return 2;
    c = open_card(arguments[2], arguments[3]);
    for (i = 0; i < MOST; i++) ids[i] = (uint32_t)(i * 2654435761u) % c.model->config.vocabulary;
    if (strcmp(arguments[1], "check") == 0) check(c.model, c.kernels, &c.parallel);
    else if (strcmp(arguments[1], "picture") == 0 && count > 4)
        picture_timing(c.model, c.kernels, &c.parallel, arguments[4]);
    else if (strcmp(arguments[1], "logits") == 0 && count > 4) write_logits(c.model, c.kernels, &c.parallel, arguments[4]);
    else if (strcmp(arguments[1], "time") == 0) {
        char *kernels[BUILDS];
        const uint32_t builds = (uint32_t)(count - 3 < BUILDS ? count - 3 : BUILDS);
        for (i = 0; i < builds; i++) kernels[i] = i ? read_file(arguments[3 + i]) : c.kernels;
        timing(c.model, kernels, builds, arguments + 3, &c.parallel);
        for (i = 1; i < builds; i++) free(kernels[i]);
    }
    else fail("no such part", NULL);
    return close_card(&c);
}
