/* Matrices for the kernels that run what is modelled of Blackwell: random ones in every type, their scales, tensor maps, and a plain
   product in double precision. */
#ifndef MACHINE_BLACKWELL_MATRIX_H
#define MACHINE_BLACKWELL_MATRIX_H

#include <math.h>
#include <stdlib.h>

#include "blackwell.h"
#include "tap.h"

/* none: for protocol mode, which moves no numbers. all_...: the rows of A, and of B, go through all bytes. */
enum class Data { none, whole, random, all_codes, all_scales };

/* ---- numbers, decoded without the model's help ---- */

static uint32_t random_state = 1;
static inline uint32_t random_bits() { return (random_state = random_state * 1664525u + 1013904223u) >> 8; }

static inline double power_of_two(int e) { return ldexp(1.0, e); }

static inline double decode_bf16(uint16_t v) {
    const int exponent = v >> 7 & 255, fraction = v & 127;
    const double m = exponent ? (128 + fraction) * power_of_two(exponent - 127 - 7) : fraction * power_of_two(-126 - 7);
    return v >> 15 ? -m : m;
}

static inline double decode_f16(uint16_t v) {
    const int exponent = v >> 10 & 31, fraction = v & 1023;
    const double m = exponent ? (1024 + fraction) * power_of_two(exponent - 15 - 10) : fraction * power_of_two(-14 - 10);
    return v >> 15 ? -m : m;
}

/* E4M3 (code 0): bias 7, no infinity; E5M2 (code 1): bias 15. */
static inline double decode_fp8(uint8_t v, uint32_t format) {
    if (format == 0 && (v & 0x7f) == 0x7f) return NAN;
    if (format == 1 && (v & 0x7c) == 0x7c) return v & 3 ? NAN : v >> 7 ? -INFINITY : INFINITY;
    const int fraction_bits = format ? 2 : 3, bias = format ? 15 : 7, exponent = (v & 127) >> fraction_bits,
              fraction = v & ((1 << fraction_bits) - 1);
    const double m = exponent ? ((1 << fraction_bits) + fraction) * power_of_two(exponent - bias - fraction_bits)
                              : fraction * power_of_two(1 - bias - fraction_bits);
    return v >> 7 ? -m : m;
}

static inline uint16_t encode_bf16(float f) {
    uint32_t v;
    memcpy(&v, &f, 4);
    return (uint16_t)((v + 0x7fff + (v >> 16 & 1)) >> 16);
}

/* A random element; `whole`: small whole numbers, whose sums are exact. */
static inline uint32_t random_element(bool bytes, uint32_t format, bool whole) {
    static const uint16_t f16[] = {0x0000, 0x3c00, 0xbc00, 0x4000, 0xc000, 0x4200, 0xc200}; /* 0, 1, -1, 2, -2, 3, -3 */
    if (!bytes && format == 0) return whole ? f16[random_bits() % 7] : random_bits() % 0x4400 | (random_bits() & 1) << 15;
    if (!bytes) return encode_bf16(whole ? (float)((int)(random_bits() % 7) - 3) : (float)((int)(random_bits() % 4001) - 2000) / 700);
    static const uint8_t e4m3[] = {0x00, 0x38, 0xb8, 0x40, 0xc0}, e5m2[] = {0x00, 0x3c, 0xbc, 0x40, 0xc0}; /* 0, 1, -1, 2, -2 */
    if (whole) return (format ? e5m2 : e4m3)[random_bits() % 5];
    const uint32_t largest = format ? 0x5b : 0x6f; /* 2^7 1.75, 2^6 1.875 */
    return random_bits() % (largest + 1) | (random_bits() & 1) << 7;
}

/* ---- a matrix in memory ---- */

struct Matrix {
    uint32_t rows, inner, pitch; /* pitch in elements */
    bool bytes, transposed;
    std::vector<uint8_t> data;
    std::vector<double> value;  /* [rows][inner] */
    std::vector<uint8_t> scale; /* [rows][blocks of 32] */
};

static inline Matrix make_matrix(uint32_t rows, uint32_t inner, bool bytes, bool transposed, uint32_t format, Data data, bool is_a) {
    Matrix m;
    const uint32_t size = bytes ? 1 : 2, along = transposed ? rows : inner, lines = transposed ? inner : rows;
    m.rows = rows;
    m.inner = inner;
    m.bytes = bytes;
    m.transposed = transposed;
    m.pitch = (along * size + 15) / 16 * 16 / size;
    m.data.assign((size_t)m.pitch * lines * size, bytes ? 0x7f : 0xff); /* NaN where nobody may look */
    m.value.resize((size_t)rows * inner);
    for (uint32_t r = 0; r < rows && data != Data::none; r++)
        for (uint32_t k = 0; k < inner; k++) {
            const uint32_t one = format ? 0x3c : 0x38;
            const uint32_t v = data == Data::all_codes    ? (k      ? 0
                                                             : is_a ? r & 255
                                                                    : one)
                               : data == Data::all_scales ? (k ? 0 : one)
                                                          : random_element(bytes, format, data == Data::whole);
            memcpy(&m.data[((size_t)(transposed ? k : r) * m.pitch + (transposed ? r : k)) * size], &v, size);
            m.value[(size_t)r * inner + k] = bytes    ? decode_fp8((uint8_t)v, format)
                                             : format ? decode_bf16((uint16_t)v)
                                                      : decode_f16((uint16_t)v);
        }
    m.scale.resize((size_t)rows * ((inner + 31) / 32));
    for (size_t i = 0; i < m.scale.size(); i++)
        m.scale[i] = (uint8_t)(data == Data::all_scales ? i : data == Data::random ? 117 + random_bits() % 20 : 127 + random_bits() % 3);
    return m;
}

