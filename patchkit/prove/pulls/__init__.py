"""Pull requests: what changed, which gates that can affect, the verdict."""
