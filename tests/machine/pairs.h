/* The kernel that runs what is modelled of pairs of CTAs, and the faults planted in it. pairs.cu, test_pairs.cc */
#ifndef MACHINE_PAIRS_H
#define MACHINE_PAIRS_H

#include <cuda.h>
#include <stdint.h>

enum {
    PAIR_THREADS = 384,            /* warp 0 loads, 1 multiplies, 2 allocates, 3 may write scales, 4 to 11 are two groups of the epilogue */
    PAIR_STAGES = 3,
    PAIR_ROWS = 256,               /* of a tile of C: 128 of each CTA */
    PAIR_COLUMNS = 256,            /* of which each CTA loads half of B's rows */
    PAIR_BLOCK_BYTES = 128,        /* along K, of a stage */
    PAIR_OPERAND_BYTES = 128 * PAIR_BLOCK_BYTES,
    PAIR_ATOM_BYTES = 512,
    PAIR_SCALE_BYTES = 3 * PAIR_ATOM_BYTES, /* of a CTA's rows of A, of all columns */
    PAIR_CHUNK_BYTES = 32 * 128,   /* of C: 32 rows of 32 floats */
    PAIR_SHARED = PAIR_STAGES * (2 * PAIR_OPERAND_BYTES + PAIR_SCALE_BYTES) + 8 * 2 * PAIR_CHUNK_BYTES + 256
};

/* Tensor memory: two logical sums. In bf16 they lie side by side. In MXFP8 there must be room for two sets of scales: the sums share
   columns 224 to 255, which the epilogue reads first. */
enum {
    PAIR_SLOT_MX = 224,
    PAIR_SLOT_BF16 = 256,
    PAIR_SCALES = 480,
    PAIR_SCALE_SET = 12 /* columns: of A, of two atoms of B */
};

/* name; what must be reported: a rule of the model, or the kind where several rules see it. The peer is the CTA of odd rank. */
#define PAIR_FAULTS(X) \
    X(none, "") \
    X(peers_a_not_loaded, "uninitialised") \
    X(halves_of_b_swapped, "numbers") \
    X(half_of_b_missing, "uninitialised") \
    X(all_of_b_in_each, "numbers") \
    X(scales_of_b_in_one_cta, "uninitialised") \
    X(scales_of_a_of_the_peer, "numbers") \
    X(scale_atoms_of_b_swapped, "numbers") \
    X(scale_ids_constant, "numbers") \
    X(second_atom_not_copied, "uninitialised:tensor-memory") \
    X(copy_by_the_peer, "tcgen05-group:leader") \
    X(products_by_the_peer, "tcgen05-group:leader") \
    X(copy_without_wait, "race:tensor-memory") \
    X(one_set_of_scales, "race:tensor-memory") \
    X(copy_of_one_cta, "tcgen05-group:mixed") \
    X(products_of_one_cta, "tcgen05-group:mixed") \
    X(commit_of_one_cta, "tcgen05-group:mixed") \
    X(allocation_of_one_cta, "tcgen05-group:mixed") \
    X(deallocation_of_one_cta, "tcgen05-group:mixed") \
    X(stage_commit_to_one, "deadlock") \
    X(sums_commit_to_one, "deadlock") \
    X(stage_commit_dropped, "deadlock") \
    X(commit_mask_beyond, "multicast") \
    X(sums_commit_early, "race:tensor-memory") \
    X(bytes_counted_at_the_peer, "deadlock") \
    X(bytes_of_one_cta_expected, "deadlock") \
    X(load_of_one_cta, "mbarrier:place") \
    X(full_wait_dropped, "race") \
    X(empty_wait_dropped, "mbarrier") \
    X(peers_empty_wait_dropped, "race") \
    X(overlap_wait_dropped, "race:tensor-memory") \
    X(overlap_read_last, "race:tensor-memory") \
    X(overlap_by_the_other_group, "race:tensor-memory") \
    X(overlap_before_wait_ld, "race:tensor-memory") \
    X(overlap_of_one_cta, "race:tensor-memory") \
    X(sums_free_wait_dropped, "race:tensor-memory") \
    X(sums_free_of_one_cta, "race:tensor-memory") \
    X(sums_free_early, "race:tensor-memory") \
    X(slot_behind_the_first, "race:tensor-memory") \
    X(fence_before_dropped, "tcgen05-fence") \
    X(fence_after_sums_dropped, "tcgen05-fence") \
    X(fence_after_free_dropped, "tcgen05-fence") \
    X(plain_arrival, "tcgen05-fence") \
    X(peers_proxy_fence_dropped, "proxy") \
    X(peers_scales_by_plain_arrival, "race") \
    X(wait_at_cta_scope, "tcgen05-fence") \
    X(allocation_in_one_cta, "deadlock") \
    X(allocation_differs, "tensor-memory:pair") \
    X(allocation_by_two_warps, "tensor-memory:pair") \
    X(relinquish_in_one_cta, "deadlock") \
    X(deallocation_in_one_cta, "cluster-exit:pair") \
    X(deallocation_dropped, "tensor-memory-leak") \
    X(deallocation_before_cluster, "race:tensor-memory") \
    X(peer_exits_early, "cluster-exit") \
    X(last_commits_not_awaited, "tcgen05-commit:awaited") \
    X(m_of_one_cta, "descriptor:word-m") \
    X(n_of_248, "descriptor:word-n") \
    X(n_of_224, "uninitialised:tensor-memory")

enum PairFault {
#define X(name, rule) PAIR_FAULT_##name,
    PAIR_FAULTS(X)
#undef X
    PAIR_FAULT_COUNT
};

/* C[rows, columns] = A[rows, inner] B[columns, inner]^T, in float32. */
struct PairArguments {
    CUtensorMap a, b, c;              /* boxes: 128 rows of 128 bytes of A and B, 32 x 32 x 1 of C */
    CUtensorMap a_scales, b_scales;   /* boxes: an atom of 512 bytes. [row tile of 128][block]; [column tile of 256][block][2] */
    const uint8_t *a_atoms, *b_atoms; /* the same */
    uint32_t row_tiles, column_tiles; /* of 256 */
    uint32_t k_blocks;
    uint32_t scales_by_threads; /* to shared memory, by a warp of each CTA */
    uint32_t plain_arrivals;    /* of the epilogue: without .release.cluster */
    uint32_t copies_wait;       /* a set of scales is overwritten when the products that read it have ended */
    int fault;
};

#endif
