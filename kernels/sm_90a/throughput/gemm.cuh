/* megavit: the GEMM tile. Each math warpgroup computes 64 rows of the CTA's 128 x COLUMNS tile.

   The two warpgroups are not tied to each other: while one is in its epilogue the other keeps the tensor cores busy,
   as far ahead as the ring allows. */
#ifndef MGV_GEMM_CUH
#define MGV_GEMM_CUH

#include "math.cuh"

/* gelu(x) = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))): Hendrycks, Gimpel 2016, equation 2.
   Takes x / 2: the weights are packed halved. */
DEVICE float gelu_tanh_of_half(float h) { return h + h * tanh_approx(h * (1.5957691216f + 0.2854192650f * h * h)); }
/* x sigmoid(1.702 x), and x / 2 (1 + erf(x / sqrt(2))) with erf as the tanh of a polynomial of degree five: fitted, 2.5e-5 off at most.
   Beyond |x| = 6, where the polynomial would turn back, tanh is 1. */
DEVICE float gelu_quick_of_half(float h) { return h + h * tanh_approx(1.702f * h); }
DEVICE float gelu_erf_of_half(float h) {
    const float square = fminf(h * h, 9.0f);
    return h + h * tanh_approx(h * (1.5950157375f + square * (0.2960452724f - 0.0112486001f * square)));
}

DEVICE uint32_t gemm_row(const Math &self, const TileSlot &tile) {
    return gemm_first_row(tile, self.cta) + self.group * 64 + self.warp * 16 + self.lane / 4;
}

template <uint32_t FLAGS> DEVICE uint32_t gemm_flags(const TileSlot &tile) {
    if (FLAGS == FLAGS_OF_TILE || FLAGS == FLAGS_OF_TOWER_TILE) return tile.op.flags & ~(uint32_t)MGV__KERNEL_HALF;
    if (FLAGS == FLAGS_OF_HALF_TILE) return tile.op.flags | MGV__KERNEL_HALF;
    constexpr uint32_t uncommon = MGV__KERNEL_RARE_ACTIVATION | MGV__KERNEL_HALF;
    return FLAGS == FLAGS_OF_COMMON_TILE ? tile.op.flags & ~uncommon : FLAGS;
}

/* x sigmoid(x): Elfwing, Uchibe, Doya 2017. */
DEVICE float silu_of_half(float h) { return h + h * tanh_approx(h); }

/* Operands are bf16, or f16 where HALF. */
template <bool HALF, int COUNT> DEVICE void gemm_multiply(float (&acc)[COUNT], uint64_t a, uint64_t b) {
    if constexpr (HALF) wgmma_m64k16_f16_ss(acc, a, b, 1);
    else wgmma_m64k16_bf16_ss(acc, a, b, 1);
}

/* Returns while the last stage's products are still on their way: the stage, which is not left yet. A stage is left when the products of
   the next are on their way, so that the tensor cores need not wait for a warp. */
template <int COLUMNS, bool HALF = false> DEVICE uint32_t gemm_products(Math &self, const TileSlot &tile, float (&acc)[COLUMNS / 2]) {
    constexpr uint32_t depth = gemm_depth(COLUMNS), a_bytes = MGV__GEMM_ROWS * 128, b_bytes = COLUMNS * 128;
    const uint32_t steps = gemm_steps(tile.op);
    uint32_t before = self.stage.index;
    wgmma_registers_zero(acc);
    wgmma_registers_fence(acc);
    for (uint32_t step = 0; step < steps; step++) {
        const uint32_t base = shared_address(self.shared->stage[self.stage.index]);
        const uint64_t a = known_descriptor(base + self.group * 64 * 128), b = known_descriptor(base + depth * a_bytes);
        math_wait_stage(self, self.stage);
        wgmma_fence();
#pragma unroll
        for (uint32_t block = 0; block < depth; block++)
#pragma unroll
            for (uint32_t k = 0; k < 4; k++) /* 16 columns are 32 bytes: two descriptor units */
                gemm_multiply<HALF>(acc, descriptor_behind(a, block * (a_bytes / 16) + 2 * k),
                                    descriptor_behind(b, block * (b_bytes / 16) + 2 * k));
        wgmma_commit_group();
        wgmma_wait_group<1>();
        if (step) math_leave_stage(self, before);
        before = self.stage.index;
        self.stage.advance();
    }
    return before;
}
template <int COLUMNS, bool HALF = false> DEVICE void gemm_mainloop(Math &self, const TileSlot &tile, float (&acc)[COLUMNS / 2]) {
    const uint32_t last = gemm_products<COLUMNS, HALF>(self, tile, acc);
    wgmma_wait_group<0>();
    wgmma_registers_fence(acc);
    math_leave_stage(self, last);
}

