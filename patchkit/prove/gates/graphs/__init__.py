"""Gate ``graphs``: small graphs of operations, computed by both sides and the CPU."""
