/* megavit: the latency regime's kernels. One launch runs the whole list of operations of one encode of few images.

   One CTA a multiprocessor, in clusters of four: warp 0 loads rows, warp 1 schedules, warp 2 loads weights, warp 3 finds norms and signals
   for the math warps where these have tiles to go on with, warpgroups 1 and 2 are math. Read in this order: memory, loader, scheduler,
   math, products, gemm, online, ../siglip_head/gemv, latency_pool, latency_sums, pool_tokens, heads, towers. */
#ifndef MGV_LATENCY_CUH
#define MGV_LATENCY_CUH

#include "heads.cuh"
#include "towers.cuh"

/* The image's tiles, the CTAs of a cluster and their math threads share its pieces out. */
ROUTINE void latency_patches_tile(LatencyMath &self, const TileSlot &tile) {
    const uint32_t thread =
        (tile.column * MGV__LATENCY_CLUSTER + self.cta) * 32 * LATENCY_MATH_WARPS + (self.group * 4 + self.warp) * 32 + self.lane;
    latency_wait_ready(self);
    patches_of_image(self.arguments, tile.op, image_number(tile.op, tile.group, tile.unit), thread,
                     tile.op.column_tiles * MGV__LATENCY_CLUSTER * 32 * LATENCY_MATH_WARPS);
    latency_signal(self);
}

/* In the kernels of towers, of kinds that each of them has code for. */
template <int ROWS, uint32_t KINDS> DEVICE void latency_tower_tile(LatencyMath &self, const LatencyTile &tile, const TileSlot &slot) {
    constexpr auto has = [](uint32_t some) { return has_kind<KINDS>(some); };
    if (latency_is_product(tile.kind)) return latency_gemm_tile<ROWS, KINDS>(self, tile, slot);
    switch (tile.kind) {
    case MGV__KERNEL_ATTENTION: if constexpr (has(MGV__KERNEL_ATTENTION)) latency_attention_tile<ROWS>(self, tile); break;
    case MGV__KERNEL_ATTENTION_ONLINE:
        if constexpr (has(MGV__KERNEL_ATTENTION_ONLINE)) latency_attention_online<KINDS, false>(self, tile, slot);
        break;
    case MGV__KERNEL_ATTENTION_RANGES:
        if constexpr (has(MGV__KERNEL_ATTENTION_RANGES)) latency_attention_online<KINDS, true>(self, tile, slot);
        break;
    case MGV__KERNEL_PATCHES: if constexpr (has(MGV__KERNEL_PATCHES)) latency_patches_tile(self, slot); break;
    case MGV__KERNEL_PATCHES_OF_TOKENS:
        if constexpr (has(MGV__KERNEL_PATCHES_OF_TOKENS)) latency_patches_of_tokens_tile(self, slot);
        break;
    case MGV__KERNEL_MERGE: if constexpr (has(MGV__KERNEL_MERGE)) latency_merge_tile(self, slot); break;
    case MGV__KERNEL_ROWS: latency_rows_tile(self, slot); break;
    case MGV__KERNEL_POOL_HEADS: if constexpr (has(MGV__KERNEL_POOL_HEADS)) latency_pool_tile(self, tile, slot); break;
    case MGV__KERNEL_POOL_SUMS: if constexpr (has(MGV__KERNEL_POOL_SUMS)) latency_sums_tile(self, slot); break;
    case MGV__KERNEL_POOL_TOKENS:
    case MGV__KERNEL_POOL_JOIN: if constexpr (has(MGV__KERNEL_POOL_TOKENS)) latency_few_rows_tile(self, slot); break;
    case MGV__KERNEL_GEMV: if constexpr (has(MGV__KERNEL_GEMV)) latency_gemv_tile<latency_any_width<KINDS>()>(self, slot); break;
    }
}

/* The layers' tiles stand first here, and so does their code: behind other tiles' or with it in between they take 0.4 to 1.2% longer
   (kernels/NOTES.md, how much code). */
