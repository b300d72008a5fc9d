/* megavit: the persistent kernel. One launch runs the whole list of operations of one encode.

   One CTA a multiprocessor, in clusters of two. Roles, one warpgroup of four warps each:
       warpgroup 0      warp 0 the loader, warp 1 the scheduler, warps 2 and 3 the storers of the two math groups
       warpgroups 1, 2  math: matrix products, softmax, epilogues
   Read in this order: skeleton/ slots, watchdog, scheduler; sm_90a/tiles; sm_90a/throughput/ memory, scheduler, loader, storer, math,
   gemm, gemm_layers, towers, attention, attention_online, attention_ranges, rows, mergers, shares; sm_90a/patches; sm_90a/siglip_head/
   gemv, pool, pool_sums, pool_tokens; then sm_90a/latency/kernels.
   Decoding and prompts share only ptx.cuh with that: sm_90a/decode/ kernel, prompt. Images for Blackwell hold sm_100a/kernel.cuh
   instead. */
#define MEGAVIT_KERNELS
#include "../megavit.h"
#if defined(__CUDA_ARCH_FEAT_SM100_ALL) || defined(__CUDA_ARCH_FEAT_SM103_ALL) || defined(__CUDA_ARCH_FEAT_SM110_ALL)
#include "sm_100a/kernel.cuh"
#else
#include "sm_90a/throughput/gemm_layers.cuh"
#include "sm_90a/siglip_head/gemv.cuh"
#include "sm_90a/throughput/attention_ranges.cuh"
#include "sm_90a/siglip_head/pool_sums.cuh"
#include "sm_90a/siglip_head/pool_tokens.cuh"
#include "sm_90a/patches.cuh"
#include "sm_90a/throughput/rows.cuh"
#include "sm_90a/throughput/mergers.cuh"
#include "sm_90a/throughput/shares.cuh"
#include "sm_90a/throughput/towers.cuh"

static_assert(128 * MGV__COPY_REGISTERS + 128 * MGV__MATH_GROUPS * MGV__MATH_REGISTERS <= MGV__MAX_REGISTERS, "registers of one CTA");
static_assert(128 * MGV__LATENCY_COPY_REGISTERS + 128 * MGV__MATH_GROUPS * MGV__LATENCY_MATH_REGISTERS <= MGV__MAX_REGISTERS,
              "and in the latency regime");

DEVICE uint32_t math_attention(Math &self, const TileSlot &tile) {
    if (mgv__key_block(tile.op.tokens) == MGV__SHORT_KEYS) return attention_tile<MGV__SHORT_KEYS>(self, tile);
    return attention_tile<MGV__MAX_KEYS>(self, tile);
}
template <uint32_t KINDS> DEVICE void math_attention_online(Math &self, const TileSlot &tile) {
    if constexpr (has_wide_heads<KINDS>()) return attention_online_tile<WIDE_REST>(self, tile);
    switch (rest_columns(tile.op)) {
    case 0: attention_online_tile<0>(self, tile); break;
    case 16: attention_online_tile<16>(self, tile); break;
    default: attention_online_tile<32>(self, tile); break;
    }
}
template <uint32_t KINDS> DEVICE void math_attention_ranges(Math &self, const TileSlot &tile) {
    if constexpr (has_wide_heads<KINDS>()) return attention_ranges_tile<WIDE_REST>(self, tile);
    switch (rest_columns(tile.op)) {
    case 0: attention_ranges_tile<0>(self, tile); break;
    case 16: attention_ranges_tile<16>(self, tile); break;
    default: attention_ranges_tile<32>(self, tile); break;
    }
}
DEVICE void math_pool(Math &self, const TileSlot &tile) {
    if (mgv__key_block(tile.op.tokens) == MGV__SHORT_KEYS) pool_tile<MGV__SHORT_KEYS>(self, tile);
    else pool_tile<MGV__MAX_KEYS>(self, tile);
}
template <uint32_t KINDS> DEVICE void math_pool_sums(Math &self, const TileSlot &tile) {
    pool_sums_tile<is_tower<KINDS>(), has_wide_heads<KINDS>()>(self, tile);
}

/* One tile, of a kind that the kernel has code for. What comes next, if that is known by then. Tiles that eight images take stand first,
   and so does their code: -0.4% (kernels/NOTES.md, how much code). */
