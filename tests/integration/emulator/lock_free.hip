// Programs, by name, whose blocks pass data to each other by the memory orders of C++: correct ones, and the same
// without acquire. Prints whether a value was wrong.
#include "passed_data.hpp"

constexpr int acquires = __ATOMIC_ACQUIRE, releases = __ATOMIC_RELEASE, in_order = __ATOMIC_SEQ_CST;

// How a block waits for a flag: without acquire, by loads with acquire, or by atomics that change nothing and a fence.
enum acquire { none, by_load, by_atomic };

// The order of an atomic that receives data.
template <acquire a> constexpr int receives = a != none ? __ATOMIC_ACQ_REL : releases;

__device__ void leave(int * flag, int value) { __hip_atomic_store(flag, value, releases, agent); }

template <acquire a, class F> __device__ int wait_until(int * flag, F is_there) {
    for (;;) {
        const int found = a == by_load ? __hip_atomic_load(flag, acquires, agent) : ask(flag);
        if (is_there(found)) {
            if (a == by_atomic) {
                __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
            }
            return found;
        }
        pause();
    }
}
template <acquire a> __device__ void wait_for(int * flag, int least) {
    wait_until<a>(flag, [=](int found) { return found >= least; });
}
template <acquire a> __device__ bool change(int * flag, int & from, int to) {
    return __hip_atomic_compare_exchange_strong(flag, &from, to, receives<a>, relaxed, agent);
}
template <acquire a> __device__ int add(int * flag, int n = 1) {
    return __hip_atomic_fetch_add(flag, n, receives<a>, agent);
}

// ---- Sums and scans

// The last block of each group adds up its group, and the last of these adds up the groups.
template <acquire a> __global__ void two_levels(int * flags, int * data, int * wrong) {
    constexpr int size = 8;
    __shared__ int is_last;
    int *const own = value(data, my_block() / size * size), *const sums = value(data, blocks);
    look(own, me() % size);
    look(sums, me() % (blocks / size));
    if (me() == 0) {
        *value(data, my_block()) = my_block() + 1;
        is_last = add<a>(&flags[my_block() / size]) == size - 1;
    }
    __syncthreads();
    if (is_last == 0 || me() != 0) {
        return;
    }
    int sum = 0;
    for (int n = 0; n < size; ++n) {
        sum += plain(value(own, n));
    }
    *value(sums, my_block() / size) = sum;
    if (add<a>(&flags[blocks]) == blocks / size - 1) {
        int total = 0;
        for (int n = 0; n < blocks / size; ++n) {
            total += plain(value(sums, n));
        }
        expect(total, blocks * (blocks + 1) / 2, wrong);
    }
}

// Each block adds up the sums of those before it, until it finds a prefix.
template <acquire a> __global__ void decoupled_look_back(int * flags, int * data, int * wrong) {
    constexpr int has_sum = 1, has_prefix = 2;
    int *const sums = data, *const prefixes = value(data, blocks);
    look(sums, me());
    look(prefixes, me());
    if (me() != 0) {
        return;
    }
    *value(sums, my_block()) = my_block() + 1;
    leave(&flags[my_block()], has_sum);
    int before = 0;
    for (int at = my_block() - 1; at >= 0; --at) {
        const int state = wait_until<a>(&flags[at], [](int found) { return found != 0; });
        before += plain(value(state == has_prefix ? prefixes : sums, at));
        if (state == has_prefix) {
            break;
        }
    }
    expect(before, my_block() * (my_block() + 1) / 2, wrong);
    *value(prefixes, my_block()) = before + my_block() + 1;
    leave(&flags[my_block()], has_prefix);
}

// The same with the state and the sum in one word, which needs no order.
__global__ void packed_look_back(int * flags, int *, int * wrong) {
    if (me() != 0) {
        return;
    }
    auto * const words = reinterpret_cast<unsigned long long *>(flags);
    const auto put = [=](unsigned long long sum, unsigned state) {
        __hip_atomic_store(&words[my_block()], sum << 2 | state, relaxed, agent);
    };
    put(my_block() + 1, 1);
    int before = 0;
    for (int at = my_block() - 1; at >= 0;) {
        const auto found = __hip_atomic_load(&words[at], relaxed, agent);
        before += int(found >> 2);
        at = (found & 3) == 2 ? -1 : at - int(found & 3);
    }
    expect(before, my_block() * (my_block() + 1) / 2, wrong);
    put(before + my_block() + 1, 2);
}

