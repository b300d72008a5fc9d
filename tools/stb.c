/* stb_image and stb_image_write, from Debian's libstb-dev. Not our code: this file is compiled without our warnings.

   A file that is cut short may leave pixels that nobody wrote; memory that starts as zeros makes them black instead of
   whatever lay there: the same bytes on every run. */
#include <limits.h>
#include <stdlib.h>
#define STBI_MALLOC(bytes) calloc(1, bytes)
#define STBI_REALLOC(memory, bytes) realloc(memory, bytes)
#define STBI_FREE(memory) free(memory)
#define STBI_NO_HDR
#define STBI_NO_LINEAR
#define STBI_NO_PIC
#define STBI_NO_GIF
#define STBI_NO_PNM
#define STBI_NO_PSD
#define STBI_NO_BMP
#define STBI_NO_TGA
#define STBI_FAILURE_USERMSG
#define STB_IMAGE_IMPLEMENTATION
#include <stb/stb_image.h>
#define STB_IMAGE_WRITE_IMPLEMENTATION
#include <stb/stb_image_write.h>
#include <stb/stb_easy_font.h>
#include "tools/stb.h"

/* stb_image has no calls for these two steps of its PNG decoder, which are all that is used of it: chunks, sums and colours are ours. */

int stb_inflate(const unsigned char *from, size_t length, int header, unsigned char *to, size_t room, size_t *written, size_t *used) {
    stbi__zbuf z;
    if (length > INT_MAX || room > INT_MAX) return stbi__err("too large", "too large to inflate");
    memset(&z, 0, sizeof z);
    z.zbuffer = (stbi_uc *)from;
    z.zbuffer_end = (stbi_uc *)from + length;
    if (!stbi__do_zlib(&z, (char *)to, (int)room, 0, header)) return 0;
    *written = (size_t)(z.zout - z.zout_start);
    *used = (size_t)(z.zbuffer - from) - (size_t)z.num_bits / 8; /* whole bytes that were read ahead */
    return 1;
}

unsigned char *stb_png_samples(unsigned char *rows, size_t length, uint32_t width, uint32_t height, int channels, int depth, int color, int interlaced) {
    stbi__context s;
    stbi__png png;
    memset(&s, 0, sizeof s);
    memset(&png, 0, sizeof png);
    s.img_x = width;
    s.img_y = height;
    s.img_n = s.img_out_n = channels;
    png.s = &s;
    png.depth = depth;
    if (stbi__create_png_image(&png, rows, (stbi__uint32)length, channels, depth, color, interlaced)) return png.out;
    free(png.out);
    return NULL;
}

unsigned char *stb_png_write(const unsigned char *pixels, uint32_t width, uint32_t height, size_t *length) {
    int bytes = 0;
    unsigned char *file = stbi_write_png_to_mem(pixels, (int)(width * 3), (int)width, (int)height, 3, &bytes);
    *length = (size_t)bytes;
    return file;
}

int stb_text(const char *text, void (*fill)(void *user, float left, float top, float right, float bottom), void *user) {
    static char quads[256 * 1024];
    int count = fill ? stb_easy_font_print(0, 0, (char *)text, NULL, quads, sizeof quads) : 0;
    for (int i = 0; i < count; i++) { /* four corners each, which begin with x and y as floats */
        float first[2], third[2];
        memcpy(first, quads + i * 64, sizeof first);
        memcpy(third, quads + i * 64 + 32, sizeof third);
        fill(user, first[0], first[1], third[0], third[1]);
    }
    return stb_easy_font_width((char *)text);
}
