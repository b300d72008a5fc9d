/* megavit: the loader. A warp that keeps the ring of stages full through the copy engine: all of it waits, one elected lane issues. (Of a
   lone thread the compiler does not know that it is alone, and builds a loop over lanes around every box:
   its operands must be the whole warp's.)

   GEMM: A is this CTA's own 128 x 64 block. B is shared by the cluster: each CTA loads half of its rows and multicasts them to both, so a
   stage is free only when the math warps of both CTAs have left it. Weights are loaded before the wait for what other CTAs write.
   SPLIT: both CTAs have one tile and half of K each, so each loads an A and a B of its own;
   one more stage, which the other CTA fills, follows.
   SHARE_ROWS: both CTAs have the same rows and columns of their own, so each loads an A and a B of its own, too. */
#ifndef MGV_LOADER_CUH
#define MGV_LOADER_CUH

#include "ranges.cuh"

/* Blackwell's tiles beside these: MGV_BLACKWELL_TILES true. WHOLE: a tile is one product of 128 rows, chunks are 128 rows of 32 columns,
   and math warps find norms themselves. MX: what a stage holds of 128 rows and of 192 is MXFP8, 128 columns of each, with the scales
   behind them. MX_OUT: math warps store rows of MXFP8 by themselves; ALONE: these alone, so chunks are only counted. */
#ifndef MGV_BLACKWELL_TILES
#define MGV_BLACKWELL_TILES false
#endif
DEVICE bool is_whole(const mgv__kernel_op &op) { return MGV_BLACKWELL_TILES && op.flags & MGV__KERNEL_WHOLE; }
DEVICE bool is_mx(const mgv__kernel_op &op) { return MGV_BLACKWELL_TILES && op.flags & MGV__KERNEL_MX; }
DEVICE bool is_mx_alone(const mgv__kernel_op &op) { return MGV_BLACKWELL_TILES && op.flags & MGV__KERNEL_MX_ALONE; }
/* The kernel's WHOLE tiles are products of pairs: each CTA loads its rows and its half of the weights' for itself, and all bytes are
   counted at the even CTA, whose thread multiplies for both. Biases are read from memory. */
template <uint32_t KINDS> DEVICE constexpr bool is_pairs() { return MGV_BLACKWELL_TILES && has_kind<KINDS>(MGV__KERNEL_PAIRS); }
enum { MX_SCALE_ATOM = MGV__MX_ATOM_BYTES, MX_SCALES_AT = (128 + 192) * 128, MX_SCALES_OF_B = 2 * MX_SCALE_ATOM };

struct Loader {
    SharedMemory *shared;
    const mgv__kernel_arguments &arguments;
    Ring<MGV__STAGES> stage;
    uint32_t cta;
    uint32_t ends;           /* the cluster gives up: nothing is announced or loaded any more */
    __device__ __forceinline__ Loader(SharedMemory *s, const mgv__kernel_arguments &a)
        : shared(s), arguments(a), cta(cluster_ctarank()), ends(0) {}
};

enum { GEMM_A_BYTES = MGV__GEMM_ROWS * MGV__GEMM_INNER * 2 /* of a block of 64 columns of A */ };

DEVICE const CUtensorMap *tensor_map(const mgv__kernel_arguments &arguments, uint32_t index) {
    return (const CUtensorMap *)&arguments.maps[index];
}

/* Waits until the stage is free. */
DEVICE void loader_wait_stage(Loader &self, const Ring<MGV__STAGES> &stage) {
    wait_barrier(&self.shared->stage_empty[stage.index], stage.parity ^ 1);
    warp_sync(); /* no lane may still be looking when the stage is filled */
    self.ends = gives_up(self.shared);
}

/* The same, and announces how many bytes will land in it. */
DEVICE void loader_open_stage(Loader &self, const Ring<MGV__STAGES> &stage, uint32_t bytes) {
    loader_wait_stage(self, stage);
    if (elect_sync() && !self.ends) mbarrier_arrive_expect_tx(shared_address(&self.shared->stage_full[stage.index]), bytes);
}

