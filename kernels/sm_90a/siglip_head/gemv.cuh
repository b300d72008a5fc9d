/* megavit: products of few rows, those of the pooling head for few images, in f16, in both regimes. A strip is 8 columns of the result, and
   with them 8 rows of the weights. Some of a CTA's math warps share the columns of A of one strip: a warp's weights go straight into
   registers, ahead of the wait for the rows that they are multiplied with, so that an operation takes little more than one way through the
   L2 cache.

   mma.m16n8k16 with rows as M and the strip as N. Which 16 columns of A one of them takes is free, as long as A and B agree: of 32 columns
   each lane holds 8 in a row, of a row of A and of a row of weights alike, the first half for one product, the second for the next. */
#ifndef MGV_GEMV_CUH
#define MGV_GEMV_CUH

#include "../throughput/gemm.cuh"

enum {
    GEMV_STRIP = MGV__GEMV_STRIP,
    GEMV_WARPS = MGV__GEMV_WARPS,
    GEMV_ROWS = 16,     /* rows of one product */
    GEMV_PIECE = 8,     /* columns of A, or of a row of weights, that a lane loads at once */
    GEMV_AHEAD = MGV__GEMV_STEPS, /* steps of four pieces that a warp holds; a warp with more takes them in rounds */
    GEMV_STRIPS = 2,    /* that a math warpgroup ends at most */
    GEMV_ALL_FLAGS = MGV__KERNEL_GELU_TANH | MGV__KERNEL_STATS, /* what a rehearsal runs behind the products, beside norms */
    GEMV_CHAINS = 4,    /* of products, side by side: one would wait for itself */
    GEMV_SUMS_BYTES = GEMV_ROWS * GEMV_STRIP * 4, /* of one warp */
    GEMV_BYTES = MGV__GEMV_MAX_ROWS / GEMV_ROWS * GEMV_WARPS * GEMV_SUMS_BYTES,
    GEMV_STATISTICS = 12 /* of the strips of a row, that are on their way to a lane together */
};
static_assert((int)GEMV_BYTES <= (int)MGV__STAGE_BYTES && (int)GEMV_BYTES <= (int)MGV__LATENCY_SWAP_BYTES,
              "all warps' sums fit where either regime has them");
static_assert((GEMV_STRIPS * MGV__MATH_GROUPS << MGV__GEMV_LEAST_PARTS_LOG2) >= GEMV_WARPS && 1 << MGV__GEMV_MOST_PARTS_LOG2 == GEMV_WARPS,
              "every strip is ended by somebody");
static_assert(GEMV_WARPS == MGV__MATH_GROUPS * 4 && GEMV_ROWS * GEMV_STRIP == 128, "a thread of a math warpgroup takes a value of a strip");

/* One of a CTA's math warps at work on a tile of few rows: a GEMV, or the pooling head's sums (pool_tokens.cuh). */
struct FewRows {
    const mgv__kernel_arguments &arguments;
    const mgv__kernel_op &op;  /* lies in shared memory: what is needed behind a load is read before */
    uint32_t warp, lane;       /* of the CTA's math warps */
    uint32_t group, unit;      /* of the tile */
    uint32_t image;            /* over all groups, where tiles are of images */
    uint32_t number;           /* of the CTA among those that share a unit's work */
    uint32_t scratch;          /* shared memory, GEMV_BYTES */
    uint32_t rehearsal;        /* nothing is waited for, loaded or stored: the code alone is run, so that it is near when it is needed */
    uint32_t rows;             /* that exist; 0 in a rehearsal */
};

/* Of a GEMV's CTA: how many warps share a strip, and its first strip. No division:
   what lies in front of the loads of weights is waited for. */
struct GemvStrips {
    uint32_t parts_log2, first;
};

/* Where the sums of `warp` for a tile of rows lie: row by row. */
DEVICE uint32_t gemv_sums(const FewRows &self, uint32_t row_tile, uint32_t warp) {
    return self.scratch + (row_tile * GEMV_WARPS + warp) * GEMV_SUMS_BYTES;
}

/* --- norms ------------------------------------------------------------------------------------------------------- */

/* Sum over the eight lanes that hold a row's columns of a strip. */
DEVICE float gemv_row_sum(float v) { v = quad_sum(v); return v + shfl_bfly_f32(v, 4); }

/* Reciprocal standard deviation of a row, by the eight lanes that share it: from mean and squared deviations of each strip, every eighth of
   them a lane's. Deviations of the strips' means are taken from the lane's first, then from the row's mean. ANY_WIDTH: some lanes may have
   a strip more than others. */
