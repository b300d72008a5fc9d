/* A GEMM and a chain of two products on Blackwell's tensor cores, as small as they can be with every part that a real kernel has: the
   machine model runs them, ptxas takes them for sm_100a and sm_103a, and no card has ever run them. Where `fault` says so, one line is
   wrong. */
#include "../../kernels/sm_100a/blackwell.cuh"
#include "../../kernels/ptx.cuh"
#include "blackwell.h"

struct BlackwellShared {
    uint8_t a[BLACKWELL_STAGES][BLACKWELL_A_BYTES];
    uint8_t b[BLACKWELL_STAGES][BLACKWELL_B_BYTES];
    uint8_t chunk[4][2][BLACKWELL_CHUNK_BYTES]; /* of each warp of the epilogue */
    uint8_t scales[BLACKWELL_STAGES][BLACKWELL_SCALE_BYTES];
    uint64_t stage_full[BLACKWELL_STAGES];  /* the loader, with bytes; and warp 2 where it writes the scales */
    uint64_t stage_empty[BLACKWELL_STAGES]; /* a commit of every thread that has read it, in the whole cluster */
    uint64_t scales_there[BLACKWELL_STAGES]; /* warp 2, where it copies them apart */
    uint64_t sums_full[2];                  /* a commit */
    uint64_t sums_empty[2];                 /* four warps */
    uint32_t tensor_memory, spare;
};
static_assert(sizeof(BlackwellShared) <= BLACKWELL_SHARED, "it fits");

#define FAULT(name) (arguments.fault == FAULT_##name)
#define MEMBER __device__ __forceinline__

enum { KIND_BF16, KIND_FP8, KIND_MXFP8 };

/* Columns of tensor memory: two buffers of sums, then for each stage the scales of A and of B. Sums of 64 rows take half of the lanes: the
   second buffer is the other half. */
enum { SCALES_COLUMN = 2 * BLACKWELL_COLUMNS, STAGE_SCALE_COLUMNS = 12, B_SCALES_COLUMN = 4 };
static_assert(SCALES_COLUMN + BLACKWELL_STAGES * STAGE_SCALE_COLUMNS <= TENSOR_COLUMNS, "they fit");

DEVICE void wait(uint32_t barrier, uint32_t parity) {
    while (!mbarrier_try_wait_parity(barrier, parity)) {
    }
}

/* One operand of a stage: panels one behind the other. */
struct Panels {
    uint32_t count, rows, width, bytes;
};

DEVICE Panels panels_of(uint32_t rows, uint32_t width, uint32_t transposed, uint32_t element_bytes) {
    Panels p;
    p.width = width;
    p.rows = transposed ? BLACKWELL_BLOCK_BYTES / element_bytes : rows;
    p.count = transposed ? (rows * element_bytes + width - 1) / width : BLACKWELL_BLOCK_BYTES / width;
    p.bytes = p.rows * width;
    return p;
}

DEVICE void load_panels(const Panels &p, const CUtensorMap *map, uint32_t to, uint32_t barrier, uint32_t row, uint32_t k,
                        uint32_t transposed, uint32_t element_bytes) {
    for (uint32_t i = 0; i < p.count; i++) {
        const uint32_t along = i * p.width / element_bytes;
        const uint32_t x = transposed ? row + along : k + along, y = transposed ? k : row;
        cp_async_bulk_tensor_2d_load(to + i * p.bytes, map, (int32_t)x, (int32_t)y, barrier);
    }
}

DEVICE uint64_t panels_descriptor(const Panels &p, uint32_t address, uint32_t transposed) {
    return transposed ? matrix_descriptor_mn_major(address, p.rows, p.width) : matrix_descriptor_k_major(address, p.rows, p.width);
}

DEVICE uint32_t panels_offset(const Panels &p, uint32_t step, uint32_t transposed, uint32_t element_bytes) {
    return transposed ? matrix_mn_major_offset(step * 32 / element_bytes, p.width) : matrix_k_major_offset(step * 32, p.rows, p.width);
}

