/* Stands for megavit_kernels.h where the CUDA runtime is tests/fake_cuda.h. */
static const unsigned long long mgv_kernels[] = {1};
