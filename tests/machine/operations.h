/* The operations of the machine model: what stands behind the wrappers of ptx.h. */
#ifndef MACHINE_OPERATIONS_H
#define MACHINE_OPERATIONS_H

#include <stdint.h>

#include "cuda.h"

namespace machine {

uint32_t op_thread_index(void);
uint32_t op_block_index(void);
uint32_t op_block_size(void);
uint32_t op_grid_size(void);
uint32_t op_cluster_rank(void);
uint32_t op_cluster_size(void);
uint8_t *op_dynamic_shared(void);
uint32_t op_shared_address(const void *pointer);
void op_shared_store(uint32_t address, const void *value, uint32_t bytes, bool in_cluster);
void op_shared_load(uint32_t address, void *value, uint32_t bytes, bool in_cluster);
void op_st_async(uint32_t address, const void *value, uint32_t bytes, uint32_t barrier);
uint32_t op_mapa(uint32_t address, uint32_t rank);
bool op_bar_sync(uint32_t id, uint32_t threads, bool yes = false); /* true if any thread came with yes: barrier.red.or */
void op_cluster_arrive(bool releases = true);
void op_cluster_wait(void);
void op_warp_sync(uint32_t mask);
uint32_t op_shuffle(uint32_t mask, uint32_t value, uint32_t source_lane, bool number); /* number: no decision hangs on it */
uint32_t op_ballot(uint32_t mask, bool predicate);
bool op_elect(uint32_t mask);
void op_setmaxnreg(uint32_t count, bool increase);
void op_nanosleep(void);
uint64_t op_clock(void);
void op_mbarrier_init(uint32_t address, uint32_t count);
void op_mbarrier_inval(uint32_t address);
void op_fence_mbarrier_init(void);
void op_mbarrier_arrive(uint32_t address, uint32_t count, bool expect, uint32_t bytes, bool in_cluster, bool releases_cluster);
bool op_mbarrier_wait(uint32_t address, uint32_t parity, bool may_suspend, bool acquires_cluster);
void op_fence_proxy_async(bool shared, bool global);
uint32_t op_load_flag(const uint32_t *p, bool acquires, bool at_fence = false);
void op_fence_acquire(void);
void op_shared_add(uint32_t address, uint32_t value);
void op_store_flag(uint32_t *p, uint32_t value, bool releases);
uint32_t op_atomic(uint32_t *p, uint32_t operand, uint32_t compare, int kind, bool releases, bool acquires);
bool op_load_word(const uint64_t *p, uint32_t tag, uint32_t *value, bool at_fence);
void op_store_word(uint64_t *p, uint32_t value, uint32_t tag, bool releases);
void op_global_store(void *p, const void *value, uint32_t bytes);
void op_global_load(const void *p, void *value, uint32_t bytes, bool read_only_path);
void op_tma_load(uint32_t destination, const CUtensorMap *map, uint32_t rank, const int32_t *coordinate, uint32_t barrier,
                 uint32_t multicast_mask, bool multicast, bool pair = false); /* pair: .cta_group::2 */
void op_bulk_load(uint32_t destination, const void *source, uint32_t bytes, uint32_t barrier);
void op_tma_store(const CUtensorMap *map, uint32_t rank, const int32_t *coordinate, uint32_t source, bool reduce);
void op_bulk_commit(void);
void op_bulk_wait(uint32_t pending, bool read);
enum class Format { bf16, f16, e4m3 }; /* of a product's operands */
void op_wgmma(float *d, int columns, Format format, bool a_in_registers, bool a_transposed, bool b_transposed, uint64_t a,
              const uint32_t *a_registers, uint64_t b, bool scale_d);
void op_mma(float *d, const uint32_t *a, const uint32_t *b, Format format); /* m16n8k16 */
void op_wgmma_fence(void);
void op_wgmma_commit(void);
void op_wgmma_wait(uint32_t pending);
void op_matrix(uint32_t address, uint32_t *value, bool store, bool transposed);
void op_tcgen05_alloc(uint32_t destination, uint32_t columns, uint32_t group = 1); /* group: CTAs */
void op_tcgen05_dealloc(uint32_t address, uint32_t columns, uint32_t group = 1);
void op_tcgen05_relinquish(uint32_t group = 1);
void op_tcgen05_mma_f16(uint32_t d, uint64_t a, bool a_in_tensor_memory, uint64_t b, uint32_t word, bool accumulate,
                        uint32_t group = 1);
void op_tcgen05_mma_f8f6f4(uint32_t d, uint64_t a, uint64_t b, uint32_t word, bool accumulate);
void op_tcgen05_mma_mxf8f6f4(uint32_t d, uint64_t a, uint64_t b, uint32_t word, uint32_t a_scales, uint32_t b_scales, bool accumulate,
                             uint32_t group = 1);
void op_tcgen05_cp(uint32_t address, uint64_t source, uint32_t group = 1);
void op_tcgen05_commit(uint32_t barrier, uint32_t mask, bool multicast, uint32_t group = 1);
void op_tcgen05_fence(bool after);
void op_tcgen05_wait_ld(void);
void op_tcgen05_wait_st(void);
void op_tcgen05_ld(uint32_t *registers, uint32_t count, uint32_t address, uint32_t lanes);
void op_tcgen05_st(uint32_t address, const uint32_t *registers, uint32_t count, uint32_t lanes);

} // namespace machine

#endif
