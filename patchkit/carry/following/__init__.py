"""Following upstream: what became of each patch, the new candidates, the moved lock."""
