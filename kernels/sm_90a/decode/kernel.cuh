/* megavit: decoding, the persistent kernel: a launch appends ids to the caches of up to eight sessions, those that are given and those that
   it chooses itself.

   One CTA a multiprocessor: eight warps that multiply, four that attend, three for norms, one that keeps a ring of weights full: it runs
   ahead of all waits, through layers and ids, as the order of weights is known. Each role goes through the layers by itself, from words to
   words; behind an id all of them meet. Read in this order: memory, product, attention, sample, this file. */
#ifndef MGV_DECODE_KERNEL_CUH
#define MGV_DECODE_KERNEL_CUH

#include "attention.cuh"
#include "sample.cuh"

/* ---- weights ---- */

struct DecodeLoader {
    DecodeMemory *shared;
    const mgv__decode_arguments &arguments;
    uint64_t policy;
    uint32_t stage, parity, used; /* used: stages that have been filled, up to their number */
    uint32_t asked;               /* when the last one was asked for */
    uint32_t products;            /* of this CTA, whose weights have been asked for */
};

/* Until the next stage is free. 0: no weights are needed any more, or the launch is given up: by others first, who wait for less. */
DEVICE uint32_t decode_wait_vacant(const DecodeLoader &self, uint32_t step) {
    enum { PATIENCE = 16 };
    const uint32_t empty = shared_address(&self.shared->empty[self.stage]), ended = shared_address(&self.shared->ended);
#pragma unroll 1
    for (uint32_t looks = 1; !mbarrier_try_wait_parity(empty, self.parity ^ 1); looks++) {
        if (mbarrier_test_wait_parity(ended, 0)) return 0;
        if (looks % (DECODE_LOOKS * PATIENCE) == 0 &&
            decode_is_too_long(self.arguments, 0, MGV__DECODE_VACANT, step, looks, self.arguments.poll_limit * PATIENCE))
            return 0;
    }
    return 1;
}
/* The next stage. 0: there is none any more. */
DEVICE uint32_t decode_load(DecodeLoader &self, uint32_t step, const uint8_t *from, uint32_t bytes) {
    const uint32_t full = shared_address(&self.shared->full[self.stage]);
    if (!decode_wait_vacant(self, step)) return 0;
    while (clock_u32() - self.asked < self.arguments.pace) {}
    self.asked = clock_u32();
    fence_proxy_async_shared_cta(); /* behind the reads of what was there */
    mbarrier_arrive_expect_tx(full, bytes);
    cp_async_bulk_load_hint(shared_address(self.shared->ring[self.stage]), from, bytes, full, self.policy);
    if (self.used < MGV__DECODE_STAGES) self.used++;
    if (++self.stage == MGV__DECODE_STAGES) {
        self.stage = 0;
        self.parity ^= 1;
    }
    return 1;
}

DEVICE uint32_t decode_load_product(DecodeLoader &self, uint32_t step, uint32_t kind, uint32_t layer) {
    const mgv__decode_product &shape = self.arguments.product[kind];
    const uint32_t begin = mgv__decode_first(shape.blocks, blockIdx.x, gridDim.x);
    const uint32_t end = mgv__decode_first(shape.blocks, blockIdx.x + 1, gridDim.x);
    if (begin < end && !decode_ablation_wait_started(self.shared, self.products++)) return 0;
#pragma unroll 1
    for (uint32_t block = begin; block < end; block++) {
        const uint8_t *const from = self.arguments.weights + shape.weights + layer * self.arguments.layer_bytes +
                                    (uint64_t)block * shape.slices * MGV__DECODE_SLICE_BYTES;
#pragma unroll 1
        for (uint32_t slice = 0; slice < shape.slices; slice += MGV__DECODE_STAGE_SLICES)
            if (!decode_load(self, step, from + slice * MGV__DECODE_SLICE_BYTES,
                             min((uint32_t)MGV__DECODE_STAGE_SLICES, shape.slices - slice) * MGV__DECODE_SLICE_BYTES))
                return 0;
    }
    return 1;
}

DEVICE uint32_t decode_load_step(DecodeLoader &self, uint32_t step) {
#pragma unroll 1
    for (uint32_t layer = 0; layer < self.arguments.layers; layer++)
#pragma unroll 1
        for (uint32_t kind = 0; kind < MGV__PRODUCT_HEAD; kind++)
            if (!decode_load_product(self, step, kind, layer)) return 0;
    return !mgv__decode_headed(&self.arguments, step) || decode_load_product(self, step, MGV__PRODUCT_HEAD, 0);
}

