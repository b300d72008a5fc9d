/* Pictures through a model: threads read, decode, turn and resize them ahead of the engine, which takes them in batches, in order. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "tools/pipeline.h"
#include "tools/session.h"

enum { TOKENS = 4096 /* of one encode, of models whose pictures differ; more if one picture has more */, FILES = 0, PIXELS = 1 /* budgets */ };

/* A picture that is ready for the engine, or why it is not. */
typedef struct ready {
    int status; /* 0, CLI_SKIP, or the exit code */
    char reason[600];
    mgv_image image;
    uint32_t tokens;
    unsigned char *own; /* memory of its pixels, where they do not lie in the slot */
    uint64_t kept;      /* of it, counted in the budget until the consumer has it */
} ready;

/* What the threads work on, and where results lie. */
typedef struct stage {
    const cli_session *session;
    const cli_list *pictures;
    uint64_t budgets[PIPELINE_BUDGETS];
    int in_bytes;           /* pictures can be resized before the engine has them */
    ready *slots;
    unsigned char *memory;  /* of the slots, of slot_bytes each; NULL where pictures differ in size */
    size_t slot_bytes;
} stage;

/* ---- one picture, on any thread ---- */

static void fail_ready(ready *r, const char *before, const decode_reason *why) {
    r->status = why->no_memory ? CLI_MACHINE : CLI_BAD_FILE;
    snprintf(r->reason, sizeof r->reason, "%s%s", before, why->text);
}

static void fail_memory(ready *r, const char *what, uint64_t bytes, uint64_t least) {
    r->status = CLI_BAD_FILE;
    snprintf(r->reason, sizeof r->reason, "%s %.0f MB; with --memory %.0f it would be taken", what, (double)bytes / 1048576, (double)least / 1048576 + 1);
}

/* Resizes decoded pixels to the model's size. */
static void resize_picture(const stage *s, ready *r, uint32_t slot, const mgv_image *image, uint64_t bytes) {
    const cli_session_options *options = &s->session->options;
    unsigned char *target = s->memory ? s->memory + slot * s->slot_bytes : NULL;
    mgv_error error;
    mgv_result result;
    if (!target || bytes > s->slot_bytes) target = r->own = malloc((size_t)bytes);
    if (!target) {
        r->status = CLI_MACHINE;
        snprintf(r->reason, sizeof r->reason, "out of memory for its pixels");
        return;
    }
    result = mgv_model_prepare(s->session->model, image, options->resize, options->min_pixels, options->max_pixels, target, bytes, &r->image, &error);
    if (result == MGV_OK) return;
    r->status = result == MGV_ERROR_NOMEM ? CLI_MACHINE : CLI_BAD_FILE;
    snprintf(r->reason, sizeof r->reason, "%s", error.message);
    free(r->own);
    r->own = NULL;
}

/* Decodes a picture whose memory was granted and makes it ready. */
static void decode_picture(const stage *s, ready *r, uint32_t slot, const char *name, const decoder *by, decode_bytes file, const decode_info *info,
                           uint64_t bytes) {
    decode_pixels pixels;
    decode_reason why;
    cli_picture picture;
    if (!decode_load(by, file, info, &pixels, &why)) {
        fail_ready(r, "cannot decode the picture: ", &why);
        return;
    }
    cli_picture_take(&picture, name, &pixels);
    picture.image.alpha = s->session->options.alpha;
    if (s->in_bytes) {
        resize_picture(s, r, slot, &picture.image, bytes);
        cli_picture_free(&picture);
        r->kept = r->own ? bytes : 0;
    } else {
        r->image = picture.image;
        r->own = picture.pixels;
        r->kept = picture.image.bytes;
    }
}

/* Looks at a file's bytes, waits for the memory that it takes, and decodes it. */
static void take_file(const stage *s, pipeline *p, ready *r, uint32_t slot, size_t item, decode_bytes file) {
    const char *name = s->pictures->items[item];
    decode_reason why;
    decode_info info;
    mgv_image image;
    mgv_grid grid;
    uint64_t bytes, need;
    const decoder *by = cli_picture_decoder(name, file, &why);
    if (!by && s->pictures->found[item] && !cli_is_picture_name(name)) {
        r->status = CLI_SKIP;
        return;
    }
    if (!by || !decode_look(by, file, &info, &why)) {
        fail_ready(r, "cannot decode the picture: ", &why);
        return;
    }
    memset(&image, 0, sizeof image);
    image.width = info.width;
    image.height = info.height;
    r->status = session_grid(s->session, &image, &grid, r->reason, sizeof r->reason);
    if (r->status) return;
    r->tokens = grid.tokens;
    bytes = (uint64_t)3 * grid.width * grid.height;
    /* and for resizing: weights of both axes, some rows */
    need = info.memory + bytes + 32 * ((uint64_t)info.width + info.height) + 256 * ((uint64_t)grid.width + grid.height) + (256 << 10);
    if (need > s->budgets[PIXELS]) {
        fail_memory(r, "decoding it takes", need, need / 3 * 4);
        return;
    }
    if (!pipeline_reserve(p, slot, PIXELS, need)) {
        r->status = CLI_MACHINE; /* nobody will look */
        return;
    }
    decode_picture(s, r, slot, name, by, file, &info, bytes);
    pipeline_release(p, PIXELS, need - r->kept);
}

