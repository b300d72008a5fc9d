/* megavit: the latency regime's loaders, a warp each. They keep two rings full through the copy engine. That of the weights waits for
   nobody but its ring, and in THIN tiles its cluster, so a tile's weights are there, if they fit, before the rows that it multiplies exist.
   That of the rows waits itself on the counters in global memory for what a tile reads: nothing lies between the last signal and the first
   load. */
#ifndef MGV_LATENCY_LOADER_CUH
#define MGV_LATENCY_LOADER_CUH

#include "memory.cuh"
#include "../throughput/loader.cuh"

typedef Ring<MGV__LATENCY_ROW_STAGES> LatencyRowStage;
typedef Ring<MGV__LATENCY_WEIGHT_STAGES> LatencyWeightStage;

struct LatencyLoader {
    LatencyMemory *shared;
    const mgv__kernel_arguments &arguments;
    Watchdog dog;
    uint32_t ends = 0;       /* the cluster gives up: nothing is announced or loaded any more */
    LatencyRowStage stage;
    LatencyWeightStage weights;
    Ring<MGV__SLOTS> slot;
    Ring<MGV__SLOTS> held;   /* slot of the tile before, behind which weights are held back if holds says so */
    uint32_t holds = 0;
    Ring<1> norms;
    Ring<1> met, cluster_met;
    uint32_t stored = 0;     /* slot by slot a bit: the parity of the next use of its tile_stored, which not every tile uses */
    uint64_t read_once = createpolicy_evict_first(); /* weights: by one row tile of an image or a few, within a microsecond or two */
    uint32_t lane, cta;
    __device__ __forceinline__ LatencyLoader(LatencyMemory *s, const mgv__kernel_arguments &a)
        : shared(s), arguments(a), dog(a), lane(threadIdx.x % 32), cta(cluster_ctarank()) {}
};

/* Rows of a box of keys or values, those of one math warpgroup: half of what a plan with so many rows a tile has, in whole steps of the
   products with the values. */
DEVICE constexpr uint32_t latency_half_keys(uint32_t rows) { return (rows + 15) / 16 * 16; }
/* The first half of an image's keys; the second begins behind it. */
DEVICE uint32_t latency_first_keys(uint32_t tokens) { return (tokens + 1) / 2; }

/* The ring's state, known to the compiler as that of the whole warp. */
template <class Stage> DEVICE Stage latency_uniform(Stage stage) {
    stage.index = warp_uniform(stage.index);
    stage.parity = warp_uniform(stage.parity);
    return stage;
}

template <int COUNT> DEVICE Ring<COUNT> latency_stage_after(Ring<COUNT> stage, uint32_t count) {
    const uint32_t index = stage.index + count, rounds = index / COUNT;
    stage.index = index - rounds * COUNT;
    stage.parity ^= rounds & 1;
    return stage;
}

/* By the whole warp: waits until all math warps have left the stage, and announces how many bytes will land in it. */
DEVICE void latency_open_stage(LatencyLoader &self, uint64_t *full, uint64_t *empty, uint32_t parity, uint32_t bytes) {
    wait_barrier(empty, parity ^ 1);
    warp_sync(); /* no lane may still be looking when the stage is filled */
    self.ends = gives_up(self.shared);
    if (elect_sync() && !self.ends) mbarrier_arrive_expect_tx(shared_address(full), bytes);
}
DEVICE void latency_open_rows(LatencyLoader &self, const LatencyRowStage &stage, uint32_t bytes) {
    latency_open_stage(self, &self.shared->rows_full[stage.index], &self.shared->rows_empty[stage.index], stage.parity, bytes);
}

