// malloc and free in kernels.
//
// The heap is managed by the device libraries (ockl's dm.cl, as linked by ROCm 5 to 7): they divide slabs of 2 MiB, and
// request these, and allocations of more than 3072 bytes, from the host. The heap starts zeroed.
#pragma once

#include <cstdint>

namespace patchkit {

// The address that kernels get as hidden_heap_v1; allocated on first use.
uint64_t kernel_heap();

// A request of the device libraries: allocates `size` bytes if `address` is 0 (returns 0 if out of memory), otherwise
// frees that memory. Throws kernel_fault if it was not allocated this way. Not thread-safe.
uint64_t serve_heap(uint64_t address, uint64_t size);

} // namespace patchkit
