/* The library, compiled once for the command line. */
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
