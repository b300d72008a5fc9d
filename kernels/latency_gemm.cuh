/* megavit: the latency regime's matrix products: 64 columns of the output by as many rows as the plan's tile has, each math warpgroup half of K.

   The warpgroups trade their sums, so that each ends one half of the rows. WIDE: that is all. DEEP: each CTA has the sums over a quarter of K; every fourth
   group of eight rows of a warpgroup goes to one CTA, which adds what it gets in the order of the CTAs. Then sums become rows in shared memory, and rows go to
   global memory by ordinary stores: they are few. */
#ifndef MGV_LATENCY_GEMM_CUH
#define MGV_LATENCY_GEMM_CUH

#include "latency_loader.cuh"
#include "gemm.cuh"

struct LatencyMath {
    LatencyMemory *shared;
    const mgv__kernel_arguments &arguments;
    Watchdog dog;
    LatencyStage stage;
    Ring<1> exchange;        /* of what the cluster sends */
    uint32_t group;          /* number of this math warpgroup */
    uint32_t warp, lane;     /* of the warpgroup, of the warp */
    uint32_t cta;
    __device__ __forceinline__ LatencyMath(LatencyMemory *s, const mgv__kernel_arguments &a, uint32_t g)
        : shared(s), arguments(a), dog(a), group(g), warp(threadIdx.x % 128 / 32), lane(threadIdx.x % 32), cta(cluster_ctarank()) {}
};

DEVICE uint32_t latency_stage_address(const LatencyMath &self, const LatencyStage &stage) { return shared_address(self.shared->stage[stage.index]); }
DEVICE LatencyStage latency_stage_after(LatencyStage stage, uint32_t count) {
#pragma unroll
    for (uint32_t i = 0; i < count; i++) stage.advance();
    return stage;
}
DEVICE void latency_wait_stage(LatencyMath &self, const LatencyStage &stage) {
    wait_barrier(self.dog, &self.shared->stage_full[stage.index], stage.parity, MGV__WAIT_STAGE_FULL);
}
/* By every math warp. */
DEVICE void latency_leave_stage(const LatencyMath &self, const LatencyStage &stage) {
    if (!self.dog.aborted && self.lane == 0) mbarrier_arrive(shared_address(&self.shared->stage_empty[stage.index]));
}

DEVICE void latency_leave_stages(const LatencyMath &self, LatencyStage stage, uint32_t count) {
    for (uint32_t i = 0; i < count; i++, stage.advance()) latency_leave_stage(self, stage);
}

/* --- ending a tile --------------------------------------------------------------------------------------------- */

/* Named barriers: all math warps; those of one math group. */
enum { LATENCY_SYNC_MATH = 1, LATENCY_SYNC_GROUP = 2 };
DEVICE void latency_sync(void) { bar_sync(LATENCY_SYNC_MATH, 32 * LATENCY_MATH_WARPS); }
DEVICE void latency_sync_group(const LatencyMath &self) { bar_sync(LATENCY_SYNC_GROUP + self.group, 128); }

/* By all math warps, after their ordinary stores: visible to the copy engines of other CTAs, then counted. */
DEVICE void latency_signal(LatencyMath &self, const TileSlot &tile) {
    fence_proxy_async_global();
    latency_sync();
    const mgv__kernel_op &op = tile.op;
    uint32_t first, end;
    latency_tile_rows(self.arguments, tile, first, end);
    if (self.group || self.warp || self.lane || first >= end || self.dog.aborted) return;
    const uint32_t gemm = op.kind == MGV__KERNEL_WIDE || op.kind == MGV__KERNEL_DEEP;
    const uint32_t counter = op.signal_counter + tile.group * op.signal_stride + first / (gemm ? self.arguments.latency_rows : op.tokens);
    if (self.arguments.lost_signal != counter + 1) red_release_gpu_add(self.arguments.counters + counter, 1);
}

