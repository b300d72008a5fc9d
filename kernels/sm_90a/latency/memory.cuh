/* megavit: the latency regime, for few images: what lies where in shared memory, and which part of the work is whose.

   The sides of a product change places: the rows of the weights, which are the output's columns, are the 64 rows that the tensor cores
   want, and tokens are their columns, as many as a tile has rows. So 196 tokens are two tiles of 104 and hardly padded, and a matrix
   instruction is long enough to hide what comes between two of them. The math warpgroups take turns with the blocks of K. A CTA keeps its
   own rings; what a cluster of four shares is a tile's sums, or its weights:
       WIDE   many columns: each CTA a column tile of its own
       DEEP   few columns: one tile, each CTA a quarter of K; each finishes every fourth group of eight rows
       THIN   few columns, few rows, a short K: such a tile, of which each CTA has a quarter of the rows and all of K; weights are multicast
       ATTENTION  one head of one image, a block of 64 queries a CTA, half of the keys a math warpgroup
       ATTENTION_ONLINE  256 queries of one head of one image likewise, every second block of 128 keys, of wide heads of 64, a math
                         warpgroup
       ATTENTION_RANGES  the same of 128 queries of two heads, where pictures are of any size
       POOL_HEADS, POOL_SUMS, GEMV   the pooling head: siglip_head/latency_pool.cuh, latency_sums.cuh, gemv.cuh */
#ifndef MGV_LATENCY_MEMORY_CUH
#define MGV_LATENCY_MEMORY_CUH

#include "../throughput/ranges.cuh"

enum {
    LATENCY_BOX_BYTES = 64 * 64 * 2,                              /* 64 queries, 64 columns of them */
    LATENCY_MATH_WARPS = MGV__MATH_GROUPS * 4,
    LATENCY_LOADERS = 3,                                          /* of weights, of rows; the warp that finds norms */
    LATENCY_SUM_GROUPS = MGV__LATENCY_MAX_ROWS / 8 / MGV__MATH_GROUPS,  /* groups of eight rows whose sums
                                                                           one math warpgroup ends, at most */
    LATENCY_OWN_GROUPS = (LATENCY_SUM_GROUPS + MGV__LATENCY_CLUSTER - 1) / MGV__LATENCY_CLUSTER, /* DEEP: of them, those of one CTA */
    LATENCY_GROUP_BYTES = MGV__LATENCY_COLUMNS * 8 * 4,           /* sums of eight rows: 16 bytes a thread of a warpgroup */
    LATENCY_ROW_PITCH = MGV__LATENCY_COLUMNS + 4,                 /* floats; a warp's stores fall into different banks */
    LATENCY_NARROW_PITCH = (MGV__LATENCY_COLUMNS + 8) * 2         /* bytes of a row of bf16, for the same reason */
};

/* What the math warpgroups of a CTA give each other in attention (values; sums and largest scores); the rows of a product that are ready to
   be stored. */
enum { LATENCY_ATTENTION_SWAPS = 4 + 1 };
union LatencySwap {
    uint8_t attended[LATENCY_ATTENTION_SWAPS][LATENCY_GROUP_BYTES];
    uint8_t narrow[LATENCY_SUM_GROUPS * 8][LATENCY_NARROW_PITCH];
    float rows[LATENCY_OWN_GROUPS * 8][LATENCY_ROW_PITCH];
};

/* Mean and reciprocal standard deviation of a row. */
struct LatencyNorm {
    float mean, rstd;
};

/* A tile as the math warps want to know it, found by the scheduler, which has the time: between two tiles of a CTA they read this and
   nothing else. Of a product, what lies at this CTA's first column; of attention, at its block of queries and its head. */
