"""How fast a model can be at most, by what it must read and multiply."""
