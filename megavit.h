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
           MEGAVIT_TEXT             *  tokenizers, see >>tokenizer
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

/* ---------------------------------------------------------------------------------------------------------------
   Texts: tokenizers. Define MEGAVIT_TEXT where the implementation is compiled; without it these functions are not there.

   Reads tokenizer.json with a BPE or Unigram model, vocab.json with merges.txt, and Qwen's .tiktoken files, and gives the ids that
   huggingface/tokenizers 0.23 gives. Known are the components of the tokenizers of SigLIP, SigLIP2, CLIP and Qwen2 to Qwen3.5; a file with
   others is refused by name. Where tokenizer_config.json names a class that transformers 5.24 builds itself (GemmaTokenizer,
   Siglip2Tokenizer, CLIPTokenizer, Qwen2Tokenizer, Qwen3_5Tokenizer), its stages count and not the file's, as there; those of
   SiglipTokenizer (lower case, no punctuation) come before the file's. Character classes, lower case and NFC are of Unicode 15.0. */

typedef struct mgv_tokenizer mgv_tokenizer;

typedef int32_t mgv_lower_case;
enum {
    MGV_LOWER_CASE_AUTO = 0, /* as transformers 5.24 does with these files. For a SigLIP2 checkpoint of model_type "siglip" with a
                                GemmaTokenizer that is no, although it was trained on lower case and its do_lower_case says so */
    MGV_LOWER_CASE_YES,
    MGV_LOWER_CASE_NO
};

typedef struct mgv_tokenizer_info {
    const char *model;         /* "BPE" or "Unigram" */
    uint32_t vocabulary;       /* ids are below it */
    uint32_t bos_id, eos_id;   /* that are put before a text, behind it; UINT32_MAX: none */
    uint32_t pad_id;           /* UINT32_MAX: the files name none */
} mgv_tokenizer_info;

/* Reads a tokenizer's files from a directory, from memory or by callbacks. Of a model's directory only those files are looked at. The
   description needs to stay only during the call. Any thread. */
MEGAVIT_API mgv_result mgv_tokenizer_open(mgv_tokenizer **tokenizer, const mgv_model_desc *desc, mgv_lower_case lower_case,
                                          mgv_error *error);
/* Frees it. NULL is allowed. */
MEGAVIT_API void mgv_tokenizer_close(mgv_tokenizer *tokenizer);
MEGAVIT_API mgv_result mgv_tokenizer_get_info(const mgv_tokenizer *tokenizer, mgv_tokenizer_info *info);
/* The name of a token as the files have it, not terminated; it belongs to the tokenizer. Any thread. */
MEGAVIT_API mgv_result mgv_tokenizer_get_token(const mgv_tokenizer *tokenizer, uint32_t id, const char **name, size_t *bytes);

enum { MGV_TOKENIZE_PLAIN = 1 /* without the special tokens that belong around a text */ };
/* text: UTF-8, need not be terminated; another byte is an error that says where. ids: room for `capacity`; *count: how many there are,
   also where MGV_ERROR_CAPACITY says that they did not fit. Not padded and not cut. Allocates while it runs. Any thread. */
MEGAVIT_API mgv_result mgv_tokenize(const mgv_tokenizer *tokenizer, const char *text, size_t bytes, uint32_t flags, uint32_t *ids,
                                    uint64_t capacity, uint64_t *count, mgv_error *error);

enum {
    MGV_DETOKENIZE_SPECIAL = 1, /* special tokens are written too, not left out */
    MGV_DETOKENIZE_MORE = 2     /* more ids will follow with the same state */
};
/* What is between two calls for one text. Zero it before the first one. */
typedef struct mgv_detokenize_state {
    uint32_t tokens, stripped, spaces, held_count;
    uint8_t held[8];
} mgv_detokenize_state;
/* Ids back to text: UTF-8 always, with U+FFFD for bytes that are none; not terminated. state: NULL, or ids come in several calls: then a
   character is written when it is whole. *bytes: of the text, also where MGV_ERROR_CAPACITY says that it did not fit; the state is then as
   it was. Allocates while it runs. Any thread. */
MEGAVIT_API mgv_result mgv_detokenize(const mgv_tokenizer *tokenizer, mgv_detokenize_state *state, const uint32_t *ids, uint64_t count,
                                      uint32_t flags, char *text, uint64_t capacity, uint64_t *bytes, mgv_error *error);

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

   Sections, in the order in which data flows; behind < those that a section uses. All use >>memory. tests/test_sections.sh holds them to
   it. Internal names start with mgv__ and are static.

     >>memory       checked sizes, allocation, messages
     >>json         a strict JSON reader
     >>files        where files come from; safetensors; a checkpoint of one or many shards  < json
     >>config       config.json and preprocessor_config.json  < json files builders
     >>pixels       from pixels to patches: conversion, resize, normalisation  < config pixels-avx2
     >>ops          a model is a list of operations over named buffers  < config
     >>geometry     which token is where: positions, ranges of attention, window order  < config pixels ops
     >>builders     one function a model family: config + tensors in, list of operations out  < files config ops
     >>model        open, validate, close  < files config ops geometry builders
     >>threads      a pool of threads for callers who ask for one
     >>cpu          the CPU twin of every operation  < files config ops geometry
     >>pixels-avx2  the vector code of >>pixels  < pixels cpu
     >>plan         the list of operations as one persistent kernel: layout, tiles, order, packed weights  < files config ops schedule
     >>schedule     what a plan costs, on any machine  < config ops model plan
     >>packed       files of packed weights  < files model plan schedule
     >>engine       what an engine is: capacity, its memory, the CPU backend  < config pixels ops geometry model cpu plan schedule cuda
     >>cuda         the CUDA backend: the plan on a GPU  < files config pixels ops model plan schedule packed engine
     >>encode       engines made, encode, poll, wait  < config pixels ops geometry model cpu engine cuda
     >>validation   the GPU's operations against their twins on the CPU  < config ops model cpu plan engine cuda encode
     >>unicode      code points: what kind they are, lower case, NFC, where clusters end
     >>tokenizer    from text to ids and back  < json files config unicode
     >>cpu-vector   the vector code of >>cpu, once for each instruction set  < config cpu
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

/* How many of the bytes at text begin a well-formed UTF-8 sequence; *length: what a whole one has. 0: none begins so. (Unicode 15, table
   3-7.) */
static size_t mgv__utf8_begun(const char *text, size_t bytes, size_t *length) {
    const unsigned char *p = (const unsigned char *)text;
    size_t i;
    unsigned char low = 0x80, high = 0xBF; /* what the second byte may be */
    *length = 1;
    if (bytes == 0) return 0;
    if (p[0] < 0x80) return 1;
    if (p[0] < 0xC2 || p[0] > 0xF4) return 0;
    *length = p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
    if (p[0] == 0xE0) low = 0xA0;
    if (p[0] == 0xED) high = 0x9F;
    if (p[0] == 0xF0) low = 0x90;
    if (p[0] == 0xF4) high = 0x8F;
    for (i = 1; i < *length && i < bytes; i++) {
        if (p[i] < low || p[i] > high) break;
        low = 0x80;
        high = 0xBF;
    }
    return i;
}
/* Bytes of the UTF-8 sequence at text, 1 to 4, or 0 where the bytes are not UTF-8: cut short, overlong, a surrogate, above U+10FFFF. */
static size_t mgv__utf8_length(const char *text, size_t bytes) {
    size_t length, begun = mgv__utf8_begun(text, bytes, &length);
    return begun == length ? length : 0;
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

/* A whole file in memory of the source's allocator, followed by a zero byte. absent: as in mgv__file_open; *text is then NULL. */
static mgv_result mgv__source_read(mgv__source *source, const char *name, char **text, size_t *bytes, int *absent, mgv_error *error) {
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
        return MGV_OK;
    }
    mgv__free(&source->allocator, *text);
    *text = NULL;
    *bytes = 0;
    return result;
}
/* The same of a JSON file, checked (see >>json). */
static mgv_result mgv__source_read_json(mgv__source *source, const char *name, char **text, size_t *bytes, int *absent, mgv_error *error) {
    mgv_result result = mgv__source_read(source, name, text, bytes, absent, error);
    if (result != MGV_OK || *text == NULL) return result;
    result = mgv__json_check(*text, *bytes, name, &source->allocator, error);
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

/* The types that weights may be stored in. An exponent of all ones stands for what is no number. */
typedef struct mgv__element {
    mgv_dtype dtype;
    uint32_t bits, fraction_bits;
} mgv__element;
static const mgv__element mgv__elements[] = {{MGV_DTYPE_F32, 32, 23}, {MGV_DTYPE_F16, 16, 10}, {MGV_DTYPE_BF16, 16, 7}};

/* NULL: no weights are stored so. */
static const mgv__element *mgv__find_element(mgv_dtype dtype) {
    size_t i;
    for (i = 0; i < sizeof mgv__elements / sizeof mgv__elements[0]; i++)
        if (mgv__elements[i].dtype == dtype) return &mgv__elements[i];
    return NULL;
}

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
    if (!mgv__find_element(tensor->dtype)) {
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
    const mgv__element *element = mgv__find_element(dtype);
    const uint64_t width = element->bits / 8, each = UINT64_MAX / (((uint64_t)1 << (element->bits - 1) << 1) - 1); /* 1 in every element */
    const uint64_t sign = each << (element->bits - 1), one = each << element->fraction_bits, exponent = sign - one;
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

static size_t mgv__cpu_element_bytes(mgv_dtype dtype) { return mgv__find_element(dtype)->bits / 8; }
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

/* Images of a group, where nobody says. One group, or two of the same size, where they have up to 25,100 rows each: a small group behind
   large ones costs more than large ones save. More images come in groups of 11,800 rows and what is left: 60 images of SigLIP2-base are 138
   tiles of FC2, the longest there are, two rounds of 66 clusters and little more; where some clusters have one more than others, all wait
   for these (kernels/NOTES.md, groups). */
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
   not full runs beside other operations' tiles: narrower ones are worth it only where they save a wave, or where so few rows are hurried
   on that the next operation waits for them. Where tiles are dealt no wave is left half empty. */
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
       (128 columns gain where they are up to a third more tiles than clusters, and lose from there on). */
    if (best > 128 && many && 3 * row_tiles * mgv__ceil_div(op->columns, 128) <= 4 * clusters * MGV__CLUSTER) return 128;
    if (best == 256 && many && 8 * row_units <= clusters && row_units * mgv__ceil_div(op->columns, 192) <= 2 * clusters) return 192;
    return best;
}

/* The kind of SPLIT tile of what writes the stream's `rows` rows, the narrowest that does; 0: none. In a SPLIT tile the CTAs of a cluster
   share out K: half as long a tile, for an exchange of sums, which gains up to 24 images of SigLIP2-base and loses from 28 on; tiles of 128
   columns gain in one round of them and lose in more. It is other arithmetic, so it depends on model and number of rows, never on the
   card. Not for the head: its rows are so few that narrow tiles do as well. */
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
   the two need not run in step. Tiles are twice as long, so only where two rounds of them come together. It is the same arithmetic. */
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

/* Whether a product that writes the stream has THIN tiles, which exchange no sums: of one image (kernels/NOTES.md, DEEP and THIN). It is
   other arithmetic, so model and number of images choose it, never the card. What a CTA loads beyond its own rows is the same
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
   tile of a product at most, all wait for that release, and handing it over would put it off.
   Where a cluster has more it mostly has a tile to go on with: another warp signals (kernels/NOTES.md, who signals). */
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
   still a part of the order of all (kernels/NOTES.md, tiles dealt one by one, which says what it takes the host, too). */
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

/* ---------------------------------------------------------------------------------------------------------------
   >>unicode: code points: what kind they are, lower case, NFC, where clusters end

   What the tokenizers need of the Unicode Character Database, and no more. Texts are UTF-8 that has been checked. */
#ifdef MEGAVIT_TEXT

/* The class of a code point: its general category's first letter, then flags, then how clusters break at it (UAX #29, table 2). */
enum {
    MGV__UNICODE_LETTER = 1, MGV__UNICODE_NUMBER = 2, MGV__UNICODE_MARK = 3, MGV__UNICODE_GENERAL = 3,
    MGV__UNICODE_SPACE = 4,           /* White_Space */
    MGV__UNICODE_CASED = 8,
    MGV__UNICODE_CASE_IGNORABLE = 16,
    MGV__UNICODE_COMPOSES = 32,       /* NFC may change it or what stands before it: NFC_QC is not Yes, or the combining class not 0 */
    MGV__UNICODE_BREAK_SHIFT = 6,
    MGV__UNICODE_CLASS_BITS = 10
};
enum {
    MGV__BREAK_OTHER = 0, MGV__BREAK_CONTROL, MGV__BREAK_EXTEND, MGV__BREAK_ZWJ, MGV__BREAK_PREPEND, MGV__BREAK_SPACING_MARK,
    MGV__BREAK_L, MGV__BREAK_V, MGV__BREAK_T, MGV__BREAK_HANGUL_SYLLABLE, MGV__BREAK_REGIONAL, MGV__BREAK_PICTOGRAPH
};
typedef struct mgv__unicode_case { uint32_t first, last; int32_t step, difference; } mgv__unicode_case;
typedef struct mgv__unicode_pair { uint32_t code, first, second; } mgv__unicode_pair;

/* Generated by tools/make_unicode_tables.py: begin. */
/* Of Unicode 15.0.0. */
#define MGV__UNICODE_VERSION "15.0.0"
/* Where the class of code points changes: the first of them << 10 | their class. */
static const uint32_t mgv__unicode_classes[] = {
    0x40, 0x2444, 0x3840, 0x8004, 0x8400, 0x9C10, 0xA000, 0xB810, 0xBC00, 0xC002, 0xE810, 0xEC00, 0x10409, 0x16C00, 0x17810, 0x17C00,
    0x18010, 0x18409, 0x1EC00, 0x1FC40, 0x21444, 0x21840, 0x28004, 0x28400, 0x2A010, 0x2A6C0, 0x2A809, 0x2AC00, 0x2B450, 0x2BAC0, 0x2BC10,
    0x2C000, 0x2C802, 0x2D010, 0x2D409, 0x2D800, 0x2DC10, 0x2E402, 0x2E809, 0x2EC00, 0x2F002, 0x2FC00, 0x30009, 0x35C00, 0x36009, 0x3DC00,
    0x3E009, 0x6EC01, 0x6F009, 0x70001, 0x71009, 0xA5001, 0xA5409, 0xAC019, 0xAE411, 0xB0019, 0xB0810, 0xB1811, 0xB4810, 0xB8019, 0xB9410,
    0xBB011, 0xBB410, 0xBB811, 0xBBC10, 0xC00B3, 0xD14BB, 0xD18B3, 0xD3C93, 0xD40B3, 0xDC009, 0xDD031, 0xDD410, 0xDD809, 0xDE000, 0xDE819,
    0xDEC09, 0xDF820, 0xDFC09, 0xE0000, 0xE1010, 0xE1809, 0xE1C30, 0xE2009, 0xE2C00, 0xE3009, 0xE3400, 0xE3809, 0xE8800, 0xE8C09, 0xFD800,
    0xFDC09, 0x120800, 0x120CB3, 0x122093, 0x122809, 0x14C000, 0x14C409, 0x155C00, 0x156411, 0x156800, 0x157C10, 0x158009, 0x162400,
    0x1644B3, 0x16F800, 0x16FCB3, 0x170000, 0x1704B3, 0x170C00, 0x1710B3, 0x171800, 0x171CB3, 0x172000, 0x174001, 0x17AC00, 0x17BC01,
    0x17CC00, 0x17D010, 0x17D400, 0x180110, 0x181800, 0x1840B3, 0x186C00, 0x187050, 0x187400, 0x188001, 0x190011, 0x190401, 0x192CB3,
    0x198002, 0x19A800, 0x19B801, 0x19C0B3, 0x19C401, 0x1B5000, 0x1B5401, 0x1B58B3, 0x1B7510, 0x1B7800, 0x1B7CB3, 0x1B9411, 0x1B9CB3,
    0x1BA400, 0x1BA8B3, 0x1BB801, 0x1BC002, 0x1BE801, 0x1BF400, 0x1BFC01, 0x1C0000, 0x1C3D10, 0x1C4001, 0x1C44B3, 0x1C4801, 0x1CC0B3,
    0x1D2C00, 0x1D3401, 0x1E9893, 0x1EC401, 0x1EC800, 0x1F0002, 0x1F2801, 0x1FACB3, 0x1FD011, 0x1FD800, 0x1FE811, 0x1FEC00, 0x1FF4B3,
    0x1FF800, 0x200001, 0x2058B3, 0x206811, 0x206CB3, 0x209011, 0x2094B3, 0x20A011, 0x20A4B3, 0x20B800, 0x210001, 0x2164B3, 0x217000,
    0x218001, 0x21AC00, 0x21C001, 0x222010, 0x222401, 0x223C00, 0x224110, 0x224800, 0x2260B3, 0x228001, 0x232411, 0x2328B3, 0x238910,
    0x238CB3, 0x240093, 0x240D43, 0x241001, 0x24E893, 0x24ED43, 0x24F0B3, 0x24F401, 0x24F943, 0x250493, 0x252543, 0x2534B3, 0x253943,
    0x254001, 0x2544B3, 0x255493, 0x256021, 0x258001, 0x258893, 0x259000, 0x259802, 0x25C000, 0x25C411, 0x25C801, 0x260493, 0x260943,
    0x261000, 0x261401, 0x263400, 0x263C01, 0x264400, 0x264C01, 0x26A400, 0x26A801, 0x26C400, 0x26C801, 0x26CC00, 0x26D801, 0x26E800,
    0x26F0B3, 0x26F401, 0x26F8A3, 0x26FD43, 0x270493, 0x271400, 0x271D43, 0x272400, 0x272D43, 0x2734B3, 0x273801, 0x273C00, 0x275CA3,
    0x276000, 0x277021, 0x277800, 0x277C21, 0x278001, 0x278893, 0x279000, 0x279802, 0x27C001, 0x27C800, 0x27D002, 0x27E800, 0x27F001,
    0x27F400, 0x27F8B3, 0x27FC00, 0x280493, 0x280D43, 0x281000, 0x281401, 0x282C00, 0x283C01, 0x284400, 0x284C01, 0x28A400, 0x28A801,
    0x28C400, 0x28C801, 0x28CC21, 0x28D000, 0x28D401, 0x28D821, 0x28DC00, 0x28E001, 0x28E800, 0x28F0B3, 0x28F400, 0x28F943, 0x290493,
    0x290C00, 0x291C93, 0x292400, 0x292C93, 0x2934B3, 0x293800, 0x294493, 0x294800, 0x296421, 0x297001, 0x297400, 0x297821, 0x297C00,
    0x299802, 0x29C093, 0x29C801, 0x29D493, 0x29D800, 0x2A0493, 0x2A0D43, 0x2A1000, 0x2A1401, 0x2A3800, 0x2A3C01, 0x2A4800, 0x2A4C01,
    0x2AA400, 0x2AA801, 0x2AC400, 0x2AC801, 0x2AD000, 0x2AD401, 0x2AE800, 0x2AF0B3, 0x2AF401, 0x2AF943, 0x2B0493, 0x2B1800, 0x2B1C93,
    0x2B2543, 0x2B2800, 0x2B2D43, 0x2B34B3, 0x2B3800, 0x2B4001, 0x2B4400, 0x2B8001, 0x2B8893, 0x2B9000, 0x2B9802, 0x2BC000, 0x2BE401,
    0x2BE893, 0x2C0000, 0x2C0493, 0x2C0943, 0x2C1000, 0x2C1401, 0x2C3400, 0x2C3C01, 0x2C4400, 0x2C4C01, 0x2CA400, 0x2CA801, 0x2CC400,
    0x2CC801, 0x2CD000, 0x2CD401, 0x2CE800, 0x2CF0B3, 0x2CF401, 0x2CF8A3, 0x2CFC93, 0x2D0143, 0x2D0493, 0x2D1400, 0x2D1D43, 0x2D2400,
    0x2D2D43, 0x2D34B3, 0x2D3800, 0x2D5493, 0x2D58B3, 0x2D5CA3, 0x2D6000, 0x2D7021, 0x2D7800, 0x2D7C01, 0x2D8893, 0x2D9000, 0x2D9802,
    0x2DC000, 0x2DC401, 0x2DC802, 0x2DE000, 0x2E0893, 0x2E0C01, 0x2E1000, 0x2E1401, 0x2E2C00, 0x2E3801, 0x2E4400, 0x2E4801, 0x2E5800,
    0x2E6401, 0x2E6C00, 0x2E7001, 0x2E7400, 0x2E7801, 0x2E8000, 0x2E8C01, 0x2E9400, 0x2EA001, 0x2EAC00, 0x2EB801, 0x2EE800, 0x2EF8A3,
    0x2EFD43, 0x2F0093, 0x2F0543, 0x2F0C00, 0x2F1943, 0x2F2400, 0x2F2943, 0x2F34B3, 0x2F3800, 0x2F4001, 0x2F4400, 0x2F5CA3, 0x2F6000,
    0x2F9802, 0x2FCC00, 0x300093, 0x300543, 0x301093, 0x301401, 0x303400, 0x303801, 0x304400, 0x304801, 0x30A400, 0x30A801, 0x30E800,
    0x30F0B3, 0x30F401, 0x30F893, 0x310543, 0x311400, 0x311893, 0x312400, 0x312893, 0x3134B3, 0x313800, 0x3154B3, 0x315C00, 0x316001,
    0x316C00, 0x317401, 0x317800, 0x318001, 0x318893, 0x319000, 0x319802, 0x31C000, 0x31E002, 0x31FC00, 0x320001, 0x320493, 0x320943,
    0x321000, 0x321401, 0x323400, 0x323801, 0x324400, 0x324801, 0x32A400, 0x32A801, 0x32D000, 0x32D401, 0x32E800, 0x32F0B3, 0x32F401,
    0x32F943, 0x32FC93, 0x330143, 0x3308A3, 0x330D43, 0x331400, 0x331893, 0x331D43, 0x332400, 0x332943, 0x333093, 0x3334B3, 0x333800,
    0x3354A3, 0x335C00, 0x337401, 0x337C00, 0x338001, 0x338893, 0x339000, 0x339802, 0x33C000, 0x33C401, 0x33CD43, 0x33D000, 0x340093,
    0x340943, 0x341001, 0x343400, 0x343801, 0x344400, 0x344801, 0x34ECB3, 0x34F401, 0x34F8A3, 0x34FD43, 0x350493, 0x351400, 0x351943,
    0x352400, 0x352943, 0x3534B3, 0x353901, 0x353C00, 0x355001, 0x355CA3, 0x356002, 0x357C01, 0x358893, 0x359000, 0x359802, 0x35E400,
    0x35E801, 0x360000, 0x360493, 0x360943, 0x361000, 0x361401, 0x365C00, 0x366801, 0x36C800, 0x36CC01, 0x36F000, 0x36F401, 0x36F800,
    0x370001, 0x371C00, 0x3728B3, 0x372C00, 0x373CA3, 0x374143, 0x374893, 0x375400, 0x375893, 0x375C00, 0x376143, 0x377CA3, 0x378000,
    0x379802, 0x37C000, 0x37C943, 0x37D000, 0x380401, 0x38C493, 0x38C801, 0x38CD41, 0x38D093, 0x38E0B3, 0x38EC00, 0x390001, 0x391811,
    0x391C93, 0x3920B3, 0x393093, 0x393C00, 0x394002, 0x396800, 0x3A0401, 0x3A0C00, 0x3A1001, 0x3A1400, 0x3A1801, 0x3A2C00, 0x3A3001,
    0x3A9000, 0x3A9401, 0x3A9800, 0x3A9C01, 0x3AC493, 0x3AC801, 0x3ACD41, 0x3AD093, 0x3AE0B3, 0x3AEC93, 0x3AF401, 0x3AF800, 0x3B0001,
    0x3B1400, 0x3B1811, 0x3B1C00, 0x3B20B3, 0x3B3093, 0x3B3C00, 0x3B4002, 0x3B6800, 0x3B7001, 0x3B8000, 0x3C0001, 0x3C0400, 0x3C60B3,
    0x3C6800, 0x3C8002, 0x3CD000, 0x3CD4B3, 0x3CD800, 0x3CDCB3, 0x3CE000, 0x3CE4B3, 0x3CE800, 0x3CF943, 0x3D0001, 0x3D0C21, 0x3D1001,
    0x3D2000, 0x3D2401, 0x3D3421, 0x3D3801, 0x3D4821, 0x3D4C01, 0x3D5C21, 0x3D6001, 0x3D7021, 0x3D7401, 0x3DA421, 0x3DA801, 0x3DB400,
    0x3DC4B3, 0x3DDC93, 0x3DE0B3, 0x3DE493, 0x3DE8B3, 0x3DF893, 0x3DFD43, 0x3E00B3, 0x3E1400, 0x3E18B3, 0x3E2001, 0x3E3493, 0x3E4CB3,
    0x3E5093, 0x3E6000, 0x3E6493, 0x3E74B3, 0x3E7893, 0x3E88B3, 0x3E8C93, 0x3E9CB3, 0x3EA093, 0x3EB0B3, 0x3EB493, 0x3EE4B3, 0x3EE893,
    0x3EF400, 0x3F18B3, 0x3F1C00, 0x400001, 0x40AC03, 0x40B493, 0x40B8B3, 0x40BC93, 0x40C543, 0x40C893, 0x40DCB3, 0x40E003, 0x40E4B3,
    0x40ED43, 0x40F493, 0x40FC01, 0x410002, 0x412800, 0x414001, 0x415943, 0x416093, 0x416801, 0x417893, 0x418401, 0x418803, 0x419401,
    0x419C03, 0x41B801, 0x41C493, 0x41D401, 0x420893, 0x420C03, 0x421143, 0x421493, 0x421C03, 0x4234B3, 0x423801, 0x423C03, 0x424002,
    0x426803, 0x427493, 0x427800, 0x428009, 0x431800, 0x431C09, 0x432000, 0x433409, 0x433800, 0x434009, 0x43EC00, 0x43F019, 0x43F409,
    0x440181, 0x4581C1, 0x4585E1, 0x45D9C1, 0x46A221, 0x470E01, 0x480001, 0x492400, 0x492801, 0x493800, 0x494001, 0x495C00, 0x496001,
    0x496400, 0x496801, 0x497800, 0x498001, 0x4A2400, 0x4A2801, 0x4A3800, 0x4A4001, 0x4AC400, 0x4AC801, 0x4AD800, 0x4AE001, 0x4AFC00,
    0x4B0001, 0x4B0400, 0x4B0801, 0x4B1800, 0x4B2001, 0x4B5C00, 0x4B6001, 0x4C4400, 0x4C4801, 0x4C5800, 0x4C6001, 0x4D6C00, 0x4D74B3,
    0x4D8000, 0x4DA402, 0x4DF400, 0x4E0001, 0x4E4000, 0x4E8009, 0x4FD800, 0x4FE009, 0x4FF800, 0x500401, 0x59B400, 0x59BC01, 0x5A0004,
    0x5A0401, 0x5A6C00, 0x5A8001, 0x5BAC00, 0x5BB802, 0x5BC401, 0x5BE400, 0x5C0001, 0x5C4893, 0x5C50B3, 0x5C5563, 0x5C5800, 0x5C7C01,
    0x5CC893, 0x5CD163, 0x5CD400, 0x5D0001, 0x5D4893, 0x5D5000, 0x5D8001, 0x5DB400, 0x5DB801, 0x5DC400, 0x5DC893, 0x5DD000, 0x5E0001,
    0x5ED093, 0x5ED943, 0x5EDC93, 0x5EF943, 0x5F1893, 0x5F1D43, 0x5F2493, 0x5F48B3, 0x5F4C93, 0x5F5000, 0x5F5C11, 0x5F6000, 0x5F7001,
    0x5F74B3, 0x5F7800, 0x5F8002, 0x5FA800, 0x5FC002, 0x5FE800, 0x602C93, 0x603850, 0x603C93, 0x604002, 0x606800, 0x608001, 0x610C11,
    0x611001, 0x61E400, 0x620001, 0x621493, 0x621C01, 0x62A4B3, 0x62A801, 0x62AC00, 0x62C001, 0x63D800, 0x640001, 0x647C00, 0x648093,
    0x648D43, 0x649C93, 0x64A543, 0x64B000, 0x64C143, 0x64C893, 0x64CD43, 0x64E4B3, 0x64F000, 0x651802, 0x654001, 0x65B800, 0x65C001,
    0x65D400, 0x660001, 0x66B000, 0x66C001, 0x672800, 0x674002, 0x676C00, 0x680001, 0x685CB3, 0x686543, 0x686C93, 0x687000, 0x688001,
    0x695543, 0x695893, 0x695D43, 0x696093, 0x697C00, 0x6980B3, 0x698403, 0x698893, 0x698C03, 0x699493, 0x69B543, 0x69CC93, 0x69D4B3,
    0x69F400, 0x69FCB3, 0x6A0002, 0x6A2800, 0x6A4002, 0x6A6800, 0x6A9C11, 0x6AA000, 0x6AC0B3, 0x6AF893, 0x6AFCB3, 0x6B3C00, 0x6C0093,
    0x6C1143, 0x6C1401, 0x6CD0B3, 0x6CD4A3, 0x6CD893, 0x6CED43, 0x6CF093, 0x6CF543, 0x6D0893, 0x6D0D43, 0x6D1163, 0x6D1401, 0x6D3400,
    0x6D4002, 0x6D6800, 0x6DACB3, 0x6DD000, 0x6E0093, 0x6E0943, 0x6E0C01, 0x6E8543, 0x6E8893, 0x6E9943, 0x6EA093, 0x6EA963, 0x6EACB3,
    0x6EB093, 0x6EB801, 0x6EC002, 0x6EE801, 0x6F98B3, 0x6F9D43, 0x6FA093, 0x6FA943, 0x6FB493, 0x6FB943, 0x6FBC93, 0x6FC963, 0x6FD000,
    0x700001, 0x709143, 0x70B093, 0x70D143, 0x70D893, 0x70DCB3, 0x70E000, 0x710002, 0x712800, 0x713401, 0x714002, 0x716801, 0x71E011,
    0x71F800, 0x720009, 0x722400, 0x724009, 0x72EC00, 0x72F409, 0x730000, 0x7340B3, 0x734C00, 0x7350B3, 0x738543, 0x7388B3, 0x73A401,
    0x73B4B3, 0x73B801, 0x73D0B3, 0x73D401, 0x73DD43, 0x73E0B3, 0x73E801, 0x73EC00, 0x740009, 0x74B019, 0x75AC09, 0x75E019, 0x75E409,
    0x766C19, 0x7700B3, 0x780009, 0x7C5800, 0x7C6009, 0x7C7800, 0x7C8009, 0x7D1800, 0x7D2009, 0x7D3800, 0x7D4009, 0x7D6000, 0x7D6409,
    0x7D6800, 0x7D6C09, 0x7D7000, 0x7D7409, 0x7D7800, 0x7D7C09, 0x7DC429, 0x7DC809, 0x7DCC29, 0x7DD009, 0x7DD429, 0x7DD809, 0x7DDC29,
    0x7DE009, 0x7DE429, 0x7DE809, 0x7DEC29, 0x7DF009, 0x7DF429, 0x7DF800, 0x7E0009, 0x7ED400, 0x7ED809, 0x7EEC29, 0x7EF009, 0x7EF410,
    0x7EF829, 0x7EFC10, 0x7F0809, 0x7F1400, 0x7F1809, 0x7F2429, 0x7F2809, 0x7F2C29, 0x7F3009, 0x7F3410, 0x7F4009, 0x7F4C29, 0x7F5000,
    0x7F5809, 0x7F6C29, 0x7F7000, 0x7F7410, 0x7F8009, 0x7F8C29, 0x7F9009, 0x7FAC29, 0x7FB009, 0x7FB410, 0x7FB830, 0x7FC000, 0x7FC809,
    0x7FD400, 0x7FD809, 0x7FE429, 0x7FE809, 0x7FEC29, 0x7FF009, 0x7FF430, 0x7FF810, 0x7FFC00, 0x800024, 0x800804, 0x802C50, 0x803090,
    0x8034D0, 0x803850, 0x804000, 0x806010, 0x806800, 0x809010, 0x809400, 0x809C10, 0x80A044, 0x80A850, 0x80BC04, 0x80C000, 0x80F2C0,
    0x80F400, 0x8126C0, 0x812800, 0x817C04, 0x818050, 0x819440, 0x819850, 0x81C002, 0x81C419, 0x81C800, 0x81D002, 0x81E800, 0x81FC19,
    0x820002, 0x822800, 0x824019, 0x827400, 0x8340B3, 0x837493, 0x8384B3, 0x838893, 0x8394B3, 0x83C400, 0x840809, 0x840C00, 0x841C09,
    0x842000, 0x842809, 0x845000, 0x845409, 0x845800, 0x846409, 0x847800, 0x848AC0, 0x848C00, 0x849009, 0x849400, 0x849829, 0x849C00,
    0x84A009, 0x84A400, 0x84A829, 0x84B009, 0x84B800, 0x84BC09, 0x84D401, 0x84E6C9, 0x84E800, 0x84F009, 0x850000, 0x851409, 0x852800,
    0x853809, 0x853C00, 0x854002, 0x85800A, 0x860002, 0x860C09, 0x861402, 0x862800, 0x8652C0, 0x866800, 0x86A6C0, 0x86AC00, 0x8C6AC0,
    0x8C7000, 0x8CA2C0, 0x8CA420, 0x8CAC00, 0x8E22C0, 0x8E2400, 0x8F3EC0, 0x8F4000, 0x8FA6C0, 0x8FD000, 0x8FE2C0, 0x8FEC00, 0x918002,
    0x927000, 0x92D808, 0x930AC8, 0x930C08, 0x93A802, 0x940000, 0x96AAC0, 0x96B000, 0x96DAC0, 0x96DC00, 0x9702C0, 0x970400, 0x97EEC0,
    0x97FC00, 0x9802C0, 0x981800, 0x981EC0, 0x984C00, 0x9852C0, 0x9A1800, 0x9A42C0, 0x9C1800, 0x9C22C0, 0x9C4C00, 0x9C52C0, 0x9C5400,
    0x9C5AC0, 0x9C5C00, 0x9C76C0, 0x9C7800, 0x9C86C0, 0x9C8800, 0x9CA2C0, 0x9CA400, 0x9CCEC0, 0x9CD400, 0x9D12C0, 0x9D1400, 0x9D1EC0,
    0x9D2000, 0x9D32C0, 0x9D3400, 0x9D3AC0, 0x9D3C00, 0x9D4EC0, 0x9D5800, 0x9D5EC0, 0x9D6000, 0x9D8EC0, 0x9DA000, 0x9DD802, 0x9E5000,
    0x9E56C0, 0x9E6000, 0x9E86C0, 0x9E8800, 0x9EC2C0, 0x9EC400, 0x9EFEC0, 0x9F0000, 0xA4D2C0, 0xA4D800, 0xAB7020, 0xAB7400, 0xAC16C0,
    0xAC2000, 0xAC6EC0, 0xAC7400, 0xAD42C0, 0xAD4400, 0xAD56C0, 0xAD5800, 0xB00009, 0xB1F019, 0xB1F809, 0xB39400, 0xB3AC09, 0xB3BCB3,
    0xB3C809, 0xB3D000, 0xB3F402, 0xB3F800, 0xB40009, 0xB49800, 0xB49C09, 0xB4A000, 0xB4B409, 0xB4B800, 0xB4C001, 0xB5A000, 0xB5BC11,
    0xB5C000, 0xB5FCB3, 0xB60001, 0xB65C00, 0xB68001, 0xB69C00, 0xB6A001, 0xB6BC00, 0xB6C001, 0xB6DC00, 0xB6E001, 0xB6FC00, 0xB70001,
    0xB71C00, 0xB72001, 0xB73C00, 0xB74001, 0xB75C00, 0xB76001, 0xB77C00, 0xB780B3, 0xB80000, 0xB8BC11, 0xB8C000, 0xC00004, 0xC00400,
    0xC01411, 0xC01801, 0xC01C02, 0xC02000, 0xC08402, 0xC0A8B3, 0xC0B8A3, 0xC0C2C0, 0xC0C411, 0xC0D800, 0xC0E002, 0xC0EC11, 0xC0F001,
    0xC0F6C0, 0xC0F800, 0xC10401, 0xC25C00, 0xC264B3, 0xC26C10, 0xC27411, 0xC27C01, 0xC28000, 0xC28401, 0xC3EC00, 0xC3F011, 0xC3FC01,
    0xC40000, 0xC41401, 0xC4C000, 0xC4C401, 0xC63C00, 0xC64802, 0xC65800, 0xC68001, 0xC70000, 0xC7C001, 0xC80000, 0xC88002, 0xC8A800,
    0xC92002, 0xC94000, 0xC94402, 0xC98000, 0xCA0002, 0xCA2800, 0xCA5EC0, 0xCA6000, 0xCA66C0, 0xCA6800, 0xCAC402, 0xCB0000, 0xD00001,
    0x1370000, 0x1380001, 0x2805411, 0x2805801, 0x2923400, 0x2934001, 0x293E011, 0x293F800, 0x2940001, 0x2983011, 0x2983400, 0x2984001,
    0x2988002, 0x298A801, 0x298B000, 0x2990009, 0x299B801, 0x299BCB3, 0x299C093, 0x299CC00, 0x299D0B3, 0x299F800, 0x299FC11, 0x29A0009,
    0x29A7019, 0x29A78B3, 0x29A8001, 0x29B9802, 0x29BC0B3, 0x29BC800, 0x29C0010, 0x29C5C11, 0x29C8010, 0x29C8809, 0x29DC019, 0x29DC409,
    0x29E2011, 0x29E2410, 0x29E2C09, 0x29E3C01, 0x29E4009, 0x29F2C00, 0x29F4009, 0x29F4800, 0x29F4C09, 0x29F5000, 0x29F5409, 0x29F6800,
    0x29FC819, 0x29FD409, 0x29FDC01, 0x29FE019, 0x29FE809, 0x29FEC01, 0x2A00893, 0x2A00C01, 0x2A018B3, 0x2A01C01, 0x2A02C93, 0x2A03001,
    0x2A08D43, 0x2A09493, 0x2A09D43, 0x2A0A000, 0x2A0B0B3, 0x2A0B400, 0x2A0C002, 0x2A0D800, 0x2A10001, 0x2A1D000, 0x2A20143, 0x2A20801,
    0x2A2D143, 0x2A310B3, 0x2A31493, 0x2A31800, 0x2A34002, 0x2A36800, 0x2A380B3, 0x2A3C801, 0x2A3E000, 0x2A3EC01, 0x2A3F000, 0x2A3F401,
    0x2A3FC93, 0x2A40002, 0x2A42801, 0x2A49893, 0x2A4ACB3, 0x2A4B800, 0x2A4C001, 0x2A51C93, 0x2A54943, 0x2A54D63, 0x2A55000, 0x2A58181,
    0x2A5F400, 0x2A60093, 0x2A60D43, 0x2A61001, 0x2A6CCB3, 0x2A6D143, 0x2A6D893, 0x2A6E943, 0x2A6F093, 0x2A6F943, 0x2A70163, 0x2A70400,
    0x2A73C11, 0x2A74002, 0x2A76800, 0x2A78001, 0x2A79493, 0x2A79811, 0x2A79C01, 0x2A7C002, 0x2A7E801, 0x2A7FC00, 0x2A80001, 0x2A8A493,
    0x2A8BD43, 0x2A8C493, 0x2A8CD43, 0x2A8D493, 0x2A8DC00, 0x2A90001, 0x2A90C93, 0x2A91001, 0x2A93093, 0x2A93543, 0x2A93800, 0x2A94002,
    0x2A96800, 0x2A98001, 0x2A9C011, 0x2A9C401, 0x2A9DC00, 0x2A9E801, 0x2A9EC03, 0x2A9F093, 0x2A9F403, 0x2A9F801, 0x2AAC0B3, 0x2AAC401,
    0x2AAC8B3, 0x2AAD401, 0x2AADCB3, 0x2AAE401, 0x2AAF8B3, 0x2AB0001, 0x2AB04B3, 0x2AB0801, 0x2AB0C00, 0x2AB6C01, 0x2AB7411, 0x2AB7800,
    0x2AB8001, 0x2ABAD43, 0x2ABB093, 0x2ABB943, 0x2ABC000, 0x2ABC801, 0x2ABCC11, 0x2ABD543, 0x2ABD8B3, 0x2ABDC00, 0x2AC0401, 0x2AC1C00,
    0x2AC2401, 0x2AC3C00, 0x2AC4401, 0x2AC5C00, 0x2AC8001, 0x2AC9C00, 0x2ACA001, 0x2ACBC00, 0x2ACC009, 0x2AD6C10, 0x2AD7019, 0x2AD8009,
    0x2ADA419, 0x2ADA810, 0x2ADB000, 0x2ADC009, 0x2AF0001, 0x2AF8D43, 0x2AF9493, 0x2AF9943, 0x2AFA093, 0x2AFA543, 0x2AFAC00, 0x2AFB143,
    0x2AFB4B3, 0x2AFB800, 0x2AFC002, 0x2AFE800, 0x2B00241, 0x35E9000, 0x35EC1C1, 0x35F1C00, 0x35F2E01, 0x35FF000, 0x3E40021, 0x3E83801,
    0x3E84021, 0x3E84401, 0x3E84821, 0x3E84C01, 0x3E85421, 0x3E87C01, 0x3E88021, 0x3E88401, 0x3E88821, 0x3E88C01, 0x3E89421, 0x3E89C01,
    0x3E8A821, 0x3E9B800, 0x3E9C021, 0x3EB6800, 0x3EC0009, 0x3EC1C00, 0x3EC4C09, 0x3EC6000, 0x3EC7421, 0x3EC78B3, 0x3EC7C21, 0x3EC8001,
    0x3ECA400, 0x3ECA821, 0x3ECDC00, 0x3ECE021, 0x3ECF400, 0x3ECF821, 0x3ECFC00, 0x3ED0021, 0x3ED0800, 0x3ED0C21, 0x3ED1400, 0x3ED1821,
    0x3ED3C01, 0x3EEC810, 0x3EF0C00, 0x3EF4C01, 0x3F4F800, 0x3F54001, 0x3F64000, 0x3F64801, 0x3F72000, 0x3F7C001, 0x3F7F000, 0x3F80093,
    0x3F84000, 0x3F84C10, 0x3F85000, 0x3F880B3, 0x3F8C000, 0x3F94810, 0x3F94C00, 0x3F95410, 0x3F95800, 0x3F9C001, 0x3F9D400, 0x3F9D801,
    0x3FBF400, 0x3FBFC50, 0x3FC0000, 0x3FC1C10, 0x3FC2000, 0x3FC3810, 0x3FC3C00, 0x3FC4002, 0x3FC6810, 0x3FC6C00, 0x3FC8409, 0x3FCEC00,
    0x3FCF810, 0x3FCFC00, 0x3FD0010, 0x3FD0409, 0x3FD6C00, 0x3FD9801, 0x3FDC011, 0x3FDC401, 0x3FE7891, 0x3FE8001, 0x3FEFC00, 0x3FF0801,
    0x3FF2000, 0x3FF2801, 0x3FF4000, 0x3FF4801, 0x3FF6000, 0x3FF6801, 0x3FF7400, 0x3FF8C10, 0x3FF9000, 0x3FFC040, 0x3FFE450, 0x3FFF000,
    0x4000001, 0x4003000, 0x4003401, 0x4009C00, 0x400A001, 0x400EC00, 0x400F001, 0x400F800, 0x400FC01, 0x4013800, 0x4014001, 0x4017800,
    0x4020001, 0x403EC00, 0x4041C02, 0x404D000, 0x4050002, 0x405E400, 0x4062802, 0x4063000, 0x407F4B3, 0x407F800, 0x40A0001, 0x40A7400,
    0x40A8001, 0x40B4400, 0x40B80B3, 0x40B8402, 0x40BF000, 0x40C0001, 0x40C8002, 0x40C9000, 0x40CB401, 0x40D0402, 0x40D0801, 0x40D2802,
    0x40D2C00, 0x40D4001, 0x40DD8B3, 0x40DEC00, 0x40E0001, 0x40E7800, 0x40E8001, 0x40F1000, 0x40F2001, 0x40F4000, 0x40F4402, 0x40F5800,
    0x4100009, 0x4114001, 0x4127800, 0x4128002, 0x412A800, 0x412C009, 0x4135000, 0x4136009, 0x413F000, 0x4140001, 0x414A000, 0x414C001,
    0x4159000, 0x415C009, 0x415EC00, 0x415F009, 0x4162C00, 0x4163009, 0x4164C00, 0x4165009, 0x4165800, 0x4165C09, 0x4168800, 0x4168C09,
    0x416C800, 0x416CC09, 0x416E800, 0x416EC09, 0x416F400, 0x4180001, 0x41CDC00, 0x41D0001, 0x41D5800, 0x41D8001, 0x41DA000, 0x41E0019,
    0x41E0411, 0x41E0C19, 0x41E1800, 0x41E1C19, 0x41EC400, 0x41EC819, 0x41EEC00, 0x4200001, 0x4201800, 0x4202001, 0x4202400, 0x4202801,
    0x420D800, 0x420DC01, 0x420E400, 0x420F001, 0x420F400, 0x420FC01, 0x4215800, 0x4216002, 0x4218001, 0x421DC00, 0x421E402, 0x4220001,
    0x4227C00, 0x4229C02, 0x422C000, 0x4238001, 0x423CC00, 0x423D001, 0x423D800, 0x423EC02, 0x4240001, 0x4245802, 0x4247000, 0x4248001,
    0x424E800, 0x4260001, 0x426E000, 0x426F002, 0x426F801, 0x4270002, 0x4274000, 0x4274802, 0x4280001, 0x4280493, 0x4281000, 0x4281493,
    0x4281C00, 0x4283093, 0x42834B3, 0x4283893, 0x4283CB3, 0x4284001, 0x4285000, 0x4285401, 0x4286000, 0x4286401, 0x428D800, 0x428E0B3,
    0x428EC00, 0x428FCB3, 0x4290002, 0x4292400, 0x4298001, 0x429F402, 0x429FC00, 0x42A0001, 0x42A7402, 0x42A8000, 0x42B0001, 0x42B2000,
    0x42B2401, 0x42B94B3, 0x42B9C00, 0x42BAC02, 0x42BC000, 0x42C0001, 0x42CD800, 0x42D0001, 0x42D5800, 0x42D6002, 0x42D8001, 0x42DCC00,
    0x42DE002, 0x42E0001, 0x42E4800, 0x42EA402, 0x42EC000, 0x4300001, 0x4312400, 0x4320009, 0x432CC00, 0x4330009, 0x433CC00, 0x433E802,
    0x4340001, 0x43490B3, 0x434A000, 0x434C002, 0x434E800, 0x4398002, 0x439FC00, 0x43A0001, 0x43AA800, 0x43AACB3, 0x43AB400, 0x43AC001,
    0x43AC800, 0x43BF4B3, 0x43C0001, 0x43C7402, 0x43C9C01, 0x43CA000, 0x43CC001, 0x43D18B3, 0x43D4402, 0x43D5400, 0x43DC001, 0x43E08B3,
    0x43E1800, 0x43EC001, 0x43F1402, 0x43F3000, 0x43F8001, 0x43FDC00, 0x4400143, 0x4400493, 0x4400943, 0x4400C01, 0x440E093, 0x44118B3,
    0x4411C00, 0x4414802, 0x441C0B3, 0x441C401, 0x441CC93, 0x441D401, 0x441D800, 0x441FCB3, 0x4420093, 0x4420943, 0x4420C01, 0x442C143,
    0x442CC93, 0x442DD43, 0x442E4B3, 0x442EC00, 0x442F510, 0x442F800, 0x4430893, 0x4430C00, 0x4433510, 0x4433800, 0x4434001, 0x443A400,
    0x443C002, 0x443E800, 0x44400B3, 0x4440C01, 0x4449CB3, 0x444A093, 0x444B143, 0x444B493, 0x444CCB3, 0x444D400, 0x444D802, 0x4450000,
    0x4451001, 0x4451543, 0x4451C01, 0x4452000, 0x4454001, 0x445CCB3, 0x445D000, 0x445D801, 0x445DC00, 0x4460093, 0x4460943, 0x4460C01,
    0x446CD43, 0x446D893, 0x446FD43, 0x4470163, 0x4470401, 0x4470901, 0x4471001, 0x4471400, 0x4472493, 0x44728B3, 0x4472C93, 0x4473400,
    0x4473943, 0x4473C93, 0x4474002, 0x4476801, 0x4476C00, 0x4477001, 0x4477400, 0x4478402, 0x447D400, 0x4480001, 0x4484800, 0x4484C01,
    0x448B143, 0x448BC93, 0x448C943, 0x448D093, 0x448D563, 0x448D8B3, 0x448DC93, 0x448E000, 0x448F893, 0x448FC01, 0x4490493, 0x4490800,
    0x44A0001, 0x44A1C00, 0x44A2001, 0x44A2400, 0x44A2801, 0x44A3800, 0x44A3C01, 0x44A7800, 0x44A7C01, 0x44AA400, 0x44AC001, 0x44B7C93,
    0x44B8143, 0x44B8C93, 0x44BA4B3, 0x44BAC00, 0x44BC002, 0x44BE800, 0x44C0093, 0x44C0943, 0x44C1000, 0x44C1401, 0x44C3400, 0x44C3C01,
    0x44C4400, 0x44C4C01, 0x44CA400, 0x44CA801, 0x44CC400, 0x44CC801, 0x44CD000, 0x44CD401, 0x44CE800, 0x44CECB3, 0x44CF401, 0x44CF8A3,
    0x44CFD43, 0x44D0093, 0x44D0543, 0x44D1400, 0x44D1D43, 0x44D2400, 0x44D2D43, 0x44D3563, 0x44D3800, 0x44D4001, 0x44D4400, 0x44D5CA3,
    0x44D6000, 0x44D7401, 0x44D8943, 0x44D9000, 0x44D98B3, 0x44DB400, 0x44DC0B3, 0x44DD400, 0x4500001, 0x450D543, 0x450E093, 0x4510143,
    0x45108B3, 0x4510C93, 0x4511543, 0x45118B3, 0x4511C01, 0x4512C00, 0x4514002, 0x4516800, 0x45178B3, 0x4517C01, 0x4518800, 0x4520001,
    0x452C0A3, 0x452C543, 0x452CC93, 0x452E543, 0x452E8B3, 0x452ED43, 0x452F4A3, 0x452F943, 0x452FC93, 0x4530543, 0x45308B3, 0x4531001,
    0x4531800, 0x4531C01, 0x4532000, 0x4534002, 0x4536800, 0x4560001, 0x456BCA3, 0x456C143, 0x456C893, 0x456D800, 0x456E143, 0x456F093,
    0x456F943, 0x456FCB3, 0x4570400, 0x4576001, 0x4577093, 0x4577800, 0x4580001, 0x458C143, 0x458CC93, 0x458ED43, 0x458F493, 0x458F943,
    0x458FCB3, 0x4590093, 0x4590400, 0x4591001, 0x4591400, 0x4594002, 0x4596800, 0x45A0001, 0x45AAC93, 0x45AB143, 0x45AB493, 0x45AB943,
    0x45AC093, 0x45AD963, 0x45ADCB3, 0x45AE001, 0x45AE400, 0x45B0002, 0x45B2800, 0x45C0001, 0x45C6C00, 0x45C7493, 0x45C8003, 0x45C8893,
    0x45C9943, 0x45C9C93, 0x45CACB3, 0x45CB000, 0x45CC002, 0x45CF000, 0x45D0001, 0x45D1C00, 0x4600001, 0x460B143, 0x460BC93, 0x460E143,
    0x460E4B3, 0x460EC00, 0x4628009, 0x4638002, 0x463CC00, 0x463FC01, 0x4641C00, 0x4642401, 0x4642800, 0x4643001, 0x4645000, 0x4645401,
    0x4645C00, 0x4646001, 0x464C0A3, 0x464C543, 0x464D800, 0x464DD43, 0x464E400, 0x464EC93, 0x464F563, 0x464F8B3, 0x464FD01, 0x4650143,
    0x4650501, 0x4650943, 0x4650CB3, 0x4651000, 0x4654002, 0x4656800, 0x4668001, 0x466A000, 0x466A801, 0x4674543, 0x4675093, 0x4676000,
    0x4676893, 0x4677143, 0x46780B3, 0x4678401, 0x4678800, 0x4678C01, 0x4679143, 0x4679400, 0x4680001, 0x4680493, 0x4682C01, 0x468CC93,
    0x468D0B3, 0x468D493, 0x468E543, 0x468E901, 0x468EC93, 0x468FC00, 0x4691CB3, 0x4692000, 0x4694001, 0x4694493, 0x4695D43, 0x4696493,
    0x4697001, 0x46A1101, 0x46A2893, 0x46A5D43, 0x46A6093, 0x46A64B3, 0x46A6800, 0x46A7401, 0x46A7800, 0x46AC001, 0x46BE400, 0x4700001,
    0x4702400, 0x4702801, 0x470BD43, 0x470C093, 0x470DC00, 0x470E093, 0x470F943, 0x470FCB3, 0x4710001, 0x4710400, 0x4714002, 0x471B400,
    0x471C801, 0x4724000, 0x4724893, 0x472A000, 0x472A543, 0x472A893, 0x472C543, 0x472C893, 0x472D143, 0x472D493, 0x472DC00, 0x4740001,
    0x4741C00, 0x4742001, 0x4742800, 0x4742C01, 0x474C493, 0x474DC00, 0x474E893, 0x474EC00, 0x474F093, 0x474F800, 0x474FC93, 0x47508B3,
    0x4750C93, 0x47510B3, 0x4751901, 0x4751C93, 0x4752000, 0x4754002, 0x4756800, 0x4758001, 0x4759800, 0x4759C01, 0x475A400, 0x475A801,
    0x4762943, 0x4763C00, 0x4764093, 0x4764800, 0x4764D43, 0x4765493, 0x4765943, 0x4765CB3, 0x4766001, 0x4766400, 0x4768002, 0x476A800,
    0x47B8001, 0x47BCC93, 0x47BD543, 0x47BDC00, 0x47C0093, 0x47C0901, 0x47C0D43, 0x47C1001, 0x47C4400, 0x47C4801, 0x47CD143, 0x47CD893,
    0x47CEC00, 0x47CF943, 0x47D0093, 0x47D0563, 0x47D08B3, 0x47D0C00, 0x47D4002, 0x47D6800, 0x47EC001, 0x47EC400, 0x47F0002, 0x47F5400,
    0x4800001, 0x48E6800, 0x4900002, 0x491BC00, 0x4920001, 0x4951000, 0x4BE4001, 0x4BFC400, 0x4C00001, 0x4D0C050, 0x4D10093, 0x4D10401,
    0x4D11C93, 0x4D15800, 0x5100001, 0x5191C00, 0x5A00001, 0x5A8E400, 0x5A90001, 0x5A97C00, 0x5A98002, 0x5A9A800, 0x5A9C001, 0x5AAFC00,
    0x5AB0002, 0x5AB2800, 0x5AB4001, 0x5ABB800, 0x5ABC0B3, 0x5ABD400, 0x5AC0001, 0x5ACC0B3, 0x5ACDC00, 0x5AD0011, 0x5AD1000, 0x5AD4002,
    0x5AD6800, 0x5AD6C02, 0x5AD8800, 0x5AD8C01, 0x5ADE000, 0x5ADF401, 0x5AE4000, 0x5B90009, 0x5BA0002, 0x5BA5C00, 0x5BC0001, 0x5BD2C00,
    0x5BD3C93, 0x5BD4001, 0x5BD4543, 0x5BE2000, 0x5BE3C93, 0x5BE4C11, 0x5BE8000, 0x5BF8011, 0x5BF8800, 0x5BF8C11, 0x5BF9093, 0x5BF9400,
    0x5BFC163, 0x5BFC800, 0x5C00001, 0x61FE000, 0x6200001, 0x6335800, 0x6340001, 0x6342400, 0x6BFC011, 0x6BFD000, 0x6BFD411, 0x6BFF000,
    0x6BFF411, 0x6BFFC00, 0x6C00001, 0x6C48C00, 0x6C4C801, 0x6C4CC00, 0x6C54001, 0x6C54C00, 0x6C55401, 0x6C55800, 0x6C59001, 0x6C5A000,
    0x6C5C001, 0x6CBF000, 0x6F00001, 0x6F1AC00, 0x6F1C001, 0x6F1F400, 0x6F20001, 0x6F22400, 0x6F24001, 0x6F26800, 0x6F27493, 0x6F278B3,
    0x6F27C00, 0x6F28050, 0x6F29000, 0x73C0093, 0x73CB800, 0x73CC093, 0x73D1C00, 0x7457820, 0x74594A3, 0x7459963, 0x7459CB3, 0x745A800,
    0x745B563, 0x745B8A3, 0x745CC50, 0x745ECB3, 0x7460C00, 0x74614B3, 0x7463000, 0x746A8B3, 0x746B800, 0x746EC20, 0x7470400, 0x74908B3,
    0x7491400, 0x74B0002, 0x74B5000, 0x74B8002, 0x74BD000, 0x74D8002, 0x74DE400, 0x7500009, 0x7515400, 0x7515809, 0x7527400, 0x7527809,
    0x7528000, 0x7528809, 0x7528C00, 0x7529409, 0x7529C00, 0x752A409, 0x752B400, 0x752B809, 0x752E800, 0x752EC09, 0x752F000, 0x752F409,
    0x7531000, 0x7531409, 0x7541800, 0x7541C09, 0x7542C00, 0x7543409, 0x7545400, 0x7545809, 0x7547400, 0x7547809, 0x754E800, 0x754EC09,
    0x754FC00, 0x7550009, 0x7551400, 0x7551809, 0x7551C00, 0x7552809, 0x7554400, 0x7554809, 0x75A9800, 0x75AA009, 0x75B0400, 0x75B0809,
    0x75B6C00, 0x75B7009, 0x75BEC00, 0x75BF009, 0x75C5400, 0x75C5809, 0x75CD400, 0x75CD809, 0x75D3C00, 0x75D4009, 0x75DBC00, 0x75DC009,
    0x75E2400, 0x75E2809, 0x75EA400, 0x75EA809, 0x75F0C00, 0x75F1009, 0x75F3000, 0x75F3802, 0x7600000, 0x7680093, 0x768DC00, 0x768EC93,
    0x769B400, 0x769D493, 0x769D800, 0x76A1093, 0x76A1400, 0x76A6C93, 0x76A8000, 0x76A8493, 0x76AC000, 0x77C0009, 0x77C2801, 0x77C2C09,
    0x77C7C00, 0x77C9409, 0x77CAC00, 0x78000B3, 0x7801C00, 0x78020B3, 0x7806400, 0x7806CB3, 0x7808800, 0x7808CB3, 0x7809400, 0x78098B3,
    0x780AC00, 0x780C019, 0x781B800, 0x7823CB3, 0x7824000, 0x7840001, 0x784B400, 0x784C0B3, 0x784DC11, 0x784F800, 0x7850002, 0x7852800,
    0x7853801, 0x7853C00, 0x78A4001, 0x78AB8B3, 0x78ABC00, 0x78B0001, 0x78BB0B3, 0x78BC002, 0x78BE800, 0x7934001, 0x793AC11, 0x793B0B3,
    0x793C002, 0x793E800, 0x79F8001, 0x79F9C00, 0x79FA001, 0x79FB000, 0x79FB401, 0x79FBC00, 0x79FC001, 0x79FFC00, 0x7A00001, 0x7A31400,
    0x7A31C02, 0x7A340B3, 0x7A35C00, 0x7A40009, 0x7A510B3, 0x7A52C11, 0x7A53000, 0x7A54002, 0x7A56800, 0x7B1C402, 0x7B2B000, 0x7B2B402,
    0x7B2C000, 0x7B2C402, 0x7B2D400, 0x7B40402, 0x7B4B800, 0x7B4BC02, 0x7B4F800, 0x7B80001, 0x7B81000, 0x7B81401, 0x7B88000, 0x7B88401,
    0x7B88C00, 0x7B89001, 0x7B89400, 0x7B89C01, 0x7B8A000, 0x7B8A401, 0x7B8CC00, 0x7B8D001, 0x7B8E000, 0x7B8E401, 0x7B8E800, 0x7B8EC01,
    0x7B8F000, 0x7B90801, 0x7B90C00, 0x7B91C01, 0x7B92000, 0x7B92401, 0x7B92800, 0x7B92C01, 0x7B93000, 0x7B93401, 0x7B94000, 0x7B94401,
    0x7B94C00, 0x7B95001, 0x7B95400, 0x7B95C01, 0x7B96000, 0x7B96401, 0x7B96800, 0x7B96C01, 0x7B97000, 0x7B97401, 0x7B97800, 0x7B97C01,
    0x7B98000, 0x7B98401, 0x7B98C00, 0x7B99001, 0x7B99400, 0x7B99C01, 0x7B9AC00, 0x7B9B001, 0x7B9CC00, 0x7B9D001, 0x7B9E000, 0x7B9E401,
    0x7B9F400, 0x7B9F801, 0x7B9FC00, 0x7BA0001, 0x7BA2800, 0x7BA2C01, 0x7BA7000, 0x7BA8401, 0x7BA9000, 0x7BA9401, 0x7BAA800, 0x7BAAC01,
    0x7BAF000, 0x7C002C0, 0x7C40002, 0x7C436C0, 0x7C44000, 0x7C4BEC0, 0x7C4C008, 0x7C52800, 0x7C54008, 0x7C5A800, 0x7C5B2C0, 0x7C5C2C8,
    0x7C5C808, 0x7C5FAC8, 0x7C60008, 0x7C62800, 0x7C63AC0, 0x7C63C00, 0x7C646C0, 0x7C66C00, 0x7C6B6C0, 0x7C79A80, 0x7C80000, 0x7C806C0,
    0x7C84000, 0x7C86AC0, 0x7C86C00, 0x7C8BEC0, 0x7C8C000, 0x7C8CAC0, 0x7C8EC00, 0x7C8F2C0, 0x7C90000, 0x7C926C0, 0x7CFEC90, 0x7D002C0,
    0x7D4F800, 0x7D51AC0, 0x7D94000, 0x7DA02C0, 0x7DC0000, 0x7DDD2C0, 0x7DE0000, 0x7DF56C0, 0x7E00000, 0x7E032C0, 0x7E04000, 0x7E122C0,
    0x7E14000, 0x7E16AC0, 0x7E18000, 0x7E222C0, 0x7E24000, 0x7E2BAC0, 0x7E40000, 0x7E432C0, 0x7E4EC00, 0x7E4F2C0, 0x7E51800, 0x7E51EC0,
    0x7EC0000, 0x7EFC002, 0x7EFE800, 0x7F002C0, 0x7FFF800, 0x8000001, 0xA9B8000, 0xA9C0001, 0xADCE800, 0xADD0001, 0xAE07800, 0xAE08001,
    0xB3A8800, 0xB3AC001, 0xBAF8400, 0xBE00021, 0xBE87800, 0xC000001, 0xC4D2C00, 0xC4D4001, 0xC8EC000, 0x38000040, 0x38000450, 0x38000840,
    0x38008090, 0x38020040, 0x38040093, 0x3807C040, 0x38400000,
};
/* The same for Canonical_Combining_Class: the first << 8 | the class. */
static const uint32_t mgv__unicode_combining[] = {
    0x0, 0x300E6, 0x315E8, 0x316DC, 0x31AE8, 0x31BD8, 0x31CDC, 0x321CA, 0x323DC, 0x327CA, 0x329DC, 0x33401, 0x339DC, 0x33DE6, 0x345F0,
    0x346E6, 0x347DC, 0x34AE6, 0x34DDC, 0x34F00, 0x350E6, 0x353DC, 0x357E6, 0x358E8, 0x359DC, 0x35BE6, 0x35CE9, 0x35DEA, 0x35FE9, 0x360EA,
    0x362E9, 0x363E6, 0x37000, 0x483E6, 0x48800, 0x591DC, 0x592E6, 0x596DC, 0x597E6, 0x59ADE, 0x59BDC, 0x59CE6, 0x5A2DC, 0x5A8E6, 0x5AADC,
    0x5ABE6, 0x5ADDE, 0x5AEE4, 0x5AFE6, 0x5B00A, 0x5B10B, 0x5B20C, 0x5B30D, 0x5B40E, 0x5B50F, 0x5B610, 0x5B711, 0x5B812, 0x5B913, 0x5BB14,
    0x5BC15, 0x5BD16, 0x5BE00, 0x5BF17, 0x5C000, 0x5C118, 0x5C219, 0x5C300, 0x5C4E6, 0x5C5DC, 0x5C600, 0x5C712, 0x5C800, 0x610E6, 0x6181E,
    0x6191F, 0x61A20, 0x61B00, 0x64B1B, 0x64C1C, 0x64D1D, 0x64E1E, 0x64F1F, 0x65020, 0x65121, 0x65222, 0x653E6, 0x655DC, 0x657E6, 0x65CDC,
    0x65DE6, 0x65FDC, 0x66000, 0x67023, 0x67100, 0x6D6E6, 0x6DD00, 0x6DFE6, 0x6E3DC, 0x6E4E6, 0x6E500, 0x6E7E6, 0x6E900, 0x6EADC, 0x6EBE6,
    0x6EDDC, 0x6EE00, 0x71124, 0x71200, 0x730E6, 0x731DC, 0x732E6, 0x734DC, 0x735E6, 0x737DC, 0x73AE6, 0x73BDC, 0x73DE6, 0x73EDC, 0x73FE6,
    0x742DC, 0x743E6, 0x744DC, 0x745E6, 0x746DC, 0x747E6, 0x748DC, 0x749E6, 0x74B00, 0x7EBE6, 0x7F2DC, 0x7F3E6, 0x7F400, 0x7FDDC, 0x7FE00,
    0x816E6, 0x81A00, 0x81BE6, 0x82400, 0x825E6, 0x82800, 0x829E6, 0x82E00, 0x859DC, 0x85C00, 0x898E6, 0x899DC, 0x89CE6, 0x8A000, 0x8CAE6,
    0x8CFDC, 0x8D4E6, 0x8E200, 0x8E3DC, 0x8E4E6, 0x8E6DC, 0x8E7E6, 0x8E9DC, 0x8EAE6, 0x8EDDC, 0x8F01B, 0x8F11C, 0x8F21D, 0x8F3E6, 0x8F6DC,
    0x8F7E6, 0x8F9DC, 0x8FBE6, 0x90000, 0x93C07, 0x93D00, 0x94D09, 0x94E00, 0x951E6, 0x952DC, 0x953E6, 0x95500, 0x9BC07, 0x9BD00, 0x9CD09,
    0x9CE00, 0x9FEE6, 0x9FF00, 0xA3C07, 0xA3D00, 0xA4D09, 0xA4E00, 0xABC07, 0xABD00, 0xACD09, 0xACE00, 0xB3C07, 0xB3D00, 0xB4D09, 0xB4E00,
    0xBCD09, 0xBCE00, 0xC3C07, 0xC3D00, 0xC4D09, 0xC4E00, 0xC5554, 0xC565B, 0xC5700, 0xCBC07, 0xCBD00, 0xCCD09, 0xCCE00, 0xD3B09, 0xD3D00,
    0xD4D09, 0xD4E00, 0xDCA09, 0xDCB00, 0xE3867, 0xE3A09, 0xE3B00, 0xE486B, 0xE4C00, 0xEB876, 0xEBA09, 0xEBB00, 0xEC87A, 0xECC00, 0xF18DC,
    0xF1A00, 0xF35DC, 0xF3600, 0xF37DC, 0xF3800, 0xF39D8, 0xF3A00, 0xF7181, 0xF7282, 0xF7300, 0xF7484, 0xF7500, 0xF7A82, 0xF7E00, 0xF8082,
    0xF8100, 0xF82E6, 0xF8409, 0xF8500, 0xF86E6, 0xF8800, 0xFC6DC, 0xFC700, 0x103707, 0x103800, 0x103909, 0x103B00, 0x108DDC, 0x108E00,
    0x135DE6, 0x136000, 0x171409, 0x171600, 0x173409, 0x173500, 0x17D209, 0x17D300, 0x17DDE6, 0x17DE00, 0x18A9E4, 0x18AA00, 0x1939DE,
    0x193AE6, 0x193BDC, 0x193C00, 0x1A17E6, 0x1A18DC, 0x1A1900, 0x1A6009, 0x1A6100, 0x1A75E6, 0x1A7D00, 0x1A7FDC, 0x1A8000, 0x1AB0E6,
    0x1AB5DC, 0x1ABBE6, 0x1ABDDC, 0x1ABE00, 0x1ABFDC, 0x1AC1E6, 0x1AC3DC, 0x1AC5E6, 0x1ACADC, 0x1ACBE6, 0x1ACF00, 0x1B3407, 0x1B3500,
    0x1B4409, 0x1B4500, 0x1B6BE6, 0x1B6CDC, 0x1B6DE6, 0x1B7400, 0x1BAA09, 0x1BAC00, 0x1BE607, 0x1BE700, 0x1BF209, 0x1BF400, 0x1C3707,
    0x1C3800, 0x1CD0E6, 0x1CD300, 0x1CD401, 0x1CD5DC, 0x1CDAE6, 0x1CDCDC, 0x1CE0E6, 0x1CE100, 0x1CE201, 0x1CE900, 0x1CEDDC, 0x1CEE00,
    0x1CF4E6, 0x1CF500, 0x1CF8E6, 0x1CFA00, 0x1DC0E6, 0x1DC2DC, 0x1DC3E6, 0x1DCADC, 0x1DCBE6, 0x1DCDEA, 0x1DCED6, 0x1DCFDC, 0x1DD0CA,
    0x1DD1E6, 0x1DF6E8, 0x1DF7E4, 0x1DF9DC, 0x1DFADA, 0x1DFBE6, 0x1DFCE9, 0x1DFDDC, 0x1DFEE6, 0x1DFFDC, 0x1E0000, 0x20D0E6, 0x20D201,
    0x20D4E6, 0x20D801, 0x20DBE6, 0x20DD00, 0x20E1E6, 0x20E200, 0x20E501, 0x20E7E6, 0x20E8DC, 0x20E9E6, 0x20EA01, 0x20ECDC, 0x20F0E6,
    0x20F100, 0x2CEFE6, 0x2CF200, 0x2D7F09, 0x2D8000, 0x2DE0E6, 0x2E0000, 0x302ADA, 0x302BE4, 0x302CE8, 0x302DDE, 0x302EE0, 0x303000,
    0x309908, 0x309B00, 0xA66FE6, 0xA67000, 0xA674E6, 0xA67E00, 0xA69EE6, 0xA6A000, 0xA6F0E6, 0xA6F200, 0xA80609, 0xA80700, 0xA82C09,
    0xA82D00, 0xA8C409, 0xA8C500, 0xA8E0E6, 0xA8F200, 0xA92BDC, 0xA92E00, 0xA95309, 0xA95400, 0xA9B307, 0xA9B400, 0xA9C009, 0xA9C100,
    0xAAB0E6, 0xAAB100, 0xAAB2E6, 0xAAB4DC, 0xAAB500, 0xAAB7E6, 0xAAB900, 0xAABEE6, 0xAAC000, 0xAAC1E6, 0xAAC200, 0xAAF609, 0xAAF700,
    0xABED09, 0xABEE00, 0xFB1E1A, 0xFB1F00, 0xFE20E6, 0xFE27DC, 0xFE2EE6, 0xFE3000, 0x101FDDC, 0x101FE00, 0x102E0DC, 0x102E100, 0x10376E6,
    0x1037B00, 0x10A0DDC, 0x10A0E00, 0x10A0FE6, 0x10A1000, 0x10A38E6, 0x10A3901, 0x10A3ADC, 0x10A3B00, 0x10A3F09, 0x10A4000, 0x10AE5E6,
    0x10AE6DC, 0x10AE700, 0x10D24E6, 0x10D2800, 0x10EABE6, 0x10EAD00, 0x10EFDDC, 0x10F0000, 0x10F46DC, 0x10F48E6, 0x10F4BDC, 0x10F4CE6,
    0x10F4DDC, 0x10F5100, 0x10F82E6, 0x10F83DC, 0x10F84E6, 0x10F85DC, 0x10F8600, 0x1104609, 0x1104700, 0x1107009, 0x1107100, 0x1107F09,
    0x1108000, 0x110B909, 0x110BA07, 0x110BB00, 0x11100E6, 0x1110300, 0x1113309, 0x1113500, 0x1117307, 0x1117400, 0x111C009, 0x111C100,
    0x111CA07, 0x111CB00, 0x1123509, 0x1123607, 0x1123700, 0x112E907, 0x112EA09, 0x112EB00, 0x1133B07, 0x1133D00, 0x1134D09, 0x1134E00,
    0x11366E6, 0x1136D00, 0x11370E6, 0x1137500, 0x1144209, 0x1144300, 0x1144607, 0x1144700, 0x1145EE6, 0x1145F00, 0x114C209, 0x114C307,
    0x114C400, 0x115BF09, 0x115C007, 0x115C100, 0x1163F09, 0x1164000, 0x116B609, 0x116B707, 0x116B800, 0x1172B09, 0x1172C00, 0x1183909,
    0x1183A07, 0x1183B00, 0x1193D09, 0x1193F00, 0x1194307, 0x1194400, 0x119E009, 0x119E100, 0x11A3409, 0x11A3500, 0x11A4709, 0x11A4800,
    0x11A9909, 0x11A9A00, 0x11C3F09, 0x11C4000, 0x11D4207, 0x11D4300, 0x11D4409, 0x11D4600, 0x11D9709, 0x11D9800, 0x11F4109, 0x11F4300,
    0x16AF001, 0x16AF500, 0x16B30E6, 0x16B3700, 0x16FF006, 0x16FF200, 0x1BC9E01, 0x1BC9F00, 0x1D165D8, 0x1D16701, 0x1D16A00, 0x1D16DE2,
    0x1D16ED8, 0x1D17300, 0x1D17BDC, 0x1D18300, 0x1D185E6, 0x1D18ADC, 0x1D18C00, 0x1D1AAE6, 0x1D1AE00, 0x1D242E6, 0x1D24500, 0x1E000E6,
    0x1E00700, 0x1E008E6, 0x1E01900, 0x1E01BE6, 0x1E02200, 0x1E023E6, 0x1E02500, 0x1E026E6, 0x1E02B00, 0x1E08FE6, 0x1E09000, 0x1E130E6,
    0x1E13700, 0x1E2AEE6, 0x1E2AF00, 0x1E2ECE6, 0x1E2F000, 0x1E4ECE8, 0x1E4EEDC, 0x1E4EFE6, 0x1E4F000, 0x1E8D0DC, 0x1E8D700, 0x1E944E6,
    0x1E94A07, 0x1E94B00,
};
/* Lower case: first and last code point, step, difference. U+0130 has two code points and is not among them. */
static const mgv__unicode_case mgv__unicode_lower[] = {
    {0x41, 0x5A, 1, 32}, {0xC0, 0xD6, 1, 32}, {0xD8, 0xDE, 1, 32}, {0x100, 0x12E, 2, 1}, {0x132, 0x136, 2, 1}, {0x139, 0x147, 2, 1},
    {0x14A, 0x176, 2, 1}, {0x178, 0x178, 1, -121}, {0x179, 0x17D, 2, 1}, {0x181, 0x181, 1, 210}, {0x182, 0x184, 2, 1},
    {0x186, 0x186, 1, 206}, {0x187, 0x187, 1, 1}, {0x189, 0x18A, 1, 205}, {0x18B, 0x18B, 1, 1}, {0x18E, 0x18E, 1, 79},
    {0x18F, 0x18F, 1, 202}, {0x190, 0x190, 1, 203}, {0x191, 0x191, 1, 1}, {0x193, 0x193, 1, 205}, {0x194, 0x194, 1, 207},
    {0x196, 0x196, 1, 211}, {0x197, 0x197, 1, 209}, {0x198, 0x198, 1, 1}, {0x19C, 0x19C, 1, 211}, {0x19D, 0x19D, 1, 213},
    {0x19F, 0x19F, 1, 214}, {0x1A0, 0x1A4, 2, 1}, {0x1A6, 0x1A6, 1, 218}, {0x1A7, 0x1A7, 1, 1}, {0x1A9, 0x1A9, 1, 218},
    {0x1AC, 0x1AC, 1, 1}, {0x1AE, 0x1AE, 1, 218}, {0x1AF, 0x1AF, 1, 1}, {0x1B1, 0x1B2, 1, 217}, {0x1B3, 0x1B5, 2, 1},
    {0x1B7, 0x1B7, 1, 219}, {0x1B8, 0x1B8, 1, 1}, {0x1BC, 0x1BC, 1, 1}, {0x1C4, 0x1C4, 1, 2}, {0x1C5, 0x1C5, 1, 1}, {0x1C7, 0x1C7, 1, 2},
    {0x1C8, 0x1C8, 1, 1}, {0x1CA, 0x1CA, 1, 2}, {0x1CB, 0x1DB, 2, 1}, {0x1DE, 0x1EE, 2, 1}, {0x1F1, 0x1F1, 1, 2}, {0x1F2, 0x1F4, 2, 1},
    {0x1F6, 0x1F6, 1, -97}, {0x1F7, 0x1F7, 1, -56}, {0x1F8, 0x21E, 2, 1}, {0x220, 0x220, 1, -130}, {0x222, 0x232, 2, 1},
    {0x23A, 0x23A, 1, 10795}, {0x23B, 0x23B, 1, 1}, {0x23D, 0x23D, 1, -163}, {0x23E, 0x23E, 1, 10792}, {0x241, 0x241, 1, 1},
    {0x243, 0x243, 1, -195}, {0x244, 0x244, 1, 69}, {0x245, 0x245, 1, 71}, {0x246, 0x24E, 2, 1}, {0x370, 0x372, 2, 1}, {0x376, 0x376, 1, 1},
    {0x37F, 0x37F, 1, 116}, {0x386, 0x386, 1, 38}, {0x388, 0x38A, 1, 37}, {0x38C, 0x38C, 1, 64}, {0x38E, 0x38F, 1, 63},
    {0x391, 0x3A1, 1, 32}, {0x3A3, 0x3AB, 1, 32}, {0x3CF, 0x3CF, 1, 8}, {0x3D8, 0x3EE, 2, 1}, {0x3F4, 0x3F4, 1, -60}, {0x3F7, 0x3F7, 1, 1},
    {0x3F9, 0x3F9, 1, -7}, {0x3FA, 0x3FA, 1, 1}, {0x3FD, 0x3FF, 1, -130}, {0x400, 0x40F, 1, 80}, {0x410, 0x42F, 1, 32},
    {0x460, 0x480, 2, 1}, {0x48A, 0x4BE, 2, 1}, {0x4C0, 0x4C0, 1, 15}, {0x4C1, 0x4CD, 2, 1}, {0x4D0, 0x52E, 2, 1}, {0x531, 0x556, 1, 48},
    {0x10A0, 0x10C5, 1, 7264}, {0x10C7, 0x10C7, 1, 7264}, {0x10CD, 0x10CD, 1, 7264}, {0x13A0, 0x13EF, 1, 38864}, {0x13F0, 0x13F5, 1, 8},
    {0x1C90, 0x1CBA, 1, -3008}, {0x1CBD, 0x1CBF, 1, -3008}, {0x1E00, 0x1E94, 2, 1}, {0x1E9E, 0x1E9E, 1, -7615}, {0x1EA0, 0x1EFE, 2, 1},
    {0x1F08, 0x1F0F, 1, -8}, {0x1F18, 0x1F1D, 1, -8}, {0x1F28, 0x1F2F, 1, -8}, {0x1F38, 0x1F3F, 1, -8}, {0x1F48, 0x1F4D, 1, -8},
    {0x1F59, 0x1F5F, 2, -8}, {0x1F68, 0x1F6F, 1, -8}, {0x1F88, 0x1F8F, 1, -8}, {0x1F98, 0x1F9F, 1, -8}, {0x1FA8, 0x1FAF, 1, -8},
    {0x1FB8, 0x1FB9, 1, -8}, {0x1FBA, 0x1FBB, 1, -74}, {0x1FBC, 0x1FBC, 1, -9}, {0x1FC8, 0x1FCB, 1, -86}, {0x1FCC, 0x1FCC, 1, -9},
    {0x1FD8, 0x1FD9, 1, -8}, {0x1FDA, 0x1FDB, 1, -100}, {0x1FE8, 0x1FE9, 1, -8}, {0x1FEA, 0x1FEB, 1, -112}, {0x1FEC, 0x1FEC, 1, -7},
    {0x1FF8, 0x1FF9, 1, -128}, {0x1FFA, 0x1FFB, 1, -126}, {0x1FFC, 0x1FFC, 1, -9}, {0x2126, 0x2126, 1, -7517}, {0x212A, 0x212A, 1, -8383},
    {0x212B, 0x212B, 1, -8262}, {0x2132, 0x2132, 1, 28}, {0x2160, 0x216F, 1, 16}, {0x2183, 0x2183, 1, 1}, {0x24B6, 0x24CF, 1, 26},
    {0x2C00, 0x2C2F, 1, 48}, {0x2C60, 0x2C60, 1, 1}, {0x2C62, 0x2C62, 1, -10743}, {0x2C63, 0x2C63, 1, -3814}, {0x2C64, 0x2C64, 1, -10727},
    {0x2C67, 0x2C6B, 2, 1}, {0x2C6D, 0x2C6D, 1, -10780}, {0x2C6E, 0x2C6E, 1, -10749}, {0x2C6F, 0x2C6F, 1, -10783},
    {0x2C70, 0x2C70, 1, -10782}, {0x2C72, 0x2C72, 1, 1}, {0x2C75, 0x2C75, 1, 1}, {0x2C7E, 0x2C7F, 1, -10815}, {0x2C80, 0x2CE2, 2, 1},
    {0x2CEB, 0x2CED, 2, 1}, {0x2CF2, 0x2CF2, 1, 1}, {0xA640, 0xA66C, 2, 1}, {0xA680, 0xA69A, 2, 1}, {0xA722, 0xA72E, 2, 1},
    {0xA732, 0xA76E, 2, 1}, {0xA779, 0xA77B, 2, 1}, {0xA77D, 0xA77D, 1, -35332}, {0xA77E, 0xA786, 2, 1}, {0xA78B, 0xA78B, 1, 1},
    {0xA78D, 0xA78D, 1, -42280}, {0xA790, 0xA792, 2, 1}, {0xA796, 0xA7A8, 2, 1}, {0xA7AA, 0xA7AA, 1, -42308}, {0xA7AB, 0xA7AB, 1, -42319},
    {0xA7AC, 0xA7AC, 1, -42315}, {0xA7AD, 0xA7AD, 1, -42305}, {0xA7AE, 0xA7AE, 1, -42308}, {0xA7B0, 0xA7B0, 1, -42258},
    {0xA7B1, 0xA7B1, 1, -42282}, {0xA7B2, 0xA7B2, 1, -42261}, {0xA7B3, 0xA7B3, 1, 928}, {0xA7B4, 0xA7C2, 2, 1}, {0xA7C4, 0xA7C4, 1, -48},
    {0xA7C5, 0xA7C5, 1, -42307}, {0xA7C6, 0xA7C6, 1, -35384}, {0xA7C7, 0xA7C9, 2, 1}, {0xA7D0, 0xA7D0, 1, 1}, {0xA7D6, 0xA7D8, 2, 1},
    {0xA7F5, 0xA7F5, 1, 1}, {0xFF21, 0xFF3A, 1, 32}, {0x10400, 0x10427, 1, 40}, {0x104B0, 0x104D3, 1, 40}, {0x10570, 0x1057A, 1, 39},
    {0x1057C, 0x1058A, 1, 39}, {0x1058C, 0x10592, 1, 39}, {0x10594, 0x10595, 1, 39}, {0x10C80, 0x10CB2, 1, 64}, {0x118A0, 0x118BF, 1, 32},
    {0x16E40, 0x16E5F, 1, 32}, {0x1E900, 0x1E921, 1, 34},
};
/* Canonical decompositions, one step: code point, first, second or 0. */
static const mgv__unicode_pair mgv__unicode_decompositions[] = {
    {0xC0, 0x41, 0x300}, {0xC1, 0x41, 0x301}, {0xC2, 0x41, 0x302}, {0xC3, 0x41, 0x303}, {0xC4, 0x41, 0x308}, {0xC5, 0x41, 0x30A},
    {0xC7, 0x43, 0x327}, {0xC8, 0x45, 0x300}, {0xC9, 0x45, 0x301}, {0xCA, 0x45, 0x302}, {0xCB, 0x45, 0x308}, {0xCC, 0x49, 0x300},
    {0xCD, 0x49, 0x301}, {0xCE, 0x49, 0x302}, {0xCF, 0x49, 0x308}, {0xD1, 0x4E, 0x303}, {0xD2, 0x4F, 0x300}, {0xD3, 0x4F, 0x301},
    {0xD4, 0x4F, 0x302}, {0xD5, 0x4F, 0x303}, {0xD6, 0x4F, 0x308}, {0xD9, 0x55, 0x300}, {0xDA, 0x55, 0x301}, {0xDB, 0x55, 0x302},
    {0xDC, 0x55, 0x308}, {0xDD, 0x59, 0x301}, {0xE0, 0x61, 0x300}, {0xE1, 0x61, 0x301}, {0xE2, 0x61, 0x302}, {0xE3, 0x61, 0x303},
    {0xE4, 0x61, 0x308}, {0xE5, 0x61, 0x30A}, {0xE7, 0x63, 0x327}, {0xE8, 0x65, 0x300}, {0xE9, 0x65, 0x301}, {0xEA, 0x65, 0x302},
    {0xEB, 0x65, 0x308}, {0xEC, 0x69, 0x300}, {0xED, 0x69, 0x301}, {0xEE, 0x69, 0x302}, {0xEF, 0x69, 0x308}, {0xF1, 0x6E, 0x303},
    {0xF2, 0x6F, 0x300}, {0xF3, 0x6F, 0x301}, {0xF4, 0x6F, 0x302}, {0xF5, 0x6F, 0x303}, {0xF6, 0x6F, 0x308}, {0xF9, 0x75, 0x300},
    {0xFA, 0x75, 0x301}, {0xFB, 0x75, 0x302}, {0xFC, 0x75, 0x308}, {0xFD, 0x79, 0x301}, {0xFF, 0x79, 0x308}, {0x100, 0x41, 0x304},
    {0x101, 0x61, 0x304}, {0x102, 0x41, 0x306}, {0x103, 0x61, 0x306}, {0x104, 0x41, 0x328}, {0x105, 0x61, 0x328}, {0x106, 0x43, 0x301},
    {0x107, 0x63, 0x301}, {0x108, 0x43, 0x302}, {0x109, 0x63, 0x302}, {0x10A, 0x43, 0x307}, {0x10B, 0x63, 0x307}, {0x10C, 0x43, 0x30C},
    {0x10D, 0x63, 0x30C}, {0x10E, 0x44, 0x30C}, {0x10F, 0x64, 0x30C}, {0x112, 0x45, 0x304}, {0x113, 0x65, 0x304}, {0x114, 0x45, 0x306},
    {0x115, 0x65, 0x306}, {0x116, 0x45, 0x307}, {0x117, 0x65, 0x307}, {0x118, 0x45, 0x328}, {0x119, 0x65, 0x328}, {0x11A, 0x45, 0x30C},
    {0x11B, 0x65, 0x30C}, {0x11C, 0x47, 0x302}, {0x11D, 0x67, 0x302}, {0x11E, 0x47, 0x306}, {0x11F, 0x67, 0x306}, {0x120, 0x47, 0x307},
    {0x121, 0x67, 0x307}, {0x122, 0x47, 0x327}, {0x123, 0x67, 0x327}, {0x124, 0x48, 0x302}, {0x125, 0x68, 0x302}, {0x128, 0x49, 0x303},
    {0x129, 0x69, 0x303}, {0x12A, 0x49, 0x304}, {0x12B, 0x69, 0x304}, {0x12C, 0x49, 0x306}, {0x12D, 0x69, 0x306}, {0x12E, 0x49, 0x328},
    {0x12F, 0x69, 0x328}, {0x130, 0x49, 0x307}, {0x134, 0x4A, 0x302}, {0x135, 0x6A, 0x302}, {0x136, 0x4B, 0x327}, {0x137, 0x6B, 0x327},
    {0x139, 0x4C, 0x301}, {0x13A, 0x6C, 0x301}, {0x13B, 0x4C, 0x327}, {0x13C, 0x6C, 0x327}, {0x13D, 0x4C, 0x30C}, {0x13E, 0x6C, 0x30C},
    {0x143, 0x4E, 0x301}, {0x144, 0x6E, 0x301}, {0x145, 0x4E, 0x327}, {0x146, 0x6E, 0x327}, {0x147, 0x4E, 0x30C}, {0x148, 0x6E, 0x30C},
    {0x14C, 0x4F, 0x304}, {0x14D, 0x6F, 0x304}, {0x14E, 0x4F, 0x306}, {0x14F, 0x6F, 0x306}, {0x150, 0x4F, 0x30B}, {0x151, 0x6F, 0x30B},
    {0x154, 0x52, 0x301}, {0x155, 0x72, 0x301}, {0x156, 0x52, 0x327}, {0x157, 0x72, 0x327}, {0x158, 0x52, 0x30C}, {0x159, 0x72, 0x30C},
    {0x15A, 0x53, 0x301}, {0x15B, 0x73, 0x301}, {0x15C, 0x53, 0x302}, {0x15D, 0x73, 0x302}, {0x15E, 0x53, 0x327}, {0x15F, 0x73, 0x327},
    {0x160, 0x53, 0x30C}, {0x161, 0x73, 0x30C}, {0x162, 0x54, 0x327}, {0x163, 0x74, 0x327}, {0x164, 0x54, 0x30C}, {0x165, 0x74, 0x30C},
    {0x168, 0x55, 0x303}, {0x169, 0x75, 0x303}, {0x16A, 0x55, 0x304}, {0x16B, 0x75, 0x304}, {0x16C, 0x55, 0x306}, {0x16D, 0x75, 0x306},
    {0x16E, 0x55, 0x30A}, {0x16F, 0x75, 0x30A}, {0x170, 0x55, 0x30B}, {0x171, 0x75, 0x30B}, {0x172, 0x55, 0x328}, {0x173, 0x75, 0x328},
    {0x174, 0x57, 0x302}, {0x175, 0x77, 0x302}, {0x176, 0x59, 0x302}, {0x177, 0x79, 0x302}, {0x178, 0x59, 0x308}, {0x179, 0x5A, 0x301},
    {0x17A, 0x7A, 0x301}, {0x17B, 0x5A, 0x307}, {0x17C, 0x7A, 0x307}, {0x17D, 0x5A, 0x30C}, {0x17E, 0x7A, 0x30C}, {0x1A0, 0x4F, 0x31B},
    {0x1A1, 0x6F, 0x31B}, {0x1AF, 0x55, 0x31B}, {0x1B0, 0x75, 0x31B}, {0x1CD, 0x41, 0x30C}, {0x1CE, 0x61, 0x30C}, {0x1CF, 0x49, 0x30C},
    {0x1D0, 0x69, 0x30C}, {0x1D1, 0x4F, 0x30C}, {0x1D2, 0x6F, 0x30C}, {0x1D3, 0x55, 0x30C}, {0x1D4, 0x75, 0x30C}, {0x1D5, 0xDC, 0x304},
    {0x1D6, 0xFC, 0x304}, {0x1D7, 0xDC, 0x301}, {0x1D8, 0xFC, 0x301}, {0x1D9, 0xDC, 0x30C}, {0x1DA, 0xFC, 0x30C}, {0x1DB, 0xDC, 0x300},
    {0x1DC, 0xFC, 0x300}, {0x1DE, 0xC4, 0x304}, {0x1DF, 0xE4, 0x304}, {0x1E0, 0x226, 0x304}, {0x1E1, 0x227, 0x304}, {0x1E2, 0xC6, 0x304},
    {0x1E3, 0xE6, 0x304}, {0x1E6, 0x47, 0x30C}, {0x1E7, 0x67, 0x30C}, {0x1E8, 0x4B, 0x30C}, {0x1E9, 0x6B, 0x30C}, {0x1EA, 0x4F, 0x328},
    {0x1EB, 0x6F, 0x328}, {0x1EC, 0x1EA, 0x304}, {0x1ED, 0x1EB, 0x304}, {0x1EE, 0x1B7, 0x30C}, {0x1EF, 0x292, 0x30C}, {0x1F0, 0x6A, 0x30C},
    {0x1F4, 0x47, 0x301}, {0x1F5, 0x67, 0x301}, {0x1F8, 0x4E, 0x300}, {0x1F9, 0x6E, 0x300}, {0x1FA, 0xC5, 0x301}, {0x1FB, 0xE5, 0x301},
    {0x1FC, 0xC6, 0x301}, {0x1FD, 0xE6, 0x301}, {0x1FE, 0xD8, 0x301}, {0x1FF, 0xF8, 0x301}, {0x200, 0x41, 0x30F}, {0x201, 0x61, 0x30F},
    {0x202, 0x41, 0x311}, {0x203, 0x61, 0x311}, {0x204, 0x45, 0x30F}, {0x205, 0x65, 0x30F}, {0x206, 0x45, 0x311}, {0x207, 0x65, 0x311},
    {0x208, 0x49, 0x30F}, {0x209, 0x69, 0x30F}, {0x20A, 0x49, 0x311}, {0x20B, 0x69, 0x311}, {0x20C, 0x4F, 0x30F}, {0x20D, 0x6F, 0x30F},
    {0x20E, 0x4F, 0x311}, {0x20F, 0x6F, 0x311}, {0x210, 0x52, 0x30F}, {0x211, 0x72, 0x30F}, {0x212, 0x52, 0x311}, {0x213, 0x72, 0x311},
    {0x214, 0x55, 0x30F}, {0x215, 0x75, 0x30F}, {0x216, 0x55, 0x311}, {0x217, 0x75, 0x311}, {0x218, 0x53, 0x326}, {0x219, 0x73, 0x326},
    {0x21A, 0x54, 0x326}, {0x21B, 0x74, 0x326}, {0x21E, 0x48, 0x30C}, {0x21F, 0x68, 0x30C}, {0x226, 0x41, 0x307}, {0x227, 0x61, 0x307},
    {0x228, 0x45, 0x327}, {0x229, 0x65, 0x327}, {0x22A, 0xD6, 0x304}, {0x22B, 0xF6, 0x304}, {0x22C, 0xD5, 0x304}, {0x22D, 0xF5, 0x304},
    {0x22E, 0x4F, 0x307}, {0x22F, 0x6F, 0x307}, {0x230, 0x22E, 0x304}, {0x231, 0x22F, 0x304}, {0x232, 0x59, 0x304}, {0x233, 0x79, 0x304},
    {0x340, 0x300, 0x0}, {0x341, 0x301, 0x0}, {0x343, 0x313, 0x0}, {0x344, 0x308, 0x301}, {0x374, 0x2B9, 0x0}, {0x37E, 0x3B, 0x0},
    {0x385, 0xA8, 0x301}, {0x386, 0x391, 0x301}, {0x387, 0xB7, 0x0}, {0x388, 0x395, 0x301}, {0x389, 0x397, 0x301}, {0x38A, 0x399, 0x301},
    {0x38C, 0x39F, 0x301}, {0x38E, 0x3A5, 0x301}, {0x38F, 0x3A9, 0x301}, {0x390, 0x3CA, 0x301}, {0x3AA, 0x399, 0x308},
    {0x3AB, 0x3A5, 0x308}, {0x3AC, 0x3B1, 0x301}, {0x3AD, 0x3B5, 0x301}, {0x3AE, 0x3B7, 0x301}, {0x3AF, 0x3B9, 0x301},
    {0x3B0, 0x3CB, 0x301}, {0x3CA, 0x3B9, 0x308}, {0x3CB, 0x3C5, 0x308}, {0x3CC, 0x3BF, 0x301}, {0x3CD, 0x3C5, 0x301},
    {0x3CE, 0x3C9, 0x301}, {0x3D3, 0x3D2, 0x301}, {0x3D4, 0x3D2, 0x308}, {0x400, 0x415, 0x300}, {0x401, 0x415, 0x308},
    {0x403, 0x413, 0x301}, {0x407, 0x406, 0x308}, {0x40C, 0x41A, 0x301}, {0x40D, 0x418, 0x300}, {0x40E, 0x423, 0x306},
    {0x419, 0x418, 0x306}, {0x439, 0x438, 0x306}, {0x450, 0x435, 0x300}, {0x451, 0x435, 0x308}, {0x453, 0x433, 0x301},
    {0x457, 0x456, 0x308}, {0x45C, 0x43A, 0x301}, {0x45D, 0x438, 0x300}, {0x45E, 0x443, 0x306}, {0x476, 0x474, 0x30F},
    {0x477, 0x475, 0x30F}, {0x4C1, 0x416, 0x306}, {0x4C2, 0x436, 0x306}, {0x4D0, 0x410, 0x306}, {0x4D1, 0x430, 0x306},
    {0x4D2, 0x410, 0x308}, {0x4D3, 0x430, 0x308}, {0x4D6, 0x415, 0x306}, {0x4D7, 0x435, 0x306}, {0x4DA, 0x4D8, 0x308},
    {0x4DB, 0x4D9, 0x308}, {0x4DC, 0x416, 0x308}, {0x4DD, 0x436, 0x308}, {0x4DE, 0x417, 0x308}, {0x4DF, 0x437, 0x308},
    {0x4E2, 0x418, 0x304}, {0x4E3, 0x438, 0x304}, {0x4E4, 0x418, 0x308}, {0x4E5, 0x438, 0x308}, {0x4E6, 0x41E, 0x308},
    {0x4E7, 0x43E, 0x308}, {0x4EA, 0x4E8, 0x308}, {0x4EB, 0x4E9, 0x308}, {0x4EC, 0x42D, 0x308}, {0x4ED, 0x44D, 0x308},
    {0x4EE, 0x423, 0x304}, {0x4EF, 0x443, 0x304}, {0x4F0, 0x423, 0x308}, {0x4F1, 0x443, 0x308}, {0x4F2, 0x423, 0x30B},
    {0x4F3, 0x443, 0x30B}, {0x4F4, 0x427, 0x308}, {0x4F5, 0x447, 0x308}, {0x4F8, 0x42B, 0x308}, {0x4F9, 0x44B, 0x308},
    {0x622, 0x627, 0x653}, {0x623, 0x627, 0x654}, {0x624, 0x648, 0x654}, {0x625, 0x627, 0x655}, {0x626, 0x64A, 0x654},
    {0x6C0, 0x6D5, 0x654}, {0x6C2, 0x6C1, 0x654}, {0x6D3, 0x6D2, 0x654}, {0x929, 0x928, 0x93C}, {0x931, 0x930, 0x93C},
    {0x934, 0x933, 0x93C}, {0x958, 0x915, 0x93C}, {0x959, 0x916, 0x93C}, {0x95A, 0x917, 0x93C}, {0x95B, 0x91C, 0x93C},
    {0x95C, 0x921, 0x93C}, {0x95D, 0x922, 0x93C}, {0x95E, 0x92B, 0x93C}, {0x95F, 0x92F, 0x93C}, {0x9CB, 0x9C7, 0x9BE},
    {0x9CC, 0x9C7, 0x9D7}, {0x9DC, 0x9A1, 0x9BC}, {0x9DD, 0x9A2, 0x9BC}, {0x9DF, 0x9AF, 0x9BC}, {0xA33, 0xA32, 0xA3C},
    {0xA36, 0xA38, 0xA3C}, {0xA59, 0xA16, 0xA3C}, {0xA5A, 0xA17, 0xA3C}, {0xA5B, 0xA1C, 0xA3C}, {0xA5E, 0xA2B, 0xA3C},
    {0xB48, 0xB47, 0xB56}, {0xB4B, 0xB47, 0xB3E}, {0xB4C, 0xB47, 0xB57}, {0xB5C, 0xB21, 0xB3C}, {0xB5D, 0xB22, 0xB3C},
    {0xB94, 0xB92, 0xBD7}, {0xBCA, 0xBC6, 0xBBE}, {0xBCB, 0xBC7, 0xBBE}, {0xBCC, 0xBC6, 0xBD7}, {0xC48, 0xC46, 0xC56},
    {0xCC0, 0xCBF, 0xCD5}, {0xCC7, 0xCC6, 0xCD5}, {0xCC8, 0xCC6, 0xCD6}, {0xCCA, 0xCC6, 0xCC2}, {0xCCB, 0xCCA, 0xCD5},
    {0xD4A, 0xD46, 0xD3E}, {0xD4B, 0xD47, 0xD3E}, {0xD4C, 0xD46, 0xD57}, {0xDDA, 0xDD9, 0xDCA}, {0xDDC, 0xDD9, 0xDCF},
    {0xDDD, 0xDDC, 0xDCA}, {0xDDE, 0xDD9, 0xDDF}, {0xF43, 0xF42, 0xFB7}, {0xF4D, 0xF4C, 0xFB7}, {0xF52, 0xF51, 0xFB7},
    {0xF57, 0xF56, 0xFB7}, {0xF5C, 0xF5B, 0xFB7}, {0xF69, 0xF40, 0xFB5}, {0xF73, 0xF71, 0xF72}, {0xF75, 0xF71, 0xF74},
    {0xF76, 0xFB2, 0xF80}, {0xF78, 0xFB3, 0xF80}, {0xF81, 0xF71, 0xF80}, {0xF93, 0xF92, 0xFB7}, {0xF9D, 0xF9C, 0xFB7},
    {0xFA2, 0xFA1, 0xFB7}, {0xFA7, 0xFA6, 0xFB7}, {0xFAC, 0xFAB, 0xFB7}, {0xFB9, 0xF90, 0xFB5}, {0x1026, 0x1025, 0x102E},
    {0x1B06, 0x1B05, 0x1B35}, {0x1B08, 0x1B07, 0x1B35}, {0x1B0A, 0x1B09, 0x1B35}, {0x1B0C, 0x1B0B, 0x1B35}, {0x1B0E, 0x1B0D, 0x1B35},
    {0x1B12, 0x1B11, 0x1B35}, {0x1B3B, 0x1B3A, 0x1B35}, {0x1B3D, 0x1B3C, 0x1B35}, {0x1B40, 0x1B3E, 0x1B35}, {0x1B41, 0x1B3F, 0x1B35},
    {0x1B43, 0x1B42, 0x1B35}, {0x1E00, 0x41, 0x325}, {0x1E01, 0x61, 0x325}, {0x1E02, 0x42, 0x307}, {0x1E03, 0x62, 0x307},
    {0x1E04, 0x42, 0x323}, {0x1E05, 0x62, 0x323}, {0x1E06, 0x42, 0x331}, {0x1E07, 0x62, 0x331}, {0x1E08, 0xC7, 0x301},
    {0x1E09, 0xE7, 0x301}, {0x1E0A, 0x44, 0x307}, {0x1E0B, 0x64, 0x307}, {0x1E0C, 0x44, 0x323}, {0x1E0D, 0x64, 0x323},
    {0x1E0E, 0x44, 0x331}, {0x1E0F, 0x64, 0x331}, {0x1E10, 0x44, 0x327}, {0x1E11, 0x64, 0x327}, {0x1E12, 0x44, 0x32D},
    {0x1E13, 0x64, 0x32D}, {0x1E14, 0x112, 0x300}, {0x1E15, 0x113, 0x300}, {0x1E16, 0x112, 0x301}, {0x1E17, 0x113, 0x301},
    {0x1E18, 0x45, 0x32D}, {0x1E19, 0x65, 0x32D}, {0x1E1A, 0x45, 0x330}, {0x1E1B, 0x65, 0x330}, {0x1E1C, 0x228, 0x306},
    {0x1E1D, 0x229, 0x306}, {0x1E1E, 0x46, 0x307}, {0x1E1F, 0x66, 0x307}, {0x1E20, 0x47, 0x304}, {0x1E21, 0x67, 0x304},
    {0x1E22, 0x48, 0x307}, {0x1E23, 0x68, 0x307}, {0x1E24, 0x48, 0x323}, {0x1E25, 0x68, 0x323}, {0x1E26, 0x48, 0x308},
    {0x1E27, 0x68, 0x308}, {0x1E28, 0x48, 0x327}, {0x1E29, 0x68, 0x327}, {0x1E2A, 0x48, 0x32E}, {0x1E2B, 0x68, 0x32E},
    {0x1E2C, 0x49, 0x330}, {0x1E2D, 0x69, 0x330}, {0x1E2E, 0xCF, 0x301}, {0x1E2F, 0xEF, 0x301}, {0x1E30, 0x4B, 0x301},
    {0x1E31, 0x6B, 0x301}, {0x1E32, 0x4B, 0x323}, {0x1E33, 0x6B, 0x323}, {0x1E34, 0x4B, 0x331}, {0x1E35, 0x6B, 0x331},
    {0x1E36, 0x4C, 0x323}, {0x1E37, 0x6C, 0x323}, {0x1E38, 0x1E36, 0x304}, {0x1E39, 0x1E37, 0x304}, {0x1E3A, 0x4C, 0x331},
    {0x1E3B, 0x6C, 0x331}, {0x1E3C, 0x4C, 0x32D}, {0x1E3D, 0x6C, 0x32D}, {0x1E3E, 0x4D, 0x301}, {0x1E3F, 0x6D, 0x301},
    {0x1E40, 0x4D, 0x307}, {0x1E41, 0x6D, 0x307}, {0x1E42, 0x4D, 0x323}, {0x1E43, 0x6D, 0x323}, {0x1E44, 0x4E, 0x307},
    {0x1E45, 0x6E, 0x307}, {0x1E46, 0x4E, 0x323}, {0x1E47, 0x6E, 0x323}, {0x1E48, 0x4E, 0x331}, {0x1E49, 0x6E, 0x331},
    {0x1E4A, 0x4E, 0x32D}, {0x1E4B, 0x6E, 0x32D}, {0x1E4C, 0xD5, 0x301}, {0x1E4D, 0xF5, 0x301}, {0x1E4E, 0xD5, 0x308},
    {0x1E4F, 0xF5, 0x308}, {0x1E50, 0x14C, 0x300}, {0x1E51, 0x14D, 0x300}, {0x1E52, 0x14C, 0x301}, {0x1E53, 0x14D, 0x301},
    {0x1E54, 0x50, 0x301}, {0x1E55, 0x70, 0x301}, {0x1E56, 0x50, 0x307}, {0x1E57, 0x70, 0x307}, {0x1E58, 0x52, 0x307},
    {0x1E59, 0x72, 0x307}, {0x1E5A, 0x52, 0x323}, {0x1E5B, 0x72, 0x323}, {0x1E5C, 0x1E5A, 0x304}, {0x1E5D, 0x1E5B, 0x304},
    {0x1E5E, 0x52, 0x331}, {0x1E5F, 0x72, 0x331}, {0x1E60, 0x53, 0x307}, {0x1E61, 0x73, 0x307}, {0x1E62, 0x53, 0x323},
    {0x1E63, 0x73, 0x323}, {0x1E64, 0x15A, 0x307}, {0x1E65, 0x15B, 0x307}, {0x1E66, 0x160, 0x307}, {0x1E67, 0x161, 0x307},
    {0x1E68, 0x1E62, 0x307}, {0x1E69, 0x1E63, 0x307}, {0x1E6A, 0x54, 0x307}, {0x1E6B, 0x74, 0x307}, {0x1E6C, 0x54, 0x323},
    {0x1E6D, 0x74, 0x323}, {0x1E6E, 0x54, 0x331}, {0x1E6F, 0x74, 0x331}, {0x1E70, 0x54, 0x32D}, {0x1E71, 0x74, 0x32D},
    {0x1E72, 0x55, 0x324}, {0x1E73, 0x75, 0x324}, {0x1E74, 0x55, 0x330}, {0x1E75, 0x75, 0x330}, {0x1E76, 0x55, 0x32D},
    {0x1E77, 0x75, 0x32D}, {0x1E78, 0x168, 0x301}, {0x1E79, 0x169, 0x301}, {0x1E7A, 0x16A, 0x308}, {0x1E7B, 0x16B, 0x308},
    {0x1E7C, 0x56, 0x303}, {0x1E7D, 0x76, 0x303}, {0x1E7E, 0x56, 0x323}, {0x1E7F, 0x76, 0x323}, {0x1E80, 0x57, 0x300},
    {0x1E81, 0x77, 0x300}, {0x1E82, 0x57, 0x301}, {0x1E83, 0x77, 0x301}, {0x1E84, 0x57, 0x308}, {0x1E85, 0x77, 0x308},
    {0x1E86, 0x57, 0x307}, {0x1E87, 0x77, 0x307}, {0x1E88, 0x57, 0x323}, {0x1E89, 0x77, 0x323}, {0x1E8A, 0x58, 0x307},
    {0x1E8B, 0x78, 0x307}, {0x1E8C, 0x58, 0x308}, {0x1E8D, 0x78, 0x308}, {0x1E8E, 0x59, 0x307}, {0x1E8F, 0x79, 0x307},
    {0x1E90, 0x5A, 0x302}, {0x1E91, 0x7A, 0x302}, {0x1E92, 0x5A, 0x323}, {0x1E93, 0x7A, 0x323}, {0x1E94, 0x5A, 0x331},
    {0x1E95, 0x7A, 0x331}, {0x1E96, 0x68, 0x331}, {0x1E97, 0x74, 0x308}, {0x1E98, 0x77, 0x30A}, {0x1E99, 0x79, 0x30A},
    {0x1E9B, 0x17F, 0x307}, {0x1EA0, 0x41, 0x323}, {0x1EA1, 0x61, 0x323}, {0x1EA2, 0x41, 0x309}, {0x1EA3, 0x61, 0x309},
    {0x1EA4, 0xC2, 0x301}, {0x1EA5, 0xE2, 0x301}, {0x1EA6, 0xC2, 0x300}, {0x1EA7, 0xE2, 0x300}, {0x1EA8, 0xC2, 0x309},
    {0x1EA9, 0xE2, 0x309}, {0x1EAA, 0xC2, 0x303}, {0x1EAB, 0xE2, 0x303}, {0x1EAC, 0x1EA0, 0x302}, {0x1EAD, 0x1EA1, 0x302},
    {0x1EAE, 0x102, 0x301}, {0x1EAF, 0x103, 0x301}, {0x1EB0, 0x102, 0x300}, {0x1EB1, 0x103, 0x300}, {0x1EB2, 0x102, 0x309},
    {0x1EB3, 0x103, 0x309}, {0x1EB4, 0x102, 0x303}, {0x1EB5, 0x103, 0x303}, {0x1EB6, 0x1EA0, 0x306}, {0x1EB7, 0x1EA1, 0x306},
    {0x1EB8, 0x45, 0x323}, {0x1EB9, 0x65, 0x323}, {0x1EBA, 0x45, 0x309}, {0x1EBB, 0x65, 0x309}, {0x1EBC, 0x45, 0x303},
    {0x1EBD, 0x65, 0x303}, {0x1EBE, 0xCA, 0x301}, {0x1EBF, 0xEA, 0x301}, {0x1EC0, 0xCA, 0x300}, {0x1EC1, 0xEA, 0x300},
    {0x1EC2, 0xCA, 0x309}, {0x1EC3, 0xEA, 0x309}, {0x1EC4, 0xCA, 0x303}, {0x1EC5, 0xEA, 0x303}, {0x1EC6, 0x1EB8, 0x302},
    {0x1EC7, 0x1EB9, 0x302}, {0x1EC8, 0x49, 0x309}, {0x1EC9, 0x69, 0x309}, {0x1ECA, 0x49, 0x323}, {0x1ECB, 0x69, 0x323},
    {0x1ECC, 0x4F, 0x323}, {0x1ECD, 0x6F, 0x323}, {0x1ECE, 0x4F, 0x309}, {0x1ECF, 0x6F, 0x309}, {0x1ED0, 0xD4, 0x301},
    {0x1ED1, 0xF4, 0x301}, {0x1ED2, 0xD4, 0x300}, {0x1ED3, 0xF4, 0x300}, {0x1ED4, 0xD4, 0x309}, {0x1ED5, 0xF4, 0x309},
    {0x1ED6, 0xD4, 0x303}, {0x1ED7, 0xF4, 0x303}, {0x1ED8, 0x1ECC, 0x302}, {0x1ED9, 0x1ECD, 0x302}, {0x1EDA, 0x1A0, 0x301},
    {0x1EDB, 0x1A1, 0x301}, {0x1EDC, 0x1A0, 0x300}, {0x1EDD, 0x1A1, 0x300}, {0x1EDE, 0x1A0, 0x309}, {0x1EDF, 0x1A1, 0x309},
    {0x1EE0, 0x1A0, 0x303}, {0x1EE1, 0x1A1, 0x303}, {0x1EE2, 0x1A0, 0x323}, {0x1EE3, 0x1A1, 0x323}, {0x1EE4, 0x55, 0x323},
    {0x1EE5, 0x75, 0x323}, {0x1EE6, 0x55, 0x309}, {0x1EE7, 0x75, 0x309}, {0x1EE8, 0x1AF, 0x301}, {0x1EE9, 0x1B0, 0x301},
    {0x1EEA, 0x1AF, 0x300}, {0x1EEB, 0x1B0, 0x300}, {0x1EEC, 0x1AF, 0x309}, {0x1EED, 0x1B0, 0x309}, {0x1EEE, 0x1AF, 0x303},
    {0x1EEF, 0x1B0, 0x303}, {0x1EF0, 0x1AF, 0x323}, {0x1EF1, 0x1B0, 0x323}, {0x1EF2, 0x59, 0x300}, {0x1EF3, 0x79, 0x300},
    {0x1EF4, 0x59, 0x323}, {0x1EF5, 0x79, 0x323}, {0x1EF6, 0x59, 0x309}, {0x1EF7, 0x79, 0x309}, {0x1EF8, 0x59, 0x303},
    {0x1EF9, 0x79, 0x303}, {0x1F00, 0x3B1, 0x313}, {0x1F01, 0x3B1, 0x314}, {0x1F02, 0x1F00, 0x300}, {0x1F03, 0x1F01, 0x300},
    {0x1F04, 0x1F00, 0x301}, {0x1F05, 0x1F01, 0x301}, {0x1F06, 0x1F00, 0x342}, {0x1F07, 0x1F01, 0x342}, {0x1F08, 0x391, 0x313},
    {0x1F09, 0x391, 0x314}, {0x1F0A, 0x1F08, 0x300}, {0x1F0B, 0x1F09, 0x300}, {0x1F0C, 0x1F08, 0x301}, {0x1F0D, 0x1F09, 0x301},
    {0x1F0E, 0x1F08, 0x342}, {0x1F0F, 0x1F09, 0x342}, {0x1F10, 0x3B5, 0x313}, {0x1F11, 0x3B5, 0x314}, {0x1F12, 0x1F10, 0x300},
    {0x1F13, 0x1F11, 0x300}, {0x1F14, 0x1F10, 0x301}, {0x1F15, 0x1F11, 0x301}, {0x1F18, 0x395, 0x313}, {0x1F19, 0x395, 0x314},
    {0x1F1A, 0x1F18, 0x300}, {0x1F1B, 0x1F19, 0x300}, {0x1F1C, 0x1F18, 0x301}, {0x1F1D, 0x1F19, 0x301}, {0x1F20, 0x3B7, 0x313},
    {0x1F21, 0x3B7, 0x314}, {0x1F22, 0x1F20, 0x300}, {0x1F23, 0x1F21, 0x300}, {0x1F24, 0x1F20, 0x301}, {0x1F25, 0x1F21, 0x301},
    {0x1F26, 0x1F20, 0x342}, {0x1F27, 0x1F21, 0x342}, {0x1F28, 0x397, 0x313}, {0x1F29, 0x397, 0x314}, {0x1F2A, 0x1F28, 0x300},
    {0x1F2B, 0x1F29, 0x300}, {0x1F2C, 0x1F28, 0x301}, {0x1F2D, 0x1F29, 0x301}, {0x1F2E, 0x1F28, 0x342}, {0x1F2F, 0x1F29, 0x342},
    {0x1F30, 0x3B9, 0x313}, {0x1F31, 0x3B9, 0x314}, {0x1F32, 0x1F30, 0x300}, {0x1F33, 0x1F31, 0x300}, {0x1F34, 0x1F30, 0x301},
    {0x1F35, 0x1F31, 0x301}, {0x1F36, 0x1F30, 0x342}, {0x1F37, 0x1F31, 0x342}, {0x1F38, 0x399, 0x313}, {0x1F39, 0x399, 0x314},
    {0x1F3A, 0x1F38, 0x300}, {0x1F3B, 0x1F39, 0x300}, {0x1F3C, 0x1F38, 0x301}, {0x1F3D, 0x1F39, 0x301}, {0x1F3E, 0x1F38, 0x342},
    {0x1F3F, 0x1F39, 0x342}, {0x1F40, 0x3BF, 0x313}, {0x1F41, 0x3BF, 0x314}, {0x1F42, 0x1F40, 0x300}, {0x1F43, 0x1F41, 0x300},
    {0x1F44, 0x1F40, 0x301}, {0x1F45, 0x1F41, 0x301}, {0x1F48, 0x39F, 0x313}, {0x1F49, 0x39F, 0x314}, {0x1F4A, 0x1F48, 0x300},
    {0x1F4B, 0x1F49, 0x300}, {0x1F4C, 0x1F48, 0x301}, {0x1F4D, 0x1F49, 0x301}, {0x1F50, 0x3C5, 0x313}, {0x1F51, 0x3C5, 0x314},
    {0x1F52, 0x1F50, 0x300}, {0x1F53, 0x1F51, 0x300}, {0x1F54, 0x1F50, 0x301}, {0x1F55, 0x1F51, 0x301}, {0x1F56, 0x1F50, 0x342},
    {0x1F57, 0x1F51, 0x342}, {0x1F59, 0x3A5, 0x314}, {0x1F5B, 0x1F59, 0x300}, {0x1F5D, 0x1F59, 0x301}, {0x1F5F, 0x1F59, 0x342},
    {0x1F60, 0x3C9, 0x313}, {0x1F61, 0x3C9, 0x314}, {0x1F62, 0x1F60, 0x300}, {0x1F63, 0x1F61, 0x300}, {0x1F64, 0x1F60, 0x301},
    {0x1F65, 0x1F61, 0x301}, {0x1F66, 0x1F60, 0x342}, {0x1F67, 0x1F61, 0x342}, {0x1F68, 0x3A9, 0x313}, {0x1F69, 0x3A9, 0x314},
    {0x1F6A, 0x1F68, 0x300}, {0x1F6B, 0x1F69, 0x300}, {0x1F6C, 0x1F68, 0x301}, {0x1F6D, 0x1F69, 0x301}, {0x1F6E, 0x1F68, 0x342},
    {0x1F6F, 0x1F69, 0x342}, {0x1F70, 0x3B1, 0x300}, {0x1F71, 0x3AC, 0x0}, {0x1F72, 0x3B5, 0x300}, {0x1F73, 0x3AD, 0x0},
    {0x1F74, 0x3B7, 0x300}, {0x1F75, 0x3AE, 0x0}, {0x1F76, 0x3B9, 0x300}, {0x1F77, 0x3AF, 0x0}, {0x1F78, 0x3BF, 0x300},
    {0x1F79, 0x3CC, 0x0}, {0x1F7A, 0x3C5, 0x300}, {0x1F7B, 0x3CD, 0x0}, {0x1F7C, 0x3C9, 0x300}, {0x1F7D, 0x3CE, 0x0},
    {0x1F80, 0x1F00, 0x345}, {0x1F81, 0x1F01, 0x345}, {0x1F82, 0x1F02, 0x345}, {0x1F83, 0x1F03, 0x345}, {0x1F84, 0x1F04, 0x345},
    {0x1F85, 0x1F05, 0x345}, {0x1F86, 0x1F06, 0x345}, {0x1F87, 0x1F07, 0x345}, {0x1F88, 0x1F08, 0x345}, {0x1F89, 0x1F09, 0x345},
    {0x1F8A, 0x1F0A, 0x345}, {0x1F8B, 0x1F0B, 0x345}, {0x1F8C, 0x1F0C, 0x345}, {0x1F8D, 0x1F0D, 0x345}, {0x1F8E, 0x1F0E, 0x345},
    {0x1F8F, 0x1F0F, 0x345}, {0x1F90, 0x1F20, 0x345}, {0x1F91, 0x1F21, 0x345}, {0x1F92, 0x1F22, 0x345}, {0x1F93, 0x1F23, 0x345},
    {0x1F94, 0x1F24, 0x345}, {0x1F95, 0x1F25, 0x345}, {0x1F96, 0x1F26, 0x345}, {0x1F97, 0x1F27, 0x345}, {0x1F98, 0x1F28, 0x345},
    {0x1F99, 0x1F29, 0x345}, {0x1F9A, 0x1F2A, 0x345}, {0x1F9B, 0x1F2B, 0x345}, {0x1F9C, 0x1F2C, 0x345}, {0x1F9D, 0x1F2D, 0x345},
    {0x1F9E, 0x1F2E, 0x345}, {0x1F9F, 0x1F2F, 0x345}, {0x1FA0, 0x1F60, 0x345}, {0x1FA1, 0x1F61, 0x345}, {0x1FA2, 0x1F62, 0x345},
    {0x1FA3, 0x1F63, 0x345}, {0x1FA4, 0x1F64, 0x345}, {0x1FA5, 0x1F65, 0x345}, {0x1FA6, 0x1F66, 0x345}, {0x1FA7, 0x1F67, 0x345},
    {0x1FA8, 0x1F68, 0x345}, {0x1FA9, 0x1F69, 0x345}, {0x1FAA, 0x1F6A, 0x345}, {0x1FAB, 0x1F6B, 0x345}, {0x1FAC, 0x1F6C, 0x345},
    {0x1FAD, 0x1F6D, 0x345}, {0x1FAE, 0x1F6E, 0x345}, {0x1FAF, 0x1F6F, 0x345}, {0x1FB0, 0x3B1, 0x306}, {0x1FB1, 0x3B1, 0x304},
    {0x1FB2, 0x1F70, 0x345}, {0x1FB3, 0x3B1, 0x345}, {0x1FB4, 0x3AC, 0x345}, {0x1FB6, 0x3B1, 0x342}, {0x1FB7, 0x1FB6, 0x345},
    {0x1FB8, 0x391, 0x306}, {0x1FB9, 0x391, 0x304}, {0x1FBA, 0x391, 0x300}, {0x1FBB, 0x386, 0x0}, {0x1FBC, 0x391, 0x345},
    {0x1FBE, 0x3B9, 0x0}, {0x1FC1, 0xA8, 0x342}, {0x1FC2, 0x1F74, 0x345}, {0x1FC3, 0x3B7, 0x345}, {0x1FC4, 0x3AE, 0x345},
    {0x1FC6, 0x3B7, 0x342}, {0x1FC7, 0x1FC6, 0x345}, {0x1FC8, 0x395, 0x300}, {0x1FC9, 0x388, 0x0}, {0x1FCA, 0x397, 0x300},
    {0x1FCB, 0x389, 0x0}, {0x1FCC, 0x397, 0x345}, {0x1FCD, 0x1FBF, 0x300}, {0x1FCE, 0x1FBF, 0x301}, {0x1FCF, 0x1FBF, 0x342},
    {0x1FD0, 0x3B9, 0x306}, {0x1FD1, 0x3B9, 0x304}, {0x1FD2, 0x3CA, 0x300}, {0x1FD3, 0x390, 0x0}, {0x1FD6, 0x3B9, 0x342},
    {0x1FD7, 0x3CA, 0x342}, {0x1FD8, 0x399, 0x306}, {0x1FD9, 0x399, 0x304}, {0x1FDA, 0x399, 0x300}, {0x1FDB, 0x38A, 0x0},
    {0x1FDD, 0x1FFE, 0x300}, {0x1FDE, 0x1FFE, 0x301}, {0x1FDF, 0x1FFE, 0x342}, {0x1FE0, 0x3C5, 0x306}, {0x1FE1, 0x3C5, 0x304},
    {0x1FE2, 0x3CB, 0x300}, {0x1FE3, 0x3B0, 0x0}, {0x1FE4, 0x3C1, 0x313}, {0x1FE5, 0x3C1, 0x314}, {0x1FE6, 0x3C5, 0x342},
    {0x1FE7, 0x3CB, 0x342}, {0x1FE8, 0x3A5, 0x306}, {0x1FE9, 0x3A5, 0x304}, {0x1FEA, 0x3A5, 0x300}, {0x1FEB, 0x38E, 0x0},
    {0x1FEC, 0x3A1, 0x314}, {0x1FED, 0xA8, 0x300}, {0x1FEE, 0x385, 0x0}, {0x1FEF, 0x60, 0x0}, {0x1FF2, 0x1F7C, 0x345},
    {0x1FF3, 0x3C9, 0x345}, {0x1FF4, 0x3CE, 0x345}, {0x1FF6, 0x3C9, 0x342}, {0x1FF7, 0x1FF6, 0x345}, {0x1FF8, 0x39F, 0x300},
    {0x1FF9, 0x38C, 0x0}, {0x1FFA, 0x3A9, 0x300}, {0x1FFB, 0x38F, 0x0}, {0x1FFC, 0x3A9, 0x345}, {0x1FFD, 0xB4, 0x0}, {0x2000, 0x2002, 0x0},
    {0x2001, 0x2003, 0x0}, {0x2126, 0x3A9, 0x0}, {0x212A, 0x4B, 0x0}, {0x212B, 0xC5, 0x0}, {0x219A, 0x2190, 0x338}, {0x219B, 0x2192, 0x338},
    {0x21AE, 0x2194, 0x338}, {0x21CD, 0x21D0, 0x338}, {0x21CE, 0x21D4, 0x338}, {0x21CF, 0x21D2, 0x338}, {0x2204, 0x2203, 0x338},
    {0x2209, 0x2208, 0x338}, {0x220C, 0x220B, 0x338}, {0x2224, 0x2223, 0x338}, {0x2226, 0x2225, 0x338}, {0x2241, 0x223C, 0x338},
    {0x2244, 0x2243, 0x338}, {0x2247, 0x2245, 0x338}, {0x2249, 0x2248, 0x338}, {0x2260, 0x3D, 0x338}, {0x2262, 0x2261, 0x338},
    {0x226D, 0x224D, 0x338}, {0x226E, 0x3C, 0x338}, {0x226F, 0x3E, 0x338}, {0x2270, 0x2264, 0x338}, {0x2271, 0x2265, 0x338},
    {0x2274, 0x2272, 0x338}, {0x2275, 0x2273, 0x338}, {0x2278, 0x2276, 0x338}, {0x2279, 0x2277, 0x338}, {0x2280, 0x227A, 0x338},
    {0x2281, 0x227B, 0x338}, {0x2284, 0x2282, 0x338}, {0x2285, 0x2283, 0x338}, {0x2288, 0x2286, 0x338}, {0x2289, 0x2287, 0x338},
    {0x22AC, 0x22A2, 0x338}, {0x22AD, 0x22A8, 0x338}, {0x22AE, 0x22A9, 0x338}, {0x22AF, 0x22AB, 0x338}, {0x22E0, 0x227C, 0x338},
    {0x22E1, 0x227D, 0x338}, {0x22E2, 0x2291, 0x338}, {0x22E3, 0x2292, 0x338}, {0x22EA, 0x22B2, 0x338}, {0x22EB, 0x22B3, 0x338},
    {0x22EC, 0x22B4, 0x338}, {0x22ED, 0x22B5, 0x338}, {0x2329, 0x3008, 0x0}, {0x232A, 0x3009, 0x0}, {0x2ADC, 0x2ADD, 0x338},
    {0x304C, 0x304B, 0x3099}, {0x304E, 0x304D, 0x3099}, {0x3050, 0x304F, 0x3099}, {0x3052, 0x3051, 0x3099}, {0x3054, 0x3053, 0x3099},
    {0x3056, 0x3055, 0x3099}, {0x3058, 0x3057, 0x3099}, {0x305A, 0x3059, 0x3099}, {0x305C, 0x305B, 0x3099}, {0x305E, 0x305D, 0x3099},
    {0x3060, 0x305F, 0x3099}, {0x3062, 0x3061, 0x3099}, {0x3065, 0x3064, 0x3099}, {0x3067, 0x3066, 0x3099}, {0x3069, 0x3068, 0x3099},
    {0x3070, 0x306F, 0x3099}, {0x3071, 0x306F, 0x309A}, {0x3073, 0x3072, 0x3099}, {0x3074, 0x3072, 0x309A}, {0x3076, 0x3075, 0x3099},
    {0x3077, 0x3075, 0x309A}, {0x3079, 0x3078, 0x3099}, {0x307A, 0x3078, 0x309A}, {0x307C, 0x307B, 0x3099}, {0x307D, 0x307B, 0x309A},
    {0x3094, 0x3046, 0x3099}, {0x309E, 0x309D, 0x3099}, {0x30AC, 0x30AB, 0x3099}, {0x30AE, 0x30AD, 0x3099}, {0x30B0, 0x30AF, 0x3099},
    {0x30B2, 0x30B1, 0x3099}, {0x30B4, 0x30B3, 0x3099}, {0x30B6, 0x30B5, 0x3099}, {0x30B8, 0x30B7, 0x3099}, {0x30BA, 0x30B9, 0x3099},
    {0x30BC, 0x30BB, 0x3099}, {0x30BE, 0x30BD, 0x3099}, {0x30C0, 0x30BF, 0x3099}, {0x30C2, 0x30C1, 0x3099}, {0x30C5, 0x30C4, 0x3099},
    {0x30C7, 0x30C6, 0x3099}, {0x30C9, 0x30C8, 0x3099}, {0x30D0, 0x30CF, 0x3099}, {0x30D1, 0x30CF, 0x309A}, {0x30D3, 0x30D2, 0x3099},
    {0x30D4, 0x30D2, 0x309A}, {0x30D6, 0x30D5, 0x3099}, {0x30D7, 0x30D5, 0x309A}, {0x30D9, 0x30D8, 0x3099}, {0x30DA, 0x30D8, 0x309A},
    {0x30DC, 0x30DB, 0x3099}, {0x30DD, 0x30DB, 0x309A}, {0x30F4, 0x30A6, 0x3099}, {0x30F7, 0x30EF, 0x3099}, {0x30F8, 0x30F0, 0x3099},
    {0x30F9, 0x30F1, 0x3099}, {0x30FA, 0x30F2, 0x3099}, {0x30FE, 0x30FD, 0x3099}, {0xF900, 0x8C48, 0x0}, {0xF901, 0x66F4, 0x0},
    {0xF902, 0x8ECA, 0x0}, {0xF903, 0x8CC8, 0x0}, {0xF904, 0x6ED1, 0x0}, {0xF905, 0x4E32, 0x0}, {0xF906, 0x53E5, 0x0},
    {0xF907, 0x9F9C, 0x0}, {0xF908, 0x9F9C, 0x0}, {0xF909, 0x5951, 0x0}, {0xF90A, 0x91D1, 0x0}, {0xF90B, 0x5587, 0x0},
    {0xF90C, 0x5948, 0x0}, {0xF90D, 0x61F6, 0x0}, {0xF90E, 0x7669, 0x0}, {0xF90F, 0x7F85, 0x0}, {0xF910, 0x863F, 0x0},
    {0xF911, 0x87BA, 0x0}, {0xF912, 0x88F8, 0x0}, {0xF913, 0x908F, 0x0}, {0xF914, 0x6A02, 0x0}, {0xF915, 0x6D1B, 0x0},
    {0xF916, 0x70D9, 0x0}, {0xF917, 0x73DE, 0x0}, {0xF918, 0x843D, 0x0}, {0xF919, 0x916A, 0x0}, {0xF91A, 0x99F1, 0x0},
    {0xF91B, 0x4E82, 0x0}, {0xF91C, 0x5375, 0x0}, {0xF91D, 0x6B04, 0x0}, {0xF91E, 0x721B, 0x0}, {0xF91F, 0x862D, 0x0},
    {0xF920, 0x9E1E, 0x0}, {0xF921, 0x5D50, 0x0}, {0xF922, 0x6FEB, 0x0}, {0xF923, 0x85CD, 0x0}, {0xF924, 0x8964, 0x0},
    {0xF925, 0x62C9, 0x0}, {0xF926, 0x81D8, 0x0}, {0xF927, 0x881F, 0x0}, {0xF928, 0x5ECA, 0x0}, {0xF929, 0x6717, 0x0},
    {0xF92A, 0x6D6A, 0x0}, {0xF92B, 0x72FC, 0x0}, {0xF92C, 0x90CE, 0x0}, {0xF92D, 0x4F86, 0x0}, {0xF92E, 0x51B7, 0x0},
    {0xF92F, 0x52DE, 0x0}, {0xF930, 0x64C4, 0x0}, {0xF931, 0x6AD3, 0x0}, {0xF932, 0x7210, 0x0}, {0xF933, 0x76E7, 0x0},
    {0xF934, 0x8001, 0x0}, {0xF935, 0x8606, 0x0}, {0xF936, 0x865C, 0x0}, {0xF937, 0x8DEF, 0x0}, {0xF938, 0x9732, 0x0},
    {0xF939, 0x9B6F, 0x0}, {0xF93A, 0x9DFA, 0x0}, {0xF93B, 0x788C, 0x0}, {0xF93C, 0x797F, 0x0}, {0xF93D, 0x7DA0, 0x0},
    {0xF93E, 0x83C9, 0x0}, {0xF93F, 0x9304, 0x0}, {0xF940, 0x9E7F, 0x0}, {0xF941, 0x8AD6, 0x0}, {0xF942, 0x58DF, 0x0},
    {0xF943, 0x5F04, 0x0}, {0xF944, 0x7C60, 0x0}, {0xF945, 0x807E, 0x0}, {0xF946, 0x7262, 0x0}, {0xF947, 0x78CA, 0x0},
    {0xF948, 0x8CC2, 0x0}, {0xF949, 0x96F7, 0x0}, {0xF94A, 0x58D8, 0x0}, {0xF94B, 0x5C62, 0x0}, {0xF94C, 0x6A13, 0x0},
    {0xF94D, 0x6DDA, 0x0}, {0xF94E, 0x6F0F, 0x0}, {0xF94F, 0x7D2F, 0x0}, {0xF950, 0x7E37, 0x0}, {0xF951, 0x964B, 0x0},
    {0xF952, 0x52D2, 0x0}, {0xF953, 0x808B, 0x0}, {0xF954, 0x51DC, 0x0}, {0xF955, 0x51CC, 0x0}, {0xF956, 0x7A1C, 0x0},
    {0xF957, 0x7DBE, 0x0}, {0xF958, 0x83F1, 0x0}, {0xF959, 0x9675, 0x0}, {0xF95A, 0x8B80, 0x0}, {0xF95B, 0x62CF, 0x0},
    {0xF95C, 0x6A02, 0x0}, {0xF95D, 0x8AFE, 0x0}, {0xF95E, 0x4E39, 0x0}, {0xF95F, 0x5BE7, 0x0}, {0xF960, 0x6012, 0x0},
    {0xF961, 0x7387, 0x0}, {0xF962, 0x7570, 0x0}, {0xF963, 0x5317, 0x0}, {0xF964, 0x78FB, 0x0}, {0xF965, 0x4FBF, 0x0},
    {0xF966, 0x5FA9, 0x0}, {0xF967, 0x4E0D, 0x0}, {0xF968, 0x6CCC, 0x0}, {0xF969, 0x6578, 0x0}, {0xF96A, 0x7D22, 0x0},
    {0xF96B, 0x53C3, 0x0}, {0xF96C, 0x585E, 0x0}, {0xF96D, 0x7701, 0x0}, {0xF96E, 0x8449, 0x0}, {0xF96F, 0x8AAA, 0x0},
    {0xF970, 0x6BBA, 0x0}, {0xF971, 0x8FB0, 0x0}, {0xF972, 0x6C88, 0x0}, {0xF973, 0x62FE, 0x0}, {0xF974, 0x82E5, 0x0},
    {0xF975, 0x63A0, 0x0}, {0xF976, 0x7565, 0x0}, {0xF977, 0x4EAE, 0x0}, {0xF978, 0x5169, 0x0}, {0xF979, 0x51C9, 0x0},
    {0xF97A, 0x6881, 0x0}, {0xF97B, 0x7CE7, 0x0}, {0xF97C, 0x826F, 0x0}, {0xF97D, 0x8AD2, 0x0}, {0xF97E, 0x91CF, 0x0},
    {0xF97F, 0x52F5, 0x0}, {0xF980, 0x5442, 0x0}, {0xF981, 0x5973, 0x0}, {0xF982, 0x5EEC, 0x0}, {0xF983, 0x65C5, 0x0},
    {0xF984, 0x6FFE, 0x0}, {0xF985, 0x792A, 0x0}, {0xF986, 0x95AD, 0x0}, {0xF987, 0x9A6A, 0x0}, {0xF988, 0x9E97, 0x0},
    {0xF989, 0x9ECE, 0x0}, {0xF98A, 0x529B, 0x0}, {0xF98B, 0x66C6, 0x0}, {0xF98C, 0x6B77, 0x0}, {0xF98D, 0x8F62, 0x0},
    {0xF98E, 0x5E74, 0x0}, {0xF98F, 0x6190, 0x0}, {0xF990, 0x6200, 0x0}, {0xF991, 0x649A, 0x0}, {0xF992, 0x6F23, 0x0},
    {0xF993, 0x7149, 0x0}, {0xF994, 0x7489, 0x0}, {0xF995, 0x79CA, 0x0}, {0xF996, 0x7DF4, 0x0}, {0xF997, 0x806F, 0x0},
    {0xF998, 0x8F26, 0x0}, {0xF999, 0x84EE, 0x0}, {0xF99A, 0x9023, 0x0}, {0xF99B, 0x934A, 0x0}, {0xF99C, 0x5217, 0x0},
    {0xF99D, 0x52A3, 0x0}, {0xF99E, 0x54BD, 0x0}, {0xF99F, 0x70C8, 0x0}, {0xF9A0, 0x88C2, 0x0}, {0xF9A1, 0x8AAA, 0x0},
    {0xF9A2, 0x5EC9, 0x0}, {0xF9A3, 0x5FF5, 0x0}, {0xF9A4, 0x637B, 0x0}, {0xF9A5, 0x6BAE, 0x0}, {0xF9A6, 0x7C3E, 0x0},
    {0xF9A7, 0x7375, 0x0}, {0xF9A8, 0x4EE4, 0x0}, {0xF9A9, 0x56F9, 0x0}, {0xF9AA, 0x5BE7, 0x0}, {0xF9AB, 0x5DBA, 0x0},
    {0xF9AC, 0x601C, 0x0}, {0xF9AD, 0x73B2, 0x0}, {0xF9AE, 0x7469, 0x0}, {0xF9AF, 0x7F9A, 0x0}, {0xF9B0, 0x8046, 0x0},
    {0xF9B1, 0x9234, 0x0}, {0xF9B2, 0x96F6, 0x0}, {0xF9B3, 0x9748, 0x0}, {0xF9B4, 0x9818, 0x0}, {0xF9B5, 0x4F8B, 0x0},
    {0xF9B6, 0x79AE, 0x0}, {0xF9B7, 0x91B4, 0x0}, {0xF9B8, 0x96B8, 0x0}, {0xF9B9, 0x60E1, 0x0}, {0xF9BA, 0x4E86, 0x0},
    {0xF9BB, 0x50DA, 0x0}, {0xF9BC, 0x5BEE, 0x0}, {0xF9BD, 0x5C3F, 0x0}, {0xF9BE, 0x6599, 0x0}, {0xF9BF, 0x6A02, 0x0},
    {0xF9C0, 0x71CE, 0x0}, {0xF9C1, 0x7642, 0x0}, {0xF9C2, 0x84FC, 0x0}, {0xF9C3, 0x907C, 0x0}, {0xF9C4, 0x9F8D, 0x0},
    {0xF9C5, 0x6688, 0x0}, {0xF9C6, 0x962E, 0x0}, {0xF9C7, 0x5289, 0x0}, {0xF9C8, 0x677B, 0x0}, {0xF9C9, 0x67F3, 0x0},
    {0xF9CA, 0x6D41, 0x0}, {0xF9CB, 0x6E9C, 0x0}, {0xF9CC, 0x7409, 0x0}, {0xF9CD, 0x7559, 0x0}, {0xF9CE, 0x786B, 0x0},
    {0xF9CF, 0x7D10, 0x0}, {0xF9D0, 0x985E, 0x0}, {0xF9D1, 0x516D, 0x0}, {0xF9D2, 0x622E, 0x0}, {0xF9D3, 0x9678, 0x0},
    {0xF9D4, 0x502B, 0x0}, {0xF9D5, 0x5D19, 0x0}, {0xF9D6, 0x6DEA, 0x0}, {0xF9D7, 0x8F2A, 0x0}, {0xF9D8, 0x5F8B, 0x0},
    {0xF9D9, 0x6144, 0x0}, {0xF9DA, 0x6817, 0x0}, {0xF9DB, 0x7387, 0x0}, {0xF9DC, 0x9686, 0x0}, {0xF9DD, 0x5229, 0x0},
    {0xF9DE, 0x540F, 0x0}, {0xF9DF, 0x5C65, 0x0}, {0xF9E0, 0x6613, 0x0}, {0xF9E1, 0x674E, 0x0}, {0xF9E2, 0x68A8, 0x0},
    {0xF9E3, 0x6CE5, 0x0}, {0xF9E4, 0x7406, 0x0}, {0xF9E5, 0x75E2, 0x0}, {0xF9E6, 0x7F79, 0x0}, {0xF9E7, 0x88CF, 0x0},
    {0xF9E8, 0x88E1, 0x0}, {0xF9E9, 0x91CC, 0x0}, {0xF9EA, 0x96E2, 0x0}, {0xF9EB, 0x533F, 0x0}, {0xF9EC, 0x6EBA, 0x0},
    {0xF9ED, 0x541D, 0x0}, {0xF9EE, 0x71D0, 0x0}, {0xF9EF, 0x7498, 0x0}, {0xF9F0, 0x85FA, 0x0}, {0xF9F1, 0x96A3, 0x0},
    {0xF9F2, 0x9C57, 0x0}, {0xF9F3, 0x9E9F, 0x0}, {0xF9F4, 0x6797, 0x0}, {0xF9F5, 0x6DCB, 0x0}, {0xF9F6, 0x81E8, 0x0},
    {0xF9F7, 0x7ACB, 0x0}, {0xF9F8, 0x7B20, 0x0}, {0xF9F9, 0x7C92, 0x0}, {0xF9FA, 0x72C0, 0x0}, {0xF9FB, 0x7099, 0x0},
    {0xF9FC, 0x8B58, 0x0}, {0xF9FD, 0x4EC0, 0x0}, {0xF9FE, 0x8336, 0x0}, {0xF9FF, 0x523A, 0x0}, {0xFA00, 0x5207, 0x0},
    {0xFA01, 0x5EA6, 0x0}, {0xFA02, 0x62D3, 0x0}, {0xFA03, 0x7CD6, 0x0}, {0xFA04, 0x5B85, 0x0}, {0xFA05, 0x6D1E, 0x0},
    {0xFA06, 0x66B4, 0x0}, {0xFA07, 0x8F3B, 0x0}, {0xFA08, 0x884C, 0x0}, {0xFA09, 0x964D, 0x0}, {0xFA0A, 0x898B, 0x0},
    {0xFA0B, 0x5ED3, 0x0}, {0xFA0C, 0x5140, 0x0}, {0xFA0D, 0x55C0, 0x0}, {0xFA10, 0x585A, 0x0}, {0xFA12, 0x6674, 0x0},
    {0xFA15, 0x51DE, 0x0}, {0xFA16, 0x732A, 0x0}, {0xFA17, 0x76CA, 0x0}, {0xFA18, 0x793C, 0x0}, {0xFA19, 0x795E, 0x0},
    {0xFA1A, 0x7965, 0x0}, {0xFA1B, 0x798F, 0x0}, {0xFA1C, 0x9756, 0x0}, {0xFA1D, 0x7CBE, 0x0}, {0xFA1E, 0x7FBD, 0x0},
    {0xFA20, 0x8612, 0x0}, {0xFA22, 0x8AF8, 0x0}, {0xFA25, 0x9038, 0x0}, {0xFA26, 0x90FD, 0x0}, {0xFA2A, 0x98EF, 0x0},
    {0xFA2B, 0x98FC, 0x0}, {0xFA2C, 0x9928, 0x0}, {0xFA2D, 0x9DB4, 0x0}, {0xFA2E, 0x90DE, 0x0}, {0xFA2F, 0x96B7, 0x0},
    {0xFA30, 0x4FAE, 0x0}, {0xFA31, 0x50E7, 0x0}, {0xFA32, 0x514D, 0x0}, {0xFA33, 0x52C9, 0x0}, {0xFA34, 0x52E4, 0x0},
    {0xFA35, 0x5351, 0x0}, {0xFA36, 0x559D, 0x0}, {0xFA37, 0x5606, 0x0}, {0xFA38, 0x5668, 0x0}, {0xFA39, 0x5840, 0x0},
    {0xFA3A, 0x58A8, 0x0}, {0xFA3B, 0x5C64, 0x0}, {0xFA3C, 0x5C6E, 0x0}, {0xFA3D, 0x6094, 0x0}, {0xFA3E, 0x6168, 0x0},
    {0xFA3F, 0x618E, 0x0}, {0xFA40, 0x61F2, 0x0}, {0xFA41, 0x654F, 0x0}, {0xFA42, 0x65E2, 0x0}, {0xFA43, 0x6691, 0x0},
    {0xFA44, 0x6885, 0x0}, {0xFA45, 0x6D77, 0x0}, {0xFA46, 0x6E1A, 0x0}, {0xFA47, 0x6F22, 0x0}, {0xFA48, 0x716E, 0x0},
    {0xFA49, 0x722B, 0x0}, {0xFA4A, 0x7422, 0x0}, {0xFA4B, 0x7891, 0x0}, {0xFA4C, 0x793E, 0x0}, {0xFA4D, 0x7949, 0x0},
    {0xFA4E, 0x7948, 0x0}, {0xFA4F, 0x7950, 0x0}, {0xFA50, 0x7956, 0x0}, {0xFA51, 0x795D, 0x0}, {0xFA52, 0x798D, 0x0},
    {0xFA53, 0x798E, 0x0}, {0xFA54, 0x7A40, 0x0}, {0xFA55, 0x7A81, 0x0}, {0xFA56, 0x7BC0, 0x0}, {0xFA57, 0x7DF4, 0x0},
    {0xFA58, 0x7E09, 0x0}, {0xFA59, 0x7E41, 0x0}, {0xFA5A, 0x7F72, 0x0}, {0xFA5B, 0x8005, 0x0}, {0xFA5C, 0x81ED, 0x0},
    {0xFA5D, 0x8279, 0x0}, {0xFA5E, 0x8279, 0x0}, {0xFA5F, 0x8457, 0x0}, {0xFA60, 0x8910, 0x0}, {0xFA61, 0x8996, 0x0},
    {0xFA62, 0x8B01, 0x0}, {0xFA63, 0x8B39, 0x0}, {0xFA64, 0x8CD3, 0x0}, {0xFA65, 0x8D08, 0x0}, {0xFA66, 0x8FB6, 0x0},
    {0xFA67, 0x9038, 0x0}, {0xFA68, 0x96E3, 0x0}, {0xFA69, 0x97FF, 0x0}, {0xFA6A, 0x983B, 0x0}, {0xFA6B, 0x6075, 0x0},
    {0xFA6C, 0x242EE, 0x0}, {0xFA6D, 0x8218, 0x0}, {0xFA70, 0x4E26, 0x0}, {0xFA71, 0x51B5, 0x0}, {0xFA72, 0x5168, 0x0},
    {0xFA73, 0x4F80, 0x0}, {0xFA74, 0x5145, 0x0}, {0xFA75, 0x5180, 0x0}, {0xFA76, 0x52C7, 0x0}, {0xFA77, 0x52FA, 0x0},
    {0xFA78, 0x559D, 0x0}, {0xFA79, 0x5555, 0x0}, {0xFA7A, 0x5599, 0x0}, {0xFA7B, 0x55E2, 0x0}, {0xFA7C, 0x585A, 0x0},
    {0xFA7D, 0x58B3, 0x0}, {0xFA7E, 0x5944, 0x0}, {0xFA7F, 0x5954, 0x0}, {0xFA80, 0x5A62, 0x0}, {0xFA81, 0x5B28, 0x0},
    {0xFA82, 0x5ED2, 0x0}, {0xFA83, 0x5ED9, 0x0}, {0xFA84, 0x5F69, 0x0}, {0xFA85, 0x5FAD, 0x0}, {0xFA86, 0x60D8, 0x0},
    {0xFA87, 0x614E, 0x0}, {0xFA88, 0x6108, 0x0}, {0xFA89, 0x618E, 0x0}, {0xFA8A, 0x6160, 0x0}, {0xFA8B, 0x61F2, 0x0},
    {0xFA8C, 0x6234, 0x0}, {0xFA8D, 0x63C4, 0x0}, {0xFA8E, 0x641C, 0x0}, {0xFA8F, 0x6452, 0x0}, {0xFA90, 0x6556, 0x0},
    {0xFA91, 0x6674, 0x0}, {0xFA92, 0x6717, 0x0}, {0xFA93, 0x671B, 0x0}, {0xFA94, 0x6756, 0x0}, {0xFA95, 0x6B79, 0x0},
    {0xFA96, 0x6BBA, 0x0}, {0xFA97, 0x6D41, 0x0}, {0xFA98, 0x6EDB, 0x0}, {0xFA99, 0x6ECB, 0x0}, {0xFA9A, 0x6F22, 0x0},
    {0xFA9B, 0x701E, 0x0}, {0xFA9C, 0x716E, 0x0}, {0xFA9D, 0x77A7, 0x0}, {0xFA9E, 0x7235, 0x0}, {0xFA9F, 0x72AF, 0x0},
    {0xFAA0, 0x732A, 0x0}, {0xFAA1, 0x7471, 0x0}, {0xFAA2, 0x7506, 0x0}, {0xFAA3, 0x753B, 0x0}, {0xFAA4, 0x761D, 0x0},
    {0xFAA5, 0x761F, 0x0}, {0xFAA6, 0x76CA, 0x0}, {0xFAA7, 0x76DB, 0x0}, {0xFAA8, 0x76F4, 0x0}, {0xFAA9, 0x774A, 0x0},
    {0xFAAA, 0x7740, 0x0}, {0xFAAB, 0x78CC, 0x0}, {0xFAAC, 0x7AB1, 0x0}, {0xFAAD, 0x7BC0, 0x0}, {0xFAAE, 0x7C7B, 0x0},
    {0xFAAF, 0x7D5B, 0x0}, {0xFAB0, 0x7DF4, 0x0}, {0xFAB1, 0x7F3E, 0x0}, {0xFAB2, 0x8005, 0x0}, {0xFAB3, 0x8352, 0x0},
    {0xFAB4, 0x83EF, 0x0}, {0xFAB5, 0x8779, 0x0}, {0xFAB6, 0x8941, 0x0}, {0xFAB7, 0x8986, 0x0}, {0xFAB8, 0x8996, 0x0},
    {0xFAB9, 0x8ABF, 0x0}, {0xFABA, 0x8AF8, 0x0}, {0xFABB, 0x8ACB, 0x0}, {0xFABC, 0x8B01, 0x0}, {0xFABD, 0x8AFE, 0x0},
    {0xFABE, 0x8AED, 0x0}, {0xFABF, 0x8B39, 0x0}, {0xFAC0, 0x8B8A, 0x0}, {0xFAC1, 0x8D08, 0x0}, {0xFAC2, 0x8F38, 0x0},
    {0xFAC3, 0x9072, 0x0}, {0xFAC4, 0x9199, 0x0}, {0xFAC5, 0x9276, 0x0}, {0xFAC6, 0x967C, 0x0}, {0xFAC7, 0x96E3, 0x0},
    {0xFAC8, 0x9756, 0x0}, {0xFAC9, 0x97DB, 0x0}, {0xFACA, 0x97FF, 0x0}, {0xFACB, 0x980B, 0x0}, {0xFACC, 0x983B, 0x0},
    {0xFACD, 0x9B12, 0x0}, {0xFACE, 0x9F9C, 0x0}, {0xFACF, 0x2284A, 0x0}, {0xFAD0, 0x22844, 0x0}, {0xFAD1, 0x233D5, 0x0},
    {0xFAD2, 0x3B9D, 0x0}, {0xFAD3, 0x4018, 0x0}, {0xFAD4, 0x4039, 0x0}, {0xFAD5, 0x25249, 0x0}, {0xFAD6, 0x25CD0, 0x0},
    {0xFAD7, 0x27ED3, 0x0}, {0xFAD8, 0x9F43, 0x0}, {0xFAD9, 0x9F8E, 0x0}, {0xFB1D, 0x5D9, 0x5B4}, {0xFB1F, 0x5F2, 0x5B7},
    {0xFB2A, 0x5E9, 0x5C1}, {0xFB2B, 0x5E9, 0x5C2}, {0xFB2C, 0xFB49, 0x5C1}, {0xFB2D, 0xFB49, 0x5C2}, {0xFB2E, 0x5D0, 0x5B7},
    {0xFB2F, 0x5D0, 0x5B8}, {0xFB30, 0x5D0, 0x5BC}, {0xFB31, 0x5D1, 0x5BC}, {0xFB32, 0x5D2, 0x5BC}, {0xFB33, 0x5D3, 0x5BC},
    {0xFB34, 0x5D4, 0x5BC}, {0xFB35, 0x5D5, 0x5BC}, {0xFB36, 0x5D6, 0x5BC}, {0xFB38, 0x5D8, 0x5BC}, {0xFB39, 0x5D9, 0x5BC},
    {0xFB3A, 0x5DA, 0x5BC}, {0xFB3B, 0x5DB, 0x5BC}, {0xFB3C, 0x5DC, 0x5BC}, {0xFB3E, 0x5DE, 0x5BC}, {0xFB40, 0x5E0, 0x5BC},
    {0xFB41, 0x5E1, 0x5BC}, {0xFB43, 0x5E3, 0x5BC}, {0xFB44, 0x5E4, 0x5BC}, {0xFB46, 0x5E6, 0x5BC}, {0xFB47, 0x5E7, 0x5BC},
    {0xFB48, 0x5E8, 0x5BC}, {0xFB49, 0x5E9, 0x5BC}, {0xFB4A, 0x5EA, 0x5BC}, {0xFB4B, 0x5D5, 0x5B9}, {0xFB4C, 0x5D1, 0x5BF},
    {0xFB4D, 0x5DB, 0x5BF}, {0xFB4E, 0x5E4, 0x5BF}, {0x1109A, 0x11099, 0x110BA}, {0x1109C, 0x1109B, 0x110BA}, {0x110AB, 0x110A5, 0x110BA},
    {0x1112E, 0x11131, 0x11127}, {0x1112F, 0x11132, 0x11127}, {0x1134B, 0x11347, 0x1133E}, {0x1134C, 0x11347, 0x11357},
    {0x114BB, 0x114B9, 0x114BA}, {0x114BC, 0x114B9, 0x114B0}, {0x114BE, 0x114B9, 0x114BD}, {0x115BA, 0x115B8, 0x115AF},
    {0x115BB, 0x115B9, 0x115AF}, {0x11938, 0x11935, 0x11930}, {0x1D15E, 0x1D157, 0x1D165}, {0x1D15F, 0x1D158, 0x1D165},
    {0x1D160, 0x1D15F, 0x1D16E}, {0x1D161, 0x1D15F, 0x1D16F}, {0x1D162, 0x1D15F, 0x1D170}, {0x1D163, 0x1D15F, 0x1D171},
    {0x1D164, 0x1D15F, 0x1D172}, {0x1D1BB, 0x1D1B9, 0x1D165}, {0x1D1BC, 0x1D1BA, 0x1D165}, {0x1D1BD, 0x1D1BB, 0x1D16E},
    {0x1D1BE, 0x1D1BC, 0x1D16E}, {0x1D1BF, 0x1D1BB, 0x1D16F}, {0x1D1C0, 0x1D1BC, 0x1D16F}, {0x2F800, 0x4E3D, 0x0}, {0x2F801, 0x4E38, 0x0},
    {0x2F802, 0x4E41, 0x0}, {0x2F803, 0x20122, 0x0}, {0x2F804, 0x4F60, 0x0}, {0x2F805, 0x4FAE, 0x0}, {0x2F806, 0x4FBB, 0x0},
    {0x2F807, 0x5002, 0x0}, {0x2F808, 0x507A, 0x0}, {0x2F809, 0x5099, 0x0}, {0x2F80A, 0x50E7, 0x0}, {0x2F80B, 0x50CF, 0x0},
    {0x2F80C, 0x349E, 0x0}, {0x2F80D, 0x2063A, 0x0}, {0x2F80E, 0x514D, 0x0}, {0x2F80F, 0x5154, 0x0}, {0x2F810, 0x5164, 0x0},
    {0x2F811, 0x5177, 0x0}, {0x2F812, 0x2051C, 0x0}, {0x2F813, 0x34B9, 0x0}, {0x2F814, 0x5167, 0x0}, {0x2F815, 0x518D, 0x0},
    {0x2F816, 0x2054B, 0x0}, {0x2F817, 0x5197, 0x0}, {0x2F818, 0x51A4, 0x0}, {0x2F819, 0x4ECC, 0x0}, {0x2F81A, 0x51AC, 0x0},
    {0x2F81B, 0x51B5, 0x0}, {0x2F81C, 0x291DF, 0x0}, {0x2F81D, 0x51F5, 0x0}, {0x2F81E, 0x5203, 0x0}, {0x2F81F, 0x34DF, 0x0},
    {0x2F820, 0x523B, 0x0}, {0x2F821, 0x5246, 0x0}, {0x2F822, 0x5272, 0x0}, {0x2F823, 0x5277, 0x0}, {0x2F824, 0x3515, 0x0},
    {0x2F825, 0x52C7, 0x0}, {0x2F826, 0x52C9, 0x0}, {0x2F827, 0x52E4, 0x0}, {0x2F828, 0x52FA, 0x0}, {0x2F829, 0x5305, 0x0},
    {0x2F82A, 0x5306, 0x0}, {0x2F82B, 0x5317, 0x0}, {0x2F82C, 0x5349, 0x0}, {0x2F82D, 0x5351, 0x0}, {0x2F82E, 0x535A, 0x0},
    {0x2F82F, 0x5373, 0x0}, {0x2F830, 0x537D, 0x0}, {0x2F831, 0x537F, 0x0}, {0x2F832, 0x537F, 0x0}, {0x2F833, 0x537F, 0x0},
    {0x2F834, 0x20A2C, 0x0}, {0x2F835, 0x7070, 0x0}, {0x2F836, 0x53CA, 0x0}, {0x2F837, 0x53DF, 0x0}, {0x2F838, 0x20B63, 0x0},
    {0x2F839, 0x53EB, 0x0}, {0x2F83A, 0x53F1, 0x0}, {0x2F83B, 0x5406, 0x0}, {0x2F83C, 0x549E, 0x0}, {0x2F83D, 0x5438, 0x0},
    {0x2F83E, 0x5448, 0x0}, {0x2F83F, 0x5468, 0x0}, {0x2F840, 0x54A2, 0x0}, {0x2F841, 0x54F6, 0x0}, {0x2F842, 0x5510, 0x0},
    {0x2F843, 0x5553, 0x0}, {0x2F844, 0x5563, 0x0}, {0x2F845, 0x5584, 0x0}, {0x2F846, 0x5584, 0x0}, {0x2F847, 0x5599, 0x0},
    {0x2F848, 0x55AB, 0x0}, {0x2F849, 0x55B3, 0x0}, {0x2F84A, 0x55C2, 0x0}, {0x2F84B, 0x5716, 0x0}, {0x2F84C, 0x5606, 0x0},
    {0x2F84D, 0x5717, 0x0}, {0x2F84E, 0x5651, 0x0}, {0x2F84F, 0x5674, 0x0}, {0x2F850, 0x5207, 0x0}, {0x2F851, 0x58EE, 0x0},
    {0x2F852, 0x57CE, 0x0}, {0x2F853, 0x57F4, 0x0}, {0x2F854, 0x580D, 0x0}, {0x2F855, 0x578B, 0x0}, {0x2F856, 0x5832, 0x0},
    {0x2F857, 0x5831, 0x0}, {0x2F858, 0x58AC, 0x0}, {0x2F859, 0x214E4, 0x0}, {0x2F85A, 0x58F2, 0x0}, {0x2F85B, 0x58F7, 0x0},
    {0x2F85C, 0x5906, 0x0}, {0x2F85D, 0x591A, 0x0}, {0x2F85E, 0x5922, 0x0}, {0x2F85F, 0x5962, 0x0}, {0x2F860, 0x216A8, 0x0},
    {0x2F861, 0x216EA, 0x0}, {0x2F862, 0x59EC, 0x0}, {0x2F863, 0x5A1B, 0x0}, {0x2F864, 0x5A27, 0x0}, {0x2F865, 0x59D8, 0x0},
    {0x2F866, 0x5A66, 0x0}, {0x2F867, 0x36EE, 0x0}, {0x2F868, 0x36FC, 0x0}, {0x2F869, 0x5B08, 0x0}, {0x2F86A, 0x5B3E, 0x0},
    {0x2F86B, 0x5B3E, 0x0}, {0x2F86C, 0x219C8, 0x0}, {0x2F86D, 0x5BC3, 0x0}, {0x2F86E, 0x5BD8, 0x0}, {0x2F86F, 0x5BE7, 0x0},
    {0x2F870, 0x5BF3, 0x0}, {0x2F871, 0x21B18, 0x0}, {0x2F872, 0x5BFF, 0x0}, {0x2F873, 0x5C06, 0x0}, {0x2F874, 0x5F53, 0x0},
    {0x2F875, 0x5C22, 0x0}, {0x2F876, 0x3781, 0x0}, {0x2F877, 0x5C60, 0x0}, {0x2F878, 0x5C6E, 0x0}, {0x2F879, 0x5CC0, 0x0},
    {0x2F87A, 0x5C8D, 0x0}, {0x2F87B, 0x21DE4, 0x0}, {0x2F87C, 0x5D43, 0x0}, {0x2F87D, 0x21DE6, 0x0}, {0x2F87E, 0x5D6E, 0x0},
    {0x2F87F, 0x5D6B, 0x0}, {0x2F880, 0x5D7C, 0x0}, {0x2F881, 0x5DE1, 0x0}, {0x2F882, 0x5DE2, 0x0}, {0x2F883, 0x382F, 0x0},
    {0x2F884, 0x5DFD, 0x0}, {0x2F885, 0x5E28, 0x0}, {0x2F886, 0x5E3D, 0x0}, {0x2F887, 0x5E69, 0x0}, {0x2F888, 0x3862, 0x0},
    {0x2F889, 0x22183, 0x0}, {0x2F88A, 0x387C, 0x0}, {0x2F88B, 0x5EB0, 0x0}, {0x2F88C, 0x5EB3, 0x0}, {0x2F88D, 0x5EB6, 0x0},
    {0x2F88E, 0x5ECA, 0x0}, {0x2F88F, 0x2A392, 0x0}, {0x2F890, 0x5EFE, 0x0}, {0x2F891, 0x22331, 0x0}, {0x2F892, 0x22331, 0x0},
    {0x2F893, 0x8201, 0x0}, {0x2F894, 0x5F22, 0x0}, {0x2F895, 0x5F22, 0x0}, {0x2F896, 0x38C7, 0x0}, {0x2F897, 0x232B8, 0x0},
    {0x2F898, 0x261DA, 0x0}, {0x2F899, 0x5F62, 0x0}, {0x2F89A, 0x5F6B, 0x0}, {0x2F89B, 0x38E3, 0x0}, {0x2F89C, 0x5F9A, 0x0},
    {0x2F89D, 0x5FCD, 0x0}, {0x2F89E, 0x5FD7, 0x0}, {0x2F89F, 0x5FF9, 0x0}, {0x2F8A0, 0x6081, 0x0}, {0x2F8A1, 0x393A, 0x0},
    {0x2F8A2, 0x391C, 0x0}, {0x2F8A3, 0x6094, 0x0}, {0x2F8A4, 0x226D4, 0x0}, {0x2F8A5, 0x60C7, 0x0}, {0x2F8A6, 0x6148, 0x0},
    {0x2F8A7, 0x614C, 0x0}, {0x2F8A8, 0x614E, 0x0}, {0x2F8A9, 0x614C, 0x0}, {0x2F8AA, 0x617A, 0x0}, {0x2F8AB, 0x618E, 0x0},
    {0x2F8AC, 0x61B2, 0x0}, {0x2F8AD, 0x61A4, 0x0}, {0x2F8AE, 0x61AF, 0x0}, {0x2F8AF, 0x61DE, 0x0}, {0x2F8B0, 0x61F2, 0x0},
    {0x2F8B1, 0x61F6, 0x0}, {0x2F8B2, 0x6210, 0x0}, {0x2F8B3, 0x621B, 0x0}, {0x2F8B4, 0x625D, 0x0}, {0x2F8B5, 0x62B1, 0x0},
    {0x2F8B6, 0x62D4, 0x0}, {0x2F8B7, 0x6350, 0x0}, {0x2F8B8, 0x22B0C, 0x0}, {0x2F8B9, 0x633D, 0x0}, {0x2F8BA, 0x62FC, 0x0},
    {0x2F8BB, 0x6368, 0x0}, {0x2F8BC, 0x6383, 0x0}, {0x2F8BD, 0x63E4, 0x0}, {0x2F8BE, 0x22BF1, 0x0}, {0x2F8BF, 0x6422, 0x0},
    {0x2F8C0, 0x63C5, 0x0}, {0x2F8C1, 0x63A9, 0x0}, {0x2F8C2, 0x3A2E, 0x0}, {0x2F8C3, 0x6469, 0x0}, {0x2F8C4, 0x647E, 0x0},
    {0x2F8C5, 0x649D, 0x0}, {0x2F8C6, 0x6477, 0x0}, {0x2F8C7, 0x3A6C, 0x0}, {0x2F8C8, 0x654F, 0x0}, {0x2F8C9, 0x656C, 0x0},
    {0x2F8CA, 0x2300A, 0x0}, {0x2F8CB, 0x65E3, 0x0}, {0x2F8CC, 0x66F8, 0x0}, {0x2F8CD, 0x6649, 0x0}, {0x2F8CE, 0x3B19, 0x0},
    {0x2F8CF, 0x6691, 0x0}, {0x2F8D0, 0x3B08, 0x0}, {0x2F8D1, 0x3AE4, 0x0}, {0x2F8D2, 0x5192, 0x0}, {0x2F8D3, 0x5195, 0x0},
    {0x2F8D4, 0x6700, 0x0}, {0x2F8D5, 0x669C, 0x0}, {0x2F8D6, 0x80AD, 0x0}, {0x2F8D7, 0x43D9, 0x0}, {0x2F8D8, 0x6717, 0x0},
    {0x2F8D9, 0x671B, 0x0}, {0x2F8DA, 0x6721, 0x0}, {0x2F8DB, 0x675E, 0x0}, {0x2F8DC, 0x6753, 0x0}, {0x2F8DD, 0x233C3, 0x0},
    {0x2F8DE, 0x3B49, 0x0}, {0x2F8DF, 0x67FA, 0x0}, {0x2F8E0, 0x6785, 0x0}, {0x2F8E1, 0x6852, 0x0}, {0x2F8E2, 0x6885, 0x0},
    {0x2F8E3, 0x2346D, 0x0}, {0x2F8E4, 0x688E, 0x0}, {0x2F8E5, 0x681F, 0x0}, {0x2F8E6, 0x6914, 0x0}, {0x2F8E7, 0x3B9D, 0x0},
    {0x2F8E8, 0x6942, 0x0}, {0x2F8E9, 0x69A3, 0x0}, {0x2F8EA, 0x69EA, 0x0}, {0x2F8EB, 0x6AA8, 0x0}, {0x2F8EC, 0x236A3, 0x0},
    {0x2F8ED, 0x6ADB, 0x0}, {0x2F8EE, 0x3C18, 0x0}, {0x2F8EF, 0x6B21, 0x0}, {0x2F8F0, 0x238A7, 0x0}, {0x2F8F1, 0x6B54, 0x0},
    {0x2F8F2, 0x3C4E, 0x0}, {0x2F8F3, 0x6B72, 0x0}, {0x2F8F4, 0x6B9F, 0x0}, {0x2F8F5, 0x6BBA, 0x0}, {0x2F8F6, 0x6BBB, 0x0},
    {0x2F8F7, 0x23A8D, 0x0}, {0x2F8F8, 0x21D0B, 0x0}, {0x2F8F9, 0x23AFA, 0x0}, {0x2F8FA, 0x6C4E, 0x0}, {0x2F8FB, 0x23CBC, 0x0},
    {0x2F8FC, 0x6CBF, 0x0}, {0x2F8FD, 0x6CCD, 0x0}, {0x2F8FE, 0x6C67, 0x0}, {0x2F8FF, 0x6D16, 0x0}, {0x2F900, 0x6D3E, 0x0},
    {0x2F901, 0x6D77, 0x0}, {0x2F902, 0x6D41, 0x0}, {0x2F903, 0x6D69, 0x0}, {0x2F904, 0x6D78, 0x0}, {0x2F905, 0x6D85, 0x0},
    {0x2F906, 0x23D1E, 0x0}, {0x2F907, 0x6D34, 0x0}, {0x2F908, 0x6E2F, 0x0}, {0x2F909, 0x6E6E, 0x0}, {0x2F90A, 0x3D33, 0x0},
    {0x2F90B, 0x6ECB, 0x0}, {0x2F90C, 0x6EC7, 0x0}, {0x2F90D, 0x23ED1, 0x0}, {0x2F90E, 0x6DF9, 0x0}, {0x2F90F, 0x6F6E, 0x0},
    {0x2F910, 0x23F5E, 0x0}, {0x2F911, 0x23F8E, 0x0}, {0x2F912, 0x6FC6, 0x0}, {0x2F913, 0x7039, 0x0}, {0x2F914, 0x701E, 0x0},
    {0x2F915, 0x701B, 0x0}, {0x2F916, 0x3D96, 0x0}, {0x2F917, 0x704A, 0x0}, {0x2F918, 0x707D, 0x0}, {0x2F919, 0x7077, 0x0},
    {0x2F91A, 0x70AD, 0x0}, {0x2F91B, 0x20525, 0x0}, {0x2F91C, 0x7145, 0x0}, {0x2F91D, 0x24263, 0x0}, {0x2F91E, 0x719C, 0x0},
    {0x2F91F, 0x243AB, 0x0}, {0x2F920, 0x7228, 0x0}, {0x2F921, 0x7235, 0x0}, {0x2F922, 0x7250, 0x0}, {0x2F923, 0x24608, 0x0},
    {0x2F924, 0x7280, 0x0}, {0x2F925, 0x7295, 0x0}, {0x2F926, 0x24735, 0x0}, {0x2F927, 0x24814, 0x0}, {0x2F928, 0x737A, 0x0},
    {0x2F929, 0x738B, 0x0}, {0x2F92A, 0x3EAC, 0x0}, {0x2F92B, 0x73A5, 0x0}, {0x2F92C, 0x3EB8, 0x0}, {0x2F92D, 0x3EB8, 0x0},
    {0x2F92E, 0x7447, 0x0}, {0x2F92F, 0x745C, 0x0}, {0x2F930, 0x7471, 0x0}, {0x2F931, 0x7485, 0x0}, {0x2F932, 0x74CA, 0x0},
    {0x2F933, 0x3F1B, 0x0}, {0x2F934, 0x7524, 0x0}, {0x2F935, 0x24C36, 0x0}, {0x2F936, 0x753E, 0x0}, {0x2F937, 0x24C92, 0x0},
    {0x2F938, 0x7570, 0x0}, {0x2F939, 0x2219F, 0x0}, {0x2F93A, 0x7610, 0x0}, {0x2F93B, 0x24FA1, 0x0}, {0x2F93C, 0x24FB8, 0x0},
    {0x2F93D, 0x25044, 0x0}, {0x2F93E, 0x3FFC, 0x0}, {0x2F93F, 0x4008, 0x0}, {0x2F940, 0x76F4, 0x0}, {0x2F941, 0x250F3, 0x0},
    {0x2F942, 0x250F2, 0x0}, {0x2F943, 0x25119, 0x0}, {0x2F944, 0x25133, 0x0}, {0x2F945, 0x771E, 0x0}, {0x2F946, 0x771F, 0x0},
    {0x2F947, 0x771F, 0x0}, {0x2F948, 0x774A, 0x0}, {0x2F949, 0x4039, 0x0}, {0x2F94A, 0x778B, 0x0}, {0x2F94B, 0x4046, 0x0},
    {0x2F94C, 0x4096, 0x0}, {0x2F94D, 0x2541D, 0x0}, {0x2F94E, 0x784E, 0x0}, {0x2F94F, 0x788C, 0x0}, {0x2F950, 0x78CC, 0x0},
    {0x2F951, 0x40E3, 0x0}, {0x2F952, 0x25626, 0x0}, {0x2F953, 0x7956, 0x0}, {0x2F954, 0x2569A, 0x0}, {0x2F955, 0x256C5, 0x0},
    {0x2F956, 0x798F, 0x0}, {0x2F957, 0x79EB, 0x0}, {0x2F958, 0x412F, 0x0}, {0x2F959, 0x7A40, 0x0}, {0x2F95A, 0x7A4A, 0x0},
    {0x2F95B, 0x7A4F, 0x0}, {0x2F95C, 0x2597C, 0x0}, {0x2F95D, 0x25AA7, 0x0}, {0x2F95E, 0x25AA7, 0x0}, {0x2F95F, 0x7AEE, 0x0},
    {0x2F960, 0x4202, 0x0}, {0x2F961, 0x25BAB, 0x0}, {0x2F962, 0x7BC6, 0x0}, {0x2F963, 0x7BC9, 0x0}, {0x2F964, 0x4227, 0x0},
    {0x2F965, 0x25C80, 0x0}, {0x2F966, 0x7CD2, 0x0}, {0x2F967, 0x42A0, 0x0}, {0x2F968, 0x7CE8, 0x0}, {0x2F969, 0x7CE3, 0x0},
    {0x2F96A, 0x7D00, 0x0}, {0x2F96B, 0x25F86, 0x0}, {0x2F96C, 0x7D63, 0x0}, {0x2F96D, 0x4301, 0x0}, {0x2F96E, 0x7DC7, 0x0},
    {0x2F96F, 0x7E02, 0x0}, {0x2F970, 0x7E45, 0x0}, {0x2F971, 0x4334, 0x0}, {0x2F972, 0x26228, 0x0}, {0x2F973, 0x26247, 0x0},
    {0x2F974, 0x4359, 0x0}, {0x2F975, 0x262D9, 0x0}, {0x2F976, 0x7F7A, 0x0}, {0x2F977, 0x2633E, 0x0}, {0x2F978, 0x7F95, 0x0},
    {0x2F979, 0x7FFA, 0x0}, {0x2F97A, 0x8005, 0x0}, {0x2F97B, 0x264DA, 0x0}, {0x2F97C, 0x26523, 0x0}, {0x2F97D, 0x8060, 0x0},
    {0x2F97E, 0x265A8, 0x0}, {0x2F97F, 0x8070, 0x0}, {0x2F980, 0x2335F, 0x0}, {0x2F981, 0x43D5, 0x0}, {0x2F982, 0x80B2, 0x0},
    {0x2F983, 0x8103, 0x0}, {0x2F984, 0x440B, 0x0}, {0x2F985, 0x813E, 0x0}, {0x2F986, 0x5AB5, 0x0}, {0x2F987, 0x267A7, 0x0},
    {0x2F988, 0x267B5, 0x0}, {0x2F989, 0x23393, 0x0}, {0x2F98A, 0x2339C, 0x0}, {0x2F98B, 0x8201, 0x0}, {0x2F98C, 0x8204, 0x0},
    {0x2F98D, 0x8F9E, 0x0}, {0x2F98E, 0x446B, 0x0}, {0x2F98F, 0x8291, 0x0}, {0x2F990, 0x828B, 0x0}, {0x2F991, 0x829D, 0x0},
    {0x2F992, 0x52B3, 0x0}, {0x2F993, 0x82B1, 0x0}, {0x2F994, 0x82B3, 0x0}, {0x2F995, 0x82BD, 0x0}, {0x2F996, 0x82E6, 0x0},
    {0x2F997, 0x26B3C, 0x0}, {0x2F998, 0x82E5, 0x0}, {0x2F999, 0x831D, 0x0}, {0x2F99A, 0x8363, 0x0}, {0x2F99B, 0x83AD, 0x0},
    {0x2F99C, 0x8323, 0x0}, {0x2F99D, 0x83BD, 0x0}, {0x2F99E, 0x83E7, 0x0}, {0x2F99F, 0x8457, 0x0}, {0x2F9A0, 0x8353, 0x0},
    {0x2F9A1, 0x83CA, 0x0}, {0x2F9A2, 0x83CC, 0x0}, {0x2F9A3, 0x83DC, 0x0}, {0x2F9A4, 0x26C36, 0x0}, {0x2F9A5, 0x26D6B, 0x0},
    {0x2F9A6, 0x26CD5, 0x0}, {0x2F9A7, 0x452B, 0x0}, {0x2F9A8, 0x84F1, 0x0}, {0x2F9A9, 0x84F3, 0x0}, {0x2F9AA, 0x8516, 0x0},
    {0x2F9AB, 0x273CA, 0x0}, {0x2F9AC, 0x8564, 0x0}, {0x2F9AD, 0x26F2C, 0x0}, {0x2F9AE, 0x455D, 0x0}, {0x2F9AF, 0x4561, 0x0},
    {0x2F9B0, 0x26FB1, 0x0}, {0x2F9B1, 0x270D2, 0x0}, {0x2F9B2, 0x456B, 0x0}, {0x2F9B3, 0x8650, 0x0}, {0x2F9B4, 0x865C, 0x0},
    {0x2F9B5, 0x8667, 0x0}, {0x2F9B6, 0x8669, 0x0}, {0x2F9B7, 0x86A9, 0x0}, {0x2F9B8, 0x8688, 0x0}, {0x2F9B9, 0x870E, 0x0},
    {0x2F9BA, 0x86E2, 0x0}, {0x2F9BB, 0x8779, 0x0}, {0x2F9BC, 0x8728, 0x0}, {0x2F9BD, 0x876B, 0x0}, {0x2F9BE, 0x8786, 0x0},
    {0x2F9BF, 0x45D7, 0x0}, {0x2F9C0, 0x87E1, 0x0}, {0x2F9C1, 0x8801, 0x0}, {0x2F9C2, 0x45F9, 0x0}, {0x2F9C3, 0x8860, 0x0},
    {0x2F9C4, 0x8863, 0x0}, {0x2F9C5, 0x27667, 0x0}, {0x2F9C6, 0x88D7, 0x0}, {0x2F9C7, 0x88DE, 0x0}, {0x2F9C8, 0x4635, 0x0},
    {0x2F9C9, 0x88FA, 0x0}, {0x2F9CA, 0x34BB, 0x0}, {0x2F9CB, 0x278AE, 0x0}, {0x2F9CC, 0x27966, 0x0}, {0x2F9CD, 0x46BE, 0x0},
    {0x2F9CE, 0x46C7, 0x0}, {0x2F9CF, 0x8AA0, 0x0}, {0x2F9D0, 0x8AED, 0x0}, {0x2F9D1, 0x8B8A, 0x0}, {0x2F9D2, 0x8C55, 0x0},
    {0x2F9D3, 0x27CA8, 0x0}, {0x2F9D4, 0x8CAB, 0x0}, {0x2F9D5, 0x8CC1, 0x0}, {0x2F9D6, 0x8D1B, 0x0}, {0x2F9D7, 0x8D77, 0x0},
    {0x2F9D8, 0x27F2F, 0x0}, {0x2F9D9, 0x20804, 0x0}, {0x2F9DA, 0x8DCB, 0x0}, {0x2F9DB, 0x8DBC, 0x0}, {0x2F9DC, 0x8DF0, 0x0},
    {0x2F9DD, 0x208DE, 0x0}, {0x2F9DE, 0x8ED4, 0x0}, {0x2F9DF, 0x8F38, 0x0}, {0x2F9E0, 0x285D2, 0x0}, {0x2F9E1, 0x285ED, 0x0},
    {0x2F9E2, 0x9094, 0x0}, {0x2F9E3, 0x90F1, 0x0}, {0x2F9E4, 0x9111, 0x0}, {0x2F9E5, 0x2872E, 0x0}, {0x2F9E6, 0x911B, 0x0},
    {0x2F9E7, 0x9238, 0x0}, {0x2F9E8, 0x92D7, 0x0}, {0x2F9E9, 0x92D8, 0x0}, {0x2F9EA, 0x927C, 0x0}, {0x2F9EB, 0x93F9, 0x0},
    {0x2F9EC, 0x9415, 0x0}, {0x2F9ED, 0x28BFA, 0x0}, {0x2F9EE, 0x958B, 0x0}, {0x2F9EF, 0x4995, 0x0}, {0x2F9F0, 0x95B7, 0x0},
    {0x2F9F1, 0x28D77, 0x0}, {0x2F9F2, 0x49E6, 0x0}, {0x2F9F3, 0x96C3, 0x0}, {0x2F9F4, 0x5DB2, 0x0}, {0x2F9F5, 0x9723, 0x0},
    {0x2F9F6, 0x29145, 0x0}, {0x2F9F7, 0x2921A, 0x0}, {0x2F9F8, 0x4A6E, 0x0}, {0x2F9F9, 0x4A76, 0x0}, {0x2F9FA, 0x97E0, 0x0},
    {0x2F9FB, 0x2940A, 0x0}, {0x2F9FC, 0x4AB2, 0x0}, {0x2F9FD, 0x29496, 0x0}, {0x2F9FE, 0x980B, 0x0}, {0x2F9FF, 0x980B, 0x0},
    {0x2FA00, 0x9829, 0x0}, {0x2FA01, 0x295B6, 0x0}, {0x2FA02, 0x98E2, 0x0}, {0x2FA03, 0x4B33, 0x0}, {0x2FA04, 0x9929, 0x0},
    {0x2FA05, 0x99A7, 0x0}, {0x2FA06, 0x99C2, 0x0}, {0x2FA07, 0x99FE, 0x0}, {0x2FA08, 0x4BCE, 0x0}, {0x2FA09, 0x29B30, 0x0},
    {0x2FA0A, 0x9B12, 0x0}, {0x2FA0B, 0x9C40, 0x0}, {0x2FA0C, 0x9CFD, 0x0}, {0x2FA0D, 0x4CCE, 0x0}, {0x2FA0E, 0x4CED, 0x0},
    {0x2FA0F, 0x9D67, 0x0}, {0x2FA10, 0x2A0CE, 0x0}, {0x2FA11, 0x4CF8, 0x0}, {0x2FA12, 0x2A105, 0x0}, {0x2FA13, 0x2A20E, 0x0},
    {0x2FA14, 0x2A291, 0x0}, {0x2FA15, 0x9EBB, 0x0}, {0x2FA16, 0x4D56, 0x0}, {0x2FA17, 0x9EF9, 0x0}, {0x2FA18, 0x9EFE, 0x0},
    {0x2FA19, 0x9F05, 0x0}, {0x2FA1A, 0x9F0F, 0x0}, {0x2FA1B, 0x9F16, 0x0}, {0x2FA1C, 0x9F3B, 0x0}, {0x2FA1D, 0x2A600, 0x0},
};
/* Rows of the table above that compose, ordered by first and second. */
static const uint16_t mgv__unicode_compositions[] = {
    912, 909, 913, 0, 1, 2, 3, 53, 55, 238, 4, 572, 5, 165, 208, 210, 570, 415, 57, 417, 419, 421, 59, 61, 63, 65, 6, 425, 67, 427, 431,
    433, 429, 7, 8, 9, 598, 69, 71, 73, 10, 596, 77, 212, 214, 594, 240, 75, 439, 441, 445, 198, 79, 447, 81, 83, 187, 85, 87, 449, 453,
    236, 451, 455, 457, 11, 12, 13, 89, 91, 93, 97, 14, 610, 167, 216, 218, 612, 95, 459, 98, 463, 189, 465, 100, 467, 102, 106, 469, 104,
    475, 473, 477, 479, 481, 200, 108, 15, 483, 112, 485, 110, 489, 487, 16, 17, 18, 19, 114, 116, 246, 20, 616, 118, 169, 220, 222, 161,
    614, 191, 499, 501, 120, 503, 124, 224, 226, 505, 122, 509, 126, 128, 511, 132, 513, 232, 130, 521, 136, 523, 234, 134, 527, 525, 21,
    22, 23, 138, 140, 142, 24, 640, 144, 146, 171, 228, 230, 163, 638, 529, 148, 533, 531, 539, 541, 543, 545, 150, 549, 547, 551, 553, 555,
    652, 25, 152, 658, 250, 557, 154, 656, 654, 155, 559, 157, 159, 561, 563, 26, 27, 28, 29, 54, 56, 239, 30, 573, 31, 166, 209, 211, 571,
    416, 58, 418, 420, 422, 60, 62, 64, 66, 32, 426, 68, 428, 432, 434, 430, 33, 34, 35, 599, 70, 72, 74, 36, 597, 78, 213, 215, 595, 241,
    76, 440, 442, 446, 199, 80, 448, 82, 84, 188, 86, 88, 450, 454, 237, 452, 456, 458, 565, 37, 38, 39, 90, 92, 94, 40, 611, 168, 217, 219,
    613, 96, 460, 99, 197, 464, 190, 466, 101, 468, 103, 107, 470, 105, 476, 474, 478, 480, 482, 201, 109, 41, 484, 113, 486, 111, 490, 488,
    42, 43, 44, 45, 115, 117, 247, 46, 617, 119, 170, 221, 223, 162, 615, 192, 500, 502, 121, 504, 125, 225, 227, 506, 123, 510, 127, 129,
    512, 133, 514, 233, 131, 522, 566, 137, 524, 235, 135, 528, 526, 47, 48, 49, 139, 141, 143, 50, 641, 145, 147, 172, 229, 231, 164, 639,
    530, 149, 534, 532, 540, 542, 544, 546, 151, 550, 548, 567, 552, 554, 556, 653, 51, 153, 659, 251, 558, 52, 657, 568, 655, 156, 560,
    158, 160, 562, 564, 875, 258, 835, 576, 574, 580, 578, 181, 202, 204, 185, 423, 602, 600, 606, 604, 461, 620, 618, 624, 622, 491, 244,
    493, 242, 206, 179, 175, 173, 177, 577, 575, 581, 579, 182, 203, 205, 186, 424, 603, 601, 607, 605, 462, 621, 619, 625, 623, 492, 245,
    494, 243, 207, 180, 176, 174, 178, 586, 584, 590, 588, 587, 585, 591, 589, 435, 437, 436, 438, 495, 497, 496, 498, 515, 516, 517, 518,
    535, 536, 537, 538, 569, 630, 628, 634, 632, 636, 631, 629, 635, 633, 637, 644, 642, 648, 646, 650, 645, 643, 649, 647, 651, 195, 193,
    194, 183, 184, 443, 444, 248, 249, 196, 831, 259, 830, 829, 668, 669, 833, 841, 261, 682, 683, 843, 262, 696, 697, 845, 857, 263, 856,
    855, 268, 712, 713, 883, 264, 726, 727, 874, 872, 265, 871, 870, 269, 740, 885, 266, 752, 753, 887, 826, 838, 760, 270, 823, 822, 660,
    661, 827, 825, 762, 271, 676, 677, 764, 272, 688, 689, 839, 837, 766, 273, 850, 849, 275, 704, 705, 853, 768, 277, 720, 721, 866, 867,
    770, 278, 863, 862, 276, 732, 733, 868, 772, 279, 744, 745, 881, 879, 851, 267, 854, 864, 274, 869, 880, 280, 281, 285, 302, 304, 284,
    282, 306, 283, 300, 310, 312, 287, 314, 289, 316, 286, 318, 324, 288, 326, 328, 330, 332, 322, 303, 305, 293, 291, 307, 292, 301, 311,
    313, 296, 315, 290, 317, 295, 319, 325, 297, 327, 329, 331, 333, 323, 294, 298, 299, 308, 309, 320, 321, 334, 335, 337, 336, 338, 340,
    341, 339, 342, 343, 344, 353, 354, 365, 364, 366, 369, 370, 372, 371, 373, 374, 377, 375, 376, 378, 379, 381, 380, 382, 383, 385, 384,
    403, 404, 405, 406, 407, 408, 409, 410, 411, 412, 413, 414, 471, 472, 507, 508, 519, 520, 582, 592, 583, 593, 608, 609, 626, 627, 662,
    664, 666, 774, 663, 665, 667, 775, 776, 777, 778, 779, 780, 781, 670, 672, 674, 782, 671, 673, 675, 783, 784, 785, 786, 787, 788, 789,
    678, 680, 679, 681, 684, 686, 685, 687, 690, 692, 694, 790, 691, 693, 695, 791, 792, 793, 794, 795, 796, 797, 698, 700, 702, 798, 699,
    701, 703, 799, 800, 801, 802, 803, 804, 805, 706, 708, 710, 707, 709, 711, 714, 716, 718, 715, 717, 719, 722, 724, 723, 725, 728, 730,
    729, 731, 734, 736, 738, 735, 737, 739, 741, 742, 743, 746, 748, 750, 806, 747, 749, 751, 807, 808, 809, 810, 811, 812, 813, 754, 756,
    758, 814, 755, 757, 759, 815, 816, 817, 818, 819, 820, 821, 824, 836, 878, 828, 846, 847, 848, 840, 882, 859, 860, 861, 894, 895, 896,
    897, 899, 898, 900, 901, 902, 903, 904, 905, 906, 907, 908, 911, 910, 914, 915, 916, 917, 918, 919, 920, 921, 930, 931, 922, 923, 924,
    925, 932, 933, 926, 927, 928, 929, 934, 935, 936, 937, 966, 941, 942, 943, 944, 945, 946, 947, 948, 949, 950, 951, 952, 953, 954, 955,
    956, 957, 958, 959, 960, 961, 962, 963, 964, 965, 967, 993, 968, 969, 970, 971, 972, 973, 974, 975, 976, 977, 978, 979, 980, 981, 982,
    983, 984, 985, 986, 987, 988, 989, 990, 991, 992, 994, 995, 996, 997, 998, 1493, 1494, 1495, 1496, 1497, 1498, 1499, 1501, 1500, 1502,
    1503, 1504, 1505,
};
/* Generated by tools/make_unicode_tables.py: end. */

/* Hangul syllables are computed (Unicode 15, section 3.12). */
enum {
    MGV__HANGUL_S = 0xAC00, MGV__HANGUL_L = 0x1100, MGV__HANGUL_V = 0x1161, MGV__HANGUL_T = 0x11A7,
    MGV__HANGUL_LS = 19, MGV__HANGUL_VS = 21, MGV__HANGUL_TS = 28, MGV__HANGUL_SYLLABLES = 19 * 21 * 28
};

/* The code point at p, and its bytes. */
static size_t mgv__utf8_read(const char *text, uint32_t *code) {
    const unsigned char *p = (const unsigned char *)text;
    if (p[0] < 0x80) {
        *code = p[0];
        return 1;
    }
    if (p[0] < 0xE0) {
        *code = (uint32_t)(p[0] & 0x1F) << 6 | (p[1] & 0x3F);
        return 2;
    }
    if (p[0] < 0xF0) {
        *code = (uint32_t)(p[0] & 0x0F) << 12 | (uint32_t)(p[1] & 0x3F) << 6 | (p[2] & 0x3F);
        return 3;
    }
    *code = (uint32_t)(p[0] & 0x07) << 18 | (uint32_t)(p[1] & 0x3F) << 12 | (uint32_t)(p[2] & 0x3F) << 6 | (p[3] & 0x3F);
    return 4;
}
/* Where the code point begins that ends before p. */
static const char *mgv__utf8_before(const char *p) {
    do p--;
    while (((unsigned char)*p & 0xC0) == 0x80);
    return p;
}

/* A run of code points of one class. Whoever asks keeps the last one, as text stays within a script; zeros are an empty run. */
typedef struct mgv__unicode_run { uint32_t first, end, value; } mgv__unicode_run;

static uint32_t mgv__unicode_value(const uint32_t *table, size_t count, uint32_t bits, uint32_t code, mgv__unicode_run *run) {
    size_t low = 0, high = count; /* table[low] <= code < table[high] */
    if (code >= run->first && code < run->end) return run->value;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (table[middle] >> bits <= code) low = middle;
        else high = middle;
    }
    run->first = table[low] >> bits;
    run->end = high == count ? 0x110000 : table[high] >> bits;
    run->value = table[low] & ((1u << bits) - 1);
    return run->value;
}
static uint32_t mgv__unicode_class(uint32_t code, mgv__unicode_run *run) {
    return mgv__unicode_value(mgv__unicode_classes, sizeof mgv__unicode_classes / sizeof mgv__unicode_classes[0], MGV__UNICODE_CLASS_BITS,
                              code, run);
}
static uint32_t mgv__unicode_combining_class(uint32_t code) {
    mgv__unicode_run run = {0, 0, 0};
    return mgv__unicode_value(mgv__unicode_combining, sizeof mgv__unicode_combining / sizeof mgv__unicode_combining[0], 8, code, &run);
}

/* Lower case of one code point by the full mapping without context; returns how many code points it has: U+0130 has two. */
static size_t mgv__unicode_to_lower(uint32_t code, uint32_t *out) {
    size_t low = 0, high = sizeof mgv__unicode_lower / sizeof mgv__unicode_lower[0];
    out[0] = code;
    if (code < 0x80) {
        if (code >= 'A' && code <= 'Z') out[0] = code + ('a' - 'A');
        return 1;
    }
    if (code == 0x130) {
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const mgv__unicode_case *row = &mgv__unicode_lower[middle];
        if (code < row->first) high = middle;
        else if (code > row->last) low = middle + 1;
        else {
            if ((code - row->first) % (uint32_t)row->step == 0) out[0] = (uint32_t)((int32_t)code + row->difference);
            return 1;
        }
    }
    return 1;
}
/* Does the sigma at p end a word (Unicode 15, table 3-17, Final_Sigma)? A cased letter stands before it, and none behind, but for
   case-ignorable ones. */
static int mgv__unicode_final_sigma(const char *begin, const char *p, const char *end) {
    mgv__unicode_run run = {0, 0, 0};
    uint32_t code, kind = MGV__UNICODE_CASE_IGNORABLE;
    const char *at = p;
    while (at > begin && (kind & MGV__UNICODE_CASE_IGNORABLE)) {
        at = mgv__utf8_before(at);
        mgv__utf8_read(at, &code);
        kind = mgv__unicode_class(code, &run);
    }
    if ((kind & MGV__UNICODE_CASE_IGNORABLE) || !(kind & MGV__UNICODE_CASED)) return 0;
    kind = MGV__UNICODE_CASE_IGNORABLE;
    for (at = p + 2; at < end && (kind & MGV__UNICODE_CASE_IGNORABLE);) {
        at += mgv__utf8_read(at, &code);
        kind = mgv__unicode_class(code, &run);
    }
    return (kind & MGV__UNICODE_CASE_IGNORABLE) || !(kind & MGV__UNICODE_CASED);
}

/* Whether a cluster goes on between two code points of these breaking properties (UAX #29, GB3 to GB999 without GB9c). regionals: how many
   regional indicators end with `before`; pictograph: `before` is the joiner behind a pictograph and what extends it. */
static int mgv__cluster_joins(uint32_t before, uint32_t code_before, uint32_t after, uint32_t code_after, size_t regionals,
                              int pictograph) {
    int lv; /* a syllable without a final consonant */
    if (code_before == '\r' && code_after == '\n') return 1;
    if (before == MGV__BREAK_CONTROL || after == MGV__BREAK_CONTROL) return 0;
    lv = before == MGV__BREAK_HANGUL_SYLLABLE && (code_before - MGV__HANGUL_S) % MGV__HANGUL_TS == 0;
    if (before == MGV__BREAK_L && (after == MGV__BREAK_L || after == MGV__BREAK_V || after == MGV__BREAK_HANGUL_SYLLABLE)) return 1;
    if ((before == MGV__BREAK_V || lv) && (after == MGV__BREAK_V || after == MGV__BREAK_T)) return 1;
    if ((before == MGV__BREAK_T || before == MGV__BREAK_HANGUL_SYLLABLE) && after == MGV__BREAK_T) return 1;
    if (after == MGV__BREAK_EXTEND || after == MGV__BREAK_ZWJ || after == MGV__BREAK_SPACING_MARK || before == MGV__BREAK_PREPEND) return 1;
    if (pictograph && after == MGV__BREAK_PICTOGRAPH) return 1;
    return before == MGV__BREAK_REGIONAL && after == MGV__BREAK_REGIONAL && regionals % 2 == 1;
}
/* The end of the extended grapheme cluster at p < end. */
static const char *mgv__cluster_end(const char *p, const char *end, mgv__unicode_run *run) {
    uint32_t code, next, kind, next_kind;
    size_t length = mgv__utf8_read(p, &code), regionals;
    int pictograph, joined = 0;
    p += length;
    if (p == end || (code < 0x80 && code != '\r' && (unsigned char)*p < 0x80)) return p;
    kind = mgv__unicode_class(code, run) >> MGV__UNICODE_BREAK_SHIFT;
    regionals = kind == MGV__BREAK_REGIONAL;
    pictograph = kind == MGV__BREAK_PICTOGRAPH;
    for (; p < end; p += length, code = next, kind = next_kind) {
        length = mgv__utf8_read(p, &next);
        next_kind = mgv__unicode_class(next, run) >> MGV__UNICODE_BREAK_SHIFT;
        if (!mgv__cluster_joins(kind, code, next_kind, next, regionals, joined)) return p;
        regionals = next_kind == MGV__BREAK_REGIONAL ? regionals + 1 : 0;
        joined = pictograph && next_kind == MGV__BREAK_ZWJ;
        pictograph = next_kind == MGV__BREAK_PICTOGRAPH || (pictograph && next_kind == MGV__BREAK_EXTEND);
    }
    return p;
}

static const mgv__unicode_pair *mgv__unicode_decomposition(uint32_t code) {
    size_t low = 0, high = sizeof mgv__unicode_decompositions / sizeof mgv__unicode_decompositions[0];
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (mgv__unicode_decompositions[middle].code == code) return &mgv__unicode_decompositions[middle];
        if (mgv__unicode_decompositions[middle].code < code) low = middle + 1;
        else high = middle;
    }
    return NULL;
}
enum { MGV__MAX_DECOMPOSITION = 4 }; /* code points of a canonical decomposition, at most */
/* The whole canonical decomposition; returns how many code points. */
static size_t mgv__unicode_decompose(uint32_t code, uint32_t *out) {
    uint32_t rest[MGV__MAX_DECOMPOSITION];
    size_t count = 0, left = 0;
    if (code - MGV__HANGUL_S < MGV__HANGUL_SYLLABLES) {
        uint32_t s = code - MGV__HANGUL_S;
        out[0] = MGV__HANGUL_L + s / (MGV__HANGUL_VS * MGV__HANGUL_TS);
        out[1] = MGV__HANGUL_V + s % (MGV__HANGUL_VS * MGV__HANGUL_TS) / MGV__HANGUL_TS;
        out[2] = MGV__HANGUL_T + s % MGV__HANGUL_TS;
        return s % MGV__HANGUL_TS ? 3 : 2;
    }
    for (;;) {
        const mgv__unicode_pair *row = mgv__unicode_decomposition(code);
        if (row == NULL) {
            out[count++] = code;
            if (left == 0) return count;
            code = rest[--left];
            continue;
        }
        if (row->second) rest[left++] = row->second;
        code = row->first;
    }
}
/* The code point that two compose to; 0: they do not. */
static uint32_t mgv__unicode_compose(uint32_t first, uint32_t second) {
    size_t low = 0, high = sizeof mgv__unicode_compositions / sizeof mgv__unicode_compositions[0];
    uint32_t s = first - MGV__HANGUL_S;
    if (first - MGV__HANGUL_L < MGV__HANGUL_LS && second - MGV__HANGUL_V < MGV__HANGUL_VS) {
        return MGV__HANGUL_S + ((first - MGV__HANGUL_L) * MGV__HANGUL_VS + (second - MGV__HANGUL_V)) * MGV__HANGUL_TS;
    }
    if (s < MGV__HANGUL_SYLLABLES && s % MGV__HANGUL_TS == 0 && second - MGV__HANGUL_T - 1 < MGV__HANGUL_TS - 1) {
        return first + (second - MGV__HANGUL_T);
    }
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const mgv__unicode_pair *row = &mgv__unicode_decompositions[mgv__unicode_compositions[middle]];
        if (row->first == first && row->second == second) return row->code;
        if (row->first < first || (row->first == first && row->second < second)) low = middle + 1;
        else high = middle;
    }
    return 0;
}
/* Code points carry their combining class above bit 24 while they are put in order. */
enum { MGV__COMBINING_SHIFT = 24 };
static int mgv__unicode_compare_combining(const void *context, uint32_t a, uint32_t b) {
    (void)context;
    return (int)(a >> MGV__COMBINING_SHIFT) - (int)(b >> MGV__COMBINING_SHIFT);
}
/* Marks between starters in the order of their classes (Unicode 15, D109), then what composes (D117), in place; returns how many are left.
   scratch holds as many. */
static size_t mgv__unicode_compose_all(uint32_t *codes, size_t count, uint32_t *scratch) {
    const uint32_t plain = (1u << MGV__COMBINING_SHIFT) - 1;
    size_t i, begin, out = 0, starter = SIZE_MAX;
    uint32_t last = 0; /* the class of the last code point kept behind the starter */
    for (i = 0; i < count; i = begin + 1) {
        for (begin = i; begin < count && codes[begin] > plain; begin++) continue;
        mgv__sort(codes + i, scratch, begin - i, mgv__unicode_compare_combining, NULL);
    }
    for (i = 0; i < count; i++) {
        uint32_t combining = codes[i] >> MGV__COMBINING_SHIFT, code = codes[i] & plain, composed = 0;
        int blocked = starter == SIZE_MAX || (out > starter + 1 && last >= combining); /* something of that class stands between */
        if (!blocked) composed = mgv__unicode_compose(codes[starter], code);
        if (composed) {
            codes[starter] = composed;
            continue;
        }
        if (combining == 0) starter = out;
        last = combining;
        codes[out++] = code;
    }
    return out;
}

#endif /* MEGAVIT_TEXT */

/* ---------------------------------------------------------------------------------------------------------------
   >>tokenizer: from text to ids and back

   tokenizer.json of huggingface/tokenizers (0.23), vocab.json with merges.txt, and .tiktoken files. A text goes through the stages of that
   library: added tokens are cut out; what is left is normalised, cut into pieces by the pre-tokenizers, and each piece becomes ids by the
   model, BPE or Unigram; the post-processor puts special tokens around. Each stage is a list of steps, each step a row of a table; what is
   in no table is refused when the file is opened. Time is linear in the text but for the logarithm of a heap in BPE. */
#ifdef MEGAVIT_TEXT

#define MGV__NO_ID UINT32_MAX

enum {
    MGV__STEP_BYTES = 32,         /* of a pattern or a replacement */
    MGV__MAX_STEPS = 16,          /* of one stage */
    MGV__MAX_SPECIALS = 8,        /* special tokens before a text, and behind it */
    MGV__MAX_ADDED_BYTES = 512,   /* of an added token: each place of a text may look at as many */
    MGV__MAX_PROBES = 1024,       /* a file whose names collide more often is made to */
    MGV__LOW_CODES = 0x180,       /* code points with a table of their own; all that bytes are written as are among them */
    MGV__SHORT_RUN = 32           /* symbols of BPE that are merged without a heap */
};

/* One step of a stage. */
typedef enum mgv__step_kind {
    MGV__STEP_SEQUENCE = 0,
    MGV__STEP_LOWER, MGV__STEP_NFC, MGV__STEP_REPLACE, MGV__STEP_REPLACE_SET, MGV__STEP_PREPEND, MGV__STEP_STRIP, MGV__STEP_PRECOMPILED,
    MGV__STEP_SPLIT, MGV__STEP_SPLIT_PATTERN, MGV__STEP_BYTES_AS_CHARACTERS, MGV__STEP_METASPACE, MGV__STEP_SPLIT_SPACES,
    MGV__STEP_BYTE_FALLBACK, MGV__STEP_FUSE, MGV__STEP_SUFFIX, MGV__STEP_NOTHING
} mgv__step_kind;
typedef enum mgv__split { MGV__SPLIT_REMOVED, MGV__SPLIT_ISOLATED, MGV__SPLIT_WITH_PREVIOUS, MGV__SPLIT_WITH_NEXT } mgv__split;
typedef struct mgv__step {
    mgv__step_kind kind;
    char from[MGV__STEP_BYTES], to[MGV__STEP_BYTES];
    uint32_t from_bytes, to_bytes;
    uint32_t set[4];              /* REPLACE_SET: the ASCII characters of it */
    uint32_t least;               /* and how many must follow each other */
    int spaces, negated, many;    /* all white space is in it; everything else is; as many as there are, not `least` */
    int final_sigma;              /* LOWER: a sigma that ends a word is another letter */
    mgv__split split;
    int invert;                   /* SPLIT_PATTERN: what matches is kept, not what lies between */
    const struct mgv__pattern *pattern;
    int prefix_space, use_pattern;/* BYTES_AS_CHARACTERS */
    int prepend_first, prepend_always, pieces; /* METASPACE */
    uint32_t left, right;         /* STRIP: at most so many */
} mgv__step;
typedef struct mgv__steps {
    mgv__step step[MGV__MAX_STEPS];
    uint32_t count;
} mgv__steps;

/* A tree of names, bytes on its edges. The children of a node lie together, ordered. */
typedef struct mgv__trie_node {
    uint32_t children, id; /* the first child; whose name ends here, or MGV__NO_ID */
    uint16_t count;
    uint8_t label;
} mgv__trie_node;
typedef struct mgv__trie { mgv__trie_node *nodes; } mgv__trie;

typedef struct mgv__added {
    uint32_t id;
    int left, right, normalized, special; /* eats white space on its left, right; is looked for in normalised text; is left out of texts */
} mgv__added;

/* Where two symbols become one. */
typedef struct mgv__merge { uint32_t left, right, rank, id; } mgv__merge;

struct mgv_tokenizer {
    mgv_allocator allocator;
    mgv_tokenizer_info info;
    /* names by id, those of the model first found by hash */
    char *pool;
    size_t pool_bytes, pool_room;
    uint32_t *offsets;            /* of names in the pool, and where the last one ends */
    uint32_t *lengths;
    uint32_t count, model_count;  /* ids; of the model */
    uint32_t *slots, slot_count;  /* ids by hash, MGV__NO_ID: none */
    mgv__added *added;            /* ordered by id */
    uint32_t added_count;
    mgv__trie added_raw, added_normalized;
    /* stages */
    mgv__steps normalizers, pre_tokenizers, decoders;
    uint32_t before[MGV__MAX_SPECIALS], behind[MGV__MAX_SPECIALS], before_count, behind_count;
    unsigned char *charsmap;      /* Precompiled: units of a double array, then replacements with a zero behind each */
    uint32_t charsmap_units, charsmap_bytes;
    /* both models */
    int unigram, fuse_unknown, byte_fallback, ignore_merges;
    uint32_t unknown, byte_ids[256];
    /* BPE */
    char suffix[MGV__STEP_BYTES]; /* of the last symbol of a piece */
    mgv__merge *merges;           /* by hash; left MGV__NO_ID: empty */
    uint32_t merge_slots;
    uint32_t *bigrams, bigram_mask; /* bits: may a merge reach over the border between two characters? */
    uint32_t low_ids[MGV__LOW_CODES], low_suffix_ids[MGV__LOW_CODES];
    /* Unigram */
    double *scores, unknown_score;
    mgv__trie pieces;
};

static uint64_t mgv__mix(uint64_t value) { /* murmur3's finaliser */
    value ^= value >> 33;
    value *= 0xFF51AFD7ED558CCDu;
    value ^= value >> 33;
    value *= 0xC4CEB9FE1A85EC53u;
    return value ^ value >> 33;
}
static uint64_t mgv__name_hash(const char *name, size_t bytes) {
    uint64_t hash = bytes, word;
    for (; bytes >= 8; name += 8, bytes -= 8) {
        memcpy(&word, name, 8);
        hash = mgv__mix(hash ^ word);
    }
    word = 0;
    memcpy(&word, name, bytes);
    return mgv__mix(hash ^ word);
}
static int mgv__name_is(const mgv_tokenizer *t, uint32_t id, const char *name, size_t bytes) {
    return t->lengths[id] == bytes && memcmp(t->pool + t->offsets[id], name, bytes) == 0;
}
static uint32_t mgv__name_slot(const mgv_tokenizer *t, const char *name, size_t bytes) {
    return (uint32_t)((mgv__name_hash(name, bytes) >> 32) * t->slot_count >> 32);
}
/* The model's token of this name, or MGV__NO_ID. */
static uint32_t mgv__token_find(const mgv_tokenizer *t, const char *name, size_t bytes) {
    uint32_t slot = mgv__name_slot(t, name, bytes);
    while (t->slots[slot] != MGV__NO_ID && !mgv__name_is(t, t->slots[slot], name, bytes)) {
        slot = slot + 1 == t->slot_count ? 0 : slot + 1;
    }
    return t->slots[slot];
}
static uint32_t mgv__pair_slot(const mgv_tokenizer *t, uint32_t left, uint32_t right) {
    return (uint32_t)((mgv__mix((uint64_t)left << 32 | right) >> 32) * t->merge_slots >> 32);
}
static const mgv__merge *mgv__merge_find(const mgv_tokenizer *t, uint32_t left, uint32_t right) {
    uint32_t slot = mgv__pair_slot(t, left, right);
    while (t->merges[slot].left != MGV__NO_ID) {
        if (t->merges[slot].left == left && t->merges[slot].right == right) return &t->merges[slot];
        slot = slot + 1 == t->merge_slots ? 0 : slot + 1;
    }
    return NULL;
}
static uint32_t mgv__bigram(const mgv_tokenizer *t, uint32_t first, uint32_t second) {
    return (uint32_t)mgv__mix((uint64_t)first << 32 | second) & t->bigram_mask;
}
static const mgv__trie_node *mgv__trie_child(const mgv__trie *trie, const mgv__trie_node *node, uint8_t label) {
    const mgv__trie_node *children = trie->nodes + node->children;
    uint32_t low = 0, high = node->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (children[middle].label == label) return &children[middle];
        if (children[middle].label < label) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

/* What one call works with. All buffers grow, unless they were given their full size beforehand. */
typedef struct mgv__buffer { char *data; size_t bytes, room; } mgv__buffer;
typedef struct mgv__piece {
    uint32_t begin, bytes; /* in the call's text */
    uint32_t id;           /* MGV__NO_ID: still text */
    uint32_t first;        /* nothing of the text lies before it */
} mgv__piece;
typedef struct mgv__tokenize_call {
    const mgv_tokenizer *t;
    const mgv_allocator *allocator;
    mgv_error *error;
    mgv__buffer normal[2], text, other_text; /* texts */
    mgv__buffer pieces, other_pieces;        /* mgv__piece */
    mgv__buffer codes, work;                 /* NFC's code points; symbols, heaps and paths */
    mgv__buffer ids;                         /* uint32_t: the result */
    mgv__unicode_run run;
} mgv__tokenize_call;

/* Makes room for `extra` bytes behind what is there. */
static mgv_result mgv__buffer_room(mgv__tokenize_call *call, mgv__buffer *buffer, size_t extra) {
    size_t need, room;
    char *data;
    if (extra <= buffer->room - buffer->bytes) return MGV_OK;
    if (!mgv__add(buffer->bytes, extra, &need) || need > UINT32_MAX / 2) {
        return mgv__fail(call->error, MGV_ERROR_CAPACITY, "the text is too long: one stage of it would have 2 GiB or more");
    }
    room = need < 1024 ? 1024 : need + need / 2;
    data = (char *)mgv__alloc(call->allocator, room);
    if (data == NULL) return mgv__fail_nomem(call->error, "tokenizing", room);
    if (buffer->bytes) memcpy(data, buffer->data, buffer->bytes);
    mgv__free(call->allocator, buffer->data);
    buffer->data = data;
    buffer->room = room;
    return MGV_OK;
}
static mgv_result mgv__buffer_append(mgv__tokenize_call *call, mgv__buffer *buffer, const void *data, size_t bytes) {
    mgv_result result = mgv__buffer_room(call, buffer, bytes);
    if (result != MGV_OK) return result;
    if (bytes) memcpy(buffer->data + buffer->bytes, data, bytes);
    buffer->bytes += bytes;
    return MGV_OK;
}
static mgv_result mgv__push_id(mgv__tokenize_call *call, uint32_t id) { return mgv__buffer_append(call, &call->ids, &id, sizeof id); }
static mgv_result mgv__push_piece(mgv__tokenize_call *call, mgv__buffer *pieces, size_t begin, size_t bytes, uint32_t id, int first) {
    mgv__piece piece;
    if (bytes == 0 && id == MGV__NO_ID) return MGV_OK;
    piece.begin = (uint32_t)begin;
    piece.bytes = (uint32_t)bytes;
    piece.id = id;
    piece.first = first != 0;
    return mgv__buffer_append(call, pieces, &piece, sizeof piece);
}

/* ---- normalizers: each appends what it makes of in[0 .. bytes) to out, which is empty ---- */

static mgv_result mgv__step_lower(mgv__tokenize_call *call, const mgv__step *step, const char *in, size_t bytes, mgv__buffer *out) {
    const char *p = in, *end = in + bytes;
    mgv_result result = mgv__buffer_room(call, out, bytes + bytes / 2 + 4); /* U+0130 has two bytes and becomes three; no other one grows by
                                                                              more */
    char *to;
    if (result != MGV_OK) return result;
    to = out->data;
    while (p < end) {
        uint32_t code, lower[2];
        size_t length = mgv__utf8_read(p, &code), count, i;
        count = mgv__unicode_to_lower(code, lower);
        if (code == 0x3A3 && step->final_sigma && mgv__unicode_final_sigma(in, p, end)) lower[0] = 0x3C2;
        for (i = 0; i < count; i++) to += mgv__json_utf8(to, lower[i]);
        p += length;
    }
    out->bytes = (size_t)(to - out->data);
    return MGV_OK;
}

/* Unicode 15, UAX #15. What NFC leaves alone is copied; a run of what it may change, with the code point before it, is taken apart and put
   together again. */
static mgv_result mgv__step_nfc(mgv__tokenize_call *call, const mgv__step *step, const char *in, size_t bytes, mgv__buffer *out) {
    const char *p = in, *end = in + bytes, *run, *before;
    mgv_result result = MGV_OK;
    (void)step;
    while (p < end) {
        uint32_t code, *codes;
        size_t count = 0, length, i;
        for (run = before = p; run < end; before = run, run += length) { /* run: the first code point that NFC may change */
            length = mgv__utf8_read(run, &code);
            if (code >= 0x300 && (mgv__unicode_class(code, &call->run) & MGV__UNICODE_COMPOSES)) break;
        }
        if (run == end) before = end;
        result = mgv__buffer_append(call, out, p, (size_t)(before - p));
        if (result != MGV_OK || run == end) return result;
        call->codes.bytes = 0;
        for (p = before; p < end; p += length) {
            length = mgv__utf8_read(p, &code);
            if (p > before && !(mgv__unicode_class(code, &call->run) & MGV__UNICODE_COMPOSES)) break;
            result = mgv__buffer_room(call, &call->codes, MGV__MAX_DECOMPOSITION * sizeof code);
            if (result != MGV_OK) return result;
            codes = (uint32_t *)(void *)(call->codes.data + call->codes.bytes);
            count = mgv__unicode_decompose(code, codes);
            for (i = 0; i < count; i++) codes[i] |= mgv__unicode_combining_class(codes[i]) << MGV__COMBINING_SHIFT;
            call->codes.bytes += count * sizeof code;
        }
        count = call->codes.bytes / sizeof code;
        result = mgv__buffer_room(call, &call->codes, call->codes.bytes);
        if (result == MGV_OK) result = mgv__buffer_room(call, out, 4 * count);
        if (result != MGV_OK) return result;
        codes = (uint32_t *)(void *)call->codes.data;
        count = mgv__unicode_compose_all(codes, count, codes + count);
        for (i = 0; i < count; i++) out->bytes += mgv__json_utf8(out->data + out->bytes, codes[i]);
    }
    return MGV_OK;
}

static const char *mgv__find_bytes(const char *p, const char *end, const char *bytes, size_t count) {
    while ((size_t)(end - p) >= count) {
        p = (const char *)memchr(p, bytes[0], (size_t)(end - p) - count + 1);
        if (p == NULL) return NULL;
        if (memcmp(p, bytes, count) == 0) return p;
        p++;
    }
    return NULL;
}
static mgv_result mgv__step_replace(mgv__tokenize_call *call, const mgv__step *step, const char *in, size_t bytes, mgv__buffer *out) {
    const char *p = in, *end = in + bytes, *found;
    mgv_result result = MGV_OK;
    while (result == MGV_OK && (found = mgv__find_bytes(p, end, step->from, step->from_bytes)) != NULL) {
        result = mgv__buffer_append(call, out, p, (size_t)(found - p));
        if (result == MGV_OK) result = mgv__buffer_append(call, out, step->to, step->to_bytes);
        p = found + step->from_bytes;
    }
    return result == MGV_OK ? mgv__buffer_append(call, out, p, (size_t)(end - p)) : result;
}

/* Is the code point in the step's set? */
static int mgv__step_has(mgv__tokenize_call *call, const mgv__step *step, uint32_t code) {
    int has = code < 0x80 && (step->set[code / 32] >> code % 32 & 1u);
    if (!has && step->spaces) has = (mgv__unicode_class(code, &call->run) & MGV__UNICODE_SPACE) != 0;
    return has != step->negated;
}
static mgv_result mgv__step_replace_set(mgv__tokenize_call *call, const mgv__step *step, const char *in, size_t bytes, mgv__buffer *out) {
    const char *p = in, *end = in + bytes, *stop, *plain = in;
    mgv_result result = MGV_OK;
    while (p < end && result == MGV_OK) {
        uint32_t count = 0, code;
        size_t length;
        for (stop = p; stop < end && (step->many || count < step->least); stop += length, count++) {
            length = mgv__utf8_read(stop, &code);
            if (!mgv__step_has(call, step, code)) break;
        }
        if (count < step->least) { /* shorter than it must be: stays, and so does what did not match */
            p = count ? stop : p + mgv__utf8_read(p, &code);
            continue;
        }
        result = mgv__buffer_append(call, out, plain, (size_t)(p - plain));
        if (result == MGV_OK) result = mgv__buffer_append(call, out, step->to, step->to_bytes);
        plain = p = stop;
    }
    return result == MGV_OK ? mgv__buffer_append(call, out, plain, (size_t)(end - plain)) : result;
}

static mgv_result mgv__step_prepend(mgv__tokenize_call *call, const mgv__step *step, const char *in, size_t bytes, mgv__buffer *out) {
    mgv_result result = bytes ? mgv__buffer_append(call, out, step->to, step->to_bytes) : MGV_OK;
    return result == MGV_OK ? mgv__buffer_append(call, out, in, bytes) : result;
}

static int mgv__is_space(mgv__tokenize_call *call, const char *p) {
    uint32_t code;
    mgv__utf8_read(p, &code);
    return (mgv__unicode_class(code, &call->run) & MGV__UNICODE_SPACE) != 0;
}
/* The begin of in[0 .. bytes) moves behind the white space there. */
static const char *mgv__spaces_end(mgv__tokenize_call *call, const char *p, const char *end) {
    uint32_t code;
    while (p < end && mgv__is_space(call, p)) p += mgv__utf8_read(p, &code);
    return p;
}
static const char *mgv__spaces_begin(mgv__tokenize_call *call, const char *begin, const char *p) {
    while (p > begin && mgv__is_space(call, mgv__utf8_before(p))) p = mgv__utf8_before(p);
    return p;
}
static mgv_result mgv__step_strip(mgv__tokenize_call *call, const mgv__step *step, const char *in, size_t bytes, mgv__buffer *out) {
    const char *begin = in, *end = in + bytes;
    if (step->left) begin = mgv__spaces_end(call, begin, end);
    if (step->right) end = mgv__spaces_begin(call, begin, end);
    return mgv__buffer_append(call, out, begin, (size_t)(end - begin));
}

/* What the map makes of text[0 .. bytes): a string in it, or NULL. Of the keys that the text begins with the shortest counts, as in
   huggingface/spm_precompiled, Precompiled::transform. The double array is Darts-clone's. */
static const char *mgv__charsmap_find(const mgv_tokenizer *t, const char *text, size_t bytes) {
    size_t place = 0, i;
    uint32_t unit;
    const unsigned char *strings = t->charsmap + (size_t)t->charsmap_units * 4;
    if (t->charsmap_units == 0) return NULL;
    for (i = 0; i <= bytes; i++) {
        const unsigned char *u = t->charsmap + place * 4;
        unit = (uint32_t)u[0] | (uint32_t)u[1] << 8 | (uint32_t)u[2] << 16 | (uint32_t)u[3] << 24;
        if (i > 0 && (unit & 0x800000FFu) != (unsigned char)text[i - 1]) return NULL;
        place ^= (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
        if (i > 0 && (unit >> 8 & 1u)) break;
        if (i == bytes || text[i] == 0) return NULL;
        place ^= (unsigned char)text[i];
        if (place >= t->charsmap_units) return NULL;
    }
    if (i > bytes || place >= t->charsmap_units) return NULL;
    unit = (uint32_t)t->charsmap[place * 4] | (uint32_t)t->charsmap[place * 4 + 1] << 8 | (uint32_t)t->charsmap[place * 4 + 2] << 16 |
           (uint32_t)t->charsmap[place * 4 + 3] << 24;
    unit &= 0x7FFFFFFFu;
    if (unit >= t->charsmap_bytes || (strings[unit] & 0xC0) == 0x80) return NULL; /* strings are UTF-8, zeros at the end */
    return (const char *)strings + unit;
}
/* As tokenizers does it (normalizers/precompiled.rs): a cluster of less than six bytes is looked up whole, others by code point. */
static mgv_result mgv__step_precompiled(mgv__tokenize_call *call, const mgv__step *step, const char *in, size_t bytes, mgv__buffer *out) {
    const char *p = in, *end = in + bytes, *stop, *to;
    mgv_result result = MGV_OK;
    (void)step;
    while (p < end) {
        stop = mgv__cluster_end(p, end, &call->run);
        to = stop - p < 6 ? mgv__charsmap_find(call->t, p, (size_t)(stop - p)) : NULL;
        if (to != NULL) {
            result = mgv__buffer_append(call, out, to, strlen(to));
            p = stop;
        }
        while (p < stop && result == MGV_OK) {
            uint32_t code;
            size_t length = mgv__utf8_read(p, &code);
            to = mgv__charsmap_find(call->t, p, length);
            result = to ? mgv__buffer_append(call, out, to, strlen(to)) : mgv__buffer_append(call, out, p, length);
            p += length;
        }
        if (result != MGV_OK) return result;
    }
    return MGV_OK;
}

typedef mgv_result (*mgv__normalize)(mgv__tokenize_call *call, const mgv__step *step, const char *in, size_t bytes, mgv__buffer *out);
static mgv__normalize mgv__normalize_function(mgv__step_kind kind) {
    switch (kind) {
    case MGV__STEP_LOWER: return mgv__step_lower;
    case MGV__STEP_NFC: return mgv__step_nfc;
    case MGV__STEP_REPLACE: return mgv__step_replace;
    case MGV__STEP_REPLACE_SET: return mgv__step_replace_set;
    case MGV__STEP_PREPEND: return mgv__step_prepend;
    case MGV__STEP_STRIP: return mgv__step_strip;
    default: return mgv__step_precompiled;
    }
}
/* *text moves into a buffer of the call. */
static mgv_result mgv__normalize_text(mgv__tokenize_call *call, const char **text, size_t *bytes) {
    const mgv__steps *steps = &call->t->normalizers;
    uint32_t i;
    for (i = 0; i < steps->count; i++) {
        mgv__buffer *out = &call->normal[i % 2];
        mgv_result result;
        out->bytes = 0;
        result = mgv__normalize_function(steps->step[i].kind)(call, &steps->step[i], *text, *bytes, out);
        if (result != MGV_OK) return result;
        *text = out->data;
        *bytes = out->bytes;
    }
    return MGV_OK;
}

/* ---- added tokens ---- */

static const mgv__added *mgv__added_find(const mgv_tokenizer *t, uint32_t id) {
    uint32_t low = 0, high = t->added_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (t->added[middle].id == id) return &t->added[middle];
        if (t->added[middle].id < id) low = middle + 1;
        else high = middle;
    }
    return NULL;
}
/* The longest name that starts at p; its bytes, or 0. */
static size_t mgv__added_at(const mgv__trie *trie, const char *p, const char *end, uint32_t *id) {
    const mgv__trie_node *node = trie->nodes;
    size_t depth, longest = 0;
    for (depth = 1; p < end; depth++) {
        node = mgv__trie_child(trie, node, (uint8_t)*p++);
        if (node == NULL) break;
        if (node->id == MGV__NO_ID) continue;
        *id = node->id;
        longest = depth;
    }
    return longest;
}
/* Hands the text between the added tokens to `section`, and the tokens as pieces to the call (tokenizers, added_vocabulary.rs,
   find_matches). */
typedef mgv_result (*mgv__section)(mgv__tokenize_call *call, const char *text, size_t bytes, int first);
static mgv_result mgv__split_added(mgv__tokenize_call *call, const mgv__trie *trie, const char *text, size_t bytes, int first,
                                   mgv__section section) {
    const char *p = text, *end = text + bytes, *start = text;
    mgv_result result = MGV_OK;
    while (trie->nodes != NULL && p < end) {
        uint32_t id = MGV__NO_ID;
        size_t length = mgv__added_at(trie, p, end, &id);
        const char *begin = p, *stop = p + length;
        const mgv__added *added;
        if (length == 0) {
            p++;
            continue;
        }
        added = mgv__added_find(call->t, id);
        p = stop;
        if (added->left) begin = mgv__spaces_begin(call, start, begin);
        if (added->right) stop = mgv__spaces_end(call, stop, end);
        if (begin < start) begin = start;
        if (start < begin) result = section(call, start, (size_t)(begin - start), first && start == text);
        if (result == MGV_OK) result = mgv__push_piece(call, &call->pieces, 0, 0, id, 0);
        if (result != MGV_OK) return result;
        start = stop;
        if (p < stop) p = stop;
    }
    return start < end ? section(call, start, (size_t)(end - start), first && start == text) : MGV_OK;
}
static mgv_result mgv__section_normalized(mgv__tokenize_call *call, const char *text, size_t bytes, int first) {
    size_t begin = call->text.bytes;
    mgv_result result = mgv__buffer_append(call, &call->text, text, bytes);
    return result == MGV_OK ? mgv__push_piece(call, &call->pieces, begin, bytes, MGV__NO_ID, first) : result;
}
static mgv_result mgv__section_raw(mgv__tokenize_call *call, const char *text, size_t bytes, int first) {
    mgv_result result = mgv__normalize_text(call, &text, &bytes);
    return result == MGV_OK ? mgv__split_added(call, &call->t->added_normalized, text, bytes, first, mgv__section_normalized) : result;
}

/* ---- pre-tokenizers ---- */

/* The patterns that tokenizers of our families cut with, each a function: the end of the match at p, or p where there is none. Alternatives
   are tried in the order in which the pattern has them. */
typedef struct mgv__scan { mgv__tokenize_call *call; const char *end; uint32_t marks, digits; } mgv__scan;
typedef const char *(*mgv__match)(const mgv__scan *scan, const char *p);
typedef struct mgv__pattern {
    const char *text;
    mgv__match match;
    uint32_t marks;  /* not 0: marks count as letters */
    uint32_t digits; /* that stay together */
} mgv__pattern;

enum { MGV__KIND_OTHER = 0, MGV__KIND_LETTER, MGV__KIND_NUMBER, MGV__KIND_SPACE, MGV__KIND_END };
/* The kind of what stands at p, and its length. */
static int mgv__kind(const mgv__scan *scan, const char *p, size_t *length) {
    uint32_t code, kind;
    if (p == scan->end) {
        *length = 0;
        return MGV__KIND_END;
    }
    *length = mgv__utf8_read(p, &code);
    kind = mgv__unicode_class(code, &scan->call->run);
    if (kind & MGV__UNICODE_SPACE) return MGV__KIND_SPACE;
    kind &= MGV__UNICODE_GENERAL;
    if (kind == MGV__UNICODE_LETTER || (kind == MGV__UNICODE_MARK && scan->marks)) return MGV__KIND_LETTER;
    return kind == MGV__UNICODE_NUMBER ? MGV__KIND_NUMBER : MGV__KIND_OTHER;
}
/* Behind as many of this kind as follow, `most` at the most. */
static const char *mgv__kind_end(const mgv__scan *scan, const char *p, int kind, size_t most) {
    size_t length;
    for (; most > 0 && mgv__kind(scan, p, &length) == kind; most--) p += length;
    return p;
}
/* 's|'t|'re|'ve|'m|'ll|'d, any_case: without regard to case, under which the long s is an s. */
static const char *mgv__match_contraction(const mgv__scan *scan, const char *p, int any_case) {
    static const char *const endings[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    size_t left = (size_t)(scan->end - p), i, k;
    if (left < 2 || *p != '\'') return p;
    if (any_case && left >= 3 && memcmp(p + 1, "\xC5\xBF", 2) == 0) return p + 3;
    for (i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        size_t length = strlen(endings[i]);
        if (length > left - 1) continue;
        for (k = 0; k < length; k++) {
            char c = p[1 + k];
            if (any_case && c >= 'A' && c <= 'Z') c = (char)(c + ('a' - 'A'));
            if (c != endings[i][k]) break;
        }
        if (k == length) return p + 1 + length;
    }
    return p;
}
/* \s+(?!\S)|\s+: white space but for the last one before something else, unless that is all there is. */
static const char *mgv__match_spaces(const mgv__scan *scan, const char *p) {
    const char *stop = p, *last = p;
    size_t length;
    while (mgv__kind(scan, stop, &length) == MGV__KIND_SPACE) {
        last = stop;
        stop += length;
    }
    return stop == scan->end || last == p ? stop : last;
}
/* ` ?X+` for one kind. */
static const char *mgv__match_word(const mgv__scan *scan, const char *p, int kind) {
    const char *word = p + (p < scan->end && *p == ' '), *stop = mgv__kind_end(scan, word, kind, SIZE_MAX);
    return stop == word ? p : stop;
}
static const char *mgv__match_gpt2(const mgv__scan *scan, const char *p) {
    const char *stop = mgv__match_contraction(scan, p, 0);
    if (stop == p) stop = mgv__match_word(scan, p, MGV__KIND_LETTER);
    if (stop == p) stop = mgv__match_word(scan, p, MGV__KIND_NUMBER);
    if (stop == p) stop = mgv__match_word(scan, p, MGV__KIND_OTHER);
    return stop == p ? mgv__match_spaces(scan, p) : stop;
}
static const char *mgv__match_qwen(const mgv__scan *scan, const char *p) {
    const char *stop = mgv__match_contraction(scan, p, 1), *run, *line = p;
    size_t length, next;
    int kind;
    if (stop > p) return stop;
    kind = mgv__kind(scan, p, &length);
    if (kind == MGV__KIND_LETTER) return mgv__kind_end(scan, p, MGV__KIND_LETTER, SIZE_MAX);
    if (kind == MGV__KIND_NUMBER) return mgv__kind_end(scan, p, MGV__KIND_NUMBER, scan->digits);
    if (*p != '\r' && *p != '\n' && mgv__kind(scan, p + length, &next) == MGV__KIND_LETTER) {
        return mgv__kind_end(scan, p + length, MGV__KIND_LETTER, SIZE_MAX);
    }
    stop = mgv__match_word(scan, p, MGV__KIND_OTHER);
    if (stop > p) {
        while (stop < scan->end && (*stop == '\r' || *stop == '\n')) stop++;
        return stop;
    }
    for (run = p; mgv__kind(scan, run, &length) == MGV__KIND_SPACE; run += length) { /* \s*[\r\n]+ */
        if (*run == '\r' || *run == '\n') line = run + 1;
    }
    return line > p ? line : mgv__match_spaces(scan, p);
}
static const char *mgv__match_clip(const mgv__scan *scan, const char *p) {
    static const char *const specials[] = {"<|startoftext|>", "<|endoftext|>"};
    const char *stop;
    size_t i, length;
    int kind;
    for (i = 0; i < 2; i++) {
        length = strlen(specials[i]);
        if ((size_t)(scan->end - p) >= length && memcmp(p, specials[i], length) == 0) return p + length;
    }
    stop = mgv__match_contraction(scan, p, 0);
    if (stop > p) return stop;
    kind = mgv__kind(scan, p, &length);
    return kind == MGV__KIND_SPACE ? p : mgv__kind_end(scan, p, kind, kind == MGV__KIND_NUMBER ? 1 : SIZE_MAX);
}
#define MGV__CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
#define MGV__SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
static const mgv__pattern mgv__patterns[] = {
    /* the one that ByteLevel has of its own */
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", mgv__match_gpt2, 0, UINT32_MAX},
    {MGV__CONTRACTIONS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" MGV__SPACES, mgv__match_qwen, 0, 1},
    {MGV__CONTRACTIONS "[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" MGV__SPACES,
     mgv__match_qwen, 1, 1},
    {MGV__CONTRACTIONS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" MGV__SPACES, mgv__match_qwen, 0, 3},
    {"<\\|startoftext\\|>|<\\|endoftext\\|>|'s|'t|'re|'ve|'m|'ll|'d|[\\p{L}]+|[\\p{N}]|[^\\s\\p{L}\\p{N}]+", mgv__match_clip, 0, 1},
    {"'s|'t|'re|'ve|'m|'ll|'d|[\\p{L}]+|[\\p{N}]|[^\\s\\p{L}\\p{N}]+", mgv__match_clip, 0, 1},
};

/* A step takes one piece of the call's text and pushes what it becomes; those that change characters write them into other_text. */
static mgv_result mgv__push_part(mgv__tokenize_call *call, const mgv__piece *in, const char *begin, const char *end) {
    const size_t place = (size_t)(begin - call->text.data);
    return mgv__push_piece(call, &call->other_pieces, place, (size_t)(end - begin), MGV__NO_ID, in->first && place == in->begin);
}
static mgv_result mgv__step_split_pattern(mgv__tokenize_call *call, const mgv__step *step, const mgv__pattern *pattern,
                                          const mgv__piece *in) {
    const char *p = call->text.data + in->begin, *gap = p, *stop;
    const int gaps = step->split == MGV__SPLIT_ISOLATED || !step->invert, matches = step->split == MGV__SPLIT_ISOLATED || step->invert;
    mgv__scan scan;
    mgv_result result = MGV_OK;
    scan.call = call;
    scan.end = p + in->bytes;
    scan.marks = pattern->marks;
    scan.digits = pattern->digits;
    while (p < scan.end && result == MGV_OK) {
        uint32_t code;
        stop = pattern->match(&scan, p);
        if (stop == p) {
            p += mgv__utf8_read(p, &code);
            continue;
        }
        if (gaps) result = mgv__push_part(call, in, gap, p);
        if (matches && result == MGV_OK) result = mgv__push_part(call, in, p, stop);
        gap = p = stop;
    }
    return result == MGV_OK && gaps ? mgv__push_part(call, in, gap, p) : result;
}
static mgv_result mgv__step_split(mgv__tokenize_call *call, const mgv__step *step, const mgv__piece *in) {
    const char *p = call->text.data + in->begin, *end = p + in->bytes, *from = p, *found;
    mgv_result result = MGV_OK;
    while (result == MGV_OK && (found = mgv__find_bytes(from, end, step->from, step->from_bytes)) != NULL) {
        const char *behind = found + step->from_bytes;
        const char *cut = step->split == MGV__SPLIT_WITH_PREVIOUS ? behind : found; /* the piece before ends here */
        result = mgv__push_part(call, in, p, cut);
        if (step->split == MGV__SPLIT_ISOLATED && result == MGV_OK) result = mgv__push_part(call, in, found, behind);
        p = step->split == MGV__SPLIT_WITH_NEXT ? found : behind;
        from = behind;
    }
    return result == MGV_OK ? mgv__push_part(call, in, p, end) : result;
}
static mgv_result mgv__step_split_spaces(mgv__tokenize_call *call, const mgv__piece *in) {
    const char *p = call->text.data + in->begin, *end = p + in->bytes, *stop;
    mgv_result result = MGV_OK;
    while (result == MGV_OK && (p = mgv__spaces_end(call, p, end)) < end) {
        uint32_t code;
        for (stop = p; stop < end && !mgv__is_space(call, stop);) stop += mgv__utf8_read(stop, &code);
        result = mgv__push_part(call, in, p, stop);
        p = stop;
    }
    return result;
}
/* Spaces become the replacement, which may also be put in front; pieces begin with it. */
static mgv_result mgv__step_metaspace(mgv__tokenize_call *call, const mgv__step *step, const mgv__piece *in) {
    const char *p = call->text.data + in->begin, *end = p + in->bytes;
    mgv__buffer *out = &call->other_text;
    size_t begin = out->bytes, start = begin;
    const int starts = in->bytes >= step->to_bytes && memcmp(p, step->to, step->to_bytes) == 0;
    mgv_result result = MGV_OK;
    if (*p != ' ' && !starts && (step->prepend_always || (step->prepend_first && in->first))) {
        result = mgv__buffer_append(call, out, step->to, step->to_bytes);
    }
    for (; p < end && result == MGV_OK; p++) {
        const int meta = *p == ' ' || ((size_t)(end - p) >= step->to_bytes && memcmp(p, step->to, step->to_bytes) == 0);
        if (meta && step->pieces && out->bytes > begin) {
            result = mgv__push_piece(call, &call->other_pieces, begin, out->bytes - begin, MGV__NO_ID, in->first && begin == start);
            begin = out->bytes;
        }
        if (result == MGV_OK) result = mgv__buffer_append(call, out, *p == ' ' ? step->to : p, *p == ' ' ? step->to_bytes : 1);
    }
    if (result != MGV_OK) return result;
    return mgv__push_piece(call, &call->other_pieces, begin, out->bytes - begin, MGV__NO_ID, in->first && begin == start);
}
/* The character that stands for a byte in vocabularies of bytes (openai/gpt-2, src/encoder.py, bytes_to_unicode), and back: printable ones
   of Latin-1 stand for themselves, the others are counted from U+0100 on. */
static uint32_t mgv__byte_character(uint32_t byte) {
    if (byte < 0x21) return 0x100 + byte;
    if (byte >= 0x7F && byte <= 0xA0) return 0x121 + (byte - 0x7F);
    return byte == 0xAD ? 0x143 : byte;
}
static uint32_t mgv__character_byte(uint32_t code) { /* 256: it stands for none */
    if (code >= 0x100 && code < 0x121) return code - 0x100;
    if (code >= 0x121 && code < 0x143) return code - 0x121 + 0x7F;
    if (code == 0x143) return 0xAD;
    return code < 0x100 && mgv__byte_character(code) == code ? code : 256;
}
/* The piece as characters that stand for its bytes, at the end of other_text. */
static mgv_result mgv__push_bytes(mgv__tokenize_call *call, size_t begin, size_t bytes, int first) {
    mgv__buffer *out = &call->other_text;
    mgv_result result = mgv__buffer_room(call, out, 2 * bytes);
    const unsigned char *p = (const unsigned char *)call->text.data + begin;
    size_t start = out->bytes, i;
    char *to;
    if (result != MGV_OK) return result;
    to = out->data + start;
    for (i = 0; i < bytes; i++) {
        uint32_t code = mgv__byte_character(p[i]);
        if (code >= 0x80) *to++ = (char)(0xC0 | code >> 6);
        *to++ = (char)(code < 0x80 ? code : 0x80 | (code & 0x3F));
    }
    out->bytes = (size_t)(to - out->data);
    return mgv__push_piece(call, &call->other_pieces, start, out->bytes - start, MGV__NO_ID, first);
}
/* The pattern looks at text and not at bytes: what it cuts is pushed, then taken back and written as bytes. */
static mgv_result mgv__step_bytes(mgv__tokenize_call *call, const mgv__step *step, const mgv__piece *in) {
    size_t first = call->other_pieces.bytes, count, i;
    mgv__step whole;
    mgv__piece piece = *in;
    mgv_result result = MGV_OK;
    if (step->prefix_space && call->text.data[in->begin] != ' ') { /* a copy of the piece with its space */
        piece.begin = (uint32_t)call->text.bytes;
        piece.bytes = in->bytes + 1;
        result = mgv__buffer_room(call, &call->text, piece.bytes);
        if (result != MGV_OK) return result;
        call->text.data[piece.begin] = ' ';
        memcpy(call->text.data + piece.begin + 1, call->text.data + in->begin, in->bytes);
        call->text.bytes += piece.bytes;
    }
    if (!step->use_pattern) return mgv__push_bytes(call, piece.begin, piece.bytes, piece.first != 0);
    memset(&whole, 0, sizeof whole);
    whole.split = MGV__SPLIT_ISOLATED;
    result = mgv__step_split_pattern(call, &whole, &mgv__patterns[0], &piece);
    count = (call->other_pieces.bytes - first) / sizeof piece;
    call->normal[0].bytes = 0;
    if (result == MGV_OK) result = mgv__buffer_append(call, &call->normal[0], call->other_pieces.data + first, count * sizeof piece);
    call->other_pieces.bytes = first;
    for (i = 0; i < count && result == MGV_OK; i++) {
        memcpy(&piece, call->normal[0].data + i * sizeof piece, sizeof piece);
        result = mgv__push_bytes(call, piece.begin, piece.bytes, piece.first != 0);
    }
    return result;
}
static void mgv__buffer_swap(mgv__buffer *a, mgv__buffer *b) {
    mgv__buffer c = *a;
    *a = *b;
    *b = c;
}
static mgv_result mgv__pre_tokenize(mgv__tokenize_call *call) {
    const mgv__steps *steps = &call->t->pre_tokenizers;
    uint32_t k;
    for (k = 0; k < steps->count; k++) {
        const mgv__step *step = &steps->step[k];
        const int rewrites = step->kind == MGV__STEP_BYTES_AS_CHARACTERS || step->kind == MGV__STEP_METASPACE;
        size_t i, count = call->pieces.bytes / sizeof(mgv__piece);
        mgv_result result = MGV_OK;
        call->other_pieces.bytes = 0;
        call->other_text.bytes = 0;
        for (i = 0; i < count && result == MGV_OK; i++) {
            mgv__piece piece;
            memcpy(&piece, call->pieces.data + i * sizeof piece, sizeof piece);
            if (piece.id != MGV__NO_ID) result = mgv__push_piece(call, &call->other_pieces, 0, 0, piece.id, 0);
            else if (step->kind == MGV__STEP_SPLIT) result = mgv__step_split(call, step, &piece);
            else if (step->kind == MGV__STEP_SPLIT_PATTERN) result = mgv__step_split_pattern(call, step, step->pattern, &piece);
            else if (step->kind == MGV__STEP_SPLIT_SPACES) result = mgv__step_split_spaces(call, &piece);
            else if (step->kind == MGV__STEP_METASPACE) result = mgv__step_metaspace(call, step, &piece);
            else result = mgv__step_bytes(call, step, &piece);
        }
        if (result != MGV_OK) return result;
        mgv__buffer_swap(&call->pieces, &call->other_pieces);
        if (rewrites) mgv__buffer_swap(&call->text, &call->other_text);
    }
    return MGV_OK;
}

/* ---- BPE: the pair of the lowest rank becomes one symbol, the leftmost of equal ones first, until no pair is left ---- */

/* One symbol of a long run. */
typedef struct mgv__symbol {
    uint32_t id, before, behind; /* places, UINT32_MAX: none */
    uint32_t rank, merged;       /* of the pair that begins here; rank UINT32_MAX: it does not merge */
} mgv__symbol;

/* Heaps of rank << 32 | place: what comes out first is the next merge, if its place still has that rank. */
static void mgv__heap_push(uint64_t *heap, size_t *count, uint64_t value) {
    size_t i = (*count)++;
    while (i > 0 && heap[(i - 1) / 2] > value) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = value;
}
static uint64_t mgv__heap_pop(uint64_t *heap, size_t *count) {
    uint64_t top = heap[0], value = heap[--*count];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < *count) {
        if (child + 1 < *count && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= value) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = value;
    return top;
}
static void mgv__symbol_pair(const mgv_tokenizer *t, mgv__symbol *symbols, uint32_t place, uint64_t *heap, size_t *count) {
    mgv__symbol *symbol = &symbols[place];
    const mgv__merge *merge = symbol->behind == UINT32_MAX ? NULL : mgv__merge_find(t, symbol->id, symbols[symbol->behind].id);
    symbol->rank = UINT32_MAX;
    if (merge == NULL) return;
    symbol->rank = merge->rank;
    symbol->merged = merge->id;
    mgv__heap_push(heap, count, (uint64_t)merge->rank << 32 | place);
}
/* ids[0 .. n) merged and pushed. Each merge makes at most two pairs, so the heap never holds more than 3 n. */
static mgv_result mgv__bpe_long(mgv__tokenize_call *call, size_t n) {
    mgv__buffer *work = &call->work;
    size_t ids_bytes = work->bytes, bytes, heap_bytes, heap_count = 0;
    mgv__symbol *symbols;
    uint64_t *heap;
    const uint32_t *ids;
    uint32_t i, place;
    mgv_result result = MGV_OK;
    if (!mgv__mul(n, sizeof *symbols, &bytes) || !mgv__mul(3 * n, sizeof *heap, &heap_bytes) || !mgv__align_up(ids_bytes, 8, &ids_bytes) ||
        !mgv__align_up(bytes, 8, &bytes)) {
        return mgv__fail_nomem(call->error, "tokenizing", n);
    }
    result = mgv__buffer_room(call, work, ids_bytes - work->bytes + bytes + heap_bytes);
    if (result != MGV_OK) return result;
    ids = (const uint32_t *)(const void *)work->data;
    symbols = (mgv__symbol *)(void *)(work->data + ids_bytes);
    heap = (uint64_t *)(void *)(work->data + ids_bytes + bytes);
    for (i = 0; i < n; i++) {
        symbols[i].id = ids[i];
        symbols[i].before = i == 0 ? UINT32_MAX : i - 1;
        symbols[i].behind = i + 1 == n ? UINT32_MAX : i + 1;
    }
    for (i = 0; i < n; i++) mgv__symbol_pair(call->t, symbols, i, heap, &heap_count);
    while (heap_count > 0) {
        uint64_t top = mgv__heap_pop(heap, &heap_count);
        mgv__symbol *symbol = &symbols[place = (uint32_t)top], *other;
        if (symbol->rank != (uint32_t)(top >> 32) || symbol->rank == UINT32_MAX) continue;
        other = &symbols[symbol->behind];
        symbol->id = symbol->merged;
        symbol->behind = other->behind;
        other->rank = UINT32_MAX;
        if (symbol->behind != UINT32_MAX) symbols[symbol->behind].before = place;
        mgv__symbol_pair(call->t, symbols, place, heap, &heap_count);
        if (symbol->before != UINT32_MAX) mgv__symbol_pair(call->t, symbols, symbol->before, heap, &heap_count);
    }
    for (i = 0; i != UINT32_MAX && result == MGV_OK; i = symbols[i].behind) result = mgv__push_id(call, symbols[i].id);
    return result;
}
static mgv_result mgv__bpe_short(mgv__tokenize_call *call, uint32_t *ids, size_t n) {
    uint32_t ranks[MGV__SHORT_RUN], merged[MGV__SHORT_RUN];
    size_t i, best, k;
    for (i = 0; i + 1 < n; i++) {
        const mgv__merge *merge = mgv__merge_find(call->t, ids[i], ids[i + 1]);
        ranks[i] = merge ? merge->rank : UINT32_MAX;
        merged[i] = merge ? merge->id : 0;
    }
    while (n > 1) {
        for (best = 0, i = 1; i + 1 < n; i++) {
            if (ranks[i] < ranks[best]) best = i;
        }
        if (ranks[best] == UINT32_MAX) break;
        ids[best] = merged[best];
        for (i = best + 1; i + 1 < n; i++) {
            ids[i] = ids[i + 1];
            ranks[i - 1] = ranks[i];
            merged[i - 1] = merged[i];
        }
        n--;
        for (k = best ? best - 1 : 0; k <= best && k + 1 < n; k++) {
            const mgv__merge *merge = mgv__merge_find(call->t, ids[k], ids[k + 1]);
            ranks[k] = merge ? merge->rank : UINT32_MAX;
            merged[k] = merge ? merge->id : 0;
        }
    }
    return mgv__buffer_append(call, &call->ids, ids, n * sizeof *ids);
}
/* The symbols gathered in `work` since the last border. */
static mgv_result mgv__bpe_run(mgv__tokenize_call *call) {
    size_t n = call->work.bytes / sizeof(uint32_t);
    mgv_result result;
    if (n == 0) return MGV_OK;
    result = n <= MGV__SHORT_RUN ? mgv__bpe_short(call, (uint32_t *)(void *)call->work.data, n) : mgv__bpe_long(call, n);
    call->work.bytes = 0;
    return result;
}
/* The symbol of one character, or MGV__NO_ID. */
static uint32_t mgv__bpe_symbol(const mgv_tokenizer *t, const char *p, size_t length, uint32_t code, int last) {
    char name[4 + MGV__STEP_BYTES];
    size_t suffix;
    last = last && t->suffix[0];
    if (code < MGV__LOW_CODES) return last ? t->low_suffix_ids[code] : t->low_ids[code];
    if (!last) return mgv__token_find(t, p, length);
    suffix = strlen(t->suffix);
    memcpy(name, p, length);
    memcpy(name + length, t->suffix, suffix);
    return mgv__token_find(t, name, length + suffix);
}
/* A character without a symbol of its own as its bytes; 0: the model has no symbols for them. A suffix belongs to the character. */
static mgv_result mgv__bpe_fall_back(mgv__tokenize_call *call, const char *p, size_t length, int last, int *done) {
    const mgv_tokenizer *t = call->t;
    const char *parts[2];
    size_t counts[2], i, k;
    mgv_result result = MGV_OK;
    parts[0] = p;
    counts[0] = length;
    parts[1] = t->suffix;
    counts[1] = last ? strlen(t->suffix) : 0;
    *done = 0;
    for (k = 0; k < 2; k++) {
        for (i = 0; i < counts[k]; i++) {
            if (t->byte_ids[(unsigned char)parts[k][i]] == MGV__NO_ID) return MGV_OK;
        }
    }
    *done = 1;
    for (k = 0; k < 2; k++) {
        for (i = 0; i < counts[k] && result == MGV_OK; i++) {
            result = mgv__buffer_append(call, &call->work, &t->byte_ids[(unsigned char)parts[k][i]], sizeof(uint32_t));
        }
    }
    return result;
}
/* tokenizers, models/bpe/model.rs, merge_word, with its order where unknown characters and bytes meet. A piece is cut where no merge can
   reach over: most runs are words then, whatever the pre-tokenizer does. */
static mgv_result mgv__bpe_piece(mgv__tokenize_call *call, const char *p, size_t bytes) {
    const mgv_tokenizer *t = call->t;
    const char *end = p + bytes;
    uint32_t id, code, before = 0; /* 0: what stands before is no symbol of one character */
    int unknown = 0, done;
    mgv_result result = MGV_OK;
    if (t->ignore_merges && (id = mgv__token_find(t, p, bytes)) != MGV__NO_ID) return mgv__push_id(call, id);
    while (p < end && result == MGV_OK) {
        size_t length = mgv__utf8_read(p, &code);
        const int last = p + length == end;
        id = mgv__bpe_symbol(t, p, length, code, last);
        if (id != MGV__NO_ID) {
            uint32_t bit = before && !unknown ? mgv__bigram(t, before, code) : 0;
            if (before && !unknown && !(t->bigrams[bit / 32] >> bit % 32 & 1u)) result = mgv__bpe_run(call);
            if (unknown && result == MGV_OK) result = mgv__buffer_append(call, &call->work, &t->unknown, sizeof id);
            unknown = 0;
            if (result == MGV_OK) result = mgv__buffer_append(call, &call->work, &id, sizeof id);
            before = code;
        } else {
            done = 0;
            before = 0;
            if (t->byte_fallback) result = mgv__bpe_fall_back(call, p, length, last, &done);
            if (result == MGV_OK && !done && t->unknown != MGV__NO_ID) {
                if (unknown && !t->fuse_unknown) result = mgv__buffer_append(call, &call->work, &t->unknown, sizeof id);
                unknown = 1;
            }
        }
        p += length;
    }
    if (unknown && result == MGV_OK) result = mgv__buffer_append(call, &call->work, &t->unknown, sizeof id);
    return result == MGV_OK ? mgv__bpe_run(call) : result;
}

/* ---- Unigram: the cut into tokens with the highest sum of scores (tokenizers, models/unigram/model.rs, encode_optimized) ---- */

/* The best way to a place in the piece. */
typedef struct mgv__path { double score; uint32_t id, start; } mgv__path;

static void mgv__path_offer(mgv__path *path, double score, uint32_t id, uint32_t start) {
    if (path->start != UINT32_MAX && !(score > path->score)) return;
    path->score = score;
    path->id = id;
    path->start = start;
}
/* p[0 .. bytes) is no token: its bytes, or the unknown token. */
static mgv_result mgv__unigram_unknown(mgv__tokenize_call *call, const char *p, size_t bytes) {
    const mgv_tokenizer *t = call->t;
    size_t i;
    mgv_result result = MGV_OK;
    int all = t->byte_fallback;
    uint32_t id = mgv__token_find(t, p, bytes);
    if (id != MGV__NO_ID) return mgv__push_id(call, id);
    for (i = 0; i < bytes && all; i++) all = t->byte_ids[(unsigned char)p[i]] != MGV__NO_ID;
    if (!all) return mgv__push_id(call, t->unknown);
    for (i = 0; i < bytes && result == MGV_OK; i++) result = mgv__push_id(call, t->byte_ids[(unsigned char)p[i]]);
    return result;
}
static mgv_result mgv__unigram_piece(mgv__tokenize_call *call, const char *p, size_t bytes) {
    const mgv_tokenizer *t = call->t;
    mgv__path *paths;
    uint32_t *ends, n = (uint32_t)bytes, at, count = 0, i, code;
    mgv_result result;
    if (n > UINT32_MAX / 2 / (sizeof *paths + sizeof *ends) - 2) {
        return mgv__fail(call->error, MGV_ERROR_CAPACITY, "the text is too long: a piece of it without a space has %u bytes", (uint64_t)n);
    }
    call->work.bytes = 0;
    result = mgv__buffer_room(call, &call->work, (n + 1) * (sizeof *paths + sizeof *ends));
    if (result != MGV_OK) return result;
    paths = (mgv__path *)(void *)call->work.data;
    ends = (uint32_t *)(void *)(paths + n + 1);
    for (i = 0; i <= n; i++) paths[i].start = UINT32_MAX;
    paths[0].score = 0;
    for (at = 0; at < n;) {
        const mgv__trie_node *node = t->pieces.nodes;
        uint32_t length = (uint32_t)mgv__utf8_read(p + at, &code), depth;
        int single = 0;
        for (depth = 1; at + depth <= n && (node = mgv__trie_child(&t->pieces, node, (uint8_t)p[at + depth - 1])) != NULL; depth++) {
            if (node->id == MGV__NO_ID) continue;
            mgv__path_offer(&paths[at + depth], t->scores[node->id] + paths[at].score, node->id, at);
            if (depth == length) single = 1;
        }
        if (!single) {
            if (t->unknown == MGV__NO_ID) {
                return mgv__fail(call->error, MGV_ERROR_MODEL, "the tokenizer has no token for the code point %u and none for the unknown",
                                 (uint64_t)code);
            }
            mgv__path_offer(&paths[at + length], t->unknown_score + paths[at].score, t->unknown, at);
        }
        at += length;
    }
    for (at = n; at > 0; at = paths[at].start) ends[count++] = at;
    for (i = count; i > 0 && result == MGV_OK;) { /* unknown ones that follow each other are one */
        uint32_t end = ends[--i], start = paths[end].start;
        if (paths[end].id != t->unknown) {
            result = mgv__push_id(call, paths[end].id);
            continue;
        }
        while (i > 0 && paths[ends[i - 1]].id == t->unknown) end = ends[--i];
        result = mgv__unigram_unknown(call, p + start, end - start);
    }
    return result;
}

static void mgv__tokenize_begin(mgv__tokenize_call *call, const mgv_tokenizer *t, const mgv_allocator *allocator, mgv_error *error) {
    memset(call, 0, sizeof *call);
    call->t = t;
    call->allocator = allocator;
    call->error = error;
}
static void mgv__tokenize_end(mgv__tokenize_call *call) {
    mgv__free(call->allocator, call->normal[0].data);
    mgv__free(call->allocator, call->normal[1].data);
    mgv__free(call->allocator, call->text.data);
    mgv__free(call->allocator, call->other_text.data);
    mgv__free(call->allocator, call->pieces.data);
    mgv__free(call->allocator, call->other_pieces.data);
    mgv__free(call->allocator, call->codes.data);
    mgv__free(call->allocator, call->work.data);
    mgv__free(call->allocator, call->ids.data);
}
/* The text's ids, special tokens of the post-processor not among them, in call->ids. */
static mgv_result mgv__tokenize_text(mgv__tokenize_call *call, const char *text, size_t bytes) {
    size_t at, length, i, count;
    mgv_result result;
    for (at = 0; at < bytes; at += length) {
        length = (unsigned char)text[at] < 0x80 ? 1 : mgv__utf8_length(text + at, bytes - at);
        if (length == 0) {
            return mgv__fail(call->error, MGV_ERROR_ARGUMENT, "the text is not UTF-8: byte %u of it, of value %u, begins no character",
                             (uint64_t)at, (uint64_t)(unsigned char)text[at]);
        }
    }
    call->text.bytes = call->pieces.bytes = call->ids.bytes = call->work.bytes = 0;
    result = mgv__split_added(call, &call->t->added_raw, text, bytes, 1, mgv__section_raw);
    if (result == MGV_OK) result = mgv__pre_tokenize(call);
    count = call->pieces.bytes / sizeof(mgv__piece);
    for (i = 0; i < count && result == MGV_OK; i++) {
        mgv__piece piece;
        memcpy(&piece, call->pieces.data + i * sizeof piece, sizeof piece);
        if (piece.id != MGV__NO_ID) result = mgv__push_id(call, piece.id);
        else if (call->t->unigram) result = mgv__unigram_piece(call, call->text.data + piece.begin, piece.bytes);
        else result = mgv__bpe_piece(call, call->text.data + piece.begin, piece.bytes);
    }
    return result;
}
MEGAVIT_API mgv_result mgv_tokenize(const mgv_tokenizer *t, const char *text, size_t bytes, uint32_t flags, uint32_t *ids,
                                    uint64_t capacity, uint64_t *count, mgv_error *error) {
    mgv__tokenize_call call;
    uint64_t before, behind, inner, i;
    mgv_result result;
    mgv__clear_error(error);
    if (count != NULL) *count = 0;
    if (t == NULL || count == NULL || (text == NULL && bytes != 0) || (ids == NULL && capacity != 0)) {
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "mgv_tokenize needs a tokenizer, a text, room for ids and a count");
    }
    mgv__tokenize_begin(&call, t, &t->allocator, error);
    result = mgv__tokenize_text(&call, text, bytes);
    before = flags & MGV_TOKENIZE_PLAIN ? 0 : t->before_count;
    behind = flags & MGV_TOKENIZE_PLAIN ? 0 : t->behind_count;
    inner = call.ids.bytes / sizeof *ids;
    if (result == MGV_OK) {
        *count = before + inner + behind;
        if (*count > capacity) {
            result = mgv__fail(error, MGV_ERROR_CAPACITY, "the text has %u ids; there is room for %u", *count, capacity);
        }
    }
    if (result == MGV_OK) {
        for (i = 0; i < before; i++) ids[i] = t->before[i];
        if (inner) memcpy(ids + before, call.ids.data, call.ids.bytes);
        for (i = 0; i < behind; i++) ids[before + inner + i] = t->behind[i];
    }
    mgv__tokenize_end(&call);
    return result;
}

/* ---- back to text ---- */

typedef struct mgv__detokenize_call {
    mgv__tokenize_call base;      /* text: the result; normal: one token on its way through the steps */
    mgv_detokenize_state state;
    uint32_t strip;               /* leading characters that go, and which */
    char strip_content[MGV__STEP_BYTES];
    int byte_tokens;              /* bytes that make no character become one U+FFFD each */
} mgv__detokenize_call;

static const char mgv__replacement_character[] = "\xEF\xBF\xBD";

/* One whole character of the result. */
static mgv_result mgv__emit_character(mgv__detokenize_call *call, const char *p, size_t bytes) {
    if (call->state.stripped < call->strip) {
        if (strlen(call->strip_content) == bytes && memcmp(call->strip_content, p, bytes) == 0) {
            call->state.stripped++;
            return MGV_OK;
        }
        call->state.stripped = UINT32_MAX;
    }
    return mgv__buffer_append(&call->base, &call->base.text, p, bytes);
}
/* Bytes that will not become a character any more. */
static mgv_result mgv__emit_broken(mgv__detokenize_call *call, size_t bytes) {
    size_t count = call->byte_tokens ? bytes : 1;
    mgv_result result = MGV_OK;
    for (; count > 0 && result == MGV_OK; count--) result = mgv__emit_character(call, mgv__replacement_character, 3);
    return result;
}
/* Characters that are whole go out, the begin of one is held. */
static mgv_result mgv__emit_bytes(mgv__detokenize_call *call, const char *p, size_t bytes) {
    char *held = (char *)call->state.held;
    mgv_result result = MGV_OK;
    while (result == MGV_OK) {
        size_t length, begun;
        while (call->state.held_count < 4 && bytes > 0) {
            held[call->state.held_count++] = *p++;
            bytes--;
        }
        if (call->state.held_count == 0) break;
        begun = mgv__utf8_begun(held, call->state.held_count, &length);
        if (begun < length) length = 0;
        if (length == 0 && begun == call->state.held_count && bytes == 0) break;
        if (length) result = mgv__emit_character(call, held, length);
        else result = mgv__emit_broken(call, begun ? begun : 1);
        if (begun == 0) begun = 1;
        memmove(held, held + begun, call->state.held_count - begun);
        call->state.held_count -= (uint32_t)begun;
    }
    return result;
}
/* No byte follows those that are held. */
static mgv_result mgv__emit_end(mgv__detokenize_call *call) {
    size_t held = call->state.held_count;
    call->state.held_count = 0;
    return held ? mgv__emit_broken(call, held) : MGV_OK;
}
/* The byte that a token like <0x41> stands for; 256: it stands for none. */
static uint32_t mgv__byte_token(const char *name, size_t bytes) {
    uint32_t value = 0, i;
    if (bytes != 6 || memcmp(name, "<0x", 3) != 0 || name[5] != '>') return 256;
    for (i = 3; i < 5; i++) {
        char c = name[i];
        if (c >= '0' && c <= '9') value = value * 16 + (uint32_t)(c - '0');
        else if (c >= 'A' && c <= 'F') value = value * 16 + (uint32_t)(c - 'A') + 10;
        else if (c >= 'a' && c <= 'f') value = value * 16 + (uint32_t)(c - 'a') + 10;
        else return 256;
    }
    return value;
}
/* The token's name as bytes, or as it is where a character stands for none. */
static mgv_result mgv__step_from_bytes(mgv__tokenize_call *call, const char *in, size_t bytes, mgv__buffer *out) {
    const char *p = in, *end = in + bytes;
    mgv_result result = mgv__buffer_room(call, out, bytes);
    while (p < end && result == MGV_OK) {
        uint32_t code, byte;
        p += mgv__utf8_read(p, &code);
        byte = mgv__character_byte(code);
        if (byte == 256) {
            out->bytes = 0;
            return mgv__buffer_append(call, out, in, bytes);
        }
        out->data[out->bytes++] = (char)byte;
    }
    return result;
}
/* The replacement becomes a space; in the first token of all it goes. */
static mgv_result mgv__step_from_metaspace(mgv__detokenize_call *call, const mgv__step *step, const char *in, size_t bytes,
                                           mgv__buffer *out) {
    mgv__step replace = *step;
    memcpy(replace.from, step->to, sizeof replace.from);
    replace.from_bytes = step->to_bytes;
    replace.to[0] = ' ';
    replace.to_bytes = call->state.tokens == 0 && (step->prepend_always || step->prepend_first) ? 0 : 1;
    return mgv__step_replace(&call->base, &replace, in, bytes, out);
}
/* STRIP of a decoder before tokens are fused: of each token by itself. */
static void mgv__strip_token(const mgv__step *step, const char **p, size_t *bytes) {
    uint32_t i;
    for (i = 0; i < step->left && *bytes >= step->from_bytes && memcmp(*p, step->from, step->from_bytes) == 0; i++) {
        *p += step->from_bytes;
        *bytes -= step->from_bytes;
    }
    for (i = 0; i < step->right && *bytes >= step->from_bytes; i++) {
        if (memcmp(*p + *bytes - step->from_bytes, step->from, step->from_bytes) != 0) break;
        *bytes -= step->from_bytes;
    }
}
static mgv_result mgv__detokenize_one(mgv__detokenize_call *call, const char *name, size_t bytes) {
    const mgv__steps *steps = &call->base.t->decoders;
    mgv_result result = MGV_OK;
    uint32_t i, byte = 256;
    int ends_word = 0;
    for (i = 0; i < steps->count && steps->step[i].kind != MGV__STEP_FUSE && byte == 256; i++) {
        const mgv__step *step = &steps->step[i];
        mgv__buffer *out = &call->base.normal[i % 2];
        out->bytes = 0;
        switch (step->kind) {
        case MGV__STEP_BYTE_FALLBACK: byte = mgv__byte_token(name, bytes); continue;
        case MGV__STEP_STRIP: mgv__strip_token(step, &name, &bytes); continue;
        case MGV__STEP_SUFFIX:
            ends_word = bytes >= step->from_bytes && memcmp(name + bytes - step->from_bytes, step->from, step->from_bytes) == 0;
            if (ends_word) bytes -= step->from_bytes;
            continue;
        case MGV__STEP_REPLACE: result = mgv__step_replace(&call->base, step, name, bytes, out); break;
        case MGV__STEP_METASPACE: result = mgv__step_from_metaspace(call, step, name, bytes, out); break;
        default: result = mgv__step_from_bytes(&call->base, name, bytes, out); break;
        }
        if (result != MGV_OK) return result;
        name = out->data;
        bytes = out->bytes;
    }
    if (steps->count == 0 && call->state.tokens > 0) result = mgv__emit_bytes(call, " ", 1);
    for (; call->state.spaces > 0 && result == MGV_OK; call->state.spaces--) result = mgv__emit_bytes(call, " ", 1);
    if (result == MGV_OK && byte == 256 && call->byte_tokens) result = mgv__emit_end(call);
    if (result == MGV_OK && byte == 256) result = mgv__emit_bytes(call, name, bytes);
    if (result == MGV_OK && byte != 256) {
        char c = (char)byte;
        result = mgv__emit_bytes(call, &c, 1);
    }
    call->state.spaces = ends_word != 0;
    if (call->state.tokens < UINT32_MAX) call->state.tokens++;
    return result;
}
/* How many of ids[0 .. count) are bytes that follow each other, and whether all together they are no UTF-8: the decoder makes one U+FFFD of
   each of them then, also of those that would be characters by themselves (decoders/byte_fallback.rs). A stream cannot know the end of such
   a run and does not. */
static mgv_result mgv__byte_run(mgv__detokenize_call *call, const uint32_t *ids, uint64_t count, uint64_t *run, int *broken) {
    const mgv_tokenizer *t = call->base.t;
    mgv__buffer *bytes = &call->base.codes;
    size_t at, length = 1;
    uint64_t i;
    mgv_result result = MGV_OK;
    bytes->bytes = 0;
    for (i = 0; i < count && ids[i] < t->count && result == MGV_OK; i++) {
        uint32_t byte = mgv__byte_token(t->pool + t->offsets[ids[i]], t->lengths[ids[i]]);
        char c = (char)byte;
        if (byte == 256) break;
        result = mgv__buffer_append(&call->base, bytes, &c, 1);
    }
    for (at = 0; at < bytes->bytes && length > 0; at += length) length = mgv__utf8_length(bytes->data + at, bytes->bytes - at);
    *run = bytes->bytes;
    *broken = length == 0;
    return result;
}
static mgv_result mgv__detokenize_all(mgv__detokenize_call *call, const uint32_t *ids, uint64_t count, uint32_t flags, int stream) {
    const mgv_tokenizer *t = call->base.t;
    uint64_t i, run = 0, run_end = 0;
    int broken = 0;
    mgv_result result = MGV_OK;
    for (i = 0; i < count && result == MGV_OK; i++) {
        const mgv__added *added;
        if (ids[i] >= t->count) {
            return mgv__fail(call->base.error, MGV_ERROR_ARGUMENT, "id %u, number %u of those passed: the tokenizer has ids from 0 to %u",
                             (uint64_t)ids[i], i, (uint64_t)t->count - 1);
        }
        added = mgv__added_find(t, ids[i]);
        if (added != NULL && added->special && !(flags & MGV_DETOKENIZE_SPECIAL)) continue;
        if (call->byte_tokens && !stream && i >= run_end) {
            result = mgv__byte_run(call, ids + i, count - i, &run, &broken);
            run_end = i + run;
        }
        if (result == MGV_OK && i < run_end && broken) result = mgv__emit_broken(call, 1);
        else if (result == MGV_OK) result = mgv__detokenize_one(call, t->pool + t->offsets[ids[i]], t->lengths[ids[i]]);
    }
    return result;
}
/* What of the steps concerns the text as a whole: a Strip behind Fuse, and what becomes of broken bytes. */
static void mgv__detokenize_prepare(mgv__detokenize_call *call) {
    const mgv__steps *steps = &call->base.t->decoders;
    uint32_t i;
    for (i = 0; i < steps->count; i++) {
        if (steps->step[i].kind == MGV__STEP_BYTE_FALLBACK) call->byte_tokens = 1;
        if (steps->step[i].kind != MGV__STEP_FUSE || i + 1 == steps->count) continue;
        call->strip = steps->step[i + 1].left;
        memcpy(call->strip_content, steps->step[i + 1].from, sizeof call->strip_content);
    }
}
/* White space as Python has it: the separators of ASCII too. */
static int mgv__is_python_space(mgv__tokenize_call *call, const char *p) {
    return (*p >= 0x1C && *p <= 0x1F) || mgv__is_space(call, p);
}
/* CLIPTokenizer takes white space off both ends. */
static void mgv__strip_text(mgv__tokenize_call *call) {
    const char *begin = call->text.data, *end = begin + call->text.bytes;
    uint32_t code;
    while (begin < end && mgv__is_python_space(call, begin)) begin += mgv__utf8_read(begin, &code);
    while (begin < end && mgv__is_python_space(call, mgv__utf8_before(end))) end = mgv__utf8_before(end);
    if (begin < end) memmove(call->text.data, begin, (size_t)(end - begin));
    call->text.bytes = (size_t)(end - begin);
}
MEGAVIT_API mgv_result mgv_detokenize(const mgv_tokenizer *t, mgv_detokenize_state *state, const uint32_t *ids, uint64_t count,
                                      uint32_t flags, char *text, uint64_t capacity, uint64_t *bytes, mgv_error *error) {
    mgv__detokenize_call call;
    mgv_result result;
    mgv__clear_error(error);
    if (bytes != NULL) *bytes = 0;
    if (t == NULL || bytes == NULL || (ids == NULL && count != 0) || (text == NULL && capacity != 0)) {
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "mgv_detokenize needs a tokenizer, ids, room for a text and its length");
    }
    memset(&call, 0, sizeof call);
    mgv__tokenize_begin(&call.base, t, &t->allocator, error);
    if (state != NULL) call.state = *state;
    if (call.state.held_count > 3) return mgv__fail(error, MGV_ERROR_ARGUMENT, "the mgv_detokenize_state was not zero at first");
    mgv__detokenize_prepare(&call);
    result = mgv__detokenize_all(&call, ids, count, flags, state != NULL);
    if (result == MGV_OK && !(flags & MGV_DETOKENIZE_MORE)) result = mgv__emit_end(&call);
    if (result == MGV_OK && state == NULL && t->suffix[0]) mgv__strip_text(&call.base);
    if (result == MGV_OK) {
        *bytes = call.base.text.bytes;
        if (*bytes > capacity) {
            result = mgv__fail(error, MGV_ERROR_CAPACITY, "the text has %u bytes; there is room for %u", *bytes, capacity);
        } else if (*bytes > 0) {
            memcpy(text, call.base.text.data, call.base.text.bytes);
        }
    }
    if (result == MGV_OK && state != NULL) {
        *state = call.state;
        if (!(flags & MGV_DETOKENIZE_MORE)) memset(state, 0, sizeof *state);
    }
    mgv__tokenize_end(&call.base);
    return result;
}

/* ---- reading tokenizers ---- */

/* What the files of a directory say beside the vocabulary. */
typedef struct mgv__tokenizer_reader {
    mgv_tokenizer *t;
    mgv__source source;
    mgv_error *error;
    const char *file;                        /* that is being read, for messages */
    char tokenizer_class[64], model_type[64];
    int lower_case;                          /* do_lower_case; -1: not said */
    uint32_t name_slots, room;               /* ids that there may be */
} mgv__tokenizer_reader;

static mgv_result mgv__tokenizer_fail(const mgv__tokenizer_reader *r, const char *what) {
    return mgv__fail(r->error, MGV_ERROR_FORMAT, "%s: %s", r->file, what);
}
static mgv_result mgv__pool_room(mgv__tokenizer_reader *r, size_t extra) {
    mgv_tokenizer *t = r->t;
    size_t need, room;
    char *pool;
    if (extra <= t->pool_room - t->pool_bytes) return MGV_OK;
    if (!mgv__add(t->pool_bytes, extra, &need) || need > UINT32_MAX / 2) return mgv__tokenizer_fail(r, "names of 2 GiB or more");
    room = need + need / 2 + 256;
    pool = (char *)mgv__alloc(&t->allocator, room);
    if (pool == NULL) return mgv__fail_nomem(r->error, "the names of tokens", room);
    if (t->pool_bytes) memcpy(pool, t->pool, t->pool_bytes);
    mgv__free(&t->allocator, t->pool);
    t->pool = pool;
    t->pool_room = room;
    return MGV_OK;
}
/* The string, with a zero behind it, where the next name will lie and `skip` bytes further: until then, or until the next string is read,
   it stays. *string NULL: the value is none. */
static mgv_result mgv__read_string(mgv__tokenizer_reader *r, char *value, size_t skip, const char **string, size_t *bytes) {
    mgv_result result;
    size_t most;
    *string = NULL;
    *bytes = 0;
    if (value == NULL || *value != '"') return MGV_OK;
    most = (size_t)(mgv__json_skip_string(value) - value);
    result = mgv__pool_room(r, skip + most);
    if (result != MGV_OK) return result;
    *string = mgv__json_string(value, r->t->pool + r->t->pool_bytes + skip);
    *bytes = strlen(*string);
    return MGV_OK;
}
/* true, false, or what it is where the key is missing or null. */
static mgv_result mgv__read_flag(const mgv__tokenizer_reader *r, char *object, const char *name, int *flag) {
    const char *value = mgv__json_member(object, name);
    if (value == NULL || *value == 'n') return MGV_OK;
    if (*value != 't' && *value != 'f') return mgv__fail(r->error, MGV_ERROR_FORMAT, "%s: %s is neither true nor false", r->file, name);
    *flag = *value == 't';
    return MGV_OK;
}
/* A member that is a string of at least `least` and less than MGV__STEP_BYTES bytes. */
static mgv_result mgv__read_short(mgv__tokenizer_reader *r, char *object, const char *name, size_t least, char *out, uint32_t *bytes) {
    size_t count;
    const char *string;
    mgv_result result = mgv__read_string(r, mgv__json_member(object, name), 0, &string, &count);
    if (result != MGV_OK) return result;
    if (string == NULL || count < least || count >= MGV__STEP_BYTES) {
        return mgv__fail(r->error, MGV_ERROR_UNSUPPORTED, "%s: %s is no string of %u to %u bytes", r->file, name, (uint64_t)least,
                         (uint64_t)MGV__STEP_BYTES - 1);
    }
    memcpy(out, string, count + 1);
    *bytes = (uint32_t)count;
    return MGV_OK;
}
static mgv_result mgv__read_id(const mgv__tokenizer_reader *r, const char *value, uint32_t below, uint32_t *id) {
    uint64_t number;
    if (value == NULL || !mgv__json_u64(value, &number) || number >= below) {
        return mgv__fail(r->error, MGV_ERROR_FORMAT, "%s: an id that is not a number from 0 to %u; there are %u tokens", r->file,
                         (uint64_t)below - 1, (uint64_t)below);
    }
    *id = (uint32_t)number;
    return MGV_OK;
}

/* ---- patterns of Replace that are one character or set of characters, and how many: \s+, " {2,}", "[!-/]" ---- */

/* One member of the set at p; *code: above 0x7F where it is \s. NULL: nothing that this version knows. */
static const char *mgv__pattern_member(const char *p, mgv__step *step, uint32_t *code) {
    static const char digits[] = "0123456789abcdef", letters[] = "nrt", values[] = "\n\r\t";
    const char *found;
    *code = (unsigned char)*p;
    if (*p != '\\') return *code >= 0x20 && *code < 0x80 ? p + 1 : NULL;
    *code = (unsigned char)p[1];
    if (p[1] == 's') {
        step->spaces = 1;
        *code = 0x80;
        return p + 2;
    }
    if (p[1] == 'x') {
        const char *low = p[2] >= '0' && p[2] <= '7' && p[3] ? strchr(digits, p[3]) : NULL;
        if (low == NULL) return NULL;
        *code = (uint32_t)(p[2] - '0') * 16 + (uint32_t)(low - digits);
        return p + 4;
    }
    found = p[1] ? strchr(letters, p[1]) : NULL;
    if (found != NULL) *code = (unsigned char)values[found - letters];
    else if (*code <= ' ' || *code >= 0x7F || (*code >= '0' && *code <= '9') || (*code >= 'A' && *code <= 'Z') ||
             (*code >= 'a' && *code <= 'z')) return NULL;
    return p + 2;
}
static const char *mgv__pattern_members(const char *p, mgv__step *step) {
    uint32_t first, last, code;
    if (*p == '^') {
        step->negated = 1;
        p++;
    }
    while (*p != ']') {
        if (*p == 0 || *p == '[' || (*p == '&' && p[1] == '&')) return NULL;
        p = mgv__pattern_member(p, step, &first);
        if (p == NULL) return NULL;
        last = first;
        if (*p == '-' && p[1] != ']' && first < 0x80) {
            p = mgv__pattern_member(p + 1, step, &last);
            if (p == NULL || last >= 0x80 || last < first) return NULL;
        }
        for (code = first; code <= last && code < 0x80; code++) step->set[code / 32] |= 1u << code % 32;
    }
    return p + 1;
}
static int mgv__pattern_set(const char *p, mgv__step *step) {
    uint32_t code;
    step->kind = MGV__STEP_REPLACE_SET;
    step->least = 1;
    if (*p == 0 || strchr("().*+?{}|^$]", *p) != NULL) return 0;
    if (*p == '[') {
        p = mgv__pattern_members(p + 1, step);
    } else {
        p = mgv__pattern_member(p, step, &code);
        if (p != NULL && code < 0x80) step->set[code / 32] |= 1u << code % 32;
    }
    if (p == NULL) return 0;
    if (*p == '+') {
        step->many = 1;
        p++;
    } else if (*p == '{' && p[1] >= '1' && p[1] <= '9' && (p[2] == '}' || (p[2] == ',' && p[3] == '}'))) {
        step->least = (uint32_t)(p[1] - '0');
        step->many = p[2] == ',';
        p += step->many ? 4 : 3;
    }
    return *p == 0;
}

/* ---- the steps of a stage ---- */

typedef struct mgv__component {
    const char *type;
    mgv__step_kind kind;
    mgv_result (*read)(mgv__tokenizer_reader *r, char *object, mgv__step *step); /* NULL: it has no fields */
} mgv__component;
typedef struct mgv__stage {
    const char *name, *list; /* keys of the stage and, in a Sequence, of its steps */
    const mgv__component *components;
    size_t count;
} mgv__stage;

static mgv_result mgv__read_lower(mgv__tokenizer_reader *r, char *object, mgv__step *step) {
    return mgv__read_flag(r, object, "final_sigma", &step->final_sigma);
}
/* {"String": …} or {"Regex": …}, or a plain string as old files have it. *regex NULL: it is a String, and in step->from. */
static mgv_result mgv__read_pattern(mgv__tokenizer_reader *r, char *object, mgv__step *step, const char **regex) {
    char *pattern = mgv__json_member(object, "pattern");
    size_t bytes;
    *regex = NULL;
    if (pattern != NULL && *pattern == '{' && mgv__json_member(pattern, "Regex") != NULL) {
        mgv_result result = mgv__read_string(r, mgv__json_member(pattern, "Regex"), 0, regex, &bytes);
        if (result == MGV_OK && *regex == NULL) result = mgv__tokenizer_fail(r, "a Regex that is no string");
        return result;
    }
    if (pattern != NULL && *pattern == '{') return mgv__read_short(r, pattern, "String", 1, step->from, &step->from_bytes);
    return mgv__read_short(r, object, "pattern", 1, step->from, &step->from_bytes);
}
static mgv_result mgv__read_replace(mgv__tokenizer_reader *r, char *object, mgv__step *step) {
    const char *regex;
    mgv_result result = mgv__read_pattern(r, object, step, &regex);
    if (result != MGV_OK) return result;
    if (regex != NULL && !mgv__pattern_set(regex, step)) {
        return mgv__fail(r->error, MGV_ERROR_UNSUPPORTED, "%s: a Replace with the pattern %q, which this version does not know", r->file,
                         regex);
    }
    return mgv__read_short(r, object, "content", 0, step->to, &step->to_bytes);
}
static mgv_result mgv__read_decoder_replace(mgv__tokenizer_reader *r, char *object, mgv__step *step) {
    mgv_result result = mgv__read_replace(r, object, step);
    if (result == MGV_OK && step->kind != MGV__STEP_REPLACE) {
        result = mgv__fail(r->error, MGV_ERROR_UNSUPPORTED, "%s: a decoder that replaces by a regular expression", r->file);
    }
    return result;
}
static mgv_result mgv__read_prepend(mgv__tokenizer_reader *r, char *object, mgv__step *step) {
    return mgv__read_short(r, object, "prepend", 1, step->to, &step->to_bytes);
}
static mgv_result mgv__read_strip(mgv__tokenizer_reader *r, char *object, mgv__step *step) {
    int left = 1, right = 1;
    mgv_result result = mgv__read_flag(r, object, "strip_left", &left);
    if (result == MGV_OK) result = mgv__read_flag(r, object, "strip_right", &right);
    step->left = left != 0;
    step->right = right != 0;
    return result;
}
static mgv_result mgv__read_decoder_strip(mgv__tokenizer_reader *r, char *object, mgv__step *step) {
    mgv_result result = mgv__read_short(r, object, "content", 1, step->from, &step->from_bytes);
    if (result == MGV_OK) result = mgv__read_id(r, mgv__json_member(object, "start"), 1024, &step->left);
    if (result == MGV_OK) result = mgv__read_id(r, mgv__json_member(object, "stop"), 1024, &step->right);
    return result;
}
static int mgv__base64_value(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}
/* The bytes that text[0 .. count) encodes, at out, which has 3 bytes for each 4 begun; (size_t)-1: it is no base64. */
static size_t mgv__base64_read(const char *text, size_t count, unsigned char *out) {
    size_t i, written = 0;
    uint32_t bits = 0, have = 0;
    while (count > 0 && text[count - 1] == '=') count--;
    for (i = 0; i < count; i++) {
        int value = mgv__base64_value(text[i]);
        if (value < 0) return (size_t)-1;
        bits = bits << 6 | (uint32_t)value;
        have += 6;
        if (have < 8) continue;
        have -= 8;
        out[written++] = (unsigned char)(bits >> have);
    }
    return have < 6 ? written : (size_t)-1;
}
/* Precompiled: the length of a double array, the array, strings with a zero behind each (google/sentencepiece, src/normalizer.cc). */
static mgv_result mgv__read_precompiled(mgv__tokenizer_reader *r, char *object, mgv__step *step) {
    mgv_tokenizer *t = r->t;
    const char *text;
    size_t count, bytes, units, at, length;
    unsigned char *map;
    mgv_result result = mgv__read_string(r, mgv__json_member(object, "precompiled_charsmap"), 0, &text, &count);
    if (result != MGV_OK) return result;
    if (t->charsmap != NULL) return mgv__fail(r->error, MGV_ERROR_UNSUPPORTED, "%s: two normalizers Precompiled", r->file);
    if (text == NULL) {
        step->kind = MGV__STEP_NOTHING; /* null: no map */
        return MGV_OK;
    }
    t->charsmap = map = (unsigned char *)mgv__alloc(&t->allocator, count / 4 * 3 + 4);
    if (map == NULL) return mgv__fail_nomem(r->error, "the map of characters", count);
    bytes = mgv__base64_read(text, count, map);
    if (bytes == (size_t)-1) return mgv__tokenizer_fail(r, "precompiled_charsmap is no base64");
    if (bytes == 0) {
        step->kind = MGV__STEP_NOTHING;
        return MGV_OK;
    }
    units = bytes < 4 ? SIZE_MAX : (size_t)map[0] | (size_t)map[1] << 8 | (size_t)map[2] << 16 | (size_t)map[3] << 24;
    if (units % 4 != 0 || units == 0 || units >= bytes - 4) return mgv__tokenizer_fail(r, "precompiled_charsmap says a wrong length");
    memmove(map, map + 4, bytes - 4);
    t->charsmap_units = (uint32_t)(units / 4);
    t->charsmap_bytes = (uint32_t)(bytes - 4 - units);
    if (map[bytes - 5] != 0) return mgv__tokenizer_fail(r, "precompiled_charsmap ends inside a string");
    for (at = units; at < bytes - 4; at += length) {
        length = mgv__utf8_length((const char *)map + at, bytes - 4 - at);
        if (length == 0) return mgv__tokenizer_fail(r, "precompiled_charsmap has a string that is not UTF-8");
    }
    return MGV_OK;
}
static mgv_result mgv__read_split(mgv__tokenizer_reader *r, char *object, mgv__step *step) {
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext"};
    const char *behavior = mgv__json_member(object, "behavior"), *regex;
    size_t i;
    mgv_result result = mgv__read_flag(r, object, "invert", &step->invert);
    for (i = 0; i < 4 && (behavior == NULL || !mgv__json_is(behavior, names[i])); i++) continue;
    if (result == MGV_OK && i == 4) result = mgv__fail(r->error, MGV_ERROR_UNSUPPORTED, "%s: a Split of unknown behavior", r->file);
    if (result != MGV_OK) return result;
    step->split = (mgv__split)i;
    result = mgv__read_pattern(r, object, step, &regex);
    if (result != MGV_OK) return result;
    if (regex == NULL) {
        if (step->invert) return mgv__fail(r->error, MGV_ERROR_UNSUPPORTED, "%s: a Split by a string, inverted", r->file);
        return MGV_OK;
    }
    for (i = 0; i < sizeof mgv__patterns / sizeof mgv__patterns[0]; i++) {
        if (strcmp(regex, mgv__patterns[i].text) == 0) step->pattern = &mgv__patterns[i];
    }
    if (step->pattern == NULL || step->split > MGV__SPLIT_ISOLATED) {
        return mgv__fail(r->error, MGV_ERROR_UNSUPPORTED, "%s: a Split by the pattern %q, which this version does not know so", r->file,
                         regex);
    }
    step->kind = MGV__STEP_SPLIT_PATTERN;
    return MGV_OK;
}
static mgv_result mgv__read_byte_level(mgv__tokenizer_reader *r, char *object, mgv__step *step) {
    mgv_result result;
    step->prefix_space = step->use_pattern = 1;
    result = mgv__read_flag(r, object, "add_prefix_space", &step->prefix_space);
    return result == MGV_OK ? mgv__read_flag(r, object, "use_regex", &step->use_pattern) : result;
}
static mgv_result mgv__read_metaspace(mgv__tokenizer_reader *r, char *object, mgv__step *step) {
    const char *scheme = mgv__json_member(object, "prepend_scheme");
    int prefix = 1;
    mgv_result result = mgv__read_short(r, object, "replacement", 1, step->to, &step->to_bytes);
    step->pieces = 1;
    if (result == MGV_OK) result = mgv__read_flag(r, object, "split", &step->pieces);
    if (result == MGV_OK) result = mgv__read_flag(r, object, "add_prefix_space", &prefix);
    if (result != MGV_OK) return result;
    step->prepend_first = scheme != NULL && mgv__json_is(scheme, "first");
    step->prepend_always = scheme == NULL || mgv__json_is(scheme, "always");
    if (!prefix) step->prepend_first = step->prepend_always = 0;
    if (!step->prepend_first && !step->prepend_always && prefix && !mgv__json_is(scheme, "never")) {
        return mgv__tokenizer_fail(r, "a Metaspace with an unknown prepend_scheme");
    }
    return MGV_OK;
}
static mgv_result mgv__read_suffix(mgv__tokenizer_reader *r, char *object, mgv__step *step) {
    return mgv__read_short(r, object, "suffix", 1, step->from, &step->from_bytes);
}
static const mgv__component mgv__normalizer_components[] = {
    {"Lowercase", MGV__STEP_LOWER, mgv__read_lower}, {"NFC", MGV__STEP_NFC, NULL}, {"Replace", MGV__STEP_REPLACE, mgv__read_replace},
    {"Prepend", MGV__STEP_PREPEND, mgv__read_prepend}, {"Strip", MGV__STEP_STRIP, mgv__read_strip},
    {"Precompiled", MGV__STEP_PRECOMPILED, mgv__read_precompiled},
};
static const mgv__component mgv__pre_tokenizer_components[] = {
    {"Split", MGV__STEP_SPLIT, mgv__read_split}, {"ByteLevel", MGV__STEP_BYTES_AS_CHARACTERS, mgv__read_byte_level},
    {"Metaspace", MGV__STEP_METASPACE, mgv__read_metaspace}, {"WhitespaceSplit", MGV__STEP_SPLIT_SPACES, NULL},
};
static const mgv__component mgv__decoder_components[] = {
    {"Replace", MGV__STEP_REPLACE, mgv__read_decoder_replace}, {"ByteFallback", MGV__STEP_BYTE_FALLBACK, NULL},
    {"Fuse", MGV__STEP_FUSE, NULL}, {"Strip", MGV__STEP_STRIP, mgv__read_decoder_strip}, {"ByteLevel", MGV__STEP_BYTES_AS_CHARACTERS, NULL},
    {"Metaspace", MGV__STEP_METASPACE, mgv__read_metaspace}, {"BPEDecoder", MGV__STEP_SUFFIX, mgv__read_suffix},
};
#define MGV__STAGE(name, list, components) {name, list, components, sizeof components / sizeof components[0]}
static const mgv__stage mgv__stages[] = {
    MGV__STAGE("normalizer", "normalizers", mgv__normalizer_components),
    MGV__STAGE("pre_tokenizer", "pretokenizers", mgv__pre_tokenizer_components),
    MGV__STAGE("decoder", "decoders", mgv__decoder_components),
};

/* Adds the steps of one component, or of a Sequence of them, behind those that are there. */
static mgv_result mgv__read_steps(mgv__tokenizer_reader *r, const mgv__stage *stage, char *value, mgv__steps *steps, int depth) {
    char *type, *list, *at, *item;
    mgv__step *step;
    size_t i;
    mgv_result result = MGV_OK;
    if (value == NULL || *value == 'n') return MGV_OK;
    type = *value == '{' ? mgv__json_member(value, "type") : NULL;
    if (type == NULL || depth > 4) return mgv__fail(r->error, MGV_ERROR_FORMAT, "%s: the %s has no type", r->file, stage->name);
    if (mgv__json_is(type, "Sequence")) {
        list = mgv__json_member(value, stage->list);
        if (list == NULL || *list != '[') return mgv__fail(r->error, MGV_ERROR_FORMAT, "%s: a Sequence without %s", r->file, stage->list);
        at = list + 1;
        while (result == MGV_OK && mgv__json_next(&at, NULL, &item)) result = mgv__read_steps(r, stage, item, steps, depth + 1);
        return result;
    }
    for (i = 0; i < stage->count && !mgv__json_is(type, stage->components[i].type); i++) continue;
    if (i == stage->count) {
        const char *name;
        size_t bytes;
        result = mgv__read_string(r, type, 0, &name, &bytes);
        if (result != MGV_OK) return result;
        return mgv__fail(r->error, MGV_ERROR_UNSUPPORTED, "%s: the %s %q is none that this version knows", r->file, stage->name,
                         name ? name : "?");
    }
    if (steps->count == MGV__MAX_STEPS) return mgv__fail(r->error, MGV_ERROR_UNSUPPORTED, "%s: too long a %s", r->file, stage->name);
    step = &steps->step[steps->count];
    memset(step, 0, sizeof *step);
    step->kind = stage->components[i].kind;
    if (stage->components[i].read != NULL) result = stage->components[i].read(r, value, step);
    if (result == MGV_OK && step->kind != MGV__STEP_NOTHING) steps->count++;
    return result;
}

/* ---- trees of names ---- */

typedef struct mgv__named { const char *name; uint32_t bytes, id; } mgv__named;

static int mgv__compare_named(const void *context, uint32_t a, uint32_t b) {
    const mgv__named *x = (const mgv__named *)context + a, *y = (const mgv__named *)context + b;
    int order = memcmp(x->name, y->name, x->bytes < y->bytes ? x->bytes : y->bytes);
    return order ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}
/* Nodes of a tree over names in order: one for each byte that a name does not share with the one before. */
static size_t mgv__trie_count(const mgv__named *names, const uint32_t *order, uint32_t count) {
    size_t nodes = 1;
    uint32_t i, shared;
    for (i = 0; i < count; i++) {
        const mgv__named *name = &names[order[i]], *before = i ? &names[order[i - 1]] : name;
        for (shared = 0; i > 0 && shared < name->bytes && shared < before->bytes && name->name[shared] == before->name[shared];) shared++;
        nodes += name->bytes - shared;
    }
    return nodes;
}
/* Level by level: until its children are made, a node's fields hold the range of names below it. Of equal names the last one counts. */
static void mgv__trie_fill(mgv__trie_node *nodes, const mgv__named *names, const uint32_t *order, uint32_t count) {
    uint32_t level = 0, end = 1, made = 1, depth, i;
    nodes[0].children = 0;
    nodes[0].id = count;
    for (depth = 0; level < end; depth++) {
        for (i = level; i < end; i++) {
            mgv__trie_node *node = &nodes[i];
            uint32_t low = node->children, high = node->id;
            node->id = MGV__NO_ID;
            node->count = 0;
            node->children = made;
            for (; low < high && names[order[low]].bytes == depth; low++) node->id = names[order[low]].id;
            while (low < high) {
                const uint8_t label = (uint8_t)names[order[low]].name[depth];
                nodes[made].label = label;
                nodes[made].children = low;
                while (low < high && (uint8_t)names[order[low]].name[depth] == label) low++;
                nodes[made++].id = low;
                node->count++;
            }
        }
        level = end;
        end = made;
    }
}
static mgv_result mgv__trie_build(mgv__tokenizer_reader *r, mgv__trie *trie, const mgv__named *names, uint32_t count) {
    const mgv_allocator *allocator = &r->t->allocator;
    uint32_t *order, i;
    size_t nodes;
    if (count == 0) return MGV_OK;
    order = (uint32_t *)mgv__alloc_array(allocator, count, 2 * sizeof *order);
    if (order == NULL) return mgv__fail_nomem(r->error, "ordering tokens", count);
    for (i = 0; i < count; i++) order[i] = i;
    mgv__sort(order, order + count, count, mgv__compare_named, names);
    nodes = mgv__trie_count(names, order, count);
    trie->nodes = nodes < UINT32_MAX ? (mgv__trie_node *)mgv__alloc_array(allocator, nodes, sizeof *trie->nodes) : NULL;
    if (trie->nodes != NULL) mgv__trie_fill(trie->nodes, names, order, count);
    mgv__free(allocator, order);
    return trie->nodes ? MGV_OK : mgv__fail_nomem(r->error, "a tree of tokens", nodes);
}

/* ---- names ---- */

/* Room for so many ids, and slots for the names of the model. */
static mgv_result mgv__names_begin(mgv__tokenizer_reader *r, size_t model, size_t added) {
    mgv_tokenizer *t = r->t;
    size_t room, slots, i;
    if (model == 0) return mgv__tokenizer_fail(r, "an empty vocabulary");
    if (!mgv__add(model, added, &room) || room >= UINT32_MAX / 4) return mgv__tokenizer_fail(r, "too many tokens");
    slots = model + model / 2 + 1;
    t->offsets = (uint32_t *)mgv__alloc_array(&t->allocator, room, sizeof *t->offsets);
    t->lengths = (uint32_t *)mgv__alloc_array(&t->allocator, room, sizeof *t->lengths);
    t->slots = (uint32_t *)mgv__alloc_array(&t->allocator, slots, sizeof *t->slots);
    if (added > 0) t->added = (mgv__added *)mgv__alloc_array(&t->allocator, added, sizeof *t->added);
    if (t->offsets == NULL || t->lengths == NULL || t->slots == NULL || (added > 0 && t->added == NULL)) {
        return mgv__fail_nomem(r->error, "the vocabulary", room);
    }
    t->slot_count = (uint32_t)slots;
    for (i = 0; i < slots; i++) t->slots[i] = MGV__NO_ID;
    for (i = 0; i < room; i++) t->lengths[i] = UINT32_MAX;
    r->room = (uint32_t)room;
    return MGV_OK;
}
/* The name that mgv__read_string has put behind the others becomes that of the id. model: it is found by mgv__token_find. */
static mgv_result mgv__names_add(mgv__tokenizer_reader *r, uint32_t id, size_t bytes, int model) {
    mgv_tokenizer *t = r->t;
    const char *name = t->pool + t->pool_bytes;
    uint32_t slot = mgv__name_slot(t, name, bytes), probes;
    if (id >= r->room) {
        return mgv__fail(r->error, MGV_ERROR_FORMAT, "%s: the token %q has the id %u; there are %u tokens", r->file, name, (uint64_t)id,
                         (uint64_t)r->room);
    }
    if (t->lengths[id] != UINT32_MAX) return mgv__fail(r->error, MGV_ERROR_FORMAT, "%s: two tokens have the id %u", r->file, (uint64_t)id);
    for (probes = 0; model && t->slots[slot] != MGV__NO_ID; probes++) {
        if (probes == MGV__MAX_PROBES) return mgv__tokenizer_fail(r, "a vocabulary made to be slow: its names collide");
        if (mgv__name_is(t, t->slots[slot], name, bytes)) break; /* of equal names the last one counts; only lists can have them */
        slot = slot + 1 == t->slot_count ? 0 : slot + 1;
    }
    if (model) t->slots[slot] = id;
    t->offsets[id] = (uint32_t)t->pool_bytes;
    t->lengths[id] = (uint32_t)bytes;
    t->pool_bytes += bytes;
    if (id >= t->count) t->count = id + 1;
    return MGV_OK;
}
static size_t mgv__json_count(char *container) {
    char *at = container + 1, *key, *item;
    size_t count = 0;
    while (mgv__json_next(&at, *container == '{' ? &key : NULL, &item)) count++;
    return count;
}
/* {"token": id, …} */
static mgv_result mgv__read_vocabulary(mgv__tokenizer_reader *r, char *vocabulary) {
    char *at = vocabulary + 1, *key, *value;
    mgv_result result = MGV_OK;
    while (result == MGV_OK && mgv__json_next(&at, &key, &value)) {
        uint32_t id;
        size_t bytes;
        const char *name;
        result = mgv__read_string(r, key, 0, &name, &bytes);
        if (result == MGV_OK) result = mgv__read_id(r, value, r->room, &id);
        if (result == MGV_OK) result = mgv__names_add(r, id, bytes, 1);
    }
    return result;
}
/* [["token", score], …] */
static mgv_result mgv__read_scores(mgv__tokenizer_reader *r, char *vocabulary, size_t count) {
    mgv_tokenizer *t = r->t;
    char *at = vocabulary + 1, *pair;
    double least = HUGE_VAL;
    uint32_t id = 0;
    mgv_result result = MGV_OK;
    t->scores = (double *)mgv__alloc_array(&t->allocator, count, sizeof *t->scores);
    if (t->scores == NULL) return mgv__fail_nomem(r->error, "the scores of tokens", count);
    for (; result == MGV_OK && mgv__json_next(&at, NULL, &pair); id++) {
        char *in = pair + 1, *name = NULL, *score = NULL, *more;
        size_t bytes;
        const char *string;
        if (*pair != '[' || !mgv__json_next(&in, NULL, &name) || !mgv__json_next(&in, NULL, &score) || mgv__json_next(&in, NULL, &more) ||
            *name != '"' || !mgv__json_double(score, &t->scores[id])) {
            return mgv__tokenizer_fail(r, "a vocabulary of Unigram is a list of pairs, each a token and its score");
        }
        if (t->scores[id] < least) least = t->scores[id];
        result = mgv__read_string(r, name, 0, &string, &bytes);
        if (result == MGV_OK && bytes == 0) result = mgv__tokenizer_fail(r, "a token without a name");
        if (result == MGV_OK) result = mgv__names_add(r, id, bytes, 1);
    }
    t->unknown_score = least - 10; /* kUnkPenalty of google/sentencepiece, src/unigram_model.cc */
    return result;
}

/* ---- merges ---- */

static mgv_result mgv__merges_begin(mgv__tokenizer_reader *r, size_t count) {
    mgv_tokenizer *t = r->t;
    size_t slots, bits = 1024, i;
    /* Each merge cuts a token at another place, so there are no more of them than the names have bytes. */
    if (count > t->pool_bytes) return mgv__tokenizer_fail(r, "more merges than its tokens have places to be cut at");
    slots = count + count / 2 + count / 8 + 1;
    while (bits < 8 * count && bits < (size_t)1 << 20) bits *= 2;
    t->merges = (mgv__merge *)mgv__alloc_array(&t->allocator, slots, sizeof *t->merges);
    t->bigrams = (uint32_t *)mgv__alloc(&t->allocator, bits / 8);
    if (t->merges == NULL || t->bigrams == NULL || slots >= UINT32_MAX) return mgv__fail_nomem(r->error, "the merges", slots);
    for (i = 0; i < slots; i++) t->merges[i].left = MGV__NO_ID;
    memset(t->bigrams, 0, bits / 8);
    t->merge_slots = (uint32_t)slots;
    t->bigram_mask = (uint32_t)bits - 1;
    return MGV_OK;
}
/* Of equal pairs the last one counts. */
static mgv_result mgv__merges_add(mgv__tokenizer_reader *r, uint32_t left, uint32_t right, uint32_t rank, uint32_t id) {
    mgv_tokenizer *t = r->t;
    uint32_t slot = mgv__pair_slot(t, left, right), probes, first, second, bit;
    mgv__merge *merge = &t->merges[slot];
    const char *left_end = t->pool + t->offsets[left] + t->lengths[left];
    for (probes = 0; merge->left != MGV__NO_ID && (merge->left != left || merge->right != right); probes++) {
        if (probes == MGV__MAX_PROBES) return mgv__tokenizer_fail(r, "merges made to be slow: they collide");
        slot = slot + 1 == t->merge_slots ? 0 : slot + 1;
        merge = &t->merges[slot];
    }
    merge->left = left;
    merge->right = right;
    merge->rank = rank;
    merge->id = id;
    mgv__utf8_read(mgv__utf8_before(left_end), &first);
    mgv__utf8_read(t->pool + t->offsets[right], &second);
    bit = mgv__bigram(t, first, second);
    t->bigrams[bit / 32] |= 1u << bit % 32;
    return MGV_OK;
}
/* pair[0 .. left) and pair[left .. left + right) become one token, which has the name of both together. */
static mgv_result mgv__merges_add_names(mgv__tokenizer_reader *r, const char *pair, size_t left, size_t right, uint32_t rank) {
    const mgv_tokenizer *t = r->t;
    uint32_t left_id = mgv__token_find(t, pair, left), right_id = mgv__token_find(t, pair + left, right);
    uint32_t id = mgv__token_find(t, pair, left + right);
    if (left == 0 || right == 0 || left_id == MGV__NO_ID || right_id == MGV__NO_ID || id == MGV__NO_ID) {
        return mgv__fail(r->error, MGV_ERROR_FORMAT, "%s: merge %u joins or makes a token that is not in the vocabulary", r->file,
                         (uint64_t)rank);
    }
    return mgv__merges_add(r, left_id, right_id, rank, id);
}
/* "left right" of a text[0 .. bytes) that may be written to. */
static mgv_result mgv__merges_add_line(mgv__tokenizer_reader *r, char *text, size_t bytes, uint32_t rank) {
    char *space = (char *)memchr(text, ' ', bytes);
    size_t left = space ? (size_t)(space - text) : 0;
    if (space == NULL || memchr(space + 1, ' ', bytes - left - 1) != NULL) {
        return mgv__fail(r->error, MGV_ERROR_FORMAT, "%s: merge %u is not two tokens with a space between", r->file, (uint64_t)rank);
    }
    memmove(space, space + 1, bytes - left - 1);
    return mgv__merges_add_names(r, text, left, bytes - left - 1, rank);
}
/* ["left right", …] or [["left", "right"], …] */
static mgv_result mgv__read_merges(mgv__tokenizer_reader *r, char *merges) {
    char *at, *item;
    uint32_t rank = 0;
    mgv_result result;
    if (merges == NULL || *merges != '[') return mgv__tokenizer_fail(r, "BPE without a list of merges");
    result = mgv__merges_begin(r, mgv__json_count(merges));
    for (at = merges + 1; result == MGV_OK && mgv__json_next(&at, NULL, &item); rank++) {
        char *in = item + 1, *left = NULL, *right = NULL, *more;
        const char *name;
        size_t bytes, right_bytes;
        if (*item == '"') {
            result = mgv__read_string(r, item, 0, &name, &bytes);
            if (result == MGV_OK) result = mgv__merges_add_line(r, r->t->pool + r->t->pool_bytes, bytes, rank);
            continue;
        }
        if (*item != '[' || !mgv__json_next(&in, NULL, &left) || !mgv__json_next(&in, NULL, &right) || mgv__json_next(&in, NULL, &more) ||
            *left != '"' || *right != '"') {
            return mgv__fail(r->error, MGV_ERROR_FORMAT, "%s: merge %u is neither a string nor a pair of strings", r->file, (uint64_t)rank);
        }
        result = mgv__pool_room(r, (size_t)(right - left) + (size_t)(mgv__json_skip_string(right) - right)); /* neither string moves then */
        if (result == MGV_OK) result = mgv__read_string(r, left, 0, &name, &bytes);
        if (result == MGV_OK) result = mgv__read_string(r, right, bytes, &name, &right_bytes);
        if (result == MGV_OK) result = mgv__merges_add_names(r, r->t->pool + r->t->pool_bytes, bytes, right_bytes, rank);
    }
    return result;
}

/* ---- models ---- */

/* What of a model is no vocabulary; a class of tokenizers may say otherwise than the file. */
static mgv_result mgv__read_model_flags(mgv__tokenizer_reader *r, char *model) {
    mgv_tokenizer *t = r->t;
    const char *prefix = mgv__json_member(model, "continuing_subword_prefix"), *dropout = mgv__json_member(model, "dropout"), *name;
    char *suffix = mgv__json_member(model, "end_of_word_suffix"), *unknown = mgv__json_member(model, "unk_token");
    uint32_t bytes;
    size_t count;
    mgv_result result = mgv__read_flag(r, model, "fuse_unk", &t->fuse_unknown);
    if (result == MGV_OK) result = mgv__read_flag(r, model, "byte_fallback", &t->byte_fallback);
    if (result == MGV_OK) result = mgv__read_flag(r, model, "ignore_merges", &t->ignore_merges);
    if (result == MGV_OK && suffix != NULL && *suffix != 'n') {
        result = mgv__read_short(r, model, "end_of_word_suffix", 0, t->suffix, &bytes);
    }
    if (result == MGV_OK && prefix != NULL && *prefix != 'n' && !mgv__json_is(prefix, "")) {
        result = mgv__fail(r->error, MGV_ERROR_UNSUPPORTED, "%s: a BPE with a continuing_subword_prefix", r->file);
    }
    if (result == MGV_OK && dropout != NULL && *dropout != 'n' && *dropout != '0') {
        result = mgv__fail(r->error, MGV_ERROR_UNSUPPORTED, "%s: a BPE with dropout, whose ids are left to chance", r->file);
    }
    if (result != MGV_OK || unknown == NULL || *unknown == 'n') return result;
    result = mgv__read_string(r, unknown, 0, &name, &count);
    if (result != MGV_OK) return result;
    t->unknown = name ? mgv__token_find(t, name, count) : MGV__NO_ID;
    if (t->unknown == MGV__NO_ID) return mgv__tokenizer_fail(r, "an unk_token that is not in the vocabulary");
    return MGV_OK;
}
/* The tables that make looking up fast. */
static void mgv__model_tables(mgv_tokenizer *t) {
    static const char digits[] = "0123456789ABCDEF";
    char name[4 + MGV__STEP_BYTES];
    uint32_t i;
    for (i = 0; i < 256; i++) {
        memcpy(name, "<0x..>", 6);
        name[3] = digits[i / 16];
        name[4] = digits[i % 16];
        t->byte_ids[i] = mgv__token_find(t, name, 6);
    }
    for (i = 0; i < MGV__LOW_CODES; i++) {
        size_t length = mgv__json_utf8(name, i), suffix = strlen(t->suffix);
        t->low_ids[i] = mgv__token_find(t, name, length);
        memcpy(name + length, t->suffix, suffix);
        t->low_suffix_ids[i] = mgv__token_find(t, name, length + suffix);
    }
}
static mgv_result mgv__read_model(mgv__tokenizer_reader *r, char *model, size_t added) {
    mgv_tokenizer *t = r->t;
    char *vocabulary = mgv__json_member(model, "vocab"), *unknown;
    const char *type = mgv__json_member(model, "type");
    size_t count;
    mgv_result result;
    t->unigram = type != NULL && mgv__json_is(type, "Unigram");
    if (!t->unigram && type != NULL && !mgv__json_is(type, "BPE")) {
        return mgv__fail(r->error, MGV_ERROR_UNSUPPORTED, "%s: the model is neither BPE nor Unigram", r->file);
    }
    if (vocabulary == NULL || *vocabulary != (t->unigram ? '[' : '{')) return mgv__tokenizer_fail(r, "a model without its vocabulary");
    count = mgv__json_count(vocabulary);
    result = mgv__names_begin(r, count, added);
    if (result == MGV_OK) result = t->unigram ? mgv__read_scores(r, vocabulary, count) : mgv__read_vocabulary(r, vocabulary);
    if (result != MGV_OK) return result;
    if (!t->unigram) {
        result = mgv__read_merges(r, mgv__json_member(model, "merges"));
        return result == MGV_OK ? mgv__read_model_flags(r, model) : result;
    }
    unknown = mgv__json_member(model, "unk_id");
    if (unknown != NULL && *unknown != 'n') result = mgv__read_id(r, unknown, (uint32_t)count, &t->unknown);
    return result == MGV_OK ? mgv__read_flag(r, model, "byte_fallback", &t->byte_fallback) : result;
}
static mgv_result mgv__unigram_tree(mgv__tokenizer_reader *r) {
    mgv_tokenizer *t = r->t;
    mgv__named *names;
    uint32_t i, count = 0;
    mgv_result result;
    if (!t->unigram) return MGV_OK;
    names = (mgv__named *)mgv__alloc_array(&t->allocator, t->model_count, sizeof *names);
    if (names == NULL) return mgv__fail_nomem(r->error, "ordering tokens", t->model_count);
    for (i = 0; i < t->model_count; i++, count++) {
        names[i].name = t->pool + t->offsets[i];
        names[i].bytes = t->lengths[i];
        names[i].id = i;
    }
    result = mgv__trie_build(r, &t->pieces, names, count);
    mgv__free(&t->allocator, names);
    return result;
}

/* ---- added tokens, special tokens ---- */

static mgv_result mgv__added_put(mgv__tokenizer_reader *r, size_t bytes, const mgv__added *added) {
    mgv_tokenizer *t = r->t;
    const char *name = t->pool + t->pool_bytes;
    uint32_t known = mgv__token_find(t, name, bytes);
    mgv_result result = MGV_OK;
    if (bytes == 0) return MGV_OK;
    if (bytes > MGV__MAX_ADDED_BYTES) return mgv__tokenizer_fail(r, "an added token of more than 512 bytes");
    if (known != MGV__NO_ID && known != added->id) {
        return mgv__fail(r->error, MGV_ERROR_FORMAT, "%s: the added token %q has the id %u, and %u in the vocabulary", r->file, name,
                         (uint64_t)added->id, (uint64_t)known);
    }
    if (known == MGV__NO_ID) result = mgv__names_add(r, added->id, bytes, 0);
    if (result != MGV_OK) return result;
    t->added[t->added_count++] = *added;
    return MGV_OK;
}
static int mgv__compare_added(const void *context, uint32_t a, uint32_t b) {
    const mgv__added *added = (const mgv__added *)context;
    return (added[a].id > added[b].id) - (added[a].id < added[b].id);
}
/* By id, as mgv__added_find wants them. */
static mgv_result mgv__added_order(mgv__tokenizer_reader *r) {
    mgv_tokenizer *t = r->t;
    mgv__added *ordered;
    uint32_t *order, i, count = t->added_count;
    mgv_result result = MGV_OK;
    if (count == 0) return MGV_OK;
    ordered = (mgv__added *)mgv__alloc_array(&t->allocator, count, sizeof *ordered);
    order = (uint32_t *)mgv__alloc_array(&t->allocator, count, 2 * sizeof *order);
    if (ordered == NULL || order == NULL) result = mgv__fail_nomem(r->error, "the added tokens", count);
    for (i = 0; i < count && result == MGV_OK; i++) order[i] = i;
    if (result == MGV_OK) mgv__sort(order, order + count, count, mgv__compare_added, t->added);
    for (i = 0; i < count && result == MGV_OK; i++) {
        ordered[i] = t->added[order[i]];
        if (i == 0 || ordered[i].id != ordered[i - 1].id) continue;
        result = mgv__fail(r->error, MGV_ERROR_FORMAT, "%s: two added tokens have the id %u", r->file, (uint64_t)ordered[i].id);
    }
    if (result == MGV_OK) memcpy(t->added, ordered, count * sizeof *ordered);
    mgv__free(&t->allocator, ordered);
    mgv__free(&t->allocator, order);
    return result;
}
static mgv_result mgv__read_added(mgv__tokenizer_reader *r, char *object, const char *id, size_t *total) {
    const char *name;
    size_t bytes;
    int single = 0;
    mgv__added added;
    mgv_result result;
    memset(&added, 0, sizeof added);
    if (*object != '{') return mgv__tokenizer_fail(r, "an added token that is no object");
    result = mgv__read_id(r, id, r->room, &added.id);
    added.normalized = 1;
    if (result == MGV_OK) result = mgv__read_flag(r, object, "lstrip", &added.left);
    if (result == MGV_OK) result = mgv__read_flag(r, object, "rstrip", &added.right);
    if (result == MGV_OK) result = mgv__read_flag(r, object, "normalized", &added.normalized);
    if (result == MGV_OK) result = mgv__read_flag(r, object, "special", &added.special);
    if (result == MGV_OK) result = mgv__read_flag(r, object, "single_word", &single);
    if (result == MGV_OK && single) result = mgv__fail(r->error, MGV_ERROR_UNSUPPORTED, "%s: an added token that is single_word", r->file);
    if (result == MGV_OK) result = mgv__read_string(r, mgv__json_member(object, "content"), 0, &name, &bytes);
    if (result == MGV_OK && name == NULL) result = mgv__tokenizer_fail(r, "an added token without content");
    *total += 1;
    return result == MGV_OK ? mgv__added_put(r, bytes, &added) : result;
}
static mgv_result mgv__read_added_list(mgv__tokenizer_reader *r, char *list) {
    char *at, *item;
    size_t total = 0;
    mgv_result result = MGV_OK;
    if (list == NULL || *list == 'n') return MGV_OK;
    for (at = list + 1; result == MGV_OK && mgv__json_next(&at, NULL, &item);) {
        result = mgv__read_added(r, item, *item == '{' ? mgv__json_member(item, "id") : NULL, &total);
    }
    return result;
}
/* The trees that added tokens are found with; those of normalised text have gone through the normalizers themselves. */
static mgv_result mgv__added_trees(mgv__tokenizer_reader *r) {
    mgv_tokenizer *t = r->t;
    mgv__named *names;
    mgv__tokenize_call call;
    char **copies;
    uint32_t i, raw = 0, normalized = t->added_count;
    mgv_result result = MGV_OK;
    if (t->added_count == 0) return MGV_OK;
    names = (mgv__named *)mgv__alloc_array(&t->allocator, t->added_count, sizeof *names);
    copies = (char **)mgv__alloc_array(&t->allocator, t->added_count, sizeof *copies);
    mgv__tokenize_begin(&call, t, &t->allocator, r->error);
    if (names == NULL || copies == NULL) result = mgv__fail_nomem(r->error, "the added tokens", t->added_count);
    for (i = 0; i < t->added_count && copies != NULL; i++) copies[i] = NULL;
    for (i = 0; i < t->added_count && result == MGV_OK; i++) {
        const mgv__added *added = &t->added[i];
        const char *text = t->pool + t->offsets[added->id];
        size_t bytes = t->lengths[added->id];
        mgv__named *name = &names[added->normalized ? --normalized : raw++];
        name->id = added->id;
        if (added->normalized) {
            result = mgv__normalize_text(&call, &text, &bytes);
            copies[i] = result == MGV_OK ? (char *)mgv__alloc(&t->allocator, bytes) : NULL;
            if (copies[i] == NULL) {
                if (result == MGV_OK) result = mgv__fail_nomem(r->error, "the added tokens", bytes);
                break;
            }
            memcpy(copies[i], text, bytes);
            text = copies[i];
        }
        name->name = text;
        name->bytes = (uint32_t)bytes;
    }
    if (result == MGV_OK) result = mgv__trie_build(r, &t->added_raw, names, raw);
    if (result == MGV_OK) result = mgv__trie_build(r, &t->added_normalized, names + normalized, t->added_count - normalized);
    for (i = 0; i < t->added_count && copies != NULL; i++) mgv__free(&t->allocator, copies[i]);
    mgv__free(&t->allocator, copies);
    mgv__free(&t->allocator, names);
    mgv__tokenize_end(&call);
    return result;
}

/* The id of a token, added ones too; MGV__NO_ID: there is none. */
static uint32_t mgv__any_token_find(const mgv_tokenizer *t, const char *name, size_t bytes) {
    uint32_t id = mgv__token_find(t, name, bytes), i;
    for (i = 0; i < t->added_count && id == MGV__NO_ID; i++) {
        if (mgv__name_is(t, t->added[i].id, name, bytes)) id = t->added[i].id;
    }
    return id;
}
/* ids go before all that stands before the text, or behind all behind it. */
static mgv_result mgv__put_specials(mgv__tokenizer_reader *r, int behind, const uint32_t *ids, uint32_t count) {
    mgv_tokenizer *t = r->t;
    uint32_t *list = behind ? t->behind : t->before, *have = behind ? &t->behind_count : &t->before_count;
    if (*have + count > MGV__MAX_SPECIALS) return mgv__fail(r->error, MGV_ERROR_UNSUPPORTED, "%s: more than 8 special tokens", r->file);
    if (!behind) memmove(list + count, list, *have * sizeof *list);
    memcpy(behind ? list + *have : list, ids, count * sizeof *list);
    *have += count;
    return MGV_OK;
}
/* TemplateProcessing: what stands before and behind $A in `single`. */
static mgv_result mgv__read_template(mgv__tokenizer_reader *r, char *object) {
    char *single = mgv__json_member(object, "single"), *specials = mgv__json_member(object, "special_tokens"), *at, *item;
    uint32_t ids[2][MGV__MAX_SPECIALS], counts[2] = {0, 0};
    int texts = 0;
    mgv_result result = MGV_OK;
    if (single == NULL || *single != '[') return mgv__tokenizer_fail(r, "a TemplateProcessing without a template");
    for (at = single + 1; result == MGV_OK && mgv__json_next(&at, NULL, &item);) {
        char *special = *item == '{' ? mgv__json_member(item, "SpecialToken") : NULL, *id, *list = NULL, *in, *value, *key;
        if (special == NULL) {
            texts++;
            continue;
        }
        id = *special == '{' ? mgv__json_member(special, "id") : NULL;
        if (id == NULL || *id != '"') return mgv__tokenizer_fail(r, "a template with a special token that has no name");
        for (in = specials && *specials == '{' ? specials + 1 : NULL; in != NULL && mgv__json_next(&in, &key, &value);) {
            if (mgv__json_compare_strings(key, id) == 0 && *value == '{') list = mgv__json_member(value, "ids");
        }
        if (list == NULL || *list != '[') return mgv__tokenizer_fail(r, "a template with a special token that has no ids");
        for (in = list + 1; result == MGV_OK && mgv__json_next(&in, NULL, &value);) {
            uint32_t side = texts > 0;
            if (counts[side] == MGV__MAX_SPECIALS) return mgv__tokenizer_fail(r, "a template of more than 8 tokens");
            result = mgv__read_id(r, value, r->t->count, &ids[side][counts[side]++]);
        }
    }
    if (result == MGV_OK && texts != 1) result = mgv__tokenizer_fail(r, "a template with not just one text");
    if (result == MGV_OK) result = mgv__put_specials(r, 0, ids[0], counts[0]);
    return result == MGV_OK ? mgv__put_specials(r, 1, ids[1], counts[1]) : result;
}
/* Roberta and Bert: "cls" before, "sep" behind, each ["token", id]. */
static mgv_result mgv__read_cls_sep(mgv__tokenizer_reader *r, char *object) {
    static const char *const keys[] = {"cls", "sep"};
    int k;
    mgv_result result = MGV_OK;
    for (k = 0; k < 2 && result == MGV_OK; k++) {
        char *pair = mgv__json_member(object, keys[k]), *at = pair ? pair + 1 : NULL, *value;
        uint32_t id;
        if (pair == NULL || *pair != '[' || !mgv__json_next(&at, NULL, &value) || !mgv__json_next(&at, NULL, &value)) {
            return mgv__tokenizer_fail(r, "a post_processor without cls or sep");
        }
        result = mgv__read_id(r, value, r->t->count, &id);
        if (result == MGV_OK) result = mgv__put_specials(r, k, &id, 1);
    }
    return result;
}
static mgv_result mgv__read_post_processor(mgv__tokenizer_reader *r, char *value, int depth) {
    const char *type;
    char *at, *item;
    mgv_result result = MGV_OK;
    if (value == NULL || *value == 'n') return MGV_OK;
    type = *value == '{' && depth < 4 ? mgv__json_member(value, "type") : NULL;
    if (type == NULL) return mgv__tokenizer_fail(r, "a post_processor without a type");
    if (mgv__json_is(type, "TemplateProcessing")) return mgv__read_template(r, value);
    if (mgv__json_is(type, "RobertaProcessing") || mgv__json_is(type, "BertProcessing")) return mgv__read_cls_sep(r, value);
    if (mgv__json_is(type, "ByteLevel")) return MGV_OK; /* changes offsets only */
    if (!mgv__json_is(type, "Sequence")) {
        return mgv__fail(r->error, MGV_ERROR_UNSUPPORTED, "%s: a post_processor of a type that this version does not know", r->file);
    }
    value = mgv__json_member(value, "processors");
    if (value == NULL || *value != '[') return mgv__tokenizer_fail(r, "a Sequence without processors");
    for (at = value + 1; result == MGV_OK && mgv__json_next(&at, NULL, &item);) result = mgv__read_post_processor(r, item, depth + 1);
    return result;
}

/* ---- directories ---- */

/* A class of transformers 5.24 builds its own stages and does not read those of the file (tokenization_utils_tokenizers.py,
   convert_to_native_format). What is written here as JSON is what models/NAME/tokenization_NAME.py says. */
typedef struct mgv__tokenizer_class {
    const char *name;
    int adds;         /* the file's normalizers follow, and all else is the file's */
    const char *json;
} mgv__tokenizer_class;

#define MGV__GEMMA_STAGES \
    "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"behavior\":\"MergedWithPrevious\"}," \
    "\"model\":{\"fuse_unk\":true,\"byte_fallback\":true}," \
    "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"\\u2581\"},\"content\":\" \"}," \
    "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]}}"
#define MGV__GEMMA_SPACES "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\\u2581\"}"
#define MGV__QWEN_STAGES(letters, others) \
    "{\"normalizer\":{\"type\":\"NFC\"}," \
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":" \
    "\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?" letters "+|\\\\p{N}| ?[^\\\\s" others "]+[\\\\r\\\\n]*|" \
    "\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]}," \
    "\"model\":{\"fuse_unk\":false,\"byte_fallback\":false},\"decoder\":{\"type\":\"ByteLevel\"}}"
static const mgv__tokenizer_class mgv__tokenizer_classes[] = {
    {"GemmaTokenizer", 0, "{\"normalizer\":" MGV__GEMMA_SPACES "," MGV__GEMMA_STAGES},
    {"Siglip2Tokenizer", 0, "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Lowercase\"}," MGV__GEMMA_SPACES "]},"
                            MGV__GEMMA_STAGES},
    {"CLIPTokenizer", 0, "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},"
        "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"\\\\s+\"},\"content\":\" \"},{\"type\":\"Lowercase\"}]},"
        "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"behavior\":\"Removed\",\"invert\":true,"
        "\"pattern\":{\"Regex\":\"<\\\\|startoftext\\\\|>|<\\\\|endoftext\\\\|>|'s|'t|'re|'ve|'m|'ll|'d|[\\\\p{L}]+|[\\\\p{N}]|"
        "[^\\\\s\\\\p{L}\\\\p{N}]+\"}},{\"type\":\"ByteLevel\",\"add_prefix_space\":false}]},"
        "\"model\":{\"end_of_word_suffix\":\"</w>\",\"fuse_unk\":false},\"decoder\":{\"type\":\"ByteLevel\"}}"},
    {"Qwen2Tokenizer", 0, MGV__QWEN_STAGES("\\\\p{L}", "\\\\p{L}\\\\p{N}")},
    {"Qwen3_5Tokenizer", 0, MGV__QWEN_STAGES("[\\\\p{L}\\\\p{M}]", "\\\\p{L}\\\\p{M}\\\\p{N}")},
    /* Lower case as Python has it, no ASCII punctuation, white space (Python's) joined; the rest is SentencePiece's. */
    {"SiglipTokenizer", 1, "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Lowercase\",\"final_sigma\":true},"
        "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"[!-/:-@\\\\[-`{-~]\"},\"content\":\"\"},"
        "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"[\\\\s\\\\x1c-\\\\x1f]+\"},\"content\":\" \"},{\"type\":\"Strip\"}]}}"},
};
static const mgv__tokenizer_class *mgv__tokenizer_class_find(const char *name) {
    size_t i, length = strlen(name);
    if (length > 4 && strcmp(name + length - 4, "Fast") == 0) length -= 4;
    for (i = 0; i < sizeof mgv__tokenizer_classes / sizeof mgv__tokenizer_classes[0]; i++) {
        const char *known = mgv__tokenizer_classes[i].name;
        if (strlen(known) == length && memcmp(known, name, length) == 0) return &mgv__tokenizer_classes[i];
    }
    return NULL;
}
/* The stages of the file's root (NULL: there is none), as the class has them. */
static mgv_result mgv__read_stages(mgv__tokenizer_reader *r, char *root, const mgv__tokenizer_class *row) {
    mgv_tokenizer *t = r->t;
    mgv__steps *steps[3];
    const char *file = r->file;
    size_t bytes = row ? strlen(row->json) : 0;
    char *own = NULL, *flags;
    int i;
    mgv_result result = MGV_OK;
    steps[0] = &t->normalizers;
    steps[1] = &t->pre_tokenizers;
    steps[2] = &t->decoders;
    if (row != NULL) {
        own = (char *)mgv__alloc(&t->allocator, bytes + 1);
        if (own == NULL) return mgv__fail_nomem(r->error, "a tokenizer's stages", bytes);
        memcpy(own, row->json, bytes + 1);
        result = mgv__json_check(own, bytes, row->name, &t->allocator, r->error);
    }
    for (i = 0; i < 3 && result == MGV_OK; i++) {
        char *ours = own ? mgv__json_member(own, mgv__stages[i].name) : NULL;
        r->file = row ? row->name : file;
        result = mgv__read_steps(r, &mgv__stages[i], ours, steps[i], 0);
        r->file = file;
        if (result == MGV_OK && root != NULL && (row == NULL || row->adds)) {
            result = mgv__read_steps(r, &mgv__stages[i], mgv__json_member(root, mgv__stages[i].name), steps[i], 0);
        }
    }
    flags = own && result == MGV_OK ? mgv__json_member(own, "model") : NULL;
    if (flags != NULL && !t->unigram) result = mgv__read_model_flags(r, flags);
    mgv__free(&t->allocator, own);
    return result;
}
/* Lower-casing as the caller wants it, or as do_lower_case of SiglipTokenizer has it. */
static void mgv__set_lower_case(mgv__tokenizer_reader *r, const mgv__tokenizer_class *row, int32_t wanted) {
    mgv__steps *steps = &r->t->normalizers;
    uint32_t i, kept = 0;
    if (wanted == MGV_LOWER_CASE_AUTO && row != NULL && row->adds && r->lower_case == 0) wanted = MGV_LOWER_CASE_NO;
    if (wanted == MGV_LOWER_CASE_AUTO) {
        for (i = 0; i < steps->count && steps->step[i].kind != MGV__STEP_LOWER; i++) continue;
        if (i == steps->count && r->lower_case == 1) {
            mgv__log(&r->source.logger, MGV_LOG_WARNING, "tokenizer_config.json: do_lower_case is true, which transformers 5.24 does not "
                     "follow for %s, and neither does this library unless it is told to", row ? row->name : "this tokenizer");
        }
        return;
    }
    for (i = 0; i < steps->count; i++) {
        if (steps->step[i].kind != MGV__STEP_LOWER || (wanted == MGV_LOWER_CASE_YES && kept == i)) steps->step[kept++] = steps->step[i];
    }
    steps->count = kept;
    if (wanted == MGV_LOWER_CASE_NO || (kept > 0 && steps->step[0].kind == MGV__STEP_LOWER) || kept == MGV__MAX_STEPS) return;
    memmove(steps->step + 1, steps->step, kept * sizeof steps->step[0]);
    memset(&steps->step[0], 0, sizeof steps->step[0]);
    steps->step[0].kind = MGV__STEP_LOWER;
    steps->count++;
}

/* A member of a small JSON file as a string of less than `room` bytes; "" where it is missing or longer. */
static mgv_result mgv__read_word(mgv__tokenizer_reader *r, char *root, const char *key, char *out, size_t room) {
    const char *string;
    size_t bytes;
    mgv_result result = mgv__read_string(r, mgv__json_member(root, key), 0, &string, &bytes);
    out[0] = 0;
    if (result == MGV_OK && string != NULL && bytes < room) memcpy(out, string, bytes + 1);
    return result;
}
static mgv_result mgv__read_small(mgv__tokenizer_reader *r, const char *name, char **text) {
    size_t bytes;
    int absent;
    r->file = name;
    return mgv__source_read_json(&r->source, name, text, &bytes, &absent, r->error);
}
/* tokenizer_config.json, which stays in *config, and config.json; both may be missing. */
static mgv_result mgv__read_tokenizer_config(mgv__tokenizer_reader *r, char **config) {
    char *model = NULL;
    int lower = -1;
    mgv_result result = mgv__read_small(r, "tokenizer_config.json", config);
    if (result == MGV_OK && *config != NULL) {
        result = mgv__read_word(r, *config, "tokenizer_class", r->tokenizer_class, sizeof r->tokenizer_class);
    }
    if (result == MGV_OK && *config != NULL) result = mgv__read_flag(r, *config, "do_lower_case", &lower);
    r->lower_case = lower;
    if (result == MGV_OK) result = mgv__read_small(r, "config.json", &model);
    if (result == MGV_OK && model != NULL) result = mgv__read_word(r, model, "model_type", r->model_type, sizeof r->model_type);
    mgv__free(&r->source.allocator, model);
    return result;
}
/* The id of a token that tokenizer_config.json names, a string or an object with its content. */
static mgv_result mgv__named_token(mgv__tokenizer_reader *r, char *config, const char *key, uint32_t *id) {
    char *value = config ? mgv__json_member(config, key) : NULL;
    const char *name;
    size_t bytes;
    mgv_result result;
    if (value != NULL && *value == '{') value = mgv__json_member(value, "content");
    result = mgv__read_string(r, value, 0, &name, &bytes);
    if (result == MGV_OK && name != NULL) *id = mgv__any_token_find(r->t, name, bytes);
    return result;
}

static mgv_result mgv__read_tokenizer_json(mgv__tokenizer_reader *r, char *root, const mgv__tokenizer_class *row) {
    mgv_tokenizer *t = r->t;
    char *model = mgv__json_member(root, "model"), *added = mgv__json_member(root, "added_tokens"), *padding;
    mgv_result result;
    if (model == NULL || *model != '{') return mgv__tokenizer_fail(r, "there is no model in it: is it a tokenizer.json?");
    if (added != NULL && *added != '[' && *added != 'n') return mgv__tokenizer_fail(r, "added_tokens is no list");
    result = mgv__read_model(r, model, added && *added == '[' ? mgv__json_count(added) : 0);
    if (result != MGV_OK) return result;
    t->model_count = t->count;
    result = mgv__read_added_list(r, added);
    if (result == MGV_OK) result = mgv__read_post_processor(r, mgv__json_member(root, "post_processor"), 0);
    if (result == MGV_OK) result = mgv__read_stages(r, root, row);
    padding = mgv__json_member(root, "padding");
    if (result == MGV_OK && padding != NULL && *padding == '{') {
        result = mgv__read_id(r, mgv__json_member(padding, "pad_id"), t->count, &t->info.pad_id);
    }
    return result;
}
/* The next line of text[0 .. bytes) from *at on, without its end; NULL: there is none. */
static char *mgv__next_line(char *text, size_t bytes, size_t *at, size_t *length) {
    char *line = text + *at, *end;
    if (*at >= bytes) return NULL;
    end = (char *)memchr(line, '\n', bytes - *at);
    *length = end ? (size_t)(end - line) : bytes - *at;
    *at += *length + 1;
    if (*length > 0 && line[*length - 1] == '\r') --*length;
    return line;
}
static mgv_result mgv__read_merges_text(mgv__tokenizer_reader *r, char *text, size_t bytes) {
    char *line;
    size_t at = 0, length, count = 0;
    uint32_t rank = 0;
    mgv_result result;
    while (mgv__next_line(text, bytes, &at, &length) != NULL) count++;
    result = mgv__merges_begin(r, count);
    for (at = 0; result == MGV_OK && (line = mgv__next_line(text, bytes, &at, &length)) != NULL;) {
        if (length == 0 || (length >= 8 && memcmp(line, "#version", 8) == 0)) continue;
        result = mgv__merges_add_line(r, line, length, rank++);
    }
    return result;
}
/* Special tokens of directories without a tokenizer.json: names that follow the vocabulary, or are in it. */
static mgv_result mgv__add_special(mgv__tokenizer_reader *r, const char *name, int special) {
    mgv__added added;
    size_t bytes = strlen(name);
    mgv_result result = mgv__pool_room(r, bytes + 1);
    if (result != MGV_OK) return result;
    memcpy(r->t->pool + r->t->pool_bytes, name, bytes + 1);
    memset(&added, 0, sizeof added);
    added.id = mgv__token_find(r->t, name, bytes);
    added.special = special;
    if (added.id == MGV__NO_ID) added.id = r->t->count;
    return mgv__added_put(r, bytes, &added);
}
/* The special tokens of Qwen2 to Qwen3, and of Qwen3.5, behind their vocabularies; those after the slash are left in texts. */
static const char *const mgv__qwen_specials[] = {
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>",
    "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
    "/<tool_call>", "/</tool_call>", "/<|fim_prefix|>", "/<|fim_middle|>", "/<|fim_suffix|>", "/<|fim_pad|>", "/<|repo_name|>",
    "/<|file_sep|>", "/<tool_response>", "/</tool_response>", "/<think>", "/</think>",
    /* Qwen3.5 */
    "<|audio_start|>", "<|audio_end|>", "<tts_pad>", "<tts_text_bos>", "<tts_text_eod>", "<tts_text_bos_single>", "<|audio_pad|>",
};
enum { MGV__QWEN3_SPECIALS = 26, MGV__QWEN3_5_SPECIALS = 33, MGV__QWEN3_TOKENS = 151643, MGV__QWEN3_5_TOKENS = 248044 };

/* added_tokens_decoder of tokenizer_config.json, or what is known of the class. */
static mgv_result mgv__read_specials(mgv__tokenizer_reader *r, char *config, const mgv__tokenizer_class *row) {
    char *list = config ? mgv__json_member(config, "added_tokens_decoder") : NULL, *at, *key, *value;
    uint32_t first, last, i;
    size_t total = 0;
    mgv_result result = MGV_OK;
    r->file = "tokenizer_config.json";
    if (list != NULL && *list == '{') {
        for (at = list + 1; result == MGV_OK && mgv__json_next(&at, &key, &value);) result = mgv__read_added(r, value, key + 1, &total);
    } else if (r->t->suffix[0]) {
        result = mgv__add_special(r, "<|startoftext|>", 1);
        if (result == MGV_OK) result = mgv__add_special(r, "<|endoftext|>", 1);
    } else if (r->t->count == MGV__QWEN3_TOKENS || r->t->count == MGV__QWEN3_5_TOKENS) {
        const uint32_t count = r->t->count == MGV__QWEN3_TOKENS ? MGV__QWEN3_SPECIALS : MGV__QWEN3_5_SPECIALS;
        for (i = 0; i < count && result == MGV_OK; i++) {
            const int plain = mgv__qwen_specials[i][0] == '/';
            result = mgv__add_special(r, mgv__qwen_specials[i] + plain, !plain);
        }
    }
    if (result != MGV_OK || strcmp(row->name, "CLIPTokenizer") != 0) return result;
    first = mgv__any_token_find(r->t, "<|startoftext|>", 15);
    last = mgv__any_token_find(r->t, "<|endoftext|>", 13);
    if (first == MGV__NO_ID || last == MGV__NO_ID) return mgv__tokenizer_fail(r, "CLIP's tokens for begin and end are missing");
    r->t->unknown = last;
    result = mgv__put_specials(r, 0, &first, 1);
    return result == MGV_OK ? mgv__put_specials(r, 1, &last, 1) : result;
}
enum { MGV__SPARE_IDS = 1024 }; /* special tokens behind a vocabulary that is not a tokenizer.json */

/* vocab.json and merges.txt */
static mgv_result mgv__read_vocab_and_merges(mgv__tokenizer_reader *r, char *vocabulary, char *config, const mgv__tokenizer_class *row) {
    char *merges = NULL;
    size_t bytes;
    mgv_result result = mgv__names_begin(r, mgv__json_count(vocabulary), MGV__SPARE_IDS);
    if (result == MGV_OK) result = mgv__read_vocabulary(r, vocabulary);
    r->file = "merges.txt";
    if (result == MGV_OK) result = mgv__source_read(&r->source, r->file, &merges, &bytes, NULL, r->error);
    if (result == MGV_OK) result = mgv__read_merges_text(r, merges, bytes);
    mgv__free(&r->source.allocator, merges);
    r->t->model_count = r->t->count;
    if (row == NULL && result == MGV_OK && mgv__token_find(r->t, "a</w>", 5) != MGV__NO_ID) {
        row = mgv__tokenizer_class_find("CLIPTokenizer");
    }
    if (row == NULL && result == MGV_OK) {
        return mgv__fail(r->error, MGV_ERROR_UNSUPPORTED, "vocab.json: nothing says whose tokenizer this is: neither a tokenizer_class in "
                         "tokenizer_config.json nor a model_type in config.json that this version knows");
    }
    if (result == MGV_OK) result = mgv__read_stages(r, NULL, row);
    return result == MGV_OK ? mgv__read_specials(r, config, row) : result;
}

/* A .tiktoken file: lines of a token's bytes in base64 and its id, which is its rank too: whatever pair makes the token merges with it. */
static mgv_result mgv__read_ranks(mgv__tokenizer_reader *r, char *text, size_t bytes) {
    mgv_tokenizer *t = r->t;
    unsigned char raw[MGV__MAX_ADDED_BYTES];
    size_t at = 0, length, i;
    char *line;
    mgv_result result = MGV_OK;
    while (result == MGV_OK && (line = mgv__next_line(text, bytes, &at, &length)) != NULL) {
        char *space = (char *)memchr(line, ' ', length), *name;
        size_t count = space ? (size_t)(space - line) : 0, rank = 0, digits = 0;
        if (length == 0) continue;
        if (count / 4 * 3 + 3 > sizeof raw) return mgv__tokenizer_fail(r, "a line without a space, or a token of more than 500 bytes");
        count = count ? mgv__base64_read(line, count, raw) : (size_t)-1;
        for (i = 0; space != NULL && space + 1 + i < line + length; i++, digits++) {
            if (space[1 + i] < '0' || space[1 + i] > '9' || rank > UINT32_MAX / 10) break;
            rank = rank * 10 + (size_t)(space[1 + i] - '0');
        }
        if (count == (size_t)-1 || count == 0 || digits == 0 || space + 1 + i != line + length || rank >= UINT32_MAX) {
            return mgv__tokenizer_fail(r, "a line that is not a token in base64, a space and a rank");
        }
        result = mgv__pool_room(r, 2 * count + 1);
        if (result != MGV_OK) return result;
        name = t->pool + t->pool_bytes;
        for (i = 0; i < count; i++) name += mgv__json_utf8(name, mgv__byte_character(raw[i]));
        *name = 0;
        result = mgv__names_add(r, (uint32_t)rank, (size_t)(name - t->pool) - t->pool_bytes, 1);
    }
    return result;
}
/* All pairs of tokens that are one together; counted where `add` is 0. */
static mgv_result mgv__rank_merges(mgv__tokenizer_reader *r, int add, size_t *count) {
    const mgv_tokenizer *t = r->t;
    uint32_t id;
    size_t cut;
    mgv_result result = MGV_OK;
    *count = 0;
    for (id = 0; id < t->count && result == MGV_OK; id++) {
        const char *name = t->pool + t->offsets[id];
        for (cut = 1; cut < t->lengths[id] && t->lengths[id] != UINT32_MAX && result == MGV_OK; cut++) {
            uint32_t left, right;
            if (((unsigned char)name[cut] & 0xC0) == 0x80) continue;
            left = mgv__token_find(t, name, cut);
            right = left == MGV__NO_ID ? left : mgv__token_find(t, name + cut, t->lengths[id] - cut);
            if (right == MGV__NO_ID) continue;
            ++*count;
            if (add) result = mgv__merges_add(r, left, right, id, id);
        }
    }
    return result;
}
static mgv_result mgv__read_tiktoken(mgv__tokenizer_reader *r, char *text, size_t bytes, char *config, const mgv__tokenizer_class *row) {
    size_t lines = 0, at = 0, length, merges;
    mgv_result result;
    while (mgv__next_line(text, bytes, &at, &length) != NULL) lines += length > 0;
    result = mgv__names_begin(r, lines, MGV__SPARE_IDS);
    if (result == MGV_OK) result = mgv__read_ranks(r, text, bytes);
    if (result == MGV_OK) result = mgv__rank_merges(r, 0, &merges);
    if (result == MGV_OK) result = mgv__merges_begin(r, merges);
    if (result == MGV_OK) result = mgv__rank_merges(r, 1, &merges);
    if (result != MGV_OK) return result;
    r->t->model_count = r->t->count;
    if (row == NULL && r->t->count == MGV__QWEN3_TOKENS) row = mgv__tokenizer_class_find("Qwen2Tokenizer");
    if (row == NULL && r->t->count == MGV__QWEN3_5_TOKENS) row = mgv__tokenizer_class_find("Qwen3_5Tokenizer");
    if (row == NULL) {
        return mgv__fail(r->error, MGV_ERROR_UNSUPPORTED, "%s: %u tokens: neither Qwen's nor does tokenizer_config.json say whose they are",
                         r->file, (uint64_t)r->t->count);
    }
    result = mgv__read_stages(r, NULL, row);
    return result == MGV_OK ? mgv__read_specials(r, config, row) : result;
}

/* The class that decides: what tokenizer_config.json says, or what the model's type means (transformers, tokenization_auto.py). */
static const mgv__tokenizer_class *mgv__tokenizer_class_of(const mgv__tokenizer_reader *r) {
    static const char *const types[][2] = {
        {"clip", "CLIPTokenizer"}, {"clip_text_model", "CLIPTokenizer"}, {"siglip2", "Siglip2Tokenizer"}, {"qwen2", "Qwen2Tokenizer"},
        {"qwen2_vl", "Qwen2Tokenizer"}, {"qwen2_5_vl", "Qwen2Tokenizer"}, {"qwen3", "Qwen2Tokenizer"}, {"qwen3_vl", "Qwen2Tokenizer"},
        {"qwen3_5", "Qwen3_5Tokenizer"},
    };
    const mgv__tokenizer_class *row = mgv__tokenizer_class_find(r->tokenizer_class);
    size_t i;
    if (row != NULL && strcmp(row->name, "GemmaTokenizer") == 0 && strcmp(r->model_type, "siglip2") == 0) {
        return mgv__tokenizer_class_find("Siglip2Tokenizer");
    }
    if (row != NULL || r->tokenizer_class[0]) return row;
    for (i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(r->model_type, types[i][0]) == 0) return mgv__tokenizer_class_find(types[i][1]);
    }
    return NULL;
}
static mgv_result mgv__read_directory(mgv__tokenizer_reader *r, char *config, const mgv__tokenizer_class *row) {
    static const char *const ranks[] = {"qwen.tiktoken", "qwen3_6.tiktoken", "tokenizer.tiktoken"};
    char *text = NULL;
    size_t bytes = 0, i;
    int absent = 1;
    mgv_result result = mgv__read_small(r, "tokenizer.json", &text);
    if (result == MGV_OK && text != NULL) result = mgv__read_tokenizer_json(r, text, row);
    if (result != MGV_OK || text != NULL) {
        mgv__free(&r->source.allocator, text);
        return result;
    }
    result = mgv__read_small(r, "vocab.json", &text);
    if (result == MGV_OK && text != NULL) result = mgv__read_vocab_and_merges(r, text, config, row);
    mgv__free(&r->source.allocator, text);
    if (result != MGV_OK || text != NULL) return result;
    for (i = 0; i < sizeof ranks / sizeof ranks[0] && absent && result == MGV_OK; i++) {
        r->file = ranks[i];
        result = mgv__source_read(&r->source, r->file, &text, &bytes, &absent, r->error);
    }
    if (result == MGV_OK && absent) {
        return mgv__fail(r->error, MGV_ERROR_IO, "%s: neither tokenizer.json nor vocab.json with merges.txt nor a .tiktoken file of Qwen",
                         mgv__source_name(&r->source));
    }
    if (result == MGV_OK) result = mgv__read_tiktoken(r, text, bytes, config, row);
    mgv__free(&r->source.allocator, text);
    return result;
}

static mgv_result mgv__tokenizer_finish(mgv__tokenizer_reader *r, char *config, const mgv__tokenizer_class *row, int32_t lower_case) {
    mgv_tokenizer *t = r->t;
    uint32_t id;
    mgv_result result = mgv__added_order(r);
    for (id = 0; id < t->count && result == MGV_OK; id++) {
        if (t->lengths[id] == UINT32_MAX) {
            result = mgv__fail(r->error, MGV_ERROR_FORMAT, "%s: no token has the id %u, although there are higher ones", r->file,
                               (uint64_t)id);
        }
    }
    if (result != MGV_OK) return result;
    mgv__set_lower_case(r, row, lower_case);
    mgv__model_tables(t);
    if (t->suffix[0] && t->decoders.count == 1 && t->decoders.step[0].kind == MGV__STEP_BYTES_AS_CHARACTERS) {
        mgv__step *step = &t->decoders.step[0]; /* CLIPTokenizer writes a space where a word ends */
        t->decoders.step[1] = *step;
        memset(step, 0, sizeof *step);
        step->kind = MGV__STEP_SUFFIX;
        step->from_bytes = (uint32_t)strlen(t->suffix);
        memcpy(step->from, t->suffix, sizeof step->from);
        t->decoders.count = 2;
    }
    result = mgv__unigram_tree(r);
    if (result == MGV_OK) result = mgv__added_trees(r);
    if (result == MGV_OK && t->info.pad_id == MGV__NO_ID) result = mgv__named_token(r, config, "pad_token", &t->info.pad_id);
    t->info.vocabulary = t->count;
    t->info.model = t->unigram ? "Unigram" : "BPE";
    t->info.eos_id = t->behind_count ? t->behind[t->behind_count - 1] : MGV__NO_ID;
    t->info.bos_id = t->before_count ? t->before[0] : MGV__NO_ID;
    return result;
}
MEGAVIT_API mgv_result mgv_tokenizer_open(mgv_tokenizer **tokenizer, const mgv_model_desc *desc, mgv_lower_case lower_case,
                                          mgv_error *error) {
    mgv__tokenizer_reader r;
    const mgv__tokenizer_class *row;
    char *config = NULL;
    mgv_result result;
    mgv__clear_error(error);
    if (tokenizer == NULL) return mgv__fail(error, MGV_ERROR_ARGUMENT, "mgv_tokenizer_open needs somewhere to put the handle");
    *tokenizer = NULL;
    memset(&r, 0, sizeof r);
    r.error = error;
    if (lower_case < MGV_LOWER_CASE_AUTO || lower_case > MGV_LOWER_CASE_NO) {
        return mgv__fail(error, MGV_ERROR_ARGUMENT, "%i is no mgv_lower_case", (int64_t)lower_case);
    }
    result = mgv__source_open(&r.source, desc, error);
    if (result != MGV_OK) return result;
    r.t = (mgv_tokenizer *)mgv__alloc(&r.source.allocator, sizeof *r.t);
    if (r.t == NULL) return mgv__fail_nomem(error, "a tokenizer", sizeof *r.t);
    memset(r.t, 0, sizeof *r.t);
    r.t->allocator = r.source.allocator;
    r.t->unknown = r.t->info.pad_id = MGV__NO_ID;
    result = mgv__read_tokenizer_config(&r, &config);
    row = mgv__tokenizer_class_of(&r);
    if (result == MGV_OK) result = mgv__read_directory(&r, config, row);
    if (result == MGV_OK) result = mgv__tokenizer_finish(&r, config, row, lower_case);
    mgv__free(&r.source.allocator, config);
    if (result == MGV_OK) *tokenizer = r.t;
    else mgv_tokenizer_close(r.t);
    return result;
}
MEGAVIT_API void mgv_tokenizer_close(mgv_tokenizer *t) {
    mgv_allocator allocator;
    if (t == NULL) return;
    allocator = t->allocator;
    mgv__free(&allocator, t->pool);
    mgv__free(&allocator, t->offsets);
    mgv__free(&allocator, t->lengths);
    mgv__free(&allocator, t->slots);
    mgv__free(&allocator, t->added);
    mgv__free(&allocator, t->added_raw.nodes);
    mgv__free(&allocator, t->added_normalized.nodes);
    mgv__free(&allocator, t->charsmap);
    mgv__free(&allocator, t->merges);
    mgv__free(&allocator, t->bigrams);
    mgv__free(&allocator, t->scores);
    mgv__free(&allocator, t->pieces.nodes);
    mgv__free(&allocator, t);
}
MEGAVIT_API mgv_result mgv_tokenizer_get_info(const mgv_tokenizer *t, mgv_tokenizer_info *info) {
    if (t == NULL || info == NULL) return MGV_ERROR_ARGUMENT;
    *info = t->info;
    return MGV_OK;
}
MEGAVIT_API mgv_result mgv_tokenizer_get_token(const mgv_tokenizer *t, uint32_t id, const char **name, size_t *bytes) {
    if (t == NULL || name == NULL || bytes == NULL || id >= t->count) return MGV_ERROR_ARGUMENT;
    *name = t->pool + t->offsets[id];
    *bytes = t->lengths[id];
    return MGV_OK;
}

#endif /* MEGAVIT_TEXT */

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
