// Runs the blocks and waves of a launch on the CPU cores.
//
// A worker takes a block and runs its waves one after the other, each until it ends, waits at a barrier, or rests. If
// all waves of a block rest, the block waits for another one (a flag in memory, a grid-wide barrier): it is put aside,
// and the worker takes the next block.

#include "check.hpp"
#include "executor.hpp"
#include "hidden.hpp"
#include "recording.hpp"
#include "uninitialised.hpp"

#include <cxxabi.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <exception>
#include <functional>
#include <numeric>
#include <span>
#include <thread>
#include <tuple>

namespace patchkit::gpu {

namespace {

// Backward branches until other waves may run, so that a kernel that waits for another wave without s_sleep makes
// progress. A wave starts with few and gets more as it makes progress. A wave whose registers have not changed since it
// last rested is waiting: it gets the fewest, and more the longer this lasts, so that comparing its registers does not
// dominate the time.
constexpr u32 most_patience = 1u << 16, first_patience = 1u << 12, most_of_circling = 1u << 10, least_patience = 1u << 4;

// Rounds of a block whose waves are in long loops until another block may run.
constexpr u32 rests_until_others = 16;

// Blocks that gave way before, and have not ended, often wait for others by checking in a loop over all their remaining
// work (HeCBench's gc and mis). Each further turn gets a quarter of the rounds, then of the patience of its waves, down
// to 2^10.
u32 rounds_of(u32 turns) { return std::max(rests_until_others >> 2 * std::min(turns, 2u), 1u); }
u32 patience_of(u32 turns) { return most_patience >> 2 * (std::clamp(turns, 2u, 5u) - 2); }

// Stack per lane in bytes if a kernel's stack size is not known statically (indirect calls, recursion).
constexpr u32 dynamic_stack = 16384;

// A GPU rejects launches that need more.
constexpr u32 most_lds = 65536, most_scratch = 1u << 20;

// Uninitialised memory reads as NaN and as -1, so that results that depend on it do not look right by chance.
constexpr int never_written = 0xff;

struct machine;

} // namespace

struct block {
    dimensions index;
    std::vector<std::byte *> waves;
    u64 order = 0; // seed for the order of its waves; 0: by number
    u32 rests = 0;
    u32 turns = 0; // times that it gave way to other blocks
    std::byte * lds = nullptr;
    std::unique_ptr<std::byte, decltype(&std::free)> memory{nullptr, &std::free};
    block_checks checked;
    block_record recorded;

    wave & at(size_t n) const { return *reinterpret_cast<wave *>(waves[n]); }
};

namespace {

// The launch packet in the queue of a real GPU, for kernels that read their sizes from it (HSA platform system
// architecture 1.2, "Architected Queuing Language packet").
struct alignas(64) dispatch_packet {
    u16 header, setup;
    u16 block_x, block_y, block_z, reserved_0;
    u32 threads_x, threads_y, threads_z; // of the whole grid
    u32 scratch, lds;
    u64 kernel, arguments, reserved_2, signal;
};
static_assert(sizeof(dispatch_packet) == 64);

// State shared by all blocks of a launch.
struct job {
    const launch * wanted;
    library * code;
    const instruction * entry;
    const register_set * touched; // see program; null: any
    u64 blocks;     // that run
    u64 of_grid;    // in the grid
    u32 waves;      // per block
    u32 threads;    // per block
    u32 lds;        // bytes
    u32 scratch;    // bytes per lane
    u32 vgprs;
    // Scalar loads of arguments may be wider than needed and read past the last argument, within the alignment of the
    // segment.
    std::vector<std::byte> arguments;
    memory_range argument_range;
    dispatch_packet packet;
    // Initial scalar registers of every wave: computed once, because a launch may have millions of small blocks.
    std::array<u32, slot::count> scalar;
    int given;     // initialised user SGPRs
    int block_ids; // first SGPR of the block's indices
    struct alignas(128) wave_start {
        u32x ids;
        u32 active;
    };
    std::vector<wave_start> starts;
    u64 step;       // blocks are taken with this stride modulo their number: 1, or random for a shuffle
    u64 first;
    u64 order;      // order of waves: 0, or the seed from which those of the blocks are derived
    std::unique_ptr<launch_traces> traces; // null if not tracked
    std::unique_ptr<launch_record> record; // null if not recording
    std::atomic<u64> next{0};
    std::atomic<u64> executed{0};
    std::atomic<bool> failed{false};
    std::atomic<bool> has_left_out{false}; // an invalid access was skipped
    std::atomic<u64> ended{0};             // blocks
    // Times that blocks gave way to others, and the count at which to check next whether all wait forever, for which
    // the workers stop.
    std::atomic<u64> turns{0};
    u64 ask_at = 256;
    std::atomic<bool> is_halted{false};
    std::exception_ptr failure;
    std::mutex mutex;
    // Pairs of accesses hidden by equal values, each with the block that showed it; guarded by `mutex`.
    struct hidden_one {
        u64 block;
        replay::pair which;
        finding what;
    };
    std::vector<hidden_one> hidden;
};

size_t rounded(size_t size, size_t to) { return (size + to - 1) / to * to; }

// Blocks of a launch that one multiprocessor holds at once, limited by registers and LDS.
u64 held_by_one(const multiprocessors & of, u32 vgprs, u32 lds, u32 waves) {
    const u64 registers = rounded(std::max(vgprs, 1u), of.vgpr_granule);
    const u64 by_waves = of.simds * std::min<u64>(of.waves_per_simd, of.vgprs_per_simd / registers) / waves;
    return std::max<u64>(1, lds == 0 ? by_waves : std::min<u64>(by_waves, of.lds / lds));
}

// xorshift64*; the state must not be 0.
u64 draw(u64 & state) {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545f4914f6cdd1d;
}

// Bits of COMPUTE_PGM_RSRC2 and kernel_code_properties: LLVM's AMDGPU user guide, "Kernel Descriptor" and "Initial
// Kernel Execution State".
namespace enables {
constexpr u32 block_x = 1u << 7, block_y = 1u << 8, block_z = 1u << 9, block_info = 1u << 10; // rsrc2
constexpr u32 private_buffer = 1u << 0, dispatch = 1u << 1, queue = 1u << 2, arguments = 1u << 3, dispatch_id = 1u << 4,
              flat_scratch = 1u << 5, private_size = 1u << 6; // properties
} // namespace enables

constexpr u32 most_user_sgprs = 16;

// Trap registers that the GPU initialises for a kernel, as a bit mask: ttmp9 is the block's x, ttmp7 its y and z, ttmp8
// contains the wave's number in its block (LLVM, llvm.amdgcn.workgroup.id.* and llvm.amdgcn.wave.id; ROCdbgapi,
// gfx12_architecture_t).
u32 ttmps_of(const kernel_code & kernel, const architecture & arch) {
    if (!arch.has_numbers_in_ttmps) {
        return 0;
    }
    const bool has_yz = (kernel.rsrc2 & (enables::block_y | enables::block_z)) != 0;
    return 1u << 8 | u32((kernel.rsrc2 & enables::block_x) != 0) << 9 | u32(has_yz) << 7;
}

// Initial state shared by all blocks of a launch: the scalar registers except for block indices, and per wave its
// active threads. Thread ids are in VGPR 0 as x | y << 10 | z << 20 as far as the kernel requests them, otherwise 0.
void begin_waves(job & on, const architecture & arch, u64 queue, u64 dispatch) {
    u32 * scalar = on.scalar.data();
    std::memset(scalar, never_written, sizeof(on.scalar));
    scalar[slot::null] = scalar[slot::null + 1] = 0;
    scalar[slot::exec + 1] = 0;
    scalar[slot::shared_base] = scalar[slot::private_base] = 0;
    scalar[slot::shared_base + 1] = u32(shared_aperture >> 32);
    scalar[slot::private_base + 1] = u32(private_aperture >> 32);

    // User SGPRs, followed by those of the block.
    int next = 0;
    const kernel_code & kernel = *on.wanted->kernel;
    const auto give = [&](u32 bit, const auto & value) {
        if ((kernel.properties & bit) != 0) {
            std::memcpy(&scalar[next], &value, sizeof(value));
            next += sizeof(value) / sizeof(u32);
        }
    };
    give(enables::dispatch, u64(&on.packet));
    give(enables::queue, queue);
    give(enables::arguments, u64(on.argument_range.begin));
    give(enables::dispatch_id, dispatch);
    give(enables::private_size, on.scratch);
    on.given = next;
    on.block_ids = std::max(next, int((kernel.rsrc2 >> 1) & 31));
    // Bits 0 to 24 are the packet's number in its queue, bit 30 indicates that ttmp7 is set, bit 31 is for debuggers.
    scalar[slot::ttmp + 8] = (u32(dispatch) & 0x1ffffff) | (ttmps_of(kernel, arch) >> 7 & 1) << 30;

    const dimensions & size = on.wanted->block;
    const u32 wanted_ids = kernel.rsrc2 >> 11 & 3;
    on.starts.resize(on.waves);
    for (u32 thread = 0; thread < on.threads; ++thread) {
        job::wave_start & start = on.starts[thread / lanes];
        start.active |= 1u << thread % lanes;
        start.ids[thread % lanes] = thread % size.x | (wanted_ids > 0 ? thread / size.x % size.y << 10 : 0) |
                                    (wanted_ids > 1 ? thread / size.x / size.y << 20 : 0);
    }
}

// The name as in the source, without return type and parameters.
std::string shown_name(const std::string & mangled) {
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> made(abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status),
                                                           &std::free);
    if (status != 0 || made == nullptr) {
        return mangled;
    }
    std::string name = made.get();
    int depth = 0;
    for (size_t n = name.size(); n-- > 0 && name.back() == ')';) {
        depth += name[n] == ')' ? 1 : name[n] == '(' ? -1 : 0;
        if (depth == 0) {
            name.resize(n);
            break;
        }
    }
    return name.starts_with("void ") ? name.substr(5) : name;
}

// Current instruction of a wave that is not running; at a barrier or s_sleep, `next` is already past it.
const instruction * place_of(const wave & w) {
    return w.next - int(w.state == standing::at_barrier || w.state == standing::sleeping);
}

// State of a wave in words, by its standing.
constexpr const char * doing[] = {"runs", "waits at a barrier", "runs", "sleeps", "spins", "has ended"};

} // namespace