struct alignas(16) LatencyTile {
    uint32_t number;             /* of the CTA's tiles, from 1 on: that which was announced in this slot last */
    uint32_t kind, flags;
    uint32_t blocks;             /* of K; POOL_HEADS: stages of the ring */
    uint32_t base, rows;         /* first row, over all groups; rows that exist */
    uint32_t columns;            /* that exist */
    uint32_t pitch;              /* values from one row to the next */
    uint32_t tokens;             /* of an image */
    uint32_t others_signal;      /* the warp of the norms signals it */
    uint32_t *counter;           /* that is signalled; null: none */
    uint8_t *target;             /* of the first row */
    const float *bias;
    float *stats;                /* the first row's statistics of these columns, if it leaves any */
    const uint8_t *added;        /* the first row's residual, or the table of positions */
};

struct LatencyMemory {
    uint8_t rows[MGV__LATENCY_ROW_STAGES][MGV__LATENCY_ROW_BYTES]; /* the ring of what other CTAs write: loader -> math */
    uint8_t weights[MGV__LATENCY_WEIGHT_STAGES][MGV__LATENCY_WEIGHT_BYTES]; /* that of the weights, whose loader runs ahead */
    uint8_t received[MGV__LATENCY_SUM_BYTES];                     /* from the cluster */
    LatencySwap swap[MGV__MATH_GROUPS];                           /* read by the group of this number */
    LatencyNorm norms[MGV__LATENCY_MAX_ROWS];                     /* of the tile's rows, where a norm is folded */
    uint8_t received_scales[MGV__LATENCY_CLUSTER - 1][16];        /* POOL_HEADS: what each other CTA's sums were taken at */
    TileSlot slot[MGV__SLOTS];                                    /* scheduler -> all */
    LatencyTile tile[MGV__SLOTS];                                 /* scheduler -> math, norms */
    uint64_t rows_full[MGV__LATENCY_ROW_STAGES];                  /* 1 arrival + bytes: the loader */
    uint64_t rows_empty[MGV__LATENCY_ROW_STAGES];                 /* every warp of the math group that is done with it */
    uint64_t weights_full[MGV__LATENCY_WEIGHT_STAGES];            /* the same of the other ring */
    uint64_t weights_empty[MGV__LATENCY_WEIGHT_STAGES];           /* the same */
    uint64_t norms_full, norms_empty;                             /* the warp that finds norms; every math warp */
    uint64_t tile_known[MGV__SLOTS];                              /* scheduler: the slot is filled */
    uint64_t tile_ready[MGV__SLOTS];                              /* loader: what the tile reads has been written */
    uint64_t tile_stored[MGV__SLOTS];                             /* every math warp, if another warp signals for them */
    uint64_t slot_vacated[MGV__SLOTS];                            /* loaders, norms, every math warp */
    uint64_t loaders_met;                                         /* those of weights and rows, which fill stages of each other's ring */
    uint64_t cluster_met;                                         /* loaders of weights of the cluster: what is multicast may come */
    uint64_t received_full;                                       /* 1 arrival + bytes */
    uint64_t received_empty;                                      /* every math warp of the cluster:
                                                                     what was sent to it last has been read */
    uint64_t roles_left;                                          /* every warp but the scheduler: its role is over */
    uint32_t gave_up;                                             /* schedulers of the cluster: it gives up */
};

static_assert(sizeof(LatencyMemory) == MGV__LATENCY_SHARED_BYTES, "the budget that `megavit plan` prints");
static_assert(sizeof(LatencySwap) * MGV__MATH_GROUPS == MGV__LATENCY_SWAP_BYTES, "as above");
static_assert(MGV__LATENCY_SHARED_BYTES <= MGV__MAX_SHARED_BYTES, "shared memory of one CTA is 227 KB");
static_assert(sizeof(LatencyMemory::received_scales) == MGV__LATENCY_SCALE_BYTES, "as above");
static_assert(LATENCY_BOX_BYTES <= MGV__LATENCY_ROW_BYTES, "a stage holds a block of queries");
static_assert(2 * MGV__POOL_SHARE * MGV__GEMM_INNER * 2 <= MGV__LATENCY_ROW_BYTES &&
                  MGV__POOL_WIDTH / MGV__GEMM_INNER <= 2 * MGV__LATENCY_ROW_STAGES,
              "or two of the pooling head's tokens, all blocks of which lie in the ring at once");
