/* megavit: prompts, products by tiles of 128 ids and what becomes of their sums; embeddings.

   J: columns of eight ids that a warp has, 4; or 1 in the kernel for few ids, whose code is a quarter: where a tile comes once an operation
   every instruction is fetched from far away. A row's sums are the same in both. */
#ifndef MGV_PROMPT_PRODUCT_CUH
#define MGV_PROMPT_PRODUCT_CUH

#include "prompt_tiles.cuh"

/* Warp 4 m + n of a tile: of its blocks of weights those that prompt_block says, of its ids J columns of eight from 8 J n on. */
struct PromptWarp {
    uint32_t m, n, g, t;
};
DEVICE PromptWarp prompt_warp(const Prompter &self) {
    const uint32_t warp = opaque(self.warp), lane = opaque(self.lane);
    return {warp / 4, warp % 4, lane / 4, lane % 4};
}
/* Fragment i's block: of the 128 columns of a head a warp has those that rotary positions turn together, 64 apart. */
DEVICE uint32_t prompt_block(const PromptWarp &w, uint32_t i) { return w.m * 2 + i % 2 + i / 2 * 4; }
/* The first of an id's two, as a fragment of sums has them: of eight ids number j. */
template <uint32_t J> DEVICE uint32_t prompt_row(const PromptWarp &w, uint32_t j) { return w.n * (8 * J) + j * 8 + w.t * 2; }

template <uint32_t J> DEVICE void prompt_load_rows(uint32_t (&b)[J][2], uint32_t from, const PromptWarp &w, uint32_t fragment) {
#pragma unroll
    for (uint32_t j = 0; j < J; j++) {
        float x, y;
        shared_load_v2f32(from + ((w.n * J + j) * PROMPT_STEP_FRAGMENTS + fragment) * 256 + (w.g * 4 + w.t) * 8, x, y);
        b[j][0] = __float_as_uint(x);
        b[j][1] = __float_as_uint(y);
    }
}
DEVICE void prompt_load_weights(uint32_t (&a)[4], uint32_t from, const PromptWarp &w, uint32_t block, uint32_t fragment) {
    decode_load_fragment(a, from + (block * PROMPT_STEP_FRAGMENTS + fragment) * 512 + (w.g * 4 + w.t) * 16);
}

/* One stage: adds four fragments of K. */
template <uint32_t J> DEVICE void prompt_multiply(float (&sum)[4][J][4], uint32_t stage, const PromptWarp &w, uint32_t columns) {
#pragma unroll
    for (uint32_t k = 0; k < PROMPT_STEP_FRAGMENTS; k++) {
        uint32_t a[4][4], b[J][2];
        prompt_load_rows<J>(b, stage + PROMPT_PART, w, k);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) prompt_load_weights(a[i], stage, w, prompt_block(w, i), k);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
#pragma unroll
            for (uint32_t j = 0; j < J; j++)
                if (j < columns) mma_m16n8k16_bf16(sum[i][j], a[i][0], a[i][1], a[i][2], a[i][3], b[j][0], b[j][1]);
    }
}
/* The same of a split product: a block is 8 rows by both halves of K, and two of them are a fragment of 16 rows for each half. */
template <uint32_t J> DEVICE void prompt_multiply_split(float (&sum)[4][J][4], uint32_t stage, const PromptWarp &w, uint32_t columns) {
#pragma unroll
    for (uint32_t k = 0; k < PROMPT_STEP_FRAGMENTS; k++) {
        uint32_t b[J][2], c[J][2];
        prompt_load_rows<J>(b, stage + PROMPT_PART, w, k);
        prompt_load_rows<J>(c, stage + 2 * PROMPT_PART, w, k);
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            uint32_t p[4], q[4];
            prompt_load_weights(p, stage, w, w.m * 4 + i * 2, k);
            prompt_load_weights(q, stage, w, w.m * 4 + i * 2 + 1, k);
#pragma unroll
            for (uint32_t j = 0; j < J; j++) {
                if (j >= columns) continue;
                mma_m16n8k16_bf16(sum[i][j], p[0], q[0], p[2], q[2], b[j][0], b[j][1]);
                mma_m16n8k16_bf16(sum[i][j], p[1], q[1], p[3], q[3], c[j][0], c[j][1]);
            }
        }
    }
}

