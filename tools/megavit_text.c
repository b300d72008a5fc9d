/* megavit text: embeddings of texts, as a NumPy array or JSON lines. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "tools/cli.h"

enum { FORMAT_NPY = 0, FORMAT_JSONL };

typedef struct text_options {
    cli_text_options text;
    int32_t format;
    const char *ids, *output;
} text_options;

/* ---- ids from a NumPy array ---- */

typedef struct id_array {
    unsigned char *data;
    size_t length;
    uint64_t rows, columns;
    uint32_t width;   /* bytes of a number */
    size_t at;        /* of the first */
    uint32_t *ids;
    mgv_text *texts;  /* [rows] */
} id_array;

static int read_file(id_array *array, const char *name) {
    FILE *stream = fopen(name, "rb");
    size_t room = 0, got = 1;
    memset(array, 0, sizeof *array);
    if (!stream) return cli_fail(CLI_BAD_FILE, name, "%s", strerror(errno));
    while (got > 0) {
        if (array->length == room) {
            unsigned char *data = realloc(array->data, room = room ? 2 * room : 65536);
            if (!data) break;
            array->data = data;
        }
        got = fread(array->data + array->length, 1, room - array->length, stream);
        array->length += got;
    }
    if (got > 0 || ferror(stream)) {
        fclose(stream);
        return cli_fail(got > 0 ? CLI_MACHINE : CLI_BAD_FILE, name, got > 0 ? "out of memory" : "cannot be read");
    }
    fclose(stream);
    return 0;
}

/* The next number of a shape; *at moves behind it. 0: there is none. */
static int read_dimension(const char **at, uint64_t *number) {
    *at += strspn(*at, " (,");
    if (**at < '0' || **at > '9') return 0;
    for (*number = 0; **at >= '0' && **at <= '9'; ++*at) {
        *number = *number * 10 + (uint64_t)(**at - '0');
        if (*number > UINT32_MAX) return 0;
    }
    return 1;
}

/* NumPy's format 1.0 to 3.0 (numpy/lib/format.py): '<i8' or '<i4', two dimensions, in C's order. */
static int read_header(id_array *array, const char *name) {
    static const char magic[] = "\x93NUMPY";
    const unsigned char *data = array->data;
    const size_t length_bytes = array->length > 7 && data[6] == 1 ? 2 : 4;
    size_t length = 0;
    char header[1024];
    const char *at;
    if (array->length < 8 + length_bytes || memcmp(data, magic, 6) != 0) return cli_fail(CLI_BAD_FILE, name, "not a NumPy array");
    for (size_t i = length_bytes; i-- > 0;) length = length << 8 | data[8 + i];
    array->at = 8 + length_bytes + length;
    if (length >= sizeof header || array->at > array->length) return cli_fail(CLI_BAD_FILE, name, "a NumPy array with a broken header");
    memcpy(header, data + 8 + length_bytes, length);
    header[length] = 0;
    array->width = strstr(header, "'<i8'") ? 8 : strstr(header, "'<i4'") ? 4 : 0;
    if (!array->width || !strstr(header, "'fortran_order': False"))
        return cli_fail(CLI_BAD_FILE, name, "ids are an array of int64 or int32 in C's order");
    at = strstr(header, "'shape':");
    if (at) at += strlen("'shape':");
    if (!at || !read_dimension(&at, &array->rows) || !read_dimension(&at, &array->columns) || at[strspn(at, " ,")] != ')' ||
        array->rows == 0 || array->columns == 0)
        return cli_fail(CLI_BAD_FILE, name, "ids are an array [texts, length] with something in it");
    if ((array->length - array->at) / array->width / array->columns != array->rows)
        return cli_fail(CLI_BAD_FILE, name, "its numbers are not as many as its shape says");
    return 0;
}

static int read_ids(id_array *array, const char *name) {
    int status = read_file(array, name);
    if (!status) status = read_header(array, name);
    if (status) return status;
    array->ids = malloc((size_t)(array->rows * array->columns) * sizeof *array->ids);
    array->texts = calloc((size_t)array->rows, sizeof *array->texts);
    if (!array->ids || !array->texts) return cli_fail(CLI_MACHINE, name, "out of memory for its ids");
    for (uint64_t i = 0; i < array->rows * array->columns; i++) {
        const unsigned char *p = array->data + array->at + i * array->width;
        uint64_t value = 0;
        for (uint32_t k = array->width; k-- > 0;) value = value << 8 | p[k];
        if (value > INT32_MAX)
            return cli_fail(CLI_BAD_FILE, name, "the id at row %llu, place %llu is none", (unsigned long long)(i / array->columns),
                            (unsigned long long)(i % array->columns));
        array->ids[i] = (uint32_t)value;
    }
    for (uint64_t i = 0; i < array->rows; i++) {
        array->texts[i].ids = array->ids + i * array->columns;
        array->texts[i].id_count = (uint32_t)array->columns;
    }
    return 0;
}

static void free_ids(id_array *array) {
    free(array->data);
    free(array->ids);
    free(array->texts);
}

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
    id_array array;
    float *rows = NULL;
    int status = read_ids(&array, options->ids);
    if (!status) rows = cli_encode_texts(&options->text, array.texts, (uint32_t)array.rows, &info, &status);
    if (rows) status = write_rows(options, NULL, rows, array.rows, info.text_width);
    free(rows);
    free_ids(&array);
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