/* Two groups of 8 columns of a row, two columns of each in every lane of a quad: lanes trade, so that each has four neighbours of one group. `to` is where
   this lane's four columns of the first two groups lie: latency_pair_column columns behind the first. */
DEVICE uint32_t latency_pair_column(uint32_t lane) { return 8 * (lane & 1) + 2 * (lane % 4 - (lane & 1)); }
DEVICE void latency_store_pair(uint32_t lane, uint16_t *to, uint32_t first, uint32_t second, bool valid) {
    const uint32_t odd = lane & 1, traded = __float_as_uint(shfl_bfly_f32(__uint_as_float(odd ? first : second), 1));
    if (valid) st_global_v2u32(to, odd ? traded : first, odd ? second : traded);
}

/* --- norms of rows ---------------------------------------------------------------------------------------------- */

/* Mean and reciprocal standard deviation of this lane's two rows. */
struct LatencyNorms {
    float mean[2], rstd[2];
};
/* (mean, squared deviations) of parts of 64 columns of the warp's 16 rows: two lanes a row, every second part each. */
enum { LATENCY_PARTS_A_LANE = MGV__KERNEL_MAX_WIDTH / 64 / 2 };
struct LatencyParts {
    float mean[LATENCY_PARTS_A_LANE], squares[LATENCY_PARTS_A_LANE];
};
/* row: the warp's first, over all groups; rows from `last` + 1 on have no statistics, and nobody uses what comes of them. */
DEVICE void latency_fetch_parts(const LatencyMath &self, const mgv__kernel_op &op, uint32_t row, uint32_t last, LatencyParts &held) {
    const uint32_t parts = op.inner / 64, mine = row + self.lane / 2 < last ? row + self.lane / 2 : last;
    const float *from = self.arguments.stats + op.stats_in + (size_t)mine * parts * 2 + self.lane % 2 * 2;
#pragma unroll
    for (int i = 0; i < LATENCY_PARTS_A_LANE; i++) {
        held.mean[i] = held.squares[i] = 0;
        if (2 * i + self.lane % 2 < parts) ld_relaxed_gpu_v2f32(from + 4 * i, held.mean[i], held.squares[i]);
    }
}
/* Of the row of this lane and its neighbour. All parts are of one size, so the row's mean is the mean of the means, and its squared deviations are the
   parts' and those of their means. */
DEVICE void latency_row_norm(const LatencyMath &self, const mgv__kernel_op &op, LatencyParts &held, float &mean, float &rstd) {
    wgmma_registers_fence(held.mean); /* the sum is not to be taken, and its loads waited for, before the products under which it belongs */
    const uint32_t parts = op.inner / 64;
    const float rcp_parts = 1.0f / (float)parts;
    float sum = 0, squares = 0;
#pragma unroll
    for (int i = 0; i < LATENCY_PARTS_A_LANE; i++) sum += held.mean[i];
    mean = (sum + shfl_bfly_f32(sum, 1)) * rcp_parts;
#pragma unroll
    for (int i = 0; i < LATENCY_PARTS_A_LANE; i++) {
        const float off = 2 * i + self.lane % 2 < parts ? held.mean[i] - mean : 0;
        squares += held.squares[i] + 64 * off * off;
    }
    rstd = rsqrtf((squares + shfl_bfly_f32(squares, 1)) * (rcp_parts / 64) + op.epsilon);
}
/* Of the two rows whose sums this lane has. */
DEVICE void latency_merge_parts(const LatencyMath &self, const mgv__kernel_op &op, LatencyParts &held, LatencyNorms &norms) {
    float mean, rstd;
    latency_row_norm(self, op, held, mean, rstd);
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) {
        const uint32_t holder = 2 * (self.lane / 4) + 16 * r;
        norms.mean[r] = __uint_as_float(shfl_idx_u32(__float_as_uint(mean), holder));
        norms.rstd[r] = __uint_as_float(shfl_idx_u32(__float_as_uint(rstd), holder));
    }
}

/* --- products --------------------------------------------------------------------------------------------------- */

