#define DISPATCH(D) \
    case D: \
        kernel<D>(x); \
        break;

enum class mode : int { plain, fast };

struct __align__(16) block {
    __device__ block(int n) : first{n}, second(n) { reset(); }
    ~block() { reset(); }
    __device__ int operator()(int i) const { return first + i; }
    int first;
    int second;
};

extern "C" {
namespace detail {
__launch_bounds__(256) static __global__ void kernel(const int * x, int * dst) {
    const auto pick = [&](int i) { return x[i] >> 1; };
    asm volatile("mma {%0, %1}, {%2};" : "+r"(dst[0]), "+r"(dst[1]) : "r"(x[0]));
    const char * text = R"(#if not a directive {)";
    const int2 pair{1, 2};
    run(pick(0),
#ifdef USE_WIDE
        wide<vec<vec<int>>>(pair),
#else
        narrow(pair),
#endif
        text);
    if (x[0]) {
        dst[0] = 1;
    } else if (x[1]) {
        dst[1] = 1;
    } else {
        dst[2] = 1;
    }
}
}
}
