#include "guarded_pages.hpp"

#include "allocations.hpp"
#include "findings.hpp"

#include <execinfo.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <mutex>
#include <utility>

namespace patchkit {

// In a table that does not move, because the signal handler reads it while other threads run.
struct guarded_pages {
    enum state { unused, open, guarded, touched };
    static constexpr int most_frames   = 32;
    static constexpr size_t most_bytes = 4096; // examined per instruction; the first ones of longer memory

    std::atomic<int> now{unused};
    std::atomic<uintptr_t> begin{0}, end{0};
    uintptr_t first = 0, past = 0; // the bytes of guard_bytes; 0 if all accesses to the pages count
    bool is_change = false;
    uintptr_t at     = 0; // the accessing instruction
    uintptr_t frames_at = 0; // and its place in the frames
    std::array<void *, most_frames> frames{};
    std::atomic<int> frame_count{0};
    std::array<char, most_bytes> bytes{}; // before the instruction that is executed on its own

    bool holds(uintptr_t address) const { return address >= begin && address < end; }
    int protection() const { return first == 0 ? PROT_NONE : PROT_READ; }
    void allow(int access) const { (void) mprotect(reinterpret_cast<void *>(begin.load()), end - begin, access); }
};

namespace {

constexpr int all_access = PROT_READ | PROT_WRITE;

std::array<guarded_pages, 64> table;
std::mutex table_mutex; // must not be held while these pages are accessed
int open_count = 0;     // nesting of unguarded
struct sigaction before, before_trap;

// The faulting instruction, and whether it writes.
struct fault_context {
    uintptr_t at = 0;
    bool is_write = false;

