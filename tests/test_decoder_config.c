/* What config.json and generation_config.json say of language models: defaults, older forms, and what is refused by its name. The files of
   tests/golden/decoder, in memory and edited. */
#define MEGAVIT_TEXT
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "support.h"

#include "decoder.h"

enum { MOST_FILES = 4 };

typedef struct directory {
    mgv_memory_file files[MOST_FILES];
    uint32_t count;
} directory;

static void add_file(directory *d, const char *folder, const char *name) {
    char path[256];
    long bytes;
    char *data;
    FILE *stream;
    snprintf(path, sizeof path, DECODER_FOLDER "/%s/%s", folder, name);
    stream = fopen(path, "rb");
    if (!stream) return;
    assert_int_equal(fseek(stream, 0, SEEK_END), 0);
    bytes = ftell(stream);
    rewind(stream);
    data = (char *)calloc(1, (size_t)bytes + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, (size_t)bytes, stream), bytes);
    fclose(stream);
    d->files[d->count].name = name;
    d->files[d->count].data = data;
    d->files[d->count++].bytes = (uint64_t)bytes;
}
static directory read_directory(const char *folder) {
    directory d;
    memset(&d, 0, sizeof d);
    add_file(&d, folder, "config.json");
    add_file(&d, folder, "model.safetensors");
    add_file(&d, folder, "generation_config.json");
    add_file(&d, folder, "preprocessor_config.json");
    return d;
}
static void free_directory(directory *d) {
    uint32_t i;
    for (i = 0; i < d->count; i++) free((void *)(uintptr_t)d->files[i].data);
}
/* In file `name`, the first `from` becomes `to`; an empty `from` stands for the whole file. */
static void edit(directory *d, const char *name, const char *from, const char *to) {
    mgv_memory_file *file = d->files;
    char *old, *at, *data;
    size_t before, after;
    while (strcmp(file->name, name) != 0) file++;
    old = (char *)(uintptr_t)file->data;
    at = *from ? strstr(old, from) : old;
    if (!at) fail_msg("%s has no %s", name, from);
    before = (size_t)(at - old);
    after = *from ? (size_t)file->bytes - before - strlen(from) : 0;
    data = (char *)calloc(1, before + strlen(to) + after + 1);
    assert_non_null(data);
    memcpy(data, old, before);
    memcpy(data + before, to, strlen(to));
    memcpy(data + before + strlen(to), at + strlen(from), after);
    free(old);
    file->data = data;
    file->bytes = before + strlen(to) + after;
}
static mgv_result open_tower(const directory *d, mgv_tower tower, mgv_model **model, mgv_error *error) {
    mgv_model_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.memory_files = d->files;
    desc.memory_file_count = d->count;
    desc.tower = tower;
    return mgv_model_open(model, &desc, error);
}
/* The logits behind a few ids. */
static void logits_of(const directory *d, float *logits) {
    static const uint32_t ids[] = {3, 14, 15, 92, 65};
    mgv_model *model;
    mgv_engine *engine;
    mgv_session *session;
    mgv_error error;
    if (open_tower(d, MGV_TOWER_LANGUAGE, &model, &error) != MGV_OK) fail_msg("%s", error.message);
    engine = decoder_engine(model, NULL);
    session = decoder_session(engine, 8, 0);
    assert_int_equal(decoder_append(session, ids, COUNT_OF(ids), NULL, 0, NULL), MGV_OK);
    memcpy(logits, decoder_logits(session), model->config.vocabulary * sizeof *logits);
    mgv_session_destroy(session);
    mgv_engine_destroy(engine);
    mgv_model_close(model);
}

