// Programs, by name, whose blocks or waves pass data to each other: correct ones, and the same with one synchronisation
// missing. Prints whether a value was wrong.
#include "passed_data.hpp"

#include <hip/hip_cooperative_groups.h>

namespace cg = cooperative_groups;

#ifdef __GFX12__
#define WAIT_FOR_SCALAR "s_wait_kmcnt 0x0"
#else
#define WAIT_FOR_SCALAR "s_waitcnt lgkmcnt(0)"
#endif

// What is missing; `none` is the correct program.
enum fault { none, no_acquire, block_acquire, block_scope, no_release, store_after_release };

template <fault f> __device__ void acquire() {
    if constexpr (f == block_acquire) {
        __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
    } else if constexpr (f != no_acquire) {
        __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
    }
}
template <fault f> __device__ void release() {
    if constexpr (f != no_release) {
        __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
    }
}

// ---- Between blocks. `flags` and `data` are zero at the start.

// The last block checks what all of them left.
template <fault f, bool looks_by_atomics = false> __global__ void last_block(int * flags, int * data, int * wrong) {
    __shared__ int is_last;
    if (looks_by_atomics) {
        (void) __hip_atomic_load(value(data, me()) + 1, relaxed, block);
    } else {
        look(data, me());
    }
    if (me() == 0) {
        if (f == store_after_release) {
            release<f>();
        }
        *value(data, my_block()) = my_block() + 1;
        if (f == block_scope) {
            is_last = __hip_atomic_fetch_add(flags, 1, __ATOMIC_ACQ_REL, block) == blocks - 1;
        } else {
            if (f != store_after_release) {
                release<f>();
            }
            is_last = __hip_atomic_fetch_add(flags, 1, relaxed, agent) == blocks - 1;
        }
    }
    __syncthreads();
    if (is_last != 0) {
        if (f != block_scope) {
            acquire<f>();
        }
        expect(plain(value(data, me())), me() + 1, wrong);
    }
}

// Sums by atomics, a line for each block, that the first block reads by plain loads.
template <fault f> __global__ void sums(int * flags, int * data, int * wrong) {
    constexpr int line = 16;
    if (my_block() != 0) {
        atomicAdd(value(data, my_block() * line), 1);
        release<f>();
        __syncthreads();
        if (me() == 0) {
            atomicAdd(flags, 1);
        }
        return;
    }
    look(data, me() * line);
    while (ask(flags) != blocks - 1) {
        pause();
    }
    acquire<f>();
    expect(plain(value(data, me() * line)), me() == 0 ? 0 : threads, wrong);
}

// A scan in one pass: each block waits for the one before it, which leaves its sum and a flag.
template <fault f> __global__ void look_back(int * flags, int * data, int * wrong) {
    look(data, me());
    if (me() == 0) {
        int sum = 0;
        if (my_block() != 0) {
            while (ask(&flags[my_block() - 1]) == 0) {
                pause();
            }
            acquire<f>();
            sum = plain(value(data, my_block() - 1));
        }
        expect(sum, my_block(), wrong);
        *value(data, my_block()) = my_block() + 1;
        release<f>();
        atomicExch(&flags[my_block()], 1);
    }
}

// One thread waits for the flag, and all read after a barrier, which is an acquire at the scope of the block.
template <fault f> __global__ void sends(int * flags, int * data, int * wrong) {
    const int to = my_block() + 1;
    for (int round = 1; round <= rounds; ++round) {
        if (my_block() != 0) {
            look(data, my_block() * threads + me());
            if (me() == 0) {
                __hip_atomic_fetch_add(&flags[256 + my_block()], 1, relaxed, agent); // has looked
                while (look_at(&flags[my_block()]) < round) {
                    pause();
                }
                acquire<f>();
            }
            __syncthreads();
            expect(plain(value(data, my_block() * threads + me())), round, wrong);
        }
        if (to < blocks) {
            if (me() == 0) {
                while (look_at(&flags[256 + to]) < round) {
                    pause();
                }
                acquire<none>();
            }
            __syncthreads();
            *value(data, to * threads + me()) = round;
            release<f>();
            __syncthreads();
            if (me() == 0) {
                set(&flags[to], round);
            }
        }
    }
}

