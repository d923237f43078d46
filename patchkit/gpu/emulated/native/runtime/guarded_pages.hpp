// Memory of the host that a copy filled and that the program may not touch before it waited for that. While no operation
// runs its pages can be neither read nor written; who does so all the same leaves word of it, and goes on.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace patchkit {

struct guarded_pages;
using guarded_ref = std::shared_ptr<guarded_pages>;

// Guards the pages that hold nothing else of the program's than these bytes, from the end of the operation that runs
// until nobody holds what is returned. Null when there is no such page, or no way to know who touches it.
guarded_ref guard_pages(const void * first, size_t size);

// Who touched them first, innermost call first; empty when nobody did.
struct early_touch {
    bool is_change = false;
    std::vector<void *> called_from;
};
early_touch early_touch_of(const guarded_ref & pages);

// Leaves alone what is about to be given back.
void forget_guarded(const void * begin, size_t size);

// While one of these lives everything can be read and written: operations do, and who looks at what they left.
class unguarded {
  public:
    unguarded();
    ~unguarded();
    unguarded(const unguarded &) = delete;
    unguarded & operator=(const unguarded &) = delete;
};

} // namespace patchkit
