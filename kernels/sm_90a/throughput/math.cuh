/* megavit: what all kinds of math tiles share: the stages they read, the chunks they write, and the layout of wgmma's registers.

   Thread t of a math warpgroup, w = t / 32, l = t % 32: accumulator i holds row 16 w + l / 4 + 8 ((i / 2) % 2)
   and column 8 (i / 4) + 2 (l % 4) + i % 2. */
#ifndef MGV_MATH_CUH
#define MGV_MATH_CUH

#include "storer.cuh"

struct Math {
    SharedMemory *shared;
    const mgv__kernel_arguments &arguments;
    Ring<MGV__STAGES> stage;
    Ring<MGV__CHUNKS> chunk;
    Ring<MGV__SLOTS> slot;   /* of the tile that is worked on */
    uint32_t turn;           /* the word in which the group's next decision stands */
    uint32_t group;          /* number of this math warpgroup */
    uint32_t thread;         /* within the warpgroup */
    uint32_t warp, lane;
    uint32_t cta;
    uint32_t peer_empty;     /* stage_empty[0] of the other CTA */
    __device__ __forceinline__ Math(SharedMemory *s, const mgv__kernel_arguments &a, uint32_t g)
        : shared(s), arguments(a), turn(0), group(g), thread(threadIdx.x % 128), warp(threadIdx.x % 128 / 32),
          lane(threadIdx.x % 32), cta(cluster_ctarank()),
          peer_empty(mapa_shared_cluster(shared_address(&s->stage_empty[0]), cluster_ctarank() ^ 1)) {}
};

/* Named barriers: of each math warpgroup, of all math warps. */
enum { MATH_SYNC_GROUP = 1, MATH_SYNC_ALL = MATH_SYNC_GROUP + MGV__MATH_GROUPS };
DEVICE void math_group_sync(const Math &self) { bar_sync(MATH_SYNC_GROUP + self.group, 128); }
/* 1 if any thread of the math group says so. */
DEVICE uint32_t math_group_any(const Math &self, uint32_t yes) { return bar_red_or(MATH_SYNC_GROUP + self.group, 128, yes); }

/* What comes next is decided by one thread for its whole math group, so that on an abort no warp goes another way than the rest of its
   group. Nor may the other group, which it meets at a barrier in tiles of few rows: so what counts is not whether the launch has been given
   up by now, which one of them may hear of a tile sooner, but what was announced. A scheduler lets waits through only behind its last
   announcement, and a slot that it has not filled since holds the parity of the round before. */
enum : uint32_t { KIND_NOT_KNOWN = ~0u };
DEVICE uint32_t math_tell_kind(Math &self, uint32_t kind) {
    uint32_t *told = &self.shared->next_kind[self.group][self.turn];
    self.turn ^= 1; /* who is still reading reads the other word */
    if (self.thread == 0) *told = kind;
    math_group_sync(self);
    return *told;
}
/* The kind of the tile at a place in the ring behind a wait for it, or the end if the wait was let through without one. */
DEVICE uint32_t math_announced(const Math &self, const Ring<MGV__SLOTS> &slot) {
    const TileSlot &tile = self.shared->slot[slot.index];
    return tile.turn >> 1 == slot.parity ? tile.op.kind : (uint32_t)MGV__KERNEL_END;
}
/* Waits until the tile of self.slot is known; its kind, or the end, which giving up is, too. */
DEVICE uint32_t math_wait_kind(Math &self) {
    uint32_t kind = MGV__KERNEL_END;
    if (self.thread == 0) {
        wait_barrier(&self.shared->tile_known[self.slot.index], self.slot.parity);
        kind = math_announced(self, self.slot);
    }
    return math_tell_kind(self, kind);
}
/* The same of the tile behind that of self.slot, but does not wait: for a place where the tensor cores have work and warps have none. */
DEVICE uint32_t math_look_ahead(Math &self) {
    Ring<MGV__SLOTS> next = self.slot;
    uint32_t kind = KIND_NOT_KNOWN;
    next.advance();
    if (self.thread == 0 && mbarrier_test_wait_parity(shared_address(&self.shared->tile_known[next.index]), next.parity))
        kind = math_announced(self, next);
    return math_tell_kind(self, kind);
}
/* The tile's slot may be filled again: this warp is done with it. */
DEVICE void math_leave_tile(Math &self) {
    warp_sync();
    if (self.lane == 0) mbarrier_arrive(shared_address(&self.shared->slot_vacated[self.slot.index]));
    self.slot.advance();
}

