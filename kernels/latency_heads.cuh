/* megavit: the latency regime's attention and pooling head. Formulas and layouts are those of attention.cuh and pool.cuh. */
#ifndef MGV_LATENCY_HEADS_CUH
#define MGV_LATENCY_HEADS_CUH

#include "latency_gemm.cuh"
#include "attention.cuh"

DEVICE void latency_wait_stages(LatencyMath &self, LatencyRowStage &stage, int count) {
#pragma unroll 1
    for (int i = 0; i < count; i++, stage.advance()) latency_wait_stage(self, stage);
}

/* --- attention --------------------------------------------------------------------------------------------------- */

/* What both math groups have of this thread's two rows: sum of exponentials, 16 of the weighted values' columns, those that this group ends. */
struct LatencyAttended {
    float sum[2], values[16];
};
/* Each group has seen half of the keys. Weights of either are brought to the larger of their maxima. */
DEVICE void latency_join_halves(LatencyMath &self, float factor, const float (&most)[2], const float (&sum)[2], const float (&o)[32], LatencyAttended &joined) {
    const uint32_t to = shared_address(&self.shared->swap[self.group ^ 1]) + latency_thread_bytes(self), from = shared_address(&self.shared->swap[self.group]) + latency_thread_bytes(self);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float away[4];
#pragma unroll
        for (int e = 0; e < 4; e++) {
            away[e] = self.group ? o[4 * i + e] : o[16 + 4 * i + e];
            joined.values[4 * i + e] = self.group ? o[16 + 4 * i + e] : o[4 * i + e];
        }
        shared_store_v4f32(to + i * LATENCY_GROUP_BYTES, away[0], away[1], away[2], away[3]);
    }
    shared_store_v4f32(to + 4 * LATENCY_GROUP_BYTES, most[0], most[1], sum[0], sum[1]);
    latency_sync();
    float other_most[2], other_sum[2], own_weight[2], other_weight[2];
    shared_load_v4f32(from + 4 * LATENCY_GROUP_BYTES, other_most[0], other_most[1], other_sum[0], other_sum[1]);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float largest = fmaxf(most[r], other_most[r]);
        own_weight[r] = ex2_approx((most[r] - largest) * factor);
        other_weight[r] = ex2_approx((other_most[r] - largest) * factor);
        joined.sum[r] = sum[r] * own_weight[r] + other_sum[r] * other_weight[r];
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float other[4];
        shared_load_v4f32(from + i * LATENCY_GROUP_BYTES, other[0], other[1], other[2], other[3]);
#pragma unroll
        for (int e = 0; e < 4; e++) joined.values[4 * i + e] = joined.values[4 * i + e] * own_weight[e / 2] + other[e] * other_weight[e / 2];
    }
}

/* Stages of both groups: all warps leave a stage once each time. */
DEVICE void latency_leave_attention(LatencyMath &self) {
    LatencyRowStage left = self.stage;
    latency_wait_stages(self, self.stage, LATENCY_ATTENTION_STAGES);
    warp_sync(); /* one lane leaves for the warp: no lane may still be looking */
#pragma unroll 1
    for (int i = 0; i < LATENCY_ATTENTION_STAGES; i++, left.advance()) latency_leave_stage(self, left);
}

/* One block of 64 queries; KEYS: of one math group. */
template <int KEYS> DEVICE void latency_attention_tile(LatencyMath &self, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    const LatencyRowStage first = self.stage, keys = latency_stage_after(first, 1 + self.group), values = latency_stage_after(first, 3 + self.group);
    const uint32_t tokens = op.tokens, pitch = op.columns, first_key = self.group * KEYS, exist = tokens > first_key ? tokens - first_key : 0;
    const float scale = op.scale;
    float s[KEYS / 2], o[32], most[2] = {0, 0}, sum[2] = {0, 0};
    uint32_t p[KEYS / 4], query = self.cta * 64 + self.warp * 16;
    uint16_t *to = (uint16_t *)self.arguments.buffers[op.store_map] + ((size_t)image_number(op, tile.group, tile.unit) * tokens + query + self.lane / 4) * pitch +
                   tile.column * 64 + self.group * 32 + latency_pair_column(self.lane);
    latency_wait_stage(self, first);
    latency_wait_stage(self, keys);
    const uint64_t a = matrix_descriptor(latency_stage_address(self, first)), b = matrix_descriptor(latency_stage_address(self, keys));
    attention_scores<KEYS>(a, b, s);
    if (query < tokens) softmax_part<KEYS>(s, exist, self.lane, scale, most, sum); /* else no row of this warp exists */
    pack_probabilities<KEYS>(s, p);
    latency_wait_stage(self, values);
    attention_values<KEYS>(p, matrix_descriptor(latency_stage_address(self, values)), o);
    if (self.cta * 64 >= tokens) {
        latency_leave_attention(self);
        return;
    }

    LatencyAttended joined;
    latency_join_halves(self, scale * 1.4426950409f, most, sum, o, joined); /* exp(x) = 2^(x log2 e) */
    query += self.lane / 4;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float rcp = 1.0f / joined.sum[r];
#pragma unroll
        for (int pair = 0; pair < 2; pair++) {
            const float *e = &joined.values[8 * pair + 2 * r];
            latency_store_pair(self.lane, to + (size_t)8 * r * pitch + pair * 16, cvt_rn_bf16x2(e[0] * rcp, e[1] * rcp), cvt_rn_bf16x2(e[4] * rcp, e[5] * rcp), query + 8 * r < tokens);
        }
    }
    latency_signal(self);
    latency_leave_attention(self);
}

