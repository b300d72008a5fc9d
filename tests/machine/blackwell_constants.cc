/* kernels/sm_100a/blackwell.cuh against the bit tables of the PTX manual, transcribed here a second time: 9.7.16.4.1 (table 40), 9.7.16.4.2
   (tables 42 and 43), 9.7.16.1.1, 9.7.16.10.7. Constants worked out by hand stand at the end. */
#define MEGAVIT_KERNELS /* its formulas as the kernels have them */
#define __device__
#define __forceinline__ inline
#include "../../megavit.h"
#include "../../kernels/sm_100a/blackwell.cuh"
#include "blackwell.h"
#include "tap.h"

struct Field {
    const char *name;
    int first, bits;
    uint64_t expected;
};

/* The fields of a table cover every bit once, in order. */
static bool covers(const std::vector<Field> &fields, int bits) {
    int next = 0;
    for (const Field &f : fields) {
        if (f.first != next) return false;
        next += f.bits;
    }
    return next == bits;
}

static std::string differs(const std::vector<Field> &fields, uint64_t value) {
    for (const Field &f : fields) {
        const uint64_t seen = value >> f.first & ((1ull << f.bits) - 1);
        if (seen != f.expected)
            return std::string(f.name) + ", bits " + std::to_string(f.first) + " to " + std::to_string(f.first + f.bits - 1) + ": " +
                   std::to_string(seen) + ", not " + std::to_string(f.expected);
    }
    return "";
}

/* Agrees with the table; and with any one bit flipped it does not, in the field that the bit belongs to. */
static std::string check(const std::vector<Field> &fields, int bits, uint64_t value) {
    if (!covers(fields, bits)) return "the table does not cover the word";
    const std::string wrong = differs(fields, value);
    if (!wrong.empty()) return wrong;
    for (const Field &f : fields)
        for (int bit = f.first; bit < f.first + f.bits; bit++)
            if (differs(fields, value ^ 1ull << bit).compare(0, strlen(f.name), f.name))
                return std::string("bit ") + std::to_string(bit) + " may be anything";
    return "";
}

/* Table 40. Swizzle codes: none 0, 128 bytes 2, 64 bytes 4, 32 bytes 6. */
static std::vector<Field> matrix_table(uint64_t address, uint64_t leading, uint64_t stride, uint64_t swizzle) {
    return {{"start address / 16", 0, 14, address / 16 % 16384},
            {"nothing", 14, 2, 0},
            {"leading dimension / 16", 16, 14, leading / 16},
            {"nothing", 30, 2, 0},
            {"stride dimension / 16", 32, 14, stride / 16},
            {"fixed 0b001", 46, 3, 1},
            {"base offset", 49, 3, 0},
            {"leading dimension is absolute", 52, 1, 0},
            {"fixed 0", 53, 8, 0},
            {"swizzle", 61, 3, swizzle}};
}

/* What tables 42 and 43 have in common, between the bits `low` and `high` of each. */
static std::vector<Field> operand_table(std::vector<Field> low, uint64_t n, uint64_t a, uint64_t b, uint64_t ta, uint64_t tb,
                                        const std::vector<Field> &high) {
    const Field common[] = {{"reserved", 6, 1, 0},    {"A", 7, 3, a},
                            {"B", 10, 3, b},          {"negate A", 13, 1, 0},
                            {"negate B", 14, 1, 0},   {"transpose A", 15, 1, ta},
                            {"transpose B", 16, 1, tb}, {"N / 8", 17, 6, n / 8}};
    low.insert(low.end(), std::begin(common), std::end(common));
    low.insert(low.end(), high.begin(), high.end());
    return low;
}

/* Table 42, .kind::f16 and .kind::f8f6f4. */
static std::vector<Field> word_table(uint64_t m, uint64_t n, uint64_t a, uint64_t b, uint64_t ta, uint64_t tb) {
    return operand_table({{"sparsity selector", 0, 2, 0}, {"sparsity", 2, 1, 0}, {"saturate", 3, 1, 0}, {"D is F32", 4, 2, 1}},
                         n, a, b, ta, tb,
                         {{"reserved", 23, 1, 0}, {"M / 16", 24, 5, m / 16}, {"reserved", 29, 1, 0}, {"maximum shift", 30, 2, 0}});
}

