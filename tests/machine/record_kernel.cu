/* The kernel whose results are recorded on a GPU and replayed on the model. One warpgroup a CTA; one CTA, or one cluster of them. */
#include "../../kernels/ptx.cuh"
#include "record.h"

struct RecordShared {
    uint8_t tile[48 * 1024];
    uint8_t a[8 * 1024];
    uint64_t barrier, second;
};

enum { RECORD_PATIENCE = 100000 }; /* polls: a case that hangs shows in its bytes */

DEVICE uint32_t record_wait(uint32_t barrier, uint32_t parity) {
    uint32_t done = 0;
    for (int i = 0; i < RECORD_PATIENCE && !done; i++) done = mbarrier_try_wait_parity(barrier, parity);
    return done;
}

DEVICE void record_cluster_sync(void) {
    barrier_cluster_arrive_release();
    barrier_cluster_wait_acquire();
}

DEVICE uint64_t record_descriptor(uint32_t address) { return 0x4000004000010000ull | ((address & 0x3FFFF) >> 4); }

/* Rows of 16 or 32 columns in a swizzle as wide as they are: eight rows further, the layout of 32 or 64 bytes. */
DEVICE uint64_t record_narrow_descriptor(uint32_t address, uint32_t columns) {
    return (uint64_t)(columns == 16 ? 3 : 2) << 62 | (uint64_t)columns << 32 | 1 << 16 | (address & 0x3FFFF) >> 4;
}

/* Four products of 16 columns. */
template <int N, class Multiply> DEVICE void record_products(float *out, const Multiply &multiply) {
    float acc[N / 2];
    wgmma_registers_zero(acc);
    wgmma_registers_fence(acc);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; k++) multiply(acc, k);
    wgmma_commit_group();
    wgmma_wait_group<0>();
    wgmma_registers_fence(acc);
#pragma unroll
    for (int i = 0; i < N / 2; i++) out[threadIdx.x * (N / 2) + i] = acc[i];
}

template <int N> DEVICE void record_wgmma(uint64_t a, uint64_t b, float *out) {
    record_products<N>(out, [&](float(&acc)[N / 2], int k) { wgmma_m64k16_bf16_ss(acc, a + 2 * k, b + 2 * k, 1); });
}

template <int N, int COLUMNS> DEVICE void record_wgmma_narrow(uint32_t tile, float *out) {
    const uint64_t rows = record_narrow_descriptor(tile, COLUMNS);
    record_products<N>(out, [&](float(&acc)[N / 2], int k) {
        if (k < COLUMNS / 16) wgmma_m64k16_bf16_ss(acc, rows + 2 * k, rows + 2 * k, 1);
    });
}

/* `step`: from 16 rows of B to the next 16, in units of 16 bytes. */
template <int N> DEVICE void record_wgmma_rs(uint64_t b, uint32_t step, float *out) {
    const uint32_t thread = threadIdx.x;
    record_products<N>(out, [&](float(&acc)[N / 2], int k) {
        uint32_t r[4];
#pragma unroll
        for (int i = 0; i < 4; i++) r[i] = cvt_rn_bf16x2((float)((thread + 3 * i + k) % 5) - 2, (float)((thread * 7 + i + k) % 5) - 2);
        wgmma_m64k16_bf16_rs_transposed_b(acc, r[0], r[1], r[2], r[3], b + step * k, 1);
    });
}

/* The sums after one product and after four. */
template <class Multiply> DEVICE void record_sums(float *out, const Multiply &multiply) {
    float acc[32];
    wgmma_registers_zero(acc);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        wgmma_registers_fence(acc);
        wgmma_fence();
        multiply(acc, k);
        wgmma_commit_group();
        wgmma_wait_group<0>();
        wgmma_registers_fence(acc);
#pragma unroll
        for (int i = 0; i < 32; i++)
            if (k == 0 || k == 3) out[(k ? 4096 : 0) + threadIdx.x * 32 + i] = acc[i];
    }
}

template <int N> DEVICE void record_wgmma_half(uint64_t a, uint64_t b, float *out) {
    record_products<N>(out, [&](float(&acc)[N / 2], int k) { wgmma_m64k16_f16_ss(acc, a + 2 * k, b + 2 * k, 1); });
}

