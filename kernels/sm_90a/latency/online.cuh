/* megavit: the latency regime's attention of 64 queries a CTA, for any number of tokens and heads of up to 128 columns. The formulas are
   those of throughput/attention_online.cuh. The math groups take turns with blocks of 128 keys, of wide heads of 64, each with a maximum
   and sums of its own for all rows, and join at the end: each ends half of the columns. Where stages lie: latency_load_online. */
#ifndef MGV_LATENCY_ONLINE_CUH
#define MGV_LATENCY_ONLINE_CUH

#include "gemm.cuh"
#include "../throughput/attention_ranges.cuh"

/* What the groups trade: in the place of the values that each multiplied last 16 bytes a thread of its two rows' values again and again,
   of the first 64 columns and of those behind them; maxima and sums where attention of few tokens has its own. */
enum { LATENCY_ONLINE_TRADES = 64 / 2 / MGV__MATH_GROUPS / 4, LATENCY_ONLINE_REST_TRADES = WIDE_REST / 2 / MGV__MATH_GROUPS / 4 };
static_assert((LATENCY_ONLINE_TRADES + LATENCY_ONLINE_REST_TRADES) * LATENCY_GROUP_BYTES <= MGV__LATENCY_ROW_BYTES,
              "what is traded has room in one stage");

/* COUNT sums of a thread: those of the second half are group 1's to end. */
template <int COUNT> DEVICE void latency_give_half(const LatencyMath &self, uint32_t to, const float (&o)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT / 2; i += 4) {
        float away[4];
#pragma unroll
        for (int e = 0; e < 4; e++) away[e] = self.group ? o[i + e] : o[COUNT / 2 + i + e];
        shared_store_v4f32(to + i / 4 * LATENCY_GROUP_BYTES, away[0], away[1], away[2], away[3]);
    }
}
/* What a thread's own sums and the other group's are multiplied with, where their maxima and the rows' sums are these: less what they are
   above the common maximum, over the sum of both. The first group has a key at least of each row that is, so the larger maximum is a
   number. */
DEVICE void latency_join(const RunningSoftmax &running, const float (&most)[2], const float (&sum)[2], float (&own)[2],
                         float (&others)[2]) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float largest = fmaxf(running.most[r], most[r]);
        own[r] = ex2_approx(running.most[r] - largest);
        others[r] = ex2_approx(most[r] - largest);
        const float rcp = rcp_approx(running.sum[r] * own[r] + sum[r] * others[r]);
        own[r] *= rcp;
        others[r] *= rcp;
    }
}
/* Own sums and the other group's. */
template <int COUNT> DEVICE void latency_take_half(const LatencyMath &self, uint32_t from, const float (&o)[COUNT], const float (&own)[2],
                                                   const float (&others)[2], float (&joined)[COUNT / 2]) {
#pragma unroll
    for (int i = 0; i < COUNT / 2; i += 4) {
        float other[4];
        shared_load_v4f32(from + i / 4 * LATENCY_GROUP_BYTES, other[0], other[1], other[2], other[3]);
#pragma unroll
        for (int e = 0; e < 4; e++)
            joined[i + e] = (self.group ? o[COUNT / 2 + i + e] : o[i + e]) * own[e / 2] + other[e] * others[e / 2];
    }
}

/* Half of the columns of 64 and of the rest behind them, as rows of bf16. joined: four values for each eight columns. */
template <int COUNT> DEVICE void latency_store_half(const LatencyMath &self, const LatencyTile &tile, uint32_t first,
                                                    const float (&joined)[COUNT]) {
    const uint32_t row = self.warp * 16 + self.lane / 4, column = first + 2 * (self.lane % 4);
    uint16_t *const to = (uint16_t *)tile.target + (size_t)row * tile.pitch + column;
#pragma unroll
    for (int j = 0; j < COUNT / 4; j++)
#pragma unroll
        for (uint32_t r = 0; r < 2; r++)
            if (row + 8 * r < tile.rows && column + 8 * j < tile.columns)
                st_global_u32(to + (size_t)8 * r * tile.pitch + 8 * j, cvt_rn_bf16x2(joined[4 * j + 2 * r], joined[4 * j + 2 * r + 1]));
}

