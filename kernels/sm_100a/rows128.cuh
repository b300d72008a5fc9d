/* megavit: products of 128 rows on Blackwell: a tile is one product, which one thread of the CTA starts. Lane r of tensor memory has row r,
   so a thread has a whole row of what it does with the sums: statistics, the largest of 32 columns, which MXFP8 wants, take no shuffles.
   The math groups share out the columns, in chunks of 128 rows and 32 columns.

   MXFP8: a stage holds 128 columns of K, E4M3, and behind them the scales of both sides, which one thread copies to tensor memory in front
   of the products. Sums are in the first 192 columns then, two sets of scales behind them: a set is overwritten when the products of two
   stages before have ended, as copies are not ordered behind products that read what they overwrite.

   Nothing of it has run on a card; all of it runs on the machine model. */
#ifndef MGV_ROWS128_CUH
#define MGV_ROWS128_CUH

#include "mx.cuh"
#include "../sm_90a/throughput/gemm.cuh"

enum { MX_SCALE_ATOMS = 3 /* of a stage: of A's 128 rows, of B's 192 */ };
enum { SCALE_COLUMNS = 192, SCALE_SET_COLUMNS = 3 * SCALE_ATOM_COLUMNS /* of A, of two atoms of B */ };
static_assert(SCALE_COLUMNS + 2 * SCALE_SET_COLUMNS <= TENSOR_GROUP_COLUMNS, "sums and scales lie where group 0 has its sums otherwise");

/* The first column of the sums, in this warp's lanes. */
DEVICE uint32_t whole_sums(const TensorMath &self) { return self.own - self.group * TENSOR_GROUP_COLUMNS; }

/* By the thread that starts products: those of a stage. */
template <int COLUMNS, bool MX> DEVICE void start_whole_block(TensorMath &self, uint32_t base, uint32_t step, uint32_t block) {
    const uint32_t d = whole_sums(self), behind_a = base + gemm_depth(COLUMNS) * GEMM_A_BYTES;
    const uint64_t a = matrix_descriptor_k_major(base + block * GEMM_A_BYTES, 128, 128),
                   b = matrix_descriptor_k_major(behind_a + block * COLUMNS * 128, COLUMNS, 128);
    if constexpr (MX) {
        const uint32_t scales = d + SCALE_COLUMNS + step % 2 * SCALE_SET_COLUMNS;
#pragma unroll
        for (uint32_t i = 0; i < MX_SCALE_ATOMS; i++)
            tcgen05_cp_32x128b_warpx4(scales + i * SCALE_ATOM_COLUMNS, scale_descriptor(base + MX_SCALES_AT + i * MGV__MX_ATOM_BYTES));
#pragma unroll
        for (uint32_t k = 0; k < 4; k++)
            tcgen05_mma_mxf8f6f4_ss(d, matrix_descriptor_advance(a, 32 * k), matrix_descriptor_advance(b, 32 * k),
                                    instruction_word_scaled(128, COLUMNS, FORMAT_E4M3, FORMAT_E4M3, 0, 0, k, k), scales,
                                    scales + SCALE_ATOM_COLUMNS, step || block || k);
    } else {
#pragma unroll
        for (uint32_t k = 0; k < 4; k++)
            tcgen05_mma_f16_ss(d, matrix_descriptor_advance(a, 32 * k), matrix_descriptor_advance(b, 32 * k),
                               instruction_word(128, COLUMNS, FORMAT_BF16, FORMAT_BF16, 0, 0), step || block || k);
    }
}

/* By the warp of that thread: the products with a stage have ended, and it leaves the stage in both CTAs for all math warps: one arrival
   after the other, as storer_leave_stage does. */
DEVICE void leave_whole_stage(TensorMath &self, uint32_t stage) {
    const uint32_t empty = shared_address(&self.shared->stage_empty[stage]), peer = self.peer_empty + stage * 8;
    wait_barrier(&self.shared->multiplied[0][stage], self.parities >> stage & 1);
    tcgen05_fence_after_thread_sync(); /* scales are copied over those of these products */
    warp_sync();
#pragma unroll
    for (int warp = 0; warp < 4 * MGV__MATH_GROUPS; warp++) {
        if (self.lane == 0) mbarrier_arrive(empty);
        if (self.lane == 1) mbarrier_arrive_cluster(peer);
    }
}

