/* megavit.h - v0.1.0 - vision transformers from C, in one header - MIT or public domain

   Do this:

       #define MEGAVIT_IMPLEMENTATION
       #include "megavit.h"

   in exactly one C or C++ file; include the header alone everywhere else.

   WHAT IT DOES
       Loads a vision transformer as it is downloaded from Hugging Face (config.json, preprocessor_config.json,
       model.safetensors or its shards), takes pixels, and gives embeddings: pooled vectors, token vectors, and the
       output of any layer. Decoding PNG or JPEG files stays outside: stb_image does that well.

   WHAT IT DOES NOT DO
       It does not train, does not download, does not decode picture files, does not start threads, open files or
       print unless you ask for it, and does not run text towers.

   LICENSE
       See the end of this file.
*/
#ifndef MEGAVIT_H
#define MEGAVIT_H

#include <stddef.h>
#include <stdint.h>

#define MGV_VERSION_MAJOR 0
#define MGV_VERSION_MINOR 1
#define MGV_VERSION_PATCH 0
#define MGV_VERSION "0.1.0"

#ifndef MEGAVIT_API
#if defined(MEGAVIT_STATIC) && defined(__GNUC__)
#define MEGAVIT_API __attribute__((unused)) static
#elif defined(MEGAVIT_STATIC)
#define MEGAVIT_API static
#else
#define MEGAVIT_API extern
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------------------------
   Results

   Every call that can fail returns one of these and, if you pass an mgv_error, a sentence that names the file, the
   tensor and the rule. A call that failed changed nothing: the handle it was called on stays usable, an output
   handle is set to NULL. */
typedef int32_t mgv_result;
enum {
    MGV_OK = 0,
    MGV_ERROR_ARGUMENT = -1,    /* the caller passed something no call can accept: NULL, a wrong enum, a short buffer */
    MGV_ERROR_NOMEM = -2,       /* the allocator gave nothing */
    MGV_ERROR_IO = -3,          /* a file could not be opened or read, or changed while it was read */
    MGV_ERROR_FORMAT = -4,      /* a file breaks the rules of its format (JSON, safetensors, shard index) */
    MGV_ERROR_MODEL = -5,       /* config and tensors are well formed but are not one whole model */
    MGV_ERROR_UNSUPPORTED = -6, /* well formed, but nothing that this version runs */
    MGV_ERROR_CAPACITY = -7,    /* more pictures, tokens or pixels than the engine was made for */
    MGV_ERROR_BUSY = -8,        /* work is still under way */
    MGV_ERROR_TIMEOUT = -9,     /* the work made no progress within its bound */
    MGV_ERROR_NO_DEVICE = -10,  /* no driver, no GPU, or none that the kernels were compiled for */
    MGV_ERROR_DEVICE = -11,     /* a CUDA call failed */
    MGV_ERROR_DEVICE_LOST = -12 /* the CUDA context is gone; only destroying the handles remains */
};

typedef struct mgv_error {
    mgv_result code;
    char message[508]; /* UTF-8, always terminated, cut if it must be */
} mgv_error;

/* The name of a result code, such as "MGV_ERROR_MODEL". Never NULL. Any thread. */
MEGAVIT_API const char *mgv_result_name(mgv_result result);
/* One sentence that says what the code means. Never NULL. Any thread. */
MEGAVIT_API const char *mgv_result_text(mgv_result result);
/* The version of the implementation that is linked in, as MGV_VERSION. */
MEGAVIT_API const char *mgv_version(void);

/* ---------------------------------------------------------------------------------------------------------------
   Callbacks. All are optional: a zeroed struct means the default. They must outlive the handle that was given them.

   Structs that may grow start with struct_size: 0 means "the size in the header I was compiled with", which is
   right whenever header and implementation are of one version; otherwise set it to sizeof the struct. */

/* Memory. Default: malloc and free. alloc gives memory aligned as malloc's, or NULL. */
typedef struct mgv_allocator {
    void *user;
    void *(*alloc)(void *user, size_t bytes);
    void (*free)(void *user, void *memory, size_t bytes);
} mgv_allocator;

enum { MGV_LOG_ERROR = 1, MGV_LOG_WARNING = 2, MGV_LOG_INFO = 3 };
/* Messages. Default: silence. */
typedef struct mgv_logger {
    void *user;
    void (*log)(void *user, int32_t level, const char *message);
} mgv_logger;

/* Files. Default: stdio, unless MEGAVIT_NO_STDIO. Paths are UTF-8 with '/' between parts. Return 0 for success.
   open of a file that is not there returns MGV_FILE_ABSENT; read fills all of the bytes asked for or fails. */
enum { MGV_FILE_ABSENT = 1 };
typedef struct mgv_file_io {
    void *user;
    int32_t (*open)(void *user, const char *path, void **file, uint64_t *size);
    int32_t (*read)(void *user, void *file, uint64_t offset, void *buffer, size_t bytes);
    void (*close)(void *user, void *file);
} mgv_file_io;