template <int ROWS, uint32_t KINDS> DEVICE void latency_run_tile(LatencyMath &self, const LatencyTile &tile, const TileSlot &slot) {
    if constexpr (is_tower<KINDS>()) return latency_tower_tile<ROWS, KINDS>(self, tile, slot);
    if (latency_is_product(tile.kind) || tile.kind == MGV__KERNEL_ATTENTION) {
        if (latency_is_product(tile.kind)) latency_gemm_tile<ROWS, KINDS>(self, tile, slot);
        else latency_attention_tile<ROWS>(self, tile);
    } else {
        switch (tile.kind) {
        case MGV__KERNEL_PATCHES: latency_patches_tile(self, slot); break;
        case MGV__KERNEL_POOL_HEADS: latency_pool_tile(self, tile, slot); break;
        case MGV__KERNEL_GEMV: latency_gemv_tile<latency_any_width<KINDS>()>(self, slot); break;
        }
        if constexpr (has_kind<KINDS>(MGV__KERNEL_ATTENTION_ONLINE)) {
            if (tile.kind == MGV__KERNEL_ATTENTION_ONLINE) latency_attention_online<KINDS, false>(self, tile, slot);
            if (is_pool_few(tile.kind)) latency_few_rows_tile(self, slot);
            if (tile.kind == MGV__KERNEL_ROWS) latency_rows_tile(self, slot);
        }
    }
}

/* The fields of a tile that branches hang on, known to the compiler as those of the whole warp. */
DEVICE LatencyTile latency_read_tile(const LatencyMemory *shared, uint32_t slot) {
    LatencyTile tile = shared->tile[slot];
    tile.kind = warp_uniform(tile.kind);
    tile.flags = warp_uniform(tile.flags);
    tile.blocks = warp_uniform(tile.blocks);
    tile.rows = warp_uniform(tile.rows);
    return tile;
}

/* Math warps do not meet before a tile: each runs those that the scheduler has announced, up to the end. Who is let through, since the
   cluster gives up, finds an earlier tile's number in the slot, as all warps of the CTA then do: none waits for another in vain. */
template <int ROWS, uint32_t KINDS>
DEVICE void latency_math_role(LatencyMemory *shared, const mgv__kernel_arguments &arguments, uint32_t group) {
    LatencyMath self(shared, arguments, group);
    const uint32_t signals = group == 0 && self.warp == 0 && self.lane == 0;
    for (uint32_t number = 1;; number++, self.slot.advance()) {
        const uint32_t slot = self.slot.index;
        wait_barrier(&shared->tile_known[slot], self.slot.parity);
        if (warp_uniform(shared->tile[slot].number) != number || warp_uniform(shared->tile[slot].kind) == MGV__KERNEL_END) break;
        const LatencyTile tile = latency_read_tile(shared, slot);
        self.lane = opaque(self.lane);
        self.warp = warp_uniform(self.warp);
        self.group = warp_uniform(self.group);
        self.tile_stored = warp_uniform(tile.others_signal) ? shared_address(&shared->tile_stored[slot]) : 0;
        self.counter = signals && !self.tile_stored ? tile.counter : nullptr;
        latency_run_tile<ROWS, KINDS>(self, tile, shared->slot[slot]);
        /* Here, not where the stages are left: there the compiler takes the ring's state for a thread's, in all products' loops, too. */
        if (tile.kind == MGV__KERNEL_POOL_HEADS) self.stage = latency_stage_after(self.stage, tile.blocks);
        warp_sync();
        if (self.lane == 0) mbarrier_arrive(shared_address(&shared->slot_vacated[slot]));
    }
}

enum { LATENCY_WEIGHT_WARP = 2 };
/* Math warps and the loader of weights wait for the cluster before they send anything to it, the others when they are done. Not so under
   racecheck, which lets nobody through a cluster's barrier before all threads of the CTA are there. */
#ifdef MEGAVIT_RACECHECK
enum { LATENCY_STARTS_TOGETHER = 1 };
#else
enum { LATENCY_STARTS_TOGETHER = 0 };
#endif

