/* Which backend computes, and what a person should know of it. */
#include <string.h>
#include <unistd.h>
#include "tools/cli.h"

#if defined(MEGAVIT_CUDA) && !defined(MEGAVIT_NO_CUDA)
enum { HAS_CUDA = 1 };
#else
enum { HAS_CUDA = 0 };
#endif
#define HOW_TO_BUILD "make build/cuda/megavit CUDA=/usr/local/cuda makes one that has (README, On a GPU)"

int cli_check_backend(mgv_backend backend) {
    if (backend != MGV_BACKEND_CUDA || HAS_CUDA) return CLI_DONE;
    return cli_fail(CLI_MACHINE, "--backend cuda", "this build has no CUDA backend; " HOW_TO_BUILD);
}

int cli_may_be_gpu(mgv_backend backend) { return HAS_CUDA && backend != MGV_BACKEND_CPU; }

static void keep_reason(void *user, int32_t level, const char *message) {
    cli_fallback *fallback = user;
    (void)level;
    if (strncmp(message, "the CPU encodes: ", 17) == 0) snprintf(fallback->reason, sizeof fallback->reason, "%s", message);
}

void cli_watch_fallback(cli_fallback *fallback, mgv_logger *logger) {
    memset(fallback, 0, sizeof *fallback);
    logger->user = fallback;
    logger->log = keep_reason;
}

void cli_say_fallback(const cli_fallback *fallback) {
    static int said;
    if (said || !fallback->reason[0]) return;
    if (HAS_CUDA) cli_fail(0, NULL, "%s", fallback->reason);
    else if (access("/dev/nvidiactl", F_OK) == 0) cli_fail(0, NULL, "the CPU encodes: this build has no CUDA backend; " HOW_TO_BUILD);
    said = 1;
}
