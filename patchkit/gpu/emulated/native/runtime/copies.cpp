// Copies and fills. Whether the host waits is as documented by HIP and implemented in the runtime (clr f9f995c6d,
// hip_memory.cpp: ihipMemcpy, ihipMemset3D).

#include "allocations.hpp"
#include "answers.hpp"
#include "calls.hpp"
#include "copies.hpp"
#include "ending.hpp"
#include "happens_before.hpp"
#include "known_bits.hpp"
#include "recorder.hpp"
#include "schedule.hpp"
#include "settings.hpp"

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
        char * const to         = static_cast<char *>(shape.to) + row * shape.to_pitch;
        const char * const from = static_cast<const char *>(shape.from) + row * shape.from_pitch;
        std::memmove(to, from, shape.width);
        patchkit::note_copied(to, from, shape.width);
    }
}

// One side of a copy or fill; checks that its rows are valid and in accessible memory.
struct side {
    const char * name; // in words
    const void * first;
    size_t width, pitch, height;

    size_t extent() const { return pitch * (height - 1) + width; }

    hipError_t refuse_pitch() const {
        return patchkit::refused(hipErrorInvalidPitchValue,
                                 "rows of " + std::to_string(width) + " bytes overlap at a pitch of " +
                                     std::to_string(pitch) + " bytes, in " + name);
    }

    hipError_t refuse_place() const {
        std::string rows;
        if (height != 1) {
            rows = std::to_string(height) + " rows of " + std::to_string(width) + " bytes at a pitch of " +
                   std::to_string(pitch) + " are ";
        }
        return patchkit::refused(hipErrorInvalidValue, rows + std::to_string(extent()) + " bytes of " + name + ", " +
                                                           patchkit::describe(uintptr_t(first), extent()));
    }
};

hipError_t check(const copy_shape & shape) {
    const side sides[] = {{"the target", shape.to, shape.width, shape.to_pitch, shape.height},
                          {"the source", shape.from, shape.width, shape.from_pitch, shape.height}};
    for (const side & one : sides) {
        if (one.width > one.pitch) {
            return one.refuse_pitch();
        }
    }
    for (const side & one : sides) {
        if (!is_usable(one.first, one.extent())) {
            return one.refuse_place();
        }
    }
    return hipSuccess;
}

const char * name_of(place where) {
    return where == place::device ? "device memory" : where == place::pinned ? "pinned host memory" : "host memory";
}

// Description for findings.
std::string words_of(const copy_shape & shape) {
    return "the copy of " + std::to_string(shape.width * shape.height) + " bytes from " + name_of(place_of(shape.from)) +
           " to " + name_of(place_of(shape.to));
}

// Memory that the program must not access until it has waited.
struct watched {
    patchkit::watched_ref source;
    bool has_target = false;
};

// While recording, contents of large tensors do not matter: 134 MB of mask per batch at a depth of 65536.
constexpr size_t most_moved_unread = size_t(16) << 20;

bool is_moved(const copy_shape & shape) {
    return patchkit::is_executing() || shape.width * shape.height <= most_moved_unread || place_of(shape.to) != place::device;
}

// If the copy runs late, the program may have freed its memory.
void run_copy(const copy_shape & shape, const watched & memory = {}) {
    if (check(shape) != hipSuccess) {
        if (patchkit::is_noted_as_gone(words_of(shape))) {
            return;
        }
        patchkit::fault("an asynchronous copy ran after its memory had been freed");
    }
    if (patchkit::keeps_order()) {
        const std::string what = words_of(shape);
        patchkit::touch_rows(what, patchkit::access::reads, shape.from, shape.width, shape.from_pitch, shape.height);
        patchkit::touch_rows(what, patchkit::access::writes, shape.to, shape.width, shape.to_pitch, shape.height);
        patchkit::check_source(memory.source, what);
    }
    if (is_moved(shape)) {
        move_rows(shape);
    }
    if (memory.has_target) {
        patchkit::watch_target(words_of(shape), shape.to, shape.width, shape.to_pitch, shape.height);
    }
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
    return patchkit::enqueue_copy(stream, [staged, out] { run_copy(out); });
}

constexpr size_t most_staged = 1 << 20; // bytes, stagedXferSize_ of clr's rocsettings.cpp

