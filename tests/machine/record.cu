/* Records on a Hopper GPU what the model must reproduce: `record FILE CASE` adds one case to the file. Built and run by record.sh: a case that the
   hardware refuses takes the whole process with it. */
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

#include "record_kernel.cu"
#include "record_host.h"

int main(int count, char **argument) {
    void *entry = NULL;
    cudaDriverEntryPointQueryResult found;
    FILE *file = count == 3 ? fopen(argument[1], "ab") : NULL;
    if (!file || cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found) != cudaSuccess || !entry) {
        fprintf(stderr, "usage: record FILE CASE, on a machine with a Hopper GPU\n");
        return 1;
    }
    cudaFuncSetAttribute(record_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, RECORD_SHARED);
    const int failed = record_run(
        (record_encode)entry,
        [](const RecordArguments &arguments) {
            record_kernel<<<1, 128, RECORD_SHARED>>>(arguments);
            const cudaError_t error = cudaDeviceSynchronize();
            if (error != cudaSuccess) fprintf(stderr, "%s\n", cudaGetErrorString(error));
            return (int)error;
        },
        [&](int, const std::vector<uint8_t> &bytes) { fwrite(bytes.data(), 1, bytes.size(), file); }, atoi(argument[2]), atoi(argument[2]) + 1);
    fclose(file);
    if (failed >= 0) fprintf(stderr, "case %d (%s) failed\n", failed, record_cases[failed].name);
    return failed >= 0;
}
