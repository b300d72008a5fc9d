/* megavit: what the latency regime's math tiles share: the stages they read, how a tile ends, the norms of its rows. */
#ifndef MGV_LATENCY_MATH_CUH
#define MGV_LATENCY_MATH_CUH

#include "scheduler.cuh"
#include "../throughput/gemm.cuh"

struct LatencyMath {
    LatencyMemory *shared;
    const mgv__kernel_arguments &arguments;
    LatencyRowStage stage;
    LatencyWeightStage weights;
    Ring<MGV__SLOTS> slot;   /* that of the tile */
    Ring<1> exchange;        /* of what the cluster sends */
    Ring<1> norms;
    uint32_t group;          /* number of this math warpgroup */
    uint32_t seen = 0;       /* kinds of tiles of few rows, bit by bit */
    uint32_t warp, lane;     /* of the warpgroup, of the warp */
    uint32_t cta;
    uint32_t *counter;       /* that the tile signals; null in all threads but one */
    uint32_t tile_stored = 0; /* barrier at which the tile is handed to the warp that signals it; 0: the math warps do */
    __device__ __forceinline__ LatencyMath(LatencyMemory *s, const mgv__kernel_arguments &a, uint32_t g)
        : shared(s), arguments(a), group(g), warp(threadIdx.x % 128 / 32), lane(threadIdx.x % 32),
          cta(cluster_ctarank()), counter(nullptr) {}
};

DEVICE uint32_t latency_stage_address(const LatencyMath &self, const LatencyRowStage &stage) {
    return shared_address(self.shared->rows[stage.index]);
}
DEVICE void latency_wait_stage(LatencyMath &self, const LatencyRowStage &stage) {
    wait_barrier(&self.shared->rows_full[stage.index], stage.parity);
}
/* Before a tile reads by ordinary loads what other CTAs have written, or stores anything: the arrival of copied bytes orders neither.
   What a tile finds without them lies in front of it. */
DEVICE void latency_wait_ready(const LatencyMath &self) { wait_barrier(&self.shared->tile_ready[self.slot.index], self.slot.parity); }
/* By every warp of one math group. */
DEVICE void latency_leave_stage(const LatencyMath &self, const LatencyRowStage &stage) {
    if (self.lane == 0) mbarrier_arrive(shared_address(&self.shared->rows_empty[stage.index]));
}

/* --- ending a tile --------------------------------------------------------------------------------------------- */

/* Named barriers: all math warps; those of one math group. */
enum { LATENCY_SYNC_MATH = 1, LATENCY_SYNC_GROUP = 2 };
DEVICE void latency_sync(void) { bar_sync(LATENCY_SYNC_MATH, 32 * LATENCY_MATH_WARPS); }
/* 1 if any of their threads says so. */
DEVICE uint32_t latency_any(uint32_t yes) { return bar_red_or(LATENCY_SYNC_MATH, 32 * LATENCY_MATH_WARPS, yes); }
DEVICE void latency_sync_group(const LatencyMath &self) { bar_sync(LATENCY_SYNC_GROUP + self.group, 128); }

/* By all math warps, after their ordinary stores: visible to the copy engines of other CTAs, then counted,
   or handed to the warp that counts. Here they meet in every tile: none writes, for the next one, what another still reads. What they have
   traded in the ring lies behind them for its copies, too. (One fence for both kinds of memory, without a name, takes 0.5 us.) */
DEVICE void latency_signal(const LatencyMath &self) {
    fence_proxy_async_global();
    fence_proxy_async_shared_cta();
    latency_sync();
    if (self.tile_stored) {
        warp_sync();
        if (self.lane == 0) mbarrier_arrive(self.tile_stored);
        return;
    }
    if (self.counter) red_release_gpu_add(self.counter, 1);
}

/* Two groups of 8 columns of a row, two columns of each in every lane of a quad: lanes trade, so that each has four neighbours of one
   group. `to` is where this lane's four columns of the first two groups lie: latency_pair_column columns behind the first. */
DEVICE uint32_t latency_pair_column(uint32_t lane) { return 8 * (lane & 1) + 2 * (lane % 4 - (lane & 1)); }
DEVICE void latency_store_pair(uint32_t lane, uint16_t *to, uint32_t first, uint32_t second, bool valid) {
    const uint32_t odd = lane & 1, traded = __float_as_uint(shfl_bfly_f32(__uint_as_float(odd ? first : second), 1));
    if (valid) st_global_v2u32(to, odd ? traded : first, odd ? second : traded);
}

/* --- norms of rows ---------------------------------------------------------------------------------------------- */

/* The warp that finds them has written those of the tile's rows. */
DEVICE void latency_wait_norms(LatencyMath &self) {
    wait_barrier(&self.shared->norms_full, self.norms.parity);
}
/* By every math warp, when it has read them. */
DEVICE void latency_leave_norms(LatencyMath &self) {
    if (self.lane == 0) mbarrier_arrive(shared_address(&self.shared->norms_empty));
    self.norms.advance();
}

#endif /* MGV_LATENCY_MATH_CUH */
