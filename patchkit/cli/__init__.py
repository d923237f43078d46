"""The command line: commands, the error boundary, progress, JSON."""