/* Sums of squares of the block's rows, by all threads: half h of an id's parts. */
DEVICE void prompt_add_squares(Prompter &self, const PromptTile &tile) {
    const uint32_t thread = self.warp * 32 + self.lane, row = thread % MGV__PROMPT_ROWS, half = thread / MGV__PROMPT_ROWS;
    const uint32_t parts = mgv__ceil_div(self.d.width, MGV__PROMPT_SQUARES), middle = (parts + 1) / 2;
    const uint32_t count = half ? parts - middle : middle;
    const float *const from = self.a.squares[tile.kind == MGV__PROMPT_GATE_UP] +
                              (tile.block * parts + half * middle) * MGV__PROMPT_ROWS + row;
    float sum = 0;
    if (row < tile.live)
#pragma unroll 8
        for (uint32_t i = 0; i < count; i++) sum += ld_relaxed_gpu_f32(from + i * MGV__PROMPT_ROWS);
    self.shared->squares[half][row] = sum;
}
DEVICE float prompt_scale(const Prompter &self, uint32_t row) {
    return 1 / sqrtf((self.shared->squares[0][row] + self.shared->squares[1][row]) / (float)self.d.width + self.d.epsilon);
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

/* Of a head of queries or keys: RMSNorm over its columns, rotary positions. Two warps have a head's columns. 1: the launch is given up. */
template <uint32_t J>
DEVICE uint32_t prompt_turn(Prompter &self, const PromptTile &tile, const PromptWarp &w, float (&v)[4][J][4], uint32_t keys) {
    const mgv__decode_arguments &d = self.d;
    const float *const gamma = d.vectors + tile.layer * mgv__decode_vectors(&d) + 2 * d.width + (keys ? MGV__DECODE_HEAD_DIM : 0);
#pragma unroll
    for (uint32_t j = 0; j < J; j++)
#pragma unroll
        for (uint32_t r = 0; r < 2; r++) {
            float square = 0;
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) square += v[i][j][r] * v[i][j][r] + v[i][j][2 + r] * v[i][j][2 + r];
            square = prompt_add_lanes(square);
            if (w.g == 0) self.shared->heads[w.m][prompt_row<J>(w, j) + r] = square;
        }
    if (prompt_sync(self)) return 1;
#pragma unroll
    for (uint32_t j = 0; j < J; j++)
#pragma unroll
        for (uint32_t r = 0; r < 2; r++) {
            const uint32_t row = prompt_row<J>(w, j) + r, number = tile.block * MGV__PROMPT_ROWS + row;
            const float mean = (self.shared->heads[0][row] + self.shared->heads[1][row]) / (float)MGV__DECODE_HEAD_DIM;
            const float scale = 1 / sqrtf(mean + d.epsilon);
            const float *const turns = d.rotary + (uint64_t)mgv__min_u32(number, self.a.rows - 1) * MGV__DECODE_HEAD_DIM;
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                const uint32_t lower = i / 2, at = i % 2, column = prompt_block(w, at) * 16 + lower * 8 + w.g; /* of the first 64 */
                float cosine, sine;
                ld_global_nc_v2f32(turns + column * 2, cosine, sine);
                float &low = v[at][j][lower * 2 + r], &high = v[at + 2][j][lower * 2 + r];
                const float x = low * (scale * ld_global_nc_f32(gamma + column));
                const float y = high * (scale * ld_global_nc_f32(gamma + column + MGV__DECODE_HEAD_DIM / 2));
                low = x * cosine - y * sine;
                high = y * cosine + x * sine;
            }
        }
    return 0;
}

template <uint32_t J>
DEVICE uint32_t prompt_finish_qkv(Prompter &self, const PromptTile &tile, const PromptWarp &w, float (&v)[4][J][4], uint32_t columns) {
    const mgv__decode_arguments &d = self.d;
    const mgv__decode_session &session = d.session[0];
    const uint32_t part = tile.unit < d.heads ? 0 : tile.unit < d.heads + d.key_heads ? 1 : 2; /* queries, keys, values */
#pragma unroll
    for (uint32_t j = 0; j < J; j++)
#pragma unroll
        for (uint32_t r = 0; r < 2; r++) {
            const float scale = prompt_scale(self, prompt_row<J>(w, j) + r);
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                v[i][j][r] *= scale;
                v[i][j][2 + r] *= scale;
            }
        }
    if (part < 2 && prompt_turn(self, tile, w, v, part)) return 1;
    const uint32_t head = tile.unit - (part == 0 ? 0 : part == 1 ? d.heads : d.heads + d.key_heads);
    const uint64_t kept = (uint64_t)(tile.layer * d.key_heads + head) * session.capacity + session.position + tile.block * MGV__PROMPT_ROWS;
    uint16_t *const to = part == 0 ? self.a.queries + (uint64_t)(tile.block * d.heads + head) * (MGV__PROMPT_ROWS * MGV__DECODE_HEAD_DIM)
                                   : (part == 1 ? session.keys : session.values) + kept * MGV__DECODE_HEAD_DIM;
    const float scale = part == 0 ? d.scale : 1;
