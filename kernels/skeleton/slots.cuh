/* megavit: how a tile is announced, and rings of buffers: what every regime's shared memory holds. */
#ifndef MGV_SLOTS_CUH
#define MGV_SLOTS_CUH

#include "../ptx.cuh"

/* A tile as the scheduler announces it: the operation's 32 words and where the tile lies. */
struct TileSlot {
    mgv__kernel_op op;
    uint32_t group;
    uint32_t unit;    /* pair of row tiles, image, or pair of images within the group */
    uint32_t column;  /* column tile, or pair of heads */
    uint32_t turn;    /* throughput regime, bit 0: the math warpgroup that takes the first block of an attention tile's queries;
                         bit 1: the parity of the ring in whose round the slot was filled last (math_announced) */
};

enum {
    SCHEDULER_WARP = 1, /* number of that warp */
    ROLES_LEFT_ARRIVALS = MGV__KERNEL_THREADS / 32 - 1
};

static_assert(sizeof(TileSlot) == MGV__SLOT_BYTES, "the budget that `megavit plan` prints");
static_assert(sizeof(mgv__kernel_op) == 128, "a warp copies an operation with one load of four bytes a lane");
static_assert(sizeof(mgv__kernel_arguments) % 64 == 0, "tensor maps in kernel arguments are 64-byte aligned");

/* A position in a ring of COUNT buffers: which one, and the parity of the barrier phase that is waited for. */
template <int COUNT> struct Ring {
    uint32_t index, parity;
    __device__ __forceinline__ Ring() : index(0), parity(0) {}
    __device__ __forceinline__ void advance() {
        if (++index == COUNT) { index = 0; parity ^= 1; }
    }
};

#endif /* MGV_SLOTS_CUH */
