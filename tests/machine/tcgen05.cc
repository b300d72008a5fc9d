/* The machine model's Blackwell: tensor memory and the instructions tcgen05, of one CTA (cta_group::1) and of pairs (cta_group::2): two
   CTAs of a cluster whose ranks differ in their last bit. Rules and layouts are those of the PTX manual 9.0, section 9.7.16; nothing of it
   has ever been compared with a card. MANUAL.md says what is not modelled. */
#include <algorithm>
#include <map>

#include "internal.h"
#include "matrix.h"

namespace machine {

constexpr uint32_t LANES = 128, COLUMNS = 512, HALF = 16; /* a shadow cell: 16 lanes of one column */

struct TensorCell {
    uint32_t write = 0;         /* event; 0: never written since its allocation */
    std::vector<uint32_t> read; /* events since the write, one a component */
};

/* The tensor memory of an SM, which its CTAs share. */
struct TensorSm {
    uint32_t value[LANES][COLUMNS];
    TensorCell cell[LANES / HALF][COLUMNS];
    Cta *owner[COLUMNS] = {};
    uint32_t allocated[COLUMNS] = {}; /* at the first column of an allocation: how many columns it has */
};

/* What a thread has started: products and copies, which end in any order but for the pairs in pipelined(). The clock of its component
   counts them. */
struct Issuer {
    struct Started {
        Op op;
        uint32_t d, shape;
    };
    uint32_t component;        /* clock c: number c and all before have ended */
    uint32_t issued_component; /* clock c: number c and all before have been started */
    uint32_t committed = 0;
    std::vector<Started> started;
    uint32_t count() const { return (uint32_t)started.size(); }
};

/* The loads or stores of a warp: clock c of the component says that number c and all before have ended. */
struct Port {
    uint32_t component = 0, count = 0;
};

struct InstructionWord {
    uint32_t m, n, k, a_format, b_format, a_scale, b_scale;
    bool a_transposed, b_transposed, a_negated, b_negated, scaled, bytes; /* bytes: 8-bit elements */
};

struct TensorOp {
    Op op;
    Issuer *issuer;
    uint32_t number; /* of its issuer's; of a commit, how many it waits for */
    Observer who;
    uint32_t pc;
    Cta *cta;
    uint32_t group; /* CTAs that it is done for, 1 or 2 */
    /* products */
    InstructionWord word;
    MatrixDescriptor a, b; /* copies: a */
    uint32_t d, a_tensor, a_scales, b_scales;
    bool a_in_tensor_memory, accumulate;
    /* commits */
    uint32_t barrier;
    std::vector<Cta *> targets;
    std::vector<uint32_t> slots; /* one for each: that it has come to one CTA tells nothing of the others */
};

struct Arrival { /* of a commit */
    uint32_t component, clock;
};

/* Where one warp of each CTA of a pair meet, for what only both can do: the first one waits. */
struct Meeting {
    Op op;
    uint32_t address, columns;
    bool waits = false;
};

/* What a CTA has of it. */
struct TensorMemory {
    Cta *of;
    std::shared_ptr<TensorSm> sm;
    uint32_t group = 0; /* of its first instruction that has one: ptxas takes no kernel with both */
    Meeting meeting;
    uint32_t given;     /* to both CTAs of a pair, the first column */
    std::map<uint32_t, Issuer> issuer;              /* by thread */
    std::map<uint32_t, Issuer *> issuer_of;         /* by component */
    std::map<uint32_t, Port> loads, stores;         /* by warp */
    std::vector<std::unique_ptr<TensorOp>> pending; /* oldest first */
    std::vector<Arrival> arrivals;                  /* of commits that, as far as the committing thread knows, are still to come */
    BaseRef known_at_exit;                          /* to any of the threads that have ended */
    bool relinquished = false;
    uint32_t last_columns = COLUMNS;
};

static TensorMemory &tensor_memory(Cta *cta) {
    static std::map<uint32_t, std::weak_ptr<TensorSm>> of_sm;
    static uint64_t of_launch;
    if (of_launch != world->number) of_sm.clear();
    of_launch = world->number;
    if (!cta->tensor_memory) {
        cta->tensor_memory = std::make_shared<TensorMemory>();
        cta->tensor_memory->of = cta;
        std::weak_ptr<TensorSm> &known = of_sm[cta->number % world->launch.multiprocessors];
        cta->tensor_memory->sm = known.lock();
        if (!cta->tensor_memory->sm) known = cta->tensor_memory->sm = std::make_shared<TensorSm>();
    }
    return *cta->tensor_memory;
}

static Issuer &issuer_of(Thread *t) {
    TensorMemory &memory = tensor_memory(t->of);
    auto found = memory.issuer.find(t->number);
    if (found == memory.issuer.end()) {
        found = memory.issuer.insert({t->number, Issuer()}).first;
        found->second.component = new_component();
        found->second.issued_component = new_component();
        memory.issuer_of[found->second.component] = &found->second;
    }
    return found->second;
}

static Port &port_of(std::map<uint32_t, Port> &ports, Warp *warp) {
    Port &port = ports[warp->number];
    if (!port.component) port.component = new_component();
    return port;
}

/* ---- pairs ---- */

static Cta *peer_of(const Cta *cta) { return cta->cluster->size % 2 ? nullptr : world->cta[cta->number ^ 1].get(); }
/* The CTAs that something of this one is done for, that of even rank first. */
static Cta *member(Cta *cta, uint32_t group, uint32_t i) { return group == 1 ? cta : i == (cta->rank & 1) ? cta : peer_of(cta); }

/* By every instruction that says .cta_group. `alone`: one thread of a pair issues it. */
static void check_group(uint32_t group, bool alone) {
    TensorMemory &memory = tensor_memory(self->of);
    if (memory.group && memory.group != group)
        report("tcgen05-group:mixed", "cta_group::%u in a kernel that has used cta_group::%u", group, memory.group);
    memory.group = group;
    if (group == 1) return;
    Cta *peer = peer_of(self->of);
    if (!peer || tensor_memory(peer).sm == memory.sm) {
        report("tcgen05-group:pair", "rank %u of a cluster of %u has no peer on another SM", self->of->rank, self->of->cluster->size);
        stop_launch();
    }
    if (alone && peer->alive == 0) report("cluster-exit:pair", "the pair's other CTA, %u, has ended", peer->number);
    if (alone && self->of->rank % 2 && !world->options.assume.either_cta)
        report("tcgen05-group:leader", "the CTA of odd rank issues what is done for a pair");
}

static Issuer *find_issuer(const TensorMemory &memory, uint32_t component) {
    const auto found = memory.issuer_of.find(component);
    if (found != memory.issuer_of.end()) return found->second;
    const Cta *peer = peer_of(memory.of);
    if (!peer || !peer->tensor_memory) return nullptr;
    const auto theirs = peer->tensor_memory->issuer_of.find(component);
    return theirs == peer->tensor_memory->issuer_of.end() ? nullptr : theirs->second;
}

/* ---- order ---- */

/* Pairs that one thread starts, or two threads with fences between, are done in their order without waiting (9.7.16.6.2). */
static bool pipelined(const Issuer::Started &before, const Issuer::Started &after) {
    if (after.op != Op::tcgen05_mma)
        return world->options.assume.product_then_copy && before.op == Op::tcgen05_mma && after.op == Op::tcgen05_cp;
    return before.op == Op::tcgen05_cp || (before.d == after.d && before.shape == after.shape);
}

/* Two copies are, where a product in between is behind one and in front of the other. */
static bool product_between(const Issuer &issuer, uint32_t before, uint32_t after) {
    for (uint32_t i = before; i + 1 < after; i++)
        if (issuer.started[i].op == Op::tcgen05_mma) return world->options.assume.product_then_copy;
    return false;
}

/* ref.raise, by which lanes that shared what they know go on sharing it. */
static void raise(BaseRef &ref, uint32_t component, uint32_t clock) {
    static struct {
        uint64_t launch = 0;
        BaseRef before, after;
        uint32_t component = 0, clock = 0;
    } last;
    if (ref.at(component) >= clock) return;
    if (last.launch != world->number || last.before != ref || last.component != component || last.clock != clock) {
        last.launch = world->number;
        last.before = last.after = ref;
        last.after.raise(component, clock);
        last.component = component;
        last.clock = clock;
    }
    ref = last.after;
}

enum class Order { ordered, fence_missing, unordered };

struct Access {
    const Observer *who;
    uint32_t event;
    const Issuer::Started *product;                       /* where it is one, or a copy */
    bool accumulator;                                     /* of the product */
    mutable uint32_t ordered_write = 0, ordered_read = 0; /* the last ones found in order: most cells of an access have the same */
};

static Order tensor_order(TensorMemory &memory, const Access &access, const Event &e, bool e_writes) {
    const Observer &who = *access.who;
    const Issuer *issuer = find_issuer(memory, e.component);
    bool pipeline = false;
    const Event &me = world->events[access.event];
    const bool by_copy = access.product && access.product->op == Op::tcgen05_cp;
    /* what a product reads is no part of a pipeline, but where a copy overwrites it */
    if (issuer && access.product && (e_writes || by_copy)) {
        const Issuer::Started &before = issuer->started[e.clock - 1];
        pipeline = pipelined(before, *access.product) && (before.op == Op::tcgen05_cp || by_copy || access.accumulator);
        if (me.component == e.component && (pipeline || (by_copy && product_between(*issuer, e.clock, me.clock)))) return Order::ordered;
    }
    const uint32_t issued = pipeline ? issuer->issued_component : 0;
    if (who.tensor.at(e.component) >= e.clock || (pipeline && who.tensor.at(issued) >= e.clock)) return Order::ordered;
    if (who.seen.at(e.component) >= e.clock || (pipeline && who.seen.at(issued) >= e.clock)) return Order::fence_missing;
    return Order::unordered;
}

static std::string describe_cell(uint32_t half, uint32_t column) {
    return format_text("tensor memory, lanes %u to %u of column %u", half * HALF, half * HALF + HALF - 1, column);
}

static void conflict(const Access &access, uint32_t half, uint32_t column, bool write, uint32_t other, bool other_writes, Order order) {
    const Event &me = world->events[access.event];
    if (order == Order::fence_missing)
        report_at("tcgen05-fence", *access.who, me.pc, me.op,
                  "%s of %s: no tcgen05.fence::before_thread_sync and ::after_thread_sync after the %s by %s", write ? "write" : "read",
                  describe_cell(half, column).c_str(), other_writes ? "write" : "read", describe_event(other).c_str());
    if (order == Order::unordered)
        report_at("race:tensor-memory", *access.who, me.pc, me.op, "%s of %s is not ordered after the %s by %s", write ? "write" : "read",
                  describe_cell(half, column).c_str(), other_writes ? "write" : "read", describe_event(other).c_str());
}

static void touch(TensorMemory &memory, const Access &access, uint32_t half, uint32_t column, bool write) {
    const Event &me = world->events[access.event];
    if (column >= COLUMNS || memory.sm->owner[column] != memory.of) {
        report_at("out-of-bounds:tensor-memory", *access.who, me.pc, me.op, "%s of %s, which CTA %u has not allocated",
                  write ? "write" : "read", describe_cell(half, column).c_str(), memory.of->number);
        return;
    }
    TensorCell &cell = memory.sm->cell[half][column];
    if (cell.write && cell.write != access.event && cell.write != access.ordered_write) {
        const Order order = tensor_order(memory, access, world->events[cell.write], true);
        if (order == Order::ordered) access.ordered_write = cell.write;
        else conflict(access, half, column, write, cell.write, true, order);
    }
    if (!write) {
        if (!cell.write)
            report_at("uninitialised:tensor-memory", *access.who, me.pc, me.op, "read of %s, which nobody has written",
                      describe_cell(half, column).c_str());
        for (uint32_t &reader : cell.read)
            if (world->events[reader].component == me.component) {
                reader = access.event;
                return;
            }
        cell.read.push_back(access.event);
        return;
    }
    for (uint32_t reader : cell.read) {
        if (reader == access.event || reader == access.ordered_read) continue;
        const Order order = tensor_order(memory, access, world->events[reader], false);
        if (order == Order::ordered) access.ordered_read = reader;
        else conflict(access, half, column, true, reader, false, order);
    }
    cell.read.clear();
    cell.write = access.event;
}

/* ---- allocation ---- */

struct AllocationArguments {
    uint32_t address, columns;
};

/* Those of lane 0, and all lanes must have the same. */
static AllocationArguments common_arguments(Warp *warp) {
    const AllocationArguments first = *(AllocationArguments *)warp->lane[0]->argument;
    for (Thread *t : warp->lane) {
        const AllocationArguments &theirs = *(AllocationArguments *)t->argument;
        if (theirs.address != first.address || theirs.columns != first.columns)
            report("tensor-memory:warp", "lane %u comes with 0x%x and %u columns, lane 0 with 0x%x and %u", t->lane, theirs.address,
                   theirs.columns, first.address, first.columns);
    }
    return first;
}

static void check_columns(uint32_t columns) {
    if (columns < 32 || columns > COLUMNS || (columns & (columns - 1)))
        report("tensor-memory:columns", "%u columns: a power of two from 32 to 512", columns);
    if (columns == 0 || columns > COLUMNS) stop_launch();
}

static bool is_free(const TensorSm &sm, uint32_t first, uint32_t columns) {
    for (uint32_t c = first; c < first + columns; c++)
        if (sm.owner[c]) return false;
    return true;
}

static void own(Cta *cta, uint32_t first, uint32_t columns) {
    TensorSm &sm = *tensor_memory(cta).sm;
    for (uint32_t c = first; c < first + columns; c++) {
        sm.owner[c] = cta;
        for (auto &half : sm.cell) half[c] = TensorCell();
        for (auto &lane : sm.value) lane[c] = 0xffffffffu; /* NaN */
    }
    sm.allocated[first] = columns;
    tensor_memory(cta).given = first;
}

/* The same columns in all CTAs of the group. */
static bool allocate(Cta *cta, uint32_t columns, uint32_t group) {
    std::vector<uint32_t> places;
    for (uint32_t c = 0; c + columns <= COLUMNS; c += columns) { /* so that nothing blocks but for want of columns */
        bool place = true;
        for (uint32_t i = 0; i < group; i++) place &= is_free(*tensor_memory(member(cta, group, i)).sm, c, columns);
        if (place) places.push_back(c);
    }
    if (places.empty()) return false;
    const uint32_t first = places[random_below((uint32_t)places.size())]; /* anywhere: the address is what was written */
    for (uint32_t i = 0; i < group; i++) own(member(cta, group, i), first, columns);
    progress();
    return true;
}

/* By the whole warp: comes to meet a warp of the peer. */
static void come_to_meet(Warp *warp, Op op, const AllocationArguments &arguments) {
    Meeting &mine = tensor_memory(warp->of).meeting;
    const Cta *peer = peer_of(warp->of);
    const Meeting &theirs = tensor_memory(member(warp->of, 2, (warp->of->rank & 1) ^ 1)).meeting;
    if (mine.waits) report("tensor-memory:pair", "two warps of CTA %u want to meet one of CTA %u", warp->of->number, peer->number);
    mine = {op, arguments.address, arguments.columns, true};
    if (!theirs.waits || (theirs.op == op && theirs.columns == mine.columns && (op == Op::tcgen05_alloc || theirs.address == mine.address)))
        return;
    report("tensor-memory:pair", "%s of %u columns meets %s of %u columns by the pair's other CTA", op_text(op), mine.columns,
           op_text(theirs.op), theirs.columns);
    stop_launch();
}

/* Whether both are there, or were: the second one does `both` for the two, which may fail. */
static bool have_met(Warp *warp, const std::function<bool(Cta *)> &both) {
    Meeting &mine = tensor_memory(warp->of).meeting, &theirs = tensor_memory(peer_of(warp->of)).meeting;
    if (!mine.waits) return true;
    if (!theirs.waits || !both(warp->of)) return false;
    mine.waits = theirs.waits = false;
    progress();
    return true;
}

static void meet_peer(Op op, AllocationArguments *mine, const char *wants, const std::function<bool(Cta *)> &both) {
    collective(op, 0xffffffffu, mine, [op](Warp *warp) { come_to_meet(warp, op, *(AllocationArguments *)warp->lane[0]->argument); });
    for (;;) {
        collective(op, 0xffffffffu, mine, [&both](Warp *warp) {
            const bool granted = have_met(warp, both);
            for (Thread *t : warp->lane) t->granted = granted;
            if (granted || peer_of(warp->of)->alive) return;
            report("cluster-exit:pair", "the pair's other CTA has ended");
            stop_launch();
        });
        if (self->granted) return;
        self->detail = wants;
        block_polling();
        self->detail.clear();
    }
}

static void write_address(Cta *cta, uint32_t address) {
    if (cta_of_address(address) != cta || address % 4) {
        report("misaligned:access", "the address goes to 0x%x: four bytes of this CTA's shared memory", address & 0xffffff);
        stop_launch();
    }
    const uintptr_t offset = shared_offset(cta->number, address & 0xffffff);
    generic_access(offset, 4, true, self->pc, Op::tcgen05_alloc);
    memcpy(arena(offset), &tensor_memory(cta).given, 4);
}

void op_tcgen05_alloc(uint32_t destination, uint32_t columns, uint32_t group) {
    MACHINE_ENTER(Op::tcgen05_alloc);
    AllocationArguments mine = {destination, columns};
    collective(Op::tcgen05_alloc, 0xffffffffu, &mine, [group](Warp *warp) {
        check_group(group, false);
        TensorMemory &memory = tensor_memory(warp->of);
        const AllocationArguments common = common_arguments(warp);
        check_columns(common.columns);
        if (memory.relinquished) report("tensor-memory:relinquished", "an allocation after tcgen05.relinquish_alloc_permit");
        if (common.columns > memory.last_columns)
            report("tensor-memory:increase", "%u columns after %u: allocations of a CTA do not increase", common.columns,
                   memory.last_columns);
        memory.last_columns = common.columns;
    });
    if (group == 2) {
        meet_peer(Op::tcgen05_alloc, &mine, ": tensor memory is wanted for a pair, of which one is not there, or has none free",
                  [columns](Cta *cta) { return allocate(cta, columns, 2); });
        collective(Op::tcgen05_alloc, 0xffffffffu, &mine, [](Warp *warp) { write_address(warp->of, common_arguments(warp).address); });
        return;
    }
    for (;;) {
        collective(Op::tcgen05_alloc, 0xffffffffu, &mine, [](Warp *warp) {
            const AllocationArguments common = *(AllocationArguments *)warp->lane[0]->argument;
            const bool granted = allocate(warp->of, common.columns, 1);
            for (Thread *t : warp->lane) t->granted = granted;
            if (granted) write_address(warp->of, common.address);
        });
        if (self->granted) break;
        self->detail = format_text(": %u columns of tensor memory are wanted and not free", columns);
        block_polling();
        self->detail.clear();
    }
}

void op_tcgen05_dealloc(uint32_t address, uint32_t columns, uint32_t group) {
    MACHINE_ENTER(Op::tcgen05_dealloc);
    AllocationArguments mine = {address, columns};
    collective(Op::tcgen05_dealloc, 0xffffffffu, &mine, [group](Warp *) { check_group(group, false); });
    if (group == 2 && !world->options.assume.collectives_alone)
        meet_peer(Op::tcgen05_dealloc, &mine, ": it gives tensor memory back, and the pair's other CTA does not",
                  [](Cta *) { return true; });
    collective(Op::tcgen05_dealloc, 0xffffffffu, &mine, [](Warp *warp) {
        TensorSm &sm = *tensor_memory(warp->of).sm;
        const AllocationArguments common = common_arguments(warp);
        check_columns(common.columns);
        const uint32_t first = common.address;
        if (first >= COLUMNS || sm.owner[first] != warp->of || sm.allocated[first] != common.columns) {
            report("tensor-memory:dealloc", "0x%x, %u columns: this CTA has no such allocation", common.address, common.columns);
            return;
        }
        for (uint32_t c = first; c < first + common.columns; c++) {
            for (auto &half : sm.cell) {
                std::vector<uint32_t> users = half[c].read;
                if (half[c].write) users.push_back(half[c].write);
                for (uint32_t user : users) {
                    const Event &e = world->events[user];
                    if (self->seen.at(e.component) < e.clock)
                        report("race:tensor-memory", "column %u is given back and not ordered after %s", c, describe_event(user).c_str());
                }
                half[c] = TensorCell();
            }
            sm.owner[c] = nullptr;
        }
        sm.allocated[first] = 0;
        progress();
    });
}

void op_tcgen05_relinquish(uint32_t group) {
    MACHINE_ENTER(Op::tcgen05_relinquish);
    AllocationArguments none = {0, 0};
    collective(Op::tcgen05_relinquish, 0xffffffffu, &none, [group](Warp *warp) {
        check_group(group, false);
        tensor_memory(warp->of).relinquished = true;
    });
    if (group == 2 && !world->options.assume.collectives_alone)
        meet_peer(Op::tcgen05_relinquish, &none, ": it gives up its permit, and the pair's other CTA does not", [](Cta *) { return true; });
}

void tcgen05_end_of_thread(Thread *t) {
    Cta *cta = t->of;
    if (!cta->tensor_memory) return;
    TensorMemory &memory = *cta->tensor_memory;
    const auto issuer = memory.issuer.find(t->number);
    if (issuer != memory.issuer.end() && issuer->second.committed < issuer->second.count())
        report("tcgen05-commit:missing", "the thread ends with products or copies that no tcgen05.commit follows");
    memory.known_at_exit.join(t->seen);
    if (cta->alive) return;
    for (const Arrival &arrival : memory.arrivals)
        if (memory.known_at_exit.at(arrival.component) < arrival.clock)
            report("tcgen05-commit:awaited",
                   "the CTA ends and nobody has waited for the last arrivals of tcgen05.commit in its shared memory");
    for (uint32_t c = 0; c < COLUMNS; c++)
        if (memory.sm->owner[c] == cta && memory.sm->allocated[c])
            report("tensor-memory-leak", "the CTA ends with %u columns of tensor memory from column %u that it has not given back",
                   memory.sm->allocated[c], c);
}

/* ---- fences ---- */

void op_tcgen05_fence(bool after) {
    self->pc = (uint32_t)(uintptr_t)__builtin_return_address(0);
    if (after) {
        self->tensor.join(self->published);
        return;
    }
    TensorMemory &memory = tensor_memory(self->of);
    const auto issuer = memory.issuer.find(self->number);
    if (issuer != memory.issuer.end()) raise(self->published, issuer->second.issued_component, issuer->second.count());
    for (auto *ports : {&memory.loads, &memory.stores}) { /* what this thread has waited for */
        const auto port = ports->find(self->warp->number);
        if (port != ports->end()) raise(self->published, port->second.component, self->seen.at(port->second.component));
    }
}

static void wait_for(Op op, bool stores) {
    collective(op, 0xffffffffu, nullptr, [stores](Warp *warp) {
        TensorMemory &memory = tensor_memory(warp->of);
        const Port &port = port_of(stores ? memory.stores : memory.loads, warp);
        for (Thread *t : warp->lane) raise(t->seen, port.component, port.count);
        for (Thread *t : warp->lane) raise(t->tensor, port.component, port.count);
    });
}

void op_tcgen05_wait_ld(void) {
    MACHINE_ENTER(Op::tcgen05_wait_ld);
    wait_for(Op::tcgen05_wait_ld, false);
}

void op_tcgen05_wait_st(void) {
    MACHINE_ENTER(Op::tcgen05_wait_st);
    wait_for(Op::tcgen05_wait_st, true);
}

/* ---- loads and stores: numbers move at once, and count as under way until the wait ---- */

struct TransferArguments {
    uint32_t address, *registers;
};

static void transfer(Warp *warp, bool store, uint32_t lanes, uint32_t count, uint32_t pc, Op op) {
    TensorMemory &memory = tensor_memory(warp->of);
    const TransferArguments &mine = *(TransferArguments *)warp->lane[0]->argument;
    for (Thread *t : warp->lane)
        if (((TransferArguments *)t->argument)->address != mine.address)
            report("tensor-memory:warp", "lane %u comes with another address than lane 0", t->lane);
    const uint32_t quarter = warp->number % 4 * 32, columns = lanes == 32 ? count : count * 2, column = mine.address & 0xffff;
    uint32_t first = mine.address >> 16;
    if (first != quarter && !(lanes == 16 && first == quarter + 16)) {
        report("tensor-memory:lanes", "warp %u begins at lane %u: it reaches lanes %u to %u", warp->number, first, quarter, quarter + 31);
        first %= LANES - lanes + 1;
    }
    Port &port = port_of(store ? memory.stores : memory.loads, warp);
    const uint32_t event = new_event(port.component, ++port.count, pc, warp->of->number, op, EVENT_ASYNC);
    std::vector<Access> distinct; /* of lanes that know different things */
    for (Thread *t : warp->lane) {
        bool known = false;
        for (const Access &other : distinct) known |= other.who->tensor == t->tensor && other.who->seen == t->seen;
        if (!known) distinct.push_back({t, event, nullptr, false});
    }
    for (uint32_t c = column; c < column + columns; c++)
        for (uint32_t lane = first; lane < first + lanes; lane += HALF)
            for (const Access &access : distinct) touch(memory, access, lane / HALF, c, store);
    if (column + columns > COLUMNS) return;
    for (uint32_t l = 0; l < 32; l++) {
        uint32_t *registers = ((TransferArguments *)warp->lane[l]->argument)->registers;
        for (uint32_t i = 0; i < count; i++) {
            uint32_t &word = lanes == 32 ? memory.sm->value[first + l][column + i]
                             : store     ? memory.sm->value[first + l / 4 + i % 2 * 8][column + i / 2 * 4 + l % 4]
                                         : memory.sm->value[first + l / 4 + i / 2 % 2 * 8][column + i / 4 * 8 + l % 4 * 2 + i % 2];
            if (store) word = registers[i];
            else registers[i] = word;
        }
    }
}

/* lanes 32: shape 32x32b, lanes 16: 16x256b of loads, 16x128b of stores. count: registers a thread. */
void op_tcgen05_ld(uint32_t *registers, uint32_t count, uint32_t address, uint32_t lanes) {
    MACHINE_ENTER(Op::tcgen05_ld);
    TransferArguments mine = {address, registers};
    const uint32_t pc = self->pc;
    collective(Op::tcgen05_ld, 0xffffffffu, &mine, [=](Warp *warp) { transfer(warp, false, lanes, count, pc, Op::tcgen05_ld); });
}

void op_tcgen05_st(uint32_t address, const uint32_t *registers, uint32_t count, uint32_t lanes) {
    MACHINE_ENTER(Op::tcgen05_st);
    TransferArguments mine = {address, (uint32_t *)registers};
    const uint32_t pc = self->pc;
    collective(Op::tcgen05_st, 0xffffffffu, &mine, [=](Warp *warp) { transfer(warp, true, lanes, count, pc, Op::tcgen05_st); });
}

/* ---- descriptors ---- */

/* Table 40. */
static MatrixDescriptor decode_matrix(uint64_t d, const char *which) {
    static const int bits_of_code[] = {0, -1, 3, -1, 2, -1, 1, -1};
    MatrixDescriptor m;
    m.start = (uint32_t)(d & 0x3fff) << 4;
    m.leading = (uint32_t)(d >> 16 & 0x3fff) << 4;
    m.stride = (uint32_t)(d >> 32 & 0x3fff) << 4;
    m.base_offset = (uint32_t)(d >> 49 & 7);
    const uint32_t version = (uint32_t)(d >> 46 & 7), absolute = (uint32_t)(d >> 52 & 1), code = (uint32_t)(d >> 61);
    if (d & (3ull << 14 | 3ull << 30)) report("descriptor:field", "%s: bits 14, 15, 30 and 31 lie in no field", which);
    if (version != 1) report("descriptor:version", "%s: bits 46 to 48 are %u: on Blackwell they are 1", which, version);
    if (m.base_offset)
        report("descriptor:base-offset", "%s: base offset %u; the model knows tiles at the beginning of their swizzle pattern", which,
               m.base_offset);
    if (absolute) report("descriptor:absolute", "%s: an absolute leading dimension exists on sm_103a only and for 48 bytes along K", which);
    if (d >> 53 & 255) report("descriptor:zero", "%s: bits 53 to 60 are 0x%02x and must be 0", which, (unsigned)(d >> 53 & 255));
    if (bits_of_code[code] < 0)
        report("descriptor:swizzle", "%s: swizzle code %u; 0, 2, 4, 6 are known: none, 128, 64, 32 bytes", which, code);
    m.swizzle_bits = bits_of_code[code] < 0 ? 0 : (unsigned)bits_of_code[code];
    if (m.start >> 7 & ((1u << m.swizzle_bits) - 1))
        report("descriptor:pattern", "%s: start 0x%x is not at the beginning of a swizzle pattern of %u bytes", which, m.start,
               128u << m.swizzle_bits);
    return m;
}

enum class Kind { f16, f8f6f4, mxf8f6f4 };

/* Tables 42 and 43, and the shapes of table 39. */
static InstructionWord decode_word(uint32_t w, Kind kind, bool a_in_tensor_memory, uint32_t group) {
    InstructionWord i;
    const bool scaled = kind == Kind::mxf8f6f4, bytes = kind != Kind::f16;
    const auto field = [w](int first, int bits) { return w >> first & ((1u << bits) - 1); };
    i.scaled = scaled;
    i.bytes = bytes;
    i.k = bytes ? 32 : 16;
    i.a_format = field(7, 3);
    i.b_format = field(10, 3);
    i.a_negated = field(13, 1);
    i.b_negated = field(14, 1);
    i.a_transposed = field(15, 1);
    i.b_transposed = field(16, 1);
    i.n = field(17, 6) << 3;
    i.m = scaled ? field(27, 2) << 7 : field(24, 5) << 4;
    i.a_scale = scaled ? field(29, 2) : 0;
    i.b_scale = scaled ? field(4, 2) : 0;
    if (field(0, 3)) report("descriptor:word-sparsity", "instruction word 0x%08x: bits 0 to 2: the model knows dense products", w);
    if (field(3, 1)) report("descriptor:word-saturate", "instruction word 0x%08x: bit 3, saturation, is for integers", w);
    if (field(6, 1) || (scaled ? field(24, 3) || field(31, 1) : field(23, 1) || field(29, 1)))
        report("descriptor:word-reserved", "instruction word 0x%08x: reserved bits are not 0", w);
    if (scaled) {
        if (field(23, 1) != 1)
            report("descriptor:word-scale-type", "instruction word 0x%08x: bit 23: the scales of mxf8f6f4 are UE8M0, 1", w);
    } else {
        if (field(4, 2) != 1)
            report("descriptor:word-d-type", "instruction word 0x%08x: D has type code %u; the model knows float32, 1", w, field(4, 2));
        if (field(30, 2)) report("descriptor:word-shift", "instruction word 0x%08x: bits 30 and 31, a shift of B, are for .ws", w);
    }
    if (i.a_format > 1 || i.b_format > 1)
        report("descriptor:word-format", "instruction word 0x%08x: types %u and %u; the model knows 0 and 1: %s", w, i.a_format, i.b_format,
               bytes ? "E4M3 and E5M2" : "F16 and BF16");
    else if (!bytes && i.a_format != i.b_format)
        report("descriptor:word-format-pair", "instruction word 0x%08x: A and B are of different 16-bit types", w);
    if (group == 2 ? i.m != 256 : i.m != 128 && (i.m != 64 || scaled))
        report("descriptor:word-m", "instruction word 0x%08x: M %u: %s", w, i.m,
               group == 2 ? "256 of a pair; its 128 are not modelled" : scaled ? "128" : "128 or 64");
    /* of a pair's N each CTA has half */
    const uint32_t step = ((a_in_tensor_memory && i.m >= 128) || (bytes && i.b_transposed) ? 16 : 8) * group;
    if (i.n < step || i.n > 256 || i.n % step)
        report("descriptor:word-n", "instruction word 0x%08x: N %u: a multiple of %u up to 256", w, i.n, step);
    if (a_in_tensor_memory && i.a_transposed)
        report("descriptor:word-transposed-a", "instruction word 0x%08x: A in tensor memory cannot be transposed", w);
    if (i.m != 64 || group == 2) i.m = 128; /* of each CTA; whatever was said, the model stays within its bounds */
    i.n = std::min(std::max(i.n, 8 * group), 256u) / group * group;
    return i;
}

/* ---- products, copies and commits are done later ---- */

static uint32_t first_lane(uint32_t address) { return address >> 16; }
static uint32_t lane_of(uint32_t row, uint32_t m) { return m == 128 ? row : row / 16 * 32 + row % 16; } /* layouts D and F */

static void unpack_bytes(const uint8_t *from, uint32_t format, float *to) {
    static const std::vector<float> tables = [] {
        std::vector<float> t;
        for (int v = 0; v < 512; v++) t.push_back(v < 256 ? e4m3_to_float((uint8_t)v) : e5m2_to_float((uint8_t)v));
        return t;
    }();
    for (int i = 0; i < 16; i++) to[i] = tables[(format ? 256u : 0u) + from[i]];
}

static void unpack_halves(const uint8_t *from, uint32_t format, float *to) {
    for (int i = 0; i < 8; i++) {
        const uint16_t v = (uint16_t)(from[2 * i] | from[2 * i + 1] << 8);
        to[i] = format ? bf16_to_float(v) : f16_to_float(v);
    }
}

struct SharedOperand {
    const Cta *cta; /* whose shared memory */
    const MatrixDescriptor &matrix;
    uint32_t rows, format;
    bool transposed, negated;
    const char *name;
};

/* Calls element(row, k, value) for all, in units of 16 bytes. */
template <class Element> static void read_operand(const TensorOp &op, uint32_t event, const SharedOperand &o, const Element &element) {
    const uint32_t in_unit = op.word.bytes ? 16 : 8, units = (o.transposed ? o.rows : op.word.k) / in_unit,
                   lines = o.transposed ? op.word.k : o.rows;
    AsyncAccess access(op.who, event);
    float unit[16];
    for (uint32_t line = 0; line < lines; line++)
        for (uint32_t u = 0; u < units; u++) {
            const uintptr_t offset =
                shared_offset(o.cta->number, (uint32_t)(o.transposed ? mn_major(o.matrix, line, u) : k_major(o.matrix, line, u)));
            const bool there = access.read(offset, 16, o.name);
            if (world->options.protocol) continue;
            if (!there) memset(unit, 0, sizeof unit);
            else if (op.word.bytes) unpack_bytes(arena(offset), o.format, unit);
            else unpack_halves(arena(offset), o.format, unit);
            for (uint32_t i = 0; i < in_unit; i++) {
                const float v = o.negated ? -unit[i] : unit[i];
                if (o.transposed) element(u * in_unit + i, line, v);
                else element(line, u * in_unit + i, v);
            }
        }
}

/* A in tensor memory: two 16-bit elements a column. */
template <class Element>
static void read_tensor_operand(TensorMemory &memory, const TensorOp &op, const Access &access, const Element &element) {
    const uint32_t column = op.a_tensor & 0xffff, shift = first_lane(op.a_tensor) % 32;
    for (uint32_t row = 0; row < op.word.m; row += HALF)
        for (uint32_t c = column; c < column + op.word.k / 2; c++)
            touch(memory, access, (lane_of(row, op.word.m) + shift) / HALF, c, false);
    if (world->options.protocol || column + op.word.k / 2 > COLUMNS) return;
    for (uint32_t row = 0; row < op.word.m; row++)
        for (uint32_t k = 0; k < op.word.k; k++) {
            const uint16_t v = (uint16_t)(memory.sm->value[lane_of(row, op.word.m) + shift][column + k / 2] >> k % 2 * 16);
            const float f = op.word.a_format ? bf16_to_float(v) : f16_to_float(v);
            element(row, k, op.word.a_negated ? -f : f);
        }
}

/* What a UE8M0 byte stands for: exact in double precision. */
static double scale_of(int exponent) { return exponent == 255 ? NAN : ldexp(1.0, exponent - 127); }

/* The scales of `rows` rows: row r in column r / 32 of lane r % 32, the same in all four quarters of the lanes. */
static void read_scales(TensorMemory &memory, const TensorOp &op, const Access &access, uint32_t address, uint32_t rows, uint32_t id,
                        double *scale, const char *which) {
    const uint32_t column = address & 0xffff, columns = (rows + 31) / 32;
    for (uint32_t c = column; c < column + columns; c++)
        for (uint32_t half = 0; half < LANES / HALF; half++) touch(memory, access, half, c, false);
    for (uint32_t row = 0; row < rows && column + columns <= COLUMNS; row++) {
        const uint32_t word = memory.sm->value[row % 32][column + row / 32];
        scale[row] = scale_of((int)(word >> 8 * id & 255));
        if (world->options.protocol) continue;
        for (uint32_t lane = row % 32; lane < LANES; lane += 32)
            if (memory.sm->value[lane][column + row / 32] != word)
                report_at("scales", op.who, op.pc, op.op, "scales of %s: row %u has different ones in the four quarters of the lanes",
                          which, row);
    }
}

/* The rows of one CTA: all there is, or half of what a pair multiplies. */
static void multiply_rows(TensorMemory &memory, const TensorOp &op, uint32_t event, const float *b) {
    const InstructionWord &w = op.word;
    const uint32_t column = op.d & 0xffff, shift = first_lane(op.d) % 32;
    const Issuer::Started &started = op.issuer->started[op.number - 1];
    const Access access = {&op.who, event, &started, false}, accumulator = {&op.who, event, &started, true};
    static float a[LANES][32], sum[LANES][256];
    static double a_scale[LANES], b_scale[256];
    const auto set_a = [&](uint32_t row, uint32_t k, float v) { a[row][k] = v; };
    if (op.a_in_tensor_memory) read_tensor_operand(memory, op, access, set_a);
    else read_operand(op, event, {memory.of, op.a, w.m, w.a_format, w.a_transposed, w.a_negated, "A"}, set_a);
    if (w.scaled) {
        read_scales(memory, op, access, op.a_scales, w.m, w.a_scale, a_scale, "A");
        read_scales(memory, op, access, op.b_scales, w.n, w.b_scale, b_scale, "B");
    }
    for (uint32_t row = 0; row < w.m; row += HALF)
        for (uint32_t c = column; c < column + w.n; c++) {
            if (op.accumulate) touch(memory, accumulator, (lane_of(row, w.m) + shift) / HALF, c, false);
            touch(memory, accumulator, (lane_of(row, w.m) + shift) / HALF, c, true);
        }
    if (world->options.protocol || column + w.n > COLUMNS) return;
    const auto d = [&](uint32_t row) { return (float *)&memory.sm->value[lane_of(row, w.m) + shift][column]; };
    for (uint32_t row = 0; row < w.m; row++)
        for (uint32_t n = 0; n < w.n; n++) sum[row][n] = op.accumulate && !w.scaled ? d(row)[n] : 0.0f;
    for (uint32_t row = 0; row < w.m; row += 64) multiply(sum + row, a + row, b, 64, (int)w.k, (int)w.n);
    for (uint32_t row = 0; row < w.m; row++)
        for (uint32_t n = 0; n < w.n; n++)
            d(row)[n] = w.scaled ? (op.accumulate ? d(row)[n] : 0.0f) + (float)(sum[row][n] * a_scale[row] * b_scale[n]) : sum[row][n];
}

/* What is done for a pair reaches both CTAs, which must not have ended. */
static void check_alive(const TensorOp &op) {
    for (uint32_t i = 0; i < op.group && op.group == 2; i++)
        if (member(op.cta, op.group, i)->alive == 0)
            report_at("cluster-exit:pair", op.who, op.pc, op.op, "reaches CTA %u, which has ended", member(op.cta, op.group, i)->number);
}

/* B: each CTA of a pair has one half of its rows. */
static void execute_product(const TensorOp &op) {
    const InstructionWord &w = op.word;
    const uint32_t event = new_event(op.issuer->component, op.number, op.pc, op.cta->number, Op::tcgen05_mma, EVENT_ASYNC),
                   rows = w.n / op.group;
    static float b[32 * 256];
    check_alive(op);
    for (uint32_t i = 0; i < op.group; i++)
        read_operand(op, event, {member(op.cta, op.group, i), op.b, rows, w.b_format, w.b_transposed, w.b_negated, "B"},
                     [&](uint32_t row, uint32_t k, float v) { b[k * w.n + i * rows + row] = v; });
    for (uint32_t i = 0; i < op.group; i++) multiply_rows(tensor_memory(member(op.cta, op.group, i)), op, event, b);
}

/* From each CTA's shared memory to its tensor memory. */
static void execute_copy(const TensorOp &op) {
    const uint32_t event = new_event(op.issuer->component, op.number, op.pc, op.cta->number, Op::tcgen05_cp, EVENT_ASYNC),
                   column = op.d & 0xffff;
    const Access access = {&op.who, event, &op.issuer->started[op.number - 1], false};
    check_alive(op);
    for (uint32_t i = 0; i < op.group; i++) {
        TensorMemory &memory = tensor_memory(member(op.cta, op.group, i));
        for (uint32_t c = column; c < column + 4; c++)
            for (uint32_t half = 0; half < LANES / HALF; half++) touch(memory, access, half, c, true);
        for (uint32_t row = 0; row < 32; row++) {
            const uintptr_t offset = shared_offset(memory.of->number, (uint32_t)k_major(op.a, row, 0));
            if (!async_read(op.who, event, offset, 16, "source") || column + 4 > COLUMNS) continue;
            for (uint32_t lane = row; lane < LANES; lane += 32) memcpy(&memory.sm->value[lane][column], arena(offset), 16);
        }
    }
}

static void arrive(TensorOp &op) {
    for (size_t i = 0; i < op.targets.size(); i++) {
        Cta *target = op.targets[i];
        Slot &slot = op.cta->slot[op.slots[i]];
        Observer who = op.who;
        who.seen.raise(slot.component, slot.clock);
        slot.busy = false;
        if (target->alive == 0 && target != op.cta)
            report_at("cluster-exit:commit", op.who, op.pc, op.op, "arrives at an mbarrier of CTA %u, which has ended", target->number);
        mbarrier_async_arrive(target, op.barrier, op.issuer->component, op.number, who);
    }
}

/* Whether nothing that is still to be done must come before it. */
static bool may_run(const TensorOp &op, const TensorOp &before) {
    if (before.op == Op::tcgen05_commit) return true;
    if (op.op == Op::tcgen05_commit) return before.issuer != op.issuer || before.number > op.number;
    if (!pipelined(before.issuer->started[before.number - 1], op.issuer->started[op.number - 1])) return true;
    return before.issuer != op.issuer && op.who.tensor.at(before.issuer->issued_component) < before.number;
}

/* One action for each thing to be done; which one it does is decided then. */
struct TensorAction : Action {
    Cta *cta;
    void run() override {
        TensorMemory &memory = *cta->tensor_memory;
        std::vector<size_t> ready;
        for (size_t i = 0; i < memory.pending.size(); i++) {
            bool may = true;
            for (size_t j = 0; j < i && may; j++) may = may_run(*memory.pending[i], *memory.pending[j]);
            if (may) ready.push_back(i);
        }
        const size_t at = ready[random_below((uint32_t)ready.size())];
        const std::unique_ptr<TensorOp> op = std::move(memory.pending[at]);
        memory.pending.erase(memory.pending.begin() + (long)at);
        if (op->op == Op::tcgen05_mma) execute_product(*op);
        else if (op->op == Op::tcgen05_cp) execute_copy(*op);
        else arrive(*op);
        progress();
    }
};

static TensorOp *start(Op op, uint32_t group) {
    check_group(group, true);
    TensorOp *work = new TensorOp();
    work->group = group;
    work->op = op;
    work->issuer = &issuer_of(self);
    work->pc = self->pc;
    work->cta = self->of;
    return work;
}

static void enqueue(TensorOp *work, uint32_t shape) {
    Thread *t = self;
    Issuer &issuer = *work->issuer;
    if (work->op != Op::tcgen05_commit) issuer.started.push_back({work->op, work->d, shape});
    work->number = issuer.count();
    work->who = *t;
    t->seen.raise(issuer.issued_component, issuer.count());
    t->now++;
    tensor_memory(t->of).pending.emplace_back(work);
    TensorAction *action = new TensorAction();
    action->cta = t->of;
    add_action(action);
}

static void check_lane(uint32_t address, uint32_t m, const char *which) {
    const uint32_t lane = first_lane(address);
    if (lane != 0 && !(m == 64 && lane == 16))
        report("tensor-memory:lanes", "%s begins at lane %u: %s", which, lane, m == 64 ? "0 or 16" : "0");
}

static void start_product(uint32_t d, uint64_t a, uint32_t a_tensor, bool a_in_tensor_memory, uint64_t b, uint32_t word, Kind kind,
                          uint32_t a_scales, uint32_t b_scales, bool accumulate, uint32_t group) {
    TensorOp *work = start(Op::tcgen05_mma, group);
    work->word = decode_word(word, kind, a_in_tensor_memory, group);
    const uint32_t k_units = work->word.k / (work->word.bytes ? 16 : 8);
    if (!a_in_tensor_memory) work->a = decode_matrix(a, "descriptor of A");
    work->b = decode_matrix(b, "descriptor of B");
    if (!a_in_tensor_memory && !work->word.a_transposed) check_k_span(work->a, k_units, "descriptor of A");
    if (!work->word.b_transposed) check_k_span(work->b, k_units, "descriptor of B");
    check_lane(d, work->word.m, "D");
    if (a_in_tensor_memory) {
        check_lane(a_tensor, work->word.m, "A");
        if (first_lane(a_tensor) != first_lane(d)) report("tensor-memory:lanes", "A and D begin at different lanes");
    }
    if (kind == Kind::mxf8f6f4) {
        check_lane(a_scales, 128, "the scales of A");
        check_lane(b_scales, 128, "the scales of B");
    }
    work->d = d;
    work->a_tensor = a_tensor;
    work->a_in_tensor_memory = a_in_tensor_memory;
    work->a_scales = a_scales;
    work->b_scales = b_scales;
    work->accumulate = accumulate;
    enqueue(work, (uint32_t)kind << 24 | work->word.m << 12 | work->word.n);
}

void op_tcgen05_mma_f16(uint32_t d, uint64_t a, bool a_in_tensor_memory, uint64_t b, uint32_t word, bool accumulate, uint32_t group) {
    MACHINE_ENTER(Op::tcgen05_mma);
    start_product(d, a, (uint32_t)a, a_in_tensor_memory, b, word, Kind::f16, 0, 0, accumulate, group);
}

void op_tcgen05_mma_f8f6f4(uint32_t d, uint64_t a, uint64_t b, uint32_t word, bool accumulate) {
    MACHINE_ENTER(Op::tcgen05_mma);
    start_product(d, a, 0, false, b, word, Kind::f8f6f4, 0, 0, accumulate, 1);
}

void op_tcgen05_mma_mxf8f6f4(uint32_t d, uint64_t a, uint64_t b, uint32_t word, uint32_t a_scales, uint32_t b_scales, bool accumulate,
                             uint32_t group) {
    MACHINE_ENTER(Op::tcgen05_mma);
    start_product(d, a, 0, false, b, word, Kind::mxf8f6f4, a_scales, b_scales, accumulate, group);
}

void op_tcgen05_cp(uint32_t address, uint64_t source, uint32_t group) {
    MACHINE_ENTER(Op::tcgen05_cp);
    TensorOp *work = start(Op::tcgen05_cp, group);
    work->a = decode_matrix(source, "descriptor of the source");
    work->d = address;
    check_lane(address, 128, "the destination");
    enqueue(work, 0);
}

void op_tcgen05_commit(uint32_t barrier, uint32_t mask, bool multicast, uint32_t group) {
    MACHINE_ENTER(Op::tcgen05_commit);
    Cta *cta = cta_of_address(barrier);
    const Cluster &cluster = *self->of->cluster;
    if (multicast && (mask == 0 || mask >> cluster.size)) {
        report("multicast", "mask 0x%x in a cluster of %u", mask, cluster.size);
        stop_launch();
    }
    TensorOp *work = start(Op::tcgen05_commit, group);
    work->barrier = barrier & ((1u << RANK_SHIFT) - 1);
    for (uint32_t rank = 0; rank < cluster.size; rank++) {
        if (multicast ? !(mask >> rank & 1) : rank != cta->rank) continue;
        find_mbarrier(work->barrier | rank << RANK_SHIFT, false, *self);
        work->targets.push_back(world->cta[cluster.first + rank].get());
    }
    for (Cta *target : work->targets) {
        const Slot &slot = take_slot(self->of, *self);
        work->slots.push_back((uint32_t)(&slot - self->of->slot.data()));
        std::vector<Arrival> &arrivals = tensor_memory(target).arrivals;
        arrivals.erase(
            std::remove_if(arrivals.begin(), arrivals.end(), [](const Arrival &a) { return self->seen.at(a.component) >= a.clock; }),
            arrivals.end());
        arrivals.push_back({slot.component, slot.clock});
    }
    work->issuer->committed = work->issuer->count();
    enqueue(work, 0);
}

} // namespace machine
