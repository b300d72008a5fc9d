/* The library, compiled once for the command line. */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_PLAN
#define MEGAVIT_TEXT
#include "megavit.h"
