"""Sweep: what becomes of each patch on many pins, changing nothing."""
