/* megavit: the layers' GEMM tiles of 256 or 192 columns, which are most of the work from some ten images on. One tile follows another
   without a pause: what comes next is found out under the last products, and accumulators are not cleared.

   Each math warpgroup computes 64 rows. The two are not tied to each other, but mostly run in step:
   the tensor cores rest while both are in their epilogues. */
#ifndef MGV_GEMM_LAYERS_CUH
#define MGV_GEMM_LAYERS_CUH

#include "towers.cuh"

/* Returns while the last stage's products are still on their way. The last stages are not left: this group's rows of A in them, which
   nobody else reads, become chunk buffers. lent: these stages. */
template <int COLUMNS>
DEVICE void layer_products(Math &self, uint32_t steps, float (&acc)[COLUMNS / 2], uint32_t (&lent)[MGV__LENT_STAGES]) {
    for (uint32_t step = 0; step < steps; step++) {
        const uint32_t base = shared_address(self.shared->stage[self.stage.index]);
        const uint64_t a = known_descriptor(base + self.group * MGV__CHUNK_BYTES), b = known_descriptor(base + GEMM_A_BYTES);
        math_wait_stage(self, self.stage);
        wgmma_fence();
#pragma unroll
        for (uint32_t k = 0; k < 4; k++)
            wgmma_m64k16_bf16_ss(acc, descriptor_behind(a, 2 * k), descriptor_behind(b, 2 * k),
                                 step || k); /* the first product overwrites what the tile before left */
        wgmma_commit_group();
        wgmma_wait_group<1>();
        if (step && step + 1 < steps) math_leave_stage(self, lent[1]);
        lent[0] = lent[1];
        lent[1] = self.stage.index;
        self.stage.advance();
    }
}
static_assert(MGV__LENT_STAGES == 2 && MGV__CHUNKS == 2 && MGV__CHUNK_ROWS * 128 == MGV__CHUNK_BYTES,
              "a math group's rows of A in one stage are a chunk");

/* Where a lane's two rows leave the statistics of a tile's first 64 columns (0: no row of an image, or another lane's),
   and how many parts there are from there on. */
struct StatisticsPlace {
    float *row[2];
    uint32_t parts;
};
template <int COLUMNS> DEVICE StatisticsPlace statistics_place(const Math &self, const TileSlot &tile) {
    const mgv__kernel_op &op = tile.op;
    const uint32_t parts = op.columns / 64, first = tile.column * (COLUMNS / 64), rows = mgv__rows_of_group(&op, tile.group),
                   row = gemm_row(self, tile);
    float *at = self.arguments.stats + op.of.gemm.stats_out + stats_place(op, op.columns, tile.group, row, first);
    StatisticsPlace place;
    place.row[0] = self.lane % 4 == 0 && row < rows ? at : 0;
    place.row[1] = self.lane % 4 == 0 && row + 8 < rows ? at + 8 * 2 : 0;
    place.parts = parts - first;
    return place;
}
DEVICE void layer_statistics(const StatisticsPlace &place, const float *v, uint32_t part) {
    float mean[2], squares[2];
    chunk_statistics(v, mean, squares);
#pragma unroll
    for (int r = 0; r < 2; r++)
        if (place.row[r] && part < place.parts) st_relaxed_gpu_v2f32(place.row[r] + part * STATS_PART, mean[r], squares[r]);
}

DEVICE void layer_biases(const Math &self, uint32_t chunk, float (&bias)[16]) {
    const uint32_t from = shared_address(&self.shared->vectors[chunk * 64 + 2 * (self.lane % 4)]);
#pragma unroll
    for (int j = 0; j < 8; j++) shared_load_v2f32(from + 32 * j, bias[2 * j], bias[2 * j + 1]);
}

/* 64 columns of the residual, pairs of bf16, out of a chunk; and added to sums. */
DEVICE void layer_residual(const Math &self, uint32_t chunk, uint32_t (&residual)[16]) {
    const uint32_t fragments = fragment_address(self, chunk);
#pragma unroll
    for (int j = 0; j < 8; j += 2)
        ldmatrix_x4(fragments ^ j * 16, residual[2 * j], residual[2 * j + 1], residual[2 * j + 2], residual[2 * j + 3]);
}
DEVICE void layer_add_residual(const uint32_t (&residual)[16], float (&v)[32]) {
#pragma unroll
    for (int i = 0; i < 16; i++) {
        v[2 * i] += bf16_low(residual[i]);
        v[2 * i + 1] += bf16_high(residual[i]);
    }
}

