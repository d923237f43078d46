"""The stub HIP runtime: upstream's host code runs without a GPU, and what it launches is recorded."""
