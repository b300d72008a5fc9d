/* megavit generate: pictures and a prompt in, text out. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "tools/language.h"

enum { FORMAT_TEXT = 0, FORMAT_JSON };
enum { DEFAULT_TOKENS = 512 };

typedef struct generate_options {
    cli_session_options session;
    cli_sampling sampling;
    cli_list images;
    const char *prompt, *ids, *logits;
    uint32_t max_tokens;
    int raw, think, ignore_eos;
    int32_t format;
} generate_options;

/* What is generated, and how long it took. */
typedef struct generation {
    uint32_t *prompt;
    uint64_t prompt_count;
    uint32_t *ids;
    uint32_t count;
    int stopped;           /* by an id that ends a text, not by --max-tokens */
    language_text text;
    double begin, loaded, seen, read, done; /* seconds of a clock */
} generation;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* ---- the prompt ---- */

static int read_prompt(const generate_options *options, language *l, const language_picture *pictures, generation *g) {
    const uint32_t flags = MGV_CHAT_ANSWER | (options->think ? MGV_CHAT_THINK : 0);
    mgv_grid *grids = calloc(options->images.count ? options->images.count : 1, sizeof *grids);
    mgv_message message = {0};
    int status = 0;
    if (!grids) return cli_fail(CLI_MACHINE, NULL, "out of memory");
    for (size_t i = 0; i < options->images.count; i++) grids[i] = pictures[i].encoded.grid;
    message.role = MGV_ROLE_USER;
    message.text = options->prompt ? options->prompt : "";
    message.bytes = strlen(message.text);
    message.image_count = (uint32_t)options->images.count;
    message.grids = grids;
    g->prompt = language_ids(l, &message, 1, options->raw ? 0 : flags, &g->prompt_count, &status);
    free(grids);
    return status;
}

/* Ids that the caller has made; the tokenizer is for reading what comes, where there is one. */
static int take_ids(const generate_options *options, language *l, generation *g) {
    cli_ids array;
    mgv_model_desc desc = {0};
    mgv_error error;
    mgv_result result;
    int status = cli_ids_read(&array, options->ids, 1);
    g->prompt = array.ids;
    g->prompt_count = array.columns;
    array.ids = NULL;
    cli_ids_free(&array);
    if (status) return status;
    desc.path = l->name;
    result = mgv_tokenizer_open(&l->tokenizer, &desc, MGV_LOWER_CASE_AUTO, &error);
    if (result == MGV_OK || (result == MGV_ERROR_IO && options->format == FORMAT_JSON)) return 0;
    return result == MGV_ERROR_IO ? cli_fail(CLI_BAD_FILE, l->name, "there is no tokenizer to write text with (%s); --format json gives ids", error.message)
                                  : cli_fail_library(l->name, result, &error);
}

/* ---- what comes ---- */

static int write_logits(const generate_options *options, const language *l) {
    const float *logits;
    uint32_t count;
    uint64_t shape;
    mgv_error error;
    cli_file *file;
    const mgv_result result = mgv_session_logits(l->session, &logits, &count, &error);
    if (result != MGV_OK) return cli_fail_library(l->name, result, &error);
    file = cli_file_create(options->logits);
    if (!file) return CLI_BAD_FILE;
    shape = count;
    cli_npy_header(cli_file_stream(file), "<f4", &shape, 1);
    cli_write_floats(cli_file_stream(file), logits, count);
    return cli_file_commit(file);
}

/* An id that has been chosen, shown. */
static int take_id(const generate_options *options, language *l, generation *g, uint32_t id) {
    const size_t shown = g->text.bytes;
    int status = 0;
    g->ids[g->count++] = id;
    g->stopped = !options->ignore_eos && language_is_stop(l, id);
    if (!g->stopped && l->tokenizer) status = language_text_add(l, &g->text, &id);
    if (!status && options->format == FORMAT_TEXT) language_show(&g->text, shown);
    return status;
}

/* On a GPU several ids are chosen and appended at once. */
static int generate_many(const generate_options *options, language *l, generation *g) {
    enum { AT_ONCE = 16 };
    uint32_t ids[AT_ONCE];
    mgv_generate_desc desc = {0};
    desc.ids = ids;
    desc.sampling = &l->sampling;
    desc.stops = options->ignore_eos ? NULL : l->generation.stop_ids;
    desc.stop_count = options->ignore_eos ? 0 : l->generation.stop_count;
    while (!g->stopped && g->count < options->max_tokens) {
        mgv_error error;
        uint32_t count;
        int32_t stopped;
        int status = 0;
        desc.id_capacity = options->max_tokens - g->count < AT_ONCE ? options->max_tokens - g->count : AT_ONCE;
        const mgv_result result = mgv_session_generate(l->session, &desc, &count, &stopped, &error);
        for (uint32_t i = 0; i < count && !status; i++) status = take_id(options, l, g, ids[i]);
        if (status) return status;
        if (result != MGV_OK) return cli_fail_library(l->name, result, &error);
        if (count < desc.id_capacity && !stopped) return 0; /* the session is full */
    }
    return 0;
}