template <int KIND, uint32_t ROWS> struct Gemm {
    static constexpr uint32_t element_bytes = KIND == KIND_BF16 ? 2 : 1, block = BLACKWELL_BLOCK_BYTES / element_bytes;

    BlackwellShared *shared;
    const BlackwellArguments &arguments;
    Panels a, b;
    uint32_t tiles, first_tile, tile_step;

    MEMBER Gemm(BlackwellShared *s, const BlackwellArguments &arguments_) : shared(s), arguments(arguments_) {
        a = panels_of(ROWS, arguments.a_width, arguments.a_transposed, element_bytes);
        b = panels_of(BLACKWELL_COLUMNS, arguments.b_width, arguments.b_transposed, element_bytes);
        tiles = (arguments.row_tiles + arguments.cluster - 1) / arguments.cluster * arguments.column_tiles;
        first_tile = arguments.cluster == 2 ? clusterid_x() : blockIdx.x;
        tile_step = arguments.cluster == 2 ? nclusterid_x() : gridDim.x;
    }

    MEMBER uint32_t rank() const { return arguments.cluster == 2 ? cluster_ctarank() : 0; }
    MEMBER uint32_t row_tile(uint32_t tile) const { return tile / arguments.column_tiles * arguments.cluster + rank(); }
    MEMBER uint32_t column_tile(uint32_t tile) const { return tile % arguments.column_tiles; }

    /* Until the products that read the stage the last time have ended. */
    MEMBER void wait_empty(uint32_t i) const {
        wait(shared_address(&shared->stage_empty[i % BLACKWELL_STAGES]), (i / BLACKWELL_STAGES & 1) ^ 1);
    }

    /* Half of B, for both CTAs. */
    MEMBER void load_half(uint32_t to, uint32_t full, uint32_t column, uint32_t k) const {
        const uint32_t first = rank() * (BLACKWELL_COLUMNS / 2), at = to + first * BLACKWELL_BLOCK_BYTES;
        cp_async_bulk_tensor_2d_load_multicast(at, &arguments.b, (int32_t)k, (int32_t)(column + first), full, 3);
    }

    MEMBER void loader() const {
        uint32_t i = 0;
        for (uint32_t tile = first_tile; tile < tiles; tile += tile_step)
            for (uint32_t k = 0; k < arguments.k_blocks; k++, i++) {
                const uint32_t stage = i % BLACKWELL_STAGES, full = shared_address(&shared->stage_full[stage]);
                const bool scales = KIND == KIND_MXFP8 && arguments.scales != SCALES_BY_THREADS;
                const uint32_t column = column_tile(tile) * BLACKWELL_COLUMNS;
                if (!FAULT(empty_wait_dropped)) wait_empty(i);
                mbarrier_arrive_expect_tx(full, a.count * a.bytes + b.count * b.bytes + (scales ? BLACKWELL_SCALE_BYTES : 0));
                load_panels(a, &arguments.a, shared_address(shared->a[stage]), full, row_tile(tile) * ROWS, k * block,
                            arguments.a_transposed, element_bytes);
                const uint32_t b_at = shared_address(shared->b[stage]);
                if (arguments.cluster == 2) load_half(b_at, full, column, k * block);
                else load_panels(b, &arguments.b, b_at, full, column, k * block, arguments.b_transposed, element_bytes);
                if (!scales) continue;
                const uint32_t to = shared_address(shared->scales[stage]);
                cp_async_bulk_load(to, arguments.a_scales + (row_tile(tile) * arguments.k_blocks + k) * 512, 512, full);
                cp_async_bulk_load(to + 512, arguments.b_scales + (column_tile(tile) * arguments.k_blocks + k) * 1024, 1024, full);
            }
        /* the CTA must not end before the last commits have arrived */
        for (uint32_t last = i + BLACKWELL_STAGES; i < last && !FAULT(last_commits_not_awaited) && !ends_early(); i++)
            if (i >= BLACKWELL_STAGES) wait_empty(i);
    }

    MEMBER bool ends_early() const { return (FAULT(cluster_exit_early) || FAULT(cluster_exit_without_epilogue)) && rank() == 1; }

    /* By a warp: what a quantising epilogue of the same kernel would write. */
    MEMBER void scale_writer(uint32_t lane) const {
        uint32_t i = 0;
        for (uint32_t tile = first_tile; tile < tiles; tile += tile_step)
            for (uint32_t k = 0; k < arguments.k_blocks; k++, i++) {
                const uint32_t stage = i % BLACKWELL_STAGES;
                const uint32_t *from_a = (const uint32_t *)(arguments.a_scales + (row_tile(tile) * arguments.k_blocks + k) * 512);
                const uint32_t *from_b = (const uint32_t *)(arguments.b_scales + (column_tile(tile) * arguments.k_blocks + k) * 1024);
                uint32_t *to = (uint32_t *)shared->scales[stage];
                wait_empty(i);
                for (uint32_t w = lane; w < 128; w += 32) to[w] = ld_global_nc_u32(from_a + w);
                for (uint32_t w = lane; w < 256; w += 32) to[128 + w] = ld_global_nc_u32(from_b + w);
                if (!FAULT(scale_proxy_fence_dropped)) fence_proxy_async_shared_cta();
                warp_sync();
                if (lane == 0) mbarrier_arrive(shared_address(&shared->stage_full[stage]));
            }
    }

    MEMBER uint32_t buffer(uint32_t n) const { return FAULT(one_buffer_of_accumulators) ? 0 : n & 1; }
    MEMBER uint32_t sums_of(uint32_t tensor_memory, uint32_t lane, uint32_t n) const {
        return ROWS == 64 ? tensor_address(tensor_memory, lane + buffer(n) * 16, 0)
                          : tensor_address(tensor_memory, lane, buffer(n) * BLACKWELL_COLUMNS);
    }

    MEMBER uint32_t scales_column(uint32_t stage) const {
        return SCALES_COLUMN + (FAULT(scale_columns_shared_by_stages) ? 0 : stage * STAGE_SCALE_COLUMNS);
    }

    MEMBER void copy_scales(uint32_t tensor_memory, uint32_t stage) const {
        const uint32_t to = tensor_memory + scales_column(stage), from = shared_address(shared->scales[stage]);
        if (FAULT(scales_not_copied) || FAULT(scales_of_one_quarter)) return;
        tcgen05_cp_32x128b_warpx4(to, scale_descriptor(from) ^ arguments.flip_scales);
        for (uint32_t atom = 0; atom < (FAULT(second_scale_atom_not_copied) ? 1 : 2); atom++)
            tcgen05_cp_32x128b_warpx4(to + B_SCALES_COLUMN + atom * 4, scale_descriptor(from + 512 + atom * 512) ^ arguments.flip_scales);
    }

    /* One thread. What it copies is in order before products that follow the fences; its commit says when the stage has been read. */
    MEMBER void scale_copier(uint32_t tensor_memory) const {
        uint32_t i = 0;
        for (uint32_t tile = first_tile; tile < tiles; tile += tile_step)
            for (uint32_t k = 0; k < arguments.k_blocks; k++, i++) {
                const uint32_t stage = i % BLACKWELL_STAGES;
                wait(shared_address(&shared->stage_full[stage]), i / BLACKWELL_STAGES & 1);
                tcgen05_fence_after_thread_sync();
                copy_scales(tensor_memory, stage);
                if (!FAULT(apart_fence_before_dropped)) tcgen05_fence_before_thread_sync();
                mbarrier_arrive(shared_address(&shared->scales_there[stage]));
                if (FAULT(apart_not_committed)) mbarrier_arrive(shared_address(&shared->stage_empty[stage]));
                else tcgen05_commit(shared_address(&shared->stage_empty[stage]));
            }
    }

    MEMBER void commit_stage(uint32_t stage) const {
        const uint32_t empty = shared_address(&shared->stage_empty[FAULT(commit_to_another_barrier) ? 0 : stage]);
        if (FAULT(stage_commit_dropped)) return;
        if (FAULT(commit_twice)) tcgen05_commit(empty);
        if (arguments.cluster == 1 || FAULT(cluster_commit_to_one)) tcgen05_commit(empty);
        else tcgen05_commit_multicast(empty, FAULT(cluster_commit_mask_beyond) ? 7 : 3);
    }

    MEMBER uint32_t word(uint32_t step) const {
        const uint32_t columns = FAULT(shape_changes) && step == 2 ? BLACKWELL_COLUMNS - 16 : BLACKWELL_COLUMNS;
        const uint32_t off = FAULT(scale_ids_off_by_one) ? 1 : 0;
        const uint32_t right = KIND == KIND_MXFP8
                                   ? instruction_word_scaled(ROWS, columns, arguments.a_format, arguments.b_format, arguments.a_transposed,
                                                             arguments.b_transposed, FAULT(scale_id_of_a_constant) ? 0 : (step + off) & 3,
                                                             FAULT(scale_id_of_b_constant) ? 0 : (step + off) & 3)
                                   : instruction_word(ROWS, columns, arguments.a_format, arguments.b_format, arguments.a_transposed,
                                                      arguments.b_transposed);
        return right ^ arguments.flip_word;
    }

    MEMBER void products_of_stage(uint32_t tensor_memory, uint32_t sums, uint32_t stage, bool first) const {
        const uint64_t a_begin = panels_descriptor(a, shared_address(shared->a[stage]), arguments.a_transposed) ^ arguments.flip_a;
        const uint64_t b_begin = panels_descriptor(b, shared_address(shared->b[stage]), arguments.b_transposed) ^ arguments.flip_b;
        if (KIND == KIND_MXFP8 && arguments.scales != SCALES_APART) copy_scales(tensor_memory, stage);
        for (uint32_t step = 0; step < BLACKWELL_BLOCK_BYTES / 32; step++) {
            const uint32_t at = FAULT(k_step_off) ? 0 : step;
            const uint64_t a_at = matrix_descriptor_advance(a_begin, panels_offset(a, at, arguments.a_transposed, element_bytes));
            const uint64_t b_at = matrix_descriptor_advance(b_begin, panels_offset(b, step, arguments.b_transposed, element_bytes));
            const uint32_t accumulate = ((!first || step) && !FAULT(products_do_not_accumulate)) || FAULT(first_product_accumulates);
            const uint32_t scales = tensor_memory + scales_column(stage) + (FAULT(scale_columns_off) ? 9 : 0);
            if (KIND == KIND_BF16) tcgen05_mma_f16_ss(sums, a_at, b_at, word(step), accumulate);
            else if (KIND == KIND_FP8) tcgen05_mma_f8f6f4_ss(sums, a_at, b_at, word(step), accumulate);
            else tcgen05_mma_mxf8f6f4_ss(sums, a_at, b_at, word(step), scales, scales + B_SCALES_COLUMN, accumulate);
        }
    }

    /* One thread. */
    MEMBER void multiplier(uint32_t tensor_memory) const {
        uint32_t i = 0, n = 0;
        for (uint32_t tile = first_tile; tile < tiles; tile += tile_step, n++) {
            const uint32_t sums = sums_of(tensor_memory, FAULT(product_at_lane_32) ? 32 : 0, n);
            const uint32_t full_sums = shared_address(&shared->sums_full[n & 1]);
            if (!FAULT(release_wait_dropped)) wait(shared_address(&shared->sums_empty[n & 1]), (n / 2 & 1) ^ 1);
            if (!FAULT(release_fence_after_dropped)) tcgen05_fence_after_thread_sync();
            for (uint32_t k = 0; k < arguments.k_blocks; k++, i++) {
                const uint32_t stage = i % BLACKWELL_STAGES;
                if (!FAULT(full_wait_dropped)) wait(shared_address(&shared->stage_full[stage]), i / BLACKWELL_STAGES & 1);
                if (arguments.scales == SCALES_APART && !FAULT(apart_wait_dropped))
                    wait(shared_address(&shared->scales_there[stage]), i / BLACKWELL_STAGES & 1);
                /* for the columns of the scales, which earlier products have read, or which another thread has written */
                if (!FAULT(stage_fence_after_dropped) && !FAULT(release_fence_after_dropped) && !FAULT(apart_fence_after_dropped))
                    tcgen05_fence_after_thread_sync();
                if (FAULT(accumulator_commit_early) && k + 1 == arguments.k_blocks) tcgen05_commit(full_sums);
                products_of_stage(tensor_memory, sums, stage, k == 0);
                commit_stage(stage);
            }
            if (!FAULT(accumulator_commit_dropped) && !FAULT(accumulator_commit_early)) tcgen05_commit(full_sums);
        }
        if (FAULT(copy_after_last_commit)) copy_scales(tensor_memory, 0);
    }

    /* 32 columns of this warp's rows, from tensor memory to a chunk that is swizzled as the copy engine wants it. */
    MEMBER void read_chunk(uint32_t address, uint8_t *chunk, uint32_t lane) const {
        if (ROWS == 128) {
            uint32_t r[32];
            tcgen05_ld_32x32b(r, address);
            if (!FAULT(wait_ld_dropped)) tcgen05_wait_ld();
            for (uint32_t c = 0; c < 32; c++) *(uint32_t *)(chunk + lane * 128 + ((c / 4 ^ lane % 8) * 16) + c % 4 * 4) = r[c];
        } else {
            uint32_t r[16];
            tcgen05_ld_16x256b(r, address);
            if (!FAULT(wait_ld_dropped)) tcgen05_wait_ld();
            for (uint32_t i = 0; i < 16; i++) {
                const uint32_t row = lane / 4 + i / 2 % 2 * 8, c = i / 4 * 8 + lane % 4 * 2 + i % 2;
                *(uint32_t *)(chunk + row * 128 + ((c / 4 ^ row % 8) * 16) + c % 4 * 4) = r[i];
            }
        }
    }

    MEMBER void release(uint32_t n, uint32_t lane) const {
        if (!FAULT(fence_before_release_dropped)) tcgen05_fence_before_thread_sync();
        warp_sync();
        if (lane == 0) mbarrier_arrive(shared_address(&shared->sums_empty[n & 1]));
    }

    MEMBER void epilogue(uint32_t tensor_memory, uint32_t warp, uint32_t lane) const {
        uint32_t n = 0;
        for (uint32_t tile = first_tile; tile < tiles; tile += tile_step, n++) {
            const uint32_t lanes = FAULT(load_lane_zero) ? 0 : FAULT(load_other_lanes) ? (warp ^ 1) * 32 : warp * 32;
            const uint32_t sums = sums_of(tensor_memory, lanes, n);
            if (!FAULT(accumulator_wait_dropped)) wait(shared_address(&shared->sums_full[n & 1]), n / 2 & 1);
            if (!FAULT(accumulator_fence_after_dropped)) tcgen05_fence_after_thread_sync();
            for (uint32_t c = 0; c < BLACKWELL_COLUMNS / 32; c++) {
                const bool last = c + 1 == BLACKWELL_COLUMNS / 32;
                uint8_t *chunk = shared->chunk[warp][c & 1];
                if (lane == 0) cp_async_bulk_wait_group_read<1>(); /* the chunk's last store has read it */
                warp_sync();
                if (FAULT(release_before_last_load) && last) release(n, lane);
                const uint32_t off = FAULT(load_beyond_columns) ? 400 : FAULT(load_different_addresses) ? lane / 16 : 0;
                read_chunk(sums + c * 32 + off, chunk, lane);
                if (!FAULT(release_before_last_load) && last) release(n, lane);
                fence_proxy_async_shared_cta();
                warp_sync();
                if (lane == 0) {
                    cp_async_bulk_tensor_3d_store(&arguments.c, (int32_t)(column_tile(tile) * BLACKWELL_COLUMNS + c * 32),
                                                  (int32_t)(row_tile(tile) * ROWS + warp * (ROWS / 4)), 0, shared_address(chunk));
                    cp_async_bulk_commit_group();
                }
            }
        }
        if (lane == 0) cp_async_bulk_wait_group<0>();
        warp_sync();
    }

    /* By a warp. */
    MEMBER void allocate(uint32_t lane) const {
        const uint32_t to = shared_address(&shared->tensor_memory) + (FAULT(allocation_misaligned) ? 2 : 0);
        if (FAULT(allocation_increases)) allocate_for_a_moment(32);
        if (FAULT(allocation_by_half_a_warp) && lane >= 16) return;
        tcgen05_alloc(to, FAULT(allocation_too_small) ? 256 : FAULT(allocation_lanes_disagree) && lane ? 256 : 512);
        if (FAULT(allocation_beyond_512)) allocate_for_a_moment(32);
        if (!FAULT(allocation_of_48)) tcgen05_relinquish_alloc_permit();
    }

    MEMBER void allocate_for_a_moment(uint32_t columns) const {
        const uint32_t spare = shared_address(&shared->spare);
        tcgen05_alloc(spare, columns);
        warp_sync();
        tcgen05_dealloc(shared_load_u32(spare), columns);
    }

    MEMBER void deallocate(uint32_t tensor_memory) const {
        tcgen05_dealloc(tensor_memory, FAULT(deallocation_of_half) || FAULT(allocation_too_small) ? 256 : 512);
        if (FAULT(deallocation_twice)) tcgen05_dealloc(tensor_memory, 512);
        if (FAULT(allocation_after_relinquish)) allocate_for_a_moment(32);
        if (FAULT(allocation_of_48)) allocate_for_a_moment(48);
    }

    /* Scales that are not the same in the four quarters of the lanes. */
    MEMBER void spoil_scales(uint32_t tensor_memory, uint32_t warp) const {
        uint32_t r[16];
        for (int i = 0; i < 16; i++) r[i] = 0x7f7f7f7f + warp;
        for (uint32_t c = 0; c < BLACKWELL_STAGES * STAGE_SCALE_COLUMNS && warp >= 4; c += 16)
            tcgen05_st_32x32b(tensor_address(tensor_memory, (warp - 4) * 32, SCALES_COLUMN + c), r);
        tcgen05_wait_st();
        tcgen05_fence_before_thread_sync();
        bar_sync_all();
        tcgen05_fence_after_thread_sync();
    }

    /* Of the cluster, or of the CTA. */
    MEMBER static void sync(uint32_t cluster) {
        if (cluster == 1) return bar_sync_all();
        barrier_cluster_arrive_release();
        barrier_cluster_wait_acquire();
    }

    MEMBER void run(uint32_t warp, uint32_t lane) const {
        if (warp == 1) allocate(lane);
        if (!FAULT(allocation_read_without_barrier)) bar_sync_all();
        const uint32_t tensor_memory = shared_load_u32(shared_address(&shared->tensor_memory));
        if (FAULT(scales_of_one_quarter)) spoil_scales(tensor_memory, warp);
        if (warp == 0 && lane == 0) loader();
        if (warp == 1 && lane == 0) multiplier(tensor_memory);
        if (warp == 2 && KIND == KIND_MXFP8 && arguments.scales == SCALES_BY_THREADS) scale_writer(lane);
        if (warp == 2 && KIND == KIND_MXFP8 && arguments.scales == SCALES_APART && lane == 0) scale_copier(tensor_memory);
        if (warp >= 4 && !(FAULT(cluster_exit_without_epilogue) && rank() == 1)) epilogue(tensor_memory, warp - 4, lane);
        warp_sync();
        if (!FAULT(deallocation_early)) sync(ends_early() ? 1 : arguments.cluster);
        if (warp == 1 && !FAULT(deallocation_dropped)) deallocate(tensor_memory);
    }
};