/* Waits until every role of this CTA is done with the tile before that of `slot`. */
DEVICE void loader_wait_vacated(Loader &self, const Ring<MGV__SLOTS> &slot) {
    const uint32_t before = (slot.index + MGV__SLOTS - 1) % MGV__SLOTS, parity = slot.index == 0 ? slot.parity ^ 1 : slot.parity;
    wait_barrier(&self.shared->slot_vacated[before], parity);
    warp_sync();
}

/* Waits until everything that the tile reads has been written, and orders the copy engine's reads after it. */
DEVICE void loader_wait_ready(Loader &self, const Ring<MGV__SLOTS> &slot) {
    wait_barrier(&self.shared->tile_ready[slot.index], slot.parity);
    warp_sync();
    self.ends = gives_up(self.shared);
    fence_proxy_async_global();
}

DEVICE void load_box_3d(Loader &self, uint32_t stage, uint32_t offset, uint32_t map, uint32_t x, uint32_t y, uint32_t z) {
    if (elect_sync() && !self.ends)
        cp_async_bulk_tensor_3d_load(shared_address(self.shared->stage[stage]) + offset, tensor_map(self.arguments, map),
                                     (int32_t)x, (int32_t)y, (int32_t)z, shared_address(&self.shared->stage_full[stage]));
}

/* Biases for the epilogue, counted with the bytes of stage MGV__STAGES of the tile. That stage is free only after all math warps have left
   the tile's first stage, and with it the epilogue of the tile before: nobody still reads what is overwritten here. In a tile with fewer
   stages, and on Blackwell, where stages are left during that epilogue, they come with the last, when the tile before has been vacated. By
   one lane. */
DEVICE void load_vectors(Loader &self, uint32_t stage, uint32_t first, uint32_t bytes) {
    fence_proxy_async_shared_cta(); /* behind the math warps' reads of the last tile's */
    cp_async_bulk_load(shared_address(self.shared->vectors), self.arguments.vectors + first, bytes,
                       shared_address(&self.shared->stage_full[stage]));
}

/* What the stages of one GEMM tile have in common. The tile lies in shared memory, where every field would be read again behind each
   instruction that touches memory, and the tensor cores would wait for that. So it is read once. */
struct GemmLoads {
    const CUtensorMap *a_map, *b_map;
    uint32_t a_x, a_row, group; /* of A's first block */
    uint32_t b_x, b_row;        /* of the weights' first block; of those rows that this CTA loads */
    uint32_t b_at;              /* where these rows lie in a stage */
    uint32_t b_bytes;           /* of a block of weights in a stage */
    uint32_t depth, split;
    uint32_t alone;             /* this CTA loads all rows of its weights, in two boxes, */
    uint32_t b_other;           /* the second of which begins here */
    uint32_t bias, bias_bytes;  /* of the columns that this CTA writes */
    const uint8_t *a_scales, *b_scales; /* MX: of the first block */
    uint32_t scale_bytes;       /* of a stage */
    uint32_t pair, pair_full;   /* the tile is of a pair; then stage_full[0] of the even CTA, */
    const CUtensorMap *a_scale_map, *b_scale_map; /* of atoms, as what is counted at another CTA comes by maps alone, */
    uint32_t a_atom, b_atom;    /* and the first of this CTA's rows and of the tile's weights */
};

