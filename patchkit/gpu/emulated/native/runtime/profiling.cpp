// roctracer and roctx: marks for profilers. There is no profiler, so they do nothing, as without one in ROCm.

extern "C" {

void roctracer_start() {}
void roctracer_stop() {}

void roctxMarkA(const char *) {}

// The depth of the range, from 0.
thread_local static int depth = 0;
int roctxRangePushA(const char *) { return depth++; }
int roctxRangePop() { return depth == 0 ? -1 : --depth; }

} // extern "C"
