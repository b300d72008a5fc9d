/* megavit: attention of 128 queries of one head, for any number of tokens and heads of up to 128 columns. Keys and values come in blocks of
   128, those of wide heads in blocks of 64; a row's maximum and sum run along, and what has been added up is
   rescaled when the maximum grows (Milakov, Gimelshein 2018). Keys are taken in order, so a row's bits depend on its image only.

   A head is taken as 64 columns and, for REST 16, 32 or 64, as many behind them; columns beyond the head are zero in shared memory. A math
   group finds its 64 queries in the chunk buffers that its results go into. A stage of the ring holds a block of keys and values. The next
   block's scores are issued with the products of this one. */
#ifndef MGV_ATTENTION_ONLINE_CUH
#define MGV_ATTENTION_ONLINE_CUH

#include "math.cuh"

enum { ONLINE_SCORES = MGV__ONLINE_KEYS / 2 }; /* accumulators of a thread */
/* Keys of a block, and its accumulators. */
template <int REST> DEVICE constexpr int online_keys(void) { return REST == WIDE_REST ? MGV__WIDE_KEYS : MGV__ONLINE_KEYS; }

/* As matrix_descriptor, of rows of COLUMNS columns in a swizzle as wide as they are: 16, 32 or 64 columns. */
template <int COLUMNS> DEVICE uint64_t narrow_descriptor(uint32_t address) {
    static_assert(COLUMNS == 16 || COLUMNS == 32 || COLUMNS == 64, "rows of 32, 64 or 128 bytes");
    constexpr uint64_t swizzle = COLUMNS == 16 ? 3 : COLUMNS == 32 ? 2 : 1;
    return swizzle << 62 | (uint64_t)(COLUMNS * 16 / 16) << 32 | 0x10000 | ((address & 0x3FFFF) >> 4);
}

/* Of two rows: the largest score, what exponentials are scaled down by, this lane's share of their sum. */
struct RunningSoftmax {
    float most[2], sum[2];
};

/* Where a math group's queries are: 64 columns, what lies behind them. */
struct OnlineQueries {
    uint64_t box, rest;
};
template <int REST> DEVICE OnlineQueries online_queries(Math &self) {
    OnlineQueries queries = {matrix_descriptor(math_take_chunk(self)), 0};
    if constexpr (REST != 0) {
        Ring<MGV__CHUNKS> second = self.chunk;
        second.advance();
        wait_barrier(&self.shared->chunk_granted[self.group][second.index], second.parity);
        queries.rest = narrow_descriptor<REST>(shared_address(self.shared->chunk[self.group][second.index]));
    }
    return queries;
}

/* Issues the scores of one block, whose keys lie at `box`, what is behind their first 64 columns at `rest_box`. */
template <int REST, int COUNT>
DEVICE void online_scores(uint32_t box, uint32_t rest_box, const OnlineQueries &queries, float (&s)[COUNT]) {
    const uint64_t keys = matrix_descriptor(box);
#pragma unroll
    for (int k = 0; k < 4; k++) wgmma_m64k16_bf16_ss(s, queries.box + 2 * k, keys + 2 * k, 1);
    if constexpr (REST != 0) {
        const uint64_t rest = narrow_descriptor<REST>(rest_box);
#pragma unroll
        for (int k = 0; k < REST / 16; k++) wgmma_m64k16_bf16_ss(s, queries.rest + 2 * k, rest + 2 * k, 1);
    }
    wgmma_commit_group();
}
template <int REST, int COUNT> DEVICE void online_scores(uint32_t stage, const OnlineQueries &queries, float (&s)[COUNT]) {
    online_scores<REST>(stage + online_box<2 * COUNT>(0), stage + online_rest<2 * COUNT>(0, REST), queries, s);
}

