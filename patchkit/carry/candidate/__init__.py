"""Candidates: planning, committing, finding, comparing and exporting them."""
