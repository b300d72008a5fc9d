/* megavit: prompts, shared memory, waits, the list of tiles, and the warp that copies ahead of those that work. */
#ifndef MGV_PROMPT_TILES_CUH
#define MGV_PROMPT_TILES_CUH

#include "kernel.cuh"

enum {
    PROMPT_MATH = 32 * MGV__PROMPT_WARPS, /* threads that work */
    PROMPT_BARRIER = 1,
    PROMPT_GROUP_BARRIER, /* and the next: of four warps that multiply together */
    PROMPT_STEPS = 8 / MGV__PROMPT_STEP, /* of a slice of weights */
    PROMPT_PART = MGV__PROMPT_ROWS / 8 * MGV__PROMPT_STEP * 256, /* bytes of rows in a stage; of a narrow tile's weights as many */
    PROMPT_NEXT_ROWS = MGV__PROMPT_STEP * 128, /* elements from eight ids to the next */
    PROMPT_RUN = 8,            /* keys that lie as the cache has them; runs are apart so that no two lanes meet in a bank */
    PROMPT_KEY_BYTES = MGV__DECODE_HEAD_DIM * 2,
    PROMPT_KEY_PITCH = PROMPT_RUN * PROMPT_KEY_BYTES + 64, /* bytes from run to run */
    PROMPT_VALUE_PITCH = PROMPT_RUN * PROMPT_KEY_BYTES + 16,
    PROMPT_RUNS = MGV__PROMPT_KEYS / PROMPT_RUN,
    PROMPT_VALUES = PROMPT_RUNS * PROMPT_KEY_PITCH
};
static_assert(PROMPT_PART == MGV__PROMPT_BLOCKS * MGV__PROMPT_STEP * 512 && MGV__PROMPT_STAGE_BYTES >= 4 * PROMPT_PART,
              "a stage: a wide tile's weights, rows, of a split product the other half's rows");
static_assert(PROMPT_VALUES + PROMPT_RUNS * PROMPT_VALUE_PITCH <= MGV__PROMPT_STAGE_BYTES, "or keys and values");

struct PromptMemory {
    uint8_t ring[MGV__PROMPT_STAGES][MGV__PROMPT_STAGE_BYTES];
    float squares[MGV__PROMPT_WARPS][MGV__PROMPT_ROWS]; /* of rows: those parts that each warp has added up */
    float scale[MGV__PROMPT_ROWS];                      /* and what their norm multiplies them by */
    float warps[2][MGV__PROMPT_WARPS][MGV__PROMPT_ROWS]; /* of the columns of a tile, or of half of a wide one: each warp's */
    float turn[2][MGV__PROMPT_ROWS];                    /* of a head's rows, as scale */
    uint32_t given_up[MGV__PROMPT_STAGES]; /* of a product's first stage: its rows will not come */
    uint64_t full[MGV__PROMPT_STAGES], empty[MGV__PROMPT_STAGES];
};
static_assert(sizeof(PromptMemory) <= MGV__MAX_SHARED_BYTES, "shared memory of one CTA");
static_assert(PROMPT_MATH * MGV__PROMPT_REGISTERS + (MGV__PROMPT_THREADS - PROMPT_MATH) * MGV__PROMPT_COPY_REGISTERS <= MGV__MAX_REGISTERS,
              "registers of one CTA");