/* Table 43, .kind::mxf8f6f4. */
static std::vector<Field> scaled_word_table(uint64_t m, uint64_t n, uint64_t a, uint64_t b, uint64_t ta, uint64_t tb, uint64_t sa,
                                            uint64_t sb) {
    return operand_table({{"reserved", 0, 2, 0}, {"sparsity", 2, 1, 0}, {"reserved", 3, 1, 0}, {"scale id of B", 4, 2, sb}},
                         n, a, b, ta, tb,
                         {{"scales are UE8M0", 23, 1, 1}, {"reserved", 24, 3, 0}, {"M / 128", 27, 2, m / 128},
                          {"scale id of A", 29, 2, sa}, {"reserved", 31, 1, 0}});
}

static void test_matrix_descriptors() {
    std::string why;
    const auto expect = [&](uint64_t value, uint64_t address, uint64_t leading, uint64_t stride, uint64_t swizzle) {
        if (why.empty()) why = check(matrix_table(address, leading, stride, swizzle), 64, value);
    };
    for (uint32_t address : {0x400u, 0x4400u, 0x38000u, 0x39c00u}) {
        expect(matrix_descriptor(address, 0x1230, 0x4560, MATRIX_SWIZZLE_64B), address, 0x1230, 0x4560, 4);
        /* 9.7.16.3.3, canonical layouts: K-major ((8,m),(T,2k)):((8T,SBO),(1,T)), 4T, 2T; none ((1T,SBO),(1,LBO)) */
        expect(matrix_descriptor_k_major(address, 192, 128), address, 0, 1024, 2);
        expect(matrix_descriptor_k_major(address, 128, 64), address, 0, 512, 4);
        expect(matrix_descriptor_k_major(address, 128, 32), address, 0, 256, 6);
        expect(matrix_descriptor_k_major(address, 128, 16), address, 128 * 16, 128, 0);
        /* MN-major ((T,8,m),(8,k)):((1,T,LBO),(8T,SBO)) and so on; none ((T,1,m),(8,k)):((1,T,SBO),(1T,LBO)) */
        expect(matrix_descriptor_mn_major(address, 64, 128), address, 64 * 128, 1024, 2);
        expect(matrix_descriptor_mn_major(address, 64, 64), address, 64 * 64, 512, 4);
        expect(matrix_descriptor_mn_major(address, 128, 32), address, 128 * 32, 256, 6);
        expect(matrix_descriptor_mn_major(address, 64, 16), address, 128, 64 * 16, 0);
        expect(matrix_descriptor_advance(matrix_descriptor_k_major(address, 128, 128), 96), address + 96, 0, 1024, 2);
        expect(scale_descriptor(address), address, 0, 128, 0);
    }
    ok(why.empty(), "matrix descriptors: every bit as in table 40, and no bit may be another", why);
}

static void test_instruction_words() {
    std::string why;
    for (uint32_t m : {64u, 128u, 256u})
        for (uint32_t n = 8; n <= 256; n += 8)
            for (uint32_t codes = 0; codes < 16; codes++) {
                const uint32_t a = codes & 1, b = codes >> 1 & 1, ta = codes >> 2 & 1, tb = codes >> 3 & 1;
                if (why.empty()) why = check(word_table(m, n, a, b, ta, tb), 32, instruction_word(m, n, a, b, ta, tb));
                for (uint32_t ids = 0; ids < 16 && m != 64; ids++)
                    if (why.empty())
                        why = check(scaled_word_table(m, n, a, b, ta, tb, ids & 3, ids >> 2), 32,
                                    instruction_word_scaled(m, n, a, b, ta, tb, ids & 3, ids >> 2));
            }
    ok(why.empty(), "instruction words: every bit as in tables 42 and 43, for all shapes, types, transposes and scale ids", why);
    ok(FORMAT_F16 == 0 && FORMAT_BF16 == 1 && FORMAT_E4M3 == 0 && FORMAT_E5M2 == 1, "codes of types as in tables 42 and 43");
}

/* What tcgen05.cp.32x128b.warpx4 does, written out: word j of row i of the source is column j of lanes i, 32 + i, 64 + i, 96 + i. The scale
   of row r must then be in column r / 32 of lane r % 32 (9.7.16.10.7.2.1), the block's byte of it. */
