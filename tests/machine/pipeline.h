/* The kernel in which faults are planted: a small copy of what the real kernels do, on every primitive that they use. pipeline.cu,
   test_machine.cc */
#ifndef MACHINE_PIPELINE_H
#define MACHINE_PIPELINE_H

#include <cuda.h>
#include <stdint.h>

enum {
    PIPELINE_STAGES = 2,
    PIPELINE_BLOCKS = 5,             /* of 64 along K */
    PIPELINE_THREADS = 256, /* warpgroup 0: loader, storer; warpgroup 1: math */
    PIPELINE_REGISTERS = 128,        /* a thread at launch: 40 and 208 afterwards */
    PIPELINE_GRID = 4,               /* two clusters of two CTAs */
    PIPELINE_ROWS = 128,             /* of A, of C: 64 a CTA of cluster 0 */
    PIPELINE_COLUMNS = 64,           /* of C: rows of B */
    PIPELINE_INNER = 64 * PIPELINE_BLOCKS
};

/* name, what must be reported: a rule of the model, or the kind where several rules see it */
#define PIPELINE_FAULTS(X)                                                                                                                 \
    X(none, "")                                                                                                                            \
    X(no_fence_after_mbarrier_init, "mbarrier:fence")                                                                                      \
    X(no_barrier_after_mbarrier_init, "mbarrier")                                                                                          \
    X(mbarrier_initialised_twice, "mbarrier:once")                                                                                         \
    X(mbarrier_overwritten, "mbarrier:data")                                                                                               \
    X(mbarrier_misaligned, "mbarrier:address")                                                                                             \
    X(one_arrival_too_many, "mbarrier:count")                                                                                              \
    X(bytes_16_too_many, "deadlock")                                                                                                       \
    X(bytes_16_too_few, "deadlock")                                                                                                        \
    X(full_wait_dropped, "race")                                                                                                           \
    X(full_wait_phase_off, "race")                                                                                                         \
    X(empty_wait_dropped, "mbarrier:count")                                                                                                \
    X(empty_wait_phase_off, "deadlock")                                                                                                    \
    X(empty_count_too_small, "race")                                                                                                       \
    X(empty_count_too_large, "deadlock")                                                                                                   \
    X(stage_left_before_wgmma_wait, "race")                                                                                                \
    X(one_warp_leaves_for_all, "race:async-write")                                                                                         \
    X(peer_not_told, "deadlock")                                                                                                           \
    X(wgmma_wait_dropped, "registers")                                                                                                     \
    X(wgmma_commit_dropped, "registers")                                                                                                   \
    X(wgmma_fence_dropped, "wgmma-fence")                                                                                                  \
    X(wgmma_by_three_warps, "deadlock")                                                                                                    \
    X(descriptor_start_off, "descriptor:pattern")                                                                                          \
    X(descriptor_start_off_pattern, "descriptor:pattern")                                                                                  \
    X(descriptor_stride_off, "numbers")                                                                                                    \
    X(descriptor_swizzle_64, "numbers")                                                                                                    \
    X(descriptor_swizzle_none, "numbers")                                                                                                  \
    X(descriptor_base_offset, "descriptor:base-offset")                                                                                    \
    X(descriptor_stray_bit, "descriptor:field")                                                                                            \
    X(descriptor_beyond_shared, "out-of-bounds:async")                                                                                     \
    X(descriptor_k_step_off, "numbers")                                                                                                    \
    X(transposed_stride_off, "numbers")                                                                                                    \
    X(transposed_k_step_off, "uninitialised:async")                                                                                        \
    X(proxy_fence_before_store_dropped, "proxy:read")                                                                                      \
    X(warp_sync_before_store_dropped, "race:async-read")                                                                                   \
    X(store_wait_dropped, "race:async-read")                                                                                               \
    X(store_wait_only_read, "race:async-read")                                                                                             \
    X(store_not_committed, "bulk-group:commit")                                                                                            \
    X(chunk_reused_too_early, "race")                                                                                                      \
    X(signal_relaxed, "race:async-read")                                                                                                   \
    X(signal_before_store, "race:async-read")                                                                                              \
    X(signal_lost, "deadlock")                                                                                                             \
    X(poll_relaxed, "race:async-read")                                                                                                     \
    X(poll_fence_dropped, "race:async-read")                                                                                               \
    X(poll_threshold_small, "uninitialised:async")                                                                                         \
    X(poll_dropped, "uninitialised:async")                                                                                                 \
    X(proxy_fence_after_poll_dropped, "proxy:read")                                                                                        \
    X(proxy_fence_before_overwrite_dropped, "proxy:write")                                                                                 \
    X(overwrite_unordered, "race:async-write")                                                                                             \
    X(multicast_mask_one, "deadlock")                                                                                                      \
    X(multicast_mask_beyond, "multicast")                                                                                                  \
    X(early_exit, "cluster-exit:arrival")                                                                                                  \
    X(named_barrier_dropped, "race")                                                                                                       \
    X(named_barrier_count, "deadlock")                                                                                                     \
    X(named_barrier_mixed_counts, "barrier:count")                                                                                         \
    X(registers_beyond_budget, "deadlock")                                                                                                 \
    X(registers_decrease_upwards, "setmaxnreg:direction")                                                                                  \
    X(collective_by_half, "warp:meeting")                                                                                                  \
    X(generic_store_beyond, "out-of-bounds:ordinary")                                                                                      \
    X(shared_beyond, "out-of-bounds:ordinary")                                                                                             \
    X(shared_uninitialised, "uninitialised:ordinary")                                                                                      \
    X(stmatrix_misaligned, "misaligned:row")                                                                                               \
    X(stage_misaligned, "misaligned:tile")                                                                                                 \
    X(nc_load_of_written, "read-only:nc")                                                                                                  \
    X(weights_written, "read-only:ordinary")                                                                                               \
    X(map_box_short, "deadlock")                                                                                                           \
    X(map_swizzle_none, "numbers")                                                                                                         \
    X(map_wrong_rank, "tensor-map:rank")                                                                                                   \
    X(map_not_encoded, "tensor-map:encoded")                                                                                               \
    X(coordinate_off, "numbers")                                                                                                           \
    X(coordinate_not_16_bytes, "tensor-map:innermost")

enum PipelineFault {
#define X(name, kind) FAULT_##name,
    PIPELINE_FAULTS(X)
#undef X
    PIPELINE_FAULT_COUNT
};

struct PipelineArguments {
    CUtensorMap a, b, c_store, c_load; /* boxes: 64 x 64, 64 x 32, 64 x 64 x 1, 64 x 64 */
    uint32_t *flags;                   /* one for each CTA of cluster 0; then one for CTAs of cluster 1 */
    float *result;                     /* [2][64][64] of cluster 1 */
    const float *scale;                /* [64], read-only */
    uint16_t *c;
    int fault;
};

extern "C" void pipeline_kernel(PipelineArguments arguments);

#endif