/* --- pooling head ------------------------------------------------------------------------------------------------ */

DEVICE uint64_t two_floats(float low, float high) { return (uint64_t)__float_as_uint(high) << 32 | __float_as_uint(low); }

/* Scores of this CTA's 64 tokens, 8 heads a math group, to all CTAs: [token][head], then (mean, rstd) of each token. */
DEVICE void latency_send_scores(LatencyMath &self, const TileSlot &tile, const float (&acc)[4], const uint32_t (&token)[2], const LatencyNorm (&norms)[2]) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t head = self.group * 8 + 2 * (self.lane % 4);
    float sums[2] = {0, 0};
    if (head < op.heads) ld_global_nc_v2f32(self.arguments.vectors + op.column_sums + head, sums[0], sums[1]);
    latency_begin_exchange(self);
    if (self.dog.aborted) return;
#pragma unroll
    for (uint32_t cta = 0; cta < MGV__LATENCY_CLUSTER; cta++) {
        const uint32_t to = mapa_shared_cluster(shared_address(self.shared->received), cta), barrier = mapa_shared_cluster(shared_address(&self.shared->received_full), cta);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float s0 = norms[r].rstd * (acc[2 * r] - norms[r].mean * sums[0]), s1 = norms[r].rstd * (acc[2 * r + 1] - norms[r].mean * sums[1]);
            st_async_cluster_u64(to + (token[r] * MGV__LATENCY_MAX_HEADS + head) * 4, two_floats(s0, s1), barrier);
            if (self.group == 0 && self.lane % 4 == 0) st_async_cluster_u64(to + LATENCY_SCORE_BYTES + token[r] * 8, two_floats(norms[r].mean, norms[r].rstd), barrier);
        }
    }
}

/* Of two heads a warp: scores of all tokens -> weights as pool.cuh has them, rounded, and for each head (1 / sum, offset). */
DEVICE void latency_pool_weights(const LatencyMath &self, const mgv__kernel_op &op) {
    const uint32_t head = 2 * (self.group * 4 + self.warp), scores = shared_address(self.shared->received), table = scores + LATENCY_SCORE_BYTES;
    const float factor = op.scale * 1.4426950409f; /* exp(x) = 2^(x log2 e) */
    float s[2][MGV__MAX_KEYS / 32], most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0}, offset[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < MGV__MAX_KEYS / 32; i++) {
        const uint32_t token = i * 32 + self.lane;
        shared_load_v2f32(scores + (token * MGV__LATENCY_MAX_HEADS + head) * 4, s[0][i], s[1][i]);
        if (token >= op.tokens) s[0][i] = s[1][i] = -INFINITY;
        most[0] = fmaxf(most[0], s[0][i]);
        most[1] = fmaxf(most[1], s[1][i]);
    }
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int lanes = 16; lanes; lanes /= 2) most[h] = fmaxf(most[h], shfl_bfly_f32(most[h], lanes));
#pragma unroll
    for (int i = 0; i < MGV__MAX_KEYS / 32; i++) {
        float mean, rstd;
        shared_load_v2f32(table + (i * 32 + self.lane) * 8, mean, rstd);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float p = ex2_approx((s[h][i] - most[h]) * factor);
            const uint32_t w = cvt_rn_bf16x2(p * rstd, 0);
            sum[h] += p;
            offset[h] += bf16_low(w) * mean;
            self.shared->pool.weight[head + h][i * 32 + self.lane] = (uint16_t)w;
        }
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
        for (int lanes = 16; lanes; lanes /= 2) {
            sum[h] += shfl_bfly_f32(sum[h], lanes);
            offset[h] += shfl_bfly_f32(offset[h], lanes);
        }
        if (self.lane == 0) self.shared->pool.scale[head + h][0] = 1.0f / sum[h];
        if (self.lane == 0) self.shared->pool.scale[head + h][1] = offset[h];
    }
}

