/* megavit: one wrapper per PTX instruction. The only file with asm.

   Each wrapper is named after its instruction and takes plain values: shared-memory addresses as uint32_t (the .shared::cta or
   .shared::cluster window), matrix descriptors as uint64_t, tensor maps as const CUtensorMap *. "sm_90+" or "sm_90a" says where the
   instruction exists. An executable model of the machine stands behind the same names: it is included first and defines MGV_PTX_CUH. */
#ifndef MGV_PTX_CUH
#define MGV_PTX_CUH

#include <cuda.h>
#include <stdint.h>

#define DEVICE static __device__ __forceinline__
/* A role, or the work on one tile: apart from DEVICE so that the machine model compiles one for all kernels and not one a kernel. */
#define ROUTINE DEVICE

/* --- addresses, identity, warps ------------------------------------------------------------------------------- */

DEVICE uint32_t shared_address(const void *pointer) { return (uint32_t)__cvta_generic_to_shared(pointer); }
DEVICE void shared_store_u32(uint32_t address, uint32_t value) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
DEVICE uint32_t shared_load_u32(uint32_t address) {
    uint32_t value;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
    return value;
}
DEVICE void red_shared_add(uint32_t address, uint32_t value) {
    asm volatile("red.relaxed.cta.shared.add.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
DEVICE float shared_load_f32(uint32_t address) { return __uint_as_float(shared_load_u32(address)); }
DEVICE void shared_store_v2f32(uint32_t address, float x, float y) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x), "f"(y) : "memory");
}
DEVICE void shared_load_v2f32(uint32_t address, float &x, float &y) {
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x), "=f"(y) : "r"(address) : "memory");
}
DEVICE void shared_store_v4f32(uint32_t address, float x, float y, float z, float w) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(x), "f"(y), "f"(z), "f"(w) : "memory");
}
DEVICE void shared_load_v4f32(uint32_t address, float &x, float &y, float &z, float &w) {
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(x), "=f"(y), "=f"(z), "=f"(w) : "r"(address) : "memory");
}
/* sm_90+: shared memory of any CTA of the cluster; addresses from mapa. */
DEVICE void st_shared_cluster_u32(uint32_t address, uint32_t value) {
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
DEVICE void st_shared_cluster_v4_u32(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    asm volatile("st.shared::cluster.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
DEVICE void ld_shared_cluster_v4_u32(uint32_t address, uint32_t &a, uint32_t &b, uint32_t &c, uint32_t &d) {
    asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(address) : "memory");
}
/* sm_90+: stores that are done later, counted in bytes on an mbarrier of the CTA that they go to: whoever waits for it sees them, without
   a fence and without a cluster-scope acquire. Ordinary memory for all else (no proxy fence),
   and nothing about the sender's other writes. */
DEVICE void st_async_cluster_u64(uint32_t address, uint64_t value, uint32_t barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];"
                 ::"r"(address), "l"(value), "r"(barrier) : "memory");
}
DEVICE void st_async_cluster_v4_u32(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];"
                 ::"r"(address), "r"(a), "r"(b), "r"(c), "r"(d), "r"(barrier) : "memory");
}
/* sm_90+: rank of this CTA in its cluster, number of this cluster and of all clusters. */
DEVICE uint32_t cluster_ctarank(void) { uint32_t v; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(v)); return v; }
DEVICE uint32_t clusterid_x(void) { uint32_t v; asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(v)); return v; }
DEVICE uint32_t nclusterid_x(void) { uint32_t v; asm volatile("mov.u32 %0, %%nclusterid.x;" : "=r"(v)); return v; }
/* sm_90+: the address, in the cluster's window, of the same shared-memory offset in CTA `rank`. */
DEVICE uint32_t mapa_shared_cluster(uint32_t address, uint32_t rank) {
    uint32_t v;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(v) : "r"(address), "r"(rank));
    return v;
}
/* sm_90+: arrive at and wait for the cluster's hardware barrier; every thread of the cluster does both. */
DEVICE void barrier_cluster_arrive_release(void) { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
/* Without the release, which is a MEMBAR.ALL.GPU: hands over nothing but what fence_mbarrier_init_release_cluster has. */
DEVICE void barrier_cluster_arrive_relaxed(void) { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
DEVICE void barrier_cluster_wait_acquire(void) { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
DEVICE void bar_sync_all(void) { asm volatile("bar.sync 0;" ::: "memory"); }
/* Named barrier `id` among `threads` threads, a multiple of 32. Barrier 0 belongs to bar_sync_all. */
DEVICE void bar_sync(uint32_t id, uint32_t threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
/* The same; 1 if any thread came with yes. */
DEVICE uint32_t bar_red_or(uint32_t id, uint32_t threads, uint32_t yes) {
    uint32_t any;
    asm volatile("{\n.reg .pred p, q;\nsetp.ne.b32 p, %3, 0;\nbarrier.cta.red.or.pred q, %1, %2, p;\nselp.u32 %0, 1, 0, q;\n}\n"
                 : "=r"(any) : "r"(id), "r"(threads), "r"(yes) : "memory");
    return any;
}
DEVICE void warp_sync(void) { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }
DEVICE float shfl_bfly_f32(float value, uint32_t lane_mask) {
    float v;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(v) : "f"(value), "r"(lane_mask));
    return v;
}
DEVICE uint32_t shfl_idx_u32(uint32_t value, uint32_t lane) {
    uint32_t v;
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(v) : "r"(value), "r"(lane));
    return v;
}
/* 1 when the predicate holds on all 32 lanes. */
DEVICE uint32_t vote_all(uint32_t predicate) {
    uint32_t v;
    asm volatile("{\n.reg .pred p, q;\nsetp.ne.u32 p, %1, 0;\nvote.sync.all.pred q, p, 0xffffffff;\nselp.u32 %0, 1, 0, q;\n}"
                 : "=r"(v) : "r"(predicate));
    return v;
}
/* sm_90+: 1 on one lane of the whole warp, always the same. The compiler then knows that a single lane runs what depends on it, and builds
   no loop over lanes around instructions whose operands must be the whole warp's, as those of the copy engine. */
DEVICE uint32_t elect_sync(void) {
    uint32_t v;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(v));
    return v;
}
/* sm_90a: moves registers between warpgroups; COUNT a multiple of 8 in [24, 256], run by every warp of the warpgroup. */
template <int COUNT> DEVICE void setmaxnreg_inc(void) { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT)); }
template <int COUNT> DEVICE void setmaxnreg_dec(void) { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT)); }
/* The same value, but the compiler no longer knows it: what is computed from it stays where it is written, and registers stay free. */
DEVICE uint32_t opaque(uint32_t value) { asm volatile("" : "+r"(value)); return value; }
DEVICE const uint8_t *opaque(const uint8_t *value) { asm volatile("" : "+l"(value)); return value; }
DEVICE void nanosleep(uint32_t nanoseconds) { asm volatile("nanosleep.u32 %0;" ::"r"(nanoseconds)); }
/* Of this multiprocessor. */
DEVICE uint32_t clock_u32(void) { uint32_t v; asm volatile("mov.u32 %0, %%clock;" : "=r"(v) :: "memory"); return v; }
DEVICE uint64_t globaltimer(void) { uint64_t v; asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(v)); return v; }

