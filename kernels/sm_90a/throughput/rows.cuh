/* megavit: rows of the residual stream as a caller asked for them, in float32:
   as they are (a layer's output) or behind the last norm (tokens).

   The tile signals the stream's own counters, as if it had written there: the next layer waits for them,
   so it cannot overwrite what is still read here. */
#ifndef MGV_ROWS_CUH
#define MGV_ROWS_CUH

#include "math.cuh"

/* One row, by one warp: lane l has columns 2 l and 2 l + 1 of each 64. Several loads are on their way before the first store. */
DEVICE void rows_copy(const Math &self, const mgv__kernel_op &op, size_t at, float mean, float rstd) {
    constexpr uint32_t AHEAD = 4;
    const uint32_t *from = (const uint32_t *)self.arguments.buffers[op.a_map] + at / 2;
    const float *gamma = self.arguments.vectors + op.bias, *beta = gamma + op.inner;
    float *to = self.arguments.outputs[op.store_map] + at;
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

DEVICE void rows_tile(Math &self, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    uint32_t first, end;
    tile_rows(tile, self.cta, first, end);
    for (uint32_t row = first + self.group * 4 + self.warp; row < end; row += 4 * MGV__MATH_GROUPS) {
        const uint32_t number = tile.group * op.rows_per_group + row;
        float mean = 0, rstd = 1;
        if (op.flags & MGV__KERNEL_FOLD_NORM) row_statistics(self.arguments, op, tile.group, row, mean, rstd);
        rows_copy(self, op, (size_t)number * op.inner, mean, rstd);
    }
    math_group_sync(self);
    uint32_t *counter = tile_counter(self.arguments, tile, self.cta);
    if (self.thread == 0 && counter) red_release_gpu_add(counter, 1);
}

#endif /* MGV_ROWS_CUH */
