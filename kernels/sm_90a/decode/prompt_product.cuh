/* megavit: prompts, products by tiles of 128 ids and what becomes of their sums; embeddings.

   Weights are A of wgmma, from registers: the decoder's fragments are what a warp gives of it. Ids are the columns of B.
   EIGHTS: ids of a block that are taken, in eights: all 16, or 4 in the kernel for few ids. A row's sums are the same in both. */
#ifndef MGV_PROMPT_PRODUCT_CUH
#define MGV_PROMPT_PRODUCT_CUH

#include "prompt_tiles.cuh"

/* What a warp has of a tile's sums, of a wide tile's twice: 16 rows of weights by eights of ids. Its lane 4 g + t has in
   sum[4 j + 2 h + r] row g + 8 h of id 8 j + 2 t + r.
   - QKV: of a head's columns eight of the first 64, and those 64 behind them, with which rotary positions turn them;
   - gates and ups: eight columns of both;
   - split products, of which both halves of K are apart: 16 columns, and half of the ids: the other four warps have the others. Of a wide
     tile it has all ids instead. */
struct PromptWarp {
    uint32_t number, g, t;
};
DEVICE PromptWarp prompt_warp(const Prompter &self) {
    const uint32_t lane = opaque(self.lane);
    return {opaque(self.warp), lane / 4, lane % 4};
}
/* The first of the two ids that a lane has of eight ids number j. */
DEVICE uint32_t prompt_row(const PromptWarp &w, uint32_t j) { return j * 8 + w.t * 2; }
/* Which 16 columns of a split product it has. */
template <uint32_t WIDE> DEVICE uint32_t prompt_split_warp(const PromptWarp &w) { return WIDE ? w.number : w.number % 4; }
DEVICE uint32_t prompt_head_column(const PromptWarp &w) { return w.number / 2 * 16 + w.number % 2 * 8 + w.g; } /* of the first 64 */

DEVICE void prompt_take_weights(uint32_t (&a)[4], uint32_t stage, const PromptWarp &w, uint32_t block, uint32_t fragment) {
    decode_load_fragment(a, stage + (block * MGV__PROMPT_STEP + fragment) * 512 + (w.g * 4 + w.t) * 16);
}
/* Eights of ids of a stage from `first` on, without a swizzle: 128 bytes from eight columns of K to the next. */
DEVICE uint64_t prompt_rows_descriptor(uint32_t rows, uint32_t first) {
    const uint64_t next_columns = 128 / 16, next_rows = MGV__PROMPT_STEP * 256 / 16;
    return next_rows << 32 | next_columns << 16 | ((rows + first * (MGV__PROMPT_STEP * 256)) & 0x3FFFF) >> 4;
}

/* A warp's rows of two fragments: of each the upper eight (half 0) or the lower eight. */
DEVICE void prompt_join_halves(uint32_t (&a)[4], const uint32_t (&p)[4], const uint32_t (&q)[4], uint32_t half) {
    a[0] = half ? p[1] : p[0];
    a[1] = half ? q[1] : q[0];
    a[2] = half ? p[3] : p[2];
    a[3] = half ? q[3] : q[2];
}
/* One stage. Of a wide tile half h of the sums is of its blocks from 8 h on. */
template <uint32_t HALVES, uint32_t COUNT>
DEVICE void prompt_multiply(float (&sum)[HALVES][COUNT], uint32_t stage, const PromptWarp &w, uint32_t heads) {
    uint32_t a[HALVES][MGV__PROMPT_STEP][4];
#pragma unroll
    for (uint32_t h = 0; h < HALVES; h++)
#pragma unroll
        for (uint32_t k = 0; k < MGV__PROMPT_STEP; k++) {
            const uint32_t first = h * MGV__PROMPT_BLOCKS;
            prompt_take_weights(a[h][k], stage, w, first + (heads ? w.number / 2 : w.number), k);
            if (!heads) continue;
            uint32_t turned[4];
            prompt_take_weights(turned, stage, w, first + w.number / 2 + MGV__PROMPT_BLOCKS / 2, k);
            const uint32_t own[4] = {a[h][k][0], a[h][k][1], a[h][k][2], a[h][k][3]};
            prompt_join_halves(a[h][k], own, turned, w.number % 2);
        }
    const uint64_t rows = prompt_rows_descriptor(stage + 2 * PROMPT_PART, 0);
    wgmma_fence();
#pragma unroll
    for (uint32_t h = 0; h < HALVES; h++)
#pragma unroll
        for (uint32_t k = 0; k < MGV__PROMPT_STEP; k++)
            wgmma_m64k16_bf16_rs(sum[h], a[h][k][0], a[h][k][1], a[h][k][2], a[h][k][3], rows + k * 16, 1);
    wgmma_commit_group();
    wgmma_wait_group<0>();
#pragma unroll
    for (uint32_t h = 0; h < HALVES; h++) wgmma_registers_fence(sum[h]);
}
/* The same of a split product: a block is 8 rows by both halves of K, and two of them are 16 rows of each half. */
template <uint32_t WIDE, uint32_t COUNT> DEVICE void prompt_multiply_split(float (&sum)[COUNT], uint32_t stage, const PromptWarp &w) {
    uint32_t a[2][MGV__PROMPT_STEP][4];
#pragma unroll
    for (uint32_t k = 0; k < MGV__PROMPT_STEP; k++) {
        uint32_t p[4], q[4];
        prompt_take_weights(p, stage, w, prompt_split_warp<WIDE>(w) * 2, k);
        prompt_take_weights(q, stage, w, prompt_split_warp<WIDE>(w) * 2 + 1, k);
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) prompt_join_halves(a[half][k], p, q, half);
    }
    const uint32_t first = WIDE ? 0 : w.number / 4 * (COUNT / 4);
    const uint64_t rows[2] = {prompt_rows_descriptor(stage + 2 * PROMPT_PART, first),
                              prompt_rows_descriptor(stage + 3 * PROMPT_PART, first)};
    wgmma_fence();
