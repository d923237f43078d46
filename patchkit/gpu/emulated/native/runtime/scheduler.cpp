#include "scheduler.hpp"

#include "ending.hpp"
#include "recorder.hpp"
#include "settings.hpp"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <unordered_set>

namespace patchkit {

namespace {

thread_local bool is_running = false;

bool is_done(const operation_ref & one) { return one->is_done; }

// These operations and their dependencies, in a possible order of execution. The last request comes first, with only
// what it needs: for unordered streams, this is the least expected order.
std::vector<operation_ref> needed_for(std::vector<operation_ref> open) {
    std::vector<operation_ref> result;
    std::unordered_set<const operation *> seen, placed;
    std::sort(open.begin(), open.end(), [](const auto & a, const auto & b) { return a->number < b->number; });
    while (!open.empty()) {
        const operation_ref one = open.back();
        if (one->is_done || placed.count(one.get()) != 0) {
            open.pop_back();
        } else if (seen.insert(one.get()).second) {
            open.insert(open.end(), one->after.begin(), one->after.end());
        } else {
            open.pop_back(); // all of its dependencies were placed
            placed.insert(one.get());
            result.push_back(one);
        }
    }
    return result;
}

} // namespace

bool operation::is_ready() const { return std::all_of(after.begin(), after.end(), patchkit::is_done); }

bool runs_operation() { return is_running; }

scheduler::scheduler()
    : random_(the_schedule().seed), laziness_(random_() % 4),
      legacy_(std::make_shared<stream_state>(stream_state{hipStreamDefault, 0, {}, {}, false, {}})) {
    watch_end_of_process();
    pthread_atfork([] { the_scheduler().before_fork(); }, [] { the_scheduler().after_fork(false); },
                   [] { the_scheduler().after_fork(true); });
}

stream_ref scheduler::add_stream(unsigned flags, int priority) {
    auto made = std::make_shared<stream_state>(stream_state{flags, priority, {}, {}, false, {}});
    if (made->is_blocking()) {
        blocking_.push_back(made);
    }
    return made;
}

std::vector<operation_ref> scheduler::order_of(const stream_ref & stream) {
    std::vector<operation_ref> result;
    const auto take = [&result](const operation_ref & one) {
        if (one != nullptr && (!one->is_done || keeps_order())) {
            result.push_back(one);
        }
    };
    take(stream->last);
    if (stream != legacy_) {
        if (stream->is_blocking()) {
            take(legacy_->last);
        }
        return result;
    }
    std::vector<stream_ref> still;
    for (const stream_ref & other : blocking_) {
        take(other->last);
        if (other.use_count() > 1 || (other->last != nullptr && !other->last->is_done) ||
            !covers(legacy_->last, other->last)) {
            still.push_back(other); // still referenced, or not done yet
        }
    }
    blocking_ = std::move(still);
    return result;
}

std::vector<operation_ref> scheduler::ends_of(const stream_ref & stream) {
    if (stream == legacy_) {
        return order_of(stream);
    }
    return stream->last == nullptr ? std::vector<operation_ref>() : std::vector<operation_ref>{stream->last};
}

operation_ref scheduler::add(std::vector<operation_ref> after, work todo) {
    auto made = std::make_shared<operation>();
    made->number = next_++;
    made->todo   = std::move(todo);
    made->after  = std::move(after);
    made->when   = make_moment(made->after);
    pending_.emplace(made->number, made);
    return made;
}

void scheduler::go_on(lock & held, const operation_ref & added) {
    switch (the_schedule().how) {
        // What another thread added before is run first, as in the queue of a GPU: else a thread could run many
        // operations before one that waits gets its turn.
        case schedule_mode::in_order:
            while (!added->is_done) {
                run_or_wait(held, pending_.begin()->second);
            }
            break;
        case schedule_mode::late:     break;
        case schedule_mode::shuffle:
            while (random_() % 4 > laziness_ && run_any(held)) {
            }
            break;
    }
}

void scheduler::finish(lock & held, const std::vector<operation_ref> & wanted) {
    if (the_schedule().how == schedule_mode::shuffle) {
        while (!std::all_of(wanted.begin(), wanted.end(), is_done)) {
            run_any(held);
        }
        return;
    }
    for (const operation_ref & one : needed_for(wanted)) {
        while (!one->is_done) {
            run_or_wait(held, one);
        }
    }
}

void scheduler::finish_all(lock & held) {
    std::vector<operation_ref> all;
    for (const auto & [number, one] : pending_) {
        all.push_back(one);
    }
    finish(held, all);
}

bool scheduler::ask(lock & held, const operation_ref & one) {
    constexpr int patience = 3;
    if (one->is_done) {
        return true;
    }
    if (the_schedule().how == schedule_mode::shuffle) {
        run_any(held);
        return one->is_done;
    }
    if (++one->asked <= patience) {
        return false;
    }
    finish(held, {one});
    return true;
}

// Runs one operation that can run, or waits for the one run by another thread. Returns false if there is none.
bool scheduler::run_any(lock & held) {
    if (is_busy_) {
        wait_for_other(held);
        return true;
    }
    std::vector<operation_ref> ready;
    for (const auto & [number, one] : pending_) {
        if (one->is_ready()) {
            ready.push_back(one);
        }
    }
    if (ready.empty()) {
        return false;
    }
    run(held, ready[random_() % ready.size()]);
    return true;
}

void scheduler::run_or_wait(lock & held, const operation_ref & one) {
    if (is_busy_) {
        wait_for_other(held);
    } else {
        run(held, one);
    }
}

void scheduler::wait_for_other(lock & held) {
    if (is_cut_off_) {
        fault("this process was forked while another thread ran a kernel, a copy or a host function of a stream, "
              "so it would wait forever for that thread");
    }
    changed_.wait(held);
}

void scheduler::after_fork(bool is_child) {
    if (is_child) {
        is_inherited_ = true;
        is_cut_off_   = is_busy_ && !is_running;
        new (&changed_) std::condition_variable; // threads that waited for the old one do not exist here
    }
    mutex_.unlock();
}

// Other threads may add operations meanwhile, but only one runs at a time.
void scheduler::run(lock & held, const operation_ref & one) {
    is_busy_ = true;
    held.unlock();
    is_running = true;
    begin_operation(one->when);
    try {
        one->todo();
    } catch (const std::exception & error) {
        fault(error.what());
    }
    end_operation();
    is_running = false;
    held.lock();
    is_busy_     = false;
    one->is_done = true;
    last_done_   = std::max(std::chrono::steady_clock::now(), last_done_ + std::chrono::nanoseconds(1));
    one->done_at = last_done_;
    one->todo    = nullptr;
    one->after.clear();
    pending_.erase(one->number);
    changed_.notify_all();
}

// Used in destructors of other libraries, so it is never destroyed.
scheduler & the_scheduler() {
    static auto * made = new scheduler;
    return *made;
}

bool is_inherited() { return the_scheduler().is_inherited(); }
} // namespace patchkit
