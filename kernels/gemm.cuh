/* megavit: the GEMM tile. Each math warpgroup computes 64 rows of the CTA's 128 x COLUMNS tile.

   The two warpgroups are not tied to each other: while one is in its epilogue the other keeps the tensor cores busy, as far ahead as the ring allows. */
#ifndef MGV_GEMM_CUH
#define MGV_GEMM_CUH

#include "math.cuh"

/* gelu(x) = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))): Hendrycks, Gimpel 2016, equation 2. Takes x / 2: the weights are packed halved. */
DEVICE float gelu_tanh_of_half(float h) { return h + h * tanh_approx(h * (1.5957691216f + 0.2854192650f * h * h)); }

/* Mean and reciprocal standard deviation of this lane's two rows. */
struct RowNorms {
    float mean[2], rstd[2];
};

DEVICE uint32_t gemm_row(const Math &self, const TileSlot &tile) {
    return (tile.unit * MGV__CLUSTER + self.cta) * MGV__GEMM_ROWS + self.group * 64 + self.warp * 16 + self.lane / 4;
}

DEVICE void gemm_fetch_statistics(const Math &self, const TileSlot &tile, RowParts &parts) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t row = gemm_row(self, tile), last = op.rows_per_group - 1, base = tile.group * op.rows_per_group;
    fetch_row_parts(self.arguments, op, row <= last ? base + row : NO_ROW, row + 8 <= last ? base + row + 8 : NO_ROW,
                    self.lane % 4, parts);
}

/* The rows' statistics are fetched under the products of the first stage and merged under those of the third, or of the last if there are fewer. */
template <int COLUMNS> DEVICE void gemm_mainloop(Math &self, const TileSlot &tile, float (&acc)[COLUMNS / 2], RowNorms &norms) {
    constexpr uint32_t depth = gemm_depth(COLUMNS), a_bytes = MGV__GEMM_ROWS * 128, b_bytes = COLUMNS * 128;
    const uint32_t steps = (tile.op.k_blocks + depth - 1) / depth, fold = tile.op.flags & MGV__KERNEL_FOLD_NORM, merge_step = steps > 2 ? 2 : steps - 1;
    RowParts parts = {};
    wgmma_registers_zero(acc);
    for (uint32_t step = 0; step < steps; step++) {
        math_wait_stage(self, self.stage);
        const uint32_t base = shared_address(self.shared->stage[self.stage.index]);
        const uint64_t a = matrix_descriptor(base + self.group * 64 * 128), b = matrix_descriptor(base + depth * a_bytes);
        wgmma_registers_fence(acc);
        wgmma_fence();
#pragma unroll
        for (uint32_t block = 0; block < depth; block++)
#pragma unroll
            for (uint32_t k = 0; k < 4; k++) /* 16 columns are 32 bytes: two descriptor units */
                wgmma_m64k16_bf16_ss(acc, a + block * (a_bytes / 16) + 2 * k, b + block * (b_bytes / 16) + 2 * k, 1);
        wgmma_commit_group();
        wgmma_registers_fence(acc);
        if (step == 0 && fold) gemm_fetch_statistics(self, tile, parts);
        if (step == merge_step && fold) merge_row_parts(tile.op, self.lane % 4, parts, norms.mean, norms.rstd);
        wgmma_wait_group<0>(); /* the other warpgroup's products fill the gap, and the stage is free a step earlier */
        wgmma_registers_fence(acc);
        math_leave_stage(self, self.stage.index);
        self.stage.advance();
    }
}

