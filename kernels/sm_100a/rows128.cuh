/* megavit: products of 128 rows on Blackwell: a tile is one product, which one thread of the CTA starts. Lane r of tensor memory has row r,
   so a thread has a whole row of what it does with the sums: statistics, the largest of 32 columns, which MXFP8 wants, take no shuffles.
   The math groups share out the columns, in chunks of 128 rows and 32 columns.

   Sums of two tiles have room beside each other: between chunks of a tile's end the warp of that thread starts products of the next tile,
   where that is of the same kind, with the stages that are there, and leaves stages that have been multiplied. The second place is of
   columns that group 1 uses in other tiles: behind one of these it is free when the groups have met.

   MXFP8: a stage holds 128 columns of K, E4M3, and behind them the scales of both sides, which one thread copies to tensor memory in front
   of the products. Two sets of scales lie behind the first tile's 192 columns of sums: a set is overwritten when the products of two
   stages before have ended, as copies are not ordered behind products that read what they overwrite.

   PAIR: the two CTAs' tiles are one product of 256 rows, which the thread of the even CTA starts (cta_group::2): each CTA's shared memory
   holds its own rows and half of the weights, so of what single CTAs fill and read there a third is left out. The odd CTA's warp only
   leaves stages, as the even one's products end. Beside them tensor memory has attention's scores and results (pair_attention.cuh).

   Nothing of it has run on a card; all of it runs on the machine model. */
#ifndef MGV_ROWS128_CUH
#define MGV_ROWS128_CUH

#include "mx.cuh"
#include "../sm_90a/throughput/gemm.cuh"

enum { MX_SCALE_ATOMS = 3 /* of a stage: of A's 128 rows, of B's 192 */ };
enum { SCALE_COLUMN = 192, SCALE_SET_COLUMNS = MX_SCALE_ATOMS * SCALE_ATOM_COLUMNS };
static_assert(SCALE_SET_COLUMNS * 2 + 192 <= TENSOR_GROUP_COLUMNS, "the first place of sums, and scales, lie in group 0's columns");
static_assert(SCALE_COLUMN == (int)MGV__SM100_MX_COLUMNS && SCALE_SET_COLUMNS == (int)MGV__SM100_SCALE_COLUMNS &&
              TENSOR_COLUMNS == (int)MGV__SM100_TENSOR_COLUMNS, "as megavit plan has them");
static_assert(MGV__STAGES % 2 == 0, "stages that follow each other have other sets of scales");

DEVICE uint32_t pair_tiles(const TensorMath &self) { return self.parities >> PAIR_TILES; }

/* The first column of the sums in this warp's lanes: of the tile that is worked on, and of the next one. The second place is behind the
   first one, and the scales. */
template <int COLUMNS, bool MX, bool PAIR> DEVICE uint32_t whole_sums(const TensorMath &self, uint32_t next = 0) {
    constexpr uint32_t second = MX ? SCALE_COLUMN + 2 * SCALE_SET_COLUMNS : COLUMNS;
    static_assert(second + COLUMNS <= TENSOR_COLUMNS, "the sums of two tiles fit");
    static_assert(COLUMNS <= (MX ? MGV__SM100_MX_COLUMNS : MGV__SM100_SUM_COLUMNS), "as megavit plan has them");
    const uint32_t place = PAIR ? pair_tiles(self) % 2 : self.parities >> SUMS_PLACE & 1;
    return self.own - self.group * TENSOR_GROUP_COLUMNS + (place ^ next ? second : 0);
}
DEVICE uint32_t whole_scales(const TensorMath &self) {
    return self.own - self.group * TENSOR_GROUP_COLUMNS + SCALE_COLUMN + self.place % 2 * SCALE_SET_COLUMNS;
}
/* The stage that is multiplied next, or, `before` that, was. */
DEVICE uint32_t whole_stage(const TensorMath &self, uint32_t before) { return (self.place - before) % MGV__STAGES; }
DEVICE uint32_t whole_parity(const TensorMath &self) { return self.place / MGV__STAGES % 2; }

