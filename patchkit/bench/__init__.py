"""Reading llama-bench and judging two builds by it; pure, no program is run here."""