/* Threads. Default: none. run calls task(context, i) once for each i in [0, count), in any order and on any
   threads, and returns when all have returned. `threads` is how many it may use; it bounds the scratch memory. Results do not depend on it. */
typedef void (*mgv_task)(void *context, uint32_t index);
typedef struct mgv_parallel_for {
    void *user;
    uint32_t threads;
    void (*run)(void *user, uint32_t count, mgv_task task, void *context);
} mgv_parallel_for;

/* ---------------------------------------------------------------------------------------------------------------
   Safetensors files. The same reader that models are loaded with, for tools that look into files. */

typedef int32_t mgv_dtype;
enum {
    MGV_DTYPE_NONE = 0,
    MGV_DTYPE_BOOL, MGV_DTYPE_F4, MGV_DTYPE_F6_E2M3, MGV_DTYPE_F6_E3M2, MGV_DTYPE_U8, MGV_DTYPE_I8,
    MGV_DTYPE_F8_E5M2, MGV_DTYPE_F8_E4M3, MGV_DTYPE_F8_E8M0, MGV_DTYPE_F8_E4M3FNUZ, MGV_DTYPE_F8_E5M2FNUZ,
    MGV_DTYPE_I16, MGV_DTYPE_U16, MGV_DTYPE_F16, MGV_DTYPE_BF16, MGV_DTYPE_I32, MGV_DTYPE_U32, MGV_DTYPE_F32,
    MGV_DTYPE_C64, MGV_DTYPE_F64, MGV_DTYPE_I64, MGV_DTYPE_U64,
    MGV_DTYPE_COUNT
};
/* The name used in safetensors headers, such as "BF16"; "?" for anything else. */
MEGAVIT_API const char *mgv_dtype_name(mgv_dtype dtype);
/* Bits of one element; 0 for anything that is no dtype. */
MEGAVIT_API uint32_t mgv_dtype_bits(mgv_dtype dtype);

enum { MGV_MAX_RANK = 8 };
typedef struct mgv_tensor_info {
    const char *name; /* belongs to the handle */
    const char *file; /* name of the file that holds it, inside the model's directory */
    mgv_dtype dtype;
    uint32_t rank;
    uint64_t shape[MGV_MAX_RANK];
    uint64_t offset; /* of the first byte, from the start of the file */
    uint64_t bytes;
} mgv_tensor_info;

/* ---------------------------------------------------------------------------------------------------------------
   Models. A model is validated whole when it is opened, never changes afterwards, and may be used by any number of
   engines and threads. It holds the vision tower's weights in the precision they are stored in. */

typedef struct mgv_model mgv_model;

typedef struct mgv_memory_file {
    const char *name; /* as in the directory: "config.json", "model.safetensors" … */
    const void *data;
    uint64_t bytes;
} mgv_memory_file;

typedef struct mgv_model_desc {
    uint32_t struct_size;
    uint32_t memory_file_count;
    const char *path;                    /* a directory; or NULL, and the files come from memory_files */
    const mgv_memory_file *memory_files; /* needed only during the call */
    mgv_file_io io;                      /* how files of `path` are read */
    mgv_allocator allocator;
    mgv_logger logger;
    uint64_t max_header_bytes;           /* of a safetensors header or a JSON file; 0: 100,000,000 */
} mgv_model_desc;

/* Opens, reads and checks a whole model. Blocks for as long as reading takes. Any thread. */
MEGAVIT_API mgv_result mgv_model_open(mgv_model **model, const mgv_model_desc *desc, mgv_error *error);
/* Frees it. NULL is allowed. No engine that uses the model may be alive. */
MEGAVIT_API void mgv_model_close(mgv_model *model);

typedef int32_t mgv_family;
enum { MGV_FAMILY_NONE = 0, MGV_FAMILY_SIGLIP, MGV_FAMILY_QWEN3_VL, MGV_FAMILY_QWEN2_5_VL };

