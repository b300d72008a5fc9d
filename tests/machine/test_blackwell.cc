/* Tests of what is modelled of Blackwell: constants, kernels against a plain product in double precision, planted faults. Speaks TAP; ends
   with what was run. test_blackwell NAME: one planted fault, with all that is said of it. */
#include "blackwell.h"

#include <math.h>
#include <stdlib.h>

#include "tap.h"

extern "C" {
void blackwell_bf16_kernel(BlackwellArguments arguments);    /* 128 rows a tile */
void blackwell_bf16_64_kernel(BlackwellArguments arguments); /* 64 rows a tile */
void blackwell_fp8_kernel(BlackwellArguments arguments);     /* kind::f8f6f4 */
void blackwell_mxfp8_kernel(BlackwellArguments arguments);   /* kind::mxf8f6f4 */
void blackwell_chain_kernel(ChainArguments arguments);
}

enum Kernel { BF16, BF16_64, FP8, MXFP8 };

struct Case {
    Kernel kernel;
    uint32_t rows, columns, inner;
    uint32_t a_width, b_width;
    bool a_transposed, b_transposed;
    uint32_t a_format, b_format; /* codes of the instruction word */
    uint32_t scales;             /* SCALES_... */
    unsigned grid, cluster;
};

/* none: for protocol mode, which moves no numbers. all_...: the rows of A, and of B, go through all bytes. */
enum class Data { none, whole, random, all_codes, all_scales };

/* ---- numbers, decoded without the model's help ---- */

static uint32_t random_state = 1;
static uint32_t random_bits() { return (random_state = random_state * 1664525u + 1013904223u) >> 8; }

static double power_of_two(int e) { return ldexp(1.0, e); }

static double decode_bf16(uint16_t v) {
    const int exponent = v >> 7 & 255, fraction = v & 127;
    const double m = exponent ? (128 + fraction) * power_of_two(exponent - 127 - 7) : fraction * power_of_two(-126 - 7);
    return v >> 15 ? -m : m;
}

static double decode_f16(uint16_t v) {
    const int exponent = v >> 10 & 31, fraction = v & 1023;
    const double m = exponent ? (1024 + fraction) * power_of_two(exponent - 15 - 10) : fraction * power_of_two(-14 - 10);
    return v >> 15 ? -m : m;
}

/* E4M3 (code 0): bias 7, no infinity; E5M2 (code 1): bias 15. */
static double decode_fp8(uint8_t v, uint32_t format) {
    if (format == 0 && (v & 0x7f) == 0x7f) return NAN;
    if (format == 1 && (v & 0x7c) == 0x7c) return v & 3 ? NAN : v >> 7 ? -INFINITY : INFINITY;
    const int fraction_bits = format ? 2 : 3, bias = format ? 15 : 7, exponent = (v & 127) >> fraction_bits,
              fraction = v & ((1 << fraction_bits) - 1);
    const double m = exponent ? ((1 << fraction_bits) + fraction) * power_of_two(exponent - bias - fraction_bits)
                              : fraction * power_of_two(1 - bias - fraction_bits);
    return v >> 7 ? -m : m;
}

static uint16_t encode_bf16(float f) {
    uint32_t v;
    memcpy(&v, &f, 4);
    return (uint16_t)((v + 0x7fff + (v >> 16 & 1)) >> 16);
}

