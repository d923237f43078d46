// Which bits of device memory were given a value (gpu::memory_range::known): what copies, fills and products of the
// runtime do to them. All do nothing when values are not followed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace patchkit {

struct allocation;

// Room for what is known of so many bytes, of which nothing is; null when there is none.
std::byte * make_known_bits(size_t size);
void free_known_bits(std::byte * known, size_t size);

// Behind them, a number for each dword (gpu::memory_range::left_by).
uint32_t * left_by_of(std::byte * known, size_t size);

// These bytes have a value now. Memory that is not followed is left alone.
void note_written(const void * begin, size_t size);

// These bytes were copied. What kernels left without a value and the host gets is a finding.
void note_copied(const void * to, const void * from, size_t size);

} // namespace patchkit