/* Blocks whose products are one group. More would save some of the 100 to 200 clocks from one group's wait to the next group's first product
   (tools/bench/feed.cu), but wait for more stages before each: one, two and three blocks gave 0.415, 0.429 and 0.458 ms. */
enum { LATENCY_BLOCKS_A_GROUP = 1 };

/* One group: products of STEPS steps of 16 columns of K, from `first_step` on, in each of BLOCKS stages. A begins a stage, B lies b_offset behind. */
template <int BLOCKS, int STEPS, int COUNT> DEVICE void latency_product_group(LatencyMath &self, uint32_t b_offset, uint32_t first_step, float (&acc)[COUNT]) {
    LatencyStage stage = self.stage;
#pragma unroll
    for (int i = 0; i < BLOCKS; i++, self.stage.advance()) latency_wait_stage(self, self.stage); /* none between products: the compiler would serialise them */
    wgmma_registers_fence(acc);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < BLOCKS; i++, stage.advance()) {
        const uint32_t base = latency_stage_address(self, stage) + first_step * 32;
        const uint64_t a = matrix_descriptor(base), b = matrix_descriptor(base + b_offset);
#pragma unroll
        for (uint32_t k = 0; k < STEPS; k++) wgmma_m64k16_bf16_ss(acc, a + 2 * k, b + 2 * k, 1); /* 16 columns are 32 bytes: two descriptor units */
    }
    wgmma_commit_group();
    wgmma_registers_fence(acc);
}

/* A group's stages are left when the products of the next one have been issued; what is left over goes block by block. `beside` is done under the last group. */
template <int STEPS, int COUNT, class Beside>
DEVICE void latency_products(LatencyMath &self, uint32_t blocks, uint32_t b_offset, uint32_t first_step, float (&acc)[COUNT], const Beside &beside) {
    const uint32_t groups = blocks / LATENCY_BLOCKS_A_GROUP;
    LatencyStage before = self.stage;
    wgmma_registers_zero(acc);
#pragma unroll 1
    for (uint32_t group = 0; group < groups; group++) {
        const LatencyStage first = self.stage;
        latency_product_group<LATENCY_BLOCKS_A_GROUP, STEPS>(self, b_offset, first_step, acc);
        wgmma_wait_group<1>();
        if (group) latency_leave_stages(self, before, LATENCY_BLOCKS_A_GROUP);
        before = first;
    }
    beside();
    wgmma_wait_group<0>();
    wgmma_registers_fence(acc);
    if (groups) latency_leave_stages(self, before, LATENCY_BLOCKS_A_GROUP);
#pragma unroll 1
    for (uint32_t block = groups * LATENCY_BLOCKS_A_GROUP; block < blocks; block++) {
        before = self.stage;
        latency_product_group<1, STEPS>(self, b_offset, first_step, acc);
        wgmma_wait_group<0>();
        wgmma_registers_fence(acc);
        latency_leave_stages(self, before, 1);
    }
}

/* --- sums ------------------------------------------------------------------------------------------------------- */

/* Sums lie in groups of eight rows, tokens, four floats a thread: (column, row), (column, row + 1), (column + 8, row), (column + 8, row + 1), with
   column = 16 warp + lane / 4 and row = 2 (lane % 4). Of a tile's GROUPS groups math group 0 ends the first half, the longer one, and group 1 the rest. */
DEVICE constexpr uint32_t latency_first_half(uint32_t groups) { return (groups + 1) / 2; }
DEVICE uint32_t latency_thread_bytes(const LatencyMath &self) { return (self.warp * 32 + self.lane) * 16; }