static void make_ready(void *user, pipeline *p, size_t item, uint32_t slot) {
    const stage *s = user;
    ready *r = &s->slots[slot];
    decode_bytes file;
    decode_reason why;
    size_t bytes = 0;
    int descriptor;
    memset(r, 0, sizeof *r);
    descriptor = cli_file_open(s->pictures->items[item], &bytes, &why);
    if (descriptor < 0) {
        fail_ready(r, "", &why);
        return;
    }
    if (bytes > s->budgets[FILES]) fail_memory(r, "the file has", bytes, (uint64_t)bytes * 4);
    else if (!pipeline_reserve(p, slot, FILES, bytes)) r->status = CLI_MACHINE;
    if (r->status) {
        close(descriptor);
        return;
    }
    if (cli_file_take(descriptor, bytes, &file, &why)) {
        take_file(s, p, r, slot, item, file);
        free((void *)(uintptr_t)file.data);
    } else {
        fail_ready(r, "", &why);
    }
    pipeline_release(p, FILES, bytes);
}

/* ---- batches, on the thread that encodes ---- */

typedef struct batch {
    uint32_t *slots;    /* of the pictures, [room] */
    size_t *items;
    mgv_image *images;
    uint32_t count, room, tokens;
    uint64_t bytes;     /* of pixels that lie outside of the slots */
    float *rows;
    uint64_t row_room;  /* floats behind rows */
} batch;

typedef struct encoding {
    cli_session *session;
    stage *stage;
    pipeline *pipeline;
    batch batch;
    const mgv_output *output;
    cli_sink *sink;
    void *user;
    size_t done;        /* pictures that were encoded */
    int broken;         /* the engine or the machine failed: what is left is named */
    int worst;          /* exit code of pictures that were left out */
    struct timespec start;
} encoding;

static int batch_make(batch *b, uint32_t room) {
    memset(b, 0, sizeof *b);
    b->slots = calloc(room, sizeof *b->slots);
    b->items = calloc(room, sizeof *b->items);
    b->images = calloc(room, sizeof *b->images);
    b->room = room;
    return b->slots && b->items && b->images ? 0 : cli_fail(CLI_MACHINE, NULL, "out of memory for a batch of %u", room);
}

static void batch_free(batch *b) {
    free(b->slots);
    free(b->items);
    free(b->images);
    free(b->rows);
}

static int batch_reserve(batch *b, uint64_t floats) {
    float *rows;
    if (floats <= b->row_room) return 0;
    rows = floats <= SIZE_MAX / sizeof *rows ? realloc(b->rows, (size_t)floats * sizeof *rows) : NULL;
    if (!rows) return cli_fail(CLI_MACHINE, NULL, "out of memory for %llu floats", (unsigned long long)floats);
    b->rows = rows;
    b->row_room = floats;
    return 0;
}

static void empty_slot(encoding *e, uint32_t slot) {
    free(e->stage->slots[slot].own);
    e->stage->slots[slot].own = NULL;
    pipeline_give_back(e->pipeline, slot);
}

static void show_progress(size_t done, size_t count, const struct timespec *start) {
    struct timespec now;
    double seconds;
    if (!isatty(STDERR_FILENO)) return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    seconds = (double)(now.tv_sec - start->tv_sec) + (double)(now.tv_nsec - start->tv_nsec) * 1e-9;
    fprintf(stderr, "\r%zu of %zu pictures, %.1f a second ", done, count, seconds > 0 ? (double)done / seconds : 0.0);
    if (done == count) fputc('\n', stderr);
}