/* One block of 64 columns of the weighted sums, for the heads of one warp; 64 tokens lie in a stage. */
DEVICE void latency_pool_block(LatencyMath &self, const TileSlot &tile, uint32_t block, const LatencyRowStage &first, const uint32_t (&w)[MGV__MAX_KEYS / 4]) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t quad = 2 * (self.lane % 4), head = self.lane / 4, writes = self.warp == 0 && block < op.k_blocks;
    float z[32], gamma[16], beta[16];
    if (writes) {
        const float *from = self.arguments.vectors + op.bias + block * 64 + quad;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            ld_global_nc_v2f32(from + 8 * j, gamma[2 * j], gamma[2 * j + 1]);
            ld_global_nc_v2f32(from + op.inner + 8 * j, beta[2 * j], beta[2 * j + 1]);
        }
    }
    wgmma_registers_zero(z);
    wgmma_registers_fence(z);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < MGV__MAX_KEYS / 16; k++)
        wgmma_m64k16_bf16_rs_transposed_b(z, w[4 * k], w[4 * k + 1], w[4 * k + 2], w[4 * k + 3], matrix_descriptor(latency_stage_address(self, latency_stage_after(first, k / 4))) + 128 * (k % 4), 1);
    wgmma_commit_group();
    wgmma_wait_group<0>();
    wgmma_registers_fence(z);
    if (!writes) return;
    uint16_t *to = (uint16_t *)self.arguments.buffers[op.store_map] + (size_t)image_number(op, tile.group, tile.unit) * op.columns +
                   (size_t)head * op.inner + block * 64 + latency_pair_column(self.lane);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float rcp = self.shared->pool.scale[head + 8 * r][0], offset = self.shared->pool.scale[head + 8 * r][1];
        uint32_t p[8];
#pragma unroll
        for (int j = 0; j < 8; j++)
            p[j] = cvt_rn_bf16x2((z[4 * j + 2 * r] - offset) * rcp * gamma[2 * j] + beta[2 * j], (z[4 * j + 2 * r + 1] - offset) * rcp * gamma[2 * j + 1] + beta[2 * j + 1]);
#pragma unroll
        for (int j = 0; j < 8; j += 2) latency_store_pair(self.lane, to + (size_t)8 * r * op.inner + 8 * j, p[j], p[j + 1], head + 8 * r < op.heads);
    }
}

DEVICE void latency_pool_tile(LatencyMath &self, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t first = self.cta * 64 + self.warp * 16 + self.lane / 4, token[2] = {first, first + 8};
    LatencyNorm norms[2];
    float acc[4];
    latency_products<0>(self, op.k_blocks, LATENCY_BOX_BYTES + self.group * 8 * 128, acc);
    latency_wait_norms(self);
#pragma unroll
    for (int r = 0; r < 2; r++) shared_load_v2f32(shared_address(&self.shared->norms[token[r] % 64]), norms[r].mean, norms[r].rstd);
    warp_sync();
    latency_leave_norms(self);
    latency_send_scores(self, tile, acc, token, norms);
    if (self.group == 0 && self.warp == 0 && self.lane == 0) latency_expect_exchange(self, LATENCY_POOL_BYTES);
    latency_wait_exchange(self);
    latency_pool_weights(self, op);
    latency_end_exchange(self);
    latency_sync();

    uint32_t w[MGV__MAX_KEYS / 4]; /* heads are the rows: the plan has up to MGV__LATENCY_MAX_HEADS, those of one warp */
#pragma unroll
    for (int i = 0; i < MGV__MAX_KEYS / 4; i++)
        w[i] = self.warp ? 0 : *(const uint32_t *)&self.shared->pool.weight[self.lane / 4 + i % 2 * 8][i / 4 * 16 + i / 2 % 2 * 8 + 2 * (self.lane % 4)];
    LatencyRowStage left = self.stage;
    latency_wait_stages(self, self.stage, LATENCY_POOL_BOXES);
    if (self.group == 0) latency_pool_block(self, tile, latency_pool_block_number(tile, self.cta), left, w);
    warp_sync();
#pragma unroll 1
    for (int box = 0; box < LATENCY_POOL_BOXES; box++, left.advance()) latency_leave_stage(self, left);
    latency_signal(self);
}

#endif /* MGV_LATENCY_HEADS_CUH */
