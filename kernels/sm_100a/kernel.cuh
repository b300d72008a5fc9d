/* megavit: the persistent kernels on Blackwell (sm_100a, sm_103a, sm_110a): the roles of megavit.cu, with math tiles through tensor memory.
   One has tensor-core instructions of single CTAs throughout. In the other the layers' products and attention are of pairs of CTAs, and
   everything else is Hopper's tiles with products by warps (warps.cuh). They have run on the machine model only.

   Next, by what it may give: a warp that only starts products, where now one of a math group does between chunks of a tile's end, and
   threads of both groups in attention. Scores of attention's next block beside this one's values, in other columns. Six stages of 32 KB in
   pairs, instead of four of 48. MXFP8 in tiles of 256 columns, whose sums overlap. The pooling head of 209 to 256 tokens in pairs, for
   whose scores threads have no registers: there math warps have 224, as on Hopper. */
#ifndef MGV_BLACKWELL_KERNEL_CUH
#define MGV_BLACKWELL_KERNEL_CUH

#include "pool.cuh"
#include "rows128.cuh"
#include "pair_attention.cuh"
#include "../sm_90a/siglip_head/pool_tokens.cuh"
#include "../sm_90a/patches.cuh"
#include "../sm_90a/throughput/rows.cuh"

static_assert(128 * MGV__SM100_COPY_REGISTERS + 128 * MGV__MATH_GROUPS * MGV__SM100_MATH_REGISTERS <= MGV__MAX_REGISTERS &&
              128 * MGV__COPY_REGISTERS + 128 * MGV__MATH_GROUPS * MGV__MATH_REGISTERS <= MGV__MAX_REGISTERS, "registers of one CTA");
enum { TENSOR_WARP = 4 /* which allocates tensor memory: the first math warp */ };

/* Tiles beside the layers' products. PAIR: by warps. */
template <int COLUMNS, bool PAIR> ROUTINE void tensor_gemm_tile(TensorMath &self, const TileSlot &tile) {
    const uint32_t half = tile.op.flags & MGV__KERNEL_HALF;
    float acc[COLUMNS / 2];
    if constexpr (!PAIR) tensor_mainloop<COLUMNS>(self, tile, half ? FORMAT_F16 : FORMAT_BF16, acc);
    else if (half) gemm_mainloop<COLUMNS, true>(self, tile, acc);
    else gemm_mainloop<COLUMNS>(self, tile, acc);
    if constexpr (COLUMNS == 64) {
        if (tile.op.flags & MGV__KERNEL_FLOAT_OUT) {
            gemm_epilogue_float(self, tile, acc);
            return;
        }
    }
    if (half) gemm_epilogue<COLUMNS, FLAGS_OF_HALF_TILE>(self, tile, acc);
    else gemm_epilogue<COLUMNS, FLAGS_OF_TILE>(self, tile, acc);
}

DEVICE void tensor_attention(TensorMath &self, const TileSlot &tile) {
    if (mgv__key_block(tile.op.tokens) == MGV__SHORT_KEYS) tensor_attention_tile<MGV__SHORT_KEYS>(self, tile);
    else tensor_attention_tile<MGV__MAX_KEYS>(self, tile);
}
DEVICE void tensor_attention_online(TensorMath &self, const TileSlot &tile) {
    switch (rest_columns(tile.op)) {
    case 0: tensor_online_tile<0>(self, tile); break;
    case 16: tensor_online_tile<16>(self, tile); break;
    default: tensor_online_tile<32>(self, tile); break;
    }
}
template <bool PAIR> DEVICE void tensor_pool(TensorMath &self, const TileSlot &tile) {
    if constexpr (PAIR) warps_pool_tile<MGV__SHORT_KEYS>(self, tile);
    else if (mgv__key_block(tile.op.tokens) == MGV__SHORT_KEYS) tensor_pool_tile<MGV__SHORT_KEYS>(self, tile);
    else tensor_pool_tile<MGV__MAX_KEYS>(self, tile);
}
template <bool PAIR> DEVICE void tensor_pool_sums(TensorMath &self, const TileSlot &tile) {
    if constexpr (PAIR) pool_sums_tile<false, false>(self, tile);
    else tensor_pool_sums_tile(self, tile);
}

