/* Configs, processors and chat templates that say what is seldom said: what it means, or the sentence that refuses it. */
#define MEGAVIT_TEXT
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "support.h"

/* Texts of the files; NULL: there is none. */
typedef struct texts { const char *config, *pictures, *clips, *generation; } texts;

static mgv_result read_config(const texts *said, mgv_tower tower, mgv__config *config, mgv_error *error) {
    static const char *const names[] = {"config.json", "preprocessor_config.json", "video_preprocessor_config.json",
                                        "generation_config.json"};
    const char *const all[] = {said->config, said->pictures, said->clips, said->generation};
    mgv_memory_file files[COUNT_OF(names)];
    mgv_model_desc desc;
    mgv__source source;
    mgv_result result;
    size_t i;
    memset(&desc, 0, sizeof desc);
    desc.tower = tower;
    desc.memory_files = files;
    for (i = 0; i < COUNT_OF(names); i++) {
        if (all[i] == NULL) continue;
        files[desc.memory_file_count].name = names[i];
        files[desc.memory_file_count].data = all[i];
        files[desc.memory_file_count++].bytes = strlen(all[i]);
    }
    result = mgv__source_open(&source, &desc, error);
    return result == MGV_OK ? mgv__config_read(config, &source, error) : result;
}
static mgv__config good(const char *config_text, const char *pictures, mgv_tower tower) {
    texts said = {NULL, NULL, NULL, NULL};
    mgv__config config;
    mgv_error error;
    said.config = config_text;
    said.pictures = pictures;
    if (read_config(&said, tower, &config, &error) != MGV_OK) fail_msg("%s, %s: %s", config_text, pictures ? pictures : "-", error.message);
    return config;
}

#define SIGLIP "{\"model_type\":\"siglip\"}"
#define CLIP "{\"model_type\":\"clip\"}"
#define DINOV3 "{\"model_type\":\"dinov3_vit\"}"
#define QWEN "{\"model_type\":\"qwen2_vl\"}"
#define TWENTY "01234567890123456789"
#define LANGUAGE(more) "{\"model_type\":\"qwen3\"" more "}"
#define WHOLE(more) "{\"model_type\":\"qwen3_vl\"" more "}"

