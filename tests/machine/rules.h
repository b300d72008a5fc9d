/* The third kernel in which faults are planted: one misuse of an instruction each. rules.cu, test_machine.cc */
#ifndef MACHINE_RULES_H
#define MACHINE_RULES_H

#include <cuda.h>
#include <stdint.h>

enum { RULES_THREADS = 160 }; /* a warpgroup, and a warp that belongs to none */

/* name, what must be reported: a rule of the model, or the kind where several rules see it */
#define RULES_FAULTS(X)                                                                                                                    \
    X(none, "")                                                                                                                            \
    X(cluster_barrier_twice, "barrier:cluster")                                                                                            \
    X(named_barrier_16, "barrier:id")                                                                                                      \
    X(exit_while_copy_reads, "bulk-group:read")                                                                                            \
    X(store_to_ended_cta, "cluster-exit:access")                                                                                           \
    X(copy_to_ended_cta, "cluster-exit:copy")                                                                                              \
    X(too_many_copies, "limit")                                                                                                            \
    X(mbarrier_never_initialised, "mbarrier:initialised")                                                                                  \
    X(mbarrier_used_unordered, "mbarrier:order")                                                                                           \
    X(mbarrier_two_lanes_for_one, "mbarrier:lanes")                                                                                        \
    X(mbarrier_parity_2, "mbarrier:wait")                                                                                                  \
    X(mbarrier_of_other_cta, "mbarrier:window")                                                                                            \
    X(mbarrier_bytes_2_to_20, "tx-count")                                                                                                  \
    X(atomic_misaligned, "misaligned:atomic")                                                                                              \
    X(bulk_of_24_bytes, "misaligned:bulk")                                                                                                 \
    X(address_of_no_cta, "out-of-bounds:address")                                                                                          \
    X(pointer_into_other_cluster, "out-of-bounds:cluster")                                                                                 \
    X(atomic_on_a_local_variable, "out-of-bounds:global")                                                                                  \
    X(rank_2_of_2, "out-of-bounds:rank")                                                                                                   \
    X(tile_beyond_shared, "out-of-bounds")                                                                                                 \
    X(registers_20, "setmaxnreg:count")                                                                                                    \
    X(map_misaligned, "tensor-map:aligned")                                                                                                \
    X(store_before_the_tensor, "tensor-map:store")                                                                                         \
    X(reduce_of_bytes, "tensor-map:type")                                                                                                  \
    X(atomic_uninitialised, "uninitialised:atomic")                                                                                        \
    X(warp_sync_with_ended_lane, "warp:ended")                                                                                             \
    X(lane_with_an_instruction_more, "warp:sequence")                                                                                      \
    X(wgmma_not_waited_for, "wgmma:end")                                                                                                   \
    X(wgmma_by_the_fifth_warp, "wgmma:group")                                                                                              \
    X(wgmma_descriptors_differ, "wgmma:same")                                                                                              \
    X(wgmma_of_264_columns, "wgmma:shape")                                                                                                 \
    X(wgmma_wait_group_8, "wgmma:wait")

enum RulesFault {
#define X(name, kind) RULES_FAULT_##name,
    RULES_FAULTS(X)
#undef X
    RULES_FAULT_COUNT
};

struct RulesArguments {
    CUtensorMap map, bytes_map; /* of `tile`, 64 rows of 64 bf16 or of 128 bytes; boxes of all of it, 128-byte swizzle */
    alignas(64) uint8_t shifted_map[sizeof(CUtensorMap) + 64]; /* `map` 16 bytes behind the start */
    uint16_t *tile;
    uint32_t *words;     /* 64, zero */
    uint32_t *unwritten; /* 64, uninitialised */
    int fault;
};

extern "C" void rules_kernel(RulesArguments arguments);

#endif
