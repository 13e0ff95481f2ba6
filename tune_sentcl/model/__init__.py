"""Encoders: where they come from, how token states become embeddings, and how they are saved."""
