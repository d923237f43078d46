"""Gate ``launch``: compares what the host code launches with what the patches declare."""
