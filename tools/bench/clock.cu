/* The clock of a multiprocessor under bursts of work: clock64 over globaltimer, the mean of all CTAs, and how long a burst takes and at what
   clock. Bursts begin at the same time everywhere. Behind that: clocks that one thread spends on what a signal to another CTA consists of.

       nvcc -std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a tools/bench/clock.cu -o build/bench_clock && build/bench_clock */
#include "../../kernels/ptx.cuh"
#include <algorithm>
#include <stdio.h>
#include <stdlib.h>
#include <vector>

enum { CTAS = 132, THREADS = 256, RANDOM_BYTES = 32 * 1024, ZERO_BYTES = 16 * 1024, BYTES = 1024 + RANDOM_BYTES + ZERO_BYTES, TRIES = 400, WARM = 20 };
enum Work { NOTHING, WGMMA, WGMMA_ZEROS, MMA_SYNC, MMA_SYNC_ZEROS /* one side is zero */, FFMA };
enum Step { EMPTY, RELEASE, RELAXED, ATOM, ACQUIRE_FENCE, READ_BACK, BULK_STORE, BULK_STORE_RELEASE, STEPS };

static void must(cudaError_t error) {
    if (error == cudaSuccess) return;
    fprintf(stderr, "%s\n", cudaGetErrorString(error));
    exit(1);
}

DEVICE uint64_t descriptor(uint32_t address) { return 0x4000004000010000ull | ((address & 0x3FFFF) >> 4); }
DEVICE void red_relaxed_gpu_add(uint32_t *p, uint32_t v) {
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
DEVICE void cp_async_bulk_store(void *to, uint32_t from, uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes) : "memory");
}

struct Pattern {
    const char *name;
    Work burst, between; /* between: until the next burst begins */
    uint32_t groups;     /* of a burst: of four m64n128 a warpgroup, or as many mma.sync or FFMA as about fit that time */
    uint32_t period;     /* nanoseconds; 0: one burst after the other */
    uint32_t ctas;       /* that work; the others wait */
};

/* `groups` groups of work by all threads, which must be together. */
__device__ void work(Work kind, uint32_t groups, uint32_t base, float (&acc)[64]) {
    const uint32_t warpgroup = threadIdx.x / 128, at = base + (kind == WGMMA_ZEROS ? (uint32_t)RANDOM_BYTES : warpgroup * 8192);
    if (kind == WGMMA || kind == WGMMA_ZEROS)
        for (uint32_t i = 0; i < groups; i++) {
            wgmma_registers_fence(acc);
            wgmma_fence();
#pragma unroll
            for (uint32_t k = 0; k < 4; k++)
                wgmma_m64k16_bf16_ss(acc, descriptor(at) + 2 * k, descriptor(base + (kind == WGMMA ? 16384 : RANDOM_BYTES)) + 2 * k, 1);
            wgmma_commit_group();
            wgmma_wait_group<0>();
            wgmma_registers_fence(acc);
        }
    if (kind == MMA_SYNC || kind == MMA_SYNC_ZEROS) {
        const uint32_t a = kind == MMA_SYNC ? shared_load_u32(base + threadIdx.x * 4) : 0;
        for (uint32_t i = 0; i < groups * 8; i++)
#pragma unroll
            for (int j = 0; j < 16; j++) mma_m16n8k16_bf16((float (&)[4])acc[4 * j], a, a + j, a, a + j, a, a);
    }
    if (kind == FFMA)
        for (uint32_t i = 0; i < groups * 16; i++)
#pragma unroll
            for (int j = 0; j < 8; j++) acc[j] = acc[j] * 1.0001f + 0.5f;
}

