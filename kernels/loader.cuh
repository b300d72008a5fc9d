/* megavit: the loader. One thread that keeps the ring of stages full through the copy engine.

   GEMM: A is this CTA's own 128 x 64 block. B is shared by the cluster: each CTA loads half of its rows and multicasts them to both, so a stage is
   free only when the math warps of both CTAs have left it. Weights are loaded before the wait for what other CTAs write. */
#ifndef MGV_LOADER_CUH
#define MGV_LOADER_CUH

#include "scheduler.cuh"

struct Loader {
    SharedMemory *shared;
    const mgv__kernel_arguments &arguments;
    Watchdog dog;
    Ring<MGV__STAGES> stage;
    uint32_t cta;
    __device__ __forceinline__ Loader(SharedMemory *s, const mgv__kernel_arguments &a) : shared(s), arguments(a), dog(a), cta(cluster_ctarank()) {}
};

DEVICE const CUtensorMap *tensor_map(const mgv__kernel_arguments &arguments, uint32_t index) { return (const CUtensorMap *)&arguments.maps[index]; }

/* Waits until the stage is free and announces how many bytes will land in it. */
DEVICE void loader_open_stage(Loader &self, const Ring<MGV__STAGES> &stage, uint32_t bytes) {
    wait_barrier(self.dog, &self.shared->stage_empty[stage.index], stage.parity ^ 1, MGV__WAIT_STAGE_EMPTY);
    if (!self.dog.aborted) mbarrier_arrive_expect_tx(shared_address(&self.shared->stage_full[stage.index]), bytes);
}

/* Waits until every role of this CTA is done with the tile before that of `slot`. */
DEVICE void loader_wait_vacated(Loader &self, const Ring<MGV__SLOTS> &slot) {
    const uint32_t before = (slot.index + MGV__SLOTS - 1) % MGV__SLOTS, parity = slot.index == 0 ? slot.parity ^ 1 : slot.parity;
    wait_barrier(self.dog, &self.shared->slot_vacated[before], parity, MGV__WAIT_SLOT_VACATED);
}

/* Waits until everything that the tile reads has been written, and orders the copy engine's reads after it. */
DEVICE void loader_wait_ready(Loader &self, const Ring<MGV__SLOTS> &slot) {
    wait_barrier(self.dog, &self.shared->tile_ready[slot.index], slot.parity, MGV__WAIT_TILE_READY);
    fence_proxy_async_global();
}

DEVICE void load_box_3d(Loader &self, uint32_t stage, uint32_t offset, uint32_t map, uint32_t x, uint32_t y, uint32_t z) {
    if (self.dog.aborted) return;
    cp_async_bulk_tensor_3d_load(shared_address(self.shared->stage[stage]) + offset, tensor_map(self.arguments, map), (int32_t)x, (int32_t)y, (int32_t)z,
                                 shared_address(&self.shared->stage_full[stage]));
}

/* Blocks of 64 columns of A and B in one stage: a narrow tile takes two, to have as many bytes on their way. */
DEVICE constexpr uint32_t gemm_depth(uint32_t tile_columns) { return tile_columns == 64 ? 2 : 1; }

/* Biases for the epilogue, counted with the bytes of stage MGV__STAGES of the tile. That stage is free only after all math warps have left the
   tile's first stage, and with it the epilogue of the tile before: nobody still reads what is overwritten here. In a tile with fewer stages they come
   with the last, when the tile before has been vacated. */
DEVICE void load_vectors(Loader &self, uint32_t stage, uint32_t first, uint32_t bytes) {
    if (self.dog.aborted) return;
    cp_async_bulk_load(shared_address(self.shared->vectors), self.arguments.vectors + first, bytes, shared_address(&self.shared->stage_full[stage]));
}

