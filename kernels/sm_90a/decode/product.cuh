/* megavit: decoding, products of packed weights with the sessions' rows.

   Weights are A of m16n8k16, sessions the columns of B, so that up to eight of them share one read and one arithmetic. Each of eight warps
   has an eighth of the columns of all rows and takes its share of the vector straight from the words into registers: it waits for nothing
   else, and the CTA meets once for each group of blocks, to add up eight partial sums of a row in an order that is always the same. */
#ifndef MGV_DECODE_PRODUCT_CUH
#define MGV_DECODE_PRODUCT_CUH

#include "ablations.cuh"

/* What a product reads and what becomes of it. */
struct DecodeProduct {
    uint32_t kind, layer;
    const uint64_t *rows;   /* words of B, of the first session */
    uint32_t pitch;         /* from one session's to the next one's */
    uint32_t tag, wait;     /* generation of B's words, and what they are */
    uint32_t first, end;    /* blocks of this CTA */
};

/* B, fragments `from` on of this warp: of each a lane has columns 4 t to 4 t + 3 of session g; of a split product columns 4 to 7 are the
   other half of K of the first four, and sessions 4 to 7 are set 1. */
template <uint32_t SLICES, bool MANY>
DEVICE void decode_gather(Decoder &self, const DecodeProduct &product, const mgv__decode_product &shape, uint32_t from, uint32_t set,
                          uint32_t again, uint32_t (&b)[SLICES][2]) {
    const uint32_t column = self.lane / 4, session = shape.split ? set * 4 + column % 4 : column;
    const uint32_t half = shape.split ? column / 4 * shape.fragments * 8 : 0;
    const uint32_t lives = session < self.arguments.sessions && (self.alive >> session & 1);
    const uint32_t first = self.warp * shape.slices + from, most = mgv__min_u32(shape.slices - from, SLICES);
    const uint64_t *const words = product.rows + (lives ? session : 0) * product.pitch + half + first * 8 + self.lane % 4 * 2;
    const uint32_t count = !lives || first >= shape.fragments ? 0 : mgv__min_u32(most, shape.fragments - first);
    enum { CHUNK = SLICES % 8 ? 12 : 8 }; /* words of so many fragments are under way together */
    /* One first, then all: who looks at all of them again and again is in the way of those who write them (10 to 18% an id). One of the
       last session, whose attention comes last. Not where others of the vector are there already; nor, in the kernel for many, of a session
       alone, but for attention's. */
    if (!again && (!MANY || product.wait == MGV__DECODE_ATTENDED || self.arguments.sessions > 1)) decode_wait(self, product.wait, [&]() {
        const uint32_t looks = count > 0 && (session == self.last || (shape.split && set != self.last / 4));
        return ld_relaxed_gpu_words_if(words, product.tag, b[0][0], b[0][1], looks);
    });
#pragma unroll
    for (uint32_t chunk = 0; chunk < SLICES; chunk += CHUNK) {
        if (chunk < most) decode_wait(self, product.wait, [&]() {
            uint32_t all = 1;
#pragma unroll
            for (uint32_t i = chunk; i < chunk + CHUNK; i++)
                all &= ld_relaxed_gpu_words_if(words + i * 8, product.tag, b[i][0], b[i][1], i < count);
            return all;
        });
    }
}

DEVICE void decode_wait_weights(Decoder &self) {
    const uint32_t barrier = shared_address(&self.shared->full[self.stage]);
    decode_wait(self, MGV__DECODE_WEIGHTS, [&]() { return mbarrier_try_wait_parity(barrier, self.parity); });
}
DEVICE void decode_leave_weights(Decoder &self) {
    warp_sync();
    if (self.lane == 0) mbarrier_arrive(shared_address(&self.shared->empty[self.stage]));
    if (++self.stage == MGV__DECODE_STAGES) {
        self.stage = 0;
        self.parity ^= 1;
    }
}

