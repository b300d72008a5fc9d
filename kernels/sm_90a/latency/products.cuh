/* megavit: the latency regime's products, block after block of K, and their sums on the way to who ends a row: from math group to math
   group, and in DEEP tiles from CTA to CTA. */
#ifndef MGV_LATENCY_PRODUCTS_CUH
#define MGV_LATENCY_PRODUCTS_CUH

#include "math.cuh"

/* Block after block of 64 columns of K. A GEMM's A lies in the ring of weights and B in that of rows, and the math groups take turns with
   the blocks: a group's waits and descriptors are found beside the other's products.
   A block's stages are left when a group's next products are on their way; the rows' of a group's last block are not left here: sums are
   traded in their place. */
struct LatencyBlock {
    LatencyRowStage rows;
    LatencyWeightStage weights;
};
struct LatencyOperands {
    uint32_t a, b; /* low words of the descriptors; all high words are the same */
};
DEVICE uint64_t latency_descriptor(uint32_t low) { return matrix_descriptor(0) >> 32 << 32 | low; }
DEVICE void latency_wait_block(LatencyMath &self, const LatencyBlock &block) {
    wait_barriers(&self.shared->weights_full[block.weights.index], block.weights.parity, &self.shared->rows_full[block.rows.index],
                  block.rows.parity);
}
/* By every warp of the math group whose turn it was, a lane each. */
DEVICE void latency_leave_block(const LatencyMath &self, const LatencyBlock &block) {
    const uint64_t *const left =
        self.lane ? &self.shared->weights_empty[block.weights.index] : &self.shared->rows_empty[block.rows.index];
    if (self.lane < 2) mbarrier_arrive(shared_address(left));
}
DEVICE LatencyOperands latency_operands(const LatencyMath &self, const LatencyBlock &block) {
    const uint32_t rows = latency_stage_address(self, block.rows), weights = shared_address(self.shared->weights[block.weights.index]);
    /* else the compiler would find them again behind the wait */
    return {opaque((uint32_t)matrix_descriptor(weights)), opaque((uint32_t)matrix_descriptor(rows))};
}
template <int COUNT> DEVICE void latency_products(LatencyMath &self, uint32_t blocks, float (&acc)[COUNT]) {
    const uint32_t first = self.group;
    LatencyBlock at = {latency_stage_after(self.stage, first), latency_stage_after(self.weights, first)}, before = at;
    wgmma_registers_zero(acc);
    wgmma_registers_fence(acc);
#pragma unroll 1
    for (uint32_t block = first; block < blocks; block += MGV__MATH_GROUPS) {
        const LatencyOperands operands = latency_operands(self, at);
        latency_wait_block(self, at);
        wgmma_fence();
#pragma unroll
        for (uint32_t k = 0; k < MGV__GEMM_INNER / 16; k++) /* 16 columns are 32 bytes, descriptors count in 16 */
            wgmma_m64k16_bf16_ss(acc, latency_descriptor(operands.a + 2 * k), latency_descriptor(operands.b + 2 * k), 1);
        wgmma_commit_group();
        wgmma_wait_group<1>();
        if (block != first) latency_leave_block(self, before);
        before = at;
#pragma unroll
        for (uint32_t i = 0; i < MGV__MATH_GROUPS; i++) {
            at.rows.advance();
            at.weights.advance();
        }
    }
    wgmma_wait_group<0>();
    wgmma_registers_fence(acc);
    if (self.lane == 0) mbarrier_arrive(shared_address(&self.shared->weights_empty[before.weights.index]));
    self.stage = latency_stage_after(self.stage, blocks);
    self.weights = latency_stage_after(self.weights, blocks);
}

/* THIN: each math group multiplies its pairs of blocks; where they lie: latency_load_thin_weights, latency_load_thin_rows. No stage is left
   here. */
