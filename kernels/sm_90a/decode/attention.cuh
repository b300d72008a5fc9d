/* megavit: decoding, attention of one id over the keys that its session holds.

   Keys of a head are shared out in segments, for all heads of queries that share it. How many there are hangs on the number of keys alone
   (mgv__decode_segment), what each of them gives is joined behind it. A unit is those segments of a head, one behind the other, that come
   to a CTA. Keys and values of earlier ids come from memory into registers before q does; the id's own are normed and turned by the unit
   of the last segment, which also appends them to the cache. */
#ifndef MGV_DECODE_ATTENTION_CUH
#define MGV_DECODE_ATTENTION_CUH

#include "product.cuh"

struct DecodeUnit {
    uint32_t session, layer, head, segment, segments; /* segment: its first one, of `segments` */
    uint32_t length;          /* keys of a segment */
    uint32_t first, end, own; /* keys; the id's own, which is not in memory yet */
};

DEVICE uint16_t *decode_cache(const mgv__decode_arguments &a, uint16_t *from, const DecodeUnit &unit, uint32_t key) {
    return from + (((uint64_t)unit.layer * a.key_heads + unit.head) * a.session[unit.session].capacity + key) * MGV__DECODE_HEAD_DIM;
}

/* Keys that a half of a warp takes in a round, STEP apart. */
template <int HEADS> struct DecodeKeys {
    enum { STEP = 2 * MGV__DECODE_ATTENTION_WARPS, COUNT = HEADS > 2 ? 2 : 4, ROUND = STEP * COUNT };
    uint32_t key[COUNT][4], value[COUNT][4];
};

/* Lane 16 h + l has columns 8 l to 8 l + 7 of keys first + 2 warp + h + STEP i. */
template <int HEADS> DEVICE void decode_load_keys(const Decoder &self, const DecodeUnit &unit, uint32_t first, DecodeKeys<HEADS> &keys) {
    const mgv__decode_arguments &a = self.arguments;
    const mgv__decode_session &session = a.session[unit.session];
#pragma unroll
    for (uint32_t i = 0; i < DecodeKeys<HEADS>::COUNT; i++) {
        const uint32_t at = first + i * DecodeKeys<HEADS>::STEP + self.warp * 2 + self.lane / 16, column = self.lane % 16 * 8;
        uint32_t *const k = keys.key[i], *const v = keys.value[i];
        const uint32_t there = at < unit.end && at != unit.own;
        ld_relaxed_gpu_v4u32_if(decode_cache(a, session.keys, unit, at) + column, k[0], k[1], k[2], k[3], there);
        ld_relaxed_gpu_v4u32_if(decode_cache(a, session.values, unit, at) + column, v[0], v[1], v[2], v[3], there);
    }
}

/* Heads of this unit in the order of `raw`: queries, then, of the last segment, key and value. */
DEVICE uint32_t decode_raw_head(const mgv__decode_arguments &a, const DecodeUnit &unit, uint32_t i) {
    const uint32_t group = a.heads / a.key_heads;
    if (i < group) return unit.head * group + i;
    return a.heads + (i - group) * a.key_heads + unit.head;
}

