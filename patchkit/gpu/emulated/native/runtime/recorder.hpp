// Shared by the files of the launch recorder: the emulated device, and the log.
//
// The recorder replaces the HIP runtime: a real host build of the HIP backend loads it, queries the device, allocates,
// copies and launches. Nothing is computed. Environment variables:
//   PATCHKIT_RECORDER_DEVICE   file of "name value" lines, what the device is (required)
//   PATCHKIT_RECORDER_KERNELS  file of "mangled-name vgprs static-lds" lines, what kernels use (optional)
//   PATCHKIT_RECORDER_LOG      file the launches are appended to, one JSON object per line (required)
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace patchkit {

struct device {
    std::string arch;                  // gfx1151
    std::string name;                  // Radeon 8060S
    int wave_size;                     // lanes
    int multiprocessors;               // multiProcessorCount of hipDeviceProp_t
    int simds_per_multiprocessor;      // 4 for a WGP of RDNA, 4 for a CU of CDNA
    int max_waves_per_simd;
    int vgprs_per_simd;                // per lane
    int vgpr_granule;
    int max_vgprs_per_wave;            // assumed for kernels that were not compiled for this device
    size_t lds_per_block;              // bytes
    size_t memory_bytes;
    bool is_integrated;                // shares memory with the host; optional, 0 or 1
};

struct resources {
    int vgprs;
    size_t lds;      // static, bytes
    bool assumed;    // not from a compiler
};

// The device of this process; ends the process with a message if the configuration is unusable.
const device & the_device();

// Resources of a kernel, by mangled name.
resources resources_of(const std::string & mangled);

// Number of blocks of `threads` threads that fit on one multiprocessor.
int resident_blocks(const resources & used, int threads, size_t dynamic_lds);

// Appends a line of JSON (without newline). Thread-safe; the line is written before this returns.
void log_line(const std::string & json);

// `text` as a quoted JSON string.
std::string quoted(const std::string & text);

// Whether all pages of these bytes are mapped, so that invalid pointers result in an error as in the real runtime,
// instead of ending the process. True for size 0.
bool is_mapped(const void * pointer, size_t size);

// Whether a stream is valid: a default one, or one that was created and not destroyed.
bool is_stream(const void * stream);

} // namespace patchkit
