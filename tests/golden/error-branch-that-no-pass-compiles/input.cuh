#ifdef USE_WIDE
static __device__ int width(int n, int wide) {
    return n;
}
#else
static __device__ int width(int n) {
    return n;
}
#endif
