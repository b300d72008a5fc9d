/* Texts from the command line and from standard input, and the tokenizer that they go through. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "tools/cli.h"

/* ---- texts ---- */

typedef struct text_line {
    char *text;
    size_t length, room;
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

static int read_lines(cli_list *texts) {
    text_line line = {NULL, 0, 0};
    int byte, status = 0;
    while (!status && (byte = getc(stdin)) != EOF) {
        if (byte == 0) status = cli_fail(CLI_BAD_FILE, "standard input", "line %zu has a zero byte", texts->count + 1);
        else if (!line_add(&line, byte == '\n' ? 0 : byte)) status = cli_fail(CLI_MACHINE, NULL, "out of memory for a line");
        if (byte != '\n' || status) continue;
        status = cli_list_add(texts, line.text);
        line.length = 0;
    }
    if (!status && ferror(stdin)) status = cli_fail(CLI_BAD_FILE, "standard input", "cannot read the texts: %s", strerror(errno));
    if (!status && line.length > 0) /* a last line without its end */
        status = line_add(&line, 0) ? cli_list_add(texts, line.text) : cli_fail(CLI_MACHINE, NULL, "out of memory for a line");
    free(line.text);
    return status;
}

int cli_read_texts(const cli_list *words, cli_list *texts) {
    int status = 0;
    for (size_t i = 0; i < words->count && !status; i++)
        status = i < words->plain && strcmp(words->items[i], "-") == 0 ? read_lines(texts) : cli_list_add(texts, words->items[i]);
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
