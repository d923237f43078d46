"""The HIP runtime of our own, which records launches or executes them on the emulated GPU; its checks."""
