"""Proving a candidate: gates, their reports, publishing, pull requests."""
