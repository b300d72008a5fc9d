/* megavit: decoding, an id chosen by chance, exactly as the host chooses it from the same logits (mgv_session_sample).

   Ids stand in an order of ranks: the more likely first, of equal ones the smaller id. What is looked for is always the first rank up to
   which a sum, of ids or of their weights, comes to so much: where top_k or top_p cuts, then the id that the random number falls on. All
   CTAs add their ids up in a table of bins, meet, read the table, and go on within the one bin in which the sum gets there, until one id is
   in it. Weights are integers, so sums are the same in any order. One warp a session does all of it. */
#ifndef MGV_DECODE_SAMPLE_CUH
#define MGV_DECODE_SAMPLE_CUH

#include "product.cuh"

/* Ids whose distances are [first, first + 2^bits), or, of one distance, whose places are: a distance of keys, then the id. */
enum { DECODE_BIN_BITS = 8, DECODE_DISTANCE_BITS = 38, DECODE_PLACE_BITS = 32 + MGV__DECODE_ID_BITS };
static_assert(1 << DECODE_BIN_BITS == MGV__DECODE_BINS && MGV__SAMPLE_FAR >> DECODE_DISTANCE_BITS == 0, "bins of a table");

struct DecodeRange {
    uint64_t first, distance;
    uint32_t bits, alike;         /* alike: all of `distance` */
    uint32_t before, count;       /* ids before it, ids in it */
    uint64_t lighter, weight;     /* their weights */
};

/* A session's choice under way. */
struct DecodeChoice {
    const float *logits;
    const mgv__sampling *sampling;
    mgv__decode_bin *tables;
    uint32_t session, key;        /* key: of the best logit */
    float best;
    uint32_t first, end;          /* ids of this CTA */
    uint32_t met;                 /* meetings of this id */
    uint32_t tabled;              /* the first table is there */
};

DEVICE float decode_logit_of(uint32_t key) { return __uint_as_float(key & 0x80000000u ? key ^ 0x80000000u : ~key); }

DEVICE uint32_t decode_shift(const DecodeRange &range) { return range.bits > DECODE_BIN_BITS ? range.bits - DECODE_BIN_BITS : 0; }
/* 0: the id is not in the range. */
DEVICE uint32_t decode_in_range(const DecodeChoice &choice, const DecodeRange &range, float logit, uint32_t id, uint64_t distance,
                                uint64_t &at) {
    if (distance >= MGV__SAMPLE_FAR || (range.alike && distance != range.distance)) return 0;
    at = range.alike ? (uint64_t)(choice.key - decode_key(logit)) << MGV__DECODE_ID_BITS | id : distance;
    at -= range.first;
    return at >> range.bits == 0; /* what is before it is huge */
}

DEVICE uint32_t decode_min_u32(uint32_t value) {
#pragma unroll
    for (uint32_t i = 16; i > 0; i /= 2) value = min(value, __float_as_uint(shfl_bfly_f32(__uint_as_float(value), i)));
    return value;
}
DEVICE uint64_t decode_shuffle_u64(uint64_t value, uint32_t lane) {
    const uint32_t low = shfl_idx_u32((uint32_t)value, lane), high = shfl_idx_u32((uint32_t)(value >> 32), lane);
    return (uint64_t)high << 32 | low;
}

