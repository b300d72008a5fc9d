/* megavit: the latency regime's scheduler and loader, a warp each. The scheduler walks the list of segments and announces this CTA's tiles, a few ahead. The
   loader keeps the ring full through the copy engine, and waits itself on the counters in global memory for what a tile reads: nothing lies between the last
   signal and the first load.

   Weights come first and fill the ring while the tiles that this one waits for are still at work; what they write is loaded last. */
#ifndef MGV_LATENCY_LOADER_CUH
#define MGV_LATENCY_LOADER_CUH

#include "latency_memory.cuh"
#include "loader.cuh"

struct LatencyLoader {
    LatencyMemory *shared;
    const mgv__kernel_arguments &arguments;
    Watchdog dog;
    Ring<MGV__LATENCY_STAGES> stage; /* lane 0's: it does all loads */
    Ring<MGV__SLOTS> slot;
    uint32_t lane, cta;
    __device__ __forceinline__ LatencyLoader(LatencyMemory *s, const mgv__kernel_arguments &a)
        : shared(s), arguments(a), dog(a), lane(threadIdx.x % 32), cta(cluster_ctarank()) {}
};

typedef Ring<MGV__LATENCY_STAGES> LatencyStage;

/* Keys of one math warpgroup: half of what a plan with so many rows a tile has, in whole steps of the products with the values. */
DEVICE constexpr uint32_t latency_half_keys(uint32_t rows) { return (rows + 15) / 16 * 16; }

DEVICE uint32_t latency_stage_address(const LatencyLoader &self, const LatencyStage &stage) { return shared_address(self.shared->stage[stage.index]); }
DEVICE uint32_t latency_full_barrier(const LatencyLoader &self, const LatencyStage &stage) { return shared_address(&self.shared->stage_full[stage.index]); }

/* Where lane 0 has come to in the ring. */
DEVICE LatencyStage latency_uniform(LatencyStage stage) {
    stage.index = warp_uniform(stage.index);
    stage.parity = warp_uniform(stage.parity);
    return stage;
}

/* Waits until all math warps have left the stage, and announces how many bytes will land in it. */
DEVICE void latency_open_stage(LatencyLoader &self, const LatencyStage &stage, uint32_t bytes) {
    wait_barrier(self.dog, &self.shared->stage_empty[stage.index], stage.parity ^ 1, MGV__WAIT_STAGE_EMPTY);
    if (!self.dog.aborted) mbarrier_arrive_expect_tx(latency_full_barrier(self, stage), bytes);
}

DEVICE void latency_load_box(LatencyLoader &self, const LatencyStage &stage, uint32_t offset, uint32_t map, uint32_t x, uint32_t y, uint32_t z) {
    if (self.dog.aborted) return;
    cp_async_bulk_tensor_3d_load(latency_stage_address(self, stage) + offset, tensor_map(self.arguments, map), (int32_t)x, (int32_t)y, (int32_t)z,
                                 latency_full_barrier(self, stage));
}

/* --- waiting for what other CTAs write, as a whole warp --------------------------------------------------------- */

struct CounterRange {
    uint32_t first, last, threshold; /* threshold 0: there is nothing to wait for */
    uint32_t op;                     /* number of the operation that waits */
};
DEVICE CounterRange latency_counters(const LatencyLoader &self, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    CounterRange range = {0, 0, 0, op.number};
    uint32_t first, end;
    latency_tile_rows(self.arguments, tile, first, end);
    if (!op.wait_divisor || first >= end) return range;
    const uint32_t base = op.wait_counter + tile.group * op.wait_stride;
    range.first = base + first / op.wait_divisor;
    range.last = base + (end - 1) / op.wait_divisor;
    range.threshold = op.wait_threshold;
    return range;
}

/* 1 if everything has been written already. */
DEVICE uint32_t latency_is_ready(LatencyLoader &self, const CounterRange &range) {
    uint32_t ready = 1;
    for (uint32_t base = range.first; base <= range.last && ready; base += 32) {
        const uint32_t index = base + self.lane <= range.last ? base + self.lane : range.last;
        ready = vote_all(range.threshold == 0 || ld_acquire_gpu(self.arguments.counters + index) >= range.threshold);
    }
    return ready;
}

/* Waits for it, tells the math warps, and orders the copy engine's reads after it. */
DEVICE void latency_wait_ready(LatencyLoader &self, const CounterRange &range) {
    warp_sync();
    self.dog.aborted = !vote_all(!self.dog.aborted);
    if (range.threshold) wait_counters(self.dog, self.arguments.counters, range.first, range.last, range.threshold, range.op);
    warp_sync(); /* each lane has acquired what its own counters stand for */
    fence_proxy_async_global();
    if (self.lane == 0) mbarrier_arrive(shared_address(&self.shared->tile_ready[self.slot.index]));
}

