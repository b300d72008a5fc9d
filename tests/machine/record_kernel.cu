/* The kernel whose results are recorded on a GPU and replayed on the model. One CTA of a warpgroup. */
#include "../../kernels/ptx.cuh"
#include "record.h"

struct RecordShared {
    uint8_t tile[48 * 1024];
    uint8_t a[8 * 1024];
    uint64_t barrier, second;
};

DEVICE void record_wait(uint32_t barrier, uint32_t parity) {
    while (!mbarrier_try_wait_parity(barrier, parity)) {
    }
}

DEVICE uint64_t record_descriptor(uint32_t address) { return 0x4000004000010000ull | ((address & 0x3FFFF) >> 4); }

template <int N> DEVICE void record_wgmma(const RecordShared *shared, float *out) {
    float acc[N / 2];
    wgmma_registers_zero(acc);
    const uint64_t a = record_descriptor(shared_address(shared->a)), b = record_descriptor(shared_address(shared->tile));
    wgmma_registers_fence(acc);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; k++) wgmma_m64k16_bf16_ss(acc, a + 2 * k, b + 2 * k, 1);
    wgmma_commit_group();
    wgmma_wait_group<0>();
    wgmma_registers_fence(acc);
#pragma unroll
    for (int i = 0; i < N / 2; i++) out[threadIdx.x * (N / 2) + i] = acc[i];
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

    if (mode == RECORD_LOAD_2D || mode == RECORD_LOAD_3D) {
        if (thread == 0) {
            mbarrier_arrive_expect_tx(barrier, arguments.bytes);
            if (mode == RECORD_LOAD_2D) cp_async_bulk_tensor_2d_load(tile, &arguments.map, arguments.at[0], arguments.at[1], barrier);
            else cp_async_bulk_tensor_3d_load(tile, &arguments.map, arguments.at[0], arguments.at[1], arguments.at[2], barrier);
        }
        record_wait(barrier, 0);
        for (uint32_t i = thread; i < arguments.bytes / 4; i += 128) ((uint32_t *)arguments.out)[i] = ((const uint32_t *)shared->tile)[i];
    } else if (mode == RECORD_STORE_3D) {
        if (thread == 0) {
            cp_async_bulk_tensor_3d_store(&arguments.map, arguments.at[0], arguments.at[1], arguments.at[2], tile);
            cp_async_bulk_commit_group();
            cp_async_bulk_wait_group<0>();
        }
    } else if (mode == RECORD_WGMMA_SS || mode == RECORD_WGMMA_RS) {
        if (thread == 0) {
            mbarrier_arrive_expect_tx(barrier, arguments.bytes + 8192);
            cp_async_bulk_tensor_2d_load(tile, &arguments.map, 0, 0, barrier);
            cp_async_bulk_tensor_2d_load(shared_address(shared->a), &arguments.map_a, 0, 0, barrier);
        }
        record_wait(barrier, 0);
        float *out = (float *)arguments.out;
        if (mode == RECORD_WGMMA_RS) {
            float acc[32];
            wgmma_registers_zero(acc);
            wgmma_registers_fence(acc);
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < 4; k++) {
                uint32_t r[4];
#pragma unroll
                for (int i = 0; i < 4; i++) r[i] = cvt_rn_bf16x2((float)((thread + 3 * i + k) % 5) - 2, (float)((thread * 7 + i + k) % 5) - 2);
                wgmma_m64k16_bf16_rs_transposed_b(acc, r[0], r[1], r[2], r[3], record_descriptor(tile) + 128 * k, 1);
            }
            wgmma_commit_group();
            wgmma_wait_group<0>();
            wgmma_registers_fence(acc);
#pragma unroll
            for (int i = 0; i < 32; i++) out[thread * 32 + i] = acc[i];
        } else if (arguments.n == 64) record_wgmma<64>(shared, out);
        else if (arguments.n == 128) record_wgmma<128>(shared, out);
        else if (arguments.n == 208) record_wgmma<208>(shared, out);
        else record_wgmma<256>(shared, out);
    } else if (mode == RECORD_MATRIX) {
        if (thread < 32) {
            const uint32_t v = lane * 0x01000100u + 0x00030007u;
            stmatrix_x4(tile + (lane * 5 % 32) * 32, v, v ^ 0x11110000u, v ^ 0x2222u, v ^ 0x33333333u); /* rows of 32 bytes, in a mixed order */
            warp_sync();
            uint32_t r[4];
            ldmatrix_x4(tile + (lane * 7 % 32) * 32, r[0], r[1], r[2], r[3]);
            for (uint32_t i = 0; i < 4; i++) ((uint32_t *)(arguments.out + 1024))[lane * 4 + i] = r[i];
            for (uint32_t i = lane; i < 256; i += 32) ((uint32_t *)arguments.out)[i] = ((const uint32_t *)shared->tile)[i];
        }
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
}
