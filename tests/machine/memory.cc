/* The machine model's memory: shadow cells, vector clocks, reports, and the hooks through which compiled kernels are seen. */
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>

#include "internal.h"

namespace machine {

State_ *world;
Thread *self;

const char *op_text(Op op) {
    static const char *const texts[] = {
#define X(name, text) text,
        MACHINE_OPERATIONS(X)
#undef X
    };
    return texts[(size_t)op];
}

std::string format_text(const char *format, ...) {
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return text;
}

/* ---- clocks ---- */

/* Arrays of multiples of 64 components, used again and again, in huge pages. */
static std::vector<std::vector<Base *>> free_bases;

static void *base_memory(size_t bytes) {
    static constexpr size_t PIECE = 32 << 20;
    static char *next, *end;
    if ((size_t)(end - next) < bytes) {
        next = (char *)address_space(nullptr, PIECE, true);
        end = next + PIECE;
    }
    next += bytes;
    return next - bytes;
}

Base *BaseRef::create(uint32_t size) {
    const uint32_t units = (size + 63) / 64;
    if (units >= free_bases.size()) free_bases.resize(units + 1);
    std::vector<Base *> &list = free_bases[units];
    Base *base;
    if (list.empty()) {
        base = (Base *)base_memory(64 + units * 64 * sizeof(uint32_t)); /* whole lines of the cache */
    } else {
        base = list.back();
        list.pop_back();
    }
    base->references = 1;
    base->size = size;
    return base;
}

void BaseRef::release(Base *base) { free_bases[(base->size + 63) / 64].push_back(base); }

void BaseRef::own(uint32_t size) {
    if (base && base->references == 1 && base->size >= size) return;
    const uint32_t before = base ? base->size : 0, after = std::max({size, before, world->components});
    BaseRef copy;
    copy.base = create(after);
    if (base) memcpy(copy.base->clock, base->clock, before * sizeof(uint32_t));
    memset(copy.base->clock + before, 0, (after - before) * sizeof(uint32_t));
    std::swap(base, copy.base);
}

void BaseRef::raise(uint32_t component, uint32_t clock) {
    if (at(component) >= clock) return;
    own(component + 1);
    base->clock[component] = clock;
}

/* Bit 0 of the answer: a covers b; bit 1: b covers a. Mostly one of them does, or neither by far. */
__attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3"))) static unsigned compare_clocks(const uint32_t *a,
                                                                                                            const uint32_t *b, uint32_t n) {
    uint32_t a_less = 0, b_less = 0;
    for (uint32_t first = 0; first < n && !(a_less && b_less); first += 256)
        for (uint32_t i = first; i < std::min(first + 256, n); i++) {
            a_less |= a[i] < b[i];
            b_less |= b[i] < a[i];
        }
    return (a_less ? 0 : 1) | (b_less ? 0 : 2);
}
/* The greater of each. */
__attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3"))) static void greater_clocks(uint32_t *to, const uint32_t *a,
                                                                                                        const uint32_t *b, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) to[i] = a[i] > b[i] ? a[i] : b[i];
}

void BaseRef::gather(const BaseRef &other) {
    if (!other.base || base == other.base) return;
    if (!base) {
        *this = other;
        return;
    }
    own(other.base->size);
    greater_clocks(base->clock, base->clock, other.base->clock, other.base->size);
}

void BaseRef::gather_from(const BaseRef &other, uint32_t first) {
    if (!other.base || base == other.base || other.base->size <= first) return;
    own(other.base->size);
    greater_clocks(base->clock + first, base->clock + first, other.base->clock + first, other.base->size - first);
}

void BaseRef::join(const BaseRef &other) {
    if (!other.base || base == other.base) return;
    if (!base) {
        *this = other;
        return;
    }
    struct Memo {
        BaseRef a, b, result;
    };
    static std::vector<Memo> memos(256); /* few: what they keep should stay in the cache */
    static uint64_t memos_of;
    if (memos_of != world->number) {
        for (Memo &m : memos) m = Memo();
        memos_of = world->number;
    }
    Memo &memo = memos[(((uintptr_t)base >> 4) * 31 + ((uintptr_t)other.base >> 4)) % memos.size()];
    if (memo.a.base == base && memo.b.base == other.base) {
        *this = memo.result;
        return;
    }
    const BaseRef &longer = base->size >= other.base->size ? *this : other;
    const uint32_t both = std::min(base->size, other.base->size), all = longer.base->size;
    const unsigned covers = compare_clocks(base->clock, other.base->clock, both);
    BaseRef result;
    if (covers & 1 && both == other.base->size) {
        result = *this;
    } else if (covers & 2 && both == base->size) {
        result = other;
    } else {
        result.base = create(all);
        greater_clocks(result.base->clock, base->clock, other.base->clock, both);
        memcpy(result.base->clock + both, longer.base->clock + both, (all - both) * sizeof(uint32_t));
    }
    memo.a = *this;
    memo.b = other;
    memo.result = result;
    *this = result;
}

void Released::add(Observer &from) {
    after.seen = BaseRef();
    if (from.seen != last_seen) { seen.gather(from.seen); last_seen = from.seen; }
    if (from.shared != last_shared) { shared.gather(from.shared); last_shared = from.shared; }
    if (from.global != last_global) { global.gather(from.global); last_global = from.global; }
    if (from.reads != last_reads) { reads.gather(from.reads); last_reads = from.reads; }
    fenced_reads.gather(from.fenced_reads);
    published.join(from.published);
    seen.raise(from.component, from.now);
    if (from.own_shared) shared.raise(from.component, from.own_shared);
    if (from.own_global) global.raise(from.component, from.own_global);
    from.now++;
}

