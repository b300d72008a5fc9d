/* megavit: the latency regime's attention and pooling head. Formulas and layouts are those of attention.cuh,
   pool_tokens.cuh and gemv.cuh. */
#ifndef MGV_LATENCY_HEADS_CUH
#define MGV_LATENCY_HEADS_CUH

#include "latency_gemm.cuh"
#include "attention.cuh"
#include "pool_tokens.cuh"

DEVICE void latency_wait_stages(LatencyMath &self, LatencyRowStage &stage, int count) {
#pragma unroll 1
    for (int i = 0; i < count; i++, stage.advance()) latency_wait_stage(self, stage);
}

/* --- attention --------------------------------------------------------------------------------------------------- */

/* What both math groups have of this thread's two rows: sum of exponentials, 16 of the weighted values' columns,
   those that this group ends. */
struct LatencyAttended {
    float sum[2], values[16];
};
/* Each group has seen half of the keys. Weights of either are brought to the larger of their maxima. */
DEVICE void latency_join_halves(LatencyMath &self, float factor, const float (&most)[2], const float (&sum)[2], const float (&o)[32],
                                LatencyAttended &joined) {
    const uint32_t to = shared_address(&self.shared->swap[self.group ^ 1]) + latency_thread_bytes(self),
                   from = shared_address(&self.shared->swap[self.group]) + latency_thread_bytes(self);
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
        for (int e = 0; e < 4; e++)
            joined.values[4 * i + e] = joined.values[4 * i + e] * own_weight[e / 2] + other[e] * other_weight[e / 2];
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

/* One block of 64 queries. ROWS: of a plan's tile, which is as many keys as a math group has at most. */
template <int ROWS> DEVICE void latency_attention_tile(LatencyMath &self, const TileSlot &tile) {
    constexpr int KEYS = latency_half_keys(ROWS);
    const mgv__kernel_op &op = tile.op;
    const LatencyRowStage first = self.stage,
                          keys = latency_stage_after(first, 1 + self.group), values = latency_stage_after(first, 3 + self.group);
    const uint32_t tokens = op.tokens, pitch = op.columns, half = latency_first_keys(op), exist = self.group ? tokens - half : half;
    const float scale = op.scale;
    float s[ROWS / 2], o[32], most[2] = {0, 0}, sum[2] = {0, 0};
    uint32_t p[KEYS / 4] = {}, query = self.cta * 64 + self.warp * 16;
    uint16_t *to = (uint16_t *)self.arguments.buffers[op.store_map] +
                   ((size_t)image_number(op, tile.group, tile.unit) * tokens + query + self.lane / 4) * pitch +
                   tile.column * 64 + self.group * 32 + latency_pair_column(self.lane);
    latency_wait_stage(self, first);
    latency_wait_stage(self, keys);
    const uint64_t a = matrix_descriptor(latency_stage_address(self, first)), b = matrix_descriptor(latency_stage_address(self, keys));
    attention_scores<ROWS>(a, b, s);
    if (query < tokens) softmax_part<ROWS>(s, exist, self.lane, scale, most, sum); /* else no row of this warp exists */
#pragma unroll
    for (int i = 0; i < ROWS / 4; i++) p[i] = cvt_rn_bf16x2(s[2 * i], s[2 * i + 1]); /* behind them keys without weight */
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
            latency_store_pair(self.lane, to + (size_t)8 * r * pitch + pair * 16, cvt_rn_bf16x2(e[0] * rcp, e[1] * rcp),
                               cvt_rn_bf16x2(e[4] * rcp, e[5] * rcp), query + 8 * r < tokens);
        }
    }
    latency_signal(self);
    latency_leave_attention(self);
}

/* --- the pooling head -------------------------------------------------------------------------------------------- */

DEVICE void latency_few_rows_tile(LatencyMath &self, const TileSlot &tile, const Ring<MGV__SLOTS> &slot) {
    const uint32_t kind = 1u << tile.op.kind;
    FewRows rows = {self.arguments, tile.op, self.group * 4 + self.warp, self.lane, image_number(tile.op, tile.group, tile.unit),
                          tile.column * MGV__LATENCY_CLUSTER + self.cta, shared_address(self.shared->swap), !(self.seen & kind), 0};
    self.seen |= kind;
    few_rows(rows, [&] { wait_barrier(self.dog, &self.shared->tile_ready[slot.index], slot.parity, MGV__WAIT_TILE_READY); },
             [] { latency_sync(); });
    latency_sync();
    if (self.counter && !self.dog.aborted) red_release_gpu_add(self.counter, 1); /* who waits reads by ordinary loads: no proxy fence */
}

#endif /* MGV_LATENCY_HEADS_CUH */
