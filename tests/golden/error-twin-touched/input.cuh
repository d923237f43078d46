static void first(int n) { step(n); }
static void second(int n) { step(n); }
