static void kernel(int n) {
    const int a =
#ifdef WIDE
        64;
#else
        32;
#endif
    step(a);
}
