/* megavit: prompts, attention of 128 ids in one head over all keys up to their own, those that the session has kept and those of the
   launch. */
#ifndef MGV_PROMPT_ATTENTION_CUH
#define MGV_PROMPT_ATTENTION_CUH

#include "prompt_tiles.cuh"

/* Warp w has ids 16 w to 16 w + 15 of the block: lane 4 g + t rows g and g + 8. Columns of a head stand in the order in which a lane reads
   eight of a key at once: fragments 2 p and 2 p + 1 are the first and the last four of columns 32 p + 8 t on. */
struct PromptAttention {
    uint32_t query[4][2][4]; /* fragments of A */
    float sum[16][4], largest[2], weight[2];
    uint32_t position[2];    /* of the rows: the last key that each looks at */
};

DEVICE void prompt_load_queries(const Prompter &self, const PromptTile &tile, PromptAttention &x) {
    const uint32_t g = self.lane / 4, t = self.lane % 4;
    const uint64_t first = (uint64_t)(tile.block * self.d.heads + tile.unit) * MGV__PROMPT_ROWS + self.warp * 16 + g;
    const uint16_t *const from = self.a.queries + first * MGV__DECODE_HEAD_DIM;
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) {
        x.position[r] = self.d.session[0].position + tile.block * MGV__PROMPT_ROWS + self.warp * 16 + g + r * 8;
#pragma unroll
        for (uint32_t p = 0; p < 4; p++)
            ld_relaxed_gpu_v4u32(from + r * 8 * MGV__DECODE_HEAD_DIM + p * 32 + t * 8, x.query[p][0][r], x.query[p][0][2 + r],
                                 x.query[p][1][r], x.query[p][1][2 + r]);
    }
}
/* Of 64 keys number 8 c + n, which is the n-th of run c, is column c of the n-th eight. */
DEVICE void prompt_scores(const Prompter &self, const PromptAttention &x, uint32_t keys, float (&s)[8][4]) {
    const uint32_t from = keys + self.lane / 4 * PROMPT_KEY_PITCH + self.lane % 4 * 16;
#pragma unroll
    for (uint32_t n = 0; n < 8; n++) {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) s[n][i] = 0;
#pragma unroll
        for (uint32_t p = 0; p < 4; p++) {
            uint32_t b[4];
            decode_load_fragment(b, from + n * PROMPT_KEY_BYTES + p * 64);
#pragma unroll
            for (uint32_t k = 0; k < 2; k++)
                mma_m16n8k16_bf16(s[n], x.query[p][k][0], x.query[p][k][1], x.query[p][k][2], x.query[p][k][3], b[2 * k], b[2 * k + 1]);
        }
    }
}
/* first: the block's first key. Scores become weights. */
DEVICE void prompt_softmax(const Prompter &self, PromptAttention &x, uint32_t first, float (&s)[8][4]) {
    float largest[2] = {x.largest[0], x.largest[1]};
#pragma unroll
    for (uint32_t n = 0; n < 8; n++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            if (first + (self.lane % 4 * 2 + i % 2) * PROMPT_RUN + n > x.position[i / 2]) s[n][i] = -INFINITY;
            largest[i / 2] = fmaxf(largest[i / 2], s[n][i]);
        }
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) {
        largest[r] = fmaxf(largest[r], shfl_bfly_f32(largest[r], 1));
        largest[r] = fmaxf(largest[r], shfl_bfly_f32(largest[r], 2));
        const float shrink = ex2_approx(x.largest[r] - largest[r]);
        x.largest[r] = largest[r];
        x.weight[r] *= shrink;
#pragma unroll
        for (uint32_t n = 0; n < 16; n++) {
            x.sum[n][2 * r] *= shrink;
            x.sum[n][2 * r + 1] *= shrink;
        }
    }
#pragma unroll
    for (uint32_t n = 0; n < 8; n++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) x.weight[i / 2] += s[n][i] = ex2_approx(s[n][i] - largest[i / 2]);
}
DEVICE void prompt_values(const Prompter &self, PromptAttention &x, uint32_t values, const float (&s)[8][4]) {
    const uint32_t from = values + self.lane % 8 * PROMPT_VALUE_PITCH + self.lane / 8 % 2 * PROMPT_KEY_BYTES + self.lane / 16 * 16;
#pragma unroll
    for (uint32_t k = 0; k < 4; k++) {
        uint32_t p[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) p[i] = cvt_rn_bf16x2(s[2 * k + i / 2][i % 2 * 2], s[2 * k + i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (uint32_t n = 0; n < 16; n += 2) {
            uint32_t b[4];
            ldmatrix_x4_transposed(from + k * 2 * PROMPT_KEY_BYTES + n * 16, b[0], b[1], b[2], b[3]);
            mma_m16n8k16_bf16(x.sum[n], p[0], p[1], p[2], p[3], b[0], b[1]);
            mma_m16n8k16_bf16(x.sum[n + 1], p[0], p[1], p[2], p[3], b[2], b[3]);
        }
    }
}
DEVICE void prompt_write_attended(const Prompter &self, const PromptTile &tile, PromptAttention &x) {
    const mgv__decode_product &next = self.d.product[MGV__PRODUCT_OUT];
    const uint32_t row = self.warp * 16 + self.lane / 4;
    float scale[2];
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) {
        float weight = x.weight[r] + shfl_bfly_f32(x.weight[r], 1);
        weight += shfl_bfly_f32(weight, 2);
        scale[r] = 1 / weight;
    }
#pragma unroll
    for (uint32_t n = 0; n < 16; n++) {
        const uint32_t column = tile.unit * MGV__DECODE_HEAD_DIM + n * 8 + self.lane % 4 * 2;
        uint16_t *const to = self.a.attended + prompt_place(next, tile.block, row, column);
#pragma unroll
        for (uint32_t r = 0; r < 2; r++)
            if (row + r * 8 < tile.live)
                st_global_u32(to + r * PROMPT_NEXT_ROWS, cvt_rn_bf16x2(x.sum[n][2 * r] * scale[r], x.sum[n][2 * r + 1] * scale[r]));
    }
}

DEVICE void prompt_attention(Prompter &self, const PromptTile &tile) {
    const uint32_t keys = prompt_keys(self, tile), lives = self.warp * 16 < tile.live;
    const uint32_t last = self.d.session[0].position + tile.block * MGV__PROMPT_ROWS + self.warp * 16 + 15; /* key of any of its rows */
    PromptAttention x;
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) {
        x.largest[r] = -1e30f;
        x.weight[r] = 0;
    }
#pragma unroll
    for (uint32_t n = 0; n < 16; n++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) x.sum[n][i] = 0;
#pragma unroll 1
    for (uint32_t first = 0; first < keys; first += MGV__PROMPT_KEYS) {
        prompt_wait_stage(self, tile);
        if (self.gone) return;
        if (first == 0 && lives) prompt_load_queries(self, tile, x);
        if (lives && first <= last) {
            const uint32_t stage = shared_address(self.shared->ring[self.stage]);
            float s[8][4];
            prompt_scores(self, x, stage, s);
            prompt_softmax(self, x, first, s);
            prompt_values(self, x, stage + PROMPT_VALUES, s);
        }
        prompt_leave_stage(self);
    }
    if (lives) prompt_write_attended(self, tile, x);
}

#endif /* MGV_PROMPT_ATTENTION_CUH */