template <int KIND, uint32_t ROWS> DEVICE void gemm(const BlackwellArguments &arguments, uint8_t *bytes) {
    BlackwellShared *shared = (BlackwellShared *)bytes;
    if (threadIdx.x == 0) {
        for (int i = 0; i < BLACKWELL_STAGES; i++) {
            mbarrier_init(shared_address(&shared->stage_full[i]), KIND == KIND_MXFP8 && arguments.scales == SCALES_BY_THREADS ? 2 : 1);
            mbarrier_init(shared_address(&shared->stage_empty[i]),
                          KIND == KIND_MXFP8 && arguments.scales == SCALES_APART ? 2 : FAULT(cluster_count_of_one) ? 1 : arguments.cluster);
            mbarrier_init(shared_address(&shared->scales_there[i]), 1);
        }
        for (int i = 0; i < 2; i++) {
            mbarrier_init(shared_address(&shared->sums_full[i]), 1);
            mbarrier_init(shared_address(&shared->sums_empty[i]), 4);
        }
        fence_mbarrier_init_release_cluster();
    }
    Gemm<KIND, ROWS>::sync(arguments.cluster);
    Gemm<KIND, ROWS>(shared, arguments).run(threadIdx.x / 32, threadIdx.x % 32);
}

#define GEMM_KERNEL(name, kind, rows) \
    extern "C" __global__ void __launch_bounds__(BLACKWELL_THREADS, 1) name(const __grid_constant__ BlackwellArguments arguments) { \
        extern __shared__ __align__(1024) uint8_t shared_bytes[]; \
        gemm<kind, rows>(arguments, shared_bytes); \
    }