/* Thread t has column t of each head. In a layer's first unit a lane of each warp looks first, then all. */
template <int HEADS> DEVICE void decode_gather_raw(Decoder &self, const DecodeUnit &unit, uint32_t again) {
    const mgv__decode_arguments &a = self.arguments;
    static_assert(MGV__DECODE_HEAD_DIM == 32 * MGV__DECODE_ATTENTION_WARPS, "a thread for each column");
    const uint32_t own = unit.own < unit.end, tag = decode_tag(self, unit.layer);
    const uint64_t *const words = a.qkv + unit.session * (a.heads + 2 * a.key_heads) * MGV__DECODE_HEAD_DIM + self.thread;
    uint32_t value[HEADS + 2];
    if (!again)
        decode_wait(self, MGV__DECODE_QKVS, [&]() {
            uint32_t x, y;
            return ld_relaxed_gpu_words_if(words + decode_raw_head(a, unit, 0) * MGV__DECODE_HEAD_DIM, tag, x, y, self.lane == 0);
        });
    decode_wait(self, MGV__DECODE_QKVS, [&]() {
        uint32_t all = 1;
#pragma unroll
        for (uint32_t i = 0; i < HEADS + 2; i++) /* where key and value are not wanted, a query stands for them */
            all &= ld_relaxed_gpu_word(words + decode_raw_head(a, unit, i < HEADS || own ? i : 0) * MGV__DECODE_HEAD_DIM, tag, value[i]);
        return all;
    });
    if (self.gone) return;
#pragma unroll
    for (uint32_t i = 0; i < HEADS + 2; i++) self.shared->raw[i * MGV__DECODE_HEAD_DIM + self.thread] = __uint_as_float(value[i]);
}

/* What turns and scales a head, loaded before the head is there: lane l has columns l, l + 32, l + 64, l + 96. */
struct DecodeTurn {
    float gamma[2][4], cosine[2], sine[2]; /* of queries, of keys */
};
DEVICE void decode_load_turn(const Decoder &self, const DecodeUnit &unit, DecodeTurn &turn) {
    const mgv__decode_arguments &a = self.arguments;
    const float *const gamma = a.vectors + unit.layer * mgv__decode_vectors(&a) + 2 * a.width;
    const float *const rotary = a.rotary + (uint64_t)(self.step * a.sessions + unit.session) * MGV__DECODE_HEAD_DIM;
#pragma unroll
    for (uint32_t i = 0; i < 8; i++)
        turn.gamma[i / 4][i % 4] = ld_global_nc_f32(gamma + i / 4 * MGV__DECODE_HEAD_DIM + self.lane + 32 * (i % 4));
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) ld_global_nc_v2f32(rotary + (self.lane + 32 * i) * 2, turn.cosine[i], turn.sine[i]);
}

/* A key or a value, rounded: into the cache, and where this unit reads it. */
DEVICE void decode_append(Decoder &self, const DecodeUnit &unit, uint32_t which, const float (&x)[4]) {
    const mgv__decode_session &session = self.arguments.session[unit.session];
    uint16_t *const row = decode_cache(self.arguments, which ? session.values : session.keys, unit, unit.own);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        const float other = shfl_bfly_f32(x[i], 1);
        const uint32_t column = self.lane + 32 * i, pair = cvt_rn_bf16x2(x[i], other);
        if (self.lane % 2) continue;
        self.shared->fresh[which][column / 2] = pair;
        st_global_u32(row + column, pair);
    }
}

/* One head of `raw`: RMSNorm, rotary, and of queries the scale of scores. The value stays as it is. */
DEVICE void decode_turn_head(Decoder &self, const DecodeUnit &unit, uint32_t head, uint32_t heads, const DecodeTurn &turn) {
    float x[4], square = 0;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        x[i] = self.shared->raw[head * MGV__DECODE_HEAD_DIM + self.lane + 32 * i];
        square += x[i] * x[i];
    }
    if (head == heads + 1) {
        decode_append(self, unit, 1, x);
        return;
    }
#pragma unroll
    for (uint32_t i = 16; i > 0; i /= 2) square += shfl_bfly_f32(square, i);
    const float scale = 1 / sqrtf(square / (float)MGV__DECODE_HEAD_DIM + self.arguments.epsilon);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) x[i] *= scale * (head == heads ? turn.gamma[1][i] : turn.gamma[0][i]);
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        const float low = x[i], high = x[i + 2];
        x[i] = low * turn.cosine[i] - high * turn.sine[i];
        x[i + 2] = high * turn.cosine[i] + low * turn.sine[i];
    }
    if (head == heads) {
        decode_append(self, unit, 0, x);
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        self.shared->query[head * MGV__DECODE_HEAD_DIM + self.lane + 32 * i] = x[i] * self.arguments.scale;
}
DEVICE void decode_turn(Decoder &self, const DecodeUnit &unit, uint32_t heads, const DecodeTurn &turn) {
#pragma unroll 1
    for (uint32_t head = self.warp; head < heads + (unit.own < unit.end ? 2 : 0); head += MGV__DECODE_ATTENTION_WARPS)
        decode_turn_head(self, unit, head, heads, turn);
}