/* All CTAs come here; what each of them wrote before is there for all behind it. The smallest of their values. */
DEVICE uint32_t decode_meet(Decoder &self, DecodeChoice &choice, uint32_t value) {
    const mgv__decode_arguments &a = self.arguments;
    const uint32_t tag = decode_tag(self, a.layers + 1 + choice.met);
    uint64_t *const words = a.meetings + (choice.session * 2 + choice.met % 2) * gridDim.x;
    uint32_t least = 0xFFFFFFFFu;
    choice.met++;
    warp_sync();
    if (self.lane == 0 && !(a.lost_word == MGV__DECODE_MEETING && a.lost_cta == blockIdx.x && a.lost_generation == tag))
        st_release_gpu_word(words + blockIdx.x, value, tag);
#pragma unroll 1
    for (uint32_t first = 0; first < gridDim.x; first += 32 * DECODE_AT_ONCE) {
        uint32_t theirs[DECODE_AT_ONCE];
        decode_wait(self, MGV__DECODE_MEETING, [&]() {
            uint32_t all = 1;
#pragma unroll
            for (uint32_t i = 0; i < DECODE_AT_ONCE; i++)
                all &= ld_relaxed_gpu_word_before_fence(words + decode_other_cta(self, first, i), tag, theirs[i]);
            return all;
        });
#pragma unroll
        for (uint32_t i = 0; i < DECODE_AT_ONCE; i++) least = min(least, theirs[i]);
    }
    fence_acquire_gpu();
    warp_sync();
    return decode_min_u32(least);
}

/* Ids that a lane looks at together. */
enum { DECODE_LOGITS = 4 };
template <class Work> DEVICE void decode_each_logit(const Decoder &self, const DecodeChoice &choice, const Work &work) {
#pragma unroll 1
    for (uint32_t first = choice.first + self.lane; first < choice.end; first += 32 * DECODE_LOGITS) {
        float logit[DECODE_LOGITS];
#pragma unroll
        for (uint32_t i = 0; i < DECODE_LOGITS; i++) logit[i] = choice.logits[min(first + 32 * i, choice.end - 1)];
#pragma unroll
        for (uint32_t i = 0; i < DECODE_LOGITS; i++)
            if (first + 32 * i < choice.end)
                work(logit[i], first + 32 * i, mgv__sample_distance(choice.best, logit[i], choice.sampling->scale));
    }
}

/* This CTA's ids of the range, into a table: first into one of the CTA's own, so that a bin of many ids is written by each CTA once. Of all
   ids the first bin has, too, how many are as near as min_p wants. A weight of 41 bits is added up in two parts, of up to 2^11 ids. */
DEVICE void decode_fill(Decoder &self, const DecodeChoice &choice, const DecodeRange &range, uint32_t all, mgv__decode_bin *table) {
    enum { LOW_BITS = 20, EACH = MGV__DECODE_BINS / 32 };
    uint32_t *const own = self.shared->bins[choice.session][0];
    const uint32_t shift = decode_shift(range), bins = shared_address(own);
    uint32_t within = 0;
    warp_sync();
#pragma unroll
    for (uint32_t i = 0; i < 3 * EACH; i++) own[i * 32 + self.lane] = 0;
    warp_sync();
    decode_each_logit(self, choice, [&](float logit, uint32_t id, uint64_t distance) {
        uint64_t at;
        if (!decode_in_range(choice, range, logit, id, distance, at)) return;
        const uint64_t weight = mgv__sample_weight(distance);
        const uint32_t bin = bins + (uint32_t)(at >> shift) * 12;
        within += distance <= choice.sampling->farthest;
        red_shared_add(bin, 1);
        red_shared_add(bin + 4, (uint32_t)weight & ((1u << LOW_BITS) - 1));
        red_shared_add(bin + 8, (uint32_t)(weight >> LOW_BITS));
    });
    warp_sync();
#pragma unroll 1
    for (uint32_t i = self.lane; i < MGV__DECODE_BINS; i += 32) {
        const uint32_t count = own[i * 3];
        if (count == 0) continue;
        red_relaxed_gpu_add(&table[i].count, count);
        red_relaxed_gpu_add_u64(&table[i].weight, own[i * 3 + 1] + ((uint64_t)own[i * 3 + 2] << LOW_BITS));
    }
    if (all && within > 0) red_relaxed_gpu_add(&table->within, within);
}
/* This CTA's share of a table, which all have read. */
DEVICE void decode_clear(const Decoder &self, mgv__decode_bin *table) {
    const uint32_t end = mgv__decode_first(MGV__DECODE_BINS, blockIdx.x + 1, gridDim.x);
#pragma unroll 1
    for (uint32_t i = mgv__decode_first(MGV__DECODE_BINS, blockIdx.x, gridDim.x) + self.lane; i < end; i += 32)
        st_global_v4u32(table + i, 0, 0, 0, 0);
}

