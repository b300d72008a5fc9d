/* megavit: the persistent kernel on Blackwell (sm_100a, sm_103a, sm_110a): the roles of megavit.cu, with math tiles through tensor memory.
   It has run on the machine model only. */
#ifndef MGV_BLACKWELL_KERNEL_CUH
#define MGV_BLACKWELL_KERNEL_CUH

#include "pool.cuh"
#include "rows128.cuh"
#include "../sm_90a/siglip_head/pool_tokens.cuh"
#include "../sm_90a/patches.cuh"
#include "../sm_90a/throughput/rows.cuh"

static_assert(128 * MGV__SM100_COPY_REGISTERS + 128 * MGV__MATH_GROUPS * MGV__SM100_MATH_REGISTERS <= MGV__MAX_REGISTERS,
              "registers of one CTA");
enum { TENSOR_WARP = 4 /* which allocates tensor memory: the first math warp */ };

template <int COLUMNS> DEVICE void tensor_gemm_tile(TensorMath &self, const TileSlot &tile) {
    float acc[COLUMNS / 2];
    tensor_mainloop<COLUMNS>(self, tile, tile.op.flags & MGV__KERNEL_HALF ? FORMAT_F16 : FORMAT_BF16, acc);
    if constexpr (COLUMNS == 64) {
        if (tile.op.flags & MGV__KERNEL_FLOAT_OUT) {
            gemm_epilogue_float(self, tile, acc);
            return;
        }
    }
    if (tile.op.flags & MGV__KERNEL_HALF) gemm_epilogue<COLUMNS, FLAGS_OF_HALF_TILE>(self, tile, acc);
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
DEVICE void tensor_pool(TensorMath &self, const TileSlot &tile) {
    if (mgv__key_block(tile.op.tokens) == MGV__SHORT_KEYS) tensor_pool_tile<MGV__SHORT_KEYS>(self, tile);
    else tensor_pool_tile<MGV__MAX_KEYS>(self, tile);
}

DEVICE void tensor_tile(TensorMath &self, const TileSlot &tile, uint32_t kind) {
    switch (kind) {
    case MGV__KERNEL_GEMM_256: whole_tile<256, false>(self, tile); break;
    case MGV__KERNEL_GEMM_192:
        if (tile.op.flags & MGV__KERNEL_MX) whole_tile<192, true>(self, tile);
        else whole_tile<192, false>(self, tile);
        break;
    case MGV__KERNEL_GEMM_128:
        if (tile.op.flags & MGV__KERNEL_WHOLE) whole_tile<128, false>(self, tile);
        else tensor_gemm_tile<128>(self, tile);
        break;
    case MGV__KERNEL_GEMM_64:
        if (tile.op.flags & MGV__KERNEL_WHOLE) whole_tile<64, false>(self, tile);
        else tensor_gemm_tile<64>(self, tile);
        break;
    case MGV__KERNEL_ATTENTION: tensor_attention(self, tile); break;
    case MGV__KERNEL_ATTENTION_ONLINE: tensor_attention_online(self, tile); break;
    case MGV__KERNEL_POOL: tensor_pool(self, tile); break;
    case MGV__KERNEL_POOL_SUMS: tensor_pool_sums_tile(self, tile); break;
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
    self.own = tensor_address(shared_load_u32(shared_address(((const BlackwellMemory *)self.shared)->tensor_memory)), self.warp * 32,
                              self.group * TENSOR_GROUP_COLUMNS);
}

DEVICE void tensor_math_role(BlackwellMemory *memory, const mgv__kernel_arguments &arguments, uint32_t group) {
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
        tensor_tile(self, tile, kind);
        math_leave_tile(self);
    }
}

DEVICE void blackwell_memory_init(BlackwellMemory *memory) {
    for (int g = 0; g < MGV__MATH_GROUPS; g++) {
        for (int i = 0; i < MGV__STAGES; i++) mbarrier_init(shared_address(&memory->shared.multiplied[g][i]), 1);
        mbarrier_init(shared_address(&memory->shared.done[g]), 1);
    }
    shared_memory_init(&memory->shared); /* with the fences */
}

/* Nobody allocates but this kernel, one CTA of which has a multiprocessor: all columns are free, or will be when the one before has
   ended. */
DEVICE void blackwell_kernel(BlackwellMemory *memory, const mgv__kernel_arguments &arguments) {
    const uint32_t warp = threadIdx.x / 32;
    SharedMemory *const shared = &memory->shared;
    Watchdog dog(arguments);
    if (threadIdx.x == 0) {
        blackwell_memory_init(memory);
        if (shared_address(shared) % 1024) watchdog_abort(dog, MGV__WAIT_ALIGNMENT, 0, 0, shared_address(shared), 1024);
    }
    if (warp == TENSOR_WARP) {
        tcgen05_alloc(shared_address(memory->tensor_memory), TENSOR_COLUMNS);
        tcgen05_relinquish_alloc_permit();
        tcgen05_fence_before_thread_sync();
    }
    bar_sync_all();
    tcgen05_fence_after_thread_sync();
    barrier_cluster_arrive_relaxed();
    barrier_cluster_wait_acquire();

    if (warp < 4) {
        setmaxnreg_dec<MGV__SM100_COPY_REGISTERS>();
        if (warp == 0) loader_role<MGV__KINDS_ALL>(shared, arguments);
        if (warp == SCHEDULER_WARP) {
            scheduler_role(shared, arguments, dog);
            if (dog.aborted && threadIdx.x % 32 == 0) release_roles(shared, MGV__CLUSTER);
        }
        if (warp >= 2) storer_role<MGV__KINDS_ALL>(shared, arguments, warp - 2);
    } else {
        setmaxnreg_inc<MGV__SM100_MATH_REGISTERS>();
        tensor_math_role(memory, arguments, warp / 4 - 1);
    }

    leave_role(shared, warp);
    wait_for_cluster(dog);
    if (warp == TENSOR_WARP) tcgen05_dealloc(shared_load_u32(shared_address(memory->tensor_memory)), TENSOR_COLUMNS);
}

extern "C" __global__ void __launch_bounds__(MGV__KERNEL_THREADS, 1)
    megavit_encode_sm_100a(const __grid_constant__ mgv__kernel_arguments arguments) {
    extern __shared__ __align__(1024) uint8_t shared_bytes[];
    blackwell_kernel((BlackwellMemory *)shared_bytes, arguments);
}

/* What the host checks before it trusts this file. */
extern "C" __device__ uint32_t megavit_description[5] = {MGV__KERNEL_VERSION, sizeof(BlackwellMemory), sizeof(mgv__kernel_arguments),
                                                         MGV__KERNEL_THREADS, 0};

#endif /* MGV_BLACKWELL_KERNEL_CUH */