/* What a half of a warp has added up: for each head the largest score, the sum of weights, eight columns of the weighted values. */
template <int HEADS> struct DecodeSoftmax {
    float largest[HEADS], weight[HEADS], sum[HEADS][8];
};

DEVICE void decode_widen(const uint32_t (&pairs)[4], float (&x)[8]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        x[2 * i] = bf16_low(pairs[i]);
        x[2 * i + 1] = bf16_high(pairs[i]);
    }
}

template <int HEADS>
DEVICE void decode_take_keys(const Decoder &self, const DecodeUnit &unit, uint32_t first, DecodeKeys<HEADS> &keys,
                             const float (&query)[HEADS][8], DecodeSoftmax<HEADS> &softmax) {
    enum { COUNT = DecodeKeys<HEADS>::COUNT };
    float score[COUNT][HEADS];
#pragma unroll
    for (uint32_t i = 0; i < COUNT; i++) {
        const uint32_t at = first + i * DecodeKeys<HEADS>::STEP + self.warp * 2 + self.lane / 16;
        float x[8];
        if (at == unit.own)
#pragma unroll
            for (uint32_t k = 0; k < 4; k++) {
                keys.key[i][k] = self.shared->fresh[0][self.lane % 16 * 4 + k];
                keys.value[i][k] = self.shared->fresh[1][self.lane % 16 * 4 + k];
            }
        decode_widen(keys.key[i], x);
#pragma unroll
        for (uint32_t h = 0; h < HEADS; h++) {
            float s = 0;
#pragma unroll
            for (uint32_t k = 0; k < 8; k++) s += x[k] * query[h][k];
#pragma unroll
            for (uint32_t k = 8; k > 0; k /= 2) s += shfl_bfly_f32(s, k);
            score[i][h] = at < unit.end ? s : -INFINITY;
        }
    }
#pragma unroll
    for (uint32_t h = 0; h < HEADS; h++) {
        float largest = softmax.largest[h];
#pragma unroll
        for (uint32_t i = 0; i < COUNT; i++) largest = fmaxf(largest, score[i][h]);
        const float shrink = ex2_approx(softmax.largest[h] - largest);
        softmax.largest[h] = largest;
        softmax.weight[h] *= shrink;
#pragma unroll
        for (uint32_t k = 0; k < 8; k++) softmax.sum[h][k] *= shrink;
#pragma unroll
        for (uint32_t i = 0; i < COUNT; i++) softmax.weight[h] += score[i][h] = ex2_approx(score[i][h] - largest);
    }
#pragma unroll
    for (uint32_t i = 0; i < COUNT; i++) {
        float x[8];
        decode_widen(keys.value[i], x);
#pragma unroll
        for (uint32_t h = 0; h < HEADS; h++)
#pragma unroll
            for (uint32_t k = 0; k < 8; k++) softmax.sum[h][k] += score[i][h] * x[k];
    }
}

