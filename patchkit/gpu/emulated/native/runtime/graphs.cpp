// Graphs: operations captured from streams, or added node by node, and launched many times.

#include "answers.hpp"
#include "calls.hpp"
#include "handles.hpp"
#include "recorder.hpp"
#include "schedule.hpp"
#include "settings.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace {

using patchkit::answered;
using patchkit::is_executing;
using patchkit::is_stream;

bool is_legacy(hipStream_t stream) { return stream == nullptr || stream == hipStreamLegacy; }

// Used in destructors of other libraries, so the tables are never destroyed.
patchkit::handle_map<patchkit::graph> & graphs() {
    static auto * made = new patchkit::handle_map<patchkit::graph>;
    return *made;
}

patchkit::handle_map<patchkit::graph> & executables() {
    static auto * made = new patchkit::handle_map<patchkit::graph>;
    return *made;
}

// A node, by its index in its graph.
struct node_of {
    std::weak_ptr<patchkit::graph> in;
    size_t number;
};

patchkit::handle_map<node_of> & nodes() {
    static auto * made = new patchkit::handle_map<node_of>;
    return *made;
}

// A node always has the same handle.
hipGraphNode_t handle_of(const std::shared_ptr<patchkit::graph> & in, size_t number) {
    static std::mutex mutex;
    static auto * given = new std::map<std::pair<const patchkit::graph *, size_t>, void *>;
    const std::lock_guard<std::mutex> guard(mutex);
    void *& handle  = (*given)[{in.get(), number}];
    const auto kept = nodes().find(handle);
    if (kept == nullptr || kept->in.lock() != in) {
        handle = nodes().make(std::make_shared<node_of>(node_of{in, number}));
    }
    return static_cast<hipGraphNode_t>(handle);
}

bool find_node(const std::shared_ptr<patchkit::graph> & in, hipGraphNode_t node, size_t & number) {
    const auto found = nodes().find(node);
    if (found == nullptr || found->in.lock() != in) {
        return false;
    }
    number = found->number;
    return true;
}

// Topologically sorted; returns false if there is a cycle.
bool sort(const patchkit::graph & given, patchkit::graph & sorted) {
    const size_t count = given.nodes.size();
    std::vector<size_t> place(count, count);
    for (bool is_more = true; is_more && sorted.nodes.size() < count;) {
        is_more = false;
        for (size_t i = 0; i < count; ++i) {
            const std::vector<size_t> & after = given.nodes[i].after;
            if (place[i] != count ||
                std::any_of(after.begin(), after.end(), [&](size_t one) { return place[one] == count; })) {
                continue;
            }
            place[i]  = sorted.nodes.size();
            auto node = given.nodes[i];
            for (size_t & one : node.after) {
                one = place[one];
            }
            sorted.nodes.push_back(std::move(node));
            is_more = true;
        }
    }
    return sorted.nodes.size() == count;
}

// The header documents hipErrorInvalidValue for an invalid graph.
hipError_t instantiate(hipGraphExec_t * executable, hipGraph_t graph) {
    const auto found = graphs().find(graph);
    if (executable == nullptr || found == nullptr) {
        return hipErrorInvalidValue;
    }
    patchkit::graph sorted;
    if (!sort(*found, sorted)) {
        return hipErrorInvalidValue;
    }
    *executable = static_cast<hipGraphExec_t>(executables().make(std::make_shared<patchkit::graph>(*found)));
    return hipSuccess;
}

// What a node adds to a stream when that is captured.
using call = std::function<hipError_t(hipStream_t)>;

patchkit::work all_of(patchkit::graph parts) {
    return [parts = std::move(parts)] {
        for (const patchkit::graph::node & one : parts.nodes) {
            one.todo();
        }
    };
}

hipError_t capture(const call & of, patchkit::work & todo) {
    if (!is_executing()) {
        return hipErrorNotSupported;
    }
    const hipStream_t stream = patchkit::make_stream(hipStreamNonBlocking, 0);
    patchkit::graph captured;
    hipError_t error = patchkit::begin_capture(stream);
    if (error == hipSuccess) {
        error                  = of(stream);
        const hipError_t ended = patchkit::end_capture(stream, captured);
        error                  = error == hipSuccess ? ended : error;
    }
    (void) patchkit::destroy_stream(stream);
    todo = all_of(std::move(captured));
    return error;
}

hipError_t set_work(patchkit::graph::node & node, const call & of) {
    patchkit::work todo;
    const hipError_t error = capture(of, todo);
    if (error == hipSuccess) {
        node.todo = std::move(todo);
    }
    return error;
}

