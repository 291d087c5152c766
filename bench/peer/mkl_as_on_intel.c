// MKL, which does PyTorch's fp32 products, asks this function of its own whether the CPU is Intel's, and multiplies with
// slower kernels if not (half as fast on a Zen 5, without AVX-512). Preloaded, it gives other CPUs the same kernels.
int mkl_serv_intel_cpu_true(void) { return 1; }
