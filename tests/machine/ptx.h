/* The machine model behind the names of kernels/ptx.cuh. Included first (-include) when a kernel is compiled for the model, together with
   what CUDA's compiler would know by itself: qualifiers, built-in variables, a few functions. */
#ifndef MGV_PTX_CUH
#define MGV_PTX_CUH

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "cuda.h"

/* ---- CUDA's own words ---- */

#define __global__ __attribute__((noinline))
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ __thread /* with -femulated-tls every use asks __emutls_get_address, which knows the CTA */

#pragma GCC diagnostic ignored "-Wunknown-pragmas"

#include "operations.h"
#include "planted.h"

namespace machine {

struct Index {
    uint32_t x, y, z;
};

} // namespace machine

#define threadIdx (machine::Index{machine::op_thread_index(), 0, 0})
#define blockIdx (machine::Index{machine::op_block_index(), 0, 0})
#define blockDim (machine::Index{machine::op_block_size(), 1, 1})
#define gridDim (machine::Index{machine::op_grid_size(), 1, 1})

#define DEVICE static __device__ __forceinline__
#define ROUTINE static inline __device__ __attribute__((noinline))

static inline uint32_t __float_as_uint(float f) { uint32_t v; memcpy(&v, &f, 4); return v; }
static inline float __uint_as_float(uint32_t v) { float f; memcpy(&f, &v, 4); return f; }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
template <class T> static inline T min(T a, T b) { return a < b ? a : b; }
template <class T> static inline T max(T a, T b) { return a > b ? a : b; }
#define __syncthreads() machine::op_bar_sync(0, 0)
#define __syncwarp(...) machine::op_warp_sync(0xffffffffu)

/* ---- addresses, identity, warps ---- */

DEVICE uint32_t shared_address(const void *pointer) { return machine::op_shared_address(pointer); }
DEVICE void shared_store_u32(uint32_t address, uint32_t value) { machine::op_shared_store(address, &value, 4, false); }
DEVICE uint32_t shared_load_u32(uint32_t address) { uint32_t v; machine::op_shared_load(address, &v, 4, false); return v; }
DEVICE void red_shared_add(uint32_t address, uint32_t value) { machine::op_shared_add(address, value); }
DEVICE float shared_load_f32(uint32_t address) { float v; machine::op_shared_load(address, &v, 4, false); return v; }
DEVICE void shared_store_v2f32(uint32_t address, float x, float y) {
    const float v[2] = {x, y};
    machine::op_shared_store(address, v, 8, false);
}
DEVICE void shared_load_v2f32(uint32_t address, float &x, float &y) {
    float v[2];
    machine::op_shared_load(address, v, 8, false);
    x = v[0];
    y = v[1];
}
DEVICE void shared_store_v4f32(uint32_t address, float x, float y, float z, float w) {
    const float v[4] = {x, y, z, w};
    machine::op_shared_store(address, v, 16, false);
}
DEVICE void shared_load_v4f32(uint32_t address, float &x, float &y, float &z, float &w) {
    float v[4];
    machine::op_shared_load(address, v, 16, false);
    x = v[0];
    y = v[1];
    z = v[2];
    w = v[3];
}
DEVICE void st_shared_cluster_u32(uint32_t address, uint32_t value) { machine::op_shared_store(address, &value, 4, true); }
DEVICE void st_shared_cluster_v4_u32(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    const uint32_t v[4] = {a, b, c, d};
    machine::op_shared_store(address, v, 16, true);
}
DEVICE void ld_shared_cluster_v4_u32(uint32_t address, uint32_t &a, uint32_t &b, uint32_t &c, uint32_t &d) {
    uint32_t v[4];
    machine::op_shared_load(address, v, 16, true);
    a = v[0];
    b = v[1];
    c = v[2];
    d = v[3];
}
DEVICE void st_async_cluster_u64(uint32_t address, uint64_t value, uint32_t barrier) { machine::op_st_async(address, &value, 8, barrier); }
DEVICE void st_async_cluster_v4_u32(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t barrier) {
    const uint32_t v[4] = {a, b, c, d};
    machine::op_st_async(address, v, 16, barrier);
}
DEVICE uint32_t cluster_ctarank(void) { return machine::op_cluster_rank(); }
DEVICE uint32_t clusterid_x(void) { return machine::op_block_index() / machine::op_cluster_size(); }
DEVICE uint32_t nclusterid_x(void) { return machine::op_grid_size() / machine::op_cluster_size(); }
DEVICE uint32_t mapa_shared_cluster(uint32_t address, uint32_t rank) { return machine::op_mapa(address, rank); }
DEVICE void barrier_cluster_arrive_release(void) { machine::op_cluster_arrive(); }
DEVICE void barrier_cluster_arrive_relaxed(void) { machine::op_cluster_arrive(false); }
DEVICE void barrier_cluster_wait_acquire(void) { machine::op_cluster_wait(); }
DEVICE void bar_sync_all(void) { machine::op_bar_sync(0, 0); }
static inline bool planted(machine::Planted fault) { return machine::planted == fault; }
DEVICE void bar_sync(uint32_t id, uint32_t threads) {
    if (threads < 256 || !planted(machine::Planted::groups_do_not_meet)) machine::op_bar_sync(id, threads);
}
DEVICE uint32_t bar_red_or(uint32_t id, uint32_t threads, uint32_t yes) { return machine::op_bar_sync(id, threads, yes != 0); }
DEVICE void warp_sync(void) { machine::op_warp_sync(0xffffffffu); }
DEVICE float shfl_bfly_f32(float value, uint32_t lane_mask) {
    return __uint_as_float(machine::op_shuffle(0xffffffffu, __float_as_uint(value), (machine::op_thread_index() % 32) ^ lane_mask, true));
}
DEVICE uint32_t shfl_idx_u32(uint32_t value, uint32_t lane) { return machine::op_shuffle(0xffffffffu, value, lane, false); }
DEVICE uint32_t elect_sync(void) { machine::op_ballot(0xffffffffu, true); return threadIdx.x % 32 == 0; }
DEVICE uint32_t vote_all(uint32_t predicate) { return machine::op_ballot(0xffffffffu, predicate != 0) == 0xffffffffu; }
template <int COUNT> DEVICE void setmaxnreg_inc(void) { machine::op_setmaxnreg(COUNT, true); }
template <int COUNT> DEVICE void setmaxnreg_dec(void) { machine::op_setmaxnreg(COUNT, false); }
DEVICE uint32_t opaque(uint32_t value) { return value; }
DEVICE const uint8_t *opaque(const uint8_t *value) { return value; }
DEVICE void nanosleep(uint32_t) { machine::op_nanosleep(); }
DEVICE uint32_t clock_u32(void) { return (uint32_t)machine::op_clock(); }
DEVICE uint64_t globaltimer(void) { return machine::op_clock(); }

