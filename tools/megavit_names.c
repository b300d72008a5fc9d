/* Names of pictures: directories, standard input. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include "tools/cli.h"

#define MAX_NAME_BYTES 65535u

static int has_picture_extension(const char *name) {
    static const char *const extensions[] = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tga", ".psd", ".ppm", ".pgm", ".pnm"};
    const char *dot = strrchr(name, '.');
    if (!dot || dot == name) return 0;
    for (size_t i = 0; i < sizeof extensions / sizeof extensions[0]; i++)
        if (strcasecmp(dot, extensions[i]) == 0) return 1;
    return 0;
}

static int compare_names(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static int add_entry(const char *directory, const char *entry, cli_list *pictures) {
    size_t length = strlen(directory), bytes = length + 1 + strlen(entry) + 1;
    char *path = malloc(bytes);
    int status;
    if (!path) return cli_fail(CLI_MACHINE, NULL, "out of memory for names");
    snprintf(path, bytes, "%s%s%s", directory, length && directory[length - 1] == '/' ? "" : "/", entry);
    status = cli_list_add(pictures, path);
    free(path);
    return status;
}

static int add_directory(const char *directory, cli_list *pictures) {
    size_t first = pictures->count;
    const struct dirent *entry;
    DIR *stream = opendir(directory);
    int status = 0;
    if (!stream) return cli_fail(CLI_BAD_FILE, directory, "cannot read the directory: %s", strerror(errno));
    while (!status && (entry = readdir(stream)) != NULL)
        if (has_picture_extension(entry->d_name)) status = add_entry(directory, entry->d_name, pictures);
    closedir(stream);
    if (status) return status;
    if (pictures->count == first) return cli_fail(CLI_BAD_FILE, directory, "there is no picture in this directory");
    qsort(pictures->items + first, pictures->count - first, sizeof *pictures->items, compare_names);
    return 0;
}

static int add_name(const char *name, cli_list *pictures) {
    struct stat about;
    if (stat(name, &about) == 0 && S_ISDIR(about.st_mode)) return add_directory(name, pictures);
    return cli_list_add(pictures, name);
}

/* Reads the name on the next line, without its end; *length goes on counting where the name is too long for `line`, and *zero says
   whether it has a zero byte. 0 at the end of the input. */
static int read_line(char line[MAX_NAME_BYTES + 1], size_t *length, int *zero) {
    int byte;
    *length = 0;
    *zero = 0;
    while ((byte = getc(stdin)) != EOF && byte != '\n') {
        if (*length < MAX_NAME_BYTES) line[*length] = (char)byte;
        if (byte == 0) *zero = 1;
        ++*length;
    }
    if (*length <= MAX_NAME_BYTES)
        while (*length > 0 && line[*length - 1] == '\r') --*length;
    line[*length < MAX_NAME_BYTES ? *length : MAX_NAME_BYTES] = 0;
    return byte != EOF || *length > 0;
}

static int add_standard_input(cli_list *pictures) {
    static char line[MAX_NAME_BYTES + 1];
    size_t first = pictures->count, length;
    int worst = 0, zero;
    while (worst != CLI_MACHINE && read_line(line, &length, &zero)) {
        int status;
        if (length == 0) continue;
        if (zero) status = cli_fail(CLI_BAD_FILE, line, "there is a zero byte after this name, and names end with their line");
        else if (length > MAX_NAME_BYTES)
            status = cli_fail(CLI_BAD_FILE, "standard input", "a line of %zu bytes is no name: they have at most %u", length, MAX_NAME_BYTES);
        else status = add_name(line, pictures);
        if (status > worst) worst = status;
    }
    if (ferror(stdin)) worst = cli_fail(CLI_BAD_FILE, "standard input", "cannot read the names: %s", strerror(errno));
    if (!worst && pictures->count == first) return cli_fail(CLI_BAD_FILE, "standard input", "there is no name in it");
    return worst;
}

int cli_expand(const cli_list *names, cli_list *pictures) {
    int worst = 0;
    for (size_t i = 0; i < names->count; i++) {
        int status = strcmp(names->items[i], "-") == 0 ? add_standard_input(pictures) : add_name(names->items[i], pictures);
        if (status > worst) worst = status;
        if (status == CLI_MACHINE) break;
    }
    return worst;
}
