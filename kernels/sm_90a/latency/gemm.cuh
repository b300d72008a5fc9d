/* megavit: the latency regime's matrix products: 64 columns of the output by as many rows as the plan's tile has,
   each math warpgroup half of K.

   The warpgroups trade their sums, so that each ends one half of the rows. WIDE: that is all. DEEP: each CTA has the sums over a quarter of
   K; every fourth group of eight rows of a warpgroup goes to one CTA, which adds what it gets in the order of the CTAs. THIN: each CTA has
   the sums over all of K, of a quarter of the rows. Then sums become rows in shared memory, and rows go to global memory by ordinary
   stores: they are few. */
#ifndef MGV_LATENCY_GEMM_CUH
#define MGV_LATENCY_GEMM_CUH

#include "loader.cuh"
#include "../throughput/gemm.cuh"

struct LatencyMath {
    LatencyMemory *shared;
    const mgv__kernel_arguments &arguments;
    LatencyRowStage stage;
    LatencyWeightStage weights;
    Ring<MGV__SLOTS> slot;   /* that of the tile */
    Ring<1> exchange;        /* of what the cluster sends */
    Ring<1> norms;
    uint32_t group;          /* number of this math warpgroup */
    uint32_t seen = 0;       /* kinds of tiles of few rows, bit by bit */
    uint32_t warp, lane;     /* of the warpgroup, of the warp */
    uint32_t cta;
    uint32_t *counter;       /* that the tile signals; null in all threads but one */
    uint32_t tile_stored = 0; /* barrier at which the tile is handed to the warp that signals it; 0: the math warps do */
    __device__ __forceinline__ LatencyMath(LatencyMemory *s, const mgv__kernel_arguments &a, uint32_t g)
        : shared(s), arguments(a), group(g), warp(threadIdx.x % 128 / 32), lane(threadIdx.x % 32),
          cta(cluster_ctarank()), counter(nullptr) {}
};

DEVICE uint32_t latency_stage_address(const LatencyMath &self, const LatencyRowStage &stage) {
    return shared_address(self.shared->rows[stage.index]);
}
DEVICE void latency_wait_stage(LatencyMath &self, const LatencyRowStage &stage) {
    wait_barrier(&self.shared->rows_full[stage.index], stage.parity);
}
/* Before a tile reads by ordinary loads what other CTAs have written, or stores anything: the arrival of copied bytes orders neither.
   What a tile finds without them lies in front of it. */
DEVICE void latency_wait_ready(const LatencyMath &self) { wait_barrier(&self.shared->tile_ready[self.slot.index], self.slot.parity); }
/* By every warp of one math group. */
DEVICE void latency_leave_stage(const LatencyMath &self, const LatencyRowStage &stage) {
    if (self.lane == 0) mbarrier_arrive(shared_address(&self.shared->rows_empty[stage.index]));
}

/* --- ending a tile --------------------------------------------------------------------------------------------- */

/* Named barriers: all math warps; those of one math group. */
enum { LATENCY_SYNC_MATH = 1, LATENCY_SYNC_GROUP = 2 };
DEVICE void latency_sync(void) { bar_sync(LATENCY_SYNC_MATH, 32 * LATENCY_MATH_WARPS); }
/* 1 if any of their threads says so. */
DEVICE uint32_t latency_any(uint32_t yes) { return bar_red_or(LATENCY_SYNC_MATH, 32 * LATENCY_MATH_WARPS, yes); }
DEVICE void latency_sync_group(const LatencyMath &self) { bar_sync(LATENCY_SYNC_GROUP + self.group, 128); }

/* By all math warps, after their ordinary stores: visible to the copy engines of other CTAs, then counted,
   or handed to the warp that counts. Here they meet in every tile: none writes, for the next one, what another still reads. What they have
   traded in the ring lies behind them for its copies, too. (One fence for both kinds of memory, without a name, takes 0.5 us.) */