/* Where a box goes and what it is of. Found before a wait: opaque, or the compiler finds it behind, where it is waited for. */
struct LatencyBox {
    uint32_t to, full;
    const CUtensorMap *map;
};
DEVICE LatencyBox latency_box(const LatencyLoader &self, const void *to, const uint64_t *full, uint32_t map) {
    return {opaque(shared_address(to)), opaque(shared_address(full)),
            (const CUtensorMap *)opaque((const uint8_t *)tensor_map(self.arguments, map))};
}
DEVICE LatencyBox latency_rows_box(const LatencyLoader &self, const LatencyRowStage &stage, uint32_t map) {
    return latency_box(self, self.shared->rows[stage.index], &self.shared->rows_full[stage.index], map);
}
/* By the whole warp. */
DEVICE void latency_load_box(const LatencyLoader &self, const LatencyBox &box, uint32_t x, uint32_t y, uint32_t z) {
    if (elect_sync() && !self.ends) cp_async_bulk_tensor_3d_load(box.to, box.map, (int32_t)x, (int32_t)y, (int32_t)z, box.full);
}

/* --- waiting for what other CTAs write, as a whole warp --------------------------------------------------------- */

struct CounterRange {
    uint32_t first, last, threshold; /* threshold 0: there is nothing to wait for */
    uint32_t op;                     /* number of the operation that waits */
};
/* TOWER: a tile may want all rows of its group. */
template <bool TOWER = false> DEVICE CounterRange latency_counters(const LatencyLoader &self, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    CounterRange range = {0, 0, 0, op.number};
    uint32_t first, end;
    latency_tile_rows(self.arguments, tile, first, end);
    if (!op.wait_divisor || first >= end) return range;
    if (TOWER && op.flags & MGV__KERNEL_WAIT_ALL) {
        first = 0;
        end = mgv__rows_of_group(&op, tile.group);
    }
    const uint32_t base = op.wait_counter + tile.group * op.wait_stride;
    range.first = base + first / op.wait_divisor;
    range.last = base + (end - 1) / op.wait_divisor;
    range.threshold = op.wait_threshold;
    return range;
}

/* Waits for them, and orders the copy engine's reads after it, if there are any. */
DEVICE void latency_wait_counters(LatencyLoader &self, const CounterRange &range, uint32_t copies = 1) {
    warp_sync();
    self.dog.aborted = !vote_all(!self.dog.aborted);
    if (range.threshold) wait_counters(self.dog, self.arguments.counters, range.first, range.last, range.threshold, range.op);
    self.ends |= self.dog.aborted;
    warp_sync(); /* each lane has acquired what its own counters stand for */
    if (copies) fence_proxy_async_global();
}
/* Tells the math warps: behind the first box, which they want soonest. */
DEVICE void latency_tell_ready(LatencyLoader &self) {
    if (self.lane == 0) mbarrier_arrive(shared_address(&self.shared->tile_ready[self.slot.index]));
}

/* --- tiles ----------------------------------------------------------------------------------------------------- */

/* What an operation's boxes begin with: fields of the tile are read once, not from shared memory for each box.
   DEEP: a quarter of K a CTA. */
DEVICE uint32_t latency_first_inner(const LatencyLoader &self, const TileSlot &tile) {
    return tile.op.kind == MGV__KERNEL_DEEP ? self.cta * tile.op.of.latency.blocks * MGV__GEMM_INNER : 0;
}

/* Block after block of the 64 rows of weights of this CTA. Most are asked for long before their rows are there: not as fast as the ring has
   room, or they are in the way of rows that others wait for, and of releases (kernels/NOTES.md, weights ahead). */
DEVICE void latency_load_weights(LatencyLoader &self, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t blocks = warp_uniform(op.of.latency.blocks), map = warp_uniform(op.of.latency.b_map);
    const uint32_t column = warp_uniform(latency_first_inner(self, tile)),
                   row = warp_uniform(op.of.latency.b_row + latency_column_tile(tile, self.cta) * MGV__LATENCY_COLUMNS);
    LatencyWeightStage stage = latency_uniform(self.weights);
    uint32_t before = clock_u32();
#pragma unroll 1
    for (uint32_t block = 0; block < blocks; block++, stage.advance()) {
        uint64_t *full = &self.shared->weights_full[stage.index];
        latency_open_stage(self, full, &self.shared->weights_empty[stage.index], stage.parity, MGV__LATENCY_WEIGHT_BYTES);
        while (clock_u32() - before < MGV__LATENCY_WEIGHT_CLOCKS) {}
        before = clock_u32();
        const LatencyBox box = latency_box(self, self.shared->weights[stage.index], full, map);
        if (elect_sync() && !self.ends)
            cp_async_bulk_tensor_3d_load_hint(box.to, box.map, (int32_t)(column + block * MGV__GEMM_INNER), (int32_t)row, 0, box.full,
                                              self.read_once);
    }
}