/* Issues the products of one block's probabilities with its values. */
template <int REST, int COUNT> DEVICE void online_values(uint32_t box, uint32_t rest_box, const uint32_t (&p)[COUNT], float (&o)[32],
                                                         float (&o_rest)[REST ? REST / 2 : 1]) {
    const uint64_t values = matrix_descriptor(box);
#pragma unroll
    for (int k = 0; k < COUNT / 4; k++) /* 16 keys are 2048 bytes of values: 128 descriptor units */
        wgmma_m64k16_bf16_rs_transposed_b(o, p[4 * k], p[4 * k + 1], p[4 * k + 2], p[4 * k + 3], values + 128 * k, 1);
    if constexpr (REST != 0) {
        const uint64_t rest = narrow_descriptor<REST>(rest_box);
#pragma unroll
        for (int k = 0; k < COUNT / 4; k++)
            wgmma_m64k16_bf16_rs_transposed_b(o_rest, p[4 * k], p[4 * k + 1], p[4 * k + 2], p[4 * k + 3], rest + 2 * REST * k, 1);
    }
    wgmma_commit_group();
}
template <int REST, int COUNT>
DEVICE void online_values(uint32_t stage, const uint32_t (&p)[COUNT], float (&o)[32], float (&o_rest)[REST ? REST / 2 : 1]) {
    online_values<REST>(stage + online_box<4 * COUNT>(1), stage + online_rest<4 * COUNT>(1, REST), p, o, o_rest);
}

/* Scores of one block -> powers of two, in place. Returns what everything before is to be multiplied by. SOME: a row may have had no key
   yet, and nothing is taken from infinity. */
template <bool SOME, int COUNT> DEVICE void online_exponentials(float (&s)[COUNT], RunningSoftmax &running, float (&scale)[2]) {
    float most[2] = {running.most[0], running.most[1]};
#pragma unroll
    for (int i = 0; i < COUNT; i++) most[i / 2 & 1] = fmaxf(most[i / 2 & 1], s[i]);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float before = running.most[r];
        running.most[r] = most[r] = quad_max(most[r]);
        if (SOME && most[r] == -INFINITY) most[r] = 0;
        scale[r] = ex2_approx(before - most[r]);
        running.sum[r] *= scale[r];
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        s[i] = ex2_approx(s[i] - most[i / 2 & 1]);
        running.sum[i / 2 & 1] += s[i];
    }
}
/* Scores of keys from `left` on become 0. */
template <int COUNT>
DEVICE void online_softmax(float (&s)[COUNT], uint32_t left, uint32_t lane, RunningSoftmax &running, float (&scale)[2]) {
    const uint32_t column = 2 * (lane % 4);
    if (left < 2 * COUNT) {
#pragma unroll
        for (int j = 0; j < COUNT / 4; j++) {
            if (8 * j + column >= left) s[4 * j] = s[4 * j + 2] = -INFINITY;
            if (8 * j + column + 1 >= left) s[4 * j + 1] = s[4 * j + 3] = -INFINITY;
        }
    }
    online_exponentials<false>(s, running, scale);
}

/* COLUMNS columns of sums as a chunk of bf16. */
template <int COLUMNS> DEVICE void online_write(Math &self, const float *o, const float (&rcp_sum)[2]) {
    const uint32_t fragments = fragment_address(self, math_take_chunk(self));
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j += 2) {
        const float *e = &o[4 * j];
        stmatrix_x4(fragments ^ j * 16,
                    cvt_rn_bf16x2(e[0] * rcp_sum[0], e[1] * rcp_sum[0]), cvt_rn_bf16x2(e[2] * rcp_sum[1], e[3] * rcp_sum[1]),
                    cvt_rn_bf16x2(e[4] * rcp_sum[0], e[5] * rcp_sum[0]), cvt_rn_bf16x2(e[6] * rcp_sum[1], e[7] * rcp_sum[1]));
    }
    math_give_chunk(self);
}

/* Exponentials -> A operands, and what has been added up rescaled. */
template <int REST, int COUNT> DEVICE void online_merge(const float (&s)[COUNT], const float (&scale)[2], uint32_t (&p)[COUNT / 2],
                                                        float (&o)[32], float (&o_rest)[REST ? REST / 2 : 1]) {
#pragma unroll
    for (int i = 0; i < COUNT / 2; i++) p[i] = cvt_rn_bf16x2(s[2 * i], s[2 * i + 1]);
#pragma unroll
    for (int i = 0; i < 32; i++) o[i] *= scale[i / 2 & 1];
#pragma unroll
    for (int i = 0; i < REST / 2; i++) o_rest[i] *= scale[i / 2 & 1];
}

/* Nothing is added up yet; the first block's scores are on their way. */
template <int REST, int COUNT> DEVICE void online_begin(Math &self, const OnlineQueries &queries, float (&s)[COUNT], float (&o)[32],
                                                        float (&o_rest)[REST ? REST / 2 : 1]) {
    wgmma_registers_zero(o);
    wgmma_registers_zero(o_rest);
    wgmma_registers_zero(s);
    math_wait_stage(self, self.stage);
    wgmma_registers_fence(s);
    wgmma_fence();
    online_scores<REST>(shared_address(self.shared->stage[self.stage.index]), queries, s);
}