DEVICE LatencyRowStage latency_thin_weights(const LatencyMath &self, const LatencyThin &thin, uint32_t pair) {
    return latency_stage_after(self.stage, pair ? MGV__MATH_GROUPS + self.group * thin.behind + pair - 1 : self.group);
}
template <int COUNT> DEVICE void latency_thin_products(const LatencyMath &self, const LatencyThin &thin, float (&acc)[COUNT]) {
    /* of a block, as descriptors count */
    constexpr uint32_t WEIGHTS = MGV__LATENCY_WEIGHT_BYTES / 16, ROWS = MGV__LATENCY_THIN_BLOCK_BYTES / 16;
    const LatencyWeightStage first = latency_stage_after(self.weights, self.group);
    const LatencyRowStage behind = latency_stage_after(self.stage, thin.pairs + self.group);
    uint64_t *full = &self.shared->weights_full[first.index];
    uint32_t parity = first.parity, b = opaque((uint32_t)matrix_descriptor(shared_address(self.shared->weights[first.index])));
    wgmma_registers_zero(acc);
    wgmma_registers_fence(acc);
#pragma unroll 1
    for (uint32_t pair = 0; pair <= thin.behind; pair++) {
        const LatencyRowStage weights = latency_thin_weights(self, thin, pair);
        const uint32_t a = opaque((uint32_t)matrix_descriptor(latency_stage_address(self, weights)));
        wait_barriers(&self.shared->rows_full[weights.index], weights.parity, full, parity);
        wgmma_fence();
#pragma unroll
        for (uint32_t block = 0; block < 2; block++)
#pragma unroll
            for (uint32_t k = 0; k < MGV__GEMM_INNER / 16; k++)
                wgmma_m64k16_bf16_ss(acc, latency_descriptor(a + block * WEIGHTS + 2 * k), latency_descriptor(b + block * ROWS + 2 * k), 1);
        wgmma_commit_group();
        full = &self.shared->rows_full[behind.index];
        parity = behind.parity;
        b = pair ? b + 2 * ROWS : opaque((uint32_t)matrix_descriptor(latency_stage_address(self, behind)));
    }
    wgmma_wait_group<0>();
    wgmma_registers_fence(acc);
}
/* By every warp of a math group: the stages of its weights, a lane for each stage of the ring. */
DEVICE void latency_leave_thin_weights(const LatencyMath &self, const LatencyThin &thin) {
    const uint32_t number = (self.lane + MGV__LATENCY_ROW_STAGES - self.stage.index) % MGV__LATENCY_ROW_STAGES,
                   own = number == self.group || number - MGV__MATH_GROUPS - self.group * thin.behind < thin.behind;
    if (self.lane < MGV__LATENCY_ROW_STAGES && own) mbarrier_arrive(shared_address(&self.shared->rows_empty[self.lane]));
}
/* That of its first rows. Not before the tile is signalled: the next tile's weights, which come there, would put that off. */
DEVICE void latency_leave_thin(LatencyMath &self, const LatencyThin &thin) {
    const LatencyWeightStage first = latency_stage_after(self.weights, self.group);
    if (self.lane == 0) mbarrier_arrive(shared_address(&self.shared->weights_empty[first.index]));
    self.stage = latency_stage_after(self.stage, thin.pairs + MGV__MATH_GROUPS);
    self.weights = latency_stage_after(self.weights, MGV__MATH_GROUPS);
}

/* --- sums ------------------------------------------------------------------------------------------------------- */

/* Sums lie in groups of eight rows, tokens, four floats a thread: (column, row), (column, row + 1), (column + 8, row),
   (column + 8, row + 1), with column = 16 warp + lane / 4 and row = 2 (lane % 4).
   Of a tile's GROUPS groups math group 0 ends the first half, the longer one, and group 1 the rest. */
DEVICE constexpr uint32_t latency_first_half(uint32_t groups) { return (groups + 1) / 2; }
DEVICE uint32_t latency_thread_bytes(const LatencyMath &self) { return (self.warp * 32 + self.lane) * 16; }

/* Sums are traded in the place of the rows that each math group multiplied last: shared memory for two more stages of the ring, which
   come back when the tile ends. Every tile has a block for each group at least, if only of zeros: so the plan is made. */