/* Hands on the rows of each picture. */
static int hand_on(encoding *e, const mgv_output *output) {
    const float *rows = e->batch.rows;
    for (uint32_t i = 0; i < e->batch.count; i++) {
        const char *name = e->stage->pictures->items[e->batch.items[i]];
        mgv_shape shape;
        mgv_error error;
        mgv_result result = mgv_engine_shape(e->session->engine, &e->batch.images[i], 1, output, &shape, &error);
        int status = result == MGV_OK ? e->sink(e->user, name, &shape, rows) : cli_fail_library(name, result, &error);
        if (status) return status;
        e->done++;
        rows += shape.rows * shape.columns;
    }
    return 0;
}

static int encode_images(encoding *e) {
    mgv_output output = *e->output;
    mgv_encode_desc desc;
    mgv_shape shape;
    mgv_error error;
    mgv_result result;
    e->broken = 1;
    result = mgv_engine_shape(e->session->engine, e->batch.images, e->batch.count, &output, &shape, &error);
    if (result != MGV_OK) return cli_fail_library(NULL, result, &error);
    if (batch_reserve(&e->batch, shape.rows * shape.columns)) return CLI_MACHINE;
    output.data = e->batch.rows;
    output.capacity = e->batch.row_room;
    memset(&desc, 0, sizeof desc);
    desc.images = e->batch.images;
    desc.image_count = e->batch.count;
    desc.outputs = &output;
    desc.output_count = 1;
    result = mgv_encode_blocking(e->session->engine, &desc, &error);
    if (result != MGV_OK) return cli_fail_library(result == MGV_ERROR_MODEL ? e->session->options.model : NULL, result, &error);
    e->broken = 0;
    return hand_on(e, &output);
}

/* Encodes what the batch holds; its slots are free then. After a failure the batch keeps its pictures, for their names. */
static int flush(encoding *e) {
    batch *b = &e->batch;
    int status;
    if (b->count == 0) return 0;
    for (uint32_t i = 0; i < b->count; i++) b->images[i] = e->stage->slots[b->slots[i]].image;
    status = encode_images(e);
    if (status) return status;
    for (uint32_t i = 0; i < b->count; i++) empty_slot(e, b->slots[i]);
    b->count = b->tokens = 0;
    b->bytes = 0;
    show_progress(e->done, e->stage->pictures->count, &e->start);
    return 0;
}

/* Adds a picture to the batch, which is encoded before if it does not fit, and after if that fills it. What a batch holds depends on the
   pictures alone, never on time: on a GPU the bits of a row may depend on it. */
static int add_picture(encoding *e, size_t item, uint32_t slot) {
    const ready *r = &e->stage->slots[slot];
    batch *b = &e->batch;
    const uint32_t most = e->session->max_tokens > TOKENS ? e->session->max_tokens : TOKENS;
    const int differ = e->session->info.tokens_per_image == 0;
    int status = 0;
    if (b->count && ((differ && r->tokens > most - b->tokens) || (r->own && r->image.bytes > e->stage->budgets[PIXELS] - b->bytes))) status = flush(e);
    if (!status) {
        status = session_engine(e->session, b->room, r->tokens > TOKENS ? r->tokens : TOKENS, r->image.width, r->image.height);
        if (status && e->session->engine) { /* too large a picture for this machine, but not the others */
            if (cli_fail(status, e->stage->pictures->items[item], "not embedded") > e->worst) e->worst = status;
            empty_slot(e, slot);
            return 0;
        }
        e->broken = status != 0;
    }
    b->slots[b->count] = slot;
    b->items[b->count++] = item;
    b->tokens += r->tokens;
    b->bytes += r->own ? r->image.bytes : 0;
    if (status) return status;
    return b->count == b->room ? flush(e) : 0;
}

/* Takes results as they come. *next: the first item that was not. */
static int consume(encoding *e, cli_list *pictures, size_t *next) {
    int status;
    uint32_t slot;
    size_t item;
    while (pipeline_take(e->pipeline, &item, &slot)) {
        ready *r = &e->stage->slots[slot];
        *next = item + 1;
        if (r->kept) pipeline_release(e->pipeline, PIXELS, r->kept);
        if (r->status == 0) {
            status = add_picture(e, item, slot);
            if (status) return status;
            continue;
        }
        if (r->status == CLI_SKIP) pictures->skipped[CLI_SKIPPED_CONTENT]++;
        else if (cli_fail(r->status, pictures->items[item], "%s", r->reason) > e->worst) e->worst = r->status;
        empty_slot(e, slot);
    }
    status = flush(e);
    return status > e->worst ? status : e->worst;
}

/* After a failure: the pictures that have no row. */
static void name_the_rest(const encoding *e, const cli_list *pictures, size_t next) {
    for (uint32_t i = 0; i < e->batch.count; i++) cli_fail(0, pictures->items[e->batch.items[i]], "not embedded");
    for (; next < pictures->count; next++) cli_fail(0, pictures->items[next], "not embedded");
}