/* The instructions of one CTA and of pairs, of which a kernel has either. */
template <bool PAIR> DEVICE void copy_whole_scales(uint32_t to, uint64_t from) {
    if constexpr (PAIR) tcgen05_cp_32x128b_warpx4_pair(to, from);
    else tcgen05_cp_32x128b_warpx4(to, from);
}
template <bool PAIR> DEVICE void multiply_whole(uint32_t d, uint64_t a, uint64_t b, uint32_t word, uint32_t accumulate) {
    if constexpr (PAIR) tcgen05_mma_f16_ss_pair(d, a, b, word, accumulate);
    else tcgen05_mma_f16_ss(d, a, b, word, accumulate);
}
template <bool PAIR>
DEVICE void multiply_whole_mx(uint32_t d, uint64_t a, uint64_t b, uint32_t word, uint32_t scales, uint32_t accumulate) {
    if constexpr (PAIR) tcgen05_mma_mxf8f6f4_ss_pair(d, a, b, word, scales, scales + SCALE_ATOM_COLUMNS, accumulate);
    else tcgen05_mma_mxf8f6f4_ss(d, a, b, word, scales, scales + SCALE_ATOM_COLUMNS, accumulate);
}
template <bool PAIR> DEVICE void commit_whole(const uint64_t &barrier) { /* of a pair: in both CTAs */
    if constexpr (PAIR) tcgen05_commit_pair(shared_address(&barrier), 3);
    else tcgen05_commit(shared_address(&barrier));
}
/* Whether this CTA's warp that starts products does; else it only leaves stages. */
template <bool PAIR> DEVICE bool multiplies_whole(const TensorMath &self) { return !PAIR || self.cta == 0; }

/* By the thread that starts products: those of a block of a stage at `base`, to columns `d`. first: of a tile. */
template <int COLUMNS, bool MX, bool PAIR>
DEVICE void start_whole_block(const TensorMath &self, uint32_t d, uint32_t base, uint32_t block, uint32_t first) {
    constexpr uint32_t rows = PAIR ? 256 : 128, held = PAIR ? COLUMNS / 2 : COLUMNS; /* of weights, here */
    const uint32_t behind_a = base + gemm_depth(COLUMNS) * GEMM_A_BYTES;
    const uint64_t a = matrix_descriptor_k_major(base + block * GEMM_A_BYTES, 128, 128),
                   b = matrix_descriptor_k_major(behind_a + block * held * 128, held, 128);
    if constexpr (MX) {
        const uint32_t scales = whole_scales(self);
#pragma unroll
        for (uint32_t i = 0; i < MX_SCALE_ATOMS; i++)
            copy_whole_scales<PAIR>(scales + i * SCALE_ATOM_COLUMNS, scale_descriptor(base + MX_SCALES_AT + i * MGV__MX_ATOM_BYTES));
#pragma unroll
        for (uint32_t k = 0; k < 4; k++)
            multiply_whole_mx<PAIR>(d, matrix_descriptor_advance(a, 32 * k), matrix_descriptor_advance(b, 32 * k),
                                    instruction_word_scaled(rows, COLUMNS, FORMAT_E4M3, FORMAT_E4M3, 0, 0, k, k), scales, !first || k);
    } else {
#pragma unroll
        for (uint32_t k = 0; k < 4; k++)
            multiply_whole<PAIR>(d, matrix_descriptor_advance(a, 32 * k), matrix_descriptor_advance(b, 32 * k),
                                 instruction_word(rows, COLUMNS, FORMAT_BF16, FORMAT_BF16, 0, 0), !first || k);
    }
}

