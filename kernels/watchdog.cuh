/* megavit: waiting, never for ever.

   Whoever waits for other CTAs' counters, and each CTA's scheduler, which waits for its tiles' ends from the first tile to the last,
   counts polls. One that sees no progress within poll_limit polls says so in the abort word, writes who it is into the status block, which
   lies in memory of the host, and gives up; all others that count see the abort word and give up as well. All other waits of a CTA look
   at its `gave_up`, where the scheduler arrives when it has: nothing but that stands in their loops, since whatever does is in the way of
   the instructions around it, run or not (kernels/NOTES.md, "What a wait costs that nobody waits in").
   Giving up does not leave the roles' loops: the wait returns, `aborted` is set, and from then on nothing is loaded or stored, no barrier
   that another role or CTA waits on is arrived at, and the next tile is the last. So every role runs to its end, warps of a warpgroup issue
   the same matrix instructions, and the kernel ends by itself with the context alive. */
#ifndef MGV_WATCHDOG_CUH
#define MGV_WATCHDOG_CUH

#include "shared_memory.cuh"

struct Watchdog {
    const mgv__kernel_arguments &arguments;
    uint64_t *gave_up; /* of this CTA: phase 0 completes when its scheduler gives up */
    uint32_t aborted;
    __device__ __forceinline__ Watchdog(const mgv__kernel_arguments &a, uint64_t *g) : arguments(a), gave_up(g), aborted(0) {}
};

enum {
    POLLS_BETWEEN_LOOKS = 32,  /* polls before a wait looks at the abort word in global memory */
    BARRIER_PATIENCE = 4       /* waits inside a CTA give up later than those for counters, which know what they wait for */
};

/* What the next launch counts in, shared out over `warps` warps of each CTA, of which this is number `warp`: some that nobody waits for
   when a launch begins, as its first instructions are slow. Nobody waits for the stores either: the launch ends when they are done. */
DEVICE void clear_next_counters(const mgv__kernel_arguments &arguments, uint32_t warp, uint32_t warps) {
    uint32_t *const next = arguments.aborted + arguments.next_counters;
    const uint32_t first = (blockIdx.x * warps + warp) * 32 + threadIdx.x % 32;
    for (uint32_t i = first; i < arguments.next_count; i += gridDim.x * warps * 32) st_global_u32(next + i, 0);
}

DEVICE void watchdog_abort(Watchdog &dog, uint32_t wait, uint32_t op, uint32_t index, uint32_t seen, uint32_t expected) {
    if (atom_relaxed_gpu_cas(dog.arguments.aborted, 0, wait) == 0) {
        mgv__kernel_status *status = dog.arguments.status;
        st_relaxed_sys(&status->op, op);
        st_relaxed_sys(&status->cta, blockIdx.x);
        st_relaxed_sys(&status->index, index);
        st_relaxed_sys(&status->seen, seen);
        st_relaxed_sys(&status->expected, expected);
        st_relaxed_sys(&status->aborted, wait);
    }
    dog.aborted = 1;
}

DEVICE void watchdog_look(Watchdog &dog) {
    if (ld_relaxed_gpu(dog.arguments.aborted)) dog.aborted = 1;
}

/* Waits until the phase of this parity has completed, or the CTA gives up. */
DEVICE void wait_barrier(Watchdog &dog, uint64_t *barrier, uint32_t parity) {
    const uint32_t address = shared_address(barrier);
    while (!mbarrier_try_wait_parity(address, parity))
        if (mbarrier_test_wait_parity(shared_address(dog.gave_up), 0)) {
            dog.aborted = 1;
            return;
        }
}

/* The same for a scheduler, which decides whether its CTA gives up: until the tile that `slot` holds has ended. */
DEVICE void watch_slot_vacated(Watchdog &dog, uint64_t *barrier, uint32_t parity, const TileSlot &slot) {
    const uint32_t address = shared_address(barrier);
    if (dog.aborted) return;
    for (uint32_t polls = 1; !mbarrier_try_wait_parity(address, parity); polls++) {
        if (polls % POLLS_BETWEEN_LOOKS) continue;
        watchdog_look(dog);
        if (!dog.aborted && polls / BARRIER_PATIENCE >= dog.arguments.poll_limit)
            watchdog_abort(dog, MGV__WAIT_SLOT_VACATED, slot.op.number, address, 0, parity);
        if (dog.aborted) return;
    }
}

/* Polls, as a whole warp, until all lanes' counters have reached `threshold`, 1, but no longer than until the next look. seen: what a lane
   saw last. Nothing else is in the loop: what a poll does behind its answer puts off the next one, and what it finds. */
DEVICE uint32_t poll_counters(const uint32_t *counter, uint32_t threshold, uint32_t &seen) {
#pragma unroll 1
    for (uint32_t polls = 0; polls < POLLS_BETWEEN_LOOKS; polls++) {
        seen = ld_relaxed_gpu_before_fence(counter);
        if (vote_all(seen >= threshold)) return 1;
    }
    return 0;
}

/* Waits, as a whole warp, until counters [first, last] have all reached `threshold`. The lanes share the counters out. */
DEVICE void wait_counters(Watchdog &dog, const uint32_t *counters, uint32_t first, uint32_t last, uint32_t threshold, uint32_t op) {
    const uint32_t lane = threadIdx.x % 32;
    if (dog.aborted) return;
    for (uint32_t base = first;; base += 32) {
        const uint32_t ends = last - base < 32; /* known before the wait: nothing behind it is for nothing */
        const uint32_t index = base + lane <= last ? base + lane : last;
        uint32_t seen, before = 0, polls = 0;
        while (!poll_counters(counters + index, threshold, seen)) {
            watchdog_look(dog);
            polls = seen != before ? 0 : polls + POLLS_BETWEEN_LOOKS;
            before = seen;
            if (!dog.aborted && polls >= dog.arguments.poll_limit && seen < threshold)
                watchdog_abort(dog, MGV__WAIT_COUNTER, op, index, seen, threshold);
            dog.aborted = !vote_all(!dog.aborted);
            if (dog.aborted) return;
        }
        if (ends) break;
    }
    fence_acquire_gpu();
}

#endif /* MGV_WATCHDOG_CUH */
