"""Evidence files: exported from measurements, checked when others made them, added to a series."""