static void what_is_wrong_is_named(void **state) {
    static const struct { texts said; mgv_tower tower; mgv_result code; const char *says; } bad[] = {
        /* sizes */
        {{SIGLIP, "{\"size\":[224]}", NULL, NULL}, MGV_TOWER_VISION, MGV_ERROR_UNSUPPORTED,
         "size is an array of 1, not of height and width"},
        {{SIGLIP, "{\"size\":[224,224,224]}", NULL, NULL}, MGV_TOWER_VISION, MGV_ERROR_UNSUPPORTED, "size is an array of 3"},
        {{SIGLIP, "{\"size\":[\"x\",224]}", NULL, NULL}, MGV_TOWER_VISION, MGV_ERROR_MODEL, "size is not an integer from 0 to"},
        {{SIGLIP, "{\"size\":[224,225]}", NULL, NULL}, MGV_TOWER_VISION, MGV_ERROR_MODEL,
         "pictures become 225 x 224 pixels, the model takes 224"},
        {{SIGLIP, "{\"size\":{\"shortest_edge\":16777217}}", NULL, NULL}, MGV_TOWER_VISION, MGV_ERROR_UNSUPPORTED, "size is none that"},
        {{SIGLIP, "{\"size\":{\"shortest_edge\":224,\"longest_edge\":16777217}}", NULL, NULL}, MGV_TOWER_VISION, MGV_ERROR_UNSUPPORTED,
         "size is none that"},
        {{SIGLIP, "{\"size\":{\"max_height\":16777217,\"max_width\":224}}", NULL, NULL}, MGV_TOWER_VISION, MGV_ERROR_UNSUPPORTED,
         "size is none that"},
        {{SIGLIP, "{\"size\":{\"max_height\":224,\"max_width\":16777217}}", NULL, NULL}, MGV_TOWER_VISION, MGV_ERROR_UNSUPPORTED,
         "size is none that"},
        {{SIGLIP, "{\"size\":{\"max_height\":224,\"max_width\":0}}", NULL, NULL}, MGV_TOWER_VISION, MGV_ERROR_UNSUPPORTED,
         "size is none that"},
        {{SIGLIP, "{\"size\":{\"height\":224,\"width\":16777217}}", NULL, NULL}, MGV_TOWER_VISION, MGV_ERROR_UNSUPPORTED,
         "size is none that"},
        {{CLIP, "{\"crop_size\":{\"height\":16777217,\"width\":224}}", NULL, NULL}, MGV_TOWER_VISION, MGV_ERROR_UNSUPPORTED,
         "crop_size has no height and width"},
        {{CLIP, "{\"crop_size\":{\"height\":8,\"width\":224}}", NULL, NULL}, MGV_TOWER_VISION, MGV_ERROR_MODEL,
         "pictures become 224 x 8 pixels, less than a patch of 32"},
        {{SIGLIP, "{\"do_pad\":true,\"pad_size\":{\"shortest_edge\":224}}", NULL, NULL}, MGV_TOWER_VISION, MGV_ERROR_UNSUPPORTED,
         "a pad_size that would add pixels"},
        {{SIGLIP, "{\"do_pad\":true,\"pad_size\":{\"height\":300,\"width\":224}}", NULL, NULL}, MGV_TOWER_VISION, MGV_ERROR_UNSUPPORTED,
         "a pad_size that would add pixels"},
        {{SIGLIP, "{\"do_pad\":true,\"pad_size\":{\"height\":224,\"width\":300}}", NULL, NULL}, MGV_TOWER_VISION, MGV_ERROR_UNSUPPORTED,
         "a pad_size that would add pixels"},
        {{QWEN, "{\"min_pixels\":0}", NULL, NULL}, MGV_TOWER_VISION, MGV_ERROR_MODEL, "min_pixels is not an integer from 1 to"},
        {{QWEN, "{\"do_center_crop\":true}", NULL, NULL}, MGV_TOWER_VISION, MGV_ERROR_UNSUPPORTED, "and there is no crop_size"},
        /* filters, floats, objects */
        {{SIGLIP, "{\"resample\":0}", NULL, NULL}, MGV_TOWER_VISION, MGV_ERROR_UNSUPPORTED,
         "resample 0 is not run; 1 (Lanczos), 2 (bilinear)"},
        {{DINOV3, "{\"resample\":1}", NULL, NULL}, MGV_TOWER_VISION, MGV_ERROR_UNSUPPORTED, "resample 1 is not run; 2 (bilinear)"},
        {{DINOV3, "{\"do_rescale\":false}", NULL, NULL}, MGV_TOWER_VISION, MGV_ERROR_UNSUPPORTED,
         "do_rescale is false, and this processor"},
        {{QWEN, "{\"image_processor_type\":\"Qwen2VLImageProcessor\"}", "{\"resample\":9}", NULL}, MGV_TOWER_VISION, MGV_ERROR_MODEL,
         "video_preprocessor_config.json: resample is not an integer"},
        /* text towers */
        {{"{\"model_type\":\"clip\",\"text_config\":7}", NULL, NULL, NULL}, MGV_TOWER_TEXT, MGV_ERROR_MODEL,
         "text_config is not an object"},
        {{"{\"model_type\":\"clip\",\"text_config_dict\":{\"hidden_size\":0}}", NULL, NULL, NULL}, MGV_TOWER_TEXT, MGV_ERROR_MODEL,
         "hidden_size is not an integer"},
        /* language models */
        {{"{\"vocab_size\":7}", NULL, NULL, NULL}, MGV_TOWER_LANGUAGE, MGV_ERROR_UNSUPPORTED, "a model_type without a language model"},
        {{LANGUAGE(",\"eos_token_id\":16777216"), NULL, NULL, NULL}, MGV_TOWER_LANGUAGE, MGV_ERROR_MODEL,
         "neither an id nor an array of ids"},
        {{LANGUAGE(",\"eos_token_id\":[1,-1]"), NULL, NULL, NULL}, MGV_TOWER_LANGUAGE, MGV_ERROR_MODEL,
         "neither an id nor an array of ids"},
        {{LANGUAGE(",\"layer_types\":7"), NULL, NULL, NULL}, MGV_TOWER_LANGUAGE, MGV_ERROR_MODEL, "layer_types is not an array"},
        {{LANGUAGE(",\"rope_parameters\":7"), NULL, NULL, NULL}, MGV_TOWER_LANGUAGE, MGV_ERROR_MODEL, "rope_parameters are not an object"},
        {{LANGUAGE(",\"rope_scaling\":7"), NULL, NULL, NULL}, MGV_TOWER_LANGUAGE, MGV_ERROR_MODEL, "rope_parameters are not an object"},
        {{LANGUAGE(",\"rope_scaling\":{\"mrope_section\":[1,2]}"), NULL, NULL, NULL}, MGV_TOWER_LANGUAGE, MGV_ERROR_MODEL,
         "has 2 numbers, not 3"},
        {{LANGUAGE(",\"rope_scaling\":{\"partial_rotary_factor\":0.5}"), NULL, NULL, NULL}, MGV_TOWER_LANGUAGE, MGV_ERROR_UNSUPPORTED,
         "partial_rotary_factor is other than 1"},
        {{LANGUAGE(",\"rope_scaling\":{\"partial_rotary_factor\":\"1\"}"), NULL, NULL, NULL}, MGV_TOWER_LANGUAGE, MGV_ERROR_UNSUPPORTED,
         "partial_rotary_factor is other than 1"},
        {{WHOLE(""), NULL, NULL, NULL}, MGV_TOWER_LANGUAGE, MGV_ERROR_MODEL, "there is no text_config"},
        {{WHOLE(",\"text_config\":[]"), NULL, NULL, NULL}, MGV_TOWER_LANGUAGE, MGV_ERROR_MODEL, "there is no text_config"},
        {{WHOLE(",\"vision_config\":{},\"text_config\":{},\"video_token_id\":16777215"), NULL, NULL, NULL}, MGV_TOWER_LANGUAGE,
         MGV_ERROR_MODEL,
         "a placeholder of pictures has id 16777215"},
        {{LANGUAGE(",\"vocab_size\":10"), NULL, NULL, "{\"eos_token_id\":10}"}, MGV_TOWER_LANGUAGE, MGV_ERROR_MODEL,
         "generation_config.json: eos_token_id 10 is beyond a vocabulary of 10"},
        {{SIGLIP, NULL, NULL, NULL}, -1, MGV_ERROR_ARGUMENT, "-1 is no mgv_tower"},
        {{SIGLIP, NULL, NULL, NULL}, MGV_TOWER_BOTH + 1, MGV_ERROR_ARGUMENT, "is no mgv_tower"},
    };
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(bad); i++) {
        mgv__config config;
        mgv_error error;
        if (read_config(&bad[i].said, bad[i].tower, &config, &error) == MGV_OK) fail_msg("case %zu was taken", i);
        if (error.code != bad[i].code || strstr(error.message, bad[i].says) == NULL) fail_msg("case %zu: %s", i, error.message);
    }
}
static void processors_are_read_so(void **state) {
    static const char *const own[] = { /* of SigLIP, whatever these say */
        "{\"image_processor_type\":7}", "{\"image_processor_type\":null,\"feature_extractor_type\":7}",
        "{\"image_processor_type\":\"" TWENTY TWENTY TWENTY TWENTY TWENTY "\"}",
    };
    mgv__config config;
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(own); i++) {
        config = good(SIGLIP, own[i], MGV_TOWER_VISION);
        assert_string_equal(config.pixels_from.processor, "SiglipImageProcessor");
        assert_int_equal(config.pixels.width, 224);
    }
    config = good(SIGLIP, "{\"size\":[224,224]}", MGV_TOWER_VISION);
    assert_int_equal(config.pixels.width, 224);
    assert_int_equal(config.pixels.height, 224);
    config = good(SIGLIP, "{\"do_pad\":true,\"pad_size\":{\"height\":224,\"width\":224}}", MGV_TOWER_VISION);
    assert_int_equal(config.pixels.width, 224);
    config = good(QWEN, "{\"min_pixels\":3136,\"max_pixels\":6272}", MGV_TOWER_VISION);
    assert_int_equal(config.pixels.min_pixels, 3136);
    assert_int_equal(config.pixels.max_pixels, 6272);
}
static void text_towers_are_read_so(void **state) {
    mgv__config config;
    (void)state;
    config = good("{\"model_type\":\"clip\",\"text_config_dict\":{\"hidden_size\":64},\"text_config\":{\"hidden_size\":128}}", NULL,
        MGV_TOWER_TEXT);
    assert_int_equal(config.hidden, 64);
    config = good("{\"model_type\":\"clip\",\"text_config_dict\":null,\"text_config\":{\"hidden_size\":128}}", NULL, MGV_TOWER_TEXT);
    assert_int_equal(config.hidden, 128);
    config = good("{\"model_type\":\"siglip\",\"text_config_dict\":{\"hidden_size\":96},\"text_config\":{\"hidden_size\":192}}", NULL,
        MGV_TOWER_TEXT); /* of CLIP alone */
    assert_int_equal(config.hidden, 192);
    config = good("{\"model_type\":\"clip\",\"text_config\":null,\"hidden_size\":256}", NULL, MGV_TOWER_TEXT);
    assert_int_equal(config.hidden, 256);
    assert_int_equal(config.has_text, 1);
    config = good("{\"model_type\":\"siglip\",\"patch_size\":16}", NULL, MGV_TOWER_VISION); /* a vision tower of that name */
    assert_int_equal(config.has_text, 0);
}
static void language_models_are_read_so(void **state) {
    mgv__config config;
    (void)state;
    config = good(LANGUAGE(",\"num_attention_heads\":16,\"num_key_value_heads\":null"), NULL, MGV_TOWER_LANGUAGE);
    assert_int_equal(config.key_heads, 16);
    config = good(LANGUAGE(",\"num_attention_heads\":16,\"num_key_value_heads\":8"), NULL, MGV_TOWER_LANGUAGE);
    assert_int_equal(config.key_heads, 8);
    config = good(LANGUAGE(",\"rope_scaling\":null,\"rope_parameters\":null,\"rope_theta\":7"), NULL, MGV_TOWER_LANGUAGE);
    assert_true(config.rope_theta == 7.0f);
    config = good(LANGUAGE(",\"rope_parameters\":{\"rope_theta\":9,\"partial_rotary_factor\":1.0},\"layer_types\":[\"full_attention\"]"),
        NULL,
                  MGV_TOWER_LANGUAGE);
    assert_true(config.rope_theta == 9.0f);
    config = good(LANGUAGE(",\"rope_scaling\":{},\"rope_parameters\":{\"rope_theta\":11}"), NULL, MGV_TOWER_LANGUAGE);
    assert_true(config.rope_theta == 11.0f);
    config = good(WHOLE(",\"text_config\":{}"), NULL, MGV_TOWER_LANGUAGE);
    assert_int_equal(config.has_tower, 0);
    config = good(WHOLE(",\"vision_config\":null,\"text_config\":{}"), NULL, MGV_TOWER_LANGUAGE);
    assert_int_equal(config.has_tower, 0);
    config = good(WHOLE(",\"vision_config\":{},\"text_config\":{}"), NULL, MGV_TOWER_LANGUAGE);
    assert_int_equal(config.has_tower, 1);
}

