"""What the gates found, in one format for each reader; ``registry`` lists them."""
