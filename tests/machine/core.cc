/* The machine model's core: threads as fibers, warps, barriers, mbarriers, the scheduler that a seed drives, and deadlock. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <algorithm>
#include <map>

#include "trace.h"

#if !defined(__x86_64__)
#error "the fibers' context switch is written for x86-64"
#endif

namespace machine {

/* ---- fibers ---- */

/* Leaves one stack for another, which goes on where it was left, mostly at the same place: a jump, as a return's target would be foretold
   by the calls of the stack that was left. The compiler saves the registers that it needs behind it. */
static inline __attribute__((always_inline)) void switch_stacks(void **save, void *load) {
    __asm__ volatile("lea -128(%%rsp),%%rsp\n lea 1f(%%rip),%%rcx\n push %%rcx\n push %%rbp\n"
                     "mov %%rsp,(%%rdi)\n mov %%rsi,%%rsp\n"
                     "pop %%rbp\n pop %%rcx\n jmp *%%rcx\n"
                     "1: lea 128(%%rsp),%%rsp"
                     : "+D"(save), "+S"(load)::"rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0",
                       "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",
                       "xmm15", "memory", "cc");
}

constexpr size_t STACK_BYTES = 32 * 1024 + 11 * 64; /* the tops of all lie in other lines of the cache */
static char *stacks;
static size_t stacks_count;

static void thread_exit(void);

static void thread_main(void) {
    if (world->options.replay) replay_thread();
    else (*world->body)();
    thread_exit();
    __builtin_unreachable();
}

/* The lanes of a warp whose turn is still to come, from lane `first` on. */
static struct {
    Warp *warp;
    uint32_t first, left;
} turn;

/* The lane whose turn it is now, if there is one. */
static inline Thread *next_lane(void) {
    while (turn.left && !world->stopping) {
        const uint32_t lane = (turn.first + (uint32_t)__builtin_ctz(turn.left)) % 32;
        turn.left &= turn.left - 1;
        if (!(turn.warp->ready >> lane & 1)) continue;
        world->result.steps++;
        return turn.warp->lane[lane];
    }
    return nullptr;
}

/* To the next lane of the warp, or behind the last one to the scheduler. */
static __attribute__((noinline)) void switch_away(void) {
    Thread *const t = self;
    void **const mine = &t->warp->stack_pointer[t->lane];
    if (Thread *next = next_lane()) {
        self = next;
        switch_stacks(mine, turn.warp->stack_pointer[next->lane]);
    } else {
        switch_stacks(mine, world->scheduler_stack);
    }
    self = t;
}

static void prepare_stack(Thread *t, size_t index) {
    char *top = stacks + (index + 1) * STACK_BYTES;
    void **sp = (void **)(top - 64);
    *--sp = nullptr;                /* where thread_main would return to; keeps its frame aligned */
    *--sp = (void *)thread_main;
    *--sp = nullptr;                /* its frame pointer: nobody called it */
    t->warp->stack_pointer[t->lane] = sp;
}

/* ---- random numbers ---- */

uint64_t random_number(void) { return next_random(world->random_state); }

uint64_t first_random(uint64_t seed, unsigned *async_weight, unsigned *priority_weight) {
    static const unsigned weights[] = {8, 64, 128, 240}, priorities[] = {0, 0, 128, 250};
    uint64_t state = (seed + 1) * 0x9E3779B97F4A7C15ull;
    for (int i = 0; i < 4; i++) next_random(state);
    *async_weight = weights[below(next_random(state), 4)];
    *priority_weight = priorities[below(next_random(state), 4)];
    return state;
}

/* ---- scheduling ---- */

static void list_add(std::vector<Warp *> &list, Warp *warp, int Warp::*position) {
    if (warp->*position >= 0) return;
    warp->*position = (int)list.size();
    list.push_back(warp);
}

static void list_remove(std::vector<Warp *> &list, Warp *warp, int Warp::*position) {
    const int at = warp->*position;
    if (at < 0) return;
    list[(size_t)at] = list.back();
    list[(size_t)at]->*position = at;
    list.pop_back();
    warp->*position = -1;
}

void progress(void) { world->progress++; }

void make_ready(Thread *t) {
    if (t->state == State::done || t->state == State::ready) return;
    Warp *warp = t->warp;
    if (t->state == State::polling) {
        warp->polling &= ~(1u << t->lane);
        if (!warp->polling) list_remove(world->polling, warp, &Warp::polling_position);
    }
    t->state = State::ready;
    warp->ready |= 1u << t->lane;
    list_add(world->ready, warp, &Warp::ready_position);
}

void block(const char *waits_for, const void *on) {
    Thread *t = self;
    t->waits_for = waits_for;
    t->waits_on = on;
    t->state = State::blocked;
    t->warp->ready &= ~(1u << t->lane);
    if (world->stopping) stop_launch();
    switch_away();
    t->waits_for = nullptr;
    t->waits_on = nullptr;
}

void wake(Thread *thread, const void *on) {
    if (thread->state == State::blocked && thread->waits_on == on) make_ready(thread);
}

void block_polling(void) {
    Thread *t = self;
    t->state = State::polling;
    t->warp->ready &= ~(1u << t->lane);
    t->warp->polling |= 1u << t->lane;
    list_add(world->polling, t->warp, &Warp::polling_position);
    if (world->stopping) stop_launch();
    switch_away();
}

void yield(void) {
    if (world->stopping) stop_launch();
    self->warp->priority = (uint32_t)random_number() >> 8; /* below those that have something to do */
    switch_away();
}

void stop_launch(void) {
    world->stopping = true;
    if (!self) return;
    self->warp->ready &= ~(1u << self->lane);
    self->state = State::done;
    for (;;) switch_away();
}

void add_action(Action *action) {
    if (world->options.schedule == Schedule::eager) {
        Thread *t = self;
        self = nullptr;
        action->run();
        delete action;
        self = t;
        return;
    }
    world->actions.push_back(action);
}

static void complete_cluster_phase(Cluster &c) {
    c.arrived = 0;
    c.phase++;
    c.completed = c.released;
    c.released.clear();
    progress();
    std::vector<Thread *> waiting = std::move(c.waiting);
    c.waiting.clear();
    for (Thread *w : waiting) make_ready(w);
}

static void thread_exit(void) {
    Thread *t = self;
    t->op = Op::exit;
    wgmma_end_of_thread(t);
    if (t->open_group) report("bulk-group:commit", "the thread ends with copies that it never committed");
    bool pending = false;
    for (BulkGroup *g : t->groups) pending |= g->reads != 0;
    if (pending) report("bulk-group:read", "the thread ends while its copies still read shared memory");
    if (t->acquired) needed();
    t->state = State::done;
    Warp *warp = t->warp;
    warp->ready &= ~(1u << t->lane);
    warp->alive &= ~(1u << t->lane);
    world->alive--;
    Cta *cta = t->of;
    cta->alive -= t->stands_for;
    cta->cluster->alive -= t->stands_for;
    tcgen05_end_of_thread(t);
    progress();
    /* bar.sync 0 of all threads does not wait for those that have ended; nor does the cluster's barrier */
    NamedBarrier &all = cta->barrier[0];
    if (all.arrived && all.expected == 0 && all.arrived == cta->alive) {
        for (Thread *w : all.waiting) { adopt(*w, all.released); make_ready(w); }
        all = NamedBarrier();
    }
    Cluster &cluster = *cta->cluster;
    if (cluster.arrived && cluster.arrived == cluster.alive) complete_cluster_phase(cluster);
    for (;;) switch_away();
}

