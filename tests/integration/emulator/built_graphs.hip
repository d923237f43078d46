// Graphs put together node by node, on the emulated GPU.

#include <hip/hip_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

void must(hipError_t error, int line) {
    if (error != hipSuccess) {
        std::printf("wrong: line %d: %s\n", line, hipGetErrorName(error));
        std::exit(1);
    }
}
#define MUST(call) must(call, __LINE__)

__global__ void add(int * x, int by) { x[threadIdx.x] += by; }

void count(void * data) { ++*static_cast<int *>(data); }

void expect(bool holds, const char * what) {
    if (!holds) {
        std::printf("wrong: %s\n", what);
    }
}

} // namespace

int main() {
    int * x;
    MUST(hipMalloc(&x, 64 * sizeof(int)));
    int counted = 0, by = 5;
    std::vector<int> back(64);

    // Added from the last to the first: edges alone say the order.
    hipGraph_t graph, inner;
    hipGraphNode_t fetched, counts, added, filled, child, nothing;
    MUST(hipGraphCreate(&graph, 0));
    MUST(hipGraphAddMemcpyNode1D(&fetched, graph, nullptr, 0, back.data(), x, 64 * sizeof(int), hipMemcpyDeviceToHost));
    hipHostNodeParams host = {count, &counted};
    MUST(hipGraphAddHostNode(&counts, graph, &fetched, 1, &host));
    void * given[]             = {&x, &by};
    hipKernelNodeParams kernel = {};
    kernel.func                = reinterpret_cast<void *>(add);
    kernel.gridDim             = dim3(1);
    kernel.blockDim            = dim3(64);
    kernel.kernelParams        = given;
    MUST(hipGraphAddKernelNode(&added, graph, nullptr, 0, &kernel));
    hipMemsetParams fill = {};
    fill.dst             = x;
    fill.elementSize     = 4;
    fill.value           = 100;
    fill.width           = 64;
    fill.height          = 1;
    MUST(hipGraphAddMemsetNode(&filled, graph, nullptr, 0, &fill));
    // A graph inside of it, which adds 1 and then 2.
    MUST(hipGraphCreate(&inner, 0));
    hipGraphNode_t first, second;
    by = 1;
    MUST(hipGraphAddKernelNode(&first, inner, nullptr, 0, &kernel));
    by = 2;
    MUST(hipGraphAddKernelNode(&second, inner, &first, 1, &kernel));
    MUST(hipGraphAddChildGraphNode(&child, graph, &added, 1, inner));
    MUST(hipGraphAddEmptyNode(&nothing, graph, &child, 1));
    const hipGraphNode_t from[] = {filled, nothing}, to[] = {added, fetched};
    MUST(hipGraphAddDependencies(graph, from, to, 2));

    size_t nodes = 0, roots = 8;
    hipGraphNode_t found[8];
    MUST(hipGraphGetNodes(graph, nullptr, &nodes));
    MUST(hipGraphGetRootNodes(graph, found, &roots));
    expect(nodes == 6 && roots == 1 && found[0] == filled, "what it consists of");

    hipStream_t stream;
    hipGraphExec_t executable;
    MUST(hipStreamCreate(&stream));
    MUST(hipGraphInstantiate(&executable, graph, nullptr, nullptr, 0));
    MUST(hipGraphLaunch(executable, stream));
    MUST(hipGraphLaunch(executable, stream));
    MUST(hipStreamSynchronize(stream));
    expect(counted == 2 && back[0] == 108 && back[63] == 108, "filled, added to, added to by the child, fetched");

    by = 50; // arguments are the executable's from here on
    MUST(hipGraphExecKernelNodeSetParams(executable, added, &kernel));
    by = 0;
    MUST(hipGraphLaunch(executable, stream));
    MUST(hipStreamSynchronize(stream));
    expect(counted == 3 && back[0] == 153, "other arguments");

    expect(hipGraphAddDependencies(graph, &fetched, &fetched, 1) == hipErrorInvalidValue, "a node behind itself");
    expect(hipGraphAddDependencies(graph, &first, &fetched, 1) == hipErrorInvalidValue, "a node of another graph");
    MUST(hipGraphAddDependencies(graph, &counts, &filled, 1));
    hipGraphExec_t other;
    expect(hipGraphInstantiate(&other, graph, nullptr, nullptr, 0) == hipErrorInvalidValue, "a circle");
    MUST(hipGraphExecDestroy(executable));
    MUST(hipGraphDestroy(graph));
    expect(hipGraphKernelNodeSetParams(added, &kernel) == hipErrorInvalidValue, "a node of a graph that is gone");
    return 0;
}
