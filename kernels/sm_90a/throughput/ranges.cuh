/* megavit: which keys a tile of queries has where pictures of any size lie one behind the other. Tokens that attend to each other are a
   range, and ranges follow each other. A tile of 128 queries goes through all ranges that its rows are of, one after the other, each in
   blocks of 128 keys from its first token on: so a row's sums are added up in one order, whatever lies before and behind its picture, and
   of the other ranges' keys it takes nothing. Blocks of wide heads are of MGV__WIDE_KEYS. */
#ifndef MGV_RANGES_CUH
#define MGV_RANGES_CUH

#include "scheduler.cuh"

struct KeyWalk {
    const mgv__kernel_token *tokens;
    uint32_t which;      /* of a token's ranges */
    uint32_t query, end; /* the tile's rows */
    uint32_t row;        /* the block's first key, */
    uint32_t first, behind; /* and its range */
};
DEVICE uint32_t range_end(const KeyWalk &walk, uint32_t token) {
    return ld_global_nc_u32(&walk.tokens[token].range[walk.which][1]);
}
/* At the first block of all, for queries [query, end) of which there is one at least. */
DEVICE KeyWalk key_walk_of(const mgv__kernel_arguments &arguments, const TileSlot &tile, uint32_t query, uint32_t end) {
    KeyWalk walk;
    walk.tokens = arguments.tokens;
    walk.which = tile.op.of.attention.range;
    walk.query = query;
    walk.end = end;
    walk.row = walk.first = ld_global_nc_u32(&walk.tokens[walk.query].range[walk.which][0]);
    walk.behind = range_end(walk, walk.query);
    return walk;
}
/* Those of a tile. */
DEVICE KeyWalk key_walk(const mgv__kernel_arguments &arguments, const TileSlot &tile) {
    const uint32_t query = tile.unit * MGV__GEMM_ROWS;
    return key_walk_of(arguments, tile, query, mgv__min_u32(query + MGV__GEMM_ROWS, mgv__rows_of_group(&tile.op, tile.group)));
}
/* To the next block, of KEYS; 0: there is none. */
template <uint32_t KEYS> DEVICE bool next_keys(KeyWalk &walk) {
    walk.row += KEYS;
    if (walk.row < walk.behind) return true;
    if (walk.behind >= walk.end) return false;
    walk.row = walk.first = walk.behind;
    walk.behind = range_end(walk, walk.first);
    return true;
}

/* The tokens of a picture that a tile of the pooling head takes: of one size, or some that an encode says. Both answer alike: where they
   begin, over all groups and within the group; how many there are; whether the picture is there; and where a box of them lies. */
struct ImageTokens {
    const mgv__kernel_op &op;
    uint32_t in_group, image;
    __device__ __forceinline__ size_t first() const { return (size_t)image * op.tokens; }
    __device__ __forceinline__ uint32_t first_in_group() const { return in_group * op.tokens; }
    __device__ __forceinline__ uint32_t count() const { return op.tokens; }
    __device__ __forceinline__ uint32_t exists() const { return image < op.rows_total / op.tokens; }
    __device__ __forceinline__ uint32_t box_row(uint32_t row) const { return row; }
    __device__ __forceinline__ uint32_t box_image() const { return image; }
};
DEVICE ImageTokens image_tokens(const TileSlot &tile, uint32_t cta) {
    const uint32_t in_group = tile.unit * MGV__CLUSTER + cta;
    return {tile.op, in_group, image_number(tile.op, tile.group, in_group)};
}
struct PictureTokens {
    uint32_t from, tokens;
    uint32_t blocks; /* of MGV__ONLINE_KEYS tokens, of the larger picture of the pair: both CTAs let as many stages pass */
    __device__ __forceinline__ size_t first() const { return from; }
    __device__ __forceinline__ uint32_t first_in_group() const { return from; }
    __device__ __forceinline__ uint32_t count() const { return tokens; }
    __device__ __forceinline__ uint32_t exists() const { return 1; } /* else it has no tokens, and nobody asks */
    __device__ __forceinline__ uint32_t box_row(uint32_t row) const { return from + row; }
    __device__ __forceinline__ uint32_t box_image() const { return 0; }
};
/* Of a tile whose rows are pictures. */
DEVICE PictureTokens picture_tokens(const mgv__kernel_arguments &arguments, const TileSlot &tile, uint32_t cta) {
    PictureTokens tokens = {0, 0, 0};
    for (uint32_t i = 0; i < MGV__CLUSTER; i++) {
        const uint32_t picture = tile.unit * MGV__CLUSTER + i;
        if (picture >= tile.op.rows_total) continue;
        const uint32_t from = ld_global_nc_u32(arguments.picture_rows + picture),
                       count = ld_global_nc_u32(arguments.picture_rows + picture + 1) - from,
                       blocks = mgv__ceil_div(count, MGV__ONLINE_KEYS);
        if (blocks > tokens.blocks) tokens.blocks = blocks;
        if (i == cta) tokens.from = from, tokens.tokens = count;
    }
    return tokens;
}

#endif /* MGV_RANGES_CUH */
