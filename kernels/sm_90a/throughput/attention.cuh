/* megavit: attention of one head of one image, up to 256 tokens. All keys and values lie in shared memory. Each math warpgroup takes blocks
   of 64 queries in turn, and their keys in two parts: one part's products are on their way while the other's exponentials are found.
   With OWN_HEADS each warpgroup has a head, and takes all of its blocks.

   Exponentials are powers of two: scale and log2 e are in the queries' weights. Softmax is the same whatever is taken from all of a row's
   scores. Here nothing is: float32 has room for the exponentials, and no part of a row waits for the largest score of all. A block with a
   row whose exponentials have no room is done once more, below each row's largest score.

   First stage of the ring: keys, queries 0-127. Second stage: values, queries 128-255. Tokens beyond the last are zero in both.
   With OWN_HEADS these are group 0's, and group 1's follow. */
#ifndef MGV_ATTENTION_CUH
#define MGV_ATTENTION_CUH

#include "math.cuh"

/* Columns FIRST to END - 1, but for those of tokens, become -infinity. */
template <int FIRST, int END, int COUNT> DEVICE void softmax_mask(float (&s)[COUNT], uint32_t tokens, uint32_t column) {
#pragma unroll
    for (int j = FIRST / 8; j < END / 8; j++) {
        if (8 * j + column >= tokens) s[4 * j] = s[4 * j + 2] = -INFINITY;
        if (8 * j + column + 1 >= tokens) s[4 * j + 1] = s[4 * j + 3] = -INFINITY;
    }
}

/* Scores -> powers of two below the row's largest score, in place, with the reciprocal of their sum. Columns from `keys` on become 0.
   WHOLE: below the whole number that is no less. */
template <int KEYS, bool WHOLE = false> DEVICE void softmax_rows(float (&s)[KEYS / 2], uint32_t keys, uint32_t lane, float (&rcp_sum)[2]) {
    const uint32_t column = 2 * (lane % 4);
    float max0 = -INFINITY, max1 = -INFINITY, sum0 = 0, sum1 = 0;
    softmax_mask<KEYS - 16, KEYS>(s, keys, column);
    if (keys < KEYS - 16) softmax_mask<0, KEYS - 16>(s, keys, column); /* rare, so that most often this code is not even fetched */
#pragma unroll
    for (int j = 0; j < KEYS / 8; j++) {
        max0 = fmaxf(max0, fmaxf(s[4 * j], s[4 * j + 1]));
        max1 = fmaxf(max1, fmaxf(s[4 * j + 2], s[4 * j + 3]));
    }
    max0 = WHOLE ? ceilf(quad_max(max0)) : quad_max(max0);
    max1 = WHOLE ? ceilf(quad_max(max1)) : quad_max(max1);
#pragma unroll
    for (int j = 0; j < KEYS / 8; j++) {
        s[4 * j] = ex2_approx(s[4 * j] - max0);
        s[4 * j + 1] = ex2_approx(s[4 * j + 1] - max0);
        s[4 * j + 2] = ex2_approx(s[4 * j + 2] - max1);
        s[4 * j + 3] = ex2_approx(s[4 * j + 3] - max1);
        sum0 += s[4 * j] + s[4 * j + 1];
        sum1 += s[4 * j + 2] + s[4 * j + 3];
    }
    rcp_sum[0] = 1.0f / quad_sum(sum0);
    rcp_sum[1] = 1.0f / quad_sum(sum1);
}

/* Scores and probabilities share registers: the accumulators of 16 columns are, packed, the A operand of 16 keys. */
template <int KEYS> DEVICE void pack_probabilities(const float (&s)[KEYS / 2], uint32_t (&p)[KEYS / 4]) {
#pragma unroll
    for (int i = 0; i < KEYS / 4; i++) p[i] = cvt_rn_bf16x2(s[2 * i], s[2 * i + 1]);
}

/* Of 64 queries, on their way when they return: products with a part of the keys, and of their probabilities with as many values.
   add: to what is there; else it is overwritten. */
template <int COUNT> DEVICE void part_scores(uint64_t queries, uint64_t keys, float (&s)[COUNT]) {
    wgmma_registers_fence(s);
    wgmma_fence();
#pragma unroll
    for (uint32_t k = 0; k < 4; k++) wgmma_m64k16_bf16_ss(s, descriptor_behind(queries, 2 * k), descriptor_behind(keys, 2 * k), k);
    wgmma_commit_group();
}
template <int COUNT> DEVICE void part_values(const uint32_t (&p)[COUNT], uint64_t values, float (&o)[32], uint32_t add) {
    wgmma_registers_fence(o);
    wgmma_fence();
#pragma unroll
    for (uint32_t k = 0; k < COUNT / 4; k++)
        wgmma_m64k16_bf16_rs_transposed_b(o, p[4 * k], p[4 * k + 1], p[4 * k + 2], p[4 * k + 3], descriptor_behind(values, 128 * k),
                                          add || k);
    wgmma_commit_group();
}

