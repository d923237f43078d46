// Which operations come before which, by what HIP promises and not by when they ran: so that those are found that touch
// the same memory and that nothing orders. The schedule has no say in it.
//
// Operations that follow each other are put into lines; a clock says of each line how many of its operations come
// before. An operation begins with the clocks of all that it comes after, and with that of the host: what the program
// waited for comes before all that it asks for later. Host code is taken as one thread: what one of its threads waited
// for the others are taken to know.
#pragma once

#include "../emulator/emulator.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace patchkit {

struct operation;

// Of an operation, among all others.
struct moment {
    uint32_t line, number; // its own in that line, from 1
    std::vector<uint32_t> clock;
    std::vector<void *> called_from; // where the program asked for it
};

using moment_ref = std::shared_ptr<const moment>;

// Whether anybody wants to know.
bool keeps_order();

// ---- For the scheduler, which holds its lock.

// Of an operation that is asked for now and comes after these; null when nobody wants to know.
moment_ref make_moment(const std::vector<std::shared_ptr<operation>> & after);

// Whether all of `earlier` comes before `later`; either may be null.
bool covers(const std::shared_ptr<operation> & later, const std::shared_ptr<operation> & earlier);

// The host waited for it, or for all that was asked for.
void host_waited(const std::shared_ptr<operation> & done);
void host_waited_for_all();

// Around an operation that runs; without the lock.
void begin_operation(const moment_ref & when);
void end_operation();

// ---- For operations while they run.

// Functions of the host may tell the rest of the program what they know.
void host_runs();

// What a kernel needs of it, null when nobody wants to know; `in` is where its code lies.
const gpu::operation_order * order_of_launch(std::shared_ptr<void> in);

// The operation that runs touches `height` rows of bytes; `what` it is, in words.
enum class access { reads, writes };
void touch_rows(const std::string & what, access how, const void * first, size_t width, size_t pitch, size_t height);

// It would touch memory that is gone. False when nobody wants to know, and it must not go on.
bool is_noted_as_gone(const std::string & what);

// ---- Memory of the host that is to stay as it is until the program waited for what uses it: sources and targets of
// copies, and what kernels read and write there, which the end of an operation finds out.

struct watched_memory;
using watched_ref = std::shared_ptr<watched_memory>;

// In the call that asks for the copy; null when nobody wants to know.
watched_ref watch_source(const void * first, size_t width, size_t pitch, size_t height);

// In the copy, before it reads.
void check_source(const watched_ref & source, const std::string & what);

// In the copy, behind it: where it wrote.
void watch_target(const std::string & what, const void * first, size_t width, size_t pitch, size_t height);

// ---- Memory whose touches are kept.

// Null when nobody wants to know.
gpu::traces * make_traces(uintptr_t begin, size_t size);
void drop_traces(gpu::traces * old);

// What was found of operations without code.
std::vector<gpu::finding> findings_of_operations();

} // namespace patchkit