DEVICE void latency_signal(const LatencyMath &self) {
    fence_proxy_async_global();
    fence_proxy_async_shared_cta();
    latency_sync();
    if (self.tile_stored) {
        warp_sync();
        if (self.lane == 0) mbarrier_arrive(self.tile_stored);
        return;
    }
    if (self.counter) red_release_gpu_add(self.counter, 1);
}

/* Two groups of 8 columns of a row, two columns of each in every lane of a quad: lanes trade, so that each has four neighbours of one
   group. `to` is where this lane's four columns of the first two groups lie: latency_pair_column columns behind the first. */
DEVICE uint32_t latency_pair_column(uint32_t lane) { return 8 * (lane & 1) + 2 * (lane % 4 - (lane & 1)); }
DEVICE void latency_store_pair(uint32_t lane, uint16_t *to, uint32_t first, uint32_t second, bool valid) {
    const uint32_t odd = lane & 1, traded = __float_as_uint(shfl_bfly_f32(__uint_as_float(odd ? first : second), 1));
    if (valid) st_global_v2u32(to, odd ? traded : first, odd ? second : traded);
}

/* --- norms of rows ---------------------------------------------------------------------------------------------- */

/* The warp that finds them has written those of the tile's rows. */
DEVICE void latency_wait_norms(LatencyMath &self) {
    wait_barrier(&self.shared->norms_full, self.norms.parity);
}
/* By every math warp, when it has read them. */
DEVICE void latency_leave_norms(LatencyMath &self) {
    if (self.lane == 0) mbarrier_arrive(shared_address(&self.shared->norms_empty));
    self.norms.advance();
}

/* --- products --------------------------------------------------------------------------------------------------- */

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

/* --- rows ------------------------------------------------------------------------------------------------------- */

/* What is added to a thread's two columns of the output, 16 warp + lane / 4 and the eighth after it. */
DEVICE void latency_fetch_biases(const LatencyMath &self, const LatencyTile &tile, float (&bias)[2]) {
    const float *from = tile.bias + self.warp * 16 + self.lane / 4;
    bias[0] = ld_global_nc_f32(from);
    bias[1] = ld_global_nc_f32(from + 8);
}

/* Sums of COUNT groups of eight rows, `step` apart from `group` on -> values without what lies beside them in a row. */
template <int COUNT> DEVICE void latency_finish_groups(const LatencyMath &self, uint32_t flags, uint32_t group, uint32_t step,
                                                       const float (&bias)[2], const float (&sum)[4 * COUNT], float (&value)[4 * COUNT]) {
    const uint32_t norms = shared_address(&self.shared->norms[0]) + (group * 8 + 2 * (self.lane % 4)) * (uint32_t)sizeof(LatencyNorm);
    float rstd[2 * COUNT];
#pragma unroll
    for (int j = 0; j < COUNT; j++) {
        float mean[2];
        rstd[2 * j] = rstd[2 * j + 1] = 1;
        if (flags & MGV__KERNEL_FOLD_NORM)
            shared_load_v4f32(norms + j * step * 8 * (uint32_t)sizeof(LatencyNorm), mean[0], rstd[2 * j], mean[1], rstd[2 * j + 1]);
    }
#pragma unroll
    for (int i = 0; i < 4 * COUNT; i++) value[i] = rstd[i / 4 * 2 + i % 2] * sum[i] + bias[i / 2 % 2];
    if (!(flags & MGV__KERNEL_GELU_TANH)) return;
#pragma unroll
    for (int i = 0; i < 4 * COUNT; i++) value[i] = gelu_tanh_of_half(value[i]);
}

