static __device__ float load(const float * x, int i) {
    return x[i];
}

static __device__ float load(const half * x, int i) {
    return x[i];
}
