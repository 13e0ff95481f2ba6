"""Measuring an encoder; all that is known of it here is `encode(sentences) -> float32 [n, d]`."""
