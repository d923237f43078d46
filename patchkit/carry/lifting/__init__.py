"""Lifting: a diff becomes edits that are placed by code structure."""