GEMM_KERNEL(blackwell_bf16_kernel, KIND_BF16, 128)
GEMM_KERNEL(blackwell_bf16_64_kernel, KIND_BF16, 64)
GEMM_KERNEL(blackwell_fp8_kernel, KIND_FP8, 128)
GEMM_KERNEL(blackwell_mxfp8_kernel, KIND_MXFP8, 128)

/* ---- two products, the first one's result being A of the second ---- */

struct ChainShared {
    uint8_t q[128 * 128], k[CHAIN_KEYS * 128], v[CHAIN_KEYS * 128];
    uint64_t loaded, scores_full, weights_full, result_full;
    uint32_t tensor_memory;
};
static_assert(sizeof(ChainShared) <= CHAIN_SHARED, "it fits");

enum { SCORES_COLUMN = 0, RESULT_COLUMN = 128, WEIGHTS_COLUMN = 192 };

/* One thread. */
DEVICE void chain_multiplier(ChainShared *shared, const ChainArguments &arguments, uint32_t tensor_memory) {
    const uint32_t loaded = shared_address(&shared->loaded), scores = tensor_memory + SCORES_COLUMN, result = tensor_memory + RESULT_COLUMN;
    const uint32_t weights = (FAULT(chain_operand_overlaps) ? result : tensor_memory + WEIGHTS_COLUMN) +
                             (FAULT(chain_operand_columns_off) ? 1 : FAULT(chain_operand_lane) ? 32u << 16 : 0);
    mbarrier_arrive_expect_tx(loaded, sizeof shared->q + sizeof shared->k + sizeof shared->v);
    cp_async_bulk_tensor_2d_load(shared_address(shared->q), &arguments.q, 0, 0, loaded);
    cp_async_bulk_tensor_2d_load(shared_address(shared->k), &arguments.k, 0, 0, loaded);
    cp_async_bulk_tensor_2d_load(shared_address(shared->v), &arguments.v, 0, 0, loaded);
    wait(loaded, 0);
    const uint64_t q = matrix_descriptor_k_major(shared_address(shared->q), 128, 128);
    const uint64_t k = matrix_descriptor_k_major(shared_address(shared->k), CHAIN_KEYS, 128);
    const uint64_t v = matrix_descriptor_mn_major(shared_address(shared->v), CHAIN_KEYS, 128);
    const uint32_t parts = arguments.halves ? 2 : 1, rows = 128 / parts;
    const uint32_t scores_word = instruction_word(rows, CHAIN_KEYS, FORMAT_BF16, FORMAT_BF16, 0, 0);
    for (uint32_t part = 0; part < parts; part++)
        for (uint32_t step = 0; step < CHAIN_WIDTH / 16; step++) {
            const uint32_t at = matrix_k_major_offset(step * 32, 128, 128);
            tcgen05_mma_f16_ss(tensor_address(scores, part * 16, 0), matrix_descriptor_advance(q, part * rows * 128 + at),
                               matrix_descriptor_advance(k, at), scores_word, step);
        }
    tcgen05_commit(shared_address(&shared->scores_full));
    if (!FAULT(chain_wait_dropped)) wait(shared_address(&shared->weights_full), 0);
    if (!FAULT(chain_fence_after_dropped)) tcgen05_fence_after_thread_sync();
    const uint32_t word = instruction_word(rows, CHAIN_WIDTH, FORMAT_BF16, FORMAT_BF16, FAULT(chain_operand_transposed) ? 1 : 0, 1);
    for (uint32_t part = 0; part < parts; part++)
        for (uint32_t step = 0; step < CHAIN_KEYS / 16; step++)
            tcgen05_mma_f16_ts(tensor_address(result, part * 16, 0), tensor_address(weights, part * 16, step * 8),
                               matrix_descriptor_advance(v, matrix_mn_major_offset(step * 16, 128)), word, step);
    tcgen05_commit(shared_address(&shared->result_full));
}

