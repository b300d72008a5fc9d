/* Single products and copies of Blackwell's tensor cores, with what they are given and what they leave: bytes of shared memory,
   descriptors, all of tensor memory before and after. One table of cases, one kernel (tile.cu); the machine model runs them (tile.cc),
   a card can (tile_card.cu, tile.sh), and tile.py says what must come out by other sources than this project's. */
#ifndef MACHINE_TILE_H
#define MACHINE_TILE_H

#include <stdint.h>

enum { TILE_F16, TILE_F8, TILE_MX, TILE_MOVE }; /* kind::f16, f8f6f4, mxf8f6f4; no product: registers to tensor memory or back */
enum { TILE_MULTIPLY, TILE_COPY, TILE_WAIT, /* tcgen05.mma, tcgen05.cp, a commit and the wait for it: by one thread; */
       TILE_STORE, TILE_LOAD_8, TILE_LOAD_16 /* tcgen05.st.16x128b.x2, ld.16x256b.x2 and x4: by all warps, 16 of their own lanes each */ };

/* Addresses count from where the image, and the allocation, begin: the kernel adds that. */
struct TileStep {
    uint32_t what, kind, d, word;
    uint64_t a, b; /* descriptors; a: the source of a copy; its low half is an address of tensor memory where a_in_tensor_memory says so */
    uint32_t a_in_tensor_memory, a_scales, b_scales, accumulate; /* a load: its registers go to columns a_in_tensor_memory and up */
};

enum {
    TILE_THREADS = 128,
    TILE_STEPS = 32,
    TILE_A_AT = 0, TILE_B_AT = 32 << 10, TILE_SCALES_AT = 96 << 10, /* in the image */
    TILE_ATOM_BYTES = 512, /* scales of 128 rows and 128 elements along K */
    TILE_IMAGE = 100 << 10,
    TILE_SHARED = TILE_IMAGE + 1024 + 64,
    TILE_WORDS = 128 * 512 /* of tensor memory: [lane][column] */
};

struct TileArguments {
    const uint32_t *image, *before; /* TILE_IMAGE bytes, TILE_WORDS */
    uint32_t *after; /* of a pair the peer's follow, each */
    uint32_t count, pair;
    TileStep step[TILE_STEPS];
};

struct TileCase {
    const char *name;
    uint32_t kind, m, n, k;        /* k: elements, whole products; m: 256 of a pair of CTAs (cta_group::2) */
    uint32_t a_width, b_width;     /* bytes of a panel in shared memory: 128, 64, 32, 16 */
    uint32_t a_transposed, b_transposed, a_format, b_format;
    uint32_t a_in_tensor_memory, accumulate; /* onto what tensor memory held */
    uint32_t d_column, first_row_of_scales;  /* the tile's columns of C begin so far inside an atom of B's scales; TILE_MOVE: n is the step,
                                                and this the first of a warp's lanes */
    uint32_t whole;                          /* small whole numbers: no sum is rounded, whatever the order */
};