class worker final : public executor {
  public:
    worker(machine & owner, const architecture & arch, bool counts)
        : wgps{wgp_caches(arch), wgp_caches(arch)}, owner(owner), counts(counts) {}

    void fault(const instruction * at, const wave & w, const std::string & what) override;
    void rest(const instruction * next, wave & w, standing how) override;
    const std::byte * address_behind(const instruction * i) override;
    const instruction * instruction_at(const instruction * i, wave & w, u64 address) override;
    void serve_host_calls(wave & w) override;
    const image * image_at(u64 number) override;
    bool look_for_range(const instruction * i, wave & w, u64 address, u32 size) override;
    void find_range(const instruction * i, wave & w, u64 address, u32 size, int lane, bool reads) override;

    void report(const instruction * i, wave & w, const char * kind, const std::string & what, const u32 * other) override;
    void report_note(const instruction * i, wave & w, const char * kind, const std::string & what) override;
    void report_touch(const instruction * i, wave & w, const char * kind, const std::string & what, u64 other) override;
    std::string describe_touch(u64 other, u32 block) override;
    void note_hidden(const instruction * i, wave & w, const std::string & what, u32 other) override;
    u32 hold_back(const instruction * i, wave & w, const char * kind, const std::string & what, const u32 * other) override;
    void note_left_out() override { current->has_left_out = true; }
    bool is_refused(u64 address) override;
    bool is_of_code(u64 address) override;
    std::string describe(u64 address, u32 size) override;
    const dimensions & block_index(const wave & w) override { return w.owner->index; }
    wave & spare_wave() override;

    void work(job & on);

    // A launch begins with empty caches.
    void clear_caches() {
        for (wgp_caches & one : wgps) {
            one.clear();
        }
    }

    // Reruns a block after its launch, with other values. Returns false if it did not finish.
    bool run_again(job & on, u64 index, replay & again);

    // Runs one block whose waves start with these registers, and stores their final ones.
    void run_one(job & on, std::span<wave_registers> waves);

    // Whether a block that gave way to others repeats the same state forever: see machine::ask.
    bool spins(block & b, std::vector<watch> & seen);

    // Discards waiting blocks after the job ended or failed.
    void drop_waiting(job & on);

    std::array<wgp_caches, 2> wgps; // its blocks are on each in turn
    u32 started = 0;                // blocks on them
    std::deque<std::unique_ptr<block>> waiting; // blocks of the current job that gave way to others

    machine & owner;
    const bool counts;
    job * current = nullptr;
    // Indexed by the instruction's address; instructions that share an entry would have to search each time.
    std::vector<memory_range> ranges{remembered_ranges};
    std::vector<size_t> remembered; // indices of valid entries
    std::unique_ptr<std::byte, decltype(&std::free)> spare{nullptr, &std::free};
    std::optional<register_set> unknown; // at the start of each wave of the current job
    std::map<library *, std::vector<i64>> marks;

    // Null if instructions are not counted.
    i64 * marks_of(library & code) {
        if (!counts) {
            return nullptr;
        }
        std::vector<i64> & found = marks[&code];
        if (found.size() < code.numbers() + 2) {
            found.resize(rounded(code.numbers() + 2, 4096));
        }
        return found.data();
    }

  private:
    std::vector<std::unique_ptr<block>> idle;

    std::unique_ptr<block> start(job & on, u64 number);
    std::unique_ptr<block> start_at(job & on, u64 index, u64 number);
    struct standings {
        u32 running = 0, sleeping = 0, at_barrier = 0; // waves
        bool can_go_on() const { return running + sleeping != 0; }
    };
    standings run_round(block & b);
    void forget_ranges();
    bool pass_barrier(block & b, const standings & now); // releases waves that cannot continue otherwise; false if all have ended
    bool advance(block & b); // whether it has ended
    void set_up(const job & on, const block & b, wave & w, u32 number);
};

namespace {

worker & worker_of(const wave & w) { return static_cast<worker &>(*w.on); }

// Threads that work on each job together with the thread that submits it.
class pool {
  public:
    explicit pool(std::span<const std::unique_ptr<worker>> workers) : count(unsigned(workers.size())) {
        for (const auto & one : workers) {
            threads.emplace_back([this, self = one.get()] { wait_for_jobs(*self); });
        }
    }

    ~pool() {
        {
            const std::lock_guard<std::mutex> guard(mutex);
            is_over = true;
        }
        wake.notify_all();
        for (std::thread & one : threads) {
            one.join();
        }
    }

    bool is_of_this_process() const { return process == getpid(); }

    void perform(job & on, worker & self) {
        {
            const std::lock_guard<std::mutex> guard(mutex);
            offered = &on;
            offer += 1;
            busy = count;
        }
        wake.notify_all();
        self.work(on);
        std::unique_lock<std::mutex> guard(mutex);
        done.wait(guard, [&] { return busy == 0; });
        offered = nullptr;
    }

  private:
    const pid_t process = getpid();
    const unsigned count;
    std::vector<std::thread> threads;
    std::mutex mutex;
    std::condition_variable wake, done;
    job * offered = nullptr;
    u64 offer = 0;
    unsigned busy = 0;
    bool is_over = false;

    void wait_for_jobs(worker & self) {
        u64 seen = 0;
        for (;;) {
            job * taken;
            {
                std::unique_lock<std::mutex> guard(mutex);
                wake.wait(guard, [&] { return is_over || offer != seen; });
                if (is_over) {
                    return;
                }
                seen = offer;
                taken = offered;
            }
            self.work(*taken);
            {
                const std::lock_guard<std::mutex> guard(mutex);
                busy -= 1;
            }
            done.notify_one();
        }
    }
};

struct machine final : emulator {
    ~machine() override {
        if (helpers != nullptr && !helpers->is_of_this_process()) {
            (void) helpers.release();
        }
    }

    machine(const configuration & wanted, memory_map & memory)
        : settings(wanted), memory(memory), reader(wanted.disassembler, wanted.arch), arch(architecture_of(wanted.arch)) {
        if (!settings.record_to.empty()) {
            looks = std::make_unique<recorder>();
        } else if (settings.looks_for.any()) {
            looks = std::make_unique<checker>(settings.looks_for);
        }
        const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
        const unsigned count = settings.threads == 0 ? cores : settings.threads;
        for (unsigned n = 0; n < count; ++n) {
            workers.push_back(std::make_unique<worker>(*this, arch, settings.counts));
        }
    }

