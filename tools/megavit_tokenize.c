/* megavit tokenize: texts as ids of a model's tokenizer, and back. */
#include <stdlib.h>
#include <string.h>
#include "tools/cli.h"

typedef struct tokenize_options {
    const char *model;
    int32_t lower_case;
    int decode, plain, special;
} tokenize_options;

static int print_ids(const mgv_tokenizer *tokenizer, const char *text, uint32_t flags) {
    uint64_t count;
    int status = 0;
    uint32_t *ids = cli_tokenize_text(tokenizer, text, flags, &count, &status);
    if (!ids) return status;
    putchar('[');
    for (uint64_t i = 0; i < count; i++) printf("%s%lu", i ? ", " : "", (unsigned long)ids[i]);
    puts("]");
    free(ids);
    return 0;
}

/* Ids between brackets or without, with commas or spaces between. *ids is to be freed; 0: the line is none. */
static int read_ids(const char *line, uint32_t **ids, uint64_t *count) {
    const char *p = line + strspn(line, " \t[");
    *count = 0;
    *ids = malloc((strlen(line) / 2 + 1) * sizeof **ids);
    if (!*ids) return 0;
    while (*p >= '0' && *p <= '9') {
        uint64_t id = 0;
        for (; *p >= '0' && *p <= '9' && id <= UINT32_MAX; p++) id = id * 10 + (uint64_t)(*p - '0');
        if (id > UINT32_MAX) break;
        (*ids)[(*count)++] = (uint32_t)id;
        p += strspn(p, " \t,");
    }
    p += strspn(p, " \t]\r");
    if (!*p) return 1;
    free(*ids);
    return 0;
}

static int print_text(const mgv_tokenizer *tokenizer, const char *line, uint32_t flags) {
    uint64_t count, bytes = 0;
    uint32_t *ids;
    char *text = NULL;
    mgv_error error;
    mgv_result result;
    if (!read_ids(line, &ids, &count)) return cli_fail(CLI_BAD_FILE, NULL, "'%s' is no line of ids", line);
    result = mgv_detokenize(tokenizer, NULL, ids, count, flags, NULL, 0, &bytes, &error);
    if (result == MGV_ERROR_CAPACITY && (text = malloc((size_t)bytes)) != NULL)
        result = mgv_detokenize(tokenizer, NULL, ids, count, flags, text, bytes, &bytes, &error);
    free(ids);
    if (result == MGV_OK) {
        if (bytes) fwrite(text, 1, (size_t)bytes, stdout);
        putchar('\n');
    }
    free(text);
    if (result == MGV_ERROR_ARGUMENT) return cli_fail(CLI_BAD_FILE, NULL, "%s", error.message);
    return result == MGV_OK ? 0 : cli_fail_library(NULL, result, &error);
}

static int run_texts(const tokenize_options *options, const cli_list *words) {
    cli_list texts = {0};
    int worst = cli_read_texts(words, &texts), status = 0;
    mgv_tokenizer *tokenizer = worst ? NULL : cli_tokenizer_open(options->model, options->lower_case, &worst);
    for (size_t i = 0; tokenizer && i < texts.count && status != CLI_MACHINE; i++) {
        status = options->decode ? print_text(tokenizer, texts.items[i], options->special ? MGV_DETOKENIZE_SPECIAL : 0)
                                 : print_ids(tokenizer, texts.items[i], options->plain ? MGV_TOKENIZE_PLAIN : 0);
        if (status > worst) worst = status;
    }
    mgv_tokenizer_close(tokenizer);
    cli_list_free(&texts);
    return worst;
}

static int run(const cli_command *command, int argc, char **argv) {
    tokenize_options options = {0};
    cli_list words = {0};
    const cli_option table[] = {
        {"--model", CLI_TEXT, &options.model, "DIR", "tokenizer.json, vocab.json with merges.txt, or Qwen's .tiktoken lie in it"},
        {"--decode", CLI_FLAG, &options.decode, NULL, "the words are lines of ids, to be turned back into text"},
        {"--plain", CLI_FLAG, &options.plain, NULL, "without the special tokens that belong around a text"},
        {"--special", CLI_FLAG, &options.special, NULL, "with --decode: special tokens are written too"},
        CLI_LOWER_CASE_OPTION(options.lower_case),
        {NULL, CLI_FLAG, NULL, NULL, NULL},
    };
    int status = cli_parse(command, table, &words, argc, argv);
    if (status == CLI_GO_ON) {
        if (!options.model) status = cli_usage(command, "--model is missing");
        else if (words.count == 0) status = cli_usage(command, "there is no text");
        else status = run_texts(&options, &words);
    }
    cli_list_free(&words);
    return status;
}

const cli_command cli_tokenize = {
    "tokenize", "--model DIR [--decode] [--] TEXT...", "texts as ids of the model's tokenizer, and back",
    "A line a text: its ids as a JSON array, not padded and not cut. - reads texts, a line each, from standard input; after -- it is a text.\n"
    "The ids are those of huggingface/tokenizers. A text that is not UTF-8 is an error that says which byte.\n",
    run};
