/* What a recording holds (trace.cc), and what of it hangs on the order in which it is done again (order.cc). */
#ifndef MACHINE_TRACE_H
#define MACHINE_TRACE_H

#include "internal.h"

namespace machine {

struct alignas(64) Copy { /* by the copy engine */
    CUtensorMap map;
    int32_t coordinate[5];
    uint32_t rank, mask;
    bool multicast;
};

struct Script; /* order.cc */

struct Trace {
    std::deque<Copy> copies;
    uint64_t waits = 0; /* that have ended */
    std::vector<std::vector<Step>> warps; /* of all CTAs, one after the other */
    mutable std::shared_ptr<Script> script; /* since it was done again for the first time */
    std::shared_ptr<const Trace> original;  /* whose copies a damaged one uses */
};

/* Does a recording again as far as its order goes. True when reads, writes and clocks come out as they did in a run that has looked at
   them and found nothing to report: then this is the result of the launch. `look` makes that run, once for each recording. */
bool replay_known_order(const Launch &launch, const Options &options, const std::function<Result()> &look, Result *result);

} // namespace machine

#endif