void Released::add_ended(Observer &from) {
    if (from.seen != last_ended) {
        seen.gather_from(from.seen, (uint32_t)world->threads.size());
        reads.gather(from.seen);
        last_ended = from.seen;
    }
    if (from.reads != last_reads) { reads.gather(from.reads); last_reads = from.reads; }
    if (world->options.assume.plain_arrivals) published.join(from.published);
    reads.raise(from.component, from.now);
    fenced_reads.gather(from.fenced_reads);
    fenced_reads.gather(from.shared);
    if (from.own_shared) fenced_reads.raise(from.component, from.own_shared);
    from.now++;
}

void acquire(Observer &to, const Released &from) {
    auto &before = from.before, &after = from.after;
    to.now++;
    if (after.seen && to.seen == before.seen && to.shared == before.shared && to.global == before.global && to.reads == before.reads &&
        to.fenced_reads == before.fenced_reads &&
        to.published == before.published) {
        to.seen = after.seen;
        to.shared = after.shared;
        to.global = after.global;
        to.reads = after.reads;
        to.fenced_reads = after.fenced_reads;
        to.published = after.published;
        return;
    }
    before = {to.seen, to.shared, to.global, to.reads, to.fenced_reads, to.published};
    to.seen.join(from.seen);
    to.shared.join(from.shared);
    to.global.join(from.global);
    to.reads.join(from.reads);
    to.fenced_reads.join(from.fenced_reads);
    to.published.join(from.published);
    after = {to.seen, to.shared, to.global, to.reads, to.fenced_reads, to.published};
}

void adopt(Observer &to, const Released &from) {
    to.seen = from.seen;
    to.shared = from.shared;
    to.global = from.global;
    to.reads = from.reads;
    to.fenced_reads = from.fenced_reads;
    to.published = from.published;
    to.now++;
}

static bool has_seen(const Observer &who, const Event &e) {
    return e.component == who.component ? e.clock <= who.now : who.seen.at(e.component) >= e.clock;
}

/* Whether the read `e` has ended before `who` writes. */
static bool read_has_ended(const Observer &who, const Event &e, bool shared) {
    return has_seen(who, e) || (shared && who.reads.at(e.component) >= e.clock);
}

static bool has_fenced(const Observer &who, const Event &e, bool shared) {
    const uint32_t own = e.component == who.component ? (shared ? who.own_shared : who.own_global) : 0;
    return std::max(own, (shared ? who.shared : who.global).at(e.component)) >= e.clock;
}

/* ---- reports ---- */

/* addr2line over this program, which reads addresses and answers each: once started it has the program's tables, which take it a second.
   Null where it is not there. */
struct Lines {
    FILE *ask, *answer;
};
static Lines start_lines(void) {
    int to[2], from[2];
    pid_t child;
    char path[256];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0 || pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC)) return {};
    path[n] = 0;
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, to[0], 0);
    posix_spawn_file_actions_adddup2(&files, from[1], 1);
    posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    char name[] = "addr2line", addresses[] = "-a", inlined[] = "-i", file[] = "-e";
    char *const arguments[] = {name, addresses, inlined, file, path, nullptr};
    const int failed = posix_spawnp(&child, name, &files, nullptr, arguments, environ);
    posix_spawn_file_actions_destroy(&files);
    close(to[0]);
    close(from[1]);
    if (!failed) return {fdopen(to[1], "w"), fdopen(from[0], "r")};
    close(to[1]);
    close(from[0]);
    return {};
}

/* Every address is answered by itself, in hexadecimal, and the lines it lies in; the highest of all, asked after it, says that these were
   all. */
std::string source_line(uint32_t pc) {
    static std::map<uint32_t, std::string> known;
    static const Lines lines = start_lines();
    if (!pc) return "";
    auto found = known.find(pc);
    if (found != known.end()) return found->second;
    char line[1024];
    std::string text;
    if (lines.ask && fprintf(lines.ask, "%x\nffffffffffffffff\n", pc - 1) > 0 && !fflush(lines.ask)) {
        for (int addresses = 0; addresses < 2 && fgets(line, sizeof line, lines.answer);) {
            std::string at = line;
            if (at.compare(0, 2, "0x") == 0) {
                addresses++;
                continue;
            }
            at = at.substr(0, at.find_first_of("\n ")); /* cuts "(discriminator n)" */
            at = at.substr(at.rfind('/') + 1);
            if (at.compare(0, 6, "ptx.h:") == 0 || at == "??:0" || at == "??:?") continue;
            text += (text.empty() ? "" : " < ") + at;
        }
        if (!fgets(line, sizeof line, lines.answer)) text.clear(); /* the highest lies nowhere */
    }
    return known[pc] = text.empty() ? format_text("pc 0x%x", pc) : text;
}

static std::string describe_component(uint32_t component, uint32_t cta) {
    if (component >= world->threads.size()) return format_text("CTA %u, asynchronous", cta);
    const Thread *t = world->threads[component];
    return format_text("CTA %u, thread %u (warp %u lane %u)", t->cta, t->number, t->number / 32, t->lane);
}

std::string describe_event(uint32_t id) {
    if (id == HOST_EVENT) return "the host before the launch";
    const Event &e = world->events[id];
    return format_text("%s: %s at %s", describe_component(e.component, e.cta).c_str(), op_text(e.op), source_line(e.pc).c_str());
}

std::string describe_thread(const Thread *thread) { return describe_component(thread->component, thread->cta); }

