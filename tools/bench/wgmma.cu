/* What the tensor cores of one SM do beside other work: clocks of a round of wgmma (64 columns of K) by one or two warpgroups, while a third warpgroup does
   nothing, multiplies and adds (FFMA), reads or writes shared memory.

       nvcc -std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a tools/bench/wgmma.cu -o build/bench_wgmma && build/bench_wgmma */
#include "../../kernels/ptx.cuh"
#include <stdio.h>

enum Noise { NOTHING, FFMA, SHARED_LOADS, SHARED_STORES, NOISES };
static const char *const noise_names[NOISES] = {"nothing", "FFMA", "shared loads", "shared stores"};
enum { ROUNDS = 2000, STAGES = 4, STAGE_BYTES = 48 * 1024, FFMA_A_ROUND = 280, LOADS_A_ROUND = 12, STORES_A_ROUND = 20, SINK = 1000 };

DEVICE uint32_t clock32(void) { uint32_t v; asm volatile("mov.u32 %0, %%clock;" : "=r"(v)::"memory"); return v; }
DEVICE uint64_t descriptor(uint32_t address) { return 0x4000004000010000ull | ((address & 0x3FFFF) >> 4); }

/* Products of HALVES x 64 rows with N columns. What comes of them goes to a place that keeps the compiler from leaving them out. */
template <int N, int HALVES> __device__ void products(uint32_t base, uint32_t group, uint32_t *out) {
    float acc[HALVES][N / 2], sum = 0;
    for (int h = 0; h < HALVES; h++) wgmma_registers_zero(acc[h]);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const uint32_t stage = base + round % STAGES * STAGE_BYTES;
        const uint64_t a = descriptor(stage + (HALVES == 1 ? group * 8192 : 0)), b = descriptor(stage + 16384);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; k++)
#pragma unroll
            for (int h = 0; h < HALVES; h++) wgmma_m64k16_bf16_ss(acc[h], a + h * 512 + 2 * k, b + 2 * k, 1);
        wgmma_commit_group();
        wgmma_wait_group<1>();
    }
    wgmma_wait_group<0>();
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
        wgmma_registers_fence(acc[h]);
#pragma unroll
        for (int i = 0; i < N / 2; i++) sum += acc[h][i];
    }
    if (sum == 1.25f) out[SINK] = 1;
}

__device__ void make_noise(uint32_t noise, uint32_t address, uint32_t *out) {
    float x[4] = {1, 2, 3, 4}, unused[3];
    if (noise == FFMA)
        for (int i = 0; i < ROUNDS * FFMA_A_ROUND / 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) x[j] = x[j] * 1.0001f + 1;
    if (noise == SHARED_LOADS)
        for (int i = 0; i < ROUNDS * LOADS_A_ROUND; i++) shared_load_v4f32(address, x[i & 3], unused[0], unused[1], unused[2]);
    if (noise == SHARED_STORES)
        for (int i = 0; i < ROUNDS * STORES_A_ROUND; i++) shared_store_v2f32(address, x[0], x[1]);
    if (x[0] + x[1] + x[2] + x[3] == 1.25f) out[SINK] = 1;
}

template <int N, int HALVES> __global__ void __launch_bounds__(384, 1) bench(uint32_t groups, uint32_t noise, uint32_t *out) {
    extern __shared__ __align__(1024) uint8_t bytes[];
    for (uint32_t i = threadIdx.x; i < STAGES * STAGE_BYTES / 4; i += 384) ((uint32_t *)bytes)[i] = 0x3F803F80u ^ (i * 2654435761u & 0x007F007Fu);
    fence_proxy_async_shared_cta();
    bar_sync_all();
    const uint32_t warpgroup = threadIdx.x / 128, address = shared_address(bytes);
    if (warpgroup == 0) {
        setmaxnreg_dec<40>();
        make_noise(noise, address + STAGES * STAGE_BYTES + threadIdx.x * 16, out);
    } else {
        setmaxnreg_inc<232>();
        if (warpgroup > groups) return;
        const uint32_t start = clock32();
        products<N, HALVES>(address, warpgroup - 1, out);
        if (threadIdx.x % 128 == 0 && blockIdx.x == 0) out[warpgroup] = clock32() - start;
    }
}

template <int N, int HALVES> static void test(uint32_t *out) {
    const int bytes = STAGES * STAGE_BYTES + 2048;
    cudaFuncSetAttribute(bench<N, HALVES>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    for (uint32_t groups = 1; groups <= 2; groups++)
        for (uint32_t noise = 0; noise < NOISES; noise++) {
            uint32_t clocks[3] = {0, 0, 0};
            bench<N, HALVES><<<132, 384, bytes>>>(groups, noise, out);
            const cudaError_t error = cudaMemcpy(clocks, out, sizeof clocks, cudaMemcpyDeviceToHost);
            const double round = clocks[groups] / (double)ROUNDS, ideal = 2.0 * HALVES * N * groups;
            printf("%u warpgroup%s, %d x m64n%d, beside %-13s: %7.1f clocks a round, %.3f of the ideal %.0f %s\n", groups, groups > 1 ? "s" : " ", HALVES, N,
                   noise_names[noise], round, round / ideal, ideal, error == cudaSuccess ? "" : cudaGetErrorString(error));
        }
}

int main(void) {
    uint32_t *out;
    if (cudaMalloc(&out, 8192) != cudaSuccess) return 1;
    test<256, 1>(out);
    test<192, 2>(out);
    test<192, 1>(out);
    test<128, 2>(out);
    test<128, 1>(out);
    test<64, 2>(out);
    return 0;
}
