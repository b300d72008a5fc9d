/* megavit: products of few rows, those of the pooling head for few images. A strip is 8 columns of the result, and with them 8 rows of the weights. A warp has a
   share of the columns of A of one strip: its weights go straight into registers, ahead of the wait for the rows that they are multiplied with, so that an
   operation takes little more than one way through the L2 cache.

   mma.m16n8k16 with rows as M and the strip as N. Which 16 columns of A one of them takes is free, as long as A and B agree: of 32 columns each lane holds
   8 in a row, of a row of A and of a row of weights alike, the first half for one product, the second for the next. */
#ifndef MGV_GEMV_CUH
#define MGV_GEMV_CUH

#include "gemm.cuh"

enum {
    GEMV_STRIP = 8,     /* columns */
    GEMV_ROWS = 16,     /* rows of one product */
    GEMV_PIECE = 8,     /* columns of A, or of a row of weights, that a lane loads at once */
    GEMV_AHEAD = 24,    /* steps of four pieces whose weights a warp holds; a warp with more takes them in rounds */
    GEMV_BATCH = 6,     /* steps whose rows are on their way together */
    GEMV_SUMS_BYTES = GEMV_ROWS * GEMV_STRIP * 4, /* of one warp */
    GEMV_MAX_PARTS_A_LANE = MGV__KERNEL_MAX_WIDTH / GEMV_STRIP / GEMV_STRIP /* statistics of a row: eight lanes share its parts, each of a strip's columns */
};
static_assert(MGV__MATH_GROUPS * MGV__GEMV_MAX_ROWS / GEMV_ROWS * 4 * GEMV_SUMS_BYTES <= MGV__STAGE_BYTES, "all warps' sums fit one stage");
static_assert(GEMV_AHEAD % GEMV_BATCH == 0, "a round is whole batches");

/* The strip of this warp, and its share of the pieces of K, in steps of four. */
struct GemvShare {
    uint32_t strip, part, first_step, steps;
};
DEVICE uint32_t gemv_first_strip(const Math &self, const TileSlot &tile) {
    return ((tile.column * MGV__CLUSTER + self.cta) * MGV__MATH_GROUPS + self.group) * (4 / MGV__GEMV_PARTS(tile.op.k_blocks));
}
DEVICE GemvShare gemv_share(const Math &self, const TileSlot &tile) {
    const uint32_t parts = MGV__GEMV_PARTS(tile.op.k_blocks), steps = (tile.op.k_blocks + 3) / 4, each = (steps + parts - 1) / parts;
    GemvShare share;
    share.strip = gemv_first_strip(self, tile) + self.warp / parts;
    share.part = self.warp % parts;
    share.first_step = share.part * each;
    share.steps = share.first_step >= steps ? 0 : share.first_step + each < steps ? each : steps - share.first_step;
    return share;
}

/* Where this warp's sums for rows [16 tile, + 16) lie: row by row. */
DEVICE uint32_t gemv_sums(const Math &self, uint32_t row_tile, uint32_t warp) {
    return shared_address(self.shared->stage[self.stage.index]) + ((row_tile * MGV__MATH_GROUPS + self.group) * 4 + warp) * GEMV_SUMS_BYTES;
}

/* What a lane loads of rows of A or of weights: a piece of each step, 64 bytes apart. steps: those in which it has one. */
struct GemvPieces {
    const uint8_t *from;
    uint32_t steps;
};

/* Products of 16 rows with the weights of one round. low, high: this lane's pieces of the rows lane / 4 and lane / 4 + 8. Added to the sums of the rounds before. */
DEVICE void gemv_multiply(GemvPieces low, GemvPieces high, const uint32_t (&w)[GEMV_AHEAD][4], uint32_t steps, uint32_t sums, uint32_t add) {
    float acc[2][4] = {}; /* of the two products of a step: one chain would wait for itself */
    if (add) {
        shared_load_v2f32(sums, acc[0][0], acc[0][1]);
        shared_load_v2f32(sums + GEMV_ROWS / 2 * GEMV_STRIP * 4, acc[0][2], acc[0][3]);
    }
#pragma unroll
    for (uint32_t batch = 0; batch < GEMV_AHEAD; batch += GEMV_BATCH) {
        if (batch >= steps) continue;
        uint32_t x[GEMV_BATCH][4] = {}, y[GEMV_BATCH][4] = {};
#pragma unroll
        for (uint32_t i = 0; i < GEMV_BATCH; i++) {
            if (batch + i < low.steps) ld_relaxed_gpu_v4u32(low.from + (batch + i) * 64, x[i][0], x[i][1], x[i][2], x[i][3]);
            if (batch + i < high.steps) ld_relaxed_gpu_v4u32(high.from + (batch + i) * 64, y[i][0], y[i][1], y[i][2], y[i][3]);
        }
#pragma unroll
        for (uint32_t i = 0; i < GEMV_BATCH; i++) {
            mma_m16n8k16_bf16(acc[0], x[i][0], y[i][0], x[i][1], y[i][1], w[batch + i][0], w[batch + i][1]);
            mma_m16n8k16_bf16(acc[1], x[i][2], y[i][2], x[i][3], y[i][3], w[batch + i][2], w[batch + i][3]);
        }
    }
    shared_store_v2f32(sums, acc[0][0] + acc[1][0], acc[0][1] + acc[1][1]);
    shared_store_v2f32(sums + GEMV_ROWS / 2 * GEMV_STRIP * 4, acc[0][2] + acc[1][2], acc[0][3] + acc[1][3]);
}

