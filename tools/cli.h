/* What the commands of the megavit program share.

   One file a command (megavit_embed.c …), each with a table of its options and one function that runs it. The words of
   the command line, the exit codes and the one line a bad file gets are a contract that scripts rely on. */
#ifndef MEGAVIT_CLI_H
#define MEGAVIT_CLI_H

#include <stdarg.h>
#include <stdio.h>
#include "megavit.h"
#include "tools/decode.h"

enum {
    CLI_DONE = 0,
    CLI_USAGE = 1,    /* the command line is wrong */
    CLI_BAD_FILE = 2, /* a file or picture is */
    CLI_MACHINE = 3   /* memory, GPU */
};

/* ---- text and messages (megavit_messages.c) ---- */

/* Text that came out of a file, on one line: control characters, C1's too, and bytes that are no UTF-8 are escaped as \x1B. */
void cli_print_text(FILE *stream, const char *text);
/* A string as JSON, quotes included; bytes that are no UTF-8 become U+FFFD. */
void cli_json_string(FILE *stream, const char *text);
/* Floats as a JSON array with as many digits as give the same float back; all are finite. */
void cli_json_floats(FILE *stream, const float *values, uint64_t count);

/* Prints "megavit: FILE: message" as one line on stderr and returns status. file may be NULL. All of it goes through cli_print_text,
   so that whatever a file is called or says, the message stays one line. */
int cli_fail(int status, const char *file, const char *format, ...);
/* The same for what the library said. */
int cli_fail_library(const char *file, mgv_result result, const mgv_error *error);
/* Prints what the library warns of as "megavit: warning: message" on stderr. */
mgv_logger cli_logger(void);
/* The line alone. */
void cli_print_message(const char *file, const char *format, va_list arguments);
/* Says, once in the program's life, that standard output did not take everything, with errno's reason if there is one; CLI_BAD_FILE. */
int cli_fail_output(void);

/* ---- options (megavit_options.c) ---- */

/* Why a file of a folder is left out without being an error. */
enum { CLI_SKIPPED_CONTENT, CLI_SKIPPED_IRREGULAR, CLI_SKIPPED_FOLDER, CLI_SKIPPED_TWICE, CLI_SKIPPED_GONE, CLI_SKIPS };

/* Names, each a copy that the list owns. */
typedef struct cli_list {
    char **items;
    unsigned char *found;      /* of each: 1 if a folder had it, so that it may well be no picture; 0 if somebody named it */
    size_t count, room;
    size_t skipped[CLI_SKIPS]; /* files of folders that were left out */
    size_t plain; /* of operands: how many stood before "--" */
} cli_list;
/* 0, or CLI_MACHINE after saying so. */
int cli_list_add(cli_list *list, const char *item);
void cli_list_free(cli_list *list);

typedef enum cli_kind {
    CLI_FLAG,    /* int: set to 1 */
    CLI_TEXT,    /* const char *, not empty */
    CLI_ANY_TEXT,/* the same, or empty */
    CLI_TEXTS,   /* cli_list: each use adds one */
    CLI_COUNT,   /* uint32_t in [1, 2^20] */
    CLI_THREADS, /* uint32_t in [1, 1024] */
    CLI_PIXELS,  /* uint64_t in [1, 2^40] */
    CLI_COSINE,  /* double in [-1, 1] */
    CLI_REAL,    /* double, finite, not below 0 */
    CLI_WHOLE,   /* uint64_t in [0, 2^63] */
    CLI_PRECISION, /* mgv_precision, by its name */
    CLI_FAST,      /* the same, auto or fast */
    CLI_CHOICE,  /* int32_t: place of the word in `argument`, which holds the words with '|' between */
    CLI_NAMES    /* cli_list: every word up to the next option */
} cli_kind;

typedef struct cli_option {
    const char *name;     /* "--model", "-o" */
    cli_kind kind;
    void *value;
    const char *argument; /* "DIR"; NULL for a flag */
    const char *help;
} cli_option;

typedef struct cli_command {
    const char *name;
    const char *usage;   /* what follows the name */
    const char *summary; /* one line */
    const char *details; /* for --help; may be NULL */
    int (*run)(const struct cli_command *command, int argc, char **argv);
} cli_command;

enum { CLI_GO_ON = -1 };
/* Reads the command's arguments into the options' values. operands: where words that belong to no option go, or NULL if
   there may be none. The table ends with a NULL name. CLI_GO_ON, or the exit code if the program should end here. */
