/* Runs a case of tile.h on a Blackwell card: tile_card FILE NUMBER [SEED], which adds to FILE; tile_card alone says how many there are. A
   process a case, since one that the card refuses takes its context with it. tile.sh */
#include <cuda_runtime.h>
#include <stdlib.h>

#include "tile.cu"
#include "tile_host.h"

template <class T> static T *to_card(const std::vector<T> &data) {
    void *memory = NULL;
    if (cudaMalloc(&memory, data.size() * sizeof(T)) == cudaSuccess)
        cudaMemcpy(memory, data.data(), data.size() * sizeof(T), cudaMemcpyHostToDevice);
    return (T *)memory;
}

static bool run(const char *name, TileArguments arguments, const std::vector<uint8_t> &image, const std::vector<uint32_t> &before,
                std::vector<uint32_t> &after) {
    arguments.image = (const uint32_t *)to_card(image);
    arguments.before = to_card(before);
    arguments.after = to_card(after);
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = config.gridDim.x = arguments.pair ? 2 : 1;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = config.gridDim.y = config.gridDim.z = 1;
    config.blockDim = dim3(TILE_THREADS);
    config.dynamicSmemBytes = TILE_SHARED;
    config.attrs = &cluster;
    config.numAttrs = 1;
    void (*const kernel)(const TileArguments) = arguments.pair ? tile_pair_kernel : tile_kernel;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, TILE_SHARED);
    cudaLaunchKernelEx(&config, kernel, arguments);
    cudaMemcpy(after.data(), arguments.after, after.size() * 4, cudaMemcpyDeviceToHost);
    const cudaError_t error = cudaDeviceSynchronize();
    fprintf(stderr, "%s: %s\n", name, error == cudaSuccess ? "recorded" : cudaGetErrorString(error));
    return error == cudaSuccess;
}

int main(int count, char **argument) {
    if (count < 3) return printf("%d\n", (int)TILE_CASES) < 0;
    const int number = atoi(argument[2]);
    FILE *file = number >= 0 && number < TILE_CASES ? fopen(argument[1], "ab") : NULL;
    if (!file) return 2;
    const int failed = tile_run(file, count > 3 ? (uint32_t)atoi(argument[3]) : 0, (uint32_t)number, (uint32_t)number + 1, run);
    return fclose(file) || failed;
}
