/* A language model at work: its session, its texts as ids and back, pictures for it. */
#include <float.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tools/language.h"
#include "tools/session.h"

enum { MAX_SESSION_GIB = 64 }; /* of keys and values: files of a few kilobytes can ask for any */

static void set_sampling(language *l, const cli_sampling *wanted) {
    const mgv_generation_info *files = &l->generation;
    mgv_sample_desc *s = &l->sampling;
    s->repetition_penalty = files->repetition_penalty;
    s->seed = wanted->seed;
    if (wanted->greedy || wanted->temperature == 0 || (wanted->temperature < 0 && !files->do_sample)) return;
    s->temperature = wanted->temperature > 0 ? (float)wanted->temperature : files->temperature;
    if (files->do_sample) { /* what nobody says otherwise */
        s->top_k = files->top_k;
        s->top_p = files->top_p;
        s->min_p = files->min_p;
    }
    if (wanted->top_k) s->top_k = wanted->top_k;
    if (wanted->top_p >= 0) s->top_p = wanted->top_p > (double)FLT_MIN ? (float)wanted->top_p : FLT_MIN; /* 0 would be all */
}

/* What is asked for and not done. */
static void say_undone(const language *l, const cli_sampling *wanted) {
    if (l->generation.undone[0])
        cli_fail(0, l->name, "generation_config.json sets %s, which megavit does not do: the text is chosen without", l->generation.undone);
    if (!wanted->greedy && wanted->temperature < 0 && !l->generation.do_sample && (wanted->top_p >= 0 || wanted->top_k))
        cli_fail(0, NULL, "--top-p and --top-k choose nothing without --temperature: of this model the likeliest id is taken");
}

int language_check_sampling(const cli_command *command, const cli_sampling *s) {
    if (s->greedy && (s->temperature > 0 || s->top_p >= 0 || s->top_k)) return cli_usage(command, "--greedy chooses nothing by chance");
    if (s->top_p > 1 || s->top_p == 0) return cli_usage(command, "--top-p takes a number above 0 and up to 1");
    return 0;
}

int language_open(language *l, const cli_session_options *options, const cli_sampling *sampling) {
    cli_session_options all = *options;
    int status = 0;
    memset(l, 0, sizeof *l);
    l->name = options->model;
    all.tower = MGV_TOWER_LANGUAGE;
    all.row_outputs = 1 + MGV_MAX_DEEPSTACK;
    l->vision = cli_session_open(&all, &status);
    if (!l->vision) return status;
    l->info = *cli_session_info(l->vision);
    mgv_model_get_generation(cli_session_model(l->vision), &l->generation);
    set_sampling(l, sampling);
    say_undone(l, sampling);
    return 0;
}

void language_close(language *l) {
    mgv_session_destroy(l->session);
    mgv_tokenizer_close(l->tokenizer);
    cli_session_close(l->vision);
    memset(l, 0, sizeof *l);
}

int language_open_texts(language *l, int plain) {
    mgv_model_desc desc = {0};
    mgv_error error;
    mgv_result result;
    int status = 0;
    l->tokenizer = cli_tokenizer_open(l->name, MGV_LOWER_CASE_AUTO, &status);
    if (!l->tokenizer) return status;
    if (plain) return 0;
    desc.path = l->name;
    result = mgv_chat_open(&l->chat, &desc, &error);
    return result == MGV_OK ? 0 : cli_fail(CLI_BAD_FILE, l->name, "%s; --raw takes a prompt as it is", error.message);
}

/* ---- pictures ---- */

static int encode(language *l, language_picture *picture) {
    mgv_engine *engine = cli_session_engine(l->vision);
    const mgv_image *image = &picture->file.image;
    uint64_t floats;
    mgv_error error;
    mgv_result result = mgv_picture_encode(engine, image, NULL, 0, &floats, &picture->encoded, &error);
    if (result == MGV_ERROR_CAPACITY && floats) {
        if (mgv_engine_backend(engine) == MGV_BACKEND_CUDA) picture->card_rows = cli_card_rows_memory((size_t)floats);
        if (picture->card_rows) {
            result = mgv_picture_encode(engine, image, picture->card_rows, floats, &floats, &picture->encoded, &error);
            if (result != MGV_ERROR_UNSUPPORTED) return result == MGV_OK ? 0 : cli_fail_library(picture->file.name, result, &error);
            cli_card_rows_free(picture->card_rows);
            picture->card_rows = NULL;
        }
        picture->rows = malloc((size_t)floats * sizeof(float));
        if (!picture->rows) return cli_fail(CLI_MACHINE, picture->file.name, "out of memory for its tokens");
        result = mgv_picture_encode(engine, image, picture->rows, floats, &floats, &picture->encoded, &error);
    }
    return result == MGV_OK ? 0 : cli_fail_library(picture->file.name, result, &error);
}

