/* megavit: the latency regime, for few images: what lies where in shared memory, and which part of the work is whose.

   A cluster of four CTAs, 64 rows and 128 columns a tile, both math warpgroups on one tile (64 columns each). Operations follow each other through global
   memory as in the throughput regime, by the same counters and the same list of segments; what differs is how a cluster shares a tile:
       WIDE   many columns: MGV__LATENCY_ROW_TILES row tiles times the other CTAs' column tiles, each CTA a tile of its own; operands are shared by multicast
       DEEP   few columns, many products: one tile, each CTA a quarter of K; the sums meet in shared memory and are added in the order of the CTAs
       ATTENTION  one head of one image, a block of 64 queries a CTA; keys and values are shared
       POOL   one image, 64 tokens a CTA for the scores, every fourth block of 64 columns for the sums */
#ifndef MGV_LATENCY_MEMORY_CUH
#define MGV_LATENCY_MEMORY_CUH

#include "scheduler.cuh"

enum {
    LATENCY_A_BYTES = MGV__LATENCY_ROWS * MGV__GEMM_INNER * 2,
    LATENCY_B_BYTES = MGV__LATENCY_COLUMNS * MGV__GEMM_INNER * 2,
    LATENCY_BOX_BYTES = 64 * 64 * 2,                              /* 64 queries, keys, values or tokens, 64 columns of them */
    LATENCY_COLUMN_TILES = MGV__LATENCY_CLUSTER / MGV__LATENCY_ROW_TILES, /* WIDE: of a cluster */
    LATENCY_SHARED_A_ROWS = MGV__LATENCY_ROWS / LATENCY_COLUMN_TILES,     /* WIDE: rows of A that a CTA loads for all that share them */
    LATENCY_SHARED_B_ROWS = MGV__LATENCY_COLUMNS / MGV__LATENCY_ROW_TILES,
    LATENCY_GROUP_COLUMNS = MGV__LATENCY_COLUMNS / MGV__MATH_GROUPS,
    LATENCY_ACCUMULATORS = LATENCY_GROUP_COLUMNS / 2,             /* of one thread */
    LATENCY_WARP_BYTES = 32 * LATENCY_ACCUMULATORS * 4,           /* partial sums of one warp */
    LATENCY_SCORE_BYTES = MGV__MAX_KEYS * MGV__LATENCY_MAX_HEADS * 4,
    LATENCY_SUM_BYTES = (MGV__LATENCY_CLUSTER - 1) * MGV__MATH_GROUPS * LATENCY_WARP_BYTES, /* what a CTA gets of a DEEP tile */
    LATENCY_POOL_BYTES = LATENCY_SCORE_BYTES + MGV__MAX_KEYS * 8  /* scores, then (mean, rstd), of all tokens */
};

struct LatencyMemory {
    uint8_t stage[MGV__LATENCY_STAGES][MGV__LATENCY_STAGE_BYTES]; /* the ring: loader -> math */
    uint8_t received[LATENCY_SUM_BYTES];                          /* from the cluster */
    uint16_t pool_weight[MGV__LATENCY_MAX_HEADS][MGV__MAX_KEYS + 8]; /* bf16; rows of as many words that a warp's fragments lie in different banks */
    float pool_scale[MGV__LATENCY_MAX_HEADS][2];                  /* (1 / sum, offset) of each head */
    TileSlot slot[MGV__SLOTS];                                    /* scheduler -> all */
    uint64_t stage_full[MGV__LATENCY_STAGES];                     /* 1 arrival + bytes: the loader of this CTA */
    uint64_t stage_empty[MGV__LATENCY_STAGES];                    /* every math warp of the cluster */
    uint64_t tile_known[MGV__SLOTS];                              /* scheduler: the slot is filled */
    uint64_t tile_ready[MGV__SLOTS];                              /* loader: what the tile reads has been written */
    uint64_t slot_vacated[MGV__SLOTS];                            /* loader, every math warp */
    uint64_t received_full;                                       /* 1 arrival + bytes */
    uint64_t received_empty;                                      /* in each sender: all CTAs that it sends to have read what it sent last */
    uint32_t decision[2];                                         /* run the next tile or stop: the same for all math warps */
};

enum {
    LATENCY_MATH_WARPS = MGV__MATH_GROUPS * 4,
    LATENCY_EMPTY_ARRIVALS = MGV__LATENCY_CLUSTER * MGV__MATH_GROUPS /* in each of them one warp of each math group reads what came */
};