/* The sums of both math groups, of those groups of rows that this one ends. */
template <int GROUPS> DEVICE void latency_swap_sums(const LatencyMath &self, const float (&acc)[4 * GROUPS], float (&v)[4 * latency_first_half(GROUPS)]) {
    constexpr int FIRST = (int)latency_first_half(GROUPS);
    const uint32_t to = shared_address(&self.shared->swap[self.group ^ 1]) + latency_thread_bytes(self), from = shared_address(&self.shared->swap[self.group]) + latency_thread_bytes(self);
#pragma unroll
    for (int i = 0; i < GROUPS; i++) {
        const uint32_t ends = i >= FIRST, number = ends ? i - FIRST : i;
        if (self.group != ends) shared_store_v4f32(to + number * LATENCY_GROUP_BYTES, acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]);
    }
    latency_sync();
#pragma unroll
    for (int i = 0; i < FIRST; i++) {
        const int second = i + FIRST < GROUPS ? i + FIRST : i; /* the first half may be longer: what the second has there nobody uses */
        float other[4] = {0, 0, 0, 0};
        if (self.group == 0 || i + FIRST < GROUPS) shared_load_v4f32(from + i * LATENCY_GROUP_BYTES, other[0], other[1], other[2], other[3]);
#pragma unroll
        for (int e = 0; e < 4; e++) v[4 * i + e] = (self.group ? acc[4 * second + e] : acc[4 * i + e]) + other[e];
    }
}

/* The CTA that finishes group `number` of a math group's rows: the two math groups begin at different ends, which shares the odd ones out. */
DEVICE uint32_t latency_owner(const LatencyMath &self, uint32_t number) {
    return self.group ? MGV__LATENCY_CLUSTER - 1 - number % MGV__LATENCY_CLUSTER : number % MGV__LATENCY_CLUSTER;
}
/* Of `groups` groups with rows that exist, those that CTA `cta` finishes, of both math groups. */
DEVICE uint32_t latency_owned_groups(uint32_t groups, uint32_t first_half, uint32_t cta) {
    const uint32_t first = groups < first_half ? groups : first_half, second = groups - first, last = MGV__LATENCY_CLUSTER - 1;
    return (first + last - cta) / MGV__LATENCY_CLUSTER + (second + cta) / MGV__LATENCY_CLUSTER;
}

/* Before sending: what was sent last has been read. Arrivals for two exchanges do not mix: all math warps of a CTA meet before each tile, so one that sends
   for the next exchange does so after its own CTA has arrived for this one, and nobody gets through the next one without it. */
DEVICE void latency_begin_exchange(LatencyMath &self) {
    wait_barrier(self.dog, &self.shared->received_empty, self.exchange.parity ^ 1, MGV__WAIT_RECEIVED_EMPTY);
}
/* One thread of each CTA says how much comes. */
DEVICE void latency_expect_exchange(const LatencyMath &self, uint32_t bytes) {
    if (!self.dog.aborted) mbarrier_arrive_expect_tx(shared_address(&self.shared->received_full), bytes);
}
DEVICE void latency_wait_exchange(LatencyMath &self) {
    wait_barrier(self.dog, &self.shared->received_full, self.exchange.parity, MGV__WAIT_RECEIVED_FULL);
}
/* By every math warp, when it has used what came: all CTAs may send again. */
DEVICE void latency_end_exchange(LatencyMath &self) {
    warp_sync();
    if (!self.dog.aborted && self.lane < MGV__LATENCY_CLUSTER)
        mbarrier_arrive_cluster(mapa_shared_cluster(shared_address(&self.shared->received_empty), self.lane));
    self.exchange.advance();
}

/* Each group of rows to the CTA that finishes it; `exist`: groups of this math group that have rows. */
template <int COUNT> DEVICE void latency_send_sums(LatencyMath &self, const float (&v)[COUNT], uint32_t exist) {
    latency_begin_exchange(self);
    if (self.dog.aborted) return;
    const uint32_t received = shared_address(self.shared->received) + latency_thread_bytes(self), full = shared_address(&self.shared->received_full);
#pragma unroll
    for (uint32_t i = 0; i < COUNT / 4; i++) {
        const uint32_t owner = latency_owner(self, i);
        if (owner == self.cta || i >= exist) continue;
        st_async_cluster_v4_u32(mapa_shared_cluster(received, owner) + latency_sums_offset(self.cta, owner, self.group, i / MGV__LATENCY_CLUSTER), __float_as_uint(v[4 * i]),
                                __float_as_uint(v[4 * i + 1]), __float_as_uint(v[4 * i + 2]), __float_as_uint(v[4 * i + 3]), mapa_shared_cluster(full, owner));
    }
}

