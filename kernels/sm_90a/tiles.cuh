/* megavit: where tiles lie, what both regimes and all roles know of them. */
#ifndef MGV_TILES_CUH
#define MGV_TILES_CUH

#include "../skeleton/scheduler.cuh"

DEVICE bool is_attention(uint32_t kind) { return kind == MGV__KERNEL_ATTENTION || kind == MGV__KERNEL_ATTENTION_ONLINE; }
/* Tiles of the pooling head for few images, which math warps load and store by themselves: siglip_head/. */
DEVICE bool is_pool_few(uint32_t kind) { return kind == MGV__KERNEL_POOL_TOKENS || kind == MGV__KERNEL_POOL_JOIN; }
DEVICE bool is_few_rows(uint32_t kind) { return kind == MGV__KERNEL_GEMV || is_pool_few(kind); }
DEVICE bool is_pool(uint32_t kind) { return kind == MGV__KERNEL_POOL || kind == MGV__KERNEL_POOL_SUMS; }

/* A kernel has code for some kinds of tiles: KINDS, bit by bit (mgv__kernels). Whether it has for a kind, and whether a tile is of one that
   it has code for. */
template <uint32_t KINDS> DEVICE constexpr bool has_kind(uint32_t kind) { return KINDS >> kind & 1; }
/* The kernel of all towers: what only it has code for would change that of the others. */
template <uint32_t KINDS> DEVICE constexpr bool is_tower() { return has_kind<KINDS>(MGV__KERNEL_TOWER); }
template <uint32_t KINDS, uint32_t KIND> DEVICE bool is_kind(uint32_t kind) { return has_kind<KINDS>(KIND) && kind == KIND; }

/* Columns of a head, and of the boxes of 16 or 32, of wide ones 64, that hold what lies behind its first 64; keys of a block. */
template <uint32_t KINDS> DEVICE constexpr bool has_wide_heads() { return has_kind<KINDS>(MGV__KERNEL_WIDE_HEADS); }
DEVICE uint32_t head_columns(const mgv__kernel_op &op) { return op.inner / op.heads; }
static constexpr uint32_t WIDE_REST = MGV__KERNEL_WIDE_HEAD_DIM - 64;
template <uint32_t KINDS = 0> DEVICE uint32_t rest_columns(const mgv__kernel_op &op) {
    return has_wide_heads<KINDS>() ? WIDE_REST : mgv__narrow_rest_columns(head_columns(op));
}
template <uint32_t KINDS> DEVICE constexpr uint32_t online_keys_of() {
    return has_wide_heads<KINDS>() ? (uint32_t)MGV__WIDE_KEYS : (uint32_t)MGV__ONLINE_KEYS;
}

/* Blocks of 64 columns of A and B in one stage: a narrow tile takes two, to have as many bytes on their way. */
DEVICE constexpr uint32_t gemm_depth(uint32_t tile_columns) { return tile_columns == 64 ? 2 : 1; }
/* Stages of products of one tile. The CTAs of a SPLIT tile have half of the blocks each; where their number is odd, the last one lies
   beyond the end of the rows and is all zeros. */