/* A random element; `whole`: small whole numbers, whose sums are exact. */
static uint32_t random_element(bool bytes, uint32_t format, bool whole) {
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

static Matrix make_matrix(uint32_t rows, uint32_t inner, bool bytes, bool transposed, uint32_t format, Data data, bool is_a) {
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
static std::vector<uint8_t> pack_scales(const Matrix &m, uint32_t tile, uint32_t step) {
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

static bool encode(CUtensorMap *map, CUtensorMapDataType type, void *memory, std::vector<uint64_t> dims, std::vector<uint64_t> strides,
                   std::vector<uint32_t> box, uint32_t width) {
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
static bool encode_operand(CUtensorMap *map, const Matrix &m, uint32_t tile, uint32_t width, const char *name) {
    const uint32_t size = m.bytes ? 1 : 2;
    void *memory = to_memory(m.data, name);
    const uint64_t along = m.transposed ? m.rows : m.inner, lines = m.transposed ? m.inner : m.rows;
    return encode(map, m.bytes ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, memory, {along, lines},
                  {(uint64_t)m.pitch * size}, {width / size, m.transposed ? BLACKWELL_BLOCK_BYTES / size : tile}, width);
}

static bool numbers_count(const machine::Options &options, const machine::Result &result) {
    return !options.protocol && result.reports.empty() && !(options.unchecked && !strcmp(options.unchecked, "numbers"));
}

/* ---- the GEMM ---- */

struct Flips {
    uint32_t word;
    uint64_t a, b, scales;
};

/* The values of a row, times its scales where there are any. */
static std::vector<double> scaled_values(const Matrix &m, bool scaled) {
    std::vector<double> v = m.value;
    for (size_t i = 0; i < v.size() && scaled; i++) {
        const int scale = m.scale[i / m.inner * ((m.inner + 31) / 32) + i % m.inner / 32];
        v[i] *= scale == 255 ? NAN : power_of_two(scale - 127);
    }
    return v;
}

static std::string first_wrong(const float *c, uint32_t pitch, const Case &k, const Matrix &a, const Matrix &b, bool exact) {
    const std::vector<double> a_value = scaled_values(a, k.kernel == MXFP8), b_value = scaled_values(b, k.kernel == MXFP8);
    for (uint32_t r = 0; r < k.rows; r++)
        for (uint32_t n = 0; n < k.columns; n++) {
            double sum = 0, size = 0;
            for (uint32_t i = 0; i < k.inner; i++) {
                const double v = a_value[(size_t)r * k.inner + i] * b_value[(size_t)n * k.inner + i];
                sum += v;
                size += fabs(v);
            }
            const double seen = c[(size_t)r * pitch + n], allowed = exact ? 0 : size * (k.inner + 8) * power_of_two(-24);
            if (!(fabs(seen - sum) <= allowed) && (float)seen != (float)sum && (!exact || seen == seen || sum == sum))
                return "C[" + std::to_string(r) + "][" + std::to_string(n) + "] is " + std::to_string(seen) + ", not " +
                       std::to_string(sum);
        }
    for (uint32_t r = 0; r < k.rows; r++)
        for (uint32_t n = k.columns; n < pitch; n++)
            if (machine::global_written(&c[(size_t)r * pitch + n], 4)) return "C is written behind its columns";
    return "";
}

/* Runs it; wrong numbers are reported as "numbers". */
static machine::Result run_gemm(const Case &k, int fault, const Flips &flips, const machine::Options &options, uint32_t seed, Data data) {
    static void (*const kernels[])(BlackwellArguments) = {blackwell_bf16_kernel, blackwell_bf16_64_kernel, blackwell_fp8_kernel,
                                                          blackwell_mxfp8_kernel};
    static const char *const names[] = {"blackwell_bf16_kernel", "blackwell_bf16_64_kernel", "blackwell_fp8_kernel",
                                        "blackwell_mxfp8_kernel"};
    const bool bytes = k.kernel == FP8 || k.kernel == MXFP8;
    const uint32_t tile_rows = k.kernel == BF16_64 ? 64 : 128, pitch = k.columns / 4 * 4 + 4;
    machine::global_reset();
    random_state = seed * 2654435761u + 1;
    const Matrix a = make_matrix(k.rows, k.inner, bytes, k.a_transposed, k.a_format, data, true);
    const Matrix b = make_matrix(k.columns, k.inner, bytes, k.b_transposed, k.b_format, data, false);
    BlackwellArguments arguments;
    memset((void *)&arguments, 0, sizeof arguments);
    float *c = (float *)machine::global_allocate((size_t)k.rows * pitch * 4, "C");
    machine::global_forget(c, (size_t)k.rows * pitch * 4);
    bool encoded = encode_operand(&arguments.a, a, tile_rows, k.a_width, "A") &&
                   encode_operand(&arguments.b, b, BLACKWELL_COLUMNS / k.cluster, k.b_width, "B");
    encoded &= encode(&arguments.c, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, c, {k.columns, k.rows, 1},
                      {(uint64_t)pitch * 4, (uint64_t)pitch * 4 * k.rows}, {32, tile_rows / 4, 1}, 128);
    arguments.a_scales = to_memory(pack_scales(a, 128, k.cluster), "scales of A");
    arguments.b_scales = to_memory(pack_scales(b, BLACKWELL_COLUMNS, 1), "scales of B");
    arguments.row_tiles = (k.rows + tile_rows - 1) / tile_rows;
    arguments.column_tiles = (k.columns + BLACKWELL_COLUMNS - 1) / BLACKWELL_COLUMNS;
    arguments.k_blocks = (k.inner * (bytes ? 1 : 2) + BLACKWELL_BLOCK_BYTES - 1) / BLACKWELL_BLOCK_BYTES;
    arguments.a_width = k.a_width;
    arguments.b_width = k.b_width;
    arguments.a_transposed = k.a_transposed;
    arguments.b_transposed = k.b_transposed;
    arguments.a_format = k.a_format;
    arguments.b_format = k.b_format;
    arguments.scales = k.scales;
    arguments.cluster = k.cluster;
    arguments.flip_word = flips.word;
    arguments.flip_a = flips.a;
    arguments.flip_b = flips.b;
    arguments.flip_scales = flips.scales;
    arguments.fault = fault;

    machine::Launch launch;
    launch.kernel = names[k.kernel];
    launch.grid = k.grid;
    launch.cluster = k.cluster;
    launch.block = BLACKWELL_THREADS;
    launch.registers = 128;
    launch.dynamic_shared = BLACKWELL_SHARED;
    machine::Result result = machine::launch(launch, options, [&]() { kernels[k.kernel](arguments); });
    if (!encoded) result.reports.push_back({"encode", machine::encode_error()});
    if (!numbers_count(options, result)) return result;
    const std::string wrong = first_wrong(c, pitch, k, a, b, data != Data::random);
    if (!wrong.empty()) result.reports.push_back({"numbers", wrong});
    return result;
}

/* ---- two products ---- */

static machine::Result run_chain(int fault, const machine::Options &options, uint32_t keys, bool halves, unsigned grid,
                                 unsigned multiprocessors) {
    machine::global_reset();
    random_state = (uint32_t)options.seed * 2654435761u + 7;
    const auto operand = [](uint32_t rows) { return make_matrix(rows, CHAIN_WIDTH, false, false, 1, Data::whole, true); };
    const Matrix q = operand(128), k = operand(keys), v = operand(keys);
    ChainArguments arguments;
    memset((void *)&arguments, 0, sizeof arguments);
    std::vector<std::pair<CUtensorMap *, const Matrix *>> operands = {{&arguments.q, &q}, {&arguments.k, &k}, {&arguments.v, &v}};
    for (auto &o : operands)
        encode(o.first, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, to_memory(o.second->data, "operand"), {CHAIN_WIDTH, o.second->rows},
               {CHAIN_WIDTH * 2}, {CHAIN_WIDTH, o.second == &q ? 128u : (uint32_t)CHAIN_KEYS}, 128);
    arguments.o = (float *)machine::global_allocate((size_t)grid * 128 * CHAIN_WIDTH * 4, "O");
    arguments.halves = halves;
    arguments.fault = fault;
    machine::Launch launch;
    launch.kernel = "blackwell_chain_kernel";
    launch.grid = grid;
    launch.block = 192;
    launch.registers = 96;
    launch.multiprocessors = multiprocessors;
    launch.dynamic_shared = CHAIN_SHARED;
    machine::Result result = machine::launch(launch, options, [&]() { blackwell_chain_kernel(arguments); });
    if (!numbers_count(options, result)) return result;
    for (uint32_t i = 0; i < grid * 128 * CHAIN_WIDTH && result.reports.empty(); i++) {
        const uint32_t row = i / CHAIN_WIDTH % 128, column = i % CHAIN_WIDTH;
        double sum = 0;
        for (uint32_t key = 0; key < keys; key++) {
            double score = 0;
            for (uint32_t d = 0; d < CHAIN_WIDTH; d++) score += q.value[row * CHAIN_WIDTH + d] * k.value[key * CHAIN_WIDTH + d];
            sum += decode_bf16(encode_bf16((float)score)) * v.value[key * CHAIN_WIDTH + column]; /* whole numbers: exact in float32 */
        }
        if (arguments.o[i] != sum)
            result.reports.push_back(
                {"numbers", "O[" + std::to_string(i) + "] is " + std::to_string(arguments.o[i]) + ", not " + std::to_string(sum)});
    }
    return result;
}

/* ---- right kernels: nothing is reported and the numbers are right ---- */

static void test_kernels() {
    static const struct {
        const char *name;
        Case k;
        unsigned arithmetic, protocol;
    } cases[] = {
        {"bf16, four tiles a CTA, seven blocks", {BF16, 256, 384, 448, 128, 128, false, false, 1, 1, 0, 1, 1}, 8, 40},
        {"bf16, odd sizes, two CTAs", {BF16, 131, 205, 72, 128, 128, false, false, 1, 1, 0, 2, 1}, 8, 200},
        {"bf16, smaller than anything", {BF16, 1, 1, 1, 128, 128, false, false, 1, 1, 0, 1, 1}, 8, 8},
        {"bf16, 64-byte and 32-byte swizzle", {BF16, 128, 192, 96, 64, 32, false, false, 1, 1, 0, 1, 1}, 8, 0},
        {"bf16, no swizzle", {BF16, 100, 192, 96, 16, 16, false, false, 1, 1, 0, 1, 1}, 8, 0},
        {"bf16, both transposed", {BF16, 128, 192, 96, 128, 128, true, true, 1, 1, 0, 1, 1}, 8, 8},
        {"bf16, both transposed, 32-byte and 64-byte swizzle", {BF16, 128, 192, 96, 32, 64, true, true, 1, 1, 0, 1, 1}, 8, 0},
        {"bf16, both transposed, no swizzle", {BF16, 120, 184, 90, 16, 16, true, true, 1, 1, 0, 1, 1}, 8, 0},
        {"f16, odd sizes", {BF16, 131, 205, 200, 128, 128, false, false, 0, 0, 0, 2, 1}, 8, 0},
        {"bf16, clusters of two CTAs that share B", {BF16, 390, 205, 200, 128, 128, false, false, 1, 1, 0, 4, 2}, 8, 100},
        {"bf16, 64 rows a tile", {BF16_64, 131, 205, 200, 128, 128, false, false, 1, 1, 0, 2, 1}, 8, 200},
        {"bf16, 64 rows a tile, A transposed", {BF16_64, 64, 192, 130, 64, 128, true, false, 1, 1, 0, 1, 1}, 8, 0},
        {"FP8, E4M3", {FP8, 131, 205, 304, 128, 128, false, false, 0, 0, 0, 2, 1}, 8, 200},
        {"FP8, E5M2 and E4M3, no swizzle, 64-byte swizzle", {FP8, 131, 205, 304, 16, 64, false, false, 1, 0, 0, 2, 1}, 8, 0},
        {"FP8, both transposed", {FP8, 131, 205, 304, 128, 64, true, true, 0, 1, 0, 2, 1}, 8, 0},
        {"MXFP8, four tiles a CTA, four blocks", {MXFP8, 256, 384, 512, 128, 128, false, false, 0, 0, 0, 1, 1}, 8, 40},
        {"MXFP8, odd sizes, two CTAs", {MXFP8, 131, 205, 304, 128, 128, false, false, 0, 0, 0, 2, 1}, 8, 200},
        {"MXFP8, E5M2, 32-byte swizzle, B transposed", {MXFP8, 131, 205, 304, 32, 32, false, true, 1, 1, 0, 2, 1}, 8, 0},
        {"MXFP8, scales written by threads", {MXFP8, 131, 205, 672, 128, 128, false, false, 0, 0, SCALES_BY_THREADS, 2, 1}, 8, 40},
        {"MXFP8, scales copied by another thread than multiplies",
         {MXFP8, 131, 205, 672, 128, 128, false, false, 0, 0, SCALES_APART, 2, 1},
         8,
         40},
        {"MXFP8, a cluster of two CTAs that share B", {MXFP8, 131, 205, 672, 128, 128, false, false, 0, 0, 0, 2, 2}, 8, 40},
    };
    for (const auto &c : cases) {
        std::string why;
        const auto start = std::chrono::steady_clock::now();
        for (unsigned i = 0; i < c.arithmetic + c.protocol && why.empty(); i++) {
            const bool protocol = i >= c.arithmetic;
            const uint64_t seed = protocol ? i - c.arithmetic : i;
            const machine::Result result = run_gemm(c.k, FAULT_none, Flips(), options_of(seed, protocol), (uint32_t)seed,
                                                    protocol   ? Data::none
                                                    : seed % 2 ? Data::random
                                                               : Data::whole);
            if (!result.reports.empty()) why = "seed " + std::to_string(seed) + "\n" + result.text();
            (protocol ? protocol_runs : arithmetic_runs)++;
        }
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        ok(why.empty(),
           std::string("kernel: ") + c.name + ", " + std::to_string(c.arithmetic) + " arithmetic and " + std::to_string(c.protocol) +
               " protocol seeds, " + std::to_string(seconds) + " s",
           why);
    }
    for (uint32_t keys : {1u, 16u, 49u, 80u}) {
        std::string why;
        for (uint64_t i = 0; i < 58 && why.empty(); i++) {
            const bool protocol = i >= 8;
            const machine::Result result =
                run_chain(FAULT_none, options_of(i, protocol), keys, i % 2, keys == 49 ? 3 : 1, keys == 49 ? 1 : 132);
            if (!result.reports.empty()) why = "seed " + std::to_string(i) + "\n" + result.text();
            (protocol ? protocol_runs : arithmetic_runs)++;
        }
        ok(why.empty(),
           "kernel: two products, A of the second in tensor memory, " + std::to_string(keys) + " keys" +
               (keys == 49 ? ", three CTAs on one SM that holds two" : ""),
           why);
    }
}

/* Every byte as an element, and every byte as a scale of A and of B: what comes out is exact, infinite or NaN as it must be. */
static void test_formats() {
    static const struct {
        const char *name;
        Case k;
        Data data;
    } cases[] = {
        {"E4M3", {FP8, 256, 16, 16, 128, 128, false, false, 0, 0, 0, 1, 1}, Data::all_codes},
        {"E5M2", {FP8, 256, 16, 16, 128, 128, false, false, 1, 1, 0, 1, 1}, Data::all_codes},
        {"E4M3 times E5M2, with scales", {MXFP8, 256, 16, 16, 128, 128, false, false, 0, 1, 0, 1, 1}, Data::all_codes},
        {"UE8M0, of A and of B", {MXFP8, 256, 256, 32, 128, 128, false, false, 0, 0, 0, 1, 1}, Data::all_scales},
    };
    for (const auto &c : cases) {
        const machine::Result result = run_gemm(c.k, FAULT_none, Flips(), options_of(0, false), 1, c.data);
        arithmetic_runs++;
        ok(result.reports.empty(), std::string("formats: every byte as ") + c.name, result.text());
    }
}

/* ---- planted faults: each is reported, and no longer once its rule is not checked ---- */

/* Three tiles of two blocks of K for one CTA: every stage, its columns of scales and a buffer of sums are used again. */
static const Case fault_case = {MXFP8, 257, 150, 200, 128, 128, false, false, 0, 0, SCALES_BY_COPY_ENGINE, 1, 1};
static const Case fault_case_fp8 = {FP8, 257, 150, 200, 128, 128, false, true, 0, 0, 0, 1, 1};
static const Case fault_case_64_rows = {BF16_64, 129, 150, 100, 128, 128, false, false, 1, 1, 0, 1, 1};
static const Case fault_case_bf16 = {BF16, 257, 150, 100, 128, 128, false, false, 1, 1, 0, 1, 1};

struct Fault {
    std::string name;
    const char *rule; /* that reports it, or the kind where several do */
    std::function<machine::Result(const machine::Options &)> run;
};

static std::vector<Fault> planted_faults() {
    std::vector<Fault> faults;
    static const struct {
        int number;
        const char *name, *rule;
    } lines[] = {
#define X(name, rule) {FAULT_##name, #name, rule},
        BLACKWELL_FAULTS(X) APART_FAULTS(X) CLUSTER_FAULTS(X) CHAIN_FAULTS(X)
#undef X
    };
    for (const auto &line : lines) {
        const int number = line.number;
        if (!line.rule[0]) continue;
        faults.push_back({line.name, line.rule, [number](const machine::Options &options) {
                              if (number == FAULT_chain_columns_kept_from_another_cta) return run_chain(number, options, 80, false, 3, 1);
                              if (number > FAULT_chain_none) return run_chain(number, options, 80, false, 1, 132);
                              Case k = fault_case;
                              if (number == FAULT_scale_proxy_fence_dropped) k.scales = SCALES_BY_THREADS;
                              if (number > FAULT_apart_none && number < FAULT_cluster_none) k.scales = SCALES_APART;
                              if (number > FAULT_cluster_none) k.grid = k.cluster = 2;
                              return run_gemm(k, number, Flips(), options, 1, Data::random);
                          }});
    }
    /* each field of each number that the tensor cores are given, wrong by one bit or so */
    static const struct {
        const char *name, *rule;
        const Case &k;
        Flips flips;
    } flips[] = {
        {"word: sparsity selector", "descriptor:word-sparsity", fault_case_bf16, {1u << 0, 0, 0, 0}},
        {"word: sparsity", "descriptor:word-sparsity", fault_case, {1u << 2, 0, 0, 0}},
        {"word: saturation", "descriptor:word-saturate", fault_case_bf16, {1u << 3, 0, 0, 0}},
        {"word: D in half precision", "descriptor:word-d-type", fault_case_bf16, {1u << 4, 0, 0, 0}},
        {"word: D is S32", "descriptor:word-d-type", fault_case_bf16, {3u << 4, 0, 0, 0}},
        {"word: scale id of B", "numbers", fault_case, {1u << 4, 0, 0, 0}},
        {"word: reserved bit 6", "descriptor:word-reserved", fault_case_bf16, {1u << 6, 0, 0, 0}},
        {"word: type of A", "descriptor:word-format-pair", fault_case_bf16, {1u << 7, 0, 0, 0}},
        {"word: E5M2 for E4M3, A", "numbers", fault_case, {1u << 7, 0, 0, 0}},
        {"word: type of A unknown", "descriptor:word-format", fault_case_bf16, {2u << 7, 0, 0, 0}},
        {"word: E5M2 for E4M3, B", "numbers", fault_case, {1u << 10, 0, 0, 0}},
        {"word: type of B unknown", "descriptor:word-format", fault_case, {4u << 10, 0, 0, 0}},
        {"word: A negated", "numbers", fault_case_bf16, {1u << 13, 0, 0, 0}},
        {"word: B negated", "numbers", fault_case, {1u << 14, 0, 0, 0}},
        {"word: A transposed", "numbers", fault_case_bf16, {1u << 15, 0, 0, 0}},
        {"word: B transposed", "numbers", fault_case_bf16, {1u << 16, 0, 0, 0}},
        {"word: N 128", "uninitialised:tensor-memory", fault_case_bf16, {8u << 17, 0, 0, 0}},
        {"word: N 184", "uninitialised:tensor-memory", fault_case_bf16, {15u << 17, 0, 0, 0}},
        {"word: N 184, 64 rows a tile", "uninitialised:tensor-memory", fault_case_64_rows, {15u << 17, 0, 0, 0}},
        {"word: N 0", "descriptor:word-n", fault_case, {24u << 17, 0, 0, 0}},
        {"word: N 448", "descriptor:word-n", fault_case_bf16, {32u << 17, 0, 0, 0}},
        {"word: N 200, B transposed, bytes", "descriptor:word-n", fault_case_fp8, {1u << 17, 0, 0, 0}},
        {"word: reserved bit 23", "descriptor:word-reserved", fault_case_bf16, {1u << 23, 0, 0, 0}},
        {"word: scales are not UE8M0", "descriptor:word-scale-type", fault_case, {1u << 23, 0, 0, 0}},
        {"word: M 64", "uninitialised:tensor-memory", fault_case_bf16, {12u << 24, 0, 0, 0}},
        {"word: M 64 with scales", "descriptor", fault_case, {12u << 24, 0, 0, 0}},
        {"word: M 144", "descriptor:word-m", fault_case_bf16, {1u << 24, 0, 0, 0}},
        {"word: M 256 for one CTA", "descriptor:word-m", fault_case, {3u << 27, 0, 0, 0}},
        {"word: M 0 with scales", "descriptor:word-m", fault_case, {1u << 27, 0, 0, 0}},
        {"word: reserved bit 24 with scales", "descriptor:word-reserved", fault_case, {1u << 24, 0, 0, 0}},
        {"word: reserved bit 29", "descriptor:word-reserved", fault_case_bf16, {1u << 29, 0, 0, 0}},
        {"word: scale id of A", "numbers", fault_case, {2u << 29, 0, 0, 0}},
        {"word: shift", "descriptor:word-shift", fault_case_bf16, {1u << 30, 0, 0, 0}},
        {"word: reserved bit 31 with scales", "descriptor:word-reserved", fault_case, {1u << 31, 0, 0, 0}},
        {"A: start", "race", fault_case_bf16, {0, 128, 0, 0}},
        {"A: start beyond shared memory", "out-of-bounds", fault_case_bf16, {0, 0x3000, 0, 0}},
        {"A: start not at a swizzle pattern", "descriptor:pattern", fault_case_bf16, {0, 8, 0, 0}},
        {"A: start inside of the row", "descriptor:span", fault_case_bf16, {0, 1, 0, 0}},
        {"A: bit 14", "descriptor:field", fault_case_bf16, {0, 1ull << 14, 0, 0}},
        {"A: stride", "numbers", fault_case_bf16, {0, 96ull << 32, 0, 0}},
        {"A: version of Hopper", "descriptor:version", fault_case_bf16, {0, 1ull << 46, 0, 0}},
        {"A: base offset", "descriptor:base-offset", fault_case_bf16, {0, 1ull << 49, 0, 0}},
        {"A: absolute leading dimension", "descriptor:absolute", fault_case_bf16, {0, 1ull << 52, 0, 0}},
        {"A: fixed zeros", "descriptor:zero", fault_case_bf16, {0, 1ull << 57, 0, 0}},
        {"A: no swizzle", "numbers", fault_case_bf16, {0, 2ull << 61, 0, 0}},
        {"A: swizzle of 64 bytes", "numbers", fault_case_bf16, {0, 6ull << 61, 0, 0}},
        {"A: swizzle code 3", "descriptor:swizzle", fault_case_bf16, {0, 1ull << 61, 0, 0}},
        {"B: start", "race", fault_case, {0, 0, 64, 0}},
        {"B: bit 30", "descriptor:field", fault_case, {0, 0, 1ull << 30, 0}},
        {"B: stride", "numbers", fault_case, {0, 0, 96ull << 32, 0}},
        {"B: version 3", "descriptor:version", fault_case, {0, 0, 1ull << 47, 0}},
        {"B: base offset", "descriptor:base-offset", fault_case, {0, 0, 4ull << 49, 0}},
        {"B: absolute leading dimension", "descriptor:absolute", fault_case, {0, 0, 1ull << 52, 0}},
        {"B: fixed zeros", "descriptor:zero", fault_case, {0, 0, 1ull << 60, 0}},
        {"B: swizzle with atoms of 32 bytes", "descriptor:swizzle", fault_case, {0, 0, 3ull << 61, 0}},
        {"scales: start", "race", fault_case, {0, 0, 0, 8}},
        {"scales: stride", "race", fault_case, {0, 0, 0, 24ull << 32}},
        {"scales: version of Hopper", "descriptor:version", fault_case, {0, 0, 0, 1ull << 46}},
        {"scales: swizzled", "descriptor:pattern", fault_case, {0, 0, 0, 2ull << 61}},
        {"scales: fixed zeros", "descriptor:zero", fault_case, {0, 0, 0, 1ull << 53}},
    };
    for (const auto &line : flips) {
        const Flips f = line.flips;
        const Case k = line.k;
        faults.push_back({line.name, line.rule,
                          [f, k](const machine::Options &options) { return run_gemm(k, FAULT_none, f, options, 1, Data::random); }});
    }
    return faults;
}

static void test_faults(const char *only) {
    for (const Fault &fault : planted_faults()) {
        if (only && fault.name != only) continue;
        faults_planted++;
        std::string seen;
        bool caught = false;
        for (uint64_t seed = 0; seed < 24 && !caught; seed++) {
            const machine::Result result = fault.run(options_of(seed, false));
            caught = result.has(fault.rule) &&
                     !(result.has("tcgen05-fence") && result.has("race")); /* a missing fence is told from missing order */
            seen += "seed " + std::to_string(seed) + "\n" + result.text();
            if (only) printf("# seed %lu\n%s\n", (unsigned long)seed, result.text().c_str());
        }
        faults_caught += caught;
        ok(caught, "planted fault " + fault.name + " is reported as " + fault.rule, seen.substr(0, 3000));
        std::string still;
        for (uint64_t seed = 0; seed < 2 && still.empty(); seed++) {
            machine::Options options = options_of(seed, false);
            options.unchecked = fault.rule;
            const machine::Result result = fault.run(options);
            if (result.has(std::string(fault.rule, strcspn(fault.rule, ":")).c_str())) still = result.text();
        }
        faults_unchecked += still.empty();
        ok(still.empty(), "planted fault " + fault.name + " is not reported without the rule " + fault.rule, still.substr(0, 3000));
    }
}

int main(int count, char **argument) {
    if (count == 1) {
        test_blackwell_constants();
        test_kernels();
        test_formats();
    }
    test_faults(count == 1 ? nullptr : argument[1]);
    return finish("machine model, Blackwell");
}
