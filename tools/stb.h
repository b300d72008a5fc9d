/* What tools/stb.c gives of stb_image's insides, and decode_stb.c of the rest. */
#ifndef MEGAVIT_STB_H
#define MEGAVIT_STB_H

#include "tools/decode.h"

#define STB_LIBRARY "stb_image"

/* The whole file with stb_image; an error where it asks for bytes behind the end, which stb_image itself takes for zeros (decode_stb.c). */
int stb_load(decode_bytes file, decode_pixels *pixels, decode_reason *why);

/* Inflates into at most `room` bytes; 0 where it cannot, and stbi_failure_reason says why. header: zlib's is there. used: bytes of the
   deflated data, behind which the sum of what it holds should stand. */
int stb_inflate(const unsigned char *from, size_t length, int header, unsigned char *to, size_t room, size_t *written, size_t *used);
/* The rows of a PNG, inflated, without their filters: samples of 8 bits, or of 16 in the machine's order; to be freed. NULL where it
   cannot. */
unsigned char *stb_png_samples(unsigned char *rows, size_t length, uint32_t width, uint32_t height, int channels, int depth, int color, int interlaced);

/* A PNG file of RGB pixels, to be freed; NULL without the memory. */
unsigned char *stb_png_write(const unsigned char *pixels, uint32_t width, uint32_t height, size_t *length);
/* ASCII text as rectangles, from stb_easy_font: calls fill with left, top, right and bottom of each, in units of a seventh of a capital's
   height. Returns how wide it is. fill may be NULL. */
int stb_text(const char *text, void (*fill)(void *user, float left, float top, float right, float bottom), void *user);

#endif