/* Scores of keys that are not there, or of other ranges, become 0 behind this. walk: at the pair of blocks. */
template <bool RANGES, int COUNT> DEVICE void latency_online_softmax(const LatencyMath &self, const KeyWalk &walk, uint32_t exist,
                                                                     float (&s)[COUNT], RunningSoftmax &running, float (&scale)[2]) {
    if constexpr (RANGES) {
        const uint32_t row = walk.query + self.warp * 16 + self.lane / 4, first = walk.row + self.group * 2 * COUNT;
        uint32_t left[2];
        KeyWalk block = walk; /* none of its keys are left where the range ends before */
        block.row = mgv__min_u32(first, walk.behind);
        range_left(block, row, left);
        range_softmax(s, left, self.lane, running, scale);
        return;
    }
    const uint32_t column = 2 * (self.lane % 4);
    if (exist < 2 * COUNT) {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (i / 4 * 8 + column + i % 2 >= exist) s[i] = -INFINITY;
    }
    online_exponentials<true>(s, running, scale);
}

/* All blocks of keys of this math group. The values of the last one are left behind the trade. */
template <int REST, bool RANGES>
DEVICE void latency_online_blocks(LatencyMath &self, const LatencyTile &tile, const LatencyOnline &online, KeyWalk walk,
                                  const OnlineQueries &queries, RunningSoftmax &running, float (&o)[32],
                                  float (&o_rest)[REST ? REST / 2 : 1]) {
    constexpr int KEYS = online_keys<REST>();
    LatencyRowStage keys = latency_stage_after(self.stage, self.group);
    uint32_t row = self.group * KEYS;
#pragma unroll 1
    for (uint32_t stage = 0; stage < online.stages; stage += online.of_pair, row += MGV__MATH_GROUPS * KEYS) {
        const LatencyRowStage values = latency_stage_after(keys, MGV__MATH_GROUPS), rest = latency_stage_after(keys, 2 * MGV__MATH_GROUPS);
        const uint32_t rest_box = latency_stage_address(self, rest), exist = tile.tokens > row ? tile.tokens - row : 0;
        float s[KEYS / 2], scale[2];
        uint32_t p[KEYS / 4];
        wgmma_registers_zero(s);
        latency_wait_stage(self, keys);
        if constexpr (REST != 0) latency_wait_stage(self, rest);
        wgmma_registers_fence(s);
        wgmma_fence();
        online_scores<REST>(latency_stage_address(self, keys), rest_box, queries, s);
        wgmma_wait_group<0>();
        wgmma_registers_fence(s);
        latency_leave_stage(self, keys);
        latency_online_softmax<RANGES>(self, walk, exist, s, running, scale);
        if constexpr (RANGES) next_keys<MGV__MATH_GROUPS * KEYS>(walk);
        online_merge<REST>(s, scale, p, o, o_rest);
        latency_wait_stage(self, values);
        wgmma_registers_fence(o);
        wgmma_registers_fence(o_rest);
        wgmma_fence();
        online_values<REST>(latency_stage_address(self, values), rest_box + KEYS * REST * 2, p, o, o_rest);
        wgmma_wait_group<0>();
        wgmma_registers_fence(o);
        wgmma_registers_fence(o_rest);
        if constexpr (REST != 0) latency_leave_stage(self, rest);
        if (stage + online.of_pair < online.stages) latency_leave_stage(self, values);
        keys = latency_stage_after(keys, online.of_pair);
    }
}

