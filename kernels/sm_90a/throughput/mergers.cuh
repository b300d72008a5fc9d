/* megavit: what of mergers is no product: rows of the stream, normalised, to where a merger reads them as rows of folded ones; merged rows
   as a caller asked for them, in float32. Both are done by whole warps, with ordinary loads and stores.

   A norm's tile signals the stream's own counters, as copied rows do (rows.cuh): the next layer waits for it, the merger's first product
   too. */
#ifndef MGV_MERGERS_CUH
#define MGV_MERGERS_CUH

#include "math.cuh"

static constexpr uint32_t MERGE_WARP_ROWS = MGV__GEMM_ROWS / (4 * MGV__MATH_GROUPS); /* of a tile */
static_assert(MERGE_WARP_ROWS == 16, "rows that are folded, up to 16, are one warp's");

template <class Warp> DEVICE uint8_t *merge_rows(const Warp &self, const mgv__kernel_op &op) {
    return (uint8_t *)self.arguments.patches + (size_t)op.of.merge.rows * 16;
}

/* What is taken off lane l's row, number l % 16 of the warp's, and what it is multiplied by: mean and reciprocal standard deviation; where
   rows are normalised together, of all of them:
   the mean of means, and of variances about it. */
template <class Warp>
DEVICE void merge_statistics(const Warp &self, const TileSlot &tile, uint32_t row, uint32_t end, float &mean, float &rstd) {
    const mgv__kernel_op &op = tile.op;
    mean = 0;
    rstd = 1;
    if (row < end) row_statistics<true>(self.arguments, op, tile.group, row, mean, rstd);
    if (op.flags & MGV__KERNEL_RMS) mean = 0;
    if (op.of.merge.fold == 1) return;
    float all = mean;
    for (uint32_t lanes = 1; lanes < op.of.merge.fold; lanes *= 2) all += shfl_bfly_f32(all, lanes);
    all /= (float)op.of.merge.fold;
    float variance = 1 / (rstd * rstd) - op.epsilon + (mean - all) * (mean - all);
    for (uint32_t lanes = 1; lanes < op.of.merge.fold; lanes *= 2) variance += shfl_bfly_f32(variance, lanes);
    mean = all;
    rstd = rsqrtf(variance / (float)op.of.merge.fold + op.epsilon);
}

/* One row, by the whole warp: a lane has eight columns of each 256. */
template <class Warp> DEVICE void merge_normalise(const Warp &self, const mgv__kernel_op &op, size_t row, float mean, float rstd) {
    const uint8_t *from = self.arguments.buffers[op.of.merge.source] + row * op.inner * 2;
    uint8_t *to = merge_rows(self, op) + row * op.inner * 2;
    const float *gamma = self.arguments.vectors + op.of.merge.gamma + row % op.of.merge.fold * op.inner,
                *beta = gamma + op.of.merge.fold * op.inner;
    for (uint32_t column = 8 * self.lane; column < op.inner; column += 8 * 32) {
        uint32_t pair[4];
        ld_relaxed_gpu_v4u32(from + column * 2, pair[0], pair[1], pair[2], pair[3]);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float g0, g1, b0, b1;
            ld_global_nc_v2f32(gamma + column + 2 * i, g0, g1);
            ld_global_nc_v2f32(beta + column + 2 * i, b0, b1);
            pair[i] = cvt_rn_bf16x2((bf16_low(pair[i]) - mean) * rstd * g0 + b0, (bf16_high(pair[i]) - mean) * rstd * g1 + b1);
        }
        st_global_v4u32(to + column * 2, pair[0], pair[1], pair[2], pair[3]);
    }
}

/* One merged row, likewise, to its place among the others of its picture. The caller's rows need not begin at a multiple of eight bytes. */
template <class Warp> DEVICE void merge_copy(const Warp &self, const mgv__kernel_op &op, size_t row) {
    const uint8_t *from = merge_rows(self, op) + row * op.inner * 2;
    const size_t number = self.arguments.unit_rows ? ld_global_nc_u32(self.arguments.unit_rows + row) : row;
    float *to = self.arguments.outputs[op.of.merge.target] + number * op.inner;
    for (uint32_t column = 8 * self.lane; column < op.inner; column += 8 * 32) {
        uint32_t pair[4];
        ld_relaxed_gpu_v4u32(from + column * 2, pair[0], pair[1], pair[2], pair[3]);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            to[column + 2 * i] = bf16_low(pair[i]);
            to[column + 2 * i + 1] = bf16_high(pair[i]);
        }
    }
}

/* MERGE_WARP_ROWS rows of a group from `first` on, as far as there are any before `end`, by this warp. */
template <class Warp> DEVICE void merge_of_warp(const Warp &self, const TileSlot &tile, uint32_t first, uint32_t end) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t rows = first < end ? mgv__min_u32(end - first, MERGE_WARP_ROWS) : 0;
    const size_t number = (size_t)tile.group * op.rows_per_group + first;
    float mean = 0, rstd = 1;
    if (rows && op.flags & MGV__KERNEL_FOLD_NORM)
        merge_statistics(self, tile, first + self.lane % MERGE_WARP_ROWS, end, mean, rstd);
    for (uint32_t i = 0; i < rows; i++) {
        if (op.flags & MGV__KERNEL_FOLD_NORM)
            merge_normalise(self, op, number + i, __uint_as_float(shfl_idx_u32(__float_as_uint(mean), i)),
                            __uint_as_float(shfl_idx_u32(__float_as_uint(rstd), i)));
        else
            merge_copy(self, op, number + i);
    }
}
ROUTINE void merge_tile(Math &self, const TileSlot &tile) {
    uint32_t first, end;
    tile_rows(tile, self.cta, first, end);
    merge_of_warp(self, tile, first + (self.group * 4 + self.warp) * MERGE_WARP_ROWS, end);
    signal_ordinary_stores(self, tile);
}

#endif /* MGV_MERGERS_CUH */
