"""Compiling: the HIP toolchain, translation units, the cache of compiled units, upstream's CMake."""
