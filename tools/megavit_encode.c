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
    int locked;             /* it is page-locked */
    int has_left;           /* a picture is in no batch, because one before it failed */
    size_t left_item;
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
    /* models of one size: others would resize to another size */
    if (s->session->options.scaled_decoding && s->slot_bytes) decode_shrink(by, &info, 2 * grid.width, 2 * grid.height);
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
    descriptor = cli_file_open(s->pictures->items[item], CLI_PICTURE_BYTES, &bytes, &why);
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

/* ---- batches, on the thread that encodes ----

   On GPUs there is one batch more than GPUs: they take turns, so that rows come in order, and while each has one under way the next is
   filled. One encode at a time is enough: what comes between two of a GPU is short beside 64 pictures. */

typedef struct batch {
    uint32_t *slots;    /* of the pictures, [room] */
    size_t *items;
    mgv_image *images;
    uint32_t count, tokens;
    uint64_t bytes;     /* of pixels that lie outside of the slots */
    float *rows;
    uint64_t row_room;  /* floats behind rows */
    mgv_engine *engine; /* that works on it */
} batch;

typedef struct encoding {
    cli_session *session;
    stage *stage;
    pipeline *pipeline;
    batch batches[CLI_MAX_DEVICES + 1];
    uint32_t room;      /* pictures of one */
    uint32_t batch_count, oldest, flying; /* [oldest, oldest + flying) are encoded, the one behind them is filled */
    uint64_t turns;     /* encodes that were begun: engines take turns */
    const mgv_output *output;
    cli_sink *sink;
    void *user;
    size_t done;        /* pictures that were encoded */
    int broken;         /* an engine or the machine failed: what is left is named */
    int worst;          /* exit code of pictures that were left out */
    struct timespec start;
    double first_row, first_of_all; /* seconds since then, and since the session began; 0: there is none yet */
} encoding;

static batch *batch_at(encoding *e, uint32_t place) { return &e->batches[(e->oldest + place) % e->batch_count]; }

static int make_batches(encoding *e, uint32_t count) {
    e->batch_count = count;
    for (uint32_t i = 0; i < count; i++) {
        batch *b = &e->batches[i];
        b->slots = calloc(e->room, sizeof *b->slots);
        b->items = calloc(e->room, sizeof *b->items);
        b->images = calloc(e->room, sizeof *b->images);
        if (!b->slots || !b->items || !b->images) return cli_fail(CLI_MACHINE, NULL, "out of memory for a batch of %u", e->room);
    }
    return 0;
}

static void free_batches(encoding *e) {
    for (uint32_t i = 0; i < e->batch_count; i++) {
        free(e->batches[i].slots);
        free(e->batches[i].items);
        free(e->batches[i].images);
        free(e->batches[i].rows);
    }
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
    double seconds;
    if (!isatty(STDERR_FILENO)) return;
    seconds = session_seconds_since(start);
    fprintf(stderr, "\r%zu of %zu pictures, %.1f a second ", done, count, seconds > 0 ? (double)done / seconds : 0.0);
    if (done == count) fputc('\n', stderr);
}

/* Hands on the rows of each picture. */
static int hand_on(encoding *e, const batch *b) {
    const float *rows = b->rows;
    for (uint32_t i = 0; i < b->count; i++) {
        const char *name = e->stage->pictures->items[b->items[i]];
        mgv_shape shape;
        mgv_error error;
        mgv_result result = mgv_engine_shape(b->engine, &b->images[i], 1, e->output, &shape, &error);
        int status = result == MGV_OK ? e->sink(e->user, name, &shape, rows) : cli_fail_library(name, result, &error);
        if (status) return status;
        e->done++;
        rows += shape.rows * shape.columns;
    }
    return 0;
}

static int fail_encode(const encoding *e, mgv_result result, const mgv_error *error) {
    return cli_fail_library(result == MGV_ERROR_MODEL ? e->session->options.model : NULL, result, error);
}

