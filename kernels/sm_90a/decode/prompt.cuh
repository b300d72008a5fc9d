/* megavit: prompts, the persistent kernel: a launch appends many ids to one session's cache, all of them given.

   It multiplies the decoder's own packed weights: A of m16n8k16 there, a warp's A of m64k16 here, and 128 ids are the columns of B. The
   work is a list of tiles, in an order in which each waits for earlier ones alone, and CTA i of n has every n-th; a counter for each
   operation and block of 128 ids says how many of its tiles are done. What a row gives hangs neither on its place in a tile nor on the
   rows beside it: columns of B are apart, K goes in one order, keys are taken in blocks of 64 from the first one on, and a block of which
   a row has nothing leaves it as it was.

   A second kernel is for few ids, and tiles are narrow or wide; through which of them a row goes, it does not know either.

   Eight warps work, one copies ahead of them: weights and rows, keys and values. Rows that products read lie in fragments of B, eight ids
   by 16 columns (prompt_place). Read in this order: prompt_tiles, prompt_product, prompt_attention, this file. */
#ifndef MGV_PROMPT_CUH
#define MGV_PROMPT_CUH

#include "prompt_attention.cuh"
#include "prompt_product.cuh"

/* All that the tile writes is there for the copies of whoever waits for it. 1: the launch is given up. */
DEVICE uint32_t prompt_signal(Prompter &self, const PromptTile &tile) {
    const uint32_t counter = prompt_counter(tile.op, tile.block);
    fence_proxy_async_global();
    if (prompt_sync(self)) return 1;
    if (threadIdx.x == 0 && self.a.lost_signal != 1 + counter) red_release_gpu_add(self.a.counters + counter, 1);
    return 0;
}
template <uint32_t EIGHTS> DEVICE void prompt_math_role(PromptMemory *shared, const mgv__prompt_arguments &arguments) {
    Prompter self(shared, arguments);
    prompt_each_tile(self, [&](const PromptTile &tile) {
        if (tile.kind == MGV__PROMPT_EMBED) prompt_embed(self, tile);
        else if (tile.kind == MGV__PROMPT_ATTENTION) prompt_attention(self, tile);
        else if (EIGHTS == MGV__PROMPT_ROWS / 8 && tile.wide) {
            if (prompt_product<EIGHTS, 1>(self, tile)) return 1u;
        } else if (prompt_product<EIGHTS, 0>(self, tile)) return 1u;
        return prompt_signal(self, tile);
    });
}

template <uint32_t EIGHTS> DEVICE void prompt_kernel(PromptMemory *shared, const mgv__prompt_arguments &arguments) {
    if (threadIdx.x == 0) {
#pragma unroll 1
        for (uint32_t i = 0; i < MGV__PROMPT_STAGES; i++) {
            mbarrier_init(shared_address(&shared->full[i]), 1);
            mbarrier_init(shared_address(&shared->empty[i]), MGV__PROMPT_WARPS);
        }
        fence_mbarrier_init_release_cluster();
    }
    bar_sync_all();
    if (threadIdx.x / 32 >= MGV__PROMPT_WARPS) {
        setmaxnreg_dec<MGV__PROMPT_COPY_REGISTERS>();
        if (threadIdx.x / 32 == MGV__PROMPT_WARPS) prompt_loader_role<EIGHTS>(shared, arguments);
    } else {
        setmaxnreg_inc<MGV__PROMPT_REGISTERS>();
        prompt_math_role<EIGHTS>(shared, arguments);
    }
}
extern "C" __global__ void __launch_bounds__(MGV__PROMPT_THREADS, 1)
    megavit_prompt_sm_90a(const __grid_constant__ mgv__prompt_arguments arguments) {
    extern __shared__ __align__(1024) uint8_t shared_bytes[];
    prompt_kernel<MGV__PROMPT_ROWS / 8>((PromptMemory *)shared_bytes, arguments);
}
/* For up to MGV__PROMPT_FEW ids. */
extern "C" __global__ void __launch_bounds__(MGV__PROMPT_THREADS, 1)
    megavit_prompt_few_sm_90a(const __grid_constant__ mgv__prompt_arguments arguments) {
    extern __shared__ __align__(1024) uint8_t shared_bytes[];
    prompt_kernel<MGV__PROMPT_FEW / 8>((PromptMemory *)shared_bytes, arguments);
}

/* What the host checks before it trusts this file. */
extern "C" __device__ uint32_t megavit_prompt_description[3] = {MGV__KERNEL_VERSION, sizeof(PromptMemory), sizeof(mgv__prompt_arguments)};

#endif /* MGV_PROMPT_CUH */
