/* Stands for the kernel on the machine of fake_cuda.h: pooled rows say which picture they are of, token and layer rows which layer, and
   what the host should have made ready is checked. */
#ifndef MGV_TESTS_FAKE_KERNEL_H
#define MGV_TESTS_FAKE_KERNEL_H

#include "fake_cuda.h"

enum { FAKE_ENGINES = 4 };
static mgv_engine *fake_engines[FAKE_ENGINES]; /* whose kernels are played; NULL: none */
static uint32_t fake_lists;                    /* lists of tiles that the last launch had; 0: tiles are taken in turn */

static inline uint32_t fake_sum(const uint8_t *picture, size_t bytes) {
    uint32_t sum = 0;
    size_t i;
    for (i = 0; i < bytes; i++) sum += picture[i];
    return sum;
}
static inline float fake_column(uint32_t sum, uint32_t column) { return (float)sum + (float)column / 1024; }
static inline float fake_pooled(const uint8_t *picture, size_t bytes, uint32_t column) {
    return fake_column(fake_sum(picture, bytes), column);
}
static inline float fake_row(int32_t layer, uint32_t element) { return (float)(element % 4096) + (float)(layer + 2) * 8192; }

/* Lists of tiles that the device has: as many tiles as there are, each list in order; how many lists. */
static inline uint32_t fake_count_lists(const mgv__cuda *cuda, const mgv__kernel_arguments *arguments) {
    const uint32_t *at;
    uint32_t c, tiles = 0;
    if (!arguments->deal) return 0;
    for (c = 0; c < cuda->plan->clusters; c++)
        for (at = arguments->deal + arguments->deal[c]; *at != MGV__NO_TILE; at++, tiles++) {
            assert_true(*at < arguments->total_tiles);
            assert_true(at[1] > at[0]);
        }
    assert_int_equal(tiles, arguments->total_tiles);
    return c;
}

static inline const mgv__cuda *fake_find_cuda(const mgv__kernel_arguments *arguments) {
    int i;
    for (i = 0; i < FAKE_ENGINES; i++)
        if (fake_engines[i] && fake_engines[i]->gpu->cuda->status == arguments->status) return fake_engines[i]->gpu->cuda;
    return NULL;
}

static inline void fake_kernel(const void *argument) {
    const mgv__kernel_arguments *arguments = (const mgv__kernel_arguments *)argument;
    const mgv__cuda *cuda = fake_find_cuda(arguments);
    float *pooled = (float *)(void *)arguments->buffers[MGV__DEVICE_POOLED];
    const size_t image_bytes = (size_t)arguments->image_size * arguments->image_size * 3;
    uint32_t i, k, images, columns;
    assert_non_null(cuda);
    images = arguments->ops[1].rows_total / cuda->plan->tokens;
    columns = cuda->plan->config->hidden;
    assert_true(images >= 1 && images <= cuda->plan->max_images);
    for (i = 0; i < cuda->plan->counter_count; i++) assert_int_equal(arguments->counters[i], 0);
    assert_int_equal(*arguments->aborted, 0);
    assert_int_equal(arguments->segments[0].first_tile, 0);
    for (i = 0; arguments->segments[i].first_tile < arguments->total_tiles; i++) continue;
    assert_int_equal(arguments->segments[i].first_tile, arguments->total_tiles); /* the closing entry of this schedule */
    fake_lists = fake_count_lists(cuda, arguments);
    for (i = 0; i < cuda->plan->op_count; i++) /* a GEMM stores through its map, which is of the arena */
        if (cuda->plan->ops[i].target == MGV__DEVICE_POOLED && arguments->ops[i].kind == MGV__KERNEL_GEMM_64)
            assert_ptr_equal(pooled, cuda->arena + cuda->plan->buffers[MGV__DEVICE_POOLED].offset);
    for (i = 0; i < images; i++) {
        const uint32_t sum = fake_sum(arguments->pixels + i * image_bytes, image_bytes);
        for (k = 0; k < columns; k++) pooled[i * columns + k] = fake_column(sum, k);
    }
    for (i = 0; i < cuda->plan->op_count; i++) {
        const mgv__kernel_op *op = &arguments->ops[i];
        if (op->kind != MGV__KERNEL_ROWS) continue;
        for (k = 0; k < op->rows_total * op->inner; k++)
            arguments->outputs[op->of.rows.target][k] = fake_row(cuda->plan->outputs.layer[op->of.rows.target], k);
    }
    if (arguments->next_count)
        memset(arguments->aborted + arguments->next_counters, 0, arguments->next_count * sizeof *arguments->counters);
    fake.abort_word = arguments->aborted;
    arguments->counters[0] = 1;
    *arguments->aborted = fake.aborted;
    if (fake.aborted) arguments->status->aborted = fake.aborted;
}

#endif