template <uint32_t KINDS> DEVICE uint32_t math_tile(Math &self, const TileSlot &tile, uint32_t kind) {
    constexpr auto has = [](uint32_t some) { return has_kind<KINDS>(some); };
    constexpr uint32_t flags = is_tower<KINDS>()                  ? FLAGS_OF_TOWER_TILE
                               : has_kind<KINDS>(MGV__KERNEL_ROWS) ? FLAGS_OF_TILE
                                                                   : FLAGS_OF_COMMON_TILE;
    if (is_kind<KINDS, MGV__KERNEL_SPLIT_160>(kind)) {
        split_tile<160>(self, tile);
        return KIND_NOT_KNOWN;
    }
    if (is_kind<KINDS, MGV__KERNEL_ATTENTION>(kind)) return math_attention(self, tile);
    switch (kind) {
    case MGV__KERNEL_GEMM_256: if constexpr (has(MGV__KERNEL_GEMM_256)) gemm_tile<256, flags>(self, tile); break;
    case MGV__KERNEL_PATCHES: if constexpr (has(MGV__KERNEL_PATCHES)) patches_tile(self, tile); break;
    case MGV__KERNEL_ROWS: if constexpr (has(MGV__KERNEL_ROWS)) rows_tile(self, tile); break;
    case MGV__KERNEL_MERGE: if constexpr (has(MGV__KERNEL_MERGE)) merge_tile(self, tile); break;
    case MGV__KERNEL_PROJECT: if constexpr (has(MGV__KERNEL_PROJECT)) project_tile(self, tile); break;
    case MGV__KERNEL_SHARES: if constexpr (has(MGV__KERNEL_SHARES)) shares_tile(self, tile); break;
    case MGV__KERNEL_SPLIT_128: if constexpr (has(MGV__KERNEL_SPLIT_128)) split_tile<128>(self, tile); break;
    case MGV__KERNEL_SPLIT_192: if constexpr (has(MGV__KERNEL_SPLIT_192)) split_tile<192>(self, tile); break;
    case MGV__KERNEL_GEMM_192: if constexpr (has(MGV__KERNEL_GEMM_192)) gemm_tile<192, flags>(self, tile); break;
    case MGV__KERNEL_GEMM_128: if constexpr (has(MGV__KERNEL_GEMM_128)) gemm_tile<128, flags>(self, tile); break;
    case MGV__KERNEL_GEMM_64: if constexpr (has(MGV__KERNEL_GEMM_64)) gemm_tile<64, flags>(self, tile); break;
    case MGV__KERNEL_ATTENTION_ONLINE: if constexpr (has(MGV__KERNEL_ATTENTION_ONLINE)) math_attention_online<KINDS>(self, tile); break;
    case MGV__KERNEL_ATTENTION_RANGES: if constexpr (has(MGV__KERNEL_ATTENTION_RANGES)) math_attention_ranges<KINDS>(self, tile); break;
    case MGV__KERNEL_PATCHES_OF_TOKENS: if constexpr (has(MGV__KERNEL_PATCHES_OF_TOKENS)) patches_of_tokens_tile(self, tile); break;
    case MGV__KERNEL_POOL: if constexpr (has(MGV__KERNEL_POOL)) math_pool(self, tile); break;
    case MGV__KERNEL_POOL_SUMS: if constexpr (has(MGV__KERNEL_POOL_SUMS)) math_pool_sums<KINDS>(self, tile); break;
    case MGV__KERNEL_POOL_TOKENS:
    case MGV__KERNEL_POOL_JOIN:
    case MGV__KERNEL_GEMV: if constexpr (has(MGV__KERNEL_GEMV)) few_rows_tile(self, tile); break;
    }
    return KIND_NOT_KNOWN;
}

template <uint32_t KINDS> DEVICE void math_role(SharedMemory *shared, const mgv__kernel_arguments &arguments, uint32_t group) {
    Math self(shared, arguments, group);
    for (uint32_t kind = KIND_NOT_KNOWN;;) {
        if (kind == KIND_NOT_KNOWN) kind = math_wait_kind(self);
        if (kind == MGV__KERNEL_END) break;
        const TileSlot &tile = shared->slot[self.slot.index];
        if (is_kind<KINDS, MGV__KERNEL_GEMM_256>(kind) && is_layer_tile<KINDS>(tile.op)) {
            kind = layer_tiles<256, KINDS>(self);
            continue;
        }
        if (is_kind<KINDS, MGV__KERNEL_GEMM_192>(kind) && is_layer_tile<KINDS>(tile.op)) {
            kind = layer_tiles<192, KINDS>(self);
            continue;
        }
        self.lane = opaque(self.lane);
        self.warp = opaque(self.warp);
        /* Statistics and rows are read by ordinary loads, which the arrival of copied bytes does not order. */
        if (kind == MGV__KERNEL_POOL || kind == MGV__KERNEL_POOL_SUMS || kind == MGV__KERNEL_ROWS ||
            is_kind<KINDS, MGV__KERNEL_SHARES>(kind) ||
            is_kind<KINDS, MGV__KERNEL_MERGE>(kind) || is_kind<KINDS, MGV__KERNEL_PROJECT>(kind))
            wait_barrier(&shared->tile_ready[self.slot.index], self.slot.parity);
        const uint32_t next = math_tile<KINDS>(self, tile, kind);
        math_leave_tile(self);
        kind = is_tower<KINDS>() ? (uint32_t)KIND_NOT_KNOWN : next; /* for which it has no register beside all kinds of tiles */
    }
}