    void run(const launch & wanted) override {
        const std::lock_guard<std::mutex> one_at_a_time(running);
        const kernel_code & kernel = *wanted.kernel;
        kernel_count & count = totals[kernel.name];
        count.name = kernel.name;
        count.launches += 1;
        check(wanted);
        if (kernel.entry == nullptr) {
            throw kernel_fault("kernel " + shown_name(kernel.name) +
                               " has no code: the compiler dropped its body, as it may if all paths through it are "
                               "undefined (an endless loop without effect, a division by zero); a GPU would run "
                               "whatever follows it");
        }
        library & code = library_of(*wanted.code, kernel);
        const auto * place = wanted.code->function_at(kernel.entry);
        if (place == nullptr) {
            throw kernel_fault("kernel " + shown_name(kernel.name) + ": its entry is not in a function of the code object");
        }
        const library::extent where{place->first, place->second.address, place->second.address + place->second.size};
        const program & entry = code.at(kernel.entry, mode_of(kernel), where);
        job on{};
        on.wanted = &wanted;
        on.code = &code;
        on.entry = entry.steps;
        on.touched = entry.touched.get();
        on.blocks = u64(wanted.grid.x) * wanted.grid.y * wanted.grid.z;
        on.threads = wanted.block.x * wanted.block.y * wanted.block.z;
        on.waves = (on.threads + lanes - 1) / lanes;
        on.lds = kernel.lds + wanted.dynamic_lds;
        on.scratch = u32(rounded(kernel.scratch + (kernel.has_dynamic_stack ? dynamic_stack : 0), 4));
        on.vgprs = kernel.vgprs;
        constexpr size_t segment = 64;
        on.arguments.assign(rounded(wanted.kernarg.size(), segment) + segment, std::byte(never_written));
        const uintptr_t start = rounded(uintptr_t(on.arguments.data()), segment);
        std::memcpy(reinterpret_cast<void *>(start), wanted.kernarg.data(), wanted.kernarg.size());
        on.argument_range = {start, start + rounded(wanted.kernarg.size(), segment)};
        const dimensions &grid = wanted.grid, &block = wanted.block;
        on.packet.setup = 3; // dimensions, as HIP sets them
        on.packet.block_x = u16(block.x);
        on.packet.block_y = u16(block.y);
        on.packet.block_z = u16(block.z);
        on.packet.threads_x = grid.x * block.x;
        on.packet.threads_y = grid.y * block.y;
        on.packet.threads_z = grid.z * block.z;
        on.packet.scratch = on.scratch;
        on.packet.lds = on.lds;
        on.packet.arguments = start;
        on.of_grid = on.blocks;
        if (settings.most_blocks != 0 && settings.record_to.empty() && !wanted.is_cooperative) {
            on.blocks = std::min(on.blocks, settings.most_blocks);
        }
        begin_waves(on, arch, memory.queue(), launches);
        shuffle(on);
        if (!settings.record_to.empty()) {
            const u64 held = held_by_one(settings.on, kernel.vgprs, on.lds, on.waves);
            on.record = std::make_unique<launch_record>(sample{settings.sampled, settings.seen, settings.later, settings.on.count, held}, on.blocks);
            on.blocks = on.record->count();
        }
        if (wanted.order != nullptr && settings.looks_for.traces()) {
            on.traces = std::make_unique<launch_traces>(*wanted.order, on.of_grid);
            if (!traced.empty() && traced.back().first >= wanted.order->first) {
                traced.clear(); // all traces were discarded
            }
            traced.push_back({wanted.order->first, &code, wanted.code, kernel.name, wanted.called_from});
        }
        {
            const std::lock_guard<std::mutex> guard(of_findings); // the host may copy, and so reveal, at the same time
            found_before = found.size();
            held_before = held.size();
        }
        for (const auto & one : workers) {
            one->clear_caches();
        }
        const auto began = std::chrono::steady_clock::now();
        perform(on);
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
        // Also for a failed launch: the blocks that were started.
        count.waves += std::min<u64>(on.next, on.blocks) * on.waves;
        count.instructions += on.executed;
        count.left_out += on.record == nullptr ? on.of_grid - on.blocks : 0;
        count.seconds += took.count();
        if (on.failure) {
            std::rethrow_exception(on.failure);
        }
        if (!on.hidden.empty()) {
            decide_hidden(on);
        }
        if (on.record != nullptr) {
            on.record->write(settings.record_to + "/" + std::to_string(launches) + ".trace", wanted, on.lds, on.scratch, code);
        }
    }

    void count_repeat(const launch & wanted) override {
        const std::lock_guard<std::mutex> one_at_a_time(running);
        kernel_count & count = totals[wanted.kernel->name];
        count.launches += 1;
        count.repeats += 1;
    }

    void run_alone(std::span<const std::byte> code, std::span<wave_registers> waves, u32 lds, u32 scratch,
                   u32 mode) override;

    std::vector<kernel_count> counts() override {
        const std::lock_guard<std::mutex> one_at_a_time(running);
        std::vector<kernel_count> result;
        for (const auto & [name, count] : totals) {
            result.push_back(count);
        }
        if (!settings.counts) {
            return result;
        }
        std::map<std::string, size_t> places;
        for (size_t n = 0; n < result.size(); ++n) {
            places[result[n].name] = n;
        }
        for (const auto & [key, code] : libraries) {
            std::vector<i64> marks(code->numbers() + 2);
            for (const auto & one : workers) {
                const auto found = one->marks.find(code.get());
                if (found != one->marks.end()) {
                    const size_t size = std::min(marks.size(), found->second.size());
                    std::transform(marks.begin(), marks.begin() + i64(size), found->second.begin(), marks.begin(),
                                   std::plus<>());
                }
            }
            code->each([&](const program & p) {
                if (!places.contains(p.name)) { // a function that kernels called
                    places[p.name] = result.size();
                    result.push_back({p.name, 0, 0, 0, 0, 0, 0.0, {}});
                }
                count_instructions(*code, p, marks, result[places[p.name]]);
            });
        }
        return result;
    }

    configuration settings;
    memory_map & memory;
    disassembler reader;
    const architecture & arch;
    std::unique_ptr<observer> looks; // null: no checks
    std::mutex running; // serialises launches

    library & library_of(code_object & code, const kernel_code & kernel) {
        // Kernels of one code object may differ in float mode and registers.
        const float_mode mode = mode_of(kernel);
        const u32 ttmps = ttmps_of(kernel, arch);
        const key_of_library key{&code, kernel.vgprs, ttmps, mode.flushes_f32, mode.is_ieee};
        std::unique_ptr<library> & made = libraries[key];
        if (made == nullptr) {
            made = std::make_unique<library>(reader, kernel.vgprs, arch, looks.get(), ttmps);
        }
        return *made;
    }

    float_mode mode_of(const kernel_code & kernel) const {
        // COMPUTE_PGM_RSRC1 (LLVM's AMDGPU user guide): rounding in bits 12 to 15, denormals in 16 to 19, clamping of
        // NaN in 21 and IEEE mode in 23, if the GPU has it.
        const u32 r = kernel.rsrc1;
        const u32 rounding = (r >> 12) & 15, subnormals_32 = (r >> 16) & 3, subnormals_64 = (r >> 18) & 3;
        const auto refuse = [&](const char * what) {
            throw kernel_fault("kernel " + shown_name(kernel.name) + ": " + what);
        };
        if (rounding != 0) {
            refuse("it requires a rounding mode other than to nearest, which is not emulated");
        }
        if ((subnormals_32 != 0 && subnormals_32 != 3) || subnormals_64 != 3) {
            refuse("it requires a denormal mode that is not emulated");
        }
        if (arch.has_ieee_mode && ((r >> 21) & 1) == 0) {
            refuse("it requires clamp to keep NaN (DX10_CLAMP off), which is not emulated");
        }
        return {subnormals_32 == 0, arch.has_ieee_mode && ((r >> 23) & 1) != 0};
    }

    std::vector<finding> findings() override {
        const std::lock_guard<std::mutex> guard(of_findings);
        return found;
    }

    void add_finding(const instruction * i, const wave & w, const char * kind, const std::string & what,
                     const u32 * other, bool is_note = false) {
        const std::lock_guard<std::mutex> guard(of_findings);
        // Notes at the same place are distinguished by their first word.
        const std::string told = is_note ? kind + (" note " + what.substr(0, what.find(' '))) : kind;
        const auto [place, is_new] = places_of_findings.emplace(key_of(i, w, told, other), found.size());
        if (!is_new) {
            find_again(found[place->second], place->second >= found_before, w, what);
            return;
        }
        finding made = made_finding(i, w, kind, what, other);
        made.is_note = is_note;
        add(std::move(made));
    }

    void add_hidden(const instruction * i, const wave & w, const std::string & what, u32 other) {
        job & on = *worker_of(w).current;
        const dimensions &grid = on.wanted->grid, &b = w.owner->index;
        {
            const std::lock_guard<std::mutex> guard(of_findings);
            const auto [place, is_new] = places_of_hidden.emplace(key_of(i, w, kinds::hidden, &other), 0);
            if (!is_new || places_of_hidden.size() > most_hidden) {
                return;
            }
        }
        finding made = made_finding(i, w, kinds::hidden, what, &other);
        const std::lock_guard<std::mutex> guard(on.mutex);
        on.hidden.push_back({b.x + u64(grid.x) * (b.y + u64(grid.y) * b.z), {i->number, other}, std::move(made)});
    }

