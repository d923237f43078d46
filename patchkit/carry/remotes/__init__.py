"""Remotes that a series follows: the pull requests of its patches."""
