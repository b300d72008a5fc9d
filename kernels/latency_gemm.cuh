/* megavit: the latency regime's matrix products, 64 x 128 a CTA, 64 columns a math warpgroup.

   WIDE: each CTA finishes its own tile. DEEP: each CTA has the sums over a quarter of K; warp w of each math group sends its 16 rows to CTA w, which adds
   what it gets in the order of the CTAs and finishes these rows. Results go to global memory by ordinary stores: they are few. */
#ifndef MGV_LATENCY_GEMM_CUH
#define MGV_LATENCY_GEMM_CUH

#include "latency_loader.cuh"
#include "gemm.cuh"

struct LatencyMath {
    LatencyMemory *shared;
    const mgv__kernel_arguments &arguments;
    Watchdog dog;
    LatencyStage stage;
    Ring<1> exchange;        /* of the receive buffer */
    uint32_t group;          /* number of this math warpgroup */
    uint32_t warp, lane;     /* of the warpgroup, of the warp */
    uint32_t cta;
    __device__ __forceinline__ LatencyMath(LatencyMemory *s, const mgv__kernel_arguments &a, uint32_t g)
        : shared(s), arguments(a), dog(a), group(g), warp(threadIdx.x % 128 / 32), lane(threadIdx.x % 32), cta(cluster_ctarank()) {}
};

/* The same value, which the compiler now knows to be that of the whole warp: shuffles behind branches on it need no care. */
DEVICE uint32_t warp_uniform(uint32_t value) { return shfl_idx_u32(value, 0); }

DEVICE uint32_t latency_stage_address(const LatencyMath &self, const LatencyStage &stage) { return shared_address(self.shared->stage[stage.index]); }
DEVICE void latency_wait_stage(LatencyMath &self, const LatencyStage &stage) {
    wait_barrier(self.dog, &self.shared->stage_full[stage.index], stage.parity, MGV__WAIT_STAGE_FULL);
}
/* Every warp tells all CTAs of the cluster that it has left the stage. */
DEVICE void latency_leave_stage(const LatencyMath &self, const LatencyStage &stage) {
    if (self.dog.aborted || self.lane >= MGV__LATENCY_CLUSTER) return;
    mbarrier_arrive_cluster(mapa_shared_cluster(shared_address(&self.shared->stage_empty[stage.index]), self.lane));
}

/* --- ending a tile --------------------------------------------------------------------------------------------- */

/* Named barriers: all math warps; the warps that finish the rows of a DEEP tile; the math group that works on attention. */
enum { LATENCY_SYNC_MATH = 1, LATENCY_SYNC_ROWS = 2, LATENCY_SYNC_GROUP = 3 };

/* After ordinary stores by `threads` threads, all of which call this: visible to the copy engines of other CTAs, then counted. */
DEVICE void latency_signal(LatencyMath &self, const TileSlot &tile, uint32_t sync, uint32_t threads, bool first_thread) {
    fence_proxy_async_global();
    bar_sync(sync, threads);
    const mgv__kernel_op &op = tile.op;
    uint32_t first, end;
    latency_tile_rows(tile, self.cta, first, end);
    if (!first_thread || first >= end || self.dog.aborted) return;
    const uint32_t gemm = op.kind == MGV__KERNEL_WIDE || op.kind == MGV__KERNEL_DEEP;
    const uint32_t counter = op.signal_counter + tile.group * op.signal_stride + first / (gemm ? MGV__LATENCY_ROWS : op.tokens);
    if (self.arguments.lost_signal != counter + 1) red_release_gpu_add(self.arguments.counters + counter, 1);
}

/* Two groups of 8 columns of a row, two columns of each in every lane of a quad: lanes trade, so that each has four neighbours of one group. `row` is where
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
/* All parts are of one size, so the row's mean is the mean of the means, and its squared deviations are the parts' and those of their means. */
DEVICE void latency_merge_parts(const LatencyMath &self, const mgv__kernel_op &op, const LatencyParts &held, LatencyNorms &norms) {
    const uint32_t parts = op.inner / 64;
    const float rcp_parts = 1.0f / (float)parts;
    float sum = 0, squares = 0;
#pragma unroll
    for (int i = 0; i < LATENCY_PARTS_A_LANE; i++) sum += held.mean[i];
    const float mean = (sum + shfl_bfly_f32(sum, 1)) * rcp_parts;
#pragma unroll
    for (int i = 0; i < LATENCY_PARTS_A_LANE; i++) {
        const float off = 2 * i + self.lane % 2 < parts ? held.mean[i] - mean : 0;
        squares += held.squares[i] + 64 * off * off;
    }
    const float rstd = rsqrtf((squares + shfl_bfly_f32(squares, 1)) * (rcp_parts / 64) + op.epsilon);
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) {
        const uint32_t holder = 2 * (self.lane / 4) + 16 * r;
        norms.mean[r] = __uint_as_float(shfl_idx_u32(__float_as_uint(mean), holder));
        norms.rstd[r] = __uint_as_float(shfl_idx_u32(__float_as_uint(rstd), holder));
    }
}

