"""``--onto``: place the series on a commit of the user's own clone."""
