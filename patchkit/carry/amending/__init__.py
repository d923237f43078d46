"""Amend a series: replace, drop, fold and move its patches."""
