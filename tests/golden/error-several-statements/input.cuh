static void kernel(int n) {
    if (n > 4)
        step(n);
    last(n);
}
