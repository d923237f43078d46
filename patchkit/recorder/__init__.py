"""The launch recorder: a stub HIP runtime under a real host build, to read launches without a GPU.

Vocabulary: a *recording* is what one process launched; a *side* is the baseline or the candidate; a *case*
is one attention shape, run as a graph of its own. See docs/launch-recorder.md.
"""