DEVICE void math_wait_stage(Math &self, const Ring<MGV__STAGES> &stage) {
    wait_barrier(&self.shared->stage_full[stage.index], stage.parity);
}
/* Every warp tells both CTAs that it has left the stage. */
DEVICE void math_leave_stage(const Math &self, uint32_t index) {
    if (self.lane == 0) mbarrier_arrive(shared_address(&self.shared->stage_empty[index]));
    if (self.lane == 1) mbarrier_arrive_cluster(self.peer_empty + index * 8);
}

/* Waits until this, or the next, chunk buffer may be written; its address. */
DEVICE uint32_t math_take_chunk(Math &self, const Ring<MGV__CHUNKS> &chunk) {
    wait_barrier(&self.shared->chunk_granted[self.group][chunk.index], chunk.parity);
    return shared_address(self.shared->chunk[self.group][chunk.index]);
}
DEVICE uint32_t math_take_chunk(Math &self) { return math_take_chunk(self, self.chunk); }
/* Hands the chunk to the storer, which orders what every lane wrote before the copy engine's read: one fence there, where nobody
   computes, instead of one in each math warp, which would wait for its stores. */
DEVICE void math_give_chunk(Math &self) {
    warp_sync();
    if (self.lane == 0) mbarrier_arrive(shared_address(&self.shared->chunk_written[self.group][self.chunk.index]));
    self.chunk.advance();
}

/* After ordinary stores of a whole math group: visible to the copy engines of other CTAs, then counted. */
DEVICE void signal_ordinary_stores(const Math &self, const TileSlot &tile) {
    fence_proxy_async_global();
    math_group_sync(self);
    uint32_t *counter = tile_counter(self.arguments, tile, self.cta);
    if (self.thread == 0 && counter) red_release_gpu_add(counter, 1);
}

/* Address of 16-byte unit `unit` of row `row` in a chunk: 128-byte rows, 128-byte swizzle. */
DEVICE uint32_t chunk_unit(uint32_t chunk, uint32_t row, uint32_t unit) { return chunk + row * 128 + ((unit ^ (row & 7)) << 4); }

/* Where this lane points stmatrix and ldmatrix for 16 rows of its warp and the first two groups of 8 columns. The groups `unit` and
   `unit` + 1, unit even, are at this address ^ unit * 16: chunks are 1024-byte aligned, so the swizzle touches nothing but the unit. */
DEVICE uint32_t fragment_address(const Math &self, uint32_t chunk) {
    const uint32_t matrix = self.lane / 8;
    return chunk_unit(chunk, self.warp * 16 + (matrix & 1) * 8 + self.lane % 8, matrix >> 1);
}

/* Descriptor of a bf16 operand whose rows are 128 bytes in 128-byte swizzle: eight rows every 1024 bytes.
   K-major or, for a transposed B, N-major. */
DEVICE uint64_t matrix_descriptor(uint32_t address) { return 0x4000004000010000ull | ((address & 0x3FFFF) >> 4); }

/* The same, found where it stands, in front of the wait for the operand: else the compiler finds it behind the wait. */
DEVICE uint64_t known_descriptor(uint32_t address) {
    const uint64_t descriptor = matrix_descriptor(address);
    return descriptor >> 32 << 32 | opaque((uint32_t)descriptor);
}

/* That of an operand so many units of 16 bytes behind: in the low word alone, or the high one would be found again for each. */
DEVICE uint64_t descriptor_behind(uint64_t descriptor, uint32_t units) { return descriptor >> 32 << 32 | ((uint32_t)descriptor + units); }

/* Sum and maximum over the four lanes that share a row. */
DEVICE float quad_sum(float v) { v += shfl_bfly_f32(v, 1); return v + shfl_bfly_f32(v, 2); }
DEVICE float quad_max(float v) { v = fmaxf(v, shfl_bfly_f32(v, 1)); return fmaxf(v, shfl_bfly_f32(v, 2)); }

#endif /* MGV_MATH_CUH */