    // Each block that showed a pair is rerun twice, with different values.
    void decide_hidden(job & on) {
        std::map<u64, std::vector<job::hidden_one *>> by_block;
        for (job::hidden_one & one : on.hidden) {
            by_block[one.block].push_back(&one);
        }
        for (auto & [index, pairs] : by_block) {
            std::map<replay::pair, bool> came;
            for (u32 variant = 0; variant < 2; ++variant) {
                replay again(variant);
                (void) workers[0]->run_again(on, index, again);
                for (const auto & [which, changes] : again.came) {
                    came[which] |= changes;
                }
            }
            for (job::hidden_one * one : pairs) {
                const auto found_again = came.find(one->which);
                if (found_again != came.end() && !found_again->second) {
                    continue; // harmless with other values, too
                }
                one->what.is_note = found_again == came.end();
                one->what.what += one->what.is_note
                                      ? "; the current values hide it, and with others the block did not get here again"
                                      : "; it changes nothing here, but did with other values in memory";
                const std::lock_guard<std::mutex> guard(of_findings);
                add(std::move(one->what));
            }
        }
    }

    u32 hold_back(const instruction * i, const wave & w, const char * kind, const std::string & what,
                  const u32 * other) {
        const std::lock_guard<std::mutex> guard(of_findings);
        const auto [place, is_new] = places_of_held.emplace(key_of(i, w, kind, other), held.size());
        if (is_new) {
            held.push_back({made_finding(i, w, kind, what, other), false, 0});
        } else {
            find_again(held[place->second].what, place->second >= held_before, w, what);
        }
        return u32(place->second + 1);
    }

    void reveal(u32 number, const std::string & where) override {
        const std::lock_guard<std::mutex> guard(of_findings);
        if (number == 0 || number > held.size()) {
            return;
        }
        held_finding & one = held[number - 1];
        if (!one.is_revealed) {
            one.is_revealed = true;
            one.place = found.size();
            finding made = one.what;
            made.what += where;
            add(std::move(made));
        }
        found[one.place].times = one.what.times;
    }

    // Includes earlier launches.
    bool find_tracing(u64 t, tracing & result) override {
        const traced_launch * of = launch_of(t);
        const program * p = of == nullptr ? nullptr : of->code->program_with(touch::instruction(t));
        if (p == nullptr) {
            return false;
        }
        const u32 number = touch::instruction(t);
        result.place = {of->object, p->name, p->offsets[number - p->first_number], of->code->text(*p, number)};
        result.kernel = of->kernel;
        result.called_from = of->called_from;
        return true;
    }

    void add_conflict(const instruction * i, const wave & w, const char * kind, const std::string & what, u64 other) {
        const job & on = *worker_of(w).current;
        const traced_launch * of = launch_of(other);
        // Other operations are distinguished by their kind, not by when they ran.
        const bool is_own = other >= touch::made(on.wanted->order->first, 0);
        const std::string by = is_own ? kind : kind + (of == nullptr ? what.substr(what.find("which ")) : of->kernel);
        const key_of_finding key{on.code, by, i->number, of == nullptr ? ~0u : touch::instruction(other)};
        const std::lock_guard<std::mutex> guard(of_findings);
        const auto [place, is_new] = places_of_findings.emplace(key, found.size());
        if (!is_new) {
            find_again(found[place->second], place->second >= found_before, w, what);
            return;
        }
        finding made = made_finding(i, w, kind, what, nullptr);
        tracing left;
        if (find_tracing(other, left)) {
            made.other = left.place;
            made.other_called_from = is_own ? std::vector<void *>() : left.called_from;
        } else {
            const other_work work = on.wanted->order->work_of(touch::who(other));
            made.other.text = work.words;
            made.other_called_from = work.called_from;
        }
        add(std::move(made));
    }

    std::string words_of(const job & on, u64 t, u32 block) const {
        const launch & wanted = *on.wanted;
        if (t >= touch::made(wanted.order->first, 0)) {
            const dimensions & grid = wanted.grid;
            return "block (" + std::to_string(block % grid.x) + ", " + std::to_string(block / grid.x % grid.y) + ", " +
                   std::to_string(block / grid.x / grid.y) + ")";
        }
        const traced_launch * of = launch_of(t);
        return of == nullptr ? wanted.order->work_of(touch::who(t)).words : "kernel " + of->kernel;
    }

    static code_place place_of_number(const job & on, u32 number) {
        const program * p = on.code->program_with(number);
        if (p == nullptr) {
            return {};
        }
        return {on.wanted->code, p->name, p->offsets[number - p->first_number], on.code->text(*p, number)};
    }

    u64 workers_of(const job & on) const { return on.blocks > 1 ? workers.size() : 1; }

    // Describes the kernel and block of a wave.
    static std::string heading(const wave & w) {
        const dimensions & b = w.owner->index;
        return "kernel " + shown_name(worker_of(w).current->wanted->kernel->name) + ", block (" + std::to_string(b.x) + ", " +
               std::to_string(b.y) + ", " + std::to_string(b.z) + ")";
    }

    std::string position(const instruction * i, const wave & w) {
        library & code = *worker_of(w).current->code;
        const program * p = code.program_of(i);
        if (p == nullptr) {
            return "at an unknown instruction";
        }
        const u32 n = i->number - p->first_number;
        return "in " + shown_name(p->name) + " at byte " + std::to_string(n < p->offsets.size() ? p->offsets[n] : 0) +
               ", " + code.text(*p, i->number);
    }

  private:
    using key_of_library = std::tuple<code_object *, u32, u32, bool, bool>;
    std::map<key_of_library, std::unique_ptr<library>> libraries;
    std::map<std::string, kernel_count> totals;
    std::vector<std::unique_ptr<worker>> workers;
    std::unique_ptr<pool> helpers; // in addition to the workers, which use them
    u64 launches = 0;

    // Code object, kind, and the numbers of both instructions.
    using key_of_finding = std::tuple<library *, std::string, u32, u32>;
    struct held_finding {
        finding what;
        bool is_revealed;
        size_t place; // index in the list of findings
    };
    std::mutex of_findings; // guards what follows
    std::vector<finding> found;
    std::map<key_of_finding, size_t> places_of_findings;
    std::vector<held_finding> held;
    std::map<key_of_finding, size_t> places_of_held;
    std::map<key_of_finding, size_t> places_of_hidden; // already examined
    static constexpr size_t most_hidden = 512;
    size_t found_before = 0, held_before = 0; // at the start of this launch

    // Blocks run in parallel, so which one first finds a fault of its own differs from run to run (this failed the CI
    // of 2026-11-25), but the lowest block index does not. In a race of two blocks, the later one finds it.
    static void find_again(finding & known, bool is_of_launch, const wave & w, const std::string & what) {
        known.times += 1;
        const dimensions &now = w.owner->index, &then = known.block;
        if (is_of_launch && std::tie(now.z, now.y, now.x, w.number) < std::tie(then.z, then.y, then.x, known.wave)) {
            known.what = what;
            known.block = now;
            known.wave = w.number;
        }
    }

    static key_of_finding key_of(const instruction * i, const wave & w, const std::string & kind, const u32 * other) {
        return {worker_of(w).current->code, kind, i->number, other == nullptr ? ~0u : *other};
    }

    static finding made_finding(const instruction * i, const wave & w, const char * kind, const std::string & what,
                                const u32 * other) {
        const job & on = *worker_of(w).current;
        finding made{kind, what, on.wanted->kernel->name, place_of_number(on, i->number), {}, w.owner->index, w.number, 1,
                     on.wanted->called_from, {}, false};
        if (other != nullptr) {
            made.other = place_of_number(on, *other);
        }
        return made;
    }

    void add(finding made) {
        memory.found(made);
        found.push_back(std::move(made));
    }

    // Launches that left traces, by their first number.
    struct traced_launch {
        u32 first;
        library * code;
        const code_object * object;
        std::string kernel;
        std::vector<void *> called_from;
    };
    std::vector<traced_launch> traced;

    // Null if it was not a launch.
    const traced_launch * launch_of(u64 t) const {
        const auto behind = std::upper_bound(traced.begin(), traced.end(), touch::who(t),
                                             [](u32 who, const traced_launch & one) { return who < one.first; });
        const bool is_one = behind != traced.begin() && (t & touch::instruction_mask) != touch::instruction_mask;
        return is_one ? &*std::prev(behind) : nullptr;
    }

