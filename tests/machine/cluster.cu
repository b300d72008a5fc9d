/* Tiles that a group of CTAs shares by multicast, multiplied one step behind; messages to the next CTA by st.async, through two buffers
   that are handed back; ordinary stores into another CTA's shared memory and loads from it. Clusters of any size. Where `fault` says so,
   one line is wrong. */
#include "../../kernels/ptx.cuh"
#include "cluster.h"

struct ClusterShared {
    uint8_t stage[2][64 * 128];
    uint32_t message[2][CLUSTER_THREADS][4], mail[CLUSTER_THREADS][4], open[CLUSTER_THREADS][4];
    uint64_t stage_full[2], stage_empty[2], message_full[2], message_free[2], mail_full;
};

#define FAULT(name) (arguments.fault == CLUSTER_FAULT_##name)

DEVICE void wait(uint32_t barrier, uint32_t parity) {
    while (!mbarrier_try_wait_parity(barrier, parity)) {
    }
}

DEVICE uint64_t descriptor(uint32_t address) { return 0x4000004000010000ull | ((address & 0x3FFFF) >> 4); }

/* Every CTA of the group brings its rows of the tile to all of them. */
DEVICE void load_tile(ClusterShared *shared, const ClusterArguments &arguments, uint32_t block) {
    const uint32_t stage = block % 2, rank = cluster_ctarank(), group = arguments.group, part = rank % group, rows = 64 / group;
    const uint32_t full = shared_address(&shared->stage_full[stage]);
    uint32_t mask = ((1u << group) - 1) << rank / group * group;
    if (FAULT(multicast_mask_misses_one) && block == 1) mask &= mask - 1;
    if (FAULT(multicast_mask_of_other_group) && block == 1 && rank < group) mask <<= group;
    wait(shared_address(&shared->stage_empty[stage]), (block / 2 & 1) ^ 1);
    mbarrier_arrive_expect_tx(full, 64 * 128);
    cp_async_bulk_tensor_2d_load_multicast(shared_address(shared->stage[stage]) + part * rows * 128, &arguments.tiles, 0,
                                           (int32_t)(block * 64 + part * rows), full, (uint16_t)mask);
}

/* Each warp tells every CTA of the group that it has left the stage. */
DEVICE void leave_stage(ClusterShared *shared, const ClusterArguments &arguments, uint32_t stage) {
    const uint32_t lane = threadIdx.x % 32, first = cluster_ctarank() / arguments.group * arguments.group;
    if (lane < arguments.group - (FAULT(stage_left_to_too_few) ? 1 : 0))
        mbarrier_arrive_cluster(mapa_shared_cluster(shared_address(&shared->stage_empty[stage]), first + lane));
}

DEVICE void multiply_tiles(ClusterShared *shared, const ClusterArguments &arguments) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float acc[CLUSTER_COLUMNS / 2];
    wgmma_registers_zero(acc);
    if (threadIdx.x == 0) load_tile(shared, arguments, 0);
    for (uint32_t block = 0; block < CLUSTER_BLOCKS; block++) {
        if (threadIdx.x == 0 && block + 1 < CLUSTER_BLOCKS && block == 0) load_tile(shared, arguments, 1);
        wait(shared_address(&shared->stage_full[block % 2]), block / 2 & 1);
        const uint64_t tile = descriptor(shared_address(shared->stage[block % 2]));
        wgmma_registers_fence(acc);
        wgmma_fence();
        for (uint32_t k = 0; k < 4; k++) wgmma_m64k16_bf16_ss(acc, tile + 2 * k, tile + 2 * k, 1);
        wgmma_commit_group();
        if (FAULT(stage_left_one_early)) {
            leave_stage(shared, arguments, block % 2);
            wgmma_wait_group<0>();
        } else {
            wgmma_wait_group<1>();
            if (block > 0) leave_stage(shared, arguments, (block - 1) % 2);
        }
        if (threadIdx.x == 0 && block > 0 && block + 1 < CLUSTER_BLOCKS) load_tile(shared, arguments, block + 1);
    }
    if (!FAULT(wgmma_wait_one_too_few)) wgmma_wait_group<0>();
    wgmma_registers_fence(acc);
    for (uint32_t i = 0; i < CLUSTER_COLUMNS / 2; i++) {
        const uint32_t row = warp * 16 + lane / 4 + 8 * (i / 2 % 2), column = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
        arguments.product[(blockIdx.x * 64 + row) * CLUSTER_COLUMNS + column] = acc[i];
    }
    wgmma_wait_group<0>();
}

