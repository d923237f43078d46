#include "repeats.hpp"

#include "digest.hpp"
#include "findings.hpp"
#include "settings.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace patchkit {

namespace {

// Memory is compared in pieces by 64-bit digests: different pieces have equal digests with a probability of 2^-64.
constexpr size_t piece = 4096;

// Memory for kept results of launches: a quarter of this machine's memory; the least recently used is dropped first.
size_t most_kept() {
    static const size_t result = size_t(sysconf(_SC_PHYS_PAGES)) / 4 * size_t(sysconf(_SC_PAGESIZE));
    return result;
}

// Maximum fraction of kernel time spent on unsuccessful comparisons of memory.
constexpr double most_spent = 0.15;

// After this many unsuccessful comparisons in a row, the next ones come after 2, 4, ... launches, at most
// 2^longest_pause.
constexpr unsigned patience = 4, longest_pause = 5;

// From this size on, memory is read by all cores.
constexpr size_t large = size_t(8) << 20;

// Kernels with different arguments each time can never repeat; above this limit, everything is forgotten.
constexpr size_t most_launches = 8192;

using prints = std::vector<uint64_t>; // digests of all pieces, region after region

struct region {
    uintptr_t begin;
    size_t size;

    bool operator==(const region &) const = default;
    size_t pieces() const { return (size + piece - 1) / piece; }
};

using regions = std::vector<region>; // by address

size_t bytes_of(const regions & all) {
    size_t sum = 0;
    for (const region & one : all) {
        sum += one.size;
    }
    return sum;
}

// The memory that a launch accessed, before it ran, and its changes.
struct known_launch {
    regions touched;
    prints before;
    struct change {
        uintptr_t at;
        std::vector<std::byte> bytes;
    };
    std::vector<change> changes;
    uint64_t used_at = 0;

    size_t bytes_kept() const { return before.size() * sizeof(uint64_t) + changes.size() * (piece + sizeof(change)); }
};

// Launches of one kernel with equal geometry and arguments.
struct same_launches {
    double seconds = 0; // duration of the last one
    regions touched;    // by any of them, as long as all of it exists
    bool is_repeatable = true;
    uint64_t launches  = 0;
    uint64_t next_try  = 1;
    unsigned misses    = 0; // in a row
    std::vector<known_launch> known;
};

// Memory through which a kernel may communicate during the launch, so that the launch must run.
bool is_for_others(const allocation & one) {
    return one.type != hipMemoryTypeDevice || one.whose == owner::registered || one.whose == owner::kernels;
}

double since(std::chrono::steady_clock::time_point began) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

const std::byte * bytes_at(uintptr_t address) { return reinterpret_cast<const std::byte *>(address); } // NOLINT

// Operations run one at a time, so only data recorded by a kernel's threads needs synchronisation.
class repeats {
  public:
    bool run_unless_known(const gpu::launch & launch, const std::function<void()> & run) {
        same_launches & of    = launches_like(launch);
        const uint64_t number = of.launches++;
        if (!are_still_there(of.touched)) {
            of.touched.clear();
        }
        if (of.touched.empty() || number < of.next_try || !is_worth_it(of)) {
            run_noting(of, run);
            return false;
        }
        const auto began = std::chrono::steady_clock::now();
        prints before    = read(of.touched);
        if (known_launch * const same = find(of, before); same != nullptr) {
            put(*same);
            of.misses   = 0;
            of.next_try = number + 1;
            earned_ += most_spent * of.seconds;
            return true;
        }
        of.misses += 1;
        of.next_try = number + (uint64_t(1) << std::min(longest_pause, std::max(of.misses, patience) - patience));
        spent_ += since(began);
        const regions expected = of.touched;
        run_noting(of, run);
        const auto ended = std::chrono::steady_clock::now();
        if (of.is_repeatable && of.touched == expected && are_still_there(expected)) {
            keep(of, std::move(before));
        }
        spent_ += since(ended);
        return false;
    }

    void note_touched(const allocation & one) {
        if (!is_noting_) {
            return;
        }
        thread_local std::array<uintptr_t, 8> latest; // recently recorded addresses
        thread_local uint64_t latest_in = 0;
        thread_local size_t next        = 0;
        if (latest_in != noting_) {
            latest.fill(0);
            latest_in = noting_;
        }
        if (std::find(latest.begin(), latest.end(), one.begin) != latest.end()) {
            return;
        }
        latest[next++ % latest.size()] = one.begin;
        const std::lock_guard<std::mutex> guard(mutex_);
        touched_[one.begin] = {one.begin, one.size};
        if (is_for_others(one)) {
            has_other_ = true;
        }
    }

    void note_image() { has_other_ = true; }

  private:
    std::unordered_map<std::string, same_launches> all_;
    double earned_ = 0, spent_ = 0; // seconds of reading memory
    double rate_ = 4e9 * std::min(number_of_threads(), 4u); // bytes per second, an estimate until something was read
    size_t kept_   = 0;
    uint64_t uses_ = 0;
    // State of the running launch:
    std::atomic<bool> is_noting_ = false, has_other_ = false; // memory of others, or an image, was accessed
    std::atomic<uint64_t> noting_ = 0;
    std::mutex mutex_;
    std::map<uintptr_t, region> touched_;