static_assert(LATENCY_SUM_GROUPS * LATENCY_GROUP_BYTES <= MGV__LATENCY_ROW_BYTES, "and the sums that a math warpgroup gives away");
static_assert(LATENCY_OWN_GROUPS == 2 && MGV__MATH_GROUPS * (MGV__LATENCY_CLUSTER - 1) * LATENCY_GROUP_BYTES == MGV__LATENCY_SUM_BYTES,
              "what the cluster sends: two groups of rows a store, as bf16");
static_assert(MGV__LATENCY_COLUMNS == 64 && MGV__MATH_GROUPS == 2,
              "64 rows of weights are what one warpgroup's instruction takes; the two groups split K and rows in halves");
static_assert(MGV__LATENCY_ROW_STAGES % MGV__MATH_GROUPS == 0 && MGV__LATENCY_WEIGHT_STAGES % MGV__MATH_GROUPS == 0,
              "a stage's next block in a tile is the same math group's: "
              "who has not waited for one use of a stage cannot tell the next from the one before");
static_assert(MGV__MAX_KEYS <= MGV__LATENCY_CLUSTER * 64 && MGV__MAX_KEYS <= MGV__MATH_GROUPS * MGV__LATENCY_MAX_ROWS,
              "a cluster has all queries of a head, a CTA all keys");

DEVICE uint32_t first_barrier(const LatencyMemory *shared) { return shared_address(&shared->rows_full[0]); }

DEVICE void latency_memory_init(LatencyMemory *shared) {
    for (int i = 0; i < MGV__LATENCY_ROW_STAGES; i++) {
        mbarrier_init(shared_address(&shared->rows_full[i]), 1);
        mbarrier_init(shared_address(&shared->rows_empty[i]), LATENCY_MATH_WARPS / MGV__MATH_GROUPS);
    }
    for (int i = 0; i < MGV__LATENCY_WEIGHT_STAGES; i++) {
        mbarrier_init(shared_address(&shared->weights_full[i]), 1);
        mbarrier_init(shared_address(&shared->weights_empty[i]), LATENCY_MATH_WARPS / MGV__MATH_GROUPS);
    }
    mbarrier_init(shared_address(&shared->norms_full), 1);
    mbarrier_init(shared_address(&shared->norms_empty), LATENCY_MATH_WARPS);
    for (int i = 0; i < MGV__SLOTS; i++) {
        mbarrier_init(shared_address(&shared->tile_known[i]), 1);
        mbarrier_init(shared_address(&shared->tile_ready[i]), 1);
        mbarrier_init(shared_address(&shared->tile_stored[i]), LATENCY_MATH_WARPS);
        mbarrier_init(shared_address(&shared->slot_vacated[i]), LATENCY_LOADERS + LATENCY_MATH_WARPS);
    }
    mbarrier_init(shared_address(&shared->loaders_met), 2);
    mbarrier_init(shared_address(&shared->cluster_met), MGV__LATENCY_CLUSTER);
    mbarrier_init(shared_address(&shared->received_full), 1);
    mbarrier_init(shared_address(&shared->received_empty), MGV__LATENCY_CLUSTER * LATENCY_MATH_WARPS);
    mbarrier_init(shared_address(&shared->roles_left), ROLES_LEFT_ARRIVALS);
    for (int i = 0; i < MGV__SLOTS; i++) shared->tile[i].number = 0;
    shared->gave_up = 0;
    fence_mbarrier_init_release_cluster();
    fence_proxy_async_shared_cta();
}

