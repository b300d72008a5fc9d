/* megavit: attention of pairs of CTAs on Blackwell (cta_group::2). A math group has a head: 256 of its queries, 128 a CTA, are a product's
   rows, lane r of tensor memory has row r, and a thread has a whole row of scores. Keys come in blocks, of MGV__MAX_KEYS where that is all
   of them, else of MGV__ONLINE_KEYS with a softmax that runs along (Milakov, Gimelshein 2018). Each CTA's shared memory holds its own
   queries, half of a block's keys and half of the columns of its values: B of either product. A thread of the even CTA starts a head's
   products for both:

       stage full in both CTAs -> scores -> attended -> weights, over the scores that have been read -> weights_written, by all warps of
       both CTAs -> values -> attended -> results are read -> results_read -> the next block's scores

   so of the phases of `attended` the even ones are scores' and the odd ones values'. While a head waits for its products the other group's
   warps find exponentials.

   Nothing of it has run on a card; all of it runs on the machine model. */
#ifndef MGV_PAIR_ATTENTION_CUH
#define MGV_PAIR_ATTENTION_CUH

#include "rows128.cuh"
#include "attention.cuh"

enum { PAIR_WARPS = 4 * MGV__CLUSTER /* of a math group, in both CTAs */, PAIR_ROWS = MGV__CLUSTER * 128 };
static_assert(RESULT_COLUMN + 96 <= TENSOR_GROUP_COLUMNS && MGV__MAX_KEYS <= TENSOR_GROUP_COLUMNS, "a head's scores and results");

/* By that thread: scores of `keys` keys, rounded up, of a stage at `base`. */
DEVICE void start_pair_scores(const TensorMath &self, uint32_t base, uint32_t keys, uint32_t rest) {
    const PairStage at = pair_stage(rest);
    const uint32_t columns = mgv__pair_multiplied(keys), half = columns / MGV__CLUSTER,
                   word = instruction_word(PAIR_ROWS, columns, FORMAT_BF16, FORMAT_BF16, 0, 0);
    const uint64_t a = matrix_descriptor_k_major(base, 128, 128), b = matrix_descriptor_k_major(base + at.keys, half, 128);
#pragma unroll
    for (uint32_t k = 0; k < 4; k++)
        tcgen05_mma_f16_ss_pair(self.own, matrix_descriptor_advance(a, 32 * k), matrix_descriptor_advance(b, 32 * k), word, k);
    if (!rest) return;
    const uint64_t a_rest = matrix_descriptor_k_major(base + at.queries_rest, 128, rest * 2),
                   b_rest = matrix_descriptor_k_major(base + at.keys_rest, half, rest * 2);
#pragma unroll 1
    for (uint32_t k = 0; k < rest / 16; k++)
        tcgen05_mma_f16_ss_pair(self.own, matrix_descriptor_advance(a_rest, 32 * k), matrix_descriptor_advance(b_rest, 32 * k), word, 1);
}
/* Weights times values; the columns of these lie in panels of 32, or of 16. */
template <int COLUMNS> DEVICE void start_pair_values(const TensorMath &self, uint32_t base, uint32_t keys, uint32_t rest) {
    constexpr uint32_t width = COLUMNS == 64 ? 64 : 32;
    const uint64_t b = matrix_descriptor_mn_major(base + pair_stage(rest).values, MGV__ONLINE_KEYS, width);
#pragma unroll 1
    for (uint32_t k = 0; k < mgv__ceil_div(keys, 16); k++)
        tcgen05_mma_f16_ts_pair(self.own + RESULT_COLUMN, self.own + 8 * k,
                                matrix_descriptor_advance(b, matrix_mn_major_offset(16 * k, width)),
                                instruction_word(PAIR_ROWS, COLUMNS, FORMAT_BF16, FORMAT_BF16, 0, 1), k);
}
DEVICE void commit_pair(const TensorMath &self) {
    tcgen05_commit_pair(shared_address(&self.shared->attended[self.group]), 3);
}

