"""Lifting: turn a diff into edits that are placed by code structure."""
