/* A model at work: opens it, makes an engine that fits the pictures at hand, encodes them in batches. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "tools/cli.h"

enum { DEFAULT_BATCH = 8, DEFAULT_TOKENS = 4096 };

/* What a model's files may ask of the machine by themselves: a few kilobytes of JSON can make hours and hundreds of gigabytes of one small
   picture. Far above what published models ask; the caller may say more where there is an option for it. */
enum {
    MAX_TOKENS = 65536,     /* of one picture: 16,777,216 pixels in patches of 16 x 16, the most of the published models */
    ENLARGED_TOKENS = 4096, /* of a picture that becomes larger than it is */
    MAX_PICTURE_TFLOP = 20, /* of a model with one size of pictures: the largest published takes 2.6 */
    MAX_ENGINE_GIB = 16     /* host memory of an engine: Qwen2.5-VL takes 5 for 65,536 tokens */
};

struct cli_session {
    cli_session_options options;
    mgv_model *model;
    mgv_model_info info;
    mgv_engine *engine;
    mgv_threads *threads; /* NULL: one thread */
    uint32_t max_tokens; /* of one encode; 0: nothing but the number of pictures bounds them */
};

uint32_t cli_thread_count(const cli_session_options *options) {
    long count = options->threads ? (long)options->threads : sysconf(_SC_NPROCESSORS_ONLN);
    return count < 1 ? 1 : options->threads || count <= 256 ? (uint32_t)count : 256;
}

/* Limits that no picture can keep are the command line's fault and not each picture's. A square has no other that a model would mind. */
static int check_limits(const cli_session *session) {
    const cli_session_options *options = &session->options;
    mgv_image square;
    mgv_grid grid;
    mgv_error error;
    mgv_result result;
    if (!options->min_pixels && !options->max_pixels) return CLI_DONE; /* what a model's files say is not the command line's */
    memset(&square, 0, sizeof square);
    square.width = square.height = 512;
    result = mgv_model_grid(session->model, &square, options->min_pixels, options->max_pixels, &grid, &error);
    return result == MGV_ERROR_ARGUMENT ? cli_fail_library(NULL, result, &error) : CLI_DONE;
}

int cli_check_work(const char *model, const mgv_model_info *info) {
    if (info->flops_per_image <= MAX_PICTURE_TFLOP * 1e12) return CLI_DONE;
    return cli_fail(CLI_BAD_FILE, model, "one picture takes %.0f TFLOP, and the command line runs up to %d (the largest published: 3)",
                    info->flops_per_image / 1e12, MAX_PICTURE_TFLOP);
}

/* CLI_BAD_FILE, after saying so, if the model's files make more of this picture than they may. */
static int check_grid(const cli_session *session, const mgv_image *image, const mgv_grid *grid, const char *name) {
    const cli_session_options *options = &session->options;
    const uint64_t unit = session->info.patch * session->info.merge; /* sides become multiples of it, which alone can make them larger */
    const int enlarged = grid->width > image->width + unit || grid->height > image->height + unit;
    const char *option = NULL;
    uint32_t most = 0;
    if (grid->tokens > MAX_TOKENS && !options->max_pixels) {
        option = "--max-pixels";
        most = MAX_TOKENS;
    } else if (enlarged && grid->tokens > ENLARGED_TOKENS && !options->min_pixels) {
        option = "--min-pixels";
        most = ENLARGED_TOKENS;
    }
    if (session->info.image_size || !option) return CLI_DONE;
    return cli_fail(CLI_BAD_FILE, name, "the model's files make %u x %u pixels of it and %u tokens; more than %u only with %s", grid->width,
                    grid->height, grid->tokens, most, option);
}