/* All rows with this warp's share of a strip; the sums go to shared memory. What the operation says is read once: it lies in shared memory, and would be read
   again behind every load. */
DEVICE void gemv_products(Math &self, const TileSlot &tile, const Ring<MGV__SLOTS> &slot) {
    const mgv__kernel_op &op = tile.op;
    const GemvShare share = gemv_share(self, tile);
    const uint32_t quad = self.lane / 4, rows = op.rows_total, pieces = op.k_blocks, row_bytes = pieces * GEMV_PIECE * 2;
    const uint32_t exists = share.strip * GEMV_STRIP < op.columns, pitch = op.a_column_step ? op.heads * op.a_column_step * 2 : row_bytes;
    const uint32_t head = op.a_column_step ? share.strip * GEMV_STRIP / head_columns(op) : 0;
    const uint8_t *weights = self.arguments.weights + (size_t)op.weights_offset * 16 + (size_t)(share.strip * GEMV_STRIP + quad) * row_bytes;
    const uint8_t *a = self.arguments.buffers[op.a_map] + (size_t)head * op.a_column_step * 2;
    if (op.flags & MGV__KERNEL_WAIT_FIRST) wait_barrier(self.dog, &self.shared->tile_ready[slot.index], slot.parity, MGV__WAIT_TILE_READY);
    for (uint32_t done = 0; done == 0 || done < share.steps; done += GEMV_AHEAD) {
        const uint32_t piece = (share.first_step + done) * 4 + self.lane % 4, steps = share.steps - done < GEMV_AHEAD ? share.steps - done : GEMV_AHEAD;
        const uint32_t left = piece < pieces ? (pieces - piece + 3) / 4 : 0, own = left < steps ? left : steps; /* steps in which this lane has a piece */
        const uint8_t *const from = opaque(weights + (size_t)piece * 16); /* opaque: or its sum is taken again for each load */
        const uint32_t loads = exists ? own : 0;
        uint32_t w[GEMV_AHEAD][4] = {};
#pragma unroll
        for (uint32_t i = 0; i < GEMV_AHEAD; i++)
            if (i < loads) ld_global_nc_v4u32(from + i * 64, w[i][0], w[i][1], w[i][2], w[i][3]);
        if (done == 0) {
            math_wait_stage(self, self.stage);
            wait_barrier(self.dog, &self.shared->tile_ready[slot.index], slot.parity, MGV__WAIT_TILE_READY);
        }
#pragma unroll 1
        for (uint32_t row = 0; row < rows; row += GEMV_ROWS) {
            const uint8_t *const first = opaque(a + (size_t)piece * 16 + (size_t)(row + quad) * pitch);
            const GemvPieces low = {first, row + quad < rows ? own : 0}, high = {opaque(first + (size_t)8 * pitch), row + quad + 8 < rows ? own : 0};
            const uint32_t sums = gemv_sums(self, row / GEMV_ROWS, self.warp) + quad * GEMV_STRIP * 4 + self.lane % 4 * 8;
            gemv_multiply(low, high, w, steps, sums, done);
        }
    }
}

/* Sum over the eight lanes that hold a row's columns of a strip. */
DEVICE float gemv_row_sum(float v) { v = quad_sum(v); return v + shfl_bfly_f32(v, 4); }

/* Reciprocal standard deviation of a row, by the eight lanes that share it: from the mean and squared deviations of each strip. */
DEVICE float gemv_rstd(const Math &self, const mgv__kernel_op &op, uint32_t row) {
    const uint32_t parts = op.inner / GEMV_STRIP, lane = self.lane % GEMV_STRIP;
    const float *part = self.arguments.stats + op.stats_in + (size_t)row * parts * 2;
    float means[GEMV_MAX_PARTS_A_LANE], squares[GEMV_MAX_PARTS_A_LANE], sum = 0, deviations = 0;
#pragma unroll
    for (uint32_t i = 0; i < GEMV_MAX_PARTS_A_LANE; i++) {
        means[i] = squares[i] = 0;
        if (row < op.rows_total && i * GEMV_STRIP + lane < parts) ld_relaxed_gpu_v2f32(part + 2 * (i * GEMV_STRIP + lane), means[i], squares[i]);
    }
#pragma unroll
    for (uint32_t i = 0; i < GEMV_MAX_PARTS_A_LANE; i++) sum += means[i];
    const float mean = gemv_row_sum(sum) / (float)parts;
#pragma unroll
    for (uint32_t i = 0; i < GEMV_MAX_PARTS_A_LANE; i++)
        if (i * GEMV_STRIP + lane < parts) deviations += squares[i] + GEMV_STRIP * (means[i] - mean) * (means[i] - mean);
    return rsqrtf(gemv_row_sum(deviations) / (float)op.inner + op.epsilon);
}