#pragma unroll
    for (uint32_t k = 0; k < MGV__PROMPT_STEP; k++)
#pragma unroll
        for (uint32_t half = 0; half < 2; half++)
            wgmma_m64k16_bf16_rs(sum, a[half][k][0], a[half][k][1], a[half][k][2], a[half][k][3], rows[half] + k * 16, 1);
    wgmma_commit_group();
    wgmma_wait_group<0>();
    wgmma_registers_fence(sum);
}

/* Sums of squares of the block's rows: a lane has four ids, a warp every eighth part of their columns. */
DEVICE void prompt_add_squares(Prompter &self, const PromptTile &tile) {
    const uint32_t parts = mgv__ceil_div(self.d.width, MGV__PROMPT_SQUARES), row = self.lane * 4;
    const float *const from = self.a.squares[tile.kind == MGV__PROMPT_GATE_UP] + tile.block * parts * MGV__PROMPT_ROWS + row;
    float sum[4] = {};
    if (row < tile.live)
#pragma unroll 4
        for (uint32_t part = self.warp; part < parts; part += MGV__PROMPT_WARPS) {
            uint32_t square[4];
            ld_relaxed_gpu_v4u32(from + part * MGV__PROMPT_ROWS, square[0], square[1], square[2], square[3]);
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) sum[i] += __uint_as_float(square[i]);
        }
    shared_store_v4f32(shared_address(&self.shared->squares[self.warp][row]), sum[0], sum[1], sum[2], sum[3]);
}
/* What a norm over `columns` columns multiplies a row by, of whose squares each warp has a sum. */
DEVICE float prompt_scale(const Prompter &self, const float (&warps)[MGV__PROMPT_WARPS][MGV__PROMPT_ROWS], uint32_t row, uint32_t columns) {
    float square = 0;
#pragma unroll
    for (uint32_t i = 0; i < MGV__PROMPT_WARPS; i++) square += warps[i][row];
    return 1 / sqrtf(square / (float)columns + self.d.epsilon);
}
/* Once for each row, by as many threads. 1: the launch is given up. */
template <uint32_t EIGHTS>
DEVICE uint32_t prompt_scale_rows(Prompter &self, float (&to)[MGV__PROMPT_ROWS],
                                  const float (&warps)[MGV__PROMPT_WARPS][MGV__PROMPT_ROWS], uint32_t columns) {
    const uint32_t row = self.warp * 32 + self.lane;
    if (row < 8 * EIGHTS) to[row] = prompt_scale(self, warps, row, columns);
    return prompt_sync(self);
}

/* Of values of ids r and r + 1 in one column, those of two columns of one id: of r where the column is even, of r + 1 where it is odd. */
DEVICE uint32_t prompt_pair(const PromptWarp &w, float first, float second) {
    const float other = shfl_bfly_f32(w.g % 2 ? first : second, 4);
    return w.g % 2 ? cvt_rn_bf16x2(other, second) : cvt_rn_bf16x2(first, other);
}
DEVICE float prompt_add_lanes(float value) { /* those of one id */
#pragma unroll
    for (uint32_t i = 4; i < 32; i *= 2) value += shfl_bfly_f32(value, i);
    return value;
}