/* Own sums and those of the other CTAs, added in the order of the CTAs: of this CTA's groups among those of its math group. */
template <int COUNT> DEVICE void latency_add_sums(LatencyMath &self, const float (&v)[COUNT], uint32_t exist, float (&sum)[4 * LATENCY_OWN_GROUPS]) {
    latency_wait_exchange(self);
#pragma unroll
    for (uint32_t n = 0; n < LATENCY_OWN_GROUPS; n++) {
        float own[4] = {0, 0, 0, 0};
        uint32_t some = 0;
#pragma unroll
        for (uint32_t i = n * MGV__LATENCY_CLUSTER; i < (n + 1) * MGV__LATENCY_CLUSTER && i < COUNT / 4; i++) {
            const uint32_t mine = latency_owner(self, i) == self.cta;
            some |= mine && i < exist;
#pragma unroll
            for (int e = 0; e < 4; e++) own[e] = mine ? v[4 * i + e] : own[e];
        }
#pragma unroll
        for (uint32_t sender = 0; sender < MGV__LATENCY_CLUSTER; sender++) {
            float part[4] = {own[0], own[1], own[2], own[3]};
            if (some && sender != self.cta)
                shared_load_v4f32(shared_address(self.shared->received) + latency_sums_offset(sender, self.cta, self.group, n) + latency_thread_bytes(self), part[0], part[1],
                                  part[2], part[3]);
#pragma unroll
            for (int e = 0; e < 4; e++) sum[4 * n + e] = sender ? sum[4 * n + e] + part[e] : part[e];
        }
    }
}

/* --- rows ------------------------------------------------------------------------------------------------------- */

/* Where a tile's results lie. */
struct LatencyPlace {
    uint32_t base, rows;       /* the tile's first row, over all groups; rows that exist */
    uint32_t column, columns;  /* this CTA's first column; those that exist */
};
DEVICE LatencyPlace latency_place(const LatencyMath &self, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    LatencyPlace place;
    uint32_t first, end;
    latency_tile_rows(self.arguments, tile, first, end);
    place.base = tile.group * op.rows_per_group + first;
    place.rows = end - first;
    place.column = latency_column_tile(tile, self.cta) * MGV__LATENCY_COLUMNS;
    place.columns = place.column >= op.columns ? 0 : op.columns - place.column < MGV__LATENCY_COLUMNS ? op.columns - place.column : (uint32_t)MGV__LATENCY_COLUMNS;
    return place;
}

/* What is added to a thread's two columns of the output, 16 warp + lane / 4 and the eighth after it. */
DEVICE void latency_fetch_biases(const LatencyMath &self, const mgv__kernel_op &op, const LatencyPlace &place, float (&bias)[2]) {
    const float *from = self.arguments.vectors + op.bias + place.column + self.warp * 16 + self.lane / 4;
    bias[0] = ld_global_nc_f32(from);
    bias[1] = ld_global_nc_f32(from + 8);
}

/* Sums of one group of eight rows -> values without what lies beside them in a row. */
DEVICE void latency_finish_group(const LatencyMath &self, uint32_t flags, uint32_t group, const float (&bias)[2], const float *sum, float (&value)[4]) {
    float rstd[2] = {1, 1};
    if (flags & MGV__KERNEL_FOLD_NORM) shared_load_v2f32(shared_address(&self.shared->rstd[group * 8 + 2 * (self.lane % 4)]), rstd[0], rstd[1]);
#pragma unroll
    for (int e = 0; e < 4; e++) {
        value[e] = rstd[e % 2] * sum[e] + bias[e / 2];
        if (flags & MGV__KERNEL_GELU_TANH) value[e] = gelu_tanh_of_half(value[e]);
    }
}

