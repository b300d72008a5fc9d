/* Runs every case and hands its bytes to `keep`. The same on a GPU and on the model: only the launch differs. */
#ifndef MACHINE_RECORD_HOST_H
#define MACHINE_RECORD_HOST_H

#include <cuda_runtime_api.h>
#include <string.h>

#include <vector>

#include "record.h"

typedef CUresult (*record_encode)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *,
                                  const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                  CUtensorMapFloatOOBfill);

static bool record_map(record_encode encode, CUtensorMap *map, const RecordCase &c, void *memory) {
    const bool of_3 = (c.mode >= RECORD_LOAD_3D && c.mode <= RECORD_REDUCE_3D) || c.mode == RECORD_FLAGS || c.mode == RECORD_CLUSTER_LOADS;
    const cuuint32_t rank = c.dims[3] ? 4 : of_3 ? 3 : 2, ones[4] = {1, 1, 1, 1};
    const cuuint64_t dims[4] = {c.dims[0], c.dims[1], c.dims[2], c.dims[3]};
    const cuuint64_t row = (cuuint64_t)c.dims[0] * (cuuint64_t)c.element_bytes;
    const cuuint64_t strides[3] = {row, row * c.dims[1], row * c.dims[1] * c.dims[2]};
    const CUtensorMapDataType type = c.element_bytes == 1   ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                     : c.element_bytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                            : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    return encode(map, type, rank, memory, dims, strides, c.box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, (CUtensorMapSwizzle)c.swizzle,
                  CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/* launch(arguments, CTAs of its one cluster) runs the kernel and returns 0 when it ran well, which it must not where the case is one that
   hardware refuses. Returns the number of the first case that failed, or -1. */
template <class Launch, class Keep>
int record_run(record_encode encode, const Launch &launch, const Keep &keep, int first = 0, int end = RECORD_CASES) {
    static const RecordCase a_case = {"A", RECORD_LOAD_2D, 0, 2, 3, {64, 64, 1}, {64, 64, 1}, {0, 0, 0}};
    for (int i = first; i < end; i++) {
        const RecordCase &c = record_cases[i];
        const size_t elements = record_count(c.dims), bytes = elements * (size_t)c.element_bytes;
        std::vector<uint8_t> tensor(bytes), a(64 * 64 * 2), out(RECORD_OUT);
        for (size_t j = 0; j < bytes; j++)
            tensor[j] = c.mode == RECORD_WGMMA_E4M3 ? record_e4m3((uint32_t)j + 9, !c.at[2]) : record_byte((uint32_t)j);
        const bool of_16_bits = record_product(c) || c.mode == RECORD_WGMMA_ROUNDED || c.mode == RECORD_WGMMA_HALF_ROUNDED;
        for (uint32_t j = 0; of_16_bits && j < elements; j++) {
            const uint16_t v = c.mode == RECORD_WGMMA_ROUNDED        ? record_rough_number(j + 5000)
                               : c.mode == RECORD_WGMMA_HALF_ROUNDED ? record_any_half(j + 5000)
                                                                     : record_number(j + 5);
            memcpy(&tensor[2 * j], &v, 2);
        }
        for (uint32_t j = 0; c.mode == RECORD_REDUCE_3D && j < bytes / 4; j++) {
            const uint32_t v = record_addend(j + 12345, c.element_bytes);
            memcpy(&tensor[4 * j], &v, 4);
        }
        for (uint32_t j = 0; j < 64 * 64; j++) {
            const bool whole = !c.at[2];
            const uint16_t v = c.mode == RECORD_WGMMA_E4M3      ? (uint16_t)(record_e4m3(j * 2, whole) | record_e4m3(j * 2 + 1, whole) << 8)
                               : c.mode == RECORD_WGMMA_ROUNDED ? record_rough_number(j)
                               : c.mode == RECORD_WGMMA_HALF_ROUNDED ? record_any_half(j)
                                                                : record_number(j * 3);
            memcpy(&a[2 * j], &v, 2);
        }
        RecordArguments arguments;
        memset((void *)&arguments, 0, sizeof arguments);
        void *tensor_memory, *a_memory, *out_memory, *flags_memory;
        if (cudaMalloc(&tensor_memory, bytes) || cudaMalloc(&a_memory, a.size()) || cudaMalloc(&out_memory, RECORD_OUT) ||
            cudaMalloc(&flags_memory, 32))
            return i;
        cudaMemset(flags_memory, 0, 32);
        cudaMemcpy(tensor_memory, tensor.data(), bytes, cudaMemcpyHostToDevice);
        cudaMemcpy(a_memory, a.data(), a.size(), cudaMemcpyHostToDevice);
        cudaMemset(out_memory, 0, RECORD_OUT);
        if (!record_map(encode, &arguments.map, c, tensor_memory) || !record_map(encode, &arguments.map_a, a_case, a_memory)) return i;
        arguments.out = (uint8_t *)out_memory;
        arguments.mode = (uint32_t)c.mode;
        arguments.n = (uint32_t)c.n;
        arguments.flags = (uint32_t *)flags_memory;
        arguments.tensor = (const uint8_t *)tensor_memory;
        arguments.bytes = record_box_bytes(c);
        arguments.dump = record_dump_bytes(c);
        arguments.element_bytes = c.element_bytes;
        arguments.swizzle = c.swizzle;
        memcpy(arguments.at, c.at, sizeof c.at);
        const int failed = launch(arguments, record_ctas(c));
        if (record_refused(c)) {
            if (!failed) return i;
            continue;
        }
        if (failed) return i;
        out.resize(record_out_bytes(c));
        cudaMemcpy(out.data(), c.mode >= RECORD_STORE_3D && c.mode <= RECORD_REDUCE_3D ? tensor_memory : out_memory, out.size(),
                   cudaMemcpyDeviceToHost);
        keep(i, out);
        cudaFree(tensor_memory);
        cudaFree(a_memory);
        cudaFree(out_memory);
        cudaFree(flags_memory);
    }
    return -1;
}

#endif
