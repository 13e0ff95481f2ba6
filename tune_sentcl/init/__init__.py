"""`tune-sentcl init`: read examples, write a search space, and propose two searches."""
