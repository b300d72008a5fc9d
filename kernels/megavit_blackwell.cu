/* megavit: the kernel of sm_100a, sm_103a and sm_110a. Read megavit.cu first. */
#define MEGAVIT_KERNELS
#include "../megavit.h"
#include "sm_100a/kernel.cuh"
