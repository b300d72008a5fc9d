/* megavit: prompts, shared memory, waits, the list of tiles, and the warp that copies ahead of those that work. */
#ifndef MGV_PROMPT_TILES_CUH
#define MGV_PROMPT_TILES_CUH

#include "kernel.cuh"

enum {
    PROMPT_MATH = 32 * MGV__PROMPT_WARPS, /* threads that work */
    PROMPT_BARRIER = 1,
    PROMPT_GROUP_BARRIER, /* and the next: of four warps that multiply together */
    PROMPT_STEP_FRAGMENTS = 4, /* of each block of weights, in a stage */
    PROMPT_PART = MGV__PROMPT_ROWS / 8 * PROMPT_STEP_FRAGMENTS * 256, /* bytes of rows in a stage; of weights as many */
    PROMPT_KEY_PITCH = 320, PROMPT_VALUE_PITCH = 272, /* bytes from key to key: no two lanes meet in a bank */
    PROMPT_VALUES = MGV__PROMPT_KEYS * PROMPT_KEY_PITCH
};
static_assert(PROMPT_PART == MGV__PROMPT_BLOCKS * PROMPT_STEP_FRAGMENTS * 512 && MGV__PROMPT_STAGE_BYTES == 3 * PROMPT_PART,
              "a stage: weights, rows, of a split product the other half's rows");
static_assert(PROMPT_VALUES + MGV__PROMPT_KEYS * PROMPT_VALUE_PITCH <= MGV__PROMPT_STAGE_BYTES, "or keys and values");

struct PromptMemory {
    uint8_t ring[MGV__PROMPT_STAGES][MGV__PROMPT_STAGE_BYTES];
    float squares[2][MGV__PROMPT_ROWS]; /* of rows: two halves of their columns */
    float warps[MGV__PROMPT_WARPS][MGV__PROMPT_ROWS]; /* of a tile's columns: each warp's */
    uint32_t given_up[MGV__PROMPT_STAGES]; /* of a product's first stage: its rows will not come */
    uint64_t full[MGV__PROMPT_STAGES], empty[MGV__PROMPT_STAGES];
};
static_assert(sizeof(PromptMemory) <= MGV__MAX_SHARED_BYTES, "shared memory of one CTA");
static_assert(PROMPT_MATH * MGV__PROMPT_REGISTERS + (MGV__PROMPT_THREADS - PROMPT_MATH) * MGV__PROMPT_COPY_REGISTERS <= MGV__MAX_REGISTERS,
              "registers of one CTA");

struct PromptTile {
    uint32_t op, kind, layer, block, unit; /* op: of the launch */
    uint32_t live;                         /* ids of the block */
};

struct Prompter {
    PromptMemory *shared;
    const mgv__prompt_arguments &a;
    const mgv__decode_arguments &d;
    uint32_t gone, warp, lane, stage, parity;
    __device__ __forceinline__ Prompter(PromptMemory *s, const mgv__prompt_arguments &arguments)
        : shared(s), a(arguments), d(arguments.decode), gone(0), warp(threadIdx.x / 32), lane(threadIdx.x % 32), stage(0), parity(0) {}
};

/* ---- waits ---- */

/* at: the operation that waits. */
template <class Look> DEVICE uint32_t prompt_wait(Prompter &self, uint32_t wait, uint32_t at, const Look &look) {
    return decode_wait_at(self.d, self.lane, self.gone, wait, at, look);
}
DEVICE uint32_t prompt_sync(Prompter &self) {
    self.gone = bar_red_or(PROMPT_BARRIER, PROMPT_MATH, self.gone);
    return self.gone;
}
DEVICE void prompt_next_stage(Prompter &self) {
    if (++self.stage == MGV__PROMPT_STAGES) {
        self.stage = 0;
        self.parity ^= 1;
    }
}
DEVICE void prompt_wait_stage(Prompter &self, const PromptTile &tile) {
    const uint32_t barrier = shared_address(&self.shared->full[self.stage]);
    prompt_wait(self, MGV__PROMPT_STAGE, tile.op, [&]() { return mbarrier_try_wait_parity(barrier, self.parity); });
}
DEVICE void prompt_leave_stage(Prompter &self) {
    warp_sync();
    if (self.lane == 0) mbarrier_arrive(shared_address(&self.shared->empty[self.stage]));
    prompt_next_stage(self);
}

