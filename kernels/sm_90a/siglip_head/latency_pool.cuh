/* megavit: the latency regime's pooling head up to the values, in one operation: two heads of one image a cluster, a quarter of the image's
   tokens a CTA. The formulas are those of pool.cuh.

   The copy engine brings the CTA's tokens into the ring of rows, two blocks of 64 columns a stage, where mma.m16n8k16 reads them twice: for
   the scores tokens are M and the heads N, each warp with 16 tokens of every second block; for the weighted sums heads are M and columns N,
   each warp with all tokens of some columns. The softmax is taken over the CTA's tokens alone. Its sums go to the other CTAs, rounded to
   f16, which has room for those of 64 normalised tokens, with the maximum that they were taken at, so each has those of the whole image,
   and finds a quarter of either head's values.

   Each warp's weights of the values, its scoring vectors and all else that nobody writes is there before the tokens are. */
#ifndef MGV_LATENCY_POOL_CUH
#define MGV_LATENCY_POOL_CUH

#include "../latency/gemm.cuh"
#include "gemv.cuh"

enum {
    POOL_HEADS = MGV__POOL_HEADS,
    POOL_SHARE = MGV__POOL_SHARE,
    POOL_WIDTH = MGV__POOL_WIDTH,
    POOL_VALUES = 64 / MGV__LATENCY_CLUSTER, /* of a head, that a CTA finds */
    POOL_VALUE_STEPS = POOL_WIDTH / 32 / 4,  /* of 32 columns, that one of a head's four warps multiplies */
    POOL_HEAD_LANES = 32 / POOL_HEADS,       /* that take the softmax of a head: four tokens each */
    POOL_SUM_BYTES = MGV__LATENCY_SUM_BYTES / (MGV__LATENCY_CLUSTER - 1) /* room for what one CTA sends */
};
static_assert(POOL_HEADS == MGV__MATH_GROUPS && POOL_VALUES == 16, "a math group has a head's values: 16 are the rows of a product");
static_assert(POOL_SHARE == 4 * 16 && POOL_SHARE == 4 * POOL_HEAD_LANES, "four warps have 16 tokens each for the scores");
static_assert(POOL_HEADS * POOL_WIDTH * 2 <= (int)POOL_SUM_BYTES && POOL_WIDTH / 8 <= 128, "what is sent: 16 bytes a thread");
static_assert(POOL_SHARE * 4 == 32 * LATENCY_MATH_WARPS, "four threads find the norm of a token");

struct LatencyPoolMemory {
    uint16_t vectors[POOL_HEADS][POOL_WIDTH]; /* the scoring vectors; then the image's sums */
    uint16_t sums[POOL_HEADS][POOL_WIDTH];    /* of this CTA's tokens */
    uint16_t weights[LATENCY_MATH_WARPS][POOL_HEADS][POOL_SHARE]; /* the same in each warp: none waits for another */
    float scores[MGV__MATH_GROUPS][POOL_HEADS][POOL_SHARE]; /* of the blocks of columns that one math group has multiplied */
    float values[LATENCY_MATH_WARPS][POOL_VALUES];
    LatencyNorm norms[POOL_SHARE];
    float scales[POOL_HEADS][2];              /* largest score, sum of exponentials */
};
static_assert(sizeof(LatencyPoolMemory) <= MGV__LATENCY_SWAP_BYTES, "it lies where products and attention trade");

/* Between the wait for the tokens and the signal nothing branches but on what is the warp's, and what a product takes is loaded by all
   lanes, also where nobody uses it: behind a branch the compiler has each load wait for the product before it. */
struct LatencyPool {
    LatencyMath &math;
    const mgv__kernel_op &op; /* lies in shared memory */
    LatencyPoolMemory *memory;
    uint32_t thread, warp;    /* of the math warps */
    uint32_t lane, quad;      /* of the warp; lane / 4 */
    uint32_t group, unit;     /* of the tile */
    uint32_t image, head;     /* over all groups; the first of the two */
    uint32_t first, tokens;   /* this CTA's */
    uint32_t rows;            /* of its boxes */
    uint32_t inner, stages;   /* columns of a row; stages of the ring that have them, */
    LatencyRowStage stage;    /* from this one on */
    uint32_t rehearsal;       /* nothing is waited for, loaded, sent or stored: the code alone is run, so that it is near */
};

