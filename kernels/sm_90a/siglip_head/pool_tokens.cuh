/* megavit: the throughput regime's pooling head for few images: a CTA for each 16 tokens of an image, then one for each head. The formulas
   are those of pool.cuh; the softmax is taken over the 16 tokens alone, and what the CTAs of an image leave is brought to their largest
   maximum when it is added.

   Each of a CTA's math warps has some columns of the tokens in registers, 16 bytes a lane of each, and takes them through mma.m16n8k16
   twice: as the K of the scores, with heads as M and tokens as N, whose sums over the warps meet in shared memory; then, transposed, as the
   N of the weighted sums. As in gemv.cuh, which columns one product takes is free. */
#ifndef MGV_POOL_TOKENS_CUH
#define MGV_POOL_TOKENS_CUH

#include "gemv.cuh"

#ifndef POOL_LARGEST /* what powers of two are taken below: the largest of some tokens' scores, or what another machine makes of it */
#define POOL_LARGEST(most) (most)
#endif

enum {
    POOL_TOKENS = MGV__POOL_TOKENS,
    POOL_STEP = 32,    /* columns: a piece of eight a lane of a quad */
    POOL_STEPS = (MGV__KERNEL_MAX_WIDTH / POOL_STEP + GEMV_WARPS - 1) / GEMV_WARPS, /* of a warp at most */
    POOL_SCORE_BYTES = POOL_TOKENS * POOL_TOKENS * 4, /* of one warp: 16 heads by 16 tokens */
    POOL_PARTS = MGV__MAX_KEYS / POOL_TOKENS
};
static_assert(MGV__KERNEL_MAX_WIDTH / 64 <= 2 * 16, "two statistics of a token for each of 16 lanes");
static_assert(POOL_TOKENS == 2 * GEMV_WARPS && POOL_PARTS == 16,
              "each warp finds the norms of two tokens; a lane of 16 has a part of an image");
static_assert(GEMV_WARPS * POOL_SCORE_BYTES + POOL_TOKENS * 8 <= (int)GEMV_BYTES, "scores and norms fit where a GEMV has its sums");

/* A row of `heads` sums over tokens for each CTA of an image; behind them, for each head, maximum, sum of exponentials,
   sum of the means. */
DEVICE float *pool_sums_row(const FewRows &self, uint32_t buffer, uint32_t part) {
    const mgv__kernel_op &op = self.op;
    const uint32_t parts = (op.tokens + POOL_TOKENS - 1) / POOL_TOKENS;
    return (float *)self.arguments.buffers[buffer] + (size_t)(self.image * parts + part) * op.heads * (op.inner + 4);
}

/* Mean and reciprocal standard deviation of two tokens, from the statistics of parts of their columns,
   which a half of the warp shares out, two a lane. */
DEVICE void pool_norms(const FewRows &self, const float *from, uint32_t exists) {
    const uint32_t inner = self.op.inner, columns = self.op.stats_columns, parts = (inner + columns - 1) / columns, lane = self.lane % 16;
    float mean[2] = {0, 0}, squares[2] = {0, 0};
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
        if (exists && lane + 16 * i < parts) ld_relaxed_gpu_v2f32(from + (lane + 16 * i) * STATS_PART, mean[i], squares[i]);
    float sum = 0, deviations = squares[0] + squares[1];
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
        if (lane + 16 * i < parts) sum += mean[i] * part_columns(lane + 16 * i, columns, inner);
#pragma unroll
    for (uint32_t lanes = 8; lanes; lanes /= 2) sum += shfl_bfly_f32(sum, lanes);
    sum *= rcp_approx((float)inner);
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
        if (lane + 16 * i < parts) deviations += part_columns(lane + 16 * i, columns, inner) * (mean[i] - sum) * (mean[i] - sum);
#pragma unroll
    for (uint32_t lanes = 8; lanes; lanes /= 2) deviations += shfl_bfly_f32(deviations, lanes);
    if (lane == 0)
        shared_store_v2f32(self.scratch + GEMV_WARPS * POOL_SCORE_BYTES + (self.warp * 2 + self.lane / 16) * 8, sum,
                           rsqrt_approx(deviations * rcp_approx((float)inner) + self.op.epsilon));
}

