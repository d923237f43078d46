"""Resolve: make new edits for a patch in conflict with a new upstream."""
