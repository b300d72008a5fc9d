/* megavit: the storers. One warp for each math warpgroup: all of it waits, one elected lane does the rest. It grants chunk buffers, with
   the residual loaded into them where there is one, sends written chunks to global memory through the copy engine, and signals the tile's
   counter once they have arrived there. */
#ifndef MGV_STORER_CUH
#define MGV_STORER_CUH

#include "loader.cuh"

/* What a tile does with its sums is compiled in for the operations of the layers; the others share one code, which asks for everything. */
enum : uint32_t {
    FLAGS_OF_TILE = ~0u,        /* not compiled in, but that it is not f16 */
    FLAGS_OF_COMMON_TILE = ~1u, /* not compiled in, but for activations of which only the kernel of all kinds has code, and f16 */
    FLAGS_OF_HALF_TILE = ~2u,   /* not compiled in, but that it is f16: a copy, beside which other tiles have no more to ask for */
    FLAGS_OF_TOWER_TILE = ~3u   /* as of a tile, and what towers ask for: MGV__KERNEL_TOWER_EPILOGUE */
};
enum : uint32_t { /* what an operation of a layer does with its sums: QKV, FC1, and what writes the stream */
    FLAGS_QKV = MGV__KERNEL_FOLD_NORM,
    FLAGS_FC1 = MGV__KERNEL_FOLD_NORM | MGV__KERNEL_GELU_TANH,
    FLAGS_STREAM = MGV__KERNEL_RESIDUAL | MGV__KERNEL_STATS,
    /* of towers alone: QKV whose queries and keys turn, a gate and what it opens */
    FLAGS_TURNED = FLAGS_QKV | MGV__KERNEL_ROTARY,
    FLAGS_GATED = MGV__KERNEL_FOLD_NORM | MGV__KERNEL_SILU | MGV__KERNEL_GATED
};
/* Machines whose products do not let math warps write into stages define it as false. */
#ifndef MGV_LENDS_STAGES
#define MGV_LENDS_STAGES true
#endif
template <uint32_t KINDS> DEVICE uint32_t layer_flags(uint32_t flags) {
    return flags & (is_tower<KINDS>() ? MGV__KERNEL_EPILOGUE | MGV__KERNEL_TOWER_EPILOGUE : MGV__KERNEL_EPILOGUE);
}
/* A layer's tile of 256 or 192 columns, of enough stages to lend its last ones. */
template <uint32_t KINDS> DEVICE bool is_layer_tile(const mgv__kernel_op &op) {
    if (!MGV_LENDS_STAGES) return false;
    const uint32_t flags = layer_flags<KINDS>(op.flags);
    const bool of_tower = is_tower<KINDS>() && (flags == FLAGS_TURNED || (flags == FLAGS_GATED && op.kind == MGV__KERNEL_GEMM_256));
    return (op.kind == MGV__KERNEL_GEMM_256 || op.kind == MGV__KERNEL_GEMM_192) && op.of.gemm.blocks >= MGV__LENT_STAGES &&
           (flags == FLAGS_QKV || flags == FLAGS_FC1 || flags == FLAGS_STREAM || of_tower);
}

struct Storer {
    SharedMemory *shared;
    const mgv__kernel_arguments &arguments;
    uint32_t math_group;
    uint32_t cta;
    Ring<MGV__CHUNKS> chunk; /* next chunk to store */
    uint32_t lent_parity;    /* of lent_written, in the next layer's tile */
    __device__ __forceinline__ Storer(SharedMemory *s, const mgv__kernel_arguments &a, uint32_t g)
        : shared(s), arguments(a), math_group(g), cta(cluster_ctarank()), lent_parity(0) {}
};

/* Partial statistics: the GEMM that writes a row leaves mean and sum of squared deviations of each 64, 80 or 96 of its columns
   (op.stats_columns), at the end of what is left. The row's mean is the mean of the means, each as often as it has columns, and its squared
   deviations are the sum of the parts' plus columns (part mean - mean)^2 each. */