/* The halves of a warp together, then into shared memory. */
template <int HEADS> DEVICE void decode_leave_sums(const Decoder &self, const DecodeSoftmax<HEADS> &softmax) {
#pragma unroll
    for (uint32_t h = 0; h < HEADS; h++) {
        const float other = shfl_bfly_f32(softmax.largest[h], 16), largest = fmaxf(softmax.largest[h], other);
        const float shrink = ex2_approx(softmax.largest[h] - largest);
        float weight = softmax.weight[h] * shrink;
        weight += shfl_bfly_f32(weight, 16);
#pragma unroll
        for (uint32_t k = 0; k < 8; k++) {
            float sum = softmax.sum[h][k] * shrink;
            sum += shfl_bfly_f32(sum, 16);
            if (self.lane < 16) self.shared->attended[self.warp][h * MGV__DECODE_HEAD_DIM + self.lane * 8 + k] = sum;
        }
        if (self.lane == 0) {
            self.shared->weight[self.warp][h][0] = largest;
            self.shared->weight[self.warp][h][1] = weight;
        }
    }
}

/* All warps together, in their order, column `place` of the heads. One segment's are what attention gives, of more parts of it. */
template <int HEADS> DEVICE void decode_put_column(const Decoder &self, const DecodeUnit &unit, uint32_t segment, uint32_t place) {
    const mgv__decode_arguments &a = self.arguments;
    const uint32_t head = place / MGV__DECODE_HEAD_DIM, column = place % MGV__DECODE_HEAD_DIM, tag = decode_tag(self, unit.layer);
    float largest = -INFINITY, weight = 0, sum = 0;
#pragma unroll
    for (uint32_t i = 0; i < MGV__DECODE_ATTENTION_WARPS; i++) largest = fmaxf(largest, self.shared->weight[i][head][0]);
#pragma unroll
    for (uint32_t i = 0; i < MGV__DECODE_ATTENTION_WARPS; i++) {
        const float shrink = ex2_approx(self.shared->weight[i][head][0] - largest);
        weight += self.shared->weight[i][head][1] * shrink;
        sum += self.shared->attended[i][place] * shrink;
    }
    if (unit.segments == 1) {
        decode_put_pair(self, MGV__DECODE_ATTENDED, a.attended + unit.session * (a.heads * (MGV__DECODE_HEAD_DIM / 2)),
                        unit.head * HEADS * MGV__DECODE_HEAD_DIM + place, sum / weight, 1, tag);
        return;
    }
    uint64_t *const words = a.parts + ((uint64_t)(unit.session * a.key_heads + unit.head) * MGV__DECODE_SEGMENTS + segment) *
                                          (HEADS * (MGV__DECODE_HEAD_DIM + 2));
    decode_put(self, MGV__DECODE_PARTS, words + place, __float_as_uint(sum), tag);
    if (column < 2)
        decode_put(self, MGV__DECODE_PARTS, words + HEADS * MGV__DECODE_HEAD_DIM + head * 2 + column,
                   __float_as_uint(column ? weight : largest), tag);
}

template <int HEADS> DEVICE void decode_begin_segment(DecodeSoftmax<HEADS> &softmax) {
#pragma unroll
    for (uint32_t h = 0; h < HEADS; h++) {
        softmax.largest[h] = -1e30f;
        softmax.weight[h] = 0;
#pragma unroll
        for (uint32_t k = 0; k < 8; k++) softmax.sum[h][k] = 0;
    }
}
/* 1: the CTA gives up. */
template <int HEADS>
DEVICE uint32_t decode_end_segment(Decoder &self, const DecodeUnit &unit, uint32_t segment, const DecodeSoftmax<HEADS> &softmax) {
    if (segment > unit.segment && decode_sync_attention(self)) return 1; /* all have read the sums of the one before */
    decode_leave_sums(self, softmax);
    if (decode_sync_attention(self)) return 1;
#pragma unroll 1
    for (uint32_t place = self.thread; place < HEADS * MGV__DECODE_HEAD_DIM; place += 32 * MGV__DECODE_ATTENTION_WARPS)
        decode_put_column<HEADS>(self, unit, segment, place);
    return 0;
}