/* ---- mbarriers ---- */

DEVICE void mbarrier_init(uint32_t barrier, uint32_t arrivals) { machine::op_mbarrier_init(barrier, arrivals); }
DEVICE void mbarrier_inval(uint32_t barrier) { machine::op_mbarrier_inval(barrier); }
DEVICE void fence_mbarrier_init_release_cluster(void) { machine::op_fence_mbarrier_init(); }
DEVICE void mbarrier_arrive(uint32_t barrier) { machine::op_mbarrier_arrive(barrier, 1, false, 0, false, false); }
DEVICE void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) {
    machine::op_mbarrier_arrive(barrier, 1, true, bytes, false, false);
}
DEVICE void mbarrier_expect_tx(uint32_t barrier, uint32_t bytes) { machine::op_mbarrier_arrive(barrier, 0, true, bytes, false, false); }
DEVICE void mbarrier_arrive_cluster(uint32_t barrier) { machine::op_mbarrier_arrive(barrier, 1, false, 0, true, false); }
DEVICE void mbarrier_arrive_release_cluster(uint32_t barrier) { machine::op_mbarrier_arrive(barrier, 1, false, 0, true, true); }
DEVICE void mbarrier_arrive_expect_tx_cluster(uint32_t barrier, uint32_t bytes) {
    machine::op_mbarrier_arrive(barrier, 1, true, bytes, true, false);
}
DEVICE void mbarrier_expect_tx_cluster(uint32_t barrier, uint32_t bytes) {
    machine::op_mbarrier_arrive(barrier, 0, true, bytes, true, false);
}
DEVICE uint32_t mbarrier_try_wait_parity(uint32_t barrier, uint32_t parity) {
    return machine::op_mbarrier_wait(barrier, parity, true, false);
}
DEVICE uint32_t mbarrier_try_wait_parity_both(uint32_t barrier, uint32_t parity, uint32_t second, uint32_t second_parity) {
    const uint32_t first_done = mbarrier_try_wait_parity(barrier, parity);
    return mbarrier_try_wait_parity(second, second_parity) & first_done;
}
DEVICE uint32_t mbarrier_try_wait_parity_acquire_cluster(uint32_t barrier, uint32_t parity) {
    return machine::op_mbarrier_wait(barrier, parity, true, true);
}
DEVICE uint32_t mbarrier_test_wait_parity(uint32_t barrier, uint32_t parity) {
    return machine::op_mbarrier_wait(barrier, parity, false, false);
}