/* Columns of a part of a row of `inner`: the last has what is left. */
DEVICE float part_columns(uint32_t part, uint32_t columns, uint32_t inner) {
    const uint32_t left = inner - part * columns;
    return (float)(left < columns ? left : columns);
}

/* Mean and reciprocal standard deviation of a group's row, by one thread; TOWER: of an RMSNorm the reciprocal root of the mean square.
   PARTS_AT_ONCE parts are on their way together: one
   after the other each takes its own way through the L2 cache. */
enum { PARTS_AT_ONCE = 12 };
template <bool TOWER = false>
DEVICE void row_statistics(const mgv__kernel_arguments &arguments, const mgv__kernel_op &op, uint32_t group, uint32_t row, float &mean,
                           float &rstd) {
    const uint32_t columns = op.stats_columns, inner = op.inner;
    const float *part = arguments.stats + op.stats_in + stats_place(op, inner, group, row, 0);
    float origin = 0, off = 0, squares = 0; /* means are taken from the first part's, so that their squares lose nothing */
#pragma unroll 1
    for (uint32_t first = 0; first * columns < inner; first += PARTS_AT_ONCE) {
        /* or each load finds its address, and they wait for each other's registers */
        const float *const at = (const float *)opaque((const uint8_t *)(part + first * STATS_PART));
        float means[PARTS_AT_ONCE], deviations[PARTS_AT_ONCE];
#pragma unroll
        for (uint32_t i = 0; i < PARTS_AT_ONCE; i++) {
            means[i] = deviations[i] = 0;
            if ((first + i) * columns < inner) ld_relaxed_gpu_v2f32(at + i * STATS_PART, means[i], deviations[i]);
        }
        if (first == 0) origin = means[0];
#pragma unroll
        for (uint32_t i = 0; i < PARTS_AT_ONCE; i++) {
            const float d = means[i] - origin, count = (first + i) * columns < inner ? part_columns(first + i, columns, inner) : 0;
            off += count * d;
            squares += deviations[i] + count * d * d;
        }
    }
    const float mean_off = off / (float)inner;
    mean = origin + mean_off;
    const float variance = (squares - off * mean_off) / (float)inner;
    rstd = rsqrtf((TOWER && op.flags & MGV__KERNEL_RMS ? variance + mean * mean : variance) + op.epsilon);
}

/* Those of the math group's rows, two a lane, where a norm is folded: for the epilogue, which gets them with the first chunk. */
template <bool TOWER> DEVICE void find_norms(const Storer &self, const TileSlot &tile) {
    const uint32_t first = gemm_first_row(tile, self.cta) + self.math_group * MGV__CHUNK_ROWS,
                   end = mgv__rows_of_group(&tile.op, tile.group);
#pragma unroll 1
    for (uint32_t i = threadIdx.x % 32; i < MGV__CHUNK_ROWS; i += 32) {
        float mean, rstd = 1; /* nobody wrote statistics of rows beyond the last */
        if (first + i < end) row_statistics<TOWER>(self.arguments, tile.op, tile.group, first + i, mean, rstd);
        self.shared->norms[self.math_group][i] = rstd;
    }
    warp_sync();
}

/* How the chunks of a tile follow each other: chunk i lies at (x + i * x_step, y + i * y_step, z),
   or (x + i * x_step, head, y, z) where rows are of heads. */
struct ChunkWalk {
    uint32_t count, x, y, z, x_step, y_step, head;
    uint32_t residual;                         /* chunks are granted with the residual in them */
    uint32_t store_map, grant_map;
    uint32_t counted;                          /* chunks are not sent: what they are counted for lies in memory already */
    uint32_t empty, twos;                      /* of attention of pairs: chunks are granted as they are; two each lie side by side */
    uint32_t rest;                             /* columns of the second chunk, if it has maps of its own; else 0 */
    uint32_t store_rest_map, grant_rest_map;   /* its own, or the first chunk's */
};
static constexpr uint32_t NO_HEAD = 0xFFFFFFFFu;

