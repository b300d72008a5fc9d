/* Stands for megavit_kernels.h where the header is compiled with one and run by nobody (tests/test_header.sh). */
static const unsigned long long mgv_kernels[] = {1};
