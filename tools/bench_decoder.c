/* How fast a language model answers on the CPU: a prompt of made-up ids, then one id after the other. tools/bench_decoder_torch.py makes
   the directory and sets the figures beside PyTorch's.

     bench_decoder DIRECTORY [PROMPT [STEPS [THREADS [PRECISION [LOGITS]]]]]
         1000 ids, 32 steps, 2 threads, auto or fast; LOGITS: a file for the prompt's */
#define MEGAVIT_TEXT
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

#include <stdio.h>

static void check(mgv_result result, const mgv_error *error) {
    if (result == MGV_OK) return;
    fprintf(stderr, "bench_decoder: %s\n", error->message);
    exit(1);
}
/* The library's clock, and the time that all threads of this process have had. */
static double processor_ms(void) { return (double)clock() * 1e3 / (double)CLOCKS_PER_SEC; }

static void write_logits(const mgv_session *session, const char *name) {
    const float *logits;
    uint32_t count;
    mgv_error error;
    FILE *file = fopen(name, "wb");
    check(mgv_session_logits(session, &logits, &count, &error), &error);
    if (!file || fwrite(logits, sizeof *logits, count, file) != count || fclose(file) != 0) {
        fprintf(stderr, "bench_decoder: cannot write %s\n", name);
        exit(1);
    }
}

int main(int count, char **arguments) {
    const uint32_t prompt = count > 2 ? (uint32_t)strtoul(arguments[2], NULL, 10) : 1000;
    const uint32_t steps = count > 3 ? (uint32_t)strtoul(arguments[3], NULL, 10) : 32;
    const uint32_t thread_count = count > 4 ? (uint32_t)strtoul(arguments[4], NULL, 10) : 2;
    uint32_t *ids = (uint32_t *)malloc((prompt + 1) * sizeof *ids), i, id;
    double wall, processor, best = 1e30;
    mgv_model_desc model_desc;
    mgv_engine_desc engine_desc;
    mgv_session_desc session_desc;
    mgv_append_desc append;
    mgv_model_info info;
    mgv_model *model;
    mgv_threads *threads;
    mgv_engine *engine;
    mgv_session *session;
    mgv_error error;
    if (count < 2 || prompt == 0 || !ids) {
        fprintf(stderr, "bench_decoder DIRECTORY [PROMPT [STEPS [THREADS [PRECISION [LOGITS]]]]]\n");
        return 2;
    }
    memset(&model_desc, 0, sizeof model_desc);
    memset(&engine_desc, 0, sizeof engine_desc);
    memset(&session_desc, 0, sizeof session_desc);
    memset(&append, 0, sizeof append);
    model_desc.path = arguments[1];
    model_desc.tower = MGV_TOWER_LANGUAGE;
    check(mgv_model_open(&model, &model_desc, &error), &error);
    check(mgv_model_get_info(model, &info), &error);
    check(mgv_threads_create(&threads, thread_count, NULL, &error), &error);
    if (count > 5) check(mgv_precision_of_name(arguments[5], &engine_desc.precision, &error), &error);
    engine_desc.parallel = mgv_threads_parallel_for(threads);
    check(mgv_engine_create(&engine, model, &engine_desc, &error), &error);
    session_desc.capacity = prompt + steps;
    check(mgv_session_create(&session, engine, &session_desc, &error), &error);
    for (i = 0; i < prompt; i++) ids[i] = (uint32_t)((i * 2654435761u) % info.vocabulary); /* as the Python half has them */
    append.ids = ids;
    append.id_count = prompt;
    wall = mgv__now_ms();
    processor = processor_ms();
    check(mgv_session_append_blocking(session, &append, &error), &error);
    printf("prompt %.1f ms, processor time %.1f ms\n", mgv__now_ms() - wall, processor_ms() - processor);
    if (count > 6) write_logits(session, arguments[6]);
    processor = processor_ms();
    for (i = 0; i < steps; i++) {
        wall = mgv__now_ms();
        check(mgv_session_sample(session, NULL, &id, &error), &error);
        check(mgv_session_step(session, id, &error), &error);
        wall = mgv__now_ms() - wall;
        if (wall < best) best = wall;
    }
    if (steps) printf("step best %.2f ms, processor time %.2f ms\n", best, (processor_ms() - processor) / steps);
    mgv_session_destroy(session);
    mgv_engine_destroy(engine);
    mgv_threads_destroy(threads);
    mgv_model_close(model);
    free(ids);
    return 0;
}
