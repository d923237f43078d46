#include "emulation.hpp"

#include "../emulator/library.hpp"
#include "allocations.hpp"
#include "blas.hpp"
#include "calls.hpp"
#include "ending.hpp"
#include "findings.hpp"
#include "happens_before.hpp"
#include "host_calls.hpp"
#include "known_bits.hpp"
#include "loaded.hpp"
#include "recorder.hpp"
#include "repeats.hpp"
#include "schedule.hpp"
#include "settings.hpp"
#include "textures.hpp"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace patchkit {

namespace {

class kernel_memory : public gpu::memory_map {
  public:
    gpu::memory_range find(uintptr_t address) override {
        const allocation found = allocation_of(address);
        if (found.size == 0) {
            note_miss(address);
        } else if (finds_repeats()) {
            note_touched(found);
        }
        const bool is_host = found.type != hipMemoryTypeDevice;
        return {found.begin, found.begin + found.size, found.known, left_by_of(found.known, found.size), false, is_host,
                is_host || found.flags != 0, found.traced};
    }

    bool is_refused(uintptr_t address) override { return is_of_missing_part(address); }

    // A GPU maps whole pages of at least 4 KiB (Linux, amdgpu: AMDGPU_GPU_PAGE_SIZE): reads past the end of memory, as
    // in upstream's mul_mat_q for MoE, fault only from the next page on. Checks report the first byte.
    bool is_readable(uintptr_t address, uint32_t size) override {
        constexpr uintptr_t page = 4096;
        const uintptr_t start    = address / page * page;
        const allocation found   = allocation_of(start);
        return !is_checking() && found.size != 0 && found.whose == owner::program && address + size <= start + page;
    }

    const gpu::image * find_image(uint64_t number) override {
        if (finds_repeats()) {
            note_image();
        }
        return patchkit::find_image(number);
    }
    bool serve_host_calls() override { return patchkit::serve_host_calls(); }
    uintptr_t queue() override { return address_of_missing_queue(); }
    void found(const gpu::finding & what) override { note(what); }
    std::string describe(uintptr_t address, uint32_t size) override { return patchkit::describe(address, size); }