DEVICE void decode_load_fragment(uint32_t (&a)[4], uint32_t address) {
    float v[4];
    shared_load_v4f32(address, v[0], v[1], v[2], v[3]);
#pragma unroll
    for (int i = 0; i < 4; i++) a[i] = __float_as_uint(v[i]);
}

/* Adds fragments `from` on of one block, of this warp's columns. d: of each set, even fragments, odd ones. */
template <uint32_t SLICES, uint32_t SETS>
DEVICE void decode_multiply(Decoder &self, const mgv__decode_product &shape, uint32_t from, const uint32_t (&b)[SETS][SLICES][2],
                            float (&d)[SETS][2][4]) {
#pragma unroll
    for (uint32_t i = 0; i < SLICES; i += MGV__DECODE_STAGE_SLICES) {
        if (from + i >= shape.slices) break;
        decode_wait_weights(self);
        if (self.gone) return;
        const uint32_t place = shared_address(self.shared->ring[self.stage]) + self.warp * 512 + self.lane * 16;
        uint32_t a[MGV__DECODE_STAGE_SLICES][4];
#pragma unroll
        for (uint32_t k = 0; k < MGV__DECODE_STAGE_SLICES; k++)
            if (from + i + k < shape.slices) decode_load_fragment(a[k], place + k * MGV__DECODE_SLICE_BYTES);
#pragma unroll
        for (uint32_t k = 0; k < MGV__DECODE_STAGE_SLICES; k++)
            if (from + i + k < shape.slices)
#pragma unroll
                for (uint32_t s = 0; s < SETS; s++)
                    mma_m16n8k16_bf16(d[s][k % 2], a[k][0], a[k][1], a[k][2], a[k][3], b[s][i + k][0], b[s][i + k][1]);
        decode_leave_weights(self);
    }
}

/* Blocks of a group: their sums over this warp's columns. Rows that are longer than the registers are taken in turns, again for each
   block. */
template <uint32_t SLICES, uint32_t SETS, bool MANY>
DEVICE void decode_blocks(Decoder &self, const DecodeProduct &product, const mgv__decode_product &shape, uint32_t blocks,
                          uint32_t (&b)[SETS][SLICES][2]) {
#pragma unroll 1
    for (uint32_t block = 0; block < blocks; block++) {
        float d[SETS][2][4];
#pragma unroll
        for (uint32_t i = 0; i < SETS * 8; i++) d[i / 8][i / 4 % 2][i % 4] = 0;
#pragma unroll 1
        for (uint32_t from = 0; from < shape.slices && !self.gone; from += SLICES) {
            if (shape.slices > SLICES)
#pragma unroll
                for (uint32_t s = SETS; s-- > 0;)
                    decode_gather<SLICES, MANY>(self, product, shape, from, s, block > 0 || from > 0 || s < self.last / 4, b[s]);
            decode_multiply<SLICES, SETS>(self, shape, from, b, d);
        }
        if (self.gone) return;
        const uint32_t row = block * 16 + self.lane / 4, column = self.lane % 4 * 2;
        float *const sums = self.shared->sums[self.sums][self.warp];
#pragma unroll
        for (uint32_t i = 0; i < SETS * 4; i++) {
            const uint32_t half = i / 2 % 2, of = column + i % 2 - (shape.split ? half * 4 : 0); /* huge: none of ours */
            const uint32_t session = i / 4 * 4 + of;
            if (of < (shape.split ? 4 : MGV__DECODE_SESSIONS) && session < self.arguments.sessions)
                sums[session * (MGV__DECODE_GROUP * 16) + row + half * 8] = d[i / 4][0][i % 4] + d[i / 4][1][i % 4];
        }
    }
}

/* The warps' partial sums, in an order of their own. */
DEVICE float decode_add_up(const Decoder &self, uint32_t place) {
    float v[MGV__DECODE_WARPS];
#pragma unroll
    for (uint32_t i = 0; i < MGV__DECODE_WARPS; i++) v[i] = self.shared->sums[self.sums][i][place];
#pragma unroll
    for (uint32_t n = MGV__DECODE_WARPS / 2; n > 0; n /= 2)
#pragma unroll
        for (uint32_t i = 0; i < n; i++) v[i] += v[i + n];
    return v[0];
}

