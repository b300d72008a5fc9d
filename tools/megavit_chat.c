/* megavit chat: a conversation that keeps its session.

   The session's ids are always those that the template makes of the whole conversation: what a turn changes of earlier ones (Qwen3 forgets
   what it thought) is rolled back to and read again. A loaded session stands for what was said before it. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "tools/language.h"
#include "tools/session.h"

enum { DEFAULT_TOKENS = 1024, DEFAULT_CAPACITY = 8192 };

typedef struct chat_options {
    cli_session_options session;
    cli_sampling sampling;
    uint32_t max_tokens, capacity;
    int think;
} chat_options;

typedef struct chat {
    const chat_options *options;
    language l;
    uint32_t *base;          /* ids of a loaded session */
    uint32_t base_count;
    mgv_message *messages;   /* said since; they own their texts and grids */
    uint32_t count, room;
    cli_list images;         /* for the next message */
    int ended;
} chat;

static volatile sig_atomic_t interrupted;
static void interrupt(int number) {
    (void)number;
    interrupted = 1;
}

/* ---- what was said ---- */

/* Takes nothing over. 0, or the exit code after saying why. */
static int add_message(chat *c, int32_t role, const char *text, size_t bytes, uint32_t images, const language_picture *pictures) {
    mgv_message *m;
    char *copy;
    mgv_grid *grids;
    if (c->count == c->room) {
        mgv_message *larger = realloc(c->messages, (c->room + 16) * sizeof *larger);
        if (!larger) return cli_fail(CLI_MACHINE, NULL, "out of memory for the conversation");
        c->messages = larger;
        c->room += 16;
    }
    copy = malloc(bytes + 1);
    grids = calloc(images ? images : 1, sizeof *grids);
    if (!copy || !grids) {
        free(copy);
        free(grids);
        return cli_fail(CLI_MACHINE, NULL, "out of memory for the conversation");
    }
    memcpy(copy, text ? text : "", bytes);
    copy[bytes] = 0;
    for (uint32_t i = 0; i < images; i++) grids[i] = pictures[i].encoded.grid;
    m = &c->messages[c->count++];
    memset(m, 0, sizeof *m);
    m->role = role;
    m->text = copy;
    m->bytes = bytes;
    m->image_count = images;
    m->grids = grids;
    return 0;
}
static void drop_messages(chat *c, uint32_t kept) {
    while (c->count > kept) {
        c->count--;
        free((char *)(uintptr_t)c->messages[c->count].text);
        free((mgv_grid *)(uintptr_t)c->messages[c->count].grids);
    }
}
static void drop_images(chat *c) {
    cli_list_free(&c->images);
    memset(&c->images, 0, sizeof c->images);
}

/* ---- a turn ---- */

/* The whole conversation as ids, to be freed. A loaded session ends in an answer, which the next message ends. */
static uint32_t *whole(chat *c, uint64_t *count, int *status) {
    uint64_t between_count = 0, said_count = 0;
    uint32_t *between = NULL, *said, *all = NULL;
    if (c->base_count) between = cli_tokenize_text(c->l.tokenizer, "<|im_end|>\n", MGV_TOKENIZE_PLAIN, &between_count, status);
    if (*status) return NULL;
    said = language_ids(&c->l, c->messages, c->count, MGV_CHAT_ANSWER | (c->options->think ? MGV_CHAT_THINK : 0), &said_count, status);
    *count = c->base_count + between_count + said_count;
    if (said) all = malloc((size_t)(*count + 1) * sizeof *all);
    if (said && !all) *status = cli_fail(CLI_MACHINE, NULL, "out of memory for the conversation");
    if (all) {
        if (c->base_count) memcpy(all, c->base, c->base_count * sizeof *all);
        if (between_count) memcpy(all + c->base_count, between, (size_t)between_count * sizeof *all);
        memcpy(all + c->base_count + between_count, said, (size_t)said_count * sizeof *all);
    }
    free(between);
    free(said);
    return all;
}