// A counter under a lock: compare-and-swap, or tickets.
template <fault f> __global__ void spin_lock(int * flags, int * data, int * wrong) {
    (void) wrong;
    look(data, 0);
    if (me() == 0) {
        for (int round = 0; round < rounds; ++round) {
            int free = 0;
            while (!__hip_atomic_compare_exchange_strong(flags, &free, 1, relaxed, relaxed, agent)) {
                free = 0;
                pause();
            }
            acquire<f>();
            *data = plain(data) + 1;
            release<f>();
            set(flags, 0);
        }
    }
}
template <fault f> __global__ void ticket_lock(int * flags, int * data, int * wrong) {
    (void) wrong;
    look(data, 0);
    if (me() == 0) {
        for (int round = 0; round < rounds; ++round) {
            const int mine = __hip_atomic_fetch_add(flags, 1, relaxed, agent);
            while (ask(flags + 64) != mine) {
                pause();
            }
            acquire<f>();
            *data = plain(data) + 1;
            release<f>();
            set(flags + 64, mine + 1);
        }
    }
}

// All blocks meet, and read what their neighbour wrote.
template <fault f> __global__ void grid_barrier(int * flags, int * data, int * wrong) {
    const int own = my_block() * threads + me(), next = (my_block() + 1) % blocks * threads + me();
    for (int round = 1; round <= rounds; ++round) {
        for (int half = 1; half <= 2; ++half) {
            if (half == 1) {
                look(data, next);
            } else {
                *value(data, own) = round;
            }
            release<f>();
            __syncthreads();
            if (me() == 0) {
                __hip_atomic_fetch_add(flags, 1, relaxed, agent);
                while (ask(flags) < (2 * (round - 1) + half) * blocks) {
                    pause();
                }
            }
            __syncthreads();
            acquire<f>();
        }
        expect(plain(value(data, next)), round, wrong);
    }
}
__global__ void grid_group(int *, int * data, int * wrong) { // cooperative groups
    const int own = my_block() * threads + me(), next = (my_block() + 1) % blocks * threads + me();
    for (int round = 1; round <= rounds; ++round) {
        look(data, next);
        cg::this_grid().sync();
        *value(data, own) = round;
        cg::this_grid().sync();
        expect(plain(value(data, next)), round, wrong);
    }
}

// A queue of tasks: the place is taken by an atomic, and the data are there once the counter has passed it.
template <fault f> __global__ void work_queue(int * flags, int * data, int * wrong) {
    look(data, me());
    if (me() != 0) {
        return;
    }
    if (my_block() % 2 == 0) {
        const int task = my_block() / 2;
        *value(data, task) = task + 1;
        release<f>();
        while (ask(flags + 64) != task) { // in order
            pause();
        }
        atomicAdd(flags + 64, 1);
    } else {
        const int task = atomicAdd(flags, 1);
        while (ask(flags + 64) <= task) {
            pause();
        }
        acquire<f>();
        expect(plain(value(data, task)), task + 1, wrong);
    }
}

// Whoever comes first fills a table, and publishes a pointer to it.
template <fault f> __global__ void once(int * flags, int * data, int * wrong) {
    __shared__ int is_first;
    auto ** const table = reinterpret_cast<int **>(flags + 64);
    look(data, me());
    if (me() == 0) {
        is_first = atomicCAS(flags, 0, 1) == 0;
        atomicAdd(flags + 32, 1);
    }
    __syncthreads();
    if (is_first != 0) {
        while (look_at(flags + 32) < 2) { // so that another block has looked, too
            pause();
        }
        *value(data, me()) = me() + 1;
        release<f>();
        __syncthreads();
        if (me() == 0) {
            __hip_atomic_exchange(table, data, relaxed, agent);
        }
        return;
    }
    int * found = nullptr;
    while (found == nullptr) {
        found = reinterpret_cast<int *>(atomicCAS(reinterpret_cast<unsigned long long *>(table), 1ull, 1ull));
        pause();
    }
    acquire<f>();
    expect(plain(value(found, me())), me() + 1, wrong);
}

// A stack of nodes, taken off as a whole.
template <fault f> __global__ void stack(int * flags, int * data, int * wrong) {
    int * const next = value(data, threads);
    look(data, me());
    look(next, me());
    if (me() != 0) {
        return;
    }
    *value(data, my_block()) = my_block() + 1;
    int head = look_at(flags);
    do {
        *value(next, my_block()) = head;
        release<f>();
    } while (!__hip_atomic_compare_exchange_strong(flags, &head, my_block() + 1, relaxed, relaxed, agent));
    if (__hip_atomic_fetch_add(flags + 64, 1, relaxed, agent) == blocks - 1) {
        int node = __hip_atomic_exchange(flags, 0, relaxed, agent), found = 0;
        acquire<f>();
        for (; node != 0 && found <= blocks; ++found) {
            expect(plain(value(data, node - 1)), node, wrong);
            node = plain(value(next, node - 1));
        }
        expect(found, blocks, wrong);
    }
}

