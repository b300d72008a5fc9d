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
    RECORD_LOAD_2D, RECORD_LOAD_3D, RECORD_LOAD_4D, /* a box into shared memory, dumped */
    RECORD_STORE_3D, RECORD_STORE_4D, RECORD_REDUCE_3D, /* shared memory through a box into global memory, dumped */
    RECORD_WGMMA_SS, RECORD_WGMMA_RS,    /* accumulators of 128 threads */
    RECORD_WGMMA_SS_NARROW,              /* 16 or 32 columns in a swizzle as wide; A is the first 64 rows of B */
    RECORD_WGMMA_RS_WIDE,                /* B transposed, two blocks of 64 columns */
    RECORD_WGMMA_RS_NARROW,              /* B transposed, 16 or 32 columns in a swizzle as wide */
    RECORD_WGMMA_HALF,                   /* f16 */
    RECORD_WGMMA_MN_A,                   /* A stored with M contiguous */
    RECORD_WGMMA_E4M3,                   /* FP8: after one product of 32 columns, and after four */
    RECORD_WGMMA_ROUNDED,                /* the same with bf16 of all sizes, 16 columns each; n: 64 */
    RECORD_WGMMA_HALF_ROUNDED,           /* with f16 */
    RECORD_MMA,                          /* mma.sync by four warps, after one product and after four; n: 0 whole numbers, 1 all sizes; 2, 3: f16 */
    RECORD_HALF,                         /* conversions to f16 and back, 64 bytes a thread */
    RECORD_WARP,                         /* shuffles, votes, conversions, atomics, named barriers; 64 bytes a thread */
    RECORD_BULK,                         /* n bytes into shared memory without a tensor map */
    RECORD_MATRIX,                       /* stmatrix, then ldmatrix at other addresses; n: 1 for the transposed stmatrix, 2 for the transposed ldmatrix */
    RECORD_MBARRIER,                     /* what waits answer */
    RECORD_MULTICAST,                    /* n: CTAs of a cluster that send boxes to some of each other */
    RECORD_CLUSTER_LOADS,                /* n: CTAs of a cluster; what lies in the next one's shared memory, a 3d box for all */
    RECORD_CLUSTER_STORES,               /* n: CTAs of a cluster; st.async and st.shared::cluster to the next one */
    RECORD_FLAGS                         /* n: CTAs; each stores a box, the next loads it after its flag, for several rounds */
};

struct RecordCase {
    const char *name;
    int mode, n;               /* n: columns of a matrix product, or what the mode says */
    int element_bytes, swizzle;
    uint32_t dims[4], box[4];  /* of the tensor, of the box; a fourth of 0 stands for 1 */
    int32_t at[4];
};
static inline uint32_t record_count(const uint32_t sides[4]) { return sides[0] * sides[1] * sides[2] * (sides[3] ? sides[3] : 1); }
/* The copy engine refuses a box whose innermost coordinate is not a multiple of 16 bytes, and a store before the tensor's start, with an
   illegal instruction: found by recording. */
