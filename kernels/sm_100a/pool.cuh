/* megavit: SigLIP's pooling head up to the values on Blackwell: sm_90a/siglip_head/pool.cuh and pool_sums.cuh, where the formulas are, with
   products through tensor memory. */
#ifndef MGV_BLACKWELL_POOL_CUH
#define MGV_BLACKWELL_POOL_CUH

#include "attention.cuh"
#include "../sm_90a/siglip_head/pool_sums.cuh"

/* Powers of two are taken below a whole number where an image's tokens are not in blocks of MGV__ONLINE_KEYS: then a weight is rounded
   alike whichever tokens that is the largest score of, and the CPU's twin, which knows no number of images, has the same weights. */
#define POOL_LARGEST(most) ceilf(most)

/* Scores of all heads and tokens, without the norm; they stay in tensor memory. */
template <int KEYS> DEVICE void tensor_pool_scores(TensorMath &self, uint32_t blocks) {
    uint32_t before = 0;
    for (uint32_t block = 0; block < blocks; block++) {
        if (starts_products(self)) {
            const uint32_t base = shared_address(self.shared->stage[self.stage.index]);
            wait_barrier(&self.shared->stage_full[self.stage.index], self.stage.parity);
            start_block<KEYS>(self.own, matrix_descriptor_k_major(base + KEYS * 128, 64, 128),
                                           matrix_descriptor_k_major(base, KEYS, 128), block);
            tcgen05_commit(shared_address(&self.shared->multiplied[self.group][self.stage.index]));
        }
        warp_sync();
        if (block) leave_multiplied(self, before);
        before = self.stage.index;
        self.stage.advance();
    }
    leave_multiplied(self, before);
    tcgen05_fence_after_thread_sync();
}

/* Weights of the tokens, in tensor memory: as pool_weights. */
template <int COUNT> DEVICE void store_pool_weights(const TensorMath &self, const float (&s)[COUNT], uint32_t table, float (&offset)[2]) {
#pragma unroll
    for (int k = 0; k < COUNT / 8; k++) {
        float some[8];
        uint32_t w[4];
#pragma unroll
        for (int i = 0; i < 8; i++) some[i] = s[8 * k + i];
        pool_weights(self, some, table + 16 * k * 8, w, offset);
        store_weights(self, k, w);
    }
    tcgen05_wait_st();
}

/* Sixteen tokens' scores, number `k` of such, with the norm folded in; those beyond the last are -infinity. Some at a time: all of them are
   more than a thread has registers for beside what it knows of the tile. */
DEVICE void load_pool_scores(const TensorMath &self, const mgv__kernel_op &op, uint32_t table, uint32_t k, float (&s)[8]) {
    load_sums(self, 16 * k, s);
    pool_fold_norm<16>(self, op, table + 16 * k * 8, s);
    softmax_mask<0, 16>(s, op.tokens > 16 * k ? op.tokens - 16 * k : 0, 2 * (self.lane % 4));
}
/* Scores -> weights, over the scores that have been read, with the reciprocal of their sum. */
template <int KEYS>
DEVICE void tensor_pool_softmax(const TensorMath &self, const mgv__kernel_op &op, uint32_t table, float (&offset)[2], float (&rcp_sum)[2]) {
    float s[8], most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
#pragma unroll 1
    for (uint32_t k = 0; k < KEYS / 16; k++) {
        load_pool_scores(self, op, table, k, s);
#pragma unroll
        for (int i = 0; i < 8; i++) most[i / 2 & 1] = fmaxf(most[i / 2 & 1], s[i]);
    }
    most[0] = POOL_LARGEST(quad_max(most[0]));
    most[1] = POOL_LARGEST(quad_max(most[1]));
#pragma unroll 1
    for (uint32_t k = 0; k < KEYS / 16; k++) {
        uint32_t w[4];
        load_pool_scores(self, op, table, k, s);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            s[i] = ex2_approx(s[i] - most[i / 2 & 1]);
            sum[i / 2 & 1] += s[i];
        }
        pool_weights(self, s, table + 16 * k * 8, w, offset);
        store_weights(self, k, w);
    }
    tcgen05_wait_st();
    rcp_sum[0] = 1.0f / quad_sum(sum[0]);
    rcp_sum[1] = 1.0f / quad_sum(sum[1]);
}

