"""Tuning of kernel parameters: legal settings, compiled figures, ranking, and rows of the profile."""