cli_session *cli_session_open(const cli_session_options *options, int *status) {
    cli_session *session = calloc(1, sizeof *session);
    mgv_model_desc desc;
    mgv_error error;
    mgv_result result;
    memset(&desc, 0, sizeof desc);
    desc.path = options->model;
    desc.logger = cli_logger();
    if (!session) {
        *status = cli_fail(CLI_MACHINE, NULL, "out of memory");
        return NULL;
    }
    *status = cli_check_backend(options->backend);
    if (*status) {
        free(session);
        return NULL;
    }
    session->options = *options;
    if (!session->options.batch) session->options.batch = DEFAULT_BATCH;
    session->options.threads = cli_thread_count(options);
    result = mgv_model_open(&session->model, &desc, &error);
    if (result == MGV_OK) result = mgv_model_get_info(session->model, &session->info);
    if (result != MGV_OK) {
        *status = cli_fail_library(options->model, result, &error);
        /* Whatever is wrong with a model's directory is a bad file, not a wrong command line. */
        if (*status == CLI_USAGE) *status = CLI_BAD_FILE;
        cli_session_close(session);
        return NULL;
    }
    *status = check_limits(session);
    if (*status == CLI_DONE) *status = cli_check_work(options->model, &session->info);
    if (*status == CLI_DONE) return session;
    cli_session_close(session);
    return NULL;
}

const mgv_model_info *cli_session_info(const cli_session *session) { return &session->info; }
uint32_t cli_compared_by(const mgv_model_info *info, mgv_output_kind *kind) {
    *kind = info->embed_width ? MGV_OUTPUT_EMBEDS : MGV_OUTPUT_POOLED;
    return info->embed_width ? info->embed_width : info->pooled_width;
}
const mgv_model *cli_session_model(const cli_session *session) { return session->model; }
mgv_engine *cli_session_engine(cli_session *session) { return session->engine; }

void cli_session_close(cli_session *session) {
    if (!session) return;
    mgv_engine_destroy(session->engine);
    mgv_threads_destroy(session->threads);
    mgv_model_close(session->model);
    free(session);
}

static int make_engine(cli_session *session, uint32_t max_width, uint32_t max_height, uint32_t max_images, uint32_t max_tokens) {
    mgv_engine_desc desc;
    mgv_error error;
    mgv_result result;
    cli_fallback fallback;
    uint64_t bytes;
    memset(&desc, 0, sizeof desc);
    desc.backend = session->options.backend;
    cli_watch_fallback(&fallback, &desc.logger);
    desc.packed_path = session->options.packed;
    desc.resize = session->options.resize;
    desc.max_images = max_images;
    desc.max_tokens = max_tokens;
    desc.max_row_outputs = session->options.row_outputs;
    if (!session->info.pooled_width && desc.max_row_outputs == 0) desc.max_row_outputs = 1; /* then tokens are what there is */
    desc.max_width = max_width;
    desc.max_height = max_height;
    desc.min_pixels = session->options.min_pixels;
    desc.max_pixels = session->options.max_pixels;
    if (!session->threads && session->options.threads > 1) {
        result = mgv_threads_create(&session->threads, session->options.threads, NULL, &error);
        if (result != MGV_OK) return cli_fail_library(NULL, result, &error);
    }
    if (session->threads) desc.parallel = mgv_threads_parallel_for(session->threads);
    mgv_engine_destroy(session->engine);
    session->engine = NULL;
    result = mgv_engine_workspace_bytes(session->model, &desc, &bytes, &error);
    if (result == MGV_OK && bytes > (uint64_t)MAX_ENGINE_GIB << 30)
        return cli_fail(CLI_BAD_FILE, session->options.model, "an engine for it takes %.0f GiB of memory, and the command line gives it %d",
                        (double)bytes / (1 << 30), MAX_ENGINE_GIB);
    if (result == MGV_OK) result = mgv_engine_create(&session->engine, session->model, &desc, &error);
    cli_say_fallback(&fallback);
    return result == MGV_OK ? 0 : cli_fail_library(NULL, result, &error);
}

