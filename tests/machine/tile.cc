/* Runs the cases of tile.h on the machine model: tile FILE [SEED]. tile.py says whether what came out is right. */
#include <stdlib.h>

#include "machine.h"
#include "tile_host.h"

extern "C" void tile_kernel(TileArguments arguments);
extern "C" void tile_pair_kernel(TileArguments arguments);

template <class T> static T *to_memory(const std::vector<T> &data, const char *name) {
    T *memory = (T *)machine::global_allocate(data.size() * sizeof(T), name);
    machine::global_copy(memory, data.data(), data.size() * sizeof(T));
    machine::global_read_only(memory);
    return memory;
}

static bool run(const char *name, TileArguments arguments, const std::vector<uint8_t> &image, const std::vector<uint32_t> &before,
                std::vector<uint32_t> &after) {
    machine::global_reset();
    arguments.image = (const uint32_t *)to_memory(image, "image");
    arguments.before = to_memory(before, "before");
    arguments.after = (uint32_t *)machine::global_allocate(after.size() * 4, "after");
    machine::Launch launch;
    launch.kernel = name;
    launch.block = TILE_THREADS;
    launch.registers = 128;
    launch.dynamic_shared = TILE_SHARED;
    if (arguments.pair) launch.grid = launch.cluster = 2;
    const machine::Result result =
        machine::launch(launch, machine::Options(), [&]() { (arguments.pair ? tile_pair_kernel : tile_kernel)(arguments); });
    if (!result.reports.empty()) fprintf(stderr, "%s", result.text().c_str());
    memcpy(after.data(), arguments.after, after.size() * 4);
    return result.reports.empty();
}

int main(int count, char **argument) {
    FILE *file = count > 1 ? fopen(argument[1], "wb") : NULL;
    if (!file) {
        fprintf(stderr, "usage: tile FILE [SEED]\n");
        return 2;
    }
    const int failed = tile_run(file, count > 2 ? (uint32_t)atoi(argument[2]) : 0, 0, TILE_CASES, run);
    return fclose(file) || failed;
}
