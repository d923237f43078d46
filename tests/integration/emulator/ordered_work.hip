// Programs, by name: some rely on what HIP promises, some on more. Each ends with 0 when it found what it expected.
#include <hip/hip_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

__global__ void put(int * to, int value) { *to = value; }
__global__ void take(int * to, const int * from) { *to = *from; }
__global__ void add(int * to, int value) { *to += value; }

#define NEED(call)                                                                                                     \
    do {                                                                                                               \
        const hipError_t error = (call);                                                                               \
        if (error != hipSuccess) {                                                                                     \
            std::fprintf(stderr, "%s: %s\n", #call, hipGetErrorName(error));                                           \
            std::exit(2);                                                                                              \
        }                                                                                                              \
    } while (0)

static int * device_int(int value = 0) {
    int * result = nullptr;
    NEED(hipMalloc((void **) &result, sizeof(int)));
    NEED(hipMemcpy(result, &value, sizeof(int), hipMemcpyHostToDevice));
    return result;
}

static int * pinned_int(int value = 0) {
    int * result = nullptr;
    NEED(hipHostMalloc((void **) &result, sizeof(int), 0));
    *result = value;
    return result;
}

static hipStream_t new_stream(unsigned flags = hipStreamNonBlocking) {
    hipStream_t result;
    NEED(hipStreamCreateWithFlags(&result, flags));
    return result;
}

static hipEvent_t new_event() {
    hipEvent_t result;
    NEED(hipEventCreate(&result));
    return result;
}

static int read(const int * from) {
    int result = 0;
    NEED(hipMemcpy(&result, from, sizeof(int), hipMemcpyDeviceToHost));
    return result;
}

// Correct programs.

static bool waits_for_its_stream() {
    hipStream_t stream = new_stream();
    int *       x      = device_int();
    int *       y      = pinned_int();
    for (int i = 1; i <= 20; ++i) {
        put<<<1, 1, 0, stream>>>(x, i);
        add<<<1, 1, 0, stream>>>(x, 100);
        NEED(hipMemcpyAsync(y, x, sizeof(int), hipMemcpyDeviceToHost, stream));
        NEED(hipStreamSynchronize(stream));
        if (*y != i + 100) {
            return false;
        }
    }
    return true;
}

static bool waits_between_streams() {
    hipStream_t a = new_stream(), b = new_stream();
    hipEvent_t  made = new_event(), used = new_event();
    int *       x = device_int();
    int *       y = device_int();
    int         expected = 0;
    NEED(hipDeviceSynchronize());
    for (int i = 1; i <= 20; ++i) {
        NEED(hipStreamWaitEvent(a, used, 0));
        put<<<1, 1, 0, a>>>(x, i);
        NEED(hipEventRecord(made, a));
        NEED(hipStreamWaitEvent(b, made, 0));
        take<<<1, 1, 0, b>>>(y, x);
        NEED(hipEventRecord(used, b));
        expected = i;
    }
    NEED(hipEventSynchronize(used));
    return read(y) == expected;
}

static bool trusts_the_default_stream() {
    hipStream_t a = new_stream(hipStreamDefault), b = new_stream(hipStreamDefault);
    int * x = device_int();
    int * y = device_int();
    put<<<1, 1, 0, a>>>(x, 1);
    add<<<1, 1>>>(x, 10); // after a
    take<<<1, 1, 0, b>>>(y, x); // after the default stream
    NEED(hipStreamSynchronize(b));
    return read(y) == 11;
}

static bool trusts_its_threads_stream() {
    int * x = device_int();
    int   seen[2] = {};
    const auto work = [x, &seen](int which) {
        put<<<1, 1, 0, hipStreamPerThread>>>(x, 7);
        NEED(hipStreamSynchronize(hipStreamPerThread));
        seen[which] = read(x);
    };
    work(0);
    std::thread(work, 1).join();
    add<<<1, 1>>>(x, 1); // the default stream comes after those of threads
    return seen[0] == 7 && seen[1] == 7 && read(x) == 8;
}

static bool reuses_a_pageable_source() {
    hipStream_t stream = new_stream();
    int * x = device_int();
    int   source = 5;
    NEED(hipMemcpyAsync(x, &source, sizeof(int), hipMemcpyHostToDevice, stream));
    source = 6;
    NEED(hipStreamSynchronize(stream));
    return read(x) == 5;
}

static bool reads_pageable_at_once() {
    hipStream_t stream = new_stream();
    int * x = device_int();
    int   target = 0;
    put<<<1, 1, 0, stream>>>(x, 9);
    NEED(hipMemcpyAsync(&target, x, sizeof(int), hipMemcpyDeviceToHost, stream));
    return target == 9;
}

static bool asks_until_done() {
    hipStream_t stream = new_stream();
    hipEvent_t event = new_event();
    int * y = pinned_int();
    put<<<1, 1, 0, stream>>>(y, 3);
    NEED(hipEventRecord(event, stream));
    hipError_t answer;
    while ((answer = hipEventQuery(event)) == hipErrorNotReady) {
    }
    if (answer != hipSuccess || *y != 3) {
        return false;
    }
    put<<<1, 1, 0, stream>>>(y, 4);
    while ((answer = hipStreamQuery(stream)) == hipErrorNotReady) {
    }
    return answer == hipSuccess && *y == 4;
}

static bool frees_in_order() {
    hipStream_t stream = new_stream();
    int * y = pinned_int();
    int * x = nullptr;
    NEED(hipMallocAsync((void **) &x, sizeof(int), stream));
    put<<<1, 1, 0, stream>>>(x, 8);
    take<<<1, 1, 0, stream>>>(y, x);
    NEED(hipFreeAsync(x, stream));
    NEED(hipStreamSynchronize(stream));
    return *y == 8;
}

static bool frees_after_launching() {
    hipStream_t stream = new_stream();
    int * y = pinned_int();
    int * x = device_int(4);
    take<<<1, 1, 0, stream>>>(y, x);
    NEED(hipFree(x)); // waits
    return *y == 4;
}

static bool leaves_the_end_to_the_runtime() {
    int * y = pinned_int();
    put<<<1, 1, 0, new_stream()>>>(y, 4);
    static int * seen = y;
    std::atexit([] { std::printf("late end\n"); });
    (void) seen;
    return true;
}

static void set_to_12(void * place) { *static_cast<int *>(place) = 12; }

static bool calls_the_host() {
    hipStream_t stream = new_stream();
    int * y = pinned_int();
    int * x = device_int();
    put<<<1, 1, 0, stream>>>(y, 1);
    NEED(hipLaunchHostFunc(stream, set_to_12, y));
    take<<<1, 1, 0, stream>>>(x, y);
    NEED(hipStreamAddCallback(
        stream, [](hipStream_t, hipError_t status, void * place) { *static_cast<int *>(place) += status == hipSuccess; },
        y, 0));
    NEED(hipStreamSynchronize(stream));
    return *y == 13 && read(x) == 12;
}

static bool measures_time() {
    hipEvent_t begin = new_event(), end = new_event();
    float milliseconds = -1;
    if (hipEventElapsedTime(&milliseconds, begin, end) != hipErrorInvalidHandle) {
        return false;
    }
    int * x = device_int();
    NEED(hipEventRecord(begin, nullptr));
    put<<<1, 1>>>(x, 1);
    NEED(hipEventRecord(end, nullptr));
    NEED(hipEventSynchronize(end));
    NEED(hipEventElapsedTime(&milliseconds, begin, end));
    return milliseconds > 0 && milliseconds < 60e3;
}

static hipGraphExec_t captured(hipStream_t stream, hipStream_t other, int * x, int * y) {
    hipEvent_t fork = new_event(), join = new_event();
    NEED(hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed));
    add<<<1, 1, 0, stream>>>(x, 1);
    NEED(hipEventRecord(fork, stream));
    NEED(hipStreamWaitEvent(other, fork, 0));
    take<<<1, 1, 0, other>>>(y, x);
    NEED(hipEventRecord(join, other));
    NEED(hipStreamWaitEvent(stream, join, 0));
    add<<<1, 1, 0, stream>>>(x, 10);
    hipGraph_t graph;
    NEED(hipStreamEndCapture(stream, &graph));
    hipGraphExec_t result;
    NEED(hipGraphInstantiate(&result, graph, nullptr, nullptr, 0));
    NEED(hipGraphDestroy(graph));
    return result;
}

