/* The model's CUDA runtime, for tests: which kernels there are, how the next launch runs, what the last one reported. */
#ifndef MACHINE_CUDART_H
#define MACHINE_CUDART_H

#include <map>

#include "machine.h"

namespace machine {

struct Kernel {
    std::string name;
    unsigned registers; /* a thread at launch, as __launch_bounds__ gives them */
    std::function<void(void **arguments)> run;
};
struct Global {
    const void *memory;
    size_t bytes;
};
struct Runtime {
    std::vector<Kernel> kernels;
    std::map<std::string, Global> globals;
    unsigned multiprocessors = 132;
    int major = 9, minor = 0; /* compute capability */
    Options options;
    std::function<void(void **arguments)> before; /* a launch, on the host */
    Result last;      /* of the last launch */
    unsigned launches = 0;
    uint64_t to_host = 0, from_host = 0; /* bytes that were copied from the card to the host, and to it */
};
extern Runtime runtime;

} // namespace machine

#endif
