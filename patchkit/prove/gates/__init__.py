"""The checks of a candidate, and verify, which runs them."""