/* WIDE: COUNT groups of rows from `first` on. They turn into rows of bf16 on their way through shared memory, and leave 16 bytes a lane. */
template <int COUNT> DEVICE void latency_end_wide(const LatencyMath &self, const mgv__kernel_op &op, uint32_t flags, const LatencyPlace &place, uint32_t first, const float (&bias)[2],
                                                  const float (&sum)[4 * COUNT]) {
    const uint32_t rows = shared_address(&self.shared->swap[self.group].narrow), from = rows + self.warp * 4 * LATENCY_NARROW_PITCH + self.lane / 8 * LATENCY_NARROW_PITCH + self.lane % 8 * 16;
    /* of the four matrices of eight rows and columns that a warp stores at once, the first two are a group's columns and the eighth after them, then the next group's */
    const uint32_t to = rows + (self.lane / 16 * 8 + self.lane % 8) * LATENCY_NARROW_PITCH + (self.warp * 16 + self.lane / 8 % 2 * 8) * 2;
    latency_sync_group(self); /* the rows take the place of sums that have been read */
#pragma unroll
    for (int j = 0; j < COUNT; j += 2) {
        float v[2][4];
        latency_finish_group(self, flags, first + j, bias, &sum[4 * j], v[0]);
        latency_finish_group(self, flags, first + j + (j + 1 < COUNT), bias, &sum[4 * (j + (j + 1 < COUNT))], v[1]);
        stmatrix_x4_transposed(to + j * 8 * LATENCY_NARROW_PITCH, cvt_rn_bf16x2(v[0][0], v[0][1]), cvt_rn_bf16x2(v[0][2], v[0][3]), cvt_rn_bf16x2(v[1][0], v[1][1]),
                               cvt_rn_bf16x2(v[1][2], v[1][3]));
    }
    latency_sync_group(self);
    const uint32_t exists = self.lane % 8 * 8 < place.columns;
    uint16_t *target = (uint16_t *)self.arguments.buffers[op.store_map] + (size_t)place.base * op.columns + place.column + self.lane % 8 * 8;
#pragma unroll
    for (uint32_t i = 0; i < (COUNT + 1) / 2; i++) { /* sixteen rows */
        const uint32_t number = i * 16 + self.warp * 4 + self.lane / 8, row = first * 8 + number;
        float x, y, z, w;
        shared_load_v4f32(from + i * 16 * LATENCY_NARROW_PITCH, x, y, z, w);
        if (exists && number < COUNT * 8 && row < place.rows)
            st_global_v4u32(target + (size_t)row * op.columns, __float_as_uint(x), __float_as_uint(y), __float_as_uint(z), __float_as_uint(w));
    }
}

/* DEEP: a CTA's groups of rows, every fourth from `first` to `end`. Warp w of a math group stores rows w, w + 4, … of them, two columns a lane. */
enum { LATENCY_ROWS_A_WARP = 2 * LATENCY_OWN_GROUPS };
struct LatencyRows {
    uint32_t first, end;
};
DEVICE uint32_t latency_deep_row(const LatencyMath &self, const LatencyRows &own, uint32_t n) {
    const uint32_t group = own.first + n / 2 * MGV__LATENCY_CLUSTER;
    return group < own.end ? group * 8 + n % 2 * 4 + self.warp : NO_ROW;
}

