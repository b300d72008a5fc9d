/* megavit: attention on Blackwell: 64 queries of a head by each math warpgroup, scores and results through tensor memory, weights back into
   it. Stages, chunks and masks as in sm_90a/throughput/attention.cuh and attention_online.cuh. */
#ifndef MGV_BLACKWELL_ATTENTION_CUH
#define MGV_BLACKWELL_ATTENTION_CUH

#include "products.cuh"
#include "../sm_90a/throughput/attention.cuh"
#include "../sm_90a/throughput/attention_online.cuh"

/* Columns of a group: scores from 0 on, weights over them, results behind the most weights that there are. */
enum { RESULT_COLUMN = MGV__MAX_KEYS / 2, RESULT_REST_COLUMN = RESULT_COLUMN + 64 };

/* Up to 256 keys, which all lie in the stages. */
template <int KEYS> DEVICE void tensor_attention_tile(TensorMath &self, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    const Ring<MGV__STAGES> first = self.stage;
    Ring<MGV__STAGES> second = first;
    second.advance();
    const uint32_t first_base = shared_address(self.shared->stage[first.index]),
                   second_base = shared_address(self.shared->stage[second.index]);
    const AttentionBlocks blocks = attention_blocks(tile, self.cta, self.group);
    const uint32_t in_second = attention_part(tile, self.cta).first + 2; /* the first block whose queries lie in the second stage */
    for (uint32_t block = blocks.first; block < blocks.end; block += blocks.step) {
        float s[KEYS / 2], o[32], rcp_sum[2];
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
        load_sums(self, 0, s);
        softmax_rows<KEYS>(s, op.tokens, self.lane, rcp_sum);
        store_powers(self, s);
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
        for (int j = 0; j < 8; j += 2) {
            const float *e = &o[4 * j];
            stmatrix_x4(fragments ^ j * 16,
                        cvt_rn_bf16x2(e[0] * rcp_sum[0], e[1] * rcp_sum[0]), cvt_rn_bf16x2(e[2] * rcp_sum[1], e[3] * rcp_sum[1]),
                        cvt_rn_bf16x2(e[4] * rcp_sum[0], e[5] * rcp_sum[0]), cvt_rn_bf16x2(e[6] * rcp_sum[1], e[7] * rcp_sum[1]));
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
template <int REST> DEVICE void tensor_online_block(TensorMath &self, const mgv__kernel_op &op) {
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
    online_write<64>(self, o, rcp_sum); /* where queries lay: all products with them have ended */
    if constexpr (REST != 0) online_write<REST>(self, o_rest, rcp_sum);
}

template <int REST> DEVICE void tensor_online_tile(TensorMath &self, const TileSlot &tile) {
    if (attention_first_block(tile, attention_part(tile, self.cta), self.group) < attention_part(tile, self.cta).end)
        tensor_online_block<REST>(self, tile.op);
    else online_let_pass(self, tile.op);
}

#endif /* MGV_BLACKWELL_ATTENTION_CUH */