/* Of what the value products take, a lane's pieces of two rows of weights. */
typedef uint32_t LatencyPoolWeights[POOL_VALUE_STEPS][2][4];

DEVICE uint32_t latency_pool_head_exists(const LatencyPool &self, uint32_t head) {
    return !self.rehearsal && self.head + head < self.op.heads;
}
DEVICE void latency_pool_store(void *to, const uint32_t (&words)[4]) {
    shared_store_v4f32(shared_address(to), __uint_as_float(words[0]), __uint_as_float(words[1]), __uint_as_float(words[2]),
                       __uint_as_float(words[3]));
}
DEVICE void latency_pool_load(uint32_t address, uint32_t (&words)[4]) {
    float x[4];
    shared_load_v4f32(address, x[0], x[1], x[2], x[3]);
#pragma unroll
    for (int i = 0; i < 4; i++) words[i] = __float_as_uint(x[i]);
}

/* --- what is there before the tokens ------------------------------------------------------------------------------- */

DEVICE void latency_pool_fetch_vectors(const LatencyPool &self) {
    const uint32_t head = self.thread / 128, piece = self.thread % 128, row_bytes = self.inner * 2;
    uint32_t words[4] = {0, 0, 0, 0}; /* also behind the last column */
    if (latency_pool_head_exists(self, head) && piece * 8 < self.inner)
        ld_global_nc_v4u32(self.math.arguments.weights + (size_t)self.op.of.pool_few.weights * 16 + (size_t)(self.head + head) * row_bytes +
                               piece * 16, words[0], words[1], words[2], words[3]);
    latency_pool_store(&self.memory->vectors[head][piece * 8], words);
}
DEVICE void latency_pool_fetch_weights(const LatencyPool &self, LatencyPoolWeights &w) {
    const uint32_t head = self.warp / 4, row_bytes = self.inner * 2;
    const uint32_t row = (self.head + head) * 64 + self.math.cta * POOL_VALUES + self.quad;
    const uint8_t *const from = opaque(self.math.arguments.weights + (size_t)self.op.of.pool_few.values * 16 + (size_t)row * row_bytes +
                                       self.warp % 4 * 64 + self.lane % 4 * 16);
    const uint32_t steps = latency_pool_head_exists(self, head) ? self.inner / 32 : 0;
#pragma unroll
    for (uint32_t i = 0; i < POOL_VALUE_STEPS; i++)
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
#pragma unroll
            for (int e = 0; e < 4; e++) w[i][half][e] = 0;
            if (self.warp % 4 + 4 * i < steps)
                ld_global_nc_v4u32(from + i * 256 + half * 8 * row_bytes, w[i][half][0], w[i][half][1], w[i][half][2], w[i][half][3]);
        }
}

/* --- scores ------------------------------------------------------------------------------------------------------------ */

/* Mean and reciprocal standard deviation of a token, from the statistics of its parts, which four threads share out. */
DEVICE void latency_pool_norms(const LatencyPool &self) {
    const uint32_t token = self.thread / 4, parts = self.inner / 64, exists = token < self.tokens && !self.rehearsal;
    const float *from = self.math.arguments.stats + self.op.stats_in +
                        stats_place(self.op, self.inner, self.group, self.unit * self.op.tokens + self.first + token, self.lane % 4);
    float mean[4], squares[4], sum = 0, deviations = 0;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        mean[i] = squares[i] = 0;
        if (exists && self.lane % 4 + 4 * i < parts) ld_relaxed_gpu_v2f32(from + 4 * i * STATS_PART, mean[i], squares[i]);
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) sum += mean[i];
    sum = quad_sum(sum) * rcp_approx((float)parts);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        if (self.lane % 4 + 4 * i < parts) deviations += squares[i] + 64 * (mean[i] - sum) * (mean[i] - sum);
    deviations = quad_sum(deviations);
    if (self.lane % 4 == 0)
        shared_store_v2f32(shared_address(&self.memory->norms[token]), sum,
                           rsqrt_approx(deviations * rcp_approx((float)self.inner) + self.op.epsilon));
}

