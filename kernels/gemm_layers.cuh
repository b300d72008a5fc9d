/* megavit: the layers' GEMM tiles of 256 or 192 columns, which are most of the work from some ten images on. One tile follows another without a pause: what comes next is
   found out under the last products, and accumulators are not cleared.

   Each math warpgroup computes 64 rows. The two are not tied to each other, but mostly run in step: the tensor cores rest while both are in their epilogues. */
#ifndef MGV_GEMM_LAYERS_CUH
#define MGV_GEMM_LAYERS_CUH

#include "gemm.cuh"

DEVICE bool is_layer_tile(const mgv__kernel_op &op) {
    const uint32_t flags = op.flags & FLAGS_OF_EPILOGUE;
    return (op.kind == MGV__KERNEL_GEMM_256 || op.kind == MGV__KERNEL_GEMM_192) && (flags == FLAGS_QKV || flags == FLAGS_FC1 || flags == FLAGS_STREAM);
}

/* Returns while the products of the last stage are still on their way, with that stage's index. */
template <int COLUMNS> DEVICE uint32_t layer_products(Math &self, uint32_t steps, float (&acc)[COLUMNS / 2]) {
    uint32_t before = 0;
    for (uint32_t step = 0; step < steps; step++) {
        math_wait_stage(self, self.stage);
        const uint32_t base = shared_address(self.shared->stage[self.stage.index]);
        const uint64_t a = matrix_descriptor(base + self.group * 64 * 128), b = matrix_descriptor(base + GEMM_A_BYTES);
        wgmma_fence();
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) wgmma_m64k16_bf16_ss(acc, a + 2 * k, b + 2 * k, step || k); /* the first product overwrites what the tile before left */
        wgmma_commit_group();
        wgmma_wait_group<1>();
        if (step) math_leave_stage(self, before);
        before = self.stage.index;
        self.stage.advance();
    }
    return before;
}

/* Where a lane's two rows leave the statistics of a tile's first 64 columns (0: no row of an image, or another lane's), and how many parts there are from there on. */
struct StatisticsPlace {
    float *row[2];
    uint32_t parts;
};
template <int COLUMNS> DEVICE StatisticsPlace statistics_place(const Math &self, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t parts = op.columns / 64, first = tile.column * (COLUMNS / 64), rows = rows_of_group(op, tile.group), row = gemm_row(self, tile);
    float *at = self.arguments.stats + op.stats_out + ((size_t)(tile.group * op.rows_per_group + row) * parts + first) * 2;
    StatisticsPlace place;
    place.row[0] = self.lane % 4 == 0 && row < rows ? at : 0;
    place.row[1] = self.lane % 4 == 0 && row + 8 < rows ? at + (size_t)8 * parts * 2 : 0;
    place.parts = parts - first;
    return place;
}
DEVICE void layer_statistics(const StatisticsPlace &place, const float *v, uint32_t part) {
    float mean[2], squares[2];
    chunk_statistics(v, mean, squares);
#pragma unroll
    for (int r = 0; r < 2; r++)
        if (place.row[r] && part < place.parts) st_relaxed_gpu_v2f32(place.row[r] + 2 * part, mean[r], squares[r]);
}

DEVICE void layer_biases(const Math &self, uint32_t chunk, float (&bias)[16]) {
    const uint32_t from = shared_address(&self.shared->vectors[chunk * 64 + 2 * (self.lane % 4)]);
#pragma unroll
    for (int j = 0; j < 8; j++) shared_load_v2f32(from + 32 * j, bias[2 * j], bias[2 * j + 1]);
}

/* In chunks of 64 columns. The first one's buffer, norms and biases are asked for under the last products. The accumulators stay as they are. A chunk's statistics
   are found when it is on its way, but for the last one's: they must be written when the storer signals. */
template <int COLUMNS, uint32_t FLAGS> DEVICE void layer_epilogue(Math &self, const TileSlot &tile, uint32_t last_stage, float (&acc)[COLUMNS / 2]) {
    constexpr int chunks = COLUMNS / 64;
    constexpr bool norm = FLAGS & MGV__KERNEL_FOLD_NORM, gelu = FLAGS & MGV__KERNEL_GELU_TANH, stats = FLAGS & MGV__KERNEL_STATS;
    float rstd[2], bias[16];
    StatisticsPlace place;
    if (stats) place = statistics_place<COLUMNS>(self, tile);
    uint32_t granted = math_take_chunk(self);
    gemm_norms(self, FLAGS, rstd);
    layer_biases(self, 0, bias);
    wgmma_wait_group<0>();
    wgmma_registers_fence(acc);
    math_leave_stage(self, last_stage);
#pragma unroll
    for (int chunk = 0; chunk < chunks; chunk++) {
        float v[32];
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const float sum = acc[32 * chunk + i], b = bias[i / 4 * 2 + i % 2];
            v[i] = norm ? rstd[i / 2 % 2] * sum + b : sum + b;
        }
        if (chunk + 1 < chunks) layer_biases(self, chunk + 1, bias);
        if (gelu) {
#pragma unroll
            for (int i = 0; i < 32; i++) v[i] = gelu_tanh_of_half(v[i]);
        }
        if (chunk) granted = math_take_chunk(self);
        gemm_write_bf16<64>(FLAGS, fragment_address(self, granted), v);
        if (stats && chunk + 1 == chunks) layer_statistics(place, v, chunk);
        math_give_chunk(self);
        if (stats && chunk + 1 < chunks) layer_statistics(place, v, chunk);
    }
}

/* The tile of self.slot and those behind it, as long as they are of this sort and known in time. What comes then, or KIND_NOT_KNOWN. */
template <int COLUMNS> DEVICE uint32_t layer_tiles(Math &self) {
    const mgv__kernel_op &first = self.shared->slot[self.slot.index].op;
    uint32_t flags = first.flags, steps = first.k_blocks, next_kind, again;
    float acc[COLUMNS / 2];
    wgmma_registers_zero(acc); /* never again: but undefined ones would do harm */
    wgmma_registers_fence(acc);
    do {
        const TileSlot &tile = self.shared->slot[self.slot.index];
        const uint32_t epilogue = flags & FLAGS_OF_EPILOGUE;
        const uint32_t last_stage = layer_products<COLUMNS>(self, steps, acc);
        next_kind = math_look_ahead(self);
        again = 0;
        if (next_kind == (COLUMNS == 256 ? MGV__KERNEL_GEMM_256 : MGV__KERNEL_GEMM_192)) {
            const mgv__kernel_op &next = self.shared->slot[(self.slot.index + 1) % MGV__SLOTS].op;
            flags = next.flags;
            steps = next.k_blocks;
            again = is_layer_tile(next);
        }
        if (epilogue == FLAGS_QKV) layer_epilogue<COLUMNS, FLAGS_QKV>(self, tile, last_stage, acc);
        else if (epilogue == FLAGS_FC1) layer_epilogue<COLUMNS, FLAGS_FC1>(self, tile, last_stage, acc);
        else layer_epilogue<COLUMNS, FLAGS_STREAM>(self, tile, last_stage, acc);
        math_leave_tile(self);
    } while (again);
    return next_kind;
}

#endif /* MGV_GEMM_LAYERS_CUH */
