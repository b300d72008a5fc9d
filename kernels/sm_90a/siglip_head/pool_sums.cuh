/* megavit: the pooling head's weighted sums for any number of tokens, 64 columns a math warpgroup. The formulas are those of pool.cuh; the
   scores are there, from a GEMM with the last norm folded in, and are taken in blocks of 128 tokens with online softmax,
   as in throughput/attention_online.cuh. */
#ifndef MGV_POOL_SUMS_CUH
#define MGV_POOL_SUMS_CUH

#include "../throughput/attention_ranges.cuh"
#include "pool.cuh"

enum { POOL_TABLE_BYTES = MGV__ONLINE_KEYS * 8 }; /* (mean, rstd) of a block's tokens */
static_assert(MGV__ONLINE_KEYS == 128, "a thread of the warpgroup takes a token");
static_assert(2 * POOL_TABLE_BYTES <= MGV__CHUNK_BYTES, "the tables of two blocks lie in a chunk");

/* Scores of the heads `row` and `row` + 8 for a block of tokens, where accumulators have them; 0 where there is no head or no token. */
template <class Warp, class Tokens>
DEVICE void pool_fetch_scores(const Warp &self, const mgv__kernel_op &op, const Tokens &tokens, uint32_t first, uint32_t row,
                              float (&s)[ONLINE_SCORES]) {
    const uint32_t pitch = (op.heads + 3) / 4 * 4, last = tokens.exists() ? tokens.count() : 0;
    const float *scores = (const float *)self.arguments.buffers[op.of.pool.scores] + tokens.first() * pitch;
#pragma unroll
    for (int i = 0; i < ONLINE_SCORES; i++) {
        const uint32_t head = row + i / 2 % 2 * 8, token = first + i / 4 * 8 + 2 * (self.lane % 4) + i % 2;
        s[i] = head < op.heads && token < last ? ld_relaxed_gpu_f32(scores + token * pitch + head) : 0;
    }
}

/* All tokens for 64 columns. */
template <class Tokens> DEVICE void pool_sums_block(Math &self, const TileSlot &tile, const Tokens &of, uint32_t block) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t exists = of.exists();
    const uint32_t tables = math_take_chunk(self); /* this group's until its result is written there */
    RunningSoftmax running = {{-INFINITY, -INFINITY}, {0, 0}};
    float s[ONLINE_SCORES], z[32], scale[2], offset[2] = {0, 0};
    uint32_t w[ONLINE_SCORES / 2];
    wgmma_registers_zero(z);
#pragma unroll 1
    for (uint32_t first = 0; first < of.count(); first += MGV__ONLINE_KEYS) {
        const uint32_t table = tables + first / MGV__ONLINE_KEYS % 2 * POOL_TABLE_BYTES, token = first + self.thread;
        float mean = 0, rstd = 0;
        pool_fetch_scores(self, op, of, first, self.warp * 16 + self.lane / 4, s);
        if (exists && token < of.count()) row_statistics(self.arguments, op, tile.group, of.first_in_group() + token, mean, rstd);
        shared_store_v2f32(table + self.thread * 8, mean, rstd);
        math_group_sync(self);
        online_softmax(s, of.count() - first, self.lane, running, scale);
        offset[0] *= scale[0];
        offset[1] *= scale[1];
        pool_weights(self, s, table, w, offset);
#pragma unroll
        for (int i = 0; i < 32; i++) z[i] *= scale[i / 2 & 1];
        math_wait_stage(self, self.stage);
        const uint64_t tokens = matrix_descriptor(shared_address(self.shared->stage[self.stage.index]) + online_box(self.group));
        pool_products(w, tokens, z);
        math_leave_stage(self, self.stage.index);
        self.stage.advance();
    }
    math_group_sync(self); /* the result goes where the tables lie */
    const float rcp_sum[2] = {1.0f / quad_sum(running.sum[0]), 1.0f / quad_sum(running.sum[1])};
    offset[0] = quad_sum(offset[0]);
    offset[1] = quad_sum(offset[1]);
    pool_write(self, op, block, z, offset, rcp_sum);
}

/* ANY_SIZE: the kernel has pictures of any size, too. A block of tokens behind the last picture's end is other pictures' rows, with a
   weight of 0. BOTH: and those of one size, of which a pair's second that is not there gets no chunk either (walk_pool_sums). */
template <bool ANY_SIZE, bool BOTH> ROUTINE void pool_sums_tile(Math &self, const TileSlot &tile) {
    const uint32_t block = tile.column * MGV__MATH_GROUPS + self.group;
    if constexpr (ANY_SIZE)
        if (self.arguments.picture_rows) {
            const PictureTokens tokens = picture_tokens(self.arguments, tile, self.cta);
            const bool sums = block < tile.op.of.pool.blocks && tokens.count();
            if (sums) pool_sums_block(self, tile, tokens, block);
#pragma unroll 1
            for (uint32_t i = sums ? mgv__ceil_div(tokens.count(), MGV__ONLINE_KEYS) : 0; i < tokens.blocks; i++) range_let_pass(self);
            return;
        }
    if constexpr (BOTH)
        if (!image_tokens(tile, self.cta).exists()) return online_let_pass(self, tile.op);
    if (block < tile.op.of.pool.blocks) pool_sums_block(self, tile, image_tokens(tile, self.cta), block);
    else online_let_pass(self, tile.op);
}

#endif /* MGV_POOL_SUMS_CUH */
