/* C = A B^T by cluster 0 (64 rows a CTA, B shared by multicast), stored by the copy engine; then cluster 1 loads C as soon as flags say
   that it is there and computes R = S C, S a matrix in registers. C is stored twice, so that buffers are used again. Where `fault` says so,
   one line is wrong. */
#include "../../kernels/ptx.cuh"
#include "pipeline.h"

struct PipelineShared {
    uint8_t stage[PIPELINE_STAGES][64 * 128 * 2]; /* A 64 x 64, B 64 x 64 */
    uint8_t chunk[64 * 128];
    float scale[64];
    uint64_t stage_full[PIPELINE_STAGES], stage_empty[PIPELINE_STAGES], chunk_written, chunk_free, spare;
};

#define FAULT(name) (arguments.fault == FAULT_##name)

DEVICE void wait(uint32_t barrier, uint32_t parity) {
    while (!mbarrier_try_wait_parity(barrier, parity)) {
    }
}

DEVICE uint64_t descriptor(uint32_t address) { return 0x4000004000010000ull | ((address & 0x3FFFF) >> 4); }

DEVICE void loader(PipelineShared *shared, const PipelineArguments &arguments, uint32_t cta) {
    for (uint32_t block = 0; block < PIPELINE_BLOCKS; block++) {
        const uint32_t stage = block % PIPELINE_STAGES, round = block / PIPELINE_STAGES;
        const uint32_t full = shared_address(&shared->stage_full[stage]),
                       at = shared_address(shared->stage[stage]) + (FAULT(stage_misaligned) ? 128 : 0);
        if (!FAULT(empty_wait_dropped))
            wait(shared_address(&shared->stage_empty[stage]), (round & 1) ^ (FAULT(empty_wait_phase_off) ? 0 : 1));
        mbarrier_arrive_expect_tx(full, 2 * 64 * 128 + (FAULT(bytes_16_too_many) ? 16 : 0) - (FAULT(bytes_16_too_few) ? 16 : 0));
        cp_async_bulk_tensor_2d_load(at, &arguments.a, (int32_t)(block * 64) + (FAULT(coordinate_not_16_bytes) ? 1 : 0),
                                     (int32_t)(cta * 64) + (FAULT(coordinate_off) ? 1 : 0), full);
        cp_async_bulk_tensor_2d_load_multicast(at + 64 * 128 + cta * 32 * 128, &arguments.b, (int32_t)(block * 64), (int32_t)(cta * 32),
                                               full, FAULT(multicast_mask_one) ? (uint16_t)(1 << cta) :
                                                     FAULT(multicast_mask_beyond) ? 7 : 3);
    }
}

DEVICE void storer(PipelineShared *shared, const PipelineArguments &arguments, uint32_t cta) {
    for (uint32_t copy = 0; copy < 2; copy++) {
        wait(shared_address(&shared->chunk_written), copy);
        if (FAULT(signal_before_store)) red_release_gpu_add(&arguments.flags[cta], 1);
        cp_async_bulk_tensor_3d_store(&arguments.c_store, 0, (int32_t)(cta * 64), (int32_t)copy, shared_address(shared->chunk));
        if (!FAULT(store_not_committed)) cp_async_bulk_commit_group();
        if (!FAULT(chunk_reused_too_early)) cp_async_bulk_wait_group_read<0>();
        mbarrier_arrive(shared_address(&shared->chunk_free));
    }
    if (FAULT(store_wait_only_read)) cp_async_bulk_wait_group_read<0>();
    else if (!FAULT(store_wait_dropped)) cp_async_bulk_wait_group<0>();
    if (!FAULT(proxy_fence_after_poll_dropped)) fence_proxy_async_global(); /* one of the two fences on the path would do */
    if (FAULT(signal_lost) && cta == 1) return;
    if (FAULT(signal_relaxed)) atom_relaxed_gpu_add(&arguments.flags[cta], 2);
    else red_release_gpu_add(&arguments.flags[cta], FAULT(signal_before_store) ? 1 : 2);
}