int cli_session_pictures(cli_session *session, cli_list *pictures) {
    uint32_t max_width = 1, max_height = 1, max_images = session->options.batch;
    size_t kept = 0;
    int worst = 0, status;
    session->max_tokens = DEFAULT_TOKENS;
    for (size_t i = 0; i < pictures->count; i++) {
        char *name = pictures->items[i];
        mgv_image image;
        mgv_grid grid;
        mgv_error error;
        mgv_result result = MGV_OK;
        int bad;
        memset(&image, 0, sizeof image);
        bad = cli_picture_size(name, pictures->found[i], &image.width, &image.height);
        if (bad == CLI_SKIP) {
            pictures->skipped[CLI_SKIPPED_CONTENT]++;
            free(name);
            continue;
        }
        if (!bad) result = mgv_model_grid(session->model, &image, session->options.min_pixels, session->options.max_pixels, &grid, &error);
        if (result != MGV_OK) bad = cli_fail_library(name, result, &error);
        if (!bad) bad = check_grid(session, &image, &grid, name);
        if (bad) {
            free(name);
            worst = CLI_BAD_FILE;
            continue;
        }
        if (image.width > max_width) max_width = image.width;
        if (image.height > max_height) max_height = image.height;
        if (grid.tokens > session->max_tokens) session->max_tokens = grid.tokens;
        pictures->items[kept++] = name;
    }
    cli_say_skipped(pictures);
    if (kept == 0 && !worst && !session->options.may_find_none) worst = cli_fail(CLI_BAD_FILE, NULL, "there is no picture among %zu files", pictures->count);
    pictures->count = kept;
    if (kept == 0) return worst;
    if (max_images > kept) max_images = (uint32_t)kept;
    if (session->info.tokens_per_image) session->max_tokens = 0; /* every picture has as many: max_images bounds them */
    status = make_engine(session, max_width, max_height, max_images, session->max_tokens);
    if (status) cli_list_free(pictures); /* without an engine there is nothing to go on with */
    return status > worst ? status : worst;
}

/* ---- encoding ---- */

typedef struct batch {
    cli_picture *pictures;
    mgv_image *images;
    uint32_t count;
    uint32_t tokens;
    float *rows;
    uint64_t room; /* floats behind rows */
} batch;

static void batch_clear(batch *b) {
    for (uint32_t i = 0; i < b->count; i++) cli_picture_free(&b->pictures[i]);
    b->count = 0;
    b->tokens = 0;
}

static int batch_reserve(batch *b, uint64_t floats) {
    float *rows;
    if (floats <= b->room) return 0;
    rows = floats <= SIZE_MAX / sizeof *rows ? realloc(b->rows, (size_t)floats * sizeof *rows) : NULL;
    if (!rows) return cli_fail(CLI_MACHINE, NULL, "out of memory for %llu floats", (unsigned long long)floats);
    b->rows = rows;
    b->room = floats;
    return 0;
}

/* Encodes what the batch holds and hands it on. */
static int batch_encode(cli_session *session, batch *b, const mgv_output *what, cli_sink *sink, void *user) {
    mgv_output output = *what;
    mgv_encode_desc desc;
    mgv_shape shape;
    mgv_error error;
    mgv_result result;
    const float *rows;
    for (uint32_t i = 0; i < b->count; i++) b->images[i] = b->pictures[i].image;
    result = mgv_engine_shape(session->engine, b->images, b->count, &output, &shape, &error);
    if (result != MGV_OK) return cli_fail_library(NULL, result, &error);
    if (batch_reserve(b, shape.rows * shape.columns)) return CLI_MACHINE;
    output.data = b->rows;
    output.capacity = b->room;
    memset(&desc, 0, sizeof desc);
    desc.images = b->images;
    desc.image_count = b->count;
    desc.outputs = &output;
    desc.output_count = 1;
    result = mgv_encode_blocking(session->engine, &desc, &error);
    if (result != MGV_OK) return cli_fail_library(result == MGV_ERROR_MODEL ? session->options.model : NULL, result, &error);
    rows = b->rows;
    for (uint32_t i = 0; i < b->count; i++) {
        int status;
        result = mgv_engine_shape(session->engine, &b->images[i], 1, &output, &shape, &error);
        if (result != MGV_OK) return cli_fail_library(b->pictures[i].name, result, &error);
        status = sink(user, b->pictures[i].name, &shape, rows);
        if (status) return status;
        rows += shape.rows * shape.columns;
    }
    return 0;
}

