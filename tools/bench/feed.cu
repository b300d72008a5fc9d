/* What feeds one SM at small batch: clocks of a block of 64 columns of K for several shapes of tile, with operands from L2 (own, or shared by multicast in a
   cluster) through a ring of stages, all SMs at once; and clocks of an exchange of sums through the shared memory of a cluster.

       nvcc -std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a tools/bench/feed.cu -o build/bench_feed && build/bench_feed */
#include "../../kernels/ptx.cuh"
#include <cudaTypedefs.h>
#include <algorithm>
#include <stdio.h>
#include <vector>

enum { K = 768, INNER = 64, MATH_WARPS = 8, THREADS = 384, TOKENS = 256, WEIGHT_ROWS = 98304, MAX_STAGES = 8, RUNS = 24 };
enum Parts { LOADS = 1, PRODUCTS = 2 };

DEVICE uint32_t clock32(void) { uint32_t v; asm volatile("mov.u32 %0, %%clock;" : "=r"(v)::"memory"); return v; }
DEVICE uint64_t descriptor(uint32_t address) { return 0x4000004000010000ull | ((address & 0x3FFFF) >> 4); }
DEVICE void wait(uint32_t barrier, uint32_t parity) { while (!mbarrier_try_wait_parity(barrier, parity)) {} }
DEVICE void bulk_to_cluster(uint32_t to, uint32_t from, uint32_t bytes, uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "r"(from), "r"(bytes), "r"(barrier) : "memory");
}

/* Rows of both operands in a stage, and how the math groups share them out: SPLIT_A: 64 rows of A each, else half of B's each. */
template <int A, int B, int STAGES, int SPLIT_A> struct Shape {
    enum { A_BYTES = A * 128, B_BYTES = B * 128, STAGE = (A_BYTES + B_BYTES + 1023) / 1024 * 1024, N = SPLIT_A ? B : B / 2, BYTES = STAGES * STAGE + 1024 };
};
/* Weights are A and a CTA's own, tokens are B and may come by multicast to SHARE CTAs; with SWAP the 64 rows of A are the tokens. */
template <class S, int SHARE, int STAGES, int SPLIT_A, int SWAP>
__global__ void __launch_bounds__(THREADS, 1) feed(const __grid_constant__ CUtensorMap weights, const __grid_constant__ CUtensorMap tokens, uint32_t blocks, uint32_t parts,
                                                   uint32_t first_row, uint32_t rows, uint32_t *out) {
    extern __shared__ __align__(1024) uint8_t bytes[];
    __shared__ uint64_t full[MAX_STAGES], empty[MAX_STAGES];
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, rank = cluster_ctarank(), place = rank % SHARE, base = rank - place;
    if (threadIdx.x == 0)
        for (int i = 0; i < STAGES; i++) {
            mbarrier_init(shared_address(&full[i]), 1);
            mbarrier_init(shared_address(&empty[i]), MATH_WARPS * SHARE);
        }
    fence_mbarrier_init_release_cluster();
    bar_sync_all();
    barrier_cluster_arrive_release();
    barrier_cluster_wait_acquire();
    const uint32_t start = clock32();
    if (warp == 0) {
        if (lane == 0 && (parts & LOADS))
            for (uint32_t b = 0; b < blocks; b++) {
                const uint32_t stage = b % STAGES, to = shared_address(bytes) + stage * S::STAGE, barrier = shared_address(&full[stage]);
                const uint32_t own_to = SWAP ? to + S::A_BYTES : to, shared_to = SWAP ? to : to + S::A_BYTES;
                wait(shared_address(&empty[stage]), (b / STAGES & 1) ^ 1);
                mbarrier_arrive_expect_tx(barrier, S::A_BYTES + S::B_BYTES);
                cp_async_bulk_tensor_2d_load(own_to, &weights, b * INNER % K, first_row + blockIdx.x * rows, barrier);
                if (SHARE == 1) cp_async_bulk_tensor_2d_load(shared_to, &tokens, b * INNER % K, 0, barrier);
                else if (b % SHARE == place) cp_async_bulk_tensor_2d_load_multicast(shared_to, &tokens, b * INNER % K, 0, barrier, ((1u << SHARE) - 1) << base);
            }
    } else if (warp >= 4) {
        const uint32_t group = warp / 4 - 1;
        float acc[S::N / 2];
        wgmma_registers_zero(acc);
        uint32_t first = 0;
        for (uint32_t b = 0; b < blocks; b++) {
            const uint32_t stage = b % STAGES, from = shared_address(bytes) + stage * S::STAGE;
            if (parts & LOADS) wait(shared_address(&full[stage]), b / STAGES & 1);
            if (b == 0) first = clock32();
            if (parts & PRODUCTS) {
                const uint64_t a = descriptor(from + (SPLIT_A ? group * 8192 : 0)), w = descriptor(from + S::A_BYTES + (SPLIT_A ? 0 : group * S::N * 128));
                wgmma_registers_fence(acc);
                wgmma_fence();
#pragma unroll
                for (int k = 0; k < 4; k++) wgmma_m64k16_bf16_ss(acc, a + 2 * k, w + 2 * k, 1);
                wgmma_commit_group();
                wgmma_registers_fence(acc);
            }
            if (b && (parts & PRODUCTS)) wgmma_wait_group<1>();
            if (b && lane < SHARE) mbarrier_arrive_cluster(mapa_shared_cluster(shared_address(&empty[(b - 1) % STAGES]), base + lane));
        }
        wgmma_wait_group<0>();
        wgmma_registers_fence(acc);
        if (lane < SHARE) mbarrier_arrive_cluster(mapa_shared_cluster(shared_address(&empty[(blocks - 1) % STAGES]), base + lane));
        const uint32_t end = clock32();
        float sum = 0;
        for (int i = 0; i < S::N / 2; i++) sum += acc[i];
        if (sum == 1.25f) out[0] = 1;
        if (threadIdx.x == 128) { out[2 + 2 * blockIdx.x] = first - start; out[3 + 2 * blockIdx.x] = end - start; }
    }
    bar_sync_all();
    barrier_cluster_arrive_release();
    barrier_cluster_wait_acquire();
}

