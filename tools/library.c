/* The library, compiled once as libmegavit.so: `make lib` says how. */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_PLAN
#define MEGAVIT_TEXT
#include "megavit.h"
