"""Results as blocks, and one renderer of them for each format."""
