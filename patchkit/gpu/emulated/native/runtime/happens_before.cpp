#include "happens_before.hpp"

#include "allocations.hpp"
#include "digest.hpp"
#include "findings.hpp"
#include "guarded_pages.hpp"
#include "loaded.hpp"
#include "scheduler.hpp"
#include "settings.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>

namespace patchkit {

namespace {

using gpu::traces;
namespace touch = gpu::touch;

const gpu::checks & wanted() {
    static const gpu::checks result = is_executing() ? read_checks() : gpu::checks();
    return result;
}

using vector_clock = std::vector<uint32_t>;

void join(vector_clock & to, const vector_clock & other) {
    to.resize(std::max(to.size(), other.size()));
    std::transform(other.begin(), other.end(), to.begin(), to.begin(),
                   [](uint32_t a, uint32_t b) { return std::max(a, b); });
}

uint32_t at(const vector_clock & clock, size_t line) { return line < clock.size() ? clock[line] : 0; }

// An operation that accessed memory, and its first number.
struct ran_operation {
    uint32_t first;
    moment_ref when;
    std::string words;
};

// Before numbers are reused, all traces are discarded.
constexpr size_t most_ran = 1 << 17;

struct order_of_all final : gpu::operation_order {
    std::mutex mutex; // protects the host's clock
    vector_clock last; // highest number per line
    vector_clock host;

    // The running operation; there is only one at a time.
    moment_ref now;
    std::optional<unguarded> open;
    bool has_drawn = false;
    std::atomic<uint32_t> numbers{1};
    uint64_t host_functions = 0; // host functions that have run
    std::vector<ran_operation> ran;
    std::vector<std::vector<std::pair<uint32_t, uint32_t>>> drawn; // by line: number within the line, first touch number
    std::set<std::shared_ptr<void>> kept; // code of kernels that left traces

    bool is_behind(uint32_t who) const override {
        const ran_operation * one = of(who);
        return one == nullptr || one->when->number <= at(now->clock, one->when->line);
    }

    gpu::other_work work_of(uint32_t who) const override {
        const ran_operation * one = of(who);
        return one == nullptr ? gpu::other_work() : gpu::other_work{one->words, one->when->called_from};
    }