  private:
    static void note_miss(uintptr_t address);
    static bool is_of_missing_part(uintptr_t address);
};

// Used at the end of the process, so it is never destroyed.
struct emulation {
    gpu::load_code_object load;
    gpu::find_code_object find;
    kernel_memory memory;
    std::unique_ptr<gpu::emulator> emulator;
    gpu::make_emulator make;
    // A second one, which records launches for the timing model while the first computes all others.
    std::unique_ptr<gpu::emulator> recorder;
    std::string recorded_to;
};

// Folder of recordings that the program requested; empty: none.
std::string record_to;

template <typename T> T symbol_of(void * library, const char * name) {
    void * found = dlsym(library, name);
    if (found == nullptr) {
        misconfigured(std::string("the emulator's library lacks ") + name);
    }
    return reinterpret_cast<T>(found);
}

gpu::multiprocessors read_multiprocessors() {
    const device & dev = the_device();
    gpu::multiprocessors result;
    result.count          = uint32_t(dev.multiprocessors);
    result.simds          = uint32_t(dev.simds_per_multiprocessor);
    result.waves_per_simd = uint32_t(dev.max_waves_per_simd);
    result.vgprs_per_simd = uint32_t(dev.vgprs_per_simd);
    result.vgpr_granule   = uint32_t(dev.vgpr_granule);
    result.lds            = 2 * dev.lds_per_block; // of both CUs of a WGP; a block may use half of it
    return result;
}

gpu::configuration read_configuration() {
    gpu::configuration result;
    result.arch         = the_device().arch;
    const char * path   = setting("PATCHKIT_EMULATOR_DISASSEMBLER");
    result.disassembler = path == nullptr ? "" : path;
    result.threads      = unsigned(number_of_setting("PATCHKIT_EMULATOR_THREADS"));
    result.most_instructions = number_of_setting("PATCHKIT_EMULATOR_LIMIT");
    result.most_blocks       = number_of_setting("PATCHKIT_EMULATOR_BLOCKS");
    result.counts            = setting("PATCHKIT_EMULATOR_COUNT") != nullptr;
    result.shuffle_seed      = the_schedule().seed;
    result.looks_for         = read_checks();
    const char * record_to   = setting("PATCHKIT_EMULATOR_RECORD");
    result.record_to         = record_to == nullptr ? "" : record_to;
    result.sampled           = unsigned(number_of_setting("PATCHKIT_EMULATOR_SAMPLED"));
    result.seen              = unsigned(number_of_setting("PATCHKIT_EMULATOR_SEEN"));
    result.later             = unsigned(number_of_setting("PATCHKIT_EMULATOR_LATER"));
    result.on                = read_multiprocessors();
    return result;
}

emulation & the_emulation();

// The missing part of the GPU that was accessed by a thread running a kernel.
std::atomic<const char *> missed = nullptr;

// Comma-separated, for a JSON list.
template <typename List, typename Text> std::string joined(const List & list, Text text_of) {
    std::string result;
    for (const auto & one : list) {
        result += (result.empty() ? "\n" : ",\n") + text_of(one);
    }
    return "[" + result + "]";
}

std::string as_json(const gpu::instruction_count & one) {
    return "[" + quoted(one.text) + "," + std::to_string(one.executed) + "," +
           (one.has_tolerance ? "true" : "false") + "]";
}

// With a decimal point, independent of the program's locale.
std::string as_json(double number) {
    char text[400]; // more than the digits of the largest double
    const auto end = std::to_chars(std::begin(text), std::end(text), number, std::chars_format::fixed, 6).ptr;
    return {text, end};
}

std::string as_json(const gpu::kernel_count & one) {
    return "{\"name\":" + quoted(one.name) + ",\"launches\":" + std::to_string(one.launches) + ",\"waves\":" +
           std::to_string(one.waves) + ",\"repeats\":" + std::to_string(one.repeats) + ",\"instructions\":" + std::to_string(one.instructions) +
           ",\"left_out\":" + std::to_string(one.left_out) + ",\"seconds\":" + as_json(one.seconds) +
           ",\"by_instruction\":" +
           joined(one.by_instruction, [](const gpu::instruction_count & count) { return as_json(count); }) + "}";
}

// A forked process must not overwrite this process's report.
const pid_t own_process = getpid();

// The report of a run, except for memory leaks.
struct told_so_far {
    std::string before, behind; // parts of the report before and after the findings
    std::vector<gpu::finding> findings;
};

told_so_far tell(const std::string & fault, const gpu::kernel_fault * stopped) {
    gpu::emulator * all = loaded_emulator(); // null if no kernel was ever loaded
    auto findings = all == nullptr ? std::vector<gpu::finding>() : all->findings();
    const auto of_operations = findings_of_operations();
    findings.insert(findings.end(), of_operations.begin(), of_operations.end());
    const auto kernels = all == nullptr ? std::vector<gpu::kernel_count>() : all->counts();
    const bool nothing_ran =
        std::none_of(kernels.begin(), kernels.end(), [](const gpu::kernel_count & one) { return one.launches != 0; });
    const auto of_calls    = findings_of_calls(nothing_ran);
    findings.insert(findings.end(), of_calls.begin(), of_calls.end());
    return {"{\"arch\":" + quoted(the_device().arch) + ",\"schedule\":" + quoted(the_schedule().name) + ",\"kernels\":" +
                joined(kernels, [](const gpu::kernel_count & kernel) { return as_json(kernel); }) + ",\"on_cpu\":" +
                products_as_json() + ",\"refused\":" + refused_as_json() + ",\"findings\":",
            ",\"fault\":" + (fault.empty() ? "null" : quoted(fault)) + ",\"stopped\":" + stopped_as_json(stopped) + "}\n",
            std::move(findings)};
}

bool is_report_wanted() { return setting("PATCHKIT_EMULATOR_REPORT") != nullptr && getpid() == own_process; }

void write_report(const told_so_far & told) {
    const char * path = setting("PATCHKIT_EMULATOR_REPORT");
    FILE * file       = std::fopen(path, "w");
    if (file == nullptr) {
        std::fprintf(stderr, "patchkit emulator: cannot write the report %s\n", path);
        return;
    }
    std::fputs((told.before + findings_as_json(told.findings) + told.behind).c_str(), file);
    std::fclose(file);
    forget_notes();
}

// Written after the program's destructors have run, because they may free memory.
std::unique_ptr<told_so_far> & told_at_end() {
    static auto * kept = new std::unique_ptr<told_so_far>;
    return *kept;
}

// The destructors of this library run after those of everything that uses it.
[[gnu::destructor]] void end_of_destructors() {
    const auto told = std::move(told_at_end());
    if (told != nullptr && is_report_wanted()) {
        const auto leaks = findings_of_leaks();
        told->findings.insert(told->findings.end(), leaks.begin(), leaks.end());
        write_report(*told);
    }
}

// Completes pending work before the process ends.
void end_of_process() {
    if (!is_inherited()) {
        (void) wait_for_all();
    }
    if (!is_report_wanted()) {
        return;
    }
    told_so_far told = tell("", nullptr);
    if (looks_for_leaks()) {
        told_at_end() = std::make_unique<told_so_far>(std::move(told));
    } else {
        write_report(told);
    }
}

void at_fault(const std::string & what, const gpu::kernel_fault * stopped) {
    if (is_executing() && is_report_wanted()) {
        write_report(tell(what, stopped));
    }
}

[[gnu::constructor]] void begin() { set_endings({end_of_process, at_fault}); }

// Inaccessible addresses that represent missing parts of the GPU, so that an access can be reported. They are far from
// other memory, so that no array overrun reaches one.
struct missing_part {
    const char * what;
    size_t size = 1 << 26;
    uintptr_t begin;

