"""Hyperparameter search for contrastive sentence encoders."""
