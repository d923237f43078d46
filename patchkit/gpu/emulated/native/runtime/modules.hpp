// Binaries with GPU code, as registered by host code, and their code for the emulated GPU.
//
// A binary is a bundle of code objects, a code object, or the marker that patchkit embeds in place of device code
// (PATCHKIT-UNIT and the unit's path). The code of a marked unit is the file $PATCHKIT_EMULATOR_UNITS/UNIT, with _ for
// each / of its path. If it is missing, the process listening at the socket $PATCHKIT_EMULATOR_SERVER is sent the path,
// a tab, the folder, optionally a tab and a mangled kernel name, and a newline. It creates the file, and replies with
// one line: "ok" and the file's name (UNIT, or one that contains only this kernel), or the error.
#pragma once

#include "../emulator/code_object.hpp"

#include <hip/hip_runtime_api.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace patchkit {

// A managed variable of host code; device code reads its address from a variable with this name.
struct managed_variable {
    std::string name;
    void * address;
};

class module {
  public:
    // The memory must stay valid until the module is unloaded, or is copied.
    explicit module(const char * binary);
    explicit module(std::vector<std::byte> binary);
    ~module();

    module(const module &) = delete;
    module & operator=(const module &) = delete;

    // The path of the unit in a marker; empty if it is not a marker.
    const std::string & unit() const { return unit_; }

    // The code, loaded on first use. If it cannot be loaded, returns an error that is printed once.
    hipError_t load(gpu::code_object *& code);

    // The code that contains a kernel, by mangled name: the whole code, or for a marked unit what was compiled for this
    // kernel alone. The caller must check that the kernel exists in it.
    hipError_t load_kernel(const std::string & name, gpu::code_object *& code);

    void add(managed_variable variable);

  private:
    // A kernel compiled without the others of its unit: it shares no device variables with them.
    struct lone_kernel {
        std::vector<std::byte> file;
        std::unique_ptr<gpu::code_object> code;
    };

    hipError_t load_now();
    bool load_alone(const std::string & name, gpu::code_object *& code);
    hipError_t place_managed_variables();
    std::span<const std::byte> find_code(std::vector<std::string> & held);

    const char * binary_;
    std::vector<std::byte> own_;
    std::string unit_;
    std::vector<std::byte> storage_; // decompressed code, or the contents of a unit's file
    std::mutex mutex_;
    bool is_tried_     = false;
    bool is_missing_   = false; // already reported
    hipError_t result_ = hipSuccess;
    std::unique_ptr<gpu::code_object> code_;
    std::vector<managed_variable> managed_;
    std::unordered_map<std::string, std::unique_ptr<lone_kernel>> alone_;
};

// The module for a result of __hipRegisterFatBinary; null if it is invalid or was unregistered.
std::shared_ptr<module> live_module(void ** handle);

} // namespace patchkit
