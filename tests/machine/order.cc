/* The machine model's recordings, done again as far as their order goes.

   In a recording everything is fixed but the order. Whether an access is ordered after another one hangs on who met whom: in which phase of
   an mbarrier an arrival or a copy's bytes are counted, which phase a wait sees, in which generation of a barrier a warp comes, between
   which of a counter's awaited values an addition falls. Where all of these are as in another run, all clocks are as they were there, and
   so is what becomes of every read and write. So one run of a recording looks at all of it (core.cc, memory.cc), with clocks that take over
   from a counter only what every order brings. Each other seed is done here, without memory and clocks, by the same picks from the same
   random numbers. Looked at is what hangs on the order itself (missing and surplus arrivals, bytes left over, CTAs that have ended,
   deadlock), and whether all meet as they did in that run. A seed under which anything is different is done in full. */
#include <algorithm>
#include <map>

#include "trace.h"

namespace machine {

namespace {

struct Instruction { /* a step of a warp that waits, or that others may wait for */
    Did did;
    bool detail;      /* wait: parity; arrive: at another CTA's mbarrier; bulk_wait: reads only; setmaxnreg: increase */
    uint16_t count;   /* arrive: arrivals; wgmma: products; bulk_wait: groups */
    uint32_t object;  /* mbarrier, flag, barrier, cluster, warpgroup, queue or bulk group */
    uint32_t operand; /* bytes; value of a flag; threads of a barrier; registers; arrivals that an mbarrier expects; products waited for */
    uint32_t turn;    /* phase, generation or thresholds passed, in the run that looked at all */
};

constexpr uint32_t NONE = ~0u;

struct Sent { /* an st.async of a queue */
    uint32_t bytes, turn;
};

} // namespace

struct Script {
    struct WarpPart {
        uint32_t first, end;              /* instructions */
        uint32_t first_group, end_groups; /* bulk groups */
    };
    struct Queue {
        uint32_t mbarrier, first; /* its first in `sent` */
    };
    struct Flag {
        uintptr_t offset;
        std::vector<uint32_t> thresholds; /* that somebody waits for, ascending */
    };
    bool fits = true, looked = false, clean = false;
    std::vector<Instruction> instructions;
    std::vector<WarpPart> warps;
    std::vector<uint32_t> mbarrier_cta, bulk_warp; /* CTA of each mbarrier, warp of each bulk group */
    std::vector<Queue> queues;
    std::vector<Sent> sent;
    std::vector<Flag> flags;
    unsigned grid = 0, block = 0, cluster = 0;
};

/* ---- from the recording ---- */

namespace {

class Writer {
public:
    Writer(const Trace &t, const Launch &l, Script *s) : trace(t), launch(l), script(*s), warps_a_cta(l.block / 32) {}
    void write(void) {
        script.grid = launch.grid;
        script.block = launch.block;
        script.cluster = launch.cluster;
        script.fits = trace.warps.size() == (size_t)launch.grid * warps_a_cta;
        if (script.fits) find_flags();
        for (warp = 0; warp < trace.warps.size() && script.fits; warp++) write_warp();
        if (script.fits) sort_sent();
        if (script.fits) compare_products();
    }

private:
    const Trace &trace;
    const Launch &launch;
    Script &script;
    const uint32_t warps_a_cta;
    uint32_t warp = 0;
    std::map<std::pair<uint32_t, uint32_t>, uint32_t> mbarriers, queues; /* by CTA and offset; by warp and mbarrier */
    std::map<uintptr_t, uint32_t> flags;
    std::vector<std::vector<uint32_t>> sent; /* bytes of each queue */
    std::vector<std::vector<const Step *>> products;

