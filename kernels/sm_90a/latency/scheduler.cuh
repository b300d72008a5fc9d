/* megavit: the latency regime's scheduler, and the warp that finds norms. The scheduler walks the list of segments and announces this CTA's
   tiles, a few ahead, each with what the math warps want to know of it. */
#ifndef MGV_LATENCY_SCHEDULER_CUH
#define MGV_LATENCY_SCHEDULER_CUH

#include "loader.cuh"

/* A row's statistics are (mean, squared deviations) of parts of 64 columns: all of one size, so the mean is the mean of the means, and the
   squared deviations are the parts' and those of their means, which are taken from the first of them. ANY_WIDTH: the last may have fewer,
   and counts for as many. A lane has two rows, one after the
   other, so that a load brings a part of both: what this warp issues the math warps beside it do not. */
enum { LATENCY_NORM_ROWS = 2, LATENCY_NORM_LOADS = 12, LATENCY_NORM_LAST_LOADS = 4 /* at once */ };
static_assert((int)MGV__STATS_ROWS % LATENCY_NORM_ROWS == 0 && (int)MGV__LATENCY_SHORT_ROWS % LATENCY_NORM_ROWS == 0,
              "rows that a lane has lie side by side");
struct LatencyParts {
    float first, off, off_squares, squares;
};
/* LOADS parts from `part` on; ALL: all of them are less than `parts`. last: how much the last one counts. */
template <int LOADS, bool ALL, bool ANY_WIDTH>
DEVICE void latency_add_parts(LatencyParts (&rows)[LATENCY_NORM_ROWS], const float *from, uint32_t part, uint32_t parts, float last) {
    float x[LOADS][2 * LATENCY_NORM_ROWS];
#pragma unroll
    for (uint32_t i = 0; i < LOADS; i++) {
        uint32_t u[2 * LATENCY_NORM_ROWS];
        ld_relaxed_gpu_v4u32(from + (ALL || part + i < parts ? part + i : part) * STATS_PART, u[0], u[1], u[2], u[3]);
#pragma unroll
        for (int k = 0; k < 2 * LATENCY_NORM_ROWS; k++) x[i][k] = __uint_as_float(u[k]);
    }
#pragma unroll
    for (uint32_t i = 0; i < LOADS; i++) wgmma_registers_fence(x[i]);
#pragma unroll
    for (int r = 0; r < LATENCY_NORM_ROWS; r++) {
        LatencyParts &row = rows[r];
        if (part == 0) row.first = x[0][2 * r];
#pragma unroll
        for (uint32_t i = 0; i < LOADS; i++) {
            if (!ALL && part + i >= parts) continue;
            const float d = x[i][2 * r] - row.first, off = ANY_WIDTH && part + i + 1 == parts ? last * d : d;
            row.off += off;
            row.off_squares += off * d;
            row.squares += x[i][2 * r + 1];
        }
    }
}
/* Those of a group's rows [first, end). TOWER: of an RMSNorm the reciprocal root of the mean square. */
template <bool TOWER, bool ANY_WIDTH>
DEVICE void latency_find_norms(const LatencyLoader &self, const mgv__kernel_op &op, uint32_t group, uint32_t first, uint32_t end) {
    const float *stats = self.arguments.stats + op.stats_in;
    const uint32_t inner = op.inner, parts = ANY_WIDTH ? (inner + 63) / 64 : inner / 64,
                   last = first < end ? (end - 1 - first) / LATENCY_NORM_ROWS * LATENCY_NORM_ROWS : 0;
    const float rcp_parts = ANY_WIDTH ? 64.0f / (float)inner : 1.0f / (float)parts, epsilon = op.epsilon,
                last_part = (float)(inner - (parts - 1) * 64) * (1.0f / 64);
#pragma unroll 1
    for (uint32_t row = self.lane * LATENCY_NORM_ROWS; row < MGV__LATENCY_MAX_ROWS; row += 32 * LATENCY_NORM_ROWS) {
        LatencyParts of[LATENCY_NORM_ROWS] = {};
        /* beyond the last rows the last again */
        const float *from = stats + stats_place(op, op.inner, group, first + (row < last ? row : last), 0);
        uint32_t part = first < end ? 0 : parts;
#pragma unroll 1
        for (; part + LATENCY_NORM_LOADS <= parts; part += LATENCY_NORM_LOADS)
            latency_add_parts<LATENCY_NORM_LOADS, true, ANY_WIDTH>(of, from, part, parts, last_part);
#pragma unroll 1
        for (; part < parts; part += LATENCY_NORM_LAST_LOADS)
            latency_add_parts<LATENCY_NORM_LAST_LOADS, false, ANY_WIDTH>(of, from, part, parts, last_part);
#pragma unroll
        for (int r = 0; r < LATENCY_NORM_ROWS; r++) {
            const float mean = of[r].off * rcp_parts,
                        variance = (of[r].squares * (1.0f / 64) + (of[r].off_squares - of[r].off * mean)) * rcp_parts;
            LatencyNorm *to = &self.shared->norms[row + r];
            to->mean = of[r].first + mean;
            to->rstd = rsqrtf((TOWER && op.flags & MGV__KERNEL_RMS ? variance + to->mean * to->mean : variance) + epsilon);
        }
    }
}

