/* megavit: what towers for pictures of any size have beside the others' tiles in the latency regime: positions that turn queries and keys
   or are sampled from a table, gates of MLPs, attention by ranges, patches of tokens, mergers. Only the kernel of such towers has this
   code. */
#ifndef MGV_LATENCY_TOWERS_CUH
#define MGV_LATENCY_TOWERS_CUH

#include "heads.cuh"
#include "../patches.cuh"
#include "../throughput/mergers.cuh"

/* Turns queries and keys (throughput/towers.cuh): here a pair's columns are those of two lanes, four apart, and a lane has two columns of
   which one is the eighth after the other. `first`: the first of these groups of rows. ANY_WIDTH: a block of 64 columns
   may be of keys and of values. */
template <int COUNT, bool ANY_WIDTH>
DEVICE void latency_turn(const LatencyMath &self, const LatencyTile &tile, const TileSlot &slot, uint32_t first, float (&v)[4 * COUNT]) {
    const mgv__kernel_op &op = slot.op;
    const mgv__kernel_arguments &arguments = self.arguments;
    const uint32_t begin = latency_column_tile(slot, self.cta) * MGV__LATENCY_COLUMNS, column = self.warp * 16 + self.lane / 4;
    if (begin >= 2 * op.inner) return; /* values */
    const uint32_t each = head_columns(op) / 2, eights = head_columns(op) / 8, pair = column % 8 / 2; /* each: floats of an entry */
    const float *const table = arguments.vectors + op.of.latency.table + pair / 2 * 2;
    const uint32_t eight = (begin + column) / 8 % eights, next_eight = eight + 1 == eights ? 0 : eight + 1;
    const float sign = column % 2 ? 1.0f : -1.0f;
#pragma unroll
    for (int j = 0; j < COUNT; j++)
#pragma unroll
        for (uint32_t r = 0; r < 2; r++) {
            const uint32_t row = tile.base + (first + j) * 8 + 2 * (self.lane % 4) + r; /* rows beyond the last are some others' */
            const float *const entry = table + (size_t)each * ld_global_nc_u32(arguments.places + (size_t)(row % arguments.place_rows) *
                                                                                                     arguments.place_words + pair % 2);
#pragma unroll
            for (uint32_t h = 0; h < 2; h++) {
                float cosine, sine, &x = v[4 * j + 2 * h + r];
                ld_global_nc_v2f32(entry + 4 * (h ? next_eight : eight), cosine, sine);
                const float turned = x * cosine + sign * (shfl_bfly_f32(x, 4) * sine);
                if (!ANY_WIDTH || begin + column + 8 * h < 2 * op.inner) x = turned;
            }
        }
}

/* A gated MLP's sums: of a warp's sixteen columns eight are the gate's, and the eighth after each, which the same thread has, is what it
   opens. */
template <int COUNT> DEVICE void latency_open_gates(uint32_t flags, float (&v)[4 * COUNT]) {
    float gate[2 * COUNT];
#pragma unroll
    for (int i = 0; i < 2 * COUNT; i++) gate[i] = v[i / 2 * 4 + i % 2];
    gemm_activate<2 * COUNT, true>(flags, gate);
#pragma unroll
    for (int i = 0; i < 2 * COUNT; i++) v[i / 2 * 4 + i % 2] = gate[i] * v[i / 2 * 4 + 2 + i % 2];
}
/* They turn into rows of 32 columns: of the four matrices of eight rows and columns that a warp stores at once each is a group's.
   to: of this lane, a row of the first four groups. */
template <int COUNT> DEVICE void latency_gated_matrices(uint32_t to, const float (&v)[4 * COUNT]) {
    static_assert(COUNT % 4 == 0, "whole stores");
#pragma unroll
    for (int j = 0; j < COUNT; j += 4)
        stmatrix_x4_transposed(to + j * 8 * LATENCY_NARROW_PITCH, cvt_rn_bf16x2(v[4 * j], v[4 * j + 1]),
                               cvt_rn_bf16x2(v[4 * j + 4], v[4 * j + 5]), cvt_rn_bf16x2(v[4 * j + 8], v[4 * j + 9]),
                               cvt_rn_bf16x2(v[4 * j + 12], v[4 * j + 13]));
}

/* A row's samples of the table of positions, of this lane's eight columns. */
DEVICE void latency_fetch_samples(const LatencyMath &self, const LatencyTile &tile, uint32_t row, float (&sum)[8]) {
    const mgv__kernel_token *const token = &self.arguments.tokens[tile.base + row];
    const mgv__kernel_sample *const down = self.arguments.samples + ld_global_nc_u32(&token->down),
                             *const across = self.arguments.samples + ld_global_nc_u32(&token->across);
    const uint32_t counts = ld_global_nc_u32(&token->sample_counts), wide = counts >> 16, all = (counts & 0xFFFF) * wide;
#pragma unroll
    for (int k = 0; k < 8; k++) sum[k] = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < all; i++) {
        const mgv__kernel_sample *const d = &down[i / wide], *const a = &across[i % wide];
        const float weight = ld_global_nc_f32(&d->weight) * ld_global_nc_f32(&a->weight);
        const size_t number = ld_global_nc_u32(&d->entry) + ld_global_nc_u32(&a->entry);
        const float *const entry = (const float *)tile.added + number * tile.pitch + self.lane % 8 * 8;
#pragma unroll
        for (int k = 0; k < 8; k += 2) {
            float low, high;
            ld_global_nc_v2f32(entry + k, low, high);
            sum[k] += weight * low;
            sum[k + 1] += weight * high;
        }
    }
}

ROUTINE void latency_patches_of_tokens_tile(LatencyMath &self, const TileSlot &tile) {
    const uint32_t thread =
        (tile.column * MGV__LATENCY_CLUSTER + self.cta) * 32 * LATENCY_MATH_WARPS + (self.group * 4 + self.warp) * 32 + self.lane;
    uint32_t first, end;
    latency_tile_rows(self.arguments, tile, first, end);
    latency_wait_ready(self);
    patches_of_tokens(self.arguments, tile.op, first, end, thread,
                      tile.op.column_tiles * MGV__LATENCY_CLUSTER * 32 * LATENCY_MATH_WARPS);
    latency_signal(self);
}

/* Rows that are folded are one warp's, so a row tile's are so few warps' of each CTA. */
ROUTINE void latency_merge_tile(LatencyMath &self, const TileSlot &tile) {
    constexpr uint32_t WARPS = MGV__LATENCY_MAX_ROWS / MERGE_WARP_ROWS / MGV__LATENCY_CLUSTER;
    static_assert(MGV__LATENCY_MAX_ROWS == WARPS * MERGE_WARP_ROWS * MGV__LATENCY_CLUSTER, "a row tile is whole warps'");
    const uint32_t warp = self.group * 4 + self.warp;
    uint32_t first, end;
    latency_tile_rows(self.arguments, tile, first, end);
    latency_wait_ready(self);
    if (warp < WARPS) merge_of_warp(self, tile, first + (self.cta * WARPS + warp) * MERGE_WARP_ROWS, end);
    latency_signal(self);
}

#endif /* MGV_LATENCY_TOWERS_CUH */