/* Block after block of the rows that they are multiplied with. As many stages as there are are opened before the wait:
   behind it lies nothing but boxes. */
template <bool TOWER> DEVICE void latency_load_rows(LatencyLoader &self, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t blocks = warp_uniform(op.of.latency.blocks), map = warp_uniform(op.of.latency.a_map), group = warp_uniform(tile.group);
    const uint32_t column = warp_uniform(latency_first_inner(self, tile)), row = warp_uniform(tile.unit * self.arguments.latency_rows);
    const uint32_t bytes = self.arguments.latency_rows * MGV__GEMM_INNER * 2;
    LatencyRowStage stage = latency_uniform(self.stage), opened = stage;
#pragma unroll 1
    for (uint32_t block = 0; block < blocks && block < MGV__LATENCY_ROW_STAGES; block++, opened.advance())
        latency_open_rows(self, opened, bytes);
    const LatencyBox first = latency_rows_box(self, stage, map);
    stage.advance();
    latency_wait_counters(self, latency_counters<TOWER>(self, tile));
    latency_load_box(self, first, column, row, group);
    latency_tell_ready(self);
#pragma unroll 1
    for (uint32_t block = 1; block < blocks; block++, stage.advance()) {
        if (block >= MGV__LATENCY_ROW_STAGES) latency_open_rows(self, stage, bytes);
        latency_load_box(self, latency_rows_box(self, stage, map), column + block * MGV__GEMM_INNER, row, group);
    }
}

/* THIN: all blocks of K lie in the rings at once. A stage of rows holds two blocks of weights. Rows are few: their first two pairs of
   blocks are a stage of weights each, one for each math group, and those behind them two stages of rows. So each ring's loader fills stages
   of the other's. With the first of its rows math group g multiplies the g-th stage of weights, with the rest its share of those behind the
   first two. */
static_assert(MGV__MATH_GROUPS == 2 && 2 * MGV__LATENCY_WEIGHT_BYTES <= MGV__LATENCY_ROW_BYTES &&
                  MGV__LATENCY_THIN_BLOCKS / 2 + MGV__MATH_GROUPS <= MGV__LATENCY_ROW_STAGES,
              "a stage of rows holds two blocks of weights, and the ring those of a THIN tile and its rows");
static_assert(2 * MGV__LATENCY_THIN_BLOCK_BYTES <= MGV__LATENCY_WEIGHT_BYTES && MGV__LATENCY_THIN_BLOCK_BYTES % 1024 == 0 &&
                  (MGV__LATENCY_THIN_BLOCKS / MGV__MATH_GROUPS - 2) * MGV__LATENCY_THIN_BLOCK_BYTES <= MGV__LATENCY_ROW_BYTES,
              "its rows fit, and each block of them begins with a pattern of the swizzle");
struct LatencyThin {
    uint32_t pairs;  /* of blocks */
    uint32_t behind; /* the first, those of each math group */
    __device__ __forceinline__ explicit LatencyThin(uint32_t blocks) : pairs(blocks / 2), behind(mgv__thin_blocks_behind(blocks) / 2) {}
};

/* Until both loaders have opened all stages of the tiles before: who is to open the other's next would else take a phase that is long over
   for the one that it waits for. */
DEVICE void latency_meet_loaders(LatencyLoader &self) {
    warp_sync();
    if (self.lane == 0) mbarrier_arrive(shared_address(&self.shared->loaders_met));
    wait_barrier(&self.shared->loaders_met, self.met.parity);
    self.met.advance();
    self.ends = !vote_all(!gives_up(self.shared));
}
/* Until all CTAs of the cluster have opened the stages of this tile's weights. The release is for sums that were traded there. */
DEVICE void latency_meet_cluster(LatencyLoader &self) {
    const uint32_t barrier = shared_address(&self.shared->cluster_met);
    warp_sync();
    if (self.lane < MGV__LATENCY_CLUSTER) mbarrier_arrive_release_cluster(mapa_shared_cluster(barrier, self.lane));
    while (!mbarrier_try_wait_parity_acquire_cluster(barrier, self.cluster_met.parity)) {}
    self.cluster_met.advance();
    self.ends = !vote_all(!gives_up(self.shared));
}