static bool replays_a_graph() {
    hipStream_t stream = new_stream(), other = new_stream();
    int * x = device_int();
    int * y = device_int();
    NEED(hipDeviceSynchronize());
    hipGraphExec_t graph = captured(stream, other, x, y);
    if (read(x) != 0) {
        return false; // capturing runs nothing
    }
    for (int i = 0; i < 5; ++i) {
        NEED(hipGraphLaunch(graph, stream));
    }
    NEED(hipStreamSynchronize(stream));
    NEED(hipGraphExecDestroy(graph));
    return read(x) == 55 && read(y) == 45;
}

static bool destroys_early() {
    hipStream_t stream = new_stream(hipStreamDefault);
    hipEvent_t event = new_event();
    int * x = device_int();
    put<<<1, 1, 0, stream>>>(x, 2);
    NEED(hipEventRecord(event, stream));
    NEED(hipStreamDestroy(stream));
    NEED(hipEventDestroy(event));
    add<<<1, 1>>>(x, 5); // the default stream still comes after it
    return read(x) == 7;
}

static hipGraph_t capture_add(hipStream_t stream, int * x, int value, bool twice) {
    hipGraph_t graph;
    NEED(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
    add<<<1, 1, 0, stream>>>(x, value);
    if (twice) {
        add<<<1, 1, 0, stream>>>(x, value);
    }
    NEED(hipStreamEndCapture(stream, &graph));
    return graph;
}

static bool updates_a_graph() {
    hipStream_t stream = new_stream();
    int * x = device_int();
    NEED(hipDeviceSynchronize());
    hipGraphExec_t graph;
    NEED(hipGraphInstantiateWithFlags(&graph, capture_add(stream, x, 1, false), 0));
    NEED(hipGraphLaunch(graph, stream));
    hipGraphNode_t node;
    hipGraphExecUpdateResult result;
    NEED(hipGraphExecUpdate(graph, capture_add(stream, x, 10, false), &node, &result));
    NEED(hipGraphLaunch(graph, stream));
    const hipGraph_t other = capture_add(stream, x, 100, true);
    size_t nodes = 0;
    NEED(hipGraphGetNodes(other, nullptr, &nodes));
    const bool is_refused = hipGraphExecUpdate(graph, other, &node, &result) == hipErrorGraphExecUpdateFailure &&
                            result == hipGraphExecUpdateErrorTopologyChanged;
    NEED(hipStreamSynchronize(stream));
    return is_refused && nodes == 2 && read(x) == 11;
}

static bool captures_a_graph_in_a_graph() {
    hipStream_t stream = new_stream();
    int * x = device_int();
    NEED(hipDeviceSynchronize());
    hipGraphExec_t inner, outer;
    NEED(hipGraphInstantiate(&inner, capture_add(stream, x, 1, true), nullptr, nullptr, 0));
    hipGraph_t graph;
    NEED(hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed));
    NEED(hipGraphLaunch(inner, stream));
    add<<<1, 1, 0, stream>>>(x, 10);
    NEED(hipStreamEndCapture(stream, &graph));
    NEED(hipGraphInstantiate(&outer, graph, nullptr, nullptr, 0));
    NEED(hipGraphLaunch(outer, stream));
    NEED(hipGraphLaunch(outer, stream));
    NEED(hipStreamSynchronize(stream));
    return read(x) == 24;
}

