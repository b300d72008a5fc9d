/* megavit: SigLIP's pooling head up to the values. The probe is constant, so each head's scores are a dot product of the token with one
   vector u_h, and the value projection commutes with the weighted sum: z_h = sum over tokens n of softmax(s_h)_n y_n,
   where y is the normalised token.

   With y_n = rstd_n (x_n - mean_n) gamma + beta the norm is folded too: the scores take rstd_n (x_n . gamma u_h - mean_n sum(gamma u_h)),
   constants over n leave the softmax unchanged, and z_h = gamma (sum w_n x_n - sum w_n mean_n) / sum p_n + beta with w_n = p_n rstd_n.

   Heads are the rows (64, of which `heads` count), tokens the columns.
   Both warpgroups compute all scores and share out the columns of z. */
#ifndef MGV_POOL_CUH
#define MGV_POOL_CUH

#include "../throughput/attention.cuh"

/* 64 columns of z from the sums over tokens, and out. */
DEVICE void pool_write(Math &self, const mgv__kernel_op &op, uint32_t block, float (&z)[32], const float (&offset)[2],
                       const float (&rcp_sum)[2]) {
    const uint32_t fragments = fragment_address(self, math_take_chunk(self));
    const float *gamma = self.arguments.vectors + op.of.pool.gamma + block * 64 + 2 * (self.lane % 4), *beta = gamma + op.inner;
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
        float *e = &z[4 * j];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float g0, g1, b0, b1;
            ld_global_nc_v2f32(gamma + 8 * (j + i), g0, g1);
            ld_global_nc_v2f32(beta + 8 * (j + i), b0, b1);
            e[4 * i] = (e[4 * i] - offset[0]) * rcp_sum[0] * g0 + b0;
            e[4 * i + 1] = (e[4 * i + 1] - offset[0]) * rcp_sum[0] * g1 + b1;
            e[4 * i + 2] = (e[4 * i + 2] - offset[1]) * rcp_sum[1] * g0 + b0;
            e[4 * i + 3] = (e[4 * i + 3] - offset[1]) * rcp_sum[1] * g1 + b1;
        }
        stmatrix_x4(fragments ^ j * 16, cvt_rn_f16x2(e[0], e[1]), cvt_rn_f16x2(e[2], e[3]),
                    cvt_rn_f16x2(e[4], e[5]), cvt_rn_f16x2(e[6], e[7]));
    }
    math_give_chunk(self);
}

/* Scores of all heads and tokens, without the norm: the tokens' columns in blocks of 64, from the ring. */
template <int KEYS> DEVICE void pool_scores(Math &self, uint32_t blocks, float (&s)[KEYS / 2]) {
    wgmma_registers_zero(s);
    for (uint32_t block = 0; block < blocks; block++) {
        math_wait_stage(self, self.stage);
        const uint32_t base = shared_address(self.shared->stage[self.stage.index]);
        const uint64_t tokens = matrix_descriptor(base), heads = matrix_descriptor(base + KEYS * 128);
        wgmma_registers_fence(s);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; k++) wgmma_m64k16_bf16_ss(s, heads + 2 * k, tokens + 2 * k, 1);
        wgmma_commit_group();
        wgmma_wait_group<0>();
        wgmma_registers_fence(s);
        math_leave_stage(self, self.stage.index);
        self.stage.advance();
    }
}

/* (mean, rstd) of every token, by the whole warpgroup. */
template <int KEYS> DEVICE void pool_norms(Math &self, const TileSlot &tile, uint32_t in_group, uint32_t exists, uint32_t table) {
    for (uint32_t token = self.thread; token < KEYS; token += 128) {
        float mean = 0, rstd = 0;
        if (token < tile.op.tokens && exists)
            row_statistics(self.arguments, tile.op, tile.group, in_group * tile.op.tokens + token, mean, rstd);
        shared_store_v2f32(table + token * 8, mean, rstd);
    }
    math_group_sync(self);
}