/* All CTAs of the cluster want the same: each fetches every fourth block for all. */
DEVICE void latency_load_thin_weights(LatencyLoader &self, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t blocks = warp_uniform(op.of.latency.blocks), map = warp_uniform(op.of.latency.b_map),
                   row = warp_uniform(op.of.latency.b_row + tile.column * MGV__LATENCY_COLUMNS);
    const LatencyRowStage first = latency_uniform(self.stage);
    latency_meet_loaders(self);
#pragma unroll 1
    for (uint32_t pair = 0; pair < blocks / 2; pair++)
        latency_open_rows(self, latency_stage_after(first, pair), 2 * MGV__LATENCY_WEIGHT_BYTES);
    latency_meet_cluster(self);
#pragma unroll 1
    for (uint32_t block = self.cta; block < blocks; block += MGV__LATENCY_CLUSTER) {
        const uint32_t stage = latency_stage_after(first, block / 2).index;
        const LatencyBox box = latency_box(self, self.shared->rows[stage] + block % 2 * MGV__LATENCY_WEIGHT_BYTES,
                                           &self.shared->rows_full[stage], map);
        if (elect_sync() && !self.ends)
            cp_async_bulk_tensor_3d_load_multicast_hint(box.to, box.map, (int32_t)(block * MGV__GEMM_INNER), (int32_t)row, 0, box.full,
                                                        (1 << MGV__LATENCY_CLUSTER) - 1, self.read_once);
    }
}

DEVICE void latency_load_thin_rows(LatencyLoader &self, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    const LatencyThin thin(warp_uniform(op.of.latency.blocks));
    const uint32_t map = warp_uniform(op.of.latency.a_map), behind_map = warp_uniform(op.of.latency.behind_map),
                   row = warp_uniform(tile.unit * self.arguments.latency_rows + self.cta * latency_thin_rows(self.arguments));
    const LatencyWeightStage first = latency_uniform(self.weights);
    const LatencyRowStage behind = latency_stage_after(latency_uniform(self.stage), thin.pairs);
    LatencyBox first_boxes[MGV__MATH_GROUPS];
    latency_meet_loaders(self);
#pragma unroll
    for (uint32_t group = 0; group < MGV__MATH_GROUPS; group++) {
        const LatencyWeightStage stage = latency_stage_after(first, group);
        uint64_t *full = &self.shared->weights_full[stage.index];
        latency_open_stage(self, full, &self.shared->weights_empty[stage.index], stage.parity, 2 * MGV__LATENCY_THIN_BLOCK_BYTES);
        latency_open_rows(self, latency_stage_after(behind, group), 2 * thin.behind * MGV__LATENCY_THIN_BLOCK_BYTES);
        first_boxes[group] = latency_box(self, self.shared->weights[stage.index], full, map);
    }
    latency_wait_counters(self, latency_counters(self, tile));
    latency_load_box(self, first_boxes[0], 0, row, 0);
    latency_tell_ready(self);
    latency_load_box(self, first_boxes[1], 0, row, 2);
#pragma unroll
    for (uint32_t group = 0; group < MGV__MATH_GROUPS; group++)
        latency_load_box(self, latency_rows_box(self, latency_stage_after(behind, group), behind_map), 0, row,
                         2 * (MGV__MATH_GROUPS + group * thin.behind));
}

/* A stage each: queries, the first half of the keys, the second half; the first half of the values, the second. */
enum { LATENCY_ATTENTION_STAGES = 5 };