void report_plain(const char *rule, uint64_t key, const std::string &text) {
    static std::set<std::pair<std::string, uint64_t>> seen;
    static uint64_t seen_of;
    if (seen_of != world->number) {
        seen.clear();
        seen_of = world->number;
    }
    const std::string kind(rule, strcspn(rule, ":"));
    if (!checks(rule) || !checks(kind.c_str()) || !seen.insert({kind, key}).second) return;
    world->result.reports.push_back({kind, format_text("%s: ", world->launch.kernel) + text, rule});
    if (world->result.reports.size() >= world->options.maximum_reports) world->stopping = true;
}

void report(const char *rule, const char *format, ...) {
    char text[1500];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    report_plain(
        rule, self ? self->pc : 0,
        self ? format_text("%s, %s, at %s: %s", describe_thread(self).c_str(), op_text(self->op), source_line(self->pc).c_str(), text)
             : std::string(text));
}

void report_at(const char *rule, const Observer &who, uint32_t pc, Op op, const char *format, ...) {
    char text[1500];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    report_plain(rule, pc,
                 format_text("%s, %s, issued at %s: %s", describe_component(who.component, who.cta).c_str(), op_text(op),
                             source_line(pc).c_str(), text));
}

/* ---- global memory ---- */

struct Block {
    uintptr_t begin, end;
    std::string name;
    bool read_only;
    uintptr_t whole_begin, whole_end; /* of the allocation that it is, or is a part of */
};
static std::map<uintptr_t, Block> blocks; /* by begin */
static Block *last_block;                 /* that was looked for */
static std::vector<std::pair<uintptr_t, uintptr_t>> slack; /* begin, end */
static uintptr_t next_block = GLOBAL + 4096;
static Cell *shadow[4]; /* of 2, 16, 128, 1024 bytes */
static constexpr uintptr_t piece_bytes(int level) { return (uintptr_t)2 << 3 * level; }
static constexpr int TOP = 3;
static_assert(piece_bytes(TOP) == LARGEST_PIECE, "levels of the shadow");

/* Calls visit(cell, offset) for the largest pieces that make up [begin, end), until it returns false. COARSE: 16 bytes that one access of
   this launch has written are not taken apart. */
template <int LEVEL, bool COARSE, class Visit> static inline bool walk(uintptr_t at, uintptr_t begin, uintptr_t end, const Visit &visit) {
    Cell *cell = shadow[LEVEL] + at / piece_bytes(LEVEL);
    if constexpr (LEVEL == 0) {
        return visit(cell, at);
    } else {
        const bool whole = begin <= at && at + piece_bytes(LEVEL) <= end;
        Cell *parts = shadow[LEVEL - 1] + at / piece_bytes(LEVEL - 1);
        if (cell->write != SPLIT) {
            if (whole || (COARSE && LEVEL == 1 && cell->write > HOST_EVENT)) return visit(cell, at);
            for (int i = 0; i < 8; i++) parts[i] = *cell;
            cell->write = SPLIT;
        }
        const uintptr_t first = begin > at ? (begin - at) / piece_bytes(LEVEL - 1) * piece_bytes(LEVEL - 1) : 0;
        for (uintptr_t part = at + first; part < at + piece_bytes(LEVEL) && part < end; part += piece_bytes(LEVEL - 1))
            if (!walk<LEVEL - 1, COARSE>(part, begin, end, visit)) return false;
        if (whole && parts[0].write != SPLIT) {
            bool same = true;
            for (int i = 1; i < 8; i++) same &= parts[i].write == parts[0].write && parts[i].read == parts[0].read;
            if (same) *cell = parts[0];
        }
        return true;
    }
}
/* Takes a piece apart whose parts have not had histories of their own. */
template <int LEVEL> static inline void take_apart(uintptr_t offset) {
    Cell *cell = shadow[LEVEL] + offset / piece_bytes(LEVEL);
    if (__builtin_expect(cell->write == SPLIT, 1)) return;
    Cell *parts = shadow[LEVEL - 1] + offset / piece_bytes(LEVEL) * 8;
    for (int i = 0; i < 8; i++) parts[i] = *cell;
    cell->write = SPLIT;
}
template <bool COARSE = false, class Visit> static inline void each_cell(uintptr_t offset, size_t bytes, const Visit &visit) {
    if ((offset ^ (offset + bytes - 1)) < piece_bytes(1)) { /* as nearly all are */
        take_apart<3>(offset);
        take_apart<2>(offset);
        walk<1, COARSE>(offset / piece_bytes(1) * piece_bytes(1), offset, offset + bytes, visit);
        return;
    }
    for (uintptr_t at = offset / LARGEST_PIECE * LARGEST_PIECE; at < offset + bytes; at += LARGEST_PIECE)
        if (!walk<TOP, COARSE>(at, offset, offset + bytes, visit)) return;
}

/* The cell that stands for these two bytes. */
static inline Cell *cell_at(uintptr_t offset) {
    for (int level = TOP;; level--) {
        Cell *cell = shadow[level] + offset / piece_bytes(level);
        if (cell->write != SPLIT) return cell;
    }
}

static void set_cells(uintptr_t offset, size_t bytes, Cell value) {
    each_cell(offset, bytes, [&](Cell *cell, uintptr_t) {
        *cell = value;
        return true;
    });
}

Event *EventList::first;
void EventList::full(void) {
    fprintf(stderr, "machine: a launch with more than %u events\n", MOST);
    _exit(2);
}

void *address_space(void *at, size_t bytes, bool huge) {
    void *memory =
        mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED_NOREPLACE : 0), -1, 0);
    if (memory != MAP_FAILED && (!at || memory == at)) {
        if (huge) madvise(memory, bytes, MADV_HUGEPAGE);
        return memory;
    }
    perror("machine: address space");
    _exit(2);
}