    uint32_t cta(void) const { return warp / warps_a_cta; }
    uint32_t warpgroup(void) const { return cta() * ((warps_a_cta + 3) / 4) + warp % warps_a_cta / 4; }
    uint32_t cta_of(uint32_t address) const { return cta() / launch.cluster * launch.cluster + (address >> RANK_SHIFT); }
    uint32_t mbarrier_at(uint32_t its_cta, uint32_t address) {
        const auto found = mbarriers.insert({{its_cta, address & ((1u << RANK_SHIFT) - 1)}, (uint32_t)mbarriers.size()});
        if (found.second) script.mbarrier_cta.push_back(its_cta);
        return found.first->second;
    }
    void put(Did did, bool detail, uint32_t count, uint32_t object, uint32_t operand) {
        std::vector<Instruction> &all = script.instructions;
        if (count > 0xffff) script.fits = false;
        const bool merges = did == Did::wgmma || (did == Did::arrive && operand == 0 && count);
        if (merges && all.size() > script.warps.back().first) {
            Instruction &last = all.back();
            if (last.did == did && last.object == object && last.operand == 0 && last.count && last.count + count <= 0xffff) {
                last.count = (uint16_t)(last.count + count);
                return;
            }
        }
        all.push_back({did, detail, (uint16_t)count, object, operand, 0});
    }

    /* Words that are waited for: counters that only grow. */
    void find_flags(void) {
        for (const auto &steps : trace.warps)
            for (const Step &s : steps) {
                if (s.did == Did::store_flag || (s.did == Did::atomic && (s.c >> 32 != 0 || s.d >> 1 & 1))) script.fits = false;
                if (s.did != Did::acquire && s.did != Did::atomic) continue;
                if (flags.insert({s.a, (uint32_t)flags.size()}).second) script.flags.push_back({s.a, {}});
                if (s.did == Did::acquire) script.flags[flags[s.a]].thresholds.push_back(s.b);
            }
        for (Script::Flag &flag : script.flags) {
            std::vector<uint32_t> &t = flag.thresholds;
            std::sort(t.begin(), t.end());
            t.erase(std::unique(t.begin(), t.end()), t.end());
        }
    }