/* ---- the whole ---- */

/* Of models of one size, that of prepared pictures; 0 of others. */
static size_t prepared_bytes(const cli_session *session, uint32_t *width, uint32_t *height) {
    mgv_preprocessing_info rules;
    if (mgv_model_get_preprocessing(session->model, &rules) != MGV_OK) return 0;
    *width = rules.width;
    *height = rules.height;
    return (size_t)3 * rules.width * rules.height;
}

/* Whether this model's pictures are resized in bytes, so that threads can do it before the engine has them. */
static int resizes_bytes(const cli_session *session) {
    const unsigned char pixel[3] = {0};
    unsigned char out[3];
    mgv_image image, prepared;
    memset(&image, 0, sizeof image);
    image.pixels = pixel;
    image.width = image.height = 1;
    return mgv_model_prepare(session->model, &image, session->options.resize, 0, 0, out, sizeof out, &prepared, NULL) != MGV_ERROR_UNSUPPORTED;
}

/* Where results lie: one piece of memory for all pictures of models of one size. */
static int make_slots(stage *s, uint32_t slots) {
    s->slots = calloc(slots, sizeof *s->slots);
    if (s->slots && s->slot_bytes) s->memory = malloc(slots * s->slot_bytes);
    return s->slots && (s->memory || !s->slot_bytes) ? 0 : cli_fail(CLI_MACHINE, NULL, "out of memory for %u pictures", slots);
}

static int run_pipeline(encoding *e, cli_list *pictures, uint32_t slots, uint32_t width, uint32_t height) {
    const cli_session_options *options = &e->session->options;
    pipeline_desc desc;
    size_t next = 0;
    int status;
    memset(&desc, 0, sizeof desc);
    desc.count = pictures->count;
    desc.threads = options->threads < pictures->count ? options->threads : (uint32_t)pictures->count;
    desc.slots = slots;
    memcpy(desc.budgets, e->stage->budgets, sizeof desc.budgets);
    desc.work = make_ready;
    desc.user = e->stage;
    e->pipeline = pipeline_start(&desc);
    if (!e->pipeline) return cli_fail(CLI_MACHINE, NULL, "cannot start threads");
    clock_gettime(CLOCK_MONOTONIC, &e->start);
    e->broken = 1;
    status = width && e->stage->in_bytes ? session_engine(e->session, e->batch.room, 0, width, height) : 0; /* while threads read */
    if (!status) {
        e->broken = 0;
        status = consume(e, pictures, &next);
    }
    pipeline_stop(e->pipeline);
    if (status && e->broken && e->done) name_the_rest(e, pictures, next);
    for (uint32_t i = 0; i < slots; i++) free(e->stage->slots[i].own);
    return status;
}

int cli_session_encode(cli_session *session, cli_list *pictures, const mgv_output *output, cli_sink *sink, void *user) {
    const uint64_t memory = (uint64_t)session->options.memory << 20;
    uint32_t room = session->options.batch < pictures->count ? session->options.batch : (uint32_t)pictures->count, slots, width = 0, height = 0;
    encoding e;
    stage s;
    int status;
    if (pictures->count == 0) return 0;
    memset(&e, 0, sizeof e);
    memset(&s, 0, sizeof s);
    s.session = session;
    s.pictures = pictures;
    s.budgets[FILES] = memory / 4;
    s.budgets[PIXELS] = memory - memory / 4;
    s.in_bytes = resizes_bytes(session);
    s.slot_bytes = prepared_bytes(session, &width, &height);
    if (!s.in_bytes) s.slot_bytes = 0;
    slots = 2 * (room + session->options.threads); /* a batch under way, another that is filled, and what threads work on */
    if (slots > pictures->count) slots = (uint32_t)pictures->count;
    e.session = session;
    e.stage = &s;
    e.output = output;
    e.sink = sink;
    e.user = user;
    status = batch_make(&e.batch, room);
    if (!status) status = make_slots(&s, slots);
    if (!status) status = run_pipeline(&e, pictures, slots, width, height);
    cli_say_skipped(pictures);
    memset(pictures->skipped, 0, sizeof pictures->skipped); /* said once */
    if (!status && !e.done && !session->options.may_find_none)
        status = cli_fail(CLI_BAD_FILE, NULL, "there is no picture among %zu files", pictures->count);
    batch_free(&e.batch);
    free(s.slots);
    free(s.memory);
    return status;
}
