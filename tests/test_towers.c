/* A directory with two towers: what each handle of it says and hashes. */
#define MEGAVIT_TEXT
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "support.h"

enum { MOST_FILE = 16 << 20 };

static size_t read_file(const char *path, char *bytes) {
    FILE *stream = fopen(path, "rb");
    size_t length;
    if (!stream) fail_msg("%s is not there", path);
    length = fread(bytes, 1, MOST_FILE, stream);
    fclose(stream);
    return length;
}
static mgv_memory_file memory_file(const char *name, const void *data, size_t bytes) {
    mgv_memory_file file;
    memset(&file, 0, sizeof file);
    file.name = name;
    file.data = data;
    file.bytes = bytes;
    return file;
}
static uint64_t hash_of(const mgv_memory_file *files, uint32_t count, mgv_tower tower) {
    mgv_model *model = NULL;
    mgv_model_desc desc;
    mgv_model_info info;
    mgv_error error;
    memset(&desc, 0, sizeof desc);
    desc.memory_files = files;
    desc.memory_file_count = count;
    desc.tower = tower;
    if (mgv_model_open(&model, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_int_equal(mgv_model_get_info(model, &info), MGV_OK);
    mgv_model_close(model);
    return info.hash;
}

/* The header of a safetensors file and the place of its data. */
static char *data_of(char *file) {
    uint64_t header = 0;
    for (int i = 7; i >= 0; i--) header = header << 8 | (unsigned char)file[i];
    return file + 8 + header;
}
/* Gives the tensors whose names begin with `prefix` names that nobody looks for: the towers' names are in the header alone. */
static void forget(char *file, const char *prefix) {
    char *end = data_of(file);
    for (char *at = file + 8; at + strlen(prefix) < end; at++)
        if (memcmp(at, prefix, strlen(prefix)) == 0) *at = 'X';
}

static void a_text_tower_leaves_the_vision_hash_alone(void **state) {
    static const char vision_config[] =
        "{\"model_type\":\"siglip_vision_model\",\"hidden_size\":192,\"num_attention_heads\":3,\"intermediate_size\":768,"
        "\"num_hidden_layers\":5,\"patch_size\":16,\"image_size\":224}";
    static char weights[MOST_FILE], config[MOST_FILE], preprocessor[MOST_FILE];
    const size_t bytes = read_file("examples/model/model.safetensors", weights);
    mgv_memory_file both[3], alone[3];
    mgv_safetensors *file = NULL;
    mgv_safetensors_desc desc;
    mgv_tensor_info tensor;
    uint64_t vision, text;
    uint32_t number = 0;
    mgv_error error;
    (void)state;
    both[0] = memory_file("config.json", config, read_file("examples/model/config.json", config));
    both[1] = memory_file("preprocessor_config.json", preprocessor, read_file("examples/model/preprocessor_config.json", preprocessor));
    both[2] = memory_file("model.safetensors", weights, bytes);
    memcpy(alone, both, sizeof alone);
    alone[0] = memory_file("config.json", vision_config, strlen(vision_config));
    vision = hash_of(both, 3, MGV_TOWER_VISION);
    text = hash_of(both, 3, MGV_TOWER_TEXT);
    assert_true(vision != text);
    assert_true(hash_of(alone, 3, MGV_TOWER_VISION) == vision); /* a config without it */

    memset(&desc, 0, sizeof desc);
    desc.path = "examples/model/model.safetensors";
    assert_int_equal(mgv_safetensors_open(&file, &desc, &error), MGV_OK);
    assert_int_equal(mgv_safetensors_find(file, "text_model.head.weight", &number), MGV_OK);
    assert_int_equal(mgv_safetensors_get_tensor(file, number, &tensor), MGV_OK);
    weights[tensor.offset] ^= 1;
    mgv_safetensors_close(file);
    assert_true(hash_of(both, 3, MGV_TOWER_VISION) == vision); /* other weights of it */
    assert_true(hash_of(both, 3, MGV_TOWER_TEXT) != text);
    forget(weights, "text_model.");
    assert_true(hash_of(alone, 3, MGV_TOWER_VISION) == vision); /* no weights of it */
}

static void one_handle_may_hold_both(void **state) {
    counting_allocator counts = {0};
    mgv_model *model = NULL, *alone = NULL;
    mgv_model_desc desc;
    mgv_model_info info, text, vision;
    mgv_error error;
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.path = "examples/model";
    assert_int_equal(mgv_model_open(&alone, &desc, &error), MGV_OK);
    assert_null(mgv_model_text(alone));
    assert_null(mgv_model_text(NULL));
    assert_int_equal(mgv_model_get_info(alone, &vision), MGV_OK);
    assert_int_equal(vision.tower, MGV_TOWER_VISION);
    assert_int_equal(vision.text_width, 0);
    mgv_model_close(alone);
    desc.tower = MGV_TOWER_BOTH;
    desc.allocator = counting_allocator_make(&counts);
    if (mgv_model_open(&model, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_int_equal(mgv_model_get_info(model, &info), MGV_OK);
    assert_int_equal(mgv_model_get_info(mgv_model_text(model), &text), MGV_OK);
    assert_int_equal(info.tower, MGV_TOWER_BOTH);
    assert_int_equal(text.tower, MGV_TOWER_TEXT);
    assert_true(info.hash == vision.hash);
    assert_int_equal(info.tensor_count, vision.tensor_count); /* of the vision tower, as all that is not a text's */
    assert_int_equal(info.text_width, 192);
    assert_int_equal(info.vocabulary, text.vocabulary);
    assert_int_equal(info.max_text_tokens, text.max_text_tokens);
    assert_true(info.has_tokenizer);
    assert_true(info.logit_scale == text.logit_scale && info.logit_scale > 0);
    mgv_model_close(model);

    desc.path = "tests/golden/dinov2_saved"; /* nothing is left of the one that is there */
    assert_int_equal(mgv_model_open(&model, &desc, &error), MGV_ERROR_UNSUPPORTED);
    assert_null(model);
    assert_non_null(strstr(error.message, "without a text tower"));
    desc.path = "tests/golden/text/clip_plain";
    assert_true(mgv_model_open(&model, &desc, &error) != MGV_OK);
    assert_null(model);
    assert_int_equal(counts.live_blocks, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_text_tower_leaves_the_vision_hash_alone), cmocka_unit_test(one_handle_may_hold_both)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