/* ---- what becomes of sums ---- */

/* Of a head of queries or keys: RMSNorm over its columns, rotary positions. The warps have a head's columns. half: of a wide tile.
   1: the launch is given up. */
template <uint32_t EIGHTS>
DEVICE uint32_t prompt_turn(Prompter &self, const PromptTile &tile, const PromptWarp &w, float (&v)[4 * EIGHTS], uint32_t keys,
                            uint32_t half) {
    const mgv__decode_arguments &d = self.d;
    const uint32_t column = prompt_head_column(w);
    const float *const gamma = d.vectors + tile.layer * mgv__decode_vectors(&d) + 2 * d.width + (keys ? MGV__DECODE_HEAD_DIM : 0) + column;
    const float gamma_low = ld_global_nc_f32(gamma), gamma_high = ld_global_nc_f32(gamma + MGV__DECODE_HEAD_DIM / 2);
#pragma unroll
    for (uint32_t j = 0; j < EIGHTS; j++)
#pragma unroll
        for (uint32_t r = 0; r < 2; r++) {
            const float low = v[4 * j + r], high = v[4 * j + 2 + r], square = prompt_add_lanes(low * low + high * high);
            if (w.g == 0) self.shared->warps[half][w.number][prompt_row(w, j) + r] = square;
        }
    if (prompt_sync(self)) return 1;
    if (prompt_scale_rows<EIGHTS>(self, self.shared->turn[half], self.shared->warps[half], MGV__DECODE_HEAD_DIM)) return 1;
#pragma unroll
    for (uint32_t j = 0; j < EIGHTS; j++)
#pragma unroll
        for (uint32_t r = 0; r < 2; r++) {
            const uint32_t row = prompt_row(w, j) + r, number = tile.block * MGV__PROMPT_ROWS + row;
            const float scale = self.shared->turn[half][row];
            float cosine, sine;
            const float *const turns = d.rotary + (uint64_t)mgv__min_u32(number, self.a.rows - 1) * MGV__DECODE_HEAD_DIM;
            ld_global_nc_v2f32(turns + column * 2, cosine, sine);
            float &low = v[4 * j + r], &high = v[4 * j + 2 + r];
            const float x = low * (scale * gamma_low), y = high * (scale * gamma_high);
            low = x * cosine - y * sine;
            high = y * cosine + x * sine;
        }
    return 0;
}

template <uint32_t EIGHTS>
DEVICE uint32_t prompt_finish_qkv(Prompter &self, const PromptTile &tile, const PromptWarp &w, float (&v)[4 * EIGHTS], uint32_t unit,
                                  uint32_t half) {
    const mgv__decode_arguments &d = self.d;
    const mgv__decode_session &session = d.session[0];
    const uint32_t part = unit < d.heads ? 0 : unit < d.heads + d.key_heads ? 1 : 2; /* queries, keys, values */
#pragma unroll
    for (uint32_t j = 0; j < EIGHTS; j++)
#pragma unroll
        for (uint32_t r = 0; r < 2; r++) {
            const float scale = self.shared->scale[prompt_row(w, j) + r];
            v[4 * j + r] *= scale;
            v[4 * j + 2 + r] *= scale;
        }
    if (part < 2 && prompt_turn<EIGHTS>(self, tile, w, v, part, half)) return 1;
    const uint32_t head = unit - (part == 0 ? 0 : part == 1 ? d.heads : d.heads + d.key_heads);
    const uint64_t kept = (uint64_t)(tile.layer * d.key_heads + head) * session.capacity + session.position + tile.block * MGV__PROMPT_ROWS;
    uint16_t *const to = part == 0 ? self.a.queries + (uint64_t)(tile.block * d.heads + head) * (MGV__PROMPT_ROWS * MGV__DECODE_HEAD_DIM)
                                   : (part == 1 ? session.keys : session.values) + kept * MGV__DECODE_HEAD_DIM;
    const float scale = part == 0 ? d.scale : 1;
#pragma unroll
    for (uint32_t j = 0; j < EIGHTS; j++) {
        const uint32_t row = prompt_row(w, j) + w.g % 2;
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            const uint32_t pair = prompt_pair(w, v[4 * j + 2 * h] * scale, v[4 * j + 2 * h + 1] * scale);
            const uint32_t column = prompt_head_column(w) / 2 * 2 + h * (MGV__DECODE_HEAD_DIM / 2);
            if (row < tile.live) st_global_u32(to + row * MGV__DECODE_HEAD_DIM + column, pair);
        }
    }
    return 0;
}

