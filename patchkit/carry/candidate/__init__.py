"""A candidate: planned, committed, found again, compared, handed over."""
