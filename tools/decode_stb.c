/* JPEG with stb_image, where libjpeg is not there: it does not look at whether the file ends before its pixels do. */
#include <stdlib.h>
#include <string.h>
#include <stb/stb_image.h>
#include "tools/stb.h"

typedef struct reading {
    decode_bytes file;
    size_t at;
    int past_end; /* a byte behind the end was asked for: stb_image takes it for 0 and goes on */
} reading;

static int read_bytes(void *user, char *to, int size) {
    reading *r = user;
    size_t left = r->file.length - r->at, count = (size_t)size < left ? (size_t)size : left;
    if (size > 128 ? count < (size_t)size : count == 0) r->past_end = 1; /* up to 128 it reads ahead */
    memcpy(to, r->file.data + r->at, count);
    r->at += count;
    return (int)count;
}

static void skip_bytes(void *user, int count) {
    reading *r = user;
    size_t left = r->file.length - r->at;
    r->at += (size_t)count < left ? (size_t)count : left;
}

static int at_end(void *user) {
    const reading *r = user;
    return r->at == r->file.length;
}

int stb_load(decode_bytes file, decode_pixels *pixels, decode_reason *why) {
    static const stbi_io_callbacks calls = {read_bytes, skip_bytes, at_end};
    reading r;
    int width, height, channels;
    memset(pixels, 0, sizeof *pixels);
    memset(&r, 0, sizeof r);
    r.file = file;
    pixels->data = stbi_load_from_callbacks(&calls, &r, &width, &height, &channels, 0);
    if (r.past_end) return decode_cut_short(why);
    if (!pixels->data) {
        const char *reason = stbi_failure_reason();
        if (reason && strcmp(reason, "Out of memory") == 0) return decode_no_memory(why);
        return decode_fail(why, "%s", reason ? reason : "no reason given");
    }
    pixels->width = (uint32_t)width;
    pixels->height = (uint32_t)height;
    pixels->channels = (uint32_t)channels;
    return 1;
}