/* Decodes a picture and asks the engine whether it takes it, so that one bad picture does not spoil its batch. */
static int load_checked(cli_session *session, cli_picture *picture, const char *name, uint32_t *tokens) {
    mgv_grid grid;
    mgv_error error;
    mgv_result result;
    if (cli_picture_load(picture, name)) return CLI_BAD_FILE;
    picture->image.alpha = session->options.alpha;
    result = mgv_engine_grid(session->engine, &picture->image, &grid, &error);
    *tokens = grid.tokens;
    if (result == MGV_OK) return 0;
    cli_picture_free(picture);
    cli_fail_library(name, result, &error);
    return CLI_BAD_FILE;
}

/* On a terminal: how many, how fast, and how long it will still take. */
static void show_progress(size_t done, size_t count, double seconds) {
    double left = done ? seconds / (double)done * (double)(count - done) : 0;
    char line[128];
    int used;
    if (!isatty(STDERR_FILENO)) return;
    used = snprintf(line, sizeof line, "%zu of %zu pictures, %.1f a second", done, count, seconds > 0 ? (double)done / seconds : 0.0);
    if (done < count && left < 90) snprintf(line + used, sizeof line - (size_t)used, ", %.0f s to go", left);
    else if (done < count && left < 5400) snprintf(line + used, sizeof line - (size_t)used, ", %.0f min to go", left / 60);
    else if (done < count) snprintf(line + used, sizeof line - (size_t)used, ", %.1f h to go", left / 3600);
    fprintf(stderr, "\r%-76s%s", line, done == count ? "\n" : "");
}

static double seconds_since(const struct timespec *start) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start->tv_sec) + (double)(now.tv_nsec - start->tv_nsec) * 1e-9;
}

static int encode_all(cli_session *session, batch *b, const cli_list *pictures, const mgv_output *output, cli_sink *sink, void *user) {
    uint32_t room = session->options.batch;
    struct timespec start;
    int worst = 0, status;
    clock_gettime(CLOCK_MONOTONIC, &start);
    if (room > pictures->count) room = (uint32_t)pictures->count;
    for (size_t i = 0; i < pictures->count; i++) {
        cli_picture picture;
        uint32_t tokens;
        if (load_checked(session, &picture, pictures->items[i], &tokens)) {
            worst = CLI_BAD_FILE;
            continue;
        }
        if (b->count == room || (session->max_tokens && b->count && tokens > session->max_tokens - b->tokens)) {
            status = batch_encode(session, b, output, sink, user);
            batch_clear(b);
            if (status) {
                cli_picture_free(&picture);
                return status;
            }
            show_progress(i, pictures->count, seconds_since(&start));
        }
        b->pictures[b->count++] = picture;
        b->tokens += tokens;
    }
    if (b->count) {
        status = batch_encode(session, b, output, sink, user);
        batch_clear(b);
        if (status) return status;
    }
    show_progress(pictures->count, pictures->count, seconds_since(&start));
    return worst;
}

int cli_session_encode(cli_session *session, const cli_list *pictures, const mgv_output *output, cli_sink *sink, void *user) {
    batch b;
    int status;
    memset(&b, 0, sizeof b);
    b.pictures = calloc(session->options.batch, sizeof *b.pictures);
    b.images = calloc(session->options.batch, sizeof *b.images);
    if (b.pictures && b.images) status = encode_all(session, &b, pictures, output, sink, user);
    else status = cli_fail(CLI_MACHINE, NULL, "out of memory for a batch of %u", session->options.batch);
    batch_clear(&b);
    free(b.pictures);
    free(b.images);
    free(b.rows);
    return status;
}