/* ---- proxies ---- */

DEVICE void fence_proxy_async_shared_cta(void) { machine::op_fence_proxy_async(true, false); }
DEVICE void fence_proxy_async_global(void) {
    if (!planted(machine::Planted::no_proxy_fence)) machine::op_fence_proxy_async(false, true);
}

/* ---- the copy engine ---- */

DEVICE void prefetch_tensormap(const CUtensorMap *) {}
DEVICE void prefetch_global_L2(const void *) {}
DEVICE void cp_async_bulk_prefetch_L2(const void *, uint32_t) {}
DEVICE void cp_async_bulk_tensor_2d_load(uint32_t destination, const CUtensorMap *map, int32_t x, int32_t y, uint32_t barrier) {
    const int32_t c[2] = {x, y};
    machine::op_tma_load(destination, map, 2, c, barrier, 0, false);
}
DEVICE void cp_async_bulk_tensor_2d_load_multicast(uint32_t destination, const CUtensorMap *map, int32_t x, int32_t y, uint32_t barrier,
                                                   uint16_t mask) {
    const int32_t c[2] = {x, y};
    machine::op_tma_load(destination, map, 2, c, barrier, mask, true);
}
DEVICE void cp_async_bulk_tensor_2d_load_pair(uint32_t destination, const CUtensorMap *map, int32_t x, int32_t y, uint32_t barrier) {
    const int32_t c[2] = {x, y};
    machine::op_tma_load(destination, map, 2, c, barrier, 0, false, true);
}
DEVICE void cp_async_bulk_tensor_3d_load_pair(uint32_t destination, const CUtensorMap *map, int32_t x, int32_t y, int32_t z,
                                              uint32_t barrier) {
    const int32_t c[3] = {x, y, z};
    machine::op_tma_load(destination, map, 3, c, barrier, 0, false, true);
}
DEVICE void cp_async_bulk_tensor_4d_load_pair(uint32_t destination, const CUtensorMap *map, int32_t x, int32_t y, int32_t z, int32_t w,
                                              uint32_t barrier) {
    const int32_t c[4] = {x, y, z, w};
    machine::op_tma_load(destination, map, 4, c, barrier, 0, false, true);
}
DEVICE void cp_async_bulk_tensor_2d_load_pair_multicast(uint32_t destination, const CUtensorMap *map, int32_t x, int32_t y,
                                                        uint32_t barrier, uint16_t mask) {
    const int32_t c[2] = {x, y};
    machine::op_tma_load(destination, map, 2, c, barrier, mask, true, true);
}
DEVICE void cp_async_bulk_tensor_3d_load(uint32_t destination, const CUtensorMap *map, int32_t x, int32_t y, int32_t z, uint32_t barrier) {
    const int32_t c[3] = {x, y, z};
    machine::op_tma_load(destination, map, 3, c, barrier, 0, false);
}
/* There is no L2 cache here: hints are nothing. */
DEVICE uint64_t createpolicy_evict_first(void) { return 0; }
DEVICE void cp_async_bulk_tensor_3d_load_hint(uint32_t destination, const CUtensorMap *map, int32_t x, int32_t y, int32_t z,
                                              uint32_t barrier, uint64_t) {
    cp_async_bulk_tensor_3d_load(destination, map, x, y, z, barrier);
}
DEVICE void cp_async_bulk_tensor_3d_load_multicast_hint(uint32_t destination, const CUtensorMap *map, int32_t x, int32_t y, int32_t z,
                                                        uint32_t barrier, uint16_t mask, uint64_t) {
    const int32_t c[3] = {x, y, z};
    machine::op_tma_load(destination, map, 3, c, barrier, mask, true);
}
DEVICE void cp_async_bulk_tensor_3d_store(const CUtensorMap *map, int32_t x, int32_t y, int32_t z, uint32_t source) {
    const int32_t c[3] = {x, y, z};
    machine::op_tma_store(map, 3, c, source, false);
}
DEVICE void cp_async_bulk_tensor_4d_load(uint32_t destination, const CUtensorMap *map, int32_t x, int32_t y, int32_t z, int32_t w,
                                         uint32_t barrier) {
    const int32_t c[4] = {x, y, z, w};
    machine::op_tma_load(destination, map, 4, c, barrier, 0, false);
}
DEVICE void cp_async_bulk_tensor_4d_store(const CUtensorMap *map, int32_t x, int32_t y, int32_t z, int32_t w, uint32_t source) {
    const int32_t c[4] = {x, y, z, w};
    machine::op_tma_store(map, 4, c, source, false);
}
DEVICE void cp_reduce_async_bulk_tensor_3d_add(const CUtensorMap *map, int32_t x, int32_t y, int32_t z, uint32_t source) {
    const int32_t c[3] = {x, y, z};
    machine::op_tma_store(map, 3, c, source, true);
}
DEVICE void cp_async_bulk_load(uint32_t destination, const void *source, uint32_t bytes, uint32_t barrier) {
    machine::op_bulk_load(destination, source, bytes, barrier);
}
DEVICE void cp_async_bulk_load_hint(uint32_t destination, const void *source, uint32_t bytes, uint32_t barrier, uint64_t) {
    machine::op_bulk_load(destination, source, bytes, barrier);
}
DEVICE void cp_async_bulk_commit_group(void) { machine::op_bulk_commit(); }
template <int COUNT> DEVICE void cp_async_bulk_wait_group(void) { machine::op_bulk_wait(COUNT, false); }
template <int COUNT> DEVICE void cp_async_bulk_wait_group_read(void) { machine::op_bulk_wait(COUNT, true); }

