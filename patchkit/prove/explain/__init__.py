"""Explain: which kernels upstream chooses for a shape or a model, and why."""
