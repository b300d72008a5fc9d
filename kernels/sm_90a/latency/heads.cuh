/* megavit: the latency regime's attention and pooling head. Formulas and layouts are those of
   throughput/attention.cuh, siglip_head/gemv.cuh. */
#ifndef MGV_LATENCY_HEADS_CUH
#define MGV_LATENCY_HEADS_CUH

#include "online.cuh"
#include "../throughput/attention.cuh"
#include "../siglip_head/latency_pool.cuh"
#include "../siglip_head/latency_sums.cuh"
#include "../siglip_head/pool_tokens.cuh"
#include "../throughput/rows.cuh"

DEVICE void latency_wait_stages(LatencyMath &self, LatencyRowStage stage, int count) {
#pragma unroll 1
    for (int i = 0; i < count; i++, stage.advance()) latency_wait_stage(self, stage);
}

/* --- attention --------------------------------------------------------------------------------------------------- */

/* What both math groups have of this thread's two rows: sum of exponentials, 16 of the weighted values' columns,
   those that this group ends. */
struct LatencyAttended {
    float sum[2], values[16];
};
/* Each group has seen half of the keys, and both have taken the same from a row's exponents, so that halves are added. Where any thread of
   the CTA says that a row's exponentials had no room, nothing is: 1. */
DEVICE uint32_t latency_join_halves(LatencyMath &self, uint32_t no_room, const float (&sum)[2], const float (&o)[32],
                                    LatencyAttended &joined) {
    const uint32_t to = shared_address(&self.shared->swap[self.group ^ 1]) + latency_thread_bytes(self),
                   from = shared_address(&self.shared->swap[self.group]) + latency_thread_bytes(self);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float away[4];
#pragma unroll
        for (int e = 0; e < 4; e++) {
            away[e] = self.group ? o[4 * i + e] : o[16 + 4 * i + e];
            joined.values[4 * i + e] = self.group ? o[16 + 4 * i + e] : o[4 * i + e];
        }
        shared_store_v4f32(to + i * LATENCY_GROUP_BYTES, away[0], away[1], away[2], away[3]);
    }
    shared_store_v2f32(to + 4 * LATENCY_GROUP_BYTES, sum[0], sum[1]);
    if (latency_any(no_room)) return 1;
    float other_sum[2];
    shared_load_v2f32(from + 4 * LATENCY_GROUP_BYTES, other_sum[0], other_sum[1]);
#pragma unroll
    for (int r = 0; r < 2; r++) joined.sum[r] = sum[r] + other_sum[r];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float other[4];
        shared_load_v4f32(from + i * LATENCY_GROUP_BYTES, other[0], other[1], other[2], other[3]);
#pragma unroll
        for (int e = 0; e < 4; e++) joined.values[4 * i + e] += other[e];
    }
    return 0;
}

/* The largest scores of this thread's two rows, of either group -> of both. */
DEVICE void latency_join_largest(LatencyMath &self, float (&most)[2]) {
    constexpr uint32_t BEHIND = 4 * LATENCY_GROUP_BYTES + 8; /* a thread's sums in latency_join_halves */
    float other[2];
    shared_store_v2f32(shared_address(&self.shared->swap[self.group ^ 1]) + latency_thread_bytes(self) + BEHIND, most[0], most[1]);
    latency_sync();
    shared_load_v2f32(shared_address(&self.shared->swap[self.group]) + latency_thread_bytes(self) + BEHIND, other[0], other[1]);
#pragma unroll
    for (int r = 0; r < 2; r++) most[r] = fmaxf(most[r], other[r]);
}

/* The tile's stages, when all math warps have met behind their last look at any. The second group leaves them for both, while a warp of
   the first waits for its signal's release. */
DEVICE void latency_leave_attention(LatencyMath &self) {
    LatencyRowStage left = self.stage;
    self.stage = latency_stage_after(left, LATENCY_ATTENTION_STAGES);
    if (self.group == 0) return;
#pragma unroll
    for (int i = 0; i < LATENCY_ATTENTION_STAGES; i++, left.advance()) latency_leave_stage(self, left);
}

/* One block of 64 queries, as in attention.cuh: each math group takes its keys in two parts. ROWS: of a plan's tile, which is as many keys
   as a group has at most; products are with KEYS of them. */
