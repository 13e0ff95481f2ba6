"""What `tune-sentcl init` does: it reads rows, writes a space and proposes two searches."""