/* ---- global memory ---- */

DEVICE uint32_t ld_acquire_gpu(const uint32_t *p) { return machine::op_load_flag(p, true); }
DEVICE uint32_t ld_relaxed_gpu_before_fence(const uint32_t *p) { return machine::op_load_flag(p, true, true); }
DEVICE void fence_acquire_gpu(void) { machine::op_fence_acquire(); }
DEVICE uint32_t ld_relaxed_gpu(const uint32_t *p) { return machine::op_load_flag(p, false); }
DEVICE void ld_relaxed_gpu_v2f32(const float *p, float &x, float &y) {
    float v[2];
    machine::op_global_load(p, v, 8, false);
    x = v[0];
    y = v[1];
}
DEVICE float ld_relaxed_gpu_f32(const float *p) { float v; machine::op_global_load(p, &v, 4, false); return v; }
DEVICE void ld_relaxed_gpu_v4u32(const void *p, uint32_t &a, uint32_t &b, uint32_t &c, uint32_t &d) {
    uint32_t v[4];
    machine::op_global_load(p, v, 16, false);
    a = v[0];
    b = v[1];
    c = v[2];
    d = v[3];
}
DEVICE uint32_t ld_relaxed_gpu_word(const uint64_t *p, uint32_t tag, uint32_t &a) { return machine::op_load_word(p, tag, &a, false); }
DEVICE uint32_t ld_relaxed_gpu_words(const uint64_t *p, uint32_t tag, uint32_t &a, uint32_t &b) {
    const bool first = machine::op_load_word(p, tag, &a, false);
    return machine::op_load_word(p + 1, tag, &b, false) && first;
}
DEVICE uint32_t ld_relaxed_gpu_words_if(const uint64_t *p, uint32_t tag, uint32_t &a, uint32_t &b, uint32_t yes) {
    a = b = 0;
    return !yes || ld_relaxed_gpu_words(p, tag, a, b);
}
DEVICE uint32_t ld_relaxed_gpu_word_if(const uint64_t *p, uint32_t tag, uint32_t &a, uint32_t yes) {
    a = 0;
    return !yes || ld_relaxed_gpu_word(p, tag, a);
}
DEVICE uint32_t ld_relaxed_gpu_words_before_fence(const uint64_t *p, uint32_t tag, uint32_t &a, uint32_t &b) {
    const bool first = machine::op_load_word(p, tag, &a, true);
    return machine::op_load_word(p + 1, tag, &b, true) && first;
}
DEVICE uint32_t ld_relaxed_gpu_word_before_fence(const uint64_t *p, uint32_t tag, uint32_t &a) {
    return machine::op_load_word(p, tag, &a, true);
}
DEVICE void st_relaxed_gpu_word(uint64_t *p, uint32_t value, uint32_t tag) { machine::op_store_word(p, value, tag, false); }
DEVICE void st_release_gpu_word(uint64_t *p, uint32_t value, uint32_t tag) { machine::op_store_word(p, value, tag, true); }
DEVICE void ld_relaxed_gpu_v4u32_if(const void *p, uint32_t &a, uint32_t &b, uint32_t &c, uint32_t &d, uint32_t yes) {
    a = b = c = d = 0;
    if (yes) ld_relaxed_gpu_v4u32(p, a, b, c, d);
}
DEVICE uint32_t ld_relaxed_sys(const uint32_t *p) { return machine::op_load_flag(p, false); }
DEVICE void st_relaxed_sys(uint32_t *p, uint32_t v) { machine::op_store_flag(p, v, false); }
DEVICE void st_relaxed_gpu_v2f32(float *p, float x, float y) { const float v[2] = {x, y}; machine::op_global_store(p, v, 8); }
DEVICE void red_release_gpu_add(uint32_t *p, uint32_t v) { machine::op_atomic(p, v, 0, 0, true, false); }
DEVICE void red_relaxed_gpu_add(uint32_t *p, uint32_t v) { machine::op_atomic(p, v, 0, 0, false, false); }
/* The carry is each addition's own, so what comes out at the end is the sum. */
DEVICE void red_relaxed_gpu_add_u64(uint64_t *p, uint64_t v) {
    uint32_t *const halves = (uint32_t *)(void *)p;
    const uint32_t low = (uint32_t)v, old = machine::op_atomic(halves, low, 0, 0, false, false);
    machine::op_atomic(halves + 1, (uint32_t)(v >> 32) + (old + low < low), 0, 0, false, false);
}
DEVICE uint32_t atom_relaxed_gpu_add(uint32_t *p, uint32_t v) { return machine::op_atomic(p, v, 0, 0, false, false); }
DEVICE uint32_t atom_relaxed_gpu_cas(uint32_t *p, uint32_t expected, uint32_t desired) {
    return machine::op_atomic(p, desired, expected, 1, false, false);
}
DEVICE float ld_global_nc_f32(const float *p) { float v; machine::op_global_load(p, &v, 4, true); return v; }
DEVICE void ld_global_nc_v2f32(const float *p, float &x, float &y) {
    float v[2];
    machine::op_global_load(p, v, 8, true);
    x = v[0];
    y = v[1];
}
DEVICE uint32_t ld_global_nc_u32(const void *p) { uint32_t v; machine::op_global_load(p, &v, 4, true); return v; }
DEVICE void ld_global_nc_v4u32(const void *p, uint32_t &a, uint32_t &b, uint32_t &c, uint32_t &d) {
    uint32_t v[4];
    machine::op_global_load(p, v, 16, true);
    a = v[0];
    b = v[1];
    c = v[2];
    d = v[3];
}
DEVICE uint32_t ld_global_nc_u8(const void *p) { uint8_t v; machine::op_global_load(p, &v, 1, true); return v; }
DEVICE void st_global_u32(void *p, uint32_t v) { machine::op_global_store(p, &v, 4); }
DEVICE void st_global_u16(void *p, uint32_t v) {
    const uint16_t half = (uint16_t)v;
    if (!planted(machine::Planted::scales_of_rows_not_stored)) machine::op_global_store(p, &half, 2);
}
DEVICE void st_global_v2u32(void *p, uint32_t a, uint32_t b) { const uint32_t v[2] = {a, b}; machine::op_global_store(p, v, 8); }
DEVICE void st_global_v4u32(void *p, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    const uint32_t v[4] = {a, b, c, d};
    machine::op_global_store(p, v, 16);
}