/* Where, from the start of a stage, lies the row that a lane names for 16 tokens, from `first` on, and 16 columns, from unit `unit` of 8
   on, of that block of the stage which is the warp's: each math group takes one. Rows behind the last are the last once more. In a
   rehearsal, which may not look at the ring, all rows are a piece of a scoring vector. */
DEVICE uint32_t latency_pool_row(const LatencyPool &self, uint32_t first, uint32_t unit) {
    const uint32_t row = first + self.lane % 16 < self.rows ? first + self.lane % 16 : self.rows - 1;
    return self.rehearsal ? 0 : chunk_unit(self.warp / 4 * self.rows * 128, row, unit + self.lane / 16);
}
DEVICE uint32_t latency_pool_stage(const LatencyPool &self, const LatencyRowStage &stage) {
    return self.rehearsal ? shared_address(self.memory->vectors) : latency_stage_address(self.math, stage);
}

/* Of the 16 tokens of a warp. */
DEVICE void latency_pool_scores(const LatencyPool &self) {
    const uint32_t group = self.warp / 4, tokens = self.warp % 4 * 16;
    uint32_t vectors = shared_address(self.memory->vectors[self.quad % POOL_HEADS]) + group * 128 + self.lane % 4 * 4, at[4];
    float s[4][4] = {};
    LatencyRowStage stage = self.stage;
#pragma unroll
    for (uint32_t k = 0; k < 4; k++) at[k] = latency_pool_row(self, tokens, 2 * k);
#pragma unroll 1
    for (uint32_t i = 0; i < self.stages; i++, stage.advance(), vectors += 256) {
        const uint32_t rows = latency_pool_stage(self, stage);
        uint32_t x[4][4], u[4][2];
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) {
            u[k][0] = shared_load_u32(vectors + k * 32);
            u[k][1] = shared_load_u32(vectors + k * 32 + 16);
        }
        if (!self.rehearsal) latency_wait_stage(self.math, stage);
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) ldmatrix_x4(rows + at[k], x[k][0], x[k][1], x[k][2], x[k][3]);
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) mma_m16n8k16_bf16(s[k], x[k][0], x[k][1], x[k][2], x[k][3], u[k][0], u[k][1]);
    }
    if (self.lane % 4) return;
#pragma unroll
    for (int i = 0; i < 4; i++)
        shared_store_u32(shared_address(&self.memory->scores[group][i % 2][tokens + self.quad + i / 2 * 8]),
                         __float_as_uint((s[0][i] + s[1][i]) + (s[2][i] + s[3][i])));
}

/* --- softmax ----------------------------------------------------------------------------------------------------------- */

/* Scores -> weights of the tokens, four a lane, in every warp. Returns the weighted sum of the tokens' means, for the head of the lane's
   quad. */
DEVICE float latency_pool_softmax(const LatencyPool &self, float column_sum) {
    const uint32_t head = self.lane / POOL_HEAD_LANES, token = self.lane % POOL_HEAD_LANES * 4;
    float s[4], t[4], mean[4], rstd[4], most = -1e30f, sum = 0, offset = 0;
    uint32_t pair[2];
    shared_load_v4f32(shared_address(&self.memory->scores[0][head][token]), s[0], s[1], s[2], s[3]);
    shared_load_v4f32(shared_address(&self.memory->scores[1][head][token]), t[0], t[1], t[2], t[3]);
    shared_load_v4f32(shared_address(&self.memory->norms[token]), mean[0], rstd[0], mean[1], rstd[1]);
    shared_load_v4f32(shared_address(&self.memory->norms[token + 2]), mean[2], rstd[2], mean[3], rstd[3]);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        s[i] = token + i < self.tokens ? rstd[i] * (s[i] + t[i] - mean[i] * column_sum) : -INFINITY;
        most = fmaxf(most, s[i]);
    }
