/* megavit: sums of a product of few rows, of which clusters have had a share of K each. Those of each share lie in memory as bf16, one
   rounding of a term of the stream, which is rounded behind it. They are added up in the order of the shares, whichever was there first.

   A CTA has some of its 128 rows and 64 columns, a lane eight columns of every 32nd row: all of a row's loads are on their way at once.
   Statistics are taken before rounding, as gemm_statistics does. */
#ifndef MGV_SHARES_CUH
#define MGV_SHARES_CUH

#include "math.cuh"

static_assert(MGV__SHARES_ROWS == 4 * 4 * MGV__MATH_GROUPS, "four rows a warp");

DEVICE void shares_add(float (&v)[8], const uint32_t (&pair)[4]) {
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] += i % 2 ? bf16_high(pair[i / 2]) : bf16_low(pair[i / 2]);
}

/* Eight columns of a row. exists: the row does. */
DEVICE void shares_row(const Math &self, const TileSlot &tile, uint32_t row, uint32_t part, uint32_t exists) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t column = part * 64 + self.lane % 8 * 8, count = op.of.shares.count;
    const size_t number = (size_t)tile.group * op.rows_per_group + row;
    const uint8_t *from = self.arguments.buffers[op.of.shares.source] + (number * op.of.shares.pitch + column) * 2;
    uint8_t *const to = self.arguments.buffers[op.of.shares.target] + (number * op.columns + column) * 2;
    uint32_t share[MGV__SHARES_MOST][4], before[4];
    float v[8] = {}, sum = 0, square = 0;
    ld_relaxed_gpu_v4u32_if(to, before[0], before[1], before[2], before[3], exists);
#pragma unroll
    for (uint32_t i = 0; i < MGV__SHARES_MOST; i++, from += (size_t)op.columns * 2)
        ld_relaxed_gpu_v4u32_if(from, share[i][0], share[i][1], share[i][2], share[i][3], exists && i < count);
#pragma unroll
    for (uint32_t i = 0; i < MGV__SHARES_MOST; i++) shares_add(v, share[i]);
    shares_add(v, before);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        sum += v[i];
        square += v[i] * v[i];
    }
#pragma unroll
    for (int other = 1; other < 8; other *= 2) {
        sum += shfl_bfly_f32(sum, other);
        square += shfl_bfly_f32(square, other);
    }
    if (!exists) return;
    const float mean = sum / 64;
    st_global_v4u32(to, cvt_rn_bf16x2(v[0], v[1]), cvt_rn_bf16x2(v[2], v[3]), cvt_rn_bf16x2(v[4], v[5]), cvt_rn_bf16x2(v[6], v[7]));
    if (op.flags & MGV__KERNEL_STATS && self.lane % 8 == 0)
        st_relaxed_gpu_v2f32(self.arguments.stats + op.of.shares.stats_out + stats_place(op, op.columns, tile.group, row, part), mean,
                             fmaxf(square - 64 * mean * mean, 0));
}

ROUTINE void shares_tile(Math &self, const TileSlot &tile) {
    const uint32_t rows = tile.op.of.shares.rows, parts = MGV__GEMM_ROWS / rows;
    uint32_t first, end;
    tile_rows(tile, self.cta, first, end);
    first += tile.column % parts * rows + (self.group * 4 + self.warp) * 4 + self.lane / 8;
    for (uint32_t i = 0; i < rows; i += MGV__SHARES_ROWS) shares_row(self, tile, first + i, tile.column / parts, first + i < end);
    signal_ordinary_stores(self, tile);
}

#endif /* MGV_SHARES_CUH */