template <uint32_t EIGHTS>
DEVICE void prompt_finish_gate_up(const Prompter &self, const PromptTile &tile, const PromptWarp &w, const float (&v)[4 * EIGHTS],
                                  uint32_t unit) {
    const mgv__decode_product &shape = self.d.product[MGV__PRODUCT_GATE_UP], &next = self.d.product[MGV__PRODUCT_DOWN];
    const uint32_t block = unit * MGV__PROMPT_BLOCKS + w.number, first = prompt_row(w, 0) + w.g % 2;
    uint16_t *const to = self.a.hidden + prompt_place(next, tile.block, first, block * 8 + w.g / 2 * 2);
#pragma unroll
    for (uint32_t j = 0; j < EIGHTS; j++) {
        float opened[2];
#pragma unroll
        for (uint32_t r = 0; r < 2; r++) {
            const float scale = self.shared->scale[prompt_row(w, j) + r], gate = v[4 * j + r] * scale;
            opened[r] = gate * rcp_approx(1 + ex2_approx(gate * -1.44269504f)) * (v[4 * j + 2 + r] * scale);
        }
        const uint32_t pair = prompt_pair(w, opened[0], opened[1]);
        if (block < shape.blocks && first + j * 8 < tile.live) st_global_u32(to + j * PROMPT_NEXT_ROWS, pair);
    }
}

/* What of pictures is added behind layer `layer`; which: 0: what stands instead of the embedding, N: behind layer N - 1. */
DEVICE float prompt_picture(const Prompter &self, uint32_t which, uint32_t picture, uint32_t column) {
    return ld_global_nc_f32(self.a.pictures + (uint64_t)(which * self.a.picture_pitch + picture - 1) * self.d.width + column);
}

/* Two ids of a column of the residual: what pictures add behind the first layers; the last id's row behind the last layer. */
DEVICE void prompt_add_pictures(const Prompter &self, const PromptTile &tile, uint32_t row, uint32_t column, float (&v)[2]) {
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) {
        const uint32_t number = tile.block * MGV__PROMPT_ROWS + row + r;
        if (number >= self.a.rows) continue;
        if (tile.layer < self.a.deepstack) {
            const uint32_t picture = ld_global_nc_u32(self.a.picture_rows + number);
            if (picture) v[r] += prompt_picture(self, 1 + tile.layer, picture, column);
        }
        if (tile.layer + 1 == self.d.layers && number + 1 == self.a.rows) st_global_u32(self.a.last + column, __float_as_uint(v[r]));
    }
}
/* A lane's columns of the residual, eight apart, in the first eight ids that it has. */
struct PromptStream {
    uint32_t column[2], valid[2];
    float gamma[2];     /* of the next norm */
    float *residual[2]; /* two ids */
    uint16_t *x[2];     /* two columns of one id, where the next product reads them */
};
DEVICE PromptStream prompt_stream(const Prompter &self, const PromptTile &tile, const PromptWarp &w, uint32_t row, uint32_t column) {
    const mgv__decode_arguments &d = self.d;
    const uint32_t down = tile.kind == MGV__PROMPT_DOWN;
    const mgv__decode_product &next = d.product[down ? MGV__PRODUCT_QKV : MGV__PRODUCT_GATE_UP];
    const float *const gamma = decode_gamma(d, down ? (uint32_t)MGV__PRODUCT_DOWN : (uint32_t)MGV__PRODUCT_OUT, tile.layer);
    PromptStream stream;
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t at = stream.column[h] = column + h * 8;
        stream.valid[h] = at < d.width;
        stream.gamma[h] = stream.valid[h] ? ld_global_nc_f32(gamma + at) : 0;
        stream.residual[h] = self.a.residual + ((uint64_t)tile.block * d.width + at) * MGV__PROMPT_ROWS + row;
        stream.x[h] = self.a.x[!down] + prompt_place(next, tile.block, row + w.g % 2, at / 2 * 2);
    }
    return stream;
}
/* v: two ids of the residual, eight ids number j and column h, with what is added to them: the sum stays, and goes, times the next norm's
   gamma, to where the next product reads it. square: of both. */
