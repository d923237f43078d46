"""Reports of what the gates found; ``registry`` lists the formats."""