/* The chunks of a math group's columns. */
DEVICE void walk_whole(ChunkWalk &walk, const TileSlot &tile, uint32_t cta, uint32_t math_group) {
    const uint32_t columns = mgv__tile_columns(tile.op.kind);
    walk.count = mgv__whole_columns(columns, math_group) / 32;
    walk.x = gemm_first_column(tile, cta) + (math_group ? mgv__whole_columns(columns, 0) : 0);
    walk.y = gemm_first_row(tile, cta);
    walk.x_step = 32;
    if (is_mx_alone(tile.op)) walk.count = 1;
}

template <bool TOWER> DEVICE ChunkWalk walk_gemm(const TileSlot &tile, uint32_t cta, uint32_t math_group) {
    ChunkWalk walk;
    const uint32_t split = mgv__is_split(tile.op.kind), chunk_columns = tile.op.flags & MGV__KERNEL_FLOAT_OUT ? 32 : 64;
    const uint32_t row = gemm_first_row(tile, cta) + math_group * MGV__CHUNK_ROWS;
    walk.count = split ? 2 - (tile.op.kind == MGV__KERNEL_SPLIT_128) : mgv__tile_columns(tile.op.kind) / chunk_columns;
    walk.x = gemm_first_column(tile, cta);
    walk.y = row;
    walk.z = tile.group;
    walk.x_step = chunk_columns;
    walk.y_step = 0;
    walk.head = NO_HEAD;
    if (TOWER && tile.op.flags & MGV__KERNEL_GATED) { /* two columns of sums make one */
        walk.count /= 2;
        walk.x /= 2;
    }
    if (is_whole(tile.op)) walk_whole(walk, tile, cta, math_group);
    if (tile.op.of.gemm.a_column_step) { /* (column of the head, head, row) */
        walk.x = 0;
        walk.y = tile.column;
        walk.z = row;
    }
    walk.store_map = walk.store_rest_map = tile.op.of.gemm.store_map;
    walk.grant_map = walk.grant_rest_map = tile.op.of.gemm.residual_map;
    walk.rest = 0;
    if (split) { /* target and residual are one */
        walk.rest = mgv__tile_columns(tile.op.kind) / MGV__CLUSTER - 64;
        walk.store_rest_map = walk.grant_rest_map = tile.op.of.gemm.rest_map;
    }
    return walk;
}
/* Blocks of 64 queries: of one head, dealt to the math groups in turn, or of each group's own. */
DEVICE ChunkWalk walk_attention(const TileSlot &tile, uint32_t cta, uint32_t math_group) {
    ChunkWalk walk;
    const AttentionBlocks blocks = attention_blocks(tile, cta, math_group);
    walk.count = (blocks.end + blocks.step - 1 - blocks.first) / blocks.step;
    walk.x = blocks.head * 64;
    walk.y = blocks.first * 64;
    walk.z = image_number(tile.op, tile.group, tile.unit);
    walk.x_step = 0;
    walk.y_step = blocks.step * 64;
    walk.head = NO_HEAD;
    walk.store_map = walk.store_rest_map = walk.grant_map = walk.grant_rest_map = tile.op.of.attention.store_map;
    walk.rest = 0;
    return walk;
}
/* At most one block of 64 queries a math group, in chunks of 64 columns; what the last one has beyond the head is cut off. The chunks are
   granted with the queries in them. */
