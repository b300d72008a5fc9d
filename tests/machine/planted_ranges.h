/* Whether this fault of planted_ranges.txt or planted_decode.txt, counted from 1, is planted in the launch under way: 0, or which variant
   of it. */
#ifndef MACHINE_PLANTED_RANGES_H
#define MACHINE_PLANTED_RANGES_H
extern "C" int planted(int fault);
/* By a kernel that has been compiled without the code for this kind of tile, or, if that is the end's, without any. */
extern "C" void planted_missing(unsigned kind);
/* Which idea the decoder's kernel does without (ablations.cuh). */
extern "C" int ablation(void);
#endif