DEVICE void load_gemm(Loader &self, const TileSlot &tile, const Ring<MGV__SLOTS> &slot, uint32_t tile_columns) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t a_bytes = MGV__GEMM_ROWS * MGV__GEMM_INNER * 2, half = tile_columns / MGV__CLUSTER, half_bytes = half * MGV__GEMM_INNER * 2;
    const uint32_t depth = gemm_depth(tile_columns), stages = (op.k_blocks + depth - 1) / depth;
    const uint32_t row = (tile.unit * MGV__CLUSTER + self.cta) * MGV__GEMM_ROWS;
    const uint32_t first_column = tile.column * (op.a_column_step ? head_columns(op) : tile_columns), b_row = op.b_row + first_column + self.cta * half;
    const uint32_t a_column = tile.column * op.a_column_step;
    const uint32_t vector_bytes = tile_columns * 4, vector_step = stages > MGV__STAGES ? MGV__STAGES : stages - 1;
    uint32_t ready = 0, waiting = 0; /* stages that have their weights but not their activations */
    Ring<MGV__STAGES> activations = self.stage;
    if (op.flags & MGV__KERNEL_WAIT_FIRST) {
        loader_wait_ready(self, slot);
        ready = 1;
    }
    for (uint32_t step = 0; step < stages; step++) {
        const uint32_t stage = self.stage.index, with_vectors = step == vector_step;
        if (with_vectors && stages <= MGV__STAGES) loader_wait_vacated(self, slot);
        loader_open_stage(self, self.stage, depth * (a_bytes + 2 * half_bytes) + (with_vectors ? vector_bytes : 0));
        if (with_vectors) load_vectors(self, stage, op.bias + first_column, vector_bytes);
        for (uint32_t block = 0; block < depth && !self.dog.aborted; block++)
            cp_async_bulk_tensor_2d_load_multicast(shared_address(self.shared->stage[stage]) + depth * a_bytes + (2 * block + self.cta) * half_bytes,
                                                   tensor_map(self.arguments, op.b_map), (int32_t)((step * depth + block) * MGV__GEMM_INNER), (int32_t)b_row,
                                                   shared_address(&self.shared->stage_full[stage]), 3);
        self.stage.advance();
        waiting++;
        if (!ready) {
            const uint32_t can_run_ahead = waiting < MGV__STAGES && step + 1 < stages;
            if (can_run_ahead && !mbarrier_test_wait_parity(shared_address(&self.shared->tile_ready[slot.index]), slot.parity)) continue;
            loader_wait_ready(self, slot);
            ready = 1;
        }
        for (; waiting; waiting--, activations.advance())
            for (uint32_t block = 0; block < depth; block++)
                load_box_3d(self, activations.index, block * a_bytes, op.a_map, a_column + ((step + 1 - waiting) * depth + block) * MGV__GEMM_INNER, row, tile.group);
    }
}

/* Two stages: keys and two blocks of 64 queries, then values and, where the tile has them, two more blocks. */
DEVICE void load_attention(Loader &self, const TileSlot &tile, const Ring<MGV__SLOTS> &slot, uint32_t keys) {
    const mgv__kernel_op &op = tile.op;
    const AttentionPart part = attention_part(tile, self.cta);
    const uint32_t image = image_number(op, tile.group, tile.unit), column = part.head * 64, key_bytes = keys * 128, query_bytes = 64 * 128;
    loader_wait_ready(self, slot);
    for (uint32_t half = 0; half < 2; half++) {
        const uint32_t stage = self.stage.index, row = part.first * 64 + half * 128, queries = half == 0 || op.k_blocks == 1;
        loader_open_stage(self, self.stage, key_bytes + (queries ? 2 * query_bytes : 0));
        load_box_3d(self, stage, 0, op.a_map, op.inner * (1 + half) + column, 0, image);
        if (queries) load_box_3d(self, stage, key_bytes, op.b_map, column, row, image);
        if (queries) load_box_3d(self, stage, key_bytes + query_bytes, op.b_map, column, row + 64, image);
        self.stage.advance();
    }
}

DEVICE void load_box_4d(Loader &self, uint32_t stage, uint32_t offset, uint32_t map, uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
    if (self.dog.aborted) return;
    cp_async_bulk_tensor_4d_load(shared_address(self.shared->stage[stage]) + offset, tensor_map(self.arguments, map), (int32_t)x, (int32_t)y, (int32_t)z, (int32_t)w,
                                 shared_address(&self.shared->stage_full[stage]));
}

/* A stage of attention with online softmax: 64 columns of a block's keys, then of its values; what lies behind these columns, of keys, of values. */
DEVICE constexpr uint32_t online_box(uint32_t part) { return part * MGV__ONLINE_KEYS * 128; }
DEVICE constexpr uint32_t online_rest(uint32_t part, uint32_t rest) { return online_box(2) + part * MGV__ONLINE_KEYS * rest * 2; }
static_assert(2 * MGV__ONLINE_KEYS * MGV__KERNEL_MAX_HEAD_DIM * 2 <= MGV__STAGE_BYTES, "a block of keys and values fits one stage");

