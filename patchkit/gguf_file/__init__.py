"""GGUF files: what the header says of a model. Nothing of a tensor's data is read."""
