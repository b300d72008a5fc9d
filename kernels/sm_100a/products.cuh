/* megavit: products of a math warpgroup on Blackwell. Roles, ring, chunks and epilogues are those of sm_90a/throughput; what differs is
   where
   sums come from: one thread of each warpgroup starts products of 64 rows (tcgen05, cta_group::1), whose sums lie in tensor memory until
   all
   four warps have loaded them, in the layout that wgmma's registers have.

   A product of 64 rows takes as long as one of 128: this engine reaches half of what the tensor cores can do. What the whole could be is
   in kernels/NOTES.md. Nothing of it has run on a card; all of it runs on the machine model.

   Tensor memory: 256 columns for each warpgroup. Sums of a row lie in lane 32 (r / 16) + r % 16, so warp w has rows 16 w to 16 w + 15. */
#ifndef MGV_BLACKWELL_PRODUCTS_CUH
#define MGV_BLACKWELL_PRODUCTS_CUH

/* multiplied: 1 arrival, the group's products with this stage have ended. done: 1 arrival, other products of the group have. sums_read, of
   pairs, in the even CTA: 1 arrival, the odd CTA has read a tile's sums, of tiles of even and of odd number. Of attention of pairs, block
   by block of keys of the group's head: attended: 1 arrival, its scores, then its values have been multiplied; in the even CTA every warp
   of the group of both CTAs: weights_written, results_read. */
#define MGV_LENDS_STAGES false
#define MGV_BLACKWELL_TILES true
#define MGV_PRODUCT_BARRIERS \
    uint64_t multiplied[MGV__MATH_GROUPS][MGV__STAGES], done[MGV__MATH_GROUPS], sums_read[2], attended[MGV__MATH_GROUPS], \
        weights_written[MGV__MATH_GROUPS], results_read[MGV__MATH_GROUPS];
#include "warps.cuh"
enum { PRODUCT_BARRIER_BYTES = MGV__SM100_BARRIER_BYTES };
#include "../sm_90a/throughput/math.cuh"
#include "blackwell.cuh"

enum { TENSOR_GROUP_COLUMNS = TENSOR_COLUMNS / MGV__MATH_GROUPS };
/* Bits of TensorMath::parities behind those of barriers, for products of 128 rows (rows128.cuh): which of two places has the tile's sums;
   the math groups have met since the last tile of another kind; of pairs whether blocks of attention have been odd in number, and from
   there on the number of products' tiles so far. */
enum { SUMS_PLACE = MGV__STAGES + 1, GROUPS_MET, PAIR_BLOCKS, PAIR_TILES };

struct BlackwellMemory {
    SharedMemory shared;       /* first: the roles know no other */
    uint32_t tensor_memory;    /* address of the columns */
    /* Of pairs, whose tiles leave no registers for what is kept from tile to tile: what has been started of the next one; where a math warp
       is in the ring of slots and in barriers' phases. */
    uint32_t ahead, place[4 * MGV__MATH_GROUPS];
};
static_assert(sizeof(BlackwellMemory) == MGV__SM100_SHARED_BYTES, "the budget that `megavit plan` prints");

struct TensorMath : Math {
    uint32_t own;      /* in a tile: the group's first column in this warp's lanes; of the thread that starts products: as these want it */
    uint32_t parities; /* of the phases that end next: of `multiplied`, bit by bit, as not all uses of a stage are a product's; of `done` */
    /* Products of 128 rows (rows128.cuh), by the warp that starts them: the stage that is multiplied next, counted through two rounds of
       the ring; how many of the tile, or in its end of the next one, have been, and of these left. */
    uint32_t place, started, left;
    __device__ __forceinline__ TensorMath(BlackwellMemory *m, const mgv__kernel_arguments &a, uint32_t g)
        : Math(&m->shared, a, g), own(0), parities(0), place(0), started(0), left(0) {}
};

/* Over a tile of a pair. The number of tiles counts through four at least. */
DEVICE void keep_place(const TensorMath &self) {
    uint32_t *const place = &((BlackwellMemory *)self.shared)->place[self.group * 4 + self.warp];
    if (self.lane == 0) *place = self.slot.index | self.slot.parity << 8 | self.turn << 9 | self.parities << 10;
    warp_sync();
}

/* The thread that starts all of the group's products. */
DEVICE bool starts_products(const TensorMath &self) { return self.thread == 0; }

/* By that thread: K 64 of 64 rows of A and COLUMNS rows of B, both in rows of 128 bytes. */
template <uint32_t COLUMNS>
DEVICE void start_block(uint32_t d, uint64_t a, uint64_t b, uint32_t accumulate, uint32_t format = FORMAT_BF16) {
    const uint32_t word = instruction_word(64, COLUMNS, format, format, 0, 0);
#pragma unroll
    for (uint32_t k = 0; k < 4; k++)
        tcgen05_mma_f16_ss(d, matrix_descriptor_advance(a, 32 * k), matrix_descriptor_advance(b, 32 * k), word, accumulate || k);
}

/* By the whole group: the products that were committed to `done` have ended, and this warp may load their sums. */
DEVICE void wait_done(TensorMath &self) {
    warp_sync();
    wait_barrier(&self.shared->done[self.group], self.parities >> MGV__STAGES & 1);
    self.parities ^= 1u << MGV__STAGES;
    tcgen05_fence_after_thread_sync();
}