/* Scores -> powers of two, in place, added to each row's sum; of the first `keys` keys, those of the others up to COLUMNS are 0. */
template <int COLUMNS, int COUNT> DEVICE void part_exponentials(float (&s)[COUNT], uint32_t keys, uint32_t lane, float (&sum)[2]) {
    const uint32_t column = 2 * (lane % 4);
    float sums[2][2] = {}; /* two chains a row: one would wait for itself */
    if (keys < COLUMNS) softmax_mask<COLUMNS - 16, COLUMNS>(s, keys, column);
    if (keys < COLUMNS - 16) softmax_mask<0, COLUMNS - 16>(s, keys, column); /* rare, so that most often this code is not even fetched */
#pragma unroll
    for (int i = 0; i < COLUMNS / 2; i++) {
        s[i] = ex2_approx(s[i]);
        sums[i / 2 % 2][i % 2] += s[i];
    }
    sum[0] += sums[0][0] + sums[0][1];
    sum[1] += sums[1][0] + sums[1][1];
}
template <int COUNT> DEVICE void part_largest(const float (&s)[COUNT], uint32_t keys, uint32_t lane, float (&most)[2]) {
#pragma unroll
    for (uint32_t i = 0; i < COUNT; i++)
        if (i / 4 * 8 + 2 * (lane % 4) + i % 2 < keys) most[i / 2 % 2] = fmaxf(most[i / 2 % 2], s[i]);
}
template <int COUNT> DEVICE void part_subtract(float (&s)[COUNT], const float (&most)[2]) {
#pragma unroll
    for (uint32_t i = 0; i < COUNT; i++) s[i] -= most[i / 2 % 2];
}
/* The scores of both parts of a block less each row's largest; join: makes it that of more keys than this warpgroup has. */
template <int A, int B, class Join>
DEVICE void part_below_largest(float (&a)[A], float (&b)[B], uint32_t keys_a, uint32_t keys_b, uint32_t lane, Join join) {
    float most[2] = {-1e30f, -1e30f};
    wgmma_wait_group<0>();
    wgmma_registers_fence(a);
    wgmma_registers_fence(b);
    part_largest(a, keys_a, lane, most);
    part_largest(b, keys_b, lane, most);
    join(most);
    most[0] = quad_max(most[0]);
    most[1] = quad_max(most[1]);
    part_subtract(a, most);
    part_subtract(b, most);
}
/* Far from overflow, and what counts in the sum is far from underflow. */
DEVICE uint32_t exponentials_fit(float sum) { return sum > 0x1p-64f && sum < 0x1p100f; }

DEVICE void attention_leave_stages(const Math &self, const Ring<MGV__STAGES> &first, const Ring<MGV__STAGES> &second) {
    warp_sync(); /* lane 0 leaves for the warp: no lane may still be looking */
    math_leave_stage(self, first.index);
    math_leave_stage(self, second.index);
}

/* The first of the two stages of the tile's head number `head`; behind the last head, where the next tile begins. */
DEVICE Ring<MGV__STAGES> attention_stages(const Math &self, uint32_t head) {
    Ring<MGV__STAGES> stage = self.stage;
    for (uint32_t i = 0; i < 2 * head; i++) stage.advance();
    return stage;
}
/* Waits for the two stages of the other group's head, and leaves them: who has not waited for a use of a stage cannot tell the next one
   from it, and a stage is empty when all math warps have left it. In the middle of a tile: at its begin the other group may still be at
   the tile before, whose stages these were, and at its end it may want to have the next tile's. */
DEVICE void attention_pass_others(Math &self) {
    const Ring<MGV__STAGES> first = attention_stages(self, self.group ^ 1);
    Ring<MGV__STAGES> second = first;
    second.advance();
    math_wait_stage(self, first);
    math_wait_stage(self, second);
    attention_leave_stages(self, first, second);
}
static_assert(MGV__MATH_GROUPS == 2 && MGV__STAGES >= 2 * MGV__MATH_GROUPS, "the ring holds the heads of both groups");