DEVICE void decode_read_bin(const mgv__decode_bin *bin, uint32_t &count, uint64_t &weight) {
    uint32_t unused, low, high;
    ld_relaxed_gpu_v4u32(bin, count, unused, low, high);
    weight = (uint64_t)high << 32 | low;
}
/* Sums of this lane and all before it. */
DEVICE void decode_scan(const Decoder &self, uint32_t &count, uint64_t &weight) {
#pragma unroll 1
    for (uint32_t i = 1; i < 32; i *= 2) {
        const uint32_t from = self.lane >= i ? self.lane - i : self.lane;
        const uint32_t c = shfl_idx_u32(count, from);
        const uint64_t w = decode_shuffle_u64(weight, from);
        if (self.lane >= i) {
            count += c;
            weight += w;
        }
    }
}
/* Lane by lane so much: the first lane up to which it comes to `need`; what is before it and in it is *range's. 32: there is none, and the
   last lane has all. */
DEVICE uint32_t decode_cross(const Decoder &self, DecodeRange &range, uint32_t count, uint64_t weight, uint32_t by_weight, uint64_t need) {
    uint32_t counts = count;
    uint64_t weights = weight;
    decode_scan(self, counts, weights);
    counts += range.before;
    weights += range.lighter;
    const uint32_t lane = decode_min_u32((by_weight ? weights : counts) >= need ? self.lane : 32u), from = lane < 32 ? lane : 31u;
    range.count = shfl_idx_u32(count, from);
    range.weight = decode_shuffle_u64(weight, from);
    range.before = shfl_idx_u32(counts, from) - range.count;
    range.lighter = decode_shuffle_u64(weights, from) - range.weight;
    return lane;
}
/* The bin in which the sum comes to `need` becomes the range. 0: it never does, and with the
   range all are behind. */
DEVICE uint32_t decode_narrow(const Decoder &self, DecodeRange &range, const mgv__decode_bin *table, uint32_t by_weight, uint64_t need) {
    enum { EACH = MGV__DECODE_BINS / 32 };
    const uint32_t shift = decode_shift(range);
    uint32_t count = 0, lane, bin;
    uint64_t weight = 0;
#pragma unroll 8
    for (uint32_t i = 0; i < EACH; i++) {
        uint32_t c;
        uint64_t w;
        decode_read_bin(table + self.lane * EACH + i, c, w);
        count += c;
        weight += w;
    }
    lane = decode_cross(self, range, count, weight, by_weight, need);
    if (lane == 32) return 0;
    count = 0;
    weight = 0;
    if (self.lane < EACH) decode_read_bin(table + lane * EACH + self.lane, count, weight);
    bin = lane * EACH + decode_cross(self, range, count, weight, by_weight, need);
    range.first += (uint64_t)bin << shift;
    range.bits = shift;
    return 1;
}

DEVICE uint64_t decode_end(const DecodeRange &range, uint32_t by_weight) {
    return by_weight ? range.lighter + range.weight : range.before + range.count;
}
/* The first id, in the order of ranks, with which the sum comes to `need`; `whole`: ids of one distance, which weigh the same, stay
   together. The range has it, and what is before it. 0: there is none, and with the range all are behind; or the warp gives up. */
