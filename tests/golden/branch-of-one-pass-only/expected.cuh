#if defined(__gfx1151__)
static __device__ int width(int n, int wide) {
#if defined(GGML_USE_HIP) && defined(__gfx1151__)
    return 2*n;
#else
    return n;
#endif
}
#else
static __device__ int width(int n) {
    return n;
}
#endif