// Tiles that are split along K: the first block of a tile adds what the others left.
template <acquire a> __global__ void stream_k(int * flags, int * data, int * wrong) {
    constexpr int parts = 4;
    const auto part = [=](int of) { return value(data, of * threads + me()); };
    if (my_block() % parts != 0) {
        while (look_at(&flags[blocks + my_block() / parts]) == 0) { // so that the first has looked
            pause();
        }
        *part(my_block()) = my_block();
        __syncthreads();
        if (me() == 0) {
            leave(&flags[my_block()], 1);
        }
        return;
    }
    for (int n = 1; n < parts; ++n) {
        (void) plain(part(my_block() + n) + 1);
    }
    __syncthreads();
    set(&flags[blocks + my_block() / parts], 1);
    int sum = my_block();
    for (int n = 1; n < parts; ++n) {
        if (me() == 0) {
            wait_for<a>(&flags[my_block() + n], 1);
        }
        __syncthreads();
        sum += plain(part(my_block() + n));
    }
    expect(sum, parts * my_block() + parts * (parts - 1) / 2, wrong);
}

// Rows of a triangular system: each lane waits for one of the four rows before.
template <acquire a> __global__ void triangular(int * flags, int * data, int * wrong) {
    constexpr int width = 4, modulus = 1000;
    __shared__ int sum;
    look(data, me());
    if (me() == 0) {
        sum = 1;
    }
    __syncthreads();
    const int row = my_block() - 1 - me();
    if (me() < width && row >= 0) {
        wait_for<a>(&flags[row], 1);
        atomicAdd(&sum, plain(value(data, row)));
    }
    __syncthreads();
    if (me() != 0) {
        return;
    }
    int rows[width]{};
    for (int n = 0; n <= my_block(); ++n) {
        rows[n % width] = (1 + rows[0] + rows[1] + rows[2] + rows[3]) % modulus;
    }
    expect(sum % modulus, rows[my_block() % width], wrong);
    *value(data, my_block()) = sum % modulus;
    leave(&flags[my_block()], 1);
}

// ---- Locks

// Each block waits at its own flag, and passes the lock on to the next in the queue.
template <acquire a> __global__ void queue_lock(int * flags, int * data, int *) {
    int *const last = flags, *const next = flags + blocks, *const waits = next + 2 * blocks;
    const int own = my_block() + 1;
    look(data, 0);
    for (int round = 0; me() == 0 && round < rounds; ++round) {
        set(&next[own], 0);
        set(&waits[own], 1);
        const int before = __hip_atomic_exchange(last, own, receives<a>, agent);
        if (before != 0) {
            leave(&next[before], own);
            wait_until<a>(&waits[own], [](int found) { return found == 0; });
        }
        *data = plain(data) + 1;
        int expected = own;
        if (!__hip_atomic_compare_exchange_strong(last, &expected, 0, releases, relaxed, agent)) {
            int follower = 0;
            while ((follower = look_at(&next[own])) == 0) {
                pause();
            }
            leave(&waits[follower], 0);
        }
    }
}

// Two values that are the same whenever no writer holds the lock; one block of three writes.
template <acquire a> __global__ void readers_and_writers(int * flags, int * data, int * wrong) {
    constexpr int writers = 3;
    int *const one = data, *const other = value(data, threads);
    look(one, 0);
    look(other, 0);
    if (me() != 0) {
        return;
    }
    for (int round = 0; round < rounds; ++round) {
        const bool writes = my_block() % writers == 0;
        for (;;) {
            int readers = writes ? 0 : look_at(flags);
            if (readers >= 0 && change<a>(flags, readers, writes ? -1 : readers + 1)) {
                break;
            }
            pause();
        }
        const int found = plain(one);
        expect(plain(other), found, wrong);
        if (writes) {
            *one = found + 1;
            *other = found + 1;
            leave(flags, 0);
        } else {
            __hip_atomic_fetch_add(flags, -1, releases, agent);
        }
    }
    if (add<a>(flags + blocks) == blocks - 1) {
        expect(look_at(one), rounds * ((blocks + writers - 1) / writers), wrong);
    }
}

