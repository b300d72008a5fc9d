/* Texts from the command line and from standard input, and the tokenizer that they go through. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "tools/cli.h"

/* ---- texts ---- */

typedef struct text_line {
    char *text;
    size_t length, room;
    int first; /* of its file */
} text_line;

static int line_add(text_line *line, int byte) {
    if (line->length == line->room) {
        size_t room = line->room ? line->room * 2 : 256;
        char *text = realloc(line->text, room);
        if (!text) return 0;
        line->text = text;
        line->room = room;
    }
    line->text[line->length++] = (char)byte;
    return 1;
}

/* labels: empty lines are left out, and the end of a line may be \r\n. */
static int add_line(text_line *line, int labels, cli_list *texts) {
    size_t mark;
    if (labels && line->length > 0 && line->text[line->length - 1] == '\r') line->length--;
    if (!line_add(line, 0)) return cli_fail(CLI_MACHINE, NULL, "out of memory for a line");
    mark = line->first ? cli_byte_order_mark(line->text) : 0;
    line->first = 0;
    line->length = 0;
    return labels && line->text[mark] == 0 ? 0 : cli_list_add(texts, line->text + mark);
}

static int read_lines(FILE *stream, const char *name, int labels, cli_list *texts) {
    text_line line = {NULL, 0, 0, 1};
    int byte, status = 0;
    while (!status && (byte = getc(stream)) != EOF) {
        if (byte == 0) status = cli_fail(CLI_BAD_FILE, name, "line %zu has a zero byte", texts->count + 1);
        else if (byte == '\n') status = add_line(&line, labels, texts);
        else if (!line_add(&line, byte)) status = cli_fail(CLI_MACHINE, NULL, "out of memory for a line");
    }
    if (!status && ferror(stream)) status = cli_fail(CLI_BAD_FILE, name, "cannot be read: %s", strerror(errno));
    if (!status && line.length > 0) status = add_line(&line, labels, texts); /* a last line without its end */
    free(line.text);
    return status;
}

int cli_read_label_lines(const char *name, cli_list *texts) {
    FILE *stream = fopen(name, "rb");
    int status;
    if (!stream) return cli_fail(CLI_BAD_FILE, name, "%s", strerror(errno));
    status = read_lines(stream, name, 1, texts);
    fclose(stream);
    if (!status && texts->count == 0) status = cli_fail(CLI_BAD_FILE, name, "there is no label in it");
    return status;
}

int cli_read_texts(const cli_list *words, cli_list *texts) {
    int status = 0;
    for (size_t i = 0; i < words->count && !status; i++)
        status = i < words->plain && strcmp(words->items[i], "-") == 0 ? read_lines(stdin, "standard input", 0, texts)
                                                                     : cli_list_add(texts, words->items[i]);
    return status;
}

/* ---- tokenizers ---- */

static void print_log(void *user, int32_t level, const char *message) {
    (void)user;
    if (level <= MGV_LOG_WARNING) cli_fail(CLI_DONE, NULL, "%s", message);
}

mgv_tokenizer *cli_tokenizer_open(const char *name, int32_t lower_case, int *status) {
    mgv_model_desc desc = {0};
    mgv_tokenizer *tokenizer;
    mgv_error error;
    mgv_result result;
    desc.path = name;
    desc.logger.log = print_log;
    result = mgv_tokenizer_open(&tokenizer, &desc, lower_case, &error);
    if (result != MGV_OK) *status = cli_fail_library(name, result, &error);
    return tokenizer;
}

uint32_t *cli_tokenize_text(const mgv_tokenizer *tokenizer, const char *text, uint32_t flags, uint64_t *count, int *status) {
    uint64_t room = strlen(text) + 16; /* enough but for texts that grow, such as one of <0x..> tokens */
    for (;;) {
        mgv_error error;
        mgv_result result;
        uint32_t *ids = malloc((size_t)room * sizeof *ids);
        if (!ids) {
            *status = cli_fail(CLI_MACHINE, NULL, "out of memory for the ids of a text");
            return NULL;
        }
        result = mgv_tokenize(tokenizer, text, strlen(text), flags, ids, room, count, &error);
        if (result == MGV_OK) return ids;
        free(ids);
        if (result != MGV_ERROR_CAPACITY || *count <= room) {
            *status = result == MGV_ERROR_ARGUMENT ? cli_fail(CLI_BAD_FILE, NULL, "%s", error.message) : cli_fail_library(NULL, result, &error);
            return NULL;
        }
        room = *count;
    }
}

/* ---- text towers ---- */

typedef struct text_tower {
    const mgv_model *model;
    mgv_model *own; /* NULL: it is the caller's */
    mgv_threads *threads;
    mgv_engine *engine;
} text_tower;

