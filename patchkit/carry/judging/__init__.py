"""Judging: classify each patch on another upstream tree."""
