/* Lists of names, and a command's arguments read into the values of its options. */
#include <float.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "tools/cli.h"

static int grow_list(cli_list *list) {
    size_t room = list->room ? list->room * 2 : 16;
    char **items = realloc(list->items, room * sizeof *items);
    unsigned char *found;
    if (!items) return 0;
    list->items = items;
    found = realloc(list->found, room);
    if (!found) return 0;
    list->found = found;
    list->room = room;
    return 1;
}

int cli_list_add(cli_list *list, const char *item) {
    size_t bytes = strlen(item) + 1;
    char *copy = malloc(bytes);
    if (!copy || (list->count == list->room && !grow_list(list))) {
        free(copy);
        return cli_fail(CLI_MACHINE, NULL, "out of memory for %zu names", list->count + 1);
    }
    memcpy(copy, item, bytes);
    list->found[list->count] = 0;
    list->items[list->count++] = copy;
    return 0;
}

void cli_list_free(cli_list *list) {
    for (size_t i = 0; i < list->count; i++) free(list->items[i]);
    free(list->items);
    free(list->found);
    memset(list, 0, sizeof *list);
}

int cli_usage(const cli_command *command, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    cli_print_message(command->name, format, arguments);
    va_end(arguments);
    fprintf(stderr, "usage: megavit %s %s (megavit %s --help tells more)\n", command->name, command->usage, command->name);
    return CLI_USAGE;
}

static void print_help(const cli_command *command, const cli_option *options) {
    printf("megavit %s - %s\n\nusage: megavit %s %s\n", command->name, command->summary, command->name, command->usage);
    if (options->name) putchar('\n');
    for (; options->name; options++) {
        char left[64];
        snprintf(left, sizeof left, "%s%s%s", options->name, options->argument ? " " : "", options->argument ? options->argument : "");
        printf("  %-30s%s%s\n", left, strlen(left) > 30 ? "\n                                 " : " ", options->help);
    }
    if (command->details) printf("\n%s", command->details);
}

/* The place of `word` among `words`, which are separated by '|'; -1 if it is not there. */
static int32_t choice(const char *words, const char *word) {
    size_t length = strlen(word);
    for (int32_t place = 0;; place++) {
        size_t end = strcspn(words, "|");
        if (end == length && strncmp(words, word, length) == 0) return place;
        if (!words[end]) return -1;
        words += end + 1;
    }
}

int cli_read_number(const char **text, uint64_t most, uint64_t *number) {
    uint64_t value = 0;
    for (; **text >= '0' && **text <= '9'; ++*text) {
        value = value * 10 + (uint64_t)(**text - '0');
        if (value > most) return 0;
    }
    *number = value;
    return value > 0;
}

/* The largest number that an option takes: of threads, what mgv_threads_create takes. */
static uint64_t largest(const cli_option *option) {
    if (option->kind == CLI_PIXELS) return (uint64_t)1 << 40;
    return option->kind == CLI_THREADS ? 1024 : 1u << 20;
}

static int set_option(const cli_command *command, const cli_option *option, const char *text) {
    const char *end = text;
    char *rest;
    uint64_t count;
    mgv_error error;
    switch (option->kind) {
    case CLI_TEXT:
    case CLI_ANY_TEXT: *(const char **)option->value = text; return CLI_GO_ON;
    case CLI_COUNT:
    case CLI_THREADS:
    case CLI_PIXELS:
        if (!cli_read_number(&end, largest(option), &count) || *end)
            return cli_usage(command, "%s takes a number from 1 to %llu, not '%s'", option->name, (unsigned long long)largest(option), text);
        if (option->kind == CLI_PIXELS) *(uint64_t *)option->value = count;
        else *(uint32_t *)option->value = (uint32_t)count;
        return CLI_GO_ON;
    case CLI_PRECISION:
        if (mgv_precision_of_name(text, (mgv_precision *)option->value, &error) == MGV_OK) return CLI_GO_ON;
        return cli_usage(command, "%s: %s", option->name, error.message);
    case CLI_FAST:
        *(mgv_precision *)option->value = choice(option->argument, text) == 1 ? MGV_PRECISION_FAST : MGV_PRECISION_AUTO;
        if (choice(option->argument, text) >= 0) return CLI_GO_ON;
        return cli_usage(command, "%s takes %s, not '%s'", option->name, option->argument, text);
    case CLI_CHOICE:
        *(int32_t *)option->value = choice(option->argument, text);
        if (*(int32_t *)option->value >= 0) return CLI_GO_ON;
        return cli_usage(command, "%s takes %s, not '%s'", option->name, option->argument, text);
    case CLI_COSINE:
        *(double *)option->value = strtod(text, &rest);
        if (rest != text && !*rest && *(double *)option->value >= -1 && *(double *)option->value <= 1) return CLI_GO_ON;
        return cli_usage(command, "%s takes a number from -1 to 1, not '%s'", option->name, text);
    case CLI_REAL:
        *(double *)option->value = strtod(text, &rest);
        if (rest != text && !*rest && *(double *)option->value >= 0 && *(double *)option->value <= FLT_MAX) return CLI_GO_ON;
        return cli_usage(command, "%s takes a number from 0 to 3e38, not '%s'", option->name, text);
    case CLI_WHOLE:
        *(uint64_t *)option->value = 0;
        if (strcmp(text, "0") == 0 || (cli_read_number(&end, (uint64_t)1 << 63, (uint64_t *)option->value) && !*end)) return CLI_GO_ON;
        return cli_usage(command, "%s takes a whole number from 0 to 2^63, not '%s'", option->name, text);
    case CLI_TEXTS:
    case CLI_NAMES: return cli_list_add((cli_list *)option->value, text) ? CLI_MACHINE : CLI_GO_ON;
    case CLI_FLAG: break;
    }
    return cli_usage(command, "%s takes nothing", option->name);
}

int cli_parse(const cli_command *command, const cli_option *options, cli_list *operands, int argc, char **argv) {
    const cli_option *names = NULL; /* the CLI_NAMES option whose names follow */
    int options_ended = 0;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i], *text;
        const cli_option *option = options;
        size_t length;
        int status;
        if (options_ended || word[0] != '-' || !word[1]) {
            if (!names && !operands) return cli_usage(command, "'%s' is one word too many", word);
            if (cli_list_add(names ? (cli_list *)names->value : operands, word)) return CLI_MACHINE;
            continue;
        }
        names = NULL;
        if (strcmp(word, "--") == 0) {
            options_ended = 1;
            if (operands) operands->plain = operands->count;
            continue;
        }
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            print_help(command, options);
            return CLI_DONE;
        }
        length = strcspn(word, "=");
        while (option->name && (strlen(option->name) != length || strncmp(option->name, word, length) != 0)) option++;
        if (!option->name) return cli_usage(command, "there is no option '%s'", word);
        if (option->kind == CLI_NAMES && !word[length]) {
            names = option;
            continue;
        }
        if (option->kind == CLI_FLAG && !word[length]) {
            *(int *)option->value = 1;
            continue;
        }
        text = word[length] ? word + length + 1 : i + 1 < argc ? argv[++i] : NULL;
        if (!text) return cli_usage(command, "%s needs %s", option->name, option->argument);
        if (!*text && option->kind != CLI_ANY_TEXT) return cli_usage(command, "%s is empty", option->name);
        status = set_option(command, option, text);
        if (status != CLI_GO_ON) return status;
    }
    if (operands && !options_ended) operands->plain = operands->count;
    return CLI_GO_ON;
}