/* What is added to those rows: what they have held so far, or what their positions have. Fetched before the products. */
DEVICE void latency_fetch_addends(const LatencyMath &self, const mgv__kernel_op &op, uint32_t flags, const LatencyPlace &place, const LatencyRows &own, float (&addend)[LATENCY_ROWS_A_WARP][2]) {
    const uint32_t column = place.column + 2 * self.lane;
#pragma unroll
    for (uint32_t n = 0; n < LATENCY_ROWS_A_WARP; n++) {
        const uint32_t row = latency_deep_row(self, own, n);
        addend[n][0] = addend[n][1] = 0;
        if (row >= place.rows || 2 * self.lane >= place.columns) continue;
        if (flags & MGV__KERNEL_TABLE)
            ld_global_nc_v2f32(self.arguments.vectors + op.table + (size_t)((place.base + row) % op.tokens) * op.columns + column, addend[n][0], addend[n][1]);
        if (flags & MGV__KERNEL_RESIDUAL) { /* both halves of a word, for the time being */
            const uint16_t *residual = (const uint16_t *)self.arguments.buffers[op.residual_map] + (size_t)(place.base + row) * op.columns + column;
            addend[n][0] = __uint_as_float(ld_relaxed_gpu((const uint32_t *)residual));
        }
    }
}

/* Sum over the warp, of several rows side by side: the same order for each. */
template <int COUNT> DEVICE void warp_sums(float (&v)[COUNT]) {
#pragma unroll
    for (int lanes = 16; lanes; lanes /= 2)
#pragma unroll
        for (int n = 0; n < COUNT; n++) v[n] += shfl_bfly_f32(v[n], lanes);
}

/* Mean and squared deviations of each row's 64 columns, of the rounded values, for the next norm. */
DEVICE void latency_statistics(const LatencyMath &self, const mgv__kernel_op &op, const LatencyPlace &place, const LatencyRows &own, const uint32_t (&rounded)[LATENCY_ROWS_A_WARP]) {
    float mean[LATENCY_ROWS_A_WARP], squares[LATENCY_ROWS_A_WARP];
#pragma unroll
    for (uint32_t n = 0; n < LATENCY_ROWS_A_WARP; n++) mean[n] = bf16_low(rounded[n]) + bf16_high(rounded[n]);
    warp_sums(mean);
#pragma unroll
    for (uint32_t n = 0; n < LATENCY_ROWS_A_WARP; n++) {
        mean[n] /= 64;
        const float x = bf16_low(rounded[n]) - mean[n], y = bf16_high(rounded[n]) - mean[n];
        squares[n] = x * x + y * y;
    }
    warp_sums(squares);
#pragma unroll
    for (uint32_t n = 0; n < LATENCY_ROWS_A_WARP; n++) {
        const uint32_t row = latency_deep_row(self, own, n);
        if (self.lane == n && row < place.rows)
            st_relaxed_gpu_v2f32(self.arguments.stats + op.stats_out + ((size_t)(place.base + row) * (op.columns / 64) + place.column / 64) * 2, mean[n], squares[n]);
    }
}

DEVICE void latency_end_deep(const LatencyMath &self, const mgv__kernel_op &op, uint32_t flags, const LatencyPlace &place, const LatencyRows &own,
                             const float (&bias)[2], const float (&sum)[4 * LATENCY_OWN_GROUPS], const float (&addend)[LATENCY_ROWS_A_WARP][2]) {
    const uint32_t rows = shared_address(&self.shared->swap[self.group].rows), to = rows + (2 * (self.lane % 4) * LATENCY_ROW_PITCH + self.warp * 16 + self.lane / 4) * 4;
    uint32_t rounded[LATENCY_ROWS_A_WARP];
    latency_sync_group(self); /* the rows take the place of sums that have been read */
#pragma unroll
    for (uint32_t j = 0; j < LATENCY_OWN_GROUPS; j++) {
        float value[4];
        latency_finish_group(self, flags, own.first + j * MGV__LATENCY_CLUSTER, bias, &sum[4 * j], value);
#pragma unroll
        for (int e = 0; e < 4; e++) shared_store_u32(to + ((8 * j + e % 2) * LATENCY_ROW_PITCH + e / 2 * 8) * 4, __float_as_uint(value[e]));
    }
    latency_sync_group(self);
#pragma unroll
    for (uint32_t n = 0; n < LATENCY_ROWS_A_WARP; n++) {
        const uint32_t row = latency_deep_row(self, own, n), exists = row < place.rows && 2 * self.lane < place.columns;
        const size_t at = (size_t)(place.base + row) * op.columns + place.column + 2 * self.lane;
        float x, y;
        shared_load_v2f32(rows + ((4 * n + self.warp) * LATENCY_ROW_PITCH + 2 * self.lane) * 4, x, y);
        const uint32_t residual = __float_as_uint(addend[n][0]);
        x += flags & MGV__KERNEL_RESIDUAL ? bf16_low(residual) : addend[n][0];
        y += flags & MGV__KERNEL_RESIDUAL ? bf16_high(residual) : addend[n][1];
        rounded[n] = cvt_rn_bf16x2(x, y);
        if (exists && (flags & MGV__KERNEL_FLOAT_OUT)) st_relaxed_gpu_v2f32((float *)self.arguments.buffers[op.store_map] + at, x, y);
        else if (exists) st_global_u32((uint16_t *)self.arguments.buffers[op.store_map] + at, rounded[n]);
    }
    if (flags & MGV__KERNEL_STATS) latency_statistics(self, op, place, own, rounded);
}

