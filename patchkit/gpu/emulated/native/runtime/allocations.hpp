// The memory that the runtime knows: what it handed out, what the program registered, and what it uses itself.
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
    program,    // hipMalloc and its like: the program frees it
    registered, // the program's own, by hipHostRegister
    kernels,    // what malloc in kernels hands out, and the heap behind it: no accesses to it are compared
    runtime,    // code objects and what kernels need besides their arguments: in nobody's way, freed by nobody
};

struct allocation {
    uintptr_t begin    = 0;
    size_t size        = 0;
    hipMemoryType type = hipMemoryTypeDevice;
    owner whose        = owner::program;
    unsigned flags     = 0; // of hipHostMalloc and hipHostRegister
    std::byte * known  = nullptr; // see known_bits.hpp
    gpu::traces * traced = nullptr; // see happens_before.hpp
    history * of         = nullptr; // see calls.hpp

    bool holds(uintptr_t address, size_t bytes) const {
        return address >= begin && address - begin <= size && bytes <= size - (address - begin);
    }
};

// The allocation that holds this address, one without size when none does. For any thread, and quick: kernels ask.
allocation allocation_of(uintptr_t address);

inline allocation allocation_of(const void * pointer) { return allocation_of(uintptr_t(pointer)); }

// What these bytes have to do with allocations, in words, when none holds them.
std::string describe(uintptr_t address, size_t size);

// In words: "device memory".
const char * name_of(hipMemoryType type);

// What the program obtained and did not give back.
std::vector<allocation> allocations_of_program();

// What was freed and begins there, one without size when nothing did; known where memory is not handed out again.
allocation freed_at(const void * pointer);

// Whether all these bytes are of one allocation.
bool is_known(const void * pointer, size_t size);

// Whether that many bytes can be copied from or to there: known ones, or the program's own.
bool is_usable(const void * pointer, size_t size);

// New memory of the device's size at most; pages appear when they are written. A place of no bytes is null.
hipError_t allocate(void ** pointer, size_t size, hipMemoryType type, unsigned flags = 0);

// Gives it back; `unknown` when nobody obtained it. Its history says which call did so, unless that is known by then.
hipError_t release(void * pointer, hipError_t unknown);

// Makes whole pages all ones without writing them.
void fill_pages(void * page, size_t size);

// Makes whole pages of memory of the program zero without writing them. False when that does not work.
bool make_zero(void * page, size_t size);

// Bytes obtained by the program.
size_t memory_used();

// Memory that somebody else manages. Those that overlap known memory are left as they are.
void register_memory(void * pointer, size_t size, hipMemoryType type, owner whose, unsigned flags = 0);

// Whether it was registered until now.
bool unregister_memory(void * pointer, owner whose);

// From now on whoever uses it is told that it was freed.
void retire_memory(void * pointer, owner whose);

} // namespace patchkit
