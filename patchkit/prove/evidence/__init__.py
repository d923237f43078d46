"""Evidence files: made of what was measured here, checked when others made them, added to a series."""