/* ---- arithmetic ---- */

DEVICE float ex2_approx(float x) { return exp2f(x); }
DEVICE float tanh_approx(float x) { return tanhf(x); }
DEVICE float rsqrt_approx(float x) { return 1.0f / sqrtf(x); }
DEVICE float rcp_approx(float x) { return 1.0f / x; }
DEVICE uint32_t cvt_rn_bf16(float f) {
    const uint32_t v = __float_as_uint(f);
    return f != f ? 0x7fffu : (v + 0x7fffu + (v >> 16 & 1)) >> 16;
}
DEVICE uint32_t cvt_rn_bf16x2(float low, float high) { return cvt_rn_bf16(low) | cvt_rn_bf16(high) << 16; }
DEVICE uint32_t lower_halves(uint32_t a, uint32_t b) { return (a & 0xFFFFu) | b << 16; }
DEVICE uint32_t upper_halves(uint32_t a, uint32_t b) { return a >> 16 | (b & 0xFFFF0000u); }
DEVICE float bf16_low(uint32_t pair) { return __uint_as_float(pair << 16); }
DEVICE float bf16_high(uint32_t pair) { return __uint_as_float(pair & 0xFFFF0000u); }
DEVICE uint32_t cvt_rn_f16(float f) {
    const float m = fabsf(f);
    const uint32_t sign = __float_as_uint(f) >> 31 << 15, v = __float_as_uint(m);
    if (f != f) return 0x7fffu;
    if (m >= 65520) return sign | 0x7c00u;
    if (m < 6.103515625e-5f) return sign | (uint32_t)nearbyintf(m * 16777216); /* units of 2^-24 */
    return sign | (v - (112u << 23) + 0xfffu + (v >> 13 & 1)) >> 13;
}
DEVICE uint32_t cvt_rn_f16x2(float low, float high) { return cvt_rn_f16(low) | cvt_rn_f16(high) << 16; }
DEVICE float f16_low(uint32_t pair) {
    const uint32_t exponent = pair >> 10 & 31, fraction = pair & 1023;
    const float m = exponent == 31 ? (fraction ? NAN : INFINITY) : ldexpf((float)(fraction + (exponent ? 1024 : 0)), (int)(exponent ? exponent : 1) - 25);
    return pair >> 15 & 1 ? -m : m;
}
DEVICE float f16_high(uint32_t pair) { return f16_low(pair >> 16); }

