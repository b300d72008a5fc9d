/* Text for people and programs: what a file is called or says, on one line; and the one line that a failure gets. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include "tools/cli.h"

/* ---- text ---- */

/* Bytes of the UTF-8 character at text; 0 if there is none (RFC 3629). */
static size_t utf8_length(const unsigned char *text) {
    size_t length = text[0] < 0x80                      ? 1
                    : text[0] >= 0xC2 && text[0] < 0xE0 ? 2
                    : (text[0] & 0xF0) == 0xE0          ? 3
                    : text[0] >= 0xF0 && text[0] < 0xF5 ? 4
                                                        : 0;
    for (size_t i = 1; i < length; i++)
        if ((text[i] & 0xC0) != 0x80) return 0;
    if (text[0] == 0xE0 && text[1] < 0xA0) return 0;                     /* overlong */
    if (text[0] == 0xED && text[1] >= 0xA0) return 0;                    /* a surrogate */
    if (text[0] == 0xF0 && text[1] < 0x90) return 0;                     /* overlong */
    if (text[0] == 0xF4 && text[1] >= 0x90) return 0;                    /* over U+10FFFF */
    return length;
}

/* U+0000 to U+001F, U+007F and U+0080 to U+009F can steer a terminal, and so can bytes that are no UTF-8. */
static int is_control(const unsigned char *text, size_t length) {
    return length == 0 || *text < 0x20 || *text == 0x7F || (*text == 0xC2 && text[1] < 0xA0);
}

void cli_print_text(FILE *stream, const char *text) {
    const unsigned char *at = (const unsigned char *)text;
    while (*at) {
        size_t length = utf8_length(at), bytes = length ? length : 1;
        if (!is_control(at, length)) fwrite(at, 1, bytes, stream);
        else
            for (size_t i = 0; i < bytes; i++) fprintf(stream, "\\x%02X", at[i]);
        at += bytes;
    }
}

void cli_json_string(FILE *stream, const char *text) {
    const unsigned char *at = (const unsigned char *)text;
    fputc('"', stream);
    while (*at) {
        size_t length = utf8_length(at);
        if (length == 0) fputs("\\ufffd", stream);
        else if (*at == '"' || *at == '\\') fprintf(stream, "\\%c", *at);
        else if (is_control(at, length)) fprintf(stream, "\\u%04x", at[length - 1]); /* C2 80 is U+0080 */
        else fwrite(at, 1, length, stream);
        at += length ? length : 1;
    }
    fputc('"', stream);
}

void cli_json_floats(FILE *stream, const float *values, uint64_t count) {
    fputc('[', stream);
    for (uint64_t i = 0; i < count; i++) {
        if (i) fputs(", ", stream);
        fprintf(stream, "%.9g", (double)values[i]);
    }
    fputc(']', stream);
}

/* ---- messages ---- */

void cli_print_message(const char *file, const char *format, va_list arguments) {
    char message[1024];
    vsnprintf(message, sizeof message, format, arguments);
    fputs("megavit: ", stderr);
    if (file) {
        cli_print_text(stderr, file);
        fputs(": ", stderr);
    }
    cli_print_text(stderr, message);
    fputc('\n', stderr);
}

int cli_fail(int status, const char *file, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    cli_print_message(file, format, arguments);
    va_end(arguments);
    return status;
}

static void print_warning(void *user, int32_t level, const char *message) {
    (void)user;
    if (level <= MGV_LOG_WARNING) cli_fail(0, "warning", "%s", message);
}
mgv_logger cli_logger(void) { return (mgv_logger){.user = NULL, .log = print_warning}; }

int cli_fail_library(const char *file, mgv_result result, const mgv_error *error) {
    int status = CLI_BAD_FILE;
    switch (result) {
    case MGV_ERROR_ARGUMENT: status = CLI_USAGE; break;
    case MGV_ERROR_NOMEM:
    case MGV_ERROR_BUSY:
    case MGV_ERROR_TIMEOUT:
    case MGV_ERROR_NO_DEVICE:
    case MGV_ERROR_DEVICE:
    case MGV_ERROR_DEVICE_LOST: status = CLI_MACHINE; break;
    default: break;
    }
    if (file && strncmp(error->message, file, strlen(file)) == 0 && error->message[strlen(file)] == ':') file = NULL; /* named already */
    return cli_fail(status, file, "%s", error->message[0] ? error->message : mgv_result_text(result));
}

int cli_fail_output(void) {
    static int said;
    if (!said) cli_fail(CLI_BAD_FILE, "standard output", errno ? "cannot write: %s" : "cannot write", strerror(errno));
    said = 1;
    return CLI_BAD_FILE;
}
