// What programs with graphs of ours share: the same numbers on every machine, the GPU of a folder, and how they end.
#pragma once

#include "ggml.h"
#include "ggml-backend.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

[[noreturn]] inline void refuse(const std::string & what) {
    std::fprintf(stderr, "%s\n", what.c_str());
    std::exit(2);
}

// A row of numbers from -1 to 1.
class numbers {
  public:
    explicit numbers(uint64_t seed) : state(seed * 0x9E3779B97F4A7C15ull + 1) {}

    double next() {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        return double(state >> 11) * 0x1p-53 * 2.0 - 1.0;
    }

    std::vector<float> many(size_t count) {
        std::vector<float> made(count);
        for (float & one : made) {
            one = float(next());
        }
        return made;
    }

  private:
    uint64_t state;
};

// FNV-1a of all bytes.
inline uint64_t hash_of(const ggml_tensor * tensor) {
    std::vector<uint8_t> bytes(ggml_nbytes(tensor));
    ggml_backend_tensor_get(tensor, bytes.data(), 0, bytes.size());
    uint64_t hash = 0xCBF29CE484222325ull;
    for (const uint8_t byte : bytes) {
        hash = (hash ^ byte) * 0x100000001B3ull;
    }
    return hash;
}

// The backends of a program that is called as PROGRAM FOLDER ..., where FOLDER has them.
struct backends {
    ggml_backend_t gpu = nullptr, cpu = nullptr;

    backends(int argc, char ** argv) {
        if (argc < 2) {
            refuse("which folder has the backends?");
        }
        ggml_backend_load_all_from_path(argv[1]);
        gpu = ggml_backend_init_by_name("ROCm0", nullptr);
        cpu = ggml_backend_init_by_name("CPU", nullptr);
        if (gpu == nullptr || cpu == nullptr) {
            refuse("there is no ROCm0, or no CPU");
        }
    }

    ~backends() {
        ggml_backend_free(gpu);
        ggml_backend_free(cpu);
    }

    backends(const backends &) = delete;
    backends & operator=(const backends &) = delete;
};