/* By the whole warp of that thread, when the next stage is full: its products are on their way. next: they are the next tile's. */
template <int COLUMNS, bool MX, bool PAIR> DEVICE void start_whole_stage(TensorMath &self, uint32_t next) {
    if (self.lane == 0 && multiplies_whole<PAIR>(self)) {
        const uint32_t d = whole_sums<COLUMNS, MX, PAIR>(self, next), stage = whole_stage(self, 0);
        const uint32_t base = shared_address(self.shared->stage[stage]);
#pragma unroll
        for (uint32_t block = 0; block < gemm_depth(COLUMNS); block++)
            start_whole_block<COLUMNS, MX, PAIR>(self, d, base, block, self.started == 0 && block == 0);
        commit_whole<PAIR>(self.shared->multiplied[0][stage]);
    }
    warp_sync();
    self.place++;
    self.started++;
}

/* By the same warp, when the products with the oldest stage have ended: it leaves the stage in both CTAs for all math warps, one arrival
   after the other, as storer_leave_stage does. */
DEVICE void leave_whole_stage(TensorMath &self) {
    const uint32_t stage = whole_stage(self, self.started - self.left);
    const uint32_t empty = shared_address(&self.shared->stage_empty[stage]), peer = self.peer_empty + stage * 8;
    tcgen05_fence_after_thread_sync(); /* scales are copied over those of these products */
    warp_sync();
#pragma unroll
    for (int warp = 0; warp < 4 * MGV__MATH_GROUPS; warp++) {
        if (self.lane == 0) mbarrier_arrive(empty);
        if (self.lane == 1) mbarrier_arrive_cluster(peer);
    }
    self.parities ^= 1u << stage;
    self.left++;
}
DEVICE void wait_whole_stage(TensorMath &self) {
    const uint32_t stage = whole_stage(self, self.started - self.left);
    wait_barrier(&self.shared->multiplied[0][stage], self.parities >> stage & 1);
    leave_whole_stage(self);
}
DEVICE bool test_whole_barrier(const uint64_t &barrier, uint32_t parity) {
    return vote_all(mbarrier_test_wait_parity(shared_address(&barrier), parity));
}

/* How many stages the next tile has, if it has been announced and is one of the same kind, whose sums lie beside this one's. */
template <int COLUMNS, bool MX> DEVICE uint32_t next_whole_steps(const TensorMath &self) {
    Ring<MGV__SLOTS> next = self.slot;
    next.advance();
    if (!test_whole_barrier(self.shared->tile_known[next.index], next.parity)) return 0;
    const TileSlot &tile = self.shared->slot[next.index];
    const bool same = mgv__tile_columns(math_announced(self, next)) == COLUMNS && tile.op.flags & MGV__KERNEL_WHOLE &&
                      MX == !!(tile.op.flags & MGV__KERNEL_MX);
    return same ? gemm_steps(tile.op) : 0;
}

/* By a thread that multiplies for a pair: behind what all warps of both CTAs have done with tensor memory. */
DEVICE void wait_pair(uint64_t *barrier, uint32_t parity) {
    while (!mbarrier_try_wait_parity_acquire_cluster(shared_address(barrier), parity)) {}
    tcgen05_fence_after_thread_sync();
}

/* Of pairs: the odd CTA has read the sums of the tile so many before this one, 1 or 2. Which phase that is: tile number t of a barrier's
   ends phase t / 2. */
DEVICE uint32_t sums_read_parity(const TensorMath &self, uint32_t before) { return (pair_tiles(self) - before) / 2 & 1; }
DEVICE void wait_sums_read(TensorMath &self, uint32_t before) {
    wait_pair(&self.shared->sums_read[(pair_tiles(self) - before) % 2], sums_read_parity(self, before));
}

/* The thread that starts the products of the group's head in attention (pair_attention.cuh), and behind the results of all of its blocks:
   both CTAs have read them. */
DEVICE bool starts_pair_products(const TensorMath &self) { return starts_products(self) && self.cta == 0; }
DEVICE void wait_results_read(const TensorMath &self) {
    wait_pair(&self.shared->results_read[self.group], ~self.parities >> PAIR_BLOCKS & 1);
}
/* By all math warps of the even CTA, in front of the first tile behind one of another kind: both groups' results have been read. The other
   group may be more than a block behind, so that its barrier's parity alone does not say so. */
