/* megavit: decoding without one of its ideas, to time what it gives (tests/gpu/decode.sh ablations). A build says which one is left out:
   DECODE_ABLATION. Without it nothing of this is compiled.

   BARRIERS: all CTAs meet behind every operation, in front of the words that say so one by one. NO_PREFETCH: weights are asked for when the
   rows that they are multiplied with are there (a product whose rows do not lie in registers as a whole: when it begins). NORM_STEP: the
   first CTA finds a row's norm and tells the others; ids that are chosen by chance are not for it. WHOLE_KEYS: a head's keys are not shared
   out. */
#ifndef MGV_DECODE_ABLATIONS_CUH
#define MGV_DECODE_ABLATIONS_CUH

#include "memory.cuh"

#ifdef DECODE_ABLATION
enum { DECODE_BARRIERS = 1, DECODE_NO_PREFETCH, DECODE_NORM_STEP, DECODE_WHOLE_KEYS };
/* Operations behind which all meet: embeddings, then those of each layer. */
enum { DECODE_PHASE_QKV = 1, DECODE_PHASE_ATTENTION, DECODE_PHASE_JOIN, DECODE_PHASE_OUT, DECODE_PHASE_GATE_UP, DECODE_PHASE_DOWN,
       DECODE_PHASES = DECODE_PHASE_DOWN };
enum { DECODE_ABLATION_BARRIER = 4 };

/* In the abort word's block, which is zero in the beginning: how often CTAs have come to an operation's end, in all launches. */
DEVICE uint32_t *decode_arrivals(const mgv__decode_arguments &a) { return a.aborted + 16; }

/* Before any warp of the CTA arrives, so that what others have added is less than a whole meeting. */
DEVICE void decode_ablation_begin(DecodeMemory *shared, const mgv__decode_arguments &a) {
    shared->arrived = ld_relaxed_gpu(decode_arrivals(a)) / gridDim.x * gridDim.x;
    mbarrier_init(shared_address(&shared->started), MGV__DECODE_WARPS);
}
DEVICE void decode_ablation_meet(Decoder &self, uint32_t layer, uint32_t phase) {
    if (DECODE_ABLATION != DECODE_BARRIERS) return;
    const mgv__decode_arguments &a = self.arguments;
    const uint32_t before = self.step * (1 + a.layers * DECODE_PHASES) + layer * DECODE_PHASES + phase;
    const uint32_t awaited = self.shared->arrived + (before + 1) * gridDim.x;
    decode_wait(self, MGV__DECODE_ROWS, [&]() { return (int32_t)(ld_relaxed_gpu_before_fence(decode_arrivals(a)) - awaited) >= 0; });
    fence_acquire_gpu();
}
/* All warps of a role, at an operation's end. */
DEVICE void decode_ablation_arrive(Decoder &self, uint32_t warps) {
    if (DECODE_ABLATION != DECODE_BARRIERS) return;
    if (warps == MGV__DECODE_WARPS) decode_sync(self, DECODE_ABLATION_BARRIER, warps);
    else decode_sync_attention(self);
    if (self.thread == 0 && !self.gone) red_release_gpu_add(decode_arrivals(self.arguments), 1);
}
DEVICE void decode_ablation_before(Decoder &self, uint32_t layer, uint32_t kind) {
    const uint32_t phase = kind == MGV__PRODUCT_OUT       ? DECODE_PHASE_JOIN
                           : kind == MGV__PRODUCT_GATE_UP ? DECODE_PHASE_OUT
                           : kind == MGV__PRODUCT_DOWN    ? DECODE_PHASE_GATE_UP
                                                          : 0; /* of the layer before its last one, which counts on */
    decode_ablation_meet(self, layer, phase);
}

/* Warps that multiply have the rows of a product. */
DEVICE void decode_ablation_started(const Decoder &self) {
    warp_sync();
    if (self.lane == 0) mbarrier_arrive(shared_address(&self.shared->started));
}
/* The loader's wait for them, of product number `number` of this CTA. 0: nobody comes any more. */
DEVICE uint32_t decode_ablation_wait_started(DecodeMemory *shared, uint32_t number) {
    if (DECODE_ABLATION != DECODE_NO_PREFETCH) return 1;
#pragma unroll 1
    while (!mbarrier_try_wait_parity(shared_address(&shared->started), number & 1))
        if (mbarrier_test_wait_parity(shared_address(&shared->ended), 0)) return 0;
    return 1;
}

/* Where the first CTA tells a row's norm. */
DEVICE uint64_t *decode_ablation_norm(const Decoder &self, uint32_t session, uint32_t which) {
    return self.arguments.meetings + session * 2 * gridDim.x + which;
}
/* 1: this CTA is told of those of sessions [begin, begin + count). */
DEVICE uint32_t decode_ablation_take_norms(Decoder &self, uint32_t begin, uint32_t count, uint32_t which, uint32_t tag, uint32_t scales) {
    if (DECODE_ABLATION != DECODE_NORM_STEP || blockIdx.x == 0) return 0;
#pragma unroll 1
    for (uint32_t session = begin; session < begin + count; session++) {
        const uint64_t *const word = decode_ablation_norm(self, session, which);
        uint32_t value = 0;
        if (!(self.alive >> session & 1)) continue;
        decode_wait(self, MGV__DECODE_SQUARES, [&]() { return ld_relaxed_gpu_word(word, tag, value); });
        if (self.lane == 0) self.shared->scale[scales][session] = __uint_as_float(value);
    }
    return 1;
}
DEVICE void decode_ablation_tell_norm(const Decoder &self, uint32_t session, uint32_t which, uint32_t tag, float scale) {
    if (DECODE_ABLATION == DECODE_NORM_STEP && blockIdx.x == 0 && self.lane == 0)
        st_relaxed_gpu_word(decode_ablation_norm(self, session, which), __float_as_uint(scale), tag);
}
DEVICE uint32_t decode_segment(uint32_t keys) { return DECODE_ABLATION == DECODE_WHOLE_KEYS ? keys : mgv__decode_segment(keys); }

#else
#define decode_ablation_begin(shared, arguments) ((void)0)
#define decode_ablation_meet(self, layer, phase) ((void)0)
#define decode_ablation_arrive(self, warps) ((void)0)
#define decode_ablation_before(self, layer, kind) ((void)0)
#define decode_ablation_started(self) ((void)0)
#define decode_ablation_wait_started(shared, number) 1
#define decode_ablation_take_norms(self, begin, count, which, tag, scales) 0
#define decode_ablation_tell_norm(self, session, which, tag, scale) ((void)0)
#define decode_segment(keys) mgv__decode_segment(keys)
#endif

#endif /* MGV_DECODE_ABLATIONS_CUH */