/* Every thread of the math groups has `units` 16 bytes for others. WAY 0: st.async to the CTA `distance` away; 1: in turn to all of the cluster; 2: bulk copies of
   what was stored here first, to the CTA `distance` away; 3: bulk copies to all of the cluster. */
__global__ void __launch_bounds__(THREADS, 1) exchange(uint32_t way, uint32_t units, uint32_t cluster, uint32_t distance, uint32_t *out) {
    extern __shared__ __align__(1024) uint8_t bytes[];
    __shared__ uint64_t full;
    const uint32_t rank = cluster_ctarank(), thread = threadIdx.x - 128, sent = units * 256 * 16, here = shared_address(bytes), received = here + 65536;
    if (threadIdx.x == 0) mbarrier_init(shared_address(&full), 1);
    fence_mbarrier_init_release_cluster();
    bar_sync_all();
    barrier_cluster_arrive_release();
    barrier_cluster_wait_acquire();
    uint32_t start = clock32(), end = start;
    for (uint32_t round = 0; round < 8; round++) {
        start = clock32();
        if (threadIdx.x == 128) mbarrier_arrive_expect_tx(shared_address(&full), sent);
        if (threadIdx.x >= 128) {
            if (way < 2)
                for (uint32_t i = 0; i < units; i++) {
                    const uint32_t to = way ? (rank + i) % cluster : (rank + distance) % cluster;
                    st_async_cluster_v4_u32(mapa_shared_cluster(received, to) + (i * 256 + thread) * 16, i, i, i, i, mapa_shared_cluster(shared_address(&full), to));
                }
            else {
                for (uint32_t i = 0; i < units; i++)
                    asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(here + (i * 256 + thread) * 16), "r"(i) : "memory");
                fence_proxy_async_shared_cta();
                bar_sync(1, 256);
                if (thread < units) {
                    const uint32_t to = way == 3 ? (rank + thread) % cluster : (rank + distance) % cluster;
                    bulk_to_cluster(mapa_shared_cluster(received, to) + thread * 4096, here + thread * 4096, 4096, mapa_shared_cluster(shared_address(&full), to));
                }
            }
            wait(shared_address(&full), round & 1);
            end = clock32();
        }
        barrier_cluster_arrive_release();
        barrier_cluster_wait_acquire();
    }
    if (threadIdx.x == 128) { out[2 + 2 * blockIdx.x] = end - start; out[3 + 2 * blockIdx.x] = end - start; }
}