/* --- products --------------------------------------------------------------------------------------------------- */

/* Where this warp's results lie: 16 rows, 64 columns. */
struct LatencyPlace {
    uint32_t row, rows;        /* first row within the group; valid rows of the group */
    uint32_t base;             /* rows of all groups before */
    uint32_t column, columns;  /* first column; valid columns */
};
DEVICE LatencyPlace latency_place(const LatencyMath &self, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t step = latency_tile_columns(op), first_column = latency_column_tile(tile, self.cta) * step;
    const uint32_t limit = first_column + step < op.columns ? first_column + step : op.columns;
    LatencyPlace place;
    uint32_t first, end;
    latency_tile_rows(tile, self.cta, first, end);
    place.row = first + self.warp * 16;
    place.rows = rows_of_group(op, tile.group);
    place.base = tile.group * op.rows_per_group;
    place.column = first_column + self.group * LATENCY_GROUP_COLUMNS;
    place.columns = place.column >= limit ? 0 : limit - place.column < LATENCY_GROUP_COLUMNS ? limit - place.column : (uint32_t)LATENCY_GROUP_COLUMNS;
    return place;
}
/* Row r (0 or 1) of this lane within its group, the last one in place of rows that do not exist: it may be read. */
DEVICE uint32_t latency_row(const LatencyPlace &place, uint32_t lane, uint32_t r) { return place.row + lane / 4 + 8 * r; }
DEVICE uint32_t latency_readable_row(const LatencyPlace &place, uint32_t lane, uint32_t r) {
    const uint32_t row = latency_row(place, lane, r);
    return row < place.rows ? row : place.rows - 1;
}

/* What the epilogue needs beside the sums. Fetched before and under the products; columns that do not exist are read as padding, and not used. */
struct LatencyOperands {
    float biases[LATENCY_ACCUMULATORS / 2];      /* of each column */
    uint32_t residual[LATENCY_ACCUMULATORS / 2]; /* two columns each */
};
DEVICE void latency_fetch_operands(const LatencyMath &self, const mgv__kernel_op &op, uint32_t flags, const LatencyPlace &place, LatencyOperands &with) {
    const uint32_t column = place.column + 2 * (self.lane % 4);
    const float *biases = self.arguments.vectors + op.bias + column;
#pragma unroll
    for (int j = 0; j < LATENCY_GROUP_COLUMNS / 8; j++) ld_global_nc_v2f32(biases + 8 * j, with.biases[2 * j], with.biases[2 * j + 1]);
    if (flags & MGV__KERNEL_RESIDUAL) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const size_t row = place.base + latency_readable_row(place, self.lane, r);
            const uint16_t *residual = (const uint16_t *)self.arguments.buffers[op.residual_map] + row * op.columns + column;
#pragma unroll
            for (int j = 0; j < LATENCY_GROUP_COLUMNS / 8; j++) with.residual[2 * j + r] = ld_relaxed_gpu((const uint32_t *)(residual + 8 * j));
        }
    }
}

/* A stage is left when the products of the next one have been issued. `beside` is done once, under the first ones. */
template <int COUNT, class Beside> DEVICE void latency_products(LatencyMath &self, uint32_t blocks, uint32_t b_offset, float (&acc)[COUNT], const Beside &beside) {
    LatencyStage before = self.stage;
    wgmma_registers_zero(acc);
    for (uint32_t block = 0; block < blocks; block++) {
        latency_wait_stage(self, self.stage);
        const uint32_t base = latency_stage_address(self, self.stage);
        const uint64_t a = matrix_descriptor(base), b = matrix_descriptor(base + b_offset);
        wgmma_registers_fence(acc);
        wgmma_fence();
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) wgmma_m64k16_bf16_ss(acc, a + 2 * k, b + 2 * k, 1); /* 16 columns are 32 bytes: two descriptor units */
        wgmma_commit_group();
        wgmma_registers_fence(acc);
        if (block) {
            wgmma_wait_group<1>();
            latency_leave_stage(self, before);
        } else {
            beside();
        }
        before = self.stage;
        self.stage.advance();
    }
    wgmma_wait_group<0>();
    wgmma_registers_fence(acc);
    latency_leave_stage(self, before);
}