/* ---- where files are looked for ---- */

static mgv_result look(const char *path, const fake_file *entries, size_t count, uint64_t fail_at, mgv_error *error) {
    mgv_model_desc desc;
    fake_files files;
    mgv__source source;
    mgv__config config;
    mgv_result result;
    memset(&desc, 0, sizeof desc);
    desc.path = path;
    desc.io = fake_files_make(&files, entries, count);
    files.fail_at = fail_at;
    result = mgv__source_open(&source, &desc, error);
    if (result == MGV_OK) result = mgv__config_read(&config, &source, error);
    assert_int_equal(files.open_now, 0);
    return result;
}
static void names_of_the_hub_are_told_from_paths(void **state) {
    static const struct { const char *path; int is_name; } cases[] = {
        {"owner/name", 1}, {"~/name", 0}, {"./name", 0}, {"/name", 0}, {"owner/", 0}, {"owner/name/x", 0}, {"name", 0},
    };
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        mgv_error error;
        assert_int_equal(look(cases[i].path, NULL, 0, 0, &error), MGV_ERROR_IO);
        if ((strstr(error.message, "hf download") != NULL) != cases[i].is_name) fail_msg("%s: %s", cases[i].path, error.message);
    }
}
/* The root of a model in the cache of the hub: refs/main names the directory of a revision. */
static void snapshots_are_entered(void **state) {
#define REVISION "0123456789abcdef0123456789abcdef01234567"
#define LONGEST "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
    static const struct { const char *revision; mgv_result code; const char *says; } cases[] = {
        {REVISION, MGV_OK, ""}, {REVISION "\n", MGV_OK, ""}, {REVISION "\r\n", MGV_OK, ""}, {"", MGV_ERROR_FORMAT, "is no revision"},
        {REVISION " ", MGV_ERROR_FORMAT, "is no revision"}, {"main", MGV_ERROR_FORMAT, "\"main\" is no revision"},
        {LONGEST "0", MGV_ERROR_IO, "there is no snapshots/" LONGEST "/config.json"},
    };
    mgv_error error;
    size_t i;
    uint64_t fail_at;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        fake_file files[2] = {{"cache/refs/main", NULL, 0}, {"cache/snapshots/" REVISION "/config.json", SIGLIP, sizeof SIGLIP - 1}};
        files[0].data = cases[i].revision;
        files[0].bytes = strlen(cases[i].revision);
        if (look("cache", files, 2, 0, &error) != cases[i].code || strstr(error.message, cases[i].says) == NULL)
            fail_msg("%s: %s", cases[i].revision, error.message);
    }
    for (fail_at = 1; fail_at <= 4; fail_at++) { /* config.json, refs/main opened and read, the snapshot's config.json */
        fake_file files[2] = {{"cache/refs/main", REVISION, sizeof REVISION - 1}, {"cache/snapshots/" REVISION "/config.json", SIGLIP, 23}};
        assert_int_equal(look("cache", files, 2, fail_at, &error), MGV_ERROR_IO);
    }
}
/* A message begins with the directory, once, and of a long one with its end, in whole characters. */
static void messages_name_the_directory(void **state) {
    static char path[1024];
    mgv__source source;
    mgv_error error;
    size_t i;
    (void)state;
    memset(&source, 0, sizeof source);
    source.path = "here";
    mgv__source_name_error(&source, NULL);
    strcpy(error.message, "it is wrong");
    mgv__source_name_error(&source, &error);
    assert_string_equal(error.message, "here: it is wrong");
    mgv__source_name_error(&source, &error);
    assert_string_equal(error.message, "here: it is wrong");
    strcpy(error.message, "hereafter it is wrong");
    mgv__source_name_error(&source, &error);
    assert_string_equal(error.message, "here: hereafter it is wrong");
    source.path = NULL;
    mgv__source_name_error(&source, &error);
    assert_string_equal(error.message, "here: hereafter it is wrong");
    for (i = 0; i + 4 < sizeof path; i += 2) memcpy(path + i, "\xC3\xA9", 3);
    source.path = path;
    for (i = 0; i < 2; i++) { /* the end that is shown begins within a character once */
        strcpy(error.message, "wrong");
        mgv__source_name_error(&source, &error);
        assert_memory_equal(error.message, "...\xC3\xA9\xC3\xA9", 7);
        assert_non_null(strstr(error.message, i ? "\xA9/: wrong" : "\xA9: wrong"));
        strcat(path, "/");
    }
}