/* By four warps: scores to bf16, back to tensor memory, and what comes of them to memory. */
DEVICE void chain_group(ChainShared *shared, const ChainArguments &arguments, uint32_t tensor_memory, uint32_t warp, uint32_t lane) {
    const uint32_t first = tensor_address(tensor_memory, warp * 32, 0);
    uint32_t scores[64], last_scores[16], weights[32], last_weights[16];
    wait(shared_address(&shared->scores_full), 0);
    tcgen05_fence_after_thread_sync();
    tcgen05_ld_32x32b(scores, first + SCORES_COLUMN);
    tcgen05_ld_32x32b(last_scores, first + SCORES_COLUMN + 64);
    tcgen05_wait_ld();
    for (int i = 0; i < 32; i++) weights[i] = cvt_rn_bf16x2(__uint_as_float(scores[2 * i]), __uint_as_float(scores[2 * i + 1]));
    for (int i = 0; i < 16; i++)
        last_weights[i] = i < 8 ? cvt_rn_bf16x2(__uint_as_float(last_scores[2 * i]), __uint_as_float(last_scores[2 * i + 1])) : 0;
    const uint32_t to = (FAULT(chain_store_other_lanes) ? tensor_address(tensor_memory, (warp ^ 1) * 32, 0) : first) +
                        (FAULT(chain_operand_overlaps) ? RESULT_COLUMN : WEIGHTS_COLUMN);
    tcgen05_st_32x32b(to, weights);
    tcgen05_st_32x32b(to + 32, last_weights);
    if (!FAULT(chain_wait_st_dropped)) tcgen05_wait_st();
    if (!FAULT(chain_fence_before_dropped)) tcgen05_fence_before_thread_sync();
    mbarrier_arrive(shared_address(&shared->weights_full));
    if (!FAULT(chain_result_read_early)) wait(shared_address(&shared->result_full), 0);
    tcgen05_fence_after_thread_sync();
    uint32_t result[64];
    tcgen05_ld_32x32b(result, first + RESULT_COLUMN);
    tcgen05_wait_ld();
    const uint32_t row = arguments.halves ? lane / 16 * 64 + warp * 16 + lane % 16 : warp * 32 + lane;
    float *o = arguments.o + ((size_t)blockIdx.x * 128 + row) * CHAIN_WIDTH;
    for (int i = 0; i < CHAIN_WIDTH; i++) o[i] = __uint_as_float(result[i]);
}

