/* megavit: how the roles of a CTA end. */
#ifndef MGV_ROLES_CUH
#define MGV_ROLES_CUH

#include "watchdog.cuh"

/* Copies and arrivals of other CTAs may still be on their way to this one after an abort: they land before shared memory goes away, as the
   scheduler of every CTA that has given up, whose `dog` alone knows, comes here late, and nobody gets through before it. */
DEVICE void wait_for_cluster(const Watchdog &dog) {
    if (dog.aborted) wait_for_copies();
    warp_sync();
    barrier_cluster_arrive_release();
    barrier_cluster_wait_acquire();
}

/* By every warp, number `warp`, when its role is over. */
template <class Memory> DEVICE void leave_role(Memory *shared, uint32_t warp) {
    warp_sync();
    if (warp != SCHEDULER_WARP && threadIdx.x % 32 == 0) mbarrier_arrive(shared_address(&shared->roles_left));
}

#endif /* MGV_ROLES_CUH */