static void close_tower(text_tower *tower) {
    mgv_engine_destroy(tower->engine);
    mgv_threads_destroy(tower->threads);
    mgv_model_close(tower->own);
}

static int open_tower(text_tower *tower, const cli_text_options *options, mgv_model_info *info) {
    mgv_model_desc desc = {0};
    mgv_error error;
    mgv_result result;
    desc.path = options->model;
    desc.tower = MGV_TOWER_TEXT;
    desc.lower_case = options->lower_case;
    desc.logger.log = print_log;
    result = options->tower ? MGV_OK : mgv_model_open(&tower->own, &desc, &error);
    tower->model = options->tower ? options->tower : tower->own;
    if (result == MGV_OK) result = mgv_model_get_info(tower->model, info);
    return result == MGV_OK ? 0 : cli_fail_library(options->model, result, &error);
}

/* An engine for so many texts; the longest of them decides how much it reserves. */
static int make_engine(text_tower *tower, const cli_text_options *options, const mgv_text *texts, uint32_t count) {
    cli_session_options threads = {0};
    mgv_engine_desc desc = {0};
    mgv_error error;
    mgv_result result;
    threads.threads = options->threads;
    result = mgv_threads_create(&tower->threads, cli_thread_count(&threads), NULL, &error);
    if (result != MGV_OK) return cli_fail_library(NULL, result, &error);
    desc.backend = MGV_BACKEND_CPU;
    desc.max_images = count;
    desc.precision = options->precision;
    desc.parallel = mgv_threads_parallel_for(tower->threads);
    desc.logger.log = print_log;
    for (uint32_t i = 0; i < count; i++)
        if (texts[i].bytes > desc.max_text_bytes) desc.max_text_bytes = (uint32_t)texts[i].bytes;
    result = mgv_engine_create(&tower->engine, tower->model, &desc, &error);
    return result == MGV_OK ? 0 : cli_fail_library(options->model, result, &error);
}

static int encode_texts(text_tower *tower, const mgv_text *texts, uint32_t count, int normalize, float *rows, uint64_t room) {
    mgv_encode_desc encode = {0};
    mgv_output output = {0};
    mgv_error error;
    mgv_result result;
    output.kind = MGV_OUTPUT_TEXT;
    output.data = rows;
    output.capacity = room;
    output.normalize = normalize != 0;
    encode.texts = texts;
    encode.text_count = count;
    encode.outputs = &output;
    encode.output_count = 1;
    result = mgv_encode_blocking(tower->engine, &encode, &error);
    if (result == MGV_ERROR_ARGUMENT || result == MGV_ERROR_UNSUPPORTED) return cli_fail(CLI_BAD_FILE, NULL, "%s", error.message);
    return result == MGV_OK ? 0 : cli_fail_library(NULL, result, &error);
}

enum { MOST_TEXTS = 1 << 20, MOST_TEXT_BYTES = 1 << 24 };

float *cli_encode_texts(const cli_text_options *options, const mgv_text *texts, uint32_t count, mgv_model_info *info, int *status) {
    text_tower tower = {NULL, NULL, NULL, NULL};
    float *rows = NULL;
    *status = 0;
    if (count > MOST_TEXTS) *status = cli_fail(CLI_USAGE, NULL, "%u texts at once; the limit is %d", count, MOST_TEXTS);
    for (uint32_t i = 0; i < count && !*status; i++)
        if (texts[i].bytes > MOST_TEXT_BYTES) *status = cli_fail(CLI_BAD_FILE, NULL, "text %u is longer than 16 MiB", i);
    if (!*status) *status = open_tower(&tower, options, info);
    if (!*status) *status = make_engine(&tower, options, texts, count);
    if (!*status) {
        rows = malloc((size_t)count * info->text_width * sizeof *rows);
        if (!rows) *status = cli_fail(CLI_MACHINE, NULL, "out of memory for %u rows", count);
    }
    if (!*status) *status = encode_texts(&tower, texts, count, options->normalize, rows, (uint64_t)count * info->text_width);
    close_tower(&tower);
    if (!*status) return rows;
    free(rows);
    return NULL;
}

float *cli_encode_text_list(const cli_text_options *options, const cli_list *list, mgv_model_info *info, int *status) {
    mgv_text *texts = calloc(list->count ? list->count : 1, sizeof *texts);
    float *rows = NULL;
    if (!texts || list->count > MOST_TEXTS) {
        *status = cli_fail(CLI_MACHINE, NULL, "out of memory for %zu texts", list->count);
    } else {
        for (size_t i = 0; i < list->count; i++) {
            texts[i].utf8 = list->items[i];
            texts[i].bytes = strlen(list->items[i]);
        }
        rows = cli_encode_texts(options, texts, (uint32_t)list->count, info, status);
    }
    free(texts);
    return rows;
}