hipError_t add_work(hipGraphNode_t * made, hipGraph_t graph, const hipGraphNode_t * after, size_t count,
                    patchkit::work todo) {
    const auto found = graphs().find(graph);
    if (made == nullptr || found == nullptr || (count != 0 && after == nullptr)) {
        return hipErrorInvalidValue;
    }
    patchkit::graph::node node = {std::move(todo), {}};
    for (size_t i = 0; i < count; ++i) {
        size_t number = 0;
        if (!find_node(found, after[i], number)) {
            return hipErrorInvalidValue;
        }
        node.after.push_back(number);
    }
    found->nodes.push_back(std::move(node));
    *made = handle_of(found, found->nodes.size() - 1);
    return hipSuccess;
}

hipError_t add_node(hipGraphNode_t * made, hipGraph_t graph, const hipGraphNode_t * after, size_t count,
                    const call & of) {
    if (made == nullptr || graphs().find(graph) == nullptr) {
        return hipErrorInvalidValue;
    }
    patchkit::work todo;
    const hipError_t error = capture(of, todo);
    return error == hipSuccess ? add_work(made, graph, after, count, std::move(todo)) : error;
}

call launching(const hipKernelNodeParams & given) {
    return [given](hipStream_t stream) {
        if (given.func == nullptr || given.extra != nullptr) {
            return given.func == nullptr ? hipErrorInvalidValue : hipErrorNotSupported;
        }
        return hipLaunchKernel(given.func, given.gridDim, given.blockDim, given.kernelParams, given.sharedMemBytes,
                               stream);
    };
}

// Rows of elements of 1, 2 or 4 bytes.
call filling(const hipMemsetParams & given) {
    return [given](hipStream_t stream) {
        hipError_t error = hipSuccess;
        for (size_t row = 0; row < given.height && error == hipSuccess; ++row) {
            char * place    = static_cast<char *>(given.dst) + row * given.pitch;
            const auto at   = reinterpret_cast<hipDeviceptr_t>(place);
            switch (given.elementSize) {
                case 1: error = hipMemsetAsync(place, int(given.value), given.width, stream); break;
                case 2: error = hipMemsetD16Async(at, static_cast<unsigned short>(given.value), given.width, stream); break;
                default: error = hipMemsetD32Async(at, int(given.value), given.width, stream); break;
            }
        }
        return error;
    };
}

template <typename Is>
hipError_t list_nodes(hipGraph_t graph, hipGraphNode_t * listed, size_t * count, Is is_wanted) {
    const auto found = graphs().find(graph);
    if (found == nullptr || count == nullptr) {
        return hipErrorInvalidValue;
    }
    size_t number = 0;
    for (size_t i = 0; i < found->nodes.size(); ++i) {
        if (is_wanted(found->nodes[i])) {
            if (listed != nullptr && number < *count) {
                listed[number] = handle_of(found, i);
            }
            ++number;
        }
    }
    *count = listed == nullptr ? number : std::min(number, *count);
    return hipSuccess;
}

} // namespace

