/* megavit.h - v0.1.0 - vision transformers from C, in one header - MIT or public domain

   Do this:

       #define MEGAVIT_IMPLEMENTATION
       #include "megavit.h"

   in exactly one C or C++ file; include the header alone everywhere else. Link with -lm, and with -lpthread where the C
   library keeps threads apart.

   WHAT IT DOES
       Loads a vision transformer as it is downloaded from Hugging Face (config.json, preprocessor_config.json,
       model.safetensors or its shards), takes pixels, and gives embeddings: pooled vectors, token vectors, and the
       output of any layer. Decoding PNG or JPEG files stays outside: stb_image does that well.

           SigLIP, SigLIP2 of fixed resolution    pooled, tokens, layer N
           CLIP                                   pooled, embeds, tokens, layer N
           DINOv2, also with registers, DINOv3    pooled, tokens, layer N
           Qwen3-VL vision towers                 tokens (merged), layer N, DeepStack J
           Qwen2-VL, Qwen2.5-VL, Qwen3.5 towers   tokens (merged), layer N

       A file that holds a whole vision-language model is fine: what belongs to the text is not read.

   WHAT IT DOES NOT DO
       It does not train, does not download, does not decode picture files, does not start threads, open files or
       print unless you ask for it, and does not run text towers. It has no global state.

       Not supported: NaFlex variants of SigLIP2, quantised weights, pictures of more than 8 bits a channel.

   QUICK START
       Error handling left out; examples/embed.c has it, and is hardly longer.

           mgv_model *model;
           mgv_engine *engine;
           mgv_error error;
           mgv_model_desc model_desc = {0};
           mgv_image image = {0};
           mgv_output output = {0};
           mgv_encode_desc encode = {0};
           float embedding[768];

           model_desc.path = "siglip2-base-patch16-224";
           mgv_model_open(&model, &model_desc, &error);
           mgv_engine_create(&engine, model, NULL, &error);

           image.pixels = pixels;                 // 8-bit RGB, rows one after the other
           image.width = 640;
           image.height = 480;
           output.kind = MGV_OUTPUT_POOLED;
           output.data = embedding;
           output.capacity = 768;
           encode.images = &image;
           encode.image_count = 1;
           encode.outputs = &output;
           encode.output_count = 1;
           mgv_encode_blocking(engine, &encode, &error);

           mgv_engine_destroy(engine);
           mgv_model_close(model);

       How large must `embedding` be? mgv_model_get_info says it for pooled vectors (pooled_width), mgv_engine_shape for
       any output and any pictures.

   STEP BY STEP
       1. mgv_model_open reads and checks a whole model. There is no separate call that validates: a handle that exists is
          valid. Models come from a directory, from files in memory (memory_files), or through your own mgv_file_io.
       2. mgv_engine_create takes one device and all the memory it will ever need. Its description says how much that is:
          max_images, max_tokens, max_width, max_height. What is larger is MGV_ERROR_CAPACITY with both numbers.
       3. mgv_encode checks pictures and outputs, enqueues and returns. mgv_poll tells how the work stands, mgv_wait waits
          with a bound, mgv_encode_blocking is both. On the CPU the work is done inside mgv_poll and mgv_wait, a step
          at a time, so a program with one thread can encode between two frames of its own; a step is one operation on one
          picture, or its pixels, and takes as long as that takes. On a GPU it is one kernel on a stream of yours.
       4. Outputs are asked for, several at once if you like: MGV_OUTPUT_POOLED, _TOKENS, _LAYER (index N), _DEEPSTACK
          (index J). Work that no output needs is not done. Rows of all pictures follow each other; models that take
          pictures of any size have a different number of token rows for each: mgv_engine_grid tells it beforehand.
       5. mgv_preprocess gives the pixel values alone, as transformers' image processors do.

   OPTIONS
       Define these before the header is included; those marked * matter only where the implementation is.

           MEGAVIT_IMPLEMENTATION   *  the implementation, in one file of the program
           MEGAVIT_STATIC              every function is static: any number of files may have the implementation
           MEGAVIT_API                 what stands before every public function, such as __declspec(dllexport)
           MEGAVIT_NO_STDIO         *  no file is opened but through your mgv_file_io
           MEGAVIT_NO_THREADS          no thread pool (mgv_threads_create), so no pthreads or Windows threads
           MEGAVIT_NO_SIMD          *  only plain C on the CPU
           MEGAVIT_CUDA             *  the CUDA backend; needs the CUDA headers and the CUDA runtime, see >>cuda
           MEGAVIT_PLAN             *  mgv_model_get_schedule and mgv_model_pack without a GPU and without MEGAVIT_CUDA
           MEGAVIT_KERNELS_HEADER   *  "megavit_kernels.h": compiles the GPU kernels in, so that no file is needed at run time
           MEGAVIT_NO_CUDA          *  no CUDA backend, whatever else is defined
           MEGAVIT_NO_CUDART        *  for tests: the CUDA backend without the CUDA runtime; mgv_engine_desc.cuda_calls brings the calls
           MEGAVIT_SGEMM(...)       *  your matrix product, such as a BLAS's; see >>cpu
           MEGAVIT_FILENAME         *  the name to include this file by, if it is not "megavit.h"

       32-bit POSIX systems open files of 2 GiB and more only where _FILE_OFFSET_BITS is 64 before the first include.

   ERRORS
       A call that can fail returns an mgv_result: MGV_OK is 0, errors are negative. Pass an mgv_error to get a sentence
       too: it names the file, the tensor and the rule that was broken. NULL is fine everywhere an mgv_error is taken.
       A call that failed changed nothing: output handles are NULL, other handles are as they were and stay usable. Nothing
       aborts, exits, throws, longjmps or prints. What a file says is never trusted, what you pass by pointer and size is.

   MEMORY
       All of it comes from the allocator in the description, malloc and free by default. A model holds its weights as they
       are stored. An engine takes all it needs when it is created, host memory as one block or in workspace of yours
       (mgv_engine_workspace_bytes), device memory too (mgv_engine_device_workspace_bytes); nothing is allocated after that. Opening a model
       allocates in proportion to its files, never by what a file claims.

   THREADS
       A model never changes: any number of threads may use it. An engine is used by one thread at a time. The library
       starts no threads by itself. Give the engine an mgv_parallel_for to let it use yours, or have it start a pool:

           mgv_threads *threads;
           mgv_threads_create(&threads, 8, NULL, &error);
           engine_desc.parallel = mgv_threads_parallel_for(threads);

   GPU STREAMS AND GRAPHS
       mgv_encode puts its work on the stream you pass and returns. One encode of an engine is under way at a time; several engines may
       work at once, on one GPU or more, each from its own thread and stream: they share multiprocessors as max_sms says, or take turns.

       mgv_encode on a stream that is being captured makes the encode part of a CUDA graph: it reads the same addresses at every replay
       and writes the same ones. Encode as many pictures once before, so that their schedule is on the GPU (an engine holds eight batch
       sizes; graphs keep theirs). Pictures must be RGB8 of the model's size in device or page-locked memory, and rows are not normalised.
       If mgv_encode fails, end the capture and throw the graph away. Replays are encodes of the engine: order them among each other and
       with mgv_encode. After cudaGraphLaunch, mgv_wait and mgv_poll tell how the replays since the last mgv_wait ended;
       MGV_ERROR_TIMEOUT there means that the rows of one of them are not to be used. mgv_wait says so once, and the next replay
       is right again. Destroy the graphs before the engine. While some stream is being captured, in whatever mode, engines may be
       polled, waited for and given encodes on other streams, but not on the legacy default one. Make engines outside of captures.

           encode.stream = stream;                 // pictures and rows in device memory
           mgv_encode_blocking(engine, &encode, &error);
           cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
           mgv_encode(engine, &encode, &error);
           cudaStreamEndCapture(stream, &graph);
           cudaGraphInstantiate(&executable, graph, 0);
           ...
           cudaGraphLaunch(executable, stream);    // as often as you like
           mgv_wait(engine, 1000, &error);

   DETERMINISM
       The same model, pictures and build give the same bits: for any number of threads, any place in a batch and any
       neighbours there (with MEGAVIT_SGEMM only where its sums do not depend on m and n; those of many a BLAS do). On a GPU
       the number of pictures of an encode chooses the schedule, and some schedules add in another order (one picture of
       SigLIP2-base, two, three to seven, eight, nine to 24, 25 to 48, more): compare bits between encodes of as many, with
       the same backend asked for. Other instruction sets (AVX2, AVX-512, NEON, plain C) round differently, within the error
       bound. Resizing and normalising give the same bits everywhere, those of Pillow or torchvision.

   NUMBERS
       fp32 arithmetic on the CPU; weights in F32, F16 or BF16 are widened as they are used. Against transformers in fp32
       the relative L2 error of every output is at most 1e-5 for models of up to 12 layers, and for deeper ones at most
       twice transformers' own error against fp64.

       On a GPU (NVIDIA Hopper, SigLIP and SigLIP2) weights and activations are bf16 and sums fp32.

   FINDING YOUR WAY
       The public part comes first. Behind MEGAVIT_IMPLEMENTATION lies a list of the sections that follow it, in the order
       in which data flows; search for a section's name with the two angle brackets before it, such as >>pixels.

   LICENSE
       MIT or public domain, as you like. See the end of this file.
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
/* gcc warns of static functions that a file declares and does not define, unused or not, as the file's end has it: no pop. */
#if defined(MEGAVIT_STATIC) && !defined(MEGAVIT_IMPLEMENTATION) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wunused-function"
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
    MGV_ERROR_ARGUMENT = -1,    /* the caller passed something no call can accept: NULL, a wrong enum, pixels out of bounds */
    MGV_ERROR_NOMEM = -2,       /* the allocator gave nothing */
    MGV_ERROR_IO = -3,          /* a file could not be opened or read, or changed while it was read */
    MGV_ERROR_FORMAT = -4,      /* a file breaks the rules of its format (JSON, safetensors, shard index) */
    MGV_ERROR_MODEL = -5,       /* config and tensors are well formed but are not one whole model, or one whose rows are no numbers */
    MGV_ERROR_UNSUPPORTED = -6, /* well formed, but nothing that this version runs */
    MGV_ERROR_CAPACITY = -7,    /* more pictures, tokens or pixels than the engine was made for, or than fit into the buffer or workspace
                                   that was passed */
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
   open of a file that is not there returns MGV_FILE_ABSENT; read fills all of the bytes asked for or fails. Any other
   code is a failure too, and ends up in the message. */
enum {
    MGV_FILE_ABSENT = 1,
    MGV_FILE_NOT_REGULAR = 2, /* a directory, a pipe, a device */
    MGV_FILE_CHANGED = 3,     /* its size, since it was opened */
    MGV_FILE_NOMEM = 4        /* ends as MGV_ERROR_NOMEM */
};
typedef struct mgv_file_io {
    void *user;
    int32_t (*open)(void *user, const char *path, void **file, uint64_t *size);
    int32_t (*read)(void *user, void *file, uint64_t offset, void *buffer, size_t bytes);
    void (*close)(void *user, void *file);
} mgv_file_io;

/* Threads. Default: none. run calls task(context, i) once for each i in [0, count), in any order and on any
   threads, and returns when all have returned. `threads` is how many it may use; it bounds the scratch memory. Results do not depend on
   it. */
typedef void (*mgv_task)(void *context, uint32_t index);
typedef struct mgv_parallel_for {
    void *user;
    uint32_t threads;
    void (*run)(void *user, uint32_t count, mgv_task task, void *context);
} mgv_parallel_for;

#ifndef MEGAVIT_NO_THREADS
/* A ready-made parallel_for: threads of this pool, started when it is made, asleep between calls. Link with -lpthread
   where the C library wants it, or define MEGAVIT_NO_THREADS and bring your own threads or none. */
typedef struct mgv_threads mgv_threads;
/* Starts count - 1 threads (the calling thread is the other one), count in [1, 1024]. allocator may be NULL. */
MEGAVIT_API mgv_result mgv_threads_create(mgv_threads **threads, uint32_t count, const mgv_allocator *allocator, mgv_error *error);
/* What to put into mgv_engine_desc. The pool must outlive the engine. Engines that share a pool take turns with it. */
MEGAVIT_API mgv_parallel_for mgv_threads_parallel_for(mgv_threads *threads);
/* Ends the threads and waits for them. NULL is allowed. No call of run may be under way. */
MEGAVIT_API void mgv_threads_destroy(mgv_threads *threads);
#endif

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

typedef struct mgv_safetensors mgv_safetensors;

typedef struct mgv_safetensors_desc {
    uint32_t struct_size;
    uint32_t reserved;
    const char *path;          /* of the file, needed only during the call; or NULL, and the file lies in memory: */
    const void *data;          /* must stay until the handle is closed */
    uint64_t bytes;
    mgv_file_io io;            /* how the file at `path` is read */
    mgv_allocator allocator;
    uint64_t max_header_bytes; /* 0: 100,000,000 */
} mgv_safetensors_desc;

/* Opens one safetensors file and checks its whole header; the data is not read. Any of the format's dtypes is welcome. */
MEGAVIT_API mgv_result mgv_safetensors_open(mgv_safetensors **file, const mgv_safetensors_desc *desc, mgv_error *error);
/* NULL is allowed. */
MEGAVIT_API void mgv_safetensors_close(mgv_safetensors *file);
/* NULL has none. */
MEGAVIT_API uint32_t mgv_safetensors_tensor_count(const mgv_safetensors *file);
MEGAVIT_API uint32_t mgv_safetensors_metadata_count(const mgv_safetensors *file);
/* Tensor i of [0, tensor_count), in the order of the header. */
MEGAVIT_API mgv_result mgv_safetensors_get_tensor(const mgv_safetensors *file, uint32_t i, mgv_tensor_info *info);
/* The number of the tensor of this name; MGV_ERROR_MODEL: there is none. */
MEGAVIT_API mgv_result mgv_safetensors_find(const mgv_safetensors *file, const char *name, uint32_t *i);
/* Entry i of __metadata__; the strings belong to the handle. */
MEGAVIT_API mgv_result mgv_safetensors_get_metadata(const mgv_safetensors *file, uint32_t i, const char **key, const char **value);
/* The bytes of tensor i as they are stored: little-endian, row-major. capacity: bytes of room behind data. One thread at a time. */
MEGAVIT_API mgv_result mgv_safetensors_read(mgv_safetensors *file, uint32_t i, void *data, uint64_t capacity, mgv_error *error);

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
enum {
    MGV_FAMILY_NONE = 0, MGV_FAMILY_SIGLIP, MGV_FAMILY_QWEN3_VL, MGV_FAMILY_QWEN2_5_VL, MGV_FAMILY_CLIP, MGV_FAMILY_DINOV2,
    MGV_FAMILY_DINOV2_REGISTERS, MGV_FAMILY_DINOV3, MGV_FAMILY_QWEN3_5, MGV_FAMILY_QWEN2_VL
};

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
    uint32_t embed_width;      /* 0: no projection; of SigLIP pooled vectors themselves are compared with texts */
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
enum {
    MGV_PIXELS_RGB8 = 0, MGV_PIXELS_BGR8, MGV_PIXELS_RGBA8, MGV_PIXELS_BGRA8, MGV_PIXELS_GRAY8, MGV_PIXELS_GRAY_ALPHA8,
    MGV_PIXELS_RGBX8, MGV_PIXELS_BGRX8 /* the fourth byte means nothing, as in many a render target */
};

/* What becomes of the transparent parts of a picture whose format has alpha, which is not premultiplied. */
typedef int32_t mgv_alpha;
enum {
    MGV_ALPHA_WHITE = 0, /* they lie over white: bit for bit alpha_composite of Pillow 13, as transformers' processors do since 5.22 */
    MGV_ALPHA_DROP       /* alpha is left out, and what was hidden is seen: Pillow's convert("RGB") */
};

typedef int32_t mgv_place;
enum { MGV_PLACE_HOST = 0, MGV_PLACE_DEVICE };

/* One picture, or one video clip of equal frames. Grey is replicated. pixels points to the left end of the top row of the first frame; where a stride is negative, what follows lies
   below it in memory (a picture stored bottom row first: pixels = start + (height - 1) * row, stride = -row). Rows may lie at any address;
   a side is at most 16,777,216 pixels. Nothing outside the rows is read. Zero the struct and set what you need. In an array all struct_size
   must be equal. */
typedef struct mgv_image {
    uint32_t struct_size;
    mgv_pixel_format format;
    const void *pixels;
    uint64_t bytes;        /* readable, from the lowest address of the picture to its highest; 0: not checked */
    uint32_t width;        /* in pixels */
    uint32_t height;
    int64_t stride;        /* bytes from a row to the next; 0: rows follow each other; may be negative */
    uint32_t frames;       /* of a clip; 0 or 1: a still picture, which is all that models of one size take. Qwen's patches hold two
                              frames, the last one repeated if there is an odd number; tokens of one pair do not look at those of
                              another */
    mgv_place place;
    int64_t frame_stride;  /* bytes from a frame to the next; 0: frames follow each other, height times the size of stride apart */
    mgv_alpha alpha;
    uint32_t reserved;
} mgv_image;

/* ---------------------------------------------------------------------------------------------------------------
   Embeddings out */

typedef int32_t mgv_output_kind;
enum {
    /* on a GPU all outputs come from one launch; for tokens and layers in host memory see mgv_engine_desc.max_row_outputs */
    MGV_OUTPUT_POOLED = 0, /* [images, pooled_width]: transformers' pooler_output */
    MGV_OUTPUT_TOKENS,     /* [tokens, token_width]: last_hidden_state after the last norm, or merged tokens */
    MGV_OUTPUT_LAYER,      /* [tokens, hidden]: hidden_states[index]; 0 the embeddings, `layers` the last, before the last norm.
                              Of Qwen2.5-VL in window order, as transformers gives them; its tokens are in picture order */
    MGV_OUTPUT_DEEPSTACK,  /* [merged tokens, token_width] of DeepStack merger `index` */
    MGV_OUTPUT_EMBEDS      /* [images, embed_width]: CLIP's pooled vectors behind the projection, transformers' image_embeds */
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
    uint32_t tokens;        /* rows of a layer output: t * h * w, and what the model puts in front (class and register tokens) */
    uint32_t merged_tokens; /* rows of MGV_OUTPUT_TOKENS: equal to tokens where nothing is merged */
} mgv_grid;

/* How a picture will be laid out, before there is an engine. Of image only width, height and frames are looked at. min_pixels and
   max_pixels as in mgv_engine_desc. MGV_ERROR_ARGUMENT for a size that the model cannot take, _CAPACITY for more
   tokens than fit into any memory. Any thread. */
MEGAVIT_API mgv_result mgv_model_grid(const mgv_model *model, const mgv_image *image, uint64_t min_pixels, uint64_t max_pixels,
                                      mgv_grid *grid, mgv_error *error);

/* One of the operations that a model is, and what it costs for one picture. */
typedef struct mgv_op_info {
    const char *kind;      /* "linear", "norm", "rotary", "attention", "pool", "gather", "prepend", "pick", "embed" */
    const char *label;     /* "qkv", "fc1" … */
    int32_t layer;         /* -1: before or after the layers */
    uint32_t rows;         /* of the result */
    uint32_t columns;
    uint32_t inner;        /* columns of one row that is read */
    double flops;          /* 1 multiply-add = 2; norms, activations, softmax and rotations are not counted */
    uint64_t weight_bytes; /* as stored */
    uint64_t read_bytes;   /* activations in float32, each once */
    uint64_t write_bytes;
} mgv_op_info;
/* Operations of the model, in the order they run in; 0 for NULL. Any thread. */
MEGAVIT_API uint32_t mgv_model_op_count(const mgv_model *model);
/* Operation i, in [0, mgv_model_op_count), for a picture laid out as `grid` says. Any thread. */
MEGAVIT_API mgv_result mgv_model_get_op(const mgv_model *model, uint32_t i, const mgv_grid *grid, mgv_op_info *info);

/* How the CUDA backend would run an encode, and where its time should go by a simple model (>>schedule says which). */
typedef struct mgv_schedule_desc {
    uint32_t struct_size;
    uint32_t image_count;     /* 0: 1 */
    uint32_t multiprocessors; /* that the kernel may use; 0: 132, those of an H100 or H200 */
    uint32_t reserved;
} mgv_schedule_desc;

/* A part of a budget: `count` things of `each` bytes, or `count` threads of `each` registers. */
typedef struct mgv_schedule_part {
    const char *name;
    uint32_t count, each;
} mgv_schedule_part;

enum { MGV_SCHEDULE_SHARED_PARTS = 5, MGV_SCHEDULE_ROLES = 2 };

typedef struct mgv_schedule_info {
    uint32_t op_count;
    const char *regime;                               /* "throughput" or "latency": which kind of kernel */
    const char *kernel;                               /* its name in the fatbin */
    uint32_t multiprocessors, clusters, cluster_size; /* one CTA runs on each multiprocessor of a cluster */
    uint32_t groups, group_images;                    /* pictures that go through all layers together */
    uint32_t tiles;                                   /* of one cluster each */
    uint64_t device_bytes;                            /* everything of the engine on the card */
    uint64_t weight_bytes;                            /* packed */
    mgv_schedule_part shared[MGV_SCHEDULE_SHARED_PARTS]; /* shared memory of one CTA, in bytes */
    uint32_t shared_bytes, shared_limit;
    mgv_schedule_part roles[MGV_SCHEDULE_ROLES];      /* registers of one CTA */
    uint32_t registers, register_limit;
    double nominal_flops;                             /* of the model, as mgv_model_info counts them */
    double clock_hz, matrix_flops, l2_bandwidth, memory_bandwidth, handoff_us; /* what is assumed, for the multiprocessors used */
    double joules_a_flop, watts;        /* assumed, too: of products with their padding, all else shared out over them; the card's limit */
    double matrix_us, l2_us, memory_us; /* bounds: products; bytes from L2; weights, pixels and results once from memory */
    double chain_us;                    /* bound: operations that follow each other */
    double floor_us;                    /* the longest of the first three, plus the chain */
    double tiles_us;                    /* all tiles, each as soon as its rows and its cluster allow */
    double power_us;                    /* bound: the energy of all tiles' products, at the card's limit */
    double us;                          /* predicted: the longer of the last two */
} mgv_schedule_info;

/* One operation of the kernel, over all groups. */
typedef struct mgv_schedule_op {
    const char *label;                  /* "qkv", "fc1" ... */
    const char *kind;                   /* "patches", "product", "attention", "pool" */
    int32_t layer;                      /* -1: before or after the layers */
    uint32_t tile_rows, tile_columns;   /* of one CTA */
    uint32_t tiles;                     /* of one cluster each */
    uint32_t clusters;                  /* that have at least one of them */
    double waves;                       /* rounds that the busiest cluster makes, over all groups */
    double flops;                       /* as the kernel computes it, rows and columns of padding left out */
    double tile_flops;                  /* with padding */
    uint64_t l2_bytes, memory_bytes;    /* read and written */
    uint64_t plain_l2_bytes, plain_memory_bytes; /* the same without fusion and groups */
    double matrix_us, l2_us, memory_us, edge_us, handoff_us; /* by itself it would take the longest of the first three, plus the others */
    double us;  /* from the end of all tiles before it in the list to the end of its last; over all operations, tiles_us */
} mgv_schedule_op;

/* info and ops (room for op_capacity; NULL: none are wanted) are filled in; desc may be NULL. Needs no GPU, but MEGAVIT_CUDA or
   MEGAVIT_PLAN where the implementation is. MGV_ERROR_UNSUPPORTED or _CAPACITY, with the reason: the kernel does not run this model, or so
   many pictures. Allocates while it runs. Any thread. */
MEGAVIT_API mgv_result mgv_model_get_schedule(const mgv_model *model, const mgv_schedule_desc *desc, mgv_schedule_info *info,
                                              mgv_schedule_op *ops, uint32_t op_capacity, mgv_error *error);

/* Weights as the GPU kernel wants them, made once instead of each time an engine is: `megavit pack` writes this into a file, which
   mgv_engine_desc takes. architecture: "sm_90a". Needs no GPU, but MEGAVIT_CUDA or MEGAVIT_PLAN where the implementation is, and a
   processor that stores numbers little-endian. Any thread. */
/* bytes: how long the file will be. MGV_ERROR_UNSUPPORTED: the kernel does not run this model, or there is none for the architecture. */
MEGAVIT_API mgv_result mgv_model_packed_bytes(const mgv_model *model, const char *architecture, uint64_t *bytes, mgv_error *error);
/* file: filled in; aligned as malloc's memory; capacity: bytes of room behind it. Allocates while it runs; seconds for a large model. */
MEGAVIT_API mgv_result mgv_model_pack(const mgv_model *model, const char *architecture, void *file, uint64_t capacity, mgv_error *error);

/* ---------------------------------------------------------------------------------------------------------------
   Engines. An engine is one device and all the scratch memory it will ever use. One thread at a time. */

typedef struct mgv_engine mgv_engine;

typedef int32_t mgv_backend;
enum {
    MGV_BACKEND_AUTO = 0, /* CUDA where it can run the model, else the CPU; the log says why */
    MGV_BACKEND_CPU,
    MGV_BACKEND_CUDA      /* needs MEGAVIT_CUDA and a Hopper card; SigLIP with heads of up to 96 columns. bf16 weights and activations,
                             fp32 sums: about 5e-3 relative L2 against the CPU */
};

typedef int32_t mgv_resize;
enum {
    MGV_RESIZE_PILLOW = 0,  /* bit for bit Image.resize of Pillow 13, then the Pillow processors' normalisation */
    MGV_RESIZE_TORCHVISION  /* bit for bit torchvision's resize of uint8 on x86 with AVX2, then the torchvision processors' normalisation */
};

typedef struct mgv_engine_desc {
    uint32_t struct_size;
    mgv_backend backend;
    int32_t device;              /* CUDA ordinal. Calls put their thread's current device back, which makes a context on that one, GPU 0 in
                                    a thread that never chose: cudaSetDevice(device) in each thread that uses the engine avoids it */
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
    const void *kernels;         /* megavit.fatbin in memory, needed during the call; NULL: what MEGAVIT_KERNELS_HEADER compiled in */
    uint32_t max_sms;            /* multiprocessors that the CUDA backend may use; 0: all */
    uint32_t max_row_outputs;    /* CUDA: token and layer outputs in pageable or normalised host memory that one encode may ask for; the
                                    engine keeps page-locked memory for as many. Those in device or page-locked memory need none */
    const char *packed_path;     /* CUDA: a file of mgv_model_pack, of this model; NULL: the weights are packed when the engine is made */
    const void *packed;          /* or the same in memory. Both are needed only during the call. A file that does not fit is an error, */
    uint64_t packed_bytes;       /* also with MGV_BACKEND_AUTO; where there is no GPU it is not looked at */
    mgv_file_io io;              /* how packed_path is read */
    void *device_workspace;      /* CUDA: device memory for everything that the engine needs there, or NULL to allocate it */
    uint64_t device_workspace_bytes; /* at least mgv_engine_device_workspace_bytes() */
    const struct mgv__cuda_calls *cuda_calls; /* for tests: the CUDA calls to make instead of the runtime's, see >>cuda; must stay */
} mgv_engine_desc;

/* What an engine of this description needs as host workspace, in bytes. Any thread. */
MEGAVIT_API mgv_result mgv_engine_workspace_bytes(const mgv_model *model, const mgv_engine_desc *desc, uint64_t *bytes, mgv_error *error);
/* What a CUDA engine of this description needs as device workspace, in bytes. Needs no GPU, but MEGAVIT_CUDA or MEGAVIT_PLAN where the
   implementation is. MGV_ERROR_UNSUPPORTED or _CAPACITY, with the reason: the kernel does not run this model, or so many pictures. Any
   thread. */
MEGAVIT_API mgv_result mgv_engine_device_workspace_bytes(const mgv_model *model, const mgv_engine_desc *desc, uint64_t *bytes,
                                                         mgv_error *error);
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

/* Pixels as the model sees them, host memory only. Fixed-size models: [3, S, S]. Others: rows of patches [tokens, 3 * 2 * P * P].
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
    void *stream; /* cudaStream_t, which may be being captured; NULL: the legacy default stream. The CPU backend takes no stream. */
} mgv_encode_desc;

typedef int32_t mgv_status;
enum { MGV_STATUS_DONE = 0, MGV_STATUS_QUEUED, MGV_STATUS_RUNNING, MGV_STATUS_FAILED, MGV_STATUS_TIMED_OUT };

/* Checks everything, enqueues the work and returns. The pixels and outputs must stay valid until the work is done;
   the descriptors and arrays need not. An engine that is still working answers MGV_ERROR_BUSY, one whose CUDA context is gone
   MGV_ERROR_DEVICE_LOST. After another CUDA error the engine is busy until the stream has gone through what was enqueued, then it works
   again. The CPU backend has no thread of its own: its work is done inside mgv_poll (one step) and mgv_wait. */
MEGAVIT_API mgv_result mgv_encode(mgv_engine *engine, const mgv_encode_desc *desc, mgv_error *error);
/* How the work stands, without waiting; on the CPU, after one more step of it. For FAILED and TIMED_OUT error says why. */
MEGAVIT_API mgv_status mgv_poll(mgv_engine *engine, mgv_error *error);
/* Waits until the work is done or has failed, at most timeout_ms; on the CPU, at most a step longer. MGV_OK: done. MGV_ERROR_BUSY: still
   under way. Anything else: how it failed. MGV_ERROR_MODEL: rows for host memory hold NaN or infinity, as weights too large give; those in
   device memory and those of CUDA graphs are not looked at. */
MEGAVIT_API mgv_result mgv_wait(mgv_engine *engine, uint32_t timeout_ms, mgv_error *error);
/* mgv_encode and mgv_wait in one call. On a GPU it waits as long as the kernel makes progress. */
MEGAVIT_API mgv_result mgv_encode_blocking(mgv_engine *engine, const mgv_encode_desc *desc, mgv_error *error);

/* ---------------------------------------------------------------------------------------------------------------
   Validation: is the GPU right, operation by operation? */

/* One operation of the GPU kernel against the same on the CPU, given the same input. */
typedef struct mgv_validation {
    const char *label;          /* "qkv", "fc1" ...; "whole encode": pooled rows, each side by itself from the pixels on */
    int32_t layer;              /* -1: before or after the layers */
    int32_t compared;           /* 0: the CPU forms no such values, and what follows is empty */
    int32_t ok;                 /* relative_l2 is within the tolerance, and no value is bad */
    uint32_t columns;
    uint64_t rows;              /* of all pictures */
    double relative_l2, tolerance;
    double max_error;           /* the largest difference of two values */
    uint64_t bad;               /* values that are no numbers, or off by 16 times the tolerance of the root mean square */
    uint64_t bad_row;           /* of the first of them */
    uint32_t bad_column;
    uint32_t reserved;
} mgv_validation;
typedef void mgv_validation_report(void *user, const mgv_validation *row);

/* Runs the pictures on the GPU one operation further each time, on buffers full of NaN, and calls report (NULL: nobody) with each result.
   The tolerances come from bf16's rounding, see >>validation. desc as for mgv_engine_create; its backend, max_images, max_tokens and
   both workspaces are not looked at. failures: operations that were not ok. MGV_OK: all were run, whatever they gave. Allocates, and
   blocks; minutes for many pictures. */
MEGAVIT_API mgv_result mgv_validate(const mgv_model *model, const mgv_engine_desc *desc, const mgv_image *images, uint32_t image_count,
                                    mgv_validation_report *report, void *user, uint32_t *failures, mgv_error *error);

#ifdef __cplusplus
}
#endif

/* ---------------------------------------------------------------------------------------------------------------
   Shared with the kernels: one definition of everything that host and device both read. */
#if (defined(MEGAVIT_IMPLEMENTATION) || defined(MEGAVIT_KERNELS)) && !defined(MEGAVIT_KERNEL_STRUCTS)
#define MEGAVIT_KERNEL_STRUCTS

/* Of the structs below and of the meaning of their fields. Host and kernels refuse each other when it differs. */
#define MGV__KERNEL_VERSION 24u

/* Tile shapes and the shared-memory budget of the sm_90a kernel, in elements and bytes. */
enum {
    MGV__GEMM_ROWS = 128,               /* rows of one CTA's matrix tile; a cluster of two works on two such tiles */
    MGV__GEMM_INNER = 64,               /* columns of A and B in one stage: 128 bytes of bf16, one swizzle row */
    MGV__CLUSTER = 2,
    MGV__STAGES = 4,
    MGV__STAGE_BYTES = 48 * 1024,       /* A: 128 x 64, B: 256 x 64 */
    MGV__CHUNK_ROWS = 64,               /* what one math warpgroup hands to its storer at a time: 64 rows of 128 bytes */
    MGV__CHUNK_BYTES = 8 * 1024,
    MGV__CHUNKS = 2,                    /* chunk buffers of one math warpgroup */
    MGV__STATS_ROWS = 64,               /* whose statistics lie together */
    MGV__MATH_GROUPS = 2,               /* math warpgroups */
    MGV__LENT_STAGES = 2,               /* the last ones of a layer's GEMM tile: each math group writes a chunk over its rows of A */
    MGV__SLOTS = 4,                     /* tiles known ahead of time */
    MGV__KERNEL_MAX_WIDTH = 1536,       /* columns of a row that is normalised */
    /* Of a GEMV; up to so many images the pooling head takes tokens apart and makes its products as GEMVs. At 64 the other way
       is 57 us shorter behind the last layer, at 36 and 48 as long (kernels/NOTES.md, the pooling head). */
    MGV__GEMV_MAX_ROWS = 48,
    MGV__MAX_KEYS = 256,                /* tokens of an image that attention and pooling hold at once, */
    MGV__SHORT_KEYS = 208,              /* and where an image has no more than these, so many */
    MGV__ONLINE_KEYS = 128,             /* of these, what attention with online softmax takes at a time */
    MGV__KERNEL_MAX_HEAD_DIM = 96,      /* columns of a head: boxes of 64, and of 16 or 32 for the rest */
    MGV__KERNEL_THREADS = 128 * (1 + MGV__MATH_GROUPS),
    MGV__MAX_SHARED_BYTES = 227 * 1024,
    /* With which a CTA starts, a multiple of eight a thread of the 65,536 of a multiprocessor: its warpgroups share out no more than
       that. */
    MGV__MAX_REGISTERS = 65536 / MGV__KERNEL_THREADS / 8 * 8 * MGV__KERNEL_THREADS,
    /* shared memory of one CTA, part by part: kernels/skeleton/shared_memory.cuh asserts that it is this large */
    MGV__VECTOR_BYTES = 256 * 4,        /* biases of the columns of a tile */
    MGV__NORM_BYTES = MGV__GEMM_ROWS * 4, /* reciprocal standard deviations of its rows */
    MGV__SLOT_BYTES = 128 + 16,         /* an operation, and where its tile lies */
    MGV__BARRIER_BYTES = 8 * (2 * MGV__STAGES + 3 * MGV__SLOTS + MGV__MATH_GROUPS * (2 * MGV__CHUNKS + MGV__LENT_STAGES + 1) + 2) +
                         4 * MGV__MATH_GROUPS * MGV__LENT_STAGES, /* and which stages are lent */
    MGV__SHARED_BYTES = MGV__STAGES * MGV__STAGE_BYTES + MGV__MATH_GROUPS * MGV__CHUNKS * MGV__CHUNK_BYTES + MGV__VECTOR_BYTES +
                        MGV__NORM_BYTES + MGV__SLOTS * MGV__SLOT_BYTES + MGV__BARRIER_BYTES,
    MGV__COPY_REGISTERS = 56,           /* of a thread of the first warpgroup: loader, scheduler, storers; with 40 the loader spills */
    MGV__MATH_REGISTERS = 224           /* of a thread of a math warpgroup */
};

/* The same of the latency regime, for few images: other kernels, on the same buffers and packed weights. */
enum {
    MGV__LATENCY_CLUSTER = 4,
    MGV__LATENCY_MAX_IMAGES = 8,        /* of a model with a pooling head */
    MGV__LATENCY_COLUMNS = 64,          /* columns of one CTA's matrix tile, */
    MGV__LATENCY_SHORT_ROWS = 104,      /* and its rows: these, or the next; the plan has one for all tiles, and a kernel is of one */
    MGV__LATENCY_MAX_ROWS = 128,
    MGV__LATENCY_WEIGHT_STAGES = 8,     /* blocks of weights, which come before the rows that they wait for */
    MGV__LATENCY_WEIGHT_BYTES = MGV__LATENCY_COLUMNS * MGV__GEMM_INNER * 2,
    MGV__LATENCY_ROW_STAGES = 8,
    MGV__LATENCY_ROW_BYTES = MGV__LATENCY_MAX_ROWS * MGV__GEMM_INNER * 2,
    MGV__LATENCY_THIN_ROWS = MGV__LATENCY_MAX_ROWS / MGV__LATENCY_CLUSTER, /* that a CTA of a THIN tile loads and multiplies */
    MGV__LATENCY_THIN_BLOCK_BYTES = MGV__LATENCY_THIN_ROWS * MGV__GEMM_INNER * 2,
    MGV__LATENCY_THIN_BLOCKS = 12,      /* blocks of K that it has at most: all lie in the rings at once */
    MGV__LATENCY_WEIGHT_CLOCKS = 200,   /* between two blocks of weights that a CTA asks for: latency_load_weights */
    MGV__LATENCY_COPY_REGISTERS = 72,
    MGV__LATENCY_MATH_REGISTERS = 216,
    /* shared memory of one CTA, part by part: kernels/sm_90a/latency/memory.cuh asserts that it is this large */
    /* what the cluster sends, as bf16 */
    MGV__LATENCY_SUM_BYTES = (MGV__LATENCY_CLUSTER - 1) * MGV__LATENCY_MAX_ROWS / MGV__LATENCY_CLUSTER * MGV__LATENCY_COLUMNS * 2,
    MGV__LATENCY_SCALE_BYTES = (MGV__LATENCY_CLUSTER - 1) * 16, /* and with the pooling head's sums */
    /* what the math warpgroups give each other in attention: values of 64 queries, sums and largest scores; rows to be stored
       (a product's sums take the place of its last blocks of rows) */
    MGV__LATENCY_SWAP_BYTES = 64 * (MGV__LATENCY_COLUMNS + 16) * 4,
    MGV__LATENCY_TILE_BYTES = 80, /* what the math warps read of a tile known ahead */
    /* mbarriers, and the rows' norms */
    MGV__LATENCY_BARRIER_BYTES =
        MGV__LATENCY_MAX_ROWS * 8 + 8 * (2 * MGV__LATENCY_WEIGHT_STAGES + 2 * MGV__LATENCY_ROW_STAGES + 4 * MGV__SLOTS + 8),
    MGV__LATENCY_SHARED_BYTES = MGV__LATENCY_ROW_STAGES * MGV__LATENCY_ROW_BYTES + MGV__LATENCY_WEIGHT_STAGES * MGV__LATENCY_WEIGHT_BYTES +
                                MGV__LATENCY_SUM_BYTES + MGV__LATENCY_SCALE_BYTES + MGV__LATENCY_SWAP_BYTES +
                                MGV__SLOTS * (MGV__SLOT_BYTES + MGV__LATENCY_TILE_BYTES) + MGV__LATENCY_BARRIER_BYTES
};

/* A GEMV: a CTA's math warps take strips of the result's columns, so and so many warps share the K of one: as few as have all of it in
   registers. So an operation takes few CTAs, and those of the next one are mostly others, which have their weights before the rows that
   these are multiplied with exist. */
enum { MGV__POOL_TOKENS = 16 /* of a POOL_TOKENS tile */, MGV__POOL_TOKENS_HEADS = 16 /* of a model that has such tiles, at most */ };
/* Of a POOL_HEADS tile: heads of a cluster, tokens of a CTA and columns of a row at most. */
enum { MGV__POOL_HEADS = 2, MGV__POOL_SHARE = (int)MGV__MAX_KEYS / MGV__LATENCY_CLUSTER, MGV__POOL_WIDTH = 64 * MGV__POOL_TOKENS_HEADS };
enum { MGV__GEMV_STRIP = 8, MGV__GEMV_WARPS = 4 * MGV__MATH_GROUPS, MGV__GEMV_LEAST_PARTS_LOG2 = 1, MGV__GEMV_MOST_PARTS_LOG2 = 3,
       MGV__GEMV_STEPS = 12 /* of 32 columns, that a warp holds */ };
#define MGV__GEMV_COLUMNS(parts_log2) ((uint32_t)MGV__GEMV_STRIP * (uint32_t)MGV__GEMV_WARPS >> (parts_log2)) /* of a CTA */

/* What one tile of an operation does. */
enum {
    MGV__KERNEL_END = 0,
    MGV__KERNEL_PATCHES,   /* pixels of one image a CTA -> rows of patches */
    MGV__KERNEL_GEMM_256,  /* 128 x 256 tile a CTA */
    MGV__KERNEL_GEMM_192,
    MGV__KERNEL_GEMM_128,
    MGV__KERNEL_GEMM_64,
    MGV__KERNEL_ATTENTION, /* one head of one image a CTA; latency regime: a cluster */
    MGV__KERNEL_POOL,      /* one image a CTA: weighted sums of its tokens, one for each head */
    MGV__KERNEL_WIDE,      /* latency regime: 104 or 128 rows, 64 columns a CTA */
    MGV__KERNEL_DEEP,      /* latency regime: such a tile a cluster, each CTA a quarter of the products */
    MGV__KERNEL_SPLIT_128, /* 128 x 128 tile a cluster: each CTA half of the products, then half of the columns */
    MGV__KERNEL_SPLIT_160,
    MGV__KERNEL_SPLIT_192,
    MGV__KERNEL_ROWS,      /* 128 rows of the stream a CTA -> float32 in memory of the caller's; FOLD_NORM: normalised */
    MGV__KERNEL_ATTENTION_ONLINE, /* 128 queries of one head of one image a CTA: any head_dim, any number of keys */
    MGV__KERNEL_POOL_SUMS, /* 128 columns of one image a CTA: weighted sums of its tokens, from scores that a GEMM has left */
    MGV__KERNEL_POOL_TOKENS, /* up to MGV__GEMV_MAX_ROWS images: weighted sums of MGV__POOL_TOKENS tokens a CTA, one for each head */
    MGV__KERNEL_POOL_JOIN, /* these together, one head of one image a CTA */
    MGV__KERNEL_POOL_HEADS, /* latency regime: two heads of one image a cluster, up to their values */
    MGV__KERNEL_GEMV,      /* up to MGV__GEMV_MAX_ROWS rows, 8 columns for 2, 4 or 8 warps: the pooling head's products for few images */
    MGV__KERNEL_REST,      /* latency regime: a WIDE tile beyond the last row, where clusters are to have a rest */
    MGV__KERNEL_THIN       /* latency regime: a tile as DEEP's, of which each CTA has a quarter of the rows and all of K */
};

/* Tiles of MGV__STATS_ROWS rows of a group of so many rows, a multiple of 4: more than the row tiles of either regime. */
#define MGV__GROUP_TILES(rows) (((rows) + 4u * MGV__STATS_ROWS - 1) / (4u * MGV__STATS_ROWS) * 4u)

/* Kinds of tiles that a kernel has code for, bit by bit: all; what up to MGV__GEMV_MAX_ROWS images take that have up to MGV__MAX_KEYS
   tokens and heads of 64 columns, where pooled rows alone are asked for; of that, what some three to eight take. */
#define MGV__KIND(kind) (1u << MGV__KERNEL_##kind)
#define MGV__KINDS_ALL 0xFFFFFFFFu
#define MGV__KINDS_FEW (MGV__KIND(PATCHES) | MGV__KIND(GEMM_192) | MGV__KIND(GEMM_128) | MGV__KIND(SPLIT_128) | MGV__KIND(SPLIT_160) | \
                        MGV__KIND(ATTENTION) | MGV__KIND(POOL_TOKENS) | MGV__KIND(POOL_JOIN) | MGV__KIND(GEMV))
#define MGV__KINDS_SOME (MGV__KINDS_FEW | MGV__KIND(GEMM_256) | MGV__KIND(SPLIT_192))

/* What a GEMM does with its accumulators, in this order. */
enum {
    MGV__KERNEL_FOLD_NORM = 1,  /* rstd * acc + bias, else acc + bias: the weights' rows are centred, so the mean cancels */
    MGV__KERNEL_GELU_TANH = 4,  /* weights and bias are halved: the kernel takes x / 2 */
    MGV__KERNEL_TABLE = 2,      /* + table[row % tokens] */
    MGV__KERNEL_RESIDUAL = 8,   /* + what residual_map holds at the same place */
    MGV__KERNEL_STATS = 16,     /* mean and squared deviations of the rounded row go to stats_out */
    MGV__KERNEL_FLOAT_OUT = 32, /* float32 out instead of bf16 */
    MGV__KERNEL_EPILOGUE = MGV__KERNEL_FOLD_NORM | MGV__KERNEL_GELU_TANH | MGV__KERNEL_TABLE | MGV__KERNEL_RESIDUAL | MGV__KERNEL_STATS |
                           MGV__KERNEL_FLOAT_OUT,
    MGV__KERNEL_SHARE_ROWS = 256, /* where a group ends with one row tile that has no neighbour, both CTAs of a cluster take its rows and
                                     every second column tile */
    MGV__KERNEL_OWN_HEADS = 1024, /* ATTENTION, throughput regime: each math warpgroup of a CTA has a head of its own */
    MGV__KERNEL_OTHERS_SIGNAL = 512, /* latency regime: not the math warps signal what they have stored, but another warp */
    MGV__KERNEL_HOLD_WEIGHTS = 2048, /* latency regime: weights of a CTA's next tile are not loaded before this one is signalled */
    /* for benchmarks: what the kernel would be without two of its ideas (tools/bench/ablations.py) */
    MGV__KERNEL_WAIT_FIRST = 64, /* weights are not loaded ahead of the wait for what other CTAs write */
    MGV__KERNEL_WAIT_ALL = 128   /* a tile waits for all rows of its group: a barrier between operations */
};

/* One operation. 32 words, so that a warp copies it with one load. */
typedef struct mgv__kernel_op {
    uint32_t kind;
    uint32_t flags;
    uint32_t column_tiles;      /* tiles of one row unit: column tiles of a GEMM, pairs of heads of attention, or fours (OWN_HEADS) */
    uint32_t k_blocks;          /* GEMM: stages of 64 columns of A; GEMV: pieces of 8 columns of A; pooling: chunks of 64 columns;
                                   ATTENTION, ATTENTION_ONLINE: parts of 128 queries that are tiles of their own, 1: all queries of a head
                                   are one tile */
    uint32_t columns;           /* valid columns of the target */
    /* indices into maps; latency regime: store_map and residual_map are indices into buffers; ROWS: a_map is one into buffers, store_map
       into outputs; POOL_SUMS: b_map is one into buffers; GEMV, POOL_TOKENS, POOL_JOIN: a_map and store_map are; GEMV: b_map is the
       logarithm of the number of warps that share a strip; SPLIT: residual_map is that of target and residual behind 64 columns */
    uint32_t a_map, b_map, store_map, residual_map;
    uint32_t b_row;             /* first row of the weights in b_map */
    uint32_t a_column_step;     /* columns of A from one column tile to the next: 0, but for one A a head, whose columns a tile's are */
    uint32_t bias;              /* offset into vectors, in floats, of each column's bias; POOL, POOL_SUMS, POOL_JOIN, POOL_HEADS, ROWS:
                                   of gamma, then beta */
    uint32_t column_sums;       /* POOL, POOL_TOKENS, POOL_HEADS: sums of the scoring vectors */
    uint32_t table;             /* position table; POOL_HEADS: biases of the values */
    uint32_t stats_in, stats_out; /* offsets into stats, in floats; from there on as stats_place in kernels/skeleton/scheduler.cuh */
    uint32_t number;            /* of the operation in its list */
    uint32_t weights_offset;    /* GEMV, POOL_TOKENS, POOL_HEADS: bytes from the start of the packed weights to the first row, in units of
                                   16; the pooling kinds': that of the scoring vectors */
    uint32_t stats_columns;     /* of a part of a row that has statistics of its own, in stats_in and stats_out; the last part has
                                   what is left */
    uint32_t rows_total;        /* valid rows over all groups */
    uint32_t rows_per_group;
    uint32_t wait_counter, wait_divisor, wait_stride, wait_threshold; /* divisor 0: waits for nothing */
    uint32_t signal_counter, signal_stride;
    uint32_t tokens;            /* of one image */
    uint32_t heads;
    float epsilon;
    uint32_t inner;             /* columns of one of q, k, v; of a row that is normalised */
    uint32_t values_offset;     /* POOL_HEADS: weights_offset of the values' weights */
} mgv__kernel_op;

/* The end of a cluster's list of tiles: more than any number. */
#define MGV__NO_TILE 0xFFFFFFFFu
/* A run of tiles of one operation and group, in the order in which all CTAs take them. The last entry closes the list. */
typedef struct mgv__kernel_segment {
    uint32_t op;
    uint32_t group;
    uint32_t first_unit;        /* of rows: pairs of row tiles, images, or pairs of images */
    uint32_t first_tile;        /* tiles of all segments before */
} mgv__kernel_segment;

/* Where a kernel that gave up says so, in page-locked memory. Nothing is written when all is well: a copy to the host behind each launch
   would cost 8 us. */
typedef struct mgv__kernel_status {
    uint32_t aborted;           /* 0: all is well; otherwise MGV__WAIT_* of the wait that gave up first */
    uint32_t op, cta, index, seen, expected;
    uint32_t reserved[2];
} mgv__kernel_status;

enum {
    MGV__WAIT_NONE = 0, MGV__WAIT_COUNTER, MGV__WAIT_SLOT_VACATED, MGV__WAIT_ROLES_LEFT, MGV__WAIT_ALIGNMENT,
    MGV__WAIT_COUNT
};

enum { MGV__ABORT_BYTES = 32 /* the abort word has a sector of the cache to itself */ };
/* What bytes are less in rows of patches. Both are exact in bf16; without it the sums over parts of K would be large where their total is
   small. */
enum { MGV__PIXEL_MIDDLE = 128 };
enum { MGV__MAX_MAPS = 64, MGV__MAX_DEVICE_BUFFERS = 16, MGV__KERNEL_MAX_OUTPUTS = 128 };
/* A CUtensorMap. The copy engine wants its address to be a multiple of 64; on the host these are only copied. */
#ifdef MEGAVIT_KERNELS
typedef struct alignas(64) mgv__tensor_map { uint64_t opaque[16]; } mgv__tensor_map;
#else
typedef struct mgv__tensor_map { uint64_t opaque[16]; } mgv__tensor_map;
#endif

/* The kernel's argument. A multiple of 64 bytes. */
typedef struct mgv__kernel_arguments {
    mgv__tensor_map maps[MGV__MAX_MAPS];
    const mgv__kernel_op *ops;
    const mgv__kernel_segment *segments;
    const uint32_t *deal;       /* word c is where the list of cluster c begins, the numbers of its tiles in the order in which it takes
                                   them, MGV__NO_TILE behind the last; null: clusters take tiles in turn */
    const uint8_t *weights;     /* packed */
    const float *vectors;       /* biases, tables */
    float *stats;               /* (mean, squared deviations) of parts of rows */
    uint32_t *aborted;          /* the word that ends all waits; zero with the counters when a launch begins */
    uint32_t *counters;
    mgv__kernel_status *status; /* of the host */
    const uint8_t *pixels;      /* RGB rows, images one after the other */
    uint16_t *patches;          /* bf16, rows of patch_pitch: bytes less MGV__PIXEL_MIDDLE */
    const uint16_t *residual_rows; /* bf16: the residual of the GEMM that writes float32 */
    uint8_t *buffers[MGV__MAX_DEVICE_BUFFERS]; /* the plan's buffers, for what is read and written without maps */
    float *outputs[MGV__KERNEL_MAX_OUTPUTS]; /* of each ROWS operation: [rows_total, inner] */
    uint32_t total_tiles;
    uint32_t poll_limit;        /* polls of a wait without progress before it gives up */
    uint32_t image_size, patch, grid; /* side of the image, of a patch, patches in a row */
    uint32_t patch_pitch;       /* elements from one patch row to the next */
    uint32_t lost_signal;       /* test: a signal that is not given, 1 + index of the counter */
    uint32_t latency_rows;      /* rows of a matrix tile in the latency regime */
    int32_t next_counters;      /* from the abort word to that of the next launch: this one zeroes it and the counters behind it, */
    uint32_t next_count;        /* so many words; 0: none */
    uint32_t reserved[14];      /* to a multiple of 64 bytes */
} mgv__kernel_arguments;

#endif /* MEGAVIT_KERNEL_STRUCTS */
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
     >>geometry     which token is where: positions, samples of the position table, ranges of attention, window order
     >>builders     one function a model family: config + tensors in, list of operations out
     >>model        open, validate, close
     >>threads      a pool of threads for callers who ask for one
     >>cpu          the CPU twin of every operation
     >>pixels-avx2  the vector code of >>pixels
     >>plan         the list of operations as one persistent kernel: layout, tiles, order, packed weights
     >>schedule     what a plan costs, on any machine
     >>packed       files of packed weights
     >>engine       what an engine is: capacity, its memory, the CPU backend
     >>cuda         the CUDA backend: the plan on a GPU
     >>encode       engines made, encode, poll, wait
     >>validation   the GPU's operations against their twins on the CPU
     >>cpu-vector   the vector code of >>cpu, once for each instruction set
   =============================================================================================================== */
#ifdef MEGAVIT_IMPLEMENTATION
#ifndef MEGAVIT_IMPLEMENTED
#define MEGAVIT_IMPLEMENTED

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <stdlib.h>
#include <time.h>
#if defined(_WIN32)
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>
#elif defined(__unix__) || defined(__unix) || defined(__APPLE__)
#define MGV__POSIX
#include <sys/select.h>
#include <sys/time.h>
#endif
#ifndef MEGAVIT_NO_STDIO
#if defined(_WIN32)
#define MGV__WINDOWS_FILES
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <wchar.h>
#elif defined(MGV__POSIX)
#define MGV__POSIX_FILES
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#endif
#endif

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
/* The same for positions and sizes in files, which may be larger than memory. */
static int mgv__mul64(uint64_t a, uint64_t b, uint64_t *out) {
    if (b != 0 && a > UINT64_MAX / b) return 0;
    *out = a * b;
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

/* Not zeroed. Zero bytes give a pointer too. NULL: the allocator gave nothing, or the size does not fit. The caller's functions are called
   in parentheses, here and elsewhere: programs define free, read and others of their names as macros. */
static void *mgv__alloc(const mgv_allocator *allocator, size_t bytes) {
    mgv__block block;
    size_t misfit;
    char *result;
    if (!mgv__add(bytes, sizeof block + MGV__ALIGNMENT - 1, &block.bytes)) return NULL;
    block.memory = allocator->alloc ? (allocator->alloc)(allocator->user, block.bytes) : malloc(block.bytes);
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
    if (allocator->free) (allocator->free)(allocator->user, block.memory, block.bytes);
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
/* A string that a file brought along: in quotes, nothing in it that could steer a terminal or fake a line of a log, 80 bytes
   of it at most. */
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
    (logger->log)(logger->user, level, message);
}

static mgv_result mgv__fail_nomem(mgv_error *error, const char *what, uint64_t bytes) {
    return mgv__fail(error, MGV_ERROR_NOMEM, "out of memory: %s needs %u bytes", what, bytes);
}
/* Half an allocator would free with one function what another gave. */
static mgv_result mgv__allocator_check(const mgv_allocator *allocator, mgv_error *error) {
    if ((allocator->alloc == NULL) == (allocator->free == NULL)) return MGV_OK;
    return mgv__fail(error, MGV_ERROR_ARGUMENT, "an mgv_allocator has both alloc and free, or neither");
}

/* As mgv__format, for names that are put together. */
static void mgv__print(char *buffer, size_t capacity, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    mgv__format(buffer, capacity, format, arguments);
    va_end(arguments);
}

/* Every public call that takes an error starts with this, so that *error always tells of the last call. */
static void mgv__clear_error(mgv_error *error) {
    if (error == NULL) return;
    error->code = MGV_OK;
    error->message[0] = 0;
}

/* Copies a struct of the caller, which may be of an older, shorter header, into one of this header; what is missing is zero. */
static mgv_result mgv__take_struct(void *out, size_t out_bytes, const void *in, uint32_t struct_size, const char *name, mgv_error *error) {
    memset(out, 0, out_bytes);
    if (in == NULL) return MGV_OK;
    if (struct_size > out_bytes || (struct_size != 0 && struct_size < sizeof struct_size))
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "%s.struct_size is %u; this version of megavit knows %u bytes", name,
                         (uint64_t)struct_size, (uint64_t)out_bytes);
    memcpy(out, in, struct_size ? struct_size : out_bytes);
    return MGV_OK;
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
    {"MGV_ERROR_MODEL", "config and tensors are not one whole model, or its rows are no numbers"},
    {"MGV_ERROR_UNSUPPORTED", "well formed, but nothing that this version runs"},
    {"MGV_ERROR_CAPACITY", "more pictures, tokens or pixels than the engine was made for, or than fit into a buffer of the caller's"},
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

/* Orders items by merging, in place; scratch holds as many. Equal ones keep their order; what is ordered already costs one
   pass. No input makes it quadratic, and over strings it reads each one's bytes at most as often as there are passes. */
typedef int (*mgv__compare)(const void *context, uint32_t a, uint32_t b);
static void mgv__sort(uint32_t *items, uint32_t *scratch, size_t count, mgv__compare compare, const void *context) {
    size_t width, begin;
    for (width = 1; width < count; width *= 2) {
        for (begin = 0; count - begin > width; begin += 2 * width) {
            size_t middle = begin + width, end = count - middle > width ? middle + width : count;
            size_t left = 0, right = middle, out = begin;
            if (compare(context, items[middle - 1], items[middle]) <= 0) {
                if (end == count) break;
                continue;
            }
            memcpy(scratch, items + begin, width * sizeof items[0]);
            while (left < width && right < end) {
                items[out++] = compare(context, scratch[left], items[right]) <= 0 ? scratch[left++] : items[right++];
            }
            while (left < width) items[out++] = scratch[left++];
            if (end == count) break;
        }
    }
}

/* ---------------------------------------------------------------------------------------------------------------
   >>json: a strict JSON reader

   RFC 8259, and stricter where two readers could understand one text differently: the top level is an object, no
   object has a key twice (compared after escapes are resolved), U+0000 does not occur, numbers are below 10^308, nesting
   ends at 64 levels.

   A text is checked whole before anything is read from it, in one pass and without recursion. No tree is made: values
   are found by walking the checked text again, so a hostile file of n bytes costs at most 1.6 n bytes of scratch
   (8 bytes a key, and keys with their values hardly shorter than 5) and time in proportion to n, keys times their logarithm. */

enum { MGV__JSON_MAX_DEPTH = 64 };

typedef struct mgv__json_scan {
    char *p;           /* the next byte; the text ends with a zero byte at end */
    char *start, *end;
    const char *rule;  /* what the text breaks, at p */
    uint32_t *keys;    /* where the keys of all open objects start, one object's after the other's */
    uint32_t *scratch;
    size_t key_count;
} mgv__json_scan;

static int mgv__json_broken(mgv__json_scan *scan, char *p, const char *rule) {
    scan->p = p;
    scan->rule = rule;
    return 0;
}
static char *mgv__json_skip_space(char *p) {
    while (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t') p++;
    return p;
}
static int mgv__json_hex4(const char *p, uint32_t *code) {
    int i;
    *code = 0;
    for (i = 0; i < 4; i++) {
        char c = p[i];
        uint32_t digit;
        if (c >= '0' && c <= '9') digit = (uint32_t)(c - '0');
        else if (c >= 'a' && c <= 'f') digit = (uint32_t)(c - 'a') + 10;
        else if (c >= 'A' && c <= 'F') digit = (uint32_t)(c - 'A') + 10;
        else return 0;
        *code = *code * 16 + digit;
    }
    return 1;
}
static size_t mgv__json_utf8(char *out, uint32_t code) {
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xC0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xE0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3F));
        out[2] = (char)(0x80 | (code & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3F));
    out[2] = (char)(0x80 | (code >> 6 & 0x3F));
    out[3] = (char)(0x80 | (code & 0x3F));
    return 4;
}
static const char mgv__json_escape_letters[] = "\"\\/bfnrt";
static const char mgv__json_escape_values[] = "\"\\/\b\f\n\r\t";

/* The escape at *in, which moves behind it. */
static int mgv__json_scan_escape(mgv__json_scan *scan, char **in, uint32_t *code) {
    char *p = *in;
    uint32_t low;
    if (p[1] != 'u') {
        const char *letter = p[1] ? strchr(mgv__json_escape_letters, p[1]) : NULL;
        if (letter == NULL) return mgv__json_broken(scan, p, "an escape that JSON does not have");
        *code = (uint32_t)mgv__json_escape_values[letter - mgv__json_escape_letters];
        *in = p + 2;
        return 1;
    }
    if (!mgv__json_hex4(p + 2, code)) return mgv__json_broken(scan, p, "\\u without four hexadecimal digits");
    if (*code == 0) return mgv__json_broken(scan, p, "U+0000 in a string");
    *in = p + 6;
    if (*code < 0xD800 || *code > 0xDFFF) return 1;
    if (*code > 0xDBFF || p[6] != '\\' || p[7] != 'u' || !mgv__json_hex4(p + 8, &low) || low < 0xDC00 || low > 0xDFFF) {
        return mgv__json_broken(scan, p, "half of a surrogate pair");
    }
    *code = 0x10000 + ((*code - 0xD800) << 10) + (low - 0xDC00);
    *in = p + 12;
    return 1;
}
/* The one spelling of a character that was escaped; never longer than any escape of it. */
static size_t mgv__json_spell(char *out, uint32_t code) {
    const char *value = code < 0x80 && code != '/' ? strchr(mgv__json_escape_values, (int)code) : NULL;
    if (value != NULL) {
        out[0] = '\\';
        out[1] = mgv__json_escape_letters[value - mgv__json_escape_values];
        return 2;
    }
    if (code < 0x20) {
        memcpy(out, "\\u00", 4);
        out[4] = (char)('0' + (code >> 4));
        out[5] = "0123456789ABCDEF"[code & 15];
        return 6;
    }
    return mgv__json_utf8(out, code);
}
/* The string at p. It is rewritten with one spelling for each character, the gap behind it is filled with spaces: from
   then on two strings are equal exactly where their bytes are, and the text is still JSON of the same length. */
static int mgv__json_scan_string(mgv__json_scan *scan) {
    char *in = scan->p + 1, *out = in;
    uint32_t code;
    size_t length;
    while (*in != '"') {
        unsigned char byte = (unsigned char)*in;
        if (byte == '\\') {
            if (!mgv__json_scan_escape(scan, &in, &code)) return 0;
            out += mgv__json_spell(out, code);
            continue;
        }
        if (in == scan->end) return mgv__json_broken(scan, in, "the text ends inside a string");
        if (byte < 0x20) return mgv__json_broken(scan, in, "a control character in a string");
        length = byte < 0x80 ? 1 : mgv__utf8_length(in, (size_t)(scan->end - in));
        if (length == 0) return mgv__json_broken(scan, in, "a string that is not UTF-8");
        if (in != out) memmove(out, in, length);
        in += length;
        out += length;
    }
    *out = '"';
    while (out < in) *++out = ' ';
    scan->p = in + 1;
    return 1;
}
static char *mgv__json_skip_digits(char *p) {
    while (*p >= '0' && *p <= '9') p++;
    return p;
}
static int mgv__json_scan_number(mgv__json_scan *scan) {
    char *p = scan->p, *digits, *first;
    int64_t size, exponent = 0; /* the number is below 10^(size + exponent) */
    if (*p == '-') p++;
    digits = p;
    p = mgv__json_skip_digits(p);
    if (p == digits) return mgv__json_broken(scan, scan->p, "a value was expected");
    if (*digits == '0' && p > digits + 1) return mgv__json_broken(scan, scan->p, "a number with a leading zero");
    size = p - digits;
    first = digits;
    if (*p == '.') {
        digits = p + 1;
        p = mgv__json_skip_digits(digits);
        if (p == digits) return mgv__json_broken(scan, scan->p, "a number without digits behind its point");
        if (*first == '0') {
            for (first = digits; *first == '0'; first++) continue;
            size = digits - first;
        }
    }
    if (*p == 'e' || *p == 'E') {
        int down = p[1] == '-';
        digits = p + (p[1] == '+' || p[1] == '-' ? 2 : 1);
        for (p = digits; *p >= '0' && *p <= '9'; p++) {
            if (exponent < (int64_t)1 << 40) exponent = exponent * 10 + (*p - '0');
        }
        if (p == digits) return mgv__json_broken(scan, scan->p, "a number without digits in its exponent");
        if (down) exponent = -exponent;
    }
    if (*first >= '1' && *first <= '9' && size + exponent > 308) return mgv__json_broken(scan, scan->p, "a number of 10^308 or more");
    scan->p = p;
    return 1;
}
static int mgv__json_scan_scalar(mgv__json_scan *scan) {
    static const char *const words[] = {"true", "false", "null"};
    size_t i;
    if (*scan->p == '"') return mgv__json_scan_string(scan);
    for (i = 0; i < 3; i++) {
        size_t length = strlen(words[i]);
        if (strncmp(scan->p, words[i], length) != 0) continue;
        scan->p += length;
        return 1;
    }
    return mgv__json_scan_number(scan);
}
/* A key and its colon, up to the value. */
static int mgv__json_scan_key(mgv__json_scan *scan) {
    if (*scan->p != '"') return mgv__json_broken(scan, scan->p, "a key in quotes was expected");
    scan->keys[scan->key_count++] = (uint32_t)(scan->p - scan->start);
    if (!mgv__json_scan_string(scan)) return 0;
    scan->p = mgv__json_skip_space(scan->p);
    if (*scan->p != ':') return mgv__json_broken(scan, scan->p, "a colon was expected behind a key");
    scan->p = mgv__json_skip_space(scan->p + 1);
    return 1;
}
/* Orders two checked strings by their bytes. */
static int mgv__json_compare_strings(const char *a, const char *b) {
    for (a++, b++; *a == *b; a++, b++) {
        if (*a == '"') return 0;
        if (*a == '\\' && *++a != *++b) break;
    }
    return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
}
static int mgv__json_compare_keys(const void *text, uint32_t a, uint32_t b) {
    return mgv__json_compare_strings((const char *)text + a, (const char *)text + b);
}
/* Takes the keys from first on, those of one object, off the stack. */
static int mgv__json_scan_duplicates(mgv__json_scan *scan, size_t first) {
    uint32_t *keys = scan->keys + first;
    size_t count = scan->key_count - first, i;
    mgv__sort(keys, scan->scratch, count, mgv__json_compare_keys, scan->start);
    for (i = 1; i < count; i++) {
        if (mgv__json_compare_keys(scan->start, keys[i - 1], keys[i]) == 0) {
            return mgv__json_broken(scan, scan->start + keys[i], "a key that its object already has");
        }
    }
    scan->key_count = first;
    return 1;
}
static int mgv__json_scan_text(mgv__json_scan *scan) {
    char close[MGV__JSON_MAX_DEPTH];
    size_t first_key[MGV__JSON_MAX_DEPTH], depth = 0;
    scan->p = mgv__json_skip_space(scan->p);
    if (*scan->p != '{') return mgv__json_broken(scan, scan->p, "the top level is not an object");
    do { /* p is at a value */
        if (*scan->p == '{' || *scan->p == '[') {
            if (depth == MGV__JSON_MAX_DEPTH) return mgv__json_broken(scan, scan->p, "nesting deeper than 64 levels");
            close[depth] = *scan->p == '{' ? '}' : ']';
            first_key[depth++] = scan->key_count;
            scan->p = mgv__json_skip_space(scan->p + 1);
            if (*scan->p != close[depth - 1]) {
                if (close[depth - 1] == '}' && !mgv__json_scan_key(scan)) return 0;
                continue;
            }
        } else if (!mgv__json_scan_scalar(scan)) {
            return 0;
        }
        while (depth > 0) { /* p is behind a value, or behind the bracket that opens an empty container */
            scan->p = mgv__json_skip_space(scan->p);
            if (*scan->p == ',') {
                scan->p = mgv__json_skip_space(scan->p + 1);
                if (close[depth - 1] == '}' && !mgv__json_scan_key(scan)) return 0;
                break;
            }
            if (*scan->p != close[depth - 1]) {
                return mgv__json_broken(scan, scan->p, scan->p == scan->end ? "the text ends inside an object or array"
                                                                            : "a comma or a closing bracket was expected");
            }
            scan->p++;
            depth--;
            if (close[depth] == '}' && !mgv__json_scan_duplicates(scan, first_key[depth])) return 0;
        }
    } while (depth > 0);
    scan->p = mgv__json_skip_space(scan->p);
    if (scan->p != scan->end) return mgv__json_broken(scan, scan->p, "something follows the closing brace");
    return 1;
}
/* Checks text[0 .. bytes), which must be followed by a zero byte, and respells its strings. file: for the message. */
static mgv_result mgv__json_check(char *text, size_t bytes, const char *file, const mgv_allocator *allocator, mgv_error *error) {
    mgv__json_scan scan;
    size_t keys = 0, key_bytes;
    char *colon;
    int good;
    if (bytes >= UINT32_MAX) return mgv__fail(error, MGV_ERROR_FORMAT, "%s: JSON of 4 GiB or more", file);
    for (colon = text; (colon = (char *)memchr(colon, ':', bytes - (size_t)(colon - text))) != NULL; colon++) keys++;
    /* Colons inside strings do not count for more than bytes can hold: a key, its value and a comma have 5 at least, or 4 where the value
       opens another object, which it can do 64 times. The 1 is for a key whose colon is missing. */
    if (keys > bytes / 5 + MGV__JSON_MAX_DEPTH) keys = bytes / 5 + MGV__JSON_MAX_DEPTH;
    keys++;
    if (!mgv__mul(keys, 2 * sizeof(uint32_t), &key_bytes)) return mgv__fail_nomem(error, "reading JSON", bytes);
    scan.p = scan.start = text;
    scan.end = text + bytes;
    scan.rule = NULL;
    scan.key_count = 0;
    scan.keys = (uint32_t *)mgv__alloc(allocator, key_bytes);
    if (scan.keys == NULL) return mgv__fail_nomem(error, "reading JSON", key_bytes);
    scan.scratch = scan.keys + keys;
    good = mgv__json_scan_text(&scan);
    mgv__free(allocator, scan.keys);
    if (good) return MGV_OK;
    return mgv__fail(error, MGV_ERROR_FORMAT, "%s: JSON byte %u: %s", file, (uint64_t)(scan.p - text), scan.rule);
}

/* From here on: reading a checked text. A value is the pointer to its first byte, which tells its kind: { [ " t f n or a number. */

static char *mgv__json_skip_string(char *p) {
    for (p++; *p != '"'; p++) {
        if (*p == '\\') p++;
    }
    return p + 1;
}
static char *mgv__json_skip_value(char *p) {
    size_t depth = 0;
    if (*p != '"' && *p != '{' && *p != '[') return p + strcspn(p, ",}] \t\r\n");
    do {
        switch (*p) {
        case '"': p = mgv__json_skip_string(p); continue;
        case '{':
        case '[': depth++; break;
        case '}':
        case ']': depth--; break;
        default: break;
        }
        p++;
    } while (depth > 0);
    return p;
}
/* Walks an object or array: at = container + 1; while (mgv__json_next(&at, &key, &value)). key: NULL for an array.
   What was given out may be changed in place before the next call. */
static int mgv__json_next(char **at, char **key, char **value) {
    char *p = mgv__json_skip_space(*at);
    if (*p == ',') p = mgv__json_skip_space(p + 1);
    if (*p == '}' || *p == ']') return 0;
    if (key != NULL) {
        *key = p;
        p = mgv__json_skip_space(mgv__json_skip_string(p)) + 1;
        p = mgv__json_skip_space(p);
    }
    *value = p;
    *at = mgv__json_skip_value(p);
    return 1;
}
/* Is this value the string `plain`, which has no character that JSON must escape? */
static int mgv__json_is(const char *value, const char *plain) {
    if (*value++ != '"') return 0;
    for (; *plain != 0; value++, plain++) {
        if (*value != *plain) return 0;
    }
    return *value == '"';
}
/* The string as a C string, written to out, which may be value itself and needs no more bytes than value has with its quotes. */
static const char *mgv__json_string(const char *value, char *out) {
    const char *result = out, *p = value + 1;
    uint32_t code;
    while (*p != '"') {
        if (*p != '\\') {
            *out++ = *p++;
        } else if (p[1] == 'u') {
            mgv__json_hex4(p + 2, &code);
            *out++ = (char)code; /* after respelling only control characters */
            p += 6;
        } else {
            *out++ = mgv__json_escape_values[strchr(mgv__json_escape_letters, p[1]) - mgv__json_escape_letters];
            p += 2;
        }
    }
    *out = 0;
    return result;
}
/* A plain integer from 0 to 2^64 - 1: no sign, point or exponent. Returns 0 for everything else. */
static int mgv__json_u64(const char *value, uint64_t *out) {
    uint64_t result = 0;
    const char *p = value;
    for (; *p >= '0' && *p <= '9'; p++) {
        uint64_t digit = (uint64_t)(*p - '0');
        if (result > (UINT64_MAX - digit) / 10) return 0;
        result = result * 10 + digit;
    }
    if (p == value || *p == '.' || *p == 'e' || *p == 'E') return 0;
    *out = result;
    return 1;
}

/* Decimal to double, correctly rounded (half to even) for any number of digits and on any machine, without strtod, which
   follows the locale, and without floating-point arithmetic, which x87 rounds twice. The number is made as a natural
   number of 32-bit limbs, times a power of two; 769 digits and one for "more follow" decide every case (the longest
   halfway point between two doubles has 767 digits). */
enum {
    MGV__DECIMAL_DIGITS = 769,
    MGV__DECIMAL_LIMBS = 224 /* 770 digits (80 limbs), or those over 10^1100 with 64 bits to spare (198) */
};
typedef struct mgv__decimal {
    uint32_t limbs[MGV__DECIMAL_LIMBS]; /* the lowest first */
    uint32_t count;                     /* the highest is not 0 */
} mgv__decimal;

static void mgv__decimal_multiply_add(mgv__decimal *number, uint32_t factor, uint32_t term) {
    uint64_t carry = term;
    uint32_t i;
    for (i = 0; i < number->count; i++) {
        carry += (uint64_t)number->limbs[i] * factor;
        number->limbs[i] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry != 0) number->limbs[number->count++] = (uint32_t)carry;
}
/* Returns the remainder. */
static uint32_t mgv__decimal_divide(mgv__decimal *number, uint32_t divisor) {
    uint64_t rest = 0;
    uint32_t i;
    for (i = number->count; i-- > 0;) {
        rest = rest << 32 | number->limbs[i];
        number->limbs[i] = (uint32_t)(rest / divisor);
        rest %= divisor;
    }
    while (number->limbs[number->count - 1] == 0) number->count--; /* it never becomes 0: 96 bits are to spare */
    return (uint32_t)rest;
}
/* The double next to number * 2^exponent; more: a little above that. Returns 0 where it is beyond the largest double. */
static int mgv__decimal_round(const mgv__decimal *number, int32_t exponent, int more, double *out) {
    uint64_t top = 0, bits, rest, half;
    int32_t highest = (int32_t)number->count * 32 - 1, first, drop, bit;
    while (!(number->limbs[highest / 32] >> (highest % 32) & 1)) highest--;
    first = highest - 63; /* bits first to highest go to top; below bit 0 there is nothing */
    for (bit = highest; bit >= first; bit--) top = top << 1 | (bit < 0 ? 0 : number->limbs[bit / 32] >> (bit % 32) & 1);
    for (bit = first - 1; bit >= 0 && !more; bit--) more = (int)(number->limbs[bit / 32] >> (bit % 32) & 1);
    exponent += highest; /* the value is at least 2^exponent and below twice that */
    drop = exponent >= -1022 ? 11 : 11 - 1022 - exponent;
    if (drop > 64) {
        *out = 0;
        return 1;
    }
    bits = drop == 64 ? 0 : top >> drop;
    rest = drop == 64 ? top : top & (((uint64_t)1 << drop) - 1);
    half = (uint64_t)1 << (drop - 1);
    if (rest > half || (rest == half && (more || (bits & 1)))) bits++;
    if (exponent > 1023) return 0;
    if (exponent >= -1022) bits += (uint64_t)(exponent + 1022) << 52; /* the leading one of bits adds the last one to the exponent */
    if (bits >= (uint64_t)0x7FF << 52) return 0;
    memcpy(out, &bits, sizeof bits);
    return 1;
}
/* Returns 0 for what is no number, and for numbers beyond the largest double. */
static int mgv__json_double(const char *value, double *out) {
    mgv__decimal number;
    const char *p = value;
    int64_t exponent = 0, written = 0, digits = 0; /* the value is the kept digits times 10^exponent */
    int point = 0, more = 0, negative = *p == '-', shift_limbs = 0;
    if (negative) p++;
    if (*p < '0' || *p > '9') return 0;
    number.count = 0;
    for (; (*p >= '0' && *p <= '9') || *p == '.'; p++) {
        if (*p == '.') {
            point = 1;
            continue;
        }
        exponent -= point;
        if (digits == 0 && *p == '0') continue;
        if (digits < MGV__DECIMAL_DIGITS) {
            mgv__decimal_multiply_add(&number, 10, (uint32_t)(*p - '0'));
            digits++;
            continue;
        }
        exponent++;
        more |= *p != '0';
    }
    if (*p == 'e' || *p == 'E') {
        int down = p[1] == '-';
        for (p += p[1] == '-' || p[1] == '+' ? 2 : 1; *p >= '0' && *p <= '9'; p++) {
            if (written < (int64_t)1 << 40) written = written * 10 + (*p - '0');
        }
        exponent += down ? -written : written;
    }
    *out = 0;
    if (digits > 0 && digits + exponent > 310) return 0;
    if (digits > 0 && digits + exponent >= -330) {
        for (; exponent >= 9; exponent -= 9) mgv__decimal_multiply_add(&number, 1000000000, 0);
        for (; exponent > 0; exponent--) mgv__decimal_multiply_add(&number, 10, 0);
        if (exponent < 0) { /* 10^n < 2^(3.322 n) */
            shift_limbs = (int)(-exponent * 3322 / 32000) + 4;
            memmove(number.limbs + shift_limbs, number.limbs, number.count * sizeof number.limbs[0]);
            memset(number.limbs, 0, (size_t)shift_limbs * sizeof number.limbs[0]);
            number.count += (uint32_t)shift_limbs;
        }
        for (; exponent <= -9; exponent += 9) more |= mgv__decimal_divide(&number, 1000000000) != 0;
        for (; exponent < 0; exponent++) more |= mgv__decimal_divide(&number, 10) != 0;
        if (!mgv__decimal_round(&number, -32 * shift_limbs, more, out)) return 0;
    }
    if (negative) *out = -*out;
    return 1;
}

/* ---------------------------------------------------------------------------------------------------------------
   >>files: where files come from; safetensors; a checkpoint of one or many shards */

/* The default mgv_file_io; user is the mgv_allocator. Only regular files are opened: a directory cannot be read, and a FIFO
   or a terminal would wait for ever. A file whose size changes after it was opened fails to read. MEGAVIT_NO_STDIO, or a
   system that is neither POSIX nor Windows, leaves this out: then models come from memory or from the caller's callbacks. */
#if defined(MGV__WINDOWS_FILES)
typedef struct mgv__disk_file {
    FILE *stream;
    int64_t size;
} mgv__disk_file;

enum { MGV__MAX_WIDE_PATH = 4096 };
/* UTF-8 to UTF-16. Returns 0 where the path is not UTF-8 or too long. */
static int mgv__widen(const char *path, wchar_t *wide) {
    size_t left = strlen(path), length, count = 0;
    for (; left > 0; path += length, left -= length) {
        const unsigned char *p = (const unsigned char *)path;
        uint32_t code;
        length = mgv__utf8_length(path, left);
        if (length == 0 || count + 3 > MGV__MAX_WIDE_PATH) return 0;
        if (length == 1) code = p[0];
        else if (length == 2) code = (uint32_t)(p[0] & 0x1F) << 6 | (p[1] & 0x3F);
        else if (length == 3) code = (uint32_t)(p[0] & 0x0F) << 12 | (uint32_t)(p[1] & 0x3F) << 6 | (p[2] & 0x3F);
        else code = (uint32_t)(p[0] & 0x07) << 18 | (uint32_t)(p[1] & 0x3F) << 12 | (uint32_t)(p[2] & 0x3F) << 6 | (p[3] & 0x3F);
        if (code >= 0x10000) {
            wide[count++] = (wchar_t)(0xD7C0 + (code >> 10));
            code = 0xDC00 | (code & 0x3FF);
        }
        wide[count++] = (wchar_t)code;
    }
    wide[count] = 0;
    return 1;
}
static int32_t mgv__disk_open(void *user, const char *path, void **file, uint64_t *size) {
    wchar_t wide[MGV__MAX_WIDE_PATH];
    struct _stat64 status;
    mgv__disk_file *result;
    if (!mgv__widen(path, wide)) return -EINVAL;
    if (_wstat64(wide, &status) != 0) return errno == ENOENT ? MGV_FILE_ABSENT : -errno;
    if ((status.st_mode & _S_IFMT) != _S_IFREG) return MGV_FILE_NOT_REGULAR;
    result = (mgv__disk_file *)mgv__alloc((const mgv_allocator *)user, sizeof *result);
    if (result == NULL) return MGV_FILE_NOMEM;
    if (_wfopen_s(&result->stream, wide, L"rb") != 0) {
        mgv__free((const mgv_allocator *)user, result);
        return -EACCES;
    }
    result->size = status.st_size;
    *file = result;
    *size = (uint64_t)status.st_size;
    return 0;
}
static int32_t mgv__disk_read(void *user, void *file, uint64_t offset, void *buffer, size_t bytes) {
    mgv__disk_file *disk = (mgv__disk_file *)file;
    struct _stat64 status;
    (void)user;
    if (_fseeki64(disk->stream, (int64_t)offset, SEEK_SET) != 0) return -errno;
    if (fread(buffer, 1, bytes, disk->stream) != bytes) return feof(disk->stream) ? MGV_FILE_CHANGED : -EIO;
    if (_fstat64(_fileno(disk->stream), &status) != 0) return -errno;
    return status.st_size == disk->size ? 0 : MGV_FILE_CHANGED;
}
static void mgv__disk_close(void *user, void *file) {
    (void)fclose(((mgv__disk_file *)file)->stream);
    mgv__free((const mgv_allocator *)user, file);
}
#elif defined(MGV__POSIX_FILES)
typedef struct mgv__disk_file {
    int descriptor;
    off_t size;
} mgv__disk_file;

static int32_t mgv__disk_open(void *user, const char *path, void **file, uint64_t *size) {
    struct stat status;
    mgv__disk_file *result;
    int flags = O_RDONLY | O_NONBLOCK; /* so that opening a FIFO returns */
    int descriptor, code = 0;
#ifdef O_CLOEXEC
    flags |= O_CLOEXEC;
#endif
    do descriptor = open(path, flags);
    while (descriptor < 0 && errno == EINTR);
    if (descriptor < 0) return errno == ENOENT || errno == ENOTDIR ? MGV_FILE_ABSENT : -errno;
    result = (mgv__disk_file *)mgv__alloc((const mgv_allocator *)user, sizeof *result);
    if (result == NULL) code = MGV_FILE_NOMEM;
    else if (fstat(descriptor, &status) != 0) code = -errno;
    else if (!S_ISREG(status.st_mode)) code = MGV_FILE_NOT_REGULAR;
    if (code != 0) {
        mgv__free((const mgv_allocator *)user, result);
        (void)close(descriptor);
        return code;
    }
    result->descriptor = descriptor;
    result->size = status.st_size;
    *file = result;
    *size = (uint64_t)status.st_size;
    return 0;
}
static int32_t mgv__disk_read(void *user, void *file, uint64_t offset, void *buffer, size_t bytes) {
    const mgv__disk_file *disk = (const mgv__disk_file *)file;
    const size_t most = (size_t)1 << 30; /* some systems refuse to read 2 GiB at once */
    struct stat status;
    char *out = (char *)buffer;
    (void)user;
    if (lseek(disk->descriptor, (off_t)offset, SEEK_SET) < 0) return -errno;
    while (bytes > 0) {
        ssize_t got = read(disk->descriptor, out, bytes < most ? bytes : most);
        if (got == 0) return MGV_FILE_CHANGED;
        if (got < 0 && errno != EINTR) return -errno;
        if (got < 0) continue;
        out += got;
        bytes -= (size_t)got;
    }
    if (fstat(disk->descriptor, &status) != 0) return -errno;
    return status.st_size == disk->size ? 0 : MGV_FILE_CHANGED;
}
static void mgv__disk_close(void *user, void *file) {
    (void)close(((mgv__disk_file *)file)->descriptor);
    mgv__free((const mgv_allocator *)user, file);
}
#endif

enum { MGV__REVISION_BYTES = 64, MGV__SNAPSHOT_BYTES = MGV__REVISION_BYTES + 16 };

/* Where the files of one model come from: a directory (or whatever the callbacks make of its path), or memory. It must
   not be moved while it is in use, and what the description points to must stay. */
typedef struct mgv__source {
    mgv_file_io io;
    mgv_allocator allocator;
    mgv_logger logger;
    const char *path;                    /* NULL: memory_files, or names go to the callbacks as they are */
    const mgv_memory_file *memory_files; /* NULL: io is used */
    uint32_t memory_file_count;
    uint64_t max_header_bytes;
    char snapshot[MGV__SNAPSHOT_BYTES];  /* what stands between path and names: "", or "snapshots/<revision>/" of a Hugging Face cache */
} mgv__source;

/* Files are read with the caller's functions, or with ours where there are none. */
static mgv_result mgv__source_use_io(mgv__source *source, mgv_error *error) {
    mgv_file_io *io = &source->io;
    if (io->open != NULL && io->read != NULL && io->close != NULL) return MGV_OK;
    if (io->open != NULL || io->read != NULL || io->close != NULL) {
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "an mgv_file_io has open, read and close, or none of them");
    }
#if defined(MGV__WINDOWS_FILES) || defined(MGV__POSIX_FILES)
    io->user = &source->allocator;
    io->open = mgv__disk_open;
    io->read = mgv__disk_read;
    io->close = mgv__disk_close;
    return MGV_OK;
#else
    return mgv__fail(error, MGV_ERROR_ARGUMENT, "this build opens no files (MEGAVIT_NO_STDIO): give memory_files or an mgv_file_io");
#endif
}
static mgv_result mgv__source_open(mgv__source *source, const mgv_model_desc *desc, mgv_error *error) {
    mgv_model_desc full;
    mgv_result result;
    uint32_t i;
    memset(source, 0, sizeof *source);
    if (desc == NULL) return mgv__fail(error, MGV_ERROR_ARGUMENT, "the mgv_model_desc is NULL");
    result = mgv__take_struct(&full, sizeof full, desc, desc->struct_size, "mgv_model_desc", error);
    if (result != MGV_OK) return result;
    source->io = full.io;
    source->allocator = full.allocator;
    source->logger = full.logger;
    source->path = full.path;
    source->memory_files = full.memory_files;
    source->memory_file_count = full.memory_file_count;
    source->max_header_bytes = full.max_header_bytes ? full.max_header_bytes : 100000000;
    /* Positions in JSON are kept in 32 bits. */
    if (source->max_header_bytes > UINT32_MAX - 1) source->max_header_bytes = UINT32_MAX - 1;
    result = mgv__allocator_check(&source->allocator, error);
    if (result != MGV_OK) return result;
    if (source->memory_files == NULL) {
        if (source->memory_file_count != 0) return mgv__fail(error, MGV_ERROR_ARGUMENT, "memory_file_count without memory_files");
        if (source->path == NULL && source->io.open == NULL) {
            return mgv__fail(error, MGV_ERROR_ARGUMENT, "a model needs a path, memory_files or an mgv_file_io");
        }
        return mgv__source_use_io(source, error);
    }
    if (source->path != NULL) return mgv__fail(error, MGV_ERROR_ARGUMENT, "a model comes from a path or from memory_files, not from both");
    for (i = 0; i < source->memory_file_count; i++) {
        const mgv_memory_file *file = &source->memory_files[i];
        if (file->name != NULL && (file->data != NULL || file->bytes == 0)) continue;
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "memory file %u has no name or no data", (uint64_t)i);
    }
    return MGV_OK;
}

/* For messages. */
static const char *mgv__source_name(const mgv__source *source) {
    return source->memory_files ? "the memory files" : source->path ? source->path : "the files of the callbacks";
}

typedef struct mgv__file {
    mgv__source *source; /* NULL: not open */
    const char *name;
    void *handle;        /* of source->io */
    const char *memory;  /* of a memory file */
    uint64_t size;
} mgv__file;

/* source->path, a slash, the snapshot and name; to be freed. */
static char *mgv__source_join(mgv__source *source, const char *name) {
    size_t path_bytes = source->path ? strlen(source->path) : 0, name_bytes = strlen(name), bytes;
    size_t snapshot_bytes = strlen(source->snapshot);
    int slash = path_bytes > 0 && source->path[path_bytes - 1] != '/';
    char *result;
    if (!mgv__add(path_bytes, name_bytes, &bytes) || !mgv__add(bytes, snapshot_bytes + 2, &bytes)) return NULL;
    result = (char *)mgv__alloc(&source->allocator, bytes);
    if (result == NULL) return NULL;
    if (path_bytes > 0) memcpy(result, source->path, path_bytes);
    if (slash) result[path_bytes++] = '/';
    memcpy(result + path_bytes, source->snapshot, snapshot_bytes);
    memcpy(result + path_bytes + snapshot_bytes, name, name_bytes + 1);
    return result;
}
/* What the code of a failed callback means; the code itself goes into the message too. */
static const char *mgv__file_io_text(int32_t code) {
#ifdef MGV__POSIX_FILES
    if (code == -EOVERFLOW && sizeof(off_t) < 8)
        return "larger than this 32-bit build can open; define _FILE_OFFSET_BITS as 64 before the first include";
#endif
    switch (code) {
    case MGV_FILE_ABSENT: return "there is no such file";
    case MGV_FILE_NOT_REGULAR: return "not a regular file";
    case MGV_FILE_CHANGED: return "its size changed while it was read";
    default: return "the system refuses it";
    }
}
/* absent: set to 1, with MGV_OK, where there is no such file; NULL makes that an error. name must outlive the file. */
static mgv_result mgv__file_open(mgv__file *file, mgv__source *source, const char *name, int *absent, mgv_error *error) {
    const mgv_memory_file *memory = source->memory_files, *memory_end = memory ? memory + source->memory_file_count : NULL;
    int32_t code = MGV_FILE_ABSENT;
    char *path;
    memset(file, 0, sizeof *file);
    file->name = name;
    if (absent != NULL) *absent = 0;
    if (memory != NULL) {
        while (memory < memory_end && strcmp(memory->name, name) != 0) memory++;
        if (memory < memory_end) {
            file->memory = (const char *)memory->data;
            file->size = memory->bytes;
            code = 0;
        }
    } else {
        path = mgv__source_join(source, name);
        if (path == NULL) return mgv__fail_nomem(error, "a file name", strlen(name));
        code = (source->io.open)(source->io.user, path, &file->handle, &file->size);
        mgv__free(&source->allocator, path);
    }
    if (code == MGV_FILE_ABSENT && absent != NULL) {
        *absent = 1;
        return MGV_OK;
    }
    if (code == MGV_FILE_NOMEM) return mgv__fail(error, MGV_ERROR_NOMEM, "%s: out of memory while it was opened", name);
    if (code != 0) {
        return mgv__fail(error, MGV_ERROR_IO, "%s: cannot be opened: %s (code %i)", name, mgv__file_io_text(code), (int64_t)code);
    }
    file->source = source;
    return MGV_OK;
}
static mgv_result mgv__file_read(mgv__file *file, uint64_t offset, void *out, size_t bytes, mgv_error *error) {
    const mgv_file_io *io = &file->source->io;
    int32_t code;
    if (bytes > file->size || offset > file->size - bytes) {
        return mgv__fail(error, MGV_ERROR_IO, "%s: bytes %u to %u are beyond its end at %u", file->name, offset, offset + bytes,
                         file->size);
    }
    if (bytes == 0) return MGV_OK;
    if (file->source->memory_files != NULL) {
        memcpy(out, file->memory + offset, bytes);
        return MGV_OK;
    }
    code = (io->read)(io->user, file->handle, offset, out, bytes);
    if (code == 0) return MGV_OK;
    if (code == MGV_FILE_NOMEM) return mgv__fail(error, MGV_ERROR_NOMEM, "%s: out of memory while it was read", file->name);
    return mgv__fail(error, MGV_ERROR_IO, "%s: %u bytes at %u cannot be read: %s (code %i)", file->name, (uint64_t)bytes, offset,
                     mgv__file_io_text(code), (int64_t)code);
}
/* A file that is not open, all zero, is allowed. */
static void mgv__file_close(mgv__file *file) {
    if (file->source != NULL && file->source->memory_files == NULL) (file->source->io.close)(file->source->io.user, file->handle);
    memset(file, 0, sizeof *file);
}

/* A whole JSON file, checked (see >>json), in memory of the source's allocator, followed by a zero byte. absent: as in
   mgv__file_open; *text is then NULL. */
static mgv_result mgv__source_read_json(mgv__source *source, const char *name, char **text, size_t *bytes, int *absent, mgv_error *error) {
    mgv__file file;
    mgv_result result = mgv__file_open(&file, source, name, absent, error);
    *text = NULL;
    *bytes = 0;
    if (result != MGV_OK || file.source == NULL) return result;
    if (file.size > source->max_header_bytes) {
        result = mgv__fail(error, MGV_ERROR_FORMAT, "%s: %u bytes are more than the %u allowed", name, file.size, source->max_header_bytes);
    } else {
        *bytes = (size_t)file.size;
        *text = (char *)mgv__alloc(&source->allocator, *bytes + 1);
        if (*text == NULL) result = mgv__fail_nomem(error, name, file.size);
    }
    if (result == MGV_OK) result = mgv__file_read(&file, 0, *text, *bytes, error);
    mgv__file_close(&file);
    if (result == MGV_OK) {
        (*text)[*bytes] = 0;
        result = mgv__json_check(*text, *bytes, name, &source->allocator, error);
    }
    if (result == MGV_OK) return MGV_OK;
    mgv__free(&source->allocator, *text);
    *text = NULL;
    *bytes = 0;
    return result;
}

static mgv_result mgv__source_has(mgv__source *source, const char *name, int *present, mgv_error *error) {
    mgv__file file;
    int absent;
    mgv_result result = mgv__file_open(&file, source, name, &absent, error);
    *present = !absent;
    mgv__file_close(&file);
    return result;
}
/* The root of a model in Hugging Face's cache, models--owner--name, keeps its files in snapshots/<revision>, and refs/main holds the
   revision that a download without further words gave. *found: names are of that snapshot from now on. */
static mgv_result mgv__source_enter_snapshot(mgv__source *source, int *found, mgv_error *error) {
    char revision[MGV__REVISION_BYTES + 1];
    mgv__file file;
    size_t bytes, length;
    mgv_result result = mgv__file_open(&file, source, "refs/main", found, error);
    *found = 0;
    if (result != MGV_OK || file.source == NULL) return result;
    bytes = file.size < sizeof revision ? (size_t)file.size : sizeof revision - 1;
    result = mgv__file_read(&file, 0, revision, bytes, error);
    mgv__file_close(&file);
    if (result != MGV_OK) return result;
    revision[bytes] = 0;
    length = strspn(revision, "0123456789abcdef");
    if (length == 0 || (revision[length] != 0 && revision[length] != '\n' && revision[length] != '\r'))
        return mgv__fail(error, MGV_ERROR_FORMAT, "refs/main: %q is no revision", revision);
    revision[length] = 0;
    mgv__print(source->snapshot, sizeof source->snapshot, "snapshots/%s/", revision);
    *found = 1;
    return MGV_OK;
}
/* Puts the directory before the sentence, unless that begins with it. Of a long path the end is shown. */
static void mgv__source_name_error(const mgv__source *source, mgv_error *error) {
    const char *path = source->path;
    size_t length = path ? strlen(path) : 0, most = sizeof error->message / 2;
    char sentence[sizeof ((mgv_error *)0)->message];
    if (error == NULL || length == 0 || (strncmp(error->message, path, length) == 0 && error->message[length] == ':')) return;
    memcpy(sentence, error->message, sizeof sentence);
    if (length > most) path += length - most;
    while (path != source->path && ((unsigned char)*path & 0xC0) == 0x80) path++; /* whole characters */
    mgv__print(error->message, sizeof error->message, path == source->path ? "%s: %s" : "...%s: %s", path, sentence);
}

/* Safetensors: a u64 length N, N bytes of JSON, data. (huggingface/safetensors, README.md "Format", and
   safetensors/src/tensor.rs, Metadata::validate.) Stricter than the Rust reader in this:
     - no key twice in any object, also in __metadata__ and in fields that are skipped;
     - no U+0000 in any string, no number of 10^308 or more, 64 levels of nesting at most;
     - rank 8 at most;
     - the product of the dimensions that are not 0 must fit, also where another dimension is 0;
     - a tensor is an object, a dtype a string: serde's other spellings are refused. */

typedef struct mgv__tensor {
    const char *name;
    uint32_t file;                /* shard number */
    mgv_dtype dtype;
    uint32_t rank;
    uint64_t shape[MGV_MAX_RANK];
    uint64_t offset;              /* of the first byte in its file */
    uint64_t bytes;
    int channels_last;            /* the file has the second dimension at the end, as MLX saves convolutions */
    const void *data;             /* little-endian, row-major, 64-byte aligned; NULL until read */
} mgv__tensor;

typedef struct mgv__shard {
    const char *name;
    uint64_t size;         /* of the file; 0: not looked at yet */
    uint64_t header_bytes; /* N */
    int absent;            /* an index names it, and there is no such file: an error only where one of its tensors is needed */
} mgv__shard;

typedef struct mgv__metadata {
    const char *key;
    const char *value;
} mgv__metadata;

/* All tensors of a model's safetensors files, whose headers have been validated whole. Only headers are in memory. At most one file is open
   at a time, so any number of shards can be read. */
typedef struct mgv__checkpoint {
    mgv__source *source;
    mgv__shard *shards;
    uint32_t shard_count;
    mgv__tensor *tensors;    /* in the order of shards and headers */
    uint32_t tensor_count;
    uint32_t *by_name;       /* tensor numbers, ordered by name; of two of one name, that of the shard that the index says */
    uint32_t name_count;
    int indexed;             /* the shards are those of an index */
    const char *lost;        /* the first shard of the index that is not there, or NULL */
    mgv__metadata *metadata; /* of all shards */
    uint32_t metadata_count;
    char *shard_names;
    char *headers;           /* the texts of all headers; names and metadata point into it */
    mgv__file file;          /* the open shard */
    uint32_t open_shard;
} mgv__checkpoint;

static void mgv__checkpoint_close(mgv__checkpoint *checkpoint) {
    const mgv_allocator *allocator;
    if (checkpoint->source == NULL) return;
    allocator = &checkpoint->source->allocator;
    mgv__file_close(&checkpoint->file);
    mgv__free(allocator, checkpoint->shards);
    mgv__free(allocator, checkpoint->tensors);
    mgv__free(allocator, checkpoint->by_name);
    mgv__free(allocator, checkpoint->metadata);
    mgv__free(allocator, checkpoint->shard_names);
    mgv__free(allocator, checkpoint->headers);
    memset(checkpoint, 0, sizeof *checkpoint);
}

static uint64_t mgv__read_u64(const unsigned char *bytes) {
    uint64_t result = 0;
    int i;
    for (i = 7; i >= 0; i--) result = result << 8 | bytes[i];
    return result;
}
/* What people find in place of a safetensors file, by its first 8 bytes; NULL: nothing that is known. */
static const char *mgv__other_format(const unsigned char *head) {
    static const struct {
        const char *start, *text;
    } rows[] = {
        {"version ", "a Git LFS pointer and not the file itself: run git lfs pull, or download the file"},
        {"<!", "a web page and not the file itself: download it again"},
        {"<html", "a web page and not the file itself: download it again"},
        {"PK\003\004", "a zip archive, as PyTorch saves weights; only safetensors files are read"},
        {"GGUF", "a GGUF file; only safetensors files are read"},
    };
    size_t i;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (memcmp(head, rows[i].start, strlen(rows[i].start)) == 0) return rows[i].text;
    return NULL;
}
/* The length of the header, which must lie within the file. */
static mgv_result mgv__shard_header_bytes(mgv__file *file, uint64_t most, uint64_t *header_bytes, mgv_error *error) {
    unsigned char length[8];
    const char *other;
    mgv_result result;
    if (file->size < 8) {
        return mgv__fail(error, MGV_ERROR_FORMAT, "%s: %u bytes are no safetensors file: the header length alone has 8", file->name,
                         file->size);
    }
    result = mgv__file_read(file, 0, length, 8, error);
    if (result != MGV_OK) return result;
    *header_bytes = mgv__read_u64(length);
    if (*header_bytes <= most && *header_bytes <= file->size - 8) return MGV_OK;
    other = mgv__other_format(length);
    if (other != NULL) return mgv__fail(error, MGV_ERROR_FORMAT, "%s: its %u bytes are %s", file->name, file->size, other);
    if (*header_bytes > most) {
        return mgv__fail(error, MGV_ERROR_FORMAT, "%s: a header of %u bytes, more than the %u allowed", file->name, *header_bytes, most);
    }
    return mgv__fail(error, MGV_ERROR_FORMAT, "%s: a header of %u bytes in a file of %u: an incomplete download?", file->name,
                     *header_bytes, file->size);
}
/* Opens a shard unless it is the open one. The first time its size and header length are checked, later they must be what they were.
   absent: as in mgv__file_open. */
static mgv_result mgv__checkpoint_select(mgv__checkpoint *checkpoint, uint32_t number, int *absent, mgv_error *error) {
    mgv__shard *shard = &checkpoint->shards[number];
    mgv__file *file = &checkpoint->file;
    uint64_t header_bytes = 0;
    mgv_result result;
    if (absent != NULL) *absent = 0;
    if (file->source != NULL && checkpoint->open_shard == number) return MGV_OK;
    mgv__file_close(file);
    result = mgv__file_open(file, checkpoint->source, shard->name, absent, error);
    if (result != MGV_OK || file->source == NULL) return result;
    checkpoint->open_shard = number;
    if (shard->size != 0 && file->size != shard->size) {
        result = mgv__fail(error, MGV_ERROR_IO, "%s: its size changed from %u to %u bytes while it was read", shard->name, shard->size,
                           file->size);
        mgv__file_close(file);
        return result;
    }
    result = mgv__shard_header_bytes(file, checkpoint->source->max_header_bytes, &header_bytes, error);
    if (result == MGV_OK && shard->size != 0 && header_bytes != shard->header_bytes)
        result = mgv__fail(error, MGV_ERROR_IO, "%s: its header changed while it was read", shard->name);
    if (result != MGV_OK) {
        mgv__file_close(file);
        return result;
    }
    shard->size = file->size;
    shard->header_bytes = header_bytes;
    return MGV_OK;
}

typedef struct mgv__tensor_fields {
    char *dtype, *shape, *data_offsets;
} mgv__tensor_fields;
/* The fields of one entry. Returns NULL, or what is wrong. */
static const char *mgv__tensor_find_fields(char *value, mgv__tensor_fields *fields) {
    char *at = value + 1, *key, *field;
    memset(fields, 0, sizeof *fields);
    if (*value != '{') return "is not an object";
    while (mgv__json_next(&at, &key, &field)) {
        if (mgv__json_is(key, "dtype")) fields->dtype = field;
        else if (mgv__json_is(key, "shape")) fields->shape = field;
        else if (mgv__json_is(key, "data_offsets")) fields->data_offsets = field;
    }
    return !fields->dtype ? "has no dtype" : !fields->shape ? "has no shape" : !fields->data_offsets ? "has no data_offsets" : NULL;
}
/* Counts the entries of one header, and checks what can be checked without memory: __metadata__ is null or an object of
   strings, each tensor has its fields. Less than that could be so short that the table of tensors would be many times larger
   than the header. */
static mgv_result mgv__header_count(char *text, const char *file, uint32_t *tensors, uint32_t *metadata, mgv_error *error) {
    char *at = mgv__json_skip_space(text) + 1, *key, *value, *metadata_at;
    while (mgv__json_next(&at, &key, &value)) {
        if (!mgv__json_is(key, "__metadata__")) {
            mgv__tensor_fields fields;
            const char *broken = mgv__tensor_find_fields(value, &fields);
            if (broken) return mgv__fail(error, MGV_ERROR_FORMAT, "%s: tensor %q %s", file, mgv__json_string(key, key), broken);
            ++*tensors;
            continue;
        }
        if (*value == 'n') continue;
        if (*value != '{') return mgv__fail(error, MGV_ERROR_FORMAT, "%s: __metadata__ is not an object", file);
        metadata_at = value + 1;
        while (mgv__json_next(&metadata_at, &key, &value)) {
            if (*value != '"') {
                return mgv__fail(error, MGV_ERROR_FORMAT, "%s: __metadata__ %q is not a string", file, mgv__json_string(key, key));
            }
            ++*metadata;
        }
    }
    return MGV_OK;
}
static mgv_dtype mgv__dtype_from_name(const char *value) {
    mgv_dtype dtype;
    for (dtype = MGV_DTYPE_NONE + 1; dtype < MGV_DTYPE_COUNT; dtype++) {
        if (mgv__json_is(value, mgv__dtypes[dtype].name)) return dtype;
    }
    return MGV_DTYPE_NONE;
}
/* Reads a JSON array of at most `most` plain integers. Returns 0 where it is something else; a longer one leaves *count above most. */
static int mgv__json_u64_array(char *value, uint64_t *out, uint32_t most, uint32_t *count) {
    char *at = value + 1, *item;
    *count = 0;
    if (*value != '[') return 0;
    while (mgv__json_next(&at, NULL, &item)) {
        uint64_t integer;
        if (!mgv__json_u64(item, &integer)) return 0;
        if (*count < most) out[*count] = integer;
        if (*count <= most) ++*count;
    }
    return 1;
}
/* Bytes of a tensor. Returns NULL or the rule that is broken. */
static const char *mgv__tensor_bytes(const mgv__tensor *tensor, uint64_t *bytes) {
    uint64_t bits = mgv_dtype_bits(tensor->dtype);
    int empty = 0;
    uint32_t i;
    for (i = 0; i < tensor->rank; i++) {
        if (tensor->shape[i] == 0) empty = 1;
        else if (!mgv__mul64(bits, tensor->shape[i], &bits)) return "its shape is larger than 2^64 bits";
    }
    if (empty) bits = 0;
    if (bits % 8 != 0) return "its elements do not fill whole bytes";
    *bytes = bits / 8;
    return NULL;
}
/* One entry of a header that has been counted; tensor has its name. data_begin, data_bytes: where the shard's data lies in the file. */
static mgv_result mgv__tensor_parse(mgv__tensor *tensor, char *value, const char *file, uint64_t data_begin, uint64_t data_bytes,
                                    mgv_error *error) {
    mgv__tensor_fields fields;
    uint64_t range[2], bytes;
    uint32_t count;
    const char *broken, *name = tensor->name;
    (void)mgv__tensor_find_fields(value, &fields);
    tensor->dtype = mgv__dtype_from_name(fields.dtype);
    if (tensor->dtype == MGV_DTYPE_NONE) {
        if (*fields.dtype != '"') return mgv__fail(error, MGV_ERROR_FORMAT, "%s: tensor %q: its dtype is not a string", file, name);
        return mgv__fail(error, MGV_ERROR_FORMAT, "%s: tensor %q: %q is no dtype of the format", file, name,
                         mgv__json_string(fields.dtype, fields.dtype));
    }
    if (!mgv__json_u64_array(fields.shape, tensor->shape, MGV_MAX_RANK, &tensor->rank)) {
        return mgv__fail(error, MGV_ERROR_FORMAT, "%s: tensor %q: its shape is not an array of integers from 0 to 2^64 - 1", file, name);
    }
    if (tensor->rank > MGV_MAX_RANK) {
        return mgv__fail(error, MGV_ERROR_UNSUPPORTED, "%s: tensor %q has more than %u dimensions", file, name, (uint64_t)MGV_MAX_RANK);
    }
    if (!mgv__json_u64_array(fields.data_offsets, range, 2, &count) || count != 2) {
        return mgv__fail(error, MGV_ERROR_FORMAT, "%s: tensor %q: its data_offsets are not two integers from 0 to 2^64 - 1", file, name);
    }
    broken = mgv__tensor_bytes(tensor, &bytes);
    if (broken != NULL) return mgv__fail(error, MGV_ERROR_FORMAT, "%s: tensor %q: %s", file, name, broken);
    if (range[0] > range[1] || range[1] > data_bytes) {
        return mgv__fail(error, MGV_ERROR_FORMAT, "%s: tensor %q: data_offsets %u to %u are no range of the %u bytes of data", file, name,
                         range[0], range[1], data_bytes);
    }
    if (range[1] - range[0] != bytes) {
        return mgv__fail(error, MGV_ERROR_FORMAT, "%s: tensor %q: data_offsets give it %u bytes, dtype and shape %u", file, name,
                         range[1] - range[0], bytes);
    }
    tensor->offset = data_begin + range[0];
    tensor->bytes = bytes;
    return MGV_OK;
}
/* By first byte, then by size, so that an empty tensor comes before the one that starts at the same place. */
static int mgv__compare_offsets(const void *tensors, uint32_t a, uint32_t b) {
    const mgv__tensor *first = (const mgv__tensor *)tensors + a, *second = (const mgv__tensor *)tensors + b;
    if (first->offset != second->offset) return first->offset < second->offset ? -1 : 1;
    if (first->bytes != second->bytes) return first->bytes < second->bytes ? -1 : 1;
    return 0;
}
static int mgv__compare_names(const void *tensors, uint32_t a, uint32_t b) {
    return strcmp(((const mgv__tensor *)tensors)[a].name, ((const mgv__tensor *)tensors)[b].name);
}
/* Every byte of a shard's data belongs to exactly one tensor. order, scratch: one number for each of the count tensors. */
static mgv_result mgv__header_check_cover(const mgv__tensor *tensors, uint32_t count, const mgv__shard *shard, uint32_t *order,
                                          uint32_t *scratch, mgv_error *error) {
    uint64_t end = 8 + shard->header_bytes;
    uint32_t i;
    for (i = 0; i < count; i++) order[i] = i;
    mgv__sort(order, scratch, count, mgv__compare_offsets, tensors);
    for (i = 0; i < count; i++) {
        const mgv__tensor *tensor = &tensors[order[i]];
        if (tensor->offset != end) {
            return mgv__fail(error, MGV_ERROR_FORMAT,
                             "%s: tensor %q begins at byte %u of the file, the one before it ends at %u: tensors may leave no hole "
                             "and not overlap", shard->name, tensor->name, tensor->offset, end);
        }
        end += tensor->bytes;
    }
    if (end == shard->size) return MGV_OK;
    return mgv__fail(error, MGV_ERROR_FORMAT, "%s: its tensors end at byte %u, the file has %u", shard->name, end, shard->size);
}
/* Bytes of data that a counted header describes. */
static uint64_t mgv__header_data_bytes(char *text) {
    char *at = mgv__json_skip_space(text) + 1, *key, *value;
    uint64_t end = 0, range[2];
    uint32_t count;
    while (mgv__json_next(&at, &key, &value)) {
        mgv__tensor_fields fields;
        if (mgv__json_is(key, "__metadata__")) continue;
        (void)mgv__tensor_find_fields(value, &fields);
        if (mgv__json_u64_array(fields.data_offsets, range, 2, &count) && count == 2 && range[1] > end) end = range[1];
    }
    return end;
}
/* Appends the tensors and metadata of one shard; there is room for them. */
static mgv_result mgv__header_parse(mgv__checkpoint *checkpoint, uint32_t number, char *text, mgv_error *error) {
    const mgv__shard *shard = &checkpoint->shards[number];
    uint64_t data_begin = 8 + shard->header_bytes, described = mgv__header_data_bytes(text);
    char *at = mgv__json_skip_space(text) + 1, *key, *value, *metadata_at;
    if (described > shard->size - data_begin && described <= UINT64_MAX - data_begin) {
        return mgv__fail(error, MGV_ERROR_FORMAT, "%s is incomplete: it has %u bytes, and its header describes %u; download it again",
                         shard->name, shard->size, data_begin + described);
    }
    while (mgv__json_next(&at, &key, &value)) {
        if (!mgv__json_is(key, "__metadata__")) {
            mgv__tensor *tensor = &checkpoint->tensors[checkpoint->tensor_count++];
            mgv_result result;
            memset(tensor, 0, sizeof *tensor);
            tensor->name = mgv__json_string(key, key);
            tensor->file = number;
            result = mgv__tensor_parse(tensor, value, shard->name, data_begin, shard->size - data_begin, error);
            if (result != MGV_OK) return result;
            continue;
        }
        if (*value != '{') continue; /* null */
        metadata_at = value + 1;
        while (mgv__json_next(&metadata_at, &key, &value)) {
            mgv__metadata *metadata = &checkpoint->metadata[checkpoint->metadata_count++];
            metadata->key = mgv__json_string(key, key);
            metadata->value = mgv__json_string(value, value);
        }
    }
    return MGV_OK;
}
static void mgv__checkpoint_sort_names(mgv__checkpoint *checkpoint, uint32_t *scratch) {
    uint32_t i;
    for (i = 0; i < checkpoint->tensor_count; i++) checkpoint->by_name[i] = i;
    mgv__sort(checkpoint->by_name, scratch, checkpoint->tensor_count, mgv__compare_names, checkpoint->tensors);
    checkpoint->name_count = checkpoint->tensor_count;
}
/* Where the first tensor of this name, or of a later one, stands in by_name. */
static uint32_t mgv__checkpoint_lower_bound(const mgv__checkpoint *checkpoint, const char *name) {
    uint32_t low = 0, high = checkpoint->name_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (strcmp(checkpoint->tensors[checkpoint->by_name[middle]].name, name) < 0) low = middle + 1;
        else high = middle;
    }
    return low;
}
/* Reads the headers of all shards, whose names are there already, and counts what they hold. */
static mgv_result mgv__checkpoint_read_headers(mgv__checkpoint *checkpoint, mgv_error *error) {
    const mgv_allocator *allocator = &checkpoint->source->allocator;
    size_t bytes = 0;
    mgv_result result;
    uint32_t i, there = 0;
    char *text;
    for (i = 0; i < checkpoint->shard_count; i++) {
        result = mgv__checkpoint_select(checkpoint, i, checkpoint->indexed ? &checkpoint->shards[i].absent : NULL, error);
        if (result != MGV_OK) return result;
        if (checkpoint->shards[i].absent) {
            if (checkpoint->lost == NULL) checkpoint->lost = checkpoint->shards[i].name;
            continue;
        }
        there++;
        if (!mgv__add(bytes, (size_t)checkpoint->shards[i].header_bytes + 1, &bytes) || bytes > UINT32_MAX) {
            return mgv__fail(error, MGV_ERROR_FORMAT, "%s: the headers up to this shard have 4 GiB or more", checkpoint->shards[i].name);
        }
    }
    if (there == 0) return mgv__checkpoint_select(checkpoint, 0, NULL, error);
    text = checkpoint->headers = (char *)mgv__alloc(allocator, bytes);
    if (text == NULL) return mgv__fail_nomem(error, "the safetensors headers", bytes);
    for (i = 0; i < checkpoint->shard_count; i++) {
        size_t header_bytes = (size_t)checkpoint->shards[i].header_bytes;
        const char *name = checkpoint->shards[i].name;
        if (checkpoint->shards[i].absent) continue;
        result = mgv__checkpoint_select(checkpoint, i, NULL, error);
        if (result != MGV_OK) return result;
        result = mgv__file_read(&checkpoint->file, 8, text, header_bytes, error);
        if (result != MGV_OK) return result;
        text[header_bytes] = 0;
        result = mgv__json_check(text, header_bytes, name, allocator, error);
        if (result != MGV_OK) return result;
        result = mgv__header_count(text, name, &checkpoint->tensor_count, &checkpoint->metadata_count, error);
        if (result != MGV_OK) return result;
        text += header_bytes + 1;
    }
    return MGV_OK;
}
static mgv_result mgv__checkpoint_parse_headers(mgv__checkpoint *checkpoint, uint32_t *scratch, mgv_error *error) {
    char *text = checkpoint->headers;
    uint32_t i;
    checkpoint->tensor_count = 0;
    checkpoint->metadata_count = 0;
    for (i = 0; i < checkpoint->shard_count; i++) {
        const mgv__shard *shard = &checkpoint->shards[i];
        uint32_t first = checkpoint->tensor_count;
        mgv_result result;
        if (shard->absent) continue;
        result = mgv__header_parse(checkpoint, i, text, error);
        if (result != MGV_OK) return result;
        result = mgv__header_check_cover(checkpoint->tensors + first, checkpoint->tensor_count - first, shard, checkpoint->by_name, scratch,
                                         error);
        if (result != MGV_OK) return result;
        text += (size_t)shard->header_bytes + 1;
    }
    mgv__checkpoint_sort_names(checkpoint, scratch);
    return MGV_OK;
}
/* Everything is counted before it is allocated, so that memory stays below 4 times the headers. */
static mgv_result mgv__checkpoint_load(mgv__checkpoint *checkpoint, mgv_error *error) {
    const mgv_allocator *allocator = &checkpoint->source->allocator;
    mgv_result result = mgv__checkpoint_read_headers(checkpoint, error);
    uint32_t *scratch;
    if (result != MGV_OK) return result;
    checkpoint->tensors = (mgv__tensor *)mgv__alloc_array(allocator, checkpoint->tensor_count, sizeof(mgv__tensor));
    checkpoint->metadata = (mgv__metadata *)mgv__alloc_array(allocator, checkpoint->metadata_count, sizeof(mgv__metadata));
    checkpoint->by_name = (uint32_t *)mgv__alloc_array(allocator, checkpoint->tensor_count, sizeof(uint32_t));
    scratch = (uint32_t *)mgv__alloc_array(allocator, checkpoint->tensor_count, sizeof(uint32_t));
    if (checkpoint->tensors == NULL || checkpoint->metadata == NULL || checkpoint->by_name == NULL || scratch == NULL) {
        result = mgv__fail_nomem(error, "the table of tensors", (uint64_t)checkpoint->tensor_count * sizeof(mgv__tensor));
    } else {
        result = mgv__checkpoint_parse_headers(checkpoint, scratch, error);
    }
    mgv__free(allocator, scratch);
    return result;
}
/* NULL where there is none of this name. */
static const mgv__tensor *mgv__checkpoint_find(const mgv__checkpoint *checkpoint, const char *name) {
    uint32_t at = mgv__checkpoint_lower_bound(checkpoint, name);
    const mgv__tensor *tensor = at < checkpoint->name_count ? &checkpoint->tensors[checkpoint->by_name[at]] : NULL;
    return tensor != NULL && strcmp(tensor->name, name) == 0 ? tensor : NULL;
}
/* out: tensor->bytes of room. Reading tensors shard by shard opens each shard once. */
static mgv_result mgv__checkpoint_read(mgv__checkpoint *checkpoint, const mgv__tensor *tensor, void *out, mgv_error *error) {
    mgv_result result = mgv__checkpoint_select(checkpoint, tensor->file, NULL, error);
    if (result != MGV_OK) return result;
    if (tensor->bytes > SIZE_MAX) {
        return mgv__fail(error, MGV_ERROR_NOMEM, "tensor %q: %u bytes do not fit this machine", tensor->name, tensor->bytes);
    }
    return mgv__file_read(&checkpoint->file, tensor->offset, out, (size_t)tensor->bytes, error);
}

/* A shard index: {"weight_map": {tensor: file, ...}}. The rest of it is ignored, metadata.total_size among it, which
   published files have wrong. What the shards hold counts, as in transformers: the index may list tensors that are nowhere and
   leave out others; it decides where two shards hold a tensor. A file's name is a path below the model's directory with '/' between
   its parts. Links are followed: Hugging Face's own cache is made of them. Returns NULL or the rule that a name breaks. */
static const char *mgv__shard_name_rule(const char *name) {
    const unsigned char *p = (const unsigned char *)name;
    if (*p == 0) return "is empty";
    if (*p == '/') return "is an absolute path";
    for (; *p != 0; p++) {
        if (*p == '\\') return "has a backslash";
        if (*p == ':') return "has a colon, as drives and streams have";
        if (*p < 0x20 || *p == 0x7F || (*p == 0xC2 && p[1] < 0xA0)) return "has a control character";
        if (*p == '/' && (p[1] == '/' || p[1] == 0)) return "has an empty part";
        /* "." and "..", and what Windows takes for them. */
        if ((*p == '.' || *p == ' ') && (p[1] == '/' || p[1] == 0)) return "has a part that ends in a dot or a space";
    }
    return NULL;
}
static char *mgv__index_value(char *key) {
    return mgv__json_skip_space(mgv__json_skip_space(mgv__json_skip_string(key)) + 1);
}
/* Orders two keys of the weight map by the files that they name. */
static int mgv__compare_index_values(const void *text, uint32_t a, uint32_t b) {
    return mgv__json_compare_strings(mgv__index_value((char *)text + a), mgv__index_value((char *)text + b));
}
/* The shards that the entries name, which are ordered by them. */
static mgv_result mgv__index_list_shards(mgv__checkpoint *checkpoint, const char *file, char *text, const uint32_t *entries, uint32_t count,
                                         mgv_error *error) {
    const mgv_allocator *allocator = &checkpoint->source->allocator;
    uint32_t i;
    size_t name_bytes = 0;
    char *names;
    for (i = 0; i < count; i++) {
        char *value = mgv__index_value(text + entries[i]);
        if (i > 0 && mgv__compare_index_values(text, entries[i - 1], entries[i]) == 0) continue;
        checkpoint->shard_count++;
        name_bytes += (size_t)(mgv__json_skip_string(value) - value);
    }
    checkpoint->shards = (mgv__shard *)mgv__alloc_array(allocator, checkpoint->shard_count, sizeof(mgv__shard));
    names = checkpoint->shard_names = (char *)mgv__alloc(allocator, name_bytes);
    if (checkpoint->shards == NULL || names == NULL) return mgv__fail_nomem(error, "the list of shards", name_bytes);
    checkpoint->shard_count = 0;
    for (i = 0; i < count; i++) {
        mgv__shard *shard = &checkpoint->shards[checkpoint->shard_count];
        const char *rule;
        if (i > 0 && mgv__compare_index_values(text, entries[i - 1], entries[i]) == 0) continue;
        memset(shard, 0, sizeof *shard);
        shard->name = mgv__json_string(mgv__index_value(text + entries[i]), names);
        names += strlen(names) + 1;
        rule = mgv__shard_name_rule(shard->name);
        if (rule != NULL) return mgv__fail(error, MGV_ERROR_FORMAT, "%s: the file name %q %s", file, shard->name, rule);
        checkpoint->shard_count++;
    }
    return MGV_OK;
}
/* Of tensors of one name that of the shard that the index says is kept in by_name, or else the first. Changes the keys. */
static void mgv__index_choose_tensors(mgv__checkpoint *checkpoint, char *text, const uint32_t *entries, uint32_t count) {
    uint32_t *by_name = checkpoint->by_name, i, k, first, shard = 0, kept = 0;
    char *value, *previous = NULL;
    for (i = 0; i < count; i++, previous = value) {
        char *key = text + entries[i];
        value = mgv__index_value(key);
        if (previous != NULL && mgv__json_compare_strings(previous, value) != 0) shard++;
        (void)mgv__json_string(key, key);
        first = mgv__checkpoint_lower_bound(checkpoint, key);
        for (k = first; k < checkpoint->name_count && strcmp(checkpoint->tensors[by_name[k]].name, key) == 0; k++) {
            uint32_t number = by_name[k];
            if (checkpoint->tensors[number].file != shard) continue;
            by_name[k] = by_name[first];
            by_name[first] = number;
            break;
        }
    }
    for (i = 0; i < checkpoint->name_count; i++) {
        if (kept > 0 && strcmp(checkpoint->tensors[by_name[kept - 1]].name, checkpoint->tensors[by_name[i]].name) == 0) continue;
        by_name[kept++] = by_name[i];
    }
    checkpoint->name_count = kept;
}
/* The entries of the weight map, as positions of their keys: room for twice as many as there are, the second half is scratch. */
static mgv_result mgv__index_list_entries(const mgv_allocator *allocator, const char *file, char *text, uint32_t **entries, uint32_t *count,
                                          mgv_error *error) {
    char *at = mgv__json_skip_space(text) + 1, *key, *value, *map = NULL;
    *entries = NULL;
    *count = 0;
    while (mgv__json_next(&at, &key, &value)) {
        if (mgv__json_is(key, "weight_map")) map = value;
    }
    if (map == NULL || *map != '{') return mgv__fail(error, MGV_ERROR_FORMAT, "%s: weight_map is not an object", file);
    for (at = map + 1; mgv__json_next(&at, &key, &value); ++*count) {
        if (*value == '"') continue;
        return mgv__fail(error, MGV_ERROR_FORMAT, "%s: the file of tensor %q is not a string", file, mgv__json_string(key, key));
    }
    if (*count == 0) return mgv__fail(error, MGV_ERROR_FORMAT, "%s: weight_map is empty", file);
    *entries = (uint32_t *)mgv__alloc_array(allocator, *count, 2 * sizeof(uint32_t));
    if (*entries == NULL) return mgv__fail_nomem(error, "the weight map", (uint64_t)*count * 8);
    *count = 0;
    for (at = map + 1; mgv__json_next(&at, &key, &value);) (*entries)[(*count)++] = (uint32_t)(key - text);
    mgv__sort(*entries, *entries + *count, *count, mgv__compare_index_values, text);
    return MGV_OK;
}
static mgv_result mgv__checkpoint_load_index(mgv__checkpoint *checkpoint, const char *file, char *text, mgv_error *error) {
    const mgv_allocator *allocator = &checkpoint->source->allocator;
    uint32_t *entries, count;
    mgv_result result = mgv__index_list_entries(allocator, file, text, &entries, &count, error);
    if (result == MGV_OK) result = mgv__index_list_shards(checkpoint, file, text, entries, count, error);
    checkpoint->indexed = 1;
    if (result == MGV_OK) result = mgv__checkpoint_load(checkpoint, error);
    if (result == MGV_OK) mgv__index_choose_tensors(checkpoint, text, entries, count);
    mgv__free(allocator, entries);
    if (result == MGV_OK && checkpoint->lost != NULL)
        mgv__log(&checkpoint->source->logger, MGV_LOG_WARNING, "%s: there is no %s, which it names; models that need nothing of it run",
                 file, checkpoint->lost);
    return result;
}
/* One file, which is there, as the only shard. name: copied. */
static mgv_result mgv__checkpoint_load_single(mgv__checkpoint *checkpoint, const char *name, mgv_error *error) {
    const mgv_allocator *allocator = &checkpoint->source->allocator;
    size_t name_bytes = strlen(name) + 1;
    checkpoint->shards = (mgv__shard *)mgv__alloc(allocator, sizeof(mgv__shard));
    checkpoint->shard_names = (char *)mgv__alloc(allocator, name_bytes);
    if (checkpoint->shards == NULL || checkpoint->shard_names == NULL) return mgv__fail_nomem(error, "a file name", name_bytes);
    memcpy(checkpoint->shard_names, name, name_bytes);
    memset(checkpoint->shards, 0, sizeof(mgv__shard));
    checkpoint->shards->name = checkpoint->shard_names;
    checkpoint->shard_count = 1;
    return mgv__checkpoint_load(checkpoint, error);
}
static mgv_result mgv__checkpoint_find_files(mgv__checkpoint *checkpoint, mgv_error *error) {
    static const char single[] = "model.safetensors", index[] = "model.safetensors.index.json";
    static const char *const pickles[] = {"pytorch_model.bin", "pytorch_model.bin.index.json"};
    mgv__source *source = checkpoint->source;
    char *text;
    size_t bytes, i;
    int present;
    mgv_result result = mgv__source_has(source, single, &present, error);
    if (result != MGV_OK) return result;
    if (present) return mgv__checkpoint_load_single(checkpoint, single, error);
    result = mgv__source_read_json(source, index, &text, &bytes, &present, error);
    if (result != MGV_OK) return result;
    if (text != NULL) {
        result = mgv__checkpoint_load_index(checkpoint, index, text, error);
        mgv__free(&source->allocator, text);
        return result;
    }
    for (i = 0; i < 2; i++) {
        result = mgv__source_has(source, pickles[i], &present, error);
        if (result != MGV_OK) return result;
        if (!present) continue;
        return mgv__fail(error, MGV_ERROR_IO, "%s: there is %s, but neither %s nor %s, and only safetensors files are read",
                         mgv__source_name(source), pickles[i], single, index);
    }
    return mgv__fail(error, MGV_ERROR_IO, "%s: there is neither %s nor %s", mgv__source_name(source), single, index);
}
/* The tensors of model.safetensors, or else of the shards of model.safetensors.index.json. A failed one is closed. */
static mgv_result mgv__checkpoint_open(mgv__checkpoint *checkpoint, mgv__source *source, mgv_error *error) {
    mgv_result result;
    memset(checkpoint, 0, sizeof *checkpoint);
    checkpoint->source = source;
    result = mgv__checkpoint_find_files(checkpoint, error);
    if (result != MGV_OK) mgv__checkpoint_close(checkpoint);
    return result;
}

/* The public reader of one file is a checkpoint of one shard. */
struct mgv_safetensors {
    mgv__source source;
    mgv__checkpoint checkpoint;
    mgv_memory_file memory;
};

MEGAVIT_API mgv_result mgv_safetensors_open(mgv_safetensors **file, const mgv_safetensors_desc *desc, mgv_error *error) {
    mgv_safetensors_desc full;
    mgv_model_desc source;
    mgv_safetensors *result;
    mgv_result code;
    mgv__clear_error(error);
    if (file == NULL) return mgv__fail(error, MGV_ERROR_ARGUMENT, "mgv_safetensors_open: file is NULL");
    *file = NULL;
    if (desc == NULL) return mgv__fail(error, MGV_ERROR_ARGUMENT, "mgv_safetensors_open: desc is NULL");
    code = mgv__take_struct(&full, sizeof full, desc, desc->struct_size, "mgv_safetensors_desc", error);
    if (code != MGV_OK) return code;
    if ((full.path == NULL) == (full.data == NULL)) {
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "mgv_safetensors_open: a path or data, and not both");
    }
    code = mgv__allocator_check(&full.allocator, error);
    if (code != MGV_OK) return code;
    result = (mgv_safetensors *)mgv__alloc(&full.allocator, sizeof *result);
    if (result == NULL) return mgv__fail_nomem(error, "mgv_safetensors_open", sizeof *result);
    memset(result, 0, sizeof *result);
    memset(&source, 0, sizeof source);
    if (full.data != NULL) {
        result->memory.name = full.path = "the file in memory";
        result->memory.data = full.data;
        result->memory.bytes = full.bytes;
        source.memory_files = &result->memory;
        source.memory_file_count = 1;
    } else {
        source.path = ""; /* the shard's name is the whole path */
    }
    source.io = full.io;
    source.allocator = full.allocator;
    source.max_header_bytes = full.max_header_bytes;
    code = mgv__source_open(&result->source, &source, error);
    if (code == MGV_OK) {
        result->checkpoint.source = &result->source;
        code = mgv__checkpoint_load_single(&result->checkpoint, full.path, error);
    }
    if (code != MGV_OK) {
        mgv_safetensors_close(result);
        return code;
    }
    *file = result;
    return MGV_OK;
}
MEGAVIT_API void mgv_safetensors_close(mgv_safetensors *file) {
    mgv_allocator allocator;
    if (file == NULL) return;
    allocator = file->source.allocator;
    mgv__checkpoint_close(&file->checkpoint);
    mgv__free(&allocator, file);
}
MEGAVIT_API uint32_t mgv_safetensors_tensor_count(const mgv_safetensors *file) { return file ? file->checkpoint.tensor_count : 0; }
MEGAVIT_API uint32_t mgv_safetensors_metadata_count(const mgv_safetensors *file) { return file ? file->checkpoint.metadata_count : 0; }

/* Also what mgv_model_get_tensor gives out. */
static void mgv__tensor_describe(const mgv__tensor *tensor, const char *file, mgv_tensor_info *info) {
    info->name = tensor->name;
    info->file = file;
    info->dtype = tensor->dtype;
    info->rank = tensor->rank;
    memcpy(info->shape, tensor->shape, sizeof info->shape);
    info->offset = tensor->offset;
    info->bytes = tensor->bytes;
}
MEGAVIT_API mgv_result mgv_safetensors_get_tensor(const mgv_safetensors *file, uint32_t i, mgv_tensor_info *info) {
    const mgv__checkpoint *checkpoint;
    if (file == NULL || info == NULL || i >= file->checkpoint.tensor_count) return MGV_ERROR_ARGUMENT;
    checkpoint = &file->checkpoint;
    mgv__tensor_describe(&checkpoint->tensors[i], checkpoint->shards[checkpoint->tensors[i].file].name, info);
    return MGV_OK;
}
MEGAVIT_API mgv_result mgv_safetensors_find(const mgv_safetensors *file, const char *name, uint32_t *i) {
    const mgv__tensor *tensor;
    if (file == NULL || name == NULL || i == NULL) return MGV_ERROR_ARGUMENT;
    tensor = mgv__checkpoint_find(&file->checkpoint, name);
    if (tensor == NULL) return MGV_ERROR_MODEL;
    *i = (uint32_t)(tensor - file->checkpoint.tensors);
    return MGV_OK;
}
MEGAVIT_API mgv_result mgv_safetensors_get_metadata(const mgv_safetensors *file, uint32_t i, const char **key, const char **value) {
    if (file == NULL || key == NULL || value == NULL || i >= file->checkpoint.metadata_count) return MGV_ERROR_ARGUMENT;
    *key = file->checkpoint.metadata[i].key;
    *value = file->checkpoint.metadata[i].value;
    return MGV_OK;
}
MEGAVIT_API mgv_result mgv_safetensors_read(mgv_safetensors *file, uint32_t i, void *data, uint64_t capacity, mgv_error *error) {
    const mgv__tensor *tensor;
    mgv__clear_error(error);
    if (file == NULL || i >= file->checkpoint.tensor_count) {
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "mgv_safetensors_read: no file, or no tensor %u in it", (uint64_t)i);
    }
    tensor = &file->checkpoint.tensors[i];
    if (data == NULL && tensor->bytes > 0)
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "mgv_safetensors_read: data is NULL, tensor %q has %u bytes", tensor->name,
                         tensor->bytes);
    if (capacity < tensor->bytes)
        return mgv__fail(error, MGV_ERROR_CAPACITY, "mgv_safetensors_read: tensor %q has %u bytes, there is room for %u", tensor->name,
                         tensor->bytes, capacity);
    return mgv__checkpoint_read(&file->checkpoint, tensor, data, error);
}

/* ---------------------------------------------------------------------------------------------------------------
   >>config: config.json and preprocessor_config.json */

/* Pillow's numbers, as preprocessor_config.json has them. */
enum { MGV__RESAMPLE_BILINEAR = 2, MGV__RESAMPLE_BICUBIC = 3 };

/* What preprocessor_config.json says. */
typedef struct mgv__pixels_config {
    int32_t resample;                    /* MGV__RESAMPLE_* */
    uint32_t fixed_width, fixed_height;  /* every picture becomes this size; 0: smart_resize */
    uint32_t factor;                     /* smart_resize: sides become multiples of it (patch * merge) */
    uint64_t min_pixels, max_pixels;     /* smart_resize: limits of the resized area */
    uint64_t clip_min_pixels, clip_max_pixels; /* the same for clips; 0: as for still pictures */
    int32_t clip_counts_frames;          /* the limits of a clip are on frames * width * height */
    int32_t do_resize, do_rescale, do_normalize;
    double rescale_factor;
    double mean[3], std[3];
    uint32_t temporal_patch, patch, merge;
} mgv__pixels_config;

typedef int32_t mgv__activation;
enum { MGV__ACT_NONE = 0, MGV__ACT_GELU_TANH, MGV__ACT_GELU_ERF, MGV__ACT_GELU_QUICK, MGV__ACT_SILU, MGV__ACT_RELU };

/* How a square table of positions is read by a picture of another size. s: entries of the table for one patch. */
typedef int32_t mgv__interpolation;
enum {
    MGV__TABLE_AS_IT_IS = 0, /* it is as large as every picture */
    MGV__TABLE_ENDS,         /* linear, first on first and last on last */
    MGV__TABLE_CUBIC,        /* cubic over four entries, whatever s is: torch's bicubic */
    MGV__TABLE_CUBIC_AREA,   /* cubic over four times s entries: torch's bicubic with antialias */
    MGV__TABLE_LINEAR_AREA   /* linear over two times s entries: torch's bilinear with antialias */
};

enum { MGV__MAX_HEAD_DIM = 256, MGV__MAX_DEEPSTACK = 8, MGV__MAX_FULL_ATTENTION = 64 };

/* What config.json says about the vision tower; what it leaves out has the default of transformers' config class. */
typedef struct mgv__config {
    mgv_family family;
    uint32_t hidden, intermediate, layers, heads, head_dim;
    uint32_t channels, patch;
    uint32_t image_size;         /* side of the square input in pixels; 0: any size */
    uint32_t position_side;      /* side of the square position table in entries; 0: there is none */
    uint32_t position_first;     /* entries of the table before the square's: that of the class token */
    int32_t interpolation;       /* mgv__interpolation of the table */
    uint32_t prefix;             /* rows before those of the patches: class and register tokens */
    float epsilon;               /* of the norms */
    int32_t activation;          /* mgv__activation of the MLPs */
    int32_t gated;               /* MLPs multiply what is activated by a second product */
    float mlp_ratio;             /* intermediate over hidden; 0: config.json has intermediate itself */
    uint32_t registers;          /* register tokens */
    int32_t use_head;            /* SigLIP: there is a pooling head */
    uint32_t temporal_patch;     /* frames in a patch; 1: pictures only */
    uint32_t merge;              /* side of the block of patches that becomes one token; 1: none */
    uint32_t out_hidden;         /* width of merged tokens */
    uint32_t deepstack[MGV__MAX_DEEPSTACK], deepstack_count; /* layers after which a DeepStack merger looks at the tokens, ascending */
    uint32_t window_size;        /* side of an attention window in pixels; 0: no windows */
    uint32_t full_attention[MGV__MAX_FULL_ATTENTION], full_attention_count; /* layers that look beyond their window */
    float rope_theta;            /* base of the rotary frequencies; 0: no rotary positions */
    char quantised_by[24];       /* the method that quantised the weights, for messages: parts of such a model may be as they were */
    int32_t rope_centered;       /* rotary coordinates go from -1 to 1 across the picture */
    mgv__pixels_config pixels;
} mgv__config;

/* One key of a JSON object, and where its value goes. */
typedef struct mgv__field mgv__field;
struct mgv__field {
    const char *key;
    mgv_result (*read)(const mgv__field *field, void *target, char *value, const char *file, mgv_error *error);
    size_t offset;      /* into the target struct */
    double least, most; /* of a number */
};

/* A null stands for a key that is not there. */
static mgv_result mgv__fields_read(const mgv__field *fields, size_t count, void *target, char *object, const char *file, mgv_error *error) {
    char *at = object + 1, *key, *value;
    while (mgv__json_next(&at, &key, &value)) {
        size_t i;
        mgv_result result;
        for (i = 0; i < count && !mgv__json_is(key, fields[i].key); i++) continue;
        if (i == count || *value == 'n') continue;
        result = (fields[i].read)(&fields[i], (char *)target + fields[i].offset, value, file, error);
        if (result != MGV_OK) return result;
    }
    return MGV_OK;
}
static char *mgv__json_member(char *object, const char *name) {
    char *at = object + 1, *key, *value;
    while (mgv__json_next(&at, &key, &value)) {
        if (mgv__json_is(key, name)) return value;
    }
    return NULL;
}

static mgv_result mgv__read_integer(const mgv__field *field, void *target, char *value, const char *file, mgv_error *error) {
    uint64_t integer;
    uint32_t narrow;
    if (!mgv__json_u64(value, &integer) || (double)integer < field->least || (double)integer > field->most) {
        return mgv__fail(error, MGV_ERROR_MODEL, "%s: %s is not an integer from %u to %u", file, field->key, (uint64_t)field->least,
                         (uint64_t)field->most);
    }
    narrow = (uint32_t)integer;
    memcpy(target, &narrow, sizeof narrow);
    return MGV_OK;
}
static mgv_result mgv__read_large_integer(const mgv__field *field, void *target, char *value, const char *file, mgv_error *error) {
    uint64_t integer;
    if (!mgv__json_u64(value, &integer) || (double)integer < field->least || (double)integer > field->most) {
        return mgv__fail(error, MGV_ERROR_MODEL, "%s: %s is not an integer from %u to %u", file, field->key, (uint64_t)field->least,
                         (uint64_t)field->most);
    }
    memcpy(target, &integer, sizeof integer);
    return MGV_OK;
}
/* A side of something square: an integer, or an array of equal ones. */
static mgv_result mgv__read_side(const mgv__field *field, void *target, char *value, const char *file, mgv_error *error) {
    char *at = value + 1, *item, *first = NULL;
    uint64_t side = 0, other;
    if (*value != '[') return mgv__read_integer(field, target, value, file, error);
    while (mgv__json_next(&at, NULL, &item)) {
        mgv_result result;
        if (first == NULL) {
            first = item;
            result = mgv__read_integer(field, target, item, file, error);
            if (result != MGV_OK) return result;
            (void)mgv__json_u64(item, &side);
        } else if (!mgv__json_u64(item, &other) || other != side) {
            return mgv__fail(error, MGV_ERROR_UNSUPPORTED, "%s: %s has different sides, only squares are run", file, field->key);
        }
    }
    if (first == NULL) return mgv__fail(error, MGV_ERROR_MODEL, "%s: %s is empty", file, field->key);
    return MGV_OK;
}
/* The number of entries of a square table; what is kept is its side. */
static mgv_result mgv__read_square(const mgv__field *field, void *target, char *value, const char *file, mgv_error *error) {
    uint32_t entries = 0, side = 1;
    mgv_result result = mgv__read_integer(field, &entries, value, file, error);
    if (result != MGV_OK) return result;
    while (side * side < entries) side++;
    if (side * side != entries) return mgv__fail(error, MGV_ERROR_MODEL, "%s: %s is no square number", file, field->key);
    memcpy(target, &side, sizeof side);
    return MGV_OK;
}
static mgv_result mgv__read_number(const mgv__field *field, void *target, char *value, const char *file, mgv_error *error) {
    double number;
    if (!mgv__json_double(value, &number) || !(number >= field->least && number <= field->most)) {
        return mgv__fail(error, MGV_ERROR_MODEL, "%s: %s is not a number within its range", file, field->key);
    }
    memcpy(target, &number, sizeof number);
    return MGV_OK;
}
static mgv_result mgv__read_float(const mgv__field *field, void *target, char *value, const char *file, mgv_error *error) {
    double number;
    float narrow;
    mgv_result result = mgv__read_number(field, &number, value, file, error);
    if (result != MGV_OK) return result;
    narrow = (float)number;
    memcpy(target, &narrow, sizeof narrow);
    return MGV_OK;
}
/* An array of three numbers, or one number for all three. */
static mgv_result mgv__read_three_numbers(const mgv__field *field, void *target, char *value, const char *file, mgv_error *error) {
    double numbers[3];
    char *at = value + 1, *item;
    size_t count = 0;
    mgv_result result;
    if (*value != '[') {
        result = mgv__read_number(field, &numbers[0], value, file, error);
        if (result != MGV_OK) return result;
        numbers[1] = numbers[2] = numbers[0];
        count = 3;
    } else {
        while (mgv__json_next(&at, NULL, &item)) {
            if (count < 3) {
                result = mgv__read_number(field, &numbers[count], item, file, error);
                if (result != MGV_OK) return result;
            }
            count++;
        }
    }
    if (count != 3) return mgv__fail(error, MGV_ERROR_MODEL, "%s: %s has %u numbers, not 3", file, field->key, (uint64_t)count);
    memcpy(target, numbers, sizeof numbers);
    return MGV_OK;
}
static mgv_result mgv__read_bool(const mgv__field *field, void *target, char *value, const char *file, mgv_error *error) {
    int32_t truth = *value == 't';
    if (*value != 't' && *value != 'f') return mgv__fail(error, MGV_ERROR_MODEL, "%s: %s is neither true nor false", file, field->key);
    memcpy(target, &truth, sizeof truth);
    return MGV_OK;
}
/* For what must be false: a step of preprocessing that is not there. */
static mgv_result mgv__read_refused(const mgv__field *field, void *target, char *value, const char *file, mgv_error *error) {
    (void)target;
    if (*value == 'f') return MGV_OK;
    return mgv__fail(error, MGV_ERROR_UNSUPPORTED, "%s: %s is set; there is no such step", file, field->key);
}
/* Layer numbers: an array of ascending integers below `most`, at most `room` of them. */
static mgv_result mgv__read_layers(const mgv__field *field, uint32_t *layers, uint32_t room, uint32_t *count, char *value, const char *file,
                                   mgv_error *error) {
    char *at = value + 1, *item;
    *count = 0;
    if (*value != '[') return mgv__fail(error, MGV_ERROR_MODEL, "%s: %s is not an array", file, field->key);
    while (mgv__json_next(&at, NULL, &item)) {
        uint64_t layer;
        if (!mgv__json_u64(item, &layer) || (double)layer > field->most || (*count > 0 && layer <= layers[*count - 1])) {
            return mgv__fail(error, MGV_ERROR_MODEL, "%s: %s are not ascending integers up to %u", file, field->key, (uint64_t)field->most);
        }
        if (*count == room) return mgv__fail(error, MGV_ERROR_UNSUPPORTED, "%s: %s are more than %u", file, field->key, (uint64_t)room);
        layers[(*count)++] = (uint32_t)layer;
    }
    return MGV_OK;
}
static mgv_result mgv__read_deepstack(const mgv__field *field, void *target, char *value, const char *file, mgv_error *error) {
    mgv__config *config = (mgv__config *)target;
    return mgv__read_layers(field, config->deepstack, MGV__MAX_DEEPSTACK, &config->deepstack_count, value, file, error);
}
static mgv_result mgv__read_full_attention(const mgv__field *field, void *target, char *value, const char *file, mgv_error *error) {
    mgv__config *config = (mgv__config *)target;
    return mgv__read_layers(field, config->full_attention, MGV__MAX_FULL_ATTENTION, &config->full_attention_count, value, file, error);
}
typedef struct mgv__activation_row {
    const char *name; /* in transformers' ACT2FN */
    mgv__activation activation;
} mgv__activation_row;
static mgv_result mgv__read_activation(const mgv__field *field, void *target, char *value, const char *file, mgv_error *error) {
    static const mgv__activation_row rows[] = {
        {"gelu_pytorch_tanh", MGV__ACT_GELU_TANH}, {"gelu_new", MGV__ACT_GELU_TANH}, {"gelu", MGV__ACT_GELU_ERF},
        {"quick_gelu", MGV__ACT_GELU_QUICK}, {"silu", MGV__ACT_SILU}, {"swish", MGV__ACT_SILU}, {"relu", MGV__ACT_RELU},
    };
    size_t i;
    if (*value != '"') return mgv__fail(error, MGV_ERROR_MODEL, "%s: %s is not a string", file, field->key);
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!mgv__json_is(value, rows[i].name)) continue;
        memcpy(target, &rows[i].activation, sizeof rows[i].activation);
        return MGV_OK;
    }
    return mgv__fail(error, MGV_ERROR_UNSUPPORTED, "%s: %s %q is not one that is run", file, field->key, mgv__json_string(value, value));
}
/* transformers 5 writes {"rope_theta": ..., "rope_type": "axial"}; plain tables are all that vision towers have. */
static mgv_result mgv__read_rope(const mgv__field *field, void *target, char *value, const char *file, mgv_error *error) {
    static const mgv__field theta[] = {{"rope_theta", mgv__read_float, 0, 1, 1e12}};
    char *type;
    if (*value != '{') return mgv__fail(error, MGV_ERROR_MODEL, "%s: %s is not an object", file, field->key);
    type = mgv__json_member(value, "rope_type");
    if (type != NULL && !mgv__json_is(type, "axial") && !mgv__json_is(type, "default")) {
        return mgv__fail(error, MGV_ERROR_UNSUPPORTED, "%s: %s has a rope_type other than axial", file, field->key);
    }
    return mgv__fields_read(theta, 1, target, value, file, error);
}

/* Limits far above every published model; they keep products of them small enough for 64 bits. */
static const mgv__field mgv__image_fields[] = { /* transformers, SiglipVisionConfig, CLIPVisionConfig, Dinov2Config, DINOv3ViTConfig */
    {"hidden_size", mgv__read_integer, offsetof(mgv__config, hidden), 1, 16384},
    {"intermediate_size", mgv__read_integer, offsetof(mgv__config, intermediate), 1, 65536},
    {"num_hidden_layers", mgv__read_integer, offsetof(mgv__config, layers), 1, 512},
    {"num_attention_heads", mgv__read_integer, offsetof(mgv__config, heads), 1, 1024},
    {"num_channels", mgv__read_integer, offsetof(mgv__config, channels), 1, 1024},
    {"image_size", mgv__read_side, offsetof(mgv__config, image_size), 1, 16384},
    {"patch_size", mgv__read_side, offsetof(mgv__config, patch), 1, 1024},
    {"hidden_act", mgv__read_activation, offsetof(mgv__config, activation), 0, 0},
    {"layer_norm_eps", mgv__read_float, offsetof(mgv__config, epsilon), 1e-30, 1},
};
static const mgv__field mgv__siglip_fields[] = {
    {"vision_use_head", mgv__read_bool, offsetof(mgv__config, use_head), 0, 0},
};
static const mgv__field mgv__dinov2_fields[] = { /* transformers, Dinov2Config and Dinov2WithRegistersConfig */
    {"mlp_ratio", mgv__read_float, offsetof(mgv__config, mlp_ratio), 1e-3, 1024},
    {"use_swiglu_ffn", mgv__read_bool, offsetof(mgv__config, gated), 0, 0},
    {"num_register_tokens", mgv__read_integer, offsetof(mgv__config, registers), 0, 65536},
};
static const mgv__field mgv__dinov3_fields[] = {
    {"use_gated_mlp", mgv__read_bool, offsetof(mgv__config, gated), 0, 0},
    {"num_register_tokens", mgv__read_integer, offsetof(mgv__config, registers), 0, 65536},
    {"rope_theta", mgv__read_float, offsetof(mgv__config, rope_theta), 1, 1e12},
};
static const mgv__field mgv__qwen_fields[] = { /* transformers, Qwen3VLVisionConfig and Qwen2_5_VLVisionConfig */
    {"hidden_size", mgv__read_integer, offsetof(mgv__config, hidden), 1, 16384},
    {"intermediate_size", mgv__read_integer, offsetof(mgv__config, intermediate), 1, 65536},
    {"depth", mgv__read_integer, offsetof(mgv__config, layers), 1, 512},
    {"num_heads", mgv__read_integer, offsetof(mgv__config, heads), 1, 1024},
    {"in_channels", mgv__read_integer, offsetof(mgv__config, channels), 1, 1024},
    {"in_chans", mgv__read_integer, offsetof(mgv__config, channels), 1, 1024},
    {"patch_size", mgv__read_side, offsetof(mgv__config, patch), 1, 1024},
    {"temporal_patch_size", mgv__read_side, offsetof(mgv__config, temporal_patch), 1, 64},
    {"spatial_merge_size", mgv__read_integer, offsetof(mgv__config, merge), 1, 64},
    {"out_hidden_size", mgv__read_integer, offsetof(mgv__config, out_hidden), 1, 65536},
    {"hidden_act", mgv__read_activation, offsetof(mgv__config, activation), 0, 0},
    {"rope_theta", mgv__read_float, offsetof(mgv__config, rope_theta), 1, 1e12},
    {"rope_parameters", mgv__read_rope, offsetof(mgv__config, rope_theta), 0, 0},
};
static const mgv__field mgv__qwen2_fields[] = { /* transformers, Qwen2VLVisionConfig: hidden_size is of the merged tokens */
    {"embed_dim", mgv__read_integer, offsetof(mgv__config, hidden), 1, 16384},
    {"hidden_size", mgv__read_integer, offsetof(mgv__config, out_hidden), 1, 65536},
    {"depth", mgv__read_integer, offsetof(mgv__config, layers), 1, 512},
    {"num_heads", mgv__read_integer, offsetof(mgv__config, heads), 1, 1024},
    {"in_channels", mgv__read_integer, offsetof(mgv__config, channels), 1, 1024},
    {"patch_size", mgv__read_side, offsetof(mgv__config, patch), 1, 1024},
    {"temporal_patch_size", mgv__read_side, offsetof(mgv__config, temporal_patch), 1, 64},
    {"spatial_merge_size", mgv__read_integer, offsetof(mgv__config, merge), 1, 64},
    {"hidden_act", mgv__read_activation, offsetof(mgv__config, activation), 0, 0},
    {"mlp_ratio", mgv__read_float, offsetof(mgv__config, mlp_ratio), 1e-3, 1024},
    {"rope_theta", mgv__read_float, offsetof(mgv__config, rope_theta), 1, 1e12},
    {"rope_parameters", mgv__read_rope, offsetof(mgv__config, rope_theta), 0, 0},
};
static const mgv__field mgv__qwen3_fields[] = {
    {"num_position_embeddings", mgv__read_square, offsetof(mgv__config, position_side), 1, 1048576},
    {"deepstack_visual_indexes", mgv__read_deepstack, 0, 0, 511},
};
static const mgv__field mgv__qwen2_5_fields[] = {
    {"window_size", mgv__read_integer, offsetof(mgv__config, window_size), 1, 65536},
    {"fullatt_block_indexes", mgv__read_full_attention, 0, 0, 65535},
};

/* ---- Families ---- */

/* What `size` of an image processor says. */
enum {
    MGV__SIZE_EXACT = 0, /* height and width, whatever the picture's */
    MGV__SIZE_AREA       /* limits of the area; sides become multiples of patch * merge (smart_resize) */
};
/* What the limits of a clip are on. */
enum { MGV__CLIPS_NONE = 0 /* still pictures only */, MGV__CLIPS_AREA, MGV__CLIPS_VOLUME /* frames * width * height */ };

/* An image processor of transformers. Both texts are in the words of preprocessor_config.json. */
typedef struct mgv__processor {
    int32_t size;          /* MGV__SIZE_* */
    int32_t clips;         /* MGV__CLIPS_* */
    const char *defaults;  /* of the class: what a key stands for that its file does not have */
    const char *published; /* what the family's files have instead: for a directory without one */
} mgv__processor;

typedef struct mgv__builder mgv__builder;
typedef void mgv__build_function(mgv__builder *b); /* see >>builders */
static mgv__build_function mgv__build_siglip, mgv__build_clip, mgv__build_dinov2, mgv__build_dinov3, mgv__build_qwen2_vl,
                           mgv__build_qwen2_5_vl, mgv__build_qwen3_vl;

/* All that is particular to a family: a new one is a row, its builder, and the table of its config's keys. */
typedef struct mgv__family {
    mgv_family family;
    const char *name;
    const char *whole[4];  /* model_type of models with a text part, whose vision_config is meant; older versions gave it to towers, too */
    const char *vision[4]; /* model_type of the tower alone */
    const mgv__field *fields;
    size_t field_count;
    const mgv__field *more_fields;
    size_t more_field_count;
    const char *defaults;  /* of the config class of transformers, in the words of config.json */
    mgv__interpolation interpolation; /* how its position table is read */
    int32_t class_token;   /* a row of its own stands before the patches', and before the register tokens' */
    int32_t rope_centered; /* as in mgv__config */
    mgv__processor processor;
    mgv__build_function *build;
} mgv__family;

#define MGV__FIELDS(table) table, sizeof table / sizeof table[0]
#define MGV__JSON(...) #__VA_ARGS__ /* C tokens as they stand, which JSON's are too */
enum { MGV__MAX_DEFAULTS_BYTES = 512 };
static const mgv__family mgv__families[] = {
    {MGV_FAMILY_SIGLIP, "SigLIP", {"siglip"}, {"siglip_vision_model"}, MGV__FIELDS(mgv__image_fields), MGV__FIELDS(mgv__siglip_fields),
     MGV__JSON({"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12, "image_size": 224,
                "patch_size": 16, "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6, "vision_use_head": true}),
     MGV__TABLE_AS_IT_IS, 0, 0,
     {MGV__SIZE_EXACT, MGV__CLIPS_NONE,
      MGV__JSON({"resample": 3, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}), "{}"},
     mgv__build_siglip},
    {MGV_FAMILY_QWEN3_VL, "Qwen3-VL", {"qwen3_vl", "qwen3_vl_moe"}, {"qwen3_vl_vision", "qwen3_vl_moe_vision"},
     MGV__FIELDS(mgv__qwen_fields), MGV__FIELDS(mgv__qwen3_fields),
     MGV__JSON({"hidden_size": 1152, "intermediate_size": 4304, "depth": 27, "num_heads": 16, "patch_size": 16,
                "hidden_act": "gelu_pytorch_tanh", "temporal_patch_size": 2, "spatial_merge_size": 2, "out_hidden_size": 3584,
                "num_position_embeddings": 2304, "deepstack_visual_indexes": [8, 16, 24], "rope_theta": 10000}),
     MGV__TABLE_ENDS, 0, 0,
     {MGV__SIZE_AREA, MGV__CLIPS_VOLUME,
      MGV__JSON({"resample": 3, "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711],
                 "size": {"shortest_edge": 3136, "longest_edge": 1003520}}),
      MGV__JSON({"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
                 "size": {"shortest_edge": 65536, "longest_edge": 16777216}})},
     mgv__build_qwen3_vl},
    {MGV_FAMILY_QWEN2_5_VL, "Qwen2.5-VL", {"qwen2_5_vl"}, {"qwen2_5_vl_vision"},
     MGV__FIELDS(mgv__qwen_fields), MGV__FIELDS(mgv__qwen2_5_fields),
     MGV__JSON({"hidden_size": 3584, "intermediate_size": 3420, "depth": 32, "num_heads": 16, "patch_size": 14, "hidden_act": "silu",
                "temporal_patch_size": 2, "spatial_merge_size": 2, "out_hidden_size": 3584, "window_size": 112,
                "fullatt_block_indexes": [7, 15, 23, 31], "rope_theta": 10000}),
     MGV__TABLE_AS_IT_IS, 0, 0,
     {MGV__SIZE_AREA, MGV__CLIPS_AREA,
      MGV__JSON({"resample": 3, "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711],
                 "size": {"shortest_edge": 3136, "longest_edge": 1003520}}),
      MGV__JSON({"size": {"shortest_edge": 3136, "longest_edge": 12845056}})},
     mgv__build_qwen2_5_vl},
    {MGV_FAMILY_CLIP, "CLIP", {"clip"}, {"clip_vision_model"}, MGV__FIELDS(mgv__image_fields), NULL, 0,
     MGV__JSON({"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12, "image_size": 224,
                "patch_size": 32, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5}),
     MGV__TABLE_AS_IT_IS, 1, 0,
     {MGV__SIZE_EXACT, MGV__CLIPS_NONE,
      MGV__JSON({"resample": 3, "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}),
      "{}"},
     mgv__build_clip},
    {MGV_FAMILY_DINOV2, "DINOv2", {"dinov2"}, {"dinov2"}, MGV__FIELDS(mgv__image_fields), MGV__FIELDS(mgv__dinov2_fields),
     MGV__JSON({"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "mlp_ratio": 4, "image_size": 224,
                "patch_size": 14, "hidden_act": "gelu", "layer_norm_eps": 1e-6}),
     MGV__TABLE_CUBIC, 1, 0,
     {MGV__SIZE_EXACT, MGV__CLIPS_NONE,
      MGV__JSON({"resample": 3, "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}),
      MGV__JSON({"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]})},
     mgv__build_dinov2},
    {MGV_FAMILY_DINOV2_REGISTERS, "DINOv2 with registers", {"dinov2_with_registers"}, {"dinov2_with_registers"},
     MGV__FIELDS(mgv__image_fields), MGV__FIELDS(mgv__dinov2_fields),
     MGV__JSON({"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "mlp_ratio": 4, "image_size": 224,
                "patch_size": 16, "hidden_act": "gelu", "layer_norm_eps": 1e-6, "num_register_tokens": 4}),
     MGV__TABLE_CUBIC_AREA, 1, 0,
     {MGV__SIZE_EXACT, MGV__CLIPS_NONE,
      MGV__JSON({"resample": 3, "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}),
      MGV__JSON({"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]})},
     mgv__build_dinov2},
    {MGV_FAMILY_DINOV3, "DINOv3", {"dinov3_vit"}, {"dinov3_vit"}, MGV__FIELDS(mgv__image_fields), MGV__FIELDS(mgv__dinov3_fields),
     MGV__JSON({"hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 12, "num_attention_heads": 6, "image_size": 224,
                "patch_size": 16, "hidden_act": "gelu", "layer_norm_eps": 1e-5, "rope_theta": 100}),
     MGV__TABLE_AS_IT_IS, 1, 1,
     {MGV__SIZE_EXACT, MGV__CLIPS_NONE,
      MGV__JSON({"resample": 2, "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}), "{}"},
     mgv__build_dinov3},
    {MGV_FAMILY_QWEN3_5, "Qwen3.5", {"qwen3_5", "qwen3_5_moe"}, {"qwen3_5_vision", "qwen3_5_moe_vision"},
     MGV__FIELDS(mgv__qwen_fields), MGV__FIELDS(mgv__qwen3_fields),
     MGV__JSON({"hidden_size": 1152, "intermediate_size": 4304, "depth": 27, "num_heads": 16, "patch_size": 16,
                "hidden_act": "gelu_pytorch_tanh", "temporal_patch_size": 2, "spatial_merge_size": 2, "out_hidden_size": 3584,
                "num_position_embeddings": 2304, "deepstack_visual_indexes": [], "rope_theta": 10000}),
     MGV__TABLE_ENDS, 0, 0,
     {MGV__SIZE_AREA, MGV__CLIPS_VOLUME,
      MGV__JSON({"resample": 3, "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711],
                 "size": {"shortest_edge": 3136, "longest_edge": 1003520}}),
      MGV__JSON({"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
                 "size": {"shortest_edge": 65536, "longest_edge": 16777216}})},
     mgv__build_qwen3_vl},
    {MGV_FAMILY_QWEN2_VL, "Qwen2-VL", {"qwen2_vl"}, {"qwen2_vl_vision"}, MGV__FIELDS(mgv__qwen2_fields), NULL, 0,
     MGV__JSON({"embed_dim": 1280, "hidden_size": 3584, "depth": 32, "num_heads": 16, "mlp_ratio": 4, "patch_size": 14,
                "hidden_act": "quick_gelu", "temporal_patch_size": 2, "spatial_merge_size": 2, "rope_theta": 10000}),
     MGV__TABLE_AS_IT_IS, 0, 0,
     {MGV__SIZE_AREA, MGV__CLIPS_AREA,
      MGV__JSON({"resample": 3, "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711],
                 "size": {"shortest_edge": 3136, "longest_edge": 1003520}}),
      MGV__JSON({"size": {"shortest_edge": 3136, "longest_edge": 12845056}})},
     mgv__build_qwen2_vl},
};
#define MGV__FAMILY_ROWS (sizeof mgv__families / sizeof mgv__families[0])

static const mgv__family *mgv__find_family(mgv_family family) {
    size_t i;
    for (i = 0; i < MGV__FAMILY_ROWS; i++)
        if (mgv__families[i].family == family) return &mgv__families[i];
    return NULL;
}
static int mgv__json_is_one_of(const char *value, const char *const names[4]) {
    int i;
    for (i = 0; i < 4 && names[i] != NULL; i++)
        if (mgv__json_is(value, names[i])) return 1;
    return 0;
}
/* A family's own JSON, through the readers that files go through. */
static mgv_result mgv__defaults_read(const mgv__field *fields, size_t count, void *target, const char *defaults, mgv_error *error) {
    char text[MGV__MAX_DEFAULTS_BYTES];
    memcpy(text, defaults, strlen(defaults) + 1);
    return mgv__fields_read(fields, count, target, text, "the defaults of the family", error);
}

/* The family of a config, and the object with the vision tower's keys: vision_config where there is one, whatever the whole model is
   (PaliGemma and others carry a SigLIP tower), else the top level of a saved tower. *vision: NULL where nothing is said about it. */
static mgv_result mgv__config_find_vision(char *root, const char *file, const mgv__family **family, char **vision, mgv_error *error) {
    char *type = mgv__json_member(root, "model_type"), *inner_type = NULL, known[256] = "";
    size_t i;
    *vision = mgv__json_member(root, "vision_config");
    if (*vision != NULL && **vision == 'n') *vision = NULL;
    if (*vision != NULL && **vision != '{') return mgv__fail(error, MGV_ERROR_MODEL, "%s: vision_config is not an object", file);
    if (*vision != NULL) inner_type = mgv__json_member(*vision, "model_type");
    if (inner_type != NULL && *inner_type == '"') type = inner_type;
    if (type == NULL && (mgv__json_member(root, "pretrained_cfg") != NULL || mgv__json_member(root, "model_cfg") != NULL)) {
        return mgv__fail(error, MGV_ERROR_UNSUPPORTED, "%s: a model of %s, whose tensors have other names; take the files for transformers",
                         file, mgv__json_member(root, "model_cfg") != NULL ? "open_clip" : "timm");
    }
    if (type == NULL || *type != '"') return mgv__fail(error, MGV_ERROR_MODEL, "%s: model_type is not a string", file);
    for (i = 0; i < MGV__FAMILY_ROWS; i++) {
        int alone = mgv__json_is_one_of(type, mgv__families[i].vision);
        *family = &mgv__families[i];
        if (!alone && !mgv__json_is_one_of(type, (*family)->whole)) continue;
        if (*vision == NULL && (alone || mgv__json_member(root, "depth") != NULL)) *vision = root;
        return MGV_OK;
    }
    for (i = 0; i < MGV__FAMILY_ROWS; i++) {
        size_t used = strlen(known);
        mgv__print(known + used, sizeof known - used, i == 0 ? "%s" : ", %s", mgv__families[i].name);
    }
    return mgv__fail(error, MGV_ERROR_UNSUPPORTED, "%s: model_type %q has no vision tower that is known here, which are %s", file,
                     mgv__json_string(type, type), known);
}
/* quantization_config of transformers, or MLX's quantization. */
static void mgv__config_find_quantisation(mgv__config *config, char *root) {
    char *object = mgv__json_member(root, "quantization_config"), *mlx = mgv__json_member(root, "quantization"), *method = NULL;
    if (object != NULL && *object == '{') method = mgv__json_member(object, "quant_method");
    if (method != NULL && *method == '"' && (size_t)(mgv__json_skip_string(method) - method) <= sizeof config->quantised_by) {
        mgv__json_string(method, config->quantised_by);
    } else if ((object != NULL && *object == '{') || (mlx != NULL && *mlx == '{')) {
        mgv__print(config->quantised_by, sizeof config->quantised_by, "%s", mlx != NULL ? "MLX" : "quantization_config");
    }
}
/* Pictures may be of another size than those that the model was trained with. */
static int mgv__config_any_size(const mgv__config *config) {
    return config->position_side == 0 || config->interpolation != MGV__TABLE_AS_IT_IS;
}
/* What single keys cannot tell. */
static mgv_result mgv__config_check(const mgv__config *config, const char *file, mgv_error *error) {
    uint32_t i;
    if (config->channels != 3) return mgv__fail(error, MGV_ERROR_UNSUPPORTED, "%s: %u channels, not 3", file, (uint64_t)config->channels);
    if (config->hidden % config->heads != 0) {
        return mgv__fail(error, MGV_ERROR_MODEL, "%s: a hidden size of %u is no multiple of %u heads", file, (uint64_t)config->hidden,
                         (uint64_t)config->heads);
    }
    if (config->head_dim > MGV__MAX_HEAD_DIM) {
        return mgv__fail(error, MGV_ERROR_UNSUPPORTED, "%s: heads of %u columns, more than %u", file, (uint64_t)config->head_dim,
                         (uint64_t)MGV__MAX_HEAD_DIM);
    }
    if (config->image_size != 0 && config->image_size < config->patch) {
        return mgv__fail(error, MGV_ERROR_MODEL, "%s: a patch of %u pixels is larger than the image of %u", file, (uint64_t)config->patch,
                         (uint64_t)config->image_size);
    }
    if (config->intermediate == 0 || config->intermediate > 65536) {
        return mgv__fail(error, MGV_ERROR_MODEL, "%s: MLPs of %u columns; from 1 to 65536 can be", file, (uint64_t)config->intermediate);
    }
    if (config->rope_theta != 0 && config->head_dim % 4 != 0) {
        return mgv__fail(error, MGV_ERROR_MODEL, "%s: heads of %u columns, not a multiple of 4, have no two rotary axes", file,
                         (uint64_t)config->head_dim);
    }
    if (config->window_size != 0 && config->window_size / config->merge / config->patch == 0) {
        return mgv__fail(error, MGV_ERROR_MODEL, "%s: a window of %u pixels is smaller than %u by %u patches of %u", file,
                         (uint64_t)config->window_size, (uint64_t)config->merge, (uint64_t)config->merge, (uint64_t)config->patch);
    }
    for (i = 0; i < config->deepstack_count; i++) {
        if (config->deepstack[i] < config->layers) continue;
        return mgv__fail(error, MGV_ERROR_MODEL, "%s: deepstack_visual_indexes has layer %u of %u layers", file,
                         (uint64_t)config->deepstack[i], (uint64_t)config->layers);
    }
    return MGV_OK;
}
static mgv_result mgv__config_parse(mgv__config *config, char *root, const char *file, mgv_error *error) {
    const mgv__family *family = NULL;
    char *vision;
    mgv_result result = mgv__config_find_vision(root, file, &family, &vision, error);
    if (result != MGV_OK) return result;
    memset(config, 0, sizeof *config);
    config->family = family->family;
    mgv__config_find_quantisation(config, root);
    config->channels = 3;
    config->epsilon = 1e-6f; /* fixed in Qwen's towers */
    config->temporal_patch = config->merge = 1;
    config->interpolation = family->interpolation;
    result = mgv__defaults_read(family->fields, family->field_count, config, family->defaults, error);
    if (result == MGV_OK) result = mgv__defaults_read(family->more_fields, family->more_field_count, config, family->defaults, error);
    if (result == MGV_OK && vision != NULL) result = mgv__fields_read(family->fields, family->field_count, config, vision, file, error);
    if (result == MGV_OK && vision != NULL) {
        result = mgv__fields_read(family->more_fields, family->more_field_count, config, vision, file, error);
    }
    if (result != MGV_OK) return result;
    config->head_dim = config->hidden / config->heads;
    if (config->out_hidden == 0) config->out_hidden = config->hidden;
    config->rope_centered = family->rope_centered;
    if (config->mlp_ratio > 0) config->intermediate = (uint32_t)((double)config->hidden * (double)config->mlp_ratio);
    if (config->mlp_ratio > 0 && config->gated) { /* Dinov2SwiGLUFFN */
        config->intermediate = (config->intermediate * 2 / 3 + 7) / 8 * 8;
        config->activation = MGV__ACT_SILU;
    }
    if (config->image_size != 0 && config->rope_theta == 0) config->position_side = config->image_size / config->patch;
    if (family->class_token) config->prefix = 1 + config->registers;
    if (config->position_side != 0) config->position_first = (uint32_t)family->class_token;
    return mgv__config_check(config, file, error);
}

static mgv_result mgv__read_fixed_size(const mgv__field *field, void *target, char *value, const char *file, mgv_error *error) {
    static const mgv__field sides[] = {
        {"height", mgv__read_integer, offsetof(mgv__pixels_config, fixed_height), 1, 16384},
        {"width", mgv__read_integer, offsetof(mgv__pixels_config, fixed_width), 1, 16384},
    };
    if (*value != '{' || mgv__json_member(value, "height") == NULL || mgv__json_member(value, "width") == NULL) {
        return mgv__fail(error, MGV_ERROR_UNSUPPORTED, "%s: %s is not an object of height and width", file, field->key);
    }
    return mgv__fields_read(MGV__FIELDS(sides), target, value, file, error);
}
/* Areas, in spite of their names: a lower limit and the upper one behind it. */
static mgv_result mgv__read_area_limits(const mgv__field *field, void *target, char *value, const char *file, mgv_error *error) {
    static const mgv__field limits[] = {
        {"shortest_edge", mgv__read_large_integer, 0, 1, 1e12},
        {"longest_edge", mgv__read_large_integer, sizeof(uint64_t), 1, 1e12},
    };
    if (*value != '{') {
        return mgv__fail(error, MGV_ERROR_UNSUPPORTED, "%s: %s is not an object of shortest_edge and longest_edge", file, field->key);
    }
    return mgv__fields_read(MGV__FIELDS(limits), target, value, file, error);
}
static const mgv__field mgv__pixels_fields[] = { /* transformers, image_processing_backends.py */
    {"resample", mgv__read_integer, offsetof(mgv__pixels_config, resample), 0, 5},
    {"do_resize", mgv__read_bool, offsetof(mgv__pixels_config, do_resize), 0, 0},
    {"do_rescale", mgv__read_bool, offsetof(mgv__pixels_config, do_rescale), 0, 0},
    {"do_normalize", mgv__read_bool, offsetof(mgv__pixels_config, do_normalize), 0, 0},
    {"rescale_factor", mgv__read_number, offsetof(mgv__pixels_config, rescale_factor), 1e-12, 1e12},
    {"image_mean", mgv__read_three_numbers, offsetof(mgv__pixels_config, mean), -1e6, 1e6},
    {"image_std", mgv__read_three_numbers, offsetof(mgv__pixels_config, std), 1e-6, 1e6},
    {"do_center_crop", mgv__read_refused, 0, 0, 0},
    {"do_pad", mgv__read_refused, 0, 0, 0},
    {"do_pan_and_scan", mgv__read_refused, 0, 0, 0},
    {"do_image_splitting", mgv__read_refused, 0, 0, 0},
};
static const mgv__field mgv__exact_size_fields[] = {
    {"size", mgv__read_fixed_size, 0, 0, 0},
};
MGV__STATIC_ASSERT(offsetof(mgv__pixels_config, max_pixels) == offsetof(mgv__pixels_config, min_pixels) + sizeof(uint64_t),
                   limits_side_by_side);
MGV__STATIC_ASSERT(offsetof(mgv__pixels_config, clip_max_pixels) == offsetof(mgv__pixels_config, clip_min_pixels) + sizeof(uint64_t),
                   clip_limits_side_by_side);
static const mgv__field mgv__qwen_pixels_fields[] = {
    {"size", mgv__read_area_limits, offsetof(mgv__pixels_config, min_pixels), 0, 0},
    {"patch_size", mgv__read_integer, offsetof(mgv__pixels_config, patch), 1, 1024},
    {"temporal_patch_size", mgv__read_integer, offsetof(mgv__pixels_config, temporal_patch), 1, 64},
    {"merge_size", mgv__read_integer, offsetof(mgv__pixels_config, merge), 1, 64},
};
static const mgv__field mgv__qwen_pixels_overrides[] = { /* older spellings, which win over size */
    {"min_pixels", mgv__read_large_integer, offsetof(mgv__pixels_config, min_pixels), 1, 1e12},
    {"max_pixels", mgv__read_large_integer, offsetof(mgv__pixels_config, max_pixels), 1, 1e12},
};
static const mgv__field mgv__qwen_clip_fields[] = {
    {"size", mgv__read_area_limits, offsetof(mgv__pixels_config, clip_min_pixels), 0, 0},
};
static const mgv__field mgv__qwen_clip_overrides[] = {
    {"min_pixels", mgv__read_large_integer, offsetof(mgv__pixels_config, clip_min_pixels), 1, 1e12},
    {"max_pixels", mgv__read_large_integer, offsetof(mgv__pixels_config, clip_max_pixels), 1, 1e12},
};

/* One object's keys. `size` and its older spellings depend on the form that sizes have. */
static mgv_result mgv__pixels_fields_read(mgv__pixels_config *pixels, const mgv__processor *processor, char *object, const char *file,
                                          mgv_error *error) {
    mgv_result result;
    if (processor->size == MGV__SIZE_EXACT) {
        result = mgv__fields_read(MGV__FIELDS(mgv__exact_size_fields), pixels, object, file, error);
    } else {
        result = mgv__fields_read(MGV__FIELDS(mgv__qwen_pixels_fields), pixels, object, file, error);
        if (result == MGV_OK) result = mgv__fields_read(MGV__FIELDS(mgv__qwen_pixels_overrides), pixels, object, file, error);
    }
    return result == MGV_OK ? mgv__fields_read(MGV__FIELDS(mgv__pixels_fields), pixels, object, file, error) : result;
}
/* The defaults of the family's image processor; sizes that can only be the model's are taken from it. */
static mgv_result mgv__pixels_defaults(mgv__pixels_config *pixels, const mgv__config *config, mgv_error *error) {
    const mgv__processor *processor = &mgv__find_family(config->family)->processor;
    char text[MGV__MAX_DEFAULTS_BYTES];
    memset(pixels, 0, sizeof *pixels);
    pixels->do_resize = pixels->do_rescale = pixels->do_normalize = 1;
    pixels->rescale_factor = 1.0 / 255.0;
    pixels->patch = config->patch;
    pixels->temporal_patch = config->temporal_patch;
    pixels->merge = config->merge;
    pixels->factor = config->patch * config->merge;
    pixels->fixed_width = pixels->fixed_height = config->image_size;
    pixels->clip_counts_frames = processor->clips == MGV__CLIPS_VOLUME;
    memcpy(text, processor->defaults, strlen(processor->defaults) + 1);
    return mgv__pixels_fields_read(pixels, processor, text, "the defaults of the family", error);
}
static mgv_result mgv__pixels_parse(mgv__pixels_config *pixels, const mgv__config *config, char *object, const char *file,
                                    mgv_error *error) {
    mgv_result result = mgv__pixels_fields_read(pixels, &mgv__find_family(config->family)->processor, object, file, error);
    if (result != MGV_OK) return result;
    if (pixels->resample != MGV__RESAMPLE_BILINEAR && pixels->resample != MGV__RESAMPLE_BICUBIC) {
        return mgv__fail(error, MGV_ERROR_UNSUPPORTED, "%s: resample %i, neither 2 (bilinear) nor 3 (bicubic)", file,
                         (int64_t)pixels->resample);
    }
    if (!mgv__config_any_size(config) && (pixels->fixed_width != config->image_size || pixels->fixed_height != config->image_size)) {
        return mgv__fail(error, MGV_ERROR_MODEL, "%s: pictures become %u x %u pixels, the model takes %u x %u", file,
                         (uint64_t)pixels->fixed_width, (uint64_t)pixels->fixed_height, (uint64_t)config->image_size,
                         (uint64_t)config->image_size);
    }
    if (pixels->patch != config->patch || pixels->temporal_patch != config->temporal_patch || pixels->merge != config->merge) {
        return mgv__fail(error, MGV_ERROR_MODEL,
                         "%s: patches of %u pixels and %u frames, merged %u by %u; the model has %u, %u and %u by %u", file,
                         (uint64_t)pixels->patch, (uint64_t)pixels->temporal_patch, (uint64_t)pixels->merge, (uint64_t)pixels->merge,
                         (uint64_t)config->patch, (uint64_t)config->temporal_patch, (uint64_t)config->merge, (uint64_t)config->merge);
    }
    if (pixels->min_pixels > pixels->max_pixels) {
        return mgv__fail(error, MGV_ERROR_MODEL, "%s: at least %u pixels and at most %u", file, pixels->min_pixels, pixels->max_pixels);
    }
    return MGV_OK;
}
/* What a processor was saved with: `own`, a file; or else `key` in processor_config.json, where transformers 5 keeps it; or
   else nothing, and *object is NULL. *text is to be freed. */
static mgv_result mgv__processor_read(mgv__source *source, const char *own, const char *key, const char **file, char **text, char **object,
                                      mgv_error *error) {
    size_t bytes;
    int absent;
    mgv_result result = mgv__source_read_json(source, own, text, &bytes, &absent, error);
    *object = NULL;
    *file = own;
    if (result != MGV_OK) return result;
    if (*text != NULL) {
        *object = mgv__json_skip_space(*text);
        return MGV_OK;
    }
    *file = "processor_config.json";
    result = mgv__source_read_json(source, *file, text, &bytes, &absent, error);
    if (result != MGV_OK || *text == NULL) return result;
    *object = mgv__json_member(mgv__json_skip_space(*text), key);
    if (*object != NULL && **object != '{') *object = NULL;
    return MGV_OK;
}
/* Of a video processor only the limits are taken; without one, clips have those of pictures, as in transformers. */
static mgv_result mgv__clip_limits_read(mgv__pixels_config *pixels, mgv__source *source, mgv_error *error) {
    const char *file;
    char *text, *object;
    mgv_result result = mgv__processor_read(source, "video_preprocessor_config.json", "video_processor", &file, &text, &object, error);
    if (result != MGV_OK) return result;
    if (object != NULL) {
        result = mgv__fields_read(MGV__FIELDS(mgv__qwen_clip_fields), pixels, object, file, error);
        if (result == MGV_OK) result = mgv__fields_read(MGV__FIELDS(mgv__qwen_clip_overrides), pixels, object, file, error);
    }
    if (result == MGV_OK && pixels->clip_max_pixels != 0 && pixels->clip_min_pixels > pixels->clip_max_pixels)
        result = mgv__fail(error, MGV_ERROR_MODEL, "%s: at least %u pixels and at most %u", file, pixels->clip_min_pixels,
                           pixels->clip_max_pixels);
    mgv__free(&source->allocator, text);
    return result;
}
static mgv_result mgv__pixels_read(mgv__config *config, mgv__source *source, mgv_error *error) {
    const mgv__processor *processor = &mgv__find_family(config->family)->processor;
    const char *file;
    char *text, *object, published[MGV__MAX_DEFAULTS_BYTES];
    mgv_result result;
    result = mgv__pixels_defaults(&config->pixels, config, error);
    if (result != MGV_OK) return result;
    result = mgv__processor_read(source, "preprocessor_config.json", "image_processor", &file, &text, &object, error);
    if (result != MGV_OK) return result;
    if (object == NULL) {
        memcpy(published, processor->published, strlen(processor->published) + 1);
        object = published;
        file = "what the family published";
    }
    result = mgv__pixels_parse(&config->pixels, config, object, file, error);
    mgv__free(&source->allocator, text);
    if (result != MGV_OK) return result;
    if (config->pixels.fixed_width && mgv__config_any_size(config)) /* the size is the processor's to choose */
        config->image_size = config->pixels.fixed_width == config->pixels.fixed_height ? config->pixels.fixed_width : 0;
    if (processor->clips == MGV__CLIPS_NONE) return MGV_OK;
    return mgv__clip_limits_read(&config->pixels, source, error);
}
/* A name of the Hugging Face hub, owner/name, rather than a path. */
static int mgv__is_hub_name(const char *path) {
    const char *slash = path ? strchr(path, '/') : NULL;
    return slash != NULL && slash != path && path[0] != '.' && path[0] != '~' && slash[1] != 0 && strchr(slash + 1, '/') == NULL;
}
/* Why there is no config.json. */
static mgv_result mgv__config_explain_absence(mgv__source *source, mgv_error *error) {
    int open_clip;
    mgv_result result = mgv__source_has(source, "open_clip_config.json", &open_clip, error);
    if (result != MGV_OK) return result;
    if (open_clip) {
        return mgv__fail(error, MGV_ERROR_UNSUPPORTED,
                         "open_clip_config.json and no config.json: a model of open_clip, whose tensors have other names; take the files "
                         "for transformers");
    }
    if (mgv__is_hub_name(source->path)) {
        return mgv__fail(error, MGV_ERROR_IO,
                         "there is no such directory with a config.json; if this is a model's name on the Hugging Face hub, download it: "
                         "hf download %s --local-dir DIRECTORY", source->path);
    }
    return mgv__fail(error, MGV_ERROR_IO, "there is no %sconfig.json", source->snapshot);
}
/* config.json, and what belongs to it for preprocessing. A failed call leaves config without meaning. */
static mgv_result mgv__config_read(mgv__config *config, mgv__source *source, mgv_error *error) {
    static const char file[] = "config.json";
    char *text;
    size_t bytes;
    int absent, found;
    mgv_result result = mgv__source_read_json(source, file, &text, &bytes, &absent, error);
    if (result == MGV_OK && absent) {
        result = mgv__source_enter_snapshot(source, &found, error);
        if (result == MGV_OK && found) result = mgv__source_read_json(source, file, &text, &bytes, &absent, error);
        if (result == MGV_OK && text == NULL) result = mgv__config_explain_absence(source, error);
    }
    if (result != MGV_OK) return result;
    result = mgv__config_parse(config, mgv__json_skip_space(text), file, error);
    mgv__free(&source->allocator, text);
    if (result != MGV_OK) return result;
    return mgv__pixels_read(config, source, error);
}

/* ---------------------------------------------------------------------------------------------------------------
   >>pixels: from pixels to patches

   Each output row is made from the source rows in its window, converted to planes (R, G, B, or one of grey), resized to 8 bits a
   sample exactly as Pillow or torchvision does it, and written through one table of 256 floats a channel. Between the two passes of
   the resize only a ring of rows is kept. Sources: Pillow 13.0.0, src/libImaging/Resample.c; PyTorch 2.11,
   aten/src/ATen/native/cpu/UpSampleKernel.cpp; transformers 5.17, image_processing_backends.py and models/qwen2_vl. */

typedef int32_t mgv__pixels_layout;
enum {
    MGV__PIXELS_CHW = 0, /* [frames, 3, height, width] */
    MGV__PIXELS_PATCHES, /* [tokens, 3 * temporal_patch * patch * patch], the rows that the patch embedding multiplies */
    MGV__PIXELS_RGB8     /* [frames, height, width, 3] bytes, resized and not normalised: what the GPU kernel takes */
};

enum {
    MGV__MAX_SIDE = 1 << 24,            /* of a picture: keeps width * height exact in a double */
    MGV__MAX_FRAMES = 1 << 16,
    MGV__MAX_SMART_ASPECT = 200,        /* smart_resize: longer side over shorter */
    MGV__PIXELS_MAX_BANDS = 16,         /* parts of a picture that run at the same time, each with its own rows in the scratch memory */
    MGV__PIXELS_RING_BYTES = 128 * 1024,/* rows between the two passes: meant to stay in the second-level cache */
    MGV__PIXELS_TAP_MULTIPLE = 16,      /* samples that vector code takes at a time */
    MGV__PIXELS_MIN_STRIP = 16          /* columns resized together where the whole width does not fit into the ring */
};

typedef struct mgv__pixel_format_row {
    const char *name;
    uint32_t bytes;     /* of one pixel */
    uint32_t planes;    /* 3, or 1 where R = G = B */
    uint32_t offset[3]; /* of R, G, B in a pixel */
    uint32_t alpha;     /* its offset; 0: there is none */
} mgv__pixel_format_row;
static const mgv__pixel_format_row mgv__pixel_formats[] = { /* by mgv_pixel_format */
    {"RGB8", 3, 3, {0, 1, 2}, 0}, {"BGR8", 3, 3, {2, 1, 0}, 0}, {"RGBA8", 4, 3, {0, 1, 2}, 3}, {"BGRA8", 4, 3, {2, 1, 0}, 3},
    {"GRAY8", 1, 1, {0, 0, 0}, 0}, {"GRAY_ALPHA8", 2, 1, {0, 0, 0}, 1}, {"RGBX8", 4, 3, {0, 1, 2}, 0}, {"BGRX8", 4, 3, {2, 1, 0}, 0},
};
enum { MGV__PIXEL_FORMATS = sizeof mgv__pixel_formats / sizeof mgv__pixel_formats[0] };
MGV__STATIC_ASSERT((int)MGV__PIXEL_FORMATS == MGV_PIXELS_BGRX8 + 1, every_pixel_format_has_a_row);

/* ---- Pictures in memory ---- */

static uint64_t mgv__magnitude(int64_t value) { return value < 0 ? 0 - (uint64_t)value : (uint64_t)value; }
static uint32_t mgv__image_frames(const mgv_image *image) { return image->frames > 1 ? image->frames : 1; }
static uint64_t mgv__image_row_bytes(const mgv_image *image) { return (uint64_t)image->width * mgv__pixel_formats[image->format].bytes; }
static int64_t mgv__image_stride(const mgv_image *image) { return image->stride ? image->stride : (int64_t)mgv__image_row_bytes(image); }

/* Bytes from the first that is read to behind the last, whichever way the strides go; 0 where that is more than can be addressed. */
static size_t mgv__image_span(const mgv_image *image) {
    uint64_t stride = mgv__magnitude(mgv__image_stride(image)), frame_stride = mgv__magnitude(image->frames > 1 ? image->frame_stride : 0);
    size_t rows, frame, frames, span;
    if (stride > PTRDIFF_MAX || frame_stride > PTRDIFF_MAX) return 0;
    if (!mgv__mul(image->height - 1, (size_t)stride, &rows) || !mgv__mul(image->height, (size_t)stride, &frame)) return 0;
    if (frame_stride) frame = (size_t)frame_stride;
    if (!mgv__mul(mgv__image_frames(image) - 1, frame, &frames)) return 0;
    if (!mgv__add(rows, frames, &span) || !mgv__add(span, (size_t)mgv__image_row_bytes(image), &span)) return 0;
    return span <= PTRDIFF_MAX ? span : 0;
}

/* Whether writing these bytes would change a checked picture. */
static int mgv__image_overlaps(const mgv_image *image, const void *memory, uint64_t bytes) {
    uintptr_t lowest = (uintptr_t)image->pixels, start = (uintptr_t)memory;
    if (image->stride < 0) lowest -= (uintptr_t)(image->height - 1) * (uintptr_t)mgv__magnitude(image->stride);
    if (image->frames > 1 && image->frame_stride < 0)
        lowest -= (uintptr_t)(mgv__image_frames(image) - 1) * (uintptr_t)mgv__magnitude(image->frame_stride);
    return start < lowest ? lowest - start < bytes : start - lowest < mgv__image_span(image) && bytes > 0;
}

/* Everything about a picture that can be wrong by itself. After MGV_OK every row may be read with mgv__image_row. */
static mgv_result mgv__pixels_check(const mgv_image *image, mgv_error *error) {
    size_t span;
    if (image->pixels == NULL) return mgv__fail(error, MGV_ERROR_ARGUMENT, "a picture whose pixels are NULL");
    if (image->format < 0 || image->format >= (mgv_pixel_format)MGV__PIXEL_FORMATS)
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "%i is no mgv_pixel_format", (int64_t)image->format);
    if (image->alpha != MGV_ALPHA_WHITE && image->alpha != MGV_ALPHA_DROP)
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "%i is no mgv_alpha", (int64_t)image->alpha);
    if (image->place != MGV_PLACE_HOST && image->place != MGV_PLACE_DEVICE)
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "%i is no mgv_place", (int64_t)image->place);
    if (image->width == 0 || image->height == 0)
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "a picture of %u x %u pixels has nothing in it", (uint64_t)image->width,
                         (uint64_t)image->height);
    if (image->width > MGV__MAX_SIDE || image->height > MGV__MAX_SIDE || image->frames > MGV__MAX_FRAMES)
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "a picture of %u x %u pixels and %u frames; the most is %u pixels a side and %u frames",
                         (uint64_t)image->width, (uint64_t)image->height, (uint64_t)mgv__image_frames(image), (uint64_t)MGV__MAX_SIDE,
                         (uint64_t)MGV__MAX_FRAMES);
    if (image->stride && mgv__magnitude(image->stride) < mgv__image_row_bytes(image))
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "a stride of %i bytes; a row of %u %s pixels has %u", image->stride,
                         (uint64_t)image->width, mgv__pixel_formats[image->format].name, mgv__image_row_bytes(image));
    span = mgv__image_span(image);
    if (span == 0)
        return mgv__fail(error, MGV_ERROR_ARGUMENT,
                         "a picture of %u x %u pixels and %u frames with strides %i and %i is larger than this machine's memory",
                         (uint64_t)image->width, (uint64_t)image->height, (uint64_t)mgv__image_frames(image), image->stride,
                         image->frame_stride);
    if (image->bytes && image->bytes < span)
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "a picture of %u x %u %s pixels and %u frames reaches over %u bytes; %u are there",
                         (uint64_t)image->width, (uint64_t)image->height, mgv__pixel_formats[image->format].name,
                         (uint64_t)mgv__image_frames(image), (uint64_t)span, image->bytes);
    return MGV_OK;
}

static const unsigned char *mgv__image_row(const mgv_image *image, uint32_t frame, uint32_t y) {
    const ptrdiff_t stride = (ptrdiff_t)mgv__image_stride(image);
    const unsigned char *row = (const unsigned char *)image->pixels + (ptrdiff_t)y * stride;
    ptrdiff_t frame_stride = (ptrdiff_t)image->frame_stride;
    if (frame == 0) return row; /* a single frame may have a stride of which no multiple fits */
    if (frame_stride == 0) frame_stride = (stride < 0 ? -stride : stride) * (ptrdiff_t)image->height;
    return row + (ptrdiff_t)frame * frame_stride;
}

/* ---- Doubles that are the same everywhere ---- */

/* Rounds a product to double, here and now: no compiler may fuse it with a sum that follows. A fused step can move a weight across a
   rounding border, and with it pixels. */
static double mgv__rounded(double value) {
    volatile double rounded = value;
    return rounded;
}
/* Rounds a sum or a quotient, which only a machine that computes with more digits than double has does not do by itself. */
static double mgv__as_double(double value) {
#if FLT_EVAL_METHOD == 0
    return value;
#else
    return mgv__rounded(value);
#endif
}

/* ---- The size a picture becomes ---- */

/* Python's round(): half to even. value >= 0. */
static double mgv__round_half_even(double value) {
    double below = floor(value), rest = value - below;
    if (rest > 0.5 || (rest == 0.5 && fmod(below, 2.0) != 0.0)) below += 1.0;
    return below;
}
static double mgv__at_least(double value, double least) { return value < least ? least : value; }

/* smart_resize: sides become multiples of factor, the area comes to lie within the limits, the aspect ratio stays about the same. A clip
   whose limits count frames is as many times larger; `even_frames` stands for the frames rounded to whole temporal patches. The order of
   the divisions is part of it, and that each of them is rounded: a side may come to lie at a multiple exactly. (transformers 5.17,
   models/qwen2_vl/image_processing_qwen2_vl.py and, for clips, models/qwen3_vl/video_processing_qwen3_vl.py.) */
static void mgv__smart_resize(double *width, double *height, double frames, double even_frames, double factor, double min_pixels,
                              double max_pixels) {
    const double area = mgv__as_double(mgv__as_double(frames * *height) * *width);
    double w = mgv__round_half_even(mgv__as_double(*width / factor)) * factor;
    double h = mgv__round_half_even(mgv__as_double(*height / factor)) * factor;
    if (even_frames * h * w > max_pixels) {
        const double beta = mgv__as_double(sqrt(mgv__as_double(area / max_pixels)));
        h = mgv__at_least(floor(mgv__as_double(mgv__as_double(*height / beta) / factor)) * factor, factor);
        w = mgv__at_least(floor(mgv__as_double(mgv__as_double(*width / beta) / factor)) * factor, factor);
    } else if (even_frames * h * w < min_pixels) {
        const double beta = mgv__as_double(sqrt(mgv__as_double(min_pixels / area)));
        h = ceil(mgv__as_double(mgv__as_double(*height * beta) / factor)) * factor;
        w = ceil(mgv__as_double(mgv__as_double(*width * beta) / factor)) * factor;
    }
    *width = w;
    *height = h;
}

/* The size that smart_resize gives. min_pixels, max_pixels: 0 for what the config says. */
static mgv_result mgv__pixels_smart_size(const mgv__pixels_config *config, uint32_t frames, uint64_t min_pixels, uint64_t max_pixels,
                                         double *width, double *height, mgv_error *error) {
    const int counted = frames > 1 && config->clip_counts_frames;
    const double factor = config->factor, w = *width, h = *height;
    if (min_pixels == 0) min_pixels = frames > 1 && config->clip_min_pixels ? config->clip_min_pixels : config->min_pixels;
    if (max_pixels == 0) max_pixels = frames > 1 && config->clip_max_pixels ? config->clip_max_pixels : config->max_pixels;
    if (min_pixels > max_pixels)
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "min_pixels %u is more than max_pixels %u", min_pixels, max_pixels);
    if (counted && (w < factor || h < factor)) { /* the video processor enlarges first */
        double scale = mgv__at_least(factor / h, factor / w);
        *width = floor(w * scale);
        *height = floor(h * scale);
    }
    if (*width > (double)MGV__MAX_SMART_ASPECT * *height || *height > (double)MGV__MAX_SMART_ASPECT * *width)
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "a picture of %u x %u pixels: one side is more than %u times the other", (uint64_t)w,
                         (uint64_t)h, (uint64_t)MGV__MAX_SMART_ASPECT);
    if (counted) {
        double even_frames = mgv__round_half_even((double)frames / config->temporal_patch) * config->temporal_patch;
        mgv__smart_resize(width, height, frames, even_frames, factor, (double)min_pixels, (double)max_pixels);
    } else {
        mgv__smart_resize(width, height, 1, 1, factor, (double)min_pixels, (double)max_pixels);
    }
    return MGV_OK;
}

/* How a picture of this size will be laid out. frames: 0 means 1. min_pixels, max_pixels: 0 for what the config says. */
static mgv_result mgv__pixels_grid(const mgv__pixels_config *config, uint32_t width, uint32_t height, uint32_t frames, uint64_t min_pixels,
                                   uint64_t max_pixels, mgv_grid *grid, mgv_error *error) {
    double new_width = width, new_height = height, tokens, bytes;
    if (frames == 0) frames = 1;
    if (width == 0 || height == 0)
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "a picture of %u x %u pixels has nothing in it", (uint64_t)width, (uint64_t)height);
    if (width > MGV__MAX_SIDE || height > MGV__MAX_SIDE || frames > MGV__MAX_FRAMES)
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "a picture of %u x %u pixels and %u frames; the most is %u pixels a side and %u frames",
                         (uint64_t)width, (uint64_t)height, (uint64_t)frames, (uint64_t)MGV__MAX_SIDE, (uint64_t)MGV__MAX_FRAMES);
    if (frames > 1 && config->temporal_patch == 1)
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "a clip of %u frames; this model takes still pictures, each frame as one of its own",
                         (uint64_t)frames);
    if (config->fixed_width && config->do_resize) {
        new_width = config->fixed_width;
        new_height = config->fixed_height;
    } else if (config->fixed_width && (width != config->fixed_width || height != config->fixed_height)) {
        return mgv__fail(error, MGV_ERROR_ARGUMENT,
                         "a picture of %u x %u pixels; this model does not resize (do_resize is false) and takes %u x %u",
                         (uint64_t)width, (uint64_t)height, (uint64_t)config->fixed_width, (uint64_t)config->fixed_height);
    } else if (!config->fixed_width && config->do_resize) {
        mgv_result result = mgv__pixels_smart_size(config, frames, min_pixels, max_pixels, &new_width, &new_height, error);
        if (result != MGV_OK) return result;
    } else if (!config->fixed_width && (width % config->factor || height % config->factor)) {
        return mgv__fail(error, MGV_ERROR_ARGUMENT,
                         "a picture of %u x %u pixels; this model does not resize (do_resize is false) and takes multiples of %u",
                         (uint64_t)width, (uint64_t)height, (uint64_t)config->factor);
    }
    tokens = ceil((double)frames / config->temporal_patch) * floor(new_height / config->patch) * floor(new_width / config->patch);
    bytes = tokens * config->patch * config->patch * config->temporal_patch * 3 * sizeof(float);
    if (tokens > (double)INT32_MAX || bytes > (double)(SIZE_MAX / 2))
        return mgv__fail(error, MGV_ERROR_CAPACITY, "a picture of %u x %u pixels and %u frames would be more tokens than fit into memory",
                         (uint64_t)width, (uint64_t)height, (uint64_t)frames);
    grid->width = (uint32_t)new_width;
    grid->height = (uint32_t)new_height;
    grid->t = (frames + config->temporal_patch - 1) / config->temporal_patch;
    grid->h = grid->height / config->patch;
    grid->w = grid->width / config->patch;
    grid->tokens = grid->t * grid->h * grid->w;
    grid->merged_tokens = grid->tokens / (config->merge * config->merge);
    return MGV_OK;
}

/* ---- Weights of a resize along one axis ---- */

typedef struct mgv__window {
    uint32_t first, count; /* source positions that one output position is the weighted sum of */
} mgv__window;

/* Rows in memory, of which only the last `modulus` may be kept: row y lies at base + (y % modulus) * stride. */
typedef struct mgv__row_set {
    const unsigned char *base;
    ptrdiff_t stride;
    uint32_t modulus;
} mgv__row_set;

typedef struct mgv__axis {
    uint32_t in, out;
    uint32_t shift;       /* weights are in units of 2^-shift */
    int wide;             /* weights have up to 23 bits; 0: 16 */
    uint32_t taps;        /* room for the weights of one window: a multiple of MGV__PIXELS_TAP_MULTIPLE, filled up with zeros */
    uint32_t longest;     /* the longest window */
    mgv__window *windows; /* [out], first and end ascending */
    void *weights;        /* [out, taps], 4 bytes each, as the kernels store them */
} mgv__axis;

/* What of the work exists in more than one instruction set: plain C here, AVX2 in >>pixels-avx2. All give the same bytes. */
typedef struct mgv__pixel_kernels {
    /* Writes the weights of one window, whole numbers below 2^23 in size, and zeros up to axis->taps. */
    void (*store)(const mgv__axis *axis, uint32_t i, const double *weights, uint32_t count);
    /* Output positions [begin, end) of one row of planes. Byte 0 of a plane is source position `origin`; 16 bytes behind the last plane
       may be read. */
    void (*across)(const mgv__axis *axis, uint32_t begin, uint32_t end, const unsigned char *planes, size_t plane_bytes,
                   uint32_t plane_count, uint32_t origin, unsigned char *target, size_t target_plane_bytes);
    /* Output row y: the weighted sum, byte by byte, of the rows in its window. */
    void (*down)(const mgv__axis *axis, uint32_t y, const mgv__row_set *rows, size_t bytes, unsigned char *target);
    /* `count` pixels, taken apart. */
    void (*to_planes)(const mgv__pixel_format_row *format, const unsigned char *source, uint32_t count, unsigned char *planes,
                      size_t plane_bytes);
} mgv__pixel_kernels;

static double mgv__filter_support(int32_t resample) { return resample == MGV__RESAMPLE_BICUBIC ? 2.0 : 1.0; }
/* Triangle, and the cubic convolution with a = -0.5 of Keys (1981). */
static double mgv__filter(int32_t resample, double x) {
    if (x < 0) x = -x;
    if (resample == MGV__RESAMPLE_BILINEAR) return x < 1 ? 1 - x : 0;
    if (x < 1) return mgv__rounded((mgv__rounded(1.5 * x) - 2.5) * x * x) + 1;
    if (x < 2) return (mgv__rounded((mgv__rounded((x - 5) * x) + 8) * x) - 4) * -0.5;
    return 0;
}

/* Room for the weights of any window: two supports wide, one more for the position in between. */
static uint32_t mgv__axis_taps(int32_t resample, uint32_t in, uint32_t out) {
    uint32_t most = (uint32_t)ceil(mgv__filter_support(resample) * mgv__at_least((double)in / out, 1.0)) * 2 + 1;
    return (most + MGV__PIXELS_TAP_MULTIPLE - 1) / MGV__PIXELS_TAP_MULTIPLE * MGV__PIXELS_TAP_MULTIPLE;
}
/* At least out * taps for either filter, growing with in and out. */
static size_t mgv__axis_weight_count(uint32_t in, uint32_t out) { return 4 * (size_t)in + (7 + MGV__PIXELS_TAP_MULTIPLE) * (size_t)out; }

/* The window of output position i and its weights, which sum to 1. Pillow's precompute_coeffs; torch's _compute_indices_min_size_weights_aa
   has the same arithmetic. */
static mgv__window mgv__axis_window(const mgv__axis *axis, int32_t resample, uint32_t i, double *weights) {
    double scale = mgv__as_double((double)axis->in / axis->out), stretch = mgv__at_least(scale, 1.0);
    double support = mgv__filter_support(resample) * stretch, inverse = mgv__as_double(1.0 / stretch);
    double center = mgv__rounded((i + 0.5) * scale), sum = 0;
    double first = mgv__as_double(mgv__as_double(center - support) + 0.5), end = mgv__as_double(mgv__as_double(center + support) + 0.5);
    mgv__window window;
    uint32_t k;
    window.first = first > 0 ? (uint32_t)first : 0;
    window.count = (end < axis->in ? (uint32_t)end : axis->in) - window.first;
    for (k = 0; k < window.count; k++) {
        double distance = mgv__as_double(mgv__as_double(k + window.first - center) + 0.5);
        weights[k] = mgv__filter(resample, mgv__rounded(distance * inverse));
        sum = mgv__as_double(sum + weights[k]);
    }
    for (k = 0; k < window.count && sum != 0; k++) weights[k] = mgv__as_double(weights[k] / sum);
    return window;
}

/* Pillow: 22 bits always (Resample.c, PRECISION_BITS). torch: as many as keep the largest weight of the axis within an int16
   (UpSampleKernel.cpp, _compute_index_ranges_int16_weights). */
static uint32_t mgv__axis_shift(const mgv__axis *axis, mgv_resize resize, int32_t resample, double *weights) {
    double largest = 0;
    uint32_t i, k, shift = 0;
    if (resize == MGV_RESIZE_PILLOW) return 22;
    for (i = 0; i < axis->out; i++) {
        mgv__window window = mgv__axis_window(axis, resample, i, weights);
        for (k = 0; k < window.count; k++) largest = mgv__at_least(weights[k], largest);
    }
    while (shift < 22 && floor(0.5 + largest * (1 << (shift + 1))) < 32768) shift++;
    return shift;
}

/* weights: room for taps doubles, used only here. */
static void mgv__axis_fill(mgv__axis *axis, const mgv__pixel_kernels *kernels, mgv_resize resize, int32_t resample, double *weights) {
    uint32_t i, k;
    axis->shift = mgv__axis_shift(axis, resize, resample, weights);
    axis->wide = resize == MGV_RESIZE_PILLOW;
    axis->longest = 0;
    for (i = 0; i < axis->out; i++) {
        mgv__window window = mgv__axis_window(axis, resample, i, weights);
        for (k = 0; k < window.count; k++) {
            double scaled = weights[k] * (1 << axis->shift);
            weights[k] = scaled < 0 ? ceil(scaled - 0.5) : floor(scaled + 0.5);
        }
        kernels->store(axis, i, weights, window.count);
        axis->windows[i] = window;
        if (window.count > axis->longest) axis->longest = window.count;
    }
}

/* ---- The two passes in plain C ---- */

static unsigned char mgv__to_byte(int32_t sum, uint32_t shift) {
    if (sum < 0) return 0;
    sum >>= shift;
    return (unsigned char)(sum < 255 ? sum : 255);
}

static void mgv__plain_store(const mgv__axis *axis, uint32_t i, const double *weights, uint32_t count) {
    int32_t *row = (int32_t *)axis->weights + (size_t)i * axis->taps;
    uint32_t k;
    for (k = 0; k < axis->taps; k++) row[k] = k < count ? (int32_t)weights[k] : 0;
}

static void mgv__plain_across(const mgv__axis *axis, uint32_t begin, uint32_t end, const unsigned char *planes, size_t plane_bytes,
                              uint32_t plane_count, uint32_t origin, unsigned char *target, size_t target_plane_bytes) {
    uint32_t plane, x, k;
    for (plane = 0; plane < plane_count; plane++) {
        for (x = begin; x < end; x++) {
            mgv__window window = axis->windows[x];
            const int32_t *weights = (const int32_t *)axis->weights + (size_t)x * axis->taps;
            const unsigned char *samples = planes + plane * plane_bytes + (window.first - origin);
            int32_t sum = 1 << (axis->shift - 1);
            for (k = 0; k < window.count; k++) sum += samples[k] * weights[k];
            target[plane * target_plane_bytes + (x - begin)] = mgv__to_byte(sum, axis->shift);
        }
    }
}

static void mgv__plain_down(const mgv__axis *axis, uint32_t y, const mgv__row_set *rows, size_t bytes, unsigned char *target) {
    const mgv__window window = axis->windows[y];
    const int32_t *weights = (const int32_t *)axis->weights + (size_t)y * axis->taps;
    int32_t sums[256];
    const size_t block = sizeof sums / sizeof sums[0];
    size_t start, count, i;
    uint32_t k;
    for (start = 0; start < bytes; start += block) {
        count = bytes - start < block ? bytes - start : block;
        for (i = 0; i < count; i++) sums[i] = 1 << (axis->shift - 1);
        for (k = 0; k < window.count; k++) {
            const unsigned char *samples = rows->base + (ptrdiff_t)((window.first + k) % rows->modulus) * rows->stride + start;
            for (i = 0; i < count; i++) sums[i] += samples[i] * weights[k];
        }
        for (i = 0; i < count; i++) target[start + i] = mgv__to_byte(sums[i], axis->shift);
    }
}

static void mgv__plain_to_planes(const mgv__pixel_format_row *format, const unsigned char *source, uint32_t count, unsigned char *planes,
                                 size_t plane_bytes) {
    uint32_t plane, i;
    for (plane = 0; plane < format->planes; plane++) {
        const unsigned char *sample = source + format->offset[plane];
        for (i = 0; i < count; i++) planes[plane * plane_bytes + i] = sample[(size_t)i * format->bytes];
    }
}

/* mgv__plain_to_planes over white: AlphaComposite.c of Pillow 13.0.0 for a background that is white, whose coefficients are then alpha and
   255 - alpha in units of 2^-7. */
static void mgv__over_white(const mgv__pixel_format_row *format, const unsigned char *source, uint32_t count, unsigned char *planes,
                            size_t plane_bytes) {
    uint32_t plane, i;
    for (plane = 0; plane < format->planes; plane++) {
        const unsigned char *sample = source + format->offset[plane], *alpha = source + format->alpha;
        unsigned char *target = planes + plane * plane_bytes;
        for (i = 0; i < count; i++, sample += format->bytes, alpha += format->bytes) {
            uint32_t sum = (uint32_t)*sample * *alpha + 255u * (255u - *alpha) + 128;
            target[i] = (unsigned char)(((sum >> 1) + (sum << 7)) >> 15);
        }
    }
}

static const mgv__pixel_kernels mgv__plain_pixel_kernels = {mgv__plain_store, mgv__plain_across, mgv__plain_down, mgv__plain_to_planes};
/* The fastest that this machine runs: >>pixels-avx2. */
static const mgv__pixel_kernels *mgv__pixel_kernels_here(void);

/* ---- One picture ---- */

/* Bytes of scratch memory, in the order in which they lie there: the weights of one window, then windows and weights across and down, then
   the slots. Every part starts on a 64-byte boundary. */
typedef struct mgv__pixels_needs {
    size_t window, windows[2], weights[2];
    size_t raw, planar, row, ring; /* of one slot */
    size_t slot;
    size_t total;
} mgv__pixels_needs;

typedef struct mgv__pixels_job {
    const mgv__pixel_kernels *kernels;
    const mgv__pixels_config *config;
    const mgv_image *image;
    const mgv_grid *grid;
    float *out;
    mgv__pixels_layout layout;
    uint32_t planes;         /* of the source: 1 or 3 */
    uint32_t rows, columns;  /* of the resized picture that are needed */
    int resize_across, resize_down, down_first;
    int over_white;          /* the source has alpha that is not to be dropped */
    mgv__axis across, down;
    uint32_t strip;          /* columns resized together */
    uint32_t bands;
    unsigned char *slots;    /* [bands] */
    mgv__pixels_needs needs;
    float table[3][256];     /* from a byte to the value the model sees */
} mgv__pixels_job;

/* Where a band keeps its rows. Planes lie one behind the other. */
typedef struct mgv__pixels_slot {
    unsigned char *raw;    /* a row in the source's format, after the pass downwards */
    unsigned char *planar; /* a source row in planes */
    unsigned char *row;    /* a finished row in planes */
    unsigned char *ring;   /* rows between the passes, in planes */
} mgv__pixels_slot;

/* Pillow 13.0: the pass downwards comes first where the height shrinks by more than twice what the width shrinks by
   (ImagingResampleInner). In torchvision, and up to Pillow 12.1, it never does; in Pillow 12.2 and 12.3 only where the height shrinks and
   is more than 100 times the width. The order shows because the bytes between the passes are rounded. */
static int mgv__down_comes_first(mgv_resize resize, uint32_t width, uint32_t height, uint32_t new_width, uint32_t new_height) {
    int64_t less_height = (int64_t)height - new_height, less_width = (int64_t)width - new_width;
    return resize == MGV_RESIZE_PILLOW && less_height > 0 && less_height > less_width * 2;
}

/* What a byte becomes. Pillow's processors scale in double and normalise in float (transformers, image_transforms.py, rescale and
   normalize); torchvision's fold the scale into mean and std (image_processing_backends.py, _fuse_mean_std_and_rescale_factor). */
static float mgv__pixel_value(const mgv__pixels_config *config, mgv_resize resize, uint32_t channel, uint32_t byte) {
    volatile float value = (float)byte, mean = (float)config->mean[channel], std = (float)config->std[channel];
    if (resize == MGV_RESIZE_TORCHVISION && config->do_rescale && config->do_normalize) {
        volatile float inverse = (float)(1.0 / config->rescale_factor);
        mean = mean * inverse;
        std = std * inverse;
    } else if (resize == MGV_RESIZE_TORCHVISION && config->do_rescale) {
        volatile float factor = (float)config->rescale_factor;
        value = value * factor;
    } else if (config->do_rescale) {
        value = (float)mgv__rounded((double)byte * config->rescale_factor);
    }
    if (!config->do_normalize) return value;
    value = value - mean;
    value = value / std;
    return value;
}

/* Where the sample of channel 0 at column x of row y of this frame goes, and how far apart the channels are. */
static float *mgv__pixels_place(const mgv__pixels_job *job, uint32_t frame, uint32_t slice, uint32_t x, uint32_t y, size_t *channel_step) {
    const mgv_grid *grid = job->grid;
    size_t patch = job->config->patch, merge = job->config->merge, slices = job->config->temporal_patch, token;
    if (job->layout == MGV__PIXELS_CHW) {
        *channel_step = (size_t)grid->height * grid->width;
        return job->out + (size_t)frame * 3 * *channel_step + (size_t)y * grid->width + x;
    }
    token = (y / patch / merge) * (grid->w / merge) + x / patch / merge;
    token = (token * merge + y / patch % merge) * merge + x / patch % merge;
    token += (size_t)(frame / slices) * grid->h * grid->w;
    *channel_step = slices * patch * patch;
    return job->out + token * 3 * *channel_step + slice * patch * patch + y % patch * patch + x % patch;
}

/* Columns [begin, end) of a finished row as RGB. `out` holds bytes here. */
static void mgv__pixels_store_rgb8(const mgv__pixels_job *job, uint32_t frame, uint32_t y, uint32_t begin, uint32_t end,
                                   const unsigned char *row, size_t plane_bytes) {
    unsigned char *target = (unsigned char *)(void *)job->out + (((size_t)frame * job->grid->height + y) * job->grid->width + begin) * 3;
    size_t step = job->planes == 3 ? plane_bytes : 0;
    uint32_t i;
    for (i = 0; i < end - begin; i++, target += 3) {
        target[0] = row[i];
        target[1] = row[step + i];
        target[2] = row[2 * step + i];
    }
}

/* Writes columns [begin, end) of a finished row. The last frame of a clip fills what is left of its temporal patch. */
static void mgv__pixels_store(const mgv__pixels_job *job, uint32_t frame, uint32_t y, uint32_t begin, uint32_t end,
                              const unsigned char *row, size_t plane_bytes) {
    uint32_t slices = job->layout == MGV__PIXELS_PATCHES ? job->config->temporal_patch : 1;
    uint32_t slice = frame % slices, last = frame + 1 == mgv__image_frames(job->image) ? slices : slice + 1;
    uint32_t x, next, channel, i;
    if (job->layout == MGV__PIXELS_RGB8) {
        mgv__pixels_store_rgb8(job, frame, y, begin, end, row, plane_bytes);
        return;
    }
    for (; slice < last; slice++) {
        for (x = begin; x < end; x = next) {
            size_t channel_step;
            float *target = mgv__pixels_place(job, frame, slice, x, y, &channel_step);
            next = job->layout == MGV__PIXELS_CHW ? end : (x / job->config->patch + 1) * job->config->patch;
            if (next > end) next = end;
            for (channel = 0; channel < 3; channel++) {
                const unsigned char *samples = row + (job->planes == 3 ? channel : 0) * plane_bytes + (x - begin);
                const float *table = job->table[channel];
                for (i = 0; i < next - x; i++) target[channel * channel_step + i] = table[samples[i]];
            }
        }
    }
}

/* Source pixels in planes. */
static void mgv__pixels_take(const mgv__pixels_job *job, const unsigned char *source, uint32_t count, unsigned char *planes,
                             size_t plane_bytes) {
    const mgv__pixel_format_row *format = &mgv__pixel_formats[job->image->format];
    if (job->over_white) mgv__over_white(format, source, count, planes, plane_bytes);
    else job->kernels->to_planes(format, source, count, planes, plane_bytes);
}

/* The pass downwards where it comes first, into planes. Samples with alpha cannot be added up before they lie over white: so the rows of a
   window are taken apart first, so many columns at a time as fit into the ring. */
static void mgv__pixels_down_first(const mgv__pixels_job *job, const mgv__pixels_slot *slot, const mgv__row_set *source, uint32_t y,
                                   uint32_t count, unsigned char *planes) {
    const uint32_t pixel_bytes = mgv__pixel_formats[job->image->format].bytes;
    const mgv__window window = job->down.windows[y];
    mgv__row_set rows;
    uint32_t x, columns = count, plane, k;
    if (!job->over_white) {
        job->kernels->down(&job->down, y, source, (size_t)count * pixel_bytes, slot->raw);
        mgv__pixels_take(job, slot->raw, count, planes, count);
        return;
    }
    rows.base = slot->ring;
    rows.modulus = job->down.longest;
    for (x = 0; x < count; x += columns) {
        columns = (uint32_t)(job->needs.ring / job->planes / rows.modulus);
        if (columns > count - x) columns = count - x;
        rows.stride = (ptrdiff_t)((size_t)columns * job->planes);
        for (k = window.first; k < window.first + window.count; k++)
            mgv__pixels_take(job, source->base + (ptrdiff_t)k * source->stride + (size_t)x * pixel_bytes, columns,
                             slot->ring + (ptrdiff_t)(k % rows.modulus) * rows.stride, columns);
        job->kernels->down(&job->down, y, &rows, (size_t)rows.stride, slot->raw);
        for (plane = 0; plane < job->planes; plane++)
            memcpy(planes + (size_t)plane * count + x, slot->raw + (size_t)plane * columns, columns);
    }
}

/* Rows [top, bottom) of columns [begin, end) of one frame. */
static void mgv__pixels_tile(const mgv__pixels_job *job, const mgv__pixels_slot *slot, uint32_t frame, uint32_t begin, uint32_t end,
                             uint32_t top, uint32_t bottom) {
    const mgv__pixel_kernels *kernels = job->kernels;
    const uint32_t pixel_bytes = mgv__pixel_formats[job->image->format].bytes;
    const mgv__window *across = job->across.windows, *down = job->down.windows;
    const uint32_t source_begin = job->resize_across ? across[begin].first : begin;
    const uint32_t source_end = job->resize_across ? across[end - 1].first + across[end - 1].count : end;
    const uint32_t source_width = source_end - source_begin, width = end - begin;
    const int ringed = job->resize_across && job->resize_down && !job->down_first;
    mgv__row_set source, ring;
    uint32_t y, ready = 0; /* rows before `ready` are in the ring, as far as it is long */
    source.base = mgv__image_row(job->image, frame, 0) + (size_t)source_begin * pixel_bytes;
    source.stride = (ptrdiff_t)mgv__image_stride(job->image);
    source.modulus = job->image->height;
    ring.base = slot->ring;
    ring.stride = (ptrdiff_t)((size_t)width * job->planes);
    ring.modulus = job->down.longest;
    for (y = top; y < bottom; y++) {
        if (ringed) {
            if (ready < down[y].first) ready = down[y].first;
            for (; ready < down[y].first + down[y].count; ready++) {
                mgv__pixels_take(job, source.base + (ptrdiff_t)ready * source.stride, source_width, slot->planar, source_width);
                kernels->across(&job->across, begin, end, slot->planar, source_width, job->planes, source_begin,
                                slot->ring + (ptrdiff_t)(ready % ring.modulus) * ring.stride, width);
            }
            kernels->down(&job->down, y, &ring, (size_t)ring.stride, slot->row);
        } else {
            unsigned char *planes = job->resize_across ? slot->planar : slot->row;
            if (job->resize_down) mgv__pixels_down_first(job, slot, &source, y, source_width, planes);
            else mgv__pixels_take(job, source.base + (ptrdiff_t)y * source.stride, source_width, planes, source_width);
            if (job->resize_across)
                kernels->across(&job->across, begin, end, slot->planar, source_width, job->planes, source_begin, slot->row, width);
        }
        mgv__pixels_store(job, frame, y, begin, end, slot->row, width);
    }
}

static void mgv__pixels_band(void *context, uint32_t index) {
    const mgv__pixels_job *job = (const mgv__pixels_job *)context;
    const mgv__pixels_needs *needs = &job->needs;
    const uint32_t top = (uint32_t)((uint64_t)job->rows * index / job->bands);
    const uint32_t bottom = (uint32_t)((uint64_t)job->rows * (index + 1) / job->bands);
    mgv__pixels_slot slot;
    uint32_t frame, begin;
    slot.raw = job->slots + index * needs->slot;
    slot.planar = slot.raw + needs->raw;
    slot.row = slot.planar + needs->planar;
    slot.ring = slot.row + needs->row;
    memset(slot.planar, 0, needs->planar); /* vector code takes what lies behind the last sample times 0: valgrind asks what that is */
    for (frame = 0; frame < mgv__image_frames(job->image); frame++) {
        for (begin = 0; begin < job->columns; begin += job->strip) {
            uint32_t left = job->columns - begin;
            mgv__pixels_tile(job, &slot, frame, begin, begin + (left < job->strip ? left : job->strip), top, bottom);
        }
    }
}

/* For pictures of at most width x height that become at least min_out and at most max_out. 0: more than can be addressed. */
static int mgv__pixels_needs_of(uint32_t width, uint32_t height, uint32_t max_out_width, uint32_t max_out_height, uint32_t min_out_width,
                                uint32_t min_out_height, mgv__pixels_needs *needs) {
    const uint32_t in[2] = {width, height}, max_out[2] = {max_out_width, max_out_height}, min_out[2] = {min_out_width, min_out_height};
    size_t bytes, taps = 0, ring;
    int i;
    memset(needs, 0, sizeof *needs);
    for (i = 0; i < 2; i++) {
        size_t most = mgv__axis_taps(MGV__RESAMPLE_BICUBIC, in[i], min_out[i]);
        if (most > taps) taps = most;
        if (!mgv__mul(max_out[i], sizeof(mgv__window), &bytes) || !mgv__align_up(bytes, MGV__ALIGNMENT, &needs->windows[i])) return 0;
        if (!mgv__mul(mgv__axis_weight_count(in[i], max_out[i]), sizeof(int32_t), &bytes)) return 0;
        if (!mgv__align_up(bytes, MGV__ALIGNMENT, &needs->weights[i])) return 0;
    }
    if (!mgv__mul(taps, sizeof(double), &bytes) || !mgv__align_up(bytes, MGV__ALIGNMENT, &needs->window)) return 0;
    if (!mgv__mul(width, 4, &bytes) || !mgv__align_up(bytes, MGV__ALIGNMENT, &needs->raw)) return 0;
    if (!mgv__mul(width, 3, &bytes) || !mgv__add(bytes, MGV__PIXELS_TAP_MULTIPLE, &bytes)) return 0;
    if (!mgv__align_up(bytes, MGV__ALIGNMENT, &needs->planar)) return 0;
    if (!mgv__mul(max_out_width, 3, &bytes) || !mgv__align_up(bytes, MGV__ALIGNMENT, &needs->row)) return 0;
    ring = mgv__axis_taps(MGV__RESAMPLE_BICUBIC, height, min_out_height);
    if (!mgv__mul(ring, 3 * MGV__PIXELS_MIN_STRIP, &bytes) || !mgv__align_up(bytes, MGV__ALIGNMENT, &needs->ring)) return 0;
    if (needs->ring < MGV__PIXELS_RING_BYTES) needs->ring = MGV__PIXELS_RING_BYTES;
    if (!mgv__add(needs->raw, needs->planar, &needs->slot) || !mgv__add(needs->slot, needs->row, &needs->slot) ||
        !mgv__add(needs->slot, needs->ring, &needs->slot) || !mgv__mul(needs->slot, MGV__PIXELS_MAX_BANDS, &needs->total) ||
        !mgv__add(needs->total, needs->window, &needs->total))
        return 0;
    for (i = 0; i < 2; i++) {
        if (!mgv__add(needs->total, needs->windows[i], &needs->total)) return 0;
        if (!mgv__add(needs->total, needs->weights[i], &needs->total)) return 0;
    }
    return 1;
}

/* What a configuration may say. Everything below relies on it; pixel values cannot overflow within these limits. */
static mgv_result mgv__pixels_config_check(const mgv__pixels_config *config, mgv_error *error) {
    int i;
    if (config->resample != MGV__RESAMPLE_BILINEAR && config->resample != MGV__RESAMPLE_BICUBIC)
        return mgv__fail(error, MGV_ERROR_UNSUPPORTED, "resample %i; 2 (bilinear) and 3 (bicubic) are there", (int64_t)config->resample);
    if (!config->patch || !config->merge || !config->temporal_patch || config->patch > MGV__MAX_SIDE || config->merge > MGV__MAX_SIDE ||
        config->temporal_patch > MGV__MAX_FRAMES)
        return mgv__fail(error, MGV_ERROR_MODEL, "patches of %u pixels and %u frames, merged %u by %u", (uint64_t)config->patch,
                         (uint64_t)config->temporal_patch, (uint64_t)config->merge, (uint64_t)config->merge);
    if ((config->fixed_width == 0) != (config->fixed_height == 0) || config->fixed_width > MGV__MAX_SIDE ||
        config->fixed_height > MGV__MAX_SIDE)
        return mgv__fail(error, MGV_ERROR_MODEL, "a picture size of %u x %u", (uint64_t)config->fixed_width,
                         (uint64_t)config->fixed_height);
    if (config->fixed_width && (config->fixed_width < config->patch || config->fixed_height < config->patch))
        return mgv__fail(error, MGV_ERROR_MODEL, "a picture size of %u x %u is smaller than a patch of %u", (uint64_t)config->fixed_width,
                         (uint64_t)config->fixed_height, (uint64_t)config->patch);
    if (!config->fixed_width && (config->factor != (uint64_t)config->patch * config->merge || config->factor > MGV__MAX_SIDE))
        return mgv__fail(error, MGV_ERROR_MODEL, "pictures in multiples of %u pixels; %u patches of %u are needed",
                         (uint64_t)config->factor, (uint64_t)config->merge, (uint64_t)config->patch);
    if (!config->fixed_width && (config->min_pixels == 0 || config->min_pixels > config->max_pixels))
        return mgv__fail(error, MGV_ERROR_MODEL, "a picture area from %u to %u pixels", config->min_pixels, config->max_pixels);
    if (config->do_rescale && !(fabs(config->rescale_factor) >= 1e-12 && fabs(config->rescale_factor) <= 1e12))
        return mgv__fail(error, MGV_ERROR_MODEL, "rescale_factor must lie between 1e-12 and 1e12");
    for (i = 0; i < 3 && config->do_normalize; i++) {
        if (!(fabs(config->mean[i]) <= 1e6))
            return mgv__fail(error, MGV_ERROR_MODEL, "image_mean[%i] must be at most 1e6", (int64_t)i);
        if (!(fabs(config->std[i]) >= 1e-6 && fabs(config->std[i]) <= 1e6))
            return mgv__fail(error, MGV_ERROR_MODEL, "image_std[%i] must lie between 1e-6 and 1e6", (int64_t)i);
    }
    return MGV_OK;
}

/* Scratch memory for any picture of at most max_width x max_height that becomes at most max_tokens tokens. Checks the configuration too. */
static mgv_result mgv__pixels_scratch_bytes(const mgv__pixels_config *config, uint32_t max_width, uint32_t max_height, uint32_t max_tokens,
                                            size_t *bytes, mgv_error *error) {
    mgv__pixels_needs needs;
    mgv_result result = mgv__pixels_config_check(config, error);
    uint32_t widest = config->fixed_width, highest = config->fixed_height;
    if (result != MGV_OK) return result;
    if (max_width == 0 || max_height == 0 || max_width > MGV__MAX_SIDE || max_height > MGV__MAX_SIDE)
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "pictures of at most %u x %u pixels; from 1 to %u a side can be", (uint64_t)max_width,
                         (uint64_t)max_height, (uint64_t)MGV__MAX_SIDE);
    if (!config->fixed_width) {
        double side = (double)max_tokens * config->patch * config->patch / config->factor;
        widest = highest = side < config->factor ? config->factor : side > (double)MGV__MAX_SIDE ? (uint32_t)MGV__MAX_SIDE : (uint32_t)side;
    }
    if (!mgv__pixels_needs_of(max_width, max_height, widest, highest, config->fixed_width ? widest : config->factor,
                              config->fixed_width ? highest : config->factor, &needs))
        return mgv__fail(error, MGV_ERROR_CAPACITY, "pictures of %u x %u pixels do not fit into this machine's address space",
                         (uint64_t)max_width, (uint64_t)max_height);
    *bytes = needs.total;
    return MGV_OK;
}

/* See mgv__pixels_prepare; the result does not depend on `kernels` either. */
static void mgv__pixels_prepare_with(const mgv__pixel_kernels *kernels, const mgv__pixels_config *config, mgv_resize resize,
                                     const mgv_image *image, const mgv_grid *grid, void *scratch, const mgv_parallel_for *parallel,
                                     float *out, mgv__pixels_layout layout) {
    mgv__pixels_job job;
    mgv__axis *axes[2];
    unsigned char *memory = (unsigned char *)scratch;
    double *weights = (double *)scratch;
    uint32_t i, byte;
    memset(&job, 0, sizeof job);
    job.kernels = kernels;
    job.config = config;
    job.image = image;
    job.grid = grid;
    job.out = out;
    job.layout = layout;
    job.planes = mgv__pixel_formats[image->format].planes;
    job.over_white = mgv__pixel_formats[image->format].alpha && image->alpha == MGV_ALPHA_WHITE;
    job.rows = layout == MGV__PIXELS_PATCHES ? grid->h * config->patch : grid->height;
    job.columns = layout == MGV__PIXELS_PATCHES ? grid->w * config->patch : grid->width;
    job.resize_across = grid->width != image->width;
    job.resize_down = grid->height != image->height;
    job.down_first = mgv__down_comes_first(resize, image->width, image->height, grid->width, grid->height);
    mgv__pixels_needs_of(image->width, image->height, grid->width, grid->height, grid->width, grid->height, &job.needs);
    memory += job.needs.window;
    axes[0] = &job.across;
    axes[1] = &job.down;
    for (i = 0; i < 2; i++) {
        axes[i]->in = i ? image->height : image->width;
        axes[i]->out = i ? grid->height : grid->width;
        axes[i]->taps = mgv__axis_taps(config->resample, axes[i]->in, axes[i]->out);
        axes[i]->windows = (mgv__window *)(void *)memory;
        memory += job.needs.windows[i];
        axes[i]->weights = memory;
        memory += job.needs.weights[i];
        if (axes[i]->in != axes[i]->out) mgv__axis_fill(axes[i], job.kernels, resize, config->resample, weights);
    }
    job.slots = memory;
    job.strip = job.columns;
    if (job.resize_across && job.resize_down && !job.down_first && (uint64_t)job.strip * 3 * job.down.longest > job.needs.ring)
        job.strip = (uint32_t)(job.needs.ring / 3 / job.down.longest);
    for (i = 0; i < 3; i++) {
        for (byte = 0; byte < 256; byte++) job.table[i][byte] = mgv__pixel_value(config, resize, i, byte);
    }
    job.bands = parallel && parallel->run && parallel->threads > 1 ? parallel->threads : 1;
    if (job.bands > MGV__PIXELS_MAX_BANDS) job.bands = MGV__PIXELS_MAX_BANDS;
    if (job.bands > job.rows) job.bands = job.rows;
    if (job.bands > 1) (parallel->run)(parallel->user, job.bands, mgv__pixels_band, &job);
    else mgv__pixels_band(&job, 0);
}

/* The pixels of a checked picture as the model sees them. grid: from mgv__pixels_grid. scratch: mgv__pixels_scratch_bytes, on a
   64-byte boundary. out: float32, see mgv__pixels_layout. The result does not depend on `parallel`, which may be NULL. */
static void mgv__pixels_prepare(const mgv__pixels_config *config, mgv_resize resize, const mgv_image *image, const mgv_grid *grid,
                                void *scratch, const mgv_parallel_for *parallel, float *out, mgv__pixels_layout layout) {
    mgv__pixels_prepare_with(mgv__pixel_kernels_here(), config, resize, image, grid, scratch, parallel, out, layout);
}

/* ---------------------------------------------------------------------------------------------------------------
   >>ops: a model is a list of operations over named buffers

   Everything that runs or describes a model reads this list: the CPU backend executes it, the GPU plan lays it out,
   inspect and plan count its work, validation compares after each entry. A new model family is a new builder. */

typedef int32_t mgv__op_kind;
enum {
    MGV__OP_LINEAR = 0, /* target = activation(source . weight^T + bias) [times channel_scale] [+ table] [+ add] */
    MGV__OP_NORM,       /* target = LayerNorm or RMSNorm of each row of source */
    MGV__OP_ROTARY,     /* rotates q and k in place by the picture's (t, h, w) position ids */
    MGV__OP_ATTENTION,  /* target = softmax(q k^T scale) v within ranges of rows; source holds q | k | v side by side */
    MGV__OP_POOL,       /* one query a head (the probe) over all tokens of a picture: SigLIP's pooling head up to its output projection */
    MGV__OP_GATHER,     /* target row i = source row order[i], in units of merge * merge rows */
    MGV__OP_PREPEND,    /* target = the rows of weight[0], weight[1] ... [the first ones + the table's first entries], then all of source */
    MGV__OP_PICK,       /* target = one row of source: which one is the geometry's to say */
    MGV__OP_EMBED,      /* target row i = row ids[i] of weight[0] [+ row i of the table] */
    MGV__OP_KIND_COUNT
};

/* What one row of a buffer stands for. */
typedef int32_t mgv__rows;
enum { MGV__ROWS_TOKENS = 0, MGV__ROWS_MERGED /* merge * merge tokens */, MGV__ROWS_IMAGES, MGV__ROWS_PATCHES /* tokens but the prefix */ };

/* Rows that one picture has in a buffer. */
static uint32_t mgv__grid_rows(const mgv_grid *grid, mgv__rows rows) {
    switch (rows) {
    case MGV__ROWS_TOKENS: return grid->tokens;
    case MGV__ROWS_MERGED: return grid->merged_tokens;
    case MGV__ROWS_PATCHES: return grid->t * grid->h * grid->w;
    default: return 1;
    }
}

/* Which rows attend to each other. */
typedef int32_t mgv__range_kind;
enum { MGV__RANGE_FRAME = 0 /* all tokens of one frame; a still picture is one frame */, MGV__RANGE_WINDOW, MGV__RANGE_KIND_COUNT };

enum { MGV__MAX_PARTS = 3, MGV__MAX_BUFFERS = 16, MGV__NONE = 0xFFFF };

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
    uint16_t source, target;      /* buffers; an embedding has no source but its target */
    uint16_t add;                 /* buffer added at the end (the residual), or MGV__NONE */
    uint16_t fold;                /* source rows that are read as one long row; 1 but for mergers */
    uint32_t inner;               /* columns of one (folded) source row */
    uint32_t columns;             /* columns of one target row */
    uint32_t part_count;          /* weights side by side along the columns: q, k, v; or of a gated product: gate, up */
    uint32_t part_columns[MGV__MAX_PARTS];
    uint32_t weight[MGV__MAX_PARTS]; /* tensor numbers, each [columns of the part, inner]; parts of one tensor lie one below the other */
    uint32_t bias[MGV__MAX_PARTS];   /* tensor numbers or MGV__NO_TENSOR */
    uint32_t channel_scale;       /* LayerScale: tensor [columns], or MGV__NO_TENSOR */
    uint32_t table;               /* position table added by the picture's samples, or MGV__NO_TENSOR */
    mgv__activation activation;
    int32_t gated;                /* activation(part 0) times part 1 */
    float epsilon;                /* norms */
    int32_t rms;                  /* norms: 1 RMSNorm, 0 LayerNorm */
    uint32_t heads, head_dim;     /* rotary, attention, pool */
    float scale;                  /* attention, pool: on the scores */
    mgv__range_kind range;        /* attention */
    int32_t causal;               /* attention: a row sees the rows of its range up to itself */
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

/* What each row, or each column, of patches takes from a square table along one axis: a weighted sum of `count` entries. */
typedef struct mgv__axis_samples {
    uint32_t count;
    const uint32_t *index; /* [rows or columns, count] */
    const float *weight;
} mgv__axis_samples;

/* What the operations need to know about one picture besides its pixels, or about one text. Arrays live in the engine's scratch memory. */
typedef struct mgv__geometry {
    mgv_grid grid;
    uint32_t merge;               /* side of the blocks that patches come in */
    mgv__axis_samples down, across; /* samples of the position table for rows and columns of patches */
    uint32_t table_side;          /* of the square of positions */
    uint32_t table_first;         /* entries before it, which belong to the first rows that are prepended */
    const float *position;        /* [tokens * 3] coordinates (t, h, w) of each row, in row order; NULL without rotary */
    const uint32_t *range_ends[MGV__RANGE_KIND_COUNT]; /* ascending; range r is [ends[r-1], ends[r]) */
    uint32_t range_count[MGV__RANGE_KIND_COUNT];
    const uint32_t *order;        /* [merged_tokens] for gathers: unit i comes from unit order[i]; NULL without */
    const uint32_t *ids;          /* [tokens] of a text */
    uint32_t picked;              /* the row that stands for all: a picture's class token */
} mgv__geometry;

/* How the pairs of a head turn: elements j and j + head_dim / 2 by position[axis[j]] * frequency[j] radians. Any share of the pairs may
   belong to any axis, in any order: a vision tower gives its first half to rows and its second to columns, a text decoder interleaves. */
typedef struct mgv__rotary {
    uint8_t axis[MGV__MAX_HEAD_DIM / 2]; /* t = 0, h = 1, w = 2 */
    float frequency[MGV__MAX_HEAD_DIM / 2];
} mgv__rotary;

typedef struct mgv__program {
    mgv__buffer_desc buffers[MGV__MAX_BUFFERS];
    uint32_t buffer_count;
    mgv__rotary rotary; /* of all rotary operations */
    mgv__op *ops;
    uint32_t op_count;
    mgv__tap *taps;
    uint32_t tap_count;
} mgv__program;

/* Floating-point operations of one entry, a multiply-add counted as two, norms and activations not at all. rows: rows of the
   target; pairs: (query, key) pairs of one head; tokens: tokens of the picture. The pooling head counts as the reference
   computes it: the query is projected for every picture, keys and values are formed. */
static double mgv__op_flops(const mgv__op *op, double rows, double pairs, double tokens) {
    double columns = op->columns;
    switch (op->kind) {
    case MGV__OP_LINEAR: return 2 * rows * columns * (op->gated ? op->part_count : 1) * op->inner;
    case MGV__OP_ATTENTION: return 4 * pairs * op->heads * op->head_dim;
    case MGV__OP_POOL: return (2 + 4 * tokens) * columns * op->inner + 4 * tokens * op->heads * op->head_dim;
    default: return 0;
    }
}

/* The row of its tensor at which a part of a product begins. */
static uint32_t mgv__op_part_row(const mgv__op *op, uint32_t part) {
    uint32_t i, row = 0;
    for (i = 0; i < part; i++)
        if (op->weight[i] == op->weight[part]) row += op->part_columns[i];
    return row;
}

/* Which buffers an operation reads. */
static uint32_t mgv__op_reads(const mgv__op *op) {
    uint32_t reads = op->kind == MGV__OP_EMBED ? 0 : 1u << op->source;
    if (op->add != MGV__NONE) reads |= 1u << op->add;
    if (op->kind == MGV__OP_ROTARY) reads |= 1u << op->target;
    return reads;
}

/* Gives every buffer a place in one block of memory so that no two buffers overlap that hold values at the same time
   (the patches are dead when the MLP starts, q, k and v when the next layer does). bytes[i]: size of buffer i;
   offsets[i]: its place. Returns 1 and the size of the block, or 0 if it does not fit a size_t. */
static int mgv__place_buffers(const mgv__program *program, const size_t *bytes, size_t *offsets, size_t *total) {
    uint32_t clash[MGV__MAX_BUFFERS], live = 0, i, k;
    memset(clash, 0, sizeof clash);
    for (i = program->op_count; i-- > 0;) {
        const mgv__op *op = &program->ops[i];
        uint32_t reads = mgv__op_reads(op);
        for (k = 0; k < program->tap_count; k++)
            if (program->taps[k].op == i) live |= 1u << program->taps[k].buffer;
        clash[op->target] |= live | reads;
        live = (live & ~(1u << op->target)) | reads;
        for (k = 0; k < program->buffer_count; k++)
            if (live >> k & 1u) clash[k] |= live;
    }
    *total = 0;
    for (i = 0; i < program->buffer_count; i++) {
        size_t offset = 0, end;
        for (k = 0; k < i; k++) {
            int clashes = (clash[i] >> k & 1u) || (clash[k] >> i & 1u);
            if (!clashes || offsets[k] + bytes[k] <= offset || (offsets[k] >= offset && offsets[k] - offset >= bytes[i])) continue;
            offset = offsets[k] + bytes[k];
            k = UINT32_MAX; /* the buffer moved: compare with all again */
        }
        if (!mgv__add(offset, bytes[i], &end)) return 0;
        offsets[i] = offset;
        if (end > *total) *total = end;
    }
    return 1;
}

/* ---------------------------------------------------------------------------------------------------------------
   >>geometry: which token is where: positions, samples of the position table, ranges of attention, window order

   Rows of a picture come frame by frame; inside a frame block by block, row-major, a block being the merge x merge patches
   that become one token at the end; inside a block row-major again. With merge 1 that is plain row-major order.
   Source of every rule: transformers 5.17, vision_utils.py, named at each function. */

/* Where row `row` of a picture lies, before any window order. */
typedef struct mgv__patch_place {
    uint32_t t, y, x;
} mgv__patch_place;

/* get_vision_position_ids: the inverse of the block order. */
static mgv__patch_place mgv__patch_of_row(const mgv_grid *grid, uint32_t merge, uint32_t row) {
    mgv__patch_place place;
    uint32_t frame_rows = grid->h * grid->w, within = row % frame_rows;
    uint32_t inside = within % (merge * merge), block = within / (merge * merge), blocks_wide = grid->w / merge;
    place.t = row / frame_rows;
    place.y = block / blocks_wide * merge + inside / merge;
    place.x = block % blocks_wide * merge + inside % merge;
    return place;
}

/* The two neighbours in a table of `side` entries that entry `index` of `count` falls between, ends on ends, and their weights
   (_interpolation_axis_taps_weights, bilinear, align_corners). Float operations in the reference's order: its floor() must not flip.
   A grid larger than the table only samples it more finely, so there is no grid that the table cannot reach. */
static void mgv__interpolate_axis(uint32_t index, uint32_t count, uint32_t side, uint32_t tap[2], float weight[2]) {
    float last = (float)(side - 1), steps = (float)(count > 1 ? count - 1 : 1);
    float at = (float)index * last / steps;
    float below = floorf(at), distance = at - below;
    tap[0] = (uint32_t)below;
    tap[1] = tap[0] + 1 < side ? tap[0] + 1 : side - 1;
    weight[0] = 1.0f - distance;
    weight[1] = 1.0f - weight[0];
}

/* Four neighbours and the weights of torch's bicubic (UpSample.h, get_cubic_upsample_coefficients: a = -0.75, in float), entries beyond
   the ends being those at the ends. */
static void mgv__cubic_axis(uint32_t index, uint32_t count, uint32_t side, uint32_t tap[4], float weight[4]) {
    const float a = -0.75f, scale = (float)side / (float)count, at = scale * ((float)index + 0.5f) - 0.5f;
    const float below = floorf(at), distance = at - below;
    uint32_t k;
    for (k = 0; k < 4; k++) {
        const float entry = below + (float)k - 1.0f, x = fabsf(distance - ((float)k - 1.0f));
        tap[k] = entry < 0.0f ? 0 : entry < (float)side ? (uint32_t)entry : side - 1;
        weight[k] = x <= 1.0f ? ((a + 2.0f) * x - (a + 3.0f)) * x * x + 1.0f : ((a * x - 5.0f * a) * x + 8.0f * a) * x - 4.0f * a;
    }
}

/* Entries of one axis of a position table that go into one row or column of patches. */
static uint32_t mgv__axis_sample_count(mgv__interpolation kind, uint32_t side, uint32_t count) {
    switch (kind) {
    case MGV__TABLE_ENDS: return 2;
    case MGV__TABLE_CUBIC: return 4;
    case MGV__TABLE_CUBIC_AREA: return mgv__axis_taps(MGV__RESAMPLE_BICUBIC, side, count);
    case MGV__TABLE_LINEAR_AREA: return mgv__axis_taps(MGV__RESAMPLE_BILINEAR, side, count);
    default: return 1;
    }
}

/* The samples of all `count` rows, or columns, of patches. memory, weights: room for mgv__axis_sample_count entries of each; window: for as
   many doubles. */
static mgv__axis_samples mgv__fill_axis(const mgv__config *config, uint32_t count, void *memory, void *weights, void *window) {
    const mgv__interpolation kind = config->interpolation;
    const uint32_t side = config->position_side, taps = mgv__axis_sample_count(kind, side, count);
    const int32_t filter = kind == MGV__TABLE_CUBIC_AREA ? MGV__RESAMPLE_BICUBIC : MGV__RESAMPLE_BILINEAR;
    uint32_t *index = (uint32_t *)memory, i, k;
    float *weight = (float *)weights;
    double *wide = (double *)window;
    mgv__axis_samples samples;
    mgv__axis axis;
    samples.count = taps;
    samples.index = index;
    samples.weight = weight;
    memset(&axis, 0, sizeof axis);
    axis.in = side;
    axis.out = count;
    for (i = 0; i < count; i++, index += taps, weight += taps) {
        if (kind == MGV__TABLE_AS_IT_IS) {
            index[0] = i;
            weight[0] = 1.0f;
        } else if (kind == MGV__TABLE_ENDS) {
            mgv__interpolate_axis(i, count, side, index, weight);
        } else if (kind == MGV__TABLE_CUBIC) {
            mgv__cubic_axis(i, count, side, index, weight);
        } else {
            const mgv__window entries = mgv__axis_window(&axis, filter, i, wide);
            for (k = 0; k < taps; k++) {
                index[k] = k < entries.count ? entries.first + k : 0;
                weight[k] = k < entries.count ? (float)wide[k] : 0.0f;
            }
        }
    }
    return samples;
}

/* Cuts every frame into windows of side x side merged units, row-major; those at the right and lower edge are smaller. Writes the
   units in window order and where each window ends, counted in tokens; returns how many windows there are
   (get_vision_window_index; the empty windows that it pads with and then drops are never made here). */
static uint32_t mgv__window_order(const mgv_grid *grid, uint32_t merge, uint32_t side, uint32_t *order, uint32_t *ends) {
    uint32_t high = grid->h / merge, wide = grid->w / merge, t, top, left, y, x, unit = 0, windows = 0;
    for (t = 0; t < grid->t; t++)
        for (top = 0; top < high; top += side)
            for (left = 0; left < wide; left += side) {
                for (y = top; y < high && y - top < side; y++)
                    for (x = left; x < wide && x - left < side; x++) order[unit++] = (t * high + y) * wide + x;
                ends[windows++] = unit * merge * merge;
            }
    return windows;
}

/* Side of an attention window in merged units; 0 for a model without windows. */
static uint32_t mgv__window_side(const mgv__config *config) {
    return config->window_size / config->merge / config->patch;
}

/* Rows of every picture; 0: that depends on the picture. */
static uint32_t mgv__fixed_tokens(const mgv__config *config) {
    const uint32_t side = config->image_size / config->patch;
    return side != 0 ? side * side + config->prefix : 0;
}

/* How a picture of this size will be laid out. min_pixels, max_pixels: 0 for what the config says. */
static mgv_result mgv__picture_grid(const mgv__config *config, const mgv_image *image, uint64_t min_pixels, uint64_t max_pixels,
                                    mgv_grid *grid, mgv_error *error) {
    mgv_result result = mgv__pixels_grid(&config->pixels, image->width, image->height, image->frames, min_pixels, max_pixels, grid, error);
    if (result != MGV_OK) return result;
    grid->tokens += config->prefix;
    if (config->merge == 1) grid->merged_tokens = grid->tokens;
    return MGV_OK;
}

/* The grid is one that this model can run: every count is what the others say. */
static mgv_result mgv__geometry_check(const mgv__config *config, const mgv_grid *grid, mgv_error *error) {
    uint32_t merge = config->merge;
    uint64_t frame_rows = (uint64_t)grid->h * grid->w;
    if (grid->t == 0 || frame_rows == 0) return mgv__fail(error, MGV_ERROR_ARGUMENT, "a picture without patches");
    if (grid->h % merge != 0 || grid->w % merge != 0)
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "a grid of %u x %u patches cannot be merged in blocks of %u x %u", (uint64_t)grid->h,
                         (uint64_t)grid->w, (uint64_t)merge, (uint64_t)merge);
    /* so that row numbers times the 4 samples of a row still fit 32 bits */
    if (frame_rows > (UINT32_MAX / 4) / grid->t)
        return mgv__fail(error, MGV_ERROR_CAPACITY, "%u frames of %u patches; the limit is %u patches", (uint64_t)grid->t, frame_rows,
                         (uint64_t)(UINT32_MAX / 4));
    if (grid->tokens != grid->t * frame_rows + config->prefix || grid->merged_tokens != grid->tokens / (merge * merge))
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "a grid of %u x %u x %u patches with %u tokens, %u merged", (uint64_t)grid->t,
                         (uint64_t)grid->h, (uint64_t)grid->w, (uint64_t)grid->tokens, (uint64_t)grid->merged_tokens);
    if (config->position_side != 0 && config->interpolation == MGV__TABLE_AS_IT_IS &&
        (grid->t != 1 || grid->h != config->position_side || grid->w != config->position_side))
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "a grid of %u x %u x %u patches; this model has positions for 1 x %u x %u",
                         (uint64_t)grid->t, (uint64_t)grid->h, (uint64_t)grid->w, (uint64_t)config->position_side,
                         (uint64_t)config->position_side);
    return MGV_OK;
}

/* (query, key) pairs of one head when `count` is cut into pieces of `side`, the last one shorter: the sum of squares of the pieces. */
static double mgv__pairs_of_cut(uint32_t count, uint32_t side) {
    double whole = count / side, rest = count % side;
    return whole * side * side + rest * rest;
}

/* (query, key) pairs of one head in all ranges of a kind. */
static double mgv__attention_pairs(const mgv__config *config, const mgv_grid *grid, mgv__range_kind range) {
    double frame_rows = (double)grid->h * grid->w, unit_rows = config->merge * config->merge;
    uint32_t side = mgv__window_side(config), high = grid->h / config->merge, wide = grid->w / config->merge;
    if (range == MGV__RANGE_FRAME || side == 0) return grid->t * (frame_rows + config->prefix) * (frame_rows + config->prefix);
    return grid->t * unit_rows * unit_rows * mgv__pairs_of_cut(high, side) * mgv__pairs_of_cut(wide, side);
}

/* The arrays of a geometry, one after the other in scratch memory. */
typedef struct mgv__geometry_layout {
    size_t down_index, down_weight, across_index, across_weight, window, position, frame_ends, window_ends, order, bytes;
} mgv__geometry_layout;

/* Appends `count` entries of 4 bytes at the next cache line. */
static int mgv__geometry_array(mgv__geometry_layout *layout, size_t *offset, size_t count) {
    size_t bytes;
    if (!mgv__align_up(layout->bytes, 64, offset) || !mgv__mul(count, 4, &bytes)) return 0;
    return mgv__add(*offset, bytes, &layout->bytes);
}

static int mgv__geometry_plan(const mgv__config *config, size_t tokens, mgv__geometry_layout *layout) {
    const size_t units = tokens / (config->merge * config->merge);
    const int windowed = mgv__window_side(config) != 0, by_area = config->interpolation >= MGV__TABLE_CUBIC_AREA;
    size_t samples = 0, window = 0, coordinates;
    memset(layout, 0, sizeof *layout);
    if ((uint64_t)tokens > UINT32_MAX || !mgv__mul(tokens, 64, &samples)) return 0;
    coordinates = config->rope_theta > 0 ? 3 * tokens : 0;
    samples = by_area ? mgv__axis_weight_count(config->position_side, (uint32_t)tokens)
                      : tokens * mgv__axis_sample_count(config->interpolation, 1, 1);
    if (config->position_side == 0) samples = 0;
    if (by_area) window = 2 * (size_t)mgv__axis_sample_count(config->interpolation, config->position_side, 1);
    /* no axis has more patches than there are tokens, no frame and no window is smaller than one unit */
    return mgv__geometry_array(layout, &layout->down_index, samples) && mgv__geometry_array(layout, &layout->down_weight, samples) &&
           mgv__geometry_array(layout, &layout->across_index, samples) && mgv__geometry_array(layout, &layout->across_weight, samples) &&
           mgv__geometry_array(layout, &layout->window, window) && mgv__geometry_array(layout, &layout->position, coordinates) &&
           mgv__geometry_array(layout, &layout->frame_ends, units) &&
           mgv__geometry_array(layout, &layout->window_ends, windowed ? units : 0) &&
           mgv__geometry_array(layout, &layout->order, windowed ? units : 0);
}

/* Scratch memory that mgv__geometry_fill needs for any picture of at most max_tokens tokens. 0: the size overflows. */
static int mgv__geometry_scratch_bytes(const mgv__config *config, size_t max_tokens, size_t *bytes) {
    mgv__geometry_layout layout;
    if (!mgv__geometry_plan(config, max_tokens, &layout)) return 0;
    *bytes = layout.bytes;
    return 1;
}

/* 2 pi times the middle of patch `index` of `count`, where the picture goes from -1 to 1 (DINOv3's get_patches_center_coordinates and
   DINOv3ViTRopePositionEmbedding). */
static float mgv__centered_angle(uint32_t index, uint32_t count) {
    return 6.28318530717958647692f * (2.0f * (((float)index + 0.5f) / (float)count) - 1.0f);
}

/* order: of the merged units, or NULL where rows stay as they came. */
static void mgv__fill_positions(const mgv__config *config, const mgv_grid *grid, const uint32_t *order, float *position) {
    uint32_t row, patches = mgv__grid_rows(grid, MGV__ROWS_PATCHES), unit_rows = config->merge * config->merge;
    for (row = 0; row < config->prefix; row++, position += 3) position[0] = position[1] = position[2] = 0.0f; /* they do not turn */
    for (row = 0; row < patches; row++, position += 3) {
        uint32_t source = order != NULL ? order[row / unit_rows] * unit_rows + row % unit_rows : row;
        mgv__patch_place place = mgv__patch_of_row(grid, config->merge, source);
        position[0] = (float)place.t;
        position[1] = config->rope_centered ? mgv__centered_angle(place.y, grid->h) : (float)place.y;
        position[2] = config->rope_centered ? mgv__centered_angle(place.x, grid->w) : (float)place.x;
    }
}

/* Fills `geometry` for one picture; its arrays lie in `scratch`, 64-byte aligned and of mgv__geometry_scratch_bytes for at least
   grid->tokens. Positions and ranges are of rows as the operations between the two gathers see them, in window order where there are
   windows; samples are of rows as the patches came, for the table is added before the first gather. */
static void mgv__geometry_fill(const mgv__config *config, const mgv_grid *grid, void *scratch, mgv__geometry *geometry) {
    mgv__geometry_layout layout;
    char *base = (char *)scratch;
    uint32_t *frame_ends, *window_ends, *order, t;
    float *position;

    memset(geometry, 0, sizeof *geometry);
    geometry->grid = *grid;
    geometry->merge = config->merge;
    if (!mgv__geometry_plan(config, grid->tokens, &layout)) return; /* not reached: a larger count was planned before */
    position = (float *)(void *)(base + layout.position);
    frame_ends = (uint32_t *)(void *)(base + layout.frame_ends);
    window_ends = (uint32_t *)(void *)(base + layout.window_ends);
    order = (uint32_t *)(void *)(base + layout.order);

    for (t = 0; t < grid->t; t++) frame_ends[t] = (t + 1) * grid->h * grid->w + config->prefix;
    geometry->range_ends[MGV__RANGE_FRAME] = frame_ends;
    geometry->range_count[MGV__RANGE_FRAME] = grid->t;

    if (mgv__window_side(config) != 0) {
        geometry->range_count[MGV__RANGE_WINDOW] = mgv__window_order(grid, config->merge, mgv__window_side(config), order, window_ends);
        geometry->range_ends[MGV__RANGE_WINDOW] = window_ends;
        geometry->order = order;
    }

    if (config->position_side != 0) {
        geometry->table_side = config->position_side;
        geometry->table_first = config->position_first;
        geometry->down = mgv__fill_axis(config, grid->h, base + layout.down_index, base + layout.down_weight, base + layout.window);
        geometry->across = mgv__fill_axis(config, grid->w, base + layout.across_index, base + layout.across_weight, base + layout.window);
    }

    if (config->rope_theta > 0) {
        mgv__fill_positions(config, grid, geometry->order, position);
        geometry->position = position;
    }
}

/* ---------------------------------------------------------------------------------------------------------------
   >>builders: one function a model family: config + tensors in, list of operations out

   A builder names tensors and appends operations. The first failure sticks: later calls do nothing, so a builder
   reads as a plain list and checks once, at its end. */

enum { MGV__NAME_BYTES = 256, MGV__MAX_PROJECTION = 65536 };

struct mgv__builder {
    const mgv__config *config;
    const mgv__checkpoint *checkpoint;
    const mgv_allocator *allocator;
    mgv_error *error;
    mgv_result result;
    char prefix[MGV__NAME_BYTES]; /* of every tensor of the tower, such as "vision_model." */
    char scope[MGV__NAME_BYTES];  /* below the prefix, such as "encoder.layers.3." */
    int32_t layer;
    mgv__program program;
    mgv__tensor *tensors;
    uint32_t tensor_count, tensor_capacity, op_capacity, tap_capacity;
    mgv__op spare; /* what mgv__push gives after a failure, so that builders need no checks between */
};

/* Doubles *items, an array of `count` items of `item_bytes`, when it is full. Returns 1, or 0 without memory. */
static int mgv__grow(const mgv_allocator *allocator, void **items, uint32_t count, uint32_t *capacity, size_t item_bytes) {
    size_t bytes;
    uint32_t grown;
    void *bigger;
    if (count < *capacity) return 1;
    if (*capacity > UINT32_MAX / 2) return 0;
    grown = *capacity ? *capacity * 2 : 64;
    if (!mgv__mul(grown, item_bytes, &bytes)) return 0;
    bigger = mgv__alloc(allocator, bytes);
    if (!bigger) return 0;
    if (count) memcpy(bigger, *items, count * item_bytes);
    mgv__free(allocator, *items);
    *items = bigger;
    *capacity = grown;
    return 1;
}

static void mgv__builder_nomem(mgv__builder *b) {
    if (b->result == MGV_OK) b->result = mgv__fail(b->error, MGV_ERROR_NOMEM, "out of memory while the model was put together");
}

/* Later names are below this scope: a layer's number and its path, in which `%u` stands for the number. */
static void mgv__enter(mgv__builder *b, int32_t layer, const char *path) {
    b->layer = layer;
    mgv__print(b->scope, sizeof b->scope, path, (uint64_t)(layer < 0 ? 0 : layer));
}

static int mgv__same_shape(const mgv__tensor *tensor, uint32_t rank, const uint64_t *shape) {
    uint32_t i;
    if (tensor->rank != rank) return 0;
    for (i = 0; i < rank; i++)
        if (tensor->shape[i] != shape[i]) return 0;
    return 1;
}

/* "[768, 3, 16, 16]" */
static void mgv__shape_text(char *text, size_t capacity, uint32_t rank, const uint64_t *shape) {
    char number[32];
    size_t used = 1;
    uint32_t i;
    text[0] = '[';
    text[1] = 0;
    for (i = 0; i < rank; i++) {
        size_t length;
        mgv__print(number, sizeof number, i ? ", %u" : "%u", shape[i]);
        length = strlen(number);
        if (used + length + 2 > capacity) break;
        memcpy(text + used, number, length + 1);
        used += length;
    }
    text[used] = ']';
    text[used + 1] = 0;
}

/* MLX keeps the weights of a convolution as [out, ..., in] rather than [out, in, ...]. */
static int mgv__is_channels_last(const mgv__tensor *tensor, uint32_t rank, const uint64_t *shape) {
    uint32_t i;
    if (rank < 4 || tensor->rank != rank || tensor->shape[0] != shape[0] || tensor->shape[rank - 1] != shape[1]) return 0;
    for (i = 2; i < rank; i++)
        if (tensor->shape[i - 1] != shape[i]) return 0;
    return !mgv__same_shape(tensor, rank, shape);
}
/* Adds to a sentence about a tensor what else is known of the files. */
static void mgv__add_reason(mgv__builder *b) {
    const char *lost = b->checkpoint->lost, *quantised_by = b->config->quantised_by;
    size_t used = b->error ? strlen(b->error->message) : 0;
    if (b->error == NULL) return;
    if (*quantised_by) {
        mgv__print(b->error->message + used, sizeof b->error->message - used,
                   "; config.json says that the weights are quantised (%q), and such weights are not read", quantised_by);
    } else if (lost != NULL) {
        mgv__print(b->error->message + used, sizeof b->error->message - used, "; %s, which the index names, is not there", lost);
    }
}
/* Finds the tensor `name` below the scope, checks type and shape, and returns its number in the model. */
static uint32_t mgv__bind(mgv__builder *b, const char *name, uint32_t rank, const uint64_t *shape) {
    char full[3 * MGV__NAME_BYTES], expected[192], found[192];
    const mgv__tensor *tensor;
    int channels_last;
    if (b->result != MGV_OK) return MGV__NO_TENSOR;
    mgv__print(full, sizeof full, "%s%s%s", b->prefix, b->scope, name);
    tensor = mgv__checkpoint_find(b->checkpoint, full);
    if (!tensor) {
        b->result = mgv__fail(b->error, MGV_ERROR_MODEL, "tensor %q is missing: config.json describes a model that needs it", full);
        mgv__add_reason(b);
        return MGV__NO_TENSOR;
    }
    channels_last = mgv__is_channels_last(tensor, rank, shape);
    if (!channels_last && !mgv__same_shape(tensor, rank, shape)) {
        mgv__shape_text(expected, sizeof expected, rank, shape);
        mgv__shape_text(found, sizeof found, tensor->rank, tensor->shape);
        b->result = mgv__fail(b->error, MGV_ERROR_MODEL, "tensor %q has shape %s where config.json asks for %s", full, found, expected);
        mgv__add_reason(b);
        return MGV__NO_TENSOR;
    }
    if (tensor->dtype != MGV_DTYPE_F32 && tensor->dtype != MGV_DTYPE_F16 && tensor->dtype != MGV_DTYPE_BF16) {
        b->result = mgv__fail(b->error, MGV_ERROR_UNSUPPORTED, "tensor %q is stored as %s; a model may use F32, F16 and BF16", full,
                              mgv_dtype_name(tensor->dtype));
        mgv__add_reason(b);
        return MGV__NO_TENSOR;
    }
    if (!mgv__grow(b->allocator, (void **)&b->tensors, b->tensor_count, &b->tensor_capacity, sizeof *b->tensors)) {
        mgv__builder_nomem(b);
        return MGV__NO_TENSOR;
    }
    b->tensors[b->tensor_count] = *tensor;
    b->tensors[b->tensor_count].channels_last = channels_last;
    if (channels_last) memcpy(b->tensors[b->tensor_count].shape, shape, rank * sizeof *shape);
    return b->tensor_count++;
}
static uint32_t mgv__bind_vector(mgv__builder *b, const char *name, uint64_t length) {
    return mgv__bind(b, name, 1, &length);
}
static uint32_t mgv__bind_matrix(mgv__builder *b, const char *name, uint64_t rows, uint64_t columns) {
    uint64_t shape[2];
    shape[0] = rows;
    shape[1] = columns;
    return mgv__bind(b, name, 2, shape);
}

static uint16_t mgv__add_buffer(mgv__builder *b, const char *name, mgv__rows rows, uint32_t columns) {
    mgv__program *program = &b->program;
    mgv__buffer_desc *buffer = &program->buffers[program->buffer_count];
    buffer->name = name;
    buffer->rows = rows;
    buffer->columns = columns;
    return (uint16_t)program->buffer_count++;
}

/* Appends an operation of the current layer; what is not set stays "none". */
static mgv__op *mgv__push(mgv__builder *b, mgv__op_kind kind, const char *label, uint16_t source, uint16_t target) {
    mgv__op *op = &b->spare;
    uint32_t i;
    if (b->result == MGV_OK && !mgv__grow(b->allocator, (void **)&b->program.ops, b->program.op_count, &b->op_capacity, sizeof *op))
        mgv__builder_nomem(b);
    if (b->result == MGV_OK) op = &b->program.ops[b->program.op_count++];
    memset(op, 0, sizeof *op);
    op->kind = kind;
    op->label = label;
    op->layer = b->layer;
    op->source = source;
    op->target = target;
    op->add = MGV__NONE;
    op->fold = 1;
    op->rows = b->program.buffers[target].rows;
    op->columns = b->program.buffers[target].columns;
    op->inner = b->program.buffers[source].columns;
    op->table = op->probe = op->channel_scale = MGV__NO_TENSOR;
    for (i = 0; i < MGV__MAX_PARTS; i++) op->weight[i] = op->bias[i] = MGV__NO_TENSOR;
    return op;
}

/* Adds one weight [columns, op->inner] and, unless bias_name is NULL, its bias to a linear operation. */
static void mgv__add_part(mgv__builder *b, mgv__op *op, const char *weight_name, const char *bias_name, uint32_t columns) {
    uint32_t part = op->part_count++;
    op->part_columns[part] = columns;
    op->weight[part] = mgv__bind_matrix(b, weight_name, columns, op->inner);
    if (bias_name) op->bias[part] = mgv__bind_vector(b, bias_name, columns);
}

/* target = source . weight^T + bias with one weight as wide as the target. */
static mgv__op *mgv__push_linear(mgv__builder *b, const char *label, uint16_t source, uint16_t target, const char *weight_name,
                                 const char *bias_name) {
    mgv__op *op = mgv__push(b, MGV__OP_LINEAR, label, source, target);
    mgv__add_part(b, op, weight_name, bias_name, op->columns);
    return op;
}

/* bias_name NULL: RMSNorm. */
static mgv__op *mgv__push_norm(mgv__builder *b, const char *label, uint16_t source, uint16_t target, const char *weight_name,
                               const char *bias_name, float epsilon) {
    mgv__op *op = mgv__push(b, MGV__OP_NORM, label, source, target);
    op->epsilon = epsilon;
    op->rms = bias_name == NULL;
    op->weight[0] = mgv__bind_vector(b, weight_name, op->inner);
    if (bias_name) op->bias[0] = mgv__bind_vector(b, bias_name, op->inner);
    return op;
}

/* The last operation pushed leaves an output in its target. */
static void mgv__push_tap(mgv__builder *b, mgv_output_kind kind, uint32_t index) {
    mgv__tap *tap;
    if (b->result == MGV_OK && !mgv__grow(b->allocator, (void **)&b->program.taps, b->program.tap_count, &b->tap_capacity, sizeof *tap))
        mgv__builder_nomem(b);
    if (b->result != MGV_OK) return;
    tap = &b->program.taps[b->program.tap_count++];
    tap->kind = kind;
    tap->index = index;
    tap->op = b->program.op_count - 1;
    tap->buffer = b->program.ops[tap->op].target;
}

/* The tower's tensors may have any prefix (alone, in a full SigLIP file, in a vision-language model): whatever stands
   before `anchor`, a name that only the tower has, and that no two tensors may end in. */
static void mgv__find_prefix(mgv__builder *b, const char *anchor) {
    const char *found = NULL;
    size_t anchor_length = strlen(anchor), prefix_length = 0;
    uint32_t i;
    if (b->result != MGV_OK) return;
    for (i = 0; i < b->checkpoint->name_count; i++) {
        const char *name = b->checkpoint->tensors[b->checkpoint->by_name[i]].name;
        size_t length = strlen(name);
        if (length < anchor_length || strcmp(name + length - anchor_length, anchor) != 0) continue;
        if (length > anchor_length && name[length - anchor_length - 1] != '.') continue;
        if (found) {
            b->result = mgv__fail(b->error, MGV_ERROR_MODEL, "both %q and %q could begin the vision tower; one file must hold one tower",
                                  found, name);
            return;
        }
        found = name;
        prefix_length = length - anchor_length;
    }
    if (!found) {
        b->result = mgv__fail(b->error, MGV_ERROR_MODEL,
                              "no tensor is named %q: the files hold no vision tower of the kind that config.json describes", anchor);
        mgv__add_reason(b);
        return;
    }
    if (prefix_length >= sizeof b->prefix) {
        b->result = mgv__fail(b->error, MGV_ERROR_MODEL, "tensor %q has a prefix of %u bytes; the limit is %u", found,
                              (uint64_t)prefix_length, (uint64_t)sizeof b->prefix - 1);
        return;
    }
    memcpy(b->prefix, found, prefix_length);
    b->prefix[prefix_length] = 0;
}

/* The tensor `name` below the scope, or NULL. */
static const mgv__tensor *mgv__find(const mgv__builder *b, const char *name) {
    char full[3 * MGV__NAME_BYTES];
    mgv__print(full, sizeof full, "%s%s%s", b->prefix, b->scope, name);
    return mgv__checkpoint_find(b->checkpoint, full);
}

/* Fails if the files hold `name`, which this config.json has no place for: they are of a larger model. */
static void mgv__refuse(mgv__builder *b, const char *name) {
    const mgv__tensor *tensor = mgv__find(b, name);
    if (b->result == MGV_OK && tensor)
        b->result = mgv__fail(b->error, MGV_ERROR_MODEL, "tensor %q has no place in the model that config.json describes", tensor->name);
}

/* Adds the weight `base`.weight and the bias `base`.bias; bias: 0 there is none, 1 there must be one, -1 there may be one. */
static void mgv__add_named_part(mgv__builder *b, mgv__op *op, const char *base, uint32_t columns, int bias) {
    char weight[MGV__NAME_BYTES], bias_name[MGV__NAME_BYTES];
    mgv__print(weight, sizeof weight, "%s.weight", base);
    mgv__print(bias_name, sizeof bias_name, "%s.bias", base);
    if (bias < 0) bias = mgv__find(b, bias_name) != NULL;
    mgv__add_part(b, op, weight, bias ? bias_name : NULL, columns);
}

/* ---- The layer that all families have: stream += attention(norm(stream)); stream += MLP(norm(stream)) ---- */

typedef struct mgv__layer_buffers {
    uint16_t stream, normed, qkv, attended, mlp;
} mgv__layer_buffers;

static mgv__layer_buffers mgv__add_layer_buffers(mgv__builder *b) {
    const mgv__config *c = b->config;
    mgv__layer_buffers buffers;
    buffers.stream = mgv__add_buffer(b, "stream", MGV__ROWS_TOKENS, c->hidden);
    buffers.normed = mgv__add_buffer(b, "normed", MGV__ROWS_TOKENS, c->hidden);
    buffers.qkv = mgv__add_buffer(b, "qkv", MGV__ROWS_TOKENS, 3 * c->hidden);
    buffers.attended = mgv__add_buffer(b, "attended", MGV__ROWS_TOKENS, c->hidden);
    buffers.mlp = mgv__add_buffer(b, "mlp", MGV__ROWS_TOKENS, c->intermediate);
    return buffers;
}

/* What a family calls the tensors of a layer, and what is particular about it. Names are without ".weight" and ".bias", but for scales. */
typedef struct mgv__layer_kind {
    const char *scope;              /* of a layer, in which %u stands for its number */
    const char *norm[2];
    const char *q, *k, *v, *out;    /* k NULL: q is all three, one below the other */
    const char *gate, *up, *down;   /* of the MLP; gate NULL: it has none; gate as up: one tensor, the gate above */
    const char *scale[2];           /* LayerScale of attention and of the MLP, or NULL */
    int bias;                       /* of products: as for mgv__add_named_part */
    int rms;                        /* norms are RMSNorms */
    int causal;
} mgv__layer_kind;

static void mgv__push_layer_norm(mgv__builder *b, const mgv__layer_kind *kind, const mgv__layer_buffers *buffers, int which) {
    char weight[MGV__NAME_BYTES], bias[MGV__NAME_BYTES];
    mgv__print(weight, sizeof weight, "%s.weight", kind->norm[which]);
    mgv__print(bias, sizeof bias, "%s.bias", kind->norm[which]);
    mgv__push_norm(b, which ? "norm2" : "norm1", buffers->stream, buffers->normed, weight, kind->rms ? NULL : bias, b->config->epsilon);
}

/* stream += scale times the product of source. */
static void mgv__push_residual(mgv__builder *b, const mgv__layer_kind *kind, const mgv__layer_buffers *buffers, const char *label,
                               uint16_t source, const char *base, const char *scale) {
    mgv__op *op = mgv__push(b, MGV__OP_LINEAR, label, source, buffers->stream);
    mgv__add_named_part(b, op, base, op->columns, kind->bias);
    if (scale) op->channel_scale = mgv__bind_vector(b, scale, op->columns);
    op->add = buffers->stream;
}

static void mgv__push_attention(mgv__builder *b, const mgv__layer_kind *kind, const mgv__layer_buffers *buffers, mgv__range_kind range) {
    const mgv__config *c = b->config;
    mgv__op *op = mgv__push(b, MGV__OP_LINEAR, "qkv", buffers->normed, buffers->qkv);
    if (kind->k) {
        mgv__add_named_part(b, op, kind->q, c->hidden, kind->bias);
        mgv__add_named_part(b, op, kind->k, c->hidden, kind->bias);
        mgv__add_named_part(b, op, kind->v, c->hidden, kind->bias);
    } else {
        mgv__add_named_part(b, op, kind->q, op->columns, kind->bias);
    }
    if (c->rope_theta > 0) {
        op = mgv__push(b, MGV__OP_ROTARY, "rotary", buffers->qkv, buffers->qkv);
        op->heads = c->heads;
        op->head_dim = c->head_dim;
    }
    op = mgv__push(b, MGV__OP_ATTENTION, "attention", buffers->qkv, buffers->attended);
    op->heads = c->heads;
    op->head_dim = c->head_dim;
    op->scale = 1.0f / sqrtf((float)c->head_dim);
    op->range = range;
    op->causal = kind->causal;
}

static void mgv__push_mlp(mgv__builder *b, const mgv__layer_kind *kind, const mgv__layer_buffers *buffers) {
    mgv__op *op = mgv__push(b, MGV__OP_LINEAR, kind->gate ? "gate, up" : "fc1", buffers->normed, buffers->mlp);
    op->activation = b->config->activation;
    if (kind->gate && strcmp(kind->gate, kind->up) == 0) {
        mgv__add_named_part(b, op, kind->up, 2 * op->columns, kind->bias);
        op->part_columns[0] = op->part_columns[1] = op->columns;
        op->weight[1] = op->weight[0];
        op->bias[1] = op->bias[0];
        op->part_count = 2;
    } else {
        if (kind->gate) mgv__add_named_part(b, op, kind->gate, op->columns, kind->bias);
        mgv__add_named_part(b, op, kind->up, op->columns, kind->bias);
    }
    op->gated = kind->gate != NULL;
    mgv__push_residual(b, kind, buffers, kind->gate ? "down" : "fc2", buffers->mlp, kind->down, kind->scale[1]);
}

static void mgv__build_layer(mgv__builder *b, const mgv__layer_kind *kind, const mgv__layer_buffers *buffers, uint32_t layer,
                             mgv__range_kind range) {
    mgv__enter(b, (int32_t)layer, kind->scope);
    mgv__push_layer_norm(b, kind, buffers, 0);
    mgv__push_attention(b, kind, buffers, range);
    mgv__push_residual(b, kind, buffers, "out", buffers->attended, kind->out, kind->scale[0]);
    mgv__push_layer_norm(b, kind, buffers, 1);
    mgv__push_mlp(b, kind, buffers);
    mgv__push_tap(b, MGV_OUTPUT_LAYER, layer + 1);
}

/* All layers of config.json over whole frames, and no more of them. */
static void mgv__build_layers(mgv__builder *b, const mgv__layer_kind *kind, const mgv__layer_buffers *buffers) {
    char norm[MGV__NAME_BYTES];
    uint32_t layer;
    for (layer = 0; layer < b->config->layers; layer++) mgv__build_layer(b, kind, buffers, layer, MGV__RANGE_FRAME);
    mgv__enter(b, (int32_t)b->config->layers, kind->scope);
    mgv__print(norm, sizeof norm, "%s.weight", kind->norm[0]);
    mgv__refuse(b, norm);
    mgv__enter(b, -1, "");
}

/* ---- What stands before and behind the layers ---- */

/* The row turns the first half of a head's pairs, the column the second, by the same frequencies (compute_axial_rope_parameters). Every
   rounding is to float, as there. */
static void mgv__set_axial_rotary(mgv__rotary *rotary, uint32_t head_dim, float theta) {
    uint32_t pairs = head_dim / 2, each = head_dim / 4, i;
    for (i = 0; i < each; i++) {
        float exponent = (float)(2 * i) / (float)pairs, frequency = 1.0f / (float)pow((double)theta, (double)exponent);
        rotary->axis[i] = 1;
        rotary->axis[each + i] = 2;
        rotary->frequency[i] = rotary->frequency[each + i] = frequency;
    }
}

/* Patches to rows: a convolution whose stride is its size. patches: the first of all buffers. */
static uint16_t mgv__add_patches(mgv__builder *b) {
    const mgv__config *c = b->config;
    return mgv__add_buffer(b, "patches", MGV__ROWS_PATCHES, c->channels * c->temporal_patch * c->patch * c->patch);
}
static mgv__op *mgv__push_patch_embed(mgv__builder *b, uint16_t patches, uint16_t target, const char *base, int bias) {
    const mgv__config *c = b->config;
    mgv__op *op = mgv__push(b, MGV__OP_LINEAR, "patch embed", patches, target);
    char name[MGV__NAME_BYTES];
    uint64_t shape[5];
    uint32_t rank = 0;
    shape[rank++] = c->hidden;
    shape[rank++] = c->channels;
    if (c->temporal_patch > 1) shape[rank++] = c->temporal_patch;
    shape[rank++] = c->patch;
    shape[rank++] = c->patch;
    op->part_count = 1;
    op->part_columns[0] = c->hidden;
    mgv__print(name, sizeof name, "%s.weight", base);
    op->weight[0] = mgv__bind(b, name, rank, shape);
    mgv__print(name, sizeof name, "%s.bias", base);
    if (bias) op->bias[0] = mgv__bind_vector(b, name, c->hidden);
    return op;
}
static uint64_t mgv__table_entries(const mgv__config *c) {
    return (uint64_t)c->position_side * c->position_side + c->position_first;
}

/* The picked row of source: the class token. */
static uint16_t mgv__push_pick(mgv__builder *b, uint16_t source) {
    uint16_t picked = mgv__add_buffer(b, "class row", MGV__ROWS_IMAGES, b->config->hidden);
    mgv__push(b, MGV__OP_PICK, "class row", source, picked);
    return picked;
}

/* SigLIP and fixed-resolution SigLIP2. Source: transformers, models/siglip/modeling_siglip.py (SiglipVisionTransformer,
   SiglipEncoderLayer, SiglipMultiheadAttentionPoolingHead). */
static const mgv__layer_kind mgv__siglip_layer = {
    "encoder.layers.%u.", {"layer_norm1", "layer_norm2"}, "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj",
    NULL, "mlp.fc1", "mlp.fc2", {NULL, NULL}, 1, 0, 0,
};

static void mgv__build_siglip_head(mgv__builder *b, uint16_t tokens) {
    const mgv__config *c = b->config;
    uint64_t probe_shape[3];
    uint16_t attended = mgv__add_buffer(b, "head attention", MGV__ROWS_IMAGES, c->hidden);
    uint16_t pooled = mgv__add_buffer(b, "pooled", MGV__ROWS_IMAGES, c->hidden);
    uint16_t normed = mgv__add_buffer(b, "head norm", MGV__ROWS_IMAGES, c->hidden);
    uint16_t mlp = mgv__add_buffer(b, "head mlp", MGV__ROWS_IMAGES, c->intermediate);
    mgv__op *op;
    mgv__enter(b, -1, "head.");
    op = mgv__push(b, MGV__OP_POOL, "head attention", tokens, attended);
    op->heads = c->heads;
    op->head_dim = c->head_dim;
    op->scale = 1.0f / sqrtf((float)c->head_dim);
    probe_shape[0] = probe_shape[1] = 1;
    probe_shape[2] = c->hidden;
    op->probe = mgv__bind(b, "probe", 3, probe_shape);
    op->part_count = 1;
    op->weight[0] = mgv__bind_matrix(b, "attention.in_proj_weight", 3 * (uint64_t)c->hidden, c->hidden);
    op->bias[0] = mgv__bind_vector(b, "attention.in_proj_bias", 3 * (uint64_t)c->hidden);
    mgv__push_linear(b, "head out", attended, pooled, "attention.out_proj.weight", "attention.out_proj.bias");
    mgv__push_norm(b, "head norm", pooled, normed, "layernorm.weight", "layernorm.bias", c->epsilon);
    op = mgv__push_linear(b, "head fc1", normed, mlp, "mlp.fc1.weight", "mlp.fc1.bias");
    op->activation = c->activation;
    op = mgv__push_linear(b, "head fc2", mlp, pooled, "mlp.fc2.weight", "mlp.fc2.bias");
    op->add = pooled;
    mgv__push_tap(b, MGV_OUTPUT_POOLED, 0);
}

static void mgv__build_siglip(mgv__builder *b) {
    const mgv__config *c = b->config;
    uint16_t patches = mgv__add_patches(b);
    mgv__layer_buffers buffers = mgv__add_layer_buffers(b);
    uint16_t tokens = mgv__add_buffer(b, "tokens", MGV__ROWS_TOKENS, c->hidden);
    mgv__op *op;
    mgv__find_prefix(b, "embeddings.patch_embedding.weight");
    mgv__enter(b, -1, "embeddings.");
    op = mgv__push_patch_embed(b, patches, buffers.stream, "patch_embedding", 1);
    op->table = mgv__bind_matrix(b, "position_embedding.weight", mgv__table_entries(c), c->hidden);
    mgv__push_tap(b, MGV_OUTPUT_LAYER, 0);
    mgv__build_layers(b, &mgv__siglip_layer, &buffers);
    mgv__push_norm(b, "post norm", buffers.stream, tokens, "post_layernorm.weight", "post_layernorm.bias", c->epsilon);
    mgv__push_tap(b, MGV_OUTPUT_TOKENS, 0);
    if (c->use_head) mgv__build_siglip_head(b, tokens);
}

/* The projection of CLIP lies beside the towers: in a whole model, and in a saved CLIPVisionModelWithProjection. Towers inside of
   vision-language models have none. */
static void mgv__push_visual_projection(mgv__builder *b, uint16_t pooled) {
    static const char tower[] = "vision_model.";
    const size_t tower_length = sizeof tower - 1, length = strlen(b->prefix);
    const mgv__tensor *tensor;
    uint64_t columns;
    uint16_t embeds;
    if (length >= tower_length && strcmp(b->prefix + length - tower_length, tower) == 0) b->prefix[length - tower_length] = 0;
    tensor = mgv__find(b, "visual_projection.weight");
    if (!tensor) return;
    columns = tensor->rank > 0 ? tensor->shape[0] : 0;
    if (columns == 0 || columns > MGV__MAX_PROJECTION) {
        if (b->result == MGV_OK)
            b->result = mgv__fail(b->error, MGV_ERROR_MODEL, "tensor %q projects onto %u columns; from 1 to %u can be", tensor->name,
                                  columns, (uint64_t)MGV__MAX_PROJECTION);
        return;
    }
    embeds = mgv__add_buffer(b, "embeds", MGV__ROWS_IMAGES, (uint32_t)columns);
    mgv__push_linear(b, "projection", pooled, embeds, "visual_projection.weight", NULL);
    mgv__push_tap(b, MGV_OUTPUT_EMBEDS, 0);
}

/* CLIP. Source: transformers, models/clip/modeling_clip.py (CLIPVisionEmbeddings, CLIPVisionModel, CLIPVisionModelWithProjection). */
static void mgv__build_clip(mgv__builder *b) {
    const mgv__config *c = b->config;
    uint16_t patches = mgv__add_patches(b);
    mgv__layer_buffers buffers = mgv__add_layer_buffers(b);
    uint16_t embedded = mgv__add_buffer(b, "embedded", MGV__ROWS_PATCHES, c->hidden);
    uint16_t pooled = mgv__add_buffer(b, "pooled", MGV__ROWS_IMAGES, c->hidden);
    uint32_t table;
    mgv__op *op;
    mgv__find_prefix(b, "embeddings.class_embedding");
    mgv__enter(b, -1, "embeddings.");
    op = mgv__push_patch_embed(b, patches, embedded, "patch_embedding", 0);
    op->table = table = mgv__bind_matrix(b, "position_embedding.weight", mgv__table_entries(c), c->hidden);
    op = mgv__push(b, MGV__OP_PREPEND, "class token", embedded, buffers.normed);
    op->part_count = 1;
    op->weight[0] = mgv__bind_vector(b, "class_embedding", c->hidden);
    op->table = table;
    mgv__enter(b, -1, "");
    mgv__push_norm(b, "pre norm", buffers.normed, buffers.stream, "pre_layrnorm.weight", "pre_layrnorm.bias", c->epsilon);
    mgv__push_tap(b, MGV_OUTPUT_LAYER, 0);
    mgv__build_layers(b, &mgv__siglip_layer, &buffers);
    mgv__push_tap(b, MGV_OUTPUT_TOKENS, 0); /* of the last layer, which no norm follows */
    mgv__push_norm(b, "post norm", mgv__push_pick(b, buffers.stream), pooled, "post_layernorm.weight", "post_layernorm.bias", c->epsilon);
    mgv__push_tap(b, MGV_OUTPUT_POOLED, 0);
    mgv__push_visual_projection(b, pooled);
}

/* DINOv2 with and without register tokens, and DINOv3. Sources: transformers, models/dinov2/modeling_dinov2.py,
   models/dinov2_with_registers/modeling_dinov2_with_registers.py, models/dinov3_vit/modeling_dinov3_vit.py. */
static const mgv__layer_kind mgv__dinov2_layer = {
    "encoder.layer.%u.", {"norm1", "norm2"}, "attention.attention.query", "attention.attention.key", "attention.attention.value",
    "attention.output.dense", NULL, "mlp.fc1", "mlp.fc2", {"layer_scale1.lambda1", "layer_scale2.lambda1"}, -1, 0, 0,
};
static const mgv__layer_kind mgv__dinov2_gated_layer = {
    "encoder.layer.%u.", {"norm1", "norm2"}, "attention.attention.query", "attention.attention.key", "attention.attention.value",
    "attention.output.dense", "mlp.weights_in", "mlp.weights_in", "mlp.weights_out", {"layer_scale1.lambda1", "layer_scale2.lambda1"},
    -1, 0, 0,
};
static const mgv__layer_kind mgv__dinov3_layer = {
    "layer.%u.", {"norm1", "norm2"}, "attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.o_proj", NULL, "mlp.up_proj",
    "mlp.down_proj", {"layer_scale1.lambda1", "layer_scale2.lambda1"}, -1, 0, 0,
};
static const mgv__layer_kind mgv__dinov3_gated_layer = {
    "layer.%u.", {"norm1", "norm2"}, "attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.o_proj", "mlp.gate_proj",
    "mlp.up_proj", "mlp.down_proj", {"layer_scale1.lambda1", "layer_scale2.lambda1"}, -1, 0, 0,
};

static void mgv__build_dino(mgv__builder *b, const mgv__layer_kind *kind, const char *patch_embed, const char *norm) {
    const mgv__config *c = b->config;
    uint16_t patches = mgv__add_patches(b);
    mgv__layer_buffers buffers = mgv__add_layer_buffers(b);
    uint16_t embedded = mgv__add_buffer(b, "embedded", MGV__ROWS_PATCHES, c->hidden);
    uint16_t tokens = mgv__add_buffer(b, "tokens", MGV__ROWS_TOKENS, c->hidden);
    char weight[MGV__NAME_BYTES], bias[MGV__NAME_BYTES];
    uint64_t shape[3];
    uint32_t table = MGV__NO_TENSOR;
    mgv__op *op;
    mgv__find_prefix(b, "embeddings.cls_token");
    mgv__enter(b, -1, "embeddings.");
    op = mgv__push_patch_embed(b, patches, embedded, patch_embed, 1);
    shape[0] = shape[1] = 1;
    shape[2] = c->hidden;
    if (c->position_side != 0) {
        shape[1] = mgv__table_entries(c);
        op->table = table = mgv__bind(b, "position_embeddings", 3, shape);
    }
    op = mgv__push(b, MGV__OP_PREPEND, "class token", embedded, buffers.stream);
    op->table = table;
    op->part_count = c->registers ? 2 : 1;
    shape[1] = 1;
    op->weight[0] = mgv__bind(b, "cls_token", 3, shape);
    shape[1] = c->registers;
    if (c->registers) op->weight[1] = mgv__bind(b, "register_tokens", 3, shape);
    else if (mgv__find(b, "register_tokens") && mgv__find(b, "register_tokens")->bytes > 0) mgv__refuse(b, "register_tokens");
    mgv__push_tap(b, MGV_OUTPUT_LAYER, 0);
    mgv__build_layers(b, kind, &buffers);
    mgv__print(weight, sizeof weight, "%s.weight", norm);
    mgv__print(bias, sizeof bias, "%s.bias", norm);
    mgv__push_norm(b, "post norm", buffers.stream, tokens, weight, bias, c->epsilon);
    mgv__push_tap(b, MGV_OUTPUT_TOKENS, 0);
    mgv__push_pick(b, tokens);
    mgv__push_tap(b, MGV_OUTPUT_POOLED, 0);
}
static void mgv__build_dinov2(mgv__builder *b) {
    mgv__build_dino(b, b->config->gated ? &mgv__dinov2_gated_layer : &mgv__dinov2_layer, "patch_embeddings.projection", "layernorm");
}
static void mgv__build_dinov3(mgv__builder *b) {
    mgv__set_axial_rotary(&b->program.rotary, b->config->head_dim, b->config->rope_theta);
    mgv__build_dino(b, b->config->gated ? &mgv__dinov3_gated_layer : &mgv__dinov3_layer, "patch_embeddings", "norm");
}

/* The towers of Qwen-VL are built of the same pieces under different names. Sources: transformers, models/qwen3_vl/modeling_qwen3_vl.py
   (Qwen3VLVisionModel, Qwen3VLVisionPatchMerger), models/qwen3_5/modeling_qwen3_5.py, models/qwen2_vl/modeling_qwen2_vl.py
   (Qwen2VisionTransformerPretrainedModel) and models/qwen2_5_vl/modeling_qwen2_5_vl.py (Qwen2_5_VisionTransformerPretrainedModel,
   Qwen2_5_VLPatchMerger). */
typedef struct mgv__qwen_buffers {
    uint16_t patches, merge_mlp, tokens;
    mgv__layer_buffers layer;
} mgv__qwen_buffers;

static const mgv__layer_kind mgv__qwen3_layer = {
    "blocks.%u.", {"norm1", "norm2"}, "attn.qkv", NULL, NULL, "attn.proj", NULL, "mlp.linear_fc1", "mlp.linear_fc2", {NULL, NULL}, 1, 0, 0,
};
static const mgv__layer_kind mgv__qwen2_layer = {
    "blocks.%u.", {"norm1", "norm2"}, "attn.qkv", NULL, NULL, "attn.proj", NULL, "mlp.fc1", "mlp.fc2", {NULL, NULL}, 1, 0, 0,
};
static const mgv__layer_kind mgv__qwen2_5_layer = {
    "blocks.%u.", {"norm1", "norm2"}, "attn.qkv", NULL, NULL, "attn.proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", {NULL, NULL},
    1, 1, 0,
};

static mgv__qwen_buffers mgv__begin_qwen(mgv__builder *b) {
    const mgv__config *c = b->config;
    mgv__qwen_buffers buffers;
    buffers.patches = mgv__add_patches(b);
    buffers.layer = mgv__add_layer_buffers(b);
    buffers.merge_mlp = mgv__add_buffer(b, "merge mlp", MGV__ROWS_MERGED, c->hidden * c->merge * c->merge);
    buffers.tokens = mgv__add_buffer(b, "tokens", MGV__ROWS_MERGED, c->out_hidden);
    mgv__set_axial_rotary(&b->program.rotary, c->head_dim, c->rope_theta);
    mgv__find_prefix(b, "patch_embed.proj.weight");
    mgv__enter(b, -1, "");
    return buffers;
}

/* fc2(gelu(fc1(x))) on rows of merge * merge tokens; a source of single tokens is folded. names: weight and bias of fc1, then of fc2. */
static void mgv__push_merge_mlp(mgv__builder *b, const mgv__qwen_buffers *buffers, uint16_t source, uint16_t target,
                                const char *const names[4]) {
    uint32_t columns = b->program.buffers[buffers->merge_mlp].columns;
    mgv__op *op = mgv__push(b, MGV__OP_LINEAR, "merge fc1", source, buffers->merge_mlp);
    op->fold = (uint16_t)(columns / op->inner);
    op->inner = columns;
    mgv__add_part(b, op, names[0], names[1], columns);
    op->activation = MGV__ACT_GELU_ERF;
    mgv__push_linear(b, "merge fc2", buffers->merge_mlp, target, names[2], names[3]);
}

static const char *const mgv__qwen3_merger_names[4] = {"linear_fc1.weight", "linear_fc1.bias", "linear_fc2.weight", "linear_fc2.bias"};

/* A DeepStack merger looks at the stream between two layers; its norm is over the folded row, unlike the last merger's. */
static void mgv__build_qwen3_deepstack(mgv__builder *b, const mgv__qwen_buffers *buffers, uint32_t index, uint16_t normed,
                                       uint16_t target) {
    uint32_t columns = b->program.buffers[normed].columns;
    mgv__op *op;
    mgv__enter(b, (int32_t)index, "deepstack_merger_list.%u.");
    b->layer = (int32_t)b->config->deepstack[index];
    op = mgv__push(b, MGV__OP_NORM, "merge norm", buffers->layer.stream, normed);
    op->fold = (uint16_t)(columns / op->inner);
    op->inner = columns;
    op->epsilon = b->config->epsilon;
    op->weight[0] = mgv__bind_vector(b, "norm.weight", columns);
    op->bias[0] = mgv__bind_vector(b, "norm.bias", columns);
    mgv__push_merge_mlp(b, buffers, normed, target, mgv__qwen3_merger_names);
    mgv__push_tap(b, MGV_OUTPUT_DEEPSTACK, index);
}

/* Qwen3.5 is the same without DeepStack. */
static void mgv__build_qwen3_vl(mgv__builder *b) {
    const mgv__config *c = b->config;
    mgv__qwen_buffers buffers = mgv__begin_qwen(b);
    uint16_t merge_normed = 0, deepstack = 0;
    uint32_t layer, next = 0;
    mgv__op *op;
    if (c->deepstack_count > 0) {
        merge_normed = mgv__add_buffer(b, "merge normed", MGV__ROWS_MERGED, c->hidden * c->merge * c->merge);
        deepstack = mgv__add_buffer(b, "deepstack", MGV__ROWS_MERGED, c->out_hidden);
    }
    op = mgv__push_patch_embed(b, buffers.patches, buffers.layer.stream, "patch_embed.proj", 1);
    op->table = mgv__bind_matrix(b, "pos_embed.weight", mgv__table_entries(c), c->hidden);
    mgv__push_tap(b, MGV_OUTPUT_LAYER, 0);
    for (layer = 0; layer < c->layers; layer++) {
        mgv__build_layer(b, &mgv__qwen3_layer, &buffers.layer, layer, MGV__RANGE_FRAME);
        if (next < c->deepstack_count && c->deepstack[next] == layer)
            mgv__build_qwen3_deepstack(b, &buffers, next++, merge_normed, deepstack);
    }
    mgv__enter(b, (int32_t)c->layers, "blocks.%u.");
    mgv__refuse(b, "norm1.weight");
    mgv__enter(b, (int32_t)c->deepstack_count, "deepstack_merger_list.%u.");
    mgv__refuse(b, "norm.weight");
    mgv__enter(b, -1, "merger.");
    mgv__push_norm(b, "merge norm", buffers.layer.stream, buffers.layer.normed, "norm.weight", "norm.bias", c->epsilon);
    mgv__push_merge_mlp(b, &buffers, buffers.layer.normed, buffers.tokens, mgv__qwen3_merger_names);
    mgv__push_tap(b, MGV_OUTPUT_TOKENS, 0);
}

static const char *const mgv__qwen2_merger_names[4] = {"mlp.0.weight", "mlp.0.bias", "mlp.2.weight", "mlp.2.bias"};

/* Qwen2.5-VL: the layer looks at the whole frame rather than at a window. */
static int mgv__attends_whole_frame(const mgv__config *config, uint32_t layer) {
    uint32_t i;
    for (i = 0; i < config->full_attention_count; i++)
        if (config->full_attention[i] == layer) return 1;
    return 0;
}

static void mgv__build_qwen2_vl(mgv__builder *b) {
    const mgv__config *c = b->config;
    mgv__qwen_buffers buffers = mgv__begin_qwen(b);
    mgv__push_patch_embed(b, buffers.patches, buffers.layer.stream, "patch_embed.proj", 0);
    mgv__push_tap(b, MGV_OUTPUT_LAYER, 0);
    mgv__build_layers(b, &mgv__qwen2_layer, &buffers.layer);
    mgv__enter(b, -1, "merger.");
    mgv__push_norm(b, "merge norm", buffers.layer.stream, buffers.layer.normed, "ln_q.weight", "ln_q.bias", c->epsilon);
    mgv__push_merge_mlp(b, &buffers, buffers.layer.normed, buffers.tokens, mgv__qwen2_merger_names);
    mgv__push_tap(b, MGV_OUTPUT_TOKENS, 0);
}

/* Everything between the two gathers is in window order, layer outputs too, as transformers' hidden_states are. */
static void mgv__build_qwen2_5_vl(mgv__builder *b) {
    const mgv__config *c = b->config;
    mgv__qwen_buffers buffers = mgv__begin_qwen(b);
    uint16_t embedded = mgv__add_buffer(b, "embedded", MGV__ROWS_TOKENS, c->hidden);
    uint16_t merged = mgv__add_buffer(b, "merged", MGV__ROWS_MERGED, c->out_hidden);
    uint32_t layer;
    mgv__op *op;
    mgv__push_patch_embed(b, buffers.patches, embedded, "patch_embed.proj", 0);
    mgv__push(b, MGV__OP_GATHER, "window order", embedded, buffers.layer.stream);
    mgv__push_tap(b, MGV_OUTPUT_LAYER, 0);
    for (layer = 0; layer < c->layers; layer++)
        mgv__build_layer(b, &mgv__qwen2_5_layer, &buffers.layer, layer,
                         mgv__attends_whole_frame(c, layer) ? MGV__RANGE_FRAME : MGV__RANGE_WINDOW);
    mgv__enter(b, (int32_t)c->layers, "blocks.%u.");
    mgv__refuse(b, "norm1.weight");
    mgv__enter(b, -1, "merger.");
    mgv__push_norm(b, "merge norm", buffers.layer.stream, buffers.layer.normed, "ln_q.weight", NULL, c->epsilon);
    mgv__push_merge_mlp(b, &buffers, buffers.layer.normed, merged, mgv__qwen2_merger_names);
    op = mgv__push(b, MGV__OP_GATHER, "picture order", merged, buffers.tokens);
    op->inverse = 1;
    mgv__push_tap(b, MGV_OUTPUT_TOKENS, 0);
}

/* ---------------------------------------------------------------------------------------------------------------
   >>model: open, validate, close */

struct mgv_model {
    mgv_allocator allocator;
    mgv_logger logger;
    mgv__config config;
    mgv__program program;
    mgv__tensor *tensors;
    uint32_t tensor_count;
    char *names;         /* all tensor and file names, one after the other */
    const char **files;  /* name of the file of each tensor */
    void *weights;       /* all tensor data, each tensor at a multiple of 64 bytes */
    uint64_t weight_bytes;
    uint64_t parameters;
    uint64_t hash;
};

/* A hash of 64 bits for telling models apart, not for security: four lanes of multiply and rotate over 8-byte words,
   in the manner of XXH64 but not its values. Bytes may come in any number of pieces; pieces are length-prefixed so that
   their borders count. */
typedef struct mgv__hash {
    uint64_t lane[4];
} mgv__hash;
static const uint64_t mgv__hash_prime[4] = {0x9E3779B185EBCA87u, 0xC2B2AE3D27D4EB4Fu, 0x165667B19E3779F9u, 0x85EBCA77C2B2AE63u};

static uint64_t mgv__hash_mix(uint64_t lane, uint64_t word, uint64_t prime) {
    lane = (lane ^ word) * prime;
    return lane << 29 | lane >> 35;
}
static void mgv__hash_begin(mgv__hash *hash) {
    memcpy(hash->lane, mgv__hash_prime, sizeof hash->lane);
}
static void mgv__hash_bytes(mgv__hash *hash, const void *data, uint64_t bytes) {
    const unsigned char *p = (const unsigned char *)data;
    uint64_t left = bytes, word;
    int lane;
    hash->lane[0] = mgv__hash_mix(hash->lane[0], bytes, mgv__hash_prime[0]);
    for (; left >= 32; left -= 32, p += 32) {
        for (lane = 0; lane < 4; lane++) {
            memcpy(&word, p + 8 * lane, 8);
            hash->lane[lane] = mgv__hash_mix(hash->lane[lane], word, mgv__hash_prime[lane]);
        }
    }
    for (lane = 0; left > 0; lane++) {
        size_t part = left < 8 ? (size_t)left : 8;
        word = 0;
        memcpy(&word, p, part);
        hash->lane[lane] = mgv__hash_mix(hash->lane[lane], word, mgv__hash_prime[lane]);
        p += part;
        left -= part;
    }
}
static void mgv__hash_text(mgv__hash *hash, const char *text) {
    mgv__hash_bytes(hash, text, strlen(text));
}
static void mgv__hash_number(mgv__hash *hash, double number) {
    mgv__hash_bytes(hash, &number, sizeof number);
}
static uint64_t mgv__hash_end(const mgv__hash *hash) {
    uint64_t value = 0;
    int lane;
    for (lane = 0; lane < 4; lane++) {
        value = (value ^ hash->lane[lane]) * mgv__hash_prime[lane];
        value ^= value >> 32;
    }
    return value;
}

static void mgv__hash_pixels_config(mgv__hash *hash, const mgv__pixels_config *p) {
    int i;
    mgv__hash_number(hash, p->resample);
    mgv__hash_number(hash, p->fixed_width);
    mgv__hash_number(hash, p->fixed_height);
    mgv__hash_number(hash, p->factor);
    mgv__hash_number(hash, (double)p->min_pixels);
    mgv__hash_number(hash, (double)p->max_pixels);
    mgv__hash_number(hash, (double)p->clip_min_pixels);
    mgv__hash_number(hash, (double)p->clip_max_pixels);
    mgv__hash_number(hash, p->clip_counts_frames);
    mgv__hash_number(hash, p->do_resize);
    mgv__hash_number(hash, p->do_rescale);
    mgv__hash_number(hash, p->do_normalize);
    mgv__hash_number(hash, p->rescale_factor);
    for (i = 0; i < 3; i++) {
        mgv__hash_number(hash, p->mean[i]);
        mgv__hash_number(hash, p->std[i]);
    }
}

/* The operations say how the weights are used: two models with equal tensors but different heads differ here. */
static void mgv__hash_ops(mgv__hash *hash, const mgv__program *program) {
    uint32_t i;
    for (i = 0; i < MGV__MAX_HEAD_DIM / 2; i++) {
        mgv__hash_number(hash, program->rotary.axis[i]);
        mgv__hash_number(hash, (double)program->rotary.frequency[i]);
    }
    for (i = 0; i < program->op_count; i++) {
        const mgv__op *op = &program->ops[i];
        mgv__hash_text(hash, op->label);
        mgv__hash_number(hash, op->activation);
        mgv__hash_number(hash, op->heads);
        if (op->causal) mgv__hash_text(hash, "causal");
        if (op->gated) mgv__hash_text(hash, "gated"); /* only then: files of packed weights name their model by this hash */
        mgv__hash_number(hash, op->range);
        mgv__hash_number(hash, (double)op->epsilon);
    }
}

static uint64_t mgv__model_hash(const mgv_model *model) {
    mgv__hash hash;
    uint32_t i, k;
    mgv__hash_begin(&hash);
    mgv__hash_pixels_config(&hash, &model->config.pixels);
    mgv__hash_number(&hash, model->config.merge);
    mgv__hash_number(&hash, model->config.window_size);
    mgv__hash_ops(&hash, &model->program);
    for (i = 0; i < model->tensor_count; i++) {
        const mgv__tensor *tensor = &model->tensors[i];
        mgv__hash_number(&hash, tensor->dtype);
        for (k = 0; k < tensor->rank; k++) mgv__hash_number(&hash, (double)tensor->shape[k]);
        mgv__hash_bytes(&hash, tensor->data, tensor->bytes);
    }
    return mgv__hash_end(&hash);
}

/* The first element that is NaN or infinite, or the element count. Both show as an exponent of all ones, which another one carries into the
   sign: 64 bits at a time are looked at so until there is one. */
static uint64_t mgv__find_nonfinite(const void *values, uint64_t bytes, mgv_dtype dtype) {
    const uint64_t each = dtype == MGV_DTYPE_F32 ? 1 + ((uint64_t)1 << 32) : 1 + ((uint64_t)1 << 16) + ((uint64_t)1 << 32) + ((uint64_t)1 << 48);
    const uint64_t sign = each << (dtype == MGV_DTYPE_F32 ? 31 : 15);
    const uint64_t one = each << (dtype == MGV_DTYPE_F32 ? 23 : dtype == MGV_DTYPE_F16 ? 10 : 7), exponent = sign - one;
    const uint64_t width = mgv_dtype_bits(dtype) / 8;
    const unsigned char *p = (const unsigned char *)values;
    uint64_t at;
    for (at = 0; at + 8 <= bytes; at += 8) {
        uint64_t word;
        memcpy(&word, p + at, 8);
        if (((word & exponent) + one) & sign) break;
    }
    for (; at < bytes; at += width) {
        uint64_t word = 0;
        memcpy(&word, p + at, (size_t)width);
        if (((word & exponent) + one) & sign) break;
    }
    return at / width;
}

/* Moves the names out of the checkpoint, which is closed after loading. */
static mgv_result mgv__model_keep_names(mgv_model *model, const mgv__checkpoint *checkpoint, mgv_error *error) {
    size_t total = 0, table = 0;
    uint32_t i;
    char *p;
    for (i = 0; i < model->tensor_count; i++) {
        const mgv__tensor *tensor = &model->tensors[i];
        if (!mgv__add(total, strlen(tensor->name) + strlen(checkpoint->shards[tensor->file].name) + 2, &total))
            return mgv__fail(error, MGV_ERROR_NOMEM, "the names of the tensors do not fit in memory");
    }
    if (!mgv__mul(model->tensor_count, sizeof *model->files, &table)) return mgv__fail(error, MGV_ERROR_NOMEM, "too many tensors");
    model->names = (char *)mgv__alloc(&model->allocator, total);
    model->files = (const char **)mgv__alloc(&model->allocator, table);
    if (!model->names || !model->files) return mgv__fail(error, MGV_ERROR_NOMEM, "out of memory for the names of the tensors");
    for (i = 0, p = model->names; i < model->tensor_count; i++) {
        mgv__tensor *tensor = &model->tensors[i];
        const char *file = checkpoint->shards[tensor->file].name;
        size_t bytes = strlen(tensor->name) + 1;
        memcpy(p, tensor->name, bytes);
        tensor->name = p;
        p += bytes;
        bytes = strlen(file) + 1;
        memcpy(p, file, bytes);
        model->files[i] = p;
        p += bytes;
    }
    return MGV_OK;
}

/* From [out, ..., in] as it was read to [out, in, ...] as `tensor` has it, in place. */
static mgv_result mgv__tensor_channels_first(const mgv__tensor *tensor, unsigned char *data, const mgv_allocator *allocator,
                                             mgv_error *error) {
    size_t item = mgv_dtype_bits(tensor->dtype) / 8, in = (size_t)tensor->shape[1], row = (size_t)(tensor->bytes / tensor->shape[0]);
    size_t places = row / item / in, place, channel;
    uint64_t out;
    unsigned char *copy = (unsigned char *)mgv__alloc(allocator, row);
    if (copy == NULL) return mgv__fail_nomem(error, tensor->name, row);
    for (out = 0; out < tensor->shape[0]; out++, data += row) {
        memcpy(copy, data, row);
        for (place = 0; place < places; place++)
            for (channel = 0; channel < in; channel++)
                memcpy(data + (channel * places + place) * item, copy + (place * in + channel) * item, item);
    }
    mgv__free(allocator, copy);
    return MGV_OK;
}

/* Reads only the tensors that the operations name, in the precision they are stored in. */
static mgv_result mgv__model_read_weights(mgv_model *model, mgv__checkpoint *checkpoint, mgv_error *error) {
    size_t total = 0, aligned = 0;
    uint32_t i;
    unsigned char *p;
    for (i = 0; i < model->tensor_count; i++) {
        if (model->tensors[i].bytes > SIZE_MAX || !mgv__align_up((size_t)model->tensors[i].bytes, 64, &aligned) ||
            !mgv__add(total, aligned, &total))
            return mgv__fail(error, MGV_ERROR_NOMEM, "the weights do not fit into this machine's address space");
    }
    model->weight_bytes = total;
    model->weights = mgv__alloc(&model->allocator, total);
    if (!model->weights) return mgv__fail(error, MGV_ERROR_NOMEM, "out of memory for %u bytes of weights", (uint64_t)total);
    for (i = 0, p = (unsigned char *)model->weights; i < model->tensor_count; i++) {
        mgv__tensor *tensor = &model->tensors[i];
        uint64_t bad, count = tensor->bytes / (mgv_dtype_bits(tensor->dtype) / 8);
        mgv_result result = mgv__checkpoint_read(checkpoint, tensor, p, error);
        if (result == MGV_OK && tensor->channels_last) result = mgv__tensor_channels_first(tensor, p, &model->allocator, error);
        if (result != MGV_OK) return result;
        tensor->data = p;
        bad = mgv__find_nonfinite(tensor->data, tensor->bytes, tensor->dtype);
        if (bad != count)
            return mgv__fail(error, MGV_ERROR_MODEL, "tensor %q holds NaN or infinity at element %u; every weight must be finite",
                             tensor->name, bad);
        model->parameters += count;
        mgv__align_up((size_t)tensor->bytes, 64, &aligned);
        p += aligned;
    }
    return MGV_OK;
}

static mgv_result mgv__model_build(mgv_model *model, mgv__checkpoint *checkpoint, mgv_error *error) {
    const mgv__family *family = mgv__find_family(model->config.family);
    mgv__builder builder;
    if (!family) return mgv__fail(error, MGV_ERROR_UNSUPPORTED, "no builder for this model family");
    memset(&builder, 0, sizeof builder);
    builder.config = &model->config;
    builder.checkpoint = checkpoint;
    builder.allocator = &model->allocator;
    builder.error = error;
    family->build(&builder);
    model->program = builder.program;
    model->tensors = builder.tensors;
    model->tensor_count = builder.tensor_count;
    return builder.result;
}

static mgv_result mgv__model_load(mgv_model *model, mgv__source *source, mgv_error *error) {
    mgv__checkpoint checkpoint;
    mgv_result result = mgv__config_read(&model->config, source, error);
    if (result != MGV_OK) return result;
    result = mgv__checkpoint_open(&checkpoint, source, error);
    if (result != MGV_OK) return result;
    result = mgv__model_build(model, &checkpoint, error);
    if (result == MGV_OK) result = mgv__model_read_weights(model, &checkpoint, error);
    if (result == MGV_OK) result = mgv__model_keep_names(model, &checkpoint, error);
    mgv__checkpoint_close(&checkpoint);
    if (result == MGV_OK) model->hash = mgv__model_hash(model);
    return result;
}

MEGAVIT_API mgv_result mgv_model_open(mgv_model **model, const mgv_model_desc *desc, mgv_error *error) {
    mgv_model_desc d;
    mgv__source source;
    mgv_model *opened;
    mgv_result result;
    mgv__clear_error(error);
    if (!model) return mgv__fail(error, MGV_ERROR_ARGUMENT, "mgv_model_open: model is NULL");
    *model = NULL;
    result = mgv__take_struct(&d, sizeof d, desc, desc ? desc->struct_size : 0, "mgv_model_desc", error);
    if (result != MGV_OK) return result;
    result = mgv__allocator_check(&d.allocator, error);
    if (result != MGV_OK) return result;
    result = mgv__source_open(&source, &d, error);
    if (result != MGV_OK) return result;
    opened = (mgv_model *)mgv__alloc(&d.allocator, sizeof *opened);
    if (!opened) {
        return mgv__fail(error, MGV_ERROR_NOMEM, "out of memory for a model handle");
    }
    memset(opened, 0, sizeof *opened);
    opened->allocator = d.allocator;
    opened->logger = d.logger;
    result = mgv__model_load(opened, &source, error);
    if (result != MGV_OK) {
        mgv__source_name_error(&source, error);
        mgv_model_close(opened);
        return result;
    }
    *model = opened;
    return MGV_OK;
}

MEGAVIT_API void mgv_model_close(mgv_model *model) {
    mgv_allocator allocator;
    if (!model) return;
    allocator = model->allocator;
    mgv__free(&allocator, model->program.ops);
    mgv__free(&allocator, model->program.taps);
    mgv__free(&allocator, model->tensors);
    mgv__free(&allocator, model->names);
    mgv__free(&allocator, (void *)model->files);
    mgv__free(&allocator, model->weights);
    mgv__free(&allocator, model);
}

/* The precision of the matrices, NONE when they differ. */
static mgv_dtype mgv__model_dtype(const mgv_model *model) {
    mgv_dtype dtype = MGV_DTYPE_NONE;
    uint32_t i;
    for (i = 0; i < model->tensor_count; i++) {
        if (model->tensors[i].rank < 2) continue;
        if (dtype != MGV_DTYPE_NONE && dtype != model->tensors[i].dtype) return MGV_DTYPE_NONE;
        dtype = model->tensors[i].dtype;
    }
    return dtype;
}

/* Floating-point operations of an operation for one picture. */
static double mgv__op_flops_of(const mgv__config *config, const mgv__op *op, const mgv_grid *grid) {
    double pairs = mgv__attention_pairs(config, grid, op->range);
    if (op->causal) pairs = (pairs + grid->tokens) / 2;
    return mgv__op_flops(op, mgv__grid_rows(grid, op->rows), pairs, grid->tokens);
}

MEGAVIT_API mgv_result mgv_model_get_info(const mgv_model *model, mgv_model_info *info) {
    const mgv__config *c;
    uint32_t i;
    if (!model || !info) return MGV_ERROR_ARGUMENT;
    c = &model->config;
    memset(info, 0, sizeof *info);
    info->family = c->family;
    info->family_name = mgv__find_family(c->family)->name;
    info->hidden = c->hidden;
    info->intermediate = c->intermediate;
    info->layers = c->layers;
    info->heads = c->heads;
    info->head_dim = c->head_dim;
    info->patch = c->patch;
    info->image_size = c->image_size;
    info->merge = c->merge;
    info->deepstack_count = c->deepstack_count;
    info->dtype = mgv__model_dtype(model);
    info->tensor_count = model->tensor_count;
    info->parameters = model->parameters;
    info->bytes = model->weight_bytes;
    info->hash = model->hash;
    for (i = 0; i < model->program.tap_count; i++) {
        const mgv__tap *tap = &model->program.taps[i];
        uint32_t columns = model->program.buffers[tap->buffer].columns;
        if (tap->kind == MGV_OUTPUT_POOLED) info->pooled_width = columns;
        if (tap->kind == MGV_OUTPUT_EMBEDS) info->embed_width = columns;
        if (tap->kind == MGV_OUTPUT_TOKENS) info->token_width = columns;
    }
    info->tokens_per_image = mgv__fixed_tokens(c);
    if (info->tokens_per_image != 0) {
        mgv_grid grid;
        memset(&grid, 0, sizeof grid);
        grid.t = 1;
        grid.h = grid.w = c->image_size / c->patch;
        grid.tokens = grid.merged_tokens = info->tokens_per_image;
        for (i = 0; i < model->program.op_count; i++) info->flops_per_image += mgv__op_flops_of(c, &model->program.ops[i], &grid);
    }
    return MGV_OK;
}

MEGAVIT_API mgv_result mgv_model_get_tensor(const mgv_model *model, uint32_t i, mgv_tensor_info *info) {
    const mgv__tensor *tensor;
    if (!model || !info || i >= model->tensor_count) return MGV_ERROR_ARGUMENT;
    tensor = &model->tensors[i];
    memset(info, 0, sizeof *info);
    info->name = tensor->name;
    info->file = model->files[i];
    info->dtype = tensor->dtype;
    info->rank = tensor->rank;
    memcpy(info->shape, tensor->shape, sizeof info->shape);
    info->offset = tensor->offset;
    info->bytes = tensor->bytes;
    return MGV_OK;
}

MEGAVIT_API mgv_result mgv_model_grid(const mgv_model *model, const mgv_image *image, uint64_t min_pixels, uint64_t max_pixels,
                                      mgv_grid *grid, mgv_error *error) {
    mgv_image taken;
    mgv_result result;
    mgv__clear_error(error);
    if (!model || !image || !grid) return mgv__fail(error, MGV_ERROR_ARGUMENT, "mgv_model_grid: model, image or grid is NULL");
    memset(grid, 0, sizeof *grid);
    result = mgv__take_struct(&taken, sizeof taken, image, image->struct_size, "mgv_image", error);
    if (result != MGV_OK) return result;
    result = mgv__picture_grid(&model->config, &taken, min_pixels, max_pixels, grid, error);
    return result == MGV_OK ? mgv__geometry_check(&model->config, grid, error) : result;
}

MEGAVIT_API uint32_t mgv_model_op_count(const mgv_model *model) {
    return model ? model->program.op_count : 0;
}

/* Bytes of the tensors that an operation reads, in the precision they are stored in. */
static uint64_t mgv__op_weight_bytes(const mgv_model *model, const mgv__op *op) {
    uint64_t bytes = 0;
    uint32_t i, numbers[2 * MGV__MAX_PARTS + 3], count = 0;
    for (i = 0; i < MGV__MAX_PARTS; i++) {
        if (i > 0 && op->weight[i] == op->weight[i - 1]) continue;
        numbers[count++] = op->weight[i];
        numbers[count++] = op->bias[i];
    }
    numbers[count++] = op->table;
    numbers[count++] = op->probe;
    numbers[count++] = op->channel_scale;
    for (i = 0; i < count; i++)
        if (numbers[i] != MGV__NO_TENSOR) bytes += model->tensors[numbers[i]].bytes;
    return bytes;
}

static uint64_t mgv__buffer_bytes(const mgv__program *program, uint16_t buffer, const mgv_grid *grid) {
    return (uint64_t)mgv__grid_rows(grid, program->buffers[buffer].rows) * program->buffers[buffer].columns * sizeof(float);
}

MEGAVIT_API mgv_result mgv_model_get_op(const mgv_model *model, uint32_t i, const mgv_grid *grid, mgv_op_info *info) {
    static const char *const kinds[MGV__OP_KIND_COUNT] = {"linear", "norm",    "rotary", "attention", "pool",
                                                          "gather", "prepend", "pick",   "embed"};
    const mgv__program *program;
    const mgv__op *op;
    if (!model || !grid || !info || i >= model->program.op_count) return MGV_ERROR_ARGUMENT;
    if (mgv__geometry_check(&model->config, grid, NULL) != MGV_OK) return MGV_ERROR_ARGUMENT;
    program = &model->program;
    op = &program->ops[i];
    memset(info, 0, sizeof *info);
    info->kind = kinds[op->kind];
    info->label = op->label;
    info->layer = op->layer;
    info->rows = mgv__grid_rows(grid, op->rows);
    info->columns = op->columns;
    info->inner = op->inner;
    info->flops = mgv__op_flops_of(&model->config, op, grid);
    info->weight_bytes = mgv__op_weight_bytes(model, op);
    info->read_bytes = mgv__buffer_bytes(program, op->source, grid);
    if (op->add != MGV__NONE) info->read_bytes += mgv__buffer_bytes(program, op->add, grid);
    info->write_bytes = mgv__buffer_bytes(program, op->target, grid);
    return MGV_OK;
}

/* ---------------------------------------------------------------------------------------------------------------
   >>threads: a pool of threads for callers who ask for one */

#ifndef MEGAVIT_NO_THREADS

#ifdef _WIN32
typedef CRITICAL_SECTION mgv__lock;
typedef CONDITION_VARIABLE mgv__signal;
typedef HANDLE mgv__thread;
#define MGV__THREAD_RESULT DWORD WINAPI
static int mgv__lock_make(mgv__lock *lock) { InitializeCriticalSection(lock); return 1; }
static void mgv__lock_end(mgv__lock *lock) { DeleteCriticalSection(lock); }
static void mgv__lock_take(mgv__lock *lock) { EnterCriticalSection(lock); }
static void mgv__lock_give(mgv__lock *lock) { LeaveCriticalSection(lock); }
static int mgv__signal_make(mgv__signal *signal) { InitializeConditionVariable(signal); return 1; }
static void mgv__signal_end(mgv__signal *signal) { (void)signal; }
static void mgv__signal_all(mgv__signal *signal) { WakeAllConditionVariable(signal); }
static void mgv__signal_wait(mgv__signal *signal, mgv__lock *lock) { SleepConditionVariableCS(signal, lock, INFINITE); }
static int mgv__thread_start(mgv__thread *thread, DWORD(WINAPI *function)(void *), void *argument) {
    *thread = CreateThread(NULL, 0, function, argument, 0, NULL);
    return *thread != NULL;
}
static void mgv__thread_join(mgv__thread thread) {
    WaitForSingleObject(thread, INFINITE);
    CloseHandle(thread);
}
#else
#include <pthread.h>
typedef pthread_mutex_t mgv__lock;
typedef pthread_cond_t mgv__signal;
typedef pthread_t mgv__thread;
#define MGV__THREAD_RESULT void *
static int mgv__lock_make(mgv__lock *lock) { return pthread_mutex_init(lock, NULL) == 0; }
static void mgv__lock_end(mgv__lock *lock) { pthread_mutex_destroy(lock); }
static void mgv__lock_take(mgv__lock *lock) { pthread_mutex_lock(lock); }
static void mgv__lock_give(mgv__lock *lock) { pthread_mutex_unlock(lock); }
static int mgv__signal_make(mgv__signal *signal) { return pthread_cond_init(signal, NULL) == 0; }
static void mgv__signal_end(mgv__signal *signal) { pthread_cond_destroy(signal); }
static void mgv__signal_all(mgv__signal *signal) { pthread_cond_broadcast(signal); }
static void mgv__signal_wait(mgv__signal *signal, mgv__lock *lock) { pthread_cond_wait(signal, lock); }
static int mgv__thread_start(mgv__thread *thread, void *(*function)(void *), void *argument) {
    return pthread_create(thread, NULL, function, argument) == 0;
}
static void mgv__thread_join(mgv__thread thread) { pthread_join(thread, NULL); }
#endif

enum { MGV__MAX_THREADS = 1024 };

struct mgv_threads {
    mgv_allocator allocator;
    mgv__lock turn;     /* held by the caller whose call the pool works on */
    mgv__lock lock;     /* of everything below */
    mgv__signal work;   /* there are tasks that nobody has taken, or the pool ends */
    mgv__signal done;   /* the last task has returned */
    mgv_task task;
    void *context;
    uint32_t count;     /* tasks of the call under way */
    uint32_t taken;
    uint32_t returned;
    int ending;
    uint32_t threads;   /* that run() may use: the started ones and the caller's */
    mgv__thread started[MGV__MAX_THREADS];
    uint32_t started_count;
};

/* Runs tasks until none is left to take. The lock is held before and after, not meanwhile. */
static void mgv__threads_work(mgv_threads *pool) {
    while (pool->taken < pool->count) {
        const uint32_t index = pool->taken++;
        const mgv_task task = pool->task;
        void *context = pool->context;
        mgv__lock_give(&pool->lock);
        task(context, index);
        mgv__lock_take(&pool->lock);
        pool->returned++;
        if (pool->returned == pool->count) mgv__signal_all(&pool->done);
    }
}

static MGV__THREAD_RESULT mgv__threads_main(void *argument) {
    mgv_threads *pool = (mgv_threads *)argument;
    mgv__lock_take(&pool->lock);
    while (!pool->ending) {
        mgv__threads_work(pool);
        if (!pool->ending && pool->taken == pool->count) mgv__signal_wait(&pool->work, &pool->lock);
    }
    mgv__lock_give(&pool->lock);
    return 0;
}

static void mgv__threads_run(void *user, uint32_t count, mgv_task task, void *context) {
    mgv_threads *pool = (mgv_threads *)user;
    mgv__lock_take(&pool->turn);
    mgv__lock_take(&pool->lock);
    pool->task = task;
    pool->context = context;
    pool->count = count;
    pool->taken = pool->returned = 0;
    if (count > 1) mgv__signal_all(&pool->work);
    mgv__threads_work(pool);
    while (pool->returned < count) mgv__signal_wait(&pool->done, &pool->lock);
    pool->count = pool->taken = 0;
    mgv__lock_give(&pool->lock);
    mgv__lock_give(&pool->turn);
}

static int mgv__threads_make_locks(mgv_threads *pool) {
    if (!mgv__lock_make(&pool->turn)) return 0;
    if (!mgv__lock_make(&pool->lock)) {
        mgv__lock_end(&pool->turn);
        return 0;
    }
    if (!mgv__signal_make(&pool->work)) {
        mgv__lock_end(&pool->lock);
        mgv__lock_end(&pool->turn);
        return 0;
    }
    if (!mgv__signal_make(&pool->done)) {
        mgv__signal_end(&pool->work);
        mgv__lock_end(&pool->lock);
        mgv__lock_end(&pool->turn);
        return 0;
    }
    return 1;
}

MEGAVIT_API mgv_result mgv_threads_create(mgv_threads **threads, uint32_t count, const mgv_allocator *allocator, mgv_error *error) {
    mgv_allocator taken;
    mgv_threads *pool;
    mgv__clear_error(error);
    if (threads == NULL) return mgv__fail(error, MGV_ERROR_ARGUMENT, "mgv_threads_create: threads is NULL");
    *threads = NULL;
    if (count < 1 || count > MGV__MAX_THREADS)
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "mgv_threads_create: %u threads are not in [1, %u]", (uint64_t)count,
                         (uint64_t)MGV__MAX_THREADS);
    memset(&taken, 0, sizeof taken);
    if (allocator != NULL) taken = *allocator;
    if (mgv__allocator_check(&taken, error) != MGV_OK) return MGV_ERROR_ARGUMENT;
    pool = (mgv_threads *)mgv__alloc(&taken, sizeof *pool);
    if (pool == NULL) return mgv__fail_nomem(error, "a pool of threads", sizeof *pool);
    memset(pool, 0, sizeof *pool);
    pool->allocator = taken;
    pool->threads = count;
    if (!mgv__threads_make_locks(pool)) {
        mgv__free(&taken, pool);
        return mgv__fail(error, MGV_ERROR_NOMEM, "the system gave no lock for a pool of threads");
    }
    while (pool->started_count + 1 < count) {
        if (!mgv__thread_start(&pool->started[pool->started_count], mgv__threads_main, pool)) {
            const uint32_t started = pool->started_count;
            mgv_threads_destroy(pool);
            return mgv__fail(error, MGV_ERROR_NOMEM, "the system started %u threads of the %u asked for", (uint64_t)started + 1,
                             (uint64_t)count);
        }
        pool->started_count++;
    }
    *threads = pool;
    return MGV_OK;
}

MEGAVIT_API mgv_parallel_for mgv_threads_parallel_for(mgv_threads *threads) {
    mgv_parallel_for parallel;
    memset(&parallel, 0, sizeof parallel);
    if (threads == NULL) return parallel;
    parallel.user = threads;
    parallel.threads = threads->threads;
    parallel.run = mgv__threads_run;
    return parallel;
}

MEGAVIT_API void mgv_threads_destroy(mgv_threads *threads) {
    mgv_allocator allocator;
    if (threads == NULL) return;
    mgv__lock_take(&threads->lock);
    threads->ending = 1;
    mgv__signal_all(&threads->work);
    mgv__lock_give(&threads->lock);
    while (threads->started_count > 0) mgv__thread_join(threads->started[--threads->started_count]);
    mgv__signal_end(&threads->done);
    mgv__signal_end(&threads->work);
    mgv__lock_end(&threads->lock);
    mgv__lock_end(&threads->turn);
    allocator = threads->allocator;
    mgv__free(&allocator, threads);
}

#endif /* MEGAVIT_NO_THREADS */

/* ---------------------------------------------------------------------------------------------------------------
   >>cpu: the CPU twin of every operation

   Matrix products are cut the way BLIS cuts them (Van Zee and van de Geijn, "BLIS: A Framework for Rapidly
   Instantiating BLAS Functionality", ACM TOMS 41(3), 2015): weights, used as they are stored, are converted and
   transposed into panels that fit a cache, DEPTH rows at a time, and a tile of the target is held in registers while
   it runs down a panel. Attention is cut by the same tiles with the online softmax of Milakov and Gimelshein ("Online
   normalizer calculation for softmax", arXiv 1805.02867), so that its memory does not grow with the square of the tokens.

   The same bits for any number of threads and any place in a batch: every element of a target is computed by one
   task, and the order of its additions depends on its row of weights or its range of keys alone.

   The vector code is section >>cpu-vector at the end of this file. It is written once and compiled once for each
   instruction set by including this file again, as stb_image_resize2.h does; if you rename the file, define MEGAVIT_FILENAME.

   Options:
     MEGAVIT_NO_SIMD     only plain C
     MEGAVIT_SGEMM(m, n, k, a, lda, w, ldw, c, ldc)
                         a call of yours that computes c[i * ldc + j] = sum over p < k of a[i * lda + p] * w[j * ldw + p] for i < m, j < n
                         in row-major float32, used for every matrix product but attention's. size_t counts. It is called from the
                         threads of mgv_parallel_for at once, so it should not start threads of its own. */

#ifndef MEGAVIT_FILENAME
#define MEGAVIT_FILENAME "megavit.h"
#endif

/* gcc for Windows does not align the stack for vector registers (GCC bug 54412), so it gets plain C. */
#if defined(MEGAVIT_NO_SIMD) || (defined(__MINGW32__) && !defined(__clang__))
#elif (defined(__x86_64__) && defined(__GNUC__)) || (defined(_M_X64) && !defined(_M_ARM64EC))
#define MGV__CPU_X86
#if defined(_MSC_VER) && !defined(__clang__) /* takes every intrinsic in every function */
#define MGV__TARGET_OF(features)
#else
#define MGV__TARGET_OF(features) __attribute__((target(features)))
#endif
#if defined(__GNUC__) && !defined(__clang__) /* g++ 12 warns of its own _mm512_undefined_ps (GCC bug 105593) */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#else
#include <immintrin.h>
#endif
#ifdef _MSC_VER
#include <intrin.h>
#else
#include <cpuid.h>
#endif
#elif (defined(__aarch64__) && defined(__ARM_NEON)) || defined(_M_ARM64)
#define MGV__CPU_NEON
#include <arm_neon.h>
#endif

/* Instruction sets. Macros, because the preprocessor chooses by them. */
#define MGV__ISA_AUTO 0
#define MGV__ISA_PLAIN 1
#define MGV__ISA_AVX2 2
#define MGV__ISA_AVX512 3
#define MGV__ISA_NEON 4
#define MGV__ISA_COUNT 5
typedef int32_t mgv__isa;

enum {
    MGV__CPU_DEPTH = 384,               /* inner columns that one pass of a matrix product adds up; keys of one pass of attention */
    MGV__CPU_STRIDE = MGV__CPU_DEPTH + 16, /* floats from a row to the next in a block of source rows; not a power of two, so that
                                           rows spread over the cache */
    MGV__CPU_COLUMNS = 256,             /* target columns computed before the next ones are begun */
    MGV__CPU_COLUMN_STRIDE = MGV__CPU_COLUMNS + 16,
    MGV__CPU_ROWS = 672,                /* target rows computed before the next ones are begun */
    MGV__CPU_QUERIES = 224,             /* queries that share one packing of keys and values */
    MGV__CPU_STRIP = 16,                /* inner columns that the vector code handles at a time */
    MGV__CPU_MAX_TILE = 16,             /* rows of the largest tile of any instruction set */
    MGV__CPU_MAX_PANEL = 32             /* columns of the widest panel of any instruction set */
};

static size_t mgv__cpu_element_bytes(mgv_dtype dtype) { return dtype == MGV_DTYPE_F32 ? 4 : 2; }
static uint32_t mgv__cpu_round_up(uint32_t value, uint32_t multiple) { return (value + multiple - 1) / multiple * multiple; }
static uint32_t mgv__cpu_min(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* Asks for the cache line at p: its second-level cache will do. A hint that compilers without it do without. */
#if defined(MGV__CPU_X86)
#define MGV__PREFETCH(p) _mm_prefetch((const char *)(p), _MM_HINT_T1)
#elif defined(__GNUC__)
#define MGV__PREFETCH(p) __builtin_prefetch((p), 0, 2)
#else
#define MGV__PREFETCH(p) ((void)(p))
#endif

/* Memory that will be read soon: rows of the next block of weights and of the next block of the source. For every
   MGV__CPU_STRIP columns that a tile computes it fetches the next `step` bytes of each of the rows. */
enum { MGV__CPU_STREAMS = 2 };
typedef struct mgv__cpu_ahead {
    const char *from[MGV__CPU_STREAMS];
    size_t stride[MGV__CPU_STREAMS];
    size_t step[MGV__CPU_STREAMS];
    uint32_t rows[MGV__CPU_STREAMS];
} mgv__cpu_ahead;

static inline void mgv__cpu_fetch(const mgv__cpu_ahead *ahead, size_t strip) {
    uint32_t i, row;
    for (i = 0; i < MGV__CPU_STREAMS; i++) {
        const size_t offset = strip * ahead->step[i];
        for (row = 0; row < ahead->rows[i]; row++) MGV__PREFETCH(ahead->from[i] + offset + row * ahead->stride[i]);
    }
}

/* What >>cpu-vector gives for one instruction set. `panel` columns make one packed panel; rows of scratch that a
   function names as padded have room and defined values up to a multiple of `panel`. */
typedef struct mgv__cpu_kernels {
    const char *name;
    uint32_t panel;
    uint32_t tile_rows;
    /* n numbers of a stored dtype to float. */
    void (*convert)(mgv_dtype dtype, const void *from, float *to, size_t n);
    /* packed[k * panel + j] = weight[j * stride + k], k < depth, j < panel; columns past `columns` repeat the last one. */
    void (*pack)(mgv_dtype dtype, const void *weight, size_t stride, uint32_t columns, uint32_t depth, float *packed);
    /* c[i * c_stride + j] (+)= sum over k < depth of a[i * MGV__CPU_STRIDE + k] * packed[k * panel + j], i < rows <= tile_rows, j < panel.
       May also write rows of c up to tile_rows and read rows of a up to there. */
    void (*tile)(uint32_t rows, uint32_t depth, const float *a, const float *packed, float *c, size_t c_stride, int accumulate,
                 const mgv__cpu_ahead *ahead);
    /* x = activation(x + bias), padded. */
    void (*activate)(mgv__activation activation, float *x, const float *bias, uint32_t n);
    /* x = exp(x - max), padded, after raising *max to the largest x; *sum is brought to the new maximum and grows by
       the sum of x. Returns the factor that brings older results to the new maximum. */
    float (*softmax)(float *x, uint32_t n, float *max, float *sum);
    void (*add)(float *out, const float *a, const float *b, size_t n);
    void (*multiply)(float *out, const float *a, const float *b, size_t n);
    void (*scale)(float *out, const float *x, float factor, size_t n);
    /* y += factor * x */
    void (*add_scaled)(float *y, float factor, const float *x, size_t n);
    float (*dot)(const float *a, const float *b, size_t n);
    /* One row. bias may be NULL. */
    void (*norm)(float *out, const float *x, const float *weight, const float *bias, size_t n, float epsilon, int rms);
    /* Turns the pairs (x[j], x[half + j]). */
    void (*rotate)(float *x, const float *cosine, const float *sine, size_t half);
} mgv__cpu_kernels;

#define MGV__VECTOR MGV__ISA_PLAIN
#include MEGAVIT_FILENAME
#undef MGV__VECTOR
#ifdef MGV__CPU_X86
#define MGV__VECTOR MGV__ISA_AVX2
#include MEGAVIT_FILENAME
#undef MGV__VECTOR
#define MGV__VECTOR MGV__ISA_AVX512
#include MEGAVIT_FILENAME
#undef MGV__VECTOR
#endif
#ifdef MGV__CPU_NEON
#define MGV__VECTOR MGV__ISA_NEON
#include MEGAVIT_FILENAME
#undef MGV__VECTOR
#endif

#ifdef MGV__CPU_X86
static void mgv__cpuid(uint32_t leaf, uint32_t out[4]) {
#ifdef _MSC_VER
    int registers[4];
    __cpuidex(registers, (int)leaf, 0);
    memcpy(out, registers, sizeof(registers));
#else
    memset(out, 0, 4 * sizeof(out[0]));
    __get_cpuid_count(leaf, 0, &out[0], &out[1], &out[2], &out[3]);
#endif
}
/* Which register files the operating system saves: Intel SDM volume 1, 13.3. */
MGV__TARGET_OF("xsave")
static uint64_t mgv__saved_registers(void) { return (uint64_t)_xgetbv(0); }

static mgv__isa mgv__cpu_detect(void) {
    uint32_t basic[4], leaf1[4], leaf7[4];
    uint64_t saved;
    mgv__cpuid(0, basic);
    if (basic[0] < 7) return MGV__ISA_PLAIN;
    mgv__cpuid(1, leaf1);
    mgv__cpuid(7, leaf7);
    /* ecx of leaf 1: FMA 12, OSXSAVE 27, AVX 28, F16C 29. ebx of leaf 7: AVX2 5, AVX-512F 16. */
    if (((leaf1[2] >> 27) & 7) != 7 || ((leaf1[2] >> 12) & 1) == 0 || ((leaf7[1] >> 5) & 1) == 0) return MGV__ISA_PLAIN;
    saved = mgv__saved_registers();
    if ((saved & 0x06) != 0x06) return MGV__ISA_PLAIN;
    if (((leaf7[1] >> 16) & 1) == 0 || (saved & 0xE0) != 0xE0) return MGV__ISA_AVX2;
    return MGV__ISA_AVX512;
}
#elif defined(MGV__CPU_NEON)
static mgv__isa mgv__cpu_detect(void) { return MGV__ISA_NEON; }
#else
static mgv__isa mgv__cpu_detect(void) { return MGV__ISA_PLAIN; }
#endif

/* NULL where this program has no code for it. */
static const mgv__cpu_kernels *mgv__cpu_kernels_of(mgv__isa isa) {
    switch (isa) {
    case MGV__ISA_PLAIN: return &mgv__plain_kernels;
#ifdef MGV__CPU_X86
    case MGV__ISA_AVX2: return &mgv__avx2_kernels;
    case MGV__ISA_AVX512: return &mgv__avx512_kernels;
#endif
#ifdef MGV__CPU_NEON
    case MGV__ISA_NEON: return &mgv__neon_kernels;
#endif
    default: return NULL;
    }
}

/* One picture on its way through a program. Zero it and set what you need. */
typedef struct mgv__cpu_run {
    const mgv__program *program;
    const mgv__tensor *tensors;
    const mgv__geometry *geometry;
    float *buffers[MGV__MAX_BUFFERS];
    void *scratch;       /* 64-byte aligned; mgv__cpu_scratch_bytes says how much */
    size_t scratch_bytes;
    mgv_parallel_for parallel;
    mgv__isa isa;        /* MGV__ISA_AUTO: found out at every op; mgv__cpu_detect finds it once */
} mgv__cpu_run;

/* ---- what all operations share ---- */

static uint32_t mgv__cpu_threads(const mgv__cpu_run *run) {
    return run->parallel.run != NULL && run->parallel.threads > 1 ? run->parallel.threads : 1;
}

static const mgv__cpu_kernels *mgv__cpu_kernels_for(const mgv__cpu_run *run) {
    return mgv__cpu_kernels_of(run->isa != MGV__ISA_AUTO ? run->isa : mgv__cpu_detect());
}

/* One op under way. Task i of `tasks` has scratch of its own, so it must be the only one that runs as i. */
typedef struct mgv__cpu_job {
    const mgv__cpu_run *run;
    const mgv__op *op;
    const mgv__cpu_kernels *kernels;
    uint32_t tasks;
    uint32_t rows;         /* of the target */
    uint32_t row_tasks;    /* linear: tasks side by side over the rows, the others over the columns */
    uint32_t queries;      /* attention: queries of one item */
    uint32_t items;        /* attention: items of all ranges and heads */
} mgv__cpu_job;

/* Splitting work that takes less time than waking a thread makes it slower. */
enum { MGV__CPU_MIN_WORK = 1 << 15 };

static void mgv__cpu_start(mgv__cpu_job *job, uint32_t most_tasks, uint64_t work, mgv_task task) {
    const uint32_t threads = mgv__cpu_threads(job->run);
    job->tasks = mgv__cpu_min(threads, most_tasks);
    if (work < MGV__CPU_MIN_WORK || job->tasks == 0) job->tasks = 1;
    if (job->tasks == 1) {
        task(job, 0);
    } else {
        (job->run->parallel.run)(job->run->parallel.user, job->tasks, task, job);
    }
}

/* Where part `index` of `parts` begins when `count` things are dealt out evenly. */
static uint32_t mgv__cpu_share(uint32_t count, uint32_t index, uint32_t parts) {
    return (uint32_t)((uint64_t)count * index / parts);
}

static float *mgv__cpu_slot(const mgv__cpu_job *job, uint32_t task) {
    const size_t bytes = job->run->scratch_bytes / mgv__cpu_threads(job->run) & ~(size_t)63;
    return (float *)(void *)((char *)job->run->scratch + bytes * task);
}

/* The address of element `index` of a tensor. */
static const void *mgv__cpu_at(const mgv__tensor *tensor, size_t index) {
    return (const char *)tensor->data + index * mgv__cpu_element_bytes(tensor->dtype);
}

/* A row of a tensor as floats; zeros where there is no such tensor. */
static void mgv__cpu_load(const mgv__cpu_job *job, uint32_t number, size_t first, float *to, size_t n) {
    if (number == MGV__NO_TENSOR) {
        memset(to, 0, n * sizeof(*to));
        return;
    }
    job->kernels->convert(job->run->tensors[number].dtype, mgv__cpu_at(&job->run->tensors[number], first), to, n);
}

/* Copies rows side by side as a tile reads them, and zeros up to a whole tile. */
static void mgv__cpu_copy_rows(const mgv__cpu_job *job, const float *from, size_t stride, uint32_t rows, uint32_t depth, float *to) {
    uint32_t i;
    for (i = 0; i < rows; i++) memcpy(to + (size_t)i * MGV__CPU_STRIDE, from + i * stride, depth * sizeof(*to));
    for (; i < job->kernels->tile_rows; i++) memset(to + (size_t)i * MGV__CPU_STRIDE, 0, depth * sizeof(*to));
}

/* Rows that are fetched while the tiles of the block before are computed, some with every tile: weights are read once
   an image, so most come from main memory, and activations are often larger than the cache. */
typedef struct mgv__cpu_stream {
    const char *from;
    size_t stride, step;
    uint32_t rows;  /* that go with one tile */
    uint32_t left;
} mgv__cpu_stream;

static mgv__cpu_stream mgv__cpu_stream_of(const void *from, size_t stride, size_t element_bytes, uint32_t rows, uint32_t tiles) {
    mgv__cpu_stream s;
    s.from = (const char *)from;
    s.stride = stride * element_bytes;
    s.step = MGV__CPU_STRIP * element_bytes;
    s.rows = (rows + tiles - 1) / tiles;
    s.left = rows;
    return s;
}

/* Hands the rows that go with one tile to stream i of `ahead`. */
static void mgv__cpu_stream_next(mgv__cpu_stream *s, mgv__cpu_ahead *ahead, int i) {
    const uint32_t rows = mgv__cpu_min(s->rows, s->left);
    ahead->from[i] = s->from;
    ahead->stride[i] = s->stride;
    ahead->step[i] = s->step;
    ahead->rows[i] = rows;
    s->left -= rows;
    if (s->left > 0) s->from += rows * s->stride;
}

/* ---- linear ---- */

/* The scratch of one task of a linear op. */
typedef struct mgv__cpu_linear_scratch {
    float *packed;                /* [MGV__CPU_COLUMNS / panel][MGV__CPU_DEPTH][panel] */
    float *block;                 /* [MGV__CPU_MAX_TILE][MGV__CPU_STRIDE] */
    float *sums;                  /* [MGV__CPU_ROWS + MGV__CPU_MAX_TILE][MGV__CPU_COLUMN_STRIDE] */
    float *bias;                  /* [MGV__CPU_COLUMNS] */
    float *scales;                /* [MGV__CPU_COLUMNS] */
    float *weights;               /* MEGAVIT_SGEMM: [MGV__CPU_COLUMNS][inner] */
} mgv__cpu_linear_scratch;

enum {
    MGV__CPU_PACKED_FLOATS = MGV__CPU_COLUMNS * MGV__CPU_DEPTH,
    MGV__CPU_BLOCK_FLOATS = MGV__CPU_MAX_TILE * MGV__CPU_STRIDE,
    MGV__CPU_SUM_FLOATS = (MGV__CPU_ROWS + MGV__CPU_MAX_TILE) * MGV__CPU_COLUMN_STRIDE,
    MGV__CPU_LINEAR_FLOATS = MGV__CPU_PACKED_FLOATS + MGV__CPU_BLOCK_FLOATS + MGV__CPU_SUM_FLOATS + 2 * MGV__CPU_COLUMNS
};

static mgv__cpu_linear_scratch mgv__cpu_carve_linear(float *slot) {
    mgv__cpu_linear_scratch s;
    s.packed = slot;
    s.block = s.packed + MGV__CPU_PACKED_FLOATS;
    s.sums = s.block + MGV__CPU_BLOCK_FLOATS;
    s.bias = s.sums + MGV__CPU_SUM_FLOATS;
    s.scales = s.bias + MGV__CPU_COLUMNS;
    s.weights = s.scales + MGV__CPU_COLUMNS;
    return s;
}

#ifndef MEGAVIT_SGEMM
/* The weights after columns [column, column + columns) and inner columns up to k. */
static mgv__cpu_stream mgv__cpu_stream_of_weights(const mgv__tensor *weight, size_t inner, uint32_t column, uint32_t columns, size_t k,
                                                  uint32_t tiles) {
    const uint32_t first = k < inner ? column : column + columns, rows = (uint32_t)weight->shape[0];
    if (first >= rows) return mgv__cpu_stream_of(weight->data, 0, 0, 0, 1);
    return mgv__cpu_stream_of(mgv__cpu_at(weight, first * inner + (k < inner ? k : 0)), inner, mgv__cpu_element_bytes(weight->dtype),
                              mgv__cpu_min(rows - first, columns), tiles);
}
#endif

/* sums[i][j] = source row i . weight row `column` + j, for i < rows, j < columns; numbers that mean nothing up to the panel's end. */
static void mgv__cpu_product(const mgv__cpu_job *job, const mgv__cpu_linear_scratch *scratch, const mgv__tensor *weight, uint32_t column,
                             uint32_t columns, const float *source, size_t source_stride, uint32_t rows, float *sums) {
    const size_t inner = job->op->inner;
#ifdef MEGAVIT_SGEMM
    const float *w = (const float *)mgv__cpu_at(weight, column * inner);
    const uint32_t padded = mgv__cpu_round_up(columns, job->kernels->panel);
    uint32_t i;
    if (weight->dtype != MGV_DTYPE_F32) {
        job->kernels->convert(weight->dtype, mgv__cpu_at(weight, column * inner), scratch->weights, columns * inner);
        w = scratch->weights;
    }
    MEGAVIT_SGEMM((size_t)rows, (size_t)columns, inner, source, source_stride, w, inner, sums, (size_t)MGV__CPU_COLUMN_STRIDE);
    for (i = 0; i < rows; i++) /* activations take whole panels */
        memset(sums + (size_t)i * MGV__CPU_COLUMN_STRIDE + columns, 0, (padded - columns) * sizeof(float));
#else
    const mgv__cpu_kernels *kernels = job->kernels;
    const uint32_t panel = kernels->panel, panels = mgv__cpu_round_up(columns, panel) / panel;
    const uint32_t tiles = mgv__cpu_round_up(rows, kernels->tile_rows) / kernels->tile_rows * panels;
    size_t k;
    for (k = 0; k < inner; k += MGV__CPU_DEPTH) {
        const uint32_t depth = mgv__cpu_min((uint32_t)(inner - k), MGV__CPU_DEPTH);
        mgv__cpu_stream next_weights = mgv__cpu_stream_of_weights(weight, inner, column, columns, k + depth, tiles);
        uint32_t i, j;
        for (j = 0; j < columns; j += panel) {
            kernels->pack(weight->dtype, mgv__cpu_at(weight, (column + j) * inner + k), inner, mgv__cpu_min(columns - j, panel), depth,
                          scratch->packed + (size_t)j * depth);
        }
        for (i = 0; i < rows; i += kernels->tile_rows) {
            const uint32_t tile_rows = mgv__cpu_min(rows - i, kernels->tile_rows);
            const uint32_t later_rows = mgv__cpu_min(rows - i - tile_rows, kernels->tile_rows);
            const float *block = source + i * source_stride + k;
            mgv__cpu_stream next_block = mgv__cpu_stream_of(later_rows > 0 ? block + tile_rows * source_stride : block, source_stride,
                                                            sizeof(float), later_rows, panels);
            mgv__cpu_copy_rows(job, block, source_stride, tile_rows, depth, scratch->block);
            for (j = 0; j < columns; j += panel) {
                mgv__cpu_ahead ahead;
                mgv__cpu_stream_next(&next_weights, &ahead, 0);
                mgv__cpu_stream_next(&next_block, &ahead, 1);
                kernels->tile(tile_rows, depth, scratch->block, scratch->packed + (size_t)j * depth,
                              sums + (size_t)i * MGV__CPU_COLUMN_STRIDE + j, MGV__CPU_COLUMN_STRIDE, k != 0, &ahead);
            }
        }
    }
#endif
}

/* Adds what row `row` of the patches takes from the position table, columns [column, column + columns). */
static void mgv__cpu_add_table(const mgv__cpu_job *job, uint32_t row, uint32_t column, uint32_t columns, float *x) {
    const mgv__geometry *g = job->run->geometry;
    const mgv__patch_place place = mgv__patch_of_row(&g->grid, g->merge, row);
    float table[MGV__CPU_COLUMNS], sum[MGV__CPU_COLUMNS];
    uint32_t i, k;
    memset(sum, 0, columns * sizeof(*sum));
    for (i = place.y * g->down.count; i < (place.y + 1) * g->down.count; i++) {
        for (k = place.x * g->across.count; k < (place.x + 1) * g->across.count; k++) {
            const size_t entry = g->table_first + (size_t)g->down.index[i] * g->table_side + g->across.index[k];
            const float weight = g->down.weight[i] * g->across.weight[k];
            if (weight == 0.0f) continue;
            mgv__cpu_load(job, job->op->table, entry * job->op->columns + column, table, columns);
            job->kernels->add_scaled(sum, weight, table, columns);
        }
    }
    job->kernels->add(x, x, sum, columns);
}

static void mgv__cpu_fetch_floats(const float *from, uint32_t n) {
    uint32_t i;
    for (i = 0; i < n; i += 64 / sizeof(float)) MGV__PREFETCH(from + i);
}

/* Target columns [column, column + columns) of part `part`, at most MGV__CPU_COLUMNS (half of that with a gate). */
static void mgv__cpu_linear_columns(const mgv__cpu_job *job, const mgv__cpu_linear_scratch *scratch, uint32_t part, uint32_t part_column,
                                    uint32_t column, uint32_t columns, uint32_t first_row, uint32_t rows) {
    const mgv__op *op = job->op;
    const mgv__cpu_kernels *kernels = job->kernels;
    const mgv__buffer_desc *buffers = job->run->program->buffers;
    const size_t source_stride = (size_t)buffers[op->source].columns * op->fold, target_stride = buffers[op->target].columns;
    const uint32_t padded = mgv__cpu_round_up(columns, kernels->panel);
    const uint32_t first_column = mgv__op_part_row(op, part);
    const float *source = job->run->buffers[op->source] + first_row * source_stride;
    const size_t target_at = first_row * target_stride + part_column + column;
    uint32_t i;
    mgv__cpu_load(job, op->bias[part], first_column + column, scratch->bias, columns);
    memset(scratch->bias + columns, 0, (padded - columns) * sizeof(float));
    mgv__cpu_product(job, scratch, &job->run->tensors[op->weight[part]], first_column + column, columns, source, source_stride, rows,
                     scratch->sums);
    if (op->gated) {
        const uint32_t first_up = mgv__op_part_row(op, 1);
        mgv__cpu_load(job, op->bias[1], first_up + column, scratch->bias + padded, columns);
        memset(scratch->bias + padded + columns, 0, (padded - columns) * sizeof(float));
        mgv__cpu_product(job, scratch, &job->run->tensors[op->weight[1]], first_up + column, columns, source, source_stride, rows,
                         scratch->sums + padded);
    }
    if (op->channel_scale != MGV__NO_TENSOR) mgv__cpu_load(job, op->channel_scale, part_column + column, scratch->scales, columns);
    for (i = 0; i < rows; i++) {
        float *x = scratch->sums + (size_t)i * MGV__CPU_COLUMN_STRIDE;
        float *target = job->run->buffers[op->target] + target_at + i * target_stride;
        if (i + 2 < rows) mgv__cpu_fetch_floats(target + 2 * target_stride, columns);
        kernels->activate(op->activation, x, scratch->bias, padded);
        if (op->gated) {
            kernels->activate(MGV__ACT_NONE, x + padded, scratch->bias + padded, padded);
            kernels->multiply(x, x, x + padded, padded);
        }
        if (op->channel_scale != MGV__NO_TENSOR) kernels->multiply(x, x, scratch->scales, columns);
        if (op->table != MGV__NO_TENSOR) mgv__cpu_add_table(job, first_row + i, part_column + column, columns, x);
        if (op->add != MGV__NONE) {
            const size_t add_stride = buffers[op->add].columns;
            kernels->add(target, x, job->run->buffers[op->add] + (first_row + i) * add_stride + part_column + column, columns);
        } else {
            memcpy(target, x, columns * sizeof(*target));
        }
    }
}

static uint32_t mgv__cpu_linear_parts(const mgv__op *op) { return op->gated ? 1 : op->part_count; }

static uint32_t mgv__cpu_part_panels(const mgv__cpu_job *job, uint32_t part) {
    return mgv__cpu_round_up(job->op->part_columns[part], job->kernels->panel) / job->kernels->panel;
}

static uint32_t mgv__cpu_linear_panels(const mgv__cpu_job *job) {
    uint32_t part, panels = 0;
    for (part = 0; part < mgv__cpu_linear_parts(job->op); part++) panels += mgv__cpu_part_panels(job, part);
    return panels;
}

static void mgv__cpu_linear_task(void *context, uint32_t index) {
    const mgv__cpu_job *job = (const mgv__cpu_job *)context;
    const mgv__cpu_linear_scratch scratch = mgv__cpu_carve_linear(mgv__cpu_slot(job, index));
    const uint32_t panel = job->kernels->panel, tile_rows = job->kernels->tile_rows;
    const uint32_t column_tasks = job->tasks / job->row_tasks, blocks = mgv__cpu_round_up(job->rows, tile_rows) / tile_rows;
    const uint32_t panels = mgv__cpu_linear_panels(job);
    const uint32_t begin = mgv__cpu_share(panels, index % column_tasks, column_tasks);
    const uint32_t end = mgv__cpu_share(panels, index % column_tasks + 1, column_tasks);
    const uint32_t first_row = mgv__cpu_share(blocks, index / column_tasks, job->row_tasks) * tile_rows;
    const uint32_t row_limit = mgv__cpu_share(blocks, index / column_tasks + 1, job->row_tasks) * tile_rows;
    const uint32_t last_row = mgv__cpu_min(row_limit, job->rows);
    const uint32_t chunks = mgv__cpu_round_up(last_row - first_row, MGV__CPU_ROWS) / MGV__CPU_ROWS;
    const uint32_t chunk_rows = chunks == 0 ? 0 : mgv__cpu_round_up((last_row - first_row + chunks - 1) / chunks, tile_rows);
    const uint32_t group = MGV__CPU_COLUMNS / panel / (job->op->gated ? 2 : 1);
    uint32_t part, part_begin = 0, part_column = 0, row, p;
    for (part = 0; part < mgv__cpu_linear_parts(job->op); part++) {
        const uint32_t part_columns = job->op->part_columns[part], part_end = part_begin + mgv__cpu_part_panels(job, part);
        const uint32_t first = begin > part_begin ? begin : part_begin, last = mgv__cpu_min(end, part_end);
        for (p = first; p < last; p += group) {
            const uint32_t column = (p - part_begin) * panel, limit = (mgv__cpu_min(last, p + group) - part_begin) * panel;
            const uint32_t columns = mgv__cpu_min(limit, part_columns) - column;
            for (row = first_row; row < last_row; row += chunk_rows) {
                mgv__cpu_linear_columns(job, &scratch, part, part_column, column, columns, row, mgv__cpu_min(last_row - row, chunk_rows));
            }
        }
        part_begin = part_end;
        part_column += part_columns;
    }
}

/* Tasks form a grid over rows and columns. The grid whose largest task does the least: tiles, and the packing of
   its weights, which costs about as much as PACKING rows. */
static void mgv__cpu_run_linear(mgv__cpu_job *job) {
    enum { PACKING = 8 };
    const uint32_t threads = mgv__cpu_threads(job->run), tile_rows = job->kernels->tile_rows, panels = mgv__cpu_linear_panels(job);
    const uint32_t blocks = mgv__cpu_round_up(job->rows, tile_rows) / tile_rows;
    const uint64_t work = (uint64_t)job->rows * job->op->inner * panels;
    uint64_t best = UINT64_MAX;
    uint32_t row_tasks, column_tasks = 1;
    job->row_tasks = 1;
    for (row_tasks = 1; row_tasks <= threads && row_tasks <= blocks && work >= MGV__CPU_MIN_WORK; row_tasks++) {
        const uint32_t over_columns = mgv__cpu_min(threads / row_tasks, panels);
        const uint64_t task_rows = (uint64_t)((blocks + row_tasks - 1) / row_tasks) * tile_rows;
        const uint64_t cost = (task_rows + PACKING) * ((panels + over_columns - 1) / over_columns);
        if (cost < best) {
            best = cost;
            job->row_tasks = row_tasks;
            column_tasks = over_columns;
        }
    }
    mgv__cpu_start(job, job->row_tasks * column_tasks, work, mgv__cpu_linear_task);
}

/* ---- norm ---- */

static void mgv__cpu_norm_task(void *context, uint32_t index) {
    const mgv__cpu_job *job = (const mgv__cpu_job *)context;
    const mgv__op *op = job->op;
    const size_t n = op->inner;
    const uint32_t begin = mgv__cpu_share(job->rows, index, job->tasks), end = mgv__cpu_share(job->rows, index + 1, job->tasks);
    float *weight = mgv__cpu_slot(job, index), *bias = weight + n;
    uint32_t i;
    mgv__cpu_load(job, op->weight[0], 0, weight, n);
    mgv__cpu_load(job, op->bias[0], 0, bias, n);
    for (i = begin; i < end; i++) {
        job->kernels->norm(job->run->buffers[op->target] + i * n, job->run->buffers[op->source] + i * n, weight, op->rms ? NULL : bias, n,
                           op->epsilon, op->rms);
    }
}

/* ---- rotary: "RoFormer", arXiv 2104.09864, in the halves layout that transformers calls rotate_half ---- */

/* Sine and cosine of a float angle, to about one unit in the last place of a float: reduction to [-pi/4, pi/4] and
   near-minimax polynomials in double, so that every machine gives the same bits. |angle| up to 2^30. */
static void mgv__sincos(float angle, float *sine, float *cosine) {
    const double x = (double)angle, two_over_pi = 0.63661977236758134308, half_pi = 1.57079632679489661923;
    const int64_t quarter = (int64_t)(x * two_over_pi + (x < 0 ? -0.5 : 0.5));
    const double r = x - (double)quarter * half_pi, u = r * r;
    const double s = r + r * u * (-1.66666666666638846e-01 + u * (8.33333333107922312e-03 + u * (-1.98412669169859658e-04 +
                         u * (2.75559909295653188e-06 + u * -2.48056362418347625e-08))));
    const double c = 1.0 - 0.5 * u + u * u * (4.16666666666646798e-02 + u * (-1.38888888872773422e-03 + u * (2.48015852109905154e-05 +
                         u * (-2.75563696955730066e-07 + u * 2.07006004834331171e-09))));
    const double turned_sine = quarter & 1 ? c : s, turned_cosine = quarter & 1 ? s : c;
    *sine = (float)(quarter & 2 ? -turned_sine : turned_sine);
    *cosine = (float)((quarter + 1) & 2 ? -turned_cosine : turned_cosine);
}

static void mgv__cpu_rotary_task(void *context, uint32_t index) {
    const mgv__cpu_job *job = (const mgv__cpu_job *)context;
    const mgv__op *op = job->op;
    const uint32_t half = op->head_dim / 2;
    const uint32_t begin = mgv__cpu_share(job->rows, index, job->tasks), end = mgv__cpu_share(job->rows, index + 1, job->tasks);
    const size_t stride = job->run->program->buffers[op->target].columns;
    const mgv__rotary *rotary = &job->run->program->rotary;
    float sine[MGV__MAX_HEAD_DIM / 2], cosine[MGV__MAX_HEAD_DIM / 2];
    uint32_t i, j, head;
    for (i = begin; i < end; i++) {
        float *row = job->run->buffers[op->target] + i * stride;
        const float *position = job->run->geometry->position + (size_t)i * 3;
        for (j = 0; j < half; j++) mgv__sincos(position[rotary->axis[j]] * rotary->frequency[j], &sine[j], &cosine[j]);
        for (head = 0; head < 2 * op->heads; head++) job->kernels->rotate(row + (size_t)head * op->head_dim, cosine, sine, half);
    }
}

/* ---- attention ---- */

typedef struct mgv__cpu_attention_scratch {
    float *keys;    /* [MGV__CPU_DEPTH / panel][head_dim][panel] */
    float *values;  /* [padded head_dim / panel][MGV__CPU_DEPTH][panel] */
    float *queries; /* [MGV__CPU_MAX_TILE][MGV__CPU_STRIDE] */
    float *scores;  /* [MGV__CPU_MAX_TILE][MGV__CPU_STRIDE] */
    float *sums;    /* [MGV__CPU_QUERIES + MGV__CPU_MAX_TILE][padded head_dim] */
    float *max;     /* [MGV__CPU_QUERIES] */
    float *total;   /* [MGV__CPU_QUERIES] */
} mgv__cpu_attention_scratch;

enum {
    MGV__CPU_MAX_PADDED_HEAD = (int)MGV__MAX_HEAD_DIM + MGV__CPU_MAX_PANEL,
    MGV__CPU_KEY_FLOATS = (int)MGV__CPU_DEPTH * MGV__MAX_HEAD_DIM,
    MGV__CPU_VALUE_FLOATS = MGV__CPU_DEPTH * MGV__CPU_MAX_PADDED_HEAD,
    MGV__CPU_HEAD_FLOATS = (MGV__CPU_QUERIES + MGV__CPU_MAX_TILE) * MGV__CPU_MAX_PADDED_HEAD,
    MGV__CPU_ATTENTION_FLOATS = MGV__CPU_KEY_FLOATS + MGV__CPU_VALUE_FLOATS + 2 * MGV__CPU_BLOCK_FLOATS + MGV__CPU_HEAD_FLOATS +
                                2 * MGV__CPU_QUERIES
};

static mgv__cpu_attention_scratch mgv__cpu_carve_attention(float *slot) {
    mgv__cpu_attention_scratch s;
    s.keys = slot;
    s.values = s.keys + MGV__CPU_KEY_FLOATS;
    s.queries = s.values + MGV__CPU_VALUE_FLOATS;
    s.scores = s.queries + MGV__CPU_BLOCK_FLOATS;
    s.sums = s.scores + MGV__CPU_BLOCK_FLOATS;
    s.max = s.sums + MGV__CPU_HEAD_FLOATS;
    s.total = s.max + MGV__CPU_QUERIES;
    return s;
}

/* A score that no key can have: exp of it is 0. */
#define MGV__CPU_NO_SCORE -3.0e38f

/* Keys and values of `count` rows from `first`, one head, as panels. */
static void mgv__cpu_pack_keys(const mgv__cpu_job *job, const mgv__cpu_attention_scratch *scratch, uint32_t head, uint32_t first,
                               uint32_t count) {
    const mgv__op *op = job->op;
    const uint32_t panel = job->kernels->panel, head_dim = op->head_dim;
    const size_t stride = job->run->program->buffers[op->source].columns;
    const float *keys = job->run->buffers[op->source] + first * stride + (size_t)(op->heads + head) * head_dim;
    const float *values = keys + (size_t)op->heads * head_dim;
    uint32_t i, j;
    for (j = 0; j < count; j += panel) {
        job->kernels->pack(MGV_DTYPE_F32, keys + j * stride, stride, mgv__cpu_min(count - j, panel), head_dim,
                           scratch->keys + (size_t)j * head_dim);
    }
    for (j = 0; j < head_dim; j += panel) {
        const uint32_t columns = mgv__cpu_min(head_dim - j, panel);
        for (i = 0; i < count; i++) {
            float *to = scratch->values + (size_t)j * count + (size_t)i * panel;
            memcpy(to, values + i * stride + j, columns * sizeof(*to));
            memset(to + columns, 0, (panel - columns) * sizeof(*to));
        }
    }
}

/* Columns `slice` of rows [key, key + keys), which the next head's item will read; nothing behind the last head. */
static mgv__cpu_stream mgv__cpu_stream_of_keys(const mgv__cpu_job *job, uint32_t head, uint32_t slice, uint32_t key, uint32_t keys,
                                               uint32_t tiles) {
    const size_t stride = job->run->program->buffers[job->op->source].columns;
    const float *source = job->run->buffers[job->op->source];
    if (head >= job->op->heads) return mgv__cpu_stream_of(source, 0, 0, 0, 1);
    return mgv__cpu_stream_of(source + key * stride + (size_t)slice * job->op->head_dim, stride, sizeof(float), keys, tiles);
}

/* Queries [first, first + count) of one head against the keys [begin, end) of their range. */
static void mgv__cpu_attend(const mgv__cpu_job *job, const mgv__cpu_attention_scratch *scratch, uint32_t head, uint32_t first,
                            uint32_t count, uint32_t begin, uint32_t end) {
    const mgv__op *op = job->op;
    const mgv__cpu_kernels *kernels = job->kernels;
    const uint32_t panel = kernels->panel, head_dim = op->head_dim, padded = mgv__cpu_round_up(head_dim, panel);
    const size_t stride = job->run->program->buffers[op->source].columns, target_stride = job->run->program->buffers[op->target].columns;
    const float *queries = job->run->buffers[op->source] + first * stride + (size_t)head * head_dim;
    float *target = job->run->buffers[op->target] + first * target_stride + (size_t)head * head_dim;
    const mgv__cpu_ahead nothing = {{NULL, NULL}, {0, 0}, {0, 0}, {0, 0}};
    const uint32_t passes = (end - begin + MGV__CPU_DEPTH - 1) / MGV__CPU_DEPTH; /* over the keys, of about the same length */
    const uint32_t most_keys = mgv__cpu_round_up((end - begin + passes - 1) / passes, panel);
    const uint32_t last = op->causal ? first + count : end; /* no query sees a key behind it */
    uint32_t i, j, key, r;
    for (i = 0; i < count; i++) {
        scratch->max[i] = MGV__CPU_NO_SCORE;
        scratch->total[i] = 0.0f;
    }
    for (key = begin; key < last; key += most_keys) {
        const uint32_t keys = mgv__cpu_min(last - key, most_keys), padded_keys = mgv__cpu_round_up(keys, panel);
        const uint32_t tiles = mgv__cpu_round_up(count, kernels->tile_rows) / kernels->tile_rows * (padded_keys / panel);
        mgv__cpu_stream next_keys = mgv__cpu_stream_of_keys(job, head + 1, op->heads + head + 1, key, keys, tiles);
        mgv__cpu_stream next_values = mgv__cpu_stream_of_keys(job, head + 1, 2 * op->heads + head + 1, key, keys, tiles);
        mgv__cpu_pack_keys(job, scratch, head, key, keys);
        for (i = 0; i < count; i += kernels->tile_rows) {
            const uint32_t rows = mgv__cpu_min(count - i, kernels->tile_rows);
            float *sums = scratch->sums + (size_t)i * padded;
            mgv__cpu_copy_rows(job, queries + i * stride, stride, rows, head_dim, scratch->queries);
            for (j = 0; j < keys; j += panel) {
                mgv__cpu_ahead ahead;
                mgv__cpu_stream_next(&next_keys, &ahead, 0);
                mgv__cpu_stream_next(&next_values, &ahead, 1);
                kernels->tile(rows, head_dim, scratch->queries, scratch->keys + (size_t)j * head_dim, scratch->scores + j, MGV__CPU_STRIDE,
                              0, &ahead);
            }
            for (r = 0; r < rows; r++) {
                float *scores = scratch->scores + (size_t)r * MGV__CPU_STRIDE, factor;
                const uint32_t own = first + i + r + 1;
                const uint32_t seen = !op->causal ? keys : own > key ? mgv__cpu_min(own - key, keys) : 0;
                kernels->scale(scores, scores, op->scale, seen);
                for (j = seen; j < padded_keys; j++) scores[j] = MGV__CPU_NO_SCORE;
                factor = kernels->softmax(scores, padded_keys, &scratch->max[i + r], &scratch->total[i + r]);
                if (key != begin) kernels->scale(sums + (size_t)r * padded, sums + (size_t)r * padded, factor, padded);
            }
            for (j = 0; j < head_dim; j += panel) {
                kernels->tile(rows, keys, scratch->scores, scratch->values + (size_t)j * keys, sums + j, padded, key != begin, &nothing);
            }
        }
    }
    for (i = 0; i < count; i++) {
        kernels->scale(target + i * target_stride, scratch->sums + (size_t)i * padded, 1.0f / scratch->total[i], head_dim);
    }
}

/* An item is some queries of one range and one head. A task takes items that follow each other, so that keys and
   values stay in its cache from one to the next. */
static void mgv__cpu_attention_task(void *context, uint32_t index) {
    const mgv__cpu_job *job = (const mgv__cpu_job *)context;
    const mgv__op *op = job->op;
    const mgv__geometry *g = job->run->geometry;
    const mgv__cpu_attention_scratch scratch = mgv__cpu_carve_attention(mgv__cpu_slot(job, index));
    const uint32_t first_item = mgv__cpu_share(job->items, index, job->tasks);
    const uint32_t last_item = mgv__cpu_share(job->items, index + 1, job->tasks);
    uint32_t range, head, first, begin = 0, item = 0;
    for (range = 0; range < g->range_count[op->range]; range++) {
        const uint32_t end = g->range_ends[op->range][range];
        for (head = 0; head < op->heads; head++) {
            for (first = begin; first < end; first += job->queries, item++) {
                if (item < first_item || item >= last_item) continue;
                mgv__cpu_attend(job, &scratch, head, first, mgv__cpu_min(end - first, job->queries), begin, end);
            }
        }
        begin = end;
    }
}

static uint32_t mgv__cpu_attention_items(const mgv__cpu_job *job) {
    const mgv__geometry *g = job->run->geometry;
    uint32_t range, begin = 0, items = 0;
    for (range = 0; range < g->range_count[job->op->range]; range++) {
        const uint32_t end = g->range_ends[job->op->range][range];
        items += mgv__cpu_round_up(end - begin, job->queries) / job->queries * job->op->heads;
        begin = end;
    }
    return items;
}

/* Fewer queries an item where there are more threads than items; it costs packing and changes no bit. */
static void mgv__cpu_run_attention(mgv__cpu_job *job) {
    enum { FEWEST = 56 };
    const uint32_t threads = mgv__cpu_threads(job->run);
    const uint64_t work = (uint64_t)job->rows * job->op->heads * job->op->head_dim * 16;
    job->queries = MGV__CPU_QUERIES;
    while (job->queries > FEWEST && mgv__cpu_attention_items(job) < threads) job->queries /= 2;
    job->items = mgv__cpu_attention_items(job);
    mgv__cpu_start(job, threads, work, mgv__cpu_attention_task);
}

/* ---- pool: SiglipMultiheadAttentionPoolingHead of transformers, up to its output projection ---- */

/* One head. The probe does not depend on the picture, so a head's scores are y . u with u = Wk^T q (the bias of the
   keys adds the same to every score and cancels), and Wv applied to the weighted mean of y is the weighted mean of
   the values: neither keys nor values are formed. */
static void mgv__cpu_pool_head(const mgv__cpu_job *job, uint32_t head, float *slot) {
    const mgv__op *op = job->op;
    const mgv__cpu_kernels *kernels = job->kernels;
    const size_t inner = op->inner, first = (size_t)head * op->head_dim, stride = job->run->program->buffers[op->source].columns;
    const uint32_t tokens = job->run->geometry->grid.tokens, padded = mgv__cpu_round_up(tokens, kernels->panel);
    const float *y = job->run->buffers[op->source];
    float *row = slot, *u = row + inner, *mean = u + inner, *bias = mean + inner, *scores = bias + MGV__MAX_HEAD_DIM;
    float max = MGV__CPU_NO_SCORE, total = 0.0f;
    uint32_t i, j;
    memset(u, 0, inner * sizeof(*u));
    memset(mean, 0, inner * sizeof(*mean));
    mgv__cpu_load(job, op->bias[0], first, bias, op->head_dim);
    mgv__cpu_load(job, op->probe, 0, mean, inner);
    for (j = 0; j < op->head_dim; j++) {
        float q;
        mgv__cpu_load(job, op->weight[0], (first + j) * inner, row, inner);
        q = (kernels->dot(row, mean, inner) + bias[j]) * op->scale;
        mgv__cpu_load(job, op->weight[0], (inner + first + j) * inner, row, inner);
        kernels->add_scaled(u, q, row, inner);
    }
    for (i = 0; i < tokens; i++) scores[i] = kernels->dot(y + i * stride, u, inner);
    for (; i < padded; i++) scores[i] = MGV__CPU_NO_SCORE;
    kernels->softmax(scores, padded, &max, &total);
    memset(mean, 0, inner * sizeof(*mean));
    for (i = 0; i < tokens; i++) kernels->add_scaled(mean, scores[i], y + i * stride, inner);
    kernels->scale(mean, mean, 1.0f / total, inner);
    mgv__cpu_load(job, op->bias[0], 2 * inner + first, bias, op->head_dim);
    for (j = 0; j < op->head_dim; j++) {
        mgv__cpu_load(job, op->weight[0], (2 * inner + first + j) * inner, row, inner);
        job->run->buffers[op->target][first + j] = kernels->dot(row, mean, inner) + bias[j];
    }
}

static void mgv__cpu_pool_task(void *context, uint32_t index) {
    const mgv__cpu_job *job = (const mgv__cpu_job *)context;
    uint32_t head;
    for (head = index; head < job->op->heads; head += job->tasks) mgv__cpu_pool_head(job, head, mgv__cpu_slot(job, index));
}

/* ---- gather ---- */

static void mgv__cpu_gather_task(void *context, uint32_t index) {
    const mgv__cpu_job *job = (const mgv__cpu_job *)context;
    const mgv__op *op = job->op;
    const mgv__geometry *g = job->run->geometry;
    const uint32_t units = g->grid.merged_tokens;
    const uint32_t begin = mgv__cpu_share(units, index, job->tasks), end = mgv__cpu_share(units, index + 1, job->tasks);
    const size_t unit = (size_t)(job->rows / units) * job->run->program->buffers[op->source].columns;
    uint32_t i;
    for (i = begin; i < end; i++) {
        const uint32_t from = op->inverse ? i : g->order[i], to = op->inverse ? g->order[i] : i;
        memcpy(job->run->buffers[op->target] + to * unit, job->run->buffers[op->source] + from * unit, unit * sizeof(float));
    }
}

/* ---- rows put in front, picked, and looked up ---- */

/* Row `row` of those that a prepend brings: they lie in its tensors one after the other. */
static void mgv__cpu_load_prefix(const mgv__cpu_job *job, uint32_t row, float *to) {
    const mgv__op *op = job->op;
    uint32_t part, left = row;
    for (part = 0; part < op->part_count; part++) {
        const mgv__tensor *tensor = &job->run->tensors[op->weight[part]];
        const uint32_t rows = tensor->rank < 2 ? 1 : (uint32_t)tensor->shape[tensor->rank - 2];
        if (left < rows) break;
        left -= rows;
    }
    mgv__cpu_load(job, op->weight[part], (size_t)left * op->columns, to, op->columns);
    if (row < job->run->geometry->table_first && op->table != MGV__NO_TENSOR) {
        float *table = mgv__cpu_slot(job, 0);
        mgv__cpu_load(job, op->table, (size_t)row * op->columns, table, op->columns);
        job->kernels->add(to, to, table, op->columns);
    }
}

static void mgv__cpu_run_prepend(const mgv__cpu_job *job) {
    const size_t columns = job->op->columns;
    const uint32_t prefix = job->rows - mgv__grid_rows(&job->run->geometry->grid, MGV__ROWS_PATCHES);
    float *target = job->run->buffers[job->op->target];
    uint32_t row;
    for (row = 0; row < prefix; row++) mgv__cpu_load_prefix(job, row, target + row * columns);
    memcpy(target + prefix * columns, job->run->buffers[job->op->source], (job->rows - prefix) * columns * sizeof(*target));
}

static void mgv__cpu_run_pick(const mgv__cpu_job *job) {
    const size_t columns = job->op->columns;
    memcpy(job->run->buffers[job->op->target], job->run->buffers[job->op->source] + job->run->geometry->picked * columns,
           columns * sizeof(float));
}

static void mgv__cpu_embed_task(void *context, uint32_t index) {
    const mgv__cpu_job *job = (const mgv__cpu_job *)context;
    const mgv__op *op = job->op;
    const uint32_t begin = mgv__cpu_share(job->rows, index, job->tasks), end = mgv__cpu_share(job->rows, index + 1, job->tasks);
    float *table = mgv__cpu_slot(job, index);
    uint32_t i;
    for (i = begin; i < end; i++) {
        float *row = job->run->buffers[op->target] + (size_t)i * op->columns;
        mgv__cpu_load(job, op->weight[0], (size_t)job->run->geometry->ids[i] * op->columns, row, op->columns);
        if (op->table == MGV__NO_TENSOR) continue;
        mgv__cpu_load(job, op->table, (size_t)i * op->columns, table, op->columns);
        job->kernels->add(row, row, table, op->columns);
    }
}

/* ---- the two calls that the engine makes ---- */

/* Runs one op for one picture. Blocks; allocates nothing; cannot fail. */
static void mgv__cpu_run_op(const mgv__cpu_run *run, const mgv__op *op) {
    mgv__cpu_job job;
    uint64_t elements;
    memset(&job, 0, sizeof(job));
    job.run = run;
    job.op = op;
    job.kernels = mgv__cpu_kernels_for(run);
    job.rows = mgv__grid_rows(&run->geometry->grid, op->rows);
    elements = (uint64_t)job.rows * op->columns;
    if (job.rows == 0) return;
    switch (op->kind) {
    case MGV__OP_LINEAR: mgv__cpu_run_linear(&job); break;
    case MGV__OP_NORM: mgv__cpu_start(&job, job.rows, elements, mgv__cpu_norm_task); break;
    case MGV__OP_ROTARY: mgv__cpu_start(&job, job.rows, (uint64_t)job.rows * op->heads * op->head_dim * 4, mgv__cpu_rotary_task); break;
    case MGV__OP_ATTENTION: mgv__cpu_run_attention(&job); break;
    case MGV__OP_POOL: mgv__cpu_start(&job, op->heads, (uint64_t)op->inner * op->inner, mgv__cpu_pool_task); break;
    case MGV__OP_GATHER: mgv__cpu_start(&job, run->geometry->grid.merged_tokens, elements, mgv__cpu_gather_task); break;
    case MGV__OP_PREPEND: mgv__cpu_run_prepend(&job); break;
    case MGV__OP_PICK: mgv__cpu_run_pick(&job); break;
    case MGV__OP_EMBED: mgv__cpu_start(&job, job.rows, elements, mgv__cpu_embed_task); break;
    default: break;
    }
}

/* Scratch that mgv__cpu_run_op needs for pictures of at most max_tokens tokens on `threads` threads (0 counts as 1).
   Returns 0 on overflow. */
static int mgv__cpu_scratch_bytes(const mgv__program *program, uint32_t max_tokens, uint32_t threads, size_t *bytes) {
    size_t floats = 0, slot, total;
    uint32_t i;
    for (i = 0; i < program->op_count; i++) {
        const mgv__op *op = &program->ops[i];
        size_t fixed = 0, rows = 0, need; /* floats that do not and that do grow with the op's columns */
        switch (op->kind) {
        case MGV__OP_LINEAR:
            fixed = MGV__CPU_LINEAR_FLOATS;
#ifdef MEGAVIT_SGEMM
            rows = MGV__CPU_COLUMNS;
#endif
            break;
        case MGV__OP_NORM: rows = 2; break;
        case MGV__OP_PREPEND: case MGV__OP_EMBED: rows = 1; break;
        case MGV__OP_ATTENTION: fixed = MGV__CPU_ATTENTION_FLOATS; break;
        case MGV__OP_POOL:
            rows = 3;
            if (!mgv__add(max_tokens, MGV__CPU_MAX_PADDED_HEAD, &fixed)) return 0;
            break;
        default: break;
        }
        if (!mgv__mul(op->inner, rows, &need) || !mgv__add(need, fixed, &need)) return 0;
        if (need > floats) floats = need;
    }
    if (!mgv__mul(floats, sizeof(float), &slot) || !mgv__align_up(slot, 64, &slot)) return 0;
    if (!mgv__mul(slot, threads > 1 ? threads : 1, &total)) return 0;
    *bytes = total;
    return 1;
}

/* ---------------------------------------------------------------------------------------------------------------
   >>pixels-avx2: the two passes of a resize and the taking apart of pixels, with AVX2

   A weight of up to 23 bits goes through 16-bit multiply-adds as high * 2^15 + low. The two sums wrap in 32 bits and are put together
   at the end: what comes out is the exact sum, since that fits into 32 bits. Weights that are 16 bits wide as they are (torchvision)
   have no high part. */
#ifdef MGV__CPU_X86
#ifdef _MSC_VER
#define MGV__PIXELS_AVX2
#else
#define MGV__PIXELS_AVX2 __attribute__((target("avx2")))
#endif

/* Low parts, then high parts, of one window. */
static const int16_t *mgv__avx2_weights(const mgv__axis *axis, uint32_t i) {
    return (const int16_t *)axis->weights + (size_t)i * axis->taps * 2;
}

static void mgv__avx2_store(const mgv__axis *axis, uint32_t i, const double *weights, uint32_t count) {
    int16_t *row = (int16_t *)axis->weights + (size_t)i * axis->taps * 2;
    uint32_t k;
    for (k = 0; k < axis->taps; k++) {
        int32_t weight = k < count ? (int32_t)weights[k] : 0;
        int32_t high = axis->wide ? (weight + (1 << 30)) / 32768 - (1 << 15) : 0; /* rounded down */
        row[k] = (int16_t)(weight - high * 32768);
        row[axis->taps + k] = (int16_t)high;
    }
}

MGV__PIXELS_AVX2
static void mgv__avx2_across(const mgv__axis *axis, uint32_t begin, uint32_t end, const unsigned char *planes, size_t plane_bytes,
                             uint32_t plane_count, uint32_t origin, unsigned char *target, size_t target_plane_bytes) {
    const __m128i half = _mm_set1_epi32(1 << (axis->shift - 1)), shift = _mm_cvtsi32_si128((int)axis->shift);
    const size_t step = plane_count == 3 ? plane_bytes : 0; /* one plane is resized three times */
    const int wide = axis->wide;
    uint32_t x, k;
    for (x = begin; x < end; x++) {
        const mgv__window window = axis->windows[x];
        const unsigned char *samples = planes + (window.first - origin);
        const int16_t *low = mgv__avx2_weights(axis, x), *high = low + axis->taps;
        __m256i low0 = _mm256_setzero_si256(), low1 = low0, low2 = low0, high0 = low0, high1 = low0, high2 = low0;
        __m128i sums;
        int32_t bytes;
        for (k = 0; k < window.count; k += MGV__PIXELS_TAP_MULTIPLE) {
            const __m256i low_weights = _mm256_loadu_si256((const __m256i *)(const void *)(low + k));
            const __m256i p0 = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(samples + k)));
            const __m256i p1 = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(samples + step + k)));
            const __m256i p2 = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(samples + 2 * step + k)));
            low0 = _mm256_add_epi32(low0, _mm256_madd_epi16(p0, low_weights));
            low1 = _mm256_add_epi32(low1, _mm256_madd_epi16(p1, low_weights));
            low2 = _mm256_add_epi32(low2, _mm256_madd_epi16(p2, low_weights));
            if (wide) {
                const __m256i high_weights = _mm256_loadu_si256((const __m256i *)(const void *)(high + k));
                high0 = _mm256_add_epi32(high0, _mm256_madd_epi16(p0, high_weights));
                high1 = _mm256_add_epi32(high1, _mm256_madd_epi16(p1, high_weights));
                high2 = _mm256_add_epi32(high2, _mm256_madd_epi16(p2, high_weights));
            }
        }
        low0 = _mm256_add_epi32(low0, _mm256_slli_epi32(high0, 15));
        low1 = _mm256_add_epi32(low1, _mm256_slli_epi32(high1, 15));
        low2 = _mm256_add_epi32(low2, _mm256_slli_epi32(high2, 15));
        low0 = _mm256_hadd_epi32(_mm256_hadd_epi32(low0, low1), _mm256_hadd_epi32(low2, low2));
        sums = _mm_add_epi32(_mm256_castsi256_si128(low0), _mm256_extracti128_si256(low0, 1));
        sums = _mm_sra_epi32(_mm_add_epi32(sums, half), shift);
        sums = _mm_packs_epi32(sums, sums);
        bytes = _mm_cvtsi128_si32(_mm_packus_epi16(sums, sums));
        target[x - begin] = (unsigned char)(bytes & 255);
        if (plane_count == 3) {
            target[target_plane_bytes + (x - begin)] = (unsigned char)(bytes >> 8 & 255);
            target[2 * target_plane_bytes + (x - begin)] = (unsigned char)(bytes >> 16 & 255);
        }
    }
}

/* Bytes [start, end) of an output row one by one: what is left behind the last whole vector. */
static void mgv__avx2_down_rest(const mgv__axis *axis, uint32_t y, const mgv__row_set *rows, size_t start, size_t end,
                                unsigned char *target) {
    const mgv__window window = axis->windows[y];
    const int16_t *low = mgv__avx2_weights(axis, y), *high = low + axis->taps;
    for (; start < end; start++) {
        uint32_t k, row = window.first % rows->modulus;
        int32_t sum = 1 << (axis->shift - 1);
        for (k = 0; k < window.count; k++) {
            sum += rows->base[(ptrdiff_t)row * rows->stride + (ptrdiff_t)start] * (high[k] * 32768 + low[k]);
            if (++row == rows->modulus) row = 0;
        }
        target[start] = mgv__to_byte(sum, axis->shift);
    }
}

/* Two rows at a time: their bytes side by side meet their weights side by side. */
MGV__PIXELS_AVX2
static void mgv__avx2_down(const mgv__axis *axis, uint32_t y, const mgv__row_set *rows, size_t bytes, unsigned char *target) {
    const mgv__window window = axis->windows[y];
    const int16_t *low = mgv__avx2_weights(axis, y), *high = low + axis->taps;
    const __m256i half = _mm256_set1_epi32(1 << (axis->shift - 1)), zero = _mm256_setzero_si256();
    const __m128i shift = _mm_cvtsi32_si128((int)axis->shift);
    const int wide = axis->wide;
    size_t start;
    for (start = 0; start + 32 <= bytes; start += 32) {
        __m256i low0 = half, low1 = half, low2 = half, low3 = half, high0 = zero, high1 = zero, high2 = zero, high3 = zero;
        uint32_t k, row = window.first % rows->modulus;
        for (k = 0; k < window.count; k += 2) {
            const unsigned char *first = rows->base + (ptrdiff_t)row * rows->stride + (ptrdiff_t)start, *second = first;
            __m256i even, odd, weights, p0, p1, p2, p3;
            int32_t pair;
            if (++row == rows->modulus) row = 0;
            if (k + 1 < window.count) second = rows->base + (ptrdiff_t)row * rows->stride + (ptrdiff_t)start; /* or else its weight is 0 */
            if (++row == rows->modulus) row = 0;
            even = _mm256_loadu_si256((const __m256i *)(const void *)first);
            odd = _mm256_loadu_si256((const __m256i *)(const void *)second);
            p0 = _mm256_unpacklo_epi8(even, odd);
            p2 = _mm256_unpackhi_epi8(even, odd);
            p1 = _mm256_unpackhi_epi8(p0, zero);
            p0 = _mm256_unpacklo_epi8(p0, zero);
            p3 = _mm256_unpackhi_epi8(p2, zero);
            p2 = _mm256_unpacklo_epi8(p2, zero);
            memcpy(&pair, low + k, sizeof pair);
            weights = _mm256_set1_epi32(pair);
            low0 = _mm256_add_epi32(low0, _mm256_madd_epi16(p0, weights));
            low1 = _mm256_add_epi32(low1, _mm256_madd_epi16(p1, weights));
            low2 = _mm256_add_epi32(low2, _mm256_madd_epi16(p2, weights));
            low3 = _mm256_add_epi32(low3, _mm256_madd_epi16(p3, weights));
            if (!wide) continue;
            memcpy(&pair, high + k, sizeof pair);
            weights = _mm256_set1_epi32(pair);
            high0 = _mm256_add_epi32(high0, _mm256_madd_epi16(p0, weights));
            high1 = _mm256_add_epi32(high1, _mm256_madd_epi16(p1, weights));
            high2 = _mm256_add_epi32(high2, _mm256_madd_epi16(p2, weights));
            high3 = _mm256_add_epi32(high3, _mm256_madd_epi16(p3, weights));
        }
        low0 = _mm256_sra_epi32(_mm256_add_epi32(low0, _mm256_slli_epi32(high0, 15)), shift);
        low1 = _mm256_sra_epi32(_mm256_add_epi32(low1, _mm256_slli_epi32(high1, 15)), shift);
        low2 = _mm256_sra_epi32(_mm256_add_epi32(low2, _mm256_slli_epi32(high2, 15)), shift);
        low3 = _mm256_sra_epi32(_mm256_add_epi32(low3, _mm256_slli_epi32(high3, 15)), shift);
        low0 = _mm256_packus_epi16(_mm256_packs_epi32(low0, low1), _mm256_packs_epi32(low2, low3));
        _mm256_storeu_si256((__m256i *)(void *)(target + start), low0);
    }
    mgv__avx2_down_rest(axis, y, rows, start, bytes, target);
}

MGV__PIXELS_AVX2
static __m256i mgv__avx2_load_two(const unsigned char *low, const unsigned char *high) {
    const __m128i first = _mm_loadu_si128((const __m128i *)(const void *)low);
    const __m128i second = _mm_loadu_si128((const __m128i *)(const void *)high);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1);
}

/* 32 pixels of 3 bytes: from each third of 48 bytes what belongs to a plane, moved to its place, the rest 0. Two such in the two halves. */
MGV__PIXELS_AVX2
static uint32_t mgv__avx2_take_3(const unsigned char *source, uint32_t count, unsigned char *const planes[3]) {
    __m256i moves[3][3];
    uint32_t done, plane, third, i;
    for (plane = 0; plane < 3; plane++) {
        for (third = 0; third < 3; third++) {
            unsigned char move[16];
            for (i = 0; i < 16; i++) {
                uint32_t from = 3 * i + plane;
                move[i] = (unsigned char)(from / 16 == third ? from % 16 : 0x80);
            }
            moves[plane][third] = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)move));
        }
    }
    for (done = 0; done + 32 <= count; done += 32, source += 96) {
        const __m256i first = mgv__avx2_load_two(source, source + 48), second = mgv__avx2_load_two(source + 16, source + 64),
                      last = mgv__avx2_load_two(source + 32, source + 80);
        for (plane = 0; plane < 3; plane++) {
            __m256i samples = _mm256_or_si256(_mm256_shuffle_epi8(first, moves[plane][0]), _mm256_shuffle_epi8(second, moves[plane][1]));
            samples = _mm256_or_si256(samples, _mm256_shuffle_epi8(last, moves[plane][2]));
            _mm256_storeu_si256((__m256i *)(void *)(planes[plane] + done), samples);
        }
    }
    return done;
}

/* 32 pixels of 4 bytes: R, G, B and A of four pixels come to stand in a row, then the rows of four by four are turned. */
MGV__PIXELS_AVX2
static uint32_t mgv__avx2_take_4(const unsigned char *source, uint32_t count, unsigned char *const planes[3]) {
    const __m256i apart = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    uint32_t done;
    for (done = 0; done + 32 <= count; done += 32, source += 128) {
        const __m256i four0 = _mm256_shuffle_epi8(mgv__avx2_load_two(source, source + 64), apart);
        const __m256i four1 = _mm256_shuffle_epi8(mgv__avx2_load_two(source + 16, source + 80), apart);
        const __m256i four2 = _mm256_shuffle_epi8(mgv__avx2_load_two(source + 32, source + 96), apart);
        const __m256i four3 = _mm256_shuffle_epi8(mgv__avx2_load_two(source + 48, source + 112), apart);
        const __m256i red_green01 = _mm256_unpacklo_epi32(four0, four1), red_green23 = _mm256_unpacklo_epi32(four2, four3);
        const __m256i blue01 = _mm256_unpackhi_epi32(four0, four1), blue23 = _mm256_unpackhi_epi32(four2, four3);
        _mm256_storeu_si256((__m256i *)(void *)(planes[0] + done), _mm256_unpacklo_epi64(red_green01, red_green23));
        _mm256_storeu_si256((__m256i *)(void *)(planes[1] + done), _mm256_unpackhi_epi64(red_green01, red_green23));
        _mm256_storeu_si256((__m256i *)(void *)(planes[2] + done), _mm256_unpacklo_epi64(blue01, blue23));
    }
    return done;
}

static void mgv__avx2_to_planes(const mgv__pixel_format_row *format, const unsigned char *source, uint32_t count, unsigned char *planes,
                                size_t plane_bytes) {
    unsigned char *by_offset[3]; /* the plane that the bytes at this offset of a pixel go to */
    uint32_t done = 0, i;
    for (i = 0; i < 3; i++) by_offset[format->offset[i]] = planes + i * plane_bytes;
    if (format->bytes == 3) done = mgv__avx2_take_3(source, count, by_offset);
    if (format->bytes == 4) done = mgv__avx2_take_4(source, count, by_offset);
    mgv__plain_to_planes(format, source + (size_t)done * format->bytes, count - done, planes + done, plane_bytes);
}

static const mgv__pixel_kernels mgv__avx2_pixel_kernels = {mgv__avx2_store, mgv__avx2_across, mgv__avx2_down, mgv__avx2_to_planes};
static const mgv__pixel_kernels *mgv__pixel_kernels_here(void) {
    return mgv__cpu_detect() == MGV__ISA_PLAIN ? &mgv__plain_pixel_kernels : &mgv__avx2_pixel_kernels;
}
#else
static const mgv__pixel_kernels *mgv__pixel_kernels_here(void) { return &mgv__plain_pixel_kernels; }
#endif

/* MEGAVIT_PLAN: the plan without a GPU, for mgv_model_get_schedule and for tests that run the kernels on a model of the machine. */
#if (defined(MEGAVIT_CUDA) && !defined(MEGAVIT_NO_CUDA)) || defined(MEGAVIT_PLAN)

/* ---------------------------------------------------------------------------------------------------------------
   >>plan: how the list of operations runs as one persistent kernel

   The plan has two parts. The layout is fixed when the engine is made: device buffers, packed weights, tensor maps, counters. The schedule
   depends on the number of images: tile widths and the list of segments, in whose order clusters take tiles, in turn or, where there are
   many, as they are dealt to them.

   Rows are grouped: a group is `group_images` images that go through all layers together, so that some of what an operation writes is
   still in the L2 cache when the next one reads it. Row tiles are counted from the start of their group, so no tile holds rows of two
   groups.

   Two regimes, each with kernels of its own, on the same buffers, packed weights and counters: throughput, and latency for few images
   (see mgv__regimes). The schedule says which one runs.

   One counter for each row tile (or image) and buffer counts the tiles that have been written there since the launch; it only grows, so
   what the n-th writer of a buffer leaves behind is complete when the counter has reached the sum over the first n writers. */

enum {
    MGV__DEVICE_PATCHES = 0, MGV__DEVICE_STREAM, MGV__DEVICE_QKV, MGV__DEVICE_ATTENDED, MGV__DEVICE_MLP, MGV__DEVICE_WEIGHTED,
    MGV__DEVICE_HEAD_ATTENDED, MGV__DEVICE_HEAD_OUT, MGV__DEVICE_HEAD_MLP, MGV__DEVICE_POOLED,
    MGV__DEVICE_PARTS,                                       /* of the pooling head's sums, where each CTA has some tokens */
    MGV__DEVICE_SCORES,                                      /* of the pooling head, where there are too many tokens to hold them at once */
    MGV__DEVICE_BUFFER_COUNT
};
/* Packed weights lie in one matrix for each row length. */
enum { MGV__PACK_PATCH = 0, MGV__PACK_HIDDEN, MGV__PACK_MLP, MGV__PACK_SCORES, MGV__PACK_COUNT };

/* Tensor maps: what each is a view of. */
enum {
    MGV__MAP_A = 0,                                          /* + buffer: boxes of 128 rows that GEMMs read */
    MGV__MAP_STORE = MGV__DEVICE_BUFFER_COUNT,               /* + buffer: boxes of 64 rows that are written, and residuals */
    MGV__MAP_KEYS = 2 * MGV__DEVICE_BUFFER_COUNT, MGV__MAP_QUERIES, /* with online softmax: the first 64 columns of heads */
    MGV__MAP_KEYS_REST, MGV__MAP_QUERIES_REST,               /* the columns of heads behind these */
    MGV__MAP_POOL_TOKENS, MGV__MAP_POOL_SCORES,
    MGV__MAP_WEIGHTS,                                        /* + 3 pack + (0, 1, 2 for tiles of 256, 128, 64 columns) */
    /* the latency regime's */
    MGV__MAP_LATENCY_A = MGV__MAP_WEIGHTS + 9,               /* + buffer, up to MLP's */
    MGV__MAP_LATENCY_KEYS = MGV__MAP_LATENCY_A + MGV__DEVICE_MLP + 1, /* half of an image's keys or values */
    MGV__MAP_LATENCY_WEIGHTS,                                /* + pack */
    MGV__MAP_THIN_A = MGV__MAP_LATENCY_WEIGHTS + 3,          /* of one image: + 2 (0, 1: patches, what was attended to) + (0, 1: boxes of
                                                                the first blocks of K, of those behind them) */
    /* SPLIT tiles of 160 columns, then of 192 */
    MGV__MAP_SPLIT_WEIGHTS = MGV__MAP_THIN_A + 4,            /* + 3 (0, 1 for 160, 192 columns) + pack: boxes of half a tile's columns */
    MGV__MAP_SPLIT_REST = MGV__MAP_SPLIT_WEIGHTS + 6,        /* + (0, 1): of the stream, behind the first 64 columns of half a tile */
    MGV__MAP_LATENCY_POOL = MGV__MAP_SPLIT_REST + 2,         /* a CTA's tokens of the pooling head */
    MGV__MAP_COUNT
};
enum { MGV__MAP_WEIGHTS_128 = 1 /* of the three of a pack */ };
MGV__STATIC_ASSERT((int)MGV__MAP_COUNT <= (int)MGV__MAX_MAPS, maps_fit_the_kernel_argument);
MGV__STATIC_ASSERT((int)MGV__DEVICE_BUFFER_COUNT <= (int)MGV__MAX_DEVICE_BUFFERS, buffers_fit_the_kernel_argument);

typedef struct mgv__map_desc {
    int32_t used;
    int32_t pack;              /* of this pack, or -1: of `buffer` */
    uint32_t buffer;
    uint32_t element_bytes;    /* 2: bf16, 4: float32 */
    uint64_t dims[4];          /* 0 behind the last */
    uint64_t strides[3];       /* bytes from one row, one group to the next */
    uint32_t box[4];           /* its rows are as long as the swizzle */
} mgv__map_desc;

typedef struct mgv__device_buffer {
    uint64_t rows;             /* of all groups */
    uint32_t columns;
    uint32_t pitch;            /* elements from one row to the next */
    uint32_t by_image;         /* counters: 0 one for each row tile, 1 one for each image */
    uint32_t counter;          /* the first of its counters */
    uint32_t counter_stride;   /* counters of one group */
    uint32_t element_bytes;
    uint64_t offset, bytes;    /* in the device arena */
} mgv__device_buffer;

/* What of an operation's model goes into the packed block. */
enum { MGV__PACKS_NOTHING = 0, MGV__PACKS_PATCHES, MGV__PACKS_PRODUCT, MGV__PACKS_SCORES, MGV__PACKS_VALUES };

/* One operation of the kernel before its schedule is known. It stands for operations [first, end) of the model, the norm that it folds in
   among them, or for a part of these; first == end: for none. */
typedef struct mgv__plan_op {
    mgv__kernel_op kernel;
    const char *label;
    int32_t layer;
    uint32_t kind;             /* before a schedule says which kind of GEMM tile it is */
    uint32_t source, target;   /* device buffers */
    uint32_t residual;         /* device buffer that is added */
    uint32_t pack, packs;      /* packs: MGV__PACKS_* */
    uint32_t first, end;
    uint32_t norm;             /* that of these which is folded in, or MGV__NO_OP */
    int32_t is_part;           /* another operation behind it ends what these leave */
    int32_t by_head;           /* the value projection of the pooling head: one A and one tile of columns a head */
    int32_t of_images;         /* its rows are images; such operations are the last, over all groups at once */
} mgv__plan_op;
#define MGV__NO_OP 0xFFFFFFFFu

enum { MGV__PLAN_MODEL_OPS = 512 /* of the model */, MGV__PLAN_MAX_OPS = MGV__PLAN_MODEL_OPS + MGV__KERNEL_MAX_OUTPUTS,
       MGV__PLAN_MAX_WIDTH = MGV__KERNEL_MAX_WIDTH, MGV__PLAN_MAX_PATCHES = 1 << 20 /* of a picture */,
       MGV__PLAN_GROUP_ROWS = 11800, MGV__PLAN_EQUAL_GROUP_ROWS = 25100,
       MGV__PLAN_DEAL_CLUSTERS = 256, /* that tiles can be dealt to */
       MGV__PLAN_SCHEDULES = 8, /* that an engine holds on the device, one for each number of images */
       MGV__COUNTER_SETS = 3, MGV__COUNTERS_OF_GRAPHS = 2 /* two take turns, one is for launches in CUDA graphs */ };

/* Token and layer outputs of an encode, in the order of mgv__kernel_arguments.outputs. */
enum { MGV__ROWS_TOKENS_OUTPUT = -1 };
typedef struct mgv__row_outputs {
    uint32_t count;
    int32_t layer[MGV__KERNEL_MAX_OUTPUTS]; /* N: layer:N; MGV__ROWS_TOKENS_OUTPUT: tokens */
} mgv__row_outputs;

typedef struct mgv__plan {
    const mgv__config *config;              /* how large pictures and patches are, how pixels are normalised */
    const mgv__program *program;            /* the model's operations, from which this plan's are made */
    mgv__row_outputs outputs;               /* that the list brings beside the pooled rows */
    uint32_t width, heads, head_dim;        /* columns of the stream; of attention */
    float scale;                            /* of attention's scores */
    uint32_t pools;                         /* the model has a pooling head: its rows end as images' */
    uint32_t tokens, patch_columns, patch_pitch;
    uint32_t max_images;
    uint32_t room_images, room_tiles;       /* of the buffers and their counters: images, MGV__GROUP_TILES */
    uint32_t layout_group_images, layout_groups; /* groups of the largest batch, for which there is room */
    uint32_t group_is_said;                 /* the caller wants groups of that size for every batch */
    uint32_t group_images, groups, group_tiles; /* of the schedule; row tiles of 64 rows of a group, a multiple of 4 */
    mgv__device_buffer buffers[MGV__DEVICE_BUFFER_COUNT];
    mgv__map_desc maps[MGV__MAP_COUNT];
    mgv__plan_op ops[MGV__PLAN_MAX_OPS];
    uint32_t op_count, head_ops;            /* the last head_ops ones have images as rows */
    uint32_t last_mlp;                      /* the last operation that writes the layers' MLP */
    uint32_t pack_rows[MGV__PACK_COUNT], pack_pitch[MGV__PACK_COUNT], pack_columns[MGV__PACK_COUNT];
    uint64_t pack_offset[MGV__PACK_COUNT];  /* bytes, in the block of packed weights */
    uint64_t weight_bytes;
    uint32_t vector_count;                  /* floats */
    uint32_t norm, norm_op;                 /* gamma, then beta of the last norm among the vectors; the model's operation */
    uint32_t counter_count;
    uint64_t stats_offset, counters_offset, weights_offset, vectors_offset, arena_bytes;
    uint64_t counters_bytes;                /* of the abort word and the counters behind it; MGV__COUNTER_SETS of them follow each other */
    uint64_t ops_offset, segments_offset, deal_offset; /* of the first schedule; the others follow, schedule_bytes apart */
    uint64_t schedule_bytes;
    uint64_t pixels_offset;                 /* room for max_images pictures that do not lie on the device one after the other */
    uint32_t max_ops, max_segments;         /* with as many outputs as there can be */
    uint32_t images, clusters, regime;      /* of the schedule */
    uint32_t latency_clusters;              /* clusters of the latency regime that run at once; 0: it is not used */
    uint32_t split_least, split_most;       /* MGV__PLAN_SPLIT_LEAST, MGV__PLAN_SPLIT_MOST; narrow models: none; tests: fewer */
    uint32_t forced_regime;                 /* 1 + the regime of all schedules; 0: chosen */
    uint32_t lanes;                         /* groups that take turns; 0: none do */
    uint32_t op_first, op_limit;            /* validation and benchmarks: the schedule has operations [op_first, op_limit); 0: to the end */
    uint32_t ablations;                     /* benchmarks: MGV__KERNEL_WAIT_* that every operation gets */
    mgv__kernel_segment *segments;
    uint32_t segment_count;                 /* without the closing entry */
    uint32_t *counts;                       /* scratch of the validator, counter_count words */
    double *times;                          /* scratch of mgv__plan_deal, counter_count and MGV__PLAN_DEAL_CLUSTERS of them */
    uint32_t max_tiles;                     /* that can be dealt */
    uint32_t dealt;                         /* tiles of the schedule are dealt to clusters; 0: clusters take them in turn */
    uint16_t *tile_cluster;                 /* dealt: the cluster of each tile */
    uint32_t *deal;                         /* dealt: as in mgv__kernel_arguments, mgv__plan_deal_words of them */
} mgv__plan;

static uint32_t mgv__ceil_div(uint32_t a, uint32_t b) { return a / b + (a % b != 0); }
static uint32_t mgv__min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }

enum { MGV__THROUGHPUT = 0, MGV__LATENCY, MGV__REGIME_COUNT };
/* What a schedule has to know of each regime's kernels. */
typedef struct mgv__regime {
    uint32_t cluster;          /* CTAs */
    uint32_t row_tile;         /* rows of a CTA's tile, and of a counter; 0: mgv__plan_latency_rows */
    uint32_t cluster_images;   /* images of a cluster, where tiles are of images but for attention */
} mgv__regime;
static const mgv__regime mgv__regimes[MGV__REGIME_COUNT] = {
    {MGV__CLUSTER, MGV__GEMM_ROWS, MGV__CLUSTER},
    {MGV__LATENCY_CLUSTER, 0, 1}
};
/* The kernels, those with less code first: the less there is, the nearer it lies (kernels/NOTES.md, how much code). */
typedef struct mgv__kernel_entry {
    const char *name;
    uint32_t regime;
    uint32_t kinds;            /* of tiles, bit by bit */
    uint32_t rows;             /* of a tile, as mgv__plan_latency_rows says; 0: of the throughput regime */
} mgv__kernel_entry;
enum { MGV__KERNELS = 5 };
static const mgv__kernel_entry mgv__kernels[MGV__KERNELS] = {
    {"megavit_encode_few_sm_90a", MGV__THROUGHPUT, MGV__KINDS_FEW, 0},
    {"megavit_encode_some_sm_90a", MGV__THROUGHPUT, MGV__KINDS_SOME, 0},
    {"megavit_encode_sm_90a", MGV__THROUGHPUT, MGV__KINDS_ALL, 0},
    {"megavit_encode_latency_104_sm_90a", MGV__LATENCY, MGV__KINDS_ALL, MGV__LATENCY_SHORT_ROWS},
    {"megavit_encode_latency_128_sm_90a", MGV__LATENCY, MGV__KINDS_ALL, MGV__LATENCY_MAX_ROWS}
};
enum {
    MGV__PLAN_LATENCY_ROWS = 448,                         /* the latency regime is chosen up to as many rows */
    MGV__PLAN_COUNTERS_APART = 256, /* words from one buffer's counters to the next one's, which the L2 cache then has in another place */
    /* K is shared out where so many tiles do for a whole operation; by tiles of 128 or 160 columns up to one round of an H100's clusters */
    MGV__PLAN_SPLIT_LEAST = 25, MGV__PLAN_SPLIT_NARROW_MOST = 66, MGV__PLAN_SPLIT_MOST = 148
};

/* Rows of a CTA's matrix tile, and of a counter. In the latency regime those with which an image's tokens fill their tiles best. */
static uint32_t mgv__plan_latency_rows(uint32_t tokens) {
    const uint32_t few = MGV__LATENCY_SHORT_ROWS, many = MGV__LATENCY_MAX_ROWS;
    return mgv__ceil_div(tokens, few) * few <= mgv__ceil_div(tokens, many) * many ? few : many;
}
static uint32_t mgv__plan_row_tile(const mgv__plan *plan) {
    return plan->regime == MGV__LATENCY ? mgv__plan_latency_rows(plan->tokens) : mgv__regimes[plan->regime].row_tile;
}

/* Whether a kernel is made for pictures of this size. */
static int mgv__plan_suits_kernel(const mgv__plan *plan, uint32_t kernel) {
    const mgv__kernel_entry *k = &mgv__kernels[kernel];
    return !k->rows || k->rows == mgv__plan_latency_rows(plan->tokens);
}
/* The first kernel of a regime that is, and has code for these kinds of tiles. Each regime has one that has code for all. */
static uint32_t mgv__plan_kernel_for(const mgv__plan *plan, uint32_t regime, uint32_t kinds) {
    uint32_t i = 0;
    while (mgv__kernels[i].regime != regime || kinds & ~mgv__kernels[i].kinds || !mgv__plan_suits_kernel(plan, i)) i++;
    return i;
}
/* That of the schedule. */
static uint32_t mgv__plan_kernel(const mgv__plan *plan) {
    uint32_t kinds = 0, i;
    for (i = 0; i < plan->op_count; i++)
        if (plan->ops[i].kernel.column_tiles) kinds |= 1u << plan->ops[i].kernel.kind;
    if (kinds & MGV__KIND(GEMM_256)) kinds |= MGV__KIND(GEMM_128); /* as narrow_last_tile in kernels/skeleton/scheduler.cuh */
    return mgv__plan_kernel_for(plan, plan->regime, kinds);
}

static int mgv__plan_is_attention(uint32_t kind) { return kind == MGV__KERNEL_ATTENTION || kind == MGV__KERNEL_ATTENTION_ONLINE; }
static int mgv__plan_is_pool_few(uint32_t kind) {
    return kind == MGV__KERNEL_POOL_TOKENS || kind == MGV__KERNEL_POOL_JOIN || kind == MGV__KERNEL_POOL_HEADS;
}
static int mgv__plan_is_pool(uint32_t kind) {
    return kind == MGV__KERNEL_POOL || kind == MGV__KERNEL_POOL_SUMS || mgv__plan_is_pool_few(kind);
}
/* Buffers that have one row an image. */
static int mgv__plan_rows_are_images(uint32_t buffer) { return buffer >= MGV__DEVICE_WEIGHTED && buffer <= MGV__DEVICE_POOLED; }

MGV__STATIC_ASSERT(MGV__KERNEL_SPLIT_192 - MGV__KERNEL_SPLIT_128 == 2 && MGV__KERNEL_SPLIT_160 - MGV__KERNEL_SPLIT_128 == 1,
                   split_kinds_follow_each_other);
/* Columns of a SPLIT tile; 0: it is none. */
static uint32_t mgv__split_columns(uint32_t kind) {
    return kind >= MGV__KERNEL_SPLIT_128 && kind <= MGV__KERNEL_SPLIT_192 ? 128 + 32 * (kind - MGV__KERNEL_SPLIT_128) : 0;
}

/* The latency regime's tiles of matrix products but for GEMVs. */
static int mgv__plan_is_latency_product(uint32_t kind) {
    return kind == MGV__KERNEL_WIDE || kind == MGV__KERNEL_DEEP || kind == MGV__KERNEL_THIN;
}

/* Row tiles, or images, of one unit of the list: what the cluster works on at once. */
static uint32_t mgv__plan_unit_tiles(uint32_t regime, uint32_t kind) {
    if (mgv__plan_is_attention(kind) || mgv__plan_is_pool_few(kind) || mgv__plan_is_latency_product(kind) || mgv__split_columns(kind) ||
        kind == MGV__KERNEL_GEMV)
        return 1;
    if (kind == MGV__KERNEL_PATCHES || mgv__plan_is_pool(kind)) return mgv__regimes[regime].cluster_images;
    return MGV__CLUSTER;
}
static int mgv__plan_by_image(uint32_t kind) {
    return mgv__plan_is_attention(kind) || kind == MGV__KERNEL_PATCHES || mgv__plan_is_pool(kind);
}

static void mgv__plan_buffer(mgv__plan *plan, uint32_t number, uint64_t rows, uint32_t columns, uint32_t pitch, uint32_t by_image,
                             uint32_t element_bytes) {
    mgv__device_buffer *buffer = &plan->buffers[number];
    buffer->rows = rows;
    buffer->columns = columns;
    buffer->pitch = pitch;
    buffer->by_image = by_image;
    buffer->element_bytes = element_bytes;
    buffer->bytes = rows * pitch * element_bytes;
    buffer->counter = plan->counter_count;
    buffer->counter_stride = by_image ? plan->group_images : plan->group_tiles;
    plan->counter_count += buffer->counter_stride * plan->groups;
    plan->counter_count = mgv__ceil_div(plan->counter_count, MGV__PLAN_COUNTERS_APART) * MGV__PLAN_COUNTERS_APART;
}

/* A view of rows in groups: (column, row in group, group). */
static void mgv__plan_map(mgv__plan *plan, uint32_t map, uint32_t buffer, uint64_t rows_per_group, uint64_t groups, uint32_t box_rows) {
    const mgv__device_buffer *b = &plan->buffers[buffer];
    mgv__map_desc *m = &plan->maps[map];
    m->used = 1;
    m->pack = -1;
    m->buffer = buffer;
    m->element_bytes = b->element_bytes;
    m->dims[0] = b->columns;
    m->dims[1] = rows_per_group;
    m->dims[2] = groups;
    m->strides[0] = (uint64_t)b->pitch * b->element_bytes;
    m->strides[1] = m->strides[0] * rows_per_group;
    m->box[0] = 128 / b->element_bytes;
    m->box[1] = box_rows;
    m->box[2] = 1;
}

/* A view of the heads that rows consist of: (column of the head, head, token, image). Boxes lie in one head and one image: what they have
   beyond the head's last column or the image's last token is zero when it is loaded and is not stored. */
static void mgv__plan_head_map(mgv__plan *plan, uint32_t map, uint32_t buffer, uint64_t tokens, uint64_t images, uint32_t box_columns,
                               uint32_t box_rows) {
    const mgv__device_buffer *b = &plan->buffers[buffer];
    const uint32_t head_dim = plan->head_dim;
    mgv__map_desc *m = &plan->maps[map];
    m->used = box_columns != 0;
    m->pack = -1;
    m->buffer = buffer;
    m->element_bytes = b->element_bytes;
    m->dims[0] = head_dim;
    m->dims[1] = b->columns / head_dim;
    m->dims[2] = tokens;
    m->dims[3] = images;
    m->strides[0] = (uint64_t)head_dim * b->element_bytes;
    m->strides[1] = (uint64_t)b->pitch * b->element_bytes;
    m->strides[2] = m->strides[1] * tokens;
    m->box[0] = box_columns;
    m->box[2] = box_rows;
    m->box[1] = m->box[3] = 1;
}

static void mgv__plan_weight_map(mgv__plan *plan, uint32_t map, uint32_t pack, uint32_t box_rows, uint32_t rank) {
    mgv__map_desc *m = &plan->maps[map];
    m->used = plan->pack_rows[pack] != 0;
    m->pack = (int32_t)pack;
    m->element_bytes = 2;
    m->dims[0] = plan->pack_columns[pack];
    m->dims[1] = plan->pack_rows[pack];
    m->dims[2] = rank == 3;
    m->strides[0] = (uint64_t)plan->pack_pitch[pack] * 2;
    m->strides[1] = m->strides[0] * plan->pack_rows[pack];
    m->box[0] = 64;
    m->box[1] = box_rows;
    m->box[2] = rank == 3;
}

/* The same rows as (column of a block of K, row, block), so many blocks a box. */
static void mgv__plan_by_block(mgv__map_desc *m, uint32_t blocks) {
    m->dims[2] = m->dims[0] / MGV__GEMM_INNER;
    m->dims[0] = MGV__GEMM_INNER;
    m->strides[1] = 2 * MGV__GEMM_INNER;
    m->box[2] = blocks;
}

/* Attention takes keys in blocks, with online softmax: where they do not all fit, and where heads have not 64 columns. */
static int mgv__plan_is_online(const mgv__plan *plan) { return plan->tokens > MGV__MAX_KEYS || plan->head_dim != 64; }

/* Columns of the boxes behind a head's first 64. */
static uint32_t mgv__plan_rest_columns(const mgv__plan *plan) { return plan->head_dim <= 64 ? 0 : plan->head_dim <= 80 ? 16 : 32; }

/* The pooling head for few images: each CTA has some tokens of one. Parts of an image. It is other arithmetic than for many images: model
   and number of images choose it, never the card. */
static uint32_t mgv__plan_pool_parts_of(const mgv__plan *plan) { return mgv__ceil_div(plan->tokens, MGV__POOL_TOKENS); }
static int mgv__plan_pools_tokens(const mgv__plan *plan, uint32_t images) {
    return plan->pools && images <= MGV__GEMV_MAX_ROWS && plan->heads <= MGV__POOL_TOKENS_HEADS && plan->tokens <= MGV__MAX_KEYS;
}

static mgv__plan_op *mgv__plan_push(mgv__plan *plan, const char *label, int32_t layer, uint32_t kind, uint32_t source, uint32_t target) {
    mgv__plan_op *op = &plan->ops[plan->op_count++];
    memset(op, 0, sizeof *op);
    op->label = label;
    op->layer = layer;
    op->source = source;
    op->target = target;
    op->kind = kind;
    op->kernel.kind = kind;
    op->kernel.tokens = plan->tokens;
    op->residual = target;
    op->norm = MGV__NO_OP;
    op->kernel.heads = plan->heads;
    op->kernel.rows_per_group = plan->group_images * plan->tokens;
    op->kernel.columns = plan->buffers[target].columns;
    op->kernel.inner = plan->width;
    return op;
}

/* Room for `count` floats among the vectors, a multiple of 256 so that a tile may read past the last column. */
static uint32_t mgv__plan_vector(mgv__plan *plan, uint32_t count) {
    uint32_t at = plan->vector_count;
    plan->vector_count += mgv__ceil_div(count, 256) * 256;
    return at;
}

/* Where the statistics of a buffer's rows lie, in floats: first the stream's, for each 64 rows of a group as many as there are parts of 64
   columns, then those of the head's first product. */
static uint64_t mgv__plan_stream_stats(const mgv__plan *plan) {
    return (uint64_t)plan->room_tiles * MGV__STATS_ROWS * (plan->width / 64) * 2;
}
static uint32_t mgv__plan_stats(const mgv__plan *plan, uint32_t buffer) {
    return buffer == MGV__DEVICE_STREAM ? 0 : (uint32_t)mgv__plan_stream_stats(plan);
}

/* target = epilogue(source . weights^T); `rows` of weights are appended to the pack. */
static mgv__plan_op *mgv__plan_gemm(mgv__plan *plan, const char *label, int32_t layer, uint32_t source, uint32_t target, uint32_t pack,
                                    uint32_t flags) {
    mgv__plan_op *op = mgv__plan_push(plan, label, layer, MGV__KERNEL_GEMM_256, source, target);
    mgv__kernel_op *k = &op->kernel;
    k->flags = flags;
    k->k_blocks = mgv__ceil_div(plan->pack_columns[pack], MGV__GEMM_INNER);
    k->a_map = MGV__MAP_A + source;
    k->store_map = MGV__MAP_STORE + target;
    k->residual_map = MGV__MAP_STORE + target;
    k->b_row = plan->pack_rows[pack];
    k->bias = mgv__plan_vector(plan, k->columns);
    if (flags & MGV__KERNEL_FOLD_NORM) k->stats_in = mgv__plan_stats(plan, source);
    if (flags & MGV__KERNEL_STATS) k->stats_out = mgv__plan_stats(plan, target);
    if (flags & MGV__KERNEL_TABLE) k->table = mgv__plan_vector(plan, plan->tokens * k->columns);
    op->pack = pack;
    plan->pack_rows[pack] += k->columns;
    return op;
}

/* Whether the latency regime runs this model; the throughput regime does. */
static int mgv__plan_latency_supported(const mgv__plan *plan) {
    return plan->heads <= MGV__POOL_TOKENS_HEADS && !mgv__plan_is_online(plan);
}

/* Operations with columns enough for all CTAs without a share of K each. None of them adds a residual. */
static int mgv__plan_is_wide(const mgv__plan *plan, const mgv__kernel_op *k) {
    return k->columns > plan->width && !(k->flags & (MGV__KERNEL_RESIDUAL | MGV__KERNEL_STATS));
}

/* A THIN tile's blocks of K lie in its CTA's rings all at once (kernels/sm_90a/latency/loader.cuh): of rows two boxes of two blocks, and
   two of what is left, of so many. 0: a product with so many columns of A has no such tiles. */
static uint32_t mgv__plan_thin_blocks(uint32_t columns) {
    const uint32_t blocks = columns / MGV__GEMM_INNER, first = 2 * MGV__MATH_GROUPS;
    if (columns % (first * MGV__GEMM_INNER) || blocks <= first || blocks > MGV__LATENCY_THIN_BLOCKS) return 0;
    return (blocks - first) / MGV__MATH_GROUPS;
}

/* A CTA's tokens of the latency regime's pooling head: (column of a block, token, block, image), two blocks a box. */
static void mgv__plan_pool_map(mgv__plan *plan) {
    mgv__map_desc *m = &plan->maps[MGV__MAP_LATENCY_POOL];
    const uint32_t share = mgv__ceil_div(plan->tokens, MGV__LATENCY_CLUSTER);
    if (!mgv__plan_latency_supported(plan)) return;
    mgv__plan_map(plan, MGV__MAP_LATENCY_POOL, MGV__DEVICE_STREAM, plan->tokens, plan->room_images, mgv__ceil_div(share, 8) * 8);
    m->dims[3] = m->dims[2];
    m->strides[2] = m->strides[1];
    m->box[3] = 1;
    mgv__plan_by_block(m, 2);
}

static void mgv__plan_latency_maps(mgv__plan *plan) {
    const uint64_t images = plan->room_images, rows_per_group = (uint64_t)plan->group_images * plan->tokens;
    const uint32_t row_tile = mgv__plan_latency_rows(plan->tokens);
    uint32_t i;
    for (i = 0; i <= MGV__DEVICE_MLP; i++) /* the head's products are GEMVs */
        if (i != MGV__DEVICE_QKV) mgv__plan_map(plan, MGV__MAP_LATENCY_A + i, i, rows_per_group, plan->groups, row_tile);
    for (i = 0; i < 4; i++) {
        const uint32_t buffer = i / 2 ? MGV__DEVICE_ATTENDED : MGV__DEVICE_PATCHES;
        const uint32_t blocks = mgv__plan_thin_blocks(plan->buffers[buffer].columns);
        if (!blocks) continue;
        mgv__plan_map(plan, MGV__MAP_THIN_A + i, buffer, plan->tokens, 1, MGV__LATENCY_THIN_ROWS);
        mgv__plan_by_block(&plan->maps[MGV__MAP_THIN_A + i], i % 2 ? blocks : 2);
    }
    mgv__plan_map(plan, MGV__MAP_LATENCY_KEYS, MGV__DEVICE_QKV, plan->tokens, images, mgv__ceil_div(row_tile, 16) * 16);
    mgv__plan_pool_map(plan);
    for (i = 0; i < 3; i++) mgv__plan_weight_map(plan, MGV__MAP_LATENCY_WEIGHTS + i, i, MGV__LATENCY_COLUMNS, 3);
}

static void mgv__plan_split_maps(mgv__plan *plan) {
    const uint64_t rows_per_group = (uint64_t)plan->group_images * plan->tokens;
    uint32_t pack, i;
    for (i = 0; i < 2; i++) {
        const uint32_t half = mgv__split_columns(MGV__KERNEL_SPLIT_160 + i) / (uint32_t)MGV__CLUSTER;
        for (pack = 0; pack < 3; pack++) mgv__plan_weight_map(plan, MGV__MAP_SPLIT_WEIGHTS + 3 * i + pack, pack, half, 2);
        mgv__plan_map(plan, MGV__MAP_SPLIT_REST + i, MGV__DEVICE_STREAM, rows_per_group, plan->groups, MGV__CHUNK_ROWS);
        plan->maps[MGV__MAP_SPLIT_REST + i].box[0] = half - 64;
    }
}

/* Of attention and of the pooling head: views of images. */
static void mgv__plan_attention_maps(mgv__plan *plan, uint64_t images) {
    const uint32_t keys = plan->tokens <= MGV__SHORT_KEYS ? (uint32_t)MGV__SHORT_KEYS : (uint32_t)MGV__MAX_KEYS;
    const uint32_t rest = mgv__plan_rest_columns(plan);
    const uint32_t pooled = plan->tokens > MGV__MAX_KEYS ? (uint32_t)MGV__ONLINE_KEYS : keys;
    /* the value projection's tiles are heads: stored rows are (column, head, image) */
    if (plan->pools)
        mgv__plan_head_map(plan, (int)MGV__MAP_STORE + MGV__DEVICE_HEAD_ATTENDED, MGV__DEVICE_HEAD_ATTENDED, images, 0, 64,
                           MGV__CHUNK_ROWS);
    mgv__plan_map(plan, MGV__MAP_POOL_TOKENS, MGV__DEVICE_STREAM, plan->tokens, images, pooled);
    if (!mgv__plan_is_online(plan)) {
        mgv__plan_map(plan, MGV__MAP_KEYS, MGV__DEVICE_QKV, plan->tokens, images, keys);
        mgv__plan_map(plan, MGV__MAP_QUERIES, MGV__DEVICE_QKV, plan->tokens, images, 64);
        return;
    }
    mgv__plan_head_map(plan, MGV__MAP_KEYS, MGV__DEVICE_QKV, plan->tokens, images, 64, MGV__ONLINE_KEYS);
    mgv__plan_head_map(plan, MGV__MAP_QUERIES, MGV__DEVICE_QKV, plan->tokens, images, 64, 64);
    mgv__plan_head_map(plan, MGV__MAP_KEYS_REST, MGV__DEVICE_QKV, plan->tokens, images, rest, MGV__ONLINE_KEYS);
    mgv__plan_head_map(plan, MGV__MAP_QUERIES_REST, MGV__DEVICE_QKV, plan->tokens, images, rest, 64);
    mgv__plan_head_map(plan, (int)MGV__MAP_STORE + MGV__DEVICE_ATTENDED, MGV__DEVICE_ATTENDED, plan->tokens, images, 64, MGV__CHUNK_ROWS);
}

/* --- lowering: the model's operations as the kernel's --------------------------------------------------------- */

/* What the buffers of the model have become, while its operations are gone through in order. */
typedef struct mgv__lowering {
    mgv__plan *plan;
    uint32_t place[MGV__MAX_BUFFERS]; /* the device buffer with the rows of each buffer, MGV__DEVICE_BUFFER_COUNT: nowhere yet; */
    uint32_t norm[MGV__MAX_BUFFERS];  /* where these rows have yet to be normalised, the operation that does; else MGV__NO_OP */
} mgv__lowering;

static void mgv__lower_begin(mgv__lowering *l, mgv__plan *plan) {
    uint32_t i;
    l->plan = plan;
    for (i = 0; i < MGV__MAX_BUFFERS; i++) {
        l->place[i] = MGV__DEVICE_BUFFER_COUNT;
        l->norm[i] = MGV__NO_OP;
    }
    l->place[0] = MGV__DEVICE_PATCHES;
}

/* Whether an operation of this kind reads what operation i leaves. */
static int mgv__lower_is_read_by(const mgv__program *program, uint32_t i, mgv__op_kind kind) {
    const uint16_t buffer = program->ops[i].target;
    for (i++; i < program->op_count; i++) {
        if (program->ops[i].kind == kind && program->ops[i].source == buffer) return 1;
        if (program->ops[i].target == buffer && program->ops[i].source != buffer) return 0;
    }
    return 0;
}

/* The device buffer that operation i leaves its rows in. A norm leaves them where they were: who reads them folds it in. */
static uint32_t mgv__lower_target(const mgv__lowering *l, uint32_t i) {
    const mgv__op *op = &l->plan->program->ops[i];
    const int images = op->rows == MGV__ROWS_IMAGES;
    if (op->kind == MGV__OP_NORM) return l->place[op->source];
    if (op->kind == MGV__OP_ATTENTION) return MGV__DEVICE_ATTENDED;
    if (op->kind == MGV__OP_POOL) return MGV__DEVICE_HEAD_ATTENDED;
    if (mgv__lower_is_read_by(l->plan->program, i, MGV__OP_ATTENTION)) return MGV__DEVICE_QKV;
    if (op->activation != MGV__ACT_NONE) return images ? MGV__DEVICE_HEAD_MLP : MGV__DEVICE_MLP;
    if (!images) return MGV__DEVICE_STREAM;
    return op->add == MGV__NONE ? MGV__DEVICE_HEAD_OUT : MGV__DEVICE_POOLED; /* the residual stays: what is added to it is float32 */
}
static void mgv__lower_leave(mgv__lowering *l, uint32_t i) {
    const mgv__op *op = &l->plan->program->ops[i];
    l->place[op->target] = mgv__lower_target(l, i);
    l->norm[op->target] = op->kind == MGV__OP_NORM ? i : MGV__NO_OP;
}

/* What an operation asks for that the kernel has not: the words behind "the GPU kernel has no". NULL: nothing. */
static const char *mgv__lower_missing_of_linear(const mgv__lowering *l, uint32_t i) {
    const mgv__op *op = &l->plan->program->ops[i];
    const uint32_t target = mgv__lower_target(l, i), added = op->add == MGV__NONE ? target : l->place[op->add];
    if (op->gated) return "gated MLP";
    if (op->activation != MGV__ACT_NONE && op->activation != MGV__ACT_GELU_TANH) return "other activation than gelu_pytorch_tanh";
    if (op->fold != 1 || op->rows == MGV__ROWS_MERGED) return "mergers of tokens";
    if (op->channel_scale != MGV__NO_TENSOR && op->activation != MGV__ACT_NONE) return "scale per channel behind an activation";
    if (op->source == 0 && op->table == MGV__NO_TENSOR) return "patches without a table of positions";
    if (op->source != 0 && op->table != MGV__NO_TENSOR) return "table of positions behind the patches' product";
    if (target == MGV__DEVICE_POOLED ? added != MGV__DEVICE_HEAD_OUT : added != target) return "residual that is not the stream";
    if (op->add != MGV__NONE && l->norm[op->add] != MGV__NO_OP) return "residual of normalised rows";
    return NULL;
}
static const char *mgv__lower_missing(const mgv__lowering *l, uint32_t i) {
    const mgv__op *op = &l->plan->program->ops[i];
    const uint32_t source = l->place[op->source];
    switch (op->kind) {
    case MGV__OP_LINEAR: return mgv__lower_missing_of_linear(l, i);
    case MGV__OP_NORM:
        if (op->rms) return "RMSNorm";
        if (op->fold != 1) return "mergers of tokens";
        return source == MGV__DEVICE_STREAM || source == MGV__DEVICE_HEAD_OUT ? NULL : "norm of other rows than the stream's";
    case MGV__OP_ATTENTION:
        if (op->range != MGV__RANGE_FRAME) return "attention by windows";
        if (op->causal) return "causal attention";
        return source == MGV__DEVICE_QKV ? NULL : "attention over other rows than a product's";
    case MGV__OP_POOL:
        return source == MGV__DEVICE_STREAM && l->norm[op->source] != MGV__NO_OP ? NULL : "pooling head over rows that are not normalised";
    case MGV__OP_ROTARY: return "rotary positions";
    case MGV__OP_GATHER: return "rows in another order, as attention by windows has them";
    case MGV__OP_PREPEND: return "class or register tokens";
    case MGV__OP_PICK: return "picked rows";
    case MGV__OP_EMBED: return "embeddings of a text";
    default: return "such operation";
    }
}

/* Every product that leaves rows in a device buffer has the same number of columns. */
static int mgv__lower_note_columns(mgv__plan *plan, uint32_t buffer, uint32_t columns) {
    uint32_t *of_buffer = &plan->buffers[buffer].columns;
    if (*of_buffer == 0) *of_buffer = columns;
    return *of_buffer == columns;
}
/* What the tiles need of the shapes that the operations have. */
static mgv_result mgv__lower_check_shapes(const mgv__plan *plan, uint32_t op_count, mgv_error *error) {
    const mgv__config *c = plan->config;
    const mgv__device_buffer *b = plan->buffers;
    const uint32_t mlp = b[MGV__DEVICE_MLP].columns;
    const uint64_t side = c->patch ? c->image_size / c->patch : 0;
    if (plan->head_dim % 8 || plan->head_dim > MGV__KERNEL_MAX_HEAD_DIM)
        return mgv__fail(error, MGV_ERROR_UNSUPPORTED,
                         "the GPU kernel runs heads of 8, 16 and so on to %u columns, not %u; use the CPU backend",
                         (uint64_t)MGV__KERNEL_MAX_HEAD_DIM, (uint64_t)plan->head_dim);
    /* heads: pooling has a column tile for each math group */
    if (plan->heads < MGV__MATH_GROUPS || plan->heads > 64 || plan->width % 64 || mlp == 0 || mlp % 8)
        return mgv__fail(error, MGV_ERROR_UNSUPPORTED,
                         "the GPU kernel wants %u to 64 heads, a width that is a multiple of 64 and an MLP width that is a "
                         "multiple of 8; this model has %u heads, %u and %u columns",
                         (uint64_t)MGV__MATH_GROUPS, (uint64_t)plan->heads, (uint64_t)plan->width, (uint64_t)mlp);
    if (plan->width > MGV__PLAN_MAX_WIDTH || op_count > MGV__PLAN_MODEL_OPS)
        return mgv__fail(error, MGV_ERROR_UNSUPPORTED,
                         "the GPU kernel runs widths up to %u and %u operations at most; this model has %u columns and %u operations",
                         (uint64_t)MGV__PLAN_MAX_WIDTH, (uint64_t)MGV__PLAN_MODEL_OPS, (uint64_t)plan->width, (uint64_t)op_count);
    if (b[MGV__DEVICE_QKV].columns != 3 * plan->width || (plan->pools && b[MGV__DEVICE_HEAD_MLP].columns != mlp))
        return mgv__fail(error, MGV_ERROR_UNSUPPORTED,
                         "the GPU kernel wants queries, keys and values as wide as the stream, and all MLPs as wide as each other; this "
                         "model has %u columns of these three, %u of the stream, MLPs of %u and %u",
                         (uint64_t)b[MGV__DEVICE_QKV].columns, (uint64_t)plan->width, (uint64_t)mlp,
                         (uint64_t)b[MGV__DEVICE_HEAD_MLP].columns);
    if (c->image_size == 0)
        return mgv__fail(error, MGV_ERROR_UNSUPPORTED, "the GPU kernel runs pictures of one size; use the CPU backend");
    if (c->patch % 2)
        return mgv__fail(error, MGV_ERROR_UNSUPPORTED, "the GPU kernel wants patches of an even side, not %u", (uint64_t)c->patch);
    if (c->channels != 3)
        return mgv__fail(error, MGV_ERROR_UNSUPPORTED, "the GPU kernel wants three channels, not %u", (uint64_t)c->channels);
    /* so that the table of positions, of any width, and all vectors with it are counted in 32 bits, and no tile outlasts a wait */
    if (side * side > MGV__PLAN_MAX_PATCHES)
        return mgv__fail(error, MGV_ERROR_UNSUPPORTED, "the GPU kernel runs pictures of up to %u patches, not %u; use the CPU backend",
                         (uint64_t)MGV__PLAN_MAX_PATCHES, side * side);
    return MGV_OK;
}

/* Heads are the same everywhere. */
static mgv_result mgv__lower_note_heads(mgv__plan *plan, uint32_t i, mgv_error *error) {
    const mgv__op *op = &plan->program->ops[i];
    if (op->kind != MGV__OP_ATTENTION && op->kind != MGV__OP_POOL) return MGV_OK;
    if (plan->heads && (plan->heads != op->heads || plan->head_dim != op->head_dim || plan->scale != op->scale))
        return mgv__fail(error, MGV_ERROR_UNSUPPORTED,
                         "the GPU kernel wants the same heads everywhere: operation %u, %q, has %u of %u columns, not %u of %u; use the "
                         "CPU backend", (uint64_t)i, op->label, (uint64_t)op->heads, (uint64_t)op->head_dim, (uint64_t)plan->heads,
                         (uint64_t)plan->head_dim);
    plan->heads = op->heads;
    plan->head_dim = op->head_dim;
    plan->scale = op->scale;
    return MGV_OK;
}

/* Whether the kernel has all that the model's operations ask for. The sentence names the first thing that is missing. */
static mgv_result mgv__lower_check_operations(mgv__plan *plan, mgv_error *error) {
    mgv__lowering l;
    uint32_t i;
    mgv__lower_begin(&l, plan);
    for (i = 0; i < plan->program->op_count; i++) {
        const char *missing = mgv__lower_missing(&l, i);
        if (missing)
            return mgv__fail(error, MGV_ERROR_UNSUPPORTED, "the GPU kernel has no %s: operation %u, %q; use the CPU backend", missing,
                             (uint64_t)i, plan->program->ops[i].label);
        mgv__lower_leave(&l, i);
    }
    return MGV_OK;
}

/* Whether the kernel runs this model, and how wide its buffers are. */
static mgv_result mgv__plan_survey(mgv__plan *plan, mgv_error *error) {
    const mgv__program *program = plan->program;
    mgv_result result = mgv__lower_check_operations(plan, error);
    mgv__lowering l;
    uint32_t i, op_count = 1; /* the patches */
    mgv__lower_begin(&l, plan);
    for (i = 0; i < program->op_count && result == MGV_OK; i++) {
        const mgv__op *op = &program->ops[i];
        const uint32_t target = mgv__lower_target(&l, i);
        if (op->kind != MGV__OP_NORM && !mgv__lower_note_columns(plan, target, op->columns))
            return mgv__fail(error, MGV_ERROR_UNSUPPORTED,
                             "the GPU kernel wants all layers of one width: operation %u, %q, has %u columns, not %u; use the CPU backend",
                             (uint64_t)i, op->label, (uint64_t)op->columns, (uint64_t)plan->buffers[target].columns);
        result = mgv__lower_note_heads(plan, i, error);
        plan->pools |= op->kind == MGV__OP_POOL;
        op_count += op->kind == MGV__OP_POOL ? 3 : op->kind != MGV__OP_NORM;
        mgv__lower_leave(&l, i);
    }
    plan->width = plan->buffers[MGV__DEVICE_STREAM].columns;
    return result == MGV_OK ? mgv__lower_check_shapes(plan, op_count, error) : result;
}

/* An operation of the kernel that stands for operation i of the model, and for the norm of what that reads. */
static mgv__plan_op *mgv__lower_range(mgv__lowering *l, mgv__plan_op *op, uint32_t i) {
    const mgv__op *from = &l->plan->program->ops[i];
    op->norm = l->norm[from->source];
    op->first = mgv__min_u32(op->norm, i); /* MGV__NO_OP is no less */
    op->end = i + 1;
    if (op->norm != MGV__NO_OP) op->kernel.epsilon = l->plan->program->ops[op->norm].epsilon;
    return op;
}

/* Who reads normalised rows folds the norm in; activation, table and residual are what a tile does with its sums before it stores them;
   statistics of rows that will be normalised are taken where these are written, while they are at hand. */
static void mgv__lower_linear(mgv__lowering *l, uint32_t i) {
    mgv__plan *plan = l->plan;
    const mgv__op *from = &plan->program->ops[i];
    const uint32_t source = l->place[from->source], target = mgv__lower_target(l, i);
    const uint32_t pack = source == MGV__DEVICE_PATCHES                                      ? MGV__PACK_PATCH
                          : source == MGV__DEVICE_MLP || source == MGV__DEVICE_HEAD_MLP ? MGV__PACK_MLP
                                                                                        : MGV__PACK_HIDDEN;
    uint32_t flags = 0;
    mgv__plan_op *op;
    if (source == MGV__DEVICE_PATCHES)
        mgv__plan_push(plan, "patches", -1, MGV__KERNEL_PATCHES, MGV__DEVICE_PATCHES, MGV__DEVICE_PATCHES);
    if (l->norm[from->source] != MGV__NO_OP) flags |= MGV__KERNEL_FOLD_NORM;
    if (from->activation == MGV__ACT_GELU_TANH) flags |= MGV__KERNEL_GELU_TANH;
    if (from->table != MGV__NO_TENSOR) flags |= MGV__KERNEL_TABLE;
    if (from->add != MGV__NONE) flags |= MGV__KERNEL_RESIDUAL;
    if (mgv__lower_is_read_by(plan->program, i, MGV__OP_NORM)) flags |= MGV__KERNEL_STATS;
    if (target == MGV__DEVICE_POOLED) flags |= MGV__KERNEL_FLOAT_OUT;
    op = mgv__lower_range(l, mgv__plan_gemm(plan, from->label, from->layer, source, target, pack, flags), i);
    op->packs = source == MGV__DEVICE_PATCHES ? MGV__PACKS_PATCHES : MGV__PACKS_PRODUCT;
    op->of_images = from->rows == MGV__ROWS_IMAGES;
    if (from->add != MGV__NONE) op->residual = l->place[from->add];
    if (target == MGV__DEVICE_MLP) plan->last_mlp = plan->op_count - 1;
}

static void mgv__lower_attention(mgv__lowering *l, uint32_t i) {
    mgv__plan *plan = l->plan;
    const mgv__op *from = &plan->program->ops[i];
    mgv__plan_op *op = mgv__plan_push(plan, from->label, from->layer,
                                      mgv__plan_is_online(plan) ? MGV__KERNEL_ATTENTION_ONLINE : MGV__KERNEL_ATTENTION, MGV__DEVICE_QKV,
                                      MGV__DEVICE_ATTENDED);
    mgv__lower_range(l, op, i);
    op->kernel.column_tiles = mgv__ceil_div(plan->heads, MGV__CLUSTER);
    op->kernel.a_map = MGV__MAP_KEYS;
    op->kernel.b_map = MGV__MAP_QUERIES;
    op->kernel.store_map = (int)MGV__MAP_STORE + MGV__DEVICE_ATTENDED;
}

/* Gamma and beta of a norm that is not folded into a product. There is room for one. */
static void mgv__lower_keep_norm(mgv__plan *plan, uint32_t norm) {
    if (plan->norm_op != MGV__NO_OP || norm == MGV__NO_OP) return;
    plan->norm_op = norm;
    plan->norm = mgv__plan_vector(plan, 2 * plan->width);
}

/* Whether the stream is written again behind operation i. */
static int mgv__lower_is_overwritten(const mgv__lowering *l, uint32_t i) {
    for (i++; i < l->plan->program->op_count; i++)
        if (l->plan->program->ops[i].kind != MGV__OP_NORM && mgv__lower_target(l, i) == MGV__DEVICE_STREAM) return 1;
    return 0;
}
/* The rows of the stream into every output that wants those of `tap`. */
static void mgv__lower_tap(mgv__lowering *l, const mgv__tap *tap) {
    mgv__plan *plan = l->plan;
    const int tokens = tap->kind == MGV_OUTPUT_TOKENS;
    const int32_t layer = tokens ? (int32_t)MGV__ROWS_TOKENS_OUTPUT : (int32_t)tap->index;
    const uint32_t norm = l->norm[tap->buffer];
    uint32_t i;
    if (!tokens && tap->kind != MGV_OUTPUT_LAYER) return;
    mgv__lower_keep_norm(plan, norm);
    for (i = 0; i < plan->outputs.count; i++) {
        mgv__plan_op *op;
        if (plan->outputs.layer[i] != layer) continue;
        op = mgv__plan_push(plan, tokens ? "tokens" : "layer", layer, MGV__KERNEL_ROWS, MGV__DEVICE_STREAM, MGV__DEVICE_STREAM);
        op->kernel.column_tiles = 1;
        op->kernel.a_map = op->source;
        op->kernel.store_map = i;
        if (norm == MGV__NO_OP) continue;
        op->norm = norm;
        op->kernel.epsilon = plan->program->ops[norm].epsilon;
        op->kernel.flags = MGV__KERNEL_FOLD_NORM;
        op->kernel.bias = plan->norm;
        op->kernel.stats_in = mgv__plan_stats(plan, MGV__DEVICE_STREAM);
    }
}
/* Rows are copied before anybody overwrites them. Those that nobody does come late: nobody waits for them. */
static void mgv__lower_taps_of(mgv__lowering *l, uint32_t i) {
    uint32_t k;
    for (k = 0; k < l->plan->program->tap_count; k++)
        if (l->plan->program->taps[k].op == i && mgv__lower_is_overwritten(l, i)) mgv__lower_tap(l, &l->plan->program->taps[k]);
}
static void mgv__lower_last_taps(mgv__lowering *l) {
    uint32_t k;
    for (k = 0; k < l->plan->program->tap_count; k++)
        if (!mgv__lower_is_overwritten(l, l->plan->program->taps[k].op)) mgv__lower_tap(l, &l->plan->program->taps[k]);
}

/* The pooling head up to its values. Where the scores of all tokens can be held at once, there are three ways: for few
   images the sums of some tokens each, which are then joined; for many all sums at once, by the second operation alone
   (mgv__plan_pool_op); in the latency regime all sums and the values behind them, by the second operation alone
   (mgv__plan_pool_heads). */
static void mgv__lower_pool(mgv__lowering *l, uint32_t i) {
    mgv__plan *plan = l->plan;
    const int32_t layer = plan->program->ops[i].layer;
    const int online = plan->tokens > MGV__MAX_KEYS;
    mgv__plan_op *scores, *sums, *values;
    if (online) {
        scores = mgv__plan_gemm(plan, "head scores", layer, MGV__DEVICE_STREAM, MGV__DEVICE_SCORES, MGV__PACK_HIDDEN,
                                MGV__KERNEL_FOLD_NORM | MGV__KERNEL_FLOAT_OUT);
    } else {
        scores = mgv__plan_push(plan, "head scores", layer, MGV__KERNEL_POOL_TOKENS, MGV__DEVICE_STREAM, MGV__DEVICE_PARTS);
        scores->kernel.column_sums = mgv__plan_vector(plan, 64);
        scores->pack = MGV__PACK_SCORES;
        plan->pack_rows[MGV__PACK_SCORES] = plan->heads;
    }
    scores->packs = MGV__PACKS_SCORES;
    sums = mgv__plan_push(plan, "head sums", layer, online ? MGV__KERNEL_POOL_SUMS : MGV__KERNEL_POOL_JOIN,
                          online ? MGV__DEVICE_SCORES : MGV__DEVICE_PARTS, MGV__DEVICE_WEIGHTED);
    mgv__lower_range(l, scores, i)->is_part = 1;
    mgv__lower_range(l, sums, i)->is_part = 1;
    mgv__lower_keep_norm(plan, sums->norm);
    sums->kernel.k_blocks = plan->width / 64;
    sums->kernel.bias = plan->norm;
    if (!online) sums->kernel.column_sums = scores->kernel.column_sums;
    mgv__lower_last_taps(l);
    values = mgv__plan_gemm(plan, "head values", layer, MGV__DEVICE_WEIGHTED, MGV__DEVICE_HEAD_ATTENDED, MGV__PACK_HIDDEN, 0);
    mgv__lower_range(l, values, i);
    values->packs = MGV__PACKS_VALUES;
    values->by_head = values->of_images = 1;
    values->kernel.a_column_step = plan->width;
}

/* The whole list, made anew for each set of outputs: these take no weights, so all others stay where they are. */
static void mgv__plan_lower(mgv__plan *plan) {
    mgv__lowering l;
    uint32_t i;
    plan->op_count = plan->vector_count = plan->head_ops = 0;
    plan->norm_op = MGV__NO_OP;
    memset(plan->pack_rows, 0, sizeof plan->pack_rows);
    mgv__lower_begin(&l, plan);
    for (i = 0; i < plan->program->op_count; i++) {
        switch (plan->program->ops[i].kind) {
        case MGV__OP_LINEAR: mgv__lower_linear(&l, i); break;
        case MGV__OP_ATTENTION: mgv__lower_attention(&l, i); break;
        case MGV__OP_POOL: mgv__lower_pool(&l, i); break;
        default: break; /* norms are folded into what reads their rows */
        }
        mgv__lower_leave(&l, i);
        mgv__lower_taps_of(&l, i);
    }
    if (!plan->pools) mgv__lower_last_taps(&l);
    for (i = 0; i < plan->op_count; i++) {
        plan->head_ops += plan->ops[i].of_images != 0;
        if (plan->ops[i].of_images) plan->ops[i].kernel.rows_per_group = plan->max_images;
    }
}

static int mgv__row_outputs_equal(const mgv__row_outputs *a, const mgv__row_outputs *b) {
    return a->count == b->count && memcmp(a->layer, b->layer, a->count * sizeof a->layer[0]) == 0;
}

/* Says which outputs the list is to bring. */
static void mgv__plan_want(mgv__plan *plan, const mgv__row_outputs *outputs) {
    if (mgv__row_outputs_equal(outputs, &plan->outputs)) return;
    plan->outputs = *outputs;
    mgv__plan_lower(plan);
}

/* Images of a group, where nobody says. One group, or two of the same size, where they have up to 25,100 rows each: measured on
   SigLIP2-base, 128 images take 6.4% less time in one group than in 60, 60 and 8, and 256 in two 2.4% less than in four of 60 and 16 (in
   between it is the pass of `megavit plan` that says so). More images come in groups of 11,800 rows and what is left: for 592, groups of
   60 are 138 tiles of FC2, the longest there are, two rounds of 66 clusters and little more; where some clusters have one more than
   others, all wait for these (52 images: 1.6% more clocks). */
static uint32_t mgv__plan_group_images(uint32_t tokens, uint32_t max_images) {
    const uint64_t rows = (uint64_t)max_images * tokens;
    if (rows <= 2 * MGV__PLAN_EQUAL_GROUP_ROWS) return mgv__ceil_div(max_images, rows <= MGV__PLAN_EQUAL_GROUP_ROWS ? 1 : 2);
    return tokens < MGV__PLAN_GROUP_ROWS ? MGV__PLAN_GROUP_ROWS / tokens : 1;
}
/* The head takes images in pairs: where there is a next group, none reaches into it. */
static uint32_t mgv__plan_even_group(uint32_t group_images, uint32_t max_images) {
    if (group_images < max_images) group_images += group_images % MGV__CLUSTER;
    return mgv__min_u32(group_images, max_images);
}
static uint32_t mgv__plan_group_tiles(const mgv__plan *plan, uint32_t group_images) {
    return MGV__GROUP_TILES(group_images * plan->tokens);
}

/* Everything that depends on how images are grouped; where rows lie does not. */
static void mgv__plan_set_groups(mgv__plan *plan, uint32_t group_images, uint32_t groups) {
    const uint64_t rows_per_group = (uint64_t)group_images * plan->tokens;
    uint32_t i;
    plan->group_images = group_images;
    plan->groups = groups;
    plan->group_tiles = mgv__plan_group_tiles(plan, group_images);
    for (i = 0; i < MGV__DEVICE_BUFFER_COUNT; i++)
        plan->buffers[i].counter_stride = plan->buffers[i].by_image ? plan->group_images : plan->group_tiles;
    for (i = 0; i + plan->head_ops < plan->op_count; i++) plan->ops[i].kernel.rows_per_group = (uint32_t)rows_per_group;
    for (i = 0; i < MGV__DEVICE_BUFFER_COUNT; i++) {
        const int head = mgv__plan_rows_are_images(i);
        uint64_t per_group = head ? plan->room_images : rows_per_group, count = head ? 1 : groups;
        if (!plan->buffers[i].bytes || i == MGV__DEVICE_PARTS) continue;
        if (i != MGV__DEVICE_POOLED && i != MGV__DEVICE_QKV && i != MGV__DEVICE_SCORES)
            mgv__plan_map(plan, MGV__MAP_A + i, i, per_group, count, MGV__GEMM_ROWS);
        if (i == MGV__DEVICE_ATTENDED) { per_group = plan->tokens; count = plan->room_images; }
        if (i != MGV__DEVICE_PATCHES && i != MGV__DEVICE_WEIGHTED)
            mgv__plan_map(plan, MGV__MAP_STORE + i, i, per_group, count, MGV__CHUNK_ROWS);
    }
    if (plan->pools) { /* weighted sums: (column, head, image) */
        mgv__device_buffer *weighted = &plan->buffers[MGV__DEVICE_WEIGHTED];
        mgv__map_desc *m = &plan->maps[(int)MGV__MAP_STORE + MGV__DEVICE_WEIGHTED];
        mgv__plan_map(plan, (int)MGV__MAP_STORE + MGV__DEVICE_WEIGHTED, MGV__DEVICE_WEIGHTED, plan->heads, plan->room_images,
                      MGV__CHUNK_ROWS);
        m->dims[0] = plan->width;
        m->strides[0] = (uint64_t)plan->width * 2;
        m->strides[1] = (uint64_t)weighted->pitch * 2;
    }
    mgv__plan_attention_maps(plan, plan->room_images);
    mgv__plan_latency_maps(plan);
    mgv__plan_split_maps(plan);
}

/* Whether buffers, their counters and the list have room for such groups. */
static int mgv__plan_groups_fit(const mgv__plan *plan, uint32_t group_images, uint32_t groups) {
    return groups <= plan->layout_groups && (uint64_t)groups * group_images <= plan->room_images &&
        (uint64_t)groups * mgv__plan_group_tiles(plan, group_images) <= plan->room_tiles;
}

/* Groups for so many images: those of an engine that is made for just as many, so that no small group is left alone at the end, which
   leaves most clusters idle. A batch of one group or less keeps the engine's, and so does one whose groups do not fit: nine images of
   5,041 tokens are two groups of six, and an engine for ten has room for five of two. */
static void mgv__plan_group(mgv__plan *plan, uint32_t images) {
    uint32_t group = plan->layout_group_images, groups = plan->layout_groups;
    if (!plan->group_is_said && images > group) {
        const uint32_t own = mgv__plan_even_group(mgv__plan_group_images(plan->tokens, images), images);
        if (mgv__plan_groups_fit(plan, own, mgv__ceil_div(images, own))) {
            group = own;
            groups = mgv__ceil_div(images, own);
        }
    }
    if (group != plan->group_images || groups != plan->groups) mgv__plan_set_groups(plan, group, groups);
}

/* Tiles of the largest batch, where they are dealt: those of products have 256 columns then. Some more for the last groups' ends and for
   outputs; a schedule that has more all the same is not dealt. */
static uint32_t mgv__plan_most_tiles(const mgv__plan *plan) {
    const uint64_t units = (uint64_t)plan->layout_groups * mgv__ceil_div(plan->layout_group_images * plan->tokens, 2 * MGV__GEMM_ROWS);
    uint64_t tiles = 16 * (units + plan->room_images);
    uint32_t i;
    for (i = 0; i < plan->op_count; i++) {
        const mgv__plan_op *op = &plan->ops[i];
        if (mgv__plan_is_attention(op->kind))
            tiles += (uint64_t)plan->room_images * mgv__ceil_div(op->kernel.heads, MGV__CLUSTER) *
                     (mgv__plan_is_online(plan) ? mgv__ceil_div(plan->tokens, 128) : 1);
        else tiles += units * mgv__ceil_div(op->kernel.columns, 256);
    }
    return (uint32_t)(tiles < MGV__NO_TILE ? tiles : MGV__NO_TILE - 1);
}

/* Statistics of rows by 64 columns are counted in 32 bits. */
static mgv_result mgv__plan_check_rows(const mgv__plan *plan, uint64_t rows, uint32_t max_images, mgv_error *error) {
    if (rows <= 0x40000000u / (plan->width / 64)) return MGV_OK;
    return mgv__fail(error, MGV_ERROR_CAPACITY, "%u images of %u tokens are more than one engine's GPU buffers hold",
                     (uint64_t)max_images, (uint64_t)plan->tokens);
}

/* Fixes everything that does not depend on the number of images and the outputs of one encode. */
static mgv_result mgv__plan_layout(mgv__plan *plan, const mgv__config *config, const mgv__program *program, uint32_t max_images,
                                   uint32_t group_images, mgv_error *error) {
    uint32_t i, mlp, head_mlp;
    uint64_t rows, head_rows, parts = 0, at = 0;
    mgv_result result;
    memset(plan, 0, sizeof *plan); /* of a model that is refused too: mgv__plan_free reads it */
    plan->config = config;
    plan->program = program;
    result = mgv__plan_survey(plan, error);
    if (result != MGV_OK) return result;
    mlp = plan->buffers[MGV__DEVICE_MLP].columns;
    head_mlp = plan->buffers[MGV__DEVICE_HEAD_MLP].columns;
    plan->tokens = (config->image_size / config->patch) * (config->image_size / config->patch);
    plan->patch_columns = config->channels * config->patch * config->patch;
    plan->patch_pitch = mgv__ceil_div(plan->patch_columns, 8) * 8;
    plan->max_images = max_images;
    plan->split_least = MGV__PLAN_SPLIT_LEAST;
    /* A CTA's share of K, which is either of these, goes once around the ring at least, so that no exchange comes into a stage that the
       tile before has lent. */
    plan->split_most = mgv__min_u32(plan->width, mlp) >= MGV__CLUSTER * MGV__STAGES * MGV__GEMM_INNER
                           ? MGV__PLAN_SPLIT_MOST : 0;
    plan->group_is_said = group_images != 0;
    result = mgv__plan_check_rows(plan, (uint64_t)max_images * plan->tokens, max_images, error); /* before 32 bits are multiplied */
    if (result != MGV_OK) return result;
    if (!group_images) group_images = mgv__plan_group_images(plan->tokens, max_images);
    plan->group_images = plan->layout_group_images = mgv__plan_even_group(group_images, max_images);
    plan->groups = plan->layout_groups = mgv__ceil_div(max_images, plan->group_images);
    plan->group_tiles = mgv__plan_group_tiles(plan, plan->group_images);
    plan->room_images = plan->groups * plan->group_images;
    plan->room_tiles = plan->groups * plan->group_tiles;
    result = mgv__plan_check_rows(plan, (uint64_t)plan->room_tiles * MGV__STATS_ROWS, max_images, error);
    if (result != MGV_OK) return result;
    rows = (uint64_t)plan->room_images * plan->tokens;

    mgv__plan_buffer(plan, MGV__DEVICE_PATCHES, rows, plan->patch_columns, plan->patch_pitch, 1, 2);
    mgv__plan_buffer(plan, MGV__DEVICE_STREAM, rows, plan->width, plan->width, 0, 2);
    mgv__plan_buffer(plan, MGV__DEVICE_QKV, rows, 3 * plan->width, 3 * plan->width, 0, 2);
    mgv__plan_buffer(plan, MGV__DEVICE_ATTENDED, rows, plan->width, plan->width, 1, 2);
    mgv__plan_buffer(plan, MGV__DEVICE_MLP, rows, mlp, mlp, 0, 2);
    mgv__plan_buffer(plan, MGV__DEVICE_SCORES, plan->pools && plan->tokens > MGV__MAX_KEYS ? rows : 0, plan->heads,
                     mgv__ceil_div(plan->heads, 4) * 4, 0, 4);
    rows = plan->room_images;
    head_rows = plan->pools ? rows : 0;
    if (mgv__plan_pools_tokens(plan, 1)) parts = (uint64_t)mgv__min_u32((uint32_t)rows, MGV__GEMV_MAX_ROWS) * mgv__plan_pool_parts_of(plan);
    mgv__plan_buffer(plan, MGV__DEVICE_PARTS, parts, plan->heads * (plan->width + 4), plan->heads * (plan->width + 4), 1,
                     4); /* maximum, sum and mean behind a head's sums */
    mgv__plan_buffer(plan, MGV__DEVICE_WEIGHTED, head_rows, plan->heads * plan->width, plan->heads * plan->width, 1, 2);
    mgv__plan_buffer(plan, MGV__DEVICE_HEAD_ATTENDED, head_rows, plan->width, plan->width, 0, 2);
    mgv__plan_buffer(plan, MGV__DEVICE_HEAD_OUT, head_rows, plan->width, plan->width, 0, 2);
    mgv__plan_buffer(plan, MGV__DEVICE_HEAD_MLP, head_rows, head_mlp, head_mlp, 0, 2);
    mgv__plan_buffer(plan, MGV__DEVICE_POOLED, head_rows, plan->width, plan->width, 0, 4);

    plan->pack_columns[MGV__PACK_PATCH] = plan->patch_columns;
    plan->pack_columns[MGV__PACK_HIDDEN] = plan->pack_columns[MGV__PACK_SCORES] = plan->width;
    plan->pack_columns[MGV__PACK_MLP] = mlp;
    mgv__plan_lower(plan);

    for (i = 0; i < MGV__PACK_COUNT; i++) {
        plan->pack_pitch[i] = mgv__ceil_div(plan->pack_columns[i], 8) * 8;
        plan->pack_offset[i] = at;
        at += ((uint64_t)plan->pack_rows[i] * plan->pack_pitch[i] * 2 + 255) / 256 * 256;
    }
    plan->weight_bytes = at;
    for (i = 0; i < 9; i++) mgv__plan_weight_map(plan, MGV__MAP_WEIGHTS + i, i / 3, 128u >> i % 3, 2);
    mgv__plan_weight_map(plan, MGV__MAP_POOL_SCORES, MGV__PACK_SCORES, 64, 3);
    mgv__plan_set_groups(plan, plan->group_images, plan->groups);

    at = 0;
    for (i = 0; i < MGV__DEVICE_BUFFER_COUNT; i++) {
        plan->buffers[i].offset = at;
        at += (plan->buffers[i].bytes + 1023) / 1024 * 1024;
    }
    plan->stats_offset = at;
    /* the head's: of rows by the strips of a GEMV, or by parts of 64 columns, which are fewer */
    at += mgv__plan_stream_stats(plan) * 4 + rows * (plan->width / 8) * 8;
    plan->vectors_offset = at = (at + 1023) / 1024 * 1024;
    at += (uint64_t)plan->vector_count * 4;
    plan->weights_offset = at = (at + 1023) / 1024 * 1024;
    at += plan->weight_bytes;
    plan->counters_offset = at = (at + 1023) / 1024 * 1024;
    plan->counters_bytes = (MGV__ABORT_BYTES + (uint64_t)plan->counter_count * 4 + MGV__ABORT_BYTES - 1) / MGV__ABORT_BYTES *
                           MGV__ABORT_BYTES;
    at += MGV__COUNTER_SETS * plan->counters_bytes;
    plan->ops_offset = at = (at + 1023) / 1024 * 1024;
    plan->max_ops = plan->op_count + MGV__KERNEL_MAX_OUTPUTS;
    at += (uint64_t)plan->max_ops * sizeof(mgv__kernel_op);
    plan->segments_offset = at = (at + 1023) / 1024 * 1024;
    plan->max_segments = plan->max_ops * plan->layout_groups;
    at += ((uint64_t)plan->max_segments + 1) * sizeof(mgv__kernel_segment);
    plan->deal_offset = at;
    plan->max_tiles = mgv__plan_most_tiles(plan);
    at += ((uint64_t)plan->max_tiles + 2 * MGV__PLAN_DEAL_CLUSTERS) * sizeof *plan->deal;
    plan->schedule_bytes = (at - plan->ops_offset + 1023) / 1024 * 1024;
    plan->pixels_offset = plan->ops_offset + MGV__PLAN_SCHEDULES * plan->schedule_bytes;
    plan->arena_bytes = plan->pixels_offset + (uint64_t)max_images * config->image_size * config->image_size * 3;
    return MGV_OK;
}

/* What one tile costs its CTA, in clocks: its matrix work, the time its bytes need from L2 at 32 a clock, and its start and end, which
   nothing hides. */
typedef struct mgv__tile_clocks {
    double matrix, feed, edge;
} mgv__tile_clocks;
static mgv__tile_clocks mgv__gemm_clocks(uint32_t columns, uint32_t k_blocks) {
    mgv__tile_clocks clocks;
    clocks.matrix = k_blocks * 4.0 * columns;
    clocks.feed = k_blocks * (128.0 * 128 + columns * 64.0) / 32;
    clocks.edge = columns == 256 ? 2500 : 2000;
    return clocks;
}

static mgv__tile_clocks mgv__split_clocks(uint32_t columns, uint32_t k_blocks) {
    mgv__tile_clocks clocks = mgv__gemm_clocks(columns, mgv__ceil_div(k_blocks, MGV__CLUSTER));
    clocks.feed = mgv__ceil_div(k_blocks, MGV__CLUSTER) * (128.0 * 128 + 128.0 * columns) / 52; /* measured with 160 columns: 702 a block */
    clocks.edge = 3200;                                                                         /* the exchange among it */
    return clocks;
}

/* Rounds in which `clusters` clusters work through an operation's tiles: whole ones while there are few, since the last is not full. */
static double mgv__plan_waves(uint32_t tiles, uint32_t clusters) {
    return tiles <= 8 * clusters ? mgv__ceil_div(tiles, clusters) : (double)tiles / clusters;
}

/* Of an operation's tiles, how many are half as wide as the others: the kernel's last tile of 256 columns is one of 128 where no more are
   left. */
static uint32_t mgv__plan_narrow_tiles(uint32_t row_units, uint32_t columns, uint32_t width) {
    return width == 256 && (columns - 1) % 256 < 128 ? row_units : 0;
}

/* Whether tiles of so many row tiles are dealt to the clusters (mgv__plan_deal), in the throughput regime: where the products that write
   the stream have a tile of 256 columns for each cluster. With fewer there is little to choose. */
static int mgv__plan_worth_dealing(const mgv__plan *plan, uint32_t row_tiles) {
    return plan->clusters <= MGV__PLAN_DEAL_CLUSTERS &&
           mgv__ceil_div(row_tiles, MGV__CLUSTER) * mgv__ceil_div(plan->width, 256) >= plan->clusters;
}

/* Tile width of a GEMM: the one whose waves take least time. Of what multiplies normed rows, which has many columns, a second wave that is
   not full runs beside other operations' tiles: narrower ones are worth it only where they save a wave (measured at 11 to 20 images), or
   where so few rows are hurried on that the next operation waits for them. Where tiles are dealt no wave is left half empty. */
static uint32_t mgv__plan_tile_columns(const mgv__plan *plan, uint32_t row_tiles, const mgv__kernel_op *op) {
    const uint32_t clusters = plan->clusters;
    static const uint32_t widths[] = {256, 192, 128, 64};
    const uint32_t row_units = mgv__ceil_div(row_tiles, MGV__CLUSTER);
    const int many = (op->flags & MGV__KERNEL_FOLD_NORM) != 0;
    uint32_t best = 256, i;
    double best_time = 0, best_waves = 0;
    if (mgv__plan_worth_dealing(plan, row_tiles)) return 256;
    for (i = 0; i < 4; i++) {
        uint32_t width = widths[i],
                 tiles = row_units * mgv__ceil_div(op->columns, width) - mgv__plan_narrow_tiles(row_units, op->columns, width) / 2;
        mgv__tile_clocks clocks = mgv__gemm_clocks(width, op->k_blocks);
        double tile = (clocks.matrix > clocks.feed ? clocks.matrix : clocks.feed) + clocks.edge, waves = mgv__plan_waves(tiles, clusters);
        if (width != 256 && (waves * tile >= best_time || (many && best_waves > 1 && waves >= best_waves))) continue;
        best = width;
        best_time = waves * tile;
        best_waves = waves;
    }
    /* Rows come one after the other: less than two rounds of narrower tiles run beside other operations' and hand their rows on sooner
       (measured at up to ten images; 128 columns gain where they are 45 to 84 tiles on 66 clusters, and nothing or less from 90 on). */
    if (best > 128 && many && 3 * row_tiles * mgv__ceil_div(op->columns, 128) <= 4 * clusters * MGV__CLUSTER) return 128;
    if (best == 256 && many && 8 * row_units <= clusters && row_units * mgv__ceil_div(op->columns, 192) <= 2 * clusters) return 192;
    return best;
}

/* The kind of SPLIT tile of what writes the stream's `rows` rows, the narrowest that does; 0: none. In a SPLIT tile the CTAs of a cluster
   share out K: half as long a tile, for an exchange of sums. Measured on SigLIP2-base: 3 images -5%, 11 to 16 -5 to -7%, 17 to 24 -6 to 0%,
   28 and 32 +5%; tiles of 128 columns where there were 160: -1 to -2% in one round of them, +1 to +5% in more. It is other arithmetic, so
   it depends on model and number of rows, never on the card. Not for the head: its rows are so few that narrow tiles do as well. */
static uint32_t mgv__plan_split_kind(const mgv__plan *plan, uint32_t rows) {
    const uint32_t narrow_most = mgv__min_u32(plan->split_most, MGV__PLAN_SPLIT_NARROW_MOST);
    uint32_t kind;
    for (kind = MGV__KERNEL_SPLIT_128; kind <= MGV__KERNEL_SPLIT_192; kind++) {
        const uint64_t tiles = (uint64_t)mgv__ceil_div(rows, MGV__GEMM_ROWS) *
                               mgv__ceil_div(plan->width, mgv__split_columns(kind));
        const uint32_t most = kind == MGV__KERNEL_SPLIT_192 ? plan->split_most : narrow_most;
        if (tiles >= plan->split_least && tiles <= most) return kind;
    }
    return 0;
}

/* The pooling head's products of few rows. */
static int mgv__plan_is_gemv(const mgv__plan_op *op) {
    return op->target >= MGV__DEVICE_HEAD_ATTENDED && op->target <= MGV__DEVICE_POOLED && op->kernel.rows_total <= MGV__GEMV_MAX_ROWS;
}
/* Where a row of a pack lies, as the kernel counts. */
static uint32_t mgv__plan_weights_offset(const mgv__plan *plan, uint32_t pack, uint32_t row) {
    return (uint32_t)((plan->pack_offset[pack] + (uint64_t)row * plan->pack_pitch[pack] * 2) / 16);
}

/* It is other arithmetic than a GEMM's tile, so it depends on the number of rows, never on the card. */
static void mgv__plan_gemv(const mgv__plan *plan, mgv__plan_op *op) {
    mgv__kernel_op *k = &op->kernel;
    k->kind = MGV__KERNEL_GEMV;
    k->k_blocks = plan->pack_pitch[op->pack] / 8;
    k->b_map = MGV__GEMV_LEAST_PARTS_LOG2;
    while (k->b_map < MGV__GEMV_MOST_PARTS_LOG2 && mgv__ceil_div(k->k_blocks, 4) > (uint32_t)MGV__GEMV_STEPS << k->b_map) k->b_map++;
    k->column_tiles = mgv__ceil_div(k->columns, MGV__GEMV_COLUMNS(k->b_map) * mgv__regimes[plan->regime].cluster);
    k->a_map = op->source;
    k->store_map = op->target;
    k->weights_offset = mgv__plan_weights_offset(plan, op->pack, k->b_row);
}

/* Tiles of the pooling head for one pair of images. Each finds all scores, so there is more than one only where clusters would stand idle.
   A tile has a block of columns for each math warpgroup at least. */
static uint32_t mgv__plan_pool_parts(uint32_t blocks, uint32_t pairs, uint32_t clusters) {
    uint32_t parts = mgv__min_u32(blocks / MGV__MATH_GROUPS, clusters / pairs);
    while (parts > 1 && blocks < (parts - 1) * mgv__ceil_div(blocks, parts) + MGV__MATH_GROUPS) parts--;
    return parts > 1 ? parts : 1;
}

/* The latency regime's pooling head up to the values, one operation: the second. */
static void mgv__plan_pool_heads(const mgv__plan *plan, mgv__plan_op *op) {
    mgv__kernel_op *k = &op->kernel;
    const mgv__plan_op *values = &plan->ops[plan->op_count - plan->head_ops];
    k->column_tiles = 0;
    if (op->kind == MGV__KERNEL_POOL_TOKENS) return;
    k->kind = MGV__KERNEL_POOL_HEADS;
    op->source = MGV__DEVICE_STREAM;
    op->target = MGV__DEVICE_HEAD_ATTENDED;
    k->column_tiles = mgv__ceil_div(k->heads, MGV__POOL_HEADS);
    k->a_map = k->b_map = MGV__MAP_LATENCY_POOL;
    k->store_map = op->target;
    k->stats_columns = 64;
    k->weights_offset = mgv__plan_weights_offset(plan, MGV__PACK_SCORES, 0);
    k->values_offset = mgv__plan_weights_offset(plan, values->pack, values->kernel.b_row);
    k->table = values->kernel.bias;
}

/* The same in the throughput regime, for few images: a CTA for each MGV__POOL_TOKENS tokens, then one for each head. For more, all of it is
   the second operation. The values are the third. */
static void mgv__plan_pool_op(const mgv__plan *plan, mgv__plan_op *op, uint32_t images) {
    mgv__kernel_op *k = &op->kernel;
    const uint32_t cluster = mgv__regimes[plan->regime].cluster;
    const int few = mgv__plan_pools_tokens(plan, images);
    k->weights_offset = mgv__plan_weights_offset(plan, MGV__PACK_SCORES, 0);
    k->a_map = op->source;
    k->store_map = op->target;
    if (op->kind == MGV__KERNEL_POOL_TOKENS) {
        k->column_tiles = few ? mgv__ceil_div(mgv__plan_pool_parts_of(plan), cluster) : 0;
        return;
    }
    op->source = few ? MGV__DEVICE_PARTS : MGV__DEVICE_STREAM;
    op->target = k->store_map = MGV__DEVICE_WEIGHTED;
    k->a_map = few ? (uint32_t)MGV__DEVICE_PARTS : (uint32_t)MGV__MAP_POOL_TOKENS;
    k->column_tiles = mgv__ceil_div(k->heads, cluster);
    if (few) return;
    k->kind = MGV__KERNEL_POOL;
    k->store_map = MGV__MAP_STORE + op->target;
    k->b_map = MGV__MAP_POOL_SCORES;
    k->column_tiles = mgv__plan_pool_parts(k->k_blocks, mgv__ceil_div(images, MGV__CLUSTER), plan->clusters);
}

/* Heads of one CTA's tile of attention. */
static uint32_t mgv__plan_heads(const mgv__kernel_op *k) { return k->flags & MGV__KERNEL_OWN_HEADS ? (uint32_t)MGV__MATH_GROUPS : 1u; }

/* Whether each math warpgroup has a head of its own, where it would share one with the other: half as many begins and ends of tiles, and
   the two need not run in step. Tiles are twice as long, so only where two rounds of them come together (64 images: -1.3%; 32: no
   difference). It is the same arithmetic. */
static int mgv__plan_own_heads(const mgv__plan *plan, uint32_t images, uint32_t pairs) {
    return (uint64_t)mgv__min_u32(images, plan->group_images) * mgv__ceil_div(pairs, MGV__MATH_GROUPS) >= 2 * plan->clusters;
}

/* Tiles and tensor maps of one operation in the throughput regime. */
static void mgv__plan_throughput_op(mgv__plan *plan, mgv__plan_op *op, uint32_t images) {
    mgv__kernel_op *k = &op->kernel;
    uint32_t width;
    /* of who writes the stream */
    const uint32_t split = k->rows_total == images * plan->tokens ? mgv__plan_split_kind(plan, k->rows_total) : 0;
    /* of heads; the last may have one: its second tile is cut off where it is stored */
    const uint32_t pairs = mgv__ceil_div(plan->heads, MGV__CLUSTER);
    k->stats_columns = split ? mgv__split_columns(split) / (uint32_t)MGV__CLUSTER : 64;
    if (op->kind == MGV__KERNEL_ROWS) return; /* one tile a pair of row tiles, no maps */
    k->store_map = MGV__MAP_STORE + op->target;
    k->residual_map = MGV__MAP_STORE + op->target;
    switch (op->kind) {
    case MGV__KERNEL_PATCHES: k->column_tiles = mgv__min_u32(16, 1 + plan->clusters / mgv__ceil_div(images, MGV__CLUSTER)); return;
    case MGV__KERNEL_ATTENTION:
        /* Two clusters share out the queries where that takes no more than two rounds of half as much. */
        k->k_blocks = plan->tokens > 128 && images * pairs <= plan->clusters ? 2 : 1;
        if (k->k_blocks == 1 && mgv__plan_own_heads(plan, images, pairs)) k->flags |= MGV__KERNEL_OWN_HEADS;
        k->column_tiles = mgv__ceil_div(pairs, mgv__plan_heads(k)) * k->k_blocks;
        k->a_map = MGV__MAP_KEYS;
        k->b_map = MGV__MAP_QUERIES;
        return;
    case MGV__KERNEL_ATTENTION_ONLINE:
        k->k_blocks = mgv__ceil_div(plan->tokens, MGV__MATH_GROUPS * 64);
        k->column_tiles = pairs * k->k_blocks;
        k->a_map = MGV__MAP_KEYS;
        k->b_map = MGV__MAP_QUERIES;
        return;
    case MGV__KERNEL_POOL_TOKENS:
    case MGV__KERNEL_POOL_JOIN: mgv__plan_pool_op(plan, op, images); return;
    case MGV__KERNEL_POOL_SUMS:
        k->column_tiles = mgv__ceil_div(k->k_blocks, MGV__MATH_GROUPS);
        k->a_map = MGV__MAP_POOL_TOKENS;
        k->b_map = op->source;
        return;
    default: break;
    }
    k->k_blocks = mgv__ceil_div(plan->pack_columns[op->pack], MGV__GEMM_INNER);
    k->a_map = MGV__MAP_A + op->source;
    if (split && op->target == MGV__DEVICE_STREAM) {
        k->kind = split;
        k->column_tiles = mgv__ceil_div(k->columns, mgv__split_columns(split));
        if (split == MGV__KERNEL_SPLIT_128) { /* each CTA finishes one chunk's columns: none behind them need other boxes */
            k->b_map = MGV__MAP_WEIGHTS + 3 * op->pack + MGV__MAP_WEIGHTS_128;
            return;
        }
        k->b_map = MGV__MAP_SPLIT_WEIGHTS + 3 * (split - MGV__KERNEL_SPLIT_160) + op->pack;
        k->residual_map = MGV__MAP_SPLIT_REST + (split - MGV__KERNEL_SPLIT_160);
        return;
    }
    if (mgv__plan_is_gemv(op)) {
        mgv__plan_gemv(plan, op);
        return;
    }
    if (op->by_head) width = plan->head_dim <= 64 ? 64 : 128;
    else if (k->flags & MGV__KERNEL_FLOAT_OUT) width = 64;
    else width = mgv__plan_tile_columns(plan, mgv__ceil_div(k->rows_total, MGV__GEMM_ROWS), k);
    k->kind = width == 256   ? MGV__KERNEL_GEMM_256
              : width == 192 ? MGV__KERNEL_GEMM_192
              : width == 128 ? MGV__KERNEL_GEMM_128
                             : MGV__KERNEL_GEMM_64;
    k->column_tiles = op->by_head ? plan->heads : mgv__ceil_div(k->columns, width);
    k->b_map = MGV__MAP_WEIGHTS + 3 * op->pack + (width == 256 ? 0 : width == 128 ? MGV__MAP_WEIGHTS_128 : 2);
    /* A tile of 64 columns takes two blocks of K a stage, which only a pair loads; a head's begins with the head. */
    if (width >= 128 && !op->by_head && k->column_tiles % MGV__CLUSTER == 0 && !(k->flags & MGV__KERNEL_STATS))
        k->flags |= MGV__KERNEL_SHARE_ROWS;
    if (width == 192) k->b_map = MGV__MAP_SPLIT_WEIGHTS + 3 + op->pack; /* each CTA loads half of a tile's weights, in these too */
}

/* Whether a product that writes the stream has THIN tiles, which exchange no sums: of one image (-1.6%; two +0.8%: kernels/NOTES.md).
   It is other arithmetic, so model and number of images choose it, never the card. What a CTA loads beyond its own rows is the same
   image's, or zeros. */
static int mgv__plan_is_thin(const mgv__plan *plan, const mgv__plan_op *op) {
    return plan->images == 1 && (op->source == MGV__DEVICE_PATCHES || op->source == MGV__DEVICE_ATTENDED) &&
           mgv__plan_thin_blocks(plan->buffers[op->source].columns) != 0;
}

/* The same in the latency regime. */
static void mgv__plan_latency_op(mgv__plan *plan, mgv__plan_op *op) {
    mgv__kernel_op *k = &op->kernel;
    const uint32_t wide = (uint32_t)mgv__plan_is_wide(plan, k), blocks = mgv__ceil_div(plan->pack_columns[op->pack], MGV__GEMM_INNER);
    const uint32_t columns = wide ? MGV__LATENCY_CLUSTER * MGV__LATENCY_COLUMNS : MGV__LATENCY_COLUMNS; /* of a cluster */
    k->stats_columns = 64;
    k->store_map = op->target;
    k->residual_map = op->residual;
    switch (op->kind) {
    case MGV__KERNEL_PATCHES: k->column_tiles = 10; return; /* 10,240 threads: a piece each of 224 px */
    case MGV__KERNEL_ATTENTION:
        k->column_tiles = plan->heads;
        k->a_map = MGV__MAP_QUERIES;
        k->b_map = MGV__MAP_LATENCY_KEYS;
        return;
    case MGV__KERNEL_POOL_TOKENS:
    case MGV__KERNEL_POOL_JOIN: mgv__plan_pool_heads(plan, op); return;
    default: break;
    }
    if (mgv__plan_is_gemv(op)) {
        mgv__plan_gemv(plan, op);
        if (op->by_head) k->column_tiles = 0; /* the operation before has found the values */
        return;
    }
    k->kind = wide ? MGV__KERNEL_WIDE : mgv__plan_is_thin(plan, op) ? MGV__KERNEL_THIN : MGV__KERNEL_DEEP;
    k->k_blocks = k->kind == MGV__KERNEL_DEEP ? mgv__ceil_div(blocks, MGV__LATENCY_CLUSTER) : blocks;
    if (k->k_blocks < MGV__MATH_GROUPS) k->k_blocks = MGV__MATH_GROUPS; /* one each: beyond K there are zeros */
    k->column_tiles = mgv__ceil_div(k->columns, columns);
    k->a_map = k->kind == MGV__KERNEL_THIN ? MGV__MAP_THIN_A + 2 * (op->source == MGV__DEVICE_ATTENDED) : MGV__MAP_LATENCY_A + op->source;
    k->b_map = MGV__MAP_LATENCY_WEIGHTS + op->pack;
    /* A release takes twice as long beside loads. Behind QKV comes attention, which has no weights:
       those of the product behind it can wait. */
    if (op->target == MGV__DEVICE_QKV) k->flags |= MGV__KERNEL_HOLD_WEIGHTS;
}

/* Signals of CTA `cta` when it has done its share of a tile. */
static uint32_t mgv__plan_signals(const mgv__plan *plan, const mgv__kernel_op *k, uint32_t cta) {
    if (plan->regime == MGV__THROUGHPUT) return k->kind == MGV__KERNEL_GEMV || mgv__plan_is_pool_few(k->kind) ? 1 : MGV__MATH_GROUPS;
    return k->kind != MGV__KERNEL_ATTENTION || cta * 64 < plan->tokens; /* a block of queries each */
}

/* Row tiles, images or pairs of either that an operation takes of a group. */
static uint32_t mgv__plan_units(const mgv__plan *plan, const mgv__kernel_op *k, uint32_t group) {
    const uint32_t rows = mgv__min_u32(k->rows_per_group, k->rows_total - group * k->rows_per_group);
    return mgv__ceil_div(rows, mgv__plan_unit_tiles(plan->regime, k->kind) *
                                   (mgv__plan_by_image(k->kind) ? plan->tokens : mgv__plan_row_tile(plan)));
}

/* Who signals in the latency regime. A release takes some 600 clocks, in which a math warp does nothing else. Where each cluster has one
   tile of a product at most, all wait for that release, and handing it over would put it off (+1.7% at one image).
   Where a cluster has more it mostly has a tile to go on with: another warp signals (-4.6% at two images). */
static void mgv__plan_signallers(mgv__plan *plan) {
    uint32_t i, more = 0;
    if (plan->regime != MGV__LATENCY) return;
    for (i = 0; i < plan->op_count; i++) {
        const mgv__kernel_op *k = &plan->ops[i].kernel;
        more |= mgv__plan_is_latency_product(k->kind) && mgv__plan_units(plan, k, 0) * k->column_tiles > plan->clusters;
    }
    for (i = 0; more && i < plan->op_count; i++) {
        mgv__kernel_op *k = &plan->ops[i].kernel;
        if (k->kind == MGV__KERNEL_PATCHES || k->kind == MGV__KERNEL_ATTENTION || mgv__plan_is_latency_product(k->kind))
            k->flags |= MGV__KERNEL_OTHERS_SIGNAL;
    }
}

/* Chooses tiles for `images` images, and with them how often each counter is signalled. */
static void mgv__plan_tiles(mgv__plan *plan, uint32_t images) {
    const uint32_t of_batch = MGV__KERNEL_WAIT_FIRST | MGV__KERNEL_WAIT_ALL | MGV__KERNEL_SHARE_ROWS | MGV__KERNEL_OTHERS_SIGNAL |
                              MGV__KERNEL_OWN_HEADS | MGV__KERNEL_HOLD_WEIGHTS;
    uint32_t written[MGV__DEVICE_BUFFER_COUNT], i, cta;
    memset(written, 0, sizeof written);
    for (i = 0; i < plan->op_count; i++) {
        mgv__plan_op *op = &plan->ops[i];
        mgv__kernel_op *k = &op->kernel;
        const mgv__device_buffer *source, *target;
        uint32_t signals = 0;
        k->flags = (k->flags & ~of_batch) | plan->ablations;
        k->rows_total = op->of_images ? images : images * plan->tokens;
        k->kind = op->kind;
        if (plan->regime == MGV__LATENCY) mgv__plan_latency_op(plan, op);
        else mgv__plan_throughput_op(plan, op, images);
        source = &plan->buffers[op->source];
        target = &plan->buffers[op->target];
        if (k->kind != MGV__KERNEL_PATCHES) {
            k->wait_counter = source->counter;
            k->wait_stride = source->counter_stride;
            k->wait_divisor = !source->by_image ? mgv__plan_row_tile(plan) : op->of_images ? 1 : plan->tokens;
            k->wait_threshold = written[op->source];
        }
        k->signal_counter = target->counter;
        k->signal_stride = target->counter_stride;
        for (cta = 0; cta < mgv__regimes[plan->regime].cluster; cta++) signals += mgv__plan_signals(plan, k, cta);
        signals *= k->column_tiles;
        /* all images have one counter, as rows that are images have */
        if (k->kind == MGV__KERNEL_POOL_HEADS) signals *= images;
        written[op->target] += signals / mgv__plan_unit_tiles(plan->regime, k->kind);
    }
    mgv__plan_signallers(plan);
}

/* Whether the CTAs of a cluster share the rows of this unit. */
static int mgv__plan_shares_rows(const mgv__kernel_op *k, uint32_t group, uint32_t unit) {
    const uint32_t left = k->rows_total - group * k->rows_per_group, rows = mgv__min_u32(left, k->rows_per_group);
    return (k->flags & MGV__KERNEL_SHARE_ROWS) && rows <= (unit * (uint32_t)MGV__CLUSTER + 1) * MGV__GEMM_ROWS;
}

/* Whether clusters rest behind the last FC1, so that FC2 begins with the one with which FC1 began: those that get the pooling head's first
   tiles then have none of either, and time to run the head's code once before. */
static int mgv__plan_rests(const mgv__plan *plan, uint32_t op) {
    return op == plan->last_mlp && plan->ops[op].kernel.kind == MGV__KERNEL_WIDE && plan->pools;
}

static void mgv__plan_segment(mgv__plan *plan, uint32_t op_number, uint32_t group, uint32_t *tiles) {
    const mgv__kernel_op *k = &plan->ops[op_number].kernel;
    mgv__kernel_segment *segment = &plan->segments[plan->segment_count];
    uint32_t first_row = group * k->rows_per_group, units;
    if (op_number < plan->op_first || (plan->op_limit && op_number >= plan->op_limit)) return;
    if (first_row >= k->rows_total || k->column_tiles == 0) return;
    units = mgv__plan_units(plan, k, group);
    segment->op = op_number;
    segment->group = group;
    segment->first_unit = 0;
    segment->first_tile = *tiles;
    *tiles += units * k->column_tiles;
    if (mgv__plan_rests(plan, op_number))
        *tiles = segment->first_tile + mgv__ceil_div(*tiles - segment->first_tile, plan->clusters) * plan->clusters;
    if (mgv__plan_shares_rows(k, group, units - 1)) *tiles -= k->column_tiles / MGV__CLUSTER;
    plan->segment_count++;
}

/* The regime that takes less time for so many images. Ablations, token and layer outputs are the throughput regime's. */
static uint32_t mgv__plan_regime(const mgv__plan *plan, uint32_t images) {
    if (plan->ablations || plan->outputs.count) return MGV__THROUGHPUT;
    if (images > MGV__LATENCY_MAX_IMAGES && plan->pools) return MGV__THROUGHPUT;
    if (!plan->latency_clusters || plan->forced_regime)
        return plan->latency_clusters && plan->forced_regime ? plan->forced_regime - 1 : (uint32_t)MGV__THROUGHPUT;
    return images * plan->tokens <= MGV__PLAN_LATENCY_ROWS ? MGV__LATENCY : MGV__THROUGHPUT;
}

static void mgv__plan_deal(mgv__plan *plan); /* by what tiles cost: in >>schedule */

/* The order of all tiles. `lanes` groups take turns, one operation each; the next group starts when one has finished. The head's
   last products run over all images at once, at the end. */
static void mgv__plan_schedule(mgv__plan *plan, uint32_t images, uint32_t clusters) {
    const uint32_t group_ops = plan->op_count - plan->head_ops;
    const uint32_t lanes = plan->lanes ? plan->lanes : 1;
    uint32_t groups, tiles = 0, step, group, i;
    mgv__plan_group(plan, images);
    groups = mgv__ceil_div(images, plan->group_images);
    plan->images = images;
    plan->regime = mgv__plan_regime(plan, images);
    plan->clusters = plan->regime == MGV__LATENCY ? plan->latency_clusters : clusters;
    mgv__plan_tiles(plan, images);
    plan->segment_count = 0;
    /* group g starts at step (g / lanes) * group_ops + (g % lanes) * group_ops / lanes */
    for (step = 0; step < (groups / lanes + 2) * group_ops; step++)
        for (group = 0; group < groups; group++) {
            uint32_t start = group / lanes * group_ops + group % lanes * (group_ops / lanes);
            if (step >= start && step - start < group_ops) mgv__plan_segment(plan, step - start, group, &tiles);
        }
    for (i = group_ops; i < plan->op_count; i++) mgv__plan_segment(plan, i, 0, &tiles);
    memset(&plan->segments[plan->segment_count], 0, sizeof *plan->segments);
    plan->segments[plan->segment_count].first_tile = tiles;
    mgv__plan_deal(plan);
}

/* --- the proof that a schedule is right ------------------------------------------------------------------------ */

/* Rows within its group that CTA `cta` of a cluster reads for a unit: as the kernels' tile_rows. Empty beyond the last row. */
static void mgv__plan_tile_rows(const mgv__plan *plan, const mgv__kernel_op *k, uint32_t group, uint32_t unit, uint32_t cta,
                                uint32_t *first, uint32_t *end) {
    const mgv__regime *regime = &mgv__regimes[plan->regime];
    uint32_t left = k->rows_total - group * k->rows_per_group, rows = mgv__min_u32(left, k->rows_per_group);
    uint32_t count = mgv__plan_by_image(k->kind) ? k->tokens : mgv__plan_row_tile(plan),
             unit_tiles = mgv__plan_unit_tiles(plan->regime, k->kind);
    *first = (unit * unit_tiles + (mgv__plan_shares_rows(k, group, unit) ? 0 : cta / (regime->cluster / unit_tiles))) * count;
    *end = mgv__min_u32(*first + count, rows);
}

/* The last operation before `op` that writes `buffer`; op itself if there is none. Operations that others stand in for have no tiles. */
static uint32_t mgv__plan_writer(const mgv__plan *plan, uint32_t op, uint32_t buffer) {
    uint32_t i;
    for (i = op; i-- > 0;)
        if (plan->ops[i].target == buffer && plan->ops[i].kernel.column_tiles) return i;
    return op;
}

/* 1 if operation `late` waits for operation `early`, or for one that does. Every wait takes in all tiles over the rows it reads, so this
   holds row by row. */
static int mgv__plan_waits_for(const mgv__plan *plan, uint32_t late, uint32_t early) {
    while (late > early) {
        uint32_t before = mgv__plan_writer(plan, late, plan->ops[late].source);
        if (before == late || plan->ops[late].kernel.wait_divisor == 0) return 0;
        late = before;
    }
    return late == early;
}

/* Nobody still reads what an operation overwrites: it waits, through others, for who wrote it and for every reader of what was there
   before. An operation that adds to its own target reads only what its tile then writes; ROWS only reads, and signals as if it wrote. */
static mgv_result mgv__plan_check_reuse(const mgv__plan *plan, mgv_error *error) {
    uint32_t k, r;
    for (k = 1; k < plan->op_count; k++) {
        uint32_t before = k, last = k;
        if (plan->ops[k].kernel.kind == MGV__KERNEL_ROWS || !plan->ops[k].kernel.column_tiles) continue;
        do {
            last = before;
            before = mgv__plan_writer(plan, last, plan->ops[k].target);
        } while (before != last && plan->ops[before].kernel.kind == MGV__KERNEL_ROWS);
        if (before == last) continue;
        for (r = before; r < k; r++)
            if (plan->ops[r].kernel.column_tiles && (r == before || plan->ops[r].source == plan->ops[k].target) &&
                !mgv__plan_waits_for(plan, k, r))
                return mgv__fail(error, MGV_ERROR_UNSUPPORTED,
                                 "the plan is wrong: %s (operation %u) overwrites what %s (operation %u) may still read",
                                 plan->ops[k].label, (uint64_t)k, plan->ops[r].label, (uint64_t)r);
    }
    return MGV_OK;
}

/* What an operation's kind of tile does with its sums; ROWS: with the rows that it copies. */
static uint32_t mgv__plan_kind_flags(const mgv__kernel_op *k) {
    const uint32_t norm_gelu = MGV__KERNEL_FOLD_NORM | MGV__KERNEL_GELU_TANH,
                   stream = MGV__KERNEL_TABLE | MGV__KERNEL_RESIDUAL | MGV__KERNEL_STATS;
    const uint32_t floats = k->flags & MGV__KERNEL_FLOAT_OUT;
    switch (k->kind) {
    case MGV__KERNEL_GEMM_256:
    case MGV__KERNEL_GEMM_192:
    case MGV__KERNEL_GEMM_128:
    case MGV__KERNEL_DEEP: return norm_gelu | stream;
    case MGV__KERNEL_THIN: return stream;
    case MGV__KERNEL_GEMM_64: return norm_gelu | (floats ? floats | MGV__KERNEL_TABLE | MGV__KERNEL_RESIDUAL : stream);
    case MGV__KERNEL_GEMV: return norm_gelu | MGV__KERNEL_STATS | (floats ? floats | MGV__KERNEL_RESIDUAL : 0);
    case MGV__KERNEL_SPLIT_128:
    case MGV__KERNEL_SPLIT_160:
    case MGV__KERNEL_SPLIT_192: return stream;
    case MGV__KERNEL_WIDE: return norm_gelu;
    case MGV__KERNEL_ROWS: return MGV__KERNEL_FOLD_NORM;
    default: return 0;
    }
}

/* No operation wants of its sums what its kind of tile would silently leave out. */
static mgv_result mgv__plan_check_flags(const mgv__plan *plan, mgv_error *error) {
    uint32_t i;
    for (i = 0; i < plan->op_count; i++) {
        const uint32_t beyond = plan->ops[i].kernel.flags & MGV__KERNEL_EPILOGUE & ~mgv__plan_kind_flags(&plan->ops[i].kernel);
        if (beyond)
            return mgv__fail(error, MGV_ERROR_UNSUPPORTED,
                             "the plan is wrong: %s (operation %u) wants what its kind of tile does not do with its sums (flags %u)",
                             plan->ops[i].label, (uint64_t)i, (uint64_t)beyond);
    }
    return MGV_OK;
}

/* The counter that says whether a row of a group may be read, and the one that says that it has been written. */
static uint32_t mgv__plan_wait_of(const mgv__kernel_op *k, uint32_t group, uint32_t row) {
    return k->wait_counter + group * k->wait_stride + row / k->wait_divisor;
}
static uint32_t mgv__plan_signal_of(const mgv__plan *plan, const mgv__plan_op *op, uint32_t group, uint32_t row) {
    if (op->kernel.kind == MGV__KERNEL_POOL_HEADS) { /* its rows are images'; the target's are images, which the first row tile holds */
        const uint32_t image = (group * op->kernel.rows_per_group + row) / op->kernel.tokens;
        return op->kernel.signal_counter + image / mgv__plan_row_tile(plan);
    }
    const uint32_t rows = plan->buffers[op->target].by_image ? op->kernel.tokens : mgv__plan_row_tile(plan);
    return op->kernel.signal_counter + group * op->kernel.signal_stride + row / rows;
}

/* One CTA's share of a tile: everything it waits for has been dealt before, and nothing more; then its own signals. */
static mgv_result mgv__plan_check_tile(const mgv__plan *plan, const mgv__kernel_segment *segment, uint32_t unit, uint32_t cta,
                                       uint32_t *counts, mgv_error *error) {
    const mgv__plan_op *op = &plan->ops[segment->op];
    const mgv__kernel_op *k = &op->kernel;
    const mgv__device_buffer *target = &plan->buffers[op->target];
    uint32_t first, end, i, last, index;
    mgv__plan_tile_rows(plan, k, segment->group, unit, cta, &first, &end);
    if (first >= end) return MGV_OK;
    if (k->wait_divisor) {
        i = mgv__plan_wait_of(k, segment->group, first);
        last = mgv__plan_wait_of(k, segment->group, end - 1);
        for (; i <= last; i++)
            if (i >= plan->counter_count || counts[i] != k->wait_threshold)
                return mgv__fail(error, MGV_ERROR_UNSUPPORTED,
                                 "the plan is wrong: %s (operation %u) waits for %u signals of counter %u, but %u come before it",
                                 op->label, (uint64_t)segment->op, (uint64_t)k->wait_threshold, (uint64_t)i,
                                 i < plan->counter_count ? (uint64_t)counts[i] : 0);
    }
    index = mgv__plan_signal_of(plan, op, segment->group, first);
    if (index < target->counter || index >= target->counter + target->counter_stride * plan->groups)
        return mgv__fail(error, MGV_ERROR_UNSUPPORTED, "the plan is wrong: %s (operation %u) signals counter %u, which is another buffer's",
                         op->label, (uint64_t)segment->op, (uint64_t)index);
    counts[index] += mgv__plan_signals(plan, k, cta);
    return MGV_OK;
}

static mgv_result mgv__plan_check_room(const mgv__plan *plan, mgv_error *error) {
    if (mgv__plan_groups_fit(plan, plan->group_images, plan->groups)) return MGV_OK;
    return mgv__fail(error, MGV_ERROR_UNSUPPORTED,
                     "the plan is wrong: %u groups of %u images do not fit into room for %u groups and %u images",
                     (uint64_t)plan->groups, (uint64_t)plan->group_images, (uint64_t)plan->layout_groups, (uint64_t)plan->room_images);
}

/* Words of plan->deal. */
static uint32_t mgv__plan_deal_words(const mgv__plan *plan) {
    return plan->dealt ? plan->segments[plan->segment_count].first_tile + 2 * plan->clusters : 0;
}
/* Each tile is on one cluster's list, and each list is in the order of all tiles. */
static mgv_result mgv__plan_check_deal(const mgv__plan *plan, mgv_error *error) {
    uint32_t next[MGV__PLAN_DEAL_CLUSTERS], tile, c;
    const uint32_t tiles = plan->segments[plan->segment_count].first_tile, words = mgv__plan_deal_words(plan);
    if (!plan->dealt) return MGV_OK;
    for (c = 0; c < plan->clusters; c++) next[c] = plan->deal[c];
    for (tile = 0; tile < tiles; tile++) {
        c = plan->tile_cluster[tile];
        if (c >= plan->clusters || next[c] >= words || plan->deal[next[c]++] != tile)
            return mgv__fail(error, MGV_ERROR_UNSUPPORTED, "the plan is wrong: tile %u is not where cluster %u takes it", (uint64_t)tile,
                             (uint64_t)c);
    }
    for (c = 0; c < plan->clusters; c++)
        if (next[c] >= words || plan->deal[next[c]] != MGV__NO_TILE)
            return mgv__fail(error, MGV_ERROR_UNSUPPORTED, "the plan is wrong: the list of cluster %u does not end", (uint64_t)c);
    return MGV_OK;
}

/* Proves the schedule before it is launched. All CTAs take their tiles from one list in its order, so it cannot deadlock if every tile
   waits only for signals of tiles before it; and every value is whole if it waits for all of them. counts: plan->counter_count words of
   scratch. */
static mgv_result mgv__plan_validate(const mgv__plan *plan, uint32_t *counts, mgv_error *error) {
    uint32_t s, tile, cta;
    mgv_result result = mgv__plan_check_room(plan, error);
    if (result == MGV_OK) result = mgv__plan_check_flags(plan, error);
    if (result == MGV_OK) result = mgv__plan_check_reuse(plan, error);
    if (result == MGV_OK) result = mgv__plan_check_deal(plan, error);
    memset(counts, 0, plan->counter_count * sizeof *counts);
    for (s = 0; s < plan->segment_count && result == MGV_OK; s++) {
        const mgv__kernel_segment *segment = &plan->segments[s];
        const mgv__kernel_op *k = &plan->ops[segment->op].kernel;
        for (tile = segment->first_tile; tile < segment[1].first_tile && result == MGV_OK; tile++)
            for (cta = 0; cta < mgv__regimes[plan->regime].cluster && result == MGV_OK; cta++)
                result = mgv__plan_check_tile(plan, segment, segment->first_unit + (tile - segment->first_tile) / k->column_tiles, cta,
                                              counts, error);
    }
    return result;
}

/* --- packed weights ------------------------------------------------------------------------------------------- */

static uint32_t mgv__f32_bits(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }
static float mgv__bits_f32(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }
/* To nearest, ties to even. Weights are finite. */
static uint16_t mgv__bf16_round(float f) {
    uint32_t u = mgv__f32_bits(f);
    return (uint16_t)((u + 0x7FFFu + (u >> 16 & 1u)) >> 16);
}
static float mgv__bf16_value(uint16_t h) { return mgv__bits_f32((uint32_t)h << 16); }
static float mgv__f16_value(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h >> 10 & 31u, fraction = h & 1023u;
    if (exponent == 31) return mgv__bits_f32(sign | 0x7F800000u | fraction << 13);
    if (exponent == 0) return mgv__bits_f32(sign | mgv__f32_bits((float)fraction * 5.9604644775390625e-8f)); /* 2^-24 */
    return mgv__bits_f32(sign | (exponent + 112) << 23 | fraction << 13);
}
/* Element i of a tensor of F32, F16 or BF16. */
static float mgv__tensor_value(const mgv__tensor *tensor, uint64_t i) {
    const unsigned char *bytes = (const unsigned char *)tensor->data;
    uint16_t h;
    float f;
    if (tensor->dtype == MGV_DTYPE_F32) {
        memcpy(&f, bytes + i * 4, 4);
        return f;
    }
    memcpy(&h, bytes + i * 2, 2);
    return tensor->dtype == MGV_DTYPE_BF16 ? mgv__bf16_value(h) : mgv__f16_value(h);
}

typedef struct mgv__packer {
    const mgv__plan *plan;
    const mgv__tensor *tensors;
    uint16_t *weights;
    float *vectors;
} mgv__packer;

static float mgv__packer_bias(const mgv__packer *p, uint32_t tensor, uint32_t i) {
    return tensor == MGV__NO_TENSOR ? 0 : mgv__tensor_value(&p->tensors[tensor], i);
}

/* The next bf16 towards zero (away 0) or away from it (away 1). */
static uint16_t mgv__bf16_neighbour(uint16_t h, int away) { return (uint16_t)(away ? h + 1 : h - 1); }

/* How far a rounded value is from the exact one, and the step to its neighbour beyond that. */
static double mgv__pack_error(uint16_t h, double exact, double *step) {
    const float value = mgv__bf16_value(h);
    const double error = value - exact;
    *step = (double)mgv__bf16_value(mgv__bf16_neighbour(h, (error > 0) == (value < 0))) - value;
    return error;
}

/* Rounds a row of weights whose exact sum is zero so that the rounded sum is zero too, as nearly as bf16 allows: rounding to nearest leaves
   a sum of some ulps, and those values take their other neighbour to which it costs least. Then a norm's mean cancels in the product,
   whatever it is. */
static void mgv__pack_centred(uint16_t *out, const double *exact, uint32_t count) {
    double sum = 0, least, errors[MGV__PLAN_MAX_WIDTH], steps[MGV__PLAN_MAX_WIDTH];
    uint32_t k;
    for (k = 0; k < count; k++) {
        out[k] = mgv__bf16_round((float)exact[k]);
        sum += mgv__bf16_value(out[k]);
        errors[k] = mgv__pack_error(out[k], exact[k], &steps[k]);
    }
    for (least = 0.45; least > 0; least -= 0.05) /* of an ulp: how far the rounding must have gone the same way as the sum */
        for (k = 0; k < count; k++) {
            /* most: what is told from their sign comes last */
            if (fabs(steps[k]) > 1.5 * fabs(sum) || fabs(errors[k]) < least * fabs(steps[k])) continue;
            if ((errors[k] > 0) != (sum > 0) || (out[k] & 0x7FFFu) == 0) continue;
            out[k] = mgv__bf16_neighbour(out[k], (steps[k] > 0) == (mgv__bf16_value(out[k]) > 0));
            sum += steps[k];
            errors[k] = mgv__pack_error(out[k], exact[k], &steps[k]);
        }
}

/* Softmax is exp(x) = 2^(x log2 e). The kernels take powers of two of scores as they are: what scores are multiplied by is in the weights,
   of attention in those of the queries. A float that is 1 / sqrt(head_dim) but for its rounding stands for that number. */
static double mgv__pack_softmax_scale(double scale) { return scale * 1.4426950408889634; }
static double mgv__pack_query_scale(const mgv__plan *plan) {
    const double exact = 1 / sqrt((double)plan->head_dim);
    return mgv__pack_softmax_scale(fabs(plan->scale - exact) < 1e-6 * exact ? exact : plan->scale);
}

/* What row `row` of a product's weights is multiplied by: queries, the first third of what attention reads, by the scale of their softmax.
   GELU takes half of its argument. LayerScale is a factor of its own, behind the bias: it takes both. */
static double mgv__pack_scale(const mgv__packer *p, const mgv__plan_op *op, uint32_t row) {
    const mgv__plan *plan = p->plan;
    const uint32_t channel_scale = plan->program->ops[op->end - 1].channel_scale;
    if (op->kernel.flags & MGV__KERNEL_GELU_TANH) return 0.5;
    if (op->target == MGV__DEVICE_QKV && row < op->kernel.columns / 3) return mgv__pack_query_scale(plan);
    return channel_scale == MGV__NO_TENSOR ? 1 : mgv__tensor_value(&p->tensors[channel_scale], row);
}

/* Row `target_row` of a product's weights with its bias. A norm before the product is folded in: weights times gamma, the share of beta in
   the bias, and the row centred, since sum_k w_k (x_k - mean) = sum_k (w_k - mean of w) x_k; what is left to the kernel is 1 / standard
   deviation. gamma NULL: no norm. */
static void mgv__pack_row(const mgv__packer *p, const mgv__plan_op *op, uint32_t target_row, const mgv__tensor *weight,
                          uint64_t weight_row, float bias, const mgv__tensor *gamma, const mgv__tensor *beta) {
    const mgv__plan *plan = p->plan;
    const uint32_t inner = plan->pack_columns[op->pack];
    uint16_t *out = p->weights + plan->pack_offset[op->pack] / 2 + (uint64_t)(op->kernel.b_row + target_row) * plan->pack_pitch[op->pack];
    const double scale = mgv__pack_scale(p, op, target_row);
    double mean = 0, shift = bias, centred[MGV__PLAN_MAX_WIDTH];
    uint32_t k;
    for (k = 0; k < inner && !gamma; k++) out[k] = mgv__bf16_round((float)(mgv__tensor_value(weight, weight_row * inner + k) * scale));
    for (k = 0; k < inner && gamma; k++) {
        const double w = mgv__tensor_value(weight, weight_row * inner + k);
        shift += w * mgv__tensor_value(beta, k);
        centred[k] = w * mgv__tensor_value(gamma, k) * scale;
        mean += centred[k] / inner;
    }
    for (k = 0; k < inner && gamma; k++) centred[k] -= mean;
    if (gamma) mgv__pack_centred(out, centred, inner);
    p->vectors[op->kernel.bias + target_row] = (float)(shift * scale);
}

/* A product whose weights are those of the model's last operation that it stands for, part after part. */
static void mgv__pack_product(const mgv__packer *p, const mgv__plan_op *op) {
    const mgv__op *from = &p->plan->program->ops[op->end - 1];
    const mgv__op *norm = op->norm == MGV__NO_OP ? NULL : &p->plan->program->ops[op->norm];
    const mgv__tensor *gamma = norm ? &p->tensors[norm->weight[0]] : NULL, *beta = norm ? &p->tensors[norm->bias[0]] : NULL;
    uint32_t part, row, target_row = 0;
    for (part = 0; part < from->part_count; part++) {
        const uint32_t first = mgv__op_part_row(from, part);
        for (row = first; row < first + from->part_columns[part]; row++, target_row++)
            mgv__pack_row(p, op, target_row, &p->tensors[from->weight[part]], row, mgv__packer_bias(p, from->bias[part], row), gamma, beta);
    }
}

/* Patch embedding: from (channel, y, x) to (y, x, channel), the order of pixels in memory; A holds the bytes themselves, so value = byte *
   rescale / std - mean / std goes into weights and bias. */
static void mgv__pack_patches(const mgv__packer *p, const mgv__plan_op *op) {
    const mgv__plan *plan = p->plan;
    const mgv__op *from = &plan->program->ops[op->end - 1];
    const mgv__pixels_config *pixels = &plan->config->pixels;
    const mgv__tensor *weight = &p->tensors[from->weight[0]], *table = &p->tensors[from->table];
    const uint32_t patch = plan->config->patch, area = patch * patch;
    const double rescale = pixels->do_rescale ? pixels->rescale_factor : 1;
    uint32_t row, i, channel;
    for (row = 0; row < op->kernel.columns; row++) {
        uint16_t *out = p->weights + plan->pack_offset[op->pack] / 2 + (uint64_t)(op->kernel.b_row + row) * plan->pack_pitch[op->pack];
        double bias = mgv__packer_bias(p, from->bias[0], row);
        for (channel = 0; channel < 3; channel++) {
            const double scale = rescale / (pixels->do_normalize ? pixels->std[channel] : 1),
                         zero = pixels->do_normalize ? pixels->mean[channel] / rescale : 0;
            for (i = 0; i < area; i++) {
                uint16_t *w = &out[i * 3 + channel];
                *w = mgv__bf16_round((float)(mgv__tensor_value(weight, ((uint64_t)row * 3 + channel) * area + i) * scale));
                bias -= mgv__bf16_value(*w) * (zero - (int)MGV__PIXEL_MIDDLE);
            }
        }
        p->vectors[op->kernel.bias + row] = (float)bias;
    }
    for (i = 0; i < plan->tokens * op->kernel.columns; i++) p->vectors[op->kernel.table + i] = mgv__tensor_value(table, i);
}

/* Gamma and beta of the last norm, for the pooling head's sums and for token outputs. */
static void mgv__pack_norm(const mgv__packer *p) {
    const mgv__op *norm = &p->plan->program->ops[p->plan->norm_op];
    const uint32_t width = p->plan->width;
    float *out = p->vectors + p->plan->norm;
    uint32_t k;
    for (k = 0; k < width; k++) {
        out[k] = mgv__tensor_value(&p->tensors[norm->weight[0]], k);
        out[width + k] = mgv__tensor_value(&p->tensors[norm->bias[0]], k);
    }
}

/* The pooling head's scoring vectors: u_h = Wk_h^T (Wq_h probe + bq_h) scale log2 e, times the last norm's gamma. What is the same for all
   tokens is left out. As the weights of a product with a folded norm they are centred; otherwise their sums are kept. */
static void mgv__pack_scores(const mgv__packer *p, const mgv__plan_op *op) {
    const mgv__plan *plan = p->plan;
    const mgv__op *from = &plan->program->ops[op->end - 1], *norm = &plan->program->ops[op->norm];
    const uint32_t width = plan->width, head_dim = plan->head_dim, pack = op->pack;
    const mgv__tensor *in = &p->tensors[from->weight[0]], *probe = &p->tensors[from->probe], *gamma = &p->tensors[norm->weight[0]];
    uint32_t head, j, k;
    for (head = 0; head < plan->heads; head++) {
        uint16_t *out = p->weights + plan->pack_offset[pack] / 2 + (uint64_t)(op->kernel.b_row + head) * plan->pack_pitch[pack];
        double sum = 0, mean = 0, u[MGV__PLAN_MAX_WIDTH];
        for (k = 0; k < width; k++) u[k] = 0;
        for (j = head * head_dim; j < (head + 1) * head_dim; j++) {
            double q = mgv__packer_bias(p, from->bias[0], j);
            for (k = 0; k < width; k++) q += (double)mgv__tensor_value(in, (uint64_t)j * width + k) * mgv__tensor_value(probe, k);
            for (k = 0; k < width; k++) u[k] += q * mgv__tensor_value(in, (uint64_t)(width + j) * width + k);
        }
        for (k = 0; k < width; k++) {
            u[k] *= mgv__pack_softmax_scale(from->scale) * mgv__tensor_value(gamma, k);
            mean += u[k] / width;
        }
        if (op->kernel.flags & MGV__KERNEL_FOLD_NORM) {
            for (k = 0; k < width; k++) u[k] -= mean;
            mgv__pack_centred(out, u, width);
            continue;
        }
        for (k = 0; k < width; k++) {
            out[k] = mgv__bf16_round((float)u[k]);
            sum += mgv__bf16_value(out[k]);
        }
        p->vectors[op->kernel.column_sums + head] = (float)sum;
    }
}

/* Device memory that an engine takes, with room to align its start. */
enum { MGV__DEVICE_ALIGNMENT = 256 };
static uint64_t mgv__plan_device_bytes(const mgv__plan *plan) { return plan->arena_bytes + MGV__DEVICE_ALIGNMENT - 1; }

/* What is packed is one block, as it lies in the arena: vectors, and from a multiple of 1024 bytes on the weights. */
static uint64_t mgv__plan_packed_bytes(const mgv__plan *plan) { return plan->weights_offset - plan->vectors_offset + plan->weight_bytes; }

/* The pooling head's values: the last third of its projection. */
static void mgv__pack_values(const mgv__packer *p, const mgv__plan_op *op) {
    const mgv__op *from = &p->plan->program->ops[op->end - 1];
    uint32_t row;
    for (row = 0; row < op->kernel.columns; row++) {
        const uint32_t in_row = 2 * op->kernel.columns + row;
        mgv__pack_row(p, op, row, &p->tensors[from->weight[0]], in_row, mgv__packer_bias(p, from->bias[0], in_row), NULL, NULL);
    }
}

/* Fills `packed`, mgv__plan_packed_bytes long. */
static void mgv__plan_pack(const mgv__plan *plan, const mgv__tensor *tensors, uint8_t *packed) {
    mgv__packer p;
    uint32_t i;
    p.plan = plan;
    p.tensors = tensors;
    p.vectors = (float *)(void *)packed;
    p.weights = (uint16_t *)(void *)(packed + (plan->weights_offset - plan->vectors_offset));
    memset(packed, 0, (size_t)mgv__plan_packed_bytes(plan));
    if (plan->norm_op != MGV__NO_OP) mgv__pack_norm(&p);
    for (i = 0; i < plan->op_count; i++)
        switch (plan->ops[i].packs) {
        case MGV__PACKS_PATCHES: mgv__pack_patches(&p, &plan->ops[i]); break;
        case MGV__PACKS_PRODUCT: mgv__pack_product(&p, &plan->ops[i]); break;
        case MGV__PACKS_SCORES: mgv__pack_scores(&p, &plan->ops[i]); break;
        case MGV__PACKS_VALUES: mgv__pack_values(&p, &plan->ops[i]); break;
        default: break;
        }
}

#endif /* MEGAVIT_CUDA || MEGAVIT_PLAN */

/* ---------------------------------------------------------------------------------------------------------------
   >>schedule: what a plan costs, on any machine

   A model of time that is simple enough to be checked by hand: it says where time should go, and a measurement that differs says where to
   look. A tile takes the longest of three, as if all in it overlapped: its matrix work; the bytes that its multiprocessor draws from L2;
   its share of the operation's bytes from memory. To that come its start and end, which its own loads and products do not hide. A pass over
   all tiles in the order of the list has each begin when its cluster, which takes tiles in turn or as they are dealt by such a pass
   (mgv__plan_deal), has done the tile before, and one handoff behind the last tile that writes its rows: stores drained, a counter seen on
   another multiprocessor, the first load. Where that is less than the energy of all products at the card's power limit, the clock falls
   until it is not, so that is what is predicted.

   Bytes. L2: boxes that the loaders fetch (a cluster fetches weights once), residuals, statistics, tables, results. Memory: weights once
   for each group (once in all if they fit into L2), pixels, pooled rows, and the activations that an operation reads and writes in a group
   where these and its weights do not fit into L2 together. "plain" is the same work as separate passes over all pictures: each norm, table,
   activation and residual reads and writes its rows once more, scores and probabilities of attention are written and read, keys and values
   of the pooling head are formed. */
#if (defined(MEGAVIT_CUDA) && !defined(MEGAVIT_NO_CUDA)) || defined(MEGAVIT_PLAN)

/* One H200, measured: the clock under load, bytes a second from L2 to one multiprocessor when all draw, those of a copy from memory. */
#define MGV__SCHEDULE_CLOCK_HZ 1.75e9
#define MGV__SCHEDULE_L2_BANDWIDTH 73e9
#define MGV__SCHEDULE_MEMORY_BANDWIDTH 4.27e12
#define MGV__SCHEDULE_L2_BYTES 50e6
#define MGV__SCHEDULE_HANDOFF_US 1.5
/* 592 images of SigLIP2-base take 38.4 ms at 700 W (BENCHMARKS.md) */
#define MGV__SCHEDULE_JOULES_A_FLOP 1.28e-12
#define MGV__SCHEDULE_WATTS 700.0
/* what a tile's end takes longer for GELU, a column, and for adding to the stream and its statistics, as stamped on an H200 */
#define MGV__SCHEDULE_GELU_CLOCKS 6.5
#define MGV__SCHEDULE_STREAM_CLOCKS 2000.0
#define MGV__SCHEDULE_FLOPS_A_CLOCK 4096.0 /* of one multiprocessor, bf16 */
#define MGV__SCHEDULE_PATCH_BYTES_A_CLOCK 10.0 /* read and written while bytes become patches */
/* tools/bench/feed.cu: rows that all CTAs load at once, rows of one CTA's own, and the sums of a DEEP tile through its cluster */
#define MGV__SCHEDULE_SHARED_BYTES_A_CLOCK 100.0
#define MGV__SCHEDULE_OWN_BYTES_A_CLOCK 44.0
#define MGV__SCHEDULE_EXCHANGE_CLOCKS 2100.0
#define MGV__SCHEDULE_MULTIPROCESSORS 132u
#define MGV__SCHEDULE_LATENCY_CLUSTERS 30u /* clusters of four that fit this card at once */

/* Multiprocessors that a schedule uses. */
static uint32_t mgv__schedule_sms(const mgv__plan *plan) { return plan->clusters * mgv__regimes[plan->regime].cluster; }

static double mgv__max_double(double a, double b) { return a > b ? a : b; }

static int mgv__is_gemm(const mgv__kernel_op *k) {
    return k->kind != MGV__KERNEL_PATCHES && !mgv__plan_is_attention(k->kind) && !mgv__plan_is_pool(k->kind);
}
/* A GEMM's tile: rows and columns of one CTA, and the columns of weights that its cluster fetches. */
typedef struct mgv__gemm_shape {
    uint32_t rows, columns, cluster_columns;
} mgv__gemm_shape;
static mgv__gemm_shape mgv__schedule_shape(const mgv__plan *plan, const mgv__kernel_op *k) {
    mgv__gemm_shape shape;
    shape.rows = k->kind == MGV__KERNEL_THIN ? (uint32_t)MGV__LATENCY_THIN_ROWS : mgv__plan_row_tile(plan);
    shape.columns = MGV__LATENCY_COLUMNS;
    if (plan->regime == MGV__THROUGHPUT && k->kind != MGV__KERNEL_GEMV)
        shape.columns = plan->maps[k->b_map].box[1] * MGV__CLUSTER; /* each CTA loads its share */
    if (k->kind == MGV__KERNEL_GEMV) {
        shape.rows = mgv__ceil_div(k->rows_total, 16) * 16;
        shape.columns = MGV__GEMV_COLUMNS(k->b_map);
        shape.cluster_columns = shape.columns * mgv__regimes[plan->regime].cluster;
        return shape;
    }
    shape.cluster_columns = k->kind == MGV__KERNEL_WIDE ? shape.columns * (uint32_t)MGV__LATENCY_CLUSTER : shape.columns;
    return shape;
}
static mgv__tile_clocks mgv__schedule_gemm(const mgv__plan *plan, const mgv__kernel_op *k, mgv__gemm_shape shape) {
    mgv__tile_clocks clocks;
    /* bytes of a block of K, from L2 to this CTA */
    const double activations = 128.0 * shape.rows,
                 weights = 128.0 * shape.columns / (k->kind == MGV__KERNEL_THIN ? (uint32_t)MGV__LATENCY_CLUSTER : 1u);
    if (mgv__split_columns(k->kind)) return mgv__split_clocks(shape.columns, k->k_blocks);
    if (k->kind == MGV__KERNEL_GEMV) {
        clocks.matrix = 0;
        clocks.feed = k->k_blocks * 16.0 * (shape.rows + shape.columns) / 32;
        clocks.edge = 4000; /* most of it code that runs once an encode */
        return clocks;
    }
    if (plan->regime == MGV__THROUGHPUT) {
        clocks = mgv__gemm_clocks(shape.columns, k->k_blocks);
        if (k->flags & MGV__KERNEL_GELU_TANH) clocks.edge += MGV__SCHEDULE_GELU_CLOCKS * shape.columns;
        if (k->flags & MGV__KERNEL_STATS) clocks.edge += MGV__SCHEDULE_STREAM_CLOCKS;
        return clocks;
    }
    clocks.matrix = 2.0 * shape.rows * shape.columns * k->k_blocks * (uint32_t)MGV__GEMM_INNER / MGV__SCHEDULE_FLOPS_A_CLOCK;
    clocks.feed = k->k_blocks * (activations / MGV__SCHEDULE_SHARED_BYTES_A_CLOCK + weights / MGV__SCHEDULE_OWN_BYTES_A_CLOCK);
    clocks.edge = 2000 + (k->kind == MGV__KERNEL_DEEP ? MGV__SCHEDULE_EXCHANGE_CLOCKS : 0);
    return clocks;
}

/* Queries of one CTA's tile of attention, in whole blocks of 64. */
static uint32_t mgv__attention_queries(const mgv__plan *plan, const mgv__kernel_op *k) {
    const uint32_t all = mgv__ceil_div(plan->tokens, 64) * 64;
    if (plan->regime == MGV__LATENCY) return 64;
    return k->k_blocks == 1 ? all : mgv__min_u32(all, 128);
}
/* Keys of a tile and columns of a head, as they are multiplied. */
static uint32_t mgv__attention_keys(const mgv__plan *plan) {
    return mgv__plan_is_online(plan) ? mgv__ceil_div(plan->tokens, MGV__ONLINE_KEYS) * MGV__ONLINE_KEYS : plan->maps[MGV__MAP_KEYS].box[1];
}
static uint32_t mgv__attention_columns(const mgv__plan *plan) { return 64 + mgv__plan_rest_columns(plan); }

/* What one CTA's tile costs; flops: padding included. */
static mgv__tile_clocks mgv__schedule_tile(const mgv__plan *plan, const mgv__kernel_op *k, double *flops) {
    const double keys = mgv__attention_keys(plan), side = plan->config->image_size;
    const mgv__regime *regime = &mgv__regimes[plan->regime];
    const double sharers = (double)regime->cluster / regime->cluster_images; /* CTAs that work on one image where tiles are of images */
    mgv__tile_clocks clocks = {0, 0, 1000};
    *flops = 0;
    if (mgv__is_gemm(k)) {
        const mgv__gemm_shape shape = mgv__schedule_shape(plan, k);
        *flops = 2.0 * shape.rows * shape.columns * k->k_blocks * (k->kind == MGV__KERNEL_GEMV ? 8u : (uint32_t)MGV__GEMM_INNER);
        if (mgv__split_columns(k->kind)) *flops /= (uint32_t)MGV__CLUSTER;
        return mgv__schedule_gemm(plan, k, shape);
    }
    /* a byte in, two out, 3 channels; 45,000 clocks for 224 px on an H200 */
    if (k->kind == MGV__KERNEL_PATCHES) clocks.feed = side * side * 9 / k->column_tiles / sharers / MGV__SCHEDULE_PATCH_BYTES_A_CLOCK;
    if (mgv__plan_is_attention(k->kind)) {
        const double heads = mgv__plan_heads(k), queries = mgv__attention_queries(plan, k), columns = mgv__attention_columns(plan);
        *flops = heads * 4 * queries * keys * columns;
        clocks.feed = heads * (2 * keys + 2 * queries) * 2 * columns / 32;
        clocks.edge = 2500 + heads * queries * keys * (1.0 / 16 + 5.0 / 128); /* an exponential and five other instructions a score */
    }
    if (k->kind == MGV__KERNEL_POOL) {
        *flops = 4.0 * plan->maps[k->b_map].box[1] * keys * k->inner / sharers;
        clocks.feed = 2 * keys * k->inner * 2 / sharers / 32;
        clocks.edge = 5000;
    }
    if (k->kind == MGV__KERNEL_POOL_TOKENS) {
        *flops = 4.0 * (uint32_t)MGV__POOL_TOKENS * (uint32_t)MGV__POOL_TOKENS_HEADS * k->inner;
        clocks.feed = (2.0 * (uint32_t)MGV__POOL_TOKENS + 6.0 * k->heads) * k->inner / 32;
        clocks.edge = 2000;
    }
    if (k->kind == MGV__KERNEL_POOL_HEADS) { /* tokens by the copy engine; weights of a quarter of the values lie ready */
        *flops = (4.0 * (uint32_t)MGV__POOL_SHARE + 2.0 * 64 / regime->cluster) * (uint32_t)MGV__POOL_HEADS * k->inner;
        clocks.feed = 2.0 * (uint32_t)MGV__POOL_SHARE * k->inner / MGV__SCHEDULE_SHARED_BYTES_A_CLOCK;
        clocks.edge = 4000; /* the exchange among it */
    }
    if (k->kind == MGV__KERNEL_POOL_JOIN) clocks.feed = 4.0 * mgv__plan_pool_parts_of(plan) * k->inner / 32;
    if (k->kind == MGV__KERNEL_POOL_SUMS) { /* the chunks of 64 columns of both math groups */
        const double tokens = mgv__ceil_div(plan->tokens, MGV__ONLINE_KEYS) * (double)MGV__ONLINE_KEYS;
        *flops = 2 * 64 * tokens * 64 * (uint32_t)MGV__MATH_GROUPS;
        clocks.feed = tokens * (k->inner / 8.0 + 4.0 * k->heads + 128) * (uint32_t)MGV__MATH_GROUPS / 32;
        clocks.edge = 5000 + tokens * 64 * (uint32_t)MGV__MATH_GROUPS * (1.0 / 16 + 5.0 / 128);
    }
    clocks.matrix = *flops / MGV__SCHEDULE_FLOPS_A_CLOCK;
    return clocks;
}

/* Bytes of an operation over `rows` rows of its own; tiles: those of one cluster. */
typedef struct mgv__schedule_bytes {
    double weights, source, target, residual;
    double l2;      /* all that passes between L2 and the multiprocessors */
    double statistics;
    double passes;  /* what comes to it when nothing is fused */
} mgv__schedule_bytes;

static mgv__schedule_bytes mgv__schedule_count(const mgv__plan *plan, const mgv__plan_op *op, double rows, double tiles) {
    const mgv__kernel_op *k = &op->kernel;
    const mgv__device_buffer *source = &plan->buffers[op->source], *target = &plan->buffers[op->target];
    const double images = rows / plan->tokens, scores = 2.0 * k->heads * plan->tokens * rows;
    mgv__schedule_bytes b;
    memset(&b, 0, sizeof b);
    if (k->column_tiles == 0) return b;
    b.source = rows * source->columns * source->element_bytes;
    b.target = rows * target->columns * target->element_bytes;
    if (mgv__plan_is_pool_few(k->kind)) {
        const double parts = images * mgv__plan_pool_parts_of(plan), sums = parts * plan->buffers[MGV__DEVICE_PARTS].columns * 4.0;
        if (k->kind == MGV__KERNEL_POOL_TOKENS) {
            b.weights = 2.0 * k->heads * k->inner;
            b.target = sums;
            b.l2 = b.source + parts * b.weights;
            b.statistics = rows * k->inner / 8;
            b.passes = 3 * b.source; /* the norm; keys and values written and read */
        } else if (k->kind == MGV__KERNEL_POOL_HEADS) {
            b.weights = 2.0 * (k->heads + k->inner) * k->inner;
            b.target = images * target->columns * target->element_bytes;
            b.l2 = b.source * k->column_tiles + images * b.weights;
            b.statistics = rows * k->inner / 8 * k->column_tiles;
            b.passes = 3 * b.source;
        } else {
            b.l2 = b.source = sums;
            b.target = images * target->columns * target->element_bytes;
        }
    } else if (mgv__is_gemm(k)) {
        b.weights = 2.0 * k->columns * plan->pack_pitch[op->pack];
        b.l2 = 2.0 * rows * plan->pack_columns[op->pack] * k->column_tiles *
               (k->kind == MGV__KERNEL_WIDE ? (uint32_t)MGV__LATENCY_CLUSTER : 1);
        b.l2 += 2.0 * tiles * mgv__schedule_shape(plan, k).cluster_columns * plan->pack_pitch[op->pack];
        if (k->flags & MGV__KERNEL_RESIDUAL) b.residual = 2.0 * rows * target->columns;
        if (k->flags & MGV__KERNEL_FOLD_NORM) b.statistics += rows * k->inner / 8 * k->column_tiles, b.passes += 2 * b.source;
        if (k->flags & MGV__KERNEL_STATS) b.statistics += rows * k->columns / 8;
        if (k->flags & MGV__KERNEL_TABLE) b.l2 += 4.0 * rows * k->columns, b.passes += 2 * b.target;
        if (k->flags & MGV__KERNEL_GELU_TANH) b.passes += 2 * b.target;
        if (k->flags & MGV__KERNEL_RESIDUAL) b.passes += 2 * b.target;
    } else if (k->kind == MGV__KERNEL_PATCHES) {
        b.source = images * plan->config->image_size * plan->config->image_size * plan->config->channels;
        b.l2 = b.source;
    } else if (mgv__plan_is_attention(k->kind)) {
        /* a tile has some queries of a head, and all its keys and values; a cluster of the latency regime shares them */
        b.l2 = 2.0 * rows * k->inner * (1 + 2 * (plan->regime == MGV__LATENCY ? 1 : k->k_blocks));
        b.passes = 4 * scores;
    } else {
        const double stream = 2.0 * rows * k->inner; /* twice, or here once: the scores' product has read it before */
        b.target = images * target->columns * target->element_bytes;
        if (k->kind == MGV__KERNEL_POOL) b.weights = 2.0 * k->heads * k->inner;
        b.l2 = k->kind == MGV__KERNEL_POOL ? 2 * stream + images * 2.0 * plan->maps[k->b_map].box[1] * k->inner
                                           : stream + b.source * (uint32_t)MGV__MATH_GROUPS * k->column_tiles;
        b.statistics = rows * k->inner / 8 * (uint32_t)MGV__MATH_GROUPS * k->column_tiles;
        b.passes = 2 * stream + 4 * stream; /* the norm; keys and values written and read */
    }
    b.l2 += b.target + b.residual + b.statistics;
    return b;
}

/* Of the bytes, those that come from memory or go there. */
static double mgv__schedule_memory(const mgv__plan *plan, const mgv__plan_op *op, const mgv__schedule_bytes *b, double passes) {
    double bytes = 0;
    if (b->weights + b->source + b->target > MGV__SCHEDULE_L2_BYTES) bytes = b->source + b->target + b->residual + passes;
    else if (op->kernel.kind == MGV__KERNEL_PATCHES) bytes = b->source;
    else if (op == &plan->ops[plan->op_count - 1]) bytes = b->target;
    return bytes;
}

/* FLOPs of the numbers that the operation has to find: no padding. */
static double mgv__schedule_flops(const mgv__plan *plan, const mgv__plan_op *op) {
    const mgv__kernel_op *k = &op->kernel;
    const double pooled = 4.0 * k->rows_total * k->heads * k->inner;
    if (k->column_tiles == 0) return 0;
    if (mgv__is_gemm(k)) return 2.0 * k->rows_total * k->columns * plan->pack_columns[op->pack];
    if (mgv__plan_is_attention(k->kind)) return 4.0 * k->rows_total * plan->tokens * k->inner;
    if (k->kind == MGV__KERNEL_POOL_SUMS) return 2.0 * k->rows_total * k->heads * k->inner; /* the scores have been counted */
    if (k->kind == MGV__KERNEL_POOL_HEADS) return pooled + 2.0 * k->rows_total / k->tokens * k->inner * k->inner;
    return k->kind == MGV__KERNEL_POOL || k->kind == MGV__KERNEL_POOL_TOKENS ? pooled : 0;
}

static void mgv__schedule_describe(const mgv__plan *plan, const mgv__plan_op *op, mgv_schedule_op *out) {
    const mgv__kernel_op *k = &op->kernel;
    const mgv__schedule_bytes b = mgv__schedule_count(plan, op, k->rows_total, 0);
    memset(out, 0, sizeof *out);
    out->label = op->label;
    out->layer = op->layer;
    out->kind = k->kind == MGV__KERNEL_PATCHES ? "patches" : mgv__plan_is_pool(k->kind) ? "pool" : "product";
    out->tile_rows = mgv__is_gemm(k) ? mgv__schedule_shape(plan, k).rows : plan->tokens;
    out->tile_columns = mgv__is_gemm(k) ? mgv__schedule_shape(plan, k).columns : k->columns;
    if (k->kind == MGV__KERNEL_POOL_SUMS) out->tile_columns = 64 * (uint32_t)MGV__MATH_GROUPS;
    if (mgv__plan_is_attention(k->kind)) {
        out->kind = "attention";
        out->tile_rows = mgv__attention_queries(plan, k);
        out->tile_columns = mgv__plan_heads(k) * plan->head_dim;
    }
    out->flops = mgv__schedule_flops(plan, op);
    out->plain_l2_bytes = (uint64_t)(int64_t)(b.passes - b.statistics); /* may be less than 0: what its tiles move is added */
    out->plain_memory_bytes = (uint64_t)(b.weights + mgv__schedule_memory(plan, op, &b, b.passes));
}

/* Bytes from memory of one group of an operation. */
static double mgv__schedule_moves(const mgv__plan *plan, const mgv__kernel_segment *segment, const mgv__schedule_bytes *b) {
    const int weights_move = (double)plan->weight_bytes > MGV__SCHEDULE_L2_BYTES || segment->group == 0;
    return mgv__schedule_memory(plan, &plan->ops[segment->op], b, 0) + (weights_move ? b->weights : 0);
}
static double mgv__schedule_memory_us(const mgv__plan *plan, double bytes) {
    return bytes / (MGV__SCHEDULE_MEMORY_BANDWIDTH * mgv__schedule_sms(plan) / MGV__SCHEDULE_MULTIPROCESSORS) * 1e6;
}
static double mgv__schedule_rows(const mgv__kernel_segment *segment, const mgv__kernel_op *k) {
    return mgv__min_u32(k->rows_per_group, k->rows_total - segment->group * k->rows_per_group);
}

/* Adds what one group of an operation costs. */
static void mgv__schedule_add(const mgv__plan *plan, const mgv__kernel_segment *segment, mgv_schedule_op *out) {
    const mgv__plan_op *op = &plan->ops[segment->op];
    const mgv__kernel_op *k = &op->kernel;
    const uint32_t tiles = segment[1].first_tile - segment->first_tile;
    const uint32_t narrow = k->kind == MGV__KERNEL_GEMM_256 ? mgv__plan_narrow_tiles(tiles / k->column_tiles, k->columns, 256) : 0;
    const double us = 1e6 / MGV__SCHEDULE_CLOCK_HZ, waves = mgv__plan_waves(tiles - narrow / 2, plan->clusters);
    const mgv__schedule_bytes b = mgv__schedule_count(plan, op, mgv__schedule_rows(segment, k), tiles);
    const uint64_t memory = (uint64_t)mgv__schedule_moves(plan, segment, &b);
    double flops;
    const mgv__tile_clocks clocks = mgv__schedule_tile(plan, k, &flops);
    out->tiles += tiles;
    if (out->clusters < mgv__min_u32(tiles, plan->clusters)) out->clusters = mgv__min_u32(tiles, plan->clusters);
    out->waves += waves;
    out->tile_flops += flops * (tiles - narrow / 2.0) * mgv__regimes[plan->regime].cluster;
    out->l2_bytes += (uint64_t)b.l2;
    out->plain_l2_bytes += (uint64_t)b.l2;
    out->memory_bytes += memory;
    out->matrix_us += waves * clocks.matrix * us;
    out->l2_us += waves * clocks.feed * us;
    out->memory_us += mgv__schedule_memory_us(plan, (double)memory);
    out->edge_us += waves * clocks.edge * us;
    out->handoff_us += MGV__SCHEDULE_HANDOFF_US;
}

/* When everything happens, in microseconds from the start. */
typedef struct mgv__schedule_times {
    double *written; /* by counter: the last signal so far */
    double *vacant;  /* by cluster: the end of its last tile so far */
    double last;     /* the end of all tiles so far */
    int deals;       /* tiles are being dealt: else each has its cluster */
    uint32_t order[MGV__PLAN_DEAL_CLUSTERS]; /* of the clusters, as they get vacant; of those that do at the same time the last first */
} mgv__schedule_times;

/* A tile of this kind, from its start to its signal, where bytes from memory take no time: so tiles are dealt. */
static double mgv__schedule_tile_alone_us(const mgv__plan *plan, const mgv__kernel_op *k) {
    double flops;
    const mgv__tile_clocks clocks = mgv__schedule_tile(plan, k, &flops);
    return (mgv__max_double(clocks.matrix, clocks.feed) + clocks.edge) * 1e6 / MGV__SCHEDULE_CLOCK_HZ;
}
/* A tile of this kind, from its start to its signal. */
static double mgv__schedule_tile_us(const mgv__plan *plan, const mgv__kernel_segment *segment, const mgv__kernel_op *k) {
    const uint32_t tiles = segment[1].first_tile - segment->first_tile;
    const mgv__schedule_bytes b = mgv__schedule_count(plan, &plan->ops[segment->op], mgv__schedule_rows(segment, k), tiles);
    const double us = 1e6 / MGV__SCHEDULE_CLOCK_HZ, memory_us = mgv__schedule_memory_us(plan, mgv__schedule_moves(plan, segment, &b));
    const double share_us = memory_us * mgv__min_u32(tiles, plan->clusters) / tiles; /* so many tiles draw at once */
    double flops;
    const mgv__tile_clocks clocks = mgv__schedule_tile(plan, k, &flops);
    return mgv__max_double(mgv__max_double(clocks.matrix, clocks.feed) * us, share_us) + clocks.edge * us;
}

/* The place in the order of clusters of the one that a tile is dealt to whose rows are there at `ready`: of those that are free by then the
   one that has been for the shortest time, so that the others are left for tiles that need not wait; if none is, the first that will be. */
static uint32_t mgv__schedule_choose(const mgv__schedule_times *times, uint32_t clusters, double ready) {
    uint32_t least = 0, beyond = clusters; /* clusters before the first are free, those from the second on are not */
    if (times->vacant[times->order[0]] > ready) ready = times->vacant[times->order[0]];
    while (least < beyond) {
        const uint32_t middle = (least + beyond) / 2;
        if (times->vacant[times->order[middle]] <= ready) least = middle + 1;
        else beyond = middle;
    }
    return least - 1;
}
/* The cluster at this place is vacant later than before. */
static void mgv__schedule_reorder(mgv__schedule_times *times, uint32_t clusters, uint32_t place) {
    const uint32_t cluster = times->order[place];
    uint32_t low = place + 1, high = clusters; /* clusters before the first are vacant before this one, those from the second on are not */
    while (low < high) {
        const uint32_t middle = (low + high) / 2, other = times->order[middle];
        if (times->vacant[other] < times->vacant[cluster] || (times->vacant[other] == times->vacant[cluster] && other > cluster))
            low = middle + 1;
        else high = middle;
    }
    memmove(&times->order[place], &times->order[place + 1], (low - 1 - place) * sizeof *times->order);
    times->order[low - 1] = cluster;
}

/* What tiles of one unit of rows wait for, and the counters that they signal. */
typedef struct mgv__schedule_unit {
    double ready;
    uint32_t signals[MGV__LATENCY_CLUSTER], count; /* 0: it has no rows */
} mgv__schedule_unit;
static mgv__schedule_unit mgv__schedule_find_unit(const mgv__plan *plan, const mgv__kernel_segment *segment, uint32_t number,
                                                  const double *written) {
    const mgv__plan_op *op = &plan->ops[segment->op];
    const mgv__kernel_op *k = &op->kernel;
    mgv__schedule_unit unit;
    uint32_t first, behind, cta, i;
    unit.ready = 0;
    unit.count = 0;
    for (cta = 0; cta < mgv__regimes[plan->regime].cluster; cta++) {
        mgv__plan_tile_rows(plan, k, segment->group, number, cta, &first, &behind);
        if (first >= behind) continue;
        unit.signals[unit.count++] = mgv__plan_signal_of(plan, op, segment->group, first);
        if (!k->wait_divisor) continue;
        for (i = mgv__plan_wait_of(k, segment->group, first); i <= mgv__plan_wait_of(k, segment->group, behind - 1); i++)
            unit.ready = mgv__max_double(unit.ready, written[i] + MGV__SCHEDULE_HANDOFF_US);
    }
    return unit;
}

/* One tile, behind the tile before it on its cluster and behind its rows. A tile without rows only keeps its cluster's turn. */
static void mgv__schedule_run_tile(const mgv__plan *plan, const mgv__schedule_unit *unit, uint32_t tile, double us,
                                   mgv__schedule_times *times) {
    const uint32_t place = times->deals ? mgv__schedule_choose(times, plan->clusters, unit->ready) : 0;
    uint32_t taker, i;
    double end;
    if (times->deals) plan->tile_cluster[tile] = (uint16_t)times->order[place];
    if (!unit->count) return;
    taker = plan->dealt ? plan->tile_cluster[tile] : tile % plan->clusters;
    end = times->vacant[taker] = mgv__max_double(times->vacant[taker], unit->ready) + us;
    if (times->deals) mgv__schedule_reorder(times, plan->clusters, place);
    times->last = mgv__max_double(times->last, end);
    for (i = 0; i < unit->count; i++) times->written[unit->signals[i]] = mgv__max_double(times->written[unit->signals[i]], end);
}

/* Numbers of scratch that a run takes. */
static uint32_t mgv__schedule_scratch(const mgv__plan *plan) { return plan->counter_count + plan->clusters; }

/* Runs all tiles in the order of the list: what each operation adds, and the sum. ops NULL: it deals them. */
static double mgv__schedule_run(const mgv__plan *plan, mgv_schedule_op *ops, double *scratch) {
    mgv__schedule_times times;
    mgv__schedule_unit unit = {0, {0}, 0};
    uint32_t s, tile;
    times.written = scratch;
    times.vacant = scratch + plan->counter_count;
    times.last = 0;
    times.deals = !ops;
    for (s = 0; s < mgv__schedule_scratch(plan); s++) scratch[s] = 0;
    for (s = 0; times.deals && s < plan->clusters; s++) times.order[s] = plan->clusters - 1 - s;
    for (s = 0; s < plan->segment_count; s++) {
        const mgv__kernel_segment *segment = &plan->segments[s];
        const mgv__kernel_op *k = &plan->ops[segment->op].kernel;
        const double before = times.last,
                     us = times.deals ? mgv__schedule_tile_alone_us(plan, k) : mgv__schedule_tile_us(plan, segment, k);
        mgv__kernel_op last = *k;
        double last_us;
        /* as narrow_last_tile in kernels/skeleton/scheduler.cuh */
        if (k->kind == MGV__KERNEL_GEMM_256 && mgv__plan_narrow_tiles(1, k->columns, 256)) {
            last.kind = MGV__KERNEL_GEMM_128;
            last.b_map++;
        }
        last_us = times.deals ? mgv__schedule_tile_alone_us(plan, &last) : mgv__schedule_tile_us(plan, segment, &last);
        for (tile = segment->first_tile; tile < segment[1].first_tile; tile++) {
            const uint32_t column = (tile - segment->first_tile) % k->column_tiles;
            if (column == 0)
                unit = mgv__schedule_find_unit(plan, segment, segment->first_unit + (tile - segment->first_tile) / k->column_tiles,
                                               times.written);
            mgv__schedule_run_tile(plan, &unit, tile, column + 1 < k->column_tiles ? us : last_us, &times);
        }
        if (ops) ops[segment->op].us += times.last - before;
    }
    return times.last;
}

/* Deals the tiles of a schedule: in the order of the list each goes to the cluster that can begin it first, by the pass above. In turn, a
   cluster that has had a longer tile than the others has the next one as soon as they, and all wait for the last. Each cluster's list is
   still a part of the order of all. H200: 592 images -1.3%, 64 -1.8%, with tiles of 256 columns throughout (kernels/NOTES.md,
   tiles dealt one by one, which says what it takes the host, too). */
static void mgv__plan_deal(mgv__plan *plan) {
    const uint32_t tiles = plan->segments[plan->segment_count].first_tile, rows = plan->images * plan->tokens;
    uint32_t next[MGV__PLAN_DEAL_CLUSTERS], at = plan->clusters, tile, c;
    plan->dealt = plan->regime == MGV__THROUGHPUT && tiles <= plan->max_tiles &&
                  mgv__plan_worth_dealing(plan, mgv__ceil_div(rows, MGV__GEMM_ROWS));
    if (!plan->dealt) return;
    mgv__schedule_run(plan, NULL, plan->times);
    memset(next, 0, sizeof next);
    for (tile = 0; tile < tiles; tile++) next[plan->tile_cluster[tile]]++;
    for (c = 0; c < plan->clusters; c++) { /* lists follow each other, each with room for its end */
        plan->deal[c] = at;
        at += next[c] + 1;
        next[c] = plan->deal[c];
        plan->deal[at - 1] = MGV__NO_TILE;
    }
    for (tile = 0; tile < tiles; tile++) plan->deal[next[plan->tile_cluster[tile]]++] = tile;
}

static mgv_schedule_part mgv__schedule_part(const char *name, uint32_t count, uint32_t each) {
    mgv_schedule_part part;
    part.name = name;
    part.count = count;
    part.each = each;
    return part;
}

static void mgv__schedule_budgets(const mgv__plan *plan, mgv_schedule_info *info) {
    uint32_t i;
    if (plan->regime == MGV__LATENCY) {
        info->shared[0] = mgv__schedule_part("blocks of rows", MGV__LATENCY_ROW_STAGES, MGV__LATENCY_ROW_BYTES);
        info->shared[1] = mgv__schedule_part("blocks of weights", MGV__LATENCY_WEIGHT_STAGES, MGV__LATENCY_WEIGHT_BYTES);
        info->shared[2] = mgv__schedule_part("sums of the cluster, rows", 1,
                                             MGV__LATENCY_SUM_BYTES + MGV__LATENCY_SCALE_BYTES + MGV__LATENCY_SWAP_BYTES);
        info->shared[3] = mgv__schedule_part("tiles known ahead", MGV__SLOTS, (int)MGV__SLOT_BYTES + MGV__LATENCY_TILE_BYTES);
        info->shared[4] = mgv__schedule_part("norms, barriers", 1, MGV__LATENCY_BARRIER_BYTES);
        info->roles[0] = mgv__schedule_part("loaders, scheduler, norms", 128, MGV__LATENCY_COPY_REGISTERS);
    } else {
        info->shared[0] = mgv__schedule_part("stages of the ring", MGV__STAGES, MGV__STAGE_BYTES);
        info->shared[1] = mgv__schedule_part("chunks on their way out", MGV__MATH_GROUPS * MGV__CHUNKS, MGV__CHUNK_BYTES);
        info->shared[2] = mgv__schedule_part("biases, norms", 1, MGV__VECTOR_BYTES + MGV__NORM_BYTES);
        info->shared[3] = mgv__schedule_part("tiles known ahead", MGV__SLOTS, MGV__SLOT_BYTES);
        info->shared[4] = mgv__schedule_part("barriers", 1, MGV__BARRIER_BYTES);
        info->roles[0] = mgv__schedule_part("loader, scheduler, storers", 128, MGV__COPY_REGISTERS);
    }
    for (i = 0; i < MGV_SCHEDULE_SHARED_PARTS; i++) info->shared_bytes += info->shared[i].count * info->shared[i].each;
    info->shared_limit = MGV__MAX_SHARED_BYTES;
    info->roles[1] = mgv__schedule_part("math", 128 * MGV__MATH_GROUPS,
                                        plan->regime == MGV__LATENCY ? (uint32_t)MGV__LATENCY_MATH_REGISTERS
                                                                     : (uint32_t)MGV__MATH_REGISTERS);
    for (i = 0; i < MGV_SCHEDULE_ROLES; i++) info->registers += info->roles[i].count * info->roles[i].each;
    info->register_limit = MGV__MAX_REGISTERS;
}
MGV__STATIC_ASSERT((int)MGV__SHARED_BYTES <= (int)MGV__MAX_SHARED_BYTES && (int)MGV__LATENCY_SHARED_BYTES <= (int)MGV__MAX_SHARED_BYTES,
                   shared_memory_of_a_cta_fits);

static void mgv__schedule_bounds(const mgv__plan *plan, mgv_schedule_info *info) {
    const double all = mgv__schedule_sms(plan), side = plan->config->image_size;
    const double image = side * side * plan->config->channels + 4.0 * plan->width; /* bytes in and out */
    uint32_t i, chain = 0; /* operations that no other stands in for */
    for (i = 0; i < plan->op_count; i++) chain += plan->ops[i].kernel.column_tiles != 0;
    info->clock_hz = MGV__SCHEDULE_CLOCK_HZ;
    info->matrix_flops = all * MGV__SCHEDULE_FLOPS_A_CLOCK * MGV__SCHEDULE_CLOCK_HZ;
    info->l2_bandwidth = all * MGV__SCHEDULE_L2_BANDWIDTH;
    info->memory_bandwidth = MGV__SCHEDULE_MEMORY_BANDWIDTH * all / MGV__SCHEDULE_MULTIPROCESSORS;
    info->handoff_us = MGV__SCHEDULE_HANDOFF_US;
    info->joules_a_flop = MGV__SCHEDULE_JOULES_A_FLOP;
    info->watts = MGV__SCHEDULE_WATTS;
    info->memory_us = ((double)plan->weight_bytes + plan->images * image) / info->memory_bandwidth * 1e6;
    info->chain_us = chain * MGV__SCHEDULE_HANDOFF_US;
    info->floor_us = mgv__max_double(mgv__max_double(info->matrix_us, info->l2_us), info->memory_us) + info->chain_us;
}

/* A scheduled and proved plan -> what it costs. ops: room for as many as the plan has; scratch: as mgv__schedule_run. */
static void mgv__schedule_fill(const mgv__plan *plan, mgv_schedule_info *info, mgv_schedule_op *ops, double *scratch) {
    double flops = 0, tile_flops = 0, l2 = 0;
    uint32_t i;
    memset(info, 0, sizeof *info);
    info->op_count = plan->op_count;
    info->clusters = plan->clusters;
    info->regime = plan->regime == MGV__LATENCY ? "latency" : "throughput";
    info->kernel = mgv__kernels[mgv__plan_kernel(plan)].name;
    info->cluster_size = mgv__regimes[plan->regime].cluster;
    info->multiprocessors = mgv__schedule_sms(plan);
    info->groups = mgv__ceil_div(plan->images, plan->group_images);
    info->group_images = plan->group_images;
    info->tiles = plan->segments[plan->segment_count].first_tile;
    info->device_bytes = mgv__plan_device_bytes(plan);
    info->weight_bytes = plan->weight_bytes;
    mgv__schedule_budgets(plan, info);
    for (i = 0; i < plan->op_count; i++) mgv__schedule_describe(plan, &plan->ops[i], &ops[i]);
    for (i = 0; i < plan->segment_count; i++) mgv__schedule_add(plan, &plan->segments[i], &ops[plan->segments[i].op]);
    for (i = 0; i < plan->op_count; i++) {
        flops += ops[i].flops;
        tile_flops += ops[i].tile_flops;
        l2 += (double)ops[i].l2_bytes;
    }
    info->tiles_us = mgv__schedule_run(plan, ops, scratch);
    info->matrix_us = flops / (info->multiprocessors * MGV__SCHEDULE_FLOPS_A_CLOCK * MGV__SCHEDULE_CLOCK_HZ) * 1e6;
    info->l2_us = l2 / (info->multiprocessors * MGV__SCHEDULE_L2_BANDWIDTH) * 1e6;
    mgv__schedule_bounds(plan, info);
    info->power_us = tile_flops * info->joules_a_flop / info->watts * 1e6;
    info->us = mgv__max_double(info->tiles_us, info->power_us);
}

static void mgv__plan_free(const mgv_allocator *allocator, mgv__plan *plan) {
    if (!plan) return;
    mgv__free(allocator, plan->segments);
    mgv__free(allocator, plan->counts);
    mgv__free(allocator, plan->times);
    mgv__free(allocator, plan->tile_cluster);
    mgv__free(allocator, plan->deal);
    mgv__free(allocator, plan);
}

/* Room for the schedules of a plan that is laid out. mgv__plan_free frees it, whatever came of this. */
static mgv_result mgv__plan_take_room(const mgv_allocator *allocator, mgv__plan *plan, mgv_error *error) {
    const size_t times = (size_t)plan->counter_count + MGV__PLAN_DEAL_CLUSTERS,
                 words = (size_t)plan->max_tiles + 2 * MGV__PLAN_DEAL_CLUSTERS;
    plan->segments = (mgv__kernel_segment *)mgv__alloc(allocator, ((size_t)plan->max_segments + 1) * sizeof *plan->segments);
    plan->counts = (uint32_t *)mgv__alloc(allocator, (size_t)plan->counter_count * sizeof *plan->counts);
    plan->times = (double *)mgv__alloc(allocator, times * sizeof *plan->times);
    plan->tile_cluster = (uint16_t *)mgv__alloc(allocator, (size_t)plan->max_tiles * sizeof *plan->tile_cluster);
    plan->deal = (uint32_t *)mgv__alloc(allocator, words * sizeof *plan->deal);
    if (plan->segments && plan->counts && plan->times && plan->tile_cluster && plan->deal) return MGV_OK;
    return mgv__fail(error, MGV_ERROR_NOMEM, "out of memory for the schedule");
}

/* A plan with room for its schedules, or NULL. */
static mgv__plan *mgv__plan_make(const mgv_allocator *allocator, const mgv__config *config, const mgv__program *program,
                                 uint32_t max_images, mgv_result *result, mgv_error *error) {
    mgv__plan *plan = (mgv__plan *)mgv__alloc(allocator, sizeof *plan);
    if (!plan) {
        *result = mgv__fail_nomem(error, "a plan", sizeof *plan);
        return NULL;
    }
    (void)mgv__plan_want; /* without >>cuda nobody asks for rows */
    *result = mgv__plan_layout(plan, config, program, max_images, 0, error);
    if (*result == MGV_OK) *result = mgv__plan_take_room(allocator, plan, error);
    if (*result == MGV_OK) return plan;
    mgv__plan_free(allocator, plan);
    return NULL;
}

static mgv_result mgv__schedule_model(const mgv_model *model, const mgv_schedule_desc *desc, mgv_schedule_info *info, mgv_schedule_op *ops,
                                      uint32_t op_capacity, mgv_error *error) {
    const uint32_t images = desc->image_count ? desc->image_count : 1;
    const uint32_t sms = desc->multiprocessors ? desc->multiprocessors : MGV__SCHEDULE_MULTIPROCESSORS;
    mgv_result result;
    mgv__plan *plan;
    mgv_schedule_op *all = NULL;
    double *scratch = NULL;
    mgv_model_info about;
    if (sms < MGV__CLUSTER)
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "%u multiprocessors are fewer than the %u of one cluster", (uint64_t)sms,
                         (uint64_t)MGV__CLUSTER);
    plan = mgv__plan_make(&model->allocator, &model->config, &model->program, images, &result, error);
    if (!plan) return result;
    all = (mgv_schedule_op *)mgv__alloc(&model->allocator, plan->op_count * sizeof *all);
    if (!all) result = mgv__fail_nomem(error, "a schedule", plan->op_count * sizeof *all);
    if (mgv__plan_latency_supported(plan))
        plan->latency_clusters = mgv__min_u32(sms / MGV__LATENCY_CLUSTER, MGV__SCHEDULE_LATENCY_CLUSTERS);
    if (result == MGV_OK) mgv__plan_schedule(plan, images, sms / MGV__CLUSTER);
    if (result == MGV_OK) result = mgv__plan_validate(plan, plan->counts, error);
    if (result == MGV_OK && ops && op_capacity < plan->op_count)
        result = mgv__fail(error, MGV_ERROR_CAPACITY, "the schedule has %u operations; there is room for %u", (uint64_t)plan->op_count,
                           (uint64_t)op_capacity);
    if (result == MGV_OK) {
        scratch = (double *)mgv__alloc(&model->allocator, mgv__schedule_scratch(plan) * sizeof *scratch);
        if (!scratch) result = mgv__fail_nomem(error, "a schedule's times", mgv__schedule_scratch(plan) * sizeof *scratch);
    }
    if (result == MGV_OK) {
        mgv__schedule_fill(plan, info, all, scratch);
        mgv_model_get_info(model, &about);
        info->nominal_flops = about.flops_per_image * images;
        if (ops) memcpy(ops, all, plan->op_count * sizeof *all);
    }
    mgv__free(&model->allocator, scratch);
    mgv__free(&model->allocator, all);
    mgv__plan_free(&model->allocator, plan);
    return result;
}
#endif /* MEGAVIT_CUDA || MEGAVIT_PLAN */

MEGAVIT_API mgv_result mgv_model_get_schedule(const mgv_model *model, const mgv_schedule_desc *desc, mgv_schedule_info *info,
                                              mgv_schedule_op *ops, uint32_t op_capacity, mgv_error *error) {
    mgv_schedule_desc d;
    mgv_result result;
    mgv__clear_error(error);
    if (!model || !info) return mgv__fail(error, MGV_ERROR_ARGUMENT, "mgv_model_get_schedule: model or info is NULL");
    memset(info, 0, sizeof *info);
    result = mgv__take_struct(&d, sizeof d, desc, desc ? desc->struct_size : 0, "mgv_schedule_desc", error);
    if (result != MGV_OK) return result;
#if (defined(MEGAVIT_CUDA) && !defined(MEGAVIT_NO_CUDA)) || defined(MEGAVIT_PLAN)
    return mgv__schedule_model(model, &d, info, ops, op_capacity, error);
#else
    (void)ops;
    (void)op_capacity;
    return mgv__fail(error, MGV_ERROR_UNSUPPORTED, "this build of megavit knows no GPU schedules: define MEGAVIT_PLAN or MEGAVIT_CUDA");
#endif
}

/* ---------------------------------------------------------------------------------------------------------------
   >>packed: files of packed weights

   A header of 256 bytes and the block that mgv__plan_pack fills. Numbers are little-endian.

       0 magic   8 version of the format   12 bytes of the header   16 architecture, filled up with zeros
      32 MGV__PACK_VERSION   36 zero   40 bytes of the block   48 hash of the model   56 hash of the layout   64 hash of the block
      72 zeros   248 hash of the 248 bytes before

   Nothing in the block is an index or a size: whatever its bytes are, the kernel stays inside its buffers. */
#if (defined(MEGAVIT_CUDA) && !defined(MEGAVIT_NO_CUDA)) || defined(MEGAVIT_PLAN)

enum {
    MGV__PACKED_VERSION = 1,   /* of the header */
    MGV__PACK_VERSION = 4,     /* of what packed bytes mean; where they lie is in the hash of the layout */
    MGV__PACKED_HEADER = 256,
    MGV__PACKED_ARCHITECTURE = 16
};
/* As PNG's: shows files that went through text mode. */
static const unsigned char mgv__packed_magic[8] = {0x89, 'M', 'G', 'V', 'P', '\r', '\n', 0x1A};

typedef struct mgv__packed_header {
    uint64_t version, header_bytes, pack_version, block_bytes, model_hash, layout_hash, block_hash, header_hash;
    char architecture[MGV__PACKED_ARCHITECTURE + 1];
} mgv__packed_header;

/* Where the numbers of the header lie. */
typedef struct mgv__packed_field {
    uint32_t offset, bytes;
    size_t member; /* of mgv__packed_header */
} mgv__packed_field;
static const mgv__packed_field mgv__packed_fields[] = {
    {8, 4, offsetof(mgv__packed_header, version)},      {12, 4, offsetof(mgv__packed_header, header_bytes)},
    {32, 4, offsetof(mgv__packed_header, pack_version)}, {40, 8, offsetof(mgv__packed_header, block_bytes)},
    {48, 8, offsetof(mgv__packed_header, model_hash)},   {56, 8, offsetof(mgv__packed_header, layout_hash)},
    {64, 8, offsetof(mgv__packed_header, block_hash)},   {248, 8, offsetof(mgv__packed_header, header_hash)}};
enum { MGV__PACKED_FIELDS = sizeof mgv__packed_fields / sizeof mgv__packed_fields[0] };

static uint64_t mgv__hash_of(const void *data, uint64_t bytes) {
    mgv__hash hash;
    mgv__hash_begin(&hash);
    mgv__hash_bytes(&hash, data, bytes);
    return mgv__hash_end(&hash);
}

static void mgv__packed_write_header(unsigned char *out, const mgv__packed_header *header) {
    uint32_t i, k;
    memset(out, 0, MGV__PACKED_HEADER);
    memcpy(out, mgv__packed_magic, sizeof mgv__packed_magic);
    memcpy(out + 16, header->architecture, MGV__PACKED_ARCHITECTURE);
    for (i = 0; i < MGV__PACKED_FIELDS; i++) {
        const mgv__packed_field *field = &mgv__packed_fields[i];
        uint64_t value;
        memcpy(&value, (const char *)header + field->member, sizeof value);
        if (field->offset == MGV__PACKED_HEADER - 8) value = mgv__hash_of(out, MGV__PACKED_HEADER - 8);
        for (k = 0; k < field->bytes; k++) out[field->offset + k] = (unsigned char)(value >> 8 * k);
    }
}
static void mgv__packed_read_header(mgv__packed_header *header, const unsigned char *in) {
    uint32_t i, k;
    memset(header, 0, sizeof *header);
    memcpy(header->architecture, in + 16, MGV__PACKED_ARCHITECTURE);
    for (i = 0; i < MGV__PACKED_FIELDS; i++) {
        const mgv__packed_field *field = &mgv__packed_fields[i];
        uint64_t value = 0;
        for (k = 0; k < field->bytes; k++) value |= (uint64_t)in[field->offset + k] << 8 * k;
        memcpy((char *)header + field->member, &value, sizeof value);
    }
}

/* Of everything that says where what lies in the block. */
static uint64_t mgv__packed_layout_hash(const mgv__plan *plan) {
    mgv__hash hash;
    uint32_t i;
    mgv__hash_begin(&hash);
    mgv__hash_number(&hash, (double)(plan->weights_offset - plan->vectors_offset));
    for (i = 0; i < MGV__PACK_COUNT; i++) {
        mgv__hash_number(&hash, plan->pack_rows[i]);
        mgv__hash_number(&hash, plan->pack_columns[i]);
        mgv__hash_number(&hash, plan->pack_pitch[i]);
        mgv__hash_number(&hash, (double)plan->pack_offset[i]);
    }
    mgv__hash_number(&hash, plan->norm);
    for (i = 0; i < plan->op_count; i++) {
        const mgv__kernel_op *k = &plan->ops[i].kernel;
        mgv__hash_number(&hash, plan->ops[i].first);
        mgv__hash_number(&hash, plan->ops[i].end);
        mgv__hash_number(&hash, plan->ops[i].packs);
        mgv__hash_number(&hash, plan->ops[i].pack);
        mgv__hash_number(&hash, k->flags);
        mgv__hash_number(&hash, k->columns);
        mgv__hash_number(&hash, k->b_row);
        mgv__hash_number(&hash, k->bias);
        mgv__hash_number(&hash, k->column_sums);
        mgv__hash_number(&hash, k->table);
    }
    return mgv__hash_end(&hash);
}

/* The header that a file of these weights has, but for the hash of its block. */
static void mgv__packed_describe(mgv__packed_header *header, const mgv__plan *plan, uint64_t model_hash) {
    memset(header, 0, sizeof *header);
    header->version = MGV__PACKED_VERSION;
    header->header_bytes = MGV__PACKED_HEADER;
    strcpy(header->architecture, "sm_90a");
    header->pack_version = MGV__PACK_VERSION;
    header->block_bytes = mgv__plan_packed_bytes(plan);
    header->model_hash = model_hash;
    header->layout_hash = mgv__packed_layout_hash(plan);
}

/* Whether the header is whole, and that of the file that is wanted. The block has not been read. */
static mgv_result mgv__packed_check(const unsigned char *bytes, uint64_t file_bytes, const mgv__packed_header *wanted, const char *name,
                                    mgv_error *error) {
    static const char again[] = "pack it again with this version of megavit";
    mgv__packed_header header;
    uint32_t i;
    mgv__packed_read_header(&header, bytes);
    if (memcmp(bytes, mgv__packed_magic, sizeof mgv__packed_magic) != 0)
        return mgv__fail(error, MGV_ERROR_FORMAT, "%s: not a file of packed weights", name);
    if (header.version != wanted->version || header.header_bytes != wanted->header_bytes)
        return mgv__fail(error, MGV_ERROR_FORMAT,
                         "%s: version %u of packed weights with a header of %u bytes; this megavit reads version %u with %u: %s", name,
                         header.version, header.header_bytes, wanted->version, wanted->header_bytes, again);
    if (header.header_hash != mgv__hash_of(bytes, MGV__PACKED_HEADER - 8))
        return mgv__fail(error, MGV_ERROR_FORMAT, "%s: the header is damaged: it does not have its own hash", name);
    for (i = 36; i < 248; i++)
        if ((i < 40 || i >= 72) && bytes[i])
            return mgv__fail(error, MGV_ERROR_FORMAT, "%s: byte %u of the header is not zero", name, (uint64_t)i);
    if (memcmp(header.architecture, wanted->architecture, MGV__PACKED_ARCHITECTURE) != 0)
        return mgv__fail(error, MGV_ERROR_FORMAT, "%s: packed for the architecture %q; this kernel is for %q", name, header.architecture,
                         wanted->architecture);
    if (header.model_hash != wanted->model_hash)
        return mgv__fail(error, MGV_ERROR_MODEL, "%s: packed from another model than this one", name);
    if (header.pack_version != wanted->pack_version)
        return mgv__fail(error, MGV_ERROR_FORMAT, "%s: weights of packing %u; this kernel takes packing %u: %s", name, header.pack_version,
                         wanted->pack_version, again);
    if (header.layout_hash != wanted->layout_hash || header.block_bytes != wanted->block_bytes)
        return mgv__fail(error, MGV_ERROR_FORMAT, "%s: the weights are laid out otherwise than this kernel takes them: %s", name, again);
    if (file_bytes - MGV__PACKED_HEADER != header.block_bytes)
        return mgv__fail(error, MGV_ERROR_FORMAT, "%s: %u bytes, where the header and the weights are %u", name, file_bytes,
                         (uint64_t)MGV__PACKED_HEADER + header.block_bytes);
    return MGV_OK;
}

/* Where packed weights come from: a path, or memory; neither: they are packed on the spot. */
typedef struct mgv__packed_source {
    const char *path;
    const void *data;
    uint64_t bytes;
    mgv_file_io io;
    uint64_t model_hash; /* of the model that they must be of */
} mgv__packed_source;

/* Reads the block into `block`, mgv__plan_packed_bytes long, and proves that it is what was packed. */
static mgv_result mgv__packed_read(const mgv__packed_source *from, const mgv_allocator *allocator, const mgv__plan *plan, uint8_t *block,
                                   mgv_error *error) {
    unsigned char bytes[MGV__PACKED_HEADER];
    mgv__packed_header header, wanted;
    mgv_memory_file memory;
    mgv_model_desc desc;
    mgv__source source;
    mgv__file file;
    mgv_result result;
    memset(&desc, 0, sizeof desc);
    memset(&memory, 0, sizeof memory);
    memset(&file, 0, sizeof file);
    memory.name = from->path ? from->path : "the packed weights in memory";
    memory.data = from->data;
    memory.bytes = from->bytes;
    if (from->path && from->data)
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "packed weights come from packed_path or from packed, not from both");
    if (from->path) {
        desc.path = ""; /* the file's name is the whole path */
    } else {
        desc.memory_files = &memory;
        desc.memory_file_count = 1;
    }
    desc.io = from->io;
    desc.allocator = *allocator;
    result = mgv__source_open(&source, &desc, error);
    if (result == MGV_OK) result = mgv__file_open(&file, &source, memory.name, NULL, error);
    if (result == MGV_OK && file.size < MGV__PACKED_HEADER)
        result = mgv__fail(error, MGV_ERROR_FORMAT, "%s: %u bytes are too few for a file of packed weights", memory.name, file.size);
    if (result == MGV_OK) result = mgv__file_read(&file, 0, bytes, sizeof bytes, error);
    mgv__packed_describe(&wanted, plan, from->model_hash);
    if (result == MGV_OK) result = mgv__packed_check(bytes, file.size, &wanted, memory.name, error);
    if (result == MGV_OK) result = mgv__file_read(&file, MGV__PACKED_HEADER, block, (size_t)wanted.block_bytes, error);
    mgv__file_close(&file);
    if (result != MGV_OK) return result;
    mgv__packed_read_header(&header, bytes);
    if (mgv__hash_of(block, wanted.block_bytes) != header.block_hash)
        return mgv__fail(error, MGV_ERROR_FORMAT, "%s: the weights are damaged: they do not have the hash that the header gives",
                         memory.name);
    return MGV_OK;
}

static mgv_result mgv__model_pack(const mgv_model *model, void *file, uint64_t capacity, uint64_t *bytes, mgv_error *error) {
    mgv__packed_header header;
    mgv_result result;
    mgv__plan *plan;
    plan = mgv__plan_make(&model->allocator, &model->config, &model->program, 1, &result, error);
    if (!plan) return result;
    mgv__packed_describe(&header, plan, model->hash);
    *bytes = MGV__PACKED_HEADER + header.block_bytes;
    if (file && capacity < *bytes)
        result = mgv__fail(error, MGV_ERROR_CAPACITY, "the packed weights are %u bytes; there is room for %u", *bytes, capacity);
    if (file && result == MGV_OK) {
        mgv__plan_pack(plan, model->tensors, (uint8_t *)file + MGV__PACKED_HEADER);
        header.block_hash = mgv__hash_of((const uint8_t *)file + MGV__PACKED_HEADER, header.block_bytes);
        mgv__packed_write_header((unsigned char *)file, &header);
    }
    mgv__plan_free(&model->allocator, plan);
    return result;
}
#endif /* MEGAVIT_CUDA || MEGAVIT_PLAN */

/* file NULL: only *bytes is wanted. */
static mgv_result mgv__pack_for(const mgv_model *model, const char *architecture, void *file, uint64_t capacity, uint64_t *bytes,
                                mgv_error *error) {
    if (!model || !architecture) return mgv__fail(error, MGV_ERROR_ARGUMENT, "packing: model or architecture is NULL");
    if (strcmp(architecture, "sm_90a") != 0)
        return mgv__fail(error, MGV_ERROR_UNSUPPORTED, "there is no kernel for the architecture %q; there is one for \"sm_90a\"",
                         architecture);
#if (defined(MEGAVIT_CUDA) && !defined(MEGAVIT_NO_CUDA)) || defined(MEGAVIT_PLAN)
    (void)mgv__packed_read; /* without >>cuda nothing reads such files */
    return mgv__model_pack(model, file, capacity, bytes, error);
#else
    (void)file;
    (void)capacity;
    (void)bytes;
    return mgv__fail(error, MGV_ERROR_UNSUPPORTED, "this build of megavit packs no weights: define MEGAVIT_PLAN or MEGAVIT_CUDA");
#endif
}

MEGAVIT_API mgv_result mgv_model_packed_bytes(const mgv_model *model, const char *architecture, uint64_t *bytes, mgv_error *error) {
    mgv__clear_error(error);
    if (!bytes) return mgv__fail(error, MGV_ERROR_ARGUMENT, "mgv_model_packed_bytes: bytes is NULL");
    *bytes = 0;
    return mgv__pack_for(model, architecture, NULL, 0, bytes, error);
}

MEGAVIT_API mgv_result mgv_model_pack(const mgv_model *model, const char *architecture, void *file, uint64_t capacity, mgv_error *error) {
    uint64_t bytes;
    mgv__clear_error(error);
    if (!file || (uintptr_t)file % sizeof(double))
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "mgv_model_pack: file is NULL or not aligned as malloc's memory");
    return mgv__pack_for(model, architecture, file, capacity, &bytes, error);
}

/* ---------------------------------------------------------------------------------------------------------------
   >>engine: what an engine is: capacity, its memory, the CPU backend

   Everything an engine needs lies in one block of memory whose size is known beforehand. It is laid out by one function
   that runs twice: once without a block, to measure, and once to hand out the places. */

enum {
    MGV__MAX_OUTPUTS = 128,
    MGV__DEFAULT_SIDE = 4096,
    MGV__DEFAULT_TOKENS = 4096,
    MGV__DESTROY_WAIT_MS = 10000,
    MGV__DIRECT_IMAGES = 8,         /* so many pooled rows the kernel writes into the host's memory itself */
    MGV__BLOCKING_WAIT_MS = 600000, /* of mgv_encode_blocking on a GPU: longer than any queue before it should be */
    MGV__SPIN_MS = 2                /* mgv_wait looks at a GPU without pause for so long, then sleeps between looks */
};

/* An encode on its way. The CPU backend goes picture by picture, operation by operation. */
typedef struct mgv__job {
    mgv_status status;
    mgv_error error;    /* why it failed or timed out */
    uint32_t image_count, output_count;
    uint32_t image;     /* the picture being worked on */
    uint32_t op;        /* the operation that runs next; the first one before the pixels are prepared, too */
    int prepared;       /* the pixels of the picture are in buffer 0 */
    uint32_t op_end;    /* operations after the last output asked for are not run */
    int pending;        /* mgv_encode began it, and its rows are still to come; 0 for one in a CUDA graph, which brings them itself */
    int abandoned;      /* enqueuing failed half-way: `error` says how, and what is on the stream already is still waited for */
} mgv__job;

/* What differs between the backends. check_*: of pictures and outputs that are right otherwise. start: everything is checked;
   enqueues. step: moves the work on, or looks how it stands, and sets the job's status. */
typedef struct mgv__backend {
    int (*replays)(const mgv_engine *engine); /* whether encodes may run that no mgv_encode has just begun: those in CUDA graphs */
    mgv_result (*check_image)(const mgv_engine *engine, const mgv_image *image, uint32_t number, mgv_error *error);
    mgv_result (*check_output)(const mgv_engine *engine, const mgv_output *output, uint32_t number, mgv_error *error);
    mgv_result (*start)(mgv_engine *engine, void *stream, mgv_error *error);
    void (*step)(mgv_engine *engine);
    void (*told)(mgv_engine *engine); /* mgv_wait has said that a replay timed out: the next one begins anew */
} mgv__backend;

struct mgv_engine {
    const mgv_model *model;
    mgv_engine_desc desc; /* with every default filled in */
    mgv_backend backend;
    void *block;          /* what mgv_engine_destroy frees; NULL if the caller brought the workspace */
    mgv__job job;
    mgv_image *images;    /* [max_images], copies of what the caller passed */
    mgv_output *outputs;  /* [MGV__MAX_OUTPUTS] */
    uint64_t *written;    /* [MGV__MAX_OUTPUTS] rows that are already in each output */
    uint32_t *output_op;  /* [MGV__MAX_OUTPUTS] operation after which each output is read */
    uint16_t *output_buffer;
    uint8_t *needed;      /* CPU: [operations of the model] whether an output of this encode needs it */
    void *pixels_scratch;
    void *geometry_scratch;
    void *cpu_scratch;
    size_t cpu_scratch_bytes;
    mgv__isa isa;         /* the vector code that this machine can run */
    float *buffers[MGV__MAX_BUFFERS];
    mgv__geometry geometry;
    const mgv__backend *run;
    struct mgv__gpu *gpu; /* of the CUDA backend, else NULL */
};

typedef struct mgv__layout {
    unsigned char *base; /* NULL: only measure */
    size_t used;
    int overflow;
} mgv__layout;

static void *mgv__place(mgv__layout *layout, size_t count, size_t item_bytes) {
    size_t bytes, start, end;
    if (layout->overflow || !mgv__mul(count, item_bytes, &bytes) || !mgv__align_up(layout->used, MGV__ALIGNMENT, &start) ||
        !mgv__add(start, bytes, &end)) {
        layout->overflow = 1;
        return NULL;
    }
    layout->used = end;
    return layout->base ? layout->base + start : NULL;
}

/* The most tokens that one picture of this engine can have. */
static uint32_t mgv__tokens_per_picture(const mgv_model *model, const mgv_engine_desc *desc) {
    const uint32_t tokens = mgv__fixed_tokens(&model->config);
    return tokens ? tokens : desc->max_tokens;
}

static void mgv__layout_buffers(mgv__layout *layout, const mgv_model *model, uint32_t max_tokens, float **buffers) {
    const mgv__program *program = &model->program;
    size_t bytes[MGV__MAX_BUFFERS], offsets[MGV__MAX_BUFFERS], total;
    unsigned char *block;
    mgv_grid most;
    uint32_t i;
    memset(&most, 0, sizeof most);
    most.t = most.h = 1;
    most.w = most.tokens = max_tokens;
    most.merged_tokens = max_tokens / (model->config.merge * model->config.merge);
    for (i = 0; i < program->buffer_count; i++) {
        size_t rows = mgv__grid_rows(&most, program->buffers[i].rows);
        if (!mgv__mul(rows, program->buffers[i].columns, &bytes[i]) || !mgv__mul(bytes[i], sizeof(float), &bytes[i]) ||
            !mgv__align_up(bytes[i], MGV__ALIGNMENT, &bytes[i])) {
            layout->overflow = 1;
            return;
        }
    }
    if (!mgv__place_buffers(program, bytes, offsets, &total)) {
        layout->overflow = 1;
        return;
    }
    block = (unsigned char *)mgv__place(layout, total, 1);
    for (i = 0; i < program->buffer_count; i++) buffers[i] = block ? (float *)(void *)(block + offsets[i]) : NULL;
}

/* Places everything behind layout->base and writes the places into *engine, which may itself be the first of them. */
static mgv_result mgv__engine_layout(mgv__layout *layout, const mgv_model *model, const mgv_engine_desc *desc, mgv_engine *engine,
                                     mgv_error *error) {
    uint32_t max_tokens = mgv__tokens_per_picture(model, desc);
    size_t pixels_bytes = 0, geometry_bytes = 0, cpu_bytes = 0;
    mgv_result result = mgv__pixels_scratch_bytes(&model->config.pixels, desc->max_width, desc->max_height, max_tokens, &pixels_bytes,
                                                  error);
    if (result != MGV_OK) return result;
    if (!mgv__geometry_scratch_bytes(&model->config, max_tokens, &geometry_bytes) ||
        !mgv__cpu_scratch_bytes(&model->program, max_tokens, desc->parallel.threads, &cpu_bytes))
        return mgv__fail(error, MGV_ERROR_CAPACITY, "an engine for %u tokens does not fit into this machine's address space",
                         (uint64_t)max_tokens);
    engine->images = (mgv_image *)mgv__place(layout, desc->max_images, sizeof(mgv_image));
    engine->outputs = (mgv_output *)mgv__place(layout, MGV__MAX_OUTPUTS, sizeof(mgv_output));
    engine->written = (uint64_t *)mgv__place(layout, MGV__MAX_OUTPUTS, sizeof(uint64_t));
    engine->output_op = (uint32_t *)mgv__place(layout, MGV__MAX_OUTPUTS, sizeof(uint32_t));
    engine->output_buffer = (uint16_t *)mgv__place(layout, MGV__MAX_OUTPUTS, sizeof(uint16_t));
    engine->pixels_scratch = mgv__place(layout, pixels_bytes, 1);
    if (desc->backend != MGV_BACKEND_CUDA) {
        engine->needed = (uint8_t *)mgv__place(layout, model->program.op_count, 1);
        engine->geometry_scratch = mgv__place(layout, geometry_bytes, 1);
        engine->cpu_scratch = mgv__place(layout, cpu_bytes, 1);
        engine->cpu_scratch_bytes = cpu_bytes;
        mgv__layout_buffers(layout, model, max_tokens, engine->buffers);
    }
    if (layout->overflow)
        return mgv__fail(error, MGV_ERROR_CAPACITY, "an engine for %u tokens does not fit into this machine's address space",
                         (uint64_t)max_tokens);
    return MGV_OK;
}

/* Runs in the calling thread: what an engine without parallel_for does. */
static void mgv__run_inline(void *user, uint32_t count, mgv_task task, void *context) {
    uint32_t i;
    (void)user;
    for (i = 0; i < count; i++) task(context, i);
}

/* An engine that no picture fits is refused when it is made. */
static mgv_result mgv__engine_check_limits(const mgv_engine_desc *desc, const mgv__config *config, mgv_error *error) {
    const mgv__pixels_config *pixels = &config->pixels;
    const uint64_t least = desc->min_pixels ? desc->min_pixels : pixels->min_pixels;
    const uint64_t most = desc->max_pixels ? desc->max_pixels : pixels->max_pixels;
    const uint32_t width = pixels->fixed_width ? pixels->fixed_width : pixels->factor; /* of the smallest picture without a resize */
    const uint32_t height = pixels->fixed_width ? pixels->fixed_height : pixels->factor;
    if (least && most && least > most)
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "min_pixels %u is more than max_pixels %u", least, most);
    if (!pixels->do_resize && (width > desc->max_width || height > desc->max_height))
        return mgv__fail(error, MGV_ERROR_CAPACITY, "max_width and max_height are %u x %u, but this model does not resize (do_resize is "
                         "false) and takes no picture smaller than %u x %u",
                         (uint64_t)desc->max_width, (uint64_t)desc->max_height, (uint64_t)width, (uint64_t)height);
    if (desc->max_tokens < config->merge * config->merge + config->prefix)
        return mgv__fail(error, MGV_ERROR_CAPACITY, "max_tokens is %u, but the smallest picture of this model has %u",
                         (uint64_t)desc->max_tokens, (uint64_t)config->merge * config->merge + config->prefix);
    return MGV_OK;
}

static mgv_result mgv__engine_defaults(mgv_engine_desc *desc, const mgv_model *model, mgv_error *error) {
    mgv_result result;
    uint64_t fixed_tokens = mgv__fixed_tokens(&model->config);
    if (desc->backend < MGV_BACKEND_AUTO || desc->backend > MGV_BACKEND_CUDA)
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "backend %i is not one of MGV_BACKEND_AUTO, CPU, CUDA", (int64_t)desc->backend);
    if (desc->resize < MGV_RESIZE_PILLOW || desc->resize > MGV_RESIZE_TORCHVISION)
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "resize %i is not one of MGV_RESIZE_PILLOW, MGV_RESIZE_TORCHVISION",
                         (int64_t)desc->resize);
    if ((desc->parallel.run == NULL) != (desc->parallel.threads == 0))
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "mgv_parallel_for wants both run and threads, or neither");
    if (!desc->parallel.run) {
        desc->parallel.run = mgv__run_inline;
        desc->parallel.threads = 1;
    }
    if (!desc->max_images) desc->max_images = 1;
    if (!desc->max_width) desc->max_width = MGV__DEFAULT_SIDE;
    if (!desc->max_height) desc->max_height = MGV__DEFAULT_SIDE;
    if (!desc->max_tokens) {
        uint64_t tokens = MGV__DEFAULT_TOKENS;
        if (fixed_tokens) tokens = fixed_tokens * desc->max_images;
        if (tokens > UINT32_MAX)
            return mgv__fail(error, MGV_ERROR_CAPACITY, "%u images of %u tokens are more than an engine can count",
                             (uint64_t)desc->max_images, fixed_tokens);
        desc->max_tokens = (uint32_t)tokens;
    }
    if (desc->max_tokens < fixed_tokens)
        return mgv__fail(error, MGV_ERROR_CAPACITY, "max_tokens is %u, but one picture of this model has %u", (uint64_t)desc->max_tokens,
                         fixed_tokens);
    result = mgv__engine_check_limits(desc, &model->config, error);
    return result == MGV_OK ? mgv__allocator_check(&desc->allocator, error) : result;
}

/* The caller's description with every default filled in. */
static mgv_result mgv__engine_take_desc(mgv_engine_desc *out, const mgv_model *model, const mgv_engine_desc *desc, mgv_error *error) {
    mgv_result result;
    if (!model) return mgv__fail(error, MGV_ERROR_ARGUMENT, "model is NULL");
    result = mgv__take_struct(out, sizeof *out, desc, desc ? desc->struct_size : 0, "mgv_engine_desc", error);
    return result == MGV_OK ? mgv__engine_defaults(out, model, error) : result;
}

/* Bytes of the whole block, with room to align its start. */
static mgv_result mgv__engine_measure(const mgv_model *model, const mgv_engine_desc *desc, size_t *bytes, mgv_error *error) {
    mgv__layout layout;
    mgv_engine measured;
    mgv_result result;
    memset(&layout, 0, sizeof layout);
    mgv__place(&layout, 1, sizeof measured);
    result = mgv__engine_layout(&layout, model, desc, &measured, error);
    if (result != MGV_OK) return result;
    if (!mgv__add(layout.used, MGV__ALIGNMENT, bytes))
        return mgv__fail(error, MGV_ERROR_CAPACITY, "the engine does not fit into this machine's address space");
    return MGV_OK;
}

MEGAVIT_API mgv_result mgv_engine_workspace_bytes(const mgv_model *model, const mgv_engine_desc *desc, uint64_t *bytes, mgv_error *error) {
    mgv_engine_desc d;
    size_t total = 0;
    mgv_result result;
    mgv__clear_error(error);
    if (!bytes) return mgv__fail(error, MGV_ERROR_ARGUMENT, "mgv_engine_workspace_bytes: bytes is NULL");
    *bytes = 0;
    result = mgv__engine_take_desc(&d, model, desc, error);
    if (result == MGV_OK) result = mgv__engine_measure(model, &d, &total, error);
    *bytes = total;
    return result;
}

MEGAVIT_API mgv_result mgv_engine_device_workspace_bytes(const mgv_model *model, const mgv_engine_desc *desc, uint64_t *bytes,
                                                         mgv_error *error) {
    mgv_engine_desc d;
    mgv_result result;
    mgv__clear_error(error);
    if (!bytes) return mgv__fail(error, MGV_ERROR_ARGUMENT, "mgv_engine_device_workspace_bytes: bytes is NULL");
    *bytes = 0;
    result = mgv__engine_take_desc(&d, model, desc, error);
    if (result != MGV_OK) return result;
#if (defined(MEGAVIT_CUDA) && !defined(MEGAVIT_NO_CUDA)) || defined(MEGAVIT_PLAN)
    {
        mgv__plan *plan = mgv__plan_make(&model->allocator, &model->config, &model->program, d.max_images, &result, error);
        if (plan) *bytes = mgv__plan_device_bytes(plan);
        mgv__plan_free(&model->allocator, plan);
        return result;
    }
#else
    return mgv__fail(error, MGV_ERROR_UNSUPPORTED, "this build of megavit knows no GPU engines: define MEGAVIT_PLAN or MEGAVIT_CUDA");
#endif
}

/* ---- The CPU backend's way through an encode ---- */

/* Divides each row by its L2 norm, added up in double so that long rows lose nothing. A row of zeros stays one. */
static void mgv__normalize_rows(float *rows, uint64_t count, uint32_t columns) {
    uint64_t i;
    uint32_t k;
    for (i = 0; i < count; i++, rows += columns) {
        double sum = 0, scale;
        for (k = 0; k < columns; k++) sum += (double)rows[k] * (double)rows[k];
        if (sum == 0) continue;
        scale = 1.0 / sqrt(sum);
        for (k = 0; k < columns; k++) rows[k] = (float)((double)rows[k] * scale);
    }
}

/* Rows that an encode hands out are numbers, or the encode has failed: weights can be finite and yet too large to calculate with. first:
   the picture of the first row; each: rows of a picture. */
static mgv_result mgv__job_check_rows(const float *rows, uint64_t count, uint32_t columns, uint32_t number, uint32_t first, uint64_t each,
                                      mgv_error *error) {
    const uint64_t values = count * columns, bad = mgv__find_nonfinite(rows, values * sizeof *rows, MGV_DTYPE_F32);
    if (bad == values) return MGV_OK;
    return mgv__fail(error, MGV_ERROR_MODEL,
                     "output %u of image %u is NaN or infinite at column %u of row %u: with these weights the model's arithmetic overflows",
                     (uint64_t)number, first + bad / columns / each, bad % columns, bad / columns % each);
}

/* Copies what operation `op` left behind into the outputs that asked for it. */
static mgv_result mgv__job_collect(mgv_engine *engine, uint32_t op) {
    const mgv__program *program = &engine->model->program;
    mgv_result result = MGV_OK;
    uint32_t i;
    for (i = 0; i < engine->job.output_count; i++) {
        const mgv__buffer_desc *buffer = &program->buffers[engine->output_buffer[i]];
        mgv_output *output = &engine->outputs[i];
        uint32_t rows;
        float *target;
        if (engine->output_op[i] != op) continue;
        rows = mgv__grid_rows(&engine->geometry.grid, buffer->rows);
        target = output->data + engine->written[i] * buffer->columns;
        memcpy(target, engine->buffers[engine->output_buffer[i]], (size_t)rows * buffer->columns * sizeof(float));
        if (result == MGV_OK)
            result = mgv__job_check_rows(target, rows, buffer->columns, i, engine->job.image, rows, &engine->job.error);
        if (output->normalize) mgv__normalize_rows(target, rows, buffer->columns);
        engine->written[i] += rows;
    }
    return result;
}

static void mgv__job_prepare(mgv_engine *engine) {
    const mgv__config *config = &engine->model->config;
    const mgv_image *image = &engine->images[engine->job.image];
    mgv_grid grid;
    /* Checked when the job was accepted, so it cannot fail now. */
    mgv__picture_grid(config, image, engine->desc.min_pixels, engine->desc.max_pixels, &grid, NULL);
    mgv__geometry_fill(config, &grid, engine->geometry_scratch, &engine->geometry);
    mgv__pixels_prepare(&config->pixels, engine->desc.resize, image, &grid, engine->pixels_scratch, &engine->desc.parallel,
                        engine->buffers[0],
                        MGV__PIXELS_PATCHES);
}

/* What an operation needs to run on the engine's buffers. */
static void mgv__job_cpu_run(const mgv_engine *engine, mgv__cpu_run *run) {
    run->program = &engine->model->program;
    run->tensors = engine->model->tensors;
    run->geometry = &engine->geometry;
    memcpy(run->buffers, engine->buffers, sizeof run->buffers);
    run->scratch = engine->cpu_scratch;
    run->scratch_bytes = engine->cpu_scratch_bytes;
    run->parallel = engine->desc.parallel;
    run->isa = engine->isa;
}

/* Marks the operations whose results are read for an output, or by such an operation. */
static void mgv__job_find_needed(mgv_engine *engine) {
    const mgv__program *program = &engine->model->program;
    uint32_t live = 0, op = engine->job.op_end, i; /* live: buffers that are read further on */
    while (op-- > 0) {
        const uint32_t target = 1u << program->ops[op].target;
        for (i = 0; i < engine->job.output_count; i++)
            if (engine->output_op[i] == op) live |= 1u << engine->output_buffer[i];
        engine->needed[op] = (live & target) != 0;
        if (engine->needed[op]) live = (live & ~target) | mgv__op_reads(&program->ops[op]);
    }
}
/* The first operation from `op` on that an output needs. */
static uint32_t mgv__job_next(const mgv_engine *engine, uint32_t op) {
    while (op < engine->job.op_end && !engine->needed[op]) op++;
    return op;
}

/* Prepares the pixels of one picture or runs one operation on it: the grain in which poll and wait give control back. */
static void mgv__job_step(mgv_engine *engine) {
    mgv__job *job = &engine->job;
    mgv__cpu_run run;
    job->status = MGV_STATUS_RUNNING;
    if (!job->prepared) {
        mgv__job_prepare(engine);
        job->prepared = 1;
        return;
    }
    mgv__job_cpu_run(engine, &run);
    mgv__cpu_run_op(&run, &run.program->ops[job->op]);
    if (mgv__job_collect(engine, job->op) != MGV_OK) {
        job->status = MGV_STATUS_FAILED;
        return;
    }
    job->op = mgv__job_next(engine, job->op + 1);
    if (job->op < job->op_end) return;
    job->op = mgv__job_next(engine, 0);
    job->prepared = 0;
    if (++job->image == job->image_count) job->status = MGV_STATUS_DONE;
}

static mgv_result mgv__job_check_image(const mgv_engine *engine, const mgv_image *image, uint32_t number, mgv_error *error) {
    (void)engine;
    if (image->place == MGV_PLACE_HOST) return MGV_OK;
    return mgv__fail(error, MGV_ERROR_ARGUMENT, "image %u is not in host memory, where the CPU backend reads", (uint64_t)number);
}
static mgv_result mgv__job_check_output(const mgv_engine *engine, const mgv_output *output, uint32_t number, mgv_error *error) {
    (void)engine;
    if (output->place == MGV_PLACE_HOST) return MGV_OK;
    return mgv__fail(error, MGV_ERROR_ARGUMENT, "output %u is not in host memory, where the CPU backend writes", (uint64_t)number);
}
static mgv_result mgv__job_start(mgv_engine *engine, void *stream, mgv_error *error) {
    if (stream) return mgv__fail(error, MGV_ERROR_ARGUMENT, "mgv_encode: the CPU backend takes no stream");
    mgv__job_find_needed(engine);
    engine->job.image = 0;
    engine->job.op = mgv__job_next(engine, 0);
    engine->job.prepared = 0;
    engine->job.pending = 1;
    engine->job.status = MGV_STATUS_QUEUED;
    return MGV_OK;
}
static int mgv__job_replays(const mgv_engine *engine) {
    (void)engine;
    return 0;
}
static void mgv__job_told(mgv_engine *engine) { (void)engine; }
static const mgv__backend mgv__cpu_backend = {mgv__job_replays, mgv__job_check_image, mgv__job_check_output,
                                              mgv__job_start, mgv__job_step, mgv__job_told};
/* ---------------------------------------------------------------------------------------------------------------
   >>cuda: the plan on a GPU, through the CUDA Runtime API

   Compiled in with MEGAVIT_CUDA (unless MEGAVIT_NO_CUDA): it includes cuda.h and cuda_runtime_api.h and needs -lcudart or the static one,
   nothing else. A machine without a driver or a GPU gets MGV_ERROR_NO_DEVICE. */
#if defined(MEGAVIT_CUDA) && !defined(MEGAVIT_NO_CUDA)
#include <cuda.h>
#include <cuda_runtime_api.h>

/* Every call that is made of the CUDA runtime, without the "cuda" before its name: one list for the table and for what fills it. */
#define MGV__CUDA_CALLS(CALL) \
    CALL(DriverGetVersion, (int *version)) \
    CALL(RuntimeGetVersion, (int *version)) \
    CALL(GetDeviceCount, (int *count)) \
    CALL(GetDevice, (int *device)) \
    CALL(SetDevice, (int device)) \
    CALL(DeviceGetAttribute, (int *value, enum cudaDeviceAttr attribute, int device)) \
    CALL(Malloc, (void **memory, size_t bytes)) \
    CALL(Free, (void *memory)) \
    CALL(MallocHost, (void **memory, size_t bytes)) \
    CALL(FreeHost, (void *memory)) \
    CALL(Memcpy, (void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)) \
    CALL(MemcpyAsync, (void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)) \
    CALL(Memset, (void *to, int byte, size_t bytes)) \
    CALL(MemsetAsync, (void *to, int byte, size_t bytes, cudaStream_t stream)) \
    CALL(EventCreateWithFlags, (cudaEvent_t *event, unsigned int flags)) \
    CALL(EventRecordWithFlags, (cudaEvent_t event, cudaStream_t stream, unsigned int flags)) \
    CALL(EventQuery, (cudaEvent_t event)) \
    CALL(EventDestroy, (cudaEvent_t event)) \
    CALL(PointerGetAttributes, (struct cudaPointerAttributes *attributes, const void *memory)) \
    CALL(StreamSynchronize, (cudaStream_t stream)) \
    CALL(StreamIsCapturing, (cudaStream_t stream, enum cudaStreamCaptureStatus *status)) \
    CALL(ThreadExchangeStreamCaptureMode, (enum cudaStreamCaptureMode *mode)) \
    CALL(LibraryLoadData, (cudaLibrary_t *library, const void *code, enum cudaJitOption *jit, void **jit_values, unsigned int jit_count, \
                           enum cudaLibraryOption *options, void **values, unsigned int count)) \
    CALL(LibraryUnload, (cudaLibrary_t library)) \
    CALL(LibraryGetKernel, (cudaKernel_t *kernel, cudaLibrary_t library, const char *name)) \
    CALL(LibraryGetGlobal, (void **address, size_t *bytes, cudaLibrary_t library, const char *name)) \
    CALL(FuncSetAttribute, (const void *kernel, enum cudaFuncAttribute attribute, int value)) \
    CALL(OccupancyMaxActiveClusters, (int *clusters, const void *kernel, const cudaLaunchConfig_t *config)) \
    CALL(LaunchKernelExC, (const cudaLaunchConfig_t *config, const void *kernel, void **arguments)) \
    CALL(GetDriverEntryPointByVersion, (const char *name, void **function, unsigned int version, unsigned long long flags, \
                                        enum cudaDriverEntryPointQueryResult *found))

#define MGV__CUDA_MEMBER(name, parameters) cudaError_t (CUDARTAPI *name) parameters;
typedef struct mgv__cuda_calls {
    MGV__CUDA_CALLS(MGV__CUDA_MEMBER)
    const char *(CUDARTAPI *GetErrorString)(cudaError_t code);
} mgv__cuda_calls;
#undef MGV__CUDA_MEMBER

#ifdef MEGAVIT_NO_CUDART
#define MGV__CUDA_RUNTIME NULL
#else
#define MGV__CUDA_MEMBER(name, parameters) cuda##name,
static const mgv__cuda_calls mgv__cuda_runtime = {MGV__CUDA_CALLS(MGV__CUDA_MEMBER) cudaGetErrorString};
#undef MGV__CUDA_MEMBER
#define MGV__CUDA_RUNTIME &mgv__cuda_runtime
#endif

enum { MGV__CUDA_DRIVER_VERSION = 12000 }; /* the first with what the header calls: tensor maps, libraries, clusters */

typedef struct mgv__cuda_desc {
    const mgv__cuda_calls *calls; /* NULL: of the CUDA runtime */
    int32_t device;
    uint32_t max_images;
    uint32_t group_images;   /* 0: chosen */
    uint32_t lanes;          /* 0: groups do not take turns */
    uint32_t max_clusters;   /* of the throughput regime, the latency regime has as many CTAs; 0: all */
    uint32_t regime;         /* 1 + regime; 0: chosen */
    uint32_t poll_limit;     /* 0: about a quarter of a second */
    const void *kernels;     /* the fatbin */
    mgv_allocator allocator;
    mgv__packed_source packed;
    void *workspace;         /* device memory for the arena; NULL: allocated */
    uint64_t workspace_bytes;
} mgv__cuda_desc;

/* A schedule on the device: of it, what a launch has to know. */
typedef struct mgv__sent_schedule {
    uint32_t images;                /* 0: none */
    uint32_t total_tiles, dealt, regime, kernel, clusters;
    mgv__row_outputs outputs;
    int32_t captured;               /* in a CUDA graph, so it stays */
    uint64_t used;                  /* the launch that used it last */
    mgv__tensor_map maps[MGV__MAX_MAPS]; /* of its groups; they go with the launch's arguments */
} mgv__sent_schedule;

typedef struct mgv__cuda {
    const mgv__cuda_calls *calls;
    mgv_allocator allocator;
    mgv__plan *plan;
    int32_t device;
    uint32_t clusters;
    cudaLibrary_t library;
    cudaKernel_t kernel[MGV__KERNELS]; /* NULL: one that is not made for pictures of this size */
    uint32_t shared_bytes[MGV__REGIME_COUNT], shared_limit; /* that a block of each kernel needs, that the GPU gives */
    uint8_t *arena;
    uint8_t *owned;                 /* what cudaFree takes; NULL: the caller brought the arena */
    void *upload;                   /* pinned: operations and segments on their way to the device */
    mgv__kernel_status *status;     /* pinned */
    cudaEvent_t done;
    mgv__kernel_arguments arguments;
    mgv__row_outputs outputs;       /* of the next launch; arguments.outputs says where they go */
    mgv__sent_schedule schedules[MGV__PLAN_SCHEDULES];
    const mgv__sent_schedule *schedule; /* that the next launch runs */
    uint64_t launches;
    uint32_t counter_set;           /* in which the next launch counts, unless a CUDA graph captures it */
    int cleared;                    /* it is zero when the next launch begins: a launch zeroes it, or creation did */
} mgv__cuda;

/* One call of the table; an error ends the function that makes it, with a sentence that names the call. */
#define MGV__CUDA_TRY(calls, name, arguments, what) \
    do { \
        cudaError_t mgv__code = (calls)->name arguments; \
        if (mgv__code != cudaSuccess) return mgv__cuda_fail(calls, error, mgv__code, "cuda" #name, what); \
    } while (0)

/* Errors after which the context is gone: whatever is called next fails too. In numbers: those that CUDA 12.0 has no names for. */
static int mgv__cuda_is_lost(cudaError_t code) {
    static const int lost[] = {cudaErrorIllegalAddress, cudaErrorLaunchFailure, cudaErrorIllegalInstruction, cudaErrorMisalignedAddress,
                               cudaErrorECCUncorrectable, cudaErrorHardwareStackError, cudaErrorInvalidAddressSpace, cudaErrorInvalidPc,
                               cudaErrorLaunchTimeout, cudaErrorAssert, cudaErrorNvlinkUncorrectable, cudaErrorMpsClientTerminated,
                               226 /* an error that was contained */, 721 /* tensor memory that was not freed */,
                               911 /* another device's */};
    size_t i;
    for (i = 0; i < sizeof lost / sizeof lost[0]; i++)
        if ((int)code == lost[i]) return 1;
    return 0;
}

static mgv_result mgv__cuda_fail(const mgv__cuda_calls *calls, mgv_error *error, cudaError_t code, const char *call, const char *what) {
    mgv_result result = MGV_ERROR_DEVICE;
    if (code == cudaErrorInsufficientDriver || code == cudaErrorNoDevice || code == cudaErrorNoKernelImageForDevice ||
        code == cudaErrorInvalidDevice)
        result = MGV_ERROR_NO_DEVICE;
    if (code == cudaErrorMemoryAllocation) result = MGV_ERROR_NOMEM;
    if (mgv__cuda_is_lost(code)) result = MGV_ERROR_DEVICE_LOST;
    return mgv__fail(error, result, "%s: %s (CUDA error %u), while %s", call, calls->GetErrorString(code), (uint64_t)code, what);
}

/* maps: MGV__MAP_COUNT, for the groups that the plan has now. */
static mgv_result mgv__cuda_encode_maps(const mgv__cuda *cuda, mgv__tensor_map *maps, mgv_error *error) {
    typedef CUresult (*encode_function)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *,
                                        const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                        CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    encode_function encode;
    void *entry = NULL;
    enum cudaDriverEntryPointQueryResult found;
    const mgv__plan *plan = cuda->plan;
    uint32_t i;
    MGV__CUDA_TRY(cuda->calls, GetDriverEntryPointByVersion, ("cuTensorMapEncodeTiled", &entry, MGV__CUDA_DRIVER_VERSION,
                                                              cudaEnableDefault, &found), "looking for cuTensorMapEncodeTiled");
    if (found != cudaDriverEntryPointSuccess)
        return mgv__fail(error, MGV_ERROR_NO_DEVICE, "the CUDA driver has no cuTensorMapEncodeTiled; version 12 or later is needed");
    memcpy(&encode, &entry, sizeof encode);
    for (i = 0; i < MGV__MAP_COUNT; i++) {
        const mgv__map_desc *m = &plan->maps[i];
        const uint64_t offset = m->pack >= 0 ? plan->weights_offset + plan->pack_offset[m->pack] : plan->buffers[m->buffer].offset;
        const cuuint32_t steps[4] = {1, 1, 1, 1}, rank = m->dims[3] ? 4 : m->dims[2] ? 3 : 2, row_bytes = m->box[0] * m->element_bytes;
        CUtensorMap map;
        CUresult code;
        if (!m->used) continue;
        code = encode(&map, m->element_bytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32, rank,
                      cuda->arena + offset, (const cuuint64_t *)m->dims, (const cuuint64_t *)m->strides, m->box, steps,
                      CU_TENSOR_MAP_INTERLEAVE_NONE,
                      row_bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                      : row_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                        : CU_TENSOR_MAP_SWIZZLE_32B,
                      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
        if (code != CUDA_SUCCESS)
            return mgv__fail(error, MGV_ERROR_DEVICE, "tensor map %u (%u x %u x %u, box %u x %u) was refused by the driver (error %u)",
                             (uint64_t)i, m->dims[0], m->dims[1], m->dims[2], (uint64_t)m->box[0], (uint64_t)m->box[1], (uint64_t)code);
        memcpy(&maps[i], &map, sizeof map);
    }
    return MGV_OK;
}

/* How the kernels are launched. `attributes` must live as long as the configuration. */
static void mgv__cuda_configure(const mgv__cuda *cuda, uint32_t regime, uint32_t clusters, cudaLaunchConfig_t *config,
                                cudaLaunchAttribute attributes[2]) {
    memset((void *)config, 0, sizeof *config);
    memset((void *)attributes, 0, 2 * sizeof *attributes);
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim.x = mgv__regimes[regime].cluster;
    attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
    attributes[1].id = cudaLaunchAttributeCooperative;
    attributes[1].val.cooperative = 1;
    config->gridDim.x = clusters * mgv__regimes[regime].cluster;
    config->gridDim.y = config->gridDim.z = 1;
    config->blockDim.x = MGV__KERNEL_THREADS;
    config->blockDim.y = config->blockDim.z = 1;
    config->dynamicSmemBytes = cuda->shared_bytes[regime];
    config->attrs = attributes;
    config->numAttrs = 2;
}

/* Loads the kernels, checks that they are of this header's version, sets their attributes. */
static mgv_result mgv__cuda_load(mgv__cuda *cuda, const void *kernels, mgv_error *error) {
    uint32_t description[5], i;
    void *address;
    size_t bytes;
    cudaError_t code;
    MGV__CUDA_TRY(cuda->calls, LibraryLoadData, (&cuda->library, kernels, NULL, NULL, 0, NULL, NULL, 0), "loading the kernels");
    code = cuda->calls->LibraryGetGlobal(&address, &bytes, cuda->library, "megavit_description");
    if (code == cudaErrorSymbolNotFound)
        return mgv__fail(error, MGV_ERROR_UNSUPPORTED, "these are not megavit's kernels: they have no megavit_description");
    if (code != cudaSuccess)
        return mgv__cuda_fail(cuda->calls, error, code, "cudaLibraryGetGlobal", "looking for the kernels' description");
    if (bytes != sizeof description)
        return mgv__fail(error, MGV_ERROR_UNSUPPORTED, "the kernels' description has %u bytes, not %u", (uint64_t)bytes,
                         (uint64_t)sizeof description);
    MGV__CUDA_TRY(cuda->calls, Memcpy, (description, address, sizeof description, cudaMemcpyDeviceToHost),
                  "reading the kernels' description");
    if (description[0] != MGV__KERNEL_VERSION || description[2] != sizeof(mgv__kernel_arguments) || description[3] != MGV__KERNEL_THREADS)
        return mgv__fail(error, MGV_ERROR_UNSUPPORTED,
                         "the kernels are of version %u with %u bytes of arguments, this header is of version %u with %u: take both from "
                         "one release", (uint64_t)description[0], (uint64_t)description[2], (uint64_t)MGV__KERNEL_VERSION,
                         (uint64_t)sizeof(mgv__kernel_arguments));
    cuda->shared_bytes[MGV__THROUGHPUT] = description[1];
    cuda->shared_bytes[MGV__LATENCY] = description[4];
    for (i = 0; i < MGV__KERNELS; i++) {
        const char *name = mgv__kernels[i].name;
        const uint32_t shared = cuda->shared_bytes[mgv__kernels[i].regime];
        if (!mgv__plan_suits_kernel(cuda->plan, i)) continue;
        if (shared > cuda->shared_limit)
            return mgv__fail(error, MGV_ERROR_NO_DEVICE, "the kernel needs %u bytes of shared memory for a block; GPU %i has %u",
                             (uint64_t)shared, (int64_t)cuda->device, (uint64_t)cuda->shared_limit);
        code = cuda->calls->LibraryGetKernel(&cuda->kernel[i], cuda->library, name);
        if (code == cudaErrorSymbolNotFound)
            return mgv__fail(error, MGV_ERROR_UNSUPPORTED, "the kernels have no %s: they were made for another GPU", name);
        if (code != cudaSuccess) return mgv__cuda_fail(cuda->calls, error, code, "cudaLibraryGetKernel", "looking for the kernels");
        MGV__CUDA_TRY(cuda->calls, FuncSetAttribute,
                      ((const void *)cuda->kernel[i], cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared), "reserving shared memory");
    }
    return MGV_OK;
}

/* Clusters of the latency regime: as many as run at once, which the card's layout decides. */
static mgv_result mgv__cuda_latency_clusters(const mgv__cuda *cuda, const mgv__cuda_desc *desc, mgv_error *error) {
    const uint32_t most = cuda->clusters * MGV__CLUSTER / MGV__LATENCY_CLUSTER;
    cudaLaunchConfig_t config;
    cudaLaunchAttribute attributes[2];
    int clusters = 0;
    cuda->plan->forced_regime = desc->regime;
    if (!most || !mgv__plan_latency_supported(cuda->plan)) return MGV_OK;
    mgv__cuda_configure(cuda, MGV__LATENCY, 1, &config, attributes);
    config.numAttrs = 1;
    MGV__CUDA_TRY(cuda->calls, OccupancyMaxActiveClusters,
                  (&clusters, (const void *)cuda->kernel[mgv__plan_kernel_for(cuda->plan, MGV__LATENCY, 0)], &config),
                  "asking how many clusters run at once");
    cuda->plan->latency_clusters = clusters > 0 ? mgv__min_u32((uint32_t)clusters, most) : 0;
    return MGV_OK;
}

static mgv_result mgv__cuda_upload_weights(mgv__cuda *cuda, const mgv__packed_source *source, const mgv__tensor *tensors,
                                           mgv_error *error) {
    const mgv__plan *plan = cuda->plan;
    const size_t bytes = (size_t)mgv__plan_packed_bytes(plan);
    uint8_t *packed = (uint8_t *)mgv__alloc(&cuda->allocator, bytes);
    mgv_result result = MGV_OK;
    cudaError_t code;
    if (!packed) return mgv__fail_nomem(error, "the packed weights", bytes);
    if (source->path || source->data) result = mgv__packed_read(source, &cuda->allocator, plan, packed, error);
    else mgv__plan_pack(plan, tensors, packed);
    code = result == MGV_OK ? cuda->calls->Memcpy(cuda->arena + plan->vectors_offset, packed, bytes, cudaMemcpyHostToDevice) : cudaSuccess;
    mgv__free(&cuda->allocator, packed);
    if (code != cudaSuccess) return mgv__cuda_fail(cuda->calls, error, code, "cudaMemcpy", "sending the packed weights");
    if (result != MGV_OK) return result;
    /* the copy may return while its last bytes are on their way, and no stream that does not block would wait for them */
    MGV__CUDA_TRY(cuda->calls, StreamSynchronize, (NULL), "sending the packed weights");
    return MGV_OK;
}

static void mgv__cuda_destroy(mgv__cuda *cuda) {
    mgv_allocator allocator;
    if (!cuda) return;
    allocator = cuda->allocator;
    if (cuda->done) cuda->calls->EventDestroy(cuda->done);
    if (cuda->owned) cuda->calls->Free(cuda->owned);
    if (cuda->upload) cuda->calls->FreeHost(cuda->upload);
    if (cuda->status) cuda->calls->FreeHost(cuda->status);
    if (cuda->library) cuda->calls->LibraryUnload(cuda->library);
    mgv__plan_free(&allocator, cuda->plan);
    mgv__free(&allocator, cuda);
}

/* Versions of CUDA are counted as 1000 major + 10 minor; the driver's is 0 where there is none. */
static mgv_result mgv__cuda_check_driver(const mgv__cuda_calls *calls, mgv_error *error) {
    const int least = MGV__CUDA_DRIVER_VERSION;
    int driver = 0, runtime = 0;
    MGV__CUDA_TRY(calls, DriverGetVersion, (&driver), "asking for the driver's version");
    MGV__CUDA_TRY(calls, RuntimeGetVersion, (&runtime), "asking for the runtime's version");
    if (driver == 0) return mgv__fail(error, MGV_ERROR_NO_DEVICE, "there is no NVIDIA driver on this machine");
    if (driver / 1000 < runtime / 1000 || driver < least)
        return mgv__fail(error, MGV_ERROR_NO_DEVICE, "the NVIDIA driver is of CUDA %i.%i; this program needs one of CUDA %i or later",
                         (int64_t)driver / 1000, (int64_t)driver % 1000 / 10, (int64_t)(runtime > least ? runtime : least) / 1000);
    return MGV_OK;
}

static mgv_result mgv__cuda_check_device(mgv__cuda *cuda, const mgv__cuda_desc *desc, mgv_error *error) {
    const mgv__cuda_calls *calls = cuda->calls;
    int count = 0, major = 0, minor = 0, multiprocessors = 0, shared = 0, cooperative = 0;
    mgv_result result = mgv__cuda_check_driver(calls, error);
    if (result != MGV_OK) return result;
    MGV__CUDA_TRY(calls, GetDeviceCount, (&count), "looking for a GPU");
    if (desc->device < 0 || desc->device >= count)
        return mgv__fail(error, MGV_ERROR_NO_DEVICE, "there is no GPU number %i; %i are there", (int64_t)desc->device, (int64_t)count);
    MGV__CUDA_TRY(calls, SetDevice, (desc->device), "choosing the GPU");
    MGV__CUDA_TRY(calls, DeviceGetAttribute, (&major, cudaDevAttrComputeCapabilityMajor, desc->device),
                  "asking for the compute capability");
    MGV__CUDA_TRY(calls, DeviceGetAttribute, (&minor, cudaDevAttrComputeCapabilityMinor, desc->device),
                  "asking for the compute capability");
    MGV__CUDA_TRY(calls, DeviceGetAttribute, (&multiprocessors, cudaDevAttrMultiProcessorCount, desc->device),
                  "asking for the number of multiprocessors");
    MGV__CUDA_TRY(calls, DeviceGetAttribute, (&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, desc->device),
                  "asking for the size of shared memory");
    MGV__CUDA_TRY(calls, DeviceGetAttribute, (&cooperative, cudaDevAttrCooperativeLaunch, desc->device), "asking for cooperative launches");
    if (major != 9 || minor != 0)
        return mgv__fail(error, MGV_ERROR_NO_DEVICE, "GPU %i is of compute capability %i.%i; the kernels are for 9.0 (Hopper)",
                         (int64_t)desc->device, (int64_t)major,
                         (int64_t)minor);
    if (!cooperative) return mgv__fail(error, MGV_ERROR_NO_DEVICE, "GPU %i cannot launch cooperatively", (int64_t)desc->device);
    cuda->device = desc->device;
    cuda->shared_limit = (uint32_t)shared;
    cuda->clusters = (uint32_t)multiprocessors / MGV__CLUSTER;
    if (desc->max_clusters && desc->max_clusters < cuda->clusters) cuda->clusters = desc->max_clusters;
    if (!cuda->clusters)
        return mgv__fail(error, MGV_ERROR_NO_DEVICE, "GPU %i has %i multiprocessors; the kernel needs %u", (int64_t)desc->device,
                         (int64_t)multiprocessors,
                                          (uint64_t)MGV__CLUSTER);
    return MGV_OK;
}

/* Device memory for the plan: the caller's, from its first address that is aligned, or our own. */
static mgv_result mgv__cuda_take_arena(mgv__cuda *cuda, const mgv__cuda_desc *desc, mgv_error *error) {
    const uint64_t bytes = mgv__plan_device_bytes(cuda->plan);
    const size_t misfit = (size_t)((uintptr_t)desc->workspace % MGV__DEVICE_ALIGNMENT);
    if (desc->workspace && desc->workspace_bytes < bytes)
        return mgv__fail(error, MGV_ERROR_CAPACITY, "the device workspace has %u bytes where the engine needs %u", desc->workspace_bytes,
                         bytes);
    if (desc->workspace) {
        cuda->arena = (uint8_t *)desc->workspace + (misfit ? MGV__DEVICE_ALIGNMENT - misfit : 0);
        return MGV_OK;
    }
    MGV__CUDA_TRY(cuda->calls, Malloc, ((void **)&cuda->owned, (size_t)bytes), "allocating device memory");
    cuda->arena = cuda->owned; /* aligned by cudaMalloc */
    return MGV_OK;
}

static uint32_t *mgv__cuda_counters(const mgv__cuda *cuda, uint32_t set) {
    return (uint32_t *)(void *)(cuda->arena + cuda->plan->counters_offset + set * cuda->plan->counters_bytes);
}
/* The next launch counts in this set. */
static void mgv__cuda_use_counters(mgv__cuda *cuda, uint32_t set) {
    cuda->arguments.aborted = mgv__cuda_counters(cuda, set);
    cuda->arguments.counters = cuda->arguments.aborted + MGV__ABORT_BYTES / 4;
}

static mgv_result mgv__cuda_init(mgv__cuda *cuda, const mgv__cuda_desc *desc, const mgv__config *config, const mgv__program *program,
                                 const mgv__tensor *tensors, mgv_error *error) {
    mgv__plan *plan;
    mgv__kernel_arguments *arguments = &cuda->arguments;
    uint32_t i;
    mgv_result result = mgv__cuda_check_device(cuda, desc, error);
    if (result != MGV_OK) return result;
    cuda->plan = plan = (mgv__plan *)mgv__alloc(&cuda->allocator, sizeof *plan);
    if (!plan) return mgv__fail(error, MGV_ERROR_NOMEM, "out of memory for the plan");
    result = mgv__plan_layout(plan, config, program, desc->max_images, desc->group_images, error);
    if (result != MGV_OK) return result;
    plan->lanes = desc->lanes;
    result = mgv__plan_take_room(&cuda->allocator, plan, error);
    if (result != MGV_OK) return result;
    result = mgv__cuda_load(cuda, desc->kernels, error);
    if (result != MGV_OK) return result;
    result = mgv__cuda_latency_clusters(cuda, desc, error);
    if (result != MGV_OK) return result;
    result = mgv__cuda_take_arena(cuda, desc, error);
    if (result != MGV_OK) return result;
    MGV__CUDA_TRY(cuda->calls, Memset, (cuda->arena, 0, (size_t)plan->arena_bytes), "clearing device memory");
    MGV__CUDA_TRY(cuda->calls, MallocHost, (&cuda->upload, (size_t)plan->schedule_bytes), "allocating pinned memory");
    MGV__CUDA_TRY(cuda->calls, MallocHost, ((void **)&cuda->status, sizeof *cuda->status), "allocating pinned memory");
    memset(cuda->status, 0, sizeof *cuda->status);
    MGV__CUDA_TRY(cuda->calls, EventCreateWithFlags, (&cuda->done, cudaEventDisableTiming), "making an event");
    result = mgv__cuda_upload_weights(cuda, &desc->packed, tensors, error);
    if (result != MGV_OK) return result;
    arguments->weights = cuda->arena + plan->weights_offset;
    arguments->vectors = (const float *)(cuda->arena + plan->vectors_offset);
    arguments->stats = (float *)(cuda->arena + plan->stats_offset);
    arguments->status = cuda->status;
    mgv__cuda_use_counters(cuda, cuda->counter_set);
    cuda->cleared = 1; /* with the arena */
    arguments->patches = (uint16_t *)(cuda->arena + plan->buffers[MGV__DEVICE_PATCHES].offset);
    arguments->residual_rows = (const uint16_t *)(cuda->arena + plan->buffers[MGV__DEVICE_HEAD_OUT].offset);
    for (i = 0; i < MGV__DEVICE_BUFFER_COUNT; i++) arguments->buffers[i] = cuda->arena + plan->buffers[i].offset;
    arguments->image_size = config->image_size;
    arguments->patch = config->patch;
    arguments->grid = config->image_size / config->patch;
    arguments->patch_pitch = plan->patch_pitch;
    arguments->latency_rows = mgv__plan_latency_rows(cuda->plan->tokens);
    arguments->poll_limit = desc->poll_limit ? desc->poll_limit : 1555000; /* a poll takes 0.161 us on the H200 */
    return mgv__cuda_encode_maps(cuda, arguments->maps, error); /* each schedule makes its own: what the driver refuses is refused here */
}

/* Makes the device side of an engine. tensors: the model's, with their data. */
static mgv_result mgv__cuda_create(mgv__cuda **out, const mgv__cuda_desc *desc, const mgv__config *config, const mgv__program *program,
                                   const mgv__tensor *tensors, mgv_error *error) {
    mgv__cuda *cuda = (mgv__cuda *)mgv__alloc(&desc->allocator, sizeof *cuda);
    mgv_result result;
    *out = NULL;
    if (!cuda) return mgv__fail(error, MGV_ERROR_NOMEM, "out of memory for the GPU engine");
    memset(cuda, 0, sizeof *cuda);
    cuda->allocator = desc->allocator;
    cuda->calls = desc->calls ? desc->calls : MGV__CUDA_RUNTIME;
    result = mgv__cuda_init(cuda, desc, config, program, tensors, error);
    if (result != MGV_OK) {
        mgv__cuda_destroy(cuda);
        return result;
    }
    *out = cuda;
    return MGV_OK;
}

static mgv__sent_schedule *mgv__cuda_find_schedule(mgv__cuda *cuda, uint32_t images) {
    uint32_t i;
    for (i = 0; i < MGV__PLAN_SCHEDULES; i++)
        if (cuda->schedules[i].images == images && mgv__row_outputs_equal(&cuda->schedules[i].outputs, &cuda->outputs))
            return &cuda->schedules[i];
    return NULL;
}

/* The place for another schedule: one that is free, else the one that was not used for longest. NULL: graphs hold them all. */
static mgv__sent_schedule *mgv__cuda_vacate_schedule(mgv__cuda *cuda) {
    mgv__sent_schedule *oldest = NULL;
    uint32_t i;
    for (i = 0; i < MGV__PLAN_SCHEDULES; i++) {
        mgv__sent_schedule *schedule = &cuda->schedules[i];
        if (!schedule->captured && (!oldest || schedule->used < oldest->used)) oldest = schedule;
    }
    if (oldest) memset(oldest, 0, sizeof *oldest);
    return oldest;
}

/* A graph that is being captured will use the schedule for so many images: it stays where it is. */
static mgv_result mgv__cuda_hold_schedule(mgv__cuda *cuda, uint32_t images, mgv_error *error) {
    mgv__sent_schedule *schedule = mgv__cuda_find_schedule(cuda, images);
    if (!schedule)
        return mgv__fail(error, MGV_ERROR_UNSUPPORTED,
                         "the schedule for %u images and these outputs is not on the GPU yet: encode so many once before the stream is "
                         "captured",
                         (uint64_t)images);
    schedule->captured = 1;
    return MGV_OK;
}

/* The schedule for so many images: made, proved and sent where it is not on the device already. */
static mgv_result mgv__cuda_schedule(mgv__cuda *cuda, uint32_t images, cudaStream_t stream, mgv__sent_schedule **out, mgv_error *error) {
    mgv__plan *plan = cuda->plan;
    mgv__kernel_op *ops = (mgv__kernel_op *)cuda->upload;
    mgv__sent_schedule *schedule = *out = mgv__cuda_find_schedule(cuda, images);
    uint8_t *place;
    mgv_result result;
    size_t op_bytes;
    uint32_t *deal, i;
    mgv__plan_want(plan, &cuda->outputs); /* also for what is there: a verdict names operations of this list */
    if (schedule) return MGV_OK;
    op_bytes = plan->op_count * sizeof *ops;
    mgv__plan_schedule(plan, images, cuda->clusters);
    result = mgv__plan_validate(plan, plan->counts, error);
    if (result != MGV_OK) return result;
    for (i = 0; i < plan->op_count; i++) {
        ops[i] = plan->ops[i].kernel;
        ops[i].number = i;
    }
    memcpy(ops + plan->op_count, plan->segments, (plan->segment_count + 1) * sizeof *plan->segments);
    deal = (uint32_t *)((mgv__kernel_segment *)(ops + plan->op_count) + plan->segment_count + 1);
    memcpy(deal, plan->deal, mgv__plan_deal_words(plan) * sizeof *deal);
    *out = schedule = mgv__cuda_vacate_schedule(cuda);
    if (!schedule)
        return mgv__fail(error, MGV_ERROR_CAPACITY, "an engine holds the schedules of %u batch sizes, and CUDA graphs use them all",
                         (uint64_t)MGV__PLAN_SCHEDULES);
    result = mgv__cuda_encode_maps(cuda, schedule->maps, error);
    if (result != MGV_OK) return result;
    place = cuda->arena + (uint64_t)(schedule - cuda->schedules) * plan->schedule_bytes;
    MGV__CUDA_TRY(cuda->calls, MemcpyAsync, (place + plan->ops_offset, ops, op_bytes, cudaMemcpyHostToDevice, stream),
                  "sending the schedule");
    MGV__CUDA_TRY(cuda->calls, MemcpyAsync, (place + plan->segments_offset, ops + plan->op_count,
                                             (plan->segment_count + 1) * sizeof *plan->segments,
                                  cudaMemcpyHostToDevice, stream), "sending the schedule");
    if (plan->dealt)
        MGV__CUDA_TRY(cuda->calls, MemcpyAsync, (place + plan->deal_offset, deal, mgv__plan_deal_words(plan) * sizeof *deal,
                                                 cudaMemcpyHostToDevice, stream), "sending the schedule");
    schedule->images = images; /* all parts are on their way */
    schedule->outputs = cuda->outputs;
    schedule->total_tiles = plan->segments[plan->segment_count].first_tile;
    schedule->dealt = plan->dealt;
    schedule->regime = plan->regime;
    schedule->kernel = mgv__plan_kernel(plan);
    schedule->clusters = plan->clusters;
    return MGV_OK;
}

/* What the next launch is to run. */
static void mgv__cuda_use_schedule(mgv__cuda *cuda, mgv__sent_schedule *schedule) {
    const uint8_t *place = cuda->arena + (uint64_t)(schedule - cuda->schedules) * cuda->plan->schedule_bytes;
    schedule->used = ++cuda->launches;
    memcpy(cuda->arguments.maps, schedule->maps, sizeof schedule->maps);
    cuda->arguments.ops = (const mgv__kernel_op *)(const void *)(place + cuda->plan->ops_offset);
    cuda->arguments.segments = (const mgv__kernel_segment *)(const void *)(place + cuda->plan->segments_offset);
    cuda->arguments.deal = schedule->dealt ? (const uint32_t *)(const void *)(place + cuda->plan->deal_offset) : NULL;
    cuda->arguments.total_tiles = schedule->total_tiles;
    cuda->schedule = schedule;
}

/* Counters and abort word of the next launch as it wants them. */
static mgv_result mgv__cuda_clear(mgv__cuda *cuda, cudaStream_t stream, mgv_error *error) {
    MGV__CUDA_TRY(cuda->calls, MemsetAsync, (cuda->arguments.aborted, 0, (size_t)cuda->plan->counters_bytes, stream),
                  "clearing the counters");
    return MGV_OK;
}

/* Chooses the counters of the next launch. Two sets take turns, and a launch zeroes that of the next one, also if it gives up itself: what
   begins behind it need not wait for a memset of its own. A CUDA graph is replayed without us and would count in the same set again and
   again: captured launches have a set to themselves and a memset in front. */
static mgv_result mgv__cuda_take_counters(mgv__cuda *cuda, int captured, cudaStream_t stream, mgv_error *error) {
    mgv__kernel_arguments *arguments = &cuda->arguments;
    mgv__cuda_use_counters(cuda, captured ? (uint32_t)MGV__COUNTERS_OF_GRAPHS : cuda->counter_set);
    arguments->next_counters = (int32_t)(mgv__cuda_counters(cuda, cuda->counter_set ^ 1) - arguments->aborted);
    arguments->next_count = captured ? 0 : (uint32_t)(cuda->plan->counters_bytes / 4);
    return captured || !cuda->cleared ? mgv__cuda_clear(cuda, stream, error) : MGV_OK;
}

/* The kernel as cuda->arguments have it: one launch. */
static mgv_result mgv__cuda_launch_kernel(mgv__cuda *cuda, cudaStream_t stream, mgv_error *error) {
    cudaLaunchConfig_t config;
    cudaLaunchAttribute attributes[2];
    void *arguments[1];
    mgv__cuda_configure(cuda, cuda->schedule->regime, cuda->schedule->clusters, &config, attributes);
    config.stream = stream;
    arguments[0] = &cuda->arguments;
    MGV__CUDA_TRY(cuda->calls, LaunchKernelExC, (&config, (const void *)cuda->kernel[cuda->schedule->kernel], arguments),
                  "launching the kernel");
    return MGV_OK;
}

/* How the last kernel ended is known, or nobody has asked. No kernel may be under way. */
static void mgv__cuda_forget(mgv__cuda *cuda) { memset(cuda->status, 0, sizeof *cuda->status); }

/* Enqueues the encoding of `images` pictures of the model's size, RGB, one after the other in device memory. The pooled rows are then at
   mgv__cuda_pooled. captured: into a CUDA graph. The caller records `done` behind what it enqueues itself. */
static mgv_result mgv__cuda_launch(mgv__cuda *cuda, uint32_t images, const uint8_t *device_pixels, int captured, cudaStream_t stream,
                                   mgv_error *error) {
    mgv__sent_schedule *schedule;
    mgv_result result = mgv__cuda_schedule(cuda, images, stream, &schedule, error);
    if (result != MGV_OK) return result;
    mgv__cuda_use_schedule(cuda, schedule);
    mgv__cuda_forget(cuda);
    cuda->arguments.pixels = device_pixels;
    result = mgv__cuda_take_counters(cuda, captured, stream, error);
    if (result == MGV_OK) result = mgv__cuda_launch_kernel(cuda, stream, error);
    if (captured) return result;
    cuda->cleared = result == MGV_OK;
    if (cuda->cleared) cuda->counter_set ^= 1;
    return result;
}

/* Where the kernel puts the pooled rows: in the arena, or for up to MGV__GEMV_MAX_ROWS images, whose rows it writes by ordinary stores, at
   an address of the caller's that the card can write, a multiple of 16 bytes. */
static float *mgv__cuda_pooled(const mgv__cuda *cuda) { return (float *)(void *)cuda->arguments.buffers[MGV__DEVICE_POOLED]; }
static void mgv__cuda_place_pooled(mgv__cuda *cuda, float *pooled) {
    uint8_t *own = cuda->arena + cuda->plan->buffers[MGV__DEVICE_POOLED].offset;
    cuda->arguments.buffers[MGV__DEVICE_POOLED] = pooled ? (uint8_t *)pooled : own;
}

/* What precedes an operation's name. */
static const char *const mgv__wait_names[] = {"nothing before", "a counter before", "the end of a tile of", "the end of its warps after",
                                              "aligned shared memory before"};
MGV__STATIC_ASSERT(sizeof mgv__wait_names / sizeof mgv__wait_names[0] == MGV__WAIT_COUNT, every_wait_has_a_name);

/* What the finished kernels said of themselves since the last launch or mgv__cuda_forget. */
static mgv_result mgv__cuda_verdict(const mgv__cuda *cuda, mgv_error *error) {
    const mgv__kernel_status *s = cuda->status;
    const uint32_t has_operation = s->aborted != MGV__WAIT_ALIGNMENT;
    const char *label = has_operation && s->op < cuda->plan->op_count ? cuda->plan->ops[s->op].label : "an operation";
    if (s->aborted == 0) return MGV_OK;
    return mgv__fail(error, MGV_ERROR_TIMEOUT,
                     "the kernel gave up: CTA %u waited for %s %s (operation %u, index %u, saw %u, expected %u)", (uint64_t)s->cta,
                     s->aborted < MGV__WAIT_COUNT ? mgv__wait_names[s->aborted] : "? at", label, (uint64_t)s->op, (uint64_t)s->index,
                     (uint64_t)s->seen, (uint64_t)s->expected);
}

#endif /* MEGAVIT_CUDA */


/* ---- the CUDA backend's way through an encode: pictures to the card, one launch, the pooled rows back ---- */

#if defined(MEGAVIT_CUDA) && !defined(MEGAVIT_NO_CUDA)
#ifdef MEGAVIT_KERNELS_HEADER
#include MEGAVIT_KERNELS_HEADER
#define MGV__COMPILED_IN_KERNELS mgv_kernels
#else
#define MGV__COMPILED_IN_KERNELS NULL
#endif

typedef struct mgv__gpu {
    const mgv__cuda_calls *calls;
    mgv__cuda *cuda;
    int32_t device;
    cudaEvent_t started;       /* the stream has come to our work; cuda->done: and has finished it */
    float *pinned_rows;        /* [max_row_outputs, max_images, tokens, hidden] on the host: token and layer outputs on their way back */
    const float *staged[MGV__MAX_OUTPUTS]; /* where the rows of an output wait until they are handed out; NULL: they are there, or pooled */
    uint8_t *pinned_pixels;    /* [max_images, S, S, 3] on the host: resized pictures on their way */
    uint8_t *device_pixels;    /* the same on the card, in the arena */
    float *pinned_pooled;      /* [max_images, pooled columns] on the host: rows on their way back */
    uint64_t image_bytes;
    int32_t capturing;         /* the stream of this encode is being captured: what is enqueued becomes part of a CUDA graph */
    int32_t captured;          /* graphs may hold encodes of this engine, and run them at any time */
    int32_t enqueued;          /* an encode has begun to put work on the stream */
    int32_t lost;              /* the context is gone, or nobody can say when the card is done: nothing is enqueued any more */
} mgv__gpu;

/* What a call changes of its thread, which a library does not do under its user: it is put back when the call ends. */
typedef struct mgv__gpu_thread {
    int device;
    int relaxed;                     /* the capture mode is ours */
    enum cudaStreamCaptureMode mode; /* the caller's */
} mgv__gpu_thread;

/* Capture mode: while any thread captures a stream in the global mode, the others are forbidden to ask events and to free memory, on pain
   of the capture's end, unless they say that this has nothing to do with it (relaxed). It has not: events and memory are the engine's. */
static mgv_result mgv__gpu_enter(const mgv__gpu *gpu, mgv__gpu_thread *thread, mgv_error *error) {
    thread->device = gpu->device;
    thread->relaxed = 0;
    thread->mode = cudaStreamCaptureModeRelaxed;
    MGV__CUDA_TRY(gpu->calls, GetDevice, (&thread->device), "asking for the current GPU");
    if (thread->device != gpu->device) MGV__CUDA_TRY(gpu->calls, SetDevice, (gpu->device), "choosing the GPU");
    MGV__CUDA_TRY(gpu->calls, ThreadExchangeStreamCaptureMode, (&thread->mode), "leaving captures of other streams alone");
    thread->relaxed = 1;
    return MGV_OK;
}
static void mgv__gpu_leave(const mgv__gpu *gpu, mgv__gpu_thread *thread) {
    if (thread->relaxed) gpu->calls->ThreadExchangeStreamCaptureMode(&thread->mode);
    if (thread->device != gpu->device) gpu->calls->SetDevice(thread->device);
}

static void mgv__gpu_free(mgv__gpu *gpu, const mgv_allocator *allocator) {
    mgv__gpu_thread thread;
    if (!gpu) return;
    mgv__gpu_enter(gpu, &thread, NULL);
    if (gpu->started) gpu->calls->EventDestroy(gpu->started);
    if (gpu->pinned_pixels) gpu->calls->FreeHost(gpu->pinned_pixels);
    if (gpu->pinned_pooled) gpu->calls->FreeHost(gpu->pinned_pooled);
    if (gpu->pinned_rows) gpu->calls->FreeHost(gpu->pinned_rows);
    mgv__cuda_destroy(gpu->cuda);
    mgv__gpu_leave(gpu, &thread);
    mgv__free(allocator, gpu);
}

/* Floats of one token or layer output of the most pictures. */
static uint64_t mgv__gpu_row_floats(const mgv_model *model, const mgv_engine_desc *desc) {
    return (uint64_t)desc->max_images * mgv__tokens_per_picture(model, desc) * model->config.hidden;
}

static mgv_result mgv__gpu_allocate(mgv__gpu *gpu, const mgv_model *model, const mgv_engine_desc *desc, mgv_error *error) {
    const uint64_t side = model->config.image_size, pooled = (uint64_t)desc->max_images * model->config.hidden;
    const uint64_t rows = mgv__gpu_row_floats(model, desc);
    size_t bytes;
    if (desc->max_row_outputs > MGV__MAX_OUTPUTS || (desc->max_row_outputs && rows > SIZE_MAX / sizeof(float) / desc->max_row_outputs))
        return mgv__fail(error, MGV_ERROR_CAPACITY, "max_row_outputs is %u: %u are allowed, each of them of %u floats here",
                         (uint64_t)desc->max_row_outputs, (uint64_t)MGV__MAX_OUTPUTS, rows);
    if (desc->max_row_outputs)
        MGV__CUDA_TRY(gpu->calls, MallocHost, ((void **)&gpu->pinned_rows, (size_t)rows * sizeof(float) * desc->max_row_outputs),
                      "allocating pinned memory for token and layer outputs");
    gpu->image_bytes = side * side * 3;
    if (gpu->image_bytes * desc->max_images > SIZE_MAX / 2)
        return mgv__fail(error, MGV_ERROR_CAPACITY, "%u images of %u bytes do not fit into this machine's address space",
                         (uint64_t)desc->max_images, gpu->image_bytes);
    bytes = (size_t)(gpu->image_bytes * desc->max_images);
    MGV__CUDA_TRY(gpu->calls, MallocHost, ((void **)&gpu->pinned_pixels, bytes), "allocating pinned memory for pictures");
    gpu->device_pixels = gpu->cuda->arena + gpu->cuda->plan->pixels_offset;
    MGV__CUDA_TRY(gpu->calls, MallocHost, ((void **)&gpu->pinned_pooled, (size_t)pooled * sizeof(float)),
                  "allocating pinned memory for results");
    MGV__CUDA_TRY(gpu->calls, EventCreateWithFlags, (&gpu->started, cudaEventDisableTiming), "making an event");
    return MGV_OK;
}

/* Everything of an engine that lives on the card, or why it cannot. */
static mgv_result mgv__gpu_create(mgv__gpu **out, const mgv_model *model, const mgv_engine_desc *desc, mgv_error *error) {
    mgv__cuda_desc cuda_desc;
    mgv__gpu *gpu;
    mgv_result result;
    int current = -1;
    *out = NULL;
    memset(&cuda_desc, 0, sizeof cuda_desc);
    cuda_desc.device = desc->device;
    cuda_desc.max_images = desc->max_images;
    cuda_desc.max_clusters = desc->max_sms / MGV__CLUSTER;
    cuda_desc.kernels = desc->kernels ? desc->kernels : MGV__COMPILED_IN_KERNELS;
    cuda_desc.allocator = desc->allocator;
    cuda_desc.packed.path = desc->packed_path;
    cuda_desc.packed.data = desc->packed;
    cuda_desc.packed.bytes = desc->packed_bytes;
    cuda_desc.packed.io = desc->io;
    cuda_desc.packed.model_hash = model->hash;
    cuda_desc.workspace = desc->device_workspace;
    cuda_desc.workspace_bytes = desc->device_workspace_bytes;
    cuda_desc.calls = desc->cuda_calls ? desc->cuda_calls : MGV__CUDA_RUNTIME;
    if (!cuda_desc.calls)
        return mgv__fail(error, MGV_ERROR_NO_DEVICE, "this build has no CUDA runtime (MEGAVIT_NO_CUDART): pass mgv_engine_desc.cuda_calls");
    if (desc->max_sms && !cuda_desc.max_clusters)
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "max_sms is %u; the kernel needs at least %u", (uint64_t)desc->max_sms,
                         (uint64_t)MGV__CLUSTER);
    if (!cuda_desc.kernels)
        return mgv__fail(error, MGV_ERROR_NO_DEVICE,
                         "there are no GPU kernels: define MEGAVIT_KERNELS_HEADER or pass megavit.fatbin as mgv_engine_desc.kernels");
    gpu = (mgv__gpu *)mgv__alloc(&desc->allocator, sizeof *gpu);
    if (!gpu) return mgv__fail_nomem(error, "the GPU side of an engine", sizeof *gpu);
    memset(gpu, 0, sizeof *gpu);
    gpu->calls = cuda_desc.calls;
    gpu->device = desc->device;
    if (gpu->calls->GetDevice(&current) != cudaSuccess) current = -1; /* why, mgv__cuda_create will say */
    result = mgv__cuda_create(&gpu->cuda, &cuda_desc, &model->config, &model->program, model->tensors, error);
    if (result == MGV_OK) result = mgv__gpu_allocate(gpu, model, desc, error);
    if (current >= 0 && current != gpu->device) gpu->calls->SetDevice(current);
    if (result != MGV_OK) {
        mgv__gpu_free(gpu, &desc->allocator);
        return result;
    }
    *out = gpu;
    return MGV_OK;
}

static mgv_result mgv__gpu_check_image(const mgv_engine *engine, const mgv_image *image, uint32_t number, mgv_error *error) {
    const uint32_t side = engine->model->config.image_size;
    const int in_rows = image->stride == 0 || image->stride == 3 * (int64_t)side;
    if (image->place == MGV_PLACE_HOST) return MGV_OK;
    if (image->format == MGV_PIXELS_RGB8 && image->width == side && image->height == side && in_rows) return MGV_OK;
    return mgv__fail(error, MGV_ERROR_UNSUPPORTED,
                     "image %u: pictures in device memory must be RGB8 of %u x %u pixels, rows one after the other; others are "
                     "resized from host memory",
                     (uint64_t)number, (uint64_t)side, (uint64_t)side);
}

static mgv_result mgv__gpu_check_output(const mgv_engine *engine, const mgv_output *output, uint32_t number, mgv_error *error) {
    (void)engine;
    if (output->place == MGV_PLACE_DEVICE && output->normalize)
        return mgv__fail(error, MGV_ERROR_UNSUPPORTED, "output %u: rows are normalised on their way to host memory only", (uint64_t)number);
    return MGV_OK;
}

/* Whether host memory is page-locked, so that a CUDA graph can copy from and to it. */
static mgv_result mgv__gpu_is_pinned(const mgv__gpu *gpu, const void *memory, int *pinned, mgv_error *error) {
    struct cudaPointerAttributes attributes;
    memset(&attributes, 0, sizeof attributes);
    MGV__CUDA_TRY(gpu->calls, PointerGetAttributes, (&attributes, memory), "asking where memory lies");
    *pinned = attributes.type == cudaMemoryTypeHost;
    return MGV_OK;
}

/* Where the kernel puts one token or layer output: straight where it was asked for if the card reaches that, else in pinned_rows. */
static mgv_result mgv__gpu_place_rows(mgv_engine *engine, mgv__gpu *gpu, uint32_t number, uint32_t *staged, float **place,
                                      mgv_error *error) {
    const mgv_output *output = &engine->outputs[number];
    struct cudaPointerAttributes attributes;
    memset(&attributes, 0, sizeof attributes);
    MGV__CUDA_TRY(gpu->calls, PointerGetAttributes, (&attributes, output->data), "asking where memory lies");
    *place = (float *)attributes.devicePointer;
    if (output->place == MGV_PLACE_DEVICE) {
        const int elsewhere = attributes.type == cudaMemoryTypeDevice && attributes.device != gpu->device;
        if (*place && attributes.type != cudaMemoryTypeUnregistered && !elsewhere) return MGV_OK;
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "output %u is said to be in device memory, but it is not in that of GPU %i",
                         (uint64_t)number, (int64_t)gpu->device);
    }
    if (attributes.type == cudaMemoryTypeHost && *place && !output->normalize) return MGV_OK;
    if (gpu->capturing)
        return mgv__fail(error, MGV_ERROR_UNSUPPORTED,
                         "output %u: a CUDA graph gives rows as they are, not normalised, into device or page-locked memory",
                         (uint64_t)number);
    if (*staged == engine->desc.max_row_outputs)
        return mgv__fail(error, MGV_ERROR_CAPACITY,
                         "output %u: token and layer outputs that are normalised or not in page-locked memory wait in memory of the "
                         "engine, which was made for %u of them (mgv_engine_desc.max_row_outputs)", (uint64_t)number,
                         (uint64_t)engine->desc.max_row_outputs);
    *place = gpu->pinned_rows + (*staged)++ * mgv__gpu_row_floats(engine->model, &engine->desc);
    gpu->staged[number] = *place;
    return MGV_OK;
}

/* Tells the kernel which token and layer outputs it is to write, and where. */
static mgv_result mgv__gpu_take_outputs(mgv_engine *engine, mgv__gpu *gpu, mgv_error *error) {
    mgv__row_outputs *rows = &gpu->cuda->outputs;
    uint32_t i, staged = 0;
    mgv_result result = MGV_OK;
    rows->count = 0;
    for (i = 0; i < engine->job.output_count && result == MGV_OK; i++) {
        const mgv_output *output = &engine->outputs[i];
        gpu->staged[i] = NULL;
        if (output->kind == MGV_OUTPUT_POOLED) continue;
        rows->layer[rows->count] = output->kind == MGV_OUTPUT_TOKENS ? (int32_t)MGV__ROWS_TOKENS_OUTPUT : (int32_t)output->index;
        result = mgv__gpu_place_rows(engine, gpu, i, &staged, &gpu->cuda->arguments.outputs[rows->count++], error);
    }
    return result;
}
MGV__STATIC_ASSERT((int)MGV__MAX_OUTPUTS <= (int)MGV__KERNEL_MAX_OUTPUTS, outputs_fit_the_kernel_argument);

/* A graph runs without us: it takes host pictures as they are, and puts rows where they were asked for. */
static mgv_result mgv__gpu_check_capture(const mgv_engine *engine, const mgv__gpu *gpu, mgv_error *error) {
    const uint32_t side = engine->model->config.image_size;
    uint32_t i;
    int pinned = 1;
    for (i = 0; i < engine->job.image_count; i++) {
        const mgv_image *image = &engine->images[i];
        const int plain = image->format == MGV_PIXELS_RGB8 && image->width == side && image->height == side && image->frames <= 1 &&
            (image->stride == 0 || image->stride == 3 * (int64_t)side);
        mgv_result result = image->place == MGV_PLACE_HOST ? mgv__gpu_is_pinned(gpu, image->pixels, &pinned, error) : MGV_OK;
        if (result != MGV_OK) return result;
        if (!plain || !pinned)
            return mgv__fail(error, MGV_ERROR_UNSUPPORTED,
                             "image %u: a CUDA graph takes RGB8 pictures of %u x %u pixels, rows one after the other, in device or "
                             "page-locked memory",
                             (uint64_t)i, (uint64_t)side, (uint64_t)side);
    }
    for (i = 0; i < engine->job.output_count; i++) {
        const mgv_output *output = &engine->outputs[i];
        mgv_result result = output->place == MGV_PLACE_HOST ? mgv__gpu_is_pinned(gpu, output->data, &pinned, error) : MGV_OK;
        if (result != MGV_OK) return result;
        if (output->normalize || !pinned)
            return mgv__fail(error, MGV_ERROR_UNSUPPORTED,
                             "output %u: a CUDA graph gives rows as they are, not normalised, into device or page-locked memory",
                             (uint64_t)i);
    }
    return mgv__cuda_hold_schedule(gpu->cuda, engine->job.image_count, error);
}

/* The pictures on the card, one after the other: where they already lie so, or in device_pixels. */
static mgv_result mgv__gpu_send_pixels(mgv_engine *engine, mgv__gpu *gpu, cudaStream_t stream, const uint8_t **device_pixels,
                                       mgv_error *error) {
    const mgv__pixels_config *pixels = &engine->model->config.pixels;
    const uint8_t *first = (const uint8_t *)engine->images[0].pixels;
    uint32_t i, in_place = 0;
    for (i = 0; i < engine->job.image_count; i++)
        in_place += engine->images[i].place == MGV_PLACE_DEVICE &&
            (const uint8_t *)engine->images[i].pixels == first + i * gpu->image_bytes;
    *device_pixels = in_place == engine->job.image_count ? first : gpu->device_pixels;
    if (*device_pixels == first) return MGV_OK;
    for (i = 0; i < engine->job.image_count; i++) {
        const mgv_image *image = &engine->images[i];
        const void *from = image->pixels;
        if (image->place == MGV_PLACE_HOST && !gpu->capturing) {
            mgv_grid grid;
            from = gpu->pinned_pixels + i * gpu->image_bytes;
            mgv__pixels_grid(pixels, image->width, image->height, image->frames, 0, 0, &grid, NULL); /* checked before */
            mgv__pixels_prepare(pixels, engine->desc.resize, image, &grid, engine->pixels_scratch, &engine->desc.parallel,
                                (float *)(void *)(gpu->pinned_pixels + i * gpu->image_bytes), MGV__PIXELS_RGB8);
        }
        MGV__CUDA_TRY(gpu->calls, MemcpyAsync, (gpu->device_pixels + i * gpu->image_bytes, from, (size_t)gpu->image_bytes,
                                                cudaMemcpyDefault, stream),
                      "sending the pictures");
    }
    return MGV_OK;
}

/* Few rows go from the kernel straight to the host: their stores are done sooner than a copy behind the kernel begins. */
static void mgv__gpu_place_pooled(const mgv_engine *engine, mgv__gpu *gpu) {
    const int few = !gpu->capturing && engine->job.image_count <= MGV__DIRECT_IMAGES;
    uint32_t i, to_host = 0;
    for (i = 0; i < engine->job.output_count; i++)
        to_host |= engine->outputs[i].kind == MGV_OUTPUT_POOLED && engine->outputs[i].place == MGV_PLACE_HOST;
    mgv__cuda_place_pooled(gpu->cuda, few && to_host ? gpu->pinned_pooled : NULL);
}

static mgv_result mgv__gpu_fetch_pooled(mgv_engine *engine, mgv__gpu *gpu, cudaStream_t stream, mgv_error *error) {
    const size_t bytes = (size_t)engine->job.image_count * engine->model->config.hidden * sizeof(float);
    const float *pooled = mgv__cuda_pooled(gpu->cuda);
    uint32_t i, to_pinned = 0;
    for (i = 0; i < engine->job.output_count; i++) {
        const mgv_output *output = &engine->outputs[i];
        if (output->kind != MGV_OUTPUT_POOLED) continue; /* the kernel puts them where they belong */
        if (output->place == MGV_PLACE_HOST && !gpu->capturing) to_pinned = 1;
        else MGV__CUDA_TRY(gpu->calls, MemcpyAsync, (output->data, pooled, bytes, cudaMemcpyDefault, stream), "fetching the results");
    }
    if (to_pinned && pooled != gpu->pinned_pooled)
        MGV__CUDA_TRY(gpu->calls, MemcpyAsync, (gpu->pinned_pooled, pooled, bytes, cudaMemcpyDeviceToHost, stream), "fetching the results");
    return MGV_OK;
}

static mgv_status mgv__gpu_look(mgv_engine *engine, mgv__gpu *gpu, mgv_error *error);

/* Whether the stream is being captured; if not, whether what failed half-way or runs in a graph has ended. */
static mgv_result mgv__gpu_check_stream(mgv_engine *engine, mgv__gpu *gpu, cudaStream_t stream, mgv_error *error) {
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    mgv_status status = engine->job.abandoned ? MGV_STATUS_RUNNING : MGV_STATUS_DONE;
    MGV__CUDA_TRY(gpu->calls, StreamIsCapturing, (stream, &capture), "asking the stream");
    if (capture == cudaStreamCaptureStatusInvalidated)
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "the capture of this stream has failed before");
    gpu->capturing = capture == cudaStreamCaptureStatusActive;
    if (!gpu->capturing && (engine->job.abandoned || gpu->captured))
        status = mgv__gpu_look(engine, gpu, error); /* what is being captured runs later */
    if (status == MGV_STATUS_FAILED) return error->code;
    if (status != MGV_STATUS_DONE) {
        if (engine->job.abandoned) engine->job.status = MGV_STATUS_RUNNING; /* so that mgv_wait waits for it */
        return mgv__fail(error, MGV_ERROR_BUSY, "the engine still works on %s: call mgv_wait first",
                         engine->job.abandoned ? "an encode that failed half-way" : "an encode in a CUDA graph");
    }
    if (engine->job.abandoned) engine->job.status = MGV_STATUS_FAILED; /* until another encode is enqueued, which may be refused before */
    engine->job.abandoned = 0;
    return MGV_OK;
}

static mgv_result mgv__gpu_enqueue(mgv_engine *engine, mgv__gpu *gpu, cudaStream_t stream, mgv_error *error) {
    const unsigned int flags = gpu->capturing ? cudaEventRecordExternal : cudaEventRecordDefault;
    const uint8_t *pixels;
    mgv_result result;
    if (!gpu->capturing) MGV__CUDA_TRY(gpu->calls, EventRecordWithFlags, (gpu->started, stream, flags), "recording an event");
    gpu->enqueued = 1;
    result = mgv__gpu_send_pixels(engine, gpu, stream, &pixels, error);
    mgv__gpu_place_pooled(engine, gpu);
    if (result == MGV_OK) result = mgv__cuda_launch(gpu->cuda, engine->job.image_count, pixels, gpu->capturing, stream, error);
    if (result == MGV_OK) result = mgv__gpu_fetch_pooled(engine, gpu, stream, error);
    if (result != MGV_OK) return result;
    MGV__CUDA_TRY(gpu->calls, EventRecordWithFlags, (gpu->cuda->done, stream, flags), "recording an event");
    return MGV_OK;
}

/* An encode failed after it had put work on the stream: the engine stays busy until the stream has gone through that. */
static void mgv__gpu_abandon(mgv_engine *engine, mgv__gpu *gpu, cudaStream_t stream, mgv_result result, const mgv_error *why) {
    if (result == MGV_ERROR_DEVICE_LOST || gpu->calls->EventRecordWithFlags(gpu->cuda->done, stream,
                                                                            cudaEventRecordDefault) != cudaSuccess) {
        gpu->lost = 1;
        return;
    }
    engine->job.error = *why;
    engine->job.abandoned = 1;
    engine->job.pending = 0;
    engine->job.status = MGV_STATUS_RUNNING;
}

static mgv_result mgv__gpu_start(mgv_engine *engine, void *stream, mgv_error *error) {
    mgv__gpu *gpu = engine->gpu;
    mgv__gpu_thread thread;
    mgv_error why;
    mgv_result result;
    if (gpu->lost)
        return mgv__fail(error, MGV_ERROR_DEVICE_LOST,
                         "an error before left this engine without its CUDA context; only destroying it remains");
    gpu->enqueued = gpu->capturing = 0;
    result = mgv__gpu_enter(gpu, &thread, &why);
    if (result == MGV_OK) result = mgv__gpu_check_stream(engine, gpu, (cudaStream_t)stream, &why);
    if (result == MGV_OK) result = mgv__gpu_take_outputs(engine, gpu, &why);
    if (result == MGV_OK && gpu->capturing) result = mgv__gpu_check_capture(engine, gpu, &why);
    if (result == MGV_OK) result = mgv__gpu_enqueue(engine, gpu, (cudaStream_t)stream, &why);
    if (result != MGV_OK && gpu->enqueued && !gpu->capturing) mgv__gpu_abandon(engine, gpu, (cudaStream_t)stream, result, &why);
    if (result == MGV_ERROR_DEVICE_LOST) gpu->lost = 1;
    mgv__gpu_leave(gpu, &thread);
    if (result != MGV_OK) return mgv__fail(error, result, "%s", why.message);
    if (gpu->capturing) gpu->captured = 1;
    engine->job.pending = !gpu->capturing;
    engine->job.status = gpu->capturing ? MGV_STATUS_DONE : MGV_STATUS_QUEUED;
    return MGV_OK;
}

/* The kernel has ended: its verdict, and the rows to where they were asked for. */
static void mgv__gpu_finish(mgv_engine *engine, mgv__gpu *gpu) {
    mgv__job *job = &engine->job;
    const uint32_t columns = engine->model->config.hidden, tokens = gpu->cuda->plan->tokens;
    uint32_t i;
    int deliver = job->pending;
    job->pending = 0;
    job->status = MGV_STATUS_TIMED_OUT;
    if (mgv__cuda_verdict(gpu->cuda, &job->error) != MGV_OK) return;
    job->status = MGV_STATUS_DONE;
    for (i = 0; deliver && i < job->output_count; i++) {
        mgv_output *output = &engine->outputs[i];
        const float *from = output->kind == MGV_OUTPUT_POOLED ? gpu->pinned_pooled : gpu->staged[i];
        const uint64_t each = output->kind == MGV_OUTPUT_POOLED ? 1 : tokens, rows = job->image_count * each;
        if (output->place != MGV_PLACE_HOST) continue;
        if (from) memcpy(output->data, from, (size_t)rows * columns * sizeof(float));
        if (job->status == MGV_STATUS_DONE && mgv__job_check_rows(output->data, rows, columns, i, 0, each, &job->error) != MGV_OK)
            job->status = MGV_STATUS_FAILED;
        if (output->normalize) mgv__normalize_rows(output->data, rows, columns);
    }
}

/* One look at the card, which never waits. */
static mgv_status mgv__gpu_look(mgv_engine *engine, mgv__gpu *gpu, mgv_error *error) {
    const mgv__cuda_calls *calls = gpu->calls;
    cudaError_t code = calls->EventQuery(gpu->cuda->done);
    if (code == cudaSuccess) return MGV_STATUS_DONE;
    if (code == cudaErrorNotReady)
        return !engine->job.pending || calls->EventQuery(gpu->started) == cudaSuccess ? MGV_STATUS_RUNNING : MGV_STATUS_QUEUED;
    mgv__cuda_fail(calls, error, code, "cudaEventQuery", "encoding");
    return MGV_STATUS_FAILED;
}
/* Looking at the card has failed. One error that may pass ends the encode, but not the engine: that is busy until the stream has gone through
   what was enqueued. A second one says failed at once, so that nobody waits for a card that does not answer; the next mgv_encode looks
   again. */
static void mgv__gpu_look_failed(mgv_engine *engine, mgv__gpu *gpu, const mgv_error *error) {
    mgv__job *job = &engine->job;
    const int again = job->abandoned;
    job->pending = 0;
    job->status = MGV_STATUS_FAILED;
    job->abandoned = error->code != MGV_ERROR_DEVICE_LOST;
    if (!job->abandoned) gpu->lost = 1;
    if (job->abandoned && !again) job->status = MGV_STATUS_RUNNING;
    if (!job->abandoned || !again) job->error = *error;
}
static void mgv__gpu_step(mgv_engine *engine) {
    mgv__gpu *gpu = engine->gpu;
    mgv__job *job = &engine->job;
    mgv__gpu_thread thread;
    mgv_error error;
    job->status = MGV_STATUS_FAILED;
    if (mgv__gpu_enter(gpu, &thread, &error) == MGV_OK) job->status = mgv__gpu_look(engine, gpu, &error);
    mgv__gpu_leave(gpu, &thread);
    if (job->status == MGV_STATUS_FAILED) {
        mgv__gpu_look_failed(engine, gpu, &error);
    } else if (job->status == MGV_STATUS_DONE && job->abandoned) {
        job->status = MGV_STATUS_FAILED;
        job->abandoned = 0;
    } else if (job->status == MGV_STATUS_DONE) {
        mgv__gpu_finish(engine, gpu);
    }
}

static int mgv__gpu_replays(const mgv_engine *engine) { return engine->gpu->captured && !engine->gpu->lost; }
static void mgv__gpu_told(mgv_engine *engine) { mgv__cuda_forget(engine->gpu->cuda); }
static const mgv__backend mgv__gpu_backend = {mgv__gpu_replays, mgv__gpu_check_image, mgv__gpu_check_output,
                                              mgv__gpu_start, mgv__gpu_step, mgv__gpu_told};
#endif /* MEGAVIT_CUDA */

/* ---------------------------------------------------------------------------------------------------------------
   >>encode: engines made, encode, poll, wait */

static const mgv__backend *mgv__backend_of(mgv_backend backend) {
#if defined(MEGAVIT_CUDA) && !defined(MEGAVIT_NO_CUDA)
    if (backend == MGV_BACKEND_CUDA) return &mgv__gpu_backend;
#endif
    (void)backend;
    return &mgv__cpu_backend;
}
static void mgv__release_gpu(struct mgv__gpu *gpu, const mgv_allocator *allocator) {
#if defined(MEGAVIT_CUDA) && !defined(MEGAVIT_NO_CUDA)
    mgv__gpu_free(gpu, allocator);
#endif
    (void)gpu;
    (void)allocator;
}

/* AUTO becomes what is there: a GPU that the kernels run on and a model that they know, else the CPU, and the log says why. A file of
   packed weights that is not right is the caller's to mend, not a reason to be slow. */
static mgv_result mgv__choose_backend(mgv_engine_desc *desc, const mgv_model *model, struct mgv__gpu **gpu, mgv_error *error) {
    mgv_error reason;
    mgv_result result;
    if (desc->backend == MGV_BACKEND_CPU) return MGV_OK;
#if defined(MEGAVIT_CUDA) && !defined(MEGAVIT_NO_CUDA)
    result = mgv__gpu_create(gpu, model, desc, &reason);
#else
    (void)model;
    (void)gpu;
    result = mgv__fail(&reason, MGV_ERROR_NO_DEVICE, "this build of megavit has no CUDA backend; use MGV_BACKEND_CPU or MGV_BACKEND_AUTO");
#endif
    if (result == MGV_OK) {
        desc->backend = MGV_BACKEND_CUDA;
        return MGV_OK;
    }
    if (desc->backend == MGV_BACKEND_CUDA || result == MGV_ERROR_FORMAT || result == MGV_ERROR_MODEL || result == MGV_ERROR_IO)
        return mgv__fail(error, result, "%s", reason.message);
    mgv__log(&desc->logger, MGV_LOG_INFO, "the CPU encodes: %s", reason.message);
    desc->backend = MGV_BACKEND_CPU;
    return MGV_OK;
}

MEGAVIT_API mgv_result mgv_engine_create(mgv_engine **engine, const mgv_model *model, const mgv_engine_desc *desc, mgv_error *error) {
    mgv_engine_desc d;
    mgv__layout layout;
    mgv_engine *made;
    struct mgv__gpu *gpu = NULL;
    void *block = NULL;
    size_t bytes = 0, misfit;
    mgv_result result;
    mgv__clear_error(error);
    if (!engine) return mgv__fail(error, MGV_ERROR_ARGUMENT, "mgv_engine_create: engine is NULL");
    *engine = NULL;
    result = mgv__engine_take_desc(&d, model, desc, error);
    if (result == MGV_OK) result = mgv__choose_backend(&d, model, &gpu, error);
    if (result == MGV_OK) result = mgv__engine_measure(model, &d, &bytes, error);
    if (result == MGV_OK && d.workspace && d.workspace_bytes < bytes)
        result = mgv__fail(error, MGV_ERROR_CAPACITY, "the workspace has %u bytes where the engine needs %u", d.workspace_bytes,
                           (uint64_t)bytes);
    if (result == MGV_OK && !d.workspace) {
        d.workspace = block = mgv__alloc(&d.allocator, bytes);
        if (!block) result = mgv__fail_nomem(error, "an engine", bytes);
    }
    if (result != MGV_OK) {
        mgv__release_gpu(gpu, &d.allocator);
        return result;
    }
    memset(&layout, 0, sizeof layout);
    misfit = (size_t)((uintptr_t)d.workspace % MGV__ALIGNMENT);
    layout.base = (unsigned char *)d.workspace + (misfit ? MGV__ALIGNMENT - misfit : 0);
    made = (mgv_engine *)mgv__place(&layout, 1, sizeof *made);
    memset(made, 0, sizeof *made);
    made->model = model;
    made->desc = d;
    made->backend = d.backend;
    made->block = block;
    made->isa = mgv__cpu_detect();
    made->gpu = gpu;
    made->run = mgv__backend_of(d.backend);
    result = mgv__engine_layout(&layout, model, &d, made, error);
    if (result != MGV_OK) {
        mgv__release_gpu(gpu, &d.allocator);
        mgv__free(&d.allocator, block);
        return result;
    }
    *engine = made;
    return MGV_OK;
}

MEGAVIT_API mgv_result mgv_engine_destroy(mgv_engine *engine) {
    mgv_allocator allocator;
    if (!engine) return MGV_OK;
    if (engine->gpu && mgv_wait(engine, MGV__DESTROY_WAIT_MS, NULL) == MGV_ERROR_BUSY) return MGV_ERROR_BUSY;
    allocator = engine->desc.allocator;
    mgv__release_gpu(engine->gpu, &allocator);
    mgv__free(&allocator, engine->block);
    return MGV_OK;
}

MEGAVIT_API mgv_backend mgv_engine_backend(const mgv_engine *engine) {
    return engine ? engine->backend : MGV_BACKEND_AUTO;
}

/* An encode is under way that mgv_encode began; what failed half-way or runs in a CUDA graph is the backend's to look after. */
static int mgv__engine_works(const mgv_engine *engine) {
    return engine->job.pending && (engine->job.status == MGV_STATUS_QUEUED || engine->job.status == MGV_STATUS_RUNNING);
}

/* Element i of an array of structs that may be those of an older header. */
static mgv_result mgv__take_image(mgv_image *out, const mgv_image *images, uint32_t i, mgv_error *error) {
    size_t step = images->struct_size ? images->struct_size : sizeof *images;
    return mgv__take_struct(out, sizeof *out, (const char *)images + i * step, images->struct_size, "mgv_image", error);
}
static mgv_result mgv__take_output(mgv_output *out, const mgv_output *outputs, uint32_t i, mgv_error *error) {
    size_t step = outputs->struct_size ? outputs->struct_size : sizeof *outputs;
    return mgv__take_struct(out, sizeof *out, (const char *)outputs + i * step, outputs->struct_size, "mgv_output", error);
}

/* The layout of one checked picture, and whether this engine can hold it. */
static mgv_result mgv__engine_picture(const mgv_engine *engine, const mgv_image *image, mgv_grid *grid, mgv_error *error) {
    const mgv_engine_desc *desc = &engine->desc;
    mgv_result result = mgv__pixels_check(image, error);
    if (result != MGV_OK) return result;
    if (image->width > desc->max_width || image->height > desc->max_height)
        return mgv__fail(error, MGV_ERROR_CAPACITY, "a picture of %u x %u pixels; this engine was made for %u x %u", (uint64_t)image->width,
                         (uint64_t)image->height, (uint64_t)desc->max_width, (uint64_t)desc->max_height);
    result = mgv__picture_grid(&engine->model->config, image, desc->min_pixels, desc->max_pixels, grid, error);
    if (result != MGV_OK) return result;
    if (grid->tokens > desc->max_tokens)
        return mgv__fail(error, MGV_ERROR_CAPACITY, "a picture of %u tokens; this engine was made for %u", (uint64_t)grid->tokens,
                         (uint64_t)desc->max_tokens);
    return mgv__geometry_check(&engine->model->config, grid, error);
}

MEGAVIT_API mgv_result mgv_engine_grid(const mgv_engine *engine, const mgv_image *image, mgv_grid *grid, mgv_error *error) {
    mgv_image taken;
    mgv_result result;
    mgv__clear_error(error);
    if (!engine || !image || !grid) return mgv__fail(error, MGV_ERROR_ARGUMENT, "mgv_engine_grid: engine, image or grid is NULL");
    memset(grid, 0, sizeof *grid);
    result = mgv__take_image(&taken, image, 0, error);
    return result == MGV_OK ? mgv__engine_picture(engine, &taken, grid, error) : result;
}

/* The tap that answers an output, or an error that says what the model has. */
static mgv_result mgv__find_tap(const mgv_model *model, const mgv_output *output, const mgv__tap **tap, mgv_error *error) {
    static const char *const names[] = {"pooled", "tokens", "layer", "deepstack", "embeds"};
    const mgv__program *program = &model->program;
    uint32_t i, count = 0;
    int indexed = output->kind == MGV_OUTPUT_LAYER || output->kind == MGV_OUTPUT_DEEPSTACK;
    if (output->kind < MGV_OUTPUT_POOLED || output->kind > MGV_OUTPUT_EMBEDS)
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "output kind %i is not one of mgv_output_kind", (int64_t)output->kind);
    for (i = 0; i < program->tap_count; i++) {
        if (program->taps[i].kind != output->kind) continue;
        *tap = &program->taps[i];
        if (!indexed || program->taps[i].index == output->index) return MGV_OK;
        count++;
    }
    if (count)
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "output %s:%u does not exist: this model has %s:0 to %s:%u", names[output->kind],
                         (uint64_t)output->index,
                         names[output->kind], names[output->kind], (uint64_t)count - 1);
    return mgv__fail(error, MGV_ERROR_ARGUMENT, "this model has no output of kind %s", names[output->kind]);
}

/* Checks all pictures and adds up what they need. */
static mgv_result mgv__engine_pictures(const mgv_engine *engine, const mgv_image *images, uint32_t count, mgv_grid *sum, mgv_error *error) {
    uint64_t tokens = 0;
    uint32_t i;
    memset(sum, 0, sizeof *sum);
    if (!images || count == 0) return mgv__fail(error, MGV_ERROR_ARGUMENT, "there are no images");
    if (count > engine->desc.max_images)
        return mgv__fail(error, MGV_ERROR_CAPACITY, "%u images in one encode; this engine was made for %u", (uint64_t)count,
                         (uint64_t)engine->desc.max_images);
    for (i = 0; i < count; i++) {
        mgv_image image;
        mgv_grid grid;
        mgv_result result = mgv__take_image(&image, images, i, error);
        if (result == MGV_OK) result = mgv__engine_picture(engine, &image, &grid, error);
        if (result != MGV_OK) return mgv__fail(error, result, "image %u: %s", (uint64_t)i, error ? error->message : "");
        tokens += grid.tokens;
        if (tokens > engine->desc.max_tokens)
            return mgv__fail(error, MGV_ERROR_CAPACITY, "%u tokens up to image %u; this engine was made for %u", tokens, (uint64_t)i,
                             (uint64_t)engine->desc.max_tokens);
        sum->tokens += grid.tokens;
        sum->merged_tokens += grid.merged_tokens;
    }
    return MGV_OK;
}

static void mgv__output_shape(const mgv__program *program, const mgv__tap *tap, const mgv_grid *sum, uint32_t image_count,
                              mgv_shape *shape) {
    const mgv__buffer_desc *buffer = &program->buffers[tap->buffer];
    shape->rows = buffer->rows == MGV__ROWS_IMAGES ? image_count : mgv__grid_rows(sum, buffer->rows);
    shape->columns = buffer->columns;
}

MEGAVIT_API mgv_result mgv_engine_shape(const mgv_engine *engine, const mgv_image *images, uint32_t image_count, const mgv_output *output,
                                        mgv_shape *shape, mgv_error *error) {
    const mgv__tap *tap = NULL;
    mgv_output taken;
    mgv_grid sum;
    mgv_result result;
    mgv__clear_error(error);
    if (!engine || !output || !shape) return mgv__fail(error, MGV_ERROR_ARGUMENT, "mgv_engine_shape: engine, output or shape is NULL");
    memset(shape, 0, sizeof *shape);
    result = mgv__take_output(&taken, output, 0, error);
    if (result == MGV_OK) result = mgv__find_tap(engine->model, &taken, &tap, error);
    if (result == MGV_OK) result = mgv__engine_pictures(engine, images, image_count, &sum, error);
    if (result == MGV_OK) mgv__output_shape(&engine->model->program, tap, &sum, image_count, shape);
    return result;
}

MEGAVIT_API mgv_result mgv_preprocess(mgv_engine *engine, const mgv_image *image, float *pixel_values, uint64_t capacity, mgv_shape *shape,
                                      mgv_error *error) {
    const mgv__pixels_config *pixels;
    mgv_image taken;
    mgv_grid grid;
    uint64_t need;
    mgv_result result;
    mgv__clear_error(error);
    if (!engine || !image || !shape) return mgv__fail(error, MGV_ERROR_ARGUMENT, "mgv_preprocess: engine, image or shape is NULL");
    memset(shape, 0, sizeof *shape);
    if (mgv__engine_works(engine)) return mgv__fail(error, MGV_ERROR_BUSY, "mgv_preprocess: the engine is encoding");
    result = mgv__take_image(&taken, image, 0, error);
    if (result == MGV_OK && taken.place != MGV_PLACE_HOST)
        result = mgv__fail(error, MGV_ERROR_ARGUMENT, "mgv_preprocess takes pixels in host memory");
    if (result == MGV_OK) result = mgv__engine_picture(engine, &taken, &grid, error);
    if (result != MGV_OK) return result;
    pixels = &engine->model->config.pixels;
    if (pixels->fixed_width) {
        shape->rows = 3 * (uint64_t)grid.height;
        shape->columns = grid.width;
    } else {
        shape->rows = grid.tokens;
        shape->columns = engine->model->program.buffers[0].columns;
    }
    need = shape->rows * shape->columns;
    if (!pixel_values) return MGV_OK;
    if (capacity < need)
        return mgv__fail(error, MGV_ERROR_CAPACITY, "the pixel values are %u floats; there is room for %u", need, capacity);
    if (mgv__image_overlaps(&taken, pixel_values, need * sizeof(float)))
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "mgv_preprocess: pixel_values overlap the picture that they are made of");
    mgv__pixels_prepare(pixels, engine->desc.resize, &taken, &grid, engine->pixels_scratch, &engine->desc.parallel, pixel_values,
                        pixels->fixed_width ? MGV__PIXELS_CHW : MGV__PIXELS_PATCHES);
    return MGV_OK;
}

/* Checks every output of an encode and notes where it is read. */
static mgv_result mgv__job_take_outputs(mgv_engine *engine, const mgv_encode_desc *desc, const mgv_grid *sum, mgv_error *error) {
    const mgv__program *program = &engine->model->program;
    uint32_t i;
    engine->job.op_end = 0;
    for (i = 0; i < desc->output_count; i++) {
        mgv_output *output = &engine->outputs[i];
        const mgv__tap *tap = NULL;
        mgv_shape shape;
        uint64_t need;
        mgv_result result = mgv__take_output(output, desc->outputs, i, error);
        if (result == MGV_OK) result = mgv__find_tap(engine->model, output, &tap, error);
        if (result != MGV_OK) return result;
        mgv__output_shape(program, tap, sum, desc->image_count, &shape);
        need = shape.rows * shape.columns;
        if (!output->data) return mgv__fail(error, MGV_ERROR_ARGUMENT, "output %u has no data pointer", (uint64_t)i);
        if (output->place != MGV_PLACE_HOST && output->place != MGV_PLACE_DEVICE)
            return mgv__fail(error, MGV_ERROR_ARGUMENT, "output %u: %i is no mgv_place", (uint64_t)i, (int64_t)output->place);
        result = engine->run->check_output(engine, output, i, error);
        if (result != MGV_OK) return result;
        if (output->capacity < need)
            return mgv__fail(error, MGV_ERROR_CAPACITY, "output %u needs %u floats; there is room for %u", (uint64_t)i, need,
                             output->capacity);
        output->capacity = need; /* from here on: what will be written */
        engine->written[i] = 0;
        engine->output_op[i] = tap->op;
        engine->output_buffer[i] = tap->buffer;
        if (tap->op + 1 > engine->job.op_end) engine->job.op_end = tap->op + 1;
    }
    return MGV_OK;
}

MEGAVIT_API mgv_result mgv_encode(mgv_engine *engine, const mgv_encode_desc *desc, mgv_error *error) {
    mgv_encode_desc d;
    mgv_grid sum;
    mgv_result result;
    uint32_t i, k;
    mgv__clear_error(error);
    if (!engine || !desc) return mgv__fail(error, MGV_ERROR_ARGUMENT, "mgv_encode: engine or desc is NULL");
    result = mgv__take_struct(&d, sizeof d, desc, desc->struct_size, "mgv_encode_desc", error);
    if (result != MGV_OK) return result;
    if (mgv__engine_works(engine))
        return mgv__fail(error, MGV_ERROR_BUSY, "the engine still works on the encode before: call mgv_wait first");
    if (!d.outputs || d.output_count == 0) return mgv__fail(error, MGV_ERROR_ARGUMENT, "mgv_encode: no outputs are asked for");
    if (d.output_count > MGV__MAX_OUTPUTS)
        return mgv__fail(error, MGV_ERROR_CAPACITY, "%u outputs in one encode; the limit is %u", (uint64_t)d.output_count,
                         (uint64_t)MGV__MAX_OUTPUTS);
    result = mgv__engine_pictures(engine, d.images, d.image_count, &sum, error);
    if (result == MGV_OK) result = mgv__job_take_outputs(engine, &d, &sum, error);
    for (i = 0; result == MGV_OK && i < d.image_count; i++) {
        result = mgv__take_image(&engine->images[i], d.images, i, error);
        if (result == MGV_OK) result = engine->run->check_image(engine, &engine->images[i], i, error);
        for (k = 0; result == MGV_OK && k < d.output_count; k++) {
            if (mgv__image_overlaps(&engine->images[i], engine->outputs[k].data, engine->outputs[k].capacity * sizeof(float)))
                result = mgv__fail(error, MGV_ERROR_ARGUMENT, "output %u overlaps the pixels of image %u", (uint64_t)k, (uint64_t)i);
        }
    }
    if (result != MGV_OK) return result;
    engine->job.image_count = d.image_count;
    engine->job.output_count = d.output_count;
    return engine->run->start(engine, d.stream, error);
}

MEGAVIT_API mgv_status mgv_poll(mgv_engine *engine, mgv_error *error) {
    mgv__clear_error(error);
    if (!engine) {
        mgv__fail(error, MGV_ERROR_ARGUMENT, "mgv_poll: engine is NULL");
        return MGV_STATUS_FAILED;
    }
    if (engine->job.status == MGV_STATUS_QUEUED || engine->job.status == MGV_STATUS_RUNNING ||
        engine->run->replays(engine)) engine->run->step(engine);
    if (error && (engine->job.status == MGV_STATUS_FAILED || engine->job.status == MGV_STATUS_TIMED_OUT)) *error = engine->job.error;
    return engine->job.status;
}

/* Milliseconds from some fixed moment. A compiler that is told to be strict (-std=c99) hides the clock that nobody sets, but not this other
   one of POSIX. */
static double mgv__now_ms(void) {
#if defined(_WIN32)
    LARGE_INTEGER now, rate;
    QueryPerformanceCounter(&now);
    QueryPerformanceFrequency(&rate);
    return (double)now.QuadPart * 1e3 / (double)rate.QuadPart;
#elif defined(CLOCK_MONOTONIC)
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
#elif defined(MGV__POSIX)
    struct timeval now;
    gettimeofday(&now, NULL);
    return (double)now.tv_sec * 1e3 + (double)now.tv_usec * 1e-3;
#else
    return (double)time(NULL) * 1e3;
#endif
}
/* Milliseconds since *last, which becomes now. None where somebody set the clock back: a wait is longer then by what it was into a step. */
static double mgv__lap_ms(double *last) {
    const double now = mgv__now_ms(), lap = now - *last;
    *last = now;
    return lap > 0 ? lap : 0;
}

/* Leaves the processor to others for 50 us. */
static void mgv__sleep(void) {
#if defined(_WIN32)
    Sleep(0); /* until it is our turn again: the shortest sleep by the clock may be 16 ms there */
#elif defined(MGV__POSIX)
    struct timeval pause;
    pause.tv_sec = 0;
    pause.tv_usec = 50;
    select(0, NULL, NULL, NULL, &pause);
#endif
}

/* Between two looks at a GPU. The CPU backend has work to do instead. */
static void mgv__pause(const mgv_engine *engine, double waited_ms) {
    if (engine->gpu && waited_ms >= (double)MGV__SPIN_MS) mgv__sleep();
}

MEGAVIT_API mgv_result mgv_wait(mgv_engine *engine, uint32_t timeout_ms, mgv_error *error) {
    double looked = mgv__now_ms(), waited = 0;
    mgv_status status = mgv_poll(engine, error);
    if (!engine) return MGV_ERROR_ARGUMENT;
    while (status == MGV_STATUS_QUEUED || status == MGV_STATUS_RUNNING) {
        waited += mgv__lap_ms(&looked);
        if (waited >= (double)timeout_ms)
            return mgv__fail(error, MGV_ERROR_BUSY, "still at image %u of %u, operation %u of %u after %u ms",
                             (uint64_t)engine->job.image + 1, (uint64_t)engine->job.image_count, (uint64_t)engine->job.op + 1,
                             (uint64_t)engine->job.op_end, (uint64_t)timeout_ms);
        mgv__pause(engine, waited);
        status = mgv_poll(engine, error);
    }
    if (status == MGV_STATUS_TIMED_OUT && engine->run->replays(engine)) engine->run->told(engine);
    return status == MGV_STATUS_DONE ? MGV_OK : engine->job.error.code;
}

MEGAVIT_API mgv_result mgv_encode_blocking(mgv_engine *engine, const mgv_encode_desc *desc, mgv_error *error) {
    mgv_result result = mgv_encode(engine, desc, error);
    if (result != MGV_OK) return result;
    if (engine->gpu && engine->job.status == MGV_STATUS_DONE) return MGV_OK; /* captured: the graph will run it */
    if (engine->gpu) return mgv_wait(engine, MGV__BLOCKING_WAIT_MS, error);
    while (mgv__engine_works(engine)) mgv_poll(engine, error);
    return engine->job.status == MGV_STATUS_DONE ? MGV_OK : engine->job.error.code;
}

/* ---------------------------------------------------------------------------------------------------------------
   >>validation: the GPU's operations against their twins on the CPU

   The kernel's list is run again and again, each time one operation further, on buffers full of NaN. The CPU runs the operations of the
   model that the kernel's last one stands for, on the values that the GPU had before it: errors do not add up, and an operation that is
   wrong is the one that is shown. Norms are folded into the products behind them and are compared with them.

   How far the GPU may be off: bf16 has eight bits, so rounding moves a value by 2^-9 of itself at most. An operation that rounds n values
   on the way to its result (a product: its weights and the result) may be off by n 2^-9 in relative L2; over the whole model, operations
   add up like independent errors. */

/* Bytes are copied or widened, and one fp32 sum stands against another. */
#define MGV__VALIDATION_EXACT 1e-6
#define MGV__BF16_STEP (1.0 / 512)
/* A single value is bad that differs by this many times the tolerance, in units of the values' root mean square. */
#define MGV__VALIDATION_OUTLIER 16.0

#if defined(MEGAVIT_CUDA) && !defined(MEGAVIT_NO_CUDA)

/* Ends the list before operation `limit`, or runs all of it for 0. Nothing is under way and no graph holds a schedule: those on the device
   are forgotten. */
static void mgv__cuda_limit(mgv__cuda *cuda, uint32_t limit) {
    cuda->plan->op_limit = limit;
    memset(cuda->schedules, 0, sizeof cuda->schedules);
}

/* Runs the list up to and with operation `last`, on buffers and statistics that hold nothing but NaN, and waits. */
static mgv_result mgv__cuda_run_to(mgv__cuda *cuda, uint32_t images, const uint8_t *device_pixels, uint32_t last, mgv_error *error) {
    double looked = mgv__now_ms(), waited = 0;
    cudaError_t code = cudaErrorNotReady;
    mgv_result result;
    /* every byte 255 is a NaN in bf16 and in float32; the arena begins with the buffers, the statistics follow */
    MGV__CUDA_TRY(cuda->calls, Memset, (cuda->arena, 255, (size_t)cuda->plan->vectors_offset), "filling the buffers with NaN");
    mgv__cuda_limit(cuda, last + 1);
    mgv__cuda_place_pooled(cuda, NULL); /* all results are looked for in the arena */
    result = mgv__cuda_launch(cuda, images, device_pixels, 0, NULL, error);
    mgv__cuda_limit(cuda, 0);
    if (result != MGV_OK) return result;
    MGV__CUDA_TRY(cuda->calls, EventRecordWithFlags, (cuda->done, NULL, cudaEventRecordDefault), "recording an event");
    while (code == cudaErrorNotReady) {
        code = cuda->calls->EventQuery(cuda->done);
        waited += mgv__lap_ms(&looked);
        if (code == cudaErrorNotReady && waited > (double)MGV__DESTROY_WAIT_MS)
            return mgv__fail(error, MGV_ERROR_TIMEOUT, "%s (operation %u) did not end within %u ms", cuda->plan->ops[last].label,
                             (uint64_t)last, (uint64_t)MGV__DESTROY_WAIT_MS);
    }
    if (code != cudaSuccess) return mgv__cuda_fail(cuda->calls, error, code, "cudaEventQuery", cuda->plan->ops[last].label);
    return mgv__cuda_verdict(cuda, error);
}

/* Rows that an operation reads: where the CPU has them, where the card has them, and a copy of those of all pictures. */
typedef struct mgv__validation_input {
    uint32_t buffer, device_buffer;
    uint8_t *rows;
} mgv__validation_input;
enum { MGV__VALIDATION_INPUTS = 2 /* its source and its residual */ };

typedef struct mgv__validator {
    const mgv_model *model;
    mgv_engine *cpu, *gpu;     /* for one picture, for all */
    const mgv_image *images;   /* [image_count], checked */
    uint32_t image_count;
    mgv__validation_input inputs[MGV__VALIDATION_INPUTS];
    uint32_t input_count;      /* of the operation at hand */
    uint8_t *result;           /* what it leaves on the card, all pictures */
    float *wide, *whole;       /* one picture's rows in float32; what the GPU's whole encode gives, [image_count, rows, hidden] */
    mgv_validation_report *report;
    void *user;
    uint32_t failures;
} mgv__validator;

/* Whether the CPU has what the kernel's operation leaves: the result of the last operation of the model that it stands for. */
static int mgv__validation_compares(const mgv__plan_op *op) { return op->first < op->end && !op->is_part; }

/* Rows of a device buffer that one picture has. */
static uint32_t mgv__validation_rows(const mgv__plan *plan, uint32_t buffer) {
    return mgv__plan_rows_are_images(buffer) ? 1 : plan->tokens;
}

static mgv_result mgv__validation_fetch(const mgv__validator *v, uint32_t buffer, uint8_t *rows, mgv_error *error) {
    const mgv__cuda *cuda = v->gpu->gpu->cuda;
    const mgv__device_buffer *b = &cuda->plan->buffers[buffer];
    const size_t bytes = (size_t)v->image_count * mgv__validation_rows(cuda->plan, buffer) * b->pitch * b->element_bytes;
    MGV__CUDA_TRY(cuda->calls, Memcpy, (rows, cuda->arena + b->offset, bytes, cudaMemcpyDeviceToHost), "fetching rows");
    return MGV_OK;
}

/* Element i of rows as the device holds them. */
static float mgv__validation_value(const mgv__device_buffer *b, const uint8_t *rows, size_t i) {
    uint16_t h;
    float f;
    if (b->element_bytes == 4) {
        memcpy(&f, rows + 4 * i, 4);
        return f;
    }
    memcpy(&h, rows + 2 * i, 2);
    return mgv__bf16_value(h);
}

/* One picture's share of a device buffer as floats. Patches are (y, x, channel) bytes less MGV__PIXEL_MIDDLE there, (channel, y, x) and
   normalised on the CPU; queries have the scale of their softmax in them there. */
static void mgv__validation_widen(const mgv__validator *v, uint32_t buffer, const uint8_t *rows, uint32_t image, float *out) {
    const mgv__plan *plan = v->gpu->gpu->cuda->plan;
    const mgv__device_buffer *b = &plan->buffers[buffer];
    const mgv__pixels_config *pixels = &v->model->config.pixels;
    const uint32_t count = mgv__validation_rows(plan, buffer), area = v->model->config.patch * v->model->config.patch;
    const float query_scale = (float)mgv__pack_query_scale(plan);
    uint32_t row, i;
    for (row = 0; row < count; row++)
        for (i = 0; i < b->columns; i++) {
            float value = mgv__validation_value(b, rows, ((size_t)image * count + row) * b->pitch + i);
            uint32_t column = i;
            if (buffer == MGV__DEVICE_PATCHES) {
                const uint32_t channel = i % 3;
                column = channel * area + i / 3;
                value += (int)MGV__PIXEL_MIDDLE;
                if (pixels->do_rescale) value = (float)(value * pixels->rescale_factor);
                if (pixels->do_normalize) value = (float)((value - pixels->mean[channel]) / pixels->std[channel]);
            }
            if (buffer == MGV__DEVICE_QKV && i < b->columns / 3) value /= query_scale;
            out[(size_t)row * b->columns + column] = value;
        }
}

/* Running sums of one comparison. */
typedef struct mgv__comparison {
    double difference, norm, largest;
    uint64_t count, bad, first_bad;
} mgv__comparison;

/* bad_beyond: a difference that makes one value bad. */
static void mgv__comparison_add(mgv__comparison *c, const float *got, const float *expected, uint64_t count, double bad_beyond) {
    uint64_t i;
    for (i = 0; i < count; i++) {
        const double d = fabs((double)got[i] - (double)expected[i]);
        if (!(d <= bad_beyond) && c->bad++ == 0) c->first_bad = c->count + i;
        if (c->largest == c->largest && !(d <= c->largest)) c->largest = d; /* what is no number stays */
        c->difference += d * d;
        c->norm += (double)expected[i] * (double)expected[i];
    }
    c->count += count;
}

static double mgv__root_mean_square(const float *values, uint64_t count) {
    double sum = 0;
    uint64_t i;
    for (i = 0; i < count; i++) sum += (double)values[i] * (double)values[i];
    return count ? sqrt(sum / (double)count) : 0;
}

static void mgv__validation_tell(mgv__validator *v, const char *label, int32_t layer, const mgv__comparison *c, uint32_t columns,
                                 double tolerance) {
    mgv_validation row;
    memset(&row, 0, sizeof row);
    row.label = label;
    row.layer = layer;
    row.compared = c != NULL;
    row.columns = columns;
    row.tolerance = tolerance;
    row.ok = 1;
    if (c) {
        row.rows = c->count / columns;
        row.relative_l2 = c->norm > 0 ? sqrt(c->difference / c->norm) : sqrt(c->difference);
        row.max_error = c->largest;
        row.bad = c->bad;
        row.bad_row = c->first_bad / columns;
        row.bad_column = (uint32_t)(c->first_bad % columns);
        row.ok = row.relative_l2 <= tolerance && c->bad == 0;
    }
    if (!row.ok) v->failures++;
    if (v->report) (v->report)(v->user, &row);
}

/* How far operation `op` may be off by itself. */
static double mgv__validation_tolerance(const mgv__plan_op *op) {
    if (op->kernel.kind == MGV__KERNEL_PATCHES) return MGV__VALIDATION_EXACT;
    /* the pooling head rounds scoring vectors, weights of tokens, weighted sums, value weights and the result; others two things */
    return (op->by_head ? 5 : 2) * MGV__BF16_STEP;
}

/* Notes what the model's operations [first, last] read that none of them writes, and fetches it from the card. */
static mgv_result mgv__validation_inputs(mgv__validator *v, uint32_t first, uint32_t last, mgv_error *error) {
    const mgv__program *program = &v->model->program;
    const mgv__plan *plan = v->gpu->gpu->cuda->plan;
    uint32_t reads = 0, written = 0, i, b, k;
    mgv_result result = MGV_OK;
    v->input_count = 0;
    for (i = first; i <= last; i++) {
        reads |= mgv__op_reads(&program->ops[i]) & ~written;
        written |= 1u << program->ops[i].target;
    }
    for (b = 1; b < program->buffer_count && result == MGV_OK; b++) { /* buffer 0 is the pixels, which both sides prepare themselves */
        mgv__validation_input *input = &v->inputs[v->input_count];
        if (!(reads >> b & 1u)) continue;
        if (v->input_count == MGV__VALIDATION_INPUTS)
            return mgv__fail(error, MGV_ERROR_UNSUPPORTED, "%s reads more buffers than validation knows", program->ops[last].label);
        input->buffer = b;
        input->device_buffer = MGV__DEVICE_BUFFER_COUNT;
        for (i = first; i-- > 0;) /* who stands for the last writer says where the card has it */
            if (program->ops[i].target == b) break;
        for (k = 0; k < plan->op_count; k++)
            if (mgv__validation_compares(&plan->ops[k]) && plan->ops[k].end == i + 1) input->device_buffer = plan->ops[k].target;
        if (input->device_buffer == MGV__DEVICE_BUFFER_COUNT)
            return mgv__fail(error, MGV_ERROR_UNSUPPORTED, "%s reads what the GPU keeps nowhere", program->ops[last].label);
        result = mgv__validation_fetch(v, input->device_buffer, input->rows, error);
        v->input_count++;
    }
    return result;
}

/* The model's operations [first, last] for one picture, on what the GPU had before them; first > last: only the pixels are prepared. */
static const float *mgv__validation_expect(mgv__validator *v, uint32_t image, uint32_t first, uint32_t last) {
    const mgv__program *program = &v->model->program;
    mgv__cpu_run run;
    uint32_t i;
    mgv__take_image(&v->cpu->images[0], v->images, image, NULL); /* checked when all were encoded */
    v->cpu->job.image = 0;
    mgv__job_prepare(v->cpu);
    for (i = 0; first <= last && i < v->input_count; i++)
        mgv__validation_widen(v, v->inputs[i].device_buffer, v->inputs[i].rows, image, v->cpu->buffers[v->inputs[i].buffer]);
    mgv__job_cpu_run(v->cpu, &run);
    for (i = first; i <= last; i++) mgv__cpu_run_op(&run, &program->ops[i]);
    return v->cpu->buffers[first <= last ? program->ops[last].target : 0];
}

/* Operation `k` of the kernel against those of the model in [first, last]. What it reads is on the card. */
static mgv_result mgv__validation_op(mgv__validator *v, uint32_t k, uint32_t first, uint32_t last, mgv_error *error) {
    mgv__cuda *cuda = v->gpu->gpu->cuda;
    const mgv__plan_op *op = &cuda->plan->ops[k];
    const uint32_t columns = cuda->plan->buffers[op->target].columns, rows = mgv__validation_rows(cuda->plan, op->target);
    const double tolerance = mgv__validation_tolerance(op);
    mgv__comparison c;
    uint32_t image;
    mgv_result result = mgv__validation_inputs(v, first, last, error);
    memset(&c, 0, sizeof c);
    if (result == MGV_OK) result = mgv__cuda_run_to(cuda, v->image_count, cuda->arguments.pixels, k, error);
    if (result == MGV_OK) result = mgv__validation_fetch(v, op->target, v->result, error);
    if (result != MGV_OK) return result;
    for (image = 0; image < v->image_count; image++) {
        const float *expected = mgv__validation_expect(v, image, first, last);
        const double scale = mgv__root_mean_square(expected, (uint64_t)rows * columns);
        mgv__validation_widen(v, op->target, v->result, image, v->wide);
        mgv__comparison_add(&c, v->wide, expected, (uint64_t)rows * columns, MGV__VALIDATION_OUTLIER * tolerance * scale);
    }
    mgv__validation_tell(v, op->label, op->layer, &c, columns, tolerance);
    return MGV_OK;
}

static mgv_result mgv__validation_ops(mgv__validator *v, mgv_error *error) {
    const mgv__plan *plan = v->gpu->gpu->cuda->plan;
    mgv_result result = MGV_OK;
    uint32_t k;
    for (k = 0; k < plan->op_count && result == MGV_OK; k++) {
        const mgv__plan_op *op = &plan->ops[k];
        if (op->kernel.kind == MGV__KERNEL_PATCHES) result = mgv__validation_op(v, k, 1, 0, error);
        else if (mgv__validation_compares(op)) result = mgv__validation_op(v, k, op->first, op->end - 1, error);
        else mgv__validation_tell(v, op->label, op->layer, NULL, op->kernel.columns, 0);
    }
    return result;
}

/* Rows of one picture that stand for the whole encode: the pooled one, or its tokens where there is no pooling head. */
static uint32_t mgv__validation_whole_rows(const mgv_engine *gpu) { return gpu->model->config.use_head ? 1 : gpu->gpu->cuda->plan->tokens; }

static mgv_result mgv__validation_encode(mgv_engine *engine, const mgv_image *images, uint32_t count, uint32_t rows_each, float *rows,
                                         mgv_error *error) {
    mgv_output output;
    mgv_encode_desc desc;
    mgv_result result;
    memset(&output, 0, sizeof output);
    memset(&desc, 0, sizeof desc);
    output.kind = engine->model->config.use_head ? MGV_OUTPUT_POOLED : MGV_OUTPUT_TOKENS;
    output.data = rows;
    output.capacity = (uint64_t)count * rows_each * engine->model->config.hidden;
    desc.images = images;
    desc.image_count = count;
    desc.outputs = &output;
    desc.output_count = 1;
    result = mgv_encode_blocking(engine, &desc, error);
    return result == MGV_ERROR_MODEL ? MGV_OK : result; /* rows that are no numbers: there, and the comparison's to count */
}

/* Whole encodes, each side by itself. It comes first: pictures are checked by it, and lie on the card afterwards. */
static mgv_result mgv__validation_whole(mgv__validator *v, mgv_error *error) {
    const uint32_t columns = v->model->config.hidden, ops = v->gpu->gpu->cuda->plan->op_count, rows = mgv__validation_whole_rows(v->gpu);
    const double tolerance = sqrt(2.0 * ops) * MGV__BF16_STEP;
    mgv__comparison c;
    uint32_t i;
    mgv_result result = mgv__validation_encode(v->gpu, v->images, v->image_count, rows, v->whole, error);
    memset(&c, 0, sizeof c);
    for (i = 0; i < v->image_count && result == MGV_OK; i++) {
        mgv_image image;
        double scale;
        result = mgv__take_image(&image, v->images, i, error);
        if (result == MGV_OK) result = mgv__validation_encode(v->cpu, &image, 1, rows, v->wide, error);
        if (result != MGV_OK) break;
        scale = mgv__root_mean_square(v->wide, (uint64_t)rows * columns);
        mgv__comparison_add(&c, v->whole + (size_t)i * rows * columns, v->wide, (uint64_t)rows * columns,
                            MGV__VALIDATION_OUTLIER * tolerance * scale);
    }
    if (result == MGV_OK) mgv__validation_tell(v, "whole encode", -1, &c, columns, tolerance);
    return result;
}

static mgv_result mgv__validation_allocate(mgv__validator *v, const mgv_engine_desc *desc, mgv_error *error) {
    const mgv__plan *plan = v->gpu->gpu->cuda->plan;
    size_t rows = 0, floats = 0;
    uint32_t i;
    for (i = 0; i < MGV__DEVICE_BUFFER_COUNT; i++) {
        const mgv__device_buffer *b = &plan->buffers[i];
        const size_t pitched = (size_t)mgv__validation_rows(plan, i) * b->pitch;
        if (pitched > floats) floats = pitched;
        if (pitched * b->element_bytes > rows) rows = pitched * b->element_bytes;
    }
    for (i = 0; i < MGV__VALIDATION_INPUTS; i++) v->inputs[i].rows = (uint8_t *)mgv__alloc(&desc->allocator, rows * v->image_count);
    v->result = (uint8_t *)mgv__alloc(&desc->allocator, rows * v->image_count);
    v->wide = (float *)mgv__alloc(&desc->allocator, floats * sizeof(float));
    v->whole = (float *)mgv__alloc(&desc->allocator,
                                   (size_t)v->image_count * mgv__validation_whole_rows(v->gpu) * v->model->config.hidden * sizeof(float));
    if (v->inputs[0].rows && v->inputs[1].rows && v->result && v->wide && v->whole) return MGV_OK;
    return mgv__fail_nomem(error, "validation", (uint64_t)rows * (MGV__VALIDATION_INPUTS + 1) * v->image_count);
}

static void mgv__validation_free(mgv__validator *v, const mgv_engine_desc *desc) {
    uint32_t i;
    for (i = 0; i < MGV__VALIDATION_INPUTS; i++) mgv__free(&desc->allocator, v->inputs[i].rows);
    mgv__free(&desc->allocator, v->result);
    mgv__free(&desc->allocator, v->wide);
    mgv__free(&desc->allocator, v->whole);
    mgv_engine_destroy(v->cpu);
    mgv_engine_destroy(v->gpu);
}

static mgv_result mgv__validation_run(mgv__validator *v, const mgv_engine_desc *desc, mgv_error *error) {
    mgv_engine_desc d = *desc;
    mgv_result result;
    mgv__gpu_thread thread;
    d.workspace = d.device_workspace = NULL;
    d.workspace_bytes = d.device_workspace_bytes = 0;
    d.max_tokens = 0;
    d.max_images = v->image_count + 2; /* rows that no picture has */
    d.max_row_outputs = !v->model->config.use_head;
    d.backend = MGV_BACKEND_CUDA;
    result = mgv_engine_create(&v->gpu, v->model, &d, error);
    d.max_images = 1;
    d.backend = MGV_BACKEND_CPU;
    if (result == MGV_OK) result = mgv_engine_create(&v->cpu, v->model, &d, error);
    if (result == MGV_OK) result = mgv__validation_allocate(v, desc, error);
    if (result == MGV_OK) result = mgv__validation_whole(v, error);
    if (result != MGV_OK) return result;
    result = mgv__gpu_enter(v->gpu->gpu, &thread, error);
    if (result == MGV_OK) result = mgv__validation_ops(v, error);
    mgv__gpu_leave(v->gpu->gpu, &thread);
    return result;
}
#endif /* MEGAVIT_CUDA */

MEGAVIT_API mgv_result mgv_validate(const mgv_model *model, const mgv_engine_desc *desc, const mgv_image *images, uint32_t image_count,
                                    mgv_validation_report *report, void *user, uint32_t *failures, mgv_error *error) {
    mgv_engine_desc d;
    mgv_result result;
    mgv__clear_error(error);
    if (!model || !failures) return mgv__fail(error, MGV_ERROR_ARGUMENT, "mgv_validate: model or failures is NULL");
    *failures = 0;
    if (!images || image_count == 0) return mgv__fail(error, MGV_ERROR_ARGUMENT, "mgv_validate: there are no images");
    result = mgv__engine_take_desc(&d, model, desc, error);
    if (result != MGV_OK) return result;
#if defined(MEGAVIT_CUDA) && !defined(MEGAVIT_NO_CUDA)
    {
        mgv__validator v;
        memset(&v, 0, sizeof v);
        v.model = model;
        v.images = images;
        v.image_count = image_count;
        v.report = report;
        v.user = user;
        result = mgv__validation_run(&v, &d, error);
        mgv__validation_free(&v, &d);
        *failures = v.failures;
        return result;
    }
#else
    (void)report;
    (void)user;
    return mgv__fail(error, MGV_ERROR_NO_DEVICE, "this build of megavit has no CUDA backend, so there is nothing to validate");
#endif
}

#endif /* MEGAVIT_IMPLEMENTED */
#endif /* MEGAVIT_IMPLEMENTATION */

/* ===============================================================================================================
   >>cpu-vector: the vector code of >>cpu, compiled once for each instruction set MGV__VECTOR

   First a table of what a vector is there: WIDTH floats in a register, a tile of TILE rows and two registers of
   columns held in registers. Then the functions, in these words. Plain C is a vector of one. */
#ifdef MGV__VECTOR

#if MGV__VECTOR == MGV__ISA_PLAIN

#define MGV__FN(name) mgv__plain_##name
#define MGV__NAME "plain C"
#define MGV__TARGET
#define MGV__VEC float
#define MGV__WIDTH 1
#define MGV__PANEL 16
#define MGV__TILE 4
#define MGV__LOAD(p) (*(p))
#define MGV__STORE(p, v) (*(p) = (v))
#define MGV__SET1(x) (x)
#define MGV__ADD(a, b) ((a) + (b))
#define MGV__SUB(a, b) ((a) - (b))
#define MGV__MUL(a, b) ((a) * (b))
#define MGV__DIV(a, b) ((a) / (b))
#define MGV__FMA(a, b, c) ((a) * (b) + (c))
#define MGV__MAX(a, b) ((b) < (a) ? (a) : (b))
#define MGV__MIN(a, b) ((b) > (a) ? (a) : (b))
#define MGV__LESS(a, b, yes, no) ((a) < (b) ? (yes) : (no))
#define MGV__ROUND(x) ((x) == (x) ? (float)(int32_t)((x) + ((x) < 0.0f ? -0.5f : 0.5f)) : 0.0f) /* NaN, and C has no cast for it */
#define MGV__TIMES_POW2(x, n) ((x) * mgv__float_of_bits((uint32_t)((int32_t)(n) + 127) << 23))
#define MGV__ABS(x) mgv__float_of_bits(mgv__bits_of_float(x) & 0x7FFFFFFFu)
#define MGV__SIGN_OF(magnitude, sign) mgv__float_of_bits((mgv__bits_of_float(sign) & 0x80000000u) | mgv__bits_of_float(magnitude))
#define MGV__SUM(v) (v)
#define MGV__LARGEST(v) (v)
#define MGV__LOAD_F16(p) mgv__float_of_f16(*(p))
#define MGV__LOAD_BF16(p) mgv__float_of_bits((uint32_t)*(p) << 16)

static inline float mgv__float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}
static inline uint32_t mgv__bits_of_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}
/* Exact, subnormals too: exponent and mantissa are moved into place and 2^112 makes up for the other bias. */
static inline float mgv__float_of_f16(uint16_t half) {
    const uint32_t magnitude = ((uint32_t)half & 0x7FFFu) << 13, sign = ((uint32_t)half & 0x8000u) << 16;
    if (magnitude >= 0x0F800000u) return mgv__float_of_bits(sign | 0x70000000u | magnitude); /* infinity and NaN */
    return mgv__float_of_bits(sign | mgv__bits_of_float(mgv__float_of_bits(magnitude) * 5.192296858534827628530496329220096e33f));
}

#elif MGV__VECTOR == MGV__ISA_AVX2

#define MGV__FN(name) mgv__avx2_##name
#define MGV__NAME "AVX2"
#define MGV__TARGET MGV__TARGET_OF("avx2,fma,f16c")
#define MGV__VEC __m256
#define MGV__WIDTH 8
#define MGV__PANEL 16
#define MGV__TILE 6
#define MGV__TILE_ROWS MGV__ROWS_6
#define MGV__HALF_TILE 4
#define MGV__HALF_TILE_ROWS MGV__ROWS_4
#define MGV__SMALL_TILE 2
#define MGV__SMALL_TILE_ROWS MGV__ROWS_2
#define MGV__LOAD(p) _mm256_loadu_ps(p)
#define MGV__STORE(p, v) _mm256_storeu_ps(p, v)
#define MGV__SET1(x) _mm256_set1_ps(x)
#define MGV__ADD(a, b) _mm256_add_ps(a, b)
#define MGV__SUB(a, b) _mm256_sub_ps(a, b)
#define MGV__MUL(a, b) _mm256_mul_ps(a, b)
#define MGV__DIV(a, b) _mm256_div_ps(a, b)
#define MGV__FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define MGV__MAX(a, b) _mm256_max_ps(a, b)
#define MGV__MIN(a, b) _mm256_min_ps(a, b)
#define MGV__LESS(a, b, yes, no) _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ))
#define MGV__ROUND(x) _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define MGV__TIMES_POW2(x, n) \
    _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23)))
#define MGV__ABS(x) _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x)
#define MGV__SIGN_OF(magnitude, sign) _mm256_or_ps(_mm256_and_ps(_mm256_set1_ps(-0.0f), sign), magnitude)
#define MGV__SUM(v) mgv__avx2_sum(v)
#define MGV__LARGEST(v) mgv__avx2_largest(v)
#define MGV__LOAD_F16(p) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define MGV__LOAD_BF16(p) \
    _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p))), 16))
/* Four floats of each fourth row of a strip. */
#define MGV__LOAD_QUADS(p) _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps((p) + 4 * MGV__CPU_STRIP), 1)
#define MGV__UNPACK_LOW(a, b) _mm256_unpacklo_ps(a, b)
#define MGV__UNPACK_HIGH(a, b) _mm256_unpackhi_ps(a, b)
#define MGV__LOW_PAIRS(a, b) _mm256_shuffle_ps(a, b, 0x44)
#define MGV__HIGH_PAIRS(a, b) _mm256_shuffle_ps(a, b, 0xEE)

MGV__TARGET static inline float mgv__avx2_sum(__m256 v) {
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps(x, x, 1)));
}
MGV__TARGET static inline float mgv__avx2_largest(__m256 v) {
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps(x, x, 1)));
}

#elif MGV__VECTOR == MGV__ISA_AVX512

#define MGV__FN(name) mgv__avx512_##name
#define MGV__NAME "AVX-512"
#define MGV__TARGET MGV__TARGET_OF("avx512f,avx2,fma,f16c")
#define MGV__VEC __m512
#define MGV__WIDTH 16
#define MGV__PANEL 32
#define MGV__TILE 14
#define MGV__TILE_ROWS MGV__ROWS_14
#define MGV__HALF_TILE 8
#define MGV__HALF_TILE_ROWS MGV__ROWS_8
#define MGV__SMALL_TILE 4
#define MGV__SMALL_TILE_ROWS MGV__ROWS_4
#define MGV__LOAD(p) _mm512_loadu_ps(p)
#define MGV__STORE(p, v) _mm512_storeu_ps(p, v)
#define MGV__SET1(x) _mm512_set1_ps(x)
#define MGV__ADD(a, b) _mm512_add_ps(a, b)
#define MGV__SUB(a, b) _mm512_sub_ps(a, b)
#define MGV__MUL(a, b) _mm512_mul_ps(a, b)
#define MGV__DIV(a, b) _mm512_div_ps(a, b)
#define MGV__FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define MGV__MAX(a, b) _mm512_max_ps(a, b)
#define MGV__MIN(a, b) _mm512_min_ps(a, b)
#define MGV__LESS(a, b, yes, no) _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes)
#define MGV__ROUND(x) _mm512_cvtepi32_ps(_mm512_cvtps_epi32(x))
#define MGV__TIMES_POW2(x, n) _mm512_scalef_ps(x, n)
#define MGV__ABS(x) _mm512_abs_ps(x)
#define MGV__SIGN_OF(magnitude, sign) \
    _mm512_castsi512_ps(_mm512_or_si512(_mm512_and_si512(_mm512_set1_epi32(INT32_MIN), _mm512_castps_si512(sign)), \
                                        _mm512_castps_si512(magnitude)))
#define MGV__SUM(v) _mm512_reduce_add_ps(v)
#define MGV__LARGEST(v) _mm512_reduce_max_ps(v)
#define MGV__LOAD_F16(p) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(p)))
#define MGV__LOAD_BF16(p) \
    _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(p))), 16))
#define MGV__LOAD_QUADS(p) \
    _mm512_insertf32x4( \
        _mm512_insertf32x4( \
            _mm512_insertf32x4(_mm512_castps128_ps512(_mm_loadu_ps(p)), _mm_loadu_ps((p) + 4 * MGV__CPU_STRIP), 1), \
            _mm_loadu_ps((p) + 8 * MGV__CPU_STRIP), 2), \
        _mm_loadu_ps((p) + 12 * MGV__CPU_STRIP), 3)
#define MGV__UNPACK_LOW(a, b) _mm512_unpacklo_ps(a, b)
#define MGV__UNPACK_HIGH(a, b) _mm512_unpackhi_ps(a, b)
#define MGV__LOW_PAIRS(a, b) _mm512_shuffle_ps(a, b, 0x44)
#define MGV__HIGH_PAIRS(a, b) _mm512_shuffle_ps(a, b, 0xEE)

#elif MGV__VECTOR == MGV__ISA_NEON

#define MGV__FN(name) mgv__neon_##name
#define MGV__NAME "NEON"
#define MGV__TARGET
#define MGV__VEC float32x4_t
#define MGV__WIDTH 4
#define MGV__PANEL 8
#define MGV__TILE 12
#define MGV__TILE_ROWS MGV__ROWS_12
#define MGV__HALF_TILE 8
#define MGV__HALF_TILE_ROWS MGV__ROWS_8
#define MGV__SMALL_TILE 4
#define MGV__SMALL_TILE_ROWS MGV__ROWS_4
#define MGV__LOAD(p) vld1q_f32(p)
#define MGV__STORE(p, v) vst1q_f32(p, v)
#define MGV__SET1(x) vdupq_n_f32(x)
#define MGV__ADD(a, b) vaddq_f32(a, b)
#define MGV__SUB(a, b) vsubq_f32(a, b)
#define MGV__MUL(a, b) vmulq_f32(a, b)
#define MGV__DIV(a, b) vdivq_f32(a, b)
#define MGV__FMA(a, b, c) vfmaq_f32(c, a, b)
#define MGV__MAX(a, b) vmaxq_f32(a, b)
#define MGV__MIN(a, b) vminq_f32(a, b)
#define MGV__LESS(a, b, yes, no) vbslq_f32(vcltq_f32(a, b), yes, no)
#define MGV__ROUND(x) vrndnq_f32(x)
#define MGV__TIMES_POW2(x, n) vmulq_f32(x, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23)))
#define MGV__ABS(x) vabsq_f32(x)
#define MGV__SIGN_OF(magnitude, sign) vbslq_f32(vdupq_n_u32(0x80000000u), sign, magnitude)
#define MGV__SUM(v) vaddvq_f32(v)
#define MGV__LARGEST(v) vmaxvq_f32(v)
#define MGV__LOAD_F16(p) vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)))
#define MGV__LOAD_BF16(p) vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16))
#define MGV__LOAD_QUADS(p) vld1q_f32(p)
#define MGV__UNPACK_LOW(a, b) vzip1q_f32(a, b)
#define MGV__UNPACK_HIGH(a, b) vzip2q_f32(a, b)
#define MGV__LOW_PAIRS(a, b) vcombine_f32(vget_low_f32(a), vget_low_f32(b))
#define MGV__HIGH_PAIRS(a, b) vcombine_f32(vget_high_f32(a), vget_high_f32(b))

#endif

/* ---- elementary functions ---- */

/* e^x: x = n ln 2 + r with |r| <= ln 2 / 2, near-minimax polynomial in r. 0 below the smallest normal number, the
   largest finite values clamp at e^88.37; NaN stays NaN. */
MGV__TARGET static inline MGV__VEC MGV__FN(exp)(MGV__VEC x) {
    const MGV__VEC lowest = MGV__SET1(-87.33654f), highest = MGV__SET1(88.37f);
    const MGV__VEC clamped = MGV__MIN(highest, MGV__MAX(lowest, x));
    const MGV__VEC n = MGV__ROUND(MGV__MUL(clamped, MGV__SET1(1.44269504f)));
    MGV__VEC r = MGV__FMA(n, MGV__SET1(-0.693359375f), clamped), p;
    r = MGV__FMA(n, MGV__SET1(2.12194440e-4f), r);
    p = MGV__FMA(r, MGV__SET1(1.392620336e-03f), MGV__SET1(8.363194882e-03f));
    p = MGV__FMA(p, r, MGV__SET1(4.166655450e-02f));
    p = MGV__FMA(p, r, MGV__SET1(1.666657689e-01f));
    p = MGV__FMA(p, r, MGV__SET1(0.5f));
    p = MGV__ADD(MGV__FMA(p, MGV__MUL(r, r), r), MGV__SET1(1.0f));
    return MGV__LESS(x, lowest, MGV__SET1(0.0f), MGV__TIMES_POW2(p, n));
}

/* 1 / (1 + e^-x) */
MGV__TARGET static inline MGV__VEC MGV__FN(sigmoid)(MGV__VEC x) {
    return MGV__DIV(MGV__SET1(1.0f), MGV__ADD(MGV__SET1(1.0f), MGV__FN(exp)(MGV__SUB(MGV__SET1(0.0f), x))));
}

/* Error function: x + x P(x^2) up to |x| = 1, then 1 - e^(-t Q(t)) with t = |x|; from 3.95 on it rounds to 1. */
MGV__TARGET static inline MGV__VEC MGV__FN(erf)(MGV__VEC x) {
    const MGV__VEC t = MGV__MIN(MGV__SET1(3.95f), MGV__ABS(x)), s = MGV__MUL(x, x);
    MGV__VEC inner, large;
    inner = MGV__FMA(s, MGV__SET1(7.875875063e-05f), MGV__SET1(-8.016864287e-04f));
    inner = MGV__FMA(inner, s, MGV__SET1(5.189087423e-03f));
    inner = MGV__FMA(inner, s, MGV__SET1(-2.685421201e-02f));
    inner = MGV__FMA(inner, s, MGV__SET1(1.128359472e-01f));
    inner = MGV__FMA(inner, s, MGV__SET1(-3.761262667e-01f));
    inner = MGV__FMA(inner, s, MGV__SET1(1.283791658e-01f));
    inner = MGV__FMA(inner, x, x);
    large = MGV__FMA(t, MGV__SET1(-1.136026378e-06f), MGV__SET1(3.608125450e-05f));
    large = MGV__FMA(large, t, MGV__SET1(-5.121127960e-04f));
    large = MGV__FMA(large, t, MGV__SET1(4.360045702e-03f));
    large = MGV__FMA(large, t, MGV__SET1(-2.527787506e-02f));
    large = MGV__FMA(large, t, MGV__SET1(1.080525746e-01f));
    large = MGV__FMA(large, t, MGV__SET1(6.339983575e-01f));
    large = MGV__FMA(large, t, MGV__SET1(1.128949665f));
    large = MGV__SUB(MGV__SET1(1.0f), MGV__FN(exp)(MGV__MUL(MGV__SUB(MGV__SET1(0.0f), t), large)));
    return MGV__LESS(t, MGV__SET1(1.0f), inner, MGV__SIGN_OF(large, x));
}

/* 0.5 x (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3), written as x sigmoid(2u): the same function, without the
   cancellation of 1 + tanh. */
MGV__TARGET static inline MGV__VEC MGV__FN(gelu_tanh)(MGV__VEC x) {
    const MGV__VEC cubic = MGV__FMA(MGV__MUL(x, x), MGV__SET1(2.0f * 0.7978845608f * 0.044715f), MGV__SET1(2.0f * 0.7978845608f));
    return MGV__MUL(x, MGV__FN(sigmoid)(MGV__MUL(x, cubic)));
}

/* 0.5 x (1 + erf(x / sqrt 2)) */
MGV__TARGET static inline MGV__VEC MGV__FN(gelu_erf)(MGV__VEC x) {
    const MGV__VEC half = MGV__MUL(x, MGV__SET1(0.5f));
    return MGV__FMA(half, MGV__FN(erf)(MGV__MUL(x, MGV__SET1(0.7071067812f))), half);
}

/* ---- rows ---- */

MGV__TARGET static void MGV__FN(convert)(mgv_dtype dtype, const void *from, float *to, size_t n) {
    const uint16_t *halves = (const uint16_t *)from;
    size_t i = 0;
    if (dtype == MGV_DTYPE_F32) {
        memcpy(to, from, n * sizeof(*to));
    } else if (dtype == MGV_DTYPE_BF16) {
        for (; i + MGV__WIDTH <= n; i += MGV__WIDTH) MGV__STORE(to + i, MGV__LOAD_BF16(halves + i));
        for (; i < n; i++) to[i] = mgv__float_of_bits((uint32_t)halves[i] << 16);
    } else {
        for (; i + MGV__WIDTH <= n; i += MGV__WIDTH) MGV__STORE(to + i, MGV__LOAD_F16(halves + i));
        for (; i < n; i++) to[i] = mgv__float_of_f16(halves[i]);
    }
}

/* x sigmoid(1.702 x), CLIP's approximation of GELU */
MGV__TARGET static inline MGV__VEC MGV__FN(gelu_quick)(MGV__VEC x) {
    return MGV__MUL(x, MGV__FN(sigmoid)(MGV__MUL(x, MGV__SET1(1.702f))));
}

MGV__TARGET static inline MGV__VEC MGV__FN(silu)(MGV__VEC x) { return MGV__MUL(x, MGV__FN(sigmoid)(x)); }

/* NaN stays NaN. */
MGV__TARGET static inline MGV__VEC MGV__FN(relu)(MGV__VEC x) { return MGV__LESS(x, MGV__SET1(0.0f), MGV__SET1(0.0f), x); }

MGV__TARGET static inline MGV__VEC MGV__FN(identity)(MGV__VEC x) { return x; }

#define MGV__ACTIVATE(function) \
    for (i = 0; i < n; i += MGV__WIDTH) MGV__STORE(x + i, MGV__FN(function)(MGV__ADD(MGV__LOAD(x + i), MGV__LOAD(bias + i))))
MGV__TARGET static void MGV__FN(activate)(mgv__activation activation, float *x, const float *bias, uint32_t n) {
    uint32_t i;
    switch (activation) {
    case MGV__ACT_GELU_TANH: MGV__ACTIVATE(gelu_tanh); break;
    case MGV__ACT_GELU_ERF: MGV__ACTIVATE(gelu_erf); break;
    case MGV__ACT_GELU_QUICK: MGV__ACTIVATE(gelu_quick); break;
    case MGV__ACT_SILU: MGV__ACTIVATE(silu); break;
    case MGV__ACT_RELU: MGV__ACTIVATE(relu); break;
    default: MGV__ACTIVATE(identity); break;
    }
}
#undef MGV__ACTIVATE

MGV__TARGET static float MGV__FN(softmax)(float *x, uint32_t n, float *max, float *sum) {
    const float old_max = *max;
    MGV__VEC largest = MGV__SET1(old_max), total = MGV__SET1(0.0f);
    float new_max, factor;
    uint32_t i;
    for (i = 0; i < n; i += MGV__WIDTH) largest = MGV__MAX(largest, MGV__LOAD(x + i));
    new_max = MGV__LARGEST(largest);
    largest = MGV__SET1(new_max);
    for (i = 0; i < n; i += MGV__WIDTH) {
        const MGV__VEC p = MGV__FN(exp)(MGV__SUB(MGV__LOAD(x + i), largest));
        MGV__STORE(x + i, p);
        total = MGV__ADD(total, p);
    }
    factor = mgv__plain_exp(old_max - new_max);
    *max = new_max;
    *sum = *sum * factor + MGV__SUM(total);
    return factor;
}

MGV__TARGET static void MGV__FN(add)(float *out, const float *a, const float *b, size_t n) {
    size_t i = 0;
    for (; i + MGV__WIDTH <= n; i += MGV__WIDTH) MGV__STORE(out + i, MGV__ADD(MGV__LOAD(a + i), MGV__LOAD(b + i)));
    for (; i < n; i++) out[i] = a[i] + b[i];
}

MGV__TARGET static void MGV__FN(multiply)(float *out, const float *a, const float *b, size_t n) {
    size_t i = 0;
    for (; i + MGV__WIDTH <= n; i += MGV__WIDTH) MGV__STORE(out + i, MGV__MUL(MGV__LOAD(a + i), MGV__LOAD(b + i)));
    for (; i < n; i++) out[i] = a[i] * b[i];
}

MGV__TARGET static void MGV__FN(scale)(float *out, const float *x, float factor, size_t n) {
    const MGV__VEC f = MGV__SET1(factor);
    size_t i = 0;
    for (; i + MGV__WIDTH <= n; i += MGV__WIDTH) MGV__STORE(out + i, MGV__MUL(MGV__LOAD(x + i), f));
    for (; i < n; i++) out[i] = x[i] * factor;
}

MGV__TARGET static void MGV__FN(add_scaled)(float *y, float factor, const float *x, size_t n) {
    const MGV__VEC f = MGV__SET1(factor);
    size_t i = 0;
    for (; i + MGV__WIDTH <= n; i += MGV__WIDTH) MGV__STORE(y + i, MGV__FMA(f, MGV__LOAD(x + i), MGV__LOAD(y + i)));
    for (; i < n; i++) y[i] += factor * x[i];
}

MGV__TARGET static float MGV__FN(dot)(const float *a, const float *b, size_t n) {
    MGV__VEC s0 = MGV__SET1(0.0f), s1 = s0, s2 = s0, s3 = s0;
    float tail = 0.0f;
    size_t i = 0;
    for (; i + 4 * MGV__WIDTH <= n; i += 4 * MGV__WIDTH) {
        s0 = MGV__FMA(MGV__LOAD(a + i), MGV__LOAD(b + i), s0);
        s1 = MGV__FMA(MGV__LOAD(a + i + MGV__WIDTH), MGV__LOAD(b + i + MGV__WIDTH), s1);
        s2 = MGV__FMA(MGV__LOAD(a + i + 2 * MGV__WIDTH), MGV__LOAD(b + i + 2 * MGV__WIDTH), s2);
        s3 = MGV__FMA(MGV__LOAD(a + i + 3 * MGV__WIDTH), MGV__LOAD(b + i + 3 * MGV__WIDTH), s3);
    }
    for (; i < n; i++) tail += a[i] * b[i];
    s0 = MGV__ADD(MGV__ADD(s0, s1), MGV__ADD(s2, s3));
    return MGV__SUM(s0) + tail;
}

/* LayerNorm with the biased variance about a mean that is exact to its last place, or RMSNorm. */
MGV__TARGET static void MGV__FN(norm)(float *out, const float *x, const float *weight, const float *bias, size_t n, float epsilon,
                                      int rms) {
    MGV__VEC s0, s1, center, factor;
    float mean = 0.0f, square, tail, f;
    size_t i;
    int pass;
    for (pass = 0; pass < 2 && !rms; pass++) { /* the second time what is left around the first mean */
        center = MGV__SET1(mean);
        s0 = s1 = MGV__SET1(0.0f);
        tail = 0.0f;
        for (i = 0; i + 2 * MGV__WIDTH <= n; i += 2 * MGV__WIDTH) {
            s0 = MGV__ADD(s0, MGV__SUB(MGV__LOAD(x + i), center));
            s1 = MGV__ADD(s1, MGV__SUB(MGV__LOAD(x + i + MGV__WIDTH), center));
        }
        for (; i < n; i++) tail += x[i] - mean;
        s0 = MGV__ADD(s0, s1);
        mean += (MGV__SUM(s0) + tail) / (float)n;
    }
    center = MGV__SET1(mean);
    s0 = s1 = MGV__SET1(0.0f);
    tail = 0.0f;
    for (i = 0; i + 2 * MGV__WIDTH <= n; i += 2 * MGV__WIDTH) {
        const MGV__VEC a = MGV__SUB(MGV__LOAD(x + i), center), b = MGV__SUB(MGV__LOAD(x + i + MGV__WIDTH), center);
        s0 = MGV__FMA(a, a, s0);
        s1 = MGV__FMA(b, b, s1);
    }
    for (; i < n; i++) tail += (x[i] - mean) * (x[i] - mean);
    s0 = MGV__ADD(s0, s1);
    square = (MGV__SUM(s0) + tail) / (float)n;
    f = (float)(1.0 / sqrt((double)square + (double)epsilon));
    factor = MGV__SET1(f);
    for (i = 0; i + MGV__WIDTH <= n; i += MGV__WIDTH) {
        MGV__VEC y = MGV__MUL(MGV__MUL(MGV__SUB(MGV__LOAD(x + i), center), factor), MGV__LOAD(weight + i));
        if (bias != NULL) y = MGV__ADD(y, MGV__LOAD(bias + i));
        MGV__STORE(out + i, y);
    }
    for (; i < n; i++) out[i] = (x[i] - mean) * f * weight[i] + (bias != NULL ? bias[i] : 0.0f);
}

MGV__TARGET static void MGV__FN(rotate)(float *x, const float *cosine, const float *sine, size_t half) {
    size_t i = 0;
    for (; i + MGV__WIDTH <= half; i += MGV__WIDTH) {
        const MGV__VEC a = MGV__LOAD(x + i), b = MGV__LOAD(x + half + i), c = MGV__LOAD(cosine + i), s = MGV__LOAD(sine + i);
        MGV__STORE(x + i, MGV__SUB(MGV__MUL(a, c), MGV__MUL(b, s)));
        MGV__STORE(x + half + i, MGV__ADD(MGV__MUL(b, c), MGV__MUL(a, s)));
    }
    for (; i < half; i++) {
        const float a = x[i], b = x[half + i];
        x[i] = a * cosine[i] - b * sine[i];
        x[half + i] = b * cosine[i] + a * sine[i];
    }
}

/* ---- matrix tiles ---- */

#if MGV__WIDTH == 1

static void MGV__FN(pack)(mgv_dtype dtype, const void *weight, size_t stride, uint32_t columns, uint32_t depth, float *packed) {
    const size_t bytes = mgv__cpu_element_bytes(dtype);
    uint32_t j, k;
    for (j = 0; j < MGV__PANEL; j++) {
        const char *row = (const char *)weight + (j < columns ? j : columns - 1) * stride * bytes;
        for (k = 0; k < depth; k++) MGV__FN(convert)(dtype, row + k * bytes, packed + (size_t)k * MGV__PANEL + j, 1);
    }
}

static void MGV__FN(tile)(uint32_t rows, uint32_t depth, const float *a, const float *packed, float *c, size_t c_stride, int accumulate,
                          const mgv__cpu_ahead *ahead) {
    float sum[MGV__TILE][MGV__PANEL];
    uint32_t i, j, k;
    (void)ahead;
    memset(sum, 0, sizeof(sum));
    for (k = 0; k < depth; k++) {
        for (i = 0; i < MGV__TILE; i++) {
            const float x = a[(size_t)i * MGV__CPU_STRIDE + k];
            for (j = 0; j < MGV__PANEL; j++) sum[i][j] += x * packed[(size_t)k * MGV__PANEL + j];
        }
    }
    for (i = 0; i < rows; i++) {
        for (j = 0; j < MGV__PANEL; j++) c[i * c_stride + j] = accumulate ? c[i * c_stride + j] + sum[i][j] : sum[i][j];
    }
}

#else

/* Sixteen numbers of a stored dtype to float. */
MGV__TARGET static inline void MGV__FN(load_strip)(mgv_dtype dtype, const void *from, float *to) {
    int i;
    if (dtype == MGV_DTYPE_F32) {
        for (i = 0; i < MGV__CPU_STRIP; i += MGV__WIDTH) MGV__STORE(to + i, MGV__LOAD((const float *)from + i));
    } else if (dtype == MGV_DTYPE_BF16) {
        for (i = 0; i < MGV__CPU_STRIP; i += MGV__WIDTH) MGV__STORE(to + i, MGV__LOAD_BF16((const uint16_t *)from + i));
    } else {
        for (i = 0; i < MGV__CPU_STRIP; i += MGV__WIDTH) MGV__STORE(to + i, MGV__LOAD_F16((const uint16_t *)from + i));
    }
}

/* Strips of rows are first copied and converted, because rows of weights often lie a power of two apart, where they
   would push each other out of the cache between one quad of columns and the next. */
MGV__TARGET static void MGV__FN(pack)(mgv_dtype dtype, const void *weight, size_t stride, uint32_t columns, uint32_t depth, float *packed) {
    const size_t bytes = mgv__cpu_element_bytes(dtype);
    float strip[MGV__WIDTH * MGV__CPU_STRIP];
    const char *row[MGV__WIDTH];
    uint32_t i, j, k, q;
    for (j = 0; j < MGV__PANEL; j += MGV__WIDTH) {
        for (i = 0; i < MGV__WIDTH; i++) row[i] = (const char *)weight + mgv__cpu_min(i + j, columns - 1) * stride * bytes;
        for (k = 0; k < depth; k += MGV__CPU_STRIP) {
            const uint32_t length = mgv__cpu_min(depth - k, MGV__CPU_STRIP);
            float *to = packed + (size_t)k * MGV__PANEL + j;
            if (length == MGV__CPU_STRIP) {
                for (i = 0; i < MGV__WIDTH; i++) MGV__FN(load_strip)(dtype, row[i] + k * bytes, strip + i * MGV__CPU_STRIP);
            } else {
                memset(strip, 0, sizeof(strip));
                for (i = 0; i < MGV__WIDTH; i++) MGV__FN(convert)(dtype, row[i] + k * bytes, strip + i * MGV__CPU_STRIP, length);
            }
            for (q = 0; q < length; q += 4) {
                const MGV__VEC a = MGV__LOAD_QUADS(strip + q), b = MGV__LOAD_QUADS(strip + q + MGV__CPU_STRIP),
                               c = MGV__LOAD_QUADS(strip + q + 2 * MGV__CPU_STRIP), d = MGV__LOAD_QUADS(strip + q + 3 * MGV__CPU_STRIP);
                const MGV__VEC ab_low = MGV__UNPACK_LOW(a, b), cd_low = MGV__UNPACK_LOW(c, d), ab_high = MGV__UNPACK_HIGH(a, b),
                               cd_high = MGV__UNPACK_HIGH(c, d);
                MGV__STORE(to + (size_t)q * MGV__PANEL, MGV__LOW_PAIRS(ab_low, cd_low));
                if (q + 1 < length) MGV__STORE(to + (size_t)(q + 1) * MGV__PANEL, MGV__HIGH_PAIRS(ab_low, cd_low));
                if (q + 2 < length) MGV__STORE(to + (size_t)(q + 2) * MGV__PANEL, MGV__LOW_PAIRS(ab_high, cd_high));
                if (q + 3 < length) MGV__STORE(to + (size_t)(q + 3) * MGV__PANEL, MGV__HIGH_PAIRS(ab_high, cd_high));
            }
        }
    }
}

/* One row of a tile is two registers. The rows are written out, because compilers keep named registers and not arrays. */
#define MGV__ROWS_2(X) X(0) X(1)
#define MGV__ROWS_4(X) MGV__ROWS_2(X) X(2) X(3)
#define MGV__ROWS_6(X) MGV__ROWS_4(X) X(4) X(5)
#define MGV__ROWS_8(X) MGV__ROWS_6(X) X(6) X(7)
#define MGV__ROWS_12(X) MGV__ROWS_8(X) X(8) X(9) X(10) X(11)
#define MGV__ROWS_14(X) MGV__ROWS_12(X) X(12) X(13)
#define MGV__ROW_ZERO(i) MGV__VEC low##i = MGV__SET1(0.0f), high##i = MGV__SET1(0.0f);
#define MGV__ROW_STEP(i) x = MGV__SET1(a[i * MGV__CPU_STRIDE]); low##i = MGV__FMA(x, low, low##i); high##i = MGV__FMA(x, high, high##i);
#define MGV__ROW_STORE(i) MGV__STORE(c + i * c_stride, low##i); MGV__STORE(c + i * c_stride + MGV__WIDTH, high##i);
#define MGV__ROW_ADD(i) \
    MGV__STORE(c + i * c_stride, MGV__ADD(MGV__LOAD(c + i * c_stride), low##i)); \
    MGV__STORE(c + i * c_stride + MGV__WIDTH, MGV__ADD(MGV__LOAD(c + i * c_stride + MGV__WIDTH), high##i));
#define MGV__TILE_FUNCTION(name, ROWS) \
    MGV__TARGET static void MGV__FN(name)(uint32_t depth, const float *a, const float *packed, float *c, size_t c_stride, int accumulate, \
                                          const mgv__cpu_ahead *ahead) { \
        MGV__VEC low, high, x; \
        size_t strip = 0; \
        ROWS(MGV__ROW_ZERO) \
        while (depth > 0) { \
            uint32_t k = mgv__cpu_min(depth, MGV__CPU_STRIP); \
            depth -= k; \
            mgv__cpu_fetch(ahead, strip++); \
            for (; k > 0; k--, a++, packed += MGV__PANEL) { \
                low = MGV__LOAD(packed); \
                high = MGV__LOAD(packed + MGV__WIDTH); \
                ROWS(MGV__ROW_STEP) \
            } \
        } \
        if (accumulate) { \
            ROWS(MGV__ROW_ADD) \
        } else { \
            ROWS(MGV__ROW_STORE) \
        } \
    }
MGV__TILE_FUNCTION(tile_whole, MGV__TILE_ROWS)
MGV__TILE_FUNCTION(tile_half, MGV__HALF_TILE_ROWS)
MGV__TILE_FUNCTION(tile_small, MGV__SMALL_TILE_ROWS)

MGV__TARGET static void MGV__FN(tile)(uint32_t rows, uint32_t depth, const float *a, const float *packed, float *c, size_t c_stride,
                                      int accumulate, const mgv__cpu_ahead *ahead) {
    if (rows <= MGV__SMALL_TILE) {
        MGV__FN(tile_small)(depth, a, packed, c, c_stride, accumulate, ahead);
    } else if (rows <= MGV__HALF_TILE) {
        MGV__FN(tile_half)(depth, a, packed, c, c_stride, accumulate, ahead);
    } else {
        MGV__FN(tile_whole)(depth, a, packed, c, c_stride, accumulate, ahead);
    }
}

#undef MGV__ROWS_2
#undef MGV__ROWS_4
#undef MGV__ROWS_6
#undef MGV__ROWS_8
#undef MGV__ROWS_12
#undef MGV__ROWS_14
#undef MGV__ROW_ZERO
#undef MGV__ROW_STEP
#undef MGV__ROW_STORE
#undef MGV__ROW_ADD
#undef MGV__TILE_FUNCTION
#undef MGV__TILE_ROWS
#undef MGV__HALF_TILE
#undef MGV__HALF_TILE_ROWS
#undef MGV__SMALL_TILE
#undef MGV__SMALL_TILE_ROWS
#undef MGV__LOAD_QUADS
#undef MGV__UNPACK_LOW
#undef MGV__UNPACK_HIGH
#undef MGV__LOW_PAIRS
#undef MGV__HIGH_PAIRS

#endif

static const mgv__cpu_kernels MGV__FN(kernels) = {
    MGV__NAME, MGV__PANEL, MGV__TILE, MGV__FN(convert), MGV__FN(pack), MGV__FN(tile), MGV__FN(activate), MGV__FN(softmax),
    MGV__FN(add), MGV__FN(multiply), MGV__FN(scale), MGV__FN(add_scaled), MGV__FN(dot), MGV__FN(norm), MGV__FN(rotate),
};

#undef MGV__FN
#undef MGV__NAME
#undef MGV__TARGET
#undef MGV__VEC
#undef MGV__WIDTH
#undef MGV__PANEL
#undef MGV__TILE
#undef MGV__LOAD
#undef MGV__STORE
#undef MGV__SET1
#undef MGV__ADD
#undef MGV__SUB
#undef MGV__MUL
#undef MGV__DIV
#undef MGV__FMA
#undef MGV__MAX
#undef MGV__MIN
#undef MGV__LESS
#undef MGV__ROUND
#undef MGV__TIMES_POW2
#undef MGV__ABS
#undef MGV__SIGN_OF
#undef MGV__SUM
#undef MGV__LARGEST
#undef MGV__LOAD_F16
#undef MGV__LOAD_BF16

#endif /* MGV__VECTOR */

/*
This software is available under 2 licenses; choose whichever you prefer.
------------------------------------------------------------------------------
ALTERNATIVE A - MIT License

Copyright (c) 2026 the megavit authors

Permission is hereby granted, free of charge, to any person obtaining a copy of
this software and associated documentation files (the "Software"), to deal in
the Software without restriction, including without limitation the rights to
use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies
of the Software, and to permit persons to whom the Software is furnished to do
so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
------------------------------------------------------------------------------
ALTERNATIVE B - Public Domain (www.unlicense.org)

This is free and unencumbered software released into the public domain.

Anyone is free to copy, modify, publish, use, compile, sell, or distribute this
software, either in source code form or as a compiled binary, for any purpose,
commercial or non-commercial, and by any means.

In jurisdictions that recognize copyright laws, the author or authors of this
software dedicate any and all copyright interest in the software to the public
domain. We make this dedication for the benefit of the public at large and to
the detriment of our heirs and successors. We intend this dedication to be an
overt act of relinquishment in perpetuity of all present and future rights to
this software under copyright law.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN
ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION
WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
------------------------------------------------------------------------------
*/
