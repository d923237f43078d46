// What the files of the launch recorder share: the device it plays, and the log it writes.
//
// The recorder stands where a HIP runtime would: a real host build of the HIP backend loads it, asks for
// the device, allocates, copies and launches. Nothing is computed. Three variables configure it:
//   PATCHKIT_RECORDER_DEVICE   file of "name value" lines, what the device is (required)
//   PATCHKIT_RECORDER_KERNELS  file of "mangled-name vgprs static-lds" lines, what kernels use (optional)
//   PATCHKIT_RECORDER_LOG      file the launches are appended to, one JSON object per line (required)
//   PATCHKIT_RECORDER_TRACE    when set, executed basic blocks of instrumented units are logged too
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace patchkit {

struct device {
    std::string arch;                  // gfx1151
    std::string name;                  // Radeon 8060S
    int wave_size;                     // lanes
    int multiprocessors;               // what hipDeviceProp_t calls multiProcessorCount
    int simds_per_multiprocessor;      // 4 for a WGP of RDNA, 4 for a CU of CDNA
    int max_waves_per_simd;
    int vgprs_per_simd;                // per lane
    int vgpr_granule;
    int max_vgprs_per_wave;            // assumed for kernels nobody compiled for this device
    size_t lds_per_block;              // bytes
    size_t memory_bytes;
    bool is_integrated;                // shares its memory with the host; optional, 0 or 1
};

struct resources {
    int vgprs;
    size_t lds;      // static, bytes
    bool assumed;    // not from a compiler
};

// The device of this process; ends the process with a message when the configuration is unusable.
const device & the_device();

// What a kernel uses, by mangled name.
resources resources_of(const std::string & mangled);

// Blocks of `threads` threads that one multiprocessor holds.
int resident_blocks(const resources & used, int threads, size_t dynamic_lds);

// Appends one line, JSON without the newline. Thread-safe; the line is on disk before this returns.
void log_line(const std::string & json);

// `text` as a JSON string with its quotes.
std::string quoted(const std::string & text);

// Whether every page of these bytes is mapped: a program that hands out a pointer to nothing gets an error
// back, as from the real runtime, where following it would end the process. No bytes are always there.
bool is_mapped(const void * pointer, size_t size);

// Whether a stream can be used: the default ones, or one that was created and not destroyed.
bool is_stream(const void * stream);

} // namespace patchkit