struct PromptTile {
    uint32_t op, kind, layer, block, unit; /* op: of the launch */
    uint32_t live;                         /* ids of the block */
    uint32_t wide;                         /* it has twice as many blocks of weights */
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

DEVICE uint32_t prompt_is_wide(const Prompter &self, uint32_t kind) { return self.a.wide >> kind & 1; }
/* This CTA's tiles in their order, until work says 1. */
template <class Work> DEVICE void prompt_each_tile(const Prompter &self, const Work &work) {
    const mgv__decode_arguments &d = self.d;
    const uint32_t blocks = mgv__ceil_div(self.a.rows, MGV__PROMPT_ROWS);
    uint32_t before = 0;
#pragma unroll 1
    for (uint32_t op = 0; op <= d.layers * MGV__PROMPT_LAYER_OPS; op++) {
        const uint32_t kind = op ? 1 + (op - 1) % MGV__PROMPT_LAYER_OPS : (uint32_t)MGV__PROMPT_EMBED, wide = prompt_is_wide(self, kind);
        const uint32_t units = mgv__prompt_units(&d, kind, wide);
#pragma unroll 1
        for (uint32_t i = decode_first_unit(before); i < units * blocks; i += gridDim.x) {
            const uint32_t block = i / units;
            const PromptTile tile = {op, kind, op ? (op - 1) / MGV__PROMPT_LAYER_OPS : 0, block, i % units,
                                     mgv__min_u32(self.a.rows - block * MGV__PROMPT_ROWS, MGV__PROMPT_ROWS), wide};
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
/* Where column `column` of id `row` of a block lies among the rows that a product reads, in elements. K in steps, as weights lie: of each
   eighth of a row its fragment number s, MGV__PROMPT_STEP eighths a step. */
DEVICE uint64_t prompt_place(const mgv__decode_product &shape, uint32_t block, uint32_t row, uint32_t column) {
    const uint32_t each = shape.fragments * 16, half = shape.split ? column / each : 0, at = column - half * each, fragment = at / 16;
    const uint32_t eighth = fragment / shape.slices, step = fragment % shape.slices * PROMPT_STEPS + eighth / MGV__PROMPT_STEP;
    const uint32_t steps = (block * (1 + shape.split) + half) * shape.slices * PROMPT_STEPS + step;
    return ((uint64_t)steps * (MGV__PROMPT_ROWS / 8) + row / 8) * PROMPT_NEXT_ROWS + eighth % MGV__PROMPT_STEP * 128 +
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
    const uint32_t *const counter = self.a.counters + prompt_counter(tile.op - 1, block);
    const uint32_t all = mgv__prompt_units(&self.d, before, prompt_is_wide(self, before));
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

/* A product's tile, as the warp that copies sees it. */
struct PromptCopies {
    const uint8_t *weights, *rows;
    uint32_t blocks, there, pitch; /* blocks of the tile, those that there are; bytes from one's weights to the next one's */
    uint32_t steps;
    uint64_t half;          /* bytes from the rows of one half of K to the other's; 0: the product is not split */
};
DEVICE PromptCopies prompt_copies(const Prompter &self, const PromptTile &tile) {
    const mgv__decode_product &shape = prompt_shape(self, tile.kind);
    const uint32_t each = MGV__PROMPT_BLOCKS << tile.wide, first = tile.unit * each, steps = shape.slices * PROMPT_STEPS;
    const uint32_t which = tile.kind - MGV__PROMPT_QKV; /* QKV, ATTENTION, OUT, GATE_UP, DOWN */
    const uint16_t *const x = which == 0 ? self.a.x[0] : which == 2 ? self.a.attended : which == 3 ? self.a.x[1] : self.a.hidden;
    const uint32_t pitch = shape.slices * MGV__DECODE_SLICE_BYTES;
    return {self.d.weights + shape.weights + tile.layer * self.d.layer_bytes + (uint64_t)first * pitch,
            (const uint8_t *)x + (uint64_t)tile.block * (1 + shape.split) * steps * PROMPT_PART, each,
            mgv__min_u32(shape.blocks - first, each), pitch, steps, shape.split ? (uint64_t)steps * PROMPT_PART : 0};
}
/* Behind the last block it is copied again: nothing comes of it, but what is multiplied has been written. */
DEVICE void prompt_load_weights(const Prompter &self, const PromptCopies &copies, uint32_t stage, uint32_t step) {
    const uint32_t full = shared_address(&self.shared->full[stage]), to = shared_address(self.shared->ring[stage]);
    const uint32_t each = MGV__PROMPT_STEP * 512;
    if (self.lane == 0) mbarrier_expect_tx(full, copies.blocks * each);
    warp_sync();
    if (self.lane < copies.blocks) {
        const uint8_t *const block = copies.weights + (uint64_t)mgv__min_u32(self.lane, copies.there - 1) * copies.pitch;
        cp_async_bulk_load(to + self.lane * each, block + step * each, each, full);
    }
}
/* EIGHTS: see prompt_product.cuh. there: 0: the launch is given up. */
template <uint32_t EIGHTS>
DEVICE void prompt_load_rows(const Prompter &self, const PromptCopies &copies, uint32_t stage, uint32_t step, uint32_t there) {
    const uint32_t full = shared_address(&self.shared->full[stage]), to = shared_address(self.shared->ring[stage]) + 2 * PROMPT_PART;
    const uint32_t bytes = EIGHTS * (MGV__PROMPT_STEP * 256);
    const uint8_t *const from = copies.rows + (uint64_t)step * PROMPT_PART;
    if (self.lane) return;
    if (step == 0) self.shared->given_up[stage] = !there;
    mbarrier_arrive_expect_tx(full, !there ? 0 : copies.half ? 2 * bytes : bytes);
    if (there) cp_async_bulk_load(to, from, bytes, full);
    if (there && copies.half) cp_async_bulk_load(to + PROMPT_PART, from + copies.half, bytes, full);
}
/* As many weights as the ring holds come before the wait. 1: the launch is given up. */
template <uint32_t EIGHTS> DEVICE uint32_t prompt_load_product(PromptLoader &loader, const PromptTile &tile) {
    Prompter &self = loader.self;
    const PromptCopies copies = prompt_copies(self, tile);
    const uint32_t ahead = mgv__min_u32(copies.steps, MGV__PROMPT_STAGES);
    uint32_t stage = self.stage, step;
#pragma unroll 1
    for (step = 0; step < ahead && prompt_take_stage(loader, tile); step++) {
        prompt_load_weights(self, copies, self.stage, step);
        prompt_next_stage(self);
    }
    const uint32_t taken = step, there = taken == ahead && prompt_wait_for(self, tile);
#pragma unroll 1
    for (step = 0; step < taken; step++) {
        prompt_load_rows<EIGHTS>(self, copies, stage, step, there);
        if (++stage == MGV__PROMPT_STAGES) stage = 0;
    }
    warp_sync();
    if (!there) return 1;
#pragma unroll 1
    for (; step < copies.steps; step++) {
        if (!prompt_take_stage(loader, tile)) return 1;
        prompt_load_weights(self, copies, self.stage, step);
        prompt_load_rows<EIGHTS>(self, copies, self.stage, step, 1);
        warp_sync();
        prompt_next_stage(self);
    }
    return 0;
}

/* A block's keys and values, in runs of keys; behind the last one it is copied again, as what weighs nothing must be a number. */
DEVICE uint32_t prompt_load_attention(PromptLoader &loader, const PromptTile &tile) {
    Prompter &self = loader.self;
    const mgv__decode_session &session = self.d.session[0];
    const uint32_t keys = prompt_keys(self, tile), head = tile.unit / (self.d.heads / self.d.key_heads);
    const uint32_t run = self.lane % PROMPT_RUNS, values = self.lane / PROMPT_RUNS; /* this lane's */
    const uint16_t *const from = (values ? session.values : session.keys) +
                                 (uint64_t)(tile.layer * self.d.key_heads + head) * session.capacity * MGV__DECODE_HEAD_DIM;
#pragma unroll 1
    for (uint32_t first = 0; first < keys; first += MGV__PROMPT_KEYS) {
        if (first == 0 && !prompt_wait_for(self, tile)) return 1;
        if (!prompt_take_stage(loader, tile)) return 1;
        const uint32_t full = shared_address(&self.shared->full[self.stage]), key = first + run * PROMPT_RUN;
        const uint32_t to = shared_address(self.shared->ring[self.stage]) + (values ? PROMPT_VALUES + run * PROMPT_VALUE_PITCH
                                                                                    : run * PROMPT_KEY_PITCH);
        if (self.lane == 0) mbarrier_arrive_expect_tx(full, MGV__PROMPT_KEYS * PROMPT_KEY_BYTES * 2);
        warp_sync();
        if (values < 2) {
            const uint32_t at_once = key + PROMPT_RUN <= keys ? PROMPT_RUN : 1;
#pragma unroll 1
            for (uint32_t i = 0; i < PROMPT_RUN; i += at_once)
                cp_async_bulk_load(to + i * PROMPT_KEY_BYTES, from + (uint64_t)mgv__min_u32(key + i, keys - 1) * MGV__DECODE_HEAD_DIM,
                                   at_once * PROMPT_KEY_BYTES, full);
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