DEVICE void math_product(PipelineShared *shared, const PipelineArguments &arguments, float (&acc)[32]) {
    const uint32_t warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32, cta = cluster_ctarank();
    for (uint32_t block = 0; block < PIPELINE_BLOCKS; block++) {
        const uint32_t stage = block % PIPELINE_STAGES, round = block / PIPELINE_STAGES;
        if (!FAULT(full_wait_dropped)) wait(shared_address(&shared->stage_full[stage]), (round & 1) ^ (FAULT(full_wait_phase_off) ? 1 : 0));
        uint64_t a = descriptor(shared_address(shared->stage[stage])), b = descriptor(shared_address(shared->stage[stage]) + 64 * 128);
        if (FAULT(descriptor_start_off)) b += 2;
        if (FAULT(descriptor_start_off_pattern)) b += 8;
        if (FAULT(descriptor_stride_off)) b ^= 1ull << 38;
        if (FAULT(descriptor_swizzle_64)) b ^= 3ull << 62;
        if (FAULT(descriptor_swizzle_none)) b &= ~(3ull << 62);
        if (FAULT(descriptor_base_offset)) b |= 1ull << 49;
        if (FAULT(descriptor_stray_bit)) b |= 1ull << 46;
        if (FAULT(descriptor_beyond_shared)) b |= 0x3fc0;
        const uint32_t step = FAULT(descriptor_k_step_off) ? 1 : 2;
        if (!FAULT(wgmma_fence_dropped)) wgmma_fence();
        if (FAULT(wgmma_by_three_warps) && warp == 3 && block == 1) {
            for (;;) warp_sync(), wait(shared_address(&shared->spare), 0);
        }
        for (uint32_t k = 0; k < 4; k++) wgmma_m64k16_bf16_ss(acc, a + k * step, b + k * step, block != 0 || k != 0);
        if (!FAULT(wgmma_commit_dropped)) wgmma_commit_group();
        if (!FAULT(stage_left_before_wgmma_wait) && !FAULT(wgmma_wait_dropped)) wgmma_wait_group<0>();
        if (FAULT(one_warp_leaves_for_all)) {
            if (warp == 0 && lane < 4) mbarrier_arrive(shared_address(&shared->stage_empty[stage]));
            if (warp == 0 && lane >= 4 && lane < 8)
                mbarrier_arrive_cluster(mapa_shared_cluster(shared_address(&shared->stage_empty[stage]), cta ^ 1));
            continue;
        }
        if (lane == 0) mbarrier_arrive(shared_address(&shared->stage_empty[stage]));
        for (int i = 0; FAULT(one_arrival_too_many) && lane == 0 && i < 8; i++)
            mbarrier_arrive(shared_address(&shared->stage_empty[stage]));
        if (lane == 1 && !FAULT(peer_not_told))
            mbarrier_arrive_cluster(mapa_shared_cluster(shared_address(&shared->stage_empty[stage]), cta ^ 1));
    }
    if (FAULT(stage_left_before_wgmma_wait)) wgmma_wait_group<0>();
}

DEVICE void write_chunk(PipelineShared *shared, const PipelineArguments &arguments, const float (&acc)[32]) {
    const uint32_t warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32, matrix = lane / 8, row = warp * 16 + (matrix & 1) * 8 + lane % 8;
    for (uint32_t copy = 0; copy < 2; copy++) {
        if (copy) wait(shared_address(&shared->chunk_free), 0);
        for (uint32_t j = 0; j < 8; j += 2) {
            const float *e = &acc[4 * j];
            uint32_t to = shared_address(shared->chunk) + row * 128 + (((j + (matrix >> 1)) ^ (row & 7)) << 4);
            if (FAULT(stmatrix_misaligned)) to += 8;
            stmatrix_x4(to, cvt_rn_bf16x2(e[0], e[1]), cvt_rn_bf16x2(e[2], e[3]), cvt_rn_bf16x2(e[4], e[5]), cvt_rn_bf16x2(e[6], e[7]));
        }
        if (!FAULT(proxy_fence_before_store_dropped)) fence_proxy_async_shared_cta();
        if (!FAULT(warp_sync_before_store_dropped)) warp_sync();
        if (lane == 0) mbarrier_arrive(shared_address(&shared->chunk_written));
    }
}