/* TOWER: K may be shared out, by columns: those behind the last are the first ones of the next share. */
template <bool TOWER, bool PAIRS> DEVICE GemmLoads gemm_loads(const Loader &self, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t columns = mgv__tile_columns(op.kind), first_column = gemm_first_column(tile, self.cta);
    const uint32_t share = TOWER && first_column >= op.columns ? first_column / op.columns : 0;
    GemmLoads loads;
    loads.split = mgv__is_split(op.kind) ? columns : 0;
    loads.depth = gemm_depth(columns);
    loads.a_map = tensor_map(self.arguments, op.of.gemm.a_map);
    loads.b_map = tensor_map(self.arguments, op.of.gemm.b_map);
    const uint32_t first_x = (loads.split ? self.cta * gemm_steps(op) : share * op.of.gemm.blocks) * MGV__GEMM_INNER;
    loads.alone = loads.split || op.flags & MGV__KERNEL_SHARE_ROWS;
    const uint32_t own = loads.alone ? 0 : self.cta * (columns / MGV__CLUSTER);
    loads.a_x = tile.column * op.of.gemm.a_column_step + first_x;
    loads.a_row = gemm_first_row(tile, self.cta);
    loads.group = tile.group;
    loads.b_x = first_x;
    loads.b_row = op.of.gemm.b_row + first_column - share * op.columns + own;
    loads.b_other = loads.split ? op.of.gemm.b_row + gemm_first_column(tile, self.cta ^ 1) : loads.b_row + columns / MGV__CLUSTER;
    loads.b_at = loads.depth * GEMM_A_BYTES + own * MGV__GEMM_INNER * 2;
    loads.b_bytes = columns * MGV__GEMM_INNER * 2;
    loads.bias = op.of.gemm.bias + first_column;
    loads.bias_bytes = (loads.split ? columns / MGV__CLUSTER : columns) * 4;
    loads.scale_bytes = 0;
    loads.pair = PAIRS && is_whole(op);
    if (loads.pair) {
        loads.b_at = loads.depth * GEMM_A_BYTES;
        loads.b_bytes /= MGV__CLUSTER;
        loads.bias_bytes = 0;
        loads.pair_full = mapa_shared_cluster(shared_address(&self.shared->stage_full[0]), 0);
    }
    if (is_mx(op)) {
        const uint32_t row_tile = mgv__mx_row_tile(&op, tile.group, loads.a_row), blocks = op.of.gemm.blocks;
        loads.a_scales = self.arguments.mx[mgv__mx_source(op.flags)].scales + (size_t)row_tile * blocks * MX_SCALE_ATOM;
        loads.b_scales = (const uint8_t *)(self.arguments.vectors + op.of.gemm.scales) + first_column / 192 * blocks * MX_SCALES_OF_B;
        loads.scale_bytes = MX_SCALE_ATOM + MX_SCALES_OF_B;
        if (loads.pair) {
            const mgv__kernel_mx &source = self.arguments.mx[mgv__mx_source(op.flags)];
            loads.a_scale_map = tensor_map(self.arguments, op.of.gemm.rest_map);
            loads.b_scale_map = tensor_map(self.arguments, op.of.gemm.narrow_map);
            loads.a_atom = (uint32_t)(source.scales - source.rows) / MX_SCALE_ATOM + row_tile * blocks;
            loads.b_atom = op.of.gemm.scales / (MX_SCALE_ATOM / 4) + first_column / 192 * blocks * 2;
        }
    }
    return loads;
}

/* A pair's, of this CTA: rows and weights of one stage, by one lane. */
DEVICE void load_pair_weights(Loader &self, const GemmLoads &loads, uint32_t stage, uint32_t step) {
    const uint32_t full = loads.pair_full + stage * 8, to = shared_address(self.shared->stage[stage]);
    for (uint32_t block = 0; block < loads.depth; block++)
        cp_async_bulk_tensor_2d_load_pair(to + loads.b_at + block * loads.b_bytes, loads.b_map,
                                          (int32_t)((step * loads.depth + block) * MGV__GEMM_INNER), (int32_t)loads.b_row, full);
    if (!loads.scale_bytes) return;
    /* both CTAs want those of all weights */
    cp_async_bulk_tensor_2d_load_pair_multicast(to + MX_SCALES_AT + (1 + self.cta) * MX_SCALE_ATOM,
                                                loads.b_scale_map, 0, (int32_t)(loads.b_atom + 2 * step + self.cta), full, 3);
}
DEVICE void load_pair_activations(Loader &self, const GemmLoads &loads, uint32_t stage, uint32_t step) {
    const uint32_t full = loads.pair_full + stage * 8, to = shared_address(self.shared->stage[stage]);
    for (uint32_t block = 0; block < loads.depth; block++)
        cp_async_bulk_tensor_3d_load_pair(to + block * GEMM_A_BYTES, loads.a_map,
                                          (int32_t)((step * loads.depth + block) * MGV__GEMM_INNER), (int32_t)loads.a_row,
                                          (int32_t)loads.group, full);
    if (loads.scale_bytes)
        cp_async_bulk_tensor_2d_load_pair(to + MX_SCALES_AT, loads.a_scale_map, 0, (int32_t)(loads.a_atom + step), full);
}

