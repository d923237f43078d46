"""The gate that compares what the host code launches with what the patches promise."""