static int generate(const generate_options *options, language *l, generation *g) {
    mgv_error error;
    mgv_result result;
    g->ids = malloc(options->max_tokens * sizeof *g->ids);
    if (!g->ids) return cli_fail(CLI_MACHINE, NULL, "out of memory for %u ids", options->max_tokens);
    if (mgv_engine_backend(cli_session_engine(l->vision)) == MGV_BACKEND_CUDA) return generate_many(options, l, g);
    for (;;) {
        uint32_t id;
        int status = 0;
        result = mgv_session_sample(l->session, &l->sampling, &id, &error);
        if (result != MGV_OK) break;
        status = take_id(options, l, g, id);
        if (status) return status;
        if (g->stopped || g->count == options->max_tokens) return 0;
        result = mgv_session_step(l->session, id, &error);
        if (result != MGV_OK) break;
    }
    return cli_fail_library(l->name, result, &error);
}

/* Ends the text, which may hold back part of a character. */
static int finish_text(const generate_options *options, language *l, generation *g) {
    const size_t shown = g->text.bytes;
    const int status = l->tokenizer ? language_text_add(l, &g->text, NULL) : 0;
    if (options->format != FORMAT_TEXT || status) return status;
    language_show(&g->text, shown);
    putchar('\n');
    return 0;
}

/* The text terminated, as JSON wants it; a model may write U+0000, which JSON's strings here do not have. */
static void print_json_text(const generation *g) {
    char *text = malloc(g->text.bytes + 1);
    size_t kept = 0;
    if (!text) {
        fputs("null", stdout);
        return;
    }
    for (size_t i = 0; i < g->text.bytes; i++)
        if (g->text.text[i]) text[kept++] = g->text.text[i];
    text[kept] = 0;
    cli_json_string(stdout, text);
    free(text);
}

static void print_json(const language *l, const generation *g) {
    const double seconds = g->done - g->read;
    printf("{\"ids\": [");
    for (uint32_t i = 0; i < g->count; i++) printf("%s%lu", i ? ", " : "", (unsigned long)g->ids[i]);
    printf("], \"text\": ");
    if (l->tokenizer) print_json_text(g);
    else printf("null");
    printf(", \"finish\": \"%s\", \"prompt_tokens\": %llu, \"generated_tokens\": %lu, \"seconds\": {\"load\": %.6f, \"pictures\": %.6f, "
           "\"prompt\": %.6f, \"generate\": %.6f}, \"tokens_per_second\": %.3f}\n",
           g->stopped ? "stop" : "length", (unsigned long long)g->prompt_count, (unsigned long)g->count, g->loaded - g->begin,
           g->seen - g->loaded, g->read - g->seen, seconds, g->count > 1 && seconds > 0 ? (g->count - 1) / seconds : 0.0);
}

static int run_model(const generate_options *options, language *l, language_picture *pictures, generation *g) {
    int status = language_open(l, &options->session, &options->sampling), stopped = 0;
    if (!status && options->ids) status = take_ids(options, l, g);
    else if (!status) status = language_open_texts(l, options->raw);
    g->loaded = now();
    if (!status) status = language_see(l, &options->images, pictures);
    g->seen = now();
    if (!status && !options->ids) status = read_prompt(options, l, pictures, g);
    if (!status) status = language_begin(l, g->prompt_count + options->max_tokens);
    if (!status) status = language_append(l, g->prompt, g->prompt_count, pictures, (uint32_t)options->images.count, NULL, &stopped);
    g->read = now();
    if (!status && options->logits) status = write_logits(options, l);
    if (!status) status = generate(options, l, g);
    g->done = now();
    if (!status) language_say_long(l);
    if (!status) status = finish_text(options, l, g);
    if (!status && options->format == FORMAT_JSON) print_json(l, g);
    return status;
}