static void configs_that_cannot_be_are_refused(void **state) {
    static const struct { const char *folder, *file, *from, *to; mgv_result code; const char *words; } cases[] = {
        {"qwen3", "config.json", "\"vocab_size\": 128", "\"vocab_size\": 130", MGV_ERROR_MODEL,
         "\"model.embed_tokens.weight\" has shape [128, 32] where config.json asks for [130, 32]"},
        {"qwen3", "config.json", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false", MGV_ERROR_MODEL,
         "\"lm_head.weight\" is missing"},
        {"qwen3", "config.json", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3", MGV_ERROR_MODEL,
         "4 heads are no multiple of 3"},
        {"qwen3", "config.json", "\"head_dim\": 16", "\"head_dim\": 15", MGV_ERROR_MODEL, "heads of 15 columns have no pairs"},
        {"qwen3", "config.json", "\"use_sliding_window\": false", "\"use_sliding_window\": true", MGV_ERROR_UNSUPPORTED,
         "use_sliding_window is set"},
        {"qwen3", "config.json", "\"use_sliding_window\": false", "\"is_causal\": false", MGV_ERROR_UNSUPPORTED,
         "is_causal is not true"},
        {"qwen3", "config.json", "full_attention", "sliding_attention", MGV_ERROR_UNSUPPORTED, "layer_types"},
        {"qwen3", "config.json", "\"rope_type\": \"default\"", "\"rope_type\": \"dynamic\"", MGV_ERROR_UNSUPPORTED, "rope_type \"dynamic\""},
        {"qwen3", "config.json", "\"rope_type\": \"default\"", "\"type\": \"llama3\"", MGV_ERROR_UNSUPPORTED, "type \"llama3\" is not run"},
        {"qwen3", "config.json", "\"rope_type\": \"default\"", "\"rope_type\": 4", MGV_ERROR_MODEL, "rope_type is not a string"},
        {"qwen3", "config.json", "\"rope_type\": \"default\"", "\"rope_type\": \"linear\"", MGV_ERROR_MODEL, "linear has no factor"},
        {"qwen3", "config.json", "\"rope_type\": \"default\"", "\"partial_rotary_factor\": 0.5", MGV_ERROR_UNSUPPORTED, "turn in part"},
        {"qwen3", "config.json", "\"rope_type\": \"default\"", "\"full_attention\": {}", MGV_ERROR_UNSUPPORTED, "full_attention is set"},
        {"qwen3_yarn", "config.json", "\"factor\": 4.0", "\"factor\": 0", MGV_ERROR_MODEL, "factor is not a number within its range"},
        {"qwen3_yarn", "config.json", "\"factor\": 4.0", "\"attention_factor\": -1", MGV_ERROR_MODEL, "attention_factor is not"},
        {"qwen3_yarn", "config.json", "\"rope_theta\": 10000.0", "\"rope_theta\": 1", MGV_ERROR_MODEL, "rope_theta 1"},
        {"qwen3_yarn", "config.json", "\"original_max_position_embeddings\": 64", "\"original_max_position_embeddings\": 0", MGV_ERROR_MODEL,
         "original_max_position_embeddings is not an integer from 1"},
        {"qwen3", "config.json", "\"model_type\": \"qwen3\"", "\"model_type\": \"qwen3_moe\"", MGV_ERROR_UNSUPPORTED,
         "without a language model that is known here"},
        {"qwen3", "config.json", "\"num_hidden_layers\": 4", "\"num_hidden_layers\": 3", MGV_ERROR_MODEL,
         "\"model.layers.3.input_layernorm.weight\" has no place"},
        {"qwen3", "config.json", "\"num_hidden_layers\": 4", "\"num_hidden_layers\": 5", MGV_ERROR_MODEL, "model.layers.4"},
        {"qwen3", "config.json", "\"attention_bias\": false", "\"attention_bias\": true", MGV_ERROR_MODEL, "q_proj.bias"},
        {"qwen3", "config.json", "\"eos_token_id\": null", "\"eos_token_id\": 128", MGV_ERROR_MODEL, "eos_token_id 128 is beyond"},
        {"qwen3", "generation_config.json", "", "{\"eos_token_id\": [1, 200]}", MGV_ERROR_MODEL, "eos_token_id 200 is beyond"},
        {"qwen3", "generation_config.json", "", "{\"eos_token_id\": \"end\"}", MGV_ERROR_MODEL, "neither an id nor an array"},
        {"qwen3", "generation_config.json", "", "{\"eos_token_id\": [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}", MGV_ERROR_UNSUPPORTED,
         "more than 16"},
        {"qwen3", "generation_config.json", "", "{\"temperature\": -1}", MGV_ERROR_MODEL, "temperature"},
        {"qwen3", "generation_config.json", "", "{\"top_p\": 2}", MGV_ERROR_MODEL, "top_p"},
        {"qwen3", "generation_config.json", "", "{\"repetition_penalty\": 0}", MGV_ERROR_MODEL, "repetition_penalty"},
        {"qwen3", "generation_config.json", "", "{\"do_sample\": 3}", MGV_ERROR_MODEL, "do_sample"},
        {"qwen3", "generation_config.json", "", "{\"do_sample\"", MGV_ERROR_FORMAT, "generation_config.json"},
        {"qwen3_vl", "config.json", "\"image_token_id\": 120", "\"image_token_id\": 128", MGV_ERROR_MODEL, "placeholder"},
        {"qwen3_vl", "config.json", "\"text_config\"", "\"no_config\"", MGV_ERROR_MODEL, "there is no text_config"},
        {"qwen3_vl", "config.json", "\"out_hidden_size\": 32", "\"out_hidden_size\": 48", MGV_ERROR_MODEL,
         "where config.json asks for [48, 128]"},
    };
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        directory d = read_directory(cases[i].folder);
        mgv_model *model;
        mgv_error error;
        mgv_result result;
        edit(&d, cases[i].file, cases[i].from, cases[i].to);
        result = open_tower(&d, MGV_TOWER_LANGUAGE, &model, &error);
        if (result != cases[i].code || !strstr(error.message, cases[i].words))
            fail_msg("case %zu: expected \"%s\", got %s: %s", i, cases[i].words, mgv_result_name(result),
                     result == MGV_OK ? "" : error.message);
        assert_null(model);
        free_directory(&d);
    }
}