/* Cluster 1: one thread polls and loads, both copies one after the other into the same place; four warps multiply. */
DEVICE void second_cluster(PipelineShared *shared, const PipelineArguments &arguments, uint32_t cta) {
    const uint32_t thread = threadIdx.x % 128, lane = threadIdx.x % 32, warp = thread / 32, full = shared_address(&shared->stage_full[0]);
    const bool math = threadIdx.x >= 128;
    float sum = 0;
    for (uint32_t copy = 0; copy < 2; copy++) {
        if (threadIdx.x == 0) {
            if (copy == 0)
                for (uint32_t i = 0; i < 2 && !FAULT(poll_dropped); i++) {
                    const uint32_t threshold = FAULT(poll_threshold_small) ? 0 : 2;
                    if (FAULT(poll_relaxed))
                        while (ld_relaxed_gpu(&arguments.flags[i]) < threshold) nanosleep(20);
                    else if (i)
                        while (ld_relaxed_gpu_before_fence(&arguments.flags[i]) < threshold) nanosleep(20);
                    else
                        while (ld_acquire_gpu(&arguments.flags[i]) < threshold) nanosleep(20);
                }
            if (copy == 0 && !FAULT(poll_fence_dropped)) fence_acquire_gpu();
            if (!FAULT(proxy_fence_after_poll_dropped)) fence_proxy_async_global();
            if (copy && !FAULT(overwrite_unordered)) wait(shared_address(&shared->stage_empty[0]), 0);
            mbarrier_arrive_expect_tx(full, 64 * 128);
            cp_async_bulk_tensor_3d_load(shared_address(shared->stage[0]), FAULT(map_wrong_rank) ? &arguments.a : &arguments.c_load, 0,
                                         (int32_t)(cta * 64), (int32_t)copy, full);
        }
        if (!math) continue;
        wait(full, copy);
        /* R = S C: S is r % 3 in the odd columns of row r, else 0 */
        float acc[32];
        uint64_t b = descriptor(shared_address(shared->stage[0]));
        if (FAULT(transposed_stride_off)) b ^= 1ull << 38;
        wgmma_fence();
        for (uint32_t k = 0; k < 4; k++) {
            const float low = (float)((warp * 16 + lane / 4) % 3), high = (float)((warp * 16 + lane / 4 + 8) % 3);
            const uint32_t r0 = cvt_rn_bf16x2(0, low), r1 = cvt_rn_bf16x2(0, high);
            wgmma_m64k16_bf16_rs_transposed_b(acc, r0, r1, r0, r1, b + (FAULT(transposed_k_step_off) ? 512 : 128) * k, k != 0);
        }
        wgmma_commit_group();
        wgmma_wait_group<0>();
        /* ordinary reads of what the copy engine will overwrite */
        sum += bf16_low(*(const uint16_t *)&shared->stage[0][thread % 64 * 128]);
        if (!FAULT(proxy_fence_before_overwrite_dropped)) fence_proxy_async_shared_cta();
        warp_sync();
        if (lane == 0) mbarrier_arrive(shared_address(&shared->stage_empty[0]));
        if (copy == 0) continue;
        for (uint32_t i = 0; i < 32; i++) {
            const uint32_t row = warp * 16 + lane / 4 + 8 * (i / 2 % 2), column = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
            arguments.result[cta * 4096 + row * 64 + column] = acc[i] * shared->scale[column];
        }
    }
    if (math && cta == 0 && thread == 0 && sum != sum) arguments.result[0] = sum;
    if (FAULT(generic_store_beyond) && threadIdx.x == 128) arguments.result[2 * 4096] = 1;
    if (FAULT(nc_load_of_written) && threadIdx.x == 0) arguments.result[cta * 4096] += ld_global_nc_f32(&arguments.result[cta * 4096]);
    if (FAULT(weights_written) && threadIdx.x == 0) ((float *)arguments.scale)[0] = 2;
}