/* out: clocks a nanosecond; nanoseconds and clocks a burst. */
__global__ void __launch_bounds__(THREADS) bursts(Pattern pattern, uint64_t nanoseconds, double *out, float *sink) {
    extern __shared__ uint8_t bytes[];
    const uint32_t base = (shared_address(bytes) + 1023) & ~1023u;
    for (uint32_t i = threadIdx.x; i < (RANDOM_BYTES + ZERO_BYTES) / 4; i += THREADS)
        shared_store_u32(base + i * 4, i < RANDOM_BYTES / 4 ? 0x3F003F00u ^ (i * 2654435761u & 0x80FF80FFu) : 0);
    fence_proxy_async_shared_cta();
    __syncthreads();
    float acc[64], sum = 0;
    wgmma_registers_zero(acc);
    const uint64_t start = globaltimer(), first_clock = clock64();
    uint64_t next = (start / 4096 + 2) * 4096, burst_time = 0, burst_clocks = 0, count = 0;
    for (;;) {
        while (pattern.period && __syncthreads_and((int64_t)(globaltimer() - next) < 0)) work(pattern.between, 1, base, acc);
        next += pattern.period;
        if (__syncthreads_or(globaltimer() - start >= nanoseconds)) break;
        const uint64_t time = globaltimer(), clocks = clock64();
        if (blockIdx.x < pattern.ctas) work(pattern.burst, pattern.groups, base, acc);
        __syncthreads();
        burst_time += globaltimer() - time;
        burst_clocks += clock64() - clocks;
        count++;
    }
    if (threadIdx.x == 0) {
        out[blockIdx.x] = (double)(clock64() - first_clock) / (double)(globaltimer() - start);
        out[CTAS + blockIdx.x] = (double)burst_time / count;
        out[2 * CTAS + blockIdx.x] = (double)burst_clocks / count;
    }
    for (int i = 0; i < 64; i++) sum += acc[i];
    if (sum == 1.25f) *sink = sum;
}

/* Each try behind a store of 16 bytes by every thread, if stores is 1. */
__global__ void __launch_bounds__(THREADS) signals(Step step, uint32_t stores, uint32_t *clocks, uint8_t *memory, uint32_t *counter) {
    extern __shared__ uint8_t bytes[];
    uint8_t *const own = memory + (size_t)blockIdx.x * 32 * 8192;
    for (uint32_t i = 0; i < TRIES; i++) {
        uint8_t *const to = own + i % 32 * 8192;
        if (stores) st_global_v4u32(to + threadIdx.x * 16, i, i, i, i);
        __syncthreads();
        if (threadIdx.x == 0) {
            const uint64_t start = clock64();
            uint32_t value = 0;
            if (step == RELEASE) red_release_gpu_add(counter, 1);
            if (step == RELAXED) red_relaxed_gpu_add(counter, 1);
            if (step == ATOM) value = atom_relaxed_gpu_add(counter, 1);
            if (step == ACQUIRE_FENCE) fence_acquire_gpu();
            if (step == READ_BACK) value = ld_relaxed_gpu((const uint32_t *)to);
            if (step == BULK_STORE || step == BULK_STORE_RELEASE) {
                fence_proxy_async_shared_cta();
                cp_async_bulk_store(to, (shared_address(bytes) + 1023) & ~1023u, 8192);
                cp_async_bulk_commit_group();
                cp_async_bulk_wait_group<0>();
                if (step == BULK_STORE_RELEASE) red_release_gpu_add(counter, 1);
            }
            if (value == 0xFFFFFFFFu) clocks[0] = 0; /* the answer is waited for */
            clocks[blockIdx.x * TRIES + i] = (uint32_t)(clock64() - start);
            nanosleep(1500);
        }
    }
}

static uint32_t median_signal(Step step, uint32_t stores, uint32_t ctas, uint32_t *clocks, uint8_t *memory, uint32_t *counter) {
    std::vector<uint32_t> all(ctas * TRIES), counted;
    signals<<<ctas, THREADS, BYTES>>>(step, stores, clocks, memory, counter);
    must(cudaMemcpy(all.data(), clocks, all.size() * 4, cudaMemcpyDeviceToHost));
    for (uint32_t i = 0; i < all.size(); i++)
        if (i % TRIES >= WARM) counted.push_back(all[i]);
    std::sort(counted.begin(), counted.end());
    return counted[counted.size() / 2];
}