/* Hands the chunk in this group's rows of a lent stage to the storer, which leaves the stage when it has been sent. */
DEVICE void math_give_lent(const Math &self, uint32_t which) {
    warp_sync();
    if (self.lane == 0) mbarrier_arrive(shared_address(&self.shared->lent_written[self.group][which]));
}

/* Chunks of 64 columns, the first two into lent stages and the others into chunk buffers, so that none waits for another's way out. The
   first two's residual is taken out of the chunk buffers under the last products, and the others' comes into them meanwhile. Without waits
   in between one chunk's arithmetic runs under another's. The accumulators stay as they are. */
template <int COLUMNS, uint32_t FLAGS>
DEVICE void layer_epilogue(Math &self, const TileSlot &tile, const uint32_t (&lent)[MGV__LENT_STAGES], float (&acc)[COLUMNS / 2]) {
    constexpr int chunks = COLUMNS / 64, buffered = chunks - MGV__LENT_STAGES;
    constexpr bool norm = FLAGS & MGV__KERNEL_FOLD_NORM, gelu = FLAGS & MGV__KERNEL_GELU_TANH, stream = FLAGS == FLAGS_STREAM;
    uint32_t residual[MGV__LENT_STAGES][16], buffer[buffered];
    float rstd[2], bias[16];
    StatisticsPlace place;
    if (stream) place = statistics_place<COLUMNS>(self, tile);
#pragma unroll
    for (int i = 0; i < MGV__LENT_STAGES; i++) {
        if (stream) {
            layer_residual(self, math_take_chunk(self), residual[i]);
            math_give_chunk(self);
        } else if (i < buffered) {
            Ring<MGV__CHUNKS> chunk = self.chunk;
            if (i) chunk.advance();
            buffer[i] = math_take_chunk(self, chunk);
        }
    }
    if (self.thread == 0) /* a storer that has granted these chunks is done with the tile before */
        for (int i = 0; i < MGV__LENT_STAGES; i++) self.shared->lent_stage[self.group][i] = lent[i];
    gemm_norms(self, FLAGS, rstd);
    layer_biases(self, 0, bias);
    wgmma_wait_group<0>();
    wgmma_registers_fence(acc);
#pragma unroll
    for (int chunk = 0; chunk < chunks; chunk++) {
        const bool last = chunk + 1 == chunks;
        float v[32];
        if (stream && chunk) layer_biases(self, chunk, bias); /* its registers are few: not ahead */
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const float sum = acc[32 * chunk + i], b = bias[i / 4 * 2 + i % 2];
            v[i] = norm ? rstd[i / 2 % 2] * sum + b : sum + b;
        }
        if (!stream && !last) layer_biases(self, chunk + 1, bias);
        if (gelu) {
#pragma unroll
            for (int i = 0; i < 32; i++) v[i] = gelu_tanh_of_half(v[i]);
        }
        if (chunk < MGV__LENT_STAGES) {
            if (stream) layer_add_residual(residual[chunk], v);
            gemm_write<64>(0,
                                fragment_address(self, shared_address(self.shared->stage[lent[chunk]]) + self.group * MGV__CHUNK_BYTES), v);
            math_give_lent(self, chunk);
        } else {
            const uint32_t granted = stream ? math_take_chunk(self) : buffer[chunk - MGV__LENT_STAGES];
            gemm_write<64>(stream ? (uint32_t)MGV__KERNEL_RESIDUAL : 0, fragment_address(self, granted), v);
            if (stream && last) layer_statistics(place, v, chunk); /* they must be written when the storer signals */
            math_give_chunk(self);
        }
        if (stream && !last) layer_statistics(place, v, chunk);
    }
}

