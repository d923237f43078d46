"""Reading llama-bench, judging two builds by it, showing several side by side; no program is run here."""