/* The same value, which the compiler now knows to be that of the whole warp. Behind branches on it the warp stays together for the
   compiler, too: shuffles and votes need no care, and addresses, descriptors and what is counted lie in uniform registers. */
DEVICE uint32_t warp_uniform(uint32_t value) { return shfl_idx_u32(value, 0); }

/* Rows may end within 64 columns: in the kernels of all shapes. */
template <uint32_t KINDS> DEVICE constexpr bool latency_any_width() { return has_kind<KINDS>(MGV__KERNEL_POOL_SUMS); }

DEVICE bool latency_is_product(uint32_t kind) { return mgv__is_of(MGV__KINDS_LATENCY_PRODUCTS, kind); }

/* Tiles beyond the last row are in the list only to keep their clusters free: every role passes over them (mgv__plan_rests). */
DEVICE void latency_rest(const mgv__kernel_arguments &arguments, TileSlot &tile) {
    if (tile.op.kind == MGV__KERNEL_WIDE && tile.unit * arguments.latency_rows >= mgv__rows_of_group(&tile.op, tile.group))
        tile.op.kind = MGV__KERNEL_REST;
}

/* ATTENTION_ONLINE: which head this CTA's queries are of, and the first of them in their image. */
struct LatencyQueries {
    uint32_t head, first;
};
DEVICE LatencyQueries latency_queries(const TileSlot &tile, uint32_t cta) {
    const uint32_t parts = tile.op.of.attention.parts, head = tile.column / parts;
    return {head, ((tile.column - head * parts) * MGV__LATENCY_CLUSTER + cta) * 64};
}

/* ATTENTION_RANGES: a row tile and two heads a cluster, 64 queries of one of these a CTA. The second head may not exist: then the CTA has
   some others' queries, and stores nothing. */
static_assert(MGV__LATENCY_MAX_ROWS * 2 == MGV__LATENCY_CLUSTER * 64, "a row tile is two blocks of queries");
DEVICE uint32_t latency_range_head(const TileSlot &tile, uint32_t cta) {
    return tile.column * 2 + cta / 2;
}
DEVICE uint32_t latency_range_query(const TileSlot &tile, uint32_t cta) { return tile.unit * MGV__LATENCY_MAX_ROWS + cta % 2 * 64; }
/* The keys of the CTA's queries, in pairs of blocks, one for each math group. A range begins with a pair of its own, so a row's sums are
   added up in one order, whatever lies before its picture. Behind the last row: those of the last one. */
template <uint32_t KINDS> DEVICE constexpr uint32_t latency_pair_keys(void) { return MGV__MATH_GROUPS * online_keys_of<KINDS>(); }
DEVICE KeyWalk latency_key_walk(const mgv__kernel_arguments &arguments, const TileSlot &tile, uint32_t cta) {
    const uint32_t rows = mgv__rows_of_group(&tile.op, tile.group), query = mgv__min_u32(latency_range_query(tile, cta), rows - 1);
    return key_walk_of(arguments, tile, query, mgv__min_u32(query + 64, rows));
}
template <uint32_t KINDS> DEVICE uint32_t latency_key_pairs(KeyWalk walk) {
    uint32_t pairs = 1;
#pragma unroll 1
    while (next_keys<latency_pair_keys<KINDS>()>(walk)) pairs++;
    return pairs;
}

/* POOL_SUMS: the tokens of the tile's picture: where they begin, over all groups and within the group; how many there are; where a box of
   them lies. PictureTokens and ImageTokens have the same of the throughput regime's. */