DEVICE uint32_t gemm_steps(const mgv__kernel_op &op) {
    const uint32_t shares = mgv__is_split(op.kind) ? MGV__CLUSTER : gemm_depth(mgv__tile_columns(op.kind));
    return (op.of.gemm.blocks + shares - 1) / shares;
}
/* First column that this CTA writes of a GEMM tile. */
DEVICE uint32_t gemm_first_column(const TileSlot &tile, uint32_t cta) {
    const uint32_t columns = mgv__tile_columns(tile.op.kind);
    if (mgv__is_split(tile.op.kind)) return tile.column * columns + cta * (columns / MGV__CLUSTER);
    if (tile.op.flags & MGV__KERNEL_SHARE_ROWS) return (tile.column * MGV__CLUSTER + cta) * columns;
    return tile.column * (tile.op.of.gemm.a_column_step ? head_columns(tile.op) : columns);
}
/* First row, within its group, of this CTA's GEMM tile. */
DEVICE uint32_t gemm_first_row(const TileSlot &tile, uint32_t cta) {
    /* the cluster has one row tile */
    const bool together = mgv__is_split(tile.op.kind) || tile.op.kind == MGV__KERNEL_GEMV || tile.op.flags & MGV__KERNEL_SHARE_ROWS;
    return (together ? tile.unit : tile.unit * MGV__CLUSTER + cta) * MGV__GEMM_ROWS;
}
static constexpr uint32_t STATS_PART = 2 * MGV__STATS_ROWS; /* floats from a part of a row's statistics to the next */
DEVICE size_t stats_place(const mgv__kernel_op &op, uint32_t columns, uint32_t group, uint32_t row, uint32_t part) {
    return mgv__stats_place(&op, columns, group, row, part);
}
static_assert(MGV__STATS_ROWS == 64, "a mean and squared deviations of each row");

/* Number of an image over all groups. */
DEVICE uint32_t image_number(const mgv__kernel_op &op, uint32_t group, uint32_t image) {
    return group * (op.rows_per_group / op.tokens) + image;
}

/* The rows within its group that this CTA's tile reads, [first, end). Empty where the tile lies beyond the last row. */
DEVICE void tile_rows(const TileSlot &tile, uint32_t cta, uint32_t &first, uint32_t &end) {
    const mgv__kernel_op &op = tile.op;
    const bool together = mgv__is_of(MGV__KINDS_OF_CLUSTERS, op.kind) || op.flags & MGV__KERNEL_SHARE_ROWS;
    const uint32_t count = mgv__tile_row_count(&op, MGV__GEMM_ROWS);
    first = (together ? tile.unit : tile.unit * MGV__CLUSTER + cta) * count;
    end = mgv__min_u32(first + count, mgv__rows_of_group(&op, tile.group));
}

/* Head of this CTA's attention tile, with OWN_HEADS which group of MGV__MATH_GROUPS heads it takes, and the first of its blocks of 64
   queries and the one after its last. */
struct AttentionPart {
    uint32_t head, first, end;
};
DEVICE AttentionPart attention_part(const TileSlot &tile, uint32_t cta) {
    const uint32_t parts = tile.op.of.attention.parts, blocks = (tile.op.tokens + 63) / 64;
    AttentionPart part;
    part.head = tile.column / parts * MGV__CLUSTER + cta;
    part.first = tile.column % parts * 2;
    part.end = parts == 1 || part.first + 2 > blocks ? blocks : part.first + 2;
    return part;
}
/* The first of the blocks that math warpgroup `group` takes; it takes every MGV__MATH_GROUPS-th from there. An image's last block is mostly
   short, so the warpgroups change places from tile to tile. */
DEVICE uint32_t attention_first_block(const TileSlot &tile, const AttentionPart &part, uint32_t group) {
    return part.first + (group ^ (tile.turn & 1));
}

/* Of ATTENTION: the blocks that math warpgroup `group` takes, every `step`-th from `first` to `end`, and their head. */
struct AttentionBlocks {
    uint32_t head, first, end, step;
};
DEVICE uint32_t own_heads(const TileSlot &tile) { return tile.op.flags & MGV__KERNEL_OWN_HEADS; }
DEVICE AttentionBlocks attention_blocks(const TileSlot &tile, uint32_t cta, uint32_t group) {
    const AttentionPart part = attention_part(tile, cta);
    AttentionBlocks blocks = {part.head, attention_first_block(tile, part, group), part.end, MGV__MATH_GROUPS};
    if (own_heads(tile)) blocks = {part.head * MGV__MATH_GROUPS + group, 0, part.end, 1};
    return blocks;
}

/* Attention of pairs of CTAs (sm_100a): each math group has a head, of which a tile has up to 256 queries, 128 a CTA, or 64 where an image
   has no more than two CTAs take of these. */
