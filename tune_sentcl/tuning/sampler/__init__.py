"""Optuna samplers: their trials, of this study and of others, and the points that are left."""