    void check(const launch & wanted) const {
        const kernel_code & kernel = *wanted.kernel;
        const auto refuse = [&](const std::string & what) {
            throw kernel_fault("kernel " + shown_name(kernel.name) + ": " + what);
        };
        if (wanted.code->arch() != settings.arch) {
            refuse("it is code for " + wanted.code->arch() + ", but the emulated GPU is " + settings.arch);
        }
        if (kernel.wave_size != lanes) {
            refuse("it runs in waves of " + std::to_string(kernel.wave_size) + " lanes, but only 32 are emulated");
        }
        const u64 threads = u64(wanted.block.x) * wanted.block.y * wanted.block.z;
        if (threads == 0 || threads > 1024) {
            refuse("a block of " + std::to_string(threads) + " threads");
        }
        if (u64(kernel.lds) + wanted.dynamic_lds > most_lds) {
            refuse("a block requires " + std::to_string(u64(kernel.lds) + wanted.dynamic_lds) + " bytes of LDS, but there are " +
                   std::to_string(most_lds));
        }
        if (kernel.scratch > most_scratch) {
            refuse("a lane requires " + std::to_string(kernel.scratch) + " bytes of scratch");
        }
        if (wanted.kernarg.size() < kernel.kernarg_size) {
            refuse("its arguments are shorter than declared");
        }
        if (kernel.kernarg_preload != 0) {
            refuse("its arguments are to be preloaded into SGPRs, which no emulated GPU does");
        }
        if ((kernel.properties & (enables::private_buffer | enables::flat_scratch)) != 0) {
            refuse("it requires its scratch address in SGPRs, which no emulated GPU sets");
        }
        if (arch.has_numbers_in_ttmps && (kernel.rsrc2 & enables::block_info) != 0) {
            refuse("it requires information on its block in an SGPR (TG_SIZE), which RDNA4 does not set");
        }
        if ((kernel.rsrc2 >> 11 & 3) == 3) {
            refuse("its descriptor has an invalid setting for thread ids");
        }
        if (wanted.grid.y > arch.most_blocks_yz || wanted.grid.z > arch.most_blocks_yz) {
            refuse("a grid of " + std::to_string(wanted.grid.y) + " by " + std::to_string(wanted.grid.z) +
                   " blocks in y and z: RDNA4 has 16 bits for each of these numbers");
        }
        const u64 user = 2 * std::popcount(kernel.properties & 0x1eu) + (kernel.properties >> 6 & 1);
        if (std::max<u64>(user, kernel.rsrc2 >> 1 & 31) > most_user_sgprs) {
            refuse("it requires more than " + std::to_string(most_user_sgprs) + " user SGPRs, which is the maximum");
        }
    }

    void shuffle(job & on) {
        on.step = 1;
        on.first = 0;
        on.order = 0;
        ++launches;
        if (settings.shuffle_seed == 0) {
            return;
        }
        u64 state = settings.shuffle_seed * 0x9e3779b97f4a7c15 + launches * 0xbf58476d1ce4e5b9;
        on.order = draw(state);
        if (on.blocks < 2) {
            return;
        }
        // A stride coprime to the number of blocks visits every block once.
        on.first = draw(state) % on.blocks;
        do {
            on.step = draw(state) % on.blocks;
        } while (on.step == 0 || std::gcd(on.step, on.blocks) != 1);
    }

    void perform(job & on) {
        for (;;) {
            if (workers_of(on) > 1) {
                helpers_of_process().perform(on, *workers[0]);
            } else {
                workers[0]->work(on);
            }
            if (!on.is_halted || on.failed) {
                break;
            }
            on.is_halted = false;
            try {
                ask(on);
            } catch (...) {
                on.failure = std::current_exception();
                on.failed = true;
                break;
            }
            on.ask_at = 2 * on.turns;
        }
        for (const auto & one : workers) {
            one->drop_waiting(on);
        }
    }

    // Checks whether the running blocks can make progress at all. Called while no wave runs, and all blocks that can
    // start have started. Only one operation runs at a time, so only these waves and host code change memory. If every
    // wave repeats the same state, and none changes memory, reads a clock, or reads memory that host code may write
    // during a kernel (host and managed memory), then none will ever make progress, in any order. Otherwise they may.
    //
    // Throws kernel_fault if they cannot.
    void ask(job & on) {
        struct seen_block {
            block * of;
            std::vector<watch> waves;
        };
        std::vector<std::pair<worker *, block *>> all;
        for (const auto & one : workers) {
            one->current = &on;
            for (const auto & b : one->waiting) {
                all.emplace_back(one.get(), b.get());
            }
        }
        // First the blocks with a wave that was not spinning, because these most likely make progress.
        const auto may_go_on = [](const block & b) {
            return std::any_of(b.waves.begin(), b.waves.end(), [](std::byte * w) {
                return reinterpret_cast<const wave *>(w)->state == standing::resting;
            });
        };
        std::partition(all.begin(), all.end(), [&](const auto & one) { return may_go_on(*one.second); });
        std::optional<seen_block> first;
        bool is_for_host = false;
        for (const auto & [by, b] : all) {
            std::vector<watch> seen(b->waves.size());
            if (!by->spins(*b, seen)) {
                return;
            }
            is_for_host |= std::any_of(seen.begin(), seen.end(), [](const watch & one) { return one.is_for_host; });
            const auto order = [](const dimensions & d) { return std::tie(d.z, d.y, d.x); };
            if (!first || order(b->index) < order(first->of->index)) {
                first = seen_block{b, std::move(seen)};
            }
        }
        if (first && !is_for_host) {
            refuse_to_wait(on, *first->of, first->waves, all.size());
        }
    }

    [[noreturn]] void refuse_to_wait(const job & on, const block & b, const std::vector<watch> & seen, size_t blocks) {
        const std::string number = std::to_string(blocks);
        std::string text = "it makes no progress";
        text += on.has_left_out ? " since an invalid access was skipped, which is a finding" : "";
        text += ": every wave of the ";
        text += on.next < on.blocks ? number + " started blocks, of " + std::to_string(on.blocks) + ","
                : blocks == 1       ? "remaining block"
                                    : number + " remaining blocks";
        text += " spins or waits at a barrier, and none of them changes memory. Nothing else changes device memory "
                "meanwhile: copies and kernels of other streams wait until this kernel has ended";
        text += on.of_grid > on.blocks ? " (it may wait for a block that is not in the sample)" : "";
        text += ". Its block:";
        std::vector<stopped_wave> waves;
        for (size_t n = 0; n < seen.size(); ++n) {
            const wave & w = b.at(n);
            const bool spins = w.state != standing::at_barrier && w.state != standing::ended;
            const instruction * at = place_of(w);
            std::string does = spins ? "spins" : doing[int(w.state)];
            if (spins && seen[n].at != nullptr) {
                at = seen[n].at;
                char address[32];
                std::snprintf(address, sizeof(address), "0x%llx", static_cast<unsigned long long>(seen[n].address));
                does += ", reading " + std::to_string(seen[n].size) + " bytes at address " + address;
            }
            text += "\n  wave " + std::to_string(n) + " " + does + ", " + position(at, w);
            waves.push_back({w.number, does, place_of_number(on, at->number)});
        }
        const wave & w = b.at(0);
        throw kernel_fault(heading(w) + ": " + text, on.wanted->kernel->name, std::move(waves));
    }

    // Started by the first launch that needs them, and again in a forked process, in which only the forking thread
    // exists. The remains of the other threads cannot be destroyed there.
    pool & helpers_of_process() {
        if (helpers != nullptr && !helpers->is_of_this_process()) {
            (void) helpers.release();
        }
        if (helpers == nullptr) {
            helpers = std::make_unique<pool>(std::span(workers).subspan(1));
        }
        return *helpers;
    }

    void count_instructions(library & code, const program & p, const std::vector<i64> & marks, kernel_count & to) {
        i64 executed = 0;
        for (u32 n = 0; n < p.first_number; ++n) {
            executed += marks[n];
        }
        for (u32 n = 0; n + 1 < p.offsets.size(); ++n) {
            executed += marks[p.first_number + n];
            if (executed > 0) {
                const std::string text = code.text(p, p.first_number + n);
                const std::vector<statement> parts = parse_line(text);
                const bool is_open = std::any_of(parts.begin(), parts.end(),
                                                 [](const statement & s) { return has_tolerance(s.name); });
                to.by_instruction.push_back({text, u64(executed), is_open});
            }
        }
    }
};

} // namespace

