/* Whether this fault of planted_ranges.txt or planted_decode.txt, counted from 1, is planted in the launch under way: 0, or which variant
   of it. */
#ifndef MACHINE_PLANTED_RANGES_H
#define MACHINE_PLANTED_RANGES_H
extern "C" int planted(int fault);
/* Which idea the decoder's kernel does without (ablations.cuh). */
extern "C" int ablation(void);
#endif