#pragma unroll
    for (uint32_t lanes = POOL_HEAD_LANES / 2; lanes; lanes /= 2) most = fmaxf(most, shfl_bfly_f32(most, lanes));
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const float p = ex2_approx(s[i] - most), q = ex2_approx(s[i + 1] - most);
        pair[i / 2] = cvt_rn_bf16x2(p * rstd[i], q * rstd[i + 1]);
        sum += p + q;
        offset += bf16_low(pair[i / 2]) * mean[i] + bf16_high(pair[i / 2]) * mean[i + 1];
    }
    shared_store_v2f32(shared_address(&self.memory->weights[self.warp][head][token]), __uint_as_float(pair[0]), __uint_as_float(pair[1]));
#pragma unroll
    for (uint32_t lanes = POOL_HEAD_LANES / 2; lanes; lanes /= 2) {
        const float other = shfl_bfly_f32(sum, lanes);
        offset += shfl_bfly_f32(offset, lanes);
        sum += other;
    }
    if (self.warp == 0 && self.lane % POOL_HEAD_LANES == 0) shared_store_v2f32(shared_address(self.memory->scales[head]), most, sum);
    warp_sync();
    return __uint_as_float(shfl_idx_u32(__float_as_uint(offset), self.quad % POOL_HEADS * POOL_HEAD_LANES));
}

/* --- sums -------------------------------------------------------------------------------------------------------------- */

/* Weighted sums of the CTA's tokens: of a warp 16 columns of each of its blocks. Two blocks at a time, so that one's rows are on their way
   beside the other's products; where their number is odd the last comes twice. */
DEVICE void latency_pool_sums(const LatencyPool &self, float offset) {
    constexpr int TOKENS = POOL_SHARE / 16, ABREAST = 2;
    const uint32_t weights = shared_address(self.memory->weights[self.warp][self.quad % POOL_HEADS]) + self.lane % 4 * 4;
    const uint32_t to = shared_address(self.memory->sums[self.quad % POOL_HEADS]) + self.warp * 32 + self.lane % 4 * 4;
    uint32_t w[TOKENS][2], at[TOKENS];
#pragma unroll
    for (int i = 0; i < TOKENS; i++) {
        w[i][0] = shared_load_u32(weights + i * 32);
        w[i][1] = shared_load_u32(weights + i * 32 + 16);
        at[i] = latency_pool_row(self, i * 16, self.warp % 4 * 2);
    }
#pragma unroll 1
    for (uint32_t first = 0; first < self.stages; first += ABREAST) {
        uint32_t x[ABREAST][TOKENS][4], number[ABREAST];
        float z[ABREAST][2][4] = {};
#pragma unroll
        for (int b = 0; b < ABREAST; b++) {
            number[b] = first + b < self.stages ? first + b : self.stages - 1;
            const uint32_t rows = latency_pool_stage(self, latency_stage_after(self.stage, number[b]));
#pragma unroll
            for (int i = 0; i < TOKENS; i++) ldmatrix_x4_transposed(rows + at[i], x[b][i][0], x[b][i][1], x[b][i][2], x[b][i][3]);
        }
#pragma unroll
        for (int i = 0; i < TOKENS; i++)
#pragma unroll
            for (int b = 0; b < ABREAST; b++) {
                mma_m16n8k16_bf16(z[b][0], w[i][0], 0, w[i][1], 0, x[b][i][0], x[b][i][1]);
                mma_m16n8k16_bf16(z[b][1], w[i][0], 0, w[i][1], 0, x[b][i][2], x[b][i][3]);
            }
        if (self.quad < POOL_HEADS)
#pragma unroll
            for (int b = 0; b < ABREAST; b++)
#pragma unroll
                for (int half = 0; half < 2; half++)
                    shared_store_u32(to + number[b] * 256 + half * 16, cvt_rn_f16x2(z[b][half][0] - offset, z[b][half][1] - offset));
    }
}

