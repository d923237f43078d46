"""llama-bench: measuring in rounds, reading its rows, statistics and tables."""