// Peterson's lock. The turn is set by an exchange: both blocks store it in no order, and on these GPUs an atomic store
// looks like a plain one.
template <acquire a> __global__ void lock_for_two(int * flags, int * data, int * wrong) {
    const int pair = my_block() / 2, side = my_block() % 2;
    int *const wants = flags + pair * threads, *const turn = wants + 2, *const looked = wants + 4;
    int * const count = value(data, pair * threads);
    look(count, 0);
    if (me() != 0) {
        return;
    }
    for (set(&looked[side], 1); look_at(&looked[1 - side]) == 0;) {
        pause();
    }
    constexpr int in_turn = a != none ? in_order : releases;
    const auto found = [](int * flag) { return a == by_load ? __hip_atomic_load(flag, in_order, agent) : ask(flag); };
    for (int round = 0; round < rounds; ++round) {
        __hip_atomic_store(&wants[side], 1, in_order, agent);
        __hip_atomic_exchange(turn, 1 - side, in_turn, agent);
        while (found(&wants[1 - side]) == 1 && found(turn) == 1 - side) {
            pause();
        }
        *count = plain(count) + 1;
        __hip_atomic_store(&wants[side], 0, in_order, agent);
    }
    if (add<a>(turn + 1) == 1) {
        expect(look_at(count), 2 * rounds, wrong);
    }
}

// ---- Barriers of the grid

// What each block left before the barrier is there for one that is `far` blocks away after it.
template <class F> __device__ void exchange_at(F meet, int far, int * data, int * wrong) {
    const int own = my_block() * threads + me(), other = (my_block() + far) % blocks * threads + me();
    for (int round = 1; round <= rounds; ++round) {
        look(data, other);
        meet(2 * round - 1);
        *value(data, own) = round;
        meet(2 * round);
        expect(plain(value(data, other)), round, wrong);
    }
}

// The last one opens the barrier for all.
template <acquire a> __global__ void barrier_with_sense(int * flags, int * data, int * wrong) {
    exchange_at(
        [=](int phase) {
            __syncthreads();
            if (me() == 0) {
                if (add<a>(flags) == blocks - 1) {
                    set(flags, 0);
                    leave(flags + blocks, phase);
                } else {
                    wait_for<a>(flags + blocks, phase);
                }
            }
            __syncthreads();
        },
        1, data, wrong);
}

// In step n each block meets those 2^n before and behind it. Most blocks know of each other by way of others only.
template <acquire a> __global__ void barrier_in_steps(int * flags, int * data, int * wrong) {
    exchange_at(
        [=](int phase) {
            __syncthreads();
            for (int step = 0; me() == 0 && 1 << step < blocks; ++step) {
                leave(&flags[step * blocks + (my_block() + (1 << step)) % blocks], phase);
                wait_for<a>(&flags[step * blocks + my_block()], phase);
            }
            __syncthreads();
        },
        21, data, wrong);
}

// Steps of a stencil: a block waits for its neighbours only.
template <acquire a> __global__ void neighbours(int * flags, int * data, int * wrong) {
    const int sides[] = {(my_block() + blocks - 1) % blocks, (my_block() + 1) % blocks};
    for (int step = 1; step <= rounds; ++step) {
        int *const to = value(data, step % 2 * blocks * threads), *const from = value(data, (step - 1) % 2 * blocks * threads);
        if (me() == 0) {
            for (const int side : sides) {
                wait_for<a>(&flags[side], step - 1);
            }
        }
        __syncthreads();
        for (const int side : sides) {
            expect(plain(value(from, side * threads + me())), step - 1, wrong);
        }
        *value(to, my_block() * threads + me()) = step;
        __syncthreads();
        if (me() == 0) {
            leave(&flags[my_block()], step);
        }
    }
}