template <int COUNT, bool TOWER> DEVICE void gemm_activate(uint32_t flags, float *v) {
    if (flags & MGV__KERNEL_GELU_TANH) {
#pragma unroll
        for (int j = 0; j < COUNT; j++) v[j] = gelu_tanh_of_half(v[j]);
    }
    if (flags & MGV__KERNEL_GELU_ERF) {
#pragma unroll
        for (int j = 0; j < COUNT; j++) v[j] = gelu_erf_of_half(v[j]);
    }
    if (flags & MGV__KERNEL_GELU_QUICK) {
#pragma unroll
        for (int j = 0; j < COUNT; j++) v[j] = gelu_quick_of_half(v[j]);
    }
    if (flags & MGV__KERNEL_RELU) {
#pragma unroll
        for (int j = 0; j < COUNT; j++) v[j] = v[j] < 0 ? 0 : v[j]; /* NaN stays NaN */
    }
    if (TOWER && flags & MGV__KERNEL_SILU) {
#pragma unroll
        for (int j = 0; j < COUNT; j++) v[j] = silu_of_half(v[j]);
    }
}

/* What only the kernel of towers has code for: towers.cuh. */
template <int COLUMNS>
DEVICE void tower_finish(const Math &self, const TileSlot &tile, uint32_t flags, float *v, uint32_t tile_column, uint32_t row);
template <int COLUMNS> DEVICE void gated_epilogue(Math &self, const TileSlot &tile, float (&acc)[COLUMNS / 2]);

/* Turns COLUMNS columns of accumulators into values of the target. tile_column: this lane's first column within the tile. */
template <int COLUMNS, bool TOWER = false> DEVICE void gemm_finish(const Math &self, const TileSlot &tile, uint32_t flags, float *v,
                                                                   uint32_t tile_column,
                                               uint32_t row, const float (&rstd)[2]) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t vectors = shared_address(&self.shared->vectors[tile_column]);
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j++) {
        float b0, b1; /* biases of two columns; without a norm to fold rstd is 1 */
        shared_load_v2f32(vectors + 32 * j, b0, b1);
        float *e = &v[4 * j];
        e[0] = rstd[0] * e[0] + b0;
        e[1] = rstd[0] * e[1] + b1;
        e[2] = rstd[1] * e[2] + b0;
        e[3] = rstd[1] * e[3] + b1;
    }
    gemm_activate<COLUMNS / 2, TOWER>(flags, v);
    if constexpr (TOWER) tower_finish<COLUMNS>(self, tile, flags, v, tile_column, row);
    if (flags & MGV__KERNEL_TABLE) {
        const uint32_t column = gemm_first_column(tile, self.cta) + tile_column;
        const float *table = self.arguments.vectors + op.of.gemm.table + column;
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

/* Adds a row's samples of the table of positions to `e`, its values of columns `column`, `column` + 1 and so on in steps of 8. */
template <int COLUMNS> DEVICE void gemm_add_samples(const Math &self, const mgv__kernel_op &op, float *e, uint32_t column, uint32_t row) {
    const mgv__kernel_token *const token = &self.arguments.tokens[row];
    if (row >= op.rows_total) return;
    const mgv__kernel_sample *const down = self.arguments.samples + ld_global_nc_u32(&token->down),
                             *const across = self.arguments.samples + ld_global_nc_u32(&token->across);
    const uint32_t counts = ld_global_nc_u32(&token->sample_counts), wide = counts >> 16, all = (counts & 0xFFFF) * wide;
#pragma unroll 1
    for (uint32_t i = 0; i < all; i++) {
        const mgv__kernel_sample *const d = &down[i / wide], *const a = &across[i % wide];
        const float weight = ld_global_nc_f32(&d->weight) * ld_global_nc_f32(&a->weight);
        const float *const entry = self.arguments.vectors + op.of.gemm.table +
                                   (size_t)(ld_global_nc_u32(&d->entry) + ld_global_nc_u32(&a->entry)) * op.columns + column;
#pragma unroll
        for (int j = 0; j < COLUMNS / 8; j++) {
            if (column + 8 * j >= op.columns) continue;
            float low, high;
            ld_global_nc_v2f32(entry + 8 * j, low, high);
            e[4 * j] += weight * low;
            e[4 * j + 1] += weight * high;
        }
    }
}

/* Mean and squared deviations of 64 columns of each row, from sums of values and of their squares: in float32 that loses less where a mean
   is large than the rounding of what is stored. Taken before rounding, which saves 32 conversions back: rounding moves single values,
   hardly their mean and spread. columns: that the row has of these; the others are zero. */
DEVICE void chunk_statistics(const float *v, float (&mean)[2], float (&squares)[2], float columns = 64, float rcp_columns = 1.0f / 64) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum[2] = {0, 0}, square[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const float value = v[i / 2 * 4 + 2 * r + i % 2];
            sum[i % 2] += value;
            square[i % 2] += value * value;
        }
        mean[r] = quad_sum(sum[0] + sum[1]) * rcp_columns;
        squares[r] = fmaxf(quad_sum(square[0] + square[1]) - columns * mean[r] * mean[r], 0);
    }
}
/* ANY_WIDTH: of rows that end within 64 columns, too. What a tile has behind their end is cut off where it is stored, and not counted. */
template <bool ANY_WIDTH> DEVICE void gemm_statistics(const Math &self, const TileSlot &tile, float *v, uint32_t part, uint32_t row) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t rows = mgv__rows_of_group(&op, tile.group), left = op.columns > part * 64 ? op.columns - part * 64 : 0;
    float mean[2], squares[2];
    if (ANY_WIDTH && left < 64) {
#pragma unroll
        for (int i = 0; i < 32; i++)
            if (i / 4 * 8 >= (int)left) v[i] = 0;
        chunk_statistics(v, mean, squares, (float)left, rcp_approx((float)left));
    } else chunk_statistics(v, mean, squares);
    if (self.lane % 4 || left == 0) return;
    float *out = self.arguments.stats + op.of.gemm.stats_out + stats_place(op, op.columns, tile.group, row, part);
    if (row < rows) st_relaxed_gpu_v2f32(out, mean[0], squares[0]);
    if (row + 8 < rows) st_relaxed_gpu_v2f32(out + 8 * 2, mean[1], squares[1]);
}

