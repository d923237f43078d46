// Device variables, by the address of their host counterparts. While recording there are none.

#include "answers.hpp"
#include "calls.hpp"
#include "recorder.hpp"
#include "registry.hpp"

namespace {

using patchkit::answered;

enum class direction { to_device, from_device };

// Computes the address of the bytes in the variable.
hipError_t find_place(const void * symbol, size_t size, size_t offset, hipMemcpyKind kind, direction way,
                      std::byte *& place) {
    const hipMemcpyKind host_copy = way == direction::to_device ? hipMemcpyHostToDevice : hipMemcpyDeviceToHost;
    if (kind != host_copy && kind != hipMemcpyDeviceToDevice && kind != hipMemcpyDeviceToDeviceNoCU) {
        return hipErrorInvalidMemcpyDirection;
    }
    patchkit::gpu::symbol found;
    const hipError_t error = patchkit::find_variable(symbol, found);
    if (error != hipSuccess) {
        return error;
    }
    if (offset > found.size || size > found.size - offset) {
        return patchkit::refused(hipErrorInvalidValue, std::to_string(size) + " bytes from byte " +
                                                           std::to_string(offset) + " on, but the variable has " +
                                                           std::to_string(found.size));
    }
    place = found.address + offset;
    return hipSuccess;
}

} // namespace

extern "C" {

hipError_t hipGetSymbolAddress(void ** address, const void * symbol) {
    if (address == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    patchkit::gpu::symbol found;
    const hipError_t error = patchkit::find_variable(symbol, found);
    if (error == hipSuccess) {
        *address = found.address;
    }
    return answered(error);
}

hipError_t hipGetSymbolSize(size_t * size, const void * symbol) {
    if (size == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    patchkit::gpu::symbol found;
    const hipError_t error = patchkit::find_variable(symbol, found);
    if (error == hipSuccess) {
        *size = found.size;
    }
    return answered(error);
}

hipError_t hipMemcpyToSymbol(const void * symbol, const void * from, size_t size, size_t offset, hipMemcpyKind kind) {
    std::byte * place = nullptr;
    const hipError_t error = find_place(symbol, size, offset, kind, direction::to_device, place);
    return error == hipSuccess ? hipMemcpy(place, from, size, kind) : answered(error);
}

hipError_t hipMemcpyToSymbolAsync(const void * symbol, const void * from, size_t size, size_t offset,
                                  hipMemcpyKind kind, hipStream_t stream) {
    std::byte * place = nullptr;
    const hipError_t error = find_place(symbol, size, offset, kind, direction::to_device, place);
    return error == hipSuccess ? hipMemcpyAsync(place, from, size, kind, stream) : answered(error);
}

hipError_t hipMemcpyFromSymbol(void * to, const void * symbol, size_t size, size_t offset, hipMemcpyKind kind) {
    std::byte * place = nullptr;
    const hipError_t error = find_place(symbol, size, offset, kind, direction::from_device, place);
    return error == hipSuccess ? hipMemcpy(to, place, size, kind) : answered(error);
}

hipError_t hipMemcpyFromSymbolAsync(void * to, const void * symbol, size_t size, size_t offset, hipMemcpyKind kind,
                                    hipStream_t stream) {
    std::byte * place = nullptr;
    const hipError_t error = find_place(symbol, size, offset, kind, direction::from_device, place);
    return error == hipSuccess ? hipMemcpyAsync(to, place, size, kind, stream) : answered(error);
}

} // extern "C"
