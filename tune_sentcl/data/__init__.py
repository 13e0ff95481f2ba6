"""Data of trials: training rows and evaluation sets, checked before anything else runs."""
