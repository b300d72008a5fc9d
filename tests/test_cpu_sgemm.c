/* The tests of the CPU backend with matrix products by a caller's own routine. */
#include <stddef.h>

static void caller_sgemm(size_t m, size_t n, size_t k, const float *a, size_t lda, const float *w, size_t ldw, float *c, size_t ldc);
#define MEGAVIT_SGEMM caller_sgemm
#include "test_cpu.c"

static void caller_sgemm(size_t m, size_t n, size_t k, const float *a, size_t lda, const float *w, size_t ldw, float *c, size_t ldc) {
    size_t i, j, p;
    sgemm_calls++;
    for (i = 0; i < m; i++) {
        for (j = 0; j < n; j++) {
            float sum = 0.0f;
            for (p = 0; p < k; p++) sum += a[i * lda + p] * w[j * ldw + p];
            c[i * ldc + j] = sum;
        }
    }
}
