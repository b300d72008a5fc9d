/* megavit: decoding, shared memory and waits.

   A CTA's work in a step hangs on words that others write: 8 bytes, value and generation in one. So there are no barriers between CTAs and
   no fences, but for hand-offs behind each id (kernel.cuh, sample.cuh), which order the cache. Every wait is bounded: whoever has looked
   too often says so in the abort word, whoever waits for long looks there, and at the next barrier of its CTA all warps leave together. */
#ifndef MGV_DECODE_MEMORY_CUH
#define MGV_DECODE_MEMORY_CUH

#include "../../ptx.cuh"

enum {
    DECODE_SUMS = MGV__DECODE_SESSIONS * MGV__DECODE_GROUP * 16, /* rows of a group of blocks, for each session */
    DECODE_FIRST_ATTENTION_WARP = MGV__DECODE_WARPS,
    DECODE_FIRST_NORM_WARP = DECODE_FIRST_ATTENTION_WARP + MGV__DECODE_ATTENTION_WARPS,
    DECODE_NORM_WARPS = 3,
    DECODE_LOADER_WARP = DECODE_FIRST_NORM_WARP + DECODE_NORM_WARPS,
    DECODE_WORKERS = DECODE_LOADER_WARP, /* warps that meet behind each id: all but the loader */
    DECODE_LOOKS = 64 /* looks at words before a wait looks at the abort word */
};

/* Numbers of named barriers, and who meets there. */
enum { DECODE_PRODUCT_BARRIER = 1, DECODE_ATTENTION_BARRIER, DECODE_STEP_BARRIER };

struct DecodeMemory {
    uint8_t ring[MGV__DECODE_STAGES][MGV__DECODE_STAGE_BYTES];
    union {
        float sums[2][MGV__DECODE_WARPS][DECODE_SUMS];
        uint32_t bins[MGV__DECODE_SESSIONS][MGV__DECODE_BINS][3]; /* behind an id: ids and two parts of their weights */
    };
    float attended[MGV__DECODE_ATTENTION_WARPS][MGV__DECODE_GROUP_HEADS * MGV__DECODE_HEAD_DIM];
    float weight[MGV__DECODE_ATTENTION_WARPS][MGV__DECODE_GROUP_HEADS][2]; /* largest score, sum of weights */
    float raw[(MGV__DECODE_GROUP_HEADS + 2) * MGV__DECODE_HEAD_DIM]; /* q, k, v as the product gives them */
    uint32_t query[MGV__DECODE_GROUP_HEADS * MGV__DECODE_HEAD_DIM]; /* as products take them */
    uint32_t fresh[2][MGV__DECODE_HEAD_DIM / 2]; /* key and value of the id itself, as the cache has them */
    float residual[MGV__DECODE_RESIDUAL];
    float scale[2][MGV__DECODE_SESSIONS];        /* reciprocal roots of the mean squares of rows */
    uint32_t best[MGV__DECODE_SESSIONS][2][2];   /* of two warps: key, id */
    uint32_t token[MGV__DECODE_SESSIONS][2];     /* id chosen, whether logits are no numbers */
    uint32_t cancelled;                          /* the host wants an end: of the first CTA */
    uint32_t ends;                               /* what the first CTA has said of that to all */
    uint64_t full[MGV__DECODE_STAGES], empty[MGV__DECODE_STAGES];
    uint64_t ended;                              /* no weights are needed any more */
#ifdef DECODE_ABLATION
    uint64_t started;
    uint32_t arrived;
#endif
};
static_assert(sizeof(DecodeMemory) <= MGV__MAX_SHARED_BYTES, "shared memory of one CTA");

/* A warp of those that work, and how far it has come. */
struct Decoder {
    DecodeMemory *shared;
    const mgv__decode_arguments &arguments;
    uint32_t gone;            /* this warp has given up */
    uint32_t warp, lane, thread; /* of its role's */
    uint32_t stage, parity;   /* of the ring */
    uint32_t sums, scales; /* which of two */
    uint32_t alive;           /* sessions that go on, bit by bit */
    uint32_t last;            /* of them */
    uint32_t step;
    uint32_t generation;      /* of the step's first words */
    uint32_t tables;          /* of its session's choices, how many, but for first ones */
    __device__ __forceinline__ Decoder(DecodeMemory *s, const mgv__decode_arguments &a, uint32_t first_warp)
        : shared(s), arguments(a), gone(0), warp(threadIdx.x / 32 - first_warp), lane(threadIdx.x % 32),
          thread(threadIdx.x - first_warp * 32), stage(0), parity(0), sums(0), scales(0), alive((1u << a.sessions) - 1),
          last(a.sessions - 1), step(0), generation(a.generation), tables(0) {}
};

