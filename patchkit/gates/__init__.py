"""Checks with evidence: each gate proves one thing about a candidate, or says why it could not."""
