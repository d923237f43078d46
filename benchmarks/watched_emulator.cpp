// A library that wraps the emulator, times its launches and passes them on to the real one. See emulator_speed.py.
//
// PATCHKIT_WATCH_SECONDS is a file that gets a line per launch: CPU seconds of all threads, and the kernel.
// PATCHKIT_WATCH_RATES is a file that gets the same, with the number of wave instructions after the seconds.
// PATCHKIT_WATCH_LAUNCH is a part of a kernel's name and a folder: the kernel's first launch is written there instead,
// with the memory that its arguments point to, and ends the process.
#include "emulator.hpp"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

using namespace patchkit::gpu;

namespace {

std::string setting(const char * name) {
    const char * value = std::getenv(name);
    return value == nullptr ? "" : value;
}

double processor_seconds() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return double(now.tv_sec) + double(now.tv_nsec) / 1e9;
}

struct watched final : emulator {
    watched(std::unique_ptr<emulator> real, memory_map & memory) : real(std::move(real)), memory(memory) {
        std::istringstream(setting("PATCHKIT_WATCH_LAUNCH")) >> wanted >> folder;
    }

    void run(const launch & one) override {
        if (!wanted.empty() && one.kernel->name.find(wanted) != std::string::npos) {
            write_down(one);
            std::_Exit(0);
        }
        const double began = processor_seconds();
        real->run(one);
        const double took = processor_seconds() - began;
        std::ofstream(setting("PATCHKIT_WATCH_SECONDS"), std::ios::app) << took << " " << one.kernel->name << "\n";
        if (const std::string rates = setting("PATCHKIT_WATCH_RATES"); !rates.empty()) {
            const uint64_t now = executed();
            std::ofstream(rates, std::ios::app) << took << " " << now - before << " " << one.kernel->name << "\n";
            before = now;
        }
    }

    void run_alone(std::span<const std::byte> code, std::span<wave_registers> waves, uint32_t lds, uint32_t scratch,
                   uint32_t mode) override {
        real->run_alone(code, waves, lds, scratch, mode);
    }
    std::vector<kernel_count> counts() override { return real->counts(); }
    std::vector<finding> findings() override { return real->findings(); }

  private:
    std::unique_ptr<emulator> real;
    memory_map & memory;
    std::string wanted, folder;
    uint64_t before = 0; // instructions of all launches until now

    uint64_t executed() {
        uint64_t sum = 0;
        for (const kernel_count & one : real->counts()) {
            sum += one.instructions;
        }
        return sum;
    }

    void write(const std::string & name, const std::byte * data, size_t size) {
        std::ofstream(folder + "/" + name, std::ios::binary).write(reinterpret_cast<const char *>(data), long(size));
    }

    void write_down(const launch & one) {
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
    }
};

} // namespace

extern "C" emulator * patchkit_make_emulator(const configuration & wanted, memory_map & memory) {
    const auto make = reinterpret_cast<make_emulator>(dlsym(RTLD_NEXT, "patchkit_make_emulator"));
    return new watched(std::unique_ptr<emulator>(make(wanted, memory)), memory);
}