DEVICE void prompt_add_residual(const Prompter &self, const PromptTile &tile, const PromptWarp &w, const PromptStream &stream, uint32_t row,
                                uint32_t j, uint32_t h, float (&v)[2], float first, float second, float (&square)[2]) {
    if (stream.valid[h]) {
        v[0] += first;
        v[1] += second;
        if (tile.kind == MGV__PROMPT_DOWN && (tile.layer < self.a.deepstack || tile.layer + 1 == self.d.layers))
            prompt_add_pictures(self, tile, row, stream.column[h], v);
        st_global_v2u32(stream.residual[h] + j * 8, __float_as_uint(v[0]), __float_as_uint(v[1]));
    }
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) square[r] += v[r] * v[r];
    const uint32_t pair = prompt_pair(w, v[0] * stream.gamma[h], v[1] * stream.gamma[h]);
    if (stream.valid[h]) st_global_u32(stream.x[h] + j * PROMPT_NEXT_ROWS, pair);
}
/* COUNT eights of ids from `first` on. 1: the launch is given up. */
template <uint32_t COUNT, uint32_t WIDE>
DEVICE uint32_t prompt_finish_stream(Prompter &self, const PromptTile &tile, const PromptWarp &w, const float (&v)[4 * COUNT]) {
    enum { ROWS = 8 * COUNT * (WIDE ? 1 : 2), AT_ONCE = COUNT < 8 ? COUNT : 8 };
    const uint32_t parts = mgv__ceil_div(self.d.width, MGV__PROMPT_SQUARES), first = WIDE ? 0 : w.number / 4 * (8 * COUNT);
    const uint32_t column = (tile.unit * (MGV__PROMPT_BLOCKS << WIDE) + prompt_split_warp<WIDE>(w) * 2) * 8 + w.g;
    const PromptStream stream = prompt_stream(self, tile, w, first + prompt_row(w, 0), column);
    float residual[AT_ONCE][2][2] = {}; /* of so many eights it is asked for before any of it is needed */
#pragma unroll
    for (uint32_t j = 0; j < COUNT; j++) {
        const uint32_t row = first + prompt_row(w, j);
        float square[2] = {0, 0};
        if (j % AT_ONCE == 0)
#pragma unroll
            for (uint32_t i = 0; i < 2 * AT_ONCE; i++)
                if (stream.valid[i % 2])
                    ld_relaxed_gpu_v2f32(stream.residual[i % 2] + (j + i / 2) * 8, residual[i / 2][i % 2][0], residual[i / 2][i % 2][1]);
#pragma unroll
        for (uint32_t h = 0; h < 2; h++)
            prompt_add_residual(self, tile, w, stream, row, j, h, residual[j % AT_ONCE][h], v[4 * j + 2 * h], v[4 * j + 2 * h + 1], square);
#pragma unroll
        for (uint32_t r = 0; r < 2; r++) {
            square[r] = prompt_add_lanes(square[r]);
            if (w.g == 0) self.shared->warps[0][prompt_split_warp<WIDE>(w)][row + r] = square[r];
        }
    }
    if (prompt_sync(self)) return 1;
    const uint32_t thread = w.number * 32 + self.lane, half = thread / ROWS, row = thread % ROWS, part = (tile.unit << WIDE) + half;
    if (half > WIDE || part >= parts) return 0;
    float square = 0;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) square += self.shared->warps[0][half * 4 + i][row];
    float *const squares = self.a.squares[tile.kind == MGV__PROMPT_OUT] + (tile.block * parts + part) * MGV__PROMPT_ROWS;
    st_global_u32(squares + row, __float_as_uint(square));
    return 0;
}

