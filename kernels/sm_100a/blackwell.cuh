/* megavit: the numbers by which Blackwell's tensor cores (sm_100a, sm_103a) are told what to do: descriptors, instruction words, where
   scales lie. Written from the bit tables of the PTX manual (9.0, section 9.7.16); tests/machine/blackwell_constants.cc checks every bit
   against a table of its own. Nothing here has been tried on a card. */
#ifndef MGV_BLACKWELL_CUH
#define MGV_BLACKWELL_CUH

#include <stdint.h>

#ifdef __CUDACC__
#define BLACKWELL static constexpr __host__ __device__ __forceinline__
#else
#define BLACKWELL static constexpr inline
#endif

/* --- matrices in shared memory -------------------------------------------------------------------------------------
   A matrix is cut into panels that are `width` bytes wide along its contiguous dimension: 128, 64 or 32 bytes, swizzled in groups of eight
   rows as the copy engine writes them, or 16 bytes, not swizzled. K-major: K is contiguous. MN-major (transposed): M or N is.

               leading_bytes                      stride_bytes
   K-major     swizzled: 0; 16: to next panel     to the next eight rows, 8 width
   MN-major    to the next panel                  to the next eight values of k, 8 width
   MN-major 16 to the next eight values of k      to the next panel */

enum { MATRIX_SWIZZLE_NONE = 0, MATRIX_SWIZZLE_128B = 2, MATRIX_SWIZZLE_64B = 4, MATRIX_SWIZZLE_32B = 6 };

BLACKWELL uint32_t matrix_swizzle(uint32_t width) {
    return width == 128 ? MATRIX_SWIZZLE_128B : width == 64 ? MATRIX_SWIZZLE_64B : width == 32 ? MATRIX_SWIZZLE_32B : MATRIX_SWIZZLE_NONE;
}

/* `address` of shared memory, all three multiples of 16. Panels begin at multiples of 8 width, so that the base offset is 0. */
BLACKWELL uint64_t matrix_descriptor(uint32_t address, uint32_t leading_bytes, uint32_t stride_bytes, uint32_t swizzle) {
    return (uint64_t)((address & 0x3FFFF) >> 4) | (uint64_t)((leading_bytes & 0x3FFFF) >> 4) << 16 |
           (uint64_t)((stride_bytes & 0x3FFFF) >> 4) << 32 | 1ull << 46 | (uint64_t)swizzle << 61;
}

/* The whole matrix: panels of `width` bytes and `rows` rows, one behind the other. */
BLACKWELL uint64_t matrix_descriptor_k_major(uint32_t address, uint32_t rows, uint32_t width) {
    return matrix_descriptor(address, width == 16 ? rows * 16 : 0, 8 * width, matrix_swizzle(width));
}
BLACKWELL uint64_t matrix_descriptor_mn_major(uint32_t address, uint32_t rows, uint32_t width) {
    return width == 16 ? matrix_descriptor(address, 8 * width, rows * width, MATRIX_SWIZZLE_NONE)
                       : matrix_descriptor(address, rows * width, 8 * width, matrix_swizzle(width));
}

/* A descriptor whose address lies `bytes` further, for the next values of k. */
BLACKWELL uint64_t matrix_descriptor_advance(uint64_t descriptor, uint32_t bytes) { return descriptor + (bytes >> 4); }

/* K-major: where byte k along K begins, behind the first; a product takes 32 bytes along K. MN-major: row k, one for each value of k. */
BLACKWELL uint32_t matrix_k_major_offset(uint32_t k, uint32_t rows, uint32_t width) { return k / width * rows * width + k % width; }
BLACKWELL uint32_t matrix_mn_major_offset(uint32_t k, uint32_t width) { return k * width; }

/* --- the instruction word ------------------------------------------------------------------------------------------ */

enum { FORMAT_F16 = 0, FORMAT_BF16 = 1 };   /* kind::f16 */
enum { FORMAT_E4M3 = 0, FORMAT_E5M2 = 1 };  /* kind::f8f6f4, kind::mxf8f6f4 */

/* kind::f16 and kind::f8f6f4, dense, D in float32. a_transposed, b_transposed: 1 where the operand is MN-major. */
BLACKWELL uint32_t instruction_word(uint32_t m, uint32_t n, uint32_t a_format, uint32_t b_format, uint32_t a_transposed,
                                    uint32_t b_transposed) {
    return 1u << 4 | a_format << 7 | b_format << 10 | a_transposed << 15 | b_transposed << 16 | n >> 3 << 17 | m >> 4 << 24;
}

/* kind::mxf8f6f4, dense, UE8M0 scales. a_scale, b_scale: which byte of the scales' columns, 0 to 3. */
BLACKWELL uint32_t instruction_word_scaled(uint32_t m, uint32_t n, uint32_t a_format, uint32_t b_format, uint32_t a_transposed,
                                           uint32_t b_transposed, uint32_t a_scale, uint32_t b_scale) {
    return b_scale << 4 | a_format << 7 | b_format << 10 | a_transposed << 15 | b_transposed << 16 | n >> 3 << 17 | 1u << 23 |
           m >> 7 << 27 | a_scale << 29;
}

/* --- scales of kind::mxf8f6f4: one byte 2^(v - 127) for 32 elements along K -----------------------------------------
   In memory an atom of 512 bytes holds the scales of 128 rows and 128 elements along K. tcgen05.cp.32x128b.warpx4 brings it to four columns
   of tensor memory: row r is column r / 32 of lanes r % 32, 32 + r % 32, ..., and block k / 32 is the byte of the word. Where in the atom a
   byte lies: mgv__mx_atom_byte of megavit.h. */

enum { SCALE_ATOM_COLUMNS = 4 };

BLACKWELL uint64_t scale_descriptor(uint32_t address) { return matrix_descriptor(address, 0, 128, MATRIX_SWIZZLE_NONE); }

/* --- tensor memory ------------------------------------------------------------------------------------------------- */

enum { TENSOR_LANES = 128, TENSOR_COLUMNS = 512 };

BLACKWELL uint32_t tensor_address(uint32_t base, uint32_t lane, uint32_t column) { return base + (lane << 16) + column; }

#endif /* MGV_BLACKWELL_CUH */
