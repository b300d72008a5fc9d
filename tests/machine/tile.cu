/* Products and copies as they are told: tile.h. */
#include "../../kernels/ptx.cuh"
#include "tile.h"

struct TileShared {
    uint8_t image[TILE_IMAGE];
    uint64_t done;
    uint32_t tensor_memory;
};
static_assert(sizeof(TileShared) <= TILE_SHARED, "it fits");

enum { TILE_PATIENCE = 1000000 }; /* polls: a product that never ends shows in the sums */

DEVICE void tile_wait(uint32_t done, uint32_t phase) {
    for (int poll = 0; poll < TILE_PATIENCE && !mbarrier_try_wait_parity(done, phase & 1); poll++) {
    }
    tcgen05_fence_after_thread_sync();
}

/* Of a pair, by its first CTA, and by the other one what is told of that: a kernel has instructions for one CTA or for two. */
DEVICE void tile_pair_steps(const TileArguments &arguments, uint32_t image, uint32_t tensor_memory, uint32_t done) {
    uint32_t phase = 0;
    for (uint32_t i = 0; i < arguments.count; i++) {
        const TileStep &s = arguments.step[i];
        const uint64_t at = (image & 0x3FFFF) >> 4, a = s.a + at, b = s.b + at;
        const uint32_t d = tensor_memory + s.d, a_scales = tensor_memory + s.a_scales, b_scales = tensor_memory + s.b_scales;
        const bool leads = cluster_ctarank() == 0;
        if (s.what == TILE_WAIT) {
            if (leads) tcgen05_commit_pair(done, 3);
            tile_wait(done, phase++);
        } else if (!leads) continue;
        else if (s.what == TILE_COPY) tcgen05_cp_32x128b_warpx4_pair(d, a);
        else if (s.kind == TILE_MX) tcgen05_mma_mxf8f6f4_ss_pair(d, a, b, s.word, a_scales, b_scales, s.accumulate);
        else if (s.a_in_tensor_memory) tcgen05_mma_f16_ts_pair(d, tensor_memory + (uint32_t)s.a, b, s.word, s.accumulate);
        else tcgen05_mma_f16_ss_pair(d, a, b, s.word, s.accumulate);
    }
}
DEVICE void tile_steps(const TileArguments &arguments, uint32_t image, uint32_t tensor_memory, uint32_t done) {
    uint32_t phase = 0;
    for (uint32_t i = 0; i < arguments.count; i++) {
        const TileStep &s = arguments.step[i];
        const uint64_t at = (image & 0x3FFFF) >> 4, a = s.a + at, b = s.b + at;
        const uint32_t d = tensor_memory + s.d, a_scales = tensor_memory + s.a_scales, b_scales = tensor_memory + s.b_scales;
        if (s.what == TILE_COPY) tcgen05_cp_32x128b_warpx4(d, a);
        else if (s.what == TILE_WAIT) {
            tcgen05_commit(done);
            tile_wait(done, phase++);
        } else if (s.kind == TILE_MX) tcgen05_mma_mxf8f6f4_ss(d, a, b, s.word, a_scales, b_scales, s.accumulate);
        else if (s.kind == TILE_F8) tcgen05_mma_f8f6f4_ss(d, a, b, s.word, s.accumulate);
        else if (s.a_in_tensor_memory) tcgen05_mma_f16_ts(d, tensor_memory + (uint32_t)s.a, b, s.word, s.accumulate);
        else tcgen05_mma_f16_ss(d, a, b, s.word, s.accumulate);
    }
}

/* Registers of all threads to 16 lanes a warp, or from there and, 32x32b, to columns of their own. mine: the first of the warp's lanes. */
DEVICE void tile_move(const TileStep &s, uint32_t mine, uint32_t thread) {
    uint32_t r[16];
    for (uint32_t i = 0; i < 16; i++) r[i] = 0x5A000000 | thread << 8 | i;
    if (s.what == TILE_STORE) tcgen05_st_16x128b(mine + s.d, r[0], r[1], r[2], r[3]);
    else {
        if (s.what == TILE_LOAD_8) tcgen05_ld_16x256b(r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7], mine + s.d);
        else tcgen05_ld_16x256b(r, mine + s.d);
        tcgen05_wait_ld();
        tcgen05_st_32x32b(mine + s.a_in_tensor_memory, r);
    }
    tcgen05_wait_st();
}

