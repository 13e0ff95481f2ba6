"""Evaluation sets: SentEval's files under a data root, generated toy sets, and custom tasks."""
