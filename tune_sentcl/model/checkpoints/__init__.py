"""Checkpoints: their names, their files, and how they are loaded."""