typedef struct mgv_model_info {
    mgv_family family;
    const char *family_name;   /* "SigLIP" … */
    uint32_t hidden;           /* D: width of token and layer outputs before any merger */
    uint32_t intermediate;     /* F: width inside the MLP */
    uint32_t layers;
    uint32_t heads;
    uint32_t head_dim;
    uint32_t patch;            /* side of a patch in pixels */
    uint32_t image_size;       /* side of the square input; 0: any size */
    uint32_t tokens_per_image; /* 0: depends on the picture */
    uint32_t pooled_width;     /* 0: the model has no pooling head */
    uint32_t token_width;      /* columns of MGV_OUTPUT_TOKENS */
    uint32_t deepstack_count;  /* outputs of kind MGV_OUTPUT_DEEPSTACK */
    uint32_t merge;            /* side of the square of patches merged into one output token; 1: none */
    mgv_dtype dtype;           /* of the matrix weights; MGV_DTYPE_NONE: mixed */
    uint32_t tensor_count;     /* tensors of the vision tower */
    uint64_t parameters;
    uint64_t bytes;            /* of the weights in memory */
    double flops_per_image;    /* 1 multiply-add = 2; 0 where it depends on the picture */
    uint64_t hash;             /* of config, preprocessing and every weight: equal models have equal hashes */
} mgv_model_info;
/* info: filled in. Any thread. */
MEGAVIT_API mgv_result mgv_model_get_info(const mgv_model *model, mgv_model_info *info);
/* Tensor i of the vision tower, in [0, tensor_count). Any thread. */
MEGAVIT_API mgv_result mgv_model_get_tensor(const mgv_model *model, uint32_t i, mgv_tensor_info *info);

/* ---------------------------------------------------------------------------------------------------------------
   Pictures in */

typedef int32_t mgv_pixel_format;
enum { MGV_PIXELS_RGB8 = 0, MGV_PIXELS_BGR8, MGV_PIXELS_RGBA8, MGV_PIXELS_BGRA8, MGV_PIXELS_GRAY8, MGV_PIXELS_GRAY_ALPHA8 };

typedef int32_t mgv_place;
enum { MGV_PLACE_HOST = 0, MGV_PLACE_DEVICE };

/* One picture, or one video clip of equal frames. Alpha is dropped and grey is replicated, as Pillow's
   convert("RGB") does. Zero the struct and set what you need. In an array all struct_size must be equal. */
typedef struct mgv_image {
    uint32_t struct_size;
    mgv_pixel_format format;
    const void *pixels;
    uint64_t bytes;        /* readable bytes behind pixels; 0: not checked */
    uint32_t width;        /* in pixels */
    uint32_t height;
    int64_t stride;        /* bytes from a row to the next; 0: rows follow each other; may be negative */
    uint32_t frames;       /* of a clip; 0 or 1: a still picture */
    mgv_place place;
    int64_t frame_stride;  /* bytes from a frame to the next; 0: frames follow each other */
} mgv_image;

/* ---------------------------------------------------------------------------------------------------------------
   Embeddings out */

typedef int32_t mgv_output_kind;
enum {
    MGV_OUTPUT_POOLED = 0, /* [images, pooled_width]: transformers' pooler_output */
    MGV_OUTPUT_TOKENS,     /* [tokens, token_width]: last_hidden_state after the last norm, or merged tokens */
    MGV_OUTPUT_LAYER,      /* [tokens, hidden]: hidden_states[index]; 0 the embeddings, `layers` the last, before the last norm */
    MGV_OUTPUT_DEEPSTACK   /* [merged tokens, token_width] of DeepStack merger `index` */
};

typedef struct mgv_output {
    uint32_t struct_size;
    mgv_output_kind kind;
    uint32_t index;    /* N of a layer or DeepStack output */
    mgv_place place;
    float *data;       /* rows of all pictures one after the other, row-major float32 */
    uint64_t capacity; /* floats that fit behind data; less than needed is an error that names both numbers */
    uint32_t normalize;/* not 0: every row is divided by its L2 norm */
    uint32_t reserved;
} mgv_output;

typedef struct mgv_shape {
    uint64_t rows;
    uint64_t columns;
} mgv_shape;

/* How a picture is laid out for the model: what the caller asks before encoding. */
typedef struct mgv_grid {
    uint32_t width;         /* of the resized picture in pixels */
    uint32_t height;
    uint32_t t, h, w;       /* patches: time, rows, columns */
    uint32_t tokens;        /* rows of a layer output: t * h * w */
    uint32_t merged_tokens; /* rows of MGV_OUTPUT_TOKENS: equal to tokens where nothing is merged */
} mgv_grid;

/* ---------------------------------------------------------------------------------------------------------------
   Engines. An engine is one device and all the scratch memory it will ever use. One thread at a time. */

typedef struct mgv_engine mgv_engine;

typedef int32_t mgv_backend;
enum { MGV_BACKEND_AUTO = 0, MGV_BACKEND_CPU, MGV_BACKEND_CUDA };

typedef int32_t mgv_resize;
enum {
    MGV_RESIZE_PILLOW = 0,  /* bit for bit Pillow's Image.resize, then the slow processors' normalisation */
    MGV_RESIZE_TORCHVISION  /* bit for bit torchvision's uint8 path, then the fast processors' normalisation */
};