/* The next block's scores, beside the products of this one's probabilities with its values. */
template <int REST, int COUNT>
DEVICE void online_next(Math &self, Ring<MGV__STAGES> &values, const OnlineQueries &queries, const uint32_t (&p)[COUNT / 2],
                        float (&s)[COUNT], float (&o)[32], float (&o_rest)[REST ? REST / 2 : 1]) {
    self.stage.advance();
    math_wait_stage(self, self.stage);
    wgmma_registers_zero(s);
    wgmma_registers_fence(s);
    wgmma_registers_fence(o);
    wgmma_registers_fence(o_rest);
    wgmma_fence();
    online_scores<REST>(shared_address(self.shared->stage[self.stage.index]), queries, s);
    online_values<REST>(shared_address(self.shared->stage[values.index]), p, o, o_rest);
    wgmma_wait_group<0>();
    wgmma_registers_fence(s);
    wgmma_registers_fence(o);
    wgmma_registers_fence(o_rest);
    math_leave_stage(self, values.index);
    values.advance();
}

/* The last block's values, and the rows that come of all. */
template <int REST, int COUNT>
DEVICE void online_end(Math &self, const Ring<MGV__STAGES> &values, const RunningSoftmax &running, const uint32_t (&p)[COUNT],
                       float (&o)[32], float (&o_rest)[REST ? REST / 2 : 1]) {
    wgmma_registers_fence(o);
    wgmma_registers_fence(o_rest);
    wgmma_fence();
    online_values<REST>(shared_address(self.shared->stage[values.index]), p, o, o_rest);
    wgmma_wait_group<0>();
    wgmma_registers_fence(o);
    wgmma_registers_fence(o_rest);
    math_leave_stage(self, values.index);
    self.stage.advance();
    math_group_sync(self); /* results go where queries lie: all warps are done with them */
    const float rcp_sum[2] = {1.0f / quad_sum(running.sum[0]), 1.0f / quad_sum(running.sum[1])};
    online_write<64>(self, o, rcp_sum);
    if constexpr (REST != 0) online_write<REST>(self, o_rest, rcp_sum);
}

/* All keys for one block of queries. The last block's softmax and products are outside of the loop:
   nothing may be issued conditionally between products. */
template <int REST> DEVICE void online_block(Math &self, const mgv__kernel_op &op) {
    constexpr int KEYS = online_keys<REST>();
    RunningSoftmax running = {{-INFINITY, -INFINITY}, {0, 0}};
    float s[KEYS / 2], o[32], o_rest[REST ? REST / 2 : 1], scale[2];
    uint32_t p[KEYS / 4], row = 0;
    Ring<MGV__STAGES> values = self.stage; /* whose values are multiplied next; self.stage: whose keys are */
    const OnlineQueries queries = online_queries<REST>(self);
    online_begin<REST>(self, queries, s, o, o_rest);
    wgmma_wait_group<0>();
    wgmma_registers_fence(s);
#pragma unroll 1
    for (; row + KEYS < op.tokens; row += KEYS) {
        online_softmax(s, KEYS, self.lane, running, scale);
        online_merge<REST>(s, scale, p, o, o_rest);
        online_next<REST>(self, values, queries, p, s, o, o_rest);
    }
    online_softmax(s, op.tokens - row, self.lane, running, scale);
    online_merge<REST>(s, scale, p, o, o_rest);
    online_end<REST>(self, values, running, p, o, o_rest);
}

/* A math group without work lets the tile's stages pass. */
template <int REST = 0> DEVICE void online_let_pass(Math &self, const mgv__kernel_op &op) {
#pragma unroll 1
    for (uint32_t row = 0; row < op.tokens; row += online_keys<REST>(), self.stage.advance()) {
        math_wait_stage(self, self.stage);
        warp_sync(); /* lane 0 leaves for the warp: no lane may still be looking */
        math_leave_stage(self, self.stage.index);
    }
}

template <int REST> ROUTINE void attention_online_tile(Math &self, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    const AttentionPart part = attention_part(tile, self.cta);
    if (attention_first_block(tile, part, self.group) < part.end) online_block<REST>(self, op);
    else online_let_pass<REST>(self, op); /* an image's last part may have one block only */
}

#endif /* MGV_ATTENTION_ONLINE_CUH */