/* Where in a CTA lies what `sender` sends it: of the CTAs without the receiver, in their order. */
DEVICE uint32_t latency_pool_place(uint32_t sender, uint32_t receiver) { return sender - (sender > receiver); }

/* Of each of the other CTAs, where this thread's 16 bytes go, and what they were taken at; its barrier. */
struct LatencyPoolTarget {
    uint32_t sums, scales, full;
};
DEVICE void latency_pool_targets(const LatencyPool &self, LatencyPoolTarget (&to)[MGV__LATENCY_CLUSTER - 1]) {
    const LatencyMemory *const shared = self.math.shared;
    const uint32_t thread = self.thread / 128 * POOL_WIDTH * 2 + self.thread % 128 * 16;
#pragma unroll
    for (uint32_t i = 0; i < MGV__LATENCY_CLUSTER - 1; i++) {
        const uint32_t cta = (self.math.cta + 1 + i) % MGV__LATENCY_CLUSTER, place = latency_pool_place(self.math.cta, cta);
        to[i].sums = mapa_shared_cluster(shared_address(shared->received) + place * POOL_SUM_BYTES + thread, cta);
        to[i].scales = mapa_shared_cluster(shared_address(shared->received_scales[place]), cta);
        to[i].full = mapa_shared_cluster(shared_address(&shared->received_full), cta);
    }
}
DEVICE void latency_pool_send(const LatencyPool &self, const LatencyPoolTarget (&to)[MGV__LATENCY_CLUSTER - 1]) {
    const uint32_t sends = !gives_up(self.math.shared);
    uint32_t words[4], scales[4];
    const uint32_t piece = self.thread % 128, exists = piece * 8 < self.inner;
    latency_pool_load(shared_address(self.memory->sums) + self.thread / 128 * POOL_WIDTH * 2 + (exists ? piece * 16 : 0), words);
    latency_pool_load(shared_address(self.memory->scales), scales);
    if (sends && exists)
#pragma unroll
        for (int i = 0; i < MGV__LATENCY_CLUSTER - 1; i++)
            st_async_cluster_v4_u32(to[i].sums, words[0], words[1], words[2], words[3], to[i].full);
    if (sends && self.thread == 0)
#pragma unroll
        for (int i = 0; i < MGV__LATENCY_CLUSTER - 1; i++)
            st_async_cluster_v4_u32(to[i].scales, scales[0], scales[1], scales[2], scales[3], to[i].full);
}

/* The sums of all CTAs, in their order, as weighted means of the normed tokens: eight columns of one head a thread, for the values. */
DEVICE void latency_pool_join(const LatencyPool &self, const float (&gamma)[8], const float (&beta)[8]) {
    const uint32_t head = self.thread / 128, piece = self.thread % 128, cta = self.math.cta;
    const LatencyMemory *const shared = self.math.shared;
    float most[MGV__LATENCY_CLUSTER], sum[MGV__LATENCY_CLUSTER], largest = -1e30f, total = 0, z[8] = {};
    uint32_t words[MGV__LATENCY_CLUSTER][4];
#pragma unroll
    for (uint32_t i = 0; i < MGV__LATENCY_CLUSTER; i++) {
        const uint32_t own = i == cta || self.rehearsal, place = latency_pool_place(i, cta);
        const uint32_t sums = own ? shared_address(self.memory->sums) : shared_address(shared->received) + place * POOL_SUM_BYTES,
                       scales = own ? shared_address(self.memory->scales) : shared_address(shared->received_scales) + place * 16;
        shared_load_v2f32(scales + head * 8, most[i], sum[i]);
        latency_pool_load(sums + head * POOL_WIDTH * 2 + (piece * 8 < self.inner ? piece * 16 : 0), words[i]);
    }
#pragma unroll
    for (uint32_t i = 0; i < MGV__LATENCY_CLUSTER; i++) largest = fmaxf(largest, most[i]);
#pragma unroll
    for (uint32_t i = 0; i < MGV__LATENCY_CLUSTER; i++) {
        const float weight = ex2_approx(most[i] - largest);
        total += weight * sum[i];
#pragma unroll
        for (int e = 0; e < 8; e++) z[e] += weight * (e % 2 ? f16_high(words[i][e / 2]) : f16_low(words[i][e / 2]));
    }
    const float rcp = rcp_approx(total);
#pragma unroll
    for (int e = 0; e < 8; e += 2)
        words[0][e / 2] = cvt_rn_f16x2(z[e] * rcp * gamma[e] + beta[e], z[e + 1] * rcp * gamma[e + 1] + beta[e + 1]);
    latency_pool_store(&self.memory->vectors[head][piece * 8], words[0]);
}