// ---- Queues and tables

// One producer and one consumer for each ring.
template <acquire a> __global__ void ring(int * flags, int * data, int * wrong) {
    constexpr int slots = 4, items = 10;
    const int pair = my_block() / 2;
    int *const filled = flags + pair * threads, *const emptied = filled + threads / 2;
    for (int n = 0; n < items; ++n) {
        int * const slot = value(data, (pair * slots + n % slots) * threads + me());
        const bool produces = my_block() % 2 == 0;
        if (me() == 0) {
            wait_for<a>(produces ? emptied : filled, produces ? n - slots + 1 : n + 1);
        }
        __syncthreads();
        if (produces) {
            *slot = n + 1;
        } else {
            expect(plain(slot), n + 1, wrong);
        }
        __syncthreads();
        if (me() == 0) {
            leave(produces ? filled : emptied, n + 1);
        }
    }
}

// One queue for all: each cell says whose turn it is.
template <acquire a> __global__ void cells(int * flags, int * data, int * wrong) {
    constexpr int size = 8;
    int * const turns = flags + blocks;
    look(data, me() % size);
    for (int round = 0; me() == 0 && round < rounds; ++round) {
        const int side = my_block() % 2, n = __hip_atomic_fetch_add(&flags[side], 1, relaxed, agent);
        int *const turn = &turns[n % size], *const cell = value(data, n % size);
        wait_for<a>(turn, n / size * 2 + side);
        if (side == 0) {
            *cell = n + 1;
        } else {
            expect(plain(cell), n + 1, wrong);
        }
        leave(turn, n / size * 2 + side + 1);
    }
}

// All push, then all pop.
template <acquire a> __global__ void pops(int * flags, int * data, int * wrong) {
    int *const next = value(data, threads), *const pushed = flags + blocks;
    look(data, me());
    look(next, me());
    if (me() != 0) {
        return;
    }
    const int own = my_block() + 1;
    *value(data, my_block()) = own;
    int head = look_at(flags);
    do {
        *value(next, my_block()) = head;
    } while (!change<a>(flags, head, own));
    add<a>(pushed);
    wait_for<a>(pushed, blocks);
    head = a != none ? __hip_atomic_load(flags, acquires, agent) : ask(flags);
    while (head != 0 && !change<a>(flags, head, plain(value(next, head - 1)))) {
    }
    expect(head == 0 ? 0 : plain(value(data, head - 1)), head == 0 ? 1 : head, wrong);
}

// A key is claimed by compare-and-swap, and then its value is published.
template <acquire a> __global__ void hash_table(int * flags, int * data, int * wrong) {
    constexpr int size = 128;
    int *const keys = flags, *const ready = flags + size;
    const auto key_of = [](int of) { return of * 37 + 1; };
    look(data, me());
    look(data, me() + threads);
    if (me() != 0) {
        return;
    }
    const int own = key_of(my_block());
    int slot = own * 11 % size;
    while (atomicCAS(&keys[slot], 0, own) != 0) {
        slot = (slot + 1) % size;
    }
    *value(data, slot) = 3 * own;
    leave(&ready[slot], 1);
    for (int n = 1; n <= rounds; ++n) {
        const int wanted = key_of((my_block() + n) % blocks);
        for (slot = wanted * 11 % size;;) {
            const int found = look_at(&keys[slot]);
            if (found == wanted) {
                break;
            }
            slot = found == 0 ? wanted * 11 % size : (slot + 1) % size;
            pause();
        }
        wait_for<a>(&ready[slot], 1);
        expect(plain(value(data, slot)), 3 * wanted, wrong);
    }
}

