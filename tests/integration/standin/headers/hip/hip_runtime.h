// The little of HIP that the stand-in uses, so that its proof needs a compiler and nothing else.
#pragma once

#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
