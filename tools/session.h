/* What megavit_session.c and megavit_encode.c share. */
#ifndef MEGAVIT_SESSION_H
#define MEGAVIT_SESSION_H

#include "tools/cli.h"

struct cli_session {
    cli_session_options options;
    mgv_model *model;
    mgv_model_info info;
    mgv_engine *engine;
    mgv_threads *threads;  /* NULL: one thread */
    cli_fallback fallback; /* what the engine logs to */
    uint32_t max_images, max_tokens, max_width, max_height; /* what the engine was made for */
};

/* CLI_BAD_FILE, with the reason, if the model cannot take a picture of this size, or its files make more of it than they may. */
int session_grid(const cli_session *session, const mgv_image *image, mgv_grid *grid, char *reason, size_t room);
/* Makes the engine so large, or larger than it is; it is never made smaller. Reports a failure, after which it is as large as before. */
int session_engine(cli_session *session, uint32_t images, uint32_t tokens, uint32_t width, uint32_t height);

#endif
