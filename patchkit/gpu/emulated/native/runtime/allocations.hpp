// Memory known to the runtime: allocated by it, registered by the program, or used internally.
#pragma once

#include <hip/hip_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace patchkit::gpu {
struct traces;
}

namespace patchkit {

struct history;

enum class owner {
    program,    // hipMalloc and similar: freed by the program
    registered, // memory of the program, by hipHostRegister
    kernels,    // memory of malloc in kernels, and its heap: accesses are not compared
    runtime,    // code objects and internal data of kernels: not checked and not freed
};

struct allocation {
    uintptr_t begin    = 0;
    size_t size        = 0;
    hipMemoryType type = hipMemoryTypeDevice;
    owner whose        = owner::program;
    unsigned flags     = 0; // from hipHostMalloc and hipHostRegister
    std::byte * known  = nullptr; // see known_bits.hpp
    gpu::traces * traced = nullptr; // see happens_before.hpp
    history * of         = nullptr; // see calls.hpp

    bool holds(uintptr_t address, size_t bytes) const {
        return address >= begin && address - begin <= size && bytes <= size - (address - begin);
    }
};

// The allocation that contains this address; size 0 if there is none. Thread-safe and fast, because kernels use it.
allocation allocation_of(uintptr_t address);

inline allocation allocation_of(const void * pointer) { return allocation_of(uintptr_t(pointer)); }

// Describes the position of these bytes relative to allocations, if they are in none.
std::string describe(uintptr_t address, size_t size);

// As text: "device memory".
const char * name_of(hipMemoryType type);

// Memory that the program allocated and did not free.
std::vector<allocation> allocations_of_program();

// A freed allocation that started there; size 0 if there is none. Known only if memory is not reused.
allocation freed_at(const void * pointer);

// Whether all bytes are in one allocation.
bool is_known(const void * pointer, size_t size);

// Whether the bytes can be copied from or to: in an allocation, or memory of the program.
bool is_usable(const void * pointer, size_t size);

// Allocates memory, limited by the device's size; pages appear when they are written. A size of 0 gives null.
hipError_t allocate(void ** pointer, size_t size, hipMemoryType type, unsigned flags = 0);

// Frees memory; returns `unknown` if it was not allocated. Records the freeing call in its history, unless already
// known.
hipError_t release(void * pointer, hipError_t unknown);

// Fills whole pages with ones without writing them.
void fill_pages(void * page, size_t size);

// Zeroes whole pages of the program's memory without writing them. Returns false if that fails.
bool make_zero(void * page, size_t size);

// Bytes allocated by the program.
size_t memory_used();

// Memory managed elsewhere. Ranges that overlap known memory are ignored.
void register_memory(void * pointer, size_t size, hipMemoryType type, owner whose, unsigned flags = 0);

// Returns whether it was registered.
bool unregister_memory(void * pointer, owner whose);

// Later accesses are reported as accesses to freed memory.
void retire_memory(void * pointer, owner whose);

} // namespace patchkit
