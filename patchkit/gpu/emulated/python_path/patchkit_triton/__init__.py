"""Triton driver for the emulated GPU: Triton kernels run on it with the arrays of NumPy or PyTorch.

``patchkit emulate`` puts the folder above this package on PYTHONPATH. Triton finds the package through
its entry point in the group ``triton.backends``, so the driver is active only in programs that patchkit
starts. The package is imported by the program's own Python, which need not have patchkit: it uses only the
standard library and Triton, and NumPy or PyTorch if the program does.
"""