    void write_warp(void) {
        const uint32_t first_group = (uint32_t)script.bulk_warp.size();
        script.warps.push_back({(uint32_t)script.instructions.size(), 0, first_group, 0});
        products.emplace_back();
        uint32_t open_group = NONE, waited_groups = first_group, end_groups = first_group, commits = 0, completed = 0;
        std::vector<uint32_t> committed(1, 0); /* products issued up to each commit */
        for (const Step &s : trace.warps[warp]) {
            switch (s.did) {
            case Did::acquire: put(s.did, false, 0, flags[s.a], s.b); break;
            case Did::atomic: put(s.did, false, 0, flags[s.a], s.b); break;
            case Did::mbarrier_init: put(s.did, false, 0, mbarrier_at(cta(), s.a), s.b); break;
            case Did::fence_mbarrier_init: put(s.did, false, 0, 0, 0); break;
            case Did::arrive: {
                const uint32_t to = cta_of(s.a);
                const uint32_t bytes = s.d & 1 ? (uint32_t)s.c : 0;
                put(s.did, to != cta(), s.b, mbarrier_at(to, s.a), bytes);
                break;
            }
            case Did::wait: put(s.did, s.b & 1, 0, mbarrier_at(cta_of(s.a), s.a), 0); break;
            case Did::tma_load: write_load(s); break;
            case Did::bulk_load: put(Did::tma_load, false, 0, mbarrier_at(cta_of(s.a), (uint32_t)s.d), s.b); break;
            case Did::st_async: write_send(s); break;
            case Did::tma_store:
                if (open_group == NONE) open_group = new_group();
                put(s.did, false, 0, open_group, 0);
                break;
            case Did::bulk_commit:
                if (open_group == NONE) new_group();
                open_group = NONE;
                end_groups = (uint32_t)script.bulk_warp.size();
                break;
            case Did::bulk_wait: {
                const uint32_t there = end_groups - waited_groups, due = there > s.a ? there - s.a : 0;
                if (due) put(s.did, s.b != 0, due, waited_groups, 0);
                if (!s.b) waited_groups += due;
                break;
            }
            case Did::bar_sync: put(s.did, false, 0, cta() * 16 + s.a % 16, s.b); break;
            case Did::cluster_arrive:
            case Did::cluster_wait: put(s.did, false, 0, cta() / launch.cluster, 0); break;
            case Did::setmaxnreg: put(s.did, s.b != 0, 0, cta(), s.a); break;
            case Did::wgmma:
                products.back().push_back(&s);
                put(s.did, false, 1, warpgroup(), 0);
                break;
            case Did::wgmma_commit:
                commits++;
                committed.push_back((uint32_t)products.back().size());
                break;
            case Did::wgmma_wait: {
                const uint32_t due = commits > s.a ? committed[commits - s.a] : 0;
                if (due > completed) put(s.did, false, 0, warpgroup(), completed = due);
                break;
            }
            default: break; /* memory and clocks only */
            }
        }
        script.warps.back().end = (uint32_t)script.instructions.size();
        script.warps.back().end_groups = (uint32_t)script.bulk_warp.size();
    }
    uint32_t new_group(void) {
        script.bulk_warp.push_back(warp);
        return (uint32_t)script.bulk_warp.size() - 1;
    }
    /* One for each CTA that the tile lands in. */
    void write_load(const Step &s) {
        const Copy &copy = *(const Copy *)(uintptr_t)s.c;
        const uint32_t first = cta() / launch.cluster * launch.cluster, bytes = bytes_of_box(copy.map);
        if (copy.multicast && !(copy.mask >> (s.b >> RANK_SHIFT) & 1)) script.fits = false; /* its own mbarrier counts nothing */
        for (uint32_t rank = 0; rank < launch.cluster; rank++)
            if (copy.multicast ? copy.mask >> rank & 1 : first + rank == cta_of(s.a))
                put(s.did, false, 0, mbarrier_at(first + rank, s.b), bytes);
    }
    void write_send(const Step &s) {
        const uint32_t mbarrier = mbarrier_at(cta_of(s.a), (uint32_t)s.c);
        const auto found = queues.insert({{warp, (uint32_t)s.c}, (uint32_t)queues.size()});
        if (found.second) {
            script.queues.push_back({mbarrier, 0});
            sent.emplace_back();
        }
        sent[found.first->second].push_back(s.b * (uint32_t)s.d);
        put(s.did, false, 0, found.first->second, 0);
    }
    void sort_sent(void) {
        for (size_t q = 0; q < sent.size(); q++) {
            script.queues[q].first = (uint32_t)script.sent.size();
            for (const uint32_t bytes : sent[q]) script.sent.push_back({bytes, 0});
        }
    }
    /* The warps of a warpgroup issue the same products. */
    void compare_products(void) {
        for (size_t w = 0; w < products.size(); w++) {
            const auto &mine = products[w], &first = products[w - w % warps_a_cta % 4];
            bool same = mine.size() == first.size();
            for (size_t i = 0; same && i < mine.size(); i++)
                same = mine[i]->a == first[i]->a && mine[i]->b == first[i]->b && mine[i]->c == first[i]->c && mine[i]->d == first[i]->d;
            script.fits &= same;
        }
    }
};

} // namespace

/* ---- one order ---- */

namespace {

typedef std::vector<uint32_t> Waiting; /* warps, in the order in which they came */

/* What core.cc, async.cc and tensor.cc do for warps of one lane, without memory and clocks, and in the same order: every random number is
   drawn where they draw it. */
class Order {
public:
    /* learns: it writes down how all meet, instead of comparing. */
    Order(Script *script, const Launch &launch, const Options &options, bool learns);
    bool run(void); /* false: this seed must be done as a whole */
    std::vector<uint32_t> flag_values(void) const {
        std::vector<uint32_t> values;
        for (const Flag &flag : flags) values.push_back(flag.value);
        return values;
    }
    uint64_t steps = 0, async_operations = 0, random_state;

private:
    struct Warp {
        uint32_t at, end; /* instructions */
        uint32_t number, cta, priority, registers;
        int32_t ready_position = -1, polling_position = -1;
        State state = State::blocked;
        bool woken = false;       /* it goes on inside of its instruction */
        uint32_t waits_on = NONE; /* a bulk group, or WARPGROUP | a warpgroup */
        uint32_t polled = NONE, seen = 0, repeats = 0; /* the flag that it looked at last */
        uint32_t cluster_phase = 0, products = 0;
    };
    struct Mbarrier {
        uint32_t expected = 0, pending = 0, phase = 0, cta = 0, initialised_by = NONE;
        int32_t bytes = 0;
        bool fenced = false;
        Waiting waiting;
    };
    struct Flag {
        uint32_t value = 0, passed = 0; /* thresholds up to the value */
        Waiting waiting;
    };
    struct NamedBarrier {
        uint32_t expected = 0, arrived = 0, generation = 0;
        Waiting waiting;
    };
    struct Cluster {
        uint32_t arrived = 0, phase = 0, alive = 0;
        Waiting waiting;
    };
    struct Warpgroup {
        uint32_t executed = 0, first_warp = 0;
        bool scheduled = false;
    };
    struct BulkGroup {
        uint32_t reads = 0, writes = 0;
    };
    struct Queue {
        uint32_t issued = 0, landed = 0;
        bool scheduled = false;
    };
    struct Cta {
        uint32_t alive = 0, registers_free = 0;
    };
    struct Work { /* asynchronous */
        enum Kind : uint32_t { load, send, multiply, read_tile, write_tile } kind;
        uint32_t object; /* instruction, queue, warpgroup, bulk group */
    };
    static constexpr uint32_t WARPGROUP = 0x80000000u;