void memory_init(void) {
    if (shadow[0]) return;
    address_space((void *)ARENA, ARENA_BYTES, false);
    madvise((void *)ARENA, GLOBAL, MADV_HUGEPAGE); /* global memory is given back again and again */
    for (int level = 0; level <= TOP; level++) {
        shadow[level] = (Cell *)address_space(nullptr, ARENA_BYTES / piece_bytes(level) * sizeof(Cell), false);
        madvise(shadow[level], GLOBAL / piece_bytes(level) * sizeof(Cell), MADV_HUGEPAGE);
    }
}

void *global_allocate(size_t bytes, const char *name) {
    memory_init();
    const uintptr_t begin = next_block;
    next_block += (bytes + 4095) / 4096 * 4096 + 4096;
    if (next_block > ARENA_BYTES) return nullptr;
    blocks[begin] = {begin, begin + bytes, name, false, begin, begin + bytes};
    return arena(begin);
}

static Block *block_of(uintptr_t offset) {
    if (last_block && offset >= last_block->begin && offset < last_block->end) return last_block;
    auto after = blocks.upper_bound(offset);
    if (after == blocks.begin()) return nullptr;
    Block &block = (--after)->second;
    return offset < block.end ? last_block = &block : nullptr;
}

static void clear_shadow(uintptr_t offset, size_t bytes) { set_cells(offset, bytes, {0, 0}); }

void global_free(void *memory) {
    const uintptr_t offset = (uintptr_t)memory - ARENA;
    auto first = blocks.lower_bound(offset), last = first;
    if (first == blocks.end() || first->second.whole_begin != offset) return;
    last_block = nullptr;
    clear_shadow(offset, first->second.whole_end - offset);
    while (last != blocks.end() && last->second.whole_begin == offset) ++last;
    blocks.erase(first, last);
}

void global_part(void *memory, size_t bytes, const char *name, bool read_only) {
    const uintptr_t begin = (uintptr_t)memory - ARENA;
    Block whole = Block();
    for (auto &entry : blocks)
        if (begin >= entry.second.whole_begin && begin + bytes <= entry.second.whole_end) whole = entry.second;
    if (!whole.whole_end) return;
    last_block = nullptr;
    auto found = blocks.find(whole.whole_begin);
    if (found != blocks.end() && found->second.end == whole.whole_end) blocks.erase(found);
    blocks[begin] = {begin, begin + bytes, name, read_only, whole.whole_begin, whole.whole_end};
}

void global_slack(void *memory, size_t bytes) {
    const uintptr_t begin = (uintptr_t)memory - ARENA;
    if (bytes) slack.push_back({begin, begin + bytes});
}

static bool is_slack(uintptr_t offset) {
    for (const auto &range : slack)
        if (offset >= range.first && offset < range.second) return true;
    return false;
}

void global_forget(void *memory, size_t bytes) {
    memset(memory, 0xff, bytes);
    clear_shadow((uintptr_t)memory - ARENA, bytes);
}

void global_reset(void) {
    memory_init();
    last_block = nullptr;
    blocks.clear();
    slack.clear();
    madvise((void *)(ARENA + GLOBAL), next_block - GLOBAL, MADV_DONTNEED);
    for (int level = 0; level <= TOP; level++)
        madvise(shadow[level] + GLOBAL / piece_bytes(level), (next_block - GLOBAL) / piece_bytes(level) * sizeof(Cell), MADV_DONTNEED);
    next_block = GLOBAL + 4096;
}

static void written_by_host(uintptr_t offset, size_t bytes) { set_cells(offset, bytes, {HOST_EVENT, 0}); }

void global_copy(void *destination, const void *source, size_t bytes) {
    memcpy(destination, source, bytes);
    written_by_host((uintptr_t)destination - ARENA, bytes);
}

void global_fill(void *destination, int byte, size_t bytes) {
    memset(destination, byte, bytes);
    written_by_host((uintptr_t)destination - ARENA, bytes);
}

void global_read_only(void *memory) {
    Block *block = block_of((uintptr_t)memory - ARENA);
    if (block) block->read_only = true;
}

bool global_written(const void *memory, size_t bytes) {
    bool written = true;
    each_cell((uintptr_t)memory - ARENA, bytes, [&](Cell *cell, uintptr_t) { return written &= cell->write != 0; });
    return written;
}

/* What was asked a while ago is not asked again: few, in a near cache. */
constexpr uint32_t MEMO_BITS = 10, MEMOS = 1 << MEMO_BITS;

/* The histories of a launch take megabytes: their memory serves the next one. */
static void swap_histories(void) {
    static std::vector<uint32_t> set_pool;
    static std::vector<ReaderSet> sets;
    static std::vector<ReaderMemo> set_memo;
    set_pool.swap(world->set_pool);
    sets.swap(world->sets);
    set_memo.swap(world->set_memo);
}

void memory_end_launch(void) { swap_histories(); }

