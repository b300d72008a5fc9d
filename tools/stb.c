/* stb_image and stb_image_write, from Debian's libstb-dev. Not our code: this file is compiled without our warnings.

   STBI_MAX_DIMENSIONS bounds what a few bytes of file can make us allocate; stb_image's own limit is 2^24 a side. */
#define STBI_MAX_DIMENSIONS 32768
#define STBI_NO_HDR
#define STBI_NO_LINEAR
#define STBI_FAILURE_USERMSG
#define STB_IMAGE_IMPLEMENTATION
#include <stb/stb_image.h>
#define STB_IMAGE_WRITE_IMPLEMENTATION
#include <stb/stb_image_write.h>
