/* What a model may not be: well-formed files whose config and tensors are not one whole SigLIP tower, each with the code and the words it
   gets.
   And what it may be, however odd. The Qwen towers: test_builders.c. */
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

#include "golden.h"
#include "support.h"

static int set_up(void **state) {
    golden *g = (golden *)calloc(1, sizeof *g);
    assert_non_null(g);
    golden_open(g, "siglip_head_dim_72");
    *state = g;
    return 0;
}
static int tear_down(void **state) {
    golden *g = (golden *)*state;
    golden_close(g);
    free(g);
    return 0;
}

/* Opens the golden's model; the caller closes what comes out. */
static mgv_result open_model(const golden *g, const char *prefix, mgv_model **model, mgv_error *error) {
    golden_files files;
    counting_allocator counts;
    mgv_model_desc desc;
    mgv_result result;
    golden_make_files(&files, g, prefix, 1);
    memset(&desc, 0, sizeof desc);
    desc.memory_files = files.files;
    desc.memory_file_count = files.count;
    if (model) {
        result = mgv_model_open(model, &desc, error);
    } else {
        mgv_model *opened = (mgv_model *)1;
        desc.allocator = counting_allocator_make(&counts);
        result = mgv_model_open(&opened, &desc, error);
        if (result != MGV_OK) assert_null(opened);
        mgv_model_close(opened);
        assert_int_equal(counts.live_blocks, 0);
    }
    golden_free_files(&files);
    return result;
}

static void expect_refused(const golden *g, mgv_result code, const char *word) {
    mgv_error error;
    mgv_result result = open_model(g, "vision_model.", NULL, &error);
    if (result != code) fail_msg("%s instead of %s for %s: %s", mgv_result_name(result), mgv_result_name(code), word, error.message);
    assert_int_equal(error.code, code);
    if (!strstr(error.message, word)) fail_msg("no \"%s\" in: %s", word, error.message);
}

static const char *last_part(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

/* Each tensor missing in turn: its name, or the tower's anchor, is in the sentence. */
static void test_each_tensor_missing(void **state) {
    golden *g = (golden *)*state;
    size_t i;
    for (i = 0; i < g->weight_count; i++) {
        golden_weight kept = g->weights[i];
        snprintf(g->weights[i].name, sizeof g->weights[i].name, "elsewhere.%zu", i);
        expect_refused(g, MGV_ERROR_MODEL, last_part(kept.name));
        g->weights[i] = kept;
    }
}

/* Each tensor with one element more in its last dimension, with its dimensions reversed where that differs, and with one rank more. */
static void test_each_tensor_misshapen(void **state) {
    golden *g = (golden *)*state;
    size_t i;
    for (i = 0; i < g->weight_count; i++) {
        golden_weight kept = g->weights[i], *w = &g->weights[i];
        w->elements = w->elements / w->shape[w->rank - 1] * (w->shape[w->rank - 1] + 1);
        w->shape[w->rank - 1]++;
        expect_refused(g, MGV_ERROR_MODEL, kept.name);
        *w = kept;
        if (w->rank == 2 && w->shape[0] != w->shape[1]) {
            w->shape[0] = kept.shape[1];
            w->shape[1] = kept.shape[0];
            expect_refused(g, MGV_ERROR_MODEL, kept.name);
            *w = kept;
        }
        w->shape[w->rank++] = 1;
        expect_refused(g, MGV_ERROR_MODEL, kept.name);
        *w = kept;
    }
}

/* A dtype that the format knows and a model may not use, of the right size: the flip that nobody notices. */
static void test_dtypes_that_no_model_has(void **state) {
    static const struct { const char *from, *to; } flips[] = {{"\"F32\"", "\"I32\""}, {"\"F32\"", "\"U32\""}};
    golden *g = (golden *)*state;
    size_t i;
    for (i = 0; i < COUNT_OF(flips); i++) {
        golden_files files;
        mgv_model_desc desc;
        mgv_model *model = NULL;
        mgv_error error;
        size_t f;
        golden_make_files(&files, g, "", 1);
        for (f = 0; f < files.count; f++) {
            char *found;
            if (strcmp(files.files[f].name, "model.safetensors") != 0) continue;
            found = strstr(files.owned[0] + 8, flips[i].from);
            assert_non_null(found);
            memcpy(found, flips[i].to, strlen(flips[i].to));
        }
        memset(&desc, 0, sizeof desc);
        desc.memory_files = files.files;
        desc.memory_file_count = files.count;
        assert_int_equal(mgv_model_open(&model, &desc, &error), MGV_ERROR_UNSUPPORTED);
        assert_non_null(strstr(error.message, "F32, F16 and BF16"));
        golden_free_files(&files);
    }
}

/* A config that describes another tower than the tensors. */
static void test_config_that_disagrees(void **state) {
    static const struct { const char *key; const char *value; } changes[] = {
        {"\"hidden_size\": ", "288"}, {"\"intermediate_size\": ", "7"}, {"\"num_hidden_layers\": ", "9"}, {"\"num_hidden_layers\": ", "1"}, {"\"patch_size\": ", "4"},
    };
    golden *g = (golden *)*state;
    const char *kept = g->config;
    size_t i;
    for (i = 0; i < COUNT_OF(changes); i++) {
        char changed[4096];
        const char *at = strstr(kept, changes[i].key), *rest;
        assert_non_null(at);
        at += strlen(changes[i].key);
        rest = at + strcspn(at, ",}");
        snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - kept), kept, changes[i].value, rest);
        g->config = changed;
        expect_refused(g, MGV_ERROR_MODEL, "config.json");
        g->config = kept;
    }
}

