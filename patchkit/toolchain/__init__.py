"""Compiling: the toolchain, translation units, the store of what was compiled, upstream's CMake."""