DEVICE void meet_behind_attention(const TensorMath &self) {
    if (self.cta || self.parities >> GROUPS_MET & 1) return;
    if (starts_pair_products(self)) wait_results_read(self);
    tcgen05_fence_before_thread_sync();
    bar_sync(MATH_SYNC_ALL, 128 * MGV__MATH_GROUPS);
    tcgen05_fence_after_thread_sync();
}

/* Whether the next tile's first products may start: in a pair the odd CTA has read the sums of the last tile, as this one's have. */
template <bool PAIR> DEVICE bool may_run_ahead(TensorMath &self) {
    if (!PAIR || self.started || !multiplies_whole<PAIR>(self)) return true;
    const uint64_t &barrier = self.shared->sums_read[(pair_tiles(self) - 1) % 2];
    if (!test_whole_barrier(barrier, sums_read_parity(self, 1))) return false;
    wait_sums_read(self, 1); /* with what a wait acquires and a look does not */
    warp_sync();
    return true;
}

/* By the same warp, between other things: leaves stages whose products have ended and starts those of the next tile, as far as that takes
   no wait. A set of scales is written when the products of two stages before have ended. */
template <int COLUMNS, bool MX, bool PAIR> DEVICE void run_ahead(TensorMath &self) {
    while (self.left < self.started) {
        const uint32_t stage = whole_stage(self, self.started - self.left);
        if (!test_whole_barrier(self.shared->multiplied[0][stage], self.parities >> stage & 1)) break;
        leave_whole_stage(self);
    }
    const uint32_t steps = next_whole_steps<COLUMNS, MX>(self);
    if (steps == 0 || !may_run_ahead<PAIR>(self)) return;
    while (self.started < steps && (!MX || self.started - self.left < 2) &&
           test_whole_barrier(self.shared->stage_full[whole_stage(self, 0)], whole_parity(self)))
        start_whole_stage<COLUMNS, MX, PAIR>(self, 1);
}

/* What is left of the tile's products, by the warp that starts them: some have been on their way since the tile before. */
template <int COLUMNS, bool MX, bool PAIR> DEVICE void start_whole_products(TensorMath &self, uint32_t steps) {
    if (self.started == 0) {
        self.place = self.stage.index + self.stage.parity * MGV__STAGES;
        /* tiles of different kinds lie over each other as they come, so both before this one have to be read */
        for (uint32_t before = 2; PAIR && multiplies_whole<PAIR>(self) && before; before--) wait_sums_read(self, before);
    }
    while (self.started < steps) {
        while (self.started - self.left > 1) wait_whole_stage(self);
        wait_barrier(&self.shared->stage_full[whole_stage(self, 0)], whole_parity(self));
        warp_sync();
        start_whole_stage<COLUMNS, MX, PAIR>(self, 0);
    }
    if (self.lane == 0 && multiplies_whole<PAIR>(self)) {
        commit_whole<PAIR>(self.shared->done[PAIR ? pair_tiles(self) % 2 : 0]);
        if (!PAIR) commit_whole<PAIR>(self.shared->done[1]);
    }
    warp_sync();
    while (self.left < steps) wait_whole_stage(self);
    self.started = self.left = 0;
}

/* All products of the tile are on their way when it returns. */
template <int COLUMNS, bool MX, bool PAIR> DEVICE void whole_products(TensorMath &self, const TileSlot &tile) {
    const uint32_t steps = gemm_steps(tile.op), starts = self.group == 0 && self.warp == 0;
    if (starts) start_whole_products<COLUMNS, MX, PAIR>(self, steps);
    for (uint32_t step = 0; step < steps; step++, self.stage.advance())
        if (self.group == 0 && !starts) self.parities ^= 1u << self.stage.index; /* by those that do not look, too */
}