DEVICE void latency_load_attention(LatencyLoader &self, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t image = warp_uniform(image_number(op, tile.group, tile.unit)), column = warp_uniform(tile.column * 64),
                   keys = latency_half_keys(self.arguments.latency_rows);
    const uint32_t query_map = warp_uniform(op.of.attention.query_map), map = warp_uniform(op.of.attention.key_map);
    const uint32_t inner = warp_uniform(op.inner), half = warp_uniform(latency_first_keys(op.tokens));
    LatencyRowStage stage = latency_uniform(self.stage), opened = stage;
#pragma unroll 1
    for (uint32_t i = 0; i < LATENCY_ATTENTION_STAGES; i++, opened.advance())
        latency_open_rows(self, opened, i == 0 ? (uint32_t)LATENCY_BOX_BYTES : keys * 128);
    const LatencyBox queries = latency_rows_box(self, stage, query_map);
    stage.advance();
    latency_wait_counters(self, latency_counters(self, tile));
    latency_load_box(self, queries, column, self.cta * 64, image);
    latency_tell_ready(self);
#pragma unroll 1
    for (uint32_t i = 0; i < LATENCY_ATTENTION_STAGES - 1; i++, stage.advance())
        latency_load_box(self, latency_rows_box(self, stage, map), inner * (1 + i / 2) + column, i % 2 * half, image);
}

/* ATTENTION_ONLINE. Keys and values come in pairs of blocks, one for each math group, stage by stage in turns: the keys of both, the values
   of both, then what lies behind the first 64 columns of either group's keys and values. So every second stage is a group's, and a ring
   takes any number of them. A pair's second block may lie beyond the last token: it is all zeros. Queries stay to the end, in the ring
   of the weights, which has none meanwhile: their first 64 columns, then the rest. */
static_assert(LATENCY_BOX_BYTES <= MGV__LATENCY_WEIGHT_BYTES && 128 * MGV__ONLINE_KEYS <= MGV__LATENCY_ROW_BYTES &&
                  2 * MGV__ONLINE_KEYS * (MGV__KERNEL_MAX_HEAD_DIM - 64) * 2 <= MGV__LATENCY_ROW_BYTES &&
                  2 * MGV__WIDE_KEYS * WIDE_REST * 2 <= MGV__LATENCY_ROW_BYTES && 64 * WIDE_REST * 2 <= MGV__LATENCY_WEIGHT_BYTES,
              "a stage holds a block of queries, of keys, or of what is behind its keys and values");
struct LatencyOnline {
    uint32_t rest;          /* columns of the boxes behind the first 64 */
    uint32_t of_pair;       /* stages of a pair of blocks, */
    uint32_t stages;        /* of all, */
    uint32_t queries;       /* and of the queries */
    __device__ __forceinline__ LatencyOnline(uint32_t pairs, uint32_t rest_)
        : rest(rest_), of_pair((rest_ ? 3 : 2) * MGV__MATH_GROUPS), stages(pairs * of_pair), queries(rest_ ? 2 : 1) {}
};
/* Of a pair's stages: what is in them. */
enum { LATENCY_KEYS = 0, LATENCY_VALUES, LATENCY_REST };