template <bool ANY_WIDTH> DEVICE float gemv_rstd(const FewRows &self, uint32_t row, uint32_t rows) {
    const uint32_t inner = self.op.inner, own = ANY_WIDTH ? GEMV_STRIP - 1 - self.lane % GEMV_STRIP : 0,
                   count = (inner / GEMV_STRIP + own) / GEMV_STRIP; /* strips of a lane */
    const float *from = self.arguments.stats + self.op.stats_in + ((size_t)row * (inner / GEMV_STRIP) + self.lane % GEMV_STRIP) * 2,
                epsilon = self.op.epsilon;
    float first = 0, off = 0, off_squares = 0, squares = 0;
#pragma unroll 1
    for (uint32_t at = 0; at < count; at += GEMV_STATISTICS) {
        float means[GEMV_STATISTICS], deviations[GEMV_STATISTICS];
#pragma unroll
        for (uint32_t i = 0; i < GEMV_STATISTICS; i++) {
            means[i] = deviations[i] = 0;
            if (row < rows && at + i < count) ld_relaxed_gpu_v2f32(from + (at + i) * 2 * GEMV_STRIP, means[i], deviations[i]);
        }
        if (at == 0) first = means[0];
#pragma unroll
        for (uint32_t i = 0; i < GEMV_STATISTICS; i++) {
            const float d = at + i < count ? means[i] - first : 0;
            off += d;
            off_squares += d * d;
            squares += deviations[i];
        }
    }
    const float rcp_count = rcp_approx(ANY_WIDTH && count == 0 ? 1.0f : (float)count), mean = first + off * rcp_count;
    squares += GEMV_STRIP * (off_squares - off * off * rcp_count);
    const float of_row = ANY_WIDTH ? gemv_row_sum(mean * (float)(count * GEMV_STRIP)) * rcp_approx((float)inner)
                                   : gemv_row_sum(mean) * (1.0f / GEMV_STRIP);
    const float away = mean - of_row;
    return rsqrt_approx(gemv_row_sum(squares + (float)(count * GEMV_STRIP) * away * away) * rcp_approx((float)inner) + epsilon);
}

/* For the next norm: mean and squared deviations of a row's columns of one strip. */
DEVICE void gemv_statistics(const FewRows &self, uint32_t row, uint32_t strip, float v) {
    const float mean = gemv_row_sum(v) * (1.0f / GEMV_STRIP), squares = gemv_row_sum((v - mean) * (v - mean));
    if (row < self.rows && self.lane % GEMV_STRIP == 0)
        st_relaxed_gpu_v2f32(self.arguments.stats + self.op.of.gemv.stats_out + ((size_t)row * (self.op.columns / GEMV_STRIP) + strip) * 2,
                             mean, squares);
}

/* --- products ---------------------------------------------------------------------------------------------------- */

/* Number, among the CTA's, of the strips that a math warpgroup ends: the warpgroups take turns. */
DEVICE uint32_t gemv_number(uint32_t group, uint32_t i) { return group + i * MGV__MATH_GROUPS; }

/* Products of one tile of rows with the weights of one round, added to the sums of the rounds before. from: this lane's pieces of the row
   lane / 4, 64 bytes apart; those of the row lane / 4 + 8, where HALVES is 2, lie `eight_rows` bytes behind. steps: those in which the lane
   has a piece of either row. beside: what else is to be fetched, called when the first pieces are on their way. */
