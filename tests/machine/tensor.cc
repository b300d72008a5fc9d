/* The machine model's warpgroup matrix products (wgmma), and the matrix loads and stores of a warp. */
#include <math.h>
#include <stdlib.h>

#include <algorithm>

#include "internal.h"
#include "matrix.h"
#include "operations.h"

namespace machine {

/* ---- shared-memory matrix descriptors ---- */

/* PTX ISA, wgmma, "Matrix descriptor format" */
static MatrixDescriptor decode(uint64_t d, const char *which) {
    static const unsigned bits_of_code[] = {0, 3, 2, 1};
    MatrixDescriptor m;
    m.start = (uint32_t)(d & 0x3fff) << 4;
    m.leading = (uint32_t)(d >> 16 & 0x3fff) << 4;
    m.stride = (uint32_t)(d >> 32 & 0x3fff) << 4;
    m.base_offset = (uint32_t)(d >> 49 & 7);
    m.swizzle_bits = bits_of_code[d >> 62 & 3];
    const uint64_t unused = d & ~(0x3fffull | 0x3fffull << 16 | 0x3fffull << 32 | 7ull << 49 | 3ull << 62);
    if (unused) report("descriptor:field", "%s: bits 0x%016lx lie in no field", which, (unsigned long)unused);
    if (m.base_offset)
        report("descriptor:base-offset",
               "%s: base offset %u; the model knows tiles that begin at a multiple of their swizzle pattern, base offset 0", which,
               m.base_offset);
    if (m.swizzle_bits && (m.start >> 7 & ((1u << m.swizzle_bits) - 1)))
        report("descriptor:pattern", "%s: start 0x%x is not at the beginning of a swizzle pattern of %u bytes", which, m.start,
               128u << m.swizzle_bits);
    return m;
}

/* ---- wgmma ---- */

struct Product { /* what all threads of a warpgroup say of it */
    int columns;
    Format format;
    bool a_in_registers, a_transposed, b_transposed, scale_d;
    uint64_t a, b;
    bool operator==(const Product &o) const {
        return columns == o.columns && format == o.format && a_in_registers == o.a_in_registers && a_transposed == o.a_transposed &&
               b_transposed == o.b_transposed && scale_d == o.scale_d && a == o.a && b == o.b;
    }
};
struct WgmmaOp : Product {
    uint64_t number;
    bool protocol;
    uint32_t threads = 0; /* that have issued it */
    uint32_t commits; /* before it */
    uint32_t pc;
    Observer issuer[4];
    struct Numbers {
        float *d[128];
        uint32_t a_registers[128][4];
    };
    std::unique_ptr<Numbers> numbers; /* none in protocol mode */
    Cta *cta;
    uint32_t first_warp;
};

/* Of two bytes. */
static float value_of(uint16_t v, Format format) { return format == Format::f16 ? f16_to_float(v) : bf16_to_float(v); }

static void unpack(const uint8_t *from, Format format, float *to) { /* 16 bytes */
    if (format == Format::e4m3) {
        static float table[256];
        static bool ready;
        if (!ready)
            for (int i = 0; i < 256; i++) table[i] = e4m3_to_float((uint8_t)i);
        ready = true;
        for (int i = 0; i < 16; i++) to[i] = table[from[i]];
    } else if (format == Format::bf16) {
        uint16_t half[8];
        uint32_t bits[8];
        memcpy(half, from, sizeof half);
        for (int i = 0; i < 8; i++) bits[i] = (uint32_t)half[i] << 16;
        memcpy(to, bits, sizeof bits);
    } else {
        for (int i = 0; i < 8; i++) to[i] = f16_to_float((uint16_t)(from[2 * i] | from[2 * i + 1] << 8));
    }
}

/* WIDTH columns of four rows, in registers. */
template <int WIDTH> static inline __attribute__((always_inline)) void multiply_block(float (*sum)[256], const float (*a)[32],
                                                                                      const float *b, int k_count, int columns) {
    float block[4][WIDTH];
    for (int r = 0; r < 4; r++)
        for (int i = 0; i < WIDTH; i++) block[r][i] = sum[r][i];
    for (int k = 0; k < k_count; k++)
        for (int r = 0; r < 4; r++)
            for (int i = 0; i < WIDTH; i++) block[r][i] += a[r][k] * b[k * columns + i];
    for (int r = 0; r < 4; r++)
        for (int i = 0; i < WIDTH; i++) sum[r][i] = block[r][i];
}

/* Products of bf16, f16 and FP8 are exact in float32, so fused additions change no bit. */
__attribute__((target_clones("arch=skylake-avx512", "arch=haswell", "default"), optimize("O3", "fp-contract=fast"))) void
multiply(float (*sum)[256], const float (*a)[32], const float *b, int rows, int k_count, int columns) {
    for (int row = 0; row < rows; row += 4) {
        int n = 0;
        for (; n + 64 <= columns; n += 64) multiply_block<64>((float(*)[256])(sum[row] + n), a + row, b + n, k_count, columns);
        for (; n < columns; n += 8) multiply_block<8>((float(*)[256])(sum[row] + n), a + row, b + n, k_count, columns);
    }
}

/* What an H200 makes of the products and the sum before them (recorded/, every bit): all are shifted to the largest exponent, a product's
   being the sum of its factors', and lose what lies behind 25 fraction bits, with FP8 behind 13. Their sum is cut to float32, with FP8 to
   13 fraction bits. Nothing is rounded. */
__attribute__((target_clones("arch=skylake-avx512", "arch=haswell", "default"), optimize("O3"))) static void
multiply_as_hopper(float (*sum)[256], const float (*a)[32], const float *b, int rows, int k_count, int columns,
                   Format format) {
    const bool fp8 = format == Format::e4m3;
    const int fraction = fp8 ? 13 : 25, least = fp8 ? -6 : format == Format::f16 ? -14 : -126, none = -10000;
    static int b_exponent[32 * 256];
    const int least_sum = fp8 ? least : -126;
    const auto exponent = [none](float v, int at_least) {
        uint32_t bits;
        memcpy(&bits, &v, 4);
        return (bits & 0x7fffffff) == 0 ? none : std::max((int)(bits >> 23 & 255) - 127, at_least);
    };
    for (int i = 0; i < k_count * columns; i++) b_exponent[i] = exponent(b[i], least);
    for (int row = 0; row < rows; row++) {
        int largest[256];
        double shift[256], total[256];
        for (int n = 0; n < columns; n++) largest[n] = exponent(sum[row][n], least_sum);
        for (int k = 0; k < k_count; k++) {
            const int e = exponent(a[row][k], least);
            for (int n = 0; n < columns; n++) largest[n] = std::max(largest[n], e + b_exponent[k * columns + n]);
        }
        for (int n = 0; n < columns; n++) {
            const uint64_t bits = (uint64_t)(1023 + fraction - std::max(largest[n], -600)) << 52; /* 2^(fraction - largest) */
            memcpy(&shift[n], &bits, 8);
            total[n] = __builtin_trunc(sum[row][n] * shift[n]);
        }
        for (int k = 0; k < k_count; k++) {
            const double v = a[row][k];
            for (int n = 0; n < columns; n++) total[n] += __builtin_trunc(v * b[k * columns + n] * shift[n]);
        }
        for (int n = 0; n < columns; n++) {
            const double exact = total[n] / shift[n];
            const float nearest = (float)exact;
            uint32_t bits;
            memcpy(&bits, &nearest, 4);
            bits -= __builtin_fabs((double)nearest) > __builtin_fabs(exact);
            if (fp8) bits &= ~0x3ffu;
            memcpy(&sum[row][n], &bits, 4);
        }
    }
}

/* Calls visit(accumulator, sum) for each: accumulator i of thread t is row 16 w + g + 8 (i / 2 % 2), column 8 (i / 4) + 2 q + i % 2. */
template <class Visit> static void each_accumulator(const WgmmaOp &op, float (*sum)[256], const Visit &visit) {
    for (int t = 0; t < 128; t++) {
        float *low = sum[t / 32 * 16 + t % 32 / 4] + t % 4 * 2, *high = low + 8 * 256, *d = op.numbers->d[t];
        for (int n = 0; n < op.columns; n += 8, d += 4) {
            visit(d[0], low[n]);
            visit(d[1], low[n + 1]);
            visit(d[2], high[n]);
            visit(d[3], high[n + 1]);
        }
    }
}

struct WgmmaAction : Action {
    WarpGroup *group;
    void run() override;
};

static void schedule_group(WarpGroup *group) {
    if (group->scheduled || group->queue.empty() || group->queue.front()->threads != group->threads) return;
    group->scheduled = true;
    WgmmaAction *action = new WgmmaAction();
    action->group = group;
    add_action(action);
}

/* Reads operands for one warp, or for all four. */
struct Operand {
    const WgmmaOp &op;
    AsyncAccess access;
    const char *which;
    Operand(const WgmmaOp &o, uint32_t warp, uint32_t events, const char *w) : op(o), access(o.issuer[warp], events), which(w) {}
    void fetch(uintptr_t address, float *to) {
        const uintptr_t offset = shared_offset(op.cta->number, (uint32_t)address);
        if (!access.read(offset, 16, which)) memset(to, 0, 16 * sizeof(float));
        else if (!op.protocol) unpack(arena(offset), op.format, to);
    }
    /* Protocol mode: eight rows of 128 bytes at once, where copies have written all of them. The product reads a part of each row; whoever
       writes there writes the whole. */
    bool fetch_eight_rows(const MatrixDescriptor &m, uint32_t first) {
        const uintptr_t offset = shared_offset(op.cta->number, m.start / LARGEST_PIECE * LARGEST_PIECE + first / 8 * m.stride);
        return op.protocol && m.swizzle_bits == 3 && offset % LARGEST_PIECE == 0 && access.read_whole_piece(offset);
    }
};

/* Protocol mode: whether the product reads the same bytes of shared memory as the one before it, whose end is waited for together with its
   own: then what is known of that one's reads holds for both. Rows of 128 bytes count as read whole (fetch_eight_rows). */
static bool reads_the_same(const WgmmaOp &op, const WgmmaOp *last) {
    const uint64_t within_rows = 7 << 1; /* start addresses within the 128 bytes */
    if (!op.protocol || !last || last->commits != op.commits || op.a_transposed || last->a_transposed || op.b_transposed ||
        last->b_transposed)
        return false;
    if (op.a_in_registers || last->a_in_registers || op.columns != last->columns || ((op.a ^ last->a) & ~within_rows) ||
        ((op.b ^ last->b) & ~within_rows))
        return false;
    if (op.a >> 62 != 1 || op.b >> 62 != 1) return false; /* 128-byte swizzle */
    for (int w = 0; w < 4; w++)
        if (op.issuer[w].seen != last->issuer[w].seen || op.issuer[w].shared != last->issuer[w].shared) return false;
    return true;
}

static void execute(WgmmaOp &op, const WgmmaOp *last) {
    const bool fp8 = op.format == Format::e4m3;
    const int k_count = fp8 ? 32 : 16, unit_elements = fp8 ? 16 : 8, k_units = k_count / unit_elements;
    Thread *const keep = self;
    self = op.cta->warp[op.first_warp]->lane[0];
    const uint32_t keep_pc = self->pc;
    const Op keep_op = self->op;
    self->pc = op.pc;
    self->op = Op::wgmma;
    uint32_t event[4];
    for (uint32_t w = 0; w < 4; w++)
        event[w] = new_event(op.cta->warp[op.first_warp + w]->slot, (uint32_t)op.number, op.pc, op.cta->number, Op::wgmma, EVENT_ASYNC);
    const uint32_t all = make_set(event, 4);
    const bool known = reads_the_same(op, last);

    static float a[64][32], b[32 * 256];
    if (op.a_in_registers) {
        for (int t = 0; t < 128 && !op.protocol; t++)
            for (int r = 0; r < 4; r++) { /* PTX ISA, wgmma, fragments of A in registers */
                const int row = t / 32 * 16 + t % 32 / 4 + (r & 1) * 8;
                const uint32_t v = op.numbers->a_registers[t][r];
                if (fp8) for (int i = 0; i < 4; i++) a[row][t % 4 * 4 + (r >> 1) * 16 + i] = e4m3_to_float((uint8_t)(v >> 8 * i));
                else for (int i = 0; i < 2; i++) a[row][t % 4 * 2 + (r >> 1) * 8 + i] = value_of((uint16_t)(v >> 16 * i), op.format);
            }
    } else {
        const MatrixDescriptor m = decode(op.a, "descriptor of A");
        float unit[16];
        if (!op.a_transposed) check_k_span(m, (uint32_t)k_units, "descriptor of A");
        for (uint32_t w = 0; w < 4 && !known; w++) { /* each warp reads its 16 rows */
            Operand operand(op, w, event[w], "A");
            if (!op.a_transposed) {
                for (uint32_t first = 16 * w; first < 16 * w + 16; first += 8) {
                    if (operand.fetch_eight_rows(m, first)) continue;
                    for (uint32_t r = first; r < first + 8; r++)
                        for (uint32_t u = 0; u < (uint32_t)k_units; u++)
                            operand.fetch(k_major(m, r, u), &a[r][u * (uint32_t)unit_elements]);
                }
                continue;
            }
            for (uint32_t k = 0; k < 16; k++)
                for (uint32_t u = 2 * w; u < 2 * w + 2; u++) {
                    operand.fetch(mn_major(m, k, u), unit);
                    for (uint32_t i = 0; i < 8; i++) a[u * 8 + i][k] = unit[i];
                }
        }
    }
    const MatrixDescriptor m = decode(op.b, "descriptor of B");
    bool same = true; /* all four warps have seen the same: one check stands for four */
    for (int w = 1; w < 4; w++) same &= op.issuer[w].seen == op.issuer[0].seen && op.issuer[w].shared == op.issuer[0].shared;
    const uint32_t columns = (uint32_t)op.columns;
    if (!op.b_transposed) check_k_span(m, (uint32_t)k_units, "descriptor of B");
    for (uint32_t w = 0; w < (known ? 0u : same ? 1u : 4u); w++) {
        Operand operand(op, w, same ? all : event[w], "B");
        const uint32_t rows = op.b_transposed ? 16 : columns, units = op.b_transposed ? columns / 8 : (uint32_t)k_units;
        for (uint32_t first = 0; first < rows; first += 8) {
            if (units <= 8 && operand.fetch_eight_rows(m, first)) continue;
            if (op.b_transposed) {
                for (uint32_t k = first; k < first + 8; k++)
                    for (uint32_t u = 0; u < units; u++) operand.fetch(mn_major(m, k, u), &b[k * columns + u * 8]);
                continue;
            }
            for (uint32_t u = 0; u < units; u++) {
                float unit[8][16];
                for (uint32_t n = 0; n < 8; n++) operand.fetch(k_major(m, first + n, u), unit[n]);
                for (uint32_t i = 0; i < (uint32_t)unit_elements && !op.protocol; i++)
                    for (uint32_t n = 0; n < 8; n++) b[(u * (uint32_t)unit_elements + i) * columns + first + n] = unit[n][i];
            }
        }
    }
    if (!op.protocol) {
        static float sum[64][256];
        each_accumulator(op, sum, [&](float &d, float &s) { s = op.scale_d ? d : 0.0f; });
        if (world->options.hardware_sums) multiply_as_hopper(sum, a, b, 64, k_count, op.columns, op.format);
        else multiply(sum, a, b, 64, k_count, op.columns);
        each_accumulator(op, sum, [](float &d, float &s) { d = s; });
    }
    self->pc = keep_pc;
    self->op = keep_op;
    self = keep;
}

void WgmmaAction::run() {
    std::shared_ptr<WgmmaOp> op = group->queue.front();
    group->queue.pop_front();
    group->scheduled = false;
    execute(*op, group->last.get());
    group->executed = op->number;
    group->last = op;
    for (uint32_t w = 0; w < 4; w++) {
        const Warp *warp = op->cta->warp[op->first_warp + w];
        for (uint32_t lanes = warp->running; lanes; lanes &= lanes - 1) wake(warp->lane[__builtin_ctz(lanes)], group);
    }
    progress();
    schedule_group(group);
}

static std::set<std::string> kinds;

std::set<std::string> product_kinds(void) { return kinds; }

static void note_kind(const Product &p) {
    static const char *const layouts[] = {"no swizzle", "128B", "64B", "32B"}, *const formats[] = {"bf16", "f16", "e4m3"};
    static Product last = Product();
    if (p.columns == last.columns && p.format == last.format && p.a_in_registers == last.a_in_registers && p.a_transposed == last.a_transposed &&
        p.b_transposed == last.b_transposed && (p.a ^ last.a) >> 62 == 0 && (p.b ^ last.b) >> 62 == 0)
        return;
    last = p;
    const std::string a = p.a_in_registers ? "registers" : std::string(p.a_transposed ? "transposed, " : "") + layouts[p.a >> 62];
    kinds.insert(format_text("n%d, %s, A in %s, B in %s%s", p.columns, formats[(int)p.format], a.c_str(),
                             p.b_transposed ? "transposed, " : "", layouts[p.b >> 62]));
}

/* The product of this number, which somebody else of the warpgroup may have issued before. */
static WgmmaOp *product_of(WarpGroup &group, const Product &mine) {
    Thread *t = self;
    const uint64_t number = ++t->products, index = number - group.executed - 1;
    if (index < group.queue.size()) {
        WgmmaOp *op = group.queue[index].get();
        if (!(mine == *op)) {
            report("wgmma:same", "comes with other descriptors than the threads of the warpgroup before it");
            stop_launch();
        }
        return op;
    }
    note_kind(mine);
    group.queue.emplace_back(new WgmmaOp());
    WgmmaOp *op = group.queue.back().get();
    *(Product *)op = mine;
    op->number = number;
    op->protocol = world->options.protocol;
    if (!op->protocol) op->numbers.reset(new WgmmaOp::Numbers());
    op->commits = t->commits;
    op->pc = t->pc;
    op->cta = t->of;
    op->first_warp = t->warp->number / 4 * 4;
    return op;
}

/* Other accumulators may have lain where ordinary variables lie now, so only those of the product itself say that a fence is missing. */
static void remember_registers(Thread *t, uintptr_t begin, uintptr_t end) {
    for (Registers &r : t->registers)
        if (r.begin == begin && r.end == end) {
            if (r.touched || t->fence_needed)
                report("wgmma-fence", "no wgmma.fence since the kernel's start or the last ordinary access to the accumulators");
            r.touched = t->fence_needed = false;
            r.last_product = t->products;
            return;
        }
    t->registers.erase(
        std::remove_if(t->registers.begin(), t->registers.end(),
                       [&](const Registers &r) { return r.begin < end && begin < r.end; }), /* the stack has been used anew */
        t->registers.end());
    if (t->fence_needed) report("wgmma-fence", "no wgmma.fence since the kernel's start");
    t->fence_needed = false;
    t->registers.push_back({begin, end, t->products, false});
    t->registers_begin = t->registers_end ? std::min(t->registers_begin, begin) : begin;
    t->registers_end = std::max(t->registers_end, end);
}

/* A thread does not wait for the others of its warpgroup: the product is done some time after all have issued it. */
void op_wgmma(float *d, int columns, Format format, bool a_in_registers, bool a_transposed, bool b_transposed, uint64_t a,
              const uint32_t *a_registers, uint64_t b, bool scale_d) {
    MACHINE_ENTER(Op::wgmma);
    record(Did::wgmma, (uint32_t)columns,
           (uint32_t)(a_in_registers << 1 | a_transposed << 2 | b_transposed << 3 | scale_d << 4 | (int)format << 5), a, b);
    Thread *t = self;
    if (columns < 8 || columns > 256 || columns % 8 || (format == Format::e4m3 && (a_transposed || b_transposed))) {
        report("wgmma:shape", "n %d%s: a multiple of 8 from 8 to 256; FP8 operands are K-major", columns,
               a_transposed || b_transposed ? ", transposed" : "");
        stop_launch();
    }
    if (t->warp->number / 4 * 4 + 4 > t->of->warp.size()) {
        report("wgmma:group", "warp %u belongs to no whole warpgroup", t->warp->number);
        stop_launch();
    }
    WarpGroup &group = t->of->group[t->warp->number / 4];
    const uint32_t number = t->number % 128;
    WgmmaOp *op = product_of(group, {columns, format, a_in_registers, a_transposed, b_transposed, scale_d, a, b});
    if (t->lane == 0) op->issuer[number / 32] = *t;
    if (op->numbers) op->numbers->d[number] = d;
    if (op->numbers && a_in_registers) memcpy(op->numbers->a_registers[number], a_registers, sizeof op->numbers->a_registers[number]);
    post(Op::wgmma);
    t->now++;
    if (t->warp->watched >> t->lane & 1) remember_registers(t, (uintptr_t)d, (uintptr_t)(d + columns / 2));
    if (++op->threads == group.threads) schedule_group(&group);
}

void op_wgmma_fence(void) {
    MACHINE_ENTER(Op::wgmma_fence);
    record(Did::wgmma_fence);
    post(Op::wgmma_fence);
    self->fence_needed = false;
    for (Registers &r : self->registers) r.touched = false;
}

void op_wgmma_commit(void) {
    MACHINE_ENTER(Op::wgmma_commit);
    record(Did::wgmma_commit);
    post(Op::wgmma_commit);
    self->committed[++self->commits % 8] = self->products;
}

void op_wgmma_wait(uint32_t pending) {
    MACHINE_ENTER(Op::wgmma_wait);
    record(Did::wgmma_wait, pending);
    Thread *t = self;
    Warp *warp = t->warp;
    WarpGroup &group = t->of->group[warp->number / 4];
    if (pending > 7) report("wgmma:wait", "wait_group %u: 0 to 7", pending);
    post(Op::wgmma_wait);
    const uint64_t due = t->commits > pending ? t->committed[(t->commits - pending) % 8] : 0;
    t->now++;
    if (due <= t->completed_products) return;
    while (group.executed < due) block("its matrix products", &group);
    t->completed_products = due;
    if (warp->waited.product != due || warp->waited.before != t->seen) {
        warp->waited.product = due;
        warp->waited.before = warp->waited.after = t->seen;
        warp->waited.after.raise(warp->slot, (uint32_t)due);
    }
    t->seen = warp->waited.after;
}

void wgmma_end_of_thread(Thread *t) {
    if (t->products > t->completed_products) report("wgmma:end", "the thread ends with matrix products that it did not wait for");
}

/* ---- mma: 16 x 8 x 16, operands and sums in the registers of one warp ---- */

struct MmaLane {
    float *d;
    const uint32_t *a, *b;
    Format format;
};

/* Lane l has rows l / 4 and l / 4 + 8 of A and column l / 4 of B, of both the pairs l % 4 and l % 4 + 4 along k; of the sums the same rows
   and columns 2 (l % 4) and the next. They are added as those of wgmma are (recorded/). */
static void multiply_fragments(Warp *warp) {
    static float a[16][32], b[16 * 8], sum[16][256];
    const auto each_sum = [warp](const auto &visit) {
        for (int l = 0; l < 32; l++)
            for (int i = 0; i < 4; i++) visit(((const MmaLane *)warp->lane[l]->argument)->d[i], sum[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2]);
    };
    for (int l = 0; l < 32; l++) {
        const MmaLane &lane = *(const MmaLane *)warp->lane[l]->argument;
        for (int half = 0; half < 2; half++)
            for (int i = 0; i < 2; i++) {
                const int k = half * 8 + l % 4 * 2 + i;
                a[l / 4][k] = value_of((uint16_t)(lane.a[2 * half] >> 16 * i), lane.format);
                a[l / 4 + 8][k] = value_of((uint16_t)(lane.a[2 * half + 1] >> 16 * i), lane.format);
                b[k * 8 + l / 4] = value_of((uint16_t)(lane.b[half] >> 16 * i), lane.format);
            }
    }
    const Format format = ((const MmaLane *)warp->lane[0]->argument)->format;
    each_sum([](float &d, float &s) { s = d; });
    if (world->options.hardware_sums) multiply_as_hopper(sum, a, b, 16, 16, 8, format);
    else multiply(sum, a, b, 16, 16, 8);
    each_sum([](float &d, float &s) { d = s; });
}

void op_mma(float *d, const uint32_t *a, const uint32_t *b, Format format) {
    MACHINE_ENTER(Op::mma);
    if (world->options.protocol) {
        post(Op::mma);
        return;
    }
    MmaLane mine = {d, a, b, format};
    collective(Op::mma, 0xffffffffu, &mine, multiply_fragments);
}

/* ---- stmatrix, ldmatrix: x4, 8x8 matrices of 16-bit elements ---- */

/* Lane l owns row l % 8 of matrix l / 8; what it holds itself are elements 2 (l % 4) and the next of row l / 4 of every matrix. */
template <class Visit> static void each_pair(bool transposed, const Visit &visit) {
    for (uint32_t owner = 0; owner < 32; owner++)
        for (uint32_t column = 0; column < 8; column++) {
            const uint32_t row = owner % 8;
            if (transposed) visit(owner, column, column * 4 + row / 2, row % 2);
            else visit(owner, column, row * 4 + column / 2, column % 2);
        }
}

static uint16_t *matrix_row(const Warp *warp, uint32_t address) {
    return (uint16_t *)arena(shared_offset(warp->of->number, address & 0xffffff));
}

static void store_matrices(Warp *warp, const MatrixStore &store, bool transposed) {
    each_pair(transposed, [&](uint32_t owner, uint32_t column, uint32_t lane, uint32_t half) {
        matrix_row(warp, store.address[owner])[column] = (uint16_t)(store.value[lane][owner / 8] >> 16 * half);
    });
}

struct MatrixLoad {
    uint32_t address, value[4];
};

static void load_matrices(Warp *warp, bool transposed) {
    each_pair(transposed, [&](uint32_t owner, uint32_t column, uint32_t lane, uint32_t half) {
        uint32_t &v = ((MatrixLoad *)warp->lane[lane]->argument)->value[owner / 8];
        const uint32_t element = matrix_row(warp, ((MatrixLoad *)warp->lane[owner]->argument)->address)[column];
        v = (v & ~(0xffffu << 16 * half)) | element << 16 * half;
    });
}

/* Each row counts as read or written by the lane that gives its address. */
void op_matrix(uint32_t address, uint32_t *value, bool store, bool transposed) {
    const Op op = store ? Op::stmatrix : Op::ldmatrix;
    MACHINE_ENTER(op);
    Thread *t = self;
    Warp *warp = t->warp;
    if (address % 16) report("misaligned:row", "row address 0x%x: a multiple of 16", address & 0xffffff);
    if (cta_of_address(address) != t->of) {
        report("out-of-bounds:window", "row address of another CTA");
        stop_launch();
    }
    generic_access(shared_offset(t->cta, address & 0xffffff), 16, store, t->pc, op);
    if (world->options.protocol) {
        post(op);
        return;
    }
    if (!store) {
        MatrixLoad mine = {address, {0, 0, 0, 0}};
        collective(op, 0xffffffffu, &mine, [transposed](Warp *w) { load_matrices(w, transposed); });
        memcpy(value, mine.value, sizeof mine.value);
        return;
    }
    post(op);
    const uint64_t index = t->matrix_stores++ - warp->matrix_stores_done;
    if (index >= warp->matrix_stores.size()) warp->matrix_stores.emplace_back();
    MatrixStore &entry = warp->matrix_stores[index];
    entry.address[t->lane] = address;
    memcpy(entry.value[t->lane], value, sizeof entry.value[t->lane]);
    entry.arrived |= 1u << t->lane;
    if (entry.arrived != 0xffffffffu) return;
    store_matrices(warp, entry, transposed); /* the first in the line: all lanes come to them in the same order */
    warp->matrix_stores.pop_front();
    warp->matrix_stores_done++;
}

} // namespace machine