/* The same of QKV's and FC1's narrower tiles, which few images have: one code for both, which is near when it is wanted again. The branch
   that tells them apart stands in each chunk: across it the compiler moves nothing, and so puts no chunk off for the next one's arithmetic
   (an epilogue for each of the two: eight images +1.5%; in rounds, whose sums move down: +1.2%). */
template <int COLUMNS>
DEVICE void layer_epilogue_narrow(Math &self, uint32_t gelu, const uint32_t (&lent)[MGV__LENT_STAGES], float (&acc)[COLUMNS / 2]) {
    constexpr int chunks = COLUMNS / 64;
    static_assert(chunks == MGV__LENT_STAGES + 1, "one chunk buffer");
    float rstd[2], bias[16];
    const uint32_t buffer = math_take_chunk(self);
    if (self.thread == 0) /* a storer that has granted this chunk is done with the tile before */
        for (int i = 0; i < MGV__LENT_STAGES; i++) self.shared->lent_stage[self.group][i] = lent[i];
    gemm_norms(self, MGV__KERNEL_FOLD_NORM, rstd);
    layer_biases(self, 0, bias);
    wgmma_wait_group<0>();
    wgmma_registers_fence(acc);
#pragma unroll
    for (int chunk = 0; chunk < chunks; chunk++) {
        float v[32];
#pragma unroll
        for (int i = 0; i < 32; i++) v[i] = rstd[i / 2 % 2] * acc[32 * chunk + i] + bias[i / 4 * 2 + i % 2];
        if (gelu) {
#pragma unroll
            for (int i = 0; i < 32; i++) v[i] = gelu_tanh_of_half(v[i]);
        }
        if (chunk + 1 < chunks) layer_biases(self, chunk + 1, bias);
        const uint32_t to =
            chunk < MGV__LENT_STAGES ? shared_address(self.shared->stage[lent[chunk]]) + self.group * MGV__CHUNK_BYTES : buffer;
        gemm_write<64>(0, fragment_address(self, to), v);
        if (chunk < MGV__LENT_STAGES) math_give_lent(self, chunk);
        else math_give_chunk(self);
    }
}

/* Where a chunk goes that is written into a lent stage. */
DEVICE uint32_t lent_chunk(const Math &self, uint32_t stage) {
    return shared_address(self.shared->stage[stage]) + self.group * MGV__CHUNK_BYTES;
}

/* The same of QKV whose queries and keys turn. In pieces of 32 columns, or their cosines and sines would not fit into registers. */
template <int COLUMNS>
DEVICE void layer_epilogue_turned(Math &self, const TileSlot &tile, const uint32_t (&lent)[MGV__LENT_STAGES], float (&acc)[COLUMNS / 2]) {
    constexpr int chunks = COLUMNS / 64, buffered = chunks - MGV__LENT_STAGES;
    const RotaryRows angles = rotary_rows(self, tile, gemm_row(self, tile));
    const uint32_t first = gemm_first_column(tile, self.cta), vectors = shared_address(&self.shared->vectors[2 * (self.lane % 4)]);
    uint32_t eight = rotary_eight(tile, first), buffer[buffered];
    float rstd[2];
#pragma unroll
    for (int i = 0; i < buffered; i++) {
        Ring<MGV__CHUNKS> chunk = self.chunk;
        if (i) chunk.advance();
        buffer[i] = math_take_chunk(self, chunk);
    }
    if (self.thread == 0) /* a storer that has granted these chunks is done with the tile before */
        for (int i = 0; i < MGV__LENT_STAGES; i++) self.shared->lent_stage[self.group][i] = lent[i];
    gemm_norms(self, MGV__KERNEL_FOLD_NORM, rstd);
    wgmma_wait_group<0>();
    wgmma_registers_fence(acc);
#pragma unroll
    for (int chunk = 0; chunk < chunks; chunk++) {
        const uint32_t fragments =
            fragment_address(self, chunk < MGV__LENT_STAGES ? lent_chunk(self, lent[chunk]) : buffer[chunk - MGV__LENT_STAGES]);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int column = 64 * chunk + 32 * half;
            float v[16];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float b[2];
                shared_load_v2f32(vectors + 4 * column + 32 * j, b[0], b[1]);
#pragma unroll
                for (int i = 0; i < 4; i++) v[4 * j + i] = rstd[i / 2] * acc[column / 2 + 4 * j + i] + b[i % 2];
            }
            rotary_turn<32>(tile, angles, v, first + column, eight);
            gemm_write<32>(0, fragments ^ half * 64, v);
        }
        if (chunk < MGV__LENT_STAGES) math_give_lent(self, chunk);
        else math_give_chunk(self);
    }
}