static inline bool record_refused(const RecordCase &c) {
    if (c.mode > RECORD_REDUCE_3D) return false;
    return c.at[0] * c.element_bytes % 16 != 0 || (c.mode >= RECORD_STORE_3D && (c.at[0] < 0 || c.at[1] < 0 || c.at[2] < 0 || c.at[3] < 0));
}
static inline bool record_product(const RecordCase &c) { return c.mode >= RECORD_WGMMA_SS && c.mode <= RECORD_WGMMA_MN_A; }
/* What only Hopper has. */
static inline bool record_of_hopper(const RecordCase &c) { return c.mode >= RECORD_WGMMA_SS && c.mode <= RECORD_WGMMA_HALF_ROUNDED; }
static inline uint32_t record_ctas(const RecordCase &c) { return c.mode >= RECORD_MULTICAST ? (uint32_t)c.n : 1; }

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
    {"load 2d 32B, half rows, on 16 bytes", RECORD_LOAD_2D, 0, 2, 1, {40, 40, 1}, {8, 33, 1}, {8, 1, 0}},
    {"load 2d 64B, whole rows, on 16 bytes", RECORD_LOAD_2D, 0, 2, 2, {64, 40, 1}, {32, 19, 1}, {8, 3, 0}},
    {"load 2d 64B, rows of 48 bytes", RECORD_LOAD_2D, 0, 2, 2, {64, 40, 1}, {24, 19, 1}, {8, 3, 0}},
    {"load 2d 64B, rows of 16 bytes", RECORD_LOAD_2D, 0, 2, 2, {64, 40, 1}, {8, 19, 1}, {16, 3, 0}},
    {"load 2d 128B, whole rows, on 16 bytes", RECORD_LOAD_2D, 0, 2, 3, {128, 40, 1}, {64, 37, 1}, {8, 1, 0}},
    {"load 2d 128B, rows of 80 bytes", RECORD_LOAD_2D, 0, 2, 3, {128, 40, 1}, {40, 21, 1}, {8, 1, 0}},
    {"load 2d 128B, rows of 32 bytes", RECORD_LOAD_2D, 0, 2, 3, {128, 40, 1}, {16, 21, 1}, {24, 2, 0}},
    {"load 2d 128B, bytes, on 16 bytes", RECORD_LOAD_2D, 0, 1, 3, {208, 40, 1}, {128, 12, 1}, {16, 5, 0}},
    {"load 2d 128B, floats, on 16 bytes", RECORD_LOAD_2D, 0, 4, 3, {44, 40, 1}, {32, 12, 1}, {4, 5, 0}},
    {"load 2d 128B, before both starts, on 16 bytes", RECORD_LOAD_2D, 0, 2, 3, {72, 20, 1}, {64, 16, 1}, {-16, -5, 0}},
    {"load 3d 64B, beyond all ends", RECORD_LOAD_3D, 0, 2, 2, {40, 10, 3}, {32, 8, 2}, {24, 6, 2}},
    {"store 3d 128B, clipped, on 16 bytes", RECORD_STORE_3D, 0, 2, 3, {72, 40, 2}, {64, 64, 1}, {16, 9, 0}},
    {"store 3d 128B, before the start, on 16 bytes", RECORD_STORE_3D, 0, 2, 3, {72, 40, 2}, {64, 32, 1}, {-8, -3, 1}},
    {"store 3d none, clipped, on 16 bytes", RECORD_STORE_3D, 0, 2, 0, {40, 10, 1}, {24, 8, 1}, {24, 5, 0}},
    {"store 3d 128B, floats, on 16 bytes", RECORD_STORE_3D, 0, 4, 3, {40, 30, 1}, {32, 20, 1}, {12, 13, 0}},
    {"store 3d 64B, clipped", RECORD_STORE_3D, 0, 2, 2, {64, 20, 1}, {32, 16, 1}, {40, 8, 0}},
    {"store 3d 64B, rows of 48 bytes", RECORD_STORE_3D, 0, 2, 2, {64, 20, 1}, {24, 16, 1}, {8, 2, 0}},
    {"store 3d 32B, odd width", RECORD_STORE_3D, 0, 1, 1, {48, 20, 1}, {32, 16, 1}, {32, 8, 0}},
    {"reduce-add 3d, bf16", RECORD_REDUCE_3D, 0, 2, 3, {72, 40, 2}, {64, 64, 1}, {16, 9, 1}},
    {"reduce-add 3d, float32", RECORD_REDUCE_3D, 0, 4, 3, {40, 30, 1}, {32, 20, 1}, {-4, 13, 0}},
    {"wgmma n48", RECORD_WGMMA_SS, 48, 2, 3, {64, 48, 1}, {64, 48, 1}, {0, 0, 0}},
    {"wgmma n72", RECORD_WGMMA_SS, 72, 2, 3, {64, 72, 1}, {64, 72, 1}, {0, 0, 0}},
    {"wgmma n96", RECORD_WGMMA_SS, 96, 2, 3, {64, 96, 1}, {64, 96, 1}, {0, 0, 0}},
    {"wgmma n160", RECORD_WGMMA_SS, 160, 2, 3, {64, 160, 1}, {64, 160, 1}, {0, 0, 0}},
    {"wgmma n192", RECORD_WGMMA_SS, 192, 2, 3, {64, 192, 1}, {64, 192, 1}, {0, 0, 0}},
    {"wgmma n128, A in registers, B transposed", RECORD_WGMMA_RS_WIDE, 128, 2, 3, {64, 128, 1}, {64, 128, 1}, {0, 0, 0}},
    {"wgmma n64, A with M contiguous", RECORD_WGMMA_MN_A, 64, 2, 3, {64, 64, 1}, {64, 64, 1}, {0, 0, 0}},
    {"wgmma n64, FP8, whole numbers", RECORD_WGMMA_E4M3, 64, 1, 3, {128, 64, 1}, {128, 64, 1}, {0, 0, 0}},
    {"wgmma n64, FP8", RECORD_WGMMA_E4M3, 64, 1, 3, {128, 64, 1}, {128, 64, 1}, {0, 0, 1}},
    {"multicast in a cluster of two", RECORD_MULTICAST, 2, 2, 3, {64, 40, 1}, {64, 8, 1}, {0, 0, 0}},
    {"multicast in a cluster of four", RECORD_MULTICAST, 4, 2, 3, {64, 40, 1}, {64, 8, 1}, {0, 0, 0}},
    {"stores in a cluster of two", RECORD_CLUSTER_STORES, 2, 2, 3, {64, 40, 1}, {64, 8, 1}, {0, 0, 0}},
    {"stores in a cluster of four", RECORD_CLUSTER_STORES, 4, 2, 3, {64, 40, 1}, {64, 8, 1}, {0, 0, 0}},
    {"stores in a cluster of eight", RECORD_CLUSTER_STORES, 8, 2, 3, {64, 40, 1}, {64, 8, 1}, {0, 0, 0}},
    {"store 3d 128B, above the first row", RECORD_STORE_3D, 0, 2, 3, {72, 40, 2}, {64, 32, 1}, {8, -3, 1}},
    {"store 3d 128B, outside", RECORD_STORE_3D, 0, 2, 3, {72, 40, 2}, {64, 32, 1}, {80, 3, 1}},
    {"reduce-add 3d, float32, clipped", RECORD_REDUCE_3D, 0, 4, 3, {40, 30, 1}, {32, 20, 1}, {12, 13, 0}},
    {"wgmma n64, rounded", RECORD_WGMMA_ROUNDED, 64, 2, 3, {64, 64, 1}, {64, 64, 1}, {0, 0, 0}},
    {"flags between CTAs", RECORD_FLAGS, 4, 2, 3, {64, 16, 4}, {64, 16, 1}, {0, 0, 0}},
    {"stmatrix transposed, ldmatrix", RECORD_MATRIX, 1, 2, 0, {8, 8, 1}, {8, 8, 1}, {0, 0, 0}},
    {"wgmma n8", RECORD_WGMMA_SS, 8, 2, 3, {64, 8, 1}, {64, 8, 1}, {0, 0, 0}},
    {"wgmma n16", RECORD_WGMMA_SS, 16, 2, 3, {64, 16, 1}, {64, 16, 1}, {0, 0, 0}},
    {"wgmma n104", RECORD_WGMMA_SS, 104, 2, 3, {64, 104, 1}, {64, 104, 1}, {0, 0, 0}},
    {"wgmma n16, A in registers, B transposed in 32B", RECORD_WGMMA_RS_NARROW, 16, 2, 1, {16, 64, 1}, {16, 64, 1}, {0, 0, 0}},
    {"wgmma n32, A in registers, B transposed in 64B", RECORD_WGMMA_RS_NARROW, 32, 2, 2, {32, 64, 1}, {32, 64, 1}, {0, 0, 0}},
    {"mma.sync, whole numbers", RECORD_MMA, 0, 2, 0, {8, 8, 1}, {8, 8, 1}, {0, 0, 0}},
    {"mma.sync, rounded", RECORD_MMA, 1, 2, 0, {8, 8, 1}, {8, 8, 1}, {0, 0, 0}},
    {"wgmma n112", RECORD_WGMMA_SS, 112, 2, 3, {64, 112, 1}, {64, 112, 1}, {0, 0, 0}},
    {"wgmma n128, in 64B", RECORD_WGMMA_SS_NARROW, 128, 2, 2, {32, 128, 1}, {32, 128, 1}, {0, 0, 0}},
    {"wgmma n128, in 32B", RECORD_WGMMA_SS_NARROW, 128, 2, 1, {16, 128, 1}, {16, 128, 1}, {0, 0, 0}},
    {"shuffles, votes, conversions, atomics, named barriers", RECORD_WARP, 0, 2, 0, {8, 8, 1}, {8, 8, 1}, {0, 0, 0}},
    {"bulk load without a tensor map", RECORD_BULK, 2064, 2, 0, {64, 40, 1}, {64, 8, 1}, {0, 0, 0}},
    {"load 4d 128B, beyond all ends", RECORD_LOAD_4D, 0, 2, 3, {72, 6, 5, 3}, {64, 4, 3, 2}, {16, 4, 3, 2}},
    {"load 4d 128B, before all starts", RECORD_LOAD_4D, 0, 2, 3, {72, 6, 5, 3}, {64, 4, 3, 2}, {-8, -1, -2, -1}},
    {"store 4d 128B, clipped", RECORD_STORE_4D, 0, 2, 3, {72, 6, 5, 3}, {64, 4, 3, 2}, {16, 4, 3, 2}},
    {"loads in a cluster of two", RECORD_CLUSTER_LOADS, 2, 2, 3, {64, 16, 3}, {64, 8, 1}, {0, 0, 0}},
    {"loads in a cluster of four", RECORD_CLUSTER_LOADS, 4, 2, 3, {64, 16, 3}, {64, 8, 1}, {0, 0, 0}},
    {"wgmma n32", RECORD_WGMMA_SS, 32, 2, 3, {64, 32, 1}, {64, 32, 1}, {0, 0, 0}},
    {"stmatrix, ldmatrix transposed", RECORD_MATRIX, 2, 2, 0, {8, 8, 1}, {8, 8, 1}, {0, 0, 0}},
    {"wgmma n64, f16", RECORD_WGMMA_HALF, 64, 2, 3, {64, 64, 1}, {64, 64, 1}, {0, 0, 0}},
    {"wgmma n128, f16", RECORD_WGMMA_HALF, 128, 2, 3, {64, 128, 1}, {64, 128, 1}, {0, 0, 0}},
    {"wgmma n192, f16", RECORD_WGMMA_HALF, 192, 2, 3, {64, 192, 1}, {64, 192, 1}, {0, 0, 0}},
    {"wgmma n256, f16", RECORD_WGMMA_HALF, 256, 2, 3, {64, 256, 1}, {64, 256, 1}, {0, 0, 0}},
    {"wgmma n64, f16, rounded", RECORD_WGMMA_HALF_ROUNDED, 64, 2, 3, {64, 64, 1}, {64, 64, 1}, {0, 0, 0}},
    {"mma.sync, f16, whole numbers", RECORD_MMA, 2, 2, 0, {8, 8, 1}, {8, 8, 1}, {0, 0, 0}},
    {"mma.sync, f16, rounded", RECORD_MMA, 3, 2, 0, {8, 8, 1}, {8, 8, 1}, {0, 0, 0}},
    {"conversions to f16 and back", RECORD_HALF, 0, 2, 0, {8, 8, 1}, {8, 8, 1}, {0, 0, 0}},
};
enum { RECORD_CASES = sizeof record_cases / sizeof record_cases[0], RECORD_SHARED = 64 * 1024, RECORD_OUT = 256 * 1024 };

