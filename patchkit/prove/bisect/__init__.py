"""``patchkit bisect``: finds the build or the patch that made a program wrong or slow."""
