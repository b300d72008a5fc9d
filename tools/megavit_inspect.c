/* megavit inspect: what is in a safetensors file or a model's directory, and whether all of it is valid. */
#include <string.h>
#include <sys/stat.h>
#include "tools/cli.h"

/* ---- the table of tensors ---- */

/* A dtype without a name of its own in the table counts here; the format has 22. */
typedef struct totals {
    uint64_t elements, bytes;
    uint64_t of_dtype[MGV_DTYPE_COUNT]; /* tensors */
} totals;

static void print_shape(const mgv_tensor_info *tensor) {
    char text[MGV_MAX_RANK * 24 + 3];
    size_t used = (size_t)snprintf(text, sizeof text, "[");
    for (uint32_t i = 0; i < tensor->rank; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%llu", i ? ", " : "", (unsigned long long)tensor->shape[i]);
    snprintf(text + used, sizeof text - used, "]");
    printf("%-22s", text);
}

/* The library has checked that elements of less than a byte fill their bytes exactly. */
static uint64_t element_count(const mgv_tensor_info *tensor) {
    uint64_t bits = mgv_dtype_bits(tensor->dtype);
    return tensor->bytes / bits * 8 + tensor->bytes % bits * 8 / bits;
}

static void print_tensor(const mgv_tensor_info *tensor, totals *sum) {
    printf("%-12s", mgv_dtype_name(tensor->dtype));
    print_shape(tensor);
    printf(" %12llu  ", (unsigned long long)tensor->bytes);
    cli_print_text(stdout, tensor->name);
    putchar('\n');
    sum->elements += element_count(tensor);
    sum->bytes += tensor->bytes;
    sum->of_dtype[tensor->dtype]++;
}

static void print_table_head(void) { printf("%-12s%-22s %12s  %s\n", "dtype", "shape", "bytes", "name"); }

static void print_totals(const totals *sum, uint32_t count) {
    printf("\n%u tensors, %llu elements, %llu bytes:", count, (unsigned long long)sum->elements, (unsigned long long)sum->bytes);
    for (int dtype = 0; dtype < MGV_DTYPE_COUNT; dtype++)
        if (sum->of_dtype[dtype]) printf(" %llu %s", (unsigned long long)sum->of_dtype[dtype], mgv_dtype_name(dtype));
    putchar('\n');
}

/* ---- one file ---- */

static int inspect_file(const char *path) {
    mgv_safetensors *file = NULL;
    mgv_safetensors_desc desc;
    mgv_error error;
    mgv_result result;
    totals sum;
    uint32_t count;
    memset(&desc, 0, sizeof desc);
    memset(&sum, 0, sizeof sum);
    desc.path = path;
    result = mgv_safetensors_open(&file, &desc, &error);
    if (result != MGV_OK) return cli_fail_library(path, result, &error);
    count = mgv_safetensors_tensor_count(file);
    for (uint32_t i = 0; i < mgv_safetensors_metadata_count(file); i++) {
        const char *key, *value;
        if (mgv_safetensors_get_metadata(file, i, &key, &value) != MGV_OK) continue;
        printf("metadata  ");
        cli_print_text(stdout, key);
        printf(" = ");
        cli_print_text(stdout, value);
        putchar('\n');
    }
    print_table_head();
    for (uint32_t i = 0; i < count; i++) {
        mgv_tensor_info tensor;
        if (mgv_safetensors_get_tensor(file, i, &tensor) == MGV_OK) print_tensor(&tensor, &sum);
    }
    print_totals(&sum, count);
    mgv_safetensors_close(file);
    return CLI_DONE;
}

/* ---- a model ---- */

static void print_outputs(const mgv_model_info *info) {
    printf("outputs   ");
    if (info->pooled_width) printf("pooled [%u], ", info->pooled_width);
    if (info->embed_width) printf("embeds [%u], ", info->embed_width);
    if (info->tokens_per_image) printf("tokens [%u, %u], ", info->tokens_per_image, info->token_width);
    else printf("tokens [any, %u], ", info->token_width);
    printf("layer:0 to layer:%u", info->layers);
    if (info->deepstack_count) printf(", deepstack:0 to deepstack:%u", info->deepstack_count - 1);
    putchar('\n');
}

static void print_model(const mgv_model_info *info) {
    printf("model     %s vision tower\n", info->family_name);
    if (info->image_size) printf("pictures  %u x %u pixels", info->image_size, info->image_size);
    else printf("pictures  of any size");
    printf(" in patches of %u x %u", info->patch, info->patch);
    if (info->merge > 1) printf(", %u x %u merged", info->merge, info->merge);
    putchar('\n');
    printf("layers    %u, width %u, MLP %u, %u heads of %u\n", info->layers, info->hidden, info->intermediate, info->heads, info->head_dim);
    print_outputs(info);
    printf("weights   %llu parameters, %llu bytes in memory, %s\n", (unsigned long long)info->parameters, (unsigned long long)info->bytes,
           info->dtype == MGV_DTYPE_NONE ? "mixed" : mgv_dtype_name(info->dtype));
    if (info->flops_per_image > 0) printf("work      %.4g GFLOP an image\n", info->flops_per_image * 1e-9);
    else printf("work      depends on the picture: see megavit plan\n");
    printf("hash      %016llx\n", (unsigned long long)info->hash);
}

static void print_three(const char *name, const double *values, const char *from) {
    printf("%-10s%.8g %.8g %.8g (%s)\n", name, values[0], values[1], values[2], from);
}
static int clips_differ(const mgv_preprocessing_info *r) {
    return r->clip_do_resize != r->do_resize || r->clip_do_rescale != r->do_rescale || r->clip_do_normalize != r->do_normalize ||
           r->clip_resample != r->resample || r->clip_rescale_factor != r->rescale_factor ||
           memcmp(r->clip_mean, r->mean, sizeof r->mean) != 0 || memcmp(r->clip_std, r->std, sizeof r->std) != 0;
}
/* How pictures are prepared, and the file that each setting came from. */
static void print_preprocessing(const mgv_preprocessing_info *rules) {
    static const char *const filters[] = {"nearest", "Lanczos", "bilinear", "bicubic"};
    printf("processor %s\nsize      %s (%s)\n", rules->processor, rules->size, rules->size_from);
    if (rules->clip_size_from)
        printf("clips     %llu to %llu pixels%s (%s)\n", (unsigned long long)rules->clip_min_pixels,
               (unsigned long long)rules->clip_max_pixels, rules->clips_count_frames ? " in all frames" : " a frame", rules->clip_size_from);
    if (rules->clip_tokens) printf("clips     capped by max_video_tokens %u\n", rules->clip_tokens);
    if (rules->do_resize) printf("resample  %s (%s)\n", filters[rules->resample], rules->resample_from);
    if (!rules->do_rescale) printf("rescale   no\n");
    if (rules->do_normalize) {
        print_three("mean", rules->mean, rules->mean_from);
        print_three("std", rules->std, rules->std_from);
    } else {
        printf("mean, std not normalised\n");
    }
    if (clips_differ(rules)) {
        if (!rules->clip_do_resize) printf("of clips  not resized\n");
        else printf("of clips  %s (%s)\n", filters[rules->clip_resample], rules->clip_resample_from);
        if (!rules->clip_do_rescale) printf("  rescale no\n");
        if (rules->clip_do_normalize) {
            print_three("  mean", rules->clip_mean, rules->clip_mean_from);
            print_three("  std", rules->clip_std, rules->clip_std_from);
        } else {
            printf("  mean, std not normalised\n");
        }
    }
}

/* The text tower of a directory, or why it cannot be used. */
static mgv_result print_texts(const char *path, mgv_error *error) {
    mgv_model *model = NULL;
    mgv_model_desc desc = {0};
    mgv_model_info info;
    mgv_result result;
    desc.path = path;
    desc.tower = MGV_TOWER_TEXT;
    desc.logger = cli_logger();
    result = mgv_model_open(&model, &desc, error);
    if (result == MGV_OK) result = mgv_model_get_info(model, &info);
    if (result == MGV_OK) {
        printf("texts     %s text tower: %u layers, width %u, MLP %u, %u heads of %u; %u tokens of %u, %s; rows of %u\n", info.family_name,
               info.layers, info.hidden, info.intermediate, info.heads, info.head_dim, info.max_text_tokens, info.vocabulary,
               info.has_tokenizer ? "with their tokenizer" : "without a tokenizer", info.text_width);
    }
    mgv_model_close(model);
    return result;
}

/* How its files want a text to be chosen, and what they ask for that is not done. */
static void print_generation(const mgv_generation_info *g) {
    printf("chooses   ");
    if (g->do_sample)
        printf("by chance, temperature %g, top-k %u, top-p %g, min-p %g", (double)g->temperature, g->top_k, (double)g->top_p,
               (double)g->min_p);
    else printf("the likeliest id");
    if (g->repetition_penalty != 1.0f) printf(", repetition penalty %g", (double)g->repetition_penalty);
    for (uint32_t i = 0; i < g->stop_count; i++) printf("%s%u", i ? ", " : "; ends at ", g->stop_ids[i]);
    printf(" (%s)\n", g->from);
    if (g->undone[0]) printf("not done  %s\n", g->undone);
}
static void print_template(const mgv_model_desc *desc) {
    static const char *const names[MGV_CHATS] = {"none", "Qwen3", "Qwen3-VL", "Qwen3 Instruct 2507", "Qwen3 Thinking 2507",
                                                 "Qwen3-VL Thinking"};
    mgv_chat chat;
    mgv_error error;
    printf("template  ");
    if (mgv_chat_open(&chat, desc, &error) == MGV_OK) printf("%s", names[chat]);
    else cli_print_text(stdout, error.message);
    putchar('\n');
}
/* The language model of a directory, or why it cannot be used. */
static mgv_result print_language(const char *path, mgv_error *error) {
    mgv_model *model = NULL;
    mgv_model_desc desc = {0};
    mgv_model_info info;
    mgv_generation_info generation;
    mgv_result result;
    desc.path = path;
    desc.tower = MGV_TOWER_LANGUAGE;
    desc.logger = cli_logger();
    result = mgv_model_open(&model, &desc, error);
    if (result == MGV_OK) result = mgv_model_get_info(model, &info);
    if (result == MGV_OK) result = mgv_model_get_generation(model, &generation);
    if (result == MGV_OK) {
        printf("language  %s: %u layers, width %u, MLP %u, %u heads of %u, %u of keys and values; %u ids, made for %u of them in a text\n",
               info.family_name, info.layers, info.hidden, info.intermediate, info.heads, info.head_dim, info.key_value_heads,
               info.vocabulary, info.max_positions);
        printf("weights   %llu parameters, %llu bytes in memory, %s, %s\n", (unsigned long long)info.parameters,
               (unsigned long long)info.bytes, info.dtype == MGV_DTYPE_NONE ? "mixed" : mgv_dtype_name(info.dtype),
               info.patch ? "the tower's among them" : "no tower");
        print_generation(&generation);
        print_template(&desc);
    }
    mgv_model_close(model);
    return result;
}

static void print_refusal(const char *what, const mgv_error *error) {
    printf("%-10snot to be used: ", what);
    cli_print_text(stdout, error->message);
    putchar('\n');
}

static int inspect_model(const char *path) {
    mgv_model *model = NULL;
    mgv_model_desc desc;
    mgv_model_info info;
    mgv_preprocessing_info rules;
    mgv_error error, other;
    mgv_result result;
    totals sum;
    memset(&desc, 0, sizeof desc);
    memset(&sum, 0, sizeof sum);
    desc.path = path;
    desc.logger = cli_logger();
    result = mgv_model_open(&model, &desc, &error);
    if (result == MGV_ERROR_UNSUPPORTED) { /* a text tower or a language model alone */
        if (print_texts(path, &other) == MGV_OK || print_language(path, &other) == MGV_OK) return CLI_DONE;
        if (other.code != MGV_ERROR_UNSUPPORTED) return cli_fail_library(path, other.code, &other);
    }
    if (result == MGV_OK) result = mgv_model_get_info(model, &info);
    if (result == MGV_OK) result = mgv_model_get_preprocessing(model, &rules);
    if (result != MGV_OK) return cli_fail_library(path, result, &error);
    print_model(&info);
    print_preprocessing(&rules);
    if (info.has_text && print_texts(path, &other) != MGV_OK) print_refusal("texts", &other);
    if (info.has_language && print_language(path, &other) != MGV_OK) print_refusal("language", &other);
    putchar('\n');
    print_table_head();
    for (uint32_t i = 0; i < info.tensor_count; i++) {
        mgv_tensor_info tensor;
        if (mgv_model_get_tensor(model, i, &tensor) == MGV_OK) print_tensor(&tensor, &sum);
    }
    print_totals(&sum, info.tensor_count);
    mgv_model_close(model);
    return CLI_DONE;
}

/* ---- the command ---- */

/* Whatever is wrong with what lies there is a bad file, not a wrong command line. */
static int inspect(const char *path) {
    static const char ending[] = ".safetensors";
    struct stat about;
    size_t length = strlen(path), ending_length = sizeof ending - 1;
    int is_file = stat(path, &about) == 0 ? !S_ISDIR(about.st_mode)
                                          : length > ending_length && strcmp(path + length - ending_length, ending) == 0;
    int status = is_file ? inspect_file(path) : inspect_model(path);
    return status == CLI_USAGE ? CLI_BAD_FILE : status;
}

static int run(const cli_command *command, int argc, char **argv) {
    static const cli_option options[] = {{NULL, CLI_FLAG, NULL, NULL, NULL}};
    cli_list paths = {0};
    int status = cli_parse(command, options, &paths, argc, argv);
    if (status == CLI_GO_ON) status = paths.count == 1 ? inspect(paths.items[0]) : cli_usage(command, "one PATH, not %zu", paths.count);
    cli_list_free(&paths);
    return status;
}

const cli_command cli_inspect = {
    "inspect", "PATH", "what is in a safetensors file or a model's directory",
    "PATH is a safetensors file, which is checked whole but for the values of its tensors, or a model's directory, which is\n"
    "opened as for use, whole. Only the tensors of a vision tower are listed for a directory. Exit code 0: all of it is valid.\n",
    run};
