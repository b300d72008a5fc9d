/* megavit: what lies where in shared memory, and who arrives at which barrier. */
#ifndef MGV_THROUGHPUT_MEMORY_CUH
#define MGV_THROUGHPUT_MEMORY_CUH

#include "../tiles.cuh"

/* Barriers that a machine's products have beside these, let through as they are when a launch is given up. */
#ifndef MGV_PRODUCT_BARRIERS
#define MGV_PRODUCT_BARRIERS
enum { PRODUCT_BARRIER_BYTES = 0 };
#endif

struct SharedMemory {
    uint8_t stage[MGV__STAGES][MGV__STAGE_BYTES];                           /* the ring: loader -> math;
                                                                               SPLIT: math of one CTA -> that of the other */
    uint8_t chunk[MGV__MATH_GROUPS][MGV__CHUNKS][MGV__CHUNK_BYTES];         /* math <-> storer */
    float vectors[256];                                                     /* biases of the tile's columns */
    float norms[MGV__MATH_GROUPS][MGV__CHUNK_ROWS];                         /* storer -> math:
                                                                               reciprocal standard deviations of the tile's rows */
    TileSlot slot[MGV__SLOTS];                                              /* scheduler -> all */
    uint64_t stage_full[MGV__STAGES];                                       /* 1 arrival + bytes: the loader of this CTA */
    uint64_t stage_empty[MGV__STAGES];                                      /* every math warp of both CTAs;
                                                                               of a lent stage the storers, for them */
    uint64_t tile_known[MGV__SLOTS];                                        /* scheduler: the slot is filled */
    uint64_t tile_ready[MGV__SLOTS];                                        /* scheduler: what the tile reads has been written */
    uint64_t slot_vacated[MGV__SLOTS];                                      /* loader, storers, every math warp */
    uint64_t chunk_granted[MGV__MATH_GROUPS][MGV__CHUNKS];                  /* storer: write here; the residual, if any, is there */
    uint64_t chunk_written[MGV__MATH_GROUPS][MGV__CHUNKS];                  /* every warp of the math group */
    uint64_t lent_written[MGV__MATH_GROUPS][MGV__LENT_STAGES];              /* every warp of the math group: its chunk in a lent stage */
    MGV_PRODUCT_BARRIERS
    uint64_t roles_left;                                                    /* every warp but the scheduler: its role is over */
    uint32_t lent_stage[MGV__MATH_GROUPS][MGV__LENT_STAGES];                /* which these are */
    uint32_t next_kind[MGV__MATH_GROUPS][2];                                /* of the next tile, or the end:
                                                                               the same for a whole math group */
    uint32_t gave_up;                                                       /* schedulers of the cluster: it gives up */
};

enum {
    STAGE_EMPTY_ARRIVALS = MGV__CLUSTER * MGV__MATH_GROUPS * 4,
    SLOT_VACATED_ARRIVALS = 1 + MGV__MATH_GROUPS + MGV__MATH_GROUPS * 4,
    CHUNK_WRITTEN_ARRIVALS = 4
};

static_assert(sizeof(SharedMemory) == MGV__SHARED_BYTES + PRODUCT_BARRIER_BYTES, "the budget that `megavit plan` prints");
static_assert(MGV__SHARED_BYTES + PRODUCT_BARRIER_BYTES <= MGV__MAX_SHARED_BYTES, "shared memory of one CTA is 227 KB");
static_assert(MGV__STAGE_BYTES % 1024 == 0 && MGV__CHUNK_BYTES % 1024 == 0, "swizzled tiles begin at multiples of 1024 bytes");
static_assert(MGV__GEMM_ROWS * MGV__GEMM_INNER * 2 + 256 * MGV__GEMM_INNER * 2 <= MGV__STAGE_BYTES,
              "A and B of the widest tile fit one stage");
static_assert(2 * (MGV__GEMM_ROWS + 64) * MGV__GEMM_INNER * 2 <= MGV__STAGE_BYTES,
              "two blocks of A and B of the narrowest tile fit one stage");
static_assert(MGV__MAX_KEYS * 128 + 2 * 64 * 128 <= MGV__STAGE_BYTES, "keys and two blocks of queries fit one stage");

/* Address of the first of the barriers, which follow each other up to roles_left. */
DEVICE uint32_t first_barrier(const SharedMemory *shared) { return shared_address(&shared->stage_full[0]); }

DEVICE void shared_memory_init(SharedMemory *shared) {
    for (int i = 0; i < MGV__STAGES; i++) {
        mbarrier_init(shared_address(&shared->stage_full[i]), 1);
        mbarrier_init(shared_address(&shared->stage_empty[i]), STAGE_EMPTY_ARRIVALS);
    }
    for (int i = 0; i < MGV__SLOTS; i++) {
        mbarrier_init(shared_address(&shared->tile_known[i]), 1);
        mbarrier_init(shared_address(&shared->tile_ready[i]), 1);
        mbarrier_init(shared_address(&shared->slot_vacated[i]), SLOT_VACATED_ARRIVALS);
        shared->slot[i].turn = 1 << 1; /* not of the first round, whose parity is 0 */
    }
    for (int g = 0; g < MGV__MATH_GROUPS; g++)
        for (int i = 0; i < MGV__CHUNKS; i++) {
            mbarrier_init(shared_address(&shared->chunk_granted[g][i]), 1);
            mbarrier_init(shared_address(&shared->chunk_written[g][i]), CHUNK_WRITTEN_ARRIVALS);
        }
    for (int g = 0; g < MGV__MATH_GROUPS; g++)
        for (int i = 0; i < MGV__LENT_STAGES; i++) mbarrier_init(shared_address(&shared->lent_written[g][i]), CHUNK_WRITTEN_ARRIVALS);
    mbarrier_init(shared_address(&shared->roles_left), ROLES_LEFT_ARRIVALS);
    for (int g = 0; g < MGV__MATH_GROUPS; g++) /* a storer that is let through uses them as they are */
        for (int i = 0; i < MGV__LENT_STAGES; i++) shared->lent_stage[g][i] = 0;
    shared->gave_up = 0;
    fence_mbarrier_init_release_cluster();
    fence_proxy_async_shared_cta();
}

#endif /* MGV_THROUGHPUT_MEMORY_CUH */