/* --- mbarriers, sm_90+ ----------------------------------------------------------------------------------------- */

DEVICE void mbarrier_init(uint32_t barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
DEVICE void mbarrier_inval(uint32_t barrier) { asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(barrier) : "memory"); }
/* Makes initialised barriers visible to the cluster and to the copy engine; a CTA or cluster barrier must follow. */
DEVICE void fence_mbarrier_init_release_cluster(void) { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEVICE void mbarrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
DEVICE void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
/* Expects bytes without arriving. */
DEVICE void mbarrier_expect_tx(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
/* `barrier` is an address of the cluster window, from mapa. Without a cluster-scope release, which costs a MEMBAR.ALL.GPU, more than 1,500
   clocks: it may only tell that reads of shared memory have ended, by this CTA's tensor cores or by loads whose values have arrived. */
DEVICE void mbarrier_arrive_cluster(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
DEVICE void mbarrier_arrive_expect_tx_cluster(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cluster.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
DEVICE void mbarrier_expect_tx_cluster(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
/* With the release, for those who wait with mbarrier_try_wait_parity_acquire_cluster: hands over ordinary writes. */
DEVICE void mbarrier_arrive_release_cluster(uint32_t barrier) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/* 1 when the phase of this parity has completed. May suspend the thread for a while. Acquires at CTA scope: at cluster scope every wait
   would throw away the L1 cache (CCTL.IVALL). What arrivals of another CTA order here are reads of shared memory by its tensor cores,
   which have ended when it arrives. */
DEVICE uint32_t mbarrier_try_wait_parity(uint32_t barrier, uint32_t parity) {
    uint32_t done;
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
    return done;
}
/* The same of two barriers, asked one behind the other without a look at the first answer: the two take as long as one. */
DEVICE uint32_t mbarrier_try_wait_parity_both(uint32_t barrier, uint32_t parity, uint32_t second, uint32_t second_parity) {
    uint32_t done;
    asm volatile("{\n.reg .pred p, q;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 q, [%3], %4;\nand.pred p, p, q;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done) : "r"(barrier), "r"(parity), "r"(second), "r"(second_parity) : "memory");
    return done;
}
/* Acquires what other CTAs have released at cluster scope as well. */
DEVICE uint32_t mbarrier_try_wait_parity_acquire_cluster(uint32_t barrier, uint32_t parity) {
    uint32_t done;
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
    return done;
}
/* mbarrier_try_wait_parity without suspending. */
DEVICE uint32_t mbarrier_test_wait_parity(uint32_t barrier, uint32_t parity) {
    uint32_t done;
    asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
    return done;
}

/* --- proxies: ordering between ordinary accesses and the copy engine or tensor cores, sm_90+ --------------------- */

DEVICE void fence_proxy_async_shared_cta(void) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
DEVICE void fence_proxy_async_global(void) { asm volatile("fence.proxy.async.global;" ::: "memory"); }

/* --- the copy engine (TMA), sm_90+ ------------------------------------------------------------------------------- */

DEVICE void prefetch_tensormap(const CUtensorMap *map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }
/* Plain bytes; addresses and size are multiples of 16. */
DEVICE void cp_async_bulk_load(uint32_t destination, const void *source, uint32_t bytes, uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(destination), "l"(source), "r"(bytes), "r"(barrier) : "memory");
}
/* Into the L2 cache. A multiple of 16 bytes, from an address that is one. sm_90+ */
DEVICE void cp_async_bulk_prefetch_L2(const void *source, uint32_t bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(source), "r"(bytes));
}
/* A hint for loads of what nobody reads again for long: it leaves the L2 cache first. */
DEVICE uint64_t createpolicy_evict_first(void) {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
/* Plain bytes with such a hint. */
DEVICE void cp_async_bulk_load_hint(uint32_t destination, const void *source, uint32_t bytes, uint32_t barrier, uint64_t policy) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
                 ::"r"(destination), "l"(source), "r"(bytes), "r"(barrier), "l"(policy) : "memory");
}
DEVICE void cp_async_bulk_tensor_2d_load(uint32_t destination, const CUtensorMap *map, int32_t x, int32_t y, uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 ::"r"(destination), "l"(map), "r"(x), "r"(y), "r"(barrier) : "memory");
}
/* Into the same offset, and completing on the same barrier offset, of every CTA whose bit is set in `mask`. */
DEVICE void cp_async_bulk_tensor_2d_load_multicast(uint32_t destination, const CUtensorMap *map, int32_t x, int32_t y, uint32_t barrier,
                                                   uint16_t mask) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3}], [%4], %5;"
                 ::"r"(destination), "l"(map), "r"(x), "r"(y), "r"(barrier), "h"(mask) : "memory");
}
DEVICE void cp_async_bulk_tensor_3d_load(uint32_t destination, const CUtensorMap *map, int32_t x, int32_t y, int32_t z, uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
                 ::"r"(destination), "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier) : "memory");
}
/* With a hint how long the L2 cache should hold what is read: of createpolicy. */
DEVICE void cp_async_bulk_tensor_3d_load_hint(uint32_t destination, const CUtensorMap *map, int32_t x, int32_t y, int32_t z,
                                              uint32_t barrier, uint64_t policy) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1, {%2, %3, %4}], [%5], %6;"
                 ::"r"(destination), "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier), "l"(policy) : "memory");
}
DEVICE void cp_async_bulk_tensor_3d_load_multicast_hint(uint32_t destination, const CUtensorMap *map, int32_t x, int32_t y, int32_t z,
                                                        uint32_t barrier, uint16_t mask, uint64_t policy) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
                 "[%0], [%1, {%2, %3, %4}], [%5], %6, %7;"
                 ::"r"(destination), "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier), "h"(mask), "l"(policy) : "memory");
}
DEVICE void cp_async_bulk_tensor_3d_store(const CUtensorMap *map, int32_t x, int32_t y, int32_t z, uint32_t source) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];"
                 ::"l"(map), "r"(x), "r"(y), "r"(z), "r"(source) : "memory");
}
DEVICE void cp_async_bulk_tensor_4d_load(uint32_t destination, const CUtensorMap *map, int32_t x, int32_t y, int32_t z, int32_t w,
                                         uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];"
                 ::"r"(destination), "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier) : "memory");
}
DEVICE void cp_async_bulk_tensor_4d_store(const CUtensorMap *map, int32_t x, int32_t y, int32_t z, int32_t w, uint32_t source) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];"
                 ::"l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(source) : "memory");
}
/* Adds to what lies there, each element as one operation of relaxed.gpu; the type of the map says how. */
DEVICE void cp_reduce_async_bulk_tensor_3d_add(const CUtensorMap *map, int32_t x, int32_t y, int32_t z, uint32_t source) {
    asm volatile("cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2, %3}], [%4];"
                 ::"l"(map), "r"(x), "r"(y), "r"(z), "r"(source) : "memory");
}
DEVICE void cp_async_bulk_commit_group(void) { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/* At most COUNT of this thread's groups are still under way; _read: still being read from shared memory. */
template <int COUNT> DEVICE void cp_async_bulk_wait_group(void) { asm volatile("cp.async.bulk.wait_group %0;" ::"n"(COUNT) : "memory"); }
template <int COUNT> DEVICE void cp_async_bulk_wait_group_read(void) {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(COUNT) : "memory");
}