static bool reads_a_captured_source_when_launched() {
    hipStream_t stream = new_stream();
    int * x = device_int();
    int source = 1;
    NEED(hipDeviceSynchronize());
    hipGraph_t graph;
    hipGraphExec_t executable;
    NEED(hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed));
    NEED(hipMemcpyAsync(x, &source, sizeof(int), hipMemcpyHostToDevice, stream));
    NEED(hipStreamEndCapture(stream, &graph));
    NEED(hipGraphInstantiate(&executable, graph, nullptr, nullptr, 0));
    source = 2;
    NEED(hipGraphLaunch(executable, stream));
    NEED(hipStreamSynchronize(stream));
    return read(x) == 2;
}

// What may not be done to a stream that is captured makes the capture useless.
static bool is_told_what_a_capture_forbids() {
    hipStream_t stream = new_stream(), other = new_stream();
    hipEvent_t event = new_event(), outside = new_event();
    hipGraph_t graph;
    int * x = device_int();
    const auto begin = [&] { NEED(hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed)); };
    bool held = hipStreamEndCapture(stream, &graph) == hipErrorIllegalState;
    const auto ends_with = [&](hipError_t error) { held = held && hipStreamEndCapture(stream, &graph) == error; };
    const auto gives = [&](hipError_t got, hipError_t expected) { held = held && got == expected; };

    begin();
    gives(hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed), hipErrorIllegalState);
    ends_with(hipSuccess);
    begin();
    gives(hipStreamSynchronize(stream), hipErrorStreamCaptureUnsupported);
    hipStreamCaptureStatus status;
    unsigned long long id = 0;
    NEED(hipStreamGetCaptureInfo(stream, &status, &id));
    held = held && status == hipStreamCaptureStatusInvalidated;
    ends_with(hipErrorStreamCaptureInvalidated);
    begin();
    NEED(hipEventRecord(event, stream));
    gives(hipEventQuery(event), hipErrorCapturedEvent);
    ends_with(hipErrorStreamCaptureInvalidated);
    begin();
    add<<<1, 1, 0, stream>>>(x, 1);
    NEED(hipEventRecord(event, stream));
    NEED(hipStreamWaitEvent(other, event, 0));
    gives(hipStreamEndCapture(other, &graph), hipErrorStreamCaptureUnmatched);
    add<<<1, 1, 0, other>>>(x, 1);
    ends_with(hipErrorStreamCaptureUnjoined);
    NEED(hipEventRecord(outside, other));
    begin();
    gives(hipStreamWaitEvent(stream, outside, 0), hipErrorStreamCaptureIsolation);
    ends_with(hipErrorStreamCaptureInvalidated);
    gives(hipStreamBeginCapture(nullptr, hipStreamCaptureModeRelaxed), hipErrorStreamCaptureUnsupported);
    return held && read(x) == 0; // and nothing of it ran
}

