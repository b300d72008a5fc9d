/* A test that cannot be run here says why; tests/run prints it. */
#ifndef MEGAVIT_TESTS_SKIP_H
#define MEGAVIT_TESTS_SKIP_H

#include <stdio.h>

#define skip_because(reason) \
    do { \
        printf("# because: %s\n", reason); \
        fflush(stdout); \
        skip(); \
    } while (0)

#endif
