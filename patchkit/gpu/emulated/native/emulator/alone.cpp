// Runs pieces of machine code, each in one block; used by tests of single instructions.
//
//   alone LIBLLVM ARCH < pieces
//
// A piece consists of lines: "run NAME", then any of "code HEX", "lds BYTES", "scratch BYTES", "mode HEX", "buffer
// BYTES" (zeroed memory; its address is stored in 8 bytes that s[80:81] point to), "exec HEX", "vcc HEX", "m0 HEX",
// "scc 0|1", "s N HEX", "v N HEX" (all lanes) or "v N HEX HEX ..." (32), "wave" (the following lines apply to the next
// wave of the block), and "go". Output: "left NAME" with the same words for what is not 0 ("wave" before each wave, "v"
// always with 32 values), or "fault NAME" and a line of text, each followed by "end".

#include "emulator.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>

namespace {

using patchkit::gpu::memory_range;
using patchkit::gpu::wave_registers;

struct buffers final : patchkit::gpu::memory_map {
    std::vector<std::vector<std::byte>> held;

    memory_range find(uintptr_t address) override {
        for (const auto & one : held) {
            const auto begin = uintptr_t(one.data());
            if (address >= begin && address < begin + one.size()) {
                return {begin, begin + one.size()};
            }
        }
        return {};
    }
    bool is_readable(uintptr_t, uint32_t) override { return false; }
    bool serve_host_calls() override { return false; }
    void found(const patchkit::gpu::finding &) override {}
    std::string describe(uintptr_t, uint32_t) override { return "outside of its buffer"; }
};

struct piece {
    std::string name;
    std::vector<std::byte> code;
    std::vector<wave_registers> waves;
    uint32_t lds = 65536, scratch = 65536, mode = 0xc0;
    size_t buffer = 0;
};

std::vector<std::byte> from_hex(const std::string & text) {
    std::vector<std::byte> bytes;
    for (size_t n = 0; n + 1 < text.size(); n += 2) {
        bytes.push_back(std::byte(std::strtoul(text.substr(n, 2).c_str(), nullptr, 16)));
    }
    return bytes;
}

void print_wave(const wave_registers & r) {
    std::printf("vcc %08x\nexec %08x\nm0 %08x\nscc %d\n", r.vcc, r.exec, r.m0, r.scc ? 1 : 0);
    for (size_t n = 0; n < r.sgprs.size(); ++n) {
        if (r.sgprs[n] != 0) {
            std::printf("s %zu %08x\n", n, r.sgprs[n]);
        }
    }
    for (size_t n = 0; n < r.vgprs.size(); ++n) {
        const auto & lanes = r.vgprs[n];
        if (std::any_of(lanes.begin(), lanes.end(), [](uint32_t lane) { return lane != 0; })) {
            std::printf("v %zu", n);
            for (const uint32_t lane : lanes) {
                std::printf(" %08x", lane);
            }
            std::printf("\n");
        }
    }
}

wave_registers new_wave() {
    wave_registers made;
    made.vgprs.assign(256, {});
    made.exec = ~0u;
    return made;
}

void run(piece & p, patchkit::gpu::emulator & gpu, buffers & memory) {
    memory.held.clear();
    if (p.buffer != 0) {
        memory.held.emplace_back(p.buffer);
        const auto target = uint64_t(memory.held.back().data());
        memory.held.emplace_back(sizeof(target));
        std::memcpy(memory.held.back().data(), &target, sizeof(target));
        const auto pointer = uint64_t(memory.held.back().data());
        for (wave_registers & one : p.waves) {
            one.sgprs[80] = uint32_t(pointer);
            one.sgprs[81] = uint32_t(pointer >> 32);
        }
    }
    try {
        gpu.run_alone(p.code, p.waves, p.lds, p.scratch, p.mode);
    } catch (const std::exception & error) {
        std::printf("fault %s\n%s\nend\n", p.name.c_str(), error.what());
        return;
    }
    std::printf("left %s\n", p.name.c_str());
    for (const wave_registers & one : p.waves) {
        std::printf("wave\n");
        print_wave(one);
    }
    std::printf("end\n");
}

} // namespace

int main(int argc, char ** argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: alone LIBLLVM ARCH < pieces\n");
        return 2;
    }
    buffers memory;
    patchkit::gpu::configuration wanted;
    wanted.disassembler = argv[1];
    wanted.arch = argv[2];
    wanted.threads = 1;
    std::unique_ptr<patchkit::gpu::emulator> gpu;
    try {
        gpu.reset(patchkit_make_emulator(wanted, memory));
    } catch (const std::exception & error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    piece p;
    p.waves = {new_wave()};
    for (std::string text; std::getline(std::cin, text);) {
        std::istringstream words(text);
        std::string what, value;
        words >> what;
        const auto hex = [&] {
            words >> value;
            return uint32_t(std::strtoul(value.c_str(), nullptr, 16));
        };
        size_t number = 0;
        if (what == "run") {
            p = piece{};
            words >> p.name;
            p.waves = {new_wave()};
        } else if (what == "wave") {
            p.waves.push_back(new_wave());
        } else if (what == "code") {
            words >> value;
            p.code = from_hex(value);
        } else if (what == "lds") {
            words >> p.lds;
        } else if (what == "scratch") {
            words >> p.scratch;
        } else if (what == "mode") {
            p.mode = hex();
        } else if (what == "buffer") {
            words >> p.buffer;
        } else if (what == "exec") {
            p.waves.back().exec = hex();
        } else if (what == "vcc") {
            p.waves.back().vcc = hex();
        } else if (what == "m0") {
            p.waves.back().m0 = hex();
        } else if (what == "scc") {
            p.waves.back().scc = hex() != 0;
        } else if (what == "s" && words >> number && number < p.waves.back().sgprs.size()) {
            p.waves.back().sgprs[number] = hex();
        } else if (what == "v" && words >> number && number < p.waves.back().vgprs.size()) {
            auto & lanes = p.waves.back().vgprs[number];
            lanes.fill(hex());
            for (size_t lane = 1; lane < lanes.size() && words >> value; ++lane) {
                lanes[lane] = uint32_t(std::strtoul(value.c_str(), nullptr, 16));
            }
        } else if (what == "go") {
            run(p, *gpu, memory);
        } else {
            std::fprintf(stderr, "not understood: %s\n", text.c_str());
            return 2;
        }
    }
    return 0;
}
