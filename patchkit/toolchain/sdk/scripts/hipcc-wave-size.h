// The wave size of the GPU that this pass compiles for. clang predefined this macro until version 21, and HIP headers
// before version 7 use it. 64 up to gfx9, 32 since; always 64 in the host pass (llvm-project, pull request 91478).
#if defined(__HIP__) && !defined(__SPIRV__) && !defined(__AMDGCN_WAVEFRONT_SIZE)
#if !defined(__HIP_DEVICE_COMPILE__) || defined(__GFX6__) || defined(__GFX7__) || defined(__GFX8__) || \
    defined(__GFX9__)
#define __AMDGCN_WAVEFRONT_SIZE 64
#else
#define __AMDGCN_WAVEFRONT_SIZE 32
#endif
#endif
