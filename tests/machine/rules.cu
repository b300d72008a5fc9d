/* Loads a tile, multiplies it with itself, counts in global memory. Two clusters of two CTAs. Where `fault` says so, somebody misuses one
   instruction. */
#include "../../kernels/ptx.cuh"
#include "rules.h"

struct RulesShared {
    uint8_t tile[64 * 128];
    uint64_t full, late, unused;
};

#define FAULT(name) (arguments.fault == RULES_FAULT_##name)

DEVICE void pause(void) {
    for (int i = 0; i < 200; i++) nanosleep(1000);
}

/* By one thread, on its own. */
DEVICE void misuse(const RulesArguments &arguments, RulesShared *shared) {
    const uint32_t full = shared_address(&shared->full), tile = shared_address(shared->tile), peer = cluster_ctarank() ^ 1;
    uint32_t local = 0;
    if (FAULT(store_to_ended_cta) && peer) {
        pause();
        st_shared_cluster_u32(mapa_shared_cluster(tile, peer), 1);
    }
    if (FAULT(copy_to_ended_cta) && peer) {
        pause();
        cp_async_bulk_load(mapa_shared_cluster(tile, peer), arguments.tile, 16, mapa_shared_cluster(full, peer));
    }
    if (FAULT(too_many_copies)) {
        mbarrier_expect_tx(full, 700 * 16);
        for (uint32_t i = 0; i < 700; i++) cp_async_bulk_load(tile + i % 200 * 16, arguments.tile, 16, full);
    }
    if (FAULT(mbarrier_never_initialised)) mbarrier_arrive(shared_address(&shared->unused));
    if (FAULT(mbarrier_parity_2)) mbarrier_try_wait_parity(full, 2);
    if (FAULT(mbarrier_of_other_cta)) mbarrier_arrive(mapa_shared_cluster(full, peer));
    if (FAULT(mbarrier_bytes_2_to_20)) mbarrier_expect_tx(full, 1 << 20);
    if (FAULT(atomic_misaligned)) red_release_gpu_add((uint32_t *)((uint8_t *)arguments.words + 2), 1);
    if (FAULT(bulk_of_24_bytes)) {
        mbarrier_expect_tx(full, 24);
        cp_async_bulk_load(tile, arguments.tile, 24, full);
    }
    if (FAULT(address_of_no_cta)) mbarrier_arrive(full | 7u << 24);
    if (FAULT(pointer_into_other_cluster)) *(volatile uint32_t *)(shared->tile + (blockIdx.x < 2 ? 2 : -2) * 256 * 1024) = 1;
    if (FAULT(atomic_on_a_local_variable)) red_release_gpu_add(&local, 1);
    if (FAULT(rank_2_of_2)) mapa_shared_cluster(tile, 2);
    if (FAULT(tile_beyond_shared)) cp_async_bulk_tensor_3d_load(tile + 1024, &arguments.map, 0, 0, 0, full);
    if (FAULT(map_misaligned)) cp_async_bulk_tensor_3d_load(tile, (const CUtensorMap *)(arguments.shifted_map + 16), 0, 0, 0, full);
    if (FAULT(store_before_the_tensor)) cp_async_bulk_tensor_3d_store(&arguments.map, 0, -1, 0, tile);
    if (FAULT(reduce_of_bytes)) cp_reduce_async_bulk_tensor_3d_add(&arguments.bytes_map, 0, 0, 0, tile);
    if (FAULT(atomic_uninitialised)) red_release_gpu_add(arguments.unwritten, 1);
    if (FAULT(exit_while_copy_reads)) {
        fence_proxy_async_shared_cta();
        cp_async_bulk_tensor_3d_store(&arguments.map, 0, 0, 0, tile);
        cp_async_bulk_commit_group();
    }
}

DEVICE uint64_t tile_descriptor(uint32_t tile) { return 0x4000004000010000ull | ((tile & 0x3FFFF) >> 4); }

/* By the warpgroup. */
DEVICE void multiply_tile(const RulesArguments &arguments, RulesShared *shared) {
    const uint64_t descriptor = tile_descriptor(shared_address(shared->tile));
    float acc[32];
    wgmma_registers_zero(acc);
    wgmma_registers_fence(acc);
    wgmma_fence();
    wgmma_m64k16_bf16_ss(acc, descriptor, descriptor + (FAULT(wgmma_descriptors_differ) && threadIdx.x == 70 ? 2 : 0), 1);
    wgmma_commit_group();
    if (FAULT(wgmma_wait_group_8)) wgmma_wait_group<8>();
    if (!FAULT(wgmma_not_waited_for)) wgmma_wait_group<0>();
    if (FAULT(wgmma_of_264_columns)) {
        float wide[132];
        wgmma_registers_zero(wide);
        wgmma_fence();
        wgmma_m64k16_bf16_ss(wide, descriptor, descriptor, 1);
    }
}

extern "C" __global__ void __launch_bounds__(RULES_THREADS, 1) rules_kernel(const __grid_constant__ RulesArguments arguments) {
    extern __shared__ __align__(1024) uint8_t shared_bytes[];
    RulesShared *shared = (RulesShared *)shared_bytes;
    const uint32_t full = shared_address(&shared->full), late = shared_address(&shared->late), lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        fence_mbarrier_init_release_cluster();
    }
    bar_sync_all();
    barrier_cluster_arrive_release();
    if (FAULT(cluster_barrier_twice)) barrier_cluster_arrive_release();
    barrier_cluster_wait_acquire();
    if ((FAULT(store_to_ended_cta) || FAULT(copy_to_ended_cta)) && cluster_ctarank() == 1) return;

    if (threadIdx.x == 0) {
        mbarrier_arrive_expect_tx(full, 64 * 128);
        cp_async_bulk_tensor_3d_load(shared_address(shared->tile), &arguments.map, 0, 0, 0, full);
        red_release_gpu_add(arguments.words, 1);
        if (FAULT(mbarrier_used_unordered)) mbarrier_init(late, 1);
    }
    while (!mbarrier_try_wait_parity(full, 0)) {
    }
    if (FAULT(mbarrier_used_unordered) && threadIdx.x == 32) {
        pause();
        mbarrier_arrive(late);
    }
    if (threadIdx.x < 128) multiply_tile(arguments, shared);
    else if (FAULT(wgmma_by_the_fifth_warp)) multiply_tile(arguments, shared);
    if (FAULT(registers_20)) setmaxnreg_dec<20>();
    if (FAULT(named_barrier_16)) bar_sync(16, 32);
    if (FAULT(lane_with_an_instruction_more) && lane == 3) wgmma_fence();
    warp_sync();
    if (FAULT(mbarrier_two_lanes_for_one) && threadIdx.x < 2) mbarrier_arrive(full);
    if (threadIdx.x == 0) misuse(arguments, shared);
    if (FAULT(store_to_ended_cta) || FAULT(copy_to_ended_cta)) return;
    barrier_cluster_arrive_release();
    barrier_cluster_wait_acquire();
    if (!FAULT(warp_sync_with_ended_lane)) return;
    if (lane == 5) return;
    pause();
    warp_sync();
}
