/* megavit text: embeddings of texts, as a NumPy array or JSON lines. */
#include <stdlib.h>
#include <string.h>
#include "tools/cli.h"

enum { FORMAT_NPY = 0, FORMAT_JSONL };

typedef struct text_options {
    cli_text_options text;
    int32_t format;
    const char *ids, *output;
} text_options;

/* ---- the command ---- */

/* texts NULL: they were ids. */
static int write_rows(const text_options *options, const cli_list *texts, const float *rows, uint64_t count, uint32_t width) {
    cli_file *file = cli_file_create(options->output);
    const uint64_t shape[2] = {count, width};
    FILE *stream;
    if (!file) return CLI_BAD_FILE;
    stream = cli_file_stream(file);
    if (options->format == FORMAT_NPY) {
        cli_npy_header(stream, "<f4", shape, 2);
        cli_write_floats(stream, rows, count * width);
        return cli_file_commit(file);
    }
    for (uint64_t i = 0; i < count; i++) {
        fputs("{", stream);
        if (texts) {
            fputs("\"text\": ", stream);
            cli_json_string(stream, texts->items[i]);
            fputs(", ", stream);
        }
        fputs("\"embedding\": ", stream);
        cli_json_floats(stream, rows + i * width, width);
        fputs("}\n", stream);
    }
    return cli_file_commit(file);
}

static int embed_texts(const text_options *options, const cli_list *words) {
    mgv_model_info info;
    cli_list texts = {0};
    float *rows = NULL;
    int status = cli_read_texts(words, &texts);
    if (!status && texts.count == 0) status = cli_fail(CLI_BAD_FILE, "standard input", "there is no text in it");
    if (!status) rows = cli_encode_text_list(&options->text, &texts, &info, &status);
    if (rows) status = write_rows(options, &texts, rows, texts.count, info.text_width);
    free(rows);
    cli_list_free(&texts);
    return status;
}

static int embed_ids(const text_options *options) {
    mgv_model_info info;
    cli_ids array;
    float *rows = NULL;
    mgv_text *texts = NULL;
    int status = cli_ids_read(&array, options->ids, 2);
    if (!status && !(texts = calloc((size_t)array.rows, sizeof *texts))) status = cli_fail(CLI_MACHINE, options->ids, "out of memory for its ids");
    for (uint64_t i = 0; !status && i < array.rows; i++) {
        texts[i].ids = array.ids + i * array.columns;
        texts[i].id_count = (uint32_t)array.columns;
    }
    if (!status) rows = cli_encode_texts(&options->text, texts, (uint32_t)array.rows, &info, &status);
    if (rows) status = write_rows(options, NULL, rows, array.rows, info.text_width);
    free(rows);
    free(texts);
    cli_ids_free(&array);
    return status;
}

static int run(const cli_command *command, int argc, char **argv) {
    text_options options = {0};
    cli_list words = {0};
    const cli_option table[] = {
        {"--model", CLI_TEXT, &options.text.model, "DIR", "the model: a directory as Hugging Face stores it"},
        {"-o", CLI_TEXT, &options.output, "FILE", "where the embeddings go (standard output)"},
        {"--ids", CLI_TEXT, &options.ids, "FILE.npy", "instead of texts: ids [texts, length], int64 or int32, used as they are"},
        {"--normalize", CLI_FLAG, &options.text.normalize, NULL, "divide every embedding by its length"},
        {"--format", CLI_CHOICE, &options.format, "npy|jsonl", "an array [texts, width] of float32, or an object a line (npy)"},
        CLI_LOWER_CASE_OPTION(options.text.lower_case),
        {"--threads", CLI_THREADS, &options.text.threads, "N", "threads of the CPU (all cores); the result does not depend on it"},
        CLI_FAST_OPTION(options.text.precision),
        {NULL, CLI_FLAG, NULL, NULL, NULL},
    };
    int status = cli_parse(command, table, &words, argc, argv);
    if (status == CLI_GO_ON) {
        if (!options.text.model) status = cli_usage(command, "--model is missing");
        else if (options.ids && words.count) status = cli_usage(command, "there are texts and --ids: it is either or");
        else if (!options.ids && words.count == 0) status = cli_usage(command, "there is no text");
        else status = cli_check_output(options.output, options.text.model, options.ids, NULL);
        if (status == CLI_DONE) status = options.ids ? embed_ids(&options) : embed_texts(&options, &words);
    }
    cli_list_free(&words);
    return status;
}

const cli_command cli_text = {
    "text", "--model DIR [-o FILE] [--] TEXT...", "embeddings of texts, as a NumPy array or JSON lines",
    "The text tower of a SigLIP, SigLIP2 or CLIP; its rows are compared with those of pictures by their cosine. - reads texts, a line each,\n"
    "from standard input; after -- it is a text. Too long a text is cut as transformers cuts it, and a line on standard error says so.\n",
    run};
