"""Concrete edits: generated guards around rendered text, applied together, confirmed by clang."""