    same_launches & launches_like(const gpu::launch & launch) {
        std::string key;
        const auto add = [&key](const auto & value) { key.append(reinterpret_cast<const char *>(&value), sizeof(value)); };
        add(launch.code);
        add(launch.kernel);
        add(launch.grid);
        add(launch.block);
        add(launch.dynamic_lds);
        key.push_back(launch.is_cooperative ? 'c' : ' ');
        key.append(reinterpret_cast<const char *>(launch.kernarg.data()), launch.kernarg.size());
        if (all_.size() >= most_launches && !all_.contains(key)) {
            all_.clear();
            kept_ = 0;
        }
        return all_[key];
    }

    // Reading its memory before and after must be faster than running it, and within the budget earned so far.
    bool is_worth_it(const same_launches & of) const {
        const double wanted = 2 * double(bytes_of(of.touched)) / rate_;
        return of.is_repeatable && wanted <= of.seconds && spent_ + wanted <= earned_;
    }

    void run_noting(same_launches & of, const std::function<void()> & run) {
        touched_.clear();
        has_other_ = false;
        noting_ += 1;
        is_noting_       = true;
        const auto began = std::chrono::steady_clock::now();
        run();
        of.seconds = since(began);
        is_noting_ = false;
        earned_ += most_spent * of.seconds;
        of.is_repeatable = !has_other_;
        for (const region & one : of.touched) {
            touched_[one.begin] = one;
        }
        of.touched.clear();
        for (const auto & [begin, one] : touched_) {
            of.touched.push_back(one);
        }
    }

    known_launch * find(same_launches & of, const prints & before) {
        for (known_launch & one : of.known) {
            if (one.touched == of.touched && one.before == before) {
                return &one;
            }
        }
        return nullptr;
    }

    void put(known_launch & one) {
        for (const known_launch::change & change : one.changes) {
            std::memcpy(reinterpret_cast<void *>(change.at), change.bytes.data(), change.bytes.size()); // NOLINT
        }
        one.used_at = ++uses_;
    }

    void keep(same_launches & of, prints before) {
        const prints after = read(of.touched);
        known_launch made{of.touched, std::move(before), {}, ++uses_};
        size_t n = 0;
        for (const region & one : of.touched) {
            for (size_t at = 0; at < one.size; at += piece, ++n) {
                if (after[n] == made.before[n]) {
                    continue;
                }
                if (made.bytes_kept() > most_kept()) {
                    return;
                }
                const std::byte * from = bytes_at(one.begin) + at;
                made.changes.push_back({one.begin + at, {from, from + std::min(piece, one.size - at)}});
            }
        }
        kept_ += made.bytes_kept();
        of.known.push_back(std::move(made));
        while (kept_ > most_kept()) {
            drop_oldest();
        }
    }

    void drop_oldest() {
        std::vector<known_launch> * in = nullptr;
        size_t place                   = 0;
        for (auto & [key, of] : all_) {
            for (size_t n = 0; n < of.known.size(); ++n) {
                if (in == nullptr || of.known[n].used_at < (*in)[place].used_at) {
                    in    = &of.known;
                    place = n;
                }
            }
        }
        kept_ -= (*in)[place].bytes_kept();
        in->erase(in->begin() + ptrdiff_t(place));
    }

    static bool are_still_there(const regions & wanted) {
        return std::all_of(wanted.begin(), wanted.end(), [](const region & one) {
            const allocation now = allocation_of(one.begin);
            return now.begin == one.begin && now.size == one.size && !is_for_others(now);
        });
    }

    prints read(const regions & wanted) {
        struct part {
            const std::byte * at;
            size_t size;
            uint64_t * print;
        };
        size_t pieces = 0;
        for (const region & one : wanted) {
            pieces += one.pieces();
        }
        prints result(pieces);
        std::vector<part> parts;
        uint64_t * print = result.data();
        for (const region & one : wanted) {
            for (size_t n = 0; n < one.size; n += large) {
                const size_t size = std::min(large, one.size - n);
                parts.push_back({bytes_at(one.begin) + n, size, print});
                print += (size + piece - 1) / piece;
            }
        }
        std::atomic<size_t> next = 0;
        const auto work          = [&] {
            for (size_t n = next++; n < parts.size(); n = next++) {
                const part & one = parts[n];
                for (size_t at = 0; at < one.size; at += piece) {
                    one.print[at / piece] = digest_of_bytes({one.at + at, std::min(piece, one.size - at)});
                }
            }
        };
        const size_t bytes   = bytes_of(wanted);
        const size_t threads = bytes < large ? 1 : std::min<size_t>(number_of_threads(), parts.size());
        const auto began     = std::chrono::steady_clock::now();
        std::vector<std::thread> others;
        for (size_t n = 1; n < threads; ++n) {
            others.emplace_back(work);
        }
        work();
        std::for_each(others.begin(), others.end(), [](std::thread & one) { one.join(); });
        const double took = since(began);
        if (bytes >= large && took > 0) {
            rate_ = (rate_ + double(bytes) / took) / 2; // untouched pages are allocated when first read
        }
        return result;
    }
};

repeats & the_repeats() {
    static auto * made = new repeats;
    return *made;
}

} // namespace

bool finds_repeats() {
    static const bool result = setting("PATCHKIT_EMULATOR_REPEATS") != nullptr && is_computing() && !is_sampling() &&
                               !is_checking() && setting("PATCHKIT_EMULATOR_COUNT") == nullptr &&
                               the_schedule().name == "in-order";
    return result;
}

bool run_unless_known(const gpu::launch & launch, const std::function<void()> & run) {
    return the_repeats().run_unless_known(launch, run);
}

void note_touched(const allocation & one) { the_repeats().note_touched(one); }
void note_image() { the_repeats().note_image(); }

} // namespace patchkit
