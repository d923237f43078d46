// The version whose interface the stand-in offers a part of (see docs/rocwmma-stand-in.md).
// llama.cpp decides by it: RDNA4 needs 2 or newer, and 2.0.0 itself is refused on CDNA.
#pragma once

#define ROCWMMA_VERSION_MAJOR 2
#define ROCWMMA_VERSION_MINOR 2
#define ROCWMMA_VERSION_PATCH 1

// Says that this is patchkit's stand-in and not rocWMMA.
#define ROCWMMA_STAND_IN 1
