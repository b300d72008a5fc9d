/* The CUDA runtime's functions that the command line calls itself, on the machine of fake_cuda.h. */
#ifndef MGV_TESTS_FAKE_RUNTIME_H
#define MGV_TESTS_FAKE_RUNTIME_H

#include "fake_cuda.h"

/* What tools/megavit_devices.c calls itself, also from a thread of its own. */
cudaError_t cudaGetDeviceCount(int *count) {
    *count = fake.devices;
    return fake.devices ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaSetDevice(int device) { return device >= 0 ? cudaSuccess : cudaErrorInvalidDevice; }
cudaError_t cudaMalloc(void **memory, size_t bytes) { return fake_allocate(memory, bytes, FAKE_DEVICE_MEMORY); }
cudaError_t cudaFree(void *memory) { return memory ? fake_release(memory, FAKE_DEVICE_MEMORY) : cudaSuccess; }
cudaError_t cudaMallocHost(void **memory, size_t bytes) { return fake_allocate(memory, bytes, FAKE_PINNED_MEMORY); }
cudaError_t cudaFreeHost(void *memory) { return fake_release(memory, FAKE_PINNED_MEMORY); }
const char *cudaGetErrorString(cudaError_t code) { return fake_GetErrorString(code); }

#endif
