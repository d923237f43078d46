// As much of the HIP runtime as triton/run.py calls, on the interpreter alone and without HIP's headers.

#include "emulator.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

namespace {

using namespace patchkit::gpu;

struct memory final : memory_map {
    std::map<uintptr_t, size_t> allocations;

    memory_range find(uintptr_t address) override {
        const auto behind = allocations.upper_bound(address);
        if (behind == allocations.begin()) {
            return {};
        }
        const auto & [begin, size] = *std::prev(behind);
        return address < begin + size ? memory_range{begin, begin + size} : memory_range{};
    }
    bool is_readable(uintptr_t, uint32_t) override { return false; }
    bool serve_host_calls() override { return false; }
    void found(const finding &) override {}
    std::string describe(uintptr_t, uint32_t) override { return "in no allocation"; }
};

memory & known_memory() {
    static memory one;
    return one;
}

struct module {
    std::unique_ptr<code_object> code;
    std::unique_ptr<emulator> gpu;
};

struct function {
    module * of;
    const kernel_code * kernel;
};

// Where its section headers end, which are the last thing in a code object.
size_t size_of_elf(const std::byte * elf) {
    uint64_t headers;
    uint16_t size, count;
    std::memcpy(&headers, elf + 40, sizeof(headers));
    std::memcpy(&size, elf + 58, sizeof(size));
    std::memcpy(&count, elf + 60, sizeof(count));
    return headers + size_t(size) * count;
}

} // namespace

extern "C" {

int hipMalloc(void ** made, size_t size) {
    *made = std::aligned_alloc(256, (size + 255) / 256 * 256);
    known_memory().allocations[uintptr_t(*made)] = size;
    return 0;
}

int hipMemcpy(void * to, const void * from, size_t size, int) {
    std::memcpy(to, from, size);
    return 0;
}

int hipModuleLoadData(module ** made, const std::byte * elf) {
    auto code = code_object::load({elf, size_of_elf(elf)});
    configuration wanted;
    wanted.arch = code->arch();
    wanted.disassembler = std::getenv("PATCHKIT_EMULATOR_DISASSEMBLER");
    *made = new module{std::move(code), std::unique_ptr<emulator>(patchkit_make_emulator(wanted, known_memory()))};
    return 0;
}

int hipModuleGetFunction(function ** made, module * of, const char * name) {
    *made = new function{of, of->code->kernel(name)};
    return (*made)->kernel == nullptr;
}

int hipModuleLaunchKernel(function * what, uint32_t grid_x, uint32_t grid_y, uint32_t grid_z, uint32_t block_x,
                          uint32_t block_y, uint32_t block_z, uint32_t lds, void *, void ** values, void **) {
    launch one{what->of->code.get(), what->kernel, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, lds, {}, false, {}};
    one.kernarg.resize(what->kernel->kernarg_size);
    for (const argument & each : what->kernel->arguments) {
        std::memcpy(one.kernarg.data() + each.offset, *values++, each.size);
    }
    try {
        what->of->gpu->run(one);
    } catch (const std::exception & error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}

int hipDeviceSynchronize() { return 0; }

} // extern "C"