/* --- values ------------------------------------------------------------------------------------------------------------ */

/* The CTA's values of one head, of which each of four warps multiplies a quarter of the columns. Behind the last column weights are
   zero. */
DEVICE void latency_pool_values(const LatencyPool &self, const LatencyPoolWeights &w) {
    const uint32_t from = shared_address(self.memory->vectors[self.warp / 4]) + self.warp % 4 * 64 + self.lane % 4 * 16;
    uint32_t y[POOL_VALUE_STEPS][4];
    float acc[4][4] = {};
#pragma unroll
    for (uint32_t i = 0; i < POOL_VALUE_STEPS; i++) latency_pool_load(from + i * 256, y[i]);
#pragma unroll
    for (uint32_t i = 0; i < POOL_VALUE_STEPS; i++) {
        mma_m16n8k16_f16(acc[i % 2 * 2], w[i][0][0], w[i][1][0], w[i][0][1], w[i][1][1], y[i][0], y[i][1]);
        mma_m16n8k16_f16(acc[i % 2 * 2 + 1], w[i][0][2], w[i][1][2], w[i][0][3], w[i][1][3], y[i][2], y[i][3]);
    }
    if (self.lane % 4) return;
#pragma unroll
    for (int i = 0; i < 4; i += 2)
        shared_store_u32(shared_address(&self.memory->values[self.warp][self.quad + i * 4]),
                         __float_as_uint((acc[0][i] + acc[1][i]) + (acc[2][i] + acc[3][i])));
}
/* Two values a thread, by the first of them: its head, and which of the CTA's values of that head. */
enum { POOL_PAIRS = POOL_VALUES / 2 };
DEVICE uint32_t latency_pool_column(const LatencyPool &self) {
    return (self.head + self.thread / POOL_PAIRS) * 64 + self.math.cta * POOL_VALUES + self.thread % POOL_PAIRS * 2;
}
/* By the threads that have a pair of values. */
DEVICE void latency_pool_finish(const LatencyPool &self, const float (&bias)[2], uint16_t *to) {
    const uint32_t head = self.thread / POOL_PAIRS, pair = self.thread % POOL_PAIRS;
    float x[4], y[4];
#pragma unroll
    for (uint32_t part = 0; part < 4; part++)
        shared_load_v2f32(shared_address(&self.memory->values[head * 4 + part][pair * 2]), x[part], y[part]);
    if (latency_pool_head_exists(self, head))
        st_global_u32(to, cvt_rn_f16x2((x[0] + x[1]) + (x[2] + x[3]) + bias[0], (y[0] + y[1]) + (y[2] + y[3]) + bias[1]));
}

/* --- the tile ---------------------------------------------------------------------------------------------------------- */

