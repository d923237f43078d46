"""git, and llama.cpp out of it: repositories, the cache, the pinned tree."""
