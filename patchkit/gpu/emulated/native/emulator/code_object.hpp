// What the GPU gets: a code object (an ELF file for one GPU), read and laid out in memory as a loader would.
//
// A code object may come from a stranger. Everything in it is checked against its size before it is followed, and
// what is wrong is a bad_code_object that says what and where.
#pragma once

#include "bytes.hpp"
#include "metadata.hpp"

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

// One kernel: its descriptor (LLVM's AMDGPU user guide, "Kernel Descriptor") and its metadata. Sizes in bytes.
struct kernel_code {
    std::string name; // mangled, as host code registers it
    const std::byte * entry;       // null: the compiler dropped its body, and a GPU would run what lies there
    uint32_t lds;                  // static
    uint32_t scratch;              // per lane
    uint32_t kernarg_size;
    uint32_t kernarg_alignment;
    uint32_t vgprs;                // that a wave can address, by the descriptor
    uint32_t sgprs;                // .sgpr_count
    uint32_t max_threads;          // per block, .max_flat_workgroup_size
    uint32_t rsrc1, rsrc2, rsrc3;  // as in the descriptor: float modes, which SGPRs are set up
    uint16_t properties;           // kernel_code_properties
    uint16_t kernarg_preload;
    bool has_dynamic_stack;
    std::vector<argument> arguments;
    uint32_t wave_size;            // lanes: 32 or 64
    uint32_t vgprs_used;           // .vgpr_count
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

    // A __device__ variable by name, as the host can ask for it (a dynamic symbol); null when there is none.
    virtual const symbol * variable(std::string_view name) const = 0;
    virtual const std::map<std::string, symbol, std::less<>> & variables() const = 0;

    // The function whose code holds this address, with its name; null when none does. Kernels are functions too;
    // those that are local to the file are known unless their names were stripped.
    virtual const std::pair<const std::string, symbol> * function_at(const std::byte * address) const = 0;

    // All of them, by their addresses.
    virtual const std::map<const std::byte *, std::pair<const std::string, symbol>> & functions() const = 0;

    // The memory it was laid out in, from its lowest segment to the end of its highest. What lies behind that, as far
    // as a GPU fetches ahead of its program counter, can be read and is zero.
    virtual std::span<std::byte> memory() = 0;

    // The segment that holds this address, if it must not be written: code and constants. Else empty.
    virtual std::span<std::byte> constants_at(const std::byte * address) const = 0;
};

// The code object for one GPU in what __hipRegisterFatBinary gets: an offload bundle, compressed or not, or a bare
// ELF file. Throws bad_code_object when it is malformed; gives an empty span when it has no code for that GPU, and says
// in `held` what it has (host code aside). `storage` keeps what was decompressed, and must outlive the span.
//
// `arch` is a processor with the features that the device has switched on or off: gfx1151, gfx90a:sramecc+:xnack-. The
// processor must be the same by name (no gfx11-generic for gfx1151). Each feature that the code names must be named by
// `arch`, in any order; of several that fit, the code that names most of them is taken.
std::span<const std::byte> find_in_bundle(std::span<const std::byte> bundle, std::string_view arch,
                                          std::vector<std::byte> & storage, std::vector<std::string> & held);

// How many bytes find_in_bundle needs of what begins at `bundle`: HIP passes only the pointer.
//
// Trusted is that whoever passes the pointer has as many bytes there as the headers say: they are part of a program
// that this process loaded, and there is nothing to hold them against. Not trusted is that the headers make sense:
// one that announces more than 4096 entries, names of more than 4096 bytes, or more than 4 GiB is a bad_code_object,
// and so is a compressed bundle of version 1, which does not say how long it is.
size_t bundle_size(const void * bundle);

} // namespace patchkit::gpu
