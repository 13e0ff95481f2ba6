"""Encoders: their checkpoints, tokens, caches, pooling and heads."""