/* WIDE: COUNT groups of rows from `first` on. They turn into rows of bf16 on their way through shared memory, and leave 16 bytes a lane. */
template <int COUNT> DEVICE void latency_end_wide(const LatencyMath &self, const LatencyTile &tile, uint32_t first,
                                                  const float (&bias)[2], const float (&sum)[4 * COUNT]) {
    const uint32_t rows = shared_address(&self.shared->swap[self.group].narrow),
                   from = rows + self.warp * 4 * LATENCY_NARROW_PITCH + self.lane / 8 * LATENCY_NARROW_PITCH + self.lane % 8 * 16;
    /* of the four matrices of eight rows and columns that a warp stores at once,
       the first two are a group's columns and the eighth after them, then the next group's */
    const uint32_t to = rows + (self.lane / 16 * 8 + self.lane % 8) * LATENCY_NARROW_PITCH + (self.warp * 16 + self.lane / 8 % 2 * 8) * 2;
    float v[4 * COUNT];
    latency_finish_groups<COUNT>(self, tile.flags, first, 1, bias, sum, v);
#pragma unroll
    for (int j = 0; j < COUNT; j += 2) {
        const float *x = &v[4 * j], *y = &v[4 * (j + (j + 1 < COUNT))];
        stmatrix_x4_transposed(to + j * 8 * LATENCY_NARROW_PITCH, cvt_rn_bf16x2(x[0], x[1]), cvt_rn_bf16x2(x[2], x[3]),
                               cvt_rn_bf16x2(y[0], y[1]), cvt_rn_bf16x2(y[2], y[3]));
    }
    latency_sync_group(self);
    const uint32_t exists = self.lane % 8 * 8 < tile.columns;
#pragma unroll
    for (uint32_t i = 0; i < (COUNT + 1) / 2; i++) { /* sixteen rows */
        const uint32_t number = i * 16 + self.warp * 4 + self.lane / 8, row = first * 8 + number;
        float x, y, z, w;
        shared_load_v4f32(from + i * 16 * LATENCY_NARROW_PITCH, x, y, z, w);
        if (exists && number < COUNT * 8 && row < tile.rows)
            st_global_v4u32(tile.target + ((size_t)row * tile.pitch + self.lane % 8 * 8) * 2,
                            __float_as_uint(x), __float_as_uint(y), __float_as_uint(z), __float_as_uint(w));
    }
}

/* DEEP, THIN: a CTA's groups of rows, every `step`-th from `first` to `end`. A warp of a math group takes four rows, eight columns a
   lane. */
struct LatencyRows {
    uint32_t first, end, step;
};
static constexpr uint32_t NO_ROW = 0xFFFFFFFFu; /* no row of the tile: nothing is read, added or stored */
/* Of the rows that the math group has in shared memory, this lane's, and its place in the tile;
   NO_ROW also where the lane's columns do not exist. */
DEVICE uint32_t latency_deep_number(const LatencyMath &self) { return self.warp * 4 + self.lane / 8; }
DEVICE uint32_t latency_deep_row(const LatencyMath &self, const LatencyTile &tile, const LatencyRows &own) {
    const uint32_t group = own.first + latency_deep_number(self) / 8 * own.step;
    return group < own.end && self.lane % 8 * 8 < tile.columns ? group * 8 + latency_deep_number(self) % 8 : NO_ROW;
}

/* What is added to a lane's values: what the row has held so far, as it lies there, or what its position has.
   Fetched before the products. */
union LatencyAddend {
    uint32_t residual[4];
    float table[8];
};
DEVICE void latency_fetch_addend(const LatencyMath &self, const LatencyTile &tile, uint32_t row, LatencyAddend &addend) {
    const uint32_t column = self.lane % 8 * 8;
    if (row >= tile.rows) return;
    if (tile.flags & MGV__KERNEL_TABLE) {
        const float *table = (const float *)tile.added + (size_t)((tile.base + row) % tile.tokens) * tile.pitch + column;
#pragma unroll
        for (int i = 0; i < 8; i += 2) ld_global_nc_v2f32(table + i, addend.table[i], addend.table[i + 1]);
    }
    if (tile.flags & MGV__KERNEL_RESIDUAL) {
        const uint16_t *residual = (const uint16_t *)tile.added + (size_t)row * tile.pitch + column;
        ld_relaxed_gpu_v4u32(residual, addend.residual[0], addend.residual[1], addend.residual[2], addend.residual[3]);
    }
}
DEVICE void latency_add(uint32_t flags, const LatencyAddend &addend, float (&x)[8]) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (flags & MGV__KERNEL_TABLE) x[i] += addend.table[i];
        if (flags & MGV__KERNEL_RESIDUAL) x[i] += i % 2 ? bf16_high(addend.residual[i / 2]) : bf16_low(addend.residual[i / 2]);
    }
}