template <uint32_t KINDS> DEVICE void throughput_kernel(SharedMemory *shared, const mgv__kernel_arguments &arguments) {
    const uint32_t warp = threadIdx.x / 32;
    Watchdog dog(arguments);
    if (threadIdx.x == 0) {
        shared_memory_init(shared);
        if (shared_address(shared) % 1024) watchdog_abort(dog, MGV__WAIT_ALIGNMENT, 0, 0, shared_address(shared), 1024);
    }
    bar_sync_all();
    barrier_cluster_arrive_relaxed();
    barrier_cluster_wait_acquire();

    if (warp < 4) {
        setmaxnreg_dec<MGV__COPY_REGISTERS>();
        if (warp == 0) loader_role<KINDS>(shared, arguments);
        if (warp == SCHEDULER_WARP) {
            scheduler_role<is_tower<KINDS>()>(shared, arguments, dog);
            if (dog.aborted && threadIdx.x % 32 == 0) release_roles(shared, MGV__CLUSTER);
        }
        if (warp >= 2) storer_role<KINDS>(shared, arguments, warp - 2);
    } else {
        setmaxnreg_inc<MGV__MATH_REGISTERS>();
        math_role<KINDS>(shared, arguments, warp / 4 - 1);
    }

    leave_role(shared, warp);
    wait_for_cluster(dog);
}

extern "C" __global__ void __launch_bounds__(MGV__KERNEL_THREADS, 1)
    megavit_encode_sm_90a(const __grid_constant__ mgv__kernel_arguments arguments) {
    extern __shared__ __align__(1024) uint8_t shared_bytes[];
    throughput_kernel<MGV__KINDS_ALL>((SharedMemory *)shared_bytes, arguments);
}
extern "C" __global__ void __launch_bounds__(MGV__KERNEL_THREADS, 1)
    megavit_encode_tower_sm_90a(const __grid_constant__ mgv__kernel_arguments arguments) {
    extern __shared__ __align__(1024) uint8_t shared_bytes[];
    throughput_kernel<MGV__KINDS_TOWER>((SharedMemory *)shared_bytes, arguments);
}
extern "C" __global__ void __launch_bounds__(MGV__KERNEL_THREADS, 1)
    megavit_encode_wide_sm_90a(const __grid_constant__ mgv__kernel_arguments arguments) {
    extern __shared__ __align__(1024) uint8_t shared_bytes[];
    throughput_kernel<MGV__KINDS_WIDE>((SharedMemory *)shared_bytes, arguments);
}
/* The less code a kernel has, the nearer it lies: few images have kernels with no more than they take. The host chooses (mgv__kernels). */
extern "C" __global__ void __launch_bounds__(MGV__KERNEL_THREADS, 1)
    megavit_encode_some_sm_90a(const __grid_constant__ mgv__kernel_arguments arguments) {
    extern __shared__ __align__(1024) uint8_t shared_bytes[];
    throughput_kernel<MGV__KINDS_SOME>((SharedMemory *)shared_bytes, arguments);
}
extern "C" __global__ void __launch_bounds__(MGV__KERNEL_THREADS, 1)
    megavit_encode_few_sm_90a(const __grid_constant__ mgv__kernel_arguments arguments) {
    extern __shared__ __align__(1024) uint8_t shared_bytes[];
    throughput_kernel<MGV__KINDS_FEW>((SharedMemory *)shared_bytes, arguments);
}

#include "sm_90a/latency/kernels.cuh"
#ifdef __CUDACC__ /* the machine model has it in a file of its own */
#include "sm_90a/decode/prompt.cuh"
#endif

/* What the host checks before it trusts this file. */
extern "C" __device__ uint32_t megavit_description[5] = {MGV__KERNEL_VERSION, sizeof(SharedMemory), sizeof(mgv__kernel_arguments),
                                                         MGV__KERNEL_THREADS, sizeof(LatencyMemory)};
#endif