/* They have ended, and this warp may load the sums. A pair's barriers are of tiles of even and of odd number, both groups': one of each
   group's own could end two phases while that group of the other CTA waits for none. */
template <bool PAIR> DEVICE void wait_whole(TensorMath &self) {
    if constexpr (PAIR) {
        warp_sync();
        wait_barrier(&self.shared->done[pair_tiles(self) % 2], pair_tiles(self) / 2 & 1);
        tcgen05_fence_after_thread_sync();
    } else wait_done(self);
}

/* What a thread knows of its row. */
struct WholeRow {
    uint32_t row;      /* of the group of images */
    uint32_t exists;
    float rstd, shift; /* of the norm: y = rstd sum + shift column_sum + bias */
};
DEVICE WholeRow whole_row(TensorMath &self, const TileSlot &tile) {
    WholeRow r;
    r.row = gemm_first_row(tile, self.cta) + self.warp * 32 + self.lane;
    r.exists = r.row < mgv__rows_of_group(&tile.op, tile.group);
    r.rstd = 1;
    r.shift = 0;
    if (!(tile.op.flags & MGV__KERNEL_FOLD_NORM)) return r;
    /* statistics are read by ordinary loads, which the arrival of copied bytes does not order */
    wait_barrier(&self.shared->tile_ready[self.slot.index], self.slot.parity);
    if (r.exists) {
        float mean;
        row_statistics(self.arguments, tile.op, tile.group, r.row, mean, r.rstd);
        r.shift = -mean * r.rstd;
    }
    return r;
}

/* Address of 16-byte unit `unit` of a row of 64 bytes in a chunk of 128: 64-byte swizzle. */
DEVICE uint32_t whole_chunk_unit(uint32_t chunk, uint32_t row, uint32_t unit) {
    return chunk + row * 64 + ((unit ^ (row >> 1 & 3)) << 4);
}

/* Biases of four columns. at: the first within the tile; column: in the target. */
template <bool PAIR>
DEVICE void whole_biases(const TensorMath &self, const mgv__kernel_op &op, uint32_t at, uint32_t column, float (&b)[4]) {
    if constexpr (PAIR) {
        uint32_t bits[4];
        ld_global_nc_v4u32(self.arguments.vectors + op.of.gemm.bias + column, bits[0], bits[1], bits[2], bits[3]);
#pragma unroll
        for (int i = 0; i < 4; i++) b[i] = __uint_as_float(bits[i]);
    } else shared_load_v4f32(shared_address(&self.shared->vectors[at]), b[0], b[1], b[2], b[3]);
}

/* 32 columns of sums become values of the target, but for the residual. */
template <bool MX, bool PAIR>
DEVICE void whole_finish(const TensorMath &self, const TileSlot &tile, uint32_t flags, const WholeRow &r, uint32_t at, uint32_t column,
                         float (&v)[32]) {
    const mgv__kernel_op &op = tile.op;
    const float *const sums = self.arguments.vectors + op.of.gemm.bias + mgv__mx_column_sums(op.columns) + column;
#pragma unroll
    for (int j = 0; j < 32; j += 4) {
        float b[4];
        whole_biases<PAIR>(self, op, at + j, column + j, b);
        if (MX && flags & MGV__KERNEL_FOLD_NORM)
#pragma unroll
            for (int i = 0; i < 4; i += 2) {
                float s0, s1;
                ld_global_nc_v2f32(sums + j + i, s0, s1);
                b[i] += r.shift * s0;
                b[i + 1] += r.shift * s1;
            }
#pragma unroll
        for (int i = 0; i < 4; i++) v[j + i] = r.rstd * v[j + i] + b[i];
    }
    gemm_activate<32, false>(flags, v);
    if (!(flags & MGV__KERNEL_TABLE)) return;
    const float *const table = self.arguments.vectors + op.of.gemm.table + (size_t)(r.row % op.tokens) * op.columns + column;
#pragma unroll
    for (int j = 0; j < 32; j += 2) {
        float t0, t1;
        if (column + j >= op.columns) continue;
        ld_global_nc_v2f32(table + j, t0, t1);
        v[j] += t0;
        v[j + 1] += t1;
    }
}