template <int ROWS, uint32_t KINDS> DEVICE void latency_kernel(LatencyMemory *shared, const mgv__kernel_arguments &arguments) {
    const uint32_t warp = warp_uniform(threadIdx.x / 32);
    Watchdog dog(arguments);
    if (threadIdx.x == 0) {
        latency_memory_init(shared);
        if (shared_address(shared) % 1024) watchdog_abort(dog, MGV__WAIT_ALIGNMENT, 0, 0, shared_address(shared), 1024);
    }
    bar_sync_all();
    barrier_cluster_arrive_relaxed();
    if (LATENCY_STARTS_TOGETHER) barrier_cluster_wait_acquire();

    if (warp < 4) {
        setmaxnreg_dec<MGV__LATENCY_COPY_REGISTERS>();
        if (!LATENCY_STARTS_TOGETHER && warp == LATENCY_WEIGHT_WARP) barrier_cluster_wait_acquire();
        if (warp == 0) latency_row_loader_role<KINDS>(shared, arguments);
        else if (warp == SCHEDULER_WARP) latency_scheduler_role<KINDS>(shared, arguments, dog);
        else if (warp == LATENCY_WEIGHT_WARP) latency_weight_loader_role<KINDS>(shared, arguments);
        else latency_norm_role<KINDS>(shared, arguments);
        warp_sync();
        if (!LATENCY_STARTS_TOGETHER && warp != LATENCY_WEIGHT_WARP) barrier_cluster_wait_acquire();
        if (threadIdx.x == SCHEDULER_WARP * 32 && dog.aborted) release_roles(shared, MGV__LATENCY_CLUSTER);
    } else {
        if (!LATENCY_STARTS_TOGETHER) barrier_cluster_wait_acquire();
        setmaxnreg_inc<MGV__LATENCY_MATH_REGISTERS>();
        latency_math_role<ROWS, KINDS>(shared, arguments, warp / 4 - 1);
    }
    leave_role(shared, warp);
    wait_for_cluster(dog);
}

/* A kernel for each number of rows of a tile: of one for both a fifth never runs, and it takes 0.8 to 1.5% longer. Likewise one for each
   set of kinds of tiles (mgv__kernels); the host chooses. */
#define LATENCY_KERNEL(name, rows, kinds) \
    extern "C" __global__ void __launch_bounds__(MGV__KERNEL_THREADS, 1) \
        megavit_encode_latency_##name##_sm_90a(const __grid_constant__ mgv__kernel_arguments arguments) { \
        extern __shared__ __align__(1024) uint8_t shared_bytes[]; \
        latency_kernel<rows, kinds>((LatencyMemory *)shared_bytes, arguments); \
    }
LATENCY_KERNEL(104, MGV__LATENCY_SHORT_ROWS, MGV__KINDS_LATENCY)
LATENCY_KERNEL(128, MGV__LATENCY_MAX_ROWS, MGV__KINDS_LATENCY)
LATENCY_KERNEL(any_104, MGV__LATENCY_SHORT_ROWS, MGV__KINDS_LATENCY_ANY)
LATENCY_KERNEL(any_128, MGV__LATENCY_MAX_ROWS, MGV__KINDS_LATENCY_ANY)
LATENCY_KERNEL(turned, MGV__LATENCY_MAX_ROWS, MGV__KINDS_LATENCY_TURNED)
LATENCY_KERNEL(tower, MGV__LATENCY_MAX_ROWS, MGV__KINDS_LATENCY_TOWER)
LATENCY_KERNEL(all, MGV__LATENCY_MAX_ROWS, MGV__KINDS_LATENCY_ALL)
LATENCY_KERNEL(wide, MGV__LATENCY_MAX_ROWS, MGV__KINDS_LATENCY_WIDE)
#undef LATENCY_KERNEL
static_assert(MGV__LATENCY_SHORT_ROWS == 104 && MGV__LATENCY_MAX_ROWS == 128, "the kernels' names, by which the host asks for them");

#endif /* MGV_LATENCY_CUH */
