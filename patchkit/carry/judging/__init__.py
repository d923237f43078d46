"""Judging: what became of each patch on another tree of upstream."""