template <uint32_t KINDS> DEVICE ChunkWalk walk_attention_online(const TileSlot &tile, uint32_t cta, uint32_t math_group) {
    ChunkWalk walk;
    const AttentionPart part = attention_part(tile, cta);
    const uint32_t block = attention_first_block(tile, part, math_group);
    walk.rest = rest_columns<KINDS>(tile.op);
    walk.count = block < part.end ? 1 + (walk.rest != 0) : 0;
    walk.x = 0;
    walk.y = block * 64;
    walk.z = image_number(tile.op, tile.group, tile.unit);
    walk.x_step = 64;
    walk.y_step = 0;
    walk.head = part.head;
    walk.store_map = walk.store_rest_map = tile.op.of.attention.store_map;
    walk.grant_map = tile.op.of.attention.query_map;
    walk.grant_rest_map = tile.op.of.attention.query_rest_map;
    return walk;
}
/* Of pairs: blocks of 64 queries of the math group's head, in chunks of 64 columns. */
DEVICE ChunkWalk walk_pair_attention(const TileSlot &tile, uint32_t cta, uint32_t math_group) {
    ChunkWalk walk;
    const PairQueries q = pair_queries(tile, cta, math_group);
    const uint32_t of_heads = tile.op.kind == MGV__KERNEL_ATTENTION_ONLINE;
    walk.twos = rest_columns(tile.op) != 0;
    walk.count = mgv__ceil_div(q.count, MGV__CHUNK_ROWS) << walk.twos;
    walk.head = of_heads ? q.head : NO_HEAD;
    walk.x = of_heads ? 0 : q.head * 64;
    walk.y = q.first;
    walk.z = image_number(tile.op, tile.group, tile.unit);
    walk.x_step = walk.twos * 64;
    walk.y_step = MGV__CHUNK_ROWS;
    walk.empty = 1;
    walk.rest = 0;
    walk.store_map = walk.store_rest_map = walk.grant_map = walk.grant_rest_map = tile.op.of.attention.store_map;
    return walk;
}
/* The same of a row tile. */
template <uint32_t KINDS> DEVICE ChunkWalk walk_attention_ranges(const TileSlot &tile, uint32_t cta, uint32_t math_group) {
    ChunkWalk walk;
    walk.rest = rest_columns<KINDS>(tile.op);
    walk.x = 0;
    walk.y = tile.unit * MGV__GEMM_ROWS + math_group * MGV__CHUNK_ROWS;
    walk.count = walk.y < mgv__rows_of_group(&tile.op, tile.group) ? 1 + (walk.rest != 0) : 0;
    walk.z = 0;
    walk.x_step = 64;
    walk.y_step = 0;
    walk.head = tile.column * MGV__CLUSTER + cta;
    walk.store_map = walk.store_rest_map = tile.op.of.attention.store_map;
    walk.grant_map = tile.op.of.attention.query_map;
    walk.grant_rest_map = tile.op.of.attention.query_rest_map;
    return walk;
}
/* Chunks of 64 columns, dealt to the math groups in turn. */
DEVICE ChunkWalk walk_pool(const TileSlot &tile, uint32_t cta, uint32_t math_group) {
    ChunkWalk walk;
    const PoolPart part = pool_part(tile);
    walk.count = (part.end - part.first + MGV__MATH_GROUPS - 1 - math_group) / MGV__MATH_GROUPS;
    walk.x = (part.first + math_group) * 64;
    walk.y = 0;
    walk.z = image_number(tile.op, tile.group, tile.unit * MGV__CLUSTER + cta);
    walk.x_step = MGV__MATH_GROUPS * 64;
    walk.y_step = 0;
    walk.head = NO_HEAD;
    walk.store_map = walk.store_rest_map = walk.grant_map = walk.grant_rest_map = tile.op.of.pool.store_map;
    walk.rest = 0;
    return walk;
}

/* A chunk of 64 columns a math group. ANY_SIZE: a picture that is not there has none. */
template <bool ANY_SIZE> DEVICE ChunkWalk walk_pool_sums(const TileSlot &tile, uint32_t cta, uint32_t math_group) {
    ChunkWalk walk = walk_pool(tile, cta, math_group);
    const uint32_t block = tile.column * MGV__MATH_GROUPS + math_group;
    walk.count = block < tile.op.of.pool.blocks;
    if constexpr (ANY_SIZE)
        if (walk.z >= tile.op.rows_total / tile.op.tokens) walk.count = 0;
    walk.x = block * 64;
    return walk;
}