/* The words of two neighbouring rows, by the lane of the even one. */
DEVICE void decode_put_pair(const Decoder &self, uint32_t kind, uint64_t *words, uint32_t row, float value, uint32_t valid, uint32_t tag) {
    const float other = shfl_bfly_f32(value, 1);
    if (valid && row % 2 == 0) decode_put(self, kind, words + row / 2, cvt_rn_bf16x2(value, other), tag);
}

/* Eight rows of a residual, by lanes 0 to 7 of every sixteen: their words, times the next norm's gamma, and the sum of their squares. */
DEVICE void decode_put_rows(const Decoder &self, uint32_t which, uint32_t session, uint32_t block, float value, float gamma, uint32_t valid,
                            uint32_t tag) {
    const mgv__decode_arguments &a = self.arguments;
    const uint32_t row = block * 8 + self.lane % 8;
    decode_put_pair(self, MGV__DECODE_ROWS, a.rows[which] + session * (a.width / 2), row, value * gamma, valid, tag);
    float square = value * value;
#pragma unroll
    for (uint32_t i = 1; i < 8; i *= 2) square += shfl_bfly_f32(square, i);
    if (valid && row % 8 == 0)
        decode_put(self, MGV__DECODE_SQUARES, a.squares[which] + session * (a.width / 8) + block, __float_as_uint(square), tag);
}

