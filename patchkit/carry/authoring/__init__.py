"""Patches that patchkit writes for its user: lifted from a diff, or new from one command."""