/* After a launch all that it wrote counts as written by the host: launches of one stream are ordered. Shared memory is new. */
void memory_begin_launch(void) {
    memory_init();
    swap_histories();
    world->set_pool.clear();
    world->sets.clear();
    world->set_memo.assign(MEMOS, ReaderMemo());
    static uintptr_t used; /* bytes of shared memory that the last launch had */
    memset((void *)ARENA, 0, used);
    memset(shadow[TOP], 0, used / LARGEST_PIECE * sizeof(Cell));
    used = world->launch.grid <= MAX_CTAS ? world->launch.grid * SHARED_WINDOW : 0;
    uintptr_t done = 0; /* whole allocations: what lies between their parts has readers too */
    for (auto &entry : blocks) {
        const uintptr_t begin = entry.second.whole_begin / LARGEST_PIECE * LARGEST_PIECE;
        const uintptr_t end = (entry.second.whole_end + LARGEST_PIECE - 1) / LARGEST_PIECE * LARGEST_PIECE;
        if (end <= done) continue;
        done = end;
        each_cell(begin, end - begin, [](Cell *cell, uintptr_t) {
            *cell = {std::min(cell->write, HOST_EVENT), 0};
            return true;
        });
    }
}

bool region_of(uintptr_t offset, uintptr_t *begin, uintptr_t *end, const char **name, bool *read_only) {
    if (offset < GLOBAL) {
        const uintptr_t window = offset / SHARED_WINDOW * SHARED_WINDOW;
        *begin = window + SHARED_RESERVED;
        *end = *begin + world->launch.dynamic_shared;
        *name = "shared memory";
        *read_only = false;
        return offset / SHARED_WINDOW < world->cta.size() && offset >= *begin && offset < *end;
    }
    const Block *block = block_of(offset);
    if (!block) return false;
    *begin = block->begin;
    *end = block->end;
    *name = block->name.c_str();
    *read_only = block->read_only;
    return true;
}

std::string describe(uintptr_t offset) {
    uintptr_t begin, end;
    const char *name;
    bool read_only;
    if (offset < GLOBAL)
        return format_text("shared memory of CTA %u, byte %lu", (unsigned)(offset / SHARED_WINDOW),
                           (unsigned long)(offset % SHARED_WINDOW - SHARED_RESERVED));
    if (region_of(offset, &begin, &end, &name, &read_only))
        return format_text("%s, byte %lu of %lu", name, (unsigned long)(offset - begin), (unsigned long)(end - begin));
    auto after = blocks.upper_bound(offset);
    if (after != blocks.begin()) {
        const Block &block = (--after)->second;
        return format_text("%lu bytes behind the end of %s", (unsigned long)(offset - block.end), block.name.c_str());
    }
    return "no block of global memory";
}

/* ---- events and sets of readers ---- */

uint32_t thread_event(Thread *t, uint32_t pc, Op op) {
    if (t->last_event && t->last_event_pc == pc && t->last_event_clock == t->now && t->last_event_op == op) return t->last_event;
    t->last_event_pc = pc;
    t->last_event_clock = t->now;
    t->last_event_op = op;
    return t->last_event = new_event(t->component, t->now, pc, t->cta, op, 0);
}

static uint32_t extend_set(uint32_t before, const uint32_t *events, uint32_t count) {
    const uint32_t size = count + (!before ? 0 : before & READ_SET ? world->sets[before & ~READ_SET].size : 1);
    world->sets.push_back({before, (uint32_t)world->set_pool.size(), count, size});
    world->set_pool.insert(world->set_pool.end(), events, events + count);
    return READ_SET | (uint32_t)(world->sets.size() - 1);
}

uint32_t make_set(const uint32_t *events, uint32_t count) { return count == 0 ? 0 : count == 1 ? events[0] : extend_set(0, events, count); }

/* Calls visit(event) for each reader until it returns false. */
template <class Visit> static void each_reader(uint32_t set, const Visit &visit) {
    while (set & READ_SET) {
        const ReaderSet entry = world->sets[set & ~READ_SET];
        for (uint32_t i = 0; i < entry.count; i++)
            if (!visit(world->set_pool[entry.begin + i])) return;
        set = entry.before;
    }
    if (set) visit(set);
}

/* Whether the last of these readers is the thread itself, since when it has done nothing that others could be ordered by. */
static inline bool is_last_reader(uint32_t readers, const Thread &t) {
    if (!readers) return false;
    if (readers & READ_SET) {
        const ReaderSet &set = world->sets[readers & ~READ_SET];
        readers = world->set_pool[set.begin + set.count - 1];
    }
    const Event &e = world->events[readers];
    return e.component == t.component && e.clock == t.now;
}

static uint32_t first_reader(uint32_t set) { return set & READ_SET ? world->set_pool[world->sets[set & ~READ_SET].begin] : set; }

/* The readers `old` without those that `who` knows to be done, and `added`. Valid for any cell: (component, now) of `added` fixes what it
   has seen. Large sets are only added to, and thinned out now and then. */
static uint32_t add_readers(uint32_t old, uint32_t added, const Observer &who, bool async) {
    if (!old || old == added) return added;
    ReaderMemo &memo = world->set_memo[(old * 2654435761u ^ added * 2246822519u) >> (32 - MEMO_BITS)];
    if (memo.old == old && memo.added == added) return memo.result;
    static std::vector<uint32_t> all;
    all.clear();
    const uint32_t size = old & READ_SET ? world->sets[old & ~READ_SET].size : 1;
    const bool thin = size < 8 || size % 512 == 0;
    if (thin)
        each_reader(old, [&](uint32_t reader) {
            const Event &e = world->events[reader];
            if (((e.flags & EVENT_ASYNC) != 0) != async || !has_seen(who, e)) all.push_back(reader);
            return true;
        });
    each_reader(added, [&](uint32_t reader) {
        if (std::find(all.begin(), all.end(), reader) == all.end()) all.push_back(reader);
        return true;
    });
    const uint32_t result = thin ? make_set(all.data(), (uint32_t)all.size()) : extend_set(old, all.data(), (uint32_t)all.size());
    memo = {old, added, result};
    return result;
}

