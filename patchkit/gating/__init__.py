"""Judging pull requests: what changed, what that can affect, which gates have to run, and the verdict."""