template <bool PAIR> DEVICE void tile_sync(void) {
    tcgen05_fence_before_thread_sync();
    if constexpr (PAIR) {
        barrier_cluster_arrive_release();
        barrier_cluster_wait_acquire();
    } else bar_sync_all();
    tcgen05_fence_after_thread_sync();
}

template <bool PAIR> DEVICE void tile_body(const TileArguments &arguments, uint8_t *shared_bytes) {
    TileShared *shared = (TileShared *)shared_bytes;
    const uint32_t thread = threadIdx.x, warp = thread / 32, done = shared_address(&shared->done), rank = PAIR ? cluster_ctarank() : 0;
    const uint32_t *image = arguments.image + rank * (TILE_IMAGE / 4), *before = arguments.before + rank * TILE_WORDS;
    uint32_t *after = arguments.after + rank * TILE_WORDS;
    if (thread == 0) {
        mbarrier_init(done, 1);
        fence_mbarrier_init_release_cluster();
    }
    for (uint32_t i = thread; i < TILE_IMAGE / 4; i += TILE_THREADS) ((uint32_t *)shared->image)[i] = image[i];
    fence_proxy_async_shared_cta();
    if (warp == 0) {
        if constexpr (PAIR) {
            tcgen05_alloc_pair(shared_address(&shared->tensor_memory), 512);
            tcgen05_relinquish_alloc_permit_pair();
        } else {
            tcgen05_alloc(shared_address(&shared->tensor_memory), 512);
            tcgen05_relinquish_alloc_permit();
        }
    }
    bar_sync_all();
    const uint32_t tensor_memory = shared_load_u32(shared_address(&shared->tensor_memory)), mine = tensor_memory + (warp * 32 << 16);
    uint32_t r[32];
    for (uint32_t c = 0; c < 512; c += 32) {
        for (uint32_t i = 0; i < 32; i++) r[i] = before[thread * 512 + c + i];
        tcgen05_st_32x32b(mine + c, r);
    }
    tcgen05_wait_st();
    tile_sync<PAIR>();
    if constexpr (PAIR) {
        if (thread == 0) tile_pair_steps(arguments, shared_address(shared->image), tensor_memory, done);
    } else if (arguments.step[0].what >= TILE_STORE) tile_move(arguments.step[0], mine, thread);
    else if (thread == 0) tile_steps(arguments, shared_address(shared->image), tensor_memory, done); /* ends with a wait */
    tile_sync<PAIR>();
    for (uint32_t c = 0; c < 512; c += 32) {
        tcgen05_ld_32x32b(r, mine + c);
        tcgen05_wait_ld();
        for (uint32_t i = 0; i < 32; i++) after[thread * 512 + c + i] = r[i];
    }
    tile_sync<PAIR>();
    if constexpr (PAIR) {
        if (warp == 0) tcgen05_dealloc_pair(tensor_memory, 512);
    } else if (warp == 0) tcgen05_dealloc(tensor_memory, 512);
}

extern "C" __global__ void __launch_bounds__(TILE_THREADS, 1) tile_kernel(const __grid_constant__ TileArguments arguments) {
    extern __shared__ __align__(1024) uint8_t shared_bytes[];
    tile_body<false>(arguments, shared_bytes);
}
extern "C" __global__ void __launch_bounds__(TILE_THREADS, 1) tile_pair_kernel(const __grid_constant__ TileArguments arguments) {
    extern __shared__ __align__(1024) uint8_t shared_bytes[];
    tile_body<true>(arguments, shared_bytes);
}
