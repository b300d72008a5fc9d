/* Language models on the CPU against transformers: logits behind prompts and pictures, and the ids that follow greedily. */
#define MEGAVIT_TEXT
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "support.h"

#include "decoder.h"

/* Of all that this machine has: plain C adds up in another order. */
static const mgv__cpu_kernels *under_test;

enum { TEXT_IDS = 120 }; /* of Qwen3-VL; those above are placeholders */

static size_t read_ids(char *text, uint32_t *ids) {
    size_t count = 0, i;
    char *p = text;
    if (*text == '-') return 0;
    if (strncmp(text, "rule:", 5) == 0) {
        count = strtoul(text + 5, NULL, 10);
        for (i = 0; i < count; i++) ids[i] = (uint32_t)(decoder_rule_bits("long", i) % 64);
        return count;
    }
    for (;; p++) {
        assert_true(count < DECODER_MOST_IDS);
        ids[count++] = (uint32_t)strtoul(p, &p, 10);
        if (*p != ',') return count;
    }
}
static uint32_t read_pictures(mgv_engine *engine, const char *text, decoder_picture *made, mgv_picture *pictures) {
    uint32_t count = 0;
    int used;
    if (*text == '-') return 0;
    for (;; text++) {
        assert_true(count < DECODER_MOST_PICTURES);
        assert_int_equal(sscanf(text, "%ux%u%n", &made[count].width, &made[count].height, &used), 2);
        decoder_encode(engine, &made[count], count);
        pictures[count] = made[count].picture;
        count++;
        text += used;
        if (*text != ',') return count;
    }
}

/* The most likely id of text: placeholders want pictures. */
static uint32_t best_text_id(mgv_session *session, uint32_t text_ids) {
    const float *logits = decoder_logits(session);
    uint32_t best = 0, chosen, i;
    for (i = 1; i < text_ids; i++)
        if (logits[i] > logits[best]) best = i;
    assert_int_equal(mgv_session_sample(session, NULL, &chosen, NULL), MGV_OK);
    if (chosen < text_ids) assert_int_equal(chosen, best);
    return best;
}

/* One line of cases.golden; returns the relative L2 of its logits. */
static double check_case(mgv_engine *engine, size_t line, char *prompt, const char *sizes, char *greedy, const char *hex) {
    static uint32_t ids[DECODER_MOST_IDS], following[DECODER_MOST_IDS];
    static float expected[DECODER_MOST_LOGITS];
    decoder_picture made[DECODER_MOST_PICTURES];
    mgv_picture pictures[DECODER_MOST_PICTURES];
    const size_t count = read_ids(prompt, ids), follow = read_ids(greedy, following), values = read_floats(hex, expected, DECODER_MOST_LOGITS);
    const uint32_t picture_count = read_pictures(engine, sizes, made, pictures);
    const uint32_t text_ids = engine->language->vision ? TEXT_IDS : engine->language->config.vocabulary;
    mgv_session *session = decoder_session(engine, (uint32_t)(count + follow), 0);
    mgv_error error;
    double off;
    size_t i;
    if (decoder_append(session, ids, count, pictures, picture_count, &error) != MGV_OK) fail_msg("line %zu: %s", line, error.message);
    off = relative_l2(decoder_logits(session), expected, values);
    for (i = 0; i < follow; i++) {
        /* of ids almost as likely bf16 has another */
        const uint32_t id = under_test->pairs ? following[i] : best_text_id(session, text_ids);
        if (id != following[i]) fail_msg("line %zu: id %zu behind the prompt is %u, and transformers says %u", line, i, id, following[i]);
        assert_int_equal(mgv_session_step(session, id, NULL), MGV_OK);
    }
    for (i = 0; i < picture_count; i++) decoder_free_picture(&made[i]);
    mgv_session_destroy(session);
    return off;
}

static void models_say_what_they_say_in_transformers(void **state) {
    static char line[1 << 18];
    FILE *golden = fopen(DECODER_FOLDER "/cases.golden", "rb");
    char open_name[64] = "";
    mgv_model *model = NULL;
    mgv_engine *engine = NULL;
    mgv_threads *threads;
    double worst = 0;
    size_t lines = 0;
    (void)state;
    assert_non_null(golden);
    assert_int_equal(mgv_threads_create(&threads, 2, NULL, NULL), MGV_OK);
    for (; fgets(line, sizeof line, golden); lines++) {
        char *prompt = strchr(line, ' ') + 1, *sizes = strchr(prompt, ' ') + 1, *greedy = strchr(sizes, ' ') + 1;
        char *hex = strchr(greedy, ' ') + 1;
        double off;
        prompt[-1] = sizes[-1] = greedy[-1] = hex[-1] = 0;
        if (strcmp(line, "qwen3_long") == 0 && under_test == mgv__cpu_kernels_of(MGV__ISA_PLAIN)) continue;
        if (strcmp(line, open_name) != 0) {
            assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
            mgv_model_close(model);
            model = decoder_open(line);
            engine = decoder_engine(model, threads);
            engine->kernels = under_test;
            snprintf(open_name, sizeof open_name, "%.63s", line);
        }
        off = check_case(engine, lines + 1, prompt, sizes, greedy, hex);
        if (!(off <= (under_test->pairs ? 5e-2 : 1e-5))) fail_msg("line %zu, %s: logits are off by %.2e", lines + 1, line, off);
        if (off > worst) worst = off;
    }
    print_message("# %zu cases, relative L2 of logits at most %.2e\n", lines, worst);
    assert_true(lines > 50);
    mgv_engine_destroy(engine);
    mgv_model_close(model);
    mgv_threads_destroy(threads);
    fclose(golden);
}
static void the_same_in_plain_c(void **state) {
    under_test = mgv__cpu_kernels_of(MGV__ISA_PLAIN);
    models_say_what_they_say_in_transformers(state);
}
#ifdef MGV__CPU_X86
static void the_same_with_avx2(void **state) {
    if (mgv__cpu_detect() != MGV__ISA_AVX512) return;
    under_test = mgv__cpu_kernels_of(MGV__ISA_AVX2);
    models_say_what_they_say_in_transformers(state);
}
#endif
static void nearly_the_same_in_bf16(void **state) {
    if (!mgv__cpu_kernels_of_pairs()) skip();
    under_test = mgv__cpu_fast_kernels();
    models_say_what_they_say_in_transformers(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_say_what_they_say_in_transformers),
#ifdef MGV__CPU_X86
        cmocka_unit_test(the_same_with_avx2),
#endif
        cmocka_unit_test(the_same_in_plain_c),
        cmocka_unit_test(nearly_the_same_in_bf16),
    };
    under_test = mgv__cpu_best_kernels();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
