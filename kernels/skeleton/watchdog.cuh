/* megavit: waiting, never for ever.

   Whoever waits for other CTAs' counters, and each CTA's scheduler, which waits for its tiles' ends from the first tile to the last and
   then for the end of all other warps, counts polls. One that sees no progress within poll_limit polls says so in the abort word, writes
   who it is into the status block, which lies in memory of the host, and gives up; all others that count see the abort word and give up as
   well. All other waits do nothing but wait: whatever else stands in such a loop is in the way of the instructions around it, run or not
   (kernels/NOTES.md, what a wait costs that nobody waits in). Their bound comes from outside. A scheduler that gives up says so to its
   cluster (`gave_up`) and then lets every wait of its CTA through, again and again, until the other warps have ended (release_roles).
   So what a wait lets through may be nothing at all. A launch that has been given up has no result, and garbage that is loaded, multiplied,
   stored and signalled goes where the tile's own results would have gone: none of that asks. What asks (gives_up) is whoever announces or
   sends bytes, as a barrier that bytes are missing at may take no more arrivals, and whoever waits for a tile, as this one is the last; but
   the math groups, which must not part there, ask what has been announced (math_announced). */
#ifndef MGV_WATCHDOG_CUH
#define MGV_WATCHDOG_CUH

#include "slots.cuh"

struct Watchdog {
    const mgv__kernel_arguments &arguments;
    uint32_t aborted;
    __device__ __forceinline__ explicit Watchdog(const mgv__kernel_arguments &a) : arguments(a), aborted(0) {}
};

enum {
    POLLS_BETWEEN_LOOKS = 32,  /* polls before a wait looks at the abort word in global memory */
    BARRIER_PATIENCE = 4,      /* waits inside a CTA give up later than those for counters, which know what they wait for */
    MICROSECOND = 1000,        /* as nanosleep counts; it may sleep for twice as long, or not at all */
    LAST_COPIES = 200,         /* microseconds in which what is on its way lands */
    RELEASES = 1 << 18         /* of all waits of a CTA that gives up, at most: SigLIP has some 200 a tile, patches of 1,024 pixels 49,152,
                                  and MGV__SLOTS tiles are known */
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

/* Waits until the phase of this parity has completed, or the CTA's scheduler lets everybody through. */
DEVICE void wait_barrier(uint64_t *barrier, uint32_t parity) {
    const uint32_t address = shared_address(barrier);
    while (!mbarrier_try_wait_parity(address, parity)) {}
}

/* The same for two barriers. */
DEVICE void wait_barriers(uint64_t *barrier, uint32_t parity, uint64_t *second, uint32_t second_parity) {
    if (mbarrier_try_wait_parity_both(shared_address(barrier), parity, shared_address(second), second_parity)) return;
    wait_barrier(barrier, parity);
    wait_barrier(second, second_parity);
}

/* Whether the cluster gives up. Behind a wait that has been let through it says so. Memory: that of either regime. */
template <class Memory> DEVICE uint32_t gives_up(const Memory *shared) { return shared_load_u32(shared_address(&shared->gave_up)); }

/* A scheduler's wait, which decides whether its CTA gives up; of the tile that `slot` holds. */
DEVICE void watch_barrier(Watchdog &dog, uint64_t *barrier, uint32_t parity, uint32_t wait, const TileSlot &slot) {
    const uint32_t address = shared_address(barrier);
    if (dog.aborted) return;
    for (uint32_t polls = 1; !mbarrier_try_wait_parity(address, parity); polls++) {
        if (polls % POLLS_BETWEEN_LOOKS) continue;
        watchdog_look(dog);
        if (!dog.aborted && polls / BARRIER_PATIENCE >= dog.arguments.poll_limit)
            watchdog_abort(dog, wait, slot.op.number, address, 0, parity);
        if (dog.aborted) return;
    }
}

/* What is on its way to a cluster that gives up lands. */
DEVICE void wait_for_copies(void) {
#pragma unroll 1
    for (int i = 0; i < LAST_COPIES; i++) nanosleep(MICROSECOND);
}

/* By one thread of a scheduler that gives up; the other CTAs of the cluster, `ctas` in all, have started. Who asks from now on gets to
   know. When those who asked before have done what they then did, nobody announces bytes any more, and the barriers are made anew, to count
   single arrivals: in their first phase a wait for parity 1 is over, in their second one for parity 0. What others arrive meanwhile ends
   a phase, too, and bytes that still come to a barrier are gone with its next making. An arrival too many ends the context ("Warp Illegal
   Instruction"): that is why this thread arrives once and not until the phase ends, and why no two lanes arrive at one barrier in one
   instruction anywhere. PTX leaves open what becomes of a wait for a barrier that is made anew; on a card it goes on. */
template <class Memory> DEVICE void release_roles(Memory *shared, uint32_t ctas) {
    const uint32_t first = first_barrier(shared), end = shared_address(&shared->roles_left);
    for (uint32_t cta = 0; cta < ctas; cta++) st_shared_cluster_u32(mapa_shared_cluster(shared_address(&shared->gave_up), cta), 1);
    wait_for_copies();
#pragma unroll 1
    for (int i = 0; i < RELEASES && !mbarrier_test_wait_parity(end, 0); i++) {
#pragma unroll 1
        for (uint32_t barrier = first; barrier < end; barrier += 8) {
            mbarrier_inval(barrier);
            mbarrier_init(barrier, 1);
        }
        nanosleep(MICROSECOND);
#pragma unroll 1
        for (uint32_t barrier = first; barrier < end; barrier += 8) mbarrier_arrive(barrier);
        nanosleep(MICROSECOND);
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