/* Adds COLUMNS columns of a residual that lies in a chunk. fragments: where this lane points ldmatrix and stmatrix for the first 16. */
template <int COLUMNS> DEVICE void gemm_add_chunk(uint32_t fragments, float *v) {
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j += 2) {
        uint32_t r[4];
        ldmatrix_x4(fragments ^ j * 16, r[0], r[1], r[2], r[3]);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v[4 * j + 2 * i] += bf16_low(r[i]);
            v[4 * j + 2 * i + 1] += bf16_high(r[i]);
        }
    }
}

/* Writes COLUMNS columns as one chunk of bf16, or f16, with the residual added that lies in the chunk. */
template <int COLUMNS> DEVICE void gemm_write(uint32_t flags, uint32_t fragments, float *v) {
    if (flags & MGV__KERNEL_RESIDUAL) gemm_add_chunk<COLUMNS>(fragments, v);
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j += 2) {
        const float *e = &v[4 * j];
        if (flags & MGV__KERNEL_HALF)
            stmatrix_x4(fragments ^ j * 16, cvt_rn_f16x2(e[0], e[1]), cvt_rn_f16x2(e[2], e[3]),
                        cvt_rn_f16x2(e[4], e[5]), cvt_rn_f16x2(e[6], e[7]));
        else
            stmatrix_x4(fragments ^ j * 16, cvt_rn_bf16x2(e[0], e[1]), cvt_rn_bf16x2(e[2], e[3]),
                        cvt_rn_bf16x2(e[4], e[5]), cvt_rn_bf16x2(e[6], e[7]));
    }
}

/* Reciprocal standard deviations of this lane's two rows, 1 where no norm is folded.
   The grant of the tile's first chunk said that they are there. */
DEVICE void gemm_norms(const Math &self, uint32_t flags, float (&rstd)[2]) {
    const uint32_t row = self.warp * 16 + self.lane / 4;
    rstd[0] = rstd[1] = 1;
    if (!(flags & MGV__KERNEL_FOLD_NORM)) return;
    rstd[0] = self.shared->norms[self.group][row];
    rstd[1] = self.shared->norms[self.group][row + 8];
}

