"""patchkit: carries llama.cpp patches for AMD GPUs and proves what it ships."""
