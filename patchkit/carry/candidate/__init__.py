"""A candidate: planned, committed, found again, compared, built."""