/* The weights of one stage, by one lane: each CTA loads half of the rows for both or all of them for itself, of a SPLIT tile first those of
   the columns that it finishes. */
template <bool PAIRS> DEVICE void load_weights(Loader &self, const GemmLoads &loads, uint32_t stage, uint32_t step) {
    if constexpr (PAIRS)
        if (loads.pair) {
            load_pair_weights(self, loads, stage, step);
            return;
        }
    const uint32_t full = shared_address(&self.shared->stage_full[stage]);
    uint32_t to = shared_address(self.shared->stage[stage]) + loads.b_at, x = loads.b_x + step * loads.depth * MGV__GEMM_INNER;
    if (loads.alone) {
        cp_async_bulk_tensor_2d_load(to, loads.b_map, (int32_t)x, (int32_t)loads.b_row, full);
        cp_async_bulk_tensor_2d_load(to + loads.b_bytes / MGV__CLUSTER, loads.b_map, (int32_t)x, (int32_t)loads.b_other, full);
        return;
    }
    cp_async_bulk_tensor_2d_load_multicast(to, loads.b_map, (int32_t)x, (int32_t)loads.b_row, full, 3);
    if (loads.depth > 1)
        cp_async_bulk_tensor_2d_load_multicast(to + loads.b_bytes, loads.b_map,
                                               (int32_t)(x + MGV__GEMM_INNER), (int32_t)loads.b_row, full, 3);
}

/* Its activations, by one lane. */
template <bool PAIRS> DEVICE void load_activations(Loader &self, const GemmLoads &loads, uint32_t stage, uint32_t step) {
    if constexpr (PAIRS)
        if (loads.pair) {
            load_pair_activations(self, loads, stage, step);
            return;
        }
    const uint32_t full = shared_address(&self.shared->stage_full[stage]), to = shared_address(self.shared->stage[stage]);
    const uint32_t x = loads.a_x + step * loads.depth * MGV__GEMM_INNER;
    if (MGV_BLACKWELL_TILES && loads.scale_bytes)
        cp_async_bulk_load(to + MX_SCALES_AT, loads.a_scales + step * MX_SCALE_ATOM, MX_SCALE_ATOM, full);
    cp_async_bulk_tensor_3d_load(to, loads.a_map, (int32_t)x, (int32_t)loads.a_row, (int32_t)loads.group, full);
    if (loads.depth > 1)
        cp_async_bulk_tensor_3d_load(to + GEMM_A_BYTES, loads.a_map,
                                     (int32_t)(x + MGV__GEMM_INNER), (int32_t)loads.a_row, (int32_t)loads.group, full);
}

/* What the CTAs of a SPLIT tile send each other: bf16 sums of the columns that the other one finishes. */
DEVICE constexpr uint32_t split_exchange_bytes(uint32_t columns) { return MGV__GEMM_ROWS * (columns / MGV__CLUSTER) * 2; }

/* What lands at this CTA's stage_full in a stage of the tile, but for the biases. */
template <bool PAIRS> DEVICE uint32_t gemm_stage_bytes(const Loader &self, const GemmLoads &loads) {
    const uint32_t own = loads.depth * (GEMM_A_BYTES + loads.b_bytes) + (MGV_BLACKWELL_TILES ? loads.scale_bytes : 0);
    if (PAIRS && loads.pair) return self.cta ? 0 : own * MGV__CLUSTER;
    return own;
}

