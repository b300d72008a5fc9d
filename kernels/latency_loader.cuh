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

DEVICE uint32_t latency_stage_address(const LatencyLoader &self, const LatencyStage &stage) { return shared_address(self.shared->stage[stage.index]); }
DEVICE uint32_t latency_full_barrier(const LatencyLoader &self, const LatencyStage &stage) { return shared_address(&self.shared->stage_full[stage.index]); }

/* Waits until all who read the stage have left it, and announces how many bytes will land in it. */
DEVICE void latency_open_stage(LatencyLoader &self, const LatencyStage &stage, uint32_t bytes) {
    wait_barrier(self.dog, &self.shared->stage_empty[stage.index], stage.parity ^ 1, MGV__WAIT_STAGE_EMPTY);
    if (!self.dog.aborted) mbarrier_arrive_expect_tx(latency_full_barrier(self, stage), bytes);
}

/* A box into this CTA's stage alone, or into all of `mask`. */
DEVICE void latency_load_box(LatencyLoader &self, const LatencyStage &stage, uint32_t offset, uint32_t map, uint32_t x, uint32_t y, uint32_t z, uint32_t mask) {
    if (self.dog.aborted) return;
    const uint32_t to = latency_stage_address(self, stage) + offset, barrier = latency_full_barrier(self, stage);
    if (mask) cp_async_bulk_tensor_3d_load_multicast(to, tensor_map(self.arguments, map), (int32_t)x, (int32_t)y, (int32_t)z, barrier, (uint16_t)mask);
    else cp_async_bulk_tensor_3d_load(to, tensor_map(self.arguments, map), (int32_t)x, (int32_t)y, (int32_t)z, barrier);
}

/* --- waiting for what other CTAs write, as a whole warp --------------------------------------------------------- */

struct CounterRange {
    uint32_t first, last, threshold; /* threshold 0: there is nothing to wait for */
    uint32_t op;                     /* number of the operation that waits */
};
DEVICE CounterRange latency_counters(const TileSlot &tile, uint32_t cta) {
    const mgv__kernel_op &op = tile.op;
    CounterRange range = {0, 0, 0, op.number};
    uint32_t first, end;
    latency_tile_rows(tile, cta, first, end);
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

struct GemmBoxes {
    uint32_t a_x, a_row, a_offset, a_mask; /* this CTA's share of A, first column of its part of K */
    uint32_t b_x, b_row, b_offset, b_mask;
};
DEVICE GemmBoxes latency_gemm_boxes(const TileSlot &tile, uint32_t cta) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t first_row = op.b_row + latency_column_tile(tile, cta) * latency_tile_columns(op);
    GemmBoxes boxes;
    if (op.kind == MGV__KERNEL_DEEP) {
        const uint32_t part = cta * op.k_blocks * MGV__GEMM_INNER;
        boxes = {tile.column * op.a_column_step + part, tile.unit * MGV__LATENCY_ROWS, 0, 0, part, first_row, LATENCY_A_BYTES, 0};
        return boxes;
    }
    const uint32_t row_tile = cta / LATENCY_COLUMN_TILES, column_tile = cta % LATENCY_COLUMN_TILES;
    uint32_t same_columns = 0;
#pragma unroll
    for (uint32_t i = 0; i < MGV__LATENCY_ROW_TILES; i++) same_columns |= 1u << (i * LATENCY_COLUMN_TILES + column_tile);
    boxes.a_x = boxes.b_x = 0;
    boxes.a_row = (tile.unit * MGV__LATENCY_ROW_TILES + row_tile) * MGV__LATENCY_ROWS + column_tile * LATENCY_SHARED_A_ROWS;
    boxes.a_offset = column_tile * LATENCY_SHARED_A_ROWS * 128;
    boxes.a_mask = ((1u << LATENCY_COLUMN_TILES) - 1) << row_tile * LATENCY_COLUMN_TILES;
    boxes.b_row = first_row + row_tile * LATENCY_SHARED_B_ROWS;
    boxes.b_offset = LATENCY_A_BYTES + row_tile * LATENCY_SHARED_B_ROWS * 128;
    boxes.b_mask = MGV__LATENCY_ROW_TILES > 1 ? same_columns : 0;
    return boxes;
}

DEVICE void latency_load_weights(LatencyLoader &self, const mgv__kernel_op &op, const GemmBoxes &boxes, const LatencyStage &stage, uint32_t block) {
    latency_open_stage(self, stage, LATENCY_A_BYTES + LATENCY_B_BYTES);
    latency_load_box(self, stage, boxes.b_offset, op.b_map, boxes.b_x + block * MGV__GEMM_INNER, boxes.b_row, 0, boxes.b_mask);
}

/* As many blocks of weights as the ring holds, then the wait, then their A, then block after block. */
DEVICE void latency_load_gemm(LatencyLoader &self, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    const GemmBoxes boxes = latency_gemm_boxes(tile, self.cta);
    const CounterRange range = latency_counters(tile, self.cta);
    const uint32_t stages = op.k_blocks < MGV__LATENCY_STAGES ? op.k_blocks : MGV__LATENCY_STAGES, ahead = latency_is_ready(self, range) ? 0 : stages;
    LatencyStage weights = self.stage;
    for (uint32_t block = 0; self.lane == 0 && block < ahead; block++, weights.advance()) latency_load_weights(self, op, boxes, weights, block);
    latency_wait_ready(self, range);
    for (uint32_t block = 0; self.lane == 0 && block < op.k_blocks; block++, self.stage.advance()) {
        if (block >= ahead) latency_load_weights(self, op, boxes, self.stage, block);
        latency_load_box(self, self.stage, boxes.a_offset, op.a_map, boxes.a_x + block * MGV__GEMM_INNER, boxes.a_row, tile.group, boxes.a_mask);
    }
}