/* Round by round: to the next CTA's buffer, and from the own one. Even rounds are announced by the receiver, odd ones by the sender. */
DEVICE void exchange_messages(ClusterShared *shared, const ClusterArguments &arguments, uint32_t next, uint32_t before) {
    const uint32_t thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    uint32_t sum[4] = {0, 0, 0, 0};
    for (uint32_t round = 0; round < CLUSTER_ROUNDS; round++) {
        const uint32_t buffer = round % 2, full = shared_address(&shared->message_full[buffer]), there = mapa_shared_cluster(full, next);
        const uint32_t bytes = CLUSTER_THREADS * 16 - (FAULT(message_bytes_short) && round == 1 ? 16 : 0);
        if (round >= 2 && !FAULT(message_buffer_reused_early)) wait(shared_address(&shared->message_free[buffer]), (round / 2 - 1) & 1);
        if (thread == 0 && round % 2 == 0) mbarrier_arrive_expect_tx(full, bytes);
        if (thread == 0 && round % 2 == 1 && !FAULT(remote_expect_dropped)) {
            mbarrier_expect_tx_cluster(there, bytes / 2);
            mbarrier_arrive_expect_tx_cluster(there, bytes - bytes / 2);
            if (FAULT(remote_expect_twice)) mbarrier_expect_tx_cluster(there, bytes);
        }
        const uint32_t to =
            mapa_shared_cluster(shared_address(shared->message[buffer][thread]), next) + (FAULT(message_misaligned) ? 4 : 0);
        const uint32_t cta = blockIdx.x;
        if (!(FAULT(message_lane_missing) && thread == 77)) {
            const uint32_t barrier = FAULT(message_counted_at_home) ? full : there;
            if (round == 3) { /* the narrow form */
                st_async_cluster_u64(to, cluster_message(cta, round, thread, 0) | (uint64_t)cluster_message(cta, round, thread, 1) << 32,
                                     barrier);
                st_async_cluster_u64(
                    to + 8, cluster_message(cta, round, thread, 2) | (uint64_t)cluster_message(cta, round, thread, 3) << 32, barrier);
            } else {
                st_async_cluster_v4_u32(to, cluster_message(cta, round, thread, 0), cluster_message(cta, round, thread, 1),
                                        cluster_message(cta, round, thread, 2), cluster_message(cta, round, thread, 3), barrier);
            }
        }
        if (!FAULT(message_wait_dropped)) wait(full, (round / 2 & 1) ^ (FAULT(message_wait_phase_off) && round >= 2 ? 1 : 0));
        for (uint32_t i = 0; i < 4; i++)
            sum[i] += shared->message[buffer][(thread + 31 * round) % CLUSTER_THREADS / 32 * 32 + (thread + 5 * round) % 32][i];
        if (FAULT(message_left_by_one_warp)) {
            if (warp == 0 && lane < 4) mbarrier_arrive_cluster(mapa_shared_cluster(shared_address(&shared->message_free[buffer]), before));
            continue;
        }
        if (!FAULT(message_left_without_warp_sync)) warp_sync();
        if (lane == 0 && !FAULT(message_not_left))
            mbarrier_arrive_cluster(mapa_shared_cluster(shared_address(&shared->message_free[buffer]), before));
    }
    for (uint32_t i = 0; i < 4; i++) arguments.received[(blockIdx.x * CLUSTER_THREADS + thread) * 4 + i] = sum[i];
}