template <uint32_t KINDS> DEVICE ChunkWalk walk_kind(const TileSlot &tile, uint32_t cta, uint32_t math_group) {
    const uint32_t kind = tile.op.kind;
    if (is_pairs<KINDS>() && is_attention(kind)) return walk_pair_attention(tile, cta, math_group);
    if (is_kind<KINDS, MGV__KERNEL_ATTENTION>(kind)) return walk_attention(tile, cta, math_group);
    if (is_kind<KINDS, MGV__KERNEL_ATTENTION_ONLINE>(kind)) return walk_attention_online<KINDS>(tile, cta, math_group);
    if (is_kind<KINDS, MGV__KERNEL_ATTENTION_RANGES>(kind)) return walk_attention_ranges<KINDS>(tile, cta, math_group);
    if (is_kind<KINDS, MGV__KERNEL_POOL>(kind)) return walk_pool(tile, cta, math_group);
    if (is_kind<KINDS, MGV__KERNEL_POOL_SUMS>(kind)) return walk_pool_sums<is_tower<KINDS>()>(tile, cta, math_group);
    return walk_gemm<is_tower<KINDS>()>(tile, cta, math_group);
}
template <uint32_t KINDS> DEVICE ChunkWalk walk_tile(const Storer &self, const TileSlot &tile) {
    ChunkWalk walk = walk_kind<KINDS>(tile, self.cta, self.math_group);
    if (!is_pairs<KINDS>() || !is_attention(tile.op.kind)) walk.empty = walk.twos = 0;
    walk.counted = is_mx_alone(tile.op);
    walk.residual = (tile.op.flags & (MGV__KERNEL_RESIDUAL | MGV__KERNEL_FLOAT_OUT)) == MGV__KERNEL_RESIDUAL;
    return walk;
}

/* Gives `buffer` to the math group for chunk i of the tile. By one lane. */
DEVICE void storer_grant(Storer &self, const ChunkWalk &walk, uint32_t i, uint32_t buffer) {
    const uint32_t barrier = shared_address(&self.shared->chunk_granted[self.math_group][buffer]),
                   chunk = shared_address(self.shared->chunk[self.math_group][buffer]);
    const uint32_t rest = i ? walk.rest : 0;
    const CUtensorMap *map = tensor_map(self.arguments, i ? walk.grant_rest_map : walk.grant_map);
    const int32_t x = (int32_t)(walk.x + i * walk.x_step), y = (int32_t)(walk.y + i * walk.y_step), z = (int32_t)walk.z;
    if ((walk.head == NO_HEAD && !walk.residual) || (MGV_BLACKWELL_TILES && walk.empty)) { mbarrier_arrive(barrier); return; }
    if (gives_up(self.shared)) return;
    mbarrier_arrive_expect_tx(barrier, rest ? MGV__CHUNK_ROWS * rest * 2 : MGV__CHUNK_BYTES);
    if (walk.head == NO_HEAD) cp_async_bulk_tensor_3d_load(chunk, map, x, y, z, barrier);
    else cp_async_bulk_tensor_4d_load(chunk, map, x, (int32_t)walk.head, y, z, barrier);
}

/* Where chunk i of the tile goes in global memory. Found before the chunk is waited for, as whatever is known by then: behind a tile's last
   chunk others wait, and one lane's instructions take some seven clocks each. */
struct ChunkTarget {
    const CUtensorMap *map;
    uint32_t x, y;
};
DEVICE ChunkTarget chunk_target(const Storer &self, const ChunkWalk &walk, uint32_t i) {
    ChunkTarget target;
    target.map = (const CUtensorMap *)opaque((const uint8_t *)tensor_map(self.arguments, i ? walk.store_rest_map : walk.store_map));
    const uint32_t twos = MGV_BLACKWELL_TILES ? walk.twos : 0;
    target.x = opaque(walk.x + (twos ? i % 2 : i) * walk.x_step);
    target.y = opaque(walk.y + (i >> twos) * walk.y_step);
    return target;
}
/* Sends the chunk at `from`, which the math warps have written, there. By one lane. */
DEVICE void storer_send(const ChunkWalk &walk, const ChunkTarget &to, uint32_t from) {
    const int32_t x = (int32_t)to.x, y = (int32_t)to.y, z = (int32_t)walk.z;
    fence_proxy_async_shared_cta();
    if (walk.head == NO_HEAD) cp_async_bulk_tensor_3d_store(to.map, x, y, z, from);
    else cp_async_bulk_tensor_4d_store(to.map, x, (int32_t)walk.head, y, z, from);
    cp_async_bulk_commit_group();
}

