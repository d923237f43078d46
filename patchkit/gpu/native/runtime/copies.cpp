// Copying and filling. What the host waits for is what HIP says and the runtime does (clr f9f995c6d,
// hip_memory.cpp: ihipMemcpy, ihipMemset3D).

#include "allocations.hpp"
#include "answers.hpp"
#include "emulation.hpp"
#include "recorder.hpp"
#include "schedule.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <vector>

namespace {

using patchkit::allocation_of;
using patchkit::answered;
using patchkit::is_device;
using patchkit::is_known;
using patchkit::is_stream;
using patchkit::is_usable;

// Rows of bytes; one row is a plain copy.
struct copy_shape {
    void * to;
    size_t to_pitch;
    const void * from;
    size_t from_pitch;
    size_t width;
    size_t height;

    // From the first byte of the first row to the last of the last.
    size_t extent(size_t pitch) const { return pitch * (height - 1) + width; }
    bool is_nothing() const { return width == 0 || height == 0; }
};

copy_shape plain(void * to, const void * from, size_t size) { return {to, size, from, size, size, 1}; }

enum class place { device, pinned, pageable };

place place_of(const void * pointer) {
    const patchkit::allocation found = allocation_of(pointer);
    if (found.size == 0) {
        return place::pageable;
    }
    return found.type == hipMemoryTypeDevice ? place::device : place::pinned;
}

void move_rows(const copy_shape & shape) {
    for (size_t row = 0; row < shape.height; ++row) {
        std::memmove(static_cast<char *>(shape.to) + row * shape.to_pitch,
                     static_cast<const char *>(shape.from) + row * shape.from_pitch, shape.width);
    }
}

hipError_t check(const copy_shape & shape) {
    if (shape.width > shape.to_pitch || shape.width > shape.from_pitch) {
        return hipErrorInvalidPitchValue;
    }
    const bool can = is_usable(shape.to, shape.extent(shape.to_pitch)) &&
                     is_usable(shape.from, shape.extent(shape.from_pitch));
    return can ? hipSuccess : hipErrorInvalidValue;
}

// When the copy runs late the program may have given its memory away.
void run_copy(const copy_shape & shape) {
    if (check(shape) != hipSuccess) {
        patchkit::fault("an asynchronous copy ran when its memory was gone");
    }
    move_rows(shape);
}

// The program may change the source as soon as the call returns.
hipError_t enqueue_staged(const copy_shape & shape, hipStream_t stream) {
    auto staged = std::make_shared<std::vector<char>>(shape.width * shape.height);
    copy_shape in = shape;
    in.to       = staged->data();
    in.to_pitch = shape.width;
    move_rows(in);
    copy_shape out = shape;
    out.from       = staged->data();
    out.from_pitch = shape.width;
    return patchkit::enqueue(stream, [staged, out] { run_copy(out); });
}

constexpr size_t most_staged = 1 << 20; // bytes, stagedXferSize_ of clr's rocsettings.cpp

// Between pageable memory and the device the call is synchronous for the host; a small source is staged.
hipError_t copy_async(const copy_shape & shape, hipStream_t stream) {
    if (shape.is_nothing()) {
        return hipSuccess;
    }
    const hipError_t error = check(shape);
    if (error != hipSuccess) {
        return error;
    }
    const place from = place_of(shape.from), to = place_of(shape.to);
    const auto copy = [shape] { run_copy(shape); };
    if ((from != place::pageable && to != place::pageable) || patchkit::is_captured(stream)) {
        return patchkit::enqueue(stream, copy);
    }
    if (to != place::pageable && shape.width * shape.height <= most_staged) {
        return enqueue_staged(shape, stream);
    }
    return patchkit::enqueue_and_wait(stream, copy);
}

// From device to device the host does not wait.
hipError_t copy(const copy_shape & shape, hipStream_t stream = nullptr) {
    if (shape.is_nothing()) {
        return hipSuccess;
    }
    const hipError_t error = check(shape);
    if (error != hipSuccess) {
        return error;
    }
    const auto copy = [shape] { run_copy(shape); };
    if (place_of(shape.from) == place::device && place_of(shape.to) == place::device) {
        return patchkit::enqueue(stream, copy);
    }
    return patchkit::enqueue_and_wait(stream, copy);
}

// Zeroing gives whole pages back instead of writing them, so that a cleared cache stays free of cost.
void fill_now(void * pointer, int value, size_t size) {
    char * begin = static_cast<char *>(pointer);
    char * end = begin + size;
    const uintptr_t page = uintptr_t(sysconf(_SC_PAGESIZE));
    char * first = reinterpret_cast<char *>((uintptr_t(begin) + page - 1) / page * page);
    char * last = reinterpret_cast<char *>(uintptr_t(end) / page * page);
    const bool is_ours = allocation_of(pointer).whose == patchkit::owner::program;
    if (value != 0 || last <= first || !is_ours || madvise(first, size_t(last - first), MADV_DONTNEED) != 0) {
        std::memset(begin, value, size);
        return;
    }
    std::memset(begin, 0, size_t(first - begin));
    std::memset(last, 0, size_t(end - last));
}

// The runtime fills only what it knows. Memory of the device is filled without waiting.
hipError_t fill(void * pointer, int value, size_t size, hipStream_t stream, bool is_async) {
    if (size == 0) {
        return hipSuccess;
    }
    if (!is_known(pointer, size)) {
        return hipErrorInvalidValue;
    }
    const auto fill = [pointer, value, size] {
        if (!is_usable(pointer, size)) {
            patchkit::fault("an asynchronous memset ran when its memory was gone");
        }
        fill_now(pointer, value, size);
    };
    if (is_async || place_of(pointer) == place::device) {
        return patchkit::enqueue(stream, fill);
    }
    return patchkit::enqueue_and_wait(stream, fill);
}

} // namespace

