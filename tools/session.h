/* What megavit_session.c and megavit_encode.c share. */
#ifndef MEGAVIT_SESSION_H
#define MEGAVIT_SESSION_H

#include <time.h>
#include "tools/cli.h"

struct cli_session {
    cli_session_options options;
    mgv_model *model;
    mgv_model_info info;
    mgv_engine *engines[CLI_MAX_DEVICES]; /* one a GPU; on a CPU the first alone */
    uint32_t devices[CLI_MAX_DEVICES], device_count;
    cli_card_start *start;
    mgv_threads *threads;  /* NULL: one thread */
    cli_fallback fallback; /* what the engine logs to */
    uint32_t max_images, max_tokens, max_width, max_height; /* what engines were made for */
    struct timespec began;
    double context_seconds, open_seconds, engine_seconds; /* that GPUs took to start, beside all else; the model; the last engines */
};

double session_seconds_since(const struct timespec *moment);

/* CLI_BAD_FILE, with the reason, if the model cannot take a picture of this size, or its files make more of it than they may. */
int session_grid(const cli_session *session, const mgv_image *image, mgv_grid *grid, char *reason, size_t room);
/* Whether engines are so large. */
int session_fits(const cli_session *session, uint32_t images, uint32_t tokens, uint32_t width, uint32_t height);
/* Makes engines so large, or larger than they are; they are never made smaller. Reports a failure, after which they are as large as before. No
   encode may be under way. */
int session_engine(cli_session *session, uint32_t images, uint32_t tokens, uint32_t width, uint32_t height);

#endif
