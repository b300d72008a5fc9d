/* What the parts of the machine model share: core.cc (threads, warps, barriers, scheduling), memory.cc (shadow memory, clocks, reports),
   async.cc (copies), tensor.cc (matrix products). Kernels and tests see machine.h and ptx.h only. */
#ifndef MACHINE_INTERNAL_H
#define MACHINE_INTERNAL_H

#include <string.h>

#include <deque>
#include <memory>
#include <set>
#include <unordered_map>

#include "machine.h"

namespace machine {

/* ---- operations, for reports ---- */

#define MACHINE_OPERATIONS(X)                                                                                                              \
    X(host, "host copy")                                                                                                                   \
    X(load, "load")                                                                                                                        \
    X(store, "store")                                                                                                                      \
    X(load_nc, "ld.global.nc")                                                                                                             \
    X(atomic, "atomic")                                                                                                                    \
    X(acquire, "ld.acquire")                                                                                                               \
    X(fence_acquire, "fence.acquire")                                                                                                      \
    X(relaxed, "ld.relaxed")                                                                                                               \
    X(red_release, "red.release")                                                                                                          \
    X(st_release, "st.release")                                                                                                            \
    X(stmatrix, "stmatrix")                                                                                                                \
    X(ldmatrix, "ldmatrix")                                                                                                                \
    X(mma, "mma.sync")                                                                                                                     \
    X(st_async, "st.async")                                                                                                                \
    X(tma_load, "cp.async.bulk.tensor load")                                                                                               \
    X(tma_store, "cp.async.bulk.tensor store")                                                                                             \
    X(tma_reduce, "cp.reduce.async.bulk.tensor")                                                                                           \
    X(bulk_load, "cp.async.bulk load")                                                                                                     \
    X(bulk_store, "cp.async.bulk store")                                                                                                   \
    X(bulk_commit, "cp.async.bulk.commit_group")                                                                                           \
    X(bulk_wait, "cp.async.bulk.wait_group")                                                                                               \
    X(bulk_wait_read, "cp.async.bulk.wait_group.read")                                                                                     \
    X(wgmma, "wgmma.mma_async")                                                                                                            \
    X(wgmma_fence, "wgmma.fence")                                                                                                          \
    X(wgmma_commit, "wgmma.commit_group")                                                                                                  \
    X(wgmma_wait, "wgmma.wait_group")                                                                                                      \
    X(mbarrier_init, "mbarrier.init")                                                                                                      \
    X(mbarrier_inval, "mbarrier.inval")                                                                                                    \
    X(mbarrier_arrive, "mbarrier.arrive")                                                                                                  \
    X(mbarrier_expect, "mbarrier.arrive.expect_tx")                                                                                        \
    X(mbarrier_expect_only, "mbarrier.expect_tx")                                                                                          \
    X(mbarrier_wait, "mbarrier.try_wait")                                                                                                  \
    X(bar_sync, "bar.sync")                                                                                                                \
    X(bar_warp_sync, "bar.warp.sync")                                                                                                      \
    X(cluster_arrive, "barrier.cluster.arrive")                                                                                            \
    X(cluster_wait, "barrier.cluster.wait")                                                                                                \
    X(mapa, "mapa")                                                                                                                        \
    X(shuffle, "shfl.sync")                                                                                                                \
    X(vote, "vote.sync")                                                                                                                   \
    X(elect, "elect.sync")                                                                                                                 \
    X(setmaxnreg, "setmaxnreg")                                                                                                            \
    X(nanosleep, "nanosleep")                                                                                                              \
    X(exit, "exit")                                                                                                                        \
    X(tcgen05_alloc, "tcgen05.alloc")                                                                                                      \
    X(tcgen05_dealloc, "tcgen05.dealloc")                                                                                                  \
    X(tcgen05_relinquish, "tcgen05.relinquish_alloc_permit")                                                                               \
    X(tcgen05_mma, "tcgen05.mma")                                                                                                          \
    X(tcgen05_cp, "tcgen05.cp")                                                                                                            \
    X(tcgen05_commit, "tcgen05.commit")                                                                                                    \
    X(tcgen05_ld, "tcgen05.ld")                                                                                                            \
    X(tcgen05_st, "tcgen05.st")                                                                                                            \
    X(tcgen05_wait_ld, "tcgen05.wait::ld")                                                                                                 \
    X(tcgen05_wait_st, "tcgen05.wait::st")                                                                                                 \
    X(tcgen05_fence, "tcgen05.fence")

enum class Op : uint8_t {
#define X(name, text) name,
    MACHINE_OPERATIONS(X)
#undef X
};
const char *op_text(Op op);

constexpr unsigned MOST_COPIES = 640; /* pieces of asynchronous work that a CTA has under way: four stages of keys and values, row by row */

/* ---- vector clocks: immutable arrays with one number for each thread and each slot of asynchronous work, shared and counted ---- */

struct Base {
    uint32_t references, size; /* components from `size` on are 0 */
    uint32_t clock[1];
};

class BaseRef {
public:
    BaseRef() : base(nullptr) {}
    BaseRef(const BaseRef &other) : base(other.base) { if (base) base->references++; }
    BaseRef(BaseRef &&other) : base(other.base) { other.base = nullptr; }
    BaseRef &operator=(BaseRef other) { std::swap(base, other.base); return *this; }
    ~BaseRef() { if (base && --base->references == 0) release(base); }
    uint32_t at(uint32_t component) const { return base && component < base->size ? base->clock[component] : 0; }
    bool operator==(const BaseRef &other) const { return base == other.base; }
    bool operator!=(const BaseRef &other) const { return base != other.base; }
    explicit operator bool() const { return base != nullptr; }
    void join(const BaseRef &other);                /* pointers stay equal where nothing is new; remembers results */
    void gather(const BaseRef &other);              /* the same where this is the only reference, as a rule */
    void gather_from(const BaseRef &other, uint32_t first); /* components from `first` on */
    void raise(uint32_t component, uint32_t clock); /* copies unless this is the only reference */
private:
    static Base *create(uint32_t size);
    static void release(Base *base);
    void own(uint32_t size); /* makes this the only reference to an array of at least this size */
    Base *base;
};

/* Somebody who has seen things: a thread, or a piece of asynchronous work as of its issue.
   seen: what happens before. shared, global: what is also ordered before asynchronous accesses to that memory, that is, what a proxy fence
   lies behind on the path. reads: whose reads of shared memory are known to have ended, though nothing that they wrote is; fenced_reads: of
   these, behind which a proxy fence lies as well. published: of tcgen05, what a fence::before_thread_sync or a commit lies behind on the
   path; tensor: what a fence::after_thread_sync has taken over from it (tcgen05.cc). */
struct Observer {
    BaseRef seen, shared, global, reads, fenced_reads, published, tensor;
    uint32_t component = 0, now = 1;
    uint32_t own_shared = 0, own_global = 0; /* this component's entries in shared and global */
    uint32_t cta = 0;
};

/* What releases have left for acquires. */
struct Released {
    BaseRef seen, shared, global, reads, fenced_reads, published;
    BaseRef last_seen, last_ended, last_shared, last_global, last_reads; /* the last ones joined, to skip them */
    mutable struct {
        BaseRef seen, shared, global, reads, fenced_reads, published;
    } before, after; /* of the last one that acquired this: the next one is mostly like it */
    void add(Observer &from);
    void add_ended(Observer &from); /* only that asynchronous work and reads of shared memory have ended */
    void clear() { *this = Released(); }
};
void acquire(Observer &to, const Released &from);
void adopt(Observer &to, const Released &from); /* the same, by one who has added what it has seen */

/* ---- shadow memory ---- */

enum EventFlags : uint8_t { EVENT_ASYNC = 1, EVENT_ATOMIC = 2, EVENT_BARRIER = 4 };
struct Event {
    uint32_t component, clock, pc;
    uint16_t cta;
    Op op;
    uint8_t flags;
};
/* The events of a launch, by number: memory of huge pages that all launches share, as they are many and are looked at in no order. */
void *address_space(void *at, size_t bytes, bool huge);
class EventList {
public:
    EventList() {
        if (!first) first = (Event *)address_space(nullptr, (size_t)MOST * sizeof(Event), true);
        count = 2;
    }
    const Event &operator[](uint32_t number) const { return first[number]; }
    uint32_t add(const Event &event) {
        if (count == MOST) full();
        first[count] = event;
        return count++;
    }

private:
    static constexpr uint32_t MOST = 1u << 30;
    [[noreturn]] static void full(void);
    static Event *first;
    uint32_t count;
};

struct Cell { /* of 2, 16, 128 or 1024 bytes: of larger pieces while what has happened to them happened to the whole of them */
    uint32_t write; /* event, 0: never written; SPLIT: look at the eight smaller ones */
    uint32_t read;  /* 0: none since the write; event; or READ_SET | set */
};
struct ReaderSet { /* the readers of `before` and those at [begin, begin + count) of the pool */
    uint32_t before, begin, count, size; /* size: of all */
};
struct ReaderMemo {
    uint32_t old, added, result;
};
constexpr uint32_t READ_SET = 0x80000000u, HOST_EVENT = 1, SPLIT = 0xffffffffu;
constexpr uintptr_t LARGEST_PIECE = 1024;

constexpr uintptr_t ARENA = 0x200000000000;                /* shared memory of all CTAs, then global memory */
constexpr uintptr_t SHARED_WINDOW = 256 * 1024, MAX_CTAS = 160;
constexpr uintptr_t GLOBAL = SHARED_WINDOW * MAX_CTAS;     /* offset of global memory in the arena */
constexpr uintptr_t ARENA_BYTES = GLOBAL + (2ull << 30);
constexpr uintptr_t SHARED_RESERVED = 1024;                /* of each CTA, by the system: dynamic shared memory begins behind it */
constexpr uint32_t RANK_SHIFT = 24;                        /* a 32-bit shared address: rank in the cluster, offset in the CTA's window */

/* ---- recordings (trace.cc) ---- */

enum class Did : uint8_t {
    read, write, look, acquire, store_flag, atomic, mbarrier_init, fence_mbarrier_init, arrive, wait, fence_proxy, tma_load, bulk_load,
    tma_store, bulk_commit, bulk_wait, st_async,
    /* by whole warps, all lanes in the same order */
    bar_sync, warp_sync, cluster_arrive, cluster_wait, setmaxnreg, wgmma, wgmma_fence, wgmma_commit, wgmma_wait
};
struct Step {
    Did did;
    Op op;
    uint32_t pc, a, b;
    uint64_t c, d;
};

/* ---- threads ---- */

struct Thread;
struct Warp;
struct Cta;

struct Poll {
    Op op = Op::load;
    uintptr_t address = 0;
    uint32_t seen = 0, expected = 0;
    uint64_t repeats = 0;
};

enum class State : uint8_t { ready, blocked, polling, done };

struct Registers { /* accumulators that matrix products write */
    uintptr_t begin, end;
    uint64_t last_product; /* its number in the thread's sequence */
    bool touched;          /* by ordinary accesses since the last wgmma.fence */
};

struct BulkGroup {
    uint32_t reads = 0, writes = 0; /* not yet done */
    std::vector<std::pair<uint32_t, uint32_t>> read_parts, write_parts; /* component, clock: joined by the waits */
};

/* What nearly every operation needs comes first, in four lines of the cache. */
struct alignas(64) Thread : Observer {
    Warp *warp = nullptr;
    Cta *of = nullptr;
    State state = State::ready;
    Op op = Op::load;    /* of the last machine operation */
    Op last_event_op = Op::load;
    bool any_yes = false; /* what its last barrier of the CTA brought */
    uint16_t lane = 0;
    uint32_t pc = 0;     /* of the last machine operation */
    uint32_t last_event = 0, last_event_pc = 0, last_event_clock = 0;
    uint32_t number = 0; /* threadIdx.x */
    uint32_t posted = 0; /* a digest of the warp's instructions that it has run without waiting for the others: the same for all */
    uintptr_t registers_begin = 0, registers_end = 0;
    void *argument = nullptr; /* of the collective it waits in */
    uintptr_t acquired = 0;   /* the flag that it has read since it last met the others */
    const char *waits_for = nullptr;
    const void *waits_on = nullptr; /* what wakes it; see wake */
    uint32_t stands_for = 1;  /* threads: lane 0 comes to barriers also for the lanes of its warp that do not run */
    bool suspended = false;     /* its last failed wait could suspend it */
    bool granted = false; /* setmaxnreg's answer */
    bool polls = false;      /* Options::record: it has looked in vain since the last step */
    uint64_t failed_at = ~0ull; /* progress at its last failed wait */
    Poll poll;
    std::string detail;
    std::map<uintptr_t, Released> at_fence; /* what flags stand for that it has read, and its next fence acquires */
    uint32_t fenced_inits = 0; /* its clock at its fence for mbarriers */
    /* wgmma */
    bool fence_needed = true;
    uint32_t commits = 0;
    std::vector<Registers> registers;
    uint64_t products = 0, completed_products = 0; /* issued; waited for */
    uint64_t committed[8];    /* products issued up to each of the last commits, at index commits % 8 */
    uint64_t matrix_stores = 0;
    std::vector<BulkGroup *> groups; /* committed, oldest first */
    BulkGroup *open_group = nullptr;
    std::vector<Step> steps; /* Options::record */
    uint32_t senders = 1;    /* Options::replay: of the st.async that it does */
    uint32_t cluster_phase = 0;
};

struct Collective {
    uint32_t mask = 0, arrived = 0;
    Op op = Op::load;
};

struct WgmmaOp; /* tensor.cc */
struct StoreQueue; /* async.cc */
struct MatrixStore { /* stmatrix */
    uint32_t arrived = 0, address[32], value[32][4];
};
struct Warp {
    Cta *of = nullptr;
    uint32_t number = 0;
    Thread *lane[32];
    void *stack_pointer[32]; /* of each lane */
    uint32_t ready = 0, polling = 0, alive = 0;
    uint32_t running = 0xffffffffu; /* protocol mode may leave lanes out; lane 0 always runs */
    uint32_t needed = 1;            /* lanes that have done something that others wait for */
    uint32_t watched = 0xffffffffu; /* lanes whose ordinary reads of shared memory and accumulators are looked at */
    int ready_position = -1, polling_position = -1;
    uint32_t priority = 0;
    Collective collective[4];
    uint32_t slot = 0; /* its component as asynchronous reader: the number of the matrix product */
    struct {
        BaseRef before, after;
        uint64_t product;
    } waited = {}; /* what the last wait for matrix products made of a lane's clock: the same for most of them */
    std::deque<MatrixStore> matrix_stores; /* that some lanes have come to and others not */
    uint64_t matrix_stores_done = 0;
    uint32_t registers = 0;
    std::vector<std::unique_ptr<StoreQueue>> store_queues; /* st.async: one for each mbarrier that its bytes are counted on */
    Warp();
    ~Warp();
};

struct WarpGroup {
    uint32_t threads = 0; /* that run */
    std::deque<std::shared_ptr<WgmmaOp>> queue; /* number executed + 1 first */
    std::shared_ptr<WgmmaOp> last;              /* executed */
    uint64_t executed = 0;
    bool scheduled = false;
};

struct NamedBarrier {
    uint32_t expected = 0, arrived = 0;
    bool yes = false; /* somebody came with it */
    std::vector<Thread *> waiting;
    Released released;
};

struct Arrivals { /* of one thread at one mbarrier */
    uint32_t component, count;
};
/* Of one instruction, at one mbarrier, by the lanes of a warp: how often each has arrived, and in which phases the last times were. */
struct LanesArrived {
    const struct Warp *warp;
    uint32_t pc, most; /* times of a lane */
    uint32_t times[32];
    uint64_t phase[64];
};

struct Mbarrier {
    uint32_t expected = 0, pending = 0;
    int64_t bytes = 0;
    uint64_t phase = 0; /* completed phases, */
    uint64_t phases = 0; /* also before it was initialised again */
    uint32_t init_component = 0, init_clock = 0; /* who initialised it, and when */
    bool fenced = false;
    bool invalid = false; /* until it is initialised again */
    Released current, completed;
    Released current_cluster, completed_cluster; /* what other CTAs release at cluster scope: waits see it that acquire at cluster scope */
    std::vector<Thread *> waiting;
    uint64_t expected_bytes = 0; /* announced in this phase, for reports */
    unsigned number = 0, arrivals = 0; /* in the order of initialisation; of all phases */
    std::vector<Arrivals> arrived;     /* of all phases, for reports of deadlocks */
    std::vector<LanesArrived> lanes;
    ptrdiff_t last_lanes = 0; /* which of them came last */
};

struct Slot { /* a component for asynchronous work */
    uint32_t component, clock;
    bool busy;
};

struct Cluster {
    uint32_t first = 0, size = 1;
    uint32_t arrived = 0, phase = 0, alive = 0;
    Released released, completed;
    std::vector<Thread *> waiting;
};

struct TensorMemory; /* tcgen05.cc */

struct Cta {
    uint32_t number = 0, rank = 0;
    Cluster *cluster = nullptr;
    Thread *thread = nullptr; /* the first of them */
    std::vector<Warp *> warp;
    std::vector<WarpGroup> group;
    NamedBarrier barrier[16];
    std::unordered_map<uint32_t, Mbarrier> mbarrier; /* by offset in the window */
    std::vector<Mbarrier *> mbarrier_at;             /* by offset / 8 */
    Mbarrier *find_mbarrier(uint32_t offset) const {
        return offset % 8 || offset / 8 >= mbarrier_at.size() ? nullptr : mbarrier_at[offset / 8];
    }
    std::vector<Slot> slot;
    uint32_t alive = 0, registers_free = 0;
    std::shared_ptr<TensorMemory> tensor_memory; /* since its first tcgen05 instruction */
};

/* A piece of asynchronous work that may be done now or any time later. */
struct Action {
    virtual ~Action() {}
    virtual void run() = 0;
};

struct State_ {
    Launch launch;
    Options options;
    Result result;
    std::vector<std::unique_ptr<Cta>> cta;
    std::vector<std::unique_ptr<Cluster>> cluster;
    std::vector<Warp *> ready, polling;
    bool all_lanes = true; /* they all run */
    std::vector<Thread *> threads; /* that run, by component */
    std::set<uint32_t> word_stores; /* places in the code of ordinary stores of words to shared memory */
    uint32_t last_word_store = 0;   /* the last one of them */
    uint32_t last_word = 0;         /* event of the last one that somebody has loaded */
    std::vector<Action *> actions;
    EventList events;
    std::vector<uint32_t> set_pool;
    std::vector<ReaderSet> sets;
    std::vector<ReaderMemo> set_memo;
    std::unordered_map<uintptr_t, Released> flags; /* by arena offset of the word */
    std::unordered_map<uintptr_t, std::vector<Thread *>> flag_waiters;
    std::unordered_map<uintptr_t, uint32_t> first_values; /* Options::record, least_order: of flags that have changed, before they did */
    bool least_order = false; /* see launch_all */
    std::map<std::pair<uintptr_t, uint32_t>, Released> reached; /* least_order: what had been released when a flag had a value */
    uint32_t components = 0, capacity = 0, alive = 0;
    uint64_t number = 0; /* of the launch */
    uint64_t random_state = 0, progress = 0;
    bool running = false, stopping = false;
    unsigned async_weight = 128, priority_weight = 0; /* of 256 */
    void *scheduler_stack = nullptr;
    const std::function<void()> *body = nullptr;
};
extern State_ *world;
/* Whether a rule of the model is checked: all are, but for the one that Options names. */
inline bool checks(const char *rule) { return !world->options.unchecked || strcmp(rule, world->options.unchecked); }
extern Thread *self; /* null outside of kernel threads */

inline uint64_t next_random(uint64_t &state) { /* xorshift64* */
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545F4914F6CDD1Dull >> 16;
}
inline uint32_t below(uint64_t random, uint32_t n) { return (uint32_t)((random & 0xffffffffu) * n >> 32); }
uint64_t first_random(uint64_t seed, unsigned *async_weight, unsigned *priority_weight); /* the state, and what a seed prefers */
uint64_t random_number(void);
inline uint32_t random_below(uint32_t n) { return below(random_number(), n); }
uint32_t registers_of(const Launch &launch); /* a thread, at its start */

/* core.cc */
/* This lane does something that others wait for: it must run. */
inline void needed(void) { self->warp->needed |= 1u << self->lane; }
void block(const char *waits_for, const void *on = nullptr); /* until make_ready, or wake with the same `on` */
void wake(Thread *thread, const void *on);
void block_polling(void);            /* until make_ready, a spurious wake-up, or nothing else can run */
void yield(void);
void make_ready(Thread *thread);
void progress(void);
void stop_launch(void);              /* ends all threads; does not return inside one */
void add_action(Action *action);
Slot &take_slot(Cta *cta, const Observer &issuer);
uint32_t new_component(void); /* for asynchronous work; reports and stops when there are too many */
/* All lanes must come with the same operation, but this one does not wait for the others. */
void post(Op op);
/* All lanes of `mask` must come with the same operation; the last one runs `work` for all. */
void collective(Op op, uint32_t mask, void *argument, const std::function<void(Warp *)> &work);
Mbarrier *find_mbarrier(uint32_t shared_address, bool by_async, const Observer &who);
void mbarrier_complete_bytes(Cta *cta, uint32_t offset, uint64_t bytes, uint32_t component, uint32_t clock);
void mbarrier_async_arrive(Cta *cta, uint32_t offset, uint32_t component, uint32_t clock, Observer &issuer);
void complete_phase_if_due(Cta *cta, uint32_t offset, Mbarrier &barrier);
Cta *cta_of_address(uint32_t shared_address); /* reports and stops when there is none */

/* memory.cc */
void memory_init(void);
void memory_begin_launch(void);
void memory_end_launch(void);
inline uint32_t new_event(uint32_t component, uint32_t clock, uint32_t pc, uint32_t cta, Op op, uint8_t flags) {
    return world->events.add({component, clock, pc, (uint16_t)cta, op, flags});
}
uint32_t thread_event(Thread *thread, uint32_t pc, Op op);
uint32_t make_set(const uint32_t *events, uint32_t count);
void generic_access(uintptr_t offset, size_t bytes, bool write, uint32_t pc, Op op);
void atomic_access(uintptr_t offset, size_t bytes, bool write, uint32_t pc, Op op);
void barrier_word(uintptr_t offset, uint32_t event);
/* What one piece of asynchronous work does to memory. `events`: of its readers or its writer, an event or a set. Keeps what it has found
   out of the last cell, because the next ones are mostly like it. Accesses return false when they are out of bounds. */
class AsyncAccess {
public:
    AsyncAccess(const Observer &who, uint32_t events);
    bool read(uintptr_t offset, size_t bytes, const char *what);
    bool constant(uintptr_t first, uintptr_t last); /* the launch writes nothing from one of these bytes to the other */
    bool read_whole_piece(uintptr_t offset); /* of LARGEST_PIECE bytes, if it has one history; otherwise nothing, and false */
    bool write(uintptr_t offset, size_t bytes, const char *what);
    bool store(uintptr_t offset, size_t bytes); /* an ordinary write that is done later */
private:
    bool bounds(uintptr_t offset, size_t bytes, bool writes, const char *what);
    bool read_cell(Cell *cell, uintptr_t at, const char *what);
    void conflict(uintptr_t at, bool writes, uint32_t other, bool other_writes, int order) const;
    const Observer &who;
    const uint32_t events;
    const Event me;
    uintptr_t begin = 1, end = 0; /* of the region of the last access */
    bool read_only = false;
    Cell before = {SPLIT, 0}, after = {SPLIT, 0};
};
inline bool async_read(const Observer &who, uint32_t events, uintptr_t offset, size_t bytes, const char *what) {
    return AsyncAccess(who, events).read(offset, bytes, what);
}
inline bool async_write(const Observer &who, uint32_t event, uintptr_t offset, size_t bytes, const char *what) {
    return AsyncAccess(who, event).write(offset, bytes, what);
}
bool region_of(uintptr_t offset, uintptr_t *begin, uintptr_t *end, const char **name, bool *read_only);
inline uint8_t *arena(uintptr_t offset) { return (uint8_t *)(ARENA + offset); }
inline uintptr_t shared_offset(uint32_t cta, uint32_t offset) { return (uintptr_t)cta * SHARED_WINDOW + offset; }
std::string describe(uintptr_t offset);
std::string source_line(uint32_t pc);
std::string describe_event(uint32_t event);
std::string describe_thread(const Thread *thread);
/* At the current thread, its last operation. A rule is "kind" or "kind:which". */
void report(const char *rule, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Of asynchronous work: issued by component `who`, at pc. */
void report_at(const char *rule, const Observer &who, uint32_t pc, Op op, const char *format, ...) __attribute__((format(printf, 5, 6)));
void report_plain(const char *rule, uint64_t key, const std::string &text);
std::string format_text(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* async.cc */
uint32_t bytes_of_box(const CUtensorMap &map); /* what an mbarrier counts */

/* tensor.cc, tcgen05.cc */
void wgmma_end_of_thread(Thread *thread);
void tcgen05_end_of_thread(Thread *thread); /* and of its CTA, where it is the last */

/* ---- trace.cc ---- */

void record_step(Did did, uint32_t a, uint32_t b, uint64_t c, uint64_t d);
inline void record(Did did, uint32_t a = 0, uint32_t b = 0, uint64_t c = 0, uint64_t d = 0) {
    if (world->options.record) record_step(did, a, b, c, d);
}
void record_copy(Did did, uint32_t a, uint32_t b, const CUtensorMap *map, uint32_t rank, const int32_t *coordinate, uint32_t mask,
                 bool multicast);
void begin_trace(void);
std::shared_ptr<const Trace> end_trace(void);
void replay_thread(void); /* all that its warp does */
void acquire_reached(uintptr_t offset, uint32_t value);

#define MACHINE_AT(address)                                                                                                                \
    do {                                                                                                                                   \
        if (!world->options.replay) self->pc = (uint32_t)(uintptr_t)(address);                                                             \
    } while (0)
#define MACHINE_ENTER(operation)                                                                                                           \
    do {                                                                                                                                   \
        MACHINE_AT(__builtin_return_address(0));                                                                                           \
        self->op = (operation);                                                                                                            \
    } while (0)

} // namespace machine

#endif