/* The residual lies in the chunk, and the row goes there. */
DEVICE void whole_add_residual(uint32_t chunk, uint32_t row, float (&v)[32]) {
#pragma unroll
    for (int unit = 0; unit < 4; unit++) {
        float w[4];
        shared_load_v4f32(whole_chunk_unit(chunk, row, unit), w[0], w[1], w[2], w[3]);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v[8 * unit + 2 * i] += bf16_low(__float_as_uint(w[i]));
            v[8 * unit + 2 * i + 1] += bf16_high(__float_as_uint(w[i]));
        }
    }
}
DEVICE void whole_write(uint32_t chunk, uint32_t row, const float (&v)[32]) {
#pragma unroll
    for (int unit = 0; unit < 4; unit++) {
        const float *e = &v[8 * unit];
        shared_store_v4f32(whole_chunk_unit(chunk, row, unit), __uint_as_float(cvt_rn_bf16x2(e[0], e[1])),
                           __uint_as_float(cvt_rn_bf16x2(e[2], e[3])), __uint_as_float(cvt_rn_bf16x2(e[4], e[5])),
                           __uint_as_float(cvt_rn_bf16x2(e[6], e[7])));
    }
}

/* Mean and squared deviations of a row's part of 64 columns, from its two halves (Chan, Golub, LeVeque 1979). */
struct WholeStatistics {
    float count, mean, squares;
};
DEVICE void whole_count(WholeStatistics &s, uint32_t columns, const float (&v)[32]) {
    float sum = 0, squares = 0;
#pragma unroll
    for (int j = 0; j < 32; j++) sum += v[j];
    const float count = (float)columns, mean = columns ? sum / count : 0, off = mean - s.mean;
#pragma unroll
    for (int j = 0; j < 32; j++) squares += j < (int)columns ? (v[j] - mean) * (v[j] - mean) : 0;
    const float all = s.count + count, share = all ? count / all : 0;
    s.squares += squares + off * off * s.count * share;
    s.mean += off * share;
    s.count = all;
}
DEVICE void whole_store_statistics(const TensorMath &self, const TileSlot &tile, const WholeRow &r, uint32_t column,
                                   const WholeStatistics &s) {
    const mgv__kernel_op &op = tile.op;
    if (!r.exists || column >= op.columns) return;
    st_relaxed_gpu_v2f32(self.arguments.stats + op.of.gemm.stats_out + stats_place(op, op.columns, tile.group, r.row, column / 64), s.mean,
                         s.squares);
}

/* The last tile of a row may end 64 columns before what the next product reads of it does. */
DEVICE void whole_fill_mx(const MxRow &to, uint32_t column) {
    const float zeros[32] = {};
    mx_store_part(to, column, zeros, zeros);
}