template <int HALVES, class Beside>
DEVICE void gemv_multiply(const uint8_t *from, size_t eight_rows, const uint32_t (&steps)[HALVES], const uint32_t (&w)[GEMV_AHEAD][4],
                          uint32_t sums, uint32_t add, const Beside &beside) {
    constexpr uint32_t BATCH = GEMV_AHEAD / HALVES; /* as many registers either way */
    const uint8_t *const high = opaque(from + eight_rows);
    float acc[GEMV_CHAINS][4] = {};
#pragma unroll
    for (uint32_t batch = 0; batch < GEMV_AHEAD; batch += BATCH) {
        uint32_t x[BATCH][4] = {}, y[BATCH][4] = {};
#pragma unroll
        for (uint32_t i = 0; i < BATCH; i++) {
            if (batch + i < steps[0]) ld_relaxed_gpu_v4u32(from + (batch + i) * 64, x[i][0], x[i][1], x[i][2], x[i][3]);
            if (HALVES > 1 && batch + i < steps[HALVES - 1])
                ld_relaxed_gpu_v4u32(high + (batch + i) * 64, y[i][0], y[i][1], y[i][2], y[i][3]);
        }
        if (batch == 0) beside();
#pragma unroll
        for (uint32_t i = 0; i < BATCH; i++) {
            mma_m16n8k16_f16(acc[i % 2 * 2], x[i][0], y[i][0], x[i][1], y[i][1], w[batch + i][0], w[batch + i][1]);
            mma_m16n8k16_f16(acc[i % 2 * 2 + 1], x[i][2], y[i][2], x[i][3], y[i][3], w[batch + i][2], w[batch + i][3]);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) acc[0][i] = (acc[0][i] + acc[1][i]) + (acc[2][i] + acc[3][i]);
    if (add) {
        float before[4];
        shared_load_v2f32(sums, before[0], before[1]);
        shared_load_v2f32(sums + GEMV_ROWS / 2 * GEMV_STRIP * 4, before[2], before[3]);
#pragma unroll
        for (int i = 0; i < 4; i++) acc[0][i] += before[i];
    }
    shared_store_v2f32(sums, acc[0][0], acc[0][1]);
    shared_store_v2f32(sums + GEMV_ROWS / 2 * GEMV_STRIP * 4, acc[0][2], acc[0][3]);
}

/* --- the tile ---------------------------------------------------------------------------------------------------- */

/* Where the value of a thread lies in the result and in the residual. */
DEVICE size_t gemv_place(const FewRows &self, uint32_t row, uint32_t strip) {
    return (size_t)row * self.op.columns + strip * GEMV_STRIP + self.lane % GEMV_STRIP;
}
/* Of two columns, as they are written: by every other lane. */
DEVICE uint32_t gemv_residual(const FewRows &self, uint32_t row, uint32_t strip) {
    if (!(self.op.flags & MGV__KERNEL_RESIDUAL) || row >= self.rows || strip * GEMV_STRIP >= self.op.columns || self.lane % 2) return 0;
    return ld_relaxed_gpu((const uint32_t *)(self.arguments.residual_rows + gemv_place(self, row, strip)));
}

/* One value of a strip a thread, of 16 rows: the warps' sums in order, then what follows the product.
   number: of the strip among the CTA's. */
DEVICE void gemv_finish(const FewRows &self, const GemvStrips &strips, uint32_t row_tile, uint32_t row, uint32_t number, float rstd,
                        float bias, uint32_t residual) {
    const uint32_t flags = self.rehearsal ? (uint32_t)GEMV_ALL_FLAGS : self.op.flags, rows = self.rows, strip = strips.first + number;
    const size_t at = gemv_place(self, row, strip);
    float v = 0, part[GEMV_WARPS];
#pragma unroll
    for (uint32_t i = 0; i < GEMV_WARPS; i++) {
        part[i] = 0;
        if (i < 1u << strips.parts_log2)
            part[i] = shared_load_f32(gemv_sums(self, row_tile, (number << strips.parts_log2) + i) + (self.warp % 4 * 32 + self.lane) * 4);
    }
#pragma unroll
    for (uint32_t i = 0; i < GEMV_WARPS; i++) v += part[i];
    v = rstd * v + bias;
    if (flags & MGV__KERNEL_GELU_TANH) v = gelu_tanh_of_half(v);
    if (flags & MGV__KERNEL_STATS) gemv_statistics(self, row, strip, v);
    const float right = shfl_bfly_f32(v, 1);
    if (row >= rows || self.lane % 2) return;
    if (flags & MGV__KERNEL_FLOAT_OUT)
        st_global_v2u32((float *)self.arguments.buffers[self.op.of.gemv.target] + at, __float_as_uint(v + f16_low(residual)),
                        __float_as_uint(right + f16_high(residual)));
    else st_global_u32((uint16_t *)self.arguments.buffers[self.op.of.gemv.target] + at, cvt_rn_f16x2(v, right));
}

/* All rows with this warp's share of a strip, and a math warpgroup's strips to the end. HALVES: 1 where there are no more than eight rows.
   wait: for the rows; sync: of all math warps. */
template <int HALVES, bool ANY_WIDTH, class Wait, class Sync>
DEVICE void gemv_rows(const FewRows &self, const Wait &wait, const Sync &sync) {
    const mgv__kernel_op &op = self.op;
    const GemvStrips strips = {op.of.gemv.parts_log2, self.number * GEMV_WARPS >> op.of.gemv.parts_log2};
    const uint32_t parts = 1 << strips.parts_log2;
    const uint32_t quad = self.lane / 4, group = self.warp / 4, rows = self.rows, pieces = op.of.gemv.pieces, columns = op.columns;
    const uint32_t fold = self.rehearsal || op.flags & MGV__KERNEL_FOLD_NORM;
    const uint32_t strip = strips.first + (self.warp >> strips.parts_log2), all_steps = (pieces + 3) / 4,
                   share = (all_steps + parts - 1) >> strips.parts_log2;
    const uint32_t rounds = (share + GEMV_AHEAD - 1) / GEMV_AHEAD, first_step = (self.warp & (parts - 1)) * share;
    const uint32_t end_step = first_step + share < all_steps ? first_step + share : all_steps;
    const uint32_t row_tiles = HALVES == 1 ? 1 : (rows + GEMV_ROWS - 1) / GEMV_ROWS;
    const uint32_t own_row = self.warp % 4 * 4 + self.lane / GEMV_STRIP; /* of a tile, that this thread ends */
    const uint32_t row_bytes = pieces * GEMV_PIECE * 2, a_column_step = op.of.gemv.a_column_step,
                   pitch = a_column_step ? op.heads * a_column_step * 2 : row_bytes;
    /* beyond the last column there is no head either, whose row could be read: the first one's instead */
    const uint32_t exists = strip * GEMV_STRIP < columns, head = exists && a_column_step ? strip * GEMV_STRIP / head_columns(op) : 0;
    const uint8_t *const weights =
        self.arguments.weights + (size_t)op.of.gemv.weights * 16 + (size_t)(strip * GEMV_STRIP + quad) * row_bytes;
    const uint8_t *const a = self.arguments.buffers[op.of.gemv.source] + (size_t)head * a_column_step * 2;
    float bias[GEMV_STRIPS]; /* of the strips that this warpgroup ends */
#pragma unroll
    for (uint32_t i = 0; i < GEMV_STRIPS; i++) {
        const uint32_t column = (strips.first + gemv_number(group, i)) * GEMV_STRIP + self.lane % GEMV_STRIP;
        bias[i] = column < columns ? ld_global_nc_f32(self.arguments.vectors + op.of.gemv.bias + column) : 0;
    }
    if (!self.rehearsal && op.flags & MGV__KERNEL_WAIT_FIRST) wait();
    uint32_t residual[GEMV_STRIPS] = {};
    float rstd = 1;
#pragma unroll 1
    for (uint32_t round = 0; round < rounds; round++) {
        const uint32_t first = first_step + round * GEMV_AHEAD, piece = first * 4 + self.lane % 4;
        const uint32_t left = first >= end_step || piece >= pieces ? 0 : (pieces - piece + 3) / 4;
        const uint32_t own = end_step - first < left ? end_step - first : left; /* steps in which this lane has a piece */
        const uint8_t *const from = opaque(weights + (size_t)piece * 16); /* opaque: or its sum is taken again for each load */
        const uint32_t loads = exists && !self.rehearsal ? own : 0;
        uint32_t w[GEMV_AHEAD][4] = {};
#pragma unroll
        for (uint32_t i = 0; i < GEMV_AHEAD; i++)
            if (i < loads) ld_global_nc_v4u32(from + i * 64, w[i][0], w[i][1], w[i][2], w[i][3]);
        if (round == 0 && !self.rehearsal) wait();
#pragma unroll 1
        for (uint32_t row_tile = 0; row_tile < row_tiles; row_tile++) {
            const uint32_t low = row_tile * GEMV_ROWS + quad,
                           sums = gemv_sums(self, row_tile, self.warp) + quad * GEMV_STRIP * 4 + self.lane % 4 * 8;
            uint32_t steps[HALVES];
            steps[0] = low < rows ? own : 0;
            if (HALVES > 1) steps[HALVES - 1] = low + 8 < rows ? own : 0;
            gemv_multiply<HALVES>(opaque(a + (size_t)piece * 16 + (size_t)low * pitch), (size_t)8 * pitch, steps, w, sums, round, [&] {
                if constexpr (HALVES == 1) {
                    if (round > 0) return;
#pragma unroll
                    for (uint32_t i = 0; i < GEMV_STRIPS; i++)
                        residual[i] = gemv_residual(self, own_row, strips.first + gemv_number(group, i));
                    if (fold) rstd = gemv_rstd<ANY_WIDTH>(self, own_row, rows);
                }
            });
        }
    }
    sync();
#pragma unroll 1
    for (uint32_t row_tile = 0; row_tile < row_tiles; row_tile++) {
        const uint32_t row = row_tile * GEMV_ROWS + own_row;
        if (HALVES > 1 && fold) rstd = gemv_rstd<ANY_WIDTH>(self, row, rows);
#pragma unroll
        for (uint32_t i = 0; i < GEMV_STRIPS; i++) {
            const uint32_t number = gemv_number(group, i);
            if (HALVES > 1) residual[i] = gemv_residual(self, row, strips.first + number);
            if (number * parts < GEMV_WARPS && (strips.first + number) * GEMV_STRIP < columns)
                gemv_finish(self, strips, row_tile, row, number, rstd, bias[i], residual[i]);
        }
    }
}
template <class Wait, class Sync> DEVICE void gemv(const FewRows &self, const Wait &wait, const Sync &sync) {
    if (self.op.rows_total <= GEMV_ROWS / 2) gemv_rows<1, false>(self, wait, sync);
    else gemv_rows<2, false>(self, wait, sync);
}

#endif /* MGV_GEMV_CUH */