/* By the whole warp. */
DEVICE void latency_load_box_4d(const LatencyLoader &self, const LatencyBox &box, uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
    if (elect_sync() && !self.ends)
        cp_async_bulk_tensor_4d_load(box.to, box.map, (int32_t)x, (int32_t)y, (int32_t)z, (int32_t)w, box.full);
}
template <uint32_t KINDS>
DEVICE void latency_open_online(LatencyLoader &self, const LatencyOnline &online, const LatencyRowStage &stage, uint32_t number) {
    constexpr uint32_t KEYS = online_keys_of<KINDS>();
    const uint32_t part = number % online.of_pair / MGV__MATH_GROUPS;
    latency_open_rows(self, stage, part == LATENCY_REST ? 2 * KEYS * online.rest * 2 : KEYS * 128);
}
/* Its queries and keys; RANGES: those of an ATTENTION_RANGES tile. */
template <bool RANGES> DEVICE LatencyQueries latency_own_queries(const LatencyLoader &self, const TileSlot &tile) {
    if constexpr (RANGES) return {latency_range_head(tile, self.cta), latency_range_query(tile, self.cta)};
    else return latency_queries(tile, self.cta);
}
/* Stages and the like: those of a RANGES tile by a walk through its ranges. */
template <uint32_t KINDS, bool RANGES>
DEVICE LatencyOnline latency_online(const mgv__kernel_arguments &arguments, const TileSlot &tile, uint32_t cta) {
    uint32_t pairs;
    if constexpr (RANGES) pairs = latency_key_pairs<KINDS>(latency_key_walk(arguments, tile, cta));
    else pairs = mgv__ceil_div(tile.op.tokens, latency_pair_keys<KINDS>());
    return LatencyOnline(warp_uniform(pairs), warp_uniform(rest_columns<KINDS>(tile.op)));
}
template <uint32_t KINDS, bool RANGES> DEVICE void latency_load_online(LatencyLoader &self, const TileSlot &tile) {
    constexpr uint32_t KEYS = online_keys_of<KINDS>();
    const mgv__kernel_op &op = tile.op;
    const LatencyOnline online = latency_online<KINDS, RANGES>(self.arguments, tile, self.cta);
    const LatencyQueries own = latency_own_queries<RANGES>(self, tile);
    const uint32_t image = RANGES ? 0 : warp_uniform(image_number(op, tile.group, tile.unit)), head = warp_uniform(own.head),
                   heads = warp_uniform(op.heads), first = warp_uniform(own.first);
    const uint32_t map = warp_uniform(op.of.attention.key_map), rest_map = warp_uniform(op.of.attention.key_rest_map);
    const LatencyWeightStage weights = latency_uniform(self.weights);
    LatencyBox queries[2];
    LatencyRowStage stage = latency_uniform(self.stage), opened = stage;
    latency_meet_loaders(self);
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        const LatencyWeightStage at = latency_stage_after(weights, i);
        uint64_t *full = &self.shared->weights_full[at.index];
        queries[i] = latency_box(self, self.shared->weights[at.index], full,
                                 warp_uniform(i ? op.of.attention.query_rest_map : op.of.attention.query_map));
        if (i < online.queries)
            latency_open_stage(self, full, &self.shared->weights_empty[at.index], at.parity, 64 * (i ? online.rest : 64u) * 2);
    }
#pragma unroll 1
    for (uint32_t i = 0; i < online.stages && i < MGV__LATENCY_ROW_STAGES; i++, opened.advance())
        latency_open_online<KINDS>(self, online, opened, i);
    KeyWalk walk = {};
    if constexpr (RANGES) walk = latency_key_walk(self.arguments, tile, self.cta);
    latency_wait_counters(self, latency_counters<RANGES>(self, tile));
    latency_load_box_4d(self, queries[0], 0, head, first, image);
    latency_tell_ready(self);
    if (online.rest) latency_load_box_4d(self, queries[1], 64, head, first, image);
#pragma unroll 1
    for (uint32_t i = 0; i < online.stages; i++, stage.advance()) {
        if (RANGES && i && i % online.of_pair == 0) next_keys<latency_pair_keys<KINDS>()>(walk);
        const uint32_t part = i % online.of_pair / MGV__MATH_GROUPS;
        uint32_t row = (i / online.of_pair * MGV__MATH_GROUPS + i % MGV__MATH_GROUPS) * KEYS;
        if constexpr (RANGES) row = warp_uniform(walk.row) + i % MGV__MATH_GROUPS * KEYS;
        if (i >= MGV__LATENCY_ROW_STAGES) latency_open_online<KINDS>(self, online, stage, i);
        if (part != LATENCY_REST) {
            latency_load_box_4d(self, latency_rows_box(self, stage, map), 0, (1 + part) * heads + head, row, image);
            continue;
        }
        LatencyBox box = latency_rows_box(self, stage, rest_map);
        latency_load_box_4d(self, box, 64, heads + head, row, image);
        box.to += KEYS * online.rest * 2;
        latency_load_box_4d(self, box, 64, 2 * heads + head, row, image);
    }
}

