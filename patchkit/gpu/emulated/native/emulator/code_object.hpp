// Loads a code object (an ELF file for one GPU), laid out in memory as a loader would.
//
// Code objects are untrusted. All offsets and sizes are checked before use, and problems are reported as
// bad_code_object with the location.
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

// One kernel, from its descriptor (LLVM's AMDGPU user guide, "Kernel Descriptor") and its metadata. Sizes in bytes.
struct kernel_code {
    std::string name; // mangled, as registered by host code
    const std::byte * entry;       // null: the compiler dropped its body, and a GPU would run whatever follows
    uint32_t lds;                  // static
    uint32_t scratch;              // per lane
    uint32_t kernarg_size;
    uint32_t kernarg_alignment;
    uint32_t vgprs;                // VGPRs that a wave can address, from the descriptor
    uint32_t sgprs;                // .sgpr_count
    uint32_t max_threads;          // per block, .max_flat_workgroup_size
    uint32_t rsrc1, rsrc2, rsrc3;  // from the descriptor: float modes, initialised SGPRs
    uint16_t properties;           // kernel_code_properties
    uint16_t kernarg_preload;
    bool has_dynamic_stack;
    std::vector<argument> arguments;
    uint32_t wave_size;            // lanes: 32 or 64
    uint32_t vgprs_used;           // .vgpr_count
};

// A function that code can call or jump to, or a device variable.
struct symbol {
    std::byte * address;
    uint64_t size;
};

class code_object {
  public:
    // Loads and relocates an ELF file. Throws bad_code_object.
    static std::unique_ptr<code_object> load(std::span<const std::byte> elf);

    virtual ~code_object() = default;

    // The GPU it is for, by LLVM's name: gfx1151.
    virtual const std::string & arch() const = 0;

    // By mangled name; null if there is no such kernel.
    virtual const kernel_code * kernel(std::string_view name) const = 0;
    virtual const std::map<std::string, kernel_code, std::less<>> & kernels() const = 0;

    // A __device__ variable visible to the host (a dynamic symbol), by name; null if there is none.
    virtual const symbol * variable(std::string_view name) const = 0;
    virtual const std::map<std::string, symbol, std::less<>> & variables() const = 0;

    // The function that contains this address, with its name; null if there is none. Includes kernels. Local functions
    // are known unless symbols were stripped.
    virtual const std::pair<const std::string, symbol> * function_at(const std::byte * address) const = 0;

    // All functions by address.
    virtual const std::map<const std::byte *, std::pair<const std::string, symbol>> & functions() const = 0;

    // Its memory, from the lowest segment to the end of the highest. The memory after it is readable and zero, as far
    // as a GPU prefetches instructions.
    virtual std::span<std::byte> memory() = 0;

    // The read-only segment (code and constants) that contains this address, or an empty span.
    virtual std::span<std::byte> constants_at(const std::byte * address) const = 0;
};

// Finds the code object for one GPU in the argument of __hipRegisterFatBinary: an offload bundle (compressed or not),
// or a bare ELF file. Throws bad_code_object if it is malformed. Returns an empty span if it has no code for that GPU,
// and stores in `held` what it has (except host code). `storage` holds decompressed data and must outlive the span.
//
// `arch` is a processor with the features that the device has on or off: gfx1151, gfx90a:sramecc+:xnack-. The processor
// name must be equal (no gfx11-generic for gfx1151). All features named by the code must be named by `arch`, in any
// order; of several matches, the code with the most features is used.
std::span<const std::byte> find_in_bundle(std::span<const std::byte> bundle, std::string_view arch,
                                          std::vector<std::byte> & storage, std::vector<std::string> & held);

// Number of bytes that find_in_bundle needs at `bundle`, because HIP passes only a pointer.
//
// The caller is trusted to have as many bytes as the headers say, because they are part of a loaded program and cannot
// be verified. The headers themselves are not trusted: more than 4096 entries, names of more than 4096 bytes, or more
// than 4 GiB are a bad_code_object, and so is a compressed bundle of version 1, which does not contain its length.
size_t bundle_size(const void * bundle);

} // namespace patchkit::gpu