static int run_options(const generate_options *options) {
    language l;
    generation g;
    language_picture *pictures = calloc(options->images.count ? options->images.count : 1, sizeof *pictures);
    int status;
    if (!pictures) return cli_fail(CLI_MACHINE, NULL, "out of memory");
    memset(&g, 0, sizeof g);
    g.begin = now();
    status = run_model(options, &l, pictures, &g);
    language_free_pictures(pictures, options->images.count);
    language_close(&l);
    free(pictures);
    free(g.prompt);
    free(g.ids);
    free(g.text.text);
    return status;
}

static int check(const cli_command *command, const generate_options *options) {
    cli_list read = options->images;
    if (!options->session.model) return cli_usage(command, "--model is missing");
    if (options->ids && options->prompt) return cli_usage(command, "--prompt and --ids: it is either or");
    if (options->ids && (options->raw || options->think)) return cli_usage(command, "--ids are the whole prompt: --raw and --think add nothing");
    if (options->raw && options->think) return cli_usage(command, "--raw and --think: it is either or");
    if (!options->ids && !options->prompt && !options->images.count) return cli_usage(command, "there is neither a prompt nor a picture");
    if (options->raw && options->prompt && !*options->prompt && !options->images.count)
        return cli_usage(command, "there is nothing to go on with");
    if (options->logits && strcmp(options->logits, "-") == 0)
        return cli_usage(command, "--logits needs a file: the text goes to standard output");
    if (language_check_sampling(command, &options->sampling)) return CLI_USAGE;
    if (options->logits && options->ids && cli_check_output(options->logits, options->session.model, options->ids, &read)) return CLI_USAGE;
    return cli_check_output(options->logits, options->session.model, NULL, &read);
}

static int run(const cli_command *command, int argc, char **argv) {
    generate_options options = {0};
    const cli_option table[] = {
        {"--model", CLI_TEXT, &options.session.model, "DIR", "the model: a directory as Hugging Face stores it"},
        {"--image", CLI_TEXTS, &options.images, "FILE", "a picture; may be given several times"},
        {"--prompt", CLI_ANY_TEXT, &options.prompt, "TEXT", "what is asked; pictures stand where <image> is, else in front"},
        {"--ids", CLI_TEXT, &options.ids, "FILE.npy", "instead: the whole prompt, int64 [n], with the placeholders of pictures"},
        {"--raw", CLI_FLAG, &options.raw, NULL, "the prompt as it is, without the model's template"},
        {"--think", CLI_FLAG, &options.think, NULL, "let a model that can do so think first"},
        {"--ignore-eos", CLI_FLAG, &options.ignore_eos, NULL, "go on behind the ids that end a text"},
        {"--max-tokens", CLI_COUNT, &options.max_tokens, "N", "ids that are generated at most (512)"},
        CLI_SAMPLING_OPTIONS(options.sampling),
        {"--format", CLI_CHOICE, &options.format, "text|json", "text as it comes, or one line with ids, text and timings (text)"},
        {"--logits", CLI_TEXT, &options.logits, "FILE.npy", "where the logits of the prompt's last place go, float32 [vocabulary]"},
        CLI_LIMIT_OPTIONS(options.session),
        {"--backend", CLI_CHOICE, &options.session.backend, "auto|cpu|cuda", "where it runs"},
        {"--resize", CLI_CHOICE, &options.session.resize, "pillow|torchvision", "which library's resize to reproduce bit for bit (pillow)"},
        {"--alpha", CLI_CHOICE, &options.session.alpha, "white|drop", "transparent parts become white, or what is hidden there is seen (white)"},
        {"--threads", CLI_THREADS, &options.session.threads, "N", "threads of the CPU (all cores); the text does not depend on it"},
        CLI_FAST_OPTION(options.session.precision),
        {NULL, CLI_FLAG, NULL, NULL, NULL},
    };
    int status;
    options.sampling.temperature = options.sampling.top_p = -1;
    status = cli_parse(command, table, NULL, argc, argv);
    if (status == CLI_GO_ON) {
        if (!options.max_tokens) options.max_tokens = DEFAULT_TOKENS;
        status = check(command, &options);
        if (status == CLI_DONE) status = run_options(&options);
    }
    cli_list_free(&options.images);
    return status;
}

const cli_command cli_generate = {
    "generate", "--model DIR [--image FILE]... [--prompt TEXT | --ids FILE.npy]", "pictures and a prompt in, text out",
    "A language model, Qwen3 or Qwen3-VL, goes on with a prompt, written as its chat template has it. Without --greedy and --temperature it\n"
    "chooses as generation_config.json says, else greedily. The text ends at the ids that the files name, or after --max-tokens.\n"
    "Text goes to standard output as it comes; json is one line when all is done, whose text is null where there is no tokenizer.\n",
    run};