/* What is computed from a thread's place stays where it is written: out of the loop over layers it would take all registers. */
DEVICE void decode_forget(Decoder &self) {
    self.thread = opaque(self.thread);
    self.lane = opaque(self.lane);
    self.warp = opaque(self.warp);
}

/* 1 if any that meet here has given up. */
DEVICE uint32_t decode_sync(Decoder &self, uint32_t barrier, uint32_t warps) {
    self.gone = bar_red_or(barrier, 32 * warps, self.gone);
    decode_forget(self);
    return self.gone;
}
/* Those that multiply, and the norm warps. */
DEVICE uint32_t decode_sync_product(Decoder &self) {
    return decode_sync(self, DECODE_PRODUCT_BARRIER, MGV__DECODE_WARPS + DECODE_NORM_WARPS);
}
DEVICE uint32_t decode_sync_attention(Decoder &self) { return decode_sync(self, DECODE_ATTENTION_BARRIER, MGV__DECODE_ATTENTION_WARPS); }
DEVICE uint32_t decode_sync_step(Decoder &self) { return decode_sync(self, DECODE_STEP_BARRIER, DECODE_WORKERS); }

/* Says that this wait was too long, if nobody has said so of another one. at: the step, or of a prompt the operation. */
DEVICE void decode_abort(const mgv__decode_arguments &a, uint32_t lane, uint32_t wait, uint32_t at, uint32_t looks) {
    mgv__kernel_status *const status = a.status;
    if (lane || atom_relaxed_gpu_cas(a.aborted, 0, wait) != 0) return;
    st_relaxed_sys(&status->op, at);
    st_relaxed_sys(&status->cta, blockIdx.x);
    st_relaxed_sys(&status->index, threadIdx.x / 32);
    st_relaxed_sys(&status->seen, looks);
    st_relaxed_sys(&status->expected, a.poll_limit);
    st_relaxed_sys(&status->aborted, wait);
}
/* Whether this lane, which has looked `looks` times for what it waits for, is to give up at `limit` of them, or another one has. */
DEVICE uint32_t decode_is_too_long(const mgv__decode_arguments &a, uint32_t lane, uint32_t wait, uint32_t at, uint32_t looks,
                                   uint32_t limit) {
    if (ld_relaxed_gpu(a.aborted) != 0) return 1;
    if (looks < limit) return 0;
    decode_abort(a, lane, wait, at, looks);
    return 1;
}
/* Until look() says 1 on all lanes. 0: the warp has given up, and `gone` says so. */
template <class Look>
DEVICE uint32_t decode_wait_at(const mgv__decode_arguments &a, uint32_t lane, uint32_t &gone, uint32_t wait, uint32_t at,
                               const Look &look) {
    if (gone) return 0;
#pragma unroll 1
    for (uint32_t looks = 1; !vote_all(look()); looks++) {
        if (looks % DECODE_LOOKS) continue;
        gone = !vote_all(!decode_is_too_long(a, lane, wait, at, looks, a.poll_limit));
        if (gone) return 0;
    }
    return 1;
}
template <class Look> DEVICE uint32_t decode_wait(Decoder &self, uint32_t wait, const Look &look) {
    return decode_wait_at(self.arguments, self.lane, self.gone, wait, self.step, look);
}

/* Words of all CTAs: a lane looks at so many of them at once, number i from `first` on. Beyond the last one it is the CTA's own. */
enum { DECODE_AT_ONCE = 5 };
DEVICE uint32_t decode_other_cta(const Decoder &self, uint32_t first, uint32_t i) {
    const uint32_t cta = first + 32 * i + self.lane;
    return cta < gridDim.x ? cta : blockIdx.x;
}

DEVICE void decode_put(const Decoder &self, uint32_t kind, uint64_t *word, uint32_t value, uint32_t tag) {
    const mgv__decode_arguments &a = self.arguments;
    if (a.lost_word == kind && a.lost_cta == blockIdx.x && a.lost_generation == tag) return;
    st_relaxed_gpu_word(word, value, tag);
}

/* Generations of a step: what comes out of layer `layer`'s products; of rows before attention there is one more, before the head. Behind
   that there are those of meetings. */
DEVICE uint32_t decode_tag(const Decoder &self, uint32_t layer) {
    return self.generation + layer;
}

#endif /* MGV_DECODE_MEMORY_CUH */