static_assert(sizeof(LatencyMemory) == MGV__LATENCY_SHARED_BYTES, "the budget that `megavit plan` prints");
static_assert(MGV__LATENCY_SHARED_BYTES <= MGV__MAX_SHARED_BYTES, "shared memory of one CTA is 227 KB");
static_assert(LATENCY_A_BYTES + LATENCY_B_BYTES <= MGV__LATENCY_STAGE_BYTES && 2 * LATENCY_BOX_BYTES <= MGV__LATENCY_STAGE_BYTES, "A and B, or two boxes, fit a stage");
static_assert(LATENCY_SHARED_A_ROWS % 8 == 0 && LATENCY_SHARED_B_ROWS % 8 == 0 && LATENCY_GROUP_COLUMNS % 8 == 0, "swizzled parts begin at multiples of 1024 bytes");
static_assert((int)LATENCY_POOL_BYTES <= (int)LATENCY_SUM_BYTES, "scores and statistics of an image's tokens fit");
static_assert(2 * LATENCY_MATH_WARPS == MGV__LATENCY_MAX_HEADS, "each math warp weights the tokens for two heads");
static_assert(MGV__LATENCY_CLUSTER == 4 && MGV__LATENCY_ROWS == 64, "warp w of a math group holds the rows that CTA w finishes; a CTA has a block of 64 queries");
static_assert(MGV__MAX_KEYS <= MGV__LATENCY_CLUSTER * 64, "a cluster has all queries of a head");

DEVICE void latency_memory_init(LatencyMemory *shared) {
    for (int i = 0; i < MGV__LATENCY_STAGES; i++) {
        mbarrier_init(shared_address(&shared->stage_full[i]), 1);
        mbarrier_init(shared_address(&shared->stage_empty[i]), MGV__LATENCY_CLUSTER * LATENCY_MATH_WARPS);
    }
    for (int i = 0; i < MGV__SLOTS; i++) {
        mbarrier_init(shared_address(&shared->tile_known[i]), 1);
        mbarrier_init(shared_address(&shared->tile_ready[i]), 1);
        mbarrier_init(shared_address(&shared->slot_vacated[i]), 1 + LATENCY_MATH_WARPS);
    }
    mbarrier_init(shared_address(&shared->received_full), 1);
    mbarrier_init(shared_address(&shared->received_empty), LATENCY_EMPTY_ARRIVALS);
    fence_mbarrier_init_release_cluster();
    fence_proxy_async_shared_cta();
}

/* The rows within its group that this CTA's tile reads, [first, end). Empty where the tile lies beyond the last row. */
DEVICE void latency_tile_rows(const TileSlot &tile, uint32_t cta, uint32_t &first, uint32_t &end) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t rows = rows_of_group(op, tile.group), gemm = op.kind == MGV__KERNEL_WIDE || op.kind == MGV__KERNEL_DEEP;
    const uint32_t count = gemm ? MGV__LATENCY_ROWS : op.tokens;
    first = (op.kind == MGV__KERNEL_WIDE ? tile.unit * MGV__LATENCY_ROW_TILES + cta / LATENCY_COLUMN_TILES : tile.unit) * count;
    end = first + count < rows ? first + count : rows;
}

/* Column tile of this CTA. */
DEVICE uint32_t latency_column_tile(const TileSlot &tile, uint32_t cta) {
    return tile.op.kind == MGV__KERNEL_WIDE ? tile.column * LATENCY_COLUMN_TILES + cta % LATENCY_COLUMN_TILES : tile.column;
}
/* Columns from one column tile to the next: a head's where each has an A of its own. */
DEVICE uint32_t latency_tile_columns(const mgv__kernel_op &op) { return op.a_column_step ? 64 : MGV__LATENCY_COLUMNS; }

/* Where partial sums lie: of each sender, in the order of the CTAs without the receiver, and of each math group: 16 bytes a thread, then the next 16. */
DEVICE uint32_t latency_sums_offset(uint32_t sender, uint32_t receiver, uint32_t group) {
    return ((sender - (sender > receiver)) * MGV__MATH_GROUPS + group) * LATENCY_WARP_BYTES;
}

#endif /* MGV_LATENCY_MEMORY_CUH */
