/* An executable model of a Hopper GPU, and of the parts of Blackwell that MANUAL.md names: runs kernels compiled as ordinary C++ and
   reports what the hardware would let pass.

   Every CUDA thread is a fiber on one OS thread. Asynchronous work (copies, matrix products) is done later, in any legal order, by a
   scheduler that a seed drives. Every byte of shared and global memory has a shadow that knows who wrote and who read it last; vector
   clocks say whether an access is ordered after those. The ordinary loads and stores of a kernel are seen through the compiler's
   address-sanitizer hooks (the kernel's flavour: calls, no shadow of its own), which this model implements itself. MANUAL.md says what is
   modelled and what is not. */
#ifndef MACHINE_H
#define MACHINE_H

#include <stddef.h>
#include <stdint.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cuda.h"

namespace machine {

enum class Schedule {
    random,  /* asynchronous work at any legal moment, warps in any order */
    delayed, /* asynchronous work only when no thread can run: the most delayed */
    eager,   /* asynchronous work as early as it can be */
};

enum class OnDeadlock {
    stop,  /* report it and end the launch */
    drain, /* report nothing; keep failing the polls, so that the kernel's own watchdog ends the launch */
};

/* Which lanes of the warps of a CTA do what others wait for. A launch with all lanes finds it out; protocol mode can then do with a few. */
struct Lanes {
    std::vector<uint32_t> needed; /* of each warp: arrivals, copies, flags, words in shared memory that decisions may hang on */
    std::map<std::pair<uint32_t, uint32_t>, uint32_t> sending; /* (warp, place in the code): the lanes that do an st.async there */
};

/* What the warps of a launch do, one after the other: trace.cc. */
struct Trace;

struct Options {
    uint64_t seed = 1;
    Schedule schedule = Schedule::random;
    OnDeadlock on_deadlock = OnDeadlock::stop;
    bool words_order = false;       /* a word's store releases and the load that has waited for it acquires: what others have read is then in
                                       order before it is overwritten, or a race. Without it words order nothing but themselves */
    bool protocol = false;          /* order, waits and reuse only: copies and matrix products move no numbers */
    const Lanes *lanes = nullptr;   /* protocol mode: of each warp these run, and another that the seed draws; null: all of them */
    bool record = false;            /* protocol mode: Result::trace is made, of the lanes that run */
    std::shared_ptr<const Trace> replay; /* protocol mode: the warps do what they did then; the kernel's code does not run */
    bool thorough = false;          /* replay: every access is looked at, also where it must come out as under another seed */
    bool hardware_sums = true;      /* matrix products with the bits of an H200; otherwise float32 in the order of k, which is faster */
    struct { /* of tcgen05, what the manual does not promise and kernels in use rely on; a kernel that needs one is run with it alone */
        bool product_then_copy = false; /* a copy to tensor memory waits for products that the same thread has started before */
        bool plain_arrivals = false;    /* an arrival at another CTA's mbarrier without .release.cluster hands a fence::before on */
        bool either_cta = false;        /* the CTA of odd rank may issue what is done for a pair */
        bool collectives_alone = false; /* dealloc and relinquish of a pair do not wait for the other CTA */
    } assume;
    const char *unchecked = nullptr; /* a rule, or a kind of reports, that is not checked: what was planted against it must then pass */
    struct {
        unsigned cta = 0, mbarrier = 0, arrival = 0; /* mbarrier: 1 + its number in the order of initialisation; 0: none */
    } lost; /* one arrival at an mbarrier that never comes */
    uint64_t restless = ~0ull;      /* once flags have changed this often, who polls one looks again and again instead of sleeping until it
                                       changes: a kernel's watchdog then loses its patience while others are at work. Not for replays */
    struct {
        uint64_t after = ~0ull;
        uint32_t *word = nullptr;
    } host; /* once flags have changed so often, the host writes a 1 into a word of global memory */
    unsigned maximum_reports = 16;  /* distinct ones; the launch ends at this many */
    uint64_t maximum_steps = 200u * 1000u * 1000u; /* scheduling steps; the bound on a model that livelocks */
};

struct Launch {
    const char *kernel = "kernel";
    unsigned grid = 1, block = 128, cluster = 1; /* one dimension each */
    size_t dynamic_shared = 0;
    unsigned registers = 0; /* a thread at launch, for setmaxnreg; 0: what 65536 registers give each thread */
    bool cooperative = true;
    unsigned multiprocessors = 132;
};

struct Report {
    std::string kind; /* one of the names in MANUAL.md's table */
    std::string text; /* kernel, CTA, thread, source line, operation, what is wrong */
    std::string rule = {}; /* of the model that reports it: "kind" or "kind:which" */
};

struct Result {
    std::vector<Report> reports;
    bool deadlock = false;
    uint64_t steps = 0, async_operations = 0, accesses = 0;
    uint64_t flag_changes = 0; /* see Options::restless */
    std::string lost_at; /* the mbarrier of Options::lost */
    std::string stuck;   /* OnDeadlock::drain: the waits that held up the others when nothing went on for the first time, if known */
    std::vector<unsigned> arrivals; /* at each mbarrier of the CTA Options::lost.cta */
    Lanes lanes;                    /* of a launch in which all of them ran */
    std::shared_ptr<const Trace> trace; /* Options::record */
    bool known = false;       /* Options::replay: all met as in a run that has looked at every access; this one did not (order.cc) */
    uint64_t last_random = 0; /* the state of the seed's random numbers at the end */
    bool has(const char *kind_or_rule) const {
        for (const Report &r : reports)
            if (r.kind == kind_or_rule || r.rule == kind_or_rule) return true;
        return false;
    }
    std::string text() const {
        std::string all;
        for (const Report &r : reports) all += "[" + r.kind + "] " + r.text + "\n";
        return all;
    }
};

/* A recording in which one step, of those that wait or that others wait for, is missing or stands elsewhere; `what` says which one. */
std::shared_ptr<const Trace> damaged_trace(const std::shared_ptr<const Trace> &trace, uint64_t seed, std::string *what);

/* Runs `body` once for every thread of the grid: a call of the kernel with its arguments. Not reentrant. */
Result launch(const Launch &launch, const Options &options, const std::function<void()> &body);

/* Of all matrix products (wgmma) that the launches of this process have done: columns, formats, layouts. */
std::set<std::string> product_kinds(void);

/* Global memory. A new block is uninitialised: reading it before anybody wrote it is reported. */
void *global_allocate(size_t bytes, const char *name);
void global_free(void *memory);
/* What a copy or memset by the host does: initialises, ordered before the next launch. */
void global_copy(void *destination, const void *source, size_t bytes);
void global_fill(void *destination, int byte, size_t bytes);
/* Nothing may write the block while a kernel runs; only such blocks may be read through ld.global.nc. */
void global_read_only(void *memory);
/* 1 when somebody, host or kernel, has written all of these bytes. */
bool global_written(const void *memory, size_t bytes);
/* Gives a part of a block a name and bounds of its own. What no part covers is out of bounds from then on. */
void global_part(void *memory, size_t bytes, const char *name, bool read_only);
/* Rows of padding: what is read there reaches no result, so neither order nor initialisation is asked for. */
void global_slack(void *memory, size_t bytes);
/* Uninitialised again; the bytes become a pattern that is NaN in float32 and bf16. */
void global_forget(void *memory, size_t bytes);
void global_reset(void); /* frees all blocks */

/* The encode call of the driver, with every rule of it checked; a refused map is CUDA_ERROR_INVALID_VALUE and encode_error() says why. */
CUresult tensor_map_encode(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *dims,
                           const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *element_strides,
                           CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                           CUtensorMapFloatOOBfill fill);
const char *encode_error(void);

} // namespace machine

#endif