/* The pooling head's tokens, those of this CTA, all columns: two blocks a box. Rows behind the CTA's last are another's, or zeros. */
DEVICE void latency_load_pool(LatencyLoader &self, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t image = warp_uniform(image_number(op, tile.group, tile.unit)), row = warp_uniform(self.cta * latency_pool_share(op));
    const uint32_t map = warp_uniform(op.of.pool_few.token_map), stages = warp_uniform(latency_pool_stages(op)),
                   bytes = warp_uniform(2 * latency_pool_rows(op) * MGV__GEMM_INNER * 2);
    const LatencyRowStage stage = latency_uniform(self.stage);
#pragma unroll 1
    for (uint32_t i = 0; i < stages; i++) latency_open_rows(self, latency_stage_after(stage, i), bytes);
    latency_wait_counters(self, latency_counters(self, tile));
    latency_tell_ready(self);
#pragma unroll 1
    for (uint32_t i = 0; i < stages; i++) {
        const LatencyBox box = latency_rows_box(self, latency_stage_after(stage, i), map);
        if (elect_sync() && !self.ends)
            cp_async_bulk_tensor_4d_load(box.to, box.map, 0, (int32_t)row, (int32_t)(2 * i), (int32_t)image, box.full);
    }
}

/* Tokens of a picture, 64 columns of them. What a box has behind the last token is other pictures' tokens, which must be there, too, or
   zeros. */
DEVICE void latency_load_sums(LatencyLoader &self, const TileSlot &tile) {
    const LatencyTokens tokens = latency_tokens(self.arguments, tile);
    const uint32_t stages = warp_uniform(latency_sums_stages(tile, self.cta, tokens)), map = warp_uniform(tile.op.of.pool.token_map),
                   column = warp_uniform(latency_sums_column(tile, self.cta) * 64), row = warp_uniform(tokens.box_row),
                   image = warp_uniform(tokens.box_image);
    CounterRange range = latency_counters(self, tile);
    if (self.arguments.picture_rows) { /* of one group */
        const uint32_t end = mgv__min_u32(row + (stages ? stages : 1u) * MGV__ONLINE_KEYS,
                                          ld_global_nc_u32(self.arguments.picture_rows + tile.op.rows_total));
        range.first = tile.op.wait_counter + row / tile.op.wait_divisor;
        range.last = tile.op.wait_counter + (end - 1) / tile.op.wait_divisor;
    }
    LatencyRowStage stage = latency_uniform(self.stage), opened = stage;
#pragma unroll 1
    for (uint32_t i = 0; i < stages && i < MGV__LATENCY_ROW_STAGES; i++, opened.advance())
        latency_open_rows(self, opened, MGV__ONLINE_KEYS * 128);
    latency_wait_counters(self, range);
    latency_tell_ready(self);
#pragma unroll 1
    for (uint32_t i = 0; i < stages; i++, stage.advance()) {
        if (i >= MGV__LATENCY_ROW_STAGES) latency_open_rows(self, stage, MGV__ONLINE_KEYS * 128);
        latency_load_box(self, latency_rows_box(self, stage, map), column, row + i * MGV__ONLINE_KEYS, image);
    }
}

/* Behind a tile: both loaders follow both rings. */
template <uint32_t KINDS> DEVICE void latency_pass_stages(LatencyLoader &self, const TileSlot &tile) {
    const uint32_t kind = warp_uniform(tile.op.kind), blocks = latency_is_product(kind) ? warp_uniform(tile.op.of.latency.blocks) : 0;
    uint32_t rows = blocks, weights = blocks;
    if (kind == MGV__KERNEL_ATTENTION) rows = LATENCY_ATTENTION_STAGES;
    if (is_kind<KINDS, MGV__KERNEL_ATTENTION_ONLINE>(kind)) {
        const LatencyOnline online = latency_online<KINDS, false>(self.arguments, tile, self.cta);
        rows = online.stages;
        weights = online.queries;
    }
    if (is_kind<KINDS, MGV__KERNEL_ATTENTION_RANGES>(kind)) {
        const LatencyOnline online = latency_online<KINDS, true>(self.arguments, tile, self.cta);
        rows = online.stages;
        weights = online.queries;
    }
    if (kind == MGV__KERNEL_POOL_HEADS) rows = warp_uniform(latency_pool_stages(tile.op));
    if (is_kind<KINDS, MGV__KERNEL_POOL_SUMS>(kind))
        rows = warp_uniform(latency_sums_stages(tile, self.cta, latency_tokens(self.arguments, tile)));
    if (kind == MGV__KERNEL_THIN) {
        rows = LatencyThin(blocks).pairs + MGV__MATH_GROUPS;
        weights = MGV__MATH_GROUPS;
    }
    self.stage = latency_stage_after(self.stage, rows);
    self.weights = latency_stage_after(self.weights, weights);
}