// Between pageable memory and the device, the call is synchronous for the host; a small source is staged.
hipError_t copy_async(const copy_shape & shape, hipStream_t stream) {
    if (shape.is_nothing()) {
        return hipSuccess;
    }
    const hipError_t error = check(shape);
    if (error != hipSuccess) {
        return error;
    }
    const place from = place_of(shape.from), to = place_of(shape.to);
    const bool is_watched = from != place::device && to == place::device && !patchkit::is_captured(stream);
    const auto source = is_watched ? patchkit::watch_source(shape.from, shape.width, shape.from_pitch, shape.height)
                                   : nullptr;
    const auto copy = [shape, memory = watched{source, to == place::pinned}] { run_copy(shape, memory); };
    if ((from != place::pageable && to != place::pageable) || patchkit::is_captured(stream)) {
        return patchkit::enqueue_copy(stream, copy);
    }
    if (to != place::pageable && shape.width * shape.height <= most_staged) {
        return enqueue_staged(shape, stream);
    }
    return patchkit::enqueue_and_wait(stream, copy);
}

// The host does not wait for copies between device memory.
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
        return patchkit::enqueue_copy(stream, copy);
    }
    return patchkit::enqueue_and_wait(stream, copy);
}

// Rows of elements to fill with one value.
struct fill_shape {
    void * to;
    size_t pitch;
    uint32_t value;
    size_t element; // bytes: 1, 2 or 4
    size_t count;   // elements per row
    size_t height;

    size_t width() const { return count * element; }
    size_t extent() const { return pitch * (height - 1) + width(); }
    bool is_nothing() const { return count == 0 || height == 0; }
};

// Zeroing releases whole pages instead of writing them, so that a cleared cache stays free.
void zero(char * begin, size_t size) {
    char * end = begin + size;
    const uintptr_t page = uintptr_t(sysconf(_SC_PAGESIZE));
    char * first = reinterpret_cast<char *>((uintptr_t(begin) + page - 1) / page * page);
    char * last = reinterpret_cast<char *>(uintptr_t(end) / page * page);
    const bool is_ours = allocation_of(begin).whose == patchkit::owner::program;
    if (last <= first || !is_ours || !patchkit::make_zero(first, size_t(last - first))) {
        std::memset(begin, 0, size);
        return;
    }
    std::memset(begin, 0, size_t(first - begin));
    std::memset(last, 0, size_t(end - last));
}

void fill_row(char * to, const fill_shape & shape) {
    if (shape.value == 0) {
        zero(to, shape.width());
    } else if (shape.element == 1) {
        std::memset(to, int(shape.value), shape.count);
    } else {
        for (size_t i = 0; i < shape.count; ++i) {
            std::memcpy(to + i * shape.element, &shape.value, shape.element);
        }
    }
}

void run_fill(const fill_shape & shape) {
    if (!is_usable(shape.to, shape.extent())) {
        if (patchkit::is_noted_as_gone("the memset of " + std::to_string(shape.width() * shape.height) + " bytes")) {
            return;
        }
        patchkit::fault("an asynchronous memset ran after its memory had been freed");
    }
    if (patchkit::keeps_order()) {
        const std::string what = "the memset of " + std::to_string(shape.width() * shape.height) + " bytes of " +
                                 name_of(place_of(shape.to));
        patchkit::touch_rows(what, patchkit::access::writes, shape.to, shape.width(), shape.pitch, shape.height);
    }
    for (size_t row = 0; row < shape.height; ++row) {
        char * const to = static_cast<char *>(shape.to) + row * shape.pitch;
        fill_row(to, shape);
        patchkit::note_written(to, shape.width());
    }
}

enum class waiting { never, as_needed };

// The runtime fills only known memory. Fills of device memory are asynchronous.
hipError_t fill(const fill_shape & shape, hipStream_t stream, waiting host) {
    if (shape.is_nothing()) {
        return hipSuccess;
    }
    const side target = {"the target", shape.to, shape.width(), shape.pitch, shape.height};
    if (shape.width() > shape.pitch) {
        (void) target.refuse_pitch();
        return hipErrorInvalidValue;
    }
    if (!is_known(shape.to, shape.extent())) {
        return target.refuse_place();
    }
    const auto fill = [shape] { run_fill(shape); };
    if (host == waiting::never || place_of(shape.to) == place::device) {
        return patchkit::enqueue(stream, fill);
    }
    return patchkit::enqueue_and_wait(stream, fill);
}

fill_shape row(void * to, uint32_t value, size_t element, size_t count) {
    return {to, count * element, value, element, count, 1};
}

hipError_t fill_async(const fill_shape & shape, hipStream_t stream) {
    return answered(is_stream(stream) ? fill(shape, stream, waiting::never) : hipErrorInvalidHandle);
}

