/* megavit: the latency regime's weighted sums of the pooling head for any number of tokens and pictures of any size, 64 columns a CTA. The
   formulas are those of pool_sums.cuh. The math groups take turns with blocks of 128 tokens, each with maxima and sums of its own, and join
   at the end as those of attention do (latency/online.cuh): each ends half of the columns. */
#ifndef MGV_LATENCY_SUMS_CUH
#define MGV_LATENCY_SUMS_CUH

#include "pool_sums.cuh"
#include "../latency/online.cuh"

/* In the swap of a math group, each 16 bytes a thread at most: maxima and sums that the other gives it, the offsets that belong to them,
   and its own tables of two blocks. */
enum { LATENCY_SUMS_OFFSETS = LATENCY_GROUP_BYTES, LATENCY_SUMS_TABLES = 2 * LATENCY_GROUP_BYTES };
static_assert(LATENCY_SUMS_TABLES + 2 * POOL_TABLE_BYTES <= (int)sizeof(LatencySwap), "they fit");

/* All tokens of this math group for 64 columns; the last block of them is left behind the trade. */
DEVICE void latency_sums_blocks(LatencyMath &self, const TileSlot &tile, const LatencyTokens &of, uint32_t stages, RunningSoftmax &running,
                                float (&z)[32], float (&offset)[2]) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t tables = shared_address(&self.shared->swap[self.group]) + LATENCY_SUMS_TABLES, thread = self.warp * 32 + self.lane;
    LatencyRowStage stage = latency_stage_after(self.stage, self.group);
#pragma unroll 1
    for (uint32_t block = self.group; block < stages; block += MGV__MATH_GROUPS, stage = latency_stage_after(stage, MGV__MATH_GROUPS)) {
        const uint32_t first = block * MGV__ONLINE_KEYS, exist = of.count() > first ? of.count() - first : 0,
                       table = tables + block / MGV__MATH_GROUPS % 2 * POOL_TABLE_BYTES;
        float mean = 0, rstd = 0, s[ONLINE_SCORES], scale[2];
        uint32_t w[ONLINE_SCORES / 2];
        pool_fetch_scores(self, op, of, first, self.warp * 16 + self.lane / 4, s);
        if (thread < exist) row_statistics(self.arguments, op, tile.group, of.in_group + first + thread, mean, rstd);
        shared_store_v2f32(table + thread * 8, mean, rstd);
        latency_sync_group(self);
        latency_online_softmax<false>(self, KeyWalk(), exist, s, running, scale);
#pragma unroll
        for (int r = 0; r < 2; r++) offset[r] *= scale[r];
        pool_weights(self, s, table, w, offset);
#pragma unroll
        for (int i = 0; i < 32; i++) z[i] *= scale[i / 2 & 1];
        latency_wait_stage(self, stage);
        pool_products(w, matrix_descriptor(latency_stage_address(self, stage)), z);
        if (block + MGV__MATH_GROUPS < stages) latency_leave_stage(self, stage);
    }
}

/* Half of 64 columns of the heads' sums, normalised, as rows of f16. */
DEVICE void latency_store_sums(const LatencyMath &self, const mgv__kernel_op &op, uint32_t picture, uint32_t first, const float (&z)[16],
                               const float (&offset)[2]) {
    const uint32_t head = self.warp * 16 + self.lane / 4, column = first + 2 * (self.lane % 4);
    const float *const gamma = self.arguments.vectors + op.of.pool.gamma + column, *const beta = gamma + op.inner;
    uint16_t *const to = (uint16_t *)self.arguments.buffers[op.of.pool.target] + ((size_t)picture * op.heads + head) * op.inner + column;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float g0, g1, b0, b1;
        if (column + 8 * j >= op.inner) continue;
        ld_global_nc_v2f32(gamma + 8 * j, g0, g1);
        ld_global_nc_v2f32(beta + 8 * j, b0, b1);
#pragma unroll
        for (uint32_t r = 0; r < 2; r++)
            if (head + 8 * r < op.heads)
                st_global_u32(to + (size_t)8 * r * op.inner + 8 * j,
                              cvt_rn_f16x2((z[4 * j + 2 * r] - offset[r]) * g0 + b0, (z[4 * j + 2 * r + 1] - offset[r]) * g1 + b1));
    }
}

DEVICE void latency_sums_of_block(LatencyMath &self, const TileSlot &tile, const LatencyTokens &of, uint32_t stages, uint32_t block,
                                  const LatencyTrade &trade) {
    RunningSoftmax running = {{-INFINITY, -INFINITY}, {0, 0}};
    float z[32], joined[16], offset[2] = {0, 0}, own[2], others[2];
    wgmma_registers_zero(z);
    latency_sums_blocks(self, tile, of, stages, running, z, offset);
    const uint32_t to = latency_stage_address(self, trade.own) + latency_thread_bytes(self),
                   from = latency_stage_address(self, trade.other) + latency_thread_bytes(self),
                   give = shared_address(&self.shared->swap[self.group ^ 1]) + latency_thread_bytes(self),
                   take = shared_address(&self.shared->swap[self.group]) + latency_thread_bytes(self);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        running.sum[r] = quad_sum(running.sum[r]);
        offset[r] = quad_sum(offset[r]);
    }
    latency_sync_group(self); /* all of its warps are done with the tokens that lie there */
    shared_store_v4f32(give, running.most[0], running.most[1], running.sum[0], running.sum[1]);
    shared_store_v2f32(give + LATENCY_SUMS_OFFSETS, offset[0], offset[1]);
    latency_give_half(self, to, z);
    latency_sync();
    float most[2], sum[2], other_offset[2];
    shared_load_v4f32(take, most[0], most[1], sum[0], sum[1]);
    shared_load_v2f32(take + LATENCY_SUMS_OFFSETS, other_offset[0], other_offset[1]);
    latency_join(running, most, sum, own, others);
#pragma unroll
    for (int r = 0; r < 2; r++) offset[r] = offset[r] * own[r] + other_offset[r] * others[r];
    latency_take_half(self, from, z, own, others, joined);
    latency_store_sums(self, tile.op, of.picture, block * 64 + self.group * 32, joined, offset);
}

/* CTAs behind the last column have nothing to do but signal. */
ROUTINE void latency_sums_tile(LatencyMath &self, const TileSlot &tile) {
    const LatencyTokens of = latency_tokens(self.arguments, tile);
    const uint32_t block = latency_sums_column(tile, self.cta), stages = latency_sums_stages(tile, self.cta, of);
    const LatencyRowStage last = latency_stage_after(self.stage, stages - MGV__MATH_GROUPS);
    const LatencyTrade trade = {latency_stage_after(last, self.group), latency_stage_after(last, 1 - self.group)};
    latency_wait_ready(self);
    if (stages) latency_sums_of_block(self, tile, of, stages, block, trade);
    latency_signal(self);
    if (stages) latency_leave_trade(self, trade);
    self.stage = latency_stage_after(self.stage, stages);
}

#endif /* MGV_LATENCY_SUMS_CUH */
