"""`tune-sentcl init`: read rows, write a space and propose two searches."""
