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

/* Which eight columns of its head's a column is of. */
DEVICE uint32_t rotary_eight(const TileSlot &tile, uint32_t column) { return column / 8 % (head_columns(tile.op) / 8); }
/* Turns queries and keys: RoFormer, arXiv 2104.09864. first: the first of these columns, and eight: its rotary_eight, then that of the one
   behind the last. */
template <int COLUMNS> DEVICE void rotary_turn(const TileSlot &tile, const RotaryRows &rows, float *v, uint32_t first, uint32_t &eight) {
    const uint32_t turned = 2 * tile.op.inner, eights = head_columns(tile.op) / 8;
    if (first >= turned) return;
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
    if (!(flags & MGV__KERNEL_ROTARY)) return;
    const uint32_t first = gemm_first_column(tile, self.cta) + tile_column - 2 * (self.lane % 4);
    uint32_t eight = rotary_eight(tile, first);
    rotary_turn<COLUMNS>(tile, rotary_rows(self, tile, row), v, first, eight);
}

/* A gated MLP's sums: of each sixteen columns eight are the gate's and eight are what it opens, in the same lanes and registers. 128
   columns of sums, from `column` of the tile on, make a chunk of 64, written sixteen at a time: more would not fit into registers. */
DEVICE void gated_write(const Math &self, uint32_t flags, const float (&rstd)[2], const float *sums, uint32_t column, uint32_t fragments) {
    const uint32_t vectors = shared_address(&self.shared->vectors[2 * (self.lane % 4) + column]);
#pragma unroll
    for (int pair = 0; pair < 4; pair++) {
        float v[8], opened[8];
#pragma unroll
        for (int j = 0; j < 2; j++) {
            float gate[2], up[2];
            shared_load_v2f32(vectors + 64 * (2 * pair + j), gate[0], gate[1]);
            shared_load_v2f32(vectors + 64 * (2 * pair + j) + 32, up[0], up[1]);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float *sum = &sums[8 * (2 * pair + j) + i];
                v[4 * j + i] = rstd[i / 2] * sum[0] + gate[i % 2];
                opened[4 * j + i] = rstd[i / 2] * sum[4] + up[i % 2];
            }
        }
        gemm_activate<8, true>(flags, v);
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] *= opened[i];
        gemm_write<16>(0, fragments ^ pair * 32, v);
    }
}
/* A gated MLP's tile that is no layer tile. */
template <int COLUMNS> DEVICE void gated_epilogue(Math &self, const TileSlot &tile, float (&acc)[COLUMNS / 2]) {
    const uint32_t flags = tile.op.flags;
    uint32_t granted = math_take_chunk(self);
    float rstd[2];
    gemm_norms(self, flags, rstd);
#pragma unroll 1
    for (int column = 0; column < COLUMNS; column += 128) {
        if (column) granted = math_take_chunk(self);
        gated_write(self, flags, rstd, acc, column, fragment_address(self, granted));
        math_give_chunk(self);
#pragma unroll
        for (int i = 0; i + 64 < COLUMNS / 2; i++) acc[i] = acc[i + 64];
    }
}

#endif /* MGV_TOWERS_CUH */
