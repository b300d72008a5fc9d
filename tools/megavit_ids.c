/* Ids from NumPy arrays. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "tools/cli.h"

static int read_file(cli_ids *array, const char *name) {
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

/* NumPy's format 1.0 to 3.0 (numpy/lib/format.py): '<i8' or '<i4', `rank` dimensions, in C's order. */
static int read_header(cli_ids *array, const char *name, uint32_t rank) {
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
    array->rows = 1;
    if (!at || (rank == 2 && !read_dimension(&at, &array->rows)) || !read_dimension(&at, &array->columns) || at[strspn(at, " ,")] != ')' ||
        array->rows == 0 || array->columns == 0)
        return cli_fail(CLI_BAD_FILE, name, rank == 2 ? "ids are an array [texts, length] with something in it" : "ids are an array [n] with something in it");
    if ((array->length - array->at) / array->width / array->columns != array->rows)
        return cli_fail(CLI_BAD_FILE, name, "its numbers are not as many as its shape says");
    return 0;
}

int cli_ids_read(cli_ids *array, const char *name, uint32_t rank) {
    int status = read_file(array, name);
    if (!status) status = read_header(array, name, rank);
    if (status) return status;
    array->ids = malloc((size_t)(array->rows * array->columns) * sizeof *array->ids);
    if (!array->ids) return cli_fail(CLI_MACHINE, name, "out of memory for its ids");
    for (uint64_t i = 0; i < array->rows * array->columns; i++) {
        const unsigned char *p = array->data + array->at + i * array->width;
        const unsigned long long row = i / array->columns, place = i % array->columns;
        uint64_t value = 0;
        for (uint32_t k = array->width; k-- > 0;) value = value << 8 | p[k];
        if (value <= INT32_MAX) array->ids[i] = (uint32_t)value;
        else if (rank == 2) return cli_fail(CLI_BAD_FILE, name, "the id at row %llu, place %llu is none", row, place);
        else return cli_fail(CLI_BAD_FILE, name, "the id at place %llu is none", place);
    }
    return 0;
}

void cli_ids_free(cli_ids *array) {
    free(array->data);
    free(array->ids);
    memset(array, 0, sizeof *array);
}
