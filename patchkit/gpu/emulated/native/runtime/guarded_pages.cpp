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
#include <mutex>

namespace patchkit {

// In a table that does not move, because the signal handler reads it while other threads run.
struct guarded_pages {
    enum state { unused, open, guarded, touched };
    static constexpr int most_frames = 32;

    std::atomic<int> now{unused};
    std::atomic<uintptr_t> begin{0}, end{0};
    bool is_change = false;
    uintptr_t at   = 0; // the accessing instruction
    std::array<void *, most_frames> frames{};
    std::atomic<int> frame_count{0};

    bool holds(uintptr_t address) const { return address >= begin && address < end; }
    void allow(int access) const { (void) mprotect(reinterpret_cast<void *>(begin.load()), end - begin, access); }
};

namespace {

constexpr int all_access = PROT_READ | PROT_WRITE;

std::array<guarded_pages, 64> table;
std::mutex table_mutex; // must not be held while these pages are accessed
int open_count = 0;     // nesting of unguarded
struct sigaction before;

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

void on_fault(int signal, siginfo_t * info, void * context) {
    const auto address = uintptr_t(info->si_addr);
    for (guarded_pages & one : table) {
        if (one.now.load() < guarded_pages::guarded || !one.holds(address)) {
            continue;
        }
        int expected = guarded_pages::guarded;
        if (one.now.compare_exchange_strong(expected, guarded_pages::touched)) {
            const fault_context by(context);
            one.is_change = by.is_write;
            one.at        = by.at;
            one.frame_count = backtrace(one.frames.data(), guarded_pages::most_frames);
        }
        one.allow(all_access);
        return;
    }
    if ((before.sa_flags & SA_SIGINFO) != 0) {
        before.sa_sigaction(signal, info, context);
    } else if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN) {
        (void) sigaction(signal, &before, nullptr); // the fault recurs and ends the program
    } else {
        before.sa_handler(signal);
    }
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
        return sigaction(SIGSEGV, &wanted, &before) == 0;
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
            one.allow(PROT_NONE);
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

guarded_ref guard_pages(const void * first, size_t size) {
    static const auto page = uintptr_t(sysconf(_SC_PAGESIZE));
    const allocation held = allocation_of(first);
    const auto start = uintptr_t(first), behind = start + size;
    // Memory allocated by the runtime does not share its pages.
    const bool has_pages = held.whose == owner::program;
    const uintptr_t begin = (has_pages && start == held.begin ? start : start + page - 1) / page * page;
    const uintptr_t end = (has_pages && behind == held.begin + held.size ? behind + page - 1 : behind) / page * page;
    if (begin >= end) {
        return nullptr;
    }
    const std::lock_guard<std::mutex> guard(table_mutex);
    const auto found = std::find_if(table.begin(), table.end(),
                                    [](const auto & one) { return one.now == guarded_pages::unused; });
    const bool is_taken = std::any_of(table.begin(), table.end(), [&](const auto & one) {
        return one.now != guarded_pages::unused && one.begin < end && begin < one.end;
    });
    if (found == table.end() || is_taken || open_count == 0) {
        return nullptr;
    }
    found->begin = begin;
    found->end   = end;
    found->frame_count = 0;
    found->now = guarded_pages::open;
    return {&*found, [](guarded_pages * one) {
                const std::lock_guard<std::mutex> held_again(table_mutex);
                open_one(*one);
                one->now = guarded_pages::unused;
            }};
}

early_touch early_touch_of(const guarded_ref & pages) {
    if (pages == nullptr || pages->now != guarded_pages::touched) {
        return {};
    }
    // After the handler's frames comes the faulting instruction itself, not a return address.
    const auto last = pages->frames.begin() + pages->frame_count;
    const auto first = std::find(pages->frames.begin(), last, reinterpret_cast<void *>(pages->at));
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
