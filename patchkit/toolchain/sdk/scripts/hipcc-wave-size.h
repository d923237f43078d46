// Lanes of a wave of the GPU that this pass compiles for: what clang predefined until version 21, and the HIP headers
// before version 7 use. 64 up to gfx9, 32 since; in the host's pass it always was 64 (llvm-project, pull request 91478).
#if defined(__HIP__) && !defined(__SPIRV__) && !defined(__AMDGCN_WAVEFRONT_SIZE)
#if !defined(__HIP_DEVICE_COMPILE__) || defined(__GFX6__) || defined(__GFX7__) || defined(__GFX8__) || \
    defined(__GFX9__)
#define __AMDGCN_WAVEFRONT_SIZE 64
#else
#define __AMDGCN_WAVEFRONT_SIZE 32
#endif
#endif