/* In units of a step that depends on the exponent alone: scaled so, nearbyintf rounds to it. */
DEVICE uint32_t cvt_rn_satfinite_e4m3(float f) {
    const float m = fabsf(f);
    const uint32_t sign = __float_as_uint(f) >> 31 << 7;
    if (f != f) return 0x7f;
    if (m >= 448) return sign | 0x7e;
    const int exponent = m < 0.015625f ? -6 : ilogbf(m);
    const uint32_t eighths = (uint32_t)nearbyintf(ldexpf(m, 3 - exponent)); /* 16: the next exponent */
    return sign | ((uint32_t)(exponent + 6) * 8 + eighths); /* below 2^-6 no bit is hidden */
}
DEVICE uint32_t cvt_rn_satfinite_e4m3x2(float low, float high) {
    return cvt_rn_satfinite_e4m3(low) | cvt_rn_satfinite_e4m3(high) << 8;
}

/* ---- matrix fragments ---- */

DEVICE void stmatrix_x4(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    uint32_t v[4] = {a, b, c, d};
    machine::op_matrix(address, v, true, false);
}
DEVICE void stmatrix_x4_transposed(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    uint32_t v[4] = {a, b, c, d};
    machine::op_matrix(address, v, true, true);
}
static inline void ptx_ldmatrix_x4(uint32_t address, bool transposed, uint32_t &a, uint32_t &b, uint32_t &c, uint32_t &d) {
    uint32_t v[4] = {0, 0, 0, 0};
    machine::op_matrix(address, v, false, transposed);
    a = v[0];
    b = v[1];
    c = v[2];
    d = v[3];
}
DEVICE void ldmatrix_x4(uint32_t address, uint32_t &a, uint32_t &b, uint32_t &c, uint32_t &d) {
    ptx_ldmatrix_x4(address, false, a, b, c, d);
}
DEVICE void ldmatrix_x4_transposed(uint32_t address, uint32_t &a, uint32_t &b, uint32_t &c, uint32_t &d) {
    ptx_ldmatrix_x4(address, true, a, b, c, d);
}

DEVICE uint32_t movmatrix_transposed(uint32_t a) {
    const uint32_t lane = threadIdx.x % 32, row = lane / 4, source = lane % 4 * 8 + row / 2, shift = row % 2 * 16; /* column `row`, of the rows 2 (lane % 4) and the next */
    const uint32_t low = shfl_idx_u32(a, source), high = shfl_idx_u32(a, source + 4);
    (void)row;
    return (low >> shift & 0xffffu) | (high >> shift & 0xffffu) << 16;
}

/* ---- mma ---- */

DEVICE void mma_m16n8k16_bf16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
    const uint32_t a[4] = {a0, a1, a2, a3}, b[2] = {b0, b1};
    machine::op_mma(d, a, b, machine::Format::bf16);
}
DEVICE void mma_m16n8k16_f16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
    const uint32_t a[4] = {a0, a1, a2, a3}, b[2] = {b0, b1};
    machine::op_mma(d, a, b, machine::Format::f16);
}