template <bool TOWER, bool PAIRS> DEVICE void load_gemm(Loader &self, const TileSlot &tile, const Ring<MGV__SLOTS> &slot) {
    const GemmLoads loads = gemm_loads<TOWER, PAIRS>(self, tile);
    const uint32_t stages = gemm_steps(tile.op),
                   vector_step = stages > MGV__STAGES && !MGV_BLACKWELL_TILES ? MGV__STAGES : stages - 1;
    const Ring<MGV__STAGES> first = self.stage;
    uint32_t ready = 0;
    if (tile.op.flags & MGV__KERNEL_WAIT_FIRST) {
        loader_wait_ready(self, slot);
        ready = 1;
    }
#pragma unroll 1
    for (uint32_t step = 0; step < stages; step++) {
        uint32_t vector_bytes = 0;
        if (step == vector_step && !(PAIRS && loads.pair)) {
            if (stages <= MGV__STAGES || MGV_BLACKWELL_TILES) loader_wait_vacated(self, slot);
            vector_bytes = loads.bias_bytes;
        }
        loader_wait_stage(self, self.stage);
        if (elect_sync() && !self.ends) {
            mbarrier_arrive_expect_tx(shared_address(&self.shared->stage_full[self.stage.index]),
                                      gemm_stage_bytes<PAIRS>(self, loads) + vector_bytes);
            if (MGV_BLACKWELL_TILES && loads.scale_bytes && !loads.pair)
                cp_async_bulk_load(shared_address(self.shared->stage[self.stage.index]) + MX_SCALES_AT + MX_SCALE_ATOM,
                                   loads.b_scales + step * MX_SCALES_OF_B, MX_SCALES_OF_B,
                                   shared_address(&self.shared->stage_full[self.stage.index]));
            load_weights<PAIRS>(self, loads, self.stage.index, step);
            if (ready) load_activations<PAIRS>(self, loads, self.stage.index, step);
            if (vector_bytes) load_vectors(self, self.stage.index, loads.bias, vector_bytes);
        }
        self.stage.advance();
        if (ready) continue;
        const uint32_t can_run_ahead = step + 1 < MGV__STAGES && step + 1 < stages;
        if (can_run_ahead && !vote_all(mbarrier_test_wait_parity(shared_address(&self.shared->tile_ready[slot.index]), slot.parity)))
            continue;
        loader_wait_ready(self, slot);
        ready = 1;
        Ring<MGV__STAGES> activations = first;
#pragma unroll 1
        for (uint32_t with_a = 0; with_a <= step; with_a++, activations.advance())
            if (elect_sync() && !self.ends) load_activations<PAIRS>(self, loads, activations.index, with_a);
    }
    if (!loads.split) return;
    loader_open_stage(self, self.stage, split_exchange_bytes(loads.split)); /* where the other CTA's sums will come */
    self.stage.advance();
}

/* Two stages a head: keys and two blocks of 64 queries, then values and, where the tile has them, two more blocks. What is known before the
   rows are ready is found before: a box takes some 30 instructions, by one lane. */
DEVICE void load_attention(Loader &self, const TileSlot &tile, const Ring<MGV__SLOTS> &slot, uint32_t keys) {
    const mgv__kernel_op &op = tile.op;
    const AttentionPart part = attention_part(tile, self.cta);
    const uint32_t image = image_number(op, tile.group, tile.unit), key_bytes = keys * 128, query_bytes = 64 * 128;
    const uint32_t heads = own_heads(tile) ? MGV__MATH_GROUPS : 1, whole = op.of.attention.parts == 1, inner = op.inner;
    const CUtensorMap *const key_map = tensor_map(self.arguments, op.of.attention.key_map),
                      *const query_map = tensor_map(self.arguments, op.of.attention.query_map);
    for (uint32_t i = 0; i < 2 * heads; i++) {
        const uint32_t half = i % 2, queries = half == 0 || whole, column = (part.head * heads + i / 2) * 64;
        const uint32_t to = opaque(shared_address(self.shared->stage[self.stage.index])),
                       full = opaque(shared_address(&self.shared->stage_full[self.stage.index])),
                       key_column = opaque(inner * (1 + half) + column), row = opaque(part.first * 64 + half * 128);
        loader_open_stage(self, self.stage, key_bytes + (queries ? 2 * query_bytes : 0));
        if (i == 0) loader_wait_ready(self, slot);
        if (elect_sync() && !self.ends) {
            cp_async_bulk_tensor_3d_load(to, key_map, (int32_t)key_column, 0, (int32_t)image, full);
            if (queries) {
                cp_async_bulk_tensor_3d_load(to + key_bytes, query_map, (int32_t)column, (int32_t)row, (int32_t)image, full);
                cp_async_bulk_tensor_3d_load(to + key_bytes + query_bytes, query_map, (int32_t)column, (int32_t)row + 64, (int32_t)image,
                                             full);
            }
        }
        self.stage.advance();
    }
}

