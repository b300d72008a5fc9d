/* megavit: the latency regime's matrix products: 64 columns of the output by as many rows as the plan's tile has,
   each math warpgroup half of K.

   The warpgroups trade their sums, so that each ends one half of the rows. WIDE: that is all. DEEP: each CTA has the sums over a quarter of
   K; every fourth group of eight rows of a warpgroup goes to one CTA, which adds what it gets in the order of the CTAs. THIN: each CTA has
   the sums over all of K, of a quarter of the rows. Then sums become rows in shared memory, and rows go to global memory by ordinary
   stores: they are few. */
#ifndef MGV_LATENCY_GEMM_CUH
#define MGV_LATENCY_GEMM_CUH

#include "products.cuh"

/* --- rows ------------------------------------------------------------------------------------------------------- */

/* What is added to a thread's two columns of the output, 16 warp + lane / 4 and the eighth after it. */
DEVICE void latency_fetch_biases(const LatencyMath &self, const LatencyTile &tile, float (&bias)[2]) {
    const float *from = tile.bias + self.warp * 16 + self.lane / 4;
    bias[0] = ld_global_nc_f32(from);
    bias[1] = ld_global_nc_f32(from + 8);
}

/* What only the kernel of towers has code for: towers.cuh. */
template <int COUNT, bool ANY_WIDTH>
DEVICE void latency_turn(const LatencyMath &self, const LatencyTile &tile, const TileSlot &slot, uint32_t first, float (&v)[4 * COUNT]);
template <int COUNT> DEVICE void latency_open_gates(uint32_t flags, float (&v)[4 * COUNT]);
template <int COUNT> DEVICE void latency_gated_matrices(uint32_t to, const float (&v)[4 * COUNT]);
DEVICE void latency_fetch_samples(const LatencyMath &self, const LatencyTile &tile, uint32_t row, float (&sum)[8]);

/* Sums of COUNT groups of eight rows, `step` apart from `group` on -> values without what lies beside them in a row. RARE: activations
   are others, too; TOWER: they may be a gate's. */
template <int COUNT, bool RARE, bool TOWER>
DEVICE void latency_finish_groups(const LatencyMath &self, uint32_t flags, uint32_t group, uint32_t step, const float (&bias)[2],
                                  const float (&sum)[4 * COUNT], float (&value)[4 * COUNT]) {
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
    if constexpr (TOWER) {
        if (flags & MGV__KERNEL_GATED) return latency_open_gates<COUNT>(flags, value);
        if (flags & MGV__KERNEL_SILU) return gemm_activate<4 * COUNT, true>(MGV__KERNEL_SILU, value);
    }
    if constexpr (RARE) {
        if (flags & MGV__KERNEL_RARE_ACTIVATION) {
#pragma unroll
            for (int i = 0; i < 4 * COUNT; i++)
                value[i] = flags & MGV__KERNEL_GELU_ERF     ? gelu_erf_of_half(value[i])
                           : flags & MGV__KERNEL_GELU_QUICK ? gelu_quick_of_half(value[i])
                                                            : fmaxf(value[i], 0);
            return;
        }
    }
    if (!(flags & MGV__KERNEL_GELU_TANH)) return;
#pragma unroll
    for (int i = 0; i < 4 * COUNT; i++) value[i] = gelu_tanh_of_half(value[i]);
}

/* The pooling head's scores, as they are: few columns. */
template <int COUNT>
DEVICE void latency_store_scores(const LatencyMath &self, const LatencyTile &tile, uint32_t first, const float (&v)[4 * COUNT]) {
    const uint32_t column = self.warp * 16 + self.lane / 4;
#pragma unroll
    for (int i = 0; i < 4 * COUNT; i++) {
        const uint32_t row = (first + i / 4) * 8 + 2 * (self.lane % 4) + i % 2, of_row = column + i / 2 % 2 * 8;
        if (row < tile.rows && of_row < tile.columns)
            st_global_u32((float *)tile.target + (size_t)row * tile.pitch + of_row, __float_as_uint(v[i]));
    }
}

