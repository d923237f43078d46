"""Programs that run on a GPU, here or on another machine: test-backend-ops, logits, llama-bench."""