static bool is_told_what_a_host_function_may_not_do() {
    hipStream_t stream = new_stream();
    static hipError_t answers[3];
    static int * x = device_int();
    NEED(hipLaunchHostFunc(
        stream,
        [](void *) {
            answers[0] = hipDeviceSynchronize();
            answers[1] = hipMemsetAsync(x, 0, 4, nullptr);
            answers[2] = hipFree(x);
        },
        nullptr));
    NEED(hipStreamSynchronize(stream));
    return answers[0] == hipErrorNotSupported && answers[1] == hipErrorNotSupported &&
           answers[2] == hipErrorNotSupported;
}

static bool shares_a_stream_between_threads() {
    hipStream_t stream = new_stream();
    int * x = device_int();
    NEED(hipDeviceSynchronize());
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) {
        threads.emplace_back([=] {
            for (int i = 0; i < 25; ++i) {
                add<<<1, 1, 0, stream>>>(x, 1);
                if (i % 10 == thread) {
                    NEED(hipStreamSynchronize(stream));
                }
            }
        });
    }
    for (std::thread & one : threads) {
        one.join();
    }
    NEED(hipStreamSynchronize(stream));
    return read(x) == 100;
}

// Programs that rely on more than HIP promises.

static bool reads_without_waiting() {
    int * y = pinned_int();
    put<<<1, 1, 0, new_stream()>>>(y, 3);
    return *y == 3;
}

static bool reuses_a_pinned_source() {
    hipStream_t stream = new_stream();
    int * x = device_int();
    int * source = pinned_int(5);
    NEED(hipDeviceSynchronize());
    NEED(hipMemcpyAsync(x, source, sizeof(int), hipMemcpyHostToDevice, stream));
    *source = 6;
    NEED(hipStreamSynchronize(stream));
    return read(x) == 5;
}

static bool forgets_the_event() {
    hipStream_t a = new_stream(), b = new_stream();
    int * x = device_int();
    int * y = device_int();
    NEED(hipDeviceSynchronize());
    put<<<1, 1, 0, a>>>(x, 3);
    take<<<1, 1, 0, b>>>(y, x);
    NEED(hipStreamSynchronize(b));
    return read(y) == 3;
}

