/* The kernels that run what is modelled of Blackwell, and the faults planted in them. blackwell.cu, test_blackwell.cc */
#ifndef MACHINE_BLACKWELL_H
#define MACHINE_BLACKWELL_H

#include <cuda.h>
#include <stdint.h>

enum {
    BLACKWELL_THREADS = 256,      /* warp 0 loads, 1 multiplies, 2 may bring scales, 4 to 7 are the epilogue */
    BLACKWELL_STAGES = 3,
    BLACKWELL_COLUMNS = 192,      /* of a tile of C */
    BLACKWELL_BLOCK_BYTES = 128,  /* along K, of a stage */
    BLACKWELL_A_BYTES = 128 * BLACKWELL_BLOCK_BYTES,
    BLACKWELL_B_BYTES = 256 * BLACKWELL_BLOCK_BYTES,
    BLACKWELL_SCALE_BYTES = 512 + 1024, /* of A, of B: a tile of 192 columns begins an atom of its own */
    BLACKWELL_CHUNK_BYTES = 32 * 128,   /* of C: 32 rows of 32 floats */
    BLACKWELL_SHARED =
        BLACKWELL_STAGES * (BLACKWELL_A_BYTES + BLACKWELL_B_BYTES + BLACKWELL_SCALE_BYTES) + 4 * 2 * BLACKWELL_CHUNK_BYTES + 128
};

/* name; what must be reported: a rule of the model, or the kind where several rules see it */
#define BLACKWELL_FAULTS(X) \
    X(none, "") \
    X(full_wait_dropped, "race") \
    X(empty_wait_dropped, "mbarrier") \
    X(scales_not_copied, "uninitialised:tensor-memory") \
    X(second_scale_atom_not_copied, "uninitialised:tensor-memory") \
    X(scale_columns_shared_by_stages, "race:tensor-memory") \
    X(scale_columns_off, "uninitialised:tensor-memory") \
    X(scale_id_of_a_constant, "numbers") \
    X(scale_id_of_b_constant, "numbers") \
    X(scale_ids_off_by_one, "numbers") \
    X(scales_of_one_quarter, "scales") \
    X(scale_proxy_fence_dropped, "proxy") \
    X(first_product_accumulates, "uninitialised:tensor-memory") \
    X(products_do_not_accumulate, "numbers") \
    X(k_step_off, "numbers") \
    X(shape_changes, "race:tensor-memory") \
    X(stage_commit_dropped, "deadlock") \
    X(accumulator_commit_dropped, "deadlock") \
    X(accumulator_commit_early, "race:tensor-memory") \
    X(commit_to_another_barrier, "deadlock") \
    X(commit_twice, "deadlock") \
    X(copy_after_last_commit, "tcgen05-commit:missing") \
    X(last_commits_not_awaited, "tcgen05-commit:awaited") \
    X(accumulator_wait_dropped, "race:tensor-memory") \
    X(accumulator_fence_after_dropped, "tcgen05-fence") \
    X(wait_ld_dropped, "race:tensor-memory") \
    X(fence_before_release_dropped, "tcgen05-fence") \
    X(release_before_last_load, "race:tensor-memory") \
    X(release_wait_dropped, "race:tensor-memory") \
    X(release_fence_after_dropped, "tcgen05-fence") \
    X(stage_fence_after_dropped, "tcgen05-fence") \
    X(one_buffer_of_accumulators, "race:tensor-memory") \
    X(load_other_lanes, "tensor-memory:lanes") \
    X(load_lane_zero, "tensor-memory:lanes") \
    X(load_beyond_columns, "out-of-bounds:tensor-memory") \
    X(load_different_addresses, "tensor-memory:warp") \
    X(product_at_lane_32, "tensor-memory:lanes") \
    X(allocation_of_48, "tensor-memory:columns") \
    X(allocation_too_small, "out-of-bounds:tensor-memory") \
    X(allocation_increases, "tensor-memory:increase") \
    X(allocation_after_relinquish, "tensor-memory:relinquished") \
    X(allocation_beyond_512, "deadlock") \
    X(allocation_by_half_a_warp, "deadlock") \
    X(allocation_lanes_disagree, "tensor-memory:warp") \
    X(allocation_misaligned, "misaligned:access") \
    X(allocation_read_without_barrier, "race") \
    X(deallocation_dropped, "tensor-memory-leak") \
    X(deallocation_of_half, "tensor-memory:dealloc") \
    X(deallocation_twice, "tensor-memory:dealloc") \
    X(deallocation_early, "race:tensor-memory")