typedef struct mgv_engine_desc {
    uint32_t struct_size;
    mgv_backend backend;
    int32_t device;              /* CUDA ordinal */
    mgv_resize resize;
    uint32_t max_images;         /* pictures in one encode; 0: 1 */
    uint32_t max_tokens;         /* tokens (patches) of all pictures of one encode; 0: max_images times the model's fixed count,
                                    or 4096 for a model without one */
    uint32_t max_width;          /* largest picture, before resizing; 0: 4096 */
    uint32_t max_height;
    uint64_t min_pixels;         /* limits of smart_resize; 0: what preprocessor_config.json says */
    uint64_t max_pixels;
    mgv_allocator allocator;
    mgv_logger logger;
    mgv_parallel_for parallel;   /* threads of the CPU backend and of preprocessing */
    void *workspace;             /* host memory for everything the engine needs, or NULL to allocate it */
    uint64_t workspace_bytes;    /* at least mgv_engine_workspace_bytes() */
} mgv_engine_desc;

/* What an engine of this description needs as host workspace, in bytes. Any thread. */
MEGAVIT_API mgv_result mgv_engine_workspace_bytes(const mgv_model *model, const mgv_engine_desc *desc, uint64_t *bytes, mgv_error *error);
/* Makes an engine. Everything is allocated here; nothing afterwards. desc may be NULL for all defaults. */
MEGAVIT_API mgv_result mgv_engine_create(mgv_engine **engine, const mgv_model *model, const mgv_engine_desc *desc, mgv_error *error);
/* Ends it. NULL is allowed. Work still queued on the CPU is dropped; on a GPU it is waited for, 10 s at most, and
   MGV_ERROR_BUSY says that it did not end: then the engine is still there. */
MEGAVIT_API mgv_result mgv_engine_destroy(mgv_engine *engine);
/* The backend that AUTO became. */
MEGAVIT_API mgv_backend mgv_engine_backend(const mgv_engine *engine);

/* How one picture will be laid out. MGV_ERROR_CAPACITY if it can never fit this engine. */
MEGAVIT_API mgv_result mgv_engine_grid(const mgv_engine *engine, const mgv_image *image, mgv_grid *grid, mgv_error *error);
/* Rows and columns that `output` will have for these pictures. data and capacity are not looked at. */
MEGAVIT_API mgv_result mgv_engine_shape(const mgv_engine *engine, const mgv_image *images, uint32_t image_count, const mgv_output *output,
                                        mgv_shape *shape, mgv_error *error);

/* Pixels as the model sees them, host memory only. Fixed-size models: [frames, 3, S, S]. Others: rows of patches [tokens, 3 * 2 * P * P].
   capacity in floats. Blocks. */
MEGAVIT_API mgv_result mgv_preprocess(mgv_engine *engine, const mgv_image *image, float *pixel_values, uint64_t capacity, mgv_shape *shape,
                                      mgv_error *error);

typedef struct mgv_encode_desc {
    uint32_t struct_size;
    uint32_t image_count;
    const mgv_image *images;
    const mgv_output *outputs;
    uint32_t output_count;
    uint32_t reserved;
    void *stream; /* cudaStream_t; NULL: the legacy default stream. The CPU backend takes no stream. */
} mgv_encode_desc;

typedef int32_t mgv_status;
enum { MGV_STATUS_DONE = 0, MGV_STATUS_QUEUED, MGV_STATUS_RUNNING, MGV_STATUS_FAILED, MGV_STATUS_TIMED_OUT };

/* Checks everything, enqueues the work and returns. The pixels and outputs must stay valid until the work is done;
   the descriptors and arrays need not. An engine that is still working answers MGV_ERROR_BUSY. The CPU backend has no
   thread of its own: its work is done inside mgv_poll (one step) and mgv_wait. */
MEGAVIT_API mgv_result mgv_encode(mgv_engine *engine, const mgv_encode_desc *desc, mgv_error *error);
/* How the work stands, without waiting. For FAILED and TIMED_OUT error says why. */
MEGAVIT_API mgv_status mgv_poll(mgv_engine *engine, mgv_error *error);
/* Waits until the work is done or has failed, at most timeout_ms. MGV_OK: done. MGV_ERROR_BUSY: still under way. Anything else: how it failed. */
MEGAVIT_API mgv_result mgv_wait(mgv_engine *engine, uint32_t timeout_ms, mgv_error *error);
/* mgv_encode and mgv_wait in one call. On a GPU it waits as long as the kernel makes progress. */
MEGAVIT_API mgv_result mgv_encode_blocking(mgv_engine *engine, const mgv_encode_desc *desc, mgv_error *error);

#ifdef __cplusplus
}
#endif
#endif /* MEGAVIT_H */

/* ===============================================================================================================
   IMPLEMENTATION

   Sections, in the order in which data flows. Internal names start with mgv__ and are static.

     >>memory       checked sizes, allocation, messages
     >>json         a strict JSON reader
     >>files        where files come from; safetensors; a checkpoint of one or many shards
     >>config       config.json and preprocessor_config.json
     >>pixels       from pixels to patches: conversion, resize, normalisation
     >>ops          a model is a list of operations over named buffers
     >>builders     one function a model family: config + tensors in, list of operations out
     >>model        open, validate, close
     >>cpu          the CPU twin of every operation
     >>engine       capacity, encode, poll, wait
   =============================================================================================================== */
