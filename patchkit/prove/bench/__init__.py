"""llama-bench on baselines and candidate in one go: built, measured by turns, kept, compared."""
