/* Whether this fault of planted_ranges.txt, counted from 1, is planted in the launch under way. */
#ifndef MACHINE_PLANTED_RANGES_H
#define MACHINE_PLANTED_RANGES_H
extern "C" bool planted(int fault);
#endif
