// Host memory that the program must not access before it has waited: the target of a copy, or memory that a kernel reads
// and the program must not change. While no operation runs, its pages are protected; an access is recorded, and the
// program continues.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace patchkit {

struct guarded_pages;
using guarded_ref = std::shared_ptr<guarded_pages>;

// Guards the pages that contain only these bytes of the program, from the end of the running operation until the
// returned reference is released. Null if there is no such page, or accesses cannot be detected.
guarded_ref guard_pages(const void * first, size_t size);

// Records the first change of these bytes by the program, also in pages that hold other memory: an instruction that
// writes to such a page is executed on its own, and the bytes are compared with those before. Until then, system calls
// that write to these pages fail. Null if there are too many, or the CPU cannot execute single instructions here.
guarded_ref guard_bytes(const void * first, size_t size);

// The first access, innermost call first; empty if there was none.
struct early_touch {
    bool is_change = false;
    std::vector<void *> called_from;
};
early_touch early_touch_of(const guarded_ref & pages);

// Stops guarding memory that is about to be freed.
void forget_guarded(const void * begin, size_t size);

// While an object of this class exists, all pages are accessible: for operations, and for examining their results.
class unguarded {
  public:
    unguarded();
    ~unguarded();
    unguarded(const unguarded &) = delete;
    unguarded & operator=(const unguarded &) = delete;
};

} // namespace patchkit