    const ran_operation * of(uint32_t who) const {
        const auto behind = std::upper_bound(ran.begin(), ran.end(), who,
                                             [](uint32_t a, const ran_operation & b) { return a < b.first; });
        return behind == ran.begin() ? nullptr : &*std::prev(behind);
    }
};

// Used at the end of the process, so it is never destroyed.
order_of_all & order() {
    static auto * made = new order_of_all;
    return *made;
}

// ---- Findings

using key_of_finding = std::tuple<std::string, void *, std::string, void *>;

struct found_so_far {
    std::mutex mutex;
    std::vector<gpu::finding> all;
    std::map<key_of_finding, size_t> places;
};

found_so_far & found() {
    static auto * made = new found_so_far;
    return *made;
}

void add_finding(const std::string & what, const std::string & words, const gpu::code_place & other,
                 const std::vector<void *> & called_from, const std::vector<void *> & other_called_from) {
    const auto first = [](const std::vector<void *> & frames) { return frames.empty() ? nullptr : frames.front(); };
    const key_of_finding key{words.substr(0, words.find(" of ")), first(called_from),
                             other.function + std::to_string(other.offset), first(other_called_from)};
    const std::lock_guard<std::mutex> guard(found().mutex);
    // The same change was found before, but not where the program made it.
    key_of_finding without_place = key;
    std::get<3>(without_place)   = nullptr;
    if (const auto known = found().places.find(without_place); known != found().places.end() && known->first != key) {
        const size_t which = known->second;
        if (found().all[which].other_called_from.empty() && found().all[which].what == what) {
            found().all[which].other_called_from = other_called_from;
            found().places.erase(known);
            found().places.emplace(key, which);
        }
    }
    const auto [place, is_new] = found().places.emplace(key, found().all.size());
    if (!is_new) {
        found().all[place->second].times += 1;
        return;
    }
    gpu::finding made{};
    made.kind              = gpu::kinds::asynchrony;
    made.what              = what;
    made.at.text           = words;
    made.other             = other;
    made.times             = 1;
    made.called_from       = called_from;
    made.other_called_from = other_called_from;
    note(made);
    found().all.push_back(std::move(made));
}

// ---- Numbers of operations that access memory

std::mutex traces_mutex;

std::set<traces *> & all_traces() {
    static auto * made = new std::set<traces *>;
    return *made;
}

constexpr size_t planes = 5; // of trace dwords; the last one also contains a dword's value

void forget_watched();

void forget_everything(order_of_all & all) {
    const std::lock_guard<std::mutex> guard(traces_mutex);
    for (traces * const one : all_traces()) {
        (void) madvise(one->written, planes * sizeof(uint64_t) * one->dwords, MADV_DONTNEED);
    }
    forget_watched();
    all.ran.clear();
    all.drawn.clear();
    all.kept.clear();
    all.numbers = 1;
}

// The running operation accesses memory for the first time.
void draw(order_of_all & all, const std::string & words) {
    if (all.has_drawn) {
        return;
    }
    all.has_drawn = true;
    if (all.numbers > gpu::many_numbers || all.ran.size() > most_ran) {
        forget_everything(all);
    }
    all.next  = &all.numbers;
    all.first = all.numbers;
    all.floor = all.first;
    for (size_t line = 0; line < all.drawn.size(); ++line) {
        const auto & those = all.drawn[line];
        const auto open = std::upper_bound(those.begin(), those.end(), std::pair(at(all.now->clock, line), UINT32_MAX));
        if (open != those.end()) {
            all.floor = std::min(all.floor, open->second);
        }
    }
    all.ran.push_back({all.first, all.now, words});
    all.drawn.resize(std::max<size_t>(all.drawn.size(), all.now->line + 1));
    all.drawn[all.now->line].emplace_back(all.now->number, all.first);
}

} // namespace

bool keeps_order() { return wanted().traces(); }

moment_ref make_moment(const std::vector<operation_ref> & after) {
    if (!keeps_order()) {
        return nullptr;
    }
    order_of_all & all = order();
    auto made = std::make_shared<moment>();
    const std::lock_guard<std::mutex> guard(all.mutex);
    made->clock = all.host;
    for (const operation_ref & one : after) {
        if (one->when != nullptr) {
            join(made->clock, one->when->clock);
        }
    }
    // Continues a line whose operations all come before it.
    size_t line = 0;
    while (line < all.last.size() && at(made->clock, line) != all.last[line]) {
        ++line;
    }
    all.last.resize(std::max(all.last.size(), line + 1));
    made->clock.resize(std::max(made->clock.size(), line + 1));
    made->line        = uint32_t(line);
    made->number      = ++all.last[line];
    made->clock[line] = made->number;
    made->called_from = reported_callers();
    return made;
}

bool covers(const operation_ref & later, const operation_ref & earlier) {
    if (earlier == nullptr || earlier->when == nullptr) {
        return true;
    }
    return later != nullptr && later->when != nullptr &&
           earlier->when->number <= at(later->when->clock, earlier->when->line);
}

namespace {

void check_watched(const vector_clock & known);

void host_knows(const vector_clock & clock) {
    order_of_all & all = order();
    {
        const std::lock_guard<std::mutex> guard(all.mutex);
        join(all.host, clock);
    }
    check_watched(clock);
}

} // namespace

void host_waited(const operation_ref & done) {
    if (done != nullptr && done->when != nullptr) {
        host_knows(done->when->clock);
    }
}

void host_waited_for_all() {
    if (keeps_order()) {
        order_of_all & all = order();
        vector_clock clock;
        {
            const std::lock_guard<std::mutex> guard(all.mutex);
            clock = all.last;
        }
        host_knows(clock);
    }
}

void begin_operation(const moment_ref & when) {
    order().open.emplace();
    order().now       = when;
    order().has_drawn = false;
}

void host_runs() {
    if (order().now != nullptr) {
        host_knows(order().now->clock);
        ++order().host_functions;
    }
}

const gpu::operation_order * order_of_launch(std::shared_ptr<void> in) {
    order_of_all & all = order();
    if (!keeps_order() || all.now == nullptr) {
        return nullptr;
    }
    draw(all, "a kernel");
    all.kept.insert(std::move(in));
    return &all;
}

// ---- Accesses without device code

namespace {

// A conflicting access among those to some dwords, or 0.
uint64_t find_other(const order_of_all & all, const uint64_t * touches, size_t first, size_t count, uint32_t first_bytes,
                    uint32_t last_bytes) {
    const uint64_t floor = touch::made(all.floor, 0), own = touch::made(all.first, 0);
    uint32_t checked = 0; // known to come before
    for (size_t n = 0; n < count; ++n) {
        const uint64_t one = touches[first + n];
        if (one < floor || (one >= own) || touch::who(one) == checked) {
            continue;
        }
        const uint32_t bytes = (n == 0 ? first_bytes : 15) & (n + 1 == count ? last_bytes : 15);
        if ((touch::bytes(one) & bytes) == 0) {
            continue;
        }
        if (!all.is_behind(touch::who(one))) {
            return one;
        }
        checked = touch::who(one);
    }
    return 0;
}

void add_conflict(order_of_all & all, const std::string & words, access how, const char * did, uint64_t other) {
    gpu::tracing left;
    std::string by;
    if (touch::instruction(other) != touch::instruction_mask && find_tracing(other, left)) {
        by = "kernel " + left.kernel;
    } else {
        const gpu::other_work work = all.work_of(touch::who(other));
        left       = {};
        by         = work.words;
        left.place.text  = work.words;
        left.called_from = work.called_from;
    }
    add_finding(words + (how == access::reads ? " reads" : " writes") + " what " + by + did + ": the two are not ordered",
                words, left.place, all.now->called_from, left.called_from);
}

constexpr size_t most_bytes = size_t(256) << 20; // per row; larger ones are examined only where pages were touched

// Calls `use` for the pieces of these dwords whose trace pages exist.
template <typename Use> void for_touched(const uint64_t * plane, size_t first, size_t count, Use use) {
    constexpr size_t piece = 1 << 20, few = 1 << 14;
    if (count <= few) {
        use(first, count);
        return;
    }
    const uintptr_t page   = uintptr_t(sysconf(_SC_PAGESIZE));
    for (size_t n = 0; n < count; n += piece) {
        const size_t some = std::min(piece, count - n);
        const uintptr_t begin = uintptr_t(plane + first + n) / page * page, end = uintptr_t(plane + first + n + some);
        std::vector<unsigned char> is_there((end - begin + page - 1) / page);
        const bool is_known = mincore(reinterpret_cast<void *>(begin), end - begin, is_there.data()) == 0;
        if (!is_known || std::any_of(is_there.begin(), is_there.end(), [](auto one) { return (one & 1) != 0; })) {
            use(first + n, some);
        }
    }
}

void touch_row(order_of_all & all, const std::string & words, access how, uintptr_t place, size_t size) {
    const allocation held = allocation_of(place);
    if (held.traced == nullptr || size == 0) {
        return;
    }
    const traces & to = *held.traced;
    const size_t first = (place - to.begin) / 4, last = (place + size - 1 - to.begin) / 4;
    if (place < to.begin || last >= to.dwords) {
        return;
    }
    const size_t count = last - first + 1;
    const uint32_t first_bytes = 15u << (place % 4) & 15, last_bytes = 15u >> (3 - (place + size - 1) % 4);
    const auto meet = [&](const uint64_t * plane, const char * did) {
        uint64_t other = 0;
        for_touched(plane, first, count, [&](size_t from, size_t some) {
            if (other == 0) {
                other = find_other(all, plane, from, some, from == first ? first_bytes : 15,
                                   from + some == first + count ? last_bytes : 15);
            }
        });
        if (other != 0 && wanted().asynchrony) {
            add_conflict(all, words, how, touch::is_atomic(other) ? " changed" : did, other);
        }
    };
    meet(to.written, " wrote");
    meet(to.written_too, " wrote");
    if (how == access::writes) {
        meet(to.read, " read");
        meet(to.read_too, " read");
    }
    if (size > most_bytes) {
        return;
    }
    const uint64_t now = touch::made(all.first, 0) | touch::instruction_mask;
    const uint64_t floor = touch::made(all.floor, 0);
    for (size_t n = 0; n < count; ++n) {
        const uint32_t bytes = (n == 0 ? first_bytes : 15) & (n + 1 == count ? last_bytes : 15);
        const uint64_t one = now | uint64_t(bytes) << touch::bytes_at;
        uint64_t & place_of = how == access::writes ? to.written[first + n] : to.read[first + n];
        if (how == access::writes) {
            const bool is_own = touch::who(place_of) == all.first;
            place_of = one | (is_own ? place_of & uint64_t(15) << touch::bytes_at : 0);
        } else if (place_of < floor || all.is_behind(touch::who(place_of))) {
            place_of = one;
        } else {
            to.read_too[first + n] = one;
        }
    }
}

} // namespace

void touch_rows(const std::string & what, access how, const void * first, size_t width, size_t pitch, size_t height) {
    order_of_all & all = order();
    if (!keeps_order() || all.now == nullptr) {
        return;
    }
    draw(all, what);
    if (all.first >= gpu::most_numbers) {
        return;
    }
    if (all.numbers == all.first) {
        ++all.numbers;
    }
    for (size_t row = 0; row < height; ++row) {
        touch_row(all, what, how, uintptr_t(first) + row * pitch, width);
    }
}

bool is_noted_as_gone(const std::string & what) {
    const order_of_all & all = order();
    if (!wanted().asynchrony || all.now == nullptr) {
        return false;
    }
    add_finding(what + " ran after the program had freed its memory", what, {}, all.now->called_from, {});
    return true;
}

// ---- Host memory used by the device

struct watched_memory {
    struct piece {
        const char * first;
        size_t size;
    };
    std::vector<piece> pieces;
    std::string what; // the operation
    std::string how;  // how it is used, as text: "the source of the copy of 64 bytes"
    gpu::code_place by;
    uint64_t was = 0;
    moment_ref of;      // set when the operation has run
    uint32_t drawn = 0; // its number
    uint64_t host_functions = 0; // that had run at that time
    bool is_target = false; // of a copy
    guarded_ref guarded;    // the target of a copy, or memory that was changed before, until the program has waited
};

namespace {

constexpr size_t most_watched = size_t(16) << 20; // for larger ones, only the first bytes are watched

std::vector<watched_memory::piece> rows_of(const void * first, size_t width, size_t pitch, size_t height) {
    const auto * const start = static_cast<const char *>(first);
    if (pitch == width) {
        return {{start, width * height}};
    }
    std::vector<watched_memory::piece> result;
    for (size_t row = 0; row < height; ++row) {
        result.push_back({start + row * pitch, width});
    }
    return result;
}

uint64_t digest_of(const watched_memory & memory) {
    uint64_t result = 0;
    size_t left     = most_watched;
    for (const auto & [place, whole] : memory.pieces) {
        const size_t size = std::min(left, whole);
        result = result * 31 + digest_of_bytes({reinterpret_cast<const std::byte *>(place), size});
        left -= size;
    }
    return result;
}

std::mutex watched_mutex;

// Host memory used by operations that have run, but that the host has not waited for.
std::vector<watched_ref> & watched() {
    static auto * made = new std::vector<watched_ref>;
    return *made;
}

// Whether an operation wrote there, so that its contents do not show what the program did.
bool is_written_by_others(const watched_memory & memory, uint32_t since) {
    for (const auto & [start, size] : memory.pieces) {
        const auto place = uintptr_t(start);
        const allocation held = allocation_of(place);
        if (!held.holds(place, size)) {
            return true;
        }
        if (held.traced == nullptr) {
            continue;
        }
        const traces & to = *held.traced;
        const size_t first = (place - to.begin) / 4, last = (place + size - 1 - to.begin) / 4;
        if (std::any_of(to.written + first, to.written + last + 1,
                        [since](uint64_t one) { return touch::who(one) >= since; })) {
            return true;
        }
    }
    return false;
}

void forget_watched() {
    const std::lock_guard<std::mutex> guard(watched_mutex);
    watched().clear();
}

// Where the program changed memory that a kernel read. It may do so again: then the place is recorded.
std::vector<watched_memory::piece> & changed_before() {
    static auto * made = new std::vector<watched_memory::piece>;
    return *made;
}

bool overlap(const watched_memory::piece & a, const watched_memory::piece & b) {
    return a.first < b.first + b.size && b.first < a.first + a.size;
}

void remember_changed(const watched_memory & memory) {
    constexpr size_t most_remembered = 64;
    for (const auto & piece : memory.pieces) {
        const bool is_known = std::any_of(changed_before().begin(), changed_before().end(),
                                          [&](const auto & one) { return overlap(one, piece); });
        if (!is_known && changed_before().size() < most_remembered) {
            changed_before().push_back(piece);
        }
    }
}

// Only for memory that is known to be changed too early, because guarding makes system calls fail.
void guard_if_changed_before(watched_memory & memory) {
    const std::lock_guard<std::mutex> guard(watched_mutex);
    for (const auto & piece : memory.pieces) {
        if (memory.guarded == nullptr && std::any_of(changed_before().begin(), changed_before().end(),
                                                     [&](const auto & one) { return overlap(one, piece); })) {
            memory.guarded = guard_bytes(piece.first, piece.size);
        }
    }
}

void note_changed(const watched_memory & memory, const moment & when) {
    add_finding("the program changed " + memory.how + " before it was done", memory.what, memory.by, when.called_from, {});
}

// Whether the program accessed it before waiting.
bool note_touched(const watched_memory & memory, const moment & when) {
    const early_touch by = early_touch_of(memory.guarded);
    if (by.called_from.empty()) {
        return false;
    }
    const char * const did = by.is_change ? "the program changed " : "the program read ";
    add_finding(did + memory.how + " before it was done", memory.what, memory.by, when.called_from, by.called_from);
    return true;
}

void check_watched(const vector_clock & known) {
    const std::lock_guard<std::mutex> guard(watched_mutex);
    if (watched().empty()) {
        return;
    }
    const unguarded for_digests;
    std::erase_if(watched(), [&](const watched_ref & one) {
        if (one->of->number > at(known, one->of->line)) {
            return false;
        }
        if (!note_touched(*one, *one->of) && !is_written_by_others(*one, one->drawn) && digest_of(*one) != one->was) {
            note_changed(*one, *one->of);
            if (!one->is_target) {
                remember_changed(*one);
            }
        }
        return true;
    });
}

// The running operation no longer uses it, but the program does not know that yet.
void watch(const watched_ref & memory) {
    memory->was   = digest_of(*memory);
    memory->of    = order().now;
    memory->drawn = order().numbers;
    const std::lock_guard<std::mutex> guard(watched_mutex);
    watched().push_back(memory);
}

// Host memory that the finished launch read, or wrote other than by atomics, which may be meant to be seen by the host.
void find_touched(const traces & of, size_t first, size_t behind, std::vector<watched_ref> & found) {
    const order_of_all & all = order();
    watched_memory reads, writes;
    uint64_t reader = 0, writer = 0;
    const auto is_own = [&](uint64_t one) { return touch::who(one) >= all.first; };
    const auto add = [&](watched_memory & to, size_t dword, uint32_t bytes) {
        for (uint32_t k = 0; k < 4; ++k) {
            if ((bytes >> k & 1) == 0) {
                continue;
            }
            const char * const place = reinterpret_cast<const char *>(of.begin) + 4 * dword + k;
            if (!to.pieces.empty() && to.pieces.back().first + to.pieces.back().size == place) {
                to.pieces.back().size += 1;
            } else {
                to.pieces.push_back({place, 1});
            }
        }
    };
    for (size_t n = first; n < std::min({behind, of.dwords, first + most_watched / 4}); ++n) {
        const uint64_t written = of.written[n];
        if (is_own(written)) {
            if (!touch::is_atomic(written)) {
                writer = writer == 0 ? written : writer;
                add(writes, n, touch::bytes(written));
            }
            continue;
        }
        for (const uint64_t read : {of.read[n], of.read_too[n]}) {
            if (is_own(read)) {
                reader = reader == 0 ? read : reader;
                add(reads, n, touch::bytes(read));
                break;
            }
        }
    }
    for (auto & [memory, by, did] : {std::tuple(&reads, reader, " reads"), std::tuple(&writes, writer, " writes")}) {
        gpu::tracing left;
        if (!memory->pieces.empty() && find_tracing(by, left)) {
            memory->what = "kernel " + left.kernel;
            memory->how  = "memory of the host that " + memory->what + did;
            memory->by   = left.place;
            found.push_back(std::make_shared<watched_memory>(std::move(*memory)));
        }
    }
}

void watch_touched() {
    std::vector<watched_ref> found;
    bool is_any = false;
    {
        const std::lock_guard<std::mutex> guard(traces_mutex);
        for (traces * const one : all_traces()) {
            const size_t behind = one->behind.exchange(0), first = one->lowest.exchange(~size_t(0));
            if (first < behind) {
                is_any = true;
                find_touched(*one, first, behind, found);
            }
        }
    }
    if (is_any) { // it may signal the program that a copy is done
        const std::lock_guard<std::mutex> guard(watched_mutex);
        std::for_each(watched().begin(), watched().end(), [](const watched_ref & one) {
            if (one->is_target) {
                one->guarded = nullptr;
            }
        });
    }
    for (const watched_ref & one : found) {
        guard_if_changed_before(*one);
        watch(one);
    }
}

bool is_watchable(const void * first) {
    const allocation held = allocation_of(first);
    return wanted().asynchrony && held.size != 0 && held.type == hipMemoryTypeHost;
}

} // namespace

void end_operation() {
    if (wanted().asynchrony && order().has_drawn) {
        watch_touched();
    }
    order().now = nullptr;
    order().open.reset();
}

watched_ref watch_source(const void * first, size_t width, size_t pitch, size_t height) {
    if (!is_watchable(first)) {
        return nullptr;
    }
    const unguarded for_digest;
    auto made = std::make_shared<watched_memory>();
    made->pieces         = rows_of(first, width, pitch, height);
    made->was            = digest_of(*made);
    made->drawn          = order().numbers;
    made->host_functions = order().host_functions;
    return made;
}

void check_source(const watched_ref & source, const std::string & what) {
    if (source == nullptr || order().now == nullptr) {
        return;
    }
    source->what = what;
    source->how  = "the source of " + what;
    // Operations that wrote there since the request came before it; host functions leave no traces.
    const bool is_of_program =
        source->host_functions == order().host_functions && !is_written_by_others(*source, source->drawn);
    if (is_of_program && digest_of(*source) != source->was) {
        note_changed(*source, *order().now);
        return;
    }
    watch(source);
}

void watch_target(const std::string & what, const void * first, size_t width, size_t pitch, size_t height) {
    if (order().now == nullptr || !is_watchable(first)) {
        return;
    }
    auto made = std::make_shared<watched_memory>();
    made->pieces = rows_of(first, width, pitch, height);
    made->what   = what;
    made->how    = "the target of " + what;
    made->is_target = true;
    if (made->pieces.size() == 1) {
        made->guarded = guard_pages(first, made->pieces.front().size);
    }
    watch(made);
}

// ---- Memory

gpu::traces * make_traces(uintptr_t begin, size_t size) {
    if (!keeps_order() || size == 0) {
        return nullptr;
    }
    const uintptr_t start = begin / 4 * 4;
    const size_t dwords   = (begin + size - start + 3) / 4;
    void * all = mmap(nullptr, planes * sizeof(uint64_t) * dwords, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) {
        return nullptr;
    }
    auto * first = static_cast<uint64_t *>(all);
    auto * made  = new traces{start, dwords, first, first + dwords, first + 2 * dwords, first + 3 * dwords,
                              reinterpret_cast<uint32_t *>(first + 4 * dwords)};
    const std::lock_guard<std::mutex> guard(traces_mutex);
    all_traces().insert(made);
    return made;
}

void drop_traces(gpu::traces * old) {
    if (old == nullptr) {
        return;
    }
    const std::lock_guard<std::mutex> guard(traces_mutex);
    all_traces().erase(old);
    (void) munmap(old->written, planes * sizeof(uint64_t) * old->dwords);
    delete old;
}

std::vector<gpu::finding> findings_of_operations() {
    {
        const std::lock_guard<std::mutex> guard(watched_mutex); // for which the program never waited
        std::for_each(watched().begin(), watched().end(), [](const watched_ref & one) { note_touched(*one, *one->of); });
    }
    const std::lock_guard<std::mutex> guard(found().mutex);
    return found().all;
}

} // namespace patchkit
