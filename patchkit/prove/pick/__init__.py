"""``pick``: finds by measuring which patches pay off on a machine with the user's models."""
