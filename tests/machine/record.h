/* What is recorded on a Hopper GPU and replayed on the model: one table of cases, one kernel. record.cu, test_machine.cc */
#ifndef MACHINE_RECORD_H
#define MACHINE_RECORD_H

#include <cuda.h>
#include <stdint.h>

#ifdef __CUDACC__
#define RECORD_DEVICE __host__ __device__
#else
#define RECORD_DEVICE
#endif

enum {
    RECORD_LOAD_2D, RECORD_LOAD_3D,      /* a box into shared memory, dumped */
    RECORD_STORE_3D,                     /* shared memory through a box into global memory, dumped */
    RECORD_WGMMA_SS, RECORD_WGMMA_RS,    /* accumulators of 128 threads */
    RECORD_MATRIX,                       /* stmatrix, then ldmatrix at other addresses */
    RECORD_MBARRIER                      /* what waits answer */
};

struct RecordCase {
    const char *name;
    int mode, n;               /* n: columns of a matrix product */
    int element_bytes, swizzle;
    uint32_t dims[3], box[3];  /* of the tensor, of the box */
    int32_t at[3];
};
/* The copy engine refuses a box whose innermost coordinate is not a multiple of 16 bytes, with an illegal instruction: found by recording. */
static inline bool record_refused(const RecordCase &c) { return c.mode <= RECORD_STORE_3D && c.at[0] * c.element_bytes % 16 != 0; }

/* Tensors hold bytes by a rule; matrix products small whole numbers, so that no sum is rounded. */
static const RecordCase record_cases[] = {
    {"load 2d none", RECORD_LOAD_2D, 0, 2, 0, {40, 20, 1}, {24, 7, 1}, {3, 2, 0}},
    {"load 2d 32B, whole rows", RECORD_LOAD_2D, 0, 2, 1, {40, 40, 1}, {16, 33, 1}, {5, 1, 0}},
    {"load 2d 32B, half rows", RECORD_LOAD_2D, 0, 2, 1, {40, 40, 1}, {8, 33, 1}, {5, 1, 0}},
    {"load 2d 64B, whole rows", RECORD_LOAD_2D, 0, 2, 2, {64, 40, 1}, {32, 19, 1}, {7, 3, 0}},
    {"load 2d 64B, short rows", RECORD_LOAD_2D, 0, 2, 2, {64, 40, 1}, {24, 19, 1}, {7, 3, 0}},
    {"load 2d 128B, whole rows", RECORD_LOAD_2D, 0, 2, 3, {128, 40, 1}, {64, 37, 1}, {9, 1, 0}},
    {"load 2d 128B, short rows", RECORD_LOAD_2D, 0, 2, 3, {128, 40, 1}, {40, 21, 1}, {9, 1, 0}},
    {"load 2d 128B, bytes", RECORD_LOAD_2D, 0, 1, 3, {208, 40, 1}, {128, 12, 1}, {17, 5, 0}},
    {"load 2d 128B, floats", RECORD_LOAD_2D, 0, 4, 3, {44, 40, 1}, {32, 12, 1}, {5, 5, 0}},
    {"load 2d 128B, beyond both ends", RECORD_LOAD_2D, 0, 2, 3, {72, 20, 1}, {64, 16, 1}, {40, 11, 0}},
    {"load 2d 128B, before both starts", RECORD_LOAD_2D, 0, 2, 3, {72, 20, 1}, {64, 16, 1}, {-13, -5, 0}},
    {"load 2d none, outside", RECORD_LOAD_2D, 0, 2, 0, {72, 20, 1}, {16, 4, 1}, {200, 3, 0}},
    {"load 3d 128B", RECORD_LOAD_3D, 0, 2, 3, {64, 20, 3}, {64, 16, 1}, {0, 9, 1}},
    {"load 3d 128B, box over groups", RECORD_LOAD_3D, 0, 2, 3, {72, 6, 4}, {64, 8, 2}, {16, 1, 1}},
    {"load 3d 32B, head dimension 72", RECORD_LOAD_3D, 0, 2, 1, {72, 20, 2}, {16, 24, 1}, {64, 3, 1}},
    {"store 3d 128B", RECORD_STORE_3D, 0, 2, 3, {128, 70, 2}, {64, 64, 1}, {64, 0, 1}},
    {"store 3d 128B, clipped", RECORD_STORE_3D, 0, 2, 3, {72, 40, 2}, {64, 64, 1}, {19, 9, 0}},
    {"store 3d 128B, before the start", RECORD_STORE_3D, 0, 2, 3, {72, 40, 2}, {64, 32, 1}, {-6, -3, 1}},
    {"store 3d none, clipped", RECORD_STORE_3D, 0, 2, 0, {40, 10, 1}, {24, 8, 1}, {21, 5, 0}},
    {"store 3d 128B, floats", RECORD_STORE_3D, 0, 4, 3, {40, 30, 1}, {32, 20, 1}, {11, 13, 0}},
    {"wgmma n64", RECORD_WGMMA_SS, 64, 2, 3, {64, 64, 1}, {64, 64, 1}, {0, 0, 0}},
    {"wgmma n128", RECORD_WGMMA_SS, 128, 2, 3, {64, 128, 1}, {64, 128, 1}, {0, 0, 0}},
    {"wgmma n208", RECORD_WGMMA_SS, 208, 2, 3, {64, 208, 1}, {64, 208, 1}, {0, 0, 0}},
    {"wgmma n256", RECORD_WGMMA_SS, 256, 2, 3, {64, 256, 1}, {64, 256, 1}, {0, 0, 0}},
    {"wgmma n64, A in registers, B transposed", RECORD_WGMMA_RS, 64, 2, 3, {64, 64, 1}, {64, 64, 1}, {0, 0, 0}},
    {"stmatrix, ldmatrix", RECORD_MATRIX, 0, 2, 0, {8, 8, 1}, {8, 8, 1}, {0, 0, 0}},
    {"mbarrier phases", RECORD_MBARRIER, 0, 2, 0, {64, 8, 1}, {64, 8, 1}, {0, 0, 0}},
};
enum { RECORD_CASES = sizeof record_cases / sizeof record_cases[0], RECORD_SHARED = 64 * 1024, RECORD_OUT = 256 * 1024 };

