/* megavit: decoding by itself, as the machine model compiles it. */
#define MEGAVIT_KERNELS
#include "../megavit.h"
#include "sm_90a/decode/prompt.cuh"
