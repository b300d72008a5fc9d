/* The machine model's warpgroup matrix products (wgmma), and the matrix loads and stores of a warp. */
#include <math.h>
#include <stdlib.h>

#include <algorithm>

#include "internal.h"

namespace machine {

uintptr_t swizzle_address(uintptr_t address, unsigned swizzle_bits); /* async.cc */

/* ---- shared-memory matrix descriptors ---- */

struct MatrixDescriptor {
    uint32_t start, leading, stride, base_offset;
    unsigned swizzle_bits; /* 0 none, 1 32B, 2 64B, 3 128B */
};

/* kernels.md 1.1 (PTX ISA, wgmma, "Matrix descriptor format") */
static MatrixDescriptor decode(uint64_t d, const char *which) {
    static const unsigned bits_of_code[] = {0, 3, 2, 1};
    MatrixDescriptor m;
    m.start = (uint32_t)(d & 0x3fff) << 4;
    m.leading = (uint32_t)(d >> 16 & 0x3fff) << 4;
    m.stride = (uint32_t)(d >> 32 & 0x3fff) << 4;
    m.base_offset = (uint32_t)(d >> 49 & 7);
    m.swizzle_bits = bits_of_code[d >> 62 & 3];
    const uint64_t unused = d & ~(0x3fffull | 0x3fffull << 16 | 0x3fffull << 32 | 7ull << 49 | 3ull << 62);
    if (unused) report("descriptor", "%s: bits 0x%016lx lie in no field", which, (unsigned long)unused);
    if (m.base_offset) report("descriptor", "%s: base offset %u; the model knows tiles that begin at a multiple of their swizzle pattern, base offset 0", which, m.base_offset);
    if (m.swizzle_bits && (m.start >> 7 & ((1u << m.swizzle_bits) - 1)))
        report("descriptor", "%s: start 0x%x is not at the beginning of a swizzle pattern of %u bytes", which, m.start, 128u << m.swizzle_bits);
    if (m.swizzle_bits == 0 && m.start % 16) report("descriptor", "%s: start 0x%x", which, m.start);
    return m;
}

/* Where 16 bytes lie. K-major: row r along M or N, unit u of 16 bytes along K. MN-major: row r along K, unit u of 16 bytes along M or N. */
static uintptr_t k_major(const MatrixDescriptor &m, uint32_t r, uint32_t u) {
    if (!m.swizzle_bits) return m.start + r % 8 * 16 + r / 8 * m.stride + u * m.leading;
    return swizzle_address(m.start + r % 8 * (16u << m.swizzle_bits) + r / 8 * m.stride + u * 16, m.swizzle_bits);
}
static uintptr_t mn_major(const MatrixDescriptor &m, uint32_t k, uint32_t u) {
    if (!m.swizzle_bits) return m.start + k % 8 * 16 + k / 8 * m.leading + u * m.stride;
    const uint32_t units = 1u << m.swizzle_bits;
    return swizzle_address(m.start + k % 8 * (16u << m.swizzle_bits) + k / 8 * m.stride + u % units * 16 + u / units * m.leading, m.swizzle_bits);
}

/* A start that is advanced inside of the pattern and a row that ends beyond it would leave the pattern: reported when the unit does. */
static void check_k_span(const MatrixDescriptor &m, uint32_t units, const char *which) {
    if (m.swizzle_bits && m.start % (16u << m.swizzle_bits) + units * 16 > (16u << m.swizzle_bits))
        report("descriptor", "%s: start 0x%x and %u bytes along K leave the swizzle's %u bytes", which, m.start, units * 16, 16u << m.swizzle_bits);
}

/* ---- wgmma ---- */

struct WgmmaOp {
    uint64_t number;
    int columns;
    bool fp8, a_in_registers, a_transposed, b_transposed, scale_d;
    bool protocol;
    uint64_t a, b;
    uint32_t warps; /* that have issued it */
    uint32_t pc;
    Observer issuer[4];
    uint32_t slot_clock[4];
    float *d[128];
    uint32_t a_registers[128][4];
    Cta *cta;
    uint32_t first_warp;
};

static float e4m3_to_float(uint8_t v) {
    const int sign = v >> 7, exponent = v >> 3 & 15, mantissa = v & 7;
    if (exponent == 15 && mantissa == 7) return NAN;
    const float m = exponent ? ldexpf(1.0f + (float)mantissa / 8, exponent - 7) : ldexpf((float)mantissa / 8, -6);
    return sign ? -m : m;
}

static float bf16_to_float(uint16_t v) {
    const uint32_t bits = (uint32_t)v << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static void unpack(const uint8_t *from, bool fp8, float *to) { /* 16 bytes */
    if (fp8) {
        static float table[256];
        static bool ready;
        if (!ready)
            for (int i = 0; i < 256; i++) table[i] = e4m3_to_float((uint8_t)i);
        ready = true;
        for (int i = 0; i < 16; i++) to[i] = table[from[i]];
    } else {
        for (int i = 0; i < 8; i++) to[i] = bf16_to_float((uint16_t)(from[2 * i] | from[2 * i + 1] << 8));
    }
}

/* Keeps 13 fraction bits, towards zero. */
static float truncated(float v) {
    uint32_t bits;
    memcpy(&bits, &v, 4);
    bits &= ~0x3ffu;
    memcpy(&v, &bits, 4);
    return v;
}

/* sum[n] += a[k] b[k][n], in the order of k */
__attribute__((target_clones("avx2", "default"))) static void multiply_row(float *sum, const float *a, const float *b, int k_count, int columns) {
    for (int k = 0; k < k_count; k++) {
        const float v = a[k];
        const float *row = b + k * columns;
        for (int n = 0; n < columns; n++) sum[n] += v * row[n];
    }
}

struct WgmmaAction : Action {
    WarpGroup *group;
    void run() override;
};

static void schedule_group(WarpGroup *group) {
    if (group->scheduled || group->queue.empty() || group->queue.front()->warps != 15) return;
    group->scheduled = true;
    WgmmaAction *action = new WgmmaAction();
    action->group = group;
    add_action(action);
}

static void fetch(const WgmmaOp &op, const Observer &who, uint32_t events, uintptr_t address, float *to, const char *which, bool check) {
    const uintptr_t offset = shared_offset(op.cta->number, (uint32_t)address);
    if (check && !async_read(who, events, offset, 16, which)) {
        memset(to, 0, 16 * sizeof(float));
        return;
    }
    if (!op.protocol) unpack(arena(offset), op.fp8, to);
}

static void execute(WgmmaOp &op) {
    const int k_count = op.fp8 ? 32 : 16, unit_elements = op.fp8 ? 16 : 8, k_units = k_count / unit_elements;
    Thread *const keep = self;
    self = op.cta->warp[op.first_warp]->lane[0];
    const uint32_t keep_pc = self->pc;
    const Op keep_op = self->op;
    self->pc = op.pc;
    self->op = Op::wgmma;
    uint32_t event[4];
    for (uint32_t w = 0; w < 4; w++)
        event[w] = new_event(op.cta->warp[op.first_warp + w]->slot, op.slot_clock[w], op.pc, op.cta->number, Op::wgmma, EVENT_ASYNC);
    const uint32_t all = make_set(event, 4);

    static float a[64][32], b[32 * 256];
    if (op.a_in_registers) {
        for (int t = 0; t < 128 && !op.protocol; t++)
            for (int r = 0; r < 4; r++) { /* kernels.md 1.3 */
                const int row = t / 32 * 16 + t % 32 / 4 + (r & 1) * 8;
                const uint32_t v = op.a_registers[t][r];
                if (op.fp8) for (int i = 0; i < 4; i++) a[row][t % 4 * 4 + (r >> 1) * 16 + i] = e4m3_to_float((uint8_t)(v >> 8 * i));
                else for (int i = 0; i < 2; i++) a[row][t % 4 * 2 + (r >> 1) * 8 + i] = bf16_to_float((uint16_t)(v >> 16 * i));
            }
    } else {
        const MatrixDescriptor m = decode(op.a, "descriptor of A");
        float unit[16];
        if (!op.a_transposed) {
            check_k_span(m, (uint32_t)k_units, "descriptor of A");
            for (uint32_t r = 0; r < 64; r++)
                for (uint32_t u = 0; u < (uint32_t)k_units; u++)
                    fetch(op, op.issuer[r / 16], event[r / 16], k_major(m, r, u), &a[r][u * (uint32_t)unit_elements], "A", true);
        } else {
            for (uint32_t k = 0; k < 16; k++)
                for (uint32_t u = 0; u < 8; u++) {
                    fetch(op, op.issuer[u / 2], event[u / 2], mn_major(m, k, u), unit, "A", true);
                    for (uint32_t i = 0; i < 8; i++) a[u * 8 + i][k] = unit[i];
                }
        }
    }
    const MatrixDescriptor m = decode(op.b, "descriptor of B");
    bool same = true; /* all four warps have seen the same: one check stands for four */
    for (int w = 1; w < 4; w++) same &= op.issuer[w].seen == op.issuer[0].seen && op.issuer[w].shared == op.issuer[0].shared;
    const auto fetch_b = [&](uintptr_t address, float *to) {
        if (same) {
            fetch(op, op.issuer[0], all, address, to, "B", true);
            return;
        }
        for (int w = 0; w < 4; w++) fetch(op, op.issuer[w], event[w], address, to, "B", true);
    };
    float unit[16];
    const uint32_t columns = (uint32_t)op.columns;
    if (!op.b_transposed) {
        check_k_span(m, (uint32_t)k_units, "descriptor of B");
        for (uint32_t n = 0; n < columns; n++)
            for (uint32_t u = 0; u < (uint32_t)k_units; u++) {
                fetch_b(k_major(m, n, u), unit);
                if (!op.protocol)
                    for (int i = 0; i < unit_elements; i++) b[(u * (uint32_t)unit_elements + (uint32_t)i) * columns + n] = unit[i];
            }
    } else {
        for (uint32_t k = 0; k < 16; k++)
            for (uint32_t u = 0; u < columns / 8; u++) fetch_b(mn_major(m, k, u), &b[k * columns + u * 8]);
    }
    if (!op.protocol) {
        float sum[256];
        for (int row = 0; row < 64; row++) { /* accumulator i of thread t: row 16 w + g + 8 (i / 2 % 2), column 8 (i / 4) + 2 q + i % 2 */
            const int warp = row / 16, g = row % 8, high = row % 16 / 8;
            for (int n = 0; n < op.columns; n++) {
                const int t = warp * 32 + g * 4 + n % 8 / 2;
                sum[n] = op.scale_d ? op.d[t][n / 8 * 4 + high * 2 + n % 2] : 0.0f;
            }
            multiply_row(sum, a[row], b, k_count, op.columns);
            for (int n = 0; n < op.columns; n++) {
                const int t = warp * 32 + g * 4 + n % 8 / 2;
                op.d[t][n / 8 * 4 + high * 2 + n % 2] = op.fp8 && world->options.fp8_reduced_sum ? truncated(sum[n]) : sum[n];
            }
        }
    }
    self->pc = keep_pc;
    self->op = keep_op;
    self = keep;
}

void WgmmaAction::run() {
    std::shared_ptr<WgmmaOp> op = group->queue.front();
    group->queue.pop_front();
    group->scheduled = false;
    execute(*op);
    group->executed = op->number;
    for (uint32_t w = 0; w < 4; w++)
        for (Thread *t : op->cta->warp[op->first_warp + w]->lane) wake(t, group);
    progress();
    schedule_group(group);
}

struct WgmmaArguments {
    int columns;
    bool fp8, a_in_registers, a_transposed, b_transposed, scale_d;
    uint64_t a, b;
    uint32_t a_registers[4];
    float *d;
};

static bool same_product(const WgmmaArguments &x, const WgmmaArguments &y) {
    return x.columns == y.columns && x.fp8 == y.fp8 && x.a_in_registers == y.a_in_registers && x.a_transposed == y.a_transposed &&
           x.b_transposed == y.b_transposed && x.scale_d == y.scale_d && (x.a_in_registers || x.a == y.a) && x.b == y.b;
}

static void issue(Warp *warp) {
    Cta *cta = warp->of;
    const uint32_t first = warp->number / 4 * 4, w = warp->number % 4;
    if (first + 4 > cta->warp.size()) {
        report("wgmma", "warp %u belongs to no whole warpgroup", warp->number);
        stop_launch();
    }
    WarpGroup &group = cta->group[warp->number / 4];
    const WgmmaArguments &mine = *(WgmmaArguments *)warp->lane[0]->argument;
    for (Thread *t : warp->lane)
        if (!same_product(mine, *(WgmmaArguments *)t->argument)) {
            report("wgmma", "lane %u comes with other descriptors than lane 0", t->lane);
            stop_launch();
        }
    if (warp->fence_needed) {
        report("wgmma-fence", "no wgmma.fence since the kernel's start or the last ordinary access to the accumulators");
        warp->fence_needed = false;
    }
    const uint64_t number = ++warp->issued;
    WgmmaOp *op = nullptr;
    for (auto &queued : group.queue)
        if (queued->number == number) op = queued.get();
    if (!op) {
        group.queue.emplace_back(new WgmmaOp());
        op = group.queue.back().get();
        op->number = number;
        op->columns = mine.columns;
        op->fp8 = mine.fp8;
        op->a_in_registers = mine.a_in_registers;
        op->a_transposed = mine.a_transposed;
        op->b_transposed = mine.b_transposed;
        op->scale_d = mine.scale_d;
        op->protocol = world->options.protocol;
        op->a = mine.a;
        op->b = mine.b;
        op->warps = 0;
        op->pc = self->pc;
        op->cta = cta;
        op->first_warp = first;
    } else {
        WgmmaArguments theirs = {op->columns, op->fp8, op->a_in_registers, op->a_transposed, op->b_transposed, op->scale_d, op->a, op->b, {0, 0, 0, 0}, nullptr};
        if (!same_product(mine, theirs)) {
            report("wgmma", "warp %u of the warpgroup comes with other descriptors than the warps before it", w);
            stop_launch();
        }
    }
    op->warps |= 1u << w;
    op->issuer[w] = *warp->lane[0];
    op->slot_clock[w] = ++warp->slot_clock;
    for (Thread *t : warp->lane) {
        const WgmmaArguments &theirs = *(WgmmaArguments *)t->argument;
        op->d[w * 32 + t->lane] = theirs.d;
        memcpy(op->a_registers[w * 32 + t->lane], theirs.a_registers, sizeof theirs.a_registers);
        t->now++;
        const uintptr_t begin = (uintptr_t)theirs.d, end = begin + (uintptr_t)mine.columns / 2 * sizeof(float);
        Registers *known = nullptr;
        for (Registers &r : t->registers)
            if (r.begin == begin && r.end == end) known = &r;
        if (!known) {
            t->registers.erase(std::remove_if(t->registers.begin(), t->registers.end(),
                                              [&](const Registers &r) { return r.begin < end && begin < r.end; }), /* the stack has been used anew */
                               t->registers.end());
            t->registers.push_back({begin, end, 0});
            known = &t->registers.back();
            t->registers_begin = t->registers_end ? std::min(t->registers_begin, begin) : begin;
            t->registers_end = std::max(t->registers_end, end);
        }
        known->last_op = number;
    }
    schedule_group(&group);
}

void op_wgmma(float *d, int columns, bool fp8, bool a_in_registers, bool a_transposed, bool b_transposed, uint64_t a, const uint32_t *a_registers, uint64_t b, bool scale_d) {
    MACHINE_ENTER(Op::wgmma);
    WgmmaArguments mine = {columns, fp8, a_in_registers, a_transposed, b_transposed, scale_d, a, b, {0, 0, 0, 0}, d};
    if (a_in_registers) memcpy(mine.a_registers, a_registers, sizeof mine.a_registers);
    if (columns < 8 || columns > 256 || columns % 8 || (fp8 && (a_transposed || b_transposed))) {
        report("wgmma", "n %d%s: a multiple of 8 from 8 to 256; FP8 operands are K-major", columns, a_transposed || b_transposed ? ", transposed" : "");
        stop_launch();
    }
    collective(Op::wgmma, 0xffffffffu, &mine, issue);
}

void op_wgmma_fence(void) {
    MACHINE_ENTER(Op::wgmma_fence);
    collective(Op::wgmma_fence, 0xffffffffu, nullptr, [](Warp *warp) { warp->fence_needed = false; });
}

void op_wgmma_commit(void) {
    MACHINE_ENTER(Op::wgmma_commit);
    collective(Op::wgmma_commit, 0xffffffffu, nullptr, [](Warp *warp) { warp->commits.push_back(warp->issued); });
}

void op_wgmma_wait(uint32_t pending) {
    MACHINE_ENTER(Op::wgmma_wait);
    collective(Op::wgmma_wait, 0xffffffffu, nullptr, [](Warp *) {});
    Warp *warp = self->warp;
    WarpGroup &group = self->of->group[warp->number / 4];
    const uint64_t due = warp->commits.size() > pending ? warp->commits[warp->commits.size() - 1 - pending] : 0;
    while (group.executed < due) block("its matrix products", &group);
    collective(Op::wgmma_wait, 0xffffffffu, nullptr, [due](Warp *w) {
        if (w->committed_ops < due) w->committed_ops = due;
        const BaseRef before = w->lane[0]->seen;
        BaseRef after = before;
        if (due) after.raise(w->slot, (uint32_t)due); /* the warp's slot counts its products */
        for (Thread *t : w->lane) {
            if (t->seen == before) t->seen = after;
            else if (due) t->seen.raise(w->slot, (uint32_t)due);
            t->now++;
        }
        while (w->commits.size() > 16) w->commits.pop_front();
    });
}

void wgmma_end_of_thread(Thread *t) {
    if (t->warp->issued > t->warp->committed_ops) report("wgmma", "the thread ends with matrix products that it did not wait for");
}

/* ---- stmatrix, ldmatrix: x4, 8x8 matrices of 16-bit elements ---- */

struct MatrixArguments {
    uint32_t address, value[4];
};

void op_matrix(uint32_t address, uint32_t *value, bool store, bool transposed) {
    MACHINE_ENTER(store ? Op::stmatrix : Op::ldmatrix);
    MatrixArguments mine = {address, {value[0], value[1], value[2], value[3]}};
    const uint32_t pc = self->pc;
    const Op op = self->op;
    if (address % 16) report("misaligned", "row address 0x%x: a multiple of 16", address & 0xffffff);
    /* Lane l owns row l % 8 of matrix l / 8; what it holds itself are elements 2 (l % 4) and the next of row l / 4 of every matrix. */
    collective(op, 0xffffffffu, &mine, [store, transposed, pc, op](Warp *warp) {
        Thread *const keep = self;
        for (uint32_t matrix = 0; matrix < 4; matrix++)
            for (uint32_t row = 0; row < 8; row++) {
                const uint32_t at = ((MatrixArguments *)warp->lane[matrix * 8 + row]->argument)->address;
                Cta *cta = cta_of_address(at);
                if (cta != warp->of) report("out-of-bounds", "row address of another CTA");
                const uintptr_t offset = shared_offset(cta->number, at & 0xffffff);
                for (uint32_t pair = 0; pair < 4; pair++) {
                    for (uint32_t half = 0; half < 2; half++) {
                        const uint32_t column = pair * 2 + half, lane = transposed ? column * 4 + row / 2 : row * 4 + pair, part = transposed ? row % 2 : half;
                        self = warp->lane[lane];
                        generic_access(offset + column * 2, 2, store, pc, op);
                        uint16_t *memory = (uint16_t *)arena(offset + column * 2);
                        uint32_t &v = ((MatrixArguments *)self->argument)->value[matrix];
                        if (store) *memory = (uint16_t)(v >> 16 * part);
                        else v = (v & ~(0xffffu << 16 * part)) | (uint32_t)*memory << 16 * part;
                    }
                }
            }
        self = keep;
    });
    for (int i = 0; i < 4; i++) value[i] = mine.value[i];
}

} // namespace machine
