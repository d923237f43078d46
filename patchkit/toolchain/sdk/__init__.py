"""The SDK: a private HIP prefix for machines without ROCm."""