/* ---- wgmma ---- */

DEVICE void wgmma_fence(void) { machine::op_wgmma_fence(); }
DEVICE void wgmma_commit_group(void) { machine::op_wgmma_commit(); }
template <int COUNT> DEVICE void wgmma_wait_group(void) { machine::op_wgmma_wait(COUNT); }
template <int COUNT> DEVICE void wgmma_registers_zero(float (&d)[COUNT]) {
    for (int i = 0; i < COUNT; i++) d[i] = 0;
}
template <int COUNT> DEVICE void wgmma_registers_fence(float (&)[COUNT]) {}
template <int COUNT> DEVICE void wgmma_m64k16_bf16_ss(float (&d)[COUNT], uint64_t a, uint64_t b, uint32_t scale_d) {
    machine::op_wgmma(d, COUNT * 2, machine::Format::bf16, false, false, false, a, nullptr, b, scale_d != 0);
}
template <int COUNT> DEVICE void wgmma_m64k16_f16_ss(float (&d)[COUNT], uint64_t a, uint64_t b, uint32_t scale_d) {
    machine::op_wgmma(d, COUNT * 2, machine::Format::f16, false, false, false, a, nullptr, b, scale_d != 0);
}
DEVICE void wgmma_m64k16_bf16_ss_transposed_a(float (&d)[32], uint64_t a, uint64_t b, uint32_t scale_d) {
    machine::op_wgmma(d, 64, machine::Format::bf16, false, true, false, a, nullptr, b, scale_d != 0);
}
DEVICE void wgmma_m64k32_e4m3_ss(float (&d)[32], uint64_t a, uint64_t b, uint32_t scale_d) {
    machine::op_wgmma(d, 64, machine::Format::e4m3, false, false, false, a, nullptr, b, scale_d != 0);
}
template <int COUNT>
DEVICE void wgmma_m64k16_bf16_rs(float (&d)[COUNT], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b, uint32_t scale_d) {
    const uint32_t a[4] = {a0, a1, a2, a3};
    machine::op_wgmma(d, COUNT * 2, machine::Format::bf16, true, false, false, 0, a, b, scale_d != 0);
}
template <int COUNT> DEVICE void wgmma_m64k16_bf16_rs_transposed_b(float (&d)[COUNT], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                                   uint64_t b, uint32_t scale_d) {
    const uint32_t a[4] = {a0, a1, a2, a3};
    machine::op_wgmma(d, COUNT * 2, machine::Format::bf16, true, false, true, 0, a, b, scale_d != 0);
}

/* ---- tcgen05 ---- */

