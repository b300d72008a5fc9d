/* megavit: the latency regime's attention and pooling head. Formulas and layouts are those of attention.cuh and pool.cuh. */
#ifndef MGV_LATENCY_HEADS_CUH
#define MGV_LATENCY_HEADS_CUH

#include "latency_gemm.cuh"
#include "attention.cuh"

/* The accumulators of 64 columns, or of what is left of them, within those of a row of KEYS columns. */
template <int COUNT> DEVICE float (&latency_part(float *s))[COUNT] { return *(float (*)[COUNT])s; }

/* Address of box `box` of a tile whose first stage is `first`, two boxes a stage. */
DEVICE uint32_t latency_box(const LatencyMath &self, LatencyStage first, uint32_t box) {
    const uint32_t index = first.index + box / 2;
    return shared_address(self.shared->stage[index >= MGV__LATENCY_STAGES ? index - MGV__LATENCY_STAGES : index]) + box % 2 * LATENCY_BOX_BYTES;
}
DEVICE void latency_wait_stages(LatencyMath &self, LatencyStage &stage, int count) {
#pragma unroll 1
    for (int i = 0; i < count; i++, stage.advance()) latency_wait_stage(self, stage);
}

/* One block of 64 queries, by the first math group; the other one lets the stages pass. */
template <int KEYS> DEVICE void latency_attention_tile(LatencyMath &self, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    const LatencyStage first = self.stage;
    const int scored = MGV__LATENCY_CLUSTER / 2 + 1; /* stages with queries and keys */
    latency_wait_stages(self, self.stage, scored);
    uint32_t query = self.cta * 64 + self.warp * 16;
    float o[32], rcp_sum[2] = {0, 0};
    if (self.group == 0) {
        const uint64_t queries = matrix_descriptor(latency_box(self, first, 0));
        float s[KEYS / 2];
        wgmma_registers_zero(s);
        wgmma_registers_fence(s);
        wgmma_fence();
#pragma unroll
        for (int block = 0; block < (KEYS + 63) / 64; block++) {
            const uint64_t keys = matrix_descriptor(latency_box(self, first, 1 + block));
#pragma unroll
            for (int k = 0; k < 4; k++) {
                if (KEYS - block * 64 >= 64) wgmma_m64k16_bf16_ss(latency_part<32>(s + block * 32), queries + 2 * k, keys + 2 * k, 1);
                else wgmma_m64k16_bf16_ss(latency_part<KEYS % 64 / 2 + (KEYS % 64 == 0) * 32>(s + block * 32), queries + 2 * k, keys + 2 * k, 1);
            }
        }
        wgmma_commit_group();
        wgmma_wait_group<0>();
        wgmma_registers_fence(s);
        uint32_t p[KEYS / 4];
        if (query < op.tokens) softmax_rows<KEYS>(s, op.tokens, self.lane, op.scale, rcp_sum); /* else no row of this warp exists */
        pack_probabilities<KEYS>(s, p);
        latency_wait_stages(self, self.stage, LATENCY_ATTENTION_STAGES - scored);
        wgmma_registers_zero(o);
        wgmma_registers_fence(o);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < KEYS / 16; k++) /* 16 keys are 2048 bytes of values: 128 descriptor units */
            wgmma_m64k16_bf16_rs_transposed_b(o, p[4 * k], p[4 * k + 1], p[4 * k + 2], p[4 * k + 3],
                                              matrix_descriptor(latency_box(self, first, 1 + MGV__LATENCY_CLUSTER + k / 4)) + 128 * (k % 4), 1);
        wgmma_commit_group();
        wgmma_wait_group<0>();
        wgmma_registers_fence(o);
    } else {
        latency_wait_stages(self, self.stage, LATENCY_ATTENTION_STAGES - scored);
    }
    warp_sync(); /* some lanes leave for the warp: no lane may still be looking */
    LatencyStage left = first;
#pragma unroll 1
    for (int i = 0; i < LATENCY_ATTENTION_STAGES; i++, left.advance()) latency_leave_stage(self, left);
    if (self.group || self.cta * 64 >= op.tokens) return;

    query += self.lane / 4;
    uint16_t *to = (uint16_t *)self.arguments.buffers[op.store_map] +
                   ((size_t)image_number(op, tile.group, tile.unit) * op.tokens + query) * op.columns + tile.column * 64 + latency_pair_column(self.lane);
#pragma unroll
    for (int i = 0; i < 16; i++) {
        if (i % 4 >= 2) continue; /* traded with the two before */
        const float *e = &o[2 * i], rcp = rcp_sum[i % 2];
        latency_store_pair(self.lane, to + (size_t)8 * (i % 2) * op.columns + i / 2 * 8, cvt_rn_bf16x2(e[0] * rcp, e[1] * rcp), cvt_rn_bf16x2(e[4] * rcp, e[5] * rcp),
                           query + 8 * (i % 2) < op.tokens);
    }
    latency_signal(self, tile, LATENCY_SYNC_GROUP, 128, self.warp == 0 && self.lane == 0);
}