static void encode_pooled(const golden *g, mgv_model *model, float *pooled, uint32_t width) {
    uint32_t threads = 1;
    mgv_engine *engine = golden_engine(g, model, MGV_PRECISION_AUTO, &threads);
    mgv_image image = golden_image(&g->pictures[0]);
    mgv_output output;
    memset(&output, 0, sizeof output);
    output.kind = MGV_OUTPUT_POOLED;
    output.data = pooled;
    output.capacity = width;
    golden_encode(engine, &image, 1, &output, 1);
    mgv_engine_destroy(engine);
}

/* Odd, but whole: all weights zero, all of them denormal, the layers in different precisions. */
static void test_odd_weights(void **state) {
    golden *g = (golden *)*state;
    int which;
    for (which = 0; which < 3; which++) {
        golden odd = *g;
        mgv_model *model = NULL;
        mgv_model_info info;
        mgv_error error;
        float *pooled;
        size_t i;
        odd.weights = (golden_weight *)malloc(g->weight_count * sizeof *odd.weights);
        memcpy(odd.weights, g->weights, g->weight_count * sizeof *odd.weights);
        for (i = 0; i < odd.weight_count; i++) {
            golden_weight *w = &odd.weights[i];
            if (which == 0) w->scale = w->offset = 0;
            if (which == 1) {
                w->scale = 1e-40;
                w->offset = 0;
            }
            if (which == 2 && i % 3 == 0) {
                snprintf(w->dtype, sizeof w->dtype, "%s", i % 2 ? "BF16" : "F16");
                w->bits = 7;
            }
        }
        if (open_model(&odd, "", &model, &error) != MGV_OK) fail_msg("%s", error.message);
        assert_int_equal(mgv_model_get_info(model, &info), MGV_OK);
        if (which == 2) assert_int_equal(info.dtype, MGV_DTYPE_NONE);
        pooled = (float *)malloc(info.pooled_width * sizeof(float));
        encode_pooled(&odd, model, pooled, info.pooled_width);
        for (i = 0; i < info.pooled_width; i++) assert_true(isfinite(pooled[i]));
        if (which == 0)
            for (i = 0; i < info.pooled_width; i++) assert_true(pooled[i] == 0);
        free(pooled);
        mgv_model_close(model);
        free(odd.weights);
    }
}

/* Tensors beside the tower's are nobody's business: a text tower, a scale. Two towers are. */
static void test_tensors_of_others(void **state) {
    golden *g = (golden *)*state;
    golden_weight *added = &g->weights[g->weight_count++];
    mgv_model *model = NULL;
    mgv_model_info info;
    mgv_error error;
    *added = g->weights[0];
    snprintf(added->name, sizeof added->name, "text_model.embeddings.token_embedding.weight");
    assert_int_equal(open_model(g, "", &model, &error), MGV_OK);
    assert_int_equal(mgv_model_get_info(model, &info), MGV_OK);
    assert_int_equal(info.tensor_count, g->weight_count - 1);
    mgv_model_close(model);
    snprintf(added->name, sizeof added->name, "second.embeddings.patch_embedding.weight");
    expect_refused(g, MGV_ERROR_MODEL, "one tower");
    g->weight_count--;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_tensor_missing),
        cmocka_unit_test(test_each_tensor_misshapen),
        cmocka_unit_test(test_dtypes_that_no_model_has),
        cmocka_unit_test(test_config_that_disagrees),
        cmocka_unit_test(test_odd_weights),
        cmocka_unit_test(test_tensors_of_others),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