/* Each lane that is ready goes on until it waits or yields. */
static void run_warp(Warp *warp) {
    turn.warp = warp;
    turn.first = random_below(32);
    turn.left = (uint32_t)(((uint64_t)warp->ready << 32 | warp->ready) >> turn.first);
    if (Thread *t = next_lane()) {
        self = t;
        switch_stacks(&world->scheduler_stack, warp->stack_pointer[t->lane]);
        self = nullptr;
    }
    if (!warp->ready) list_remove(world->ready, warp, &Warp::ready_position);
}

static void wake_pollers(Warp *warp) {
    for (uint32_t lanes = warp->polling; lanes; lanes &= lanes - 1) make_ready(warp->lane[__builtin_ctz(lanes)]);
}

static Warp *pick_warp(void) {
    std::vector<Warp *> &ready = world->ready;
    if (random_below(256) >= world->priority_weight) return ready[random_below((uint32_t)ready.size())];
    Warp *best = ready[0];
    for (Warp *w : ready)
        if (w->priority > best->priority) best = w;
    return best;
}

static void run_action(void) {
    std::vector<Action *> &actions = world->actions;
    const size_t at = random_below((uint32_t)actions.size());
    Action *action = actions[at];
    actions[at] = actions.back();
    actions.pop_back();
    world->result.async_operations++;
    world->result.steps++;
    action->run();
    delete action;
}

static std::string describe_wait(const Thread *t) {
    std::string text = format_text("%s at %s", op_text(t->op), source_line(t->pc).c_str());
    const Poll &poll = t->poll;
    if (t->state == State::polling && t->op == Op::mbarrier_wait) {
        const Mbarrier &m = t->of->mbarrier[(uint32_t)(poll.address % SHARED_WINDOW)];
        text += format_text(
            ", %s: waits for parity %u, seen phase %lu of parity %lu, %u of %u arrivals missing, %ld bytes outstanding of %lu announced",
            describe(poll.address).c_str(), poll.expected, (unsigned long)m.phase, (unsigned long)(m.phase & 1), m.pending, m.expected,
            (long)m.bytes, (unsigned long)m.expected_bytes);
        if (m.pending == 0 && m.bytes != 0) text += " (announced bytes do not match what the copies bring)";
    } else if (t->state == State::polling && poll.address) {
        text += format_text(", %s: seen %u", describe(poll.address).c_str(), poll.seen);
    } else if (t->waits_for) {
        text += format_text(": waits for %s", t->waits_for);
    }
    for (unsigned id = 0; id < 16; id++) {
        const NamedBarrier &b = t->of->barrier[id];
        if (std::find(b.waiting.begin(), b.waiting.end(), t) != b.waiting.end())
            text += format_text(", barrier %u: %u of %u threads have come", id, b.arrived, b.expected ? b.expected : t->of->alive);
    }
    return text + t->detail;
}

/* ---- who waits for whom ---- */

/* Threads whose arrival the waiting thread misses, as far as their arrivals in earlier phases tell: those of them that have come least
   often. */
static std::vector<Thread *> missing_threads(const Thread *t) {
    std::vector<Thread *> missing;
    if (t->state == State::polling && t->op == Op::mbarrier_wait) {
        const Mbarrier *m = t->of->find_mbarrier((uint32_t)(t->poll.address % SHARED_WINDOW));
        if (!m || !m->pending) return missing;
        uint32_t least = ~0u;
        for (const Arrivals &a : m->arrived) least = std::min(least, a.count);
        for (const Arrivals &a : m->arrived)
            if (a.count == least) missing.push_back(world->threads[a.component]);
        return missing;
    }
    for (const Collective &c : t->warp->collective)
        if (t->state == State::blocked && c.arrived >> t->lane & 1)
            for (uint32_t lanes = c.mask & ~c.arrived; lanes; lanes &= lanes - 1) missing.push_back(t->warp->lane[__builtin_ctz(lanes)]);
    return missing;
}

/* Of several threads that come to the mbarrier this one alone is missed. */
static bool misses_one(const Thread *t) {
    if (t->op != Op::mbarrier_wait || missing_threads(t).size() != 1) return false;
    const Mbarrier *m = t->of->find_mbarrier((uint32_t)(t->poll.address % SHARED_WINDOW));
    return m && m->pending == 1 && m->arrived.size() > 1;
}

/* The waits that hold up the others. From each thread the way goes to the one that it misses, and so on: best it ends in a circle, next
   best with somebody who misses one of several; otherwise nothing is known. */
static std::vector<Thread *> waits_at_fault(void) {
    std::vector<Thread *> best;
    int best_score = 0;
    for (Thread *first : world->threads) {
        std::vector<Thread *> way;
        Thread *t = first;
        while (t && t->state != State::done && std::find(way.begin(), way.end(), t) == way.end()) {
            way.push_back(t);
            const std::vector<Thread *> missing = missing_threads(t);
            t = missing.empty() ? nullptr : missing[0];
        }
        const bool circle = t && t->state != State::done, ended = t && t->state == State::done;
        if (circle) way.erase(way.begin(), std::find(way.begin(), way.end(), t));
        else if (way.size() > 2) way.erase(way.begin(), way.end() - 2);
        bool one = false;
        for (const Thread *w : way) one |= misses_one(w);
        const int score = (circle || ended) + 2 * one;
        if (score > best_score) best = way, best_score = score;
    }
    return best;
}

static std::string describe_fault(void) {
    std::string text;
    for (const Thread *t : waits_at_fault()) {
        const std::vector<Thread *> missing = missing_threads(t);
        text += "\n    " + describe_thread(t) + ": " + describe_wait(t);
        if (missing.empty()) continue;
        text += "; misses " + describe_thread(missing[0]);
        if (missing.size() > 1) text += format_text(" or one of %zu others", missing.size() - 1);
        if (missing[0]->state == State::done) text += ", which has ended";
    }
    return text;
}

static void report_deadlock(void) {
    std::string text = "no thread can go on and no asynchronous work is left.";
    const std::string fault = describe_fault();
    if (!fault.empty()) text += " It comes down to:" + fault + "\n  All waits:";
    unsigned lines = 0;
    for (auto &cta : world->cta)
        for (Warp *warp : cta->warp) {
            std::map<std::string, std::pair<unsigned, unsigned>> waits; /* text: first lane, lanes */
            for (Thread *t : warp->lane)
                if (t->state != State::done) {
                    auto &entry = waits[describe_wait(t)];
                    if (!entry.second++) entry.first = t->lane;
                }
            for (auto &entry : waits)
                if (lines++ < 40)
                    text += format_text("\n    CTA %u warp %u, %u lanes from lane %u: ", cta->number, warp->number, entry.second.second,
                                        entry.second.first) +
                            entry.first;
        }
    if (lines > 40) text += format_text("\n    ... and %u more", lines - 40);
    report_plain("deadlock", 0, text);
    world->result.deadlock = true;
}