/* 1: the CTA gives up. */
template <int HEADS> DEVICE uint32_t decode_attention_unit(Decoder &self, const DecodeUnit &unit, uint32_t again) {
    enum { ROUND = DecodeKeys<HEADS>::ROUND };
    static_assert(MGV__DECODE_SEGMENT_KEYS % (2 * ROUND) == 0, "a segment ends with a pair of rounds");
    DecodeKeys<HEADS> keys[2]; /* one round's are on their way while the other's are used, also of the next segment */
    DecodeTurn turn;
    decode_load_turn(self, unit, turn);
    decode_load_keys(self, unit, unit.first, keys[0]);
    decode_load_keys(self, unit, unit.first + ROUND, keys[1]);
    decode_gather_raw<HEADS>(self, unit, again);
    if (decode_sync_attention(self)) return 1;
    decode_turn(self, unit, HEADS, turn);
    if (decode_sync_attention(self)) return 1;
    float query[HEADS][8];
    DecodeSoftmax<HEADS> softmax;
#pragma unroll
    for (uint32_t h = 0; h < HEADS; h++)
#pragma unroll
        for (uint32_t k = 0; k < 8; k++) query[h][k] = self.shared->query[h * MGV__DECODE_HEAD_DIM + self.lane % 16 * 8 + k];
    uint32_t segment = unit.segment, end = unit.first + unit.length;
    decode_begin_segment(softmax);
#pragma unroll 1
    for (uint32_t first = unit.first; first < unit.end; first += 2 * ROUND) {
        decode_take_keys(self, unit, first, keys[0], query, softmax);
        decode_load_keys(self, unit, first + 2 * ROUND, keys[0]);
        if (first + ROUND < unit.end) {
            decode_take_keys(self, unit, first + ROUND, keys[1], query, softmax);
            decode_load_keys(self, unit, first + 3 * ROUND, keys[1]);
        }
        if (first + 2 * ROUND < min(end, unit.end)) continue;
        if (decode_end_segment(self, unit, segment, softmax)) return 1;
        decode_begin_segment(softmax);
        segment++;
        end += unit.length;
    }
    return 0;
}

/* Segments together: 32 columns of a head, a lane each, by one warp, which waits for no other one of its CTA. Lane s has the largest score
   and the weights of segment s. */
DEVICE void decode_join_unit(Decoder &self, uint32_t session, uint32_t layer, uint32_t head, uint32_t columns, uint32_t segments) {
    const mgv__decode_arguments &a = self.arguments;
    const uint32_t group = a.heads / a.key_heads, tag = decode_tag(self, layer), pitch = group * (MGV__DECODE_HEAD_DIM + 2);
    const uint64_t *const words = a.parts + (uint64_t)(session * a.key_heads + head / group) * MGV__DECODE_SEGMENTS * pitch;
    const uint64_t *const sums = words + head % group * MGV__DECODE_HEAD_DIM + columns + self.lane;
    const uint64_t *const weights = words + group * MGV__DECODE_HEAD_DIM + head % group * 2;
    uint32_t sum[MGV__DECODE_SEGMENTS], score, weight;
    decode_wait(self, MGV__DECODE_PARTS, [&]() {
        uint32_t all = ld_relaxed_gpu_words_if(weights + self.lane * pitch, tag, score, weight, self.lane < segments);
#pragma unroll
        for (uint32_t i = 0; i < MGV__DECODE_SEGMENTS; i++)
            all &= ld_relaxed_gpu_word_if(sums + i * pitch, tag, sum[i], i < segments);
        return all;
    });
    if (self.gone) return;
    warp_sync(); /* what all lanes have read may be written anew behind what any of them puts */
    float most = self.lane < segments ? __uint_as_float(score) : -INFINITY, weights_of_all = 0, all = 0;
#pragma unroll
    for (uint32_t i = 16; i > 0; i /= 2) most = fmaxf(most, shfl_bfly_f32(most, i));
    const float own = ex2_approx(__uint_as_float(score) - most);
#pragma unroll
    for (uint32_t i = 0; i < MGV__DECODE_SEGMENTS; i++) {
        if (i >= segments) break;
        const float shrink = __uint_as_float(shfl_idx_u32(__float_as_uint(own), i));
        weights_of_all += __uint_as_float(shfl_idx_u32(weight, i)) * shrink;
        all += __uint_as_float(sum[i]) * shrink;
    }
    decode_put_pair(self, MGV__DECODE_ATTENDED, a.attended + session * (a.heads * (MGV__DECODE_HEAD_DIM / 2)),
                    head * MGV__DECODE_HEAD_DIM + columns + self.lane, all / weights_of_all, 1, tag);
}

