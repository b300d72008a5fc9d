/* megavit: decoding, attention of one id over the keys that its session holds.

   Keys of a head are shared out in segments, for all heads of queries that share it. How many there are hangs on the number of keys alone
   (mgv__decode_segment), what each of them gives is joined behind it. A unit is those segments of a head, one behind the other, that come
   to a CTA. Keys and values of earlier ids are asked for before q comes; the id's own are normed and turned by the unit of the last
   segment, which also appends them to the cache. Scores and weighted values are products of tensor cores, for which queries and weights
   are two bf16 each: so they lose little more than in float32. */
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

/* Keys and values that a warp takes in a round: 16, as A and B of m16n8k16 have them, so that they go from memory to products without
   a shuffle. Lane 4 g + t has of keys g and g + 8 columns 32 p + 8 t to + 7: what products count as columns 2 t, 2 t + 1, 2 t + 8 and
   2 t + 9 of fragments 2 p and 2 p + 1. Of values it has keys 2 t, 2 t + 1, 2 t + 8 and 2 t + 9, columns 64 h + 8 g to + 7. */
struct DecodeKeys {
    enum { COUNT = 16, ROUND = MGV__DECODE_ATTENTION_WARPS * COUNT };
    uint32_t key[2][4][4], value[2][4][4]; /* [key, p], [h, key] */
};
DEVICE uint32_t decode_key_of_value(uint32_t lane, uint32_t i) { return lane % 4 * 2 + i % 2 + i / 2 * 8; }

/* What of a unit this lane reads, from a round on. The id's own key and value are not in memory yet; what is not there is zero. */
struct DecodeSource {
    const uint16_t *keys, *values; /* where the round's are */
    uint32_t key, value;           /* which ones: g and 2 t of the warp's 16 */
    uint32_t kept;                 /* keys in memory, up to the unit's end */
};
DEVICE DecodeSource decode_source(const Decoder &self, const DecodeUnit &unit) {
    const mgv__decode_session &session = self.arguments.session[unit.session];
    const uint32_t first = unit.first + self.warp * DecodeKeys::COUNT;
    DecodeSource source;
    source.key = first + self.lane / 4;
    source.value = first + decode_key_of_value(self.lane, 0);
    source.keys = decode_cache(self.arguments, session.keys, unit, source.key) + self.lane % 4 * 8;
    source.values = decode_cache(self.arguments, session.values, unit, source.value) + self.lane / 4 * 8;
    source.kept = min(unit.end, unit.own);
    return source;
}
DEVICE void decode_load_keys(DecodeSource &source, DecodeKeys &keys) {
#pragma unroll
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t *const k = keys.key[i / 4][i % 4];
        ld_relaxed_gpu_v4u32_if(source.keys + i / 4 * 8 * MGV__DECODE_HEAD_DIM + i % 4 * 32, k[0], k[1], k[2], k[3],
                                source.key + i / 4 * 8 < source.kept);
    }
    source.key += DecodeKeys::ROUND;
    source.keys += DecodeKeys::ROUND * MGV__DECODE_HEAD_DIM;
}
DEVICE void decode_load_values(DecodeSource &source, DecodeKeys &keys) {
#pragma unroll
    for (uint32_t i = 0; i < 8; i++) {
        const uint32_t behind = i / 2 % 2 + i / 4 * 8;
        uint32_t *const v = keys.value[i % 2][i / 2];
        ld_relaxed_gpu_v4u32_if(source.values + behind * MGV__DECODE_HEAD_DIM + i % 2 * 64, v[0], v[1], v[2], v[3],
                                source.value + behind < source.kept);
    }
    source.value += DecodeKeys::ROUND;
    source.values += DecodeKeys::ROUND * MGV__DECODE_HEAD_DIM;
}
/* Into L2, by one thread: `count` keys and values that are read `behind` keys behind the round that comes next. So few that what others
   fetch leaves them there. */
enum { DECODE_AHEAD = 128 };
DEVICE void decode_fetch_ahead(const Decoder &self, const DecodeSource &source, uint32_t behind, uint32_t count) {
    if (self.thread || source.key + behind >= source.kept) return;
    const uint32_t bytes = min(count, source.kept - source.key - behind) * MGV__DECODE_HEAD_DIM * 2;
    cp_async_bulk_prefetch_L2(source.keys + behind * MGV__DECODE_HEAD_DIM, bytes);
    cp_async_bulk_prefetch_L2(source.values + behind * MGV__DECODE_HEAD_DIM, bytes);
}