/* Adds the residual of 32 columns, in f16, from where it lies in memory: a float32 chunk has no room for it. */
DEVICE void gemm_add_residual(const Math &self, const mgv__kernel_op &op, float *v, uint32_t column, uint32_t row) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float *e = &v[4 * j];
        if (column + 8 * j >= op.columns) continue;
        const uint16_t *from = self.arguments.residual_rows + (size_t)row * op.columns + column + 8 * j;
        const uint32_t r0 = row < op.rows_total ? ld_relaxed_gpu((const uint32_t *)from) : 0;
        const uint32_t r1 = row + 8 < op.rows_total ? ld_relaxed_gpu((const uint32_t *)(from + (size_t)8 * op.columns)) : 0;
        e[0] += f16_low(r0);
        e[1] += f16_high(r0);
        e[2] += f16_low(r1);
        e[3] += f16_high(r1);
    }
}

/* Writes 32 columns as one chunk of float32. */
DEVICE void gemm_write_float(const Math &self, uint32_t chunk, const float *v) {
    const uint32_t row = self.warp * 16 + self.lane / 4, quarter = self.lane % 4;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float *e = &v[4 * j];
        shared_store_v2f32(chunk_unit(chunk, row, 2 * j + quarter / 2) + (quarter & 1) * 8, e[0], e[1]);
        shared_store_v2f32(chunk_unit(chunk, row + 8, 2 * j + quarter / 2) + (quarter & 1) * 8, e[2], e[3]);
    }
}

/* In rounds of 64 columns, which share one code: when a chunk is written the next one's sums move down to where this one's were. Code that
   was not run for some microseconds is gone from the instruction cache, and to fetch it takes its time, too (kernels/NOTES.md, how much
   code). */
template <int COLUMNS, uint32_t FLAGS, bool SAMPLED = false>
DEVICE void gemm_epilogue(Math &self, const TileSlot &tile, float (&acc)[COLUMNS / 2]) {
    constexpr bool tower = FLAGS == FLAGS_OF_TOWER_TILE, any_width = FLAGS == FLAGS_OF_TILE || FLAGS == FLAGS_OF_HALF_TILE || tower;
    const uint32_t flags = gemm_flags<FLAGS>(tile), row = gemm_row(self, tile), quad_column = 2 * (self.lane % 4);
    uint32_t granted = math_take_chunk(self);
    float rstd[2], (&v)[32] = (float (&)[32])acc;
    gemm_norms(self, flags, rstd);
#pragma unroll 1
    for (int column = 0; column < COLUMNS; column += 64) {
        gemm_finish<64, tower && !SAMPLED>(self, tile, flags, v, quad_column + column, row, rstd);
        if constexpr (SAMPLED) {
            const uint32_t first = gemm_first_column(tile, self.cta) + quad_column + column;
            gemm_add_samples<64>(self, tile.op, v, first, row);
            gemm_add_samples<64>(self, tile.op, v + 2, first, row + 8);
        }
        if (column) granted = math_take_chunk(self);
        gemm_write<64>(flags, fragment_address(self, granted), v);
        if (flags & MGV__KERNEL_STATS) gemm_statistics<any_width>(self, tile, v, (tile.column * COLUMNS + column) / 64, row);
        math_give_chunk(self);
#pragma unroll
        for (int i = 0; i + 32 < COLUMNS / 2; i++) acc[i] = acc[i + 32];
    }
}

/* The same in float32, 32 columns a chunk: the plan gives float32 results narrow tiles. */
DEVICE void gemm_epilogue_float(Math &self, const TileSlot &tile, float (&acc)[32]) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t row = gemm_row(self, tile), quad_column = 2 * (self.lane % 4);
    float rstd[2];
#pragma unroll
    for (int column = 0; column < 64; column += 32) {
        float *v = &acc[column / 2];
        const uint32_t chunk = math_take_chunk(self);
        if (column == 0) gemm_norms(self, op.flags, rstd);
        gemm_finish<32>(self, tile, op.flags, v, quad_column + column, row, rstd);
        if (op.flags & MGV__KERNEL_RESIDUAL) gemm_add_residual(self, op, v, tile.column * 64 + quad_column + column, row);
        gemm_write_float(self, chunk, v);
        math_give_chunk(self);
    }
}

