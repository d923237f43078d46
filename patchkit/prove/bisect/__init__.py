"""``patchkit bisect``: finds the build or the patch since which a program is wrong or slow."""