/* Boxes of 64 tokens: the CTA's queries, then all keys, then all values; two a stage. */
enum { LATENCY_ATTENTION_BOXES = 1 + 2 * MGV__LATENCY_CLUSTER, LATENCY_ATTENTION_STAGES = (LATENCY_ATTENTION_BOXES + 1) / 2 };

DEVICE void latency_load_attention(LatencyLoader &self, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t image = image_number(op, tile.group, tile.unit), column = tile.column * 64;
    LatencyStage opened = self.stage;
    if (self.lane == 0)
        for (uint32_t i = 0; i < LATENCY_ATTENTION_STAGES; i++, opened.advance())
            latency_open_stage(self, opened, 2 * i + 1 < LATENCY_ATTENTION_BOXES ? 2 * LATENCY_BOX_BYTES : LATENCY_BOX_BYTES);
    latency_wait_ready(self, latency_counters(tile, self.cta));
    if (self.lane) return;
    for (uint32_t box = 0; box < LATENCY_ATTENTION_BOXES; box++) {
        const uint32_t offset = box % 2 * LATENCY_BOX_BYTES, block = (box - 1) % MGV__LATENCY_CLUSTER, value = (box - 1) / MGV__LATENCY_CLUSTER;
        if (box == 0) latency_load_box(self, self.stage, offset, op.a_map, column, self.cta * 64, image, 0);
        else if (block == self.cta) latency_load_box(self, self.stage, offset, op.a_map, op.inner * (1 + value) + column, block * 64, image, (1u << MGV__LATENCY_CLUSTER) - 1);
        if (box % 2 || box + 1 == LATENCY_ATTENTION_BOXES) self.stage.advance();
    }
}

/* Column blocks of the weighted sums that each CTA takes, those beyond the last one too: all CTAs use the same number of stages. */
DEVICE uint32_t latency_pool_blocks(const mgv__kernel_op &op) { return (op.k_blocks + MGV__LATENCY_CLUSTER - 1) / MGV__LATENCY_CLUSTER; }

/* 64 tokens and the scoring vectors, block after block of columns; then all tokens, two boxes a stage, in this CTA's blocks of columns. */
DEVICE void latency_load_pool(LatencyLoader &self, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t image = image_number(op, tile.group, tile.unit);
    latency_wait_ready(self, latency_counters(tile, self.cta));
    if (self.lane) return;
    for (uint32_t block = 0; block < op.k_blocks; block++, self.stage.advance()) {
        latency_open_stage(self, self.stage, LATENCY_BOX_BYTES + MGV__LATENCY_MAX_HEADS * 128);
        latency_load_box(self, self.stage, 0, op.a_map, block * 64, self.cta * 64, image, 0);
        latency_load_box(self, self.stage, LATENCY_BOX_BYTES, op.b_map, block * 64, 0, 0, 0);
    }
    for (uint32_t i = 0; i < 2 * latency_pool_blocks(op); i++, self.stage.advance()) {
        const uint32_t column = (i / 2 * MGV__LATENCY_CLUSTER + self.cta) * 64;
        latency_open_stage(self, self.stage, 2 * LATENCY_BOX_BYTES);
        for (uint32_t half = 0; half < 2; half++)
            latency_load_box(self, self.stage, half * LATENCY_BOX_BYTES, op.a_map, column, (i % 2 * 2 + half) * 64, image, 0);
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
        else latency_wait_ready(self, latency_counters(tile, self.cta));
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
    const uint32_t units = (rows_of_group(tile.op, tile.group) + MGV__LATENCY_ROWS - 1) / MGV__LATENCY_ROWS, bytes = tile.op.prefetch_bytes;
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
        TileSlot &tile = shared->slot[slot.index];
        wait_barrier(dog, &shared->slot_vacated[slot.index], slot.parity ^ 1, MGV__WAIT_SLOT_VACATED);
        dog.aborted = !vote_all(!dog.aborted);
        if (dog.aborted) break; /* the slot may still be in use; who waits for a tile sees the abort by itself */
        const bool last = number >= arguments.total_tiles;
        if (last) {
            if (lane == 0) tile.op.kind = MGV__KERNEL_END;
        } else {
            while (number >= arguments.segments[segment + 1].first_tile) segment++;
            const mgv__kernel_segment at = arguments.segments[segment];
            ((uint32_t *)&tile.op)[lane] = ld_global_nc_u32((const uint32_t *)&arguments.ops[at.op] + lane);
            warp_sync();
            if (lane == 0) {
                tile.group = at.group;
                tile.unit = at.first_unit + (number - at.first_tile) / tile.op.column_tiles;
                tile.column = (number - at.first_tile) % tile.op.column_tiles;
            }
        }
        warp_sync();
        if (lane == 0) mbarrier_arrive(shared_address(&shared->tile_known[slot.index]));
        if (last) break;
        if (lane < 2 && tile.op.kind != MGV__KERNEL_PATCHES) prefetch_tensormap(tensor_map(arguments, lane ? tile.op.b_map : tile.op.a_map));
        latency_prefetch(arguments, tile, cta, lane);
    }
}

#endif /* MGV_LATENCY_LOADER_CUH */
