/* From names on the command line to pixels: directories, standard input, decoding with stb_image. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <stb/stb_image.h>
#include "tools/cli.h"

/* What a few bytes of file may make us allocate: the number of pixels at which Pillow calls a picture a decompression
   bomb, and a file size that no picture of so many pixels needs. */
#define MAX_PIXELS 178956970u
#define MAX_FILE_BYTES (1024u * 1024u * 1024u)
/* More than any system takes for a name. */
#define MAX_NAME_BYTES 65535u

/* ---- names ---- */

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

/* ---- decoding ---- */

static FILE *open_picture(const char *name, uint64_t *bytes) {
    struct stat about;
    FILE *stream = NULL;
    if (stat(name, &about) != 0) cli_fail(0, name, "cannot open the picture: %s", strerror(errno));
    else if (!S_ISREG(about.st_mode)) cli_fail(0, name, "not a regular file");
    else if ((uintmax_t)about.st_size > MAX_FILE_BYTES) cli_fail(0, name, "the file has more than %u bytes", MAX_FILE_BYTES);
    else if (!(stream = fopen(name, "rb"))) cli_fail(0, name, "cannot open the picture: %s", strerror(errno));
    *bytes = stream ? (uint64_t)about.st_size : 0;
    return stream;
}

/* stb_image does not notice that the pixels of these formats, which are not compressed, end before the picture does. */
static int is_cut_short(FILE *stream, uint64_t file_bytes, uint64_t pixels) {
    unsigned char head[18] = {0};
    size_t bytes = fread(head, 1, sizeof head, stream);
    rewind(stream);
    if (head[0] == 'P' && (head[1] == '5' || head[1] == '6')) return file_bytes < pixels * (head[1] == '5' ? 1 : 3);
    if (bytes == sizeof head && head[1] <= 1 && head[2] >= 1 && head[2] <= 3) /* perhaps TGA, which has no signature */
        return file_bytes < sizeof head + pixels * ((uint64_t)(head[16] + 7) / 8);
    return 0;
}

static int check_size(const char *name, int width, int height) {
    if ((uint64_t)width * (uint64_t)height <= MAX_PIXELS) return 0;
    return cli_fail(CLI_BAD_FILE, name, "the picture has %d x %d pixels; the limit is %u in all", width, height, MAX_PIXELS);
}

static int fail_decode(const char *name) {
    const char *reason = stbi_failure_reason();
    return cli_fail(CLI_BAD_FILE, name, "cannot decode the picture: %s", reason ? reason : "no reason given");
}

int cli_picture_size(const char *name, uint32_t *width, uint32_t *height) {
    int w, h, channels, found;
    uint64_t bytes;
    FILE *stream = open_picture(name, &bytes);
    if (!stream) return CLI_BAD_FILE;
    found = stbi_info_from_file(stream, &w, &h, &channels);
    fclose(stream);
    if (!found || w <= 0 || h <= 0) return fail_decode(name);
    *width = (uint32_t)w;
    *height = (uint32_t)h;
    return check_size(name, w, h);
}

int cli_picture_load(cli_picture *picture, const char *name) {
    static const mgv_pixel_format formats[5] = {0, MGV_PIXELS_GRAY8, MGV_PIXELS_GRAY_ALPHA8, MGV_PIXELS_RGB8, MGV_PIXELS_RGBA8};
    int w, h, channels;
    uint32_t width, height;
    uint64_t bytes;
    FILE *stream;
    memset(picture, 0, sizeof *picture);
    if (cli_picture_size(name, &width, &height)) return CLI_BAD_FILE;
    stream = open_picture(name, &bytes);
    if (!stream) return CLI_BAD_FILE;
    if (is_cut_short(stream, bytes, (uint64_t)width * height)) {
        fclose(stream);
        return cli_fail(CLI_BAD_FILE, name, "cannot decode the picture: the file ends before its %u x %u pixels do", width, height);
    }
    /* 0 channels asked for: the file's own, so that alpha is dropped and not blended with anything. */
    picture->pixels = stbi_load_from_file(stream, &w, &h, &channels, 0);
    fclose(stream);
    if (!picture->pixels) return fail_decode(name);
    picture->name = name;
    picture->image.format = formats[channels];
    picture->image.pixels = picture->pixels;
    picture->image.bytes = (uint64_t)w * (uint64_t)h * (uint64_t)channels;
    picture->image.width = (uint32_t)w;
    picture->image.height = (uint32_t)h;
    return 0;
}

void cli_picture_free(cli_picture *picture) {
    stbi_image_free(picture->pixels);
    memset(picture, 0, sizeof *picture);
}

void cli_picture_get_rules(cli_picture_rules *rules) {
    memset(rules, 0, sizeof *rules);
    snprintf(rules->decoder, sizeof rules->decoder, "stb_image");
    rules->orientation = "ignored";
}