DEVICE void tcgen05_alloc(uint32_t destination, uint32_t columns) { machine::op_tcgen05_alloc(destination, columns); }
DEVICE void tcgen05_dealloc(uint32_t address, uint32_t columns) {
    if (!planted(machine::Planted::not_freed)) machine::op_tcgen05_dealloc(address, columns);
}
DEVICE void tcgen05_relinquish_alloc_permit(void) { machine::op_tcgen05_relinquish(); }
DEVICE void tcgen05_mma_f16_ss(uint32_t d, uint64_t a, uint64_t b, uint32_t instruction, uint32_t accumulate) {
    machine::op_tcgen05_mma_f16(d, a, false, b, instruction, accumulate != 0);
}
DEVICE void tcgen05_mma_f16_ts(uint32_t d, uint32_t a, uint64_t b, uint32_t instruction, uint32_t accumulate) {
    machine::op_tcgen05_mma_f16(d, a, true, b, instruction, accumulate != 0);
}
DEVICE void tcgen05_mma_f8f6f4_ss(uint32_t d, uint64_t a, uint64_t b, uint32_t instruction, uint32_t accumulate) {
    machine::op_tcgen05_mma_f8f6f4(d, a, b, instruction, accumulate != 0);
}
DEVICE void tcgen05_mma_mxf8f6f4_ss(uint32_t d, uint64_t a, uint64_t b, uint32_t instruction, uint32_t scale_a, uint32_t scale_b,
                                    uint32_t accumulate) {
    if (planted(machine::Planted::first_scale_of_a)) instruction &= ~(3u << 29);
    if (planted(machine::Planted::first_scale_of_b)) instruction &= ~(3u << 4);
    if (planted(machine::Planted::atoms_of_b_swapped)) scale_b += 4;
    if (planted(machine::Planted::scales_of_a_for_b)) scale_b = scale_a;
    if (planted(machine::Planted::overwrites_sums)) accumulate = 0;
    machine::op_tcgen05_mma_mxf8f6f4(d, a, b, instruction, scale_a, scale_b, accumulate != 0);
}
DEVICE void tcgen05_cp_32x128b_warpx4(uint32_t address, uint64_t source) {
    if (!planted(machine::Planted::scales_not_copied)) machine::op_tcgen05_cp(address, source);
}
DEVICE void tcgen05_commit(uint32_t barrier) {
    if (!planted(machine::Planted::commit_left_out)) machine::op_tcgen05_commit(barrier, 0, false);
}
DEVICE void tcgen05_commit_multicast(uint32_t barrier, uint16_t mask) { machine::op_tcgen05_commit(barrier, mask, true); }
DEVICE void tcgen05_alloc_pair(uint32_t destination, uint32_t columns) { machine::op_tcgen05_alloc(destination, columns, 2); }
DEVICE void tcgen05_dealloc_pair(uint32_t address, uint32_t columns) { machine::op_tcgen05_dealloc(address, columns, 2); }
DEVICE void tcgen05_relinquish_alloc_permit_pair(void) { machine::op_tcgen05_relinquish(2); }
DEVICE void tcgen05_mma_f16_ss_pair(uint32_t d, uint64_t a, uint64_t b, uint32_t instruction, uint32_t accumulate) {
    machine::op_tcgen05_mma_f16(d, a, false, b, instruction, accumulate != 0, 2);
}
DEVICE void tcgen05_mma_f16_ts_pair(uint32_t d, uint32_t a, uint64_t b, uint32_t instruction, uint32_t accumulate) {
    machine::op_tcgen05_mma_f16(d, a, true, b, instruction, accumulate != 0, 2);
}
DEVICE void tcgen05_mma_mxf8f6f4_ss_pair(uint32_t d, uint64_t a, uint64_t b, uint32_t instruction, uint32_t scale_a, uint32_t scale_b,
                                         uint32_t accumulate) {
    machine::op_tcgen05_mma_mxf8f6f4(d, a, b, instruction, scale_a, scale_b, accumulate != 0, 2);
}
DEVICE void tcgen05_cp_32x128b_warpx4_pair(uint32_t address, uint64_t source) { machine::op_tcgen05_cp(address, source, 2); }
DEVICE void tcgen05_commit_pair(uint32_t barrier, uint16_t mask) { machine::op_tcgen05_commit(barrier, mask, true, 2); }
DEVICE void tcgen05_fence_before_thread_sync(void) {
    if (!planted(machine::Planted::no_fence_before)) machine::op_tcgen05_fence(false);
}
DEVICE void tcgen05_fence_after_thread_sync(void) {
    if (!planted(machine::Planted::no_fence_after)) machine::op_tcgen05_fence(true);
}
DEVICE void tcgen05_wait_ld(void) {
    if (!planted(machine::Planted::load_not_waited_for)) machine::op_tcgen05_wait_ld();
}
DEVICE void tcgen05_wait_st(void) {
    if (!planted(machine::Planted::store_not_waited_for)) machine::op_tcgen05_wait_st();
}
template <int COUNT> DEVICE void tcgen05_ld_32x32b(uint32_t (&r)[COUNT], uint32_t address) {
    machine::op_tcgen05_ld(r, COUNT, address, 32);
}
template <int COUNT> DEVICE void tcgen05_ld_16x256b(uint32_t (&r)[COUNT], uint32_t address) {
    machine::op_tcgen05_ld(r, COUNT, address, 16);
}
DEVICE void tcgen05_ld_16x256b(uint32_t &a, uint32_t &b, uint32_t &c, uint32_t &d, uint32_t &e, uint32_t &f, uint32_t &g, uint32_t &h,
                               uint32_t address) {
    uint32_t r[8];
    machine::op_tcgen05_ld(r, 8, address, 16);
    a = r[0], b = r[1], c = r[2], d = r[3], e = r[4], f = r[5], g = r[6], h = r[7];
}
DEVICE uint32_t tcgen05_loaded(uint32_t value) { return value; }
DEVICE void tcgen05_st_16x128b(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    const uint32_t r[4] = {a, b, c, d};
    machine::op_tcgen05_st(address, r, 4, 16);
}
template <int COUNT> DEVICE void tcgen05_st_32x32b(uint32_t address, const uint32_t (&r)[COUNT]) {
    machine::op_tcgen05_st(address, r, COUNT, 32);
}

#endif
