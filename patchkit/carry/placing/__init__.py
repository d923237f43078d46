"""Find the places of edits in upstream's files, write the edits, and confirm the result by parsing it."""
