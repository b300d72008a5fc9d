/* Model directories as people have them: what lies there in place of a checkpoint, lost shards, other programs' models, a cache's
   root. Each case is made from a small saved model in tests/golden. */
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "support.h"

/* ---- directories in memory, behind an mgv_file_io ---- */

enum { MOST_FILES = 8 };
typedef struct directory {
    fake_file files[MOST_FILES];
    char names[MOST_FILES][128];
    size_t count;
    fake_files state;
    char log[1024]; /* what was said, a line a message */
} directory;

static void put_file(directory *d, const char *name, const void *data, size_t bytes) {
    size_t i;
    void *copy = malloc(bytes + 1);
    assert_non_null(copy);
    memcpy(copy, data, bytes);
    ((char *)copy)[bytes] = 0;
    for (i = 0; i < d->count && strcmp(d->names[i], name) != 0; i++) continue;
    if (i == d->count) {
        assert_true(d->count < MOST_FILES);
        snprintf(d->names[d->count++], sizeof d->names[0], "%s", name);
    } else {
        free((void *)(uintptr_t)d->files[i].data);
    }
    d->files[i].name = d->names[i];
    d->files[i].data = copy;
    d->files[i].bytes = bytes;
}
static void put_text(directory *d, const char *name, const char *text) { put_file(d, name, text, strlen(text)); }
static void put_disk_file(directory *d, const char *name, const char *path) {
    FILE *stream = fopen(path, "rb");
    char *data;
    long bytes;
    assert_non_null(stream);
    fseek(stream, 0, SEEK_END);
    bytes = ftell(stream);
    rewind(stream);
    data = (char *)malloc((size_t)bytes + 1);
    assert_int_equal(fread(data, 1, (size_t)bytes, stream), bytes);
    fclose(stream);
    put_file(d, name, data, (size_t)bytes);
    free(data);
}
/* config.json, preprocessor_config.json and model.safetensors of tests/golden/<saved>, under the path "m". */
static void saved_model(directory *d, const char *saved) {
    static const char *const names[] = {"config.json", "preprocessor_config.json", "model.safetensors"};
    size_t i;
    memset(d, 0, sizeof *d);
    for (i = 0; i < COUNT_OF(names); i++) {
        char name[64], path[160];
        snprintf(name, sizeof name, "m/%s", names[i]);
        snprintf(path, sizeof path, "tests/golden/%s/%s", saved, names[i]);
        put_disk_file(d, name, path);
    }
}
static void free_directory(directory *d) {
    size_t i;
    for (i = 0; i < d->count; i++) free((void *)(uintptr_t)d->files[i].data);
}
static fake_file *find_file(directory *d, const char *name) {
    size_t i;
    for (i = 0; i < d->count; i++)
        if (strcmp(d->files[i].name, name) == 0) return &d->files[i];
    fail_msg("no file %s", name);
    return NULL;
}
static void note(void *user, int32_t level, const char *message) {
    directory *d = (directory *)user;
    size_t used = strlen(d->log);
    assert_int_equal(level, MGV_LOG_WARNING);
    snprintf(d->log + used, sizeof d->log - used, "%s\n", message);
}
static mgv_result open_at(directory *d, const char *path, mgv_model **model, mgv_error *error) {
    mgv_model_desc desc;
    mgv_result result;
    memset(&desc, 0, sizeof desc);
    desc.path = path;
    desc.io = fake_files_make(&d->state, d->files, d->count);
    desc.logger.user = d;
    desc.logger.log = note;
    result = mgv_model_open(model, &desc, error);
    assert_int_equal(d->state.open_now, 0);
    return result;
}
static uint64_t hash_of(directory *d, const char *path) {
    mgv_model *model;
    mgv_model_info info;
    mgv_error error;
    if (open_at(d, path, &model, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_int_equal(mgv_model_get_info(model, &info), MGV_OK);
    mgv_model_close(model);
    return info.hash;
}
static void refused(directory *d, const char *path, mgv_result code, const char *sentence) {
    mgv_model *model;
    mgv_error error;
    mgv_result result = open_at(d, path, &model, &error);
    if (result != code || strstr(error.message, sentence) == NULL)
        fail_msg("%s, not \"%s\": %s", mgv_result_name(result), sentence, result ? error.message : "");
    assert_null(model);
    if (strncmp(error.message, path, strlen(path)) != 0) fail_msg("no directory named: %s", error.message);
}

/* ---- in place of a checkpoint ---- */

static void other_files_are_named(void **state) {
    static const char lfs[] = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 3500000000\n";
    static const struct {
        const char *start;
        size_t bytes;
        const char *sentence;
    } cases[] = {
        {lfs, sizeof lfs - 1, "m: model.safetensors: its 75 bytes are a Git LFS pointer"},
        {"<!DOCTYPE html><html></html>", 28, "its 28 bytes are a web page"},
        {"<html><body>Not Found</body></html>", 35, "a web page"},
        {"PK\003\004\024\000\000\000\010\000", 10, "a zip archive, as PyTorch saves"},
        {"GGUF\003\000\000\000\001\000\000\000", 12, "a GGUF file"},
        {"\200\002}q\000(X\003\000\000", 10, "a pickle, as PyTorch saved weights once"},
        {"\211PNG\r\n\032\n\000\000", 10, "no safetensors file: its header would have 727905341920923785 bytes"},
        {"\377\377\377\377\377\377\377\377\377", 9, "its header would have 18446744073709551615 bytes, more than"},
        {"\377\000\000\000\000\000\000\000{}", 10, "a header of 255 bytes in a file of 10: an incomplete download?"},
        {"", 0, "0 bytes are no safetensors file"},
        {"\001\002\003", 3, "3 bytes are no safetensors file"},
    };
    directory d;
    size_t i;
    (void)state;
    saved_model(&d, "siglip_saved_float16");
    for (i = 0; i < COUNT_OF(cases); i++) {
        put_file(&d, "m/model.safetensors", cases[i].start, cases[i].bytes);
        refused(&d, "m", MGV_ERROR_FORMAT, cases[i].sentence);
    }
    free_directory(&d);
}
/* Cut anywhere behind its header, a file says both sizes. */
static void an_incomplete_download_says_both_sizes(void **state) {
    directory d;
    fake_file *file;
    uint64_t whole, header, sizes[4];
    char sentence[128];
    size_t i;
    (void)state;
    saved_model(&d, "siglip_saved_float16");
    file = find_file(&d, "m/model.safetensors");
    whole = file->bytes;
    header = 8 + mgv__read_u64((const unsigned char *)file->data);
    sizes[0] = header;
    sizes[1] = header + 1;
    sizes[2] = (header + whole) / 2;
    sizes[3] = whole - 1;
    for (i = 0; i < COUNT_OF(sizes); i++) {
        file->bytes = sizes[i];
        snprintf(sentence, sizeof sentence, "m: model.safetensors is incomplete: it has %llu bytes, and its header describes %llu",
                 (unsigned long long)sizes[i], (unsigned long long)whole);
        refused(&d, "m", MGV_ERROR_FORMAT, sentence);
    }
    free_directory(&d);
}

/* ---- models of other programs ---- */

static void other_programs_are_named(void **state) {
    static const struct {
        const char *name, *text, *sentence;
    } cases[] = {
        {"m/config.json", "{\"architecture\":\"vit_base_patch16_siglip_224\",\"pretrained_cfg\":{\"mean\":[0.5]}}", "a model of timm"},
        {"m/config.json", "{\"model_cfg\":{\"embed_dim\":768},\"preprocess_cfg\":{}}", "a model of open_clip"},
        {"m/config.json", "{\"model_type\":\"timm_wrapper\"}", "model_type \"timm_wrapper\" has no vision tower that is known here"},
    };
    directory d;
    size_t i;
    (void)state;
    saved_model(&d, "siglip_saved_float16");
    for (i = 0; i < COUNT_OF(cases); i++) {
        put_text(&d, cases[i].name, cases[i].text);
        refused(&d, "m", MGV_ERROR_UNSUPPORTED, cases[i].sentence);
    }
    free_directory(&d);
    memset(&d, 0, sizeof d);
    put_text(&d, "m/open_clip_config.json", "{\"model_cfg\":{}}");
    refused(&d, "m", MGV_ERROR_UNSUPPORTED, "a model of open_clip");
    free_directory(&d);
}
/* Replaces `from`, which occurs once, by `to` of the same length, in the header. */
static void edit(directory *d, const char *name, const char *from, const char *to) {
    fake_file *file = find_file(d, name);
    char *data = (char *)(uintptr_t)file->data;
    size_t length = strlen(from), i;
    assert_int_equal(length, strlen(to));
    for (i = 0; i + length <= file->bytes; i++) {
        if (memcmp(data + i, from, length) != 0) continue;
        memcpy(data + i, to, length);
        return;
    }
    fail_msg("no %s in %s", from, name);
}
static void quantised_weights_are_named(void **state) {
    directory d;
    const fake_file *config;
    char text[8192];
    (void)state;
    saved_model(&d, "qwen2_5_saved");
    config = find_file(&d, "m/config.json");
    snprintf(text, sizeof text, "{\"quantization_config\":{\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true},%.*s",
             (int)config->bytes - 1, (const char *)config->data + 1);
    put_text(&d, "m/config.json", text);
    hash_of(&d, "m"); /* a tower that was left as it was runs */
    edit(&d, "m/model.safetensors", "blocks.0.attn.qkv.weight", "blocks.0.attn.qkv.absmax");
    refused(&d, "m", MGV_ERROR_MODEL, "the weights are quantised (\"bitsandbytes\")");
    free_directory(&d);
}
/* A tower saved by MLX, channels last, is the same model. */
static void mlx_is_read(void **state) {
    static const char *const saved[] = {"siglip_saved_float16", "qwen2_5_saved"};
    static const char *const names[] = {"patch_embedding.weight\"", "patch_embed.proj.weight\""};
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(saved); i++) {
        directory d;
        uint64_t shape[5], begin, row, places, item, k, c, o, hash;
        char last[96], *at, *end, *data, *copy;
        uint32_t rank = 0;
        size_t used = 0;
        saved_model(&d, saved[i]);
        hash = hash_of(&d, "m");
        data = (char *)(uintptr_t)find_file(&d, "m/model.safetensors")->data;
        at = strstr(data + 8, names[i]);
        assert_non_null(at);
        item = strncmp(strstr(at, "\"dtype\":\"") + 9, "F32", 3) == 0 ? 4 : 2;
        at = strstr(at, "\"shape\":[") + 9;
        for (end = at; *end != ']'; rank++) shape[rank] = strtoull(end + (*end == ','), &end, 10);
        begin = strtoull(strstr(at, "\"data_offsets\":[") + 16, NULL, 10);
        for (k = 2; k < rank; k++) used += (size_t)snprintf(last + used, sizeof last - used, "%llu,", (unsigned long long)shape[k]);
        snprintf(last + used, sizeof last - used, "%llu", (unsigned long long)shape[1]);
        at = strchr(at, ',') + 1;
        assert_int_equal(end - at, strlen(last));
        memcpy(at, last, strlen(last));
        for (places = 1, k = 2; k < rank; k++) places *= shape[k];
        row = places * shape[1];
        copy = (char *)malloc((size_t)(row * item));
        data += 8 + mgv__read_u64((const unsigned char *)data) + begin;
        for (o = 0; o < shape[0]; o++, data += row * item) {
            memcpy(copy, data, (size_t)(row * item));
            for (k = 0; k < places; k++)
                for (c = 0; c < shape[1]; c++)
                    memcpy(data + (k * shape[1] + c) * item, copy + (c * places + k) * item, (size_t)item);
        }
        free(copy);
        assert_true(hash_of(&d, "m") == hash);
        free_directory(&d);
    }
}

/* ---- where models lie ---- */

static void a_hub_name_is_no_directory(void **state) {
    directory d;
    (void)state;
    memset(&d, 0, sizeof d);
    refused(&d, "google/siglip2-base-patch16-224", MGV_ERROR_IO, "hf download google/siglip2-base-patch16-224 --local-dir");
    refused(&d, "m", MGV_ERROR_IO, "m: there is no config.json; a model is the directory that holds one");
    refused(&d, "./models/x", MGV_ERROR_IO, "there is no config.json");
    refused(&d, "/models/x", MGV_ERROR_IO, "there is no config.json");
}
static void a_cache_root_means_its_main_snapshot(void **state) {
    static const char root[] = "/hub/models--google--siglip2";
    static const char *const files[] = {"config.json", "preprocessor_config.json", "model.safetensors"};
    static const char *const good[] = {"0123abcd", "0123abcd\n"}, *const bad[] = {"", "\n", "../0123abcd", "main", "0123abcd/x", "0123 "};
    directory d;
    uint64_t hash;
    char name[128], path[256];
    size_t i;
    (void)state;
    memset(&d, 0, sizeof d);
    for (i = 0; i < COUNT_OF(files); i++) {
        snprintf(name, sizeof name, "%s/snapshots/0123abcd/%s", root, files[i]);
        snprintf(path, sizeof path, "tests/golden/siglip_saved_float16/%s", files[i]);
        put_disk_file(&d, name, path);
    }
    snprintf(path, sizeof path, "%s/snapshots/0123abcd", root);
    hash = hash_of(&d, path);
    refused(&d, root, MGV_ERROR_IO, "there is no config.json");
    snprintf(name, sizeof name, "%s/refs/main", root);
    for (i = 0; i < COUNT_OF(good); i++) {
        put_text(&d, name, good[i]);
        assert_true(hash_of(&d, root) == hash);
    }
    for (i = 0; i < COUNT_OF(bad); i++) {
        put_text(&d, name, bad[i]);
        refused(&d, root, MGV_ERROR_FORMAT, "is no revision");
    }
    put_text(&d, name, "4567");
    refused(&d, root, MGV_ERROR_IO, "there is no snapshots/4567/config.json");
    free_directory(&d);
}
/* The end of a long path is shown, in whole characters, and the sentence behind it. */
static void long_paths_leave_room_for_the_sentence(void **state) {
    char path[1200];
    directory d;
    mgv_model *model;
    mgv_error error;
    size_t i;
    (void)state;
    memset(&d, 0, sizeof d);
    memset(path, 0, sizeof path);
    for (i = 0; i + 4 < sizeof path; i += 3) memcpy(path + i, "/\xC3\xA4", 3);
    assert_int_equal(open_at(&d, path, &model, &error), MGV_ERROR_IO);
    assert_non_null(strstr(error.message, "there is no config.json"));
    assert_int_equal(strncmp(error.message, "...", 3), 0);
    assert_true((error.message[3] & 0xC0) != 0x80);
}

/* ---- shards ---- */

/* A shard that is not there is an error where the tower needs it, and said aloud where it does not. */
static void lost_shards(void **state) {
    static const char root[] = "tests/golden/siglip_saved_sharded";
    directory d;
    mgv_model *model;
    mgv_error error;
    char name[128], path[256], index[16384];
    fake_file *file;
    int i;
    (void)state;
    memset(&d, 0, sizeof d);
    for (i = 1; i <= 4; i++) {
        snprintf(name, sizeof name, "m/model-0000%d-of-00004.safetensors", i);
        snprintf(path, sizeof path, "%s/%s", root, name + 2);
        put_disk_file(&d, name, path);
    }
    put_disk_file(&d, "m/config.json", "tests/golden/siglip_saved_sharded/config.json");
    put_disk_file(&d, "m/preprocessor_config.json", "tests/golden/siglip_saved_sharded/preprocessor_config.json");
    put_disk_file(&d, "m/model.safetensors.index.json", "tests/golden/siglip_saved_sharded/model.safetensors.index.json");
    hash_of(&d, "m");
    assert_string_equal(d.log, "");
    file = find_file(&d, "m/model.safetensors.index.json");
    snprintf(index, sizeof index,
             "{\"weight_map\":{\"lm_head.weight\":\"text.safetensors\",\"nowhere\":\"model-00001-of-00004.safetensors\",%s",
             strstr(strstr((const char *)file->data, "\"weight_map\""), "{") + 1);
    put_text(&d, "m/model.safetensors.index.json", index);
    hash_of(&d, "m");
    assert_non_null(strstr(d.log, "there is no text.safetensors"));
    put_disk_file(&d, "m/model.safetensors.index.json", "tests/golden/siglip_saved_sharded/model.safetensors.index.json");
    find_file(&d, "m/model-00002-of-00004.safetensors")->name = "elsewhere";
    assert_int_equal(open_at(&d, "m", &model, &error), MGV_ERROR_MODEL);
    assert_non_null(strstr(error.message, "model-00002-of-00004.safetensors, which the index names, is not there"));
    free_directory(&d);
}

/* ---- image processors ---- */

/* The config of a directory with these files; NULL: it is not there. */
static void read_settings(directory *d, const char *model, const char *nested, const char *own, const char *video, mgv__config *config) {
    char text[256];
    mgv_model_desc desc;
    mgv__source source;
    mgv_error error;
    memset(d, 0, sizeof *d);
    snprintf(text, sizeof text, "{\"model_type\":\"%s\"}", model);
    put_text(d, "m/config.json", text);
    if (nested) put_text(d, "m/processor_config.json", nested);
    if (own) put_text(d, "m/preprocessor_config.json", own);
    if (video) put_text(d, "m/video_preprocessor_config.json", video);
    memset(&desc, 0, sizeof desc);
    desc.path = "m";
    desc.io = fake_files_make(&d->state, d->files, d->count);
    desc.logger.user = d;
    desc.logger.log = note;
    assert_int_equal(mgv__source_open(&source, &desc, &error), MGV_OK);
    if (mgv__config_read(config, &source, &error) != MGV_OK) fail_msg("%s %s %s: %s", model, nested, own, error.message);
    assert_int_equal(d->state.open_now, 0);
}
/* Where transformers 5.24 looks, and in that order. */
static void settings_are_looked_for_in_order(void **state) {
    static const char nested[] = "{\"image_processor\":{\"image_mean\":0.1},\"video_processor\":{\"image_mean\":0.1,\"min_pixels\":3001}}";
    static const char half[] = "{\"image_processor\":{\"image_mean\":0.1},\"video_processor\":null}";
    static const char none[] = "{\"processor_class\":\"Qwen3VLProcessor\"}";
    static const char own[] = "{\"image_mean\":0.2,\"min_pixels\":3002}", video[] = "{\"image_mean\":0.3,\"min_pixels\":3003}";
    static const struct {
        const char *nested, *own, *video;
        double mean;              /* of pictures */
        uint64_t least;           /* of clips; 0: as pictures */
        const char *file, *clips; /* that they come from */
    } cases[] = {
        {nested, own, video, 0.1, 3001, "processor_config.json", "processor_config.json"},
        {half, own, video, 0.1, 3003, "processor_config.json", "video_preprocessor_config.json"},
        {half, own, NULL, 0.1, 3002, "processor_config.json", "preprocessor_config.json"},
        {half, NULL, NULL, 0.1, 0, "processor_config.json", NULL},
        {none, own, video, 0.2, 3003, "preprocessor_config.json", "video_preprocessor_config.json"},
        {NULL, own, video, 0.2, 3003, "preprocessor_config.json", "video_preprocessor_config.json"},
        {NULL, own, NULL, 0.2, 3002, "preprocessor_config.json", "preprocessor_config.json"},
        {none, NULL, video, 0.5, 3003, NULL, "video_preprocessor_config.json"},
        {none, NULL, NULL, 0.5, 4096, NULL, NULL},
    };
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        directory d;
        mgv__config config;
        read_settings(&d, "qwen3_vl", cases[i].nested, cases[i].own, cases[i].video, &config);
        if (config.pixels.mean[1] != cases[i].mean || config.pixels.clip_min_pixels != cases[i].least)
            fail_msg("case %zu: %g, %llu", i, config.pixels.mean[1], (unsigned long long)config.pixels.clip_min_pixels);
        assert_true(config.pixels_from.file == cases[i].file || strcmp(config.pixels_from.file, cases[i].file) == 0);
        assert_true(config.clips_from.file == cases[i].clips || strcmp(config.clips_from.file, cases[i].clips) == 0);
        assert_int_equal(strstr(d.log, "there is no preprocessor_config.json") != NULL, cases[i].file == NULL);
        free_directory(&d);
    }
}
/* Clips are resized and normalised as their own file says (tests/test_clips.c), and the model's hash tells such a model from another. */
static void clips_have_settings_of_their_own(void **state) {
    static const struct {
        const char *video;
        int32_t differ, resample, rescale;
        double mean;
        uint32_t tokens;
    } cases[] = {
        {"{\"image_mean\":0.2,\"image_std\":0.25}", 0, 3, 1, 0.2, 0},
        {"{\"image_mean\":0.5}", 1, 3, 1, 0.5, 0},
        {"{\"image_mean\":0.2,\"image_std\":0.25,\"resample\":2}", 1, 2, 1, 0.2, 0},
        {"{\"image_mean\":0.2,\"image_std\":0.25,\"cap_pixels_per_frame\":true}", 0, 3, 1, 0.2, 768},
        {"{\"image_mean\":0.2,\"image_std\":0.25,\"do_rescale\":false}", 1, 3, 0, 0.2, 0},
    };
    uint64_t hashes[COUNT_OF(cases)];
    size_t i, k;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        directory d;
        mgv__config config;
        mgv__hash hash;
        read_settings(&d, "qwen3_vl", NULL, "{\"image_mean\":0.2,\"image_std\":0.25}", cases[i].video, &config);
        assert_int_equal(config.pixels.clips_differ, cases[i].differ);
        assert_int_equal(config.pixels.clips.resample, cases[i].resample);
        assert_int_equal(config.pixels.clips.do_rescale, cases[i].rescale);
        assert_true(config.pixels.clips.mean[2] == cases[i].mean && config.pixels.mean[2] == 0.2);
        assert_int_equal(config.pixels.clip_tokens, cases[i].tokens);
        memset(&hash, 0, sizeof hash);
        mgv__hash_pixels_config(&hash, &config.pixels);
        hashes[i] = mgv__hash_end(&hash);
        for (k = 0; k < i; k++) assert_true(hashes[k] != hashes[i]);
        free_directory(&d);
    }
}
static void what_families_published(void **state) {
    static const struct {
        const char *model, *processor;
        double mean;
        int32_t resample, size;
        uint32_t fixed, shortest;
        uint64_t least, most;
    } cases[] = {
        {"siglip", "SiglipImageProcessor", 0.5, 3, MGV__SIZE_EXACT, 224, 0, 0, 0},
        {"clip", "CLIPImageProcessor", 0.48145466, 3, MGV__SIZE_EDGES, 224, 224, 0, 0},
        {"dinov2", "BitImageProcessor", 0.485, 3, MGV__SIZE_EDGES, 224, 256, 0, 0},
        {"dinov2_with_registers", "BitImageProcessor", 0.485, 3, MGV__SIZE_EDGES, 224, 256, 0, 0},
        {"dinov3_vit", "DINOv3ViTImageProcessor", 0.485, 2, MGV__SIZE_EXACT, 224, 0, 0, 0},
        {"siglip2", "Siglip2ImageProcessor", 0.5, 2, MGV__SIZE_PATCHES, 0, 0, 0, 0},
        {"qwen2_vl", "Qwen2VLImageProcessor", 0.48145466, 3, MGV__SIZE_AREA, 0, 0, 3136, 12845056},
        {"qwen2_5_vl", "Qwen2VLImageProcessor", 0.48145466, 3, MGV__SIZE_AREA, 0, 0, 3136, 12845056},
        {"qwen3_vl", "Qwen2VLImageProcessor", 0.5, 3, MGV__SIZE_AREA, 0, 0, 65536, 16777216},
        {"qwen3_5", "Qwen2VLImageProcessor", 0.5, 3, MGV__SIZE_AREA, 0, 0, 65536, 16777216},
    };
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        directory d;
        mgv__config config;
        uint32_t width, height;
        read_settings(&d, cases[i].model, NULL, NULL, NULL, &config);
        mgv__pixels_fixed_size(&config.pixels, &width, &height);
        assert_string_equal(config.pixels_from.processor, cases[i].processor);
        assert_null(config.pixels_from.file);
        assert_true(config.pixels.mean[0] == cases[i].mean);
        assert_int_equal(config.pixels.resample, cases[i].resample);
        assert_int_equal(config.pixels.size, cases[i].size);
        assert_int_equal(width, cases[i].fixed);
        assert_int_equal(height, cases[i].fixed);
        assert_int_equal(config.pixels.shortest_edge, cases[i].shortest);
        assert_int_equal(config.pixels.min_pixels, cases[i].least);
        assert_int_equal(config.pixels.max_pixels, cases[i].most);
        assert_non_null(strstr(d.log, "there is no preprocessor_config.json"));
        free_directory(&d);
    }
}
/* The class that a file names decides what its missing keys stand for. */
static void classes_by_name(void **state) {
    static const struct {
        const char *model, *name, *processor; /* NULL: not known */
    } cases[] = {
        {"siglip", "CLIPImageProcessor", "CLIPImageProcessor"}, {"siglip", "CLIPImageProcessorFast", "CLIPImageProcessor"},
        {"siglip", "CLIPImageProcessorPil", "CLIPImageProcessor"}, {"siglip", "Gemma3ImageProcessor", "Gemma3ImageProcessor"},
        {"siglip", "ConvNextImageProcessor", NULL}, {"siglip", "Fast", NULL}, {"siglip", "", NULL},
        {"qwen2_vl", "Qwen2VLImageProcessorFast", "Qwen2VLImageProcessor"}, {"qwen2_vl", "Qwen2_5_VLImageProcessor", NULL},
    };
    directory d;
    mgv__config config;
    mgv_model *model;
    mgv_error error;
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        char text[128];
        snprintf(text, sizeof text, "{\"image_processor_type\":\"%s\"}", cases[i].name);
        read_settings(&d, cases[i].model, NULL, text, NULL, &config);
        if (cases[i].processor) assert_string_equal(config.pixels_from.processor, cases[i].processor);
        assert_int_equal(strstr(d.log, "is not known here") != NULL, cases[i].processor == NULL);
        free_directory(&d);
    }
    read_settings(&d, "clip", NULL, "{\"feature_extractor_type\":\"CLIPFeatureExtractor\",\"size\":224,\"crop_size\":224}", NULL, &config);
    assert_string_equal(config.pixels_from.processor, "CLIPImageProcessor");
    assert_int_equal(config.pixels.shortest_edge, 224);
    assert_string_equal(d.log, "");
    put_text(&d, "m/preprocessor_config.json", "{\"image_processor_type\":\"Qwen2VLImageProcessor\"}");
    assert_int_equal(open_at(&d, "m", &model, &error), MGV_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "Qwen2VLImageProcessor makes no pictures for a tower of CLIP"));
    put_text(&d, "m/processor_config.json", "{\"image_processor\":[]}");
    assert_int_equal(open_at(&d, "m", &model, &error), MGV_ERROR_MODEL);
    assert_non_null(strstr(error.message, "processor_config.json: image_processor is not an object"));
    free_directory(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_files_are_named),
        cmocka_unit_test(an_incomplete_download_says_both_sizes),
        cmocka_unit_test(other_programs_are_named),
        cmocka_unit_test(quantised_weights_are_named),
        cmocka_unit_test(mlx_is_read),
        cmocka_unit_test(a_hub_name_is_no_directory),
        cmocka_unit_test(a_cache_root_means_its_main_snapshot),
        cmocka_unit_test(long_paths_leave_room_for_the_sentence),
        cmocka_unit_test(lost_shards),
        cmocka_unit_test(settings_are_looked_for_in_order),
        cmocka_unit_test(clips_have_settings_of_their_own),
        cmocka_unit_test(what_families_published),
        cmocka_unit_test(classes_by_name),
    };
    return cmocka_run_group_tests_name("directories", tests, NULL, NULL);
}