/* The norm folded into scores: rstd (score - mean sum(gamma u)). */
template <int KEYS> DEVICE void pool_fold_norm(const Math &self, const mgv__kernel_op &op, uint32_t table, float (&s)[KEYS / 2]) {
    const uint32_t row = self.warp * 16 + self.lane / 4, u_sum = op.of.pool.column_sums + row;
    const float sums[2] = {row < op.heads ? ld_global_nc_f32(self.arguments.vectors + u_sum) : 0,
                           row + 8 < op.heads ? ld_global_nc_f32(self.arguments.vectors + u_sum + 8) : 0};
#pragma unroll
    for (int j = 0; j < KEYS / 8; j++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float mean, rstd;
            shared_load_v2f32(table + (8 * j + 2 * (self.lane % 4) + i) * 8, mean, rstd);
            s[4 * j + i] = rstd * (s[4 * j + i] - mean * sums[0]);
            s[4 * j + 2 + i] = rstd * (s[4 * j + 2 + i] - mean * sums[1]);
        }
    }
}

/* Exponentials -> weights as A operands, exp(s) rstd, and their sum over mean, added to a lane's `offset`. table: of the tokens. */
template <class Warp, int COUNT>
DEVICE void pool_weights(const Warp &self, const float (&s)[COUNT], uint32_t table, uint32_t (&w)[COUNT / 2], float (&offset)[2]) {
#pragma unroll
    for (int j = 0; j < COUNT / 4; j++) {
        float mean0, rstd0, mean1, rstd1;
        shared_load_v2f32(table + (8 * j + 2 * (self.lane % 4)) * 8, mean0, rstd0);
        shared_load_v2f32(table + (8 * j + 2 * (self.lane % 4) + 1) * 8, mean1, rstd1);
        w[2 * j] = cvt_rn_bf16x2(s[4 * j] * rstd0, s[4 * j + 1] * rstd1);
        w[2 * j + 1] = cvt_rn_bf16x2(s[4 * j + 2] * rstd0, s[4 * j + 3] * rstd1);
        offset[0] += bf16_low(w[2 * j]) * mean0 + bf16_high(w[2 * j]) * mean1;
        offset[1] += bf16_low(w[2 * j + 1]) * mean0 + bf16_high(w[2 * j + 1]) * mean1;
    }
}

/* Adds the weighted sums over the tokens of a stage to z. */
template <int COUNT> DEVICE void pool_products(const uint32_t (&w)[COUNT], uint64_t tokens, float (&z)[32]) {
    wgmma_registers_fence(z);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < COUNT / 4; k++)
        wgmma_m64k16_bf16_rs_transposed_b(z, w[4 * k], w[4 * k + 1], w[4 * k + 2], w[4 * k + 3], tokens + 128 * k, 1);
    wgmma_commit_group();
    wgmma_wait_group<0>();
    wgmma_registers_fence(z);
}

template <int KEYS> ROUTINE void pool_tile(Math &self, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t in_group = tile.unit * MGV__CLUSTER + self.cta;
    const uint32_t exists = image_number(op, tile.group, in_group) < op.rows_total / op.tokens;
    float s[KEYS / 2], rcp_sum[2], offset[2] = {0, 0};
    uint32_t w[KEYS / 4];
    pool_scores<KEYS>(self, op.of.pool.blocks, s);
    const uint32_t table = math_take_chunk(self); /* this group's until its first result is written there */
    pool_norms<KEYS>(self, tile, in_group, exists, table);
    pool_fold_norm<KEYS>(self, op, table, s);
    softmax_rows<KEYS>(s, op.tokens, self.lane, rcp_sum);
    pool_weights(self, s, table, w, offset);
    offset[0] = quad_sum(offset[0]);
    offset[1] = quad_sum(offset[1]);
    math_group_sync(self);
    const PoolPart part = pool_part(tile);
    for (uint32_t block = part.first; block < part.end; block++) {
        math_wait_stage(self, self.stage);
        if ((block - part.first) % MGV__MATH_GROUPS == self.group) {
            const uint64_t tokens = matrix_descriptor(shared_address(self.shared->stage[self.stage.index]));
            float z[32];
            wgmma_registers_zero(z);
            pool_products(w, tokens, z);
            pool_write(self, op, block, z, offset, rcp_sum);
        }
        warp_sync();
        math_leave_stage(self, self.stage.index);
        self.stage.advance();
    }
}

#endif /* MGV_POOL_CUH */