int cli_parse(const cli_command *command, const cli_option *options, cli_list *operands, int argc, char **argv);
/* Moves *text past a number in [1, most], which is digits and nothing else; 0 if there is none. */
int cli_read_number(const char **text, uint64_t most, uint64_t *number);
/* Says what is wrong with the command line and where to read more; CLI_USAGE. */
int cli_usage(const cli_command *command, const char *format, ...);

extern const cli_command cli_embed, cli_preprocess, cli_inspect, cli_search, cli_classify, cli_plan, cli_pack, cli_bench, cli_validate,
    cli_tokenize, cli_text, cli_map, cli_generate, cli_chat;

/* ---- the GPU's schedule (megavit_schedule.c) ---- */

/* Whether there is one for so many pictures and multiprocessors (0: those of an H200). A model that the kernel does not run is an error
   only where `required`; a number that makes no sense always is. CLI_DONE, or the exit code after saying why. */
int cli_check_schedule(const mgv_model *model, const char *name, const mgv_schedule_desc *desc, int required);
/* Prints it, or one line that says why there is none. model_flops: of all operations, for these pictures. */
int cli_print_schedule(const mgv_model *model, const char *name, const mgv_schedule_desc *desc, double model_flops);
/* How a language model would append ids to sessions. */
int cli_print_decode_schedule(const mgv_model *model, const char *name, const mgv_decode_desc *desc);

/* ---- the GPU as a benchmark sees it (megavit_card.c, with the CUDA backend only) ---- */

/* The current device, a stream of its own, and NVML where the driver brings it. */
typedef struct cli_card cli_card;
/* NULL without a GPU. */
cli_card *cli_card_open(void);
void cli_card_close(cli_card *card);
/* Copies the pixels to the card and makes room for rows; 0 without the memory. cli_card_release gives both back. */
int cli_card_reserve(cli_card *card, const unsigned char *pixels, size_t pixel_bytes, size_t row_bytes);
void cli_card_release(cli_card *card);
const unsigned char *cli_card_pixels(const cli_card *card);
float *cli_card_rows(const cli_card *card);
void *cli_card_stream(const cli_card *card);
/* Events on the stream around what is measured; 0: a CUDA call failed. cli_card_end waits. */
int cli_card_begin(cli_card *card);
int cli_card_end(cli_card *card, double *milliseconds);
/* Joules that the card has taken since its driver was loaded, in steps of about 20 ms of time; negative where nobody counts them. */
double cli_card_joules(const cli_card *card);
/* Dense bf16, as NVIDIA states it for an H100 or H200 with 132 multiprocessors: 989.4 TFLOP/s. */
double cli_card_peak_flops(const cli_card *card);
/* Card and driver, for a table's head. */
void cli_card_name(const cli_card *card, char *text, size_t room);

/* ---- names of pictures (megavit_names.c) ---- */

/* Where else names come from, and what becomes of folders in folders. */
typedef struct cli_names {
    int no_recurse;
    const char *files_from, *files0_from;
} cli_names;
#define CLI_NAMES_OPTIONS(names) \
    {"--no-recurse", CLI_FLAG, &(names).no_recurse, NULL, "leave folders in folders out"}, \
    {"--files-from", CLI_TEXT, &(names).files_from, "FILE", "names from a file, a line each; - is standard input"}, \
    {"--files0-from", CLI_TEXT, &(names).files0_from, "FILE", "the same with a zero byte behind each, as find -print0 gives them"}

/* Replaces a folder by the files in it and in its folders, sorted by path, and "-" by the names on standard input, a line each. Links are
   followed, and each file comes once. how may be NULL. What could not be read is reported and left out. Returns the worst exit code met. */
int cli_expand(const cli_list *names, const cli_names *how, cli_list *pictures);
/* Bytes of the mark that editors of other systems put in front of a file of lines: no part of the first one. */
size_t cli_byte_order_mark(const char *line);
/* One line about what was left out of folders, with reasons, if there is something. */
void cli_say_skipped(const cli_list *pictures);

/* ---- texts (megavit_texts.c) ---- */

