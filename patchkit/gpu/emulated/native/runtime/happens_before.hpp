// The order of operations as guaranteed by HIP, independent of when they ran, to find unordered accesses to the same
// memory. The schedule has no influence.
//
// Operations that follow each other form lines; a vector clock contains, per line, how many of its operations come
// before. An operation starts with the clocks of all operations that it depends on, and with the clock of the host:
// what the program waited for comes before everything that it requests later. Host code counts as a single thread: what
// one thread waited for is assumed known to the others.
#pragma once

#include "../emulator/emulator.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace patchkit {

struct operation;

// Position of an operation in the order.
struct moment {
    uint32_t line, number; // number within the line, from 1
    std::vector<uint32_t> clock;
    std::vector<void *> called_from; // host call stack of the request
};

using moment_ref = std::shared_ptr<const moment>;

// Whether the order is tracked.
bool keeps_order();

// ---- For the scheduler, with its lock held.

// For an operation that is requested now and depends on these; null if the order is not tracked.
moment_ref make_moment(const std::vector<std::shared_ptr<operation>> & after);

// Whether all of `earlier` comes before `later`; either may be null.
bool covers(const std::shared_ptr<operation> & later, const std::shared_ptr<operation> & earlier);

// The host waited for an operation, or for everything requested so far.
void host_waited(const std::shared_ptr<operation> & done);
void host_waited_for_all();

// Called before and after an operation runs; without the lock.
void begin_operation(const moment_ref & when);
void end_operation();

// ---- For running operations.

// Host functions may pass what they know to the rest of the program.
void host_runs();

// The order for a kernel; null if not tracked. `in` keeps its code alive.
const gpu::operation_order * order_of_launch(std::shared_ptr<void> in);

// The running operation accesses `height` rows of bytes; `what` describes it.
enum class access { reads, writes };
void touch_rows(const std::string & what, access how, const void * first, size_t width, size_t pitch, size_t height);

// It would access freed memory. Returns false if the order is not tracked, and the operation must not continue.
bool is_noted_as_gone(const std::string & what);

// ---- Host memory that must not change until the program has waited for the operation that uses it: sources and
// targets of copies, and memory accessed by kernels (determined at the end of the kernel).

struct watched_memory;
using watched_ref = std::shared_ptr<watched_memory>;

// At the request of a copy; null if not tracked.
watched_ref watch_source(const void * first, size_t width, size_t pitch, size_t height);

// In the copy, before it reads.
void check_source(const watched_ref & source, const std::string & what);

// In the copy, after it wrote.
void watch_target(const std::string & what, const void * first, size_t width, size_t pitch, size_t height);

// ---- Memory with recorded accesses.

// Null if not tracked.
gpu::traces * make_traces(uintptr_t begin, size_t size);
void drop_traces(gpu::traces * old);

// Findings of operations without code.
std::vector<gpu::finding> findings_of_operations();

} // namespace patchkit