DEVICE uint32_t decode_find(Decoder &self, DecodeChoice &choice, DecodeRange &range, uint32_t whole, uint32_t by_weight, uint64_t need) {
    range = {0, 0, DECODE_DISTANCE_BITS, 0, 0, 0, 0, 0};
#pragma unroll 1
    for (uint32_t deep = 0;; deep = 1) {
        mgv__decode_bin *const table = choice.tables + (deep ? 2 + self.tables % 3 : self.step % 2) * MGV__DECODE_BINS;
        if (deep || !choice.tabled) {
            decode_fill(self, choice, range, !deep, table);
            decode_meet(self, choice, 0);
            if (self.gone) return 0;
            /* all have come here, so nobody reads the table before it any more */
            decode_clear(self, choice.tables + (deep ? 2 + (self.tables + 2) % 3 : (self.step + 1) % 2) * MGV__DECODE_BINS);
            if (deep) self.tables++;
            else choice.tabled = 1;
        }
        if (!decode_narrow(self, range, table, by_weight, need)) return 0;
        if (range.count == 1 || (whole && (range.bits == 0 || decode_end(range, by_weight) == need))) return 1;
        if (range.bits == 0) {
            range.alike = 1;
            range.distance = range.first;
            range.first = 0;
            range.bits = DECODE_PLACE_BITS;
        }
    }
}

/* The weight of all ids up to where the sum comes to `need`, of a range that decode_find found or did not. */
DEVICE uint64_t decode_mass(const DecodeRange &range, uint32_t found, uint32_t by_weight, uint64_t need) {
    if (!found || decode_end(range, by_weight) == need || range.count == 1) return range.lighter + range.weight;
    const uint64_t each = range.weight / range.count; /* ids of one distance */
    return range.lighter + (by_weight ? (need - range.lighter + each - 1) / each : need - range.before) * each;
}

/* The id that a session chooses whose best logit has this key; by one warp, of every CTA. What top_k, top_p and min_p leave is a mass, up
   to which the random number's part is looked for. */
DEVICE uint32_t decode_choose(Decoder &self, uint32_t session, uint32_t key) {
    enum { TOP_K, TOP_P, MIN_P, ID };
    const mgv__decode_arguments &a = self.arguments;
    const mgv__decode_session &s = a.session[session];
    const mgv__sampling &sampling = s.sampling;
    const uint32_t blocks = a.product[MGV__PRODUCT_HEAD].blocks;
    DecodeChoice choice = {s.logits, &sampling, a.tables + session * (MGV__DECODE_TABLES * MGV__DECODE_BINS), session, key,
                           decode_logit_of(key), mgv__decode_first(blocks, blockIdx.x, gridDim.x) * 16,
                           min(a.vocabulary, mgv__decode_first(blocks, blockIdx.x + 1, gridDim.x) * 16), 0, 0};
    DecodeRange range;
    uint64_t mass = 0;
    uint32_t own = 0xFFFFFFFFu;
#pragma unroll 1
    for (uint32_t cut = TOP_K; cut <= ID; cut++) {
        uint32_t by_weight = 1;
        uint64_t need = ~(uint64_t)0;
        if (cut == TOP_P && !(sampling.top_p > 0 && sampling.top_p < 1)) continue;
        if (cut == MIN_P && sampling.farthest >= MGV__SAMPLE_FAR) continue;
        if (cut == TOP_P) need = mgv__sample_share(mass, sampling.top_p);
        if (cut == ID) need = mgv__sample_part(mass, mgv__sample_random(sampling.seed, s.position + self.step + 1)) + 1;
        if (cut == MIN_P || (cut == TOP_K && sampling.top_k)) {
            by_weight = 0;
            need = cut == MIN_P ? ld_relaxed_gpu(&choice.tables[self.step % 2 * MGV__DECODE_BINS].within) : sampling.top_k;
        }
        const uint32_t found = decode_find(self, choice, range, cut < ID, by_weight, need);
        if (self.gone) return 0;
        const uint64_t cut_mass = cut == ID ? mass : decode_mass(range, found, by_weight, need);
        mass = cut == MIN_P && mass < cut_mass ? mass : cut_mass;
    }
    decode_each_logit(self, choice, [&](float logit, uint32_t id, uint64_t distance) {
        uint64_t at;
        if (decode_in_range(choice, range, logit, id, distance, at)) own = id;
    });
    return decode_meet(self, choice, decode_min_u32(own));
}

#endif /* MGV_DECODE_SAMPLE_CUH */