/* Copies the words to texts; "-" before "--" becomes the lines of standard input. 0, or the exit code after saying why. */
int cli_read_texts(const cli_list *words, cli_list *texts);
/* Adds the lines of a file that are not empty. */
int cli_read_label_lines(const char *name, cli_list *texts);
/* The tokenizer of a directory. NULL after saying why, with *status set. */
mgv_tokenizer *cli_tokenizer_open(const char *name, int32_t lower_case, int *status);
/* The text's ids, to be freed; NULL after saying why, with *status set. */
uint32_t *cli_tokenize_text(const mgv_tokenizer *tokenizer, const char *text, uint32_t flags, uint64_t *count, int *status);
/* Ids from a NumPy array of int64 or int32. */
typedef struct cli_ids {
    uint32_t *ids;          /* [rows, columns] */
    uint64_t rows, columns;
    unsigned char *data;    /* the file */
    size_t length, at;      /* its bytes; where its numbers begin */
    uint32_t width;         /* bytes of a number */
} cli_ids;
/* rank: dimensions that it has to have, 1 or 2. 0, or the exit code after saying why. Either way it is to be freed. */
int cli_ids_read(cli_ids *array, const char *name, uint32_t rank);
void cli_ids_free(cli_ids *array);
/* The text tower of a model at work. */
typedef struct cli_text_options {
    const char *model;
    const mgv_model *tower; /* NULL: the model is opened */
    int32_t lower_case;
    uint32_t threads;
    mgv_precision precision;
    int normalize;
} cli_text_options;
/* Rows [count, info->text_width], to be freed; NULL after saying why, with *status set. */
float *cli_encode_texts(const cli_text_options *options, const mgv_text *texts, uint32_t count, mgv_model_info *info, int *status);
/* The same of a list of UTF-8. */
float *cli_encode_text_list(const cli_text_options *options, const cli_list *list, mgv_model_info *info, int *status);
#define CLI_LOWER_CASE_OPTION(value) \
    {"--lower-case", CLI_CHOICE, &(value), "auto|yes|no", "texts in lower case (auto: as transformers does with these files)"}

/* ---- pictures (megavit_pictures.c) ---- */

#define CLI_PICTURE_BYTES ((size_t)1 << 30) /* no picture of so many pixels as decoders take needs so many */
/* Opens a file of at most `most` bytes and tells its size; -1 with the reason. Only regular files, so that it does not block. Any
   thread. */
int cli_file_open(const char *name, size_t most, size_t *bytes, decode_reason *why);
/* Reads all of them into memory to be freed, and closes the descriptor; 0 with the reason. Any thread. */
int cli_file_take(int descriptor, size_t bytes, decode_bytes *file, decode_reason *why);
/* Who reads it; NULL with the reason. The name matters for Targa files alone, which have no signature. */
const decoder *cli_picture_decoder(const char *name, decode_bytes file, decode_reason *why);
/* Whether a file of this name should be a picture, so that it is an error where it is none. */
int cli_is_picture_name(const char *name);
/* Says that the picture cannot be decoded. */
int cli_picture_fail(const char *name, const decode_reason *why);

typedef struct cli_picture {
    const char *name;
    mgv_image image;
    unsigned char *pixels;
} cli_picture;
/* Takes decoded pixels over. */
void cli_picture_take(cli_picture *picture, const char *name, decode_pixels *pixels);
enum { CLI_SKIP = -2 }; /* instead of an exit code: a folder had it, and it is no picture */
/* Reads and decodes, with CLI_MEMORY_MB at most. Reports a failure. The pixels are in the file's own channels; the library turns them into
   RGB. */
int cli_picture_load(cli_picture *picture, const char *name);
void cli_picture_free(cli_picture *picture);

/* What reads each format, as "JPEG libjpeg-turbo, PNG stb_image", without versions, whose pixels are the same: rows that were made with
   another are not to be compared. */
void cli_picture_decoders(char *text, size_t room);
/* 0: a format that both name is read by another library. */
int cli_picture_decoders_agree(const char *one, const char *other);

/* ---- the backend (megavit_backend.c) ---- */

/* CLI_MACHINE, after saying how to build one that has it, if this program has no such backend. */
int cli_check_backend(mgv_backend backend);
/* Whether this backend may become a GPU. */
int cli_may_be_gpu(mgv_backend backend);
/* Why --backend auto became the CPU: to be watched while an engine is made, and said once in the program's life where a person with a GPU
   would want to know it. */
typedef struct cli_fallback {
    char reason[512];
} cli_fallback;
void cli_watch_fallback(cli_fallback *fallback, mgv_logger *logger);
void cli_say_fallback(const cli_fallback *fallback);

/* ---- which GPUs (megavit_devices.c) ---- */

enum { CLI_MAX_DEVICES = 16 };
/* "all" or "0,2". 0, or the exit code after saying why. */
int cli_read_devices(const char *text, uint32_t *devices, uint32_t *count);
/* Page-locked memory, from which every GPU takes pictures without a copy on the host. NULL: there is none. */
void *cli_card_memory(size_t bytes);
void cli_card_free(void *memory);
/* Memory of the GPU that engines of one device use. NULL: there is none. */
float *cli_card_rows_memory(size_t floats);
void cli_card_rows_free(float *rows);
/* Begins what takes long on GPUs that nobody has used yet, on a thread of its own; NULL: it will be done later. */
typedef struct cli_card_start cli_card_start;
cli_card_start *cli_card_begin_start(const uint32_t *devices, uint32_t count);
/* Waits for it; how many seconds it took. NULL is allowed. */
double cli_card_end_start(cli_card_start *start);

