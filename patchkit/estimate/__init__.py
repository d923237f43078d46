"""The least time that a model needs on a GPU: bytes and operations against bandwidth and peak."""