/* WIDE: COUNT groups of rows from `first` on. They turn into rows of bf16 on their way through shared memory, and leave 16 bytes a lane. */
template <int COUNT, uint32_t KINDS>
DEVICE void latency_end_wide(const LatencyMath &self, const LatencyTile &tile, const TileSlot &slot, uint32_t first, const float (&bias)[2],
                             const float (&sum)[4 * COUNT]) {
    const uint32_t rows = shared_address(&self.shared->swap[self.group].narrow),
                   from = rows + self.warp * 4 * LATENCY_NARROW_PITCH + self.lane / 8 * LATENCY_NARROW_PITCH + self.lane % 8 * 16;
    /* of the four matrices of eight rows and columns that a warp stores at once,
       the first two are a group's columns and the eighth after them, then the next group's */
    const uint32_t to = rows + (self.lane / 16 * 8 + self.lane % 8) * LATENCY_NARROW_PITCH + (self.warp * 16 + self.lane / 8 % 2 * 8) * 2;
    float v[4 * COUNT];
    latency_finish_groups<COUNT, has_kind<KINDS>(MGV__KERNEL_ROWS), is_tower<KINDS>()>(self, tile.flags, first, 1, bias, sum, v);
    if constexpr (has_kind<KINDS>(MGV__KERNEL_POOL_SUMS))
        if (tile.flags & MGV__KERNEL_FLOAT_OUT) return latency_store_scores<COUNT>(self, tile, first, v);
    const uint32_t gated = is_tower<KINDS>() ? tile.flags & MGV__KERNEL_GATED : 0;
    if constexpr (is_tower<KINDS>()) {
        if (tile.flags & MGV__KERNEL_ROTARY) latency_turn<COUNT, latency_any_width<KINDS>()>(self, tile, slot, first, v);
        if (gated) latency_gated_matrices<COUNT>(rows + self.lane * LATENCY_NARROW_PITCH + self.warp * 16, v);
    }
#pragma unroll
    for (int j = 0; j < COUNT && !gated; j += 2) {
        const float *x = &v[4 * j], *y = &v[4 * (j + (j + 1 < COUNT))];
        stmatrix_x4_transposed(to + j * 8 * LATENCY_NARROW_PITCH, cvt_rn_bf16x2(x[0], x[1]), cvt_rn_bf16x2(x[2], x[3]),
                               cvt_rn_bf16x2(y[0], y[1]), cvt_rn_bf16x2(y[2], y[3]));
    }
    latency_sync_group(self);
    const uint32_t exists = self.lane % 8 * 8 < tile.columns;
#pragma unroll
    for (uint32_t i = 0; i < (COUNT + 1) / 2; i++) { /* sixteen rows */
        const uint32_t number = i * 16 + self.warp * 4 + self.lane / 8, row = first * 8 + number;
        float x = 0, y = 0, z = 0, w = 0;
        if (!is_tower<KINDS>() || exists) /* gated rows are half as long */
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
template <bool TOWER>
DEVICE void latency_fetch_addend(const LatencyMath &self, const LatencyTile &tile, uint32_t row, LatencyAddend &addend) {
    const uint32_t column = self.lane % 8 * 8;
    if (row >= tile.rows) return;
    if (TOWER && tile.flags & MGV__KERNEL_SAMPLED) latency_fetch_samples(self, tile, row, addend.table);
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
template <bool TOWER> DEVICE void latency_add(uint32_t flags, const LatencyAddend &addend, float (&x)[8]) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (flags & (TOWER ? MGV__KERNEL_TABLE | MGV__KERNEL_SAMPLED : MGV__KERNEL_TABLE)) x[i] += addend.table[i];
        if (flags & MGV__KERNEL_RESIDUAL) x[i] += i % 2 ? bf16_high(addend.residual[i / 2]) : bf16_low(addend.residual[i / 2]);
    }
}

/* Where a row's go: as stats_place. All of them begin at a multiple of a part's bytes, so an address says which row it is of its 64. */
template <bool ANY_WIDTH> DEVICE float *latency_stats(const LatencyTile &tile, uint32_t row) {
    const uint32_t first = (uint32_t)(size_t)tile.stats % (STATS_PART * sizeof(float)) / (2 * sizeof(float)),
                   columns = ANY_WIDTH ? (tile.pitch + 63) / 64 * 64 : tile.pitch;
    return tile.stats + row * 2 + (first + row) / MGV__STATS_ROWS * (columns * 2 - STATS_PART);
}

/* Of a row's last columns, where these are fewer than 64: whole lanes' of eight. */
DEVICE void latency_last_statistics(const LatencyMath &self, const LatencyTile &tile, uint32_t row, const uint32_t (&rounded)[4]) {
    const uint32_t exists = self.lane % 8 * 8 < tile.columns;
    float mean = 0, squares = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) mean += exists ? bf16_low(rounded[i]) + bf16_high(rounded[i]) : 0;
#pragma unroll
    for (int lanes = 1; lanes < 8; lanes *= 2) mean += shfl_bfly_f32(mean, lanes);
    mean /= (float)tile.columns;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float x = bf16_low(rounded[i]) - mean, y = bf16_high(rounded[i]) - mean;
        squares += exists ? x * x + y * y : 0;
    }
