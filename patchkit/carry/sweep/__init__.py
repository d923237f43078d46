"""Sweep: classify each patch on many pins, without changing anything."""