template <int COLUMNS, uint32_t FLAGS> ROUTINE void gemm_tile(Math &self, const TileSlot &tile) {
    if constexpr (FLAGS == FLAGS_OF_TILE || FLAGS == FLAGS_OF_TOWER_TILE)
        if (tile.op.flags & MGV__KERNEL_HALF) {
            gemm_tile<COLUMNS, FLAGS_OF_HALF_TILE>(self, tile);
            return;
        }
    float acc[COLUMNS / 2];
    gemm_mainloop<COLUMNS, FLAGS == FLAGS_OF_HALF_TILE>(self, tile, acc);
    if constexpr (COLUMNS == 64) {
        if (tile.op.flags & MGV__KERNEL_FLOAT_OUT) {
            gemm_epilogue_float(self, tile, acc);
            return;
        }
    }
    if constexpr (FLAGS == FLAGS_OF_TOWER_TILE && COLUMNS % 128 == 0)
        if (tile.op.flags & MGV__KERNEL_GATED) {
            gated_epilogue<COLUMNS>(self, tile, acc);
            return;
        }
    if constexpr (FLAGS == FLAGS_OF_TOWER_TILE) /* code of its own: only the product of patches asks for it */
        if (tile.op.flags & MGV__KERNEL_SAMPLED) {
            gemm_epilogue<COLUMNS, FLAGS, true>(self, tile, acc);
            return;
        }
    gemm_epilogue<COLUMNS, FLAGS>(self, tile, acc);
}

/* --- SPLIT: the CTAs of a cluster have half of K each ------------------------------------------------------------- */

/* A CTA finishes half of the columns, those that come first in its accumulators, and sends its sums of the others as bf16: one rounding of
   a term of the stream, which is rounded behind it. They go to the same thread of the other CTA, into the stage that follows both CTAs'
   products, behind a block of A. When it is empty here it is empty there: both CTAs' math warps leave a stage in both. But their arrivals
   here are no releases, so what they wrote into their rows of A in a lent stage would not be ordered before sums that came there. */
enum { SPLIT_SUMS_AT = GEMM_A_BYTES };
DEVICE uint32_t split_sums(const Math &self) {
    return shared_address(self.shared->stage[self.stage.index]) + SPLIT_SUMS_AT + (self.group * 128 + self.thread) * 16;
}
struct SplitTarget {
    uint32_t to, full; /* of the other CTA: where this thread's sums go, and the barrier that counts them */
    uint32_t sends;    /* unless the cluster gives up */
};
DEVICE SplitTarget split_target(Math &self) {
    wait_barrier(&self.shared->stage_empty[self.stage.index], self.stage.parity ^ 1);
    SplitTarget target;
    target.sends = !gives_up(self.shared);
    target.to = mapa_shared_cluster(split_sums(self), self.cta ^ 1);
    target.full = mapa_shared_cluster(shared_address(&self.shared->stage_full[self.stage.index]), self.cta ^ 1);
    return target;
}
template <int COUNT> DEVICE void split_send(const SplitTarget &target, const float *sums) {
    if (!target.sends) return;
#pragma unroll
    for (int i = 0; i < COUNT / 8; i++) {
        const float *v = &sums[8 * i];
        st_async_cluster_v4_u32(target.to + i * 256 * 16, cvt_rn_bf16x2(v[0], v[1]), cvt_rn_bf16x2(v[2], v[3]),
                                cvt_rn_bf16x2(v[4], v[5]), cvt_rn_bf16x2(v[6], v[7]), target.full);
    }
}

/* Adds what the other CTA sent. */
template <int COUNT> DEVICE void split_add(Math &self, float *sums) {
    const uint32_t from = split_sums(self);
#pragma unroll
    for (int i = 0; i < COUNT / 8; i++) {
        float v[4];
        shared_load_v4f32(from + i * 256 * 16, v[0], v[1], v[2], v[3]);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            sums[8 * i + 2 * e] += bf16_low(__float_as_uint(v[e]));
            sums[8 * i + 2 * e + 1] += bf16_high(__float_as_uint(v[e]));
        }
    }
}

/* As fragment_address, in a chunk whose rows are 32 or 64 bytes in a swizzle as wide. */
template <int COLUMNS> DEVICE uint32_t narrow_fragment_address(const Math &self, uint32_t chunk) {
    const uint32_t matrix = self.lane / 8, row = self.warp * 16 + (matrix & 1) * 8 + self.lane % 8, unit = matrix >> 1;
    return chunk + row * (COLUMNS * 2) + ((unit ^ (COLUMNS == 16 ? row >> 2 & 1 : row >> 1 & 3)) << 4);
}

/* Where a lane's two rows leave the statistics of this CTA's HALF columns (0: no row, another lane's, or no columns), and how many of these
   columns there are. Found while the other CTA's sums are on their way: what lies behind them is waited for. */