extern "C" {

hipError_t hipMemset(void * pointer, int value, size_t size) {
    return answered(fill(pointer, value, size, nullptr, false));
}

hipError_t hipMemsetAsync(void * pointer, int value, size_t size, hipStream_t stream) {
    return answered(is_stream(stream) ? fill(pointer, value, size, stream, true) : hipErrorInvalidHandle);
}

hipError_t hipMemcpy(void * to, const void * from, size_t size, hipMemcpyKind /*kind*/) {
    return answered(copy(plain(to, from, size)));
}

hipError_t hipMemcpyAsync(void * to, const void * from, size_t size, hipMemcpyKind /*kind*/, hipStream_t stream) {
    return answered(is_stream(stream) ? copy_async(plain(to, from, size), stream) : hipErrorContextIsDestroyed);
}

hipError_t hipMemcpyPeer(void * to, int to_id, const void * from, int from_id, size_t size) {
    return answered(is_device(to_id) && is_device(from_id) ? copy(plain(to, from, size)) : hipErrorInvalidDevice);
}

hipError_t hipMemcpyPeerAsync(void * to, int to_id, const void * from, int from_id, size_t size, hipStream_t stream) {
    if (!is_device(to_id) || !is_device(from_id)) {
        return answered(hipErrorInvalidDevice);
    }
    return answered(is_stream(stream) ? copy_async(plain(to, from, size), stream) : hipErrorContextIsDestroyed);
}

hipError_t hipMemcpy2D(void * to, size_t to_pitch, const void * from, size_t from_pitch, size_t width, size_t height,
                       hipMemcpyKind /*kind*/) {
    return answered(copy({to, to_pitch, from, from_pitch, width, height}));
}

hipError_t hipMemcpy2DAsync(void * to, size_t to_pitch, const void * from, size_t from_pitch, size_t width,
                            size_t height, hipMemcpyKind /*kind*/, hipStream_t stream) {
    return answered(is_stream(stream) ? copy_async({to, to_pitch, from, from_pitch, width, height}, stream)
                                      : hipErrorInvalidValue);
}

} // extern "C"