template <int ROWS> ROUTINE void latency_attention_tile(LatencyMath &self, const LatencyTile &tile) {
    constexpr int KEYS = latency_half_keys(ROWS), A = (KEYS / 16 + 1) / 2 * 16, B = KEYS - A;
    const LatencyRowStage first = self.stage,
                          keys_stage = latency_stage_after(first, 1 + self.group),
                          values_stage = latency_stage_after(first, 3 + self.group);
    const uint32_t half = latency_first_keys(tile.tokens), exist = self.group ? tile.tokens - half : half;
    const uint32_t exist_a = exist < A ? exist : A, exist_b = exist - exist_a;
    if (tile.rows == 0) {
        latency_wait_ready(self);
        latency_wait_stages(self, first, LATENCY_ATTENTION_STAGES);
        latency_sync();
        latency_leave_attention(self);
        return;
    }
    const uint32_t query = self.warp * 16 + self.lane / 4, pitch = tile.pitch;
    const uint32_t has_rows = self.warp * 16 < tile.rows; /* this warp */
    uint16_t *to = (uint16_t *)tile.target + (size_t)query * pitch + self.group * 32 + latency_pair_column(self.lane);
    float a[A / 2], b[B / 2], o[32];
    wgmma_registers_zero(a); /* never again: the first product overwrites, but undefined registers would do harm */
    wgmma_registers_zero(b);
    wgmma_registers_zero(o);
    latency_wait_ready(self);
    latency_wait_stage(self, first);
    latency_wait_stage(self, keys_stage);
    const uint64_t queries = matrix_descriptor(latency_stage_address(self, first)),
                   keys = matrix_descriptor(latency_stage_address(self, keys_stage)),
                   values = matrix_descriptor(latency_stage_address(self, values_stage));
    LatencyAttended joined;
    uint32_t once_more = 0;
    do {
        part_scores(queries, keys, a);
        part_scores(queries, descriptor_behind(keys, A * 8), b); /* A keys are A * 128 bytes */
        if (once_more) part_below_largest(a, b, exist_a, exist_b, self.lane, [&](float (&most)[2]) { latency_join_largest(self, most); });
        uint32_t p_a[A / 4], p_b[B / 4];
        float sum[2] = {0, 0};
        wgmma_wait_group<1>();
        wgmma_registers_fence(a);
        if (has_rows) part_exponentials<A>(a, exist_a, self.lane, sum);
        pack_probabilities<A>(a, p_a);
        latency_wait_stage(self, values_stage);
        part_values(p_a, values, o, 0);
        wgmma_wait_group<1>();
        wgmma_registers_fence(b);
        if (has_rows) part_exponentials<ROWS - A>(b, exist_b, self.lane, sum);
#pragma unroll
        for (int i = ROWS / 2 - A / 2; i < B / 2; i++) b[i] = 0; /* keys without weight */
        pack_probabilities<B>(b, p_b);
        part_values(p_b, descriptor_behind(values, A * 8), o, 1);
        sum[0] = quad_sum(sum[0]);
        sum[1] = quad_sum(sum[1]);
        const uint32_t no_room = has_rows && exist && !once_more && !(exponentials_fit(sum[0]) && exponentials_fit(sum[1]));
        wgmma_wait_group<0>();
        wgmma_registers_fence(o);
        once_more = latency_join_halves(self, no_room, sum, o, joined);
    } while (once_more);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float rcp = rcp_approx(joined.sum[r]);
#pragma unroll
        for (int pair = 0; pair < 2; pair++) {
            const float *e = &joined.values[8 * pair + 2 * r];
            latency_store_pair(self.lane, to + (size_t)8 * r * pitch + pair * 16, cvt_rn_bf16x2(e[0] * rcp, e[1] * rcp),
                               cvt_rn_bf16x2(e[4] * rcp, e[5] * rcp), query + 8 * r < tile.rows);
        }
    }
    latency_signal(self);
    latency_leave_attention(self);
}

/* --- the pooling head -------------------------------------------------------------------------------------------- */

/* Its products, each code run once before it has rows. */
template <bool ANY_WIDTH> ROUTINE void latency_gemv_tile(LatencyMath &self, const TileSlot &tile) {
    static_assert((int)MGV__LATENCY_MAX_IMAGES <= GEMV_ROWS / 2, "rows of one half are all that there are");
    const uint32_t kind = 1u << tile.op.kind;
    FewRows rows = {self.arguments, tile.op, self.group * 4 + self.warp, self.lane, tile.group, tile.unit,
                    image_number(tile.op, tile.group, tile.unit), tile.column * MGV__LATENCY_CLUSTER + self.cta,
                    shared_address(self.shared->swap), !(self.seen & kind), 0};
    self.seen |= kind;
    for (uint32_t again = 1; again;) {
        again = rows.rehearsal;
        rows.rows = again ? 0 : tile.op.rows_total;
        gemv_rows<1, ANY_WIDTH>(rows, [&] { latency_wait_ready(self); }, [] { latency_sync(); });
        latency_sync();
        rows.rehearsal = 0;
    }
    if (self.counter) red_release_gpu_add(self.counter, 1); /* who waits reads by ordinary loads: no proxy fence */
}

/* Rows that are copied, or normalised where they lie: the warps of all CTAs of a cluster take turns. */
ROUTINE void latency_rows_tile(LatencyMath &self, const TileSlot &tile) {
    uint32_t first, end;
    latency_tile_rows(self.arguments, tile, first, end);
    latency_wait_ready(self);
    rows_of_warp(self, tile, first + self.cta * LATENCY_MATH_WARPS + self.group * 4 + self.warp, end,
                 LATENCY_MATH_WARPS * MGV__LATENCY_CLUSTER);
    latency_signal(self);
}

/* Its sums where heads are of other widths, of some tokens each, and these together. */
ROUTINE void latency_few_rows_tile(LatencyMath &self, const TileSlot &tile) {
    const FewRows rows = {self.arguments, tile.op, self.group * 4 + self.warp, self.lane, tile.group, tile.unit,
                          image_number(tile.op, tile.group, tile.unit), tile.column * MGV__LATENCY_CLUSTER + self.cta,
                          shared_address(self.shared->swap), 0, tile.op.rows_total};
    const auto wait = [&] { latency_wait_ready(self); };
    if (tile.op.kind == MGV__KERNEL_POOL_TOKENS) pool_tokens(rows, wait, [] { latency_sync(); });
    else pool_join(rows, wait);
    latency_sync();
    if (self.counter) red_release_gpu_add(self.counter, 1);
}

#endif /* MGV_LATENCY_HEADS_CUH */
