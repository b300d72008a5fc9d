/* Every wrapper for sm_100a and sm_103a once, for ptxas to look at. It cannot run. */
#include "../../kernels/sm_100a/blackwell.cuh"
#include "../../kernels/ptx.cuh"

extern "C" __global__ void assemble_kernel(uint32_t *out, uint64_t a, uint64_t b, uint32_t instruction) {
    __shared__ uint32_t address[4];
    __shared__ uint64_t barrier;
    tcgen05_alloc(shared_address(address), 512);
    tcgen05_relinquish_alloc_permit();
    const uint32_t d = address[0], source = shared_address(address);
    tcgen05_cp_32x128b_warpx4(d + 384, scale_descriptor(source));
    tcgen05_mma_f16_ss(d, a, b, instruction, 0);
    tcgen05_mma_f16_ts(d, d + 256, b, instruction, 1);
    tcgen05_mma_f8f6f4_ss(d, a, b, instruction, 1);
    tcgen05_mma_mxf8f6f4_ss(d, a, b, instruction, d + 384, d + 388, 1);
    tcgen05_commit(shared_address(&barrier));
    tcgen05_commit_multicast(shared_address(&barrier), 3);
    tcgen05_fence_before_thread_sync();
    tcgen05_fence_after_thread_sync();
    uint32_t r16[16], r32[32], r64[64], half[16], sum = 0;
    tcgen05_ld_32x32b(r16, d);
    tcgen05_ld_32x32b(r32, d);
    tcgen05_ld_32x32b(r64, d);
    tcgen05_ld_16x256b(half, d);
    uint32_t e[8];
    tcgen05_ld_16x256b(e[0], e[1], e[2], e[3], e[4], e[5], e[6], e[7], d);
    tcgen05_wait_ld();
    for (int i = 0; i < 8; i++) sum += tcgen05_loaded(e[i]);
    tcgen05_st_16x128b(d, e[0], e[1], e[2], e[3]);
    tcgen05_st_32x32b(d, r16);
    tcgen05_st_32x32b(d, r32);
    tcgen05_st_32x32b(d, r64);
    tcgen05_wait_st();
    for (int i = 0; i < 16; i++) sum += r16[i] + r32[i] + r64[i] + half[i];
    out[threadIdx.x] = sum;
    tcgen05_dealloc(d, 512);
}

/* Those of pairs: ptxas takes no kernel with both. */
extern "C" __global__ void assemble_pair_kernel(uint32_t *out, const __grid_constant__ CUtensorMap map, uint64_t a, uint64_t b,
                                                uint32_t instruction) {
    __shared__ __align__(1024) uint32_t memory[256];
    __shared__ uint64_t barrier;
    const uint32_t address = shared_address(memory), full = mapa_shared_cluster(shared_address(&barrier), 0);
    tcgen05_alloc_pair(address, 512);
    tcgen05_relinquish_alloc_permit_pair();
    const uint32_t d = memory[0];
    cp_async_bulk_tensor_2d_load_pair(address, &map, 0, 0, full);
    cp_async_bulk_tensor_3d_load_pair(address, &map, 0, 0, 0, full);
    cp_async_bulk_tensor_2d_load_pair_multicast(address, &map, 0, 0, full, 3);
    tcgen05_cp_32x128b_warpx4_pair(d + 480, scale_descriptor(address));
    tcgen05_mma_f16_ss_pair(d, a, b, instruction, 0);
    tcgen05_mma_f16_ts_pair(d, d + 256, b, instruction, 1);
    tcgen05_mma_mxf8f6f4_ss_pair(d, a, b, instruction, d + 480, d + 484, 1);
    tcgen05_commit_pair(shared_address(&barrier), 3);
    out[threadIdx.x] = d;
    tcgen05_dealloc_pair(d, 512);
}
