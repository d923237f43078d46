// Kernel metadata of a code object besides the descriptors: the MessagePack map in its note.
//
// Sources: LLVM's "User Guide for AMDGPU Backend", sections "Code Object V3 Metadata" to "V5", and the
// MessagePack specification.
#pragma once

#include "bytes.hpp"

#include <string>
#include <vector>

namespace patchkit::gpu {

// One kernel argument; hidden ones begin with "hidden_". Offsets in bytes from the start of the kernarg segment.
struct argument {
    std::string kind; // .value_kind: by_value, global_buffer, hidden_block_count_x, ...
    uint32_t offset;
    uint32_t size;
};

struct kernel_metadata {
    std::string name;
    std::string symbol; // of the descriptor
    std::vector<argument> arguments;
    uint32_t kernarg_size      = 0;
    uint32_t kernarg_alignment = 0;
    uint32_t max_threads       = 0;
    uint32_t vgprs             = 0;
    uint32_t sgprs             = 0;
    uint32_t wave_size         = 0;
    bool has_dynamic_stack     = false;
};

// The kernels of one note. Throws bad_code_object.
std::vector<kernel_metadata> read_metadata(bytes note);

} // namespace patchkit::gpu