#pragma unroll
    for (int lanes = 1; lanes < 8; lanes *= 2) squares += shfl_bfly_f32(squares, lanes);
    if (self.lane % 8 == 0 && row < tile.rows) st_relaxed_gpu_v2f32(latency_stats<true>(tile, row), mean, squares);
}
/* Mean and squared deviations of each row's 64 columns, of the rounded values, for the next norm: of a lane's eight values, then with each
   step of twice as many (Chan, Golub, LeVeque: Updating formulae and a pairwise algorithm for computing sample variances, 1979). */
template <bool ANY_WIDTH>
DEVICE void latency_statistics(const LatencyMath &self, const LatencyTile &tile, uint32_t row, const uint32_t (&rounded)[4]) {
    float mean = 0, squares = 0;
    if (ANY_WIDTH && tile.columns < MGV__LATENCY_COLUMNS) return latency_last_statistics(self, tile, row, rounded);
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
    if (self.lane % 8 == 0 && row < tile.rows) st_relaxed_gpu_v2f32(latency_stats<ANY_WIDTH>(tile, row), mean, squares);
}

template <uint32_t KINDS>
DEVICE void latency_end_deep(const LatencyMath &self, const LatencyTile &tile, const LatencyRows &own,
                             const float (&bias)[2], const float (&sum)[4 * LATENCY_OWN_GROUPS],
                             uint32_t row, const LatencyAddend &addend) {
    const uint32_t rows = shared_address(&self.shared->swap[self.group].rows),
                   to = rows + (2 * (self.lane % 4) * LATENCY_ROW_PITCH + self.warp * 16 + self.lane / 4) * 4;
    const uint32_t from = rows + (latency_deep_number(self) * LATENCY_ROW_PITCH + self.lane % 8 * 8) * 4;
    uint32_t rounded[4];
    float x[8];
    float value[4 * LATENCY_OWN_GROUPS];
    latency_finish_groups<LATENCY_OWN_GROUPS, has_kind<KINDS>(MGV__KERNEL_ROWS), is_tower<KINDS>()>(self, tile.flags, own.first, own.step,
                                                                                                    bias, sum, value);
#pragma unroll
    for (uint32_t i = 0; i < 4 * LATENCY_OWN_GROUPS; i++)
        shared_store_u32(to + ((i / 4 * 8 + i % 2) * LATENCY_ROW_PITCH + i / 2 % 2 * 8) * 4, __float_as_uint(value[i]));
    latency_sync_group(self);
    shared_load_v4f32(from, x[0], x[1], x[2], x[3]);
    shared_load_v4f32(from + 16, x[4], x[5], x[6], x[7]);
    latency_add<is_tower<KINDS>()>(tile.flags, addend, x);
#pragma unroll
    for (int i = 0; i < 4; i++) rounded[i] = cvt_rn_bf16x2(x[2 * i], x[2 * i + 1]);
    const size_t at = (size_t)row * tile.pitch + self.lane % 8 * 8;
    if (row < tile.rows) st_global_v4u32(tile.target + at * 2, rounded[0], rounded[1], rounded[2], rounded[3]);
    if (tile.flags & MGV__KERNEL_STATS) latency_statistics<latency_any_width<KINDS>()>(self, tile, row, rounded);
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

template <int ROWS, uint32_t KINDS> ROUTINE void latency_gemm_tile(LatencyMath &self, const LatencyTile &tile, const TileSlot &slot) {
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
    if (is_deep | is_thin) latency_fetch_addend<is_tower<KINDS>()>(self, tile, row, addend);
    if (!is_thin) {
        float acc[ROWS / 2], v[4 * FIRST];
        latency_products(self, tile.blocks, acc);
        latency_swap_sums<GROUPS>(self, trade, acc, v);
        if (tile.flags & MGV__KERNEL_FOLD_NORM) latency_wait_norms(self);
        if (is_deep) latency_deep_sums<ROWS>(self, groups, exist, v, sum);
        else latency_end_wide<FIRST, KINDS>(self, tile, slot, before, bias, v);
    } else {
        latency_thin_sums(self, thin, trade, sum);
    }
    if (is_deep | is_thin) latency_end_deep<KINDS>(self, tile, own, bias, sum, row, addend);
    if (is_deep) latency_end_exchange(self);
    latency_signal(self);
    latency_leave_trade(self, trade);
    if (is_thin) latency_leave_thin(self, thin);
    if (tile.flags & MGV__KERNEL_FOLD_NORM) latency_leave_norms(self);
}

#endif /* MGV_LATENCY_GEMM_CUH */
