static __device__ float load(const float * x, int i) {
    return x[i];
}

static __device__ float load(const half * x, int i) {
    return
#if defined(GGML_USE_HIP) && defined(__gfx1151__)
        widen(x[i])
#else
        x[i]
#endif
        ;
}