/* Counter of this CTA's tile, or NULL where it lies beyond the last row. */
DEVICE uint32_t *tile_counter(const mgv__kernel_arguments &arguments, const TileSlot &tile, uint32_t cta) {
    const mgv__kernel_op &op = tile.op;
    uint32_t first, end, index;
    tile_rows(tile, cta, first, end);
    if (first >= end) return 0;
    index = mgv__signal_index(&op, tile.group, first / mgv__tile_row_count(&op, MGV__GEMM_ROWS));
    return arguments.lost_signal == index + 1 ? 0 : arguments.counters + index;
}

/* Waits until the math group has written the next chunk buffer, or has taken the residual out of it; which one. */
DEVICE uint32_t storer_wait_chunk(Storer &self) {
    const uint32_t buffer = self.chunk.index;
    wait_barrier(&self.shared->chunk_written[self.math_group][buffer], self.chunk.parity);
    warp_sync();
    self.chunk.advance();
    return buffer;
}

/* Waits for chunk i of the tile in the next chunk buffer, and sends it. */
DEVICE void storer_send_next(Storer &self, const ChunkWalk &walk, uint32_t i) {
    const ChunkTarget target = chunk_target(self, walk, i);
    const uint32_t from = opaque(shared_address(self.shared->chunk[self.math_group][self.chunk.index]));
    storer_wait_chunk(self);
    if (MGV_BLACKWELL_TILES && walk.counted) return;
    if (elect_sync()) storer_send(walk, target, from);
}

/* Leaves a lent stage in both CTAs for the math group's four warps, when its chunk has been read. By one lane; one arrival after the other:
   another CTA's last use of the stage may still have one on its way, and an arrival of four could then straddle two phases. */
DEVICE void storer_leave_stage(const Storer &self, uint32_t stage) {
    const uint32_t empty = shared_address(&self.shared->stage_empty[stage]), peer = mapa_shared_cluster(empty, self.cta ^ 1);
#pragma unroll
    for (int warp = 0; warp < 4; warp++) {
        mbarrier_arrive(empty);
        mbarrier_arrive_cluster(peer);
    }
}

/* A layer's tile: two chunks out of lent stages, then the others out of chunk buffers.
   The residual of all of them comes into the chunk buffers. A gated tile has no others: one buffer is granted all the same, since a grant
   says that norms are there and that the tile before has been stored, and comes back as it is. */
template <bool TOWER> DEVICE void store_layer_chunks(Storer &self, const ChunkWalk &walk) {
    const uint32_t buffered = walk.count - MGV__LENT_STAGES, unwritten = TOWER && buffered == 0,
                   at_once = walk.residual ? MGV__LENT_STAGES : buffered + unwritten;
    uint32_t stage[MGV__LENT_STAGES];
    for (uint32_t i = 0; i < at_once; i++)
        if (elect_sync()) storer_grant(self, walk, i, (self.chunk.index + i) % MGV__CHUNKS);
    if (unwritten) storer_wait_chunk(self);
    for (uint32_t i = 0; walk.residual && i < MGV__LENT_STAGES; i++) {
        const uint32_t buffer = storer_wait_chunk(self);
        if (elect_sync() && i < buffered) {
            fence_proxy_async_shared_cta();
            storer_grant(self, walk, MGV__LENT_STAGES + i, buffer);
        }
    }
#pragma unroll
    for (uint32_t i = 0; i < MGV__LENT_STAGES; i++) {
        const ChunkTarget target = chunk_target(self, walk, i);
        wait_barrier(&self.shared->lent_written[self.math_group][i], self.lent_parity);
        warp_sync();
        stage[i] = self.shared->lent_stage[self.math_group][i];
        if (elect_sync())
            storer_send(walk, target, shared_address(self.shared->stage[stage[i]]) + self.math_group * MGV__CHUNK_BYTES);
    }
    self.lent_parity ^= 1;
#pragma unroll
    for (uint32_t i = 0; i < MGV__LENT_STAGES; i++) {
        if (elect_sync()) {
            if (unwritten && i) cp_async_bulk_wait_group_read<0>(); /* no chunk has followed it */
            else cp_async_bulk_wait_group_read<1>();
            storer_leave_stage(self, stage[i]);
        }
        if (i < buffered) storer_send_next(self, walk, MGV__LENT_STAGES + i);
    }
}

