/* megavit: attention on Blackwell: 64 queries of a head by each math warpgroup, scores and results through tensor memory, weights back into
   it. Stages, chunks and masks as in sm_90a/throughput/attention.cuh and attention_online.cuh. */
#ifndef MGV_BLACKWELL_ATTENTION_CUH
#define MGV_BLACKWELL_ATTENTION_CUH

#include "mx.cuh"
#include "../sm_90a/throughput/attention.cuh"
#include "../sm_90a/throughput/attention_online.cuh"

/* Columns of a group: scores from 0 on, weights over them, results behind the most weights that there are. */
enum { RESULT_COLUMN = MGV__MAX_KEYS / 2, RESULT_REST_COLUMN = RESULT_COLUMN + 64 };

/* Scores of COUNT keys from key `first` on; those beyond the last are -infinity. */
template <int COUNT> DEVICE void load_scores(const TensorMath &self, uint32_t first, uint32_t keys, float (&s)[COUNT / 2]) {
    load_sums(self, first, s);
    if (keys < first + COUNT) softmax_mask<0, COUNT>(s, keys > first ? keys - first : 0, 2 * (self.lane % 4));
}
template <int COUNT> DEVICE void softmax_most(const TensorMath &self, uint32_t first, uint32_t keys, float (&most)[2]) {
    float s[COUNT / 2];
    load_scores<COUNT>(self, first, keys, s);
#pragma unroll
    for (int i = 0; i < COUNT / 2; i++) most[i / 2 & 1] = fmaxf(most[i / 2 & 1], s[i]);
}
template <int COUNT>
DEVICE void softmax_powers(const TensorMath &self, uint32_t first, uint32_t keys, const float (&most)[2], float (&sum)[2]) {
    float s[COUNT / 2];
    load_scores<COUNT>(self, first, keys, s);
#pragma unroll
    for (int i = 0; i < COUNT / 2; i++) {
        s[i] = ex2_approx(s[i] - most[i / 2 & 1]);
        sum[i / 2 & 1] += s[i];
    }
    store_powers(self, s, first / 16);
}
/* All scores become weights, over the scores that have been read, with the reciprocal of their sum: 64 keys at a time, twice, as all of
   them are more than a thread has registers for. */
template <int KEYS> DEVICE void tensor_softmax(const TensorMath &self, uint32_t keys, float (&rcp_sum)[2]) {
    constexpr int REST = KEYS % 64;
    float most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
#pragma unroll 1
    for (uint32_t first = 0; first + 64 <= KEYS; first += 64) softmax_most<64>(self, first, keys, most);
    if constexpr (REST != 0) softmax_most<REST>(self, KEYS - REST, keys, most);
    most[0] = quad_max(most[0]);
    most[1] = quad_max(most[1]);
#pragma unroll 1
    for (uint32_t first = 0; first + 64 <= KEYS; first += 64) softmax_powers<64>(self, first, keys, most, sum);
    if constexpr (REST != 0) softmax_powers<REST>(self, KEYS - REST, keys, most, sum);
    rcp_sum[0] = 1.0f / quad_sum(sum[0]);
    rcp_sum[1] = 1.0f / quad_sum(sum[1]);
}

/* Rows of 64 queries in MXFP8. The last head's, where heads are odd in number: zeros behind it, too, which the next product reads. */
DEVICE void attention_store_mx(const TensorMath &self, const TileSlot &tile, uint32_t head, uint32_t block, const float (&o)[32]) {
    const mgv__kernel_op &op = tile.op;
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) {
        const uint32_t query = block * 64 + self.warp * 16 + self.lane / 4 + 8 * r, row = tile.unit * op.tokens + query;
        const uint32_t exists = query < op.tokens && head < op.heads;
        const MxRow to = mx_row(self.arguments, op, tile.group, row, op.inner);
        mx_store_quad(to, exists, head * 64, o, r, self.lane);
        if (head + 1 == op.heads && op.inner % 128) {
            const float zeros[32] = {};
            mx_store_quad(to, exists, (head + 1) * 64, zeros, r, self.lane);
        }
    }
    mx_stored();
}

/* Up to 256 keys, which all lie in the stages. */
template <int KEYS> ROUTINE void tensor_attention_tile(TensorMath &self, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    const Ring<MGV__STAGES> first = self.stage;
    Ring<MGV__STAGES> second = first;
    second.advance();
    const uint32_t first_base = shared_address(self.shared->stage[first.index]),
                   second_base = shared_address(self.shared->stage[second.index]);
    const AttentionBlocks blocks = attention_blocks(tile, self.cta, self.group);
    const uint32_t in_second = attention_part(tile, self.cta).first + 2; /* the first block whose queries lie in the second stage */
    for (uint32_t block = blocks.first; block < blocks.end; block += blocks.step) {
        float o[32], rcp_sum[2];
        if (starts_products(self)) {
            const uint32_t later = block >= in_second,
                           queries = (later ? second_base : first_base) + KEYS * 128 + (block & 1) * 64 * 128;
            wait_barrier(&self.shared->stage_full[first.index], first.parity);
            if (later) wait_barrier(&self.shared->stage_full[second.index], second.parity);
            start_block<KEYS>(self.own, matrix_descriptor_k_major(queries, 64, 128),
                                           matrix_descriptor_k_major(first_base, KEYS, 128), 0);
            commit_done(self);
        }
        wait_done(self);
        tensor_softmax<KEYS>(self, op.tokens, rcp_sum);
        hand_to_products(self); /* the others have their scores, over which the results come */
        if (starts_products(self)) {
            wait_barrier(&self.shared->stage_full[second.index], second.parity);
            start_values<KEYS, 64>(self, RESULT_COLUMN, second_base);
            commit_done(self);
        }
        const uint32_t fragments = fragment_address(self, math_take_chunk(self));
        wait_done(self);
        load_sums(self, RESULT_COLUMN, o);
        hand_to_products(self);
#pragma unroll
        for (int i = 0; i < 32; i++) o[i] *= rcp_sum[i / 2 & 1];
        if (op.flags & MGV__KERNEL_MX_OUT) attention_store_mx(self, tile, blocks.head, block, o);
#pragma unroll
        for (int j = 0; j < 8 && !(op.flags & MGV__KERNEL_MX_OUT); j += 2) {
            const float *e = &o[4 * j];
            stmatrix_x4(fragments ^ j * 16, cvt_rn_bf16x2(e[0], e[1]), cvt_rn_bf16x2(e[2], e[3]), cvt_rn_bf16x2(e[4], e[5]),
                        cvt_rn_bf16x2(e[6], e[7]));
        }
        math_give_chunk(self);
    }
    /* who has not waited for a use of a stage cannot tell the next one from it */
    math_wait_stage(self, first);
    math_wait_stage(self, second);
    attention_leave_stages(self, first, second);
    self.stage = second;
    self.stage.advance();
}

