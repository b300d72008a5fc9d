/* The machine model's copy engine: tensor maps, bulk tensor loads, stores and reductions, bulk groups. */
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>

#include "internal.h"

namespace machine {

/* ---- tensor maps ---- */

struct TensorMap { /* what the model keeps in a CUtensorMap */
    uint64_t base;
    uint64_t stride[4]; /* bytes, of dimensions 1 to 4 */
    uint32_t dim[5];
    uint16_t box[5];
    uint16_t magic;
    uint8_t type, rank, swizzle, element_bytes;
};
static_assert(sizeof(TensorMap) <= sizeof(CUtensorMap), "a tensor map has 128 bytes");
constexpr uint16_t MAGIC = 0x7e45;

static std::string refusal;
const char *encode_error(void) { return refusal.c_str(); }

static const uint8_t element_bytes_of[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};

CUresult tensor_map_encode(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *dims,
                           const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *element_strides,
                           CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                           CUtensorMapFloatOOBfill fill) {
    refusal.clear();
#define RULE(holds, ...)                                                                                                                   \
    do {                                                                                                                                   \
        if (!(holds)) {                                                                                                                    \
            refusal = format_text(__VA_ARGS__);                                                                                            \
            return CUDA_ERROR_INVALID_VALUE;                                                                                               \
        }                                                                                                                                  \
    } while (0)
    static const uint32_t swizzle_bytes[] = {~0u, 32, 64, 128};
    RULE((uintptr_t)map % 64 == 0, "the map itself lies at %p: it must be 64-byte aligned", (void *)map);
    RULE((unsigned)type < sizeof element_bytes_of, "data type %d", (int)type);
    RULE(rank >= 1 && rank <= 5, "rank %u: 1 to 5", rank);
    RULE((uintptr_t)address % 16 == 0 && address, "global address %p: a multiple of 16", address);
    RULE(interleave == CU_TENSOR_MAP_INTERLEAVE_NONE, "interleave %d: the model knows NONE", (int)interleave);
    RULE((unsigned)swizzle <= 3, "swizzle %d: the model knows NONE, 32B, 64B and 128B", (int)swizzle);
    RULE((unsigned)promotion <= 3, "L2 promotion %d", (int)promotion);
    RULE(fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE, "OOB fill %d: the model knows zeros", (int)fill);
    const uint32_t element = element_bytes_of[type];
    for (uint32_t i = 0; i < rank; i++) {
        RULE(dims[i] >= 1 && dims[i] <= (1ull << 32), "dimension %u has size %lu: 1 to 2^32", i, (unsigned long)dims[i]);
        RULE(box[i] >= 1 && box[i] <= 256, "box dimension %u is %u: 1 to 256", i, box[i]);
        RULE(element_strides[i] == 1, "element stride %u is %u: the model knows 1", i, element_strides[i]);
        if (i + 1 < rank) {
            RULE(strides[i] % 16 == 0 && strides[i] < (1ull << 40), "stride %u is %lu bytes: a multiple of 16 below 2^40", i,
                 (unsigned long)strides[i]);
        }
    }
    /* In whatever order: a view by blocks of columns has rows further apart than blocks. */
    std::vector<std::pair<uint64_t, uint32_t>> by_stride = {{element, 0}};
    for (uint32_t i = 1; i < rank; i++) by_stride.push_back({strides[i - 1], i});
    std::sort(by_stride.begin() + 1, by_stride.end());
    for (uint32_t i = 1; i < rank; i++)
        RULE(by_stride[i].first >= by_stride[i - 1].first * dims[by_stride[i - 1].second],
             "dimension %u of stride %lu bytes lies within what dimension %u spans", by_stride[i].second, (unsigned long)by_stride[i].first,
             by_stride[i - 1].second);
    RULE(box[0] * element % 16 == 0, "the box's inner side is %u bytes: a multiple of 16", box[0] * element);
    RULE(box[0] * element <= swizzle_bytes[swizzle], "the box's inner side is %u bytes: at most the swizzle's %u", box[0] * element,
         swizzle_bytes[swizzle]);
#undef RULE
    TensorMap m = TensorMap();
    m.base = (uint64_t)(uintptr_t)address;
    m.magic = MAGIC;
    m.type = (uint8_t)type;
    m.rank = (uint8_t)rank;
    m.swizzle = (uint8_t)swizzle;
    m.element_bytes = (uint8_t)element;
    for (uint32_t i = 0; i < 5; i++) {
        m.dim[i] = i < rank ? (uint32_t)std::min<uint64_t>(dims[i], 0xffffffffu) : 1;
        m.box[i] = i < rank ? (uint16_t)box[i] : 1;
        if (i && i < rank) m.stride[i - 1] = strides[i - 1];
    }
    memset(map, 0, sizeof *map);
    memcpy(map, &m, sizeof m);
    return CUDA_SUCCESS;
}

/* What an mbarrier counts. */
static uint32_t box_bytes(const TensorMap &m) {
    uint32_t bytes = m.element_bytes;
    for (int i = 0; i < m.rank; i++) bytes *= m.box[i];
    return bytes;
}

/* Bits 4 to 6 of a shared address are exclusive-ored with bits 7 to 9, as far as the swizzle reaches. */
uintptr_t swizzle_address(uintptr_t address, unsigned swizzle_bits) { return address ^ ((address >> 7 & ((1u << swizzle_bits) - 1)) << 4); }
static unsigned swizzle_bits_of(const TensorMap &m) { return m.swizzle; /* NONE 0, 32B 1, 64B 2, 128B 3 */ }

/* A row of a box: `row` its first shared byte before the swizzle; [begin, end) the bytes of it that lie inside of the tensor, at `global`
   on. */
struct BoxRow {
    uintptr_t row;
    uint32_t begin, end;
    uint64_t global;
};

static uint32_t row_bytes(const TensorMap &m) { return (uint32_t)m.box[0] * m.element_bytes; }
static uint64_t tensor_bytes(const TensorMap &m) {
    uint64_t bytes = (uint64_t)m.dim[0] * m.element_bytes;
    for (int i = 1; i < m.rank; i++) bytes += (uint64_t)(m.dim[i] - 1) * m.stride[i - 1];
    return bytes;
}
/* From row to row in shared memory: rows shorter than the swizzle leave the rest of its bytes alone (recorded/). */
static uint32_t row_pitch(const TensorMap &m) { return m.swizzle ? 16u << m.swizzle : row_bytes(m); }
static uint32_t tile_bytes(const TensorMap &m) { return box_bytes(m) / row_bytes(m) * row_pitch(m); }

/* Calls visit(BoxRow) in the box's order. */
template <class Visit> static void each_row(const TensorMap &m, const int32_t *coordinate, uintptr_t shared, const Visit &visit) {
    const int64_t first = std::min<int64_t>(std::max<int64_t>(-(int64_t)coordinate[0], 0), m.box[0]);
    const int64_t last = std::max<int64_t>(first, std::min<int64_t>((int64_t)m.dim[0] - coordinate[0], m.box[0]));
    BoxRow r = {shared, 0, 0, 0};
    for (uint32_t at[5] = {0, 0, 0, 0, 0};;) {
        bool inside = true;
        r.global = m.base - ARENA + (uint64_t)(coordinate[0] + first) * m.element_bytes;
        for (int i = 1; i < m.rank; i++) {
            const int64_t c = (int64_t)coordinate[i] + (int64_t)at[i];
            inside &= c >= 0 && c < (int64_t)m.dim[i];
            r.global += (uint64_t)c * m.stride[i - 1];
        }
        r.begin = (uint32_t)first * m.element_bytes;
        r.end = inside ? (uint32_t)last * m.element_bytes : r.begin;
        visit(r);
        r.row += row_pitch(m);
        int i = 1;
        while (i < m.rank && ++at[i] == m.box[i]) at[i++] = 0;
        if (i >= m.rank) break;
    }
}

uint32_t bytes_of_box(const CUtensorMap &map) {
    TensorMap m;
    memcpy(&m, &map, sizeof m);
    return box_bytes(m);
}

/* Calls visit(shared offset, first byte of the row, bytes) for the pieces of [begin, end) of a row that the swizzle keeps together. */
template <class Visit> static void each_unit(const TensorMap &m, uintptr_t row, uint32_t begin, uint32_t end, const Visit &visit) {
    while (begin < end) {
        const uint32_t bytes = std::min(end, begin / 16 * 16 + 16) - begin;
        visit(swizzle_address(row + begin, swizzle_bits_of(m)), begin, bytes);
        begin += bytes;
    }
}

/* Whether rows are as long as the swizzle, so that it moves nothing out of them. */
static bool rows_are_closed(const TensorMap &m) { return row_bytes(m) == row_pitch(m); }

static TensorMap read_map(const CUtensorMap *map, uint32_t rank) {
    TensorMap m;
    memcpy(&m, map, sizeof m);
    if ((uintptr_t)map % 64) report("tensor-map:aligned", "the map lies at %p: it must be 64-byte aligned", (const void *)map);
    if (m.magic != MAGIC) {
        report("tensor-map:encoded", "this is no encoded tensor map");
        stop_launch();
    }
    if (m.rank != rank) {
        report("tensor-map:rank", "%u coordinates for a map of rank %u", rank, m.rank);
        stop_launch();
    }
    return m;
}

/* Seen on an H200 (recorded/): anything else is an illegal instruction. */
static void check_coordinates(const TensorMap &m, const int32_t *coordinate, bool store) {
    if ((int64_t)coordinate[0] * m.element_bytes % 16)
        report("tensor-map:innermost", "innermost coordinate %d of %u-byte elements: a multiple of 16 bytes", coordinate[0],
               m.element_bytes);
    for (uint32_t i = 0; store && i < m.rank; i++)
        if (coordinate[i] < 0)
            report("tensor-map:store", "coordinate %u of a store is %d: a store may end behind the tensor, not begin before it", i,
                   coordinate[i]);
}

static void check_shared_tile(const TensorMap &m, uint32_t address) {
    static const uint32_t pattern[] = {128, 256, 512, 1024};
    if (address % pattern[m.swizzle])
        report("misaligned:tile", "shared address 0x%x of a tile with swizzle %u: a multiple of %u", address & 0xffffff,
               m.swizzle ? 16u << m.swizzle : 0, pattern[m.swizzle]);
    if ((address & 0xffffff) + tile_bytes(m) > SHARED_RESERVED + world->launch.dynamic_shared)
        report("out-of-bounds:tile", "a tile of %u bytes ends behind the CTA's shared memory", tile_bytes(m));
}

struct SlotRef {
    Cta *cta;
    uint32_t index;
    Slot &operator*() const { return cta->slot[index]; }
    Slot *operator->() const { return &cta->slot[index]; }
};

static SlotRef slot_ref(Cta *cta, const Observer &issuer) {
    Slot &slot = take_slot(cta, issuer);
    return {cta, (uint32_t)(&slot - cta->slot.data())};
}

/* A load into one CTA of the cluster. */
struct LoadAction : Action {
    TensorMap map;
    int32_t coordinate[5];
    Observer issuer;
    uint32_t pc;
    Cta *destination, *counts; /* whose barrier it is */
    uint32_t offset, barrier;
    SlotRef slot;
    void run() override {
        const uint32_t event = new_event(slot->component, slot->clock, pc, issuer.cta, Op::tma_load, EVENT_ASYNC);
        const bool numbers = !world->options.protocol;
        if (destination->alive == 0)
            report_at("cluster-exit:copy", issuer, pc, Op::tma_load, "the bytes land in CTA %u, which has ended", destination->number);
        AsyncAccess reads(issuer, event), writes(issuer, event);
        const uintptr_t to = shared_offset(destination->number, offset);
        const bool closed = rows_are_closed(map);
        if (closed) writes.write(to, box_bytes(map), "destination");
        const uintptr_t first = map.base - ARENA;
        if (numbers || !closed || !reads.constant(first, first + tensor_bytes(map) - 1)) copy_rows(reads, writes, to);
        slot->busy = false;
        if (counts->alive == 0)
            report_at("cluster-exit:copy", issuer, pc, Op::tma_load, "the bytes are counted in CTA %u, which has ended", counts->number);
        mbarrier_complete_bytes(counts, barrier, box_bytes(map), slot->component, slot->clock);
    }
    void copy_rows(AsyncAccess &reads, AsyncAccess &writes, uintptr_t to) {
        const bool closed = rows_are_closed(map), numbers = !world->options.protocol;
        each_row(map, coordinate, to, [&](const BoxRow &r) {
            const bool readable = r.begin == r.end || reads.read(r.global, r.end - r.begin, "source");
            if (!closed)
                each_unit(map, r.row, 0, row_bytes(map),
                          [&](uintptr_t unit, uint32_t, uint32_t bytes) { writes.write(unit, bytes, "destination"); });
            if (!numbers) return;
            each_unit(map, r.row, 0, row_bytes(map), [&](uintptr_t unit, uint32_t, uint32_t bytes) { memset(arena(unit), 0, bytes); });
            if (readable)
                each_unit(map, r.row, r.begin, r.end,
                          [&](uintptr_t unit, uint32_t at, uint32_t bytes) { memcpy(arena(unit), arena(r.global + at - r.begin), bytes); });
        });
    }
};

void op_tma_load(uint32_t destination, const CUtensorMap *map, uint32_t rank, const int32_t *coordinate, uint32_t barrier,
                 uint32_t multicast_mask, bool multicast, bool pair) {
    MACHINE_ENTER(Op::tma_load);
    needed();
    record_copy(Did::tma_load, destination, barrier, map, rank, coordinate, multicast_mask, multicast);
    const TensorMap m = read_map(map, rank);
    Cta *target = cta_of_address(destination), *barrier_cta = cta_of_address(barrier);
    find_mbarrier(barrier, true, *self);
    check_shared_tile(m, destination);
    check_coordinates(m, coordinate, false);
    if (target != barrier_cta && !(pair && (target->rank ^ 1) == barrier_cta->rank))
        report("mbarrier:place", "the tile goes to rank %u and its bytes are counted in rank %u", target->rank, barrier_cta->rank);
    Cluster &cluster = *self->of->cluster;
    if (multicast && (multicast_mask == 0 || multicast_mask >> cluster.size)) {
        report("multicast", "mask 0x%x in a cluster of %u", multicast_mask, cluster.size);
        stop_launch();
    }
    const Observer issuer = *self;
    self->now++;
    for (uint32_t rank_ = 0; rank_ < cluster.size; rank_++) {
        Cta *to = world->cta[cluster.first + rank_].get();
        if (multicast ? !(multicast_mask >> rank_ & 1) : to != target) continue;
        /* of a pair, both CTAs' bytes are counted in the one whose rank is even as the barrier's is, or odd */
        Cta *counts = pair ? world->cta[cluster.first + ((rank_ & ~1u) | (barrier_cta->rank & 1))].get() : to;
        if (multicast && counts != self->of) {
            const uint32_t there = (barrier & 0xffffff) | counts->rank << RANK_SHIFT;
            find_mbarrier(there, true, *self);
        }
        LoadAction *action = new LoadAction();
        action->map = m;
        std::copy(coordinate, coordinate + rank, action->coordinate);
        action->issuer = issuer;
        action->pc = self->pc;
        action->destination = to;
        action->counts = counts;
        action->offset = destination & 0xffffff;
        action->barrier = barrier & 0xffffff;
        action->slot = slot_ref(self->of, issuer);
        add_action(action);
    }
}

/* Plain bytes, no tensor map. */
struct BulkLoadAction : Action {
    Observer issuer;
    uint32_t pc, bytes, offset, barrier;
    uintptr_t source;
    Cta *destination;
    SlotRef slot;
    void run() override {
        const uint32_t event = new_event(slot->component, slot->clock, pc, issuer.cta, Op::bulk_load, EVENT_ASYNC);
        const uintptr_t to = shared_offset(destination->number, offset);
        if (destination->alive == 0)
            report_at("cluster-exit:copy", issuer, pc, Op::bulk_load, "the bytes land in CTA %u, which has ended", destination->number);
        if (async_write(issuer, event, to, bytes, "destination") && async_read(issuer, event, source, bytes, "source") &&
            !world->options.protocol)
            memcpy(arena(to), arena(source), bytes);
        slot->busy = false;
        mbarrier_complete_bytes(destination, barrier, bytes, slot->component, slot->clock);
    }
};

void op_bulk_load(uint32_t destination, const void *source, uint32_t bytes, uint32_t barrier) {
    MACHINE_ENTER(Op::bulk_load);
    needed();
    record(Did::bulk_load, destination, bytes, (uint64_t)(uintptr_t)source, barrier);
    Cta *target = cta_of_address(destination);
    find_mbarrier(barrier, true, *self);
    const uintptr_t from = (uintptr_t)source - ARENA;
    if (from < GLOBAL || from >= ARENA_BYTES) {
        report("out-of-bounds:global", "the source %p is not in global memory", source);
        stop_launch();
    }
    if (destination % 16 || from % 16 || bytes % 16 || bytes == 0)
        report("misaligned:bulk", "destination 0x%x, source %p, %u bytes: multiples of 16", destination & 0xffffff, source, bytes);
    if (cta_of_address(barrier) != target) report("mbarrier:place", "the bytes go to one CTA and are counted in another");
    BulkLoadAction *action = new BulkLoadAction();
    action->issuer = *self;
    action->pc = self->pc;
    action->bytes = bytes;
    action->offset = destination & 0xffffff;
    action->barrier = barrier & 0xffffff;
    action->source = from;
    action->destination = target;
    action->slot = slot_ref(self->of, *self);
    self->now++;
    add_action(action);
}

/* ---- st.async: ordinary writes to shared memory of the cluster that are done later and counted on an mbarrier there ---- */

/* Those of a warp that are counted on one mbarrier, done in their order. */
struct StoreQueue {
    struct Store {
        Observer issuer;
        uint32_t pc, offset, bytes, counted, clock; /* counted: on the mbarrier */
        uint8_t value[16];
    };
    uint32_t barrier; /* shared address */
    Cta *destination;
    uint32_t component, clock = 0;
    bool scheduled = false;
    std::deque<Store> stores;
};
Warp::Warp() {}
Warp::~Warp() {}

struct StoreQueueAction : Action {
    StoreQueue *queue;
    void run() override {
        const bool some = world->options.schedule == Schedule::random;
        for (size_t count = some ? 1 + random_below((uint32_t)queue->stores.size()) : queue->stores.size(); count; count--) {
            const StoreQueue::Store s = queue->stores.front();
            queue->stores.pop_front();
            const uint32_t event = new_event(queue->component, s.clock, s.pc, s.issuer.cta, Op::st_async, 0);
            if (queue->destination->alive == 0)
                report_at("cluster-exit:copy", s.issuer, s.pc, Op::st_async, "the bytes land in CTA %u, which has ended",
                          queue->destination->number);
            const uintptr_t to = shared_offset(queue->destination->number, s.offset);
            if (AsyncAccess(s.issuer, event).store(to, s.bytes)) memcpy(arena(to), s.value, s.bytes);
            mbarrier_complete_bytes(queue->destination, queue->barrier & 0xffffff, s.counted, queue->component, s.clock);
        }
        queue->scheduled = false;
        queue_stores(queue);
    }
    static void queue_stores(StoreQueue *queue) {
        if (queue->scheduled || queue->stores.empty()) return;
        queue->scheduled = true;
        StoreQueueAction *action = new StoreQueueAction();
        action->queue = queue;
        add_action(action);
    }
};

static StoreQueue *store_queue(Warp *warp, uint32_t barrier, Cta *destination) {
    for (auto &queue : warp->store_queues)
        if (queue->barrier == barrier) return queue.get();
    warp->store_queues.emplace_back(new StoreQueue());
    StoreQueue *queue = warp->store_queues.back().get();
    queue->barrier = barrier;
    queue->destination = destination;
    queue->component = new_component();
    return queue;
}

/* Lanes that send at this place, this one and those that do not run: their bytes are counted with those of the first one that runs. */
static uint32_t senders(void) {
    const std::pair<uint32_t, uint32_t> place(self->warp->number, self->pc);
    if (world->all_lanes) {
        world->result.lanes.sending[place] |= 1u << self->lane;
        return 1;
    }
    if (world->options.replay) return self->senders;
    const auto found = world->options.lanes->sending.find(place);
    if (found == world->options.lanes->sending.end()) return 1;
    const uint32_t all = found->second, running = all & self->warp->running;
    return (int)self->lane == __builtin_ctz(running) ? 1 + (uint32_t)__builtin_popcount(all & ~running) : 1;
}

void op_st_async(uint32_t address, const void *value, uint32_t bytes, uint32_t barrier) {
    MACHINE_ENTER(Op::st_async);
    Cta *target = cta_of_address(address);
    find_mbarrier(barrier, true, *self);
    if (address % bytes) report("misaligned:access", "%u bytes at shared address 0x%x", bytes, address & 0xffffff);
    if (cta_of_address(barrier) != target) {
        report("mbarrier:place", "the bytes go to rank %u and are counted in rank %u", target->rank, cta_of_address(barrier)->rank);
        stop_launch();
    }
    StoreQueue *queue = store_queue(self->warp, barrier, target);
    StoreQueue::Store store;
    store.issuer = *self;
    store.pc = self->pc;
    store.offset = address & 0xffffff;
    store.bytes = bytes;
    const uint32_t lanes = senders();
    record(Did::st_async, address, bytes, barrier, lanes);
    store.counted = bytes * lanes;
    store.clock = ++queue->clock;
    memcpy(store.value, value, bytes);
    queue->stores.push_back(store);
    self->now++;
    StoreQueueAction::queue_stores(queue);
}

/* A store or reduction: it reads shared memory at one time and writes global memory at a later one. */
struct StoreWrite : Action {
    TensorMap map;
    int32_t coordinate[5];
    Observer issuer;
    uint32_t pc;
    Op op;
    uintptr_t source;
    std::vector<uint8_t> data;
    SlotRef slot;
    BulkGroup *group;
    Thread *thread;
    void reduce(uintptr_t to, uint32_t bytes, const uint8_t *from) const {
        for (uint32_t i = 0; i < bytes; i += map.element_bytes) {
            if (map.type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32) {
                float a, b;
                memcpy(&a, arena(to + i), 4);
                memcpy(&b, from + i, 4);
                a += b;
                memcpy(arena(to + i), &a, 4);
            } else { /* bf16: the exact sum of two rounded to nearest even */
                uint16_t a, b;
                memcpy(&a, arena(to + i), 2);
                memcpy(&b, from + i, 2);
                uint32_t x = (uint32_t)a << 16, y = (uint32_t)b << 16, z;
                float fx, fy;
                memcpy(&fx, &x, 4);
                memcpy(&fy, &y, 4);
                fx += fy;
                memcpy(&z, &fx, 4);
                z += 0x7fff + (z >> 16 & 1);
                a = (uint16_t)(z >> 16);
                memcpy(arena(to + i), &a, 2);
            }
        }
    }
    void run() override {
        const uint32_t event =
            new_event(slot->component, slot->clock, pc, issuer.cta, op, (uint8_t)(EVENT_ASYNC | (op == Op::tma_reduce ? EVENT_ATOMIC : 0)));
        size_t at = 0;
        AsyncAccess writes(issuer, event);
        each_row(map, coordinate, source, [&](const BoxRow &r) {
            const uint32_t bytes = r.end - r.begin;
            if (bytes && writes.write(r.global, bytes, "destination") && !data.empty()) {
                if (op == Op::tma_reduce) reduce(r.global, bytes, &data[at]);
                else memcpy(arena(r.global), &data[at], bytes);
            }
            at += bytes;
        });
        slot->busy = false;
        group->writes--;
        progress();
        wake(thread, group);
    }
};

struct StoreRead : Action {
    StoreWrite *write;
    SlotRef slot;
    ~StoreRead() override { delete write; }
    void run() override {
        const uint32_t event = new_event(slot->component, slot->clock, write->pc, write->issuer.cta, write->op, EVENT_ASYNC);
        AsyncAccess reads(write->issuer, event);
        const TensorMap &map = write->map;
        each_row(map, write->coordinate, write->source, [&](const BoxRow &r) {
            const bool closed = r.end - r.begin == row_bytes(map) && rows_are_closed(map);
            if (closed) reads.read(r.row, row_bytes(map), "source");
            if (closed && world->options.protocol) return;
            each_unit(map, r.row, r.begin, r.end, [&](uintptr_t unit, uint32_t, uint32_t bytes) {
                if (!closed) reads.read(unit, bytes, "source");
                if (!world->options.protocol) write->data.insert(write->data.end(), arena(unit), arena(unit) + bytes);
            });
        });
        slot->busy = false;
        write->group->reads--;
        progress();
        wake(write->thread, write->group);
        StoreWrite *next = write;
        write = nullptr;
        add_action(next);
    }
};

void op_tma_store(const CUtensorMap *map, uint32_t rank, const int32_t *coordinate, uint32_t source, bool reduce) {
    MACHINE_ENTER(reduce ? Op::tma_reduce : Op::tma_store);
    needed();
    record_copy(Did::tma_store, source, reduce, map, rank, coordinate, 0, false);
    const TensorMap m = read_map(map, rank);
    if (cta_of_address(source) != self->of) {
        report("out-of-bounds:window", "the source of a store lies in another CTA");
        stop_launch();
    }
    check_shared_tile(m, source);
    check_coordinates(m, coordinate, true);
    if (reduce && m.type != CU_TENSOR_MAP_DATA_TYPE_FLOAT32 && m.type != CU_TENSOR_MAP_DATA_TYPE_BFLOAT16)
        report("tensor-map:type", "the model adds float32 and bfloat16 only");
    if (!self->open_group) self->open_group = new BulkGroup();
    StoreWrite *write = new StoreWrite();
    write->map = m;
    std::copy(coordinate, coordinate + rank, write->coordinate);
    write->issuer = *self;
    write->pc = self->pc;
    write->op = self->op;
    write->source = shared_offset(self->cta, source & 0xffffff);
    write->thread = self;
    BulkGroup *group = write->group = self->open_group;
    StoreRead *read = new StoreRead();
    read->write = write;
    read->slot = slot_ref(self->of, *self);
    write->slot = slot_ref(self->of, *self);
    group->reads++;
    group->writes++;
    group->read_parts.push_back({read->slot->component, read->slot->clock});
    group->write_parts.push_back({write->slot->component, write->slot->clock});
    self->now++;
    add_action(read);
}

void op_bulk_commit(void) {
    MACHINE_ENTER(Op::bulk_commit);
    needed();
    record(Did::bulk_commit);
    self->groups.push_back(self->open_group ? self->open_group : new BulkGroup());
    self->open_group = nullptr;
}

void op_bulk_wait(uint32_t pending, bool read) {
    MACHINE_ENTER(read ? Op::bulk_wait_read : Op::bulk_wait);
    record(Did::bulk_wait, pending, read);
    Thread *t = self;
    const size_t due = t->groups.size() > pending ? t->groups.size() - pending : 0;
    for (size_t i = 0; i < due; i++) {
        BulkGroup *g = t->groups[i];
        while (g->reads || (!read && g->writes)) {
            block("its bulk copies", g);
        }
        for (auto &part : g->read_parts) t->seen.raise(part.first, part.second);
        if (!read)
            for (auto &part : g->write_parts) t->seen.raise(part.first, part.second);
    }
    t->now++;
    if (read) return; /* the groups stay until their writes are waited for, or done */
    for (size_t i = 0; i < due; i++) {
        delete t->groups.front();
        t->groups.erase(t->groups.begin());
    }
}

} // namespace machine