// A message to another block and its answer, in the same places.
template <fault f> __global__ void mailbox(int * flags, int * data, int * wrong) {
    int * const turn = flags + my_block() / 2 * 64;
    int * const message = value(data, my_block() / 2 * threads);
    const int side = my_block() % 2;
    look(message, me());
    for (int n = side; n < 2 * rounds; n += 2) {
        if (me() == 0) {
            while (ask(turn) != n) {
                pause();
            }
        }
        __syncthreads();
        acquire<f>();
        expect(plain(value(message, me())), n, wrong);
        *value(message, me()) = n + 1;
        release<f>();
        __syncthreads();
        if (me() == 0) {
            atomicAdd(turn, 1);
        }
    }
}

// A request and its reply in the same place, which the block that asks has never read.
template <fault f> __global__ void reply(int * flags, int * data, int * wrong) {
    int *const turn = flags + my_block() / 2 * 64, *const message = value(data, my_block() / 2 * threads);
    const bool asks = my_block() % 2 == 0;
    if (me() != 0) {
        return;
    }
    const auto pass = [=](int text) {
        *message = text;
        release<none>();
        atomicAdd(turn, 1);
    };
    if (asks) {
        pass(1);
    }
    while (ask(turn) != 1 + asks) {
        pause();
    }
    acquire<f>();
    expect(plain(message), 1 + asks, wrong);
    if (!asks) {
        pass(2);
    }
}

// Waits for a flag that block 0 sets once all others have looked at it.
enum class load { plain, block, agent, is_volatile, atomic };
template <load how> __global__ void waits_for_flag(int * flags, int *, int *) {
    if (me() != 0) {
        return;
    }
    if (my_block() == 0) {
        while (look_at(flags + 64) < blocks - 1) {
            pause();
        }
        atomicExch(flags, 1);
        return;
    }
    look(flags, 0);
    atomicAdd(flags + 64, 1);
    const auto read = [&] {
        switch (how) {
            case load::plain: return plain(flags);
            case load::block: return __hip_atomic_load(flags, relaxed, block);
            case load::agent: return look_at(flags);
            case load::is_volatile: return *static_cast<volatile int *>(flags);
            default: return ask(flags);
        }
    };
    while (read() == 0) {
        pause();
    }
}

// Loads that bypass the caches need no acquire.
__global__ void relaxed_data(int * flags, int * data, int * wrong) {
    look(data, me());
    if (me() == 0) {
        set(value(data, my_block()), my_block() + 1);
        release<none>();
        if (__hip_atomic_fetch_add(flags, 1, relaxed, agent) == blocks - 1) {
            __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
            for (int n = 0; n < blocks; ++n) {
                expect(look_at(value(data, n)), n + 1, wrong);
            }
        }
    }
}

// Parts of a line that belong to different blocks, each read only by its own.
__global__ void shared_line(int *, int * data, int * wrong) {
    for (int round = 0; round < rounds; ++round) {
        if (me() == 0) {
            expect(plain(value(data, my_block())), round, wrong);
            *value(data, my_block()) = round + 1;
        }
        __syncthreads();
    }
}

// Plain loads of what others change, checked by an atomic before they count.
__global__ void optimistic_maximum(int *, int * data, int *) {
    const int value = my_block() * threads + me();
    if (me() >= 32) {
        return;
    }
    int seen = plain(data);
    while (seen < value) {
        const int before = atomicCAS(data, seen, value);
        seen = before == seen ? value : before;
    }
}

// A scalar load after the scalar cache was invalidated, or not.
template <fault f> __global__ void scalar_load(int * flags, int * data, int * wrong) {
    const auto scalar = [&] {
        int found;
        asm volatile("s_load_b32 %0, %1, 0x0\n" WAIT_FOR_SCALAR : "=s"(found) : "s"(data) : "memory");
        return found;
    };
    (void) scalar();
    __syncthreads();
    if (me() == 0) {
        atomicAdd(flags + 64, 1);
        if (my_block() == 0) {
            while (ask(flags + 64) < blocks) {
                pause();
            }
            *data = 1;
            release<none>();
            set(flags, 1);
        }
        while (look_at(flags) == 0) {
            pause();
        }
        acquire<none>();
    }
    __syncthreads();
    if (f == none) {
        asm volatile("s_dcache_inv" : : : "memory");
    }
    if (my_block() != 0) {
        expect(scalar(), 1, wrong);
    }
}