struct LatencyTokens {
    size_t from;
    uint32_t picture, in_group, tokens, box_row, box_image;
    __device__ __forceinline__ size_t first() const { return from; }
    __device__ __forceinline__ uint32_t count() const { return tokens; }
    __device__ __forceinline__ uint32_t exists() const { return 1; }
};
DEVICE LatencyTokens latency_tokens(const mgv__kernel_arguments &arguments, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    if (arguments.picture_rows) {
        const uint32_t from = ld_global_nc_u32(arguments.picture_rows + tile.unit);
        return {from, tile.unit, from, ld_global_nc_u32(arguments.picture_rows + tile.unit + 1) - from, from, 0};
    }
    const uint32_t image = image_number(op, tile.group, tile.unit);
    return {(size_t)image * op.tokens, image, tile.unit * op.tokens, op.tokens, 0, image};
}
/* Which block of 64 columns is the CTA's, and how many stages of the ring its tokens take: a block of tokens each, in pairs of such. The
   second of the last pair may be without tokens of the picture. */
DEVICE uint32_t latency_sums_column(const TileSlot &tile, uint32_t cta) { return tile.column * MGV__LATENCY_CLUSTER + cta; }
DEVICE uint32_t latency_sums_stages(const TileSlot &tile, uint32_t cta, const LatencyTokens &tokens) {
    if (latency_sums_column(tile, cta) >= tile.op.of.pool.blocks) return 0;
    return mgv__ceil_div(tokens.count(), MGV__MATH_GROUPS * MGV__ONLINE_KEYS) * MGV__MATH_GROUPS;
}

/* One of the two maps through which a tile is loaded. */
template <uint32_t KINDS>
DEVICE void latency_prefetch_map(const mgv__kernel_arguments &arguments, const mgv__kernel_op &op, uint32_t second) {
    if (latency_is_product(op.kind)) prefetch_tensormap(tensor_map(arguments, second ? op.of.latency.b_map : op.of.latency.a_map));
    if (op.kind == MGV__KERNEL_ATTENTION || is_kind<KINDS, MGV__KERNEL_ATTENTION_ONLINE>(op.kind) ||
        is_kind<KINDS, MGV__KERNEL_ATTENTION_RANGES>(op.kind))
        prefetch_tensormap(tensor_map(arguments, second ? op.of.attention.key_map : op.of.attention.query_map));
    if (op.kind == MGV__KERNEL_POOL_HEADS) prefetch_tensormap(tensor_map(arguments, op.of.pool_few.token_map));
    if (is_kind<KINDS, MGV__KERNEL_POOL_SUMS>(op.kind)) prefetch_tensormap(tensor_map(arguments, op.of.pool.token_map));
}

/* By the whole warp: into the L2 cache what a POOL_HEADS tile of this CTA reads that nobody writes: a quarter of the weights of either
   head's values, and the scoring vectors. */
DEVICE void latency_prefetch_pool(const mgv__kernel_arguments &arguments, const TileSlot &tile, uint32_t cta) {
    constexpr uint32_t ROWS = 64 / MGV__LATENCY_CLUSTER;
    const mgv__kernel_op &op = tile.op;
    const uint32_t row_bytes = op.inner * 2, first = tile.column * MGV__POOL_HEADS;
    const uint8_t *const weights = arguments.weights;
#pragma unroll 1
    for (uint32_t head = first; head < first + MGV__POOL_HEADS && head < op.heads; head++)
        if (elect_sync()) {
            const size_t row = head * 64 + cta * ROWS;
            cp_async_bulk_prefetch_L2(weights + (size_t)op.of.pool_few.values * 16 + row * row_bytes, ROWS * row_bytes);
            cp_async_bulk_prefetch_L2(weights + (size_t)op.of.pool_few.weights * 16 + (size_t)head * row_bytes, row_bytes);
        }
}

/* The rows within its group that the tile reads, [first, end). */
DEVICE void latency_tile_rows(const mgv__kernel_arguments &arguments, const TileSlot &tile, uint32_t &first, uint32_t &end) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t count = mgv__tile_row_count(&op, arguments.latency_rows);
    first = tile.unit * count;
    end = mgv__min_u32(first + count, mgv__rows_of_group(&op, tile.group));
}

