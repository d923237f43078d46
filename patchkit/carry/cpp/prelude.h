// Minimal replacement for the HIP runtime header, so that kernels can be parsed on machines without ROCm.
// Types and functions are left undeclared on purpose: only function extents and syntax errors are taken
// from these parses.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __align__(...) __attribute__((aligned(__VA_ARGS__)))
#define __builtin_align__(...) __attribute__((aligned(__VA_ARGS__)))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define HIP_VERSION 60300000
