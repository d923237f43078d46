"""The private HIP prefix for machines without ROCm: installing, describing, removing."""