template <int COLUMNS, bool MX, bool PAIR> DEVICE void whole_epilogue(TensorMath &self, const TileSlot &tile, const WholeRow &r) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t flags = gemm_flags<FLAGS_OF_TILE>(tile), in_tile = self.warp * 32 + self.lane;
    const uint32_t begin = self.group ? mgv__whole_columns(COLUMNS, 0) : 0, count = mgv__whole_columns(COLUMNS, self.group);
    const uint32_t mx = flags & MGV__KERNEL_MX_OUT, alone = flags & MGV__KERNEL_MX_ALONE;
    const MxRow mx_to = mx_row(self.arguments, op, tile.group, r.row, op.columns);
    WholeStatistics statistics = {0, 0, 0};
    uint32_t chunk = alone ? math_take_chunk(self) : 0, scales = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < count; i += 32) {
        if (self.group == 0 && self.warp == 0 && (PAIR || self.parities >> GROUPS_MET & 1)) run_ahead<COLUMNS, MX, PAIR>(self);
        const uint32_t at = begin + i, column = gemm_first_column(tile, self.cta) + at;
        if (!alone) chunk = math_take_chunk(self);
        uint32_t sums[32];
        float v[32];
        tcgen05_ld_32x32b(sums, whole_sums<COLUMNS, MX, PAIR>(self) + at);
        tcgen05_wait_ld();
#pragma unroll
        for (int j = 0; j < 32; j++) v[j] = __uint_as_float(tcgen05_loaded(sums[j]));
        whole_finish<MX, PAIR>(self, tile, flags, r, at, column, v);
        if (flags & MGV__KERNEL_RESIDUAL) whole_add_residual(chunk, in_tile, v);
        const uint32_t left = column < op.columns ? op.columns - column : 0;
        if (left < 32) /* what lies behind the last column is cut off where it is stored, not counted, zero for the next product */
#pragma unroll
            for (int j = 0; j < 32; j++)
                if (j >= (int)left) v[j] = 0;
        if (flags & MGV__KERNEL_STATS) {
            whole_count(statistics, left < 32 ? left : 32, v);
            if (i & 32) {
                whole_store_statistics(self, tile, r, column - 32, statistics);
                statistics = {0, 0, 0};
            }
        }
        if (mx && r.exists && column < mgv__mx_pitch(op.columns)) {
            scales = scales >> 8 | mx_store_block(mx_to, column, v) << 8;
            if (i & 32) mx_store_scales(mx_to, column - 32, scales);
            if (at + 32 == COLUMNS && left <= 32 && column + 32 < mgv__mx_pitch(op.columns)) whole_fill_mx(mx_to, column + 32);
        }
        if (alone) continue;
        whole_write(chunk, in_tile, v);
        if (mx) mx_stored();
        math_give_chunk(self);
    }
    if (!alone) return;
    mx_stored();
    math_give_chunk(self);
}

/* What a tile's end has started of the next one, by the warp that does, from there to there: 0 behind a tile of another kind, ahead of
   which nothing runs. */
DEVICE void leave_ahead(const TensorMath &self) {
    if (self.lane == 0)
        ((BlackwellMemory *)self.shared)->ahead = self.place | self.started << 8 | self.left << 16;
    warp_sync();
}
DEVICE void take_ahead(TensorMath &self) {
    const uint32_t ahead = ((const BlackwellMemory *)self.shared)->ahead;
    self.place = ahead & 0xFF;
    self.started = ahead >> 8 & 0xFF;
    self.left = ahead >> 16;
}

template <int COLUMNS, bool MX, bool PAIR> ROUTINE void whole_tile(TensorMath &self, const TileSlot &tile) {
    const bool starts = self.group == 0 && self.warp == 0;
    if (PAIR) meet_behind_attention(self);
    if (PAIR && starts) take_ahead(self);
    whole_products<COLUMNS, MX, PAIR>(self, tile);
    const WholeRow r = whole_row(self, tile); /* under the products */
    wait_whole<PAIR>(self);
    whole_epilogue<COLUMNS, MX, PAIR>(self, tile, r);
    /* products of the tile behind the next one, of either group, overwrite what both have read */
    tcgen05_fence_before_thread_sync();
    bar_sync(MATH_SYNC_ALL, 128 * MGV__MATH_GROUPS);
    tcgen05_fence_after_thread_sync();
    self.parities = (self.parities ^ 1u << SUMS_PLACE) | 1u << GROUPS_MET;
    if constexpr (PAIR) {
        const uint32_t read = mapa_shared_cluster(shared_address(&self.shared->sums_read[pair_tiles(self) % 2]), 0);
        self.parities += 1u << PAIR_TILES;
        tcgen05_fence_before_thread_sync();
        if (self.cta && threadIdx.x == blockDim.x - 1) mbarrier_arrive_release_cluster(read);
        if (starts) leave_ahead(self);
        keep_place(self);
    }
}

#endif /* MGV_ROWS128_CUH */
