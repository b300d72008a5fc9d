/* megavit: rows of the residual stream as a caller asked for them, in float32: as they are (a layer's output) or behind the last norm
   (tokens), or of these the one that stands for its image; or rows that are normalised where they lie, for what follows.

   The tile signals the stream's own counters, as if it had written there: the next layer waits for them,
   so it cannot overwrite what is still read here. */
#ifndef MGV_ROWS_CUH
#define MGV_ROWS_CUH

#include "math.cuh"

/* One row, normalised in place by one warp: lane l has columns 2 l and 2 l + 1 of each 64. It leaves statistics of parts of 64 columns,
   taken before rounding as gemm_statistics does. */
template <class Warp> DEVICE void rows_normalise(const Warp &self, const TileSlot &tile, uint32_t row, float mean, float rstd) {
    const mgv__kernel_op &op = tile.op;
    const size_t number = (size_t)tile.group * op.rows_per_group + row;
    uint32_t *const at = (uint32_t *)self.arguments.buffers[op.of.rows.source] + number * op.inner / 2;
    const float *gamma = self.arguments.vectors + op.of.rows.gamma, *beta = gamma + op.inner;
    warp_sync(); /* every lane has read the statistics that are overwritten */
    for (uint32_t part = 0; part * 64 < op.inner; part++) {
        const uint32_t column = part * 64 + 2 * self.lane, left = op.inner - part * 64;
        const float columns = left < 64 ? (float)left : 64.0f;
        float sum = 0, square = 0;
        if (column < op.inner) {
            const uint32_t pair = ld_relaxed_gpu(at + column / 2);
            float g0, g1, b0, b1;
            ld_global_nc_v2f32(gamma + column, g0, g1);
            ld_global_nc_v2f32(beta + column, b0, b1);
            const float low = (bf16_low(pair) - mean) * rstd * g0 + b0, high = (bf16_high(pair) - mean) * rstd * g1 + b1;
            sum = low + high;
            square = low * low + high * high;
            at[column / 2] = cvt_rn_bf16x2(low, high);
        }
#pragma unroll
        for (int other = 16; other > 0; other /= 2) {
            sum += shfl_bfly_f32(sum, other);
            square += shfl_bfly_f32(square, other);
        }
        sum /= columns;
        if (self.lane == 0)
            st_relaxed_gpu_v2f32(self.arguments.stats + op.of.rows.stats_out + stats_place(op, op.inner, tile.group, row, part), sum,
                                 fmaxf(square - columns * sum * sum, 0));
    }
}

/* One row, by one warp: lane l has columns 2 l and 2 l + 1 of each 64. Several loads are on their way before the first store. */
template <class Warp>
DEVICE void rows_copy(const Warp &self, const mgv__kernel_op &op, size_t at, float *to, float mean, float rstd) {
    constexpr uint32_t AHEAD = 4;
    const uint32_t *from = (const uint32_t *)self.arguments.buffers[op.of.rows.source] + at / 2;
    const float *gamma = self.arguments.vectors + op.of.rows.gamma, *beta = gamma + op.inner;
    for (uint32_t first = 2 * self.lane; first < op.inner; first += AHEAD * 64) {
        uint32_t pair[AHEAD];
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++)
            if (first + i * 64 < op.inner) pair[i] = ld_relaxed_gpu(from + (first + i * 64) / 2);
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++) {
            const uint32_t column = first + i * 64;
            if (column >= op.inner) continue;
            float low = bf16_low(pair[i]), high = bf16_high(pair[i]);
            if (op.flags & MGV__KERNEL_FOLD_NORM) {
                float g0, g1, b0, b1;
                ld_global_nc_v2f32(gamma + column, g0, g1);
                ld_global_nc_v2f32(beta + column, b0, b1);
                low = (low - mean) * rstd * g0 + b0;
                high = (high - mean) * rstd * g1 + b1;
            }
            to[column] = low; /* the caller's rows need not begin at a multiple of eight bytes */
            to[column + 1] = high;
        }
    }
}

