/* The tests of the CPU backend where MEGAVIT_NO_SIMD leaves only plain C. */
#define MEGAVIT_NO_SIMD
#include "test_cpu.c"
