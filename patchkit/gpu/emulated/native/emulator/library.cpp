#include "library.hpp"

extern "C" void patchkit_load_code_object(std::span<const std::byte> elf,
                                          std::unique_ptr<patchkit::gpu::code_object> & loaded) {
    loaded = patchkit::gpu::code_object::load(elf);
}

extern "C" void patchkit_find_code_object(std::span<const std::byte> bundle, std::string_view arch,
                                          std::vector<std::byte> & storage, std::vector<std::string> & held,
                                          std::span<const std::byte> & found) {
    found = patchkit::gpu::find_in_bundle(bundle, arch, storage, held);
}