    Script &script;
    const Schedule order;
    const bool learns;
    const uint64_t maximum_steps;
    bool good = true;
    uint64_t progress = 0;
    unsigned async_weight, priority_weight;
    uint32_t alive;
    std::vector<Warp> warps;
    std::vector<Mbarrier> mbarriers;
    std::vector<Flag> flags;
    std::vector<NamedBarrier> barriers;
    std::vector<Cluster> clusters;
    std::vector<Warpgroup> groups;
    std::vector<BulkGroup> bulk_groups;
    std::vector<Queue> queues;
    std::vector<Cta> ctas;
    std::vector<uint32_t> ready, polling;
    std::vector<Work> works;

    uint32_t random_below(uint32_t n) { return below(next_random(random_state), n); }
    void met(uint32_t *known, uint32_t now) {
        if (learns) *known = now;
        else good &= *known == now;
    }

    void list_add(std::vector<uint32_t> &list, Warp &warp, int32_t Warp::*position) {
        if (warp.*position >= 0) return;
        warp.*position = (int32_t)list.size();
        list.push_back(warp.number);
    }
    void list_remove(std::vector<uint32_t> &list, Warp &warp, int32_t Warp::*position) {
        const int32_t at = warp.*position;
        if (at < 0) return;
        list[(size_t)at] = list.back();
        warps[list[(size_t)at]].*position = at;
        list.pop_back();
        warp.*position = -1;
    }
    void make_ready(Warp &warp) {
        if (warp.state == State::done || warp.state == State::ready) return;
        if (warp.state == State::polling) list_remove(polling, warp, &Warp::polling_position);
        warp.state = State::ready;
        list_add(ready, warp, &Warp::ready_position);
    }
    void make_ready(Waiting &waiting) {
        for (const uint32_t w : waiting) make_ready(warps[w]);
        waiting.clear();
    }
    void wake(Warp &warp, uint32_t on) {
        if (warp.state == State::blocked && warp.waits_on == on) make_ready(warp);
    }
    bool block(Warp &warp, uint32_t on) {
        warp.state = State::blocked;
        warp.waits_on = on;
        warp.woken = true;
        return false;
    }
    bool block_polling(Warp &warp) {
        warp.state = State::polling;
        warp.woken = true;
        list_add(polling, warp, &Warp::polling_position);
        return false;
    }
    static bool was_woken(Warp &warp) {
        const bool woken = warp.woken;
        warp.woken = false;
        return woken;
    }
    static void leave(Waiting &waiting, const Warp &warp) {
        waiting.erase(std::remove(waiting.begin(), waiting.end(), warp.number), waiting.end());
    }

    /* Instructions: true when they are done, false where the warp waits or lets others run. */
    bool run_instruction(Warp &warp, Instruction &i);
    bool wait(Warp &warp, Instruction &i);
    bool acquire(Warp &warp, const Instruction &i);
    bool meet(Warp &warp, Instruction &i);
    bool wait_for_cluster(Warp &warp, const Instruction &i);
    bool wait_for_copies(Warp &warp, const Instruction &i);
    bool wait_for_products(Warp &warp, const Instruction &i);
    bool take_registers(Warp &warp, const Instruction &i);
    bool arrive(Instruction &i);
    bool add(Instruction &i);
    bool initialise(const Warp &warp, const Instruction &i);
    bool fence_initialised(const Warp &warp);
    bool come_to_cluster(Warp &warp, const Instruction &i);
    bool issue_send(const Instruction &i);
    bool issue_store(const Instruction &i);
    bool issue_products(Warp &warp, const Instruction &i);