/* Turns the first accumulators, COLUMNS columns of them, into values of the target. tile_column: this lane's first column within the tile. */
template <int COLUMNS, int COUNT> DEVICE void gemm_finish(const Math &self, const TileSlot &tile, uint32_t flags, float (&v)[COUNT], uint32_t tile_column,
                                                          uint32_t row, const RowNorms &norms) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t vectors = shared_address(&self.shared->vectors[tile_column][0]);
    const float rstd0 = norms.rstd[0], rstd1 = norms.rstd[1], shift0 = -rstd0 * norms.mean[0], shift1 = -rstd1 * norms.mean[1];
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j++) {
        float b0, s0, b1, s1; /* bias and column sum of two columns; without a norm to fold rstd is 1 and mean 0 */
        shared_load_v4f32(vectors + 64 * j, b0, s0, b1, s1);
        float *e = &v[4 * j];
        e[0] = rstd0 * e[0] + (shift0 * s0 + b0);
        e[1] = rstd0 * e[1] + (shift0 * s1 + b1);
        e[2] = rstd1 * e[2] + (shift1 * s0 + b0);
        e[3] = rstd1 * e[3] + (shift1 * s1 + b1);
    }
    if (flags & MGV__KERNEL_GELU_TANH) {
#pragma unroll
        for (int j = 0; j < COLUMNS / 2; j++) v[j] = gelu_tanh_of_half(v[j]);
    }
    if (flags & MGV__KERNEL_TABLE) {
        const uint32_t column = tile.column * (op.kind == MGV__KERNEL_GEMM_256 ? 256 : op.kind == MGV__KERNEL_GEMM_128 ? 128 : 64) + tile_column;
        const float *table = self.arguments.vectors + op.table + column;
        const float *row0 = table + (size_t)(row % op.tokens) * op.columns, *row1 = table + (size_t)((row + 8) % op.tokens) * op.columns;
#pragma unroll
        for (int j = 0; j < COLUMNS / 8; j++) {
            if (column + 8 * j >= op.columns) continue;
            float t0, t1, t2, t3;
            ld_global_nc_v2f32(row0 + 8 * j, t0, t1);
            ld_global_nc_v2f32(row1 + 8 * j, t2, t3);
            float *e = &v[4 * j];
            e[0] += t0;
            e[1] += t1;
            e[2] += t2;
            e[3] += t3;
        }
    }
}

/* Mean and squared deviations of 64 columns of each row: two passes over the rounded values, in a fixed order. p[2 j] holds two columns of the row of this
   lane, p[2 j + 1] two of the row eight below. */
DEVICE void gemm_statistics(const Math &self, const TileSlot &tile, const uint32_t (&p)[16], uint32_t part, uint32_t row) {
    const mgv__kernel_op &op = tile.op;
    float sum[2] = {0, 0}, squares[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 16; i++) sum[i & 1] += bf16_low(p[i]) + bf16_high(p[i]);
    const float mean[2] = {quad_sum(sum[0]) / 64, quad_sum(sum[1]) / 64};
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const float a = bf16_low(p[i]) - mean[i & 1], b = bf16_high(p[i]) - mean[i & 1];
        squares[i & 1] += a * a + b * b;
    }
    squares[0] = quad_sum(squares[0]);
    squares[1] = quad_sum(squares[1]);
    const uint32_t parts = op.columns / 64;
    if (self.lane % 4 || part >= parts) return;
    float *out = self.arguments.stats + op.stats_out + ((size_t)(tile.group * op.rows_per_group + row) * parts + part) * 2;
    if (row < op.rows_per_group) st_relaxed_gpu_v2f32(out, mean[0], squares[0]);
    if (row + 8 < op.rows_per_group) st_relaxed_gpu_v2f32(out + (size_t)8 * parts * 2, mean[1], squares[1]);
}

/* Writes the first 64 columns as one chunk of bf16, with the residual added that lies in the chunk. */
template <int COUNT> DEVICE void gemm_write_bf16(const Math &self, const TileSlot &tile, uint32_t flags, uint32_t chunk, float (&v)[COUNT], uint32_t part, uint32_t row) {
    const uint32_t fragments = fragment_address(self, chunk);
    if (flags & MGV__KERNEL_RESIDUAL) {
        uint32_t r[16];
#pragma unroll
        for (int j = 0; j < 8; j += 2) ldmatrix_x4(fragments ^ j * 16, r[2 * j], r[2 * j + 1], r[2 * j + 2], r[2 * j + 3]);
#pragma unroll
        for (int i = 0; i < 16; i++) {
            v[2 * i] += bf16_low(r[i]);
            v[2 * i + 1] += bf16_high(r[i]);
        }
    }
    uint32_t p[16];
#pragma unroll
    for (int i = 0; i < 16; i++) p[i] = cvt_rn_bf16x2(v[2 * i], v[2 * i + 1]);
#pragma unroll
    for (int j = 0; j < 8; j += 2) stmatrix_x4(fragments ^ j * 16, p[2 * j], p[2 * j + 1], p[2 * j + 2], p[2 * j + 3]);
    if (flags & MGV__KERNEL_STATS) gemm_statistics(self, tile, p, part, row);
}