/* --- global memory, sm_70+ --------------------------------------------------------------------------------------- */

DEVICE uint32_t ld_acquire_gpu(const uint32_t *p) {
    uint32_t v;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
DEVICE uint32_t ld_relaxed_gpu(const uint32_t *p) {
    uint32_t v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
/* The same, of a word that is polled: what it stands for is there behind the next fence_acquire_gpu. ld_acquire_gpu is both at once, and
   throws away the L1 cache with every look. */
DEVICE uint32_t ld_relaxed_gpu_before_fence(const uint32_t *p) { return ld_relaxed_gpu(p); }
DEVICE void fence_acquire_gpu(void) { asm volatile("fence.acquire.gpu;" ::: "memory"); } /* sm_90+ */
DEVICE void ld_relaxed_gpu_v2f32(const float *p, float &x, float &y) {
    asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];" : "=f"(x), "=f"(y) : "l"(p) : "memory");
}
DEVICE float ld_relaxed_gpu_f32(const float *p) {
    float v;
    asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(v) : "l"(p) : "memory");
    return v;
}
DEVICE void ld_relaxed_gpu_v4u32(const void *p, uint32_t &a, uint32_t &b, uint32_t &c, uint32_t &d) {
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"(p) : "memory");
}
/* Of the host's memory. */
DEVICE uint32_t ld_relaxed_sys(const uint32_t *p) {
    uint32_t v;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
DEVICE void st_relaxed_sys(uint32_t *p, uint32_t v) { asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
DEVICE void st_relaxed_gpu_v2f32(float *p, float x, float y) {
    asm volatile("st.relaxed.gpu.global.v2.f32 [%0], {%1, %2};" ::"l"(p), "f"(x), "f"(y) : "memory");
}
DEVICE void red_release_gpu_add(uint32_t *p, uint32_t v) {
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
DEVICE void red_relaxed_gpu_add(uint32_t *p, uint32_t v) {
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
DEVICE void red_relaxed_gpu_add_u64(uint64_t *p, uint64_t v) {
    asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
DEVICE uint32_t atom_relaxed_gpu_add(uint32_t *p, uint32_t v) {
    uint32_t old;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
    return old;
}
DEVICE uint32_t atom_relaxed_gpu_cas(uint32_t *p, uint32_t expected, uint32_t desired) {
    uint32_t old;
    asm volatile("atom.relaxed.gpu.global.cas.b32 %0, [%1], %2, %3;" : "=r"(old) : "l"(p), "r"(expected), "r"(desired) : "memory");
    return old;
}
/* Words: 8 bytes, a value and the tag of its generation, which one store writes and one load reads, whole. So a word is its own flag. 1
   when all tags are the one awaited; of two words that one load reads either may come first. */
DEVICE uint32_t ld_relaxed_gpu_word(const uint64_t *p, uint32_t tag, uint32_t &a) {
    uint32_t seen;
    asm volatile("{\n.reg .b64 w;\nld.relaxed.gpu.global.b64 w, [%2];\nmov.b64 {%0, %1}, w;\n}" : "=r"(a), "=r"(seen) : "l"(p) : "memory");
    return seen == tag;
}
DEVICE uint32_t ld_relaxed_gpu_words(const uint64_t *p, uint32_t tag, uint32_t &a, uint32_t &b) {
    uint32_t first, second;
    asm volatile("{\n.reg .b64 v, w;\nld.relaxed.gpu.global.v2.b64 {v, w}, [%4];\nmov.b64 {%0, %1}, v;\nmov.b64 {%2, %3}, w;\n}"
                 : "=r"(a), "=r"(first), "=r"(b), "=r"(second) : "l"(p) : "memory");
    return first == tag && second == tag;
}
/* Predicated: where `yes` is 0 nothing is read, values are 0 and all is as awaited. No branch stands around them. */
DEVICE uint32_t ld_relaxed_gpu_words_if(const uint64_t *p, uint32_t tag, uint32_t &a, uint32_t &b, uint32_t yes) {
    uint32_t match;
    asm volatile("{\n.reg .pred p, q;\n.reg .b64 v, w;\n.reg .b32 x, y;\nsetp.ne.b32 p, %5, 0;\nmov.b64 v, {0, %4};\nmov.b64 w, v;\n"
                 "@p ld.relaxed.gpu.global.v2.b64 {v, w}, [%3];\nmov.b64 {%0, x}, v;\nmov.b64 {%1, y}, w;\n"
                 "setp.eq.b32 q, x, %4;\nsetp.eq.and.b32 q, y, %4, q;\nselp.u32 %2, 1, 0, q;\n}"
                 : "=r"(a), "=r"(b), "=r"(match) : "l"(p), "r"(tag), "r"(yes) : "memory");
    return match;
}
DEVICE uint32_t ld_relaxed_gpu_word_if(const uint64_t *p, uint32_t tag, uint32_t &a, uint32_t yes) {
    uint32_t match;
    asm volatile("{\n.reg .pred p, q;\n.reg .b64 v;\n.reg .b32 x;\nsetp.ne.b32 p, %4, 0;\nmov.b64 v, {0, %3};\n"
                 "@p ld.relaxed.gpu.global.b64 v, [%2];\nmov.b64 {%0, x}, v;\nsetp.eq.b32 q, x, %3;\nselp.u32 %1, 1, 0, q;\n}"
                 : "=r"(a), "=r"(match) : "l"(p), "r"(tag), "r"(yes) : "memory");
    return match;
}
DEVICE void ld_relaxed_gpu_v4u32_if(const void *p, uint32_t &a, uint32_t &b, uint32_t &c, uint32_t &d, uint32_t yes) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\nmov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
                 "@p ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
                 : "=&r"(a), "=&r"(b), "=&r"(c), "=&r"(d) : "l"(p), "r"(yes) : "memory");
}
/* The same of words behind which something else is: it is there behind the next fence_acquire_gpu. */
DEVICE uint32_t ld_relaxed_gpu_words_before_fence(const uint64_t *p, uint32_t tag, uint32_t &a, uint32_t &b) {
    return ld_relaxed_gpu_words(p, tag, a, b);
}
DEVICE uint32_t ld_relaxed_gpu_word_before_fence(const uint64_t *p, uint32_t tag, uint32_t &a) { return ld_relaxed_gpu_word(p, tag, a); }
DEVICE void st_relaxed_gpu_word(uint64_t *p, uint32_t value, uint32_t tag) {
    asm volatile("{\n.reg .b64 w;\nmov.b64 w, {%1, %2};\nst.relaxed.gpu.global.b64 [%0], w;\n}" ::"l"(p), "r"(value), "r"(tag) : "memory");
}
DEVICE void st_release_gpu_word(uint64_t *p, uint32_t value, uint32_t tag) {
    asm volatile("{\n.reg .b64 w;\nmov.b64 w, {%1, %2};\nst.release.gpu.global.b64 [%0], w;\n}" ::"l"(p), "r"(value), "r"(tag) : "memory");
}
/* The line of 128 bytes into the L2 cache. */
DEVICE void prefetch_global_L2(const void *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
/* Reads of memory that nothing writes while the kernel runs: weights, tables, pixels. */
DEVICE float ld_global_nc_f32(const float *p) { float v; asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(v) : "l"(p)); return v; }
DEVICE void ld_global_nc_v2f32(const float *p, float &x, float &y) {
    asm volatile("ld.global.nc.v2.f32 {%0, %1}, [%2];" : "=f"(x), "=f"(y) : "l"(p));
}
DEVICE uint32_t ld_global_nc_u32(const void *p) { uint32_t v; asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(v) : "l"(p)); return v; }
DEVICE void ld_global_nc_v4u32(const void *p, uint32_t &a, uint32_t &b, uint32_t &c, uint32_t &d) {
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"(p));
}
DEVICE uint32_t ld_global_nc_u8(const void *p) { uint32_t v; asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(v) : "l"(p)); return v; }
DEVICE void st_global_u32(void *p, uint32_t v) { asm volatile("st.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
DEVICE void st_global_u16(void *p, uint32_t v) { asm volatile("st.global.u16 [%0], %1;" ::"l"(p), "h"((uint16_t)v) : "memory"); }
DEVICE void st_global_v2u32(void *p, uint32_t a, uint32_t b) {
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(a), "r"(b) : "memory");
}
DEVICE void st_global_v4u32(void *p, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

/* --- arithmetic -------------------------------------------------------------------------------------------------- */

DEVICE float ex2_approx(float x) { float v; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(v) : "f"(x)); return v; }
DEVICE float tanh_approx(float x) { float v; asm("tanh.approx.f32 %0, %1;" : "=f"(v) : "f"(x)); return v; } /* sm_75+ */
DEVICE float rsqrt_approx(float x) { float v; asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(v) : "f"(x)); return v; }
DEVICE float rcp_approx(float x) { float v; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(v) : "f"(x)); return v; }
/* Two floats rounded to nearest even as bf16; `low` in bits 0-15. sm_80+ */
DEVICE uint32_t cvt_rn_bf16x2(float low, float high) {
    uint32_t v;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
    return v;
}
/* Halves of two words: both lower ones, both upper ones, the first word's below. */
DEVICE uint32_t lower_halves(uint32_t a, uint32_t b) {
    uint32_t d;
    asm("prmt.b32 %0, %1, %2, 0x5410;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}
DEVICE uint32_t upper_halves(uint32_t a, uint32_t b) {
    uint32_t d;
    asm("prmt.b32 %0, %1, %2, 0x7632;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}
DEVICE float bf16_low(uint32_t pair) { return __uint_as_float(pair << 16); }
DEVICE float bf16_high(uint32_t pair) { return __uint_as_float(pair & 0xFFFF0000u); }
/* The same as f16, infinite beyond 65504. */
DEVICE uint32_t cvt_rn_f16x2(float low, float high) {
    uint32_t v;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
    return v;
}
DEVICE float f16_low(uint32_t pair) {
    float v;
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\ncvt.f32.f16 %0, low;\n}" : "=f"(v) : "r"(pair));
    return v;
}
DEVICE float f16_high(uint32_t pair) { return f16_low(pair >> 16); }

/* Two floats as E4M3, to nearest, ties to even, 448 beyond; `low` in bits 0-7. sm_89+ */
DEVICE uint32_t cvt_rn_satfinite_e4m3x2(float low, float high) {
    uint16_t v;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(v) : "f"(high), "f"(low));
    return v;
}

/* --- matrix fragments to and from shared memory -------------------------------------------------------------------- */

/* Four 8x8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8. sm_90+ */
DEVICE void stmatrix_x4(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
/* Transposed: the row that a lane gives the address of gets a column. */
DEVICE void stmatrix_x4_transposed(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
DEVICE void ldmatrix_x4(uint32_t address, uint32_t &a, uint32_t &b, uint32_t &c, uint32_t &d) { /* sm_75+ */
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(address) : "memory");
}
/* Transposed: lane l = 4 r + t gets column r of each matrix, rows 2 t and 2 t + 1. */
DEVICE void ldmatrix_x4_transposed(uint32_t address, uint32_t &a, uint32_t &b, uint32_t &c, uint32_t &d) { /* sm_75+ */
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(address) : "memory");
}

/* An 8x8 matrix of 16-bit elements, of which lane l = 4 r + t has row r, columns 2 t and 2 t + 1, transposed. sm_75+ */
DEVICE uint32_t movmatrix_transposed(uint32_t a) {
    uint32_t v;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(v) : "r"(a));
    return v;
}

/* --- tensor cores by warp, sm_80+ ------------------------------------------------------------------------------ */

/* d += A . B: lane l = 4 g + t has of A rows g (a0, a2) and g + 8 (a1, a3), columns 2 t, + 1 (a0, a1) and 2 t + 8, + 9 (a2, a3); of B
   column g, rows 2 t, + 1 (b0) and 2 t + 8, + 9 (b1); of d rows g (0, 1) and g + 8 (2, 3), columns 2 t, + 1. */
DEVICE void mma_m16n8k16_bf16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
DEVICE void mma_m16n8k16_f16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* --- tensor cores of sm_90a: wgmma ---------------------------------------------------------------------------------
   D[64, N] (float, in registers) = A[64, 16] . B[N, 16]^T + (scale_d ? D : 0), bf16 operands. One overload for each N, told apart by the
   size of the accumulator array, N / 2 floats a thread. ss: A and B through shared-memory descriptors, both K-major. rs: A from registers,
   B K-major; transposed_b: B is stored [16, N] (N contiguous). */

DEVICE void wgmma_fence(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit_group(void) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int COUNT> DEVICE void wgmma_wait_group(void) { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(COUNT) : "memory"); }
/* Accumulators begin at zero: with undefined ones and scale_d = 0 the compiler merges registers of different tiles and spills. */
template <int COUNT> DEVICE void wgmma_registers_zero(float (&d)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) d[i] = 0;
}
/* Keeps the compiler from moving accumulator accesses across a wgmma wait. */
template <int COUNT> DEVICE void wgmma_registers_fence(float (&d)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(d[i])::"memory");
}