template <bool PAIR> DEVICE void tensor_tile(TensorMath &self, const TileSlot &tile, uint32_t kind) {
    switch (kind) {
    case MGV__KERNEL_GEMM_256: whole_tile<256, false, PAIR>(self, tile); break;
    case MGV__KERNEL_GEMM_192:
        if (tile.op.flags & MGV__KERNEL_MX) whole_tile<192, true, PAIR>(self, tile);
        else whole_tile<192, false, PAIR>(self, tile);
        break;
    case MGV__KERNEL_GEMM_128:
        if (tile.op.flags & MGV__KERNEL_WHOLE) whole_tile<128, false, PAIR>(self, tile);
        else tensor_gemm_tile<128, PAIR>(self, tile);
        break;
    case MGV__KERNEL_GEMM_64:
        if (tile.op.flags & MGV__KERNEL_WHOLE) whole_tile<64, false, PAIR>(self, tile);
        else tensor_gemm_tile<64, PAIR>(self, tile);
        break;
    case MGV__KERNEL_ATTENTION:
        if constexpr (PAIR) pair_attention_tile<64>(self, tile);
        else tensor_attention(self, tile);
        break;
    case MGV__KERNEL_ATTENTION_ONLINE:
        if constexpr (!PAIR) tensor_attention_online(self, tile);
        else if (rest_columns(tile.op)) pair_attention_tile<96>(self, tile);
        else pair_attention_tile<64>(self, tile);
        break;
    case MGV__KERNEL_POOL: tensor_pool<PAIR>(self, tile); break;
    case MGV__KERNEL_POOL_SUMS: tensor_pool_sums<PAIR>(self, tile); break;
    case MGV__KERNEL_PATCHES: patches_tile(self, tile); break;
    case MGV__KERNEL_ROWS: rows_tile(self, tile); break;
    case MGV__KERNEL_POOL_TOKENS:
    case MGV__KERNEL_POOL_JOIN:
    case MGV__KERNEL_GEMV: few_rows_tile(self, tile); break;
    }
}

/* What a thread knows of itself and of the CTA, found anew for each tile: from tile to tile there are no registers to keep it. */
DEVICE void tensor_find_self(TensorMath &self) {
    const uint32_t thread = opaque(threadIdx.x);
    self.thread = thread % 128;
    self.warp = thread % 128 / 32;
    self.lane = thread % 32;
    self.group = thread / 128 - 1;
    self.cta = cluster_ctarank();
    self.peer_empty = mapa_shared_cluster(shared_address(&self.shared->stage_empty[0]), self.cta ^ 1);
    self.own = tensor_address(shared_load_u32(shared_address(&((const BlackwellMemory *)self.shared)->tensor_memory)), self.warp * 32,
                              self.group * TENSOR_GROUP_COLUMNS);
}

/* What keep_place keeps. */
DEVICE void find_place(TensorMath &self) {
    const uint32_t place = ((const BlackwellMemory *)self.shared)->place[opaque(threadIdx.x) / 32 - 4];
    warp_sync(); /* the next one lies in its place */
    self.slot.index = place & 0xFF;
    self.slot.parity = place >> 8 & 1;
    self.turn = place >> 9 & 1;
    self.parities = place >> 10;
}

template <bool PAIR> ROUTINE void tensor_math_role(BlackwellMemory *memory, const mgv__kernel_arguments &arguments, uint32_t group) {
    TensorMath self(memory, arguments, group);
    for (;;) {
        const uint32_t kind = math_wait_kind(self);
        if (kind == MGV__KERNEL_END) break;
        const TileSlot &tile = memory->shared.slot[self.slot.index];
        tensor_find_self(self);
        /* Statistics and rows are read by ordinary loads, which the arrival of copied bytes does not order. */
        if (kind == MGV__KERNEL_POOL || kind == MGV__KERNEL_POOL_SUMS || kind == MGV__KERNEL_ROWS)
            wait_barrier(&memory->shared.tile_ready[self.slot.index], self.slot.parity);
        if (!(tile.op.flags & MGV__KERNEL_WHOLE)) self.parities &= ~(1u << SUMS_PLACE | 1u << GROUPS_MET);
        if (PAIR && !(tile.op.flags & MGV__KERNEL_WHOLE)) keep_place(self);
        tensor_tile<PAIR>(self, tile, kind);
        if (PAIR) find_place(self);
        math_leave_tile(self);
    }
}