/* A session belongs to its engine: it is kept as a file in memory while another is made. */
static int keep_session(language *l, void **kept, uint64_t *bytes) {
    mgv_session_info info;
    mgv_error error;
    mgv_result result;
    *kept = NULL;
    mgv_session_get_info(l->session, &info);
    if (info.position) {
        result = mgv_session_saved_bytes(l->session, bytes, &error);
        if (result == MGV_OK && !(*kept = malloc((size_t)*bytes))) return cli_fail(CLI_MACHINE, l->name, "out of memory for another engine");
        if (result == MGV_OK) result = mgv_session_save(l->session, *kept, *bytes, &error);
        if (result != MGV_OK) return cli_fail_library(l->name, result, &error);
    }
    mgv_session_destroy(l->session);
    l->session = NULL;
    return 0;
}

/* Makes an engine that this picture fits, if there is none; the session, if there is one, goes on in it. */
static int fit(language *l, const cli_picture *picture) {
    char reason[512];
    mgv_grid grid;
    mgv_error error;
    mgv_result result = MGV_OK;
    void *kept = NULL;
    uint64_t bytes = 0;
    int status;
    if (!l->session) return cli_session_fit(l->vision, picture);
    if (session_grid(l->vision, &picture->image, &grid, reason, sizeof reason)) return cli_fail(CLI_BAD_FILE, picture->name, "%s", reason);
    if (session_fits(l->vision, 1, grid.tokens, picture->image.width, picture->image.height)) return 0;
    status = keep_session(l, &kept, &bytes);
    if (!status) {
        status = cli_session_fit(l->vision, picture); /* where it fails, the engine is as before */
        if (!cli_session_engine(l->vision) || language_begin(l, l->capacity)) status = CLI_MACHINE;
        else if (kept) result = mgv_session_restore(l->session, kept, bytes, &error);
    }
    free(kept);
    return result == MGV_OK ? status : cli_fail_library(l->name, result, &error);
}

int language_see(language *l, const cli_list *files, language_picture *pictures) {
    int status = 0;
    if (files->count && !l->info.patch) return cli_fail(CLI_BAD_FILE, l->name, "this model sees no pictures: it has no vision tower");
    for (size_t i = 0; i < files->count && !status; i++) {
        memset(&pictures[i], 0, sizeof pictures[i]);
        status = cli_picture_load(&pictures[i].file, files->items[i]);
        if (!status) status = fit(l, &pictures[i].file);
    }
    for (size_t i = 0; i < files->count && !status; i++) status = encode(l, &pictures[i]);
    return status;
}

void language_free_pictures(language_picture *pictures, size_t count) {
    for (size_t i = 0; i < count; i++) {
        cli_picture_free(&pictures[i].file);
        free(pictures[i].rows);
        cli_card_rows_free(pictures[i].card_rows);
    }
}

/* ---- the session ---- */

int language_begin(language *l, uint64_t capacity) {
    mgv_session_desc desc = {0};
    mgv_error error;
    mgv_result result;
    uint64_t bytes;
    int status = 0;
    if (capacity > UINT32_MAX) return cli_fail(CLI_BAD_FILE, NULL, "a text of %llu ids is too long", (unsigned long long)capacity);
    if (!cli_session_engine(l->vision)) status = cli_session_make(l->vision);
    if (status) return status;
    desc.capacity = l->capacity = (uint32_t)capacity;
    result = mgv_session_workspace_bytes(cli_session_engine(l->vision), &desc, &bytes, &error);
    if (result == MGV_OK && bytes > (uint64_t)MAX_SESSION_GIB << 30)
        return cli_fail(CLI_BAD_FILE, l->name, "a session of %u ids takes %.0f GiB, and the command line gives it %d", desc.capacity,
                        (double)bytes / (1 << 30), MAX_SESSION_GIB);
    if (result == MGV_OK) result = mgv_session_create(&l->session, cli_session_engine(l->vision), &desc, &error);
    return result == MGV_OK ? 0 : cli_fail_library(l->name, result, &error);
}

