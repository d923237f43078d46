// Host calls of running kernels: printf, messages of assert, and memory for malloc.
//
// Implements the protocol of ROCm's device libraries (hostcall_impl.cl, as linked by ROCm 5 to 7) and of the runtime
// (clr f9f995c6d, rocclr/device: devhostcall, devhcmessages, devhcprintf): a wave takes a packet from a stack of free
// ones, fills a slot of eight words per lane, pushes the packet on a stack of ready ones, and waits until its flag is
// cleared.
#pragma once

#include <cstdint>

namespace patchkit {

// The address of the buffer that kernels get as hidden_hostcall_buffer; allocated on first use.
uint64_t host_call_buffer();

// Serves pending calls; returns false if there were none. Thread-safe. Throws kernel_fault for an unsupported service.
bool serve_host_calls();

} // namespace patchkit