struct RecordArguments {
    CUtensorMap map;   /* of the tensor; of B */
    CUtensorMap map_a; /* 64 x 64 of A */
    uint8_t *out;      /* 256 KB */
    uint32_t mode, n, bytes;
    int32_t at[3];
};

static inline uint32_t record_box_bytes(const RecordCase &c) { return (uint32_t)c.element_bytes * c.box[0] * c.box[1] * c.box[2]; }
/* Bytes that the case leaves in `out`; a store's are its tensor. */
static inline uint32_t record_out_bytes(const RecordCase &c) {
    if (c.mode <= RECORD_LOAD_3D) return record_box_bytes(c);
    if (c.mode == RECORD_STORE_3D) return (uint32_t)c.element_bytes * c.dims[0] * c.dims[1] * c.dims[2];
    if (c.mode == RECORD_WGMMA_SS || c.mode == RECORD_WGMMA_RS) return 128u * (uint32_t)c.n / 2 * 4;
    return c.mode == RECORD_MATRIX ? 1024 + 512 : 64;
}
/* Element i of a tensor whose products are summed: -2 to 2, as bf16. */
static inline uint16_t record_number(uint32_t i) {
    static const uint16_t numbers[] = {0xC000, 0xBF80, 0, 0x3F80, 0x4000};
    return numbers[(i * 2654435761u >> 13) % 5];
}
static inline RECORD_DEVICE uint8_t record_byte(uint32_t i) { return (uint8_t)((i * 2654435761u >> 11) ^ i); }
static inline RECORD_DEVICE uint32_t record_word(uint32_t i) {
    return record_byte(i) | (uint32_t)record_byte(i + 1) << 8 | (uint32_t)record_byte(i + 2) << 16 | (uint32_t)record_byte(i + 3) << 24;
}

#endif
