/* A GEMM of tiles of 256 x 256 on pairs of CTAs (cta_group::2), with two logical sums, the epilogue of one beside the products of the next,
   in bf16 and MXFP8. The machine model runs it, ptxas takes it for sm_100a and sm_103a, and no card has ever run it. Where `fault` says so,
   one line is wrong. */
#include "../../kernels/sm_100a/blackwell.cuh"
#include "../../kernels/ptx.cuh"
#include "pairs.h"

struct PairShared {
    uint8_t a[PAIR_STAGES][PAIR_OPERAND_BYTES];
    uint8_t b[PAIR_STAGES][PAIR_OPERAND_BYTES];
    uint8_t chunk[8][2][PAIR_CHUNK_BYTES]; /* of each warp of the epilogue */
    uint8_t scales[PAIR_STAGES][PAIR_SCALE_BYTES];
    uint64_t stage_full[PAIR_STAGES];  /* even CTA: its loader, with the bytes of both; and a warp of each where they write scales */
    uint64_t stage_empty[PAIR_STAGES]; /* a commit, to both */
    uint64_t sums_full[2];             /* a commit, to both */
    uint64_t sums_free[2];             /* even CTA: eight warps of each */
    uint64_t overlap_free;             /* even CTA: of each the four warps whose columns lie in both sums */
    uint32_t tensor_memory, spare;
};
static_assert(sizeof(PairShared) <= PAIR_SHARED, "it fits");

#define FAULT(name) (arguments.fault == PAIR_FAULT_##name)
#ifdef __CUDACC__ /* ptxas takes no kernel with instructions for one CTA and for pairs */
#define ONE_CTA(name) false
#else
#define ONE_CTA(name) FAULT(name)
#endif
#define MEMBER __device__ __forceinline__

DEVICE void wait(uint32_t barrier, uint32_t parity) {
    while (!mbarrier_try_wait_parity(barrier, parity)) {
    }
}
/* For what the other CTA's threads have arrived with. */
DEVICE void wait_cluster(uint32_t barrier, uint32_t parity) {
    while (!mbarrier_try_wait_parity_acquire_cluster(barrier, parity)) {
    }
}

