/* A language model at work: what generate and chat share (megavit_language.c). */
#ifndef MEGAVIT_LANGUAGE_H
#define MEGAVIT_LANGUAGE_H

#include <signal.h>
#include "tools/cli.h"

typedef struct cli_sampling {
    int greedy;
    double temperature, top_p; /* negative: not given */
    uint32_t top_k;            /* 0: not given */
    uint64_t seed;
} cli_sampling;
#define CLI_SAMPLING_OPTIONS(sampling) \
    {"--greedy", CLI_FLAG, &(sampling).greedy, NULL, "always the likeliest id"}, \
    {"--temperature", CLI_REAL, &(sampling).temperature, "T", "choose by chance; 0 is greedy (what generation_config.json says, else greedy)"}, \
    {"--top-p", CLI_REAL, &(sampling).top_p, "P", "among the likeliest ids that have so much probability together"}, \
    {"--top-k", CLI_COUNT, &(sampling).top_k, "K", "among so many of the likeliest ids"}, \
    {"--seed", CLI_WHOLE, &(sampling).seed, "S", "the same seed gives the same text"}

/* CLI_USAGE, after saying so, if they contradict each other. */
int language_check_sampling(const cli_command *command, const cli_sampling *sampling);

typedef struct language {
    const char *name;          /* of the model */
    cli_session *vision;       /* the model, and an engine that fits the pictures */
    mgv_session *session;
    uint32_t capacity;         /* of the session, ids */
    int said_long;             /* that its text is longer than the model was made for */
    mgv_tokenizer *tokenizer;  /* NULL: nobody needs one */
    mgv_chat chat;
    mgv_model_info info;
    mgv_generation_info generation;
    mgv_sample_desc sampling;
} language;

/* A picture as the decoder reads it. */
typedef struct language_picture {
    cli_picture file;
    mgv_picture encoded;
    float *rows;      /* in host memory, */
    float *card_rows; /* or, where tower and decoder are on a GPU, there */
} language_picture;

/* Opens the model. NULL options->model is an error of the caller. 0, or the exit code after saying why; either way it is to be closed. */
int language_open(language *l, const cli_session_options *options, const cli_sampling *sampling);
void language_close(language *l);
/* Its tokenizer, and the template unless it is `plain`. */
int language_open_texts(language *l, int plain);
/* Pictures from files. An engine that is too small for one is made anew; the session, if there is one, goes on in it. */
int language_see(language *l, const cli_list *files, language_picture *pictures);
void language_free_pictures(language_picture *pictures, size_t count);
/* The session, for so many ids. */
int language_begin(language *l, uint64_t capacity);
/* The conversation as ids, to be freed; NULL after saying why, with *status set. */
uint32_t *language_ids(const language *l, const mgv_message *messages, uint32_t count, uint32_t flags, uint64_t *id_count, int *status);
/* Appends. stop: NULL, or a flag that another may raise: then the session is as it was, and *stopped is 1. */
int language_append(language *l, const uint32_t *ids, uint64_t count, const language_picture *pictures, uint32_t picture_count,
                    const volatile sig_atomic_t *stop, int *stopped);
/* Says, once, that the session's text is longer than the model was made for: what follows may mean nothing. */
void language_say_long(language *l);
/* Whether a text ends at this id. */
int language_is_stop(const language *l, uint32_t id);

/* Text that becomes whole as ids come: what a reader may see now, added to *text of *bytes. */
typedef struct language_text {
    mgv_detokenize_state state;
    char *text;
    size_t bytes, room;
} language_text;
/* id NULL: no more will come. What is new begins at the number of bytes that there were before. 0, or the exit code after saying why. */
int language_text_add(const language *l, language_text *text, const uint32_t *id);
/* Shows a text from byte `shown` on; on a terminal, control characters do nothing. */
void language_show(const language_text *text, size_t shown);

#endif