void worker::set_up(const job & on, const block & b, wave & w, u32 number) {
    const kernel_code & kernel = *on.wanted->kernel;
    w.next = on.entry;
    w.state = standing::running;
    w.scc = false;
    w.patience = w.given = first_patience;
    w.state_then = 0;
    w.watched = nullptr;
    w.entered = on.entry->number;
    w.executed = 0;
    w.marks = marks_of(*on.code);
    w.lds = b.lds;
    w.lds_size = on.lds;
    w.scratch_size = on.scratch;
    w.owner = const_cast<block *>(&b);
    w.on = this;
    w.ranges = ranges.data();
    w.number = number;
    w.checks = owner.settings.looks_for.any() ? &w.owner->checked.waves[number] : nullptr;
    wave_record * record = on.record == nullptr ? nullptr : &w.owner->recorded.waves[number];
    w.accesses = record == nullptr ? nullptr : &record->accesses;
    w.spans = record == nullptr || b.recorded.as == chosen_as::seen ? nullptr : &record->spans;
    // A loop over these few KiB is faster than memset's string instruction, which has a startup cost of a hundred
    // cycles.
    for (u32 n = 0; n < on.vgprs; ++n) {
        w.vgpr(int(n)) = splat<u32x>(~0u);
    }
    std::memset(w.scratch, never_written, size_t(on.scratch) * lanes);
    const job::wave_start & begun = on.starts[number];
    w.vgpr(0) = begun.ids;
    std::memcpy(w.scalar, on.scalar.data(), sizeof(w.scalar));
    w.scalar[slot::exec] = begun.active;
    int next = on.block_ids; // the first SGPR after those initialised for all blocks
    const auto wants = [&kernel](u32 what) { return (kernel.rsrc2 & what) != 0; };
    if (owner.arch.has_numbers_in_ttmps) {
        // What the kernel does not request is 0: a kernel that requests only y uses all of ttmp7 for it.
        const u32 y = wants(enables::block_y) ? b.index.y : 0, z = wants(enables::block_z) ? b.index.z : 0;
        w.scalar[slot::ttmp + 7] = (y & 0xffff) | z << 16;
        w.scalar[slot::ttmp + 8] |= number << 25;
        w.scalar[slot::ttmp + 9] = b.index.x;
    } else {
        const std::pair<u32, u32> ids[] = {
            {enables::block_x, b.index.x}, {enables::block_y, b.index.y}, {enables::block_z, b.index.z}};
        for (const auto & [what, id] : ids) {
            if (wants(what)) {
                w.scalar[next++] = id;
            }
        }
        if (wants(enables::block_info)) {
            // Whether it is the first wave, its number (Mesa, ac_nir: tg_size from GFX10.3 on), and the number of
            // waves.
            w.scalar[next++] = u32(number == 0) << 31 | number << 20 | on.waves;
        }
    }
    if (w.checks != nullptr) {
        w.checks->started = begun.active;
    }
    if (owner.settings.looks_for.uninitialised) {
        if (!unknown) {
            unknown = unknown_at_start(int(on.vgprs), on.given, on.block_ids, next, on.touched);
        }
        begin_unknown(w, int(on.vgprs), *unknown);
    }
}

std::unique_ptr<block> worker::start(job & on, u64 number) {
    if (on.record != nullptr) {
        return start_at(on, on.record->index_of(number), number);
    }
    const u64 place = (on.first + number * on.step) % on.blocks;
    // A sample includes the first and the last block, and others evenly spaced in between.
    return start_at(on, on.blocks < 2 ? 0 : place * (on.of_grid - 1) / (on.blocks - 1), number);
}

std::unique_ptr<block> worker::start_at(job & on, u64 index, u64 number) {
    std::unique_ptr<block> made;
    if (!idle.empty()) {
        made = std::move(idle.back());
        idle.pop_back();
    } else {
        made = std::make_unique<block>();
        const size_t one_wave = sizeof(wave) + sizeof(u32x) * (on.vgprs + extra_vgprs);
        const size_t scratch = rounded(size_t(on.scratch) * lanes, 128);
        const size_t total = (one_wave + scratch) * on.waves + rounded(on.lds, 128) + 128;
        made->memory.reset(static_cast<std::byte *>(std::aligned_alloc(128, rounded(total, 128))));
        if (made->memory == nullptr) {
            throw kernel_fault("out of memory for a block of " + std::to_string(total) + " bytes");
        }
        std::byte * at = made->memory.get();
        made->lds = at;
        at += rounded(on.lds, 128);
        for (u32 n = 0; n < on.waves; ++n) {
            made->waves.push_back(at);
            wave & w = made->at(n);
            at += rounded(one_wave, 128);
            w.scratch = reinterpret_cast<u32 *>(at);
            at += scratch;
        }
    }
    if (on.record != nullptr) {
        made->recorded = {index, on.record->role_of(number), std::vector<wave_record>(on.waves)};
    }
    const dimensions & grid = on.wanted->grid;
    made->index = {u32(index % grid.x), u32(index / grid.x % grid.y), u32(index / grid.x / grid.y)};
    made->rests = made->turns = 0;
    made->order = on.order == 0 ? 0 : (on.order ^ (index * 0x9e3779b97f4a7c15)) | 1;
    std::memset(made->lds, never_written, on.lds);
    if (owner.settings.looks_for.any()) {
        const bool is_in_wgp_mode = (on.wanted->kernel->rsrc1 >> 29 & 1) != 0;
        made->checked.begin(on.lds, on.waves, owner.settings.looks_for, is_in_wgp_mode);
        made->checked.memory.begin(on.traces.get(), u32(index), on.waves);
        if (owner.settings.looks_for.caches && on.traces != nullptr) {
            made->checked.caches = &wgps[started % wgps.size()];
            made->checked.first_cu = u32(started / wgps.size() % 2);
            started += 1;
        }
    }
    for (u32 n = 0; n < on.waves; ++n) {
        set_up(on, *made, made->at(n), n);
    }
    return made;
}

worker::standings worker::run_round(block & b) {
    standings result;
    const size_t count = b.waves.size();
    const u64 drawn = b.order == 0 ? 0 : draw(b.order) >> 32;
    const size_t first = drawn / 2 % count;
    for (size_t n = 0; n < count; ++n) {
        wave & w = b.at((drawn % 2 == 0 ? first + n : first + count - n) % count);
        if (w.state != standing::at_barrier && w.state != standing::ended) {
            if (w.watched != nullptr) {
                forget_ranges(); // so that its reads are looked up
            }
            w.state = standing::running;
            run_from(w.next, w);
        }
        result.running += w.state == standing::resting;
        result.sleeping += w.state == standing::sleeping || w.state == standing::circling;
        result.at_barrier += w.state == standing::at_barrier;
    }
    return result;
}

bool worker::pass_barrier(block & b, const standings & now) {
    const size_t count = b.waves.size();
    if (owner.settings.looks_for.any()) {
        std::vector<wave *> waves(count);
        for (size_t n = 0; n < count; ++n) {
            waves[n] = &b.at(n);
        }
        check_halted(b.checked, waves, owner.settings.looks_for);
    }
    if (now.at_barrier == 0) {
        return false;
    }
    b.checked.pass_barrier();
    for (size_t n = 0; n < count; ++n) {
        wave & w = b.at(n);
        w.state = w.state == standing::at_barrier ? standing::running : w.state;
    }
    return true;
}

bool worker::advance(block & b) {
    for (;;) {
        const standings now = run_round(b);
        if (!now.can_go_on()) {
            if (!pass_barrier(b, now)) {
                return true;
            }
        } else if (now.running == 0 || ++b.rests >= rounds_of(b.turns)) {
            b.rests = 0;
            b.turns += 1;
            return false; // it may wait for another block
        }
    }
}

namespace {

u64 state_of(const wave & w, const instruction * next);
u64 digest(u64 begun, const void * from, size_t size);

} // namespace

bool worker::spins(block & b, std::vector<watch> & seen) {
    constexpr u64 most_rounds = u64(1) << 14, most_looks = 64; // for comparing scratch, which may be large
    const auto each = [&b](auto of) {
        u64 result = 0;
        for (size_t n = 0; n < b.waves.size(); ++n) {
            const wave & w = b.at(n);
            result = (result ^ (w.state == standing::ended ? 0 : of(w))) * 0xbf58476d1ce4e5b9 + n;
        }
        return result;
    };
    const auto state = [](const wave & w) { return state_of(w, w.next) + u64(w.state == standing::at_barrier); };
    const auto scratch = [](const wave & w) { return digest(1, w.scratch, size_t(w.scratch_size) * lanes); };
    const auto watch_waves = [&](bool wanted) {
        for (size_t n = 0; n < seen.size(); ++n) {
            seen[n].at = wanted ? nullptr : seen[n].at;
            b.at(n).watched = wanted ? &seen[n] : nullptr;
        }
    };
    // Cycle detection (Brent): the state is compared with that after some earlier round, at powers of two. Scratch is
    // compared only if everything else is equal.
    u64 then = 0, scratch_then = 0, looks = 0;
    bool result = false;
    watch_waves(true);
    for (u64 round = 0; round < most_rounds && !result; ++round) {
        for (size_t n = 0; n < b.waves.size(); ++n) {
            b.at(n).patience = 1;
        }
        const standings now = run_round(b);
        if (!now.can_go_on() && now.at_barrier == 0) {
            break; // it has ended
        }
        if (!now.can_go_on()) {
            (void) pass_barrier(b, now);
        }
        if (std::any_of(seen.begin(), seen.end(), [](const watch & one) { return one.changes; })) {
            break;
        }
        const u64 at = each(state);
        if (round != 0 && at == then) {
            result = each(scratch) == scratch_then;
            if (!result && ++looks == most_looks) {
                break; // it is counting in the loop
            }
        }
        if (!result && std::has_single_bit(round + 1)) {
            then = at;
            scratch_then = each(scratch);
            watch_waves(true);
        }
    }
    watch_waves(false);
    for (size_t n = 0; n < b.waves.size(); ++n) {
        b.at(n).patience = b.at(n).given;
    }
    return result;
}