/* The id's own ones, where this round has them. */
DEVICE void decode_take_own_key(const Decoder &self, const DecodeUnit &unit, uint32_t first, DecodeKeys &keys) {
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
        if (first + self.warp * DecodeKeys::COUNT + i * 8 + self.lane / 4 == unit.own)
#pragma unroll
            for (uint32_t k = 0; k < 16; k++) keys.key[i][k / 4][k % 4] = self.shared->fresh[0][k / 4 * 16 + self.lane % 4 * 4 + k % 4];
}
DEVICE void decode_take_own_value(const Decoder &self, const DecodeUnit &unit, uint32_t first, DecodeKeys &keys) {
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        if (first + self.warp * DecodeKeys::COUNT + decode_key_of_value(self.lane, i) == unit.own)
#pragma unroll
            for (uint32_t k = 0; k < 8; k++) keys.value[k / 4][i][k % 4] = self.shared->fresh[1][k / 4 * 32 + self.lane / 4 * 4 + k % 4];
}

/* Two numbers in bf16, and what is left of them. */
DEVICE uint32_t decode_part(float x, float y, uint32_t &rest) {
    const uint32_t whole = cvt_rn_bf16x2(x, y);
    rest = cvt_rn_bf16x2(x - bf16_low(whole), y - bf16_high(whole));
    return whole;
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

/* A query, scaled: of each two columns a word of bf16, then what it leaves of them. */
DEVICE void decode_leave_query(const Decoder &self, uint32_t head, const float (&x)[4]) {
    uint32_t *const to = self.shared->query + head * MGV__DECODE_HEAD_DIM + self.lane / 2 * 2;
#pragma unroll
    for (uint32_t p = 0; p < 4; p++) {
        const float own = x[p] * self.arguments.scale, other = shfl_bfly_f32(own, 1);
        uint32_t rest;
        const uint32_t whole = decode_part(own, other, rest);
        if (self.lane % 2) continue;
        to[p * 32] = whole;
        to[p * 32 + 1] = rest;
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
    decode_leave_query(self, head, x);
}
DEVICE void decode_turn(Decoder &self, const DecodeUnit &unit, uint32_t heads, const DecodeTurn &turn) {
#pragma unroll 1
    for (uint32_t head = self.warp; head < heads + (unit.own < unit.end ? 2 : 0); head += MGV__DECODE_ATTENTION_WARPS)
        decode_turn_head(self, unit, head, heads, turn);
}

/* What a warp has added up. Lane 4 g + t: the largest score of head g % HEADS, which is that of all t, and its own keys' weights; of
   columns 2 t and 2 t + 1 of B below columns 64 h + 8 g to + 7 of the weighted values: sum[h][i][k] is of value 2 i + k / 2, column
   k % 2. */
struct DecodeSoftmax {
    float largest, weight, sum[2][4][4];
};

/* Queries as A: row g is what bf16 has of head g % HEADS, row g + 8 what it leaves. So scores are as good as of float32, and cost as much
   as of bf16, for products have 16 rows. */
template <int HEADS>
DEVICE void decode_scores(const Decoder &self, const DecodeUnit &unit, uint32_t first, const DecodeKeys &keys, float (&score)[4]) {
    const uint32_t query = shared_address(self.shared->query + self.lane / 4 % HEADS * MGV__DECODE_HEAD_DIM + self.lane % 4 * 8);
    float d[2][2][4] = {};
#pragma unroll
    for (uint32_t p = 0; p < 4; p++) {
        uint32_t a[2][4];
        decode_load_fragment(a[0], query + p * 128);
        decode_load_fragment(a[1], query + p * 128 + 16);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t *const q = a[i / 2], *const k = &keys.key[i % 2][p][i / 2 * 2];
            mma_m16n8k16_bf16(d[i % 2][i / 2], q[0], q[1], q[2], q[3], k[0], k[1]);
        }
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t at = first + self.warp * DecodeKeys::COUNT + decode_key_of_value(self.lane, i);
        const float *const even = d[i / 2][0], *const odd = d[i / 2][1];
        score[i] = at < unit.end ? (even[i % 2] + odd[i % 2]) + (even[i % 2 + 2] + odd[i % 2 + 2]) : -INFINITY;
    }
}

/* Scores become weights. What has been added up is brought to the new largest score, where there is one. */
template <int HEADS> DEVICE void decode_weights(const Decoder &self, float (&score)[4], DecodeSoftmax &softmax) {
    float largest = fmaxf(fmaxf(score[0], score[1]), fmaxf(score[2], score[3]));
    largest = fmaxf(largest, shfl_bfly_f32(largest, 1));
    largest = fmaxf(largest, shfl_bfly_f32(largest, 2));
    largest = fmaxf(largest, softmax.largest);
    if (!vote_all(largest == softmax.largest)) {
        const float shrink = ex2_approx(softmax.largest - largest);
        softmax.largest = largest;
        softmax.weight *= shrink;
#pragma unroll
        for (uint32_t k = 0; k < 2; k++) {
            const float of = __uint_as_float(shfl_idx_u32(__float_as_uint(shrink), (self.lane % 4 * 2 + k) % HEADS * 4));
#pragma unroll
            for (uint32_t i = 0; i < 16; i++) softmax.sum[i / 8][i / 2 % 4][i % 2 * 2 + k] *= of;
        }
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) softmax.weight += score[i] = ex2_approx(score[i] - largest);
}

/* Weights as B, keys 16 by 8 columns: n < 4 is head n % HEADS, n + 4 what bf16 leaves of its weights. Values as A: 16 of their columns. */
DEVICE void decode_add_values(const Decoder &self, const DecodeKeys &keys, const float (&score)[4], DecodeSoftmax &softmax) {
    uint32_t b[2];
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t rest;
        b[i] = decode_part(score[2 * i], score[2 * i + 1], rest);
        if (self.lane >= 16) b[i] = rest;
    }
#pragma unroll
    for (uint32_t h = 0; h < 2; h++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t(*const v)[4] = keys.value[h];
            mma_m16n8k16_bf16(softmax.sum[h][i], lower_halves(v[0][i], v[1][i]), upper_halves(v[0][i], v[1][i]),
                              lower_halves(v[2][i], v[3][i]), upper_halves(v[2][i], v[3][i]), b[0], b[1]);
        }
}