/* --- tiles ----------------------------------------------------------------------------------------------------- */

/* What a product's loads have in common: maps, where this CTA's part begins in the weights and in the activations, and the bytes of a stage. Of the whole warp,
   and known as such to the compiler, as is the ring's state: for a lane's own values it would build a loop around each load, which takes longer than the bytes. */
struct GemmBoxes {
    uint32_t weight_map, weight_row, weight_column, map, row, column, group, bytes;
};
DEVICE GemmBoxes latency_gemm_boxes(const LatencyLoader &self, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t part = op.kind == MGV__KERNEL_DEEP ? self.cta * op.k_blocks * MGV__GEMM_INNER : 0;
    GemmBoxes boxes;
    boxes.weight_map = warp_uniform(op.b_map);
    boxes.weight_row = warp_uniform(op.b_row + latency_column_tile(tile, self.cta) * MGV__LATENCY_COLUMNS);
    boxes.weight_column = warp_uniform(part);
    boxes.map = warp_uniform(op.a_map);
    boxes.row = warp_uniform(tile.unit * self.arguments.latency_rows);
    boxes.column = warp_uniform(tile.column * op.a_column_step + part);
    boxes.group = warp_uniform(tile.group);
    boxes.bytes = LATENCY_WEIGHT_BYTES + self.arguments.latency_rows * MGV__GEMM_INNER * 2;
    return boxes;
}

/* By the whole warp. */
DEVICE void latency_load_weights(LatencyLoader &self, const GemmBoxes &boxes, const LatencyStage &stage, uint32_t block) {
    wait_barrier(self.dog, &self.shared->stage_empty[stage.index], stage.parity ^ 1, MGV__WAIT_STAGE_EMPTY);
    warp_sync(); /* no lane may still be looking when the stage is filled */
    if (self.lane || self.dog.aborted) return;
    mbarrier_arrive_expect_tx(latency_full_barrier(self, stage), boxes.bytes);
    latency_load_box(self, stage, 0, boxes.weight_map, boxes.weight_column + block * MGV__GEMM_INNER, boxes.weight_row, 0);
}

/* As many blocks of weights as the ring holds, then the wait, then their activations, then block after block. */
DEVICE void latency_load_gemm(LatencyLoader &self, const TileSlot &tile) {
    const GemmBoxes boxes = latency_gemm_boxes(self, tile);
    const CounterRange range = latency_counters(self, tile);
    const uint32_t blocks = warp_uniform(tile.op.k_blocks), stages = blocks < MGV__LATENCY_STAGES ? blocks : (uint32_t)MGV__LATENCY_STAGES;
    const uint32_t ahead = warp_uniform(latency_is_ready(self, range) ? 0 : stages);
    LatencyStage weights = latency_uniform(self.stage), stage = weights;
#pragma unroll 1
    for (uint32_t block = 0; block < ahead; block++, weights.advance()) latency_load_weights(self, boxes, weights, block);
    latency_wait_ready(self, range);
#pragma unroll 1
    for (uint32_t block = 0; block < blocks; block++, stage.advance()) {
        if (block >= ahead) latency_load_weights(self, boxes, stage, block);
        if (self.lane == 0) latency_load_box(self, stage, LATENCY_WEIGHT_BYTES, boxes.map, boxes.column + block * MGV__GEMM_INNER, boxes.row, boxes.group);
    }
    self.stage = stage;
}

/* A stage each: queries and the first half of the keys, the second half; the first half of the values, the second. They lie where activations lie. */
enum { LATENCY_ATTENTION_STAGES = 4 };

DEVICE void latency_load_attention(LatencyLoader &self, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t image = image_number(op, tile.group, tile.unit), column = tile.column * 64, keys = latency_half_keys(self.arguments.latency_rows);
    const uint32_t query_map = warp_uniform(op.a_map), map = warp_uniform(op.b_map), inner = op.inner; /* read once: a load's fields are not to come from shared memory each time */
    LatencyStage opened = self.stage;
    if (self.lane == 0)
        for (uint32_t i = 0; i < LATENCY_ATTENTION_STAGES; i++, opened.advance()) latency_open_stage(self, opened, keys * 128 + (i == 0 ? LATENCY_BOX_BYTES : 0));
    latency_wait_ready(self, latency_counters(self, tile));
    if (self.lane) return;
    latency_load_box(self, self.stage, 0, query_map, column, self.cta * 64, image);
    for (uint32_t i = 0; i < LATENCY_ATTENTION_STAGES; i++, self.stage.advance())
        latency_load_box(self, self.stage, LATENCY_WEIGHT_BYTES, map, inner * (1 + i / 2) + column, i % 2 * keys, image);
}