/* The first image, which the first operation reads, on its way to the L2 cache while that operation is looked up: a line a lane. */
DEVICE void latency_prefetch_image(const mgv__kernel_arguments &arguments) {
    constexpr uint32_t LINE = 128;
    const uint32_t bytes = arguments.image_size * arguments.image_size * 3, first = blockIdx.x * 32 + threadIdx.x % 32;
    for (uint32_t at = first * LINE; at < bytes; at += gridDim.x * 32 * LINE) prefetch_global_L2(arguments.pixels + at);
}

/* The norms of a tile's rows, while they are loaded and multiplied. */
template <uint32_t KINDS> DEVICE void latency_tile_norms(LatencyLoader &self, const TileSlot &tile) {
    uint32_t first, end;
    latency_tile_rows(self.arguments, tile, first, end);
    wait_barrier(&self.shared->tile_ready[self.slot.index], self.slot.parity);
    wait_barrier(&self.shared->norms_empty, self.norms.parity ^ 1);
    latency_find_norms<is_tower<KINDS>(), latency_any_width<KINDS>()>(self, tile.op, tile.group, first, end);
    warp_sync();
    if (self.lane == 0) mbarrier_arrive(shared_address(&self.shared->norms_full));
    self.norms.advance();
}

/* In place of the math warps, which begin the next tile while the release, some 600 clocks, is on its way. They cannot get ahead of this
   warp by more than the slots. */
DEVICE void latency_signal_stored(LatencyLoader &self, uint32_t *counter) {
    const uint32_t slot = self.slot.index;
    wait_barrier(&self.shared->tile_stored[slot], self.stored >> slot & 1);
    warp_sync();
    if (self.lane == 0 && counter) red_release_gpu_add(counter, 1);
    self.stored ^= 1u << slot;
}

/* A warp that finds norms, and signals where the math warps have tiles to go on with. */
template <uint32_t KINDS> ROUTINE void latency_norm_role(LatencyMemory *shared, const mgv__kernel_arguments &arguments) {
    LatencyLoader self(shared, arguments);
    latency_prefetch_image(arguments);
    clear_next_counters(arguments, 0, 1);
    latency_loader_tiles(self, [&](const TileSlot &tile, bool gemm) {
        const LatencyTile &described = shared->tile[self.slot.index];
        const uint32_t signals = warp_uniform(described.others_signal);
        uint32_t *const counter = described.counter;
        if (gemm && tile.op.flags & MGV__KERNEL_FOLD_NORM) latency_tile_norms<KINDS>(self, tile);
        if (signals) latency_signal_stored(self, counter);
    });
}

/* --- the scheduler ----------------------------------------------------------------------------------------------- */

template <uint32_t KINDS>
ROUTINE void latency_scheduler_role(LatencyMemory *shared, const mgv__kernel_arguments &arguments, Watchdog &dog) {
    Ring<MGV__SLOTS> slot;
    const uint32_t lane = threadIdx.x % 32, step = nclusterid_x();
    uint32_t segment = 0, count = 0;
    for (uint32_t number = clusterid_x();; number += step, slot.advance()) {
        count++;
        const auto describe = [&](const TileSlot &tile) {
            shared->tile[slot.index] = latency_describe<KINDS>(arguments, tile, cluster_ctarank(), count);
        };
        if (!announce_tile(shared, arguments, dog, slot, number, segment, [&](TileSlot &tile) { latency_rest(arguments, tile); }, describe))
            break;
        const TileSlot &tile = shared->slot[slot.index];
        if (tile.op.kind == MGV__KERNEL_POOL_HEADS) latency_prefetch_pool(arguments, tile, cluster_ctarank());
        if (tile.op.kind == MGV__KERNEL_GEMV)
            prefetch_gemv_weights(arguments, tile, tile.column * MGV__LATENCY_CLUSTER + cluster_ctarank());
        if (lane < 2) latency_prefetch_map<KINDS>(arguments, tile.op, lane);
    }
    watch_last_tiles(shared, dog, slot);
}

#endif /* MGV_LATENCY_SCHEDULER_CUH */
