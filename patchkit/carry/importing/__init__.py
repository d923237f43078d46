"""Import: turn diffs, commits, pull requests and queues into patches of the series."""
