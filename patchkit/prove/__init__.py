"""What is proven of a candidate: gates, their reports, publishing, pull requests."""
