/* megavit: the walk through the list of segments, by which a scheduler warp announces its CTA's next tiles a few ahead. It is the regimes'
   schedulers that wait for what a tile reads.

   Clusters take tiles in turn, or as the plan has dealt them: either way every CTA's list is a subsequence of one order, and that order is
   topological (the plan proves it). */
#ifndef MGV_SCHEDULER_CUH
#define MGV_SCHEDULER_CUH

#include "roles.cuh"

/* Fills the next slot with tile `number` and announces it, by the whole warp; beyond the last tile, the end. `segment` follows the numbers.
   Memory: that of either regime. adjust: what the regime makes of the tile, and describe: what else is written of it or of the end first,
   both by one lane. 0: there is nothing to go on with. */
template <class Memory, class Adjust, class Describe>
DEVICE bool announce_tile(Memory *shared, const mgv__kernel_arguments &arguments, Watchdog &dog, const Ring<MGV__SLOTS> &slot,
                          uint32_t number, uint32_t &segment, const Adjust &adjust, const Describe &describe) {
    const uint32_t lane = threadIdx.x % 32;
    TileSlot &tile = shared->slot[slot.index];
    watch_barrier(dog, &shared->slot_vacated[slot.index], slot.parity ^ 1, MGV__WAIT_SLOT_VACATED, tile);
    dog.aborted = !vote_all(!dog.aborted);
    if (dog.aborted) return false; /* the slot may still be in use */
    const bool last = number >= arguments.total_tiles;
    if (last) {
        if (lane == 0) tile.op.kind = MGV__KERNEL_END;
    } else {
        while (number >= arguments.segments[segment + 1].first_tile) segment++;
        const mgv__kernel_segment at = arguments.segments[segment];
        ((uint32_t *)&tile.op)[lane] = ld_global_nc_u32((const uint32_t *)&arguments.ops[at.op] + lane);
        warp_sync();
        if (lane == 0) {
            const uint32_t local = number - at.first_tile;
            tile.group = at.group;
            tile.unit = at.first_unit + local / tile.op.column_tiles;
            tile.column = local % tile.op.column_tiles;
            adjust(tile);
        }
    }
    warp_sync();
    if (lane == 0) {
        describe(tile);
        mbarrier_arrive(shared_address(&shared->tile_known[slot.index]));
    }
    return !last;
}

/* What a scheduler does in the end, by the whole warp: it watches the last tiles, then that the other warps end. `slot` is that of the end,
   or of the tile that was given up. */
template <class Memory> DEVICE void watch_last_tiles(Memory *shared, Watchdog &dog, Ring<MGV__SLOTS> slot) {
#pragma unroll 1
    for (int i = 1; i < MGV__SLOTS; i++) {
        slot.advance();
        watch_barrier(dog, &shared->slot_vacated[slot.index], slot.parity ^ 1, MGV__WAIT_SLOT_VACATED, shared->slot[slot.index]);
    }
    watch_barrier(dog, &shared->roles_left, 0, MGV__WAIT_ROLES_LEFT, shared->slot[slot.index]);
    dog.aborted = !vote_all(!dog.aborted);
}

/* The tiles of this CTA's cluster, in the order in which it takes them: those that the plan has dealt to it, or every so many of the list.
   A number beyond the last tile is the end. */
struct TileNumbers {
    const uint32_t *dealt;
    uint32_t turn, clusters;
    __device__ __forceinline__ explicit TileNumbers(const mgv__kernel_arguments &arguments)
        : dealt(arguments.deal), turn(clusterid_x()), clusters(nclusterid_x()) {
        if (dealt) dealt += ld_global_nc_u32(dealt + turn);
    }
    __device__ __forceinline__ uint32_t next() {
        if (dealt) return ld_global_nc_u32(dealt++);
        turn += clusters;
        return turn - clusters;
    }
};

#endif /* MGV_SCHEDULER_CUH */