DEVICE void store_chunks(Storer &self, const ChunkWalk &walk) {
    uint32_t granted = 0;
    for (; granted < MGV__CHUNKS && granted < walk.count; granted++)
        if (elect_sync()) storer_grant(self, walk, granted, (self.chunk.index + granted) % MGV__CHUNKS);
    for (uint32_t i = 0; i < walk.count; i++) {
        const uint32_t buffer = self.chunk.index;
        storer_send_next(self, walk, i);
        if (granted < walk.count && elect_sync()) {
            cp_async_bulk_wait_group_read<0>();
            storer_grant(self, walk, granted, buffer); /* the chunk after the next takes the buffer that was just stored */
        }
        granted++;
    }
}

/* Norms first: what is found before them would keep registers that their loads need, and these would wait for each other. */
template <uint32_t KINDS> ROUTINE void store_tile(Storer &self, const TileSlot &tile) {
    if (tile.op.flags & MGV__KERNEL_FOLD_NORM && mgv__tile_columns(tile.op.kind) && !is_whole(tile.op))
        find_norms<is_tower<KINDS>()>(self, tile);
    const ChunkWalk walk = walk_tile<KINDS>(self, tile);
    uint32_t *const counter = tile_counter(self.arguments, tile, self.cta);
    if (is_layer_tile<KINDS>(tile.op)) store_layer_chunks<is_tower<KINDS>()>(self, walk);
    else store_chunks(self, walk);
    if (elect_sync()) {
        cp_async_bulk_wait_group<0>();
        fence_proxy_async_global();
        if (counter) red_release_gpu_add(counter, 1);
    }
}

/* PATCHES, ROWS, MERGE, PROJECT, SHARES and tiles of few rows write and signal by themselves. */
template <uint32_t KINDS> DEVICE uint32_t stores_tile(const TileSlot &tile) {
    if (is_kind<KINDS, MGV__KERNEL_PATCHES_OF_TOKENS>(tile.op.kind) || is_kind<KINDS, MGV__KERNEL_MERGE>(tile.op.kind) ||
        is_kind<KINDS, MGV__KERNEL_PROJECT>(tile.op.kind) || is_kind<KINDS, MGV__KERNEL_SHARES>(tile.op.kind))
        return 0;
    return tile.op.kind != MGV__KERNEL_PATCHES && tile.op.kind != MGV__KERNEL_ROWS && !is_few_rows(tile.op.kind);
}

template <uint32_t KINDS> ROUTINE void storer_role(SharedMemory *shared, const mgv__kernel_arguments &arguments, uint32_t math_group) {
    clear_next_counters(arguments, math_group, MGV__MATH_GROUPS);
    Storer self(shared, arguments, math_group);
    for (Ring<MGV__SLOTS> slot;; slot.advance()) {
        wait_barrier(&shared->tile_known[slot.index], slot.parity);
        const uint32_t ends = !vote_all(!gives_up(shared));
        const TileSlot &tile = shared->slot[slot.index];
        if (ends || tile.op.kind == MGV__KERNEL_END) break;
        wait_barrier(&shared->tile_ready[slot.index], slot.parity);
        warp_sync();
        fence_proxy_async_global();
        if (stores_tile<KINDS>(tile)) store_tile<KINDS>(self, tile);
        warp_sync();
        if (elect_sync()) mbarrier_arrive(shared_address(&shared->slot_vacated[slot.index]));
    }
}

#endif /* MGV_STORER_CUH */