template <int REST, uint32_t KINDS, bool RANGES>
ROUTINE void latency_online_tile(LatencyMath &self, const LatencyTile &tile, const TileSlot &slot) {
    KeyWalk walk = {};
    uint32_t pairs;
    if constexpr (RANGES) {
        walk = latency_key_walk(self.arguments, slot, self.cta);
        pairs = latency_key_pairs<KINDS>(walk);
    } else pairs = mgv__ceil_div(tile.tokens, latency_pair_keys<KINDS>());
    const LatencyOnline online(pairs, REST);
    const LatencyWeightStage second = latency_stage_after(self.weights, 1);
    const LatencyRowStage last = latency_stage_after(self.stage, online.stages - online.of_pair + LATENCY_VALUES * MGV__MATH_GROUPS);
    const LatencyTrade trade = {latency_stage_after(last, self.group), latency_stage_after(last, 1 - self.group)};
    const OnlineQueries queries = {matrix_descriptor(shared_address(self.shared->weights[self.weights.index])),
                                   REST ? narrow_descriptor<REST ? REST : 16>(shared_address(self.shared->weights[second.index])) : 0};
    RunningSoftmax running = {{-INFINITY, -INFINITY}, {0, 0}};
    float o[32], o_rest[REST ? REST / 2 : 1], joined[16], joined_rest[REST ? REST / 4 : 1], own[2], others[2];
    wgmma_registers_zero(o);
    wgmma_registers_zero(o_rest);
    latency_wait_ready(self);
    wait_barrier(&self.shared->weights_full[self.weights.index], self.weights.parity);
    if constexpr (REST != 0) wait_barrier(&self.shared->weights_full[second.index], second.parity);
    latency_online_blocks<REST, RANGES>(self, tile, online, walk, queries, running, o, o_rest);
    const uint32_t to = latency_stage_address(self, trade.own) + latency_thread_bytes(self),
                   from = latency_stage_address(self, trade.other) + latency_thread_bytes(self);
    constexpr uint32_t REST_AT = LATENCY_ONLINE_TRADES * LATENCY_GROUP_BYTES;
    running.sum[0] = quad_sum(running.sum[0]);
    running.sum[1] = quad_sum(running.sum[1]);
    latency_sync_group(self); /* all of its warps are done with the values that lie there */
    shared_store_v4f32(shared_address(&self.shared->swap[self.group ^ 1]) + latency_thread_bytes(self), running.most[0], running.most[1],
                       running.sum[0], running.sum[1]);
    latency_give_half(self, to, o);
    if constexpr (REST != 0) latency_give_half(self, to + REST_AT, o_rest);
    latency_sync();
    float most[2], sum[2];
    shared_load_v4f32(shared_address(&self.shared->swap[self.group]) + latency_thread_bytes(self), most[0], most[1], sum[0], sum[1]);
    latency_join(running, most, sum, own, others);
    latency_take_half(self, from, o, own, others, joined);
    latency_store_half(self, tile, self.group * 32, joined);
    if constexpr (REST != 0) {
        latency_take_half(self, from + REST_AT, o_rest, own, others, joined_rest);
        latency_store_half(self, tile, 64 + self.group * REST / 2, joined_rest);
    }
    latency_signal(self);
    latency_leave_trade(self, trade);
    const uint32_t number = (self.lane + MGV__LATENCY_WEIGHT_STAGES - self.weights.index) % MGV__LATENCY_WEIGHT_STAGES; /* a lane a stage */
    if (self.group == 1 && self.lane < MGV__LATENCY_WEIGHT_STAGES && number < online.queries)
        mbarrier_arrive(shared_address(&self.shared->weights_empty[self.lane]));
    self.stage = latency_stage_after(self.stage, online.stages);
    self.weights = latency_stage_after(self.weights, online.queries);
}

template <uint32_t KINDS, bool RANGES>
DEVICE void latency_attention_online(LatencyMath &self, const LatencyTile &tile, const TileSlot &slot) {
    if constexpr (has_wide_heads<KINDS>()) return latency_online_tile<WIDE_REST, KINDS, RANGES>(self, tile, slot);
    switch (rest_columns(slot.op)) {
    case 0: latency_online_tile<0, KINDS, RANGES>(self, tile, slot); break;
    case 16: latency_online_tile<16, KINDS, RANGES>(self, tile, slot); break;
    default: latency_online_tile<32, KINDS, RANGES>(self, tile, slot); break;
    }
}

#endif /* MGV_LATENCY_ONLINE_CUH */