/* By the whole group of either CTA: the products of this phase have ended. */
DEVICE void wait_attended(const TensorMath &self, uint32_t parity) {
    warp_sync();
    wait_barrier(&self.shared->attended[self.group], parity);
    tcgen05_fence_after_thread_sync();
}
/* This warp has loaded or stored what it wanted of tensor memory. */
DEVICE void tell_pair(uint64_t *barrier, const TensorMath &self) {
    const uint32_t even = mapa_shared_cluster(shared_address(barrier), 0);
    tcgen05_fence_before_thread_sync();
    warp_sync();
    if (self.lane == 0) mbarrier_arrive_release_cluster(even);
}

/* 32 columns of this thread's row; of scores, those of keys from `keys` on are -infinity. */
DEVICE void load_pair_columns(const TensorMath &self, uint32_t first, float (&v)[32]) {
    uint32_t bits[32];
    tcgen05_ld_32x32b(bits, self.own + first);
    tcgen05_wait_ld();
#pragma unroll
    for (int j = 0; j < 32; j++) v[j] = __uint_as_float(tcgen05_loaded(bits[j]));
}
DEVICE void load_pair_scores(const TensorMath &self, uint32_t first, uint32_t keys, float (&s)[32]) {
    load_pair_columns(self, first, s);
    if (keys >= first + 32) return;
#pragma unroll
    for (uint32_t j = 0; j < 32; j++)
        if (first + j >= keys) s[j] = -INFINITY;
}

/* Of a row: its largest score so far, the sum of its exponentials. */
struct PairSoftmax {
    float most, sum;
};
/* Scores of a block -> weights, over those that have been read. What has been added up before is to be multiplied by what it returns. */
DEVICE float pair_softmax(const TensorMath &self, uint32_t keys, PairSoftmax &row) {
    float s[32], most = row.most, sums[2] = {0, 0};
#pragma unroll 1
    for (uint32_t first = 0; first < keys; first += 32) {
        load_pair_scores(self, first, keys, s);
#pragma unroll
        for (int j = 0; j < 32; j++) most = fmaxf(most, s[j]);
    }
    const float scale = ex2_approx(row.most - most);
    row.most = most;
#pragma unroll 1
    for (uint32_t first = 0; first < keys; first += 32) {
        uint32_t p[16];
        load_pair_scores(self, first, keys, s);
#pragma unroll
        for (int j = 0; j < 32; j++) {
            s[j] = ex2_approx(s[j] - most);
            sums[j % 2] += s[j];
        }
#pragma unroll
        for (int j = 0; j < 16; j++) p[j] = cvt_rn_bf16x2(s[2 * j], s[2 * j + 1]);
        tcgen05_st_32x32b(self.own + first / 2, p);
    }
    tcgen05_wait_st();
    row.sum = row.sum * scale + (sums[0] + sums[1]);
    return scale;
}
template <int COLUMNS> DEVICE void pair_merge(const TensorMath &self, float scale, float (&o)[COLUMNS]) {
    float part[32];
#pragma unroll
    for (int first = 0; first < COLUMNS; first += 32) {
        load_pair_columns(self, RESULT_COLUMN + first, part);
#pragma unroll
        for (int j = 0; j < 32; j++) o[first + j] = o[first + j] * scale + part[j];
    }
}

/* All math warps of both CTAs leave a stage: the other head's while this one's products are on their way, and when it is full, as who has
   not waited for a use of a stage cannot tell the next one from it. */
DEVICE void leave_others_stage(TensorMath &self, const Ring<MGV__STAGES> &stage) {
    warp_sync();
    math_wait_stage(self, stage);
    warp_sync(); /* no lane may still be looking */
    math_leave_stage(self, stage.index);
}

/* Rows to chunks of 64 of them and 64 columns, or to memory in MXFP8; the last head's, where heads are odd in number, with zeros behind
   them, which the next product reads. */