/* The scores of the warps together: of the heads lane / 4 and lane / 4 + 8, the tokens 2 (lane % 4), + 1 and 8 more. */
DEVICE void pool_add_scores(const FewRows &self, float (&s)[2][4]) {
#pragma unroll
    for (uint32_t warp = 0; warp < GEMV_WARPS; warp++)
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            float x[4];
            shared_load_v4f32(self.scratch + warp * POOL_SCORE_BYTES + half * POOL_SCORE_BYTES / 2 + self.lane * 16,
                              x[0], x[1], x[2], x[3]);
#pragma unroll
            for (int i = 0; i < 4; i++) s[half][i] = warp ? s[half][i] + x[i] : x[i];
        }
}

/* Scores -> weights, a_m16k16 as mma has it; triple: of both heads, what lies behind the sums. tokens: those that exist. */
DEVICE void pool_tokens_weights(const FewRows &self, float (&s)[2][4], const float (&column_sums)[2], uint32_t tokens, uint32_t (&w)[4],
                                float (&triple)[2][3]) {
    const uint32_t table = self.scratch + GEMV_WARPS * POOL_SCORE_BYTES, column = 2 * (self.lane % 4);
    float mean[2][2], rstd[2][2];
#pragma unroll
    for (uint32_t half = 0; half < 2; half++)
        shared_load_v4f32(table + (half * 8 + column) * 8, mean[half][0], rstd[half][0], mean[half][1], rstd[half][1]);
#pragma unroll
    for (int head = 0; head < 2; head++) {
        float most = -INFINITY, sum = 0, offset = 0;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            float &x = s[i / 2][2 * head + i % 2];
            x = i / 2 * 8 + column + i % 2 < tokens ? rstd[i / 2][i % 2] * (x - mean[i / 2][i % 2] * column_sums[head]) : -INFINITY;
            most = fmaxf(most, x);
        }
        most = POOL_LARGEST(quad_max(most));
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            const float p = ex2_approx(s[half][2 * head] - most), q = ex2_approx(s[half][2 * head + 1] - most);
            const uint32_t pair = cvt_rn_bf16x2(p * rstd[half][0], q * rstd[half][1]);
            sum += p + q;
            offset += bf16_low(pair) * mean[half][0] + bf16_high(pair) * mean[half][1];
            w[2 * half + head] = pair;
        }
        triple[head][0] = most;
        triple[head][1] = quad_sum(sum);
        triple[head][2] = quad_sum(offset);
    }
}

/* One step's columns of the weighted sums, of both of the lane's heads. */
DEVICE void pool_tokens_sums(const uint32_t (&x)[2][4], const uint32_t (&w)[4], float *low, float *high, uint32_t low_exists,
                             uint32_t high_exists) {
    float z[4][4] = {};
#pragma unroll
    for (int j = 0; j < 4; j++)
        mma_m16n8k16_bf16(z[j], w[0], w[1], w[2], w[3], movmatrix_transposed(x[0][j]), movmatrix_transposed(x[1][j]));
#pragma unroll
    for (int j = 0; j < 4; j += 2) {
        if (low_exists)
            st_global_v4u32(low + 2 * j, __float_as_uint(z[j][0]), __float_as_uint(z[j][1]),
                            __float_as_uint(z[j + 1][0]), __float_as_uint(z[j + 1][1]));
        if (high_exists)
            st_global_v4u32(high + 2 * j, __float_as_uint(z[j][2]), __float_as_uint(z[j][3]),
                            __float_as_uint(z[j + 1][2]), __float_as_uint(z[j + 1][3]));
    }
}

