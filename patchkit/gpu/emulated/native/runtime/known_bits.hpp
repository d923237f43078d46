// Tracks initialised bits of device memory (gpu::memory_range::known) through copies, fills and BLAS calls of the
// runtime. The functions do nothing if values are not followed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace patchkit {

struct allocation;

// Allocates tracking memory for `size` uninitialised bytes; null if out of memory.
std::byte * make_known_bits(size_t size);
void free_known_bits(std::byte * known, size_t size);

// Followed by a number for each dword (gpu::memory_range::left_by).
uint32_t * left_by_of(std::byte * known, size_t size);

// Marks these bytes as initialised. Does nothing for memory that is not tracked.
void note_written(const void * begin, size_t size);

// These bytes were copied. Copying values that kernels left uninitialised to the host is a finding.
void note_copied(const void * to, const void * from, size_t size);

} // namespace patchkit
