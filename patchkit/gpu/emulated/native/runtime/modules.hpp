// Binaries with code for the GPU, as host code hands them over, and the code in them for the GPU that is played.
//
// A binary is a bundle of code objects, one code object, or the marker that patchkit puts in place of device code
// (PATCHKIT-UNIT and the unit's path). Code of a marked unit is the file $PATCHKIT_EMULATOR_UNITS/UNIT, with _ for
// each / of its path. Where that is missing, whoever listens at the socket $PATCHKIT_EMULATOR_SERVER is sent the
// path, a tab, the folder, for one kernel a tab and its mangled name, and a newline. It puts the code there; the
// answer is one line: "ok" and the name of the file (UNIT, or one that holds this kernel alone), or what went wrong.
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

// A managed variable of host code: code finds its address in a variable of this name.
struct managed_variable {
    std::string name;
    void * address;
};

class module {
  public:
    // Of memory that stays until the module is unloaded, or of bytes that it keeps.
    explicit module(const char * binary);
    explicit module(std::vector<std::byte> binary);
    ~module();

    module(const module &) = delete;
    module & operator=(const module &) = delete;

    // The path of the unit that a marker names, else empty.
    const std::string & unit() const { return unit_; }

    // The code, loaded when it is first asked for. When it cannot be had, the error, which is said on stderr once.
    hipError_t load(gpu::code_object *& code);

    // The code that has a kernel, by its mangled name: the whole code, or what whoever compiles a marked unit made
    // of this kernel alone. Whether a kernel of the name is in it is for the caller to see.
    hipError_t load_kernel(const std::string & name, gpu::code_object *& code);

    void add(managed_variable variable);

  private:
    // A kernel without the others of its unit: it shares no memory with them.
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
    std::vector<std::byte> storage_; // what was decompressed, or the file of a unit
    std::mutex mutex_;
    bool is_tried_     = false;
    bool is_missing_   = false; // which was said
    hipError_t result_ = hipSuccess;
    std::unique_ptr<gpu::code_object> code_;
    std::vector<managed_variable> managed_;
    std::unordered_map<std::string, std::unique_ptr<lone_kernel>> alone_;
};

// The module behind what __hipRegisterFatBinary returned; null when it is none, or no more.
std::shared_ptr<module> live_module(void ** handle);

} // namespace patchkit