static void test_scale_atoms() {
    std::string why;
    std::vector<int> used((uint32_t)MGV__MX_ATOM_BYTES, 0);
    for (uint32_t row = 0; row < 128u; row++)
        for (uint32_t block = 0; block < 4u; block++) {
            const uint32_t at = mgv__mx_atom_byte(row, block), lane = at / 16, column = at % 16 / 4, byte = at % 4;
            if (at >= (uint32_t)MGV__MX_ATOM_BYTES || used[at]++ || lane != row % 32 || column != row / 32 || byte != block)
                why = "row " + std::to_string(row);
        }
    ok(why.empty(), "scale atoms: each byte of 512 once, and each where tcgen05.cp brings it to lane row % 32, column row / 32", why);
}

static void test_worked_constants() {
    static const struct {
        const char *name;
        uint64_t is, must_be;
    } constants[] = {
        {"bf16, M 128, N 192", instruction_word(128, 192, FORMAT_BF16, FORMAT_BF16, 0, 0), 0x08300490},
        {"bf16, M 128, N 192, B transposed", instruction_word(128, 192, FORMAT_BF16, FORMAT_BF16, 0, 1), 0x08310490},
        {"bf16, M 64, N 256", instruction_word(64, 256, FORMAT_BF16, FORMAT_BF16, 0, 0), 0x04400490},
        {"MXFP8 E4M3, M 128, N 192, ids 0", instruction_word_scaled(128, 192, FORMAT_E4M3, FORMAT_E4M3, 0, 0, 0, 0), 0x08B00000},
        {"MXFP8 E4M3, M 128, N 192, ids 3", instruction_word_scaled(128, 192, FORMAT_E4M3, FORMAT_E4M3, 0, 0, 3, 3), 0x68B00030},
        {"MXFP8 E4M3, M 256, N 192", instruction_word_scaled(256, 192, FORMAT_E4M3, FORMAT_E4M3, 0, 0, 0, 0), 0x10B00000},
        {"128-byte swizzle, K-major, upper half", matrix_descriptor_k_major(0, 128, 128) >> 32, 0x40004040},
        {"its lower half at 0x8400", matrix_descriptor_k_major(0x8400, 128, 128) & 0xffffffff, 0x840},
        {"scales, upper half", scale_descriptor(0) >> 32, 0x00004008},
        {"lane 96, column 200", tensor_address(0, 96, 200), 0x006000c8},
        {"the second block of 32 bytes", matrix_k_major_offset(32, 128, 128), 32},
        {"the third with 64-byte panels", matrix_k_major_offset(64, 128, 64), 128 * 64},
        {"bytes of a scale atom", (uint32_t)MGV__MX_ATOM_BYTES, 32 * 16},
        {"columns of a scale atom", SCALE_ATOM_COLUMNS, 16 / 4},
        {"lanes of tensor memory", TENSOR_LANES, 128},
        {"columns of tensor memory", TENSOR_COLUMNS, 512},
        {"k 16 of 128-byte rows", matrix_mn_major_offset(16, 128), 2048},
    };
    for (const auto &c : constants) {
        char text[100];
        snprintf(text, sizeof text, "it is 0x%lx, not 0x%lx", (unsigned long)c.is, (unsigned long)c.must_be);
        ok(c.is == c.must_be, std::string("constant: ") + c.name, text);
    }
}

/* Every wrapper of kernels/ptx.cuh named tcgen05_... has a stand-in in the model and a place where ptxas sees it. */
static void test_wrappers() {
    const std::string wrappers = file_text("kernels/ptx.cuh"), model = file_text("tests/machine/ptx.h"),
                      assembled = file_text("tests/machine/assemble.cu");
    const std::string begin = "DEVICE void tcgen05_";
    std::string why;
    int count = 0;
    for (size_t at = 0; (at = wrappers.find(begin, at)) != std::string::npos; at++, count++) {
        const std::string name = wrappers.substr(at + 12, wrappers.find('(', at) - at - 11);
        if (model.find("DEVICE void " + name) == std::string::npos) why += name + " has no stand-in in tests/machine/ptx.h\n";
        if (assembled.find(name) == std::string::npos) why += name + " is not in tests/machine/assemble.cu\n";
    }
    ok(why.empty() && count > 0, "all " + std::to_string(count) + " wrappers of tcgen05 are in the model and are assembled", why);
}

void test_blackwell_constants(void) {
    test_wrappers();
    test_matrix_descriptors();
    test_instruction_words();
    test_scale_atoms();
    test_worked_constants();
}