/* Two ways to say the same. */
static void older_forms_mean_the_same(void **state) {
    static const struct { const char *from, *to; } stretched[] = {
        {"\"rope_type\": \"yarn\"", "\"type\": \"yarn\""},
        {"\"rope_type\": \"yarn\"", "\"rope_type\": \"yarn\", \"type\": \"su\", \"beta_fast\": 32, \"mscale\": 0.5, \"truncate\": true"},
        {"\"rope_parameters\"", "\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 3}, \"rope_scaling\""},
        {"\"rope_parameters\"", "\"rope_scaling\": {}, \"rope_parameters\""},
        {"\"factor\": 4.0,", "\"factor\": null, \"attention_factor\": 1.13862943611198906,"}, /* from the texts' lengths */
    };
    static const struct { const char *from, *to; } cases[] = {
        {"\"rope_parameters\": {\n    \"rope_theta\": 1000000.0,\n    \"rope_type\": \"default\"\n  }",
         "\"rope_scaling\": null, \"rope_theta\": 1000000.0"},
        {"\"rope_parameters\": {\n    \"rope_theta\": 1000000.0,\n    \"rope_type\": \"default\"\n  }",
         "\"rope_theta\": 7, \"rope_scaling\": {\"type\": \"default\", \"rope_theta\": 1e6}"}, /* the inner one counts */
        {"\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": null"},
        {"\"hidden_act\": \"silu\",", ""},
    };
    directory plain = read_directory("qwen3");
    float expected[DECODER_MOST_LOGITS], found[DECODER_MOST_LOGITS];
    size_t i;
    (void)state;
    logits_of(&plain, expected);
    for (i = 0; i < COUNT_OF(cases); i++) {
        directory d = read_directory("qwen3");
        edit(&d, "config.json", cases[i].from, cases[i].to);
        logits_of(&d, found);
        if (memcmp(expected, found, 128 * sizeof *found) != 0) fail_msg("case %zu", i);
        free_directory(&d);
    }
    for (i = 0; i < COUNT_OF(stretched); i++) {
        directory d = read_directory("qwen3_yarn");
        if (i == 0) logits_of(&d, expected);
        edit(&d, "config.json", stretched[i].from, stretched[i].to);
        if (i == 4) edit(&d, "config.json", "\"max_position_embeddings\": 128", "\"max_position_embeddings\": 256");
        logits_of(&d, found);
        if (memcmp(expected, found, 128 * sizeof *found) != 0) fail_msg("stretched %zu", i);
        free_directory(&d);
    }
    { /* another theta is another model */
        directory d = read_directory("qwen3");
        edit(&d, "config.json", "\"rope_theta\": 1000000.0", "\"rope_theta\": 5000.0");
        logits_of(&d, found);
        assert_memory_not_equal(expected, found, 128 * sizeof *found);
        free_directory(&d);
    }
    free_directory(&plain);
}

static char *find_in(char *text, size_t bytes, const char *word) {
    size_t i, length = strlen(word);
    for (i = 0; i + length <= bytes; i++)
        if (memcmp(text + i, word, length) == 0) return text + i;
    return NULL;
}
/* Tensors as the bare Qwen3Model saves them, without "model.": a header of the same length. */
static void prefixes_may_be_missing(void **state) {
    directory plain = read_directory("qwen3"), d = read_directory("qwen3");
    float expected[DECODER_MOST_LOGITS], found[DECODER_MOST_LOGITS];
    char *header = (char *)(uintptr_t)d.files[1].data + 8, *at;
    uint64_t length = 0;
    int i;
    (void)state;
    for (i = 7; i >= 0; i--) length = length << 8 | (unsigned char)header[i - 8];
    while ((at = find_in(header, (size_t)length, "\"model."))) {
        memmove(at + 1, at + 7, (size_t)(header + length - at - 7));
        memset(header + length - 6, ' ', 6);
    }
    logits_of(&plain, expected);
    logits_of(&d, found);
    assert_memory_equal(expected, found, 128 * sizeof *found);
    free_directory(&plain);
    free_directory(&d);
}

static const char every_undone[] =
    "{\"num_beams\": 2, \"num_beam_groups\": 2, \"diversity_penalty\": 2, \"penalty_alpha\": 2, \"dola_layers\": 2, \"top_h\": 2, "
    "\"typical_p\": 2, \"epsilon_cutoff\": 2, \"eta_cutoff\": 2, \"encoder_repetition_penalty\": 2, \"no_repeat_ngram_size\": 2, "
    "\"encoder_no_repeat_ngram_size\": 2, \"min_length\": 2, \"min_new_tokens\": 2, \"exponential_decay_length_penalty\": 2, "
    "\"bad_words_ids\": 2, \"force_words_ids\": 2, \"constraints\": 2, \"forced_eos_token_id\": 2, \"guidance_scale\": 2}";
static void generation_says_what_the_files_say(void **state) {
    directory d = read_directory("qwen3");
    mgv_generation_info info = {0};
    mgv_model *model;
    (void)state;
    edit(&d, "config.json", "\"eos_token_id\": null", "\"eos_token_id\": [5, 6]");
    assert_int_equal(open_tower(&d, MGV_TOWER_LANGUAGE, &model, NULL), MGV_OK);
    assert_int_equal(mgv_model_get_generation(model, &info), MGV_OK);
    assert_string_equal(info.from, "generation_config.json");
    assert_false(info.do_sample);
    assert_int_equal(info.top_k, 50); /* GenerationConfig's */
    assert_true(info.temperature == 1.0f && info.top_p == 1.0f && info.min_p == 0.0f && info.repetition_penalty == 1.0f);
    assert_int_equal(info.stop_count, 2); /* of config.json */
    assert_int_equal(info.stop_ids[1], 6);
    assert_true(info.bos_id == UINT32_MAX && info.pad_id == UINT32_MAX);
    mgv_model_close(model);
    edit(&d, "generation_config.json", "", "{\"do_sample\": true, \"temperature\": 0.6, \"top_k\": 20, \"top_p\": 0.95, \"min_p\": 0.1,"
         "\"repetition_penalty\": 1.05, \"eos_token_id\": 9, \"bos_token_id\": 2, \"pad_token_id\": 3, \"unknown\": {}}");
    assert_int_equal(open_tower(&d, MGV_TOWER_LANGUAGE, &model, NULL), MGV_OK);
    assert_int_equal(mgv_model_get_generation(model, &info), MGV_OK);
    assert_true(info.do_sample && info.top_k == 20 && info.temperature == 0.6f && info.top_p == 0.95f && info.min_p == 0.1f &&
                info.repetition_penalty == 1.05f);
    assert_true(info.stop_count == 1 && info.stop_ids[0] == 9 && info.bos_id == 2 && info.pad_id == 3);
    assert_string_equal(info.undone, "");
    mgv_model_close(model);
    edit(&d, "generation_config.json", "", "{\"num_beams\": 1, \"typical_p\": 1, \"top_p\": 0.0, \"bad_words_ids\": null, "
         "\"suppress_tokens\": [], \"guidance_scale\": 1.0, \"no_repeat_ngram_size\": 0, \"sequence_bias\": {}, "
         "\"force_words_ids\": false}");
    assert_int_equal(open_tower(&d, MGV_TOWER_LANGUAGE, &model, NULL), MGV_OK);
    assert_int_equal(mgv_model_get_generation(model, &info), MGV_OK);
    assert_string_equal(info.undone, "");
    assert_true(info.top_p > 0 && info.top_p < 1e-30f); /* 0 is one id, and not all */
    mgv_model_close(model);
    edit(&d, "generation_config.json", "", "{\"num_beams\": 4, \"no_repeat_ngram_size\": 3, \"suppress_tokens\": [1], "
         "\"typical_p\": \"x\"}");
    assert_int_equal(open_tower(&d, MGV_TOWER_LANGUAGE, &model, NULL), MGV_OK);
    assert_int_equal(mgv_model_get_generation(model, &info), MGV_OK);
    assert_string_equal(info.undone, "num_beams, typical_p, no_repeat_ngram_size, suppress_tokens");
    mgv_model_close(model);
    edit(&d, "generation_config.json", "", every_undone);
    assert_int_equal(open_tower(&d, MGV_TOWER_LANGUAGE, &model, NULL), MGV_OK);
    assert_int_equal(mgv_model_get_generation(model, &info), MGV_OK);
    assert_true(strlen(info.undone) > 200); /* those that fit, whole */
    assert_string_equal(strrchr(info.undone, ' ') + 1, "constraints");
    mgv_model_close(model);
    d.files[2].name = "other.json";
    assert_int_equal(open_tower(&d, MGV_TOWER_LANGUAGE, &model, NULL), MGV_OK);
    assert_int_equal(mgv_model_get_generation(model, &info), MGV_OK);
    assert_string_equal(info.from, "class defaults");
    mgv_model_close(model);
    free_directory(&d);
}

static void a_model_says_what_it_is(void **state) {
    directory d = read_directory("qwen3_vl"), text = read_directory("qwen3");
    mgv_model_info info;
    mgv_generation_info generation;
    mgv_tensor_info tensor;
    mgv_op_info op;
    mgv_grid grid;
    mgv_model *model;
    mgv_engine *engine = NULL;
    mgv_session *session;
    mgv_error error;
    double flops = 0;
    uint32_t i;
    (void)state;
    assert_int_equal(open_tower(&d, MGV_TOWER_LANGUAGE, &model, NULL), MGV_OK);
    assert_int_equal(mgv_model_get_info(model, &info), MGV_OK);
    assert_int_equal(info.family, MGV_FAMILY_QWEN3_VL);
    assert_int_equal(info.tower, MGV_TOWER_LANGUAGE);
    assert_true(info.has_vision && info.has_language && !info.has_text);
    assert_true(info.hidden == 32 && info.layers == 4 && info.heads == 4 && info.key_value_heads == 2 && info.head_dim == 16);
    assert_true(info.vocabulary == 128 && info.max_positions == 128000 && info.dtype == MGV_DTYPE_BF16);
    assert_true(info.patch == 16 && info.merge == 2 && info.token_width == 32 && info.deepstack_count == 3);
    assert_true(info.image_token_id == 120 && info.video_token_id == 121 && info.vision_start_id == 122 && info.vision_end_id == 123);
    for (i = 0; i < info.tensor_count; i++) assert_int_equal(mgv_model_get_tensor(model, i, &tensor), MGV_OK);
    assert_non_null(strstr(tensor.name, "visual")); /* those of the tower come last */
    assert_int_equal(mgv_model_get_tensor(model, i, &tensor), MGV_ERROR_ARGUMENT);
    memset(&grid, 0, sizeof grid);
    grid.tokens = 10;
    for (i = 0; i < mgv_model_op_count(model); i++) {
        assert_int_equal(mgv_model_get_op(model, i, &grid, &op), MGV_OK);
        flops += op.flops;
    }
    /* of a layer: (64 + 2 * 32) * 32 of qkv, 64 * 32 of out, 3 * 48 * 32 of the MLP for each of 10 rows; 55 pairs of 64 columns, twice */
    assert_true(flops == 4 * (2.0 * 10 * (128 * 32 + 64 * 32 + 3 * 48 * 32) + 4.0 * 55 * 64) + 2.0 * 128 * 32);
    mgv_model_close(model);
    assert_int_equal(open_tower(&text, MGV_TOWER_LANGUAGE, &model, NULL), MGV_OK);
    assert_int_equal(mgv_model_get_info(model, &info), MGV_OK);
    assert_int_equal(info.family, MGV_FAMILY_QWEN3);
    assert_string_equal(info.family_name, "Qwen3");
    assert_true(!info.has_vision && info.has_language && info.patch == 0 && info.image_token_id == UINT32_MAX);
    mgv_model_close(model);
    assert_int_equal(open_tower(&d, MGV_TOWER_VISION, &model, NULL), MGV_OK); /* a tower alone makes no sessions */
    assert_int_equal(mgv_model_get_info(model, &info), MGV_OK);
    assert_true(info.has_language && info.tower == MGV_TOWER_VISION);
    assert_int_equal(mgv_model_get_generation(model, &generation), MGV_ERROR_ARGUMENT);
    engine = NULL;
    assert_int_equal(mgv_engine_create(&engine, model, NULL, NULL), MGV_OK);
    assert_int_equal(mgv_session_create(&session, engine, NULL, &error), MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "MGV_TOWER_LANGUAGE"));
    mgv_engine_destroy(engine);
    mgv_model_close(model);
    assert_int_not_equal(open_tower(&text, MGV_TOWER_VISION, &model, &error), MGV_OK);
    free_directory(&d);
    free_directory(&text);
}