static void schedule(void) {
    const Options &options = world->options;
    uint64_t quiet_progress = ~0ull;
    unsigned quiet_rounds = 0;
    while (world->alive && !world->stopping) {
        if (world->result.steps > options.maximum_steps) {
            report_plain("livelock", 0, format_text("not done after %lu scheduling steps", (unsigned long)options.maximum_steps));
            return;
        }
        const bool ready = !world->ready.empty(), actions = !world->actions.empty();
        if (actions && (!ready || (options.schedule == Schedule::random && random_below(256) < world->async_weight))) {
            run_action();
            continue;
        }
        if (ready) {
            if (options.schedule == Schedule::random && !world->polling.empty() && random_below(64) == 0)
                wake_pollers(world->polling[random_below((uint32_t)world->polling.size())]);
            run_warp(pick_warp());
            continue;
        }
        if (world->polling.empty()) {
            report_deadlock();
            return;
        }
        if (world->progress != quiet_progress) {
            quiet_progress = world->progress;
            quiet_rounds = 0;
        } else if (++quiet_rounds > 8 && options.on_deadlock == OnDeadlock::stop) {
            report_deadlock();
            return;
        } else if (quiet_rounds == 8 && world->result.stuck.empty()) {
            world->result.stuck = describe_fault();
        }
        while (!world->polling.empty()) wake_pollers(world->polling.back());
    }
}

static void check_end(void) {
    for (auto &cta : world->cta)
        for (auto &entry : cta->mbarrier)
            if (entry.second.bytes != 0)
                report_plain("tx-count:end", entry.first,
                             format_text("CTA %u ends with %ld bytes outstanding on the mbarrier at %s", cta->number,
                                         (long)entry.second.bytes, describe(shared_offset(cta->number, entry.first)).c_str()));
}

uint32_t registers_of(const Launch &l) { return l.registers ? l.registers : 65536 / (l.block ? l.block : 1) / 8 * 8; }

static bool check_launch(const Launch &l) {
    const unsigned registers = registers_of(l);
    const unsigned an_sm = std::min(228u * 1024 / (unsigned)(l.dynamic_shared + 1024),
                                    std::min(2048 / std::max(l.block, 1u), 65536 / std::max(registers * l.block, 1u)));
    const char *wrong = l.block == 0 || l.block > 1024 || l.block % 32  ? "block: a multiple of 32 up to 1024 threads"
                        : l.grid == 0 || l.grid > MAX_CTAS              ? "grid: 1 to 160 CTAs"
                        : l.cluster == 0 || l.cluster > 8               ? "cluster: 1 to 8 CTAs"
                        : l.grid % l.cluster                            ? "grid: a multiple of the cluster"
                        : l.dynamic_shared > 227 * 1024                 ? "dynamic shared memory: at most 227 KB"
                        : registers * l.block > 65536                   ? "registers: 65536 for a CTA"
                        : an_sm == 0                                    ? "one CTA does not fit an SM"
                        : l.cooperative && l.grid > l.multiprocessors * an_sm ? "cooperative launch: all CTAs must be resident at once"
                                                                        : nullptr;
    if (wrong) report_plain("launch", 0, wrong);
    return !wrong;
}

static void choose_lanes(Warp *warp) {
    const Options &options = world->options;
    if (options.replay) {
        warp->running = warp->watched = 1;
        world->all_lanes = false;
    } else if (options.protocol && options.lanes) {
        const uint32_t needed = options.lanes->needed[warp->number], drawn = 1u << random_below(32);
        warp->running = needed | drawn;
        warp->watched = drawn | (needed & (uint32_t)random_number() & (uint32_t)random_number());
        world->all_lanes &= warp->running == 0xffffffffu;
    } else if (options.protocol) {
        warp->watched = 0x01010101u << random_below(8) | 1u << random_below(32);
    }
    warp->alive = warp->running;
}

/* The same place for the threads of all launches. */
static Thread *thread_memory(void) {
    static Thread *const threads = (Thread *)address_space(nullptr, MAX_CTAS * 1024 * sizeof(Thread), true);
    return threads;
}

static void build(const Launch &l) {
    const uint32_t warps = l.block / 32;
    world->capacity = l.grid * l.block + l.grid * (9 * warps + MOST_COPIES); /* a warp's matrix products, its st.async to eight mbarriers; copies */
    for (unsigned i = 0; i < l.grid / l.cluster; i++) {
        world->cluster.emplace_back(new Cluster());
        Cluster &c = *world->cluster.back();
        c.first = i * l.cluster;
        c.size = l.cluster;
        c.alive = l.cluster * l.block;
    }
    for (unsigned n = 0; n < l.grid; n++) {
        world->cta.emplace_back(new Cta());
        Cta *cta = world->cta.back().get();
        cta->number = n;
        cta->rank = n % l.cluster;
        cta->cluster = world->cluster[n / l.cluster].get();
        cta->alive = l.block;
        cta->registers_free = 0; /* the pool is what the launch gave the CTA */
        cta->group.resize((warps + 3) / 4);
        cta->thread = thread_memory() + n * l.block;
        for (uint32_t w = 0; w < warps; w++) {
            Warp *warp = new Warp();
            warp->of = cta;
            warp->number = w;
            warp->registers = registers_of(l);
            warp->priority = (uint32_t)random_number();
            choose_lanes(warp);
            cta->group[w / 4].threads += (uint32_t)__builtin_popcount(warp->running);
            cta->warp.push_back(warp);
            for (uint32_t i = 0; i < 32; i++) {
                Thread *t = new (cta->thread + w * 32 + i) Thread();
                t->lane = (uint16_t)i;
                t->number = w * 32 + i;
                t->warp = warp;
                t->of = cta;
                t->cta = n;
                warp->lane[i] = t;
                if (!(warp->running >> i & 1)) {
                    t->state = State::done;
                    continue;
                }
                if (i == 0) t->stands_for += 32 - (uint32_t)__builtin_popcount(warp->running);
                t->state = State::blocked;
                t->component = (uint32_t)world->threads.size();
                world->threads.push_back(t);
                prepare_stack(t, t->component);
                make_ready(t);
            }
        }
    }
    world->components = world->alive = (uint32_t)world->threads.size();
    for (auto &cta : world->cta)
        for (Warp *warp : cta->warp) warp->slot = world->components++;
}

/* Of each warp of a CTA, over all CTAs. */
static Lanes lanes_of_launch(void) {
    Lanes lanes = std::move(world->result.lanes);
    lanes.needed.resize(world->launch.block / 32);
    for (auto &cta : world->cta)
        for (Warp *warp : cta->warp) lanes.needed[warp->number] |= warp->needed;
    for (auto &entry : lanes.sending) { /* one of them has to send for all */
        uint32_t &needed = lanes.needed[entry.first.first];
        if (!(needed & entry.second)) needed |= entry.second & -entry.second;
    }
    return lanes;
}

static void tear_down(void) {
    for (Action *action : world->actions) delete action;
    for (auto &cta : world->cta) {
        for (uint32_t i = 0; i < world->launch.block; i++) {
            Thread &t = cta->thread[i];
            for (BulkGroup *g : t.groups) delete g;
            delete t.open_group;
            t.~Thread();
        }
        for (Warp *w : cta->warp) delete w;
    }
}