/* Results of a block of 64 queries, to a chunk. */
DEVICE void attention_write(uint32_t fragments, const float (&o)[32], const float (&rcp_sum)[2]) {
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
        const float *e = &o[4 * j];
        stmatrix_x4(fragments ^ j * 16,
                    cvt_rn_bf16x2(e[0] * rcp_sum[0], e[1] * rcp_sum[0]), cvt_rn_bf16x2(e[2] * rcp_sum[1], e[3] * rcp_sum[1]),
                    cvt_rn_bf16x2(e[4] * rcp_sum[0], e[5] * rcp_sum[0]), cvt_rn_bf16x2(e[6] * rcp_sum[1], e[7] * rcp_sum[1]));
    }
}

/* What comes next, if that is known by then. */
template <int KEYS> ROUTINE uint32_t attention_tile(Math &self, const TileSlot &tile) {
    constexpr int A = (KEYS / 16 + 1) / 2 * 16, B = KEYS - A; /* keys of both parts, each a multiple of 16 */
    const mgv__kernel_op &op = tile.op;
    const uint32_t tokens_a = op.tokens < A ? op.tokens : A, tokens_b = op.tokens - tokens_a;
    const uint32_t own = own_heads(tile);
    const Ring<MGV__STAGES> first = attention_stages(self, own ? self.group : 0);
    Ring<MGV__STAGES> second = first;
    second.advance();
    const uint32_t first_base = shared_address(self.shared->stage[first.index]),
                   second_base = shared_address(self.shared->stage[second.index]);
    const uint64_t keys = known_descriptor(first_base), values = known_descriptor(second_base);
    const AttentionBlocks blocks = attention_blocks(tile, self.cta, self.group);
    const uint32_t in_second = attention_part(tile, self.cta).first + 2; /* the first block whose queries lie in the second stage */

    uint32_t next = KIND_NOT_KNOWN, once_more = 0;
    float a[A / 2], b[B / 2], o[32];
    wgmma_registers_zero(a); /* never again: the first product overwrites, but undefined registers would do harm */
    wgmma_registers_zero(b);
    wgmma_registers_zero(o);
    uint32_t block = blocks.first;
    if (block >= blocks.end) { /* nothing to do for this warpgroup */
        math_wait_stage(self, first);
        math_wait_stage(self, second);
        attention_leave_stages(self, first, second);
    }
    while (block < blocks.end) {
        const uint32_t later = block >= in_second, has_rows = block * 64 + self.warp * 16 < op.tokens; /* this warp */
        const uint64_t queries = known_descriptor((later ? second_base : first_base) + KEYS * 128 + (block & 1) * 64 * 128);
        math_wait_stage(self, later ? second : first);
        part_scores(queries, keys, a);
        part_scores(queries, descriptor_behind(keys, A * 8), b); /* A keys are A * 128 bytes */
        if (own && block == blocks.end / 2 && !once_more) attention_pass_others(self);
        if (once_more) part_below_largest(a, b, tokens_a, tokens_b, self.lane, [](float (&)[2]) {});
        uint32_t p_a[A / 4], p_b[B / 4];
        float sum[2] = {0, 0};
        wgmma_wait_group<1>();
        wgmma_registers_fence(a);
        if (has_rows) part_exponentials<A>(a, tokens_a, self.lane, sum);
        pack_probabilities<A>(a, p_a);
        if (!later) math_wait_stage(self, second);
        part_values(p_a, values, o, 0);
        wgmma_wait_group<1>();
        wgmma_registers_fence(b);
        if (has_rows) part_exponentials<B>(b, tokens_b, self.lane, sum);
        pack_probabilities<B>(b, p_b);
        part_values(p_b, descriptor_behind(values, A * 8), o, 1);
        sum[0] = quad_sum(sum[0]);
        sum[1] = quad_sum(sum[1]);
        once_more = math_group_any(self, has_rows && !once_more && !(exponentials_fit(sum[0]) && exponentials_fit(sum[1])));
        const float rcp_sum[2] = {rcp_approx(sum[0]), rcp_approx(sum[1])};
        const uint32_t last = block + blocks.step >= blocks.end;
        if (last) next = math_look_ahead(self);
        /* the keys are not wanted again; all lanes have been at a barrier */
        if (last && own && !once_more) math_leave_stage(self, first.index);
        const uint32_t fragments = fragment_address(self, math_take_chunk(self));
        wgmma_wait_group<0>();
        wgmma_registers_fence(o);
        if (once_more) continue;
        block += blocks.step;
        if (last && own) math_leave_stage(self, second.index);
        if (last && !own) attention_leave_stages(self, first, second);
        attention_write(fragments, o, rcp_sum);
        math_give_chunk(self);
    }
    self.stage = attention_stages(self, own ? MGV__MATH_GROUPS : 1);
    return next;
}

#endif /* MGV_ATTENTION_CUH */
