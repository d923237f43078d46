"""``pick``: which patches pay on one machine with one user's models, found by measuring."""