/* --- sums of the cluster ---------------------------------------------------------------------------------------- */

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
/* By the one warp of each math group that reads what came, when it has: all CTAs may send again. */
DEVICE void latency_end_exchange(const LatencyMath &self) {
    warp_sync();
    if (self.dog.aborted || self.lane >= MGV__LATENCY_CLUSTER) return;
    mbarrier_arrive_cluster(mapa_shared_cluster(shared_address(&self.shared->received_empty), self.lane));
}

/* Each warp's sums to the CTA that finishes its rows. */
DEVICE void latency_send_sums(LatencyMath &self, const float (&acc)[LATENCY_ACCUMULATORS]) {
    latency_begin_exchange(self);
    if (self.dog.aborted) return;
    const uint32_t to = mapa_shared_cluster(shared_address(self.shared->received) + latency_sums_offset(self.cta, self.warp, self.group) + self.lane * 16, self.warp);
    const uint32_t barrier = mapa_shared_cluster(shared_address(&self.shared->received_full), self.warp);
#pragma unroll
    for (int i = 0; i < LATENCY_ACCUMULATORS / 4; i++)
        st_async_cluster_v4_u32(to + i * 512, __float_as_uint(acc[4 * i]), __float_as_uint(acc[4 * i + 1]), __float_as_uint(acc[4 * i + 2]),
                                __float_as_uint(acc[4 * i + 3]), barrier);
}

/* Own sums and those of the other CTAs, added in the order of the CTAs. */
DEVICE void latency_add_sums(LatencyMath &self, float (&acc)[LATENCY_ACCUMULATORS]) {
    if (self.group == 0 && self.lane == 0) latency_expect_exchange(self, LATENCY_SUM_BYTES);
    latency_wait_exchange(self);
    float sum[LATENCY_ACCUMULATORS];
#pragma unroll
    for (uint32_t sender = 0; sender < MGV__LATENCY_CLUSTER; sender++) {
        const uint32_t from = shared_address(self.shared->received) + latency_sums_offset(sender, self.cta, self.group) + self.lane * 16;
#pragma unroll
        for (int i = 0; i < LATENCY_ACCUMULATORS / 4; i++) {
            float part[4] = {acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]};
            if (sender != self.cta) shared_load_v4f32(from + i * 512, part[0], part[1], part[2], part[3]);
#pragma unroll
            for (int e = 0; e < 4; e++) sum[4 * i + e] = sender ? sum[4 * i + e] + part[e] : part[e];
        }
    }
#pragma unroll
    for (int i = 0; i < LATENCY_ACCUMULATORS; i++) acc[i] = sum[i];
}

/* --- epilogue ---------------------------------------------------------------------------------------------------- */

/* Mean and squared deviations of this warp's 64 columns of each row, of the rounded values: p[2 j] holds two columns of the row of this lane, p[2 j + 1]
   two of the row eight below. */
DEVICE void latency_statistics(const LatencyMath &self, const mgv__kernel_op &op, const LatencyPlace &place, const uint32_t (&p)[LATENCY_ACCUMULATORS / 2]) {
    float *to = self.arguments.stats + op.stats_out + ((size_t)(place.base + place.row + self.lane / 4) * (op.columns / 64) + place.column / 64) * 2;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum = 0, squares = 0;
#pragma unroll
        for (int i = r; i < LATENCY_ACCUMULATORS / 2; i += 2) sum += bf16_low(p[i]) + bf16_high(p[i]);
        const float mean = quad_sum(sum) / 64;
#pragma unroll
        for (int i = r; i < LATENCY_ACCUMULATORS / 2; i += 2) {
            const float a = bf16_low(p[i]) - mean, b = bf16_high(p[i]) - mean;
            squares += a * a + b * b;
        }
        squares = quad_sum(squares);
        if (self.lane % 4 == 0 && latency_row(place, self.lane, r) < place.rows) st_relaxed_gpu_v2f32(to + (size_t)8 * r * (op.columns / 64) * 2, mean, squares);
    }
}

/* Sums -> values of the target, in place. */
DEVICE void latency_finish(const LatencyMath &self, const mgv__kernel_op &op, uint32_t flags, const LatencyPlace &place, const LatencyOperands &with,
                           const LatencyNorms &norms, float (&v)[LATENCY_ACCUMULATORS]) {
#pragma unroll
    for (int i = 0; i < LATENCY_ACCUMULATORS; i++) v[i] = norms.rstd[i / 2 % 2] * v[i] + with.biases[i / 4 * 2 + i % 2]; /* no norm to fold: rstd is 1 */
    if (flags & MGV__KERNEL_GELU_TANH) {
#pragma unroll
        for (int i = 0; i < LATENCY_ACCUMULATORS; i++) v[i] = gelu_tanh_of_half(v[i]);
    }
    if (flags & MGV__KERNEL_TABLE) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const uint32_t row = latency_readable_row(place, self.lane, r) % op.tokens;
            const float *table = self.arguments.vectors + op.table + (size_t)row * op.columns + place.column + 2 * (self.lane % 4);
#pragma unroll
            for (int j = 0; j < LATENCY_GROUP_COLUMNS / 8; j++) {
                float t0, t1;
                ld_global_nc_v2f32(table + 8 * j, t0, t1);
                v[4 * j + 2 * r] += t0;
                v[4 * j + 2 * r + 1] += t1;
            }
        }
    }
    if (flags & MGV__KERNEL_RESIDUAL) {
#pragma unroll
        for (int i = 0; i < LATENCY_ACCUMULATORS; i++) v[i] += i % 2 ? bf16_high(with.residual[i / 2]) : bf16_low(with.residual[i / 2]);
    }
}