/* Tiles of `tile` rows, each in whole atoms of 128 rows and 128 elements along K: byte r % 32 * 16 + r / 32 * 4 + block. Padding is 2^0.
   A multiple of `step` tiles. */
static inline std::vector<uint8_t> pack_scales(const Matrix &m, uint32_t tile, uint32_t step) {
    const uint32_t tiles = ((m.rows + tile - 1) / tile + step - 1) / step * step, k_blocks = (m.inner + 127) / 128,
                   atoms = (tile + 127) / 128, blocks = (m.inner + 31) / 32;
    std::vector<uint8_t> packed((size_t)tiles * k_blocks * atoms * 512, 127);
    for (uint32_t r = 0; r < m.rows; r++)
        for (uint32_t b = 0; b < blocks; b++) {
            const uint32_t in_tile = r % tile, in_atom = in_tile % 128;
            const size_t atom = ((size_t)(r / tile) * k_blocks + b / 4) * atoms + in_tile / 128;
            packed[atom * 512 + in_atom % 32 * 16 + in_atom / 32 * 4 + b % 4] = m.scale[(size_t)r * blocks + b];
        }
    return packed;
}

static inline bool encode(CUtensorMap *map, CUtensorMapDataType type, void *memory, std::vector<uint64_t> dims,
                          std::vector<uint64_t> strides, std::vector<uint32_t> box, uint32_t width) {
    const cuuint32_t ones[5] = {1, 1, 1, 1, 1};
    const CUtensorMapSwizzle swizzle = width == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                       : width == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                       : width == 32 ? CU_TENSOR_MAP_SWIZZLE_32B
                                                     : CU_TENSOR_MAP_SWIZZLE_NONE;
    const CUresult result = machine::tensor_map_encode(map, type, (cuuint32_t)dims.size(), memory, dims.data(), strides.data(), box.data(),
                                                       ones, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                                       CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result) printf("# encode: %s\n", machine::encode_error());
    return result == CUDA_SUCCESS;
}

template <class T> static T *to_memory(const std::vector<T> &data, const char *name) {
    T *memory = (T *)machine::global_allocate(data.size() * sizeof(T), name);
    machine::global_copy(memory, data.data(), data.size() * sizeof(T));
    machine::global_read_only(memory);
    return memory;
}

/* Panels of `width` bytes: what the kernel's panels_of says. */
static inline bool encode_operand(CUtensorMap *map, const Matrix &m, uint32_t tile, uint32_t width, const char *name) {
    const uint32_t size = m.bytes ? 1 : 2;
    void *memory = to_memory(m.data, name);
    const uint64_t along = m.transposed ? m.rows : m.inner, lines = m.transposed ? m.inner : m.rows;
    return encode(map, m.bytes ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, memory, {along, lines},
                  {(uint64_t)m.pitch * size}, {width / size, m.transposed ? BLACKWELL_BLOCK_BYTES / size : tile}, width);
}

static inline bool numbers_count(const machine::Options &options, const machine::Result &result) {
    return !options.protocol && result.reports.empty() && !(options.unchecked && !strcmp(options.unchecked, "numbers"));
}

/* The values of a row, times its scales where there are any. */
static inline std::vector<double> scaled_values(const Matrix &m, bool scaled) {
    std::vector<double> v = m.value;
    for (size_t i = 0; i < v.size() && scaled; i++) {
        const int scale = m.scale[i / m.inner * ((m.inner + 31) / 32) + i % m.inner / 32];
        v[i] *= scale == 255 ? NAN : power_of_two(scale - 127);
    }
    return v;
}

/* Where C[a.rows, b.rows], in rows of `pitch`, is not A B^T. */
static inline std::string first_wrong(const float *c, uint32_t pitch, const Matrix &a, const Matrix &b, bool scaled, bool exact) {
    const std::vector<double> a_value = scaled_values(a, scaled), b_value = scaled_values(b, scaled);
    for (uint32_t r = 0; r < a.rows; r++)
        for (uint32_t n = 0; n < b.rows; n++) {
            double sum = 0, size = 0;
            for (uint32_t i = 0; i < a.inner; i++) {
                const double v = a_value[(size_t)r * a.inner + i] * b_value[(size_t)n * a.inner + i];
                sum += v;
                size += fabs(v);
            }
            const double seen = c[(size_t)r * pitch + n], allowed = exact ? 0 : size * (a.inner + 8) * power_of_two(-24);
            if (!(fabs(seen - sum) <= allowed) && (float)seen != (float)sum && (!exact || seen == seen || sum == sum))
                return "C[" + std::to_string(r) + "][" + std::to_string(n) + "] is " + std::to_string(seen) + ", not " +
                       std::to_string(sum);
        }
    for (uint32_t r = 0; r < a.rows; r++)
        for (uint32_t n = b.rows; n < pitch; n++)
            if (machine::global_written(&c[(size_t)r * pitch + n], 4)) return "C is written behind its columns";
    return "";
}

#endif