/* Brings the session to the whole conversation. */
static int read_turn(chat *c, const language_picture *pictures, uint32_t picture_count, int *stopped) {
    mgv_session_info info;
    mgv_error error;
    mgv_result result = MGV_OK;
    uint64_t count = 0;
    uint32_t same = 0;
    int status = 0;
    uint32_t *ids = whole(c, &count, &status);
    if (!ids) return status;
    mgv_session_get_info(c->l.session, &info);
    while (same < info.position && same < count && info.ids[same] == ids[same]) same++;
    if (count > info.capacity) {
        status = cli_fail(CLI_BAD_FILE, NULL, "the conversation would be %llu ids long, and the session holds %u; /reset begins anew, --context is larger",
                          (unsigned long long)count, info.capacity);
    } else {
        if (same < info.position) result = mgv_session_rollback(c->l.session, same, &error);
        status = result == MGV_OK ? language_append(&c->l, ids + same, count - same, pictures, picture_count, &interrupted, stopped)
                                  : cli_fail_library(NULL, result, &error);
    }
    free(ids);
    return status;
}

/* Says what comes, until it ends, is interrupted, or the session is full. */
static int answer(chat *c, language_text *text) {
    mgv_session_info info;
    mgv_error error;
    mgv_result result = MGV_OK;
    int status = 0, ended = 0;
    size_t shown;
    for (uint32_t n = 0; n < c->options->max_tokens && !ended && !interrupted && !status; n++) {
        uint32_t id;
        shown = text->bytes;
        result = mgv_session_sample(c->l.session, &c->l.sampling, &id, &error);
        if (result != MGV_OK) return cli_fail_library(NULL, result, &error);
        if (language_is_stop(&c->l, id)) break;
        status = language_text_add(&c->l, text, &id);
        language_show(text, shown);
        mgv_session_get_info(c->l.session, &info);
        ended = info.position == info.capacity;
        if (!ended && !status) result = mgv_session_step(c->l.session, id, &error);
        if (result != MGV_OK) return cli_fail_library(NULL, result, &error);
    }
    shown = text->bytes;
    if (!status) status = language_text_add(&c->l, text, NULL);
    language_show(text, shown);
    printf("%s\n", interrupted ? " ..." : "");
    fflush(stdout);
    language_say_long(&c->l);
    if (ended) cli_fail(0, NULL, "the session is full: /reset begins anew, --context N makes it larger");
    return status;
}

/* A message of the user, and the answer. What fails is taken back, its pictures with it: the conversation is as before. One that was
   interrupted while it was read leaves its pictures for the next. */
static int turn(chat *c, const char *line) {
    const uint32_t before = c->count, images = (uint32_t)c->images.count;
    language_picture *pictures = calloc(images ? images : 1, sizeof *pictures);
    language_text text;
    int status, stopped = 0;
    if (!pictures) return cli_fail(CLI_MACHINE, NULL, "out of memory");
    memset(&text, 0, sizeof text);
    interrupted = 0;
    status = language_see(&c->l, &c->images, pictures);
    if (!status) status = add_message(c, MGV_ROLE_USER, line, strlen(line), images, pictures);
    if (!status) status = read_turn(c, pictures, images, &stopped);
    if (!status && !stopped) {
        status = answer(c, &text);
        add_message(c, MGV_ROLE_ASSISTANT, text.text, text.bytes, 0, NULL);
        drop_images(c);
    } else {
        drop_messages(c, before);
        if (stopped) puts("...");
        else if (images) cli_fail(0, NULL, "the message is taken back with its pictures; /image shows them again");
        if (!stopped) drop_images(c);
    }
    language_free_pictures(pictures, images);
    free(pictures);
    free(text.text);
    return status;
}

/* ---- commands ---- */

static int command_image(chat *c, const char *name) {
    char reason[512];
    cli_picture picture;
    mgv_grid grid;
    int status;
    if (!c->l.info.patch) return cli_fail(CLI_BAD_FILE, NULL, "this model sees no pictures: it has no vision tower");
    status = cli_picture_load(&picture, name);
    if (!status && session_grid(c->l.vision, &picture.image, &grid, reason, sizeof reason))
        status = cli_fail(CLI_BAD_FILE, name, "%s", reason);
    cli_picture_free(&picture);
    return status ? status : cli_list_add(&c->images, name);
}

