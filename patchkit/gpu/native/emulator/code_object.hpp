// What the GPU gets: a code object (an ELF file for one GPU), read and laid out in memory as a loader would.
//
// A code object may come from a stranger. Everything in it is checked against its size before it is followed, and
// what is wrong is a bad_code_object that says what and where.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace patchkit::gpu {

struct bad_code_object : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// One argument of a kernel as its metadata has it; hidden ones begin with "hidden_". Bytes from the start of the
// kernarg segment.
struct argument {
    std::string kind; // .value_kind: by_value, global_buffer, hidden_block_count_x, ...
    uint32_t offset;
    uint32_t size;
};

// One kernel: its descriptor (LLVM's AMDGPU user guide, "Kernel Descriptor") and its metadata. Sizes in bytes.
struct kernel_code {
    std::string name; // mangled, as host code registers it
    const std::byte * entry;
    uint32_t lds;                  // static
    uint32_t scratch;              // per lane
    uint32_t kernarg_size;
    uint32_t kernarg_alignment;
    uint32_t vgprs;                // that a wave can address
    uint32_t sgprs;
    uint32_t max_threads;          // per block, .max_flat_workgroup_size
    uint32_t rsrc1, rsrc2, rsrc3;  // as in the descriptor: float modes, which SGPRs are set up
    uint16_t properties;           // kernel_code_properties
    uint16_t kernarg_preload;
    bool has_dynamic_stack;
    std::vector<argument> arguments;
};

// A function that code can call or jump to, or a variable of the device.
struct symbol {
    std::byte * address;
    uint64_t size;
};

class code_object {
  public:
    // Lays out an ELF file and relocates it. Throws bad_code_object.
    static std::unique_ptr<code_object> load(std::span<const std::byte> elf);

    virtual ~code_object() = default;

    // The GPU it is for, as LLVM names processors: gfx1151.
    virtual const std::string & arch() const = 0;

    // By mangled name; null when it has no such kernel.
    virtual const kernel_code * kernel(std::string_view name) const = 0;
    virtual const std::map<std::string, kernel_code, std::less<>> & kernels() const = 0;

    // A __device__ variable by name; null when there is none.
    virtual const symbol * variable(std::string_view name) const = 0;
    virtual const std::map<std::string, symbol, std::less<>> & variables() const = 0;

    // The function whose code holds this address, with its name; null when none does.
    virtual const std::pair<const std::string, symbol> * function_at(const std::byte * address) const = 0;

    // The memory it was laid out in.
    virtual std::span<std::byte> memory() = 0;
};

// The code object for one GPU in what __hipRegisterFatBinary gets: an offload bundle, compressed or not, or a bare
// ELF file. `arch` is exact; target features as in gfx90a:xnack- are compared by name. Throws bad_code_object when
// the bundle is malformed; gives an empty span when it has no code for that GPU, and says in `held` what it has.
// `storage` keeps what was decompressed.
std::span<const std::byte> find_in_bundle(std::span<const std::byte> bundle, std::string_view arch,
                                          std::vector<std::byte> & storage, std::vector<std::string> & held);

} // namespace patchkit::gpu