/* Two bf16, or f16, that every lane makes for itself. */
DEVICE uint32_t record_pair(uint32_t i, bool rounded, bool half) {
    if (half && rounded) return record_any_half(2 * i) | (uint32_t)record_any_half(2 * i + 1) << 16;
    if (half) return cvt_rn_f16x2((float)(i % 5) - 2, (float)(i * 7 / 3 % 5) - 2);
    if (rounded) return record_rough_number(2 * i) | (uint32_t)record_rough_number(2 * i + 1) << 16;
    return cvt_rn_bf16x2((float)(i % 5) - 2, (float)(i * 7 / 3 % 5) - 2);
}

DEVICE void record_mma(float *out, bool rounded, bool half) {
    const uint32_t thread = threadIdx.x;
    float acc[4] = {0, 0, 0, 0};
#pragma unroll
    for (uint32_t k = 0; k < 4; k++) {
        uint32_t r[6];
#pragma unroll
        for (uint32_t i = 0; i < 6; i++) r[i] = record_pair((thread * 4 + k) * 6 + i, rounded, half);
        if (half) mma_m16n8k16_f16(acc, r[0], r[1], r[2], r[3], r[4], r[5]);
        else mma_m16n8k16_bf16(acc, r[0], r[1], r[2], r[3], r[4], r[5]);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            if (k == 0 || k == 3) out[(k ? 512 : 0) + thread * 4 + i] = acc[i];
    }
}

/* Sixteen words a thread: floats of all sizes, halfway between two f16 and beside that, at both ends; and any f16 as float. */
DEVICE void record_half(uint32_t *out) {
    const uint32_t thread = threadIdx.x;
    uint32_t v[16];
#pragma unroll
    for (uint32_t i = 0; i < 5; i++) {
        const uint32_t half = record_any_half(thread * 5 + i), bits = (half & 0x7fff) ? half : 1;
        const float below = f16_low(bits), above = f16_low(bits + 1), middle = below + (above - below) / 2; /* infinite at the end */
        v[3 * i] = cvt_rn_f16x2(middle, __uint_as_float(__float_as_uint(middle) - 1));
        v[3 * i + 1] = cvt_rn_f16x2(__uint_as_float(__float_as_uint(middle) + 1), (float)(int32_t)record_word(thread * 5 + i) * 1e-5f);
        v[3 * i + 2] = __float_as_uint(f16_high(record_word(thread * 9 + i) & 0xfbff0000u));
    }
    v[15] = cvt_rn_f16x2(65519.0f + (float)(thread % 4), 2.98e-8f * ((float)thread / 64));
    for (uint32_t i = 0; i < 16; i++) out[thread * 16 + i] = v[i];
}

/* Sixteen words a thread. */
DEVICE void record_warp(RecordShared *shared, const RecordArguments &arguments) {
    const uint32_t thread = threadIdx.x, lane = thread % 32, value = record_word(thread * 4 + 1);
    const float x = (float)(int32_t)value;
    uint32_t *out = (uint32_t *)arguments.out + thread * 16, *mine = (uint32_t *)shared->tile + thread;
    uint32_t v[16];
    v[0] = (uint32_t)(int32_t)shfl_bfly_f32((float)thread, 1);
    v[1] = (uint32_t)(int32_t)shfl_bfly_f32((float)thread, 21);
    v[2] = shfl_idx_u32(value, lane * 7 % 32);
    v[3] = shfl_idx_u32(value, 3);
    v[4] = vote_all(lane < 32) << 1 | vote_all(thread != 37);
    v[5] = elect_sync();
    v[6] = cvt_rn_bf16x2(x, -x * 1.0e-3f);
    v[7] = cvt_rn_bf16x2(1.0f + (float)thread / 256, 3.0e38f * (1.0f + (float)thread / 1024)); /* halfway between two; towards infinity */
    v[8] = cvt_rn_bf16x2((float)thread * 1.0e-41f, 1.5e-38f / (float)(thread + 1));            /* subnormal */
    v[9] = cvt_rn_bf16x2(bf16_low(value), bf16_high(value));
    out[14] = value;
    v[10] = atom_relaxed_gpu_add(out + 14, thread);
    v[11] = atom_relaxed_gpu_cas(out + 14, value + thread, 7);
    v[12] = atom_relaxed_gpu_cas(out + 14, value + 123456, 8);
    /* pairs of warps meet at barriers of their own */
    bar_sync(1 + thread / 64, 64);
    *mine = value;
    bar_sync(1 + thread / 64, 64);
    v[13] = ((uint32_t *)shared->tile)[thread ^ 63];
    shared_store_u32(shared_address(mine + 128), value ^ lane);
    v[15] = shared_load_u32(shared_address(mine + 128));
    for (uint32_t i = 0; i < 16; i++)
        if (i != 14) out[i] = v[i];
}