/* ---- tiles ---- */

DEVICE uint32_t prompt_units(const mgv__decode_arguments &d, uint32_t kind) {
    switch (kind) {
    case MGV__PROMPT_EMBED: return mgv__ceil_div(d.width, MGV__PROMPT_SQUARES);
    case MGV__PROMPT_ATTENTION: return d.heads;
    case MGV__PROMPT_QKV: return mgv__ceil_div(d.product[MGV__PRODUCT_QKV].blocks, MGV__PROMPT_BLOCKS);
    case MGV__PROMPT_OUT: return mgv__ceil_div(d.product[MGV__PRODUCT_OUT].blocks, MGV__PROMPT_BLOCKS);
    case MGV__PROMPT_GATE_UP: return mgv__ceil_div(d.product[MGV__PRODUCT_GATE_UP].blocks, MGV__PROMPT_BLOCKS);
    default: return mgv__ceil_div(d.product[MGV__PRODUCT_DOWN].blocks, MGV__PROMPT_BLOCKS);
    }
}
/* This CTA's tiles in their order, until work says 1. */
template <class Work> DEVICE void prompt_each_tile(const Prompter &self, const Work &work) {
    const mgv__decode_arguments &d = self.d;
    const uint32_t blocks = mgv__ceil_div(self.a.rows, MGV__PROMPT_ROWS);
    uint32_t before = 0;
#pragma unroll 1
    for (uint32_t op = 0; op <= d.layers * MGV__PROMPT_LAYER_OPS; op++) {
        const uint32_t kind = op ? 1 + (op - 1) % MGV__PROMPT_LAYER_OPS : (uint32_t)MGV__PROMPT_EMBED, units = prompt_units(d, kind);
#pragma unroll 1
        for (uint32_t i = decode_first_unit(before); i < units * blocks; i += gridDim.x) {
            const uint32_t block = i / units;
            const PromptTile tile = {op, kind, op ? (op - 1) / MGV__PROMPT_LAYER_OPS : 0, block, i % units,
                                     mgv__min_u32(self.a.rows - block * MGV__PROMPT_ROWS, MGV__PROMPT_ROWS)};
            if (work(tile)) return;
        }
        before += units * blocks;
    }
}
DEVICE uint32_t prompt_counter(uint32_t op, uint32_t block) { return op * MGV__PROMPT_MOST_BLOCKS + block; }
DEVICE const mgv__decode_product &prompt_shape(const Prompter &self, uint32_t kind) {
    return self.d.product[kind == MGV__PROMPT_QKV       ? MGV__PRODUCT_QKV
                          : kind == MGV__PROMPT_OUT     ? MGV__PRODUCT_OUT
                          : kind == MGV__PROMPT_GATE_UP ? MGV__PRODUCT_GATE_UP
                                                        : MGV__PRODUCT_DOWN];
}
/* Keys that a block of ids may look at: those before it and its own. */
DEVICE uint32_t prompt_keys(const Prompter &self, const PromptTile &tile) {
    return self.d.session[0].position + tile.block * MGV__PROMPT_ROWS + tile.live;
}

/* Where column `column` of id `row` lies in a fragment of eight ids by 16 columns, in elements: B of wgmma without a swizzle, two
   matrices of eight rows of 16 bytes. Columns stand as the weights' fragments have them, where a lane's four are neighbours. */
DEVICE uint32_t prompt_place_in_fragment(uint32_t row, uint32_t column) {
    return column % 4 / 2 * 64 + row % 8 * 8 + column % 16 / 4 * 2 + column % 2;
}
/* Where column `column` of id `row` of a block lies among the rows that a product reads, in elements. K in steps of 64 columns, as weights
   lie: of each eighth of a row its fragment number s, four eighths a step. */