    missing_part(const char * what, uintptr_t wanted) : what(what) {
        void * place = mmap(reinterpret_cast<void *>(wanted), size, PROT_NONE, // NOLINT(performance-no-int-to-ptr)
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        begin = place == MAP_FAILED ? 0 : uintptr_t(place);
    }
};

const missing_part & missing_queue() {
    static const missing_part part("the kernel reads the hardware queue, which is not emulated", 0x2b0000000000);
    return part;
}

bool kernel_memory::is_of_missing_part(uintptr_t address) {
    return address - missing_queue().begin < missing_queue().size;
}

void kernel_memory::note_miss(uintptr_t address) {
    if (is_of_missing_part(address)) {
        missed = missing_queue().what;
    }
}

emulation * make_emulation() {
    const char * path = setting("PATCHKIT_EMULATOR");
    void * library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        misconfigured(std::string("cannot load the emulator: ") + dlerror());
    }
    auto * made = new emulation;
    made->load = symbol_of<gpu::load_code_object>(library, "patchkit_load_code_object");
    made->find = symbol_of<gpu::find_code_object>(library, "patchkit_find_code_object");
    made->make = symbol_of<gpu::make_emulator>(library, "patchkit_make_emulator");
    try {
        made->emulator.reset(made->make(read_configuration(), made->memory));
    } catch (const std::exception & error) {
        misconfigured(std::string("cannot start the emulator: ") + error.what());
    }
    set_loaded(*made->emulator);
    begin_notes();
    return made;
}

emulation & the_emulation() {
    static emulation * made = make_emulation();
    return *made;
}

// The emulator that records to the requested folder. It makes no checks and does not appear in the report.
gpu::emulator & the_recorder() {
    emulation & all = the_emulation();
    if (all.recorded_to != record_to) {
        gpu::configuration wanted = read_configuration();
        wanted.looks_for          = {};
        wanted.most_blocks        = 0;
        wanted.record_to          = record_to;
        all.recorder.reset(all.make(wanted, all.memory));
        all.recorded_to = record_to;
    }
    return *all.recorder;
}

} // namespace

void run_kernel(const gpu::launch & launch) {
    try {
        if (!record_to.empty()) {
            the_recorder().run(launch);
            return;
        }
        gpu::emulator & emulator = *the_emulation().emulator;
        const auto run           = [&] { emulator.run(launch); };
        if (!finds_repeats()) {
            run();
        } else if (run_unless_known(launch, run)) {
            emulator.count_repeat(launch);
        }
    } catch (const std::exception & error) {
        const char * part = missed;
        fault(part == nullptr ? error.what() : std::string(part) + "\n" + error.what(),
              dynamic_cast<const gpu::kernel_fault *>(&error));
    }
}

uint64_t address_of_missing_queue() { return missing_queue().begin; }

std::unique_ptr<gpu::code_object> load_code_object(std::span<const std::byte> elf) {
    std::unique_ptr<gpu::code_object> loaded;
    the_emulation().load(elf, loaded);
    return loaded;
}

std::span<const std::byte> find_code_object(std::span<const std::byte> bundle, std::vector<std::byte> & storage,
                                            std::vector<std::string> & held) {
    std::span<const std::byte> found;
    the_emulation().find(bundle, the_device().arch, storage, held, found);
    return found;
}

} // namespace patchkit

// From here on, launches are recorded to this folder and run only in part; null: they run completely again. For
// programs that benchmark kernels, such as Triton's autotuner.
extern "C" void patchkit_record_launches(const char * folder) {
    (void) patchkit::wait_for_all();
    patchkit::record_to = folder == nullptr ? "" : folder;
}