static PFN_cuTensorMapEncodeTiled_v12000 encode;
static uint16_t *weights_memory, *tokens_memory;
static uint32_t *out;

static CUtensorMap map_of(void *memory, uint64_t rows, uint32_t box) {
    CUtensorMap map;
    const cuuint64_t sizes[2] = {K, rows}, strides[1] = {K * 2};
    const cuuint32_t boxes[2] = {INNER, box}, steps[2] = {1, 1};
    if (encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, memory, sizes, strides, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS) printf("map refused\n");
    return map;
}

template <class... Arguments> static bool launch(void (*kernel)(Arguments...), uint32_t ctas, uint32_t cluster, int bytes, Arguments... arguments) {
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute = {};
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    config.gridDim = ctas; config.blockDim = THREADS; config.dynamicSmemBytes = bytes;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = cluster; attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    config.attrs = &attribute; config.numAttrs = 1;
    int clusters = 0;
    cudaOccupancyMaxActiveClusters(&clusters, kernel, &config);
    if (clusters * cluster < ctas) printf("(only %d clusters of %u fit) ", clusters, cluster);
    return cudaLaunchKernelEx(&config, kernel, arguments...) == cudaSuccess;
}
/* Medians over CTAs and runs of what each CTA wrote, and the median over runs of the slowest CTA. */
static void medians(uint32_t ctas, std::vector<uint32_t> &first, std::vector<uint32_t> &end, std::vector<uint32_t> &slowest) {
    std::vector<uint32_t> words(2 + 2 * ctas);
    cudaMemcpy(words.data(), out, words.size() * 4, cudaMemcpyDeviceToHost);
    uint32_t most = 0;
    for (uint32_t i = 0; i < ctas; i++) { first.push_back(words[2 + 2 * i]); end.push_back(words[3 + 2 * i]); most = std::max(most, words[3 + 2 * i]); }
    slowest.push_back(most);
}
static uint32_t median(std::vector<uint32_t> v) { std::sort(v.begin(), v.end()); return v[v.size() / 2]; }