DEVICE void latency_pool_run(const LatencyPool &self) {
    LatencyMath &math = self.math;
    LatencyPoolWeights w;
    LatencyPoolTarget targets[MGV__LATENCY_CLUSTER - 1];
    float gamma[8] = {}, beta[8] = {}, column_sum = 0, bias[2] = {0, 0};
    const uint32_t column = self.thread % 128 * 8, pairs = self.thread < POOL_HEADS * POOL_PAIRS;
    const float *const gammas = math.arguments.vectors + self.op.of.pool_few.gamma + column;
    uint16_t *const values = (uint16_t *)math.arguments.buffers[self.op.of.pool_few.target] + (size_t)self.image * self.inner;
    latency_pool_fetch_vectors(self);
    latency_pool_fetch_weights(self, w);
    latency_pool_targets(self, targets);
    if (latency_pool_head_exists(self, self.lane / POOL_HEAD_LANES))
        column_sum = ld_global_nc_f32(math.arguments.vectors + self.op.of.pool_few.column_sums + self.head + self.lane / POOL_HEAD_LANES);
    if (pairs && latency_pool_head_exists(self, self.thread / POOL_PAIRS))
        ld_global_nc_v2f32(math.arguments.vectors + self.op.of.pool_few.value_bias + latency_pool_column(self), bias[0], bias[1]);
#pragma unroll
    for (int i = 0; i < 8; i += 2)
        if (column < self.inner && !self.rehearsal) {
            ld_global_nc_v2f32(gammas + i, gamma[i], gamma[i + 1]);
            ld_global_nc_v2f32(gammas + self.inner + i, beta[i], beta[i + 1]);
        }
    if (!self.rehearsal && self.thread == 0)
        latency_expect_exchange(math, (MGV__LATENCY_CLUSTER - 1) * (POOL_HEADS * self.inner * 2 + 16));
    latency_sync();
    if (!self.rehearsal) latency_wait_ready(math);
    latency_pool_norms(self);
    latency_pool_scores(self);
    latency_sync();
    latency_pool_sums(self, latency_pool_softmax(self, column_sum));
    if (!self.rehearsal) latency_begin_exchange(math);
    fence_proxy_async_shared_cta(); /* the copy engine writes where tokens have been read */
    latency_sync();
    if (!self.rehearsal) {
        latency_pool_send(self, targets);
        latency_wait_exchange(math);
    }
    latency_pool_join(self, gamma, beta);
    latency_sync();
    latency_pool_values(self, w);
    latency_sync();
    if (pairs) latency_pool_finish(self, bias, values + latency_pool_column(self));
}

/* The stages of the tokens, by the second math group for both, as all have met since they were read last. */
DEVICE void latency_pool_leave(const LatencyPool &self) {
    LatencyRowStage left = self.stage;
    if (self.math.group == 0) return;
#pragma unroll 1
    for (uint32_t i = 0; i < self.stages; i++, left.advance()) latency_leave_stage(self.math, left);
}

ROUTINE void latency_pool_tile(LatencyMath &math, const LatencyTile &described, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t share = latency_pool_share(op), first = math.cta * share, kind = 1u << op.kind;
    const uint32_t left = op.tokens > first ? op.tokens - first : 0, warp = warp_uniform(math.group * 4 + math.warp);
    LatencyPool self = {math, op, (LatencyPoolMemory *)math.shared->swap, warp * 32 + math.lane, warp, math.lane, math.lane / 4,
                        tile.group, tile.unit, image_number(op, tile.group, tile.unit), tile.column * POOL_HEADS,
                        first, left < share ? left : share,
                        warp_uniform(latency_pool_rows(op)), warp_uniform(op.inner), described.blocks, math.stage,
                        warp_uniform(!(math.seen & kind))};
    math.seen |= kind;
    for (uint32_t again = 1; again;) {
        again = self.rehearsal;
        latency_pool_run(self);
        self.rehearsal = 0;
        latency_sync();
    }
    if (math.counter) red_release_gpu_add(math.counter, 1); /* who waits reads by ordinary loads: no proxy fence */
    latency_end_exchange(math);
    latency_pool_leave(self);
}

#endif /* MGV_LATENCY_POOL_CUH */
