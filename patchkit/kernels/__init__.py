"""Waves per SIMD, and the legal parameters of upstream's attention kernels."""
