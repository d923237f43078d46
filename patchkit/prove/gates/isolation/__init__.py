"""Gate ``isolation``: proves that the code of every other GPU is unchanged."""