template <bool MX> struct PairGemm {
    static constexpr uint32_t element_bytes = MX ? 1 : 2, block = PAIR_BLOCK_BYTES / element_bytes;
    static constexpr uint32_t loaded_bytes = 2 * PAIR_OPERAND_BYTES;

    PairShared *shared;
    const PairArguments &arguments;
    uint32_t rank, tiles, first_tile, tile_step;

    MEMBER PairGemm(PairShared *s, const PairArguments &arguments_)
        : shared(s), arguments(arguments_), rank(cluster_ctarank()), tiles(arguments_.row_tiles * arguments_.column_tiles),
          first_tile(clusterid_x()), tile_step(nclusterid_x()) {}

    MEMBER uint32_t row_tile(uint32_t tile) const { return tile / arguments.column_tiles; }
    MEMBER uint32_t column_tile(uint32_t tile) const { return tile % arguments.column_tiles; }
    MEMBER bool peer() const { return rank == 1; }
    /* An address of the even CTA, where there are barriers that both CTAs' work is counted on. */
    MEMBER uint32_t in_leader(const void *of) const { return mapa_shared_cluster(shared_address(of), 0); }

    /* ---- loads, by one thread of each CTA ---- */

    /* Until the products that read the stage the last time have ended. */
    MEMBER void wait_empty(uint32_t i) const {
        wait(shared_address(&shared->stage_empty[i % PAIR_STAGES]), (i / PAIR_STAGES & 1) ^ 1);
    }

    /* The scales of the CTA's own rows; of B's columns one atom, which both CTAs get. */
    MEMBER void load_scales(uint32_t tile, uint32_t k, uint32_t stage, uint32_t full) const {
        const uint32_t to = shared_address(shared->scales[stage]);
        const uint32_t rows = row_tile(tile) * 2 + (FAULT(scales_of_a_of_the_peer) ? rank ^ 1 : rank);
        const uint32_t half = FAULT(scale_atoms_of_b_swapped) ? rank ^ 1 : rank;
        cp_async_bulk_tensor_2d_load_pair(to, &arguments.a_scales, 0, (int32_t)(rows * arguments.k_blocks + k), full);
        const int32_t atom = (int32_t)((column_tile(tile) * arguments.k_blocks + k) * 2 + half);
        cp_async_bulk_tensor_2d_load_pair_multicast(to + (1 + rank) * PAIR_ATOM_BYTES, &arguments.b_scales, 0, atom, full,
                                                    FAULT(scales_of_b_in_one_cta) ? 1 : 3);
    }

    MEMBER uint32_t expected_bytes() const {
        uint32_t bytes = 2 * loaded_bytes;
        if (MX && !arguments.scales_by_threads) bytes += 2 * PAIR_SCALE_BYTES;
        if (FAULT(scales_of_b_in_one_cta)) bytes -= 2 * PAIR_ATOM_BYTES;
        if (FAULT(peers_a_not_loaded) || FAULT(half_of_b_missing)) bytes -= PAIR_OPERAND_BYTES;
        return FAULT(bytes_of_one_cta_expected) ? bytes / 2 : bytes;
    }

    MEMBER void load_stage(uint32_t tile, uint32_t k, uint32_t stage, uint32_t full) const {
        const int32_t x = (int32_t)(k * block), rows = (int32_t)(row_tile(tile) * PAIR_ROWS + rank * 128);
        const uint32_t half = FAULT(halves_of_b_swapped) ? rank ^ 1 : FAULT(all_of_b_in_each) ? 0 : rank;
        const int32_t columns = (int32_t)(column_tile(tile) * PAIR_COLUMNS + half * 128);
        const uint32_t a = shared_address(shared->a[stage]), b = shared_address(shared->b[stage]);
        if (FAULT(load_of_one_cta)) cp_async_bulk_tensor_2d_load(a, &arguments.a, x, rows, full);
        else if (!FAULT(peers_a_not_loaded) || !peer()) cp_async_bulk_tensor_2d_load_pair(a, &arguments.a, x, rows, full);
        if (!FAULT(half_of_b_missing) || !peer()) cp_async_bulk_tensor_2d_load_pair(b, &arguments.b, x, columns, full);
        if (MX && !arguments.scales_by_threads) load_scales(tile, k, stage, full);
    }

    MEMBER void loader() const {
        uint32_t i = 0;
        for (uint32_t tile = first_tile; tile < tiles; tile += tile_step)
            for (uint32_t k = 0; k < arguments.k_blocks; k++, i++) {
                const uint32_t stage = i % PAIR_STAGES;
                if (!FAULT(empty_wait_dropped) && !(FAULT(peers_empty_wait_dropped) && peer())) wait_empty(i);
                if (!peer()) mbarrier_arrive_expect_tx(shared_address(&shared->stage_full[stage]), expected_bytes());
                const uint64_t *full = &shared->stage_full[stage];
                load_stage(tile, k, stage, FAULT(bytes_counted_at_the_peer) ? shared_address(full) : in_leader(full));
            }
        /* neither CTA may end before the last commits have arrived */
        const bool leaves = (FAULT(peer_exits_early) || FAULT(last_commits_not_awaited)) && peer();
        for (uint32_t last = i + PAIR_STAGES; i < last && !leaves; i++)
            if (i >= PAIR_STAGES) wait_empty(i);
    }

    /* By a warp of each CTA: what a quantising epilogue of the same kernel would write. */
    MEMBER void scale_writer(uint32_t lane) const {
        uint32_t i = 0;
        for (uint32_t tile = first_tile; tile < tiles; tile += tile_step)
            for (uint32_t k = 0; k < arguments.k_blocks; k++, i++) {
                const uint32_t stage = i % PAIR_STAGES, full = in_leader(&shared->stage_full[stage]);
                const uint32_t *a = (const uint32_t *)(arguments.a_atoms + ((row_tile(tile) * 2 + rank) * arguments.k_blocks + k) * 512);
                const uint32_t *b = (const uint32_t *)(arguments.b_atoms + (column_tile(tile) * arguments.k_blocks + k) * 1024);
                uint32_t *to = (uint32_t *)shared->scales[stage];
                wait_empty(i);
                for (uint32_t w = lane; w < 128; w += 32) to[w] = ld_global_nc_u32(a + w);
                for (uint32_t w = lane; w < 256; w += 32) to[128 + w] = ld_global_nc_u32(b + w);
                if (!(FAULT(peers_proxy_fence_dropped) && peer())) fence_proxy_async_shared_cta();
                warp_sync();
                if (lane) continue;
                if (FAULT(peers_scales_by_plain_arrival)) mbarrier_arrive_cluster(full);
                else mbarrier_arrive_release_cluster(full);
            }
    }

    /* ---- products, by one thread of the even CTA ---- */

    MEMBER uint32_t slot(uint32_t n) const {
        const uint32_t second = MX && !FAULT(slot_behind_the_first) ? PAIR_SLOT_MX : PAIR_SLOT_BF16;
        return (n & 1) * second;
    }
    MEMBER uint32_t scale_set(uint32_t tensor_memory, uint32_t i) const {
        return tensor_memory + PAIR_SCALES + (FAULT(one_set_of_scales) ? 0 : i & 1) * PAIR_SCALE_SET;
    }

    MEMBER void copy_scales(uint32_t to, uint32_t stage) const {
        const uint32_t from = shared_address(shared->scales[stage]);
        for (uint32_t atom = 0; atom < (FAULT(second_atom_not_copied) ? 2 : 3); atom++) {
            const uint64_t source = scale_descriptor(from + atom * PAIR_ATOM_BYTES);
            if (ONE_CTA(copy_of_one_cta)) tcgen05_cp_32x128b_warpx4(to + atom * SCALE_ATOM_COLUMNS, source);
            else tcgen05_cp_32x128b_warpx4_pair(to + atom * SCALE_ATOM_COLUMNS, source);
        }
    }

    MEMBER uint32_t word(uint32_t k) const {
        const uint32_t m = FAULT(m_of_one_cta) ? 128 : PAIR_ROWS, n = FAULT(n_of_248) ? 248 : FAULT(n_of_224) ? 224 : PAIR_COLUMNS;
        const uint32_t id = FAULT(scale_ids_constant) ? 0 : k;
        return MX ? instruction_word_scaled(m, n, FORMAT_E4M3, FORMAT_E4M3, 0, 0, id, id)
                  : instruction_word(m, n, FORMAT_BF16, FORMAT_BF16, 0, 0);
    }

    MEMBER void products_of_stage(uint32_t sums, uint32_t scales, uint32_t stage, bool first) const {
        const uint64_t a = matrix_descriptor_k_major(shared_address(shared->a[stage]), 128, 128);
        const uint64_t b = matrix_descriptor_k_major(shared_address(shared->b[stage]), 128, 128);
        for (uint32_t k = 0; k < 4; k++) {
            const uint64_t a_at = matrix_descriptor_advance(a, 32 * k), b_at = matrix_descriptor_advance(b, 32 * k);
            const uint32_t accumulate = !first || k;
            if (ONE_CTA(products_of_one_cta)) tcgen05_mma_f16_ss(sums, a_at, b_at, word(k), accumulate);
            else if (MX) tcgen05_mma_mxf8f6f4_ss_pair(sums, a_at, b_at, word(k), scales, scales + SCALE_ATOM_COLUMNS, accumulate);
            else tcgen05_mma_f16_ss_pair(sums, a_at, b_at, word(k), accumulate);
        }
    }

    MEMBER void commit(const void *barrier, bool dropped, bool to_one) const {
        const uint32_t at = shared_address(barrier);
        if (dropped) return;
        if (ONE_CTA(commit_of_one_cta)) tcgen05_commit_multicast(at, 3);
        else tcgen05_commit_pair(at, to_one ? 1 : FAULT(commit_mask_beyond) ? 7 : 3);
    }

    MEMBER void wait_epilogue(const void *barrier, uint32_t parity) const {
        if (arguments.plain_arrivals || FAULT(wait_at_cta_scope)) wait(shared_address(barrier), parity);
        else wait_cluster(shared_address(barrier), parity);
    }

    /* The epilogue has read what the tile's first product overwrites: of the tile before the last one all, of the last one the columns that
       lie in both. */
    MEMBER void wait_for_columns(uint32_t n) const {
        if (!FAULT(sums_free_wait_dropped)) wait_epilogue(&shared->sums_free[n & 1], (n / 2 & 1) ^ 1);
        if (MX && n && !FAULT(overlap_wait_dropped)) wait_epilogue(&shared->overlap_free, (n - 1) & 1);
        if (!FAULT(fence_after_free_dropped)) tcgen05_fence_after_thread_sync();
    }

    MEMBER void multiplier(uint32_t tensor_memory) const {
        uint32_t i = 0, n = 0;
        for (uint32_t tile = first_tile; tile < tiles; tile += tile_step, n++) {
            wait_for_columns(n);
            for (uint32_t k = 0; k < arguments.k_blocks; k++, i++) {
                const uint32_t stage = i % PAIR_STAGES, scales = scale_set(tensor_memory, i);
                const uint32_t full = shared_address(&shared->stage_full[stage]);
                const uint32_t parity = i / PAIR_STAGES & 1;
                if (!FAULT(full_wait_dropped)) arguments.scales_by_threads ? wait_cluster(full, parity) : wait(full, parity);
                /* the set of scales of two steps before is read no more */
                if (MX && arguments.copies_wait && i >= 2 && !FAULT(copy_without_wait)) wait_empty(i - 2 + PAIR_STAGES);
                if (!FAULT(fence_after_free_dropped)) tcgen05_fence_after_thread_sync();
                if (FAULT(sums_commit_early) && k + 1 == arguments.k_blocks) commit(&shared->sums_full[n & 1], false, false);
                if (MX) copy_scales(scales, stage);
                products_of_stage(tensor_memory + slot(n), scales, stage, k == 0);
                commit(&shared->stage_empty[stage], FAULT(stage_commit_dropped), FAULT(stage_commit_to_one));
            }
            commit(&shared->sums_full[n & 1], FAULT(sums_commit_early), FAULT(sums_commit_to_one));
        }
    }

    /* ---- the epilogue: two groups of four warps, 128 columns each ---- */

    MEMBER void arrive(const void *barrier, uint32_t lane) const {
        if (!FAULT(fence_before_dropped)) tcgen05_fence_before_thread_sync();
        warp_sync();
        if (lane) return;
        if (arguments.plain_arrivals || FAULT(plain_arrival)) mbarrier_arrive_cluster(in_leader(barrier));
        else mbarrier_arrive_release_cluster(in_leader(barrier));
    }

    /* Number `c` of a group's four blocks of 32 columns: the one that lies in both sums comes first. */
    MEMBER uint32_t block_of(uint32_t n, uint32_t group, uint32_t c) const {
        const bool last_first = MX && (n & 1) == 0 && group == 1 && !FAULT(overlap_read_last);
        return last_first ? 3 - c : c;
    }
    MEMBER bool owns_overlap(uint32_t n, uint32_t group) const {
        return MX && group == (FAULT(overlap_by_the_other_group) ? n & 1 : (n & 1) ^ 1);
    }

    MEMBER void epilogue_block(uint32_t n, uint32_t group, uint32_t c, uint32_t address, uint8_t *chunk, uint32_t lane) const {
        uint32_t r[32];
        const bool overlap = c == 0 && owns_overlap(n, group), free = c == 3;
        tcgen05_ld_32x32b(r, address);
        if (overlap && FAULT(overlap_before_wait_ld)) arrive(&shared->overlap_free, lane);
        if (free && FAULT(sums_free_early)) arrive(&shared->sums_free[n & 1], lane);
        tcgen05_wait_ld();
        for (uint32_t j = 0; j < 32; j++) *(uint32_t *)(chunk + lane * 128 + ((j / 4 ^ lane % 8) * 16) + j % 4 * 4) = r[j];
        if (overlap && !FAULT(overlap_before_wait_ld)) arrive(&shared->overlap_free, lane);
        if (free && !FAULT(sums_free_early)) arrive(&shared->sums_free[n & 1], lane);
    }

    MEMBER void epilogue(uint32_t tensor_memory, uint32_t warp, uint32_t lane) const {
        const uint32_t group = warp / 4, quarter = warp % 4;
        uint32_t n = 0;
        for (uint32_t tile = first_tile; tile < tiles; tile += tile_step, n++) {
            const uint32_t sums = tensor_address(tensor_memory, quarter * 32, slot(n) + group * 128);
            wait(shared_address(&shared->sums_full[n & 1]), n / 2 & 1);
            if (!FAULT(fence_after_sums_dropped)) tcgen05_fence_after_thread_sync();
            for (uint32_t c = 0; c < 4; c++) {
                const uint32_t at = block_of(n, group, c) * 32;
                uint8_t *chunk = shared->chunk[warp][c & 1];
                if (lane == 0) cp_async_bulk_wait_group_read<1>(); /* the chunk's last store has read it */
                warp_sync();
                epilogue_block(n, group, c, sums + at, chunk, lane);
                fence_proxy_async_shared_cta();
                warp_sync();
                if (lane) continue;
                cp_async_bulk_tensor_3d_store(&arguments.c, (int32_t)(column_tile(tile) * PAIR_COLUMNS + group * 128 + at),
                                              (int32_t)(row_tile(tile) * PAIR_ROWS + rank * 128 + quarter * 32), 0, shared_address(chunk));
                cp_async_bulk_commit_group();
            }
        }
        if (lane == 0) cp_async_bulk_wait_group<0>();
        warp_sync();
    }

    /* ---- tensor memory, by a warp of each CTA ---- */

    MEMBER void allocate() const {
        const uint32_t to = shared_address(&shared->tensor_memory);
        if (FAULT(allocation_in_one_cta) && peer()) return;
        if (ONE_CTA(allocation_of_one_cta)) tcgen05_alloc(to, 512);
        else tcgen05_alloc_pair(to, FAULT(allocation_differs) && peer() ? 256 : 512);
        if (!FAULT(relinquish_in_one_cta) || !peer()) tcgen05_relinquish_alloc_permit_pair();
    }
    MEMBER void deallocate(uint32_t tensor_memory) const {
        if ((FAULT(deallocation_in_one_cta) && peer()) || FAULT(deallocation_dropped)) return;
        if (ONE_CTA(deallocation_of_one_cta)) tcgen05_dealloc(tensor_memory, 512);
        else tcgen05_dealloc_pair(tensor_memory, 512);
    }

    MEMBER void run(uint32_t warp, uint32_t lane) const {
        if (warp == 2) allocate();
        if (warp == 3 && FAULT(allocation_by_two_warps)) tcgen05_alloc_pair(shared_address(&shared->spare), 512);
        bar_sync_all();
        const uint32_t tensor_memory = shared_load_u32(shared_address(&shared->tensor_memory));
        if (warp == 0 && lane == 0) loader();
        if (warp == 1 && lane == 0 && !peer()) multiplier(tensor_memory);
        const uint32_t scales = tensor_memory + PAIR_SCALES;
        if (warp == 1 && lane == 0 && peer() && FAULT(copy_by_the_peer)) copy_scales(scales, 0);
        if (warp == 1 && lane == 0 && peer() && FAULT(products_by_the_peer)) products_of_stage(tensor_memory, scales, 0, true);
        if (warp == 3 && MX && arguments.scales_by_threads) scale_writer(lane);
        if (warp >= 4) epilogue(tensor_memory, warp - 4, lane);
        warp_sync();
        if (FAULT(peer_exits_early) && peer()) return;
        if (!FAULT(deallocation_before_cluster)) {
            barrier_cluster_arrive_release();
            barrier_cluster_wait_acquire();
        }
        if (warp == 2) deallocate(tensor_memory);
    }
};