/* Boxes of 1 KB, each to some CTAs of the cluster. */
DEVICE void record_multicast(RecordShared *shared, const RecordArguments &arguments) {
    const uint32_t cta = cluster_ctarank(), barrier = shared_address(&shared->barrier), tile = shared_address(shared->tile);
    const uint32_t masks = arguments.n == 2 ? 0x13 : 0xF16B; /* four bits a sender */
    if (threadIdx.x == 0) {
        uint32_t boxes = 0;
        for (uint32_t from = 0; from < arguments.n; from++) boxes += masks >> (4 * from + cta) & 1;
        mbarrier_arrive_expect_tx(barrier, boxes * 1024);
    }
    record_cluster_sync();
    if (threadIdx.x == 0)
        cp_async_bulk_tensor_2d_load_multicast(tile + cta * 1024, &arguments.map, 0, (int32_t)(cta * 8), barrier,
                                               (uint16_t)(masks >> 4 * cta & 15));
    record_wait(barrier, 0);
}

/* From the next CTA: 1 KB that it has stored itself and 512 bytes that it was sent; a box that one CTA brings to all of them. */
DEVICE void record_cluster_loads(RecordShared *shared, const RecordArguments &arguments) {
    const uint32_t thread = threadIdx.x, cta = cluster_ctarank(), next = (cta + 1) % arguments.n;
    const uint32_t barrier = shared_address(&shared->barrier), second = shared_address(&shared->second);
    const uint32_t tile = shared_address(shared->tile);
    uint32_t *words = (uint32_t *)shared->tile, a, b, c, d;
    for (uint32_t i = thread; i < 256; i += 128) words[i] = record_word(cta * 3000 + 4 * i);
    st_shared_cluster_u32(mapa_shared_cluster(tile + 2048 + thread * 4, next), record_word(cta * 500 + thread));
    if (thread == 0) {
        mbarrier_expect_tx(barrier, 1024);
        mbarrier_arrive(barrier);
    }
    record_cluster_sync();
    ld_shared_cluster_v4_u32(mapa_shared_cluster(tile + thread % 64 * 16, next), a, b, c, d);
    record_cluster_sync();
    words[256 + thread] = a ^ b << 1 ^ c << 2 ^ d << 3;
    if (cta == 1 && thread == 0)
        cp_async_bulk_tensor_3d_load_multicast_hint(tile + 3072, &arguments.map, 0, 5, 1, barrier, (uint16_t)((1u << arguments.n) - 1),
                                                    createpolicy_evict_first());
    if (thread < 2) mbarrier_arrive_cluster(mapa_shared_cluster(second, next));
    record_wait(barrier, 0);
    record_wait(second, 0);
}

/* Into the next CTA: 2 KB by st.async in pieces of 16 bytes, 1 KB in pieces of 8, 1 KB by ordinary stores. */
DEVICE void record_cluster_stores(RecordShared *shared, const RecordArguments &arguments) {
    const uint32_t thread = threadIdx.x, cta = cluster_ctarank(), next = (cta + 1) % arguments.n, value = cta * 7919 + thread * 16;
    const uint32_t barrier = shared_address(&shared->barrier), second = shared_address(&shared->second);
    const uint32_t there = mapa_shared_cluster(shared_address(shared->tile), next), counted = mapa_shared_cluster(barrier, next);
    if (thread == 0) {
        mbarrier_expect_tx_cluster(counted, 1024);
        mbarrier_arrive_expect_tx_cluster(counted, 2048);
    }
    st_async_cluster_v4_u32(there + thread * 16, record_word(value), record_word(value + 4), record_word(value + 8),
                            record_word(value + 12), counted);
    st_async_cluster_u64(there + 2048 + thread * 8, record_word(value + 1) | (uint64_t)record_word(value + 2) << 32, counted);
    if (thread < 64) {
        st_shared_cluster_v4_u32(there + 3072 + thread * 16, record_word(value + 3), record_word(value + 5), record_word(value + 6),
                                 record_word(value + 7));
        warp_sync();
        if (thread % 32 == 0) mbarrier_arrive_release_cluster(mapa_shared_cluster(second, next));
    }
    record_wait(barrier, 0);
    for (int i = 0; i < RECORD_PATIENCE && !mbarrier_try_wait_parity_acquire_cluster(second, 0); i++) {
    }
}

