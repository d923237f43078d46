"""Shared by all packages: errors, files, processes, text, progress reporting, jobs."""