#pragma unroll
    for (uint32_t j = 0; j < J; j++) {
        if (j >= columns) continue;
        const uint32_t row = prompt_row<J>(w, j) + w.g % 2;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
#pragma unroll
            for (uint32_t lower = 0; lower < 2; lower++) {
                const uint32_t pair = prompt_pair(w, v[i][j][lower * 2] * scale, v[i][j][lower * 2 + 1] * scale);
                const uint32_t column = prompt_block(w, i) * 16 + lower * 8 + w.g / 2 * 2;
                if (row < tile.live) st_global_u32(to + row * MGV__DECODE_HEAD_DIM + column, pair);
            }
    }
    return 0;
}

template <uint32_t J>
DEVICE void prompt_finish_gate_up(Prompter &self, const PromptTile &tile, const PromptWarp &w, float (&v)[4][J][4], uint32_t columns) {
    const mgv__decode_product &shape = self.d.product[MGV__PRODUCT_GATE_UP], &next = self.d.product[MGV__PRODUCT_DOWN];
#pragma unroll
    for (uint32_t j = 0; j < J; j++) {
        if (j >= columns) continue;
        const uint32_t row = prompt_row<J>(w, j);
        const float scale[2] = {prompt_scale(self, row), prompt_scale(self, row + 1)};
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t block = tile.unit * MGV__PROMPT_BLOCKS + prompt_block(w, i);
            float opened[2];
#pragma unroll
            for (uint32_t r = 0; r < 2; r++) {
                const float gate = v[i][j][r] * scale[r];
                opened[r] = gate / (1 + expf(-gate)) * (v[i][j][2 + r] * scale[r]);
            }
            const uint32_t pair = prompt_pair(w, opened[0], opened[1]);
            if (block < shape.blocks && row + w.g % 2 < tile.live)
                st_global_u32(self.a.hidden + prompt_place(next, tile.block, row + w.g % 2, block * 8 + w.g / 2 * 2), pair);
        }
    }
}

/* What of pictures is added behind layer `layer`; which: 0: what stands instead of the embedding, N: behind layer N - 1. */
DEVICE float prompt_picture(const Prompter &self, uint32_t which, uint32_t picture, uint32_t column) {
    return ld_global_nc_f32(self.a.pictures + (uint64_t)(which * self.a.picture_pitch + picture - 1) * self.d.width + column);
}

/* Two ids of a column of the residual, with what is added to them: the sum stays, and goes, times the next norm's gamma, to where the next
   product reads it. square: of both. */
DEVICE void prompt_add_residual(const Prompter &self, const PromptTile &tile, const PromptWarp &w, uint32_t row, uint32_t column,
                                float first, float second, float (&square)[2]) {
    const mgv__decode_arguments &d = self.d;
    const uint32_t valid = column < d.width, down = tile.kind == MGV__PROMPT_DOWN;
    float v[2] = {0, 0}, gamma = 0;
    if (valid) {
        float *const residual = self.a.residual + ((uint64_t)tile.block * d.width + column) * MGV__PROMPT_ROWS + row;
        ld_relaxed_gpu_v2f32(residual, v[0], v[1]);
        v[0] += first;
        v[1] += second;
#pragma unroll
        for (uint32_t r = 0; r < 2; r++) {
            const uint32_t number = tile.block * MGV__PROMPT_ROWS + row + r;
            if (number >= self.a.rows) continue;
            if (down && tile.layer < self.a.deepstack) {
                const uint32_t picture = ld_global_nc_u32(self.a.picture_rows + number);
                if (picture) v[r] += prompt_picture(self, 1 + tile.layer, picture, column);
            }
            if (down && tile.layer + 1 == d.layers && number + 1 == self.a.rows)
                st_global_u32(self.a.last + column, __float_as_uint(v[r]));
        }
        st_global_v2u32(residual, __float_as_uint(v[0]), __float_as_uint(v[1]));
        gamma = ld_global_nc_f32(decode_gamma(d, down ? (uint32_t)MGV__PRODUCT_DOWN : (uint32_t)MGV__PRODUCT_OUT, tile.layer) + column);
    }
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) square[r] += v[r] * v[r];
    const uint32_t pair = prompt_pair(w, v[0] * gamma, v[1] * gamma);
    const mgv__decode_product &next = d.product[down ? MGV__PRODUCT_QKV : MGV__PRODUCT_GATE_UP];
    if (valid) st_global_u32(self.a.x[!down] + prompt_place(next, tile.block, row + w.g % 2, column / 2 * 2), pair);
}
template <uint32_t J>
DEVICE void prompt_finish_stream(Prompter &self, const PromptTile &tile, const PromptWarp &w, float (&v)[4][J][4], uint32_t columns) {
    const uint32_t parts = mgv__ceil_div(self.d.width, MGV__PROMPT_SQUARES), part = tile.unit * 2 + w.m;
#pragma unroll
    for (uint32_t j = 0; j < J; j++) {
        if (j >= columns) continue;
        const uint32_t row = prompt_row<J>(w, j);
        float square[2] = {0, 0};
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) /* blocks of eight columns */
            prompt_add_residual(self, tile, w, row, (tile.unit * MGV__PROMPT_BLOCKS + w.m * 4 + i) * 8 + w.g, v[i / 2][j][i % 2 * 2],
                                v[i / 2][j][i % 2 * 2 + 1], square);
#pragma unroll
        for (uint32_t r = 0; r < 2; r++) square[r] = prompt_add_lanes(square[r]);
        if (w.g == 0 && part < parts)
            st_global_v2u32(self.a.squares[tile.kind == MGV__PROMPT_OUT] + (tile.block * parts + part) * MGV__PROMPT_ROWS + row,
                            __float_as_uint(square[0]), __float_as_uint(square[1]));
    }
}