/* Ordinary stores into the next CTA's shared memory, released and acquired at cluster scope; then loads from there, between two barriers of
   the cluster. */
DEVICE void exchange_mail(ClusterShared *shared, const ClusterArguments &arguments, uint32_t next) {
    const uint32_t thread = threadIdx.x, lane = thread % 32, cta = blockIdx.x;
    const uint32_t to = mapa_shared_cluster(shared_address(shared->mail[thread]), next), full = shared_address(&shared->mail_full);
    if (FAULT(remote_store_after_arrival) && lane == 0) mbarrier_arrive_release_cluster(mapa_shared_cluster(full, next));
    if (FAULT(remote_store_by_local_instruction)) shared_store_u32(to, 0);
    if (thread % 2) {
        st_shared_cluster_v4_u32(to, cluster_message(cta, 9, thread, 0), cluster_message(cta, 9, thread, 1),
                                 cluster_message(cta, 9, thread, 2), cluster_message(cta, 9, thread, 3));
    } else {
        for (uint32_t i = 0; i < 4; i++) st_shared_cluster_u32(to + 4 * i, cluster_message(cta, 9, thread, i));
    }
    for (uint32_t i = 0; i < 4; i++) shared->open[thread][i] = cluster_message(cta, 10, thread, i);
    warp_sync();
    if (lane == 0 && !FAULT(remote_store_after_arrival)) {
        if (FAULT(remote_store_not_released)) mbarrier_arrive_cluster(mapa_shared_cluster(full, next));
        else mbarrier_arrive_release_cluster(mapa_shared_cluster(full, next));
    }
    if (FAULT(remote_store_wait_at_cta_scope)) wait(full, 0);
    else
        while (!mbarrier_try_wait_parity_acquire_cluster(full, 0)) {
        }
    uint32_t sum[4], from[4];
    for (uint32_t i = 0; i < 4; i++) sum[i] = shared->mail[(thread + 1) % CLUSTER_THREADS][i];
    if (!FAULT(remote_load_before_barrier)) {
        if (FAULT(remote_load_not_released)) barrier_cluster_arrive_relaxed();
        else barrier_cluster_arrive_release();
        barrier_cluster_wait_acquire();
    }
    ld_shared_cluster_v4_u32(mapa_shared_cluster(shared_address(shared->open[thread]), next), from[0], from[1], from[2], from[3]);
    if (FAULT(remote_load_overwritten)) shared->open[thread][0] = 0;
    for (uint32_t i = 0; i < 4; i++) arguments.mail[(cta * CLUSTER_THREADS + thread) * 4 + i] = sum[i] + from[i];
}

extern "C" __global__ void __launch_bounds__(CLUSTER_THREADS, 1) cluster_kernel(const __grid_constant__ ClusterArguments arguments) {
    extern __shared__ __align__(1024) uint8_t shared_bytes[];
    ClusterShared *shared = (ClusterShared *)shared_bytes;
    const uint32_t rank = cluster_ctarank(), size = nclusterid_x() ? gridDim.x / nclusterid_x() : 1, next = (rank + 1) % size,
                   before = (rank + size - 1) % size;
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) {
            mbarrier_init(shared_address(&shared->stage_full[i]), 1);
            mbarrier_init(shared_address(&shared->stage_empty[i]), 4 * arguments.group);
            mbarrier_init(shared_address(&shared->message_full[i]), 1);
            mbarrier_init(shared_address(&shared->message_free[i]), 4);
        }
        mbarrier_init(shared_address(&shared->mail_full), 4);
        fence_mbarrier_init_release_cluster();
    }
    bar_sync_all();
    barrier_cluster_arrive_relaxed();
    barrier_cluster_wait_acquire();
    multiply_tiles(shared, arguments);
    exchange_mail(shared, arguments, next);
    exchange_messages(shared, arguments, next, before);
    warp_sync();
    if (FAULT(exit_before_the_last_message) && rank == 1) return;
    barrier_cluster_arrive_release();
    barrier_cluster_wait_acquire();
}
