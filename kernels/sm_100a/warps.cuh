/* megavit: what Hopper's tiles ask of wgmma, product by product of each warp (mma.sync), for kernels of pairs on Blackwell: these can have
   no tensor-core instruction of single CTAs (ptxas refuses both in one kernel), and attention and the pooling head are of single CTAs.
   Operands lie in shared memory as wgmma wants them, and their descriptors say so; sums are in the same registers. A product has ended when
   its instruction has, so where wgmma is waited for only reads of operands are ordered before what copy engines write there next. */
#ifndef MGV_BLACKWELL_WARPS_CUH
#define MGV_BLACKWELL_WARPS_CUH

#include "../ptx.cuh"

extern "C" { /* as in the kernels */
extern __shared__ __align__(1024) uint8_t shared_bytes[];
}
/* What a descriptor leaves out of an address of this CTA's shared memory. */
DEVICE uint32_t shared_window(void) { return shared_address(shared_bytes) & ~0x3FFFFu; }

/* The operand of a descriptor: rows of `width` bytes, 128, 64 or 32, in a swizzle as wide as they are. */
struct WarpOperand {
    uint32_t address, width;
    __device__ __forceinline__ explicit WarpOperand(uint64_t descriptor)
        : address(shared_window() | ((uint32_t)descriptor << 4 & 0x3FFFF)), width((uint32_t)(descriptor >> 32 & 0x3FFF) * 2) {}
    /* Of the 16 bytes at `byte` of row `row`. */
    __device__ __forceinline__ uint32_t at(uint32_t row, uint32_t byte) const {
        const uint32_t linear = address + row * width + byte;
        return linear ^ (linear >> 3 & (width - 16));
    }
};

template <bool HALF> DEVICE void warp_multiply(float *d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    float sum[4] = {d[0], d[1], d[2], d[3]};
    if constexpr (HALF) mma_m16n8k16_f16(sum, a[0], a[1], a[2], a[3], b0, b1);
    else mma_m16n8k16_bf16(sum, a[0], a[1], a[2], a[3], b0, b1);
#pragma unroll
    for (int i = 0; i < 4; i++) d[i] = sum[i];
}
template <int COUNT> DEVICE void warp_begin(float (&d)[COUNT], uint32_t scale_d) {
    static_assert(COUNT % 8 == 0, "16 columns of B at a time");
    if (scale_d) return;
#pragma unroll
    for (int i = 0; i < COUNT; i++) d[i] = 0;
}

/* Both K-major. */
template <bool HALF, int COUNT> DEVICE void warp_m64k16_ss(float (&d)[COUNT], uint64_t a_descriptor, uint64_t b_descriptor,
                                                           uint32_t scale_d) {
    const WarpOperand a(a_descriptor), b(b_descriptor);
    const uint32_t lane = threadIdx.x % 32, matrix = lane / 8, row = threadIdx.x % 128 / 32 * 16 + lane % 8;
    uint32_t p[4];
    ldmatrix_x4(a.at(row + matrix % 2 * 8, matrix / 2 * 16), p[0], p[1], p[2], p[3]);
    const uint32_t columns = b.at(matrix / 2 * 8 + lane % 8, matrix % 2 * 16);
    warp_begin(d, scale_d);
#pragma unroll
    for (int i = 0; i < COUNT / 8; i++) { /* 16 rows of any width are whole patterns of the swizzle */
        uint32_t q[4];
        ldmatrix_x4(columns + i * 16 * b.width, q[0], q[1], q[2], q[3]);
        warp_multiply<HALF>(d + 8 * i, p, q[0], q[1]);
        warp_multiply<HALF>(d + 8 * i + 4, p, q[2], q[3]);
    }
}
template <int COUNT> DEVICE void warp_m64k16_bf16_ss(float (&d)[COUNT], uint64_t a, uint64_t b, uint32_t scale_d) {
    warp_m64k16_ss<false>(d, a, b, scale_d);
}
template <int COUNT> DEVICE void warp_m64k16_f16_ss(float (&d)[COUNT], uint64_t a, uint64_t b, uint32_t scale_d) {
    warp_m64k16_ss<true>(d, a, b, scale_d);
}

/* A in registers, B with N contiguous. */
template <int COUNT> DEVICE void warp_m64k16_bf16_rs_transposed_b(float (&d)[COUNT], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                                  uint64_t b_descriptor, uint32_t scale_d) {
    const WarpOperand b(b_descriptor);
    const uint32_t lane = threadIdx.x % 32, matrix = lane / 8, p[4] = {a0, a1, a2, a3};
    const uint32_t rows = b.at(matrix % 2 * 8 + lane % 8, matrix / 2 * 16);
    warp_begin(d, scale_d);
#pragma unroll
    for (int i = 0; i < COUNT / 8; i++) {
        uint32_t q[4];
        ldmatrix_x4_transposed(rows ^ i * 32, q[0], q[1], q[2], q[3]);
        warp_multiply<false>(d + 8 * i, p, q[0], q[1]);
        warp_multiply<false>(d + 8 * i + 4, p, q[2], q[3]);
    }
}

/* There is no wgmma on this machine: from here on its names are those of the above. */
#define wgmma_m64k16_bf16_ss warp_m64k16_bf16_ss
#define wgmma_m64k16_f16_ss warp_m64k16_f16_ss
#define wgmma_m64k16_bf16_rs_transposed_b warp_m64k16_bf16_rs_transposed_b
#define wgmma_fence() ((void)0)
#define wgmma_commit_group() ((void)0)
#define wgmma_wait_group warp_wait_group
/* Behind the last products with a stage, which copy engines fill next. */
template <int COUNT> DEVICE void warp_wait_group(void) {
    fence_proxy_async_shared_cta();
    warp_sync();
}

#endif /* MGV_BLACKWELL_WARPS_CUH */