#ifdef MEGAVIT_IMPLEMENTATION
#ifndef MEGAVIT_IMPLEMENTED
#define MEGAVIT_IMPLEMENTED

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#ifndef MEGAVIT_NO_STDIO
#include <stdio.h>
#endif
#include <stdlib.h>
#include <time.h>

/* ---------------------------------------------------------------------------------------------------------------
   >>memory: checked sizes, allocation, messages */

/* The only size arithmetic in this file. Each returns 1, or 0 when the true result does not fit and *out is untouched. */
static int mgv__mul(size_t a, size_t b, size_t *out) {
    if (b != 0 && a > SIZE_MAX / b) return 0;
    *out = a * b;
    return 1;
}
static int mgv__add(size_t a, size_t b, size_t *out) {
    if (a > SIZE_MAX - b) return 0;
    *out = a + b;
    return 1;
}
/* alignment: a power of two. */
static int mgv__align_up(size_t value, size_t alignment, size_t *out) {
    size_t sum;
    if (!mgv__add(value, alignment - 1, &sum)) return 0;
    *out = sum & ~(alignment - 1);
    return 1;
}

/* Memory from the caller's allocator, or from malloc, on a 64-byte boundary whatever the allocator's own alignment is,
   so that vector code and device copies can rely on it. The block starts with this header; mgv__free finds the original there. */
enum { MGV__ALIGNMENT = 64 };
typedef struct mgv__block {
    void *memory; /* as the allocator gave it */
    size_t bytes; /* as the allocator was asked for */
} mgv__block;

/* Not zeroed. Zero bytes give a pointer too. NULL: the allocator gave nothing, or the size does not fit. */
static void *mgv__alloc(const mgv_allocator *allocator, size_t bytes) {
    mgv__block block;
    size_t misfit;
    char *result;
    if (!mgv__add(bytes, sizeof block + MGV__ALIGNMENT, &block.bytes)) return NULL;
    block.memory = allocator->alloc ? allocator->alloc(allocator->user, block.bytes) : malloc(block.bytes);
    if (block.memory == NULL) return NULL;
    result = (char *)block.memory + sizeof block;
    misfit = (size_t)((uintptr_t)result % MGV__ALIGNMENT);
    if (misfit != 0) result += MGV__ALIGNMENT - misfit;
    memcpy(result - sizeof block, &block, sizeof block);
    return result;
}
/* count elements of size bytes each. */
static void *mgv__alloc_array(const mgv_allocator *allocator, size_t count, size_t size) {
    size_t bytes;
    return mgv__mul(count, size, &bytes) ? mgv__alloc(allocator, bytes) : NULL;
}
/* memory: from mgv__alloc with the same allocator, or NULL. */
static void mgv__free(const mgv_allocator *allocator, void *memory) {
    mgv__block block;
    if (memory == NULL) return;
    memcpy(&block, (char *)memory - sizeof block, sizeof block);
    if (allocator->free) allocator->free(allocator->user, block.memory, block.bytes);
    else free(block.memory);
}

/* Bytes of the UTF-8 sequence at text, 1 to 4, or 0 where the bytes are not UTF-8: cut short, overlong, a surrogate, above U+10FFFF.
   (Unicode 15, table 3-7.) */
static size_t mgv__utf8_length(const char *text, size_t bytes) {
    const unsigned char *p = (const unsigned char *)text;
    size_t length, i;
    unsigned char low = 0x80, high = 0xBF; /* what the second byte may be */
    if (bytes == 0) return 0;
    if (p[0] < 0x80) return 1;
    if (p[0] < 0xC2 || p[0] > 0xF4) return 0;
    length = p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
    if (length > bytes) return 0;
    if (p[0] == 0xE0) low = 0xA0;
    if (p[0] == 0xED) high = 0x9F;
    if (p[0] == 0xF0) low = 0x90;
    if (p[0] == 0xF4) high = 0x8F;
    if (p[1] < low || p[1] > high) return 0;
    for (i = 2; i < length; i++) {
        if (p[i] < 0x80 || p[i] > 0xBF) return 0;
    }
    return length;
}

/* A text that is being put together in a buffer of fixed size. What does not fit is left out, never half a character. */
typedef struct mgv__text {
    char *data;
    size_t capacity; /* with the terminating zero */
    size_t length;
    int full;
} mgv__text;