/* One lane. What is on its way when the others have ended lands before shared memory goes away. */
DEVICE void decode_loader_role(DecodeMemory *shared, const mgv__decode_arguments &arguments) {
    DecodeLoader self = {shared, arguments, createpolicy_evict_first(), 0, 0, 0, clock_u32(), 0};
    uint32_t step = 0;
#pragma unroll 1
    while (step < arguments.steps && decode_load_step(self, step)) step++;
#pragma unroll 1
    for (; self.used > 0; self.used--) {
        if (self.stage-- == 0) {
            self.stage = MGV__DECODE_STAGES - 1;
            self.parity ^= 1;
        }
        const uint32_t full = shared_address(&shared->full[self.stage]);
#pragma unroll 1
        for (uint32_t looks = 0; looks < arguments.poll_limit && !mbarrier_try_wait_parity(full, self.parity); looks++) {}
    }
}

/* ---- the beginning of a step, and its end ---- */

/* Rows of the embedding: each CTA the columns whose residual it keeps. */
DEVICE void decode_embed(Decoder &self, uint32_t half) {
    const mgv__decode_arguments &a = self.arguments;
    const uint32_t first = mgv__decode_first(a.width / 8, blockIdx.x, gridDim.x);
    const uint32_t end = mgv__decode_first(a.width / 8, blockIdx.x + 1, gridDim.x);
    const uint32_t session = decode_session_of(self, half);
    if (session >= a.sessions) return;
    const float *const row_given = a.session[session].row;
    uint32_t id = 0;
    if (!row_given)
        id = self.step < a.session[session].given ? ld_global_nc_u32(a.ids + session * a.ids_pitch + self.step)
                                                : self.shared->token[session][0];
#pragma unroll 1
    for (uint32_t group = first; group < end; group += MGV__DECODE_GROUP) {
        const uint32_t block = group + self.thread / 16 % MGV__DECODE_GROUP, row = self.lane % 8;
        const uint32_t valid = block < end && self.lane % 16 < 8 && (self.alive >> session & 1);
        float value = 0, gamma = 0;
        if (valid) {
            if (row_given) {
                value = ld_relaxed_gpu_f32(row_given + block * 8 + row);
            } else {
                const uint64_t place = mgv__decode_place(a.product[MGV__PRODUCT_HEAD].slices, id, block * 8 + row);
                const uint32_t pair = ld_global_nc_u32(a.embedding + place / 4 * 4);
                value = place % 4 ? bf16_high(pair) : bf16_low(pair);
            }
            gamma = ld_global_nc_f32(a.vectors + block * 8 + row);
            self.shared->residual[((block - first) * MGV__DECODE_SESSIONS + session) * 8 + row] = value;
        }
        decode_put_rows(self, 0, session, block, value, gamma, valid, decode_tag(self, 0));
    }
}

/* The best of this CTA, of each session: two warps have its threads. */
DEVICE void decode_leave_best(Decoder &self, uint32_t half, DecodeBest best) {
    const uint32_t session = decode_session_of(self, half);
    if (session >= self.arguments.sessions) return;
#pragma unroll
    for (uint32_t i = 16; i > 0; i /= 2) {
        const uint32_t key = __float_as_uint(shfl_bfly_f32(__uint_as_float(best.key), i));
        const uint32_t id = __float_as_uint(shfl_bfly_f32(__uint_as_float(best.id), i));
        decode_take_better(best, key, id);
    }
    if (self.lane == 0) {
        self.shared->best[session][self.warp % 2][0] = best.key;
        self.shared->best[session][self.warp % 2][1] = best.id;
    }
}