extern "C" __global__ void __launch_bounds__(192, 1) blackwell_chain_kernel(const __grid_constant__ ChainArguments arguments) {
    extern __shared__ __align__(1024) uint8_t shared_bytes[];
    ChainShared *shared = (ChainShared *)shared_bytes;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        mbarrier_init(shared_address(&shared->loaded), 1);
        mbarrier_init(shared_address(&shared->scores_full), 1);
        mbarrier_init(shared_address(&shared->weights_full), 128);
        mbarrier_init(shared_address(&shared->result_full), 1);
        fence_mbarrier_init_release_cluster();
    }
    if (warp == 4) {
        tcgen05_alloc(shared_address(&shared->tensor_memory), 256);
        tcgen05_relinquish_alloc_permit();
    }
    bar_sync_all();
    const uint32_t tensor_memory = FAULT(chain_address_assumed) ? 0 : shared_load_u32(shared_address(&shared->tensor_memory));
    if (threadIdx.x == 128) chain_multiplier(shared, arguments, tensor_memory);
    if (warp < 4) chain_group(shared, arguments, tensor_memory, warp, lane);
    warp_sync();
    bar_sync_all();
    if (warp == 4 && !FAULT(chain_columns_kept_from_another_cta)) tcgen05_dealloc(tensor_memory, 256);
}