struct RecordArguments {
    CUtensorMap map;   /* of the tensor; of B */
    CUtensorMap map_a; /* 64 x 64 of A */
    uint8_t *out;      /* 256 KB */
    uint32_t *flags;   /* 8, zero */
    const uint8_t *tensor;
    uint32_t mode, n, bytes, dump;
    int32_t element_bytes, swizzle;
    int32_t at[4];
};

static inline uint32_t record_box_bytes(const RecordCase &c) { return (uint32_t)c.element_bytes * record_count(c.box); }
/* Bytes of shared memory that a load is given: as if its rows filled the swizzle. */
static inline uint32_t record_dump_bytes(const RecordCase &c) {
    const uint32_t row = (uint32_t)c.element_bytes * c.box[0], swizzle = c.swizzle ? 16u << c.swizzle : 0;
    return (row > swizzle ? row : swizzle) * (record_count(c.box) / c.box[0]);
}
/* Bytes that the case leaves in `out`; a store's are its tensor. */
enum { RECORD_CTA_BYTES = 4096 };
static inline uint32_t record_out_bytes(const RecordCase &c) {
    if (c.mode <= RECORD_LOAD_4D) return record_dump_bytes(c) + 4; /* and whether the bytes were those of the box */
    if (c.mode <= RECORD_REDUCE_3D) return (uint32_t)c.element_bytes * record_count(c.dims);
    if (record_product(c)) return 128u * (uint32_t)c.n / 2 * 4;
    if (c.mode >= RECORD_WGMMA_E4M3 && c.mode <= RECORD_WGMMA_HALF_ROUNDED) return 2 * 128u * (uint32_t)c.n / 2 * 4;
    if (c.mode == RECORD_MMA) return 2 * 128u * 4 * 4;
    if (c.mode == RECORD_WARP || c.mode == RECORD_HALF) return 128 * 64;
    if (c.mode == RECORD_BULK) return 4096;
    if (c.mode >= RECORD_MULTICAST) return RECORD_CTA_BYTES * record_ctas(c);
    return c.mode == RECORD_MATRIX ? 1024 + 512 : 64;
}
/* Element i of a tensor whose products are summed: -2 to 2, as bf16; as f16 +-2, +-1.875 and 0, whose sums are exact, too. */
static inline uint16_t record_number(uint32_t i) {
    static const uint16_t numbers[] = {0xC000, 0xBF80, 0, 0x3F80, 0x4000};
    return numbers[(i * 2654435761u >> 13) % 5];
}
/* bf16 of either sign, 2^-7 to 2^8. */
static inline RECORD_DEVICE uint16_t record_rough_number(uint32_t i) {
    const uint32_t hash = (i + 3) * 2654435761u ^ (i + 11) * 2246822519u >> 7;
    return (uint16_t)((hash & 0x8000) | (120 + (hash >> 24) % 15) << 7 | (hash >> 8 & 0x7f));
}
/* Any finite f16, so that a quarter of all are small enough to be subnormal. */
static inline RECORD_DEVICE uint16_t record_any_half(uint32_t i) {
    const uint32_t hash = (i + 3) * 2654435761u ^ (i + 11) * 2246822519u >> 7, sizes = hash >> 20 & 31;
    return (uint16_t)((hash & 0x8000) | (sizes < 8 ? 0 : sizes - 1) << 10 | (hash >> 5 & 0x3ff));
}
/* The same in FP8, and any finite FP8 number. */
static inline uint8_t record_e4m3(uint32_t i, bool whole) {
    static const uint8_t numbers[] = {0xC0, 0xB8, 0, 0x38, 0x40};
    const uint32_t hash = i * 2654435761u ^ i >> 3;
    const uint8_t any = (uint8_t)(hash >> 17);
    return whole ? numbers[(hash >> 13) % 5] : (any & 0x7f) == 0x7f ? 0 : any;
}
static inline RECORD_DEVICE uint8_t record_byte(uint32_t i) { return (uint8_t)((i * 2654435761u >> 11) ^ i); }
/* What is added: float32 or two bf16 of either sign, between 1/8 and 32. */
static inline RECORD_DEVICE uint32_t record_addend(uint32_t i, int element_bytes) {
    const uint32_t hash = (i + 1) * 2654435761u ^ (i + 7) * 2246822519u >> 5;
    if (element_bytes == 4) return (hash & 0x80000000u) | (124 + (hash >> 23 & 7)) << 23 | (hash & 0x7fffff);
    const uint32_t low = (hash & 0x8000u) | (124 + (hash >> 7 & 7)) << 7 | (hash >> 10 & 0x7f),
                   high = (hash >> 16 & 0x8000u) | (124 + (hash >> 23 & 7)) << 7 | (hash >> 16 & 0x7f);
    return low | high << 16;
}
static inline RECORD_DEVICE uint32_t record_word(uint32_t i) {
    return record_byte(i) | (uint32_t)record_byte(i + 1) << 8 | (uint32_t)record_byte(i + 2) << 16 | (uint32_t)record_byte(i + 3) << 24;
}

#endif