/* least_order: a flag orders those who acquire it after no more than every order does (order.cc). */
static Result launch_all(const Launch &l, const Options &options, const std::function<void()> &body, bool least_order) {
    std::unique_ptr<State_> state(new State_());
    static uint64_t launches;
    world = state.get();
    world->number = ++launches;
    world->launch = l;
    world->options = options;
    world->body = &body;
    world->least_order = least_order;
    world->random_state = first_random(options.seed, &world->async_weight, &world->priority_weight);
    memory_begin_launch();
    if (!check_launch(l)) return world->result;
    const size_t threads = (size_t)l.grid * l.block;
    if (threads > stacks_count) {
        if (stacks) munmap(stacks, stacks_count * STACK_BYTES);
        stacks = (char *)mmap(nullptr, threads * STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        madvise(stacks, threads * STACK_BYTES, MADV_HUGEPAGE); /* each switch is to another page */
        stacks_count = threads;
    }
    build(l);
    if (options.record) begin_trace();
    world->running = true;
    schedule();
    world->running = false;
    self = nullptr;
    if (!world->stopping && !world->alive) {
        while (!world->actions.empty()) run_action();
        check_end();
    }
    if (options.lost.cta < world->cta.size())
        for (auto &entry : world->cta[options.lost.cta]->mbarrier) {
            std::vector<unsigned> &arrivals = world->result.arrivals;
            arrivals.resize(std::max<size_t>(arrivals.size(), entry.second.number));
            arrivals[entry.second.number - 1] = entry.second.arrivals;
        }
    world->result.lanes = lanes_of_launch();
    world->result.last_random = world->random_state;
    if (options.record && !world->alive && !world->stopping) world->result.trace = end_trace();
    tear_down();
    Result result = std::move(world->result);
    memory_end_launch();
    world->cta.clear(); /* while clocks can still be freed */
    world->flags.clear();
    world->reached.clear();
    return result;
}

Result launch(const Launch &l, const Options &options, const std::function<void()> &body) {
    Result result;
    const auto look = [&]() { return launch_all(l, options, body, true); };
    if (options.replay && replay_known_order(l, options, look, &result)) return result;
    return launch_all(l, options, body, false);
}

/* ---- collectives of a warp ---- */

void post(Op op) { self->posted = self->posted * 31 + (uint32_t)op + 1; }

/* Lanes that have looked at flags share them out: each flag needs one of them. */
static void note_acquired(Warp *warp, uint32_t mask) {
    uintptr_t before = 0;
    for (uint32_t lanes = mask; lanes; lanes &= lanes - 1) {
        Thread *t = warp->lane[__builtin_ctz(lanes)];
        if (t->acquired && t->acquired != before) warp->needed |= 1u << t->lane;
        before = t->acquired;
        t->acquired = 0;
    }
}

static void check_posted(const Warp *warp, uint32_t mask) {
    const Thread *first = warp->lane[__builtin_ctz(mask)];
    for (uint32_t lanes = mask; lanes; lanes &= lanes - 1) {
        const Thread *t = warp->lane[__builtin_ctz(lanes)];
        if (t->posted == first->posted) continue;
        report("warp:sequence", "lanes %u and %u have come here by other instructions of the whole warp", first->lane, t->lane);
        stop_launch();
    }
}

void collective(Op op, uint32_t mask, void *argument, const std::function<void(Warp *)> &work) {
    Thread *t = self;
    Warp *warp = t->warp;
    if (!(mask >> t->lane & 1)) {
        report("warp:mask", "the thread's own lane is not in the mask 0x%08x", mask);
        stop_launch();
    }
    mask &= warp->running;
    if (mask & ~warp->alive) {
        report("warp:ended", "lanes 0x%08x of the mask have ended", mask & ~warp->alive);
        stop_launch();
    }
    Collective *c = nullptr;
    for (Collective &candidate : warp->collective)
        if (candidate.arrived && (candidate.mask & mask)) c = &candidate;
    if (c && (c->mask != mask || c->op != op)) {
        report("warp:meeting", "lane %u comes to %s with mask 0x%08x while others of its warp wait in %s with mask 0x%08x", t->lane,
               op_text(op), mask, op_text(c->op), c->mask);
        stop_launch();
    }
    if (!c)
        for (Collective &candidate : warp->collective)
            if (!candidate.arrived) c = &candidate;
    c->mask = mask;
    c->op = op;
    c->arrived |= 1u << t->lane;
    t->argument = argument;
    if (c->arrived != mask) {
        block("the other lanes of its warp");
        return;
    }
    c->arrived = 0;
    check_posted(warp, mask);
    if (world->all_lanes) note_acquired(warp, mask);
    work(warp);
    for (uint32_t lanes = mask & ~(1u << t->lane); lanes; lanes &= lanes - 1) make_ready(warp->lane[__builtin_ctz(lanes)]);
}

/* ---- barriers of a CTA and of a cluster ---- */

bool op_bar_sync(uint32_t id, uint32_t threads, bool yes) {
    MACHINE_ENTER(Op::bar_sync);
    record(Did::bar_sync, id, threads);
    Thread *t = self;
    if (id >= 16 || threads % 32 || threads > world->launch.block) {
        report("barrier:id", "barrier %u of %u threads: ids are 0 to 15, counts multiples of 32 up to the CTA's %u", id, threads,
               world->launch.block);
        stop_launch();
    }
    NamedBarrier &b = t->of->barrier[id];
    if (b.arrived && b.expected != threads) {
        report("barrier:count", "barrier %u: comes with a count of %u while others wait with %u", id, threads, b.expected);
        stop_launch();
    }
    if (t->acquired) needed();
    t->acquired = 0;
    b.expected = threads;
    b.yes |= yes;
    b.released.add(*t);
    b.arrived += t->stands_for;
    if (b.arrived < (threads ? threads : t->of->alive)) {
        b.waiting.push_back(t);
        block("more arrivals");
        return t->any_yes;
    }
    NamedBarrier done = std::move(b);
    b = NamedBarrier();
    adopt(*t, done.released);
    for (Thread *w : done.waiting) {
        adopt(*w, done.released);
        w->any_yes = done.yes;
        make_ready(w);
    }
    progress();
    return done.yes;
}

/* Without a release it hands over no more than the initialised mbarriers that a fence of this thread has. */
void op_cluster_arrive(bool releases) {
    MACHINE_ENTER(Op::cluster_arrive);
    record(Did::cluster_arrive, releases);
    Cluster &c = *self->of->cluster;
    if (self->cluster_phase != c.phase) {
        report("barrier:cluster", "arrives twice at the cluster's barrier without a wait between");
        stop_launch();
    }
    self->cluster_phase++;
    if (releases) c.released.add(*self);
    else if (self->fenced_inits) c.released.seen.raise(self->component, self->fenced_inits);
    c.arrived += self->stands_for;
    if (c.arrived == c.alive) complete_cluster_phase(c);
}

void op_cluster_wait(void) {
    MACHINE_ENTER(Op::cluster_wait);
    record(Did::cluster_wait);
    Cluster &c = *self->of->cluster;
    while (c.phase < self->cluster_phase) {
        c.waiting.push_back(self);
        block("arrivals of the cluster's other threads");
    }
    acquire(*self, c.completed);
}

void op_warp_sync(uint32_t mask) {
    MACHINE_ENTER(Op::bar_warp_sync);
    record(Did::warp_sync, mask);
    mask &= self->warp->running;
    collective(Op::bar_warp_sync, mask, nullptr, [mask](Warp *warp) {
        Released released;
        for (uint32_t lanes = mask; lanes; lanes &= lanes - 1) released.add(*warp->lane[__builtin_ctz(lanes)]);
        for (uint32_t lanes = mask; lanes; lanes &= lanes - 1) adopt(*warp->lane[__builtin_ctz(lanes)], released);
    });
}

struct Exchange {
    uint32_t value, source, result;
};

uint32_t op_shuffle(uint32_t mask, uint32_t value, uint32_t source_lane, bool number) {
    MACHINE_ENTER(Op::shuffle);
    if (number && world->options.protocol) {
        post(Op::shuffle);
        return value;
    }
    Exchange mine = {value, source_lane % 32, 0};
    collective(Op::shuffle, mask, &mine, [mask](Warp *warp) {
        for (uint32_t lanes = mask & warp->running; lanes; lanes &= lanes - 1) {
            Exchange *e = (Exchange *)warp->lane[__builtin_ctz(lanes)]->argument;
            if (!(mask >> e->source & 1)) {
                report("warp:source", "reads lane %u, which is not in the mask 0x%08x", e->source, mask);
                continue;
            }
            e->result = warp->running >> e->source & 1 ? ((Exchange *)warp->lane[e->source]->argument)->value : e->value;
        }
    });
    return mine.result;
}

/* Lanes that do not run vote yes. */
uint32_t op_ballot(uint32_t mask, bool predicate) {
    MACHINE_ENTER(Op::vote);
    Exchange mine = {predicate, 0, 0};
    collective(Op::vote, mask, &mine, [mask](Warp *warp) {
        uint32_t ballot = mask & ~warp->running;
        for (uint32_t lanes = mask & warp->running; lanes; lanes &= lanes - 1)
            ballot |= ((Exchange *)warp->lane[__builtin_ctz(lanes)]->argument)->value << __builtin_ctz(lanes);
        for (uint32_t lanes = mask & warp->running; lanes; lanes &= lanes - 1)
            ((Exchange *)warp->lane[__builtin_ctz(lanes)]->argument)->result = ballot;
    });
    return mine.result;
}

bool op_elect(uint32_t mask) {
    MACHINE_ENTER(Op::elect);
    post(Op::elect);
    return self->lane == __builtin_ctz(mask & self->warp->running);
}

/* Registers move between the warpgroups of a CTA; an increase waits until they are there. */
void op_setmaxnreg(uint32_t count, bool increase) {
    MACHINE_ENTER(Op::setmaxnreg);
    record(Did::setmaxnreg, count, increase);
    if (count % 8 || count < 24 || count > 256) {
        report("setmaxnreg:count", "%u registers: a multiple of 8 from 24 to 256", count);
        stop_launch();
    }
    for (;;) {
        collective(Op::setmaxnreg, 0xffffffffu, nullptr, [count, increase](Warp *warp) {
            Cta *cta = warp->of;
            bool granted = true;
            if (increase ? count < warp->registers : count > warp->registers) {
                report("setmaxnreg:direction", "%s to %u from %u", increase ? "increase" : "decrease", count, warp->registers);
                stop_launch();
            }
            const uint32_t need = (count - warp->registers) * 32;
            if (increase && need > cta->registers_free) granted = false;
            else {
                cta->registers_free -= need;
                warp->registers = count;
                progress();
            }
            for (Thread *t : warp->lane) t->granted = granted;
        });
        if (self->granted) break;
        self->detail = format_text(": %u registers a thread are wanted, %u are free in the CTA", count, self->of->registers_free);
        block_polling();
        self->detail.clear();
    }
}

/* In a kernel that is to give up by itself a thread that sleeps leaves others time: mostly it goes on when none of them can and nothing is on
   its way. Elsewhere, where deadlocks are looked for, whoever sleeps between looks is only one who looks. */
void op_nanosleep(void) {
    MACHINE_ENTER(Op::nanosleep);
    if (world->options.on_deadlock != OnDeadlock::drain) {
        yield();
        return;
    }
    progress();
    block_polling();
}

uint64_t op_clock(void) {
    MACHINE_ENTER(Op::nanosleep);
    yield();
    return world->result.steps * 100;
}

/* ---- addresses ---- */

uint32_t op_shared_address(const void *pointer) {
    MACHINE_AT(__builtin_return_address(0));
    self->op = Op::load;
    const uintptr_t offset = (uintptr_t)pointer - ARENA;
    if (offset >= GLOBAL || offset / SHARED_WINDOW != self->cta) {
        report("out-of-bounds:address", "the address of something that is not in this CTA's shared memory is taken as a shared address");
        stop_launch();
    }
    return (uint32_t)(offset % SHARED_WINDOW) | self->of->rank << RANK_SHIFT;
}

Cta *cta_of_address(uint32_t address) {
    const uint32_t rank = address >> RANK_SHIFT, offset = address & ((1u << RANK_SHIFT) - 1);
    Cta *const own = self->of;
    const Cluster &cluster = *own->cluster;
    if (rank >= cluster.size || offset < SHARED_RESERVED || offset >= SHARED_RESERVED + world->launch.dynamic_shared) {
        report("out-of-bounds:address", "0x%08x is no shared address of this cluster", address);
        stop_launch();
    }
    return rank == own->rank ? own : world->cta[cluster.first + rank].get();
}

static uint32_t offset_in_window(uint32_t address) { return address & ((1u << RANK_SHIFT) - 1); }

/* in_cluster: an instruction for .shared::cluster, which reaches the other CTAs of the cluster. */
static uintptr_t shared_data(uint32_t address, uint32_t bytes, bool write, bool in_cluster) {
    Cta *cta = cta_of_address(address);
    if (cta != self->of && !in_cluster) {
        report("out-of-bounds:window", "an address of another CTA in an instruction for this CTA's shared memory");
        stop_launch();
    }
    if (cta->alive == 0) report("cluster-exit:access", "reaches into CTA %u, which has ended", cta->number);
    if (address % bytes) report("misaligned:access", "access of %u bytes at shared address 0x%x", bytes, address & 0xffffff);
    const uintptr_t offset = shared_offset(cta->number, offset_in_window(address));
    generic_access(offset, bytes, write, self->pc, self->op);
    return offset;
}

void op_shared_store(uint32_t address, const void *value, uint32_t bytes, bool in_cluster) {
    MACHINE_ENTER(Op::store);
    memcpy(arena(shared_data(address, bytes, true, in_cluster)), value, bytes);
}

void op_shared_load(uint32_t address, void *value, uint32_t bytes, bool in_cluster) {
    MACHINE_ENTER(Op::load);
    memcpy(value, arena(shared_data(address, bytes, false, in_cluster)), bytes);
}

void op_shared_add(uint32_t address, uint32_t value) {
    MACHINE_ENTER(Op::atomic);
    Cta *cta = cta_of_address(address);
    const uintptr_t offset = shared_offset(cta->number, offset_in_window(address));
    uint32_t sum;
    atomic_access(offset, 4, true, self->pc, self->op);
    memcpy(&sum, arena(offset), 4);
    sum += value;
    memcpy(arena(offset), &sum, 4);
}

uint32_t op_mapa(uint32_t address, uint32_t rank) {
    MACHINE_ENTER(Op::mapa);
    if (rank >= self->of->cluster->size) {
        report("out-of-bounds:rank", "rank %u of a cluster of %u", rank, self->of->cluster->size);
        stop_launch();
    }
    return offset_in_window(address) | rank << RANK_SHIFT;
}

uint8_t *op_dynamic_shared(void) { return arena(shared_offset(self->cta, SHARED_RESERVED)); }
uint32_t op_thread_index(void) { return self->number; }
uint32_t op_block_index(void) { return self->cta; }
uint32_t op_block_size(void) { return world->launch.block; }
uint32_t op_grid_size(void) { return world->launch.grid; }
uint32_t op_cluster_rank(void) { return self->of->rank; }
uint32_t op_cluster_size(void) { return self->of->cluster->size; }

/* ---- mbarriers ---- */

/* An invalidated mbarrier is initialised again. Who waits looks again; what was ordered after the first initialisation still is. */
static void renew(Mbarrier &m, uint32_t count) {
    m.expected = m.pending = count;
    m.phase = 0;
    m.phases++;
    m.bytes = 0;
    m.expected_bytes = 0;
    m.invalid = false;
    m.current.clear();
    m.current_cluster.clear();
    progress();
    std::vector<Thread *> waiting = std::move(m.waiting);
    m.waiting.clear();
    for (Thread *t : waiting) make_ready(t);
}

void op_mbarrier_init(uint32_t address, uint32_t count) {
    MACHINE_ENTER(Op::mbarrier_init);
    record(Did::mbarrier_init, address, count);
    needed();
    Cta *cta = cta_of_address(address);
    const uint32_t offset = offset_in_window(address);
    if (cta != self->of || address % 8 || count == 0 || count > (1u << 20) - 1) {
        report("mbarrier:address", "address 0x%08x (8-byte aligned, in this CTA), count %u (1 to 2^20-1)", address, count);
        stop_launch();
    }
    Mbarrier *before = cta->find_mbarrier(offset);
    if (before && before->invalid) {
        renew(*before, count);
        return;
    }
    if (before)
        report("mbarrier:once", "%s is initialised a second time", describe(shared_offset(cta->number, offset)).c_str());
    Mbarrier &m = cta->mbarrier[offset];
    m = Mbarrier();
    if (cta->mbarrier_at.size() <= offset / 8) cta->mbarrier_at.resize(offset / 8 + 1);
    cta->mbarrier_at[offset / 8] = &m;
    m.expected = m.pending = count;
    m.number = (unsigned)cta->mbarrier.size();
    m.init_component = self->component;
    m.init_clock = self->now;
    barrier_word(shared_offset(cta->number, offset),
                 new_event(self->component, self->now, self->pc, self->cta, Op::mbarrier_init, EVENT_BARRIER));
}

/* Until it is initialised again it goes on as before: PTX does not say what others find there, who in a kernel that gives up still wait. */
void op_mbarrier_inval(uint32_t address) {
    MACHINE_ENTER(Op::mbarrier_inval);
    needed();
    Cta *cta = cta_of_address(address);
    Mbarrier &m = *find_mbarrier(address, false, *self);
    if (cta != self->of) {
        report("mbarrier:window", "an address of another CTA in an instruction for this CTA's mbarriers");
        stop_launch();
    }
    m.invalid = true;
}

void op_fence_mbarrier_init(void) {
    MACHINE_AT(__builtin_return_address(0));
    record(Did::fence_mbarrier_init);
    for (auto &entry : self->of->mbarrier)
        if (entry.second.init_component == self->component) entry.second.fenced = true;
    self->fenced_inits = self->now++;
}

Mbarrier *find_mbarrier(uint32_t address, bool by_async, const Observer &who) {
    Cta *cta = cta_of_address(address);
    const uint32_t offset = offset_in_window(address);
    Mbarrier *m = cta->find_mbarrier(offset);
    if (!m) {
        report("mbarrier:initialised", "there is no initialised mbarrier at %s", describe(shared_offset(cta->number, offset)).c_str());
        stop_launch();
    }
    const uint32_t by = m->init_component;
    const bool seen = by == who.component || who.seen.at(by) >= m->init_clock;
    const bool fenced = m->fenced || std::max(by == who.component ? who.own_shared : 0, who.shared.at(by)) >= m->init_clock;
    if (!seen)
        report("mbarrier:order", "the mbarrier at %s is used without being ordered after its initialisation",
               describe(shared_offset(cta->number, offset)).c_str());
    if ((by_async || cta->number != who.cta) && !fenced)
        report("mbarrier:fence", "the mbarrier at %s is used by the copy engine or another CTA, and no fence followed its initialisation",
               describe(shared_offset(cta->number, offset)).c_str());
    return m;
}

void complete_phase_if_due(Cta *, uint32_t, Mbarrier &m) {
    if (m.pending || m.bytes) return;
    m.phase++;
    m.phases++;
    m.pending = m.expected;
    m.expected_bytes = 0;
    m.completed = std::move(m.current);
    m.current.clear();
    m.completed_cluster = std::move(m.current_cluster);
    m.current_cluster.clear();
    progress();
    std::vector<Thread *> waiting = std::move(m.waiting);
    m.waiting.clear();
    for (Thread *t : waiting) make_ready(t);
}

static void change_bytes(Cta *cta, uint32_t offset, Mbarrier &m, int64_t bytes) {
    m.bytes += bytes;
    if (m.bytes > (1 << 20) - 1 || m.bytes < -((1 << 20) - 1))
        report_plain("tx-count:range", offset,
                     format_text("%ld bytes outstanding on the mbarrier at %s: beyond 2^20-1", (long)m.bytes,
                                 describe(shared_offset(cta->number, offset)).c_str()));
}

static void note_arrival(Mbarrier &m) {
    for (Arrivals &a : m.arrived)
        if (a.component == self->component) {
            a.count++;
            return;
        }
    m.arrived.push_back({self->component, 1});
}

/* Hardware counts the lanes of an instruction together, and ends the context when they are more than what the phase still expects. Here they
   arrive one by one: what counts as the same instruction is the same place for the same time. */
static void check_lanes(Mbarrier &m, uint32_t address) {
    const auto is_mine = [](const LanesArrived &l) { return l.warp == self->warp && l.pc == self->pc; };
    auto found = m.lanes.begin() + m.last_lanes; /* a warp's lanes come one behind the other */
    if (found == m.lanes.end() || !is_mine(*found)) found = std::find_if(m.lanes.begin(), m.lanes.end(), is_mine);
    if (found == m.lanes.end()) {
        m.lanes.push_back({self->warp, self->pc, 0, {}, {}});
        found = m.lanes.end() - 1;
    }
    m.last_lanes = found - m.lanes.begin();
    const uint32_t time = found->times[self->lane]++;
    uint64_t &phase = found->phase[time % 64];
    const bool first = found->most == time; /* of all lanes */
    if (first) {
        found->most++;
        phase = m.phases;
    } else if (phase != m.phases) {
        report("mbarrier:lanes", "lanes of one instruction arrive at %s in different phases: together they are more than the first of them expects",
               describe(address).c_str());
    }
}

/* count 0: expects bytes and does not arrive. in_cluster: an instruction for .shared::cluster. releases_cluster: its release reaches the
   cluster's other CTAs; otherwise they learn from it only that reads of shared memory and asynchronous work have ended. */
void op_mbarrier_arrive(uint32_t address, uint32_t count, bool expect, uint32_t bytes, bool in_cluster, bool releases_cluster) {
    MACHINE_ENTER(!expect ? Op::mbarrier_arrive : count ? Op::mbarrier_expect : Op::mbarrier_expect_only);
    needed();
    record(Did::arrive, address, count, bytes, expect | in_cluster << 1 | releases_cluster << 2);
    Cta *cta = cta_of_address(address);
    Mbarrier &m = *find_mbarrier(address, false, *self);
    const uint32_t offset = offset_in_window(address);
    if (!in_cluster && cta != self->of) {
        report("mbarrier:window", "an address of another CTA in an instruction for this CTA's mbarriers");
        stop_launch();
    }
    if (cta->alive == 0) report("cluster-exit:arrival", "arrives at an mbarrier of CTA %u, which has ended", cta->number);
    const auto &lost = world->options.lost;
    if (count && m.arrivals++ == lost.arrival && m.number == lost.mbarrier && cta->number == lost.cta) {
        world->result.lost_at = describe(shared_offset(cta->number, offset));
        return;
    }
    if (expect) {
        change_bytes(cta, offset, m, bytes);
        m.expected_bytes += bytes;
    }
    if (count > m.pending) {
        report("mbarrier:count", "more arrivals than the %u that the phase of %s expects", m.expected,
               describe(shared_offset(cta->number, offset)).c_str());
        stop_launch();
    }
    if (count) {
        check_lanes(m, shared_offset(cta->number, offset));
        note_arrival(m);
        if (cta == self->of) m.current.add(*self);
        else m.current.add_ended(*self);
        if (cta != self->of && releases_cluster) m.current_cluster.add(*self);
    }
    m.pending -= count;
    progress();
    complete_phase_if_due(cta, offset, m);
}

void mbarrier_complete_bytes(Cta *cta, uint32_t offset, uint64_t bytes, uint32_t component, uint32_t clock) {
    if (!cta->find_mbarrier(offset)) return; /* reported at the issue */
    Mbarrier &m = *cta->find_mbarrier(offset);
    m.current.seen.raise(component, clock);
    m.current.last_seen = BaseRef();
    change_bytes(cta, offset, m, -(int64_t)bytes);
    progress();
    complete_phase_if_due(cta, offset, m);
}

void mbarrier_async_arrive(Cta *cta, uint32_t offset, uint32_t component, uint32_t clock, Observer &issuer) {
    if (!cta->find_mbarrier(offset)) return;
    Mbarrier &m = *cta->find_mbarrier(offset);
    m.current.add_ended(issuer); /* what ended before the work began: the copies that brought its operands */
    m.current.seen.raise(component, clock);
    m.current.last_seen = BaseRef();
    m.current.published.join(issuer.published);
    m.current.published.raise(component, clock); /* a commit is a fence before by itself */
    if (m.pending == 0) report_plain("mbarrier:count", offset, "a commit arrives at an mbarrier that expects no more arrivals");
    else m.pending--;
    progress();
    complete_phase_if_due(cta, offset, m);
}

/* Whoever goes on for no reason is among those that have waited longest, as a rule; the others stay in their order. */
static void leave(std::vector<Thread *> &waiting, const Thread *t) {
    const auto found = std::find(waiting.begin(), waiting.end(), t);
    if (found != waiting.end()) waiting.erase(found);
}

/* try_wait may suspend the thread, and fail without reason; test_wait only looks, but a thread that looks again and again lets others
   run. Between waits that suspend it need not, and the thread's wait is theirs. */
bool op_mbarrier_wait(uint32_t address, uint32_t parity, bool may_suspend, bool acquires_cluster) {
    MACHINE_ENTER(Op::mbarrier_wait);
    Thread *t = self;
    Cta *cta = cta_of_address(address);
    Mbarrier *m = find_mbarrier(address, false, *t);
    const uint32_t offset = offset_in_window(address);
    if (cta != t->of || parity > 1) {
        report("mbarrier:wait", "a wait needs an mbarrier of its own CTA and parity 0 or 1, not %u", parity);
        stop_launch();
    }
    const bool done = (m->phase & 1) != parity;
    if (may_suspend && world->options.schedule == Schedule::random && random_below(64) == 0) {
        t->polls = true;
        yield();
        return false;
    }
    if (!done) {
        t->polls = true;
        const bool again = t->failed_at == world->progress; /* nothing has happened since its last failure, of whatever barrier */
        if (!may_suspend && again && t->suspended) {
            t->suspended = false; /* one look a wait: a second one is a loop of looks */
            return false;
        }
        t->failed_at = world->progress;
        t->suspended = may_suspend;
        t->poll.address = shared_offset(cta->number, offset);
        t->poll.expected = parity;
        if (!may_suspend && !again) {
            yield();
            return false;
        }
        m->waiting.push_back(t);
        block_polling();
        leave(m->waiting, t);
        if ((m->phase & 1) == parity) return false;
    }
    t->poll.address = 0;
    record(Did::wait, address, parity, acquires_cluster);
    acquire(*t, m->completed);
    if (acquires_cluster) acquire(*t, m->completed_cluster);
    return true;
}

/* ---- fences and flags ---- */

void op_fence_proxy_async(bool shared, bool global) {
    MACHINE_AT(__builtin_return_address(0));
    record(Did::fence_proxy, shared, global);
    if (shared) {
        self->shared.join(self->seen);
        self->own_shared = self->now;
    }
    if (global) {
        self->global.join(self->seen);
        self->own_global = self->now;
    }
    self->now++;
}

static uintptr_t global_word(const void *p) {
    const uintptr_t offset = (uintptr_t)p - ARENA;
    if (offset < GLOBAL || offset >= ARENA_BYTES) {
        report("out-of-bounds:global", "%p is not in global memory", p);
        stop_launch();
    }
    return offset;
}

/* While a launch is recorded, a counter seems to grow by one from look to look: what a thread has seen when it goes on is what it waited
   for. */
static uint32_t next_value(uintptr_t offset, uint32_t now) {
    const Thread *t = self;
    const auto first = world->first_values.find(offset);
    const bool looks_again = !t->steps.empty() && t->steps.back().did == Did::acquire && t->steps.back().a == offset;
    if (looks_again) return std::min(now, t->steps.back().b + 1);
    return first == world->first_values.end() ? now : std::min(now, first->second);
}

static void sleep_until_changed(uintptr_t flag) {
    std::vector<Thread *> &waiters = world->flag_waiters[flag];
    waiters.push_back(self);
    block_polling();
    leave(waiters, self);
}

/* at_fence: what was released is taken over by the next fence of this thread only.
   A thread that reads the same value from the same word again and again polls it: it waits until something changes, or for no reason at
   all. */
uint32_t op_load_flag(const uint32_t *p, bool acquires, bool at_fence) {
    MACHINE_ENTER(acquires ? Op::acquire : Op::relaxed);
    Thread *t = self;
    const uintptr_t offset = global_word(p);
    atomic_access(offset, 4, false, t->pc, t->op);
    if (world->options.record && !acquires && !t->polls) record(Did::look, (uint32_t)offset);
    const bool steps = world->options.record && acquires;
    uint32_t value = steps ? next_value(offset, *p) : *p;
    if (t->poll.address == offset && t->poll.seen == value && ++t->poll.repeats > 1) {
        if (world->result.flag_changes >= world->options.restless) yield();
        else sleep_until_changed(offset);
        value = steps ? next_value(offset, *p) : *p;
    } else if (t->poll.address != offset || t->poll.seen != value) {
        t->poll.repeats = 0;
    }
    t->poll.address = offset;
    t->poll.seen = value;
    if (acquires) {
        record(Did::acquire, (uint32_t)offset, value);
        t->acquired = offset;
        auto found = world->flags.find(offset);
        if (found != world->flags.end() && !world->least_order) {
            if (at_fence) t->at_fence[offset] = found->second;
            else acquire(*t, found->second);
        }
    }
    return value;
}

/* Takes over what had been released when the flags were read that waited for this. */
void op_fence_acquire(void) {
    MACHINE_ENTER(Op::fence_acquire);
    for (const auto &flag : self->at_fence) acquire(*self, flag.second);
    self->at_fence.clear();
}

/* Takes over what had been released when the counter reached `value`. */
void acquire_reached(uintptr_t offset, uint32_t value) {
    const auto first = world->first_values.find(offset);
    if (first == world->first_values.end() || first->second >= value) return;
    acquire(*self, world->reached.lower_bound({offset, value})->second);
}

static void flag_changed(uintptr_t offset) {
    if (++world->result.flag_changes == world->options.host.after) *world->options.host.word = 1;
    progress();
    auto found = world->flag_waiters.find(offset);
    if (found == world->flag_waiters.end()) return;
    std::vector<Thread *> waiters = found->second;
    for (Thread *t : waiters) make_ready(t);
}

void op_store_flag(uint32_t *p, uint32_t value, bool releases) {
    MACHINE_ENTER(releases ? Op::st_release : Op::atomic);
    needed();
    const uintptr_t offset = global_word(p);
    record(Did::store_flag, (uint32_t)offset, value, releases);
    if (world->options.record) world->first_values.emplace(offset, *p);
    atomic_access(offset, 4, true, self->pc, self->op);
    Released &flag = world->flags[offset];
    flag.clear();
    if (releases) flag.add(*self);
    *p = value;
    flag_changed(offset);
}

uint32_t op_atomic(uint32_t *p, uint32_t operand, uint32_t compare, int kind, bool releases, bool acquires) {
    MACHINE_ENTER(releases ? Op::red_release : Op::atomic);
    needed();
    const uintptr_t offset = global_word(p);
    record(Did::atomic, (uint32_t)offset, operand, compare | (uint64_t)kind << 32, releases | acquires << 1);
    if (world->options.record || world->least_order) world->first_values.emplace(offset, *p);
    atomic_access(offset, 4, true, self->pc, self->op);
    const uint32_t old = *p;
    if (kind == 0) *p = old + operand;
    else if (kind == 1) { if (old == compare) *p = operand; }
    else *p = operand;
    if (releases) world->flags[offset].add(*self);
    if (acquires) acquire(*self, world->flags[offset]);
    if (world->least_order) world->reached.emplace(std::make_pair(offset, *p), world->flags[offset]);
    if (*p != old) flag_changed(offset);
    return old;
}

/* Of a word that is not there yet whoever looks for it sleeps until it changes; other lanes' words do not wait for that on a card, and what
   comes is the same. A load that finds what it waits for is in no race with the store; it is a read, which the next generation's store has to come
   behind (Options::words_order). */
bool op_load_word(const uint64_t *p, uint32_t tag, uint32_t *value, bool at_fence) {
    MACHINE_ENTER(Op::relaxed);
    Thread *t = self;
    const uintptr_t offset = global_word(p);
    if (!world->options.words_order) atomic_access(offset, 8, false, t->pc, t->op);
    if ((uint32_t)(*p >> 32) != tag) {
        t->poll.address = offset;
        t->poll.seen = (uint32_t)(*p >> 32);
        t->poll.repeats = 0;
        if (world->result.flag_changes >= world->options.restless) yield();
        else sleep_until_changed(offset);
    }
    *value = (uint32_t)*p;
    if ((uint32_t)(*p >> 32) != tag) return false;
    auto found = world->flags.find(offset);
    if (found != world->flags.end()) {
        if (at_fence) t->at_fence[offset] = found->second;
        if (world->options.words_order) acquire(*t, found->second);
    }
    if (world->options.words_order) generic_access(offset, 8, false, t->pc, t->op);
    return true;
}

void op_store_word(uint64_t *p, uint32_t value, uint32_t tag, bool releases) {
    MACHINE_ENTER(releases ? Op::st_release : Op::relaxed);
    const uintptr_t offset = global_word(p);
    if (world->options.words_order) generic_access(offset, 8, true, self->pc, self->op);
    else atomic_access(offset, 8, true, self->pc, self->op);
    Released &flag = world->flags[offset];
    flag.clear();
    if (releases || world->options.words_order) flag.add(*self);
    *p = (uint64_t)tag << 32 | value;
    flag_changed(offset);
}

static uintptr_t global_data(const void *p, uint32_t bytes, bool write) {
    const uintptr_t offset = global_word(p);
    if (offset % bytes) report("misaligned:access", "access of %u bytes at %s", bytes, describe(offset).c_str());
    generic_access(offset, bytes, write, self->pc, self->op);
    return offset;
}

void op_global_store(void *p, const void *value, uint32_t bytes) {
    MACHINE_ENTER(Op::store);
    memcpy(arena(global_data(p, bytes, true)), value, bytes);
}

void op_global_load(const void *p, void *value, uint32_t bytes, bool read_only_path) {
    MACHINE_ENTER(read_only_path ? Op::load_nc : Op::load);
    const uintptr_t offset = global_data(p, bytes, false);
    uintptr_t begin, end;
    const char *name;
    bool read_only = true;
    if (read_only_path && region_of(offset, &begin, &end, &name, &read_only) && !read_only)
        report("read-only:nc", "ld.global.nc of %s, which this launch may write", describe(offset).c_str());
    memcpy(value, arena(offset), bytes);
}

/* ---- slots ---- */

Slot &take_slot(Cta *cta, const Observer &issuer) {
    for (Slot &slot : cta->slot)
        if (!slot.busy && issuer.seen.at(slot.component) >= slot.clock) {
            slot.busy = true;
            slot.clock++;
            return slot;
        }
    if (cta->slot.size() >= MOST_COPIES) {
        report("limit", "more than %u pieces of asynchronous work of one CTA that nobody has waited for", MOST_COPIES);
        stop_launch();
    }
    cta->slot.reserve(MOST_COPIES);
    cta->slot.push_back({new_component(), 1, true});
    return cta->slot.back();
}

uint32_t new_component(void) {
    if (world->components >= world->capacity) {
        report("limit", "more asynchronous work under way than the model keeps apart");
        stop_launch();
    }
    return world->components++;
}

} // namespace machine

/* What `extern __shared__` becomes: the kernel's own dynamic shared memory, whatever its name. */
extern "C" void *__emutls_get_address(void *) { return machine::op_dynamic_shared(); }