void worker::forget_ranges() {
    for (const size_t n : remembered) {
        ranges[n] = {};
    }
    remembered.clear();
}

void worker::drop_waiting(job & on) {
    for (const auto & b : waiting) {
        for (size_t n = 0; n < b->waves.size(); ++n) {
            on.executed += b->at(n).executed;
        }
    }
    waiting.clear();
    current = nullptr;
}

void worker::work(job & on) {
    current = &on;
    forget_ranges(); // host code may have freed memory
    idle.clear();
    unknown.reset();
    constexpr size_t most_waiting = 4096;
    std::unique_ptr<block> b;
    u64 executed = 0;
    const auto count = [&executed](block & of) {
        for (size_t n = 0; n < of.waves.size(); ++n) {
            executed += of.at(n).executed;
        }
    };
    // Blocks start in order of their numbers. When no worker takes another one, the first ones are waiting, and they
    // are more than any GPU holds.
    const auto all_have_begun = [&on, most = most_waiting * owner.workers_of(on)] {
        return on.next >= on.blocks || (on.order == 0 && on.next - on.ended >= most);
    };
    try {
        while (!on.failed && !on.is_halted) {
            if (waiting.size() < most_waiting) {
                const u64 number = on.next.fetch_add(1);
                if (number < on.blocks) {
                    b = start(on, number);
                }
            }
            if (b == nullptr) {
                if (waiting.empty()) {
                    break;
                }
                b = std::move(waiting.front());
                waiting.pop_front();
            }
            if (advance(*b)) {
                on.ended += 1;
                count(*b);
                if (on.record != nullptr) {
                    on.record->add(std::move(b->recorded));
                }
                idle.push_back(std::move(b));
            } else {
                waiting.push_back(std::move(b));
                if (on.turns.fetch_add(1) >= on.ask_at && all_have_begun()) {
                    on.is_halted = true;
                }
            }
        }
    } catch (...) {
        const std::lock_guard<std::mutex> guard(on.mutex);
        if (!on.failed) {
            on.failure = std::current_exception();
            on.failed = true;
        }
    }
    if (b != nullptr) { // it failed
        count(*b);
    }
    on.executed += executed;
    current = nullptr;
}

bool worker::run_again(job & on, u64 index, replay & again) {
    constexpr u32 most_turns = 1024;
    current = &on;
    bool has_ended = false;
    try {
        const std::unique_ptr<block> made = start_at(on, index, index);
        made->checked.again = &again;
        made->checked.memory.all = nullptr;
        made->checked.caches = nullptr;
        for (size_t n = 0; n < made->waves.size(); ++n) {
            wave & w = made->at(n);
            w.marks = nullptr;
            w.checks->wanted = {};
            w.checks->wanted.races = w.checks->wanted.hidden = w.checks->wanted.memory = true;
        }
        while (!has_ended && made->turns < most_turns) {
            has_ended = advance(*made);
        }
    } catch (const std::exception &) { // wrong values led to a fault; pairs found until then count
        has_ended = false;
    }
    again.put_back();
    current = nullptr;
    return has_ended;
}

void worker::run_one(job & on, std::span<wave_registers> waves) {
    current = &on;
    const std::unique_ptr<block> made = start(on, 0);
    std::memset(made->lds, 0, on.lds);
    for (size_t n = 0; n < waves.size(); ++n) {
        wave & w = made->at(n);
        const wave_registers & given = waves[n];
        std::memset(w.scratch, 0, size_t(on.scratch) * lanes);
        for (size_t k = 0; k < on.vgprs; ++k) {
            w.vgpr(int(k)) = k < given.vgprs.size() ? as<u32x>(given.vgprs[k]) : splat<u32x>(0);
        }
        std::copy(given.sgprs.begin(), given.sgprs.end(), w.scalar);
        w.scalar[slot::vcc] = given.vcc;
        w.scalar[slot::exec] = given.exec;
        w.scalar[slot::m0] = given.m0;
        w.scc = given.scc;
    }
    while (!advance(*made)) {
    }
    for (size_t n = 0; n < waves.size(); ++n) {
        wave & w = made->at(n);
        wave_registers & left = waves[n];
        left.vgprs.resize(on.vgprs);
        for (size_t k = 0; k < on.vgprs; ++k) {
            left.vgprs[k] = as<std::array<u32, lanes>>(w.vgpr(int(k)));
        }
        std::copy(w.scalar, w.scalar + left.sgprs.size(), left.sgprs.begin());
        left.vcc = w.scalar[slot::vcc];
        left.exec = w.exec();
        left.m0 = w.scalar[slot::m0];
        left.scc = w.scc;
    }
    current = nullptr;
}

void worker::fault(const instruction * at, const wave & w, const std::string & what) {
    leave(at, const_cast<wave &>(w)); // counts what ran until here
    const job & on = *current;
    throw kernel_fault(machine::heading(w) + ", wave " + std::to_string(w.number) + ", " + owner.position(at, w) +
                           ": " + what,
                       on.wanted->kernel->name, {{w.number, "stopped", machine::place_of_number(on, at->number)}});
}

namespace {

u64 digest(u64 result, const void * from, size_t size) {
    const auto * at = static_cast<const std::byte *>(from);
    for (u64 word; size >= sizeof(word); at += sizeof(word), size -= sizeof(word)) {
        std::memcpy(&word, at, sizeof(word));
        result = (result ^ word) * 0xbf58476d1ce4e5b9;
        result ^= result >> 29;
    }
    return result;
}

// Everything that determines what a wave does next, except memory.
u64 state_of(const wave & w, const instruction * next) {
    const u64 result = digest(u64(next) * 0x9e3779b97f4a7c15 + w.scc, w.scalar, slot::nowhere * sizeof(u32));
    return digest(result, &const_cast<wave &>(w).vgpr(0), sizeof(u32x) * worker_of(w).current->vgprs);
}

// Instructions after a skipped access from which on a wave counts as endless, if `spins` detects no loop.
constexpr u64 enough_instructions = u64(1) << 31;

bool is_lost(wave & w) {
    if (!worker_of(w).current->has_left_out) {
        return false;
    }
    u64 & then = w.checks->executed_then;
    then = then == 0 ? w.executed + 1 : then;
    return w.executed + 1 - then > enough_instructions;
}

} // namespace

void worker::rest(const instruction * next, wave & w, standing how) {
    w.next = next;
    w.state = how;
    if (w.checks != nullptr && w.checks->stale.at != nullptr) {
        note_change(w); // it waits for a cache
        rest_with_caches(w, state_of(w, next));
    }
    if (w.watched != nullptr) {
        return;
    }
    if (how == standing::resting) {
        const u32 now = u32(state_of(w, next) >> 32);
        if (now != w.state_then) {
            w.given = std::min(4 * w.given, patience_of(w.owner->turns));
        } else {
            w.state = standing::circling;
            w.given = w.given > most_of_circling ? least_patience : std::min(2 * w.given, most_of_circling);
        }
        w.state_then = now;
    }
    w.patience = w.given;
    if (w.owner->checked.again != nullptr && w.executed > replay::most_instructions) {
        throw kernel_fault("it takes too long");
    }
    const u64 most = owner.settings.most_instructions;
    const bool is_over = most != 0 && w.executed >= most;
    if (!is_over && !is_lost(w)) {
        return;
    }
    const job & on = *current;
    std::string text = is_over ? "it does not end: "
                               : "it makes no progress since an invalid access was skipped, which is a finding: ";
    text += std::to_string(w.executed) + " instructions were executed" +
            (on.of_grid > on.blocks ? " (it may wait for a block that is not in the sample)" : "") + ". Its block:";
    std::vector<stopped_wave> waves;
    for (size_t n = 0; n < w.owner->waves.size(); ++n) {
        const wave & other = w.owner->at(n);
        const instruction * at = place_of(other);
        text += "\n  wave " + std::to_string(n) + " " + doing[int(other.state)] + " " + owner.position(at, other);
        waves.push_back({other.number, doing[int(other.state)], machine::place_of_number(on, at->number)});
    }
    leave(next, w); // counts what ran until here
    throw kernel_fault(machine::heading(w) + ", wave " + std::to_string(w.number) + ", " +
                           owner.position(next, w) + ": " + text,
                       on.wanted->kernel->name, std::move(waves));
}