    void usable(const Mbarrier &m, bool needs_fence) { good &= m.initialised_by != NONE && (m.fenced || !needs_fence); }
    void change_bytes(Mbarrier &m, int32_t bytes);
    void land(Mbarrier &m, uint32_t bytes, uint32_t *turn);
    void complete_if_due(Mbarrier &m);
    void complete(Cluster &cluster);
    void pass_thresholds(size_t flag);

    void add_work(Work::Kind kind, uint32_t object);
    void run_work(Work work);
    void schedule_send(uint32_t queue);
    void schedule_products(uint32_t group);

    void exit(Warp &warp);
    void run_warp(Warp &warp);
    void run_some_work(void);
    uint32_t pick_warp(void);
    bool go_on(void);
};

Order::Order(Script *s, const Launch &launch, const Options &options, bool l)
    : script(*s), order(options.schedule), learns(l), maximum_steps(options.maximum_steps), alive((uint32_t)s->warps.size()),
      warps(s->warps.size()), mbarriers(s->mbarrier_cta.size()), flags(s->flags.size()), barriers(launch.grid * 16),
      clusters(launch.grid / launch.cluster), groups(launch.grid * ((launch.block / 32 + 3) / 4)), bulk_groups(s->bulk_warp.size()),
      queues(s->queues.size()), ctas(launch.grid) {
    random_state = first_random(options.seed, &async_weight, &priority_weight);
    const uint32_t warps_a_cta = launch.block / 32, groups_a_cta = (warps_a_cta + 3) / 4;
    for (Cluster &cluster : clusters) cluster.alive = launch.cluster * launch.block;
    for (Cta &cta : ctas) cta.alive = launch.block;
    for (uint32_t g = 0; g < groups.size(); g++) groups[g].first_warp = g / groups_a_cta * warps_a_cta + g % groups_a_cta * 4;
    for (size_t m = 0; m < mbarriers.size(); m++) mbarriers[m].cta = script.mbarrier_cta[m];
    for (size_t f = 0; f < flags.size(); f++) {
        flags[f].value = *(const uint32_t *)arena(script.flags[f].offset);
        pass_thresholds(f);
    }
    for (uint32_t w = 0; w < warps.size(); w++) {
        Warp &warp = warps[w];
        warp.at = script.warps[w].first;
        warp.end = script.warps[w].end;
        warp.number = w;
        warp.cta = w / warps_a_cta;
        warp.priority = (uint32_t)next_random(random_state);
        warp.registers = registers_of(launch);
        make_ready(warp);
    }
}

/* ---- mbarriers ---- */

void Order::complete_if_due(Mbarrier &m) {
    if (m.pending || m.bytes) return;
    m.phase++;
    m.pending = m.expected;
    progress++;
    make_ready(m.waiting);
}

void Order::change_bytes(Mbarrier &m, int32_t bytes) {
    m.bytes += bytes;
    good &= m.bytes < 1 << 20 && m.bytes > -(1 << 20);
}

/* Bytes of the copy engine or of st.async. */
void Order::land(Mbarrier &m, uint32_t bytes, uint32_t *turn) {
    good &= ctas[m.cta].alive != 0;
    met(turn, m.phase);
    change_bytes(m, -(int32_t)bytes);
    progress++;
    complete_if_due(m);
}

bool Order::initialise(const Warp &warp, const Instruction &i) {
    Mbarrier &m = mbarriers[i.object];
    good &= m.initialised_by == NONE;
    m.initialised_by = warp.number;
    m.expected = m.pending = i.operand;
    return true;
}

bool Order::fence_initialised(const Warp &warp) {
    for (Mbarrier &m : mbarriers) m.fenced |= m.initialised_by == warp.number;
    return true;
}

bool Order::arrive(Instruction &i) {
    Mbarrier &m = mbarriers[i.object];
    usable(m, i.detail);
    good &= ctas[m.cta].alive != 0 && i.count <= m.pending;
    if (!good) return true;
    met(&i.turn, m.phase);
    change_bytes(m, (int32_t)i.operand);
    m.pending -= i.count;
    progress++;
    complete_if_due(m);
    return true;
}

bool Order::wait(Warp &warp, Instruction &i) {
    Mbarrier &m = mbarriers[i.object];
    usable(m, false);
    const bool woken = was_woken(warp);
    if (woken) leave(m.waiting, warp);
    if (!woken || (m.phase & 1) == i.detail) {
        if (order == Schedule::random && random_below(64) == 0) {
            warp.priority = (uint32_t)next_random(random_state) >> 8;
            return false;
        }
        if ((m.phase & 1) == i.detail) {
            warp.polled = NONE;
            m.waiting.push_back(warp.number);
            return block_polling(warp);
        }
    }
    warp.polled = NONE;
    met(&i.turn, m.phase);
    return true;
}

/* ---- flags ---- */

void Order::pass_thresholds(size_t f) {
    const std::vector<uint32_t> &thresholds = script.flags[f].thresholds;
    while (flags[f].passed < thresholds.size() && thresholds[flags[f].passed] <= flags[f].value) flags[f].passed++;
}

bool Order::add(Instruction &i) {
    Flag &flag = flags[i.object];
    met(&i.turn, flag.passed);
    if (i.operand == 0) return true;
    flag.value += i.operand;
    good &= flag.value >= i.operand;
    pass_thresholds(i.object);
    progress++;
    for (const uint32_t w : flag.waiting) make_ready(warps[w]); /* they leave by themselves */
    return true;
}

bool Order::acquire(Warp &warp, const Instruction &i) {
    Flag &flag = flags[i.object];
    bool woken = was_woken(warp);
    if (woken) leave(flag.waiting, warp);
    for (;; woken = false) {
        const bool again = warp.polled == i.object && warp.seen == flag.value;
        if (!woken && again && ++warp.repeats > 1) {
            flag.waiting.push_back(warp.number);
            return block_polling(warp);
        }
        if (!woken && !again) warp.repeats = 0;
        warp.polled = i.object;
        warp.seen = flag.value;
        if (flag.value >= i.operand) return true;
    }
}

/* ---- barriers, registers ---- */

bool Order::meet(Warp &warp, Instruction &i) {
    if (was_woken(warp)) return true;
    NamedBarrier &b = barriers[i.object];
    good &= !b.arrived || b.expected == i.operand;
    met(&i.turn, b.generation);
    b.expected = i.operand;
    b.arrived += 32;
    if (b.arrived < (i.operand ? i.operand : ctas[warp.cta].alive)) {
        b.waiting.push_back(warp.number);
        return block(warp, NONE);
    }
    b.arrived = 0;
    b.generation++;
    make_ready(b.waiting);
    progress++;
    return true;
}

void Order::complete(Cluster &cluster) {
    cluster.arrived = 0;
    cluster.phase++;
    progress++;
    make_ready(cluster.waiting);
}

bool Order::come_to_cluster(Warp &warp, const Instruction &i) {
    Cluster &cluster = clusters[i.object];
    good &= warp.cluster_phase == cluster.phase;
    warp.cluster_phase++;
    cluster.arrived += 32;
    if (cluster.arrived == cluster.alive) complete(cluster);
    return true;
}

bool Order::wait_for_cluster(Warp &warp, const Instruction &i) {
    Cluster &cluster = clusters[i.object];
    was_woken(warp);
    if (cluster.phase >= warp.cluster_phase) return true;
    cluster.waiting.push_back(warp.number);
    return block(warp, NONE);
}

bool Order::take_registers(Warp &warp, const Instruction &i) {
    was_woken(warp);
    const uint32_t need = (i.operand - warp.registers) * 32;
    if (i.detail && need > ctas[warp.cta].registers_free) return block_polling(warp);
    ctas[warp.cta].registers_free -= need;
    warp.registers = i.operand;
    progress++;
    return true;
}

/* ---- asynchronous work ---- */

void Order::add_work(Work::Kind kind, uint32_t object) {
    if (order == Schedule::eager) run_work({kind, object});
    else works.push_back({kind, object});
}

void Order::run_work(Work work) {
    switch (work.kind) {
    case Work::load: {
        Instruction &i = script.instructions[work.object];
        land(mbarriers[i.object], i.operand, &i.turn);
        break;
    }
    case Work::send: {
        Queue &queue = queues[work.object];
        const Script::Queue &known = script.queues[work.object];
        uint32_t count = queue.issued - queue.landed;
        if (order == Schedule::random) count = 1 + random_below(count);
        for (; count; count--) {
            Sent &sent = script.sent[known.first + queue.landed++];
            land(mbarriers[known.mbarrier], sent.bytes, &sent.turn);
        }
        queue.scheduled = false;
        schedule_send(work.object);
        break;
    }
    case Work::multiply: {
        Warpgroup &group = groups[work.object];
        group.scheduled = false;
        group.executed++;
        for (uint32_t w = 0; w < 4; w++) wake(warps[group.first_warp + w], WARPGROUP | work.object);
        progress++;
        schedule_products(work.object);
        break;
    }
    case Work::read_tile:
    case Work::write_tile: {
        BulkGroup &group = bulk_groups[work.object];
        (work.kind == Work::read_tile ? group.reads : group.writes)--;
        progress++;
        wake(warps[script.bulk_warp[work.object]], work.object);
        if (work.kind == Work::read_tile) add_work(Work::write_tile, work.object);
        break;
    }
    }
}

void Order::schedule_send(uint32_t queue) {
    if (queues[queue].scheduled || queues[queue].issued == queues[queue].landed) return;
    queues[queue].scheduled = true;
    add_work(Work::send, queue);
}

bool Order::issue_send(const Instruction &i) {
    usable(mbarriers[script.queues[i.object].mbarrier], true);
    queues[i.object].issued++;
    schedule_send(i.object);
    return true;
}

bool Order::issue_store(const Instruction &i) {
    bulk_groups[i.object].reads++;
    bulk_groups[i.object].writes++;
    add_work(Work::read_tile, i.object);
    return true;
}

bool Order::wait_for_copies(Warp &warp, const Instruction &i) {
    was_woken(warp);
    for (uint32_t g = i.object; g < i.object + i.count; g++)
        if (bulk_groups[g].reads || (!i.detail && bulk_groups[g].writes)) return block(warp, g);
    return true;
}

void Order::schedule_products(uint32_t g) {
    Warpgroup &group = groups[g];
    if (group.scheduled) return;
    for (uint32_t w = 0; w < 4; w++)
        if (warps[group.first_warp + w].products <= group.executed) return;
    group.scheduled = true;
    add_work(Work::multiply, g);
}

bool Order::issue_products(Warp &warp, const Instruction &i) {
    warp.products += i.count;
    schedule_products(i.object);
    return true;
}

bool Order::wait_for_products(Warp &warp, const Instruction &i) {
    was_woken(warp);
    return groups[i.object].executed >= i.operand || block(warp, WARPGROUP | i.object);
}

/* ---- warps ---- */

bool Order::run_instruction(Warp &warp, Instruction &i) {
    switch (i.did) {
    case Did::wait: return wait(warp, i);
    case Did::acquire: return acquire(warp, i);
    case Did::bar_sync: return meet(warp, i);
    case Did::cluster_wait: return wait_for_cluster(warp, i);
    case Did::bulk_wait: return wait_for_copies(warp, i);
    case Did::wgmma_wait: return wait_for_products(warp, i);
    case Did::setmaxnreg: return take_registers(warp, i);
    case Did::arrive: return arrive(i);
    case Did::atomic: return add(i);
    case Did::mbarrier_init: return initialise(warp, i);
    case Did::fence_mbarrier_init: return fence_initialised(warp);
    case Did::cluster_arrive: return come_to_cluster(warp, i);
    case Did::st_async: return issue_send(i);
    case Did::tma_store: return issue_store(i);
    case Did::wgmma: return issue_products(warp, i);
    default: /* tma_load */
        usable(mbarriers[i.object], true);
        add_work(Work::load, warp.at);
        return true;
    }
}

void Order::exit(Warp &warp) {
    const Script::WarpPart &known = script.warps[warp.number];
    for (uint32_t g = known.first_group; g < known.end_groups; g++) good &= bulk_groups[g].reads == 0;
    warp.state = State::done;
    alive--;
    Cta &cta = ctas[warp.cta];
    Cluster &cluster = clusters[warp.cta / (ctas.size() / clusters.size())];
    cta.alive -= 32;
    cluster.alive -= 32;
    progress++;
    NamedBarrier &all = barriers[warp.cta * 16];
    if (all.arrived && all.expected == 0 && all.arrived == cta.alive) {
        make_ready(all.waiting);
        all.arrived = 0;
        all.generation++;
    }
    if (cluster.arrived && cluster.arrived == cluster.alive) complete(cluster);
}

void Order::run_warp(Warp &warp) {
    random_below(32); /* the first lane */
    steps++;
    while (good && warp.at < warp.end && run_instruction(warp, script.instructions[warp.at])) warp.at++;
    if (warp.at == warp.end) exit(warp);
    if (warp.state != State::ready) list_remove(ready, warp, &Warp::ready_position);
}

uint32_t Order::pick_warp(void) {
    if (random_below(256) >= priority_weight) return ready[random_below((uint32_t)ready.size())];
    uint32_t best = ready[0];
    for (const uint32_t w : ready)
        if (warps[w].priority > warps[best].priority) best = w;
    return best;
}

void Order::run_some_work(void) {
    const size_t at = random_below((uint32_t)works.size());
    const Work work = works[at];
    works[at] = works.back();
    works.pop_back();
    async_operations++;
    steps++;
    run_work(work);
}

/* One step of the schedule; false when nothing can go on. */
bool Order::go_on(void) {
    const bool some_ready = !ready.empty(), some_work = !works.empty(), at_random = order == Schedule::random;
    if (some_work && (!some_ready || (at_random && random_below(256) < async_weight))) {
        run_some_work();
        return true;
    }
    if (some_ready) {
        if (at_random && !polling.empty() && random_below(64) == 0) make_ready(warps[polling[random_below((uint32_t)polling.size())]]);
        run_warp(warps[pick_warp()]);
        return true;
    }
    return false;
}

bool Order::run(void) {
    uint64_t quiet_progress = ~0ull;
    unsigned quiet_rounds = 0;
    while (alive && good) {
        if (steps > maximum_steps) return false;
        if (go_on()) continue;
        if (polling.empty()) return false; /* deadlock */
        if (progress != quiet_progress) quiet_progress = progress, quiet_rounds = 0;
        else if (++quiet_rounds > 8) return false;
        while (!polling.empty()) make_ready(warps[polling.back()]);
    }
    while (good && !works.empty()) run_some_work();
    for (const Mbarrier &m : mbarriers) good &= m.bytes == 0;
    return good;
}

} // namespace

/* ---- one order after the other ---- */

static void write_flags(const Script &script, const std::vector<uint32_t> &values) {
    for (size_t i = 0; i < values.size(); i++) *(uint32_t *)arena(script.flags[i].offset) = values[i];
}

bool replay_known_order(const Launch &launch, const Options &options, const std::function<Result()> &look, Result *result) {
    if (options.thorough || options.unchecked || options.lost.mbarrier || options.on_deadlock != OnDeadlock::stop) return false;
    const Trace &trace = *options.replay;
    if (!trace.script) {
        trace.script = std::make_shared<Script>();
        Writer(trace, launch, trace.script.get()).write();
    }
    Script &script = *trace.script;
    const bool same_launch = script.grid == launch.grid && script.block == launch.block && script.cluster == launch.cluster;
    if (!script.fits || !same_launch || (script.looked && !script.clean)) return false;
    Order order(&script, launch, options, !script.looked);
    const std::vector<uint32_t> start = order.flag_values();
    if (!order.run()) return false;
    if (script.looked) {
        write_flags(script, order.flag_values());
        result->known = true;
        result->steps = order.steps;
        result->async_operations = order.async_operations;
        result->last_random = order.random_state;
        return true;
    }
    *result = look();
    script.looked = true;
    script.clean = result->reports.empty() && result->steps == order.steps && result->async_operations == order.async_operations &&
                   result->last_random == order.random_state;
    if (!script.clean) write_flags(script, start);
    return script.clean;
}

} // namespace machine
