"""``--onto``: patching a commit of the user's own clone of llama.cpp."""
