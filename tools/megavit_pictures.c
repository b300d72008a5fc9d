/* From a name on the command line to pixels. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tools/cli.h"

int cli_file_open(const char *name, size_t most, size_t *bytes, decode_reason *why) {
    struct stat about;
    int descriptor = open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (descriptor < 0 || fstat(descriptor, &about) != 0) decode_fail(why, "cannot open the file: %s", strerror(errno));
    else if (!S_ISREG(about.st_mode)) decode_fail(why, "not a regular file");
    else if ((uintmax_t)about.st_size > most) decode_fail(why, "the file has more than %ju bytes", (uintmax_t)most);
    else {
        *bytes = (size_t)about.st_size;
        return descriptor;
    }
    if (descriptor >= 0) close(descriptor);
    return -1;
}

/* The bytes that the file had when it was opened, neither fewer nor more. */
static int read_whole(int descriptor, unsigned char *data, size_t bytes, decode_reason *why) {
    size_t done = 0;
    for (;;) {
        unsigned char more;
        ssize_t count = read(descriptor, done < bytes ? data + done : &more, done < bytes ? bytes - done : 1);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return decode_fail(why, "cannot read the file: %s", strerror(errno));
        if (count == 0 && done == bytes) return 1;
        if (count == 0 || done == bytes) return decode_fail(why, "the file changed while it was read");
        done += (size_t)count;
    }
}

int cli_file_take(int descriptor, size_t bytes, decode_bytes *file, decode_reason *why) {
    unsigned char *data = malloc(bytes + 1);
    int good = data ? read_whole(descriptor, data, bytes, why) : decode_no_memory(why);
    close(descriptor);
    file->data = data;
    file->length = bytes;
    if (!good) free(data);
    return good;
}

static int is_targa_name(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot && (strcasecmp(dot, ".tga") == 0 || strcasecmp(dot, ".icb") == 0 || strcasecmp(dot, ".vda") == 0 || strcasecmp(dot, ".vst") == 0);
}

const decoder *cli_picture_decoder(const char *name, decode_bytes file, decode_reason *why) {
    const decoder *by = decode_find(file, is_targa_name(name));
    if (!by) decode_fail(why, file.length ? "this is no picture that the program knows" : "the file is empty");
    return by;
}

void cli_picture_take(cli_picture *picture, const char *name, decode_pixels *pixels) {
    static const mgv_pixel_format formats[5] = {0, MGV_PIXELS_GRAY8, MGV_PIXELS_GRAY_ALPHA8, MGV_PIXELS_RGB8, MGV_PIXELS_RGBA8};
    memset(picture, 0, sizeof *picture);
    picture->name = name;
    picture->pixels = pixels->data;
    picture->image.format = formats[pixels->channels];
    picture->image.pixels = pixels->data;
    picture->image.bytes = (uint64_t)pixels->width * pixels->height * pixels->channels;
    picture->image.width = pixels->width;
    picture->image.height = pixels->height;
}

int cli_picture_fail(const char *name, const decode_reason *why) {
    return cli_fail(why->no_memory ? CLI_MACHINE : CLI_BAD_FILE, name, "cannot decode the picture: %s", why->text);
}

/* Files of these names should be pictures; other files of a folder may as well be something else. */
int cli_is_picture_name(const char *name) {
    static const char *const extensions[] = {".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".heic", ".heif", ".avif", ".tif", ".tiff", ".gif",
                                             ".bmp", ".tga", ".psd", ".ppm", ".pgm", ".pbm", ".pnm"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof extensions / sizeof extensions[0]; i++)
        if (strcasecmp(dot, extensions[i]) == 0) return 1;
    return 0;
}

int cli_picture_load(cli_picture *picture, const char *name) {
    decode_bytes file;
    decode_info info;
    decode_pixels pixels;
    decode_reason why;
    const decoder *by;
    size_t bytes = 0;
    int descriptor = cli_file_open(name, CLI_PICTURE_BYTES, &bytes, &why), good;
    memset(picture, 0, sizeof *picture);
    if (descriptor < 0 || !cli_file_take(descriptor, bytes, &file, &why))
        return cli_fail(why.no_memory ? CLI_MACHINE : CLI_BAD_FILE, name, "%s", why.text);
    by = cli_picture_decoder(name, file, &why);
    good = by && decode_look(by, file, &info, &why);
    if (good && info.memory > (uint64_t)CLI_MEMORY_MB << 20) good = decode_fail(&why, "it takes more than %d MB", CLI_MEMORY_MB);
    if (good) good = decode_load(by, file, &info, &pixels, &why);
    free((void *)(uintptr_t)file.data);
    if (!good) return cli_picture_fail(name, &why);
    cli_picture_take(picture, name, &pixels);
    return 0;
}

void cli_picture_free(cli_picture *picture) {
    free(picture->pixels);
    memset(picture, 0, sizeof *picture);
}

/* ---- what decodes ---- */

void cli_picture_decoders(char *text, size_t room) {
    const decoder *by;
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; (by = decode_table(i)) != NULL; i++) {
        if (!by->library || used >= room) continue;
        used += (size_t)snprintf(text + used, room - used, "%s%s %.*s", used ? ", " : "", by->name, (int)strcspn(by->library, " "), by->library);
    }
}

/* What `text` has behind this format's name; NULL: it does not name it. */
static const char *library_of(const char *text, const char *format, size_t length) {
    for (const char *at = text; at; at = strstr(at, ", ") ? strstr(at, ", ") + 2 : NULL)
        if (strncmp(at, format, length) == 0 && at[length] == ' ') return at + length + 1;
    return NULL;
}

int cli_picture_decoders_agree(const char *one, const char *other) {
    for (const char *at = one; at; at = strstr(at, ", ") ? strstr(at, ", ") + 2 : NULL) {
        const size_t length = strcspn(at, " "), bytes = strcspn(at, ",");
        const char *library = library_of(other, at, length);
        if (bytes <= length + 1) return 0; /* no list of ours */
        if (library && (strcspn(library, ",") != bytes - length - 1 || strncmp(library, at + length + 1, bytes - length - 1) != 0)) return 0;
    }
    return 1;
}