/* What every CTA has found, and with it that its rows of the cache are written. Released by a thread that has met all others of its CTA. */
DEVICE void decode_put_best(Decoder &self) {
    const mgv__decode_arguments &a = self.arguments;
    const uint32_t session = self.thread, tag = decode_tag(self, a.layers);
    if (session >= a.sessions) return;
    const uint32_t(*const two)[2] = self.shared->best[session];
    DecodeBest best = {two[0][0], two[0][1]};
    decode_take_better(best, two[1][0], two[1][1]);
    uint64_t *const words = a.best + ((uint64_t)session * gridDim.x + blockIdx.x) * 2;
    if (blockIdx.x == 0 && self.shared->cancelled) best.id |= DECODE_CANCELLED;
    st_relaxed_gpu_word(words, best.key, tag);
    if (a.lost_word == MGV__DECODE_BEST && a.lost_cta == blockIdx.x && a.lost_generation == tag) return;
    st_release_gpu_word(words + 1, best.id, tag);
}

/* Warp s takes session s: the best of all CTAs. */
template <bool CHANCE> DEVICE void decode_gather_best(Decoder &self) {
    const mgv__decode_arguments &a = self.arguments;
    const uint32_t session = self.warp, tag = decode_tag(self, a.layers);
    if (session >= a.sessions) return;
    const uint64_t *const words = a.best + (uint64_t)session * gridDim.x * 2;
    DecodeBest best = {0, DECODE_NO_ID};
    uint32_t cancelled = 0;
    if (ld_relaxed_gpu(a.aborted)) self.gone = 1;
    self.gone = !vote_all(!self.gone);
#pragma unroll 1
    for (uint32_t first = 0; first < gridDim.x; first += 32 * DECODE_AT_ONCE) {
        uint32_t key[DECODE_AT_ONCE], id[DECODE_AT_ONCE];
        decode_wait(self, MGV__DECODE_BEST, [&]() {
            uint32_t all = 1;
#pragma unroll
            for (uint32_t i = 0; i < DECODE_AT_ONCE; i++)
                all &= ld_relaxed_gpu_words_before_fence(words + decode_other_cta(self, first, i) * 2, tag, key[i], id[i]);
            return all;
        });
        if (self.gone) break;
#pragma unroll
        for (uint32_t i = 0; i < DECODE_AT_ONCE; i++) {
            cancelled |= id[i] & DECODE_CANCELLED;
            decode_take_better(best, key[i], id[i] & ~DECODE_CANCELLED);
        }
    }
    fence_acquire_gpu();
    cancelled = !vote_all(cancelled == 0);
#pragma unroll
    for (uint32_t i = 16; i > 0; i /= 2) {
        const uint32_t key = __float_as_uint(shfl_bfly_f32(__uint_as_float(best.key), i));
        const uint32_t id = __float_as_uint(shfl_bfly_f32(__uint_as_float(best.id), i));
        decode_take_better(best, key, id);
    }
    const uint32_t failed = best.key == 0xFFFFFFFFu;
    if constexpr (CHANCE)
        if (!self.gone && !failed && a.session[session].sampling.scale > 0 && (self.alive >> session & 1) &&
            self.step + 1 >= a.session[session].given)
            best.id = decode_choose(self, session, best.key);
    if (self.lane == 0) {
        self.shared->token[session][0] = best.id;
        self.shared->token[session][1] = failed;
        if (session == 0) self.shared->ends = cancelled != 0;
    }
}

/* Every CTA decides alike which sessions go on; the first one tells the host. */
DEVICE void decode_next(Decoder &self) {
    const mgv__decode_arguments &a = self.arguments;
    const uint32_t next = self.step + 1;
    uint32_t last = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < a.sessions; i++) {
        if (!(self.alive >> i & 1)) continue;
        const uint32_t chooses = next >= a.session[i].given, chosen = self.shared->token[i][0];
        const uint32_t failed = chooses && self.shared->token[i][1];
        uint32_t ends = next == a.session[i].steps || failed || self.shared->ends;
#pragma unroll 1
        for (uint32_t k = 0; k < a.session[i].stop_count && chooses; k++) ends |= chosen == a.session[i].stops[k];
        if (blockIdx.x == 0 && threadIdx.x == 0) {
            if (chooses && !failed) st_relaxed_sys(a.chosen + i * a.ids_pitch + self.step, chosen);
            if (failed) st_relaxed_sys(&a.result[i].failed, 1);
            st_relaxed_sys(&a.result[i].steps, next);
        }
        if (ends) self.alive &= ~(1u << i);
        else last = i;
    }
    self.last = last;
}

/* ---- a step ---- */