static const TileCase tile_cases[] = {
    {"bf16, whole numbers", TILE_F16, 128, 256, 64, 128, 128, 0, 0, 1, 1, 0, 0, 0, 0, 1},
    {"bf16, rounded", TILE_F16, 128, 256, 128, 128, 128, 0, 0, 1, 1, 0, 0, 0, 0, 0},
    {"bf16, one product, rounded", TILE_F16, 128, 64, 16, 128, 128, 0, 0, 1, 1, 0, 0, 0, 0, 0},
    {"bf16, onto sums, rounded", TILE_F16, 128, 64, 16, 128, 128, 0, 0, 1, 1, 0, 1, 96, 0, 0},
    {"bf16, 64 rows", TILE_F16, 64, 128, 64, 128, 128, 0, 0, 1, 1, 0, 0, 32, 0, 1},
    {"bf16, 64-byte and 32-byte swizzle", TILE_F16, 128, 96, 64, 64, 32, 0, 0, 1, 1, 0, 0, 0, 0, 1},
    {"bf16, no swizzle", TILE_F16, 128, 80, 64, 16, 16, 0, 0, 1, 1, 0, 0, 0, 0, 1},
    {"bf16, both transposed", TILE_F16, 128, 192, 64, 128, 128, 1, 1, 1, 1, 0, 0, 0, 0, 1},
    {"bf16, both transposed, 64-byte and 32-byte swizzle", TILE_F16, 128, 64, 64, 64, 32, 1, 1, 1, 1, 0, 0, 0, 0, 1},
    {"bf16, A in tensor memory", TILE_F16, 128, 64, 64, 128, 128, 0, 1, 1, 1, 1, 0, 128, 0, 1},
    {"f16, rounded", TILE_F16, 128, 128, 64, 128, 128, 0, 0, 0, 0, 0, 0, 0, 0, 0},
    {"E4M3, whole numbers", TILE_F8, 128, 256, 128, 128, 128, 0, 0, 0, 0, 0, 0, 0, 0, 1},
    {"E4M3 and E5M2, rounded", TILE_F8, 128, 128, 128, 128, 128, 0, 0, 0, 1, 0, 0, 0, 0, 0},
    {"MXFP8, one product, whole numbers", TILE_MX, 128, 64, 32, 128, 128, 0, 0, 0, 0, 0, 0, 0, 0, 1},
    {"MXFP8, one product, rounded", TILE_MX, 128, 64, 32, 128, 128, 0, 0, 0, 0, 0, 0, 0, 0, 0},
    {"MXFP8, one product onto sums, rounded", TILE_MX, 128, 64, 32, 128, 128, 0, 0, 0, 0, 0, 1, 64, 0, 0},
    {"MXFP8, a block of K, whole numbers", TILE_MX, 128, 192, 128, 128, 128, 0, 0, 0, 0, 0, 0, 0, 0, 1},
    {"MXFP8, a block of K, rounded", TILE_MX, 128, 192, 128, 128, 128, 0, 0, 0, 0, 0, 0, 0, 0, 0},
    {"MXFP8, 256 columns, two blocks of K, rounded", TILE_MX, 128, 256, 256, 128, 128, 0, 0, 0, 0, 0, 0, 0, 0, 0},
    {"MXFP8, 64 columns in the middle of an atom", TILE_MX, 128, 64, 128, 128, 128, 0, 0, 0, 0, 0, 0, 128, 64, 1},
    {"MXFP8, 96 columns from the last quarter of an atom", TILE_MX, 128, 96, 128, 128, 128, 0, 0, 0, 0, 0, 0, 128, 96, 0},
    {"MXFP8, E5M2, 32-byte swizzle", TILE_MX, 128, 64, 128, 32, 32, 0, 0, 1, 1, 0, 0, 0, 0, 0},
    {"bf16, a pair, whole numbers", TILE_F16, 256, 256, 64, 128, 128, 0, 0, 1, 1, 0, 0, 0, 0, 1},
    {"bf16, a pair, onto sums, rounded", TILE_F16, 256, 128, 128, 128, 128, 0, 0, 1, 1, 0, 1, 64, 0, 0},
    {"bf16, a pair, A in tensor memory, B transposed", TILE_F16, 256, 64, 64, 128, 64, 0, 1, 1, 1, 1, 0, 128, 0, 1},
    {"bf16, a pair, A in tensor memory, three panels of B", TILE_F16, 256, 96, 64, 128, 32, 0, 1, 1, 1, 1, 0, 128, 0, 1},
    {"MXFP8, a pair, whole numbers", TILE_MX, 256, 256, 128, 128, 128, 0, 0, 0, 0, 0, 0, 0, 0, 1},
    {"MXFP8, a pair, 192 columns, two blocks of K, rounded", TILE_MX, 256, 192, 256, 128, 128, 0, 0, 0, 0, 0, 0, 0, 0, 0},
    {"store of 16 lanes, 8 columns", TILE_MOVE, 0, TILE_STORE, 0, 0, 0, 0, 0, 0, 0, 0, 0, 40, 0, 1},
    {"store of the other 16 lanes", TILE_MOVE, 0, TILE_STORE, 0, 0, 0, 0, 0, 0, 0, 0, 0, 200, 16, 1},
    {"load of 16 lanes, 16 columns", TILE_MOVE, 0, TILE_LOAD_8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 1},
    {"load of the other 16 lanes", TILE_MOVE, 0, TILE_LOAD_8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 480, 16, 1},
    {"load of 16 lanes, 32 columns", TILE_MOVE, 0, TILE_LOAD_16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 96, 0, 1},
    {"MXFP8, B transposed, 64-byte swizzle", TILE_MX, 128, 128, 128, 64, 64, 0, 1, 0, 0, 0, 0, 0, 0, 1},
};
enum { TILE_CASES = sizeof tile_cases / sizeof tile_cases[0], TILE_SCALES_COLUMN = 480, TILE_A_COLUMN = 256, TILE_LOADED_COLUMN = 320 };

/* What a run leaves in a file: for each case this head, its steps, the image, tensor memory before and after. */
struct TileHead {
    char name[64];
    uint32_t magic, count, whole, kind; /* kind: and 256 of a pair, whose image, before and after are twice as long */
};
enum { TILE_MAGIC = 0x454C4954 };

#endif