/* ---- sizes of pictures ---- */

static mgv__pixels_config pixels_of(int32_t size) {
    mgv__pixels_config c;
    memset(&c, 0, sizeof c);
    c.size = size;
    c.resample = MGV__RESAMPLE_BICUBIC;
    c.width = c.height = c.shortest_edge = 32;
    c.max_patches = 16;
    c.factor = 16;
    c.min_pixels = 256;
    c.max_pixels = 4096;
    c.do_resize = c.do_rescale = 1;
    c.rescale_factor = 1.0 / 255;
    c.temporal_patch = 1;
    c.patch = 8;
    c.merge = 2;
    return c;
}
static void refuse(const mgv__pixels_config *c, uint32_t width, uint32_t height, const char *says) {
    mgv_error error;
    mgv_grid grid;
    if (mgv__pixels_grid(c, width, height, 1, 0, 0, &grid, &error) == MGV_OK) fail_msg("%u x %u was taken, not \"%s\"", width, height,
        says);
    if (error.code != MGV_ERROR_ARGUMENT || strstr(error.message, says) == NULL) fail_msg("%u x %u: %s", width, height, error.message);
}
static void pictures_that_cannot_be_made_so(void **state) {
    mgv__pixels_config c = pixels_of(MGV__SIZE_EDGES);
    (void)state;
    refuse(&c, 1, MGV__MAX_SIDE, "would become one without pixels, or with a side of more than");
    refuse(&c, MGV__MAX_SIDE, 1, "would become one without pixels, or with a side of more than");
    refuse(&c, 32, MGV__MAX_SIDE + 1, "the most is");
    refuse(&c, MGV__MAX_SIDE + 1, 32, "the most is");
    c = pixels_of(MGV__SIZE_WITHIN);
    refuse(&c, MGV__MAX_SIDE, 1, "would become one without pixels");
    refuse(&c, 1, MGV__MAX_SIDE, "would become one without pixels");
    c = pixels_of(MGV__SIZE_EXACT);
    c.do_resize = 0;
    refuse(&c, 32, 7, "smaller than a patch of 8");
    refuse(&c, 7, 32, "smaller than a patch of 8");
    c.only_side = 32;
    refuse(&c, 32, 40, "becomes 32 x 40 (do_resize is false); this model takes 32 x 32");
    refuse(&c, 40, 32, "becomes 40 x 32 (do_resize is false); this model takes 32 x 32");
    c = pixels_of(MGV__SIZE_AREA);
    c.do_resize = 0;
    refuse(&c, 32, 40, "takes multiples of 16");
    refuse(&c, 40, 32, "takes multiples of 16");
    c = pixels_of(MGV__SIZE_PATCHES);
    c.do_resize = 0;
    c.merge = 1;
    c.factor = 8;
    refuse(&c, 8, 17 * 8, "is 17 patches (do_resize is false); this model takes 16 at most");
}
static void settings_of_no_height_are_refused(void **state) {
    mgv__pixels_config c = pixels_of(MGV__SIZE_EXACT);
    mgv_error error;
    (void)state;
    c.crop_width = c.crop_height = 32;
    assert_int_equal(mgv__pixels_config_check(&c, &error), MGV_OK);
    c.height = 0;
    assert_int_equal(mgv__pixels_config_check(&c, &error), MGV_ERROR_MODEL);
    assert_non_null(strstr(error.message, "no size that pictures become"));
}
/* More tokens need no less scratch memory, up to pictures of the largest side; a picture of no token is one of a patch at least. */
static void scratch_grows_with_pictures(void **state) {
    const mgv__pixels_config c = pixels_of(MGV__SIZE_AREA);
    const uint32_t tokens[] = {0, 1, 4, 64, 4096, 1u << 22, UINT32_MAX / 2, UINT32_MAX};
    size_t bytes[COUNT_OF(tokens)], i;
    mgv_error error;
    (void)state;
    for (i = 0; i < COUNT_OF(tokens); i++) {
        assert_int_equal(mgv__pixels_scratch_of(&c, 640, 480, tokens[i], &bytes[i], &error), MGV_OK);
        if (i > 0) assert_true(bytes[i] >= bytes[i - 1]);
    }
    assert_true(bytes[0] > 0 && bytes[0] == bytes[1]);
    assert_true(bytes[3] > bytes[1]);
    assert_true(bytes[COUNT_OF(tokens) - 1] == bytes[COUNT_OF(tokens) - 2]);
    assert_int_equal(mgv__pixels_scratch_of(&c, 0, 480, 4, bytes, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv__pixels_scratch_of(&c, 640, 0, 4, bytes, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv__pixels_scratch_of(&c, MGV__MAX_SIDE + 1, 480, 4, bytes, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv__pixels_scratch_of(&c, 640, MGV__MAX_SIDE + 1, 4, bytes, &error), MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "from 1 to 16777216 a side can be"));
}

/* ---- conversations ---- */

static void templates_are_looked_for_so(void **state) {
    static const struct { const char *json; mgv_result code; const char *says; } bad[] = {
        {"{\"chat_template\":7}", MGV_ERROR_MODEL, "there is no chat template"},
        {"{\"chat_template\":[]}", MGV_ERROR_MODEL, "there is no chat template"},
        {"{\"chat_template\":[7,{},{\"name\":\"default\"},{\"name\":\"default\",\"template\":7},{\"name\":\"x\",\"template\":\"x\"}]}",
         MGV_ERROR_MODEL, "there is no chat template"},
        {"{\"chat_template\":\"\"}", MGV_ERROR_UNSUPPORTED, "this chat template of 0 bytes is not known"},
        {"{\"chat_template\":\" \\n\"}", MGV_ERROR_UNSUPPORTED, "this chat template of 2 bytes is not known"},
        {"{\"chat_template\":[{\"template\":\"x\"},{\"name\":\"default\",\"template\":\"xyz\"}]}", MGV_ERROR_UNSUPPORTED,
         "of 3 bytes is not known"},
    };
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(bad); i++) {
        mgv_memory_file file = {"tokenizer_config.json", NULL, 0};
        mgv_model_desc desc;
        mgv_error error;
        mgv_chat chat;
        memset(&desc, 0, sizeof desc);
        file.data = bad[i].json;
        file.bytes = strlen(bad[i].json);
        desc.memory_files = &file;
        desc.memory_file_count = 1;
        if (mgv_chat_open(&chat, &desc, &error) == MGV_OK) fail_msg("case %zu was taken", i);
        if (error.code != bad[i].code || strstr(error.message, bad[i].says) == NULL) fail_msg("case %zu: %s", i, error.message);
    }
}
static mgv_message say(int32_t role, const char *text) {
    mgv_message message;
    memset(&message, 0, sizeof message);
    message.role = role;
    message.text = text;
    message.bytes = text ? strlen(text) : 0;
    return message;
}
static void messages_are_checked(void **state) {
    mgv_message message = say(-1, "x");
    char text[256];
    uint64_t bytes;
    mgv_error error;
    (void)state;
    assert_int_equal(mgv_chat_write(MGV_CHAT_QWEN3, &message, 1, 0, text, sizeof text, &bytes, &error), MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "message 0: -1 is no role"));
    message = say(MGV_ROLE_ASSISTANT + 1, "x");
    assert_int_equal(mgv_chat_write(MGV_CHAT_QWEN3, &message, 1, 0, text, sizeof text, &bytes, &error), MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "message 0: 3 is no role"));
    message = say(MGV_ROLE_USER, NULL);
    message.bytes = 1;
    assert_int_equal(mgv_chat_write(MGV_CHAT_QWEN3, &message, 1, 0, text, sizeof text, &bytes, &error), MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "message 0: its text is NULL"));
    message.bytes = 0;
    assert_int_equal(mgv_chat_write(MGV_CHAT_QWEN3, &message, 1, 0, text, sizeof text, &bytes, &error), MGV_OK);
    assert_int_equal(bytes, strlen("<|im_start|>user\n<|im_end|>\n"));
    assert_memory_equal(text, "<|im_start|>user\n<|im_end|>\n", (size_t)bytes);
}
/* What was thought is kept since the last question, and an answer of a tool is none: it begins and ends with its tags. */
static void thoughts_are_kept_since_the_last_question(void **state) {
    static const struct { const char *user; int kept; } cases[] = {
        {"<tool_response>\n1\n</tool_response>", 1}, {"<tool_response>", 0}, {"<tool_response> which has no end", 0},
        {"1</tool_response> which has no begin</tool_response>", 0}, {"", 0},
    };
    mgv_message messages[4];
    static char text[1024];
    uint64_t bytes;
    mgv_error error;
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        messages[0] = say(MGV_ROLE_USER, "What?");
        messages[1] = say(MGV_ROLE_ASSISTANT, "<think>\nFirst\n</think>\n\nThis.");
        messages[2] = say(MGV_ROLE_USER, cases[i].user);
        messages[3] = say(MGV_ROLE_ASSISTANT, "<think>\nSecond\n</think>\n\nThat.");
        assert_int_equal(mgv_chat_write(MGV_CHAT_QWEN3, messages, 4, 0, text, sizeof text - 1, &bytes, &error), MGV_OK);
        text[bytes] = 0;
        if ((strstr(text, "<think>\nFirst\n</think>\n\nThis.") != NULL) != cases[i].kept) fail_msg("\"%s\": %s", cases[i].user, text);
        assert_non_null(strstr(text, "<think>\nSecond\n</think>\n\nThat."));
    }
    messages[0] = say(MGV_ROLE_USER, cases[0].user); /* no question at all */
    assert_int_equal(mgv_chat_write(MGV_CHAT_QWEN3, messages, 2, 0, text, sizeof text - 1, &bytes, &error), MGV_OK);
    text[bytes] = 0;
    assert_null(strstr(text, "First"));
    assert_non_null(strstr(text, "<|im_start|>assistant\nThis."));
}

