/* stb_image and stb_image_write, from Debian's libstb-dev. Not our code: this file is compiled without our warnings.

   A file that is cut short may leave pixels that nobody wrote; memory that starts as zeros makes them black instead of
   whatever lay there. STBI_MAX_DIMENSIONS bounds what a few bytes of file can make us allocate; stb_image's own limit is 2^24 a side. */
#include <stdlib.h>
#define STBI_MALLOC(bytes) calloc(1, bytes)
#define STBI_REALLOC(memory, bytes) realloc(memory, bytes)
#define STBI_FREE(memory) free(memory)
#define STBI_MAX_DIMENSIONS 32768
#define STBI_NO_HDR
#define STBI_NO_LINEAR
#define STBI_FAILURE_USERMSG
#define STB_IMAGE_IMPLEMENTATION
#include <stb/stb_image.h>
#define STB_IMAGE_WRITE_IMPLEMENTATION
#include <stb/stb_image_write.h>
