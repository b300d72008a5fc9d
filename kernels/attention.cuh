/* megavit: attention of one head of one image, up to 256 tokens. All keys and values lie in shared memory, so a row's scores are known whole and the
   softmax is taken in one go. Each math warpgroup takes blocks of 64 queries in turn.

   First stage of the ring: keys, queries 0-127. Second stage: values, queries 128-255. Tokens beyond the last are zero in both. */
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

/* Scores -> exponentials below the row's largest score, in place, with that score and the exponentials' sum. Columns from `keys` on become 0; a row may have none. */
template <int KEYS> DEVICE void softmax_part(float (&s)[KEYS / 2], uint32_t keys, uint32_t lane, float scale, float (&most)[2], float (&sum)[2]) {
    const uint32_t column = 2 * (lane % 4);
    float max0 = -1e30f, max1 = -1e30f, sum0 = 0, sum1 = 0; /* finite: -INFINITY less itself is no number */
    softmax_mask<KEYS - 16, KEYS>(s, keys, column);
    if (keys < KEYS - 16) softmax_mask<0, KEYS - 16>(s, keys, column); /* rare, so that most often this code is not even fetched */
#pragma unroll
    for (int j = 0; j < KEYS / 8; j++) {
        max0 = fmaxf(max0, fmaxf(s[4 * j], s[4 * j + 1]));
        max1 = fmaxf(max1, fmaxf(s[4 * j + 2], s[4 * j + 3]));
    }
    most[0] = quad_max(max0);
    most[1] = quad_max(max1);
    const float factor = scale * 1.4426950409f; /* exp(x) = 2^(x log2 e) */
    const float shift0 = -most[0] * factor, shift1 = -most[1] * factor;
#pragma unroll
    for (int j = 0; j < KEYS / 8; j++) {
        s[4 * j] = ex2_approx(s[4 * j] * factor + shift0);
        s[4 * j + 1] = ex2_approx(s[4 * j + 1] * factor + shift0);
        s[4 * j + 2] = ex2_approx(s[4 * j + 2] * factor + shift1);
        s[4 * j + 3] = ex2_approx(s[4 * j + 3] * factor + shift1);
        sum0 += s[4 * j] + s[4 * j + 1];
        sum1 += s[4 * j + 2] + s[4 * j + 3];
    }
    sum[0] = quad_sum(sum0);
    sum[1] = quad_sum(sum1);
}

/* Of all keys, with the reciprocal of each row's sum. */
template <int KEYS> DEVICE void softmax_rows(float (&s)[KEYS / 2], uint32_t tokens, uint32_t lane, float scale, float (&rcp_sum)[2]) {
    float most[2], sum[2];
    softmax_part<KEYS>(s, tokens, lane, scale, most, sum);
    rcp_sum[0] = 1.0f / sum[0];
    rcp_sum[1] = 1.0f / sum[1];
}

/* Scores and probabilities share registers: the accumulators of 16 columns are, packed, the A operand of 16 keys. */
template <int KEYS> DEVICE void pack_probabilities(const float (&s)[KEYS / 2], uint32_t (&p)[KEYS / 4]) {
#pragma unroll
    for (int i = 0; i < KEYS / 4; i++) p[i] = cvt_rn_bf16x2(s[2 * i], s[2 * i + 1]);
}

/* Of 64 queries, in registers when they return: products with KEYS keys, and of their probabilities with as many values. */
template <int KEYS> DEVICE void attention_scores(uint64_t queries, uint64_t keys, float (&s)[KEYS / 2]) {
    wgmma_registers_zero(s);
    wgmma_registers_fence(s);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; k++) wgmma_m64k16_bf16_ss(s, queries + 2 * k, keys + 2 * k, 1);
    wgmma_commit_group();
    wgmma_wait_group<0>();
    wgmma_registers_fence(s);
}
template <int KEYS> DEVICE void attention_start_values(const uint32_t (&p)[KEYS / 4], uint64_t values, float (&o)[32]) {
    wgmma_registers_zero(o);
    wgmma_registers_fence(o);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++) /* 16 keys are 2048 bytes of values: 128 descriptor units */
        wgmma_m64k16_bf16_rs_transposed_b(o, p[4 * k], p[4 * k + 1], p[4 * k + 2], p[4 * k + 3], values + 128 * k, 1);
    wgmma_commit_group();
}
template <int KEYS> DEVICE void attention_values(const uint32_t (&p)[KEYS / 4], uint64_t values, float (&o)[32]) {
    attention_start_values<KEYS>(p, values, o);
    wgmma_wait_group<0>();
    wgmma_registers_fence(o);
}

/* What comes next, if that is known by then. */
template <int KEYS> DEVICE uint32_t attention_tile(Math &self, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    Ring<MGV__STAGES> first = self.stage, second = self.stage;
    second.advance();
    const uint32_t first_base = shared_address(self.shared->stage[first.index]), second_base = shared_address(self.shared->stage[second.index]);
    const uint64_t keys = matrix_descriptor(first_base), values = matrix_descriptor(second_base);
    const AttentionPart part = attention_part(tile, self.cta);

    uint32_t next = KIND_NOT_KNOWN;
    math_wait_stage(self, first);
    for (uint32_t block = attention_first_block(tile, part, self.group); block < part.end; block += MGV__MATH_GROUPS) {
        const uint32_t later = block - part.first >= 2;
        if (later) math_wait_stage(self, second);
        const uint64_t queries = matrix_descriptor((later ? second_base : first_base) + KEYS * 128 + (block & 1) * 64 * 128);
        float s[KEYS / 2];
        attention_scores<KEYS>(queries, keys, s);

        float rcp_sum[2] = {0, 0};
        uint32_t p[KEYS / 4];
        if (block * 64 + self.warp * 16 < op.tokens) softmax_rows<KEYS>(s, op.tokens, self.lane, op.scale, rcp_sum); /* else this warp has no row */
        pack_probabilities<KEYS>(s, p);

        if (!later) math_wait_stage(self, second);
        float o[32];
        attention_start_values<KEYS>(p, values, o);
        if (block + MGV__MATH_GROUPS >= part.end) next = math_look_ahead(self);
        const uint32_t fragments = fragment_address(self, math_take_chunk(self));
        wgmma_wait_group<0>();
        wgmma_registers_fence(o);
#pragma unroll
        for (int j = 0; j < 8; j += 2) {
            const float *e = &o[4 * j];
            stmatrix_x4(fragments ^ j * 16, cvt_rn_bf16x2(e[0] * rcp_sum[0], e[1] * rcp_sum[0]), cvt_rn_bf16x2(e[2] * rcp_sum[1], e[3] * rcp_sum[1]),
                        cvt_rn_bf16x2(e[4] * rcp_sum[0], e[5] * rcp_sum[0]), cvt_rn_bf16x2(e[6] * rcp_sum[1], e[7] * rcp_sum[1]));
        }
        math_give_chunk(self);
    }
    math_wait_stage(self, second);
    warp_sync(); /* lane 0 leaves for the warp: no lane may still be looking */
    math_leave_stage(self, first.index);
    math_leave_stage(self, second.index);
    self.stage = second;
    self.stage.advance();
    return next;
}

#endif /* MGV_ATTENTION_CUH */
