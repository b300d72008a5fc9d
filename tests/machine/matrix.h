/* What the tensor cores of Hopper and Blackwell share in the machine model: how matrices lie in shared memory, formats of numbers, the
   product of rows. tensor.cc, tcgen05.cc */
#ifndef MACHINE_MATRIX_H
#define MACHINE_MATRIX_H

#include <math.h>

#include "internal.h"

namespace machine {

uintptr_t swizzle_address(uintptr_t address, unsigned swizzle_bits); /* async.cc */

struct MatrixDescriptor {
    uint32_t start, leading, stride, base_offset;
    unsigned swizzle_bits; /* 0 none, 1 32B, 2 64B, 3 128B */
};

/* Where 16 bytes lie. K-major: row r along M or N, unit u of 16 bytes along K. MN-major: row r along K, unit u of 16 bytes along M or N. */
inline uintptr_t k_major(const MatrixDescriptor &m, uint32_t r, uint32_t u) {
    if (!m.swizzle_bits) return m.start + r % 8 * 16 + r / 8 * m.stride + u * m.leading;
    return swizzle_address(m.start + r % 8 * (16u << m.swizzle_bits) + r / 8 * m.stride + u * 16, m.swizzle_bits);
}
inline uintptr_t mn_major(const MatrixDescriptor &m, uint32_t k, uint32_t u) {
    if (!m.swizzle_bits) return m.start + k % 8 * 16 + k / 8 * m.leading + u * m.stride;
    const uint32_t units = 1u << m.swizzle_bits;
    const uint32_t row = m.start + k % 8 * (16u << m.swizzle_bits) + k / 8 * m.stride;
    return swizzle_address(row + u % units * 16 + u / units * m.leading, m.swizzle_bits);
}

/* A start that is advanced inside of the pattern and a row that ends beyond it would leave the pattern: reported when the unit does. */
inline void check_k_span(const MatrixDescriptor &m, uint32_t units, const char *which) {
    if (m.swizzle_bits && m.start % (16u << m.swizzle_bits) + units * 16 > (16u << m.swizzle_bits))
        report("descriptor:span", "%s: start 0x%x and %u bytes along K leave the swizzle's %u bytes", which, m.start, units * 16,
               16u << m.swizzle_bits);
}

inline float e4m3_to_float(uint8_t v) { /* no infinities; 448 is the largest */
    const int sign = v >> 7, exponent = v >> 3 & 15, mantissa = v & 7;
    if (exponent == 15 && mantissa == 7) return NAN;
    const float m = exponent ? ldexpf(1.0f + (float)mantissa / 8, exponent - 7) : ldexpf((float)mantissa / 8, -6);
    return sign ? -m : m;
}

inline float f16_to_float(uint16_t v) {
    const int sign = v >> 15, exponent = v >> 10 & 31, mantissa = v & 1023;
    const float m = exponent == 31 ? (mantissa ? NAN : INFINITY)
                    : exponent     ? ldexpf(1.0f + (float)mantissa / 1024, exponent - 15)
                                   : ldexpf((float)mantissa / 1024, -14);
    return sign ? -m : m;
}

inline float e5m2_to_float(uint8_t v) { return f16_to_float((uint16_t)(v << 8)); } /* the upper half of an f16 */

inline float bf16_to_float(uint16_t v) {
    const uint32_t bits = (uint32_t)v << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

/* sum[row][n] += a[row][k] b[k][n] for a multiple of four rows, in the order of k; tensor.cc. */
void multiply(float (*sum)[256], const float (*a)[32], const float *b, int rows, int k_count, int columns);

} // namespace machine

#endif