static void mgv__text_bytes(mgv__text *text, const char *bytes, size_t count) {
    if (count >= text->capacity - text->length) text->full = 1;
    if (text->full) return;
    memcpy(text->data + text->length, bytes, count);
    text->length += count;
}
static void mgv__text_string(mgv__text *text, const char *string) {
    size_t left = strlen(string), length;
    for (; left > 0; string += length, left -= length) {
        length = mgv__utf8_length(string, left);
        if (length == 0) mgv__text_bytes(text, "?", 1);
        else mgv__text_bytes(text, string, length);
        if (length == 0) length = 1;
    }
}
static void mgv__text_unsigned(mgv__text *text, uint64_t value) {
    char digits[20];
    size_t first = sizeof digits;
    do {
        digits[--first] = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    mgv__text_bytes(text, digits + first, sizeof digits - first);
}
/* A string that a file brought along: in quotes, nothing in it that could steer a terminal or fake a line of a log, at most 80 bytes of it. */
static void mgv__text_quoted(mgv__text *text, const char *string) {
    static const char hex[] = "0123456789ABCDEF";
    size_t total = strlen(string), shown = 0, length;
    mgv__text_bytes(text, "\"", 1);
    while (shown < total) {
        unsigned char byte = (unsigned char)string[shown];
        length = mgv__utf8_length(string + shown, total - shown);
        if (shown + (length ? length : 1) > 80) break;
        /* U+0080 to U+009F, C2 80 to C2 9F, are control characters too. */
        if (length == 0 || byte < 0x20 || byte == 0x7F || (byte == 0xC2 && (unsigned char)string[shown + 1] < 0xA0)) {
            char escape[4];
            size_t i, count = length ? length : 1;
            for (i = 0; i < count; i++) {
                byte = (unsigned char)string[shown + i];
                escape[0] = '\\';
                escape[1] = 'x';
                escape[2] = hex[byte >> 4];
                escape[3] = hex[byte & 15];
                mgv__text_bytes(text, escape, 4);
            }
            length = count;
        } else {
            if (byte == '"' || byte == '\\') mgv__text_bytes(text, "\\", 1);
            mgv__text_bytes(text, string + shown, length);
        }
        shown += length;
    }
    mgv__text_bytes(text, "\"", 1);
    if (shown < total) mgv__text_bytes(text, "...", 3);
}
/* %s a string of ours or of the caller, %q a string from a file, %u uint64_t, %i int64_t, %% a percent sign; nothing else.
   printf is not used: it depends on the locale, and a host may not have it. */
static void mgv__format(char *buffer, size_t capacity, const char *format, va_list arguments) {
    mgv__text text;
    text.data = buffer;
    text.capacity = capacity;
    text.length = 0;
    text.full = 0;
    while (*format) {
        size_t plain = strcspn(format, "%");
        mgv__text_bytes(&text, format, plain);
        format += plain;
        if (*format == 0) break;
        format++;
        switch (*format) {
        case 's': mgv__text_string(&text, va_arg(arguments, const char *)); break;
        case 'q': mgv__text_quoted(&text, va_arg(arguments, const char *)); break;
        case 'u': mgv__text_unsigned(&text, va_arg(arguments, uint64_t)); break;
        case 'i': {
            int64_t value = va_arg(arguments, int64_t);
            if (value < 0) mgv__text_bytes(&text, "-", 1);
            mgv__text_unsigned(&text, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
            break;
        }
        default: mgv__text_bytes(&text, "%", 1); break;
        }
        if (*format) format++;
    }
    buffer[text.length] = 0;
}

/* Returns code, with the sentence in *error unless that is NULL. Formats: see mgv__format. Arguments may lie in *error itself. */
static mgv_result mgv__fail(mgv_error *error, mgv_result code, const char *format, ...) {
    mgv_error result;
    va_list arguments;
    if (error == NULL) return code;
    result.code = code;
    va_start(arguments, format);
    mgv__format(result.message, sizeof result.message, format, arguments);
    va_end(arguments);
    *error = result;
    return code;
}
/* level: MGV_LOG_*. Formats: see mgv__format. */
static void mgv__log(const mgv_logger *logger, int32_t level, const char *format, ...) {
    char message[sizeof(((mgv_error *)0)->message)];
    va_list arguments;
    if (logger->log == NULL) return;
    va_start(arguments, format);
    mgv__format(message, sizeof message, format, arguments);
    va_end(arguments);
    logger->log(logger->user, level, message);
}

static mgv_result mgv__fail_nomem(mgv_error *error, const char *what, uint64_t bytes) {
    return mgv__fail(error, MGV_ERROR_NOMEM, "out of memory: %s needs %u bytes", what, bytes);
}
/* Half an allocator would free with one function what another gave. */
static mgv_result mgv__allocator_check(const mgv_allocator *allocator, mgv_error *error) {
    if ((allocator->alloc == NULL) == (allocator->free == NULL)) return MGV_OK;
    return mgv__fail(error, MGV_ERROR_ARGUMENT, "an mgv_allocator has both alloc and free, or neither");
}

typedef struct mgv__result_row {
    const char *name;
    const char *text;
} mgv__result_row;
static const mgv__result_row mgv__results[] = { /* by -code */
    {"MGV_OK", "done"},
    {"MGV_ERROR_ARGUMENT", "an argument is one that no call can accept"},
    {"MGV_ERROR_NOMEM", "the allocator gave no memory"},
    {"MGV_ERROR_IO", "a file could not be opened or read, or changed while it was read"},
    {"MGV_ERROR_FORMAT", "a file breaks the rules of its format"},
    {"MGV_ERROR_MODEL", "config and tensors are not one whole model"},
    {"MGV_ERROR_UNSUPPORTED", "well formed, but nothing that this version runs"},
    {"MGV_ERROR_CAPACITY", "more pictures, tokens or pixels than the engine was made for"},
    {"MGV_ERROR_BUSY", "work is still under way"},
    {"MGV_ERROR_TIMEOUT", "the work made no progress within its bound"},
    {"MGV_ERROR_NO_DEVICE", "no driver, no GPU, or none that the kernels were compiled for"},
    {"MGV_ERROR_DEVICE", "a CUDA call failed"},
    {"MGV_ERROR_DEVICE_LOST", "the CUDA context is gone; only destroying the handles remains"},
};
static const mgv__result_row *mgv__result_find(mgv_result result) {
    static const mgv__result_row unknown = {"MGV_ERROR_UNKNOWN", "no result code of this version"};
    if (result > 0 || result <= -(int)(sizeof mgv__results / sizeof mgv__results[0])) return &unknown;
    return &mgv__results[-result];
}
MEGAVIT_API const char *mgv_result_name(mgv_result result) { return mgv__result_find(result)->name; }
MEGAVIT_API const char *mgv_result_text(mgv_result result) { return mgv__result_find(result)->text; }
MEGAVIT_API const char *mgv_version(void) { return MGV_VERSION; }

typedef struct mgv__dtype_row {
    const char *name; /* in safetensors headers */
    uint32_t bits;
} mgv__dtype_row;
static const mgv__dtype_row mgv__dtypes[] = { /* by mgv_dtype; huggingface/safetensors, safetensors/src/tensor.rs, enum Dtype */
    {"?", 0},
    {"BOOL", 8}, {"F4", 4}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8}, {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
    {"I16", 16}, {"U16", 16}, {"F16", 16}, {"BF16", 16}, {"I32", 32}, {"U32", 32}, {"F32", 32},
    {"C64", 64}, {"F64", 64}, {"I64", 64}, {"U64", 64},
};
static const mgv__dtype_row *mgv__dtype_find(mgv_dtype dtype) {
    return &mgv__dtypes[dtype > MGV_DTYPE_NONE && dtype < MGV_DTYPE_COUNT ? dtype : MGV_DTYPE_NONE];
}
MEGAVIT_API const char *mgv_dtype_name(mgv_dtype dtype) { return mgv__dtype_find(dtype)->name; }
MEGAVIT_API uint32_t mgv_dtype_bits(mgv_dtype dtype) { return mgv__dtype_find(dtype)->bits; }

/* C99 has no static assert: an array of negative size is an error everywhere. */
#define MGV__STATIC_ASSERT(condition, name) typedef char mgv__static_assert_##name[(condition) ? 1 : -1]
MGV__STATIC_ASSERT(sizeof mgv__results / sizeof mgv__results[0] == 1 - MGV_ERROR_DEVICE_LOST, every_result_has_a_row);
MGV__STATIC_ASSERT(sizeof mgv__dtypes / sizeof mgv__dtypes[0] == MGV_DTYPE_COUNT, every_dtype_has_a_row);
MGV__STATIC_ASSERT(sizeof(mgv_error) == 512, error_is_512_bytes);

/* ---------------------------------------------------------------------------------------------------------------
   >>ops: a model is a list of operations over named buffers

   Everything that runs or describes a model reads this list: the CPU backend executes it, the GPU plan lays it out,
   inspect and plan count its work, validation compares after each entry. A new model family is a new builder. */

typedef int32_t mgv__op_kind;
enum {
    MGV__OP_LINEAR = 0, /* target = activation(source . weight^T + bias) [+ table] [+ add] */
    MGV__OP_NORM,       /* target = LayerNorm or RMSNorm of each row of source */
    MGV__OP_ROTARY,     /* rotates q and k in place by the picture's (t, h, w) position ids */
    MGV__OP_ATTENTION,  /* target = softmax(q k^T scale) v within ranges of rows; source holds q | k | v side by side */
    MGV__OP_POOL,       /* one query a head (the probe) over all tokens of a picture: SigLIP's pooling head up to its output projection */
    MGV__OP_GATHER,     /* target row i = source row order[i], in units of merge * merge rows */
    MGV__OP_KIND_COUNT
};

typedef int32_t mgv__activation;
enum { MGV__ACT_NONE = 0, MGV__ACT_GELU_TANH, MGV__ACT_GELU_ERF, MGV__ACT_SILU_GATE /* silu(part 0) * part 1 */ };

/* What one row of a buffer stands for. */
typedef int32_t mgv__rows;
enum { MGV__ROWS_TOKENS = 0, MGV__ROWS_MERGED /* merge * merge tokens */, MGV__ROWS_IMAGES };

/* Which rows attend to each other. */
typedef int32_t mgv__range_kind;
enum { MGV__RANGE_FRAME = 0 /* all tokens of one frame; a still picture is one frame */, MGV__RANGE_WINDOW, MGV__RANGE_KIND_COUNT };

/* Which rotary axis, t = 0, h = 1, w = 2, turns each pair of a head: pairs [0, head_dim / 2) in order. */
enum { MGV__MAX_HEAD_DIM = 256, MGV__MAX_PARTS = 3, MGV__MAX_BUFFERS = 16, MGV__NONE = 0xFFFF };

typedef struct mgv__buffer_desc {
    const char *name;
    uint32_t columns;
    mgv__rows rows;
} mgv__buffer_desc;

typedef struct mgv__op {
    mgv__op_kind kind;
    const char *label;            /* "qkv", "fc1" … */
    int32_t layer;                /* -1: before or after the layers */
    mgv__rows rows;               /* what a row of the target is */
    uint16_t source, target;      /* buffers */
    uint16_t add;                 /* buffer added at the end (the residual), or MGV__NONE */
    uint16_t fold;                /* source rows that are read as one long row; 1 but for mergers */
    uint32_t inner;               /* columns of one (folded) source row */
    uint32_t columns;             /* columns of one target row */
    uint32_t part_count;          /* weights side by side along the columns: q, k, v or gate, up */
    uint32_t weight[MGV__MAX_PARTS]; /* tensor numbers, each [columns of the part, inner] */
    uint32_t bias[MGV__MAX_PARTS];   /* tensor numbers or MGV__NO_TENSOR */
    uint32_t table;               /* position table added by the picture's samples, or MGV__NO_TENSOR */
    mgv__activation activation;
    float epsilon;                /* norms */
    int32_t rms;                  /* norms: 1 RMSNorm, 0 LayerNorm */
    uint32_t heads, head_dim;     /* rotary, attention, pool */
    float scale;                  /* attention, pool: on the scores */
    mgv__range_kind range;        /* attention */
    float theta;                  /* rotary: base of the frequencies */
    uint32_t axis_pairs[3];       /* rotary: pairs turned by t, h and w, in this order; they sum to head_dim / 2 */
    uint32_t probe;               /* pool: tensor [1, 1, inner]; weight[0] is in_proj [3 inner, inner], bias[0] its bias */
    int32_t inverse;              /* gather: 1 undoes the order */
} mgv__op;
#define MGV__NO_TENSOR 0xFFFFFFFFu

/* Where an output can be read: the whole of `buffer` right after operation `op` has run. */
typedef struct mgv__tap {
    mgv_output_kind kind;
    uint32_t index;
    uint32_t op;
    uint16_t buffer;
} mgv__tap;

/* What the operations need to know about one picture besides its pixels. Arrays live in the engine's scratch memory. */
typedef struct mgv__geometry {
    mgv_grid grid;
    const uint32_t *sample_index; /* [tokens * sample_count] rows of the position table */
    const float *sample_weight;   /* [tokens * sample_count]; NULL: all 1 */
    uint32_t sample_count;        /* 1: a plain look-up; 4: bilinear; 0: no table */
    const int32_t *position;      /* [tokens * 3] (t, h, w) of each row, in row order; NULL without rotary */
    const uint32_t *range_ends[MGV__RANGE_KIND_COUNT]; /* ascending; range r is [ends[r-1], ends[r]) */
    uint32_t range_count[MGV__RANGE_KIND_COUNT];
    const uint32_t *order;        /* [merged_tokens] for gathers: unit i comes from unit order[i]; NULL without */
} mgv__geometry;

typedef struct mgv__tensor {
    const char *name;
    uint32_t file;                /* shard number */
    mgv_dtype dtype;
    uint32_t rank;
    uint64_t shape[MGV_MAX_RANK];
    uint64_t offset;              /* of the first byte in its file */
    uint64_t bytes;
    const void *data;             /* little-endian, row-major, 64-byte aligned; NULL until read */
} mgv__tensor;

typedef struct mgv__program {
    mgv__buffer_desc buffers[MGV__MAX_BUFFERS];
    uint32_t buffer_count;
    mgv__op *ops;
    uint32_t op_count;
    mgv__tap *taps;
    uint32_t tap_count;
} mgv__program;

#endif /* MEGAVIT_IMPLEMENTED */
#endif /* MEGAVIT_IMPLEMENTATION */