/* ---- accesses ---- */

static bool out_of_bounds(uintptr_t offset, size_t bytes, bool write) {
    uintptr_t begin, end;
    const char *name;
    bool read_only;
    if (!region_of(offset, &begin, &end, &name, &read_only) || offset + bytes > end) {
        report("out-of-bounds:ordinary", "%s of %lu bytes at %s", write ? "write" : "read", (unsigned long)bytes, describe(offset).c_str());
        return true;
    }
    if (write && read_only) {
        report("read-only:ordinary", "write to %s", describe(offset).c_str());
        return true;
    }
    if (offset < GLOBAL && world->cta[offset / SHARED_WINDOW]->cluster != self->of->cluster) {
        report("out-of-bounds:cluster", "shared memory of a CTA outside of the cluster: %s", describe(offset).c_str());
        return true;
    }
    return false;
}

static void report_conflict(uintptr_t offset, bool write, uint32_t other, bool other_writes) {
    if (is_slack(offset)) return;
    report(write ? "race:write" : "race:read", "%s of %s is not ordered after the %s by %s", write ? "write" : "read",
           describe(offset).c_str(), other_writes ? "write" : "read", describe_event(other).c_str());
}

/* Returns false when the rest of the access is not worth looking at. plain: cleared where another cell of the same history need not come
   out the same. */
static bool generic_cell(Cell *cell, uintptr_t at, bool write, uint32_t pc, Op op, bool *plain) {
    Thread *const t = self;
    if (!cell->write) {
        *plain = false;
        if (out_of_bounds(at, 1, write)) return false;
        if (!write && world->all_lanes && !is_slack(at)) {
            report("uninitialised:ordinary", "read of %s, which nobody has written", describe(at).c_str());
            return false;
        }
    } else if (cell->write != HOST_EVENT) {
        const Event &e = world->events[cell->write];
        if (e.flags & EVENT_BARRIER) {
            report("mbarrier:data", "%s of the mbarrier at %s as if it were data", write ? "write" : "read", describe(at).c_str());
            return false;
        }
        if (e.component != t->component && !has_seen(*t, e)) {
            *plain = false;
            report_conflict(at, write, cell->write, true);
        }
    } else if (at >= GLOBAL && write) {
        *plain = false;
        if (out_of_bounds(at, 1, true)) return false;
    }
    if (!write) {
        if (!is_last_reader(cell->read, *t)) cell->read = add_readers(cell->read, thread_event(t, pc, op), *t, false);
        return true;
    }
    if (cell->read)
        each_reader(cell->read, [&](uint32_t reader) {
            const Event &e = world->events[reader];
            if (e.component == t->component || read_has_ended(*t, e, at < GLOBAL)) return true;
            *plain = false;
            report_conflict(at, true, reader, false);
            return false;
        });
    *cell = {thread_event(t, pc, op), 0};
    return true;
}

void generic_access(uintptr_t offset, size_t bytes, bool write, uint32_t pc, Op op) {
    Thread *const t = self;
    world->result.accesses++;
    const uint32_t last = t->pc;
    const Op last_op = t->op;
    t->pc = pc;
    t->op = op;
    const bool shared = offset < GLOBAL;
    const bool unwatched = shared && !write && !(t->warp->watched >> t->lane & 1);
    const bool looks_well = shared ? offset % SHARED_WINDOW >= SHARED_RESERVED &&
                                         offset % SHARED_WINDOW + bytes <= SHARED_RESERVED + world->launch.dynamic_shared &&
                                         offset / SHARED_WINDOW == t->cta
                                   : cell_at(offset)->write != 0;
    const Block *block = shared || write || !looks_well ? nullptr : block_of(offset);
    const bool constant = block && block->read_only && offset + bytes <= block->end; /* nobody will write it: its readers do not matter */
    if (!constant && world->options.record)
        record(write ? Did::write : Did::read, (uint32_t)offset, (uint32_t)bytes, write ? 0 : cell_at(offset)->write);
    if (!constant && !(looks_well && unwatched) && (looks_well || !out_of_bounds(offset, bytes, write))) {
        Cell before = {SPLIT, 0}, after = before;
        const auto visit = [&](Cell *cell, uintptr_t at) {
            if (cell->write == before.write && cell->read == before.read) {
                *cell = after;
                return true;
            }
            const Cell was = *cell;
            bool plain = true;
            if (!generic_cell(cell, at, write, pc, op, &plain)) return false;
            if (plain) before = was, after = *cell;
            return true;
        };
        if (!write && world->options.protocol) each_cell<true>(offset, bytes, visit);
        else each_cell(offset, bytes, visit);
    }
    t->pc = last;
    t->op = last_op;
}

/* Of an atomic access and another one that nothing orders, the other one is reported if it comes later. Here it is as well if it came
   first, and atomic reads are remembered for it. */
static void atomic_in_any_order(Cell *cell, uintptr_t at, bool write, uint32_t pc, Op op) {
    const Event &last = world->events[cell->write];
    bool ordered = cell->write <= HOST_EVENT || !(last.flags & EVENT_ASYNC) || has_seen(*self, last);
    if (!write) {
        cell->read = add_readers(cell->read, new_event(self->component, self->now, pc, self->cta, op, EVENT_ATOMIC), *self, false);
    } else if (cell->read) {
        each_reader(cell->read, [&](uint32_t reader) {
            const Event &e = world->events[reader];
            return ordered &= (e.flags & EVENT_ATOMIC) != 0 || has_seen(*self, e);
        });
    }
    if (!ordered) report_plain("order", at, "an atomic access is not ordered after another one");
}