/* Where another thread than the one that multiplies copies the scales to tensor memory. */
#define APART_FAULTS(X) \
    X(apart_none, "") \
    X(apart_fence_before_dropped, "tcgen05-fence") \
    X(apart_fence_after_dropped, "tcgen05-fence") \
    X(apart_wait_dropped, "race:tensor-memory") \
    X(apart_not_committed, "tcgen05-commit:missing")

/* In clusters of two CTAs, which share B. */
#define CLUSTER_FAULTS(X) \
    X(cluster_none, "") \
    X(cluster_commit_to_one, "deadlock") \
    X(cluster_commit_mask_beyond, "multicast") \
    X(cluster_count_of_one, "race") \
    X(cluster_exit_early, "tcgen05-commit:awaited") \
    X(cluster_exit_without_epilogue, "cluster-exit:commit")

/* Of the kernel that multiplies twice. */
#define CHAIN_FAULTS(X) \
    X(chain_none, "") \
    X(chain_address_assumed, "out-of-bounds:tensor-memory") \
    X(chain_columns_kept_from_another_cta, "deadlock") \
    X(chain_wait_st_dropped, "race:tensor-memory") \
    X(chain_fence_before_dropped, "tcgen05-fence") \
    X(chain_fence_after_dropped, "tcgen05-fence") \
    X(chain_wait_dropped, "race:tensor-memory") \
    X(chain_store_other_lanes, "tensor-memory:lanes") \
    X(chain_operand_columns_off, "numbers") \
    X(chain_operand_overlaps, "race:tensor-memory") \
    X(chain_operand_transposed, "descriptor:word-transposed-a") \
    X(chain_operand_lane, "tensor-memory:lanes") \
    X(chain_result_read_early, "race:tensor-memory")

enum BlackwellFault {
#define X(name, rule) FAULT_##name,
    BLACKWELL_FAULTS(X) APART_FAULTS(X) CLUSTER_FAULTS(X) CHAIN_FAULTS(X)
#undef X
    BLACKWELL_FAULT_COUNT
};

enum { SCALES_BY_COPY_ENGINE, SCALES_BY_THREADS, SCALES_APART }; /* to shared memory; APART: and from there by another thread */

/* C[rows, columns] = A[rows, inner] B[columns, inner]^T, in float32. */
struct BlackwellArguments {
    CUtensorMap a, b, c;                /* boxes: panels of A and B, 32 x (32 or 16) x 1 of C */
    const uint8_t *a_scales, *b_scales; /* [row tile][block of 128 along K] atoms; [column tile][block] pairs of atoms */
    uint32_t row_tiles, column_tiles, k_blocks;
    uint32_t a_width, b_width;           /* of the panels in shared memory: 128, 64, 32 or 16 bytes */
    uint32_t a_transposed, b_transposed; /* 1: stored [inner, rows], [inner, columns] */
    uint32_t a_format, b_format;
    uint32_t scales;    /* how they get to tensor memory */
    uint32_t cluster;   /* 1 or 2 CTAs; 2: a row tile each, one column tile, B in one panel; each loads half of B for both */
    uint32_t flip_word; /* exclusive-ored with what is right, for planted faults */
    uint64_t flip_a, flip_b, flip_scales;
    int fault;
};

enum { CHAIN_KEYS = 80, CHAIN_WIDTH = 64, CHAIN_SHARED = 64 + 128 * 128 + 2 * CHAIN_KEYS * 128 };

/* O[128, 64] = bf16(Q[128, 64] K[keys, 64]^T) V[keys, 64], all bf16 but O; the first product goes back to tensor memory and is A of the
   second. */
struct ChainArguments {
    CUtensorMap q, k, v; /* boxes: 64 x 128, 64 x CHAIN_KEYS */
    float *o;
    uint32_t halves; /* 1: two products of 64 rows instead of one of 128, in the two halves of each quarter of the lanes */
    int fault;
};

void test_blackwell_constants(void);

#endif