static int begin_encode(encoding *e, batch *b) {
    mgv_output output = *e->output;
    mgv_encode_desc desc;
    mgv_shape shape;
    mgv_error error;
    mgv_result result;
    b->engine = e->session->engines[e->turns++ % e->session->device_count];
    for (uint32_t i = 0; i < b->count; i++) b->images[i] = e->stage->slots[b->slots[i]].image;
    result = mgv_engine_shape(b->engine, b->images, b->count, &output, &shape, &error);
    if (result != MGV_OK) return cli_fail_library(NULL, result, &error);
    if (batch_reserve(b, shape.rows * shape.columns)) return CLI_MACHINE;
    output.data = b->rows;
    output.capacity = b->row_room;
    memset(&desc, 0, sizeof desc);
    desc.images = b->images;
    desc.image_count = b->count;
    desc.outputs = &output;
    desc.output_count = 1;
    result = mgv_encode(b->engine, &desc, &error);
    return result == MGV_OK ? 0 : fail_encode(e, result, &error);
}

/* Ends the oldest encode; its slots are free then. After a failure the batch keeps its pictures, for their names. */
static int finish_oldest(encoding *e) {
    batch *b = batch_at(e, 0);
    mgv_error error;
    mgv_result result = mgv_wait(b->engine, UINT32_MAX, &error);
    int status;
    e->broken = result != MGV_OK;
    if (result != MGV_OK) return fail_encode(e, result, &error);
    if (e->done == 0) {
        e->first_row = session_seconds_since(&e->start);
        e->first_of_all = session_seconds_since(&e->session->began);
    }
    status = hand_on(e, b);
    if (status) return status;
    for (uint32_t i = 0; i < b->count; i++) empty_slot(e, b->slots[i]);
    b->count = b->tokens = 0;
    b->bytes = 0;
    e->oldest = (e->oldest + 1) % e->batch_count;
    e->flying--;
    show_progress(e->done, e->stage->pictures->count, &e->start);
    return 0;
}
static int finish_all(encoding *e) {
    int status = 0;
    while (e->flying && !status) status = finish_oldest(e);
    return status;
}

/* Begins to encode the batch that was filled. */
static int flush(encoding *e) {
    batch *b = batch_at(e, e->flying);
    int status = 0;
    if (b->count == 0) return 0;
    if (e->flying == e->session->device_count) status = finish_oldest(e); /* its engine is the next one */
    if (status) return status;
    status = begin_encode(e, b);
    e->broken = status != 0;
    if (status) return status;
    e->flying++;
    return mgv_engine_backend(b->engine) == MGV_BACKEND_CPU ? finish_oldest(e) : 0; /* it works only while it is waited for */
}

/* Adds a picture to the batch, which is encoded before if it does not fit, and after if that fills it. What a batch holds depends on the
   pictures alone, never on time. */
static int add_picture(encoding *e, size_t item, uint32_t slot) {
    const ready *r = &e->stage->slots[slot];
    const uint32_t most = e->session->max_tokens > TOKENS ? e->session->max_tokens : TOKENS;
    const int differ = e->session->info.tokens_per_image == 0;
    const uint32_t tokens = r->tokens > TOKENS ? r->tokens : TOKENS;
    batch *b = batch_at(e, e->flying);
    int status = 0;
    if (b->count && ((differ && r->tokens > most - b->tokens) || (r->own && r->image.bytes > e->stage->budgets[PIXELS] - b->bytes))) {
        status = flush(e);
        if (!status) b = batch_at(e, e->flying);
    }
    if (!status && !session_fits(e->session, e->room, tokens, r->image.width, r->image.height)) {
        if (b->count) status = flush(e);
        if (!status) status = finish_all(e);
        if (!status) b = batch_at(e, e->flying);
        if (!status) {
            status = session_engine(e->session, e->room, tokens, r->image.width, r->image.height);
            if (status && e->session->engines[0]) { /* too large a picture for this machine, but not the others */
                if (cli_fail(status, e->stage->pictures->items[item], "not embedded") > e->worst) e->worst = status;
                empty_slot(e, slot);
                return 0;
            }
            e->broken = status != 0;
        }
    }
    if (status) { /* for its name */
        e->stage->left_item = item;
        e->stage->has_left = 1;
        return status;
    }
    b->slots[b->count] = slot;
    b->items[b->count++] = item;
    b->tokens += r->tokens;
    b->bytes += r->own ? r->image.bytes : 0;
    return b->count == e->room ? flush(e) : 0;
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
    if (!status) status = finish_all(e);
    return status > e->worst ? status : e->worst;
}