/* ---- a model at work (megavit_session.c) ---- */

typedef struct cli_session_options {
    const char *model, *packed, *devices;
    int32_t backend, resize, alpha;
    mgv_precision precision;
    uint32_t batch, threads;
    uint32_t memory;                 /* megabytes of files and pictures at a time */
    uint32_t row_outputs;            /* token and layer outputs of one call */
    uint32_t output_kinds;           /* mgv_engine_desc.output_kinds; 0: what pictures are compared by */
    uint64_t min_pixels, max_pixels; /* 0: what came with the model */
    int may_find_none;               /* no picture among the files is no error */
    int32_t lower_case;
    int32_t tower;                   /* MGV_TOWER_VISION, _BOTH for texts beside pictures, or _LANGUAGE */
    int scaled_decoding;             /* JPEGs are decoded at a fraction of their size where that suffices */
    int timing;                      /* tells on stderr what took how long */
} cli_session_options;
/* The rows of an option table that fill one. */
#define CLI_SESSION_OPTIONS(options) \
    {"--model", CLI_TEXT, &(options).model, "DIR", "the model: a directory as Hugging Face stores it"}, \
    {"--backend", CLI_CHOICE, &(options).backend, "auto|cpu|cuda", "where it runs (auto: the GPU if there is one it knows)"}, \
    {"--packed", CLI_TEXT, &(options).packed, "FILE", "its weights as megavit pack has written them, for the GPU"}, \
    {"--resize", CLI_CHOICE, &(options).resize, "pillow|torchvision", "which library's resize to reproduce bit for bit (pillow)"}, \
    {"--alpha", CLI_CHOICE, &(options).alpha, "white|drop", "transparent parts become white, or what is hidden there is seen (white)"}, \
    {"--threads", CLI_THREADS, &(options).threads, "N", "threads of the CPU (all cores); the result does not depend on it"}
enum { CLI_ARCHITECTURE_BYTES = 48 };
/* What the library calls the choices of --arch and --precision of plan and pack. */
static inline const char *cli_architecture(int32_t architecture, mgv_precision precision, char *out) {
    static const char *const names[] = {"sm_90a", "sm_100a", "sm_103a", "sm_110a"};
    const int mx = (precision & MGV_PRECISION_MXFP8) != 0;
    snprintf(out, CLI_ARCHITECTURE_BYTES, "%s%s%s", names[architecture], mx ? " " : "", mx ? mgv_precision_name(precision) : "");
    return out;
}
#define CLI_PRECISION_OPTION(precision) \
    {"--precision", CLI_PRECISION, &(precision), "auto|fast|bf16|mxfp8|mixed|LIST", \
     "of the products: bf16 on a GPU, float32 on a CPU (auto); fast: as auto, but in bf16 on a CPU that\n" \
     "                                 multiplies it. As Blackwell rounds, on a CPU slowly: bf16; mxfp8, all of a layer's in MXFP8;\n" \
     "                                 mixed, those behind norms; or a LIST as qkv+out+fc1+fc2, the others in bf16"}
/* Where what a GPU would round does not matter. */
#define CLI_FAST_OPTION(precision) \
    {"--precision", CLI_FAST, &(precision), "auto|fast", "fast: as auto, but in bf16 instead of float32 on a CPU that multiplies it"}
#define CLI_BATCH_OPTION(options) \
    {"--batch", CLI_COUNT, &(options).batch, "N", \
     "pictures in one call (8, on a GPU 64). A GPU calculates with any number of pictures as it does with N, a CPU always the same"}

#define CLI_DEVICES_OPTION(options) \
    {"--devices", CLI_TEXT, &(options).devices, "LIST", "GPUs that share the pictures: all, or numbers such as 0,2 (0)"}
#define CLI_SCALED_OPTION(options) \
    {"--scaled-decoding", CLI_FLAG, &(options).scaled_decoding, NULL, \
     "decode JPEGs at 1/2, 1/4 or 1/8 where that is twice the model's size at least: faster for photos, rows a little different"}
#define CLI_TIMING_OPTION(options) \
    {"--timing", CLI_FLAG, &(options).timing, NULL, "say on standard error what took how long"}