/* 1: the launch is given up. */
template <uint32_t J> DEVICE uint32_t prompt_product(Prompter &self, const PromptTile &tile) {
    const mgv__decode_product &shape = prompt_shape(self, tile.kind);
    const PromptWarp w = prompt_warp(self);
    const uint32_t before = w.n * (8 * J); /* ids of warps before it */
    const uint32_t columns = tile.live > before ? mgv__min_u32(mgv__ceil_div(tile.live - before, 8), J) : 0; /* of ids */
    float sum[4][J][4] = {};
#pragma unroll 1
    for (uint32_t step = 0; step < shape.slices * 2; step++) {
        prompt_wait_stage(self, tile);
        if (step == 0 && !self.gone) self.gone = self.shared->given_up[self.stage];
        if (self.gone) break;
        const uint32_t stage = shared_address(self.shared->ring[self.stage]);
        if (step == 0 && !shape.split) prompt_add_squares(self, tile);
        if (J == 1 && columns == 0) {} /* its rows are not copied */
        else if (shape.split) prompt_multiply_split(sum, stage, w, columns);
        else prompt_multiply(sum, stage, w, columns);
        prompt_leave_stage(self);
    }
    if (prompt_sync(self)) return 1;
    if (tile.kind == MGV__PROMPT_QKV) return prompt_finish_qkv(self, tile, w, sum, columns);
    if (tile.kind == MGV__PROMPT_GATE_UP) prompt_finish_gate_up(self, tile, w, sum, columns);
    else prompt_finish_stream(self, tile, w, sum, columns);
    return 0;
}

/* ---- embeddings ---- */

/* 32 columns of a block's ids: thread 2 r + h has 16 of id r. */
DEVICE void prompt_embed(Prompter &self, const PromptTile &tile) {
    const mgv__decode_arguments &d = self.d;
    const uint32_t thread = self.warp * 32 + self.lane, row = thread / 2, number = tile.block * MGV__PROMPT_ROWS + row;
    const uint32_t first = tile.unit * MGV__PROMPT_SQUARES + thread % 2 * 16, valid = row < tile.live && first < d.width;
    const uint32_t parts = mgv__ceil_div(d.width, MGV__PROMPT_SQUARES);
    float square = 0;
    if (valid) {
        const uint32_t picture = ld_global_nc_u32(self.a.picture_rows + number), id = ld_global_nc_u32(d.ids + number);
        uint16_t *const x = self.a.x[0] + prompt_place(d.product[MGV__PRODUCT_QKV], tile.block, row, first);
        float *const residual = self.a.residual + ((uint64_t)tile.block * d.width + first) * MGV__PROMPT_ROWS + row;
#pragma unroll
        for (uint32_t i = 0; i < 16; i += 2) {
            float v[2];
            if (picture) {
                v[0] = prompt_picture(self, 0, picture, first + i);
                v[1] = prompt_picture(self, 0, picture, first + i + 1);
            } else {
                const uint32_t pair = ld_global_nc_u32(d.embedding + mgv__decode_place(d.product[MGV__PRODUCT_HEAD].slices, id, first + i));
                v[0] = bf16_low(pair);
                v[1] = bf16_high(pair);
            }
            square += v[0] * v[0];
            square += v[1] * v[1];
            st_global_u32(residual + i * MGV__PROMPT_ROWS, __float_as_uint(v[0]));
            st_global_u32(residual + (i + 1) * MGV__PROMPT_ROWS, __float_as_uint(v[1]));
            float gamma[2];
            ld_global_nc_v2f32(d.vectors + first + i, gamma[0], gamma[1]);
            st_global_u32(x + i, cvt_rn_bf16x2(v[0] * gamma[0], v[1] * gamma[1]));
        }
    }
    square += shfl_bfly_f32(square, 1);
    if (valid && thread % 2 == 0)
        st_global_u32(self.a.squares[0] + (tile.block * parts + tile.unit) * MGV__PROMPT_ROWS + row, __float_as_uint(square));
}

#endif /* MGV_PROMPT_PRODUCT_CUH */