/* Rows [first, end) of a group, those of this warp: every `step`-th. */
template <class Warp> DEVICE void rows_of_warp(const Warp &self, const TileSlot &tile, uint32_t first, uint32_t end, uint32_t step) {
    const mgv__kernel_op &op = tile.op;
    for (uint32_t row = first; row < end; row += step) {
        const uint32_t number = tile.group * op.rows_per_group + row;
        float mean = 0, rstd = 1;
        if (op.flags & MGV__KERNEL_PICK && number % op.tokens != op.of.rows.picked) continue;
        if (op.flags & MGV__KERNEL_FOLD_NORM) row_statistics(self.arguments, op, tile.group, row, mean, rstd);
        if (op.flags & MGV__KERNEL_STATS) {
            rows_normalise(self, tile, row, mean, rstd);
            continue;
        }
        float *to = op.flags & MGV__KERNEL_PICK
                        ? (float *)self.arguments.buffers[op.of.rows.target] + (size_t)(number / op.tokens) * op.inner
                        : self.arguments.outputs[op.of.rows.target] + (size_t)number * op.inner;
        rows_copy(self, op, (size_t)number * op.inner, to, mean, rstd);
    }
}

ROUTINE void rows_tile(Math &self, const TileSlot &tile) {
    uint32_t first, end;
    tile_rows(tile, self.cta, first, end);
    rows_of_warp(self, tile, first + self.group * 4 + self.warp, end, 4 * MGV__MATH_GROUPS);
    signal_ordinary_stores(self, tile); /* of rows that are copied nobody but the counter's next writer knows */
}

/* Eight columns of a projection a warp and round: the picked row is float32, weights are bf16, a pair of each a lane. */
DEVICE void project_row(const Math &self, const TileSlot &tile, uint32_t image) {
    constexpr uint32_t COLUMNS = 8;
    const mgv__kernel_op &op = tile.op;
    const uint32_t inner = op.inner, columns = op.columns, pitch = op.of.project.pieces * 4; /* words of a row of weights */
    const float *row = (const float *)self.arguments.buffers[op.of.project.source] + (size_t)image * inner;
    const uint32_t *weights = (const uint32_t *)(self.arguments.weights + (size_t)op.of.project.weights * 16);
    float *to = self.arguments.outputs[op.of.project.target] + (size_t)image * columns;
    const uint32_t warps = 4 * MGV__MATH_GROUPS, warp = tile.column * warps + self.group * 4 + self.warp;
#pragma unroll 1
    for (uint32_t first = warp * COLUMNS; first < columns; first += op.column_tiles * warps * COLUMNS) {
        float sums[COLUMNS] = {};
#pragma unroll 1
        for (uint32_t pair = self.lane; 2 * pair < inner; pair += 32) {
            const float low = ld_relaxed_gpu_f32(row + 2 * pair), high = ld_relaxed_gpu_f32(row + 2 * pair + 1);
#pragma unroll
            for (uint32_t c = 0; c < COLUMNS; c++) {
                const uint32_t w = first + c < columns ? ld_global_nc_u32(weights + (size_t)(first + c) * pitch + pair) : 0;
                sums[c] += low * bf16_low(w) + high * bf16_high(w);
            }
        }
#pragma unroll
        for (uint32_t c = 0; c < COLUMNS; c++) {
#pragma unroll
            for (int other = 16; other > 0; other /= 2) sums[c] += shfl_bfly_f32(sums[c], other);
            if (self.lane == 0 && first + c < columns) to[first + c] = sums[c];
        }
    }
}
/* Waits, as ROWS does, for the rows of its row tile: the picked ones have been copied when these have been signalled. */
ROUTINE void project_tile(Math &self, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    uint32_t first, end;
    tile_rows(tile, self.cta, first, end);
    for (uint32_t row = first; row < end; row++) {
        const uint32_t number = tile.group * op.rows_per_group + row;
        if (number % op.tokens == op.of.project.picked) project_row(self, tile, number / op.tokens);
    }
    signal_ordinary_stores(self, tile);
}

#endif /* MGV_ROWS_CUH */
