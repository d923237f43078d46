"""The patch manager: series, upstream, placing, candidates, following upstream, and making patches."""