DEVICE void load_box_4d(Loader &self, uint32_t stage, uint32_t offset, uint32_t map, uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
    if (elect_sync() && !self.ends)
        cp_async_bulk_tensor_4d_load(shared_address(self.shared->stage[stage]) + offset, tensor_map(self.arguments, map),
                                     (int32_t)x, (int32_t)y, (int32_t)z, (int32_t)w, shared_address(&self.shared->stage_full[stage]));
}

/* A stage of attention with online softmax: 64 columns of a block's keys, then of its values; what lies behind these columns, of keys,
   of values. */
template <uint32_t KEYS = MGV__ONLINE_KEYS> DEVICE constexpr uint32_t online_box(uint32_t part) { return part * KEYS * 128; }
template <uint32_t KEYS = MGV__ONLINE_KEYS> DEVICE constexpr uint32_t online_rest(uint32_t part, uint32_t rest) {
    return online_box<KEYS>(2) + part * KEYS * rest * 2;
}
static_assert(2 * MGV__ONLINE_KEYS * MGV__KERNEL_MAX_HEAD_DIM * 2 <= MGV__STAGE_BYTES, "a block of keys and values fits one stage");
static_assert(2 * MGV__WIDE_KEYS * MGV__KERNEL_WIDE_HEAD_DIM * 2 <= MGV__STAGE_BYTES && MGV__WIDE_KEYS % 16 == 0, "and of wide heads");

/* Keys and values block by block. The storers bring the queries. */
template <uint32_t KINDS> DEVICE void load_attention_online(Loader &self, const TileSlot &tile, const Ring<MGV__SLOTS> &slot) {
    constexpr uint32_t KEYS = online_keys_of<KINDS>();
    const mgv__kernel_op &op = tile.op;
    const AttentionPart part = attention_part(tile, self.cta);
    const uint32_t image = image_number(op, tile.group, tile.unit), rest = rest_columns<KINDS>(op);
    loader_wait_ready(self, slot);
    for (uint32_t row = 0; row < op.tokens; row += KEYS, self.stage.advance()) {
        loader_open_stage(self, self.stage, online_rest<KEYS>(2, rest));
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t head = (1 + i) * op.heads + part.head;
            load_box_4d(self, self.stage.index, online_box<KEYS>(i), op.of.attention.key_map, 0, head, row, image);
            if (rest) load_box_4d(self, self.stage.index, online_rest<KEYS>(i, rest), op.of.attention.key_rest_map, 64, head, row, image);
        }
    }
}

/* Attention of pairs: block by block of keys, of each block a stage for each math group's head. A stage has what its products take, queries
   among it, which come again with each block: so nothing is kept from one to the next. All bytes are counted at the even CTA. */
