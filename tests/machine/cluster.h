/* The second kernel in which faults are planted: what CTAs of a cluster do with each other's shared memory. cluster.cu, test_machine.cc */
#ifndef MACHINE_CLUSTER_H
#define MACHINE_CLUSTER_H

#include <cuda.h>
#include <stdint.h>

enum {
    CLUSTER_THREADS = 128,
    CLUSTER_BLOCKS = 5,  /* tiles of 64 x 64 that go through two stages */
    CLUSTER_ROUNDS = 5,  /* messages of 2 KB to the next CTA, through two buffers */
    CLUSTER_COLUMNS = 48 /* of the product of a tile with its own first rows */
};

/* name, what must be reported: a rule of the model, or the kind where several rules see it */
#define CLUSTER_FAULTS(X)                                                                                                                  \
    X(none, "")                                                                                                                            \
    X(message_bytes_short, "tx-count:end")                                                                                                 \
    X(message_lane_missing, "deadlock")                                                                                                    \
    X(message_counted_at_home, "mbarrier:place")                                                                                           \
    X(message_misaligned, "misaligned:access")                                                                                             \
    X(message_wait_dropped, "uninitialised:ordinary")                                                                                      \
    X(message_wait_phase_off, "race")                                                                                                      \
    X(message_buffer_reused_early, "race")                                                                                                 \
    X(message_left_without_warp_sync, "race")                                                                                              \
    X(message_left_by_one_warp, "race")                                                                                                    \
    X(message_not_left, "deadlock")                                                                                                        \
    X(remote_expect_dropped, "deadlock")                                                                                                   \
    X(remote_expect_twice, "deadlock")                                                                                                     \
    X(remote_store_by_local_instruction, "out-of-bounds:window")                                                                           \
    X(remote_store_not_released, "race:read")                                                                                              \
    X(remote_store_after_arrival, "race:read")                                                                                             \
    X(remote_store_wait_at_cta_scope, "race:read")                                                                                         \
    X(remote_load_before_barrier, "race")                                                                                                  \
    X(remote_load_not_released, "race")                                                                                                    \
    X(remote_load_overwritten, "race")                                                                                                     \
    X(multicast_mask_misses_one, "deadlock")                                                                                               \
    X(multicast_mask_of_other_group, "deadlock")                                                                                           \
    X(stage_left_to_too_few, "deadlock")                                                                                                   \
    X(stage_left_one_early, "race")                                                                                                        \
    X(wgmma_wait_one_too_few, "registers")                                                                                                 \
    X(exit_before_the_last_message, "cluster-exit:arrival")

enum ClusterFault {
#define X(name, kind) CLUSTER_FAULT_##name,
    CLUSTER_FAULTS(X)
#undef X
    CLUSTER_FAULT_COUNT
};

struct ClusterArguments {
    CUtensorMap tiles;  /* [blocks * 64][64] bf16, boxes of 64 / group rows */
    float *product;     /* [CTAs][64][48]: sum over tiles of tile . (its first 48 rows)^T */
    uint32_t *received; /* [CTAs][128][4]: sums over the rounds */
    uint32_t *mail;     /* [CTAs][128][4]: what the CTA before has stored, plus what was read from the CTA after */
    uint32_t group;     /* CTAs that share a tile by multicast: the cluster's size, at most 4 */
    int fault;
};
/* What thread `thread` of a CTA sends in a round. */
static inline uint32_t cluster_message(uint32_t cta, uint32_t round, uint32_t thread, uint32_t i) {
    return cta * 1000003u + round * 10007u + thread * 4 + i;
}

extern "C" void cluster_kernel(ClusterArguments arguments);

#endif
