// Records what sampled blocks of a launch execute, as input for the timing model.
//
// One file per launch, N.trace in launch order. It starts with lines of text:
//
//   patchkit-trace 4
//   kernel NAME
//   grid X Y Z              in blocks
//   block X Y Z             in threads
//   vgprs N / lds BYTES / scratch BYTES (of a lane)
//   sampled N N N           the numbers of the sampled blocks, x first
//   at NUMBER OFFSET WHERE STORE SIZE QUEUES WAITS READS WRITES TEXT
//                           an instruction: OFFSET in bytes, counted through all functions; WHERE is none, global,
//                           flat, lds, scratch or scalar; STORE 0 or 1; SIZE in bytes per lane and access; QUEUES
//                           (table.hpp) that it enters; WAITS as QUEUES:LEFT+QUEUES:LEFT; registers as v1,v2,s0 or -
//   again NUMBER LINES HELD of the LINES that this instruction accesses in some later blocks (after those seen; each
//                           counted once per block), HELD were accessed by the blocks seen
//   blocks N                sampled blocks
//   seen N                  blocks of which only the memory accesses are recorded
//   end
//
// followed by 32-bit words: per sampled block its index (x, y, z) and number of waves; per wave the number of spans,
// the spans (first and last instruction of a straight-line run), the number of words about accesses, and these words in
// execution order. For LDS, one word: the clocks that its banks need. For other memory, lanes << 16 | lines, and two
// words per line of 128 bytes. Per seen block the number of its lines, and two words per line.
#pragma once

#include "program.hpp"

#include <mutex>
#include <string>
#include <vector>

namespace patchkit::gpu {

// Selection of blocks to record. Of the blocks that a GPU holds at once (`held` on each of `multiprocessors`), but at
// most `seen`, the memory accesses are recorded: these show what blocks share, and which memory channels they access at
// the same time. Recorded completely are those that start on one multiprocessor (blocks are distributed round-robin)
// and, if these are fewer than 6, some others; at most `sampled`. They are written in the order of their numbers.
// `later` blocks, evenly spaced after the seen ones, also run: they show which data is accessed again.
struct sample {
    u32 sampled, seen, later, multiprocessors;
    u64 held;
};

enum class chosen_as : u8 { sampled, seen, later };

// One wave of a sampled block.
struct wave_record {
    std::vector<u32> spans, accesses;
};

struct block_record {
    u64 index = 0;
    chosen_as as = chosen_as::seen; // only memory accesses are kept
    std::vector<wave_record> waves;
};

// Which blocks of a launch run, and their records.
class launch_record {
  public:
    launch_record(const sample & wanted, u64 blocks);

    u64 count() const { return chosen.size(); }
    u64 index_of(u64 number) const { return chosen[number].first; }
    chosen_as role_of(u64 number) const { return chosen[number].second; }
    void add(block_record && made); // called concurrently

    // Throws kernel_fault if the file cannot be written.
    void write(const std::string & path, const launch & of, u32 lds, u32 scratch, library & code);

  private:
    std::vector<std::pair<u64, chosen_as>> chosen;
    std::vector<block_record> made;
    std::mutex mutex;

    std::string what_comes_again(const library & code) const; // lines of text for the file
};

// A step before each memory instruction that records its addresses.
class recorder final : public observer {
  public:
    handler before(const facts & known) const override;
    bool keeps_facts() const override { return true; }
};

} // namespace patchkit::gpu