/* Of two keys that say the same thing transformers believes one, wherever it stands. */
static void the_newer_key_is_believed(void **state) {
    static const struct { const char *config; float theta; } cases[] = {
        {"{\"model_type\":\"qwen3_vl\",\"vision_config\":{\"rope_theta\":100,\"rope_parameters\":{\"rope_theta\":200}}}", 200},
        {"{\"model_type\":\"qwen3_vl\",\"vision_config\":{\"rope_parameters\":{\"rope_theta\":200},\"rope_theta\":100}}", 200},
        {"{\"model_type\":\"qwen2_vl\",\"vision_config\":{\"rope_parameters\":{\"rope_theta\":200},\"rope_theta\":100}}", 200},
        {"{\"model_type\":\"qwen2_5_vl\",\"vision_config\":{\"rope_parameters\":{},\"rope_theta\":100}}", 100},
        {"{\"model_type\":\"qwen2_5_vl\",\"vision_config\":{\"rope_parameters\":null,\"rope_theta\":100}}", 100},
        {"{\"model_type\":\"qwen2_5_vl\",\"vision_config\":{}}", 10000},
    };
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++)
        if (good(cases[i].config, NULL, MGV_TOWER_VISION).rope_theta != cases[i].theta) fail_msg("%s", cases[i].config);
    assert_int_equal(good("{\"model_type\":\"qwen2_5_vl\",\"vision_config\":{\"in_channels\":3,\"in_chans\":1}}", NULL,
                          MGV_TOWER_VISION).channels, 3);
}
/* A step that is null is not done, though the processor's class does it; any other null is as if the key were not there. */
static void null_steps_are_not_done(void **state) {
    mgv__pixels_config done = good(CLIP, "{}", MGV_TOWER_VISION).pixels;
    mgv__pixels_config undone = good(CLIP, "{\"do_resize\":null,\"do_rescale\":null,\"do_normalize\":null,\"resample\":null}",
                                     MGV_TOWER_VISION).pixels;
    (void)state;
    assert_true(done.do_resize && done.do_rescale && done.do_normalize && done.crop_width == 224);
    assert_true(!undone.do_resize && !undone.do_rescale && !undone.do_normalize);
    assert_int_equal(undone.resample, done.resample);
    undone = good(CLIP, "{\"do_center_crop\":null,\"size\":{\"height\":224,\"width\":224}}", MGV_TOWER_VISION).pixels;
    assert_true(undone.crop_width == 0 && undone.crop_height == 0 && undone.do_resize);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(processors_are_read_so),
        cmocka_unit_test(the_newer_key_is_believed),
        cmocka_unit_test(null_steps_are_not_done),
        cmocka_unit_test(text_towers_are_read_so),
        cmocka_unit_test(language_models_are_read_so),
        cmocka_unit_test(names_of_the_hub_are_told_from_paths),
        cmocka_unit_test(snapshots_are_entered),
        cmocka_unit_test(messages_name_the_directory),
        cmocka_unit_test(pictures_that_cannot_be_made_so),
        cmocka_unit_test(settings_of_no_height_are_refused),
        cmocka_unit_test(scratch_grows_with_pictures),
        cmocka_unit_test(templates_are_looked_for_so),
        cmocka_unit_test(messages_are_checked),
        cmocka_unit_test(thoughts_are_kept_since_the_last_question),
    };
    return cmocka_run_group_tests_name("unusual configs", tests, NULL, NULL);
}