DEVICE void record_await(const uint32_t *flag, uint32_t value) {
    for (int i = 0; i < RECORD_PATIENCE && ld_acquire_gpu(flag) < value; i++) nanosleep(100);
}

/* Three rounds: a box into global memory, a flag, the next CTA's box from there after its flag, a flag back. Leaves the last box and the
   sums of all. */
DEVICE void record_flags(RecordShared *shared, const RecordArguments &arguments) {
    const uint32_t thread = threadIdx.x, cta = cluster_ctarank(), next = (cta + 1) % arguments.n,
                   barrier = shared_address(&shared->barrier);
    uint32_t *box = (uint32_t *)shared->tile, *loaded = box + 1024, *sums = box + 512;
    for (uint32_t i = thread; i < 512; i += 128) sums[i] = 0;
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = thread; i < 512; i += 128) box[i] = record_word(cta * 5000 + round * 333 + 4 * i);
        fence_proxy_async_shared_cta();
        bar_sync_all();
        if (thread == 0) {
            record_await(&arguments.flags[4 + cta], round); /* whoever reads this CTA's box has the one before */
            fence_proxy_async_global();
            cp_async_bulk_tensor_3d_store(&arguments.map, 0, 0, (int32_t)cta, shared_address(box));
            cp_async_bulk_commit_group();
            cp_async_bulk_wait_group<0>();
            fence_proxy_async_global();
            red_release_gpu_add(&arguments.flags[cta], 1);
            record_await(&arguments.flags[next], round + 1);
            fence_proxy_async_global();
            mbarrier_arrive_expect_tx(barrier, 2048);
            cp_async_bulk_tensor_3d_load(shared_address(loaded), &arguments.map, 0, 0, (int32_t)next, barrier);
        }
        record_wait(barrier, round & 1);
        for (uint32_t i = thread; i < 512; i += 128) sums[i] += loaded[i];
        fence_proxy_async_shared_cta();
        bar_sync_all();
        if (thread == 0) red_release_gpu_add(&arguments.flags[4 + next], 1);
    }
}