DEVICE void blackwell_memory_init(BlackwellMemory *memory) {
    for (int g = 0; g < MGV__MATH_GROUPS; g++) {
        for (int i = 0; i < MGV__STAGES; i++) mbarrier_init(shared_address(&memory->shared.multiplied[g][i]), 1);
        mbarrier_init(shared_address(&memory->shared.done[g]), 1);
    }
    for (int i = 0; i < 2; i++) mbarrier_init(shared_address(&memory->shared.sums_read[i]), 1);
    for (int g = 0; g < MGV__MATH_GROUPS; g++) {
        mbarrier_init(shared_address(&memory->shared.attended[g]), 1);
        mbarrier_init(shared_address(&memory->shared.weights_written[g]), PAIR_WARPS);
        mbarrier_init(shared_address(&memory->shared.results_read[g]), PAIR_WARPS);
    }
    memory->ahead = 0;
    shared_memory_init(&memory->shared); /* with the fences */
}

/* By a warp. Nobody allocates but this kernel, one CTA of which has a multiprocessor: all columns are free, or will be when the one before
   has ended. PAIR: by one of each CTA, which wait for each other. */
template <bool PAIR> DEVICE void take_tensor_memory(BlackwellMemory *memory) {
    const uint32_t to = shared_address(&memory->tensor_memory);
    if constexpr (PAIR) {
        tcgen05_alloc_pair(to, TENSOR_COLUMNS);
        tcgen05_relinquish_alloc_permit_pair();
    } else {
        tcgen05_alloc(to, TENSOR_COLUMNS);
        tcgen05_relinquish_alloc_permit();
    }
}
template <bool PAIR> DEVICE void leave_tensor_memory(const BlackwellMemory *memory) {
    const uint32_t address = shared_load_u32(shared_address(&memory->tensor_memory));
    if constexpr (PAIR) tcgen05_dealloc_pair(address, TENSOR_COLUMNS);
    else tcgen05_dealloc(address, TENSOR_COLUMNS);
}

template <uint32_t KINDS> DEVICE void blackwell_kernel(BlackwellMemory *memory, const mgv__kernel_arguments &arguments) {
    const uint32_t warp = threadIdx.x / 32;
    SharedMemory *const shared = &memory->shared;
    Watchdog dog(arguments);
    if (threadIdx.x == 0) {
        blackwell_memory_init(memory);
        if (shared_address(shared) % 1024) watchdog_abort(dog, MGV__WAIT_ALIGNMENT, 0, 0, shared_address(shared), 1024);
    }
    if (warp == TENSOR_WARP) {
        take_tensor_memory<is_pairs<KINDS>()>(memory);
        tcgen05_fence_before_thread_sync();
    }
    bar_sync_all();
    tcgen05_fence_after_thread_sync();
    barrier_cluster_arrive_relaxed();
    barrier_cluster_wait_acquire();

    if (warp < 4) {
        setmaxnreg_dec<is_pairs<KINDS>() ? MGV__COPY_REGISTERS : MGV__SM100_COPY_REGISTERS>();
        if (warp == 0) loader_role<KINDS>(shared, arguments);
        if (warp == SCHEDULER_WARP) {
            scheduler_role(shared, arguments, dog);
            if (dog.aborted && threadIdx.x % 32 == 0) release_roles(shared, MGV__CLUSTER);
        }
        if (warp >= 2) storer_role<KINDS>(shared, arguments, warp - 2);
    } else {
        setmaxnreg_inc<is_pairs<KINDS>() ? MGV__MATH_REGISTERS : MGV__SM100_MATH_REGISTERS>();
        tensor_math_role<is_pairs<KINDS>()>(memory, arguments, warp / 4 - 1);
    }

    leave_role(shared, warp);
    wait_for_cluster(dog);
    if (warp == TENSOR_WARP) leave_tensor_memory<is_pairs<KINDS>()>(memory);
}

extern "C" __global__ void __launch_bounds__(MGV__KERNEL_THREADS, 1)
    megavit_encode_sm_100a(const __grid_constant__ mgv__kernel_arguments arguments) {
    extern __shared__ __align__(1024) uint8_t shared_bytes[];
    blackwell_kernel<MGV__KINDS_ALL>((BlackwellMemory *)shared_bytes, arguments);
}
extern "C" __global__ void __launch_bounds__(MGV__KERNEL_THREADS, 1)
    megavit_encode_pairs_sm_100a(const __grid_constant__ mgv__kernel_arguments arguments) {
    extern __shared__ __align__(1024) uint8_t shared_bytes[];
    blackwell_kernel<MGV__KINDS_PAIRS>((BlackwellMemory *)shared_bytes, arguments);
}

/* What the host checks before it trusts this file. */
extern "C" __device__ uint32_t megavit_description[5] = {MGV__KERNEL_VERSION, sizeof(BlackwellMemory), sizeof(mgv__kernel_arguments),
                                                         MGV__KERNEL_THREADS, 0};

#endif /* MGV_BLACKWELL_KERNEL_CUH */