int main(void) {
    static const Pattern patterns[] = {{"waiting", NOTHING, NOTHING, 0, 4000, CTAS},
                                       {"FFMA always", FFMA, NOTHING, 64, 0, CTAS},
                                       {"products always", WGMMA, NOTHING, 64, 0, CTAS},
                                       {"products of zeros always", WGMMA_ZEROS, NOTHING, 64, 0, CTAS},
                                       {"mma.sync always", MMA_SYNC, NOTHING, 8, 0, CTAS},
                                       {"mma.sync, a short burst every 4 us", MMA_SYNC, NOTHING, 1, 4000, CTAS},
                                       {"one group every 4 us", WGMMA, NOTHING, 1, 4000, CTAS},
                                       {"one group every 16 us", WGMMA, NOTHING, 1, 16000, CTAS},
                                       {"one group every 64 us", WGMMA, NOTHING, 1, 64000, CTAS},
                                       {"one group every 512 us", WGMMA, NOTHING, 1, 512000, CTAS},
                                       {"four groups every 4 us", WGMMA, NOTHING, 4, 4000, CTAS},
                                       {"... on half of the multiprocessors", WGMMA, NOTHING, 4, 4000, CTAS / 2},
                                       {"... on eight of them", WGMMA, NOTHING, 4, 4000, 8},
                                       {"... FFMA between", WGMMA, FFMA, 4, 4000, CTAS},
                                       {"... mma.sync with zeros between", WGMMA, MMA_SYNC_ZEROS, 4, 4000, CTAS},
                                       {"... wgmma of zeros between", WGMMA, WGMMA_ZEROS, 4, 4000, CTAS},
                                       {"twelve groups every 16 us", WGMMA, NOTHING, 12, 16000, CTAS},
                                       {"... mma.sync with zeros between", WGMMA, MMA_SYNC_ZEROS, 12, 16000, CTAS}};
    static const char *const steps[STEPS] = {"nothing", "red.release.gpu", "red.relaxed.gpu", "atom.relaxed.gpu and its answer", "fence.acquire.gpu",
                                             "a load of what was stored", "8 KB by the copy engine, until they are there", "that and red.release.gpu"};
    static double host[3 * CTAS];
    double *out;
    float *sink;
    uint8_t *memory;
    uint32_t *clocks, *counter;
    must(cudaMalloc(&out, sizeof host));
    must(cudaMalloc(&sink, 256));
    must(cudaMalloc(&counter, 256));
    must(cudaMalloc(&clocks, CTAS * TRIES * 4));
    must(cudaMalloc(&memory, (size_t)CTAS * 32 * 8192));
    must(cudaFuncSetAttribute(bursts, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
    must(cudaFuncSetAttribute(signals, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
    for (const Pattern &pattern : patterns) {
        double mean[3] = {0, 0, 0};
        for (uint64_t milliseconds : {20, 150}) { /* the first warms up */
            bursts<<<CTAS, THREADS, BYTES>>>(pattern, milliseconds * 1000000, out, sink);
            must(cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost));
        }
        for (uint32_t i = 0; i < CTAS; i++) mean[0] += host[i] / CTAS;
        for (uint32_t i = 0; i < pattern.ctas; i++) mean[1] += host[CTAS + i] / pattern.ctas, mean[2] += host[2 * CTAS + i] / pattern.ctas;
        printf("%-36s %.3f GHz; a burst %6.0f ns at %.3f GHz\n", pattern.name, mean[0], mean[1], mean[2] / mean[1]);
    }
    for (uint32_t ctas : {1, 120})
        for (int step = 0; step < STEPS; step++)
            printf("%3u CTAs, %-46s %5u clocks, %5u behind stores of all threads\n", ctas, steps[step],
                   median_signal((Step)step, 0, ctas, clocks, memory, counter), median_signal((Step)step, 1, ctas, clocks, memory, counter));
    return 0;
}