/* The accumulators as outputs, and as operands %0 to %(COUNT - 1). */
#define PTX_D4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define PTX_D8(d, i) PTX_D4(d, i), PTX_D4(d, i + 4)
#define PTX_D16(d, i) PTX_D8(d, i), PTX_D8(d, i + 8)
#define PTX_D32(d, i) PTX_D16(d, i), PTX_D16(d, i + 16)
#define PTX_R4 "%0, %1, %2, %3"
#define PTX_R8 PTX_R4 ", %4, %5, %6, %7"
#define PTX_R16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define PTX_R24 PTX_R16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define PTX_R32 PTX_R24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define PTX_R36 PTX_R32 ", %32, %33, %34, %35"
#define PTX_R40 PTX_R36 ", %36, %37, %38, %39"
#define PTX_R48 PTX_R40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define PTX_R52 PTX_R48 ", %48, %49, %50, %51"
#define PTX_R56 PTX_R52 ", %52, %53, %54, %55"
#define PTX_R64 PTX_R56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define PTX_R80 PTX_R64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define PTX_R96 PTX_R80 \
    ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define PTX_R104 PTX_R96 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define PTX_R128 PTX_R104 \
    ", %104, %105, %106, %107, %108, %109, %110, %111" \
    ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define PTX_WGMMA_SS_OF(TYPE, COUNT, N, A, B, SCALE_D, ...)                                                                               \
    DEVICE void wgmma_m64k16_##TYPE##_ss(float (&d)[COUNT], uint64_t a, uint64_t b, uint32_t scale_d) {                                   \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #SCALE_D ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #TYPE "." #TYPE \
                     " {" PTX_R##COUNT "}, %" #A ", %" #B ", p, 1, 1, 0, 0;\n}\n" \
                     : __VA_ARGS__ : "l"(a), "l"(b), "r"(scale_d));                                                                       \
    }
