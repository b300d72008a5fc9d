/* Records on a GPU what the model must reproduce: `record FILE [RECORDED]`, and says of each case whether it is what RECORDED has. Built
   and run by record.sh. Cases run in a process of their own each, up to the next one that hardware refuses or that fails, whose bytes are
   zeros: such a case takes the whole process with it. RECORD_WITHOUT_WGMMA, for other cards than Hopper's, leaves those products out. */
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "record_kernel.cu"
#include "record_host.h"

static int launch(const RecordArguments &arguments, uint32_t ctas) {
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = ctas;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    config.gridDim = dim3(ctas);
    config.blockDim = dim3(128);
    config.dynamicSmemBytes = RECORD_SHARED;
    config.attrs = &cluster;
    config.numAttrs = 1;
    cudaError_t error = cudaLaunchKernelEx(&config, record_kernel, arguments);
    if (error == cudaSuccess) error = cudaDeviceSynchronize();
    if (error != cudaSuccess) fprintf(stderr, "%s\n", cudaGetErrorString(error));
    return (int)error;
}

static bool left_out(const RecordCase &c) {
#ifdef RECORD_WITHOUT_WGMMA
    return record_of_hopper(c);
#else
    (void)c;
    return false;
#endif
}

static std::vector<uint8_t> bytes_of(const char *path) {
    std::vector<uint8_t> bytes;
    FILE *file = fopen(path, "rb");
    for (int c; file && (c = fgetc(file)) != EOF;) bytes.push_back((uint8_t)c);
    if (file) fclose(file);
    return bytes;
}

/* How many cases of `path` are others than in `recorded`, which has all. */
static int compare(const char *path, const char *recorded) {
    const std::vector<uint8_t> here = bytes_of(path), there = bytes_of(recorded);
    size_t at = 0, at_there = 0;
    int same = 0, others = 0;
    for (const RecordCase &c : record_cases) {
        if (record_refused(c)) continue;
        const size_t bytes = record_out_bytes(c);
        at_there += bytes;
        if (left_out(c)) continue;
        at += bytes;
        size_t first = 0;
        if (at > here.size() || at_there > there.size()) {
            printf("%s: the recording is too short\n", c.name);
            return others + 1;
        }
        while (first < bytes && here[at - bytes + first] == there[at_there - bytes + first]) first++;
        if (first == bytes) same++;
        else printf("%s: byte %zu of %zu is another\n", c.name, first, bytes);
        others += first != bytes;
    }
    printf("%d cases have the bytes of %s, %d have others\n", same, recorded, others);
    return others;
}

/* Records the cases from `first` on. Exit status: 0 when the last one is done, 1 when a case failed; the number of the case goes to
   `at`. */
static int record(const char *path, int first, int at) {
    void *entry = NULL;
    cudaDriverEntryPointQueryResult found;
    FILE *file = fopen(path, "ab");
    if (!file || cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found) != cudaSuccess ||
        !entry) {
        fprintf(stderr, "no file to write, or no GPU\n");
        return 2;
    }
    cudaFuncSetAttribute(record_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, RECORD_SHARED);
    for (int i = first; i < RECORD_CASES; i++) {
        if (left_out(record_cases[i])) continue;
        if (write(at, &i, sizeof i) != sizeof i) return 2;
        const int failed =
            record_run((record_encode)entry, launch,
                       [&](int, const std::vector<uint8_t> &bytes) { fwrite(bytes.data(), 1, bytes.size(), file); }, i, i + 1);
        for (uint32_t b = 0; failed >= 0 && !record_refused(record_cases[i]) && b < record_out_bytes(record_cases[i]); b++) fputc(0, file);
        fflush(file);
        fprintf(stderr, "%2d %s: %s\n", i, record_cases[i].name,
                failed >= 0                       ? "FAILED"
                : record_refused(record_cases[i]) ? "refused, as it must be"
                                                  : "recorded");
        if (failed >= 0 || record_refused(record_cases[i])) return 1;
    }
    return 0;
}

int main(int count, char **argument) {
    if (count != 2 && count != 3) return 2;
    for (int first = 0, status = 1; first < RECORD_CASES && status;) {
        int at[2], i = first;
        if (pipe(at)) return 2;
        const pid_t child = fork();
        if (!child) _exit(record(argument[1], first, at[1]));
        close(at[1]);
        while (read(at[0], &i, sizeof i) == sizeof i) {
        }
        close(at[0]);
        if (waitpid(child, &status, 0) != child || WEXITSTATUS(status) == 2) return 2;
        first = i + 1;
    }
    return count == 3 && compare(argument[1], argument[2]);
}