template <int HALF> struct SplitPlace {
    float *row[2];
    uint32_t columns;
    float rcp_columns;
};
template <int HALF> DEVICE SplitPlace<HALF> split_place(const Math &self, const TileSlot &tile, uint32_t row) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t part = tile.column * MGV__CLUSTER + self.cta, first = part * HALF;
    const uint32_t left = first < op.columns ? op.columns - first : 0;
    const uint32_t rows = left && self.lane % 4 == 0 ? mgv__rows_of_group(&op, tile.group) : 0;
    float *const at = self.arguments.stats + op.of.gemm.stats_out + stats_place(op, op.columns, tile.group, row, part);
    SplitPlace<HALF> place;
    place.columns = left < HALF ? left : HALF;
    place.rcp_columns = rcp_approx((float)place.columns);
    place.row[0] = row < rows ? at : 0;
    place.row[1] = row + 8 < rows ? at + 8 * 2 : 0;
    return place;
}
/* Mean and squared deviations of each row before rounding; as chunk_statistics. */
template <int HALF> DEVICE void split_statistics(const SplitPlace<HALF> &place, const float *v) {
    float mean[2], squares[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum[2] = {0, 0}, square[2] = {0, 0};
#pragma unroll
        for (uint32_t i = 0; i < HALF / 4; i++) {
            const float value = v[i / 2 * 4 + 2 * r + i % 2];
            sum[i % 2] += value;
            square[i % 2] += value * value;
        }
        const float all = quad_sum(sum[0] + sum[1]);
        mean[r] = all * place.rcp_columns;
        squares[r] = fmaxf(quad_sum(square[0] + square[1]) - all * mean[r], 0);
    }
#pragma unroll
    for (int r = 0; r < 2; r++)
        if (place.row[r]) st_relaxed_gpu_v2f32(place.row[r], mean[r], squares[r]);
}

/* Biases and residual are added while the other CTA's sums are on their way. The rows go out in two chunks: 64 columns, and what lies
   behind them, if anything does. */
template <int COLUMNS> ROUTINE void split_tile(Math &self, const TileSlot &tile) {
    constexpr int HALF = COLUMNS / MGV__CLUSTER, REST = HALF - 64, COUNT = HALF / 2; /* columns that stay, and accumulators */
    static_assert(SPLIT_SUMS_AT + split_exchange_bytes(COLUMNS) <= MGV__STAGE_BYTES && HALF * 128 % 1024 == 0,
                  "what is sent fits one stage; halves of the weights are whole swizzles");
    /* what writes the stream has no others */
    const uint32_t flags = tile.op.flags & (MGV__KERNEL_TABLE | MGV__KERNEL_RESIDUAL | MGV__KERNEL_STATS);
    const uint32_t row = gemm_row(self, tile);
    const float rstd[2] = {1, 1};
    float acc[COLUMNS / 2];
    const uint32_t last = gemm_products<COLUMNS>(self, tile, acc);

    /* under the last products */
    const SplitTarget target = split_target(self);
    const uint32_t fragments = fragment_address(self, math_take_chunk(self));
    uint32_t rest = 0;
    if constexpr (REST) {
        Ring<MGV__CHUNKS> second = self.chunk;
        second.advance();
        rest = narrow_fragment_address<REST>(self, math_take_chunk(self, second));
    }
    wgmma_wait_group<0>();
    wgmma_registers_fence(acc);
    split_send<COUNT>(target, acc + COUNT);
    math_leave_stage(self, last);
    const SplitPlace<HALF> place = split_place<HALF>(self, tile, row);
    gemm_finish<HALF>(self, tile, flags, acc, 2 * (self.lane % 4), row, rstd);
    if (flags & MGV__KERNEL_RESIDUAL) {
        gemm_add_chunk<64>(fragments, acc);
        gemm_add_chunk<REST>(rest, acc + 32);
    }

    math_wait_stage(self, self.stage);
    split_add<COUNT>(self, acc);
    if (place.columns < HALF) { /* the operation's last tile: what lies behind its columns is cut off where it is stored, and not counted */
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (i / 4 * 8 >= (int)place.columns) acc[i] = 0;
    }
    gemm_write<64>(0, fragments, acc);
    if constexpr (REST) {
        math_give_chunk(self);
        gemm_write<REST>(0, rest, acc + 32);
    }
    if (flags & MGV__KERNEL_STATS) split_statistics<HALF>(place, acc);
    math_give_chunk(self);
    fence_proxy_async_shared_cta(); /* the copy engines of both CTAs write next where the other one's sums were */
    warp_sync();
    math_leave_stage(self, self.stage.index);
    self.stage.advance();
}

#endif /* MGV_GEMM_CUH */