void language_say_long(language *l) {
    mgv_session_info info;
    mgv_session_get_info(l->session, &info);
    if (l->said_long || info.next <= l->info.max_positions) return;
    l->said_long = 1;
    cli_fail(0, l->name, "the text is longer than the model was made for: %u positions, and max_position_embeddings is %u", info.next,
             l->info.max_positions);
}

int language_append(language *l, const uint32_t *ids, uint64_t count, const language_picture *pictures, uint32_t picture_count,
                    const volatile sig_atomic_t *stop, int *stopped) {
    mgv_append_desc desc = {0};
    mgv_picture *shown = calloc(picture_count ? picture_count : 1, sizeof *shown);
    mgv_error error = {0};
    mgv_result result = MGV_OK;
    mgv_status step = MGV_STATUS_RUNNING;
    if (!shown) return cli_fail(CLI_MACHINE, NULL, "out of memory");
    for (uint32_t i = 0; i < picture_count; i++) shown[i] = pictures[i].encoded;
    desc.ids = ids;
    desc.id_count = count;
    desc.pictures = shown;
    desc.picture_count = picture_count;
    result = mgv_session_append(l->session, &desc, &error);
    while (result == MGV_OK && step != MGV_STATUS_DONE && step != MGV_STATUS_FAILED) {
        if (stop && *stop) {
            mgv_session_cancel(l->session);
            *stopped = 1;
            break;
        }
        step = mgv_session_poll(l->session, &error);
    }
    free(shown);
    if (step == MGV_STATUS_FAILED) return cli_fail_library(l->name, error.code, &error);
    language_say_long(l);
    if (result == MGV_OK) return 0;
    if (result == MGV_ERROR_ARGUMENT || result == MGV_ERROR_UNSUPPORTED || result == MGV_ERROR_CAPACITY)
        return cli_fail(CLI_BAD_FILE, NULL, "%s", error.message);
    return cli_fail_library(l->name, result, &error);
}

int language_is_stop(const language *l, uint32_t id) {
    return mgv_model_is_stop(cli_session_model(l->vision), id);
}

/* ---- texts ---- */

uint32_t *language_ids(const language *l, const mgv_message *messages, uint32_t count, uint32_t flags, uint64_t *id_count, int *status) {
    uint64_t room = 0;
    mgv_error error;
    mgv_result result = mgv_chat_write(l->chat, messages, count, flags, NULL, 0, &room, &error);
    if (result == MGV_ERROR_ARGUMENT) {
        *status = cli_fail(CLI_USAGE, NULL, "%s", error.message);
        return NULL;
    }
    room += 16; /* as many ids as bytes are enough but for texts that grow */
    while (result == MGV_OK || result == MGV_ERROR_CAPACITY) {
        uint32_t *ids = malloc((size_t)room * sizeof *ids);
        if (!ids) {
            *status = cli_fail(CLI_MACHINE, NULL, "out of memory for the prompt");
            return NULL;
        }
        result = mgv_chat_tokenize(l->chat, l->tokenizer, messages, count, flags, ids, room, id_count, &error);
        if (result == MGV_OK) return ids;
        free(ids);
        if (*id_count <= room) break;
        room = *id_count;
    }
    *status = cli_fail(CLI_BAD_FILE, NULL, "%s", error.message);
    return NULL;
}

int language_text_add(const language *l, language_text *text, const uint32_t *id) {
    const uint32_t none = 0;
    for (;;) {
        uint64_t bytes = 0;
        mgv_error error;
        mgv_result result = mgv_detokenize(l->tokenizer, &text->state, id ? id : &none, id ? 1 : 0, id ? MGV_DETOKENIZE_MORE : 0,
                                           text->text ? text->text + text->bytes : NULL, text->room - text->bytes, &bytes, &error);
        if (result == MGV_OK) {
            text->bytes += (size_t)bytes;
            return 0;
        }
        if (result != MGV_ERROR_CAPACITY) return cli_fail(CLI_BAD_FILE, l->name, "%s", error.message);
        const size_t room = 2 * text->room + (size_t)bytes + 256;
        char *larger = realloc(text->text, room);
        if (!larger) return cli_fail(CLI_MACHINE, NULL, "out of memory for the text");
        text->text = larger;
        text->room = room;
    }
}

void language_show(const language_text *text, size_t shown) {
    const int terminal = isatty(STDOUT_FILENO);
    for (size_t i = shown; i < text->bytes; i++) {
        const unsigned char c = (unsigned char)text->text[i];
        if (!terminal || (c >= ' ' && c != 0x7F) || c == '\n' || c == '\t') putchar(c);
    }
    fflush(stdout);
}