extern "C" {

hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus * status) {
    if (status == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    if (!is_stream(stream)) {
        return answered(hipErrorContextIsDestroyed);
    }
    unsigned long long id = 0;
    *status = patchkit::capture_status(stream, id);
    return answered(hipSuccess);
}

hipError_t hipStreamGetCaptureInfo(hipStream_t stream, hipStreamCaptureStatus * status, unsigned long long * id) {
    if (status == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    if (!is_stream(stream)) {
        return answered(hipErrorContextIsDestroyed);
    }
    unsigned long long found = 0;
    *status = patchkit::capture_status(stream, found);
    if (*status == hipStreamCaptureStatusActive && id != nullptr) {
        *id = found;
    }
    return answered(hipSuccess);
}

hipError_t hipStreamGetCaptureInfo_v2(hipStream_t stream, hipStreamCaptureStatus * status, unsigned long long * id,
                                      hipGraph_t * graph, const hipGraphNode_t ** after, size_t * count) {
    const hipError_t error = hipStreamGetCaptureInfo(stream, status, id);
    const bool asks        = graph != nullptr || after != nullptr || count != nullptr;
    if (error == hipSuccess && asks && *status == hipStreamCaptureStatusActive) {
        return answered(patchkit::refused(hipErrorNotSupported, "a graph that is being captured has no handle here"));
    }
    return error;
}

hipError_t hipGraphDebugDotPrint(hipGraph_t graph, const char * path, unsigned /*flags*/) {
    if (graphs().find(graph) == nullptr || path == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    return answered(patchkit::refused(hipErrorNotSupported, "pictures of graphs are not made"));
}

// All captures use the relaxed mode: calls during a capture are not restricted.
hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode * mode) {
    thread_local hipStreamCaptureMode current = hipStreamCaptureModeGlobal;
    if (mode == nullptr || *mode < hipStreamCaptureModeGlobal || *mode > hipStreamCaptureModeRelaxed) {
        return answered(hipErrorInvalidValue);
    }
    std::swap(current, *mode);
    return answered(hipSuccess);
}

// Nothing is captured while recording (the runner sets GGML_CUDA_DISABLE_GRAPHS), because the capture would be recorded
// instead of the replays.
hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode /*mode*/) {
    if (!is_stream(stream)) {
        return answered(hipErrorContextIsDestroyed);
    }
    if (is_legacy(stream)) {
        return answered(hipErrorStreamCaptureUnsupported);
    }
    return answered(is_executing() ? patchkit::begin_capture(stream) : hipErrorNotSupported);
}

hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t * graph) {
    if (graph == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    if (!is_stream(stream)) {
        return answered(hipErrorContextIsDestroyed);
    }
    auto captured = std::make_shared<patchkit::graph>();
    const hipError_t error = patchkit::end_capture(stream, *captured);
    *graph = error == hipSuccess ? static_cast<hipGraph_t>(graphs().make(std::move(captured))) : nullptr;
    return answered(error);
}

hipError_t hipGraphInstantiate(hipGraphExec_t * executable, hipGraph_t graph, hipGraphNode_t * /*node*/,
                               char * /*log*/, size_t /*size*/) {
    return answered(instantiate(executable, graph));
}

hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t * executable, hipGraph_t graph, unsigned long long flags) {
    const bool is_known = flags == 0 || flags == hipGraphInstantiateFlagAutoFreeOnLaunch ||
                          flags == hipGraphInstantiateFlagUseNodePriority;
    return answered(is_known ? instantiate(executable, graph) : hipErrorInvalidValue);
}

// Nothing to upload.
hipError_t hipGraphUpload(hipGraphExec_t executable, hipStream_t stream) {
    return answered(executables().find(executable) != nullptr && is_stream(stream) ? hipSuccess
                                                                                   : hipErrorInvalidValue);
}

hipError_t hipGraphGetNodes(hipGraph_t graph, hipGraphNode_t * nodes, size_t * count) {
    return answered(list_nodes(graph, nodes, count, [](const patchkit::graph::node &) { return true; }));
}

hipError_t hipGraphGetRootNodes(hipGraph_t graph, hipGraphNode_t * nodes, size_t * count) {
    return answered(list_nodes(graph, nodes, count, [](const patchkit::graph::node & one) { return one.after.empty(); }));
}

// Manually built graphs.

hipError_t hipGraphCreate(hipGraph_t * graph, unsigned int flags) {
    if (graph == nullptr || flags != 0) {
        return answered(hipErrorInvalidValue);
    }
    *graph = static_cast<hipGraph_t>(graphs().make(std::make_shared<patchkit::graph>()));
    return answered(hipSuccess);
}

hipError_t hipGraphAddEmptyNode(hipGraphNode_t * node, hipGraph_t graph, const hipGraphNode_t * after, size_t count) {
    return answered(add_node(node, graph, after, count, [](hipStream_t) { return hipSuccess; }));
}

hipError_t hipGraphAddKernelNode(hipGraphNode_t * node, hipGraph_t graph, const hipGraphNode_t * after, size_t count,
                                 const hipKernelNodeParams * given) {
    return answered(given == nullptr ? hipErrorInvalidValue : add_node(node, graph, after, count, launching(*given)));
}

hipError_t hipGraphAddMemcpyNode1D(hipGraphNode_t * node, hipGraph_t graph, const hipGraphNode_t * after, size_t count,
                                   void * to, const void * from, size_t size, hipMemcpyKind kind) {
    return answered(add_node(node, graph, after, count, [=](hipStream_t stream) {
        return hipMemcpyAsync(to, from, size, kind, stream);
    }));
}

hipError_t hipGraphAddMemsetNode(hipGraphNode_t * node, hipGraph_t graph, const hipGraphNode_t * after, size_t count,
                                 const hipMemsetParams * given) {
    const bool is_sized = given != nullptr && (given->elementSize == 1 || given->elementSize == 2 || given->elementSize == 4);
    return answered(is_sized ? add_node(node, graph, after, count, filling(*given)) : hipErrorInvalidValue);
}