/* All products of the tile are on their way when it returns, and all but the last stage is left. */
template <int COLUMNS, bool MX> DEVICE void whole_products(TensorMath &self, const TileSlot &tile) {
    const uint32_t steps = gemm_steps(tile.op), starts = self.group == 0 && self.warp == 0;
    uint32_t before = 0;
    for (uint32_t step = 0; step < steps; step++) {
        const uint32_t stage = self.stage.index;
        if (starts) {
            if (self.lane == 0) {
                wait_barrier(&self.shared->stage_full[stage], self.stage.parity);
#pragma unroll
                for (uint32_t block = 0; block < gemm_depth(COLUMNS); block++)
                    start_whole_block<COLUMNS, MX>(self, shared_address(self.shared->stage[stage]), step, block);
                tcgen05_commit(shared_address(&self.shared->multiplied[0][stage]));
            }
            warp_sync();
            if (step) leave_whole_stage(self, before);
        }
        if (step && self.group == 0) self.parities ^= 1u << before; /* by those that do not look, too */
        before = stage;
        self.stage.advance();
    }
    if (starts) {
        if (self.lane == 0) {
            tcgen05_commit(shared_address(&self.shared->done[0]));
            tcgen05_commit(shared_address(&self.shared->done[1]));
        }
        warp_sync();
        leave_whole_stage(self, before);
    }
    if (self.group == 0) self.parities ^= 1u << before;
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

/* 32 columns of sums become values of the target, but for the residual. at: the first of them within the tile; column: in the target. */
template <bool MX>
DEVICE void whole_finish(const TensorMath &self, const TileSlot &tile, uint32_t flags, const WholeRow &r, uint32_t at, uint32_t column,
                         float (&v)[32]) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t biases = shared_address(&self.shared->vectors[at]);
    const float *const sums = self.arguments.vectors + op.of.gemm.bias + mgv__mx_column_sums(op.columns) + column;
#pragma unroll
    for (int j = 0; j < 32; j += 4) {
        float b[4];
        shared_load_v4f32(biases + 4 * j, b[0], b[1], b[2], b[3]);
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

template <int COLUMNS, bool MX> DEVICE void whole_epilogue(TensorMath &self, const TileSlot &tile, const WholeRow &r) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t flags = gemm_flags<FLAGS_OF_TILE>(tile), in_tile = self.warp * 32 + self.lane;
    const uint32_t begin = self.group ? mgv__whole_columns(COLUMNS, 0) : 0, count = mgv__whole_columns(COLUMNS, self.group);
    const uint32_t mx = flags & MGV__KERNEL_MX_OUT, alone = flags & MGV__KERNEL_MX_ALONE;
    const MxRow mx_to = mx_row(self.arguments, op, tile.group, r.row, op.columns);
    WholeStatistics statistics = {0, 0, 0};
    uint32_t chunk = alone ? math_take_chunk(self) : 0, scales = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < count; i += 32) {
        const uint32_t at = begin + i, column = gemm_first_column(tile, self.cta) + at;
        if (!alone) chunk = math_take_chunk(self);
        uint32_t sums[32];
        float v[32];
        tcgen05_ld_32x32b(sums, whole_sums(self) + at);
        tcgen05_wait_ld();
#pragma unroll
        for (int j = 0; j < 32; j++) v[j] = __uint_as_float(tcgen05_loaded(sums[j]));
        whole_finish<MX>(self, tile, flags, r, at, column, v);
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

template <int COLUMNS, bool MX> DEVICE void whole_tile(TensorMath &self, const TileSlot &tile) {
    whole_products<COLUMNS, MX>(self, tile);
    const WholeRow r = whole_row(self, tile); /* under the products */
    wait_done(self);
    whole_epilogue<COLUMNS, MX>(self, tile, r);
    /* the next products, of either group, overwrite what both have read */
    tcgen05_fence_before_thread_sync();
    bar_sync(MATH_SYNC_ALL, 128 * MGV__MATH_GROUPS);
    tcgen05_fence_after_thread_sync();
}

#endif /* MGV_ROWS128_CUH */