struct LatencyTrade {
    LatencyRowStage own, other;
};
/* Before the products. */
DEVICE LatencyTrade latency_trade(const LatencyMath &self, uint32_t blocks) {
    const uint32_t mine = (blocks ^ self.group) & 1; /* whether the last block is this group's */
    return {latency_stage_after(self.stage, blocks - 2 + mine), latency_stage_after(self.stage, blocks - 1 - mine)};
}
/* The same of a THIN tile. */
DEVICE LatencyTrade latency_thin_trade(const LatencyMath &self, const LatencyThin &thin) {
    return {latency_stage_after(self.stage, thin.pairs + self.group), latency_stage_after(self.stage, thin.pairs + 1 - self.group)};
}
/* Behind the tile's signal, by every warp of the second math group for both: a warp of the first waits for the release meanwhile. */
DEVICE void latency_leave_trade(const LatencyMath &self, const LatencyTrade &trade) {
    if (self.group == 0) return;
    if (self.lane == trade.own.index || self.lane == trade.other.index)
        mbarrier_arrive(shared_address(&self.shared->rows_empty[self.lane]));
}

/* The sums of both math groups, of those groups of rows that this one ends. */
template <int GROUPS>
DEVICE void latency_swap_sums(const LatencyMath &self, const LatencyTrade &trade, const float (&acc)[4 * GROUPS],
                              float (&v)[4 * latency_first_half(GROUPS)]) {
    constexpr int FIRST = (int)latency_first_half(GROUPS);
    const uint32_t to = latency_stage_address(self, trade.own) + latency_thread_bytes(self),
                   from = latency_stage_address(self, trade.other) + latency_thread_bytes(self);
    latency_sync_group(self); /* all of its warps are done with the rows that lie there */
#pragma unroll
    for (int i = 0; i < GROUPS; i++) {
        const uint32_t ends = i >= FIRST, number = ends ? i - FIRST : i;
        if (self.group != ends)
            shared_store_v4f32(to + number * LATENCY_GROUP_BYTES, acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]);
    }
    latency_sync();
#pragma unroll
    for (int i = 0; i < FIRST; i++) {
        const int second = i + FIRST < GROUPS ? i + FIRST : i; /* the first half may be longer: what the second has there nobody uses */
        float other[4] = {0, 0, 0, 0};
        if (self.group == 0 || i + FIRST < GROUPS)
            shared_load_v4f32(from + i * LATENCY_GROUP_BYTES, other[0], other[1], other[2], other[3]);
#pragma unroll
        for (int e = 0; e < 4; e++) v[4 * i + e] = (self.group ? acc[4 * second + e] : acc[4 * i + e]) + other[e];
    }
}

/* The CTA that finishes group `number` of a math group's rows: the two math groups begin at different ends,
   which shares the odd ones out. */
DEVICE uint32_t latency_owner(const LatencyMath &self, uint32_t number) {
    return self.group ? MGV__LATENCY_CLUSTER - 1 - number % MGV__LATENCY_CLUSTER : number % MGV__LATENCY_CLUSTER;
}
/* Of `groups` groups of rows, in how many of the two math groups CTA `cta` finishes some. */
DEVICE uint32_t latency_owned_halves(uint32_t groups, uint32_t first_half, uint32_t cta) {
    const uint32_t first = groups < first_half ? groups : first_half, second = groups - first;
    return (cta < first) + (MGV__LATENCY_CLUSTER - 1 - cta < second);
}

/* Before sending: what was sent last has been read. Arrivals for two exchanges do not mix: all math warps of a CTA meet at each tile's end,
   so one that sends for the next exchange does so after its own CTA has arrived for this one,
   and nobody gets through the next one without it. */
DEVICE void latency_begin_exchange(LatencyMath &self) {
    wait_barrier(&self.shared->received_empty, self.exchange.parity ^ 1);
}
/* One thread of each CTA says how much comes. */
DEVICE void latency_expect_exchange(const LatencyMath &self, uint32_t bytes) {
    if (!gives_up(self.shared)) mbarrier_arrive_expect_tx(shared_address(&self.shared->received_full), bytes);
}
DEVICE void latency_wait_exchange(LatencyMath &self) {
    wait_barrier(&self.shared->received_full, self.exchange.parity);
}
/* By every math warp, when it has used what came: all CTAs may send again. */
DEVICE void latency_end_exchange(LatencyMath &self) {
    warp_sync();
    if (self.lane < MGV__LATENCY_CLUSTER)
        mbarrier_arrive_cluster(mapa_shared_cluster(shared_address(&self.shared->received_empty), self.lane));
    self.exchange.advance();
}