/* Column blocks of the weighted sums that each CTA takes, those beyond the last one too: all CTAs use the same number of stages. */
DEVICE uint32_t latency_pool_blocks(const mgv__kernel_op &op) { return (op.k_blocks + MGV__LATENCY_CLUSTER - 1) / MGV__LATENCY_CLUSTER; }

/* 64 tokens and the scoring vectors, block after block of columns; then all tokens, two boxes a stage, in this CTA's blocks of columns. */
DEVICE void latency_load_pool(LatencyLoader &self, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t image = image_number(op, tile.group, tile.unit), map = warp_uniform(op.a_map), score_map = warp_uniform(op.b_map);
    const uint32_t blocks = op.k_blocks, sum_stages = 2 * latency_pool_blocks(op);
    latency_wait_ready(self, latency_counters(self, tile));
    if (self.lane) return;
    for (uint32_t block = 0; block < blocks; block++, self.stage.advance()) {
        latency_open_stage(self, self.stage, LATENCY_BOX_BYTES + MGV__LATENCY_MAX_HEADS * 128);
        latency_load_box(self, self.stage, 0, map, block * 64, self.cta * 64, image);
        latency_load_box(self, self.stage, LATENCY_BOX_BYTES, score_map, block * 64, 0, 0);
    }
    for (uint32_t i = 0; i < sum_stages; i++, self.stage.advance()) {
        const uint32_t column = (i / 2 * MGV__LATENCY_CLUSTER + self.cta) * 64;
        latency_open_stage(self, self.stage, 2 * LATENCY_BOX_BYTES);
        for (uint32_t half = 0; half < 2; half++) latency_load_box(self, self.stage, half * LATENCY_BOX_BYTES, map, column, (i % 2 * 2 + half) * 64, image);
    }
}

DEVICE void latency_loader_role(LatencyMemory *shared, const mgv__kernel_arguments &arguments) {
    LatencyLoader self(shared, arguments);
    for (;; self.slot.advance()) {
        wait_barrier(self.dog, &shared->tile_known[self.slot.index], self.slot.parity, MGV__WAIT_TILE_KNOWN);
        self.dog.aborted = !vote_all(!self.dog.aborted);
        const TileSlot &tile = shared->slot[self.slot.index];
        if (self.dog.aborted || tile.op.kind == MGV__KERNEL_END) break;
        if (tile.op.kind == MGV__KERNEL_WIDE || tile.op.kind == MGV__KERNEL_DEEP) latency_load_gemm(self, tile);
        else if (tile.op.kind == MGV__KERNEL_ATTENTION) latency_load_attention(self, tile);
        else if (tile.op.kind == MGV__KERNEL_POOL) latency_load_pool(self, tile);
        else latency_wait_ready(self, latency_counters(self, tile));
        warp_sync();
        if (self.lane == 0 && !self.dog.aborted) mbarrier_arrive(shared_address(&shared->slot_vacated[self.slot.index]));
    }
}

/* --- the scheduler ----------------------------------------------------------------------------------------------- */

/* Weights of a tile, on their way to the L2 cache, by a whole warp. The copy engine could do it, but would not load while it does. The tiles of the same
   columns share the bytes out. */
enum { LATENCY_PREFETCH_STEP = 64 };
DEVICE void latency_prefetch(const mgv__kernel_arguments &arguments, const TileSlot &tile, uint32_t cta, uint32_t lane) {
    if (!tile.op.prefetch_offset) return;
    const uint32_t units = (rows_of_group(tile.op, tile.group) + arguments.latency_rows - 1) / arguments.latency_rows, bytes = tile.op.prefetch_bytes;
    const uint8_t *first = arguments.weights + (size_t)(tile.op.prefetch_offset - 1) * 16 + (size_t)(tile.column * MGV__LATENCY_CLUSTER + cta) * bytes;
#pragma unroll 1
    for (uint32_t at = (tile.unit * 32 + lane) * LATENCY_PREFETCH_STEP; at < bytes; at += units * 32 * LATENCY_PREFETCH_STEP) prefetch_global_l2(first + at);
}

DEVICE void latency_scheduler_role(LatencyMemory *shared, const mgv__kernel_arguments &arguments) {
    Watchdog dog(arguments);
    Ring<MGV__SLOTS> slot;
    const uint32_t lane = threadIdx.x % 32, cta = cluster_ctarank(), step = nclusterid_x();
    uint32_t segment = 0;
    for (uint32_t number = clusterid_x();; number += step, slot.advance()) {
        if (!announce_tile(shared, arguments, dog, slot, number, segment)) break;
        const TileSlot &tile = shared->slot[slot.index];
        if (lane < 2 && tile.op.kind != MGV__KERNEL_PATCHES) prefetch_tensormap(tensor_map(arguments, lane ? tile.op.b_map : tile.op.a_map));
        latency_prefetch(arguments, tile, cta, lane);
    }
}

#endif /* MGV_LATENCY_LOADER_CUH */