#define PTX_WGMMA_SS(...) PTX_WGMMA_SS_OF(bf16, __VA_ARGS__)
#define PTX_WGMMA_RS_OF(NAME, TRANSPOSED, COUNT, N, A0, A1, A2, A3, B, SCALE_D, ...)                                                       \
    DEVICE void wgmma_m64k16_bf16_##NAME(float (&d)[COUNT], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b,               \
                                         uint32_t scale_d) {                                                                              \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #SCALE_D ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 " \
                     "{" PTX_R##COUNT "}, {%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", p, 1, 1, " #TRANSPOSED ";\n}\n" \
                     : __VA_ARGS__ : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(scale_d));                                           \
    }
#define PTX_WGMMA_RS_TRANSPOSED_B(...) PTX_WGMMA_RS_OF(rs_transposed_b, 1, __VA_ARGS__)
#define PTX_WGMMA_RS(...) PTX_WGMMA_RS_OF(rs, 0, __VA_ARGS__)
PTX_WGMMA_SS(4, 8, 4, 5, 6, PTX_D4(d, 0))
PTX_WGMMA_SS(8, 16, 8, 9, 10, PTX_D8(d, 0))
PTX_WGMMA_SS(16, 32, 16, 17, 18, PTX_D16(d, 0))
PTX_WGMMA_SS(24, 48, 24, 25, 26, PTX_D16(d, 0), PTX_D8(d, 16))
PTX_WGMMA_SS(32, 64, 32, 33, 34, PTX_D32(d, 0))
PTX_WGMMA_SS(36, 72, 36, 37, 38, PTX_D32(d, 0), PTX_D4(d, 32))
PTX_WGMMA_SS(40, 80, 40, 41, 42, PTX_D32(d, 0), PTX_D8(d, 32))
PTX_WGMMA_SS(48, 96, 48, 49, 50, PTX_D32(d, 0), PTX_D16(d, 32))
PTX_WGMMA_SS(52, 104, 52, 53, 54, PTX_D32(d, 0), PTX_D16(d, 32), PTX_D4(d, 48))
PTX_WGMMA_SS(56, 112, 56, 57, 58, PTX_D32(d, 0), PTX_D16(d, 32), PTX_D8(d, 48))
PTX_WGMMA_SS(64, 128, 64, 65, 66, PTX_D32(d, 0), PTX_D32(d, 32))
PTX_WGMMA_SS(80, 160, 80, 81, 82, PTX_D32(d, 0), PTX_D32(d, 32), PTX_D16(d, 64))
PTX_WGMMA_SS(96, 192, 96, 97, 98, PTX_D32(d, 0), PTX_D32(d, 32), PTX_D32(d, 64))
PTX_WGMMA_SS(104, 208, 104, 105, 106, PTX_D32(d, 0), PTX_D32(d, 32), PTX_D32(d, 64), PTX_D8(d, 96))
PTX_WGMMA_SS(128, 256, 128, 129, 130, PTX_D32(d, 0), PTX_D32(d, 32), PTX_D32(d, 64), PTX_D32(d, 96))
PTX_WGMMA_SS_OF(f16, 32, 64, 32, 33, 34, PTX_D32(d, 0))
PTX_WGMMA_SS_OF(f16, 64, 128, 64, 65, 66, PTX_D32(d, 0), PTX_D32(d, 32))
PTX_WGMMA_SS_OF(f16, 96, 192, 96, 97, 98, PTX_D32(d, 0), PTX_D32(d, 32), PTX_D32(d, 64))
PTX_WGMMA_SS_OF(f16, 128, 256, 128, 129, 130, PTX_D32(d, 0), PTX_D32(d, 32), PTX_D32(d, 64), PTX_D32(d, 96))
PTX_WGMMA_RS_TRANSPOSED_B(8, 16, 8, 9, 10, 11, 12, 13, PTX_D8(d, 0))
PTX_WGMMA_RS_TRANSPOSED_B(16, 32, 16, 17, 18, 19, 20, 21, PTX_D16(d, 0))
PTX_WGMMA_RS_TRANSPOSED_B(24, 48, 24, 25, 26, 27, 28, 29, PTX_D16(d, 0), PTX_D8(d, 16))
PTX_WGMMA_RS_TRANSPOSED_B(32, 64, 32, 33, 34, 35, 36, 37, PTX_D32(d, 0))
PTX_WGMMA_RS_TRANSPOSED_B(36, 72, 36, 37, 38, 39, 40, 41, PTX_D32(d, 0), PTX_D4(d, 32))
PTX_WGMMA_RS_TRANSPOSED_B(40, 80, 40, 41, 42, 43, 44, 45, PTX_D32(d, 0), PTX_D8(d, 32))
PTX_WGMMA_RS_TRANSPOSED_B(48, 96, 48, 49, 50, 51, 52, 53, PTX_D32(d, 0), PTX_D16(d, 32))
PTX_WGMMA_RS_TRANSPOSED_B(64, 128, 64, 65, 66, 67, 68, 69, PTX_D32(d, 0), PTX_D32(d, 32))
PTX_WGMMA_RS_TRANSPOSED_B(96, 192, 96, 97, 98, 99, 100, 101, PTX_D32(d, 0), PTX_D32(d, 32), PTX_D32(d, 64))
PTX_WGMMA_RS_TRANSPOSED_B(128, 256, 128, 129, 130, 131, 132, 133, PTX_D32(d, 0), PTX_D32(d, 32), PTX_D32(d, 64), PTX_D32(d, 96))
PTX_WGMMA_RS(8, 16, 8, 9, 10, 11, 12, 13, PTX_D8(d, 0))
PTX_WGMMA_RS(16, 32, 16, 17, 18, 19, 20, 21, PTX_D16(d, 0))
PTX_WGMMA_RS(32, 64, 32, 33, 34, 35, 36, 37, PTX_D32(d, 0))
PTX_WGMMA_RS(64, 128, 64, 65, 66, 67, 68, 69, PTX_D32(d, 0), PTX_D32(d, 32))
/* A stored [16, 64] (M contiguous). */
DEVICE void wgmma_m64k16_bf16_ss_transposed_a(float (&d)[32], uint64_t a, uint64_t b, uint32_t scale_d) { /* m64n64k16 */
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
                 PTX_R32 "}, %32, %33, p, 1, 1, 1, 0;\n}\n"
                 : PTX_D32(d, 0) : "l"(a), "l"(b), "r"(scale_d));
}
/* FP8 operands, 32 columns of K, always K-major. The sum keeps 13 fraction bits and rounds towards zero: tests/machine/MANUAL.md. */
DEVICE void wgmma_m64k32_e4m3_ss(float (&d)[32], uint64_t a, uint64_t b, uint32_t scale_d) { /* m64n64k32 */
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {"
                 PTX_R32 "}, %32, %33, p, 1, 1;\n}\n"
                 : PTX_D32(d, 0) : "l"(a), "l"(b), "r"(scale_d));
}
#undef PTX_D4
#undef PTX_D8
#undef PTX_D16
#undef PTX_D32
#undef PTX_R4
#undef PTX_R8
#undef PTX_R16
#undef PTX_R24
#undef PTX_R32
#undef PTX_R36
#undef PTX_R40
#undef PTX_R48
#undef PTX_R52
#undef PTX_R56
#undef PTX_R64
#undef PTX_R80
#undef PTX_R96
#undef PTX_R104
#undef PTX_R128
#undef PTX_WGMMA_SS
#undef PTX_WGMMA_RS_TRANSPOSED_B