DEVICE DecodeProduct decode_product_of(const Decoder &self, uint32_t kind, uint32_t layer) {
    const mgv__decode_arguments &a = self.arguments;
    const uint32_t blocks = a.product[kind].blocks, which = kind == MGV__PRODUCT_GATE_UP;
    DecodeProduct product = {kind, layer, a.rows[which], a.width / 2, decode_tag(self, layer), MGV__DECODE_ROWS,
                             mgv__decode_first(blocks, blockIdx.x, gridDim.x), mgv__decode_first(blocks, blockIdx.x + 1, gridDim.x)};
    if (kind == MGV__PRODUCT_OUT) {
        product.rows = a.attended;
        product.pitch = a.heads * (MGV__DECODE_HEAD_DIM / 2);
        product.wait = MGV__DECODE_ATTENDED;
    } else if (kind == MGV__PRODUCT_DOWN) {
        product.rows = a.hidden;
        product.pitch = a.intermediate / 2;
        product.wait = MGV__DECODE_HIDDEN;
    }
    return product;
}

/* All products of a step in their order; one loop, so that their code is there once. 1: the CTA gives up. */
template <class Work> DEVICE uint32_t decode_each_product(Decoder &self, const Work &work) {
    const uint32_t layers = self.arguments.layers, headed = mgv__decode_headed(&self.arguments, self.step);
#pragma unroll 1
    for (uint32_t i = 0; i < layers * MGV__PRODUCT_HEAD + headed; i++) {
        const uint32_t layer = i / MGV__PRODUCT_HEAD, kind = layer == layers ? (uint32_t)MGV__PRODUCT_HEAD : i % MGV__PRODUCT_HEAD;
        if (work(decode_product_of(self, kind, layer))) return 1;
    }
    return 0;
}

/* Step after step, until no session goes on or a warp gives up: then it says so where all meet. meet: what is done in between, by the
   warps of sessions. */
template <class Work, class Meet> DEVICE void decode_each_step(Decoder &self, const Work &work, const Meet &meet) {
#pragma unroll 1
    for (; self.alive; self.step++, self.generation += mgv__decode_generations(&self.arguments)) {
        work();
        if (decode_sync_step(self)) break;
        meet();
        if (decode_sync_step(self)) break;
        decode_next(self);
    }
    warp_sync();
    if (self.lane == 0) mbarrier_arrive(shared_address(&self.shared->ended));
}

static_assert(MGV__DECODE_SESSIONS <= MGV__DECODE_WARPS, "a session has a warp that multiplies");
template <uint32_t SLICES, bool MANY, bool CHANCE>
DEVICE void decode_product_role(DecodeMemory *shared, const mgv__decode_arguments &arguments) {
    Decoder self(shared, arguments, 0);
    const auto work = [&]() {
        DecodeBest best[MANY ? DECODE_HALVES : 1];
#pragma unroll
        for (uint32_t half = 0; half < (MANY ? DECODE_HALVES : 1); half++) {
            best[half] = {0, DECODE_NO_ID};
            if (half == 0 || arguments.sessions > MGV__DECODE_SESSIONS / DECODE_HALVES) decode_embed(self, half);
        }
        decode_ablation_arrive(self, MGV__DECODE_WARPS);
        const auto multiply = [&](const DecodeProduct &product) {
            decode_ablation_before(self, product.layer, product.kind);
            if (decode_product<SLICES, MANY>(self, product, best)) return 1u;
            if (product.kind != MGV__PRODUCT_HEAD) decode_ablation_arrive(self, MGV__DECODE_WARPS);
            return 0u;
        };
        if (decode_each_product(self, multiply)) return;
#pragma unroll
        for (uint32_t half = 0; half < (MANY ? DECODE_HALVES : 1); half++) decode_leave_best(self, half, best[half]);
    };
    decode_each_step(self, work, [&]() {
        decode_put_best(self);
        decode_gather_best<CHANCE>(self);
    });
}

DEVICE void decode_norm_role(DecodeMemory *shared, const mgv__decode_arguments &arguments) {
    Decoder self(shared, arguments, DECODE_FIRST_NORM_WARP);
    const auto work = [&]() {
        decode_each_product(self, [&](const DecodeProduct &product) { return decode_product_norm(self, product); });
    };
    decode_each_step(self, work, []() {});
}

