// In place of the emulator: writes down the first launch of one kernel, with the memory that its arguments point at,
// and ends the process. Other kernels do nothing. See emulator_speed.py.
//
// PATCHKIT_ONE_LAUNCH is a part of the kernel's name, PATCHKIT_ONE_LAUNCH_FOLDER gets the files.
#include "emulator.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

using namespace patchkit::gpu;

namespace {

std::string setting(const char * name) {
    const char * value = std::getenv(name);
    if (value == nullptr) {
        throw std::runtime_error(std::string(name) + " is not set");
    }
    return value;
}

struct writer final : emulator {
    writer(memory_map & memory)
        : memory(memory), wanted(setting("PATCHKIT_ONE_LAUNCH")), folder(setting("PATCHKIT_ONE_LAUNCH_FOLDER")) {}

    void run(const launch & one) override {
        if (one.kernel->name.find(wanted) == std::string::npos) {
            return;
        }
        const std::span<const std::byte> code = one.code->memory();
        write("code", code.data(), code.size());
        write("kernarg", one.kernarg.data(), one.kernarg.size());
        std::ofstream out(folder + "/launch.json");
        const kernel_code & kernel = *one.kernel;
        out << "{\"name\": \"" << kernel.name << "\", \"entry\": " << kernel.entry - code.data();
        out << ", \"grid\": [" << one.grid.x << ", " << one.grid.y << ", " << one.grid.z << "]";
        out << ", \"block\": [" << one.block.x << ", " << one.block.y << ", " << one.block.z << "]";
        out << ", \"lds\": " << kernel.lds + one.dynamic_lds << ", \"scratch\": " << kernel.scratch;
        out << ", \"rsrc2\": " << kernel.rsrc2 << ", \"properties\": " << kernel.properties << ", \"pointers\": [";
        const char * comma = "";
        for (size_t at = 0; at + 8 <= one.kernarg.size(); at += 8) {
            uint64_t value;
            std::memcpy(&value, &one.kernarg[at], sizeof(value));
            const memory_range range = memory.find(uintptr_t(value));
            if (range.begin < range.end) {
                write("memory-" + std::to_string(at), reinterpret_cast<const std::byte *>(range.begin),
                      range.end - range.begin);
                out << comma << "[" << at << ", " << value - range.begin << "]";
                comma = ", ";
            }
        }
        out << "]}\n";
        out.close();
        std::_Exit(0);
    }

    void run_alone(std::span<const std::byte>, std::span<wave_registers>, uint32_t, uint32_t, uint32_t) override {}
    std::vector<kernel_count> counts() override { return {}; }

  private:
    memory_map & memory;
    std::string wanted, folder;

    void write(const std::string & name, const std::byte * data, size_t size) {
        std::ofstream(folder + "/" + name, std::ios::binary).write(reinterpret_cast<const char *>(data), long(size));
    }
};

} // namespace

extern "C" emulator * patchkit_make_emulator(const configuration &, memory_map & memory) { return new writer(memory); }
