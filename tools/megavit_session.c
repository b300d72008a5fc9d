/* A model at work: opens it, makes an engine that fits the pictures at hand. */
#ifdef __linux__
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity */
#endif
#include <sched.h>
#endif
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tools/session.h"

enum { DEFAULT_BATCH = 8, DEFAULT_GPU_BATCH = 64 };

/* What a model's files may ask of the machine by themselves: a few kilobytes of JSON can make hours and hundreds of gigabytes of one small
   picture. Far above what published models ask; the caller may say more where there is an option for it. */
enum {
    MAX_TOKENS = 65536,     /* of one picture: 16,777,216 pixels in patches of 16 x 16, the most of the published models */
    ENLARGED_TOKENS = 4096, /* of a picture that becomes larger than it is */
    MAX_PICTURE_TFLOP = 20, /* of a model with one size of pictures: the largest published takes 2.6 */
    MAX_ENGINE_GIB = 16     /* host memory of an engine: Qwen2.5-VL takes 5 for 65,536 tokens */
};

/* Those that this process may use, which can be fewer than the machine has. */
static long core_count(void) {
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
    return sysconf(_SC_NPROCESSORS_ONLN);
}

uint32_t cli_thread_count(const cli_session_options *options) {
    long count = options->threads ? (long)options->threads : core_count();
    return count < 1 ? 1 : options->threads || count <= 256 ? (uint32_t)count : 256;
}

/* Limits that no picture can keep are the command line's fault and not each picture's. A square has no other that a model would mind. */
int cli_check_limits(const mgv_model *model, const cli_session_options *options) {
    mgv_preprocessing_info rules;
    mgv_image square;
    mgv_grid grid;
    mgv_error error;
    mgv_result result;
    if (!options->min_pixels && !options->max_pixels) return CLI_DONE; /* what a model's files say is not the command line's */
    if (mgv_model_get_preprocessing(model, &rules) == MGV_OK && rules.width)
        return cli_fail(CLI_USAGE, options->model,
                        "--min-pixels and --max-pixels are for models of any picture size; this one takes %u x %u", rules.width,
                        rules.height);
    memset(&square, 0, sizeof square);
    square.width = square.height = 512;
    result = mgv_model_grid(model, &square, options->min_pixels, options->max_pixels, &grid, &error);
    return result == MGV_ERROR_ARGUMENT ? cli_fail_library(NULL, result, &error) : CLI_DONE;
}

int cli_check_work(const char *model, const mgv_model_info *info) {
    if (info->flops_per_image <= MAX_PICTURE_TFLOP * 1e12) return CLI_DONE;
    return cli_fail(CLI_BAD_FILE, model, "one picture takes %.0f TFLOP, and the command line runs up to %d (the largest published: 3)",
                    info->flops_per_image / 1e12, MAX_PICTURE_TFLOP);
}

int session_grid(const cli_session *session, const mgv_image *image, mgv_grid *grid, char *reason, size_t room) {
    const cli_session_options *options = &session->options;
    const uint64_t unit = session->info.patch * session->info.merge; /* sides become multiples of it, which alone can make them larger */
    const char *option = NULL;
    uint32_t most = 0;
    mgv_error error;
    if (mgv_model_grid(session->model, image, options->min_pixels, options->max_pixels, grid, &error) != MGV_OK) {
        snprintf(reason, room, "%s", error.message);
        return CLI_BAD_FILE;
    }
    if (grid->tokens > MAX_TOKENS && !options->max_pixels) {
        option = "--max-pixels";
        most = MAX_TOKENS;
    } else if ((grid->width > image->width + unit || grid->height > image->height + unit) && grid->tokens > ENLARGED_TOKENS &&
               !options->min_pixels) {
        option = "--min-pixels";
        most = ENLARGED_TOKENS;
    }
    if (session->info.image_size || !option) return CLI_DONE;
    snprintf(reason, room, "the model's files make %u x %u pixels of it and %u tokens; more than %u only with %s", grid->width, grid->height,
             grid->tokens, most, option);
    return CLI_BAD_FILE;
}

