"""The gate that measures the patched kernel's numbers on an NVIDIA GPU."""
