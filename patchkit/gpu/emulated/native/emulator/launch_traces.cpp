#include "launch_traces.hpp"

#include <algorithm>

namespace patchkit::gpu {

namespace {

constexpr u32 first_of_block = u32(1) << 31;

// Kernels with more signals have an order that cannot be computed in reasonable time.
constexpr u64 most_signs = u64(1) << 23;
constexpr size_t most_followed = 4096;

} // namespace

u32 launch_traces::draw(u32 block, bool is_first) {
    const std::lock_guard<std::mutex> guard(mutex);
    if (order.next->load(std::memory_order_relaxed) >= most_numbers) {
        is_over = true;
        return 0;
    }
    const u32 who = order.next->fetch_add(1, std::memory_order_relaxed);
    owners.resize(std::max<size_t>(owners.size(), who - order.first + 1));
    owners[who - order.first] = block | (is_first ? first_of_block : 0);
    return who;
}

u32 launch_traces::block_of(u32 who) {
    const std::lock_guard<std::mutex> guard(mutex);
    return owners[who - order.first] & ~first_of_block;
}

bool launch_traces::is_first_of_block(u32 who) {
    const std::lock_guard<std::mutex> guard(mutex);
    return (owners[who - order.first] & first_of_block) != 0;
}

void launch_traces::give_sign(u64 place, u32 block, u32 bound) {
    const std::lock_guard<std::mutex> guard(mutex);
    if (is_over || ((owners[bound - order.first] & first_of_block) != 0 && !known.contains(block))) {
        return; // no information
    }
    meeting_place & here = places[place];
    std::vector<std::pair<size_t, u32>> & own = here.of_block[block];
    if (!own.empty() && own.back().second == bound) {
        return;
    }
    own.emplace_back(here.signs.size(), bound);
    here.signs.push_back({block, bound});
    signs += 1;
    is_over |= signs > most_signs;
    meetings.store(places.size(), std::memory_order_relaxed);
}

void launch_traces::note_poll(u64 place) {
    const std::lock_guard<std::mutex> guard(mutex);
    if (polled.size() < most_followed) {
        polled.insert(place);
    }
}

bool launch_traces::is_polled(u64 place) {
    const std::lock_guard<std::mutex> guard(mutex);
    return polled.contains(place);
}

void launch_traces::see_signs(u64 place, u32 block) {
    const std::lock_guard<std::mutex> guard(mutex);
    const auto found = places.find(place);
    if (found != places.end()) {
        known[block].places[&found->second] = found->second.signs.size();
    }
}

void launch_traces::see_store(u32 block, u32 who) {
    const std::lock_guard<std::mutex> guard(mutex);
    u32 & bound = known[block].blocks[owners[who - order.first] & ~first_of_block];
    bound = std::max(bound, who);
}

bool launch_traces::knows(u32 block, u32 who, bool is_read, bool otherwise) {
    const std::lock_guard<std::mutex> guard(mutex);
    if (is_over) {
        return otherwise;
    }
    const u32 wanted = owners[who - order.first] & ~first_of_block;
    const auto suffices = [&](u32 bound) { return is_read ? bound >= who : bound > who; };
    const auto says_so = [&](const knowledge & of) {
        const auto direct = of.blocks.find(wanted);
        if (direct != of.blocks.end() && suffices(direct->second)) {
            return true;
        }
        return std::any_of(of.places.begin(), of.places.end(), [&](const auto & one) {
            const auto own = one.first->of_block.find(wanted);
            return own != one.first->of_block.end() &&
                   std::any_of(own->second.begin(), own->second.end(), [&](const auto & sign) {
                       return sign.first < one.second && suffices(sign.second);
                   });
        });
    };
    // Knowledge is transitive over observed signals.
    std::vector<u32> open{block};
    std::unordered_set<u32> seen{block};
    for (size_t n = 0; n < open.size(); ++n) {
        if (open.size() > most_followed) {
            return otherwise;
        }
        const auto found = known.find(open[n]);
        if (found == known.end()) {
            continue;
        }
        if (says_so(found->second)) {
            u32 & bound = known[block].blocks[wanted]; // it is looked up again
            bound = std::max(bound, is_read ? who : who + 1);
            return true;
        }
        const auto follow = [&](u32 other) {
            if (known.contains(other) && seen.insert(other).second) {
                open.push_back(other);
            }
        };
        for (const auto & [other, bound] : found->second.blocks) {
            follow(other);
        }
        for (const auto & [place, count] : found->second.places) {
            for (size_t k = 0; k < count && open.size() <= most_followed; ++k) {
                follow(place->signs[k].block);
            }
        }
    }
    return false;
}

void block_traces::begin(launch_traces * of, u32 number, u32 waves) {
    all = of;
    if (all == nullptr) {
        return;
    }
    block = number;
    run = previous = who = since = all->draw(block, true);
    epoch = waves > 1 ? 1 : untracked;
    needs_number = false;
    is_touching = has_waited = false;
    unwaited = 0;
    last_atomic = ~0u;
    atomics.clear();
    noticed.clear();
    noticed_at.clear();
    looked_at.clear();
    flags.clear();
}

void block_traces::know_what_was_noticed() {
    for (const u32 other : noticed) {
        all->see_store(block, other);
    }
    for (const u64 place : noticed_at) {
        all->see_signs(place, block);
    }
    noticed.clear();
    noticed_at.clear();
}

void block_traces::pass_barrier(bool is_spread) {
    if (all != nullptr) {
        unwaited = is_spread ? unwaited : 0;
        has_waited |= unwaited == 0;
        know_what_was_noticed();
        if (epoch != untracked) {
            epoch = epoch % most_epochs + 1;
            needs_number |= epoch == 1;
            since = who;
            barriers += 1;
        }
    }
}

} // namespace patchkit::gpu