template <bool MX> DEVICE void pair_gemm(const PairArguments &arguments, uint8_t *bytes) {
    PairShared *shared = (PairShared *)bytes;
    if (threadIdx.x == 0) {
        for (int i = 0; i < PAIR_STAGES; i++) {
            mbarrier_init(shared_address(&shared->stage_full[i]), MX && arguments.scales_by_threads ? 3 : 1);
            mbarrier_init(shared_address(&shared->stage_empty[i]), 1);
        }
        for (int i = 0; i < 2; i++) {
            mbarrier_init(shared_address(&shared->sums_full[i]), 1);
            mbarrier_init(shared_address(&shared->sums_free[i]), FAULT(sums_free_of_one_cta) ? 8 : 16);
        }
        mbarrier_init(shared_address(&shared->overlap_free), FAULT(overlap_of_one_cta) ? 4 : 8);
        fence_mbarrier_init_release_cluster();
    }
    barrier_cluster_arrive_release();
    barrier_cluster_wait_acquire();
    PairGemm<MX>(shared, arguments).run(threadIdx.x / 32, threadIdx.x % 32);
}

extern "C" __global__ void __launch_bounds__(PAIR_THREADS, 1) pair_bf16_kernel(const __grid_constant__ PairArguments arguments) {
    extern __shared__ __align__(1024) uint8_t shared_bytes[];
    pair_gemm<false>(arguments, shared_bytes);
}
extern "C" __global__ void __launch_bounds__(PAIR_THREADS, 1) pair_mxfp8_kernel(const __grid_constant__ PairArguments arguments) {
    extern __shared__ __align__(1024) uint8_t shared_bytes[];
    pair_gemm<true>(arguments, shared_bytes);
}