static int command_save(chat *c, const char *name) {
    uint64_t bytes;
    mgv_error error;
    void *data = NULL;
    cli_file *file;
    mgv_result result;
    int status = cli_check_output(name, c->l.name, NULL, &c->images);
    if (status) return status;
    result = mgv_session_saved_bytes(c->l.session, &bytes, &error);
    if (result == MGV_OK && !(data = malloc((size_t)bytes))) return cli_fail(CLI_MACHINE, name, "out of memory for %llu bytes", (unsigned long long)bytes);
    if (result == MGV_OK) result = mgv_session_save(c->l.session, data, bytes, &error);
    if (result != MGV_OK) {
        free(data);
        return cli_fail_library(name, result, &error);
    }
    file = cli_file_create(name);
    status = file ? 0 : CLI_BAD_FILE;
    if (file) {
        fwrite(data, 1, (size_t)bytes, cli_file_stream(file));
        status = cli_file_commit(file);
    }
    free(data);
    if (!status) printf("saved: %s\n", name);
    return status;
}

static int command_load(chat *c, const char *name) {
    mgv_session_info info;
    mgv_error error;
    mgv_result result;
    decode_bytes file;
    decode_reason why;
    size_t bytes = 0;
    uint32_t *base;
    const int descriptor = cli_file_open(name, SIZE_MAX - 1, &bytes, &why);
    if (descriptor < 0 || !cli_file_take(descriptor, bytes, &file, &why))
        return cli_fail(why.no_memory ? CLI_MACHINE : CLI_BAD_FILE, name, "%s", why.text);
    result = mgv_session_restore(c->l.session, file.data, file.length, &error);
    free((void *)(uintptr_t)file.data);
    if (result != MGV_OK) {
        cli_fail_library(name, result, &error);
        return CLI_BAD_FILE;
    }
    mgv_session_get_info(c->l.session, &info);
    base = malloc((info.position + 1u) * sizeof *base);
    if (!base) return cli_fail(CLI_MACHINE, name, "out of memory for its ids");
    if (info.position) memcpy(base, info.ids, info.position * sizeof *base);
    free(c->base);
    c->base = base;
    c->base_count = info.position;
    drop_messages(c, 0);
    drop_images(c);
    printf("loaded: %s, %u ids\n", name, info.position);
    return 0;
}

static int command_reset(chat *c) {
    mgv_error error;
    const mgv_result result = mgv_session_rollback(c->l.session, 0, &error);
    drop_messages(c, 0);
    drop_images(c);
    c->base_count = 0;
    return result == MGV_OK ? 0 : cli_fail_library(NULL, result, &error);
}

static void command_help(void) {
    puts("/image FILE  shows a picture with the next message, where it says <image> or in front\n"
         "/save FILE   keeps the session in a file\n"
         "/load FILE   goes on with one that was kept, of the same model\n"
         "/reset       forgets what was said\n"
         "/quit        ends, as the end of the input does; Ctrl-C stops a sentence");
}

/* 1: the line was a command. */
static int is_command(chat *c, const char *line, int *status) {
    static const struct { const char *name; int (*run)(chat *c, const char *name_of_file); } with_file[] = {
        {"/image", command_image}, {"/save", command_save}, {"/load", command_load}};
    const size_t length = strcspn(line, " \t");
    const char *file = line + length + strspn(line + length, " \t");
    if (line[0] != '/') return 0;
    for (size_t i = 0; i < sizeof with_file / sizeof with_file[0]; i++) {
        if (strlen(with_file[i].name) != length || strncmp(line, with_file[i].name, length) != 0) continue;
        *status = *file ? with_file[i].run(c, file) : cli_fail(CLI_USAGE, NULL, "%s needs the name of a file", with_file[i].name);
        return 1;
    }
    if (strcmp(line, "/reset") == 0) *status = command_reset(c);
    else if (strcmp(line, "/help") == 0) command_help();
    else if (strcmp(line, "/quit") == 0) c->ended = 1;
    else *status = cli_fail(CLI_USAGE, NULL, "there is no command '%s'; /help names those that there are", line);
    return 1;
}

/* ---- reading lines ---- */