/* Mean and squared deviations of a row's columns of one strip. */
DEVICE void gemv_statistics(const Math &self, const mgv__kernel_op &op, uint32_t row, uint32_t strip, float v) {
    const float mean = gemv_row_sum(v) / GEMV_STRIP, squares = gemv_row_sum((v - mean) * (v - mean));
    if (row < op.rows_total && self.lane % GEMV_STRIP == 0)
        st_relaxed_gpu_v2f32(self.arguments.stats + op.stats_out + ((size_t)row * (op.columns / GEMV_STRIP) + strip) * 2, mean, squares);
}

/* One value of a strip a thread, of 16 rows: the warps' sums in order, then what follows the product. */
DEVICE void gemv_finish(const Math &self, const mgv__kernel_op &op, uint32_t row_tile, uint32_t strip, uint32_t first_warp, float rstd, float bias) {
    const uint32_t row = row_tile * GEMV_ROWS + self.thread / GEMV_STRIP, flags = op.flags, rows = op.rows_total, parts = MGV__GEMV_PARTS(op.k_blocks);
    const size_t at = (size_t)row * op.columns + strip * GEMV_STRIP + self.lane % GEMV_STRIP;
    uint32_t residual = 0; /* of two columns, as they are written */
    float v = 0;
    if (flags & MGV__KERNEL_RESIDUAL && row < rows && self.lane % 2 == 0) residual = ld_relaxed_gpu((const uint32_t *)(self.arguments.residual_rows + at));
    for (uint32_t i = 0; i < parts; i++) v += shared_load_f32(gemv_sums(self, row_tile, first_warp + i) + self.thread * 4);
    v = rstd * v + bias;
    if (flags & MGV__KERNEL_GELU_TANH) v = gelu_tanh_of_half(v);
    if (flags & MGV__KERNEL_STATS) gemv_statistics(self, op, row, strip, v);
    const float right = shfl_bfly_f32(v, 1);
    if (row >= rows || self.lane % 2) return;
    if (flags & MGV__KERNEL_FLOAT_OUT)
        st_global_v2u32((float *)self.arguments.buffers[op.store_map] + at, __float_as_uint(v + bf16_low(residual)), __float_as_uint(right + bf16_high(residual)));
    else st_global_u32((uint16_t *)self.arguments.buffers[op.store_map] + at, cvt_rn_bf16x2(v, right));
}

DEVICE void gemv_tile(Math &self, const TileSlot &tile, const Ring<MGV__SLOTS> &slot) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t parts = MGV__GEMV_PARTS(op.k_blocks), first = gemv_first_strip(self, tile), columns = op.columns, fold = op.flags & MGV__KERNEL_FOLD_NORM;
    float bias[2]; /* of the strips of this warpgroup; beyond the last one they are not used */
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t column = (first + i) * GEMV_STRIP + self.lane % GEMV_STRIP;
        bias[i] = column < columns ? ld_global_nc_f32(self.arguments.vectors + op.bias + column) : 0;
    }
    gemv_products(self, tile, slot);
    math_group_sync(self);
#pragma unroll 1
    for (uint32_t row_tile = 0; row_tile * GEMV_ROWS < op.rows_total; row_tile++) {
        const float rstd = fold ? gemv_rstd(self, op, row_tile * GEMV_ROWS + self.thread / GEMV_STRIP) : 1;
#pragma unroll
        for (uint32_t i = 0; i < 2; i++)
            if (i < 4 / parts && (first + i) * GEMV_STRIP < columns) gemv_finish(self, op, row_tile, first + i, i * parts, rstd, bias[i]);
    }
    fence_proxy_async_shared_cta(); /* the copy engines of both CTAs write there next */
    math_group_sync(self);
    uint32_t *counter = tile_counter(self.arguments, tile, self.cta);
    if (self.thread == 0 && counter && !self.dog.aborted) red_release_gpu_add(counter, 1); /* who waits reads by ordinary loads: no proxy fence */
    math_leave_stage(self, self.stage.index);
    self.stage.advance();
}

#endif /* MGV_GEMV_CUH */