/* Sums over the tokens of a stage, by the weights that have been stored. The group has been handed over. */
template <int KEYS> DEVICE void tensor_pool_products(TensorMath &self, uint32_t tokens, float (&z)[32]) {
    if (starts_products(self)) {
        wait_barrier(&self.shared->stage_full[self.stage.index], self.stage.parity);
        start_values<KEYS, 64>(self, RESULT_COLUMN, tokens);
        commit_done(self);
    }
    wait_done(self);
    load_sums(self, RESULT_COLUMN, z);
    hand_to_products(self);
}

template <int KEYS> ROUTINE void tensor_pool_tile(TensorMath &self, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t in_group = tile.unit * MGV__CLUSTER + self.cta;
    const uint32_t exists = image_number(op, tile.group, in_group) < op.rows_total / op.tokens;
    float rcp_sum[2], offset[2] = {0, 0};
    tensor_pool_scores<KEYS>(self, op.of.pool.blocks);
    const uint32_t table = math_take_chunk(self); /* this group's until its first result is written there */
    pool_norms<KEYS>(self, tile, in_group, exists, table);
    tensor_pool_softmax<KEYS>(self, op, table, offset, rcp_sum);
    offset[0] = quad_sum(offset[0]);
    offset[1] = quad_sum(offset[1]);
    hand_to_products(self);
    const PoolPart part = pool_part(tile);
    for (uint32_t block = part.first; block < part.end; block++) {
        if ((block - part.first) % MGV__MATH_GROUPS == self.group) {
            float z[32];
            tensor_pool_products<KEYS>(self, shared_address(self.shared->stage[self.stage.index]), z);
            pool_write(self, op, block, z, offset, rcp_sum);
        }
        math_wait_stage(self, self.stage);
        warp_sync();
        math_leave_stage(self, self.stage.index);
        self.stage.advance();
    }
}

/* The same by warps: norms before there are scores, and of these some at a time, or registers do not do for what is loaded beside them. */
template <int KEYS>
DEVICE void warps_pool_weights(const TensorMath &self, const mgv__kernel_op &op, uint32_t table, float (&s)[KEYS / 2],
                               uint32_t (&w)[KEYS / 4], float (&offset)[2], float (&rcp_sum)[2]) {
    float some[8];
    uint32_t weights[4];
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++) {
#pragma unroll
        for (int i = 0; i < 8; i++) some[i] = s[8 * k + i];
        pool_fold_norm<16>(self, op, table + 16 * k * 8, some);
#pragma unroll
        for (int i = 0; i < 8; i++) s[8 * k + i] = some[i];
        warp_sync(); /* keeps all loads from being moved up */
    }
    softmax_rows<KEYS, true>(s, op.tokens, self.lane, rcp_sum); /* as POOL_LARGEST */
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++) {
#pragma unroll
        for (int i = 0; i < 8; i++) some[i] = s[8 * k + i];
        pool_weights(self, some, table + 16 * k * 8, weights, offset);
#pragma unroll
        for (int i = 0; i < 4; i++) w[4 * k + i] = weights[i];
        warp_sync();
    }
}
template <int KEYS> ROUTINE void warps_pool_tile(TensorMath &self, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t in_group = tile.unit * MGV__CLUSTER + self.cta;
    const uint32_t exists = image_number(op, tile.group, in_group) < op.rows_total / op.tokens;
    float s[KEYS / 2], rcp_sum[2], offset[2] = {0, 0};
    uint32_t w[KEYS / 4];
    pool_norms<KEYS>(self, tile, in_group, exists, math_take_chunk(self)); /* this group's until its first result is written there */
    pool_scores<KEYS>(self, op.of.pool.blocks, s);
    const uint32_t table = shared_address(self.shared->chunk[self.group][opaque(self.chunk.index)]); /* no register keeps it meanwhile */
    warps_pool_weights<KEYS>(self, op, table, s, w, offset, rcp_sum);
    offset[0] = quad_sum(offset[0]);
    offset[1] = quad_sum(offset[1]);
    math_group_sync(self);
    const PoolPart part = pool_part(tile);
    for (uint32_t block = part.first; block < part.end; block++) {
        math_wait_stage(self, self.stage);
        if ((block - part.first) % MGV__MATH_GROUPS == self.group) {
            float z[32];
            wgmma_registers_zero(z);
            pool_products(w, matrix_descriptor(shared_address(self.shared->stage[self.stage.index])), z);
            pool_write(self, op, block, z, offset, rcp_sum);
        }
        warp_sync();
        math_leave_stage(self, self.stage.index);
        self.stage.advance();
    }
}