enum { CLI_MEMORY_MB = 1024 };
#define CLI_MEMORY_OPTION(options) \
    {"--memory", CLI_COUNT, &(options).memory, "MB", "for files and decoded pictures at a time, beside model and batch (1024)"}

#define CLI_LIMIT_OPTIONS(options) \
    {"--min-pixels", CLI_PIXELS, &(options).min_pixels, "N", "models of any picture size: the least area to resize to (the model's)"}, \
    {"--max-pixels", CLI_PIXELS, &(options).max_pixels, "N", "and the largest: fewer pixels are fewer tokens"}

/* --threads, or as many as there are cores that this process may use. */
uint32_t cli_thread_count(const cli_session_options *options);

typedef struct cli_session cli_session;
/* Opens the model alone; engines are made as pictures come. NULL after saying why, with *status set. */
cli_session *cli_session_open(const cli_session_options *options, int *status);
/* CLI_BAD_FILE, after saying so, if one picture of this model takes more than the command line runs. */
int cli_check_work(const char *model, const mgv_model_info *info);
const mgv_model_info *cli_session_info(const cli_session *session);
/* The vectors that pictures are compared by: embeds, or pooled of a model without. Returns how wide they are; 0: it has neither. */
uint32_t cli_compared_by(const mgv_model_info *info, mgv_output_kind *kind);
/* Whether --min-pixels and --max-pixels mean something for the model. 0, or CLI_USAGE after saying why not. */
int cli_check_limits(const mgv_model *model, const cli_session_options *options);
/* Makes an engine that fits this picture; reports a failure. */
int cli_session_fit(cli_session *session, const cli_picture *picture);
/* Makes the smallest engine if there is none; reports a failure. */
int cli_session_make(cli_session *session);
const mgv_model *cli_session_model(const cli_session *session);
/* How texts are encoded beside its pictures, divided by their length. The session was opened with its text tower. */
cli_text_options cli_session_texts(const cli_session *session);
mgv_engine *cli_session_engine(cli_session *session);
void cli_session_close(cli_session *session);

/* What the caller of cli_session_encode does with the rows of one picture; 0 or the exit code to stop with. */
typedef int cli_sink(void *user, const char *name, const mgv_shape *shape, const float *rows);
/* Decodes and encodes the pictures in batches and hands every picture's rows to sink, in order. A bad picture is reported
   and skipped. Returns the worst exit code met. */
int cli_session_encode(cli_session *session, cli_list *pictures, const mgv_output *output, cli_sink *sink, void *user);

/* ---- files that we write (megavit_write.c) ---- */

/* CLI_USAGE, after saying so, if this output would replace what is read: a picture, packed weights, a .json, .safetensors or other file of
   the model's own in its directory. output, packed and pictures may be NULL. CLI_DONE otherwise. */
int cli_check_output(const char *output, const char *model, const char *packed, const cli_list *pictures);

/* A file that appears under its name only when it is whole; one that it replaces gives it its mode. */
typedef struct cli_file cli_file;
/* name NULL, "-", or of what standard output is: standard output. A symbolic link stays one: what it points to is written. Reports a
   failure and returns NULL. */
cli_file *cli_file_create(const char *name);
FILE *cli_file_stream(cli_file *file);
/* Whether it will lie somewhere under its name, and is no device, pipe or standard output. */
int cli_file_is_regular(const cli_file *file);
/* Says that it cannot be written, with errno's reason; CLI_BAD_FILE. */
int cli_file_fail(const cli_file *file);
/* Makes it appear; reports a failure. The handle is gone afterwards. */
int cli_file_commit(cli_file *file);
/* Some that belong together: none appears before all are whole. Those that are NULL do not count. */
int cli_file_commit_all(cli_file *const *files, int count);
/* Makes it appear where there is none yet; one that somebody else has made meanwhile stays. */
int cli_file_commit_new(cli_file *file);
/* Forgets it: nothing appears. NULL is allowed. */
void cli_file_abandon(cli_file *file);

enum { CLI_NPY_HEADER = 128 };
/* Writes the header of an array in NumPy's format 1.0, always CLI_NPY_HEADER bytes, at the stream's position.
   descr: "<f4", "<i8" … */
void cli_npy_header(FILE *stream, const char *descr, const uint64_t *shape, uint32_t rank);
/* Numbers as an .npy file holds them: little-endian, whatever the machine is. */
void cli_write_floats(FILE *stream, const float *values, uint64_t count);
void cli_write_uint64s(FILE *stream, const uint64_t *values, uint64_t count);

#endif
