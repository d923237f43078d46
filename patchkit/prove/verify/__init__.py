"""Verify: which gates run where, running them, and reusing earlier results."""