/* A line without its end, to be freed with *room; NULL: there are no more, or *status says why not. Ctrl-C begins a new one. */
static char *read_line(char **line, size_t *room, int terminal, int *status) {
    for (;;) {
        ssize_t length;
        if (terminal) {
            fputs("> ", stdout);
            fflush(stdout);
        }
        errno = 0;
        interrupted = 0;
        length = getline(line, room, stdin);
        if (length < 0 && errno == EINTR) {
            clearerr(stdin);
            puts("\n(/quit ends)");
            continue;
        }
        if (length < 0) {
            if (ferror(stdin)) *status = cli_fail(CLI_BAD_FILE, "standard input", "cannot read: %s", strerror(errno));
            return NULL;
        }
        while (length > 0 && ((*line)[length - 1] == '\n' || (*line)[length - 1] == '\r')) (*line)[--length] = 0;
        if (strlen(*line) == (size_t)length) return *line;
        *status = cli_fail(CLI_BAD_FILE, NULL, "a line with a byte of value 0 is no text");
    }
}

/* The worst exit code of what was not said on a terminal: a script wants to know. */
static int converse(chat *c) {
    const int terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    struct sigaction action;
    char *line = NULL;
    size_t room = 0;
    int worst = 0, unread = 0;
    memset(&action, 0, sizeof action);
    action.sa_handler = interrupt; /* without SA_RESTART: a waiting read ends */
    sigaction(SIGINT, &action, NULL);
    if (terminal) printf("%s: /help names the commands\n", c->l.name);
    while (!c->ended && read_line(&line, &room, terminal, &unread)) {
        int status = 0;
        if (is_command(c, line, &status) || (!line[0] && !c->images.count)) worst = status > worst ? status : worst;
        else if ((status = turn(c, line)) > worst) worst = status;
        fflush(stdout);
        if (!c->l.session) break; /* no memory for one any more */
    }
    if (terminal && !c->ended) putchar('\n');
    free(line);
    if (unread > worst) worst = unread;
    return terminal ? 0 : worst;
}

static int run_options(const chat_options *options) {
    chat c;
    int status;
    memset(&c, 0, sizeof c);
    c.options = options;
    status = language_open(&c.l, &options->session, &options->sampling);
    if (!status) status = language_open_texts(&c.l, 0);
    if (!status) status = language_begin(&c.l, options->capacity);
    if (!status) status = converse(&c);
    drop_messages(&c, 0);
    drop_images(&c);
    free(c.messages);
    free(c.base);
    language_close(&c.l);
    return status;
}

static int run(const cli_command *command, int argc, char **argv) {
    chat_options options = {0};
    const cli_option table[] = {
        {"--model", CLI_TEXT, &options.session.model, "DIR", "the model: a directory as Hugging Face stores it"},
        {"--think", CLI_FLAG, &options.think, NULL, "let a model that can do so think first"},
        {"--max-tokens", CLI_COUNT, &options.max_tokens, "N", "ids of one answer at most (1024)"},
        {"--context", CLI_COUNT, &options.capacity, "N", "ids of the whole conversation at most (8192)"},
        CLI_SAMPLING_OPTIONS(options.sampling),
        CLI_LIMIT_OPTIONS(options.session),
        {"--backend", CLI_CHOICE, &options.session.backend, "auto|cpu|cuda", "where it runs"},
        {"--threads", CLI_THREADS, &options.session.threads, "N", "threads of the CPU (all cores); the text does not depend on it"},
        CLI_FAST_OPTION(options.session.precision),
        {NULL, CLI_FLAG, NULL, NULL, NULL},
    };
    int status;
    options.sampling.temperature = options.sampling.top_p = -1;
    options.sampling.seed = (uint64_t)time(NULL);
    status = cli_parse(command, table, NULL, argc, argv);
    if (status != CLI_GO_ON) return status;
    if (!options.max_tokens) options.max_tokens = DEFAULT_TOKENS;
    if (!options.capacity) options.capacity = DEFAULT_CAPACITY;
    status = options.session.model ? language_check_sampling(command, &options.sampling) : cli_usage(command, "--model is missing");
    return status ? status : run_options(&options);
}

const cli_command cli_chat = {
    "chat", "--model DIR", "a conversation with a language model, with pictures",
    "Lines are what you say; /image FILE shows a picture with the next one, /save FILE and /load FILE keep and continue the session, /reset\n"
    "forgets it, /quit ends. Ctrl-C stops a sentence, not the program.\n",
    run};
