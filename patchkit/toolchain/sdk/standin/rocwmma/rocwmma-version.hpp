// The version of rocWMMA of which the stand-in has a part of the interface (docs/records/rocwmma-stand-in.md).
// llama.cpp checks it: RDNA4 needs 2 or newer, and 2.0.0 itself is rejected on CDNA.
#pragma once

#define ROCWMMA_VERSION_MAJOR 2
#define ROCWMMA_VERSION_MINOR 2
#define ROCWMMA_VERSION_PATCH 1

// Set by patchkit's stand-in only, not by rocWMMA.
#define ROCWMMA_STAND_IN 1
