"""Publish a proven candidate as a branch or package, with its evidence."""