/* Adds the bf16 residual of 32 columns from where it lies in memory: a float32 chunk has no room for it. */
template <int COUNT> DEVICE void gemm_add_residual(const Math &self, const mgv__kernel_op &op, float (&v)[COUNT], uint32_t column, uint32_t row) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float *e = &v[4 * j];
        if (column + 8 * j >= op.columns) continue;
        const uint16_t *from = self.arguments.residual_rows + (size_t)row * op.columns + column + 8 * j;
        const uint32_t r0 = row < op.rows_total ? ld_relaxed_gpu((const uint32_t *)from) : 0;
        const uint32_t r1 = row + 8 < op.rows_total ? ld_relaxed_gpu((const uint32_t *)(from + (size_t)8 * op.columns)) : 0;
        e[0] += bf16_low(r0);
        e[1] += bf16_high(r0);
        e[2] += bf16_low(r1);
        e[3] += bf16_high(r1);
    }
}

/* Writes the first 32 columns as one chunk of float32. */
template <int COUNT> DEVICE void gemm_write_float(const Math &self, uint32_t chunk, const float (&v)[COUNT]) {
    const uint32_t row = self.warp * 16 + self.lane / 4, quarter = self.lane % 4;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float *e = &v[4 * j];
        shared_store_v2f32(chunk_unit(chunk, row, 2 * j + quarter / 2) + (quarter & 1) * 8, e[0], e[1]);
        shared_store_v2f32(chunk_unit(chunk, row + 8, 2 * j + quarter / 2) + (quarter & 1) * 8, e[2], e[3]);
    }
}

/* Drops the first COLUMNS columns: the next ones take their place. */
template <int COLUMNS, int COUNT> DEVICE void gemm_shift(float (&v)[COUNT]) {
#pragma unroll
    for (int i = 0; i + COLUMNS / 2 < COUNT; i++) v[i] = v[i + COLUMNS / 2];
}

/* The epilogue is a loop over chunks that always works on the first registers: unrolled, its instructions would not fit the instruction cache, and a tile
   spends more time fetching them than running them. */
template <int COLUMNS> DEVICE void gemm_tile(Math &self, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t flags = op.flags;
    float acc[COLUMNS / 2];
    RowNorms norms = {{0, 0}, {1, 1}};
    gemm_mainloop<COLUMNS>(self, tile, acc, norms);
    const uint32_t row = gemm_row(self, tile), quad_column = 2 * (self.lane % 4);
    if (COLUMNS == 64 && (flags & MGV__KERNEL_FLOAT_OUT)) { /* the plan gives float32 results narrow tiles */
#pragma unroll 1
        for (int column = 0; column < COLUMNS; column += 32) {
            const uint32_t chunk = math_take_chunk(self);
            gemm_finish<32>(self, tile, flags, acc, quad_column + column, row, norms);
            if (flags & MGV__KERNEL_RESIDUAL) gemm_add_residual(self, op, acc, tile.column * COLUMNS + quad_column + column, row);
            gemm_write_float(self, chunk, acc);
            math_give_chunk(self);
            gemm_shift<32>(acc);
        }
        return;
    }
#pragma unroll 1
    for (int column = 0; column < COLUMNS; column += 64) {
        gemm_finish<64>(self, tile, flags, acc, quad_column + column, row, norms);
        gemm_write_bf16(self, tile, flags, math_take_chunk(self), acc, (tile.column * COLUMNS + column) / 64, row);
        math_give_chunk(self);
        gemm_shift<64>(acc);
    }
}

#endif /* MGV_GEMM_CUH */
