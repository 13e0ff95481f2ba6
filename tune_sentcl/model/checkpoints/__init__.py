"""Checkpoints: which encoder a name means, what its files say, loading and saving."""
