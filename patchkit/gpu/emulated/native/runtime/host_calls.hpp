// Calls of running kernels to the host: printf, what assert prints, and memory for malloc.
//
// The protocol is that of ROCm's device libraries (hostcall_impl.cl, as linked by ROCm 5 to 7) and of the runtime's
// side of it (clr f9f995c6d, rocclr/device: devhostcall, devhcmessages, devhcprintf): a wave takes a packet from a
// stack of free ones, fills one slot of eight words per lane, puts the packet on a stack of ready ones and waits
// until its flag is cleared.
#pragma once

#include <cstdint>

namespace patchkit {

// The address of the buffer that kernels get as hidden_hostcall_buffer; made when it is first asked for.
uint64_t host_call_buffer();

// Serves what waits; false when nothing did. For any thread. Throws kernel_fault when a kernel asks for what is not there.
bool serve_host_calls();

} // namespace patchkit