/* 16 tokens: their weighted sums, for each head. wait: for the tokens; sync: of all math warps. */
template <class Wait, class Sync> DEVICE void pool_tokens(const FewRows &self, const Wait &wait, const Sync &sync) {
    const mgv__kernel_op &op = self.op;
    const uint32_t quad = self.lane / 4, first = self.number * POOL_TOKENS, tokens = self.rows && op.tokens > first ? op.tokens - first : 0;
    const uint32_t steps = op.inner / POOL_STEP;
    const uint32_t row_bytes = op.inner * 2, low_head = self.rows && quad < op.heads, high_head = self.rows && quad + 8 < op.heads;
    const uint32_t column_bytes = self.warp * POOL_STEP * 2 + self.lane % 4 * 16;
    const uint8_t *const vectors =
        opaque(self.arguments.weights + (size_t)op.of.pool_few.weights * 16 + (size_t)quad * row_bytes + column_bytes);
    const uint8_t *const from =
        opaque(self.arguments.buffers[op.of.pool_few.source] + (size_t)(self.image * op.tokens + first + quad) * row_bytes + column_bytes);
    const uint32_t own = self.warp * 2 + self.lane / 16; /* the token whose norm this half of the warp finds */
    const float *const statistics =
        self.arguments.stats + op.stats_in + stats_place(op, op.inner, self.group, self.unit * op.tokens + first + own, 0);
    float *const sums = pool_sums_row(self, op.of.pool_few.target, self.number);
    float column_sums[2] = {0, 0}, s[2][4] = {}, t[2][4] = {}, triple[2][3];
    uint32_t u[POOL_STEPS][2][4] = {}, x[POOL_STEPS][2][4] = {}, w[4];
    if (low_head) column_sums[0] = ld_global_nc_f32(self.arguments.vectors + op.of.pool_few.column_sums + quad);
    if (high_head) column_sums[1] = ld_global_nc_f32(self.arguments.vectors + op.of.pool_few.column_sums + quad + 8);
#pragma unroll
    for (uint32_t i = 0; i < POOL_STEPS; i++) {
        if (self.warp + i * GEMV_WARPS >= steps) continue;
        const uint8_t *const at = vectors + i * GEMV_WARPS * POOL_STEP * 2;
        if (low_head) ld_global_nc_v4u32(at, u[i][0][0], u[i][0][1], u[i][0][2], u[i][0][3]);
        if (high_head) ld_global_nc_v4u32(at + 8 * row_bytes, u[i][1][0], u[i][1][1], u[i][1][2], u[i][1][3]);
    }
    wait();
#pragma unroll
    for (uint32_t i = 0; i < POOL_STEPS; i++) {
        if (self.warp + i * GEMV_WARPS >= steps) continue;
        const uint8_t *const at = from + i * GEMV_WARPS * POOL_STEP * 2;
        if (quad < tokens) ld_relaxed_gpu_v4u32(at, x[i][0][0], x[i][0][1], x[i][0][2], x[i][0][3]);
        if (quad + 8 < tokens) ld_relaxed_gpu_v4u32(at + 8 * row_bytes, x[i][1][0], x[i][1][1], x[i][1][2], x[i][1][3]);
    }
    pool_norms(self, statistics, own < tokens);
    warp_sync();
#pragma unroll
    for (uint32_t i = 0; i < POOL_STEPS; i++) {
        if (self.warp + i * GEMV_WARPS >= steps) continue;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            mma_m16n8k16_bf16(s[half], u[i][0][0], u[i][1][0], u[i][0][1], u[i][1][1], x[i][half][0], x[i][half][1]);
            mma_m16n8k16_bf16(t[half], u[i][0][2], u[i][1][2], u[i][0][3], u[i][1][3], x[i][half][2], x[i][half][3]);
        }
    }
#pragma unroll
    for (uint32_t half = 0; half < 2; half++)
        shared_store_v4f32(self.scratch + self.warp * POOL_SCORE_BYTES + half * POOL_SCORE_BYTES / 2 + self.lane * 16,
                           s[half][0] + t[half][0], s[half][1] + t[half][1], s[half][2] + t[half][2], s[half][3] + t[half][3]);
    sync();
    if (tokens == 0) return;
    pool_add_scores(self, s);
    pool_tokens_weights(self, s, column_sums, tokens, w, triple);
#pragma unroll
    for (uint32_t i = 0; i < POOL_STEPS; i++) {
        if (self.warp + i * GEMV_WARPS >= steps) continue;
        float *const to = sums + (size_t)quad * op.inner + (self.warp + i * GEMV_WARPS) * POOL_STEP + self.lane % 4 * 8;
        pool_tokens_sums(x[i], w, to, to + (size_t)8 * op.inner, low_head, high_head);
    }
    if (self.warp || self.lane % 4) return;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
        if (i ? high_head : low_head)
            st_global_v4u32(sums + (size_t)op.heads * op.inner + (quad + 8 * i) * 4, __float_as_uint(triple[i][0]),
                            __float_as_uint(triple[i][1]), __float_as_uint(triple[i][2]), 0);
}

