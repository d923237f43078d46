#include "calls.hpp"

#include "allocations.hpp"
#include "answers.hpp"
#include "ending.hpp"
#include "findings.hpp"
#include "recorder.hpp"
#include "settings.hpp"
#include "used_results.hpp"

#include <cxxabi.h>
#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>

namespace patchkit {

namespace {

const gpu::checks & wanted() {
    static const gpu::checks result = is_executing() ? read_checks() : gpu::checks();
    return result;
}

// State of a thread's current call before it returns.
struct reason {
    std::string why;
    std::string kernel; // of a launch
    const history * again = nullptr;
};

// Not an object, because destructors of the program call the runtime after thread-local objects were destroyed.
thread_local reason * now = nullptr;
thread_local bool has_open = false; // an error of this thread that was not checked yet

reason & give_reason() {
    if (now == nullptr) {
        now = new reason;
    }
    return *now;
}

// A call that returned an error.
struct failed_call {
    std::string name; // hipMemcpy
    hipError_t error;
    reason of;
    std::vector<void *> called_from;
};

// Reasons why launches of one kernel were rejected.
struct refusal {
    std::string kernel, why;
    uint64_t times = 0;
};

// Used at the end of the process, so it is never destroyed.
struct noted_calls {
    std::mutex mutex;
    std::map<pthread_t, failed_call> open; // by thread: the last one, which the program may still query
    std::vector<gpu::finding> findings;
    std::map<std::tuple<std::string, hipError_t, void *>, size_t> places;
    std::vector<failed_call> launches; // rejected launches, checked or not
    std::vector<refusal> refusals;
};

noted_calls & all() {
    static auto * made = new noted_calls;
    return *made;
}

// Demangled for messages.
std::string readable(const std::string & mangled) {
    int status  = 0;
    char * text = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
    const std::string result = status == 0 && text != nullptr ? text : mangled;
    std::free(text);
    return result;
}

std::string words_of(const failed_call & one) {
    const std::string why = one.of.why.empty() ? "" : ": " + one.of.why;
    if (!one.of.kernel.empty()) {
        return "the launch of kernel " + one.of.kernel + " is rejected with " + name_of(one.error) + why;
    }
    return one.name + " returns " + name_of(one.error) + why;
}

// Requires the lock.
void add(const failed_call & one, const std::string & what) {
    void * const first = one.called_from.empty() ? nullptr : one.called_from.front();
    const auto [place, is_new] = all().places.emplace(std::tuple(one.name, one.error, first), all().findings.size());
    if (!is_new) {
        all().findings[place->second].times += 1;
        return;
    }
    gpu::finding made{};
    made.kind        = gpu::kinds::calls;
    made.what        = what;
    made.at.text     = one.name;
    made.times       = 1;
    made.called_from = one.called_from;
    if (one.of.again != nullptr) {
        made.other.text        = one.of.again->freed_by;
        made.other_called_from = one.of.again->freed_at;
    }
    note(made);
    all().findings.push_back(std::move(made));
}

// It was not checked `until` the given event. Requires the lock.
void close(const failed_call & one, const std::string & until) {
    add(one, words_of(one) + "; the program does not check the error " + until);
}

void close_open(const std::string & until) {
    const std::lock_guard<std::mutex> guard(all().mutex);
    const auto found = all().open.find(pthread_self());
    if (found != all().open.end()) {
        close(found->second, until);
        all().open.erase(found);
    }
    has_open = false;
}

void forget_open() {
    const std::lock_guard<std::mutex> guard(all().mutex);
    all().open.erase(pthread_self());
    has_open = false;
}

// Results for "not ready", "already exists", and unsupported features.
bool is_no_error_of_programs(hipError_t error) {
    switch (error) {
        case hipSuccess:
        case hipErrorNotReady:
        case hipErrorNotSupported:
        case hipErrorUnsupportedLimit:
        case hipErrorPeerAccessUnsupported:
        case hipErrorPeerAccessAlreadyEnabled:
        case hipErrorPeerAccessNotEnabled:
        case hipErrorHostMemoryAlreadyRegistered: return true;
        default: return false;
    }
}

} // namespace

hipError_t refused(hipError_t error, const std::string & why) {
    if (wanted().calls) {
        give_reason().why = why;
    }
    return error;
}

hipError_t refused_again(hipError_t error, const std::string & why, const history * of) {
    if (wanted().calls) {
        give_reason().again = of;
    }
    return refused(error, why);
}

hipError_t refused_launch(hipError_t error, const std::string & kernel, const std::string & why) {
    if (wanted().calls) {
        give_reason().kernel = kernel;
    }
    const std::lock_guard<std::mutex> guard(all().mutex);
    auto & known     = all().refusals;
    const auto found = std::find_if(known.begin(), known.end(),
                                    [&](const refusal & one) { return one.kernel == kernel && one.why == why; });
    if (found != known.end()) {
        found->times += 1;
        return refused(error, why);
    }
    known.push_back({kernel, why, 1});
    watch_end_of_process(); // even without checks, this must be reported
    std::fprintf(stderr, "patchkit emulator: the launch of %s is rejected with %s: %s\n", readable(kernel).c_str(),
                 name_of(error), why.c_str());
    return refused(error, why);
}

void note_answer(hipError_t error) {
    if (!wanted().calls) {
        return;
    }
    if (has_open) {
        std::string name;
        (void) callers(&name);
        close_open(name.empty() ? "before its next call" : "before its next call, " + name);
    }
    const std::unique_ptr<reason> given(std::exchange(now, nullptr));
    if (is_no_error_of_programs(error)) {
        return;
    }
    failed_call made{"", error, given == nullptr ? reason() : *given, {}};
    made.called_from = callers(&made.name);
    watch_end_of_process();
    const bool is_used = is_result_used(made.called_from);
    const std::lock_guard<std::mutex> guard(all().mutex);
    if (!made.of.kernel.empty()) {
        all().launches.push_back(made);
    }
    if (made.of.again != nullptr) {
        add(made, words_of(made));
    } else if (!is_used) {
        const auto left = all().open.find(pthread_self());
        if (left != all().open.end()) { // by a thread that has ended
            close(left->second, "until its thread ends");
        }
        all().open[pthread_self()] = std::move(made);
        has_open = true;
    }
}

void note_asked() {
    if (has_open) {
        forget_open();
    }
}

void note_asked_for(hipError_t error) {
    if (!has_open) {
        return;
    }
    bool is_that_one = false;
    {
        const std::lock_guard<std::mutex> guard(all().mutex);
        const auto found = all().open.find(pthread_self());
        is_that_one      = found != all().open.end() && found->second.error == error;
    }
    if (is_that_one) {
        forget_open();
    }
}

history * make_history() {
    if (!is_checking()) {
        return nullptr;
    }
    auto * made       = new history;
    made->obtained_at = callers(&made->obtained_by);
    watch_end_of_process();
    return made;
}

void note_freed(history * of) {
    if (of != nullptr) {
        of->freed_at = callers(&of->freed_by);
    }
}

bool looks_for_leaks() { return wanted().leaks; }

std::vector<gpu::finding> findings_of_calls(bool nothing_ran) {
    const std::lock_guard<std::mutex> guard(all().mutex);
    for (const auto & [thread, one] : all().open) {
        close(one, "until it ends");
    }
    all().open.clear();
    if (nothing_ran && wanted().calls) {
        for (const failed_call & one : all().launches) {
            void * const first = one.called_from.empty() ? nullptr : one.called_from.front();
            if (all().places.count(std::tuple(one.name, one.error, first)) == 0) {
                add(one, words_of(one) + "; no kernel of this program ran");
            }
        }
    }
    return all().findings;
}

std::vector<gpu::finding> findings_of_leaks() {
    std::vector<gpu::finding> result;
    std::map<std::vector<void *>, std::pair<size_t, size_t>> places; // index of the finding, and bytes
    for (const allocation & one : allocations_of_program()) {
        if (one.of == nullptr || one.of->is_left) {
            continue;
        }
        const auto [place, is_new] = places.emplace(one.of->obtained_at, std::pair(result.size(), size_t(0)));
        if (is_new) {
            gpu::finding made{};
            made.kind        = gpu::kinds::leaks;
            made.at.text     = one.of->obtained_by;
            made.called_from = one.of->obtained_at;
            result.push_back(std::move(made));
        }
        gpu::finding & found = result[place->second.first];
        found.times += 1;
        place->second.second += one.size;
        const std::string pieces = found.times == 1 ? "" : " in " + std::to_string(found.times) + " pieces";
        found.what = std::to_string(place->second.second) + " bytes of " + name_of(one.type) + pieces +
                     " are never freed";
    }
    return result;
}

std::string refused_as_json() {
    const std::lock_guard<std::mutex> guard(all().mutex);
    std::string result;
    for (const refusal & one : all().refusals) {
        result += result.empty() ? "\n" : ",\n";
        result += "{\"kernel\":" + quoted(one.kernel) + ",\"why\":" + quoted(one.why) +
                  ",\"times\":" + std::to_string(one.times) + "}";
    }
    return "[" + result + "]";
}

} // namespace patchkit
