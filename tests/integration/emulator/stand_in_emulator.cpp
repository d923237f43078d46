// An emulator's library that knows what a handful of kernels of the tests do, and runs no instruction.
//
// The runtime around it is what is under test: which kernel runs when, and with which arguments. Code objects are
// read by the real loader.
#include "emulator.hpp"

#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <string>

using namespace patchkit::gpu;

namespace {

// The value of the numbered explicit argument.
template <typename T> T given(const launch & launch, size_t number) {
    const argument & one = launch.kernel->arguments.at(number);
    T value;
    if (one.size != sizeof(value)) {
        throw kernel_fault("an argument of " + std::to_string(one.size) + " bytes");
    }
    std::memcpy(&value, launch.kernarg.data() + one.offset, sizeof(value));
    return value;
}

class stand_in : public emulator {
  public:
    stand_in(const configuration & wanted, memory_map & memory) : configuration_(wanted), memory_(memory) {}

    void run(const launch & launch) override {
        std::string name = launch.kernel->name;
        ++launches_[name];
        if (name.find("describe") != std::string::npos) {
            describe(launch);
        } else if (name.find("put") != std::string::npos) {
            *place<int>(launch, 0) = given<int>(launch, 1);
        } else if (name.find("take") != std::string::npos) {
            *place<int>(launch, 0) = *place<int>(launch, 1);
        } else if (name.find("add") != std::string::npos) {
            *place<int>(launch, 0) += given<int>(launch, 1);
        } else if (name.find("count_up") != std::string::npos) {
            ++*static_cast<int *>(variable(launch, "counter"));
        } else if (name.find("follow_managed") != std::string::npos) {
            ++**static_cast<int **>(variable(launch, "shared_counter"));
        } else if (name.find("talk") != std::string::npos) {
            talk(launch);
        } else {
            throw kernel_fault("kernel " + name + " is not one of those that are stood in for");
        }
    }

    void run_alone(std::span<const std::byte>, std::span<wave_registers>, uint32_t, uint32_t, uint32_t) override {
        throw kernel_fault("there are no instructions here");
    }

    std::vector<finding> findings() override { return {}; }

    std::vector<kernel_count> counts() override {
        std::vector<kernel_count> result;
        for (const auto & [name, count] : launches_) {
            result.push_back(
                {name, count, 0, count, 3 * count, 0, 0.5, {{"v_nop", 2 * count, false}, {"v_exp_f32", count, true}}});
        }
        return result;
    }

  private:
    template <typename T> T * place(const launch & launch, size_t number) {
        auto * pointer = given<T *>(launch, number);
        check(pointer, sizeof(T));
        return pointer;
    }

    void check(const void * pointer, size_t size) {
        const memory_range range = memory_.find(uintptr_t(pointer));
        if (range.end - uintptr_t(pointer) < size || range.begin > uintptr_t(pointer) || range.end == 0) {
            char text[64];
            std::snprintf(text, sizeof(text), "nothing is allocated at %p", pointer);
            throw kernel_fault(text);
        }
    }

    void * variable(const launch & launch, const char * name) {
        const symbol * found = launch.code->variable(name);
        if (found == nullptr) {
            throw kernel_fault(std::string("no variable ") + name);
        }
        check(found->address, found->size);
        return found->address;
    }

    // One line per argument, and one for the launch.
    void describe(const launch & launch) {
        std::printf("launch %u %u %u, %u %u %u, %u, %d\n", launch.grid.x, launch.grid.y, launch.grid.z, launch.block.x,
                    launch.block.y, launch.block.z, launch.dynamic_lds, int(launch.is_cooperative));
        for (const argument & one : launch.kernel->arguments) {
            std::printf("%s %u ", one.kind.c_str(), one.size);
            for (uint32_t i = 0; i < one.size; ++i) {
                std::printf("%02x", unsigned(launch.kernarg.at(one.offset + i)));
            }
            std::printf("\n");
        }
    }

    // What the device library's hostcall does for one wave (hostcall_impl.cl): argument 0 points at words, argument 1
    // is how many calls of 1 + 8 words they make (the active lanes, then the words of a slot, the same for each).
    void talk(const launch & launch);

    configuration configuration_;
    memory_map & memory_;
    std::map<std::string, uint64_t> launches_;
};

struct header {
    uint64_t next, lanes;
    uint32_t service, control;
};

void stand_in::talk(const launch & launch) {
    uint64_t * buffer = nullptr;
    for (const argument & one : launch.kernel->arguments) {
        if (one.kind == "hidden_hostcall_buffer") {
            std::memcpy(&buffer, launch.kernarg.data() + one.offset, sizeof(buffer));
        }
    }
    check(buffer, 6 * sizeof(uint64_t));
    auto * headers = reinterpret_cast<header *>(buffer[0]);
    auto * slots   = reinterpret_cast<uint64_t (*)[64][8]>(buffer[1]);
    auto * words   = given<uint64_t *>(launch, 0);
    uint64_t message[64] = {};
    for (int call = 0; call < given<int>(launch, 1); ++call, words += 9) {
        const uint64_t mine = buffer[3], index = mine & buffer[5];
        check(&headers[index], sizeof(header));
        check(slots[index], sizeof(slots[index]));
        buffer[3] = headers[index].next;
        headers[index].lanes   = words[0];
        headers[index].service = 2;
        headers[index].control = 1;
        for (int lane = 0; lane < 64; ++lane) {
            std::memcpy(slots[index][lane], words + 1, 64);
            slots[index][lane][0] |= call == 0 ? 0 : message[lane]; // the descriptor that the host gave out
        }
        headers[index].next = buffer[4];
        buffer[4] = mine;
        memory_.serve_host_calls();
        if (headers[index].control != 0) {
            throw kernel_fault("nobody served the call");
        }
        for (int lane = 0; lane < 64; ++lane) {
            message[lane] = slots[index][lane][0] & ~uint64_t(0xff);
        }
        headers[index].next = buffer[3];
        buffer[3] = mine + buffer[5] + 1;
    }
}

} // namespace

extern "C" emulator * patchkit_make_emulator(const configuration & wanted, memory_map & memory) {
    if (wanted.disassembler == "none") {
        throw std::runtime_error("this disassembler cannot be used");
    }
    return new stand_in(wanted, memory);
}