/* The best of those that this thread has seen: the largest logit, of equal ones the smaller id. */
struct DecodeBest {
    uint32_t key, id;
};
/* None; and, beside an id of the first CTA's, that the host wants an end. */
enum : uint32_t { DECODE_NO_ID = 0x7FFFFFFFu, DECODE_CANCELLED = 1u << 31 };
/* As an integer, in the same order; what is no number, or infinite, is above all. */
DEVICE uint32_t decode_key(float logit) {
    const uint32_t bits = __float_as_uint(logit == 0 ? 0 : logit); /* both zeros are one */
    if ((bits & 0x7F800000u) == 0x7F800000u) return 0xFFFFFFFFu;
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
DEVICE void decode_take_better(DecodeBest &best, uint32_t key, uint32_t id) {
    if (key > best.key || (key == best.key && id < best.id)) best = {key, id};
}

/* The sessions that a thread finishes: two, as there are four for each of eight warps' threads. */
enum { DECODE_HALVES = MGV__DECODE_SESSIONS * MGV__DECODE_GROUP * 16 / (32 * MGV__DECODE_WARPS) };
DEVICE uint32_t decode_session_of(const Decoder &self, uint32_t half) {
    return half * (MGV__DECODE_SESSIONS / DECODE_HALVES) + self.thread / (MGV__DECODE_GROUP * 16);
}

/* What becomes of a group's sums. Thread 64 s + 16 b + r has row r of block b for session s of this half. */
DEVICE void decode_finish(Decoder &self, const DecodeProduct &product, uint32_t group, uint32_t blocks, float gamma, uint32_t half,
                          DecodeBest &best) {
    const mgv__decode_arguments &a = self.arguments;
    const uint32_t session = decode_session_of(self, half), row = self.lane % 16;
    const uint32_t block = group + self.thread / 16 % MGV__DECODE_GROUP;
    const uint32_t valid = session < a.sessions && block < group + blocks && (self.alive >> session & 1);
    if (session >= a.sessions) return;
    float v = valid ? decode_add_up(self, half * (32 * MGV__DECODE_WARPS) + self.thread) : 0;
    if (product.kind == MGV__PRODUCT_OUT || product.kind == MGV__PRODUCT_DOWN) {
        const uint32_t which = product.kind == MGV__PRODUCT_OUT, first = mgv__decode_first(a.width / 8, blockIdx.x, gridDim.x);
        float *const residual = &self.shared->residual[((block - first) * MGV__DECODE_SESSIONS + session) * 8 + row % 8];
        v += shfl_bfly_f32(v, 8);
        if (valid && row < 8) *residual = v += *residual;
        decode_put_rows(self, which, session, block, v, gamma, valid && row < 8, decode_tag(self, product.layer + 1 - which));
        return;
    }
    v *= valid ? self.shared->scale[self.scales][session] : 0;
    if (product.kind == MGV__PRODUCT_QKV) {
        const uint32_t pitch = (a.heads + 2 * a.key_heads) * MGV__DECODE_HEAD_DIM;
        if (valid) decode_put(self, MGV__DECODE_QKVS, a.qkv + session * pitch + block * 16 + row, __float_as_uint(v), product.tag);
    } else if (product.kind == MGV__PRODUCT_GATE_UP) {
        const float up = shfl_bfly_f32(v, 8);
        decode_put_pair(self, MGV__DECODE_HIDDEN, a.hidden + session * (a.intermediate / 2), block * 8 + row % 8, v / (1 + expf(-v)) * up,
                        valid && row < 8, product.tag);
    } else if (valid && block * 16 + row < a.vocabulary) {
        a.session[session].logits[block * 16 + row] = v;
        decode_take_better(best, decode_key(v), block * 16 + row);
    }
}

/* The norm's share: reciprocal root mean squares of the sessions' rows, by the norm warps. The norm's gamma is in the words. Sessions are
   shared out, two for each warp in turn, whose words are looked at together, as each for itself costs a trip to L2; one word first, as who
   waits is in the way of those who write. */
enum { DECODE_NORMS = 2, DECODE_NORM_WORDS = 4 };
DEVICE void decode_norm(Decoder &self, uint32_t which, uint32_t tag) {
    const mgv__decode_arguments &a = self.arguments;
    const uint32_t count = a.width / 8;
#pragma unroll 1
    for (uint32_t begin = self.warp * DECODE_NORMS; begin < a.sessions; begin += DECODE_NORM_WARPS * DECODE_NORMS) {
        float sum[DECODE_NORMS] = {};
        if (decode_ablation_take_norms(self, begin, DECODE_NORMS, which, tag, self.scales)) continue;
        decode_wait(self, MGV__DECODE_SQUARES, [&]() {
            uint32_t x, y;
            return ld_relaxed_gpu_words_if(a.squares[which] + self.last * count + count - 2, tag, x, y, self.lane == 0);
        });
#pragma unroll 1
        for (uint32_t first = 0; first < count; first += 32 * DECODE_NORM_WORDS) {
            uint32_t v[DECODE_NORMS][DECODE_NORM_WORDS];
            decode_wait(self, MGV__DECODE_SQUARES, [&]() {
                uint32_t all = 1;
#pragma unroll
                for (uint32_t i = 0; i < DECODE_NORMS * DECODE_NORM_WORDS; i++) { /* of those that are none another one's are read */
                    const uint32_t s = i / DECODE_NORM_WORDS, k = i % DECODE_NORM_WORDS, at = min(first + k * 32 + self.lane, count - 1);
                    const uint32_t session = self.alive >> (begin + s) & 1 ? begin + s : self.last;
                    all &= ld_relaxed_gpu_word(a.squares[which] + session * count + at, tag, v[s][k]);
                }
                return all;
            });
#pragma unroll
            for (uint32_t i = 0; i < DECODE_NORMS * DECODE_NORM_WORDS; i++)
                if (first + i % DECODE_NORM_WORDS * 32 + self.lane < count)
                    sum[i / DECODE_NORM_WORDS] += __uint_as_float(v[i / DECODE_NORM_WORDS][i % DECODE_NORM_WORDS]);
        }
#pragma unroll
        for (uint32_t s = 0; s < DECODE_NORMS; s++) {
#pragma unroll
            for (uint32_t i = 16; i > 0; i /= 2) sum[s] += shfl_bfly_f32(sum[s], i);
            const float scale = 1 / sqrtf(sum[s] / (float)a.width + a.epsilon);
            if (!(self.alive >> (begin + s) & 1)) continue;
            decode_ablation_tell_norm(self, begin + s, which, tag, scale);
            if (self.lane == 0) self.shared->scale[self.scales][begin + s] = scale;
        }
    }
}

/* The norm behind a product that adds to the residual. */
DEVICE const float *decode_gamma(const mgv__decode_arguments &a, uint32_t kind, uint32_t layer) {
    if (kind == MGV__PRODUCT_OUT) return a.vectors + layer * mgv__decode_vectors(&a) + a.width;
    return a.vectors + (layer + 1) * mgv__decode_vectors(&a);
}

/* 1: the CTA gives up. MANY: there may be more than four sessions, of which a split product has two sets: registers hold half as much of a
   row then. */
template <uint32_t SLICES, bool MANY>
DEVICE uint32_t decode_product(Decoder &self, const DecodeProduct &product, DecodeBest (&best)[MANY ? DECODE_HALVES : 1]) {
    enum { HALF = MGV__DECODE_HALF(SLICES) };
    const mgv__decode_product &shape = self.arguments.product[product.kind];
    const uint32_t sets = MANY && shape.split && self.arguments.sessions > 4 ? 2 : 1;
    uint32_t b[1][SLICES][2];
    if (product.first == product.end) return 0;
    if (!shape.split) self.scales ^= 1;
    if (sets == 1 && shape.slices <= SLICES) decode_gather<SLICES, MANY>(self, product, shape, 0, 0, 0, b[0]);
    decode_ablation_started(self);
#pragma unroll 1
    for (uint32_t group = product.first; group < product.end; group += MGV__DECODE_GROUP) {
        const uint32_t blocks = mgv__min_u32((uint32_t)MGV__DECODE_GROUP, product.end - group);
        const uint32_t block = group + self.thread / 16 % MGV__DECODE_GROUP;
        float gamma = 0;
        if (shape.split && block < product.end)
            gamma = ld_global_nc_f32(decode_gamma(self.arguments, product.kind, product.layer) + block * 8 + self.lane % 8);
        if (!MANY || sets == 1) {
            decode_blocks<SLICES, 1, MANY>(self, product, shape, blocks, b);
        } else {
            uint32_t both[2][HALF][2];
            if (shape.slices <= HALF) {
                decode_gather<HALF, MANY>(self, product, shape, 0, 1, 0, both[1]);
                decode_gather<HALF, MANY>(self, product, shape, 0, 0, self.last / 4, both[0]);
            }
            decode_blocks<HALF, 2, MANY>(self, product, shape, blocks, both);
        }
        if (decode_sync_product(self)) return 1;
        if constexpr (MANY) {
#pragma unroll 1
            for (uint32_t half = 0; half * (MGV__DECODE_SESSIONS / DECODE_HALVES) < self.arguments.sessions; half++) {
                DecodeBest of = half ? best[1] : best[0];
                decode_finish(self, product, group, blocks, gamma, half, of);
                (half ? best[1] : best[0]) = of;
            }
        } else {
            decode_finish(self, product, group, blocks, gamma, 0, best[0]);
        }
        self.sums ^= 1;
    }
    return 0;
}

/* The norm warps' share of it: they come to the same barriers. */
DEVICE uint32_t decode_product_norm(Decoder &self, const DecodeProduct &product) {
    if (product.first == product.end) return 0;
    if (!self.arguments.product[product.kind].split) {
        self.scales ^= 1;
        decode_norm(self, product.kind == MGV__PRODUCT_GATE_UP, product.tag);
    }
#pragma unroll 1
    for (uint32_t group = product.first; group < product.end; group += MGV__DECODE_GROUP)
        if (decode_sync_product(self)) return 1;
    return 0;
}

#endif /* MGV_DECODE_PRODUCT_CUH */