/* This warp's rows of 2 COUNT columns from column `first` on, as wgmma has them in registers. */
template <int COUNT> DEVICE void load_sums(const TensorMath &self, uint32_t first, float (&v)[COUNT]) {
    uint32_t r[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i += 8) tcgen05_ld_16x256b(r[i], r[i + 1], r[i + 2], r[i + 3], r[i + 4], r[i + 5], r[i + 6], r[i + 7],
                                                          self.own + first + 2 * i);
    tcgen05_wait_ld();
#pragma unroll
    for (int i = 0; i < COUNT; i++) v[i] = __uint_as_float(tcgen05_loaded(r[i]));
}

/* By the whole group: all its warps have loaded or stored what they wanted, and the next products may overwrite or read it. */
DEVICE void hand_to_products(const TensorMath &self) {
    tcgen05_fence_before_thread_sync();
    math_group_sync(self);
    if (starts_products(self)) tcgen05_fence_after_thread_sync();
}

/* The products with a stage have ended: this warp leaves it. */
DEVICE void leave_multiplied(TensorMath &self, uint32_t stage) {
    wait_barrier(&self.shared->multiplied[self.group][stage], self.parities >> stage & 1);
    self.parities ^= 1u << stage;
    warp_sync(); /* lane 0 leaves for the warp: no lane may still be looking */
    math_leave_stage(self, stage);
}

/* Sums of the tile, in registers; its stages are left. format: FORMAT_BF16, or FORMAT_F16. */
template <int COLUMNS> DEVICE void tensor_mainloop(TensorMath &self, const TileSlot &tile, uint32_t format, float (&acc)[COLUMNS / 2]) {
    constexpr uint32_t depth = gemm_depth(COLUMNS), a_bytes = MGV__GEMM_ROWS * 128, b_bytes = COLUMNS * 128;
    const uint32_t steps = gemm_steps(tile.op);
    uint32_t before = 0;
    for (uint32_t step = 0; step < steps; step++) {
        if (starts_products(self)) {
            const uint32_t base = shared_address(self.shared->stage[self.stage.index]);
            wait_barrier(&self.shared->stage_full[self.stage.index], self.stage.parity);
#pragma unroll
            for (uint32_t block = 0; block < depth; block++)
                start_block<COLUMNS>(self.own, matrix_descriptor_k_major(base + block * a_bytes + self.group * 64 * 128, 64, 128),
                                     matrix_descriptor_k_major(base + depth * a_bytes + block * b_bytes, COLUMNS, 128), step || block,
                                     format);
            tcgen05_commit(shared_address(&self.shared->multiplied[self.group][self.stage.index]));
        }
        warp_sync();
        if (step) leave_multiplied(self, before);
        before = self.stage.index;
        self.stage.advance();
    }
    leave_multiplied(self, before);
    tcgen05_fence_after_thread_sync();
    load_sums(self, 0, acc);
    hand_to_products(self);
}

/* Weights of 16 keys, number `k` of such, packed as A wants them, over the scores of this warp's rows. Some at a time: all of them
   beside all
   scores are more than a thread has registers for. tcgen05_wait_st behind the last. */
DEVICE void store_weights(const TensorMath &self, uint32_t k, const uint32_t (&p)[4]) {
    tcgen05_st_16x128b(self.own + 8 * k, p[0], p[1], p[2], p[3]);
}
/* Those of 2 COUNT keys from number `first` on, of scores that have become powers of two. */
template <int COUNT> DEVICE void store_powers(const TensorMath &self, const float (&s)[COUNT], uint32_t first = 0) {
#pragma unroll
    for (int k = 0; k < COUNT / 8; k++) {
        uint32_t p[4];
#pragma unroll
        for (int i = 0; i < 4; i++) p[i] = cvt_rn_bf16x2(s[8 * k + 2 * i], s[8 * k + 2 * i + 1]);
        store_weights(self, first + k, p);
    }
    tcgen05_wait_st();
}

/* By the thread that starts products: weights of KEYS keys, in the first columns, times COLUMNS columns of values, rows of COLUMNS * 2
   bytes
   at `values`, to column `d`. */
template <uint32_t KEYS, uint32_t COLUMNS> DEVICE void start_values(const TensorMath &self, uint32_t d, uint32_t values) {
    const uint64_t b = matrix_descriptor_mn_major(values, KEYS, COLUMNS * 2);
#pragma unroll 2 /* more, and their descriptors take others' registers */
    for (uint32_t k = 0; k < KEYS / 16; k++)
        tcgen05_mma_f16_ts(self.own + d, self.own + 8 * k, matrix_descriptor_advance(b, matrix_mn_major_offset(16 * k, COLUMNS * 2)),
                           instruction_word(64, COLUMNS, FORMAT_BF16, FORMAT_BF16, 0, 1), k);
}
DEVICE void commit_done(const TensorMath &self) { tcgen05_commit(shared_address(&self.shared->done[self.group])); }

#endif /* MGV_BLACKWELL_PRODUCTS_CUH */
