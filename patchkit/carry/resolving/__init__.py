"""Resolve: a patch in conflict with a new upstream gets new edits."""
