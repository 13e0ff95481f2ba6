"""Checkpoints: their names, their files, and their loading."""