struct PairAttentionLoads {
    uint32_t rest, image, to, full;
};
DEVICE uint32_t pair_attention_bytes(uint32_t rest, uint32_t keys) {
    const uint32_t half = mgv__pair_multiplied(keys) / MGV__CLUSTER, rows = 128 + mgv__ceil_div(half, 64) * 64;
    return rows * (64 + rest) * 2 + mgv__ceil_div(keys, 128) * 128 * (rest ? 96 : 64);
}
/* Rows of a head of queries or keys, 64 at a time, by one lane. */
DEVICE void load_pair_rows(Loader &self, const mgv__kernel_op &op, const PairAttentionLoads &l, uint32_t at, uint32_t rest_at,
                           uint32_t head, uint32_t row, uint32_t count) {
#pragma unroll 1
    for (uint32_t i = 0; i < count; i += 64) {
        cp_async_bulk_tensor_4d_load_pair(l.to + at + i * 128, tensor_map(self.arguments, op.of.attention.query_map), 0, (int32_t)head,
                                          (int32_t)(row + i), (int32_t)l.image, l.full);
        if (l.rest)
            cp_async_bulk_tensor_4d_load_pair(l.to + rest_at + i * l.rest * 2,
                                              tensor_map(self.arguments, op.of.attention.query_rest_map), 64, (int32_t)head,
                                              (int32_t)(row + i), (int32_t)l.image, l.full);
    }
}
/* This CTA's columns of values, 32, or three times 16, of 128 keys at a time. */
DEVICE void load_pair_values(Loader &self, const mgv__kernel_op &op, const PairAttentionLoads &l, uint32_t at, uint32_t head, uint32_t row,
                             uint32_t keys) {
    const uint32_t columns = l.rest ? 16 : 32, own = self.cta * (l.rest ? 48 : 32);
#pragma unroll 1
    for (uint32_t i = 0; i < (l.rest ? 3 : mgv__ceil_div(keys, 128)); i++)
        cp_async_bulk_tensor_4d_load_pair(l.to + at + i * 256 * columns, tensor_map(self.arguments, op.of.attention.key_map),
                                          (int32_t)(own + (l.rest ? 16 * i : 0)), (int32_t)head, (int32_t)(row + (l.rest ? 0 : 128 * i)),
                                          (int32_t)l.image, l.full);
}
DEVICE void load_pair_attention(Loader &self, const TileSlot &tile, const Ring<MGV__SLOTS> &slot) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t block = pair_keys(op);
    PairAttentionLoads l;
    l.rest = rest_columns(op);
    l.image = image_number(op, tile.group, tile.unit);
    const PairStage stage = pair_stage(l.rest);
#pragma unroll 1
    for (uint32_t i = 0; i < MGV__MATH_GROUPS * mgv__ceil_div(op.tokens, block); i++, self.stage.advance()) {
        const PairQueries q = pair_queries(tile, self.cta, i % MGV__MATH_GROUPS);
        const uint32_t row = i / MGV__MATH_GROUPS * block, keys = mgv__min_u32(op.tokens - row, block),
                       half = mgv__pair_multiplied(keys) / MGV__CLUSTER;
        loader_open_stage(self, self.stage, self.cta ? 0 : MGV__CLUSTER * pair_attention_bytes(l.rest, keys));
        if (i == 0) loader_wait_ready(self, slot);
        l.to = shared_address(self.shared->stage[self.stage.index]);
        l.full = mapa_shared_cluster(shared_address(&self.shared->stage_full[self.stage.index]), 0);
        if (!elect_sync() || self.ends) continue;
        load_pair_rows(self, op, l, 0, stage.queries_rest, q.head, q.first, 128);
        load_pair_rows(self, op, l, stage.keys, stage.keys_rest, op.heads + q.head, row + self.cta * half, half);
        load_pair_values(self, op, l, stage.values, 2 * op.heads + q.head, row, keys);
    }
}

/* The same over the keys of ranges.cuh. */
template <uint32_t KINDS> DEVICE void load_attention_ranges(Loader &self, const TileSlot &tile, const Ring<MGV__SLOTS> &slot) {
    constexpr uint32_t KEYS = online_keys_of<KINDS>();
    const mgv__kernel_op &op = tile.op;
    const uint32_t number = tile.column * MGV__CLUSTER + self.cta, rest = rest_columns<KINDS>(op);
    KeyWalk walk = key_walk(self.arguments, tile);
    loader_wait_ready(self, slot);
    do {
        loader_open_stage(self, self.stage, online_rest<KEYS>(2, rest));
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t head = (1 + i) * op.heads + number;
            load_box_4d(self, self.stage.index, online_box<KEYS>(i), op.of.attention.key_map, 0, head, walk.row, 0);
            if (rest) load_box_4d(self, self.stage.index, online_rest<KEYS>(i, rest), op.of.attention.key_rest_map, 64, head, walk.row, 0);
        }
        self.stage.advance();
    } while (next_keys<KEYS>(walk));
}