const std::byte * worker::address_behind(const instruction * i) {
    const program * p = current->code->program_of(i);
    const u32 n = i->number - p->first_number;
    return p->begin + p->offsets[n + 1];
}

const instruction * worker::instruction_at(const instruction * i, wave & w, u64 address) {
    job & on = *current;
    const auto * place = reinterpret_cast<const std::byte *>(address);
    const auto * known = on.wanted->code == nullptr ? nullptr : on.wanted->code->function_at(place);
    if (known == nullptr) {
        fault(i, w, "it jumps to an address outside of any function");
    }
    const float_mode mode{(i->modifiers & modifier::flush_f32) != 0, (i->modifiers & modifier::ieee) != 0};
    const symbol & s = known->second;
    if (place == s.address) {
        check_call(i, w, known->first);
    }
    const program & to = on.code->at(place, mode, library::extent{known->first, s.address, s.address + s.size});
    const auto found = std::lower_bound(to.offsets.begin(), to.offsets.end(), u32(place - to.begin));
    if (found == to.offsets.end() || *found != u32(place - to.begin)) {
        fault(i, w, "it jumps into the middle of an instruction");
    }
    const instruction * target = to.steps + to.entries[size_t(found - to.offsets.begin())];
    if (((target->modifiers ^ i->modifiers) & modifier::flush_f32) != 0) {
        fault(i, w, "it jumps to code after an s_denorm_mode, which is not emulated");
    }
    // The function may be newly decoded, so its instructions need counters.
    w.marks = marks_of(*on.code);
    return target;
}

void worker::report(const instruction * i, wave & w, const char * kind, const std::string & what, const u32 * other) {
    if (replay * const again = w.owner->checked.again; again != nullptr) {
        if (kind == std::string_view(kinds::races) && other != nullptr) {
            again->saw({i->number, *other}, true);
        }
        return;
    }
    if (kind == std::string_view(kinds::races) && !w.checks->wanted.races) {
        return;
    }
    owner.add_finding(i, w, kind, what, other);
}

void worker::note_hidden(const instruction * i, wave & w, const std::string & what, u32 other) {
    if (replay * const again = w.owner->checked.again; again != nullptr) {
        again->saw({i->number, other}, false);
    } else if (w.checks->wanted.hidden) {
        owner.add_hidden(i, w, what, other);
    }
}

void worker::report_note(const instruction * i, wave & w, const char * kind, const std::string & what) {
    if (w.owner->checked.again != nullptr) {
        return;
    }
    owner.add_finding(i, w, kind, what, nullptr, true);
}

bool worker::is_refused(u64 address) { return owner.memory.is_refused(address); }

void worker::report_touch(const instruction * i, wave & w, const char * kind, const std::string & what, u64 other) {
    owner.add_conflict(i, w, kind, what, other);
}

std::string worker::describe_touch(u64 other, u32 block) {
    return owner.words_of(*current, other, block);
}

std::string worker::describe(u64 address, u32 size) {
    const job & on = *current;
    const memory_range & arguments = on.argument_range;
    if (address >= arguments.begin && address < arguments.end) {
        return std::to_string(address - arguments.begin) + " bytes into the kernel's arguments, which have " +
               std::to_string(arguments.end - arguments.begin);
    }
    return owner.memory.describe(address, size);
}

u32 worker::hold_back(const instruction * i, wave & w, const char * kind, const std::string & what, const u32 * other) {
    if (w.owner->checked.again != nullptr) {
        return 0;
    }
    return owner.hold_back(i, w, kind, what, other);
}

wave & worker::spare_wave() {
    if (spare == nullptr) {
        constexpr size_t most_vgprs = 256 + extra_vgprs;
        spare.reset(static_cast<std::byte *>(std::aligned_alloc(128, rounded(sizeof(wave) + most_vgprs * sizeof(u32x), 128))));
        if (spare == nullptr) {
            throw kernel_fault("out of memory to run instructions");
        }
    }
    return *reinterpret_cast<wave *>(spare.get());
}

bool worker::is_of_code(u64 address) {
    code_object * code = current->wanted->code;
    return code != nullptr && !code->constants_at(reinterpret_cast<const std::byte *>(address)).empty();
}

void worker::serve_host_calls(wave & w) {
    if (w.owner->checked.again == nullptr && owner.memory.serve_host_calls()) {
        note_change(w);
    }
}

const image * worker::image_at(u64 number) { return owner.memory.find_image(number); }

bool worker::look_for_range(const instruction * i, wave & w, u64 address, u32 size) {
    memory_range found = owner.memory.find(address);
    // Kernels also read their arguments and the packet as memory.
    const job & on = *current;
    const memory_range packet{uintptr_t(&on.packet), uintptr_t(&on.packet) + sizeof(on.packet)};
    std::span<std::byte> constants;
    if (on.wanted->code != nullptr) {
        constants = on.wanted->code->constants_at(reinterpret_cast<const std::byte *>(address));
    }
    const memory_range code{uintptr_t(constants.data()), uintptr_t(constants.data()) + constants.size()};
    for (const memory_range & own : {on.argument_range, packet, code}) {
        if (address >= own.begin && address < own.end) {
            found = own;
            found.is_constant = true;
        }
    }
    if (!found.holds(address, size)) {
        return false;
    }
    if (w.watched != nullptr && w.watched->at == nullptr && !found.is_constant) {
        w.watched->at = i;
        w.watched->address = address;
        w.watched->size = size;
    }
    if (w.watched != nullptr) {
        w.watched->is_for_host |= found.is_for_host;
    }
    const size_t place = place_of_range(i);
    if (ranges[place].end == 0) {
        remembered.push_back(place);
    }
    ranges[place] = found;
    return true;
}

void worker::find_range(const instruction * i, wave & w, u64 address, u32 size, int lane, bool reads) {
    if (look_for_range(i, w, address, size)) {
        return;
    }
    if (w.watched != nullptr) {
        w.watched->is_for_host = true; // the writer of this memory is unknown
    }
    if (!(reads && owner.memory.is_readable(address, size))) {
        char text[32];
        std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(address));
        fault(i, w, (lane < 0 ? std::string("the wave") : "lane " + std::to_string(lane)) + " accesses address " + text +
                        " for " + std::to_string(size) + " bytes, which are outside of any allocation");
    }
}

void machine::run_alone(std::span<const std::byte> code, std::span<wave_registers> waves, u32 lds, u32 scratch,
                        u32 mode) {
    const std::lock_guard<std::mutex> one_at_a_time(running);
    constexpr u32 end_program = 0xbfb00000;
    std::vector<std::byte> with_end(code.begin(), code.end());
    const auto * end = reinterpret_cast<const std::byte *>(&end_program);
    with_end.insert(with_end.end(), end, end + sizeof(end_program));
    kernel_code kernel{};
    kernel.name = "(instructions by themselves)";
    kernel.vgprs = 256;
    launch wanted{};
    wanted.kernel = &kernel;
    wanted.block = {u32(lanes * waves.size()), 1, 1};
    library own(reader, kernel.vgprs, arch, looks.get());
    const library::extent where{kernel.name, with_end.data(), with_end.data() + with_end.size()};
    const float_mode modes{((mode >> 4) & 3) == 0, arch.has_ieee_mode};
    job on{};
    on.wanted = &wanted;
    on.code = &own;
    on.entry = own.at(with_end.data(), modes, where).steps;
    on.blocks = on.of_grid = 1;
    on.waves = u32(waves.size());
    on.threads = on.waves * lanes;
    on.lds = lds;
    on.scratch = u32(rounded(scratch, 4));
    on.vgprs = kernel.vgprs;
    on.step = 1;
    begin_waves(on, arch, 0, 0);
    worker alone(*this, arch, false);
    alone.run_one(on, waves);
}

} // namespace patchkit::gpu

extern "C" patchkit::gpu::emulator * patchkit_make_emulator(const patchkit::gpu::configuration & wanted,
                                                            patchkit::gpu::memory_map & memory) {
    return new patchkit::gpu::machine(wanted, memory);
}