/* --- pooling head ------------------------------------------------------------------------------------------------ */

DEVICE uint64_t two_floats(float low, float high) { return (uint64_t)__float_as_uint(high) << 32 | __float_as_uint(low); }

/* Scores of this CTA's 64 tokens, 8 heads a math group, to all CTAs: [token][head], then (mean, rstd) of each token. */
DEVICE void latency_send_scores(LatencyMath &self, const TileSlot &tile, const float (&acc)[4], const uint32_t (&token)[2], const LatencyNorms &norms) {
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
            const float s0 = norms.rstd[r] * (acc[2 * r] - norms.mean[r] * sums[0]), s1 = norms.rstd[r] * (acc[2 * r + 1] - norms.mean[r] * sums[1]);
            st_async_cluster_u64(to + (token[r] * MGV__LATENCY_MAX_HEADS + head) * 4, two_floats(s0, s1), barrier);
            if (self.group == 0 && self.lane % 4 == 0) st_async_cluster_u64(to + LATENCY_SCORE_BYTES + token[r] * 8, two_floats(norms.mean[r], norms.rstd[r]), barrier);
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
            self.shared->pool_weight[head + h][i * 32 + self.lane] = (uint16_t)w;
        }
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
        for (int lanes = 16; lanes; lanes /= 2) {
            sum[h] += shfl_bfly_f32(sum[h], lanes);
            offset[h] += shfl_bfly_f32(offset[h], lanes);
        }
        if (self.lane == 0) self.shared->pool_scale[head + h][0] = 1.0f / sum[h];
        if (self.lane == 0) self.shared->pool_scale[head + h][1] = offset[h];
    }
}

/* One block of 64 columns of the weighted sums, for the heads of one warp; tokens lie in two stages. */
DEVICE void latency_pool_block(LatencyMath &self, const TileSlot &tile, uint32_t block, const LatencyStage &first, const uint32_t (&w)[MGV__MAX_KEYS / 4]) {
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
        wgmma_m64k16_bf16_rs_transposed_b(z, w[4 * k], w[4 * k + 1], w[4 * k + 2], w[4 * k + 3], matrix_descriptor(latency_box(self, first, k / 4)) + 128 * (k % 4), 1);
    wgmma_commit_group();
    wgmma_wait_group<0>();
    wgmma_registers_fence(z);
    if (!writes) return;
    uint16_t *to = (uint16_t *)self.arguments.buffers[op.store_map] + (size_t)image_number(op, tile.group, tile.unit) * op.columns +
                   (size_t)head * op.inner + block * 64 + latency_pair_column(self.lane);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float rcp = self.shared->pool_scale[head + 8 * r][0], offset = self.shared->pool_scale[head + 8 * r][1];
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
    const uint32_t first_row = image_number(op, tile.group, tile.unit) * op.tokens;
    LatencyParts parts;
    LatencyNorms norms;
    float acc[4];
    latency_fetch_parts(self, op, first_row + self.cta * 64 + self.warp * 16, first_row + op.tokens - 1, parts);
    latency_products(self, op.k_blocks, LATENCY_BOX_BYTES + self.group * 8 * 128, acc, [&]() { latency_merge_parts(self, op, parts, norms); });
    latency_send_scores(self, tile, acc, token, norms);
    if (self.group == 0 && self.warp == 0 && self.lane == 0) latency_expect_exchange(self, LATENCY_POOL_BYTES);
    latency_wait_exchange(self);
    latency_pool_weights(self, op);
    bar_sync(LATENCY_SYNC_MATH, 32 * LATENCY_MATH_WARPS);

    uint32_t w[MGV__MAX_KEYS / 4]; /* heads are the rows: the plan has up to MGV__LATENCY_MAX_HEADS, those of one warp */
#pragma unroll
    for (int i = 0; i < MGV__MAX_KEYS / 4; i++)
        w[i] = self.warp ? 0 : *(const uint32_t *)&self.shared->pool_weight[self.lane / 4 + i % 2 * 8][i / 4 * 16 + i / 2 % 2 * 8 + 2 * (self.lane % 4)];
#pragma unroll 1
    for (uint32_t i = 0; i < latency_pool_blocks(op); i++) {
        const LatencyStage stage = self.stage;
        latency_wait_stages(self, self.stage, 2);
        if (i % MGV__MATH_GROUPS == self.group) latency_pool_block(self, tile, i * MGV__LATENCY_CLUSTER + self.cta, stage, w);
        warp_sync();
        LatencyStage left = stage;
        latency_leave_stage(self, left);
        left.advance();
        latency_leave_stage(self, left);
    }
    latency_signal(self, tile, LATENCY_SYNC_MATH, 32 * LATENCY_MATH_WARPS, self.group == 0 && self.warp == 0 && self.lane == 0);
    if (self.warp == 0) latency_end_exchange(self);
    self.exchange.advance();
}

#endif /* MGV_LATENCY_HEADS_CUH */