/* The image's tokens, in chunks of 64 columns: all with the scoring vectors, then those of this part alone. */
DEVICE void load_pool(Loader &self, const TileSlot &tile, const Ring<MGV__SLOTS> &slot, uint32_t keys) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t image = image_number(op, tile.group, tile.unit * MGV__CLUSTER + self.cta), key_bytes = keys * 128;
    loader_wait_ready(self, slot);
    const PoolPart part = pool_part(tile);
    for (uint32_t block = 0; block < op.of.pool.blocks + part.end - part.first; block++) {
        const uint32_t stage = self.stage.index, scoring = block < op.of.pool.blocks,
                       column = (scoring ? block : part.first + block - op.of.pool.blocks) * 64;
        loader_open_stage(self, self.stage, key_bytes + (scoring ? 64 * 128 : 0));
        load_box_3d(self, stage, 0, op.of.pool.token_map, column, 0, image);
        if (scoring) load_box_3d(self, stage, key_bytes, op.of.pool.score_map, column, 0, 0);
        self.stage.advance();
    }
}

/* The image's tokens in blocks, 64 columns of them for each math group. */
template <class Tokens>
DEVICE void load_pool_tokens(Loader &self, const TileSlot &tile, const Ring<MGV__SLOTS> &slot, const Tokens &tokens) {
    const mgv__kernel_op &op = tile.op;
    loader_wait_ready(self, slot);
    for (uint32_t row = 0; row < tokens.count(); row += MGV__ONLINE_KEYS, self.stage.advance()) {
        loader_open_stage(self, self.stage, online_box(MGV__MATH_GROUPS));
        for (uint32_t i = 0; i < MGV__MATH_GROUPS; i++)
            load_box_3d(self, self.stage.index, online_box(i), op.of.pool.token_map, (tile.column * MGV__MATH_GROUPS + i) * 64,
                        tokens.box_row(row), tokens.box_image());
    }
}
template <bool ANY_SIZE> DEVICE void load_pool_sums(Loader &self, const TileSlot &tile, const Ring<MGV__SLOTS> &slot) {
    if constexpr (ANY_SIZE)
        if (self.arguments.picture_rows) {
            const PictureTokens tokens = picture_tokens(self.arguments, tile, self.cta);
            load_pool_tokens(self, tile, slot, tokens);
            for (uint32_t i = mgv__ceil_div(tokens.count(), MGV__ONLINE_KEYS); i < tokens.blocks; i++, self.stage.advance())
                loader_open_stage(self, self.stage, 0);
            return;
        }
    load_pool_tokens(self, tile, slot, image_tokens(tile, self.cta));
}

template <uint32_t KINDS> ROUTINE void loader_role(SharedMemory *shared, const mgv__kernel_arguments &arguments) {
    Loader self(shared, arguments);
    for (Ring<MGV__SLOTS> slot;; slot.advance()) {
        wait_barrier(&shared->tile_known[slot.index], slot.parity);
        self.ends = !vote_all(!gives_up(shared));
        const TileSlot &tile = shared->slot[slot.index];
        if (self.ends || tile.op.kind == MGV__KERNEL_END) break;
        if (mgv__tile_columns(tile.op.kind)) load_gemm<is_tower<KINDS>(), is_pairs<KINDS>()>(self, tile, slot);
        else if (is_pairs<KINDS>() && is_attention(tile.op.kind)) load_pair_attention(self, tile, slot);
        else if (is_kind<KINDS, MGV__KERNEL_ATTENTION>(tile.op.kind)) load_attention(self, tile, slot, mgv__key_block(tile.op.tokens));
        else if (is_kind<KINDS, MGV__KERNEL_ATTENTION_ONLINE>(tile.op.kind)) load_attention_online<KINDS>(self, tile, slot);
        else if (is_kind<KINDS, MGV__KERNEL_ATTENTION_RANGES>(tile.op.kind)) load_attention_ranges<KINDS>(self, tile, slot);
        else if (is_kind<KINDS, MGV__KERNEL_POOL>(tile.op.kind)) load_pool(self, tile, slot, mgv__key_block(tile.op.tokens));
        else if (is_kind<KINDS, MGV__KERNEL_POOL_SUMS>(tile.op.kind)) load_pool_sums<is_tower<KINDS>()>(self, tile, slot);
        else if (is_few_rows(tile.op.kind)) {
            loader_open_stage(self, self.stage, 0); /* where the math warps put their sums */
            self.stage.advance();
        }
        warp_sync();
        if (elect_sync()) mbarrier_arrive(shared_address(&shared->slot_vacated[slot.index]));
    }
}

#endif /* MGV_LOADER_CUH */