/* --- tensor cores of sm_100a and sm_103a: tcgen05, of one CTA (cta_group::1) and of pairs ----------------------------------
   Accumulators lie in tensor memory: 128 lanes of 512 columns of 32 bits, addressed by lane << 16 | column. Products are started by one
   thread and read shared memory through the asynchronous proxy. Descriptors: blackwell.cuh. Of these wrappers it is known that they
   assemble; none has run on a card. */

/* Loads of pairs. Into this CTA's shared memory; the bytes are counted on `barrier`, an address of the cluster window, of this CTA or of
   its peer. */
DEVICE void cp_async_bulk_tensor_2d_load_pair(uint32_t destination, const CUtensorMap *map, int32_t x, int32_t y, uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2 "
                 "[%0], [%1, {%2, %3}], [%4];"
                 ::"r"(destination), "l"(map), "r"(x), "r"(y), "r"(barrier) : "memory");
}
DEVICE void cp_async_bulk_tensor_3d_load_pair(uint32_t destination, const CUtensorMap *map, int32_t x, int32_t y, int32_t z,
                                              uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2 "
                 "[%0], [%1, {%2, %3, %4}], [%5];"
                 ::"r"(destination), "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier) : "memory");
}
DEVICE void cp_async_bulk_tensor_4d_load_pair(uint32_t destination, const CUtensorMap *map, int32_t x, int32_t y, int32_t z, int32_t w,
                                              uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2 "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6];"
                 ::"r"(destination), "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier) : "memory");
}
/* Into every CTA of `mask`; of both of a pair the bytes are counted in the one of even rank if `barrier` is, of odd rank if it is. */
DEVICE void cp_async_bulk_tensor_2d_load_pair_multicast(uint32_t destination, const CUtensorMap *map, int32_t x, int32_t y,
                                                        uint32_t barrier, uint16_t mask) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.cta_group::2 "
                 "[%0], [%1, {%2, %3}], [%4], %5;"
                 ::"r"(destination), "l"(map), "r"(x), "r"(y), "r"(barrier), "h"(mask) : "memory");
}

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM100_ALL) || defined(__CUDA_ARCH_FEAT_SM103_ALL) || \
    defined(__CUDA_ARCH_FEAT_SM110_ALL)