/* All tiles, by a whole warp that loads something for each. */
template <class Load> DEVICE void latency_loader_tiles(LatencyLoader &self, const Load &load) {
    for (;; self.slot.advance()) {
        wait_barrier(&self.shared->tile_known[self.slot.index], self.slot.parity);
        self.ends = !vote_all(!gives_up(self.shared));
        const TileSlot &tile = self.shared->slot[self.slot.index];
        if (self.ends || tile.op.kind == MGV__KERNEL_END) break;
        load(tile, latency_is_product(tile.op.kind));
        warp_sync();
        if (self.lane == 0) mbarrier_arrive(shared_address(&self.shared->slot_vacated[self.slot.index]));
    }
}

/* Waits until the tile before has been signalled, if its operation asks for that. By every tile, or the slot might be a phase further: that
   phase wants this warp, too. */
DEVICE void latency_hold_weights(LatencyLoader &self, const TileSlot &tile) {
    if (self.holds) wait_barrier(&self.shared->slot_vacated[self.held.index], self.held.parity);
    self.holds = warp_uniform(tile.op.flags & MGV__KERNEL_HOLD_WEIGHTS);
    self.held = self.slot;
}

template <uint32_t KINDS> ROUTINE void latency_weight_loader_role(LatencyMemory *shared, const mgv__kernel_arguments &arguments) {
    LatencyLoader self(shared, arguments);
    latency_loader_tiles(self, [&](const TileSlot &tile, bool gemm) {
        if (is_kind<KINDS, MGV__KERNEL_ATTENTION_ONLINE>(tile.op.kind) || is_kind<KINDS, MGV__KERNEL_ATTENTION_RANGES>(tile.op.kind))
            latency_meet_loaders(self);
        latency_hold_weights(self, tile);
        if (tile.op.kind == MGV__KERNEL_THIN) latency_load_thin_weights(self, tile);
        else if (gemm) latency_load_weights(self, tile);
        latency_pass_stages<KINDS>(self, tile);
    });
}

template <uint32_t KINDS> ROUTINE void latency_row_loader_role(LatencyMemory *shared, const mgv__kernel_arguments &arguments) {
    LatencyLoader self(shared, arguments);
    latency_loader_tiles(self, [&](const TileSlot &tile, bool gemm) {
        if (tile.op.kind == MGV__KERNEL_THIN) latency_load_thin_rows(self, tile);
        else if (gemm) latency_load_rows<is_tower<KINDS>()>(self, tile);
        else if (tile.op.kind == MGV__KERNEL_ATTENTION) latency_load_attention(self, tile);
        else if (is_kind<KINDS, MGV__KERNEL_ATTENTION_ONLINE>(tile.op.kind)) latency_load_online<KINDS, false>(self, tile);
        else if (is_kind<KINDS, MGV__KERNEL_ATTENTION_RANGES>(tile.op.kind)) latency_load_online<KINDS, true>(self, tile);
        else if (tile.op.kind == MGV__KERNEL_POOL_HEADS) latency_load_pool(self, tile);
        else if (is_kind<KINDS, MGV__KERNEL_POOL_SUMS>(tile.op.kind)) latency_load_sums(self, tile);
        else {
            latency_wait_counters(self, latency_counters<is_tower<KINDS>()>(self, tile), 0);
            latency_tell_ready(self);
        }
        latency_pass_stages<KINDS>(self, tile);
    });
}

#endif /* MGV_LATENCY_LOADER_CUH */
