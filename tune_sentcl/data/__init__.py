"""The data of trials: training rows and evaluation sets, checked before anything runs."""