/* After a failure: the pictures that have no row, in their order. */
static void name_the_rest(encoding *e, const cli_list *pictures, size_t next) {
    for (uint32_t k = 0; k < e->batch_count; k++) {
        const batch *b = batch_at(e, k);
        for (uint32_t i = 0; i < b->count; i++) cli_fail(0, pictures->items[b->items[i]], "not embedded");
    }
    if (e->stage->has_left) cli_fail(0, pictures->items[e->stage->left_item], "not embedded");
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

/* Where results lie: one piece of memory for all pictures of models of one size, page-locked where a GPU takes them from it. */
static int make_slots(stage *s, uint32_t slots, int locked) {
    s->slots = calloc(slots, sizeof *s->slots);
    if (locked && s->slot_bytes) s->memory = cli_card_memory(slots * s->slot_bytes);
    s->locked = s->memory != NULL;
    if (s->slots && s->slot_bytes && !s->memory) s->memory = malloc(slots * s->slot_bytes);
    return s->slots && (s->memory || !s->slot_bytes) ? 0 : cli_fail(CLI_MACHINE, NULL, "out of memory for %u pictures", slots);
}
static void free_slots(stage *s) {
    if (s->locked) cli_card_free(s->memory);
    else free(s->memory);
    free(s->slots);
}

static void tell_times(const encoding *e) {
    const double seconds = session_seconds_since(&e->start);
    cli_fail(0, NULL, "timing: contexts %.3f s, model beside them %.3f s, engines %.3f s, first row after %.3f s; from the first file opened "
             "first row %.3f s, last row %.3f s: %zu pictures, %.1f a second", e->session->context_seconds, e->session->open_seconds,
             e->session->engine_seconds, e->first_of_all, e->first_row, seconds, e->done, seconds > 0 ? (double)e->done / seconds : 0.0);
}

static int run_pipeline(encoding *e, cli_list *pictures, uint32_t slots) {
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
    clock_gettime(CLOCK_MONOTONIC, &e->start);
    e->pipeline = pipeline_start(&desc);
    if (!e->pipeline) return cli_fail(CLI_MACHINE, NULL, "cannot start threads");
    status = consume(e, pictures, &next);
    pipeline_stop(e->pipeline);
    if (status && e->broken && e->done) name_the_rest(e, pictures, next);
    for (uint32_t i = 0; e->flying && i < e->session->device_count; i++) /* a GPU may still read and write what is freed now */
        if (mgv_engine_destroy(e->session->engines[i]) == MGV_OK) e->session->engines[i] = NULL;
    for (uint32_t i = 0; i < slots; i++) free(e->stage->slots[i].own);
    if (options->timing) tell_times(e);
    return status;
}

int cli_session_encode(cli_session *session, cli_list *pictures, const mgv_output *output, cli_sink *sink, void *user) {
    const uint64_t memory = (uint64_t)session->options.memory << 20;
    uint32_t slots, width = 0, height = 0;
    int status = 0, gpu, ahead;
    encoding e;
    stage s;
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
    e.session = session;
    e.stage = &s;
    e.output = output;
    e.sink = sink;
    e.user = user;
    e.room = session->options.batch < pictures->count ? session->options.batch : (uint32_t)pictures->count;
    if (s.slot_bytes) status = session_engine(session, e.room, 0, width, height); /* else as pictures come */
    gpu = session->engines[0] && mgv_engine_backend(session->engines[0]) == MGV_BACKEND_CUDA;
    ahead = gpu || !session->engines[0]; /* an engine that is made as pictures come may be a GPU's */
    /* batches under way, one that is filled, as much that is ready, and what threads work on */
    slots = ((ahead ? session->device_count : 0) + 2) * e.room + 2 * session->options.threads;
    if (slots > pictures->count) slots = (uint32_t)pictures->count;
    if (!status) status = make_batches(&e, ahead ? session->device_count + 1 : 1);
    if (!status) status = make_slots(&s, slots, gpu);
    if (!status) status = run_pipeline(&e, pictures, slots);
    cli_say_skipped(pictures);
    memset(pictures->skipped, 0, sizeof pictures->skipped); /* said once */
    if (!status && !e.done && !session->options.may_find_none)
        status = cli_fail(CLI_BAD_FILE, NULL, "there is no picture among %zu files", pictures->count);
    free_batches(&e);
    free_slots(&s);
    return status;
}