/* Column tile of this CTA. */
DEVICE uint32_t latency_column_tile(const TileSlot &tile, uint32_t cta) {
    return tile.op.kind == MGV__KERNEL_WIDE ? tile.column * MGV__LATENCY_CLUSTER + cta : tile.column;
}

/* POOL_HEADS: tokens of a CTA; rows of a box with them; stages of the ring that they take, two blocks of columns each. */
DEVICE uint32_t latency_pool_share(const mgv__kernel_op &op) { return (op.tokens + MGV__LATENCY_CLUSTER - 1) / MGV__LATENCY_CLUSTER; }
DEVICE uint32_t latency_pool_rows(const mgv__kernel_op &op) { return (latency_pool_share(op) + 7) / 8 * 8; }
DEVICE uint32_t latency_pool_stages(const mgv__kernel_op &op) { return (op.of.pool_few.blocks + 1) / 2; }

/* Rows of a THIN tile that are a CTA's. */
DEVICE uint32_t latency_thin_rows(const mgv__kernel_arguments &arguments) { return arguments.latency_rows / MGV__LATENCY_CLUSTER; }

/* What is signalled when the tile is stored, and by whom. */
DEVICE void latency_describe_signal(LatencyTile &to, const mgv__kernel_arguments &arguments, const TileSlot &tile, uint32_t cta) {
    const uint32_t index = mgv__signal_index(&tile.op, tile.group, tile.unit);
    uint32_t first, end;
    latency_tile_rows(arguments, tile, first, end);
    to.counter = first >= end || arguments.lost_signal == index + 1 ? nullptr : arguments.counters + index;
    to.others_signal = tile.op.flags & MGV__KERNEL_OTHERS_SIGNAL && (tile.op.kind != MGV__KERNEL_ATTENTION || cta * 64 < tile.op.tokens);
}
template <uint32_t KINDS>
DEVICE void latency_describe_product(LatencyTile &to, const mgv__kernel_arguments &arguments, const TileSlot &tile, uint32_t cta) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t column = latency_column_tile(tile, cta) * MGV__LATENCY_COLUMNS, left = op.columns > column ? op.columns - column : 0;
    constexpr bool TOWER = is_tower<KINDS>();
    uint32_t first, end;
    latency_tile_rows(arguments, tile, first, end);
    if (op.kind == MGV__KERNEL_THIN) {
        const uint32_t rows = latency_thin_rows(arguments);
        first += cta * rows;
        if (end > first + rows) end = first + rows;
        if (end < first) end = first;
    }
    to.blocks = op.of.latency.blocks;
    to.base = tile.group * op.rows_per_group + first;
    to.rows = end - first;
    const uint32_t halves = TOWER && op.flags & MGV__KERNEL_GATED ? 2 : 1; /* two columns of sums make one */
    to.columns = (left < MGV__LATENCY_COLUMNS ? left : (uint32_t)MGV__LATENCY_COLUMNS) / halves;
    to.pitch = op.columns / halves;
    uint8_t *target = arguments.buffers[op.of.latency.target];
    if (TOWER && op.of.latency.merger_rows) target = (uint8_t *)arguments.patches + (size_t)op.of.latency.merger_rows * 16;
    to.target = target + ((size_t)to.base * to.pitch + column / halves) * 2;
    if (has_kind<KINDS>(MGV__KERNEL_POOL_SUMS) && op.flags & MGV__KERNEL_FLOAT_OUT) { /* scores, whose rows are of whole 16 bytes */
        to.pitch = (op.columns + 3) / 4 * 4;
        to.target = target + ((size_t)to.base * to.pitch + column) * 4;
    }
    to.bias = arguments.vectors + op.of.latency.bias + column;
    to.stats = arguments.stats + op.of.latency.stats_out + stats_place(op, op.columns, tile.group, first, column / 64);
    to.added = op.flags & (TOWER ? MGV__KERNEL_TABLE | MGV__KERNEL_SAMPLED : MGV__KERNEL_TABLE)
                   ? (const uint8_t *)(arguments.vectors + op.of.latency.table + column)
                   : arguments.buffers[op.of.latency.residual] + ((size_t)to.base * op.columns + column) * 2;
}
DEVICE void latency_describe_attention(LatencyTile &to, const mgv__kernel_arguments &arguments, const TileSlot &tile, uint32_t cta) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t left = op.tokens > cta * 64 ? op.tokens - cta * 64 : 0;
    to.base = image_number(op, tile.group, tile.unit) * op.tokens + cta * 64;
    to.rows = left < 64 ? left : 64;
    to.pitch = op.columns;
    to.target = arguments.buffers[op.of.attention.target] + ((size_t)to.base * op.columns + tile.column * 64) * 2;
}
DEVICE void latency_describe_online(LatencyTile &to, const mgv__kernel_arguments &arguments, const TileSlot &tile, uint32_t cta) {
    const mgv__kernel_op &op = tile.op;
    const LatencyQueries queries = latency_queries(tile, cta);
    const uint32_t left = op.tokens > queries.first ? op.tokens - queries.first : 0;
    to.base = image_number(op, tile.group, tile.unit) * op.tokens + queries.first;
    to.rows = left < 64 ? left : 64;
    to.columns = head_columns(op);
    to.pitch = op.columns;
    to.target = arguments.buffers[op.of.attention.target] + ((size_t)to.base * op.columns + queries.head * to.columns) * 2;
}
DEVICE void latency_describe_ranges(LatencyTile &to, const mgv__kernel_arguments &arguments, const TileSlot &tile, uint32_t cta) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t rows = mgv__rows_of_group(&op, tile.group), head = latency_range_head(tile, cta);
    to.base = latency_range_query(tile, cta);
    to.rows = head < op.heads && to.base < rows ? mgv__min_u32(rows - to.base, 64) : 0;
    to.columns = head_columns(op);
    to.pitch = op.columns;
    to.target = arguments.buffers[op.of.attention.target] + ((size_t)to.base * op.columns + head * to.columns) * 2;
}
/* Tile `number` of CTA `cta` in its cluster. */
template <uint32_t KINDS>
DEVICE LatencyTile latency_describe(const mgv__kernel_arguments &arguments, const TileSlot &tile, uint32_t cta, uint32_t number) {
    LatencyTile to = {};
    to.number = number;
    to.kind = tile.op.kind;
    if (to.kind == MGV__KERNEL_END || to.kind == MGV__KERNEL_REST) return to;
    to.flags = tile.op.flags;
    to.tokens = tile.op.tokens;
    latency_describe_signal(to, arguments, tile, cta);
    if (latency_is_product(to.kind)) latency_describe_product<KINDS>(to, arguments, tile, cta);
    if (to.kind == MGV__KERNEL_ATTENTION) latency_describe_attention(to, arguments, tile, cta);
    if (is_kind<KINDS, MGV__KERNEL_ATTENTION_ONLINE>(to.kind)) latency_describe_online(to, arguments, tile, cta);
    if (is_kind<KINDS, MGV__KERNEL_ATTENTION_RANGES>(to.kind)) latency_describe_ranges(to, arguments, tile, cta);
    if (to.kind == MGV__KERNEL_POOL_HEADS) to.blocks = latency_pool_stages(tile.op);
    return to;
}

/* Where sums for one CTA lie in it: of each sender, in the order of the CTAs without the receiver, of each math group:
   16 bytes a thread, its groups of rows as bf16. */
DEVICE uint32_t latency_sums_offset(uint32_t sender, uint32_t receiver, uint32_t math_group) {
    return ((sender - (sender > receiver)) * MGV__MATH_GROUPS + math_group) * LATENCY_GROUP_BYTES;
}

#endif /* MGV_LATENCY_MEMORY_CUH */