void atomic_access(uintptr_t offset, size_t bytes, bool write, uint32_t pc, Op op) {
    if (out_of_bounds(offset, bytes, write)) return;
    if (offset % bytes) report("misaligned:atomic", "atomic access at %s", describe(offset).c_str());
    each_cell(offset, bytes, [&](Cell *cell, uintptr_t at) {
        if (!cell->write && (world->all_lanes || write)) {
            report("uninitialised:atomic", "%s on %s, which nobody has written", op_text(op), describe(at).c_str());
        } else if (cell->write > HOST_EVENT) {
            const Event &e = world->events[cell->write];
            if (!(e.flags & EVENT_ATOMIC) && !has_seen(*self, e)) report_conflict(at, write, cell->write, true);
        }
        if (world->least_order) atomic_in_any_order(cell, at, write, pc, op);
        if (write) *cell = {new_event(self->component, self->now, pc, self->cta, op, EVENT_ATOMIC), 0};
        return true;
    });
}

void barrier_word(uintptr_t offset, uint32_t event) {
    each_cell(offset, 8, [&](Cell *cell, uintptr_t at) {
        if (world->least_order && (cell->write || cell->read)) /* whoever comes later is reported, so the order matters */
            report_plain("order", at, "somebody has used an mbarrier's bytes before its initialisation");
        *cell = {event, 0};
        return true;
    });
}

/* Whether asynchronous work of `who` is ordered after event `e`: 0 yes, 1 nothing orders them, 2 only the proxy fence is missing. */
static int async_order(const Observer &who, const Event &e, bool shared, bool read) {
    /* It has ended, and somebody who knew that fenced before he told: reads, and what st.async brought for them. */
    if (shared && (read || e.component >= world->threads.size()) && who.fenced_reads.at(e.component) >= e.clock) return 0;
    if (!has_seen(who, e)) return 1;
    if (e.flags & EVENT_ASYNC && (shared || e.cta == who.cta)) return 0; /* only through global memory does it matter whose work it was */
    return has_fenced(who, e, shared) ? 0 : 2;
}

AsyncAccess::AsyncAccess(const Observer &by, uint32_t e) : who(by), events(e), me(world->events[first_reader(e)]) {}

void AsyncAccess::conflict(uintptr_t at, bool writes, uint32_t other, bool other_writes, int order) const {
    if (is_slack(at)) return;
    report_at(order == 1 ? (writes ? "race:async-write" : "race:async-read") : (writes ? "proxy:write" : "proxy:read"), who, me.pc, me.op,
              order == 1 ? "%s of %s is not ordered after the %s by %s" : "%s of %s: no proxy fence after the %s by %s",
              writes ? "write" : "read", describe(at).c_str(), other_writes ? "write" : "read", describe_event(other).c_str());
}

bool AsyncAccess::bounds(uintptr_t offset, size_t bytes, bool writes, const char *what) {
    if (offset >= begin && offset + bytes <= end && !(writes && read_only)) return true;
    const char *name;
    before.write = SPLIT;
    if (region_of(offset, &begin, &end, &name, &read_only) && offset + bytes <= end && !(writes && read_only)) return true;
    report_at(writes && read_only ? "read-only:async" : "out-of-bounds:async", who, me.pc, me.op, "%s: %lu bytes at %s", what,
              (unsigned long)bytes, describe(offset).c_str());
    end = 0;
    return false;
}

bool AsyncAccess::read_cell(Cell *cell, uintptr_t at, const char *what) {
    if (cell->write == before.write && cell->read == before.read) {
        *cell = after;
        return true;
    }
    if (cell->write == after.write && cell->read == after.read) return true;
    before = *cell;
    if (!cell->write && world->all_lanes && !is_slack(at)) {
        report_at("uninitialised:async", who, me.pc, me.op, "%s: read of %s, which nobody has written", what, describe(at).c_str());
        before.write = SPLIT;
        return false;
    }
    if (cell->write > HOST_EVENT) {
        const Event &e = world->events[cell->write];
        if (e.flags & EVENT_BARRIER)
            report_at("mbarrier:data", who, me.pc, me.op, "%s: reads the mbarrier at %s", what, describe(at).c_str());
        else if (int order = async_order(who, e, at < GLOBAL, false)) conflict(at, false, cell->write, true, order);
    }
    if (!cell->write) before.write = SPLIT;
    if (!read_only) cell->read = add_readers(cell->read, events, who, true);
    after = *cell;
    if (!cell->write) after.write = SPLIT;
    return true;
}

bool AsyncAccess::read(uintptr_t offset, size_t bytes, const char *what) {
    if (!bounds(offset, bytes, false, what)) return false;
    if (read_only && cell_at(offset)->write == HOST_EVENT && cell_at(offset + bytes - 1)->write == HOST_EVENT)
        return true; /* nobody will write it */
    each_cell(offset, bytes, [&](Cell *cell, uintptr_t at) { return read_cell(cell, at, what); });
    return true;
}

bool AsyncAccess::constant(uintptr_t first, uintptr_t last) {
    return bounds(first, 1, false, "source") && read_only && last < end && cell_at(first)->write == HOST_EVENT &&
           cell_at(last)->write == HOST_EVENT;
}

bool AsyncAccess::read_whole_piece(uintptr_t offset) {
    Cell *cell = shadow[TOP] + offset / LARGEST_PIECE;
    if (cell->write == SPLIT || !cell->write || !bounds(offset, LARGEST_PIECE, false, "")) return false;
    read_cell(cell, offset, "");
    return true;
}