static bool trusts_the_default_stream_too_far() {
    hipStream_t stream = new_stream(hipStreamNonBlocking);
    int * x = device_int();
    int * y = pinned_int();
    NEED(hipDeviceSynchronize());
    put<<<1, 1, 0, stream>>>(x, 3);
    NEED(hipMemcpy(y, x, sizeof(int), hipMemcpyDeviceToHost)); // waits for streams that block, and this one does not
    return *y == 3;
}

static bool overwrites_what_is_still_read() {
    hipStream_t a = new_stream(), b = new_stream();
    int * x = device_int(1);
    int * y = device_int();
    NEED(hipDeviceSynchronize());
    take<<<1, 1, 0, a>>>(y, x);
    put<<<1, 1, 0, b>>>(x, 9);
    NEED(hipStreamSynchronize(b));
    NEED(hipStreamSynchronize(a));
    return read(y) == 1;
}

static bool trusts_memset() {
    int * x = device_int(1);
    hipStream_t stream = new_stream();
    NEED(hipDeviceSynchronize());
    NEED(hipMemset(x, 0, sizeof(int))); // of device memory: the host does not wait, and neither does the stream
    add<<<1, 1, 0, stream>>>(x, 1);
    NEED(hipDeviceSynchronize());
    int * y = pinned_int();
    take<<<1, 1, 0, stream>>>(y, x);
    NEED(hipStreamSynchronize(stream));
    return *y == 1;
}

static bool trusts_new_memory() {
    constexpr size_t size = 40 << 20;
    unsigned char * x = nullptr;
    NEED(hipMalloc((void **) &x, size));
    unsigned char found[3] = {};
    NEED(hipMemcpy(&found[0], x, 1, hipMemcpyDeviceToHost));
    NEED(hipMemcpy(&found[1], x + size / 2, 1, hipMemcpyDeviceToHost));
    NEED(hipMemcpy(&found[2], x + size - 1, 1, hipMemcpyDeviceToHost));
    return found[0] == 0 && found[1] == 0 && found[2] == 0;
}

static bool clears_new_memory() {
    constexpr size_t size = 40 << 20;
    unsigned char * x = nullptr;
    NEED(hipMalloc((void **) &x, size));
    NEED(hipMemset(x + 5, 0, size - 10));
    std::vector<unsigned char> found(size, 1);
    NEED(hipMemcpy(found.data(), x, size, hipMemcpyDeviceToHost));
    for (size_t i = 5; i < size - 5; ++i) {
        if (found[i] != 0) {
            return false;
        }
    }
    return true;
}

struct program {
    const char * name;
    bool (*run)();
};

#define PROGRAM(name) {#name, name}

static const program programs[] = {
    PROGRAM(waits_for_its_stream),     PROGRAM(waits_between_streams),
    PROGRAM(trusts_the_default_stream), PROGRAM(trusts_its_threads_stream),
    PROGRAM(reuses_a_pageable_source), PROGRAM(reads_pageable_at_once),
    PROGRAM(asks_until_done),          PROGRAM(frees_in_order),
    PROGRAM(frees_after_launching),    PROGRAM(leaves_the_end_to_the_runtime),
    PROGRAM(calls_the_host),           PROGRAM(measures_time),
    PROGRAM(replays_a_graph),          PROGRAM(destroys_early),
    PROGRAM(updates_a_graph),          PROGRAM(captures_a_graph_in_a_graph),
    PROGRAM(reads_a_captured_source_when_launched), PROGRAM(is_told_what_a_capture_forbids),
    PROGRAM(is_told_what_a_host_function_may_not_do), PROGRAM(shares_a_stream_between_threads),
    PROGRAM(reads_without_waiting),    PROGRAM(reuses_a_pinned_source),
    PROGRAM(forgets_the_event),        PROGRAM(trusts_the_default_stream_too_far),
    PROGRAM(overwrites_what_is_still_read), PROGRAM(trusts_memset),
    PROGRAM(trusts_new_memory),        PROGRAM(clears_new_memory),
};

int main(int, char ** arguments) {
    for (const program & one : programs) {
        if (std::strcmp(one.name, arguments[1]) == 0) {
            const bool held = one.run();
            std::printf("%s %s\n", one.name, held ? "held" : "broke");
            return held ? 0 : 1;
        }
    }
    return 3;
}