/* One head of an image: what its CTAs have left, together. Four columns a thread. */
template <class Wait> DEVICE void pool_join(const FewRows &self, const Wait &wait) {
    const mgv__kernel_op &op = self.op;
    const uint32_t parts = (op.tokens + POOL_TOKENS - 1) / POOL_TOKENS, lane = self.lane % 16, inner = op.inner, heads = op.heads;
    const uint32_t exists = self.rows && self.number < heads;
    const size_t pitch = (size_t)heads * (inner + 4);
    const float *const from = pool_sums_row(self, op.of.pool_few.source, 0),
                *const triples = from + (size_t)heads * inner + self.number * 4;
    uint16_t *const to = (uint16_t *)self.arguments.buffers[op.of.pool_few.target] + (size_t)(self.image * heads + self.number) * inner;
    const float *const gammas = self.arguments.vectors + op.of.pool_few.gamma;
    uint32_t column = (self.warp * 32 + self.lane) * 4;
    wait();
    if (!exists) return;
    uint32_t most = __float_as_uint(-INFINITY), sum = 0, offset = 0, unused;
    if (exists && lane < parts) ld_relaxed_gpu_v4u32(triples + lane * pitch, most, sum, offset, unused);
    float largest = __uint_as_float(most);
#pragma unroll
    for (uint32_t lanes = 8; lanes; lanes /= 2) largest = fmaxf(largest, shfl_bfly_f32(largest, lanes));
    const float weight = ex2_approx(__uint_as_float(most) - largest);
    float total = weight * __uint_as_float(sum), away = weight * __uint_as_float(offset);
#pragma unroll
    for (uint32_t lanes = 8; lanes; lanes /= 2) {
        total += shfl_bfly_f32(total, lanes);
        away += shfl_bfly_f32(away, lanes);
    }
    const float rcp = rcp_approx(total);
#pragma unroll 1
    for (uint32_t base = 0; base < inner; base += GEMV_WARPS * 32 * 4, column += GEMV_WARPS * 32 * 4) {
        const uint32_t in = exists && column < inner;
        uint32_t x[POOL_PARTS][4] = {}, gamma[4] = {}, beta[4] = {};
        float z[4] = {};
#pragma unroll
        for (uint32_t i = 0; i < POOL_PARTS; i++)
            if (in && i < parts)
                ld_relaxed_gpu_v4u32(from + i * pitch + (size_t)self.number * inner + column, x[i][0], x[i][1], x[i][2], x[i][3]);
        if (in) ld_global_nc_v4u32(gammas + column, gamma[0], gamma[1], gamma[2], gamma[3]);
        if (in) ld_global_nc_v4u32(gammas + inner + column, beta[0], beta[1], beta[2], beta[3]);
#pragma unroll
        for (uint32_t i = 0; i < POOL_PARTS; i++) {
            const float share = __uint_as_float(shfl_idx_u32(__float_as_uint(weight), i));
#pragma unroll
            for (int e = 0; e < 4; e++) z[e] += share * __uint_as_float(x[i][e]);
        }
#pragma unroll
        for (int e = 0; e < 4; e++) z[e] = (z[e] - away) * rcp * __uint_as_float(gamma[e]) + __uint_as_float(beta[e]);
        if (in) st_global_v2u32(to + column, cvt_rn_f16x2(z[0], z[1]), cvt_rn_f16x2(z[2], z[3]));
    }
}

/* --- all tiles of few rows --------------------------------------------------------------------------------------- */

/* By all math warps of a CTA, with ordinary loads and stores. */
template <class Wait, class Sync> DEVICE void few_rows(const FewRows &self, const Wait &wait, const Sync &sync) {
    switch (self.op.kind) {
    case MGV__KERNEL_GEMV: gemv(self, wait, sync); break;
    case MGV__KERNEL_POOL_TOKENS: pool_tokens(self, wait, sync); break;
    default: pool_join(self, wait); break;
    }
}

/* The throughput regime's tile, in a stage that the loader leaves empty. */
ROUTINE void few_rows_tile(Math &self, const TileSlot &tile) {
    const FewRows rows = {self.arguments, tile.op, self.group * 4 + self.warp, self.lane, tile.group, tile.unit,
                          image_number(tile.op, tile.group, tile.unit), tile.column * MGV__CLUSTER + self.cta,
                          shared_address(self.shared->stage[self.stage.index]), 0,
                          tile.op.rows_total};
    uint32_t *counter = tile_counter(self.arguments, tile, self.cta);
    const auto sync = [] { bar_sync(MATH_SYNC_ALL, GEMV_WARPS * 32); };
    few_rows(rows, [&] {
        math_wait_stage(self, self.stage);
        wait_barrier(&self.shared->tile_ready[self.slot.index], self.slot.parity);
    }, sync);
    fence_proxy_async_shared_cta(); /* the copy engines of both CTAs write there next */
    sync();
    if (self.group == 0 && self.thread == 0 && counter)
        red_release_gpu_add(counter, 1); /* who waits reads by ordinary loads: no proxy fence */
    math_leave_stage(self, self.stage.index);
    self.stage.advance();
}

#endif /* MGV_POOL_TOKENS_CUH */