bool AsyncAccess::write(uintptr_t offset, size_t bytes, const char *what) {
    if (!bounds(offset, bytes, true, what)) return false;
    const bool shared = offset < GLOBAL;
    after = {events, 0};
    each_cell(offset, bytes, [&](Cell *cell, uintptr_t at) {
        if (cell->write == events) return true; /* a single byte beside another one of the same copy */
        if (cell->write != before.write || cell->read != before.read) {
            before = *cell;
            if (cell->write > HOST_EVENT) {
                const Event &e = world->events[cell->write];
                if (e.flags & EVENT_BARRIER)
                    report_at("mbarrier:data", who, me.pc, me.op, "%s: overwrites the mbarrier at %s", what, describe(at).c_str());
                else if (int order = async_order(who, e, shared, false)) conflict(at, true, cell->write, true, order);
            }
            each_reader(cell->read, [&](uint32_t reader) {
                const int order = async_order(who, world->events[reader], shared, true);
                if (order) conflict(at, true, reader, false, order);
                return order == 0;
            });
        }
        *cell = after;
        return true;
    });
    return true;
}

bool AsyncAccess::store(uintptr_t offset, size_t bytes) {
    if (!bounds(offset, bytes, true, "destination")) return false;
    each_cell(offset, bytes, [&](Cell *cell, uintptr_t at) {
        if (cell->write > HOST_EVENT) {
            const Event &e = world->events[cell->write];
            if (e.flags & EVENT_BARRIER)
                report_at("mbarrier:data", who, me.pc, me.op, "overwrites the mbarrier at %s", describe(at).c_str());
            else if (!has_seen(who, e)) conflict(at, true, cell->write, true, 1);
        }
        each_reader(cell->read, [&](uint32_t reader) {
            const bool ended = read_has_ended(who, world->events[reader], true);
            if (!ended) conflict(at, true, reader, false, 1);
            return ended;
        });
        *cell = {events, 0};
        return true;
    });
    return true;
}

/* ---- the hooks that instrumented code calls ---- */

static __attribute__((noinline)) void register_access(uintptr_t address, size_t bytes, bool write, uint32_t pc) {
    for (Registers &r : self->registers) {
        if (address + bytes <= r.begin || address >= r.end) continue;
        if (r.last_product > self->completed_products) {
            const uint32_t last = self->pc;
            self->pc = pc;
            report("registers", "accumulator register %lu is %s before the wgmma.wait_group that completes its matrix product",
                   (unsigned long)((address - r.begin) / 4), write ? "written" : "read");
            self->pc = last;
        } else {
            r.touched = true;
        }
        return;
    }
}

/* Decisions may hang on a word that a lane has stored by an ordinary store, if somebody loads it by an ordinary load: the lane is needed.
   Numbers go through wrappers, or are smaller. */
static void note_word(uintptr_t offset, bool write, uint32_t pc) {
    if (write) {
        if (world->last_word_store != pc) world->word_stores.insert(world->last_word_store = pc);
        return;
    }
    const uint32_t writer = cell_at(offset)->write;
    if (writer <= HOST_EVENT || writer == world->last_word) return;
    const Event &e = world->events[world->last_word = writer];
    if (e.component >= world->threads.size() || !world->word_stores.count(e.pc)) return;
    const Thread *from = world->threads[e.component];
    from->warp->needed |= 1u << from->lane;
}

static __attribute__((noinline)) void arena_access(uintptr_t offset, size_t bytes, bool write, uint32_t pc) {
    if (offset < GLOBAL && bytes >= 4 && world->all_lanes) note_word(offset, write, pc);
    generic_access(offset, bytes, write, pc, write ? Op::store : Op::load);
}

/* Most are to variables, and end here. */
static inline __attribute__((always_inline)) void hook(const void *pointer, size_t bytes, bool write, void *pc) {
    const Thread *const t = self;
    if (!t) return;
    const uintptr_t offset = (uintptr_t)pointer - ARENA;
    if (offset < ARENA_BYTES) arena_access(offset, bytes, write, (uint32_t)(uintptr_t)pc);
    else if ((uintptr_t)pointer < t->registers_end && (uintptr_t)pointer + bytes > t->registers_begin)
        register_access((uintptr_t)pointer, bytes, write, (uint32_t)(uintptr_t)pc);
}

} // namespace machine

extern "C" {
#define HOOKS(n)                                                                                                                           \
    void __asan_load##n##_noabort(void *p) { machine::hook(p, n, false, __builtin_return_address(0)); }                                    \
    void __asan_store##n##_noabort(void *p) { machine::hook(p, n, true, __builtin_return_address(0)); }
HOOKS(1) HOOKS(2) HOOKS(4) HOOKS(8) HOOKS(16)
void __asan_loadN_noabort(void *p, unsigned long n) { machine::hook(p, n, false, __builtin_return_address(0)); }
void __asan_storeN_noabort(void *p, unsigned long n) { machine::hook(p, n, true, __builtin_return_address(0)); }
void *__asan_memcpy(void *to, const void *from, unsigned long n) {
    machine::hook(from, n, false, __builtin_return_address(0));
    machine::hook(to, n, true, __builtin_return_address(0));
    return memcpy(to, from, n);
}
void *__asan_memmove(void *to, const void *from, unsigned long n) {
    machine::hook(from, n, false, __builtin_return_address(0));
    machine::hook(to, n, true, __builtin_return_address(0));
    return memmove(to, from, n);
}
void *__asan_memset(void *to, int byte, unsigned long n) {
    machine::hook(to, n, true, __builtin_return_address(0));
    return memset(to, byte, n);
}
void __asan_handle_no_return(void) {}
}
