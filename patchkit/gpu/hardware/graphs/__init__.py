"""Small graphs of ggml operations: descriptions, patterns, variations, running and reducing them."""
