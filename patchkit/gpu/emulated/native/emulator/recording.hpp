// What sampled blocks of a launch execute, written to a file: for models of how long a GPU takes for it.
//
// A file per launch, N.trace by the order of launches. First lines of text:
//
//   patchkit-trace 4
//   kernel NAME
//   grid X Y Z              in blocks
//   block X Y Z             in threads
//   vgprs N / lds BYTES / scratch BYTES (of a lane)
//   sampled N N N           the numbers of the sampled blocks, x first
//   at NUMBER OFFSET WHERE STORE SIZE QUEUES WAITS READS WRITES TEXT
//                           an instruction: OFFSET in bytes, counted through all functions; WHERE is none, global, flat, lds, scratch or scalar; STORE 0 or 1; SIZE in
//                           bytes of one access of a lane; QUEUES (table.hpp) that it goes into; WAITS
//                           QUEUES:LEFT+QUEUES:LEFT; registers as v1,v2,s0 or -
//   again NUMBER LINES HELD of the LINES that this instruction touches in some blocks behind those that were seen, each
//                           once in a block, these had touched HELD
//   blocks N                sampled blocks
//   seen N                  blocks of which only the memory is known
//   end
//
// and then 32-bit words: of each sampled block its index (x, y, z) and number of waves, of each wave the number of spans,
// spans (first and last instruction that ran one after the other), the number of words about accesses, and these, in
// the order of execution: of LDS one word, the clocks that its banks need; of other memory lanes << 16 | lines and two
// words for each line of 128 bytes. Of each block that was seen the number of its lines, and two words for each.
#pragma once

#include "program.hpp"

#include <mutex>
#include <string>
#include <vector>

namespace patchkit::gpu {

// Blocks that are recorded of a launch. Of those that a GPU holds at once, `held` on each of `multiprocessors`, but not of
// more than `seen`, the memory: that tells what they share, and which channels of its memory they ask at the same time.
// Whole are those that begin on one multiprocessor, as these go out in turn; where they are fewer than 6 also some of others;
// `sampled` at most. They are written in the order of their numbers. Of the blocks behind those that are seen `later` run,
// too, spread evenly: they tell what comes again.
struct sample {
    u32 sampled, seen, later, multiprocessors;
    u64 held;
};

enum class chosen_as : u8 { sampled, seen, later };

// Of a wave of a sampled block.
struct wave_record {
    std::vector<u32> spans, accesses;
};

struct block_record {
    u64 index = 0;
    chosen_as as = chosen_as::seen; // of which only the memory is kept
    std::vector<wave_record> waves;
};

// Which blocks of a launch run, and what became of them.
class launch_record {
  public:
    launch_record(const sample & wanted, u64 blocks);

    u64 count() const { return chosen.size(); }
    u64 index_of(u64 number) const { return chosen[number].first; }
    chosen_as role_of(u64 number) const { return chosen[number].second; }
    void add(block_record && made); // by several threads

    // Throws kernel_fault when the file cannot be written.
    void write(const std::string & path, const launch & of, u32 lds, u32 scratch, library & code);

  private:
    std::vector<std::pair<u64, chosen_as>> chosen;
    std::vector<block_record> made;
    std::mutex mutex;

    std::string what_comes_again(const library & code) const; // lines of text of the file
};

// A step before each instruction that goes to memory, which notes where.
class recorder final : public observer {
  public:
    handler before(const facts & known) const override;
    bool keeps_facts() const override { return true; }
};

} // namespace patchkit::gpu