DEVICE uint32_t decode_keys_of(const Decoder &self, uint32_t session) { return self.arguments.session[session].position + self.step + 1; }
DEVICE uint32_t decode_segments_of(const Decoder &self, uint32_t session) {
    const uint32_t keys = decode_keys_of(self, session);
    return mgv__ceil_div(keys, decode_segment(keys));
}

/* Units are dealt one behind the other, session after session: this CTA's first of `units`, where `before` have been dealt. */
DEVICE uint32_t decode_first_unit(uint32_t before) { return (blockIdx.x + gridDim.x - before % gridDim.x) % gridDim.x; }

/* Segments of all sessions and heads stand one behind the other, and each CTA has as many of them: so it finds queries once for several. */
template <int HEADS> DEVICE uint32_t decode_attention(Decoder &self, uint32_t layer) {
    const mgv__decode_arguments &a = self.arguments;
    uint32_t all = 0, before = 0, again = 0;
#pragma unroll 1
    for (uint32_t session = 0; session < a.sessions; session++)
        if (self.alive >> session & 1) all += a.key_heads * decode_segments_of(self, session);
    const uint32_t begin = mgv__decode_first(all, blockIdx.x, gridDim.x), end = mgv__decode_first(all, blockIdx.x + 1, gridDim.x);
#pragma unroll 1
    for (uint32_t session = 0; session < a.sessions; session++) {
        if (!(self.alive >> session & 1)) continue;
        const uint32_t keys = decode_keys_of(self, session), length = decode_segment(keys), segments = decode_segments_of(self, session);
        const uint32_t behind = before + a.key_heads * segments;
#pragma unroll 1
        for (uint32_t i = max(begin, before); i < min(end, behind);) {
            const uint32_t head = (i - before) / segments, segment = i - before - head * segments;
            const uint32_t count = min(segments - segment, end - i);
            const DecodeUnit unit = {session, layer, head, segment, segments, length,
                                     segment * length, min(keys, (segment + count) * length), keys - 1};
            if (decode_attention_unit<HEADS>(self, unit, again++)) return 1;
            i += count;
        }
        before = behind;
    }
    return 0;
}

/* A warp that gives up tells the others where they meet next. */
DEVICE void decode_join(Decoder &self, uint32_t layer) {
    enum { UNITS = MGV__DECODE_HEAD_DIM / 32 }; /* of a head */
    const mgv__decode_arguments &a = self.arguments;
    uint32_t before = 0, number = 0;
#pragma unroll 1
    for (uint32_t session = 0; session < a.sessions; session++) {
        if (!(self.alive >> session & 1)) continue;
        const uint32_t keys = decode_keys_of(self, session), segments = mgv__ceil_div(keys, decode_segment(keys));
        if (segments == 1) continue;
#pragma unroll 1
        for (uint32_t i = decode_first_unit(before); i < a.heads * UNITS; i += gridDim.x)
            if (number++ % MGV__DECODE_ATTENTION_WARPS == self.warp)
                decode_join_unit(self, session, layer, i / UNITS, i % UNITS * 32, segments);
        before += a.heads * UNITS;
    }
}

#endif /* MGV_DECODE_ATTENTION_CUH */