/* All tokens for 64 columns. */
DEVICE void tensor_pool_sums_block(TensorMath &self, const TileSlot &tile, uint32_t block) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t in_group = tile.unit * MGV__CLUSTER + self.cta;
    const ImageTokens of = {op, in_group, image_number(op, tile.group, in_group)};
    const uint32_t tables = math_take_chunk(self); /* this group's until its result is written there */
    RunningSoftmax running = {{-INFINITY, -INFINITY}, {0, 0}};
    float s[ONLINE_SCORES], z[32], part[32], scale[2], offset[2] = {0, 0};
    wgmma_registers_zero(z);
#pragma unroll 1
    for (uint32_t first = 0; first < op.tokens; first += MGV__ONLINE_KEYS) {
        const uint32_t table = tables + first / MGV__ONLINE_KEYS % 2 * POOL_TABLE_BYTES, token = first + self.thread;
        float mean = 0, rstd = 0;
        pool_fetch_scores(self, op, of, first, self.warp * 16 + self.lane / 4, s);
        if (of.exists() && token < op.tokens) row_statistics(self.arguments, op, tile.group, of.first_in_group() + token, mean, rstd);
        shared_store_v2f32(table + self.thread * 8, mean, rstd);
        math_group_sync(self);
        online_softmax(s, op.tokens - first, self.lane, running, scale);
        offset[0] *= scale[0];
        offset[1] *= scale[1];
        store_pool_weights(self, s, table, offset);
        hand_to_products(self);
        tensor_pool_products<MGV__ONLINE_KEYS>(self, shared_address(self.shared->stage[self.stage.index]) + online_box(self.group), part);
#pragma unroll
        for (int i = 0; i < 32; i++) z[i] = z[i] * scale[i / 2 & 1] + part[i];
        math_wait_stage(self, self.stage);
        warp_sync(); /* lane 0 leaves for the warp: no lane may still be looking */
        math_leave_stage(self, self.stage.index);
        self.stage.advance();
    }
    const float rcp_sum[2] = {1.0f / quad_sum(running.sum[0]), 1.0f / quad_sum(running.sum[1])};
    offset[0] = quad_sum(offset[0]);
    offset[1] = quad_sum(offset[1]);
    pool_write(self, op, block, z, offset, rcp_sum); /* where the tables lay, which all warps have read */
}

ROUTINE void tensor_pool_sums_tile(TensorMath &self, const TileSlot &tile) {
    const uint32_t block = tile.column * MGV__MATH_GROUPS + self.group;
    if (block < tile.op.of.pool.blocks) tensor_pool_sums_block(self, tile, block);
    else online_let_pass(self, tile.op);
}

#endif /* MGV_BLACKWELL_POOL_CUH */