/* Each group of rows to the CTA that finishes it, rounded to bf16: one rounding of a term of the stream, which is rounded behind it, and
   half of the bytes. A store has two of the groups. exist: groups of this math group that are traded. */
template <int COUNT> DEVICE void latency_send_sums(LatencyMath &self, const float (&v)[COUNT], uint32_t exist) {
    latency_begin_exchange(self);
    const uint32_t sends = !gives_up(self.shared);
    const uint32_t received = shared_address(self.shared->received) + latency_thread_bytes(self),
                   full = shared_address(&self.shared->received_full);
    uint32_t to[MGV__LATENCY_CLUSTER], barrier[MGV__LATENCY_CLUSTER]; /* of the owners of four groups in a row */
#pragma unroll
    for (uint32_t n = 0; n < MGV__LATENCY_CLUSTER; n++) {
        const uint32_t owner = latency_owner(self, n);
        to[n] = mapa_shared_cluster(received, owner) + latency_sums_offset(self.cta, owner, self.group);
        barrier[n] = mapa_shared_cluster(full, owner);
    }
#pragma unroll
    for (uint32_t i = 0; i < MGV__LATENCY_CLUSTER; i++) {
        uint32_t words[4] = {0, 0, 0, 0}; /* of this group and the fourth after it, which have one owner */
#pragma unroll
        for (uint32_t n = 0; n < LATENCY_OWN_GROUPS && i + n * MGV__LATENCY_CLUSTER < COUNT / 4; n++) {
            const float *from = &v[4 * (i + n * MGV__LATENCY_CLUSTER)];
            words[2 * n] = cvt_rn_bf16x2(from[0], from[1]);
            words[2 * n + 1] = cvt_rn_bf16x2(from[2], from[3]);
        }
        if (latency_owner(self, i) != self.cta && i < exist && sends)
            st_async_cluster_v4_u32(to[i], words[0], words[1], words[2], words[3], barrier[i]);
    }
}

/* Own sums and those of the other CTAs, added in the order of the CTAs: of this CTA's groups among those of its math group. Own ones are
   rounded, too: which CTA finishes a row depends on where in a batch it lies, and its bits must not. */
template <int COUNT>
DEVICE void latency_add_sums(LatencyMath &self, const float (&v)[COUNT], uint32_t exist, float (&sum)[4 * LATENCY_OWN_GROUPS]) {
    latency_wait_exchange(self);
    float own[4 * LATENCY_OWN_GROUPS];
    uint32_t some = 0;
#pragma unroll
    for (uint32_t n = 0; n < LATENCY_OWN_GROUPS; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++) own[4 * n + e] = 0;
#pragma unroll
        for (uint32_t i = n * MGV__LATENCY_CLUSTER; i < (n + 1) * MGV__LATENCY_CLUSTER && i < COUNT / 4; i++) {
            const uint32_t mine = latency_owner(self, i) == self.cta;
            some |= mine && i < exist;
#pragma unroll
            for (int e = 0; e < 4; e++) own[4 * n + e] = mine ? v[4 * i + e] : own[4 * n + e];
        }
    }
#pragma unroll
    for (uint32_t sender = 0; sender < MGV__LATENCY_CLUSTER; sender++) {
        float words[2 * LATENCY_OWN_GROUPS];
#pragma unroll
        for (uint32_t i = 0; i < 2 * LATENCY_OWN_GROUPS; i++) words[i] = __uint_as_float(cvt_rn_bf16x2(own[2 * i], own[2 * i + 1]));
        if (some && sender != self.cta)
            shared_load_v4f32(shared_address(self.shared->received) + latency_sums_offset(sender, self.cta, self.group) +
                              latency_thread_bytes(self),
                              words[0], words[1], words[2], words[3]);
#pragma unroll
        for (uint32_t i = 0; i < 4 * LATENCY_OWN_GROUPS; i++) {
            const uint32_t word = __float_as_uint(words[i / 2]);
            const float part = i % 2 ? bf16_high(word) : bf16_low(word);
            sum[i] = sender ? sum[i] + part : part;
        }
    }
}

#endif /* MGV_LATENCY_PRODUCTS_CUH */