/* By one whole warp. Writes the address of `columns` columns, a power of two from 32 to 512, to shared memory at `destination`; waits until
   they are free. */
DEVICE void tcgen05_alloc(uint32_t destination, uint32_t columns) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(destination), "r"(columns) : "memory");
}
/* By one whole warp, before the CTA ends, for each allocation. */
DEVICE void tcgen05_dealloc(uint32_t address, uint32_t columns) {
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns) : "memory");
}
/* By one whole warp: this CTA allocates no more. */
DEVICE void tcgen05_relinquish_alloc_permit(void) {
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
}

/* D[M, N] = A[M, K] . B[N, K]^T + (accumulate ? D : 0); one thread. ss: A and B through shared-memory descriptors; ts: A lies in tensor
   memory, two 16-bit elements a column. f16: K = 16, f16 or bf16. f8f6f4 and mxf8f6f4: K = 32. mxf8f6f4: with one UE8M0 scale for 32
   elements along K. */
DEVICE void tcgen05_mma_f16_ss(uint32_t d, uint64_t a, uint64_t b, uint32_t instruction, uint32_t accumulate) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\ntcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p;\n}"
                 ::"r"(d), "l"(a), "l"(b), "r"(instruction), "r"(accumulate) : "memory");
}
DEVICE void tcgen05_mma_f16_ts(uint32_t d, uint32_t a, uint64_t b, uint32_t instruction, uint32_t accumulate) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\ntcgen05.mma.cta_group::1.kind::f16 [%0], [%1], %2, %3, p;\n}"
                 ::"r"(d), "r"(a), "l"(b), "r"(instruction), "r"(accumulate) : "memory");
}
DEVICE void tcgen05_mma_f8f6f4_ss(uint32_t d, uint64_t a, uint64_t b, uint32_t instruction, uint32_t accumulate) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\ntcgen05.mma.cta_group::1.kind::f8f6f4 [%0], %1, %2, %3, p;\n}"
                 ::"r"(d), "l"(a), "l"(b), "r"(instruction), "r"(accumulate) : "memory");
}
DEVICE void tcgen05_mma_mxf8f6f4_ss(uint32_t d, uint64_t a, uint64_t b, uint32_t instruction, uint32_t scale_a, uint32_t scale_b,
                                    uint32_t accumulate) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %6, 0;\n"
                 "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale [%0], %1, %2, %3, [%4], [%5], p;\n}"
                 ::"r"(d), "l"(a), "l"(b), "r"(instruction), "r"(scale_a), "r"(scale_b), "r"(accumulate) : "memory");
}
/* 32 rows of 16 bytes of shared memory to 32 lanes of 4 columns, and the same to each of the four quarters of the lanes. One thread. */
DEVICE void tcgen05_cp_32x128b_warpx4(uint32_t address, uint64_t source) {
    asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(address), "l"(source) : "memory");
}
/* Arrives at the mbarrier when all products and copies that this thread has started have ended. */
DEVICE void tcgen05_commit(uint32_t barrier) {
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier) : "memory");
}
/* At the same offset in every CTA of the cluster whose bit is set in `mask`. */
DEVICE void tcgen05_commit_multicast(uint32_t barrier, uint16_t mask) {
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;"
                 ::"r"(barrier), "h"(mask) : "memory");
}

/* Pairs (cta_group::2): two CTAs of a cluster whose ranks differ in the last bit. A kernel takes all of its tcgen05 instructions from here,
   or none. alloc, dealloc, relinquish: by one whole warp of each CTA; they wait for each other. */
DEVICE void tcgen05_alloc_pair(uint32_t destination, uint32_t columns) {
    asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(destination), "r"(columns) : "memory");
}
DEVICE void tcgen05_dealloc_pair(uint32_t address, uint32_t columns) {
    asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns) : "memory");
}
DEVICE void tcgen05_relinquish_alloc_permit_pair(void) {
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;" ::: "memory");
}
/* By one thread of the CTA of even rank: M = 256, the first 128 rows of A and D are its own, the others its peer's; the first N / 2 rows of
   B lie in its own shared memory, the others in its peer's, all at the same addresses. Scales of A: of a CTA's own rows; of B: of all N
   rows, in both CTAs. */