DEVICE void latency_epilogue(const LatencyMath &self, const mgv__kernel_op &op, uint32_t flags, const LatencyPlace &place, const LatencyOperands &with,
                             const LatencyNorms &norms, float (&v)[LATENCY_ACCUMULATORS]) {
    uint8_t *target = self.arguments.buffers[op.store_map];
    const size_t first = (size_t)(place.base + place.row + self.lane / 4) * op.columns + place.column;
    const bool exists[2] = {latency_row(place, self.lane, 0) < place.rows, latency_row(place, self.lane, 1) < place.rows};
    latency_finish(self, op, flags, place, with, norms, v);
    if (flags & MGV__KERNEL_FLOAT_OUT) {
        float *to = (float *)target + first + 2 * (self.lane % 4);
#pragma unroll
        for (int i = 0; i < LATENCY_ACCUMULATORS; i += 2)
            if (exists[i / 2 % 2] && i / 4 * 8 < (int)place.columns) st_relaxed_gpu_v2f32(to + (size_t)8 * (i / 2 % 2) * op.columns + i / 4 * 8, v[i], v[i + 1]);
        return;
    }
    uint32_t p[LATENCY_ACCUMULATORS / 2];
#pragma unroll
    for (int i = 0; i < LATENCY_ACCUMULATORS / 2; i++) p[i] = cvt_rn_bf16x2(v[2 * i], v[2 * i + 1]);
    uint16_t *to = (uint16_t *)target + first + latency_pair_column(self.lane);
#pragma unroll
    for (int i = 0; i < LATENCY_ACCUMULATORS / 2; i++) {
        if (i % 4 >= 2) continue; /* traded with the two before */
        latency_store_pair(self.lane, to + (size_t)8 * (i % 2) * op.columns + i / 2 * 8, p[i], p[i + 2], exists[i % 2] && i / 2 * 8 + 8 * (self.lane & 1) < place.columns);
    }
    if (flags & MGV__KERNEL_STATS) latency_statistics(self, op, place, p);
}

DEVICE void latency_gemm_tile(LatencyMath &self, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t flags = warp_uniform(op.flags), deep = warp_uniform(op.kind == MGV__KERNEL_DEEP), owns = warp_uniform(!deep || self.warp == self.cta);
    const LatencyPlace place = latency_place(self, tile);
    const uint32_t finishes = warp_uniform(owns && place.columns && place.row < place.rows);
    LatencyNorms norms = {{0, 0}, {1, 1}};
    LatencyOperands with;
    LatencyParts parts;
    float acc[LATENCY_ACCUMULATORS];
    if (finishes) latency_fetch_operands(self, op, flags, place, with);
    if (finishes && (flags & MGV__KERNEL_FOLD_NORM)) latency_fetch_parts(self, op, place.base + place.row, place.base + place.rows - 1, parts);
    latency_products(self, op.k_blocks, LATENCY_A_BYTES + self.group * LATENCY_GROUP_COLUMNS * 128, acc, [&]() {
        if (finishes && (flags & MGV__KERNEL_FOLD_NORM)) latency_merge_parts(self, op, parts, norms);
    });
    if (deep && !owns) latency_send_sums(self, acc);
    if (deep && owns) latency_add_sums(self, acc);
    if (finishes) latency_epilogue(self, op, flags, place, with, norms, acc);
    if (!deep) latency_signal(self, tile, LATENCY_SYNC_MATH, 32 * LATENCY_MATH_WARPS, self.group == 0 && self.warp == 0 && self.lane == 0);
    if (!deep) return;
    if (owns) {
        latency_signal(self, tile, LATENCY_SYNC_ROWS, 32 * MGV__MATH_GROUPS, self.group == 0 && self.lane == 0);
        latency_end_exchange(self); /* after the stores: what came has been used */
    }
    self.exchange.advance();
}

#endif /* MGV_LATENCY_GEMM_CUH */