double session_seconds_since(const struct timespec *moment) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - moment->tv_sec) + (double)(now.tv_nsec - moment->tv_nsec) * 1e-9;
}

/* The GPUs that are meant, the first one where nobody says it, and their start. */
static int take_devices(cli_session *session) {
    cli_session_options *options = &session->options;
    int status;
    session->device_count = 1;
    if (options->devices && options->backend == MGV_BACKEND_CPU) return cli_fail(CLI_USAGE, "--devices", "--backend cpu uses no GPU");
    status = cli_check_backend(options->backend);
    if (!status && options->devices) {
        status = cli_read_devices(options->devices, session->devices, &session->device_count);
        options->backend = MGV_BACKEND_CUDA;
    }
    if (!status && cli_may_be_gpu(options->backend)) session->start = cli_card_begin_start(session->devices, session->device_count);
    return status;
}

cli_session *cli_session_open(const cli_session_options *options, int *status) {
    cli_session *session = calloc(1, sizeof *session);
    mgv_model_desc desc;
    mgv_error error;
    mgv_result result = MGV_OK;
    if (!session) {
        *status = cli_fail(CLI_MACHINE, NULL, "out of memory");
        return NULL;
    }
    clock_gettime(CLOCK_MONOTONIC, &session->began);
    session->options = *options;
    *status = take_devices(session);
    if (*status) {
        cli_session_close(session);
        return NULL;
    }
    if (!session->options.batch) session->options.batch = cli_may_be_gpu(options->backend) ? DEFAULT_GPU_BATCH : DEFAULT_BATCH;
    if (!session->options.memory) session->options.memory = CLI_MEMORY_MB;
    session->options.threads = cli_thread_count(options);
    memset(&desc, 0, sizeof desc);
    desc.path = options->model;
    desc.tower = options->tower;
    desc.lower_case = options->lower_case;
    desc.logger = cli_logger();
    if (session->options.threads > 1) result = mgv_threads_create(&session->threads, session->options.threads, NULL, &error);
    if (result != MGV_OK) {
        *status = cli_fail_library(NULL, result, &error);
        cli_session_close(session);
        return NULL;
    }
    if (session->threads) desc.parallel = mgv_threads_parallel_for(session->threads);
    result = mgv_model_open(&session->model, &desc, &error);
    session->open_seconds = session_seconds_since(&session->began);
    if (result == MGV_OK) result = mgv_model_get_info(session->model, &session->info);
    if (result != MGV_OK) {
        *status = cli_fail_library(options->model, result, &error);
        /* Whatever is wrong with a model's directory is a bad file, not a wrong command line. */
        if (*status == CLI_USAGE) *status = CLI_BAD_FILE;
        cli_session_close(session);
        return NULL;
    }
    *status = cli_check_limits(session->model, &session->options);
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
cli_text_options cli_session_texts(const cli_session *session) {
    cli_text_options texts = {0};
    texts.model = session->options.model;
    texts.tower = mgv_model_text(session->model);
    texts.threads = session->options.threads;
    texts.normalize = 1;
    return texts;
}
mgv_engine *cli_session_engine(cli_session *session) { return session->engines[0]; }

static void destroy_engines(cli_session *session) {
    for (uint32_t i = 0; i < CLI_MAX_DEVICES; i++) {
        mgv_engine_destroy(session->engines[i]);
        session->engines[i] = NULL;
    }
}

void cli_session_close(cli_session *session) {
    if (!session) return;
    cli_card_end_start(session->start);
    destroy_engines(session);
    mgv_threads_destroy(session->threads);
    mgv_model_close(session->model);
    free(session);
}

/* One engine, of a GPU if there are several. */
static int make_engine(cli_session *session, mgv_engine_desc *desc, uint32_t number) {
    mgv_error error;
    mgv_result result;
    uint64_t bytes;
    desc->device = (int32_t)session->devices[number];
    result = mgv_engine_workspace_bytes(session->model, desc, &bytes, &error);
    if (result == MGV_OK && bytes > (uint64_t)MAX_ENGINE_GIB << 30)
        return cli_fail(CLI_BAD_FILE, session->options.model, "an engine for it takes %.0f GiB of memory, and the command line gives it %d",
                        (double)bytes / (1 << 30), MAX_ENGINE_GIB);
    if (result == MGV_OK) result = mgv_engine_create(&session->engines[number], session->model, desc, &error);
    cli_say_fallback(&session->fallback);
    return result == MGV_OK ? 0 : cli_fail_library(NULL, result, &error);
}

static int make_engines(cli_session *session) {
    mgv_engine_desc desc;
    mgv_output_kind compared_by;
    struct timespec began;
    int status = 0;
    clock_gettime(CLOCK_MONOTONIC, &began);
    memset(&desc, 0, sizeof desc);
    desc.backend = session->options.backend;
    cli_watch_fallback(&session->fallback, &desc.logger);
    desc.packed_path = session->options.packed;
    desc.resize = session->options.resize;
    desc.precision = session->options.precision;
    desc.max_images = session->max_images;
    desc.schedule_images = session->options.batch; /* a folder's rows do not depend on how it was cut */
    desc.max_tokens = session->max_tokens;
    desc.max_row_outputs = session->options.row_outputs;
    cli_compared_by(&session->info, &compared_by);
    desc.output_kinds = session->options.output_kinds ? session->options.output_kinds : 1u << compared_by;
    desc.max_width = session->max_width;
    desc.max_height = session->max_height;
    desc.min_pixels = session->options.min_pixels;
    desc.max_pixels = session->options.max_pixels;
    if (session->threads) desc.parallel = mgv_threads_parallel_for(session->threads);
    if (session->start) session->context_seconds = cli_card_end_start(session->start);
    session->start = NULL;
    destroy_engines(session);
    for (uint32_t i = 0; i < session->device_count && !status; i++) status = make_engine(session, &desc, i);
    if (status) destroy_engines(session);
    session->engine_seconds = session_seconds_since(&began);
    return status;
}

int session_fits(const cli_session *session, uint32_t images, uint32_t tokens, uint32_t width, uint32_t height) {
    if (session->info.tokens_per_image) tokens = 0; /* every picture has as many: max_images bounds them */
    return session->engines[0] && images <= session->max_images && tokens <= session->max_tokens && width <= session->max_width &&
           height <= session->max_height;
}

int session_engine(cli_session *session, uint32_t images, uint32_t tokens, uint32_t width, uint32_t height) {
    const cli_session before = *session;
    int status;
    if (session_fits(session, images, tokens, width, height)) return 0;
    if (session->info.tokens_per_image) tokens = 0;
    if (images > session->max_images) session->max_images = images;
    if (tokens > session->max_tokens) session->max_tokens = tokens;
    if (width > session->max_width) session->max_width = width;
    if (height > session->max_height) session->max_height = height;
    status = make_engines(session);
    if (!status || !before.engines[0]) return status;
    session->max_images = before.max_images;
    session->max_tokens = before.max_tokens;
    session->max_width = before.max_width;
    session->max_height = before.max_height;
    make_engines(session); /* without it there is none, which the caller sees */
    return status;
}

int cli_session_make(cli_session *session) {
    const uint32_t side = session->info.image_size ? session->info.image_size : session->info.patch * session->info.merge;
    return session->engines[0] ? 0 : session_engine(session, 1, 0, side, side);
}

int cli_session_fit(cli_session *session, const cli_picture *picture) {
    char reason[512];
    mgv_grid grid;
    if (session_grid(session, &picture->image, &grid, reason, sizeof reason)) return cli_fail(CLI_BAD_FILE, picture->name, "%s", reason);
    return session_engine(session, 1, grid.tokens, picture->image.width, picture->image.height);
}