/* Into shared memory: lanes of a quarter together, weights and what bf16 has left of them together. */
template <int HEADS> DEVICE void decode_leave_sums(const Decoder &self, const DecodeSoftmax &softmax) {
    const uint32_t g = self.lane / 4, t = self.lane % 4;
    float weight = softmax.weight + shfl_bfly_f32(softmax.weight, 1);
    weight += shfl_bfly_f32(weight, 2);
    if (t == 0 && g < HEADS) {
        self.shared->weight[self.warp][g][0] = softmax.largest;
        self.shared->weight[self.warp][g][1] = weight;
    }
    float *const to = self.shared->attended[self.warp] + t * 2 * MGV__DECODE_HEAD_DIM + g * 8;
#pragma unroll
    for (uint32_t i = 0; i < 32; i++) {
        const uint32_t h = i / 16, pair = i / 4 % 4, k = i % 4;
        const float sum = softmax.sum[h][pair][k] + shfl_bfly_f32(softmax.sum[h][pair][k], 2);
        if (t < HEADS / 2) to[k % 2 * MGV__DECODE_HEAD_DIM + h * 64 + pair * 2 + k / 2] = sum;
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

DEVICE void decode_begin_segment(DecodeSoftmax &softmax) {
    softmax.largest = -1e30f;
    softmax.weight = 0;
#pragma unroll
    for (uint32_t i = 0; i < 32; i++) softmax.sum[i / 16][i / 4 % 4][i % 4] = 0;
}
/* 1: the CTA gives up. */
template <int HEADS>
DEVICE uint32_t decode_end_segment(Decoder &self, const DecodeUnit &unit, uint32_t segment, const DecodeSoftmax &softmax) {
    if (segment > unit.segment && decode_sync_attention(self)) return 1; /* all have read the sums of the one before */
    decode_leave_sums<HEADS>(self, softmax);
    if (decode_sync_attention(self)) return 1;
#pragma unroll 1
    for (uint32_t place = self.thread; place < HEADS * MGV__DECODE_HEAD_DIM; place += 32 * MGV__DECODE_ATTENTION_WARPS)
        decode_put_column<HEADS>(self, unit, segment, place);
    return 0;
}

/* LATE: registers are not filled before q has come, only L2 is, which takes less where few sessions leave memory at rest (1 to 2%). 1: the
   CTA gives up. */
template <int HEADS, bool LATE> DEVICE uint32_t decode_attention_unit(Decoder &self, const DecodeUnit &unit, uint32_t again) {
    enum { ROUND = DecodeKeys::ROUND };
    static_assert(MGV__DECODE_SEGMENT_KEYS % ROUND == 0, "a segment ends with a round");
    DecodeKeys keys; /* each half of them is on its way while the other one is used, also of the next segment */
    DecodeTurn turn;
    decode_load_turn(self, unit, turn);
    DecodeSource source = decode_source(self, unit);
    if (LATE) decode_fetch_ahead(self, source, 0, ROUND + DECODE_AHEAD);
    if (!LATE) decode_load_keys(source, keys);
    if (!LATE) decode_load_values(source, keys);
    if (!LATE) decode_fetch_ahead(self, source, 0, DECODE_AHEAD);
    decode_gather_raw<HEADS>(self, unit, again);
    if (LATE) decode_load_keys(source, keys);
    if (LATE) decode_load_values(source, keys);
    if (decode_sync_attention(self)) return 1;
    decode_turn(self, unit, HEADS, turn);
    if (decode_sync_attention(self)) return 1;
    DecodeSoftmax softmax;
    uint32_t segment = unit.segment, end = unit.first + unit.length;
    decode_begin_segment(softmax);
#pragma unroll 1
    for (uint32_t first = unit.first; first < unit.end; first += ROUND) {
        const uint32_t own = unit.own - first < ROUND;
        float score[4];
        decode_fetch_ahead(self, source, DECODE_AHEAD, ROUND);
        if (own) decode_take_own_key(self, unit, first, keys);
        decode_scores<HEADS>(self, unit, first, keys, score);
        decode_load_keys(source, keys);
        decode_weights<HEADS>(self, score, softmax);
        if (own) decode_take_own_value(self, unit, first, keys);
        decode_add_values(self, keys, score, softmax);
        decode_load_values(source, keys);
        if (first + ROUND < min(end, unit.end)) continue;
        if (decode_end_segment<HEADS>(self, unit, segment, softmax)) return 1;
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

/* How many segments each session has in this step, eight bits each: found once for all layers. None where it has come to its end. */
DEVICE uint64_t decode_count_segments(const Decoder &self) {
    uint64_t counts = 0;
#pragma unroll 1
    for (uint32_t session = 0; session < self.arguments.sessions; session++) {
        const uint32_t keys = decode_keys_of(self, session);
        if (!(self.alive >> session & 1)) continue;
        counts |= (uint64_t)mgv__ceil_div(keys, decode_segment(keys)) << session * 8;
    }
    return counts;
}
DEVICE uint32_t decode_segments_of(uint64_t counts, uint32_t session) { return (uint32_t)(counts >> session * 8) & 0xFF; }

/* Units are dealt one behind the other, session after session: this CTA's first of `units`, where `before` have been dealt. */
DEVICE uint32_t decode_first_unit(uint32_t before) { return (blockIdx.x + gridDim.x - before % gridDim.x) % gridDim.x; }

/* Segments of all sessions and heads stand one behind the other, and each CTA has as many of them: so it finds queries once for several. */
template <int HEADS, bool LATE> DEVICE uint32_t decode_attention(Decoder &self, uint32_t layer, uint64_t counts) {
    const mgv__decode_arguments &a = self.arguments;
    uint32_t all = 0, before = 0, again = 0;
#pragma unroll 1
    for (uint32_t session = 0; session < a.sessions; session++) all += a.key_heads * decode_segments_of(counts, session);
    const uint32_t begin = mgv__decode_first(all, blockIdx.x, gridDim.x), end = mgv__decode_first(all, blockIdx.x + 1, gridDim.x);
#pragma unroll 1
    for (uint32_t session = 0; session < a.sessions && before < end; session++) {
        const uint32_t segments = decode_segments_of(counts, session), behind = before + a.key_heads * segments;
        const uint32_t keys = decode_keys_of(self, session), length = decode_segment(keys);
#pragma unroll 1
        for (uint32_t i = max(begin, before); i < min(end, behind);) {
            const uint32_t head = (i - before) / segments, segment = i - before - head * segments;
            const uint32_t count = min(segments - segment, end - i);
            const DecodeUnit unit = {session, layer, head, segment, segments, length,
                                     segment * length, min(keys, (segment + count) * length), keys - 1};
            if (decode_attention_unit<HEADS, LATE>(self, unit, again++)) return 1;
            i += count;
        }
        before = behind;
    }
    return 0;
}

/* A warp that gives up tells the others where they meet next. */
DEVICE void decode_join(Decoder &self, uint32_t layer, uint64_t counts) {
    enum { UNITS = MGV__DECODE_HEAD_DIM / 32 }; /* of a head */
    const mgv__decode_arguments &a = self.arguments;
    uint32_t before = 0, number = 0;
#pragma unroll 1
    for (uint32_t session = 0; session < a.sessions; session++) {
        const uint32_t segments = decode_segments_of(counts, session);
        if (segments < 2) continue;
#pragma unroll 1
        for (uint32_t i = decode_first_unit(before); i < a.heads * UNITS; i += gridDim.x)
            if (number++ % MGV__DECODE_ATTENTION_WARPS == self.warp)
                decode_join_unit(self, session, layer, i / UNITS, i % UNITS * 32, segments);
        before += a.heads * UNITS;
    }
}

#endif /* MGV_DECODE_ATTENTION_CUH */