DEVICE uint64_t prompt_place(const mgv__decode_product &shape, uint32_t block, uint32_t row, uint32_t column) {
    const uint32_t each = shape.fragments * 16, half = shape.split ? column / each : 0, at = column - half * each, fragment = at / 16;
    const uint32_t eighth = fragment / shape.slices, step = fragment % shape.slices * 2 + eighth / PROMPT_STEP_FRAGMENTS;
    const uint32_t steps = (block * (1 + shape.split) + half) * shape.slices * 2 + step;
    return ((uint64_t)steps * (MGV__PROMPT_ROWS / 8) + row / 8) * (PROMPT_STEP_FRAGMENTS * 128) + eighth % PROMPT_STEP_FRAGMENTS * 128 +
           prompt_place_in_fragment(row, at);
}

/* ---- the warp that copies ---- */

struct PromptLoader {
    Prompter self;
    uint32_t used; /* stages that were filled, up to their number */
};

/* The next stage is free. 0: the launch is given up. */
DEVICE uint32_t prompt_take_stage(PromptLoader &loader, const PromptTile &tile) {
    Prompter &self = loader.self;
    const uint32_t barrier = shared_address(&self.shared->empty[self.stage]);
    if (!prompt_wait(self, MGV__PROMPT_STAGE, tile.op, [&]() { return mbarrier_try_wait_parity(barrier, self.parity ^ 1); })) return 0;
    fence_proxy_async_shared_cta(); /* behind the reads of what was there */
    if (loader.used < MGV__PROMPT_STAGES) loader.used++;
    return 1;
}
/* All tiles of operation tile.op - 1 for this block of ids are done. */
DEVICE uint32_t prompt_wait_tiles(Prompter &self, const PromptTile &tile, uint32_t block) {
    const uint32_t before = tile.op == 1                          ? (uint32_t)MGV__PROMPT_EMBED
                            : tile.kind == MGV__PROMPT_QKV ? (uint32_t)MGV__PROMPT_DOWN
                                                           : tile.kind - 1;
    const uint32_t *const counter = self.a.counters + prompt_counter(tile.op - 1, block), all = prompt_units(self.d, before);
    return prompt_wait(self, MGV__PROMPT_TILES, tile.op, [&]() { return ld_relaxed_gpu_before_fence(counter) == all; });
}
DEVICE uint32_t prompt_wait_for(Prompter &self, const PromptTile &tile) {
#pragma unroll 1
    for (uint32_t block = tile.kind == MGV__PROMPT_ATTENTION ? 0 : tile.block; block <= tile.block; block++)
        if (!prompt_wait_tiles(self, tile, block)) return 0;
    fence_acquire_gpu();
    fence_proxy_async_global();
    return 1;
}

/* Weights come before the wait. EIGHTS: see prompt_product.cuh. 1: the launch is given up. */
template <uint32_t EIGHTS> DEVICE uint32_t prompt_load_product(PromptLoader &loader, const PromptTile &tile) {
    Prompter &self = loader.self;
    const mgv__decode_product &shape = prompt_shape(self, tile.kind);
    const uint32_t first = tile.unit * MGV__PROMPT_BLOCKS, blocks = mgv__min_u32(shape.blocks - first, MGV__PROMPT_BLOCKS);
    const uint32_t which = tile.kind - MGV__PROMPT_QKV, steps = shape.slices * 2; /* QKV, ATTENTION, OUT, GATE_UP, DOWN */
    const uint16_t *const x = which == 0 ? self.a.x[0] : which == 2 ? self.a.attended : which == 3 ? self.a.x[1] : self.a.hidden;
    const uint8_t *const weights = self.d.weights + shape.weights + tile.layer * self.d.layer_bytes +
                                   (uint64_t)first * shape.slices * MGV__DECODE_SLICE_BYTES;
    const uint8_t *const rows = (const uint8_t *)x + (uint64_t)tile.block * (1 + shape.split) * steps * PROMPT_PART;
    const uint32_t part = EIGHTS * (PROMPT_STEP_FRAGMENTS * 256); /* bytes of rows */
#pragma unroll 1
    for (uint32_t step = 0; step < steps; step++) {
        if (!prompt_take_stage(loader, tile)) return 1;
        const uint32_t full = shared_address(&self.shared->full[self.stage]), to = shared_address(self.shared->ring[self.stage]);
        const uint32_t each = PROMPT_STEP_FRAGMENTS * 512;
        if (self.lane == 0) mbarrier_expect_tx(full, blocks * each);
        warp_sync();
        if (self.lane < blocks)
            cp_async_bulk_load(to + self.lane * each, weights + (uint64_t)self.lane * shape.slices * MGV__DECODE_SLICE_BYTES + step * each,
                               each, full);
        const uint32_t there = step > 0 || prompt_wait_for(self, tile);
        if (self.lane == 0) {
            if (step == 0) self.shared->given_up[self.stage] = !there;
            mbarrier_arrive_expect_tx(full, there ? (1 + shape.split) * part : 0);
            if (there) cp_async_bulk_load(to + PROMPT_PART, rows + (uint64_t)step * PROMPT_PART, part, full);
            if (there && shape.split) cp_async_bulk_load(to + 2 * PROMPT_PART, rows + (uint64_t)(steps + step) * PROMPT_PART, part, full);
        }
        warp_sync();
        prompt_next_stage(self);
        if (!there) return 1;
    }
    return 0;
}