template <int COLUMNS> DEVICE void pair_write(TensorMath &self, const PairQueries &q, const float (&o)[COLUMNS]) {
#pragma unroll 1
    for (uint32_t block = 0; block < mgv__ceil_div(q.count, MGV__CHUNK_ROWS); block++)
#pragma unroll
        for (int column = 0; column < COLUMNS; column += 64) {
            const uint32_t chunk = math_take_chunk(self), row = self.thread % MGV__CHUNK_ROWS;
#pragma unroll
            for (int unit = 0; unit < 8 && column + 8 * unit < COLUMNS; unit++) {
                const float *e = &o[column + 8 * unit];
                if (self.thread / MGV__CHUNK_ROWS == block)
                    shared_store_v4f32(chunk_unit(chunk, row, unit), __uint_as_float(cvt_rn_bf16x2(e[0], e[1])),
                                       __uint_as_float(cvt_rn_bf16x2(e[2], e[3])), __uint_as_float(cvt_rn_bf16x2(e[4], e[5])),
                                       __uint_as_float(cvt_rn_bf16x2(e[6], e[7])));
            }
            math_give_chunk(self);
        }
}
DEVICE void pair_write_mx(TensorMath &self, const TileSlot &tile, const PairQueries &q, const float (&o)[64]) {
    const mgv__kernel_op &op = tile.op;
    if (self.thread < q.count && q.head < op.heads) {
        const MxRow to = mx_row(self.arguments, op, tile.group, tile.unit * op.tokens + q.first + self.thread, op.inner);
        mx_store_part(to, q.head * 64, (const float (&)[32])o[0], (const float (&)[32])o[32]);
        if (q.head + 1 == op.heads && op.inner % 128) whole_fill_mx(to, op.inner);
    }
    mx_stored();
    for (uint32_t block = 0; block < mgv__ceil_div(q.count, MGV__CHUNK_ROWS); block++) {
        math_take_chunk(self); /* to give it back */
        math_give_chunk(self);
    }
}

/* COLUMNS: of a head, 64, or 96 where it has more. */
template <int COLUMNS> ROUTINE void pair_attention_tile(TensorMath &self, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    const PairQueries q = pair_queries(tile, self.cta, self.group);
    const uint32_t block = pair_keys(op), rest = COLUMNS == 64 ? 0 : rest_columns(op), has_rows = self.warp * 32 < q.count;
    PairSoftmax row = {-INFINITY, 0};
    float o[COLUMNS];
#pragma unroll
    for (int i = 0; i < COLUMNS; i++) o[i] = 0;
#pragma unroll 1
    for (uint32_t first = 0; first < op.tokens; first += block) {
        Ring<MGV__STAGES> second = self.stage;
        second.advance();
        const Ring<MGV__STAGES> own = self.group ? second : self.stage, others = self.group ? self.stage : second;
        const uint32_t keys = mgv__min_u32(op.tokens - first, block), base = shared_address(self.shared->stage[own.index]);
        float scale = 0;
        if (starts_pair_products(self)) {
            for (uint32_t before = 2; before; before--) wait_sums_read(self, before);
            wait_results_read(self);
            wait_barrier(&self.shared->stage_full[own.index], own.parity);
            start_pair_scores(self, base, keys, rest);
            commit_pair(self);
        }
        wait_attended(self, 0);
        if (has_rows) scale = pair_softmax(self, keys, row);
        tell_pair(&self.shared->weights_written[self.group], self);
        if (starts_pair_products(self)) {
            wait_pair(&self.shared->weights_written[self.group], self.parities >> PAIR_BLOCKS & 1);
            start_pair_values<COLUMNS>(self, base, keys, rest);
            commit_pair(self);
        }
        self.parities ^= 1u << PAIR_BLOCKS;
        leave_others_stage(self, others);
        wait_attended(self, 1);
        warp_sync();
        math_leave_stage(self, own.index);
        if (has_rows) pair_merge(self, scale, o);
        tell_pair(&self.shared->results_read[self.group], self);
        self.stage = second;
        self.stage.advance();
    }
    const float rcp_sum = 1.0f / row.sum;
#pragma unroll
    for (int i = 0; i < COLUMNS; i++) o[i] *= rcp_sum;
    keep_place(self);
    if constexpr (COLUMNS == 64)
        if (op.flags & MGV__KERNEL_MX_OUT) {
            pair_write_mx(self, tile, q, o);
            return;
        }
    pair_write(self, q, o);
}

#endif /* MGV_PAIR_ATTENTION_CUH */
