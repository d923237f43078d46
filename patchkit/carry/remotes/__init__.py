"""Remotes that a series follows: pull requests of its patches, forks that it watches."""