extern "C" __global__ void __launch_bounds__(PIPELINE_THREADS, 1) pipeline_kernel(const __grid_constant__ PipelineArguments arguments) {
    extern __shared__ __align__(1024) uint8_t shared_bytes[];
    PipelineShared *shared = (PipelineShared *)shared_bytes;
    const uint32_t cta = cluster_ctarank(), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const bool first = clusterid_x() == 0;
    if (threadIdx.x == 0) {
        for (int i = 0; i < PIPELINE_STAGES; i++) {
            mbarrier_init(shared_address(&shared->stage_full[i]), 1);
            mbarrier_init(shared_address(&shared->stage_empty[i]),
                          (first ? 8 : 4) + (FAULT(empty_count_too_large) ? 1 : 0) - (FAULT(empty_count_too_small) && first ? 4 : 0));
        }
        mbarrier_init(shared_address(&shared->chunk_written), 4);
        mbarrier_init(shared_address(&shared->chunk_free), 1);
        mbarrier_init(shared_address(&shared->spare) + (FAULT(mbarrier_misaligned) ? 4 : 0), 1);
        if (FAULT(mbarrier_initialised_twice)) mbarrier_init(shared_address(&shared->spare), 1);
        if (FAULT(mbarrier_overwritten)) shared->chunk_free = 0;
        if (!FAULT(no_fence_after_mbarrier_init)) fence_mbarrier_init_release_cluster();
    }
    if (threadIdx.x < 64) shared->scale[threadIdx.x] = ld_global_nc_f32(&arguments.scale[threadIdx.x]);
    if (!FAULT(no_barrier_after_mbarrier_init)) {
        bar_sync_all();
        barrier_cluster_arrive_release();
        barrier_cluster_wait_acquire();
    }
    if (FAULT(shared_beyond) && threadIdx.x == 0) ((volatile uint8_t *)shared_bytes)[sizeof(PipelineShared)] = 0;
    if (FAULT(shared_uninitialised) && threadIdx.x == 0 && *(volatile uint32_t *)&shared->chunk[0] == 77) shared->scale[0] = 0;
    if (FAULT(named_barrier_count) && warp >= 4) bar_sync(1, 160);
    if (FAULT(named_barrier_mixed_counts) && warp >= 4) bar_sync(1, warp == 4 ? 96 : 128);
    if (FAULT(collective_by_half) && warp == 4) {
        if (lane < 16) warp_sync();
        else shfl_bfly_f32(1, 1);
    }

    if (warp < 4) {
        if (FAULT(registers_decrease_upwards)) setmaxnreg_dec<232>();
        setmaxnreg_dec<40>();
    } else if (FAULT(registers_beyond_budget)) {
        setmaxnreg_inc<232>();
    } else {
        setmaxnreg_inc<208>();
    }
    if (!first) {
        if (threadIdx.x == 0 || warp >= 4) second_cluster(shared, arguments, cta);
    } else if (threadIdx.x == 0) {
        loader(shared, arguments, cta);
    } else if (threadIdx.x == 32) {
        storer(shared, arguments, cta);
    } else if (warp >= 4) {
        float acc[32];
        math_product(shared, arguments, acc);
        /* what a norm would do: a row of numbers through shared memory, among the four warps */
        if (threadIdx.x == 128) shared->scale[0] = 1;
        if (!FAULT(named_barrier_dropped)) bar_sync(2, 128);
        const float factor = shared->scale[0];
        for (int i = 0; i < 32; i++) acc[i] *= factor;
        write_chunk(shared, arguments, acc);
    }
    warp_sync();
    if (FAULT(early_exit) && cta == 1) return;
    barrier_cluster_arrive_release();
    barrier_cluster_wait_acquire();
}
