#ifdef USE_WIDE
static __device__ int width(int n, int wide) {
    return n;
}
#else
static __device__ int width(int n) {
#if defined(GGML_USE_HIP) && defined(__gfx1151__)
    return 2*n;
#else
    return n;
#endif
}
#endif
