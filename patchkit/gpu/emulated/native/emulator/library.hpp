// Functions of the emulator's library that the runtime looks up by name, besides patchkit_make_emulator: reading code
// objects.
#pragma once

#include "code_object.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace patchkit::gpu {

using load_code_object = void (*)(std::span<const std::byte> elf, std::unique_ptr<code_object> & loaded);
using find_code_object = void (*)(std::span<const std::byte> bundle, std::string_view arch,
                                  std::vector<std::byte> & storage, std::vector<std::string> & held,
                                  std::span<const std::byte> & found);

} // namespace patchkit::gpu

// code_object::load and find_in_bundle; results are returned by reference, because C linkage cannot return these types.
extern "C" void patchkit_load_code_object(std::span<const std::byte> elf,
                                          std::unique_ptr<patchkit::gpu::code_object> & loaded);
extern "C" void patchkit_find_code_object(std::span<const std::byte> bundle, std::string_view arch,
                                          std::vector<std::byte> & storage, std::vector<std::string> & held,
                                          std::span<const std::byte> & found);
