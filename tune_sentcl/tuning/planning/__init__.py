"""Estimates of a search: trials, time and disk."""
