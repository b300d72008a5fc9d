/* megavit: attention of 128 queries of one head where pictures of any size lie one behind the other: as attention_online, over the keys of
   ranges.cuh. A row takes of a block what its own range has there, and where that is nothing the block leaves it as it was. */
#ifndef MGV_ATTENTION_RANGES_CUH
#define MGV_ATTENTION_RANGES_CUH

#include "attention_online.cuh"

/* Of a thread's two rows, `row` and `row` + 8: how many of the first keys of the walk's block are theirs. */
DEVICE void range_left(const KeyWalk &walk, uint32_t row, uint32_t (&left)[2]) {
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) {
        const uint32_t own = row + 8 * r;
        left[r] = own >= walk.first && own < walk.behind ? walk.behind - walk.row : 0;
    }
}
/* Scores of other keys become 0. */
template <int COUNT>
DEVICE void range_softmax(float (&s)[COUNT], const uint32_t (&left)[2], uint32_t lane, RunningSoftmax &running, float (&scale)[2]) {
    const uint32_t column = 2 * (lane % 4);
    if (mgv__min_u32(left[0], left[1]) < 2 * COUNT) {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (i / 4 * 8 + column + i % 2 >= left[i / 2 & 1]) s[i] = -INFINITY;
    }
    online_exponentials<true>(s, running, scale);
}

/* The block's keys are none of this math group's rows'. */
DEVICE void range_let_pass(Math &self) {
    math_wait_stage(self, self.stage);
    warp_sync(); /* lane 0 leaves for the warp: no lane may still be looking */
    math_leave_stage(self, self.stage.index);
    self.stage.advance();
}

/* Rows [first, end) of queries, whose keys begin with the walk's block. Returns whether there are blocks behind theirs, where the walk is
   then. As in online_block the last block's softmax and products are outside of the loop. */
template <int REST> DEVICE bool range_block(Math &self, KeyWalk &walk, uint32_t first, uint32_t end) {
    constexpr int KEYS = online_keys<REST>();
    const uint32_t row = first + self.warp * 16 + self.lane / 4;
    RunningSoftmax running = {{-INFINITY, -INFINITY}, {0, 0}};
    float s[KEYS / 2], o[32], o_rest[REST ? REST / 2 : 1], scale[2];
    uint32_t p[KEYS / 4], left[2];
    Ring<MGV__STAGES> values = self.stage; /* whose values are multiplied next; self.stage: whose keys are */
    bool more;
    const OnlineQueries queries = online_queries<REST>(self);
    online_begin<REST>(self, queries, s, o, o_rest);
    range_left(walk, row, left);
    wgmma_wait_group<0>();
    wgmma_registers_fence(s);
#pragma unroll 1
    while ((more = next_keys<KEYS>(walk)) && walk.first < end) {
        range_softmax(s, left, self.lane, running, scale);
        online_merge<REST>(s, scale, p, o, o_rest);
        range_left(walk, row, left);
        online_next<REST>(self, values, queries, p, s, o, o_rest);
    }
    range_softmax(s, left, self.lane, running, scale);
    online_merge<REST>(s, scale, p, o, o_rest);
    online_end<REST>(self, values, running, p, o, o_rest);
    return more;
}

template <int REST> ROUTINE void attention_ranges_tile(Math &self, const TileSlot &tile) {
    constexpr int KEYS = online_keys<REST>();
    KeyWalk walk = key_walk(self.arguments, tile);
    const uint32_t first = walk.query + self.group * MGV__CHUNK_ROWS, end = mgv__min_u32(first + MGV__CHUNK_ROWS, walk.end);
    bool more = true;
#pragma unroll 1
    while (more && walk.behind <= first) {
        range_let_pass(self);
        more = next_keys<KEYS>(walk);
    }
    if (more) more = range_block<REST>(self, walk, first, end);
#pragma unroll 1
    for (; more; more = next_keys<KEYS>(walk)) range_let_pass(self);
}

#endif /* MGV_ATTENTION_RANGES_CUH */