/* Any number of keys, in blocks of 128. */
template <int REST> DEVICE void tensor_online_block(TensorMath &self, const TileSlot &tile, uint32_t head, uint32_t block) {
    const mgv__kernel_op &op = tile.op;
    RunningSoftmax running = {{-INFINITY, -INFINITY}, {0, 0}};
    float s[ONLINE_SCORES], o[32], part[32], o_rest[REST ? REST / 2 : 1], part_rest[REST ? REST / 2 : 1], scale[2];
    wgmma_registers_zero(o);
    wgmma_registers_zero(o_rest);
    const uint32_t queries = math_take_chunk(self);
    Ring<MGV__CHUNKS> second = self.chunk;
    second.advance();
    const uint32_t queries_rest = REST ? math_take_chunk(self, second) : 0;
#pragma unroll 1
    for (uint32_t row = 0; row < op.tokens; row += MGV__ONLINE_KEYS) {
        const uint32_t base = shared_address(self.shared->stage[self.stage.index]);
        if (starts_products(self)) {
            wait_barrier(&self.shared->stage_full[self.stage.index], self.stage.parity);
            start_block<MGV__ONLINE_KEYS>(self.own, matrix_descriptor_k_major(queries, 64, 128),
                                                       matrix_descriptor_k_major(base + online_box(0), MGV__ONLINE_KEYS, 128), 0);
            if constexpr (REST != 0) {
                const uint64_t a = matrix_descriptor_k_major(queries_rest, 64, REST * 2),
                               b = matrix_descriptor_k_major(base + online_rest(0, REST), MGV__ONLINE_KEYS, REST * 2);
#pragma unroll
                for (uint32_t k = 0; k < REST / 16; k++)
                    tcgen05_mma_f16_ss(self.own, matrix_descriptor_advance(a, 32 * k), matrix_descriptor_advance(b, 32 * k),
                                       instruction_word(64, MGV__ONLINE_KEYS, FORMAT_BF16, FORMAT_BF16, 0, 0), 1);
            }
            commit_done(self);
        }
        wait_done(self);
        load_sums(self, 0, s);
        online_softmax(s, op.tokens - row, self.lane, running, scale);
        store_powers(self, s);
        hand_to_products(self);
        if (starts_products(self)) {
            start_values<MGV__ONLINE_KEYS, 64>(self, RESULT_COLUMN, base + online_box(1));
            if constexpr (REST != 0) start_values<MGV__ONLINE_KEYS, REST>(self, RESULT_REST_COLUMN, base + online_rest(1, REST));
            commit_done(self);
        }
        wait_done(self);
        load_sums(self, RESULT_COLUMN, part);
        if constexpr (REST != 0) load_sums(self, RESULT_REST_COLUMN, part_rest);
        hand_to_products(self);
#pragma unroll
        for (int i = 0; i < 32; i++) o[i] = o[i] * scale[i / 2 & 1] + part[i];
#pragma unroll
        for (int i = 0; i < REST / 2; i++) o_rest[i] = o_rest[i] * scale[i / 2 & 1] + part_rest[i];
        math_wait_stage(self, self.stage);
        warp_sync(); /* lane 0 leaves for the warp: no lane may still be looking */
        math_leave_stage(self, self.stage.index);
        self.stage.advance();
    }
    const float rcp_sum[2] = {1.0f / quad_sum(running.sum[0]), 1.0f / quad_sum(running.sum[1])};
    if (REST == 0 && op.flags & MGV__KERNEL_MX_OUT) {
        math_take_chunk(self); /* to give it back */
#pragma unroll
        for (int i = 0; i < 32; i++) o[i] *= rcp_sum[i / 2 & 1];
        attention_store_mx(self, tile, head, block, o);
        math_give_chunk(self);
        return;
    }
    online_write<64>(self, o, rcp_sum); /* where queries lay: all products with them have ended */
    if constexpr (REST != 0) online_write<REST>(self, o_rest, rcp_sum);
}

template <int REST> ROUTINE void tensor_online_tile(TensorMath &self, const TileSlot &tile) {
    const AttentionPart part = attention_part(tile, self.cta);
    const uint32_t block = attention_first_block(tile, part, self.group);
    if (block >= part.end) online_let_pass(self, tile.op);
    else tensor_online_block<REST>(self, tile, part.head, block);
}

#endif /* MGV_BLACKWELL_ATTENTION_CUH */
