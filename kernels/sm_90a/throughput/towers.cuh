/* megavit: what products of other towers than SigLIP's do with their sums: rotary positions, gated MLPs, SiLU. Only the kernel of towers
   has this code. */
#ifndef MGV_TOWERS_CUH
#define MGV_TOWERS_CUH

#include "gemm.cuh"

/* Where this lane's angles lie in the table of cosines and sines, of its two rows. Of the four pairs in eight columns those of the first
   and third lane belong to the first entry of a row's place, the others to the second (mgv__rotary_column): a lane has one entry a row. */
struct RotaryRows {
    const float *row[2];
};
DEVICE RotaryRows rotary_rows(const Math &self, const TileSlot &tile, uint32_t row) {
    const mgv__kernel_op &op = tile.op;
    const mgv__kernel_arguments &arguments = self.arguments;
    const uint32_t number = tile.group * op.rows_per_group + row, each = head_columns(op) / 2; /* floats of an entry */
    const float *table = arguments.vectors + op.of.gemm.table + self.lane % 4 / 2 * 2;
    RotaryRows rows;
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) /* rows beyond the last are some others' */
        rows.row[r] = table + (size_t)each * ld_global_nc_u32(arguments.places + (size_t)((number + 8 * r) % arguments.place_rows) *
                                                                                     arguments.place_words + self.lane % 2);
    return rows;
}

/* Turns queries and keys: RoFormer, arXiv 2104.09864. first: the first of the chunk's columns. */
template <int COLUMNS> DEVICE void rotary_turn(const TileSlot &tile, const RotaryRows &rows, float *v, uint32_t first) {
    const uint32_t turned = 2 * tile.op.inner, eights = head_columns(tile.op) / 8;
    if (first >= turned) return;
    uint32_t eight = first / 8 % eights;
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j++) {
        float *e = &v[4 * j];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float cosine, sine;
            ld_global_nc_v2f32(rows.row[r] + 4 * eight, cosine, sine);
            if (first + 8 * j >= turned) cosine = 1, sine = 0;
            const float x = e[2 * r], y = e[2 * r + 1];
            e[2 * r] = x * cosine - y * sine;
            e[2 * r + 1] = y * cosine + x * sine;
        }
        eight = eight + 1 == eights ? 0 : eight + 1;
    }
}

template <int COLUMNS>
DEVICE void tower_finish(const Math &self, const TileSlot &tile, uint32_t flags, float *v, uint32_t tile_column, uint32_t row) {
    if (flags & MGV__KERNEL_ROTARY)
        rotary_turn<COLUMNS>(tile, rotary_rows(self, tile, row), v,
                             gemm_first_column(tile, self.cta) + tile_column - 2 * (self.lane % 4));
}

/* A gated MLP's tile: of each sixteen columns of sums eight are the gate's and eight are what it opens, in the same lanes and registers.
   128 columns of sums make a chunk of 64. */
template <int COLUMNS> DEVICE void gated_epilogue(Math &self, const TileSlot &tile, float (&acc)[COLUMNS / 2]) {
    const uint32_t flags = tile.op.flags, quad_column = 2 * (self.lane % 4);
    uint32_t granted = math_take_chunk(self);
    float rstd[2];
    gemm_norms(self, flags, rstd);
#pragma unroll 1
    for (int column = 0; column < COLUMNS; column += 128) {
        const uint32_t vectors = shared_address(&self.shared->vectors[quad_column + column]);
        float v[32];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            float gate[2], up[2];
            shared_load_v2f32(vectors + 64 * j, gate[0], gate[1]);
            shared_load_v2f32(vectors + 64 * j + 32, up[0], up[1]);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                v[4 * j + i] = rstd[i / 2] * acc[8 * j + i] + gate[i % 2];
                acc[8 * j + 4 + i] = rstd[i / 2] * acc[8 * j + 4 + i] + up[i % 2];
            }
        }
        gemm_activate<32, true>(flags, v);
#pragma unroll
        for (int i = 0; i < 32; i++) v[i] *= acc[i / 4 * 8 + 4 + i % 4];
        if (column) granted = math_take_chunk(self);
        gemm_write<64>(0, fragment_address(self, granted), v);
        math_give_chunk(self);
#pragma unroll
        for (int i = 0; i + 64 < COLUMNS / 2; i++) acc[i] = acc[i + 64];
    }
}

#endif /* MGV_TOWERS_CUH */