/* The same of a gate and what it opens, whose chunks all fit into lent stages. */
template <int COLUMNS> DEVICE void layer_epilogue_gated(Math &self, const uint32_t (&lent)[MGV__LENT_STAGES], float (&acc)[COLUMNS / 2]) {
    static_assert(COLUMNS == 128 * MGV__LENT_STAGES, "128 columns of sums are a chunk");
    float rstd[2];
    math_take_chunk(self);
    if (self.thread == 0) /* a storer that has granted a chunk is done with the tile before */
        for (int i = 0; i < MGV__LENT_STAGES; i++) self.shared->lent_stage[self.group][i] = lent[i];
    gemm_norms(self, MGV__KERNEL_FOLD_NORM, rstd);
    math_give_chunk(self);
    wgmma_wait_group<0>();
    wgmma_registers_fence(acc);
#pragma unroll
    for (int chunk = 0; chunk < MGV__LENT_STAGES; chunk++) {
        gated_write(self, MGV__KERNEL_SILU, rstd, &acc[64 * chunk], 128 * chunk, fragment_address(self, lent_chunk(self, lent[chunk])));
        math_give_lent(self, chunk);
    }
}

/* The tile of self.slot and those behind it, as long as they are of this sort and known in time. What comes then, or KIND_NOT_KNOWN. */
template <int COLUMNS, uint32_t KINDS> ROUTINE uint32_t layer_tiles(Math &self) {
    const mgv__kernel_op &first = self.shared->slot[self.slot.index].op;
    uint32_t flags = first.flags, steps = first.of.gemm.blocks, next_kind, again;
    float acc[COLUMNS / 2];
    wgmma_registers_zero(acc); /* never again: but undefined ones would do harm */
    wgmma_registers_fence(acc);
    do {
        const TileSlot &tile = self.shared->slot[self.slot.index];
        const uint32_t epilogue = layer_flags<KINDS>(flags);
        uint32_t lent[MGV__LENT_STAGES] = {0, 0};
        layer_products<COLUMNS>(self, steps, acc, lent);
        next_kind = math_look_ahead(self);
        again = 0;
        if (next_kind == (COLUMNS == 256 ? MGV__KERNEL_GEMM_256 : MGV__KERNEL_GEMM_192)) {
            const mgv__kernel_op &next = self.shared->slot[(self.slot.index + 1) % MGV__SLOTS].op;
            flags = next.flags;
            steps = next.of.gemm.blocks;
            again = is_layer_tile<KINDS>(next);
        }
        if (is_tower<KINDS>() && epilogue == FLAGS_TURNED) {
            if constexpr (is_tower<KINDS>()) layer_epilogue_turned<COLUMNS>(self, tile, lent, acc);
        } else if (is_tower<KINDS>() && COLUMNS == 256 && epilogue == FLAGS_GATED) {
            if constexpr (is_tower<KINDS>() && COLUMNS == 256) layer_epilogue_gated<COLUMNS>(self, lent, acc);
        } else if constexpr (COLUMNS == 192) {
            if (epilogue == FLAGS_STREAM) layer_epilogue<COLUMNS, FLAGS_STREAM>(self, tile, lent, acc);
            else layer_epilogue_narrow<COLUMNS>(self, epilogue == FLAGS_FC1, lent, acc);
        } else {
            if (epilogue == FLAGS_QKV) layer_epilogue<COLUMNS, FLAGS_QKV>(self, tile, lent, acc);
            else if (epilogue == FLAGS_FC1) layer_epilogue<COLUMNS, FLAGS_FC1>(self, tile, lent, acc);
            else layer_epilogue<COLUMNS, FLAGS_STREAM>(self, tile, lent, acc);
        }
        math_leave_tile(self);
    } while (again);
    return next_kind;
}

#endif /* MGV_GEMM_LAYERS_CUH */
