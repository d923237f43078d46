"""Compiling the trees: which toolchain, which files, with which arguments, and what came out."""