/* Every allocation that fails is an error, and leaks nothing. */
static void opening_survives_without_memory(void **state) {
    directory d = read_directory("qwen3_vl");
    counting_allocator counts;
    mgv_model_desc desc;
    mgv_model *model = NULL;
    mgv_error error;
    uint64_t calls, fail;
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.memory_files = d.files;
    desc.memory_file_count = d.count;
    desc.tower = MGV_TOWER_LANGUAGE;
    desc.allocator = counting_allocator_make(&counts);
    assert_int_equal(mgv_model_open(&model, &desc, &error), MGV_OK);
    mgv_model_close(model);
    assert_int_equal(counts.live_blocks, 0);
    calls = counts.calls;
    for (fail = 1; fail <= calls; fail++) {
        counts.calls = 0;
        counts.fail_at = fail;
        if (mgv_model_open(&model, &desc, &error) == MGV_OK) mgv_model_close(model);
        else assert_int_equal(error.code, MGV_ERROR_NOMEM);
        assert_int_equal(counts.live_blocks, 0);
    }
    free_directory(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(configs_that_cannot_be_are_refused),
        cmocka_unit_test(older_forms_mean_the_same),
        cmocka_unit_test(prefixes_may_be_missing),
        cmocka_unit_test(generation_says_what_the_files_say),
        cmocka_unit_test(a_model_says_what_it_is),
        cmocka_unit_test(opening_survives_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
