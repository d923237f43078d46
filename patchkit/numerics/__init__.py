"""Numbers of the patched attention kernel, measured on an NVIDIA GPU: bundle, cases, and what came back."""