extern "C" __global__ void __launch_bounds__(128, 1) record_kernel(const __grid_constant__ RecordArguments arguments) {
    extern __shared__ __align__(1024) uint8_t shared_bytes[];
    RecordShared *shared = (RecordShared *)shared_bytes;
    const uint32_t thread = threadIdx.x, lane = thread % 32, mode = arguments.mode;
    const uint32_t barrier = shared_address(&shared->barrier), tile = shared_address(shared->tile);
    if (thread == 0) {
        mbarrier_init(barrier, 1);
        mbarrier_init(shared_address(&shared->second), 2);
        fence_mbarrier_init_release_cluster();
    }
    for (uint32_t i = thread; i < sizeof shared->tile / 4; i += 128) ((uint32_t *)shared->tile)[i] = record_word(4 * i + 77);
    fence_proxy_async_shared_cta();
    bar_sync_all();
    record_cluster_sync();

    if (mode <= RECORD_LOAD_4D) {
        if (thread == 0) {
            mbarrier_arrive_expect_tx(barrier, arguments.bytes);
            if (mode == RECORD_LOAD_2D) cp_async_bulk_tensor_2d_load(tile, &arguments.map, arguments.at[0], arguments.at[1], barrier);
            else if (mode == RECORD_LOAD_3D)
                cp_async_bulk_tensor_3d_load(tile, &arguments.map, arguments.at[0], arguments.at[1], arguments.at[2], barrier);
            else
                cp_async_bulk_tensor_4d_load(tile, &arguments.map, arguments.at[0], arguments.at[1], arguments.at[2], arguments.at[3],
                                             barrier);
        }
        const uint32_t done = record_wait(barrier, 0);
        if (thread == 0) ((uint32_t *)arguments.out)[arguments.dump / 4] = done;
        for (uint32_t i = thread; i < arguments.dump / 4; i += 128) ((uint32_t *)arguments.out)[i] = ((const uint32_t *)shared->tile)[i];
    } else if (mode <= RECORD_REDUCE_3D) {
        if (mode == RECORD_REDUCE_3D)
            for (uint32_t i = thread; i < arguments.bytes / 4; i += 128)
                ((uint32_t *)shared->tile)[i] = record_addend(i, arguments.element_bytes);
        fence_proxy_async_shared_cta();
        bar_sync_all();
        if (thread == 0) {
            if (mode == RECORD_REDUCE_3D)
                cp_reduce_async_bulk_tensor_3d_add(&arguments.map, arguments.at[0], arguments.at[1], arguments.at[2], tile);
            else if (mode == RECORD_STORE_3D)
                cp_async_bulk_tensor_3d_store(&arguments.map, arguments.at[0], arguments.at[1], arguments.at[2], tile);
            else
                cp_async_bulk_tensor_4d_store(&arguments.map, arguments.at[0], arguments.at[1], arguments.at[2], arguments.at[3], tile);
            cp_async_bulk_commit_group();
            cp_async_bulk_wait_group<0>();
        }
#ifndef RECORD_WITHOUT_WGMMA
    } else if (mode >= RECORD_WGMMA_SS && mode <= RECORD_WGMMA_HALF_ROUNDED) {
        if (thread == 0) {
            mbarrier_arrive_expect_tx(barrier, arguments.bytes + 8192);
            cp_async_bulk_tensor_2d_load(tile, &arguments.map, 0, 0, barrier);
            cp_async_bulk_tensor_2d_load(shared_address(shared->a), &arguments.map_a, 0, 0, barrier);
        }
        record_wait(barrier, 0);
        float *out = (float *)arguments.out;
        const uint64_t a = record_descriptor(shared_address(shared->a)), b = record_descriptor(tile);
        const uint64_t wide_b = b ^ (uint64_t)(1 ^ 8192 / 16) << 16; /* 8 KB from one block of 64 columns to the next */
        if (mode == RECORD_WGMMA_RS) record_wgmma_rs<64>(b, 128, out);
        else if (mode == RECORD_WGMMA_SS_NARROW && arguments.swizzle == 1) record_wgmma_narrow<128, 16>(tile, out);
        else if (mode == RECORD_WGMMA_SS_NARROW) record_wgmma_narrow<128, 32>(tile, out);
        else if (mode == RECORD_WGMMA_RS_WIDE) record_wgmma_rs<128>(wide_b, 128, out);
        else if (mode == RECORD_WGMMA_RS_NARROW && arguments.n == 16) record_wgmma_rs<16>(record_narrow_descriptor(tile, 16), 32, out);
        else if (mode == RECORD_WGMMA_RS_NARROW) record_wgmma_rs<32>(record_narrow_descriptor(tile, 32), 64, out);
        else if (mode == RECORD_WGMMA_E4M3)
            record_sums(out, [&](float(&acc)[32], int k) { wgmma_m64k32_e4m3_ss(acc, a + 2 * k, b + 2 * k, 1); });
        else if (mode == RECORD_WGMMA_ROUNDED)
            record_sums(out, [&](float(&acc)[32], int k) { wgmma_m64k16_bf16_ss(acc, a + 2 * k, b + 2 * k, 1); });
        else if (mode == RECORD_WGMMA_HALF_ROUNDED)
            record_sums(out, [&](float(&acc)[32], int k) { wgmma_m64k16_f16_ss(acc, a + 2 * k, b + 2 * k, 1); });
        else if (mode == RECORD_WGMMA_HALF && arguments.n == 64) record_wgmma_half<64>(a, b, out);
        else if (mode == RECORD_WGMMA_HALF && arguments.n == 128) record_wgmma_half<128>(a, b, out);
        else if (mode == RECORD_WGMMA_HALF && arguments.n == 192) record_wgmma_half<192>(a, b, out);
        else if (mode == RECORD_WGMMA_HALF) record_wgmma_half<256>(a, b, out);
        else if (mode == RECORD_WGMMA_MN_A)
            record_products<64>(out, [&](float(&acc)[32], int k) { wgmma_m64k16_bf16_ss_transposed_a(acc, a + 128 * k, b + 2 * k, 1); });
        else if (arguments.n == 8) record_wgmma<8>(a, b, out);
        else if (arguments.n == 16) record_wgmma<16>(a, b, out);
        else if (arguments.n == 32) record_wgmma<32>(a, b, out);
        else if (arguments.n == 48) record_wgmma<48>(a, b, out);
        else if (arguments.n == 64) record_wgmma<64>(a, b, out);
        else if (arguments.n == 72) record_wgmma<72>(a, b, out);
        else if (arguments.n == 96) record_wgmma<96>(a, b, out);
        else if (arguments.n == 104) record_wgmma<104>(a, b, out);
        else if (arguments.n == 112) record_wgmma<112>(a, b, out);
        else if (arguments.n == 128) record_wgmma<128>(a, b, out);
        else if (arguments.n == 160) record_wgmma<160>(a, b, out);
        else if (arguments.n == 192) record_wgmma<192>(a, b, out);
        else if (arguments.n == 208) record_wgmma<208>(a, b, out);
        else record_wgmma<256>(a, b, out);
#endif
    } else if (mode == RECORD_MMA) {
        record_mma((float *)arguments.out, arguments.n % 2 == 1, arguments.n >= 2);
    } else if (mode == RECORD_HALF) {
        record_half((uint32_t *)arguments.out);
    } else if (mode == RECORD_WARP) {
        record_warp(shared, arguments);
    } else if (mode == RECORD_BULK) {
        if (thread == 0) {
            mbarrier_arrive_expect_tx(barrier, arguments.n);
            cp_async_bulk_load(tile + 128, arguments.tensor + 48, arguments.n, barrier);
        }
        record_wait(barrier, 0);
        for (uint32_t i = thread; i < 1024; i += 128) ((uint32_t *)arguments.out)[i] = ((const uint32_t *)shared->tile)[i];
    } else if (mode == RECORD_MATRIX) {
        if (thread < 32) {
            const uint32_t v = lane * 0x01000100u + 0x00030007u;
            const uint32_t row = tile + (lane * 5 % 32) * 32; /* rows of 32 bytes, in a mixed order */
            if (arguments.n == 1) stmatrix_x4_transposed(row, v, v ^ 0x11110000u, v ^ 0x2222u, v ^ 0x33333333u);
            else stmatrix_x4(row, v, v ^ 0x11110000u, v ^ 0x2222u, v ^ 0x33333333u);
            warp_sync();
            uint32_t r[4];
            const uint32_t from = tile + (lane * 7 % 32) * 32;
            if (arguments.n == 2) ldmatrix_x4_transposed(from, r[0], r[1], r[2], r[3]);
            else ldmatrix_x4(from, r[0], r[1], r[2], r[3]);
            for (uint32_t i = 0; i < 4; i++) ((uint32_t *)(arguments.out + 1024))[lane * 4 + i] = r[i];
            for (uint32_t i = lane; i < 256; i += 32) ((uint32_t *)arguments.out)[i] = ((const uint32_t *)shared->tile)[i];
        }
    } else if (mode >= RECORD_MULTICAST) {
        if (mode == RECORD_MULTICAST) record_multicast(shared, arguments);
        else if (mode == RECORD_CLUSTER_LOADS) record_cluster_loads(shared, arguments);
        else if (mode == RECORD_CLUSTER_STORES) record_cluster_stores(shared, arguments);
        else record_flags(shared, arguments);
        uint32_t *out = (uint32_t *)(arguments.out + cluster_ctarank() * RECORD_CTA_BYTES);
        for (uint32_t i = thread; i < RECORD_CTA_BYTES / 4; i += 128) out[i] = ((const uint32_t *)shared->tile)[i];
    } else if (thread == 0) {
        const uint32_t second = shared_address(&shared->second);
        uint8_t *out = arguments.out;
        out[0] = (uint8_t)mbarrier_test_wait_parity(second, 0);
        out[1] = (uint8_t)mbarrier_test_wait_parity(second, 1); /* the phase before the first counts as completed */
        mbarrier_arrive(second);
        out[2] = (uint8_t)mbarrier_test_wait_parity(second, 0);
        mbarrier_arrive(second);
        out[3] = (uint8_t)mbarrier_test_wait_parity(second, 0);
        out[4] = (uint8_t)mbarrier_test_wait_parity(second, 1);
        mbarrier_arrive(second);
        mbarrier_arrive(second);
        out[5] = (uint8_t)mbarrier_test_wait_parity(second, 0);
        out[6] = (uint8_t)mbarrier_test_wait_parity(second, 1);
        mbarrier_arrive_expect_tx(barrier, arguments.bytes);
        out[7] = (uint8_t)mbarrier_test_wait_parity(barrier, 0); /* arrived, bytes outstanding */
        cp_async_bulk_tensor_2d_load(tile, &arguments.map, 1000, 0, barrier);  /* wholly outside: all of its bytes count */
        record_wait(barrier, 0);
        out[8] = (uint8_t)mbarrier_test_wait_parity(barrier, 0);
        out[9] = (uint8_t)mbarrier_test_wait_parity(barrier, 1);
        for (int i = 10; i < 64; i++) out[i] = 0;
    }
    warp_sync();
    record_cluster_sync();
}
