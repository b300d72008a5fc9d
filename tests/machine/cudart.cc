/* The CUDA Runtime API in front of the machine model. Everything is done at once; streams and events are names. */
#include "cudart.h"
#include "planted.h"

#include <stdlib.h>
#include <string.h>

#include <utility>

#include "internal.h"
#include "cuda_runtime_api.h"

namespace machine {

Planted planted = Planted::nothing;
Runtime runtime;
}
using machine::runtime;

static bool on_device(const void *p) { return (uintptr_t)p - machine::ARENA < machine::ARENA_BYTES; }

static std::map<const char *, size_t> page_locked;
static bool on_host(const void *p) {
    if (!on_device(p)) return true;
    auto next = page_locked.upper_bound((const char *)p);
    if (next == page_locked.begin()) return false;
    --next;
    return (const char *)p < next->first + next->second;
}

static int token; /* what every stream, event and library points at */

extern "C" {

const char *cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "an error of the machine model"; }
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int *version) { *version = 13000; return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *version) { *version = 13000; return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int *count) { *count = 1; return cudaSuccess; }
cudaError_t cudaGetDevice(int *device) { *device = 0; return cudaSuccess; }
cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; }

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int) {
    switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = (int)runtime.multiprocessors; break;
    case cudaDevAttrComputeCapabilityMajor: *value = runtime.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = runtime.minor; break;
    case cudaDevAttrCooperativeLaunch: *value = 1; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 227 * 1024; break;
    default: return cudaErrorInvalidValue;
    }
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **memory, size_t bytes) {
    *memory = machine::global_allocate(bytes, "device memory");
    return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void *memory) { machine::global_free(memory); return cudaSuccess; }
cudaError_t cudaMallocHost(void **memory, size_t bytes) {
    *memory = machine::global_allocate(bytes, "page-locked memory"); /* kernels write there, too */
    if (*memory) page_locked[(const char *)*memory] = bytes;
    return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeHost(void *memory) {
    page_locked.erase((const char *)memory);
    machine::global_free(memory);
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind) {
    if (on_host(to) && !on_host(from)) runtime.to_host += bytes;
    if (!on_host(to) && on_host(from)) runtime.from_host += bytes;
    if (on_device(to)) machine::global_copy(to, from, bytes);
    else memcpy(to, from, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
    return cudaMemcpy(to, from, bytes, kind);
}
cudaError_t cudaMemset(void *to, int byte, size_t bytes) {
    if (on_device(to)) machine::global_fill(to, byte, bytes);
    else memset(to, byte, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t) { return cudaMemset(to, byte, bytes); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) { *event = (cudaEvent_t)&token; return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventRecordWithFlags(cudaEvent_t, cudaStream_t, unsigned) { return cudaSuccess; }
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *memory) {
    attributes->type = on_device(memory) ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    attributes->devicePointer = on_device(memory) ? (void *)memory : nullptr;
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) { *stream = (cudaStream_t)&token; return cudaSuccess; }
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus *status) {
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode) {
    static thread_local cudaStreamCaptureMode now = cudaStreamCaptureModeGlobal;
    std::swap(now, *mode);
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize(void) { return cudaSuccess; }
cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *, cudaJitOption *, void **, unsigned, cudaLibraryOption *, void **,
                                unsigned) {
    *library = (cudaLibrary_t)&token;
    return cudaSuccess;
}
cudaError_t cudaLibraryUnload(cudaLibrary_t) { return cudaSuccess; }
cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t, const char *name) {
    for (machine::Kernel &k : runtime.kernels)
        if (k.name == name) {
            *kernel = (cudaKernel_t)&k;
            return cudaSuccess;
        }
    return cudaErrorSymbolNotFound;
}
cudaError_t cudaLibraryGetGlobal(void **address, size_t *bytes, cudaLibrary_t, const char *name) {
    auto found = runtime.globals.find(name);
    if (found == runtime.globals.end()) return cudaErrorSymbolNotFound;
    *address = (void *)found->second.memory;
    *bytes = found->second.bytes;
    return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void *, cudaFuncAttribute, int) { return cudaSuccess; }

cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, const void *, const cudaLaunchConfig_t *config) {
    *clusters = (int)(runtime.multiprocessors / config->attrs[0].val.clusterDim.x);
    return cudaSuccess;
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **arguments) {
    const machine::Kernel &k = *(const machine::Kernel *)kernel;
    machine::Launch launch;
    launch.kernel = k.name.c_str();
    launch.grid = config->gridDim.x;
    launch.block = config->blockDim.x;
    launch.dynamic_shared = config->dynamicSmemBytes;
    launch.registers = k.registers;
    launch.cooperative = false;
    launch.multiprocessors = runtime.multiprocessors;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        if (config->attrs[i].id == cudaLaunchAttributeClusterDimension) launch.cluster = config->attrs[i].val.clusterDim.x;
        if (config->attrs[i].id == cudaLaunchAttributeCooperative) launch.cooperative = config->attrs[i].val.cooperative != 0;
    }
    runtime.launches++;
    if (runtime.before) runtime.before(arguments);
    runtime.last = machine::launch(launch, runtime.options, [&]() { k.run(arguments); });
    return runtime.last.has("launch") ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult *found) {
    const bool known = strcmp(name, "cuTensorMapEncodeTiled") == 0;
    *function = known ? (void *)machine::tensor_map_encode : nullptr;
    *found = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

} /* extern "C" */