struct PairQueries {
    uint32_t head, first, count; /* of this CTA */
};
DEVICE PairQueries pair_queries(const TileSlot &tile, uint32_t cta, uint32_t group) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t parts = op.of.attention.parts, each = mgv__pair_queries(op.tokens);
    PairQueries q;
    q.head = tile.column / parts * MGV__MATH_GROUPS + group;
    q.first = tile.column % parts * MGV__PAIR_QUERIES + cta * each;
    q.count = q.first < op.tokens ? mgv__min_u32(op.tokens - q.first, each) : 0;
    return q;
}
/* Keys of a block: all, or what online softmax takes at a time. */
DEVICE uint32_t pair_keys(const mgv__kernel_op &op) { return op.kind == MGV__KERNEL_ATTENTION ? MGV__MAX_KEYS : MGV__ONLINE_KEYS; }
/* Where a stage has them, behind 64 columns of 128 queries: what these have behind that, the CTA's half of the keys, what this has behind
   64 columns, the CTA's half of the values' columns. */
struct PairStage {
    uint32_t queries_rest, keys, keys_rest, values;
};
DEVICE PairStage pair_stage(uint32_t rest) {
    const PairStage narrow = {0, 128 * 128, 0, 256 * 128},
                    wide = {128 * 128, 128 * 128 + 128 * 64, 192 * 128 + 128 * 64, 192 * 128 + 192 * 64};
    return rest ? wide : narrow;
}
static_assert(256 * 128 + MGV__MAX_KEYS * 64 <= MGV__STAGE_BYTES && 192 * 128 + 192 * 64 + MGV__ONLINE_KEYS * 96 <= MGV__STAGE_BYTES,
              "queries, keys and values fit one stage");

/* From here on the flag says that the cluster has one row tile: its unit is that tile's number. */
DEVICE void share_rows(TileSlot &tile) {
    if (!(tile.op.flags & MGV__KERNEL_SHARE_ROWS)) return;
    if (mgv__shares_rows(&tile.op, tile.group, tile.unit)) tile.unit *= MGV__CLUSTER;
    else tile.op.flags &= ~(uint32_t)MGV__KERNEL_SHARE_ROWS;
}

DEVICE void narrow_last_tile(TileSlot &tile) {
    if (tile.op.kind != MGV__KERNEL_GEMM_256 || tile.op.flags & MGV__KERNEL_SHARE_ROWS || tile.column + 1 < tile.op.column_tiles ||
        !mgv__ends_narrow(tile.op.columns))
        return;
    tile.op.kind = MGV__KERNEL_GEMM_128;
    tile.op.of.gemm.b_map = tile.op.of.gemm.narrow_map;
    tile.column *= 2;
}

/* The blocks of 64 columns whose weighted sums this tile takes: all tiles of an image find its scores, and share out the columns. */
struct PoolPart {
    uint32_t first, end;
};
DEVICE PoolPart pool_part(const TileSlot &tile) {
    const uint32_t blocks = tile.op.of.pool.blocks, each = (blocks + tile.op.column_tiles - 1) / tile.op.column_tiles,
                   first = tile.column * each;
    PoolPart part;
    part.first = first < blocks ? first : blocks;
    part.end = first + each < blocks ? first + each : blocks;
    return part;
}

/* By the whole warp: the weights of CTA number `cta` of a GEMV into the L2 cache, several tiles ahead: they lie in memory in one piece. */
DEVICE void prefetch_gemv_weights(const mgv__kernel_arguments &arguments, const TileSlot &tile, uint32_t cta) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t columns = MGV__GEMV_COLUMNS(op.of.gemv.parts_log2), first = cta * columns, row_bytes = op.of.gemv.pieces * 16;
    if (first >= op.columns) return;
    const uint32_t rows = op.columns - first < columns ? op.columns - first : columns;
    const uint8_t *from = arguments.weights + (size_t)op.of.gemv.weights * 16 + (size_t)first * row_bytes;
    if (elect_sync()) cp_async_bulk_prefetch_L2(from, rows * row_bytes);
}

#endif /* MGV_TILES_CUH */
