"""The gate that proves every other GPU's code unchanged."""