hipError_t hipGraphAddHostNode(hipGraphNode_t * node, hipGraph_t graph, const hipGraphNode_t * after, size_t count,
                               const hipHostNodeParams * given) {
    if (given == nullptr || given->fn == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    return answered(add_node(node, graph, after, count, [what = *given](hipStream_t stream) {
        return hipLaunchHostFunc(stream, what.fn, what.userData);
    }));
}

// All of its nodes count as one: what depends on it depends on all of them.
hipError_t hipGraphAddChildGraphNode(hipGraphNode_t * node, hipGraph_t graph, const hipGraphNode_t * after,
                                     size_t count, hipGraph_t child) {
    const auto found = graphs().find(child);
    patchkit::graph sorted;
    if (found == nullptr || child == graph || !sort(*found, sorted)) {
        return answered(hipErrorInvalidValue);
    }
    return answered(add_work(node, graph, after, count, all_of(std::move(sorted))));
}

hipError_t hipGraphAddDependencies(hipGraph_t graph, const hipGraphNode_t * from, const hipGraphNode_t * to,
                                   size_t count) {
    const auto found = graphs().find(graph);
    if (found == nullptr || (count != 0 && (from == nullptr || to == nullptr))) {
        return answered(hipErrorInvalidValue);
    }
    for (size_t i = 0; i < count; ++i) {
        size_t first = 0, second = 0;
        if (!find_node(found, from[i], first) || !find_node(found, to[i], second) || first == second) {
            return answered(hipErrorInvalidValue);
        }
        std::vector<size_t> & own = found->nodes[second].after;
        if (std::find(own.begin(), own.end(), first) == own.end()) {
            own.push_back(first);
        }
    }
    return answered(hipSuccess);
}

hipError_t hipGraphKernelNodeSetParams(hipGraphNode_t node, const hipKernelNodeParams * given) {
    const auto found = nodes().find(node);
    const auto owner = found == nullptr ? nullptr : found->in.lock();
    return answered(owner == nullptr || given == nullptr ? hipErrorInvalidValue
                                                         : set_work(owner->nodes[found->number], launching(*given)));
}

// The executable has the nodes of its graph, in the same order.
hipError_t hipGraphExecKernelNodeSetParams(hipGraphExec_t executable, hipGraphNode_t node,
                                           const hipKernelNodeParams * given) {
    const auto own   = executables().find(executable);
    const auto found = nodes().find(node);
    if (own == nullptr || found == nullptr || given == nullptr || found->number >= own->nodes.size()) {
        return answered(hipErrorInvalidValue);
    }
    return answered(set_work(own->nodes[found->number], launching(*given)));
}

// Only graphs with equal topology can be updated; here the whole graph is replaced.
hipError_t hipGraphExecUpdate(hipGraphExec_t executable, hipGraph_t graph, hipGraphNode_t * node,
                              hipGraphExecUpdateResult * result) {
    const auto old = executables().find(executable);
    const auto now = graphs().find(graph);
    if (old == nullptr || now == nullptr || node == nullptr || result == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    *node = nullptr;
    bool is_same = old->nodes.size() == now->nodes.size();
    for (size_t i = 0; is_same && i < now->nodes.size(); ++i) {
        is_same = old->nodes[i].after == now->nodes[i].after;
    }
    *result = is_same ? hipGraphExecUpdateSuccess : hipGraphExecUpdateErrorTopologyChanged;
    if (is_same) {
        *old = *now;
    }
    return answered(is_same ? hipSuccess : hipErrorGraphExecUpdateFailure);
}

hipError_t hipGraphLaunch(hipGraphExec_t executable, hipStream_t stream) {
    const auto found = executables().find(executable);
    if (found == nullptr || !is_stream(stream)) {
        return answered(hipErrorInvalidValue);
    }
    patchkit::graph sorted;
    (void) sort(*found, sorted);
    return answered(patchkit::launch(sorted, stream));
}

hipError_t hipGraphDestroy(hipGraph_t graph) {
    return answered(graphs().drop(graph) ? hipSuccess : hipErrorInvalidValue);
}

hipError_t hipGraphExecDestroy(hipGraphExec_t executable) {
    return answered(executables().drop(executable) ? hipSuccess : hipErrorInvalidValue);
}

} // extern "C"
