// malloc and free of running kernels.
//
// The device libraries keep the heap (ockl's dm.cl, as linked by ROCm 5 to 7): they share out slabs of 2 MiB, and ask
// the host for those and for whatever is larger than 3072 bytes. The heap itself begins as zeros.
#pragma once

#include <cstdint>

namespace patchkit {

// The address that kernels get as hidden_heap_v1; made when it is first asked for.
uint64_t kernel_heap();

// A request of the device libraries: memory of `size` bytes where `address` is 0, which gives 0 when there is none;
// else that memory back. Throws kernel_fault when it is not theirs to give. One thread at a time.
uint64_t serve_heap(uint64_t address, uint64_t size);

} // namespace patchkit