/* --- the tile ---------------------------------------------------------------------------------------------------- */

template <int ROWS> DEVICE void latency_gemm_tile(LatencyMath &self, const TileSlot &tile) {
    constexpr uint32_t GROUPS = ROWS / 8, FIRST = latency_first_half(GROUPS);
    const mgv__kernel_op &op = tile.op;
    const uint32_t flags = warp_uniform(op.flags), deep = warp_uniform(op.kind == MGV__KERNEL_DEEP);
    const LatencyPlace place = latency_place(self, tile);
    const uint32_t groups = (place.rows + 7) / 8, before = self.group ? FIRST : 0, here = groups < before ? 0 : groups - before;
    const uint32_t exist = warp_uniform(self.group || here < FIRST ? here : FIRST); /* groups of this math group that have rows */
    const LatencyRows own = {before + (self.group ? MGV__LATENCY_CLUSTER - 1 - self.cta : self.cta), before + exist}; /* DEEP: as latency_owner has it */
    const uint32_t warp_row = (self.group * 4 + self.warp) * 16;
    float addend[LATENCY_ROWS_A_WARP][2] = {}, bias[2], acc[ROWS / 2], v[4 * FIRST];
    LatencyParts parts;
    if (deep) latency_fetch_addends(self, op, flags, place, own, addend);
    latency_fetch_biases(self, op, place, bias);
    if (flags & MGV__KERNEL_FOLD_NORM) latency_fetch_parts(self, op, place.base + warp_row, place.base + place.rows - 1, parts);
    latency_products<4 / MGV__MATH_GROUPS>(self, op.k_blocks, LATENCY_WEIGHT_BYTES, 4 / MGV__MATH_GROUPS * self.group, acc, [&]() {
        if (!(flags & MGV__KERNEL_FOLD_NORM)) return;
        float mean, rstd;
        latency_row_norm(self, op, parts, mean, rstd);
        if (self.lane % 2 == 0) self.shared->rstd[warp_row + self.lane / 2] = rstd;
    });
    latency_swap_sums<GROUPS>(self, acc, v);
    if (deep) {
        float sum[4 * LATENCY_OWN_GROUPS];
        latency_send_sums(self, v, exist);
        if (self.group == 0 && self.warp == 0 && self.lane == 0)
            latency_expect_exchange(self, (MGV__LATENCY_CLUSTER - 1) * LATENCY_GROUP_BYTES * latency_owned_groups(groups, FIRST, self.cta));
        latency_add_sums(self, v, exist, sum);
        latency_end_deep(self, op, flags, place, own, bias, sum, addend);
        latency_end_exchange(self);
    } else {
        latency_end_wide<FIRST>(self, op, flags, place, before, bias, v);
    }
    latency_signal(self, tile);
}

#endif /* MGV_LATENCY_GEMM_CUH */