/* Keys and values block by block. The storers bring the queries. */
DEVICE void load_attention_online(Loader &self, const TileSlot &tile, const Ring<MGV__SLOTS> &slot) {
    const mgv__kernel_op &op = tile.op;
    const AttentionPart part = attention_part(tile, self.cta);
    const uint32_t image = image_number(op, tile.group, tile.unit), rest = rest_columns(op);
    loader_wait_ready(self, slot);
    for (uint32_t row = 0; row < op.tokens; row += MGV__ONLINE_KEYS, self.stage.advance()) {
        loader_open_stage(self, self.stage, online_rest(2, rest));
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t head = (1 + i) * op.heads + part.head;
            load_box_4d(self, self.stage.index, online_box(i), op.a_map, 0, head, row, image);
            if (rest) load_box_4d(self, self.stage.index, online_rest(i, rest), op.a_map + MAP_REST, 64, head, row, image);
        }
    }
}

/* The image's tokens twice, in chunks of 64 columns: with the scoring vectors, then alone. */
DEVICE void load_pool(Loader &self, const TileSlot &tile, const Ring<MGV__SLOTS> &slot, uint32_t keys) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t image = image_number(op, tile.group, tile.unit * MGV__CLUSTER + self.cta), key_bytes = keys * 128;
    loader_wait_ready(self, slot);
    for (uint32_t block = 0; block < 2 * op.k_blocks; block++) {
        const uint32_t stage = self.stage.index, scoring = block < op.k_blocks, column = (scoring ? block : block - op.k_blocks) * 64;
        loader_open_stage(self, self.stage, key_bytes + (scoring ? 64 * 128 : 0));
        load_box_3d(self, stage, 0, op.a_map, column, 0, image);
        if (scoring) load_box_3d(self, stage, key_bytes, op.b_map, column, 0, 0);
        self.stage.advance();
    }
}

/* The image's tokens in blocks, 64 columns of them for each math group. */
DEVICE void load_pool_sums(Loader &self, const TileSlot &tile, const Ring<MGV__SLOTS> &slot) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t image = image_number(op, tile.group, tile.unit * MGV__CLUSTER + self.cta);
    loader_wait_ready(self, slot);
    for (uint32_t row = 0; row < op.tokens; row += MGV__ONLINE_KEYS, self.stage.advance()) {
        loader_open_stage(self, self.stage, online_box(MGV__MATH_GROUPS));
        for (uint32_t i = 0; i < MGV__MATH_GROUPS; i++)
            load_box_3d(self, self.stage.index, online_box(i), op.a_map, (tile.column * MGV__MATH_GROUPS + i) * 64, row, image);
    }
}

DEVICE uint32_t key_block(uint32_t tokens) { return tokens <= 208 ? 208 : 256; }

DEVICE void loader_role(SharedMemory *shared, const mgv__kernel_arguments &arguments) {
    Loader self(shared, arguments);
    for (Ring<MGV__SLOTS> slot;; slot.advance()) {
        wait_barrier(self.dog, &shared->tile_known[slot.index], slot.parity, MGV__WAIT_TILE_KNOWN);
        const TileSlot &tile = shared->slot[slot.index];
        if (self.dog.aborted || tile.op.kind == MGV__KERNEL_END) break;
        if (tile.op.kind == MGV__KERNEL_GEMM_256) load_gemm(self, tile, slot, 256);
        else if (tile.op.kind == MGV__KERNEL_GEMM_128) load_gemm(self, tile, slot, 128);
        else if (tile.op.kind == MGV__KERNEL_GEMM_64) load_gemm(self, tile, slot, 64);
        else if (tile.op.kind == MGV__KERNEL_ATTENTION) load_attention(self, tile, slot, key_block(tile.op.tokens));
        else if (tile.op.kind == MGV__KERNEL_ATTENTION_ONLINE) load_attention_online(self, tile, slot);
        else if (tile.op.kind == MGV__KERNEL_POOL) load_pool(self, tile, slot, key_block(tile.op.tokens));
        else if (tile.op.kind == MGV__KERNEL_POOL_SUMS) load_pool_sums(self, tile, slot);
        mbarrier_arrive(shared_address(&shared->slot_vacated[slot.index]));
    }
}

#endif /* MGV_LOADER_CUH */