hipError_t fill(const fill_shape & shape, hipStream_t stream = nullptr) {
    return answered(fill(shape, stream, waiting::as_needed));
}

} // namespace

namespace patchkit {

hipError_t copy_rows(const row_copy & wanted) {
    return copy({wanted.to, wanted.to_pitch, wanted.from, wanted.from_pitch, wanted.width, wanted.height});
}

hipError_t copy_rows_async(const row_copy & wanted, hipStream_t stream) {
    return copy_async({wanted.to, wanted.to_pitch, wanted.from, wanted.from_pitch, wanted.width, wanted.height}, stream);
}

} // namespace patchkit

extern "C" {

hipError_t hipMemset(void * pointer, int value, size_t size) { return fill(row(pointer, uint8_t(value), 1, size)); }

hipError_t hipMemset_spt(void * pointer, int value, size_t size) {
    return fill(row(pointer, uint8_t(value), 1, size), hipStreamPerThread);
}

hipError_t hipMemsetAsync(void * pointer, int value, size_t size, hipStream_t stream) {
    return fill_async(row(pointer, uint8_t(value), 1, size), stream);
}

hipError_t hipMemsetD8(hipDeviceptr_t pointer, unsigned char value, size_t count) {
    return fill(row(pointer, value, 1, count));
}

hipError_t hipMemsetD8Async(hipDeviceptr_t pointer, unsigned char value, size_t count, hipStream_t stream) {
    return fill_async(row(pointer, value, 1, count), stream);
}

hipError_t hipMemsetD16(hipDeviceptr_t pointer, unsigned short value, size_t count) {
    return fill(row(pointer, value, 2, count));
}

hipError_t hipMemsetD16Async(hipDeviceptr_t pointer, unsigned short value, size_t count, hipStream_t stream) {
    return fill_async(row(pointer, value, 2, count), stream);
}

hipError_t hipMemsetD32(hipDeviceptr_t pointer, int value, size_t count) {
    return fill(row(pointer, uint32_t(value), 4, count));
}

hipError_t hipMemsetD32Async(hipDeviceptr_t pointer, int value, size_t count, hipStream_t stream) {
    return fill_async(row(pointer, uint32_t(value), 4, count), stream);
}

hipError_t hipMemset2D(void * pointer, size_t pitch, int value, size_t width, size_t height) {
    return fill({pointer, pitch, uint8_t(value), 1, width, height});
}

hipError_t hipMemset2DAsync(void * pointer, size_t pitch, int value, size_t width, size_t height, hipStream_t stream) {
    return fill_async({pointer, pitch, uint8_t(value), 1, width, height}, stream);
}

hipError_t hipMemcpy(void * to, const void * from, size_t size, hipMemcpyKind /*kind*/) {
    return answered(copy(plain(to, from, size)));
}

hipError_t hipMemcpy_spt(void * to, const void * from, size_t size, hipMemcpyKind /*kind*/) {
    return answered(copy(plain(to, from, size), hipStreamPerThread));
}

// Unlike hipMemcpyAsync, it returns when the copy is done.
hipError_t hipMemcpyWithStream(void * to, const void * from, size_t size, hipMemcpyKind /*kind*/,
                               hipStream_t stream) {
    return answered(is_stream(stream) ? copy(plain(to, from, size), stream) : hipErrorContextIsDestroyed);
}

hipError_t hipMemcpyHtoD(hipDeviceptr_t to, void * from, size_t size) { return answered(copy(plain(to, from, size))); }
hipError_t hipMemcpyDtoH(void * to, hipDeviceptr_t from, size_t size) { return answered(copy(plain(to, from, size))); }

hipError_t hipMemcpyDtoD(hipDeviceptr_t to, hipDeviceptr_t from, size_t size) {
    return answered(copy(plain(to, from, size)));
}

hipError_t hipMemcpyHtoDAsync(hipDeviceptr_t to, void * from, size_t size, hipStream_t stream) {
    return answered(is_stream(stream) ? copy_async(plain(to, from, size), stream) : hipErrorContextIsDestroyed);
}

hipError_t hipMemcpyDtoHAsync(void * to, hipDeviceptr_t from, size_t size, hipStream_t stream) {
    return answered(is_stream(stream) ? copy_async(plain(to, from, size), stream) : hipErrorContextIsDestroyed);
}

hipError_t hipMemcpyDtoDAsync(hipDeviceptr_t to, hipDeviceptr_t from, size_t size, hipStream_t stream) {
    return answered(is_stream(stream) ? copy_async(plain(to, from, size), stream) : hipErrorContextIsDestroyed);
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