// One block of eight pushes tasks at the bottom of its deque and pops them there; the others steal at the top.
template <acquire a> __global__ void stealing(int * flags, int * data, int * wrong) {
    constexpr int group = 8, tasks = 16, no_task = -1;
    const int deque = my_block() / group;
    int * const own = flags + deque * blocks;
    int *const top = own, *const bottom = own + 1, *const done = own + 2, *const ready = own + 3;
    int *const slots = own + 8, *const taken = slots + tasks, *const work = value(data, deque * tasks);
    look(work, me() % tasks);
    if (me() != 0) {
        return;
    }
    const auto fence = [] {
        if (a != none) {
            __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent");
        } else {
            __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
        }
    };
    const auto found = [](int * flag) { return a == by_load ? __hip_atomic_load(flag, acquires, agent) : ask(flag); };
    const auto run = [=](int task) {
        expect(plain(value(work, task)), task + 1, wrong);
        expect(__hip_atomic_fetch_add(&taken[task], 1, relaxed, agent), 0, wrong);
        __hip_atomic_fetch_add(done, 1, relaxed, agent);
    };
    if (my_block() % group != 0) {
        __hip_atomic_fetch_add(ready, 1, relaxed, agent);
        while (look_at(done) < tasks) {
            int from = found(top);
            fence();
            if (from < found(bottom)) {
                const int task = look_at(&slots[from]);
                if (__hip_atomic_compare_exchange_strong(top, &from, from + 1, a != none ? in_order : releases, relaxed, agent)) {
                    run(task);
                }
            }
            pause();
        }
        return;
    }
    while (look_at(ready) < group - 1) { // so that all have looked
        pause();
    }
    for (int n = 0; n < tasks; ++n) {
        *value(work, n) = n + 1;
        set(&slots[n], n);
        leave(bottom, n + 1);
    }
    while (look_at(done) < tasks - 2) { // so that most are stolen
        pause();
    }
    for (int task = 0; task != no_task;) {
        const int at = look_at(bottom) - 1;
        set(bottom, at);
        fence();
        int from = look_at(top);
        task = from <= at ? look_at(&slots[at]) : no_task;
        if (from >= at) {
            if (from == at && !__hip_atomic_compare_exchange_strong(top, &from, from + 1, in_order, relaxed, agent)) {
                task = no_task;
            }
            set(bottom, at + 1);
        }
        if (task != no_task) {
            run(task);
        }
    }
}

// ---- Flags

// Readers repeat what a writer disturbed.
__global__ void sequence_lock(int * flags, int * data, int * wrong) {
    int *const one = data, *const other = value(data, threads);
    if (me() != 0) {
        return;
    }
    if (my_block() == 0) {
        for (int n = 1; n <= rounds; ++n) {
            set(flags, 2 * n - 1);
            __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
            set(one, n);
            pause();
            set(other, n);
            leave(flags, 2 * n);
            pause();
        }
        return;
    }
    for (int before = 0, after = -1; before < 2 * rounds || before != after;) {
        before = __hip_atomic_load(flags, acquires, agent);
        const int first = look_at(one), second = look_at(other);
        __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
        after = look_at(flags);
        if (before == after && before % 2 == 0) {
            expect(first, before / 2, wrong);
            expect(second, before / 2, wrong);
        }
        pause();
    }
}

// Volatile flags and __threadfence(), as before there were orders.
__global__ void volatile_flags(int * flags, int * data, int * wrong) {
    const int from = my_block() - 1;
    look(data, me());
    if (me() != 0) {
        return;
    }
    volatile int * const all = flags;
    if (from >= 0) {
        while (all[from] == 0) {
        }
        __threadfence();
        expect(plain(value(data, from)), my_block(), wrong);
    }
    *value(data, my_block()) = my_block() + 1;
    __threadfence();
    all[my_block()] = 1;
}

// The scope of the system is more than enough.
__global__ void system_flags(int * flags, int * data, int * wrong) {
    constexpr int all = __HIP_MEMORY_SCOPE_SYSTEM;
    const int from = my_block() - 1;
    look(data, me());
    if (me() != 0) {
        return;
    }
    if (from >= 0) {
        while (__hip_atomic_load(&flags[from], acquires, all) == 0) {
            pause();
        }
        expect(plain(value(data, from)), my_block(), wrong);
    }
    *value(data, my_block()) = my_block() + 1;
    __hip_atomic_store(&flags[my_block()], 1, releases, all);
}

