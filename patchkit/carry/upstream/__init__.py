"""Access to llama.cpp by git: repositories, the cache, the pinned tree."""