/* Sums of a tile: multiply(stage) adds a stage's. 1: the launch is given up. All warps of a product of theirs go on or none does. */
template <class Multiply>
DEVICE uint32_t prompt_add_up(Prompter &self, const PromptTile &tile, const PromptWarp &w, const Multiply &multiply) {
    const mgv__decode_product &shape = prompt_shape(self, tile.kind);
#pragma unroll 1
    for (uint32_t step = 0; step < shape.slices * PROMPT_STEPS; step++) {
        prompt_wait_stage(self, tile);
        if (step == 0 && !self.gone) self.gone = self.shared->given_up[self.stage];
        self.gone = bar_red_or(PROMPT_GROUP_BARRIER + w.number / 4, PROMPT_MATH / 2, self.gone);
        if (self.gone) break;
        if (step == 0 && !shape.split) prompt_add_squares(self, tile);
        multiply(shared_address(self.shared->ring[self.stage]));
        prompt_leave_stage(self);
    }
    return prompt_sync(self);
}
/* 1: the launch is given up. */
template <uint32_t EIGHTS, uint32_t WIDE> DEVICE uint32_t prompt_product(Prompter &self, const PromptTile &tile) {
    const PromptWarp w = prompt_warp(self);
    const uint32_t heads = tile.kind == MGV__PROMPT_QKV;
    if (prompt_shape(self, tile.kind).split) {
        enum { COUNT = WIDE ? EIGHTS : EIGHTS / 2 };
        float sum[4 * COUNT] = {};
        if (prompt_add_up(self, tile, w, [&](uint32_t stage) { prompt_multiply_split<WIDE>(sum, stage, w); })) return 1;
        return prompt_finish_stream<COUNT, WIDE>(self, tile, w, sum);
    }
    float sum[1 + WIDE][4 * EIGHTS] = {};
    if (prompt_add_up(self, tile, w, [&](uint32_t stage) { prompt_multiply(sum, stage, w, heads); })) return 1;
    if (prompt_scale_rows<EIGHTS>(self, self.shared->scale, self.shared->squares, self.d.width)) return 1;
    const uint32_t units = mgv__prompt_units(&self.d, tile.kind, 0);
#pragma unroll
    for (uint32_t half = 0; half < 1 + WIDE; half++) {
        const uint32_t unit = (tile.unit << WIDE) + half;
        const PromptWarp again = prompt_warp(self); /* places of rows are no longer known: both halves' would not fit */
        if (unit >= units) break;
        if (!heads) prompt_finish_gate_up<EIGHTS>(self, tile, again, sum[half], unit);
        else if (prompt_finish_qkv<EIGHTS>(self, tile, again, sum[half], unit, half)) return 1;
    }
    return 0;
}

/* ---- embeddings ---- */

/* MGV__PROMPT_SQUARES columns of a block's ids: thread 2 r + h has half of them of id r. */
DEVICE void prompt_embed(Prompter &self, const PromptTile &tile) {
    enum { HALF = MGV__PROMPT_SQUARES / 2 };
    const mgv__decode_arguments &d = self.d;
    const uint32_t thread = self.warp * 32 + self.lane, row = thread / 2, number = tile.block * MGV__PROMPT_ROWS + row;
    const uint32_t first = tile.unit * MGV__PROMPT_SQUARES + thread % 2 * HALF, lives = row < tile.live;
    const uint32_t parts = mgv__ceil_div(d.width, MGV__PROMPT_SQUARES);
    const uint32_t picture = lives ? ld_global_nc_u32(self.a.picture_rows + number) : 0, id = lives ? ld_global_nc_u32(d.ids + number) : 0;
    const uint32_t end = lives ? mgv__min_u32(first + HALF, d.width) : first;
    float square = 0;
#pragma unroll 8
    for (uint32_t column = first; column < end; column += 2) {
        float v[2], gamma[2];
        if (picture) {
            v[0] = prompt_picture(self, 0, picture, column);
            v[1] = prompt_picture(self, 0, picture, column + 1);
        } else {
            const uint32_t pair = ld_global_nc_u32(d.embedding + mgv__decode_place(d.product[MGV__PRODUCT_HEAD].slices, id, column));
            v[0] = bf16_low(pair);
            v[1] = bf16_high(pair);
        }
        square += v[0] * v[0];
        square += v[1] * v[1];
        float *const residual = self.a.residual + ((uint64_t)tile.block * d.width + column) * MGV__PROMPT_ROWS + row;
        st_global_u32(residual, __float_as_uint(v[0]));
        st_global_u32(residual + MGV__PROMPT_ROWS, __float_as_uint(v[1]));
        ld_global_nc_v2f32(d.vectors + column, gamma[0], gamma[1]);
        st_global_u32(self.a.x[0] + prompt_place(d.product[MGV__PRODUCT_QKV], tile.block, row, column),
                      cvt_rn_bf16x2(v[0] * gamma[0], v[1] * gamma[1]));
    }
    square += shfl_bfly_f32(square, 1);
    if (lives && thread % 2 == 0)
        st_global_u32(self.a.squares[0] + (tile.block * parts + tile.unit) * MGV__PROMPT_ROWS + row, __float_as_uint(square));
}

#endif /* MGV_PROMPT_PRODUCT_CUH */
