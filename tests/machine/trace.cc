/* The machine model's recordings: what each lane does in one launch becomes what its warp does, and that is done again under other orders.
   Where a kernel's way hangs on the order (a loader that runs ahead until something is ready) it stays the recorded one. */
#include <algorithm>
#include <array>

#include "operations.h"
#include "trace.h"

namespace machine {

static std::shared_ptr<Trace> recorded;

void begin_trace(void) { recorded = std::make_shared<Trace>(); }

static bool is_access(const Step &s) { return s.did == Did::read || s.did == Did::write; }
static bool is_wait(const Step &s) { return s.did == Did::wait || s.did == Did::acquire; }
static bool is_of_warp(const Step &s) { return s.did >= Did::bar_sync; }
static bool same(const Step &x, const Step &y) {
    return x.did == y.did && x.a == y.a && x.b == y.b && x.c == y.c && (x.d == y.d || is_wait(x)); /* of waits, d is when they ended */
}

void record_step(Did did, uint32_t a, uint32_t b, uint64_t c, uint64_t d) {
    std::vector<Step> &steps = self->steps;
    Step step = {did, self->op, self->pc, a, b, c, d};
    if (is_wait(step)) step.d = ++recorded->waits;
    self->polls = did == Did::acquire;
    if (!steps.empty()) {
        Step &last = steps.back();
        if (did == Did::acquire && last.did == did && last.a == a) { /* it looks again */
            last.b = b;
            last.d = step.d;
            return;
        }
        if (did == Did::write && last.did == did && last.a + last.b == a) {
            last.b += b;
            return;
        }
        for (size_t i = steps.size(); is_access(step) && i > 0 && i + 8 > steps.size() && is_access(steps[i - 1]); i--)
            if (same(steps[i - 1], step)) return;
    }
    steps.push_back(step);
}

void record_copy(Did did, uint32_t a, uint32_t b, const CUtensorMap *map, uint32_t rank, const int32_t *coordinate, uint32_t mask,
                 bool multicast) {
    if (!world->options.record) return;
    recorded->copies.emplace_back();
    Copy &copy = recorded->copies.back();
    memcpy(&copy.map, map, sizeof copy.map);
    std::copy(coordinate, coordinate + rank, copy.coordinate);
    copy.rank = rank;
    copy.mask = mask;
    copy.multicast = multicast;
    record_step(did, a, b, (uint64_t)(uintptr_t)&copy, 0);
}

/* ---- from lanes to warps ---- */

static bool by_place(const Step &x, const Step &y) {
    return x.did != y.did ? x.did < y.did : x.a != y.a ? x.a < y.a : x.b != y.b ? x.b < y.b : x.c < y.c;
}

/* Steps by which others are ordered after what the warp has done, or it after what they have done; read and write are neither. */
static bool hands_over(const Step &s) {
    return !is_access(s) && !is_wait(s) && s.did != Did::look && s.did != Did::fence_proxy && s.did != Did::wgmma_fence &&
           s.did != Did::wgmma_wait;
}
static bool takes_over(const Step &s) { return is_wait(s) || is_of_warp(s) || s.did == Did::bulk_wait; }

/* What a warp does, as it is put together. Of its reads of the same bytes from one write there to the next the first and the last stay: if
   the write before is ordered before the first, and the next one after the last, so it is with those between. Of two reads one is enough
   where the warp takes nothing over between them (the later) or hands nothing over (the earlier). */
struct WarpSteps {
    std::vector<Step> steps;
    struct Reads {
        uint32_t first, last; /* positions */
    };
    std::map<std::array<uint64_t, 2>, Reads> reads; /* by bytes and write */
    uint32_t handed_over = 0, taken_over = 0;       /* positions behind the last such steps */
    void put_read(const Step &s) {
        const uint32_t at = (uint32_t)steps.size();
        const auto found = reads.insert({{(uint64_t)s.a << 32 | s.b, s.c}, {at, at}});
        Reads &known = found.first->second;
        const bool replaced = known.last >= taken_over;
        if (!found.second && !replaced && known.last >= handed_over) return;
        steps.push_back(s);
        if (found.second) return;
        const bool only = known.first == known.last;
        if (!only || replaced) steps[known.last].b = 0;
        if (only && replaced) known.first = at;
        known.last = at;
    }
    void put(const Step &s) {
        steps.push_back(s);
        if (hands_over(s)) handed_over = (uint32_t)steps.size();
        if (takes_over(s)) taken_over = (uint32_t)steps.size();
    }
    /* Reads and writes of several lanes between two of their other steps. */
    void put_accesses(std::vector<Step> *accesses) {
        std::sort(accesses->begin(), accesses->end(), by_place);
        accesses->erase(std::unique(accesses->begin(), accesses->end(), same), accesses->end());
        for (const Step &s : *accesses) {
            if (s.did == Did::read) put_read(s);
            else steps.push_back(s);
        }
        accesses->clear();
    }
    /* What touches becomes one step, where nothing lies between. */
    std::vector<Step> finished(void) const {
        std::vector<Step> out;
        for (const Step &s : steps) {
            if (is_access(s) && s.b == 0) continue;
            const bool touches =
                is_access(s) && !out.empty() && out.back().did == s.did && s.a >= out.back().a && s.a <= out.back().a + out.back().b;
            if (touches) {
                out.back().b = std::max(out.back().a + out.back().b, s.a + s.b) - out.back().a;
                continue;
            }
            out.push_back(s);
        }
        return out;
    }
};

struct Piece { /* of one lane, between waits and instructions of the whole warp */
    const Step *begin, *end;
    const Step *next_other(const Step *from) const {
        while (from < end && is_access(*from)) from++;
        return from;
    }
    bool hands_something_over(void) const {
        for (const Step *s = begin; s < end; s++)
            if (hands_over(*s)) return true;
        return false;
    }
    /* Whether the other steps than reads and writes are the same. */
    bool like(const Piece &other) const {
        const Step *x = next_other(begin), *y = other.next_other(other.begin);
        for (; x < end && y < other.end; x = next_other(x + 1), y = other.next_other(y + 1))
            if (!same(*x, *y)) return false;
        return x == end && y == other.end;
    }
};

static bool is_fence(const Step &s) { return s.did == Did::fence_proxy || s.did == Did::fence_mbarrier_init; }

/* Lanes that do the same but for what they read and write: all of it, then the next step that they share, and so on. */
static void put_pieces(const std::vector<Piece> &pieces, WarpSteps *out) {
    std::vector<Step> accesses;
    std::vector<const Step *> at;
    for (const Piece &p : pieces) at.push_back(p.begin);
    for (;;) {
        for (size_t i = 0; i < pieces.size(); i++) {
            const Step *other = pieces[i].next_other(at[i]);
            accesses.insert(accesses.end(), at[i], other);
            at[i] = other;
        }
        out->put_accesses(&accesses);
        if (at[0] == pieces[0].end) return;
        const bool once = is_fence(*at[0]);
        for (size_t i = 0; i < pieces.size(); i++) {
            if (i == 0 || !once) out->put(*at[i]);
            at[i]++;
        }
    }
}

/* What lanes do without waiting for anything, in an order that hides nothing from other warps: first the lanes that hand something over,
   each before the reads and writes of those that come after it; so what they hand over too early is seen. */
static void put_together(std::vector<Piece> pieces, WarpSteps *out) {
    std::stable_sort(pieces.begin(), pieces.end(), [](const Piece &x, const Piece &y) {
        return x.hands_something_over() && !y.hands_something_over();
    });
    while (!pieces.empty()) {
        std::vector<Piece> alike, others;
        for (const Piece &p : pieces) (pieces[0].like(p) ? alike : others).push_back(p);
        put_pieces(alike, out);
        pieces = others;
    }
}

/* Steps whose reads are those of the step before it (reads_the_same in tensor.cc): the next 16 columns of the same rows of 128 bytes. */
static bool reads_the_same_rows(const Step &s, const Step &last) {
    const uint64_t within_rows = 7 << 1;
    const bool ordinary = s.did == Did::wgmma && last.did == Did::wgmma && (s.b & ~16u) == 0 && s.c >> 62 == 1 && s.d >> 62 == 1;
    return ordinary && s.a == last.a && (s.b & 15) == (last.b & 15) && ((s.c ^ last.c) & ~within_rows) == 0 &&
           ((s.d ^ last.d) & ~within_rows) == 0;
}

/* False where lanes do instructions of the whole warp in different orders. */
static bool put_warp(const Warp *warp, WarpSteps *to) {
    std::vector<Step> *const out = &to->steps;
    const Step *at[32], *end[32];
    for (int l = 0; l < 32; l++) {
        const std::vector<Step> &steps = warp->lane[l]->steps;
        at[l] = steps.data();
        end[l] = at[l] + steps.size();
    }
    for (;;) {
        std::vector<Piece> pieces;
        for (int l = 0; l < 32; l++) {
            const Step *from = at[l];
            while (at[l] < end[l] && !is_wait(*at[l]) && !is_of_warp(*at[l])) at[l]++;
            if (from < at[l]) pieces.push_back({from, at[l]});
        }
        put_together(std::move(pieces), to);
        const Step *wait = nullptr; /* that ended first; what it waited for may be done by another lane of the warp */
        for (int l = 0; l < 32; l++)
            if (at[l] < end[l] && is_wait(*at[l]) && (!wait || at[l]->d < wait->d)) wait = at[l];
        if (wait) {
            to->put(*wait);
            for (int l = 0; l < 32; l++)
                if (at[l] < end[l] && same(*at[l], *wait)) at[l]++;
            continue;
        }
        const Step *next = nullptr;
        for (int l = 0; l < 32; l++)
            if (at[l] < end[l]) {
                if (!next) next = at[l];
                if (!same(*next, *at[l]++)) return false;
            }
        if (!next) return true;
        if (out->empty() || !reads_the_same_rows(*next, out->back())) to->put(*next);
    }
}

std::shared_ptr<const Trace> end_trace(void) {
    std::shared_ptr<Trace> trace = std::move(recorded);
    for (auto &cta : world->cta)
        for (Warp *warp : cta->warp) {
            WarpSteps steps;
            const bool good = put_warp(warp, &steps);
            trace->warps.push_back(steps.finished());
            if (good) continue;
            report_plain("limit", 0, "a recording wants all lanes of a warp to come to its instructions in the same order");
            return nullptr;
        }
    return trace;
}

/* ---- and again ---- */

static void replay_step(const Step &s) {
    const Copy *copy = (const Copy *)(uintptr_t)s.c;
    switch (s.did) {
    case Did::read: generic_access(s.a, s.b, false, s.pc, s.op); break;
    case Did::write: generic_access(s.a, s.b, true, s.pc, s.op); break;
    case Did::look: atomic_access(s.a, 4, false, s.pc, s.op); break;
    case Did::acquire:
        while (op_load_flag((const uint32_t *)arena(s.a), true) < s.b) {
        }
        if (world->least_order) acquire_reached(s.a, s.b);
        break;
    case Did::store_flag: op_store_flag((uint32_t *)arena(s.a), s.b, s.c); break;
    case Did::atomic: op_atomic((uint32_t *)arena(s.a), s.b, (uint32_t)s.c, (int)(s.c >> 32), s.d & 1, s.d >> 1 & 1); break;
    case Did::mbarrier_init: op_mbarrier_init(s.a, s.b); break;
    case Did::fence_mbarrier_init: op_fence_mbarrier_init(); break;
    case Did::arrive: op_mbarrier_arrive(s.a, s.b, s.d & 1, (uint32_t)s.c, s.d >> 1 & 1, s.d >> 2 & 1); break;
    case Did::wait:
        while (!op_mbarrier_wait(s.a, s.b, true, s.c)) {
        }
        break;
    case Did::fence_proxy: op_fence_proxy_async(s.a, s.b); break;
    case Did::tma_load: op_tma_load(s.a, &copy->map, copy->rank, copy->coordinate, s.b, copy->mask, copy->multicast); break;
    case Did::bulk_load: op_bulk_load(s.a, (const void *)(uintptr_t)s.c, s.b, (uint32_t)s.d); break;
    case Did::tma_store: op_tma_store(&copy->map, copy->rank, copy->coordinate, s.a, s.b); break;
    case Did::bulk_commit: op_bulk_commit(); break;
    case Did::bulk_wait: op_bulk_wait(s.a, s.b); break;
    case Did::st_async: {
        static const uint64_t nothing[2] = {0, 0};
        self->senders = (uint32_t)s.d;
        op_st_async(s.a, nothing, s.b, (uint32_t)s.c);
        break;
    }
    case Did::bar_sync: op_bar_sync(s.a, s.b); break;
    case Did::warp_sync: op_warp_sync(s.a); break;
    case Did::cluster_arrive: op_cluster_arrive(s.a); break;
    case Did::cluster_wait: op_cluster_wait(); break;
    case Did::setmaxnreg: op_setmaxnreg(s.a, s.b); break;
    case Did::wgmma: op_wgmma(nullptr, (int)s.a, (Format)(s.b >> 5), s.b >> 1 & 1, s.b >> 2 & 1, s.b >> 3 & 1, s.c, nullptr, s.d, s.b >> 4 & 1); break;
    case Did::wgmma_fence: op_wgmma_fence(); break;
    case Did::wgmma_commit: op_wgmma_commit(); break;
    case Did::wgmma_wait: op_wgmma_wait(s.a); break;
    }
}

void replay_thread(void) {
    const Thread *t = self;
    const Trace &trace = *world->options.replay;
    for (const Step &s : trace.warps[t->cta * t->of->warp.size() + t->warp->number]) {
        self->pc = s.pc;
        self->op = s.op;
        replay_step(s);
    }
}

/* ---- damaged ---- */

std::shared_ptr<const Trace> damaged_trace(const std::shared_ptr<const Trace> &trace, uint64_t seed, std::string *what) {
    std::shared_ptr<Trace> damaged = std::make_shared<Trace>();
    damaged->original = trace;
    damaged->warps = trace->warps;
    uint64_t state = (seed + 1) * 0x9E3779B97F4A7C15ull;
    const auto random = [&state](size_t n) { return (size_t)below(next_random(state), (uint32_t)n); };
    for (;;) {
        const size_t warp = random(damaged->warps.size());
        std::vector<Step> &steps = damaged->warps[warp];
        const size_t from = steps.empty() ? 0 : random(steps.size());
        if (steps.empty() || is_access(steps[from]) || steps[from].did == Did::look) continue;
        const Step step = steps[from];
        const size_t to = std::min(from > 12 ? from - 12 + random(25) : random(12), steps.size() - 1);
        steps.erase(steps.begin() + (ptrdiff_t)from);
        const bool moves = random(2);
        if (moves) steps.insert(steps.begin() + (ptrdiff_t)to, step);
        *what = format_text("warp %zu, %s at %s, %s", warp, op_text(step.op), source_line(step.pc).c_str(), moves ? "moved" : "missing");
        return damaged;
    }
}

} // namespace machine
