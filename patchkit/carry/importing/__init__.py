"""Import: diffs, commits, pull requests and queues become patches of the series."""
