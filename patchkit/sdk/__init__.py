"""A private HIP SDK for hosts without ROCm: installing, describing and removing its prefix."""
