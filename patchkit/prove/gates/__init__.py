"""The checks of a candidate, each with its evidence."""
