/* megavit: the scheduler warp. It announces this CTA's next tiles a few ahead, and waits on the counters in global memory for what each
   tile reads. It is the only role that waits for other clusters. */
#ifndef MGV_THROUGHPUT_SCHEDULER_CUH
#define MGV_THROUGHPUT_SCHEDULER_CUH

#include "memory.cuh"

/* ANY_SIZE: a tile of a picture of any size waits for the rows that are its own, and those behind them in the last block of tokens. */
template <bool ANY_SIZE = false> ROUTINE void scheduler_role(SharedMemory *shared, const mgv__kernel_arguments &arguments, Watchdog &dog) {
    Ring<MGV__SLOTS> slot;
    const uint32_t lane = threadIdx.x % 32, cta = cluster_ctarank();
    TileNumbers numbers(arguments);
    uint32_t segment = 0;
    for (;;) {
        const auto adjust = [](TileSlot &tile) {
            share_rows(tile);
            narrow_last_tile(tile);
        };
        if (!announce_tile(shared, arguments, dog, slot, numbers.next(), segment, adjust,
                           [&](TileSlot &tile) { tile.turn = slot.index % MGV__MATH_GROUPS | slot.parity << 1; }))
            break;
        const TileSlot &tile = shared->slot[slot.index];
        if (tile.op.kind == MGV__KERNEL_GEMV) prefetch_gemv_weights(arguments, tile, tile.column * MGV__CLUSTER + cta);
        if (tile.op.wait_divisor) {
            uint32_t first, end;
            tile_rows(tile, cta, first, end);
            if (tile.op.flags & MGV__KERNEL_WAIT_ALL) {
                first = 0;
                end = mgv__rows_of_group(&tile.op, tile.group);
            }
            if constexpr (ANY_SIZE)
                if (first < end && tile.op.kind == MGV__KERNEL_POOL_SUMS && arguments.picture_rows) {
                    first = ld_global_nc_u32(arguments.picture_rows + first);
                    end = first + mgv__ceil_div(ld_global_nc_u32(arguments.picture_rows + end) - first, MGV__ONLINE_KEYS) *
                                      MGV__ONLINE_KEYS;
                    end = mgv__min_u32(end, ld_global_nc_u32(arguments.picture_rows + tile.op.rows_total));
                }
            const uint32_t base = tile.op.wait_counter + tile.group * tile.op.wait_stride;
            if (first < end)
                wait_counters(dog, arguments.counters, base + first / tile.op.wait_divisor, base + (end - 1) / tile.op.wait_divisor,
                              tile.op.wait_threshold, arguments.segments[segment].op);
        }
        warp_sync();
        if (lane == 0) mbarrier_arrive(shared_address(&shared->tile_ready[slot.index]));
        slot.advance();
    }
    watch_last_tiles(shared, dog, slot);
}

#endif /* MGV_THROUGHPUT_SCHEDULER_CUH */
