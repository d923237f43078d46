"""The patch manager: what a user writes, upstream, placing, candidates, following upstream, authoring."""