/* A block's keys and values, a row at a time; behind the last one it is copied again, as what weighs nothing must be a number. */
DEVICE uint32_t prompt_load_attention(PromptLoader &loader, const PromptTile &tile) {
    Prompter &self = loader.self;
    const mgv__decode_session &session = self.d.session[0];
    const uint32_t keys = prompt_keys(self, tile), head = tile.unit / (self.d.heads / self.d.key_heads);
    const uint64_t place = (uint64_t)(tile.layer * self.d.key_heads + head) * session.capacity;
#pragma unroll 1
    for (uint32_t first = 0; first < keys; first += MGV__PROMPT_KEYS) {
        if (first == 0 && !prompt_wait_for(self, tile)) return 1;
        if (!prompt_take_stage(loader, tile)) return 1;
        const uint32_t full = shared_address(&self.shared->full[self.stage]), to = shared_address(self.shared->ring[self.stage]);
        if (self.lane == 0) mbarrier_arrive_expect_tx(full, MGV__PROMPT_KEYS * MGV__DECODE_HEAD_DIM * 4);
        warp_sync();
#pragma unroll 1
        for (uint32_t key = self.lane; key < MGV__PROMPT_KEYS; key += 32) {
            const uint64_t row = (place + mgv__min_u32(first + key, keys - 1)) * MGV__DECODE_HEAD_DIM;
            cp_async_bulk_load(to + key * PROMPT_KEY_PITCH, session.keys + row, MGV__DECODE_HEAD_DIM * 2, full);
            cp_async_bulk_load(to + PROMPT_VALUES + key * PROMPT_VALUE_PITCH, session.values + row, MGV__DECODE_HEAD_DIM * 2, full);
        }
        warp_sync();
        prompt_next_stage(self);
    }
    return 0;
}

/* What is on its way when all is done or given up lands before shared memory goes away. */
template <uint32_t EIGHTS> DEVICE void prompt_loader_role(PromptMemory *shared, const mgv__prompt_arguments &arguments) {
    PromptLoader loader = {Prompter(shared, arguments), 0};
    Prompter &self = loader.self;
    prompt_each_tile(self, [&](const PromptTile &tile) {
        if (tile.kind == MGV__PROMPT_EMBED) return 0u;
        return tile.kind == MGV__PROMPT_ATTENTION ? prompt_load_attention(loader, tile) : prompt_load_product<EIGHTS>(loader, tile);
    });
#pragma unroll 1
    for (uint32_t left = loader.used; left > 0; left--) {
        if (self.stage-- == 0) {
            self.stage = MGV__PROMPT_STAGES - 1;
            self.parity ^= 1;
        }
        const uint32_t full = shared_address(&shared->full[self.stage]);
#pragma unroll 1
        for (uint32_t looks = 0; looks < self.d.poll_limit && !mbarrier_try_wait_parity(full, self.parity); looks++) {}
    }
}

#endif /* MGV_PROMPT_TILES_CUH */