// A wave leaves values in memory for another of its block, which waits for a flag in LDS.
template <acquire a> __global__ void flag_in_lds(int *, int * data, int * wrong) {
    __shared__ int flag;
    int * const own = value(data, my_block() * threads);
    if (me() == 0) {
        flag = 0;
    }
    look(own, me() % 32);
    __syncthreads();
    look(own, me() % 32); // the barrier has invalidated L0
    __builtin_amdgcn_s_barrier();
    if (me() < 32) {
        *value(own, me()) = me() + 1;
        __hip_atomic_fetch_add(&flag, 1, releases, block);
        return;
    }
    while (__hip_atomic_fetch_add(&flag, 0, a != none ? acquires : relaxed, block) < 32) {
    }
    expect(plain(value(own, me() % 32)), me() % 32 + 1, wrong);
}

// One block sets a counter while the others add to it without looking at it, so it is no flag.
__global__ void store_among_atomics(int * flags, int * data, int *) {
    int * const own = value(data, my_block() * threads + me());
    *own = plain(own) + 1;
    __syncthreads();
    if (me() == 0) {
        if (my_block() == blocks - 1) {
            *flags = 0;
        } else {
            atomicAdd(flags, 1);
        }
    }
}

int main(int arguments, char ** words) {
    const std::map<std::string, kernel> all = {
        {"clean: two levels", two_levels<by_load>},
        {"two levels without acquire", two_levels<none>},
        {"clean: decoupled look-back", decoupled_look_back<by_load>},
        {"clean: decoupled look-back by atomics", decoupled_look_back<by_atomic>},
        {"decoupled look-back without acquire", decoupled_look_back<none>},
        {"clean: packed look-back", packed_look_back},
        {"clean: stream-k", stream_k<by_load>},
        {"clean: stream-k by atomics", stream_k<by_atomic>},
        {"stream-k without acquire", stream_k<none>},
        {"clean: triangular", triangular<by_load>},
        {"clean: triangular by atomics", triangular<by_atomic>},
        {"triangular without acquire", triangular<none>},
        {"clean: queue lock", queue_lock<by_load>},
        {"clean: queue lock by atomics", queue_lock<by_atomic>},
        {"queue lock without acquire", queue_lock<none>},
        {"clean: readers and writers", readers_and_writers<by_load>},
        {"readers and writers without acquire", readers_and_writers<none>},
        {"clean: two take turns", lock_for_two<by_load>},
        {"two take turns without acquire", lock_for_two<none>},
        {"clean: barrier with sense", barrier_with_sense<by_load>},
        {"clean: barrier with sense by atomics", barrier_with_sense<by_atomic>},
        {"barrier with sense without acquire", barrier_with_sense<none>},
        {"clean: barrier in steps", barrier_in_steps<by_load>},
        {"clean: barrier in steps by atomics", barrier_in_steps<by_atomic>},
        {"barrier in steps without acquire", barrier_in_steps<none>},
        {"clean: neighbours", neighbours<by_load>},
        {"clean: neighbours by atomics", neighbours<by_atomic>},
        {"neighbours without acquire", neighbours<none>},
        {"clean: ring", ring<by_load>},
        {"clean: ring by atomics", ring<by_atomic>},
        {"ring without acquire", ring<none>},
        {"clean: cells", cells<by_load>},
        {"clean: cells by atomics", cells<by_atomic>},
        {"cells without acquire", cells<none>},
        {"clean: pops", pops<by_load>},
        {"clean: pops by atomics", pops<by_atomic>},
        {"pops without acquire", pops<none>},
        {"clean: hash table", hash_table<by_load>},
        {"clean: hash table by atomics", hash_table<by_atomic>},
        {"hash table without acquire", hash_table<none>},
        {"clean: stealing", stealing<by_load>},
        {"stealing without acquire", stealing<none>},
        {"clean: seqlock", sequence_lock},
        {"clean: volatile flags", volatile_flags},
        {"clean: system flags", system_flags},
        {"clean: flag in LDS", flag_in_lds<by_load>},
        {"flag in LDS without acquire", flag_in_lds<none>},
        {"store among atomics", store_among_atomics},
    };
    return run_named(all, arguments, words);
}