/* Where a row's go: as stats_place. All of them begin at a multiple of a part's bytes, so an address says which row it is of its 64. */
DEVICE float *latency_stats(const LatencyTile &tile, uint32_t row) {
    const uint32_t first = (uint32_t)(size_t)tile.stats % (STATS_PART * sizeof(float)) / (2 * sizeof(float));
    return tile.stats + row * 2 + (first + row) / MGV__STATS_ROWS * (tile.pitch * 2 - STATS_PART);
}

/* Mean and squared deviations of each row's 64 columns, of the rounded values, for the next norm: of a lane's eight values, then with each
   step of twice as many (Chan, Golub, LeVeque: Updating formulae and a pairwise algorithm for computing sample variances, 1979). */
DEVICE void latency_statistics(const LatencyMath &self, const LatencyTile &tile, uint32_t row, const uint32_t (&rounded)[4]) {
    float mean = 0, squares = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) mean += bf16_low(rounded[i]) + bf16_high(rounded[i]);
    mean *= 1.0f / 8;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float x = bf16_low(rounded[i]) - mean, y = bf16_high(rounded[i]) - mean;
        squares += x * x + y * y;
    }
#pragma unroll
    for (int lanes = 1; lanes < 8; lanes *= 2) { /* that have 8 * lanes values so far */
        const float other = shfl_bfly_f32(mean, lanes), off = other - mean;
        squares += shfl_bfly_f32(squares, lanes) + off * off * (float)(4 * lanes);
        mean = 0.5f * (mean + other);
    }
    if (self.lane % 8 == 0 && row < tile.rows) st_relaxed_gpu_v2f32(latency_stats(tile, row), mean, squares);
}

DEVICE void latency_end_deep(const LatencyMath &self, const LatencyTile &tile, const LatencyRows &own,
                             const float (&bias)[2], const float (&sum)[4 * LATENCY_OWN_GROUPS],
                             uint32_t row, const LatencyAddend &addend) {
    const uint32_t rows = shared_address(&self.shared->swap[self.group].rows),
                   to = rows + (2 * (self.lane % 4) * LATENCY_ROW_PITCH + self.warp * 16 + self.lane / 4) * 4;
    const uint32_t from = rows + (latency_deep_number(self) * LATENCY_ROW_PITCH + self.lane % 8 * 8) * 4;
    uint32_t rounded[4];
    float x[8];
    float value[4 * LATENCY_OWN_GROUPS];
    latency_finish_groups<LATENCY_OWN_GROUPS>(self, tile.flags, own.first, own.step, bias, sum, value);
#pragma unroll
    for (uint32_t i = 0; i < 4 * LATENCY_OWN_GROUPS; i++)
        shared_store_u32(to + ((i / 4 * 8 + i % 2) * LATENCY_ROW_PITCH + i / 2 % 2 * 8) * 4, __float_as_uint(value[i]));
    latency_sync_group(self);
    shared_load_v4f32(from, x[0], x[1], x[2], x[3]);
    shared_load_v4f32(from + 16, x[4], x[5], x[6], x[7]);
    latency_add(tile.flags, addend, x);
#pragma unroll
    for (int i = 0; i < 4; i++) rounded[i] = cvt_rn_bf16x2(x[2 * i], x[2 * i + 1]);
    const size_t at = (size_t)row * tile.pitch + self.lane % 8 * 8;
    if (row < tile.rows) st_global_v4u32(tile.target + at * 2, rounded[0], rounded[1], rounded[2], rounded[3]);
    if (tile.flags & MGV__KERNEL_STATS) latency_statistics(self, tile, row, rounded);
}

/* --- the tile ---------------------------------------------------------------------------------------------------- */

