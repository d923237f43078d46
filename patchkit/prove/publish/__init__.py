"""A proven candidate as a branch or package for others, with its evidence."""