template <int HEADS, bool LATE> DEVICE uint32_t decode_attention_layer(Decoder &self, uint32_t layer, uint64_t counts) {
    decode_ablation_meet(self, layer, DECODE_PHASE_QKV);
    if (decode_attention<HEADS, LATE>(self, layer, counts)) return 1;
    decode_ablation_arrive(self, MGV__DECODE_ATTENTION_WARPS);
    decode_ablation_meet(self, layer, DECODE_PHASE_ATTENTION);
    decode_join(self, layer, counts);
    decode_ablation_arrive(self, MGV__DECODE_ATTENTION_WARPS);
    return 0;
}
template <int HEADS, bool LATE> DEVICE void decode_attention_role(DecodeMemory *shared, const mgv__decode_arguments &arguments) {
    Decoder self(shared, arguments, DECODE_FIRST_ATTENTION_WARP);
    const auto work = [&]() {
        /* asked for where it need not be waited for */
        const uint32_t cancelled = blockIdx.x == 0 && self.thread == 0 ? ld_relaxed_sys(arguments.cancelled) : 0;
        const uint64_t counts = decode_count_segments(self);
#pragma unroll 1
        for (uint32_t layer = 0; layer < arguments.layers; layer++)
            if (decode_attention_layer<HEADS, LATE>(self, layer, counts)) break;
        if (blockIdx.x == 0 && self.thread == 0) self.shared->cancelled = cancelled;
    };
    decode_each_step(self, work, []() {});
}

template <uint32_t SLICES, int HEADS, bool MANY, bool CHANCE>
DEVICE void decode_kernel(DecodeMemory *shared, const mgv__decode_arguments &arguments) {
    const uint32_t warp = threadIdx.x / 32;
    if (threadIdx.x == 0) {
#pragma unroll 1
        for (uint32_t i = 0; i < MGV__DECODE_STAGES; i++) {
            mbarrier_init(shared_address(&shared->full[i]), 1);
            mbarrier_init(shared_address(&shared->empty[i]), MGV__DECODE_WARPS);
        }
        mbarrier_init(shared_address(&shared->ended), DECODE_WORKERS);
        decode_ablation_begin(shared, arguments);
        fence_mbarrier_init_release_cluster();
    }
    bar_sync_all();
    if (warp >= DECODE_FIRST_NORM_WARP) {
        setmaxnreg_dec<MGV__DECODE_OTHER_REGISTERS>();
        if (warp != DECODE_LOADER_WARP) decode_norm_role(shared, arguments);
        else if (threadIdx.x % 32 == 0) decode_loader_role(shared, arguments);
    } else if (warp >= DECODE_FIRST_ATTENTION_WARP) {
        setmaxnreg_inc<MGV__DECODE_ATTENTION_REGISTERS>();
        decode_attention_role<HEADS, !MANY>(shared, arguments);
    } else {
        setmaxnreg_inc<MGV__DECODE_PRODUCT_REGISTERS>();
        decode_product_role<SLICES, MANY, CHANCE>(shared, arguments);
    }
}

/* For so many fragments of a row a warp, and heads of queries for one of keys: the smaller, the more registers are left for what comes
   ahead. few: for up to four sessions that take the likeliest ids, whose loop over layers is half the code and spills least. The host
   chooses (mgv__decode_kernels). */
#define DECODE_KERNEL(slices, heads, which, many, chance) \
    extern "C" __global__ void __launch_bounds__(MGV__DECODE_THREADS, 1) \
        megavit_decode_##which##slices##_##heads##_sm_90a(const __grid_constant__ mgv__decode_arguments arguments) { \
        extern __shared__ __align__(1024) uint8_t shared_bytes[]; \
        decode_kernel<slices, heads, many, chance>((DecodeMemory *)shared_bytes, arguments); \
    }
DECODE_KERNEL(12, 2, , true, true)
DECODE_KERNEL(24, 2, , true, true)
DECODE_KERNEL(32, 4, , true, true)
DECODE_KERNEL(12, 2, few_, false, false)
DECODE_KERNEL(24, 2, few_, false, false)
DECODE_KERNEL(32, 4, few_, false, false)
#undef DECODE_KERNEL

/* What the host checks before it trusts this file. */
extern "C" __device__ uint32_t megavit_decode_description[3] = {MGV__KERNEL_VERSION, sizeof(DecodeMemory), sizeof(mgv__decode_arguments)};

#endif /* MGV_DECODE_KERNEL_CUH */