DEVICE void tcgen05_mma_f16_ss_pair(uint32_t d, uint64_t a, uint64_t b, uint32_t instruction, uint32_t accumulate) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\ntcgen05.mma.cta_group::2.kind::f16 [%0], %1, %2, %3, p;\n}"
                 ::"r"(d), "l"(a), "l"(b), "r"(instruction), "r"(accumulate) : "memory");
}
/* A: of each CTA's own rows, in its own tensor memory, at the same address. */
DEVICE void tcgen05_mma_f16_ts_pair(uint32_t d, uint32_t a, uint64_t b, uint32_t instruction, uint32_t accumulate) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\ntcgen05.mma.cta_group::2.kind::f16 [%0], [%1], %2, %3, p;\n}"
                 ::"r"(d), "r"(a), "l"(b), "r"(instruction), "r"(accumulate) : "memory");
}
DEVICE void tcgen05_mma_mxf8f6f4_ss_pair(uint32_t d, uint64_t a, uint64_t b, uint32_t instruction, uint32_t scale_a, uint32_t scale_b,
                                         uint32_t accumulate) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %6, 0;\n"
                 "tcgen05.mma.cta_group::2.kind::mxf8f6f4.block_scale [%0], %1, %2, %3, [%4], [%5], p;\n}"
                 ::"r"(d), "l"(a), "l"(b), "r"(instruction), "r"(scale_a), "r"(scale_b), "r"(accumulate) : "memory");
}
/* In both CTAs, from each one's shared memory to its tensor memory. By the thread that multiplies. */
DEVICE void tcgen05_cp_32x128b_warpx4_pair(uint32_t address, uint64_t source) {
    asm volatile("tcgen05.cp.cta_group::2.32x128b.warpx4 [%0], %1;" ::"r"(address), "l"(source) : "memory");
}
/* Of the same offset in every CTA of `mask`. By the thread that multiplies. */
DEVICE void tcgen05_commit_pair(uint32_t barrier, uint16_t mask) {
    asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;"
                 ::"r"(barrier), "h"(mask) : "memory");
}
/* Between threads: before, by who has started something, then a barrier, then after, by who relies on it. A commit is a fence before by
   itself. */
DEVICE void tcgen05_fence_before_thread_sync(void) { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
DEVICE void tcgen05_fence_after_thread_sync(void) { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }
/* All loads, all stores of this warp have ended. */
DEVICE void tcgen05_wait_ld(void) { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }
DEVICE void tcgen05_wait_st(void) { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }

/* By whole warps; warp w of its warpgroup reaches lanes 32 w to 32 w + 31, with which its addresses begin.
   32x32b: register j of thread t is column j of lane t. 16x256b: registers 4 j to 4 j + 3 of thread t are columns 8 j + 2 (t % 4) and the
   next of lanes t / 4 and t / 4 + 8. */
#define PTX_OUT4(r, i) "=r"(r[i]), "=r"(r[i + 1]), "=r"(r[i + 2]), "=r"(r[i + 3])
#define PTX_OUT16(r, i) PTX_OUT4(r, i), PTX_OUT4(r, i + 4), PTX_OUT4(r, i + 8), PTX_OUT4(r, i + 12)
#define PTX_IN4(r, i) "r"(r[i]), "r"(r[i + 1]), "r"(r[i + 2]), "r"(r[i + 3])
#define PTX_IN16(r, i) PTX_IN4(r, i), PTX_IN4(r, i + 4), PTX_IN4(r, i + 8), PTX_IN4(r, i + 12)
#define PTX_LIST16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define PTX_LIST32 PTX_LIST16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define PTX_LIST64 PTX_LIST32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
                   "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
DEVICE void tcgen05_ld_32x32b(uint32_t (&r)[16], uint32_t address) { /* x16 */
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x16.b32 {" PTX_LIST16 "}, [%16];"
                 : PTX_OUT16(r, 0) : "r"(address) : "memory");
}
DEVICE void tcgen05_ld_32x32b(uint32_t (&r)[32], uint32_t address) { /* x32 */
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x32.b32 {" PTX_LIST32 "}, [%32];"
                 : PTX_OUT16(r, 0), PTX_OUT16(r, 16) : "r"(address) : "memory");
}
DEVICE void tcgen05_ld_32x32b(uint32_t (&r)[64], uint32_t address) { /* x64 */
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x64.b32 {" PTX_LIST64 "}, [%64];"
                 : PTX_OUT16(r, 0), PTX_OUT16(r, 16), PTX_OUT16(r, 32), PTX_OUT16(r, 48) : "r"(address) : "memory");
}
DEVICE void tcgen05_ld_16x256b(uint32_t (&r)[16], uint32_t address) { /* x4 */
    asm volatile("tcgen05.ld.sync.aligned.16x256b.x4.b32 {" PTX_LIST16 "}, [%16];"
                 : PTX_OUT16(r, 0) : "r"(address) : "memory");
}
DEVICE void tcgen05_ld_16x256b(uint32_t &a, uint32_t &b, uint32_t &c, uint32_t &d, uint32_t &e, uint32_t &f, uint32_t &g, uint32_t &h,
                               uint32_t address) { /* x2 */
    asm volatile("tcgen05.ld.sync.aligned.16x256b.x2.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d), "=r"(e), "=r"(f), "=r"(g), "=r"(h) : "r"(address) : "memory");
}
/* What a load has brought, behind tcgen05_wait_ld: keeps the compiler from using it before. */
DEVICE uint32_t tcgen05_loaded(uint32_t value) { asm volatile("" : "+r"(value)::"memory"); return value; }
/* 16x128b: registers 2 j and 2 j + 1 of thread t are column 4 j + t % 4 of lanes t / 4 and t / 4 + 8. */
DEVICE void tcgen05_st_16x128b(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) { /* x2 */
    asm volatile("tcgen05.st.sync.aligned.16x128b.x2.b32 [%4], {%0, %1, %2, %3};"
                 ::"r"(a), "r"(b), "r"(c), "r"(d), "r"(address) : "memory");
}
DEVICE void tcgen05_st_32x32b(uint32_t address, const uint32_t (&r)[16]) { /* x16 */
    asm volatile("tcgen05.st.sync.aligned.32x32b.x16.b32 [%16], {" PTX_LIST16 "};"
                 ::PTX_IN16(r, 0), "r"(address) : "memory");
}
DEVICE void tcgen05_st_32x32b(uint32_t address, const uint32_t (&r)[32]) { /* x32 */
    asm volatile("tcgen05.st.sync.aligned.32x32b.x32.b32 [%32], {" PTX_LIST32 "};"
                 ::PTX_IN16(r, 0), PTX_IN16(r, 16), "r"(address) : "memory");
}
DEVICE void tcgen05_st_32x32b(uint32_t address, const uint32_t (&r)[64]) { /* x64 */
    asm volatile("tcgen05.st.sync.aligned.32x32b.x64.b32 [%64], {" PTX_LIST64 "};"
                 ::PTX_IN16(r, 0), PTX_IN16(r, 16), PTX_IN16(r, 32), PTX_IN16(r, 48), "r"(address) : "memory");
}
#undef PTX_OUT4
#undef PTX_OUT16
#undef PTX_IN4
#undef PTX_IN16
#undef PTX_LIST16
#undef PTX_LIST32
#undef PTX_LIST64

#endif /* sm_100a, sm_103a, sm_110a */

#endif /* MGV_PTX_CUH */