/* Sums of the groups of rows that the CTA finishes by itself: of all of K. */
template <int ROWS>
DEVICE void latency_deep_sums(LatencyMath &self, uint32_t groups, uint32_t exist, const float (&v)[4 * latency_first_half(ROWS / 8)],
                              float (&sum)[4 * LATENCY_OWN_GROUPS]) {
    latency_send_sums(self, v, exist);
    if (self.group == 0 && self.warp == 0 && self.lane == 0)
        latency_expect_exchange(self, (MGV__LATENCY_CLUSTER - 1) * LATENCY_GROUP_BYTES *
                                          latency_owned_halves(groups, latency_first_half(ROWS / 8), self.cta));
    latency_add_sums(self, v, exist, sum);
}
DEVICE void latency_thin_sums(LatencyMath &self, const LatencyThin &thin, const LatencyTrade &trade, float (&sum)[4 * LATENCY_OWN_GROUPS]) {
    static_assert((int)MGV__LATENCY_THIN_ROWS / 8 == (int)MGV__MATH_GROUPS * LATENCY_OWN_GROUPS,
                  "a math group ends as many groups of rows as in DEEP");
    float acc[MGV__LATENCY_THIN_ROWS / 2];
    latency_thin_products(self, thin, acc);
    latency_swap_sums<MGV__LATENCY_THIN_ROWS / 8>(self, trade, acc, sum);
    latency_leave_thin_weights(self, thin);
}

template <int ROWS> DEVICE void latency_gemm_tile(LatencyMath &self, const LatencyTile &tile) {
    constexpr uint32_t GROUPS = ROWS / 8, FIRST = latency_first_half(GROUPS);
    const uint32_t is_thin = tile.kind == MGV__KERNEL_THIN, is_deep = tile.kind == MGV__KERNEL_DEEP;
    const LatencyThin thin(tile.blocks);
    /* of rows; one for each CTA at least: who receives nothing could arrive for the next exchange in place of another that is late */
    const uint32_t groups = tile.rows > 8 * MGV__LATENCY_CLUSTER ? (tile.rows + 7) / 8 : (uint32_t)MGV__LATENCY_CLUSTER;
    const uint32_t before = self.group ? FIRST : 0, here = groups < before ? 0 : groups - before;
    const uint32_t exist = self.group || here < FIRST ? here : FIRST; /* of these, this math group's */
    /* DEEP: as latency_owner has it */
    LatencyRows own = {before + (self.group ? MGV__LATENCY_CLUSTER - 1 - self.cta : self.cta), before + exist, MGV__LATENCY_CLUSTER};
    if (is_thin) own = {self.group * LATENCY_OWN_GROUPS, (self.group + 1) * LATENCY_OWN_GROUPS, 1};
    const uint32_t row = latency_deep_row(self, tile, own);
    const LatencyTrade trade = is_thin ? latency_thin_trade(self, thin) : latency_trade(self, tile.blocks);
    LatencyAddend addend = {};
    float bias[2], sum[4 * LATENCY_OWN_GROUPS];
    latency_fetch_biases(self, tile, bias);
    latency_wait_ready(self);
    if (is_deep | is_thin) latency_fetch_addend(self, tile, row, addend);
    if (!is_thin) {
        float acc[ROWS / 2], v[4 * FIRST];
        latency_products(self, tile.blocks, acc);
        latency_swap_sums<GROUPS>(self, trade, acc, v);
        if (tile.flags & MGV__KERNEL_FOLD_NORM) latency_wait_norms(self);
        if (is_deep) latency_deep_sums<ROWS>(self, groups, exist, v, sum);
        else latency_end_wide<FIRST>(self, tile, before, bias, v);
    } else {
        latency_thin_sums(self, thin, trade, sum);
    }
    if (is_deep | is_thin) latency_end_deep(self, tile, own, bias, sum, row, addend);
    if (is_deep) latency_end_exchange(self);
    latency_signal(self);
    latency_leave_trade(self, trade);
    if (is_thin) latency_leave_thin(self, thin);
    if (tile.flags & MGV__KERNEL_FOLD_NORM) latency_leave_norms(self);
}

#endif /* MGV_LATENCY_GEMM_CUH */