// ---- Between the waves of a block, which may be on two CUs.

template <fault f> __global__ void wave_barrier(int *, int * data, int * wrong) {
    int * const own = value(data, my_block() * threads);
    for (int round = 1; round <= rounds; ++round) {
        look(own, me() ^ 32);
        *value(own, me()) = round;
        if (f == none) {
            __syncthreads();
        } else {
            __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
            __builtin_amdgcn_s_barrier();
        }
        expect(plain(value(own, me() ^ 32)), round, wrong);
        __syncthreads();
    }
}
template <fault f> __global__ void wave_flag(int * flags, int * data, int * wrong) {
    int *const own = value(data, my_block() * threads), *const flag = flags + my_block();
    look(own, me() % 32);
    if (me() < 32) {
        *value(own, me()) = me() + 1;
        __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
        if (me() == 0) {
            __hip_atomic_fetch_add(flag, 1, relaxed, block);
        }
    } else {
        for (int zero = 0; __hip_atomic_compare_exchange_strong(flag, &zero, 0, relaxed, relaxed, block);) {
        }
        if (f == none) {
            __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
        }
        expect(plain(value(own, me() % 32)), me() % 32 + 1, wrong);
    }
}

int main(int arguments, char ** words) {
    const std::map<std::string, kernel> all = {
        {"clean: last block", last_block<none>},
        {"last block without acquire", last_block<no_acquire>},
        {"last block without acquire, after atomic loads", last_block<no_acquire, true>},
        {"last block with an acquire at block scope", last_block<block_acquire>},
        {"last block with a counter at block scope", last_block<block_scope>},
        {"last block without release", last_block<no_release>},
        {"last block with a store after the release", last_block<store_after_release>},
        {"clean: sums", sums<none>},
        {"sums without acquire", sums<no_acquire>},
        {"clean: look back", look_back<none>},
        {"look back without acquire", look_back<no_acquire>},
        {"look back with an acquire at block scope", look_back<block_acquire>},
        {"look back without release", look_back<no_release>},
        {"clean: sends", sends<none>},
        {"sends without acquire", sends<no_acquire>},
        {"clean: spin lock", spin_lock<none>},
        {"spin lock without acquire", spin_lock<no_acquire>},
        {"spin lock with an acquire at block scope", spin_lock<block_acquire>},
        {"clean: ticket lock", ticket_lock<none>},
        {"ticket lock without acquire", ticket_lock<no_acquire>},
        {"clean: grid barrier", grid_barrier<none>},
        {"grid barrier without acquire", grid_barrier<no_acquire>},
        {"clean: grid group", grid_group},
        {"clean: work queue", work_queue<none>},
        {"work queue without acquire", work_queue<no_acquire>},
        {"clean: once", once<none>},
        {"once without acquire", once<no_acquire>},
        {"clean: stack", stack<none>},
        {"stack without acquire", stack<no_acquire>},
        {"clean: mailbox", mailbox<none>},
        {"mailbox without acquire", mailbox<no_acquire>},
        {"clean: reply", reply<none>},
        {"reply without acquire", reply<no_acquire>},
        {"clean: waits by an agent load", waits_for_flag<load::agent>},
        {"clean: waits by a volatile load", waits_for_flag<load::is_volatile>},
        {"clean: waits by an atomic", waits_for_flag<load::atomic>},
        {"waits by a plain load", waits_for_flag<load::plain>},
        {"waits by a load at block scope", waits_for_flag<load::block>},
        {"clean: relaxed data", relaxed_data},
        {"clean: shared line", shared_line},
        {"clean: optimistic maximum", optimistic_maximum},
        {"clean: scalar load", scalar_load<none>},
        {"scalar load without invalidation", scalar_load<no_acquire>},
        {"clean: wave barrier", wave_barrier<none>},
        {"wave barrier without acquire", wave_barrier<no_acquire>},
        {"clean: wave flag", wave_flag<none>},
        {"wave flag without acquire", wave_flag<no_acquire>},
    };
    return run_named(all, arguments, words);
}