template <int A, int B, int SHARE, int STAGES, int SPLIT_A, int SWAP> static void test(const char *name, uint32_t ctas, uint32_t cluster) {
    typedef Shape<A, B, STAGES, SPLIT_A> S;
    const uint32_t own = SWAP ? B : A, shared = SWAP ? A : B;
    const CUtensorMap weights = map_of(weights_memory, WEIGHT_ROWS, own), tokens = map_of(tokens_memory, TOKENS, shared);
    auto *kernel = feed<S, SHARE, STAGES, SPLIT_A, SWAP>;
    printf("%-44s %3u CTAs, clusters of %u, %d stages of %2d KB:", name, ctas, cluster, STAGES, S::STAGE / 1024);
    for (uint32_t variant = 0; variant < 4; variant++) { /* all from L2; all, weights from memory; loads alone; products alone */
        const uint32_t parts = variant == 2 ? LOADS : variant == 3 ? PRODUCTS : LOADS | PRODUCTS;
        uint32_t whole[3], first_at = 0, slow = 0;
        const uint32_t counts[3] = {3, 6, 12};
        for (int c = 0; c < 3; c++) {
            std::vector<uint32_t> first, end, slowest;
            for (uint32_t run = 0; run < RUNS; run++) {
                const uint32_t row = variant == 1 ? run % 7 * 12288 : 0;
                if (!launch(kernel, ctas, cluster, S::BYTES, weights, tokens, counts[c], parts, row, own, out)) printf("launch refused ");
                medians(ctas, first, end, slowest);
            }
            whole[c] = median(end);
            first_at = median(first);
            slow = median(slowest);
        }
        const char *names[] = {"L2", "memory", "loads alone", "products alone"};
        printf(" | %s: first %u, 3: %u, 6: %u, 12: %u (slowest %u)", names[variant], first_at, whole[0], whole[1], whole[2], slow);
    }
    printf(" %s\n", cudaGetErrorString(cudaGetLastError()));
}
static void test_exchange(const char *name, uint32_t ctas, uint32_t way, uint32_t units, uint32_t cluster, uint32_t distance) {
    std::vector<uint32_t> first, end, slowest;
    for (uint32_t run = 0; run < RUNS; run++) {
        if (!launch(exchange, ctas, cluster, 65536 * 3, way, units, cluster, distance, out)) printf("launch refused ");
        medians(ctas, first, end, slowest);
    }
    printf("exchange, %-40s %2u KB from each of %u CTAs: %u clocks (slowest %u) %s\n", name, units * 4, ctas, median(end), median(slowest), cudaGetErrorString(cudaGetLastError()));
}

int main(void) {
    cudaDriverEntryPointQueryResult found;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&encode, 12000, cudaEnableDefault, &found);
    cudaMalloc(&weights_memory, (size_t)WEIGHT_ROWS * K * 2);
    cudaMalloc(&tokens_memory, (size_t)TOKENS * K * 2);
    cudaMalloc(&out, 8192);
    cudaMemset(weights_memory, 0x3C, (size_t)WEIGHT_ROWS * K * 2);
    cudaMemset(tokens_memory, 0x3C, (size_t)TOKENS * K * 2);
    test<64, 128, 4, 6, 0, 1>("tokens 64 shared x weights 128 (wide)", 96, 4);
    test<64, 128, 1, 6, 0, 1>("tokens 64 x weights 128 (deep)", 96, 4);
    test<64, 208, 4, 4, 0, 0>("weights 64 x tokens 208 shared by 4", 96, 8);
    test<64, 208, 4, 4, 0, 0>("weights 64 x tokens 208 shared by 4", 96, 4);
    test<64, 208, 2, 4, 0, 0>("weights 64 x tokens 208 shared by 2", 96, 2);
    test<64, 208, 1, 4, 0, 0>("weights 64 x tokens 208", 96, 8);
    test<64, 208, 8, 4, 0, 0>("weights 64 x tokens 208 shared by 8", 96, 8);
    test<128, 208, 1, 4, 1, 0>("weights 128 x tokens 208", 96, 4);
    test<128, 208, 2, 4, 1, 0>("weights 128 x tokens 208 shared by 2", 96, 4);
    test<128, 208, 4, 4, 1, 0>("weights 128 x tokens 208 shared by 4", 96, 4);
    test<128, 104, 1, 6, 1, 0>("weights 128 x tokens 104", 96, 4);
    for (uint32_t units = 7; units <= 13; units += 6) {
        test_exchange("st.async to one (distance 4 of 8)", 96, 0, units, 8, 4);
        test_exchange("st.async to one (distance 1 of 2)", 96, 0, units, 2, 1);
        test_exchange("st.async to all eight", 96, 1, units, 8, 0);
        test_exchange("st.async to all four", 96, 1, units, 4, 0);
        test_exchange("bulk copies to one (distance 4 of 8)", 96, 2, units, 8, 4);
        test_exchange("bulk copies to all eight", 96, 3, units, 8, 0);
    }
    return 0;
}