    explicit fault_context([[maybe_unused]] const void * context) {
#if defined(__x86_64__)
        const mcontext_t & of = static_cast<const ucontext_t *>(context)->uc_mcontext;
        constexpr long long write_bit = 2; // of the page fault's error code
        at       = uintptr_t(of.gregs[REG_RIP]);
        is_write = (of.gregs[REG_ERR] & write_bit) != 0;
#elif defined(__aarch64__)
        const mcontext_t & of = static_cast<const ucontext_t *>(context)->uc_mcontext;
        at = uintptr_t(of.pc);
        // Records of 8 bytes and more: magic number, size, and for ESR_MAGIC the syndrome, whose bit 6 is "write".
        struct record {
            uint32_t magic, size;
        };
        const auto * place = reinterpret_cast<const char *>(of.__reserved);
        for (const auto * one = reinterpret_cast<const record *>(place); one->magic != 0 && one->size != 0;
             place += one->size, one = reinterpret_cast<const record *>(place)) {
            if (one->magic == 0x45535201) {
                is_write = (*reinterpret_cast<const uint64_t *>(one + 1) >> 6 & 1) != 0;
            }
        }
#endif
    }
};

void pass_on(const struct sigaction & to, int signal, siginfo_t * info, void * context) {
    if ((to.sa_flags & SA_SIGINFO) != 0) {
        to.sa_sigaction(signal, info, context);
    } else if (to.sa_handler == SIG_DFL || to.sa_handler == SIG_IGN) {
        (void) sigaction(signal, &to, nullptr); // a fault recurs and ends the program
    } else {
        to.sa_handler(signal);
    }
}

void record_access(guarded_pages & one, bool is_change, uintptr_t at, uintptr_t frames_at) {
    one.is_change   = is_change;
    one.at          = at;
    one.frames_at   = frames_at;
    one.frame_count = backtrace(one.frames.data(), guarded_pages::most_frames);
}

#if defined(__x86_64__)
constexpr bool can_step = true;
constexpr long long trap_flag = 1 << 8;

// The instruction that this thread executes on its own, and the address to which it writes.
struct single_step {
    uintptr_t at = 0, address = 0;
};
thread_local single_step stepping __attribute__((tls_model("initial-exec")));

template <typename Do> void for_guarded_bytes(uintptr_t address, Do todo) {
    for (guarded_pages & one : table) {
        if (one.now == guarded_pages::guarded && one.first != 0 && one.holds(address)) {
            todo(one, reinterpret_cast<const void *>(one.first), one.past - one.first);
        }
    }
}

// Returns false if the address is not in a page of guarded bytes.
bool step_over(uintptr_t address, void * context) {
    mcontext_t & of = static_cast<ucontext_t *>(context)->uc_mcontext;
    bool is_any = false;
    for_guarded_bytes(address, [&](guarded_pages & one, const void * first, size_t size) {
        std::memcpy(one.bytes.data(), first, size);
        one.allow(all_access);
        is_any = true;
    });
    if (is_any) {
        stepping = {uintptr_t(of.gregs[REG_RIP]), address};
        of.gregs[REG_EFL] |= trap_flag;
    }
    return is_any;
}

void on_step(int signal, siginfo_t * info, void * context) {
    const single_step done = std::exchange(stepping, {});
    if (done.at == 0) {
        pass_on(before_trap, signal, info, context);
        return;
    }
    mcontext_t & of = static_cast<ucontext_t *>(context)->uc_mcontext;
    of.gregs[REG_EFL] &= ~trap_flag;
    for_guarded_bytes(done.address, [&](guarded_pages & one, const void * first, size_t size) {
        int expected = guarded_pages::guarded;
        if (std::memcmp(one.bytes.data(), first, size) != 0 &&
            one.now.compare_exchange_strong(expected, guarded_pages::touched)) {
            record_access(one, true, done.at, uintptr_t(of.gregs[REG_RIP]));
        }
    });
    for_guarded_bytes(done.address, [](guarded_pages & one, const void *, size_t) { one.allow(one.protection()); });
}
#else
constexpr bool can_step = false;
bool step_over(uintptr_t, void *) { return false; }
void on_step(int, siginfo_t *, void *) {}
#endif

void on_fault(int signal, siginfo_t * info, void * context) {
    const auto address = uintptr_t(info->si_addr);
    if (step_over(address, context)) {
        return;
    }
    for (guarded_pages & one : table) {
        if (one.now.load() < guarded_pages::guarded || !one.holds(address)) {
            continue;
        }
        int expected = guarded_pages::guarded;
        if (one.now.compare_exchange_strong(expected, guarded_pages::touched)) {
            const fault_context by(context);
            record_access(one, by.is_write, by.at, by.at);
        }
        one.allow(all_access);
        return;
    }
    pass_on(before, signal, info, context);
}

bool is_ours(const struct sigaction & one) {
    return (one.sa_flags & SA_SIGINFO) != 0 && one.sa_sigaction == on_fault;
}

// A handler installed later by the program would receive our faults.
bool hears_faults() {
    static const bool is_installed = [] {
        struct sigaction wanted{};
        wanted.sa_sigaction = on_fault;
        wanted.sa_flags     = SA_SIGINFO | SA_ONSTACK;
        struct sigaction for_steps = wanted;
        for_steps.sa_sigaction     = on_step;
        return sigaction(SIGSEGV, &wanted, &before) == 0 &&
               (!can_step || sigaction(SIGTRAP, &for_steps, &before_trap) == 0);
    }();
    struct sigaction now{};
    return is_installed && sigaction(SIGSEGV, nullptr, &now) == 0 && is_ours(now);
}

void close_all() {
    if (!std::any_of(table.begin(), table.end(), [](const auto & one) { return one.now == guarded_pages::open; }) ||
        !hears_faults()) {
        return;
    }
    for (guarded_pages & one : table) {
        int expected = guarded_pages::open;
        if (one.now.compare_exchange_strong(expected, guarded_pages::guarded)) {
            one.allow(one.protection());
        }
    }
}

void open_one(guarded_pages & one) {
    int expected = guarded_pages::guarded;
    if (one.now.compare_exchange_strong(expected, guarded_pages::open)) {
        one.allow(all_access);
    }
}

} // namespace

unguarded::unguarded() {
    const std::lock_guard<std::mutex> guard(table_mutex);
    if (open_count++ == 0) {
        std::for_each(table.begin(), table.end(), open_one);
    }
}

unguarded::~unguarded() {
    const std::lock_guard<std::mutex> guard(table_mutex);
    if (--open_count == 0) {
        close_all();
    }
}

namespace {

guarded_ref protect(uintptr_t begin, uintptr_t end, uintptr_t first, uintptr_t past) {
    const std::lock_guard<std::mutex> guard(table_mutex);
    const auto found = std::find_if(table.begin(), table.end(),
                                    [](const auto & one) { return one.now == guarded_pages::unused; });
    const bool is_taken = std::any_of(table.begin(), table.end(), [&](const auto & one) {
        return one.now != guarded_pages::unused && one.begin < end && begin < one.end &&
               (first == 0 || one.first == 0);
    });
    if (begin >= end || found == table.end() || is_taken || open_count == 0) {
        return nullptr;
    }
    found->begin  = begin;
    found->end    = end;
    found->first  = first;
    found->past = past;
    found->frame_count = 0;
    found->now = guarded_pages::open;
    return {&*found, [](guarded_pages * one) {
                const std::lock_guard<std::mutex> held_again(table_mutex);
                open_one(*one);
                one->now = guarded_pages::unused;
            }};
}

uintptr_t page_size() {
    static const auto result = uintptr_t(sysconf(_SC_PAGESIZE));
    return result;
}

} // namespace

guarded_ref guard_pages(const void * first, size_t size) {
    const uintptr_t page = page_size();
    const allocation held = allocation_of(first);
    const auto start = uintptr_t(first), past = start + size;
    // Memory allocated by the runtime does not share its pages.
    const bool has_pages = held.whose == owner::program;
    const uintptr_t begin = (has_pages && start == held.begin ? start : start + page - 1) / page * page;
    const uintptr_t end = (has_pages && past == held.begin + held.size ? past + page - 1 : past) / page * page;
    return protect(begin, end, 0, 0);
}

guarded_ref guard_bytes(const void * first, size_t size) {
    if (!can_step || size == 0 || allocation_of(first).whose != owner::program) {
        return nullptr;
    }
    const auto start = uintptr_t(first), past = start + std::min(size, guarded_pages::most_bytes);
    const uintptr_t page = page_size();
    return protect(start / page * page, (past + page - 1) / page * page, start, past);
}

early_touch early_touch_of(const guarded_ref & pages) {
    if (pages == nullptr || pages->now != guarded_pages::touched) {
        return {};
    }
    // After the handler's frames comes the faulting instruction itself, not a return address.
    const auto last = pages->frames.begin() + pages->frame_count;
    const auto first = std::find(pages->frames.begin(), last, reinterpret_cast<void *>(pages->frames_at));
    early_touch result{pages->is_change, {reinterpret_cast<void *>(pages->at + 1)}};
    if (first != last) {
        result.called_from.insert(result.called_from.end(), std::next(first), last);
    }
    return result;
}

void forget_guarded(const void * begin, size_t size) {
    const std::lock_guard<std::mutex> guard(table_mutex);
    for (guarded_pages & one : table) {
        if (one.now != guarded_pages::unused && one.begin < uintptr_t(begin) + size && uintptr_t(begin) < one.end) {
            open_one(one);
            one.end = one.begin.load();
        }
    }
}

} // namespace patchkit
