// Graphs: operations of streams that are captured once and launched many times.

#include "answers.hpp"
#include "emulation.hpp"
#include "handles.hpp"
#include "recorder.hpp"
#include "schedule.hpp"

#include <memory>
#include <utility>

namespace {

using patchkit::answered;
using patchkit::is_executing;
using patchkit::is_stream;

bool is_legacy(hipStream_t stream) { return stream == nullptr || stream == hipStreamLegacy; }

// Used in destructors of other libraries: the tables have to outlive them.
patchkit::handle_map<patchkit::graph> & graphs() {
    static auto * made = new patchkit::handle_map<patchkit::graph>;
    return *made;
}

patchkit::handle_map<patchkit::graph> & executables() {
    static auto * made = new patchkit::handle_map<patchkit::graph>;
    return *made;
}

// The header has hipErrorInvalidValue for a graph that is none.
hipError_t instantiate(hipGraphExec_t * executable, hipGraph_t graph) {
    const auto found = graphs().find(graph);
    if (executable == nullptr || found == nullptr) {
        return hipErrorInvalidValue;
    }
    *executable = static_cast<hipGraphExec_t>(executables().make(std::make_shared<patchkit::graph>(*found)));
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

// Every capture is of the relaxed mode: what a program may call meanwhile is not restricted.
hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode * mode) {
    thread_local hipStreamCaptureMode current = hipStreamCaptureModeGlobal;
    if (mode == nullptr || *mode < hipStreamCaptureModeGlobal || *mode > hipStreamCaptureModeRelaxed) {
        return answered(hipErrorInvalidValue);
    }
    std::swap(current, *mode);
    return answered(hipSuccess);
}

// Nothing is captured while recording (the runner sets GGML_CUDA_DISABLE_GRAPHS): recorded would be the capture, not
// the replays.
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

// There is nowhere to upload it to.
hipError_t hipGraphUpload(hipGraphExec_t executable, hipStream_t stream) {
    return answered(executables().find(executable) != nullptr && is_stream(stream) ? hipSuccess
                                                                                   : hipErrorInvalidValue);
}

// Nodes cannot be asked about, only counted.
hipError_t hipGraphGetNodes(hipGraph_t graph, hipGraphNode_t * nodes, size_t * count) {
    const auto found = graphs().find(graph);
    if (found == nullptr || count == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    if (nodes != nullptr) {
        return answered(hipErrorNotSupported);
    }
    *count = found->nodes.size();
    return answered(hipSuccess);
}

// Only graphs of one shape can be updated; here the whole is taken over then.
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
    return answered(patchkit::launch(*found, stream));
}

hipError_t hipGraphDestroy(hipGraph_t graph) {
    return answered(graphs().drop(graph) ? hipSuccess : hipErrorInvalidValue);
}

hipError_t hipGraphExecDestroy(hipGraphExec_t executable) {
    return answered(executables().drop(executable) ? hipSuccess : hipErrorInvalidValue);
}

} // extern "C"
